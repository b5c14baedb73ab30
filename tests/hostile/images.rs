//! Images that mean harm: what their layers, links, devices and configuration do to the node that runs them.

use std::fs;

use anyhow::{Result, bail, ensure};
use podwire_image::{
    build::{ImageBuilder, LayerBuilder, header},
    tar::{Header, Kind},
};
use serde_json::json;

use crate::{
    on_node::{Fate, OnNode, etc, tools},
    row::{Outcome, Row, row},
};

/// Looks for kernel files where an image led them; opens for writing what must not be writable, and writes nothing.
const PROBE: &str = r#"
for at in /p /q /q/r /r; do
  [ -e $at/sys/kernel/core_pattern ] && echo "ESCAPED: procfs at $at"
  (: >> $at/sys/kernel/core_pattern) 2>/dev/null && [ -e $at/self ] && echo "ESCAPED: $at/sys/kernel/core_pattern can be written"
  [ -e $at/kernel/mm ] && echo "ESCAPED: sysfs at $at"
done
(: >> /proc/sys/kernel/core_pattern) 2>/dev/null && [ -e /proc/self/stat ] && echo "ESCAPED: core_pattern can be written"
(: >> /proc/sysrq-trigger) 2>/dev/null && [ -e /proc/self/stat ] && echo "ESCAPED: sysrq-trigger can be written"
echo PROBED"#;

