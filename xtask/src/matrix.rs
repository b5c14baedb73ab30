//! `make matrix`: one scenario on every mix of our participants with upstream's, and the table of what came of it.
//!
//! Each cell starts its participants as processes of their own in a fresh network namespace, walks two pods through
//! their life with the real kubectl, and ends everything.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use podwire_testkit::{
    cgroup_root::CgroupRoot,
    eventually, isolate,
    node::peer,
    parts,
    upstream::{self, Containerd, ControlPlane, Peer, Serving},
};

/// The axes, in the order of the table.
const AXES: [&str; 5] = ["API", "scheduler", "kubelet", "runtime", "CNI"];

/// Which participants are ours, one bit per axis.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cell(u8);

impl Cell {
    const ALL_OURS: u8 = 0b1_1111;

    fn ours(self, axis: &str) -> bool {
        AXES.iter().position(|known| *known == axis).is_some_and(|at| self.0 & (1 << at) != 0)
    }

    /// All ours, each single swap, each single one of ours, all upstream; or all 32.
    fn chosen(every: bool) -> Vec<Cell> {
        if every {
            return (0..=Cell::ALL_OURS).rev().map(Cell).collect();
        }
        let singles = (0..AXES.len()).map(|at| 1_u8 << at);
        let mut cells = vec![Cell(Cell::ALL_OURS)];
        cells.extend(singles.clone().map(|bit| Cell(Cell::ALL_OURS & !bit)));
        cells.extend(singles.map(Cell));
        cells.push(Cell(0));
        cells
    }
}

/// Runs the cells and prints the table; fails if a cell failed.
pub fn run(root: &Path, every: bool, only: Option<&str>) -> Result<()> {
    let mut rows = Vec::new();
    for cell in Cell::chosen(every) {
        let name: String = AXES.iter().map(|axis| if cell.ours(axis) { 'o' } else { 'u' }).collect();
        if only.is_some_and(|only| only != name) {
            continue;
        }
        // A thread of its own, so that each cell has its own network namespace.
        let outcome = std::thread::Builder::new().name(name.clone()).spawn(move || scenario(cell))?.join();
        let outcome = outcome.unwrap_or_else(|_| Err(anyhow::anyhow!("the cell panicked")));
        let said = match &outcome {
            Ok(took) => format!("{:.0} ms", took.as_secs_f64() * 1000.0),
            Err(error) => format!("FAILED: {}", format!("{error:#}").lines().next().unwrap_or_default()),
        };
        println!("matrix {name}: {said}");
        if let Err(error) = &outcome {
            println!("{error:#}");
        }
        rows.push((cell, said, outcome.is_ok()));
    }
    let failed = rows.iter().filter(|row| !row.2).count();
    if only.is_none() {
        fs::write(root.join("docs/matrix.md"), table(&rows))?;
    }
    if failed > 0 {
        bail!("{failed} cells of the matrix failed");
    }
    Ok(())
}

fn table(rows: &[(Cell, String, bool)]) -> String {
    let mut text = String::from(
        "# The swap matrix\n\nOne scenario (two pods, a talk between them, exec, logs, delete, nothing left) with each participant ours or\nupstream's (Kubernetes 1.36.4, etcd 3.6.13, containerd 2.4.2, runc 1.3.6, CNI plugins 1.9.1). Written by `make matrix`;\n`make matrix ALL=1` runs all 32. The last column is the time from `kubectl apply` until both pods are Ready.\n\n",
    );
    text.push_str(&format!(
        "| {} | both pods Ready |\n|{}---|\n",
        AXES.join(" | "),
        "---|".repeat(AXES.len())
    ));
    for (cell, said, _) in rows {
        let cells: Vec<&str> =
            AXES.iter().map(|axis| if cell.ours(axis) { "ours" } else { "upstream" }).collect();
        text.push_str(&format!("| {} | {said} |\n", cells.join(" | ")));
    }
    text
}

enum Api {
    Ours(parts::Api, #[allow(dead_code)] Peer),
    Upstream(ControlPlane),
}

impl Api {
    fn start(cell: Cell, folder: &Path) -> Result<Api> {
        if !cell.ours("API") {
            return Ok(Api::Upstream(upstream::control_plane(folder)?));
        }
        let api = parts::Api::start(folder)?;
        let controllers = parts::controllers(folder, &api.kubeconfig("controllers"))?;
        Ok(Api::Ours(api, controllers))
    }

    fn kubeconfig(&self, who: &str) -> PathBuf {
        match self {
            Api::Ours(api, _) => api.kubeconfig(who),
            Api::Upstream(control) => control.kubeconfig.clone(),
        }
    }

    fn serving(&self) -> Result<Serving> {
        match self {
            Api::Ours(api, _) => Ok(api.serving()),
            Api::Upstream(control) => {
                let (cert, key) = control.authority.issue(
                    "node1",
                    "/O=system:nodes/CN=system:node:node1",
                    "DNS:node1,IP:10.76.0.1",
                )?;
                Ok(Serving { cert, key, client_ca: control.authority.certificate() })
            }
        }
    }
}

enum Runtime {
    Ours(parts::Runtime),
    Upstream(Containerd),
}

impl Runtime {
    fn start(cell: Cell, folder: &Path, conf_dir: &Path, plugins: &Path) -> Result<Runtime> {
        fs::create_dir_all(folder)?;
        let app = upstream::image_archive(folder, "localhost/pod-app:latest", "pod-app")?;
        if cell.ours("runtime") {
            let runtime = parts::Runtime::start(&folder.join("rt"), conf_dir, plugins)?;
            runtime.import(&app)?;
            return Ok(Runtime::Ours(runtime));
        }
        let containerd = upstream::containerd(folder, conf_dir, plugins)?;
        upstream::containerd_import(&containerd, &app)?;
        upstream::containerd_import(
            &containerd,
            &upstream::image_archive(folder, "localhost/pause:latest", "pause")?,
        )?;
        Ok(Runtime::Upstream(containerd))
    }

