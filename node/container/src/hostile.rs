//! Every decoder of the socket, the journal and the compiler of filters fed with any bytes, for fuzzing and for tests.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::plan::FilterPlan;
use crate::prepare::{Launch, Program};
use crate::protocol::{
    AdoptArg, AttachArg, CreateArg, ExecArg, HELLO, IdArg, RawRequest, ResizeArg, SignalArg, UpgradeArg,
    parse_hello,
};
use crate::socket::Frames;

/// Decodes `bytes` as a client's side of a connection, up to the point where a process would be
/// made; returns how many requests were understood. Must never panic.
pub fn decode(bytes: &[u8]) -> usize {
    let mut frames = Frames::default();
    frames.feed(bytes);
    let Some(greeting) = frames.take::<HELLO>() else { return 0 };
    if parse_hello(greeting).is_err() {
        return 0;
    }
    let mut understood = 0;
    while let Ok(Some((body, _))) = frames.next() {
        let Ok(request) = serde_json::from_slice::<RawRequest>(&body) else { break };
        understood += usize::from(argument(&request));
    }
    understood
}

/// Reads the journal in `state_dir` as a supervisor does that starts; the ids in it. Must never panic.
pub fn journal(state_dir: &Path, boot: &str) -> std::io::Result<Vec<String>> {
    crate::supervisor::journalled(state_dir, boot)
}

/// Compiles the JSON of a profile, if it is one; the program. Must never panic.
pub fn filter(json: &[u8]) -> Option<Vec<u64>> {
    let profile = serde_json::from_slice(json).ok()?;
    Some(crate::seccomp::compile(&profile).ok()?.program.to_vec())
}

/// The number of a system call on x86-64.
pub fn system_call(name: &str) -> Option<u32> {
    crate::seccomp::number(name)
}

fn argument(request: &RawRequest) -> bool {
    let text = request.arg.as_ref().map_or("null", |raw| raw.get());
    fn is<T: DeserializeOwned>(text: &str) -> bool {
        serde_json::from_str::<T>(text).is_ok()
    }
    match request.op.as_str() {
        "create" => match serde_json::from_str::<CreateArg>(text) {
            Ok(arg) => {
                // Only what can be laid out without touching the machine.
                let plain =
                    arg.plan.join.is_empty() && arg.plan.uid_maps.is_empty() && arg.plan.clone_flags == 0;
                let mapped = arg.plan.mounts.iter().any(|mount| mount.idmap.is_some());
                !plain || mapped || Launch::new(&arg.plan, None, Path::new("/")).is_ok()
            }
            Err(_) => false,
        },
        "exec" => serde_json::from_str::<ExecArg>(text).is_ok_and(|arg| {
            let plan = crate::plan::ProcessPlan {
                argv: arg.argv,
                seccomp: Some(FilterPlan::default()),
                ..Default::default()
            };
            Program::new(&plan).is_ok()
        }),
        "start" | "delete" | "close-stdin" | "reopen-log" | "hold" => is::<IdArg>(text),
        "signal" => is::<SignalArg>(text),
        "attach" => is::<AttachArg>(text),
        "adopt" => is::<AdoptArg>(text),
        "resize" => is::<ResizeArg>(text),
        "upgrade" => is::<UpgradeArg>(text),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::LaunchPlan;
    use crate::protocol::{Request, frame, hello};

    fn conversation() -> Vec<u8> {
        let plan = LaunchPlan { hostname: Some("h".to_owned()), ..LaunchPlan::default() };
        let create = CreateArg {
            id: "a".to_owned(),
            plan,
            log_path: None,
            tty: None,
            stdin: false,
            stdin_once: false,
            oom_watch: true,
            oci_runtime: None,
        };
        let signal = SignalArg { id: "a".to_owned(), signal: 15, all: false, exec: None };
        let mut bytes = hello().to_vec();
        for body in [
            serde_json::to_vec(&Request { seq: 1, op: "create", arg: &create }).unwrap(),
            serde_json::to_vec(&Request { seq: 2, op: "signal", arg: &signal }).unwrap(),
        ] {
            bytes.extend(frame(&body, 0));
        }
        bytes
    }

    #[test]
    fn a_whole_conversation_is_understood() {
        assert_eq!(decode(&conversation()), 2);
    }

    #[test]
    fn no_damaged_conversation_makes_the_decoder_panic() {
        let whole = conversation();
        for length in 0..whole.len() {
            assert!(decode(&whole[..length]) <= 2);
        }
        // A small generator with a fixed seed: the same damage every time.
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..4000 {
            let mut damaged = whole.clone();
            for _ in 0..4 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let at = usize::try_from(state % damaged.len() as u64).unwrap();
                damaged[at] = state.to_le_bytes()[5];
            }
            decode(&damaged);
        }
    }
}
