//! One check: the object, spoiled in one place, gives exactly these complaints.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

fn prepared(group: &str, resource: &str, mut object: Value) -> (&'static Kind, Value) {
    let kind = crate::by_resource(group, "v1", resource).unwrap();
    crate::strict::conform(kind, &mut object).unwrap();
    crate::defaults::apply(kind, &mut object);
    (kind, object)
}

fn good_pod() -> Value {
    json!({"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [{"name": "a", "image": "i"}]}})
}

/// Puts a value at a JSON pointer whose parents exist or can be made.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for part in pointer.split('/').skip(1) {
        at = match part.parse::<usize>() {
            Ok(index) => {
                if !at.is_array() {
                    *at = json!([]);
                }
                let items = at.as_array_mut().unwrap();
                while items.len() <= index {
                    items.push(json!({}));
                }
                &mut items[index]
            }
            Err(_) => &mut at[part],
        };
    }
    *at = value;
}

fn check(group: &str, resource: &str, object: Value, expected: &[&str]) {
    let shown = object.to_string();
    let (kind, object) = prepared(group, resource, object);
    let found: Vec<String> =
        create(kind, &object).iter().map(|e| format!("{}: {}", e.field, e.message)).collect();
    let expected: Vec<String> = expected.iter().map(|e| (*e).to_owned()).collect();
    assert_eq!(found, expected, "{shown}");
}

