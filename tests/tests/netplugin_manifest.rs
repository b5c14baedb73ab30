//! dist/netplugin.yaml: with the rights that it gives the plugin does all it does, and without any of them it says which it misses.

#[allow(dead_code, unreachable_pub, reason = "the hostile suite uses all of it")]
#[path = "../hostile/http.rs"]
mod http;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use podwire_linux::nft::{self, Family, Table, Transaction};
use podwire_testkit::{Node, eventually, isolate, node::bin_dir};
use serde_json::{Value, json};

use self::http::Api;

const SOON: Duration = Duration::from_secs(60);
/// Not the account of the plugin in `up`, which has its rights from the beginning.
const ACCOUNT: &str = "tested-netplugin";
const TABLE: &str = "manifest_policy";
const CLUSTER_POLICIES: &str = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies";
const NETWORKS: &str = "/apis/net.podwire.dev/v1alpha1/namespaces/default/podnetworks";

/// `podwire netplugin` with the account's token; killed when dropped.
struct Plugin {
    child: Child,
    log: PathBuf,
}

impl Plugin {
    fn start(node: &Node, kubeconfig: &Path, round: usize) -> Result<Plugin> {
        let log = node.data_dir.join(format!("netplugin-{round}.log"));
        let file = fs::File::create(&log)?;
        let child = Command::new(bin_dir().join("podwire"))
            .args(["netplugin", "--node-name", "node1", "--table", TABLE, "--kubeconfig"])
            .arg(kubeconfig)
            .arg("--nri-socket")
            .arg(node.names()?.run_dir.join("nri.sock"))
            .arg("--trace-dir")
            .arg(&node.data_dir)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        Ok(Plugin { child, log })
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // Ignored: it may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The objects of the manifest but for the DaemonSet, for the tested account.
fn manifest() -> Result<Vec<Value>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/netplugin.yaml");
    let text = fs::read_to_string(file)?.replace("podwire-netplugin", ACCOUNT);
    Ok(text.split("\n---\n").map(serde_yaml_ng::from_str).collect::<Result<_, _>>()?)
}

fn define_cluster_policies(api: &Api) -> Result<()> {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusternetworkpolicies.policy.networking.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in of a test"}},
        "spec": {"group": "policy.networking.k8s.io", "scope": "Cluster",
            "names": {"plural": "clusternetworkpolicies", "kind": "ClusterNetworkPolicy"},
            "versions": [{"name": "v1alpha2", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}}}]},
    });
    api.must("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", Some(&definition))?;
    eventually("both kinds are served", SOON, || {
        let listed = api.must("GET", CLUSTER_POLICIES, None).and_then(|_| api.must("GET", NETWORKS, None));
        listed.map(drop).map_err(|error| format!("{error:#}"))
    })
}

/// Mistakes that are new in every round, so that there is something to say.
fn mistakes(api: &Api, round: usize) -> Result<()> {
    let wide = json!({"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": format!("broken-{round}")}, "spec": {"tier": "Upper", "priority": round}});
    api.must("POST", CLUSTER_POLICIES, Some(&wide))?;
    let network = json!({"apiVersion": "net.podwire.dev/v1alpha1", "kind": "PodNetwork",
        "metadata": {"name": format!("broken-{round}")},
        "spec": {"sysctls": [{"name": "net.ipv4.ip_forward", "value": "1"}]}});
    api.must("POST", NETWORKS, Some(&network)).map(drop)
}

fn token(api: &Api, node: &Node) -> Result<PathBuf> {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
    let path = format!("/api/v1/namespaces/kube-system/serviceaccounts/{ACCOUNT}/token");
    let answer = api.must("POST", &path, Some(&request))?;
    let token = answer["status"]["token"].as_str().context("no token")?;
    let mut config: Value = serde_yaml_ng::from_str(&fs::read_to_string(node.kubeconfig())?)?;
    config["users"][0]["user"] = json!({"token": token});
    let file = node.data_dir.join("account.kubeconfig");
    fs::write(&file, config.to_string())?;
    Ok(file)
}

