//! The client verbs: kubectl's words for a machine without kubectl.
//!
//! They speak plain HTTP requests over `podwire_client::Client`, so that what the server answers (Table, Status)
//! is printed as it came and nothing is decoded into types that drop fields.

mod apply;
mod delete;
mod exec;
mod explain;
mod get;
mod logs;
mod manifest;
mod objects;
mod pod;
mod printer;
mod resource;

pub use self::{
    apply::apply, delete::delete, exec::exec, explain::explain, explain::read_configuration, get::get,
    logs::logs, printer::columns,
};

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use http::{Method, Request};
use serde_json::Value;

use crate::{cli::Connection, instance::Instance};

/// A connection to a cluster and the namespace that a bare name means.
pub struct Session {
    client: podwire_client::Client,
    namespace: String,
}

/// A request that the server answered with a Status.
#[derive(Debug)]
struct Refused {
    reason: String,
    message: String,
    /// What was being done, for verbs that say so (`error when creating "pod.yaml": `).
    during: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // An object that breaks rules is named first, without the server's part in it.
        if self.reason == "Invalid" {
            return write!(f, "The {}", self.message);
        }
        write!(f, "Error from server ({}): {}{}", self.reason, self.during, self.message)
    }
}

impl std::error::Error for Refused {}

/// True when the server said that the object is not there.
fn is_not_found(error: &anyhow::Error) -> bool {
    is_refused(error, "NotFound")
}

fn is_refused(error: &anyhow::Error, reason: &str) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.reason == reason)
}

impl Session {
    /// Connects with the credentials that the flags name, `$KUBECONFIG`, or the local node's.
    pub async fn open(to: &Connection) -> Result<Session> {
        let path = kubeconfig_path(to)?;
        let config = podwire_client::Config::read(&path).with_context(|| {
            format!("read kubeconfig {path:?}; is the node up? start it with `podwire up`")
        })?;
        let namespace = to.namespace.clone().unwrap_or_else(|| config.namespace.clone());
        let client = podwire_client::Client::connect(config).await.context("set up the connection")?;
        Ok(Session { client, namespace })
    }

    /// Sends one request and returns the answer's JSON; a refusal is an error in kubectl's words.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
        accept: &str,
    ) -> Result<Value> {
        let request = request(method, path, body, accept)?;
        match self.client.request(request).await {
            Ok(value) => Ok(value),
            Err(error) => Err(refusal(error)),
        }
    }

    /// The namespace that a bare name means.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The JSON of an object.
    pub async fn get_json(&self, path: &str) -> Result<Value> {
        self.send(Method::GET, path, None, "application/json").await
    }
}

fn request(
    method: Method,
    path: &str,
    body: Option<(&str, Vec<u8>)>,
    accept: &str,
) -> Result<Request<Vec<u8>>> {
    let mut builder = Request::builder().method(method).uri(path).header("accept", accept);
    if let Some((kind, _)) = &body {
        builder = builder.header("content-type", *kind);
    }
    builder.body(body.map(|(_, bytes)| bytes).unwrap_or_default()).context("build request")
}

fn refusal(error: podwire_client::Error) -> anyhow::Error {
    match error {
        podwire_client::Error::Api(status) => {
            Refused { reason: status.reason.clone(), message: status.message.clone(), during: String::new() }
                .into()
        }
        other => unanswered(&other),
    }
}

/// Nobody answered: the innermost reason, and what to do about it.
fn unanswered(error: &podwire_client::Error) -> anyhow::Error {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    anyhow!(
        "error: the API server did not answer: {cause}; is the node up? start it with `podwire up`, or name another with --kubeconfig"
    )
}

/// The same refusal with what was being done.
fn during(error: anyhow::Error, what: &str) -> anyhow::Error {
    match error.downcast::<Refused>() {
        Ok(refused) => Refused { during: format!("{what}: "), ..refused }.into(),
        Err(error) => error,
    }
}

/// Failures of several objects in one: each on its line; none is no failure.
fn all_of(failures: Vec<anyhow::Error>) -> Result<()> {
    if failures.is_empty() {
        return Ok(());
    }
    let words: Vec<String> = failures.iter().map(|error| format!("{error:#}")).collect();
    bail!("{}", words.join("\n"))
}

#[allow(clippy::disallowed_methods)] // The composition root may read the environment.
fn kubeconfig_path(to: &Connection) -> Result<PathBuf> {
    if let Some(path) = &to.kubeconfig {
        return Ok(path.clone());
    }
    let own = Instance::at(&to.data.data_dir)?.kubeconfig();
    match std::env::var("KUBECONFIG") {
        Ok(path) if !path.is_empty() && !own.exists() => Ok(path.into()),
        _ if own.exists() => Ok(own),
        _ => bail!(
            "error: no cluster to talk to: {own:?} does not exist; start a node with `podwire up`, or name credentials with --kubeconfig or $KUBECONFIG"
        ),
    }
}

/// `podwire version`.
pub async fn version(to: &Connection) -> Result<String> {
    let mut text = format!("Client Version: v{}\n", env!("CARGO_PKG_VERSION"));
    let session = Session::open(to).await?;
    let server = session.get_json("/version").await?;
    let Some(version) = server["gitVersion"].as_str() else { bail!("the server told no version") };
    text.push_str(&format!("Server Version: {version}\n"));
    Ok(text)
}
