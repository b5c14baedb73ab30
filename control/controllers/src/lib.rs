//! Objects that make objects: service accounts, namespaces, pod garbage, node lifecycle.
