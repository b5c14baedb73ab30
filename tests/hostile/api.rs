//! Requests that mean harm: around authorization, and bombs that one request carries.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{
    http::{Answer, Who, head, receive},
    on_node::{OnNode, PODS},
    row::{Outcome, Row, row},
};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const JSON: (&str, &str) = ("Content-Type", "application/json");
const YAML: (&str, &str) = ("Content-Type", "application/yaml");
const JSON_PATCH: (&str, &str) = ("Content-Type", "application/json-patch+json");
const MERGE_PATCH: (&str, &str) = ("Content-Type", "application/merge-patch+json");

/// The rows.
pub const ROWS: &[Row<OnNode>] = &[
    row("a role in one namespace deletes another through its own URL", "refused; the other namespace stays", |node: &OnNode| {
        let (own, other) = (node.fresh(), node.fresh());
        namespace(node, &other)?;
        let who = account(node, &own, json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]))?;
        let answer = node.api.ask(&who, "DELETE", &format!("/api/v1/namespaces/{own}/namespaces/{other}"), &[], b"")?;
        let left = node.api.must("GET", &format!("/api/v1/namespaces/{other}"), None)?;
        ensure!(left["metadata"]["deletionTimestamp"].is_null(), "the other namespace goes: {}", answer.brief());
        denied(&answer)
    })
    .broken_before(),
    row("a role in a namespace reads a node and a cluster role through its own URL", "refused", |node: &OnNode| {
        let own = node.fresh();
        let who = account(node, &own, json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]))?;
        for path in [
            format!("/api/v1/namespaces/{own}/nodes/node1"),
            format!("{RBAC}/namespaces/{own}/clusterroles/cluster-admin"),
            format!("/api/v1/namespaces/{own}/namespaces"),
            format!("/api/v1/namespaces/{own}/persistentvolumes"),
        ] {
            denied(&node.api.ask(&who, "GET", &path, &[], b"")?).with_context(|| path)?;
        }
        Ok("each is refused".to_owned())
    })
    .broken_before(),
    row("paths with .., //, %2f and %00", "refused; never another object than the one authorized", |node: &OnNode| {
        let (own, other) = (node.fresh(), node.fresh());
        namespace(node, &other)?;
        secret(node, &other, "s")?;
        let who = account(node, &own, json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]))?;
        for path in [
            format!("/api/v1/namespaces/{own}/../{other}/secrets/s"),
            format!("/api/v1/namespaces/{own}/secrets/..%2f..%2f{other}%2fsecrets%2fs"),
            format!("/api/v1/namespaces/{own}%2f..%2f{other}/secrets/s"),
            format!("//api/v1//namespaces/{other}/secrets/s"),
            format!("/api/v1/namespaces/{own}/secrets/s%00?x=/namespaces/{other}"),
            format!("/api/v1/proxy/../namespaces/{other}/secrets/s"),
        ] {
            let answer = node.api.ask(&who, "GET", &path, &[], b"")?;
            ensure!(answer.status >= 300 && !answer.brief().contains("aGlkZGVu"), "{path}: {}", answer.brief());
        }
        Ok("no path leads to the other's secret".to_owned())
    }),
    row("a writer of role bindings binds itself to cluster-admin", "403: more than it has", |node: &OnNode| {
        let own = node.fresh();
        let who = account(node, &own, rbac_writer())?;
        let path = format!("{RBAC}/namespaces/{own}/rolebindings");
        let body = binding(&own, "up", "ClusterRole", "cluster-admin");
        denied(&node.api.ask(&who, "POST", &path, &[JSON], body.to_string().as_bytes())?)
    })
    .broken_before(),
    row("a writer of roles gives itself all verbs", "403: more than it has", |node: &OnNode| {
        let own = node.fresh();
        let who = account(node, &own, rbac_writer())?;
        let path = format!("{RBAC}/namespaces/{own}/roles");
        let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        let body = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "up"}, "rules": rules});
        denied(&node.api.ask(&who, "POST", &path, &[JSON], body.to_string().as_bytes())?)?;
        let patch = json!({"rules": rules});
        denied(&node.api.ask(&who, "PATCH", &format!("{path}/test"), &[MERGE_PATCH], patch.to_string().as_bytes())?)
    })
    .broken_before(),
    row("a binding's roleRef is changed", "422: it is immutable", |node: &OnNode| {
        let own = node.fresh();
        account(node, &own, rbac_writer())?;
        let path = format!("{RBAC}/namespaces/{own}/rolebindings/test");
        let mut body = node.api.must("GET", &path, None)?;
        body["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
        let answer = node.api.admin("PUT", &path, Some(&body))?;
        ensure!(answer.status == 422, "{}", answer.brief());
        Ok(answer.brief())
    })
    .broken_before(),
    row("a node's credential makes a mirror pod with another's service account", "403", |node: &OnNode| {
        let who = kubelet(node, "node1")?;
        let mut pod = node.script("echo x");
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": "x"});
        pod["spec"]["nodeName"] = json!("node1");
        pod["spec"]["serviceAccountName"] = json!("default");
        refused_or_removed(node, &who, &pod)
    })
    .broken_before(),
    row("a node's credential makes a mirror pod with a secret", "403", |node: &OnNode| {
        let who = kubelet(node, "node1")?;
        secret(node, "default", "wanted")?;
        let mut pod = node.script("echo x");
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": "x"});
        pod["spec"]["nodeName"] = json!("node1");
        pod["spec"]["automountServiceAccountToken"] = json!(false);
        pod["spec"]["volumes"] = json!([{"name": "s", "secret": {"secretName": "wanted"}}]);
        refused_or_removed(node, &who, &pod)
    })
    .broken_before(),
    row("a node's credential asks for a token of an account without a pod there", "403", |node: &OnNode| {
        let who = kubelet(node, "node1")?;
        let own = node.fresh();
        account(node, &own, json!([]))?;
        let path = format!("/api/v1/namespaces/{own}/serviceaccounts/test/token");
        let described = node.api.must("GET", "/api/v1/nodes/node1", None)?;
        let bound = json!({"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": described["metadata"]["uid"]});
        for spec in [json!({}), json!({"boundObjectRef": bound})] {
            let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
            denied(&node.api.ask(&who, "POST", &path, &[JSON], body.to_string().as_bytes())?)?;
        }
        Ok("both are refused".to_owned())
    })
    .broken_before(),
    row("a node's credential reads a secret of no pod of its own", "403, also for a list", |node: &OnNode| {
        let who = kubelet(node, "node1")?;
        let own = node.fresh();
        namespace(node, &own)?;
        secret(node, &own, "s")?;
        for path in [format!("/api/v1/namespaces/{own}/secrets/s"), format!("/api/v1/namespaces/{own}/secrets"), "/api/v1/secrets".into()] {
            denied(&node.api.ask(&who, "GET", &path, &[], b"")?).with_context(|| path)?;
        }
        Ok("each is refused".to_owned())
    })
    .broken_before(),
    row("a node's credential changes another node, its own restricted labels and its own taints", "403", |node: &OnNode| {
        let (who, other) = (kubelet(node, "node1")?, node.fresh());
        node.api.must("POST", "/api/v1/nodes", Some(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": other}})))?;
        let labels = json!({"metadata": {"labels": {"x": "y"}}}).to_string();
        let first = node.api.ask(&who, "PATCH", &format!("/api/v1/nodes/{other}"), &[MERGE_PATCH], labels.as_bytes())?;
        let labels = json!({"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}}).to_string();
        let second = node.api.ask(&who, "PATCH", "/api/v1/nodes/node1", &[MERGE_PATCH], labels.as_bytes())?;
        let taints = json!({"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}).to_string();
        let third = node.api.ask(&who, "PATCH", "/api/v1/nodes/node1", &[MERGE_PATCH], taints.as_bytes())?;
        node.api.must("DELETE", &format!("/api/v1/nodes/{other}"), None)?;
        let mend = json!({"metadata": {"labels": {"node-restriction.kubernetes.io/x": null}}, "spec": {"taints": null}}).to_string();
        node.api.ask(&node.api.admin, "PATCH", "/api/v1/nodes/node1", &[MERGE_PATCH], mend.as_bytes())?;
        denied(&first).context("another node")?;
        denied(&second).context("a restricted label")?;
        denied(&third).context("its own taints")?;
        Ok("each is refused".to_owned())
    })
    .broken_before(),
    row("another node's credential deletes a pod of this node and writes its status", "403", |node: &OnNode| {
        let who = kubelet(node, "node2")?;
        let name = node.running(node.script("trap 'exit 0' TERM; while :; do sleep 0.1; done"))?;
        let gone = node.api.ask(&who, "DELETE", &format!("{PODS}/{name}"), &[], b"")?;
        let status = json!({"status": {"phase": "Failed"}}).to_string();
        let written = node.api.ask(&who, "PATCH", &format!("{PODS}/{name}/status"), &[MERGE_PATCH], status.as_bytes())?;
        node.remove(&name)?;
        denied(&gone)?;
        denied(&written)
    }),
    row("identity by header, by a token that nobody signed, and by impersonation", "401 or 403", |node: &OnNode| {
        let own = node.fresh();
        let who = account(node, &own, json!([]))?;
        let asked = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")];
        denied(&node.api.ask(&who, "GET", "/api/v1/secrets", &asked, b"")?)?;
        let asked = [("Impersonate-User", "admin"), ("Impersonate-Group", "system:masters")];
        denied(&node.api.ask(&who, "GET", "/api/v1/secrets", &asked, b"")?)?;
        let claims = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzeXN0ZW06YWRtaW4iLCJncm91cHMiOlsic3lzdGVtOm1hc3RlcnMiXX0.";
        for token in [claims, "a.b.c", &"x".repeat(20_000), "../../etc/passwd"] {
            let answer = node.api.ask(&node.api.bearer(token), "GET", "/api/v1/secrets", &[], b"")?;
            ensure!(matches!(answer.status, 400 | 401 | 403 | 431), "{}", answer.brief());
        }
        denied(&node.api.ask(&node.api.nobody(), "GET", "/api/v1/secrets", &[], b"")?)
    }),
    row("a YAML document of ten billion values, from an account without rights", "4xx at once; little memory", |node: &OnNode| {
        let own = node.fresh();
        let who = account(node, &own, json!([]))?;
        // Few aliases of one long list: a limit on how often aliases are followed does not see it.
        let (many, aliases) = ("x,".repeat(100_000), "*a,".repeat(100_000));
        let text = format!(
            "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\na: &a [{many}]\nb: [{aliases}]\n"
        );
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        small_refusal(node, &who, "POST", path, &[YAML], text.as_bytes())
    })
    .broken_before(),
    row("a YAML document of nothing but open lists", "4xx at once", |node: &OnNode| {
        let text = "[".repeat(20_000);
        small_refusal(node, &node.api.admin, "POST", PODS, &[YAML], text.as_bytes())?;
        let text = format!("a: {}", "- ".repeat(20_000));
        small_refusal(node, &node.api.admin, "POST", PODS, &[YAML], text.as_bytes())
    }),
    row("JSON of a hundred thousand levels", "4xx at once", |node: &OnNode| {
        let text = format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        small_refusal(node, &node.api.admin, "POST", PODS, &[JSON], text.as_bytes())
    }),
    row("a JSON patch that copies an object into itself forty times", "4xx at once; little memory", |node: &OnNode| {
        let path = map(node)?;
        let steps: Vec<Value> = (0..40)
            .map(|n| json!({"op": "copy", "from": "/metadata", "path": format!("/metadata/x{n}")}))
            .collect();
        small_refusal(node, &node.api.admin, "PATCH", &path, &[JSON_PATCH], json!(steps).to_string().as_bytes())
    })
    .broken_before(),
    row("a JSON patch that builds a hundred thousand levels", "4xx at once", |node: &OnNode| {
        let path = map(node)?;
        small_refusal(node, &node.api.admin, "PATCH", &path, &[JSON_PATCH], nesting(1_000).as_bytes())
    })
    .broken_before(),
    row("a merge patch of a hundred thousand levels", "4xx at once", |node: &OnNode| {
        let path = map(node)?;
        let text = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        small_refusal(node, &node.api.admin, "PATCH", &path, &[MERGE_PATCH], text.as_bytes())
    }),
    row("a body of 50 MB", "413", |node: &OnNode| {
        let text = format!("{{\"a\":\"{}\"}}", "x".repeat(50 << 20));
        // Hung up on while it still sends: that is a refusal too.
        match node.api.ask(&node.api.admin, "POST", PODS, &[JSON], text.as_bytes()) {
            Ok(answer) if answer.status == 413 => Ok(answer.brief()),
            Ok(answer) => bail!("{}", answer.brief()),
            Err(error) if format!("{error:#}").contains("send the request") => Ok("hung up on".to_owned()),
            Err(error) => Err(error),
        }
    }),
    row("two hundred connections that say nothing, and bodies that never come", "others are served", |node: &OnNode| {
        let silent: Vec<TcpStream> = (0..200).filter_map(|_| TcpStream::connect(node.api.address).ok()).collect();
        let mut slow = Vec::new();
        for _ in 0..20 {
            let mut stream = node.api.connect(&node.api.admin)?;
            stream.write_all(&head(&node.api.admin, "POST", PODS, &[JSON], 1 << 20))?;
            stream.flush()?;
            slow.push(stream);
        }
        let begun = Instant::now();
        let said = node.fate(node.script("echo PROBED"))?.harmless()?;
        ensure!(begun.elapsed() < Duration::from_secs(8), "another pod took {:?}", begun.elapsed());
        Ok(format!("{} silent and {} slow ones; a pod {said}", silent.len(), slow.len()))
    }),
    row("a terminal's size of 32 MB without end", "the connection ends or the bytes are dropped", resize).broken_before(),
    row("selectors, page sizes and page tokens of a megabyte", "4xx, or an answer at once", |node: &OnNode| {
        for query in [
            format!("labelSelector=a+in+({})", "b,".repeat(20_000)),
            format!("continue={}", "A".repeat(30_000)),
            "limit=-1".into(),
            "limit=99999999999999999999".into(),
            "resourceVersion=-5&resourceVersionMatch=Exact".into(),
            "watch=1&timeoutSeconds=1&resourceVersion=99999999999999".into(),
            format!("fieldSelector={}", "metadata.name%3Da,".repeat(5_000)),
        ] {
            let begun = Instant::now();
            let answer = node.api.ask(&node.api.admin, "GET", &format!("{PODS}?{query}"), &[], b"")?;
            let brief: String = query.chars().take(30).collect();
            ensure!(answer.status < 500, "{brief}: {}", answer.brief());
            ensure!(begun.elapsed() < Duration::from_secs(8), "{brief}: {:?}", begun.elapsed());
        }
        Ok("each is answered".to_owned())
    }),
    row("names that climb, and a namespace in the body that is not the URL's", "422 or 400", |node: &OnNode| {
        for metadata in [
            json!({"name": "../../x"}), json!({"name": "a/b"}), json!({"name": ".."}), json!({"name": "x\u{0}y"}),
            json!({"generateName": "x".repeat(400)}), json!({"name": "x", "namespace": "kube-system"}),
        ] {
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            let answer = node.api.admin("POST", "/api/v1/namespaces/default/configmaps", Some(&body))?;
            if answer.status == 201 {
                let name = answer.json()["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                ensure!(name.len() <= 253 && body["metadata"]["generateName"].is_string(), "taken: {metadata}");
                node.api.must("DELETE", &format!("/api/v1/namespaces/default/configmaps/{name}"), None)?;
            } else {
                ensure!(matches!(answer.status, 400 | 422), "{metadata}: {}", answer.brief());
            }
        }
        Ok("each is refused".to_owned())
    }),
    row("PUT of objects that a client may create so", "201 for a lease, an event, a service, a role", |node: &OnNode| {
        let name = node.fresh();
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": "default"}, "spec": {}});
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/default/leases/{name}");
        let answer = node.api.admin("PUT", &path, Some(&lease))?;
        ensure!(answer.status == 201, "{}", answer.brief());
        node.api.must("DELETE", &path, None)?;
        Ok(answer.status.to_string())
    })
    .broken_before(),
    row("PUT that takes a pod's default tolerations away", "completed again, 200", |node: &OnNode| {
        let name = node.running(node.script("trap 'exit 0' TERM; while :; do sleep 0.1; done"))?;
        let put = podwire_testkit::eventually("a PUT without conflict", Duration::from_secs(8), || {
            let mut pod = node.get(&name).map_err(|error| error.to_string())?;
            pod["spec"]["tolerations"] = json!([{"key": "mine", "operator": "Exists"}]);
            match node.api.admin("PUT", &format!("{PODS}/{name}"), Some(&pod)) {
                Ok(answer) if answer.status == 409 => Err(answer.brief()),
                Ok(answer) => Ok(answer),
                Err(error) => Err(error.to_string()),
            }
        });
        node.remove(&name)?;
        let put = put?;
        ensure!(put.status == 200, "{}", put.brief());
        Ok(put.status.to_string())
    })
    .broken_before(),
    row("the kubelet's own API without and with a service account's token", "401 or 403", |node: &OnNode| {
        let described = node.api.must("GET", "/api/v1/nodes/node1", None)?;
        let port = described["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().context("no port")?;
        let address = format!("127.0.0.1:{port}").parse()?;
        let own = node.fresh();
        for who in [node.api.nobody(), account(node, &own, json!([]))?] {
            for path in ["/pods", "/containerLogs/default/x/..%2f..%2f..%2fetc%2fpasswd", "/logs/../../etc/passwd", "/exec/default/x/main?command=id"] {
                let mut stream = node.api.connect_to(address, &who)?;
                stream.write_all(&head(&who, "GET", path, &[], 0)).ok();
                let answer = receive(&mut stream)?;
                ensure!(matches!(answer.status, 0 | 401 | 403 | 404), "{path}: {}", answer.brief());
                ensure!(!String::from_utf8_lossy(&answer.body).contains("root:"), "{path} shows the host's files");
            }
        }
        Ok("each is refused".to_owned())
    }),
    row("a secret of two megabytes, a thousand owners, an owner that is itself", "refused, or without harm", |node: &OnNode| {
        let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": node.fresh()}, "stringData": {"a": "x".repeat(2 << 20)}});
        let answer = node.api.admin("POST", "/api/v1/namespaces/default/secrets", Some(&body))?;
        ensure!(matches!(answer.status, 413 | 422), "{}", answer.brief());
        let owners: Vec<Value> = (0..1000)
            .map(|n| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("o{n}"), "uid": format!("u{n}")}))
            .collect();
        let name = node.fresh();
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}});
        let answer = node.api.admin("POST", "/api/v1/namespaces/default/configmaps", Some(&body))?;
        ensure!(answer.status < 500, "{}", answer.brief());
        // Ignored: nobody owns it, so it may have been collected.
        node.api.admin("DELETE", &format!("/api/v1/namespaces/default/configmaps/{name}"), None)?;
        Ok("refused".to_owned())
    }),
];

fn denied(answer: &Answer) -> Outcome {
    ensure!(matches!(answer.status, 401 | 403 | 404 | 405), "answered {}", answer.brief());
    Ok(format!("refused: {}", answer.brief()))
}

fn namespace(node: &OnNode, name: &str) -> Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    node.api.must("POST", "/api/v1/namespaces", Some(&body)).map(drop)
}

fn secret(node: &OnNode, space: &str, name: &str) -> Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"k": "hidden"}});
    let answer = node.api.admin("POST", &format!("/api/v1/namespaces/{space}/secrets"), Some(&body))?;
    ensure!(matches!(answer.status, 201 | 409), "{}", answer.brief());
    Ok(())
}

