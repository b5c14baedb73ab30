//! One network's plugins run for one attachment, in the order the specification gives.

use serde_json::{Map, Value, json};

use super::conflist::Conflist;
use super::{Attachment, Error, RuntimeConfig};
use crate::plugins;
use crate::plugins::exec;
use crate::spec::error::{CniError, code};
use crate::spec::request::{Command, Request};
use crate::spec::result::CniResult;
use crate::spec::version::Version;
use crate::traced;

/// A chain of plugins ready to run.
pub(crate) struct Chain<'a> {
    config: &'a RuntimeConfig,
    conflist: &'a Conflist,
    attachment: &'a Attachment,
    netns_is_dying: bool,
}

/// What became of a DEL.
#[derive(Default)]
pub(crate) struct Deleted {
    /// Steps that failed, with their errors.
    pub(crate) failed: Vec<(usize, Error)>,
}

impl<'a> Chain<'a> {
    pub(crate) fn new(config: &'a RuntimeConfig, conflist: &'a Conflist, attachment: &'a Attachment) -> Self {
        Self { config, conflist, attachment, netns_is_dying: false }
    }

    /// The caller removes the namespace next.
    pub(crate) fn dying(mut self, dying: bool) -> Self {
        self.netns_is_dying = dying;
        self
    }

    /// How many plugins it has.
    pub(crate) fn len(&self) -> usize {
        self.conflist.plugins.len()
    }

    /// The standard input of the n-th plugin.
    fn conf(&self, step: usize, extra: Map<String, Value>) -> Value {
        let mut conf = self.conflist.plugins[step].clone();
        let capabilities = conf.remove("capabilities");
        conf.insert("name".into(), Value::from(self.conflist.name.clone()));
        conf.insert("cniVersion".into(), Value::from(self.conflist.version.to_string()));
        if let Some(Value::Object(wanted)) = capabilities {
            let given: Map<String, Value> = self
                .attachment
                .capability_args
                .iter()
                .filter(|(name, _)| wanted.get(*name) == Some(&Value::Bool(true)))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            if !given.is_empty() {
                conf.insert("runtimeConfig".into(), Value::Object(given));
            }
        }
        conf.extend(extra);
        Value::Object(conf)
    }

    fn request(&self, command: Command, step: usize, netns: &str, extra: Map<String, Value>) -> Request {
        let mut args = vec!["IgnoreUnknown=1".to_owned()];
        args.extend(
            self.attachment
                .args
                .iter()
                .filter(|(key, _)| key != "IgnoreUnknown")
                .map(|(key, value)| format!("{key}={value}")),
        );
        Request {
            command,
            container_id: self.attachment.container_id.clone(),
            netns: netns.to_owned(),
            ifname: self.attachment.ifname.clone(),
            args: args.join(";"),
            path: self.config.bin_dirs.clone(),
            netns_override: false,
            trace: self
                .attachment
                .traceparent
                .iter()
                .map(|trace| ("TRACEPARENT".to_owned(), trace.clone()))
                .collect(),
            netns_is_dying: self.netns_is_dying,
            is_program: false,
            conf: self.conf(step, extra),
        }
    }

    fn call(
        &self,
        command: Command,
        step: usize,
        netns: &str,
        extra: Map<String, Value>,
    ) -> Result<Option<Value>, Error> {
        let kind = self.conflist.kind(step);
        let request = self.request(command, step, netns, extra);
        let ours =
            self.config.builtin && plugins::find(kind).is_some() && !exec::is_shadowed(kind, &request.path);
        let call = || {
            if ours { plugins::run(kind, &request) } else { exec::run(kind, &request, self.config.timeout) }
        };
        traced::plugin(kind, &request, call).map_err(|error| self.refused(command, step, error))
    }

    fn refused(&self, command: Command, step: usize, error: CniError) -> Error {
        Error::Plugin { plugin: self.conflist.kind(step).to_owned(), command: command.as_str(), error }
    }

