//! Replacing objects, whole or in part: the read, change, compare-and-swap loop all updates share.

use std::sync::PoisonError;

use bytes::Bytes;
use http::StatusCode;
use podwire_api::apply;
use podwire_api::validate::{Cause, FieldError};
use podwire_api::{Kind, Part, strategy};
use podwire_store::{Guard, KeyValue, Op, Outcome};
use serde_json::Value;

use super::beside::Asker;
use super::create::{self, Insert, Inserted};
use super::options::WriteOptions;
use super::{Call, decode, render};
use crate::admission::resource_quota::{self, Charge, End};
use crate::admission::service::{self, Held};
use crate::admission::{self, Operation, Options, Request};
use crate::authz;
use crate::body::Response;
use crate::codec;
use crate::context::{self, Context};
use crate::identity::Identity;
use crate::request::RequestInfo;
use crate::status::{ApiError, Result};

/// A write that loses against others is tried this often.
const ATTEMPTS: usize = 10;

/// Replaces an object or one of its parts by the body.
pub(crate) async fn update(call: &mut Call) -> Result<Response> {
    let rep = call.representation()?;
    let options = WriteOptions::read(call, "UpdateOptions")?;
    let bytes = call.bytes().await?;
    let kind = &call.kind.clone();
    let mut object = decode::object(call, kind, &bytes, options.validation)?;
    check_name(call.name(), &object)?;
    create::check_namespace(kind, call.namespace(), &mut object)?;
    let given = version_of(&object);
    let unconditional = given.is_empty();
    if !unconditional && given.parse::<u64>().is_err() {
        let message = format!("strconv.ParseUint: parsing \"{given}\": invalid syntax");
        return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", message));
    }
    if call.part.is_none() {
        call.warnings.extend(kind.strategy.unenforced(kind, &object));
    }
    for _ in 0..2 {
        let mut change = Change::of(call, &options, Extent::of(call.part), unconditional);
        change.check_uid = true;
        let name = change.name;
        let changed = change
            .run(|_| match unconditional && !kind.strategy.facts().updates_unconditionally {
                true => Err(unversioned(kind, name)),
                false => Ok(object.clone()),
            })
            .await;
        let creates = kind.strategy.facts().creates_on_update && call.part.is_none();
        match changed {
            Err(error) if error.code == StatusCode::NOT_FOUND && creates => {}
            other => return respond(call, rep, other?).await,
        }
        match create_missing(call, &options, object.clone()).await {
            Ok(Inserted::Stored(kv)) => return render::stored(call, StatusCode::CREATED, rep, kv).await,
            Ok(Inserted::Dry(object)) => return Ok(render::object(call, StatusCode::CREATED, rep, object)),
            // Somebody created it in between: replace that.
            Err(error) if error.reason == "AlreadyExists" => {}
            Err(error) => return Err(error),
        }
    }
    Err(ApiError::modified(kind, call.name()))
}

fn unversioned(kind: &Kind, name: &str) -> ApiError {
    let error = FieldError {
        reason: Cause::Invalid,
        field: "metadata.resourceVersion".into(),
        message: "Invalid value: 0: must be specified for an update".into(),
    };
    ApiError::invalid_of(&kind.group, &kind.resource, name, &[error])
}

/// Creates what was to be replaced and is not there, for who may.
async fn create_missing(call: &Call, options: &WriteOptions, mut object: Value) -> Result<Inserted> {
    let kind = &call.kind;
    if let Some(uid) = object["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
        let key = context::key(kind, call.namespace(), call.name());
        return Err(ApiError::conflict(kind, call.name(), &precondition("UID", uid, "", &key)));
    }
    may_create(call)?;
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    let operation = apply::Operation::Update;
    let insert = Insert { context: &call.context, identity: &call.identity, kind, options, operation };
    insert.run(object).await
}

/// A write that creates needs the right to create as well.
pub(crate) fn may_create(call: &Call) -> Result<()> {
    let info = RequestInfo {
        path: call.parts.uri.path().to_owned(),
        verb: "create",
        resource: Some(call.target.clone()),
    };
    authz::check(&call.context, &call.identity, &(&info).into())
}

