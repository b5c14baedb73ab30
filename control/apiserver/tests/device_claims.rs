//! Claims and what they are made of: who may write which part of a claim's status, what a namespace must be marked with,
//! what is judged before it is stored, and what the server adds and takes away.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use podwire_apiserver::{ApiService, Identity};
use serde_json::{Value, json};
use server::{Answer, Server, send, start};

const GROUP: &str = "/apis/resource.k8s.io/v1";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MERGE: &str = "application/merge-patch+json";

async fn call(service: &ApiService, method: &str, path: &str, body: &Value) -> Answer {
    let media = if method == "PATCH" { MERGE } else { "application/json" };
    send(service, method, path, &[("content-type", media)], body.to_string()).await
}

async fn make(server: &Server, path: &str, object: &Value) -> Value {
    let made = server.post(path, object).await;
    assert_eq!(made.code, 201, "{path}: {}", made.text);
    made.body
}

/// Lets somebody do things everywhere, and waits until the server knows.
async fn grant(server: &Server, user: &str, rules: Value) {
    let name = user.replace(':', ".");
    make(server, &format!("{RBAC}/clusterroles"), &json!({"metadata": {"name": name}, "rules": rules})).await;
    let binding = json!({"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": name},
                         "subjects": [{"kind": "User", "name": user}]});
    make(server, &format!("{RBAC}/clusterrolebindings"), &binding).await;
    let service = server.client(Identity::new(user, &[]));
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    while send(&service, "GET", CLAIMS, &[], "").await.code != 200 {
        assert!(tokio::time::Instant::now() < deadline, "{user} was granted rights and has none");
        tokio::task::yield_now().await;
    }
}

/// What everybody needs who writes the status of claims.
fn writes_status() -> Value {
    json!({"apiGroups": ["resource.k8s.io"], "verbs": ["get", "list", "update", "patch"],
           "resources": ["resourceclaims", "resourceclaims/status"]})
}

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "c"}}]}}})
}

fn admin_claim(name: &str) -> Value {
    let mut claim = claim(name);
    claim["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = true.into();
    claim
}

/// A device of a driver, given on a node.
fn allocated(driver: &str, node: &str) -> Value {
    json!({"status": {"allocation": {
        "devices": {"results": [{"request": "r", "driver": driver, "pool": "p", "device": "d"}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [node]}]}]}}}})
}

fn told(driver: &str, interface: &str) -> Value {
    json!({"status": {"devices": [{"driver": driver, "pool": "p", "device": "d",
                                   "networkData": {"interfaceName": interface}}]}})
}

/// The words of the one complaint, after its field.
fn complaint(answer: &Answer) -> (&str, &str) {
    assert_eq!(answer.code, 422, "{}", answer.text);
    let causes = answer.body["details"]["causes"].as_array().unwrap();
    assert_eq!(causes.len(), 1, "{}", answer.text);
    (causes[0]["field"].as_str().unwrap(), causes[0]["message"].as_str().unwrap())
}

