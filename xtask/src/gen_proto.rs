//! Generates the Rust code of `base/wire/proto/*.proto` into `base/wire/src/gen/`, without `protoc`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// Every protocol of ours, by the name of its file.
const PROTOS: &[&str] = &[
    "cri",
    "nri",
    "plugin_registration",
    "dra_v1",
    "dra_v1beta1",
    "dra_health",
    "device_plugin",
    "pod_resources",
    "etcd",
    "grpc_health",
];

/// Packages whose `bytes` share the buffer they were read into: values are as large as objects are.
const SHARED_BYTES: &str = ".etcdserverpb";

/// Writes one generated module per proto file.
pub fn run(root: &Path) -> Result<()> {
    for name in PROTOS {
        fs::write(committed(root, name), generate(root, name)?)?;
    }
    Ok(())
}

/// Says which committed modules are not what their source gives.
pub fn stale(root: &Path) -> Result<Vec<String>> {
    let mut stale = Vec::new();
    for name in PROTOS {
        if fs::read_to_string(committed(root, name))? != generate(root, name)? {
            stale.push(format!(
                "base/wire/src/gen/{name}.rs: not what {name}.proto gives; run `cargo xtask gen proto`"
            ));
        }
    }
    Ok(stale)
}

fn committed(root: &Path, name: &str) -> PathBuf {
    root.join("base/wire/src/gen").join(format!("{name}.rs"))
}

fn generate(root: &Path, name: &str) -> Result<String> {
    let protos = root.join("base/wire/proto");
    let set = protox::compile([protos.join(format!("{name}.proto"))], [&protos])
        .with_context(|| format!("compile {name}.proto"))?;
    let scratch = tempfile::tempdir()?;
    tonic_prost_build::configure()
        .bytes(SHARED_BYTES)
        .out_dir(scratch.path())
        .emit_rerun_if_changed(false)
        .compile_fds(set)?;
    let mut written: Vec<_> = fs::read_dir(scratch.path())?.collect::<std::io::Result<Vec<_>>>()?;
    written.sort_by_key(fs::DirEntry::path);
    let mut text =
        format!("//! Generated from proto/{name}.proto by `cargo xtask gen proto`; do not edit.\n\n");
    for entry in written {
        text.push_str(&fs::read_to_string(entry.path())?);
    }
    Ok(text)
}
