//! What one call may cost, and how large its result may be.

use super::{Argument, Estimator, Range};
use crate::ast::{Expr, Kind, Literal};
use crate::kind::Type;
use crate::price::{AUTHORIZE, CHARACTER, LIST, OBJECT, PATTERN, costs_one};

/// Characters of the longest pattern of a named format.
const FORMAT_PATTERN: f64 = 128.0;
/// Characters of the longest name of a format.
const FORMAT_NAME: u64 = 64;
/// Values that an attribute of a device may have.
const DEVICE_VALUES: u64 = 48;

/// The cost of a call, and the size of its result where it is known.
type Estimate = (Range, Option<Range>);

impl Argument<'_> {
    fn size(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }
}

impl Estimator<'_> {
    /// The cost of a call by one overload, that of its arguments included.
    pub(super) fn function(
        &mut self,
        expr: &Expr,
        name: &str,
        overload: &str,
        target: Option<&Argument<'_>>,
        args: &[Argument<'_>],
    ) -> Estimate {
        let arguments = args.iter().fold(Range::fixed(0), |sum, arg| sum.plus(arg.cost));
        let own = extension(overload, target, args).or_else(|| self.library(name, overload, target, args));
        if let Some((cost, size)) = own {
            return (cost.plus(arguments), size);
        }
        if let Some(whole) = self.standard(expr, overload, target, args, arguments) {
            return whole;
        }
        (Range::fixed(1).plus(arguments), None)
    }

    /// The functions of Kubernetes' libraries, and those that it prices itself.
    fn library(
        &mut self,
        name: &str,
        overload: &str,
        target: Option<&Argument<'_>>,
        args: &[Argument<'_>],
    ) -> Option<Estimate> {
        let one = Some((Range::fixed(1), None));
        let parsed = |factor: f64| args.first().map(|arg| (arg.size().by(factor), None));
        match name {
            "check" => Some((Range::fixed(AUTHORIZE), None)),
            flat if costs_one(flat) => one,
            "fieldSelector" | "labelSelector" => args.first().map(|arg| {
                let each = (LIST + OBJECT) as f64;
                let size = arg.size();
                (Range::fixed(LIST).plus(size.by(CHARACTER)).plus(size.by(0.5).by(each)), None)
            }),
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                target.map(|target| (self.compared(target), None))
            }
            "url" => args.first().map(|arg| (arg.size().by(CHARACTER), Some(arg.size()))),
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                target.map(|target| (target.size().by(CHARACTER), Some(target.size())))
            }
            "replace" => Some(replaced(target?, args)),
            "split" => target.map(|target| {
                let most = match args.get(1).map(|arg| &arg.expr.kind) {
                    Some(Kind::Literal(Literal::Int(most))) => most.cast_unsigned(),
                    _ => target.size().most,
                };
                (target.size().by(2.0 * CHARACTER), Some(Range { least: 0, most }))
            }),
            "join" => target.map(|target| self.joined(target, args)),
            "find" | "findAll" => target.zip(args.first()).map(|(target, pattern)| {
                let text = target.size().plus(Range::fixed(1)).by(CHARACTER);
                let size = Range { least: 0, most: target.size().most };
                (text.times(pattern.size().by(PATTERN)), Some(size))
            }),
            "ip" if overload == "cidr_ip" => one,
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                parsed(CHARACTER)
            }
            "ip.isCanonical" => parsed(2.0 * CHARACTER),
            "containsIP" | "containsCIDR" => args.first().map(|arg| (contained(overload, arg), None)),
            "validate" => {
                args.first().map(|arg| (arg.size().by(CHARACTER).by(FORMAT_PATTERN * PATTERN), None))
            }
            "includes" => target.map(|_| (Range { least: 0, most: DEVICE_VALUES }, None)),
            "_==_" => same_library(args),
            _ => None,
        }
    }

    /// A walk over a list, in which every element is compared once.
    fn compared(&mut self, target: &Argument<'_>) -> Range {
        let Some(element) = element_of(target.kind) else { return target.size().by(CHARACTER) };
        let mut each = Range::fixed(1);
        if matches!(element, Type::String | Type::Bytes) {
            each = each.plus(self.element_size(target).by(CHARACTER));
        }
        target.size().times(each)
    }

    fn element_size(&mut self, target: &Argument<'_>) -> Range {
        let path = target.path.as_ref().map(|path| {
            let mut path = path.clone();
            path.push("@items".to_owned());
            path
        });
        self.allowed(path.as_ref()).unwrap_or(Range::UNKNOWN)
    }

    fn joined(&mut self, target: &Argument<'_>, args: &[Argument<'_>]) -> Estimate {
        let count = target.size();
        let mut size = Range::fixed(0);
        if element_of(target.kind).is_some() {
            size = count.times(self.element_size(target));
        }
        if let Some(separator) = args.first() {
            let between = Range { least: count.least.saturating_sub(1), most: count.most.saturating_sub(1) };
            size = size.plus(separator.size().times(between));
        }
        (size.by(CHARACTER), Some(size))
    }

    /// The standard functions that do not cost one.
    fn standard(
        &mut self,
        expr: &Expr,
        overload: &str,
        target: Option<&Argument<'_>>,
        args: &[Argument<'_>],
        arguments: Range,
    ) -> Option<Estimate> {
        let size = |at: usize| args.get(at).map_or(Range::UNKNOWN, Argument::size);
        let plain = |cost: Range| Some((cost.plus(arguments), None));
        match overload {
            "string_format" => plain(target?.size().by(CHARACTER)),
            "string_to_bytes" => {
                let Range { least, most } = size(0);
                let cost = size(0).by(CHARACTER).plus(arguments);
                Some((cost, Some(Range { least, most: most.wrapping_mul(4) })))
            }
            "bytes_to_string" => {
                let Range { least, most } = size(0);
                Some((size(0).by(CHARACTER).plus(arguments), Some(Range { least: least / 4, most })))
            }
            "strings_quote" => {
                let Range { least, most } = size(0);
                let quoted =
                    Range { least: least.wrapping_add(2), most: most.wrapping_mul(2).wrapping_add(2) };
                Some((size(0).by(CHARACTER).plus(arguments), Some(quoted)))
            }
            "starts_with_string" | "ends_with_string" => plain(size(0).by(CHARACTER)),
            "in_list" => plain(size(1).by(1.0)),
            "matches_string" => {
                let text = target?.size().plus(Range::fixed(1)).by(CHARACTER);
                plain(text.times(size(0).by(PATTERN)))
            }
            "contains_string" => plain(target?.size().by(CHARACTER).times(size(0).by(CHARACTER))),
            "logical_and" | "logical_or" => {
                let least = args.first().map_or(0, |arg| arg.cost.least);
                Some((Range { least, most: arguments.most }, None))
            }
            "conditional" => Some(self.conditional(expr, args)),
            "add_string" | "add_bytes" | "add_list" => {
                let sum = size(0).plus(size(1));
                if let (Some(left), Some(right)) = (self.entries(args[0].expr), self.entries(args[1].expr)) {
                    self.set_entries(expr, Some(left.union(right)));
                }
                let cost = if overload == "add_list" { Range::fixed(1) } else { sum.by(CHARACTER) };
                Some((cost.plus(arguments), Some(sum)))
            }
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals" => {
                let most = size(0).most.min(size(1).most);
                plain(Range { least: u64::from(most > 0), most }.by(CHARACTER))
            }
            _ => None,
        }
    }

    fn conditional(&mut self, expr: &Expr, args: &[Argument<'_>]) -> Estimate {
        let size = args[1].size().union(args[2].size());
        if let (Some(left), Some(right)) = (self.entries(args[1].expr), self.entries(args[2].expr)) {
            self.set_entries(expr, Some(left.union(right)));
        }
        (args[0].cost.plus(args[1].cost.union(args[2].cost)), Some(size))
    }
}

