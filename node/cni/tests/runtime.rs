//! The runtime's side with plugins of others: what they are told, in which order, and what happens when they misbehave.

#[path = "support/node.rs"]
mod node;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use node::{Pod, links, network, networks, on_a_node, open, reserved};
use podwire_cni_lib::tool;
use serde_json::{Value, json};

/// A plugin that writes down how it was called and answers with the result before it, or with one address.
fn plugin(dir: &Path, name: &str, body: &str) {
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin).expect("folder");
    let path = bin.join(name);
    let text = format!(
        "#!/bin/sh\nin=$(cat)\necho \"$CNI_COMMAND {name}\" >> {log}\nprintf '%s' \"$in\" > {dir}/stdin.{name}.$CNI_COMMAND\nenv > {dir}/env.{name}.$CNI_COMMAND\n{body}\n",
        log = dir.join("calls").display(),
        dir = dir.display(),
    );
    // Written aside: a file open for writing cannot be executed by another test's child.
    let aside = dir.join(format!("{name}.new"));
    std::fs::write(&aside, text).expect("write");
    std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(0o755)).expect("mode");
    std::fs::rename(&aside, &path).expect("rename");
}

const ANSWER: &str =
    r#"[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0","ips":[{"address":"10.1.1.2/24"}]}'; exit 0"#;

fn conflist(dir: &Path, value: &Value) {
    std::fs::create_dir_all(dir.join("net.d")).expect("folder");
    std::fs::write(dir.join("net.d/10-net.conflist"), value.to_string()).expect("write");
}

fn calls(dir: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join("calls")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn stdin(dir: &Path, plugin: &str, command: &str) -> Value {
    serde_json::from_slice(&std::fs::read(dir.join(format!("stdin.{plugin}.{command}"))).expect("called"))
        .expect("JSON")
}

#[test]
fn plugins_run_in_order_and_are_removed_in_reverse_with_what_the_spec_injects() {
    on_a_node(|dir| {
        plugin(dir, "first", ANSWER);
        plugin(dir, "second", ANSWER);
        conflist(
            dir,
            &json!({
                "cniVersion": "0.4.0", "cniVersions": ["1.0.0", "1.1.0", "9.0.0"], "name": "net",
                "plugins": [
                    {"type": "first", "capabilities": {"portMappings": true, "bandwidth": false}, "big": 12345678901234567890u64},
                    {"type": "second"},
                ],
            }),
        );
        let networks = open(dir);
        let mut pod = Pod::new("c1");
        pod.attachment.capability_args =
            json!({"portMappings": [{"hostPort": 1}], "bandwidth": {}}).as_object().expect("map").clone();
        pod.attachment.args = vec![("K8S_POD_NAME".into(), "web".into())];
        pod.attachment.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into());
        networks.ensure(&pod.attachment).expect("attach");
        let first = stdin(dir, "first", "ADD");
        assert_eq!((&first["name"], &first["cniVersion"]), (&json!("net"), &json!("1.1.0")));
        assert_eq!(first["runtimeConfig"], json!({"portMappings": [{"hostPort": 1}]}));
        assert!(first.get("capabilities").is_none() && first.get("prevResult").is_none());
        assert_eq!(first["big"], json!(12345678901234567890u64));
        assert_eq!(stdin(dir, "second", "ADD")["prevResult"]["ips"][0]["address"], "10.1.1.2/24");
        let env = std::fs::read_to_string(dir.join("env.first.ADD")).expect("env");
        for line in
            ["CNI_IFNAME=eth0", "CNI_CONTAINERID=c1", "TRACEPARENT=00-4bf92f3577b34da6a3ce929d0e0e4736"]
        {
            assert!(env.contains(line), "{line} in {env}");
        }
        assert!(env.contains("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=web"), "{env}");
        networks.check(&pod.attachment).expect("check");
        // The configuration of ADD is used for DEL, whatever has become of the folder since.
        std::fs::remove_file(dir.join("net.d/10-net.conflist")).expect("remove");
        networks.detach(&pod.attachment).expect("detach");
        assert_eq!(
            calls(dir),
            ["ADD first", "ADD second", "CHECK first", "CHECK second", "DEL second", "DEL first"]
        );
        assert_eq!(stdin(dir, "first", "DEL")["prevResult"]["ips"][0]["address"], "10.1.1.2/24");
        networks.detach(&pod.attachment).expect("detach again, with no configuration at all");
    });
}

