//! Expressions that dice make: of a wanted type most of the time, and of a wrong one now and then.

use crate::dice::Dice;

/// What an expression is wanted to be.
#[derive(Clone, Copy, PartialEq)]
enum Want {
    Bool,
    Int,
    Double,
    Uint,
    String,
    Bytes,
    Duration,
    Timestamp,
    Ints,
    Strings,
    Map,
    Optional,
}

const WANTS: [Want; 12] = [
    Want::Bool,
    Want::Int,
    Want::Double,
    Want::Uint,
    Want::String,
    Want::Bytes,
    Want::Duration,
    Want::Timestamp,
    Want::Ints,
    Want::Strings,
    Want::Map,
    Want::Optional,
];

/// An expression; with a schema it mentions `self`.
pub(crate) fn expression(dice: &mut Dice, schema: bool) -> String {
    let want = WANTS[dice.below(WANTS.len())];
    let depth = 2 + dice.below(3);
    Generator { dice, schema, names: Vec::new() }.of(want, depth)
}

struct Generator<'d> {
    dice: &'d mut Dice,
    schema: bool,
    /// Variables of comprehensions around, with their types.
    names: Vec<(String, Want)>,
}

impl Generator<'_> {
    fn of(&mut self, want: Want, depth: usize) -> String {
        let want = if self.dice.one_in(60) { WANTS[self.dice.below(WANTS.len())] } else { want };
        if depth == 0 || self.dice.one_in(6) {
            return self.leaf(want);
        }
        if self.dice.one_in(12) {
            let condition = self.of(Want::Bool, depth - 1);
            return format!("({condition} ? {} : {})", self.of(want, depth - 1), self.of(want, depth - 1));
        }
        if self.dice.one_in(25) {
            return format!("dyn({})", self.of(want, depth - 1));
        }
        let template = self.template(want);
        self.filled(template, depth - 1)
    }

    /// A template whose letters in braces are filled in: `{i}` is an int, `{F:...}` a comprehension's body.
    fn filled(&mut self, template: &str, depth: usize) -> String {
        let mut out = String::new();
        let mut rest = template;
        while let Some(at) = rest.find('«') {
            out.push_str(&rest[..at]);
            let inside = &rest[at + '«'.len_utf8()..];
            let end = inside.find('»').unwrap();
            let part = match &inside[..end] {
                "b" => self.of(Want::Bool, depth),
                "i" => self.of(Want::Int, depth),
                "d" => self.of(Want::Double, depth),
                "u" => self.of(Want::Uint, depth),
                "s" => self.of(Want::String, depth),
                "y" => self.of(Want::Bytes, depth),
                "D" => self.of(Want::Duration, depth),
                "T" => self.of(Want::Timestamp, depth),
                "I" => self.of(Want::Ints, depth),
                "S" => self.of(Want::Strings, depth),
                "M" => self.of(Want::Map, depth),
                "O" => self.of(Want::Optional, depth),
                body => self.body(body, depth),
            };
            out.push_str(&part);
            rest = &inside[end + '»'.len_utf8()..];
        }
        out.push_str(rest);
        out
    }

    /// The arguments of a macro: the type of its variable, and what it wants to be.
    fn body(&mut self, body: &str, depth: usize) -> String {
        let name = format!("v{}", self.names.len());
        let (var, want) = match body {
            "int->bool" => (Want::Int, Want::Bool),
            "int->int" => (Want::Int, Want::Int),
            "string->bool" => (Want::String, Want::Bool),
            "string->string" => (Want::String, Want::String),
            "int->string" => (Want::Int, Want::String),
            "string->int" => (Want::String, Want::Int),
            other => panic!("no body {other}"),
        };
        self.names.push((name.clone(), var));
        let inner = self.of(want, depth);
        self.names.pop();
        format!("{name}, {inner}")
    }

    fn leaf(&mut self, want: Want) -> String {
        let known: Vec<String> =
            self.names.iter().filter(|(_, kind)| *kind == want).map(|(name, _)| name.clone()).collect();
        if !known.is_empty() && !self.dice.one_in(3) {
            return known[self.dice.below(known.len())].clone();
        }
        if self.schema && !self.dice.one_in(3) {
            let fields: &[&str] = match want {
                Want::Bool => &["self.flag", "has(self.text)", "has(self.nested.inner)"],
                Want::Int => &["self.count", "self.defaulted", "self.port", "self.map[0].value"],
                Want::Double => &["self.ratio"],
                Want::String => {
                    &["self.name", "self.text", "self.color", "self.nested.inner.leaf", "self.labels.app"]
                }
                Want::Bytes => &["self.data", "self.boundedData"],
                Want::Duration => &["self.wait"],
                Want::Timestamp => &["self.since", "self.day"],
                Want::Ints => &["self.numbers", "self.map.map(m, m.value)"],
                Want::Strings => &["self.kinds", "self.open", "self.set", "self.atomic"],
                Want::Map => &["self.labels"],
                Want::Optional => &["self.?count", "self.labels[?'app']", "self.kinds[?0]"],
                Want::Uint => &["3u"],
            };
            return self.dice.pick(fields).to_owned();
        }
        let literals: &[&str] = match want {
            Want::Bool => &["true", "false", "1 / 0 > 0"],
            Want::Int => &["0", "1", "-1", "7", "42", "9223372036854775807", "x"],
            Want::Double => &["0.0", "1.5", "-2.25", "1e10", "0.1"],
            Want::Uint => &["0u", "1u", "18446744073709551615u"],
            Want::String => &["''", "'a'", "'hello world'", "'1.5'", "'ünïcode'", "'a,b,c'", "y"],
            Want::Bytes => &["b''", "b'abc'", "b'\\xff'"],
            Want::Duration => &["duration('1h')", "duration('-90s')", "duration('1.5ms')"],
            Want::Timestamp => {
                &["timestamp('2020-02-29T12:00:00Z')", "timestamp('1969-12-31T23:59:59.5-08:00')"]
            }
            Want::Ints => &["[]", "[1]", "[3, 1, 2]", "[1, 1]"],
            Want::Strings => &["[]", "['a']", "['b', 'a', 'b']"],
            Want::Map => &["{}", "{'a': 'b'}", "{'a': 'x', 'b': 'y'}"],
            Want::Optional => &["optional.none()", "optional.of(1)", "optional.of('a')"],
        };
        self.dice.pick(literals).to_owned()
    }

    fn template(&mut self, want: Want) -> &'static str {
        let templates: &[&'static str] = match want {
            Want::Bool => &[
                "«b» && «b»",
                "«b» || «b»",
                "!«b»",
                "(«b» == «b»)",
                "«i» < «i»",
                "«i» >= «d»",
                "«d» > «u»",
                "«i» == «d»",
                "«s» == «s»",
                "«s» != «s»",
                "«s» < «s»",
                "«s».startsWith(«s»)",
                "«s».contains(«s»)",
                "«s».endsWith(«s»)",
                "«s».matches('[a-h]+')",
                "«i» in «I»",
                "«s» in «S»",
                "«s» in «M»",
                "«I» == «I»",
                "«S» != «S»",
                "«M» == «M»",
                "«I».all(«int->bool»)",
                "«I».exists(«int->bool»)",
                "«I».exists_one(«int->bool»)",
                "«S».all(«string->bool»)",
                "«S».exists(«string->bool»)",
                "«I».isSorted()",
                "«S».isSorted()",
                "«D» < «D»",
                "«T» == «T»",
                "«T» > «T»",
                "«y» == «y»",
                "«O».hasValue()",
                "«O» == «O»",
                "sets.contains(«S», «S»)",
                "sets.equivalent(«I», «I»)",
                "sets.intersects(«S», «S»)",
                "has({'a': «i»}.a)",
                "isQuantity(«s»)",
                "isURL(«s»)",
                "isIP(«s»)",
                "«M».all(k, k.size() < «i»)",
                "quantity('1').isLessThan(quantity(string(«i»)))",
                "bool(«s»)",
                "«i» in [1, 2, 7]",
                "«s» in ['a', 'b']",
                "type(«i») == int",
                "isSemver(«s», true)",
                "format.dns1123Label().validate(«s»).hasValue()",
                "«I».all(i, v, i < v)",
                "«I» == [1, 2]",
            ],
            Want::Int => &[
                "«i» + «i»",
                "«i» - «i»",
                "«i» * «i»",
                "«i» / «i»",
                "«i» % «i»",
                "(-«i»)",
                "«s».size()",
                "size(«I»)",
                "size(«S»)",
                "«M».size()",
                "int(«d»)",
                "int(«u»)",
                "int(«s»)",
                "«I».sum()",
                "«I».max()",
                "«I».min()",
                "«I»[«i»]",
                "«I»[0]",
                "«I».indexOf(«i»)",
                "«S».lastIndexOf(«s»)",
                "«s».indexOf(«s»)",
                "«s».lastIndexOf(«s»)",
                "«T».getHours()",
                "«T».getFullYear('+02:00')",
                "«T».getDayOfWeek()",
                "«D».getMinutes()",
                "int(«T»)",
                "«O».orValue(«i»)",
                "«y».size()",
                "[«i», «i»][1]",
                "{'k': «i»}.k",
                "{'k': «i»}['k']",
                "quantity(string(«i»)).asInteger()",
                "optional.of(«i»).value()",
                "(«i» in «I» ? «i» : «i»)",
                "[«I», «I»][0].size()",
            ],
            Want::Double => &[
                "«d» + «d»",
                "«d» * «d»",
                "«d» / «d»",
                "(-«d»)",
                "double(«i»)",
                "double(«s»)",
                "[«d», 1.0].max()",
            ],
            Want::Uint => &["«u» + «u»", "«u» - «u»", "«u» / «u»", "«u» % «u»", "uint(«i»)", "uint(«d»)"],
            Want::String => &[
                "«s» + «s»",
                "string(«i»)",
                "string(«d»)",
                "string(«b»)",
                "string(«D»)",
                "string(«T»)",
                "string(«y»)",
                "«s».upperAscii()",
                "«s».lowerAscii()",
                "«s».trim()",
                "«s».replace(«s», «s»)",
                "«s».replace(«s», «s», «i»)",
                "«s».substring(«i»)",
                "«s».substring(0, «i»)",
                "«s».charAt(«i»)",
                "«S».join(«s»)",
                "«S»[«i»]",
                "«S».join()",
                "«s».find('[a-z]+')",
                "«M»['a']",
                "«M».a",
                "strings.quote(«s»)",
                "'%s-%d'.format([«s», «i»])",
                "'%s'.format([«I»])",
                "optional.of(«s»).or(«O»).orValue(«s»)",
                "url('https://example.com/a').getHost()",
                "«S».max()",
                "[«s»][0]",
                "{'k': «s»}.k",
            ],
            Want::Bytes => &["«y» + «y»", "bytes(«s»)"],
            Want::Duration => {
                &["«D» + «D»", "«D» - «D»", "«T» - «T»", "duration(string(«i») + 's')", "[«D», «D»].sum()"]
            }
            Want::Timestamp => &["«T» + «D»", "«T» - «D»", "timestamp(«i»)", "[«T», «T»].min()"],
            Want::Ints => &[
                "«I» + «I»",
                "[«i», «i»]",
                "«I».map(«int->int»)",
                "«I».filter(«int->bool»)",
                "«S».map(«string->int»)",
                "«I».sort()",
                "«I».reverse()",
                "«I».distinct()",
                "«I».slice(0, «i»)",
                "[«I», «I»].flatten()",
                "lists.range(7)",
                "«I».map(i, i > 0, i * 2)",
                "«I».transformList(i, v, i + v)",
                "«I».sortBy(e, -e)",
                "(«b» ? «I» : «I»)",
            ],
            Want::Strings => &[
                "«S» + «S»",
                "[«s», «s»]",
                "«s».split(«s»)",
                "«s».split(',', «i»)",
                "«S».map(«string->string»)",
                "«S».filter(«string->bool»)",
                "«I».map(«int->string»)",
                "«s».findAll('[a-z]')",
                "«S».sort()",
                "«S».distinct()",
            ],
            Want::Map => &[
                "{«s»: «s»}",
                "{'a': «s», 'b': «s»}",
                "«S».transformMapEntry(i, v, {v: string(i)})",
                "{?'a': optional.of(«s»)}",
                "«M».transformMap(k, v, v + «s»)",
            ],
            Want::Optional => &[
                "optional.of(«i»)",
                "optional.ofNonZeroValue(«s»)",
                "«M».?a",
                "«M»[?«s»]",
                "«I»[?«i»]",
                "«O».or(«O»)",
                "«I».first()",
                "«S».last()",
                "optional.of(«i»).optMap(v, v + «i»)",
            ],
        };
        self.dice.pick(templates)
    }
}
