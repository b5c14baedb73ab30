//! The life of pods from kubectl's side: run, logs, wait, and every way to delete.

use anyhow::{Result, ensure};

use crate::world::{BOX, World, shell_pod};

#[test]
fn kubectl_runs_a_pod() -> Result<()> {
    let world = World::up()?;
    let run = |rest: &str| format!("kubectl run --image={BOX} --image-pull-policy=IfNotPresent {rest}");
    world.says(&run("quick --restart=Never -- sh -c 'echo said; exit 0'"), "pod/quick created")?;
    world.ok("kubectl wait --for=jsonpath='{.status.phase}'=Succeeded pod/quick --timeout=40s")?;
    world.says("kubectl logs quick", "said")?;
    // Attached, removed afterwards, with the exit code of the container.
    let seen =
        world.run(&run("once --rm -i --restart=Never --quiet -- sh -c 'cat; exit 0' < /etc/hostname"))?;
    ensure!(seen.code == 0, "{seen:?}");
    world.fails("kubectl get pod once", 1, "NotFound")?;
    let seven =
        world.run(&run("seven --rm -i --restart=Never --quiet -- sh -c 'sleep 1; exit 7' </dev/null"))?;
    ensure!(seven.code == 7, "{seven:?}");
    world.says(&run("dry --dry-run=client -o name"), "pod/dry")?;
    world.says(
        &run("port --port=80 --expose --restart=Never --labels=app=port --env=A=B"),
        "service/port created\npod/port created",
    )?;
    world.says("kubectl get service port -o jsonpath='{.spec.selector.app}'", "port")?;
    world.ok("kubectl wait --for=condition=Ready pod/port --timeout=40s")?;
    world.says("kubectl exec port -- sh -c 'echo $A'", "B")?;
    world.ok("kubectl delete pod --all --now")?;
    world.down()
}

#[test]
fn kubectl_reads_logs_in_every_way() -> Result<()> {
    let world = World::up()?;
    world.apply(&format!(
        r#"apiVersion: v1
kind: Pod
metadata: {{name: two, labels: {{app: two}}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: count, image: "{BOX}", imagePullPolicy: IfNotPresent, command: [sh, -c, "seq 1 20; exec sleep 1000"]}}
  - {{name: other, image: "{BOX}", imagePullPolicy: IfNotPresent, command: [sh, -c, "echo from the other; test -e /data/again && exec sleep 1000; sleep 0.3; exit 1"], volumeMounts: [{{name: kept, mountPath: /data}}]}}
  volumes: [{{name: kept, emptyDir: {{}}}}]
"#
    ))?;
    world.until("kubectl logs two -c count | wc -l", "20")?;
    world.says("kubectl logs two -c count --tail=2", "19\n20")?;
    world.says("kubectl logs two count --tail=1", "20")?;
    world.says("kubectl logs two -c count --limit-bytes=4", "1\n2")?;
    world.says("kubectl logs two -c count --since=1h | wc -l", "20")?;
    world.says("kubectl logs two -c count --timestamps --tail=1 | grep -c '^20..-..-..T.*Z 20$'", "1")?;
    let first = world.run("kubectl logs two --tail=1")?;
    ensure!(
        first.out == "20\n" && first.err.contains("Defaulted container \"count\" out of: count, other"),
        "{first:?}"
    );
    world.tells("kubectl logs two --all-containers --tail=1", &["20", "from the other"])?;
    world.tells(
        "kubectl logs -l app=two --all-containers --prefix --tail=1",
        &["[pod/two/count] 20", "[pod/two/other] from the other"],
    )?;
    world.fails("kubectl logs two -c nobody", 1, "container nobody is not valid for pod two")?;
    world.fails("kubectl logs nobody", 1, "pods \"nobody\" not found")?;
    world.until("kubectl logs two -c other --previous", "from the other")?;
    world.fails(
        "kubectl logs two -c count --previous",
        1,
        "previous terminated container \"count\" in pod \"two\" not found",
    )?;
    let follow = world.start("kubectl logs -f two -c count --tail=1")?;
    follow.until("20")?;
    world.ok("kubectl delete pod two --now")?;
    let (code, _) = follow.end()?;
    ensure!(code == 0, "following ended with {code}");
    world.down()
}

