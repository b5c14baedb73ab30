//! The cells of a pod: how many containers are ready, and the one word that says how it is doing.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::cells::{list, or_none, text};
use crate::condition;

/// Cells of a pod, wide columns included.
pub(crate) fn row(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = Summary::of(pod);
    let restarts = match summary.last_restart {
        Some(last) if summary.restarts != 0 => format!("{} ({} ago)", summary.restarts, age(last, now)),
        _ => summary.restarts.to_string(),
    };
    vec![
        json!(text(&pod["metadata"]["name"])),
        json!(format!("{}/{}", summary.ready, summary.total)),
        json!(summary.reason),
        json!(restarts),
        json!(age(&pod["metadata"]["creationTimestamp"], now)),
        json!(or_none(text(&pod["status"]["podIPs"][0]["ip"]))),
        json!(or_none(text(&pod["spec"]["nodeName"]))),
        json!(or_none(text(&pod["status"]["nominatedNodeName"]))),
        json!(readiness_gates(pod)),
    ]
}

#[derive(Default)]
struct Summary<'a> {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<&'a Value>,
}

impl<'a> Summary<'a> {
    fn of(pod: &'a Value) -> Summary<'a> {
        let status = &pod["status"];
        let mut out = Summary { total: list(&pod["spec"]["containers"]).len(), ..Summary::default() };
        out.total += list(&pod["spec"]["initContainers"]).iter().filter(|c| is_sidecar(c)).count();
        let (phase, given) = (text(&status["phase"]), text(&status["reason"]));
        out.reason = if given.is_empty() { phase } else { given }.to_owned();
        let scheduled = condition::find(condition::of(pod), "PodScheduled");
        if scheduled.is_some_and(|c| c["reason"] == "SchedulingGated") {
            out.reason = "SchedulingGated".to_owned();
        }
        let (initializing, sidecars) = out.init_containers(pod);
        if !initializing || condition_is_true(pod, "Initialized") {
            (out.restarts, out.last_restart) = sidecars;
            out.containers(pod);
        }
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            if given == "NodeLost" {
                out.reason = "Unknown".to_owned();
            } else if !matches!(phase, "Failed" | "Succeeded") {
                out.reason = "Terminating".to_owned();
            }
        }
        out
    }

    fn count_restart(&mut self, container: &'a Value) {
        self.restarts += container["restartCount"].as_i64().unwrap_or(0);
        self.last_restart = later(self.last_restart, container);
    }

