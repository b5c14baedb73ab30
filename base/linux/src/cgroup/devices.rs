//! Which devices a group may use: v1 through its files, v2 through an eBPF program.
//!
//! <https://docs.kernel.org/admin-guide/cgroup-v2.html#device-controller>,
//! <https://docs.kernel.org/admin-guide/cgroup-v1/devices.html>

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Error, Group, io_error, write};
use crate::bpf;

/// Which kind of device node a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// Both.
    All,
    /// Character devices.
    Char,
    /// Block devices.
    Block,
}

/// One rule; of several that match, the last counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRule {
    /// Allow or deny.
    pub allow: bool,
    /// Kind of node.
    pub kind: DeviceKind,
    /// `None` is any.
    pub major: Option<u32>,
    /// `None` is any.
    pub minor: Option<u32>,
    /// Letters of `rwm`.
    pub access: String,
}

impl DeviceRule {
    fn is_everything(&self) -> bool {
        self.kind == DeviceKind::All && self.major.is_none() && self.minor.is_none()
    }

    fn line(&self) -> String {
        let kind = match self.kind {
            DeviceKind::All => return "a".to_owned(),
            DeviceKind::Char => 'c',
            DeviceKind::Block => 'b',
        };
        let number = |n: Option<u32>| n.map_or_else(|| "*".to_owned(), |n| n.to_string());
        format!("{kind} {}:{} {}", number(self.major), number(self.minor), self.access)
    }
}

pub(super) fn apply(group: &Group, rules: &[DeviceRule]) -> Result<(), Error> {
    if let Some(folder) = group.hierarchies.v1("devices").map(|h| h.mount.join(&group.path)) {
        for rule in rules {
            let file = if rule.allow { "devices.allow" } else { "devices.deny" };
            match write(&folder.join(file), &rule.line()) {
                // Allowing "a" is refused where the parent has exceptions; the group then has the parent's. That nothing
                // could be denied, though, must never pass for done.
                Err(Error::Refused { ref source, .. })
                    if rule.allow
                        && rule.is_everything()
                        && matches!(source.raw_os_error(), Some(libc::EINVAL | libc::EPERM)) => {}
                other => other?,
            }
        }
        return Ok(());
    }
    match group.unified() {
        Some(folder) => attach(&folder, &program(rules)),
        None => Ok(()),
    }
}

/// One eBPF instruction.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Insn {
    code: u8,
    regs: u8,
    off: i16,
    imm: i32,
}

const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, regs: dst | src << 4, off, imm }
}

const LDX_W: u8 = 0x61;
const MOV_IMM: u8 = 0xb7;
const MOV32_REG: u8 = 0xbc;
const AND32_IMM: u8 = 0x54;
const RSH32_IMM: u8 = 0x74;
const JNE_IMM: u8 = 0x55;
const JNE_REG: u8 = 0x5d;
const EXIT: u8 = 0x95;

const DEV_BLOCK: i32 = 1;
const DEV_CHAR: i32 = 2;

/// The program for `rules`: last rule first, the first that matches answers. Without a match the
/// answer is no.
fn program(rules: &[DeviceRule]) -> Vec<Insn> {
    // r2 kind, r3 access, r4 major, r5 minor, from the context in r1.
    let mut code = vec![
        insn(LDX_W, 2, 1, 0, 0),
        insn(MOV32_REG, 3, 2, 0, 0),
        insn(AND32_IMM, 2, 0, 0, 0xffff),
        insn(RSH32_IMM, 3, 0, 0, 16),
        insn(LDX_W, 4, 1, 4, 0),
        insn(LDX_W, 5, 1, 8, 0),
    ];
    for rule in rules.iter().rev() {
        let mut tests = Vec::new();
        match rule.kind {
            DeviceKind::All => {}
            DeviceKind::Char => tests.push(insn(JNE_IMM, 2, 0, 0, DEV_CHAR)),
            DeviceKind::Block => tests.push(insn(JNE_IMM, 2, 0, 0, DEV_BLOCK)),
        }
        let mask = access_mask(&rule.access);
        if mask != 7 && !rule.is_everything() {
            // Matches when every kind of access that is asked for is in the rule.
            tests.push(insn(MOV32_REG, 1, 3, 0, 0));
            tests.push(insn(AND32_IMM, 1, 0, 0, mask));
            tests.push(insn(JNE_REG, 1, 3, 0, 0));
        }
        tests.extend(rule.major.map(|major| insn(JNE_IMM, 4, 0, 0, major.cast_signed())));
        tests.extend(rule.minor.map(|minor| insn(JNE_IMM, 5, 0, 0, minor.cast_signed())));
        let unconditional = tests.is_empty();
        tests.push(insn(MOV_IMM, 0, 0, 0, i32::from(rule.allow)));
        tests.push(insn(EXIT, 0, 0, 0, 0));
        let length = tests.len();
        for (at, test) in tests.iter_mut().enumerate() {
            if matches!(test.code, JNE_IMM | JNE_REG) {
                test.off = i16::try_from(length - at - 1).expect("a rule has a handful of instructions");
            }
        }
        code.append(&mut tests);
        if unconditional {
            // Nothing after it can be reached, and the verifier refuses dead code.
            return code;
        }
    }
    code.push(insn(MOV_IMM, 0, 0, 0, 0));
    code.push(insn(EXIT, 0, 0, 0, 0));
    code
}

