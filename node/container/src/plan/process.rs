//! The program of a plan: who it runs as and with which rights.

use oci_spec::runtime::{
    IOPriorityClass, LinuxCapabilities, LinuxIOPriority, LinuxSchedulerFlag, LinuxSchedulerPolicy,
    PosixRlimitType, Process, Scheduler,
};
use serde::{Deserialize, Serialize};

use super::namespaces::utf8;
use super::{FilterPlan, MemoryPolicyPlan, PlanError, text};
use crate::capability;

/// A program and everything about its process that execve keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessPlan {
    /// Reap forever instead of executing anything.
    #[serde(default)]
    pub reaper: bool,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// Working folder, absolute inside the container.
    pub cwd: String,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    #[serde(default)]
    pub groups: Vec<u32>,
    /// File mode creation mask.
    #[serde(default)]
    pub umask: Option<u32>,
    /// Capability sets; `None` keeps all.
    #[serde(default)]
    pub caps: Option<CapabilityPlan>,
    /// Resource limits.
    #[serde(default)]
    pub rlimits: Vec<RlimitPlan>,
    /// Never gain privileges by execve.
    #[serde(default)]
    pub no_new_privs: bool,
    /// Badness for the kernel's OOM killer.
    #[serde(default)]
    pub oom_score_adj: Option<i32>,
    /// Class and level for block I/O, as the kernel packs them.
    #[serde(default)]
    pub io_priority: Option<i32>,
    /// How the CPU is shared with others.
    #[serde(default)]
    pub scheduler: Option<SchedulerPlan>,
    /// Which memory nodes it takes from.
    #[serde(default)]
    pub memory_policy: Option<MemoryPolicyPlan>,
    /// AppArmor profile to enter at execve.
    #[serde(default)]
    pub apparmor: Option<String>,
    /// SELinux label to enter at execve.
    #[serde(default)]
    pub selinux: Option<String>,
    /// System call filter.
    #[serde(default)]
    pub seccomp: Option<FilterPlan>,
}

/// The five capability sets as bit masks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityPlan {
    /// What execve may ever give.
    pub bounding: u64,
    /// What the kernel checks.
    pub effective: u64,
    /// What may become effective.
    pub permitted: u64,
    /// What execve of a marked file keeps.
    pub inheritable: u64,
    /// What execve of any file keeps.
    pub ambient: u64,
}

/// One resource limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RlimitPlan {
    /// `RLIMIT_*`.
    pub resource: u32,
    /// The limit that counts.
    pub soft: u64,
    /// How far the process may raise it.
    pub hard: u64,
}

/// A scheduling policy and its numbers, as `sched_setattr` takes them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerPlan {
    /// `SCHED_*`.
    pub policy: u32,
    /// `SCHED_FLAG_*`.
    pub flags: u64,
    /// Niceness.
    pub nice: i32,
    /// Static priority.
    pub priority: u32,
    /// Nanoseconds of work per period.
    pub runtime: u64,
    /// Nanoseconds until it must be done.
    pub deadline: u64,
    /// Nanoseconds between beginnings.
    pub period: u64,
}

/// Bit masks of the spec's capability sets.
pub fn capabilities(caps: &LinuxCapabilities) -> CapabilityPlan {
    let mask = |set: Option<&oci_spec::runtime::Capabilities>| set.map_or(0, capability::mask);
    CapabilityPlan {
        bounding: mask(caps.bounding().as_ref()),
        effective: mask(caps.effective().as_ref()),
        permitted: mask(caps.permitted().as_ref()),
        inheritable: mask(caps.inheritable().as_ref()),
        ambient: mask(caps.ambient().as_ref()),
    }
}

pub(super) fn plan(process: &Process) -> Result<ProcessPlan, PlanError> {
    let argv = process.args().clone().unwrap_or_default();
    if argv.first().is_none_or(String::is_empty) {
        return Err(PlanError::Missing { part: "program to run (process.args)" });
    }
    let env = process.env().clone().unwrap_or_default();
    for value in argv.iter().chain(&env) {
        text("process", value)?;
    }
    let cwd = utf8("process.cwd", process.cwd())?;
    if !cwd.starts_with('/') {
        return Err(PlanError::Invalid { field: "process.cwd", value: cwd, reason: "is not absolute" });
    }
    let user = process.user();
    let groups = user.additional_gids().clone().unwrap_or_default();
    // To the kernel this number means "stay who you are", which is root.
    // <https://man7.org/linux/man-pages/man2/setresuid.2.html>.
    if groups.iter().chain([&user.uid(), &user.gid()]).any(|id| *id == u32::MAX) {
        let value = u32::MAX.to_string();
        return Err(PlanError::Invalid { field: "process.user", value, reason: "is nobody's id" });
    }
    let rlimits = process.rlimits().as_deref().unwrap_or_default().iter();
    let rlimits = rlimits.map(|limit| RlimitPlan {
        resource: rlimit(limit.typ()),
        soft: limit.soft(),
        hard: limit.hard(),
    });
    let oom_score_adj = process.oom_score_adj();
    if let Some(adj) = oom_score_adj.filter(|adj| !(-1000..=1000).contains(adj)) {
        let reason = "is not within -1000 and 1000";
        return Err(PlanError::Invalid { field: "oomScoreAdj", value: adj.to_string(), reason });
    }
    Ok(ProcessPlan {
        reaper: false,
        argv,
        env,
        cwd,
        uid: user.uid(),
        gid: user.gid(),
        groups,
        umask: user.umask(),
        caps: Some(process.capabilities().as_ref().map(capabilities).unwrap_or_default()),
        rlimits: rlimits.collect(),
        no_new_privs: process.no_new_privileges().unwrap_or(false),
        oom_score_adj,
        io_priority: process.io_priority().as_ref().map(io_priority).transpose()?,
        scheduler: process.scheduler().as_ref().map(scheduler),
        memory_policy: None,
        apparmor: process.apparmor_profile().clone().filter(|p| !p.is_empty()),
        selinux: process.selinux_label().clone().filter(|l| !l.is_empty()),
        seccomp: None,
    })
}

