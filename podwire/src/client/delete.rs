//! `podwire delete`: asks for deletion and waits until the objects are gone.

use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::{Value, json};

use super::{
    Session, all_of,
    get::escape,
    is_not_found, manifest, request,
    resource::{self, Resource},
};
use crate::cli::DeleteArgs;

/// Deletes what files, names or a selector say; one line each, in kubectl's words.
pub async fn delete(args: &DeleteArgs, out: &mut dyn FnMut(&str)) -> Result<()> {
    let session = Session::open(&args.to).await?;
    let mut doomed = Vec::new();
    if !args.filename.is_empty() {
        for (_, object) in manifest::read(&args.filename)? {
            let resource = resource::of_object(&session, &object).await?;
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or(&session.namespace).to_owned();
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            doomed.push((resource, namespace, name));
        }
    }
    if !args.what.is_empty() {
        for (resource, names) in resource::targets(&session, &args.what).await? {
            let names = if names.is_empty() { selected(&session, args, &resource).await? } else { names };
            doomed.extend(names.into_iter().map(|name| (resource.clone(), session.namespace.clone(), name)));
        }
    }
    if doomed.is_empty() && args.filename.is_empty() && args.what.is_empty() {
        bail!("error: You must provide one or more resources by argument or filename.");
    }
    if doomed.is_empty() {
        out("No resources found");
    }
    if args.force && args.grace_period == Some(0) {
        crate::remark(
            "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. The resource may continue to run on the cluster indefinitely.",
        );
    }
    let mut waiting = Vec::new();
    let mut failures = Vec::new();
    for (resource, namespace, name) in &doomed {
        match delete_one(&session, args, resource, namespace, name, out).await {
            Ok(Some(uid)) => waiting.push((resource, namespace, name, uid)),
            Ok(None) => {}
            Err(error) => failures.push(error),
        }
    }
    if args.wait {
        for (resource, namespace, name, uid) in waiting {
            until_gone(&session, resource, namespace, name, &uid).await?;
        }
    }
    all_of(failures)
}

async fn selected(session: &Session, args: &DeleteArgs, resource: &Resource) -> Result<Vec<String>> {
    if !args.all && args.selector.is_none() {
        bail!("error: resource(s) were provided, but no name was specified");
    }
    let mut path = resource.collection(Some(&session.namespace));
    if let Some(selector) = &args.selector {
        path.push_str(&format!("?labelSelector={}", escape(selector)));
    }
    let list = session.get_json(&path).await?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.iter().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

/// Sends the DELETE; the object's uid when it was there.
async fn delete_one(
    session: &Session,
    args: &DeleteArgs,
    resource: &Resource,
    namespace: &str,
    name: &str,
    out: &mut dyn FnMut(&str),
) -> Result<Option<String>> {
    let item = format!("{}/{name}", resource.collection(Some(namespace)));
    let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    let asked = if args.now { Some(1) } else { args.grace_period };
    // Zero is only for those who say that they mean it; kubectl waits a second otherwise.
    let asked = if asked == Some(0) && !args.force { Some(1) } else { asked };
    if let Some(seconds) = asked.filter(|seconds| *seconds >= 0) {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    let body = ("application/json", serde_json::to_vec(&options)?);
    match session.send(Method::DELETE, &item, Some(body), "application/json").await {
        Ok(answer) => {
            let place =
                if resource.is_namespaced() { format!(" from {namespace} namespace") } else { String::new() };
            let word = if args.force && args.grace_period == Some(0) { "force deleted" } else { "deleted" };
            out(&match args.output {
                Some(_) => format!("{}/{name}", resource.printed()),
                None => format!("{} \"{name}\" {word}{place}", resource.printed()),
            });
            let uid = answer["metadata"]["uid"].as_str().or(answer["details"]["uid"].as_str());
            Ok(Some(uid.unwrap_or_default().to_owned()))
        }
        Err(error) if args.ignore_not_found && is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns when the object with `uid` no longer exists, by a watch.
async fn until_gone(
    session: &Session,
    resource: &Resource,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<()> {
    let collection = resource.collection(Some(namespace));
    let selector = escape(&format!("metadata.name={name}"));
    let list = session.get_json(&format!("{collection}?fieldSelector={selector}")).await?;
    let same = |object: &Value| uid.is_empty() || object["metadata"]["uid"].as_str() == Some(uid);
    if !list["items"].as_array().is_some_and(|items| items.iter().any(same)) {
        return Ok(());
    }
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or("0");
    let path = format!("{collection}?watch=true&fieldSelector={selector}&resourceVersion={version}");
    let mut lines =
        session.client.request_lines(request(Method::GET, &path, None, "application/json")?).await?;
    while let Some(line) = lines.next().await.context("watch")? {
        let event: Value = serde_json::from_str(&line).context("read watch event")?;
        if event["type"] == "DELETED" && same(&event["object"]) {
            return Ok(());
        }
    }
    bail!("error: the watch ended before {name:?} was gone")
}
