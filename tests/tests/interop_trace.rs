//! Traces of a pod's start and stop in stacks of separate processes, with upstream's participants swapped in.
#![cfg(feature = "interop")]

use anyhow::{Context, Result, bail};
use podwire_testkit::{
    eventually, isolate,
    mermaid::{self, Diagram, Step},
    stack::{Ours, Stack},
};

const POD: &str = r#"apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: "localhost/pod-app:latest", imagePullPolicy: Never, command: [/pod-app], args: [serve, "80"]}]
"#;

/// What a diagram must show, one after another.
#[derive(Clone, Copy, Debug)]
enum Want {
    Call(&'static str, &'static str, &'static str),
    Reply(&'static str, &'static str, &'static str),
    Note(&'static str, &'static str),
}
use Want::{Call, Note, Reply};

/// The first mission document's arrows from apply to the binding, as far as one pod causes them.
const DECIDED: &[Want] = &[
    Call("KubeCtl", "APIServer", "POST /api/v1/namespaces/default/pods"),
    Note("APIServer", "authenticated"),
    Note("APIServer", "validated"),
    Call("APIServer", "etcd", "put pod"),
    Reply("APIServer", "Scheduler", "watch: ADDED"),
    Call("Scheduler", "APIServer", "POST /api/v1/namespaces/default/pods/web/binding"),
    Call("APIServer", "etcd", "put pod"),
    Reply("etcd", "APIServer", "revision"),
];

/// Kubelet and runtime on CRI, from the sandbox to the start.
const STARTED: &[Want] = &[
    Reply("APIServer", "Kubelet", "watch: ADDED"),
    // A kubelet may hear of the sandbox by an event and go on before the answer is here.
    Call("Kubelet", "ContainerRuntime", "RunPodSandbox"),
    Call("Kubelet", "ContainerRuntime", "CreateContainer main"),
    Reply("ContainerRuntime", "Kubelet", "container"),
    Call("Kubelet", "ContainerRuntime", "StartContainer main"),
    Call("Kubelet", "APIServer", "PATCH /api/v1/namespaces/default/pods/web/status"),
    Call("APIServer", "etcd", "put pod"),
    Reply("etcd", "APIServer", "revision"),
];

/// The network between RunPodSandbox and its answer.
const ATTACHED: &[Want] = &[
    Call("Kubelet", "ContainerRuntime", "RunPodSandbox"),
    Note("ContainerRuntime", "network namespace made"),
    Note("ContainerRuntime", "configuration read"),
    Call("ContainerRuntime", "CNIPlugin", "ADD eth0 bridge"),
    Call("CNIPlugin", "IPAM", "ADD host-local"),
    Reply("IPAM", "CNIPlugin", "10.90."),
    Note("CNIPlugin", "via 10.90."),
    Reply("CNIPlugin", "ContainerRuntime", "10.90."),
    Reply("ContainerRuntime", "Kubelet", "sandbox"),
    Note("ContainerRuntime", "container process started"),
];

/// From the deletion to nothing left.
const STOPPED: &[Want] = &[
    Call("KubeCtl", "APIServer", "DELETE /api/v1/namespaces/default/pods/web"),
    Reply("APIServer", "Kubelet", "watch: MODIFIED"),
    Call("Kubelet", "ContainerRuntime", "StopContainer main"),
    Call("Kubelet", "ContainerRuntime", "StopPodSandbox"),
    Call("Kubelet", "APIServer", "DELETE /api/v1/namespaces/default/pods/web"),
    Call("APIServer", "etcd", "delete pod"),
];

fn is(step: &Step, want: Want) -> bool {
    match (step, want) {
        (Step::Call(m), Call(from, to, words)) | (Step::Reply(m), Reply(from, to, words)) => {
            m.from == from && m.to == to && m.text.starts_with(words)
        }
        (Step::Note { over, text }, Note(who, words)) => over[0] == who && text.contains(words),
        _ => false,
    }
}

/// Fails unless the steps stand in the diagram in this order, whatever else stands between them.
fn in_order(diagram: &Diagram, text: &str, wanted: &[Want]) -> Result<()> {
    let mut at = 0;
    for want in wanted {
        at = 1 + diagram
            .find(at, |step| is(step, *want))
            .with_context(|| format!("no {want:?} in order in\n{text}"))?;
    }
    Ok(())
}

/// A pod's whole life in the mix; its trace as mermaid, parsed.
fn life(ours: Ours) -> Result<(Diagram, String)> {
    isolate()?;
    let stack = Stack::start(ours)?;
    let lived = || -> Result<(Diagram, String)> {
        // A pod whose end the kubelet noticed proves that it watches; one before that may reach it in its first list.
        stack.apply_admitted(&POD.replace("name: web", "name: first"))?;
        stack.kubectl(&["wait", "--for=condition=Ready", "pod/first", "--timeout=60s"])?;
        stack.kubectl(&["delete", "pod", "first", "--timeout=60s"])?;
        stack.apply_admitted(POD)?;
        stack.kubectl(&["wait", "--for=condition=Ready", "pod/web", "--timeout=60s"])?;
        let narrow = stack.trace(&["pod/web", "--width", "60"])?;
        assert!(narrow.starts_with("AT "), "{narrow}");
        stack.kubectl(&["delete", "pod", "web", "--timeout=60s"])?;
        stack.assert_no_pod_residue()?;
        // The reader was away all the time: everything is still there, also of a pod that is gone.
        let text = eventually("the end of the pod in its trace", std::time::Duration::from_secs(10), || {
            let text = stack.trace(&["pod/web", "-o", "mermaid"]).map_err(|error| format!("{error:#}"))?;
            if text.contains("DELETE /api") { Ok(text) } else { Err(text) }
        })?;
        let diagram = mermaid::parse(&text).with_context(|| text.clone())?;
        Ok((diagram, text))
    };
    lived().map_err(|error| error.context(stack.log_tails()))
}

fn twins(diagram: &Diagram) -> Vec<(&str, &str)> {
    let all = diagram.participants.iter().map(|(name, alias)| (name.as_str(), alias.as_str()));
    all.filter(|(name, alias)| name != alias && *name != "KubeCtl").collect()
}

#[test]
fn with_every_participant_ours_the_trace_is_the_missions_diagram() -> Result<()> {
    let (diagram, text) = life(Ours::ALL)?;
    let mission =
        ["KubeCtl", "APIServer", "etcd", "Scheduler", "Kubelet", "ContainerRuntime", "CNIPlugin", "IPAM"];
    assert_eq!(diagram.names(), mission, "{text}");
    assert_eq!(diagram.alias("KubeCtl"), Some("kubectl v1.36.4"), "{text}");
    assert_eq!(twins(&diagram), [], "{text}");
    for wanted in [DECIDED, STARTED, ATTACHED, STOPPED] {
        in_order(&diagram, &text, wanted)?;
    }
    let end = [
        Call("Kubelet", "ContainerRuntime", "StopPodSandbox"),
        Call("ContainerRuntime", "CNIPlugin", "DEL"),
        Call("Kubelet", "ContainerRuntime", "RemovePodSandbox"),
    ];
    in_order(&diagram, &text, &end)?;
    in_order(&diagram, &text, &[Note("Scheduler", "chose node1"), Note("Kubelet", "admitted")])
}

#[test]
fn upstreams_kubelet_shows_as_itself_with_what_it_asked_of_ours() -> Result<()> {
    let (diagram, text) = life(Ours { kubelet: false, ..Ours::ALL })?;
    assert_eq!(twins(&diagram), [("Kubelet", "kubelet v1.36.4")], "{text}");
    for wanted in [DECIDED, STARTED, ATTACHED, STOPPED] {
        in_order(&diagram, &text, wanted)?;
    }
    if in_order(&diagram, &text, &[Note("Kubelet", "")]).is_ok() {
        bail!("what upstream's kubelet does by itself cannot be seen:\n{text}");
    }
    Ok(())
}

#[test]
fn containerd_shows_as_itself_and_what_it_does_behind_cri_does_not() -> Result<()> {
    let (diagram, text) = life(Ours { runtime: false, ..Ours::ALL })?;
    assert_eq!(twins(&diagram), [("ContainerRuntime", "containerd v2.4.2")], "{text}");
    assert_eq!(diagram.alias("CNIPlugin"), None, "{text}");
    for wanted in [DECIDED, STARTED, STOPPED] {
        in_order(&diagram, &text, wanted)?;
    }
    Ok(())
}

#[test]
fn kube_scheduler_shows_as_itself_with_its_binding() -> Result<()> {
    let (diagram, text) = life(Ours { scheduler: false, ..Ours::ALL })?;
    assert_eq!(twins(&diagram), [("Scheduler", "kube-scheduler v1.36.4")], "{text}");
    for wanted in [DECIDED, STARTED, ATTACHED, STOPPED] {
        in_order(&diagram, &text, wanted)?;
    }
    Ok(())
}
