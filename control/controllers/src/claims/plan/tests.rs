#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
//! What is decided of pods, claims and tainted devices.

use super::taint::leaves_at;
use super::*;
use crate::claims::book::Look;
use crate::claims::view::SliceView;

fn at(name: &str) -> Place {
    Place::new("ns", name)
}

/// A pod with a claim `net` from the template `t` and a claim `gpu` that is called `shared`.
fn pod_with(spec: Value, status: Value) -> PodView {
    let mut object =
        json!({"metadata": {"name": "web", "namespace": "ns", "uid": "u1"}, "spec": spec, "status": status});
    object["spec"]["containers"] = json!([]);
    object["spec"]["resourceClaims"] = json!([
        {"name": "net", "resourceClaimTemplateName": "t"}, {"name": "gpu", "resourceClaimName": "shared"}]);
    if object["spec"]["deleted"] == true {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    PodView::new(&serde_json::from_value(object).unwrap())
}

fn told(name: &str) -> Value {
    json!({"resourceClaimStatuses": [{"name": "net", "resourceClaimName": name}]})
}

/// A claim that was made for a pod, with what else it has.
fn claim_of(uid: &str, status: Value) -> Value {
    json!({
        "metadata": {
            "uid": "c1", "resourceVersion": "7", "annotations": {ANNOTATION: "net"}, "finalizers": ["other", FINALIZER],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid, "controller": true}],
        },
        "status": status,
    })
}

fn pods(uids: &[(&str, &str)]) -> Value {
    uids.iter().map(|(name, uid)| json!({"resource": "pods", "name": name, "uid": uid})).collect()
}

fn given(device: &str, tolerations: Value) -> Value {
    json!({"devices": {"results": [
        {"request": "r", "driver": "d", "pool": "p", "device": device, "tolerations": tolerations}]}})
}

fn book(pod: PodView, claims: &[(&str, Value)]) -> Book {
    let mut book = Book::default();
    book.template_seen(
        at("t"),
        json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {"devices": {}}}),
    );
    for (name, claim) in claims {
        book.claim_seen(at(name), ClaimView::new(claim));
    }
    book.pod_seen(at("web"), pod);
    book
}

fn planned(book: &Book) -> Option<PodPlan> {
    pod(&at("web"), book.pod(&at("web")).unwrap(), book)
}

fn there(name: &str) -> Generated {
    Generated::There { pod_claim: "net".to_owned(), name: name.to_owned() }
}

#[test]
fn a_claim_is_made_as_the_template_says() {
    let plan = planned(&book(pod_with(json!({}), json!({})), &[])).unwrap();
    let [Generated::Missing { pod_claim, object }] = &plan.generated[..] else { panic!("{plan:?}") };
    assert_eq!((pod_claim.as_str(), plan.tells, &plan.trouble), ("net", true, &None));
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u1", "controller": true});
    let name = object["metadata"]["name"].as_str().unwrap();
    assert!(name.len() == 13 && name.starts_with("web-net-"), "{name}");
    let wanted = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"generateName": "web-net-", "name": name, "labels": {"a": "b"}, "annotations": {"c": "d", ANNOTATION: "net"},
            "ownerReferences": [owner]},
        "spec": {"devices": {}},
    });
    assert_eq!(object, &wanted);
}

#[test]
fn of_long_names_both_parts_are_shortened() {
    assert_eq!(base_name("web", "net"), "web-net-");
    let just = base_name(&"p".repeat(50), "claim");
    assert_eq!(just, format!("{}-claim-", "p".repeat(50)));
    let long = base_name(&"p".repeat(100), &"c".repeat(40));
    assert_eq!(long, format!("{}-{}", "p".repeat(40), "c".repeat(16)));
}

#[test]
fn the_same_claim_has_the_same_name_and_another_one_another() {
    let same = suffix("u1", "net", None);
    assert_eq!((same.len(), same.as_str()), (5, &*suffix("u1", "net", None)));
    let others =
        [suffix("u2", "net", None), suffix("u1", "gpu", None), suffix("u1", "net", Some("web-net-abcde"))];
    assert!(!others.contains(&same));
}

#[test]
fn a_claim_that_was_made_before_is_found_again_and_told() {
    let book = book(pod_with(json!({}), json!({})), &[("web-net-abcde", claim_of("u1", json!({})))]);
    let plan = planned(&book).unwrap();
    assert_eq!((plan.generated, plan.tells), (vec![there("web-net-abcde")], true));
}

