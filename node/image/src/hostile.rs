//! The settings of registries and docker's credentials read with any contents, for fuzzing and for tests.

use std::path::Path;

use crate::pull::{self, RegistryConfig};

pub use crate::pull::Place;

/// The places to ask for `host` by the settings in `folder`, or why there are none. Must never panic.
pub fn places(folder: &Path, host: &str) -> Result<Vec<Place>, String> {
    let config = RegistryConfig { hosts_dir: Some(folder.to_owned()), ..RegistryConfig::default() };
    pull::places(&config, host).map_err(|error| error.to_string())
}

/// Whether docker's `config.json` has usable credentials for `host`. Must never panic.
pub fn has_credentials(config: &[u8], host: &str) -> bool {
    pull::has_credentials(config, host)
}
