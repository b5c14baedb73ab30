//! One pod's devices, chosen container by container on paper; the ledger takes them over when all are found.

use std::collections::{BTreeMap, BTreeSet};

use podwire_wire::ids::{ContainerName, PodUid};

use super::{Answers, Decision, Holding, Holdings, Lack, Ledger, Plugin, Question, Wish, Wishes, unexpected};
use crate::{
    admission::Refused,
    spec::Kind,
    topology::{
        Hints, NodeMask, Policy, Scope, Topology, TopologyAffinityError,
        devices::{self, Choice, Request},
    },
};

/// Why a draft ends early.
type Stop = Box<Decision>;

/// Names of devices by resource.
type Names = BTreeMap<String, BTreeSet<String>>;

/// The choice for one pod.
pub(super) struct Draft<'a> {
    ledger: &'a Ledger,
    wishes: &'a Wishes,
    topology: &'a Topology,
    answers: &'a Answers,
    /// What the pod gets beside what it holds.
    new: Holdings,
    /// Devices of init containers that are done before the next one runs.
    reusable: Names,
}

impl<'a> Draft<'a> {
    pub(super) fn new(
        ledger: &'a Ledger,
        wishes: &'a Wishes,
        topology: &'a Topology,
        answers: &'a Answers,
    ) -> Draft<'a> {
        Draft { ledger, wishes, topology, answers, new: Holdings::new(), reusable: Names::new() }
    }

    /// What the pod gets beside what it holds already.
    pub(super) fn serve(mut self) -> Result<Holdings, Stop> {
        for wish in &self.wishes.containers {
            for (resource, count) in &wish.counts {
                self.present(wish, resource, *count)?;
            }
        }
        let whole = self.topology.policy() != Policy::None && self.topology.scope() == Scope::Pod;
        let of_pod = whole.then(|| self.hints(&self.wishes.whole, None));
        for wish in &self.wishes.containers {
            let hints = of_pod.clone().unwrap_or_else(|| self.hints(&wish.counts, Some(wish)));
            let nodes = self.topology.align(&[hints]).map_err(|error| self.misaligned(error))?;
            for (resource, count) in &wish.counts {
                self.choose(wish, resource, *count, nodes)?;
            }
            self.pass_on(wish);
        }
        Ok(self.new)
    }

    /// Sees that the resource can be had at all, and that what is held can be used.
    fn present(&self, wish: &Wish, resource: &str, count: usize) -> Result<(), Stop> {
        let Some(known) = self.ledger.resources.get(resource) else { return Ok(()) };
        let holding = self.holding(&wish.container, resource);
        if let Some(holding) = holding.filter(|holding| holding.devices.len() != count) {
            let cause = format!(
                "pod {:?} container {:?} changed request for resource {resource:?} from {} to {count}",
                self.wishes.pod.as_str(),
                wish.container.as_str(),
                holding.devices.len(),
            );
            return Err(Box::new(Decision::Refused(unexpected(cause))));
        }
        let sound = |holding: &Holding| holding.devices.keys().all(|id| known.healthy.contains(id));
        let resource = resource.to_owned();
        let lack = match known.plugin {
            Plugin::Away => Lack::Away { resource },
            Plugin::Silent => Lack::Silent { resource },
            Plugin::Serving if known.healthy.is_empty() => Lack::Unhealthy { resource },
            Plugin::Serving if !holding.is_none_or(sound) => Lack::HeldUnhealthy { resource },
            Plugin::Serving => return Ok(()),
        };
        Err(Box::new(Decision::Wait(lack)))
    }

    fn holding(&self, container: &ContainerName, resource: &str) -> Option<&Holding> {
        let key = (container.clone(), resource.to_owned());
        self.ledger.held.get(&self.wishes.pod).and_then(|held| held.get(&key)).or_else(|| self.new.get(&key))
    }

    /// Healthy devices that nobody holds.
    fn available(&self, resource: &str) -> BTreeSet<&'a str> {
        let ledger = self.ledger;
        let Some(known) = ledger.resources.get(resource) else { return BTreeSet::new() };
        let all = ledger.held.values().flatten().chain(&self.new);
        let taken = all.filter(|((_, name), _)| name == resource);
        let taken: BTreeSet<&str> =
            taken.flat_map(|(_, holding)| holding.devices.keys()).map(String::as_str).collect();
        known.healthy.iter().map(String::as_str).filter(|id| !taken.contains(id)).collect()
    }

    fn reusable(&self, resource: &str) -> BTreeSet<&str> {
        self.reusable.get(resource).into_iter().flatten().map(String::as_str).collect()
    }

    /// The hints for one container's wishes, or for those of the whole pod.
    fn hints(&self, counts: &BTreeMap<String, usize>, wish: Option<&Wish>) -> BTreeMap<String, Hints> {
        if self.topology.policy() == Policy::None {
            return BTreeMap::new();
        }
        let mut all = BTreeMap::new();
        for (resource, count) in counts {
            let Some(known) = self.ledger.resources.get(resource) else { continue };
            let held = self.ledger.held.get(&self.wishes.pod).into_iter().flatten();
            let held = held.filter(|((container, name), _)| {
                name == resource && wish.is_none_or(|wish| wish.container == *container)
            });
            let held: BTreeSet<&str> =
                held.flat_map(|(_, holding)| holding.devices.keys()).map(String::as_str).collect();
            let reusable = if wish.is_some() { self.reusable(resource) } else { BTreeSet::new() };
            let request = Request {
                devices: &known.devices,
                available: &self.available(resource),
                reusable: &reusable,
                held: &held,
                count: *count,
            };
            all.insert(resource.clone(), devices::hints(&request, self.topology.machine()));
        }
        all
    }

    fn choose(
        &mut self,
        wish: &Wish,
        resource: &str,
        count: usize,
        nodes: Option<NodeMask>,
    ) -> Result<(), Stop> {
        let Some(known) = self.ledger.resources.get(resource) else { return Ok(()) };
        if self.holding(&wish.container, resource).is_some() {
            return Ok(());
        }
        let (available, held) = (self.available(resource), BTreeSet::new());
        let reusable = self.reusable(resource);
        let request = Request {
            devices: &known.devices,
            available: &available,
            reusable: &reusable,
            held: &held,
            count,
        };
        let choice = Choice::begin(resource, &request, nodes)
            .map_err(|error| self.lacking(|name| name == resource, unexpected(error)))?;
        let mut preferred: &[String] = &[];
        if let Some(question) = choice.question().filter(|_| known.prefers) {
            let owned = |ids: &BTreeSet<&str>| ids.iter().map(|id| (*id).to_owned()).collect();
            let question = Question {
                resource: resource.to_owned(),
                available: owned(&question.available),
                must_include: owned(&question.must_include),
                size: question.size,
            };
            match self.answers.to(&question) {
                Some(answer) => preferred = answer,
                None => return Err(Box::new(Decision::Ask(question))),
            }
        }
        let chosen = choice.finish(preferred.iter().map(String::as_str));
        let devices =
            chosen.into_iter().map(|id| (id.to_owned(), known.devices.get(id).cloned().flatten())).collect();
        let key = (wish.container.clone(), resource.to_owned());
        self.new.insert(key, Holding { devices, response: None });
        Ok(())
    }

    /// What comes of too few devices: as long as some may yet become free, the pod waits.
    fn lacking(&self, is_it: impl Fn(&str) -> bool, refusal: Refused) -> Stop {
        let coming = |pod: &PodUid| !self.ledger.settled || self.ledger.ending.contains(pod);
        let others = self.ledger.held.iter().filter(|(pod, _)| **pod != self.wishes.pod && coming(pod));
        let mut awaited = others.flat_map(|(_, held)| held.keys()).filter(|(_, name)| is_it(name));
        Box::new(match awaited.next() {
            Some((_, resource)) => Decision::Wait(Lack::Busy { resource: resource.clone(), refusal }),
            None => Decision::Refused(refusal),
        })
    }

    fn misaligned(&self, error: TopologyAffinityError) -> Stop {
        let refusal =
            Refused { reason: TopologyAffinityError::REASON.to_owned(), message: error.to_string() };
        self.lacking(|name| self.wishes.whole.contains_key(name), refusal)
    }

    /// What an init container leaves is for those after it, until one of them keeps it.
    fn pass_on(&mut self, wish: &Wish) {
        for resource in wish.counts.keys() {
            let Some(holding) = self.holding(&wish.container, resource) else { continue };
            let ids: BTreeSet<String> = holding.devices.keys().cloned().collect();
            let left = self.reusable.entry(resource.clone()).or_default();
            if wish.kind == Kind::Init {
                left.extend(ids);
            } else {
                left.retain(|id| !ids.contains(id));
            }
        }
    }
}
