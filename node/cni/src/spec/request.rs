//! What a plugin is asked: a command, an attachment, a configuration; checked before anything is touched.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::{CniError, code};
use super::json::Object;
use super::result::CniResult;
use super::version::Version;

/// A verb of the specification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Command {
    /// Attach.
    Add,
    /// Detach.
    Del,
    /// Compare the world with what ADD made.
    Check,
    /// Remove what belongs to nobody.
    Gc,
    /// Can ADD be served?
    Status,
    /// Which versions?
    Version,
}

impl Command {
    /// As in `CNI_COMMAND`.
    pub fn as_str(self) -> &'static str {
        match self {
            Command::Add => "ADD",
            Command::Del => "DEL",
            Command::Check => "CHECK",
            Command::Gc => "GC",
            Command::Status => "STATUS",
            Command::Version => "VERSION",
        }
    }

    /// From `CNI_COMMAND`.
    pub fn parse(text: &str) -> Option<Command> {
        let all =
            [Command::Add, Command::Del, Command::Check, Command::Gc, Command::Status, Command::Version];
        all.into_iter().find(|command| command.as_str() == text)
    }
}

/// One call of a plugin.
#[derive(Clone, Debug)]
pub struct Request {
    /// The verb.
    pub command: Command,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`, as given.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`, as given.
    pub args: String,
    /// `CNI_PATH`.
    pub path: Vec<PathBuf>,
    /// `CNI_NETNS_OVERRIDE`: the plugin's own namespace is allowed.
    pub netns_override: bool,
    /// `TRACEPARENT` and its companions.
    pub trace: Vec<(String, String)>,
    /// DEL in process: the caller removes the namespace next, and its links with it.
    pub netns_is_dying: bool,
    /// This process has one thread, serves this request and then ends: it may leave a child behind.
    pub is_program: bool,
    /// The plugin's configuration.
    pub conf: Value,
}

impl Request {
    /// The configuration as an object.
    pub fn object(&self) -> Result<Object<'_>, CniError> {
        Object::of(&self.conf, "").map_err(|error| error.context("failed to load netconf"))
    }

    /// The version the configuration speaks.
    pub fn version(&self) -> Result<Version, CniError> {
        Version::parse(self.object()?.str("cniVersion")?.unwrap_or_default())
    }

    /// The network's name.
    pub fn network(&self) -> Result<String, CniError> {
        Ok(self.object()?.str("name")?.unwrap_or_default().to_owned())
    }

    /// The result of the plugins before, if there is one.
    pub fn prev_result(&self) -> Result<Option<CniResult>, CniError> {
        let object = self.object()?;
        match object.get("prevResult") {
            None => Ok(None),
            Some(value) => CniResult::parse(value, self.version()?).map(Some).map_err(|error| CniError {
                code: code::DECODE,
                ..error.context("could not parse prevResult")
            }),
        }
    }

    /// The result of the plugins before, which a chained plugin cannot do without.
    pub fn required_prev_result(&self) -> Result<CniResult, CniError> {
        self.prev_result()?.ok_or_else(|| CniError::config("required prevResult missing"))
    }

    /// The value of one key of `CNI_ARGS`; unknown keys are refused unless `IgnoreUnknown` says otherwise.
    pub fn arg(&self, wanted: &str, known: &[&str]) -> Result<Option<String>, CniError> {
        let mut found = None;
        let mut ignore_unknown = false;
        let mut unknown = None;
        for pair in self.args.split(';').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=').filter(|(_, value)| !value.contains('=')) else {
                return Err(CniError::new(code::BAD_ENVIRONMENT, format!("ARGS: invalid pair {pair:?}")));
            };
            if key == "IgnoreUnknown" {
                ignore_unknown = value == "1" || value.eq_ignore_ascii_case("true");
            } else if key == wanted {
                found = Some(value.to_owned());
            } else if !known.contains(&key) {
                unknown = unknown.or(Some(pair));
            }
        }
        match unknown {
            Some(pair) if !ignore_unknown => {
                Err(CniError::new(code::BAD_ENVIRONMENT, format!("ARGS: unknown args [{pair:?}]")))
            }
            _ => Ok(found),
        }
    }

    /// The attachments GC must keep, as (container, interface).
    pub fn valid_attachments(&self) -> Result<Vec<(String, String)>, CniError> {
        let object = self.object()?;
        let key = "cni.dev/valid-attachments";
        let key = if object.get(key).is_some() { key } else { "cni.dev/attachments" };
        let mut keep = Vec::new();
        for item in object.objects(key)? {
            let text = |name| Ok::<_, CniError>(item.str(name)?.unwrap_or_default().to_owned());
            keep.push((text("containerID")?, text("ifname")?));
        }
        Ok(keep)
    }

    /// The path of the namespace, when one was given.
    pub fn netns_path(&self) -> Option<&Path> {
        (!self.netns.is_empty()).then(|| Path::new(&self.netns))
    }

    /// The same call with another verb.
    pub fn with_command(&self, command: Command) -> Request {
        Request { command, ..self.clone() }
    }
}

