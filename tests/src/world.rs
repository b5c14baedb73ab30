//! A node and a shell beside it: sessions of real clients, line by line as a person would type them.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use podwire_image::build::{ImageBuilder, LayerBuilder};
use podwire_testkit::{Node, eventually, isolate, node::peer};

/// The image with a shell in it.
pub const BOX: &str = "localhost/box:latest";

/// How long something may take that takes a moment when all is well.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// A node, a folder for files, and shells in both.
pub struct World {
    /// The node.
    pub node: Node,
    folder: tempfile::TempDir,
}

/// What a command line did.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit code.
    pub code: i32,
    /// What it printed.
    pub out: String,
    /// What it complained of.
    pub err: String,
}

/// An archive of an image with busybox and a name for each of its usual programs.
pub fn box_archive(path: &Path) -> Result<()> {
    let busybox = std::fs::read("/bin/busybox").context("busybox-static is not installed; run .ci/setup")?;
    let mut layer = LayerBuilder::new().dir("bin", 0o755).file("bin/busybox", busybox, 0o755);
    for applet in [
        "sh", "true", "false", "sleep", "cat", "echo", "id", "ls", "tar", "test", "stty", "wc", "seq", "rm",
        "nc", "ps", "kill", "mkdir", "md5sum", "dd", "env", "tty", "chroot", "wget", "sed",
    ] {
        layer = layer.hard_link(&format!("bin/{applet}"), "bin/busybox");
    }
    let layer = layer.dir("etc", 0o755).dir("tmp", 0o1777).dir("data", 0o755);
    let layer = layer.file("etc/passwd", "root:x:0:0::/:/bin/sh\n", 0o644);
    let built = ImageBuilder::new().layer(&layer).cmd(&["sh", "-c", "sleep 100000"]).build();
    built.write_oci_archive(path, BOX).with_context(|| format!("write {path:?}"))
}

impl World {
    /// A node with the test images, in a network namespace of its own.
    pub fn up() -> Result<World> {
        isolate()?;
        let world = World { node: Node::up(&[])?, folder: tempfile::tempdir()? };
        let archive = world.path("box.tar");
        box_archive(&archive)?;
        let data_dir = world.node.data_dir.clone();
        world.node.podwire([
            OsString::from("image"),
            "import".into(),
            "--data-dir".into(),
            data_dir.into(),
            archive.into(),
        ])?;
        Ok(world)
    }

    /// A file in the folder that the shells work in.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file into the folder that the shells work in.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().context("no folder")?)?;
        std::fs::write(&path, text).with_context(|| format!("write {path:?}"))
    }

    fn shell(&self, line: &str) -> Result<Command> {
        let peers = peer("kubectl")?.parent().map(Path::to_owned).context("no folder")?;
        let path =
            format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", peers.display());
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .current_dir(self.folder.path())
            .env("PATH", path)
            .env("KUBECONFIG", self.node.kubeconfig())
            .env("HOME", &self.node.data_dir)
            .env("TMPDIR", self.folder.path())
            .env("TERM", "xterm");
        Ok(command)
    }

    /// Runs a line with nothing to read.
    pub fn run(&self, line: &str) -> Result<Outcome> {
        let done = self.shell(line)?.stdin(Stdio::null()).output()?;
        Ok(Outcome {
            code: done.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&done.stdout).into_owned(),
            err: String::from_utf8_lossy(&done.stderr).into_owned(),
        })
    }

    /// Runs a line that must succeed; what it printed.
    pub fn ok(&self, line: &str) -> Result<String> {
        let done = self.run(line)?;
        ensure!(
            done.code == 0,
            "`{line}` ended with {}: {}{}\n{}",
            done.code,
            done.out,
            done.err,
            self.node.log_tail()
        );
        Ok(done.out)
    }

    /// Runs a line that must succeed and print exactly this (but for spaces at both ends).
    pub fn says(&self, line: &str, wanted: &str) -> Result<()> {
        let said = self.ok(line)?;
        ensure!(said.trim() == wanted.trim(), "`{line}` said\n{said}\ninstead of\n{wanted}");
        Ok(())
    }

    /// Runs a line that must succeed and print each of these somewhere.
    pub fn tells(&self, line: &str, wanted: &[&str]) -> Result<String> {
        let said = self.ok(line)?;
        for part in wanted {
            ensure!(said.contains(part), "`{line}` did not tell {part:?} but\n{said}");
        }
        Ok(said)
    }

    /// Runs a line that must end with this code and complain of this.
    pub fn fails(&self, line: &str, code: i32, complaint: &str) -> Result<Outcome> {
        let done = self.run(line)?;
        ensure!(done.code == code, "`{line}` ended with {} instead of {code}: {done:?}", done.code);
        ensure!(done.err.contains(complaint), "`{line}` did not complain of {complaint:?} but {done:?}");
        Ok(done)
    }

    /// Runs a line until it succeeds and prints this.
    pub fn until(&self, line: &str, wanted: &str) -> Result<()> {
        eventually(&format!("`{line}` says {wanted:?}"), PATIENCE, || {
            let done = self.run(line).map_err(|error| error.to_string())?;
            if done.code == 0 && done.out.trim() == wanted { Ok(()) } else { Err(format!("{done:?}")) }
        })
        .with_context(|| self.node.log_tail())
    }

    /// Applies a manifest.
    pub fn apply(&self, manifest: &str) -> Result<String> {
        self.write("manifest.yaml", manifest)?;
        self.ok("kubectl apply -f manifest.yaml")
    }

    /// A running pod with a shell in it that ends when it is told to.
    pub fn shell_pod(&self, name: &str) -> Result<()> {
        self.apply(&shell_pod(name))?;
        self.ok(&format!("kubectl wait --for=condition=Ready pod/{name} --timeout=40s")).map(drop)
    }

    /// Starts a line that goes on by itself.
    pub fn start(&self, line: &str) -> Result<Going> {
        let mut command = self.shell(&format!("exec {line}"))?;
        Going::start(line, &mut command)
    }

    /// Starts a line in a terminal of its own of 99 columns and 33 rows.
    pub fn in_terminal(&self, line: &str) -> Result<Going> {
        let quoted = format!("stty rows 33 cols 99; {line}").replace('\'', "'\\''");
        let mut command = self.shell(&format!("exec script -qec '{quoted}' /dev/null"))?;
        Going::start(line, &mut command)
    }

    /// Ends the node and checks that nothing of it is left.
    pub fn down(self) -> Result<()> {
        self.node.down()
    }
}

