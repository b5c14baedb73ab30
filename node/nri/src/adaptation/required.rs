//! Which plugins a pod cannot do without. Pure but for the waiting.

use std::collections::BTreeSet;
use std::time::Duration;

use podwire_wire::nri::{Container, PodSandbox};

use super::Toleration;
use super::plugin::Stage;
use super::registry::Registry;

const ANNOTATION: &str = "required-plugins.noderesource.dev";

/// Names of plugins required by configuration, by the pod, and by the container if one is given.
pub(super) fn names(
    configured: &[String],
    pod: &PodSandbox,
    container: Option<&Container>,
) -> BTreeSet<String> {
    let mut keys = vec![ANNOTATION.to_owned(), format!("{ANNOTATION}/pod")];
    keys.extend(container.map(|container| format!("{ANNOTATION}/container.{}", container.name)));
    let annotated = keys.iter().filter_map(|key| pod.annotations.get(key)).flat_map(|text| listed(text));
    configured.iter().cloned().chain(annotated).collect()
}

/// Whether the pod, or the container if one is given, may do without required plugins that are absent: it says so itself,
/// in a namespace where that counts. The most precise annotation decides.
pub(super) fn tolerated(
    toleration: Option<&Toleration>,
    pod: &PodSandbox,
    container: Option<&Container>,
) -> bool {
    let Some(Toleration { annotation, namespaces }) = toleration else { return false };
    let precise = container.map(|container| format!("{annotation}/container.{}", container.name));
    let keys = precise.into_iter().chain([format!("{annotation}/pod"), annotation.clone()]);
    let said = keys.filter_map(|key| pod.annotations.get(&key)).next();
    // What Go's ParseBool takes for true; anything else is no toleration.
    let wanted = said.is_some_and(|text| ["1", "t", "T", "TRUE", "true", "True"].contains(&text.as_str()));
    let counts = namespaces.contains(&pod.namespace);
    if wanted && !counts {
        let pod = format!("{}/{}", pod.namespace, pod.name);
        tracing::warn!(pod, annotation, "a pod would do without required NRI plugins where it may not");
    }
    wanted && counts
}

/// Whether a pod's annotations name plugins it cannot do without.
pub(super) fn annotated<'a>(mut keys: impl Iterator<Item = &'a String>) -> bool {
    keys.any(|key| key.split('/').next() == Some(ANNOTATION))
}

/// A list written as JSON, as lines with dashes, or with commas.
fn listed(text: &str) -> Vec<String> {
    if let Ok(list) = serde_json::from_str::<Vec<String>>(text) {
        return list;
    }
    let unquoted =
        |part: &str| part.trim().trim_start_matches("- ").trim_matches(['"', '\'', '[', ']', ' ']).to_owned();
    text.split([',', '\n']).map(unquoted).filter(|name| !name.is_empty()).collect()
}

/// The first of `names` that is not ready.
pub(super) fn absent(registry: &Registry, names: &BTreeSet<String>) -> Option<String> {
    if names.is_empty() {
        return None;
    }
    let plugins = registry.plugins();
    let ready =
        |name: &&String| plugins.iter().any(|plugin| plugin.name == **name && plugin.stage() == Stage::Ready);
    names.iter().find(|name| !ready(name)).cloned()
}

/// Waits until all of `names` are ready; returns the first that is not there in time.
pub(super) async fn wait(registry: &Registry, names: &BTreeSet<String>, longest: Duration) -> Option<String> {
    let mut changes = registry.changes();
    let waiting = async {
        while absent(registry, names).is_some() {
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    // Ignored: whether time ran out shows in who is absent.
    tokio::time::timeout(longest, waiting).await.ok();
    absent(registry, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_come_from_the_configuration_the_pod_and_the_container() {
        let pod = PodSandbox {
            annotations: [
                (ANNOTATION.to_owned(), "[\"a\", \"b\"]".to_owned()),
                (format!("{ANNOTATION}/pod"), "- c\n- d".to_owned()),
                (format!("{ANNOTATION}/container.web"), "e, f".to_owned()),
            ]
            .into(),
            ..PodSandbox::default()
        };
        let all = |container: Option<&str>| {
            let container = container.map(|name| Container { name: name.into(), ..Container::default() });
            names(&["z".to_owned()], &pod, container.as_ref()).into_iter().collect::<String>()
        };
        assert_eq!(all(None), "abcdz");
        assert_eq!(all(Some("db")), "abcdz");
        assert_eq!(all(Some("web")), "abcdefz");
    }

    #[test]
    fn a_toleration_counts_where_it_is_allowed_and_the_most_precise_one_decides() {
        let key = "tolerate.example";
        let toleration = Toleration { annotation: key.into(), namespaces: vec!["kube-system".into()] };
        let pod = |namespace: &str, annotations: &[(&str, &str)]| PodSandbox {
            namespace: namespace.into(),
            annotations: annotations
                .iter()
                .map(|&(end, text)| (format!("{key}{end}"), text.to_owned()))
                .collect(),
            ..PodSandbox::default()
        };
        let web = Container { name: "web".into(), ..Container::default() };
        let may = |pod: &PodSandbox, container| tolerated(Some(&toleration), pod, container);
        let plain = pod("kube-system", &[("", "true")]);
        assert!(may(&plain, None) && may(&plain, Some(&web)));
        assert!(!tolerated(None, &plain, None), "nobody configured it");
        assert!(!may(&pod("default", &[("", "true")]), None), "not in this namespace");
        assert!(!may(&pod("kube-system", &[]), None));
        assert!(!may(&pod("kube-system", &[("", "yes")]), None), "not what Go reads as true");
        let precise = pod("kube-system", &[("", "true"), ("/container.web", "false")]);
        assert!(may(&precise, None) && !may(&precise, Some(&web)));
        let inner = pod("kube-system", &[("/container.web", "1")]);
        assert!(!may(&inner, None) && may(&inner, Some(&web)));
        let whole = pod("kube-system", &[("", "false"), ("/pod", "t")]);
        assert!(may(&whole, None) && may(&whole, Some(&web)));
    }
}
