//! Clients other than kubectl against `podwire up`: Python's, a client-go informer, a controller-runtime manager, Helm.
#![cfg(feature = "interop")]

use std::path::Path;

use anyhow::{Result, ensure};
use podwire_tests::world::World;

/// A file of this crate.
fn own(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path).display().to_string()
}

#[test]
fn the_python_client_lists_watches_and_execs() -> Result<()> {
    let world = World::up()?;
    let said = world.ok(&format!("$PODWIRE_PEERS/python/bin/python {}", own("peers/python/client.py")))?;
    for line in [
        "watched True",
        "listed ['snake']",
        "version True",
        "log listening on 80",
        "exec hello python",
        "stdin to and fro",
        "exit 5",
        "patched {'a': 'b', 'c': 'd'}",
        "pages [3, 3, 1]",
        "left 0",
        "applied python",
        "done",
    ] {
        ensure!(said.lines().any(|found| found == line), "{line:?} in {said}");
    }
    world.down()
}

#[test]
fn a_client_go_informer_follows_its_objects() -> Result<()> {
    let world = World::up()?;
    world.ok("kubectl create configmap before --from-literal=colour=red && kubectl label configmap before informed=yes")?;
    let informer = world.start("informer")?;
    let answer = informer.until("/api/v1/namespaces/default/configmaps watch=true")?;
    // One request for the whole state and what follows, in protobuf: nothing fell back to lists or JSON.
    ensure!(
        answer.contains("answer 200 ")
            && answer.contains("initial=true application/vnd.kubernetes.protobuf;stream=watch"),
        "{answer}"
    );
    // Handlers run beside the caches: which of the two speaks first is not said.
    informer.until_all(&[
        "added configmap before colour=red",
        "synced *v1.ConfigMap true",
        "synced *v1.Pod true",
    ])?;
    world.ok("kubectl create configmap later --from-literal=colour=blue && kubectl label configmap later informed=yes")?;
    informer.until("added configmap later colour=blue")?;
    world.ok("kubectl patch configmap later -p '{\"data\":{\"colour\":\"green\"}}'")?;
    informer.until("updated configmap later colour=green")?;
    world.ok("kubectl delete configmap before")?;
    informer.until("deleted configmap before")?;
    world.shell_pod("box")?;
    informer.until("updated pod box Running")?;
    world.ok("kubectl delete pod box")?;
    informer.until("deleted pod box")?;
    world.ok("kubectl create configmap stop")?;
    let (code, rest) = informer.end()?;
    ensure!(code == 0 && rest.contains("listed 1"), "{code} {rest}");
    world.down()
}

#[test]
fn a_client_go_informer_survives_a_restart_of_the_server() -> Result<()> {
    let mut world = World::up()?;
    let informer = world.start("informer")?;
    informer.until("synced")?;
    informer.until("synced")?;
    world.ok("kubectl create configmap one --from-literal=colour=red")?;
    informer.until("added configmap one")?;
    world.node.kill9()?;
    world.node.start()?;
    world.ok("kubectl create configmap two --from-literal=colour=blue")?;
    informer.until("added configmap two colour=blue")?;
    world.ok("kubectl delete configmap one")?;
    informer.until("deleted configmap one")?;
    world.ok("kubectl create configmap stop")?;
    let (code, rest) = informer.end()?;
    ensure!(code == 0, "{code} {rest}");
    world.down()
}

#[test]
fn a_controller_runtime_manager_reconciles_and_hands_over() -> Result<()> {
    let world = World::up()?;
    let first = world.start("manager")?;
    first.until("elected")?;
    let lease = "kubectl get lease podwire-manager -o jsonpath='{.spec.holderIdentity}'";
    ensure!(!world.ok(lease)?.is_empty(), "nobody holds the lease");
    // A second one waits for its turn.
    let second = world.start("manager")?;
    second.until("acquire leader lease")?;

    world.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: wish, labels: {podwire.invalid/wants-pod: \"\"}}\ndata: {image: \"localhost/pod-app:latest\", args: serve 80}\n")?;
    first.until("create wish")?;
    first.until("phase wish Running")?;
    world.until(
        "kubectl get configmap wish -o jsonpath='{.metadata.annotations.podwire\\.invalid/phase}'",
        "Running",
    )?;
    world.says("kubectl get pod wish -o jsonpath='{.metadata.ownerReferences[0].name}'", "wish")?;
    world.tells(
        "kubectl get events --field-selector involvedObject.name=podwire-manager",
        &["LeaderElection"],
    )?;
    // It comes back when somebody takes it away.
    world.ok("kubectl delete pod wish")?;
    first.until("create wish")?;
    first.until("phase wish Running")?;

    first.interrupt()?;
    first.until("stopped")?;
    second.until("elected")?;
    world.ok("kubectl delete configmap wish --timeout=40s")?;
    second.until("release wish")?;
    world.fails("kubectl get pod wish", 1, "NotFound")?;
    drop((first, second));
    world.down()
}

#[test]
fn helm_installs_upgrades_rolls_back_and_uninstalls_a_chart() -> Result<()> {
    let world = World::up()?;
    let chart = own("charts/hello");
    world.tells(
        &format!("helm install greet {chart} --wait --timeout=60s"),
        &["STATUS: deployed", "REVISION: 1", "hello from greet"],
    )?;
    world.says("kubectl exec greet-web -- /pod-app cat /words/greeting", "hello")?;
    world.tells("helm list", &["greet", "deployed", "hello-0.1.0"])?;
    world.tells("helm status greet", &["STATUS: deployed"])?;
    world.tells("helm get manifest greet", &["kind: ConfigMap", "kind: Pod"])?;
    world.tells(
        &format!("helm upgrade greet {chart} --set greeting=servus --wait --timeout=60s"),
        &["REVISION: 2", "servus from greet"],
    )?;
    world.says("kubectl get configmap greet-words -o jsonpath='{.data.greeting}'", "servus")?;
    world.tells("helm history greet", &["superseded", "deployed"])?;
    world.tells("helm rollback greet 1 --wait --timeout=60s", &["Rollback was a success"])?;
    world.says("kubectl get configmap greet-words -o jsonpath='{.data.greeting}'", "hello")?;
    world.tells(&format!("helm template x {chart} --dry-run=server"), &["name: x-words"])?;
    world.tells("helm uninstall greet --wait --timeout=60s", &["release \"greet\" uninstalled"])?;
    world.fails("kubectl get configmap greet-words", 1, "NotFound")?;
    world.fails("kubectl get pod greet-web", 1, "NotFound")?;
    world.says("kubectl get secrets -l owner=helm -o name", "")?;
    world.down()
}
