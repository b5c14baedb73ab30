//! What became of every kind of adjustment on one runtime, and what the plugin was told: as plain texts to compare.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Command},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use podwire_testkit::eventually;

use crate::{client::Client, plugin::GoPlugin, recordings::note_recordings};

/// What was seen, by `kind/fact`.
pub struct Report(pub BTreeMap<String, String>);

/// Every kind of adjustment that the plugin can make.
const KINDS: &[&str] = &[
    "env",
    "args",
    "annotations",
    "mounts",
    "devices",
    "cdi",
    "hooks",
    "rlimits",
    "memory",
    "cpu",
    "pids",
    "hugepages",
    "unified",
    "blockio",
    "rdt",
    "cgroup",
    "oom",
    "io-priority",
    "scheduler",
    "seccomp",
    "namespaces",
    "sysctl",
    "net-devices",
    "memory-policy",
    "update",
    "unprompted",
];

fn ip(words: &[&str]) -> Result<()> {
    let done = Command::new("ip").args(words).output()?;
    ensure!(done.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// A process with a host name of its own; ended when dropped.
struct Elsewhere(Child);

impl Elsewhere {
    fn begin() -> Result<Elsewhere> {
        let own = fs::read_link("/proc/self/ns/uts")?;
        let child = Command::new("unshare").args(["-u", "sleep", "600"]).spawn()?;
        let elsewhere = Elsewhere(child);
        let path = format!("/proc/{}/ns/uts", elsewhere.0.id());
        eventually("it has a namespace of its own", Duration::from_secs(20), || {
            if fs::read_link(&path).is_ok_and(|its| its != own) { Ok(()) } else { Err("not yet".to_owned()) }
        })?;
        Ok(elsewhere)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // Ignored: it may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A file below `/var/run/cdi`, removed when dropped.
struct CdiFile(std::path::PathBuf);

impl CdiFile {
    fn write(vendor: &str) -> Result<CdiFile> {
        let folder = Path::new("/var/run/cdi");
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("{vendor}.json"));
        fs::write(
            &path,
            format!(
                r#"{{"cdiVersion":"0.6.0","kind":"{vendor}/thing","devices":[{{"name":"one","containerEdits":{{"env":["CDI_DEVICE=one"]}}}}]}}"#
            ),
        )?;
        Ok(CdiFile(path))
    }
}

impl Drop for CdiFile {
    fn drop(&mut self) {
        // Ignored: nothing more can be done in drop.
        fs::remove_file(&self.0).ok();
    }
}

/// A control group that a plugin moves a container below. Runtimes make it and leave it; it is removed when dropped.
struct Group(String);

impl Drop for Group {
    fn drop(&mut self) {
        let mount = Path::new("/sys/fs/cgroup");
        let hierarchies = fs::read_dir(mount).into_iter().flatten().flatten().map(|entry| entry.path());
        for hierarchy in hierarchies.chain([mount.to_owned()]) {
            // Ignored: not every hierarchy has it, and nothing more can be done in drop.
            fs::remove_dir(hierarchy.join(&self.0)).ok();
        }
    }
}

/// Makes a pod with one container per kind and looks at each.
pub async fn gather(client: &Client, plugin: &GoPlugin, folder: &Path) -> Result<Report> {
    let vendor = format!("podwire-twins-{}.test", std::process::id());
    let _cdi = CdiFile::write(&vendor)?;
    let parent = Group(format!("podwire-twins-{}", std::process::id()));
    let (hooks, group) = (folder.join("hooks").display().to_string(), format!("/{}/moved", parent.0));
    ip(&["link", "add", "twindev0", "type", "veth", "peer", "name", "twindev1"])?;
    let other = Elsewhere::begin()?;
    let uts = format!("/proc/{}/ns/uts", other.0.id());
    let device = format!("{vendor}/thing=one");
    let mut annotations = vec![
        ("cdi", device.as_str()),
        ("hooks", &hooks),
        ("cgroup", &group),
        ("net-device", "twindev0"),
        ("uts", &uts),
    ];
    let keys: Vec<String> = KINDS.iter().map(|kind| format!("adjust/{kind}")).collect();
    annotations.extend(keys.iter().map(String::as_str).zip(KINDS.iter().copied()));
    let sandbox = client.run("kinds", &annotations).await?;
    let mut report = BTreeMap::new();
    for kind in KINDS {
        let mut note = |fact: &str, value: String| report.insert(format!("{kind}/{fact}"), value);
        let made = async {
            let container = client.create(&sandbox, kind).await?;
            client.start(&container).await?;
            anyhow::Ok((client.pid(&container).await?, container))
        };
        let (pid, container) = match made.await {
            Ok(made) => made,
            Err(error) => {
                println!("  {kind}: {error:#}");
                note("made", "no".to_owned());
                continue;
            }
        };
        note("made", "yes".to_owned());
        if *kind == "update" {
            client.update(&container, 300).await?;
        }
        if *kind == "unprompted" {
            until(|| cgroup(pid, "cpu", "cpu.shares") == "99").await;
        }
        note("seen", inside(kind, pid, &uts));
        client.remove(&container).await?;
        if *kind == "hooks" {
            until(|| fs::read_to_string(&hooks).unwrap_or_default().contains("poststop")).await;
            note("ran", fs::read_to_string(&hooks).unwrap_or_default().replace('\n', " "));
        }
    }
    client.down(&sandbox.id).await?;
    until(|| plugin.lines().iter().any(|line| line["event"] == "RemovePodSandbox")).await;
    note_recordings(&plugin.lines(), folder, &mut report);
    // Ignored: where the pod took it along it is gone.
    Command::new("ip").args(["link", "del", "twindev0"]).output().ok();
    Ok(Report(report))
}

/// Waits a while for something that may never come; what is seen afterwards tells.
async fn until(wanted: impl Fn() -> bool) {
    let begun = Instant::now();
    while !wanted() && begun.elapsed() < Duration::from_secs(15) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A file of the process's group in one hierarchy, or in the one there is.
fn cgroup(pid: u32, controller: &str, file: &str) -> String {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let path = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next()?, parts.next()?);
        names.split(',').any(|name| name == controller).then(|| path.to_owned())
    });
    let Some(path) = path else { return "no such hierarchy".to_owned() };
    let text = fs::read_to_string(format!("/sys/fs/cgroup/{controller}{path}/{file}"));
    text.map_or_else(|error| error.to_string(), |text| text.trim().to_owned())
}

fn proc_file(pid: u32, name: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_else(|error| error.to_string())
}

fn said(words: &[&str]) -> String {
    let output = Command::new(words[0]).args(&words[1..]).output();
    output
        .map_or_else(|error| error.to_string(), |out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// The line that begins with `start`, its blanks made one.
fn line(text: &str, start: &str) -> String {
    let found = text.lines().find(|line| line.starts_with(start)).unwrap_or("-");
    found.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How a kind shows in the running container.
fn inside(kind: &str, pid: u32, uts: &str) -> String {
    let id = pid.to_string();
    let environment = || {
        let text = proc_file(pid, "environ");
        let mut own: Vec<&str> = text
            .split('\0')
            .filter(|one| {
                ["NRI_", "GONE", "CHANGED", "KEPT", "CDI_"].iter().any(|start| one.starts_with(start))
            })
            .collect();
        own.sort_unstable();
        own.join(" ")
    };
    match kind {
        "env" | "cdi" => environment(),
        "args" => proc_file(pid, "cmdline").replace('\0', " ").trim().to_owned(),
        "mounts" => {
            let text = proc_file(pid, "mounts");
            let at = |target: &str| text.lines().find(|line| line.split(' ').nth(1) == Some(target));
            format!("{}; removed: {}", at("/nri").unwrap_or("-"), at("/gone").is_none())
        }
        "hugepages" => cgroup(pid, "hugetlb", "hugetlb.2MB.limit_in_bytes"),
        "devices" => said(&["stat", "-c", "%F %t:%T %a %u:%g", &format!("/proc/{id}/root/dev/nri-null")]),
        "rlimits" => line(&proc_file(pid, "limits"), "Max open files"),
        "memory" => cgroup(pid, "memory", "memory.limit_in_bytes"),
        "cpu" => format!(
            "{} {} {} {}",
            cgroup(pid, "cpu", "cpu.shares"),
            cgroup(pid, "cpu", "cpu.cfs_quota_us"),
            cgroup(pid, "cpu", "cpu.cfs_period_us"),
            cgroup(pid, "cpuset", "cpuset.cpus")
        ),
        "pids" => cgroup(pid, "pids", "pids.max"),
        "update" | "unprompted" => cgroup(pid, "cpu", "cpu.shares"),
        "cgroup" => proc_file(pid, "cgroup").contains("/podwire-twins-").to_string(),
        "oom" => proc_file(pid, "oom_score_adj").trim().to_owned(),
        "io-priority" => said(&["ionice", "-p", &id]),
        "scheduler" => {
            let policy = said(&["chrt", "-p", &id]);
            let nice = proc_file(pid, "stat")
                .rsplit(')')
                .next()
                .and_then(|rest| rest.split_whitespace().nth(16).map(str::to_owned));
            format!(
                "{} nice {}",
                policy.lines().next().and_then(|line| line.rsplit(' ').next()).unwrap_or("-"),
                nice.unwrap_or_default()
            )
        }
        "seccomp" => line(&proc_file(pid, "status"), "Seccomp:"),
        "namespaces" => {
            let own = fs::read_link(format!("/proc/{id}/ns/uts")).ok();
            (own.is_some() && own == fs::read_link(uts).ok()).to_string()
        }
        "sysctl" => said(&["nsenter", "-t", &id, "-n", "cat", "/proc/sys/net/core/somaxconn"]),
        "net-devices" => {
            said(&["nsenter", "-t", &id, "-n", "ip", "-o", "link", "show", "nd0"]).contains("nd0").to_string()
        }
        "memory-policy" => {
            let maps = proc_file(pid, "numa_maps");
            maps.lines().next().and_then(|line| line.split(' ').nth(1)).unwrap_or("-").to_owned()
        }
        _ => String::new(),
    }
}
