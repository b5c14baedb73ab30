//! Encryption at rest: values as kube-apiserver encrypts them, so that it and this server read each other's with the same file.
//!
//! A value begins with `k8s:enc:`, the provider, its version and the name of the key. The first provider of a resource writes, any of
//! them reads. [`Encrypted`] is a store in front of another one, whatever its values are; keys and revisions stay as they are.

mod cipher;
mod configuration;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cipher::{Cipher, Unsealed};
use podwire_store::{KeyValue, Revision, Store, StoreError};

use crate::coded::{Coded, Coding};
use crate::upstream::{builtin_at, prefix_of};

/// A store in front of one that holds encrypted values.
pub type Encrypted<S> = Coded<S, Encryption>;

/// What every encrypted value begins with.
pub(crate) const MARK: &[u8] = b"k8s:enc:";

/// What of all stores' keys is the servers'.
const ROOT: &str = "/registry";

/// A resource, or some: `*` stands for all of a group, and as group too for all of all.
type Resource = (String, String);

/// Why an encryption configuration is not taken.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    /// The file.
    #[error("read the encryption configuration {path:?}")]
    Read {
        /// Where it was looked for.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no YAML or JSON.
    #[error("the encryption configuration cannot be parsed")]
    Parse(#[from] serde_yaml_ng::Error),
    /// It says what cannot be meant; by field, and all of it.
    #[error("the encryption configuration is invalid: {}", .0.join("; "))]
    Invalid(Vec<String>),
}

/// Who encrypts the values of some resources.
struct Rule {
    resources: Vec<Resource>,
    providers: Vec<Provider>,
}

/// A way to write values.
#[derive(Clone)]
enum Provider {
    /// As they are.
    Identity,
    /// Encrypted by the first of the keys.
    Sealing { prefix: &'static str, keys: Arc<[(String, Cipher)]> },
}

/// How values are encrypted, of which resources.
pub struct Encryption {
    by_resource: HashMap<Resource, Vec<Provider>>,
    /// What keys begin with instead of `/registry`, where they lie.
    prefix: String,
    /// Values that the first key has not written, by the version that was read last.
    stale: Mutex<HashMap<String, Revision>>,
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encryption").field("resources", &self.by_resource.keys()).finish_non_exhaustive()
    }
}

/// What an encrypted value was.
#[derive(Debug, PartialEq, Eq)]
struct Opened {
    value: Bytes,
    /// Another provider or key would be written with now.
    stale: bool,
}

/// The resource that a key of a store is of, as configurations call it; what nobody is served (node ports, where servers are) is none, and no
/// wildcard is for it.
fn resource_at(key: &str) -> Option<Resource> {
    let of = |group: &str, resource: &str| Some((group.to_owned(), resource.to_owned()));
    if let Some(kind) = builtin_at(key) {
        return of(&kind.group, &kind.resource);
    }
    let (group, resource) =
        prefix_of(key)?.strip_prefix("/registry/")?.trim_end_matches('/').split_once('/')?;
    of(group, resource)
}

impl Encryption {
    /// Reads kube-apiserver's `EncryptionConfiguration`; keys of the store begin with `prefix` instead of `/registry`.
    pub fn parse(text: &str, prefix: &str) -> Result<Self, EncryptionError> {
        let mut by_resource: HashMap<Resource, Vec<Provider>> = HashMap::new();
        for rule in configuration::rules(text)? {
            for resource in rule.resources {
                by_resource.entry(resource).or_default().extend(rule.providers.iter().cloned());
            }
        }
        Ok(Self { by_resource, prefix: prefix.to_owned(), stale: Mutex::default() })
    }

    /// Reads it from a file.
    pub fn read(path: &std::path::Path, prefix: &str) -> Result<Self, EncryptionError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| EncryptionError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, prefix)
    }

    /// Whether an object at this version is to be written again although nothing of it changes.
    pub(crate) fn is_stale(&self, kv: &KeyValue) -> bool {
        let stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        stale.get(&*kv.key) == Some(&kv.mod_revision)
    }

    fn note(&self, kv: &KeyValue, stale: bool) {
        let mut all = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        if stale {
            all.insert(kv.key.to_string(), kv.mod_revision);
        } else if !all.is_empty() {
            all.remove(&*kv.key);
        }
    }

    fn providers(&self, key: &str) -> Option<&[Provider]> {
        let (group, resource) = resource_at(key)?;
        let any = || "*".to_owned();
        let asked = [(group.clone(), resource), (group, any()), (any(), any())];
        asked.iter().find_map(|resource| self.by_resource.get(resource)).map(Vec::as_slice)
    }

    /// What an encrypted value is bound to: where it lies.
    fn place(&self, key: &str) -> String {
        key.strip_prefix(ROOT).map_or_else(|| key.to_owned(), |rest| format!("{}{rest}", self.prefix))
    }

    /// A value as it is to lie there.
    fn seal(&self, key: &str, value: Bytes) -> Result<Bytes, StoreError> {
        let Some(Provider::Sealing { prefix, keys }) = self.providers(key).and_then(<[Provider]>::first)
        else {
            return Ok(value);
        };
        let failed = |reason: &str| StoreError::Encoding { key: key.to_owned(), reason: reason.to_owned() };
        let (name, cipher) = keys.first().ok_or_else(|| failed("its provider has no key"))?;
        let mut out = format!("{prefix}{name}:").into_bytes();
        let sealed = cipher.seal(&value, self.place(key).as_bytes());
        out.extend_from_slice(&sealed.map_err(|Unsealed| failed("it cannot be encrypted"))?);
        Ok(out.into())
    }

    /// A value that lies there as it was.
    fn open(&self, key: &str, value: &Bytes) -> Result<Opened, StoreError> {
        let plain = |stale| Ok(Opened { value: value.clone(), stale });
        let Some(providers) = self.providers(key) else {
            return if value.starts_with(MARK) {
                Err(unread(key, "no provider is named for its resource"))
            } else {
                plain(false)
            };
        };
        let mut tried = false;
        for (at, provider) in providers.iter().enumerate() {
            let (prefix, keys) = match provider {
                Provider::Identity if value.starts_with(MARK) => continue,
                Provider::Identity => return plain(at != 0),
                Provider::Sealing { prefix, keys } => (prefix, keys),
            };
            let Some(rest) = value.strip_prefix(prefix.as_bytes()) else { continue };
            for (number, (name, cipher)) in keys.iter().enumerate() {
                let named = rest.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b":"));
                let Some(sealed) = named else { continue };
                tried = true;
                if let Ok(value) = cipher.open(sealed, self.place(key).as_bytes()) {
                    return Ok(Opened { value: value.into(), stale: at != 0 || number != 0 });
                }
            }
        }
        Err(unread(
            key,
            if tried { "its key does not fit" } else { "no provider or key that is named has written it" },
        ))
    }
}