#[test]
fn kubectl_waits() -> Result<()> {
    let world = World::up()?;
    let waiting = world.start("kubectl wait --for=create configmap/late --timeout=40s")?;
    let gone = world.start("kubectl wait --for=delete pod/box --timeout=60s")?;
    world.shell_pod("box")?;
    world.ok("kubectl create configmap late")?;
    let (code, said) = waiting.end()?;
    ensure!(code == 0 && said.contains("configmap/late condition met"), "{code} {said}");
    world.says("kubectl wait --for=condition=Ready pod -l app=box --timeout=20s", "pod/box condition met")?;
    world.says("kubectl wait --for=jsonpath='{.status.phase}'=Running pod/box", "pod/box condition met")?;
    world.fails(
        "kubectl wait --for=condition=Ready=false pod/box --timeout=1s",
        1,
        "error: timed out waiting for the condition on pods/box",
    )?;
    world.fails("kubectl wait --for=condition=Ready pod/nobody --timeout=5s", 1, "NotFound")?;
    // The first wait for a deletion may have found nothing and gone; a new one sees it.
    drop(gone);
    let gone = world.start("kubectl wait --for=delete pod/box --timeout=60s")?;
    world.ok("kubectl delete pod box --wait=false")?;
    let (code, said) = gone.end()?;
    ensure!(code == 0, "{code} {said}");
    world.says("kubectl wait --for=delete pod/box --timeout=10s", "")?;
    world.down()
}

#[test]
fn kubectl_deletes_in_every_way() -> Result<()> {
    let world = World::up()?;
    for name in ["a", "b", "c", "d", "e"] {
        world.apply(&shell_pod(name))?;
    }
    // Deaf to SIGTERM: only force ends it at once.
    world.apply(
        &shell_pod("deaf").replace("exit 0", "true").replace("PeriodSeconds: 1", "PeriodSeconds: 300"),
    )?;
    world.ok("kubectl wait --for=condition=Ready pod --all --timeout=60s")?;
    world.says("kubectl delete pod a", "pod \"a\" deleted from default namespace")?;
    world.says("kubectl delete pod/b --now", "pod \"b\" deleted from default namespace")?;
    world.says("kubectl delete pod -l app=c --wait=true", "pod \"c\" deleted from default namespace")?;
    world.says(
        "kubectl delete pod d --dry-run=server",
        "pod \"d\" deleted from default namespace (server dry run)",
    )?;
    world.ok("kubectl get pod d")?;
    world.says("kubectl delete pod d --grace-period=0 --wait=false -o name", "pod/d")?;
    let forced = world.run("kubectl delete pod deaf --grace-period=0 --force")?;
    ensure!(
        forced.code == 0
            && forced.out.contains("pod \"deaf\" force deleted")
            && forced.err.contains("Immediate deletion"),
        "{forced:?}"
    );
    world.fails("kubectl delete pod nobody", 1, "pods \"nobody\" not found")?;
    world.says("kubectl delete pod nobody --ignore-not-found", "")?;
    world.ok("kubectl delete pods --all")?;
    world.says("kubectl get pods -o name", "")?;

    world.ok("for name in one two three; do kubectl create configmap $name; done")?;
    world.says(
        "kubectl delete configmap three --cascade=background",
        "configmap \"three\" deleted from default namespace",
    )?;
    world.tells("kubectl delete configmap/one configmap/two", &["\"one\" deleted", "\"two\" deleted"])?;
    owner_and_child(&world, "orphan")?;
    world.says("kubectl get configmap child -o 'jsonpath={.metadata.ownerReferences}'", "")?;
    world.ok("kubectl delete configmap child")?;
    owner_and_child(&world, "foreground")?;
    world.says("kubectl get configmap child --ignore-not-found", "")?;
    owner_and_child(&world, "background")?;
    world.ok("kubectl wait --for=delete configmap/child --timeout=40s")?;
    world.says(
        "kubectl create namespace gone && kubectl delete namespace gone --timeout=40s",
        "namespace/gone created\nnamespace \"gone\" deleted",
    )?;
    world.node.assert_no_pod_residue()?;
    world.down()
}

/// Makes a config map that another owns, and deletes the owner in this way.
fn owner_and_child(world: &World, cascade: &str) -> Result<()> {
    let uid = world.ok("kubectl create configmap owner -o 'jsonpath={.metadata.uid}'")?;
    let owner = format!(
        "{{apiVersion: v1, kind: ConfigMap, name: owner, uid: {}, blockOwnerDeletion: true}}",
        uid.trim()
    );
    world.apply(&format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: child, ownerReferences: [{owner}]}}}}"
    ))?;
    let words = "configmap \"owner\" deleted from default namespace";
    world.says(&format!("kubectl delete configmap owner --cascade={cascade} --timeout=40s"), words)
}
