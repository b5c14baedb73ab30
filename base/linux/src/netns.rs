//! Network namespaces: open and enter on a thread.
