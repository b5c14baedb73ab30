//! Has drivers prepare a pod's claims: everything is checked before anything is touched, and all drivers work at once.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    sync::Arc,
    time::Duration,
};

use futures::future::{join_all, try_join_all};
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use podwire_wire::dra_v1;

use super::{
    Busy, Claims,
    book::{BookError, Device, Todo, Turn, Wanted},
    driver::AwayError,
    resolve::{self, Named, ResolveError},
    traced::drawn,
};
use crate::{
    api::ApiError,
    runtime::CallError,
    spec::{self, PodRef},
};

/// How long the API server may take to tell a claim.
const FETCH: Duration = Duration::from_secs(10);
/// More devices of a claim, and more ids of a device, are no pod's; longer words are no ids.
const MOST: usize = 4096;
const LONGEST: usize = 4096;

/// Why a pod does not have its claims. The sentences are upstream's where it has one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    /// The pod may not have them.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The API server refused or did not answer.
    #[error("fetch ResourceClaim {claim}: {}", .error.message())]
    Fetch { claim: String, error: ApiError },
    /// The API server did not answer in time.
    #[error("fetch ResourceClaim {claim}: no answer in time")]
    Late { claim: String },
    /// The API server answered something else.
    #[error("fetch ResourceClaim {claim}: {error}")]
    Parse { claim: String, error: serde_json::Error },
    /// The driver is not there.
    #[error(transparent)]
    Away(#[from] AwayError),
    /// Another claim stands in the way.
    #[error(transparent)]
    Book(#[from] BookError),
    /// The driver failed or did not answer.
    #[error("NodePrepareResources: {error}")]
    Call { error: CallError },
    /// The driver's answer cannot be used.
    #[error("{why}")]
    Answer { why: String },
    /// It could not be written down.
    #[error("checkpoint ResourceClaim state: {0}")]
    Checkpoint(io::Error),
}

/// What the claims' drivers are asked for together.
pub(super) type Batches = BTreeMap<String, Vec<Todo>>;

pub(super) fn batches(todo: &[Todo]) -> Batches {
    let mut all = Batches::new();
    for one in todo {
        for driver in &one.drivers {
            all.entry(driver.clone()).or_default().push(one.clone());
        }
    }
    all
}

pub(super) fn on_the_wire(todo: &[Todo]) -> Vec<dra_v1::Claim> {
    let claim = |Todo { key: (namespace, name), uid, .. }: &Todo| dra_v1::Claim {
        namespace: namespace.clone(),
        uid: uid.clone(),
        name: name.clone(),
    };
    todo.iter().map(claim).collect()
}

/// The names as arrows show them.
pub(super) fn names(todo: &[Todo]) -> String {
    let names: Vec<&str> = todo.iter().map(|one| one.key.1.as_str()).collect();
    names.join(",")
}

/// One answer for each claim, and none for others.
pub(super) fn complete<'a, T>(
    call: &str,
    todo: &'a [Todo],
    answers: &'a HashMap<String, T>,
    error: impl Fn(&T) -> &str,
) -> Result<Vec<(&'a Todo, &'a T)>, String> {
    if let Some(uid) = answers.keys().find(|uid| todo.iter().all(|one| one.uid != **uid)) {
        return Err(format!("{call} returned result for unknown claim UID {uid}"));
    }
    let mut all = Vec::new();
    for one in todo {
        let Some(answer) = answers.get(&one.uid) else { continue };
        match error(answer) {
            "" => all.push((one, answer)),
            why => return Err(format!("{call} failed for ResourceClaim {}: {why}", one.key.1)),
        }
    }
    match todo.len() - all.len() {
        0 => Ok(all),
        skipped => Err(format!("{call} skipped {skipped} ResourceClaims")),
    }
}

impl Claims {
    /// Has the pod's claims prepared, unless they are. Not cancel safe, but it may be dropped when the pod ends: whatever
    /// drivers were asked for is in the book by then.
    pub(crate) async fn prepare(self: &Arc<Self>, pod: &Pod) -> Result<(), PrepareError> {
        if !resolve::any(pod) {
            return Ok(());
        }
        let reference = PodRef::of(pod);
        let mut drivers = BTreeSet::new();
        let result = self.prepare_all(pod, &reference, &mut drivers).await;
        let mut state = self.state();
        match &result {
            Ok(()) => state.stalled.remove(&reference.uid),
            Err(_) => state.stalled.insert(reference.uid, drivers),
        };
        result
    }

    async fn prepare_all(
        self: &Arc<Self>,
        pod: &Pod,
        reference: &PodRef,
        drivers: &mut BTreeSet<String>,
    ) -> Result<(), PrepareError> {
        let named = resolve::named(pod)?;
        let wanted = try_join_all(named.iter().map(|one| self.fetch(pod, reference, one))).await?;
        drivers.extend(wanted.iter().flat_map(|want| want.drivers.iter().cloned()));
        // A driver that comes from here on is worth another attempt.
        self.state().stalled.insert(reference.uid.clone(), drivers.clone());
        for driver in drivers.iter() {
            self.driver(driver)?;
        }
        let (changed, todo) = self.turn(&wanted, reference).await?;
        if todo.is_empty() && !changed {
            return Ok(());
        }
        let busy = Busy { claims: self, keys: todo.iter().map(|one| one.key.clone()).collect() };
        // From here on somebody must ask the drivers to undo it, whatever becomes of this kubelet.
        self.save().await.map_err(PrepareError::Checkpoint)?;
        if todo.is_empty() {
            return Ok(());
        }
        let batches = batches(&todo);
        let asked = join_all(batches.iter().map(|(driver, todo)| self.ask(reference, driver, todo))).await;
        let failed = asked.into_iter().find_map(Result::err);
        if failed.is_none() {
            let mut state = self.state();
            busy.keys.iter().for_each(|key| state.book.prepared(key));
        }
        // What some drivers said is kept though others failed.
        let saved = self.save().await;
        if let Err(error) = saved {
            let mut state = self.state();
            busy.keys.iter().for_each(|key| state.book.doubted(key));
            return Err(failed.unwrap_or(PrepareError::Checkpoint(error)));
        }
        failed.map_or(Ok(()), Err)
    }