/// The manifest of a pod with a shell in it.
pub fn shell_pod(name: &str) -> String {
    format!(
        r#"apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: {BOX}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "trap 'exit 0' TERM; echo started; while true; do sleep 0.2; done"]
"#
    )
}

/// A command that goes on by itself; killed when dropped.
pub struct Going {
    line: String,
    child: Child,
    heard: mpsc::Receiver<String>,
}

impl Going {
    fn start(line: &str, command: &mut Command) -> Result<Going> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (send, heard) = mpsc::channel();
        let out = child.stdout.take().context("no stdout")?;
        let err = child.stderr.take().context("no stderr")?;
        let forward = |reader: Box<dyn std::io::Read + Send>, send: mpsc::Sender<String>| {
            std::thread::Builder::new().name("hear".to_owned()).spawn(move || {
                for line in BufReader::new(reader).lines().map_while(Result::ok) {
                    if send.send(line.trim_end_matches('\r').to_owned()).is_err() {
                        return;
                    }
                }
            })
        };
        forward(Box::new(out), send.clone())?;
        forward(Box::new(err), send)?;
        Ok(Going { line: line.to_owned(), child, heard })
    }

    /// Types a line.
    pub fn type_line(&mut self, text: &str) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("its input is closed")?;
        stdin.write_all(format!("{text}\n").as_bytes())?;
        Ok(stdin.flush()?)
    }

    /// Closes its input.
    pub fn hang_up(&mut self) {
        self.child.stdin.take();
    }

    /// Reads until a line contains this.
    pub fn until(&self, part: &str) -> Result<String> {
        let mut seen = Vec::new();
        loop {
            match self.heard.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(part) => return Ok(line),
                Ok(line) => seen.push(line),
                Err(_) => bail!("`{}` did not print {part:?}; saw {seen:#?}", self.line),
            }
        }
    }

    /// Reads until each of these was in a line, in whatever order.
    pub fn until_all(&self, parts: &[&str]) -> Result<()> {
        let mut missing = parts.to_vec();
        let mut seen = Vec::new();
        while !missing.is_empty() {
            let Ok(line) = self.heard.recv_timeout(PATIENCE) else {
                bail!("`{}` did not print {missing:?}; saw {seen:#?}", self.line);
            };
            missing.retain(|part| !line.contains(part));
            seen.push(line);
        }
        Ok(())
    }

    /// Whether a line with this comes within `moment`.
    pub fn hears(&self, part: &str, moment: Duration) -> Result<(), String> {
        while let Ok(line) = self.heard.recv_timeout(moment) {
            if line.contains(part) {
                return Ok(());
            }
        }
        Err(format!("{part:?} was not heard"))
    }

    /// Types the line until something is heard: what makes it true travels on a stream of its own and may come later.
    pub fn type_until(&mut self, text: &str, part: &str) -> Result<()> {
        eventually(&format!("`{}` says {part:?}", self.line.clone()), PATIENCE, || {
            self.type_line(text).map_err(|error| error.to_string())?;
            self.hears(part, Duration::from_millis(500))
        })
    }

    /// Waits for its end; the exit code and the lines not read before.
    pub fn end(mut self) -> Result<(i32, String)> {
        self.child.stdin.take();
        let line = self.line.clone();
        let code = eventually(&format!("`{line}` ends"), PATIENCE, || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status.code().unwrap_or(-1)),
            Ok(None) => Err("it runs".to_owned()),
            Err(error) => Err(error.to_string()),
        })?;
        let mut rest = String::new();
        while let Ok(line) = self.heard.recv_timeout(Duration::from_secs(5)) {
            rest += &line;
            rest.push('\n');
        }
        Ok((code, rest))
    }

    /// Asks it to end (SIGINT, as Ctrl-C does).
    pub fn interrupt(&self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        Ok(rustix::process::kill_process(pid, rustix::process::Signal::INT)?)
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        // Ignored: it may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
