//! From a definition to the kinds that are served of it.

use std::cmp::Ordering;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde_json::Value;

use super::resource::{PrinterColumn, Resource};
use super::{
    Conversion, group, is_terminating, list, storage_prefix, storage_version, text, unmarked_version,
    versions,
};
use crate::kinds::{StrategyRef, Text};
use crate::schema::{Message, Schema};
use crate::strategy::ScalePaths;
use crate::structural::Node;
use crate::validate::FieldError;
use crate::{Kind, Part, Subresource, Verb, Verbs};

/// Where a definition can be read again, for those parts of it that nobody keeps in memory.
pub trait Source: std::fmt::Debug + Send + Sync {
    /// The definition.
    fn definition(&self) -> Option<Value>;

    /// The rules of one of its versions, for which there are some.
    fn rules(self: Arc<Self>, version: &str) -> Option<Arc<dyn Rules>>;
}

/// The rules that the schema of a version has beside its own, in CEL.
pub trait Rules: std::fmt::Debug + Send + Sync {
    /// Complaints about an object; of one that was another before, only those that it did not have then.
    fn complaints(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError>;
}

/// The kinds that are served of a definition, the preferred version first. They read its names from its status.
pub fn kinds(definition: &Value, source: &Arc<dyn Source>) -> Vec<Arc<Kind>> {
    let mut served: Vec<&Value> =
        versions(definition).iter().filter(|version| version["served"] == true).collect();
    served.sort_by(|one, other| by_priority(text(&one["name"]), text(&other["name"])));
    let storage = versions(definition).iter().find(|version| version["storage"] == true);
    let same = storage
        .map(|storage| (&storage["schema"], Arc::new(Node::root(&storage["schema"]["openAPIV3Schema"]))));
    let stored = same.as_ref().map(|(_, node)| node.clone());
    let node = |version: &Value| match &same {
        // Versions that have one schema share it.
        Some((schema, node)) if **schema == version["schema"] => node.clone(),
        _ => Arc::new(Node::root(&version["schema"]["openAPIV3Schema"])),
    };
    let conversion = Conversion::of(definition, node).map(Arc::new);
    let is_converted = conversion.is_none() && is_converted(definition);
    let stored_as = Some(storage_version(definition).to_owned());
    served
        .iter()
        .map(|version| {
            let node = node(version);
            let storage = stored.clone().filter(|stored| !Arc::ptr_eq(stored, &node));
            let (stored_as, conversion) = (stored_as.clone(), conversion.clone());
            let shapes = Shapes { node, storage, is_converted, stored_as, conversion };
            Arc::new(kind(definition, version, shapes, source))
        })
        .collect()
}

/// The kind of a definition's stored objects as they lie there, whether or not they are served: with the selectable
/// fields of all versions. Each is in the version that it says it is in, and one that says nothing in this.
pub fn stored_kind(definition: &Value, source: &Arc<dyn Source>) -> Option<Arc<Kind>> {
    let unmarked = unmarked_version(definition);
    let version = versions(definition).iter().find(|version| version["name"] == unmarked)?;
    let node = Arc::new(Node::root(&Value::Null));
    let shapes = Shapes { node, storage: None, is_converted: false, stored_as: None, conversion: None };
    let mut stored = kind(definition, version, shapes, source);
    for field in versions(definition).iter().flat_map(selectable) {
        if !stored.selectable_fields.contains(&field) {
            stored.selectable_fields.push(field);
        }
    }
    Some(Arc::new(stored))
}

/// The schema of a version, that of the version that objects are stored in when it is another, and the way between.
struct Shapes {
    node: Arc<Node>,
    storage: Option<Arc<Node>>,
    is_converted: bool,
    stored_as: Option<String>,
    conversion: Option<Arc<Conversion>>,
}

fn kind(definition: &Value, version: &Value, shapes: Shapes, source: &Arc<dyn Source>) -> Kind {
    let names = &definition["status"]["acceptedNames"];
    let texts =
        |key: &str| list(&names[key]).iter().map(|name| text(name).to_owned().into()).collect::<Vec<Text>>();
    let name = |key: &str| Text::from(text(&names[key]).to_owned());
    let (group, number) = (group(definition).to_owned(), text(&version["name"]).to_owned());
    let terminating = is_terminating(definition);
    let reversed: Vec<&str> = group.split('.').rev().collect();
    let model = format!("{}.{number}.{}", reversed.join("."), text(&names["kind"]));
    Kind {
        kind: name("kind"),
        list_kind: name("listKind"),
        resource: name("plural"),
        singular: name("singular"),
        short_names: texts("shortNames"),
        categories: texts("categories"),
        namespaced: definition["spec"]["scope"] == "Namespaced",
        verbs: Verbs::of(&Verb::ALL),
        subresources: subresources(version, &group, &number, text(&names["kind"])),
        storage_prefix: storage_prefix(definition).into(),
        schema: Schema::Made(Arc::new(Message::structural(model, shapes.node.clone()))),
        selectable_fields: selectable(version),
        strategy: StrategyRef::Made(Arc::new(Resource {
            api_version: format!("{group}/{number}"),
            kind: text(&names["kind"]).to_owned(),
            node: shapes.node,
            storage: shapes.storage,
            has_status: version["subresources"].get("status").is_some(),
            scale: version["subresources"].get("scale").map(scale),
            columns: columns(version),
            rules: has_rules(&version["schema"]["openAPIV3Schema"])
                .then(|| source.clone().rules(text(&version["name"])))
                .flatten(),
            is_converted: shapes.is_converted,
            stored_as: shapes.stored_as,
            conversion: shapes.conversion,
            terminating,
            deprecation: deprecation(definition, version),
            version: number.clone(),
            revision: revision(definition),
            source: source.clone(),
        })),
        group: group.into(),
        version: number.into(),
    }
}

/// Whether a schema has rules in CEL anywhere.
pub fn has_rules(schema: &Value) -> bool {
    let Value::Object(map) = schema else { return false };
    map.get("x-kubernetes-validations").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty())
        || map.get("items").is_some_and(has_rules)
        || map.get("additionalProperties").is_some_and(has_rules)
        || map.get("properties").and_then(Value::as_object).is_some_and(|all| all.values().any(has_rules))
}

