//! What the drill asks of the API server: pods with claims, and what became of them.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use http::{Method, Request};
use podwire_client::{Client, Error};
use serde_json::{Value, json};

/// How long one call may take: what is away is asked again.
const LIMIT: Duration = Duration::from_secs(5);
const CLAIMS: &str = "/apis/resource.k8s.io/v1";

/// The API server, and whose objects are looked at there.
pub struct Cluster {
    /// The API server.
    pub client: Client,
    /// Of pods and claims.
    pub namespace: String,
    /// Where pods run.
    pub node: String,
    /// Whose devices.
    pub driver: String,
    /// How all names of ours begin.
    pub prefix: String,
}

/// What a pod runs.
pub struct Container {
    /// Its image.
    pub image: String,
    /// What the image is told.
    pub args: Vec<String>,
}

/// A pod of ours.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whether the scheduler has bound it.
    pub bound: bool,
    /// Its containers, if all run and nobody has told it to end.
    pub running: Option<Vec<String>>,
    /// The names of its claims.
    pub claims: Vec<String>,
}

impl Cluster {
    /// One call; `None` if there is no such object.
    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Result<Option<Value>> {
        let what = format!("{method} {path}");
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let call = self.client.request(request.body(body).context("build the request")?);
        match tokio::time::timeout(LIMIT, call).await {
            Ok(Ok(answer)) => Ok(Some(answer)),
            Ok(Err(Error::Api(status))) if status.code == 404 => Ok(None),
            Ok(Err(error)) => Err(anyhow::Error::new(error).context(what)),
            Err(_) => anyhow::bail!("{what}: the API server does not answer"),
        }
    }

