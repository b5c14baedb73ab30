//! One machine in QEMU: a kernel, an initramfs, a disk that outlives it, and the two ways it may end.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::emulator::Emulator;

/// How long one boot may take, tests included.
const PATIENCE: Duration = Duration::from_secs(2700);

/// Disks are whole numbers of these.
const SECTOR: usize = 512;

/// What the machine starts from.
#[derive(Clone)]
pub struct Machine {
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    /// NUMA nodes, each with a CPU and its part of the memory.
    pub nodes: usize,
    /// What emulates it.
    pub emulator: Emulator,
    /// It has a network card with virtual functions.
    pub card: bool,
}

/// The machine's memory in MB.
const MEMORY: usize = 2048;

/// How a boot is to end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its tests pass and it turns itself off.
    Off,
    /// Its test asks for the power to be cut.
    Cut,
}

/// A disk with an empty file system.
pub struct Disk(PathBuf);

impl Disk {
    /// Makes one below `folder`, in the place of the last.
    pub fn fresh(folder: &Path) -> Result<Disk> {
        let path = folder.join("disk.img");
        if path.exists() {
            fs::remove_file(&path)?;
        }
        File::create(&path)?.set_len(2 * 1024 * 1024 * 1024)?;
        let done = Command::new("/sbin/mkfs.ext4")
            .args(["-q", "-F"])
            .arg(&path)
            .output()
            .context("run mkfs.ext4")?;
        if !done.status.success() {
            bail!("mkfs.ext4: {}", String::from_utf8_lossy(&done.stderr));
        }
        Ok(Disk(path))
    }
}

impl Machine {
    /// The emulator's words for a card with virtual functions, on a port of its own; nothing is at the other end of its wire.
    fn card(&self) -> &'static [&'static str] {
        if self.card { &["-device", "pcie-root-port,id=port0", "-device", "igb,bus=port0"] } else { &[] }
    }

    /// The emulator's words for several NUMA nodes.
    fn numa(&self) -> Vec<String> {
        if self.nodes < 2 {
            return Vec::new();
        }
        let nodes = (0..self.nodes).flat_map(|node| {
            let memory = format!("memory-backend-ram,id=memory{node},size={}M", MEMORY / self.nodes);
            let node = format!("node,memdev=memory{node},cpus={node},nodeid={node}");
            ["-object".to_owned(), memory, "-numa".to_owned(), node]
        });
        ["-smp".to_owned(), self.nodes.to_string()].into_iter().chain(nodes).collect()
    }

    /// Boots with `disk`, runs the tests of these names, and fails unless it ends as wanted.
    pub fn boot(&self, disk: &Disk, tests: &[&str], end: End) -> Result<()> {
        println!("vm: booting for {}", tests.join(" "));
        let list = disk.0.with_extension("tests");
        let mut names = tests.join(" ").into_bytes();
        names.resize(names.len().next_multiple_of(SECTOR), 0);
        fs::write(&list, names)?;
        let mut emulator = self
            .emulator
            .command()
            .args(["-machine", "q35,accel=tcg", "-cpu", "max", "-nographic", "-no-reboot"])
            .args(["-m", &MEMORY.to_string()])
            .args(self.numa())
            .args(["-nic", "none", "-monitor", "none"])
            .args(self.card())
            .arg("-drive")
            .arg(format!("file={},format=raw,if=virtio", disk.0.display()))
            .arg("-drive")
            .arg(format!("file={},format=raw,if=virtio,readonly=on", list.display()))
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initramfs)
            .arg("-append")
            .arg(
                "console=ttyS0 quiet panic=-1 no_timer_check loglevel=3 cgroup_no_v1=all apparmor=1 security=apparmor",
            )
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("start qemu-system-x86_64 (package qemu-system-x86)")?;
        let out = emulator.stdout.take().context("no output")?;
        let (said, heard) = mpsc::sync_channel(64);
        let reader = thread::Builder::new().name("console".to_owned()).spawn(move || {
            for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
                if said.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                    break;
                }
            }
        })?;
        let ended = watch(&heard, Instant::now() + PATIENCE);
        // Ignored: it may have turned itself off already.
        emulator.kill().ok();
        emulator.wait()?;
        drop(heard);
        reader.join().ok();
        match ended? {
            Some(found) if found == end => Ok(()),
            _ => bail!("the tests inside the machine did not end as they should"),
        }
    }
}

/// Shows the console until the machine ends or asks for its end.
fn watch(heard: &mpsc::Receiver<String>, deadline: Instant) -> Result<Option<End>> {
    let mut ended = None;
    loop {
        let line = match heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(ended),
            Err(mpsc::RecvTimeoutError::Timeout) => bail!("the machine did not end in {PATIENCE:?}"),
        };
        writeln!(std::io::stdout(), "{line}")?;
        if line.ends_with("vm: exit 0") {
            ended = Some(End::Off);
        }
        if line.ends_with("vm: cut") {
            return Ok(Some(End::Cut));
        }
    }
}