#[tokio::test]
async fn allocating_and_reserving_takes_a_right_of_its_own() {
    let server = start().await;
    make(&server, CLAIMS, &claim("a")).await;
    grant(&server, "ann", json!([writes_status()])).await;
    let ann = server.client(Identity::new("ann", &[]));
    let status = format!("{CLAIMS}/a/status");
    for (method, verb) in [("PATCH", "patch"), ("PUT", "update")] {
        let body = if method == "PUT" {
            let mut whole = claim("a");
            whole["status"] = allocated("d.example", "n1")["status"].clone();
            whole
        } else {
            allocated("d.example", "n1")
        };
        let refused = call(&ann, method, &status, &body).await;
        assert_eq!(
            complaint(&refused),
            (
                "status.allocation",
                format!(
                    "Forbidden: changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", \
                     verb=\"{verb}\" permission: resourceclaims.resource.k8s.io is forbidden: User \"ann\" cannot {verb} resource \
                     \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope"
                )
                .as_str()
            )
        );
    }
    let same = call(&ann, "PATCH", &status, &json!({"status": {}})).await;
    assert_eq!(same.code, 200, "{}", same.text);
    // The scheduler has the right by a role that every cluster begins with.
    let scheduler = server.as_user("scheduler");
    let given = call(&scheduler, "PATCH", &status, &allocated("d.example", "n1")).await;
    assert_eq!(given.code, 200, "{}", given.text);
    let user = json!({"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}});
    assert_eq!(complaint(&call(&ann, "PATCH", &status, &user).await).0, "status.allocation");
    assert_eq!(call(&scheduler, "PATCH", &status, &user).await.code, 200);
    // So does the controller that takes it back.
    let controller = "system:serviceaccount:kube-system:resource-claim-controller";
    let controller = server.client(Identity::new(controller, &[]));
    let free = json!({"status": {"allocation": null, "reservedFor": null}});
    assert_eq!(complaint(&call(&ann, "PATCH", &status, &free).await).0, "status.allocation");
    let freed = call(&controller, "PATCH", &status, &free).await;
    assert_eq!(freed.code, 200, "{}", freed.text);
    assert_eq!(freed.body["status"], json!({}));
    server.stop().await;
}

/// A driver whose pod runs on a node.
fn driver(server: &Server, node: &str) -> ApiService {
    let mut identity = Identity::new("system:serviceaccount:default:driver", &["system:serviceaccounts"]);
    identity.extra.insert("authentication.kubernetes.io/node-name".to_owned(), vec![node.to_owned()]);
    server.client(identity)
}

#[tokio::test]
async fn a_driver_tells_of_its_own_devices_on_its_own_node() {
    let server = start().await;
    for (name, driver, node) in
        [("here", "d.example", "n1"), ("there", "d.example", "n2"), ("foreign", "e.example", "n1")]
    {
        make(&server, CLAIMS, &claim(name)).await;
        let (scheduler, given) = (server.as_user("scheduler"), allocated(driver, node));
        let given = call(&scheduler, "PATCH", &format!("{CLAIMS}/{name}/status"), &given).await;
        assert_eq!(given.code, 200, "{}", given.text);
    }
    let own = |verb: &str| {
        json!([writes_status(), {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/driver"],
               "resourceNames": ["d.example"], "verbs": [verb]}])
    };
    grant(&server, "system:serviceaccount:default:driver", own("associated-node:patch")).await;
    grant(&server, "manager", own("arbitrary-node:patch")).await;
    let (n1, manager) = (driver(&server, "n1"), server.client(Identity::new("manager", &[])));
    let path = |name: &str| format!("{CLAIMS}/{name}/status");
    let said = call(&n1, "PATCH", &path("here"), &told("d.example", "eth1")).await;
    assert_eq!(said.code, 200, "{}", said.text);
    assert_eq!(said.body["status"]["devices"][0]["networkData"]["interfaceName"], "eth1");
    let refusal = |user: &str, verb: &str, name: &str| {
        format!(
            "permission: resourceclaims.resource.k8s.io \"{name}\" is forbidden: User \"{user}\" cannot {verb} resource \
             \"resourceclaims/driver\" in API group \"resource.k8s.io\" in the namespace \"default\""
        )
    };
    let account = "system:serviceaccount:default:driver";
    let both = "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[associated-node:patch arbitrary-node:patch]\"";
    let any = "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[arbitrary-node:patch]\"";
    let one = "Forbidden: ";
    // Another's device, another's node, no node at all, and a kubelet.
    let refused = call(&n1, "PATCH", &path("foreign"), &told("e.example", "eth1")).await;
    let words = format!("{one}{both} {}", refusal(account, "associated-node:patch", "e.example"));
    assert_eq!(complaint(&refused), ("status.devices", words.as_str()));
    let words = format!("{one}{any} {}", refusal(account, "arbitrary-node:patch", "d.example"));
    for (service, name) in [
        (n1.clone(), "there"),
        (driver(&server, "n2"), "here"),
        (server.client(Identity::new(account, &[])), "here"),
    ] {
        let refused = call(&service, "PATCH", &path(name), &told("d.example", "eth2")).await;
        assert_eq!(complaint(&refused), ("status.devices", words.as_str()));
    }
    let kubelet = call(&server.as_user("n1"), "PATCH", &path("here"), &told("d.example", "eth2")).await;
    assert_eq!(kubelet.code, 403, "{}", kubelet.text);
    // What is taken back is told too.
    let nothing = json!({"status": {"devices": null}});
    assert_eq!(call(&driver(&server, "n2"), "PATCH", &path("here"), &nothing).await.code, 422);
    assert_eq!(call(&n1, "PATCH", &path("here"), &nothing).await.code, 200);
    for name in ["here", "there"] {
        let said = call(&manager, "PATCH", &path(name), &told("d.example", "eth3")).await;
        assert_eq!(said.code, 200, "{}", said.text);
    }
    let refused = call(&manager, "PATCH", &path("foreign"), &told("e.example", "eth3")).await;
    assert_eq!(complaint(&refused).0, "status.devices");
    // Who takes the devices away needs no word of their driver.
    let free = json!({"status": {"allocation": null, "devices": null}});
    let freed = call(&server.as_user("scheduler"), "PATCH", &path("here"), &free).await;
    assert_eq!((freed.code, &freed.body["status"]), (200, &json!({})), "{}", freed.text);
    server.stop().await;
}

#[tokio::test]
async fn the_token_of_a_drivers_pod_says_where_it_runs() {
    let server = start().await;
    let core = "/api/v1/namespaces/default";
    for node in ["n1", "n2"] {
        make(&server, "/api/v1/nodes", &json!({"metadata": {"name": node}})).await;
    }
    make(&server, &format!("{core}/serviceaccounts"), &json!({"metadata": {"name": "driver"}})).await;
    let pod = json!({"metadata": {"name": "driver"}, "spec": {"nodeName": "n1", "serviceAccountName": "driver",
        "containers": [{"name": "c", "image": "i"}]}});
    make(&server, &format!("{core}/pods"), &pod).await;
    grant(
        &server,
        "system:serviceaccount:default:driver",
        json!([writes_status(), {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/driver"],
               "verbs": ["associated-node:patch"]}]),
    )
    .await;
    let asked = json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "driver"}}});
    let token = make(&server, &format!("{core}/serviceaccounts/driver/token"), &asked).await;
    let bearer = format!("Bearer {}", token["status"]["token"].as_str().unwrap());
    for (node, code) in [("n1", 200), ("n2", 422)] {
        make(&server, CLAIMS, &claim(node)).await;
        let path = format!("{CLAIMS}/{node}/status");
        assert_eq!(server.patch(&path, MERGE, &allocated("d.example", node)).await.code, 200);
        let headers = [("content-type", MERGE), ("authorization", bearer.as_str())];
        let body = told("d.example", "eth1").to_string();
        let said = send(&server.nobody(), "PATCH", &path, &headers, body).await;
        assert_eq!(said.code, code, "{}", said.text);
    }
    server.stop().await;
}

