//! Which resources a server has, each in the most stable version that serves it.

use http::Request;
use http::header::ACCEPT;
use kube_core::Version;
use kube_core::discovery::v2::ACCEPT_AGGREGATED_DISCOVERY_V2 as AGGREGATED;
use serde_json::Value;

use crate::client::{Client, Error, Result};

pub use kube_core::discovery::{ApiCapabilities, ApiResource, Scope, verbs};

/// A resource, and what can be done with it.
pub type Found = (ApiResource, ApiCapabilities);

/// All resources, asked for at once or, of a server that cannot answer that, group by group.
pub async fn resources(client: &Client) -> Result<Vec<Found>> {
    match aggregated(client).await {
        Ok(found) => Ok(found),
        Err(_) => by_group(client).await,
    }
}

async fn ask(client: &Client, path: &str, accept: &str) -> Result<Value> {
    let request = Request::get(path).header(ACCEPT, accept).body(Vec::new());
    client.request(request.map_err(|error| Error::Request(error.into()))?).await
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn resource(group: &str, version: &str, kind: &Value, plural: &Value) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let (group, version) = (group.to_owned(), version.to_owned());
    ApiResource { group, version, api_version, kind: text(kind), plural: text(plural) }
}

fn capabilities(scope: Scope, verbs: &Value) -> ApiCapabilities {
    ApiCapabilities { scope, subresources: Vec::new(), operations: list(verbs).iter().map(text).collect() }
}

async fn aggregated(client: &Client) -> Result<Vec<Found>> {
    let groups = ask(client, "/apis", AGGREGATED).await?;
    let core = ask(client, "/api", AGGREGATED).await?;
    let mut found = Vec::new();
    for answer in [&groups, &core] {
        // A server that does not know the question answers another.
        let items = answer["items"].as_array().ok_or(Error::Lacks("items"))?;
        items.iter().for_each(|group| served_by(group, &mut found));
    }
    Ok(found)
}

/// The resources of all versions of a group.
fn served_by(group: &Value, found: &mut Vec<Found>) {
    let name = text(&group["metadata"]["name"]);
    let mut all = Vec::new();
    for version in list(&group["versions"]) {
        for one in list(&version["resources"]) {
            let scope = if one["scope"] == "Namespaced" { Scope::Namespaced } else { Scope::Cluster };
            let resource =
                resource(&name, &text(&version["version"]), &one["responseKind"]["kind"], &one["resource"]);
            all.push((resource, capabilities(scope, &one["verbs"])));
        }
    }
    found.extend(most_stable(all));
}

async fn by_group(client: &Client) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let groups = ask(client, "/apis", "application/json").await?;
    for group in list(&groups["groups"]) {
        let name = text(&group["name"]);
        let mut all = Vec::new();
        for version in list(&group["versions"]).iter().map(|one| text(&one["version"])) {
            let served = ask(client, &format!("/apis/{name}/{version}"), "application/json").await?;
            served_in(&name, &version, &served, &mut all);
        }
        found.extend(most_stable(all));
    }
    let served = ask(client, "/api/v1", "application/json").await?;
    served_in("", "v1", &served, &mut found);
    Ok(found)
}

/// Of what one group serves in several versions the most stable, and of those the newest. The version that a group prefers
/// need not serve all of its kinds.
fn most_stable(mut all: Vec<Found>) -> Vec<Found> {
    let rank = |found: &Found| Version::parse(&found.0.version).priority();
    all.sort_by(|a, b| (&a.0.plural, rank(b)).cmp(&(&b.0.plural, rank(a))));
    all.dedup_by(|next, kept| next.0.plural == kept.0.plural);
    all
}

fn served_in(group: &str, version: &str, served: &Value, found: &mut Vec<Found>) {
    // The others are parts of objects.
    let whole = |one: &&Value| !text(&one["name"]).contains('/');
    for one in list(&served["resources"]).iter().filter(whole) {
        let own = |key: &str, other: &str| one[key].as_str().unwrap_or(other).to_owned();
        let named = ApiResource {
            group: own("group", group),
            version: own("version", version),
            ..resource(group, version, &one["kind"], &one["name"])
        };
        let scope = if one["namespaced"] == true { Scope::Namespaced } else { Scope::Cluster };
        found.push((named, capabilities(scope, &one["verbs"])));
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use serde_json::json;

    use super::*;
    use crate::Body;

    /// A server with two groups, which may know the question for all at once.
    fn server(knows: bool) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| async move {
            let accept = request.headers()[ACCEPT].to_str().unwrap();
            let at_once = knows && accept.contains("v=v2;as=APIGroupDiscoveryList");
            let verbs = json!(["list", "delete"]);
            let pods = json!({"resource": "pods", "responseKind": {"kind": "Pod"}, "scope": "Namespaced", "verbs": verbs,
                "subresources": [{"subresource": "log"}]});
            let olds = json!({"resource": "olds", "responseKind": {"kind": "Old"}, "scope": "Cluster", "verbs": verbs});
            let gadgets = json!({"resource": "gadgets", "responseKind": {"kind": "Gadget"}, "scope": "Cluster", "verbs": verbs});
            let answer = match (request.uri().path(), at_once) {
                ("/api", true) => {
                    json!({"items": [{"metadata": {}, "versions": [{"version": "v1", "resources": [pods]}]}]})
                }
                ("/apis", true) => json!({"items": [{"metadata": {"name": "x.io"}, "versions": [
                    {"version": "v1beta1", "resources": [olds, gadgets]}, {"version": "v1", "resources": [gadgets]}]}]}),
                ("/apis", false) => {
                    json!({"groups": [{"name": "x.io", "versions": [{"version": "v1beta1"}, {"version": "v1"}]},
                    {"name": "empty.io", "versions": []}]})
                }
                ("/apis/x.io/v1", _) => json!({"resources": [
                    {"name": "gadgets", "kind": "Gadget", "namespaced": false, "verbs": verbs}]}),
                ("/apis/x.io/v1beta1", _) => json!({"resources": [
                    {"name": "gadgets", "kind": "Gadget", "namespaced": false, "verbs": verbs},
                    {"name": "olds", "kind": "Old", "namespaced": false, "verbs": verbs}]}),
                ("/api/v1", _) => {
                    json!({"resources": [{"name": "pods", "kind": "Pod", "namespaced": true, "verbs": verbs},
                    {"name": "pods/log", "kind": "Pod", "namespaced": true, "verbs": ["get"]}]})
                }
                ("/api", false) => json!({"versions": ["v1"]}),
                (other, _) => panic!("nobody asks for {other}"),
            };
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(answer.to_string())))
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn both_ways_find_the_same() {
        for knows in [true, false] {
            let mut found = resources(&server(knows)).await.unwrap();
            found.sort_by(|a, b| a.0.plural.cmp(&b.0.plural));
            let [(gadgets, of_gadgets), (olds, _), (pods, of_pods)] = &found[..] else { panic!("{found:?}") };
            assert_eq!((gadgets.api_version.as_str(), gadgets.kind.as_str()), ("x.io/v1", "Gadget"));
            assert_eq!((olds.api_version.as_str(), olds.kind.as_str()), ("x.io/v1beta1", "Old"));
            assert_eq!((pods.api_version.as_str(), pods.group.as_str()), ("v1", ""));
            assert_eq!((&of_gadgets.scope, &of_pods.scope), (&Scope::Cluster, &Scope::Namespaced));
            assert!(of_pods.supports_operation(verbs::DELETE) && !of_pods.supports_operation(verbs::WATCH));
        }
    }
}
