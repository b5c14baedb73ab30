//! Network configurations: found in a folder, read, and what is wrong with them.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::Error;
use crate::spec::error::CniError;
use crate::spec::json::Object;
use crate::spec::request::check_network;
use crate::spec::version::Version;

/// A list of plugins that make a network.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflist {
    /// The network's name.
    pub name: String,
    /// The version its plugins are spoken to in.
    pub version: Version,
    /// CHECK is not to be called.
    pub disable_check: bool,
    /// GC is not to be called.
    pub disable_gc: bool,
    /// The plugins' configurations, as written.
    pub plugins: Vec<Map<String, Value>>,
    /// The bytes of the file, for the cache.
    pub bytes: Vec<u8>,
}

impl Conflist {
    /// Reads a list; a single plugin's configuration becomes a list of one.
    pub fn parse(bytes: &[u8], conf_dir: Option<&Path>) -> Result<Conflist, CniError> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| {
            CniError::new(crate::spec::error::code::DECODE, format!("error parsing configuration: {error}"))
        })?;
        let object = Object::of(&value, "")?;
        let name = object.str("name")?.unwrap_or_default().to_owned();
        check_network(&name)?;
        let single = object.str("cniVersion")?.unwrap_or_default();
        let version = Version::negotiate(single, &object.strings("cniVersions")?)?;
        let mut list = Conflist {
            name,
            version,
            disable_check: boolean(&object, "disableCheck")?,
            disable_gc: boolean(&object, "disableGC")?,
            plugins: Vec::new(),
            bytes: bytes.to_vec(),
        };
        let inlined_only = boolean(&object, "loadOnlyInlinedPlugins")?;
        if object.get("plugins").is_none() && object.text("type")?.is_some() {
            if let Value::Object(plugin) = &value {
                list.plugins.push(plugin.clone());
            }
            return Ok(list);
        }
        for (path, plugin) in object.list("plugins")? {
            list.push(plugin, &path)?;
        }
        if !inlined_only && let Some(dir) = conf_dir {
            list.load_folder(&dir.join(&list.name))?;
        }
        if list.plugins.is_empty() {
            return Err(CniError::config("error parsing configuration list: no plugins in list"));
        }
        Ok(list)
    }

    fn push(&mut self, plugin: &Value, path: &str) -> Result<(), CniError> {
        let object = Object::of(plugin, path)?;
        if object.text("type")?.is_none() {
            return Err(CniError::config(format!(
                "error parsing configuration list: {path} has no \"type\""
            )));
        }
        if let Value::Object(plugin) = plugin {
            self.plugins.push(plugin.clone());
        }
        Ok(())
    }

    /// Adds the plugins of the folder named like the network.
    fn load_folder(&mut self, dir: &Path) -> Result<(), CniError> {
        for file in files(dir, &["conf"]) {
            let bytes = std::fs::read(&file)
                .map_err(|error| CniError::internal(format!("{}: {error}", file.display())))?;
            let value: Value = serde_json::from_slice(&bytes).map_err(|error| {
                CniError::new(crate::spec::error::code::DECODE, format!("{}: {error}", file.display()))
            })?;
            self.push(&value, &file.display().to_string())?;
        }
        Ok(())
    }

    /// The name of the n-th plugin.
    pub fn kind(&self, step: usize) -> &str {
        let Some(plugin) = self.plugins.get(step) else { return "" };
        let folded =
            || plugin.iter().find(|(key, _)| key.eq_ignore_ascii_case("type")).map(|(_, value)| value);
        plugin.get("type").or_else(folded).and_then(Value::as_str).unwrap_or_default()
    }
}

/// A truth value, also written as text.
fn boolean(object: &Object<'_>, name: &str) -> Result<bool, CniError> {
    match object.get(name) {
        None => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(other) => Err(crate::spec::json::wrong(&object.at(name), "true or false", other)),
    }
}

fn files(dir: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension().and_then(|ext| ext.to_str()).is_some_and(|ext| extensions.contains(&ext))
        })
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found
}

/// Whether the folder has any configuration.
pub fn is_empty(dir: &Path) -> bool {
    files(dir, &["conf", "conflist", "json"]).is_empty()
}

fn load(path: &Path, dir: &Path) -> Result<Conflist, Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::State {
        attempt: "read network config",
        path: path.to_owned(),
        source,
    })?;
    Conflist::parse(&bytes, Some(dir)).map_err(|error| Error::BadConflist { path: path.to_owned(), error })
}

/// The first configuration of a folder, in the order of names.
pub fn load_first(dir: &Path) -> Result<Conflist, Error> {
    match files(dir, &["conf", "conflist", "json"]).first() {
        Some(path) => load(path, dir),
        None => Err(Error::NoNetwork { dir: dir.to_owned() }),
    }
}

/// Every configuration of a folder that can be read.
pub fn load_all(dir: &Path) -> Vec<Conflist> {
    files(dir, &["conf", "conflist", "json"]).iter().filter_map(|path| load(path, dir).ok()).collect()
}

/// The configuration of a network by name: lists before single plugins.
pub fn load_named(dir: &Path, name: &str) -> Result<Conflist, Error> {
    let mut last = None;
    for path in files(dir, &["conflist"]).into_iter().chain(files(dir, &["conf", "json"])) {
        match load(&path, dir) {
            Ok(conflist) if conflist.name == name => return Ok(conflist),
            Ok(_) => {}
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or(Error::NoNetwork { dir: dir.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_by_name_wins_and_a_broken_one_is_named() {
        let dir = tempfile::tempdir().expect("dir");
        assert!(matches!(load_first(dir.path()), Err(Error::NoNetwork { .. })));
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("write");
        write("20-b.conflist", r#"{"name":"b","cniVersion":"1.0.0","plugins":[{"type":"bridge"}]}"#);
        write("10-a.conf", r#"{"name":"a","cniVersion":"0.4.0","type":"ptp"}"#);
        let first = load_first(dir.path()).expect("list");
        assert_eq!((first.name.as_str(), first.kind(0)), ("a", "ptp"));
        assert_eq!(load_named(dir.path(), "b").expect("b").kind(0), "bridge");
        write("05-broken.conflist", "{");
        let error = load_first(dir.path()).expect_err("broken").to_string();
        assert!(error.contains("05-broken.conflist"), "{error}");
    }

    #[test]
    fn plugins_of_the_folder_are_added_unless_forbidden() {
        let dir = tempfile::tempdir().expect("dir");
        std::fs::create_dir(dir.path().join("net")).expect("folder");
        std::fs::write(dir.path().join("net/10.conf"), r#"{"type":"tuning"}"#).expect("write");
        let list = br#"{"name":"net","plugins":[{"type":"bridge"}]}"#;
        assert_eq!(Conflist::parse(list, Some(dir.path())).expect("list").plugins.len(), 2);
        let only = br#"{"name":"net","loadOnlyInlinedPlugins":"True","plugins":[{"type":"bridge"}]}"#;
        assert_eq!(Conflist::parse(only, Some(dir.path())).expect("list").plugins.len(), 1);
        for bad in [
            br#"{"name":"net","plugins":[]}"#.as_slice(),
            br#"{"plugins":[{"type":"bridge"}]}"#,
            br#"{"name":"net","plugins":[{}]}"#,
            br#"{"name":"net","disableCheck":3,"plugins":[{"type":"bridge"}]}"#,
        ] {
            assert!(Conflist::parse(bad, None).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
