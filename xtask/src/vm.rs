//! `make vm`: the test binaries under Debian's cloud kernel in QEMU, where cgroup v2 has every controller.
//!
//! Software emulation of one slow CPU: for truth, not for timing. The kernel is downloaded as a Debian package and
//! unpacked into the cache; the initramfs is ours: busybox, the binaries, and an init that runs them and powers off.
//!
//! A pair of tests `cut_NAME_before` and `cut_NAME_after` is a power cut: the first runs in a machine with a fresh
//! disk at `/disk` and says `vm: cut`, upon which the machine is killed; the second runs after another boot on the
//! same disk. All other tests share one boot.

mod machine;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use self::machine::{Disk, End, Machine};

/// Kernel modules a node needs, loaded by the init in this order (dependencies follow by themselves).
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "ext4",
    "overlay",
    "veth",
    "bridge",
    "macvlan",
    "dummy",
    "8021q",
    "ipvlan",
    "vrf",
    "nf_tables",
    "nft_chain_nat",
    "nft_nat",
    "nft_masq",
    "nft_ct",
    "nft_fib_inet",
    "nft_fib_ipv4",
    "nft_fib_ipv6",
    "nf_conntrack",
    "br_netfilter",
    "sch_tbf",
    "ifb",
    "act_mirred",
    "cls_u32",
    "sch_ingress",
];

/// Whole-binary tests that run inside the machine.
const TESTS: &str = "vm";

/// Builds, boots, and fails unless the tests inside passed. `debug` takes the dev profile, other words choose tests.
pub fn run(root: &Path, words: &[&str]) -> Result<()> {
    let cache = crate::peers::default_folder().parent().map(PathBuf::from).unwrap_or_default().join("vm");
    fs::create_dir_all(&cache)?;
    let kernel = kernel(&cache).context("get Debian's cloud kernel")?;
    let profile: &[&str] = if words.contains(&"debug") { &[] } else { &["--release"] };
    let binaries = crate::build::statically(root, profile)?;
    let test = crate::build::test_binary(root, TESTS, profile)?;
    // One folder per run: several may run at once.
    let work = cache.join(format!("run-{}", std::process::id()));
    let done =
        initramfs(&work, &kernel, &binaries, &test).context("build the initramfs").and_then(|initramfs| {
            boots(&work, &Machine { kernel: kernel.image.clone(), initramfs }, &test, words)
        });
    fs::remove_dir_all(&work)?;
    done
}

fn boots(work: &Path, machine: &Machine, test: &Path, words: &[&str]) -> Result<()> {
    let listed = output(Command::new(test).args(["--list", "--format=terse"]))?;
    let chosen = words.iter().filter(|word| **word != "debug").collect::<Vec<_>>();
    let wanted = |name: &&str| chosen.is_empty() || chosen.iter().any(|word| name.contains(**word));
    let names: Vec<&str> =
        listed.lines().filter_map(|line| line.strip_suffix(": test")).filter(wanted).collect();
    if names.is_empty() {
        bail!("no test is called {chosen:?}");
    }
    let is_cut = |name: &str| name.rsplit("::").next().is_some_and(|last| last.starts_with("cut_"));
    let plain: Vec<&str> = names.iter().copied().filter(|name| !is_cut(name)).collect();
    if !plain.is_empty() {
        machine.boot(&Disk::fresh(work)?, &plain, End::Off)?;
    }
    for before in names.iter().filter(|name| is_cut(name) && name.ends_with("_before")) {
        let disk = Disk::fresh(work)?;
        machine.boot(&disk, &[before], End::Cut)?;
        let after = before.replace("_before", "_after");
        machine.boot(&disk, &[&after], End::Off)?;
    }
    Ok(())
}

struct Kernel {
    image: PathBuf,
    modules: PathBuf,
    release: String,
}

fn kernel(cache: &Path) -> Result<Kernel> {
    let folder = cache.join("kernel");
    if !folder.join("ok").exists() {
        let listed = output(Command::new("apt-cache").args(["pkgnames", "linux-image-6.12"]))?;
        let mut names: Vec<&str> =
            listed.lines().filter(|name| name.ends_with("+deb12-cloud-amd64")).collect();
        names.sort_by_key(|name| {
            name.split(['.', '+', '-']).filter_map(|part| part.parse::<u32>().ok()).collect::<Vec<_>>()
        });
        let Some(name) = names.last() else {
            bail!("no linux-image-6.12 cloud kernel is known to apt; run apt-get update")
        };
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        println!("vm: downloading {name}");
        output(Command::new("apt-get").args(["download", name]).current_dir(&folder))?;
        let package = first(&folder, |file| file.ends_with(".deb"))?;
        output(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&folder))?;
        fs::remove_file(package)?;
        fs::write(folder.join("ok"), name)?;
    }
    let image = first(&folder.join("boot"), |file| file.starts_with("vmlinuz"))?;
    let top = if folder.join("usr/lib/modules").exists() {
        folder.join("usr/lib/modules")
    } else {
        folder.join("lib/modules")
    };
    let modules = first(&top, |_| true)?;
    let release = modules.file_name().context("no release")?.display().to_string();
    if !modules.join("modules.dep").exists() {
        // depmod wants BASE/lib/modules/RELEASE.
        let base = folder.join("base");
        fs::create_dir_all(base.join("lib/modules"))?;
        let link = base.join("lib/modules").join(&release);
        if !link.exists() {
            std::os::unix::fs::symlink(&modules, &link)?;
        }
        output(Command::new("/sbin/depmod").arg("-b").arg(&base).arg(&release))?;
    }
    Ok(Kernel { image, modules, release })
}