    async fn items(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.call(Method::GET, path, None).await?.with_context(|| format!("no {path}"))?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    async fn make(&self, path: &str, object: Value) -> Result<()> {
        let made = self.call(Method::POST, path, Some(object)).await?;
        made.map(drop).with_context(|| format!("the API server has no {path}"))
    }

    fn pods_path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace)
    }

    fn templates_path(&self) -> String {
        format!("{CLAIMS}/namespaces/{}/resourceclaimtemplates", self.namespace)
    }

    /// Makes the template of claims: one device of a class.
    pub async fn make_template(&self, class: &str, parameters: Option<&Value>) -> Result<()> {
        let mut devices = json!({"requests": [{"name": "device", "exactly": {"deviceClassName": class}}]});
        if let Some(parameters) = parameters {
            let opaque = json!({"driver": self.driver, "parameters": parameters});
            devices["config"] = json!([{"requests": ["device"], "opaque": opaque}]);
        }
        let template = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": {"name": self.prefix}, "spec": {"spec": {"devices": devices}},
        });
        self.make(&self.templates_path(), template).await
    }

    /// Makes a pod, with a claim or without.
    pub async fn make_pod(&self, name: &str, container: &Container, claims: bool) -> Result<()> {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"podwire.dev/drill": self.prefix}},
            "spec": {
                // With none at all the object would go before the pod does.
                "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": container.image, "imagePullPolicy": "IfNotPresent", "args": container.args}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self.node]}]},
                ]}}},
            },
        });
        if claims {
            pod["spec"]["resourceClaims"] =
                json!([{"name": "device", "resourceClaimTemplateName": self.prefix}]);
            pod["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "device"}]});
        }
        self.make(&self.pods_path(), pod).await
    }

    /// Tells a pod to end; by force only the object goes.
    pub async fn delete_pod(&self, name: &str, force: bool) -> Result<()> {
        let options = force.then(|| json!({"gracePeriodSeconds": 0}));
        self.call(Method::DELETE, &format!("{}/{name}", self.pods_path()), options).await.map(drop)
    }

    /// Every pod of ours.
    pub async fn pods(&self) -> Result<Vec<Pod>> {
        let chosen = format!("{}?labelSelector=podwire.dev%2Fdrill%3D{}", self.pods_path(), self.prefix);
        Ok(self.items(&chosen).await?.iter().map(pod).collect())
    }

    /// Every claim of pods of ours, with the devices that it is allocated.
    pub async fn claims(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let path = format!("{CLAIMS}/namespaces/{}/resourceclaims", self.namespace);
        let mut ours = BTreeMap::new();
        for claim in self.items(&path).await? {
            let owner = claim["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default();
            if !owner.starts_with(&self.prefix) {
                continue;
            }
            let results = claim["status"]["allocation"]["devices"]["results"].as_array();
            let results = results.into_iter().flatten().filter(|one| one["driver"] == *self.driver);
            ours.insert(text(&claim["metadata"]["name"]), results.map(|one| text(&one["device"])).collect());
        }
        Ok(ours)
    }

    /// The slices of the driver on the node.
    async fn slices(&self) -> Result<Vec<Value>> {
        let all = self.items(&format!("{CLAIMS}/resourceslices")).await?.into_iter();
        let ours = |slice: &Value| {
            slice["spec"]["driver"] == *self.driver && slice["spec"]["nodeName"] == *self.node
        };
        Ok(all.filter(ours).collect())
    }

    /// What the driver offers on the node: each device, with the name of its link where that is told.
    pub async fn published(&self) -> Result<Vec<(String, Option<String>)>> {
        let slices = self.slices().await?;
        let devices =
            slices.iter().flat_map(|slice| slice["spec"]["devices"].as_array().into_iter().flatten());
        Ok(devices.map(|device| (text(&device["name"]), link(device))).collect())
    }

    /// Takes the slices away, which the driver is to write anew.
    pub async fn delete_slices(&self) -> Result<()> {
        for slice in self.slices().await? {
            let path = format!("{CLAIMS}/resourceslices/{}", text(&slice["metadata"]["name"]));
            self.call(Method::DELETE, &path, None).await?;
        }
        Ok(())
    }

    /// Takes away what is ours.
    pub async fn clean(&self) -> Result<()> {
        for pod in self.pods().await? {
            self.delete_pod(&pod.name, false).await?;
        }
        let template = format!("{}/{}", self.templates_path(), self.prefix);
        self.call(Method::DELETE, &template, None).await.map(drop)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The link that a device is while nobody has it: drivers tell it as an attribute `ifName` of a domain of theirs.
fn link(device: &Value) -> Option<String> {
    let attributes = device["attributes"].as_object()?;
    let named = attributes.iter().find(|(name, _)| name.rsplit('/').next() == Some("ifName"));
    named.and_then(|(_, value)| value["string"].as_str()).map(str::to_owned)
}

fn pod(pod: &Value) -> Pod {
    let (metadata, status) = (&pod["metadata"], &pod["status"]);
    let containers = status["containerStatuses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_running = |one: &Value| one["state"]["running"].is_object();
    let runs = metadata["deletionTimestamp"].is_null()
        && status["phase"] == "Running"
        && containers.iter().all(is_running);
    let claims = status["resourceClaimStatuses"].as_array().into_iter().flatten();
    Pod {
        name: text(&metadata["name"]),
        uid: text(&metadata["uid"]),
        bound: pod["spec"]["nodeName"].is_string(),
        running: runs.then(|| containers.iter().map(|one| text(&one["containerID"])).collect()),
        claims: claims.map(|one| text(&one["resourceClaimName"])).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_is_told_to_end_does_not_count_as_running() {
        let mut value = json!({
            "metadata": {"name": "a", "uid": "u"}, "spec": {"nodeName": "n"},
            "status": {
                "phase": "Running", "resourceClaimStatuses": [{"name": "device", "resourceClaimName": "a-device-x"}],
                "containerStatuses": [{"containerID": "c1", "state": {"running": {}}}],
            },
        });
        let running = pod(&value);
        assert_eq!(
            (running.running, running.claims),
            (Some(vec!["c1".to_owned()]), vec!["a-device-x".to_owned()])
        );
        value["metadata"]["deletionTimestamp"] = "now".into();
        assert_eq!(pod(&value).running, None);
    }

    #[test]
    fn the_link_of_a_device_is_found_whatever_the_driver_calls_its_attributes() {
        let named = |name: &str| {
            link(&json!({"name": "d", "attributes": {"x/mtu": {"int": 1}, name: {"string": "eth1"}}}))
        };
        assert_eq!(named("dra.net/ifName").as_deref(), Some("eth1"));
        assert_eq!(named("ifName").as_deref(), Some("eth1"));
        assert_eq!(named("other"), None);
    }
}
