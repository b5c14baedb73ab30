//! The one way connections are accepted: an error of one connection concerns nobody else, and a process that is out of
//! descriptors waits for one instead of spinning.

use std::{io, time::Duration};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// The first pause when the kernel has nothing left to accept with; doubled up to [`LONGEST`].
/// <https://man7.org/linux/man-pages/man2/accept.2.html>, EMFILE and ENFILE.
const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

/// A socket that connections come from.
pub trait Listener: Sync {
    /// A connection.
    type Stream: Send;

    /// The next connection, or why there is none. Cancel safe.
    fn one(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn one(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn one(&self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.accept().await?;
            let peer = stream.peer_cred()?.uid();
            if may_speak(peer, rustix::process::geteuid().as_raw()) {
                return Ok(stream);
            }
            // A socket of ours moves namespaces and mounts: its mode is one lock, this is the other.
            tracing::warn!(
                peer,
                "a user who is neither root nor ourselves was turned away from a socket of ours"
            );
        }
    }
}

/// Root may ask anything anyhow; so may the user this process runs as.
fn may_speak(peer: u32, own: u32) -> bool {
    peer == 0 || peer == own
}

/// The next connection; `what` names the listener in the log. Cancel safe.
pub async fn next<L: Listener>(listener: &L, what: &'static str) -> L::Stream {
    let mut pause = FIRST;
    loop {
        let error = match listener.one().await {
            Ok(stream) => return stream,
            Err(error) => error,
        };
        // A client that was gone before it was accepted is no shortage.
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            continue;
        }
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            what,
            "connection not accepted; will try again"
        );
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn only_root_and_the_own_user_may_speak_on_a_unix_socket() {
        assert!(may_speak(0, 1000) && may_speak(1000, 1000));
        assert!(!may_speak(1001, 1000) && !may_speak(1000, 0) && !may_speak(u32::MAX, 0));
    }

    /// Answers from a list, last first; then never.
    struct Scripted(Mutex<Vec<io::Result<u32>>>);

    impl Listener for Scripted {
        type Stream = u32;

        async fn one(&self) -> io::Result<u32> {
            let next = self.0.lock().unwrap().pop();
            match next {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_shortage_of_descriptors_is_waited_out_and_an_aborted_client_is_not() {
        let shortage = || Err(io::Error::from_raw_os_error(24));
        let aborted = || Err(io::ErrorKind::ConnectionAborted.into());
        let listener = Scripted(Mutex::new(vec![Ok(7), shortage(), shortage(), shortage(), aborted()]));
        let before = tokio::time::Instant::now();
        assert_eq!(next(&listener, "test").await, 7);
        assert_eq!(before.elapsed(), Duration::from_millis(10 + 20 + 40));
    }
}
