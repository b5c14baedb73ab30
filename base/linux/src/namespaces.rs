//! Pins of namespaces: made on a thread, kept as files.
