//! A bounded in-memory pipe of byte chunks between an async task or thread and a blocking reader.
//!
//! The reader sees an error, not an end, if the writer goes away without [`Writer::finish`]:
//! a broken download must never look like a complete one.

use std::io::{self, BufRead, Read};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

/// Makes a pipe that holds at most `depth` chunks.
pub(crate) fn pipe(depth: usize) -> (Writer, Reader) {
    let (sender, receiver) = mpsc::channel(depth);
    (Writer { sender }, Reader { receiver, chunk: Bytes::new(), done: false })
}

enum Message {
    Chunk(Bytes),
    End,
    Broken(io::Error),
}

/// The end that chunks are put into.
pub(crate) struct Writer {
    sender: mpsc::Sender<Message>,
}

impl Writer {
    /// Sends a chunk; false if the reader is gone. Cancel safe: a chunk is sent or not.
    pub(crate) async fn send(&self, chunk: Bytes) -> bool {
        self.sender.send(Message::Chunk(chunk)).await.is_ok()
    }

    /// Sends a chunk from a thread outside the async runtime; false if the reader is gone.
    pub(crate) fn send_blocking(&self, chunk: Bytes) -> bool {
        self.sender.blocking_send(Message::Chunk(chunk)).is_ok()
    }

    /// Marks the end of the stream.
    pub(crate) async fn finish(self) {
        // Ignored: a reader that has gone needs no end mark.
        self.sender.send(Message::End).await.ok();
    }

    /// Marks the end of the stream, or hands the reader `error`, from a thread.
    pub(crate) fn finish_blocking(self, result: io::Result<()>) {
        let message = match result {
            Ok(()) => Message::End,
            Err(error) => Message::Broken(error),
        };
        // Ignored: a reader that has gone needs no end mark.
        self.sender.blocking_send(message).ok();
    }

    /// Hands the reader `error`.
    pub(crate) async fn fail(self, error: io::Error) {
        // Ignored: a reader that has gone needs no error.
        self.sender.send(Message::Broken(error)).await.ok();
    }
}

/// The end that bytes are read from, on a thread outside the async runtime.
pub(crate) struct Reader {
    receiver: mpsc::Receiver<Message>,
    chunk: Bytes,
    done: bool,
}

impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.chunk.is_empty() && !self.done {
            match self.receiver.blocking_recv() {
                Some(Message::Chunk(chunk)) => self.chunk = chunk,
                Some(Message::End) => self.done = true,
                Some(Message::Broken(error)) => return Err(error),
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::BrokenPipe,
                        "the source of the stream went away",
                    ));
                }
            }
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, amount: usize) {
        self.chunk.advance(amount);
    }
}

impl Read for Reader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let n = available.len().min(buf.len());
        buf[..n].copy_from_slice(&available[..n]);
        self.consume(n);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_vanishes_is_an_error_and_a_finished_one_is_the_end() {
        let (writer, mut reader) = pipe(4);
        assert!(writer.send_blocking(Bytes::from_static(b"ab")));
        drop(writer);
        let mut out = Vec::new();
        assert_eq!(reader.read_to_end(&mut out).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(out, b"ab");

        let (writer, mut reader) = pipe(4);
        assert!(writer.send_blocking(Bytes::from_static(b"ab")));
        writer.finish_blocking(Ok(()));
        assert_eq!(reader.read_to_end(&mut Vec::new()).unwrap(), 2);
    }
}