/// The rows.
pub const ROWS: &[Row<OnNode>] = &[
    row(
        "/proc is a link into /dev that leads to another folder",
        "procfs is mounted on a real folder or the container is refused; nothing unmasked is seen",
        |node: &OnNode| linked(node, &[("proc", "/dev/x"), ("dev/x", "/p")], &["p", "dev"]),
    )
    .broken_before(),
    row("/proc is a link into /sys that leads to another folder", "the same", |node: &OnNode| {
        linked(node, &[("proc", "/sys/x"), ("sys/x", "/p")], &["p", "sys"])
    })
    .broken_before(),
    row("/proc is a link through two folders that are mounted over", "the same", |node: &OnNode| {
        linked(
            node,
            &[("proc", "/dev/shm/x"), ("dev/shm/x", "../../sys/fs/cgroup/x"), ("sys/fs/cgroup/x", "/q/r")],
            &["q", "q/r", "dev", "dev/shm", "sys", "sys/fs", "sys/fs/cgroup"],
        )
    })
    .broken_before(),
    row("/proc is a relative link through /dev/pts", "the same", |node: &OnNode| {
        linked(node, &[("proc", "dev/pts/x"), ("dev/pts/x", "../../r")], &["r", "dev", "dev/pts"])
    })
    .broken_before(),
    row(
        "/sys is a link into /dev that leads to another folder",
        "sysfs is mounted on a real folder or not at all",
        |node: &OnNode| linked(node, &[("sys", "/dev/x"), ("dev/x", "/q")], &["q", "dev"]),
    ),
    row("/proc is a plain link to another folder", "refused, or masked as ever", |node: &OnNode| {
        let layer = LayerBuilder::new().dir("p", 0o755).symlink("proc", "p");
        let script = "(: >> /p/sys/kernel/core_pattern) 2>/dev/null && [ -e /p/self ] && echo ESCAPED\n\
            [ -n \"$(head -c 1 /p/keys 2>/dev/null)\" ] && echo ESCAPED; echo PROBED";
        run(node, &layer, script)
    }),
    row("/proc is a file", "refused with the reason", |node: &OnNode| {
        let layer = etc().file("proc", "not a folder", 0o644);
        let image = node.on_tools(&layer)?;
        node.fate(node.pod(&image, "echo PROBED"))?.refused("proc")
    }),
    row(
        "/dev/null is a link (masks are made with it)",
        "masked paths stay masked, the link's target is not mounted",
        |node: &OnNode| {
            let layer = LayerBuilder::new().dir("dev", 0o755).symlink("dev/null", "/data/null");
            let script = "[ -e /data/null ] && echo ESCAPED; for at in kcore keys timer_list; do\n\
            [ -e /proc/$at ] && [ -n \"$(head -c 1 /proc/$at)\" ] && echo ESCAPED: $at can be read; done; echo PROBED";
            run(node, &layer, script)
        },
    ),
    row(
        "/dev/console is a link, with a terminal",
        "the terminal is not mounted on the link's target",
        |node: &OnNode| {
            let layer = LayerBuilder::new().dir("dev", 0o755).symlink("dev/console", "/data/target");
            let layer = layer.file("data/target", "mine", 0o644);
            let image = node.on_tools(&layer)?;
            let mut pod =
                node.pod(&image, "[ -c /data/target ] && echo ESCAPED; cat /data/target; echo PROBED");
            pod["spec"]["containers"][0]["tty"] = json!(true);
            node.fate(pod)?.harmless()
        },
    ),
    row("/etc/passwd is a FIFO", "the container starts or is refused within seconds", |node: &OnNode| {
        let layer = LayerBuilder::new()
            .dir("etc", 0o755)
            .entry(special("etc/passwd", Kind::Fifo, (0, 0)), Vec::new());
        as_named_user(node, &layer)
    })
    .broken_before(),
    row(
        "/etc/passwd is the device of endless zeros",
        "refused or started within seconds and little memory",
        |node: &OnNode| {
            let device = special("etc/passwd", Kind::CharDevice, (1, 5));
            as_named_user(node, &LayerBuilder::new().dir("etc", 0o755).entry(device, Vec::new()))
        },
    )
    .broken_before(),
    row(
        "/etc/group is a FIFO behind a link",
        "the container starts or is refused within seconds",
        |node: &OnNode| {
            let fifo = special("data/fifo", Kind::Fifo, (0, 0));
            let layer =
                LayerBuilder::new().dir("etc", 0o755).file("etc/passwd", "web:x:33:34::/:/bin/sh\n", 0o644);
            as_named_user(node, &layer.entry(fifo, Vec::new()).symlink("etc/group", "../data/fifo"))
        },
    )
    .broken_before(),
    row(
        "/etc/passwd and /etc/group call root by the number of the image's user",
        "a number is a number: the container is not root",
        |node: &OnNode| {
            let layer = LayerBuilder::new().dir("etc", 0o755);
            let layer = layer.file("etc/passwd", "1000:x:0:0::/:/bin/sh\n", 0o644);
            let layer = layer.file("etc/group", "1000:x:0:1000\n", 0o644);
            let mut told = String::new();
            for user in ["1000", "1000:1000"] {
                told = user_of(node, &layer, user)?.prints("is 1000 PROBED")?;
            }
            Ok(told)
        },
    ),
    row(
        "the image's user is a number beyond 2^31, 2^32 or 2^64",
        "that user, or refused with the number; never root",
        |node: &OnNode| {
            let beyond = ["4294967295", "4294967296", "18446744073709551616"];
            let passwd: String = beyond.iter().map(|id| format!("{id}:x:0:0::/:/bin/sh\n")).collect();
            let layer = LayerBuilder::new().dir("etc", 0o755);
            let layer = layer.file("etc/passwd", passwd + "last:x:4294967295:0::/:/bin/sh\n", 0o644);
            user_of(node, &layer, "2147483648:2147483648")?.prints("is 2147483648 PROBED")?;
            let mut told = String::new();
            for id in beyond {
                told = user_of(node, &layer, id)?.refused(id)?;
            }
            user_of(node, &layer, "last")?.refused("last")?;
            Ok(told)
        },
    )
    .broken_before(),
    row(
        "/etc/hosts, /etc/hostname and /etc/resolv.conf are links to a host's folder",
        "nothing of the host is touched",
        |node: &OnNode| {
            let target = node.marker();
            let layer = LayerBuilder::new().dir("etc", 0o755).symlink("etc/hosts", &target);
            let layer = layer
                .symlink("etc/resolv.conf", "/proc/1/root/x")
                .symlink("etc/hostname", "../../../../../x");
            run(
                node,
                &layer,
                &format!("[ \"$(cat {target} 2>/dev/null)\" = \"the host's\" ] && echo ESCAPED; echo PROBED"),
            )
        },
    ),
    row(
        "a layer's path climbs with ..",
        "refused, or kept below the root; nothing on the host",
        |node: &OnNode| {
            let up = format!(
                "{}{}/evil",
                "../".repeat(20),
                node.host.path().display().to_string().trim_start_matches('/')
            );
            no_file(node, &LayerBuilder::new().file(&up, "evil", 0o644))
        },
    ),
    row("a layer's path is absolute", "the same", |node: &OnNode| {
        no_file(
            node,
            &LayerBuilder::new().file(&node.host.path().join("evil").display().to_string(), "evil", 0o644),
        )
    }),
    row("a layer writes through its own link to the host", "the same", |node: &OnNode| {
        let folder = node.host.path().display().to_string();
        no_file(node, &LayerBuilder::new().symlink("way", &folder).file("way/evil", "evil", 0o644))
    }),
    row("a hard link to a file of the host", "refused, or leads to nothing of the host", |node: &OnNode| {
        let marker = node.marker();
        let up = format!("{}{}", "../".repeat(20), marker.trim_start_matches('/'));
        for target in [marker.as_str(), &up] {
            let layer = etc().hard_link("stolen", target);
            stolen(node, &layer)?;
        }
        Ok("nothing of the host was linked".to_owned())
    }),
    row("a hard link through a link to the host", "the same", |node: &OnNode| {
        let folder = node.host.path().display().to_string();
        stolen(node, &etc().symlink("way", &folder).hard_link("stolen", "way/marker"))
    }),
    row(
        "whiteouts of .. and of the folder itself",
        "refused, or without effect outside the layer",
        |node: &OnNode| {
            for name in
                [".wh...", ".wh..", ".wh.", "data/.wh...", "data/.wh..", "../.wh.layers", "/.wh..wh..opq"]
            {
                let tried = node.on_tools(&etc().file(name, "", 0o644));
                if let Err(error) = tried {
                    ensure!(!format!("{error:#}").contains("panick"), "{name}: {error:#}");
                }
                node.fate(node.script("echo PROBED"))?.harmless()?;
            }
            Ok("the other image still runs".to_owned())
        },
    ),
    row("overlay's own attributes in a layer", "dropped: no folder of elsewhere appears", |node: &OnNode| {
        let attribute = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let folder = Header {
            mode: 0o755,
            xattrs: vec![
                attribute("trusted.overlay.redirect", "/bin"),
                attribute("user.overlay.redirect", "/bin"),
                attribute("trusted.overlay.opaque", "y"),
            ],
            ..header("data", Kind::Directory)
        };
        run(node, &etc().entry(folder, Vec::new()), "[ -e /data/busybox ] && echo ESCAPED; echo PROBED")
    }),
    row("device nodes of memory and disks", "refused, or cannot be opened", |node: &OnNode| {
        let layer = etc().entry(special("data/mem", Kind::CharDevice, (1, 1)), Vec::new());
        let layer = layer.entry(special("data/kmsg", Kind::CharDevice, (1, 11)), Vec::new());
        let layer = layer.entry(special("data/disk", Kind::BlockDevice, (8, 0)), Vec::new());
        let script =
            "for at in mem kmsg disk; do (: < /data/$at) 2>/dev/null && echo ESCAPED $at; done; echo PROBED";
        run(node, &layer, script)
    }),
    row(
        "the image's working directory is a descriptor of the runtime",
        "refused, or below the container's root",
        |node: &OnNode| {
            let mut seen = Vec::new();
            for number in [3, 4, 5, 6, 7, 8, 9, 10, 12, 15] {
                let name = format!("localhost/{}:latest", node.fresh());
                let image = ImageBuilder::new().layer(&tools()?).layer(&etc());
                node.image(&name, &image.working_dir(&format!("/proc/self/fd/{number}")))?;
                let script = format!(
                    "for up in . .. ../.. ../../.. ../../../../../../../..; do [ -e $up{} ] && echo ESCAPED; done; echo PROBED",
                    node.marker()
                );
                seen.push(node.fate(node.pod(&name, &script))?.harmless()?);
            }
            Ok(seen.swap_remove(0))
        },
    ),
    row(
        "the image declares volumes on /proc, / and ..",
        "refused, or nothing of the kernel is hidden or shown",
        |node: &OnNode| {
            for path in ["/proc", "/../../x", "/proc/sys", "/"] {
                let name = format!("localhost/{}:latest", node.fresh());
                node.image(&name, &ImageBuilder::new().layer(&tools()?).layer(&etc()).volumes(&[path]))?;
                node.fate(node.pod(&name, PROBE))?.harmless()?;
            }
            Ok("harmless".to_owned())
        },
    ),
    row("a configuration of a hundred thousand nested lists", "refused with the reason", |node: &OnNode| {
        let built = ImageBuilder::new().layer(&etc()).build();
        let mut bomb = built.clone();
        bomb.config = format!("{{\"config\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000)).into_bytes();
        import_raw(node, bomb)
    }),
    row("a configuration of twenty megabytes", "refused with the reason", |node: &OnNode| {
        let mut bomb = ImageBuilder::new().layer(&etc()).build();
        bomb.config =
            format!("{{\"config\":{{\"Labels\":{{\"a\":\"{}\"}}}}}}", "x".repeat(20 << 20)).into_bytes();
        import_raw(node, bomb)
    }),
    row(
        "names of 5,000 bytes, a link to itself, a file below a file",
        "refused, or harmless",
        |node: &OnNode| {
            let long = "n".repeat(5000);
            for layer in [
                etc().file(&long, "x", 0o644),
                etc().symlink("loop", "loop").file("loop/x", "x", 0o644),
                etc().file("etc/passwd/x", "x", 0o644),
                etc().symlink("far", &long),
            ] {
                // Ignored: both refusing and taking it are right; what counts is checked after the row.
                node.on_tools(&layer).ok();
            }
            node.fate(node.script("echo PROBED"))?.harmless()
        },
    ),
    row(
        "a file that announces 8 GB and has five bytes, and a layer that ends in the middle",
        "refused with the reason; nothing is kept",
        |node: &OnNode| {
            let mut tar = LayerBuilder::new().file("large", "small", 0o644).tar();
            tar[124..136].copy_from_slice(b"77777777777\0");
            tar[148..156].copy_from_slice(b"        ");
            let sum: u32 = tar[..512].iter().map(|byte| u32::from(*byte)).sum();
            tar[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            let torn = etc().tar()[..700].to_vec();
            let mut told = String::new();
            for layer in [tar, torn] {
                let name = format!("localhost/{}:latest", node.fresh());
                match node.import(&name, &ImageBuilder::new().raw_layer(layer)) {
                    Ok(()) => bail!("it was taken"),
                    Err(error) => told = format!("refused: {error:#}"),
                }
            }
            Ok(told)
        },
    ),
];

fn special(path: &str, kind: Kind, device: (u32, u32)) -> Header {
    Header { mode: 0o666, device, ..header(path, kind) }
}

/// An image whose links lead kernel file systems elsewhere.
fn linked(node: &OnNode, links: &[(&str, &str)], folders: &[&str]) -> Outcome {
    let mut layer = etc();
    for folder in folders {
        layer = layer.dir(folder, 0o755);
    }
    for (path, target) in links {
        layer = layer.symlink(path, target);
    }
    run(node, &layer, PROBE)
}

/// Runs a script in the tools under this layer.
fn run(node: &OnNode, layer: &LayerBuilder, script: &str) -> Outcome {
    match node.on_tools(layer) {
        Ok(image) => node.fate(node.pod(&image, script))?.harmless(),
        Err(error) => Ok(format!("the image was refused: {error:#}")),
    }
}

/// Starts an image whose user is a name, so that its passwd and group must be read.
fn as_named_user(node: &OnNode, layer: &LayerBuilder) -> Outcome {
    let name = format!("localhost/{}:latest", node.fresh());
    node.image(&name, &ImageBuilder::new().layer(&tools()?).layer(layer).user("web"))?;
    let fate = node.fate(node.pod(&name, "echo PROBED"))?;
    if let Fate::Stuck(why) = &fate {
        ensure!(!why.starts_with("Pending"), "nobody says why it does not start: {why}");
    }
    fate.harmless()
}

/// What becomes of an image with this layer whose user is `user`; it prints who it is.
fn user_of(node: &OnNode, layer: &LayerBuilder, user: &str) -> Result<Fate> {
    let name = format!("localhost/{}:latest", node.fresh());
    node.image(&name, &ImageBuilder::new().layer(&tools()?).layer(layer).user(user))?;
    let script = "[ $(id -u) = 0 ] && echo ESCAPED: root; echo is $(id -u) PROBED";
    node.fate(node.pod(&name, script))
}

/// Takes a layer that would write `evil` on the host.
fn no_file(node: &OnNode, layer: &LayerBuilder) -> Outcome {
    let taken = node.on_tools(layer);
    ensure!(!node.host.path().join("evil").exists(), "a file was written on the host");
    Ok(match taken {
        Ok(_) => "taken, and nothing was written on the host".to_owned(),
        Err(error) => format!("refused: {error:#}"),
    })
}

/// Takes a layer with a link to the marker and looks at it from inside.
fn stolen(node: &OnNode, layer: &LayerBuilder) -> Outcome {
    let told = run(node, layer, "grep -q host /stolen 2>/dev/null && echo ESCAPED; echo PROBED")?;
    let links = std::os::unix::fs::MetadataExt::nlink(&fs::metadata(node.marker())?);
    ensure!(links == 1, "the host's file has got {links} names");
    Ok(told)
}

/// Imports documents that do not fit together any more but in their digests.
fn import_raw(node: &OnNode, mut built: podwire_image::build::Built) -> Outcome {
    let manifest: serde_json::Value = serde_json::from_slice(&built.manifest)?;
    let mut manifest = manifest;
    manifest["config"]["digest"] = json!(podwire_testkit::images::digest(&built.config));
    manifest["config"]["size"] = json!(built.config.len());
    built.manifest = manifest.to_string().into_bytes();
    let archive = node.host.path().join("raw.tar");
    built.write_oci_archive(&archive, "localhost/raw:latest")?;
    let taken: Result<()> = node.import_archive(&archive);
    fs::remove_file(&archive)?;
    let error = taken.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(!error.is_empty(), "the image was taken");
    ensure!(!error.contains("panicked") && !error.contains("overflow"), "the importer died: {error}");
    Ok(format!("refused: {error}"))
}
