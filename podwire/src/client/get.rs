//! `podwire get`: the server's Table as kubectl prints it, or the objects as YAML, JSON or names.

use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::{Value, json};

use super::{Session, all_of, objects, printer, request, resource};
use crate::cli::GetArgs;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// What `-o` takes.
const FORMS: [&str; 4] = ["json", "name", "wide", "yaml"];

/// Prints what the arguments name.
pub async fn get(args: &GetArgs, out: &mut dyn FnMut(&str)) -> Result<()> {
    if args.what.is_empty() {
        bail!("error: Required resource not specified; name one, as in `podwire get pods`");
    }
    if let Some(form) = args.output.as_deref().filter(|form| !FORMS.contains(form)) {
        bail!(
            "error: unable to match a printer suitable for the output format \"{form}\", allowed formats are: {}",
            FORMS.join(",")
        );
    }
    let session = Session::open(&args.to).await?;
    let targets = resource::targets(&session, &args.what).await?;
    if args.all_namespaces && targets.iter().any(|(_, names)| !names.is_empty()) {
        bail!("error: a resource cannot be retrieved by name across all namespaces");
    }
    if matches!(args.output.as_deref(), None | Some("wide")) {
        return tables(&session, args, targets, out).await;
    }
    print_objects(&session, args, &targets, out).await
}

fn shape(args: &GetArgs, namespaced: bool) -> printer::Shape {
    printer::Shape {
        wide: args.output.as_deref() == Some("wide"),
        namespaces: args.all_namespaces && namespaced,
        bare: args.no_headers,
        labels: args.show_labels,
    }
}

/// One table per type that has anything, an empty line between them.
async fn tables(
    session: &Session,
    args: &GetArgs,
    targets: Vec<(resource::Resource, Vec<String>)>,
    out: &mut dyn FnMut(&str),
) -> Result<()> {
    let several = targets.len() > 1;
    let (mut failures, mut printed) = (Vec::new(), false);
    for (resource, names) in &targets {
        let mut all = Value::Null;
        for path in paths(session, args, resource, names) {
            match session.send(Method::GET, &path, None, TABLE).await {
                Err(error) => failures.push(error),
                Ok(table) => match all["rows"].as_array_mut() {
                    Some(rows) => rows.extend(table["rows"].as_array().cloned().unwrap_or_default()),
                    None => all = table,
                },
            }
        }
        if all["rows"].as_array().is_some_and(|rows| !rows.is_empty()) {
            if printed && !args.no_headers {
                out("");
            }
            let prefix = if several { format!("{}/", resource.printed()) } else { String::new() };
            let text = printer::table(&all, shape(args, resource.is_namespaced()), &prefix);
            out(text.trim_end_matches('\n'));
            printed = true;
        }
        if args.watch && !several {
            let version = all["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
            return watch(session, args, resource, names, &version, out).await;
        }
    }
    if !printed && failures.is_empty() {
        let namespaced = targets.iter().any(|(resource, _)| resource.is_namespaced());
        crate::remark(&nothing(session, args, namespaced));
    }
    all_of(failures)
}

fn nothing(session: &Session, args: &GetArgs, namespaced: bool) -> String {
    if args.all_namespaces || !namespaced {
        "No resources found".to_owned()
    } else {
        format!("No resources found in {} namespace.", session.namespace)
    }
}

fn collection(session: &Session, args: &GetArgs, resource: &resource::Resource) -> String {
    resource.collection((!args.all_namespaces).then_some(session.namespace.as_str()))
}

fn paths(session: &Session, args: &GetArgs, resource: &resource::Resource, names: &[String]) -> Vec<String> {
    let collection = collection(session, args, resource);
    if !names.is_empty() {
        return names.iter().map(|name| format!("{collection}/{name}")).collect();
    }
    let selectors = [("labelSelector", &args.selector), ("fieldSelector", &args.field_selector)];
    let query: Vec<String> = selectors
        .into_iter()
        .filter_map(|(key, value)| value.as_ref().map(|value| format!("{key}={}", escape(value))))
        .collect();
    vec![if query.is_empty() { collection } else { format!("{collection}?{}", query.join("&")) }]
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
    names: &[String],
    version: &str,
    out: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut path = format!("{}?watch=true&resourceVersion={version}", collection(session, args, resource));
    if let [name] = names {
        path.push_str(&format!("&fieldSelector={}", escape(&format!("metadata.name={name}"))));
    }
    if let Some(selector) = &args.selector {
        path.push_str(&format!("&labelSelector={}", escape(selector)));
    }
    let mut lines = session.client.request_lines(request(Method::GET, &path, None, TABLE)?).await?;
    let bare = printer::Shape { bare: true, ..shape(args, resource.is_namespaced()) };
    let mut headed = args.no_headers;
    let mut definitions = Value::Null;
    while let Some(line) = lines.next().await.context("watch")? {
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
        out(printer::table(&whole, form, "").trim_end_matches('\n'));
    }
    Ok(())
}

/// Objects of every named type in one list, or the one object that was named.
async fn print_objects(
    session: &Session,
    args: &GetArgs,
    targets: &[(resource::Resource, Vec<String>)],
    out: &mut dyn FnMut(&str),
) -> Result<()> {
    let (mut items, mut failures, mut listed) = (Vec::new(), Vec::new(), false);
    for (resource, names) in targets {
        for path in paths(session, args, resource, names) {
            match session.get_json(&path).await {
                Err(error) => failures.push(error),
                Ok(mut answer) => match answer.get_mut("items") {
                    Some(Value::Array(list)) => {
                        listed = true;
                        let version = answer_version(resource);
                        for mut item in std::mem::take(list) {
                            item["apiVersion"] = Value::String(version.clone());
                            item["kind"] = Value::String(resource.kind.clone());
                            items.push((resource.printed(), item));
                        }
                    }
                    _ => items.push((resource.printed(), answer)),
                },
            }
        }
    }
    if args.output.as_deref() == Some("name") {
        for (printed, item) in &items {
            out(&format!("{printed}/{}", item["metadata"]["name"].as_str().unwrap_or_default()));
        }
        return all_of(failures);
    }
    let mut items: Vec<Value> = items.into_iter().map(|(_, item)| item).collect();
    items.iter_mut().for_each(objects::without_managed_fields);
    let nothing = items.is_empty() && !failures.is_empty();
    let asked: usize = targets.iter().map(|(_, names)| names.len()).sum();
    let shown = match items.len() {
        1 if !listed && asked == 1 => items.remove(0),
        _ => json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}),
    };
    if !nothing {
        let text = match args.output.as_deref() {
            Some("yaml") => objects::yaml(&shown)?,
            _ => objects::json(&shown)?,
        };
        out(text.trim_end_matches('\n'));
    }
    all_of(failures)
}

fn answer_version(resource: &resource::Resource) -> String {
    let base = resource.collection(None);
    let base = base.trim_end_matches(&format!("/{}", resource.plural));
    base.trim_start_matches("/apis/").trim_start_matches("/api/").to_owned()
}
