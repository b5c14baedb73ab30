//! One decision: the best node for a pod, or the reasons why there is none. Pure; chance is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::{Cluster, Constraints};
use crate::framework::{Cycle, Filters, Name, Names, PostFilter, PreFilter, Refusal, Score, Seat};
use crate::node::NodeId;
use crate::plugins::dynamic_resources::extended;
use crate::pod::PodInfo;
use crate::profile::Profile;

/// The longest text a condition or event carries.
const MAX_MESSAGE: usize = 1024;
/// So many nodes that fit are always worth finding.
const MIN_FIT: usize = 100;

/// What one cycle found.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Put the pod on this node.
    Node {
        /// Its name.
        name: Arc<str>,
        /// How many nodes were found that fit.
        fit: usize,
    },
    /// No node can take it; what was tried to make room says the rest.
    None(Arc<Diagnosis>, PostFilter),
}

/// Why no node can take a pod.
#[derive(Debug, Default)]
pub(crate) struct Diagnosis {
    /// How many nodes there are.
    pub(crate) nodes: usize,
    /// Each node's objection, by its place.
    refusals: Vec<Option<Refusal>>,
    refused: usize,
    /// What the pod lacks wherever it may run; no node was asked then.
    pub(crate) everywhere: Option<Refusal>,
    /// Why there is no answer.
    pub(crate) broken: Option<String>,
    /// The plugins that named nodes, so that no other was asked.
    pub(crate) narrowed_by: Names,
    plugins: Names,
}

impl Diagnosis {
    /// Nothing is known yet of so many nodes.
    pub(crate) fn of(nodes: usize) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// Notes a node's objection.
    pub(crate) fn refuse(&mut self, id: NodeId, refusal: Refusal) {
        if self.refusals.len() <= id.at() {
            self.refusals.resize(id.at() + 1, None);
        }
        self.plugins.insert(refusal.plugin);
        self.refusals[id.at()] = Some(refusal);
        self.refused += 1;
    }

    /// A node's objection.
    pub(crate) fn refusal(&self, id: NodeId) -> Option<&Refusal> {
        self.refusals.get(id.at())?.as_ref()
    }

    /// The plugins that objected anywhere.
    pub(crate) fn plugins(&self) -> Names {
        let mut all = self.plugins;
        self.narrowed_by
            .iter()
            .chain(self.everywhere.iter().map(|one| one.plugin))
            .for_each(|one| all.insert(one));
        all
    }

    /// Kubernetes' sentence about it; `aftermath` says what preemption came to.
    pub(crate) fn message(&self, aftermath: &str) -> String {
        if self.nodes == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let mut text = match &self.everywhere {
            Some(refusal) => format!("0/{} nodes are available: {}.", self.nodes, refusal.text()),
            None => {
                let names: Vec<&str> = self.narrowed_by.iter().map(Name::text).collect();
                let absent = format!("node(s) didn't satisfy plugin(s) [{}]", names.join(" "));
                let absent = std::iter::repeat_n(absent.as_str(), self.nodes - self.refused);
                let reasons = self.refusals.iter().flatten().flat_map(Refusal::reasons);
                availability(self.nodes, reasons.chain(absent.filter(|_| !names.is_empty())))
            }
        };
        if !aftermath.is_empty() {
            text.push(' ');
            text.push_str(aftermath);
        }
        if text.len() > MAX_MESSAGE {
            let cut = (0..=MAX_MESSAGE - 3).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(cut);
            text.push_str("...");
        }
        text
    }
}

/// `0/N nodes are available: 1 this, 2 that.`
pub(crate) fn availability<'a>(nodes: usize, reasons: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    reasons.for_each(|reason| *counts.entry(reason).or_default() += 1);
    let mut parts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort_unstable();
    let mut text = format!("0/{nodes} nodes are available:");
    if !parts.is_empty() {
        text.push(' ');
        text.push_str(&parts.join(", "));
        text.push('.');
    }
    text
}

