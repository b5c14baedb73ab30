//! Ownership as real clusters show it.

use super::*;

fn kind(resource: &str) -> &'static Kind {
    crate::by_resource("", "v1", resource).unwrap()
}

fn writer(manager: &str, operation: Operation) -> Writer<'_> {
    Writer { manager, operation, subresource: "", time: "2026-11-15T12:00:00Z".parse().unwrap() }
}

fn created(kind: &'static Kind, mut object: Value, manager: &str) -> Value {
    crate::strict::conform(kind, &mut object).unwrap();
    crate::defaults::apply(kind, &mut object);
    track_update(kind, None, &mut object, &writer(manager, Operation::Update));
    object["metadata"]["uid"] = json!("u");
    object
}

fn fields_of<'a>(object: &'a Value, manager: &str) -> &'a Value {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let found = entries.iter().find(|e| e["manager"] == manager);
    found.map_or(&Value::Null, |e| &e["fieldsV1"])
}

fn config(value: Value) -> Value {
    let mut base =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "d"}});
    crate::patch::merge(&mut base, &value).unwrap();
    base
}

fn apply_as(live: Option<&Value>, value: Value, manager: &str, force: bool) -> Result<Value, ApplyError> {
    server_side(kind("configmaps"), live, &config(value), &writer(manager, Operation::Apply), force)
}

/// The books on a list that is as long as a body can make it are kept in time.
#[test]
fn long_lists_are_tracked_in_time() {
    let pods = crate::by_resource("", "v1", "pods").unwrap();
    let named: Vec<Value> = (0..30_000).map(|i| json!({"name": format!("n{i}"), "image": "i"})).collect();
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": named}});
    let writer = Writer {
        manager: "m",
        operation: Operation::Update,
        subresource: "",
        time: "2026-01-01T00:00:00Z".parse().unwrap(),
    };
    let begun = std::time::Instant::now();
    track_update(pods, None, &mut pod, &writer);
    let old = pod.clone();
    pod["spec"]["containers"][7]["image"] = "j".into();
    track_update(pods, Some(&old), &mut pod, &writer);
    // By the square this takes minutes.
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
}

#[test]
fn a_created_pod_is_owned_by_its_creator_as_upstream_writes_it() {
    let pod = created(
        kind("pods"),
        json!({"metadata": {"name": "p", "namespace": "d", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}}),
        "kubectl-create",
    );
    assert_eq!(
        fields_of(&pod, "kubectl-create"),
        &json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {
                "f:containers": {"k:{\"name\":\"c\"}": {
                    ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {},
                    "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}},
                    "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
                }},
                "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {},
                "f:securityContext": {}, "f:terminationGracePeriodSeconds": {},
            },
        })
    );
}

