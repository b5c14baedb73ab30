//! Ends of containers: exits noticed, leftovers killed, cgroups removed.

use podwire_linux::pidfd;
use rustix::event::epoll::EventFlags;

use super::clients::Reply;
use super::container::{Container, Deleting, Exited, Phase};
use super::note;
use super::poll::{Poll, now};
use super::server::{Server, not_found, refusal};
use crate::error::RefusalKind;
use crate::protocol::Refusal;
use crate::request::Event;

/// Tries at intervals of two milliseconds before a delete gives up.
const MOST_TRIES: u32 = 5000;
/// The exit code of a process whose end nobody saw.
pub(super) const UNKNOWN: i32 = 255;

/// How a process ended that is not our child. Its code can be read once its parent has reaped it,
/// which its pidfd tells as a hang-up; until then `None`.
fn stranger(container: &mut Container, poll: &mut Poll) -> Option<pidfd::Exit> {
    match pidfd::exit_of_stranger(&container.process.pidfd) {
        pidfd::Stranger::Ended(exit) => return Some(exit),
        pidfd::Stranger::Never => return Some(pidfd::Exit::Code(UNKNOWN)),
        pidfd::Stranger::NotYet => {}
    }
    let token = container.process.pidfd_token?;
    let waits = !std::mem::replace(&mut container.waits_for_reaping, true)
        && poll.change(&container.process.pidfd, token, EventFlags::empty()).is_ok();
    // A kernel that is told of the reaping and kept no exit code leaves us with "unknown".
    (!waits).then_some(pidfd::Exit::Code(UNKNOWN))
}

impl Server {
    /// A container's init has ended, or so its pidfd says.
    pub(super) fn container_ended(&mut self, id: &str) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.has_exited() {
            return;
        }
        if container.oci_runtime.is_some() && matches!(container.phase, Phase::Starting(_)) {
            // Its runtime is about to say that it has started; then we look again.
            if let Some(token) = container.process.pidfd_token.take() {
                self.poll.remove(&container.process.pidfd, token);
            }
            return;
        }
        let exit = match pidfd::reap(&container.process.pidfd) {
            Ok(Some(exit)) => exit,
            Ok(None) => return,
            Err(_) => match stranger(container, &mut self.poll) {
                Some(exit) => exit,
                None => return,
            },
        };
        if container.oci_runtime.is_some() && matches!(container.phase, Phase::Creating(_)) {
            return self.oci_runtime_created(id, exit);
        }
        if let Some(token) = container.process.pidfd_token.take() {
            self.poll.remove(&container.process.pidfd, token);
        }
        if !container.own_pids
            && let Some(group) = &container.group
            && let Err(error) = group.signal(libc::SIGKILL)
        {
            note(&format!("container {id}: what is left of it not killed: {error}"));
        }
        container.drain(&mut self.poll);
        let oom = container.oom_watch
            && exit.code() != 0
            && container.group.as_ref().is_some_and(|group| group.oom_kills() > 0);
        let at = now();
        let exited = Exited { code: exit.code(), signal: exit.signal(), oom, at };
        container.phase = Phase::Exited(exited);
        self.journal.exited(id, exited);
        container.stdin = None;
        if container.deleting.is_some() {
            self.continue_deletion(id);
            return;
        }
        if container.start_failed {
            return;
        }
        let event = Event::Exited { id: id.to_owned(), code: exit.code(), signal: exit.signal(), oom, at };
        self.announce(&event);
    }

    /// Takes back a container that could not be created; the caller hears why when it is gone.
    pub(super) fn abandon(&mut self, id: &str, reply: Reply, verdict: Refusal) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.deleting.is_some() {
            // The first reason is the one to be told.
            return;
        }
        // Ignored: it is gone already, which is what we want.
        container.process.signal(libc::SIGKILL).ok();
        container.deleting = Some(Deleting { replies: vec![reply], tries: 0, verdict: Some(verdict) });
        if container.has_exited() {
            self.continue_deletion(id);
        } else {
            self.container_ended(id);
        }
    }

    pub(super) fn delete(&mut self, reply: Reply, id: &str) -> Result<(), Refusal> {
        let Some(container) = self.containers.get_mut(id) else { return Err(not_found(id)) };
        match &mut container.deleting {
            Some(deleting) => deleting.replies.push(reply),
            None => container.deleting = Some(Deleting { replies: vec![reply], tries: 0, verdict: None }),
        }
        if container.has_exited() {
            self.continue_deletion(id);
        } else {
            // Ignored: it is gone already, and its pidfd will say so.
            container.process.signal(libc::SIGKILL).ok();
        }
        Ok(())
    }

    pub(super) fn has_deletions(&self) -> bool {
        self.containers.values().any(|c| c.deleting.is_some() && c.has_exited())
    }

    pub(super) fn continue_deletions(&mut self) {
        let waiting =
            |(id, c): (&String, &Container)| (c.deleting.is_some() && c.has_exited()).then(|| id.clone());
        let ids: Vec<_> = self.containers.iter().filter_map(waiting).collect();
        for id in ids {
            self.continue_deletion(&id);
        }
    }

    /// Kills what is left, removes the cgroup and answers, or leaves it for the next round.
    fn continue_deletion(&mut self, id: &str) {
        if !self.oci_runtime_is_deleted(id) {
            return;
        }
        let Some(container) = self.containers.get_mut(id) else { return };
        let Some(deleting) = &mut container.deleting else { return };
        let mut failure = None;
        let execs_run = container.execs.values().any(|exec| exec.exit_code.is_none());
        if let Some(group) = &container.group {
            match group.try_remove() {
                Ok(true) => {}
                Ok(false) => {
                    deleting.tries += 1;
                    if deleting.tries < MOST_TRIES {
                        if deleting.tries.is_multiple_of(50) || deleting.tries == 1 {
                            // Ignored: the next round tries again.
                            group.signal(libc::SIGKILL).ok();
                        }
                        return;
                    }
                    let pids = group.processes().unwrap_or_default();
                    failure = Some(format!("cgroup {:?} still has processes {pids:?}", group.path()));
                }
                Err(error) => failure = Some(error.to_string()),
            }
        } else if execs_run && deleting.tries < MOST_TRIES {
            deleting.tries += 1;
            for exec in container.execs.values() {
                // Ignored: gone is what we want.
                exec.process.signal(libc::SIGKILL).ok();
            }
            return;
        }
        if self.stop_hooks_are_done(id) {
            self.finish_deletion(id, failure);
        }
    }

    fn finish_deletion(&mut self, id: &str, failure: Option<String>) {
        let execs: Vec<String> = match self.containers.get(id) {
            Some(container) => container.execs.keys().cloned().collect(),
            None => return,
        };
        for exec in &execs {
            self.exec_reported(id, exec);
            self.exec_ended(id, exec);
        }
        let Some(mut container) = self.containers.remove(id) else { return };
        self.journal.dropped(id, &self.containers);
        container.drain(&mut self.poll);
        container.close_outputs(&mut self.poll);
        if let Some(token) = container.process.pidfd_token.take() {
            self.poll.remove(&container.process.pidfd, token);
        }
        if let Some((status, token)) = container.process.status.take() {
            self.poll.remove(&status, token);
        }
        let Some(deleting) = container.deleting.take() else { return };
        for reply in deleting.replies {
            match (&deleting.verdict, &failure) {
                (Some(verdict), _) => self.refuse(reply, verdict.clone()),
                (None, Some(failure)) => self.refuse(reply, refusal(RefusalKind::Internal, failure.clone())),
                (None, None) => self.answer(reply, &()),
            }
        }
    }
}