    fn prev(&self, result: Option<&CniResult>) -> Result<Map<String, Value>, CniError> {
        let mut extra = Map::new();
        if let Some(result) = result {
            extra.insert("prevResult".into(), result.to_value(self.conflist.version)?);
        }
        Ok(extra)
    }

    /// Runs ADD in order; `before` is told of each step, with the result so far, before it runs.
    pub(crate) fn add(
        &self,
        mut before: impl FnMut(usize, Option<&CniResult>) -> Result<(), Error>,
    ) -> Result<CniResult, Error> {
        let netns = self.attachment.netns.display().to_string();
        let mut result = None;
        for step in 0..self.len() {
            before(step, result.as_ref())?;
            let refused = |error| self.refused(Command::Add, step, error);
            let extra = self.prev(result.as_ref()).map_err(refused)?;
            let answer = self.call(Command::Add, step, &netns, extra)?;
            let Some(value) = answer else {
                return Err(refused(CniError::internal("it printed no result")));
            };
            result = Some(CniResult::parse(&value, self.conflist.version).map_err(refused)?);
        }
        result.ok_or_else(|| self.refused(Command::Add, 0, CniError::config("no plugins in list")))
    }

    /// Runs CHECK in order.
    pub(crate) fn check(&self, result: &CniResult) -> Result<(), Error> {
        if self.conflist.version < Version::V0_4 {
            let text = format!(
                "configuration version {:?} does not support CHECK command",
                self.conflist.version.to_string()
            );
            return Err(self.refused(Command::Check, 0, CniError::new(code::INCOMPATIBLE_VERSION, text)));
        }
        if self.conflist.disable_check {
            return Ok(());
        }
        let netns = self.attachment.netns.display().to_string();
        for step in 0..self.len() {
            let extra = self.prev(Some(result)).map_err(|error| self.refused(Command::Check, step, error))?;
            self.call(Command::Check, step, &netns, extra)?;
        }
        Ok(())
    }

    /// Runs DEL for the first `steps` plugins in reverse order, going on past errors.
    pub(crate) fn del(&self, steps: usize, result: Option<&CniResult>, netns: &str) -> Deleted {
        let all: Vec<usize> = (0..steps.min(self.len())).collect();
        self.del_steps(&all, result, netns)
    }

    /// Runs DEL for these plugins in reverse order, going on past errors.
    pub(crate) fn del_steps(&self, steps: &[usize], result: Option<&CniResult>, netns: &str) -> Deleted {
        let mut deleted = Deleted::default();
        for step in steps.iter().rev().copied().filter(|step| *step < self.len()) {
            let prev = result.filter(|_| self.conflist.version >= Version::V0_4);
            let outcome = self
                .prev(prev)
                .map_err(|error| self.refused(Command::Del, step, error))
                .and_then(|extra| self.call(Command::Del, step, netns, extra));
            if let Err(error) = outcome {
                deleted.failed.push((step, error));
            }
        }
        deleted
    }

    /// Lets every plugin sweep; goes on past errors and returns the first.
    pub(crate) fn gc(&self, keep: &[Attachment]) -> Result<(), Error> {
        let list: Value = keep
            .iter()
            .map(|attachment| json!({ "containerID": attachment.container_id, "ifname": attachment.ifname }))
            .collect();
        let mut first = None;
        for step in 0..self.len() {
            let mut extra = Map::new();
            extra.insert("cni.dev/valid-attachments".into(), list.clone());
            extra.insert("cni.dev/attachments".into(), list.clone());
            if let Err(error) = self.call(Command::Gc, step, "", extra) {
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Asks every plugin whether ADD can be served. A full range is not allowed to hide what else is wrong.
    pub(crate) fn status(&self) -> Result<(), Error> {
        let mut full = None;
        for step in 0..self.len() {
            match self.call(Command::Status, step, "", Map::new()) {
                Err(error) if error.is_exhaustion() => {
                    full.get_or_insert(error);
                }
                answer => drop(answer?),
            }
        }
        full.map_or(Ok(()), Err)
    }
}
