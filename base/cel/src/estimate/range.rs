//! A range of sizes or costs, in arithmetic that ends at the largest number.

/// What something is at least and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// At least.
    pub least: u64,
    /// At most; [`u64::MAX`] if there is no bound.
    pub most: u64,
}

impl Range {
    /// Anything.
    pub(crate) const UNKNOWN: Range = Range { least: 0, most: u64::MAX };

    pub(crate) fn fixed(value: u64) -> Range {
        Range { least: value, most: value }
    }

    fn each(self, other: Range, with: fn(u64, u64) -> u64) -> Range {
        Range { least: with(self.least, other.least), most: with(self.most, other.most) }
    }

    pub(crate) fn plus(self, other: Range) -> Range {
        self.each(other, u64::saturating_add)
    }

    pub(crate) fn times(self, other: Range) -> Range {
        self.each(other, u64::saturating_mul)
    }

    /// Multiplied and rounded up.
    pub(crate) fn by(self, factor: f64) -> Range {
        Range { least: scaled(self.least, factor), most: scaled(self.most, factor) }
    }

    pub(crate) fn union(self, other: Range) -> Range {
        Range { least: self.least.min(other.least), most: self.most.max(other.most) }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "upstream counts as floating point; the cast saturates"
)]
fn scaled(value: u64, factor: f64) -> u64 {
    (value as f64 * factor).ceil() as u64
}
