//! One device for one request: what stands against it, and what choosing it takes.

use k8s_openapi::api::resource::v1::{DeviceTaint, DeviceToleration};
use podwire_api::quantity::Quantity;

use super::capacity;
use super::error::Error;
use super::miss::Miss;
use super::request::Want;
use super::search::{Goal, Place, Search};

/// A device that was chosen.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) place: Place,
    pub(super) request: usize,
    pub(super) alternative: usize,
    /// What it takes, if it is a share.
    pub(super) share: Option<capacity::Amounts>,
    /// Whether its counters were charged: the first share of a device pays for all.
    charged: bool,
}

impl<'s> Search<'s> {
    /// Chooses a device unless something stands against it. `must` says that no other one will do.
    pub(super) fn choose(&mut self, goal: Goal, place: Place, must: bool) -> Result<bool, Error> {
        let wanted = self.wanted;
        let claim = &wanted.claims[goal.claim];
        let want = &claim.requests[goal.request].alternatives[goal.alternative];
        let (_, device) = self.device(place);
        let barred =
            must && !(want.admin_access && device.shareable) && self.is_barred(want, goal.claim, place);
        if barred {
            let device = self.id(place);
            self.note(want, || Miss::InUse { device });
            return Ok(false);
        }
        let paid = device.shareable && self.is_shared(place);
        let charged = !paid && !device.consumes.is_empty();
        if charged && !self.charge(want, place) {
            return Ok(false);
        }
        if let Some(taint) = untolerated(&device.taints, want) {
            let id = self.id(place);
            self.note(want, || Miss::Taint {
                device: id,
                key: taint.key.clone(),
                effect: taint.effect.clone(),
            });
            self.uncharge(charged, place);
            return Ok(false);
        }
        if !self.constrain(goal, place, want) {
            self.uncharge(charged, place);
            return match must {
                // A claim that cannot have all devices together can never have them.
                true => Err(Error::Constraint { at: claim.at(want), device: self.id(place) }),
                false => Ok(false),
            };
        }
        // Where devices are chosen from, this was asked before.
        if must && !self.has_capacity(want, place) {
            self.unconstrain(goal, usize::MAX);
            self.uncharge(charged, place);
            return Ok(false);
        }
        let share = device.shareable.then(|| capacity::consumed(device, &want.capacity));
        match &share {
            Some(amounts) => self.shares.push((place, amounts.clone())),
            None => self.chosen.push((place, goal.claim)),
        }
        let Goal { claim, request, alternative, .. } = goal;
        self.given[claim].push(Given { place, request, alternative, share, charged });
        Ok(true)
    }

    /// Undoes the last choice, in reverse order.
    pub(super) fn put_back(&mut self, goal: Goal, place: Place) {
        let given = self.given[goal.claim].pop();
        let given = given.expect("whatever is put back was chosen last");
        match given.share {
            Some(_) => drop(self.shares.pop()),
            None => drop(self.chosen.pop()),
        }
        self.unconstrain(goal, usize::MAX);
        self.uncharge(given.charged, place);
    }

    /// Whether somebody has a share of a device and says what it takes.
    fn is_shared(&self, place: Place) -> bool {
        self.taken_of(place).is_some_and(|taken| taken.is_consumed())
            || self.shares.iter().any(|(other, _)| *other == place)
    }

    /// Takes of the counters what a device needs, if that much is left. A counter that is short, though the device takes nothing
    /// of it, bars all devices of the pool that take of any.
    fn charge(&mut self, want: &Want<'_>, place: Place) -> bool {
        let left = self.left(place.0);
        let pool = &self.pools[place.0];
        let charged = &mut self.charged[place.0];
        if charged.is_empty() {
            charged.resize(left.len(), Quantity::ZERO);
        }
        for (counter, amount) in pool.charges(self.pools[place.0].device(place.1).1) {
            charged[counter] = charged[counter].plus(&amount);
        }
        let Some(short) = left.iter().zip(&*charged).position(|(left, charged)| left < charged) else {
            return true;
        };
        self.uncharge(true, place);
        if self.misses.is_some() {
            let named = pool.counters.iter().find_map(|(set, names)| {
                let name = names.iter().find(|(_, place)| **place == short)?.0;
                Some((set.clone(), name.clone()))
            });
            let ((set, counter), device) = (named.unwrap_or_default(), self.id(place));
            self.note(want, || Miss::Counter { device, set, counter });
        }
        false
    }

    fn uncharge(&mut self, charged: bool, place: Place) {
        if !charged {
            return;
        }
        let pool = &self.pools[place.0];
        for (counter, amount) in pool.charges(pool.device(place.1).1) {
            let sum = &mut self.charged[place.0][counter];
            *sum = sum.minus(&amount);
        }
    }

    /// Adds a device to all constraints of its claim, or to none.
    fn constrain(&mut self, goal: Goal, place: Place, want: &Want<'_>) -> bool {
        let (spot, driver) = (self.spot(goal), &self.pools[place.0].id.driver);
        let (_, device) = self.device(place);
        let constraints = &mut self.constraints[goal.claim];
        let Some(index) = constraints.iter_mut().position(|one| !one.add(spot, driver, device)) else {
            return true;
        };
        if self.misses.is_some() {
            let against = &self.constraints[goal.claim][index];
            let miss = Miss::Constraint {
                device: self.id(place),
                index,
                rule: against.rule,
                attribute: against.attribute.to_owned(),
                told: against.is_told(driver, device),
            };
            self.note(want, || miss);
        }
        self.unconstrain(goal, index);
        false
    }

    /// Removes the last device from the first `count` constraints.
    fn unconstrain(&mut self, goal: Goal, count: usize) {
        let spot = self.spot(goal);
        for constraint in self.constraints[goal.claim].iter_mut().take(count).rev() {
            constraint.remove(spot);
        }
    }
}

/// A taint that keeps the request away.
fn untolerated<'a>(taints: &'a [DeviceTaint], want: &Want<'_>) -> Option<&'a DeviceTaint> {
    let keeps_away = |taint: &&DeviceTaint| taint.effect == "NoSchedule" || taint.effect == "NoExecute";
    let tolerations = || want.tolerations.into_iter().flatten();
    taints.iter().filter(keeps_away).find(|taint| !tolerations().any(|one| tolerates(one, taint)))
}

fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let fits = |wanted: &Option<String>, found: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == found)
    };
    fits(&toleration.effect, &taint.effect)
        && fits(&toleration.key, &taint.key)
        && match toleration.operator.as_deref() {
            None | Some("" | "Equal") => text(&toleration.value) == text(&taint.value),
            Some("Exists") => true,
            Some(_) => false,
        }
}