#[test]
fn a_failing_plugin_is_undone_in_reverse_with_the_partial_result() {
    on_a_node(|dir| {
        plugin(dir, "first", ANSWER);
        plugin(
            dir,
            "second",
            r#"[ "$CNI_COMMAND" = ADD ] && { echo '{"code":123,"msg":"no luck"}'; exit 1; }; exit 0"#,
        );
        plugin(dir, "third", ANSWER);
        conflist(
            dir,
            &json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "first"}, {"type": "second"}, {"type": "third"}]}),
        );
        let networks = open(dir);
        let pod = Pod::new("c1");
        let error = networks.ensure(&pod.attachment).expect_err("second fails");
        assert_eq!(error.code(), Some(123));
        assert!(error.to_string().contains("plugin second failed ADD: no luck"), "{error}");
        assert_eq!(calls(dir), ["ADD first", "ADD second", "DEL second", "DEL first"]);
        assert_eq!(stdin(dir, "first", "DEL")["prevResult"]["ips"][0]["address"], "10.1.1.2/24");
        assert!(networks.pending().expect("pending").is_empty());
        assert_eq!(std::fs::read_dir(dir.join("cache/results")).expect("cache").count(), 0);
    });
}

#[test]
fn del_goes_on_past_a_failing_plugin_and_is_finished_later() {
    on_a_node(|dir| {
        plugin(dir, "first", ANSWER);
        plugin(
            dir,
            "second",
            &format!("[ \"$CNI_COMMAND\" = DEL ] && [ -e {}/broken ] && exit 1; {ANSWER}", dir.display()),
        );
        conflist(
            dir,
            &json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "first"}, {"type": "second"}]}),
        );
        let networks = open(dir);
        let pod = Pod::new("c1");
        networks.ensure(&pod.attachment).expect("attach");
        std::fs::write(dir.join("broken"), "").expect("write");
        networks.detach(&pod.attachment).expect_err("second fails");
        assert_eq!(&calls(dir)[2..], ["DEL second", "DEL first"]);
        assert_eq!(networks.pending().expect("pending").len(), 1);
        assert!(
            tool::list(&networks).expect("list").to_string().contains("its DEL was begun and not finished")
        );
        std::fs::remove_file(dir.join("broken")).expect("mend");
        // Another process takes over where this one stopped; only the step that is left is run.
        assert!(open(dir).retry_pending().expect("retry").is_empty());
        assert_eq!(&calls(dir)[4..], ["DEL second"]);
    });
}

#[test]
fn a_plugin_that_hangs_is_killed_with_its_children_and_named() {
    on_a_node(|dir| {
        plugin(dir, "first", "[ \"$CNI_COMMAND\" = ADD ] && { sleep 300 & sleep 300; }; exit 0");
        conflist(dir, &json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "first"}]}));
        let networks = podwire_cni_lib::RuntimeConfig {
            conf_dir: dir.join("net.d"),
            bin_dirs: vec![dir.join("bin")],
            cache_dir: dir.join("cache"),
            state_dir: dir.join("state"),
            builtin: true,
            timeout: Duration::from_millis(400),
        }
        .open()
        .expect("networks");
        let start = Instant::now();
        let error = networks.ensure(&Pod::new("c1").attachment).expect_err("it hangs").to_string();
        assert!(error.contains("plugin first") && error.contains("did not answer"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(30));
        assert_eq!(calls(dir), ["ADD first", "DEL first"]);
    });
}

#[test]
fn garbage_silence_and_absence_are_told_apart() {
    on_a_node(|dir| {
        let cases = [
            ("echo 'not json'; exit 0", "printed no JSON"),
            ("echo 'oh no' >&2; exit 3", "oh no"),
            ("exit 3", "no error message"),
            ("exit 0", "printed no result"),
            ("echo null; exit 0", "printed no result"),
            (
                "echo '{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"bad\"}]}'; exit 0",
                "result.ips[0].address",
            ),
        ];
        conflist(dir, &json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "first"}]}));
        let networks = open(dir);
        let pod = Pod::new("c1");
        let error = networks.ensure(&pod.attachment).expect_err("absent").to_string();
        assert!(error.contains("failed to find plugin \"first\" in path"), "{error}");
        for (body, wanted) in cases {
            plugin(dir, "first", &format!("[ \"$CNI_COMMAND\" = DEL ] && exit 0; {body}"));
            let error = networks.ensure(&pod.attachment).expect_err(body).to_string();
            assert!(error.contains(wanted), "{body}: {error}");
        }
        std::fs::remove_file(dir.join("bin/first")).expect("remove");
        conflist(dir, &json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "../first"}]}));
        assert!(
            networks.ensure(&pod.attachment).expect_err("escape").to_string().contains("invalid plugin name")
        );
    });
}

