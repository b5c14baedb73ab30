//! `podwire get`: the server's Table as kubectl prints it, or the objects as YAML, JSON or names.

use anyhow::{Context, Result, bail};
use futures::{AsyncBufReadExt, TryStreamExt};
use http::Method;
use serde_json::{Value, json};

use super::{Session, printer, request, resource};
use crate::cli::GetArgs;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Prints what the arguments name.
pub async fn get(args: &GetArgs, out: &mut dyn FnMut(&str)) -> Result<()> {
    let session = Session::open(&args.to).await?;
    let targets = resource::targets(&session, &args.what).await?;
    let several = targets.len() > 1;
    for (at, (resource, names)) in targets.into_iter().enumerate() {
        if at > 0 {
            out("");
        }
        let scope = (!args.all_namespaces).then_some(session.namespace.as_str());
        let collection = resource.collection(scope);
        match args.output.as_deref() {
            None | Some("wide") => {
                print_table(&session, args, &resource, &collection, &names, several, out).await?
            }
            Some("yaml" | "json" | "name") => {
                print_objects(&session, args, &resource, &collection, &names, out).await?
            }
            Some(other) => bail!(
                "error: unable to match a printer suitable for the output format \"{other}\", allowed formats are: json,name,wide,yaml"
            ),
        }
    }
    Ok(())
}

fn shape(args: &GetArgs, namespaced: bool) -> printer::Shape {
    printer::Shape {
        wide: args.output.as_deref() == Some("wide"),
        namespaces: args.all_namespaces && namespaced,
        bare: args.no_headers,
    }
}

async fn print_table(
    session: &Session,
    args: &GetArgs,
    resource: &resource::Resource,
    collection: &str,
    names: &[String],
    several: bool,
    out: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut all = Value::Null;
    for path in paths(collection, names, args.selector.as_deref()) {
        let table = session.send(Method::GET, &path, None, TABLE).await?;
        match all["rows"].as_array_mut() {
            Some(rows) => rows.extend(table["rows"].as_array().cloned().unwrap_or_default()),
            None => all = table,
        }
    }
    let rows = all["rows"].as_array().map_or(0, Vec::len);
    if rows > 0 {
        out(printer::table(&all, shape(args, resource.is_namespaced())).trim_end_matches('\n'));
    } else if !args.watch && !several {
        out(&nothing(session, args, resource));
    }
    if args.watch {
        let version = all["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
        watch(session, args, resource, collection, names, &version, out).await?;
    }
    Ok(())
}

fn nothing(session: &Session, args: &GetArgs, resource: &resource::Resource) -> String {
    if args.all_namespaces || !resource.is_namespaced() {
        "No resources found".to_owned()
    } else {
        format!("No resources found in {} namespace.", session.namespace)
    }
}

fn paths(collection: &str, names: &[String], selector: Option<&str>) -> Vec<String> {
    if names.is_empty() {
        return vec![match selector {
            Some(selector) => format!("{collection}?labelSelector={}", escape(selector)),
            None => collection.to_owned(),
        }];
    }
    names.iter().map(|name| format!("{collection}/{name}")).collect()
}

/// Percent-encodes a query value.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte))
            }
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

async fn watch(
    session: &Session,
    args: &GetArgs,
    resource: &resource::Resource,
    collection: &str,
    names: &[String],
    version: &str,
    out: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut path = format!("{collection}?watch=true&resourceVersion={version}");
    if let [name] = names {
        path.push_str(&format!("&fieldSelector={}", escape(&format!("metadata.name={name}"))));
    }
    if let Some(selector) = &args.selector {
        path.push_str(&format!("&labelSelector={}", escape(selector)));
    }
    let stream = session.client.request_stream(request(Method::GET, &path, None, TABLE)?).await?;
    let stream = std::pin::pin!(stream);
    let mut lines = stream.lines();
    let bare = printer::Shape { bare: true, ..shape(args, resource.is_namespaced()) };
    let mut headed = args.no_headers;
    let mut definitions = Value::Null;
    while let Some(line) = lines.try_next().await.context("watch")? {
        let mut event: Value = serde_json::from_str(&line).context("read watch event")?;
        if event["type"] == "ERROR" {
            bail!("error: {}", event["object"]["message"].as_str().unwrap_or("watch ended"));
        }
        let table = event["object"].take();
        if table["columnDefinitions"].is_array() && definitions.is_null() {
            definitions = table["columnDefinitions"].clone();
        }
        let whole = json!({"columnDefinitions": definitions, "rows": table["rows"]});
        if table["rows"].as_array().is_none_or(Vec::is_empty) {
            continue;
        }
        let form = if headed { bare } else { printer::Shape { bare: false, ..bare } };
        headed = true;
        out(printer::table(&whole, form).trim_end_matches('\n'));
    }
    Ok(())
}

async fn print_objects(
    session: &Session,
    args: &GetArgs,
    resource: &resource::Resource,
    collection: &str,
    names: &[String],
    out: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut items = Vec::new();
    let mut single = None;
    for path in paths(collection, names, args.selector.as_deref()) {
        let mut answer = session.get_json(&path).await?;
        match answer.get_mut("items") {
            Some(Value::Array(list)) => {
                let version = answer_version(resource);
                for mut item in std::mem::take(list) {
                    item["apiVersion"] = Value::String(version.clone());
                    item["kind"] = Value::String(resource.kind.clone());
                    items.push(item);
                }
            }
            _ => {
                single = Some(answer.clone());
                items.push(answer);
            }
        }
    }
    if args.output.as_deref() == Some("name") {
        for item in &items {
            out(&format!("{}/{}", resource.printed(), item["metadata"]["name"].as_str().unwrap_or_default()));
        }
        return Ok(());
    }
    let shown = match single {
        Some(object) if items.len() == 1 => object,
        _ => json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}),
    };
    let text = match args.output.as_deref() {
        Some("yaml") => serde_yaml_ng::to_string(&shown)?,
        _ => serde_json::to_string_pretty(&shown)?,
    };
    out(text.trim_end_matches('\n'));
    Ok(())
}

fn answer_version(resource: &resource::Resource) -> String {
    let base = resource.collection(None);
    let base = base.trim_end_matches(&format!("/{}", resource.plural));
    base.trim_start_matches("/apis/").trim_start_matches("/api/").to_owned()
}
