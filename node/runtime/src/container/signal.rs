//! Stop signals: CRI's numbering, names in image configs, the kernel's numbers.

/// What a container that asks for none is stopped with.
pub(crate) const SIGTERM: i32 = 15;
/// What ends a container that did not end by itself.
pub(crate) const SIGKILL: i32 = 9;

/// CRI value (position), name without `SIG`, kernel number; real-time signals follow by arithmetic.
const NAMED: [(&str, i32); 33] = [
    ("ABRT", 6),
    ("ALRM", 14),
    ("BUS", 7),
    ("CHLD", 17),
    ("CLD", 17),
    ("CONT", 18),
    ("FPE", 8),
    ("HUP", 1),
    ("ILL", 4),
    ("INT", 2),
    ("IO", 29),
    ("IOT", 6),
    ("KILL", 9),
    ("PIPE", 13),
    ("POLL", 29),
    ("PROF", 27),
    ("PWR", 30),
    ("QUIT", 3),
    ("SEGV", 11),
    ("STKFLT", 16),
    ("STOP", 19),
    ("SYS", 31),
    ("TERM", 15),
    ("TRAP", 5),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("USR1", 10),
    ("USR2", 12),
    ("VTALRM", 26),
    ("WINCH", 28),
    ("XCPU", 24),
];
/// `XFSZ` is CRI value 34; from 35 on the kernel's number is one less.
const XFSZ: (i32, i32) = (34, 25);
const RTMIN: i32 = 34;
const RTMAX: i32 = 64;

/// The kernel's number of a CRI `Signal` value; `None` for "runtime default" and unknown values.
pub(crate) fn from_cri(value: i32) -> Option<i32> {
    match value {
        1..=33 => usize::try_from(value - 1).ok().and_then(|at| NAMED.get(at)).map(|(_, number)| *number),
        34 => Some(XFSZ.1),
        35..=65 => Some(value - 1),
        _ => None,
    }
}

/// The CRI `Signal` value of a kernel signal number; zero when CRI has none.
pub(crate) fn to_cri(number: i32) -> i32 {
    match number {
        n if n == XFSZ.1 => XFSZ.0,
        RTMIN..=RTMAX => number + 1,
        _ => NAMED.iter().zip(1..).find(|((_, n), _)| *n == number).map_or(0, |(_, value)| value),
    }
}

/// Reads an image's `StopSignal`: `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3`.
pub(crate) fn parse(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return (1..=RTMAX).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let offset = |rest: &str| if rest.is_empty() { Some(0) } else { rest.get(1..)?.parse::<i32>().ok() };
    if let Some(rest) = name.strip_prefix("RTMIN") {
        return offset(rest).map(|n| RTMIN + n).filter(|n| (RTMIN..=RTMAX).contains(n));
    }
    if let Some(rest) = name.strip_prefix("RTMAX") {
        return offset(rest).map(|n| RTMAX - n).filter(|n| (RTMIN..=RTMAX).contains(n));
    }
    if name == "XFSZ" {
        return Some(XFSZ.1);
    }
    NAMED.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// What CRI asks for, else the image's, else SIGTERM.
pub(crate) fn choose(cri: i32, image: Option<&str>) -> i32 {
    from_cri(cri).or_else(|| image.and_then(parse)).unwrap_or(SIGTERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cri_values_and_numbers_agree_both_ways() {
        for (value, number) in [(1, 6), (23, 15), (33, 24), (34, 25), (35, 34), (36, 35), (65, 64), (30, 12)]
        {
            assert_eq!(from_cri(value), Some(number), "value {value}");
            assert_eq!(to_cri(number), value, "number {number}");
        }
        assert_eq!(from_cri(0), None);
        assert_eq!(from_cri(66), None);
    }

    #[test]
    fn names_of_image_configs_are_read() {
        assert_eq!(parse("SIGQUIT"), Some(3));
        assert_eq!(parse("usr1"), Some(10));
        assert_eq!(parse("SIGRTMIN+3"), Some(37));
        assert_eq!(parse("RTMAX-1"), Some(63));
        assert_eq!(parse("28"), Some(28));
        assert_eq!(parse("SIGNOTHING"), None);
        assert_eq!(parse("99"), None);
    }

    #[test]
    fn the_most_specific_wish_wins() {
        assert_eq!(choose(29, Some("SIGQUIT")), 10);
        assert_eq!(choose(0, Some("SIGQUIT")), 3);
        assert_eq!(choose(0, Some("nonsense")), SIGTERM);
        assert_eq!(choose(0, None), SIGTERM);
    }
}
