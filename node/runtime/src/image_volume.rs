//! Image volumes: an image's files, read-only, at a path of the container.

use podwire_wire::cri;

use crate::{core::Core, error::OpError, layered, spec::mounts::Resolved};

/// Finds the folder an image volume shows. Images of several layers would need a mount of their own and are refused.
pub(crate) fn resolve(core: &Core, wish: &cri::Mount) -> Result<Resolved, OpError> {
    let refuse = |why: String| OpError::Precondition { why: format!("ImageVolumeMountFailed: {why}") };
    let name = wish.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
    if !wish.readonly {
        return Err(OpError::invalid("an image volume must be read-only"));
    }
    let image =
        core.images.find(&name).ok_or_else(|| OpError::NotFound { what: "image", id: name.clone() })?;
    if image.layers.len() > 1 {
        return Err(refuse(format!(
            "image {name} has {} layers; volumes of several are not supported",
            image.layers.len()
        )));
    }
    let path = format!("/{}", wish.image_sub_path.trim_matches('/'));
    let found = layered::find(&image.layers, &path).map_err(|error| refuse(error.to_string()))?;
    let source = found.ok_or_else(|| refuse(format!("image {name} has no {path}")))?;
    let mut shown = wish.clone();
    if let Some(spec) = shown.image.as_mut() {
        spec.image_ref.clone_from(&image.id);
    }
    Ok(Resolved { wish: shown, source })
}
