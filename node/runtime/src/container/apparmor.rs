//! Which AppArmor profile a container runs under, and the default one.
//!
//! As containerd: where the kernel enforces AppArmor, who names no profile gets the default one; a named profile must be
//! there; nobody may ask for one where the kernel has none. One thing is said more clearly: where the default profile
//! cannot be loaded (no `apparmor_parser` on the node), who asked for it is refused, and who asked for nothing runs
//! without, which is logged once and told by `podwire check`.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use podwire_linux::apparmor::{AppArmor, LoadError, name_of};
use podwire_wire::cri::{self, security_profile::ProfileType};

use crate::error::{OpError, chain};

/// The name of the default profile.
pub const DEFAULT: &str = "podwire-default";

/// What containers may do under the default profile: everything but to write to the kernel's own settings, to mount, and
/// to signal or trace anybody outside. Includes nothing, as a node need not have any files of AppArmor's.
fn default_profile(daemon: &str) -> String {
    // The daemon signals containers; confined itself, it is somebody outside.
    let daemon = match daemon {
        "" | "unconfined" => String::new(),
        name => format!("  signal (receive) peer=\"{}\",\n", name.replace(['"', '\\', '\n'], "?")),
    };
    format!(
        r#"profile {DEFAULT} flags=(attach_disconnected,mediate_deleted) {{
  file,
  network,
  capability,
  umount,

  signal (receive) peer=unconfined,
  signal (receive) peer=runc,
  signal (receive) peer=crun,
{daemon}  signal (send, receive) peer={DEFAULT},
  ptrace (trace, read, tracedby, readby) peer={DEFAULT},

  deny mount,

  # Of /proc only a process's own folder is written to, and shared memory's settings.
  deny /proc/* w,
  deny /proc/[^0-9s]*/** w,
  deny /proc/s[^y]*/** w,
  deny /proc/sy[^s]*/** w,
  deny /proc/sys[^/]*/** w,
  deny /proc/sys/[^k]** w,
  deny /proc/sys/k[^e]** w,
  deny /proc/sys/kernel/[^s]** w,
  deny /proc/sys/kernel/s[^h]** w,
  deny /proc/sys/kernel/sh[^m]** w,
  deny /proc/kcore rwklx,
  deny /proc/sysrq-trigger rwklx,

  # Of /sys only control groups are.
  deny /sys/[^f]*/** wklx,
  deny /sys/f[^s]*/** wklx,
  deny /sys/fs/[^c]*/** wklx,
  deny /sys/fs/c[^g]*/** wklx,
  deny /sys/fs/cg[^r]*/** wklx,
  deny /sys/firmware/** rwklx,
  deny /sys/devices/virtual/powercap/** rwklx,
  deny /sys/kernel/security/** rwklx,
}}
"#
    )
}

/// What a container asks for.
#[derive(Debug, PartialEq, Eq)]
enum Profile {
    Nothing,
    /// The default profile, by name or by saying nothing.
    Default {
        asked: bool,
    },
    Named(String),
}

/// Reads what a container asks for on a kernel that enforces AppArmor or does not.
fn profile_of(security: &cri::LinuxContainerSecurityContext, enforces: bool) -> Result<Profile, OpError> {
    let profile = match (&security.apparmor, security.apparmor_profile.as_str()) {
        (Some(profile), _) => Some(profile.clone()),
        (None, "") => None,
        (None, "runtime/default") => Some(cri::SecurityProfile::default()),
        (None, "unconfined") => Some(profile(ProfileType::Unconfined, "")),
        (None, old) => match old.strip_prefix("localhost/") {
            Some(name) => Some(profile(ProfileType::Localhost, name)),
            None => return Err(OpError::invalid(format!("invalid apparmor profile {old:?}"))),
        },
    };
    let kind = profile.as_ref().map(|profile| ProfileType::try_from(profile.profile_type));
    match (kind, profile) {
        (Some(Err(_)), _) => Err(OpError::invalid("apparmor unknown ProfileType")),
        (None, _) if enforces && !security.privileged => Ok(Profile::Default { asked: false }),
        (None, _) | (Some(Ok(ProfileType::Unconfined)), _) => Ok(Profile::Nothing),
        _ if !enforces => Err(OpError::invalid("apparmor is not supported")),
        (Some(Ok(ProfileType::Localhost)), Some(profile)) => {
            let name = profile.localhost_ref.strip_prefix("localhost/").unwrap_or(&profile.localhost_ref);
            // The kernel reads more than a name: `//&` stacks profiles, `:` leaves the namespace.
            if name.is_empty() || name.contains(['\0', '\n']) || name.contains("//&") || name.starts_with(':')
            {
                return Err(OpError::invalid(format!("invalid apparmor profile {name:?}")));
            }
            Ok(Profile::Named(name.to_owned()))
        }
        (_, Some(profile)) if !profile.localhost_ref.is_empty() => Err(OpError::invalid(
            "apparmor config invalid LocalhostRef must only be set if ProfileType is Localhost",
        )),
        _ if security.privileged => Ok(Profile::Nothing),
        _ => Ok(Profile::Default { asked: true }),
    }
}

fn profile(kind: ProfileType, name: &str) -> cri::SecurityProfile {
    cri::SecurityProfile { profile_type: kind as i32, localhost_ref: name.to_owned() }
}

/// The node's AppArmor, looked at once.
#[derive(Debug, Default)]
pub(crate) struct Confinement {
    node: AppArmor,
    enforces: OnceLock<bool>,
    /// The default profile of this version is in the kernel.
    loaded: OnceLock<()>,
    told: AtomicBool,
}

impl Confinement {
    /// The profile a container is to run under. Blocks.
    pub(crate) fn profile(
        &self,
        security: &cri::LinuxContainerSecurityContext,
    ) -> Result<Option<String>, OpError> {
        let enforces = *self.enforces.get_or_init(|| self.node.enforces());
        match profile_of(security, enforces)? {
            Profile::Nothing => Ok(None),
            Profile::Named(name) => {
                let there = self.node.has(&name).map_err(OpError::failed("read the apparmor profiles"))?;
                if there {
                    Ok(Some(name))
                } else {
                    Err(OpError::invalid(format!("apparmor profile not found {name}")))
                }
            }
            Profile::Default { asked } => match self.load_default() {
                Ok(()) => Ok(Some(DEFAULT.to_owned())),
                Err(error) if asked => Err(OpError::Precondition {
                    why: format!("cannot load the default apparmor profile: {}", chain(&error)),
                }),
                Err(error) => {
                    if !self.told.swap(true, Ordering::Relaxed) {
                        tracing::error!(
                            error = chain(&error),
                            "default AppArmor profile not loaded; containers that ask for none run without one"
                        );
                    }
                    Ok(None)
                }
            },
        }
    }

    /// Once per daemon, so that a new version's profile replaces an old one's; without a compiler the old one serves.
    fn load_default(&self) -> Result<(), LoadError> {
        if self.loaded.get().is_some() {
            return Ok(());
        }
        let own = std::fs::read_to_string("/proc/self/attr/current").unwrap_or_default();
        match self.node.load(&default_profile(name_of(&own))) {
            Err(LoadError::NoParser) if self.node.has(DEFAULT).unwrap_or(false) => {}
            other => other?,
        }
        // Ignored: another container's creation was quicker.
        self.loaded.set(()).ok();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};

    use super::*;

    fn asking(profile: Option<cri::SecurityProfile>) -> cri::LinuxContainerSecurityContext {
        cri::LinuxContainerSecurityContext { apparmor: profile, ..Default::default() }
    }

    fn old(text: &str) -> cri::LinuxContainerSecurityContext {
        cri::LinuxContainerSecurityContext { apparmor_profile: text.into(), ..Default::default() }
    }

    fn privileged(security: cri::LinuxContainerSecurityContext) -> cri::LinuxContainerSecurityContext {
        cri::LinuxContainerSecurityContext { privileged: true, ..security }
    }

    #[test]
    fn profiles_are_read_as_containerd_reads_them() {
        use ProfileType::{Localhost, RuntimeDefault, Unconfined};
        let ask = |kind, name| asking(Some(profile(kind, name)));
        let default = |asked| Some(Profile::Default { asked });
        let named = || Some(Profile::Named("mine".into()));
        let nothing = || Some(Profile::Nothing);
        for (what, security, on, off) in [
            ("nothing", asking(None), default(false), nothing()),
            ("nothing, privileged", privileged(asking(None)), nothing(), nothing()),
            ("default", ask(RuntimeDefault, ""), default(true), None),
            ("default, privileged", privileged(ask(RuntimeDefault, "")), nothing(), None),
            ("default with a name", ask(RuntimeDefault, "mine"), None, None),
            ("unconfined", ask(Unconfined, ""), nothing(), nothing()),
            ("named", ask(Localhost, "mine"), named(), None),
            ("named, privileged", privileged(ask(Localhost, "localhost/mine")), named(), None),
            ("no name", ask(Localhost, ""), None, None),
            ("a stack", ask(Localhost, "mine//&unconfined"), None, None),
            ("another namespace", ask(Localhost, ":root:unconfined"), None, None),
            ("two lines", ask(Localhost, "mine\nexec unconfined"), None, None),
            ("old default", old("runtime/default"), default(true), None),
            ("old unconfined", old("unconfined"), nothing(), nothing()),
            ("old named", old("localhost/mine"), named(), None),
            ("old nonsense", old("mine"), None, None),
        ] {
            assert_eq!(profile_of(&security, true).ok(), on, "{what}, enforced");
            assert_eq!(profile_of(&security, false).ok(), off, "{what}, not enforced");
        }
    }

    fn node(dir: &Path) -> Confinement {
        let node = AppArmor {
            switch: dir.join("enabled"),
            profiles: dir.join("profiles"),
            parsers: vec![dir.join("parser")],
        };
        fs::write(&node.switch, "Y\n").unwrap();
        fs::write(&node.profiles, "mine (enforce)\n").unwrap();
        Confinement { node, ..Default::default() }
    }

    #[test]
    fn who_asks_for_a_profile_that_cannot_be_had_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let node = node(dir.path());
        let ask =
            |kind, name| node.profile(&asking(Some(profile(kind, name)))).map_err(|error| error.to_string());
        assert_eq!(ask(ProfileType::Localhost, "mine"), Ok(Some("mine".into())));
        assert_eq!(ask(ProfileType::Localhost, "other").unwrap_err(), "apparmor profile not found other");
        let refused = ask(ProfileType::RuntimeDefault, "").unwrap_err();
        assert!(refused.contains("no apparmor_parser"), "{refused}");
        assert_eq!(node.profile(&asking(None)).unwrap(), None, "who asks for nothing runs");
        // With a compiler both have it, and it is asked only once.
        let parser = dir.path().join("parser");
        fs::write(&parser, format!("#!/bin/sh\ncat >> {}/got\n", dir.path().display())).unwrap();
        fs::set_permissions(&parser, fs::Permissions::from_mode(0o755)).unwrap();
        for security in [asking(None), asking(Some(profile(ProfileType::RuntimeDefault, "")))] {
            assert_eq!(node.profile(&security).unwrap().as_deref(), Some(DEFAULT));
        }
        let got = fs::read_to_string(dir.path().join("got")).unwrap();
        assert_eq!(got.matches("profile podwire-default flags").count(), 1, "{got}");
    }

    #[test]
    fn a_default_profile_that_is_there_serves_without_a_compiler() {
        let dir = tempfile::tempdir().unwrap();
        let node = node(dir.path());
        fs::write(dir.path().join("profiles"), "podwire-default (enforce)\n").unwrap();
        let asked = asking(Some(profile(ProfileType::RuntimeDefault, "")));
        assert_eq!(node.profile(&asked).unwrap().as_deref(), Some(DEFAULT));
    }

    #[test]
    fn a_confined_daemon_may_signal_containers() {
        assert!(!default_profile("unconfined").contains("peer=\""));
        assert!(default_profile("my daemon").contains("signal (receive) peer=\"my daemon\",\n"));
    }
}
