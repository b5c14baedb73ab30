//! Puts the changes of several plugins together, in their order, and finds out when two want the same. Pure.
//!
//! Every field (and every key of a field that has keys) belongs to the first plugin that sets it; another that
//! sets it too is a conflict. A plugin may take something away first (a `-` in front of the key), which frees it.
//! Later plugins see the container as the earlier ones left it.

mod owners;
mod resources;
mod words;

use std::collections::{HashMap, HashSet};

use podwire_wire::nri::{
    Container, ContainerAdjustment, ContainerEviction, ContainerUpdate, CreateContainerResponse, Field,
    Hooks, LinuxContainer, LinuxContainerAdjustment, LinuxContainerUpdate, LinuxResources, OwningPlugins,
};

pub use self::owners::Conflict;
use self::owners::Owners;
use self::resources::{claim_resources, overlay_resources};
pub(crate) use self::words::requested;

/// The mark in front of a key that is to be taken away.
const REMOVAL: char = '-';

/// What plugins want of the container being created or updated, and of others.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    owners: Owners,
    /// The container as the next plugin shall see it.
    pub(crate) container: Container,
    /// All changes so far to a container being created.
    pub(crate) adjust: ContainerAdjustment,
    /// The limits of a container being updated, as the next plugin shall see them.
    pub(crate) resources: LinuxResources,
    pub(crate) updates: Vec<ContainerUpdate>,
    pub(crate) evictions: Vec<ContainerEviction>,
    creating: bool,
}

impl Merged {
    /// Nothing wanted yet of a container that is to be created.
    pub(crate) fn creating(container: Container) -> Self {
        Self { container, creating: true, ..Self::default() }
    }

    /// Nothing wanted yet of a container whose limits change.
    pub(crate) fn updating(container: Container, resources: LinuxResources) -> Self {
        Self { container, resources, ..Self::default() }
    }

    /// Nothing wanted yet of any container.
    pub(crate) fn others() -> Self {
        Self::default()
    }

    /// Who owns what.
    pub(crate) fn owners(&self) -> OwningPlugins {
        self.owners.all()
    }

    /// Takes in a plugin's answer to a creation.
    pub(crate) fn created(&mut self, plugin: &str, answer: CreateContainerResponse) -> Result<(), Conflict> {
        if let Some(adjust) = answer.adjust {
            self.adjust(plugin, adjust)?;
        }
        self.update(plugin, answer.update)?;
        self.evictions.extend(answer.evict);
        Ok(())
    }

    fn id(&self) -> String {
        self.container.id.clone()
    }