/// The type of the elements of a list; that of the keys of a map, as upstream takes the first parameter.
fn element_of(kind: &Type) -> Option<&Type> {
    match kind {
        Type::List(inner) | Type::Optional(inner) => Some(inner),
        Type::Map(both) => Some(&both.0),
        _ => None,
    }
}

/// The extensions that price themselves, by their overloads.
fn extension(overload: &str, target: Option<&Argument<'_>>, args: &[Argument<'_>]) -> Option<Estimate> {
    let made = |factor: f64, size: Range| {
        Some((size.by(factor).plus(Range::fixed(1)).plus(Range::fixed(LIST)), Some(size)))
    };
    let sets = |factor: f64| {
        let both = args.first()?.size().times(args.get(1)?.size());
        Some((both.by(factor).plus(Range::fixed(1)), None))
    };
    match overload {
        "list_slice" => {
            let size = target?.size();
            let (start, end) = (literal(args.first()?, 0), literal(args.get(1)?, size.most));
            made(1.0, Range::fixed(end.wrapping_sub(start)))
        }
        "lists_range" => made(1.0, Range::fixed(literal(args.first()?, u64::MAX))),
        "list_reverse" => made(1.0, target?.size()),
        "list_flatten" => made(1.0, target?.size()),
        "list_flatten_int" => made(as_factor(literal(args.first()?, u64::MAX)), target?.size()),
        "list_distinct" => made(2.0, target?.size().times(target?.size())),
        "list_sets_contains_list" | "list_sets_intersects_list" => sets(1.0),
        "list_sets_equivalent_list" => sets(2.0),
        sort if sort.ends_with("_sort") || sort.ends_with("_sortByAssociatedKeys") => {
            let of = if sort.ends_with("_sort") { target? } else { args.first()? };
            let text = sort.starts_with("list_string") || sort.starts_with("list_bytes");
            made(if text { 2.0 + CHARACTER } else { 2.0 }, of.size().times(of.size()))
        }
        _ => None,
    }
}

