//! Commands that write objects: apply both ways, create, replace, diff, edit, patch, set, scale, rollout, kustomize.

use anyhow::{Result, ensure};

use crate::world::World;

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: \"1\", b: \"2\"}\n";

#[test]
fn kubectl_applies_on_the_client_s_side() -> Result<()> {
    let world = World::up()?;
    world.write("m.yaml", MAP)?;
    world.says("kubectl apply -f m.yaml --dry-run=server", "configmap/m created (server dry run)")?;
    world.fails("kubectl get configmap m", 1, "NotFound")?;
    world.says("kubectl apply -f m.yaml --dry-run=client", "configmap/m created (dry run)")?;
    // Nothing there yet: diff shows the whole object and exits with 1.
    let diff = world.run("kubectl diff -f m.yaml")?;
    ensure!(diff.code == 1 && diff.out.contains("+  name: m"), "{diff:?}");
    world.says("kubectl apply -f m.yaml", "configmap/m created")?;
    world.says("kubectl apply -f m.yaml", "configmap/m unchanged")?;
    let diff = world.run("kubectl diff -f m.yaml")?;
    ensure!(diff.code == 0 && diff.out.is_empty(), "{diff:?}");

    world.write("m.yaml", &MAP.replace("a: \"1\", b: \"2\"", "a: \"1\", c: \"3\""))?;
    let diff = world.run("kubectl diff -f m.yaml")?;
    ensure!(
        diff.code == 1 && diff.out.contains("-  b: \"2\"") && diff.out.contains("+  c: \"3\""),
        "{diff:?}"
    );
    world.tells("kubectl apply view-last-applied configmap/m", &["b: \"2\""])?;
    world.says("kubectl apply -f m.yaml", "configmap/m configured")?;
    world.says("kubectl get configmap m -o jsonpath='{.data}'", r#"{"a":"1","c":"3"}"#)?;
    world.says("kubectl apply set-last-applied -f m.yaml", "configmap/m configured")?;
    world.says("cat m.yaml | kubectl apply -f - -o name", "configmap/m")?;

    // What was applied before and is not any more, goes.
    world.write(
        "set/one.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, labels: {set: one}}\n",
    )?;
    world.write(
        "set/two.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: two, labels: {set: one}}\n",
    )?;
    world.says("kubectl apply -f set", "configmap/one created\nconfigmap/two created")?;
    world.ok("rm set/two.yaml")?;
    world.tells(
        "kubectl apply -f set --prune -l set=one --prune-allowlist=core/v1/ConfigMap",
        &["configmap/one unchanged", "configmap/two pruned"],
    )?;
    world.fails("kubectl get configmap two", 1, "NotFound")?;
    world.says("kubectl delete -f m.yaml", "configmap \"m\" deleted from default namespace")?;
    world.down()
}

#[test]
fn kubectl_applies_on_the_server_s_side() -> Result<()> {
    let world = World::up()?;
    world.write("m.yaml", MAP)?;
    world.says("kubectl apply --server-side -f m.yaml", "configmap/m serverside-applied")?;
    world.says(
        "kubectl apply --server-side -f m.yaml --dry-run=server",
        "configmap/m serverside-applied (server dry run)",
    )?;
    world.write(
        "theirs.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: theirs, z: theirs}\n",
    )?;
    let refused = world.fails(
        "kubectl apply --server-side --field-manager=theirs -f theirs.yaml",
        1,
        "error: Apply failed with 1 conflict: conflict with \"kubectl\": .data.a",
    )?;
    ensure!(refused.err.contains("--force-conflicts"), "{refused:?}");
    world.says("kubectl get configmap m -o jsonpath='{.data.a}{.data.z}'", "1")?;
    world.says(
        "kubectl apply --server-side --field-manager=theirs --force-conflicts -f theirs.yaml",
        "configmap/m serverside-applied",
    )?;
    world.says("kubectl get configmap m -o jsonpath='{.data}'", r#"{"a":"theirs","b":"2","z":"theirs"}"#)?;
    // The first manager lost `a`; giving it up costs nothing, and `b` goes when its manager drops it.
    world.write("m.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {q: mine}\n")?;
    world.says("kubectl apply --server-side -f m.yaml", "configmap/m serverside-applied")?;
    world
        .says("kubectl get configmap m -o jsonpath='{.data}'", r#"{"a":"theirs","q":"mine","z":"theirs"}"#)?;
    world.tells(
        "kubectl get configmap m -o yaml --show-managed-fields",
        &["manager: kubectl\n", "manager: theirs\n", "operation: Apply", "f:q: {}"],
    )?;
    let diff = world.run("sed -i s/mine/yours/ m.yaml; kubectl diff --server-side -f m.yaml")?;
    ensure!(diff.code == 1 && diff.out.contains("+  q: yours"), "{diff:?}");

    // From one side to the other: the fields of client-side apply pass to the new manager.
    world.write("n.yaml", &MAP.replace("name: m", "name: n2"))?;
    world.says("kubectl apply -f n.yaml", "configmap/n2 created")?;
    world.write("n.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: n2}\ndata: {a: \"1\"}\n")?;
    world.says("kubectl apply --server-side -f n.yaml", "configmap/n2 serverside-applied")?;
    world.says("kubectl get configmap n2 -o jsonpath='{.data}'", r#"{"a":"1"}"#)?;
    world.fails(
        "printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: n2}\\ndatum: {}\\n' | kubectl apply --server-side -f -",
        1,
        "unknown field \"datum\"",
    )?;
    world.down()
}

#[test]
fn kubectl_creates_every_kind_it_has_a_verb_for() -> Result<()> {
    let world = World::up()?;
    for (line, made) in [
        ("namespace team", "namespace/team"),
        ("configmap cm --from-literal=a=b --from-file=host=/etc/hostname", "configmap/cm"),
        ("secret generic s --from-literal=a=b", "secret/s"),
        ("secret docker-registry d --docker-username=u --docker-password=p --docker-server=r", "secret/d"),
        ("serviceaccount robot", "serviceaccount/robot"),
        ("deployment web --image=localhost/web --replicas=2 --port=80", "deployment.apps/web"),
        ("job once --image=localhost/job -- run me", "job.batch/once"),
        ("cronjob daily --image=localhost/job --schedule='0 3 * * *'", "cronjob.batch/daily"),
        ("service clusterip inner --tcp=80:8080", "service/inner"),
        ("service nodeport outer --tcp=80:8080", "service/outer"),
        ("service loadbalancer balanced --tcp=80", "service/balanced"),
        ("service externalname far --external-name=example.invalid", "service/far"),
        ("ingress in --rule=a.invalid/x=inner:80", "ingress.networking.k8s.io/in"),
        ("poddisruptionbudget calm --selector=app=web --min-available=1", "poddisruptionbudget.policy/calm"),
        ("priorityclass high --value=1000", "priorityclass.scheduling.k8s.io/high"),
        ("quota q --hard=pods=10", "resourcequota/q"),
        ("role r --verb=get --resource=pods", "role.rbac.authorization.k8s.io/r"),
        ("rolebinding rb --role=r --user=u", "rolebinding.rbac.authorization.k8s.io/rb"),
        ("clusterrole cr --verb=get --resource=nodes", "clusterrole.rbac.authorization.k8s.io/cr"),
        (
            "clusterrolebinding crb --clusterrole=cr --group=g",
            "clusterrolebinding.rbac.authorization.k8s.io/crb",
        ),
    ] {
        world.says(&format!("kubectl create --dry-run=server -o name {line}"), made)?;
        world.says(&format!("kubectl create {line}"), &format!("{made} created"))?;
        world.fails(&format!("kubectl create {line}"), 1, "already exists")?;
        world.tells(&format!("kubectl get {made}"), &["NAME"])?;
        world.tells(&format!("kubectl describe {made}"), &["Name:"])?;
    }
    world.says("kubectl create job again --from=cronjob/daily", "job.batch/again created")?;
    world.says(
        "kubectl autoscale deployment web --min=1 --max=3 --cpu=50%",
        "horizontalpodautoscaler.autoscaling/web autoscaled",
    )?;
    world.says(
        "kubectl get horizontalpodautoscalers.v1.autoscaling web -o jsonpath='{.apiVersion}{.spec.maxReplicas}'",
        "autoscaling/v13",
    )?;
    world.tells("kubectl get hpa web", &["NAME", "web"])?;
    world.says("kubectl create token robot | tr -cd . | wc -c", "2")?;
    world.says("kubectl expose deployment web --port=80 --target-port=8080", "service/web exposed")?;
    world.says(
        "kubectl get service web -o jsonpath='{.spec.selector.app}{.spec.ports[0].targetPort}'",
        "web8080",
    )?;
    world.write("made.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: made-}\n")?;
    world.tells("kubectl create -f made.yaml", &["configmap/made-", " created"])?;
    world.fails("kubectl create -f made.yaml --namespace=nowhere", 1, "namespaces \"nowhere\" not found")?;
    world.fails("kubectl create configmap Bad_Name", 1, "a lowercase RFC 1123 subdomain")?;
    world.fails(
        "kubectl create deployment big --image=x --replicas=-2",
        1,
        "must be greater than or equal to 0",
    )?;
    world.says("kubectl delete deployment,service -l app=web", "deployment.apps \"web\" deleted from default namespace\nservice \"web\" deleted from default namespace")?;
    world.down()
}

#[test]
fn kubectl_changes_objects_in_every_way() -> Result<()> {
    let world = World::up()?;
    world.write("m.yaml", MAP)?;
    world.ok("kubectl create -f m.yaml --save-config")?;
    world.ok("kubectl get configmap m -o yaml | sed 's/a: \"1\"/a: replaced/' > r.yaml")?;
    world.says("kubectl replace -f r.yaml", "configmap/m replaced")?;
    world.fails(
        "kubectl replace -f r.yaml",
        1,
        "the object has been modified; please apply your changes to the latest version and try again",
    )?;
    world.says(
        "kubectl replace --force -f m.yaml",
        "configmap \"m\" deleted from default namespace\nconfigmap/m replaced",
    )?;
    world.fails(
        "sed s/m/x/g m.yaml | sed 's/xetadata/metadata/' | kubectl replace -f - --validate=false",
        1,
        "",
    )?;

    world.write("editor", "sed -i 's/a: \"1\"/a: edited/' $1")?;
    world.says("EDITOR='sh ./editor' kubectl edit configmap m", "configmap/m edited")?;
    world.says("kubectl get configmap m -o jsonpath='{.data.a}'", "edited")?;
    let same = world.run("EDITOR=true kubectl edit configmap m")?;
    ensure!(same.code == 0 && same.err.contains("Edit cancelled, no changes made."), "{same:?}");
    world.fails(
        "EDITOR=\"sed -i s/^data:/datum:/\" kubectl edit configmap m",
        1,
        "configmaps \"m\" is invalid",
    )?;

    world.says("kubectl label configmap m tier=one", "configmap/m labeled")?;
    world.fails(
        "kubectl label configmap m tier=two",
        1,
        "already has a value (one), and --overwrite is false",
    )?;
    world.says("kubectl label configmap m tier=two --overwrite", "configmap/m labeled")?;
    world.says("kubectl label configmaps -l tier=two tier-", "configmap/m unlabeled")?;
    world.fails("kubectl label configmap m 'bad key=1'", 1, "")?;
    world.says("kubectl annotate configmap m note='a b'", "configmap/m annotated")?;
    world.says("kubectl annotate configmap m note- kept=yes", "configmap/m annotated")?;
    world.says("kubectl annotate --list configmap m", "kept=yes")?;

    world.says("kubectl patch configmap m -p '{\"data\":{\"s\":\"m\"}}'", "configmap/m patched")?;
    world
        .says("kubectl patch configmap m --type=merge -p '{\"data\":{\"s\":null}}'", "configmap/m patched")?;
    world.says(
        "kubectl patch configmap m --type=json -p '[{\"op\":\"test\",\"path\":\"/data/a\",\"value\":\"edited\"},{\"op\":\"add\",\"path\":\"/data/j\",\"value\":\"p\"}]'",
        "configmap/m patched",
    )?;
    world.says("kubectl patch configmap m -p '{}'", "configmap/m patched (no change)")?;
    world.fails(
        "kubectl patch configmap m --type=json -p '[{\"op\":\"test\",\"path\":\"/data/a\",\"value\":\"other\"}]'",
        1,
        "the server rejected our request due to an error in our request",
    )?;
    world.says("kubectl get configmap m -o jsonpath='{.data}'", r#"{"a":"edited","b":"2","j":"p"}"#)?;
    world.says("kubectl patch node node1 --subresource=status -p '{\"status\":{\"capacity\":{\"example.invalid/x\":\"3\"}}}'", "node/node1 patched")?;
    world.ok("kubectl delete -f m.yaml")?;
    world.down()
}

#[test]
fn kubectl_sets_scales_and_rolls_out() -> Result<()> {
    let world = World::up()?;
    world.ok("kubectl create deployment web --image=localhost/web:1 --replicas=0")?;
    let image = "kubectl get deployment web -o jsonpath='{.spec.template.spec.containers[0].image}'";
    world
        .says("kubectl set image deployment/web web=localhost/web:2", "deployment.apps/web image updated")?;
    world.says(image, "localhost/web:2")?;
    world.says("kubectl set env deployment/web A=1 B=2", "deployment.apps/web env updated")?;
    world.says("kubectl set env deployment/web A-", "deployment.apps/web env updated")?;
    world.tells("kubectl set env deployment/web --list", &["B=2"])?;
    world.says(
        "kubectl set resources deployment web --limits=cpu=200m,memory=64Mi",
        "deployment.apps/web resource requirements updated",
    )?;
    world.says(
        "kubectl get deployment web -o jsonpath='{.spec.template.spec.containers[0].resources.limits}'",
        r#"{"cpu":"200m","memory":"64Mi"}"#,
    )?;
    world.says(
        "kubectl set serviceaccount deployment web default",
        "deployment.apps/web serviceaccount updated",
    )?;
    world.says("kubectl create service clusterip web --tcp=80", "service/web created")?;
    world.says("kubectl set selector service web tier=front", "service/web selector updated")?;
    world.says(
        "kubectl set last-applied -h >/dev/null; kubectl get service web -o jsonpath='{.spec.selector}'",
        r#"{"tier":"front"}"#,
    )?;
    world.ok("kubectl create rolebinding rb --clusterrole=view --user=a")?;
    world.says(
        "kubectl set subject rolebinding rb --user=b",
        "rolebinding.rbac.authorization.k8s.io/rb subjects updated",
    )?;

    world.says("kubectl scale deployment web --replicas=3", "deployment.apps/web scaled")?;
    world.says("kubectl get deployment web -o jsonpath='{.spec.replicas}'", "3")?;
    world.says(
        "kubectl get deployment web --subresource=scale -o jsonpath='{.kind}{.spec.replicas}'",
        "Scale3",
    )?;
    world.fails(
        "kubectl scale deployment web --current-replicas=9 --replicas=1",
        1,
        "Expected replicas to be 9, was 3",
    )?;
    world.says(
        "kubectl scale deployment web --current-replicas=3 --replicas=0",
        "deployment.apps/web scaled",
    )?;

    world.says("kubectl rollout pause deployment/web", "deployment.apps/web paused")?;
    world.fails("kubectl rollout pause deployment/web", 1, "is already paused")?;
    world.says("kubectl rollout resume deployment/web", "deployment.apps/web resumed")?;
    world.says("kubectl rollout restart deployment/web", "deployment.apps/web restarted")?;
    world.tells("kubectl get deployment web -o yaml", &["kubectl.kubernetes.io/restartedAt:"])?;
    world.down()
}

/// The replica set a deployment's controller would make for a revision.
const REVISION: &str = r#"
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: web-REV
  labels: {app: web}
  annotations: {deployment.kubernetes.io/revision: "REV"}
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: UID, controller: true}]
spec:
  replicas: 0
  selector: {matchLabels: {app: web, pod-template-hash: "REV"}}
  template:
    metadata: {labels: {app: web, pod-template-hash: "REV"}}
    spec: {containers: [{name: web, image: "localhost/web:REV"}]}
"#;

#[test]
fn kubectl_follows_and_undoes_a_rollout() -> Result<()> {
    let world = World::up()?;
    world.ok("kubectl create deployment web --image=localhost/web:2 --replicas=0")?;
    let uid = world.ok("kubectl get deployment web -o jsonpath='{.metadata.uid}'")?;
    // No controller makes these yet, so the test does.
    world.ok("kubectl annotate deployment web deployment.kubernetes.io/revision=2")?;
    for revision in ["1", "2"] {
        let set = REVISION.replace("REV", revision).replace("UID", uid.trim());
        world.ok(&format!("kubectl apply -f - <<'END'{set}END"))?;
    }
    world.tells(
        "kubectl rollout history deployment/web",
        &["REVISION", "1         <none>", "2         <none>"],
    )?;
    world.tells("kubectl rollout history deployment/web --revision=1", &["localhost/web:1"])?;
    let generation = world.ok("kubectl get deployment web -o jsonpath='{.metadata.generation}'")?;
    let seen = format!(r#"{{"status":{{"observedGeneration":{}}}}}"#, generation.trim());
    world.ok(&format!("kubectl patch deployment web --subresource=status --type=merge -p '{seen}'"))?;
    world.says("kubectl rollout status deployment/web", "deployment \"web\" successfully rolled out")?;
    world.says("kubectl rollout undo deployment/web --to-revision=1", "deployment.apps/web rolled back")?;
    let image = "kubectl get deployment web -o jsonpath='{.spec.template.spec.containers[0].image}'";
    world.says(image, "localhost/web:1")?;
    world.down()
}

#[test]
fn kubectl_builds_and_applies_a_kustomization() -> Result<()> {
    let world = World::up()?;
    world.write("k/kustomization.yaml", "namePrefix: pre-\nlabels: [{pairs: {from: kustomize}}]\nresources: [m.yaml]\nconfigMapGenerator: [{name: gen, literals: [x=y]}]\n")?;
    world.write("k/m.yaml", MAP)?;
    world.tells("kubectl kustomize k", &["name: pre-m", "from: kustomize", "name: pre-gen-"])?;
    world.tells("kubectl apply -k k", &["configmap/pre-m created", "configmap/pre-gen-"])?;
    world.says("kubectl get -k k -o name | wc -l", "2")?;
    world.tells("kubectl apply -k k", &["configmap/pre-m unchanged"])?;
    world.says("kubectl diff -k k", "")?;
    world.tells("kubectl delete -k k", &["configmap \"pre-m\" deleted"])?;
    world.says("kubectl get configmaps -l from=kustomize -o name", "")?;
    world.down()
}