#[test]
fn the_plugin_needs_every_right_that_the_manifest_gives_and_no_other() -> Result<()> {
    isolate()?;
    let node = Node::up(&["--network-policy", "off"])?;
    let api = Api::of(&node.kubeconfig())?;
    let objects = manifest()?;
    let [account, role, binding, daemons] = objects.as_slice() else { anyhow::bail!("{objects:#?}") };
    node.apply(&fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/podnetwork.yaml"))?)?;
    define_cluster_policies(&api)?;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    api.must("POST", "/api/v1/namespaces/kube-system/serviceaccounts", Some(account))?;
    api.must("POST", &format!("{rbac}/clusterroles"), Some(role))?;
    api.must("POST", &format!("{rbac}/clusterrolebindings"), Some(binding))?;
    api.must("POST", "/apis/apps/v1/namespaces/kube-system/daemonsets?dryRun=All", Some(daemons))?;
    // Its own pod starts where others wait for it.
    let tolerates = &daemons["spec"]["template"]["metadata"]["annotations"];
    ensure!(tolerates["tolerate-missing-plugins.noderesource.dev"] == "true", "{tolerates}");
    let kubeconfig = token(&api, &node)?;
    let rules = role["rules"].as_array().context("no rules")?;

    for (round, rule) in rules.iter().enumerate() {
        // An event is for a policy that the API server itself would not take today.
        let resource = rule["resources"][0].as_str().context("no resource")?;
        if resource == "events" {
            continue;
        }
        let mut without = role.clone();
        without["rules"] = rules.iter().filter(|one| *one != rule).cloned().collect();
        api.must("PUT", &format!("{rbac}/clusterroles/{ACCOUNT}"), Some(&without))?;
        mistakes(&api, round)?;
        let plugin = Plugin::start(&node, &kubeconfig, round)?;
        eventually(&format!("without {rule} it complains"), SOON, || {
            let said = plugin.said();
            let quoted = format!("\"{resource}\"");
            // Of two rules about one kind each is missed by its own verbs.
            let verbs = rule["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let refused: Vec<String> = verbs.map(|verb| format!("cannot {verb} resource")).collect();
            let complains = |line: &str| {
                refused.iter().any(|words| line.contains(words))
                    && (line.contains(&quoted) || line.contains(&quoted.replace('"', "\\\"")))
            };
            if said.lines().any(complains) { Ok(()) } else { Err(said) }
        })?;
    }

    api.must("PUT", &format!("{rbac}/clusterroles/{ACCOUNT}"), Some(role))?;
    mistakes(&api, 100)?;
    let plugin = Plugin::start(&node, &kubeconfig, 100)?;
    for path in [format!("{CLUSTER_POLICIES}/broken-100"), format!("{NETWORKS}/broken-100")] {
        eventually(&format!("{path} has its condition"), SOON, || {
            let object = api.must("GET", &path, None).map_err(|error| format!("{error:#}"))?;
            if object["status"]["conditions"][0]["status"] == "False" { Ok(()) } else { Err(plugin.said()) }
        })?;
    }
    let message = &api.must("GET", &format!("{CLUSTER_POLICIES}/broken-100"), None)?["status"]["conditions"]
        [0]["message"];
    ensure!(message.as_str().is_some_and(|text| text.contains("spec.tier")), "{message}");
    ensure!(!plugin.said().contains("cannot"), "{}", plugin.said());

    // The account in `up` has the same rights.
    let own = api.must("GET", &format!("{rbac}/clusterroles/podwire:netplugin"), None)?;
    let sorted = |role: &Value| {
        let mut rules: Vec<String> = role["rules"].as_array().into_iter().flatten().map(normal).collect();
        rules.sort();
        rules
    };
    ensure!(sorted(&own) == sorted(role), "{own:#}");
    drop(plugin);
    let mut tx = Transaction::new();
    tx.delete_table(Table { family: Family::Inet, name: TABLE });
    tx.commit(&mut nft::Socket::netfilter()?)?;
    node.down()
}

/// A rule in one way of writing it.
fn normal(rule: &Value) -> String {
    let list = |name: &str| {
        let mut all: Vec<&str> =
            rule[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        all.sort_unstable();
        all.join(",")
    };
    ["apiGroups", "resources", "resourceNames", "verbs"].map(list).join(" ")
}
