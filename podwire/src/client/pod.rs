//! Which pod and which of its containers a verb means.

use anyhow::{Result, bail};
use serde_json::Value;

use super::Session;

/// The pod's name without its type.
pub fn name(word: &str) -> &str {
    word.trim_start_matches("pods/").trim_start_matches("pod/").trim_start_matches("po/")
}

/// The container that the verb is about: the named one, the pod's default, or its first.
pub async fn container(session: &Session, pod: &str, wanted: Option<&str>) -> Result<String> {
    let path = format!("/api/v1/namespaces/{}/pods/{pod}", session.namespace);
    choose(&session.get_json(&path).await?, wanted)
}

fn choose(pod: &Value, wanted: Option<&str>) -> Result<String> {
    let of = |kind: &str| -> Vec<String> {
        let all = pod["spec"][kind].as_array().into_iter().flatten();
        all.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
    };
    let (apps, inits, later) = (of("containers"), of("initContainers"), of("ephemeralContainers"));
    let mut shown = apps.clone();
    shown.extend(inits.iter().map(|name| format!("{name} (init)")));
    shown.extend(later.iter().map(|name| format!("{name} (ephem)")));
    let all: Vec<&String> = apps.iter().chain(&inits).chain(&later).collect();
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    match wanted {
        Some(wanted) if all.iter().any(|known| *known == wanted) => Ok(wanted.to_owned()),
        Some(wanted) => {
            bail!("error: container {wanted} is not valid for pod {name} out of: {}", shown.join(", "))
        }
        None => {
            let default = pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].as_str();
            if let Some(default) = default.filter(|default| all.iter().any(|known| known == default)) {
                return Ok(default.to_owned());
            }
            let first = apps.first().cloned().unwrap_or_default();
            if shown.len() > 1 {
                crate::remark(&format!("Defaulted container {first:?} out of: {}", shown.join(", ")));
            }
            Ok(first)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_container_is_chosen_by_name_annotation_or_order() {
        let mut pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}});
        assert_eq!(choose(&pod, None).unwrap(), "a");
        assert_eq!(choose(&pod, Some("i")).unwrap(), "i");
        let wrong = choose(&pod, Some("x")).unwrap_err().to_string();
        assert_eq!(wrong, "error: container x is not valid for pod web out of: a, b, i (init)");
        pod["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/default-container": "b"});
        assert_eq!(choose(&pod, None).unwrap(), "b");
    }
}
