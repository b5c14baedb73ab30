//! cgroup v1 hybrid and v2: create, limit, measure, freeze, kill, remove.
//!
//! A group is one path, the same in every hierarchy. On v1 (and hybrid) that is a folder per
//! controller, on v2 one folder. Paths are relative to where the hierarchies are mounted.
//!
//! <https://docs.kernel.org/admin-guide/cgroup-v2.html>, <https://docs.kernel.org/admin-guide/cgroup-v1/index.html>

mod devices;
mod layout;
mod resources;
mod stats;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use devices::{DeviceKind, DeviceRule};
pub use layout::{Hierarchies, Hierarchy, Version, host};
pub use resources::Resources;
pub use stats::{IoStats, MemoryStats, PressureStats, Stats};

/// Why a group could not be changed or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No cgroup hierarchy is mounted.
    #[error("no cgroup hierarchy is mounted")]
    NotMounted,
    /// A path that would leave the hierarchy.
    #[error("{path:?} is no path below a cgroup root")]
    BadPath {
        /// The path.
        path: String,
    },
    /// One file operation failed.
    #[error("{attempt} {path:?}")]
    Io {
        /// What was tried.
        attempt: &'static str,
        /// On which file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A value was refused by the kernel.
    #[error("write {value:?} to {path:?}")]
    Refused {
        /// What was written.
        value: String,
        /// To which file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Processes would not go away.
    #[error("cgroup {path:?} still has processes: {pids:?}")]
    StillPopulated {
        /// The group.
        path: String,
        /// Some of them.
        pids: Vec<u32>,
    },
}

fn io_error(attempt: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
    let path = path.into();
    move |source| Error::Io { attempt, path, source }
}

/// One group in every hierarchy.
#[derive(Debug, Clone)]
pub struct Group {
    hierarchies: Arc<Hierarchies>,
    path: String,
}

impl Hierarchies {
    /// The group at `path`, which need not exist yet.
    pub fn group(self: &Arc<Self>, path: &str) -> Result<Group, Error> {
        let bad = || Error::BadPath { path: path.to_owned() };
        let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
        if parts.is_empty() || parts.iter().any(|part| matches!(*part, "." | "..") || part.contains('\0')) {
            return Err(bad());
        }
        Ok(Group { hierarchies: Arc::clone(self), path: parts.join("/") })
    }
}

/// The group at `path` of this machine's hierarchies.
pub fn group(path: &str) -> Result<Group, Error> {
    host()?.group(path)
}

impl Group {
    /// Its path without a leading slash.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A group below this one.
    pub fn child(&self, name: &str) -> Result<Group, Error> {
        self.hierarchies.group(&format!("{}/{name}", self.path))
    }

    /// Its folder in each hierarchy.
    pub fn folders(&self) -> impl Iterator<Item = (&Hierarchy, PathBuf)> {
        self.hierarchies.all().iter().map(|h| (h, h.mount.join(&self.path)))
    }

    /// Its folder in the hierarchy of a v1 controller, or the one folder of v2.
    pub fn folder(&self, controller: &str) -> Option<PathBuf> {
        self.hierarchies.of(controller).map(|h| h.mount.join(&self.path))
    }

    /// Its folder in the cgroup2 hierarchy, if there is one.
    pub fn unified(&self) -> Option<PathBuf> {
        self.hierarchies.unified().map(|h| h.mount.join(&self.path))
    }

    /// The files a process is written to in order to join everywhere.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        self.folders().map(|(_, folder)| folder.join("cgroup.procs")).collect()
    }

    /// True when the group exists anywhere.
    pub fn exists(&self) -> bool {
        self.folders().any(|(_, folder)| folder.exists())
    }

    /// Makes the group and what is missing above it. Makes nothing that is there already.
    pub fn create(&self) -> Result<(), Error> {
        for hierarchy in self.hierarchies.all() {
            self.create_in(hierarchy)?;
        }
        Ok(())
    }

    fn create_in(&self, hierarchy: &Hierarchy) -> Result<(), Error> {
        let folder = hierarchy.mount.join(&self.path);
        // The parent is nearly always there: one mkdir.
        match fs::create_dir(&folder) {
            Ok(()) => {
                let parent = folder.parent().unwrap_or(&hierarchy.mount);
                if hierarchy.version == Version::Two && parent != hierarchy.mount {
                    self.enable_controllers(hierarchy)?;
                }
                return self.inherit(hierarchy, &folder, parent);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error("make cgroup", &folder)(error)),
        }
        let mut parent = hierarchy.mount.clone();
        for part in self.path.split('/') {
            let folder = parent.join(part);
            match fs::create_dir(&folder) {
                Ok(()) => self.inherit(hierarchy, &folder, &parent)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io_error("make cgroup", &folder)(error)),
            }
            parent = folder;
        }
        if hierarchy.version == Version::Two {
            self.enable_controllers(hierarchy)?;
        }
        Ok(())
    }

    /// A fresh v1 cpuset allows nothing; no process can join before it has its parent's values.
    fn inherit(&self, hierarchy: &Hierarchy, folder: &Path, parent: &Path) -> Result<(), Error> {
        if hierarchy.version != Version::One || !hierarchy.has("cpuset") {
            return Ok(());
        }
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let value = allowed(&hierarchy.mount, parent, file)?;
            write(&folder.join(file), &value)?;
        }
        Ok(())
    }

    /// On v2 a controller is usable in a group when every group above hands it down.
    fn enable_controllers(&self, hierarchy: &Hierarchy) -> Result<(), Error> {
        if hierarchy.hybrid {
            // Its controllers are on v1; what little is here is handed down when used.
            return Ok(());
        }
        let mut folder = hierarchy.mount.clone();
        let parts: Vec<_> = self.path.split('/').collect();
        for part in &parts {
            let available = read(&folder.join("cgroup.controllers"))?;
            let enabled = read(&folder.join("cgroup.subtree_control"))?;
            for controller in available.split_whitespace() {
                if enabled.split_whitespace().any(|c| c == controller) {
                    continue;
                }
                let file = folder.join("cgroup.subtree_control");
                if let Err(error) = write(&file, &format!("+{controller}")) {
                    // A threaded or busy group keeps what it has; limits that need it will say so.
                    if !matches!(&error, Error::Refused { source, .. } if busy_or_unsupported(source)) {
                        return Err(error);
                    }
                }
            }
            folder.push(part);
        }
        Ok(())
    }

    /// Sets limits. What is `None` stays as it is.
    pub fn apply(&self, resources: &Resources) -> Result<(), Error> {
        resources::apply(self, resources)
    }

    /// Moves a process in.
    pub fn add(&self, pid: u32) -> Result<(), Error> {
        for file in self.procs_files() {
            write(&file, &pid.to_string())?;
        }
        Ok(())
    }

    /// Its processes, with those of groups below.
    pub fn processes(&self) -> Result<Vec<u32>, Error> {
        let mut pids = Vec::new();
        // On v1 a process may have left one hierarchy, so all are asked.
        for (_, folder) in self.folders() {
            collect_processes(&folder, &mut pids)?;
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Names of the groups directly below, in any hierarchy.
    pub fn children(&self) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        for (_, folder) in self.folders() {
            for child in subfolders(&folder)? {
                names.extend(child.file_name().map(|name| name.to_string_lossy().into_owned()));
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Stops or resumes every process in it. Does nothing where the kernel has no freezer.
    pub fn freeze(&self, frozen: bool) -> Result<(), Error> {
        if let Some(folder) = self.hierarchies.v1("freezer").map(|h| h.mount.join(&self.path)) {
            return write(&folder.join("freezer.state"), if frozen { "FROZEN" } else { "THAWED" });
        }
        match self.unified() {
            Some(folder) => write(&folder.join("cgroup.freeze"), if frozen { "1" } else { "0" }),
            None => Ok(()),
        }
    }

    /// Sends `signal` to every process in it, SIGKILL through `cgroup.kill` where that exists.
    pub fn signal(&self, signal: i32) -> Result<(), Error> {
        if signal == libc::SIGKILL
            && let Some(folder) = self.unified()
            && write(&folder.join("cgroup.kill"), "1").is_ok()
        {
            return Ok(());
        }
        // Frozen, nothing can fork away while the list is walked.
        let frozen = self.freeze(true).is_ok();
        let listed = self.processes();
        for pid in listed.as_deref().unwrap_or_default() {
            if let Some(pid) = i32::try_from(*pid).ok().and_then(rustix::process::Pid::from_raw) {
                // SAFETY: plain system call; a pid that is gone is ESRCH.
                unsafe { libc::kill(pid.as_raw_nonzero().get(), signal) };
            }
        }
        if frozen {
            self.freeze(false)?;
        }
        listed.map(|_| ())
    }

    /// Removes the group and those below; false when processes are still on their way out.
    pub fn try_remove(&self) -> Result<bool, Error> {
        let mut gone = true;
        for (_, folder) in self.folders() {
            gone &= remove_tree(&folder)?;
        }
        Ok(gone)
    }

    /// Kills what is in it and removes it, waiting at most `patience` for the kernel.
    pub fn remove(&self, patience: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        while !self.try_remove()? {
            self.signal(libc::SIGKILL)?;
            if self.try_remove()? {
                break;
            }
            if Instant::now() >= deadline {
                let pids = self.processes()?;
                return Err(Error::StillPopulated { path: self.path.clone(), pids });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        Ok(())
    }

    /// How often the kernel killed something here for want of memory.
    pub fn oom_kills(&self) -> u64 {
        stats::oom_kills(self)
    }

    /// What it has used. Missing controllers give zeros.
    pub fn stats(&self) -> Stats {
        stats::read_stats(self)
    }
}

/// What a v1 cpuset allows; one that somebody made and left empty gets what the group above it allows.
fn allowed(mount: &Path, folder: &Path, file: &str) -> Result<String, Error> {
    let own = read(&folder.join(file))?.trim_end().to_owned();
    match folder.parent() {
        Some(parent) if own.is_empty() && folder != mount => {
            let value = allowed(mount, parent, file)?;
            write(&folder.join(file), &value)?;
            Ok(value)
        }
        _ => Ok(own),
    }
}

fn busy_or_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EBUSY | libc::EOPNOTSUPP | libc::ENOENT | libc::EINVAL | libc::EPERM)
    )
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(io_error("read", path))
}

fn write(path: &Path, value: &str) -> Result<(), Error> {
    let refused = |source| Error::Refused { value: value.to_owned(), path: path.to_owned(), source };
    let mut file = fs::OpenOptions::new().write(true).open(path).map_err(refused)?;
    io::Write::write_all(&mut file, value.as_bytes()).map_err(refused)
}

fn subfolders(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error("list", folder)(error)),
    };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io_error("list", folder))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            folders.push(entry.path());
        }
    }
    Ok(folders)
}

fn collect_processes(folder: &Path, pids: &mut Vec<u32>) -> Result<(), Error> {
    match fs::read_to_string(folder.join("cgroup.procs")) {
        Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok())),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => return Ok(()),
        // A threaded group lists no processes; its domain does.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        Err(error) => return Err(io_error("read", folder.join("cgroup.procs"))(error)),
    }
    for child in subfolders(folder)? {
        collect_processes(&child, pids)?;
    }
    Ok(())
}

fn remove_tree(folder: &Path) -> Result<bool, Error> {
    match fs::remove_dir(folder) {
        Ok(()) => return Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT) => return Ok(true),
            Some(libc::EBUSY | libc::ENOTEMPTY) => {}
            _ => return Err(io_error("remove cgroup", folder)(error)),
        },
    }
    let children = subfolders(folder)?;
    if children.is_empty() {
        return Ok(false);
    }
    for child in children {
        if !remove_tree(&child)? {
            return Ok(false);
        }
    }
    match fs::remove_dir(folder) {
        Ok(()) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT) => Ok(true),
            Some(libc::EBUSY | libc::ENOTEMPTY) => Ok(false),
            _ => Err(io_error("remove cgroup", folder)(error)),
        },
    }
}
