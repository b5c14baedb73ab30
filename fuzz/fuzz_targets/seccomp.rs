//! Any JSON as a seccomp profile: the program is one the kernel takes, and it answers as the rules say.
//!
//! The input is the number of a call, its arguments and the profile.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use podwire_container::hostile;
use serde_json::Value;

const X86_64: u32 = 0xc000_003e;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    call: u32,
    args: [u64; 6],
    profile: &'a [u8],
}

/// An instruction: code, jumps and constant.
fn parts(raw: u64) -> (u16, usize, usize, u32) {
    let bytes = raw.to_be_bytes();
    let constant = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    (u16::from_be_bytes([bytes[0], bytes[1]]), usize::from(bytes[2]), usize::from(bytes[3]), constant)
}

/// What the kernel checks before it takes a program: `seccomp_check_filter` and `bpf_check_classic`.
fn check(program: &[u64]) {
    assert!(!program.is_empty() && program.len() <= 4096, "{} instructions", program.len());
    for (at, raw) in program.iter().enumerate() {
        let left = program.len() - at - 1;
        match parts(*raw) {
            (0x20, _, _, offset) => assert!(offset < 64 && offset % 4 == 0, "a load from {offset}"),
            (0x15 | 0x25 | 0x35, yes, no, _) => assert!(yes < left && no < left, "a jump out of the program"),
            (0x05, _, _, far) => assert!((far as usize) < left, "a jump out of the program"),
            (0x54 | 0x06, ..) => {}
            (code, ..) => panic!("the kernel does not take instruction {code:#x}"),
        }
    }
    assert_eq!(program.last().map(|raw| parts(*raw).0), Some(0x06), "the last instruction returns");
}

/// Runs a program as the kernel would; jumps only lead forward.
fn run(program: &[u64], arch: u32, call: u32, args: &[u64; 6]) -> u32 {
    let word = |offset: u32| match offset {
        0 => call,
        4 => arch,
        8 | 12 => 0,
        _ => {
            let bytes = args[(offset as usize - 16) / 8].to_le_bytes();
            let at = offset as usize % 8;
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        }
    };
    let (mut value, mut at) = (0, 0);
    loop {
        let (code, yes, no, constant) = parts(program[at]);
        at += 1;
        match code {
            0x20 => value = word(constant),
            0x15 => at += if value == constant { yes } else { no },
            0x25 => at += if value > constant { yes } else { no },
            0x35 => at += if value >= constant { yes } else { no },
            0x05 => at += constant as usize,
            0x54 => value &= constant,
            _ => return constant,
        }
    }
}

fn outcome(action: &Value, errno: &Value) -> u32 {
    let errno = errno.as_u64().unwrap_or(1) as u32 & 0xffff;
    match action.as_str().unwrap_or_default() {
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => 0,
        "SCMP_ACT_KILL_PROCESS" => 0x8000_0000,
        "SCMP_ACT_TRAP" => 0x0003_0000,
        "SCMP_ACT_ERRNO" => 0x0005_0000 | errno,
        "SCMP_ACT_TRACE" => 0x7ff0_0000 | errno,
        "SCMP_ACT_LOG" => 0x7ffc_0000,
        _ => 0x7fff_0000,
    }
}

fn holds(arg: &Value, args: &[u64; 6]) -> bool {
    let value = args[arg["index"].as_u64().unwrap_or_default() as usize];
    let wanted = arg["value"].as_u64().unwrap_or_default();
    match arg["op"].as_str().unwrap_or_default() {
        "SCMP_CMP_NE" => value != wanted,
        "SCMP_CMP_LT" => value < wanted,
        "SCMP_CMP_LE" => value <= wanted,
        "SCMP_CMP_EQ" => value == wanted,
        "SCMP_CMP_GE" => value >= wanted,
        "SCMP_CMP_GT" => value > wanted,
        _ => value & wanted == arg["valueTwo"].as_u64().unwrap_or_default(),
    }
}

/// What the rules say of a call that some rule names: the first whose conditions hold, else the last without any.
fn said(profile: &Value, call: u32, args: &[u64; 6]) -> Option<u32> {
    let mut otherwise = outcome(&profile["defaultAction"], &profile["defaultErrnoRet"]);
    let (mut first, mut named) = (None, false);
    for rule in profile["syscalls"].as_array().into_iter().flatten() {
        let names = rule["names"].as_array().into_iter().flatten().filter_map(Value::as_str);
        if !names.filter_map(hostile::system_call).any(|number| number == call) {
            continue;
        }
        named = true;
        let action = outcome(&rule["action"], &rule["errnoRet"]);
        let conditions = rule["args"].as_array().map(Vec::as_slice).unwrap_or_default();
        let indexes: Vec<&Value> = conditions.iter().map(|arg| &arg["index"]).collect();
        let twice = indexes.iter().enumerate().any(|(at, index)| indexes[..at].contains(index));
        match conditions {
            [] => otherwise = action,
            all if twice && all.iter().any(|arg| holds(arg, args)) => first = first.or(Some(action)),
            all if !twice && all.iter().all(|arg| holds(arg, args)) => first = first.or(Some(action)),
            _ => {}
        }
    }
    named.then_some(first.unwrap_or(otherwise))
}

fuzz_target!(init: {
    podwire_fuzz::seeds(&[
        r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":1,"architectures":["SCMP_ARCH_X86_64","SCMP_ARCH_X86","SCMP_ARCH_X32"],"flags":["SECCOMP_FILTER_FLAG_LOG"],"syscalls":[{"names":["read","write","clone"],"action":"SCMP_ACT_ALLOW"},{"names":["clone","socket"],"action":"SCMP_ACT_TRAP","args":[{"index":0,"value":2114060288,"valueTwo":0,"op":"SCMP_CMP_MASKED_EQ"}]}]}"#,
        r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["read"],"action":"SCMP_ACT_ERRNO","errnoRet":5,"args":[{"index":0,"value":4294967301,"op":"SCMP_CMP_GT"},{"index":1,"value":1,"op":"SCMP_CMP_NE"},{"index":1,"value":2,"op":"SCMP_CMP_LE"}]}]}"#,
    ].map(|text| [&[0; 52][..], text.as_bytes()].concat()));
}, |input: Input<'_>| {
    let Some(program) = hostile::filter(input.profile) else { return };
    check(&program);
    // A profile may hold what nobody reads and what is no text.
    let Ok(profile) = serde_json::from_slice::<Value>(input.profile) else { return };
    for arch in [X86_64, 0x4000_0003, 0xc000_00b7] {
        run(&program, arch, input.call, &input.args);
    }
    let archs = profile["architectures"].as_array().map(Vec::as_slice).unwrap_or_default();
    let native = ["SCMP_ARCH_NATIVE", "SCMP_ARCH_X86_64"];
    let is_native = archs.is_empty() || archs.iter().any(|arch| native.iter().any(|name| arch == name));
    for call in [input.call % 512, 0, 1, 41, 56] {
        let answer = run(&program, X86_64, call, &input.args);
        match said(&profile, call, &input.args) {
            _ if !is_native => assert_eq!(answer, 0x8000_0000, "an architecture that is not listed"),
            Some(said) => assert_eq!(answer, said, "call {call} with {:?}", input.args),
            None => {
                let default = outcome(&profile["defaultAction"], &profile["defaultErrnoRet"]);
                assert!(answer == default || answer == 0x0005_0000 | 38, "call {call}, which no rule names");
            }
        }
    }
});
