//! How CRI clients see sandboxes and containers: statuses, list items, filters. Pure.

use std::collections::HashMap;

use podwire_wire::cri;

use crate::{
    container::signal,
    model::{Container, Sandbox},
    recovery::records::{ContainerPhase, ContainerStateRow, SandboxPhase},
};

fn sandbox_state(phase: SandboxPhase) -> i32 {
    match phase {
        SandboxPhase::Ready => cri::PodSandboxState::SandboxReady as i32,
        SandboxPhase::Creating | SandboxPhase::NotReady => cri::PodSandboxState::SandboxNotready as i32,
    }
}

fn container_state(phase: ContainerPhase) -> i32 {
    match phase {
        ContainerPhase::Created | ContainerPhase::Starting => cri::ContainerState::ContainerCreated as i32,
        ContainerPhase::Running => cri::ContainerState::ContainerRunning as i32,
        ContainerPhase::Exited => cri::ContainerState::ContainerExited as i32,
    }
}

/// A sandbox's full status.
pub(crate) fn sandbox_status(sandbox: &Sandbox) -> cri::PodSandboxStatus {
    let state = sandbox.state();
    let mut ips = state.ips.iter();
    // A stopped pod has given its addresses back.
    let network = (state.phase() == SandboxPhase::Ready).then(|| cri::PodSandboxNetworkStatus {
        ip: ips.next().cloned().unwrap_or_default(),
        additional_ips: ips.map(|ip| cri::PodIp { ip: ip.clone() }).collect(),
    });
    let options = Some(sandbox.namespace_options());
    cri::PodSandboxStatus {
        id: sandbox.id.to_string(),
        metadata: sandbox.config.metadata.clone(),
        state: sandbox_state(state.phase()),
        created_at: sandbox.created_at,
        network,
        linux: Some(cri::LinuxPodSandboxStatus { namespaces: Some(cri::Namespace { options }) }),
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
        runtime_handler: sandbox.handler.clone(),
    }
}

/// A sandbox as a list item.
pub(crate) fn sandbox_item(sandbox: &Sandbox) -> cri::PodSandbox {
    cri::PodSandbox {
        id: sandbox.id.to_string(),
        metadata: sandbox.config.metadata.clone(),
        state: sandbox_state(sandbox.phase()),
        created_at: sandbox.created_at,
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
        runtime_handler: sandbox.handler.clone(),
    }
}

/// Reason and message of an ended container, in the words the kubelet shows.
fn reason(state: &ContainerStateRow) -> String {
    match (state.phase(), state.reason.as_str()) {
        (ContainerPhase::Exited, "") if state.exit_code == 0 => "Completed".to_owned(),
        (ContainerPhase::Exited, "") => "Error".to_owned(),
        (_, known) => known.to_owned(),
    }
}

fn image_spec(container: &Container) -> cri::ImageSpec {
    let mut spec = container.config.image.clone().unwrap_or_default();
    if !spec.user_specified_image.is_empty() {
        spec.image.clone_from(&spec.user_specified_image);
    }
    spec
}

/// A container's full status.
pub(crate) fn container_status(container: &Container) -> cri::ContainerStatus {
    let state = container.state();
    let row = &container.row;
    let user = row.user.clone().map(|linux| cri::ContainerUser { linux: Some(linux) });
    cri::ContainerStatus {
        id: row.id.clone(),
        metadata: container.config.metadata.clone(),
        state: container_state(state.phase()),
        created_at: row.created_at,
        started_at: state.started_at,
        finished_at: state.finished_at,
        exit_code: state.exit_code,
        image: Some(image_spec(container)),
        image_ref: row.image_ref.clone(),
        reason: reason(&state),
        message: state.message.clone(),
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
        mounts: row.mounts.clone(),
        log_path: row.log_path.clone(),
        resources: state.resources.map(|linux| cri::ContainerResources { linux: Some(linux) }),
        image_id: row.image_id.clone(),
        user,
        stop_signal: signal::to_cri(row.stop_signal),
    }
}