#[allow(clippy::cast_precision_loss, reason = "upstream counts as floating point")]
fn as_factor(depth: u64) -> f64 {
    depth as f64
}

/// The number that a literal is, or the one that is meant otherwise.
fn literal(arg: &Argument<'_>, otherwise: u64) -> u64 {
    match &arg.expr.kind {
        Kind::Literal(Literal::Int(value)) => u64::try_from(*value).unwrap_or(0),
        _ => otherwise,
    }
}

/// The cost of looking whether an address or a network is in a network.
fn contained(overload: &str, arg: &Argument<'_>) -> Range {
    let bytes = Range { least: 4, most: 16 };
    let mut cost = bytes.plus(bytes).by(CHARACTER);
    if overload.starts_with("cidr_contains_cidr") {
        cost = cost.plus(bytes.by(CHARACTER)).plus(Range::fixed(1));
    }
    if overload.ends_with("_string") {
        cost = cost.plus(arg.size().by(CHARACTER));
    }
    cost
}

/// Equality of two values of a type of Kubernetes' libraries.
fn same_library(args: &[Argument<'_>]) -> Option<Estimate> {
    let [left, right] = args else { return None };
    if !left.kind.is_exactly(right.kind) {
        return None;
    }
    let cost = match left.kind {
        Type::Opaque(_) => Range::fixed(1),
        Type::Library("kubernetes.NamedFormat") => Range { least: 1, most: FORMAT_NAME }.by(CHARACTER),
        Type::Library("kubernetes.URL") => {
            let most = right.size.map_or(1, |size| size.most);
            Range { least: 1, most }.by(CHARACTER)
        }
        Type::Library(_) => Range::fixed(1),
        _ => return None,
    };
    Some((cost, None))
}

/// The cost of replacing, and how long the result is: by the most and the longest replacements, and by the fewest and shortest.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "upstream counts as floating point; the cast saturates"
)]
fn replaced(target: &Argument<'_>, args: &[Argument<'_>]) -> Estimate {
    let size = target.size();
    let cost = size.by(2.0 * CHARACTER);
    let [old, new, ..] = args else { return (cost, None) };
    let (old, new) = (old.size(), new.size());
    let count = |size: u64, old: u64| (size as f64 / old as f64).ceil() as u64;
    let (most, kept_most) = if old.least == 0 {
        (size.most.saturating_add(1), size.most)
    } else if new.most <= old.least {
        (0, size.most)
    } else {
        (count(size.most, old.least), 0)
    };
    let (least, kept_least) = if old.most == 0 {
        (size.least.saturating_add(1), size.least)
    } else if old.most <= new.least {
        (0, size.least)
    } else {
        (count(size.least, old.most), 0)
    };
    let result = Range { least, most }.times(new).plus(Range { least: kept_least, most: kept_most });
    (cost, Some(result))
}
