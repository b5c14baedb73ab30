//! The resources CRI asks for as OCI limits.

use oci_spec::runtime::{LinuxCpu, LinuxHugepageLimit, LinuxMemory, LinuxResources};
use podwire_wire::cri;

/// The limits a container starts with. Zero means "not set", as everywhere in CRI.
pub(crate) fn plan(requested: &cri::LinuxContainerResources, cgroup_v2: bool) -> LinuxResources {
    let mut limits = LinuxResources::default();
    limits.set_cpu(Some(cpu(requested)));
    limits.set_memory(Some(memory(requested)));
    if !requested.hugepage_limits.is_empty() {
        limits.set_hugepage_limits(Some(requested.hugepage_limits.iter().map(hugepages).collect()));
    }
    if cgroup_v2 && !requested.unified.is_empty() {
        limits.set_unified(Some(requested.unified.clone()));
    }
    limits
}

fn cpu(requested: &cri::LinuxContainerResources) -> LinuxCpu {
    let mut cpu = LinuxCpu::default();
    cpu.set_shares(u64::try_from(requested.cpu_shares).ok().filter(|shares| *shares > 0));
    cpu.set_quota(Some(requested.cpu_quota).filter(|quota| *quota != 0));
    cpu.set_period(u64::try_from(requested.cpu_period).ok().filter(|period| *period > 0));
    cpu.set_cpus(Some(requested.cpuset_cpus.clone()).filter(|text| !text.is_empty()));
    cpu.set_mems(Some(requested.cpuset_mems.clone()).filter(|text| !text.is_empty()));
    cpu
}

fn memory(requested: &cri::LinuxContainerResources) -> LinuxMemory {
    let mut memory = LinuxMemory::default();
    let limit = Some(requested.memory_limit_in_bytes).filter(|limit| *limit != 0);
    memory.set_limit(limit);
    // Without a word about swap, a memory limit allows none.
    memory.set_swap(Some(requested.memory_swap_limit_in_bytes).filter(|swap| *swap != 0).or(limit));
    memory
}

fn hugepages(requested: &cri::HugepageLimit) -> LinuxHugepageLimit {
    let mut limit = LinuxHugepageLimit::default();
    limit.set_page_size(requested.page_size.clone());
    limit.set_limit(i64::try_from(requested.limit).unwrap_or(i64::MAX));
    limit
}

/// `known` with every field that `requested` sets replaced: what UpdateContainerResources leaves behind.
pub(crate) fn merge(
    known: &cri::LinuxContainerResources,
    requested: &cri::LinuxContainerResources,
) -> cri::LinuxContainerResources {
    let number = |new: i64, old: i64| if new == 0 { old } else { new };
    let text = |new: &str, old: &str| if new.is_empty() { old.to_owned() } else { new.to_owned() };
    let mut unified = known.unified.clone();
    unified.extend(requested.unified.clone());
    cri::LinuxContainerResources {
        cpu_period: number(requested.cpu_period, known.cpu_period),
        cpu_quota: number(requested.cpu_quota, known.cpu_quota),
        cpu_shares: number(requested.cpu_shares, known.cpu_shares),
        memory_limit_in_bytes: number(requested.memory_limit_in_bytes, known.memory_limit_in_bytes),
        oom_score_adj: number(requested.oom_score_adj, known.oom_score_adj),
        cpuset_cpus: text(&requested.cpuset_cpus, &known.cpuset_cpus),
        cpuset_mems: text(&requested.cpuset_mems, &known.cpuset_mems),
        hugepage_limits: if requested.hugepage_limits.is_empty() {
            known.hugepage_limits.clone()
        } else {
            requested.hugepage_limits.clone()
        },
        unified,
        memory_swap_limit_in_bytes: number(
            requested.memory_swap_limit_in_bytes,
            known.memory_swap_limit_in_bytes,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_means_not_set_and_swap_follows_memory() {
        let requested = cri::LinuxContainerResources {
            memory_limit_in_bytes: 1 << 20,
            cpu_shares: 512,
            ..Default::default()
        };
        let limits = plan(&requested, false);
        let memory = limits.memory().unwrap();
        assert_eq!((memory.limit(), memory.swap()), (Some(1 << 20), Some(1 << 20)));
        let cpu = limits.cpu().clone().unwrap();
        assert_eq!((cpu.shares(), cpu.quota(), cpu.period()), (Some(512), None, None));
        assert!(limits.hugepage_limits().is_none());
    }

    #[test]
    fn an_update_keeps_what_it_does_not_mention() {
        let known =
            cri::LinuxContainerResources { cpu_shares: 2, memory_limit_in_bytes: 7, ..Default::default() };
        let requested = cri::LinuxContainerResources { cpu_shares: 10, ..Default::default() };
        let merged = merge(&known, &requested);
        assert_eq!((merged.cpu_shares, merged.memory_limit_in_bytes), (10, 7));
    }
}