    fn adjust(&mut self, plugin: &str, wanted: ContainerAdjustment) -> Result<(), Conflict> {
        self.annotations(plugin, wanted.annotations)?;
        self.mounts(plugin, wanted.mounts)?;
        self.env(plugin, wanted.env)?;
        self.args(plugin, wanted.args)?;
        if let Some(hooks) = wanted.hooks {
            self.hooks(plugin, hooks);
        }
        let id = self.id();
        for limit in wanted.rlimits {
            self.owners.claim(&id, Field::Rlimits, Some(&limit.r#type), plugin)?;
            self.container.rlimits.retain(|old| old.r#type != limit.r#type);
            self.container.rlimits.push(limit.clone());
            self.adjust.rlimits.push(limit);
        }
        for device in wanted.cdi_devices {
            self.owners.claim(&id, Field::CdiDevices, Some(&device.name), plugin)?;
            self.container.cdi_devices.push(device.clone());
            self.adjust.cdi_devices.push(device);
        }
        match wanted.linux {
            Some(linux) => self.linux(plugin, linux),
            None => Ok(()),
        }
    }

    fn annotations(&mut self, plugin: &str, wanted: HashMap<String, String>) -> Result<(), Conflict> {
        let id = self.id();
        map(
            &mut self.owners,
            (&id, Field::Annotations, plugin),
            wanted,
            &mut self.container.annotations,
            &mut self.adjust.annotations,
        )
    }

    fn mounts(&mut self, plugin: &str, wanted: Vec<podwire_wire::nri::Mount>) -> Result<(), Conflict> {
        let id = self.id();
        list(
            &mut self.owners,
            (&id, Field::Mounts, plugin),
            wanted,
            |mount| &mount.destination,
            &mut self.container.mounts,
            &mut self.adjust.mounts,
        )
    }

    fn env(&mut self, plugin: &str, wanted: Vec<podwire_wire::nri::KeyValue>) -> Result<(), Conflict> {
        let id = self.id();
        let mut seen: Vec<_> = self
            .container
            .env
            .iter()
            .map(|text| {
                let (key, value) = text.split_once('=').unwrap_or((text, ""));
                podwire_wire::nri::KeyValue { key: key.into(), value: value.into() }
            })
            .collect();
        let place = (id.as_str(), Field::Env, plugin);
        list(&mut self.owners, place, wanted, |one| &one.key, &mut seen, &mut self.adjust.env)?;
        self.container.env = seen.iter().map(|one| format!("{}={}", one.key, one.value)).collect();
        Ok(())
    }

    fn args(&mut self, plugin: &str, mut wanted: Vec<String>) -> Result<(), Conflict> {
        if wanted.is_empty() {
            return Ok(());
        }
        let id = self.id();
        if wanted[0].is_empty() {
            self.owners.clear(&id, Field::Args, None);
            wanted.remove(0);
        }
        self.owners.claim(&id, Field::Args, None, plugin)?;
        self.container.args.clone_from(&wanted);
        self.adjust.args = wanted;
        Ok(())
    }

    /// Hooks of all plugins run; nobody owns them alone.
    fn hooks(&mut self, plugin: &str, hooks: Hooks) {
        let id = self.id();
        self.owners.share(&id, Field::OciHooks, plugin);
        for target in [&mut self.container.hooks, &mut self.adjust.hooks] {
            let target = target.get_or_insert_default();
            target.prestart.extend(hooks.prestart.clone());
            target.create_runtime.extend(hooks.create_runtime.clone());
            target.create_container.extend(hooks.create_container.clone());
            target.start_container.extend(hooks.start_container.clone());
            target.poststart.extend(hooks.poststart.clone());
            target.poststop.extend(hooks.poststop.clone());
        }
    }

    fn linux(&mut self, plugin: &str, wanted: LinuxContainerAdjustment) -> Result<(), Conflict> {
        let id = self.id();
        let seen: &mut LinuxContainer = self.container.linux.get_or_insert_default();
        let adjust: &mut LinuxContainerAdjustment = self.adjust.linux.get_or_insert_default();
        let owners = &mut self.owners;
        let place = |field| (id.as_str(), field, plugin);
        list(
            owners,
            place(Field::Devices),
            wanted.devices,
            |one| &one.path,
            &mut seen.devices,
            &mut adjust.devices,
        )?;
        map(owners, place(Field::Sysctl), wanted.sysctl, &mut seen.sysctl, &mut adjust.sysctl)?;
        let net = place(Field::LinuxNetDevices);
        map(owners, net, wanted.net_devices, &mut seen.net_devices, &mut adjust.net_devices)?;
        for namespace in wanted.namespaces {
            let key = namespace.r#type.trim_start_matches(REMOVAL).to_owned();
            owners.claim(&id, Field::Namespace, Some(&key), plugin)?;
            seen.namespaces.retain(|old| old.r#type != key);
            if !namespace.r#type.starts_with(REMOVAL) {
                seen.namespaces.push(namespace.clone());
            }
            adjust.namespaces.push(namespace);
        }
        if let Some(resources) = wanted.resources {
            claim_resources(owners, &id, plugin, &resources)?;
            overlay_resources(seen.resources.get_or_insert_default(), &resources);
            overlay_resources(adjust.resources.get_or_insert_default(), &resources);
        }
        if !wanted.cgroups_path.is_empty() {
            owners.claim(&id, Field::CgroupsPath, None, plugin)?;
            seen.cgroups_path.clone_from(&wanted.cgroups_path);
            adjust.cgroups_path = wanted.cgroups_path;
        }
        simple(
            owners,
            place(Field::OomScoreAdj),
            wanted.oom_score_adj,
            &mut seen.oom_score_adj,
            &mut adjust.oom_score_adj,
        )?;
        simple(
            owners,
            place(Field::IoPriority),
            wanted.io_priority,
            &mut seen.io_priority,
            &mut adjust.io_priority,
        )?;
        let seccomp = place(Field::SeccompPolicy);
        simple(owners, seccomp, wanted.seccomp_policy, &mut seen.seccomp_policy, &mut adjust.seccomp_policy)?;
        simple(
            owners,
            place(Field::LinuxSched),
            wanted.scheduler,
            &mut seen.scheduler,
            &mut adjust.scheduler,
        )?;
        simple(
            owners,
            place(Field::MemoryPolicy),
            wanted.memory_policy,
            &mut None,
            &mut adjust.memory_policy,
        )?;
        match wanted.rdt {
            Some(rdt) => resources::adjust_rdt(owners, &id, plugin, rdt, &mut adjust.rdt, &mut seen.rdt),
            None => Ok(()),
        }
    }

    /// Takes in what a plugin wants of existing containers.
    pub(crate) fn update(&mut self, plugin: &str, updates: Vec<ContainerUpdate>) -> Result<(), Conflict> {
        for update in updates {
            if self.creating && update.container_id == self.container.id {
                return Err(Conflict::SelfUpdate { plugin: plugin.into(), container: update.container_id });
            }
            let before = self.owners.of(&update.container_id);
            match self.one_update(plugin, &update) {
                Err(conflict) if !update.ignore_failure => return Err(conflict),
                Err(_) => self.owners.restore(&update.container_id, before),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn one_update(&mut self, plugin: &str, update: &ContainerUpdate) -> Result<(), Conflict> {
        let id = &update.container_id;
        let Some(resources) = update.linux.as_ref().and_then(|linux| linux.resources.as_ref()) else {
            return Ok(());
        };
        claim_resources(&mut self.owners, id, plugin, resources)?;
        if *id == self.container.id {
            overlay_resources(&mut self.resources, resources);
            return Ok(());
        }
        match self.updates.iter_mut().find(|old| old.container_id == *id) {
            Some(old) => {
                let target = old.linux.get_or_insert_default().resources.get_or_insert_default();
                overlay_resources(target, resources);
                old.ignore_failure &= update.ignore_failure;
            }
            None => self.updates.push(ContainerUpdate {
                linux: Some(LinuxContainerUpdate { resources: Some(resources.clone()) }),
                ..update.clone()
            }),
        }
        Ok(())
    }
}

/// The container, the field and the plugin that wants it.
type Place<'a> = (&'a str, Field, &'a str);

/// A field with keys in a map.
fn map<V: Clone + Default>(
    owners: &mut Owners,
    (id, field, plugin): Place<'_>,
    wanted: HashMap<String, V>,
    seen: &mut HashMap<String, V>,
    adjust: &mut HashMap<String, V>,
) -> Result<(), Conflict> {
    let (gone, set): (HashMap<_, _>, HashMap<_, _>) =
        wanted.into_iter().partition(|(key, _)| key.starts_with(REMOVAL));
    for marked in gone.into_keys() {
        let key = &marked[1..];
        owners.clear(id, field, Some(key));
        seen.remove(key);
        adjust.remove(key);
        adjust.insert(marked, V::default());
    }
    for (key, value) in set {
        owners.claim(id, field, Some(&key), plugin)?;
        seen.insert(key.clone(), value.clone());
        adjust.insert(key, value);
    }
    Ok(())
}

/// A field with keys in a list.
fn list<T: Clone>(
    owners: &mut Owners,
    (id, field, plugin): Place<'_>,
    wanted: Vec<T>,
    key: fn(&T) -> &String,
    seen: &mut Vec<T>,
    adjust: &mut Vec<T>,
) -> Result<(), Conflict> {
    let (gone, set): (Vec<T>, Vec<T>) = wanted.into_iter().partition(|one| key(one).starts_with(REMOVAL));
    let removed: HashSet<String> = gone.iter().map(|one| key(one)[1..].to_owned()).collect();
    for key in &removed {
        owners.clear(id, field, Some(key));
    }
    adjust.retain(|one| !removed.contains(key(one)));
    let replaced: HashSet<String> = set.iter().map(|one| key(one).clone()).collect();
    seen.retain(|one| !removed.contains(key(one)) && !replaced.contains(key(one)));
    // The mark itself stays in the changes, so that what the container had of its own goes too.
    adjust.extend(gone);
    for one in set {
        owners.claim(id, field, Some(key(&one)), plugin)?;
        seen.push(one.clone());
        adjust.push(one);
    }
    Ok(())
}

/// A field without keys.
fn simple<T: Clone>(
    owners: &mut Owners,
    (id, field, plugin): Place<'_>,
    wanted: Option<T>,
    seen: &mut Option<T>,
    adjust: &mut Option<T>,
) -> Result<(), Conflict> {
    if wanted.is_some() {
        owners.claim(id, field, None, plugin)?;
        seen.clone_from(&wanted);
        *adjust = wanted;
    }
    Ok(())
}

#[cfg(test)]
#[path = "merge/tests.rs"]
mod tests;