    /// Waits until nobody else has drivers at work on the same claims, and takes them.
    async fn turn(&self, wanted: &[Wanted], pod: &PodRef) -> Result<(bool, Vec<Todo>), PrepareError> {
        let mut freed = self.freed.subscribe();
        loop {
            freed.mark_unchanged();
            let turn = self.state().book.take(&pod.uid, wanted)?;
            match turn {
                Turn::Go { changed, todo } => return Ok((changed, todo)),
                // Ignored: the sender is our own, so it does not go.
                Turn::Wait => drop(freed.changed().await),
            }
        }
    }

    /// The claim as it is now.
    async fn fetch(&self, pod: &Pod, reference: &PodRef, named: &Named) -> Result<Wanted, PrepareError> {
        let own = || named.name.clone();
        let namespace = resolve::pod_namespace(pod);
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{}", named.name);
        let answer = tokio::time::timeout(FETCH, self.api.get_for(reference, &path)).await;
        let object = answer
            .map_err(|_| PrepareError::Late { claim: own() })?
            .map_err(|error| PrepareError::Fetch { claim: own(), error })?;
        let claim: ResourceClaim =
            serde_json::from_value(object).map_err(|error| PrepareError::Parse { claim: own(), error })?;
        Ok(resolve::check(pod, named, &claim)?)
    }

    /// Has one driver prepare its claims.
    async fn ask(&self, pod: &PodRef, driver: &str, todo: &[Todo]) -> Result<(), PrepareError> {
        const CALL: &str = "NodePrepareResources";
        let asked = self.driver(driver)?;
        let call = asked.prepare(on_the_wire(todo), self.settings.deadline);
        let reply = |answer: &dra_v1::NodePrepareResourcesResponse| {
            let devices = answer.claims.values().flat_map(|claim| &claim.devices);
            let names: Vec<&str> = devices.map(|device| device.device_name.as_str()).collect();
            names.join(",")
        };
        let answer = drawn(Some(pod), driver, CALL, &names(todo), call, reply).await;
        let answer = answer.map_err(|error| PrepareError::Call { error })?;
        let unusable = |why| PrepareError::Answer { why };
        let all = complete(CALL, todo, &answer.claims, |claim| &claim.error).map_err(unusable)?;
        for (one, claim) in &all {
            check(&claim.devices)
                .map_err(|why| unusable(format!("{CALL} failed for ResourceClaim {}: {why}", one.key.1)))?;
        }
        let mut state = self.state();
        for (one, claim) in all {
            let devices = claim.devices.iter().cloned().map(Device::from).collect();
            state.book.prepared_by(&one.key, driver, devices);
        }
        Ok(())
    }

    /// NRI plugins that the pod's sandbox cannot do without, as they are the drivers of its claims.
    pub(crate) fn nri_plugins(&self, pod: &Pod) -> Vec<String> {
        let state = self.state();
        let drivers = state.book.of(spec::uid(pod)).flat_map(|entry| entry.drivers.keys());
        let mut all: Vec<String> =
            drivers.filter(|driver| self.settings.nri_drivers.contains(driver)).cloned().collect();
        all.sort();
        all.dedup();
        all
    }
}

impl From<dra_v1::Device> for Device {
    fn from(device: dra_v1::Device) -> Device {
        Device {
            pool: device.pool_name,
            name: device.device_name,
            share: device.share_id,
            requests: device.request_names,
            cdi_ids: device.cdi_device_ids,
        }
    }
}

/// Whether what a driver gives can be told to a runtime and written down; if not, why.
fn check(devices: &[dra_v1::Device]) -> Result<(), String> {
    let many =
        |device: &dra_v1::Device| device.cdi_device_ids.len() > MOST || device.request_names.len() > MOST;
    if devices.len() > MOST || devices.iter().any(many) {
        return Err(format!("it gives more than {MOST} of one thing"));
    }
    let names = |device: &dra_v1::Device| {
        let own = [device.pool_name.len(), device.device_name.len()].into_iter();
        own.chain(device.request_names.iter().map(String::len)).max()
    };
    if devices.iter().filter_map(names).any(|length| length > LONGEST) {
        return Err(format!("a name is longer than {LONGEST} bytes"));
    }
    let odd = |id: &&String| id.is_empty() || id.len() > LONGEST || id.contains(|c: char| c.is_control());
    match devices.iter().flat_map(|device| &device.cdi_device_ids).find(odd) {
        Some(id) => {
            Err(format!("{:?} is not the id of a CDI device", id.chars().take(64).collect::<String>()))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_runtime_could_be_told_is_refused() {
        let with = |ids: &[&str]| dra_v1::Device {
            cdi_device_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            ..Default::default()
        };
        assert_eq!(check(&[with(&["v/c=a"]), with(&[])]), Ok(()));
        assert!(check(&[with(&[""])]).is_err());
        assert!(check(&[with(&["a\nb"])]).is_err());
        assert!(check(&[with(&[&"x".repeat(LONGEST + 1)])]).is_err());
        assert!(check(&vec![with(&[]); MOST + 1]).is_err());
        assert!(check(&[with(&vec!["v/c=a"; MOST + 1])]).is_err());
        assert!(
            check(&[dra_v1::Device { pool_name: "x".repeat(LONGEST + 1), ..Default::default() }]).is_err()
        );
    }
}
