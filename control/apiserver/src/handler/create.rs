//! Creating objects.

use std::sync::PoisonError;

use bytes::Bytes;
use http::StatusCode;
use podwire_api::apply;
use podwire_api::validate::FieldError;
use podwire_api::{Kind, defaults, strategy, warnings};
use podwire_store::{Guard, KeyValue, Op, Outcome};
use serde_json::Value;

use super::beside::Asker;
use super::options::WriteOptions;
use super::{Call, decode, render};
use crate::admission::resource_quota::{Charge, End};
use crate::admission::{self, Operation, Options, Request, service};
use crate::body::Response;
use crate::codec;
use crate::context::{self, Context};
use crate::identity::Identity;
use crate::status::{ApiError, Result};

/// Letters and digits of generated names: none that make words, none that look alike.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// A generated name is tried this often before giving up.
const ATTEMPTS: usize = 8;
/// Creates what the body describes.
pub(crate) async fn create(call: &mut Call) -> Result<Response> {
    let rep = call.representation()?;
    let options = WriteOptions::read(call, "CreateOptions")?;
    let bytes = call.bytes().await?;
    let kind = &call.kind.clone();
    let mut object = decode::object(call, kind, &bytes, options.validation)?;
    check_namespace(kind, call.namespace(), &mut object)?;
    defaults::apply(kind, &mut object);
    let mut warnings: Vec<String> = kind.strategy.unenforced(kind, &object).into_iter().collect();
    let write = Insert {
        context: &call.context,
        identity: &call.identity,
        kind,
        options: &options,
        operation: apply::Operation::Update,
    };
    let inserted = write.run(object).await;
    // What is right is warned about, also when its place is taken.
    if inserted.as_ref().err().is_none_or(|error| error.reason == "AlreadyExists") {
        call.warnings.append(&mut warnings);
    }
    match inserted? {
        Inserted::Stored(kv) => render::stored(call, StatusCode::CREATED, rep, kv).await,
        Inserted::Dry(object) => Ok(render::object(call, StatusCode::CREATED, rep, object)),
    }
}

/// The namespace of the body must be the one of the URL; an absent one is filled in.
pub(crate) fn check_namespace(kind: &Kind, namespace: &str, object: &mut Value) -> Result<()> {
    let given = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if !kind.namespaced {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        return Ok(());
    }
    if given.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
        return Ok(());
    }
    if given == namespace {
        return Ok(());
    }
    Err(ApiError::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}

/// What became of a creation.
pub(crate) enum Inserted {
    /// It is stored.
    Stored(KeyValue),
    /// It would have been.
    Dry(Value),
}

/// One creation, by a client or by the server itself.
pub(crate) struct Insert<'a> {
    pub(crate) context: &'a Context,
    pub(crate) identity: &'a Identity,
    pub(crate) kind: &'a Kind,
    pub(crate) options: &'a WriteOptions,
    pub(crate) operation: apply::Operation,
}

