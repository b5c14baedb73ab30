//! The functions that expressions know: names, overloads, types.
//!
//! One line each: its name among the overloads, then the signature. `A.f(B)` is called on a value, `f(A)` is not. The names
//! are upstream's, because costs go by them.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::functions::format;
use crate::kind::Type;

/// One way to call a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub id: &'static str,
    pub member: bool,
    /// The target first, if it has one.
    pub args: Vec<Type>,
    pub result: Type,
    /// How many parameters the types have.
    pub generic: bool,
}

/// Functions by their names.
pub(crate) type Functions = HashMap<&'static str, Vec<Overload>>;

/// The functions of Kubernetes' base environment.
pub(crate) static KUBERNETES: LazyLock<Functions> = LazyLock::new(|| read(&[STANDARD, EXTENSIONS]));

/// Those and what device selectors have in addition.
pub(crate) static DEVICES: LazyLock<Functions> = LazyLock::new(|| read(&[STANDARD, EXTENSIONS, DEVICE]));

const DEVICE: &str = "
dra_includes_dyn_dyn dyn.includes(dyn) -> bool
";

const STANDARD: &str = "
conditional _?_:_(bool, A, A) -> A
logical_and _&&_(bool, bool) -> bool
logical_or _||_(bool, bool) -> bool
logical_not !_(bool) -> bool
not_strictly_false @not_strictly_false(bool) -> bool
equals _==_(A, A) -> bool
not_equals _!=_(A, A) -> bool
add_bytes _+_(bytes, bytes) -> bytes
add_double _+_(double, double) -> double
add_duration_duration _+_(duration, duration) -> duration
add_duration_timestamp _+_(duration, timestamp) -> timestamp
add_timestamp_duration _+_(timestamp, duration) -> timestamp
add_int64 _+_(int, int) -> int
add_list _+_(list(A), list(A)) -> list(A)
add_string _+_(string, string) -> string
add_uint64 _+_(uint, uint) -> uint
divide_double _/_(double, double) -> double
divide_int64 _/_(int, int) -> int
divide_uint64 _/_(uint, uint) -> uint
modulo_int64 _%_(int, int) -> int
modulo_uint64 _%_(uint, uint) -> uint
multiply_double _*_(double, double) -> double
multiply_int64 _*_(int, int) -> int
multiply_uint64 _*_(uint, uint) -> uint
negate_double -_(double) -> double
negate_int64 -_(int) -> int
subtract_double _-_(double, double) -> double
subtract_duration_duration _-_(duration, duration) -> duration
subtract_int64 _-_(int, int) -> int
subtract_timestamp_duration _-_(timestamp, duration) -> timestamp
subtract_timestamp_timestamp _-_(timestamp, timestamp) -> duration
subtract_uint64 _-_(uint, uint) -> uint
index_list _[_](list(A), int) -> A
index_map _[_](map(A, B), A) -> B
optional_list_index_int _[_](optional(list(V)), int) -> optional(V)
optional_map_index_value _[_](optional(map(K, V)), K) -> optional(V)
list_optindex_optional_int _[?_](list(V), int) -> optional(V)
optional_list_optindex_optional_int _[?_](optional(list(V)), int) -> optional(V)
map_optindex_optional_value _[?_](map(K, V), K) -> optional(V)
optional_map_optindex_optional_value _[?_](optional(map(K, V)), K) -> optional(V)
select_optional_field _?._(dyn, string) -> optional(V)
in_list @in(A, list(A)) -> bool
in_map @in(A, map(A, B)) -> bool
size_bytes size(bytes) -> int
bytes_size bytes.size() -> int
size_list size(list(A)) -> int
list_size list(A).size() -> int
size_map size(map(A, B)) -> int
map_size map(A, B).size() -> int
size_string size(string) -> int
string_size string.size() -> int
type type(A) -> type(A)
bool_to_bool bool(bool) -> bool
string_to_bool bool(string) -> bool
bytes_to_bytes bytes(bytes) -> bytes
string_to_bytes bytes(string) -> bytes
double_to_double double(double) -> double
int64_to_double double(int) -> double
string_to_double double(string) -> double
uint64_to_double double(uint) -> double
duration_to_duration duration(duration) -> duration
int64_to_duration duration(int) -> duration
string_to_duration duration(string) -> duration
to_dyn dyn(A) -> dyn
int64_to_int64 int(int) -> int
double_to_int64 int(double) -> int
duration_to_int64 int(duration) -> int
string_to_int64 int(string) -> int
timestamp_to_int64 int(timestamp) -> int
uint64_to_int64 int(uint) -> int
string_to_string string(string) -> string
bool_to_string string(bool) -> string
bytes_to_string string(bytes) -> string
double_to_string string(double) -> string
duration_to_string string(duration) -> string
int64_to_string string(int) -> string
timestamp_to_string string(timestamp) -> string
uint64_to_string string(uint) -> string
timestamp_to_timestamp timestamp(timestamp) -> timestamp
int64_to_timestamp timestamp(int) -> timestamp
string_to_timestamp timestamp(string) -> timestamp
uint64_to_uint64 uint(uint) -> uint
double_to_uint64 uint(double) -> uint
int64_to_uint64 uint(int) -> uint
string_to_uint64 uint(string) -> uint
contains_string string.contains(string) -> bool
ends_with_string string.endsWith(string) -> bool
starts_with_string string.startsWith(string) -> bool
matches matches(string, string) -> bool
matches_string string.matches(string) -> bool
timestamp_to_year timestamp.getFullYear() -> int
timestamp_to_year_with_tz timestamp.getFullYear(string) -> int
timestamp_to_month timestamp.getMonth() -> int
timestamp_to_month_with_tz timestamp.getMonth(string) -> int
timestamp_to_day_of_year timestamp.getDayOfYear() -> int
timestamp_to_day_of_year_with_tz timestamp.getDayOfYear(string) -> int
timestamp_to_day_of_month timestamp.getDayOfMonth() -> int
timestamp_to_day_of_month_with_tz timestamp.getDayOfMonth(string) -> int
timestamp_to_day_of_month_1_based timestamp.getDate() -> int
timestamp_to_day_of_month_1_based_with_tz timestamp.getDate(string) -> int
timestamp_to_day_of_week timestamp.getDayOfWeek() -> int
timestamp_to_day_of_week_with_tz timestamp.getDayOfWeek(string) -> int
timestamp_to_hours timestamp.getHours() -> int
timestamp_to_hours_with_tz timestamp.getHours(string) -> int
duration_to_hours duration.getHours() -> int
timestamp_to_minutes timestamp.getMinutes() -> int
timestamp_to_minutes_with_tz timestamp.getMinutes(string) -> int
duration_to_minutes duration.getMinutes() -> int
timestamp_to_seconds timestamp.getSeconds() -> int
timestamp_to_seconds_tz timestamp.getSeconds(string) -> int
duration_to_seconds duration.getSeconds() -> int
timestamp_to_milliseconds timestamp.getMilliseconds() -> int
timestamp_to_milliseconds_with_tz timestamp.getMilliseconds(string) -> int
duration_to_milliseconds duration.getMilliseconds() -> int
";

