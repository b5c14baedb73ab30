//! The composition root: reads what was typed and wires the participants together.
//!
//! # Layout
//! - `cli` what was typed; `instance` the names one node owns;
//! - `up` the whole node; `solo` one participant alone; `down` the way back; `check` the preflight;
//! - `device_plugin` the node's devices for pods; `drill` how a network driver is tried; `objects` where the API server's objects are kept; `snapshot` how they are saved and moved;
//!   `etcd` the store as an etcd;
//! - `private` folders that nobody else may look into;
//! - `image` the local image verbs; `client` kubectl's verbs; `trace` the path of a pod; `nri` the plugins of a node.
//!
//! The supervisor's entry comes before anything else: it must stay small and single-threaded.

#![allow(unreachable_pub)] // A binary has no public items; `pub` says what other modules may use.

mod check;
mod cli;
mod client;
mod cni;
mod device_plugin;
mod down;
mod drill;
mod etcd;
mod image;
mod instance;
mod memory;
mod netdriver;
mod netplugin;
mod node_parts;
mod nri;
mod objects;
mod private;
mod snapshot;
mod solo;
mod trace;
mod up;

use std::{io::Write, process::ExitCode};

use clap::{CommandFactory, Parser};
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::cli::{Cli, EtcdCli, KubeApiserverCli, NetdriverVerb, NetpluginArgs, NetpluginVerb, Verb};

/// See [`memory`].
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|word| word == "supervisor") {
        return podwire_container::supervisor_main(args.collect());
    }
    private::fix_umask();
    let cli = match typed() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let ring = trace::Ring::default();
    let filter = cli.log.clone().unwrap_or_else(|| default_filter(&cli.verb).to_owned());
    init_logs(&filter, ring.clone());
    match run(cli, ring) {
        Ok(code) => code,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// What was typed; a program called `etcd` or `kube-apiserver` takes the flags of that one without a verb.
fn typed() -> Result<Cli, clap::Error> {
    let called = std::env::args_os().next().map(std::path::PathBuf::from);
    let name = called.as_deref().and_then(std::path::Path::file_name).and_then(std::ffi::OsStr::to_str);
    let verb = match name {
        Some("etcd") => Verb::Etcd(Box::new(EtcdCli::try_parse()?.args)),
        Some("kube-apiserver") => Verb::KubeApiserver(Box::new(KubeApiserverCli::try_parse()?.args)),
        _ => return Cli::try_parse(),
    };
    Ok(Cli { log: None, verb })
}

/// What was typed makes no sense: kubectl's exit code for it, and clap's words. Help is not a failure.
fn usage(error: &clap::Error) -> ExitCode {
    // Ignored: a terminal that went away cannot be told.
    error.print().ok();
    if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Daemons log what happens; a client's only words are its answer.
fn default_filter(verb: &Verb) -> &str {
    match verb {
        Verb::Etcd(args) => &args.log_level,
        Verb::Apply(_)
        | Verb::Get(_)
        | Verb::Logs(_)
        | Verb::Exec(_)
        | Verb::Delete(_)
        | Verb::Trace(_)
        | Verb::Explain(_)
        | Verb::Version(_) => "off",
        _ => "warn,podwire=info",
    }
}

#[allow(clippy::print_stderr)] // Beside the answer, as kubectl does.
fn remark(text: &str) {
    eprintln!("{text}");
}

#[allow(clippy::print_stderr)] // The one place that speaks to a person's terminal about failure.
fn complain(text: &str) {
    // kubectl's own words stand alone; everything else is marked as ours.
    let own = ["Error from server", "error:", "The ", "Unable to connect"];
    if own.iter().any(|words| text.starts_with(words)) {
        eprintln!("{text}");
    } else {
        eprintln!("podwire: {text}");
    }
}

#[allow(clippy::print_stdout)] // The one place that speaks to a person's terminal.
fn say(text: &str) {
    // Ignored: a reader that went away (`| head`) is not an error.
    writeln!(std::io::stdout(), "{text}").ok();
}

/// Logs go to stderr as the filter says; arrows go to the ring whatever it says.
fn init_logs(filter: &str, ring: trace::Ring) {
    let filter =
        filter.parse::<Targets>().unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO));
    let logs =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_filter(filter);
    let arrows =
        trace::ArrowLayer(ring).with_filter(Targets::new().with_target(trace::TARGET, tracing::Level::TRACE));
    tracing_subscriber::registry().with(logs).with(arrows).init();
}

