//! Makes this node match the pods bound to it.
