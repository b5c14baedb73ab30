//! OCI seccomp profile to classic BPF.

use std::collections::BTreeMap;

use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompFilterFlag, LinuxSeccompOperator,
};

use super::syscalls;
use crate::plan::FilterPlan;

/// Why a profile cannot become a filter.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CompileError {
    /// An architecture this machine does not have.
    #[error("seccomp architecture {arch} is not one of this machine")]
    Architecture {
        /// Its name.
        arch: String,
    },
    /// An action that needs somebody to listen.
    #[error("seccomp action {action} is not supported")]
    Action {
        /// Its name.
        action: String,
    },
    /// System calls have six arguments.
    #[error("seccomp rule looks at argument {index}")]
    Argument {
        /// Which one.
        index: usize,
    },
    /// The kernel takes 4096 instructions.
    /// `BPF_MAXINSNS`: <https://man7.org/linux/man-pages/man2/seccomp.2.html>.
    #[error("seccomp profile needs {length} instructions")]
    TooLong {
        /// How many.
        length: usize,
    },
}

const LD_W_ABS: u16 = 0x20;
const JEQ: u16 = 0x15;
const JGT: u16 = 0x25;
const JGE: u16 = 0x35;
const JA: u16 = 0x05;
const AND: u16 = 0x54;
const RET: u16 = 0x06;

const DATA_NR: u32 = 0;
const DATA_ARCH: u32 = 4;
const DATA_ARGS: u32 = 16;

const AUDIT_X86_64: u32 = 0xc000_003e;
const AUDIT_X86: u32 = 0x4000_0003;
const X32_BIT: u32 = 0x4000_0000;

const RET_KILL_PROCESS: u32 = 0x8000_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const RET_ALLOW: u32 = 0x7fff_0000;
const ENOSYS: u32 = 38;
const LONGEST: usize = 4096;

/// One instruction, jumps counted from the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Insn {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

fn op(code: u16, k: u32) -> Insn {
    Insn { code, jt: 0, jf: 0, k }
}

fn jump(code: u16, k: u32, jt: usize, jf: usize) -> Insn {
    let near = |n: usize| u8::try_from(n).expect("callers keep jumps short");
    Insn { code, jt: near(jt), jf: near(jf), k }
}

/// What happens to one call: the first rule whose conditions hold, else the last word.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outcome {
    conditional: Vec<(Vec<LinuxSeccompArg>, u32)>,
    otherwise: u32,
}

/// The filter for `profile` on this machine.
pub fn compile(profile: &LinuxSeccomp) -> Result<FilterPlan, CompileError> {
    let default = action(profile.default_action(), profile.default_errno_ret())?;
    let native = [Arch::ScmpArchX86_64];
    let archs = profile.architectures().as_deref().filter(|a| !a.is_empty()).unwrap_or(&native);
    let mut wanted = [false; 3];
    for arch in archs {
        match arch {
            Arch::ScmpArchNative | Arch::ScmpArchX86_64 => wanted[0] = true,
            Arch::ScmpArchX86 => wanted[1] = true,
            Arch::ScmpArchX32 => wanted[2] = true,
            // A profile may list what other machines need; it has no effect here.
            _ => {}
        }
    }
    if wanted == [false; 3] {
        return Err(CompileError::Architecture { arch: format!("{archs:?}") });
    }
    let mut trees = Vec::new();
    for (at, wanted) in wanted.into_iter().enumerate() {
        trees.push(if wanted { search(&table(profile, at, default)?, default) } else { kill() });
    }
    let program = assemble(&trees);
    if program.len() > LONGEST {
        return Err(CompileError::TooLong { length: program.len() });
    }
    let program = program
        .iter()
        .map(|i| u64::from(i.code) << 48 | u64::from(i.jt) << 40 | u64::from(i.jf) << 32 | u64::from(i.k));
    Ok(FilterPlan { program: program.collect(), flags: flags(profile)? })
}

fn kill() -> Vec<Insn> {
    vec![op(RET, RET_KILL_PROCESS)]
}

fn flags(profile: &LinuxSeccomp) -> Result<u64, CompileError> {
    let mut flags = 0;
    for flag in profile.flags().as_deref().unwrap_or_default() {
        flags |= match flag {
            LinuxSeccompFilterFlag::SeccompFilterFlagLog => 2,
            LinuxSeccompFilterFlag::SeccompFilterFlagSpecAllow => 4,
            // All threads at once: there is only one when the filter is installed.
            LinuxSeccompFilterFlag::SeccompFilterFlagTsync => 0,
            other => return Err(CompileError::Action { action: format!("{other:?}") }),
        };
    }
    Ok(flags)
}

