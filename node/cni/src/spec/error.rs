//! The error a plugin answers with: a code of the specification, a sentence, details.

use podwire_trace::chain;
use serde_json::{Value, json};

/// Codes of the specification and of the reference library.
/// <https://github.com/containernetworking/cni/blob/main/SPEC.md#error>
pub mod code {
    /// The plugin does not speak the configuration's version.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// A field has a value that is not supported.
    pub const UNSUPPORTED_FIELD: u32 = 2;
    /// The container is unknown; no clean-up needed.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// An environment variable is missing or wrong.
    pub const BAD_ENVIRONMENT: u32 = 4;
    /// Input or output failed.
    pub const IO: u32 = 5;
    /// The input is not what was expected.
    pub const DECODE: u32 = 6;
    /// The network configuration is wrong.
    pub const BAD_CONFIG: u32 = 7;
    /// The namespace is wrong.
    pub const BAD_NETNS: u32 = 8;
    /// Try again later.
    pub const TRY_AGAIN: u32 = 11;
    /// STATUS: ADD cannot be served.
    pub const UNAVAILABLE: u32 = 50;
    /// STATUS: ADD cannot be served and existing containers are limited.
    pub const LIMITED: u32 = 51;
    /// Anything else: what the reference plugins answer with.
    pub const INTERNAL: u32 = 999;
}

/// An answer that says no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{msg}{}{details}", if details.is_empty() { "" } else { "; " })]
pub struct CniError {
    /// The code.
    pub code: u32,
    /// What is wrong.
    pub msg: String,
    /// More about it.
    pub details: String,
}

impl CniError {
    /// An error with a code of its own.
    pub fn new(code: u32, msg: impl Into<String>) -> Self {
        Self { code, msg: msg.into(), details: String::new() }
    }

    /// Something failed that no code speaks of.
    pub fn internal(msg: impl Into<String>) -> Self {
        Self::new(code::INTERNAL, msg)
    }

    /// The configuration is wrong.
    pub fn config(msg: impl Into<String>) -> Self {
        Self::new(code::BAD_CONFIG, msg)
    }

    /// An attempt failed for a reason, with all its causes.
    pub fn because(attempt: impl std::fmt::Display, cause: &dyn std::error::Error) -> Self {
        Self::internal(format!("{attempt}: {}", chain(cause)))
    }

    /// With details.
    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// With a phrase before the message.
    #[must_use]
    pub fn context(mut self, phrase: &str) -> Self {
        self.msg = format!("{phrase}: {}", self.msg);
        self
    }

    /// As the specification prints it.
    pub fn to_value(&self, version: &str) -> Value {
        let mut value = json!({ "cniVersion": version, "code": self.code, "msg": self.msg });
        if !self.details.is_empty() {
            value["details"] = Value::from(self.details.clone());
        }
        value
    }

    /// Reads an error a plugin printed.
    pub fn from_value(value: &Value) -> Option<Self> {
        let object = super::Object::of(value, "error").ok()?;
        let code = object.u64("code").ok().flatten().and_then(|code| u32::try_from(code).ok())?;
        let text = |name| object.str(name).ok().flatten().unwrap_or_default().to_owned();
        Some(Self { code, msg: text("msg"), details: text("details") })
    }
}

impl From<podwire_linux::rtnl::Error> for CniError {
    fn from(error: podwire_linux::rtnl::Error) -> Self {
        Self::internal(chain(&error))
    }
}

impl From<podwire_linux::sysctl::Error> for CniError {
    fn from(error: podwire_linux::sysctl::Error) -> Self {
        Self::internal(chain(&error))
    }
}

impl From<podwire_linux::netns::Error> for CniError {
    fn from(error: podwire_linux::netns::Error) -> Self {
        let text = chain(&error);
        let mut own = Self::internal(text);
        if let podwire_linux::netns::Error::Absent { path } = &error {
            // Callers in the wild look for these words.
            own.msg =
                format!("failed to open netns {:?}: no such file or directory", path.display().to_string());
        }
        own
    }
}