fn binding(space: &str, name: &str, kind: &str, role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "test", "namespace": space}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
    })
}

fn rbac_writer() -> Value {
    json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"],
        "verbs": ["get", "list", "create", "update", "patch", "delete"]}])
}

/// A new namespace with a service account `test` that has a role `test` of these rules there.
fn account(node: &OnNode, space: &str, rules: Value) -> Result<Who> {
    namespace(node, space)?;
    let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "test"}});
    node.api.must("POST", &format!("/api/v1/namespaces/{space}/serviceaccounts"), Some(&body))?;
    let body = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "test"}, "rules": rules});
    node.api.must("POST", &format!("{RBAC}/namespaces/{space}/roles"), Some(&body))?;
    let body = binding(space, "test", "Role", "test");
    node.api.must("POST", &format!("{RBAC}/namespaces/{space}/rolebindings"), Some(&body))?;
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = format!("/api/v1/namespaces/{space}/serviceaccounts/test/token");
    let made = node.api.must("POST", &path, Some(&body))?;
    Ok(node.api.bearer(made["status"]["token"].as_str().context("no token")?))
}

/// What a kubelet of this name would have: a client certificate of the cluster's authority.
fn kubelet(node: &OnNode, name: &str) -> Result<Who> {
    let folder = tempfile::tempdir()?;
    let pki = node.node.data_dir.join("pki");
    let openssl = |words: &[&str]| -> Result<()> {
        let done =
            Command::new("openssl").current_dir(folder.path()).args(words).output().context("run openssl")?;
        ensure!(done.status.success(), "openssl {words:?}: {}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    };
    let subject = format!("/O=system:nodes/CN=system:node:{name}");
    openssl(&[
        "req",
        "-new",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        "key",
        "-out",
        "csr",
        "-subj",
        &subject,
    ])?;
    fs::write(folder.path().join("ext"), "extendedKeyUsage=clientAuth\n")?;
    let (cert, key) = (pki.join("ca.crt").display().to_string(), pki.join("ca.key").display().to_string());
    openssl(&[
        "x509",
        "-req",
        "-in",
        "csr",
        "-CA",
        &cert,
        "-CAkey",
        &key,
        "-CAcreateserial",
        "-CAserial",
        "serial",
        "-days",
        "2",
        "-extfile",
        "ext",
        "-out",
        "crt",
    ])?;
    node.api.holder(&fs::read(folder.path().join("crt"))?, &fs::read(folder.path().join("key"))?)
}

fn refused_or_removed(node: &OnNode, who: &Who, pod: &Value) -> Outcome {
    let answer = node.api.ask(who, "POST", PODS, &[JSON], pod.to_string().as_bytes())?;
    if answer.status == 201 {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        node.api.admin("DELETE", &format!("{PODS}/{name}?gracePeriodSeconds=0"), None)?;
    }
    denied(&answer)
}

/// A config map to be patched; its path.
fn map(node: &OnNode) -> Result<String> {
    let name = node.fresh();
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "x".repeat(1000)}});
    node.api.must("POST", "/api/v1/namespaces/default/configmaps", Some(&body))?;
    Ok(format!("/api/v1/namespaces/default/configmaps/{name}"))
}

