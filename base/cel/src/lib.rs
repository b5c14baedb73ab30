//! Kubernetes' dialect of CEL: parsed, type-checked, weighed and evaluated. Pure: no I/O, no clock, no async.
//!
//! The door is here before the house, so that the edges to it are law from the first line: API server, scheduler and drivers
//! may know this crate, and it knows none of ours but `base/api`. Nothing is exported yet; the rules of custom resources are
//! the first to need it.
//!
//! Four steps, each a type of its own, so that none can be left out: source text, a checked expression of a known environment
//! and version of Kubernetes, its estimated cost against a limit, and an evaluation with a budget that ends it.
//!
//! <https://kubernetes.io/docs/reference/using-api/cel/>, <https://github.com/google/cel-spec/blob/master/doc/langdef.md>
