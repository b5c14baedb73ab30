//! `podwire explain`: why a pod is where it is, or nowhere.
//!
//! The cluster is read through the API with the caller's own rights, and the scheduler's plugins are asked here about every
//! node: nothing is kept for it anywhere, and a pod can be explained that is not in the cluster at all.

use anyhow::{Context, Result, bail};
use podwire_scheduler::Configuration;
use podwire_scheduler::explain::{Explainer, Explanation, KINDS, Objection};
use serde_json::Value;

use super::{Session, pod};
use crate::cli::ExplainPodArgs;

/// Objects in one answer of the API server.
const PAGE: usize = 500;

/// Explains the pod that the arguments name.
pub async fn explain(args: &ExplainPodArgs, out: &mut dyn FnMut(&str)) -> Result<()> {
    let session = Session::open(&args.to).await?;
    let name = pod::name(&args.pod);
    if name.is_empty() || name.contains('/') {
        bail!("error: {:?} is not a pod; name one, as in `podwire explain pod/web`", args.pod);
    }
    let object = session.get_json(&format!("/api/v1/namespaces/{}/pods/{name}", session.namespace)).await?;
    let configuration = match &args.config {
        None => Configuration::named(object["spec"]["schedulerName"].as_str().unwrap_or("default-scheduler")),
        Some(path) => read_configuration(path)?,
    };
    let mut explainer = Explainer::new(&configuration);
    for (path, kind) in KINDS {
        read(&session, path, kind, &mut explainer).await?;
    }
    let Some(found) = explainer.explain(&object)? else {
        bail!("error: no profile of the configuration is for scheduler {}", object["spec"]["schedulerName"]);
    };
    lines(&object, &found, args.all).iter().for_each(|line| out(line));
    Ok(())
}

/// A scheduler's configuration file.
pub fn read_configuration(path: &std::path::Path) -> Result<Configuration> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {path:?}"))?;
    let value: Value = serde_yaml_ng::from_str(&text).with_context(|| format!("read {path:?} as YAML"))?;
    Configuration::read(&value).with_context(|| format!("understand {path:?}"))
}

/// Reads all objects of a kind, page by page; a kind that may not be read, or is not served, counts as empty.
async fn read(session: &Session, path: &str, kind: &str, explainer: &mut Explainer) -> Result<()> {
    let mut next = String::new();
    loop {
        let page = match session.get_json(&format!("{path}?limit={PAGE}{next}")).await {
            Ok(page) => page,
            Err(error) if kind != "Node" && kind != "Pod" => {
                crate::remark(&format!("{kind} objects are left out: {error}"));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for item in page["items"].as_array().into_iter().flatten() {
            let mut item = item.clone();
            item["kind"] = kind.into();
            explainer.add(&item)?;
        }
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => next = format!("&continue={token}"),
            _ => return Ok(()),
        }
    }
}

fn indented(objection: &Objection) -> Vec<String> {
    let mut lines = vec![format!("    {}: {}", objection.plugin, objection.reasons.join(", "))];
    lines.extend(objection.details.iter().map(|detail| format!("      {detail}")));
    lines
}

/// What is said about the pod; nodes beyond the first few only if `all`.
fn lines(pod: &Value, found: &Explanation, all: bool) -> Vec<String> {
    let mut out = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = format!("{}/{}", text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
    match pod["spec"]["nodeName"].as_str() {
        Some(node) => out.push(format!("{name} is on {node}; if it were placed now:")),
        None => out.push(format!("{name} has no node.")),
    }
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    for one in conditions.filter(|one| one["type"] == "PodScheduled" && one["status"] == "False") {
        out.push(format!(
            "  since {}: {}: {}",
            text(&one["lastTransitionTime"]),
            text(&one["reason"]),
            text(&one["message"])
        ));
    }
    if let Some(objection) = &found.everywhere {
        out.push(format!("It fits on none of the {} nodes:", found.nodes));
        out.extend(indented(objection));
        return out;
    }
    if let Some(only) = &found.only {
        out.push(format!("It may run only on {only:?}."));
    }
    let most = if all { usize::MAX } else { 5 };
    out.push(format!("{} of {} nodes fit.", found.scores.len(), found.nodes));
    for (node, score) in found.ranking().into_iter().take(most) {
        let by_plugin = found.scores[node].iter().map(|(plugin, score)| format!("{plugin} {score}"));
        out.push(format!("  {node} {score}: {}", by_plugin.collect::<Vec<_>>().join(", ")));
    }
    if !found.refused.is_empty() {
        out.push(format!("{} nodes are refused, the nearest misses first:", found.refused.len()));
    }
    for (node, objections) in found.nearest().into_iter().take(most) {
        out.push(format!("  {node}"));
        objections.iter().for_each(|one| out.extend(indented(one)));
    }
    if let Some(reason) = found.ineligible {
        out.push(format!("It removes no other pods: {reason}"));
    }
    for node in &found.best_room {
        let room = &found.candidates[node];
        out.push(format!(
            "Room could be made on {node}: {} would have to go ({} disruption budgets violated).",
            room.victims.join(", "),
            room.violations
        ));
    }
    out
}
