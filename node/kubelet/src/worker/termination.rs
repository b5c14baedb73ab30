//! A container's last words: its termination message file, or the end of its log.
//!
//! The container writes both, so neither is trusted: no link is followed, only a regular file is opened, and no more
//! is read than the status can show. Read beside the worker; it decides and publishes nothing meanwhile.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Container as Spec;
use podwire_linux::beneath;

use super::Worker;
use podwire_wire::ids::ContainerId;

use crate::{logs, ops::Done, paths};

const MESSAGE_LIMIT: usize = 4096;
const LOG_LINES: usize = 80;
const LOG_LIMIT: usize = 2048;

/// Where a container's last words may be found.
struct LastWords {
    /// The kubelet's root and the message's path below it.
    message: (PathBuf, PathBuf),
    /// The folder of logs and the log's path below it, if the log may speak for the container.
    log: Option<(PathBuf, PathBuf)>,
}

impl LastWords {
    fn read(&self) -> String {
        let (root, path) = &self.message;
        // Ignored: a container without the file, or with something else in its place, has left no message.
        let message = beneath::folder(root).and_then(|root| beneath::read_tail(root, path, MESSAGE_LIMIT));
        let message = String::from_utf8_lossy(&message.unwrap_or_default()).into_owned();
        match &self.log {
            Some((folder, path)) if message.is_empty() => {
                logs::last_lines(folder, path, LOG_LINES, LOG_LIMIT)
            }
            _ => message,
        }
    }
}

impl Worker {
    /// Begins to read the termination message of an ended container.
    pub(super) fn read_last_words(&mut self, id: &ContainerId, spec: &Spec) {
        let Some(container) = self.seen.observed.containers.get_mut(id) else { return };
        if container.message_read {
            return;
        }
        container.message_read = true;
        let config = &self.node.config;
        let (name, attempt) = (container.name.as_str(), container.attempt);
        let message = paths::termination_message(Path::new(""), &self.reference.uid, name, attempt);
        let fallback = spec.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        let log = (fallback && container.exit_code != 0).then(|| {
            let below = paths::pod_logs(Path::new(""), &self.reference);
            (config.log_dir.clone(), below.join(paths::container_log(name, attempt)))
        });
        let words = LastWords { message: (config.root_dir.clone(), message), log };
        self.seen.listening.insert(id.clone());
        let id = id.clone();
        self.ops.push(Box::pin(async move {
            // Ignored: a reader that panicked has read nothing.
            let message = tokio::task::spawn_blocking(move || words.read()).await.unwrap_or_default();
            Done::LastWords { id, message }
        }));
    }

    /// A termination message was read.
    pub(super) fn last_words(&mut self, id: &ContainerId, message: String) {
        self.seen.listening.remove(id);
        if let Some(container) = self.seen.observed.containers.get_mut(id).filter(|_| !message.is_empty()) {
            container.message = message;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(dir: &Path, log: bool) -> LastWords {
        let log = log.then(|| (dir.join("logs"), PathBuf::from("pod/app/0.log")));
        LastWords { message: (dir.to_owned(), PathBuf::from("pods/u/containers/app/0")), log }
    }

    #[test]
    fn of_a_message_as_large_as_a_disk_only_the_end_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("pods/u/containers/app");
        std::fs::create_dir_all(&folder).unwrap();
        let file = std::fs::File::create(folder.join("0")).unwrap();
        // Far more than this machine has memory.
        file.set_len(8 << 40).unwrap();
        assert_eq!(words(dir.path(), false).read().len(), MESSAGE_LIMIT);
        std::os::unix::fs::FileExt::write_all_at(&file, b"farewell", (8 << 40) - 8).unwrap();
        assert!(words(dir.path(), false).read().ends_with("\0farewell"));
    }

    #[test]
    fn links_and_fifos_say_nothing_and_the_log_speaks_instead() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("pods/u/containers/app");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(dir.path().join("logs/pod/app")).unwrap();
        std::fs::write(dir.path().join("secret"), "t stdout F secret\n").unwrap();
        let log = dir.path().join("logs/pod/app/0.log");
        std::os::unix::fs::symlink(dir.path().join("secret"), folder.join("0")).unwrap();
        std::fs::write(&log, "t stderr F it broke\n").unwrap();
        assert_eq!(words(dir.path(), true).read(), "it broke\n");
        std::fs::remove_file(&log).unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), &log).unwrap();
        assert_eq!(words(dir.path(), true).read(), "");
        for path in [&log, &folder.join("0")] {
            std::fs::remove_file(path).unwrap();
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
        }
        assert_eq!(words(dir.path(), true).read(), "");
    }
}
