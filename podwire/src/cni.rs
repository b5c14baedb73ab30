//! `podwire cni`: what cnitool does, a doctor for what leaked, and the conformance suite.

use std::{fmt::Display, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, bail};
use podwire_cni_lib::{Attachment, Networks, tool};
use serde_json::{Map, Value};

use crate::{
    cli::{CniPlace, CniTarget, CniVerb},
    instance::Instance,
    node_parts::{self, NetworkFolders},
    say,
};

/// Carries out one of the verbs.
pub fn run(verb: CniVerb) -> Result<ExitCode> {
    match verb {
        CniVerb::Add { place, target, network } => {
            let result = tool::add(&open(&place)?, network.as_deref(), &attachment(&target)?)?;
            say(&tool::printed(&result.raw));
        }
        CniVerb::Del { place, target } => tool::del(&open(&place)?, &attachment(&target)?)?,
        CniVerb::Check { place, target } => tool::check(&open(&place)?, &attachment(&target)?)?,
        CniVerb::Gc { place, keep } => gc(&open(&place)?, &keep)?,
        CniVerb::Status { place } => say(&tool::status(&open(&place)?)?),
        CniVerb::List { place } => show(&tool::list(&open(&place)?)?),
        CniVerb::Doctor { place, repair } => {
            let report = tool::doctor(&open(&place)?, repair)?;
            show(&report);
            return Ok(if report.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        CniVerb::Conformance { bin_dir } => {
            let report = tool::conformance(&bin_dir);
            show(&report);
            return Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(what: &dyn Display) {
    say(what.to_string().trim_end());
}

fn open(place: &CniPlace) -> Result<Networks> {
    let instance = Instance::at(&place.data.data_dir)?;
    let folders = NetworkFolders {
        conf_dir: place.conf_dir.clone().unwrap_or_else(|| instance.cni_conf_dir()),
        bin_dirs: place.bin_dir.clone().into_iter().collect::<Vec<PathBuf>>(),
    };
    node_parts::networks(&instance, &folders).open().context("open the networks")
}

fn attachment(target: &CniTarget) -> Result<Attachment> {
    let mut args = Vec::new();
    for pair in target.args.iter().flat_map(|text| text.split(';')).filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else { bail!("--args: {pair:?} is not NAME=VALUE") };
        args.push((name.to_owned(), value.to_owned()));
    }
    let capability_args: Map<String, Value> = match &target.capability_args {
        Some(text) => serde_json::from_str(text).context("--capability-args is not a JSON object")?,
        None => Map::new(),
    };
    Ok(Attachment {
        container_id: target.container_id.clone(),
        netns: target.netns.clone(),
        ifname: target.ifname.clone(),
        args,
        capability_args,
        traceparent: None,
    })
}

fn gc(networks: &Networks, keep: &[String]) -> Result<()> {
    let kept: Vec<Attachment> = keep
        .iter()
        .map(|pair| {
            let (container_id, ifname) = pair.split_once('/').unwrap_or((pair, "eth0"));
            Attachment {
                container_id: container_id.to_owned(),
                netns: PathBuf::new(),
                ifname: ifname.to_owned(),
                args: Vec::new(),
                capability_args: Map::new(),
                traceparent: None,
            }
        })
        .collect();
    Ok(tool::gc(networks, &kept)?)
}
