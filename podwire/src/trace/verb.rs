//! `podwire trace`: which pod, in which form.

use anyhow::{Result, bail};

use std::path::PathBuf;

use super::{Arrow, cost, draw, mermaid, of_pod, serve::collect};
use crate::{
    cli::{TraceArgs, TraceDir},
    instance::{DEFAULT_DATA_DIR, Instance},
};

/// The text that the arguments ask for.
pub fn trace(args: &TraceArgs) -> Result<String> {
    if args.cost {
        return Ok(format!("{} ns per arrow", cost::nanos_per_arrow()));
    }
    let instance = Instance::at(&args.to.data.data_dir)?;
    let arrows = collect(&args.at.trace_dir.clone().unwrap_or_else(|| instance.run_dir()))?;
    if let Some(count) = args.last {
        let pods: Vec<Vec<Arrow>> = newest(&arrows, count).iter().map(|uid| of_pod(&arrows, uid)).collect();
        return Ok(draw::summary(&pods));
    }
    let Some(name) = &args.pod else {
        bail!("error: name a pod, as in `podwire trace pod/web`, or use --last 20")
    };
    let name = name.trim_start_matches("pods/").trim_start_matches("pod/");
    let namespace = args.to.namespace.as_deref().unwrap_or("default");
    let full = format!("{namespace}/{name}");
    // The newest pod of that name; earlier ones are found by their UID.
    let uid = arrows
        .iter()
        .rev()
        .find(|arrow| arrow.pod == full || arrow.uid == name)
        .map(|arrow| arrow.uid.clone());
    let Some(uid) = uid else {
        bail!(
            "error: no trace of pod {full:?}; the node keeps the newest some hundred pods since it was started"
        )
    };
    let own = of_pod(&arrows, &uid);
    Ok(match args.output.as_deref() {
        None | Some("wide") => draw::sequence(&own, args.width.unwrap_or_else(terminal_width)),
        Some("mermaid") => mermaid::mermaid(&own),
        Some("json") => serde_json::to_string_pretty(&own)?,
        Some(other) => bail!("error: unknown form {other:?}; choose mermaid or json"),
    })
}

/// Where a participant that runs alone offers its arrows: as told, else where the default node does.
pub fn folder(at: &TraceDir) -> Result<PathBuf> {
    match &at.trace_dir {
        Some(folder) => Ok(folder.clone()),
        None => Ok(Instance::at(DEFAULT_DATA_DIR.as_ref())?.run_dir()),
    }
}

/// The UIDs of the pods that were started last, oldest first.
fn newest(arrows: &[Arrow], count: usize) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for arrow in arrows {
        if !seen.contains(&arrow.uid) {
            seen.push(arrow.uid.clone());
        }
    }
    seen.split_off(seen.len().saturating_sub(count))
}

/// The terminal's width; wide enough for lanes when the text goes elsewhere.
fn terminal_width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|width| *width > 0)
        .unwrap_or(160)
}
