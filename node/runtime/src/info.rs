//! The node's status, and the verbose details CRI clients may ask for.

use std::collections::HashMap;

use podwire_wire::cri;
use serde_json::json;

use crate::{
    core::Core,
    error::chain,
    foreign::BUILT_IN,
    model::{Container, Sandbox},
};

/// The two conditions a kubelet needs, and what this runtime can do.
pub(crate) fn status(core: &Core, verbose: bool) -> cri::StatusResponse {
    let condition = |kind: &str, problem: Option<(&str, String)>| cri::RuntimeCondition {
        r#type: kind.to_owned(),
        status: problem.is_none(),
        reason: problem.as_ref().map(|(reason, _)| (*reason).to_owned()).unwrap_or_default(),
        message: problem.map(|(_, message)| message).unwrap_or_default(),
    };
    let network = core.networks.status().err();
    let network = network
        .map(|error| ("NetworkPluginNotReady", format!("Network plugin returns error: {}", chain(&error))));
    let features = cri::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: true };
    let handler = |name: &str| cri::RuntimeHandler { name: name.to_owned(), features: Some(features) };
    let info = if verbose {
        let settings = &core.settings;
        let config = json!({"cgroupRoot": settings.cgroup_root, "runDir": settings.run_dir, "cgroupDriver": "cgroupfs"});
        HashMap::from([("config".to_owned(), config.to_string())])
    } else {
        HashMap::new()
    };
    cri::StatusResponse {
        status: Some(cri::RuntimeStatus {
            conditions: vec![condition("RuntimeReady", None), condition("NetworkReady", network)],
        }),
        info,
        runtime_handlers: BUILT_IN.map(handler).into_iter().chain(core.handlers.listed()).collect(),
        features: Some(cri::RuntimeFeatures {
            supplemental_groups_policy: true,
            user_namespaces_host_network: false,
        }),
    }
}

/// Details of a sandbox as JSON under the key other runtimes use.
pub(crate) fn sandbox(core: &Core, sandbox: &Sandbox) -> HashMap<String, String> {
    let state = sandbox.state();
    let result: serde_json::Value = serde_json::from_str(&state.cni_result).unwrap_or_default();
    let info = json!({
        "pid": state.reaper_pid,
        "processStatus": format!("{:?}", state.phase()),
        "netNamespaceClosed": state.detached,
        "cniResult": result,
        "cgroupParent": core.cgroup_parent(&sandbox.config),
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
        "snapshotKey": container.id(),
        "runtimeSpec": spec,
    });
    HashMap::from([("info".to_owned(), info.to_string())])
}
