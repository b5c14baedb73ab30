//! What services hold, and what is written down of it.

use std::collections::BTreeSet;

use serde_json::Value;

/// Addresses and node ports of the services of a list; the test fails if one is there twice.
pub(crate) fn of(list: &Value) -> (BTreeSet<String>, BTreeSet<u64>) {
    let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for one in list["items"].as_array().unwrap() {
        let address = one["spec"]["clusterIP"].as_str().unwrap().to_owned();
        assert!(addresses.insert(address), "one address twice: {one}");
        let given = one["spec"]["ports"].as_array().unwrap().iter();
        for port in given.filter_map(|port| port["nodePort"].as_u64()) {
            assert!(ports.insert(port), "one port twice: {one}");
        }
    }
    (addresses, ports)
}

/// The names of the objects of a list.
pub(crate) fn names(list: &Value) -> BTreeSet<String> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    list["items"].as_array().unwrap().iter().map(name).collect()
}

/// The labels of an address that was given to a service.
pub(crate) fn labels() -> Value {
    serde_json::json!({"ipaddress.kubernetes.io/ip-family": "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"})
}
