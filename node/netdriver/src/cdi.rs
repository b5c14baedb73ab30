//! Files for the runtime's Container Device Interface written and removed: which character devices come
//! with a claim. `plan::cdi` says what is in them.

use std::{
    fs, io,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use crate::{
    book::Claim,
    plan::cdi::{file, file_name},
};

/// Why a claim's character devices cannot be given.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the claim's uid is none")]
    Uid,
    #[error("the node has no character device {path:?}")]
    Absent { path: PathBuf },
    #[error("{attempt} {path:?}")]
    Io { attempt: &'static str, path: PathBuf, source: io::Error },
}

/// The folder that the runtime reads.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) driver: String,
}

impl Folder {
    fn place(&self, uid: &str) -> Result<PathBuf, Error> {
        file_name(&self.driver, uid).map(|name| self.path.join(name)).ok_or(Error::Uid)
    }

    /// Whether the node has what the file of a claim would name.
    pub(crate) fn check(&self, claim: &Claim) -> Result<(), Error> {
        let is_there =
            |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device());
        let absent = claim.devices.iter().flat_map(|device| &device.files).find(|path| !is_there(path));
        absent.map_or(Ok(()), |path| Err(Error::Absent { path: path.clone() }))
    }

    /// Writes the file of a claim, whole or not at all; nothing for a claim without character devices.
    pub(crate) fn write(&self, claim: &Claim) -> Result<(), Error> {
        let Some(content) = file(&self.driver, claim) else { return Ok(()) };
        let place = self.place(&claim.uid)?;
        // Whoever reads the folder leaves names alone that end otherwise.
        let aside = place.with_extension("new");
        let failed = |attempt, path: &Path| {
            let path = path.to_owned();
            move |source| Error::Io { attempt, path, source }
        };
        fs::create_dir_all(&self.path).map_err(failed("make the folder", &self.path))?;
        fs::write(&aside, content.to_string()).map_err(failed("write", &aside))?;
        fs::rename(&aside, &place).map_err(failed("replace", &place))
    }

    /// Removes the file of a claim; one that is gone is what was wanted.
    pub(crate) fn remove(&self, claim: &Claim) -> Result<(), Error> {
        if file(&self.driver, claim).is_none() {
            return Ok(());
        }
        let path = self.place(&claim.uid)?;
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::Io { attempt: "remove", path, source })
            }
            _ => Ok(()),
        }
    }
}
