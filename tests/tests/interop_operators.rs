//! Operators that other people wrote, unmodified, with the definitions that they ship: they install them and reconcile.
#![cfg(feature = "interop")]

use anyhow::Result;
use podwire_testkit::operators;
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

/// A job that waits for kueue, in a queue, with a class of priority.
fn job(name: &str, script: &str) -> String {
    format!(
        r#"apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  labels: {{kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/priority-class: high}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: localhost/box:latest
        imagePullPolicy: Never
        command: [sh, -c, "{script}"]
        resources: {{requests: {{cpu: 600m}}}}
"#
    )
}

#[test]
fn kueue_admits_jobs_with_its_webhooks_of_admission_and_conversion() -> Result<()> {
    let world = World::up()?;
    operators::prepare_kueue(&world.path(""))?;
    world.ok(&format!("kubectl apply --server-side -f {}", operators::KUEUE_INSTALL))?;
    world.ok("kubectl wait --for=condition=Established crd --all --timeout=30s")?;
    // Pods of jobs are the work of upstream's controllers.
    let controllers = world.start(
        "kube-controller-manager --kubeconfig=$KUBECONFIG --controllers=job-controller --leader-elect=false \
         --secure-port=0 2>&1",
    )?;
    // It makes its certificates and tells its own definitions and webhooks of them.
    let kueue = world.start(&format!("kueue --config {} > kueue.log 2>&1", operators::KUEUE_CONFIG))?;
    world.until(&operators::mount_kueue_certificate(), "mounted")?;
    world.until("busybox wget -qO- http://127.0.0.1:8081/readyz", "ok")?;
    // The definitions store v1beta2.
    world.apply(
        r#"apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team}
spec:
  cohort: research
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 1}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: main}
spec: {clusterQueue: team}
"#,
    )?;
    let queue = |version: &str, path: &str| {
        format!("kubectl get clusterqueues.{version}.kueue.x-k8s.io team -o jsonpath='{path}'")
    };
    world.says(&queue("v1beta1", "{.apiVersion} {.spec.cohort}"), "kueue.x-k8s.io/v1beta1 research")?;
    world.says(&queue("v1beta2", "{.apiVersion} {.spec.cohortName}"), "kueue.x-k8s.io/v1beta2 research")?;
    // One webhook changed it, another one refuses what is wrong.
    world.says(&queue("v1beta2", "{.metadata.finalizers[0]}"), "kueue.x-k8s.io/resource-in-use")?;
    let negative = r#"[{"op":"replace","path":"/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota","value":"-1"}]"#;
    world.fails(
        &format!("kubectl patch clusterqueues.v1beta1.kueue.x-k8s.io team --type=json -p '{negative}'"),
        1,
        "vclusterqueue.kb.io",
    )?;
    world.until(&queue("v1beta1", "{.status.conditions[?(@.type==\"Active\")].status}"), "True")?;

    world.apply(&job("first", "sleep 1000"))?;
    let suspended = |name: &str| format!("kubectl get job {name} -o jsonpath='{{.spec.suspend}}'");
    world.until(&suspended("first"), "false")?;
    world.until("kubectl get job first -o jsonpath='{.status.ready}'", "1")?;
    // The workload of it in both versions, which say the same in other words.
    let workload = |version: &str, path: &str| {
        format!(
            "kubectl get workloads.{version}.kueue.x-k8s.io -o jsonpath='{{range .items[*]}}{path}{{end}}'"
        )
    };
    let first = "{.apiVersion} {.spec.priorityClassSource} {.spec.priorityClassName} {.spec.priority}";
    world.says(
        &workload("v1beta1", first),
        "kueue.x-k8s.io/v1beta1 kueue.x-k8s.io/workloadpriorityclass high 1000",
    )?;
    let second = "{.apiVersion} {.spec.priorityClassRef.kind} {.spec.priorityClassRef.name} {.spec.priority}";
    world.says(&workload("v1beta2", second), "kueue.x-k8s.io/v1beta2 WorkloadPriorityClass high 1000")?;
    world.tells("kubectl get workloads.v1beta1.kueue.x-k8s.io", &["ADMITTED", "main", "team", "True"])?;

    // The next one has no room until the first one is gone; somebody who speaks the old version sees it happen.
    world.apply(&job("next", "true"))?;
    let named = "kubectl get workloads.v1beta1.kueue.x-k8s.io -l kueue.x-k8s.io/job-uid=$(kubectl get job next -o \
                 jsonpath='{.metadata.uid}') -o name";
    world.until(
        &format!(
            "kubectl get $({named}) -o jsonpath='{{.status.conditions[?(@.type==\"QuotaReserved\")].status}}'"
        ),
        "False",
    )?;
    world.says(&suspended("next"), "true")?;
    let sees =
        world.start(&format!("kubectl wait --for=condition=Finished --timeout=60s $({named}) 2>&1"))?;
    world.ok("kubectl delete job first --timeout=60s")?;
    world.until("kubectl get job next -o jsonpath='{.status.succeeded}'", "1")?;
    sees.until("condition met")?;
    world.ok("kubectl delete job next --timeout=60s")?;
    world.until("kubectl get pods -o name", "")?;

    // Without it the version that is stored is all there is.
    kueue.interrupt()?;
    kueue.end()?;
    world.fails(
        "kubectl get clusterqueues.v1beta1.kueue.x-k8s.io team",
        1,
        "conversion webhook for kueue.x-k8s.io/v1beta2, Kind=ClusterQueue failed",
    )?;
    world.says(&queue("v1beta2", "{.spec.cohortName}"), "research")?;
    controllers.interrupt()?;
    world.down()
}