const EXTENSIONS: &str = "
string_char_at_int string.charAt(int) -> string
string_index_of_string string.indexOf(string) -> int
string_index_of_string_int string.indexOf(string, int) -> int
list_a_index_of_int list(A).indexOf(A) -> int
string_last_index_of_string string.lastIndexOf(string) -> int
string_last_index_of_string_int string.lastIndexOf(string, int) -> int
list_a_last_index_of_int list(A).lastIndexOf(A) -> int
string_lower_ascii string.lowerAscii() -> string
string_upper_ascii string.upperAscii() -> string
string_replace_string_string string.replace(string, string) -> string
string_replace_string_string_int string.replace(string, string, int) -> string
string_split_string string.split(string) -> list(string)
string_split_string_int string.split(string, int) -> list(string)
string_substring_int string.substring(int) -> string
string_substring_int_int string.substring(int, int) -> string
string_trim string.trim() -> string
string_format string.format(list(dyn)) -> string
strings_quote strings.quote(string) -> string
list_join list(string).join() -> string
list_join_string list(string).join(string) -> string
optional_of optional.of(V) -> optional(V)
optional_ofNonZeroValue optional.ofNonZeroValue(V) -> optional(V)
optional_none optional.none() -> optional(V)
optional_value optional(V).value() -> V
optional_hasValue optional(V).hasValue() -> bool
optional_or_optional optional(V).or(optional(V)) -> optional(V)
optional_orValue_value optional(V).orValue(V) -> V
list_last list(V).last() -> optional(V)
list_first list(V).first() -> optional(V)
optional_unwrap optional.unwrap(list(optional(V))) -> list(V)
optional_unwrapOpt list(optional(V)).unwrapOpt() -> list(V)
list_sets_contains_list sets.contains(list(T), list(T)) -> bool
list_sets_equivalent_list sets.equivalent(list(T), list(T)) -> bool
list_sets_intersects_list sets.intersects(list(T), list(T)) -> bool
@mapInsert_map_key_value cel.@mapInsert(map(K, V), K, V) -> map(K, V)
@mapInsert_map_map cel.@mapInsert(map(K, V), map(K, V)) -> map(K, V)
list_slice list(T).slice(int, int) -> list(T)
list_flatten list(list(T)).flatten() -> list(T)
list_flatten_int list(dyn).flatten(int) -> list(dyn)
list_int_sort list(int).sort() -> list(int)
list_uint_sort list(uint).sort() -> list(uint)
list_double_sort list(double).sort() -> list(double)
list_bool_sort list(bool).sort() -> list(bool)
list_google.protobuf.Duration_sort list(duration).sort() -> list(duration)
list_google.protobuf.Timestamp_sort list(timestamp).sort() -> list(timestamp)
list_string_sort list(string).sort() -> list(string)
list_bytes_sort list(bytes).sort() -> list(bytes)
list_int_sortByAssociatedKeys list(T).@sortByAssociatedKeys(list(int)) -> list(T)
list_uint_sortByAssociatedKeys list(T).@sortByAssociatedKeys(list(uint)) -> list(T)
list_double_sortByAssociatedKeys list(T).@sortByAssociatedKeys(list(double)) -> list(T)
list_bool_sortByAssociatedKeys list(T).@sortByAssociatedKeys(list(bool)) -> list(T)
list_google.protobuf.Duration_sortByAssociatedKeys list(T).@sortByAssociatedKeys(list(duration)) -> list(T)
list_google.protobuf.Timestamp_sortByAssociatedKeys list(T).@sortByAssociatedKeys(list(timestamp)) -> list(T)
list_string_sortByAssociatedKeys list(T).@sortByAssociatedKeys(list(string)) -> list(T)
list_bytes_sortByAssociatedKeys list(T).@sortByAssociatedKeys(list(bytes)) -> list(T)
lists_range lists.range(int) -> list(int)
list_reverse list(T).reverse() -> list(T)
list_distinct list(T).distinct() -> list(T)
string_find_string string.find(string) -> string
string_find_all_string string.findAll(string) -> list(string)
string_find_all_string_int string.findAll(string, int) -> list(string)
string_to_quantity quantity(string) -> kubernetes.Quantity
is_quantity_string isQuantity(string) -> bool
quantity_sign sign(kubernetes.Quantity) -> int
quantity_is_greater_than kubernetes.Quantity.isGreaterThan(kubernetes.Quantity) -> bool
quantity_is_less_than kubernetes.Quantity.isLessThan(kubernetes.Quantity) -> bool
quantity_compare_to kubernetes.Quantity.compareTo(kubernetes.Quantity) -> int
quantity_get_float kubernetes.Quantity.asApproximateFloat() -> double
quantity_get_int kubernetes.Quantity.asInteger() -> int
quantity_is_integer kubernetes.Quantity.isInteger() -> bool
quantity_add kubernetes.Quantity.add(kubernetes.Quantity) -> kubernetes.Quantity
quantity_add_int kubernetes.Quantity.add(int) -> kubernetes.Quantity
quantity_sub kubernetes.Quantity.sub(kubernetes.Quantity) -> kubernetes.Quantity
quantity_sub_int kubernetes.Quantity.sub(int) -> kubernetes.Quantity
string_to_url url(string) -> kubernetes.URL
is_url_string isURL(string) -> bool
url_get_scheme kubernetes.URL.getScheme() -> string
url_get_host kubernetes.URL.getHost() -> string
url_get_hostname kubernetes.URL.getHostname() -> string
url_get_port kubernetes.URL.getPort() -> string
url_get_escaped_path kubernetes.URL.getEscapedPath() -> string
url_get_query kubernetes.URL.getQuery() -> map(string, list(string))
string_to_ip ip(string) -> net.IP
cidr_ip net.CIDR.ip() -> net.IP
ip_family net.IP.family() -> int
ip_is_canonical ip.isCanonical(string) -> bool
ip_is_unspecified net.IP.isUnspecified() -> bool
ip_is_loopback net.IP.isLoopback() -> bool
ip_is_link_local_multicast net.IP.isLinkLocalMulticast() -> bool
ip_is_link_local_unicast net.IP.isLinkLocalUnicast() -> bool
ip_is_global_unicast net.IP.isGlobalUnicast() -> bool
is_ip isIP(string) -> bool
ip_to_string string(net.IP) -> string
string_to_cidr cidr(string) -> net.CIDR
cidr_contains_ip_string net.CIDR.containsIP(string) -> bool
cidr_contains_ip_ip net.CIDR.containsIP(net.IP) -> bool
cidr_contains_cidr_string net.CIDR.containsCIDR(string) -> bool
cidr_contains_cidr net.CIDR.containsCIDR(net.CIDR) -> bool
cidr_prefix_length net.CIDR.prefixLength() -> int
cidr_masked net.CIDR.masked() -> net.CIDR
is_cidr isCIDR(string) -> bool
cidr_to_string string(net.CIDR) -> string
format-validate kubernetes.NamedFormat.validate(string) -> optional(list(string))
format-named format.named(string) -> optional(kubernetes.NamedFormat)
string_to_semver semver(string) -> kubernetes.Semver
string_bool_to_semver semver(string, bool) -> kubernetes.Semver
is_semver_string isSemver(string) -> bool
is_semver_string_bool isSemver(string, bool) -> bool
semver_major kubernetes.Semver.major() -> int
semver_minor kubernetes.Semver.minor() -> int
semver_patch kubernetes.Semver.patch() -> int
semver_compare_to kubernetes.Semver.compareTo(kubernetes.Semver) -> int
semver_is_greater_than kubernetes.Semver.isGreaterThan(kubernetes.Semver) -> bool
semver_is_less_than kubernetes.Semver.isLessThan(kubernetes.Semver) -> bool
authorizer_path kubernetes.authorization.Authorizer.path(string) -> kubernetes.authorization.PathCheck
authorizer_group kubernetes.authorization.Authorizer.group(string) -> kubernetes.authorization.GroupCheck
authorizer_serviceaccount kubernetes.authorization.Authorizer.serviceAccount(string, string) -> kubernetes.authorization.Authorizer
groupcheck_resource kubernetes.authorization.GroupCheck.resource(string) -> kubernetes.authorization.ResourceCheck
resourcecheck_subresource kubernetes.authorization.ResourceCheck.subresource(string) -> kubernetes.authorization.ResourceCheck
resourcecheck_namespace kubernetes.authorization.ResourceCheck.namespace(string) -> kubernetes.authorization.ResourceCheck
resourcecheck_name kubernetes.authorization.ResourceCheck.name(string) -> kubernetes.authorization.ResourceCheck
authorizer_fieldselector kubernetes.authorization.ResourceCheck.fieldSelector(string) -> kubernetes.authorization.ResourceCheck
authorizer_labelselector kubernetes.authorization.ResourceCheck.labelSelector(string) -> kubernetes.authorization.ResourceCheck
pathcheck_check kubernetes.authorization.PathCheck.check(string) -> kubernetes.authorization.Decision
resourcecheck_check kubernetes.authorization.ResourceCheck.check(string) -> kubernetes.authorization.Decision
decision_errored kubernetes.authorization.Decision.errored() -> bool
decision_error kubernetes.authorization.Decision.error() -> string
decision_allowed kubernetes.authorization.Decision.allowed() -> bool
decision_reason kubernetes.authorization.Decision.reason() -> string
";

