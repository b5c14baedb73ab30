//! A whole node for a class of rows: on a small disk of its own, with a box of tools as image, in its own network.
//!
//! Every wait here has an end, whatever the node does. `Node` of the testkit starts and ends it; this adds what rows
//! need to be brief: images, pods that run a script and end, and the proof that nothing was harmed.

use std::{
    cell::Cell,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use podwire_image::build::{ImageBuilder, LayerBuilder};
use podwire_testkit::{Node, eventually, isolate, node::bin_dir, residue::Names};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use crate::{
    http::Api,
    processes::{kill_group, kill_supervisor, peak_memory, sweep},
    row::{Outcome, World},
    small_disk::SmallDisk,
};

/// The image with a shell in it.
pub const BOX: &str = "localhost/box:latest";
/// How long a pod may take to come to anything.
pub const PATIENCE: Duration = Duration::from_secs(12);
/// The daemon may never have had more memory than this.
const MOST_MEMORY: u64 = 400 << 20;
/// Where the kernel stops a daemon that does not stop itself: this machine must survive every row.
const MEMORY_LIMIT: u64 = 3 << 30;

/// The path of pods in the default namespace.
pub const PODS: &str = "/api/v1/namespaces/default/pods";

/// A node and what rows need of it.
pub struct OnNode {
    /// The node.
    pub node: Node,
    /// Its API server.
    pub api: Api,
    /// Its names.
    pub names: Names,
    /// A folder of the host with a file `marker` in it: whoever sees it from a container has got out.
    pub host: tempfile::TempDir,
    pid: u32,
    core_pattern: String,
    next: Cell<u32>,
    disk: SmallDisk,
}

/// What became of a pod.
pub enum Fate {
    /// The API server did not take it.
    Refused(String),
    /// It was taken and its container never ran.
    Stuck(String),
    /// Its container ran and ended.
    Ended {
        /// What it printed.
        log: String,
        /// Its exit code.
        code: i64,
    },
}

impl Fate {
    /// Passes when it was refused or ran without printing `ESCAPED`.
    pub fn harmless(self) -> Outcome {
        match self {
            Fate::Refused(why) => Ok(format!("the API server refused: {why}")),
            Fate::Stuck(why) => Ok(format!("did not run: {why}")),
            Fate::Ended { log, .. } if log.contains("ESCAPED") => bail!("the container got out: {log}"),
            Fate::Ended { log, code } => {
                ensure!(log.contains("PROBED"), "the probe did not come to its end ({code}): {log}");
                Ok(format!("ran and saw nothing: {log}"))
            }
        }
    }

    /// Passes when it ran and printed `wanted`, and not `ESCAPED`.
    pub fn prints(self, wanted: &str) -> Outcome {
        match self {
            Fate::Ended { log, .. } if log.contains(wanted) && !log.contains("ESCAPED") => {
                Ok(format!("ran: {log}"))
            }
            Fate::Ended { log, code } => bail!("printed {log:?} and ended with {code}"),
            Fate::Refused(why) => bail!("the API server refused: {why}"),
            Fate::Stuck(why) => bail!("did not run: {why}"),
        }
    }

    /// Passes when it was refused, by whomever, with these words.
    pub fn refused(self, words: &str) -> Outcome {
        match self {
            Fate::Refused(why) | Fate::Stuck(why) => {
                ensure!(why.contains(words), "refused without saying {words:?}: {why}");
                Ok(format!("refused: {why}"))
            }
            Fate::Ended { log, .. } => bail!("it ran: {log}"),
        }
    }
}

/// A layer with the tools of the scripts.
pub fn tools() -> Result<LayerBuilder> {
    let busybox = fs::read("/bin/busybox").context("busybox-static is not installed; run .ci/setup")?;
    let mut layer = LayerBuilder::new().dir("bin", 0o755).file("bin/busybox", busybox, 0o755);
    for applet in [
        "sh", "true", "sleep", "cat", "echo", "id", "ls", "ln", "rm", "mv", "mkdir", "mkfifo", "mknod", "dd",
        "head", "grep", "readlink", "stat", "truncate", "timeout", "yes", "touch", "chmod", "test", "wc",
        "seq", "kill", "find", "unshare", "mount", "rmdir", "cut", "hostname", "tail", "printf", "env",
    ] {
        layer = layer.hard_link(&format!("bin/{applet}"), "bin/busybox");
    }
    Ok(layer.dir("tmp", 0o1777).dir("data", 0o755))
}

/// `/etc` as an image should have it.
pub fn etc() -> LayerBuilder {
    let passwd = "root:x:0:0::/:/bin/sh\nweb:x:33:34::/:/bin/sh\n";
    let layer = LayerBuilder::new().dir("etc", 0o755).file("etc/passwd", passwd, 0o644);
    layer.file("etc/group", "root:x:0:\nextra:x:50000:web\n", 0o644)
}

impl OnNode {
    /// A node with these flags.
    pub fn with(flags: &[&str]) -> Result<OnNode> {
        OnNode::on("768m", flags)
    }

    /// A node on a disk of this size.
    pub fn on(size: &str, flags: &[&str]) -> Result<OnNode> {
        isolate()?;
        OnNode::over(SmallDisk::new(size)?, &bin_dir(), flags)
    }

    /// A node of these binaries on a disk, in the network that the thread is in.
    pub fn over(disk: SmallDisk, binaries: &Path, flags: &[&str]) -> Result<OnNode> {
        let world = OnNode::bare(disk, binaries, flags)?;
        world.image(BOX, &ImageBuilder::new().layer(&tools()?).layer(&etc()))?;
        Ok(world)
    }

    /// The same without any image.
    pub fn bare(disk: SmallDisk, binaries: &Path, flags: &[&str]) -> Result<OnNode> {
        let node = Node::at_with(binaries, &disk.path().join("data"), flags)?;
        let pid = node.pid().context("no daemon")?;
        let limit = Some(MEMORY_LIMIT);
        prlimit(Some(as_pid(pid)?), Resource::Data, Rlimit { current: limit, maximum: limit })?;
        let host = tempfile::Builder::new().prefix("podwire-hostile-host-").tempdir()?;
        fs::write(host.path().join("marker"), "the host's\n")?;
        let api = Api::of(&node.kubeconfig())?;
        let names = node.names()?;
        let core_pattern = core_pattern()?;
        Ok(OnNode { node, api, names, host, pid, core_pattern, next: Cell::new(0), disk })
    }

    /// The disk that the data folder is on.
    pub fn disk(&self) -> &SmallDisk {
        &self.disk
    }

    /// The daemon's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The path of the marker, as the host sees it.
    pub fn marker(&self) -> String {
        self.host.path().join("marker").display().to_string()
    }

    /// A name that was not used before.
    pub fn fresh(&self) -> String {
        self.next.set(self.next.get() + 1);
        format!("h{}", self.next.get())
    }

    /// Imports an image; the complaint if the node does not take it.
    pub fn import(&self, name: &str, image: &ImageBuilder) -> Result<()> {
        let archive = self.host.path().join("image.tar");
        image.build().write_oci_archive(&archive, name)?;
        let imported = self.import_archive(&archive);
        fs::remove_file(archive)?;
        imported
    }

    /// Imports an archive.
    pub fn import_archive(&self, archive: &Path) -> Result<()> {
        let done = Command::new("timeout")
            .arg("30")
            .arg(bin_dir().join("podwire"))
            .args(["image", "import", "--data-dir"])
            .arg(&self.node.data_dir)
            .arg(archive)
            .output()?;
        ensure!(done.status.success(), "image import: {}", String::from_utf8_lossy(&done.stderr).trim());
        Ok(())
    }

    /// Imports an image that must be taken.
    pub fn image(&self, name: &str, image: &ImageBuilder) -> Result<()> {
        self.import(name, image).with_context(|| format!("import {name}"))
    }

    /// A layer on top of the tools under a fresh name; the name, or the complaint.
    pub fn on_tools(&self, layer: &LayerBuilder) -> Result<String> {
        let name = format!("localhost/{}:latest", self.fresh());
        self.import(&name, &ImageBuilder::new().layer(&tools()?).layer(layer))?;
        Ok(name)
    }

    /// A pod that runs a script in an image and ends.
    pub fn pod(&self, image: &str, script: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.fresh()},
            "spec": {
                "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main", "image": image, "imagePullPolicy": "Never",
                    "command": ["/bin/sh", "-c", script],
                    "env": [{"name": "PATH", "value": "/bin"}],
                }],
            },
        })
    }

    /// A script in the box of tools.
    pub fn script(&self, script: &str) -> Value {
        self.pod(BOX, script)
    }

    /// A pod in the box of tools with more in its specification and more in its container.
    pub fn script_with(&self, script: &str, spec: Value, container: Value) -> Value {
        let mut pod = self.script(script);
        merge(&mut pod["spec"], spec);
        merge(&mut pod["spec"]["containers"][0], container);
        pod
    }

    /// Creates a pod, waits until it is clear what becomes of it, and takes it away again.
    pub fn fate(&self, pod: Value) -> Result<Fate> {
        let name = pod["metadata"]["name"].as_str().context("no name")?.to_owned();
        let answer = self.api.admin("POST", PODS, Some(&pod))?;
        if answer.status != 201 {
            return Ok(Fate::Refused(answer.brief()));
        }
        let fate = self.wait_fate(&name);
        self.remove(&name)?;
        fate
    }

    /// The pod as it is now.
    pub fn get(&self, name: &str) -> Result<Value> {
        self.api.must("GET", &format!("{PODS}/{name}"), None)
    }

    /// Waits until the pod satisfies `wanted`.
    pub fn until(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(&format!("pod {name} {what}"), PATIENCE, || {
            let pod = self.get(name).map_err(|error| format!("{error:#}"))?;
            if wanted(&pod) { Ok(pod) } else { Err(pod["status"].to_string()) }
        })
    }

    /// A pod that stays: created and waited for until its containers run.
    pub fn running(&self, pod: Value) -> Result<String> {
        let name = pod["metadata"]["name"].as_str().context("no name")?.to_owned();
        self.api.must("POST", PODS, Some(&pod))?;
        self.until(&name, "runs", |pod| pod["status"]["phase"] == "Running")?;
        Ok(name)
    }

    fn wait_fate(&self, name: &str) -> Result<Fate> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let pod = self.get(name)?;
            let status = &pod["status"];
            if matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")) {
                return self.ended(name, status);
            }
            let statuses = ["initContainerStatuses", "containerStatuses"];
            for one in statuses.iter().filter_map(|field| status[field].as_array()).flatten() {
                let waiting = &one["state"]["waiting"];
                let reason = waiting["reason"].as_str().unwrap_or_default();
                if reason.contains("Err") || reason.contains("BackOff") || reason.contains("Invalid") {
                    return Ok(Fate::Stuck(format!("{reason}: {}", waiting["message"])));
                }
            }
            if status["phase"] == "Pending"
                && let Some(why) = self.hopeless(name, deadline)?
            {
                return Ok(Fate::Stuck(why));
            }
            if Instant::now() >= deadline {
                if status["phase"] == "Running" {
                    bail!(
                        "the container still runs after {PATIENCE:?}: {}",
                        self.log(name).unwrap_or_default()
                    );
                }
                return Ok(Fate::Stuck(format!("Pending: {} {}", status["conditions"], self.events(name)?)));
            }
            std::thread::sleep(Duration::from_millis(15));
        }
    }

    /// What somebody said of a pod that has been waiting for a while and will wait on.
    fn hopeless(&self, name: &str, deadline: Instant) -> Result<Option<String>> {
        if Instant::now() + PATIENCE < deadline + Duration::from_millis(1500) {
            return Ok(None);
        }
        let said = self.events(name)?;
        let signs = ["MountVolume", "Failed to create pod sandbox", "nodes are available"];
        Ok(signs.iter().any(|sign| said.contains(sign)).then(|| format!("Pending: {said}")))
    }

    fn ended(&self, name: &str, status: &Value) -> Result<Fate> {
        let state = &status["containerStatuses"][0]["state"]["terminated"];
        let reason = state["reason"].as_str().unwrap_or_default();
        if state.is_null() || matches!(reason, "StartError" | "ContainerCannotRun" | "RunContainerError") {
            return Ok(Fate::Stuck(format!("{} {} {state}", status["reason"], status["message"])));
        }
        Ok(Fate::Ended {
            log: self.log(name)?.trim().to_owned(),
            code: state["exitCode"].as_i64().unwrap_or(-1),
        })
    }

    /// The log of the pod's container `main`.
    pub fn log(&self, name: &str) -> Result<String> {
        let answer = self.api.admin("GET", &format!("{PODS}/{name}/log?container=main"), None)?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// What the events of an object say.
    pub fn events(&self, name: &str) -> Result<String> {
        let list = self.api.must("GET", "/api/v1/namespaces/default/events", None)?;
        let own = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|one| one["involvedObject"]["name"] == name);
        Ok(own.map(|one| one["message"].to_string()).collect::<Vec<_>>().join("; "))
    }

    /// Deletes a pod and waits until it is gone.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = format!("{PODS}/{name}");
        self.api.admin("DELETE", &format!("{path}?gracePeriodSeconds=1"), None)?;
        eventually(&format!("pod {name} goes"), Duration::from_secs(20), || {
            match self.api.admin("GET", &path, None) {
                Ok(answer) if answer.status == 404 => Ok(()),
                Ok(answer) => Err(format!("{} {}", answer.status, answer.json()["status"])),
                Err(error) => Err(format!("{error:#}")),
            }
        })
    }

    /// A command in a container, its output and complaints together.
    pub fn exec(&self, pod: &str, script: &str) -> Result<String> {
        let done = Command::new("timeout")
            .arg("15")
            .arg(bin_dir().join("podwire"))
            .args(["exec", pod, "--", "/bin/sh", "-c", script])
            .env("PODWIRE_DATA_DIR", &self.node.data_dir)
            .env_remove("KUBECONFIG")
            .output()?;
        ensure!(done.status.code() != Some(124), "exec in {pod} does not come to an end");
        let both = [done.stdout, done.stderr].concat();
        Ok(String::from_utf8_lossy(&both).into_owned())
    }

    /// Whether the API server and the node say that they are ready.
    pub fn ready(&self) -> Result<()> {
        let answer = self.api.admin("GET", "/readyz", None)?;
        ensure!(answer.status == 200, "/readyz says {}", answer.brief());
        let node = self.api.must("GET", "/api/v1/nodes/node1", None)?;
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|one| one["type"] == "Ready").cloned().unwrap_or_default();
        ensure!(ready["status"] == "True", "the node is not Ready: {}", ready["message"]);
        Ok(())
    }
}

