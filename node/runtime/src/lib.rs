//! The CRI server: sandboxes and containers as journalled state machines.