/// A value that differs between two states of a definition that are served differently.
fn revision(definition: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    let metadata = &definition["metadata"];
    (text(&metadata["uid"]), metadata["generation"].as_i64(), is_terminating(definition)).hash(&mut hasher);
    definition["status"]["acceptedNames"].to_string().hash(&mut hasher);
    hasher.finish()
}

/// Whether objects may have been stored in another shape than that of the version they are read in: under a former
/// schema, or through another version.
fn is_converted(definition: &Value) -> bool {
    definition["metadata"]["generation"] != 1 || versions(definition).len() > 1
}

fn subresources(version: &Value, group: &str, number: &str, kind: &str) -> Vec<Subresource> {
    let verbs = Verbs::of(&[Verb::Get, Verb::Patch, Verb::Update]);
    let given = &version["subresources"];
    let of = |part, group: &str, version: &str, kind: &str| Subresource {
        part,
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        kind: kind.to_owned().into(),
        verbs,
    };
    let status = given.get("status").map(|_| of(Part::Status, group, number, kind));
    let scale = given.get("scale").map(|_| of(Part::Scale, "autoscaling", "v1", "Scale"));
    status.into_iter().chain(scale).collect()
}

fn selectable(version: &Value) -> Vec<Text> {
    let fields = list(&version["selectableFields"]).iter();
    fields.map(|field| text(&field["jsonPath"]).trim_start_matches('.').to_owned().into()).collect()
}

fn scale(scale: &Value) -> ScalePaths {
    let path = |key: &str| text(&scale[key]).to_owned();
    ScalePaths {
        spec_replicas: path("specReplicasPath"),
        status_replicas: path("statusReplicasPath"),
        label_selector: path("labelSelectorPath"),
    }
}

fn columns(version: &Value) -> Vec<PrinterColumn> {
    list(&version["additionalPrinterColumns"]).iter().map(PrinterColumn::of).collect()
}

/// What requests about a deprecated version are warned of.
fn deprecation(definition: &Value, version: &Value) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        return Some(warning.to_owned());
    }
    let (group, kind) = (group(definition), text(&definition["status"]["acceptedNames"]["kind"]));
    let name = text(&version["name"]);
    let newer = versions(definition)
        .iter()
        .filter(|other| other["served"] == true && other["deprecated"] != true)
        .map(|other| text(&other["name"]))
        .filter(|other| by_priority(other, name) == Ordering::Less)
        .min_by(|one, other| by_priority(one, other));
    let mut out = format!("{group}/{name} {kind} is deprecated");
    if let Some(newer) = newer {
        out.push_str(&format!("; use {group}/{newer} {kind}"));
    }
    Some(out)
}

/// Orders versions as Kubernetes does, the preferred first: `v2`, `v1`, `v1beta2`, `v1alpha1`, others by name.
pub(crate) fn by_priority(one: &str, other: &str) -> Ordering {
    match (parsed(one), parsed(other)) {
        (Some(one), Some(other)) => other.cmp(&one),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.cmp(other),
    }
}

/// Stability, major and minor number of a version.
fn parsed(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(digits);
    let major = major.parse().ok().filter(|major| *major > 0)?;
    let (stability, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
        _ if rest.is_empty() => return Some((2, major, 0)),
        (Some(minor), _) => (1, minor),
        (_, Some(minor)) => (0, minor),
        _ => return None,
    };
    Some((stability, major, minor.parse().ok().filter(|minor| *minor > 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_stability() {
        let mut all =
            ["foo1", "v1alpha1", "v3beta1", "v1", "v11alpha2", "v2", "v10", "v11beta2", "foo10", "v12alpha1"];
        all.sort_by(|one, other| by_priority(one, other));
        assert_eq!(
            all,
            ["v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "v11alpha2", "v1alpha1", "foo1", "foo10"]
        );
    }
}