#[test]
fn old_configurations_have_no_check_and_disabled_verbs_are_not_run() {
    on_a_node(|dir| {
        plugin(
            dir,
            "first",
            r#"[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.1.1.2/24"}]}'; exit 0"#,
        );
        conflist(dir, &json!({"cniVersion": "0.3.1", "name": "net", "plugins": [{"type": "first"}]}));
        let networks = open(dir);
        let pod = Pod::new("c1");
        networks.ensure(&pod.attachment).expect("attach");
        let error = networks.check(&pod.attachment).expect_err("0.3.1").to_string();
        assert!(error.contains("does not support CHECK"), "{error}");
        networks.detach(&pod.attachment).expect("detach");
        assert!(stdin(dir, "first", "DEL").get("prevResult").is_none());
        plugin(dir, "first", ANSWER);
        conflist(
            dir,
            &json!({"cniVersion": "1.1.0", "disableCheck": "true", "disableGC": true, "name": "net", "plugins": [{"type": "first"}]}),
        );
        networks.ensure(&pod.attachment).expect("attach");
        networks.check(&pod.attachment).expect("disabled");
        networks.gc(std::slice::from_ref(&pod.attachment)).expect("gc");
        networks.status().expect("status");
        assert_eq!(&calls(dir)[2..], ["ADD first", "STATUS first"]);
    });
}

#[test]
fn a_torn_cache_and_a_torn_journal_do_not_block_detach() {
    on_a_node(|dir| {
        let networks = networks(dir);
        let pod = Pod::new("c1");
        networks.ensure(&pod.attachment).expect("attach");
        std::fs::write(dir.join("cache/results/pods-c1-eth0"), "{\"kind\":").expect("tear");
        let journal = dir.join("state/attachments/c1@eth0");
        let mut bytes = std::fs::read(&journal).expect("read");
        bytes.truncate(bytes.len() - 7);
        std::fs::write(&journal, bytes).expect("tear");
        assert_eq!(networks.pending().expect("pending").len(), 1, "the last line is as if never written");
        networks.detach(&pod.attachment).expect("detach");
        assert!(reserved(&network(dir).data_dir, "pods").is_empty());
        assert!(!dir.join("cache/results/pods-c1-eth0").exists());
        std::fs::write(&journal, "garbage").expect("write");
        networks.detach(&pod.attachment).expect("a journal without header is nothing");
        assert!(!journal.exists());
    });
}

#[test]
fn the_doctor_finds_every_kind_of_leak_and_repairs_it() {
    on_a_node(|dir| {
        let networks = networks(dir);
        let (alive, dead) = (Pod::new("alive"), Pod::new("dead"));
        networks.ensure(&alive.attachment).expect("attach");
        networks.ensure(&dead.attachment).expect("attach");
        assert!(tool::doctor(&networks, false).expect("doctor").found.is_empty());
        // The record of one is lost, and with it the knowledge of its addresses, link and rules.
        std::fs::remove_file(dir.join("state/attachments/dead@eth0")).expect("remove");
        std::fs::remove_file(dir.join("cache/results/pods-dead-eth0")).expect("remove");
        std::fs::write(network(dir).data_dir.join("pods/10.88.0.99"), "").expect("a file without owner");
        let report = tool::doctor(&networks, false).expect("doctor");
        let kinds = |kind| report.found.iter().filter(|finding| finding.kind == kind).count();
        assert_eq!(
            (kinds(tool::Kind::Address), kinds(tool::Kind::Link), kinds(tool::Kind::Rule)),
            (3, 1, 2),
            "{report}"
        );
        let report = tool::doctor(&networks, true).expect("repair");
        assert!(report.left.is_empty(), "{report}");
        networks.check(&alive.attachment).expect("what is alive is not touched");
        assert_eq!(links().iter().filter(|name| name.starts_with("veth")).count(), 1);
        assert!(tool::status(&networks).expect("status").contains("network pods is ready"));
        drop(dead);
    });
}

