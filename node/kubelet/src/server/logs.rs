//! Container logs over HTTP: selected, cut, and followed while the container runs.
//!
//! Tasks: one per request; it ends when the client goes, the limit is reached, or the container is done. Files are read
//! on threads that may block. A log's folder may be open to others: no link is followed, only a regular file is read, and
//! of a line without an end no more is kept than a runtime would write.

use std::{
    convert::Infallible,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::{FutureExt, StreamExt};
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use inotify::{EventStream, Inotify, WatchMask};
use jiff::Timestamp;
use podwire_linux::beneath;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use podwire_wire::ids::{ContainerName, PodUid};

use super::{Body, Query, Refusal};
use crate::{
    logs,
    node::{Known, Node},
    paths,
    spec::{self, PodRef},
    status,
    volumes::plain,
};

const CHUNK: usize = 64 * 1024;
/// Runtimes cut lines at 16 KiB; whatever is longer was not written by one.
const LINE_LIMIT: usize = 1 << 20;
/// A follower looks by itself this often, should a notice be lost.
const LOOK: Duration = Duration::from_secs(5);

/// What of a log is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    follow: bool,
    previous: bool,
    timestamps: bool,
    tail: Option<u64>,
    since: Option<Timestamp>,
    limit: Option<u64>,
    stream: Option<String>,
}

impl Options {
    fn read(query: &Query, now: Timestamp) -> Result<Options, Refusal> {
        let number = |key: &str| match query.first(key) {
            None | Some("") => Ok(None),
            Some(text) => text
                .parse::<u64>()
                .map(Some)
                .map_err(|_| Refusal::bad_request(format!("unable to decode {key}"))),
        };
        let mut since =
            number("sinceSeconds")?.and_then(|seconds| now.checked_sub(Duration::from_secs(seconds)).ok());
        if let Some(text) = query.first("sinceTime").filter(|t| !t.is_empty()) {
            since = Some(text.parse().map_err(|_| Refusal::bad_request("unable to decode sinceTime"))?);
        }
        let stream = query.first("stream").filter(|s| !s.is_empty() && *s != "All").map(str::to_lowercase);
        Ok(Options {
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            tail: number("tailLines")?.or(number("tail")?),
            since,
            limit: number("limitBytes")?,
            stream,
        })
    }
}

