//! How character devices of a claim's network devices reach the containers that name the claim: by a file for the runtime's
//! Container Device Interface. <https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>

use std::path::Path;

use serde_json::{Value, json};

use crate::book::Claim;

/// The name under which a container is given the files of a claim's device; none where it has no files.
pub(crate) fn id(driver: &str, claim: &Claim, at: usize) -> Option<String> {
    let has = claim.devices.get(at).is_some_and(|device| !device.files.is_empty());
    has.then(|| format!("{}={}", kind(driver), name(claim, at)))
}

fn kind(driver: &str) -> String {
    format!("{driver}/claim")
}

fn name(claim: &Claim, at: usize) -> String {
    format!("{}-{at}", claim.uid)
}

/// The file of a claim; none where no device of it has files.
pub(crate) fn file(driver: &str, claim: &Claim) -> Option<Value> {
    // The runtime finds the numbers out.
    let node = |path: &Path| json!({"path": path, "type": "c", "permissions": "rw"});
    let devices = claim.devices.iter().enumerate().filter(|(_, device)| !device.files.is_empty());
    let devices: Vec<Value> = devices
        .map(|(at, device)| {
            let nodes: Vec<Value> = device.files.iter().map(|path| node(path)).collect();
            json!({"name": name(claim, at), "containerEdits": {"deviceNodes": nodes}})
        })
        .collect();
    // Every reader knows what is said in this version.
    (!devices.is_empty()).then(|| json!({"cdiVersion": "0.3.0", "kind": kind(driver), "devices": devices}))
}

/// What the file of a claim is called; a uid that is none of the API server's has none.
pub(crate) fn file_name(driver: &str, uid: &str) -> Option<String> {
    let good =
        (1..=64).contains(&uid.len()) && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    good.then(|| format!("{driver}-claim-{uid}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::tests::claim;

    #[test]
    fn each_device_with_files_has_a_name_that_the_file_explains() {
        let mut claim = claim("c1", "p1", "eth1", None);
        assert_eq!((file("dra.net", &claim), id("dra.net", &claim, 0)), (None, None));
        claim
            .devices
            .push(crate::book::Given { files: vec!["/dev/net/tun".into()], ..claim.devices[0].clone() });
        let file = file("dra.net", &claim).unwrap();
        assert_eq!(id("dra.net", &claim, 0), None);
        assert_eq!(id("dra.net", &claim, 1).as_deref(), Some("dra.net/claim=c1-1"));
        let node = json!({"path": "/dev/net/tun", "type": "c", "permissions": "rw"});
        let device = json!({"name": "c1-1", "containerEdits": {"deviceNodes": [node]}});
        assert_eq!(file, json!({"cdiVersion": "0.3.0", "kind": "dra.net/claim", "devices": [device]}));
        assert_eq!(file_name("dra.net", "c1").as_deref(), Some("dra.net-claim-c1.json"));
        for wrong in ["", "../c1", "a/b", "a.b"] {
            assert_eq!(file_name("dra.net", wrong), None, "{wrong}");
        }
    }
}