fn action(action: LinuxSeccompAction, errno: Option<u32>) -> Result<u32, CompileError> {
    Ok(match action {
        LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => 0,
        LinuxSeccompAction::ScmpActKillProcess => RET_KILL_PROCESS,
        LinuxSeccompAction::ScmpActTrap => 0x0003_0000,
        LinuxSeccompAction::ScmpActErrno => RET_ERRNO | (errno.unwrap_or(1) & 0xffff),
        LinuxSeccompAction::ScmpActTrace => 0x7ff0_0000 | (errno.unwrap_or(1) & 0xffff),
        LinuxSeccompAction::ScmpActLog => 0x7ffc_0000,
        LinuxSeccompAction::ScmpActAllow => RET_ALLOW,
        LinuxSeccompAction::ScmpActNotify => {
            return Err(CompileError::Action { action: "SCMP_ACT_NOTIFY".to_owned() });
        }
    })
}

/// Ranges of call numbers with one outcome each, from 0 upwards without gaps.
fn table(profile: &LinuxSeccomp, arch: usize, default: u32) -> Result<Vec<(u32, Outcome)>, CompileError> {
    let mut calls: BTreeMap<u32, Outcome> = BTreeMap::new();
    let mut conditions = 0;
    for rule in profile.syscalls().as_deref().unwrap_or_default() {
        let action = action(rule.action(), rule.errno_ret())?;
        let alternatives = alternatives(rule.args().as_deref().unwrap_or_default())?;
        for name in rule.names() {
            let Some(number) = syscalls::numbers(name).and_then(|numbers| numbers[arch]) else { continue };
            let outcome =
                calls.entry(number).or_insert(Outcome { conditional: Vec::new(), otherwise: default });
            match &alternatives {
                None => outcome.otherwise = action,
                Some(alternatives) => {
                    // Each takes several instructions; names times conditions may be more than there is memory.
                    conditions += alternatives.len();
                    if conditions > LONGEST {
                        return Err(CompileError::TooLong { length: conditions });
                    }
                    outcome.conditional.extend(alternatives.iter().map(|args| (args.clone(), action)));
                }
            }
        }
    }
    // What the profile's author cannot have known is not there, rather than forbidden: that is
    // what programs probe for.
    let beyond = if default & 0xffff_0000 == RET_ERRNO { RET_ERRNO | ENOSYS } else { default };
    let plain = |otherwise| Outcome { conditional: Vec::new(), otherwise };
    let mut ranges: Vec<(u32, Outcome)> = vec![(0, plain(default))];
    let mut push = |start: u32, outcome: Outcome| match ranges.last_mut() {
        Some((_, last)) if *last == outcome => {}
        Some((from, last)) if *from == start => *last = outcome,
        _ => ranges.push((start, outcome)),
    };
    for (number, outcome) in &calls {
        push(*number, outcome.clone());
        if !calls.contains_key(&(number + 1)) {
            push(number + 1, plain(default));
        }
    }
    if let Some(largest) = calls.keys().next_back() {
        push(largest + 1, plain(beyond));
    }
    Ok(ranges)
}

/// Conditions of one rule hold together, unless two look at the same argument: then any will do.
fn alternatives(args: &[LinuxSeccompArg]) -> Result<Option<Vec<Vec<LinuxSeccompArg>>>, CompileError> {
    if let Some(arg) = args.iter().find(|arg| arg.index() > 5) {
        return Err(CompileError::Argument { index: arg.index() });
    }
    if args.is_empty() {
        return Ok(None);
    }
    let mut seen = [false; 6];
    let twice = args.iter().any(|arg| std::mem::replace(&mut seen[arg.index()], true));
    Ok(Some(if twice { args.iter().map(|arg| vec![*arg]).collect() } else { vec![args.to_vec()] }))
}

/// Binary search over the ranges; the call number is in the accumulator.
fn search(ranges: &[(u32, Outcome)], default: u32) -> Vec<Insn> {
    match ranges {
        [] => vec![op(RET, default)],
        [(_, outcome)] => leaf(outcome),
        _ => {
            let middle = ranges.len() / 2;
            let (low, high) = ranges.split_at(middle);
            let pivot = high[0].0;
            let low = search(low, default);
            let high = search(high, default);
            let mut code = Vec::with_capacity(low.len() + high.len() + 2);
            if u8::try_from(low.len()).is_ok() {
                code.push(jump(JGE, pivot, low.len(), 0));
            } else {
                code.push(jump(JGE, pivot, 0, 1));
                code.push(op(JA, u32::try_from(low.len()).expect("bounded by the program's length")));
            }
            code.extend(low);
            code.extend(high);
            code
        }
    }
}

