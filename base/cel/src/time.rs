//! Moments and spans of time: read and printed as Go does it.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// 0001-01-01T00:00:00Z.
const FIRST: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z.
const LAST: i64 = 253_402_300_799;

/// A moment, with the offset from UTC that it was written with.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Whole seconds since 1970, rounded down.
    pub seconds: i64,
    /// Nanoseconds since then.
    pub nanos: u32,
    /// Seconds east of UTC, for printing.
    pub offset: i32,
}

const NANOS: i128 = 1_000_000_000;

impl Moment {
    /// A number of seconds since 1970; nothing if it is before year 1 or after year 9999.
    pub fn from_seconds(seconds: i64) -> Option<Moment> {
        Moment { seconds, nanos: 0, offset: 0 }.in_range()
    }

    /// What it is if expressions can have it.
    fn in_range(self) -> Option<Moment> {
        (FIRST..=LAST).contains(&self.seconds).then_some(self)
    }

    /// Nanoseconds since 1970.
    pub fn as_nanos(&self) -> i128 {
        i128::from(self.seconds) * NANOS + i128::from(self.nanos)
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.seconds == FIRST && self.nanos == 0
    }

    /// Later by a number of nanoseconds; nothing if that is out of range.
    pub(crate) fn plus(&self, nanos: i64) -> Option<Moment> {
        let sum = self.as_nanos() + i128::from(nanos);
        let seconds = i64::try_from(sum.div_euclid(NANOS)).ok()?;
        let nanos = u32::try_from(sum.rem_euclid(NANOS)).ok()?;
        Moment { seconds, nanos, offset: self.offset }.in_range()
    }

    /// How many nanoseconds lie between two; nothing if they are too many.
    pub(crate) fn minus(&self, other: &Moment) -> Option<i64> {
        i64::try_from(self.as_nanos() - other.as_nanos()).ok()
    }

    /// What the calendar and the clock show so many seconds east of UTC.
    fn local(&self, offset: i32) -> Option<DateTime> {
        let since = SignedDuration::new(self.seconds + i64::from(offset), i32::try_from(self.nanos).ok()?);
        DateTime::constant(1970, 1, 1, 0, 0, 0, 0).checked_add(since).ok()
    }

    /// The calendar at a place: a name of the time zone database or an offset such as `-02:30`.
    pub(crate) fn at_zone(&self, zone: &str) -> Result<DateTime, String> {
        let zone = match zone.split_once(':') {
            Some((hours, minutes)) => {
                let hours = atoi(hours)?;
                let minutes = atoi(minutes)?;
                let minutes = if zone.starts_with('-') { hours * 60 - minutes } else { hours * 60 + minutes };
                let offset =
                    i32::try_from(minutes * 60).ok().and_then(|seconds| Offset::from_seconds(seconds).ok());
                TimeZone::fixed(offset.ok_or_else(|| format!("unknown time zone {zone}"))?)
            }
            None if zone.is_empty() || zone == "UTC" => TimeZone::UTC,
            None => TimeZone::get(zone)
                .ok()
                .filter(|found| found.iana_name() == Some(zone))
                .ok_or_else(|| format!("unknown time zone {zone}"))?,
        };
        // The rules of a zone do not change at the ends of time, where the crate has no moments any more.
        let at = Timestamp::from_second(self.seconds).unwrap_or(if self.seconds < 0 {
            Timestamp::MIN
        } else {
            Timestamp::MAX
        });
        self.local(zone.to_offset(at).seconds()).ok_or_else(|| "timestamp overflow".to_owned())
    }
}

/// Go's `Atoi`, within what an offset can be.
fn atoi(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    match text.parse::<i64>() {
        Ok(value) if digits.bytes().all(|byte| byte.is_ascii_digit()) && value.abs() < 1_000_000 => Ok(value),
        _ => Err(format!("strconv.Atoi: parsing {text:?}: invalid syntax")),
    }
}

/// RFC 3339 with as many digits as there are.
impl std::fmt::Display for Moment {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(local) = self.local(self.offset).or_else(|| self.local(0)) else { return Ok(()) };
        let (date, time) = (local.date(), local.time());
        write!(out, "{:04}-{:02}-{:02}T", date.year(), date.month(), date.day())?;
        write!(out, "{:02}:{:02}:{:02}", time.hour(), time.minute(), time.second())?;
        if time.subsec_nanosecond() != 0 {
            let digits = format!("{:09}", time.subsec_nanosecond());
            write!(out, ".{}", digits.trim_end_matches('0'))?;
        }
        if self.offset == 0 {
            return out.write_str("Z");
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.abs() / 60;
        write!(out, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// Reads numbers of a fixed length off the front.
struct Digits<'a>(&'a str);

impl Digits<'_> {
    fn number<T: std::str::FromStr>(&mut self, count: usize) -> Option<T> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        let all = digits.bytes().all(|byte| byte.is_ascii_digit());
        self.0 = rest;
        digits.parse().ok().filter(|_| all)
    }

    fn take(&mut self, prefix: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(prefix)?;
        Some(())
    }

    fn date(&mut self) -> Option<Date> {
        let year = self.number(4)?;
        self.take("-")?;
        let month = self.number(2)?;
        self.take("-")?;
        Date::new(year, month, self.number(2)?).ok()
    }

    /// Hours, minutes, seconds and what is behind the point.
    fn clock(&mut self) -> Option<Time> {
        let one_digit = self.0.as_bytes().get(1) == Some(&b':');
        let hour = self.number(if one_digit { 1 } else { 2 })?;
        self.take(":")?;
        let minute = self.number(2)?;
        self.take(":")?;
        let second: i8 = self.number(2)?;
        let mut nanos = 0;
        if let Some(rest) = self.0.strip_prefix(['.', ',']) {
            let count = rest.bytes().take_while(u8::is_ascii_digit).count();
            if count > 0 {
                let (digits, rest) = rest.split_at(count);
                let nine: String = digits.chars().chain("000000000".chars()).take(9).collect();
                nanos = nine.parse().ok()?;
                self.0 = rest;
            }
        }
        Time::new(hour, minute, second, nanos).ok().filter(|_| second < 60)
    }

