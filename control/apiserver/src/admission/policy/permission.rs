//! Nobody reads parameters through a policy that they may not read themselves: checks on writes of policies and bindings.

use futures::future::BoxFuture;
use podwire_api::validate::{Cause, FieldError};
use podwire_api::{Kind, builtin};
use serde_json::Value;

use super::super::{Mutating, Request};
use crate::authz::{self, Attributes};
use crate::identity::{Identity, MASTERS};
use crate::request::ResourceInfo;
use crate::status::{ApiError, Result};

/// The check, which upstream makes when it validates these kinds.
pub(in crate::admission) struct ParamPermission;

impl Mutating for ParamPermission {
    fn handles(&self, request: &Request<'_>) -> bool {
        let kinds = [builtin::admission_policies(), builtin::policy_bindings()];
        let guarded = |kind: &Kind| request.kind.is(&kind.group, &kind.kind);
        request.writes() && request.part.is_none() && kinds.iter().any(|kind| guarded(kind))
    }

    fn admit<'a>(&'a self, request: &'a Request<'a>, object: &'a mut Value) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let key = if request.kind.kind == "ValidatingAdmissionPolicy" { "paramKind" } else { "paramRef" };
            let given = &object["spec"][key];
            // As upstream has it, a binding is looked at with every update.
            let known = key == "paramKind" && request.old.is_some_and(|old| old["spec"][key] == *given);
            if !given.is_object() || known || request.identity.is_in(MASTERS) {
                return Ok(());
            }
            let refused = match key {
                "paramKind" => of_policy(request, given),
                _ => of_binding(request, &object["spec"]).await,
            };
            refused.map_err(|why| {
                let error = FieldError::new(Cause::Forbidden, format!("spec.{key}"), None, &why);
                let name = request.named(object);
                ApiError::invalid_of(&request.kind.group, &request.kind.kind, name, &[error])
            })
        })
    }
}

/// The resource that a kind of parameters is, with stars for what cannot be told.
fn resource(request: &Request<'_>, kind: &Value) -> ResourceInfo {
    let text = |key: &str| kind[key].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let kinds = request.context.kinds.now();
    let found = kinds.registry.by_gvk(group, version, text("kind"));
    ResourceInfo {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: found.map_or_else(|| "*".to_owned(), |kind| kind.resource.to_string()),
        ..ResourceInfo::default()
    }
}

fn may(request: &Request<'_>, verb: &str, info: &ResourceInfo) -> bool {
    authz::decide(request.context, request.identity, &Attributes::resource(verb, info)).is_allowed()
}

fn of_policy(request: &Request<'_>, kind: &Value) -> Result<(), String> {
    let info = ResourceInfo { name: "*".to_owned(), namespace: "*".to_owned(), ..resource(request, kind) };
    if may(request, "get", &info) {
        return Ok(());
    }
    let text = |key: &str| kind[key].as_str().unwrap_or_default();
    Err(format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        shown(request.identity),
        text("kind"),
        text("apiVersion")
    ))
}

async fn of_binding(request: &Request<'_>, spec: &Value) -> Result<(), String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&spec["policyName"]);
    let policy = request.context.object(builtin::admission_policies(), "", &name).await;
    let star = || "*".to_owned();
    let everything =
        || ResourceInfo { group: star(), version: star(), resource: star(), ..ResourceInfo::default() };
    let known =
        policy.as_ref().ok().map(|policy| &policy["spec"]["paramKind"]).filter(|kind| kind.is_object());
    let wanted = &spec["paramRef"];
    let info = ResourceInfo {
        name: text(&wanted["name"]),
        namespace: text(&wanted["namespace"]),
        ..known.map_or_else(everything, |kind| resource(request, kind))
    };
    let verb = if info.name.is_empty() { "list" } else { "get" };
    if may(request, verb, &info) {
        return Ok(());
    }
    let user = shown(request.identity);
    Err(match policy.is_err() {
        true => format!(
            "unable to get policy {name} to determine minimum required permissions and user {user} does not have \
             \"{verb}\" permission for all groups, versions and resources"
        ),
        false => {
            format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef")
        }
    })
}

/// A user as upstream prints one.
fn shown(identity: &Identity) -> String {
    let extra = identity.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" ")));
    let extra = extra.collect::<Vec<_>>().join(" ");
    format!("&{{{} {} [{}] map[{extra}]}}", identity.user, identity.uid, identity.groups.join(" "))
}
