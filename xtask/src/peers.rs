//! Builds the real peers from the Go module proxy, pinned by `tests/peers/*/go.mod`, into a cache folder.
//!
//! A peer is rebuilt only when its pins or flags changed; the folder is what `PODWIRE_PEERS` names for the tests.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context, Result, bail};

/// One program of a peer.
struct Program {
    /// Name of the file in the cache folder.
    name: &'static str,
    /// Folder under `tests/peers` whose go.mod pins it.
    module: &'static str,
    /// The package to build.
    package: &'static str,
    /// Build tags.
    tags: &'static str,
    /// Linker settings (versions that the build does not know by itself).
    ldflags: &'static str,
    cgo: bool,
    /// A test binary instead of a program.
    test: bool,
    /// Groups it is part of: `smoke` is what `make interop-smoke` needs.
    smoke: bool,
    /// The module and the folder in it whose manifests are put into `NAME.manifests`, if it has any.
    manifests: Option<(&'static str, &'static str)>,
}

const K8S_VERSION: &str = "-X k8s.io/component-base/version.gitVersion=v1.36.4 \
    -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36 \
    -X k8s.io/client-go/pkg/version.gitVersion=v1.36.4";
const CONTAINERD_VERSION: &str = "-X github.com/containerd/containerd/v2/version.Version=v2.4.2";

const fn go(name: &'static str, module: &'static str, package: &'static str) -> Program {
    Program {
        name,
        module,
        package,
        tags: "",
        ldflags: "",
        cgo: false,
        test: false,
        smoke: false,
        manifests: None,
    }
}

/// An operator with the definitions of its custom resources.
const fn operator(
    name: &'static str,
    package: &'static str,
    module: &'static str,
    folder: &'static str,
) -> Program {
    Program { manifests: Some((module, folder)), ..go(name, name, package) }
}

const fn k8s(name: &'static str, package: &'static str) -> Program {
    Program { ldflags: K8S_VERSION, ..go(name, "kubernetes", package) }
}

/// A suite of controller-runtime's: it starts test environments.
const fn envtest(name: &'static str, package: &'static str) -> Program {
    Program { test: true, ..go(name, "controller-runtime", package) }
}

const fn cni(name: &'static str, package: &'static str) -> Program {
    Program { smoke: true, ..go(name, "cni-plugins", package) }
}