/// Answers with the container's log.
pub(super) async fn serve(
    node: &Arc<Node>,
    known: &Known,
    container: &str,
    query: &Query,
) -> Result<Response<Body>, Refusal> {
    let options = Options::read(query, crate::clock::now())?;
    let log = locate(node, known, container, options.previous)?;
    // Where to begin is settled before the client hears anything, so that it misses nothing written after.
    let requested = options.clone();
    let opened = blocking(move || Opened::at(log, &requested)).await.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Refusal::not_found(format!("log file of \"{container}\" not found")),
        _ => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("open the log: {error}")),
    })?;
    let (sender, receiver) = mpsc::channel::<Result<Frame<Bytes>, Infallible>>(4);
    let (node, name, uid) = (node.clone(), container.into(), spec::uid(&known.pod).into());
    node.tasks.clone().spawn(async move {
        let stop = node.shutdown.clone();
        let alive = Alive { node, uid, container: name };
        tokio::select! {
            () = stop.cancelled() => {}
            result = copy(opened, &options, &alive, &sender) => if let Err(error) = result {
                tracing::debug!(error = %error, "log not read to its end");
            }
        }
    });
    let mut response = Response::new(StreamBody::new(ReceiverStream::new(receiver)).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// The log file that is meant.
fn locate(node: &Node, known: &Known, container: &str, previous: bool) -> Result<Log, Refusal> {
    let reference = PodRef::of(&known.pod);
    let pod = &reference.name;
    if spec::find_container(&known.pod, container).is_none() {
        let text = format!("container \"{container}\" not found in pod \"{pod}\"");
        return Err(Refusal::new(StatusCode::NOT_FOUND, text));
    }
    let entry = known.status.as_ref().and_then(|s| status::container_entry(s, container));
    let waits = |reason: &str| {
        Refusal::bad_request(format!(
            "container \"{container}\" in pod \"{pod}\" is waiting to start: {reason}"
        ))
    };
    let entry = entry.ok_or_else(|| waits("ContainerCreating"))?;
    let ended_before = entry.last_state.as_ref().is_some_and(|s| s.terminated.is_some());
    let state = entry.state.clone().unwrap_or_default();
    let current = u32::try_from(entry.restart_count).unwrap_or_default();
    let attempt = match (previous, &state.waiting) {
        (true, None) if ended_before => current.checked_sub(1),
        // A container that backs off shows its last run as current, and the one before as previous.
        (true, Some(_)) if ended_before => Some(current),
        (true, _) => None,
        (false, Some(_)) if ended_before => Some(current),
        (false, Some(waiting)) => {
            let reason = waiting.reason.as_deref().unwrap_or_default();
            let trying = match (reason, waiting.message.as_deref()) {
                ("ErrImagePull" | "ImagePullBackOff", _) => "trying and failing to pull image",
                (other, _) => other,
            };
            return Err(waits(trying));
        }
        (false, None) => Some(current),
    };
    let attempt = attempt.ok_or_else(|| {
        Refusal::bad_request(format!(
            "previous terminated container \"{container}\" in pod \"{pod}\" not found"
        ))
    })?;
    let below = paths::pod_logs(Path::new(""), &reference).join(paths::container_log(container, attempt));
    Ok(Log { folder: node.config.log_dir.clone(), below })
}

/// Runs something that may block where it holds nobody up.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// A log by its folder, which is ours, and its path below, which is not trusted.
#[derive(Clone, Debug)]
struct Log {
    folder: PathBuf,
    below: PathBuf,
}

impl Log {
    fn open(&self) -> io::Result<File> {
        let folder = beneath::folder(&self.folder).map_err(plain)?;
        beneath::open(folder, &self.below).map_err(plain)
    }
}

/// Whether the container may still write.
struct Alive {
    node: Arc<Node>,
    uid: PodUid,
    container: ContainerName,
}

impl Alive {
    fn now(&self) -> bool {
        let pods = self.node.pods.lock().expect("no holder panics");
        let entry = pods
            .get(&self.uid)
            .and_then(|known| known.status.as_ref())
            .and_then(|s| status::container_entry(s, &self.container));
        entry.and_then(|e| e.state.as_ref()).is_some_and(|state| state.running.is_some())
    }
}

type Sender = mpsc::Sender<Result<Frame<Bytes>, Infallible>>;

/// A log file at the place where reading begins.
struct Opened {
    log: Log,
    file: File,
    notices: Option<Notices>,
}

impl Opened {
    fn at(log: Log, options: &Options) -> io::Result<Opened> {
        let mut file = log.open()?;
        if let Some(lines) = options.tail {
            let start = tail_offset(&mut file, lines)?;
            file.seek(SeekFrom::Start(start))?;
        }
        let notices = if options.follow { Some(Notices::of(&log)?) } else { None };
        Ok(Opened { log, file, notices })
    }
}

async fn copy(opened: Opened, options: &Options, alive: &Alive, out: &Sender) -> io::Result<()> {
    let Opened { log, mut file, mut notices } = opened;
    let mut picker = Picker::new(options.clone());
    let mut changes = alive.node.changes.subscribe();
    loop {
        // Asked before reading, so that what was written before the end is not missed.
        let writing = alive.now();
        match drain(file, &mut picker, out).await? {
            Some(same) => file = same,
            None => return Ok(()),
        }
        let Some(notices) = &mut notices else {
            picker.finish(out).await;
            return Ok(());
        };
        let wanted = log.clone();
        let (again, next) = blocking(move || rotated(&file, &wanted).map(|next| (file, next))).await?;
        file = again;
        if let Some(next) = next {
            file = next;
            continue;
        }
        if !writing {
            picker.finish(out).await;
            return Ok(());
        }
        tokio::select! {
            () = out.closed() => return Ok(()),
            seen = notices.next() => seen?,
            changed = changes.changed() => if changed.is_err() { return Ok(()) },
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// The file now at the path, if it is another one than the open one.
fn rotated(open: &File, log: &Log) -> io::Result<Option<File>> {
    let before = open.metadata()?;
    match log.open() {
        Ok(file) => {
            let now = file.metadata()?;
            Ok((now.ino() != before.ino() || now.dev() != before.dev()).then_some(file))
        }
        // Between the two steps of a rotation there is none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends what is in the file now and gives it back; nothing when no more is wanted.
async fn drain(mut file: File, picker: &mut Picker, out: &Sender) -> io::Result<Option<File>> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let count;
        (file, chunk, count) = blocking(move || {
            let count = file.read(&mut chunk)?;
            Ok((file, chunk, count))
        })
        .await?;
        if count == 0 {
            return Ok(Some(file));
        }
        let picked = picker.take(&chunk[..count]);
        if !picked.is_empty() && out.send(Ok(Frame::data(picked))).await.is_err() {
            return Ok(None);
        }
        if picker.left == Some(0) {
            return Ok(None);
        }
    }
}

/// Turns records into what the client asked for. Pure.
struct Picker {
    options: Options,
    left: Option<u64>,
    rest: BytesMut,
    /// The line that goes on is too long to be a record: it is left out to its end.
    skipping: bool,
}

impl Picker {
    fn new(options: Options) -> Picker {
        Picker { left: options.limit, options, rest: BytesMut::new(), skipping: false }
    }

    fn take(&mut self, bytes: &[u8]) -> Bytes {
        let mut out = BytesMut::new();
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let ends = piece.ends_with(b"\n");
            if !self.skipping {
                self.rest.extend_from_slice(if ends { &piece[..piece.len() - 1] } else { piece });
            }
            if self.rest.len() > LINE_LIMIT {
                self.skipping = true;
                self.rest.clear();
            }
            if ends {
                let line = self.rest.split();
                if !std::mem::take(&mut self.skipping) {
                    self.line(&line, &mut out);
                }
            }
        }
        if let Some(left) = &mut self.left {
            out.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= out.len() as u64;
        }
        out.freeze()
    }

    fn line(&self, line: &[u8], out: &mut BytesMut) {
        let Some(record) = logs::parse(line) else { return };
        if self.options.stream.as_deref().is_some_and(|s| s != record.stream) {
            return;
        }
        if let Some(since) = self.options.since
            && record.time.parse::<Timestamp>().is_ok_and(|at| at < since)
        {
            return;
        }
        if self.options.timestamps {
            out.extend_from_slice(record.time.as_bytes());
            out.extend_from_slice(b" ");
        }
        out.extend_from_slice(record.text);
        if !record.partial {
            out.extend_from_slice(b"\n");
        }
    }

    async fn finish(&mut self, out: &Sender) {
        if !self.rest.is_empty() {
            let last = self.take(b"\n");
            // Ignored: a client that is gone wants nothing more.
            out.send(Ok(Frame::data(last))).await.ok();
        }
    }
}

/// What is told of a log that comes in these pieces, for `hostile`.
pub(crate) fn picked(pieces: &[&[u8]], timestamps: bool, limit: Option<u64>) -> Vec<u8> {
    let mut picker = Picker::new(Options { timestamps, limit, ..Options::default() });
    let mut out = Vec::new();
    for piece in pieces.iter().copied().chain([&b"\n"[..]]) {
        out.extend_from_slice(&picker.take(piece));
        assert!(picker.rest.len() <= LINE_LIMIT, "no more is kept of a line than a runtime would write");
    }
    out
}

/// Where the last `lines` lines of a file begin.
fn tail_offset(file: &mut File, lines: u64) -> io::Result<u64> {
    let end = file.metadata()?.len();
    if lines == 0 {
        return Ok(end);
    }
    let mut at = end;
    let mut seen = 0;
    let mut chunk = vec![0; CHUNK];
    while at > 0 {
        let size = at.min(CHUNK as u64);
        at -= size;
        file.seek(SeekFrom::Start(at))?;
        let part = &mut chunk[..usize::try_from(size).unwrap_or(CHUNK)];
        file.read_exact(part)?;
        for (index, _) in part.iter().enumerate().rev().filter(|(_, b)| **b == b'\n') {
            let after = at + index as u64 + 1;
            if after == end {
                continue;
            }
            seen += 1;
            if seen == lines {
                return Ok(after);
            }
        }
    }
    Ok(0)
}

/// Notices of changes to a log file or its folder.
struct Notices {
    inner: EventStream<[u8; 4096]>,
}

impl Notices {
    fn of(log: &Log) -> io::Result<Notices> {
        let inotify = Inotify::init()?;
        let folder = beneath::folder(&log.folder).map_err(plain)?;
        let parent = log.below.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = beneath::subfolder(folder, parent.unwrap_or(Path::new("."))).map_err(plain)?;
        let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
        inotify.watches().add(path, WatchMask::MODIFY | WatchMask::CREATE | WatchMask::MOVED_TO)?;
        Ok(Notices { inner: inotify.into_event_stream([0; 4096])? })
    }

    /// Waits for a change and takes all that are there. Cancel safe.
    async fn next(&mut self) -> io::Result<()> {
        let Some(first) = self.inner.next().await else { return Ok(()) };
        first?;
        while let Some(Some(more)) = self.inner.next().now_or_never() {
            more?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