/// Modules in load order with their dependencies, as paths below the module folder.
fn load_order(kernel: &Kernel) -> Result<Vec<String>> {
    let table = fs::read_to_string(kernel.modules.join("modules.dep"))?;
    let stem = |path: &str| {
        path.rsplit('/').next().unwrap_or(path).split(".ko").next().unwrap_or_default().replace('-', "_")
    };
    let mut order: Vec<String> = Vec::new();
    for wanted in MODULES {
        let row = table.lines().find(|line| line.split(':').next().is_some_and(|path| stem(path) == *wanted));
        // Built into the kernel: nothing to load.
        let Some(row) = row else { continue };
        let (path, needs) = row.split_once(':').context("bad modules.dep")?;
        for module in needs.split_whitespace().rev().chain([path]) {
            if !order.iter().any(|known| known == module) {
                order.push(module.to_owned());
            }
        }
    }
    Ok(order)
}

fn initramfs(work: &Path, kernel: &Kernel, binaries: &[PathBuf], test: &Path) -> Result<PathBuf> {
    let tree = work.join("initramfs");
    for folder in
        ["bin", "dev", "proc", "sys", "tmp", "run", "etc", "var/lib", "modules", "podwire", "lib64", "disk"]
    {
        fs::create_dir_all(tree.join(folder))?;
    }
    fs::copy("/bin/busybox", tree.join("bin/busybox")).context("copy busybox (package busybox-static)")?;
    for binary in binaries {
        fs::copy(binary, tree.join("podwire").join(binary.file_name().context("no name")?))?;
    }
    fs::copy(test, tree.join("podwire/test"))?;
    copy_libraries(test, &tree)?;
    let mut loads = String::new();
    for module in load_order(kernel)? {
        let name = module.rsplit('/').next().unwrap_or(&module).to_owned();
        let plain = name.trim_end_matches(".xz").to_owned();
        let bytes = output_bytes(Command::new("xz").arg("-dc").arg(kernel.modules.join(&module)))?;
        fs::write(tree.join("modules").join(&plain), bytes)?;
        loads.push_str(&format!("insmod /modules/{plain} || echo \"vm: cannot load {plain}\"\n"));
    }
    fs::write(tree.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n")?;
    fs::write(tree.join("init"), INIT.replace("@LOADS@", &loads))?;
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    fs::set_permissions(tree.join("init"), mode)?;
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

fn copy_libraries(program: &Path, tree: &Path) -> Result<()> {
    let listed = output(Command::new("ldd").arg(program)).unwrap_or_default();
    for line in listed.lines() {
        let Some(path) = line.split_whitespace().find(|word| word.starts_with('/')) else { continue };
        let target = tree.join(path.trim_start_matches('/'));
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
  for part in bin dev proc sys tmp run etc var modules podwire lib lib64 usr disk init; do
    [ -e /$part ] && /bin/busybox cp -a /$part /newroot/
  done
  : > /newroot/switched
  exec /bin/busybox switch_root /newroot /init
fi
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t tmpfs lib /var/lib
mount -t cgroup2 cgroup /sys/fs/cgroup
@LOADS@
hostname vm
mount -t ext4 /dev/vda /disk || echo "vm: no disk"
tests=$(sed -n 's/.*podwire.tests=\([^ ]*\).*/\1/p' /proc/cmdline | tr , ' ')
export PODWIRE_BIN_DIR=/podwire HOME=/ RUST_BACKTRACE=1
timeout 1000 /podwire/test --test-threads=1 --nocapture --exact $tests 2>&1
code=$?
if [ $code != 0 ]; then
  tail -n 60 /tmp/podwire-*/data/podwire.log /disk/*/podwire.log
  ps -o pid,ppid,stat,args
fi
sync
echo "vm: exit $code"
poweroff -f
"#;

fn first(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {folder:?}"))? {
        let entry = entry?;
        if wanted(&entry.file_name().display().to_string()) {
            return Ok(entry.path());
        }
    }
    bail!("nothing fitting in {folder:?}")
}

fn output_bytes(command: &mut Command) -> Result<Vec<u8>> {
    let done = command.output().with_context(|| format!("run {:?}", command.get_program()))?;
    if !done.status.success() {
        bail!("{:?}: {}", command.get_program(), String::from_utf8_lossy(&done.stderr));
    }
    Ok(done.stdout)
}

fn output(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&output_bytes(command)?).into_owned())
}
