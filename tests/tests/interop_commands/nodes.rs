//! Commands about nodes and the cluster: cordon, drain, taint, certificates.

use anyhow::{Result, ensure};

use crate::world::{World, shell_pod};

#[test]
fn kubectl_cordons_drains_and_taints() -> Result<()> {
    let world = World::up()?;
    world.says("kubectl get nodes --no-headers | tr -s ' ' | cut -d' ' -f1,2", "node1 Ready")?;
    world.shell_pod("box")?;
    world.says("kubectl cordon node1", "node/node1 cordoned")?;
    world.says("kubectl cordon node1", "node/node1 already cordoned")?;
    world.tells("kubectl get node node1", &["Ready,SchedulingDisabled"])?;
    world.apply(&shell_pod("late"))?;
    world.until(
        "kubectl get pod late -o jsonpath='{.status.conditions[?(@.type==\"PodScheduled\")].reason}'",
        "Unschedulable",
    )?;
    world.fails(
        "kubectl drain node1",
        1,
        "cannot delete Pods that declare no controller (use --force to override)",
    )?;
    world.tells(
        "kubectl drain node1 --force --ignore-daemonsets --delete-emptydir-data --grace-period=1 --timeout=60s",
        &["evicting pod default/box", "pod/box evicted", "node/node1 drained"],
    )?;
    world.says("kubectl get pods -o name", "pod/late")?;
    world.says("kubectl uncordon node1", "node/node1 uncordoned")?;
    world.ok("kubectl wait --for=condition=Ready pod/late --timeout=40s")?;

    // A budget forbids what kubectl drain would do; it says so and gives up in time.
    world.ok("kubectl create poddisruptionbudget calm --selector=app=late --min-available=1")?;
    let held = world.run("kubectl drain node1 --force --ignore-daemonsets --timeout=3s")?;
    ensure!(
        held.code == 1
            && held.err.contains("Cannot evict pod as it would violate the pod's disruption budget"),
        "{held:?}"
    );
    world.ok("kubectl delete poddisruptionbudget calm")?;
    world.says("kubectl uncordon node1", "node/node1 uncordoned")?;

    world.says("kubectl taint nodes node1 mood=bad:NoExecute", "node/node1 tainted")?;
    world.ok("kubectl wait --for=delete pod/late --timeout=40s")?;
    world.fails(
        "kubectl taint nodes node1 mood=bad:NoExecute",
        1,
        "already has mood taint(s) with same effect(s)",
    )?;
    world.says("kubectl taint nodes node1 mood:NoExecute-", "node/node1 untainted")?;
    world.fails("kubectl taint nodes node1 mood-", 1, "taint \"mood\" not found")?;
    world.says("kubectl label node node1 disk=fast", "node/node1 labeled")?;
    world.says("kubectl get nodes -l disk=fast -o name", "node/node1")?;
    world.down()
}

#[test]
fn kubectl_approves_certificates() -> Result<()> {
    let world = World::up()?;
    world.ok(
        "openssl req -newkey rsa:2048 -nodes -keyout k.pem -out r.pem -subj /O=devs/CN=ann 2>/dev/null",
    )?;
    for name in ["ann", "bob"] {
        let request = world.ok("base64 -w0 r.pem")?;
        world.apply(&format!(
            "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: {name}}}\nspec: {{request: {request}, signerName: kubernetes.io/kube-apiserver-client, usages: [client auth]}}\n"
        ))?;
    }
    world.tells("kubectl get csr", &["SIGNERNAME", "kubernetes.io/kube-apiserver-client", "Pending"])?;
    world.says(
        "kubectl certificate approve ann",
        "certificatesigningrequest.certificates.k8s.io/ann approved",
    )?;
    world.says("kubectl certificate deny bob", "certificatesigningrequest.certificates.k8s.io/bob denied")?;
    world.tells("kubectl get csr bob", &["Denied"])?;
    world.tells("kubectl get csr ann", &["Approved"])?;
    world.tells(
        "kubectl describe csr ann",
        &["Status:             Approved", "Requesting User:    kubernetes-admin", "Common Name:    ann"],
    )?;
    world.down()
}
