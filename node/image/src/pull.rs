//! Pulls from registries (OCI distribution protocol).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::error::Error;
use crate::record::Image;
use crate::store::ImageStore;

/// How registries are reached.
#[derive(Clone, Debug, Default)]
pub struct RegistryConfig {}

/// Credentials for one pull, as CRI's AuthConfig gives them; empty fields are not used.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Auth {
    /// For basic authentication, with `password`.
    pub username: String,
    /// For basic authentication.
    pub password: String,
    /// `base64(username:password)`, instead of the two above.
    pub auth: String,
    /// The registry the credentials are for; any other registry does not get them.
    pub server_address: String,
    /// A refresh token to be traded for a bearer token.
    pub identity_token: String,
    /// A bearer token to be sent as it is.
    pub registry_token: String,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").field("server_address", &self.server_address).finish_non_exhaustive()
    }
}

/// What a pull has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes received of all layers.
    pub received: u64,
    /// Bytes of all layers that are not in the store yet.
    pub total: u64,
    /// Layers done.
    pub layers_done: usize,
    /// Layers in the image.
    pub layers: usize,
}

/// Hears how a pull goes, from several threads.
pub type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// Pulls that are under way.
#[derive(Default)]
pub(crate) struct PullFlights(
    #[expect(dead_code, reason = "filled by the registry client")] Mutex<HashMap<String, ()>>,
);

/// Why a registry did not deliver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// No registry could be reached.
    #[error(
        "RegistryUnavailable: pulling {reference:?} is not possible: this build has no registry client yet"
    )]
    NoClient {
        /// The image.
        reference: String,
    },
}

impl ImageStore {
    /// Pulls an image for this platform, or joins the same pull if it is under way.
    pub async fn pull(
        &self,
        reference: &str,
        _auth: Auth,
        _progress: Option<OnProgress>,
    ) -> Result<Image, Error> {
        Err(PullError::NoClient { reference: reference.to_owned() }.into())
    }
}
