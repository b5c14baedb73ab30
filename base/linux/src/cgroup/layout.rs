//! Which hierarchies are mounted, and where.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::Error;

/// The interface a hierarchy speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One folder tree per controller.
    One,
    /// The unified tree.
    Two,
}

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its interface.
    pub version: Version,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// Its controllers; for a named v1 hierarchy `name=...`.
    pub controllers: Vec<String>,
    /// A cgroup2 tree beside v1 controllers.
    pub hybrid: bool,
}

impl Hierarchy {
    /// True when it has the controller.
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|c| c == controller)
    }
}

/// All hierarchies of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchies {
    all: Vec<Hierarchy>,
}

/// This machine's hierarchies, looked up once.
pub fn host() -> Result<&'static Arc<Hierarchies>, Error> {
    static HOST: OnceLock<Arc<Hierarchies>> = OnceLock::new();
    if let Some(found) = HOST.get() {
        return Ok(found);
    }
    let path = Path::new("/proc/self/mountinfo");
    let mountinfo = super::read(path)?;
    let found = Hierarchies::parse(&mountinfo)?;
    Ok(HOST.get_or_init(|| Arc::new(found)))
}

impl Hierarchies {
    /// Reads the text of a `mountinfo` file.
    pub fn parse(mountinfo: &str) -> Result<Hierarchies, Error> {
        let mut all: Vec<Hierarchy> = Vec::new();
        for mount in crate::mount::parse_mountinfo(mountinfo) {
            let hierarchy = match mount.fstype.as_str() {
                "cgroup" => v1(&mount.target, &mount.super_options),
                "cgroup2" => v2(&mount.target),
                _ => continue,
            };
            // The first mount of a hierarchy is the real one; later ones are views of it.
            let known =
                all.iter().any(|h| h.version == hierarchy.version && h.controllers == hierarchy.controllers);
            if !known {
                all.push(hierarchy);
            }
        }
        Self::of_all(all)
    }

    /// Hierarchies given one by one, for trees that are not this machine's.
    pub fn of_all(mut all: Vec<Hierarchy>) -> Result<Hierarchies, Error> {
        if all.is_empty() {
            return Err(Error::NotMounted);
        }
        let any_v1 = all.iter().any(|h| h.version == Version::One);
        for hierarchy in &mut all {
            hierarchy.hybrid = any_v1 && hierarchy.version == Version::Two;
        }
        // cgroup2 last: when a process is moved there, its limits elsewhere already hold.
        all.sort_by_key(|h| h.version == Version::Two);
        Ok(Hierarchies { all })
    }

    /// All of them.
    pub fn all(&self) -> &[Hierarchy] {
        &self.all
    }

    /// True when only cgroup2 is mounted.
    pub fn is_v2(&self) -> bool {
        self.all.iter().all(|h| h.version == Version::Two)
    }

    /// The cgroup2 hierarchy.
    pub fn unified(&self) -> Option<&Hierarchy> {
        self.all.iter().find(|h| h.version == Version::Two)
    }

    /// The v1 hierarchy of a controller.
    pub fn v1(&self, controller: &str) -> Option<&Hierarchy> {
        self.all.iter().find(|h| h.version == Version::One && h.has(controller))
    }

    /// Where a controller lives, whichever the version.
    pub fn of(&self, controller: &str) -> Option<&Hierarchy> {
        self.v1(controller)
            .or_else(|| self.all.iter().find(|h| h.version == Version::Two && h.has(controller)))
    }
}

fn v1(mount: &Path, options: &str) -> Hierarchy {
    const GENERIC: [&str; 6] = ["rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode"];
    let controllers = options.split(',').filter(|o| !GENERIC.contains(o) && !o.starts_with("release_agent="));
    Hierarchy {
        version: Version::One,
        mount: mount.to_owned(),
        controllers: controllers.map(str::to_owned).collect(),
        hybrid: false,
    }
}

fn v2(mount: &Path) -> Hierarchy {
    // A cgroup2 that cannot be read has no controllers for us.
    let controllers = std::fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
    Hierarchy {
        version: Version::Two,
        mount: mount.to_owned(),
        controllers: controllers.split_whitespace().map(str::to_owned).collect(),
        hybrid: false,
    }
}
