//! Sees that a container's image is on the node: pull policy, back-off, one pull per image at a time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use podwire_api::image::{ImageReference, is_latest};
use podwire_wire::cri;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::{
    clock, credentials,
    node::Node,
    restart::{self, Backoff},
    runtime::CallError,
    security::ImageUser,
    spec,
    status::Waiting,
};

/// An image that is there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// The runtime's id of it.
    pub(crate) id: String,
    /// Whom it runs as.
    pub(crate) user: ImageUser,
}

/// Why an image is not there.
#[derive(Debug)]
pub(crate) enum ImageError {
    /// The name is not one.
    InvalidName { image: String },
    /// The runtime could not say whether it has it.
    Inspect { image: String, message: String },
    /// The policy forbids pulling.
    NeverPull { image: String },
    /// The pull failed.
    Pull { message: String },
    /// An earlier pull failed and its wait is not over.
    BackOff { image: String, message: String, until: Timestamp },
    /// The pod no longer wants it.
    Cancelled,
}

impl ImageError {
    /// What the container's status shows.
    pub(crate) fn waiting(&self) -> Waiting {
        let (reason, message) = match self {
            ImageError::InvalidName { image } => (
                "InvalidImageName",
                format!(
                    "Failed to apply default image tag \"{image}\": couldn't parse image name \"{image}\": invalid reference format"
                ),
            ),
            ImageError::Inspect { image, message } => {
                ("ImageInspectError", format!("Failed to inspect image \"{image}\": {message}"))
            }
            ImageError::NeverPull { image } => (
                "ErrImageNeverPull",
                format!("Container image \"{image}\" is not present with pull policy of Never"),
            ),
            ImageError::Pull { message } => ("ErrImagePull", message.clone()),
            ImageError::BackOff { image, message, .. } => {
                ("ImagePullBackOff", format!("Back-off pulling image \"{image}\": ErrImagePull: {message}"))
            }
            ImageError::Cancelled => ("ContainerCreating", String::new()),
        };
        Waiting { reason: reason.to_owned(), message }
    }

    /// When trying again makes sense, if this error knows.
    pub(crate) fn retry_at(&self) -> Option<Timestamp> {
        match self {
            // A failed pull is followed at once by its back-off, which is what people look for.
            ImageError::Pull { .. } => clock::now().checked_add(Duration::from_secs(1)).ok(),
            ImageError::BackOff { until, .. } => Some(*until),
            ImageError::NeverPull { .. } | ImageError::InvalidName { .. } => {
                clock::now().checked_add(Duration::from_secs(30)).ok()
            }
            _ => None,
        }
    }
}

/// What tells one pull from another: the image, and a digest of everything that proves who asks for it.
type PullKey = (String, Option<[u8; 32]>);
type Pull = Shared<BoxFuture<'static, Result<String, CallError>>>;

/// Pulls under way and pulls that failed.
#[derive(Default)]
pub(crate) struct Images {
    pulls: Mutex<HashMap<PullKey, Pull>>,
    failed: Mutex<HashMap<(String, String), (Backoff, String)>>,
}

impl Images {
    /// The image of `container`, pulled if its policy says so.
    pub(crate) async fn ensure(
        &self,
        node: &Arc<Node>,
        pod: &Pod,
        container: &Container,
        cancel: &CancellationToken,
    ) -> Result<Found, ImageError> {
        let image = container.image.clone().unwrap_or_default();
        if ImageReference::parse(&image).is_err() {
            let error = ImageError::InvalidName { image };
            node.events.warning(pod, part(pod, container), "InspectFailed", &error.waiting().message);
            return Err(error);
        }
        let wanted = cri::ImageSpec { image: image.clone(), ..Default::default() };
        let present = node.runtime.image_status(wanted.clone()).await.map_err(|error| {
            let error = ImageError::Inspect { image: image.clone(), message: error.to_string() };
            node.events.warning(pod, part(pod, container), "InspectFailed", &error.waiting().message);
            error
        })?;
        let always = policy(container, &image) == "Always";
        match (present, policy(container, &image)) {
            (Some(found), _) if !always => {
                let text = format!(
                    "Container image \"{image}\" already present on machine and can be accessed by the pod"
                );
                node.events.normal(pod, part(pod, container), "Pulled", &text);
                Ok(found_image(found))
            }
            (None, "Never") => {
                let error = ImageError::NeverPull { image };
                node.events.warning(pod, part(pod, container), "ErrImageNeverPull", &error.waiting().message);
                Err(error)
            }
            _ => tokio::select! {
                () = cancel.cancelled() => Err(ImageError::Cancelled),
                result = self.pull(node, pod, container, wanted) => result,
            },
        }
    }

