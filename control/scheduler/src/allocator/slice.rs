//! ResourceSlices as the allocator reads them: once, when they come, so that no question reads them again.
//!
//! The objects: <https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/resource-slice-v1/>.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{
    Counter, Device as TypedDevice, DeviceAttribute, DeviceTaint, ResourceSlice,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use podwire_api::quantity::{Quantity, QuantityError};
use podwire_cel::device::{Attribute as CelAttribute, ReadDevice};

use super::capacity::{Capacity, Policy, Range};
use super::node::Placement;

/// A pool by its driver and its name. Pools are tried in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId {
    /// The driver.
    pub driver: Arc<str>,
    /// The name of the pool.
    pub pool: Arc<str>,
}

impl PoolId {
    /// A pool of a driver.
    pub fn new(driver: &str, pool: &str) -> PoolId {
        PoolId { driver: driver.into(), pool: pool.into() }
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.driver, self.pool)
    }
}

/// A device by its pool and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// The pool.
    pub pool: PoolId,
    /// The name of the device.
    pub device: Arc<str>,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.pool, self.device)
    }
}

/// A quantity, and the text that is stored for it.
#[derive(Clone, Debug)]
pub(super) struct Amount {
    pub(super) value: Quantity,
    pub(super) text: String,
}

impl Amount {
    pub(super) fn read(text: &QuantityText) -> Result<Amount, QuantityError> {
        Ok(Amount { value: Quantity::parse(&text.0)?, text: Quantity::stored(&text.0)?.into_owned() })
    }

    pub(super) fn of(value: Quantity) -> Amount {
        Amount { value, text: value.to_string() }
    }
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Attribute {
    String(String),
    Int(i64),
    Bool(bool),
    Version(String),
    /// A type of a later version: equal to nothing.
    Unknown,
}

impl Attribute {
    fn read(from: &DeviceAttribute) -> Attribute {
        if let Some(text) = &from.string {
            return Attribute::String(text.clone());
        }
        if let Some(number) = from.int {
            return Attribute::Int(number);
        }
        if let Some(value) = from.bool {
            return Attribute::Bool(value);
        }
        from.version.clone().map_or(Attribute::Unknown, Attribute::Version)
    }

    fn for_selectors(&self) -> CelAttribute<'_> {
        match self {
            Attribute::String(text) => CelAttribute::String(text),
            Attribute::Int(number) => CelAttribute::Int(*number),
            Attribute::Bool(value) => CelAttribute::Bool(*value),
            Attribute::Version(text) => CelAttribute::Version(text),
            Attribute::Unknown => CelAttribute::Unknown,
        }
    }
}

/// Counters by their names.
pub(super) type Counters = BTreeMap<String, Quantity>;

/// A device of a slice.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: Arc<str>,
    pub(super) attributes: BTreeMap<String, Attribute>,
    pub(super) capacity: BTreeMap<String, Capacity>,
    /// What it takes of each counter set.
    pub(super) consumes: Vec<(String, Counters)>,
    pub(super) placement: Placement,
    pub(super) taints: Vec<DeviceTaint>,
    pub(super) binds_to_node: bool,
    pub(super) binding_conditions: Option<Vec<String>>,
    pub(super) binding_failure_conditions: Option<Vec<String>>,
    /// Whether several claims may have it at once.
    pub(super) shareable: bool,
    /// For selectors.
    pub(super) read: ReadDevice,
}

/// A slice of a pool.
#[derive(Debug)]
pub struct Slice {
    pub(super) name: String,
    pub(super) pool: PoolId,
    pub(super) generation: i64,
    /// How many slices its generation of the pool has.
    pub(super) count: i64,
    pub(super) placement: Placement,
    /// Whether each device says for itself which nodes it is for.
    pub(super) per_device: bool,
    pub(super) devices: Vec<Device>,
    pub(super) counter_sets: Vec<(String, Counters)>,
    /// A quantity that cannot be read, which no server accepts: nothing of such a pool is given out.
    pub(super) unreadable: Option<String>,
}