/// Renders the outcome of a change.
pub(crate) async fn respond(
    call: &Call,
    rep: crate::negotiate::Representation,
    changed: Changed,
) -> Result<Response> {
    match changed {
        Changed::Stored(kv) => render::stored(call, StatusCode::OK, rep, kv).await,
        Changed::Object(object) => Ok(render::object(call, StatusCode::OK, rep, object)),
    }
}

fn check_name(name: &str, object: &Value) -> Result<()> {
    let given = object["metadata"]["name"].as_str().unwrap_or_default();
    if given.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if given == name {
        return Ok(());
    }
    Err(ApiError::bad_request(format!(
        "the name of the object ({given}) does not match the name on the URL ({name})"
    )))
}

fn version_of(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

/// What of an object a write may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything but the status.
    Main,
    /// What a subresource opens.
    Part(Part),
    /// A change of the server's own (binding); nothing is taken back from the old object.
    Server,
}

impl Extent {
    /// What a request may touch.
    pub(crate) fn of(part: Option<Part>) -> Self {
        part.map_or(Self::Main, Self::Part)
    }

    /// The subresource in the words of `managedFields`.
    pub(crate) fn subresource(self) -> &'static str {
        match self {
            Self::Main | Self::Server => "",
            Self::Part(part) => part.as_str(),
        }
    }

    fn part(self) -> Option<Part> {
        match self {
            Self::Main | Self::Server => None,
            Self::Part(part) => Some(part),
        }
    }
}

/// What a change left behind.
pub(crate) enum Changed {
    /// The stored object.
    Stored(KeyValue),
    /// An object that is not stored: a dry run, or the last state of one that is gone now.
    Object(Value),
}

/// One change of one object.
pub(crate) struct Change<'a> {
    pub(crate) context: &'a Context,
    pub(crate) identity: &'a Identity,
    pub(crate) kind: &'a Kind,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The verb of the request.
    pub(crate) verb: &'a str,
    pub(crate) extent: Extent,
    pub(crate) options: &'a WriteOptions,
    /// Try again when somebody else wrote in between.
    pub(crate) retry: bool,
    /// Set when the books on field owners are kept elsewhere (server-side apply) or not at all.
    pub(crate) untracked: bool,
    /// A uid in the new object is a precondition.
    pub(crate) check_uid: bool,
}

impl<'a> Change<'a> {
    /// The change a call asks for.
    pub(crate) fn of(call: &'a Call, options: &'a WriteOptions, extent: Extent, retry: bool) -> Self {
        Self {
            context: &call.context,
            identity: &call.identity,
            kind: &call.kind,
            namespace: call.namespace(),
            name: call.name(),
            verb: call.verb.as_str(),
            extent,
            options,
            retry,
            untracked: false,
            check_uid: false,
        }
    }

    /// Reads, lets `make` say what the object should be, checks, and writes if nobody else did.
    pub(crate) async fn run(&self, mut make: impl FnMut(&Value) -> Result<Value>) -> Result<Changed> {
        let mut stored = self.context.stored(self.kind, self.namespace, self.name).await?;
        for _ in 0..ATTEMPTS {
            let old = context::read(self.kind, &self.context.served(self.kind, stored.clone()).await?)?;
            let new = make(&old)?;
            let given = version_of(&new);
            if !given.is_empty() && given != version_of(&old) {
                return Err(ApiError::modified(self.kind, self.name));
            }
            let (mut new, held, charge) = self.settle(new, &old).await?;
            let request = self.request(&old);
            let closed = resource_quota::correct(&request, &mut new, &old).await?;
            let written = self.write(&stored, &old, new).await;
            drop(closed);
            charge.settle(end(&written)).await;
            held.settle(self.context, &written, |written| matches!(written, Ok(Changed::Stored(_)))).await;
            match written? {
                Ok(changed) => return Ok(changed),
                Err(None) => return Err(ApiError::not_found(self.kind, self.name)),
                Err(Some(_)) if !self.retry => return Err(ApiError::modified(self.kind, self.name)),
                Err(Some(current)) => stored = current,
            }
        }
        Err(ApiError::modified(self.kind, self.name))
    }

