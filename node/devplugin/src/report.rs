//! What each pool would offer on this node, for a person.

use std::{fmt::Write, io, path::Path};

use crate::{
    config::Config,
    inventory,
    plan::{self, Device, Offer},
    tree::Tree,
};

/// A configuration tried on this node.
#[derive(Debug)]
pub struct Checked {
    /// What each pool would offer, and what is left out.
    pub text: String,
    /// The plugin would start with it.
    pub ok: bool,
}

/// Looks at the tree below `root` and tells what each pool would offer. Nothing is served. Blocking.
pub fn check(config: &Config, root: &Path) -> io::Result<Checked> {
    let inventory = inventory::take(&Tree::open(root)?, config);
    let plan = plan::plan(config, &inventory);
    let mut text = String::new();
    plan.offers.iter().for_each(|offer| of_offer(offer, &mut text));
    for left in &inventory.left_out {
        line(&mut text, format_args!("left out: {}: {}", left.path.display(), left.why));
    }
    for conflict in &plan.conflicts {
        line(&mut text, format_args!("error: {conflict}"));
    }
    Ok(Checked { text, ok: plan.conflicts.is_empty() })
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(text, "{what}").expect("a string takes every text");
}

fn of_offer(offer: &Offer, text: &mut String) {
    let (count, share) = (offer.devices.len(), offer.pool.share);
    let devices = if count == 1 { "device" } else { "devices" };
    let shared = if share == 1 { String::new() } else { format!(", each for {share} containers") };
    line(text, format_args!("{}: {count} {devices}{shared}", offer.pool.resource));
    offer.devices.iter().for_each(|device| of_device(offer, device, text));
}

fn of_device(offer: &Offer, device: &Device, text: &mut String) {
    let health = device.trouble.as_ref().map_or("Healthy".to_owned(), |why| format!("Unhealthy ({why})"));
    let numa = device.numa.map(|node| format!(", NUMA node {node}")).unwrap_or_default();
    let files = device.files.iter().map(|file| format!(" {}", file.display())).collect::<String>();
    let rights = if files.is_empty() { String::new() } else { format!(" {}", offer.pool.permissions) };
    line(text, format_args!("  {}: {health}{numa}{files}{rights}", device.id));
}