impl Slice {
    /// Reads a slice.
    pub fn read(slice: &ResourceSlice) -> Slice {
        let spec = &slice.spec;
        let mut reader = Reader { driver: &spec.driver, unreadable: None };
        let sets = spec.shared_counters.iter().flatten();
        let counter_sets = sets.map(|set| (set.name.clone(), reader.counters(&set.counters))).collect();
        let devices = spec.devices.iter().flatten().map(|device| reader.device(device)).collect();
        Slice {
            name: slice.metadata.name.clone().unwrap_or_default(),
            pool: PoolId::new(&spec.driver, &spec.pool.name),
            generation: spec.pool.generation,
            count: spec.pool.resource_slice_count,
            placement: Placement::read(spec.node_name.as_ref(), spec.all_nodes, spec.node_selector.as_ref()),
            per_device: spec.per_device_node_selection.unwrap_or_default(),
            devices,
            counter_sets,
            unreadable: reader.unreadable,
        }
    }

    /// The one node whose business it is; a slice with counters is everybody's.
    pub(super) fn one_node(&self) -> Option<&str> {
        self.placement.one_node().filter(|_| self.counter_sets.is_empty())
    }
}

/// Reads the devices of a slice and remembers what it could not read.
struct Reader<'a> {
    driver: &'a str,
    unreadable: Option<String>,
}

impl Reader<'_> {
    fn amount(&mut self, text: &QuantityText) -> Amount {
        Amount::read(text).unwrap_or_else(|error| {
            self.unreadable = Some(format!("quantity {:?}: {error}", text.0));
            Amount::of(Quantity::ZERO)
        })
    }

    fn counters(&mut self, counters: &BTreeMap<String, Counter>) -> Counters {
        counters.iter().map(|(name, one)| (name.clone(), self.amount(&one.value).value)).collect()
    }

    fn device(&mut self, device: &TypedDevice) -> Device {
        let attributes = device.attributes.iter().flatten();
        let attributes: BTreeMap<String, Attribute> =
            attributes.map(|(name, one)| (name.clone(), Attribute::read(one))).collect();
        let shareable = device.allow_multiple_allocations.unwrap_or_default();
        let read = ReadDevice::new(
            self.driver,
            shareable,
            attributes.iter().map(|(name, one)| (name.as_str(), one.for_selectors())),
            device.capacity.iter().flatten().map(|(name, one)| (name.as_str(), one.value.0.as_str())),
        );
        let capacity = device.capacity.iter().flatten().map(|(name, one)| {
            let policy = one.request_policy.as_ref().map(|policy| Policy {
                default: policy.default.as_ref().map(|text| self.amount(text)),
                range: policy.valid_range.as_ref().map(|range| Range {
                    min: Some(&range.min).filter(|text| !text.0.is_empty()).map(|text| self.amount(text)),
                    max: range.max.as_ref().map(|text| self.amount(text)),
                    step: range.step.as_ref().map(|text| self.amount(text)),
                }),
                values: policy
                    .valid_values
                    .as_ref()
                    .map(|values| values.iter().map(|text| self.amount(text)).collect()),
            });
            (name.clone(), Capacity { value: self.amount(&one.value), policy })
        });
        let capacity = capacity.collect();
        let consumes = device.consumes_counters.iter().flatten();
        Device {
            name: device.name.as_str().into(),
            attributes,
            capacity,
            consumes: consumes.map(|one| (one.counter_set.clone(), self.counters(&one.counters))).collect(),
            placement: Placement::read(
                device.node_name.as_ref(),
                device.all_nodes,
                device.node_selector.as_ref(),
            ),
            taints: device.taints.clone().unwrap_or_default(),
            binds_to_node: device.binds_to_node.unwrap_or_default(),
            binding_conditions: device.binding_conditions.clone(),
            binding_failure_conditions: device.binding_failure_conditions.clone(),
            shareable,
            read,
        }
    }
}
