//! Pictures of a pod's path for a terminal: lanes when it is wide, a list when it is narrow, a table of many pods.

use super::{Arrow, lanes, start, twin};
use crate::client::columns;

/// The order in which the mission's diagrams name the participants.
const ORDER: &[&str] = &[
    "KubeCtl",
    "APIServer",
    "etcd",
    "Scheduler",
    "Kubelet",
    "ContainerRuntime",
    "CNIPlugin",
    "IPAM",
    "NetworkPlugin",
    "NetworkDriver",
    "DevicePlugin",
];

/// Who takes part, in the diagrams' order; strangers last.
pub fn participants(arrows: &[Arrow]) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for name in arrows.iter().flat_map(|arrow| [&arrow.from, &arrow.to]) {
        if !seen.contains(name) {
            seen.push(name.clone());
        }
    }
    seen.sort_by_key(|name| ORDER.iter().position(|known| known == name).unwrap_or(ORDER.len()));
    seen
}

/// A duration as people read it.
pub fn shown_time(micros: u64) -> String {
    let millis = micros as f64 / 1000.0;
    if millis >= 1000.0 { format!("{:.2} s", millis / 1000.0) } else { format!("{millis:.1} ms") }
}

/// When an arrow began, counted from the start of the path; what was before it has a minus.
pub fn shown_start(arrow: &Arrow, start: u64) -> String {
    match arrow.began().checked_sub(start) {
        Some(after) => shown_time(after),
        None => format!("-{}", shown_time(start - arrow.began())),
    }
}

/// A sequence diagram for a terminal `width` columns wide; a list when it is too narrow for lanes.
pub fn sequence(arrows: &[Arrow], width: usize) -> String {
    let names = participants(arrows);
    let lane = width.saturating_sub(12) / names.len().max(1);
    if lane < 14 { list(arrows) } else { lanes::lanes(arrows, &names, lane.min(30)) }
}

fn list(arrows: &[Arrow]) -> String {
    let start = start(arrows);
    let mut lines = vec![["AT", "TOOK", "FROM", "TO", "WHAT"].map(str::to_owned).to_vec()];
    for arrow in arrows {
        let to = if arrow.is_note() { String::new() } else { arrow.to.clone() };
        let mut what = arrow.what.clone();
        for (mark, more) in [(" -> ", &arrow.reply), (" !! ", &arrow.error)] {
            if !more.is_empty() {
                what.push_str(mark);
                what.push_str(more);
            }
        }
        lines.push(vec![shown_start(arrow, start), shown_time(arrow.micros), arrow.from.clone(), to, what]);
    }
    let mut text = columns(&lines);
    for name in participants(arrows) {
        if let Some(by) = twin(arrows, &name) {
            text.push_str(&format!("{name} is {by}\n"));
        }
    }
    text
}

/// Where the time of several pods went: one line each, one column per kind of step.
pub fn summary(pods: &[Vec<Arrow>]) -> String {
    let head =
        ["POD", "SCHEDULE", "SANDBOX", "CNI", "CREATE", "START", "RUNNING AFTER"].map(str::to_owned).to_vec();
    let mut lines = vec![head];
    for arrows in pods {
        let Some(first) = arrows.first() else { continue };
        let start = start(arrows);
        let sum = |prefix: &str, to: &str| -> String {
            let own: Vec<u64> = arrows
                .iter()
                .filter(|a| a.what.starts_with(prefix) && a.to == to)
                .map(|a| a.micros)
                .collect();
            if own.is_empty() { "-".to_owned() } else { shown_time(own.iter().sum()) }
        };
        let until = |wanted: &dyn Fn(&Arrow) -> bool| -> String {
            arrows
                .iter()
                .find(|a| wanted(a))
                .map_or("-".to_owned(), |a| shown_time(a.ended.saturating_sub(start)))
        };
        lines.push(vec![
            first.pod.clone(),
            until(&|a| a.what.ends_with("/binding")),
            sum("RunPodSandbox", "ContainerRuntime"),
            sum("ADD", "CNIPlugin"),
            sum("CreateContainer", "ContainerRuntime"),
            sum("StartContainer", "ContainerRuntime"),
            last_status_before_stop(arrows)
                .map_or("-".to_owned(), |ended| shown_time(ended.saturating_sub(start))),
        ]);
    }
    columns(&lines)
}

