//! Quantities of resources, with the digits that upstream keeps of them: whether one is an integer goes by these.

use podwire_api::quantity::{Quantity, QuantityError};

use super::{Native, Res, unfit};
use crate::error::EvalError;
use crate::value::Value;

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "quantity" => |args| match args {
            [Value::String(text)] => {
                Amount::parse(text).map(Value::Quantity).map_err(|error| EvalError::new(error.to_string()))
            }
            _ => unfit(),
        },
        "isQuantity" => |args| match args {
            [Value::String(text)] => Ok(Value::Bool(Quantity::parse(text).is_ok())),
            _ => unfit(),
        },
        "sign" => |args| match args {
            [Value::Quantity(Amount { quantity, .. })] => {
                Ok(Value::Int(i64::from(quantity.is_positive()) - i64::from(quantity.is_negative())))
            }
            _ => unfit(),
        },
        "asInteger" => |args| match args {
            [Value::Quantity(amount)] => amount
                .whole()
                .map(Value::Int)
                .ok_or_else(|| EvalError::new("cannot convert value to integer")),
            _ => unfit(),
        },
        "isInteger" => |args| match args {
            [Value::Quantity(amount)] => Ok(Value::Bool(amount.whole().is_some())),
            _ => unfit(),
        },
        "asApproximateFloat" => |args| match args {
            [Value::Quantity(amount)] => Ok(Value::Double(amount.approximate())),
            _ => unfit(),
        },
        "add" => |args| combined(args, Amount::plus),
        "sub" => |args| combined(args, |left, right| left.plus(&right.negated())),
        "isGreaterThan" => |args| compared(args, |order| Value::Bool(order.is_gt())),
        "isLessThan" => |args| compared(args, |order| Value::Bool(order.is_lt())),
        "compareTo" => |args| compared(args, |order| Value::Int(i64::from(order as i8))),
        _ => return None,
    })
}

fn combined<'a>(args: &mut [Value<'a>], combine: fn(&Amount, &Amount) -> Amount) -> Res<'a> {
    match args {
        [Value::Quantity(left), Value::Quantity(right)] => Ok(Value::Quantity(combine(left, right))),
        [Value::Quantity(left), Value::Int(right)] => {
            Ok(Value::Quantity(combine(left, &Amount::from_integer(*right))))
        }
        _ => unfit(),
    }
}

fn compared<'a>(args: &mut [Value<'a>], result: fn(std::cmp::Ordering) -> Value<'static>) -> Res<'a> {
    match args {
        [Value::Quantity(left), Value::Quantity(right)] => Ok(result(left.quantity.cmp(&right.quantity))),
        [Value::Semver(left), Value::Semver(right)] => Ok(result(left.cmp(right))),
        _ => unfit(),
    }
}

/// A quantity, and how upstream holds it.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// What it is worth.
    pub quantity: Quantity,
    /// A whole number and the power of ten it is multiplied with, if it was small enough for that.
    small: Option<(i64, i32)>,
    /// Whether it was added up. Upstream refuses to compare such a one with `==` when it stands on the right.
    pub(crate) summed: bool,
}

impl Amount {
    /// Parses Kubernetes' notation.
    pub fn parse(text: &str) -> Result<Amount, QuantityError> {
        Ok(Amount { quantity: Quantity::parse(text)?, small: small(text), summed: false })
    }

    /// A whole number.
    pub fn from_integer(value: i64) -> Amount {
        Amount { quantity: Quantity::from_integer(value), small: Some((value, 0)), summed: false }
    }

    /// The number that it is, unless it has a fraction, written or not, or is too large.
    fn whole(&self) -> Option<i64> {
        let (value, scale) = self.small?;
        value.checked_mul(10i64.checked_pow(u32::try_from(scale).ok()?)?)
    }

    #[allow(clippy::cast_precision_loss, reason = "it is called approximate")]
    fn approximate(&self) -> f64 {
        match self.small {
            Some((value, 0)) => value as f64,
            Some((value, scale)) => value as f64 * power_of_ten(scale),
            None => printed(&self.quantity.to_string()),
        }
    }

    fn plus(&self, other: &Amount) -> Amount {
        let quantity = self.quantity.plus(&other.quantity);
        let small = match (self.small, other.small) {
            (Some(left), Some((0, _))) => Some(left),
            (Some((0, _)), Some(right)) => Some(right),
            (Some((left, at)), Some((right, to))) => {
                let scale = at.min(to);
                let scaled = |value: i64, from: i32| {
                    value.checked_mul(10i64.checked_pow(u32::try_from(from - scale).ok()?)?)
                };
                let sum = || scaled(left, at)?.checked_add(scaled(right, to)?);
                sum().map(|sum| (sum, scale))
            }
            _ => None,
        };
        Amount { quantity, small, summed: true }
    }

    fn negated(&self) -> Amount {
        let text = self.quantity.to_string();
        let text = text.strip_prefix('-').map_or_else(|| format!("-{text}"), str::to_owned);
        let quantity = Quantity::parse(&text).unwrap_or(Quantity::ZERO);
        let small = self.small.and_then(|(value, scale)| Some((value.checked_neg()?, scale)));
        Amount { quantity, small, summed: true }
    }
}

fn power_of_ten(scale: i32) -> f64 {
    format!("1e{scale}").parse().unwrap_or(f64::INFINITY)
}

/// What a printed quantity is worth.
fn printed(text: &str) -> f64 {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let number: f64 = number.parse().unwrap_or(f64::NAN);
    number
        * match suffix {
            "n" => 1e-9,
            "u" => 1e-6,
            "m" => 1e-3,
            "k" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            "T" => 1e12,
            "P" => 1e15,
            "E" => 1e18,
            "Ki" => 1024.0,
            "Mi" => 1_048_576.0,
            "Gi" => 1_073_741_824.0,
            "Ti" => 1_099_511_627_776.0,
            "Pi" => 1_125_899_906_842_624.0,
            "Ei" => 1_152_921_504_606_846_976.0,
            other => format!("1{other}").parse().unwrap_or(1.0),
        }
}

/// The digits and the power of ten of a quantity that upstream reads into 64 bits.
fn small(text: &str) -> Option<(i64, i32)> {
    const DIGITS: usize = 18;
    const FINEST: i32 = -9;
    let negative = text.starts_with('-');
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    let exponent = |letter: &str| "numkMGTPE".find(letter).filter(|_| letter.len() == 1);
    let (scale, bits): (i32, u32) = match suffix {
        "" => (0, 0),
        "m" => (-3, 0),
        "u" => (-6, 0),
        "n" => (-9, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        one if exponent(one).is_some() => (i32::try_from(exponent(one)? - 2).ok()? * 3, 0),
        other => (other.strip_prefix(['e', 'E'])?.parse().ok()?, 0),
    };
    if bits > 0 && (!fraction.is_empty() || whole.len() + (bits as usize) * 3 / 10 > 14) {
        return None;
    }
    if bits == 0 && whole.len() + fraction.len() > DIGITS {
        return None;
    }
    let scale = scale - i32::try_from(fraction.len()).ok()?;
    if scale < FINEST {
        return None;
    }
    let value: i64 = format!("{whole}{fraction}").parse().ok()?;
    let value = value.checked_mul(1i64.checked_shl(bits)?)?;
    Some((if negative { -value } else { value }, scale))
}
