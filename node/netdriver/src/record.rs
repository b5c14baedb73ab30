//! The book on disk: a journal of the boot that is replaced whole with each change, so that there is always one to read.
//!
//! One that cannot be read is no empty one: devices may be in pods, so the driver does not start.

use std::{
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use podwire_linux::{
    boot,
    boot_journal::{BootJournal, Frame, Kind},
};

use crate::book::{Book, Claim};

const KIND: Kind = Kind { magic: b"PWNETDRV", version: 1 };

/// Why the record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another driver has it.
    #[error("the folder {path:?} is used by another driver")]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The file system refused, or the file is none of ours.
    #[error("the record {path:?} cannot be read or written")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A row says what no version of ours wrote.
    #[error("a row of the record {path:?} is not understood")]
    Row {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

/// The record, held by this process alone.
pub(crate) struct Record {
    path: PathBuf,
    journal: BootJournal,
    _lock: File,
}

impl Record {
    /// Opens the record in a folder, with what it says.
    pub(crate) fn open(folder: &Path) -> Result<(Record, Book), Error> {
        let path = folder.join("claims");
        let failed = |source| Error::Io { path: path.clone(), source };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join("lock"))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::InUse { path: folder.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let boot = boot::id().map_err(failed)?;
        let (journal, found) = BootJournal::open(&path, KIND, &boot).map_err(failed)?;
        if found.cut > 0 {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidData, "the record is cut short")));
        }
        let mut book = Book::default();
        for row in &found.rows {
            let read = serde_json::from_slice::<Claim>(row);
            let claim = read.map_err(|source| Error::Row { path: path.clone(), source })?;
            book.claims.insert(claim.uid.clone(), claim);
        }
        let mut record = Record { path, journal, _lock: lock };
        if found.stale {
            book.forget_attachments();
            record.write(&book)?;
        }
        Ok((record, book))
    }

    /// Puts the book in the place of what was written before.
    pub(crate) fn write(&mut self, book: &Book) -> Result<(), Error> {
        let failed = |source| Error::Io { path: self.path.clone(), source };
        let rows = book.claims.values().map(|claim| {
            let row = serde_json::to_vec(claim).map_err(io::Error::other)?;
            Frame::of(&row)
        });
        let rows = rows.collect::<io::Result<Vec<_>>>().map_err(failed)?;
        self.journal.rewrite(&rows).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::Pod;

    fn book() -> Book {
        let pod = Pod { uid: "p".into(), namespace: "n".into(), name: "p".into() };
        let claim =
            Claim { uid: "c".into(), namespace: "n".into(), name: "c".into(), pod, devices: Vec::new() };
        Book { claims: [("c".to_owned(), claim)].into() }
    }

    #[test]
    fn what_was_written_is_read_and_what_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let (mut record, empty) = Record::open(folder.path()).unwrap();
        assert_eq!(empty, Book::default());
        record.write(&book()).unwrap();
        assert!(matches!(Record::open(folder.path()), Err(Error::InUse { .. })));
        drop(record);
        let (record, found) = Record::open(folder.path()).unwrap();
        assert_eq!(found, book());
        drop(record);
        std::fs::write(folder.path().join("claims"), b"something else entirely").unwrap();
        assert!(matches!(Record::open(folder.path()), Err(Error::Io { .. })));
    }
}
