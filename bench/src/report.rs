//! The table: what was measured, its target, and upstream's figure of the same run when there is one.

/// One line of the table.
pub struct Row {
    what: String,
    unit: &'static str,
    ours: f64,
    upstream: Option<f64>,
    target: Option<f64>,
}

impl Row {
    /// A figure of ours, upstream's if it was measured, and the target if there is one.
    pub fn new(what: &str, unit: &'static str, ours: f64, upstream: Option<f64>, target: Option<f64>) -> Row {
        Row { what: what.to_owned(), unit, ours, upstream, target }
    }
}

/// Prints the rows.
pub fn print(rows: &[Row]) {
    println!("\n{:<42} {:>12} {:>12} {:>8} {:>12}  met", "", "ours", "upstream", "ratio", "target");
    for row in rows {
        let shown =
            |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.1} {}", row.unit));
        let ratio =
            row.upstream.map_or(String::new(), |upstream| format!("{:.1}x", upstream / row.ours.max(1e-9)));
        let met = match row.target {
            None => "",
            Some(target) if row.ours <= target => "yes",
            Some(_) => "NO",
        };
        println!(
            "{:<42} {:>12} {:>12} {:>8} {:>12}  {met}",
            row.what,
            shown(Some(row.ours)),
            shown(row.upstream),
            ratio,
            shown(row.target)
        );
    }
}