    /// Puts in what clients may not change, defaults, admits and validates.
    async fn settle(&self, mut new: Value, old: &Value) -> Result<(Value, Held, Charge<'a>)> {
        let kind = self.kind;
        if self.check_uid {
            self.same_uid(&new, old)?;
        }
        keep_system_fields(&mut new, old);
        create::fill_in(kind, &mut new);
        if !self.untracked && self.extent != Extent::Part(Part::Finalize) {
            self.track(&mut new, old);
        }
        let request = self.request(old);
        if self.extent != Extent::Server {
            admission::mutate(&request, &mut new).await?;
            keep_system_fields(&mut new, old);
        }
        match self.extent {
            Extent::Main | Extent::Part(Part::Scale) => strategy::prepare_update(kind, &mut new, old),
            Extent::Part(Part::Status) => strategy::prepare_status_update(kind, &mut new, old),
            Extent::Part(part) => new = kind.strategy.prepare_part(part, new, old),
            Extent::Server => {}
        }
        kind.strategy.finish_update(self.extent.part(), &mut new, old, &create::now());
        let held = service::hold(self.context, &request, &mut new).await?;
        match self.admit(&request, &new, old).await {
            Ok(charge) => Ok((new, held, charge)),
            Err(error) => {
                held.give_back(self.context).await;
                Err(error)
            }
        }
    }

    /// Validates, and charges the quotas.
    async fn admit(&self, request: &Request<'_>, new: &Value, old: &Value) -> Result<Charge<'a>> {
        self.check(new, old).await?;
        match self.extent {
            Extent::Server => Ok(Charge::nothing(self.context)),
            _ => admission::validate(self.context, request, new).await,
        }
    }

    /// Validates, and warns of what is right and doubtful.
    async fn check(&self, new: &Value, old: &Value) -> Result<()> {
        if self.extent == Extent::Server {
            return Ok(());
        }
        let (kind, part) = (self.kind, self.extent.part());
        let Change { context, identity, namespace, verb, .. } = *self;
        let asker = Asker { context, identity, kind, namespace, verb };
        let mut errors = asker.of_change(part, new, old).await;
        if errors.is_empty() {
            errors = create::expressions(kind, new, Some(old));
        }
        if !errors.is_empty() {
            return Err(create::refused(kind, new, self.name, &errors));
        }
        let mut warnings = kind.strategy.change_warnings(part, new);
        self.options.told.lock().unwrap_or_else(PoisonError::into_inner).append(&mut warnings);
        Ok(())
    }

    fn request<'r>(&self, old: &'r Value) -> Request<'r>
    where
        'a: 'r,
    {
        Request {
            context: self.context,
            identity: self.identity,
            kind: self.kind,
            part: self.extent.part(),
            operation: Operation::Update,
            namespace: self.namespace,
            name: self.name,
            old: Some(old),
            dry_run: self.options.dry_run,
            options: if self.options.by_server { Options::Server } else { Options::Write(self.options) },
            told: Some(&self.options.told),
        }
    }

    fn track(&self, new: &mut Value, old: &Value) {
        let writer = apply::Writer {
            manager: &self.options.manager,
            operation: apply::Operation::Update,
            subresource: self.extent.subresource(),
            time: jiff::Timestamp::now(),
        };
        apply::track_update(self.kind, Some(old), new, &writer);
    }

    fn same_uid(&self, new: &Value, old: &Value) -> Result<()> {
        let (given, uid) = (new["metadata"]["uid"].as_str().unwrap_or_default(), &old["metadata"]["uid"]);
        if given.is_empty() || uid == given {
            return Ok(());
        }
        let uid = uid.as_str().unwrap_or_default();
        let key = context::key(self.kind, self.namespace, self.name);
        Err(ApiError::conflict(self.kind, self.name, &precondition("UID", given, uid, &key)))
    }

