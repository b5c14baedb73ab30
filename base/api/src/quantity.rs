//! Resource quantities: parse, compare, add, and print in the canonical form Kubernetes stores.
//!
//! Exact to one billionth, as upstream's are, and to 38 digits, where upstream's have no bound: what has more is rounded
//! up. The notation: <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// A quantity could not be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is not `<number><suffix>`.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number has no digit.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
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

/// An amount of something: `mantissa` times ten to the `exponent`, and the notation it is printed in.
///
/// Two are equal when their values are, whatever the notation.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    mantissa: i128,
    /// At least [`NANO`].
    exponent: i32,
    format: Format,
}

/// The exponent of the finest part that is kept.
const NANO: i32 = -9;
const MILLI: i32 = -3;
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
/// The exponent of the largest decimal suffix.
const EXA: i32 = 18;

impl Quantity {
    /// Zero.
    pub const ZERO: Quantity = Quantity::from_integer(0);

    /// Parses Kubernetes' notation, e.g. `100m`, `1.5Gi`, `1e3`.
    ///
    /// As upstream has it, finer parts than a billionth are rounded up, and a number without digits is zero (`m`, `+`).
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        Parts::split(text)?.read().map(|(quantity, _)| quantity)
    }

    /// The text that is stored for `text`.
    ///
    /// Upstream keeps some spellings as they are given, `1.500` or `+5` among them, though it would print the quantity
    /// in another way.
    pub fn stored(text: &str) -> Result<Cow<'_, str>, QuantityError> {
        let (quantity, kept) = Parts::split(text)?.read()?;
        Ok(if kept { Cow::Borrowed(text) } else { Cow::Owned(quantity.to_string()) })
    }

    /// A whole number.
    pub const fn from_integer(value: i64) -> Quantity {
        Quantity { mantissa: value as i128, exponent: 0, format: Format::DecimalSi }
    }

    /// A whole number that is printed with the suffixes of powers of two.
    pub const fn from_bytes(value: i64) -> Quantity {
        Quantity { mantissa: value as i128, exponent: 0, format: Format::BinarySi }
    }

    /// A number of thousandths.
    pub const fn from_milli(value: i64) -> Quantity {
        Quantity { mantissa: value as i128, exponent: MILLI, format: Format::DecimalSi }
    }

    /// The value in thousandths, rounded away from zero; what does not fit becomes the nearest that does.
    pub fn milli_value(&self) -> i64 {
        self.in_units_of(MILLI)
    }

    /// The value as a whole number, rounded away from zero; what does not fit becomes the nearest that does.
    pub fn value(&self) -> i64 {
        self.in_units_of(0)
    }

    fn in_units_of(&self, exponent: i32) -> i64 {
        let limit = if self.mantissa < 0 { i64::MIN } else { i64::MAX };
        let steps = i64::from(self.exponent) - i64::from(exponent);
        let scaled = match power(steps.unsigned_abs()) {
            Some(power) if steps >= 0 => self.mantissa.checked_mul(power),
            Some(power) => Some(div_up(self.mantissa, power)),
            None if steps >= 0 && self.mantissa != 0 => None,
            None => Some(self.mantissa.signum()),
        };
        scaled.and_then(|value| i64::try_from(value).ok()).unwrap_or(limit)
    }

    /// The quantity without what is finer than a thousandth, rounded up.
    #[must_use]
    pub fn rounded_to_milli(&self) -> Quantity {
        self.rounded_to(MILLI)
    }

    fn rounded_to(&self, exponent: i32) -> Quantity {
        if self.exponent >= exponent {
            return *self;
        }
        let steps = i64::from(exponent) - i64::from(self.exponent);
        let mantissa = match power(steps.unsigned_abs()) {
            Some(power) => div_up(self.mantissa, power),
            None => self.mantissa.signum(),
        };
        Quantity { mantissa, exponent, ..*self }
    }

    /// Whether there is no fraction.
    pub fn is_integer(&self) -> bool {
        self.exponent >= 0
            || power(u64::from(self.exponent.unsigned_abs())).is_some_and(|power| self.mantissa % power == 0)
    }

    /// Whether the value is below zero.
    pub fn is_negative(&self) -> bool {
        self.mantissa < 0
    }

    /// Whether the value is zero.
    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// Whether the value is above zero.
    pub fn is_positive(&self) -> bool {
        self.mantissa > 0
    }

    /// The quantity as a whole number, rounded up.
    #[must_use]
    pub fn rounded_to_whole(&self) -> Quantity {
        self.rounded_to(0)
    }

    /// The difference, in the notation of the left operand unless that is zero.
    #[must_use]
    pub fn minus(&self, other: &Quantity) -> Quantity {
        self.plus(&Quantity { mantissa: -other.mantissa, ..*other })
    }

    /// The sum, in the notation of the left operand unless that is zero.
    #[must_use]
    pub fn plus(&self, other: &Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        let Some((left, right, exponent)) = aligned(self, other) else {
            // The lesser one is beyond the last digit of the greater one.
            let greater = if self.exponent > other.exponent { self } else { other };
            return Quantity { format, ..*greater };
        };
        match left.checked_add(right) {
            Some(mantissa) => Quantity { mantissa, exponent, format },
            None => {
                let mantissa = div_up(left, 10).saturating_add(div_up(right, 10));
                Quantity { mantissa, exponent: exponent.saturating_add(1), format }
            }
        }
    }
}

