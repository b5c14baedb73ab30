//! What the runtime must ask the node: its features, devices, the sources of mounts, time and fresh names.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use podwire_wire::cri;

use crate::container::spec::{
    Host, caps,
    mounts::{Resolved, ResolvedDevice},
};

/// Bit of CAP_SYS_RESOURCE in the kernel's capability masks.
const CAP_SYS_RESOURCE: u64 = 1 << 24;

/// Nanoseconds since 1970, CRI's clock.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// A fresh id: 32 random bytes in hex, as every CRI runtime names its things.
pub(crate) fn fresh_id() -> String {
    let mut bytes = [0_u8; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        // The pool is ready long before any container runtime starts; only signals interrupt.
        if let Ok(count) =
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
        {
            filled += count;
        }
    }
    bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        text
    })
}

/// Looks at the node once.
pub(crate) fn detect() -> Host {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
    };
    let effective = mask("CapEff:");
    let own = fs::read_to_string("/proc/self/oom_score_adj").ok().and_then(|text| text.trim().parse().ok());
    Host {
        cgroup_v2: Path::new("/sys/fs/cgroup/cgroup.controllers").exists(),
        // Without the capability a score can only rise above one's own.
        oom_score_floor: if effective & CAP_SYS_RESOURCE != 0 { -1000 } else { own.unwrap_or(0) },
        user_namespaces: podwire_linux::kernel::version() >= podwire_linux::kernel::MAPPED_LAYERS,
        selinux: Path::new("/sys/fs/selinux/enforce").exists(),
        capabilities: caps::from_mask(mask("CapBnd:") & mask("CapPrm:")),
    }
}

/// The device nodes behind one of CRI's devices; a folder gives all nodes below it.
pub(crate) fn devices(requested: &cri::Device) -> io::Result<Vec<ResolvedDevice>> {
    let source = fs::canonicalize(&requested.host_path)?;
    let target = PathBuf::from(if requested.container_path.is_empty() {
        &requested.host_path
    } else {
        &requested.container_path
    });
    let access = if requested.permissions.is_empty() { "rwm" } else { &requested.permissions };
    let mut list = Vec::new();
    collect(&source, &target, access, &mut list)?;
    if list.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is not a device", requested.host_path),
        ));
    }
    Ok(list)
}

fn collect(source: &Path, target: &Path, access: &str, list: &mut Vec<ResolvedDevice>) -> io::Result<()> {
    let entry = fs::metadata(source)?;
    if entry.is_dir() {
        for child in fs::read_dir(source)? {
            let child = child?;
            let kind = child.file_type()?;
            if kind.is_dir() || kind.is_char_device() || kind.is_block_device() {
                collect(&child.path(), &target.join(child.file_name()), access, list)?;
            }
        }
    } else if let Some(device) = device(&entry, target, access) {
        list.push(device);
    }
    Ok(())
}

fn device(entry: &fs::Metadata, path: &Path, access: &str) -> Option<ResolvedDevice> {
    let kind = entry.file_type();
    (kind.is_char_device() || kind.is_block_device()).then(|| ResolvedDevice {
        path: path.to_owned(),
        block: kind.is_block_device(),
        major: rustix::fs::major(entry.rdev()),
        minor: rustix::fs::minor(entry.rdev()),
        mode: entry.mode() & 0o7777,
        uid: entry.uid(),
        gid: entry.gid(),
        access: access.to_owned(),
    })
}

/// Every device of the node a privileged container sees: all but terminals and what a container has of its own.
pub(crate) fn all_devices() -> io::Result<Vec<ResolvedDevice>> {
    const OWN: [&str; 12] = [
        "pts",
        "shm",
        "fd",
        "mqueue",
        ".lxc",
        ".lxd-mounts",
        ".udev",
        "console",
        "ptmx",
        "stdin",
        "stdout",
        "stderr",
    ];
    const STANDARD: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
    let mut list = Vec::new();
    for entry in fs::read_dir("/dev")? {
        let entry = entry?;
        let name = entry.file_name();
        let known = |names: &[&str]| names.iter().any(|own| name.as_encoded_bytes() == own.as_bytes());
        if known(&OWN) || known(&STANDARD) || entry.file_type()?.is_symlink() {
            continue;
        }
        if let Err(error) = collect(&entry.path(), &entry.path(), "rwm", &mut list) {
            // Ignored: devices come and go; one that vanished is not there to be used.
            tracing::debug!(path = ?entry.path(), error = &error as &dyn std::error::Error, "device skipped");
        }
    }
    Ok(list)
}

/// Finds the source of one of CRI's mounts; a missing one is made as a folder, as Kubernetes expects.
pub(crate) fn mount_source(requested: &cri::Mount) -> io::Result<Resolved> {
    let path = Path::new(&requested.host_path);
    let source = match fs::canonicalize(path) {
        Ok(source) => source,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path)?;
            fs::canonicalize(path)?
        }
        Err(error) => return Err(error),
    };
    Ok(Resolved { requested: requested.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_long_hex_and_differ() {
        let (one, two) = (fresh_id(), fresh_id());
        assert_eq!(one.len(), 64);
        assert!(one.chars().all(|c| c.is_ascii_hexdigit()) && one != two);
    }

    #[test]
    fn a_device_keeps_its_numbers_under_another_name() {
        let requested = cri::Device {
            container_path: "/dev/nothing".into(),
            host_path: "/dev/null".into(),
            permissions: "r".into(),
        };
        let found = devices(&requested).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].major, found[0].minor, found[0].block), (1, 3, false));
        assert_eq!((found[0].path.to_str(), found[0].access.as_str()), (Some("/dev/nothing"), "r"));
        let file = cri::Device { host_path: "/proc/self/status".into(), ..Default::default() };
        assert!(devices(&file).is_err());
    }

    #[test]
    fn a_missing_mount_source_becomes_a_folder_and_links_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        fs::create_dir(&real).unwrap();
        let requested =
            |path: &Path| cri::Mount { host_path: path.to_string_lossy().into_owned(), ..Default::default() };
        assert_eq!(mount_source(&requested(&link)).unwrap().source, fs::canonicalize(&real).unwrap());
        let fresh = dir.path().join("a/b");
        assert!(mount_source(&requested(&fresh)).unwrap().source.is_dir());
    }
}
