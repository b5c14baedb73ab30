//! Tests of ranges given, kept and freed.

use std::fs;

use super::*;

const IDS: UserIds = UserIds { first: 131_072, length: 3 * LENGTH };

fn open(root: &Path) -> Users {
    Users::open(root, IDS).unwrap()
}

#[test]
fn every_pod_has_a_range_to_itself_and_keeps_it_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let users = open(dir.path());
    let given = ["a", "b", "c"].map(|uid| users.range(uid).unwrap());
    assert_eq!(given, [131_072, 196_608, 262_144]);
    assert!(matches!(users.range("d"), Err(UsersError::Exhausted)));
    assert_eq!(
        fs::read_to_string(dir.path().join("pods/b/userns")).unwrap(),
        r#"{"uidMappings":[{"hostId":196608,"containerId":0,"length":65536}],"gidMappings":[{"hostId":196608,"containerId":0,"length":65536}]}"#
    );
    users.release("b").unwrap();
    assert!(!dir.path().join("pods/b/userns").exists());
    let again = open(dir.path());
    assert_eq!((again.range("c").unwrap(), again.range("a").unwrap()), (262_144, 131_072));
    assert_eq!(again.range("d").unwrap(), 196_608, "what was freed is given again");
}

#[test]
fn a_range_in_use_is_given_to_nobody_else_even_when_its_record_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).range("a").unwrap();
    fs::remove_dir_all(dir.path().join("pods/a")).unwrap();
    let users = open(dir.path());
    users.adopt("a", 131_072);
    assert_eq!(users.range("b").unwrap(), 196_608);
    assert_eq!(users.range("a").unwrap(), 131_072);
    assert!(dir.path().join("pods/a/userns").exists(), "the record is back");
    users.adopt("c", 131_072);
    assert_eq!(users.range_of("c"), None, "no two pods have one range");
}

#[test]
fn a_record_that_is_not_ours_to_use_refuses_the_pod() {
    let dir = tempfile::tempdir().unwrap();
    let put = |uid: &str, text: &str| {
        fs::create_dir_all(dir.path().join("pods").join(uid)).unwrap();
        fs::write(dir.path().join("pods").join(uid).join(FILE), text).unwrap();
    };
    let record = |first: u32, inside: u32, length: u32, gid: u32| {
        format!(
            r#"{{"uidMappings":[{{"hostId":{first},"containerId":{inside},"length":{length}}}],
            "gidMappings":[{{"hostId":{gid},"containerId":{inside},"length":{length}}}]}}"#
        )
    };
    put("root", &record(0, 0, LENGTH, 0));
    put("short", &record(131_072, 0, 10, 131_072));
    put("odd", &record(131_073, 0, LENGTH, 131_073));
    put("apart", &record(131_072, 0, LENGTH, 196_608));
    put("shifted", &record(131_072, 1, LENGTH, 131_072));
    put("garbage", "{{{");
    put("torn", "\0\0\0\0");
    put("first", &record(131_072, 0, LENGTH, 131_072));
    let users = open(dir.path());
    for bad in ["root", "short", "odd", "apart", "shifted", "garbage"] {
        assert!(matches!(users.range(bad), Err(UsersError::Record(_))), "{bad}");
    }
    assert_eq!(users.range("first").unwrap(), 131_072);
    put("second", &record(131_072, 0, LENGTH, 131_072));
    let refused = users.range("second").unwrap_err().to_string();
    assert_eq!(refused, "user namespace: range picked for pod \"second\" already taken");
    assert_eq!(users.range("torn").unwrap(), 196_608, "after a power cut it gets a new one");
}

#[test]
fn the_nodes_own_ids_are_never_given() {
    let ids = |first, length| UserIds { first, length };
    for (bad, pods) in [
        (ids(0, 10 * LENGTH), 3),
        (ids(LENGTH + 1, 10 * LENGTH), 3),
        (ids(LENGTH, LENGTH + 1), 1),
        (ids(LENGTH, 2 * LENGTH), 3),
        (ids(u32::MAX - LENGTH + 1, LENGTH), 1),
    ] {
        assert!(bad.check(pods).is_err(), "{bad:?}");
    }
    let usual = UserIds::of_node(110, "", "other:1:2\n").unwrap().check(110).unwrap();
    assert_eq!(usual, ids(65_536, 110 * 65_536));
    let own = "kubelet:131072:7208960\n";
    assert_eq!(UserIds::of_node(110, own, own).unwrap(), ids(131_072, 7_208_960));
    for (uids, gids) in [(own, ""), (own, "kubelet:65536:65536\n"), ("kubelet:x:1", "kubelet:x:1")] {
        assert!(UserIds::of_node(110, uids, gids).is_err());
    }
}

#[test]
fn a_runtime_without_user_namespaces_is_told_from_one_with_them() {
    let handler = |name: &str, user_namespaces| cri::RuntimeHandler {
        name: name.to_owned(),
        features: Some(cri::RuntimeHandlerFeatures { user_namespaces, ..Default::default() }),
    };
    let status = cri::StatusResponse {
        runtime_handlers: vec![handler("", true), handler("vm", false)],
        ..Default::default()
    };
    let complaint = |handler: &str, status: &cri::StatusResponse| {
        let why = supports(status, handler).unwrap_err();
        UsersError::Unsupported { handler: handler.to_owned(), why }.to_string()
    };
    assert!(supports(&status, "").is_ok());
    assert_eq!(
        complaint("vm", &status),
        "can't set `spec.hostUsers: false`, RuntimeClass handler \"vm\" does not support user namespaces"
    );
    assert_eq!(
        complaint("", &cri::StatusResponse::default()),
        "can't set `spec.hostUsers: false`, runtime does not support user namespaces: runtime handlers are not set"
    );
}
