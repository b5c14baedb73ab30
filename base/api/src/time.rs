//! Kubernetes' times and durations as text: RFC 3339 in UTC, Go's duration notation, kubectl's short ages.

use jiff::Timestamp;

/// Whether the text already is `YYYY-MM-DDTHH:MM:SS` plus this tail pattern (`9` stands for a digit).
fn has_form(text: &str, tail: &[u8]) -> bool {
    let form = b"9999-99-99T99:99:99";
    let bytes = text.as_bytes();
    bytes.len() == form.len() + tail.len()
        && form
            .iter()
            .chain(tail)
            .zip(bytes)
            .all(|(f, b)| if *f == b'9' { b.is_ascii_digit() } else { f == b })
}

/// Normal form of a `Time`: `None` for no time, `Some(None)` when it is normal already.
pub(crate) fn to_seconds(text: &str) -> Option<Option<String>> {
    let parsed = text.parse::<Timestamp>().ok()?;
    if has_form(text, b"Z") { Some(None) } else { Some(Some(seconds(parsed))) }
}

/// Normal form of a `MicroTime`.
pub(crate) fn to_micros(text: &str) -> Option<Option<String>> {
    let parsed = text.parse::<Timestamp>().ok()?;
    if has_form(text, b".999999Z") { Some(None) } else { Some(Some(micros(parsed))) }
}

/// A time as `metav1.Time` prints it.
pub fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time as `metav1.MicroTime` prints it.
pub fn micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Nanoseconds of a Go duration such as `1h30m`, `1.5s`.
pub fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0f64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.bytes().take_while(|b| !b.is_ascii_digit() && *b != b'.').count();
        let (unit, next) = tail.split_at(letters);
        let scale = match unit {
            "ns" => 1f64,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * scale;
        rest = next;
    }
    let whole = format!("{total:.0}").parse::<i64>().ok()?;
    Some(if negative { -whole } else { whole })
}

/// A duration as Go prints it.
pub fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let magnitude = nanos.unsigned_abs();
    let fraction = |value: u64, unit: u64, name: &str| {
        let text = format!("{}.{:0width$}", value / unit, value % unit, width = unit.ilog10() as usize);
        format!("{sign}{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    match magnitude {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{magnitude}ns"),
        1_000..1_000_000 => fraction(magnitude, 1_000, "µs"),
        1_000_000..1_000_000_000 => fraction(magnitude, 1_000_000, "ms"),
        _ => {
            let (hours, rest) = (magnitude / 3_600_000_000_000, magnitude % 3_600_000_000_000);
            let (minutes, rest) = (rest / 60_000_000_000, rest % 60_000_000_000);
            let tail = format!("{}.{:09}", rest / 1_000_000_000, rest % 1_000_000_000);
            let tail = tail.trim_end_matches('0').trim_end_matches('.').to_owned();
            match (hours, minutes) {
                (0, 0) => format!("{sign}{tail}s"),
                (0, m) => format!("{sign}{m}m{tail}s"),
                (h, m) => format!("{sign}{h}h{m}m{tail}s"),
            }
        }
    }
}

/// An age the way kubectl prints it: `5s`, `3m20s`, `2d4h`.
pub fn human_age(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let pair = |big: i64, big_unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{big}{big_unit}") } else { format!("{big}{big_unit}{small}{small_unit}") }
    };
    match seconds {
        s if s < -1 => "<invalid>".to_owned(),
        s if s < 0 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => pair(s / MINUTE, "m", s % MINUTE, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => pair(s / HOUR, "h", s % HOUR / MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => pair(s / DAY, "d", s % DAY / HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => pair(s / YEAR, "y", s % YEAR / DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_print_like_gos() {
        for (text, nanos) in [
            ("0s", 0),
            ("1h30m0s", 5_400_000_000_000),
            ("1.5s", 1_500_000_000),
            ("300ms", 300_000_000),
            ("-2m0s", -120_000_000_000),
            ("15µs", 15_000),
        ] {
            assert_eq!(parse_duration(text), Some(nanos), "{text}");
            assert_eq!(format_duration(nanos), text);
        }
        for bad in ["", "5", "x", "1d", "-"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (3600, "60m"),
            (10_800, "3h"),
            (12_000, "3h20m"),
            (90_000, "25h"),
            (200_000, "2d7h"),
            (864_000, "10d"),
        ] {
            assert_eq!(human_age(seconds), text);
        }
    }
}
