//! `podwire image`: the images of a node, on its disk.

use std::{
    io::{IsTerminal, Write},
    path::Path,
    sync::{Arc, Mutex},
};

use anyhow::{Context, Result, bail};
use podwire_image::{Auth, ExportFormat, ImageStore, Progress, build::ImageBuilder};

use crate::{
    cli::{DataDir, ImageVerb},
    client::columns,
    instance::Instance,
    node_parts, say,
};

/// Carries out one of the verbs.
pub async fn run(verb: ImageVerb) -> Result<()> {
    match verb {
        ImageVerb::Build { name, output, entrypoint, program } => {
            build(&name, &output, entrypoint.as_deref(), &program)
        }
        ImageVerb::Import { data, path, name } => {
            for image in open(&data)?
                .import(&path, name.as_deref())
                .await
                .with_context(|| format!("import {path:?}"))?
            {
                say(&format!("imported {} {}", image.repo_tags.join(" "), image.id));
            }
            Ok(())
        }
        ImageVerb::List { data } => {
            list(&open(&data)?);
            Ok(())
        }
        ImageVerb::Pull { data, registry_config, creds, quiet, reference } => {
            let instance = Instance::at(&data.data_dir)?;
            let mut store = node_parts::images(&instance, registry_config.as_deref());
            let docker = std::env::home_dir().map(|home| home.join(".docker/config.json"));
            store.registries.docker_config = docker.filter(|path| path.exists());
            pull(&store.open().context("open the image store")?, &reference, creds.as_deref(), quiet).await
        }
        ImageVerb::Export { data, output, oci, references } => {
            let names: Vec<&str> = references.iter().map(String::as_str).collect();
            let format = if oci { ExportFormat::Oci } else { ExportFormat::Both };
            open(&data)?
                .export(&names, &output, format)
                .await
                .with_context(|| format!("export to {output:?}"))?;
            say(&format!("exported {} to {}", names.join(" "), output.display()));
            Ok(())
        }
        ImageVerb::Rm { data, force, references } => {
            let store = open(&data)?;
            references.iter().try_for_each(|reference| remove(&store, reference, force))
        }
        ImageVerb::Pin { data, undo, references } => {
            let store = open(&data)?;
            for reference in &references {
                store.pin(reference, !undo).with_context(|| format!("pin {reference}"))?;
                say(&format!("{} {reference}", if undo { "unpinned" } else { "pinned" }));
            }
            Ok(())
        }
        ImageVerb::Prune { data } => prune(&open(&data)?),
    }
}

async fn pull(store: &ImageStore, reference: &str, creds: Option<&str>, quiet: bool) -> Result<()> {
    let mut auth = Auth::default();
    if let Some(creds) = creds {
        let (user, password) = creds.split_once(':').context("--creds: write USER:PASSWORD")?;
        (auth.username, auth.password) = (user.to_owned(), password.to_owned());
    }
    let bar = (!quiet).then(|| Arc::new(Bar::new()));
    let progress = bar.clone().map(|bar| Arc::new(move |now| bar.show(&now)) as podwire_image::OnProgress);
    let pulled = store.pull(reference, auth, progress).await.with_context(|| format!("pull {reference}"));
    if let Some(bar) = bar {
        bar.end();
    }
    say(&format!("pulled {reference} {}", pulled?.id));
    Ok(())
}

/// Progress on stderr: a bar that redraws itself on a terminal, a line per layer elsewhere.
struct Bar {
    terminal: bool,
    shown: Mutex<(usize, bool)>,
}

impl Bar {
    fn new() -> Bar {
        Bar { terminal: std::io::stderr().is_terminal(), shown: Mutex::new((0, false)) }
    }

    fn show(&self, now: &Progress) {
        let mut shown = self.shown.lock().expect("no panic while drawing");
        let line = drawn(now);
        let mut stderr = std::io::stderr();
        // Ignored: without a stderr nobody watches.
        if self.terminal {
            write!(stderr, "\r{line}\x1b[K").ok();
            shown.1 = true;
        } else if now.layers_done > shown.0 {
            writeln!(stderr, "{line}").ok();
        }
        shown.0 = now.layers_done;
    }

