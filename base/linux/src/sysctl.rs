//! Reads and writes of /proc/sys.
//!
//! Keys are paths below `/proc/sys` (`net/ipv4/ip_forward`). What is under `net/` belongs to the calling thread's network
//! namespace.

use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// Why a setting could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The key leads out of /proc/sys.
    #[error("sysctl key {key:?} is not a plain path")]
    BadKey {
        /// The key.
        key: String,
    },
    /// The kernel refused.
    #[error("{attempt} sysctl {key}")]
    Refused {
        /// Read or write.
        attempt: &'static str,
        /// The key.
        key: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Whether the kernel has no such setting.
    pub fn is_absent(&self) -> bool {
        matches!(self, Error::Refused { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Namespaces that have settings of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// System V IPC and message queues.
    Ipc,
    /// Network.
    Net,
}

/// The one spelling of a setting's name, with dots: `net/ipv4/conf/eth0.1/x` is `net.ipv4.conf.eth0/1.x`.
///
/// Whichever separator comes first separates; the other one is a letter. As Kubernetes does:
/// <https://github.com/kubernetes/component-helpers/blob/v0.36.0/node/util/sysctl/sysctl.go>.
pub fn dotted(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(first) if name.as_bytes()[first] == b'/' => swapped(name),
        _ => name.to_owned(),
    }
}

fn swapped(name: &str) -> String {
    let swap = |letter| match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    name.chars().map(swap).collect()
}

/// The namespace a setting belongs to, and its key below `/proc/sys`; `None` for what is the whole machine's.
pub fn namespaced(name: &str) -> Option<(Namespace, String)> {
    let dotted = dotted(name);
    let kind = match dotted.as_str() {
        "kernel.sem"
        | "kernel.shmall"
        | "kernel.shmmax"
        | "kernel.shmmni"
        | "kernel.shm_rmid_forced"
        | "kernel.msgmax"
        | "kernel.msgmnb"
        | "kernel.msgmni" => Namespace::Ipc,
        name if name.starts_with("fs.mqueue.") => Namespace::Ipc,
        name if name.starts_with("net.") => Namespace::Net,
        _ => return None,
    };
    let key = swapped(&dotted);
    // Neither up nor around: the beginning of the key must say where it is.
    let plain = key.split('/').all(|part| !matches!(part, "" | "." | "..")) && !key.contains('\0');
    plain.then_some((kind, key))
}

fn path_of(key: &str) -> Result<PathBuf, Error> {
    let plain =
        !key.is_empty() && Path::new(key).components().all(|part| matches!(part, Component::Normal(_)));
    if plain { Ok(Path::new("/proc/sys").join(key)) } else { Err(Error::BadKey { key: key.to_owned() }) }
}

/// The value of a setting, trimmed.
pub fn read(key: &str) -> Result<String, Error> {
    match read_value(&path_of(key)?) {
        Ok(value) => Ok(value.trim().to_owned()),
        Err(source) => Err(Error::Refused { attempt: "read", key: key.to_owned(), source }),
    }
}

/// The kernel tells the whole of a value in one read.
fn read_value(path: &Path) -> io::Result<String> {
    let mut bytes = [0; 4096];
    let len = std::fs::File::open(path)?.read(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

/// Sets a setting.
pub fn write(key: &str, value: &str) -> Result<(), Error> {
    std::fs::write(path_of(key)?, value).map_err(|source| Error::Refused {
        attempt: "write",
        key: key.to_owned(),
        source,
    })
}

/// Sets a setting unless it has the value already; tells whether it was written.
pub fn ensure(key: &str, value: &str) -> Result<bool, Error> {
    if read(key)? == value {
        return Ok(false);
    }
    write(key, value).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_cannot_leave_proc_sys() {
        for key in ["", "/etc/passwd", "../etc/passwd", "net/../../x"] {
            assert!(matches!(read(key), Err(Error::BadKey { .. })), "{key}");
        }
    }

    #[test]
    fn only_settings_of_a_namespace_are_said_to_be_one() {
        for (name, expected) in [
            ("kernel.shm_rmid_forced", Some((Namespace::Ipc, "kernel/shm_rmid_forced"))),
            ("kernel/msgmax", Some((Namespace::Ipc, "kernel/msgmax"))),
            ("fs.mqueue.msg_max", Some((Namespace::Ipc, "fs/mqueue/msg_max"))),
            ("net/ipv4/conf/eth0.1/x", Some((Namespace::Net, "net/ipv4/conf/eth0.1/x"))),
            ("net.ipv4.conf.eth0/1.x", Some((Namespace::Net, "net/ipv4/conf/eth0.1/x"))),
            ("kernel.core_pattern", None),
            ("kernel/core_pattern", None),
            ("kernel.shmmax/../core_pattern", None),
            ("kernel.hostname", None),
            ("vm.swappiness", None),
            ("fs.file-max", None),
            ("net", None),
            ("net.", None),
            ("network.x", None),
            ("net/../kernel/core_pattern", None),
            ("net/./../kernel/core_pattern", None),
            ("net.//.kernel.core_pattern", None),
            ("/net/ipv4/x", None),
            (".net.x", None),
            ("", None),
        ] {
            let expected = expected.map(|(kind, key)| (kind, key.to_owned()));
            assert_eq!(namespaced(name), expected, "{name}");
        }
        assert_eq!(dotted("net/ipv4/conf/eth0.1/x"), "net.ipv4.conf.eth0/1.x");
        assert_eq!(dotted("net.ipv4.conf.eth0/1.x"), "net.ipv4.conf.eth0/1.x");
    }

    #[test]
    fn a_setting_is_written_once() {
        let fresh = crate::netns::create().expect("namespace");
        fresh
            .run(|| {
                let key = "net/ipv4/ip_forward";
                let before = read(key).expect("read");
                let other = if before == "1" { "0" } else { "1" };
                assert!(ensure(key, other).expect("write"));
                assert!(!ensure(key, other).expect("same"));
                assert_eq!(read(key).expect("read"), other);
                assert!(read("net/ipv4/no_such_key").is_err_and(|error| error.is_absent()));
            })
            .expect("inside");
    }
}
