//! What the runtime's side keeps on disk, fed with any bytes, for fuzzing and for tests.

use crate::networks::{cache, journal};

/// Reads `text` as the journal of an attachment and looks at everything that is done with it; whether it was one.
/// Must never panic.
pub fn journal(text: &str) -> bool {
    let Some(entry) = journal::parse(text) else { return false };
    let steps = entry.outstanding();
    assert!(steps.iter().all(|step| *step < entry.conflist.plugins.len()), "a step that no plugin takes");
    // Ignored: only the making of it counts.
    drop(entry.pending());
    true
}

/// Reads `bytes` as a cached result of libcni's; whether it was one. Must never panic.
pub fn cached(bytes: &[u8]) -> bool {
    cache::parse(bytes, None).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"magic":"podwire-cni-attachment","version":1,"boot":"b","containerId":"c1","ifName":"eth0","netns":"/n","netnsDev":1,"netnsIno":2,"args":[],"capabilityArgs":{},"cniVersion":"1.0.0","plugins":[{"type":"bridge"}],"config":"{\"cniVersion\":\"1.0.0\",\"name\":\"n\",\"plugins\":[{\"type\":\"bridge\"}]}"}"#;

    #[test]
    fn steps_that_no_plugin_takes_are_not_believed() {
        assert!(journal(&format!("{HEADER}\n")));
        assert!(journal(&format!("{HEADER}\n{{\"step\":18446744073709551615}}\n")));
        assert!(journal(&format!("{HEADER}\n{{\"deleting\":[7,0],\"reason\":\"\"}}\n")));
    }

    #[test]
    fn names_that_would_leave_the_folder_are_not_believed() {
        let escaped = HEADER.replace("\"c1\"", "\"../../etc/passwd\"");
        assert!(!journal(&format!("{escaped}\n")));
    }
}
