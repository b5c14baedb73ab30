//! What became of every kind of adjustment on one runtime, and what the plugin was told: as plain texts to compare.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{client::Client, plugin::GoPlugin};

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

/// Makes a pod with one container per kind and looks at each.
pub async fn gather(client: &Client, plugin: &GoPlugin, folder: &Path) -> Result<Report> {
    let vendor = format!("podwire-twins-{}.test", std::process::id());
    let _cdi = CdiFile::write(&vendor)?;
    let (hooks, group) = (folder.join("hooks"), format!("/podwire-twins-{}/moved", std::process::id()));
    let hooks = hooks.display().to_string();
    Command::new("ip").args(["link", "add", "twindev0", "type", "dummy"]).output()?;
    let device = format!("{vendor}/thing=one");
    let mut annotations =
        vec![("cdi", device.as_str()), ("hooks", &hooks), ("cgroup", &group), ("net-device", "twindev0")];
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
        note("seen", inside(kind, pid));
        client.remove(&container).await?;
        if *kind == "hooks" {
            until(|| fs::read_to_string(&hooks).unwrap_or_default().contains("poststop")).await;
            note("ran", fs::read_to_string(&hooks).unwrap_or_default().replace('\n', " "));
        }
    }
    client.down(&sandbox.id).await?;
    until(|| plugin.lines().iter().any(|line| line["event"] == "RemovePodSandbox")).await;
    let lines = plugin.lines();
    told(&lines, &mut report).context("what the plugin wrote down")?;
    Command::new("ip").args(["link", "del", "twindev0"]).output()?;
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
fn inside(kind: &str, pid: u32) -> String {
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
            let found = text.lines().find(|line| line.split(' ').nth(1) == Some("/nri"));
            found.unwrap_or("-").to_owned()
        }
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
            (own == fs::read_link("/proc/1/ns/uts").ok()).to_string()
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

/// The names that an object sets, sorted.
fn names(object: &Value) -> String {
    let mut names: Vec<&str> =
        object.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.join(" ")
}

/// What the plugin was told, in what order and with which parts.
fn told(lines: &[Value], report: &mut BTreeMap<String, String>) -> Result<()> {
    let of = |name: &str| -> Vec<&str> {
        lines
            .iter()
            .filter(|line| line["container"] == name)
            .filter_map(|line| line["event"].as_str())
            .collect()
    };
    let mut note = |what: &str, value: String| report.insert(what.to_owned(), value);
    note("events/container", of("env").join(" "));
    note("events/updated container", of("update").join(" "));
    let pod: Vec<&str> = lines
        .iter()
        .filter(|line| line["container"].is_null() && line["pod"] == "kinds")
        .filter_map(|line| line["event"].as_str())
        .collect();
    note("events/pod", pod.join(" "));
    let find = |event: &str, container: &Value| {
        lines.iter().find(|line| line["event"] == event && line["container"] == *container)
    };
    let run = &find("RunPodSandbox", &Value::Null).context("no RunPodSandbox")?["podIs"];
    let same = |name: &str| run[name].to_string();
    note(
        "pod/identity",
        format!("{} {} {} {}", same("name"), same("namespace"), same("uid"), same("labels")),
    );
    let spaces = run["linux"]["namespaces"].as_array().into_iter().flatten();
    let network = spaces.clone().find(|one| one["type"] == "network").map(|one| one["path"].is_string());
    note("pod/network namespace", format!("{network:?}"));
    note("pod/addresses", run["ips"].as_array().map_or(0, Vec::len).to_string());
    let create = &find("CreateContainer", &"env".into()).context("no CreateContainer")?["is"];
    for part in ["name", "labels", "args", "user"] {
        note(&format!("container/{part}"), create[part].to_string());
    }
    note("container/kept annotation", create["annotations"]["kept"].to_string());
    note("container/shares", create["linux"]["resources"]["cpu"]["shares"].to_string());
    let after = |kind: &str| {
        find("PostStartContainer", &kind.into()).map(|line| line["is"].clone()).unwrap_or_default()
    };
    let listed = |list: &Value, key: &str, wanted: &str| {
        list.as_array().into_iter().flatten().any(|one| one[key] == wanted).to_string()
    };
    note(
        "annotations/told",
        format!(
            "{} {}",
            after("annotations")["annotations"]["nri-plugin"],
            after("annotations")["annotations"]["gone"]
        ),
    );
    note("args/told", after("args")["args"].to_string());
    note("mounts/told", listed(&after("mounts")["mounts"], "destination", "/nri"));
    note("devices/told", listed(&after("devices")["linux"]["devices"], "path", "/dev/nri-null"));
    note("rlimits/told", listed(&after("rlimits")["rlimits"], "type", "RLIMIT_NOFILE"));
    note("oom/told", after("oom")["linux"]["oomScoreAdj"].to_string());
    note("sysctl/told", after("sysctl")["linux"]["sysctl"]["net.core.somaxconn"].to_string());
    let asked =
        find("UpdateContainer", &"update".into()).map(|line| line["asked"]["cpu"]["shares"].to_string());
    note("update/asked", asked.unwrap_or_default());
    let check = find("ValidateContainerAdjustment", &"env".into());
    note("validate/adjustment", check.map(|line| names(&line["asked"])).unwrap_or_default());
    note("validate/owners", check.map(|line| line["owners"].to_string()).unwrap_or_default());
    let unprompted = lines.iter().find(|line| line["event"] == "Unprompted");
    note(
        "unprompted/answer",
        unprompted.map(|line| format!("{} {}", line["size"], line["text"])).unwrap_or_default(),
    );
    Ok(())
}
