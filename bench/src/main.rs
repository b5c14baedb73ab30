//! `make bench`: the path of a pod in numbers, beside the targets and, when the peers are built, beside upstream.
//!
//! Everything is observed from outside: requests over HTTPS, pods through a watch, memory and CPU from `/proc`.
//! Each part of the path has a bench of its own; a word chooses one (`make bench WHAT=path`).
#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::cast_precision_loss, unreachable_pub)]

mod api;
mod claims;
mod cni;
mod devices;
mod extensions;
mod measure;
mod memory;
mod nri;
mod operators;
mod path;
mod pods;
mod policy;
mod policy_pods;
mod report;
mod runtime;
mod scheduler;
mod trace;
mod upstream;
mod versions;

use anyhow::{Context, Result, bail};
use podwire_testkit::isolate;

fn main() -> Result<()> {
    let what = std::env::args().nth(1).unwrap_or_else(|| "path".to_owned());
    isolate().context("make a network namespace for the bench (needs root)")?;
    // Threads made from here on live in the namespace.
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match what.as_str() {
        "path" => tokio.block_on(path::run()),
        "api" => api::run(),
        "claims" => claims::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        "cni" => cni::run(),
        "devices" => tokio.block_on(devices::run()),
        "extensions" => extensions::run(),
        "runtime" => tokio.block_on(runtime::run()),
        "nri" => tokio.block_on(nri::run()),
        "operators" => operators::run(),
        "policy" => policy::run(),
        "policy-pods" => policy_pods::run(),
        "scheduler" => scheduler::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        "memory" => tokio.block_on(memory::run()),
        "trace" => trace::run(),
        "versions" => versions::run(),
        "side" => tokio.block_on(versions::side()),
        other => bail!(
            "there is no bench called {other}; there are: path, api, claims, cni, devices, extensions, operators, runtime, nri, policy, policy-pods, scheduler, memory, trace, versions"
        ),
    }
}