/// How many possible nodes are enough to choose from.
pub(crate) fn enough(nodes: usize, percentage: Option<usize>) -> usize {
    if nodes < MIN_FIT {
        return nodes;
    }
    let percentage = percentage.unwrap_or_else(|| 50_usize.saturating_sub(nodes / 125).max(5));
    (nodes * percentage / 100).max(MIN_FIT)
}

/// The filters made ready for a pod.
pub(crate) struct Prepared<'a> {
    pub(crate) filters: Filters<'a>,
    /// The only nodes worth asking about.
    pub(crate) only: Option<BTreeSet<String>>,
    pub(crate) narrowed_by: Names,
}

/// Makes the filters ready; an error is what the pod lacks wherever it may run.
pub(crate) fn prepare<'a>(profile: &'a Profile, cycle: Cycle<'a>) -> Result<Prepared<'a>, Refusal> {
    let mut all = Vec::new();
    let mut only: Option<BTreeSet<String>> = None;
    let mut narrowed_by = Names::default();
    for row in profile.rows.iter().filter(|row| row.filters) {
        match row.plugin.pre_filter(cycle) {
            PreFilter::Skip => {}
            PreFilter::Nowhere(refusal) => return Err(refusal),
            PreFilter::Each(filter) => all.push((row.plugin.name(), filter)),
            PreFilter::Only(names, filter) => {
                only = Some(match only.take() {
                    None => names,
                    Some(before) => before.intersection(&names).cloned().collect(),
                });
                narrowed_by.insert(row.plugin.name());
                all.push((row.plugin.name(), filter));
                if only.as_ref().is_some_and(BTreeSet::is_empty) {
                    let names: Vec<&str> = narrowed_by.iter().map(Name::text).collect();
                    let text = match names.as_slice() {
                        [one] => format!("node(s) didn't satisfy plugin {one}"),
                        all => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", all.join(" ")),
                    };
                    return Err(Refusal::never(row.plugin.name(), text));
                }
            }
        }
    }
    Ok(Prepared { filters: Filters::new(all), only, narrowed_by })
}

/// The scores of nodes that fit: by plugin with its weight, normalized but not weighted.
pub(crate) fn scores<'a>(
    profile: &'a Profile,
    cycle: Cycle<'a>,
    fit: &[Seat<'a>],
) -> Vec<(Name, i64, Vec<i64>)> {
    let mut out = Vec::new();
    for row in profile.rows.iter().filter(|row| row.scores) {
        if let Some(score) = row.plugin.pre_score(cycle, fit) {
            out.push((row.plugin.name(), row.weight, scored(&*score, fit)));
        }
    }
    out
}

fn scored(score: &dyn Score, fit: &[Seat]) -> Vec<i64> {
    let mut of_nodes: Vec<i64> = fit.iter().map(|seat| score.score(seat)).collect();
    score.normalize(&mut of_nodes);
    of_nodes
}

/// The state of the search that is carried from one decision to the next.
#[derive(Debug, Default)]
pub(crate) struct Searcher {
    /// Where the search for nodes begins, so that all get their turn.
    start: usize,
    /// A sequence of chances.
    dice: u64,
    /// The last pod that fitted nowhere: until anything changes, its like fit nowhere either.
    last: Option<Failed>,
}

#[derive(Debug)]
struct Failed {
    template: Arc<crate::pod::Template>,
    nominated: Option<Arc<str>>,
    generation: u64,
    diagnosis: Arc<Diagnosis>,
    text: String,
    clear: bool,
}