fn leaf(outcome: &Outcome) -> Vec<Insn> {
    let mut code = Vec::new();
    for (args, action) in &outcome.conditional {
        // Each condition is code that falls through when it holds and else skips `rest`.
        let mut rest = vec![op(RET, *action)];
        for arg in args.iter().rev() {
            let mut test = condition(arg, rest.len());
            test.extend(rest);
            rest = test;
        }
        code.extend(rest);
    }
    code.push(op(RET, outcome.otherwise));
    code
}

/// Falls through when the condition on a 64-bit argument holds, else jumps over `skip` more.
fn condition(arg: &LinuxSeccompArg, skip: usize) -> Vec<Insn> {
    let index = u32::try_from(arg.index()).expect("checked to be below six");
    let low = op(LD_W_ABS, DATA_ARGS + 8 * index);
    let high = op(LD_W_ABS, DATA_ARGS + 8 * index + 4);
    let split = |v: u64| (u32::try_from(v >> 32).expect("upper half"), (v & 0xffff_ffff) as u32);
    let (hi, lo) = split(arg.value());
    match arg.op() {
        LinuxSeccompOperator::ScmpCmpEq => {
            vec![high, jump(JEQ, hi, 0, skip + 2), low, jump(JEQ, lo, 0, skip)]
        }
        LinuxSeccompOperator::ScmpCmpNe => {
            vec![high, jump(JEQ, hi, 0, 2), low, jump(JEQ, lo, skip, 0)]
        }
        LinuxSeccompOperator::ScmpCmpGt => order(high, low, (hi, lo), JGT, true, skip),
        LinuxSeccompOperator::ScmpCmpGe => order(high, low, (hi, lo), JGE, true, skip),
        LinuxSeccompOperator::ScmpCmpLt => order(high, low, (hi, lo), JGE, false, skip),
        LinuxSeccompOperator::ScmpCmpLe => order(high, low, (hi, lo), JGT, false, skip),
        LinuxSeccompOperator::ScmpCmpMaskedEq => {
            let (want_hi, want_lo) = split(arg.value_two().unwrap_or(0));
            vec![
                high,
                op(AND, hi),
                jump(JEQ, want_hi, 0, skip + 3),
                low,
                op(AND, lo),
                jump(JEQ, want_lo, 0, skip),
            ]
        }
    }
}

/// Compares the upper halves, then the lower ones if those are equal. `above` says whether the
/// condition holds when the comparison does.
fn order(high: Insn, low: Insn, (hi, lo): (u32, u32), last: u16, above: bool, skip: usize) -> Vec<Insn> {
    let (on_greater, on_less) = if above { (3, skip + 2) } else { (skip + 3, 2) };
    let ending = if above { jump(last, lo, 0, skip) } else { jump(last, lo, skip, 0) };
    vec![high, jump(JGT, hi, on_greater, 0), jump(JEQ, hi, 0, on_less), low, ending]
}

/// Puts the three architectures together.
fn assemble(trees: &[Vec<Insn>]) -> Vec<Insn> {
    let far = |n: usize| u32::try_from(n).expect("bounded by the program's length");
    let (amd64, x86, x32) = (&trees[0], &trees[1], &trees[2]);
    let mut wide = vec![op(LD_W_ABS, DATA_NR), jump(JGE, X32_BIT, 0, 1), op(JA, far(amd64.len()))];
    wide.extend(amd64);
    wide.push(op(AND, !X32_BIT));
    wide.extend(x32);
    let mut code = vec![
        op(LD_W_ABS, DATA_ARCH),
        jump(JEQ, AUDIT_X86_64, 2, 0),
        jump(JEQ, AUDIT_X86, 2, 0),
        op(RET, RET_KILL_PROCESS),
        op(JA, 1),
        op(JA, far(wide.len())),
    ];
    code.extend(wide);
    code.push(op(LD_W_ABS, DATA_NR));
    code.extend(x86);
    code
}

#[cfg(test)]
mod tests {
    use super::super::default_profile;
    use super::*;
    use oci_spec::runtime::{
        Capabilities, Capability, LinuxSeccompArgBuilder, LinuxSeccompBuilder, LinuxSyscallBuilder,
    };

