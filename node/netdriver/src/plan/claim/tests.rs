//! Claims as they are allocated, and what is planned for them.

use serde_json::json;

use super::*;
use crate::plan::devices::{Seen, SeenLink, devices};
use podwire_linux::rtnl::Link;

fn offered() -> BTreeMap<String, Device> {
    let link = Link { index: 7, name: "eth1".to_owned(), ..Link::default() };
    let seen = Seen { links: vec![SeenLink { link, ..SeenLink::default() }], ..Seen::default() };
    devices(&seen, &[], &[]).into_iter().map(|device| (device.name.clone(), device)).collect()
}

fn claim() -> Value {
    json!({
        "metadata": {"namespace": "default", "name": "net", "uid": "u1"},
        "status": {
            "reservedFor": [{"resource": "pods", "name": "one", "uid": "p1"}],
            "allocation": {"devices": {
                "results": [
                    {"request": "nic", "driver": "dra.net", "pool": "node1", "device": "eth1"},
                    {"request": "gpu", "driver": "gpu.example.com", "pool": "node1", "device": "gpu0"},
                ],
                "config": [
                    {"source": "FromClass", "requests": [], "opaque": {"driver": "dra.net", "parameters": {"interface": {"name": "class0"}}}},
                    {"source": "FromClaim", "requests": ["nic"], "opaque": {"driver": "dra.net", "parameters": {"interface": {"name": "net1"}}}},
                    {"source": "FromClaim", "requests": ["gpu"], "opaque": {"driver": "gpu.example.com", "parameters": {"x": 1}}},
                ],
            }},
        },
    })
}

fn planned(claim: &Value) -> Result<Claim, Refusal> {
    let devices = offered();
    prepare(claim, "u1", Asked { driver: "dra.net", pool: "node1", devices: &devices })
}

#[test]
fn a_claims_own_word_counts_before_its_classs() {
    let found = planned(&claim()).unwrap();
    assert_eq!(found.pod, Pod { uid: "p1".into(), namespace: "default".into(), name: "one".into() });
    assert_eq!(found.devices.len(), 1, "others' devices are none of ours");
    assert_eq!(found.devices[0].configuration.name.as_deref(), Some("net1"));
    assert_eq!(found.devices[0].what, What::Link { name: "eth1".into(), index: 7 });
    let mut of_class = claim();
    of_class["status"]["allocation"]["devices"]["config"].as_array_mut().unwrap().remove(1);
    assert_eq!(planned(&of_class).unwrap().devices[0].configuration.name.as_deref(), Some("class0"));
}

#[test]
fn what_cannot_be_prepared_is_refused() {
    let with = |path: &str, value: Value| {
        let mut claim = claim();
        *claim.pointer_mut(path).unwrap() = value;
        planned(&claim).unwrap_err()
    };
    assert_eq!(with("/metadata/uid", json!("u2")), Refusal::OtherUid("u2".into()));
    assert_eq!(with("/status/allocation", Value::Null), Refusal::NotAllocated);
    assert_eq!(with("/status/reservedFor", json!([])), Refusal::Consumers(0));
    assert_eq!(with("/status/reservedFor/0/resource", json!("jobs")), Refusal::NoPod);
    assert_eq!(
        with("/status/allocation/devices/results/0/device", json!("eth9")),
        Refusal::Unknown("eth9".into())
    );
    let several = with("/status/allocation/devices/config/0/source", json!("FromClaim"));
    assert!(matches!(several, Refusal::Several { count: 2, .. }), "{several}");
    let path = "/status/allocation/devices/config/1/opaque/parameters/interface";
    let said = with(path, json!({"mtu": 1})).to_string();
    assert_eq!(said, "request nic: interface.mtu: a number from 68 to 65535 is wanted");
    let admin = json!({"request": "nic", "driver": "dra.net", "pool": "node1", "device": "eth1", "adminAccess": true});
    assert_eq!(with("/status/allocation/devices/results/0", admin), Refusal::Admin("nic".into()));
}