impl Searcher {
    fn throw(&mut self) -> u64 {
        self.dice = self.dice.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.dice;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// What is already known of pods like this one.
    fn known(&self, pod: &PodInfo, cluster: &Cluster) -> Option<Decision> {
        let last = self.last.as_ref()?;
        let same = Arc::ptr_eq(&last.template, &pod.template)
            && last.nominated == pod.nominated
            && last.generation == cluster.generation()
            && pod.volume_claims.is_empty()
            && pod.device_claims.is_empty()
            && !extended::concerns(pod, &cluster.devices);
        same.then(|| {
            let post = PostFilter::Unhelped { text: last.text.clone(), clear: last.clear, deallocate: None };
            Decision::None(last.diagnosis.clone(), post)
        })
    }

    /// Decides for one pod.
    pub(crate) fn decide(&mut self, pod: &PodInfo, cluster: &mut Cluster, profile: &Profile) -> Decision {
        if let Some(known) = self.known(pod, cluster) {
            return known;
        }
        let constraints = profile.constraints(pod, cluster);
        cluster.prepare(pod, &constraints);
        self.search(pod, cluster, &constraints, profile)
    }

    fn search(
        &mut self,
        pod: &PodInfo,
        cluster: &Cluster,
        constraints: &Constraints,
        profile: &Profile,
    ) -> Decision {
        let cycle = Cycle { pod, cluster, constraints };
        let mut diagnosis = Diagnosis::of(cluster.order().len());
        if diagnosis.nodes == 0 {
            return Decision::None(Arc::new(diagnosis), PostFilter::Skip);
        }
        let mut prepared = match prepare(profile, cycle) {
            Ok(prepared) => prepared,
            Err(refusal) if refusal.broken => {
                let (name, text) = (refusal.plugin.text(), refusal.text());
                diagnosis.broken = Some(format!("running PreFilter plugin \"{name}\": {text}"));
                return Decision::None(Arc::new(diagnosis), PostFilter::Skip);
            }
            Err(refusal) => {
                diagnosis.everywhere = Some(refusal);
                let mut none = Filters::new(Vec::new());
                return self.fail(profile, cycle, &mut none, diagnosis);
            }
        };
        diagnosis.narrowed_by = prepared.narrowed_by;
        if let Some(seat) = pod.nominated.as_deref().and_then(|name| cluster.named(name)).and_then(Seat::new)
            && prepared.only.as_ref().is_none_or(|only| only.contains(&*seat.node.name))
            && prepared.filters.refusal_with_promises(cycle, &seat).is_none()
        {
            return Decision::Node { name: seat.node.name.clone(), fit: 1 };
        }
        let fit = self.fitting(cycle, profile, &mut prepared, &mut diagnosis);
        if diagnosis.broken.is_some() {
            return Decision::None(Arc::new(diagnosis), PostFilter::Skip);
        }
        match fit.as_slice() {
            [] => self.fail(profile, cycle, &mut prepared.filters, diagnosis),
            [only] => Decision::Node { name: only.node.name.clone(), fit: 1 },
            _ => Decision::Node { name: self.best(profile, cycle, &fit), fit: fit.len() },
        }
    }

    /// Nodes that fit, as many as are enough.
    fn fitting<'a>(
        &mut self,
        cycle: Cycle<'a>,
        profile: &Profile,
        prepared: &mut Prepared<'a>,
        diagnosis: &mut Diagnosis,
    ) -> Vec<Seat<'a>> {
        let named: Vec<NodeId>;
        let order = match &prepared.only {
            None => cycle.cluster.order(),
            Some(only) => {
                named = only.iter().filter_map(|name| Some(cycle.cluster.named(name)?.id)).collect();
                &named
            }
        };
        let wanted = enough(order.len(), profile.percentage);
        let start = if order.is_empty() { 0 } else { self.start % order.len() };
        let mut fit = Vec::with_capacity(wanted);
        let mut asked = 0;
        for id in order[start..].iter().chain(&order[..start]) {
            let Some(seat) = Seat::new(cycle.cluster.node(*id)) else { continue };
            asked += 1;
            match prepared.filters.refusal_with_promises(cycle, &seat) {
                None => fit.push(seat),
                Some(refusal) if refusal.broken => {
                    let (name, text) = (refusal.plugin.text(), refusal.text());
                    diagnosis.broken = Some(format!("running \"{name}\" filter plugin: {text}"));
                    break;
                }
                Some(refusal) => diagnosis.refuse(*id, refusal),
            }
            if fit.len() >= wanted {
                break;
            }
        }
        self.start = (self.start + asked) % diagnosis.nodes;
        fit
    }

    fn best(&mut self, profile: &Profile, cycle: Cycle, fit: &[Seat]) -> Arc<str> {
        let mut sums = vec![0_i64; fit.len()];
        for row in profile.rows.iter().filter(|row| row.scores) {
            if let Some(score) = row.plugin.pre_score(cycle, fit) {
                let of_nodes = scored(&*score, fit);
                sums.iter_mut().zip(of_nodes).for_each(|(sum, score)| *sum += row.weight * score);
            }
        }
        let best = sums.iter().copied().max().unwrap_or(0);
        let tied = sums.iter().filter(|sum| **sum == best).count().max(1);
        let chosen = usize::try_from(self.throw() % tied as u64).unwrap_or(0);
        let mut tied = fit.iter().zip(&sums).filter(|(_, sum)| **sum == best).map(|(seat, _)| seat);
        tied.nth(chosen).map_or_else(|| fit[0].node.name.clone(), |seat| seat.node.name.clone())
    }

    fn fail(
        &mut self,
        profile: &Profile,
        cycle: Cycle,
        filters: &mut Filters,
        diagnosis: Diagnosis,
    ) -> Decision {
        let post = self.post_filter(profile, cycle, filters, &diagnosis);
        let diagnosis = Arc::new(diagnosis);
        self.last = match &post {
            PostFilter::Unhelped { text, clear, deallocate: None } => Some(Failed {
                template: cycle.pod.template.clone(),
                nominated: cycle.pod.nominated.clone(),
                generation: cycle.cluster.generation(),
                diagnosis: diagnosis.clone(),
                text: text.clone(),
                clear: *clear,
            }),
            _ => None,
        };
        Decision::None(diagnosis, post)
    }

    /// Asks the plugins in turn whether room can be made; what those say who cannot help is put together.
    fn post_filter(
        &mut self,
        profile: &Profile,
        cycle: Cycle,
        filters: &mut Filters,
        diagnosis: &Diagnosis,
    ) -> PostFilter {
        let (mut texts, mut cleared, mut claim) = (Vec::new(), false, None);
        for plugin in profile.plugins() {
            let dice = self.throw();
            match plugin.post_filter(cycle, filters, diagnosis, dice) {
                PostFilter::Skip => {}
                PostFilter::Unhelped { text, clear, deallocate } => {
                    texts.push(text);
                    cleared |= clear;
                    claim = claim.or(deallocate);
                }
                victims @ PostFilter::Victims { .. } => return victims,
            }
        }
        PostFilter::Unhelped { text: texts.join(", "), clear: cleared, deallocate: claim }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cpu_pod, node, pod};
    use serde_json::json;

    fn profile() -> Profile {
        Profile::default_for("default-scheduler")
    }

    fn decide(pod: &PodInfo, cluster: &mut Cluster) -> Decision {
        Searcher::default().decide(pod, cluster, &profile())
    }

    fn chosen(pod: &PodInfo, cluster: &mut Cluster) -> Option<String> {
        match decide(pod, cluster) {
            Decision::Node { name, .. } => Some(name.to_string()),
            Decision::None(..) => None,
        }
    }

    fn cluster(names: &[&str]) -> Cluster {
        let mut cluster = Cluster::default();
        names.iter().for_each(|name| drop(cluster.set_node(name, node(json!({})))));
        cluster
    }

    fn message(pod: &PodInfo, cluster: &mut Cluster) -> String {
        match decide(pod, cluster) {
            Decision::Node { name, .. } => panic!("it fits on {name}"),
            Decision::None(diagnosis, PostFilter::Unhelped { text, .. }) => diagnosis.message(&text),
            Decision::None(diagnosis, _) => diagnosis.message(""),
        }
    }

    fn with_priority(mut pod: PodInfo, priority: i32) -> PodInfo {
        Arc::make_mut(&mut pod.template).priority = priority;
        pod
    }

    #[test]
    fn the_emptiest_node_is_chosen() {
        let mut cluster = cluster(&["n1", "n2", "n3"]);
        cluster.assume(&cpu_pod("a", "2"), "n1");
        cluster.assume(&cpu_pod("b", "1"), "n3");
        let mut searcher = Searcher::default();
        for _ in 0..6 {
            let decision = searcher.decide(&cpu_pod("c", "1"), &mut cluster, &profile());
            assert!(matches!(decision, Decision::Node { name, .. } if &*name == "n2"));
        }
    }

    #[test]
    fn equal_nodes_take_turns() {
        let mut cluster = cluster(&["n1", "n2"]);
        let mut searcher = Searcher::default();
        let decided = (0..32).map(|_| searcher.decide(&pod(json!({})), &mut cluster, &profile()));
        let names: BTreeSet<String> = decided
            .filter_map(|decision| match decision {
                Decision::Node { name, .. } => Some(name.to_string()),
                Decision::None(..) => None,
            })
            .collect();
        assert_eq!(names.len(), 2);
    }

    #[test]
    fn the_sentence_is_kubernetes_own() {
        let mut cluster = Cluster::default();
        assert_eq!(message(&pod(json!({})), &mut cluster), "no nodes available to schedule pods");
        cluster.set_node("n1", node(json!({"spec": {"unschedulable": true}})));
        cluster.set_node("n2", node(json!({"status": {"allocatable": {"cpu": "1"}}})));
        cluster.set_node("n3", node(json!({"status": {"allocatable": {"cpu": "1", "memory": "1"}}})));
        let containers = json!([{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]);
        assert_eq!(
            message(&pod(json!({"spec": {"containers": containers}})), &mut cluster),
            "0/3 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable, 2 Insufficient cpu. \
             no new claims to deallocate, preemption: 0/3 nodes are available: \
             3 Preemption is not helpful for scheduling."
        );
    }

    #[test]
    fn a_pod_with_claims_waits_whatever_the_nodes_are() {
        let mut cluster = cluster(&["n1"]);
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
        let claimant = pod(json!({"spec": {"volumes": volumes}}));
        assert!(
            message(&claimant, &mut cluster)
                .starts_with("0/1 nodes are available: persistentvolumeclaim \"data\" not found. ")
        );
        let devices = pod(json!({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "g1"}]}}));
        assert!(message(&devices, &mut cluster).contains("could not find ResourceClaim \"default/g1\". "));
    }

    #[test]
    fn large_clusters_are_sampled() {
        let enough = |nodes| enough(nodes, None);
        assert_eq!([enough(99), enough(100), enough(1000), enough(5000)], [99, 100, 420, 500]);
        assert_eq!(super::enough(5000, Some(30)), 1500);
    }

    #[test]
    fn the_like_of_a_pod_that_fits_nowhere_is_not_searched_for_again_until_something_changes() {
        let mut cluster = cluster(&["n1"]);
        let huge = cpu_pod("huge", "64");
        let mut searcher = Searcher::default();
        let Decision::None(first, _) = searcher.decide(&huge, &mut cluster, &profile()) else {
            panic!("too big")
        };
        let Decision::None(second, _) = searcher.decide(&huge, &mut cluster, &profile()) else {
            panic!("too big")
        };
        assert!(Arc::ptr_eq(&first, &second));
        cluster.set_node("n2", node(json!({"status": {"allocatable": {"cpu": "100"}}})));
        assert!(matches!(searcher.decide(&huge, &mut cluster, &profile()), Decision::Node { .. }));
    }

    fn victims(pod: &PodInfo, cluster: &mut Cluster) -> (String, Vec<String>) {
        match decide(pod, cluster) {
            Decision::None(_, PostFilter::Victims { node, pods }) => {
                (node, pods.iter().map(|pod| pod.name.to_string()).collect())
            }
            other => panic!("no victims: {other:?}"),
        }
    }

    #[test]
    fn the_least_important_and_fewest_pods_go() {
        let mut cluster = cluster(&["n1", "n2"]);
        cluster.assume(&with_priority(cpu_pod("a", "2"), 5), "n1");
        cluster.assume(&with_priority(cpu_pod("b", "2"), 1), "n1");
        cluster.assume(&with_priority(cpu_pod("c", "4"), 5), "n2");
        let new = with_priority(cpu_pod("new", "2"), 10);
        assert_eq!(victims(&new, &mut cluster), ("n1".to_owned(), vec!["b".to_owned()]));
    }

    #[test]
    fn a_small_pod_is_spared_beside_large_ones_that_go() {
        let mut cluster = Cluster::default();
        cluster.set_node("n1", node(json!({"status": {"allocatable": {"cpu": "8"}}})));
        for (name, cpu, priority) in
            [("a", "2", 5), ("b", "2", 4), ("c", "1", 3), ("d", "2", 2), ("e", "1", 1)]
        {
            cluster.assume(&with_priority(cpu_pod(name, cpu), priority), "n1");
        }
        let new = with_priority(cpu_pod("new", "5"), 10);
        assert_eq!(
            victims(&new, &mut cluster).1,
            ["b", "d", "e"],
            "there is room for a large one and a small one"
        );
    }

    #[test]
    fn a_disruption_budget_spares_a_pod_that_would_else_go() {
        let mut cluster = cluster(&["n1", "n2"]);
        for (name, app, node) in [("a", "kept", "n1"), ("b", "free", "n2")] {
            let mut one = with_priority(cpu_pod(name, "4"), if app == "kept" { 1 } else { 2 });
            Arc::make_mut(&mut one.template).labels.insert("app".to_owned(), app.to_owned());
            cluster.assume(&one, node);
        }
        let new = with_priority(cpu_pod("new", "2"), 10);
        assert_eq!(victims(&new, &mut cluster).0, "n1", "the lesser one goes");
        cluster.workloads.budgets.set(&json!({"metadata": {"namespace": "default", "name": "b"},
            "spec": {"selector": {"matchLabels": {"app": "kept"}}}, "status": {"disruptionsAllowed": 0}}));
        assert_eq!(victims(&new, &mut cluster).0, "n2", "unless its budget forbids it");
    }

    #[test]
    fn equals_are_never_removed_and_some_never_remove_others() {
        let mut cluster = cluster(&["n1"]);
        cluster.assume(&cpu_pod("a", "4"), "n1");
        assert_eq!(
            message(&cpu_pod("new", "1"), &mut cluster),
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: \
             0/1 nodes are available: 1 No preemption victims found for incoming pod."
        );
        let mut meek = with_priority(cpu_pod("meek", "1"), 9);
        Arc::make_mut(&mut meek.template).never_preempts = true;
        assert!(message(&meek, &mut cluster).ends_with("not eligible due to preemptionPolicy=Never."));
    }

    #[test]
    fn promised_room_is_not_given_to_lesser_pods() {
        let mut cluster = cluster(&["n1"]);
        cluster.nominations.promise(&Arc::new(with_priority(cpu_pod("big", "4"), 9)), "n1");
        assert_eq!(chosen(&cpu_pod("small", "1"), &mut cluster), None);
        assert!(chosen(&with_priority(cpu_pod("greater", "1"), 10), &mut cluster).is_some());
        assert!(chosen(&with_priority(cpu_pod("big", "4"), 9), &mut cluster).is_some());
    }
}
