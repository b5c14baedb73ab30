//! `examples/ha`: three members of the real etcd, two API servers, schedulers and controllers; a member and an API server are killed, and
//! pods are still created and bound.
#![cfg(feature = "interop")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{
    eventually, isolate,
    node::{bin_dir, peer},
    upstream::{Peer, Scratch},
};
use serde_json::Value;

/// A leader that says nothing is replaced after 15 seconds, an API server taken out after as many; and a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// The example, in a folder of its own.
struct World(Scratch);

impl World {
    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn start(&self, what: &'static str, number: u8) -> Result<Peer> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../examples/ha/{what}.sh"));
        let mut command = Command::new(script);
        command.arg(number.to_string()).env("HA", self.0.path());
        command.env("ETCD", peer("etcd")?).env("PODWIRE", bin_dir().join("podwire"));
        Peer::start(what, &self.at(&format!("log-{what}{number}")), &mut command)
    }

    fn server(&self, number: u8) -> Result<Peer> {
        let log = self.at(&format!("log-apiserver{number}/apiserver.log"));
        self.start("apiserver", number)?.until("is ready", || {
            let text = fs::read_to_string(&log).map_err(|error| error.to_string())?;
            if text.contains("ready server=") { Ok(()) } else { Err(text) }
        })
    }

    /// What our client says, of one of the two servers.
    fn client(&self, server: u8, words: &[&str]) -> Result<String> {
        let mut command = Command::new(bin_dir().join("podwire"));
        command
            .args(words)
            .env_remove("KUBECONFIG")
            .env("PODWIRE_DATA_DIR", self.at(&format!("api{server}")));
        let done = command.stdin(Stdio::null()).output()?;
        let told = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{words:?}: {told}");
        Ok(String::from_utf8(done.stdout)?)
    }

    fn get(&self, server: u8, words: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.client(server, &[&["get"], words, &["-o", "json"]].concat())?)?)
    }

    fn apply(&self, server: u8, name: &str, text: &str) -> Result<()> {
        let file = self.at(name);
        fs::write(&file, text)?;
        let file = file.display().to_string();
        // Who loses its etcd in the middle is told so, and asks again.
        eventually("an object to be applied", PATIENCE, || {
            self.client(server, &["apply", "-f", &file]).map_err(|error| format!("{error:#}"))
        })?;
        Ok(())
    }

    /// A pod that the server of this number creates and a scheduler binds.
    fn bound(&self, server: u8, name: &str) -> Result<()> {
        let pod = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{tolerations: [{{operator: Exists}}], \
             containers: [{{name: c, image: none}}]}}}}"
        );
        self.apply(server, &format!("{name}.yaml"), &pod)?;
        eventually("a pod to be bound", PATIENCE, || {
            let pod = self.get(server, &["pod", name]).map_err(|error| format!("{error:#}"))?;
            if pod["spec"]["nodeName"] == "n1" { Ok(()) } else { Err(pod["status"].to_string()) }
        })
    }

    /// Which servers pods would find.
    fn listed(&self, server: u8, expected: &[&str]) -> Result<()> {
        eventually("the endpoints of the API servers", PATIENCE, || {
            let endpoints =
                self.get(server, &["endpoints", "kubernetes"]).map_err(|error| format!("{error:#}"))?;
            let addresses = endpoints["subsets"][0]["addresses"].as_array().cloned().unwrap_or_default();
            let found: Vec<&str> = addresses.iter().filter_map(|one| one["ip"].as_str()).collect();
            if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
        })
    }

    /// A namespace gets what the controllers make in each.
    fn controlled(&self, server: u8, name: &str) -> Result<()> {
        let text = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}");
        self.apply(server, &format!("{name}.yaml"), &text)?;
        eventually("the account of a namespace", PATIENCE, || {
            let account = self.get(server, &["serviceaccount", "default", "-n", name]);
            account.map(|_| ()).map_err(|error| format!("{error:#}"))
        })
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

#[test]
fn pods_are_created_and_bound_when_a_member_of_etcd_and_an_api_server_die() -> Result<()> {
    isolate()?;
    for address in ["10.88.0.1/32", "10.88.0.2/32"] {
        let added = Command::new("ip").args(["address", "add", address, "dev", "lo"]).status()?;
        ensure!(added.success(), "{address}");
    }
    let world = World(Scratch::new()?);
    let mut members: Vec<Peer> = (1..=3).map(|number| world.start("etcd", number)).collect::<Result<_>>()?;
    let first = world.server(1)?;
    copy(&world.at("api1/pki"), &world.at("api2/pki"))?;
    let _second = world.server(2)?;
    let mut deciders = Vec::new();
    for number in [1, 2] {
        deciders.push(world.start("scheduler", number)?);
        deciders.push(world.start("controllers", number)?);
    }
    world.listed(1, &["10.88.0.1", "10.88.0.2"])?;
    let room = "{cpu: '4', memory: 8Gi, pods: '110'}";
    let node = format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: n1}}, status: {{capacity: {room}, allocatable: {room}}}}}"
    );
    world.apply(1, "node.yaml", &node)?;
    world.bound(1, "before-by-the-first")?;
    world.bound(2, "before-by-the-second")?;
    world.controlled(2, "before")?;

    members.remove(0).kill9();
    world.bound(1, "after-a-member-died")?;
    first.kill9();
    world.bound(2, "after-a-server-died")?;
    world.controlled(2, "after")?;
    world.listed(2, &["10.88.0.2"])?;
    let pods = world.get(2, &["pods"])?;
    let names = pods["items"].as_array().context("no list")?.len();
    ensure!(names == 4, "{pods}");
    let service =
        "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: NodePort, ports: [{port: 80}]}}";
    world.apply(2, "service.yaml", service)
}