impl World for OnNode {
    fn make() -> Result<OnNode> {
        OnNode::with(&[])
    }

    fn well(&self) -> Result<()> {
        let memory = peak_memory(self.pid).context("the daemon died")?;
        // The next row begins with what is taken now.
        fs::write(format!("/proc/{}/clear_refs", self.pid), "5")?;
        ensure!(memory < MOST_MEMORY, "the daemon took {} MB", memory >> 20);
        ensure!(core_pattern()? == self.core_pattern, "the host's core_pattern was changed");
        ensure!(fs::read_to_string(self.marker())? == "the host's\n", "the host's file was changed");
        self.ready()
    }

    fn sound(&self) -> Result<()> {
        self.fate(self.script("echo plain"))?.prints("plain").map(drop)
    }

    fn end(self) -> Result<()> {
        let names = self.names.clone();
        let ended = self.node.assert_no_pod_residue().and_then(|()| self.node.down());
        if ended.is_err() {
            sweep(&names.run_dir, &names.cgroup_root);
        }
        ended
    }

    fn destroy(mut self) {
        let names = self.names.clone();
        // A supervisor that hangs would hang `podwire down` too.
        kill_supervisor(&names.run_dir);
        // Ignored: it may have died by itself, which is why we are here.
        self.node.kill9().ok();
        kill_group(&names.cgroup_root);
        drop(self);
        sweep(&names.run_dir, &names.cgroup_root);
    }
}

/// Puts the fields of `more` into `object`.
pub fn merge(object: &mut Value, more: Value) {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
}

/// A process id as the kernel's calls take it.
pub fn as_pid(pid: u32) -> Result<Pid> {
    Pid::from_raw(i32::try_from(pid)?).context("a process id")
}

fn core_pattern() -> Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/core_pattern")?)
}
