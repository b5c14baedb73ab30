//! Mounts through the new mount API.