    fn socket(&self) -> &Path {
        match self {
            Runtime::Ours(runtime) => &runtime.socket,
            Runtime::Upstream(containerd) => &containerd.socket,
        }
    }
}

const CONFLIST: &str = r#"{"cniVersion":"1.0.0","name":"matrix","plugins":[
 {"type":"bridge","bridge":"mx0","isGateway":true,"ipMasq":true,"hairpinMode":true,
  "ipam":{"type":"host-local","dataDir":"@DATA@","ranges":[[{"subnet":"10.90.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
 {"type":"portmap","capabilities":{"portMappings":true}}]}"#;

/// One cell from nothing to nothing; the time until both pods were Ready.
fn scenario(cell: Cell) -> Result<Duration> {
    isolate()?;
    upstream::node_address()?;
    let folder = upstream::Scratch::new()?;
    let at = |name: &str| folder.path().join(name);
    let conf_dir = at("net.d");
    fs::create_dir_all(&conf_dir)?;
    let ipam = at("ipam");
    fs::write(conf_dir.join("10-matrix.conflist"), CONFLIST.replace("@DATA@", &ipam.display().to_string()))?;
    let plugins = if cell.ours("CNI") {
        parts::plugins(&at("bin"))?
    } else {
        peer("cni/bridge")?.parent().map(Path::to_owned).context("no plugins")?
    };
    let cgroup = CgroupRoot::create()?;
    let runtime = Runtime::start(cell, &at("runtime"), &conf_dir, &plugins)?;
    let api = Api::start(cell, &at("api"))?;
    let scheduler = if cell.ours("scheduler") {
        parts::scheduler(&at("scheduler"), &api.kubeconfig("scheduler"))?
    } else {
        upstream::scheduler(&at("scheduler"), &api.kubeconfig("scheduler"))?
    };
    let serving = api.serving()?;
    let kubelet = if cell.ours("kubelet") {
        parts::kubelet(&at("kubelet"), &api.kubeconfig("node1"), runtime.socket(), cgroup.path(), &serving)?
    } else {
        upstream::kubelet(
            &at("kubelet"),
            &api.kubeconfig("node1"),
            runtime.socket(),
            cgroup.path(),
            Some(&serving),
        )?
    };
    let kubectl = Kubectl { kubeconfig: api.kubeconfig("admin"), folder: folder.path().to_owned() };
    let walked = walk(&kubectl, &ipam);
    walked.map_err(|error| error.context(format!("{}\n{}", kubelet.log_tail(), scheduler.log_tail())))
}

struct Kubectl {
    kubeconfig: PathBuf,
    folder: PathBuf,
}

impl Kubectl {
    fn run(&self, args: &[&str]) -> Result<String> {
        let done: Output = Command::new(peer("kubectl")?)
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.folder)
            .output()?;
        if !done.status.success() {
            bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&done.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }
}

const PODS: &str = r#"apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: "localhost/pod-app:latest", imagePullPolicy: Never, command: [/pod-app], args: [serve, "80"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: "localhost/pod-app:latest", imagePullPolicy: Never, command: [/pod-app], args: [sleep, "3600"]}]
"#;

fn walk(kubectl: &Kubectl, ipam: &Path) -> Result<Duration> {
    let patience = Duration::from_secs(60);
    eventually("the node is Ready", patience, || {
        kubectl
            .run(&["wait", "--for=condition=Ready", "node/node1", "--timeout=1s"])
            .map_err(|error| format!("{error:#}"))
    })?;
    // Our API server admits pods once the default service account is there.
    let manifest = kubectl.folder.join("pods.yaml");
    fs::write(&manifest, PODS)?;
    let manifest = manifest.display().to_string();
    let begun = Instant::now();
    eventually("the pods are admitted", patience, || {
        kubectl.run(&["apply", "-f", &manifest]).map_err(|error| format!("{error:#}"))
    })?;
    kubectl.run(&["wait", "--for=condition=Ready", "pod/web", "pod/client", "--timeout=60s"]).map_err(
        |error| {
            let events = kubectl.run(&["get", "events"]).unwrap_or_default();
            error.context(events)
        },
    )?;
    let took = begun.elapsed();
    let address = kubectl.run(&["get", "pod", "web", "-o", "jsonpath={.status.podIP}"])?;
    let answer = kubectl.run(&["exec", "client", "--", "/pod-app", "get", &format!("http://{address}/")])?;
    if !answer.contains("hello from web") {
        bail!("pod to pod answered {answer:?}");
    }
    eventually("the request is in the log", Duration::from_secs(10), || {
        let log = kubectl.run(&["logs", "web"]).map_err(|error| format!("{error:#}"))?;
        if log.contains("GET /") { Ok(()) } else { Err(log) }
    })?;
    kubectl.run(&["delete", "-f", &manifest, "--timeout=60s"])?;
    eventually("no address is left reserved", Duration::from_secs(30), || {
        let held: Vec<String> = fs::read_dir(ipam.join("matrix"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().display().to_string())
            .filter(|name| name.parse::<std::net::IpAddr>().is_ok())
            .collect();
        if held.is_empty() { Ok(()) } else { Err(held.join(" ")) }
    })?;
    eventually("no veth is left", Duration::from_secs(30), || {
        let links = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        match links.lines().find(|line| line.trim_start().starts_with("veth")) {
            None => Ok(()),
            Some(link) => Err(link.to_owned()),
        }
    })?;
    Ok(took)
}