#[test]
fn a_claim_that_no_watch_has_shown_yet_is_there() {
    let mut book = book(pod_with(json!({}), json!({})), &[]);
    book.made("u1", "net", "web-net-abcde".to_owned(), 9);
    assert_eq!(planned(&book).unwrap().generated, [there("web-net-abcde")]);
    book.pod_seen(at("web"), pod_with(json!({}), told("web-net-abcde")));
    assert_eq!(planned(&book), None);
    // Claims are told in the order of their versions: this one went before anybody told of it.
    book.claim_seen(at("other"), ClaimView::new(&json!({"metadata": {"resourceVersion": "10"}})));
    assert!(matches!(planned(&book).unwrap().generated[..], [Generated::Missing { .. }]));
    // As well if nothing but a list says so.
    book.made("u1", "net", "web-net-fghij".to_owned(), 99);
    book.claims_listed_from_here();
    book.claims_listed();
    assert!(matches!(planned(&book).unwrap().generated[..], [Generated::Missing { .. }]));
}

#[test]
fn nothing_is_done_for_a_pod_that_has_its_claims_or_needs_none() {
    let made = [("web-net-abcde", claim_of("u1", json!({})))];
    assert_eq!(planned(&book(pod_with(json!({}), told("web-net-abcde")), &made)), None);
    let without = json!({"resourceClaimStatuses": [{"name": "net"}]});
    assert_eq!(planned(&book(pod_with(json!({}), without), &[])), None);
    for spec in [json!({"deleted": true}), json!({"deleted": true, "nodeName": "n"})] {
        assert_eq!(planned(&book(pod_with(spec, json!({})), &[])), None);
    }
    assert_eq!(planned(&book(pod_with(json!({"nodeName": "n"}), json!({"phase": "Failed"})), &[])), None);
}

#[test]
fn a_claim_of_another_pod_is_not_taken_and_one_that_went_is_made_anew() {
    for claims in [vec![("web-net-abcde", claim_of("u0", json!({})))], vec![]] {
        let plan = planned(&book(pod_with(json!({}), told("web-net-abcde")), &claims)).unwrap();
        assert!(matches!(plan.generated[..], [Generated::Missing { .. }]), "{plan:?}");
        assert!(plan.tells);
    }
}

#[test]
fn a_template_that_is_missing_is_told_in_upstreams_words() {
    let mut book = book(pod_with(json!({}), json!({})), &[]);
    book.template_gone(&at("t"));
    let why = "resource claim template \"t\": resourceclaimtemplate.resource.k8s.io \"t\" not found";
    assert_eq!(planned(&book).unwrap().trouble, Some(("net".to_owned(), why.to_owned())));
    assert_eq!(book.template_seen(at("t"), json!({})), [Look::Pod(at("web"))]);
}

#[test]
fn a_pod_that_has_its_node_already_gets_what_others_use() {
    let status = json!({"allocation": given("d0", json!([])), "reservedFor": pods(&[("a", "ua")])});
    let shared = json!({"metadata": {"uid": "c2", "resourceVersion": "8"}, "status": status});
    let claims = [("web-net-abcde", claim_of("u1", json!({}))), ("shared", shared)];
    let bound = json!({"nodeName": "n"});
    let plan = planned(&book(pod_with(bound.clone(), told("web-net-abcde")), &claims)).unwrap();
    let patch = json!({"metadata": {"uid": "c2", "resourceVersion": "8"},
        "status": {"reservedFor": pods(&[("a", "ua"), ("web", "u1")])}});
    assert_eq!(plan.reservations, [Reservation { claim: at("shared"), patch }]);
    assert!(!plan.tells);
    assert_eq!(
        planned(&book(pod_with(json!({}), told("web-net-abcde")), &claims)),
        None,
        "the scheduler does"
    );
    let mut ended = told("web-net-abcde");
    ended["phase"] = json!("Succeeded");
    assert_eq!(planned(&book(pod_with(bound, ended), &claims)), None, "it will not run");
}