/// Comparisons of numbers of two types come with Kubernetes 1.28.
const ORDERED: [(&str, &str); 4] =
    [("less", "_<_"), ("less_equals", "_<=_"), ("greater", "_>_"), ("greater_equals", "_>=_")];
const PAIRS: [(&str, &str, &str); 14] = [
    ("_bool", "bool", "bool"),
    ("_int64", "int", "int"),
    ("_int64_double", "int", "double"),
    ("_int64_uint64", "int", "uint"),
    ("_uint64", "uint", "uint"),
    ("_uint64_double", "uint", "double"),
    ("_uint64_int64", "uint", "int"),
    ("_double", "double", "double"),
    ("_double_int64", "double", "int"),
    ("_double_uint64", "double", "uint"),
    ("_string", "string", "string"),
    ("_bytes", "bytes", "bytes"),
    ("_timestamp", "timestamp", "timestamp"),
    ("_duration", "duration", "duration"),
];
/// Functions of lists whose elements have an order: name, and whether the result is an element.
const LISTED: [(&str, &str, bool); 3] =
    [("isSorted", "is_sorted", false), ("max", "max", true), ("min", "min", true)];
const COMPARABLE: [&str; 8] = ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"];
const SUMMABLE: [&str; 4] = ["int", "uint", "double", "duration"];

