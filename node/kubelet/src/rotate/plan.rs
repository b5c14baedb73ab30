//! Decides what happens to logs that were set aside.

/// How large a log may grow and how many files a container may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of one file.
    pub(crate) bytes: u64,
    /// Files, with the one being written.
    pub(crate) files: usize,
}

/// One thing to do to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It is one too many, or half written.
    Remove(String),
    /// It is no longer the newest.
    Compress(String),
}

/// What to do with the files beside the log `name`; dates in their names order them.
pub(crate) fn tidy(name: &str, files: &[String], limits: Limits) -> Vec<Action> {
    let prefix = format!("{name}.");
    let mut actions = Vec::new();
    let mut kept: Vec<&String> = Vec::new();
    for file in files.iter().filter(|file| file.starts_with(&prefix)) {
        if file.ends_with(".tmp") {
            actions.push(Action::Remove(file.clone()));
        } else {
            kept.push(file);
        }
    }
    kept.sort();
    kept.reverse();
    for (age, file) in kept.into_iter().enumerate() {
        if age + 2 > limits.files {
            actions.push(Action::Remove(file.clone()));
        } else if age > 0 && !file.ends_with(".gz") {
            actions.push(Action::Compress(file.clone()));
        }
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_written_files_are_removed_and_other_logs_left_alone() {
        let files = ["0.log", "0.log.5", "0.log.4.tmp", "10.log.1"].map(str::to_owned);
        let actions = tidy("0.log", &files, Limits { bytes: 0, files: 5 });
        assert_eq!(actions, [Action::Remove("0.log.4.tmp".into())]);
    }
}