impl<S: Store> Encrypted<S> {
    /// Encrypts in front of this store.
    pub fn new(store: S, encryption: Arc<Encryption>) -> Self {
        Self { store, coding: encryption }
    }
}

impl Coding for Encryption {
    fn outward(&self, key: &str, value: Bytes) -> Result<Bytes, StoreError> {
        self.seal(key, value)
    }

    fn asked(&self, mut kv: KeyValue) -> Result<KeyValue, StoreError> {
        let opened = self.open(&kv.key, &kv.value)?;
        self.note(&kv, opened.stale);
        kv.value = opened.value;
        Ok(kv)
    }

    fn listed(&self, mut kv: KeyValue) -> Result<KeyValue, StoreError> {
        kv.value = self.open(&kv.key, &kv.value)?.value;
        Ok(kv)
    }

    fn told(&self, mut kv: KeyValue) -> KeyValue {
        match self.open(&kv.key, &kv.value) {
            Ok(opened) => kv.value = opened.value,
            Err(error) => {
                tracing::error!(key = %kv.key, error = %crate::error_chain(&error), "an object cannot be decrypted");
            }
        }
        kv
    }
}

fn unread(key: &str, why: &str) -> StoreError {
    StoreError::Encoding { key: key.to_owned(), reason: format!("it cannot be decrypted: {why}") }
}

/// Refuses an encrypted value where nobody decrypts.
pub(crate) fn refuse(key: &str, value: &[u8]) -> Result<(), StoreError> {
    if value.starts_with(MARK) {
        let reason = "it is encrypted; name the configuration with --encryption-provider-config".to_owned();
        return Err(StoreError::Encoding { key: key.to_owned(), reason });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