    /// Runs a filter as the kernel would.
    #[allow(clippy::cast_possible_truncation)]
    fn run(filter: &FilterPlan, arch: u32, nr: u32, args: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend(nr.to_le_bytes());
        data.extend(arch.to_le_bytes());
        data.extend(0_u64.to_le_bytes());
        for arg in args {
            data.extend(arg.to_le_bytes());
        }
        let (mut a, mut pc) = (0_u32, 0_usize);
        loop {
            let raw = filter.program[pc];
            let (code, k) = ((raw >> 48) as u16, raw as u32);
            let (jt, jf) = ((raw >> 40) as u8, (raw >> 32) as u8);
            pc += 1;
            let mut branch = |taken: bool| pc += usize::from(if taken { jt } else { jf });
            match code {
                LD_W_ABS => a = u32::from_le_bytes(data[k as usize..k as usize + 4].try_into().unwrap()),
                JEQ => branch(a == k),
                JGT => branch(a > k),
                JGE => branch(a >= k),
                JA => pc += k as usize,
                AND => a &= k,
                RET => return k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    fn number(name: &str, arch: usize) -> u32 {
        syscalls::numbers(name).unwrap()[arch].unwrap()
    }

    const EPERM: u32 = RET_ERRNO | 1;

    #[test]
    fn the_default_profile_answers_like_the_original() {
        let filter = compile(&default_profile(&Capabilities::new())).unwrap();
        assert!(filter.program.len() < 1500, "{} instructions", filter.program.len());
        let amd64 =
            |name: &str, first: u64| run(&filter, AUDIT_X86_64, number(name, 0), [first, 0, 0, 0, 0, 0]);
        assert_eq!(amd64("read", 0), RET_ALLOW);
        assert_eq!(amd64("mount", 0), EPERM);
        assert_eq!(amd64("unshare", 0), EPERM);
        assert_eq!(amd64("clone3", 0), RET_ERRNO | ENOSYS);
        assert_eq!(amd64("clone", 17), RET_ALLOW);
        assert_eq!(amd64("clone", 0x1000_0011), EPERM);
        assert_eq!(amd64("socket", 2), RET_ALLOW);
        assert_eq!(amd64("socket", 38), EPERM);
        assert_eq!(amd64("socket", 40), EPERM);
        assert_eq!(amd64("socket", 41), RET_ALLOW);
        assert_eq!(amd64("personality", 0xffff_ffff), RET_ALLOW);
        assert_eq!(amd64("personality", 1), EPERM);
        assert_eq!(run(&filter, AUDIT_X86_64, 9999, [0; 6]), RET_ERRNO | ENOSYS);
        assert_eq!(run(&filter, AUDIT_X86, number("mount", 1), [0; 6]), EPERM);
        assert_eq!(run(&filter, AUDIT_X86, number("socketcall", 1), [0; 6]), RET_ALLOW);
        assert_eq!(run(&filter, AUDIT_X86_64, X32_BIT | number("read", 2), [0; 6]), RET_ALLOW);
        assert_eq!(run(&filter, AUDIT_X86_64, X32_BIT | number("mount", 2), [0; 6]), EPERM);
        assert_eq!(run(&filter, 0xc000_00b7, 0, [0; 6]), RET_KILL_PROCESS);
    }

    #[test]
    fn a_capability_opens_its_calls() {
        let caps: Capabilities = [Capability::SysAdmin].into_iter().collect();
        let filter = compile(&default_profile(&caps)).unwrap();
        assert_eq!(run(&filter, AUDIT_X86_64, number("mount", 0), [0; 6]), RET_ALLOW);
        assert_eq!(run(&filter, AUDIT_X86_64, number("clone3", 0), [0; 6]), RET_ALLOW);
    }

    #[test]
    fn every_operator_compares_all_64_bits() {
        use LinuxSeccompOperator as Op;
        let big = 0x1_0000_0005_u64;
        let values = [0, 5, 6, 0x1_0000_0004, big, big + 1, 0x2_0000_0000, u64::MAX];
        for op in [Op::ScmpCmpEq, Op::ScmpCmpNe, Op::ScmpCmpGt, Op::ScmpCmpGe, Op::ScmpCmpLt, Op::ScmpCmpLe] {
            let arg = LinuxSeccompArgBuilder::default().index(2_usize).value(big).op(op).build().unwrap();
            let rule = LinuxSyscallBuilder::default()
                .names(vec!["read".to_owned()])
                .action(LinuxSeccompAction::ScmpActAllow)
                .args(vec![arg])
                .build()
                .unwrap();
            let profile = LinuxSeccompBuilder::default()
                .default_action(LinuxSeccompAction::ScmpActErrno)
                .syscalls(vec![rule])
                .build()
                .unwrap();
            let filter = compile(&profile).unwrap();
            for value in values {
                let holds = match op {
                    Op::ScmpCmpEq => value == big,
                    Op::ScmpCmpNe => value != big,
                    Op::ScmpCmpGt => value > big,
                    Op::ScmpCmpGe => value >= big,
                    Op::ScmpCmpLt => value < big,
                    _ => value <= big,
                };
                let answer = run(&filter, AUDIT_X86_64, 0, [0, 0, value, 0, 0, 0]);
                assert_eq!(answer == RET_ALLOW, holds, "{op:?} {value:#x}");
            }
        }
    }
}
