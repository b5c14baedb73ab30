//! The labels and annotations by which a kubelet recognises its sandboxes and containers in the runtime.
//!
//! They are upstream's, so that another kubelet can adopt what this one made, and the other way round.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::spec::{self, PodRef};

/// Pod's name.
pub(crate) const POD_NAME: &str = "io.kubernetes.pod.name";
/// Pod's namespace.
pub(crate) const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Pod's uid.
pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";
/// Container's name in the specification.
pub(crate) const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// Hash of what the container was made from.
pub(crate) const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
/// How often the container was restarted.
pub(crate) const CONTAINER_RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Where the container leaves its last words.
pub(crate) const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// Whether the log may stand in for them.
pub(crate) const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// The container's preStop handler as JSON, for when the specification is lost.
pub(crate) const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
/// The container's ports as JSON.
pub(crate) const PORTS: &str = "io.kubernetes.container.ports";
/// The memory a container asked for that is to be restarted when that changes: no runtime tells it.
pub(crate) const MEMORY_REQUEST: &str = "podwire.dev/memory-request";
/// Grace period of a deletion under way.
pub(crate) const POD_DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";
/// Grace period of the specification.
pub(crate) const POD_TERMINATION_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";

/// Labels of a sandbox: the pod's own and its identity.
pub(crate) fn sandbox_labels(pod: &Pod) -> HashMap<String, String> {
    let mut all: HashMap<String, String> =
        pod.metadata.labels.clone().unwrap_or_default().into_iter().collect();
    all.extend(identity(&PodRef::of(pod)));
    all
}

/// By which a pod names NRI plugins that it cannot do without; more precise ones have a suffix.
const REQUIRED_PLUGINS: &str = "required-plugins.noderesource.dev";

/// Annotations of a sandbox: the pod's own, where it came from, and which NRI plugins it cannot do without.
pub(crate) fn sandbox_annotations(pod: &Pod, required: &[String]) -> HashMap<String, String> {
    let mut all: HashMap<String, String> =
        pod.metadata.annotations.clone().unwrap_or_default().into_iter().collect();
    all.entry("kubernetes.io/config.source".into()).or_insert_with(|| "api".into());
    if let Some(created) = &pod.metadata.creation_timestamp {
        all.entry("kubernetes.io/config.seen".into()).or_insert_with(|| created.0.to_string());
    }
    require_plugins(&mut all, required);
    all
}

/// Adds to what the pod says itself. The most precise annotation counts for some runtimes, so each of them gets the names.
fn require_plugins(annotations: &mut HashMap<String, String>, required: &[String]) {
    if required.is_empty() {
        return;
    }
    let whole = annotations.get(REQUIRED_PLUGINS).cloned().unwrap_or_default();
    annotations.entry(format!("{REQUIRED_PLUGINS}/pod")).or_insert(whole);
    let own = annotations.iter_mut().filter(|(key, _)| key.split('/').next() == Some(REQUIRED_PLUGINS));
    for (_, text) in own {
        let mut names: Vec<String> = serde_yaml_ng::from_str(text).unwrap_or_else(|_| {
            let parts = text.split([',', '\n']).map(|part| part.trim().trim_start_matches("- "));
            parts.filter(|name| !name.is_empty()).map(str::to_owned).collect()
        });
        let more: Vec<String> = required.iter().filter(|name| !names.contains(name)).cloned().collect();
        names.extend(more);
        *text = serde_json::to_string(&names).unwrap_or_default();
    }
}

/// Labels of a container.
pub(crate) fn container_labels(pod: &Pod, container: &Container) -> HashMap<String, String> {
    let mut all: HashMap<String, String> = identity(&PodRef::of(pod)).into_iter().collect();
    all.insert(CONTAINER_NAME.into(), container.name.clone());
    all
}