/// Both mantissas at the smaller of the two exponents; `None` if the one with the larger exponent is too large for that.
fn aligned(left: &Quantity, right: &Quantity) -> Option<(i128, i128, i32)> {
    let at = |one: &Quantity, exponent: i32| {
        if one.mantissa == 0 || one.exponent == exponent {
            return Some(one.mantissa);
        }
        let steps = i64::from(one.exponent) - i64::from(exponent);
        one.mantissa.checked_mul(power(steps.unsigned_abs())?)
    };
    let exponent = match (left.is_zero(), right.is_zero()) {
        (true, false) => right.exponent,
        (false, true) => left.exponent,
        _ => left.exponent.min(right.exponent),
    };
    Some((at(left, exponent)?, at(right, exponent)?, exponent))
}

/// A quantity's text in its parts.
struct Parts<'a> {
    negative: bool,
    /// The digits before the point.
    whole: &'a str,
    /// The digits behind it.
    fraction: &'a str,
    suffix: &'a str,
}

enum Scale {
    Ten(i32),
    Two(u32),
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Parts<'a>, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(digits(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        Ok(Parts { negative: text.starts_with('-'), whole, fraction, suffix })
    }

    /// The quantity, and whether its text is stored as it is.
    fn read(&self) -> Result<(Quantity, bool), QuantityError> {
        let (scale, mut format) = scale(self.suffix)?;
        let signed = |magnitude: i128| if self.negative { -magnitude } else { magnitude };
        let whole = match self.whole.trim_start_matches('0') {
            "" => "0",
            digits => digits,
        };
        let places = i32::try_from(self.fraction.len()).unwrap_or(i32::MAX);
        let (bits, exponent) = match scale {
            Scale::Ten(exponent) => (0, exponent.saturating_sub(places)),
            Scale::Two(bits) => (bits, -places),
        };
        let (mut mantissa, dropped) = number(whole, self.fraction);
        if self.is_simple(whole, bits, exponent) {
            let kept = match bits {
                0 => exponent % 3 == 0 && !self.ends_in_thousands(whole) && !whole.starts_with('0'),
                _ => mantissa % 8 != 0,
            };
            return Ok((Quantity { mantissa: signed(mantissa << bits), exponent, format }, kept));
        }
        if self.whole.is_empty() && self.fraction.is_empty() {
            return Err(QuantityError::Numeric);
        }
        let mut exponent = exponent.saturating_add(dropped);
        let magnitude = loop {
            match mantissa.checked_mul(1 << bits) {
                Some(product) => break product,
                None => (mantissa, exponent) = (div_up(mantissa, 10), exponent.saturating_add(1)),
            }
        };
        let mut quantity = Quantity { mantissa: magnitude, exponent, format }.rounded_to(NANO);
        if format == Format::BinarySi {
            // Upstream bounds these, and only these.
            quantity = quantity.min(Quantity { format, ..Quantity::from_integer(i64::MAX) });
            if quantity.is_positive() && quantity < Quantity::from_integer(1) {
                format = Format::DecimalSi;
            }
        }
        Ok((Quantity { mantissa: signed(quantity.mantissa), format, ..quantity }, false))
    }

    /// Whether upstream reads the text without its decimals of any size. Only such a text may be stored as it is.
    fn is_simple(&self, whole: &str, bits: u32, exponent: i32) -> bool {
        let digits = whole.len() + self.fraction.len();
        match bits {
            0 => digits <= 18 && exponent >= NANO,
            // A digit takes up 10 thirds of a bit.
            _ => self.fraction.is_empty() && whole.len() + (bits as usize) * 3 / 10 <= 14,
        }
    }

    fn ends_in_thousands(&self, whole: &str) -> bool {
        whole.bytes().chain(self.fraction.bytes()).rev().take(3).filter(|digit| *digit == b'0').count() == 3
    }
}

