//! Operators that other people wrote beside kube-apiserver: how soon their definitions serve and their first resource is
//! reconciled, and what the API server needs for it.
//!
//! No node and no controllers run: the first thing that an operator makes is what is waited for.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use podwire_testkit::{node::peer, operators};

use crate::{
    api::{self, Server},
    report::{self, Row},
};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a server settles before its memory is read.
const SETTLED: Duration = Duration::from_secs(5);

/// An operator, in lines of shell.
struct Operator {
    name: &'static str,
    /// Installs its definitions.
    install: String,
    /// The program.
    start: String,
    /// What has to succeed before it works.
    ready: Vec<String>,
    /// Its first resources.
    resource: &'static str,
    /// What it says when they are reconciled.
    reconciled: (&'static str, &'static str),
}

const ROLLOUT: &str = r#"apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  strategy: {canary: {}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: "localhost/app:latest"}]}}
"#;

const PROMETHEUS: &str = r#"apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {name: main}
spec: {replicas: 1, serviceMonitorSelector: {}, ruleSelector: {}}
"#;

const QUEUES: &str = r#"apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 1}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: main}
spec: {clusterQueue: team}
---
apiVersion: batch/v1
kind: Job
metadata: {name: first, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "localhost/app:latest", resources: {requests: {cpu: 600m}}}]
"#;

fn all() -> [Operator; 3] {
    let folder = |name: &str| format!("kubectl apply --server-side -f $PODWIRE_PEERS/{name}.manifests");
    [
        Operator {
            name: "prometheus-operator",
            install: folder("prometheus-operator"),
            // It reads no kubeconfig.
            start: "prometheus-operator --apiserver=http://127.0.0.1:8001 --web.listen-address=127.0.0.1:0"
                .to_owned(),
            ready: Vec::new(),
            resource: PROMETHEUS,
            reconciled: (
                "kubectl get statefulset prometheus-main -o name",
                "statefulset.apps/prometheus-main",
            ),
        },
        Operator {
            name: "argo-rollouts",
            install: folder("argo-rollouts"),
            start: "argo-rollouts --kubeconfig $KUBECONFIG --leader-elect=false".to_owned(),
            ready: Vec::new(),
            resource: ROLLOUT,
            reconciled: (
                "kubectl get replicasets -o jsonpath='{.items[*].metadata.ownerReferences[0].name}'",
                "web",
            ),
        },
        Operator {
            name: "kueue",
            install: format!("kubectl apply --server-side -f {}", operators::KUEUE_INSTALL),
            start: format!("kueue --config {}", operators::KUEUE_CONFIG),
            ready: vec![
                operators::mount_kueue_certificate(),
                "busybox wget -qO- http://127.0.0.1:8081/readyz".to_owned(),
            ],
            resource: QUEUES,
            reconciled: ("kubectl get job first -o jsonpath='{.spec.suspend}'", "false"),
        },
    ]
}

/// Measures both servers and prints the table.
pub fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("ours ...");
    let ours = Figures::of(runtime.block_on(Server::ours())?)?;
    let theirs = if api::peers_are_built() {
        println!("upstream ...");
        Some(Figures::of(runtime.block_on(Server::upstream())?)?)
    } else {
        println!("(the peers are not built: `make peers` puts upstream beside)");
        None
    };
    print(&ours, theirs.as_ref());
    Ok(())
}

fn print(ours: &Figures, theirs: Option<&Figures>) {
    let row = |what: &str, unit: &'static str, read: &dyn Fn(&Figures) -> f64| {
        Row::new(what, unit, read(ours), theirs.map(read), None)
    };
    let mut rows = vec![row("idle PSS, API server and store", "MB", &|figures| figures.idle)];
    for (at, operator) in all().iter().enumerate() {
        let name = operator.name;
        rows.push(row(&format!("{name}: definitions served"), "s", &|figures| figures.runs[at].installed));
        rows.push(row("  started, first resource reconciled", "s", &|figures| figures.runs[at].reconciled));
        rows.push(row("  server CPU of both", "s", &|figures| figures.runs[at].cpu));
        rows.push(row("  PSS afterwards", "MB", &|figures| figures.runs[at].memory));
    }
    report::print(&rows);
}

