//! `podwire image`: the images of a node, on its disk.

use std::path::Path;

use anyhow::{Context, Result};
use podwire_image::{Auth, ImageStore, build::ImageBuilder};

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
        ImageVerb::Pull { data, reference } => {
            let image = open(&data)?
                .pull(&reference, Auth::default(), None)
                .await
                .with_context(|| format!("pull {reference}"))?;
            say(&format!("pulled {reference} {}", image.id));
            Ok(())
        }
        ImageVerb::Rm { data, reference } => {
            open(&data)?.remove(&reference).with_context(|| format!("remove {reference}"))?;
            say(&format!("removed {reference}"));
            Ok(())
        }
    }
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
