//! Why nothing can be allocated at all: what is asked for or offered makes no sense. The texts are upstream's.

use std::sync::Arc;

use podwire_cel::EvalError;
use podwire_cel::device::SelectorError;

use super::slice::{DeviceId, PoolId};

/// Whose selector it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Origin {
    /// A class's.
    #[error("class {0}")]
    Class(String),
    /// A claim's.
    #[error("claim {0}")]
    Claim(String),
}

/// A request of a claim, as errors name it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("claim {claim}, request {request}")]
pub struct At {
    /// Namespace and name of the claim.
    pub claim: String,
    /// The name of the request, or of the subrequest.
    pub request: String,
}

/// Why claims cannot be allocated, whichever devices are free.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The node selector of a slice cannot be read.
    #[error(
        "gather pool information: failed to perform node selection for slice {slice}: failed to parse node selector"
    )]
    SliceNodes {
        /// The slice.
        slice: String,
    },
    /// The node selector of a device cannot be read.
    #[error(
        "gather pool information: failed to perform node selection for device {device} in slice {slice}: failed to parse node selector"
    )]
    DeviceNodes {
        /// The slice.
        slice: String,
        /// The device.
        device: String,
    },
    /// The node selector of a device that is wanted cannot be read.
    #[error("failed to parse node selector")]
    WantedDeviceNodes {
        /// The device.
        device: DeviceId,
    },
    /// A selector is of a kind that is not known.
    #[error("{at}, selector #{index}: CEL expression empty (unsupported selector type?)")]
    EmptySelector {
        /// The request.
        at: At,
        /// Its place.
        index: usize,
    },
    /// A request is of a kind that is not known.
    #[error("{0}: missing device class name (unsupported request type?)")]
    NoClassName(At),
    /// There is no such class.
    #[error("{at}: could not retrieve device class {class}")]
    NoClass {
        /// The request.
        at: At,
        /// The class.
        class: String,
        /// As the API server would say it.
        source: NotFound,
    },
    /// An amount of a capacity cannot be read.
    #[error("{at}: unreadable amount of capacity {capacity}")]
    Amount {
        /// The request.
        at: At,
        /// The capacity.
        capacity: String,
    },
    /// An allocation mode is not known.
    #[error("{at}: unsupported count mode {mode}")]
    Mode {
        /// The request.
        at: At,
        /// The mode.
        mode: String,
    },
    /// All devices are asked for while a pool has not all of its slices.
    #[error("{at}: asks for all devices, but resource pool {pool} is currently being updated")]
    PoolUpdated {
        /// The request.
        at: At,
        /// The pool.
        pool: PoolId,
    },
    /// All devices are asked for while a pool makes no sense.
    #[error("{at}: asks for all devices, but resource pool {pool} is currently invalid")]
    PoolInvalid {
        /// The request.
        at: At,
        /// The pool.
        pool: PoolId,
    },
    /// More devices are asked for than a claim can have.
    #[error("claim {claim}: number of requested devices {count} exceeds the claim limit of {most}")]
    TooMany {
        /// The claim.
        claim: String,
        /// How many.
        count: i64,
        /// The limit.
        most: i64,
    },
    /// A constraint is of a kind that is not known.
    #[error("claim {claim}, constraint #{index}: empty constraint (unsupported constraint type?)")]
    EmptyConstraint {
        /// The claim.
        claim: String,
        /// Its place.
        index: usize,
    },
    /// A selector does not compile.
    #[error("{origin}: selector #{index}: CEL compile error")]
    Compile {
        /// Whose it is.
        origin: Origin,
        /// Its place.
        index: usize,
        /// What is wrong with it.
        source: Arc<SelectorError>,
    },
    /// A selector has no answer for a device.
    #[error("{origin}: selector #{index}: CEL runtime error")]
    Evaluate {
        /// Whose it is.
        origin: Origin,
        /// Its place.
        index: usize,
        /// What went wrong.
        source: EvalError,
    },
    /// All devices are asked for, and a constraint stands against one of them.
    #[error("{at}: cannot add device {device} because a claim constraint would not be satisfied")]
    Constraint {
        /// The request.
        at: At,
        /// The device.
        device: DeviceId,
    },
    /// Whichever alternative is taken, there would be too many devices.
    #[error("allocation max size exceeded")]
    ResultsExceeded,
    /// A slice selects nodes in a way that no result can say.
    #[error(
        "create NodeSelector for claim {claim}: unsupported ResourceSlice.NodeSelector with {count} terms"
    )]
    NodeTerms {
        /// The name of the claim.
        claim: String,
        /// How many terms there are.
        count: usize,
    },
    /// Nothing was found, and there are pools that make no sense.
    #[error("invalid resource pools were encountered")]
    InvalidPools,
    /// It took too long.
    #[error("filter operation aborted")]
    Aborted,
}

/// An object that is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deviceclass.resource.k8s.io {0:?} not found")]
pub struct NotFound(pub String);

impl Error {
    /// Whether another node may do.
    pub fn is_about_this_node(&self) -> bool {
        matches!(self, Error::InvalidPools)
    }
}