impl Insert<'_> {
    /// Defaults, admission, validation, one transaction.
    pub(crate) async fn run(&self, mut object: Value) -> Result<Inserted> {
        let kind = self.kind;
        if let Some(why) = kind.strategy.refuses_creation() {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            return Err(ApiError::forbidden(&kind.group, &kind.resource, name, why));
        }
        fill_in(kind, &mut object);
        // Fields that admission adds belong to nobody, so the books are kept before it.
        self.track(&mut object);
        let (namespace, named) = self.place(&object);
        let request = Request {
            context: self.context,
            identity: self.identity,
            kind,
            part: None,
            operation: Operation::Create,
            namespace: &namespace,
            name: &named,
            old: None,
            dry_run: self.options.dry_run,
            options: if self.options.by_server { Options::Server } else { Options::Write(self.options) },
            told: Some(&self.options.told),
        };
        admission::mutate(&request, &mut object).await?;
        let generated = name_it(&mut object);
        // Completion takes it away; it is minded later, as upstream's store does: behind validation, and not by a dry run.
        let versioned = object["metadata"]["resourceVersion"].as_str().is_some_and(|given| !given.is_empty());
        let held = service::hold(self.context, &request, &mut object).await?;
        let charge = match self.check(&request, &mut object).await {
            Ok(charge) => charge,
            Err(error) => {
                held.give_back(self.context).await;
                return Err(error);
            }
        };
        if versioned && !self.options.dry_run {
            charge.settle(End::NotStored).await;
            held.give_back(self.context).await;
            let message = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", message));
        }
        let inserted = self.store(object, generated).await;
        charge.settle(end(&inserted)).await;
        held.settle(self.context, &inserted, |inserted| matches!(inserted, Inserted::Stored(_))).await;
        inserted
    }

    /// Completes and validates the object, and charges the quotas.
    async fn check(&self, request: &Request<'_>, object: &mut Value) -> Result<Charge<'_>> {
        let kind = self.kind;
        fill_metadata(object);
        kind.strategy.complete(object);
        strategy::prepare_create(kind, object);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut errors = self.asker(request.namespace).of_new(object).await;
        if errors.is_empty() {
            errors = expressions(kind, object, None);
        }
        if !errors.is_empty() {
            return Err(refused(kind, object, &name, &errors));
        }
        self.tell(warnings::on_create(kind, object));
        admission::validate(self.context, request, object).await
    }

    /// Tells the client what is right and doubtful, whatever becomes of the object.
    fn tell(&self, mut warnings: Vec<String>) {
        self.options.told.lock().unwrap_or_else(PoisonError::into_inner).append(&mut warnings);
    }

    fn asker<'b>(&'b self, namespace: &'b str) -> Asker<'b> {
        Asker { context: self.context, identity: self.identity, kind: self.kind, namespace, verb: "create" }
    }

    /// Where the object goes, and the name in the URL: only applying names the object there.
    fn place(&self, object: &Value) -> (String, String) {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        let applied = self.operation == apply::Operation::Apply;
        (text("namespace"), if applied { text("name") } else { String::new() })
    }

    fn track(&self, object: &mut Value) {
        if self.operation == apply::Operation::Apply {
            return;
        }
        let writer = apply::Writer {
            manager: &self.options.manager,
            operation: apply::Operation::Update,
            subresource: "",
            time: jiff::Timestamp::now(),
        };
        apply::track_update(self.kind, None, object, &writer);
    }

    async fn store(&self, mut object: Value, generated: Option<String>) -> Result<Inserted> {
        let kind = self.kind;
        for attempt in 1.. {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let key = context::key(kind, namespace, &name);
            let value = self.context.bytes_to_store(kind, &object).await?;
            let conflict = if self.options.dry_run {
                match self.context.store.get(&key).await? {
                    None => return Ok(Inserted::Dry(object)),
                    found => found,
                }
            } else {
                if !codec::fits(kind, &key, &value) {
                    return Err(ApiError::too_large_to_store());
                }
                let op = Op::Put { value: value.clone(), ttl: kind.strategy.facts().ttl };
                match self.context.store.txn(&key, Guard::Absent, op).await? {
                    Outcome::Committed { revision, .. } => {
                        admission::learn(self.context, kind, revision).await;
                        let key = key.into();
                        return Ok(Inserted::Stored(KeyValue {
                            key,
                            value,
                            create_revision: revision,
                            mod_revision: revision,
                        }));
                    }
                    Outcome::Conflict { current } => current,
                }
            };
            match &generated {
                Some(base) if attempt < ATTEMPTS => object["metadata"]["name"] = generate(base).into(),
                _ => return Err(taken(kind, &name, conflict.as_ref())),
            }
        }
        unreachable!("the loop returns")
    }
}

/// Fills in what a client left out, times too.
pub(crate) fn fill_in(kind: &Kind, object: &mut Value) {
    defaults::apply(kind, object);
    if let Value::Object(map) = object {
        kind.strategy.stamp(map, &now);
    }
}

/// What became of a creation, for whoever holds something until then.
fn end(inserted: &Result<Inserted>) -> End {
    match inserted {
        Ok(Inserted::Stored(_)) => End::Stored,
        Ok(Inserted::Dry(_)) => End::NotStored,
        Err(error) if error.reason == "AlreadyExists" => End::NotStored,
        Err(_) => End::Unknown,
    }
}