fn read(texts: &[&'static str]) -> Functions {
    let mut functions = Functions::new();
    let mut add = |id: &'static str, signature: &'static str| {
        let (name, overload) = signature_of(id, signature);
        functions.entry(name).or_default().push(overload);
    };
    for line in texts.iter().flat_map(|text| text.lines()).filter(|line| !line.is_empty()) {
        let (id, signature) = line.split_once(' ').expect("a name and a signature");
        add(id, signature);
    }
    for key in format::keys() {
        let name = kept(format!("format.{key}"));
        add(name, kept(format!("{name}() -> kubernetes.NamedFormat")));
    }
    for (prefix, name) in ORDERED {
        for (suffix, left, right) in PAIRS {
            add(kept(format!("{prefix}{suffix}")), kept(format!("{name}({left}, {right}) -> bool")));
        }
    }
    for (name, middle, same) in LISTED {
        for kind in COMPARABLE {
            let result = if same { kind } else { "bool" };
            add(
                kept(format!("list_{kind}_{middle}_{result}")),
                kept(format!("list({kind}).{name}() -> {result}")),
            );
        }
    }
    for kind in SUMMABLE {
        add(kept(format!("list_{kind}_sum_{kind}")), kept(format!("list({kind}).sum() -> {kind}")));
    }
    functions
}

/// A text of a table that is made once.
fn kept(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn signature_of(id: &'static str, signature: &'static str) -> (&'static str, Overload) {
    let (call, result) = signature.rsplit_once(" -> ").expect("a result");
    let mut text = Signature(call);
    // A name with a dot that is no type is a function of a namespace.
    let target = text.target();
    let open = text.0.find('(').filter(|at| *at > 0).expect("arguments");
    let (name, rest) = text.0.split_at(open);
    let mut args: Vec<Type> = target.into_iter().collect();
    let member = !args.is_empty();
    let mut rest = Signature(&rest[1..]);
    while !rest.0.starts_with(')') {
        args.push(rest.kind());
        rest.0 = rest.0.strip_prefix(", ").unwrap_or(rest.0);
    }
    let result = Signature(result).kind();
    let generic = args.iter().chain([&result]).any(has_param);
    (name, Overload { id, member, args, result, generic })
}

fn has_param(kind: &Type) -> bool {
    match kind {
        Type::Param(_) => true,
        Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => has_param(inner),
        Type::Map(both) => has_param(&both.0) || has_param(&both.1),
        _ => false,
    }
}

/// Types of Kubernetes that compare like objects.
pub(crate) const LIBRARY: [&str; 9] = [
    "kubernetes.Quantity",
    "kubernetes.URL",
    "kubernetes.Semver",
    "kubernetes.NamedFormat",
    "kubernetes.authorization.Authorizer",
    "kubernetes.authorization.PathCheck",
    "kubernetes.authorization.GroupCheck",
    "kubernetes.authorization.ResourceCheck",
    "kubernetes.authorization.Decision",
];
/// Those that compare only with themselves.
pub(crate) const OPAQUE: [&str; 2] = ["net.IP", "net.CIDR"];

/// Types with no parameters.
pub(crate) fn named(name: &str) -> Option<Type> {
    Some(match name {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" | "google.protobuf.Timestamp" => Type::Timestamp,
        "duration" | "google.protobuf.Duration" => Type::Duration,
        "null_type" => Type::Null,
        name => match (LIBRARY.iter().find(|one| **one == name), OPAQUE.iter().find(|one| **one == name)) {
            (Some(name), _) => Type::Library(name),
            (_, Some(name)) => Type::Opaque(name),
            _ => return None,
        },
    })
}

/// A signature that is read from its start.
struct Signature(&'static str);

impl Signature {
    /// The type that the function is called on, if it is.
    fn target(&mut self) -> Option<Type> {
        let mut ahead = Signature(self.0);
        let kind = ahead.try_kind()?;
        self.0 = ahead.0.strip_prefix('.')?;
        Some(kind)
    }

    fn kind(&mut self) -> Type {
        self.try_kind().expect("a type")
    }

    fn try_kind(&mut self) -> Option<Type> {
        for (prefix, make) in [
            ("list(", (|args: &mut Signature| Type::list(args.kind())) as fn(&mut Signature) -> Type),
            ("optional(", |args| Type::optional(args.kind())),
            ("type(", |args| Type::Type(Some(std::sync::Arc::new(args.kind())))),
            ("map(", |args| {
                let key = args.kind();
                args.0 = args.0.strip_prefix(", ").expect("a value");
                Type::map(key, args.kind())
            }),
        ] {
            if let Some(rest) = self.0.strip_prefix(prefix) {
                // A function of that name looks the same up to its result.
                let mut inner = Signature(rest);
                let kind = make(&mut inner);
                self.0 = inner.0.strip_prefix(')')?;
                return Some(kind);
            }
        }
        let names = LIBRARY.iter().chain(&OPAQUE);
        if let Some(name) = names.into_iter().find(|name| self.0.starts_with(**name)) {
            self.0 = &self.0[name.len()..];
            return named(name);
        }
        let end = self.0.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        let kind = match word.as_bytes() {
            [letter @ b'A'..=b'Z'] => Type::Param(char::from(*letter)),
            _ => named(word)?,
        };
        self.0 = rest;
        Some(kind)
    }
}
