//! How a plugin learns from its environment that a runtime started it: name, place and a connection already made.
//!
//! The descriptor itself stays open beside the copy taken of it, as only `unsafe` code could take it away: a program that
//! starts others should not let them have it.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::Stub;

const NAME: &str = "NRI_PLUGIN_NAME";
const INDEX: &str = "NRI_PLUGIN_IDX";
const SOCKET: &str = "NRI_PLUGIN_SOCKET";

/// Why what a runtime left in the environment is of no use.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// The descriptor is not a number that one may have.
    #[error("{SOCKET} is {0:?}, which is no descriptor beside the three standard ones")]
    Number(OsString),
    /// A name or place that is not text.
    #[error("{variable} is {value:?}, which is not text")]
    Text {
        /// Which one.
        variable: &'static str,
        /// What it is.
        value: OsString,
    },
    /// There is no such descriptor.
    #[error("take descriptor {number}")]
    Take {
        /// Which one.
        number: i32,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is one, and it is no connection.
    #[error("descriptor {number} is not a connected stream")]
    NoStream {
        /// Which one.
        number: i32,
    },
}

impl Stub {
    /// Heeds how the program was started: one that a runtime started uses the name, the place and the connection the
    /// runtime gave it (`NRI_PLUGIN_NAME`, `NRI_PLUGIN_IDX`, `NRI_PLUGIN_SOCKET`); any other stays as it is.
    ///
    /// The environment is an argument: `Stub::new("net", "10").with_environment(std::env::vars_os())`.
    pub fn with_environment(
        mut self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, EnvironmentError> {
        let text = |variable, value: OsString| {
            value.into_string().map_err(|value| EnvironmentError::Text { variable, value })
        };
        for (key, value) in environment {
            match key.to_str() {
                Some(NAME) => self.name = text(NAME, value)?,
                Some(INDEX) => self.index = text(INDEX, value)?,
                Some(SOCKET) => self.descriptor = Some(Arc::new(take(value)?)),
                _ => {}
            }
        }
        Ok(self)
    }
}

fn take(value: OsString) -> Result<OwnedFd, EnvironmentError> {
    let number = value.to_str().and_then(|text| text.parse::<i32>().ok()).filter(|number| *number > 2);
    let number = number.ok_or(EnvironmentError::Number(value))?;
    let failed = |error: rustix::io::Errno| EnvironmentError::Take { number, source: error.into() };
    let this = pidfd_open(getpid(), PidfdFlags::empty()).map_err(failed)?;
    let socket = pidfd_getfd(&this, number, PidfdGetfdFlags::empty()).map_err(failed)?;
    let stream = sockopt::socket_type(&socket).is_ok_and(|kind| kind == SocketType::STREAM)
        && sockopt::socket_domain(&socket).is_ok_and(|family| family == AddressFamily::UNIX);
    if stream { Ok(socket) } else { Err(EnvironmentError::NoStream { number }) }
}
