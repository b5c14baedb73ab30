//! Commands that only look: get in all its shapes, describe, explain, discovery, events, top, auth.

use anyhow::{Result, ensure};

use crate::world::World;

/// Two pods of one label, one of another; none of them fits on the node, so that nothing changes while we look.
const PODS: &str = r#"
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a, labels: {app: red, rank: "2"}}, spec: &spec {nodeSelector: {no: where}, containers: [{name: main, image: "localhost/pod-app:latest"}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: b, labels: {app: red, rank: "1"}}, spec: *spec}
- {apiVersion: v1, kind: Pod, metadata: {name: c, labels: {app: blue, rank: "3"}}, spec: *spec}
"#;

#[test]
fn kubectl_gets_in_every_shape() -> Result<()> {
    let world = World::up()?;
    world.tells("kubectl version", &["Client Version: v1.36.4", "Server Version: v1.36.4"])?;
    let created = world.apply(PODS)?;
    ensure!(created == "pod/a created\npod/b created\npod/c created\n", "{created}");
    world.says("kubectl get pods -o name", "pod/a\npod/b\npod/c")?;
    world.says("kubectl get pods -l app=red -o name", "pod/a\npod/b")?;
    world.says("kubectl get pods -l 'app in (blue,green),rank!=1' -o name", "pod/c")?;
    world.says("kubectl get pods --field-selector metadata.name=b -o name", "pod/b")?;
    world.says(
        "kubectl get pods --field-selector spec.nodeName=,status.phase!=Running -o name | wc -l",
        "3",
    )?;
    world.fails(
        "kubectl get pods --field-selector spec.colour=red",
        1,
        "Error from server (BadRequest): Unable to find \"/v1, Resource=pods\" that match label selector \"\", field selector \"spec.colour=red\": field label not supported: spec.colour",
    )?;
    world.fails("kubectl get pods -l 'a b'", 1, "unable to parse requirement: found 'b'")?;
    world.says("kubectl get pod a -o jsonpath='{.metadata.labels.app}'", "red")?;
    world.says("kubectl get pods -o jsonpath='{range .items[*]}{.metadata.name}{\" \"}{end}'", "a b c")?;
    world.says(
        "kubectl get pods -o custom-columns=NAME:.metadata.name,APP:.metadata.labels.app",
        "NAME   APP\na      red\nb      red\nc      blue",
    )?;
    world.says("kubectl get pods --sort-by=.metadata.labels.rank -o name", "pod/b\npod/a\npod/c")?;
    world.says("kubectl get pods --sort-by=.metadata.labels.rank --no-headers | cut -c1", "b\na\nc")?;
    world.says("kubectl get pod a -o go-template='{{.metadata.name}}/{{.kind}}'", "a/Pod")?;
    world.says("kubectl get pods --chunk-size=1 -o name", "pod/a\npod/b\npod/c")?;
    world.says("kubectl get pods --chunk-size=2 --no-headers | wc -l", "3")?;
    world.tells("kubectl get pods --show-labels", &["LABELS", "app=blue,rank=3"])?;
    world.tells("kubectl get pods -L app", &["APP", "blue"])?;
    world.tells("kubectl get pod a -o yaml", &["apiVersion: v1\nkind: Pod\n", "    app: red\n"])?;
    world.tells("kubectl get pods -A", &["NAMESPACE", "default"])?;
    world.tells("kubectl get pod/a pod/b ns/default", &["pod/a", "pod/b", "namespace/default"])?;
    world.tells("kubectl get -f manifest.yaml", &["NAME", "Pending"])?;
    world
        .tells("kubectl get pod a --show-managed-fields -o yaml", &["manager: kubectl-client-side-apply"])?;
    world.tells("kubectl get all", &["pod/a", "service/kubernetes"])?;
    world.says("kubectl get pods -o json | grep -c '\"kind\": \"Pod\"'", "3")?;
    world.says("kubectl get --raw /readyz", "ok")?;
    world.tells("kubectl get --raw '/livez?verbose'", &["[+]ping ok", "livez check passed"])?;
    world.tells("kubectl get --raw /api/v1/namespaces/default/pods/a", &["\"kind\":\"Pod\""])?;
    world.fails("kubectl get pod nobody", 1, "Error from server (NotFound): pods \"nobody\" not found")?;
    world.says("kubectl get pod nobody --ignore-not-found", "")?;
    world.fails("kubectl get unicorns", 1, "error: the server doesn't have a resource type \"unicorns\"")?;
    let empty = world.run("kubectl get pods -n kube-public")?;
    ensure!(empty.err == "No resources found in kube-public namespace.\n", "{empty:?}");
    world.ok("kubectl delete -f manifest.yaml")?;
    world.down()
}