fn check_pod(pointer: &str, value: Value, expected: &[&str]) {
    let mut pod = good_pod();
    put(&mut pod, pointer, value);
    check("", "pods", pod, expected);
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// A list that is as long as a body can make it must not take time, or complaints memory, by the square of its length.
#[test]
fn long_lists_are_judged_in_time() {
    const MANY: usize = 30_000;
    let named = |key: &str| -> Vec<Value> { (0..MANY).map(|i| json!({key: format!("n{i}")})).collect() };
    let same = |item: Value| vec![item; MANY];
    let pods = crate::by_resource("", "v1", "pods").unwrap();
    for spec in [
        json!({"containers": named("name")}),
        json!({"containers": [{"name": "c", "env": named("name")}]}),
        json!({"containers": [{"name": "c", "ports": same(json!({"containerPort": 80, "hostPort": 80}))}]}),
        json!({"containers": [{"name": "c", "volumeMounts": named("mountPath"), "volumeDevices": named("name")}]}),
        json!({"containers": [{"name": "c", "resources": {"claims": named("name")}}], "resourceClaims": named("name")}),
        json!({"containers": [{"name": "c", "resources": {"claims": named("request")}}], "resourceClaims": named("name")}),
        json!({"containers": [{"name": "c"}], "securityContext": {"sysctls": named("name")}}),
        json!({"containers": [{"name": "c"}], "schedulingGates": named("name"), "imagePullSecrets": named("name")}),
        json!({"containers": [{"name": "c"}], "initContainers": named("name"), "volumes": named("name")}),
    ] {
        let pod = json!({"metadata": {"name": "p", "namespace": "d"}, "spec": spec});
        let begun = std::time::Instant::now();
        let warnings = crate::warnings::on_create(pods, &pod);
        let errors = create(pods, &pod);
        let bytes: usize = errors.iter().map(|e| e.message.len()).sum::<usize>()
            + warnings.iter().map(String::len).sum::<usize>();
        assert!(bytes < 16 << 20, "{bytes} bytes");
        // By the square these took minutes.
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }
}

#[test]
fn long_lists_of_other_kinds_are_judged_in_time() {
    const MANY: usize = 30_000;
    let each = |item: &dyn Fn(usize) -> Value| -> Vec<Value> { (0..MANY).map(item).collect() };
    let named = |i: usize| json!({"name": format!("n{i}")});
    let container = json!({"name": "c", "image": "i"});
    let pod = json!({"containers": [container], "restartPolicy": "Never"});
    let blocks = each(&|i| json!({"ipBlock": {"cidr": format!("10.0.0.{i}/8")}}));
    let claims = each(&|i| json!({"metadata": {"name": format!("n{i}")}}));
    let codes = each(&|i| json!({"action": "Count", "onExitCodes": {"containerName": format!("n{i}")}}));
    for (group, resource, object) in [
        ("networking.k8s.io", "networkpolicies", json!({"spec": {"ingress": [{"from": blocks}]}})),
        ("networking.k8s.io", "ingresses", json!({"spec": {"rules": each(&|_| json!({"host": "*"}))}})),
        ("storage.k8s.io", "storageclasses", json!({"allowedTopologies": each(&|_| json!({}))})),
        ("storage.k8s.io", "csinodes", json!({"spec": {"drivers": each(&named)}})),
        (
            "discovery.k8s.io",
            "endpointslices",
            json!({"addressType": "IPv4", "endpoints": each(&|_| json!({}))}),
        ),
        ("", "nodes", json!({"spec": {"taints": each(&|_| json!({"key": "a"}))}})),
        (
            "apps",
            "statefulsets",
            json!({"spec": {"volumeClaimTemplates": claims, "template": {"spec": {"volumes": each(&named)}}}}),
        ),
        (
            "batch",
            "jobs",
            json!({"spec": {"podFailurePolicy": {"rules": codes}, "template": {"spec": {"containers": each(&named)}}}}),
        ),
        (
            "batch",
            "cronjobs",
            json!({"spec": {"schedule": "1,".repeat(MANY), "jobTemplate": {"spec": {"template": {"spec": pod}}}}}),
        ),
        ("flowcontrol.apiserver.k8s.io", "flowschemas", json!({"spec": {"rules": each(&|_| json!({}))}})),
        (
            "certificates.k8s.io",
            "certificatesigningrequests",
            json!({"spec": {"usages": each(&|i| json!(format!("u{i}"))),
            "request": STANDARD.encode("-----BEGIN A-----\n".repeat(MANY))}}),
        ),
    ] {
        let (kind, mut object) = prepared(group, resource, object);
        object["metadata"] = json!({"name": "x", "namespace": "d"});
        let begun = std::time::Instant::now();
        let mut changed = object.clone();
        changed["metadata"]["labels"] = json!({"a": "b"});
        let errors = create(kind, &object).into_iter().chain(update(kind, &changed, &object));
        let bytes: usize = errors.map(|error| error.message.len()).sum();
        assert!(bytes < 16 << 20, "{resource}: {bytes} bytes");
        assert!(begun.elapsed().as_secs() < 20, "{resource}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_good_pod_passes() {
    check("", "pods", good_pod(), &[]);
}

#[test]
fn broken_pods_are_refused_with_upstreams_words() {
    check_pod("/spec/containers", json!([]), &["spec.containers: Required value"]);
    check_pod("/metadata/name", json!("P"), &[&format!("metadata.name: Invalid value: \"P\": {SUBDOMAIN}")]);
    check_pod("/metadata/namespace", json!(""), &["metadata.namespace: Required value"]);
    check_pod(
        "/spec/containers/0/name",
        json!("A"),
        &[&format!("spec.containers[0].name: Invalid value: \"A\": {LABEL}")],
    );
    check_pod("/spec/containers/0/image", json!(""), &["spec.containers[0].image: Required value"]);
    check_pod(
        "/spec/containers/1",
        json!({"name": "a", "image": "i"}),
        &["spec.containers[1].name: Duplicate value: \"a\""],
    );
    check_pod(
        "/spec/restartPolicy",
        json!("Sometimes"),
        &[
            "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ],
    );
    check_pod(
        "/spec/containers/0/ports/0/containerPort",
        json!(70000),
        &[
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ],
    );
    check_pod(
        "/spec/containers/0/ports/0",
        json!({"containerPort": 80, "protocol": "FOO"}),
        &[
            "spec.containers[0].ports[0].protocol: Unsupported value: \"FOO\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ],
    );
    check_pod(
        "/spec/containers/0/env/0/name",
        json!("a=b"),
        &[
            "spec.containers[0].env[0].name: Invalid value: \"a=b\": a valid environment variable name must consist only of printable ASCII characters other than '='",
        ],
    );
    check_pod(
        "/spec/containers/0/env/0",
        json!({"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
        &[
            "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
        ],
    );
    check_pod(
        "/spec/containers/0/env/0",
        json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.foo"}}}),
        &[
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.foo\": error converting fieldPath: field label not supported: spec.foo",
        ],
    );
    check_pod(
        "/spec/containers/0/volumeMounts/0",
        json!({"name": "v", "mountPath": "/x"}),
        &["spec.containers[0].volumeMounts[0].name: Not found: \"v\""],
    );
    check_pod(
        "/spec/containers/0/resources",
        json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
        &[
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ],
    );
    check_pod(
        "/spec/containers/0/resources",
        json!({"limits": {"foo": "1"}, "requests": {}}),
        &[
            "spec.containers[0].resources.limits[foo]: Invalid value: \"foo\": must be a standard resource type or fully qualified",
            "spec.containers[0].resources.limits[foo]: Invalid value: \"foo\": must be a standard resource for containers",
            "spec.containers[0].resources.requests[foo]: Invalid value: \"foo\": must be a standard resource type or fully qualified",
            "spec.containers[0].resources.requests[foo]: Invalid value: \"foo\": must be a standard resource for containers",
        ],
    );
    check_pod(
        "/spec/containers/0/livenessProbe",
        json!({}),
        &["spec.containers[0].livenessProbe: Required value: must specify a handler type"],
    );
    check_pod(
        "/spec/containers/0/livenessProbe",
        json!({"exec": {"command": ["a"]}, "successThreshold": 2}),
        &["spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"],
    );
    check_pod(
        "/spec/containers/0/securityContext",
        json!({"runAsUser": -1}),
        &[
            "spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ],
    );
    check_pod(
        "/spec/initContainers/0",
        json!({"name": "i", "image": "i", "readinessProbe": {"exec": {"command": ["a"]}}}),
        &[
            "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
        ],
    );
    check_pod(
        "/spec/volumes/0",
        json!({"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}),
        &["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
    );
    check_pod(
        "/spec/volumes/0",
        json!({"name": "v", "hostPath": {"path": "/../etc"}}),
        &["spec.volumes[0].hostPath.path: Invalid value: \"/../etc\": must not contain '..'"],
    );
    check_pod(
        "/spec/volumes/0",
        json!({"name": "v", "configMap": {}}),
        &["spec.volumes[0].configMap.name: Required value"],
    );
    check_pod(
        "/spec/tolerations/0",
        json!({"operator": "Equal", "value": "x"}),
        &[
            "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        ],
    );
    check_pod(
        "/spec/tolerations/0",
        json!({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}),
        &[
            "spec.tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set",
        ],
    );
    check_pod(
        "/spec/activeDeadlineSeconds",
        json!(0),
        &["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
    );
    check_pod(
        "/spec/dnsPolicy",
        json!("None"),
        &["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
    );
    check_pod(
        "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/topologyKey",
        json!("a b"),
        &[
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ],
    );
    check_pod(
        "/metadata/labels/a",
        json!("b c"),
        &[
            "metadata.labels: Invalid value: \"b c\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ],
    );
    check_pod(
        "/spec/ephemeralContainers/0",
        json!({"name": "e", "image": "i"}),
        &["spec.ephemeralContainers: Forbidden: cannot be set on create"],
    );
}

#[test]
fn other_kinds_have_their_rules() {
    let meta = json!({"name": "x", "namespace": "default"});
    check(
        "",
        "configmaps",
        json!({"metadata": meta, "data": {"a b": "1"}}),
        &[
            "data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        ],
    );
    check(
        "",
        "configmaps",
        json!({"metadata": meta, "data": {"a": "x".repeat(2_000_000)}}),
        &["[]: Too long: may not be more than 1048576 bytes"],
    );
    check(
        "",
        "secrets",
        json!({"metadata": meta, "type": "kubernetes.io/tls"}),
        &["data[tls.crt]: Required value", "data[tls.key]: Required value"],
    );
    check(
        "",
        "namespaces",
        json!({"metadata": {"name": "A.b"}}),
        &[&format!("metadata.name: Invalid value: \"A.b\": {LABEL}")],
    );
    check(
        "",
        "namespaces",
        json!({"metadata": {"name": "a", "namespace": "b"}}),
        &["metadata.namespace: Forbidden: not allowed on this type"],
    );
    check(
        "",
        "nodes",
        json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "Foo"}]}}),
        &[
            "metadata.taints[0].effect: Unsupported value: \"Foo\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
        ],
    );
    check(
        "coordination.k8s.io",
        "leases",
        json!({"metadata": meta, "spec": {"leaseDurationSeconds": 0}}),
        &["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
    );
    check(
        "",
        "events",
        json!({"metadata": meta, "involvedObject": {"namespace": "other"}}),
        &["involvedObject.namespace: Invalid value: \"other\": does not match event.namespace"],
    );
    check(
        "apps",
        "deployments",
        json!({"metadata": meta, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "c"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}}}}),
        &[
            "spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` does not match template `labels`",
        ],
    );
    check(
        "",
        "services",
        json!({"metadata": {"name": "1x", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}}),
        &[
            "metadata.name: Invalid value: \"1x\": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ],
    );
    check(
        "",
        "configmaps",
        json!({"metadata": {"name": "x", "namespace": "default", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}}),
        &["metadata.ownerReferences.uid: Invalid value: \"\": must not be empty"],
    );
    check(
        "storage.k8s.io",
        "storageclasses",
        json!({"metadata": {"name": "x"}}),
        &["provisioner: Required value"],
    );
    check(
        "networking.k8s.io",
        "ingresses",
        json!({"metadata": meta}),
        &["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"],
    );
    check(
        "apps",
        "controllerrevisions",
        json!({"metadata": meta}),
        &["data: Required value: data is mandatory"],
    );
    check(
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
        json!({"metadata": {"name": "x"}, "roleRef": {"kind": "Role", "name": "r"}}),
        &["roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\""],
    );
    assert_eq!(binding(&json!({"target": {"kind": "Foo"}})).len(), 2);
}

#[test]
fn claims_and_slices_have_their_rules() {
    let meta = json!({"name": "x", "namespace": "default"});
    let claim = |requests: Value| json!({"metadata": meta, "spec": {"devices": {"requests": requests}}});
    check(
        "resource.k8s.io",
        "resourceclaims",
        claim(json!([{"name": "a", "exactly": {"deviceClassName": "c"}}])),
        &[],
    );
    check(
        "resource.k8s.io",
        "resourceclaims",
        claim(json!([{"name": "a"}])),
        &[
            "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
        ],
    );
    check(
        "resource.k8s.io",
        "resourceclaims",
        claim(json!([{"name": "a", "exactly": {"allocationMode": "All", "count": 2}}])),
        &[
            "spec.devices.requests[0].exactly.deviceClassName: Required value",
            "spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'",
        ],
    );
    check(
        "resource.k8s.io",
        "resourceslices",
        json!({"metadata": {"name": "s"}, "spec": {"driver": "d.example", "pool": {"name": "n", "resourceSliceCount": 1}, "devices": [{"name": "a"}, {"name": "a"}]}}),
        &[
            "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
            "spec.devices[1]: Duplicate value: \"a\"",
        ],
    );
    let (kind, old) = prepared(
        "resource.k8s.io",
        "resourceclaims",
        claim(json!([{"name": "a", "exactly": {"deviceClassName": "c"}}])),
    );
    let mut new = old.clone();
    put(&mut new, "/spec/devices/requests/0/name", json!("b"));
    assert!(summary(&update(kind, &new, &old)).ends_with("field is immutable"));
}

#[test]
fn most_of_a_pod_cannot_be_updated() {
    let mut old = good_pod();
    put(&mut old, "/spec/tolerations/0", json!({"key": "a", "operator": "Exists"}));
    let (kind, old) = prepared("", "pods", old);
    for (pointer, value, expected) in [
        ("/spec/containers/0/image", json!("other"), ""),
        ("/metadata/labels", json!({"a": "b"}), ""),
        ("/spec/tolerations/1", json!({"key": "b", "operator": "Exists"}), ""),
        ("/spec/activeDeadlineSeconds", json!(10), ""),
        (
            "/spec/tolerations/0/key",
            json!("z"),
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
        (
            "/spec/containers/1",
            json!({"name": "b", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File"}),
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ),
        ("/spec/nodeName", json!("n"), "spec: Forbidden: pod updates may not change fields other than"),
        ("/metadata/uid", json!("u"), "metadata.uid: Invalid value: \"u\": field is immutable"),
    ] {
        let mut new = old.clone();
        put(&mut new, pointer, value);
        let found = update(kind, &new, &old);
        let shown = if found.is_empty() { String::new() } else { summary(&found) };
        assert!(shown.starts_with(expected) && shown.is_empty() == expected.is_empty(), "{pointer}: {shown}");
    }
}

#[test]
fn immutable_data_and_ended_containers_stay() {
    let (kind, old) = prepared(
        "",
        "configmaps",
        json!({"metadata": {"name": "x", "namespace": "d"}, "data": {"a": "1"}, "immutable": true}),
    );
    let mut new = old.clone();
    put(&mut new, "/data/a", json!("2"));
    assert_eq!(
        summary(&update(kind, &new, &old)),
        "data: Forbidden: field is immutable when `immutable` is set"
    );

    let mut ended = good_pod();
    put(&mut ended, "/spec/restartPolicy", json!("Never"));
    put(
        &mut ended,
        "/status",
        json!({"qosClass": "BestEffort", "containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 0}}}]}),
    );
    let pods = crate::by_resource("", "v1", "pods").unwrap();
    let mut back = ended.clone();
    put(&mut back, "/status/containerStatuses/0/state", json!({"running": {}}));
    assert_eq!(
        summary(&update_part(pods, crate::Part::Status, &back, &ended)),
        "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    );
    put(&mut back, "/status", json!({"qosClass": "Burstable"}));
    assert_eq!(
        summary(&update_part(pods, crate::Part::Status, &back, &ended)),
        "status.qosClass: Invalid value: \"Burstable\": field is immutable"
    );
}
