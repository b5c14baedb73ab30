//! What a call costs when it runs, by upstream's constants.

use crate::value::Value;

/// Of traversing one character of a text.
pub(crate) const CHARACTER: f64 = 0.1;
/// Of one character of a pattern.
pub(crate) const PATTERN: f64 = 0.25;
pub(crate) const LIST: u64 = 10;
const MAP: u64 = 30;
pub(crate) const OBJECT: u64 = 40;
/// Of one question to the authorizer, so that an expression can put two.
pub(crate) const AUTHORIZE: u64 = 350_000;

/// Of creating a list.
pub(crate) const NEW_LIST: u64 = LIST;
/// Of creating a map.
pub(crate) const NEW_MAP: u64 = MAP;

/// How the cost of a call is counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Price {
    Fixed(u64),
    /// The text that comes first, so many times; optionals count by what is in them or not.
    Text(f64),
    /// The size of the second argument.
    SecondSize,
    /// Both texts.
    Both,
    /// The smaller of both.
    Smaller,
    /// As [`Price::Smaller`], but one for types of Kubernetes' libraries.
    Equal,
    Match,
    Contains,
    /// Every text in the first argument, at any depth.
    Tree,
    /// The text that results, twice.
    Joined,
    /// The elements that result.
    Made,
    Flatten,
    /// The elements of an argument, each with each.
    Squared(usize),
    /// The elements of both, each with each, so many times.
    Product(f64),
    Selector,
    ContainsIp {
        parse: bool,
    },
    ContainsCidr {
        parse: bool,
    },
    Validate,
}

/// Whether a function of Kubernetes' libraries costs one, whatever its arguments are.
pub(crate) fn costs_one(function: &str) -> bool {
    const FLAT: [&str; 38] = [
        "serviceAccount",
        "path",
        "group",
        "resource",
        "subresource",
        "namespace",
        "name",
        "allowed",
        "reason",
        "error",
        "errored",
        "masked",
        "prefixLength",
        "family",
        "isUnspecified",
        "isLoopback",
        "isLinkLocalMulticast",
        "isLinkLocalUnicast",
        "isGlobalUnicast",
        "format.named",
        "sign",
        "asInteger",
        "isInteger",
        "asApproximateFloat",
        "isGreaterThan",
        "isLessThan",
        "compareTo",
        "add",
        "sub",
        "major",
        "minor",
        "patch",
        "getScheme",
        "getHostname",
        "getHost",
        "getPort",
        "getEscapedPath",
        "getQuery",
    ];
    FLAT.contains(&function)
}

impl Price {
    /// Of a function, by the overload that was chosen; several leave it open.
    pub(crate) fn of(function: &str, overload: &str) -> Price {
        match function {
            "check" => Price::Fixed(AUTHORIZE),
            flat if costs_one(flat) => Price::Fixed(1),
            "fieldSelector" | "labelSelector" => Price::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => Price::Tree,
            "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR"
            | "quantity" | "isQuantity" | "semver" | "isSemver" => Price::Text(CHARACTER),
            "ip" if overload == "cidr_ip" => Price::Fixed(1),
            "ip" => Price::Text(CHARACTER),
            "replace" | "split" | "ip.isCanonical" => Price::Text(2.0 * CHARACTER),
            "join" => Price::Joined,
            "find" | "findAll" => Price::Match,
            "containsIP" => Price::ContainsIp { parse: overload == "cidr_contains_ip_string" },
            "containsCIDR" => Price::ContainsCidr { parse: overload == "cidr_contains_cidr_string" },
            "validate" => Price::Validate,
            "_==_" => Price::Equal,
            "_!=_" => Price::Smaller,
            _ => Price::of_overload(overload),
        }
    }

    fn of_overload(overload: &str) -> Price {
        match overload {
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
            | "strings_quote" | "string_format" => Price::Text(CHARACTER),
            "in_list" => Price::SecondSize,
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes" => Price::Smaller,
            "add_string" | "add_bytes" => Price::Both,
            "matches_string" => Price::Match,
            "contains_string" => Price::Contains,
            "list_slice" | "lists_range" | "list_reverse" => Price::Made,
            "list_flatten" | "list_flatten_int" => Price::Flatten,
            "list_distinct" => Price::Squared(0),
            "list_sets_contains_list" | "list_sets_intersects_list" => Price::Product(1.0),
            "list_sets_equivalent_list" => Price::Product(2.0),
            sort if sort.ends_with("_sort") => Price::Squared(0),
            sort if sort.ends_with("_sortByAssociatedKeys") => Price::Squared(1),
            _ => Price::Fixed(1),
        }
    }

    /// Whether it goes by what the call makes.
    pub(crate) fn is_of_result(self) -> bool {
        matches!(self, Price::Joined | Price::Made)
    }

