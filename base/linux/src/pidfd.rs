//! Process file descriptors.
