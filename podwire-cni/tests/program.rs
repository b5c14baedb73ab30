//! The binary as runtimes call it: environment and standard input in, JSON and exit code out.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

fn plugin(name: &str, env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podwire-cni"));
    command.arg(name).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(env.iter().copied());
    command
}

fn run(name: &str, env: &[(&str, &str)], stdin: &str) -> Output {
    let mut child = plugin(name, env).spawn().expect("start");
    // Ignored: a program that answers without reading may close the pipe first.
    child.stdin.take().expect("stdin").write_all(stdin.as_bytes()).ok();
    child.wait_with_output().expect("end")
}

fn error(output: &Output) -> (u64, String) {
    assert!(!output.status.success());
    let value: Value = serde_json::from_slice(&output.stdout).expect("an error in JSON on standard output");
    (value["code"].as_u64().expect("code"), value["msg"].as_str().expect("msg").to_owned())
}

const ATTACHMENT: [(&str, &str); 4] = [
    ("CNI_CONTAINERID", "c1"),
    ("CNI_NETNS", "/proc/self/ns/none"),
    ("CNI_IFNAME", "eth0"),
    ("CNI_PATH", "/nonexistent"),
];

fn with_command(command: &'static str) -> Vec<(&'static str, &'static str)> {
    [vec![("CNI_COMMAND", command)], ATTACHMENT.to_vec()].concat()
}

#[test]
fn version_needs_no_other_variable_and_no_input() {
    let output = run("bridge", &[("CNI_COMMAND", "VERSION")], "");
    assert!(output.status.success());
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["supportedVersions"].as_array().expect("list").len(), 7);
    let firewall: Value =
        serde_json::from_slice(&run("firewall", &[("CNI_COMMAND", "VERSION")], "").stdout).expect("JSON");
    assert_eq!(firewall["supportedVersions"][0], "0.4.0");
}

#[test]
fn without_a_command_it_introduces_itself() {
    let output = run("portmap", &[], "");
    assert!(output.status.success() && output.stdout.is_empty());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("CNI portmap plugin") && text.contains("1.1.0"), "{text}");
    assert!(!run("no-such-plugin", &[], "").status.success());
}

#[test]
fn it_is_the_plugin_it_is_called_by() {
    let dir = tempfile::tempdir().expect("folder");
    let link = dir.path().join("host-local");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_podwire-cni"), &link).expect("link");
    let output = Command::new(&link).env_clear().stdin(Stdio::null()).output().expect("run");
    assert!(String::from_utf8_lossy(&output.stderr).contains("CNI host-local plugin"));
}

#[test]
fn every_missing_variable_is_named() {
    let (code, msg) = error(&run("bridge", &[("CNI_COMMAND", "ADD")], "{}"));
    assert_eq!(code, 4);
    for name in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"] {
        assert!(msg.contains(name), "{msg}");
    }
    assert_eq!(error(&run("bridge", &with_command("PAINT"), "{}")), (4, "unknown CNI_COMMAND: PAINT".into()));
}