#[test]
fn an_update_moves_ownership_of_what_it_changed() {
    let old =
        created(kind("configmaps"), json!({"metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}}), "one");
    let mut new = old.clone();
    new["data"]["a"] = json!("9");
    track_update(kind("configmaps"), Some(&old), &mut new, &writer("two", Operation::Update));
    assert_eq!(fields_of(&new, "one"), &json!({"f:data": {".": {}, "f:b": {}}}));
    assert_eq!(fields_of(&new, "two"), &json!({"f:data": {"f:a": {}}}));
    let mut same = new.clone();
    track_update(kind("configmaps"), Some(&new), &mut same, &writer("three", Operation::Update));
    assert_eq!(same, new);
}

#[test]
fn the_status_door_has_an_entry_of_its_own() {
    let old = created(
        kind("pods"),
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
        "one",
    );
    let mut new = old.clone();
    new["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let door = Writer { subresource: "status", ..writer("kubelet", Operation::Update) };
    track_update(kind("pods"), Some(&old), &mut new, &door);
    let entry = new["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["manager"] == "kubelet")
        .unwrap();
    assert_eq!(entry["subresource"], "status");
    assert_eq!(
        entry["fieldsV1"]["f:status"]["f:conditions"]["k:{\"type\":\"Ready\"}"]["f:status"],
        json!({})
    );
}

#[test]
fn an_applied_object_lists_what_the_configuration_names() {
    let object =
        apply_as(None, json!({"data": {"x": "1"}, "metadata": {"labels": {"a": "b"}}}), "m1", false).unwrap();
    assert_eq!(
        fields_of(&object, "m1"),
        &json!({"f:data": {"f:x": {}}, "f:metadata": {"f:labels": {"f:a": {}}}})
    );
    assert_eq!(object["data"], json!({"x": "1"}));
}

#[test]
fn changing_anothers_field_conflicts_unless_forced() {
    let live = apply_as(None, json!({"data": {"x": "1", "y": "1"}}), "m1", false).unwrap();
    let refused = apply_as(Some(&live), json!({"data": {"x": "2"}}), "m2", false).unwrap_err();
    assert_eq!(refused.to_string(), "Apply failed with 1 conflict: conflict with \"m1\": .data.x");
    let many = apply_as(Some(&live), json!({"data": {"x": "2", "y": "2"}}), "m2", false).unwrap_err();
    assert_eq!(
        many.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"m1\":\n- .data.x\n- .data.y"
    );
    let forced = apply_as(Some(&live), json!({"data": {"x": "2"}}), "m2", true).unwrap();
    assert_eq!(forced["data"], json!({"x": "2", "y": "1"}));
    assert_eq!(fields_of(&forced, "m1"), &json!({"f:data": {"f:y": {}}}));
    assert_eq!(fields_of(&forced, "m2"), &json!({"f:data": {"f:x": {}}}));
    let agreed = apply_as(Some(&live), json!({"data": {"x": "1"}}), "m2", false).unwrap();
    assert_eq!(fields_of(&agreed, "m1")["f:data"]["f:x"], json!({}));
}

#[test]
fn what_a_manager_gives_up_goes_unless_another_owns_it() {
    let live = apply_as(None, json!({"data": {"x": "1", "y": "1"}}), "m1", false).unwrap();
    let live = apply_as(Some(&live), json!({"data": {"x": "1"}}), "m2", false).unwrap();
    let less = apply_as(Some(&live), json!({"metadata": {"labels": {"a": "b"}}}), "m1", false).unwrap();
    assert_eq!(less["data"], json!({"x": "1"}));
    assert_eq!(fields_of(&less, "m1"), &json!({"f:metadata": {"f:labels": {"f:a": {}}}}));
}

#[test]
fn containers_merge_by_name() {
    let pod = |containers: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}});
    let pods = kind("pods");
    let live = server_side(
        pods,
        None,
        &pod(json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}])),
        &writer("m1", Operation::Apply),
        false,
    )
    .unwrap();
    let more = server_side(
        pods,
        Some(&live),
        &pod(json!([{"name": "s", "image": "2"}])),
        &writer("m2", Operation::Apply),
        false,
    )
    .unwrap();
    let names = |o: &Value| {
        o["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&more), ["a", "b", "s"]);
    let less = server_side(
        pods,
        Some(&more),
        &pod(json!([{"name": "b", "image": "1"}])),
        &writer("m1", Operation::Apply),
        false,
    )
    .unwrap();
    assert_eq!(names(&less), ["b", "s"]);
}

#[test]
fn the_last_applied_annotation_of_kubectl_settles_conflicts() {
    let applied = config(json!({"data": {"x": "1"}}));
    let mut object = config(json!({"data": {"x": "1"}}));
    object["metadata"]["annotations"] = json!({(LAST_APPLIED): applied.to_string()});
    let live = created(kind("configmaps"), object, "kubectl-client-side-apply");
    let patched = apply_as(Some(&live), json!({"data": {"x": "2"}}), "kubectl", false).unwrap();
    assert_eq!(patched["data"]["x"], "2");
    assert!(patched["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap().contains("\"x\":\"2\""));
    let other = apply_as(Some(&live), json!({"data": {"x": "2"}}), "helm", false).unwrap_err();
    assert_eq!(
        other.to_string(),
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.x"
    );
}

#[test]
fn bad_patches_are_refused() {
    let unknown = apply_as(None, json!({"dataa": {}}), "m", false).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "failed to create typed patch object (d/c; /v1, Kind=ConfigMap): .dataa: field not declared in schema"
    );
    assert!(matches!(
        apply_as(None, json!({"apiVersion": "v2"}), "m", false),
        Err(ApplyError::BadRequest(_))
    ));
    assert!(matches!(
        apply_as(None, json!({"metadata": {"managedFields": []}}), "m", false),
        Err(ApplyError::BadRequest(_))
    ));
}

#[test]
fn old_updaters_are_merged_when_there_are_many() {
    let mut object =
        created(kind("configmaps"), json!({"metadata": {"name": "c"}, "data": {"k": "0"}}), "m0");
    for i in 1..15 {
        let mut new = object.clone();
        new["data"][format!("k{i}")] = json!("1");
        track_update(
            kind("configmaps"),
            Some(&object),
            &mut new,
            &writer(&format!("m{i:02}"), Operation::Update),
        );
        object = new;
    }
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 10);
    assert!(!fields_of(&object, "ancient-changes").is_null());
}