#[test]
fn those_who_are_gone_replaced_or_done_use_a_claim_no_longer() {
    let mut book = book(pod_with(json!({"nodeName": "n"}), json!({})), &[]);
    let mut reserved = pods(&[("web", "u1"), ("web", "u0"), ("far", "uf"), ("gone", "ug")]);
    reserved
        .as_array_mut()
        .unwrap()
        .push(json!({"apiGroup": "x", "resource": "pods", "name": "web", "uid": "u0"}));
    let claim = ClaimView::new(&json!({"status": {"reservedFor": reserved}}));
    let mut gone = pod_with(json!({}), json!({}));
    gone.uid = "ug".to_owned();
    book.pod_seen(at("gone"), gone);
    book.pod_gone(&at("gone"));
    let wanted = [Use::Stays, Use::Ends, Use::Unknown, Use::Ends, Use::Stays];
    assert_eq!(uses(&at("c"), &claim, &book), wanted);
    for (spec, status) in [
        (json!({"nodeName": "n"}), json!({"phase": "Succeeded"})),
        (json!({"nodeName": "n"}), json!({"phase": "Failed"})),
        (json!({"deleted": true}), json!({})),
    ] {
        book.pod_seen(at("web"), pod_with(spec, status));
        assert_eq!(uses(&at("c"), &claim, &book)[0], Use::Ends);
    }
    book.pod_seen(
        at("web"),
        pod_with(json!({"nodeName": "n", "deleted": true}), json!({"phase": "Running"})),
    );
    assert_eq!(uses(&at("c"), &claim, &book)[0], Use::Stays, "it runs until the kubelet says otherwise");
}

#[test]
fn devices_are_given_back_with_the_last_use() {
    let status =
        json!({"allocation": given("d0", json!([])), "reservedFor": pods(&[("a", "ua"), ("b", "ub")])});
    let used = ClaimView::new(&claim_of("u1", status));
    let one = claim(&used, &[Use::Ends, Use::Stays], Owner::MayNeedIt);
    assert_eq!(one.status, Some(json!({"reservedFor": pods(&[("b", "ub")])})));
    assert_eq!((one.finalizers, one.deletes), (None, false));
    let all = claim(&used, &[Use::Ends, Use::Ends], Owner::MayNeedIt);
    assert_eq!(all.status, Some(json!({"reservedFor": null, "allocation": null})));
    assert_eq!((all.finalizers, all.deletes), (Some(vec!["other".to_owned()]), false));
    let done = claim(&used, &[Use::Ends, Use::Ends], Owner::IsDone);
    assert!(done.deletes && done.finalizers.is_some());
    assert_eq!(claim(&used, &[Use::Stays, Use::Stays], Owner::IsDone), ClaimPlan::default());
}

