//! A repository with all its endpoints: documents and blobs, from whichever endpoint has them.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Limited};

use super::client::{Ask, Client};
use super::{Auth, PullError, RegistryConfig, hosts, verified};
use crate::digest::Digest;
use crate::error::Error;
use crate::manifest::{DOCKER_LIST, DOCKER_MANIFEST, Descriptor, LARGEST_DOCUMENT, OCI_INDEX, OCI_MANIFEST};
use crate::pipe::Writer;
use crate::reference::Reference;

const MANIFESTS: &[&str] = &[OCI_INDEX, DOCKER_LIST, OCI_MANIFEST, DOCKER_MANIFEST];

/// One repository.
pub(super) struct Registry {
    clients: Vec<Client>,
    reference: Reference,
    attempts: u32,
    backoff: Duration,
    patience: Duration,
}

impl Registry {
    /// The repository of `reference`; nothing is sent yet.
    pub(super) fn new(
        reference: &Reference,
        config: &RegistryConfig,
        auth: &Auth,
    ) -> Result<Self, PullError> {
        let endpoints = hosts::endpoints(config, reference.domain())?;
        let last = endpoints.len().saturating_sub(1);
        let clients = endpoints
            .into_iter()
            .enumerate()
            .map(|(at, endpoint)| {
                // A mirror that is down should not hold up the pull for long.
                let attempts = if at == last { config.attempts } else { config.attempts.min(2) };
                Client::new(endpoint, config, auth, reference.path(), attempts)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            clients,
            reference: reference.clone(),
            attempts: config.attempts.max(1),
            backoff: config.backoff,
            patience: config.stall_timeout,
        })
    }

    pub(super) fn endpoints(&self) -> usize {
        self.clients.len()
    }

    /// A manifest or index by tag or digest, its digest verified if one is given.
    pub(super) async fn manifest(&self, target: &str, expected: Option<&Digest>) -> Result<Vec<u8>, Error> {
        let path = format!("/{}/manifests/{target}", self.reference.path());
        self.document(&path, MANIFESTS, expected, &self.reference.to_string()).await
    }

    /// A small blob, verified.
    pub(super) async fn blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>, Error> {
        let path = self.blob_path(&descriptor.digest);
        self.document(&path, &["*/*"], Some(&descriptor.digest), &descriptor.digest.to_string()).await
    }

    fn blob_path(&self, digest: &Digest) -> String {
        format!("/{}/blobs/{digest}", self.reference.path())
    }

    async fn document(
        &self,
        path: &str,
        accept: &[&str],
        expected: Option<&Digest>,
        what: &str,
    ) -> Result<Vec<u8>, Error> {
        let mut last = None;
        for client in &self.clients {
            if expected.is_none() && !client.resolves() {
                continue;
            }
            match self.document_from(client, path, accept, expected, what).await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => {
                    tracing::debug!(error = %podwire_trace::chain(&error), "endpoint did not deliver; trying the next");
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| {
            let reason = "no endpoint may resolve tags".to_owned();
            PullError::Settings { host: self.reference.domain().to_owned(), reason }.into()
        }))
    }

    async fn document_from(
        &self,
        client: &Client,
        path: &str,
        accept: &[&str],
        expected: Option<&Digest>,
        what: &str,
    ) -> Result<Vec<u8>, Error> {
        let limit = usize::try_from(LARGEST_DOCUMENT).unwrap_or(usize::MAX);
        let mut attempt = 1;
        loop {
            let response = client.get(&Ask { path: path.to_owned(), accept, from: 0, what }).await?;
            let body = Limited::new(response.into_body(), limit).collect();
            let reason = match tokio::time::timeout(self.patience, body).await {
                Ok(Ok(bytes)) => {
                    let bytes = bytes.to_bytes().to_vec();
                    if let Some(expected) = expected {
                        verified(what, &bytes, expected)?;
                    }
                    return Ok(bytes);
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the answer stalled".to_owned(),
            };
            if attempt >= self.attempts {
                return Err(PullError::Unavailable { url: path.to_owned(), reason }.into());
            }
            tokio::time::sleep(self.backoff * attempt).await;
            attempt += 1;
        }
    }

    /// Downloads a blob from the endpoint `at` into `writer`, going on where a broken connection
    /// stopped. `received` hears of each chunk. Ends early if the reading side gave up.
    pub(super) async fn download(
        &self,
        at: usize,
        descriptor: &Descriptor,
        writer: &Writer,
        received: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<(), Error> {
        let what = format!("blob {}", descriptor.digest);
        let mut done = 0;
        let mut failures = 0;
        while done < descriptor.size {
            let ask =
                Ask { path: self.blob_path(&descriptor.digest), accept: &["*/*"], from: done, what: &what };
            let response = self.clients[at].get(&ask).await?;
            // A server may ignore the range and start over.
            let skip = if response.status() == StatusCode::PARTIAL_CONTENT { 0 } else { done };
            let before = done;
            let mut body = response.into_body();
            match self.pump(&mut body, skip, &mut done, descriptor, writer, received).await? {
                Pumped::ReaderGone => return Ok(()),
                Pumped::Ended if done == descriptor.size => {}
                ended => {
                    failures = if done > before { 1 } else { failures + 1 };
                    let reason = match ended {
                        Pumped::Broken(reason) => reason,
                        _ => format!("only {done} of {} bytes came", descriptor.size),
                    };
                    tracing::debug!(blob = %descriptor.digest, done, reason, "download broke off");
                    if failures >= self.attempts {
                        return Err(PullError::Unavailable { url: what, reason }.into());
                    }
                    tokio::time::sleep(self.backoff * failures).await;
                }
            }
        }
        Ok(())
    }

    async fn pump(
        &self,
        body: &mut hyper::body::Incoming,
        mut skip: u64,
        done: &mut u64,
        descriptor: &Descriptor,
        writer: &Writer,
        received: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Pumped, Error> {
        loop {
            let frame = match tokio::time::timeout(self.patience, body.frame()).await {
                Ok(None) => return Ok(Pumped::Ended),
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Ok(Pumped::Broken(podwire_trace::chain(&error))),
                Err(_) => return Ok(Pumped::Broken("the download stalled".to_owned())),
            };
            let Ok(mut chunk) = frame.into_data() else { continue };
            let passed = usize::try_from(skip).unwrap_or(usize::MAX).min(chunk.len());
            drop::<Bytes>(chunk.split_to(passed));
            skip -= passed as u64;
            let length = chunk.len() as u64;
            *done += length;
            if *done > descriptor.size {
                return Err(Error::SizeMismatch {
                    what: format!("blob {}", descriptor.digest),
                    expected: descriptor.size,
                    actual: *done,
                });
            }
            received(length);
            if !chunk.is_empty() && !writer.send(chunk).await {
                return Ok(Pumped::ReaderGone);
            }
        }
    }
}

/// How a response's body ended.
enum Pumped {
    Ended,
    Broken(String),
    ReaderGone,
}