/// Whether the text is a legal container or network identifier.
pub fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

/// Refuses a container identifier that is not one.
pub fn check_container_id(id: &str) -> Result<(), CniError> {
    let bad = |msg: String| Err(CniError::new(code::BAD_ENVIRONMENT, msg));
    if id.is_empty() {
        return bad("missing containerID".into());
    }
    if is_identifier(id) { Ok(()) } else { bad(format!("invalid characters in containerID {id:?}")) }
}

/// Refuses an interface name the kernel would refuse.
/// `dev_valid_name` in <https://github.com/torvalds/linux/blob/v6.12/net/core/dev.c>.
pub fn check_ifname(name: &str) -> Result<(), CniError> {
    let bad = |why: &str| Err(CniError::new(code::BAD_ENVIRONMENT, format!("CNI_IFNAME {name:?}: {why}")));
    match name {
        "" => bad("interface name is empty"),
        "." | ".." => bad("interface name is . or .."),
        _ if name.len() > 15 => bad("interface name is too long"),
        _ if name.chars().any(|c| c == '/' || c == ':' || c.is_whitespace()) => {
            bad("interface name contains / or : or whitespace characters")
        }
        _ => Ok(()),
    }
}

/// Refuses a network name that is not one.
pub fn check_network(name: &str) -> Result<(), CniError> {
    if name.is_empty() {
        return Err(CniError::config("missing network name"));
    }
    if is_identifier(name) {
        Ok(())
    } else {
        Err(CniError::config(format!("invalid characters found in network name {name:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_args(args: &str) -> Request {
        Request {
            command: Command::Add,
            container_id: "c".into(),
            netns: String::new(),
            ifname: "eth0".into(),
            args: args.into(),
            path: Vec::new(),
            netns_override: false,
            trace: Vec::new(),
            netns_is_dying: false,
            is_program: false,
            conf: Value::Null,
        }
    }

    #[test]
    fn unknown_arguments_are_refused_unless_ignored() {
        assert_eq!(with_args("IP=10.0.0.1").arg("IP", &[]).expect("known").as_deref(), Some("10.0.0.1"));
        assert!(with_args("X=1;IP=10.0.0.1").arg("IP", &[]).is_err());
        assert!(with_args("IgnoreUnknown=true;X=1").arg("IP", &[]).expect("ignored").is_none());
        assert!(with_args("A").arg("IP", &["A"]).is_err());
        assert!(with_args("A=b=c").arg("IP", &["A"]).is_err());
    }

    #[test]
    fn names_that_could_escape_are_refused() {
        for id in ["", "../x", "a/b", "-a", "a b"] {
            assert!(check_container_id(id).is_err(), "{id}");
            assert!(check_network(id).is_err(), "{id}");
        }
        for name in ["", ".", "..", "a/b", "a:b", "a b", "sixteen-chars-xx"] {
            assert!(check_ifname(name).is_err(), "{name}");
        }
        assert!(check_ifname("fifteen-chars-x").is_ok());
    }
}
