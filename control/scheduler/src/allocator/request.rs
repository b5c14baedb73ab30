//! Step 2: what is asked for, read once for all nodes: requests with their classes, selectors and constraints.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{
    CapacityRequirements, DeviceClass, DeviceRequest, DeviceSelector, DeviceToleration, ResourceClaim,
};

use super::capacity::Amounts;
use super::constraint::Constraint;
use super::error::{At, Error, NotFound, Origin};
use super::selectors::{Compiled, Selectors};
use super::slice::Amount;

/// DeviceClasses by their names.
pub type Classes = HashMap<String, Arc<DeviceClass>>;

/// The claims of a pod that have to be allocated.
#[derive(Debug)]
pub struct Wanted<'a> {
    pub(super) claims: Vec<WantedClaim<'a>>,
    /// How many alternatives there are in all.
    pub(super) slots: usize,
}

#[derive(Debug)]
pub(super) struct WantedClaim<'a> {
    pub(super) claim: &'a ResourceClaim,
    /// Namespace and name.
    pub(super) name: String,
    pub(super) requests: Vec<Request<'a>>,
    pub(super) constraints: Result<Vec<Constraint<'a>>, Error>,
}

/// A request: one alternative, or several of which the first possible one is taken.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) name: &'a str,
    pub(super) is_list: bool,
    pub(super) alternatives: Vec<Want<'a>>,
}

/// How many devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Exact(i64),
    All,
}

/// What is asked of each device of a request.
#[derive(Debug)]
pub(super) struct Want<'a> {
    /// Its place among all alternatives.
    pub(super) slot: usize,
    /// The name of the request or subrequest.
    pub(super) name: &'a str,
    /// As results name it: `request` or `request/subrequest`.
    pub(super) full_name: String,
    pub(super) class: Option<&'a DeviceClass>,
    pub(super) mode: Mode,
    pub(super) admin_access: bool,
    pub(super) tolerations: Option<&'a Vec<DeviceToleration>>,
    pub(super) capacity: Amounts,
    /// Those of the class first.
    pub(super) selectors: Vec<WantedSelector>,
    /// Why it makes no sense.
    pub(super) refused: Option<Error>,
}

/// A selector of a class or a request.
#[derive(Debug)]
pub(super) struct WantedSelector {
    pub(super) of_class: bool,
    pub(super) index: usize,
    pub(super) compiled: Arc<Compiled>,
}

/// The fields that requests and subrequests have in common.
struct Fields<'a> {
    name: &'a str,
    class: &'a str,
    mode: &'a str,
    count: i64,
    admin_access: bool,
    selectors: &'a [DeviceSelector],
    tolerations: Option<&'a Vec<DeviceToleration>>,
    capacity: Option<&'a CapacityRequirements>,
}

impl<'a> Wanted<'a> {
    /// Reads claims. What is wrong with them is told when they are allocated.
    pub fn read(claims: &[&'a ResourceClaim], classes: &'a Classes, selectors: &Selectors) -> Wanted<'a> {
        let mut slots = 0;
        let claims = claims.iter().map(|claim| {
            let meta = &claim.metadata;
            let own = meta.name.as_deref().unwrap_or_default();
            let name = match meta.namespace.as_deref() {
                Some(namespace) if !namespace.is_empty() => format!("{namespace}/{own}"),
                _ => own.to_owned(),
            };
            let requests = claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten());
            let requests = requests
                .map(|request| {
                    let all = fields(request).into_iter();
                    let list = request.first_available.as_ref().is_some_and(|list| !list.is_empty());
                    let alternatives = all.map(|one| {
                        slots += 1;
                        let full_name = match list {
                            true => format!("{}/{}", request.name, one.name),
                            false => one.name.to_owned(),
                        };
                        want(&one, full_name, slots - 1, &name, classes, selectors)
                    });
                    Request { name: &request.name, is_list: list, alternatives: alternatives.collect() }
                })
                .collect();
            let constraints = claim.spec.devices.iter().flat_map(|all| all.constraints.iter().flatten());
            let constraints = constraints.enumerate().map(|(index, from)| {
                Constraint::read(from).ok_or_else(|| Error::EmptyConstraint { claim: name.clone(), index })
            });
            let constraints = constraints.collect();
            WantedClaim { claim, name, requests, constraints }
        });
        let claims = claims.collect();
        Wanted { claims, slots }
    }
}