#[tokio::test]
async fn devices_that_others_use_are_for_marked_namespaces() {
    let server = start().await;
    let words = "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    let template =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"spec": admin_claim(name)["spec"]}});
    let templates = format!("{GROUP}/namespaces/default/resourceclaimtemplates");
    let field = "spec.devices.requests[0].adminAccess";
    assert_eq!(complaint(&server.post(CLAIMS, &admin_claim("a")).await), (field, words));
    assert_eq!(complaint(&server.post(&templates, &template("a")).await), (field, words));
    make(&server, CLAIMS, &claim("plain")).await;
    let mut granted = allocated("d.example", "n1");
    granted["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = true.into();
    let status = format!("{CLAIMS}/plain/status");
    let refused = server.patch(&status, MERGE, &granted).await;
    assert_eq!(complaint(&refused), ("status.allocation.devices.results[0].adminAccess", words));
    for value in ["TRUE", "true"] {
        let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": value}}});
        assert_eq!(server.patch("/api/v1/namespaces/default", MERGE, &label).await.code, 200);
        let answer = server.post(CLAIMS, &admin_claim("a")).await;
        assert_eq!(answer.code, if value == "true" { 201 } else { 422 }, "{}", answer.text);
    }
    make(&server, &templates, &template("a")).await;
    assert_eq!(server.patch(&status, MERGE, &granted).await.code, 200);
    // What was granted stays when the mark goes.
    let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": null}}});
    assert_eq!(server.patch("/api/v1/namespaces/default", MERGE, &label).await.code, 200);
    let user = json!({"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}});
    assert_eq!(server.patch(&status, MERGE, &user).await.code, 200);
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(server.patch(&format!("{CLAIMS}/a"), MERGE, &labelled).await.code, 200);
    server.stop().await;
}

#[tokio::test]
async fn what_was_said_of_a_device_goes_when_it_is_given_back_and_metadata_stays() {
    let server = start().await;
    make(&server, CLAIMS, &claim("a")).await;
    let status = format!("{CLAIMS}/a/status");
    assert_eq!(server.patch(&status, MERGE, &allocated("d.example", "n1")).await.code, 200);
    let mut said = told("d.example", "eth1");
    said["metadata"] =
        json!({"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["a.example/b"]});
    let answer = server.patch(&status, MERGE, &said).await;
    assert_eq!(answer.code, 200, "{}", answer.text);
    assert_eq!(answer.body["status"]["devices"][0]["device"], "d");
    for key in ["labels", "annotations", "finalizers"] {
        assert!(answer.body["metadata"][key].is_null(), "{key}");
    }
    let freed = server.patch(&status, MERGE, &json!({"status": {"allocation": null}})).await;
    assert_eq!((freed.code, &freed.body["status"]), (200, &json!({})), "{}", freed.text);
    server.stop().await;
}

#[tokio::test]
async fn selectors_are_compiled_before_they_are_stored_and_those_that_are_stored_stay() {
    let server = start().await;
    let classes = format!("{GROUP}/deviceclasses");
    let class = |name: &str, expression: &str| json!({"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}});
    let field = "spec.selectors[0].cel.expression";
    for (expression, words) in [
        (
            "device.nothing",
            "Invalid value: \"device.nothing\": compilation failed: ERROR: <input>:1:7: undefined field 'nothing'\n | device.nothing\n | ......^",
        ),
        (
            "device.driver",
            "Invalid value: \"device.driver\": must evaluate to bool or the unknown type, not string",
        ),
        (
            "device.attributes.all(d, device.attributes.all(e, device.attributes.all(f, device.attributes.all(g, d + e + f + g != ''))))",
            "Forbidden: too complex, exceeds cost limit",
        ),
    ] {
        let refused = server.post(&classes, &class("a", expression)).await;
        assert_eq!(complaint(&refused), (field, words));
    }
    let kept = make(&server, &classes, &class("a", "device.driver == 'd.example'")).await;
    assert_eq!(kept["metadata"]["generation"], 1);
    let worse = json!({"spec": {"selectors": [{"cel": {"expression": "device.nothing"}}]}});
    assert_eq!(complaint(&server.patch(&format!("{classes}/a"), MERGE, &worse).await).0, field);
    // One that a later version stored, with what is only there from then on, does not stand in the way of a label.
    use podwire_store::{Guard, Op, Store};
    let key = "/registry/deviceclasses/a";
    let stored = server.store.get(key).await.unwrap().unwrap();
    let text = String::from_utf8(stored.value.to_vec()).unwrap();
    let later = text.replace("device.driver == 'd.example'", "device.driver.includes('d.example')");
    assert_ne!(later, text);
    let op = Op::Put { value: later.into(), ttl: None };
    server.store.txn(key, Guard::ModRevision(stored.mod_revision), op).await.unwrap();
    let label =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"extendedResourceName": "example.com/a"}});
    let labelled = server.patch(&format!("{classes}/a"), MERGE, &label).await;
    assert_eq!(labelled.code, 200, "{}", labelled.text);
    assert_eq!(labelled.body["metadata"]["generation"], 2);
    let fresh = server.post(&classes, &class("b", "device.driver.includes('d.example')")).await;
    assert_eq!(complaint(&fresh).0, field);
    server.stop().await;
}

#[tokio::test]
async fn many_long_selectors_are_judged_like_few() {
    let server = start().await;
    let classes = format!("{GROUP}/deviceclasses");
    let long = |at: usize, end: &str| {
        let expression = format!("{}device.driver == 'd{at}' && {end}", " ".repeat(9_000));
        json!({"cel": {"expression": expression}})
    };
    let class = |end: &str| {
        let mut selectors: Vec<Value> = (0..31).map(|at| long(at, "true")).collect();
        selectors.push(long(31, end));
        json!({"metadata": {"name": "a"}, "spec": {"selectors": selectors}})
    };
    let refused = server.post(&classes, &class("nothing")).await;
    let (field, words) = complaint(&refused);
    assert_eq!(field, "spec.selectors[31].cel.expression");
    assert!(words.contains("undeclared reference to 'nothing'"), "{words}");
    make(&server, &classes, &class("true")).await;
    server.stop().await;
}

#[tokio::test]
async fn taints_get_their_time_and_drivers_with_capitals_a_warning() {
    let server = start().await;
    let slices = format!("{GROUP}/resourceslices");
    let slice = |driver: &str, taints: Value| {
        json!({"metadata": {"name": "a"}, "spec": {"driver": driver, "nodeName": "n", "pool": {"name": "p", "generation": 1,
            "resourceSliceCount": 1}, "devices": [{"name": "d", "taints": taints, "attributes": {"a": {"ints": [1], "int": 1}}}]}})
    };
    let taint = json!([{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "None", "timeAdded": "2020-01-01T00:00:00Z"}]);
    let made = server.post(&slices, &slice("D.example", taint.clone())).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let words = "299 - \"spec.driver: driver names should be lowercase; \\\"D.example\\\" contains uppercase characters\"";
    assert_eq!(made.headers["warning"], words);
    let device = &made.body["spec"]["devices"][0];
    assert_eq!(device["taints"][0]["timeAdded"], made.body["metadata"]["creationTimestamp"]);
    assert_eq!(device["taints"][1]["timeAdded"], "2020-01-01T00:00:00Z");
    assert_eq!(device["attributes"], json!({"a": {"int": 1}}), "lists as attributes are not there yet");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let labelled = server.patch(&format!("{slices}/a"), MERGE, &label).await;
    assert_eq!(labelled.headers["warning"], words);
    assert_eq!(labelled.body["metadata"]["generation"], 1);
    assert_eq!(labelled.body["spec"], made.body["spec"]);
    let put = server.put(&format!("{slices}/a"), &slice("D.example", json!([]))).await;
    assert_eq!((put.code, &put.body["metadata"]["generation"]), (200, &json!(2)), "{}", put.text);
    server.stop().await;
}