/// Annotations of a container.
pub(crate) fn container_annotations(
    pod: &Pod,
    container: &Container,
    attempt: u32,
) -> HashMap<String, String> {
    let mut all = HashMap::from([
        (CONTAINER_HASH.to_owned(), hash(container)),
        (CONTAINER_RESTART_COUNT.to_owned(), attempt.to_string()),
        (TERMINATION_MESSAGE_PATH.to_owned(), container.termination_message_path.clone().unwrap_or_default()),
        (
            TERMINATION_MESSAGE_POLICY.to_owned(),
            container.termination_message_policy.clone().unwrap_or_else(|| "File".into()),
        ),
    ]);
    if let Some(grace) = pod.metadata.deletion_grace_period_seconds {
        all.insert(POD_DELETION_GRACE.into(), grace.to_string());
    }
    if let Some(grace) = spec::spec(pod).termination_grace_period_seconds {
        all.insert(POD_TERMINATION_GRACE.into(), grace.to_string());
    }
    let pre_stop = container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref());
    if let Some(json) = pre_stop.and_then(|hook| serde_json::to_string(hook).ok()) {
        all.insert(PRE_STOP.into(), json);
    }
    if let Some(json) = container.ports.as_ref().and_then(|ports| serde_json::to_string(ports).ok()) {
        all.insert(PORTS.into(), json);
    }
    if spec::restarts_to_resize(container, "memory") {
        all.insert(MEMORY_REQUEST.into(), spec::memory_request(container).to_string());
    }
    all
}

/// The pod's identity as labels.
pub(crate) fn identity(pod: &PodRef) -> BTreeMap<String, String> {
    BTreeMap::from([
        (POD_NAME.to_owned(), pod.name.clone()),
        (POD_NAMESPACE.to_owned(), pod.namespace.clone()),
        (POD_UID.to_owned(), pod.uid.to_string()),
    ])
}

/// FNV-1a over the container's image and name as upstream hashes them, in hex.
///
/// Upstream hashes Go's dump of the JSON bytes: the type in parentheses, then the decimal bytes in brackets.
pub(crate) fn hash(container: &Container) -> String {
    let json = format!(
        r#"{{"image":{},"name":{}}}"#,
        quote(container.image.as_deref().unwrap_or_default()),
        quote(&container.name)
    );
    let bytes: Vec<String> = json.bytes().map(|byte| byte.to_string()).collect();
    let dumped = format!("([]uint8)[{}]", bytes.join(" "));
    let hash =
        dumped.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:x}")
}

fn quote(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_image_changes_the_hash_and_other_fields_do_not() {
        let one = Container { name: "app".into(), image: Some("a:1".into()), ..Default::default() };
        let two = Container { image: Some("a:2".into()), ..one.clone() };
        let same = Container { tty: Some(true), ..one.clone() };
        assert_ne!(hash(&one), hash(&two));
        assert_eq!(hash(&one), hash(&same));
    }

    #[test]
    fn a_container_carries_its_restart_count() {
        let container = Container { name: "app".into(), ..Default::default() };
        assert_eq!(container_annotations(&Pod::default(), &container, 7)[CONTAINER_RESTART_COUNT], "7");
    }

    #[test]
    fn required_plugins_are_added_to_what_the_pod_says_itself_wherever_it_says_it() {
        let of = |own: &[(&str, &str)]| {
            let own = own.iter().map(|(key, text)| (format!("{REQUIRED_PLUGINS}{key}"), (*text).to_owned()));
            let mut all: HashMap<String, String> = own.collect();
            require_plugins(&mut all, &["dra.net".to_owned()]);
            let said = |key: &str| all.get(&format!("{REQUIRED_PLUGINS}{key}")).cloned().unwrap_or_default();
            ["", "/pod", "/container.app"].map(said)
        };
        let (one, two) = ("[\"dra.net\"]".to_owned(), "[\"a\",\"dra.net\"]".to_owned());
        assert_eq!(of(&[]), [String::new(), one.clone(), String::new()]);
        assert_eq!(of(&[("", "- a")]), [two.clone(), two.clone(), String::new()]);
        assert_eq!(of(&[("/pod", "[dra.net]"), ("/container.app", "a")]), [String::new(), one, two]);
        let mut none = HashMap::new();
        require_plugins(&mut none, &[]);
        assert!(none.is_empty());
    }
}
