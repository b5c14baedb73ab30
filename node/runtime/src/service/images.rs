//! `runtime.v1.ImageService` over the image store.

use std::{collections::HashMap, pin::Pin};

use futures::Stream;
use podwire_image::{Auth, Image, ImageStore};
use podwire_wire::cri::{self, image_service_server::ImageService};
use tokio_util::task::TaskTracker;
use tonic::{Code, Request, Response, Status};

use crate::{
    error::{OpError, chain},
    host,
};

type Reply<T> = Result<Response<T>, Status>;

/// The service; clones share everything.
#[derive(Clone)]
pub(crate) struct Images {
    pub(crate) store: ImageStore,
    /// Where pulls go on when their caller leaves.
    pub(crate) tasks: TaskTracker,
}

impl Images {
    /// Asks the store off the async threads.
    async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ImageStore) -> Result<T, OpError> + Send + 'static,
    ) -> Result<T, OpError> {
        let store = self.store.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.map_err(OpError::failed("finish blocking work"))?
    }
}

/// An image in CRI's words.
fn view(image: &Image) -> cri::Image {
    let user = image.config.config().as_ref().and_then(|config| config.user().clone()).unwrap_or_default();
    let user = user.split(':').next().unwrap_or_default();
    let uid = user.parse::<i64>().ok().map(|value| cri::Int64Value { value });
    cri::Image {
        id: image.id.clone(),
        repo_tags: image.repo_tags.clone(),
        repo_digests: image.repo_digests.clone(),
        size: image.size,
        username: if uid.is_none() { user.to_owned() } else { String::new() },
        uid,
        spec: Some(cri::ImageSpec { image: image.id.clone(), ..Default::default() }),
        pinned: image.pinned,
    }
}

fn named(spec: Option<cri::ImageSpec>) -> Result<String, OpError> {
    spec.map(|spec| spec.image)
        .filter(|name| !name.is_empty())
        .ok_or_else(|| OpError::invalid("an image must be named"))
}

fn auth(requested: Option<cri::AuthConfig>) -> Auth {
    let Some(requested) = requested else { return Auth::default() };
    Auth {
        username: requested.username,
        password: requested.password,
        auth: requested.auth,
        server_address: requested.server_address,
        identity_token: requested.identity_token,
        registry_token: requested.registry_token,
    }
}

/// A failed pull in CRI's words: the kubelet reads some reasons off the beginning of the message.
fn refused(error: &podwire_image::Error) -> Status {
    use podwire_image::{Error, PullError};
    let text = chain(error);
    let (code, text) = match error.unshared() {
        Error::Pull(PullError::Unavailable { .. }) => {
            let at = text.find("RegistryUnavailable").unwrap_or_default();
            (Code::Unknown, text.get(at..).unwrap_or_default().to_owned())
        }
        Error::Pull(PullError::NotFound { .. }) | Error::NoPlatform { .. } => (Code::NotFound, text),
        Error::Pull(PullError::Denied { .. }) => (Code::PermissionDenied, text),
        Error::Pull(PullError::TooManyRequests { .. }) => (Code::ResourceExhausted, text),
        Error::InvalidReference { .. } | Error::InvalidDigest { .. } => (Code::InvalidArgument, text),
        Error::DigestMismatch { .. } | Error::SizeMismatch { .. } => (Code::DataLoss, text),
        _ => (Code::Unknown, format!("pull the image: {text}")),
    };
    Status::new(code, text)
}

#[tonic::async_trait]
impl ImageService for Images {
    async fn list_images(&self, request: Request<cri::ListImagesRequest>) -> Reply<cri::ListImagesResponse> {
        let requested = request.into_inner().filter.and_then(|filter| filter.image).map(|spec| spec.image);
        let images = self
            .ask(move |store| {
                Ok(match requested.filter(|name| !name.is_empty()) {
                    Some(name) => store.find(&name).iter().map(view).collect(),
                    None => store.list().iter().map(view).collect(),
                })
            })
            .await?;
        Ok(Response::new(cri::ListImagesResponse { images }))
    }

