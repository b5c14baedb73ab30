//! Shell patterns for one name, and for absolute paths part by part: `*`, `?`, `[a-z]`, `[!a-z]`. No part crosses a slash.

/// Whether the whole name fits the pattern.
///
/// Linear in the product of the lengths: a star that did not fit is retried from where it stood, never deeper.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&'*') {
            star = Some((p, n));
            p += 1;
        } else if let Some(length) = one(&pattern[p..], name[n]) {
            p += length;
            n += 1;
        } else if let Some((at, from)) = star {
            (p, n) = (at + 1, from + 1);
            star = Some((at, from + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|rest| *rest == '*')
}

/// How much of the pattern the character uses up, if it fits.
fn one(pattern: &[char], found: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '[' => set(pattern, found),
        literal => (*literal == found).then_some(1),
    }
}

/// A set such as `[a-c7]`; one that is never closed is an ordinary bracket.
fn set(pattern: &[char], found: char) -> Option<usize> {
    let Some(end) = pattern.iter().skip(2).position(|c| *c == ']').map(|at| at + 2) else {
        return (found == '[').then_some(1);
    };
    let negated = matches!(pattern[1], '!' | '^');
    let members = &pattern[if negated { 2 } else { 1 }..end];
    let mut inside = false;
    let mut at = 0;
    while at < members.len() {
        if members.get(at + 1) == Some(&'-') && at + 2 < members.len() {
            inside |= (members[at]..=members[at + 2]).contains(&found);
            at += 3;
        } else {
            inside |= members[at] == found;
            at += 1;
        }
    }
    (inside != negated).then_some(end + 1)
}

/// Whether a name is a pattern that could fit several.
pub(crate) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names_as_a_shells_do() {
        for (pattern, name) in [
            ("ttyUSB*", "ttyUSB0"),
            ("ttyUSB?", "ttyUSB7"),
            ("*", ""),
            ("a*b*c", "aXbYbc"),
            ("sd[a-c]", "sdb"),
            ("sd[!a-c]", "sdd"),
            ("sd[a-c0]", "sd0"),
            ("a[", "a["),
            ("mlx5_[0-9]*", "mlx5_12"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("ttyUSB?", "ttyUSB10"),
            ("ttyUSB*", "ttyACM0"),
            ("sd[a-c]", "sdd"),
            ("sd[!a-c]", "sdb"),
            ("", "a"),
            ("a*b", "abc"),
        ] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_ends_soon() {
        assert!(!fits(&"*a".repeat(200), &"a".repeat(199)));
        assert!(!fits(&format!("{}b", "*a".repeat(100)), &"a".repeat(10_000)));
    }
}
