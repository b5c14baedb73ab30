//! Operators that other people wrote, unmodified, with the definitions that they ship: they install them and reconcile.
#![cfg(feature = "interop")]

use anyhow::Result;
use podwire_tests::world::World;

/// Installs the definitions of an operator and sees that they are served.
fn install(world: &World, operator: &str) -> Result<()> {
    world.ok(&format!("kubectl apply --server-side -f $PODWIRE_PEERS/{operator}.manifests"))?;
    world.ok("kubectl wait --for=condition=Established crd --all --timeout=30s").map(drop)
}

#[test]
fn argo_rollouts_rolls_out() -> Result<()> {
    let world = World::up()?;
    install(&world, "argo-rollouts")?;
    // Replica sets are the work of upstream's controllers; ours have none for them.
    let controllers = world.start(
        "kube-controller-manager --kubeconfig=$KUBECONFIG --controllers=replicaset-controller --leader-elect=false \
         --secure-port=0 2>&1",
    )?;
    let operator = world.start("argo-rollouts --kubeconfig $KUBECONFIG --leader-elect=false 2>&1")?;
    world.apply(
        r#"apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  strategy: {canary: {steps: [{setWeight: 50}, {pause: {}}]}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "localhost/pod-app:latest", imagePullPolicy: Never, command: [/pod-app], args: [serve, "80"]}]
"#,
    )?;
    world.until(
        "kubectl get rollout web -o jsonpath='{.status.phase} {.status.availableReplicas}'",
        "Healthy 2",
    )?;
    // The columns are the definition's.
    world.tells("kubectl get rollout web", &["DESIRED", "CURRENT", "UP-TO-DATE", "AVAILABLE"])?;
    // A change stops half way, as the steps say, and goes on when it is told to.
    let change = r#"[{"op":"replace","path":"/spec/template/spec/containers/0/args/1","value":"81"}]"#;
    world.ok(&format!("kubectl patch rollout web --type=json -p '{change}'"))?;
    world.until(
        "kubectl get rollout web -o jsonpath='{.status.phase} {.status.updatedReplicas}'",
        "Paused 1",
    )?;
    world.ok("kubectl patch rollout web --subresource=status --type=merge -p '{\"status\":{\"promoteFull\":true}}'")?;
    world.until(
        "kubectl get rollout web -o jsonpath='{.status.phase} {.status.updatedReplicas}'",
        "Healthy 2",
    )?;
    world.ok("kubectl scale rollout web --replicas=1")?;
    world.until(
        "kubectl get rollout web -o jsonpath='{.status.phase} {.status.availableReplicas}'",
        "Healthy 1",
    )?;
    world.ok("kubectl delete rollout web --timeout=60s")?;
    world.until("kubectl get replicasets,pods -l app=web -o name", "")?;
    operator.interrupt()?;
    controllers.interrupt()?;
    world.down()
}

#[test]
fn prometheus_operator_makes_what_its_resources_ask_for() -> Result<()> {
    let world = World::up()?;
    install(&world, "prometheus-operator")?;
    // It reads no kubeconfig.
    let keep = |what: &str, file: &str, pipe: &str| {
        world.ok(&format!("kubectl config view --raw -o jsonpath='{{{what}}}' {pipe} > {file}"))
    };
    keep(".clusters[0].cluster.server", "server", "")?;
    keep(".clusters[0].cluster.certificate-authority-data", "ca", "| base64 -d")?;
    keep(".users[0].user.client-certificate-data", "cert", "| base64 -d")?;
    keep(".users[0].user.client-key-data", "key", "| base64 -d")?;
    let operator = world.start(
        "prometheus-operator --apiserver=$(cat server) --ca-file=ca --cert-file=cert --key-file=key \
         --web.listen-address=127.0.0.1:0 \
         --prometheus-config-reloader=localhost/pod-app:latest 2>&1",
    )?;
    world.apply(
        r#"apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {name: main}
spec: {replicas: 0, image: "localhost/pod-app:latest", serviceMonitorSelector: {}, ruleSelector: {}}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: rules}
spec: {groups: [{name: g, rules: [{alert: Down, expr: "up == 0", for: 1m}]}]}
"#,
    )?;
    world.until(
        "kubectl get statefulset prometheus-main -o jsonpath='{.metadata.ownerReferences[0].kind}'",
        "Prometheus",
    )?;
    world.until(
        "kubectl get prometheus main -o jsonpath='{.status.conditions[?(@.type==\"Reconciled\")].status}'",
        "True",
    )?;
    world.tells("kubectl get configmap prometheus-main-rulefiles-0 -o yaml", &["alert: Down"])?;
    // What the definition forbids is refused, by field.
    world.fails(
        "kubectl patch prometheus main --type=merge -p '{\"spec\":{\"logLevel\":\"loud\"}}'",
        1,
        "spec.logLevel: Unsupported value",
    )?;
    world.ok("kubectl delete prometheus main --timeout=60s")?;
    world.until("kubectl get statefulsets -o name", "")?;
    operator.interrupt()?;
    world.down()
}
