//! Which plugin set which field of which container. Pure.

use podwire_wire::nri::{Field, FieldOwners, OwningPlugins};

/// Two plugins want what only one can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Both set the same field.
    #[error("plugins {plugin:?} and {other:?} both tried to set {what} of container {container}")]
    Both {
        /// The later plugin.
        plugin: String,
        /// The one that was first.
        other: String,
        /// The field, and its key if it has keys.
        what: String,
        /// The container.
        container: String,
    },
    /// A plugin updates the container it is asked to adjust.
    #[error("plugin {plugin:?} tried to update container {container} while it is being created")]
    SelfUpdate {
        /// The plugin.
        plugin: String,
        /// The container.
        container: String,
    },
}

/// The owners of all fields that were set.
#[derive(Debug, Default)]
pub(crate) struct Owners(OwningPlugins);

impl Owners {
    /// Gives a field to a plugin, unless another one has it; the same plugin asking twice is a conflict too,
    /// because two instances may share a name.
    pub(crate) fn claim(
        &mut self,
        container: &str,
        field: Field,
        key: Option<&str>,
        plugin: &str,
    ) -> Result<(), Conflict> {
        let fields = self.0.owners.entry(container.to_owned()).or_default();
        let old = match key {
            None => fields.simple.insert(field as i32, plugin.to_owned()),
            Some(key) => {
                let owners = &mut fields.compound.entry(field as i32).or_default().owners;
                owners.insert(key.to_owned(), plugin.to_owned())
            }
        };
        let Some(other) = old else { return Ok(()) };
        let what = key
            .map_or_else(|| field.as_str_name().to_owned(), |key| format!("{} {key}", field.as_str_name()));
        Err(Conflict::Both { plugin: plugin.into(), other, what, container: container.into() })
    }

    /// Adds a plugin to the owners of a field that several may set.
    pub(crate) fn share(&mut self, container: &str, field: Field, plugin: &str) {
        let fields = self.0.owners.entry(container.to_owned()).or_default();
        let owner = fields.simple.entry(field as i32).or_default();
        if !owner.is_empty() {
            owner.push(',');
        }
        owner.push_str(plugin);
    }

    /// Frees a field.
    pub(crate) fn clear(&mut self, container: &str, field: Field, key: Option<&str>) {
        let Some(fields) = self.0.owners.get_mut(container) else { return };
        match key {
            None => {
                fields.simple.remove(&(field as i32));
            }
            Some(key) => {
                if let Some(compound) = fields.compound.get_mut(&(field as i32)) {
                    compound.owners.remove(key);
                }
            }
        }
    }

    /// Everything owned of one container.
    pub(crate) fn of(&self, container: &str) -> Option<FieldOwners> {
        self.0.owners.get(container).cloned()
    }

    /// Puts one container's owners back as they were.
    pub(crate) fn restore(&mut self, container: &str, before: Option<FieldOwners>) {
        match before {
            Some(before) => self.0.owners.insert(container.to_owned(), before),
            None => self.0.owners.remove(container),
        };
    }

    /// All of it, as validators are told.
    pub(crate) fn all(&self) -> OwningPlugins {
        self.0.clone()
    }
}