    fn end(&self) {
        if self.shown.lock().expect("no panic while drawing").1 {
            // Ignored: as above.
            writeln!(std::io::stderr()).ok();
        }
    }
}

/// One line: how much of what, and how many layers are done.
fn drawn(now: &Progress) -> String {
    const WIDTH: u64 = 30;
    let full = match now.total {
        0 => WIDTH,
        total => now.received.min(total) * WIDTH / total,
    };
    let bar: String = (0..WIDTH).map(|at| if at < full { '#' } else { '.' }).collect();
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    format!(
        "[{bar}] {:.1}/{:.1} MB, {} of {} layers",
        megabytes(now.received),
        megabytes(now.total),
        now.layers_done,
        now.layers
    )
}

fn remove(store: &ImageStore, reference: &str, force: bool) -> Result<()> {
    let Some(image) = store.find(reference) else { bail!("image {reference} not found") };
    if image.pinned && !force {
        bail!("image {reference} is pinned; unpin it (image pin --undo) or use --force");
    }
    let by_id = image.id.trim_start_matches("sha256:").starts_with(reference.trim_start_matches("sha256:"));
    let last = by_id || image.repo_tags.len() <= 1;
    let removed = if last { store.remove(reference) } else { store.untag(reference) };
    removed.with_context(|| format!("remove {reference}"))?;
    say(&format!("removed {reference}"));
    Ok(())
}

fn prune(store: &ImageStore) -> Result<()> {
    let used = store.images_in_use().context("find the images in use")?;
    let before = store.usage().context("measure the image store")?.bytes;
    for image in store.list() {
        if image.pinned || used.contains(&image.id) {
            continue;
        }
        store.remove(&image.id).with_context(|| format!("remove {}", image.id))?;
        say(&format!("removed {} {}", image.repo_tags.join(" "), image.id));
    }
    let after = store.usage().context("measure the image store")?.bytes;
    say(&format!("freed {:.1} MB", before.saturating_sub(after) as f64 / 1e6));
    Ok(())
}

fn open(data: &DataDir) -> Result<ImageStore> {
    let instance = Instance::at(&data.data_dir)?;
    node_parts::images(&instance, None).open().context("open the image store")
}

fn build(name: &str, output: &Path, entrypoint: Option<&str>, program: &Path) -> Result<()> {
    let content = std::fs::read(program).with_context(|| format!("read {program:?}"))?;
    let file = program.file_name().and_then(|file| file.to_str()).context("the program has no name")?;
    let own = format!("/{file}");
    let image = ImageBuilder::new().binary(file, content).entrypoint(&[entrypoint.unwrap_or(&own)]);
    image.build().write_oci_archive(output, name).with_context(|| format!("write {output:?}"))
}

fn list(store: &ImageStore) {
    let mut lines = vec![["IMAGE", "TAG", "IMAGE ID", "SIZE"].map(str::to_owned).to_vec()];
    for image in store.list() {
        let id: String = image.id.trim_start_matches("sha256:").chars().take(13).collect();
        let size = format!("{:.1}MB", image.size as f64 / 1e6);
        let size = if image.pinned { format!("{size} (pinned)") } else { size };
        let names = if image.repo_tags.is_empty() {
            vec!["<none>:<none>".to_owned()]
        } else {
            image.repo_tags.clone()
        };
        for name in names {
            let (repository, tag) = name.rsplit_once(':').unwrap_or((&name, ""));
            lines.push(vec![repository.to_owned(), tag.to_owned(), id.clone(), size.clone()]);
        }
    }
    say(columns(&lines).trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_as_bytes_come() {
        let at = |received| Progress { received, total: 200_000_000, layers_done: 1, layers: 3 };
        assert!(drawn(&at(0)).starts_with("[..............................] 0.0/200.0 MB, 1 of 3"));
        assert!(drawn(&at(100_000_000)).starts_with("[###############...............] 100.0/200.0"));
        assert!(drawn(&at(900_000_000)).starts_with("[##############################] "));
        assert!(drawn(&Progress::default()).contains("0 of 0 layers"));
    }
}
