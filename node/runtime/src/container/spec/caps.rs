//! Capability sets: the default list, what CRI adds and drops, `ALL`, privileged.

use std::collections::HashSet;

use oci_spec::runtime::{Capability, LinuxCapabilities};
use podwire_wire::cri;

use super::SpecError;

/// What an unprivileged container may have unless told otherwise.
const DEFAULT: [Capability; 14] = [
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fsetid,
    Capability::Fowner,
    Capability::Mknod,
    Capability::NetRaw,
    Capability::Setgid,
    Capability::Setuid,
    Capability::Setfcap,
    Capability::Setpcap,
    Capability::NetBindService,
    Capability::SysChroot,
    Capability::Kill,
    Capability::AuditWrite,
];

/// Every capability the kernel knows, in the order of its bits.
const ALL: [Capability; 41] = [
    Capability::Chown,
    Capability::DacOverride,
    Capability::DacReadSearch,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::Setgid,
    Capability::Setuid,
    Capability::Setpcap,
    Capability::LinuxImmutable,
    Capability::NetBindService,
    Capability::NetBroadcast,
    Capability::NetAdmin,
    Capability::NetRaw,
    Capability::IpcLock,
    Capability::IpcOwner,
    Capability::SysModule,
    Capability::SysRawio,
    Capability::SysChroot,
    Capability::SysPtrace,
    Capability::SysPacct,
    Capability::SysAdmin,
    Capability::SysBoot,
    Capability::SysNice,
    Capability::SysResource,
    Capability::SysTime,
    Capability::SysTtyConfig,
    Capability::Mknod,
    Capability::Lease,
    Capability::AuditWrite,
    Capability::AuditControl,
    Capability::Setfcap,
    Capability::MacOverride,
    Capability::MacAdmin,
    Capability::Syslog,
    Capability::WakeAlarm,
    Capability::BlockSuspend,
    Capability::AuditRead,
    Capability::Perfmon,
    Capability::Bpf,
    Capability::CheckpointRestore,
];

/// The capabilities whose bits are set in a kernel mask.
pub(crate) fn from_mask(mask: u64) -> HashSet<Capability> {
    ALL.into_iter().enumerate().filter(|(bit, _)| mask & (1 << bit) != 0).map(|(_, known)| known).collect()
}

fn parse(name: &str) -> Result<Capability, SpecError> {
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
    ALL.into_iter()
        .find(|known| {
            let text = known.to_string();
            text.strip_prefix("CAP_").unwrap_or(&text) == bare
        })
        .ok_or_else(|| SpecError::UnknownCapability { name: name.to_owned() })
}

fn is_all(name: &str) -> bool {
    name.eq_ignore_ascii_case("all") || name.eq_ignore_ascii_case("cap_all")
}

/// The bounding set a security context asks for, as far as this process may give it.
pub(crate) fn bounding(
    security: &cri::LinuxContainerSecurityContext,
    available: &HashSet<Capability>,
) -> Result<HashSet<Capability>, SpecError> {
    let mut set = if security.privileged { HashSet::from(ALL) } else { resolved(security)? };
    set.retain(|known| available.contains(known));
    Ok(set)
}

fn resolved(security: &cri::LinuxContainerSecurityContext) -> Result<HashSet<Capability>, SpecError> {
    let Some(requested) = &security.capabilities else { return Ok(HashSet::from(DEFAULT)) };
    let mut set = HashSet::from(DEFAULT);
    if requested.add_capabilities.iter().any(|name| is_all(name)) {
        set = HashSet::from(ALL);
    }
    if requested.drop_capabilities.iter().any(|name| is_all(name)) {
        set.clear();
    }
    for name in requested.add_capabilities.iter().filter(|name| !is_all(name)) {
        set.insert(parse(name)?);
    }
    for name in requested.drop_capabilities.iter().filter(|name| !is_all(name)) {
        set.remove(&parse(name)?);
    }
    for name in &requested.add_ambient_capabilities {
        set.insert(parse(name)?);
    }
    Ok(set)
}

/// All five sets. Inheritable holds the ambient ones only: nothing else may pass through an exec.
pub(crate) fn sets(
    security: &cri::LinuxContainerSecurityContext,
    available: &HashSet<Capability>,
) -> Result<LinuxCapabilities, SpecError> {
    let bounding = bounding(security, available)?;
    let mut ambient = security
        .capabilities
        .iter()
        .flat_map(|requested| &requested.add_ambient_capabilities)
        .map(|name| parse(name))
        .collect::<Result<HashSet<_>, _>>()?;
    ambient.retain(|known| bounding.contains(known));
    let mut sets = LinuxCapabilities::default();
    sets.set_effective(Some(bounding.clone()));
    sets.set_permitted(Some(bounding.clone()));
    sets.set_bounding(Some(bounding));
    sets.set_inheritable(Some(ambient.clone()));
    sets.set_ambient(Some(ambient));
    Ok(sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(add: &[&str], drop: &[&str]) -> cri::LinuxContainerSecurityContext {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let capabilities = Some(cri::Capability {
            add_capabilities: own(add),
            drop_capabilities: own(drop),
            add_ambient_capabilities: vec![],
        });
        cri::LinuxContainerSecurityContext { capabilities, ..Default::default() }
    }

    #[test]
    fn adds_and_drops_change_the_default_list() {
        let set = resolved(&requested(&["NET_ADMIN"], &["CHOWN"])).unwrap();
        assert!(set.contains(&Capability::NetAdmin) && !set.contains(&Capability::Chown));
        assert_eq!(set.len(), DEFAULT.len());
    }

    #[test]
    fn all_is_taken_before_single_names() {
        assert_eq!(resolved(&requested(&["ALL"], &["NET_RAW"])).unwrap().len(), ALL.len() - 1);
        assert_eq!(resolved(&requested(&["CAP_KILL"], &["ALL"])).unwrap(), HashSet::from([Capability::Kill]));
        assert!(resolved(&requested(&["ALL"], &["ALL"])).unwrap().is_empty());
    }

    #[test]
    fn nothing_is_given_that_this_process_lacks() {
        let mask = (1 << 5) | (1 << 24);
        assert_eq!(from_mask(mask), HashSet::from([Capability::Kill, Capability::SysResource]));
        let privileged = cri::LinuxContainerSecurityContext { privileged: true, ..Default::default() };
        assert_eq!(bounding(&privileged, &from_mask(mask)).unwrap().len(), 2);
    }

    #[test]
    fn every_kernel_name_is_understood() {
        for known in ALL {
            assert_eq!(parse(&known.to_string()).unwrap(), known);
        }
        assert!(parse("CAP_NOTHING").is_err());
    }
}