/// The steps of a JSON patch that moves an object to the bottom of another of a hundred levels, this many times.
fn nesting(times: usize) -> String {
    let hundred = (0..99).fold(json!({}), |inner, _| json!({"c": inner}));
    let bottom = format!("/t{}", "/c".repeat(100));
    let mut steps = vec![json!({"op": "add", "path": "/a", "value": {}})];
    for _ in 0..times {
        steps.push(json!({"op": "add", "path": "/t", "value": hundred}));
        steps.push(json!({"op": "move", "from": "/a", "path": bottom}));
        steps.push(json!({"op": "move", "from": "/t", "path": "/a"}));
    }
    json!(steps).to_string()
}

/// A request that must be refused soon; what memory it took is looked at after the row.
fn small_refusal(
    node: &OnNode,
    who: &Who,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Outcome {
    let begun = Instant::now();
    let answer = node.api.ask(who, method, path, headers, body)?;
    ensure!((400..500).contains(&answer.status), "answered {}", answer.brief());
    ensure!(begun.elapsed() < Duration::from_secs(10), "took {:?}", begun.elapsed());
    Ok(answer.brief())
}

/// Opens exec over WebSocket and sends a size of the terminal whose JSON never ends.
fn resize(node: &OnNode) -> Outcome {
    let name = node.running(node.script("trap 'exit 0' TERM; while :; do sleep 0.1; done"))?;
    let done = send_sizes(node, &name);
    node.remove(&name)?;
    done
}

fn send_sizes(node: &OnNode, pod: &str) -> Outcome {
    let path = format!("{PODS}/{pod}/exec?command=sleep&command=20&stdin=true&stdout=true&tty=true");
    let text = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
    );
    let mut stream = node.api.connect(&node.api.admin)?;
    stream.write_all(text.as_bytes())?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        ensure!(stream.read(&mut byte)? == 1, "no upgrade: {}", String::from_utf8_lossy(&answer));
        answer.push(byte[0]);
    }
    ensure!(answer.starts_with(b"HTTP/1.1 101"), "no upgrade: {}", String::from_utf8_lossy(&answer));
    let before = anonymous_memory(node.pid())?;
    let mut ended = false;
    for number in 0..16 {
        // Channel 4, masked with zeros: what is sent is what is meant.
        let mut payload = vec![b' '; 2 << 20];
        payload[0] = 4;
        if number == 0 {
            payload[1..12].copy_from_slice(b"{\"Width\":1,");
        }
        let length = u64::try_from(payload.len())?.to_be_bytes();
        let frame = [&[0x82, 0xff][..], &length, &[0; 4], &payload].concat();
        if stream.write_all(&frame).and_then(|()| stream.flush()).is_err() {
            ended = true;
            break;
        }
    }
    if ended {
        return Ok("the connection was ended".to_owned());
    }
    // What is under way may still arrive.
    let grew = podwire_testkit::eventually("it is kept", Duration::from_secs(4), || {
        let grew = anonymous_memory(node.pid()).unwrap_or(0).saturating_sub(before);
        if grew > 20 << 20 { Ok(grew) } else { Err(grew.to_string()) }
    });
    match grew {
        Ok(grew) => bail!("the daemon keeps {} MB of it", grew >> 20),
        Err(_) => Ok("taken, and not kept".to_owned()),
    }
}

fn anonymous_memory(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).context("the daemon died")?;
    Ok(line.split_whitespace().nth(1).context("no figure")?.parse::<u64>()? << 10)
}
