//! Finds what pods long gone have left on the node: folders, logs and cgroups.

use std::{collections::BTreeSet, fs, path::Path};

use podwire_linux::cgroup;

use crate::config::Config;

/// The uids of all pods that have something here.
pub(crate) fn uids(config: &Config) -> BTreeSet<String> {
    let mut found: BTreeSet<String> = names(&config.root_dir.join("pods")).into_iter().collect();
    if let Some(memory) = &config.memory_dir {
        found.extend(names(&memory.join("pods")));
    }
    found.extend(names(&config.log_dir).iter().filter_map(|name| uid_of_logs(name)));
    let base = config.cgroup_root.trim_end_matches('/');
    for tier in ["", "/burstable", "/besteffort"] {
        // Ignored: a tier that is not there holds no pods.
        let children = cgroup::group(&format!("{base}/kubepods{tier}")).and_then(|group| group.children());
        let children = children.unwrap_or_default();
        found.extend(children.iter().filter_map(|name| name.strip_prefix("pod")).map(str::to_owned));
    }
    found
}

/// The uid in `namespace_name_uid`.
fn uid_of_logs(name: &str) -> Option<String> {
    let mut parts = name.split('_');
    let uid = parts.nth(2)?;
    parts.next().is_none().then(|| uid.to_owned())
}

/// Folders of logs that belong to the pod `uid`, whatever its name was.
pub(crate) fn log_folders(log_dir: &Path, uid: &str) -> Vec<String> {
    names(log_dir).into_iter().filter(|name| uid_of_logs(name).as_deref() == Some(uid)).collect()
}

fn names(folder: &Path) -> Vec<String> {
    // Ignored: a folder that is not there holds nothing.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_folder_names_its_pod() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["ns_web_u-1", "ns_web_u-2", "stray"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert_eq!(log_folders(dir.path(), "u-2"), ["ns_web_u-2"]);
        assert_eq!(uid_of_logs("stray"), None);
    }
}
