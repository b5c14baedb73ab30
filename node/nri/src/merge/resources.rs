//! Limits: who sets which, and laying one set over another. Pure.

use podwire_wire::nri::{Field, LinuxRdt, LinuxResources};

use super::owners::{Conflict, Owners};

/// Gives every limit that `wanted` sets to the plugin.
pub(super) fn claim_resources(
    owners: &mut Owners,
    id: &str,
    plugin: &str,
    wanted: &LinuxResources,
) -> Result<(), Conflict> {
    let mut set = Vec::new();
    if let Some(memory) = &wanted.memory {
        set.extend([
            (Field::MemLimit, memory.limit.is_some()),
            (Field::MemReservation, memory.reservation.is_some()),
            (Field::MemSwapLimit, memory.swap.is_some()),
            (Field::MemKernelLimit, memory.kernel.is_some()),
            (Field::MemTcpLimit, memory.kernel_tcp.is_some()),
            (Field::MemSwappiness, memory.swappiness.is_some()),
            (Field::MemDisableOomKiller, memory.disable_oom_killer.is_some()),
            (Field::MemUseHierarchy, memory.use_hierarchy.is_some()),
        ]);
    }
    if let Some(cpu) = &wanted.cpu {
        set.extend([
            (Field::CpuShares, cpu.shares.is_some()),
            (Field::CpuQuota, cpu.quota.is_some()),
            (Field::CpuPeriod, cpu.period.is_some()),
            (Field::CpuRealtimeRuntime, cpu.realtime_runtime.is_some()),
            (Field::CpuRealtimePeriod, cpu.realtime_period.is_some()),
            (Field::CpuSetCpUs, !cpu.cpus.is_empty()),
            (Field::CpuSetMems, !cpu.mems.is_empty()),
        ]);
    }
    set.extend([
        (Field::PidsLimit, wanted.pids.is_some()),
        (Field::BlockioClass, wanted.blockio_class.is_some()),
        (Field::RdtClass, wanted.rdt_class.is_some()),
    ]);
    for (field, _) in set.into_iter().filter(|(_, set)| *set) {
        owners.claim(id, field, None, plugin)?;
    }
    for limit in &wanted.hugepage_limits {
        owners.claim(id, Field::HugepageLimits, Some(&limit.page_size), plugin)?;
    }
    for key in wanted.unified.keys() {
        owners.claim(id, Field::CgroupsUnified, Some(key), plugin)?;
    }
    Ok(())
}

/// Replaces in `target` what `over` sets.
pub(crate) fn overlay_resources(target: &mut LinuxResources, over: &LinuxResources) {
    macro_rules! overlay {
        ($target:expr, $over:expr, $($field:ident),*) => {
            $(if $over.$field.is_some() { $target.$field = $over.$field.clone(); })*
        };
    }
    if let Some(over) = &over.memory {
        let target = target.memory.get_or_insert_default();
        overlay!(
            target,
            over,
            limit,
            reservation,
            swap,
            kernel,
            kernel_tcp,
            swappiness,
            disable_oom_killer,
            use_hierarchy
        );
    }
    if let Some(over) = &over.cpu {
        let target = target.cpu.get_or_insert_default();
        overlay!(target, over, shares, quota, period, realtime_runtime, realtime_period);
        for (target, over) in [(&mut target.cpus, &over.cpus), (&mut target.mems, &over.mems)] {
            if !over.is_empty() {
                target.clone_from(over);
            }
        }
    }
    overlay!(target, over, blockio_class, rdt_class, pids);
    for limit in &over.hugepage_limits {
        target.hugepage_limits.retain(|old| old.page_size != limit.page_size);
        target.hugepage_limits.push(limit.clone());
    }
    target.unified.extend(over.unified.clone());
    target.devices.extend(over.devices.clone());
}

/// Cache and bandwidth allocation: parts are owned one by one; `remove` frees them all.
pub(super) fn adjust_rdt(
    owners: &mut Owners,
    id: &str,
    plugin: &str,
    wanted: LinuxRdt,
    adjust: &mut Option<LinuxRdt>,
    seen: &mut Option<LinuxRdt>,
) -> Result<(), Conflict> {
    let parts = [
        (Field::RdtClosId, wanted.clos_id.is_some()),
        (Field::RdtSchemata, wanted.schemata.is_some()),
        (Field::RdtEnableMonitoring, wanted.enable_monitoring.is_some()),
    ];
    if wanted.remove {
        parts.iter().for_each(|(field, _)| owners.clear(id, *field, None));
    }
    for (field, _) in parts.into_iter().filter(|(_, set)| *set) {
        owners.claim(id, field, None, plugin)?;
    }
    for target in [adjust, seen] {
        let target = target.get_or_insert_default();
        if wanted.remove {
            *target = LinuxRdt { remove: true, ..LinuxRdt::default() };
        }
        let LinuxRdt { clos_id, schemata, enable_monitoring, .. } = wanted.clone();
        if clos_id.is_some() || schemata.is_some() || enable_monitoring.is_some() {
            target.remove = false;
        }
        target.clos_id = clos_id.or(target.clos_id.take());
        target.schemata = schemata.or(target.schemata.take());
        target.enable_monitoring = enable_monitoring.or(target.enable_monitoring.take());
    }
    Ok(())
}
