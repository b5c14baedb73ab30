//! Resource quantities: parse, compare, and print in the canonical form Kubernetes stores.

use std::cmp::Ordering;
use std::fmt;

/// A quantity could not be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is not `<number><suffix>`.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    DecimalSi,
    BinarySi,
    DecimalExponent,
}

/// A quantity, exact to one billionth.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

const NANO: i128 = 1_000_000_000;
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

impl Quantity {
    /// Zero.
    pub const ZERO: Quantity = Quantity { nanos: 0, format: Format::DecimalSi };

    /// Parses Kubernetes' notation, e.g. `100m`, `1.5Gi`, `1e3`.
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let split = rest.bytes().position(|b| !b.is_ascii_digit() && b != b'.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(split);
        if number.is_empty() || number == "." || number.bytes().filter(|b| *b == b'.').count() > 1 {
            return Err(QuantityError::Format);
        }
        let (scale, format) = scale(suffix)?;
        let magnitude = scaled(number, scale).ok_or(QuantityError::Format)?;
        Ok(Quantity { nanos: if negative { -magnitude } else { magnitude }, format })
    }

    /// A whole number.
    pub fn from_integer(value: i64) -> Quantity {
        Quantity { nanos: i128::from(value) * NANO, format: Format::DecimalSi }
    }

    /// The value in thousandths, rounded up.
    pub fn milli_value(&self) -> i128 {
        div_up(self.nanos, NANO / 1000)
    }

    /// The value rounded up to a whole number.
    pub fn value(&self) -> i128 {
        div_up(self.nanos, NANO)
    }

    /// Whether there is no fraction.
    pub fn is_integer(&self) -> bool {
        self.nanos % NANO == 0
    }

    /// Whether the value is below zero.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// Whether the value is zero.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// The sum, in the notation of the left operand.
    #[must_use]
    pub fn plus(&self, other: &Quantity) -> Quantity {
        Quantity { nanos: self.nanos.saturating_add(other.nanos), format: self.format }
    }
}

enum Scale {
    Ten(i32),
    Two(u32),
}

fn scale(suffix: &str) -> Result<(Scale, Format), QuantityError> {
    if let Some((_, bits)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Ok((Scale::Two(*bits), Format::BinarySi));
    }
    if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Ok((Scale::Ten(*exponent), Format::DecimalSi));
    }
    let allowed = |b: u8| b"eEinumkKMGTP".contains(&b) || b.is_ascii_digit() || b == b'-' || b == b'+';
    if !suffix.bytes().all(allowed) {
        return Err(QuantityError::Format);
    }
    match suffix.as_bytes() {
        [b'e' | b'E', digits @ ..] if !digits.is_empty() => {
            let exponent = suffix[1..].parse::<i32>().map_err(|_| QuantityError::Suffix)?;
            Ok((Scale::Ten(exponent), Format::DecimalExponent))
        }
        _ => Err(QuantityError::Suffix),
    }
}

/// Billionths of `number` times the scale, rounded up; `None` only for a number that is no number.
fn scaled(number: &str, scale: Scale) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut digits: i128 = 0;
    for b in whole.bytes().chain(fraction.bytes()) {
        digits = digits.saturating_mul(10).saturating_add(i128::from(b - b'0'));
    }
    let places = i32::try_from(fraction.len()).ok()?;
    let (digits, exponent) = match scale {
        Scale::Two(bits) => (digits.saturating_mul(1 << bits), 9 - places),
        Scale::Ten(ten) => (digits, ten.saturating_add(9 - places)),
    };
    Some(if exponent >= 0 {
        power(exponent.unsigned_abs())
            .map_or(if digits == 0 { 0 } else { i128::MAX / 4 }, |p| digits.saturating_mul(p))
    } else {
        power(exponent.unsigned_abs()).map_or(i128::from(digits != 0), |p| div_up(digits, p))
    })
}

fn power(exponent: u32) -> Option<i128> {
    10i128.checked_pow(exponent)
}

fn div_up(value: i128, by: i128) -> i128 {
    let quotient = value / by;
    if value % by == 0 {
        quotient
    } else if value > 0 {
        quotient + 1
    } else {
        quotient - 1
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return out.write_str("0");
        }
        let small = self.nanos.abs() < 1024 * NANO;
        if self.format == Format::BinarySi && !small && self.is_integer() {
            let (mut value, mut suffix) = (self.nanos / NANO, "");
            for (name, _) in BINARY {
                if value % 1024 != 0 {
                    break;
                }
                value /= 1024;
                suffix = name;
            }
            return write!(out, "{value}{suffix}");
        }
        let (mut value, mut exponent) = (self.nanos, -9);
        while value % 1000 == 0 && exponent < 18 {
            value /= 1000;
            exponent += 3;
        }
        if self.format == Format::DecimalExponent {
            return if exponent == 0 { write!(out, "{value}") } else { write!(out, "{value}e{exponent}") };
        }
        let suffix = DECIMAL.iter().find(|(_, e)| *e == exponent).map_or("", |(s, _)| s);
        write!(out, "{value}{suffix}")
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_printed_in_canonical_form() {
        for (given, expected) in [
            ("0", "0"),
            ("0.0", "0"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("100m", "100m"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("512", "512"),
            ("1000", "1k"),
            ("1023Ki", "1023Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1E", "1E"),
            ("12e6", "12e6"),
            ("-2Gi", "-2Gi"),
            ("+5", "5"),
            ("1.0000000001", "1000000001n"),
            (".5", "500m"),
            ("100000000", "100M"),
            ("128974848", "128974848"),
        ] {
            assert_eq!(Quantity::parse(given).unwrap().to_string(), expected, "{given}");
        }
    }

    #[test]
    fn bad_quantities_are_refused() {
        for (given, expected) in [
            ("", QuantityError::Format),
            ("abc", QuantityError::Format),
            ("1.2.3", QuantityError::Format),
            ("1Kim", QuantityError::Suffix),
            ("1 Gi", QuantityError::Format),
            ("1mm", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("é", QuantityError::Format),
        ] {
            assert_eq!(Quantity::parse(given).unwrap_err(), expected, "{given}");
        }
    }

    #[test]
    fn quantities_compare_by_value() {
        assert!(Quantity::parse("1Gi").unwrap() > Quantity::parse("1G").unwrap());
        assert_eq!(Quantity::parse("1000m").unwrap(), Quantity::parse("1").unwrap());
        assert_eq!(Quantity::parse("1100m").unwrap().value(), 2);
        assert_eq!(Quantity::parse("1.5").unwrap().milli_value(), 1500);
    }
}
