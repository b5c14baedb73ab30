//! Pipes and terminals handed over by the supervisor as async byte streams.

use std::{
    io,
    os::fd::OwnedFd,
    pin::Pin,
    task::{Context, Poll, ready},
};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, unix::AsyncFd},
    sync::watch,
};

/// Bytes read at once.
const CHUNK: usize = 64 << 10;

#[expect(deprecated, reason = "the unsafe successor asks for what an owned descriptor already gives")]
fn non_blocking(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
    AsyncFd::new(fd)
}

/// A readable end.
pub(crate) struct FdReader(AsyncFd<OwnedFd>);

impl FdReader {
    /// Makes the descriptor non-blocking and watches it.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        non_blocking(fd).map(FdReader)
    }

    /// Reads what is there at this moment, without asking the reactor; `None` if there is nothing.
    fn read_now(&self, bytes: &mut [u8]) -> Option<usize> {
        loop {
            match rustix::io::read(self.0.get_ref(), &mut *bytes) {
                Ok(count) => return Some(count),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

impl AsyncRead for FdReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let room = buf.initialize_unfilled();
            match guard.try_io(|fd| rustix::io::read(fd, &mut *room).map_err(io::Error::from)) {
                Ok(Ok(count)) => {
                    buf.advance(count);
                    return Poll::Ready(Ok(()));
                }
                // A terminal whose other side is closed says EIO: that is its end of file.
                Ok(Err(error)) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

/// A writable end; closing or dropping it may have a consequence.
pub(crate) struct FdWriter {
    fd: Option<AsyncFd<OwnedFd>>,
    closed: Option<Box<dyn FnOnce() + Send>>,
}

impl FdWriter {
    /// Makes the descriptor non-blocking and watches it.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        non_blocking(fd).map(|fd| FdWriter { fd: Some(fd), closed: None })
    }

    /// Runs `consequence` once the end is closed or dropped.
    pub(crate) fn when_closed(&mut self, consequence: impl FnOnce() + Send + 'static) {
        self.closed = Some(Box::new(consequence));
    }

    fn close(&mut self) {
        self.fd = None;
        if let Some(consequence) = self.closed.take() {
            consequence();
        }
    }
}

impl Drop for FdWriter {
    fn drop(&mut self) {
        self.close();
    }
}

impl AsyncWrite for FdWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(fd) = &self.fd else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
        loop {
            let mut guard = ready!(fd.poll_write_ready(cx))?;
            match guard.try_io(|fd| rustix::io::write(fd, bytes).map_err(io::Error::from)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(done) => return Poll::Ready(done),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close();
        Poll::Ready(Ok(()))
    }
}

/// Reads until the end of the stream, or until `ended` and nothing more is there at once; keeps at most `limit` bytes.
///
/// A process left behind may hold the stream open for ever: what the command itself wrote is in the pipe when it ended.
pub(crate) async fn capture(
    reader: Option<FdReader>,
    limit: usize,
    mut ended: watch::Receiver<bool>,
) -> Vec<u8> {
    let Some(mut reader) = reader else { return Vec::new() };
    let mut kept = Vec::new();
    let mut chunk = vec![0; CHUNK];
    let mut over = false;
    loop {
        let read = if over {
            match reader.read_now(&mut chunk) {
                Some(count) => Ok(count),
                None => return kept,
            }
        } else {
            tokio::select! {
                biased;
                read = reader.read(&mut chunk) => read,
                _ = ended.wait_for(|over| *over) => {
                    over = true;
                    continue;
                }
            }
        };
        match read {
            Ok(0) | Err(_) => return kept,
            Ok(count) => {
                let room = limit.saturating_sub(kept.len()).min(count);
                kept.extend_from_slice(&chunk[..room]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    fn pipe() -> (FdReader, FdWriter) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        (FdReader::new(reader).unwrap(), FdWriter::new(writer).unwrap())
    }

    #[tokio::test]
    async fn output_beyond_the_limit_is_read_but_not_kept() {
        let (reader, mut writer) = pipe();
        let (_keep, end) = watch::channel(false);
        let (kept, ()) = tokio::join!(capture(Some(reader), 10, end), async {
            writer.write_all(&vec![b'x'; 300_000]).await.unwrap();
            writer.shutdown().await.unwrap();
        });
        assert_eq!(kept, b"xxxxxxxxxx");
    }

    #[tokio::test]
    async fn a_stream_held_open_ends_with_the_command() {
        let (reader, mut writer) = pipe();
        let (ended, end) = watch::channel(false);
        writer.write_all(b"said before the end").await.unwrap();
        ended.send(true).unwrap();
        assert_eq!(capture(Some(reader), 100, end).await, b"said before the end");
        drop(writer);
    }
}
