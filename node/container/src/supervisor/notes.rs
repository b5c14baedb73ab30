//! The supervisor's own log file: two halves of bounded size, the older one beside the newer.
//!
//! It lies in the state folder, which is memory on most machines, and tells of things that containers can cause.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{log, poll};

/// The file is put aside when it is longer than this.
const MOST: u64 = 1 << 20;
/// Of one note.
const LONGEST: usize = 4 << 10;

/// The file behind our stderr.
#[derive(Debug)]
struct Notes {
    path: PathBuf,
    size: u64,
}

static NOTES: Mutex<Option<Notes>> = Mutex::new(None);

impl Notes {
    /// Lets stderr lead to the file.
    fn open(path: PathBuf) -> io::Result<Notes> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        rustix::stdio::dup2_stderr(&file)?;
        Ok(Notes { path, size: file.metadata()?.len() })
    }

    /// Begins a new file in the place of one that is long enough.
    fn turn(&mut self) -> io::Result<()> {
        if self.size < MOST {
            return Ok(());
        }
        fs::rename(&self.path, self.path.with_extension("log.1"))?;
        *self = Notes::open(self.path.clone())?;
        Ok(())
    }
}

/// Notes go to a file of `state_dir` from now on.
pub(super) fn begin(state_dir: &Path) -> io::Result<()> {
    let notes = Notes::open(state_dir.join("supervisor.log"))?;
    *NOTES.lock().unwrap_or_else(PoisonError::into_inner) = Some(notes);
    Ok(())
}

/// A line in the supervisor's own log file.
pub(crate) fn note(text: &str) {
    let end = text.char_indices().map(|(at, _)| at).find(|at| *at >= LONGEST).unwrap_or(text.len());
    let line = format!("{} {}\n", log::timestamp(poll::now()), &text[..end]);
    let mut notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(notes) = notes.as_mut() {
        if notes.turn().is_err() && notes.size >= 2 * MOST {
            // A file that cannot be put aside must not grow for ever either.
            return;
        }
        notes.size += line.len() as u64;
    }
    // Ignored: without a log file there is nobody to tell.
    io::stderr().write_all(line.as_bytes()).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_take_bounded_room_however_many_there_are() {
        let dir = tempfile::tempdir().unwrap();
        let stderr = io::stderr();
        let before = rustix::io::dup(&stderr).unwrap();
        begin(dir.path()).unwrap();
        for number in 0..40_000 {
            note(&format!("container {number}: {}", "x".repeat(100)));
        }
        note(&"y".repeat(1 << 20));
        *NOTES.lock().unwrap() = None;
        rustix::stdio::dup2_stderr(&before).unwrap();
        let size = |name: &str| fs::metadata(dir.path().join(name)).unwrap().len();
        let bound = MOST + 2 * LONGEST as u64;
        assert!(size("supervisor.log") <= bound && size("supervisor.log.1") <= bound);
        let text = fs::read_to_string(dir.path().join("supervisor.log")).unwrap();
        assert!(text.contains("container 39999:"), "the newest are there");
    }
}