    /// Writes; the inner error is what is stored instead of what was expected.
    async fn write(
        &self,
        stored: &KeyValue,
        old: &Value,
        new: Value,
    ) -> Result<std::result::Result<Changed, Option<KeyValue>>> {
        if is_finished(self.kind, &new, old) {
            if self.options.dry_run {
                return Ok(Ok(Changed::Object(new)));
            }
            let guard = Guard::ModRevision(stored.mod_revision);
            return Ok(match self.context.store.txn(&stored.key, guard, Op::Delete).await? {
                Outcome::Committed { revision, .. } => {
                    service::deleted(self.context, self.kind, &new).await;
                    admission::learn(self.context, self.kind, revision).await;
                    Ok(Changed::Object(new))
                }
                Outcome::Conflict { current } => Err(current),
            });
        }
        let value = self.context.bytes_to_store(self.kind, &new).await?;
        if value == stored.value && !self.context.is_stale(stored) {
            return Ok(Ok(Changed::Stored(stored.clone())));
        }
        if self.options.dry_run {
            return Ok(Ok(Changed::Object(new)));
        }
        // What is too large already, from before there was a bound, may shrink; and deleting it is never refused.
        if value.len() > stored.value.len() && !codec::fits(self.kind, &stored.key, &value) {
            return Err(ApiError::too_large_to_store());
        }
        let written = put(self.context, self.kind, stored, value).await?;
        if written.is_ok() {
            service::changed(self.context, self.kind, &new, old).await;
        }
        Ok(written)
    }
}

/// What became of a change, for whoever holds something until then.
fn end(written: &Result<std::result::Result<Changed, Option<KeyValue>>>) -> End {
    match written {
        Ok(Ok(Changed::Stored(_))) => End::Stored,
        Ok(_) => End::NotStored,
        Err(_) => End::Unknown,
    }
}

/// Replaces stored bytes unless they changed in between.
pub(crate) async fn put(
    context: &Context,
    kind: &Kind,
    stored: &KeyValue,
    value: Bytes,
) -> Result<std::result::Result<Changed, Option<KeyValue>>> {
    let op = Op::Put { value: value.clone(), ttl: kind.strategy.facts().ttl };
    Ok(match context.store.txn(&stored.key, Guard::ModRevision(stored.mod_revision), op).await? {
        Outcome::Committed { revision, .. } => {
            admission::learn(context, kind, revision).await;
            Ok(Changed::Stored(KeyValue { value, mod_revision: revision, ..stored.clone() }))
        }
        Outcome::Conflict { current } => Err(current),
    })
}

/// Upstream's words for a precondition that does not hold.
pub(crate) fn precondition(what: &str, wanted: &str, found: &str, key: &str) -> String {
    format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
    )
}

/// Whether a write takes away the last thing that kept a terminating object alive.
fn is_finished(kind: &Kind, new: &Value, old: &Value) -> bool {
    let none = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    let finished = none(&new["metadata"]["finalizers"])
        && old["metadata"]["deletionTimestamp"].is_string()
        && old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0;
    finished && !kind.strategy.is_held(new)
}

fn keep_system_fields(new: &mut Value, old: &Value) {
    for key in ["uid", "creationTimestamp"] {
        if new["metadata"][key].is_null() {
            new["metadata"][key] = old["metadata"][key].clone();
        }
    }
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        let value = old["metadata"][key].clone();
        match (value, new["metadata"].as_object_mut()) {
            (Value::Null, Some(metadata)) => {
                metadata.remove(key);
            }
            (value, _) => new["metadata"][key] = value,
        }
    }
    if let Some(metadata) = new["metadata"].as_object_mut() {
        metadata.remove("selfLink");
    }
}

/// Marks the specification as changed.
pub(crate) fn bump_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        object["metadata"]["generation"] = (generation + 1).into();
    }
}
