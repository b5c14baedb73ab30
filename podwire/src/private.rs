//! Folders that belong to this node alone: the data folder with every Secret, the run folder with the sockets.
//!
//! A folder of an earlier version, which was open to everybody, is closed. What lies inside has modes of its own; this is
//! the door before them.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use rustix::fs::Mode;

/// Nobody but the owner looks in.
const PRIVATE: u32 = 0o700;

/// Files for containers are made with the modes the images and volumes name, whatever shell started us.
pub fn fix_umask() {
    rustix::process::umask(Mode::from_raw_mode(0o022));
}

/// Makes the folder at `path` if need be, and shuts it; true if it was not there before.
pub fn folder(path: &Path) -> Result<bool> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("create {parent:?}"))?;
    }
    let made = match fs::DirBuilder::new().mode(PRIVATE).create(path) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(error).with_context(|| format!("create {path:?}")),
    };
    // The folder itself, not its name, so that nobody exchanges it between the look and the change.
    let folder = fs::File::open(path).with_context(|| format!("open {path:?}"))?;
    let state = folder.metadata().with_context(|| format!("look at {path:?}"))?;
    if !state.is_dir() {
        bail!("{path:?} is not a folder");
    }
    let own = rustix::process::geteuid().as_raw();
    if state.uid() != own {
        bail!(
            "{path:?} belongs to user {}, who could read and exchange what this node keeps there; give it to user {own} \
             or choose another folder",
            state.uid()
        );
    }
    if state.mode() & 0o7777 != PRIVATE {
        folder
            .set_permissions(fs::Permissions::from_mode(PRIVATE))
            .with_context(|| format!("close {path:?} to other users"))?;
    }
    Ok(made)
}

/// The run folder while this process needs it; one that it made and left empty, as after a refused start, goes with it.
pub struct RunFolder {
    made: Option<PathBuf>,
}

impl RunFolder {
    /// Takes the folder.
    pub fn take(path: &Path) -> Result<RunFolder> {
        Ok(RunFolder { made: folder(path)?.then(|| path.to_owned()) })
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            // Ignored: a folder that is not empty holds what the next start adopts.
            fs::remove_dir(path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_an_earlier_version_is_closed_and_a_new_one_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let old = dir.path().join("old");
        fs::create_dir(&old).unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(!folder(&old).unwrap());
        assert_eq!(mode(&old), 0o700);
        let new = dir.path().join("deep/new");
        assert!(folder(&new).unwrap());
        assert_eq!(mode(&new), 0o700);
        assert!(!folder(&new).unwrap());
    }

    #[test]
    fn a_run_folder_that_was_made_for_nothing_goes_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        drop(RunFolder::take(&run).unwrap());
        assert!(!run.exists());
        let taken = RunFolder::take(&run).unwrap();
        fs::write(run.join("journal"), "").unwrap();
        drop(taken);
        assert!(run.join("journal").exists(), "what is in use is left");
        fs::remove_file(run.join("journal")).unwrap();
        drop(RunFolder::take(&run).unwrap());
        assert!(run.exists(), "somebody else made it");
    }

    #[test]
    fn a_folder_of_somebody_else_and_a_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        std::os::unix::fs::chown(&theirs, Some(12_345), None).unwrap();
        assert!(folder(&theirs).unwrap_err().to_string().contains("belongs to user 12345"));
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(folder(&dir.path().join("file")).unwrap_err().to_string().contains("not a folder"));
    }
}