const PROGRAMS: &[Program] = &[
    Program { smoke: true, ..k8s("kubectl", "k8s.io/kubernetes/cmd/kubectl") },
    k8s("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    k8s("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    k8s("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    k8s("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    k8s("dra-test-driver", "k8s.io/kubernetes/test/e2e/dra/test-driver"),
    go("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    go("etcdctl", "etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
    Program {
        tags: "no_btrfs",
        ldflags: CONTAINERD_VERSION,
        ..go("containerd", "containerd", "github.com/containerd/containerd/v2/cmd/containerd")
    },
    Program {
        tags: "no_btrfs",
        ldflags: CONTAINERD_VERSION,
        ..go(
            "containerd-shim-runc-v2",
            "containerd",
            "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        )
    },
    Program {
        tags: "no_btrfs",
        ldflags: CONTAINERD_VERSION,
        ..go("ctr", "containerd", "github.com/containerd/containerd/v2/cmd/ctr")
    },
    Program { tags: "seccomp", cgo: true, ..go("runc", "runc", "github.com/opencontainers/runc") },
    cni("cni/bridge", "github.com/containernetworking/plugins/plugins/main/bridge"),
    cni("cni/ptp", "github.com/containernetworking/plugins/plugins/main/ptp"),
    cni("cni/loopback", "github.com/containernetworking/plugins/plugins/main/loopback"),
    cni("cni/macvlan", "github.com/containernetworking/plugins/plugins/main/macvlan"),
    cni("cni/host-local", "github.com/containernetworking/plugins/plugins/ipam/host-local"),
    cni("cni/static", "github.com/containernetworking/plugins/plugins/ipam/static"),
    cni("cni/portmap", "github.com/containernetworking/plugins/plugins/meta/portmap"),
    cni("cni/bandwidth", "github.com/containernetworking/plugins/plugins/meta/bandwidth"),
    cni("cni/firewall", "github.com/containernetworking/plugins/plugins/meta/firewall"),
    cni("cni/tuning", "github.com/containernetworking/plugins/plugins/meta/tuning"),
    Program { smoke: true, ..go("cnitool", "cnitool", "github.com/containernetworking/cni/cnitool") },
    Program { smoke: true, ..go("crictl", "cri-tools", "sigs.k8s.io/cri-tools/cmd/crictl") },
    Program { smoke: true, test: true, ..go("critest", "cri-tools", "sigs.k8s.io/cri-tools/cmd/critest") },
    go("nri-plugin", "nri-plugin", "podwire.invalid/peers/nri-plugin"),
    go("dranet", "dranet", "sigs.k8s.io/dranet/cmd/dranet"),
    go("helm", "helm", "helm.sh/helm/v4/cmd/helm"),
    go("informer", "informer", "podwire.invalid/peers/informer"),
    go("manager", "manager", "podwire.invalid/peers/manager"),
    go("envtest", "manager", "podwire.invalid/peers/manager/envtest"),
    envtest("envtest-suites/builder", "sigs.k8s.io/controller-runtime/pkg/builder"),
    envtest("envtest-suites/cache", "sigs.k8s.io/controller-runtime/pkg/cache"),
    envtest("envtest-suites/client", "sigs.k8s.io/controller-runtime/pkg/client"),
    envtest("envtest-suites/client_apiutil", "sigs.k8s.io/controller-runtime/pkg/client/apiutil"),
    envtest("envtest-suites/cluster", "sigs.k8s.io/controller-runtime/pkg/cluster"),
    envtest("envtest-suites/controller", "sigs.k8s.io/controller-runtime/pkg/controller"),
    envtest(
        "envtest-suites/controller_controllerutil",
        "sigs.k8s.io/controller-runtime/pkg/controller/controllerutil",
    ),
    envtest("envtest-suites/envtest", "sigs.k8s.io/controller-runtime/pkg/envtest"),
    envtest("envtest-suites/handler", "sigs.k8s.io/controller-runtime/pkg/handler"),
    envtest("envtest-suites/internal_controller", "sigs.k8s.io/controller-runtime/pkg/internal/controller"),
    envtest("envtest-suites/internal_recorder", "sigs.k8s.io/controller-runtime/pkg/internal/recorder"),
    envtest(
        "envtest-suites/internal_testing_controlplane",
        "sigs.k8s.io/controller-runtime/pkg/internal/testing/controlplane",
    ),
    envtest("envtest-suites/manager", "sigs.k8s.io/controller-runtime/pkg/manager"),
    envtest(
        "envtest-suites/manager_internal_integration",
        "sigs.k8s.io/controller-runtime/pkg/manager/internal/integration",
    ),
    envtest("envtest-suites/metrics_filters", "sigs.k8s.io/controller-runtime/pkg/metrics/filters"),
    envtest("envtest-suites/reconcile", "sigs.k8s.io/controller-runtime/pkg/reconcile"),
    envtest("envtest-suites/source", "sigs.k8s.io/controller-runtime/pkg/source"),
    envtest("envtest-suites/webhook", "sigs.k8s.io/controller-runtime/pkg/webhook"),
    Program {
        test: true,
        tags: "e2e",
        ..go("etcd-suites/common", "etcd-tests", "go.etcd.io/etcd/tests/v3/common")
    },
    Program {
        test: true,
        ..go("etcd-suites/robustness", "etcd-tests", "podwire.invalid/peers/etcd-tests/robustness")
    },
    go("linearizability", "linearizability", "podwire.invalid/peers/linearizability"),
    go("arithmetic", "arithmetic", "podwire.invalid/peers/arithmetic"),
    go("validation", "validation", "podwire.invalid/peers/validation"),
    go("cel", "cel", "podwire.invalid/peers/cel"),
    go("allocator", "allocator", "podwire.invalid/peers/allocator"),
    go("topology", "topology", "podwire.invalid/peers/topology"),
    go("scheduler", "scheduler", "podwire.invalid/peers/scheduler"),
    go("policy", "policy", "podwire.invalid/peers/policy"),
    go("deviceplugin", "deviceplugin", "podwire.invalid/peers/deviceplugin"),
    go("podresources", "podresources", "podwire.invalid/peers/podresources"),
    go(
        "intel-gpu-plugin",
        "intel-device-plugins",
        "github.com/intel/intel-device-plugins-for-kubernetes/cmd/gpu_plugin",
    ),
    Program {
        cgo: true,
        ..go(
            "nvidia-device-plugin",
            "nvidia-device-plugin",
            "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin",
        )
    },
    operator(
        "prometheus-operator",
        "github.com/prometheus-operator/prometheus-operator/cmd/operator",
        "github.com/prometheus-operator/prometheus-operator",
        "example/prometheus-operator-crd",
    ),
    operator(
        "argo-rollouts",
        "github.com/argoproj/argo-rollouts/cmd/rollouts-controller",
        "github.com/argoproj/argo-rollouts",
        "manifests/crds",
    ),
    operator("kueue", "sigs.k8s.io/kueue/cmd/kueue", "sigs.k8s.io/kueue", "config"),
];

/// The Python client: an environment of its own with what `tests/peers/python/requirements.txt` pins.
const PYTHON: &str = "python";

/// Builds what `words` name (nothing: everything; `smoke`: the quick ones) into `folder`.
pub fn run(root: &Path, folder: &Path, words: &[&str]) -> Result<()> {
    if Command::new("go").arg("version").output().is_err() {
        bail!(
            "Go is needed to build the peers; install Go 1.26 or newer (on Debian: apt-get install golang-go)"
        );
    }
    let chosen: Vec<&Program> = PROGRAMS
        .iter()
        .filter(|program| match words {
            [] => true,
            ["smoke"] => program.smoke,
            names => names.iter().any(|name| program.name == *name || program.module == *name),
        })
        .collect();
    let with_python = words.is_empty() || words.contains(&PYTHON);
    if chosen.is_empty() && !with_python {
        bail!("no peer is called {words:?}");
    }
    fs::create_dir_all(folder)?;
    for program in chosen {
        build(root, folder, program).with_context(|| format!("build peer {}", program.name))?;
    }
    if with_python {
        python(root, folder).context("make the environment of the Python client")?;
    }
    Ok(())
}

fn python(root: &Path, folder: &Path) -> Result<()> {
    let pins = root.join("tests/peers/python/requirements.txt");
    let (place, stamp) = (folder.join(PYTHON), folder.join("python.stamp"));
    let wanted = fs::read_to_string(&pins)?;
    if place.exists() && fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    println!("peers: installing the Python client ...");
    succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place))?;
    succeed(Command::new(place.join("bin/pip")).args(["install", "--quiet", "--requirement"]).arg(&pins))?;
    fs::write(stamp, wanted)?;
    Ok(())
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("run {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{:?} ended with {status}", command.get_program());
    }
    Ok(())
}

fn build(root: &Path, folder: &Path, program: &Program) -> Result<()> {
    let module = root.join("tests/peers").join(program.module);
    let target = folder.join(program.name);
    fs::create_dir_all(target.parent().unwrap_or(folder))?;
    let stamp = folder.join(format!("{}.stamp", program.name));
    let mut wanted =
        format!("{}\n{}\n{}", program.tags, program.ldflags, fs::read_to_string(module.join("go.sum"))?);
    // Programs of our own are built anew when they were edited.
    if let Some(place) = program.package.strip_prefix("podwire.invalid/peers/") {
        let mut sources: Vec<_> =
            fs::read_dir(root.join("tests/peers").join(place))?.flatten().map(|entry| entry.path()).collect();
        sources.sort();
        for source in sources.iter().filter(|path| path.extension().is_some_and(|ending| ending == "go")) {
            wanted.push_str(&fs::read_to_string(source)?);
        }
    }
    if target.exists() && fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    println!("peers: building {} ...", program.name);
    let begun = Instant::now();
    let mut command = Command::new("go");
    command
        .current_dir(&module)
        .env("CGO_ENABLED", if program.cgo { "1" } else { "0" })
        .env("GOFLAGS", "-mod=mod");
    if program.test {
        command.args(["test", "-c"]);
    } else {
        command.args(["build", "-trimpath"]);
    }
    if !program.tags.is_empty() {
        command.args(["-tags", program.tags]);
    }
    command.arg("-ldflags").arg(format!("-s -w {}", program.ldflags));
    command.arg("-o").arg(std::path::absolute(&target)?).arg(program.package);
    let status = command.status().context("run go")?;
    if !status.success() {
        bail!("go ended with {status}");
    }
    if let Some((name, within)) = program.manifests {
        copy_manifests(&module, name, within, &folder.join(format!("{}.manifests", program.name)))?;
    }
    fs::write(stamp, wanted)?;
    println!("peers: {} in {:.0} s", program.name, begun.elapsed().as_secs_f64());
    Ok(())
}

/// Puts the manifests that lie in a folder of a Go module into `place`, which holds nothing else afterwards. What only
/// says how they are put together is left out of a folder of manifests, and kept in a tree of them.
fn copy_manifests(pins: &Path, module: &str, within: &str, place: &Path) -> Result<()> {
    let listed =
        Command::new("go").current_dir(pins).args(["list", "-m", "-f", "{{.Dir}}", module]).output()?;
    if !listed.status.success() {
        bail!("go list: {}", String::from_utf8_lossy(&listed.stderr));
    }
    let source = Path::new(String::from_utf8(listed.stdout)?.trim()).join(within);
    if place.exists() {
        fs::remove_dir_all(place)?;
    }
    copy_tree(&source, place).with_context(|| format!("copy {within} of {module}"))?;
    if fs::read_dir(place)?.flatten().all(|entry| !entry.path().is_dir()) {
        match fs::remove_file(place.join("kustomization.yaml")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Copies what is YAML.
fn copy_tree(source: &Path, place: &Path) -> Result<()> {
    fs::create_dir_all(place)?;
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let (from, to) = (entry.path(), place.join(entry.file_name()));
        if from.is_dir() {
            copy_tree(&from, &to)?;
        } else if from.extension().is_some_and(|ending| ending == "yaml") {
            // The module cache is read-only; the copy need not be.
            fs::write(to, fs::read(from)?)?;
        }
    }
    Ok(())
}

/// The cache folder: `PODWIRE_PEERS`, else one in the user's cache.
pub fn default_folder() -> PathBuf {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    var("PODWIRE_PEERS")
        .or_else(|| var("XDG_CACHE_HOME").map(|cache| cache.join("podwire/peers")))
        .or_else(|| var("HOME").map(|home| home.join(".cache/podwire/peers")))
        .unwrap_or_else(|| PathBuf::from(".cache/peers"))
}
