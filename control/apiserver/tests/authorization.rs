//! Authorization of the whole server: roles and bindings mean what they say, and nobody gives away what they lack.
//! That what is acted on is what was authorized is tried in `urls.rs`.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use podwire_apiserver::{ApiService, Identity};
use serde_json::{Value, json};
use server::{Answer, Watch, send, start, start_in};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn post(service: &ApiService, path: &str, body: &Value) -> Answer {
    send(service, "POST", path, &[("content-type", "application/json")], body.to_string()).await
}

async fn get(service: &ApiService, path: &str) -> Answer {
    send(service, "GET", path, &[], "").await
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

/// Gives a user a role in a namespace.
async fn grant(admin: &ApiService, namespace: &str, user: &str, rules: Value) {
    let name = user.replace(':', ".");
    let role = json!({"metadata": {"name": name}, "rules": rules});
    let made = post(admin, &format!("{RBAC}/namespaces/{namespace}/roles"), &role).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let binding = json!({"metadata": {"name": name}, "roleRef": {"kind": "Role", "name": name},
                         "subjects": [{"kind": "User", "name": user}]});
    let made = post(admin, &format!("{RBAC}/namespaces/{namespace}/rolebindings"), &binding).await;
    assert_eq!(made.code, 201, "{}", made.text);
}

/// Gives a user a role everywhere.
async fn grant_everywhere(admin: &ApiService, user: &str, rules: Value) {
    let role = json!({"metadata": {"name": user}, "rules": rules});
    assert_eq!(post(admin, &format!("{RBAC}/clusterroles"), &role).await.code, 201);
    let binding = json!({"metadata": {"name": user}, "roleRef": {"kind": "ClusterRole", "name": user},
                         "subjects": [{"kind": "User", "name": user}]});
    assert_eq!(post(admin, &format!("{RBAC}/clusterrolebindings"), &binding).await.code, 201);
}

async fn namespace(admin: &ApiService, name: &str) {
    let made = post(admin, "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    assert_eq!(made.code, 201, "{}", made.text);
}

/// Asks as somebody until the answer has this code: what was written a moment ago reaches the index through the cache.
async fn until(service: &ApiService, path: &str, code: u16) -> Answer {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let answer = get(service, path).await;
        if answer.code == code || tokio::time::Instant::now() > deadline {
            assert_eq!(answer.code, code, "{}", answer.text);
            return answer;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_role_in_one_namespace_says_nothing_about_another() {
    let server = start().await;
    namespace(&server.admin, "a").await;
    namespace(&server.admin, "b").await;
    grant(&server.admin, "a", "ann", json!([rule(&["*"], &["*"], &["*"])])).await;
    let ann = server.client(Identity::new("ann", &[]));
    until(&ann, "/api/v1/namespaces/a/pods", 200).await;
    let before = server.get("/api/v1/namespaces/b").await.body;
    for path in [
        "/api/v1/namespaces/a/namespaces/b",
        "/api/v1/namespaces/a/namespaces/b/finalize",
        "/api/v1/namespaces/a/nodes/n1",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/a/clusterrolebindings/cluster-admin",
    ] {
        for method in ["GET", "PUT", "PATCH", "DELETE"] {
            let headers = [(
                "content-type",
                if method == "PATCH" { "application/merge-patch+json" } else { "application/json" },
            )];
            let answer = send(&ann, method, path, &headers, "{}").await;
            assert_eq!(answer.code, 404, "{method} {path}: {}", answer.text);
            assert_eq!(answer.body["message"], "the server could not find the requested resource");
        }
    }
    assert_eq!(server.get("/api/v1/namespaces/b").await.body, before);
    let other = get(&ann, "/api/v1/namespaces/b/pods").await;
    assert_eq!(
        other.body["message"],
        "pods is forbidden: User \"ann\" cannot list resource \"pods\" in API group \"\" in the namespace \"b\""
    );
    server.stop().await;
}

#[tokio::test]
async fn a_rule_about_one_name_is_about_that_name_however_it_is_asked_for() {
    let server = start().await;
    for name in ["mine", "other"] {
        let made =
            server.post("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": name}})).await;
        assert_eq!(made.code, 201);
    }
    let named =
        json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"], "resourceNames": ["mine"]});
    grant(&server.admin, "default", "ann", json!([named])).await;
    let ann = server.client(Identity::new("ann", &[]));
    let secrets = "/api/v1/namespaces/default/secrets";
    until(&ann, &format!("{secrets}/mine"), 200).await;
    assert_eq!(get(&ann, &format!("{secrets}/other")).await.code, 403);
    assert_eq!(get(&ann, secrets).await.code, 403);
    let listed = get(&ann, &format!("{secrets}?fieldSelector=metadata.name%3Dmine")).await;
    assert_eq!(listed.body["items"].as_array().unwrap().len(), 1);
    let hidden = format!("{secrets}?fieldSelector=type%3Dx%5C%2Cmetadata.name%3Dmine");
    assert_eq!(get(&ann, &hidden).await.code, 403, "an escaped comma hides no name");

    let named = post(&ann, &format!("{secrets}/mine"), &json!({"metadata": {"name": "third"}})).await;
    assert_eq!((named.code, named.body["reason"].as_str()), (405, Some("MethodNotAllowed")));
    assert_eq!(server.get(&format!("{secrets}/third")).await.code, 404);
    let all = send(&ann, "DELETE", &format!("{secrets}?fieldSelector=metadata.name%3Dmine"), &[], "").await;
    assert_eq!(all.code, 403, "a deletion of many has no name: {}", all.text);

    let mut watch = Watch::open(&ann, "/api/v1/watch/namespaces/default/secrets/mine").await;
    assert_eq!(watch.brief().await.1, "mine");
    let changed = json!({"metadata": {"labels": {"a": "b"}}});
    for name in ["other", "mine"] {
        server.patch(&format!("{secrets}/{name}"), "application/merge-patch+json", &changed).await;
    }
    assert_eq!(watch.brief().await.1, "mine", "the other one is not shown");
    let mixed =
        get(&ann, "/api/v1/watch/namespaces/default/secrets/mine?fieldSelector=metadata.name%3Dother").await;
    assert_eq!(mixed.code, 400, "{}", mixed.text);
    server.stop().await;
}

#[tokio::test]
async fn nobody_gives_away_rights_that_they_do_not_have() {
    let server = start().await;
    let writer = json!([
        rule(&["rbac.authorization.k8s.io"], &["roles", "rolebindings"], &["*"]),
        rule(&[""], &["pods"], &["get", "list"])
    ]);
    // All verbs on roles include escalate and bind, so they are named.
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let mut writer = writer;
    writer[0]["verbs"] = json!(verbs);
    grant(&server.admin, "default", "ann", writer).await;
    let ann = server.client(Identity::new("ann", &["devs"]));
    let (roles, bindings) =
        (format!("{RBAC}/namespaces/default/roles"), format!("{RBAC}/namespaces/default/rolebindings"));
    until(&ann, &roles, 200).await;

    let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
    let wide = role(
        "wide",
        json!([rule(&[""], &["secrets", "pods"], &["get", "list"]), rule(&["apps"], &["*"], &["*"])]),
    );
    let refused = post(&ann, &roles, &wide).await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.body["message"],
        "roles.rbac.authorization.k8s.io \"wide\" is forbidden: user \"ann\" (groups=[\"devs\" \"system:authenticated\"]) \
         is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}\n\
         {APIGroups:[\"apps\"], Resources:[\"*\"], Verbs:[\"*\"]}"
    );
    let narrow = role("narrow", json!([rule(&[""], &["pods"], &["list"])]));
    assert_eq!(post(&ann, &roles, &narrow).await.code, 201);
    let grown = json!({"rules": [rule(&[""], &["secrets"], &["list"])]});
    let media = [("content-type", "application/merge-patch+json")];
    let patched = send(&ann, "PATCH", &format!("{roles}/narrow"), &media, grown.to_string()).await;
    assert_eq!(patched.code, 403, "{}", patched.text);
    let mut applied = wide.clone();
    applied["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
    applied["kind"] = "Role".into();
    let media = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{roles}/wide?fieldManager=m");
    assert_eq!(send(&ann, "PATCH", &path, &media, applied.to_string()).await.code, 403);

    let bind = |name: &str, kind: &str, role: &str| {
        json!({"metadata": {"name": name},
        "roleRef": {"kind": kind, "name": role}, "subjects": [{"kind": "User", "name": "ann"}]})
    };
    let refused = post(&ann, &bindings, &bind("up", "ClusterRole", "cluster-admin")).await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.body["message"],
        "rolebindings.rbac.authorization.k8s.io \"up\" is forbidden: user \"ann\" (groups=[\"devs\" \"system:authenticated\"]) \
         is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"
    );
    assert_eq!(post(&ann, &bindings, &bind("gone", "Role", "nowhere")).await.code, 404);
    let made = post(&ann, &bindings, &bind("fine", "Role", "narrow")).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let mut changed = made.body.clone();
    changed["roleRef"] =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    let text = changed.to_string();
    let headers = [("content-type", "application/json")];
    let put = send(&ann, "PUT", &format!("{bindings}/fine"), &headers, text.clone()).await;
    assert_eq!(put.code, 403, "{}", put.text);
    let put = send(&server.admin, "PUT", &format!("{bindings}/fine"), &headers, text).await;
    assert_eq!((put.code, put.body["reason"].as_str()), (422, Some("Invalid")));
    assert!(put.text.contains("cannot change roleRef"), "{}", put.text);
    server.stop().await;
}