impl WantedClaim<'_> {
    pub(super) fn at(&self, want: &Want<'_>) -> At {
        At { claim: self.name.clone(), request: want.name.to_owned() }
    }

    pub(super) fn origin(&self, want: &Want<'_>, selector: &WantedSelector) -> Origin {
        match want.class.filter(|_| selector.of_class) {
            Some(class) => Origin::Class(class.metadata.name.clone().unwrap_or_default()),
            None => Origin::Claim(self.name.clone()),
        }
    }
}

fn fields(request: &DeviceRequest) -> Vec<Fields<'_>> {
    let list = request.first_available.as_deref().unwrap_or_default();
    if !list.is_empty() {
        let read = list.iter().map(|one| Fields {
            name: &one.name,
            class: &one.device_class_name,
            mode: one.allocation_mode.as_deref().unwrap_or_default(),
            count: one.count.unwrap_or_default(),
            admin_access: false,
            selectors: one.selectors.as_deref().unwrap_or_default(),
            tolerations: one.tolerations.as_ref(),
            capacity: one.capacity.as_ref(),
        });
        return read.collect();
    }
    let exactly = request.exactly.as_ref();
    vec![Fields {
        name: &request.name,
        class: exactly.map_or("", |one| &one.device_class_name),
        mode: exactly.and_then(|one| one.allocation_mode.as_deref()).unwrap_or_default(),
        count: exactly.and_then(|one| one.count).unwrap_or_default(),
        admin_access: exactly.and_then(|one| one.admin_access).unwrap_or_default(),
        selectors: exactly.and_then(|one| one.selectors.as_deref()).unwrap_or_default(),
        tolerations: exactly.and_then(|one| one.tolerations.as_ref()),
        capacity: exactly.and_then(|one| one.capacity.as_ref()),
    }]
}

fn want<'a>(
    fields: &Fields<'a>,
    full_name: String,
    slot: usize,
    claim: &str,
    classes: &'a Classes,
    cache: &Selectors,
) -> Want<'a> {
    let mut want = Want {
        slot,
        name: fields.name,
        full_name,
        class: classes.get(fields.class).map(Arc::as_ref),
        mode: Mode::Exact(fields.count),
        admin_access: fields.admin_access,
        tolerations: fields.tolerations,
        capacity: Amounts::new(),
        selectors: Vec::new(),
        refused: None,
    };
    want.refused = complete(&mut want, fields, claim, cache).err();
    want
}

/// Fills in what may be wrong, and finds it in upstream's order.
fn complete(want: &mut Want<'_>, fields: &Fields<'_>, claim: &str, cache: &Selectors) -> Result<(), Error> {
    let at = || At { claim: claim.to_owned(), request: fields.name.to_owned() };
    let compiled = |of_class: bool, from: &[DeviceSelector]| {
        let each = from.iter().enumerate().map(|(index, selector)| {
            let cel = selector.cel.as_ref().ok_or_else(|| Error::EmptySelector { at: at(), index })?;
            Ok(WantedSelector { of_class, index, compiled: cache.get(&cel.expression) })
        });
        each.collect::<Result<Vec<_>, Error>>()
    };
    let own = compiled(false, fields.selectors)?;
    if fields.class.is_empty() {
        return Err(Error::NoClassName(at()));
    }
    let Some(class) = want.class else {
        let class = fields.class.to_owned();
        return Err(Error::NoClass { at: at(), source: NotFound(class.clone()), class });
    };
    want.selectors = compiled(true, class.spec.selectors.as_deref().unwrap_or_default())?;
    want.selectors.extend(own);
    want.mode = match fields.mode {
        "ExactCount" => Mode::Exact(fields.count),
        "All" => Mode::All,
        mode => return Err(Error::Mode { at: at(), mode: mode.to_owned() }),
    };
    for (name, amount) in fields.capacity.iter().flat_map(|all| all.requests.iter().flatten()) {
        let amount = Amount::read(amount).map_err(|_| Error::Amount { at: at(), capacity: name.clone() })?;
        want.capacity.insert(name.clone(), amount);
    }
    Ok(())
}
