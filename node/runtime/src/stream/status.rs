//! How a session ended, as the error channel carries it: a Kubernetes Status, or text before v4.

use serde_json::json;

use super::negotiate::Version;
use crate::stream::backend::BackendError;

/// The end of a session.
#[derive(Debug)]
pub(super) enum Ended {
    /// The process or attachment ended with this code.
    Exit(i32),
    /// The session could not be opened or broke.
    Failed(String),
}

impl Ended {
    /// An error with its causes, in one line.
    pub(super) fn failed(verb: &str, error: &BackendError) -> Self {
        Self::Failed(format!("error {verb} container: {}", podwire_trace::chain(error)))
    }
}

/// The bytes for the error channel; before v4 a good end is told by silence.
pub(super) fn encode(ended: &Ended, version: Version) -> Vec<u8> {
    let exit_text = |code: i32| format!("command terminated with non-zero exit code: exit status {code}");
    if version < Version::V4 {
        return match ended {
            Ended::Exit(0) => Vec::new(),
            Ended::Exit(code) => exit_text(*code).into_bytes(),
            Ended::Failed(message) => message.clone().into_bytes(),
        };
    }
    let status = match ended {
        Ended::Exit(0) => json!({ "metadata": {}, "status": "Success" }),
        Ended::Exit(code) => json!({
            "metadata": {},
            "status": "Failure",
            "message": exit_text(*code),
            "reason": "NonZeroExitCode",
            "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
        }),
        Ended::Failed(message) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("Internal error occurred: {message}"),
            "reason": "InternalError",
            "details": { "causes": [{ "message": message }] },
            "code": 500,
        }),
    };
    status.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_is_a_cause_of_the_status() {
        let status: serde_json::Value =
            serde_json::from_slice(&encode(&Ended::Exit(3), Version::V4)).unwrap();
        assert_eq!(status["reason"], "NonZeroExitCode");
        assert_eq!(status["details"]["causes"][0]["message"], "3");
        assert!(encode(&Ended::Exit(0), Version::V3).is_empty());
        let good: serde_json::Value = serde_json::from_slice(&encode(&Ended::Exit(0), Version::V5)).unwrap();
        assert_eq!(good["status"], "Success");
    }
}
