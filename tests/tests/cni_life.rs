//! What the runtime does around a pod's network, as a plugin sees it: every statement of the life of a pod that is about
//! the runtime and not about a plugin.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use podwire_testkit::{Node, isolate, node::bin_dir};
use serde_json::{Value, json};

/// A plugin that writes down what it sees and then lets ours do the work.
const SPY: &str = r#"#!/bin/sh
cat > "@DIR@/$CNI_COMMAND.stdin"
inode=$(stat -Lc %i "$CNI_NETNS")
{
  echo "container $CNI_CONTAINERID"
  echo "netns $CNI_NETNS"
  echo "ifname $CNI_IFNAME"
  echo "inode $inode"
  echo "links $(nsenter --net="$CNI_NETNS" ip -o link | cut -d: -f2 | tr -d '\n')"
  echo "up $(nsenter --net="$CNI_NETNS" ip -o addr | grep -c eth0)"
  echo "processes $(for one in /proc/[0-9]*/ns/net; do readlink "$one"; done 2>/dev/null | grep -c "\[$inode\]")"
} > "@DIR@/$CNI_COMMAND.seen"
"@BIN@/podwire-cni" bridge < "@DIR@/$CNI_COMMAND.stdin"
"#;

struct Seen(String);

impl Seen {
    fn at(dir: &Path, verb: &str) -> Result<Seen> {
        let path = dir.join(format!("{verb}.seen"));
        Ok(Seen(fs::read_to_string(&path).with_context(|| format!("{verb} was not called"))?))
    }

    fn get(&self, key: &str) -> &str {
        let line = self.0.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        line.trim()
    }
}

fn stdin(dir: &Path, verb: &str) -> Result<Value> {
    Ok(serde_json::from_slice(&fs::read(dir.join(format!("{verb}.stdin")))?)?)
}

fn write_network(dir: &Path) -> Result<PathBuf> {
    let (conf_dir, plugins) = (dir.join("net.d"), dir.join("bin"));
    fs::create_dir_all(&conf_dir)?;
    fs::create_dir_all(&plugins)?;
    let script =
        SPY.replace("@DIR@", &dir.display().to_string()).replace("@BIN@", &bin_dir().display().to_string());
    fs::write(plugins.join("spy"), script)?;
    fs::set_permissions(plugins.join("spy"), fs::Permissions::from_mode(0o755))?;
    let list = |name: &str, mark: &str| {
        json!({"cniVersion": "1.0.0", "name": name, "plugins": [{
            "type": "spy", "bridge": "life0", "isDefaultGateway": true, "mark": mark,
            "ipam": {"type": "host-local", "dataDir": dir.join("ipam"), "ranges": [[{"subnet": "10.77.0.0/24"}]]},
        }]})
    };
    fs::write(conf_dir.join("10-life.conflist"), list("life", "first").to_string())?;
    fs::write(conf_dir.join("20-other.conflist"), list("other", "second").to_string())?;
    Ok(conf_dir)
}

#[test]
fn the_runtime_makes_a_namespace_attaches_it_starts_stops_detaches_and_removes_it() -> Result<()> {
    isolate()?;
    let folder = tempfile::tempdir()?;
    let dir = folder.path();
    let conf_dir = write_network(dir)?;
    let flags = [
        format!("--cni-conf-dir={}", conf_dir.display()),
        format!("--cni-bin-dir={}", dir.join("bin").display()),
    ];
    let node = Node::up(&flags.each_ref().map(String::as_str))?;
    node.apply(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: [sleep, \"600\"]\n",
    )?;
    let pod = node.pod_in_phase("web", "Running")?;
    let added = Seen::at(dir, "ADD")?;
    assert_eq!(added.get("links"), "lo", "a namespace of its own in which nothing is configured yet");
    assert_eq!(added.get("processes"), "0", "the network comes before the pod's processes");
    assert_eq!(added.get("ifname"), "eth0");
    assert!(!added.get("container").is_empty());
    let conf = stdin(dir, "ADD")?;
    assert_eq!((&conf["name"], &conf["mark"]), (&json!("life"), &json!("first")), "the first file by name");
    let address = pod["status"]["podIP"].as_str().context("no podIP")?;
    assert!(address.starts_with("10.77.0."), "the plugin's answer is the pod's address: {address}");
    let inside = node.podwire(["exec", "web", "--", "/pod-app", "cat", "/proc/net/fib_trie"])?;
    assert!(inside.contains(address), "the container runs in the namespace that was attached");

    // What became of the file since does not matter to the pod that was attached with it.
    fs::remove_file(conf_dir.join("10-life.conflist"))?;
    node.podwire(["delete", "pod", "web"])?;
    let removed = Seen::at(dir, "DEL")?;
    for key in ["container", "netns", "ifname", "inode"] {
        assert_eq!(removed.get(key), added.get(key), "DEL is called as ADD was: {key}");
    }
    assert_eq!(removed.get("processes"), "0", "the pod's processes end before its network does");
    assert_ne!(removed.get("up"), "0", "the network is there until DEL removes it");
    assert_eq!(stdin(dir, "DEL")?["mark"], "first", "the configuration that ADD had");
    node.assert_no_pod_residue()?;
    let netns = PathBuf::from(added.get("netns"));
    assert!(!netns.exists(), "the namespace is removed after DEL: {}", netns.display());
    let left = fs::read_dir(dir.join("ipam/life"))?.filter_map(Result::ok);
    let left = left.filter(|entry| entry.file_name().display().to_string().starts_with("10.")).count();
    assert_eq!(left, 0, "its address is free again");
    node.down()
}
