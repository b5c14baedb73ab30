//! A container's last words: its termination message file, or the end of its log.

use k8s_openapi::api::core::v1::Container as Spec;

use super::Worker;
use crate::{logs, paths};

const MESSAGE_LIMIT: usize = 4096;
const LOG_LINES: usize = 80;
const LOG_LIMIT: usize = 2048;

impl Worker {
    /// Puts the termination message of an ended container into what is known of it.
    pub(super) fn read_last_words(&mut self, id: &str, spec: &Spec) {
        let Some(container) = self.observed.containers.get_mut(id) else { return };
        if container.message_read {
            return;
        }
        container.message_read = true;
        let file = paths::termination_message(
            &self.node.config.root_dir,
            &self.reference.uid,
            &container.name,
            container.attempt,
        );
        // Ignored: a container without the file has left no message.
        let mut message =
            std::fs::read(&file).ok().map(|bytes| tail(&bytes, MESSAGE_LIMIT)).unwrap_or_default();
        let fallback = spec.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        if message.is_empty() && fallback && container.exit_code != 0 {
            message = logs::last_lines(std::path::Path::new(&container.log_path), LOG_LINES, LOG_LIMIT);
        }
        if !message.is_empty() {
            container.message = message;
        }
    }
}

fn tail(bytes: &[u8], limit: usize) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(limit)..]).into_owned()
}
