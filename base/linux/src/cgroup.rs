//! cgroup v1 hybrid and v2: create, limit, measure, freeze, kill, remove.
