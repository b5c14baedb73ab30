//! One container from OCI spec to execve, and the supervisor that outlives the daemon.

#![allow(unsafe_code)]