/// A container as a list item.
pub(crate) fn container_item(container: &Container) -> cri::Container {
    cri::Container {
        id: container.row.id.clone(),
        pod_sandbox_id: container.row.sandbox_id.clone(),
        metadata: container.config.metadata.clone(),
        image: Some(image_spec(container)),
        image_ref: container.row.image_ref.clone(),
        state: container_state(container.phase()),
        created_at: container.row.created_at,
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
        image_id: container.row.image_id.clone(),
    }
}

fn labels_fit(selector: &HashMap<String, String>, labels: &HashMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Whether a sandbox passes a filter. One being made is not shown yet.
pub(crate) fn sandbox_fits(filter: Option<&cri::PodSandboxFilter>, sandbox: &Sandbox) -> bool {
    let phase = sandbox.phase();
    if phase == SandboxPhase::Creating {
        return false;
    }
    let Some(filter) = filter else { return true };
    sandbox.id.starts_with(&filter.id)
        && filter.state.is_none_or(|state| state.state == sandbox_state(phase))
        && labels_fit(&filter.label_selector, &sandbox.config.labels)
}

/// Whether a container passes a filter.
pub(crate) fn container_fits(filter: Option<&cri::ContainerFilter>, container: &Container) -> bool {
    let Some(filter) = filter else { return true };
    container.row.id.starts_with(&filter.id)
        && container.row.sandbox_id.starts_with(&filter.pod_sandbox_id)
        && filter.state.is_none_or(|state| state.state == container_state(container.phase()))
        && labels_fit(&filter.label_selector, &container.config.labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::records::{ContainerRow, SandboxRow, SandboxStateRow};

    fn sandbox(phase: SandboxPhase) -> Sandbox {
        let labels = HashMap::from([("app".to_owned(), "web".to_owned())]);
        let config = cri::PodSandboxConfig { labels, ..Default::default() };
        let row = SandboxRow { id: "abc".into(), config: Some(config), ..Default::default() };
        let state = SandboxStateRow {
            phase: phase as i32,
            ips: vec!["10.0.0.2".into(), "fd00::2".into()],
            ..Default::default()
        };
        Sandbox::new(&row, state, "/x".into())
    }

    #[test]
    fn addresses_are_shown_while_the_pod_has_them() {
        let network = sandbox_status(&sandbox(SandboxPhase::Ready)).network.unwrap();
        assert_eq!((network.ip.as_str(), network.additional_ips[0].ip.as_str()), ("10.0.0.2", "fd00::2"));
        assert!(sandbox_status(&sandbox(SandboxPhase::NotReady)).network.is_none());
    }

    #[test]
    fn filters_must_all_fit() {
        let ready = sandbox(SandboxPhase::Ready);
        let fits = |id: &str, label: &str, state: Option<i32>| {
            let filter = cri::PodSandboxFilter {
                id: id.into(),
                state: state.map(|state| cri::PodSandboxStateValue { state }),
                label_selector: HashMap::from([("app".to_owned(), label.to_owned())]),
            };
            sandbox_fits(Some(&filter), &ready)
        };
        assert!(fits("", "web", None) && fits("ab", "web", Some(0)));
        assert!(!fits("x", "web", None) && !fits("", "db", None) && !fits("", "web", Some(1)));
        assert!(!sandbox_fits(None, &sandbox(SandboxPhase::Creating)), "half made pods are not shown");
    }

    #[test]
    fn an_end_has_a_reason() {
        let status = |exit_code, reason: &str| {
            let state = ContainerStateRow {
                phase: ContainerPhase::Exited as i32,
                exit_code,
                reason: reason.into(),
                ..Default::default()
            };
            container_status(&Container::new(
                ContainerRow::default(),
                state,
                oci_spec::runtime::Spec::default(),
            ))
            .reason
        };
        assert_eq!(status(0, ""), "Completed");
        assert_eq!(status(3, ""), "Error");
        assert_eq!(status(137, "OOMKilled"), "OOMKilled");
    }
}
