//! An error in the words that logs, statuses, answers and arrows carry.

use std::error::Error;

/// An error with all its causes, in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{fmt, io};

    use super::*;

    #[derive(Debug)]
    struct Attempt(io::Error);

    impl fmt::Display for Attempt {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("open the file")
        }
    }

    impl Error for Attempt {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn every_cause_is_named_once() {
        let error = Attempt(io::Error::other(Attempt(io::Error::other("no such file"))));
        assert_eq!(chain(&error), "open the file: open the file: no such file");
    }
}
