//! Arguments of plugins, as `pluginConfig` gives them. Pure.

use std::time::Duration;

use podwire_api::selector::{NodePreferences, NodeSelectorTerm, RequiredNodeAffinity};

use super::{ConfigurationError, Part};
use crate::plugins::dynamic_resources::DynamicResources;
use crate::plugins::node_affinity::NodeAffinity;
use crate::plugins::node_resources_fit::{NodeResourcesFit, Strategy};
use crate::plugins::pod_topology_spread::PodTopologySpread;
use crate::pod::Spread;
use crate::profile::Arguments;

type Result<T> = std::result::Result<T, ConfigurationError>;

/// Reads the arguments of all plugins.
pub(super) fn read(part: &Part) -> Result<Arguments> {
    let mut out = Arguments::default();
    for one in part.list()? {
        one.only(&["name", "args"])?;
        let args = one.at("args");
        match one.at("name").text()?.unwrap_or_default() {
            "NodeResourcesFit" => out.fit = fit(&args)?,
            "NodeResourcesBalancedAllocation" => {
                args.only(&["apiVersion", "kind", "resources"])?;
                let resources: Vec<_> =
                    resources(&args.at("resources"))?.into_iter().map(|(name, _)| name).collect();
                if !resources.is_empty() {
                    out.balance.resources = resources;
                }
            }
            "NodeAffinity" => out.affinity = affinity(&args)?,
            "PodTopologySpread" => out.spread = spread(&args)?,
            "InterPodAffinity" => {
                args.only(&[
                    "apiVersion",
                    "kind",
                    "hardPodAffinityWeight",
                    "ignorePreferredTermsOfExistingPods",
                ])?;
                out.neighbours.hard_weight = args.at("hardPodAffinityWeight").number(0, 100)?.unwrap_or(1);
                let ignore = args.at("ignorePreferredTermsOfExistingPods").truth()?;
                out.neighbours.ignore_preferences_of_others = ignore.unwrap_or_default();
            }
            "DefaultPreemption" => {
                args.only(&[
                    "apiVersion",
                    "kind",
                    "minCandidateNodesPercentage",
                    "minCandidateNodesAbsolute",
                ])?;
                let count = |name: &str, most, default| -> Result<usize> {
                    let given = args.at(name).number(0, most)?;
                    Ok(given.and_then(|given| usize::try_from(given).ok()).unwrap_or(default))
                };
                out.preemption.min_percentage = count("minCandidateNodesPercentage", 100, 10)?;
                out.preemption.min_absolute = count("minCandidateNodesAbsolute", i64::from(i32::MAX), 100)?;
                if out.preemption.min_percentage == 0 && out.preemption.min_absolute == 0 {
                    return args.wrong(
                        "one of minCandidateNodesPercentage and minCandidateNodesAbsolute must not be 0",
                    );
                }
            }
            "VolumeBinding" => {
                args.only(&["apiVersion", "kind", "bindTimeoutSeconds"])?;
                let seconds = args.at("bindTimeoutSeconds").number(0, 86_400)?.unwrap_or(600);
                out.volumes.timeout = Duration::from_secs(seconds.unsigned_abs());
            }
            "DynamicResources" => {
                args.only(&["apiVersion", "kind", "filterTimeout", "bindingTimeout"])?;
                let default = &out.devices;
                let filter_timeout = args.at("filterTimeout").duration(default.filter_timeout)?;
                let binding_timeout = args.at("bindingTimeout").duration(default.binding_timeout)?;
                if binding_timeout < Duration::from_secs(1) {
                    return args.at("bindingTimeout").wrong("must be at least 1 second");
                }
                out.devices = DynamicResources { filter_timeout, binding_timeout };
            }
            other => return one.at("name").wrong(format!("plugin {other:?} takes no arguments")),
        }
    }
    Ok(out)
}

fn resources(part: &Part) -> Result<Vec<(String, i64)>> {
    let read = |one: &Part| -> Result<(String, i64)> {
        one.only(&["name", "weight"])?;
        let name = one.at("name").text()?.unwrap_or_default();
        if name.is_empty() {
            return one.wrong("must have a name");
        }
        Ok((name.to_owned(), one.at("weight").number(1, 100)?.unwrap_or(1)))
    };
    part.list()?.iter().map(read).collect()
}

