//! Kubernetes' limits on expressions, and the sizes that estimates begin with.

/// The most that one evaluation may cost.
pub const PER_CALL: u64 = 1_000_000;
/// The most that all rules of one request may cost together.
pub const PER_REQUEST: u64 = 10_000_000;
/// The most that the match conditions of one webhook or policy may cost together.
pub const MATCH_CONDITIONS: u64 = 2_500_000;
/// The most that one rule of a CustomResourceDefinition may be estimated to cost.
pub const ESTIMATED_PER_RULE: u64 = 10_000_000;
/// The most that all rules of one schema may be estimated to cost.
pub const ESTIMATED_PER_SCHEMA: u64 = 100_000_000;
/// The most that a DRA selector may cost, estimated and evaluated.
pub const DEVICE_SELECTOR: u64 = 1_000_000;
/// The longest DRA selector, in bytes.
pub const DEVICE_SELECTOR_BYTES: usize = 10 * 1024;
/// The longest result of a message expression that is used, in bytes.
pub const MESSAGE_BYTES: usize = 5 * 1024;

/// The largest request, by which everything without a bound of its own is bounded.
pub const REQUEST_BYTES: u64 = 3 * 1024 * 1024;

pub(crate) const LONGEST_DURATION: u64 = 32;
pub(crate) const LONGEST_DATE_TIME: u64 = 32;
pub(crate) const DATE_BYTES: u64 = 12;
pub(crate) const LEAST_DURATION_BYTES: u64 = 3;
pub(crate) const LEAST_DATE_TIME_BYTES: u64 = 21;
pub(crate) const LEAST_STRING_BYTES: u64 = 2;
pub(crate) const LEAST_BOOL_BYTES: u64 = 4;
pub(crate) const LEAST_NUMBER_BYTES: u64 = 1;
