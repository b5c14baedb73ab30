//! Any bytes from a runtime to the plugin's side: registration and every served call must end without a panic.

#![no_main]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use podwire_nri::api::Event;
use podwire_nri::stub::{Plugin, Stub};
use podwire_wire::ttrpc::{self, Kind, Response};

struct Listener;

impl Plugin for Listener {
    fn events(&self) -> Vec<Event> {
        vec![Event::RunPodSandbox, Event::CreateContainer, Event::StopContainer]
    }
}

static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"));

fuzz_target!(|data: &[u8]| {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
    theirs.set_nonblocking(true).expect("a socket can be set so");
    // An odd input finds the plugin registered, an even one does not.
    if data.len() % 2 == 1 {
        let answer = ttrpc::encode(1, Kind::Response, &Response::default());
        let mut frame = 2_u32.to_be_bytes().to_vec();
        frame.extend_from_slice(&u32::try_from(answer.len()).expect("a short answer").to_be_bytes());
        frame.extend_from_slice(&answer);
        theirs.write_all(&frame).expect("the answer fits");
    }
    // Ignored: what does not fit into the socket is not read either.
    drop(theirs.write_all(data));
    drop(theirs.shutdown(std::net::Shutdown::Write));
    RUNTIME.block_on(async {
        let stub = Stub { timeout: Duration::from_millis(5), ..Stub::new("fuzz", "00") };
        if let Ok(connection) = stub.adopt(ours.into(), Arc::new(Listener)).await {
            tokio::time::timeout(Duration::from_secs(5), connection.ended())
                .await
                .expect("it ends with its stream");
            connection.close().await;
        }
    });
});
