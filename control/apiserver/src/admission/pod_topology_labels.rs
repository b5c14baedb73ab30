//! `PodTopologyLabels`: a pod on a node carries the labels that say where the node is.

use futures::future::BoxFuture;
use podwire_api::{Part, builtin};
use serde_json::{Map, Value};

use super::{Mutating, Operation, Request};
use crate::context::{self, Context};
use crate::status::Result;

/// The plugin.
pub(super) struct PodTopologyLabels;

impl Mutating for PodTopologyLabels {
    fn handles(&self, request: &Request<'_>) -> bool {
        let whole_or_binding = matches!(request.part, None | Some(Part::Binding));
        request.operation == Operation::Create && request.kind.is("", "Pod") && whole_or_binding
    }

    /// A binding gets the labels too: they reach the pod with it.
    fn admit<'a>(&'a self, request: &'a Request<'a>, object: &'a mut Value) -> BoxFuture<'a, Result<()>> {
        let node = match request.part {
            Some(_) if object["target"]["kind"] != "Node" => None,
            Some(_) => object["target"]["name"].as_str(),
            None => object["spec"]["nodeName"].as_str(),
        };
        if let Some(node) = node.filter(|node| !node.is_empty()) {
            label(object, topology(request.context, node));
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The labels that say where a node is; none of a node nobody knows.
fn topology(context: &Context, node: &str) -> Map<String, Value> {
    let nodes = builtin::nodes();
    let Some(entry) = context.caches.of(nodes).get(&context::key(nodes, "", node)) else { return Map::new() };
    let says_where =
        |key: &str| matches!(key, "topology.kubernetes.io/zone" | "topology.kubernetes.io/region");
    let labels = entry.labels().filter(|(key, _)| says_where(key));
    labels.map(|(key, value)| (key.to_owned(), value.into())).collect()
}

/// Puts labels on an object, over those it has.
fn label(object: &mut Value, labels: Map<String, Value>) {
    if labels.is_empty() {
        return;
    }
    match object["metadata"]["labels"].as_object_mut() {
        Some(own) => own.extend(labels),
        None => object["metadata"]["labels"] = labels.into(),
    }
}
