//! Finds the images of a docker archive (`docker save`).

use serde::Deserialize;

use super::source::Source;
use super::{Found, FoundLayer, document};
use crate::error::Error;
use crate::manifest::OCI_LAYER;
use crate::reference::Reference;

/// One entry of `manifest.json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Option<Vec<String>>,
}

/// The images that `manifest.json` lists.
pub(super) fn find(source: &Source) -> Result<Vec<Found>, Error> {
    let bytes = document(source, "manifest.json", None)?;
    let saved: Vec<Saved> =
        serde_json::from_slice(&bytes).map_err(|error| source.bad(format!("manifest.json: {error}")))?;
    if saved.is_empty() {
        return Err(source.bad("manifest.json lists no image".to_owned()));
    }
    saved.into_iter().map(|saved| one(source, saved)).collect()
}

fn one(source: &Source, saved: Saved) -> Result<Found, Error> {
    let config = document(source, &saved.config, None)?;
    let layers = saved.layers.unwrap_or_default();
    let layers = layers
        .into_iter()
        .map(|name| FoundLayer { name, media_type: OCI_LAYER.to_owned(), blob: None })
        .collect();
    let tags = saved.repo_tags.unwrap_or_default();
    let tags = tags.iter().map(|tag| tag.parse::<Reference>()).collect::<Result<Vec<_>, Error>>()?;
    Ok(Found { config, manifest: None, layers, tags })
}