    /// The cost by the arguments; one that failed is none.
    pub(crate) fn before(self, args: &[Option<&Value<'_>>]) -> u64 {
        let size = |at: usize| size(args.get(at).copied().flatten());
        match self {
            Price::Fixed(cost) => cost,
            Price::Text(factor) => times(size(0), factor),
            Price::SecondSize => size(1),
            Price::Both => times(size(0).saturating_add(size(1)), CHARACTER),
            Price::Smaller => smaller(args),
            Price::Equal => match args.first().copied().flatten() {
                Some(value) if is_of_library(value) => 1,
                _ => smaller(args),
            },
            Price::Match => {
                times(size(0).saturating_add(1), CHARACTER).saturating_mul(times(size(1), PATTERN))
            }
            Price::Contains => times(size(0), CHARACTER).saturating_mul(times(size(1), CHARACTER)),
            Price::Tree => args.first().copied().flatten().map_or(1, traversal),
            Price::Flatten => {
                let depth = match args.get(1).copied().flatten() {
                    Some(Value::Int(depth)) => signed(*depth),
                    _ => 1.0,
                };
                made(size(0), depth)
            }
            Price::Squared(at) => squared(args.get(at).copied().flatten()),
            Price::Product(factor) => 1 + floor(size(0).saturating_mul(size(1)), factor),
            Price::Selector => {
                let length = size(1);
                let each = (LIST + OBJECT) as f64;
                LIST + times(length, CHARACTER) + times(times(length, 0.5), each)
            }
            Price::ContainsIp { parse } => {
                let other = if parse { times(size(1), CHARACTER) } else { 0 };
                times(size(0) * 2, CHARACTER) + other
            }
            Price::ContainsCidr { parse } => {
                let other = if parse { times(size(1), CHARACTER) } else { 0 };
                times(size(0) * 2, CHARACTER) + times(size(0), CHARACTER) + 1 + other
            }
            Price::Validate => validate(args),
            Price::Joined | Price::Made => 0,
        }
    }

    /// The cost by the result.
    pub(crate) fn after(self, result: Option<&Value<'_>>) -> u64 {
        match self {
            Price::Joined => times(size(result), 2.0 * CHARACTER),
            Price::Made => made(size(result), 1.0),
            _ => 0,
        }
    }
}

/// A match against the pattern of a format.
fn validate(args: &[Option<&Value<'_>>]) -> u64 {
    let Some(Some(Value::Format(format))) = args.first() else { return 1 };
    let text = size(args.get(1).copied().flatten()).saturating_add(1);
    times(text, CHARACTER).saturating_mul(times(format.pattern, PATTERN))
}

/// What `size()` says, and 1 for everything else; of an optional what is in it does not count here.
fn size(value: Option<&Value<'_>>) -> u64 {
    value.and_then(Value::size).map_or(1, |size| size as u64)
}

/// The same, but of an optional it is what is in it that counts.
fn inner_size(value: Option<&Value<'_>>) -> u64 {
    match value {
        Some(Value::Optional(Some(inner))) => inner_size(Some(inner)),
        other => size(other),
    }
}

fn smaller(args: &[Option<&Value<'_>>]) -> u64 {
    let size = |at: usize| inner_size(args.get(at).copied().flatten());
    times(size(0).min(size(1)), CHARACTER)
}

fn is_of_library(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Quantity(_)
            | Value::Ip(_)
            | Value::Cidr(_)
            | Value::Format(_)
            | Value::Url(_)
            | Value::Semver(_)
            | Value::Authorization(_)
    )
}

/// Every text and byte below a value, and one for every other leaf.
fn traversal(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => floor(text.len() as u64, CHARACTER),
        Value::Bytes(bytes) => floor(bytes.len() as u64, CHARACTER),
        Value::List(list) => list.iter().map(|value| value.as_ref().map_or(1, traversal)).sum(),
        Value::Map(map) => map
            .entries()
            .map(|(key, value)| traversal(&key.value()) + value.as_ref().map_or(1, traversal))
            .sum(),
        _ => 1,
    }
}

/// Elements that are compared each with each.
fn squared(list: Option<&Value<'_>>) -> u64 {
    // Upstream's count fails over an argument that failed, and costs nothing.
    let Some(Value::List(list)) = list else { return 0 };
    let count = list.len() as u64;
    let factor = match list.get(0) {
        Some(Ok(Value::String(_) | Value::Bytes(_))) => 2.0 + CHARACTER,
        _ => 2.0,
    };
    made(count.saturating_mul(count), factor)
}

fn made(count: u64, factor: f64) -> u64 {
    match factor < 0.0 {
        // Upstream's number goes round below zero.
        true => (1 + LIST).wrapping_sub(floor(count, -factor)),
        false => floor(count, factor).saturating_add(1 + LIST),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "upstream counts as floating point; the cast saturates"
)]
fn times(count: u64, factor: f64) -> u64 {
    (count as f64 * factor).ceil() as u64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "upstream counts as floating point; the cast saturates"
)]
fn floor(count: u64, factor: f64) -> u64 {
    (count as f64 * factor) as u64
}

#[allow(clippy::cast_precision_loss, reason = "upstream counts as floating point")]
fn signed(value: i64) -> f64 {
    value as f64
}