fn scale(suffix: &str) -> Result<(Scale, Format), QuantityError> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Ok((Scale::Ten(*exponent), Format::DecimalSi));
    }
    if let Some((_, bits)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Ok((Scale::Two(*bits), Format::BinarySi));
    }
    let digits = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
    let exponent: i64 = digits.parse().map_err(|_| QuantityError::Suffix)?;
    #[allow(clippy::cast_possible_truncation, reason = "upstream takes the low 32 bits as well")]
    let exponent = exponent as i32;
    Ok((Scale::Ten(exponent), Format::DecimalExponent))
}

/// The number that the digits make, and how many digits at its end it is too short for; rounded up.
fn number(whole: &str, fraction: &str) -> (i128, i32) {
    let (mut number, mut dropped, mut inexact) = (0i128, 0i32, false);
    for digit in whole.bytes().chain(fraction.bytes()).map(|byte| i128::from(byte - b'0')) {
        match number.checked_mul(10).and_then(|tens| tens.checked_add(digit)) {
            Some(next) if dropped == 0 => number = next,
            _ => (dropped, inexact) = (dropped.saturating_add(1), inexact || digit != 0),
        }
    }
    (number.saturating_add(i128::from(inexact)), dropped)
}

fn power(exponent: u64) -> Option<i128> {
    10i128.checked_pow(u32::try_from(exponent).ok()?)
}

/// The quotient, rounded away from zero.
fn div_up(value: i128, by: i128) -> i128 {
    let quotient = value / by;
    if value % by == 0 { quotient } else { quotient + value.signum() }
}

impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return out.write_str("0");
        }
        let (mut value, mut exponent) = (self.mantissa, self.exponent);
        while value % 10 == 0 {
            (value, exponent) = (value / 10, exponent.saturating_add(1));
        }
        let whole =
            power(u64::try_from(exponent).unwrap_or(u64::MAX)).and_then(|power| value.checked_mul(power));
        if let Some(mut value) =
            whole.filter(|value| self.format == Format::BinarySi && value.unsigned_abs() >= 1024)
        {
            let mut suffix = "";
            for (name, _) in BINARY {
                if value % 1024 != 0 {
                    break;
                }
                (value, suffix) = (value / 1024, name);
            }
            return write!(out, "{value}{suffix}");
        }
        write!(out, "{value}")?;
        // The exponent becomes a multiple of three. Upstream leaves a suffix beyond the last one away, which makes `1` of
        // `1000E`; here the zeros stay, as long as they can be counted.
        let suffixed = self.format != Format::DecimalExponent && exponent <= 2 * EXA;
        let shown = (exponent.div_euclid(3) * 3).min(if suffixed { EXA } else { i32::MAX });
        for _ in shown..exponent {
            out.write_str("0")?;
        }
        match DECIMAL.iter().find(|(_, exponent)| *exponent == shown) {
            Some((suffix, _)) if suffixed || shown == 0 => out.write_str(suffix),
            _ => write!(out, "e{shown}"),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.cmp(other) == Ordering::Equal
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
        match aligned(self, other) {
            Some((left, right, _)) => left.cmp(&right),
            // The one with the larger exponent is the larger in magnitude: its sign decides.
            None if self.exponent > other.exponent => self.mantissa.cmp(&0),
            None => 0.cmp(&other.mantissa),
        }
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
    fn some_spellings_are_stored_as_they_are() {
        for (given, expected) in [
            ("1.500", "1.500"),
            ("1.5", "1500m"),
            ("+5", "+5"),
            ("05", "05"),
            ("1E3", "1E3"),
            ("1000m", "1"),
            ("01Ki", "01Ki"),
            ("8Ki", "8Ki"),
            ("m", "0"),
        ] {
            assert_eq!(Quantity::stored(given).unwrap(), expected, "{given}");
        }
    }

    #[test]
    fn what_is_beyond_the_last_suffix_keeps_its_zeros() {
        assert_eq!(Quantity::parse("1000E").unwrap().to_string(), "1000E");
        let huge = Quantity::from_integer(1).plus(&Quantity::parse("1e2000000000").unwrap());
        assert_eq!(huge.to_string(), "100e1999999998");
        assert_eq!((huge.value(), Quantity::parse("-1e99").unwrap().milli_value()), (i64::MAX, i64::MIN));
        let long = Quantity::parse(&"9".repeat(60)).unwrap();
        assert_eq!(long.to_string(), "1e60");
    }

    #[test]
    fn quantities_compare_by_value() {
        assert!(Quantity::parse("1Gi").unwrap() > Quantity::parse("1G").unwrap());
        assert_eq!(Quantity::parse("1000m").unwrap(), Quantity::parse("1").unwrap());
        assert_eq!(Quantity::parse("1100m").unwrap().value(), 2);
        assert_eq!(Quantity::parse("1.5").unwrap().milli_value(), 1500);
    }
}
