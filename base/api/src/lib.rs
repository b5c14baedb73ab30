//! Kubernetes objects as data: the kinds table, defaulting, validation, selectors, patches. Pure.
