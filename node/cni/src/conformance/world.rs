//! What a check works with: a folder of its own, pods, and calls of plugins.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use podwire_linux::netns::{self, Netns};
use podwire_linux::rtnl::{Link, LinkRef, Socket};
use serde_json::{Value, json};

/// A pod: a namespace.
pub(super) struct Pod {
    pub(super) id: String,
    netns: Netns,
}

impl Pod {
    pub(super) fn new(id: &str) -> Result<Pod, String> {
        let netns = netns::create().map_err(|error| error.to_string())?;
        Ok(Pod { id: id.to_owned(), netns })
    }

    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.netns.as_fd().as_raw_fd())
    }

    /// Runs inside the pod with a socket.
    pub(super) fn inside<T: Send>(&self, work: impl FnOnce(&mut Socket) -> T + Send) -> Result<T, String> {
        let done = self.netns.run(|| Socket::route().map(|mut socket| work(&mut socket)));
        done.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    pub(super) fn link(&self, name: &str) -> Result<Option<Link>, String> {
        self.inside(|socket| socket.link(LinkRef::Name(name)))?.map_err(|error| error.to_string())
    }
}

/// What a plugin answered.
pub(super) struct Answer {
    pub(super) ok: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Answer {
    /// The answer as JSON.
    pub(super) fn value(&self) -> Result<Value, String> {
        serde_json::from_str(&self.stdout)
            .map_err(|error| format!("standard output is no JSON ({error}): {:?}", self.stdout))
    }

    /// Success, or why not.
    pub(super) fn success(self, what: &str) -> Result<Answer, String> {
        if self.ok {
            Ok(self)
        } else {
            Err(format!("{what} failed: {} {}", self.stdout.trim(), self.stderr.trim()))
        }
    }

    /// The code and words of a failure.
    pub(super) fn failure(&self, what: &str) -> Result<(u64, String), String> {
        if self.ok {
            return Err(format!("{what} succeeded"));
        }
        let value = self.value()?;
        let code = value["code"].as_u64().ok_or_else(|| format!("{what}: an error without code: {value}"))?;
        Ok((code, value["msg"].as_str().unwrap_or_default().to_owned()))
    }

    /// A failure with this code.
    pub(super) fn fails_with(&self, what: &str, wanted: u64) -> Result<String, String> {
        let (code, msg) = self.failure(what)?;
        if code == wanted { Ok(msg) } else { Err(format!("{what}: code {code} instead of {wanted}: {msg}")) }
    }
}

/// The world of one check.
pub(super) struct World {
    bin: PathBuf,
    dir: PathBuf,
}

impl World {
    pub(super) fn new(bin_dir: &Path, number: u32) -> Result<World, String> {
        // Two runs of one process must not share a folder, nor may somebody else have laid one ready.
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let name = format!("cni-conformance-{}-{run}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
        made.map_err(|error| format!("{}: {error}", dir.display()))?;
        let bin = std::path::absolute(bin_dir).map_err(|error| error.to_string())?;
        Ok(World { bin, dir })
    }

    pub(super) fn remove(&self) {
        // Ignored: what is left is a folder of a few small files in the temporary folder.
        std::fs::remove_dir_all(&self.dir).ok();
    }

    /// A plugin with exactly this environment.
    pub(super) fn raw(&self, plugin: &str, env: &[(&str, &str)], stdin: &str) -> Result<Answer, String> {
        let mut command = Command::new(self.bin.join(plugin));
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").envs(env.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{plugin}: {error}"))?;
        if let Some(mut pipe) = child.stdin.take() {
            // Ignored: a plugin may answer without reading.
            pipe.write_all(stdin.as_bytes()).ok();
        }
        let output = child.wait_with_output().map_err(|error| format!("{plugin}: {error}"))?;
        Ok(Answer {
            ok: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// A plugin for a pod; `netns` may differ from the pod's.
    pub(super) fn call_in(&self, verb: &str, id: &str, netns: &str, conf: &Value) -> Result<Answer, String> {
        let plugin = conf["type"].as_str().unwrap_or_default();
        let path = self.bin.display().to_string();
        let mut env =
            vec![("CNI_COMMAND", verb), ("CNI_CONTAINERID", id), ("CNI_IFNAME", "eth0"), ("CNI_PATH", &path)];
        if !netns.is_empty() {
            env.push(("CNI_NETNS", netns));
        }
        self.raw(plugin, &env, &conf.to_string())
    }

    pub(super) fn call(&self, verb: &str, pod: &Pod, conf: &Value) -> Result<Answer, String> {
        self.call_in(verb, &pod.id, &pod.path(), conf)
    }

    /// ADD that must succeed; its result.
    pub(super) fn add(&self, pod: &Pod, conf: &Value) -> Result<Value, String> {
        self.call("ADD", pod, conf)?.success("ADD")?.value()
    }

    /// A bridge network with masquerading and two families.
    pub(super) fn bridge(&self) -> Value {
        json!({
            "cniVersion": "1.1.0", "name": "conf", "type": "bridge", "bridge": "conf0", "isGateway": true,
            "ipMasq": true, "ipMasqBackend": "nftables",
            "ipam": {
                "type": "host-local", "dataDir": self.dir.join("ipam"),
                "ranges": [[{"subnet": "10.99.0.0/24"}], [{"subnet": "fd99::/64"}]],
                "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
            },
        })
    }

    /// The same without a bridge: addresses only.
    pub(super) fn host_local(&self, version: &str) -> Value {
        json!({
            "cniVersion": version, "name": "conf", "type": "host-local",
            "ipam": {"type": "host-local", "dataDir": self.dir.join("ipam"), "subnet": "10.99.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
        })
    }

    /// The addresses reserved.
    pub(super) fn reserved(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.dir.join("ipam/conf")) else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.parse::<std::net::IpAddr>().is_ok()).collect()
    }

    /// Forgets every reservation, as a careless administrator would.
    pub(super) fn lose_reservations(&self) -> Result<(), String> {
        for name in self.reserved() {
            std::fs::remove_file(self.dir.join("ipam/conf").join(name)).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Names of the host's links.
    pub(super) fn links(&self) -> Result<Vec<String>, String> {
        let links =
            Socket::route().and_then(|mut socket| socket.links()).map_err(|error| error.to_string())?;
        Ok(links.into_iter().map(|link| link.name).collect())
    }

    /// How many masquerade rules there are.
    pub(super) fn masquerade_rules(&self) -> Result<usize, String> {
        use podwire_linux::nft::{Family, Table, netfilter};
        let table = Table { family: Family::Inet, name: crate::plugins::masquerade::TABLE };
        let rules = netfilter()
            .and_then(|mut socket| socket.nft_rules(table, None))
            .map_err(|error| error.to_string())?;
        Ok(rules.iter().filter(|rule| rule.comment.is_some()).count())
    }
}

/// With another value of one field.
pub(super) fn with(conf: &Value, key: &str, value: Value) -> Value {
    let mut conf = conf.clone();
    conf[key] = value;
    conf
}

/// Holds, or says why not.
pub(super) fn holds(condition: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(why()) }
}
