//! Quantities as text, and two of them added and compared.

use serde_json::{Value, json};

use super::Kind;
use crate::dice::Dice;

#[rustfmt::skip]
const CORNERS: &[&str] = &[
    "0", "0.0", "00", "+0", "-0", "0m", "0Ki", "0e5", "0.0Ki", "0e-10", "0.00000000001",
    "1", "-1", "+1", "01", "007", "+07m", "1.", ".5", "-.5", "5.m", "1.0", "1.5", "1.50", "1.500", "1.5000", "1.125",
    "1.000", "1.000000001", "1.0000000001", "0.1m", "0.5m", "0.1", "0.100", "0.125", "100m", "1000m", "1100m", "1500m",
    "1000000m", "1n", "1u", "0.1n", "1.5n", "999999999n", "1000000000n", "1k", "1K", "1M", "1G", "1T", "1P", "1E", "0.5E",
    "9E", "9.5E", "12E", "1000", "1000k", "1024", "100000000", "128974848", "1023", "1e3", "1E3", "1e+3", "1e-3", "12e-10",
    "12e6", "10e2", "1.5e3", "1.25e1", "1e", "1E", "1e1.5", "1e0", "5e-9", "5e-1", "1e18", "1e21", "1e50", "123e48", "-1e3",
    "1Ki", "8Ki", "16Ki", "1024Ki", "1023Ki", "1.5Ki", "1.5Gi", "0.5Ki", "0.5Gi", "0.1Ki", "0.0001Ki", "1024Mi", "1Ti",
    "1Pi", "1Ei", "8Ei", "7Ei", "100Ei", "-8Ei", "-100Ei", "+1Ki", "01Ki", "-2Gi", "1.Gi", "123456789Ti", "1.1Mi",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "12345678901234567890", "1234567890123456.789",
    "", "-", "+", ".", "m",
];

#[rustfmt::skip]
const REFUSED: &[&str] = &[
    "Ki", "E", "e", "e3", "e-10", ".e-10", "-m", "abc", "1.2.3", "1Kim", "1 Gi", " 1", "1 ", "1mm", "1ki", "1Kib", "1i", "1B",
    "1d", "é", "1é", "1m5", "1Ki5", "1-3", "1m-", "1e3e3", "1e3m", "0x10", "1_000", "1,5", "--1", "+-1", "1e99999999999999999999",
    "1e4294967299", "NaN", "Inf", "1e+", "1E-", "1\u{0}", "٣",
];

const SUFFIXES: &[&str] = &[
    "", "", "", "n", "u", "m", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2",
    "e1", "Kb",
];

/// A number that no suffix makes longer than upstream can print.
fn number(dice: &mut Dice) -> String {
    let sign = dice.pick(&["", "", "", "-", "+"]);
    let digits = match dice.below(6) {
        0 => 1 + dice.below(18),
        1 => 3,
        _ => 1 + dice.below(4),
    };
    let whole = match dice.below(4) {
        0 => format!("0{}", dice.digits(1)),
        1 => format!("{}000", dice.digits(1)),
        _ => dice.digits(digits),
    };
    let fraction = match dice.below(5) {
        0 => format!(".{}", dice.below(1000)),
        1 => {
            let places = dice.below(13);
            format!(".{}", dice.digits(places))
        }
        _ => String::new(),
    };
    format!("{sign}{whole}{fraction}")
}

fn text(dice: &mut Dice) -> Value {
    let number = number(dice);
    json!({"ask": "quantity", "text": format!("{number}{}", dice.pick(SUFFIXES))})
}

pub(super) fn texts() -> Kind {
    let written = CORNERS.iter().chain(REFUSED).map(|text| json!({"ask": "quantity", "text": text}));
    Kind { written: written.collect(), make: text, all: 1400, recorded: 165 }
}

fn valid(dice: &mut Dice) -> String {
    let number = number(dice);
    format!("{number}{}", dice.pick(&SUFFIXES[..SUFFIXES.len() - 1]))
}

fn sum(dice: &mut Dice) -> Value {
    let (left, right) = (valid(dice), valid(dice));
    json!({"ask": "sum", "text": left, "right": right})
}

pub(super) fn sums() -> Kind {
    let pairs = [
        ("0", "1Gi"),
        ("1Gi", "0"),
        ("1Gi", "1G"),
        ("1", "1Ki"),
        ("1Ki", "1"),
        ("1Ki", "1m"),
        ("100m", "0.1"),
        ("1e3", "1k"),
        ("1", "-1"),
        ("8Ei", "8Ei"),
        ("9E", "1m"),
        ("1e20", "1n"),
        ("0.5Ki", "1Ki"),
        ("1.500", "1.500"),
        ("-1e25", "1"),
    ];
    let written = pairs.iter().map(|(left, right)| json!({"ask": "sum", "text": left, "right": right}));
    Kind { written: written.collect(), make: sum, all: 700, recorded: 20 }
}
