//! Who may use which claim.

use serde_json::{Value, json};

use super::*;

fn pod(spec: Value, status: Value) -> Pod {
    let mut spec = spec;
    spec["containers"] = json!([{"name": "app", "resources": {"claims": [
        {"name": "own"}, {"name": "made", "request": "nic"}]}}]);
    let metadata = json!({"name": "p", "namespace": "ns", "uid": "u"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

fn claim(status: Value) -> ResourceClaim {
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]);
    let metadata = json!({"name": "c", "namespace": "ns", "uid": "cu", "ownerReferences": owner});
    serde_json::from_value(json!({"metadata": metadata, "spec": {}, "status": status})).unwrap()
}

#[test]
fn claims_are_named_by_the_pod_by_its_status_and_for_extended_resources() {
    let spec = json!({"resourceClaims": [
        {"name": "own", "resourceClaimName": "c"},
        {"name": "again", "resourceClaimName": "c"},
        {"name": "made", "resourceClaimTemplateName": "t"},
        {"name": "none", "resourceClaimTemplateName": "t"}]});
    let status = json!({
        "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-1"}, {"name": "none"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "p-extended", "requestMappings": [
            {"containerName": "app", "resourceName": "example.com/gpu", "requestName": "r0"},
            {"containerName": "other", "resourceName": "example.com/nic", "requestName": "r1"}]}});
    let one = pod(spec.clone(), status);
    let names: Vec<_> = named(&one).unwrap().into_iter().map(|one| (one.name, one.owned)).collect();
    assert_eq!(names, [("c".into(), false), ("p-made-1".into(), true), ("p-extended".into(), false)]);
    let used: Vec<_> = used(&one, &spec::spec(&one).containers[0])
        .unwrap()
        .into_iter()
        .map(|u| (u.claim, u.request))
        .collect();
    assert_eq!(
        used,
        [("c".into(), String::new()), ("p-made-1".into(), "nic".into()), ("p-extended".into(), "r0".into())]
    );
    assert_eq!(covered(&one)["app"].iter().collect::<Vec<_>>(), [&"example.com/gpu"]);
    let error = named(&pod(spec, json!({}))).unwrap_err().to_string();
    assert_eq!(error, "pod \"ns/p\": ResourceClaim not created yet");
    let error = named(&pod(json!({"resourceClaims": [{"name": "x"}]}), json!({}))).unwrap_err().to_string();
    assert_eq!(error, "pod \"ns/p\", spec.resourceClaim \"x\": none of the supported fields are set");
    for bad in ["../pods/x", "a/b", "a?b", "", "..", "a%2fb"] {
        let bad = json!({"resourceClaims": [{"name": "x", "resourceClaimName": bad}]});
        assert!(matches!(named(&pod(bad, json!({}))), Err(ResolveError::Name { .. })));
    }
}

#[test]
fn a_pod_uses_what_is_allocated_and_reserved_for_it_and_its_own() {
    let pod = pod(json!({}), json!({}));
    let of = |owned| Named { name: "c".to_owned(), owned };
    let result = |device: &str| json!({"driver": "d", "pool": "p", "device": device, "request": "r"});
    let mut shared = result("share");
    shared["shareID"] = json!("s");
    let mut admin = result("admin");
    admin["adminAccess"] = json!(true);
    let reserved = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
    let good = json!({"reservedFor": reserved, "allocation": {"devices": {"results": [result("x"), shared, admin]}}});
    let wanted = check(&pod, &of(true), &claim(good.clone())).unwrap();
    assert_eq!((wanted.uid.as_str(), wanted.drivers.len()), ("cu", 1));
    assert_eq!(wanted.exclusive.iter().map(|one| one.device.as_str()).collect::<Vec<_>>(), ["x"]);
    let mut strange = claim(good);
    strange.metadata.owner_references.as_mut().unwrap()[0].uid = "other".to_owned();
    assert!(check(&pod, &of(false), &strange).is_ok());
    let said = |result: Result<Wanted, ResolveError>| result.unwrap_err().to_string();
    assert_eq!(
        said(check(&pod, &of(true), &strange)),
        "ResourceClaim ns/c was not created for Pod ns/p (Pod is not owner)"
    );
    assert_eq!(
        said(check(&pod, &of(false), &claim(json!({})))),
        "pod p (u) is not allowed to use ResourceClaim c (cu)"
    );
    let unallocated = claim(json!({"reservedFor": reserved}));
    assert_eq!(said(check(&pod, &of(false), &unallocated)), "ResourceClaim c: not allocated");
}