    async fn pull(
        &self,
        node: &Arc<Node>,
        pod: &Pod,
        container: &Container,
        wanted: cri::ImageSpec,
    ) -> Result<Found, ImageError> {
        let image = wanted.image.clone();
        let backoff_key = (spec::uid(pod).to_owned(), image.clone());
        self.respect_backoff(node, pod, container, &backoff_key)?;
        node.events.normal(pod, part(pod, container), "Pulling", &format!("Pulling image \"{image}\""));
        let began = tokio::time::Instant::now();
        let auth = credentials::lookup(node, pod, &image).await;
        let pulled = self
            .shared(&image, auth.as_ref(), || {
                let runtime = node.runtime.for_pod(&spec::PodRef::of(pod));
                let (wanted, auth) = (wanted.clone(), auth.clone());
                async move { runtime.pull_image(wanted, auth, None).await }.boxed()
            })
            .await;
        match pulled {
            Ok(_) => {
                self.failed.lock().expect("no holder panics").remove(&backoff_key);
                let took = began.elapsed();
                let found = node.runtime.image_status(wanted).await.ok().flatten().unwrap_or_default();
                let text = format!(
                    "Successfully pulled image \"{image}\" in {:.3}s ({:.3}s including waiting). Image size: {} bytes.",
                    took.as_secs_f64(),
                    took.as_secs_f64(),
                    found.size
                );
                node.events.normal(pod, part(pod, container), "Pulled", &text);
                Ok(found_image(found))
            }
            Err(error) => {
                let message = format!("failed to pull image \"{image}\": {error}");
                node.events.warning(
                    pod,
                    part(pod, container),
                    "Failed",
                    &format!("Failed to pull image \"{image}\": {error}"),
                );
                node.events.warning(pod, part(pod, container), "Failed", "Error: ErrImagePull");
                let mut failed = self.failed.lock().expect("no holder panics");
                let old = failed.get(&backoff_key).map(|(backoff, _)| backoff.clone());
                let raised = Backoff::raise(old.as_ref(), restart::CAP, clock::now());
                failed.insert(backoff_key, (raised, message.clone()));
                Err(ImageError::Pull { message })
            }
        }
    }

    fn respect_backoff(
        &self,
        node: &Arc<Node>,
        pod: &Pod,
        container: &Container,
        key: &(String, String),
    ) -> Result<(), ImageError> {
        let failed = self.failed.lock().expect("no holder panics").get(key).cloned();
        let Some((backoff, message)) = failed else { return Ok(()) };
        let until = backoff.until(0);
        if until <= clock::now() {
            return Ok(());
        }
        let image = key.1.clone();
        node.events.normal(
            pod,
            part(pod, container),
            "BackOff",
            &format!("Back-off pulling image \"{image}\""),
        );
        node.events.warning(pod, part(pod, container), "Failed", "Error: ImagePullBackOff");
        Err(ImageError::BackOff { image, message, until })
    }

    /// Joins a pull of the same image with the same credentials that is under way, or begins one.
    fn shared(
        &self,
        image: &str,
        auth: Option<&cri::AuthConfig>,
        begin: impl FnOnce() -> BoxFuture<'static, Result<String, CallError>>,
    ) -> Pull {
        let key = (image.to_owned(), auth.map(digest));
        let mut pulls = self.pulls.lock().expect("no holder panics");
        if let Some(pull) =
            pulls.get(&key).filter(|pull| pull.peek().is_none() && pull.strong_count() > Some(1))
        {
            return pull.clone();
        }
        let pull = begin().shared();
        pulls.retain(|_, old| old.peek().is_none());
        pulls.insert(key, pull.clone());
        pull
    }

    /// Forgets failures of a pod that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.failed.lock().expect("no holder panics").retain(|(of, _), _| of != uid);
    }
}

/// Tells credentials apart without keeping them: a wrong password must not ride on somebody else's pull.
fn digest(auth: &cri::AuthConfig) -> [u8; 32] {
    let cri::AuthConfig { username, password, auth, server_address, identity_token, registry_token } = auth;
    let mut hash = Sha256::new();
    for field in [username, password, auth, server_address, identity_token, registry_token] {
        hash.update((field.len() as u64).to_le_bytes());
        hash.update(field.as_bytes());
    }
    hash.finalize().into()
}

fn part<'a>(pod: &Pod, container: &'a Container) -> Option<(spec::Kind, &'a str)> {
    spec::find_container(pod, &container.name).map(|(kind, _)| (kind, container.name.as_str()))
}

fn found_image(image: cri::Image) -> Found {
    let user = ImageUser { uid: image.uid.map(|v| v.value), name: image.username };
    Found { id: image.id, user }
}

/// The pull policy with its default: `Always` for the tag `latest` or none.
pub(crate) fn policy<'a>(container: &'a Container, image: &str) -> &'a str {
    match container.image_pull_policy.as_deref() {
        Some(policy) if !policy.is_empty() => policy,
        _ if is_latest(image) => "Always",
        _ => "IfNotPresent",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_is_shared_only_with_who_has_the_same_credentials() {
        let images = Images::default();
        let begun = std::cell::Cell::new(0);
        let pull = |auth: Option<&cri::AuthConfig>| {
            images.shared("reg.example/app:1", auth, || {
                begun.set(begun.get() + 1);
                futures::future::pending().boxed()
            })
        };
        let auth = |password: &str| cri::AuthConfig {
            username: "robot".into(),
            password: password.into(),
            server_address: "reg.example".into(),
            ..Default::default()
        };
        let held = [pull(Some(&auth("right"))), pull(Some(&auth("right")))];
        assert_eq!(begun.get(), 1, "the same credentials share one pull");
        let others = [
            pull(Some(&auth("wrong"))),
            pull(None),
            pull(Some(&cri::AuthConfig { identity_token: "t".into(), ..auth("right") })),
        ];
        assert_eq!(begun.get(), 4, "nobody rides on the credentials of another");
        drop((held, others));
    }

    #[test]
    fn the_tag_latest_is_pulled_always() {
        let container = Container::default();
        assert_eq!(policy(&container, "reg:5000/app"), "Always");
        assert_eq!(policy(&container, "reg:5000/app:latest"), "Always");
        assert_eq!(policy(&container, "reg:5000/app:1"), "IfNotPresent");
        assert_eq!(policy(&container, "app@sha256:00"), "IfNotPresent");
    }
}