#[tokio::test]
async fn the_verbs_escalate_and_bind_open_what_coverage_would_not() {
    let server = start().await;
    let group = "rbac.authorization.k8s.io";
    let mut bind = rule(&[group], &["clusterroles"], &["bind"]);
    bind["resourceNames"] = json!(["view"]);
    grant_everywhere(
        &server.admin,
        "ops",
        json!([
            rule(
                &[group],
                &["clusterroles", "clusterrolebindings", "rolebindings"],
                &["create", "update", "get"]
            ),
            bind
        ]),
    )
    .await;
    let ops = server.client(Identity::new("ops", &[]));
    until(&ops, &format!("{RBAC}/clusterroles/ops"), 200).await;
    let binding = |role: &str| json!({"metadata": {"name": format!("to-{role}")}, "roleRef": {"kind": "ClusterRole", "name": role}});
    let path = format!("{RBAC}/clusterrolebindings");
    let fill = json!({"rules": [rule(&[""], &["pods"], &["get"])]});
    for role in ["view", "edit"] {
        let path = format!("{RBAC}/clusterroles/{role}");
        assert_eq!(server.patch(&path, "application/merge-patch+json", &fill).await.code, 200);
    }
    assert_eq!(post(&ops, &path, &binding("view")).await.code, 201);
    assert_eq!(post(&ops, &path, &binding("edit")).await.code, 403);

    let aggregated = json!({"metadata": {"name": "sum"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    let refused = post(&ops, &format!("{RBAC}/clusterroles"), &aggregated).await;
    assert_eq!(
        refused.body["message"],
        "clusterroles.rbac.authorization.k8s.io \"sum\" is forbidden: must have cluster-admin privileges to use the aggregationRule"
    );
    grant_everywhere(
        &server.admin,
        "esc",
        json!([rule(&[group], &["clusterroles"], &["create", "get", "escalate"])]),
    )
    .await;
    let esc = server.client(Identity::new("esc", &[]));
    until(&esc, &format!("{RBAC}/clusterroles/esc"), 200).await;
    assert_eq!(post(&esc, &format!("{RBAC}/clusterroles"), &aggregated).await.code, 201);
    server.stop().await;
}

#[tokio::test]
async fn upstreams_roles_are_there_and_older_folders_get_them() {
    let server = start().await;
    let count = |answer: &Answer| answer.body["items"].as_array().unwrap().len();
    // Upstream's, and one of the network plugin.
    assert_eq!(count(&server.get(&format!("{RBAC}/clusterroles")).await), 70);
    assert_eq!(count(&server.get(&format!("{RBAC}/roles")).await), 7);
    let labelled =
        format!("{RBAC}/clusterroles?labelSelector=rbac.authorization.k8s.io%2Faggregate-to-admin%3Dtrue");
    assert_eq!(count(&server.get(&labelled).await), 2);
    // As a folder of an earlier version: no roles but cluster-admin, and one that somebody made his own.
    let path = format!("{RBAC}/clusterroles");
    assert_eq!(server.delete(&format!("{path}/system:kube-scheduler"), &Value::Null).await.code, 200);
    let own = json!({"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}, "rules": []});
    let media = "application/merge-patch+json";
    assert_eq!(server.patch(&format!("{path}/system:basic-user"), media, &own).await.code, 200);
    assert_eq!(
        server.patch(&format!("{path}/system:discovery"), media, &json!({"rules": []})).await.code,
        200
    );
    let server = start_in(server.stop().await).await;
    let read = |name: &str| format!("{path}/{name}");
    assert!(!server.get(&read("system:kube-scheduler")).await.body["rules"].as_array().unwrap().is_empty());
    assert!(server.get(&read("system:basic-user")).await.body["rules"].as_array().is_none_or(Vec::is_empty));
    assert!(server.get(&read("system:discovery")).await.body["rules"].as_array().unwrap().len() > 5);
    let anonymous = server.nobody();
    assert_eq!(get(&anonymous, "/readyz").await.code, 200);
    assert_eq!(get(&anonymous, "/api").await.code, 403);
    server.stop().await;
}

#[tokio::test]
async fn questions_about_rights_take_any_verb_and_stay_in_their_namespace() {
    let server = start().await;
    grant(&server.admin, "default", "ann", json!([rule(&["example.org"], &["things"], &["frobnicate"])]))
        .await;
    let ann = server.client(Identity::new("ann", &[]));
    let ask = |verb: &str, namespace: &str| {
        json!({"spec": {"resourceAttributes": {
        "verb": verb, "group": "example.org", "resource": "things", "namespace": namespace}}})
    };
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    let answer = loop {
        let answer = post(&ann, path, &ask("frobnicate", "default")).await;
        assert_eq!(answer.code, 201, "{}", answer.text);
        if answer.body["status"]["allowed"] == true || tokio::time::Instant::now() > deadline {
            break answer;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        answer.body["status"],
        json!({"allowed": true, "reason": "RBAC: allowed by RoleBinding \"ann/default\" of Role \"ann\" to User \"ann\""})
    );
    for (verb, namespace) in [("unknown", "default"), ("frobnicate", "kube-system"), ("frobnicate", "")] {
        let answer = post(&ann, path, &ask(verb, namespace)).await;
        assert_eq!(answer.body["status"]["allowed"], false, "{verb} {namespace}");
    }
    let mut local = ask("get", "kube-system");
    local["spec"]["user"] = "ann".into();
    let path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let refused = server.post(path, &local).await;
    assert_eq!(refused.code, 422);
    assert!(refused.text.contains("must match metadata.namespace"), "{}", refused.text);
    server.stop().await;
}

#[tokio::test]
async fn impersonation_needs_every_name_it_uses() {
    let server = start().await;
    let mut users = rule(&[""], &["users"], &["impersonate"]);
    users["resourceNames"] = json!(["bob"]);
    let mut scopes = rule(&["authentication.k8s.io"], &["userextras/scopes"], &["impersonate"]);
    scopes["resourceNames"] = json!(["view"]);
    grant_everywhere(&server.admin, "ann", json!([users, scopes])).await;
    let ann = server.client(Identity::new("ann", &[]));
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let answer = send(&ann, "GET", "/version", &[("impersonate-user", "bob")], "").await;
        if answer.code == 200 || tokio::time::Instant::now() > deadline {
            assert_eq!(answer.code, 200, "{}", answer.text);
            break;
        }
        tokio::task::yield_now().await;
    }
    let allowed: &[(&str, &str)] = &[("impersonate-user", "bob"), ("impersonate-extra-scopes", "view")];
    assert_eq!(send(&ann, "GET", "/version", allowed, "").await.code, 200);
    let refused: &[&[(&str, &str)]] = &[
        &[("impersonate-user", "kubernetes-admin")],
        &[("impersonate-user", "bob"), ("impersonate-group", "system:masters")],
        &[("impersonate-user", "bob"), ("impersonate-uid", "1")],
        &[("impersonate-user", "bob"), ("impersonate-extra-scopes", "all")],
        &[("impersonate-user", "bob"), ("impersonate-extra-other", "view")],
        &[("impersonate-user", "system:serviceaccount:default:default")],
    ];
    for headers in refused {
        assert_eq!(send(&ann, "GET", "/version", headers, "").await.code, 403, "{headers:?}");
    }
    server.stop().await;
}
