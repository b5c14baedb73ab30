//! The journal, the files of an image and the files of device vendors, read with any contents, for fuzzing and for tests.

use std::{io, path::Path};

use oci_spec::runtime::Spec;
use podwire_wire::cri;

use crate::{
    container::{cdi, spec::user},
    recovery::{
        journal::{Journal, Opened},
        records::{SandboxRow, row::Kind},
    },
    sandbox::pod_files,
};

/// What a journal holds.
#[derive(Debug, PartialEq, Eq)]
pub struct Journalled {
    /// Ids of sandboxes, sorted.
    pub sandboxes: Vec<String>,
    /// Ids of containers, sorted.
    pub containers: Vec<String>,
    /// They are of another boot.
    pub stale: bool,
}

/// Opens the journal at `path` as a runtime does that starts, and notes the sandbox `more` in it, if any. Must never panic.
pub fn journal(path: &Path, boot: &str, more: Option<&str>) -> io::Result<Journalled> {
    let Opened { journal, contents, stale } = Journal::open(path, boot)?;
    journal.check();
    if let Some(id) = more {
        journal.append(Kind::Sandbox(SandboxRow { id: id.to_owned(), ..Default::default() }))?;
        journal.check();
    }
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    Ok(Journalled {
        sandboxes: sorted(contents.sandboxes.into_keys().collect()),
        containers: sorted(contents.containers.into_keys().collect()),
        stale,
    })
}

/// Puts each device of the vendors' files in `folder` into an empty spec, if it can be; the specs. Devices for which the
/// node itself would be looked at are left out. Must never panic.
pub fn cdi(folder: &Path) -> Vec<Spec> {
    let edit = |name: &String| {
        let mut spec = Spec::default();
        cdi::inject(&mut spec, &[folder.to_owned()], std::slice::from_ref(name)).is_ok().then_some(spec)
    };
    cdi::self_contained(folder).iter().filter_map(edit).collect()
}

/// User, group and all groups of a container whose image has these files. Must never panic.
pub fn identity(
    requested: &cri::LinuxContainerSecurityContext,
    image_user: &str,
    passwd: &str,
    group: &str,
) -> Option<(u32, u32, Vec<u32>)> {
    let found = user::resolve(requested, image_user, passwd, group).ok()?;
    Some((found.uid, found.gid, found.groups))
}

/// The text of a pod's resolv.conf.
pub fn resolv_conf(dns: &cri::DnsConfig) -> String {
    pod_files::resolv_conf(dns)
}