/// How long a thread for blocking calls waits for the next one: a burst makes many, and each keeps its stack.
const IDLE_THREAD: std::time::Duration = std::time::Duration::from_secs(2);

/// Runs a participant, or all of them, until it ends.
fn serve(future: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    memory::give_back_after_bursts();
    block_on(workers(), future)
}

fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8)
}

fn block_on<T>(workers: usize, future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_keep_alive(IDLE_THREAD)
        .enable_all()
        .build()?;
    let result = runtime.block_on(future);
    // Blocking calls that still wait for something must not hold up the end of the process.
    runtime.shutdown_background();
    result
}

fn run(cli: Cli, ring: trace::Ring) -> anyhow::Result<ExitCode> {
    let mut out = |line: &str| say(line);
    match cli.verb {
        Verb::Up(args) => serve(up::up(*args, ring))?,
        Verb::Down(args) => block_on(2, down::down(args))?,
        Verb::Check(args) => return Ok(check_verb(&args)),
        Verb::Instance(data) => say(&instance::Instance::at(&data.data_dir)?.describe()),
        Verb::Etcd(args) => serve(etcd::run(*args))?,
        Verb::KubeApiserver(args) => serve(solo::kube_apiserver(*args))?,
        Verb::Snapshot(verb) => block_on(2, snapshot::run(verb))?,
        Verb::Migrate(verb) => block_on(workers(), snapshot::migrate(verb))?,
        Verb::Apiserver(args) => serve(solo::apiserver(*args, ring))?,
        Verb::Scheduler(args) => serve(solo::scheduler(args, ring))?,
        Verb::Controllers(args) => serve(solo::controllers(args))?,
        Verb::Kubelet(args) => serve(solo::kubelet(args, ring))?,
        Verb::Runtime(args) => serve(solo::runtime(args, ring))?,
        Verb::Netplugin(NetpluginArgs { verb: Some(NetpluginVerb::Explain(args)), .. }) => {
            block_on(workers(), netplugin::explain(args))?;
        }
        Verb::Netplugin(args) => serve(netplugin::run(args, ring))?,
        Verb::Netdriver(args) => match args.verb {
            Some(NetdriverVerb::Drill(drill)) => return block_on(workers(), drill::run(drill)),
            None => serve(netdriver::run(*args, ring))?,
        },
        Verb::DevicePlugin(args) => return device_plugin::run(args),
        Verb::Cni(verb) => return cni::run(verb),
        Verb::Nri(verb) => nri::run(verb)?,
        Verb::Image(verb) => block_on(workers(), image::run(verb))?,
        Verb::Apply(args) => block_on(1, client::apply(&args, &mut out))?,
        Verb::Get(args) => block_on(1, client::get(&args, &mut out))?,
        Verb::Logs(args) => block_on(1, client::logs(&args, &mut std::io::stdout()))?,
        Verb::Exec(args) => return Ok(ExitCode::from(block_on(1, client::exec(&args))?)),
        Verb::Delete(args) => block_on(1, client::delete(&args, &mut out))?,
        Verb::Explain(args) => block_on(1, client::explain(&args, &mut out))?,
        Verb::Version(to) => say(block_on(1, client::version(&to))?.trim_end()),
        Verb::Trace(args) => say(trace::trace(&args)?.trim_end()),
        Verb::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "podwire", &mut script);
            // Ignored: a reader that went away (`| head`) is not an error.
            std::io::stdout().write_all(&script).ok();
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn check_verb(args: &cli::CheckArgs) -> ExitCode {
    let findings = check::findings(&args.data.data_dir);
    say(check::report(&findings).trim_end());
    if check::blocking(&findings).is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
