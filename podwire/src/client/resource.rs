//! From what a user types (`pods`, `po`, `deploy/web`) to the API's path, by the server's own discovery.

use anyhow::{Result, bail};
use serde_json::Value;

use super::Session;

/// One resource type as the server offers it.
#[derive(Debug, Clone)]
pub struct Resource {
    /// `/api/v1` or `/apis/group/version`.
    base: String,
    /// Plural name in the path.
    pub plural: String,
    /// Singular name.
    pub singular: String,
    /// Group, empty for the core one.
    pub group: String,
    /// Kind.
    pub kind: String,
    namespaced: bool,
    short: Vec<String>,
    categories: Vec<String>,
}

impl Resource {
    /// `pod`, or `deployment.apps` outside the core group.
    pub fn printed(&self) -> String {
        if self.group.is_empty() {
            self.singular.clone()
        } else {
            format!("{}.{}", self.singular, self.group)
        }
    }

    /// Whether objects of it live in a namespace.
    pub fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// The path of the collection (`namespace` None: all namespaces).
    pub fn collection(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) if self.namespaced => {
                format!("{}/namespaces/{namespace}/{}", self.base, self.plural)
            }
            _ => format!("{}/{}", self.base, self.plural),
        }
    }

    fn is_called(&self, word: &str) -> bool {
        let word = word.to_ascii_lowercase();
        let name = word.split('.').next().unwrap_or(&word);
        let group = word.split_once('.').map(|(_, group)| group);
        (self.plural == name
            || self.singular == name
            || self.kind.to_ascii_lowercase() == name
            || self.short.iter().any(|short| short == name))
            && group.is_none_or(|group| self.group == group)
    }
}

/// Every resource the server offers, core group first.
pub async fn discover(session: &Session) -> Result<Vec<Resource>> {
    let mut found = resources_of(&session.get_json("/api/v1").await?, "/api/v1", "");
    let groups = session.get_json("/apis").await?;
    for group in groups["groups"].as_array().into_iter().flatten() {
        let name = group["name"].as_str().unwrap_or_default();
        let Some(version) = group["preferredVersion"]["groupVersion"].as_str() else { continue };
        let base = format!("/apis/{version}");
        found.extend(resources_of(&session.get_json(&base).await?, &base, name));
    }
    Ok(found)
}

/// The resource that `word` names.
pub async fn named(session: &Session, word: &str) -> Result<Resource> {
    // The core group answers most questions with one request.
    let core = resources_of(&session.get_json("/api/v1").await?, "/api/v1", "");
    if let Some(resource) = core.into_iter().find(|resource| resource.is_called(word)) {
        return Ok(resource);
    }
    match discover(session).await?.into_iter().find(|resource| resource.is_called(word)) {
        Some(resource) => Ok(resource),
        None => bail!("error: the server doesn't have a resource type \"{word}\""),
    }
}

/// The resource of an object's apiVersion and kind.
pub async fn of_object(session: &Session, object: &Value) -> Result<Resource> {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let base = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let list = match session.get_json(&base).await {
        Ok(list) => list,
        Err(error) if super::is_not_found(&error) => Value::Null,
        Err(error) => return Err(error),
    };
    match resources_of(&list, &base, group).into_iter().find(|resource| resource.kind == kind) {
        Some(resource) => Ok(resource),
        None => bail!("error: no matches for kind \"{kind}\" in version \"{version}\""),
    }
}

/// Splits `pod NAME...`, `pod/NAME pod/OTHER` and `pods` into types and names.
pub async fn targets(session: &Session, words: &[String]) -> Result<Vec<(Resource, Vec<String>)>> {
    if words.iter().any(|word| word.contains('/')) {
        let mut found: Vec<(Resource, Vec<String>)> = Vec::new();
        for word in words {
            let Some((kind, name)) = word.split_once('/') else {
                bail!(
                    "error: there is no need to specify a resource type as a separate argument when passing arguments in resource/name form"
                );
            };
            let resource = named(session, kind).await?;
            match found
                .iter_mut()
                .find(|(known, _)| known.plural == resource.plural && known.group == resource.group)
            {
                Some((_, names)) => names.push(name.to_owned()),
                None => found.push((resource, vec![name.to_owned()])),
            }
        }
        return Ok(found);
    }
    let Some((kinds, names)) = words.split_first() else {
        bail!("error: you must specify the type of resource")
    };
    let mut found = Vec::new();
    for kind in kinds.split(',') {
        if kind == "all" {
            let every = discover(session).await?.into_iter();
            let chosen = every.filter(|resource| resource.categories.iter().any(|word| word == kind));
            found.extend(chosen.map(|resource| (resource, names.to_vec())));
            continue;
        }
        found.push((named(session, kind).await?, names.to_vec()));
    }
    Ok(found)
}

fn resources_of(list: &Value, base: &str, group: &str) -> Vec<Resource> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for row in list["resources"].as_array().into_iter().flatten() {
        let plural = text(&row["name"]);
        if plural.contains('/') {
            continue;
        }
        let singular = match text(&row["singularName"]) {
            empty if empty.is_empty() => text(&row["kind"]).to_ascii_lowercase(),
            singular => singular,
        };
        found.push(Resource {
            base: base.to_owned(),
            plural,
            singular,
            group: group.to_owned(),
            kind: text(&row["kind"]),
            namespaced: row["namespaced"].as_bool().unwrap_or(false),
            short: row["shortNames"].as_array().into_iter().flatten().map(text).collect(),
            categories: row["categories"].as_array().into_iter().flatten().map(text).collect(),
        });
    }
    found
}