/// The end of the first status PATCH after the last StartContainer: the pod is Running for everybody.
fn last_status_before_stop(arrows: &[Arrow]) -> Option<u64> {
    let started = arrows.iter().filter(|a| a.what.starts_with("StartContainer")).map(|a| a.ended).max()?;
    arrows
        .iter()
        .find(|a| a.from == "Kubelet" && a.what.contains("/status") && a.began() >= started)
        .map(|a| a.ended)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A short path with everything that is drawn differently.
    pub fn path() -> Vec<Arrow> {
        let arrow = |from: &str, to: &str, what: &str, reply: &str, ended: u64, micros: u64| Arrow {
            uid: "u".to_owned(),
            pod: "default/web".to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            what: what.to_owned(),
            reply: reply.to_owned(),
            ended,
            micros,
            ..Arrow::default()
        };
        let mut sandbox = arrow("Kubelet", "ContainerRuntime", "RunPodSandbox", "sandbox 1", 9_000, 5_000);
        sandbox.callee = "containerd v2.4.2".to_owned();
        vec![
            arrow("KubeCtl", "APIServer", "POST /api/v1/namespaces/default/pods", "201", 2_000, 2_000),
            arrow("APIServer", "Scheduler", "watch: ADDED", "", 2_500, 0),
            arrow("Scheduler", "Scheduler", "filtered 1 of 1 nodes; chose node1", "", 3_000, 0),
            sandbox,
            arrow("ContainerRuntime", "CNIPlugin", "ADD eth0", "10.88.0.2", 6_000, 1_000),
        ]
    }

    #[test]
    fn a_narrow_terminal_gets_a_list_and_a_wide_one_lanes() {
        let narrow = sequence(&path(), 60);
        assert!(narrow.starts_with("AT"), "{narrow}");
        assert!(narrow.ends_with("ContainerRuntime is containerd v2.4.2\n"), "{narrow}");
        let wide = sequence(&path(), 160);
        assert!(wide.contains('▶') && wide.contains('◆'), "{wide}");
    }

    #[test]
    fn what_was_before_the_pod_is_shown_before_its_start() {
        let mut arrows = path();
        for arrow in &mut arrows {
            arrow.ended += 1_000_000;
        }
        let table = summary(&[arrows.clone()]);
        let earlier = Arrow {
            pod: "default/web".to_owned(),
            from: "Kubelet".to_owned(),
            to: "example.com/gpu".to_owned(),
            what: "ListAndWatch".to_owned(),
            side: "earlier".to_owned(),
            ended: 500_000,
            micros: 1_000,
            ..Arrow::default()
        };
        arrows.insert(0, earlier);
        let list = list(&arrows);
        let at =
            |line: usize| list.lines().nth(line).unwrap_or_default().split("   ").next().unwrap().to_owned();
        assert_eq!((at(1).as_str(), at(2).as_str()), ("-501.0 ms", "0.0 ms"), "{list}");
        assert_eq!(summary(&[arrows]), table, "the pod took no longer because its device was there before");
    }

    #[test]
    fn the_table_of_many_pods_says_where_the_time_of_each_went() {
        let table = summary(&[path()]);
        let cells: Vec<&str> = table
            .lines()
            .nth(1)
            .unwrap_or_default()
            .split("   ")
            .map(str::trim)
            .filter(|c| !c.is_empty())
            .collect();
        assert_eq!(cells, ["default/web", "-", "5.0 ms", "1.0 ms", "-", "-", "-"], "{table}");
    }
}
