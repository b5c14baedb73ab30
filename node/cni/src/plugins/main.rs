//! A plugin called as a program: environment and standard input in, standard output and exit code out.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Plugin, find, run};
use crate::spec::error::{CniError, code};
use crate::spec::request::{Command, Request, check_container_id, check_ifname, check_network};

/// How a plugin program is called.
pub struct Call<'a> {
    /// The plugin's name.
    pub plugin: &'a str,
    /// Looks an environment variable up.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Reads standard input; only done when the verb needs it.
    pub stdin: &'a mut dyn FnMut() -> std::io::Result<Vec<u8>>,
}

/// What the program prints and returns.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Exit code.
    pub exit: u8,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// The largest configuration read: far more than any real one.
pub const LARGEST: usize = 16 << 20;

/// Serves one call of a plugin program.
pub fn main(call: &mut Call<'_>) -> Answer {
    let Some(plugin) = find(call.plugin) else {
        let names: Vec<&str> = super::ALL.iter().map(|plugin| plugin.name).collect();
        let text =
            format!("podwire-cni: no plugin is called {:?}; there are: {}\n", call.plugin, names.join(", "));
        return Answer { exit: 1, stderr: text, ..Answer::default() };
    };
    let command = (call.env)("CNI_COMMAND").unwrap_or_default();
    if command.is_empty() {
        let text = format!(
            "CNI {} plugin podwire {}\nCNI protocol versions supported: {}\n",
            plugin.name,
            env!("CARGO_PKG_VERSION"),
            plugin.versions.join(", ")
        );
        return Answer { stderr: text, ..Answer::default() };
    }
    let mut version = String::new();
    match serve(plugin, &command, call, &mut version) {
        Ok(None) => Answer::default(),
        Ok(Some(value)) => Answer { stdout: pretty(&value), ..Answer::default() },
        Err(error) => {
            let version = if version.is_empty() { "1.1.0" } else { &version };
            Answer { exit: 1, stdout: pretty(&error.to_value(version)), ..Answer::default() }
        }
    }
}

fn serve(
    plugin: &Plugin,
    command: &str,
    call: &mut Call<'_>,
    version: &mut String,
) -> Result<Option<Value>, CniError> {
    let command = Command::parse(command)
        .ok_or_else(|| CniError::new(code::BAD_ENVIRONMENT, format!("unknown CNI_COMMAND: {command}")))?;
    if command == Command::Version {
        return Ok(Some(json!({ "cniVersion": "1.1.0", "supportedVersions": plugin.versions })));
    }
    let mut request = environment(command, call.env)?;
    let bytes = (call.stdin)()
        .map_err(|error| CniError::new(code::IO, format!("error reading from stdin: {error}")))?;
    if bytes.len() > LARGEST {
        return Err(CniError::new(code::DECODE, format!("the configuration has more than {LARGEST} bytes")));
    }
    request.conf = serde_json::from_slice(&bytes)
        .map_err(|error| CniError::new(code::DECODE, format!("error unmarshall network config: {error}")))?;
    request
        .object()
        .map(|object| object.str("cniVersion").ok().flatten().unwrap_or_default().clone_into(version))?;
    check_network(&request.network()?)?;
    run(plugin.name, &request)
}

/// Reads the environment and names everything that is missing.
fn environment(command: Command, env: &dyn Fn(&str) -> Option<String>) -> Result<Request, CniError> {
    use Command::{Add, Check, Del, Gc, Status};
    let required: [(&str, &[Command]); 4] = [
        ("CNI_CONTAINERID", &[Add, Check, Del]),
        ("CNI_NETNS", &[Add, Check]),
        ("CNI_IFNAME", &[Add, Check, Del]),
        ("CNI_PATH", &[Add, Check, Del, Gc, Status]),
    ];
    let get = |name: &str| env(name).unwrap_or_default();
    let missing: Vec<&str> = required
        .iter()
        .filter(|(name, verbs)| verbs.contains(&command) && get(name).is_empty())
        .map(|(name, _)| *name)
        .collect();
    if !missing.is_empty() {
        return Err(CniError::new(
            code::BAD_ENVIRONMENT,
            format!("required env variables [{}] missing", missing.join(",")),
        ));
    }
    let request = Request {
        command,
        container_id: get("CNI_CONTAINERID"),
        netns: get("CNI_NETNS"),
        ifname: get("CNI_IFNAME"),
        args: get("CNI_ARGS"),
        path: std::env::split_paths(&get("CNI_PATH")).collect::<Vec<PathBuf>>(),
        netns_override: ["1", "TRUE"].contains(&get("CNI_NETNS_OVERRIDE").to_uppercase().as_str()),
        trace: ["TRACEPARENT", "TRACESTATE", "BAGGAGE"]
            .iter()
            .filter_map(|name| env(name).map(|value| ((*name).to_owned(), value)))
            .collect(),
        netns_is_dying: false,
        is_program: true,
        conf: Value::Null,
    };
    if matches!(command, Add | Check | Del) {
        check_container_id(&request.container_id)?;
        check_ifname(&request.ifname)?;
    }
    Ok(request)
}

/// JSON with four spaces, as the reference plugins print it.
pub fn pretty(value: &Value) -> String {
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    match serde::Serialize::serialize(value, &mut serializer) {
        Ok(()) => out.push(b'\n'),
        Err(error) => return format!("{{\"code\":999,\"msg\":{:?}}}\n", error.to_string()),
    }
    String::from_utf8(out).unwrap_or_default()
}