#[test]
fn bad_input_gets_the_right_code_and_names_the_field() {
    let add = with_command("ADD");
    assert_eq!(error(&run("bridge", &add, "{")).0, 6);
    assert_eq!(error(&run("bridge", &add, r#"{"cniVersion":"1.0.0"}"#)).0, 7);
    assert_eq!(error(&run("bridge", &add, r#"{"cniVersion":"9.9.9","name":"n"}"#)).0, 1);
    let (code, msg) = error(&run("bridge", &add, r#"{"cniVersion":"1.0.0","name":"n","mtu":"big"}"#));
    assert_eq!(code, 6);
    assert!(msg.contains("\"mtu\""), "{msg}");
    let (_, msg) = error(&run(
        "bridge",
        &add,
        r#"{"cniVersion":"1.0.0","name":"n","hairpinMode":true,"promiscMode":true}"#,
    ));
    assert!(msg.contains("hairpin"), "{msg}");
    let mut bad = with_command("ADD");
    bad[1].1 = "../../etc";
    assert_eq!(error(&run("bridge", &bad, r#"{"cniVersion":"1.0.0","name":"n"}"#)).0, 4);
    assert_eq!(error(&run("bridge", &with_command("CHECK"), r#"{"cniVersion":"0.3.1","name":"n"}"#)).0, 1);
    assert_eq!(error(&run("bridge", &with_command("GC"), r#"{"cniVersion":"1.0.0","name":"n"}"#)).0, 1);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(error(&run("bridge", &add, &deep)).0, 6);
    let (code, msg) = error(&run("host-local", &add, &host_local(Path::new("some/folder"))));
    assert_eq!(code, 7);
    assert!(msg.contains("dataDir"), "{msg}");
}

#[test]
fn looking_for_a_reservation_makes_no_folder() {
    let dir = tempfile::tempdir().expect("folder");
    let (_, msg) = error(&run("host-local", &with_command("CHECK"), &host_local(&dir.path().join("x"))));
    assert!(msg.contains("Failed to find address"), "{msg}");
    assert!(!dir.path().join("x").exists());
}

#[test]
fn its_own_namespace_is_refused_before_anything_is_done() {
    let mut add = with_command("ADD");
    add[2].1 = "/proc/self/ns/net";
    let conf = r#"{"cniVersion":"1.0.0","name":"n","bridge":"never0","ipam":{}}"#;
    assert_eq!(error(&run("bridge", &add, conf)).0, 8);
    let links = std::fs::read_to_string("/proc/net/dev").expect("links");
    assert!(!links.contains("never0"));
}

fn host_local(dir: &Path) -> String {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bridge",
        "ipam": {"type": "host-local", "dataDir": dir, "ranges": [[{"subnet": "10.0.0.0/20"}]]},
    })
    .to_string()
}

#[test]
fn processes_killed_at_random_instants_never_share_or_lose_an_address() {
    let dir = tempfile::tempdir().expect("folder");
    let conf = host_local(dir.path());
    let held: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|thread| {
                let conf = &conf;
                let work = move || {
                    let mut held = Vec::new();
                    for n in 0..25 {
                        let id = format!("t{thread}-{n}");
                        if let Some(ip) = add_and_maybe_kill(&id, conf, thread * 31 + n) {
                            held.push(ip);
                        }
                    }
                    held
                };
                std::thread::Builder::new().spawn_scoped(scope, work).expect("thread")
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("worker")).collect()
    });
    let distinct: HashSet<&String> = held.iter().collect();
    assert_eq!(distinct.len(), held.len(), "an address was given twice");
    assert!(!held.is_empty());
    let files: HashSet<String> = ips(dir.path());
    assert!(held.iter().all(|ip| files.contains(ip)));
    for ip in &files {
        let owner = std::fs::read_to_string(dir.path().join("net").join(ip)).expect("read");
        assert!(owner.starts_with('t') && owner.ends_with("\r\neth0"), "a torn reservation: {owner:?}");
    }
    // DEL of every killed ADD, or one GC, leaves nothing.
    let gc = [("CNI_COMMAND", "GC"), ("CNI_PATH", "/nonexistent")];
    let mut value: Value = serde_json::from_str(&conf).expect("JSON");
    value["cni.dev/valid-attachments"] = json!([]);
    assert!(run("host-local", &gc, &value.to_string()).status.success());
    assert!(ips(dir.path()).is_empty());
}

fn ips(dir: &Path) -> HashSet<String> {
    let names =
        std::fs::read_dir(dir.join("net")).expect("folder").map(|entry| entry.expect("entry").file_name());
    names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.starts_with("10.")).collect()
}

/// Runs ADD; two of three are killed after a while that depends on `salt`. Returns the address of a whole answer.
fn add_and_maybe_kill(id: &str, conf: &str, salt: usize) -> Option<String> {
    let env = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", id),
        ("CNI_NETNS", "/none"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/none"),
    ];
    let mut child = plugin("host-local", &env).spawn().expect("start");
    // Ignored: killed below, it may not read all.
    child.stdin.take().expect("stdin").write_all(conf.as_bytes()).ok();
    if !salt.is_multiple_of(3) {
        std::thread::sleep(Duration::from_micros((salt as u64 * 2654435761 % 20) * 300));
        // Ignored: it may have ended already.
        child.kill().ok();
    }
    let output = child.wait_with_output().expect("end");
    if !output.status.success() {
        return None;
    }
    let value: Value = serde_json::from_slice(&output.stdout).expect("a result");
    Some(value["ips"][0]["address"].as_str().expect("address").split('/').next().expect("ip").to_owned())
}