    type StreamImagesStream = Pin<Box<dyn Stream<Item = Result<cri::StreamImagesResponse, Status>> + Send>>;
    async fn stream_images(&self, _: Request<cri::StreamImagesRequest>) -> Reply<Self::StreamImagesStream> {
        Err(OpError::Unimplemented { what: "StreamImages" }.into())
    }

    async fn image_status(
        &self,
        request: Request<cri::ImageStatusRequest>,
    ) -> Reply<cri::ImageStatusResponse> {
        let request = request.into_inner();
        let name = named(request.image)?;
        let found = self.ask(move |store| Ok(store.find(&name))).await?;
        let mut info = HashMap::new();
        if let (true, Some(image)) = (request.verbose, &found) {
            let details = serde_json::json!({"imageSpec": image.config});
            info.insert("info".to_owned(), details.to_string());
        }
        Ok(Response::new(cri::ImageStatusResponse { image: found.as_ref().map(view), info }))
    }

    async fn pull_image(&self, request: Request<cri::PullImageRequest>) -> Reply<cri::PullImageResponse> {
        let request = request.into_inner();
        let name = named(request.image)?;
        let auth = auth(request.auth);
        let images = self.store.clone();
        // A pull outlives its caller: the retry finds its layers.
        let pulled = self.tasks.spawn(async move { images.pull(&name, auth, None).await }).await;
        let image =
            pulled.map_err(|_| Status::internal("the pull panicked"))?.map_err(|error| refused(&error))?;
        Ok(Response::new(cri::PullImageResponse { image_ref: image.id }))
    }

    async fn remove_image(
        &self,
        request: Request<cri::RemoveImageRequest>,
    ) -> Reply<cri::RemoveImageResponse> {
        let name = named(request.into_inner().image)?;
        self.ask(move |store| match store.find(&name) {
            Some(_) => store.remove(&name).map_err(OpError::failed("remove the image")),
            None => Ok(()),
        })
        .await?;
        Ok(Response::new(cri::RemoveImageResponse {}))
    }

    async fn image_fs_info(&self, _: Request<cri::ImageFsInfoRequest>) -> Reply<cri::ImageFsInfoResponse> {
        let usage =
            self.ask(|store| store.usage().map_err(OpError::failed("measure the image store"))).await?;
        let usage = cri::FilesystemUsage {
            timestamp: host::now(),
            fs_id: Some(cri::FilesystemIdentifier { mountpoint: usage.root.to_string_lossy().into_owned() }),
            used_bytes: Some(cri::UInt64Value { value: usage.bytes }),
            inodes_used: Some(cri::UInt64Value { value: usage.inodes }),
        };
        Ok(Response::new(cri::ImageFsInfoResponse {
            image_filesystems: vec![usage.clone()],
            container_filesystems: vec![usage],
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use podwire_image::{Error, PullError};

    #[test]
    fn a_failed_pull_says_what_a_kubelet_looks_for() {
        let down =
            Error::Pull(PullError::Unavailable { url: "https://r/v2".into(), reason: "refused".into() });
        let joined = Error::Joined(std::sync::Arc::new(down));
        let status = refused(&joined);
        assert!(status.message().starts_with("RegistryUnavailable: https://r/v2"), "{status}");
        let cases = [
            (Error::Pull(PullError::NotFound { what: "a".into() }), Code::NotFound),
            (
                Error::Pull(PullError::Denied { what: "a".into(), reason: "no".into() }),
                Code::PermissionDenied,
            ),
            (
                Error::Pull(PullError::TooManyRequests { what: "a".into(), reason: "no".into() }),
                Code::ResourceExhausted,
            ),
            (Error::InvalidReference { reference: "A".into(), reason: "case".into() }, Code::InvalidArgument),
        ];
        for (error, code) in cases {
            assert_eq!(refused(&error).code(), code, "{error}");
        }
    }
}
