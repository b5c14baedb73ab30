//! What is stored and has no effect yet: said to whoever writes it, because an object that looks enforced and is not is
//! worse than none.

use podwire_api::Kind;
use serde_json::Value;

/// The label prefix by which namespaces ask for pod security.
const POD_SECURITY: &str = "pod-security.kubernetes.io/";

/// The warning that writing this object answers with, if any.
pub(crate) fn warning(kind: &Kind, object: &Value) -> Option<String> {
    let what = match (kind.group, kind.kind) {
        ("", "LimitRange" | "ResourceQuota")
        | ("networking.k8s.io", "NetworkPolicy")
        | (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration"
            | "ValidatingWebhookConfiguration"
            | "ValidatingAdmissionPolicy"
            | "ValidatingAdmissionPolicyBinding",
        ) => kind.kind,
        ("policy", "PodDisruptionBudget") => {
            return Some(
                "PodDisruptionBudget: stored, but this version does not compute disruptions; evictions of the pods it \
                 selects are refused"
                    .to_owned(),
            );
        }
        ("", "Namespace") => {
            let labels = object["metadata"]["labels"].as_object()?;
            labels.keys().find(|key| key.starts_with(POD_SECURITY))?
        }
        _ => return None,
    };
    Some(format!("{what}: stored, but this version does not enforce it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_has_no_effect_is_warned_about() {
        let of = |group: &str, resource: &str, object: &Value| {
            warning(podwire_api::by_resource(group, "v1", resource).unwrap(), object)
        };
        let none = json!({"metadata": {"name": "x", "labels": {"a": "b"}}});
        assert_eq!(of("", "namespaces", &none), None);
        assert_eq!(of("", "pods", &none), None);
        let labelled = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
        let words = "pod-security.kubernetes.io/enforce: stored, but this version does not enforce it";
        assert_eq!(of("", "namespaces", &labelled).as_deref(), Some(words));
        for (group, resource) in [
            ("", "limitranges"),
            ("", "resourcequotas"),
            ("networking.k8s.io", "networkpolicies"),
            ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
            ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
            ("policy", "poddisruptionbudgets"),
        ] {
            assert!(of(group, resource, &none).is_some(), "{resource}");
        }
    }
}
