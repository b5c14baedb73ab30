//! The table: what was measured, its target, and upstream's figure of the same run when there is one.

use std::time::Duration;

/// One line of the table.
pub struct Row {
    what: String,
    value: f64,
    target: f64,
    unit: &'static str,
}

impl Row {
    /// A time.
    pub fn millis(what: &str, value: Duration, target: f64) -> Row {
        Row { what: what.to_owned(), value: value.as_secs_f64() * 1000.0, target, unit: "ms" }
    }

    /// An amount of memory.
    pub fn megabytes(what: &str, value: f64, target: f64) -> Row {
        Row { what: what.to_owned(), value, target, unit: "MB" }
    }
}

/// Prints the rows beside their targets.
pub fn print(rows: &[Row]) {
    println!("\n{:<50} {:>12} {:>12}  met", "", "ours", "target");
    for row in rows {
        let target = if row.target.is_nan() { String::new() } else { format!("{:.1} {}", row.target, row.unit) };
        let met = match row.target {
            target if target.is_nan() => "",
            target if row.value <= target => "yes",
            _ => "NO",
        };
        println!("{:<50} {:>9.1} {} {:>12}  {met}", row.what, row.value, row.unit, target);
    }
}