#[test]
fn kubectl_watches() -> Result<()> {
    let world = World::up()?;
    let table = world.start("kubectl get configmaps -w --output-watch-events --no-headers")?;
    table.until("kube-root-ca.crt")?;
    let events = world.start("kubectl get configmaps -w --output-watch-events -o json -l w=yes")?;
    world.ok("kubectl create configmap seen --from-literal=a=b")?;
    ensure!(table.until("seen")?.starts_with("ADDED"), "not ADDED");
    // It enters and leaves the selection of the third watch by its label.
    world.ok("kubectl label configmap seen w=yes")?;
    ensure!(table.until("seen")?.starts_with("MODIFIED"), "not MODIFIED");
    events.until("\"type\":\"ADDED\"")?;
    world.ok("kubectl label configmap seen w-")?;
    events.until("\"type\":\"DELETED\"")?;
    world.ok("kubectl delete configmap seen")?;
    table.until("MODIFIED")?;
    ensure!(table.until("seen")?.starts_with("DELETED"), "not DELETED");
    // This one shows nothing of what was there before it; nobody knows when it began.
    let names = world.start("kubectl get configmaps --watch-only -o name")?;
    podwire_testkit::eventually("a change is seen", crate::world::PATIENCE, || {
        world
            .ok("kubectl create configmap again && kubectl delete configmap again")
            .map_err(|e| e.to_string())?;
        names.hears("configmap/again", std::time::Duration::from_millis(500))
    })?;
    drop((table, names, events));
    world.down()
}

#[test]
fn kubectl_describes_and_explains() -> Result<()> {
    let world = World::up()?;
    world.shell_pod("box")?;
    world.tells(
        "kubectl describe pod box",
        &["Name:             box", "Status:           Running", "Container ID:", "Events:", "Started"],
    )?;
    world.tells(
        "kubectl describe node node1",
        &[
            "Roles:",
            "Conditions:",
            "Ready ",
            "Capacity:",
            "Allocatable:",
            "Non-terminated Pods:          (1 in total)",
            "HolderIdentity:  node1",
        ],
    )?;
    world.ok("kubectl create deployment web --image=x --replicas=2")?;
    world.tells("kubectl describe deployment web", &["Replicas:", "2 desired", "Pod Template:"])?;
    world.tells("kubectl describe namespace default", &["Status:       Active", "No resource quota."])?;
    world.tells("kubectl describe service kubernetes", &["Type:", "ClusterIP", "443/TCP"])?;
    world.ok("kubectl create secret generic s --from-literal=k=vvv")?;
    world.tells("kubectl describe secret s", &["k:  3 bytes"])?;
    world.tells("kubectl describe serviceaccount default", &["Name:", "default"])?;
    world.tells(
        "kubectl explain pod",
        &["KIND:       Pod", "VERSION:    v1", "FIELDS:", "spec\t<PodSpec>", "metadata\t<ObjectMeta>"],
    )?;
    world.tells("kubectl explain pod.spec.containers.image", &["FIELD: image <string>"])?;
    world.tells("kubectl explain pods.spec.containers", &["<[]Container>", "name\t<string> -required-"])?;
    world.tells(
        "kubectl explain deploy --recursive",
        &["GROUP:      apps", "matchLabels\t<map[string]string>"],
    )?;
    world.tells("kubectl explain hpa --api-version=autoscaling/v1", &["VERSION:    v1"])?;
    world.fails("kubectl explain pod.spec.colour", 1, "error: field \"colour\" does not exist")?;
    world.ok("kubectl delete pod box")?;
    world.down()
}