fn access_mask(access: &str) -> i32 {
    access.bytes().fold(0, |mask, letter| {
        mask | match letter {
            b'm' => 1,
            b'r' => 2,
            b'w' => 4,
            _ => 0,
        }
    })
}

#[repr(C)]
#[derive(Default)]
struct LoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct AttachAttr {
    target_fd: u32,
    attach_bpf_fd: u32,
    attach_type: u32,
    attach_flags: u32,
    replace_bpf_fd: u32,
}

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_ATTACH: libc::c_int = 8;
const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const CGROUP_DEVICE: u32 = 6;
const ALLOW_MULTI: u32 = 2;

fn attach(folder: &Path, code: &[Insn]) -> Result<(), Error> {
    let license = c"Apache-2.0";
    let mut load = LoadAttr {
        prog_type: PROG_TYPE_CGROUP_DEVICE,
        insn_cnt: u32::try_from(code.len()).expect("far below the kernel's limit"),
        insns: code.as_ptr() as u64,
        license: license.as_ptr() as u64,
        ..LoadAttr::default()
    };
    let fd = bpf::call(BPF_PROG_LOAD, &mut load).map_err(io_error("load the device program of", folder))?;
    // SAFETY: a fresh descriptor that nobody else owns.
    let program = unsafe { OwnedFd::from_raw_fd(fd) };
    let target = File::open(folder).map_err(io_error("open", folder))?;
    let mut attach = AttachAttr {
        target_fd: target.as_raw_fd().cast_unsigned(),
        attach_bpf_fd: program.as_raw_fd().cast_unsigned(),
        attach_type: CGROUP_DEVICE,
        attach_flags: ALLOW_MULTI,
        ..AttachAttr::default()
    };
    bpf::call(BPF_PROG_ATTACH, &mut attach).map_err(io_error("attach the device program to", folder))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(
        allow: bool,
        kind: DeviceKind,
        major: Option<u32>,
        minor: Option<u32>,
        access: &str,
    ) -> DeviceRule {
        DeviceRule { allow, kind, major, minor, access: access.to_owned() }
    }

    /// Runs a program as the kernel would.
    fn run(code: &[Insn], kind: i32, access: i32, major: u32, minor: u32) -> bool {
        let context = [(access << 16 | kind).cast_unsigned(), major, minor];
        let mut r = [0_u64; 11];
        let mut pc = 0;
        loop {
            let i = code[pc];
            let (dst, src) = (usize::from(i.regs & 15), usize::from(i.regs >> 4));
            let jump = |taken: bool| if taken { usize::try_from(i.off).unwrap() } else { 0 };
            pc += 1;
            match i.code {
                LDX_W => r[dst] = u64::from(context[usize::try_from(i.off).unwrap() / 4]),
                MOV_IMM => r[dst] = i.imm as u64,
                MOV32_REG => r[dst] = r[src],
                AND32_IMM => r[dst] &= i.imm as u64,
                RSH32_IMM => r[dst] >>= i.imm,
                JNE_IMM => pc += jump(r[dst] != i.imm as u64),
                JNE_REG => pc += jump(r[dst] != r[src]),
                EXIT => return r[0] == 1,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn the_last_matching_rule_answers() {
        let code = program(&[
            rule(false, DeviceKind::All, None, None, "rwm"),
            rule(true, DeviceKind::Char, Some(1), Some(3), "rwm"),
            rule(true, DeviceKind::Block, None, None, "m"),
            rule(true, DeviceKind::Char, Some(136), None, "rw"),
        ]);
        assert!(run(&code, DEV_CHAR, 7, 1, 3));
        assert!(!run(&code, DEV_CHAR, 2, 1, 5));
        assert!(run(&code, DEV_BLOCK, 1, 8, 0));
        assert!(!run(&code, DEV_BLOCK, 2, 8, 0));
        assert!(run(&code, DEV_CHAR, 6, 136, 42));
        assert!(!run(&code, DEV_CHAR, 7, 136, 42));
    }

    #[test]
    fn that_nothing_could_be_denied_is_an_error() {
        let name = format!("podwire-test-devices-{}", std::process::id());
        let group = super::super::group(&name).unwrap();
        if group.hierarchies.v1("devices").is_none() {
            return;
        }
        group.create().unwrap();
        // The kernel changes everything at once only where there is nobody below.
        let below = super::super::group(&format!("{name}/below")).unwrap();
        below.create().unwrap();
        let denied = apply(&group, &[rule(false, DeviceKind::All, None, None, "rwm")]);
        let allowed = apply(&group, &[rule(true, DeviceKind::All, None, None, "rwm")]);
        below.try_remove().unwrap();
        group.try_remove().unwrap();
        assert!(denied.is_err() && allowed.is_ok(), "{denied:?} {allowed:?}");
    }

    #[test]
    fn the_kernel_accepts_the_program_on_a_cgroup2() {
        let hierarchies = super::super::host().unwrap();
        let Some(unified) = hierarchies.unified() else {
            panic!("no cgroup2 is mounted, needed for this test")
        };
        let folder = unified.mount.join(format!("podwire-test-bpf-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let code = program(&[
            rule(false, DeviceKind::All, None, None, "rwm"),
            rule(true, DeviceKind::Char, Some(1), Some(3), "rw"),
        ]);
        let attached = attach(&folder, &code);
        std::fs::remove_dir(&folder).unwrap();
        attached.unwrap();
    }
}