/// The figures of one server.
struct Figures {
    idle: f64,
    runs: Vec<Run>,
}

/// What one operator took.
struct Run {
    installed: f64,
    reconciled: f64,
    cpu: f64,
    memory: f64,
}

impl Figures {
    fn of(server: Server) -> Result<Figures> {
        let bench = Bench { server, folder: tempfile::tempdir()? };
        operators::prepare_kueue(bench.folder.path())?;
        std::thread::sleep(SETTLED);
        let idle = bench.server.pss()?;
        let _proxy = bench.start("proxy", "kubectl proxy --port=8001")?;
        bench.until("kubectl get namespace default -o name", Some("namespace/default"))?;
        let mut going = Vec::new();
        let mut runs = Vec::new();
        for operator in all() {
            println!("  {} ...", operator.name);
            let (run, program) = bench.run(&operator)?;
            runs.push(run);
            // It stays: later ones come on top.
            going.push(program);
        }
        Ok(Figures { idle, runs })
    }
}

/// A server, and a folder for files beside it.
struct Bench {
    server: Server,
    folder: tempfile::TempDir,
}

/// A program that ends when it is dropped.
struct Going(Child);

impl Drop for Going {
    fn drop(&mut self) {
        // Ignored: it may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Bench {
    fn run(&self, operator: &Operator) -> Result<(Run, Going)> {
        let cpu = self.server.cpu()?;
        let begun = Instant::now();
        self.ok(&operator.install)?;
        self.ok("kubectl wait --for=condition=Established crd --all --timeout=60s")?;
        let installed = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let program = self.start(operator.name, &operator.start)?;
        for line in &operator.ready {
            self.until(line, None).with_context(|| self.log(operator.name))?;
        }
        let manifest = self.folder.path().join("resource.yaml");
        std::fs::write(manifest, operator.resource)?;
        self.ok("kubectl apply --server-side -f resource.yaml").with_context(|| self.log(operator.name))?;
        let (line, wanted) = operator.reconciled;
        self.until(line, Some(wanted)).with_context(|| self.log(operator.name))?;
        let reconciled = begun.elapsed().as_secs_f64();
        let cpu = (self.server.cpu()? - cpu).as_secs_f64();
        std::thread::sleep(SETTLED);
        Ok((Run { installed, reconciled, cpu, memory: self.server.pss()? }, program))
    }

    fn shell(&self, line: &str) -> Result<Command> {
        let peers: PathBuf = peer("kubectl")?.parent().map(Path::to_owned).context("no folder")?;
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", peers.display());
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .env("PATH", path)
            .env("PODWIRE_PEERS", peers)
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", &self.server.kubeconfig);
        Ok(command)
    }

    fn start(&self, name: &str, line: &str) -> Result<Going> {
        let log = std::fs::File::create(self.folder.path().join(format!("{name}.log")))?;
        let mut command = self.shell(&format!("exec {line}"))?;
        Ok(Going(command.stdout(log.try_clone()?).stderr(log).spawn()?))
    }

    fn log(&self, name: &str) -> String {
        let text =
            std::fs::read_to_string(self.folder.path().join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    fn ok(&self, line: &str) -> Result<()> {
        let done = self.shell(line)?.output()?;
        ensure!(done.status.success(), "`{line}`: {}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    }

    /// Runs a line until it succeeds and, if something is wanted, prints that.
    fn until(&self, line: &str, wanted: Option<&str>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let done = self.shell(line)?.output()?;
            let said = String::from_utf8_lossy(&done.stdout).trim().to_owned();
            if done.status.success() && wanted.is_none_or(|wanted| said == wanted) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("`{line}` said {said:?}, {}", String::from_utf8_lossy(&done.stderr));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