#[test]
fn attachments_of_an_earlier_boot_and_recycled_namespaces_are_not_trusted() {
    on_a_node(|dir| {
        let networks = networks(dir);
        let pod = Pod::new("c1");
        let before = networks.ensure(&pod.attachment).expect("attach");
        let journal = dir.join("state/attachments/c1@eth0");
        let text = std::fs::read_to_string(&journal).expect("read");
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("boot");
        std::fs::write(&journal, text.replace(boot.trim(), "00000000-0000-0000-0000-000000000000"))
            .expect("write");
        assert!(networks.pending().expect("pending")[0].reason.contains("earlier boot"));
        // A pod of today that has the same path: its eth0 must not be taken away, only what the record names elsewhere.
        assert!(networks.retry_pending().expect("retry").is_empty());
        assert!(pod.run(links).contains(&"eth0".to_owned()));
        assert!(reserved(&network(dir).data_dir, "pods").is_empty());
        let mut batch = podwire_linux::rtnl::Batch::new();
        batch.del_link(podwire_linux::rtnl::LinkRef::Name("eth0"));
        pod.run(|| podwire_linux::rtnl::Socket::route().expect("socket").exchange(&mut batch))
            .expect("delete");
        let after = networks.ensure(&pod.attachment).expect("attach anew");
        assert_ne!(before.ips, after.ips);
    });
}

#[test]
fn gc_detaches_what_only_the_cache_of_another_runtime_knows() {
    on_a_node(|dir| {
        let networks = networks(dir);
        let pod = Pod::new("foreign");
        networks.ensure(&pod.attachment).expect("attach");
        std::fs::remove_file(dir.join("state/attachments/foreign@eth0")).expect("forget");
        networks.gc(&[]).expect("gc");
        assert!(reserved(&network(dir).data_dir, "pods").is_empty());
        assert_eq!(pod.run(links), ["lo"]);
        assert_eq!(std::fs::read_dir(dir.join("cache/results")).expect("cache").count(), 0);
    });
}

#[test]
fn gc_removes_results_that_a_power_cut_tore_and_no_others() {
    on_a_node(|dir| {
        let networks = networks(dir);
        let results = dir.join("cache/results");
        // Torn by the power cut; so with its journal, a moment before the boot; being written by another runtime; not ours
        // to understand.
        let files = [
            ("pods-torn-eth0", ""),
            ("pods-cut-eth0", ""),
            ("pods-fresh-eth0", ""),
            ("pods-other-eth0", "{}"),
        ];
        std::fs::write(dir.join("state/attachments/cut@eth0"), "").expect("write");
        for (name, text) in files {
            std::fs::write(results.join(name), text).expect("write");
        }
        for name in ["pods-torn-eth0", "pods-other-eth0"] {
            let file = std::fs::File::options().write(true).open(results.join(name)).expect("open");
            file.set_modified(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)).expect("age");
        }
        networks.gc(&[]).expect("gc");
        let mut left: Vec<_> = std::fs::read_dir(&results)
            .expect("cache")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        left.sort();
        assert_eq!(left, ["pods-fresh-eth0", "pods-other-eth0"]);
    });
}

#[test]
fn a_doctor_beside_the_daemon_waits_for_what_is_under_way() {
    on_a_node(|dir| {
        plugin(
            dir,
            "first",
            &format!(
                "[ \"$CNI_COMMAND\" = ADD ] && {{ touch {0}/begun; while [ ! -e {0}/go ]; do sleep 0.02; done; }}; {ANSWER}",
                dir.display()
            ),
        );
        conflist(dir, &json!({"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "first"}]}));
        let (daemon, pod) = (open(dir), Pod::new("c1"));
        std::thread::scope(|scope| {
            let attached = std::thread::Builder::new()
                .spawn_scoped(scope, || daemon.ensure(&pod.attachment))
                .expect("thread");
            let deadline = Instant::now() + Duration::from_secs(10);
            while !dir.join("begun").exists() {
                assert!(Instant::now() < deadline, "ADD never begins");
                std::thread::sleep(Duration::from_millis(5));
            }
            let doctor = open(dir);
            let repair = std::thread::Builder::new()
                .spawn_scoped(scope, move || tool::doctor(&doctor, true))
                .expect("thread");
            std::fs::write(dir.join("go"), "").expect("write");
            attached.join().expect("thread").expect("the ADD is not disturbed");
            repair.join().expect("thread").expect("doctor");
        });
        daemon.check(&pod.attachment).expect("still attached");
        assert!(!calls(dir).contains(&"DEL first".to_owned()), "{:?}", calls(dir));
    });
}
