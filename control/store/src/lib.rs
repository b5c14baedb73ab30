//! A revisioned key-value store with watch: one trait, an embedded engine, later an etcd engine.
