//! The initramfs of the machine: busybox, the binaries under test, modules, what AppArmor and RuntimeClasses need.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::{
    kernel::{self, Kernel},
    output,
};

/// Programs of Debian's that tests need, by package; the last package is what one of them is linked with.
const PACKAGES: &[&str] = &["apparmor", "runc", "libseccomp2"];
const PROGRAMS: &[&str] = &["sbin/apparmor_parser", "usr/sbin/runc"];

/// Packs it into `work`.
pub fn pack(
    work: &Path,
    cache: &Path,
    kernel: &Kernel,
    binaries: &[PathBuf],
    test: &Path,
) -> Result<PathBuf> {
    let tree = work.join("initramfs");
    for folder in [
        "bin", "sbin", "dev", "proc", "sys", "tmp", "run", "etc", "var/lib", "modules", "podwire", "lib64",
        "disk",
    ] {
        fs::create_dir_all(tree.join(folder))?;
    }
    fs::copy("/bin/busybox", tree.join("bin/busybox")).context("copy busybox (package busybox-static)")?;
    for binary in binaries {
        strip(binary, &tree.join("podwire").join(binary.file_name().context("no name")?))?;
    }
    strip(test, &tree.join("podwire/test"))?;
    copy_libraries(test, &tree, None)?;
    let tools = cache.join("tools");
    if !tools.join("ok").exists() {
        kernel::unpack(&tools, PACKAGES)?;
    }
    for program in PROGRAMS {
        let (from, to) =
            (tools.join(program), tree.join("sbin").join(program.rsplit('/').next().unwrap_or(program)));
        fs::copy(&from, to).with_context(|| format!("copy {}", from.display()))?;
        copy_libraries(&from, &tree, Some(&tools))?;
    }
    let mut loads = String::new();
    for (name, bytes) in kernel.modules()? {
        fs::write(tree.join("modules").join(&name), bytes)?;
        loads.push_str(&format!("insmod /modules/{name} || echo \"vm: cannot load {name}\"\n"));
    }
    fs::write(tree.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n")?;
    fs::write(tree.join("init"), INIT.replace("@LOADS@", &loads))?;
    fs::set_permissions(tree.join("init"), fs::Permissions::from_mode(0o755))?;
    let packed = work.join("initramfs.cpio");
    let file = fs::File::create(&packed)?;
    let mut child = Command::new("sh")
        .args(["-c", "find . | cpio -o -H newc --quiet"])
        .current_dir(&tree)
        .stdout(file)
        .spawn()
        .context("run cpio")?;
    if !child.wait()?.success() {
        bail!("cpio failed");
    }
    println!("vm: kernel {}, initramfs {} MiB", kernel.release, fs::metadata(&packed)?.len() / (1024 * 1024));
    Ok(packed)
}

/// A copy without what only a debugger reads: all of it is memory of the machine.
fn strip(from: &Path, to: &Path) -> Result<()> {
    output(Command::new("strip").arg("-o").arg(to).arg(from)).map(drop)
}

/// The shared libraries of a program, each at its own path; those of unpacked packages at the usual one.
fn copy_libraries(program: &Path, tree: &Path, packages: Option<&Path>) -> Result<()> {
    let usual = Path::new("usr/lib/x86_64-linux-gnu");
    let mut ldd = Command::new("ldd");
    if let Some(packages) = packages {
        ldd.env("LD_LIBRARY_PATH", packages.join(usual));
    }
    let listed = output(ldd.arg(program)).unwrap_or_default();
    for line in listed.lines() {
        if line.contains("not found") {
            bail!("{}: {line}", program.display());
        }
        let Some(path) = line.split_whitespace().find(|word| word.starts_with('/')).map(Path::new) else {
            continue;
        };
        let place = packages.and_then(|packages| path.strip_prefix(packages).ok()).unwrap_or(path);
        let target = tree.join(place.strip_prefix("/").unwrap_or(place));
        fs::create_dir_all(target.parent().context("no folder")?)?;
        fs::copy(path, target)?;
    }
    Ok(())
}

/// Moves to a tmpfs first: a container cannot pivot away from the initramfs itself.
const INIT: &str = r#"#!/bin/busybox sh
if [ ! -e /switched ]; then
  /bin/busybox mkdir /newroot
  /bin/busybox mount -t tmpfs root /newroot
  cd /
  for part in bin sbin dev proc sys tmp run etc var modules podwire lib lib64 usr disk init; do
    [ -e /$part ] && /bin/busybox cp -a /$part /newroot/
  done
  : > /newroot/switched
  exec /bin/busybox switch_root /newroot /init
fi
/bin/busybox --install -s /bin
export PATH=/bin:/sbin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t tmpfs lib /var/lib
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t securityfs security /sys/kernel/security
@LOADS@
hostname vm
mount -t ext4 /dev/vda /disk || echo "vm: no disk"
# The second disk is the list of tests: a command line is too short for it.
tests=$(tr -d '\0' < /dev/vdb)
export PODWIRE_BIN_DIR=/podwire HOME=/ RUST_BACKTRACE=1
timeout 2400 /podwire/test --test-threads=1 --nocapture --exact $tests 2>&1
code=$?
if [ $code != 0 ]; then
  tail -n 60 /tmp/podwire-*/data/podwire.log /disk/*/podwire.log
  ps -o pid,ppid,stat,args
fi
sync
echo "vm: exit $code"
poweroff -f
"#;
