//! Generates the Rust code of `base/wire/proto/*.proto` into `base/wire/src/gen/`, without `protoc`.

use std::{fs, path::Path};

use anyhow::{Context, Result};

/// Every protocol of ours: the file, and whether it has gRPC services.
const PROTOS: &[&str] = &["cri", "nri"];

/// Writes one generated module per proto file.
pub fn run(root: &Path) -> Result<()> {
    let protos = root.join("base/wire/proto");
    let out = root.join("base/wire/src/gen");
    fs::create_dir_all(&out)?;
    for name in PROTOS {
        write_one(&protos, &out, name).with_context(|| format!("generate {name}.proto"))?;
    }
    Ok(())
}

fn write_one(protos: &Path, out: &Path, name: &str) -> Result<()> {
    let file = protos.join(format!("{name}.proto"));
    let set = protox::compile([&file], [protos])?;
    let scratch = out.join(format!(".{name}"));
    fs::create_dir_all(&scratch)?;
    tonic_prost_build::configure().out_dir(&scratch).emit_rerun_if_changed(false).compile_fds(set)?;
    let mut written: Vec<_> = fs::read_dir(&scratch)?.collect::<std::io::Result<Vec<_>>>()?;
    written.sort_by_key(std::fs::DirEntry::path);
    let mut text =
        format!("//! Generated from proto/{name}.proto by `cargo xtask gen proto`; do not edit.\n\n");
    for entry in written {
        text.push_str(&fs::read_to_string(entry.path())?);
    }
    fs::remove_dir_all(&scratch)?;
    fs::write(out.join(format!("{name}.rs")), text)?;
    Ok(())
}
