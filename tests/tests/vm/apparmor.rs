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

/// The profile itself, without a container around it: a shell of the machine's root tries, in it and free.
fn rules() -> Result<()> {
    let tries = [
        ("core_pattern", "echo core > /proc/sys/kernel/core_pattern"),
        ("sem", "cat /proc/sys/kernel/sem > /proc/sys/kernel/sem"),
        ("shmmax", "cat /proc/sys/kernel/shmmax > /proc/sys/kernel/shmmax"),
        ("overcommit", "echo 0 > /proc/sys/vm/overcommit_memory"),
        ("forward", "cat /proc/sys/net/ipv4/ip_forward > /proc/sys/net/ipv4/ip_forward"),
        ("sysrq", "echo h > /proc/sysrq-trigger"),
        ("irq", "cat /proc/irq/default_smp_affinity > /proc/irq/default_smp_affinity"),
        ("own", "echo 100 > /proc/self/oom_score_adj"),
        ("read", "cat /proc/sys/kernel/core_pattern > /dev/null"),
        ("module", "cat /sys/module/printk/parameters/time > /sys/module/printk/parameters/time"),
        ("profiles", "cat /sys/kernel/security/apparmor/profiles > /dev/null"),
        ("cgroup", "mkdir /sys/fs/cgroup/tried && rmdir /sys/fs/cgroup/tried"),
        ("file", "echo x > /tmp/tried"),
        ("outside", "kill -0 1"),
        ("mount", "mount -t tmpfs none /tmp/mounted && umount /tmp/mounted"),
    ];
    fs::create_dir_all("/tmp/mounted")?;
    let allowed = |enter: &str| -> Result<Vec<&str>> {
        let mut list = Vec::new();
        for (name, words) in tries {
            let script = format!("{enter}exec sh -c '{words}'");
            if Command::new("/bin/sh").args(["-c", &script]).output()?.status.success() {
                list.push(name);
            }
        }
        Ok(list)
    };
    let confined = allowed("echo exec podwire-default > /proc/self/attr/apparmor/exec && ")?;
    println!("under the default profile: {confined:?}");
    assert_eq!(confined, ["shmmax", "own", "read", "cgroup", "file"]);
    assert_eq!(allowed("")?, tries.map(|(name, _)| name), "all of it can be done by root");
    Ok(())
}