#[test]
fn an_allocation_that_nobody_uses_stays_until_the_claim_goes() {
    let mut unused = claim_of("u1", json!({"allocation": given("d0", json!([]))}));
    assert_eq!(claim(&ClaimView::new(&unused), &[], Owner::MayNeedIt), ClaimPlan::default());
    unused["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let plan = claim(&ClaimView::new(&unused), &[], Owner::IsDone);
    assert_eq!(
        (plan.status, plan.finalizers),
        (Some(json!({"allocation": null})), Some(vec!["other".to_owned()]))
    );
    assert!(!plan.deletes, "it is on its way");
    unused["status"] = json!({});
    let plan = claim(&ClaimView::new(&unused), &[], Owner::IsDone);
    assert_eq!((plan.status, plan.finalizers), (None, Some(vec!["other".to_owned()])));
    unused["metadata"]["finalizers"] = json!(["other"]);
    assert_eq!(claim(&ClaimView::new(&unused), &[], Owner::IsDone), ClaimPlan::default());
}

#[test]
fn the_pod_that_a_claim_was_made_for_is_done_or_may_need_it() {
    let mut book = book(pod_with(json!({"nodeName": "n"}), json!({})), &[]);
    let mine = ClaimView::new(&claim_of("u1", json!({})));
    let earlier = ClaimView::new(&claim_of("u0", json!({})));
    assert_eq!(owner(&at("c"), &mine, &book), Owner::MayNeedIt);
    assert_eq!(owner(&at("c"), &earlier, &book), Owner::IsDone);
    assert_eq!(owner(&at("c"), &ClaimView::default(), &book), Owner::MayNeedIt);
    book.pod_seen(at("web"), pod_with(json!({"nodeName": "n"}), json!({"phase": "Succeeded"})));
    assert_eq!(owner(&at("c"), &mine, &book), Owner::IsDone);
    book.pod_gone(&at("web"));
    assert_eq!(owner(&at("c"), &mine, &book), Owner::MayNeedIt, "the garbage collector's");
}

#[test]
fn what_the_scheduler_made_for_extended_resources_is_looked_at_when_the_pod_ends() {
    let mut book = Book::default();
    let mut plain = pod_with(json!({"nodeName": "n"}), json!({}));
    plain.claims.clear();
    assert!(book.pod_seen(at("web"), plain.clone()).is_empty());
    plain.extended = Some("web-extended-resources-abcde".to_owned());
    plain.terminal = true;
    let looks = book.pod_seen(at("web"), plain);
    assert!(looks.contains(&Look::Claim(at("web-extended-resources-abcde"))), "{looks:?}");
}

fn slice(generation: i64, taints: Value) -> SliceView {
    SliceView::new(&json!({"spec": {"driver": "d", "pool": {"name": "p", "generation": generation},
        "devices": [{"name": "d0", "taints": taints}]}}))
}

fn taint(key: &str, effect: &str, second: i64) -> Value {
    let added = jiff::Timestamp::from_second(second).unwrap().to_string();
    json!({"key": key, "value": "v", "effect": effect, "timeAdded": added})
}

/// When a pod must leave whose device tolerates this.
fn leaves(tolerations: Value, taints: Value) -> Option<i64> {
    let status = json!({"allocation": given("d0", tolerations), "reservedFor": pods(&[("web", "u1")])});
    let claims = [("web-net-abcde", claim_of("u1", status))];
    let mut book = book(pod_with(json!({"nodeName": "n"}), told("web-net-abcde")), &claims);
    assert_eq!(leaves_at(&at("web"), book.pod(&at("web")).unwrap(), &book), None);
    assert!(book.slice_seen("s".to_owned(), slice(1, json!([]))).is_empty());
    book.slice_seen("s".to_owned(), slice(1, taints));
    leaves_at(&at("web"), book.pod(&at("web")).unwrap(), &book)
}

#[test]
fn a_pod_leaves_a_device_when_no_toleration_holds_any_longer() {
    let evicts = || json!([taint("k", "NoExecute", 100), taint("l", "NoExecute", 90)]);
    assert_eq!(leaves(json!([]), json!([taint("k", "NoSchedule", 100), taint("k", "None", 100)])), None);
    assert_eq!(leaves(json!([]), evicts()), Some(90_000));
    let l = json!({"key": "l", "operator": "Exists", "effect": "NoExecute"});
    assert_eq!(leaves(json!([l]), evicts()), Some(100_000), "one is tolerated for ever");
    assert_eq!(leaves(json!([{"operator": "Exists"}]), evicts()), None);
    let some =
        |seconds: i64| json!({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    assert_eq!(leaves(json!([some(30), some(20)]), evicts()), Some(110_000), "the shortest counts");
    assert_eq!(leaves(json!([some(-5)]), evicts()), Some(90_000));
    assert_eq!(leaves(json!([some(i64::MAX)]), evicts()), Some(i64::MAX));
    let other = json!({"key": "k", "operator": "Equal", "value": "w", "effect": "NoExecute"});
    assert_eq!(leaves(json!([other]), evicts()), Some(90_000));
    let mut timeless = taint("k", "NoExecute", 100);
    timeless["timeAdded"] = Value::Null;
    assert_eq!(leaves(json!([]), json!([timeless])), None);
}

#[test]
fn only_the_newest_slices_count_and_only_for_those_who_may_use_the_device() {
    let status = json!({"allocation": given("d0", json!([])), "reservedFor": pods(&[("web", "u1")])});
    let claims = [("web-net-abcde", claim_of("u1", status.clone()))];
    let mut book = book(pod_with(json!({"nodeName": "n"}), told("web-net-abcde")), &claims);
    let leaves = |book: &Book| leaves_at(&at("web"), book.pod(&at("web")).unwrap(), book);
    let tainted = || json!([taint("k", "NoExecute", 100)]);
    assert_eq!(book.slice_seen("old".to_owned(), slice(1, tainted())), [Look::Taint(at("web"))]);
    assert_eq!(leaves(&book), Some(100_000));
    assert_eq!(book.slice_seen("new".to_owned(), slice(2, json!([]))), [Look::Taint(at("web"))]);
    assert_eq!(leaves(&book), None);
    assert_eq!(book.slice_gone("new"), [Look::Taint(at("web"))]);
    assert_eq!(leaves(&book), Some(100_000));
    // Another pod of that name may use it, or none.
    let mut other = claim_of("u1", status);
    other["status"]["reservedFor"] = pods(&[("web", "u0")]);
    book.claim_seen(at("web-net-abcde"), ClaimView::new(&other));
    assert_eq!(leaves(&book), None);
    other["status"]["reservedFor"] = pods(&[("web", "u1")]);
    assert!(book.claim_seen(at("web-net-abcde"), ClaimView::new(&other)).contains(&Look::Taint(at("web"))));
    assert_eq!(leaves(&book), Some(100_000));
    book.pod_seen(at("web"), pod_with(json!({}), told("web-net-abcde")));
    assert_eq!(leaves(&book), None, "without a node");
    assert!(book.slice_gone("old").contains(&Look::Taint(at("web"))));
}
