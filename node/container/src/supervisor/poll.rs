//! epoll with typed sources, and the clock.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use serde::{Deserialize, Serialize};

/// Nanoseconds since the Unix epoch.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Which of a container's processes a source belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Whose {
    pub(super) container: String,
    /// `None` is its init.
    pub(super) exec: Option<String>,
}

/// Which of a container's output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    Listener,
    Client(u64),
    /// A process may have ended.
    Process(Whose),
    /// A child reports.
    Status(Whose),
    /// A container wrote something.
    Output(String, Stream),
    /// A program that runs beside the containers may have ended.
    Helper(u64),
    /// An attach session can take more, or is gone.
    Sink(String, u64),
}

/// A token of the poll, to be given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Token(u64);

/// All sources we wait for.
#[derive(Debug)]
pub(super) struct Poll {
    epoll: OwnedFd,
    sources: HashMap<u64, Source>,
    next: u64,
}

impl Poll {
    pub(super) fn new() -> io::Result<Poll> {
        Ok(Poll { epoll: epoll::create(CreateFlags::CLOEXEC)?, sources: HashMap::new(), next: 0 })
    }

    pub(super) fn add(&mut self, fd: impl AsFd, source: Source, flags: EventFlags) -> io::Result<Token> {
        let token = self.next;
        epoll::add(&self.epoll, fd, EventData::new_u64(token), flags)?;
        self.next += 1;
        self.sources.insert(token, source);
        Ok(Token(token))
    }

    pub(super) fn change(&mut self, fd: impl AsFd, token: Token, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, EventData::new_u64(token.0), flags)?)
    }

    /// Must come before the descriptor is closed: a copy elsewhere would keep it in the set.
    pub(super) fn remove(&mut self, fd: impl AsFd, token: Token) {
        if self.sources.remove(&token.0).is_some() {
            // Ignored: a descriptor that is not in the set is what we want.
            epoll::delete(&self.epoll, fd).ok();
        }
    }

    /// Waits; an empty list when `timeout` passed first.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> io::Result<Vec<(Token, Source, EventFlags)>> {
        let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 64];
        let timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let count = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let known = |event: &epoll::Event| {
            let source = self.sources.get(&event.data.u64())?;
            Some((Token(event.data.u64()), source.clone(), event.flags))
        };
        Ok(events[..count].iter().filter_map(known).collect())
    }

    /// True while the source is still registered: an earlier event may have removed it.
    pub(super) fn has(&self, token: Token) -> bool {
        self.sources.contains_key(&token.0)
    }
}