/// The class in the upper bits, the level in the lower ones.
fn io_priority(wanted: &LinuxIOPriority) -> Result<i32, PlanError> {
    let level = i32::try_from(wanted.priority()).unwrap_or(i32::MAX);
    if !(0..8).contains(&level) {
        let reason = "is not within 0 and 7";
        return Err(PlanError::Invalid { field: "ioPriority", value: level.to_string(), reason });
    }
    let class = match wanted.class() {
        IOPriorityClass::IoprioClassRt => 1,
        IOPriorityClass::IoprioClassBe => 2,
        IOPriorityClass::IoprioClassIdle => 3,
    };
    Ok(class << 13 | level)
}

fn scheduler(wanted: &Scheduler) -> SchedulerPlan {
    let policy = match wanted.policy() {
        LinuxSchedulerPolicy::SchedOther => 0,
        LinuxSchedulerPolicy::SchedFifo => 1,
        LinuxSchedulerPolicy::SchedRr => 2,
        LinuxSchedulerPolicy::SchedBatch => 3,
        LinuxSchedulerPolicy::SchedIso => 4,
        LinuxSchedulerPolicy::SchedIdle => 5,
        LinuxSchedulerPolicy::SchedDeadline => 6,
    };
    let flag = |flag: &LinuxSchedulerFlag| match flag {
        LinuxSchedulerFlag::SchedResetOnFork => 0x01,
        LinuxSchedulerFlag::SchedFlagReclaim => 0x02,
        LinuxSchedulerFlag::SchedFlagDLOverrun => 0x04,
        LinuxSchedulerFlag::SchedFlagKeepPolicy => 0x08,
        LinuxSchedulerFlag::SchedFlagKeepParams => 0x10,
        LinuxSchedulerFlag::SchedFlagUtilClampMin => 0x20,
        LinuxSchedulerFlag::SchedFlagUtilClampMax => 0x40,
    };
    SchedulerPlan {
        policy,
        flags: wanted.flags().iter().flatten().map(flag).sum(),
        nice: wanted.nice().unwrap_or_default(),
        priority: wanted.priority().and_then(|one| u32::try_from(one).ok()).unwrap_or_default(),
        runtime: wanted.runtime().unwrap_or_default(),
        deadline: wanted.deadline().unwrap_or_default(),
        period: wanted.period().unwrap_or_default(),
    }
}

fn rlimit(kind: PosixRlimitType) -> u32 {
    match kind {
        PosixRlimitType::RlimitCpu => libc::RLIMIT_CPU,
        PosixRlimitType::RlimitFsize => libc::RLIMIT_FSIZE,
        PosixRlimitType::RlimitData => libc::RLIMIT_DATA,
        PosixRlimitType::RlimitStack => libc::RLIMIT_STACK,
        PosixRlimitType::RlimitCore => libc::RLIMIT_CORE,
        PosixRlimitType::RlimitRss => libc::RLIMIT_RSS,
        PosixRlimitType::RlimitNproc => libc::RLIMIT_NPROC,
        PosixRlimitType::RlimitNofile => libc::RLIMIT_NOFILE,
        PosixRlimitType::RlimitMemlock => libc::RLIMIT_MEMLOCK,
        PosixRlimitType::RlimitAs => libc::RLIMIT_AS,
        PosixRlimitType::RlimitLocks => libc::RLIMIT_LOCKS,
        PosixRlimitType::RlimitSigpending => libc::RLIMIT_SIGPENDING,
        PosixRlimitType::RlimitMsgqueue => libc::RLIMIT_MSGQUEUE,
        PosixRlimitType::RlimitNice => libc::RLIMIT_NICE,
        PosixRlimitType::RlimitRtprio => libc::RLIMIT_RTPRIO,
        PosixRlimitType::RlimitRttime => libc::RLIMIT_RTTIME,
    }
}
