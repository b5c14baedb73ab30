//! The node's status, and the verbose details CRI clients may ask for.

use std::collections::HashMap;

use podwire_wire::cri;
use serde_json::json;

use crate::{
    container::oci_runtimes::BUILT_IN,
    context::Context,
    error::chain,
    model::{Container, Sandbox},
};

/// The two conditions a kubelet needs, and what this runtime can do.
pub(crate) fn status(ctx: &Context, verbose: bool) -> cri::StatusResponse {
    let ready =
        |kind: &str| cri::RuntimeCondition { r#type: kind.to_owned(), status: true, ..Default::default() };
    let network = network_condition(ctx.networks.status().err().as_ref());
    let user_namespaces = ctx.has_user_namespaces();
    let features = cri::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces };
    let handler = |name: &str| cri::RuntimeHandler { name: name.to_owned(), features: Some(features) };
    let info = if verbose {
        let settings = &ctx.settings;
        let config = json!({"cgroupRoot": settings.cgroup_root, "runDir": settings.run_dir, "cgroupDriver": "cgroupfs"});
        HashMap::from([("config".to_owned(), config.to_string())])
    } else {
        HashMap::new()
    };
    cri::StatusResponse {
        status: Some(cri::RuntimeStatus { conditions: vec![ready("RuntimeReady"), network] }),
        info,
        runtime_handlers: BUILT_IN.map(handler).into_iter().chain(ctx.handlers.listed()).collect(),
        features: Some(cri::RuntimeFeatures {
            supplemental_groups_policy: true,
            user_namespaces_host_network: false,
        }),
    }
}

/// What STATUS of the pod network means for the node.
///
/// That all addresses are in use is said, and the node stays ready: what runs is connected, ADD gives the reason to every
/// pod that comes, and a node that is not ready would lose all its pods.
fn network_condition(problem: Option<&podwire_cni_lib::Error>) -> cri::RuntimeCondition {
    let full = problem.is_some_and(podwire_cni_lib::Error::is_exhaustion);
    let reason = match problem {
        None => "",
        Some(_) if full => "AddressesExhausted",
        Some(_) => "NetworkPluginNotReady",
    };
    cri::RuntimeCondition {
        r#type: "NetworkReady".to_owned(),
        status: problem.is_none() || full,
        reason: reason.to_owned(),
        message: problem
            .map(|error| format!("Network plugin returns error: {}", chain(error)))
            .unwrap_or_default(),
    }
}

/// Details of a sandbox as JSON under the key other runtimes use.
pub(crate) fn sandbox(ctx: &Context, sandbox: &Sandbox) -> HashMap<String, String> {
    let state = sandbox.state();
    let result: serde_json::Value = serde_json::from_str(&state.cni_result).unwrap_or_default();
    let info = json!({
        "pid": state.reaper_pid,
        "processStatus": format!("{:?}", state.phase()),
        "netNamespaceClosed": state.detached,
        "cniResult": result,
        "cgroupParent": ctx.cgroup_parent(&sandbox.config),
        "runtimeSpec": {"linux": {"namespaces": [
            {"type": "network", "path": sandbox.netns()},
        ]}},
    });
    HashMap::from([("info".to_owned(), info.to_string())])
}

/// Details of a container as JSON under the key other runtimes use.
pub(crate) fn container(container: &Container) -> HashMap<String, String> {
    let state = container.state();
    let mut spec = (*container.spec()).clone();
    if let Some(linux) = spec.linux_mut() {
        linux.set_seccomp(None);
    }
    let info = json!({
        "sandboxID": container.row.sandbox_id,
        "pid": state.pid,
        "removing": state.removing,
        "snapshotKey": container.id().as_str(),
        "runtimeSpec": spec,
    });
    HashMap::from([("info".to_owned(), info.to_string())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use podwire_cni_lib::Error;
    use podwire_cni_lib::spec::CniError;

    fn condition(code: u32, text: &str) -> cri::RuntimeCondition {
        let error = CniError::new(code, text);
        network_condition(Some(&Error::Plugin { plugin: "bridge".into(), command: "STATUS", error }))
    }

    #[test]
    fn a_full_range_is_said_and_the_node_stays_ready() {
        let full = condition(50, "no IP addresses available in range set: 10.0.0.1-10.0.0.6 (6 of 6 in use)");
        assert!(full.status);
        assert_eq!(full.reason, "AddressesExhausted");
        assert!(full.message.contains("6 of 6 in use"), "{full:?}");
        let broken = condition(50, "bridge name is another link's");
        assert_eq!((broken.status, broken.reason.as_str()), (false, "NetworkPluginNotReady"));
        assert!(network_condition(None).status);
    }
}
