//! The built-in kinds that participants ask for by name.

use std::sync::Arc;

use super::{Kind, Registry};

macro_rules! well_known {
    ($($name:ident: $group:literal, $version:literal, $resource:literal;)*) => {$(
        #[doc = concat!("`", $resource, "` of `", $group, "/", $version, "`.")]
        pub fn $name() -> &'static Arc<Kind> {
            Registry::builtin()
                .by_resource($group, $version, $resource)
                .expect("the table has the kinds that are well known")
        }
    )*
        #[cfg(test)]
        const ALL: &[fn() -> &'static Arc<Kind>] = &[$($name),*];
    };
}

well_known! {
    bindings: "", "v1", "bindings";
    limit_ranges: "", "v1", "limitranges";
    custom_resource_definitions: "apiextensions.k8s.io", "v1", "customresourcedefinitions";
    config_maps: "", "v1", "configmaps";
    namespaces: "", "v1", "namespaces";
    nodes: "", "v1", "nodes";
    persistent_volume_claims: "", "v1", "persistentvolumeclaims";
    persistent_volumes: "", "v1", "persistentvolumes";
    pods: "", "v1", "pods";
    resource_quotas: "", "v1", "resourcequotas";
    secrets: "", "v1", "secrets";
    service_accounts: "", "v1", "serviceaccounts";
    services: "", "v1", "services";
    csi_drivers: "storage.k8s.io", "v1", "csidrivers";
    volume_attachments: "storage.k8s.io", "v1", "volumeattachments";
    leases: "coordination.k8s.io", "v1", "leases";
    pod_disruption_budgets: "policy", "v1", "poddisruptionbudgets";
    priority_classes: "scheduling.k8s.io", "v1", "priorityclasses";
    runtime_classes: "node.k8s.io", "v1", "runtimeclasses";
    resource_slices: "resource.k8s.io", "v1", "resourceslices";
    mutating_webhooks: "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations";
    validating_webhooks: "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations";
    admission_policies: "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies";
    policy_bindings: "admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings";
    endpoints: "", "v1", "endpoints";
    endpoint_slices: "discovery.k8s.io", "v1", "endpointslices";
    ip_addresses: "networking.k8s.io", "v1", "ipaddresses";
    service_cidrs: "networking.k8s.io", "v1", "servicecidrs";
    cluster_roles: "rbac.authorization.k8s.io", "v1", "clusterroles";
    cluster_role_bindings: "rbac.authorization.k8s.io", "v1", "clusterrolebindings";
    roles: "rbac.authorization.k8s.io", "v1", "roles";
    role_bindings: "rbac.authorization.k8s.io", "v1", "rolebindings";
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_well_known_kind_is_in_the_table() {
        assert!(super::ALL.iter().all(|kind| kind().is_stored() || kind().resource == "bindings"));
    }
}
