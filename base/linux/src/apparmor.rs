//! AppArmor: whether the kernel enforces it, which profiles it has, and the one program that can give it more.
//!
//! A profile is text; the kernel takes a compiled one, and `apparmor_parser` is the only compiler.
//! <https://gitlab.com/apparmor/apparmor/-/wikis/AppArmorInterfaces>

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Where the kernel and the compiler are found.
#[derive(Debug, Clone)]
pub struct AppArmor {
    /// The module's switch: `Y` when it enforces.
    pub switch: PathBuf,
    /// The list of profiles.
    pub profiles: PathBuf,
    /// Where the compiler may be.
    pub parsers: Vec<PathBuf>,
}

impl Default for AppArmor {
    fn default() -> Self {
        AppArmor {
            switch: "/sys/module/apparmor/parameters/enabled".into(),
            profiles: "/sys/kernel/security/apparmor/profiles".into(),
            parsers: vec!["/sbin/apparmor_parser".into(), "/usr/sbin/apparmor_parser".into()],
        }
    }
}

/// Why a profile could not be given to the kernel.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Nobody can compile it.
    #[error("there is no apparmor_parser on this node")]
    NoParser,
    /// The compiler could not be run.
    #[error("run {path:?}")]
    Run {
        /// The compiler.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The compiler refused.
    #[error("apparmor_parser: {said}")]
    Refused {
        /// Its words.
        said: String,
    },
}

impl AppArmor {
    /// The kernel enforces profiles.
    pub fn enforces(&self) -> bool {
        fs::read_to_string(&self.switch).is_ok_and(|text| text.starts_with('Y'))
    }

    /// The kernel has a profile of this name.
    pub fn has(&self, name: &str) -> io::Result<bool> {
        Ok(!name.is_empty() && fs::read_to_string(&self.profiles)?.lines().any(|line| name_of(line) == name))
    }

    /// The compiler, if it is here.
    pub fn parser(&self) -> Option<&Path> {
        self.parsers.iter().map(PathBuf::as_path).find(|path| path.is_file())
    }

    /// Compiles a profile and puts it into the kernel, in the place of one with the same name.
    pub fn load(&self, profile: &str) -> Result<(), LoadError> {
        let path = self.parser().ok_or(LoadError::NoParser)?;
        let failed = |source| LoadError::Run { path: path.to_owned(), source };
        let mut child = Command::new(path)
            .args(["--replace", "--skip-cache", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(profile.as_bytes()));
        let done = child.wait_with_output().map_err(failed)?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            return Err(LoadError::Refused {
                said: if said.is_empty() { done.status.to_string() } else { said },
            });
        }
        written.map_err(failed)
    }
}

/// The profile in a line of the kernel's list, or in a process's label: `name (mode)`; names may have blanks.
pub fn name_of(line: &str) -> &str {
    let line = line.trim_end();
    line.rsplit_once(" (").map_or(line, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn host(dir: &Path) -> AppArmor {
        AppArmor {
            switch: dir.join("enabled"),
            profiles: dir.join("profiles"),
            parsers: vec![dir.join("absent"), dir.join("parser")],
        }
    }

    #[test]
    fn profiles_are_found_by_their_whole_name() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path());
        assert!(!host.enforces());
        assert!(host.has("x").is_err(), "no list is no answer");
        fs::write(&host.switch, "Y\n").unwrap();
        fs::write(&host.profiles, "podwire-default (enforce)\nwith blank (odd) (complain)\n").unwrap();
        assert!(host.enforces());
        for (name, there) in [
            ("podwire-default", true),
            ("podwire", false),
            ("", false),
            ("with blank (odd)", true),
            ("with blank", false),
            ("podwire-default (enforce)", false),
        ] {
            assert_eq!(host.has(name).unwrap(), there, "{name}");
        }
        assert_eq!(name_of("unconfined\n"), "unconfined");
    }

    #[test]
    fn the_compiler_is_given_the_profile_and_its_complaint_is_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path());
        assert!(matches!(host.load("profile x {}"), Err(LoadError::NoParser)));
        let script = format!(
            "#!/bin/sh\ncat > {0}/got; [ -e {0}/fine ] || {{ echo bad >&2; exit 1; }}\n",
            dir.path().display()
        );
        fs::write(&host.parsers[1], script).unwrap();
        fs::set_permissions(&host.parsers[1], fs::Permissions::from_mode(0o755)).unwrap();
        let refused = host.load("profile x {}").unwrap_err();
        assert_eq!(refused.to_string(), "apparmor_parser: bad");
        fs::write(dir.path().join("fine"), "").unwrap();
        host.load("profile x {}").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("got")).unwrap(), "profile x {}");
    }
}
