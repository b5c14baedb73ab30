//! Pods under AppArmor, which the machine's kernels enforce.

use std::{fs, process::Command};

use anyhow::{Result, ensure};
use podwire_testkit::{Node, isolate};

use super::kernels::{import_data, shell, waiting};

/// A container that may mount, as far as capabilities go.
fn mounter(name: &str, profile: &str) -> String {
    let security = format!("securityContext: {{capabilities: {{add: [SYS_ADMIN]}}{profile}}}");
    shell(name, "sleep 600", "", &security)
}

fn label(node: &Node, pod: &str) -> Result<String> {
    Ok(node.podwire(["exec", pod, "--", "cat", "/proc/self/attr/current"])?.trim().to_owned())
}

#[test]
fn the_default_profile_confines_and_others_are_as_asked() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    import_data(&node)?;
    node.apply(&mounter("silent", ""))?;
    node.apply(&mounter("default", ", appArmorProfile: {type: RuntimeDefault}"))?;
    node.apply(&mounter("free", ", appArmorProfile: {type: Unconfined}"))?;
    node.apply(&mounter("unknown", ", appArmorProfile: {type: Localhost, localhostProfile: nobody-has-it}"))?;
    for pod in ["silent", "default", "free"] {
        node.pod_in_phase(pod, "Running")?;
    }
    let mount = |pod| node.podwire(["exec", pod, "--", "mount", "-t", "tmpfs", "none", "/tmp"]);
    for pod in ["silent", "default"] {
        assert_eq!(label(&node, pod)?, "podwire-default (enforce)", "{pod}");
        let refused = mount(pod).unwrap_err().to_string();
        assert!(refused.to_lowercase().contains("permission denied"), "{pod}: {refused}");
    }
    assert_eq!(label(&node, "free")?, "unconfined");
    mount("free")?;
    let unknown = node.pod_when("unknown", "a reason", |pod| !waiting(pod).1.is_empty())?;
    let (reason, message) = waiting(&unknown);
    assert_eq!(reason, "CreateContainerError", "{message}");
    assert!(message.contains("apparmor profile not found nobody-has-it"), "{message}");
    // One that is there is entered.
    load(
        "profile mine flags=(attach_disconnected) { file, capability, network, umount, signal, ptrace, mount, }",
    )?;
    node.apply(&mounter("named", ", appArmorProfile: {type: Localhost, localhostProfile: mine}"))?;
    node.pod_in_phase("named", "Running")?;
    assert_eq!(label(&node, "named")?, "mine (enforce)");
    rules()?;
    for pod in ["silent", "default", "free", "unknown", "named"] {
        node.podwire(["delete", "pod", pod])?;
    }
    node.assert_no_pod_residue()?;
    node.down()
}

fn load(profile: &str) -> Result<()> {
    fs::write("/tmp/profile", profile)?;
    let done =
        Command::new("/sbin/apparmor_parser").args(["--replace", "--skip-cache", "/tmp/profile"]).output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// The profile itself, without a container around it: a shell of the machine's root enters it and tries.
fn rules() -> Result<()> {
    let script = r#"
echo "exec podwire-default" > /proc/self/attr/apparmor/exec
exec sh -c '
cat /proc/self/attr/current
try() { if sh -c "$2" 2> /dev/null; then echo "$1 yes"; else echo "$1 no"; fi; }
try core_pattern "echo core > /proc/sys/kernel/core_pattern"
try sem "cat /proc/sys/kernel/sem > /proc/sys/kernel/sem"
try shmmax "cat /proc/sys/kernel/shmmax > /proc/sys/kernel/shmmax"
try overcommit "echo 0 > /proc/sys/vm/overcommit_memory"
try forward "echo 0 > /proc/sys/net/ipv4/ip_forward"
try sysrq "echo h > /proc/sysrq-trigger"
try irq "echo 1 > /proc/irq/default_smp_affinity"
try own "echo 100 > /proc/self/oom_score_adj"
try read "cat /proc/sys/kernel/core_pattern > /dev/null"
try sysfs "echo 0 > /sys/kernel/mm/transparent_hugepage/khugepaged/defrag"
try module "echo 0 > /sys/module/printk/parameters/time"
try profiles "cat /sys/kernel/security/apparmor/profiles"
try cgroup "mkdir /sys/fs/cgroup/tried && rmdir /sys/fs/cgroup/tried"
try file "echo x > /tmp/tried"
try outside "kill -0 1"
'"#;
    let done = Command::new("/bin/sh").args(["-c", script]).output()?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    println!("{said}{}", String::from_utf8_lossy(&done.stderr));
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("podwire-default (enforce)"));
    let allowed: Vec<&str> = lines.filter_map(|line| line.strip_suffix(" yes")).collect();
    assert_eq!(allowed, ["shmmax", "own", "read", "cgroup", "file"]);
    Ok(())
}
