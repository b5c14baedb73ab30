//! critest: the images its specs ask for, made here, and one run of it against a CRI socket.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{
    images::{Files, Image, Layer},
    node::{bin_dir, peer, pod_app},
};

/// The image for sandboxes of runtimes that need one; a spec removes `pause:3.9` by its id, so it is another.
pub const SANDBOX_IMAGE: &str = "localhost/sandbox:latest";

/// Every image that a spec names, except the one whose digest is fixed in critest.
///
/// They share one layer and differ in what they run as whom; a label makes each an image of its own.
pub fn images() -> Result<Vec<Image>> {
    let layer = Layer::new(&system()?)?;
    let mut made = Vec::new();
    let mut add = |names: &[&str], mut config: Value| -> Result<()> {
        config["Labels"] = json!({ "name": names[0] });
        config["Env"] = json!(["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
        made.push(Image::new(names, &layer, &config)?);
        Ok(())
    };
    for (name, command) in [
        ("e2e-test-images/busybox:1.29-2", "sh"),
        ("e2e-test-images/nginx:1.14-2", "/usr/sbin/nginx"),
        ("e2e-test-images/httpd:2.4.39-4", "/usr/sbin/httpd"),
    ] {
        add(&[name], json!({ "Cmd": [command] }))?;
    }
    add(&["e2e-test-images/nonewprivs:1.3"], json!({"Cmd": ["/nnp"], "User": "1000"}))?;
    add(&["pause:3.9"], json!({"Entrypoint": ["/pause"], "User": "65535:65535"}))?;
    add(&["sandbox:latest"], json!({"Entrypoint": ["/pause"]}))?;
    let tools = |name: &str| format!("k8s-staging-cri-tools/{name}");
    add(&[&tools("hostnet-nginx-amd64:latest")], json!({"Cmd": ["/usr/sbin/nginx", "12003"]}))?;
    for (name, user) in [
        ("predefined-group:latest", "1000"),
        ("user-uid:latest", "1002"),
        ("user-username:latest", "www-data"),
        ("user-uid-group:latest", "1003:1004"),
        ("user-username-group:latest", "www-data:1004"),
    ] {
        add(&[&tools(&format!("test-image-{name}"))], json!({"Cmd": ["sh"], "User": user}))?;
    }
    for name in ["latest:latest", "tag:test", "tag:all", "1:latest", "2:latest", "3:latest"] {
        add(&[&tools(&format!("test-image-{name}"))], json!({"Cmd": ["sh"]}))?;
    }
    let tags = [1, 2, 3].map(|tag| tools(&format!("test-image-tags:{tag}")));
    add(&tags.each_ref().map(String::as_str), json!({"Cmd": ["sh"]}))?;
    Ok(made)
}

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www:/var/www:/bin/sh\n\
    nobody:x:65534:65534:nobody:/:/bin/sh\ndefault-user:x:1000:1000::/home:/bin/sh\n";

/// Debian's busybox, changed in two bytes to behave as the 1.29 that the specs were written for: its shell complains
/// without a line number, and looks for `ls` on the disk instead of in itself (a spec masks `/bin/ls`).
fn busybox(original: &[u8]) -> Result<Vec<u8>> {
    let mut program = original.to_vec();
    for (words, at, byte) in [(&b"line %d: \0"[..], 0, 0), (&b"\0ls\0lsmod\0"[..], 2, b'r')] {
        let found = program.windows(words.len()).position(|window| window == words);
        program[found.context("this busybox is not the one that this code knows")? + at] = byte;
    }
    Ok(program)
}

/// A small system: busybox under all its names as hard links (a spec masks one of them), users, groups, servers.
fn system() -> Result<Files> {
    let app = fs::read(pod_app(&bin_dir())?).context("read pod-app")?;
    let original = fs::read("/bin/busybox").context("read busybox (package busybox-static)")?;
    let listed = Command::new("/bin/busybox").arg("--list").output().context("run busybox")?;
    let listed = String::from_utf8(listed.stdout)?;
    let mut files = Files::default();
    for folder in ["bin", "etc", "root", "home", "var", "var/run", "var/www", "proc", "sys", "dev", "usr"] {
        files = files.folder(folder, 0o755);
    }
    files = files.folder("usr/bin", 0o755).folder("usr/sbin", 0o755).folder("tmp", 0o1777);
    files = files.file("bin/busybox", busybox(&original)?, 0o755).file("bin/ls", original, 0o755);
    for applet in listed.lines().filter(|applet| !["busybox", "ls"].contains(applet)) {
        files = files.hard_link(&format!("bin/{applet}"), "bin/busybox");
    }
    if !listed.lines().any(|applet| applet == "ipcs") {
        files = files.file("bin/ipcs", "#!/bin/sh\nexec cat /proc/sysvipc/shm\n", 0o755);
    }
    if !listed.lines().any(|applet| applet == "pgrep") {
        files = files.file("bin/pgrep", PGREP, 0o755);
    }
    files = files.file("nnp", app.clone(), 0o4755).file("pause", app, 0o755);
    for name in ["usr/sbin/nginx", "usr/sbin/httpd"] {
        files = files.hard_link(name, "pause");
    }
    Ok(files.file("etc/passwd", PASSWD, 0o644).file("etc/group", GROUP, 0o644))
}

const GROUP: &str = "root:x:0:\nwww-data:x:33:\nnobody:x:65534:\ndefault-group:x:1000:\n\
    group-in-image:x:50000:default-user\n";

const PGREP: &str = "#!/bin/sh\nfound=1\nfor folder in /proc/[0-9]*; do\n  read -r name < $folder/comm 2>/dev/null || continue\n  [ \"$name\" = \"$1\" ] && { echo ${folder#/proc/}; found=0; }\ndone\nexit $found\n";

/// How one spec ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passed.
    Passed,
    /// It failed, with its complaint.
    Failed(String),
    /// It says that it cannot run here, and why.
    Skipped(String),
}

/// How every spec ended, by its full name.
#[derive(Clone, Debug, Default)]
pub struct Report(pub BTreeMap<String, Outcome>);

impl Report {
    /// Names of specs that passed.
    pub fn passed(&self) -> impl Iterator<Item = &str> {
        self.chosen(|outcome| *outcome == Outcome::Passed)
    }

    /// Names of specs that failed.
    pub fn failed(&self) -> impl Iterator<Item = &str> {
        self.chosen(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    fn chosen(&self, wanted: impl Fn(&Outcome) -> bool) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(_, outcome)| wanted(outcome)).map(|(name, _)| name.as_str())
    }

    fn read(path: &Path) -> Result<Report> {
        let suites: Value = serde_json::from_slice(&fs::read(path)?)?;
        let mut outcomes = BTreeMap::new();
        for spec in suites[0]["SpecReports"].as_array().context("no specs in the report")? {
            if spec["LeafNodeType"] != "It" {
                continue;
            }
            let containers = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
            let words: Vec<&str> =
                containers.chain([&spec["LeafNodeText"]]).filter_map(Value::as_str).collect();
            let said = spec["Failure"]["Message"].as_str().unwrap_or_default().to_owned();
            let outcome = match spec["State"].as_str() {
                Some("passed") => Outcome::Passed,
                Some("skipped" | "pending") => Outcome::Skipped(said),
                _ => Outcome::Failed(said),
            };
            // Two specs may have the same words.
            let mut name = words.join(" ");
            while outcomes.contains_key(&name) {
                name.push_str(" (again)");
            }
            outcomes.insert(name, outcome);
        }
        Ok(Report(outcomes))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, failed) = (self.passed().count(), self.failed().count());
        write!(out, "{} ran, {passed} passed, {failed} failed, ", passed + failed)?;
        write!(out, "{} skipped", self.0.len() - passed - failed)
    }
}

/// Runs critest against the runtime at `socket`; NRI specs run when their socket is given.
pub fn run(folder: &Path, socket: &Path, nri: Option<&Path>, focus: &[&str]) -> Result<Report> {
    fs::create_dir_all(folder)?;
    let (report, log) = (folder.join("critest.json"), folder.join("critest.log"));
    let endpoint = format!("unix://{}", socket.display());
    let mut command = Command::new(peer("critest")?);
    command
        .current_dir(folder)
        .args(["--runtime-endpoint", &endpoint, "--image-endpoint", &endpoint])
        .arg(format!("--ginkgo.json-report={}", report.display()))
        .arg("--ginkgo.no-color");
    if let Some(nri) = nri {
        command.arg("--nri-socket").arg(nri);
    }
    for words in focus {
        command.arg("--ginkgo.focus").arg(words);
    }
    let output = File::create(&log)?;
    let status = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()
        .context("run critest")?;
    if !report.exists() {
        bail!("critest ended with {status} and no report: {}", fs::read_to_string(&log).unwrap_or_default());
    }
    Report::read(&report)
}