    /// `Z` or hours and minutes, up to the end.
    fn offset(&mut self) -> Option<i32> {
        if self.0 == "Z" {
            return Some(0);
        }
        let sign = if self.take("-").is_some() { -1 } else { self.take("+").map(|()| 1)? };
        let hours: i32 = self.number(2)?;
        self.take(":")?;
        let minutes: i32 = self.number(2)?;
        (self.0.is_empty() && hours <= 24 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60)
    }
}

fn moment(local: DateTime, offset: i32) -> Option<Moment> {
    let since = local.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
    let nanos = since.as_nanos();
    let seconds = i64::try_from(nanos.div_euclid(NANOS)).ok()? - i64::from(offset);
    Some(Moment { seconds, nanos: u32::try_from(nanos.rem_euclid(NANOS)).ok()?, offset })
}

/// Why a text is no moment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoMoment {
    Format,
    Range,
}

/// RFC 3339, as `timestamp()` reads it.
pub(crate) fn parse_timestamp(text: &str) -> Result<Moment, NoMoment> {
    let read = || {
        let mut digits = Digits(text);
        let date = digits.date()?;
        digits.take("T")?;
        let local = date.to_datetime(digits.clock()?);
        moment(local, digits.offset()?)
    };
    read().ok_or(NoMoment::Format)?.in_range().ok_or(NoMoment::Range)
}

/// A date of a schema.
pub(crate) fn parse_date(text: &str) -> Option<Moment> {
    let mut digits = Digits(text);
    let date = digits.date()?;
    digits.0.is_empty().then_some(())?;
    moment(date.to_datetime(Time::midnight()), 0)
}

/// A date with a time of a schema: RFC 3339, or without an offset.
pub(crate) fn parse_date_time(text: &str) -> Option<Moment> {
    if text.is_empty() {
        return Moment::from_seconds(0);
    }
    if let Ok(moment) = parse_timestamp(text) {
        return Some(moment);
    }
    let mut digits = Digits(text);
    let date = digits.date()?;
    if digits.0.is_empty() {
        return moment(date.to_datetime(Time::midnight()), 0);
    }
    digits.take("T").or_else(|| digits.take(" "))?;
    let time = digits.clock()?;
    digits.0.is_empty().then_some(())?;
    moment(date.to_datetime(time), 0)
}

/// A duration of a schema: Go's, or a number of one unit, days and weeks among them.
pub(crate) fn parse_schema_duration(text: &str) -> Option<i64> {
    if let Some(nanos) = parse_duration(text) {
        return Some(nanos);
    }
    const SECOND: i64 = 1_000_000_000;
    let mut sum: i64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: i64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..].trim_start();
        let letters: usize = unit.chars().take_while(|c| c.is_alphabetic()).map(char::len_utf8).sum();
        let nanos = match unit[..letters].to_lowercase().as_str() {
            "ns" | "nano" => 1,
            "us" | "µs" | "micro" => 1_000,
            "ms" | "milli" => 1_000_000,
            "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
            "m" | "min" | "mins" | "minute" | "minutes" => 60 * SECOND,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3600 * SECOND,
            "d" | "day" | "days" => 24 * 3600 * SECOND,
            "w" | "wk" | "week" | "weeks" => 7 * 24 * 3600 * SECOND,
            _ => return None,
        };
        sum = sum.checked_add(number.checked_mul(nanos)?)?;
        rest = unit[letters..].trim_start();
    }
    Some(sum)
}

/// A duration as `string()` prints it.
#[allow(clippy::cast_precision_loss, reason = "upstream prints seconds as floating point")]
pub(crate) fn print_duration(nanos: i64) -> String {
    let seconds = (nanos / 1_000_000_000) as f64 + (nanos % 1_000_000_000) as f64 / 1e9;
    format!("{seconds}s")
}

/// A duration as `duration()` reads it: numbers with units, exact to the nanosecond.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let negative = text.starts_with('-');
    if unsigned == "0" {
        return Some(0);
    }
    let mut rest = unsigned;
    let mut sum: u64 = 0;
    loop {
        let count = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, tail) = rest.split_at(count(rest));
        let (fraction, tail) = match tail.strip_prefix('.') {
            Some(tail) => tail.split_at(count(tail)),
            None => ("", tail),
        };
        let letters = tail.bytes().take_while(|byte| !byte.is_ascii_digit() && *byte != b'.').count();
        let (unit, next) = tail.split_at(letters);
        let unit: u64 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        sum = sum.checked_add(whole.checked_mul(unit)?)?.checked_add(part_of(fraction, unit))?;
        if sum > 1 << 63 {
            return None;
        }
        rest = next;
        if rest.is_empty() {
            break;
        }
    }
    match negative {
        true => 0i64.checked_sub_unsigned(sum),
        false => i64::try_from(sum).ok(),
    }
}

/// The digits behind a point, of a unit of so many nanoseconds; rounded as Go does.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "Go multiplies as floating point"
)]
fn part_of(fraction: &str, unit: u64) -> u64 {
    let (mut value, mut scale): (u64, f64) = (0, 1.0);
    for digit in fraction.bytes().map(|byte| u64::from(byte - b'0')) {
        let Some(next) =
            value.checked_mul(10).and_then(|ten| ten.checked_add(digit)).filter(|v| *v <= 1 << 63)
        else {
            break;
        };
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}
