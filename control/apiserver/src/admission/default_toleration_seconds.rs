//! `DefaultTolerationSeconds`: a pod stays five minutes on a node that is not ready or cannot be reached.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{Mutating, Request};
use crate::status::Result;

/// The plugin.
pub(super) struct DefaultTolerationSeconds;

impl Mutating for DefaultTolerationSeconds {
    fn handles(&self, request: &Request<'_>) -> bool {
        request.writes() && request.is_whole("", "Pod")
    }

    fn admit<'a>(&'a self, _: &'a Request<'a>, pod: &'a mut Value) -> BoxFuture<'a, Result<()>> {
        complete(pod);
        Box::pin(std::future::ready(Ok(())))
    }
}

fn complete(pod: &mut Value) {
    let has = |pod: &Value, key: &str| {
        pod["spec"]["tolerations"].as_array().into_iter().flatten().any(|toleration| {
            let same = toleration["key"] == key || toleration["key"].as_str().unwrap_or_default().is_empty();
            same && matches!(toleration["effect"].as_str(), None | Some("" | "NoExecute"))
        })
    };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if has(pod, key) {
            continue;
        }
        let toleration =
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        match pod["spec"]["tolerations"].as_array_mut() {
            Some(list) => list.push(toleration),
            None => pod["spec"]["tolerations"] = json!([toleration]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_are_added_once() {
        let mut pod =
            json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}});
        complete(&mut pod);
        complete(&mut pod);
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
    }
}
