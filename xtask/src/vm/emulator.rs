//! What emulates the machine: the QEMU that is installed, or a newer one from Debian's backports, unpacked and not installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::{first, output};

const PROGRAM: &str = "qemu-system-x86_64";
/// What its machine is made of, by package; libraries are those that the installed one brought.
const PACKAGES: &[&str] = &["qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios"];
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A QEMU.
#[derive(Clone)]
pub struct Emulator {
    /// The folder it was unpacked into; none for the one that is installed.
    root: Option<PathBuf>,
}

impl Emulator {
    /// The one that is installed.
    pub fn installed() -> Emulator {
        Emulator { root: None }
    }

    /// One that knows a network card with virtual functions, which came with QEMU 8.
    pub fn with_virtual_functions(cache: &Path) -> Result<Emulator> {
        let installed = Emulator::installed();
        if installed.knows_card() {
            return Ok(installed);
        }
        let root = cache.join("qemu-backports");
        if !root.join("ok").exists() {
            unpack(&root).context("get QEMU from Debian's backports")?;
        }
        let newer = Emulator { root: Some(root) };
        if newer.knows_card() { Ok(newer) } else { bail!("QEMU of Debian's backports knows no igb") }
    }

    fn knows_card(&self) -> bool {
        self.command().args(["-device", "igb,help"]).output().is_ok_and(|done| done.status.success())
    }

    /// Begins its command line.
    pub fn command(&self) -> Command {
        let Some(root) = &self.root else { return Command::new(PROGRAM) };
        let mut command = Command::new(root.join("usr/bin").join(PROGRAM));
        // Modules of another build end it.
        command.env("QEMU_MODULE_DIR", root.join("usr/lib/x86_64-linux-gnu/qemu"));
        for share in ["qemu", "seabios"] {
            command.arg("-L").arg(root.join("usr/share").join(share));
        }
        command
    }
}

/// Downloads the packages with lists of their own, so that nothing of the machine's packages changes.
fn unpack(root: &Path) -> Result<()> {
    if root.exists() {
        fs::remove_dir_all(root)?;
    }
    let release = fs::read_to_string("/etc/os-release").context("read /etc/os-release")?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.context("this is no Debian: /etc/os-release has no VERSION_CODENAME")?;
    fs::create_dir_all(root.join("lists/partial"))?;
    let suite = format!("{codename}-backports");
    let source = format!("deb [signed-by={KEYRING}] {} {suite} main\n", mirror(codename)?);
    fs::write(root.join("sources.list"), source)?;
    let apt = |words: &[&str]| {
        let mut apt = Command::new("apt-get");
        let set = |name: &str, value: &Path| format!("Dir::{name}={}", value.display());
        for option in [
            set("Etc::sourcelist", &root.join("sources.list")),
            set("Etc::sourceparts", Path::new("/none")),
            set("State::lists", &root.join("lists")),
            set("Cache::pkgcache", &root.join("packages.bin")),
            set("Cache::srcpkgcache", &root.join("sources.bin")),
        ] {
            apt.arg("-o").arg(option);
        }
        output(apt.args(words).current_dir(root))
    };
    apt(&["update"])?;
    for name in PACKAGES {
        println!("vm: downloading {name} from {suite}");
        apt(&["download", &format!("{name}/{suite}")])?;
        let package = first(root, |file| file.ends_with(".deb"))?;
        output(Command::new("dpkg-deb").arg("-x").arg(&package).arg(root))?;
        fs::remove_file(package)?;
    }
    fs::write(root.join("ok"), PACKAGES.join(" "))?;
    Ok(())
}

/// Where this machine gets a release's packages from.
fn mirror(codename: &str) -> Result<String> {
    let told = output(Command::new("apt-get").args(["indextargets", "--format", "$(CODENAME) $(REPO_URI)"]))?;
    let site = told.lines().find_map(|line| line.strip_prefix(codename)?.strip_prefix(' '));
    site.map(str::to_owned).with_context(|| format!("apt knows no packages of {codename}"))
}