#[test]
fn kubectl_learns_what_the_server_serves() -> Result<()> {
    let world = World::up()?;
    world.tells(
        "kubectl api-resources",
        &["NAME ", "SHORTNAMES", "APIVERSION", "pods ", " po ", "deployments", "apps/v1"],
    )?;
    world.tells(
        "kubectl api-resources --api-group=apps -o name",
        &["deployments.apps", "statefulsets.apps"],
    )?;
    world.tells("kubectl api-resources --namespaced=false -o name", &["nodes", "namespaces"])?;
    world.tells(
        "kubectl api-resources -o wide --verbs=list,watch",
        &["create,delete,deletecollection,get,list,patch,update,watch"],
    )?;
    let versions = world.ok("kubectl api-versions")?;
    for version in ["v1", "apps/v1", "batch/v1", "resource.k8s.io/v1", "autoscaling/v1", "autoscaling/v2"] {
        ensure!(versions.lines().any(|line| line == version), "{version} in {versions}");
    }
    world.tells("kubectl cluster-info", &["Kubernetes control plane", "is running at", "https://"])?;
    world.tells(
        "kubectl cluster-info dump --output-directory=dump >/dev/null && ls dump",
        &["default", "kube-system", "nodes.json"],
    )?;
    // There is no metrics server here, and kubectl says so.
    world.fails("kubectl top pods", 1, "error: Metrics API not available")?;
    world.fails("kubectl top nodes", 1, "error: Metrics API not available")?;
    world.tells("kubectl config view --minify", &["server: https://"])?;
    world.tells("kubectl options", &["--kubeconfig"])?;
    world.down()
}

#[test]
fn kubectl_asks_who_may_do_what() -> Result<()> {
    let world = World::up()?;
    world.says("kubectl auth can-i create pods", "yes")?;
    world.says("kubectl auth can-i '*' '*'", "yes")?;
    world.tells("kubectl auth whoami", &["ATTRIBUTE", "Username", "Groups", "system:masters"])?;
    world.tells("kubectl auth can-i --list", &["Resources", "*.*", "[*]"])?;
    let no = world.run("kubectl auth can-i create pods --as=nobody")?;
    ensure!(no.code == 1 && no.out.trim() == "no", "{no:?}");
    world.fails(
        "kubectl get pods --as=nobody",
        1,
        "Error from server (Forbidden): pods is forbidden: User \"nobody\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"",
    )?;
    world.says(
        "kubectl create role reader --verb=get,list --resource=pods",
        "role.rbac.authorization.k8s.io/reader created",
    )?;
    world.says(
        "kubectl create rolebinding nobody-reads --role=reader --user=nobody",
        "rolebinding.rbac.authorization.k8s.io/nobody-reads created",
    )?;
    world.says("kubectl auth can-i list pods --as=nobody", "yes")?;
    world.tells("kubectl auth can-i --list --as=nobody", &["pods", "[get list]"])?;
    world.ok("kubectl get pods --as=nobody")?;
    world.fails("kubectl get pods --as=nobody -n kube-system", 1, "Forbidden")?;

    // A service account's token is a way in, with that account's rights.
    world.says("kubectl create serviceaccount robot", "serviceaccount/robot created")?;
    world.ok("kubectl create rolebinding robot-reads --role=reader --serviceaccount=default:robot")?;
    let bearer = "kubectl --kubeconfig=robot.kubeconfig";
    world.ok("sed '/client-certificate\\|client-key/d' $KUBECONFIG > robot.kubeconfig")?;
    world.ok(&format!(
        "{bearer} config set-credentials robot --token=$(kubectl create token robot --duration=20m) && {bearer} config set-context --current --user=robot"
    ))?;
    world.tells(
        &format!("{bearer} auth whoami"),
        &["system:serviceaccount:default:robot", "system:serviceaccounts"],
    )?;
    world.ok(&format!("{bearer} get pods"))?;
    world.fails(&format!("{bearer} get secrets"), 1, "Forbidden")?;
    world.write(
        "rbac.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: fresh, namespace: default}\nrules: [{apiGroups: [\"\"], resources: [configmaps], verbs: [get]}]\n",
    )?;
    world
        .tells("kubectl auth reconcile -f rbac.yaml", &["role.rbac.authorization.k8s.io/fresh reconciled"])?;
    world.down()
}

#[test]
fn kubectl_shows_events() -> Result<()> {
    let world = World::up()?;
    world.shell_pod("box")?;
    world.tells("kubectl events --for pod/box", &["Normal", "Scheduled", "Started", "Pod/box"])?;
    world.tells("kubectl events --types=Normal", &["Created"])?;
    world
        .tells("kubectl get events --field-selector involvedObject.name=box,reason=Started", &["Started"])?;
    world.tells("kubectl get events.v1.events.k8s.io -o name", &["event.events.k8s.io/box."])?;
    let follow = world.start("kubectl events -w --for pod/box")?;
    follow.until("Scheduled")?;
    world.ok("kubectl delete pod box")?;
    follow.until("Killing")?;
    drop(follow);
    world.down()
}
