//! The table: what was measured, its target, and upstream's figure of the same run when there is one.

/// Which way a figure is better.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    /// Times, memory: less is better, the target is a ceiling.
    Less,
    /// Rates: more is better, the target is a floor.
    More,
}

/// One line of the table.
pub struct Row {
    what: String,
    unit: &'static str,
    ours: f64,
    upstream: Option<f64>,
    target: Option<f64>,
    better: Better,
}

impl Row {
    /// A figure of ours, upstream's if it was measured, and the target (a ceiling) if there is one.
    pub fn new(what: &str, unit: &'static str, ours: f64, upstream: Option<f64>, target: Option<f64>) -> Row {
        Row { what: what.to_owned(), unit, ours, upstream, target, better: Better::Less }
    }

    /// The same for a rate: more is better and the target is a floor.
    pub fn rate(
        what: &str,
        unit: &'static str,
        ours: f64,
        upstream: Option<f64>,
        target: Option<f64>,
    ) -> Row {
        Row { better: Better::More, ..Row::new(what, unit, ours, upstream, target) }
    }

    /// How many times better than upstream; of a difference that is lost in the noise nothing can be said.
    fn ratio(&self) -> Option<f64> {
        let upstream = self.upstream.filter(|upstream| *upstream > 0.0 && self.ours > 0.0)?;
        Some(match self.better {
            Better::Less => upstream / self.ours,
            Better::More => self.ours / upstream,
        })
    }

    /// Whether the target is met, when there is one.
    fn met(&self) -> Option<bool> {
        let target = self.target?;
        Some(match self.better {
            Better::Less => self.ours <= target,
            Better::More => self.ours >= target,
        })
    }
}

/// Prints the rows.
pub fn print(rows: &[Row]) {
    println!("\n{:<46} {:>14} {:>14} {:>8} {:>14}  met", "", "ours", "upstream", "ratio", "target");
    for row in rows {
        let bound = if row.better == Better::Less { "<=" } else { ">=" };
        let shown = |value: f64| format!("{} {}", number(value), row.unit);
        println!(
            "{:<46} {:>14} {:>14} {:>8} {:>14}  {}",
            row.what,
            shown(row.ours),
            row.upstream.map_or(String::new(), shown),
            row.ratio().map_or(String::new(), |ratio| format!("{ratio:.1}x")),
            row.target.map_or(String::new(), |target| format!("{bound} {}", shown(target))),
            match row.met() {
                None => "",
                Some(true) => "yes",
                Some(false) => "NO",
            }
        );
    }
}

/// Large figures without a fraction, small ones with enough of it.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => format!("{value:.0}"),
        small if small < 1.0 => format!("{value:.3}"),
        _ => format!("{value:.1}"),
    }
}