    /// Goes through the init containers; tells whether they hold the pod up, and the restarts of sidecars alone.
    fn init_containers(&mut self, pod: &'a Value) -> (bool, (i64, Option<&'a Value>)) {
        let specs = list(&pod["spec"]["initContainers"]);
        let mut sidecars = (0, None);
        for (i, container) in list(&pod["status"]["initContainerStatuses"]).iter().enumerate() {
            self.count_restart(container);
            let sidecar = specs.iter().any(|s| s["name"] == container["name"] && is_sidecar(s));
            if sidecar {
                sidecars.0 += container["restartCount"].as_i64().unwrap_or(0);
                sidecars.1 = later(sidecars.1, container);
            }
            let state = &container["state"];
            if state["terminated"].is_object() && state["terminated"]["exitCode"].as_i64().unwrap_or(0) == 0 {
                continue;
            }
            if sidecar && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            }
            let waiting = text(&state["waiting"]["reason"]);
            self.reason = if state["terminated"].is_object() {
                format!("Init:{}", terminated(&state["terminated"]))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{i}/{}", specs.len())
            };
            return (true, sidecars);
        }
        (false, sidecars)
    }

    fn containers(&mut self, pod: &'a Value) {
        let (mut running, mut failure) = (false, None);
        for container in list(&pod["status"]["containerStatuses"]).iter().rev() {
            self.count_restart(container);
            let state = &container["state"];
            let waiting = text(&state["waiting"]["reason"]);
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if state["terminated"].is_object() {
                self.reason = terminated(&state["terminated"]);
                if state["terminated"]["exitCode"].as_i64().unwrap_or(0) != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if container["ready"] == true && state["running"].is_object() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if running && condition_is_true(pod, "Ready") {
                self.reason = "Running".to_owned();
            } else if let Some(failure) = failure {
                self.reason = failure;
            } else if running {
                self.reason = "NotReady".to_owned();
            }
        }
    }
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn later<'a>(known: Option<&'a Value>, container: &'a Value) -> Option<&'a Value> {
    let finished = &container["lastState"]["terminated"]["finishedAt"];
    match (known, finished.as_str()) {
        (Some(k), Some(f)) if text(k) >= f => Some(k),
        (_, Some(_)) => Some(finished),
        (k, None) => k,
    }
}

fn terminated(state: &Value) -> String {
    let reason = text(&state["reason"]);
    if !reason.is_empty() {
        return reason.to_owned();
    }
    match state["signal"].as_i64().unwrap_or(0) {
        0 => format!("ExitCode:{}", state["exitCode"].as_i64().unwrap_or(0)),
        signal => format!("Signal:{signal}"),
    }
}

fn condition_is_true(pod: &Value, kind: &str) -> bool {
    condition::is_true(condition::of(pod), kind)
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(&pod["spec"]["readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates.iter().filter(|g| condition_is_true(pod, text(&g["conditionType"]))).count();
    format!("{open}/{}", gates.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(spec: &Value, status: &Value, deleted: bool) -> String {
        let mut metadata = json!({"name": "p", "creationTimestamp": "2026-11-15T12:00:00Z"});
        if deleted {
            metadata["deletionTimestamp"] = json!("2026-11-15T12:00:00Z");
        }
        let pod = json!({"metadata": metadata, "spec": spec, "status": status});
        let cells = row(&pod, "2026-11-15T12:00:30Z".parse().unwrap());
        cells[1..4].iter().map(text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn one_word_says_how_a_pod_is_doing() {
        let one = json!({"containers": [{"name": "a"}]});
        let init = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]});
        let running = json!({"name": "a", "ready": true, "state": {"running": {}}, "restartCount": 0});
        for (spec, status, deleted, expected) in [
            (&one, json!({"phase": "Pending"}), false, "0/1 Pending 0"),
            (
                &one,
                json!({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}),
                false,
                "0/1 ContainerCreating 0",
            ),
            (&one, json!({"phase": "Running", "containerStatuses": [running]}), false, "1/1 Running 0"),
            (&one, json!({"phase": "Running", "containerStatuses": [running]}), true, "1/1 Terminating 0"),
            (
                &one,
                json!({"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"reason": "Completed", "exitCode": 0}}}]}),
                false,
                "0/1 Completed 0",
            ),
            (&one, json!({"phase": "Failed", "reason": "Evicted"}), true, "0/1 Evicted 0"),
            (
                &one,
                json!({"phase": "Running", "containerStatuses": [{"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"finishedAt": "2026-11-15T12:00:25Z"}}}]}),
                false,
                "0/1 CrashLoopBackOff 3 (5s ago)",
            ),
            (
                &init,
                json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}),
                false,
                "0/2 Init:0/2 0",
            ),
            (
                &init,
                json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 2}}}]}),
                false,
                "0/2 Init:ExitCode:2 0",
            ),
            (
                &init,
                json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}),
                false,
                "0/2 Init:CrashLoopBackOff 0",
            ),
            (
                &init,
                json!({"phase": "Running", "containerStatuses": [running], "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 0}}}, {"name": "s", "started": true, "ready": true, "state": {"running": {}}}]}),
                false,
                "2/2 Running 0",
            ),
            (
                &one,
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
                false,
                "0/1 SchedulingGated 0",
            ),
        ] {
            assert_eq!(printed(spec, &status, deleted), expected, "{status}");
        }
    }
}