/// Complaints about the expressions in CEL that an object brings, if it has others than before.
pub(crate) fn expressions(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let is_new = |key: &str| old.is_none_or(|old| old[key] != new[key]);
    if kind.strategy.defines_kinds() && is_new("spec") {
        return crate::rules::complaints(new);
    }
    if kind.strategy.is_admission_policy() && is_new("spec") {
        return admission::policy::complaints(new, old);
    }
    if kind.strategy.calls_webhooks() && is_new("webhooks") {
        return admission::webhook::complaints(new);
    }
    Vec::new()
}

/// 422 about an object, under the kind that it says it is.
pub(crate) fn refused(kind: &Kind, object: &Value, name: &str, errors: &[FieldError]) -> ApiError {
    let said = object["kind"].as_str().filter(|_| kind.schema.is_structural()).unwrap_or(&kind.kind);
    ApiError::invalid_of(&kind.group, said, name, errors)
}

fn taken(kind: &Kind, name: &str, found: Option<&KeyValue>) -> ApiError {
    let deleting = found
        .and_then(|kv| codec::decode(kind, kv).ok())
        .is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string());
    ApiError::already_exists(kind, name, deleting)
}

/// The bytes to store, in the shape they are stored in, of a kind that no webhook converts.
pub(crate) fn encode(kind: &Kind, object: &Value) -> Bytes {
    let version = kind.strategy.stored_as(object);
    if !kind.strategy.is_converted() {
        return codec::encode(object, version);
    }
    let mut stored = object.clone();
    kind.strategy.to_storage(&mut stored);
    codec::encode(&stored, version)
}

/// Gives an object without a name one that begins with its `generateName`; returns that beginning.
fn name_it(object: &mut Value) -> Option<String> {
    let named = object["metadata"]["name"].as_str().is_some_and(|name| !name.is_empty());
    let base =
        object["metadata"]["generateName"].as_str().filter(|base| !base.is_empty() && !named)?.to_owned();
    object["metadata"]["name"] = generate(&base).into();
    Some(base)
}

/// A name from its beginning and five characters.
fn generate(base: &str) -> String {
    let cut = base.char_indices().map(|(at, _)| at).take_while(|at| *at <= 58).last().unwrap_or(0);
    let base = if base.len() > 58 { &base[..cut] } else { base };
    format!("{base}{}", random_suffix())
}

/// Five characters that make a name different from all others.
pub(crate) fn random_suffix() -> String {
    let mut raw = [0_u8; 5];
    random(&mut raw);
    raw.iter().map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect()
}

fn random(raw: &mut [u8]) {
    use ring::rand::SecureRandom;
    ring::rand::SystemRandom::new().fill(raw).expect("the system gives randomness");
}

/// Any number.
pub(crate) fn random_number() -> u16 {
    let mut raw = [0_u8; 2];
    random(&mut raw);
    u16::from_ne_bytes(raw)
}

/// Any number of a large range.
pub(crate) fn random_u64() -> u64 {
    let mut raw = [0_u8; 8];
    random(&mut raw);
    u64::from_ne_bytes(raw)
}

/// A random (version 4) uid.
pub(crate) fn new_uid() -> String {
    let mut raw = [0_u8; 16];
    random(&mut raw);
    raw[6] = raw[6] & 0x0f | 0x40;
    raw[8] = raw[8] & 0x3f | 0x80;
    let hex: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Now, as Kubernetes writes times.
pub(crate) fn now() -> String {
    timestamp(jiff::Timestamp::now())
}

/// A time in whole seconds.
pub(crate) fn timestamp(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The fields only the server sets.
fn fill_metadata(object: &mut Value) {
    object["metadata"]["uid"] = new_uid().into();
    object["metadata"]["creationTimestamp"] = now().into();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
            metadata.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_fit_a_label() {
        let long = "x".repeat(80);
        assert_eq!(generate(&long).len(), 63);
        assert!(generate("web-").starts_with("web-"));
        assert_eq!(generate("web-").len(), 9);
        assert_ne!(generate("web-"), generate("web-"));
    }

    #[test]
    fn uids_are_random_and_of_version_four() {
        let uid = new_uid();
        assert_eq!((uid.len(), &uid[14..15]), (36, "4"));
        assert_ne!(uid, new_uid());
    }
}
