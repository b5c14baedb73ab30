//! Reads and writes of /proc/sys.