fn texts(part: &Part) -> Result<Vec<String>> {
    part.list()?.iter().map(|one| Ok(one.text()?.unwrap_or_default().to_owned())).collect()
}

fn fit(args: &Part) -> Result<NodeResourcesFit> {
    args.only(&["apiVersion", "kind", "ignoredResources", "ignoredResourceGroups", "scoringStrategy"])?;
    let mut out = NodeResourcesFit {
        ignored: texts(&args.at("ignoredResources"))?,
        ignored_groups: texts(&args.at("ignoredResourceGroups"))?,
        ..NodeResourcesFit::default()
    };
    let strategy = args.at("scoringStrategy");
    strategy.only(&["type", "resources", "requestedToCapacityRatio"])?;
    let compared = resources(&strategy.at("resources"))?;
    if !compared.is_empty() {
        out.resources = compared;
    }
    out.strategy = match strategy.at("type").text()?.unwrap_or("LeastAllocated") {
        "LeastAllocated" => Strategy::LeastAllocated,
        "MostAllocated" => Strategy::MostAllocated,
        "RequestedToCapacityRatio" => {
            let ratio = strategy.at("requestedToCapacityRatio");
            ratio.only(&["shape"])?;
            let point = |one: &Part| -> Result<(i64, i64)> {
                one.only(&["utilization", "score"])?;
                let of = |name: &str, most| Ok(one.at(name).number(0, most)?.unwrap_or_default());
                Ok((of("utilization", 100)?, of("score", 10)?))
            };
            let shape = ratio.at("shape").list()?.iter().map(point).collect::<Result<Vec<_>>>()?;
            if shape.is_empty() || shape.windows(2).any(|two| two[0].0 >= two[1].0) {
                return ratio.at("shape").wrong("must be points of growing utilization");
            }
            Strategy::RequestedToCapacityRatio(shape)
        }
        other => return strategy.at("type").wrong(format!("{other:?} is not a strategy")),
    };
    Ok(out)
}

fn affinity(args: &Part) -> Result<NodeAffinity> {
    args.only(&["apiVersion", "kind", "addedAffinity"])?;
    let added = args.at("addedAffinity");
    let (required, preferred) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    added.only(&[required, preferred])?;
    let required = added.at(required);
    let terms = required.at("nodeSelectorTerms");
    let read = |one: &Part| -> Result<NodeSelectorTerm> {
        let term = NodeSelectorTerm::from(one.value);
        if term.is_readable() { Ok(term) } else { one.wrong("is not a node selector term") }
    };
    let terms: Vec<_> = terms.list()?.iter().map(read).collect::<Result<_>>()?;
    Ok(NodeAffinity {
        added_required: (!required.value.is_null())
            .then_some(RequiredNodeAffinity { labels: Vec::new(), terms: Some(terms) }),
        added_preferred: NodePreferences::from(added.at(preferred).value),
    })
}

fn spread(args: &Part) -> Result<PodTopologySpread> {
    args.only(&["apiVersion", "kind", "defaultConstraints", "defaultingType"])?;
    let constraints = args.at("defaultConstraints");
    let given = constraints.list()?;
    match args.at("defaultingType").text()?.unwrap_or("System") {
        "System" if given.is_empty() => return Ok(PodTopologySpread::default()),
        "System" => return constraints.wrong("must be empty unless defaultingType is List"),
        "List" => {}
        other => return args.at("defaultingType").wrong(format!("{other:?} is neither System nor List")),
    }
    let read = |one: &Part| -> Result<Spread> {
        one.only(&["maxSkew", "topologyKey", "whenUnsatisfiable"])?;
        let topology_key = one.at("topologyKey").text()?.unwrap_or_default();
        if topology_key.is_empty() {
            return one.wrong("must have a topologyKey");
        }
        let hard = match one.at("whenUnsatisfiable").text()?.unwrap_or_default() {
            "DoNotSchedule" => true,
            "ScheduleAnyway" => false,
            other => return one.at("whenUnsatisfiable").wrong(format!("{other:?} is not known")),
        };
        Ok(Spread {
            max_skew: one.at("maxSkew").number(1, i64::from(i32::MAX))?.unwrap_or(1),
            topology_key: topology_key.to_owned(),
            hard,
            selector: None,
            min_domains: 1,
            honor_affinity: true,
            honor_taints: false,
        })
    };
    Ok(PodTopologySpread { defaults: given.iter().map(read).collect::<Result<_>>()?, system: false })
}
