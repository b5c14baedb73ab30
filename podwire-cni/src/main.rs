//! The CNI plugins as one small binary, chosen by the name it is called by.
//!
//! Called `bridge`, it is the bridge plugin; called `podwire-cni`, the plugin is its first argument. Synchronous and
//! without threads of its own: it starts in about a millisecond.

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use podwire_cni_lib::plugins::{self, Call};

/// The C library's, musl's in what is shipped, asks the kernel for memory some thirty times in an ADD; this one once.
#[global_allocator]
static MEMORY: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name_of = |path: &std::ffi::OsStr| {
        Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let called = arguments.next().map(|path| name_of(&path)).unwrap_or_default();
    let plugin = match plugins::find(&called) {
        Some(plugin) => plugin.name.to_owned(),
        None => arguments.next().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
    };
    let mut read = || {
        let mut bytes = Vec::new();
        std::io::stdin().lock().take(plugins::main::LARGEST as u64 + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    let env = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let answer = plugins::main(&mut Call { plugin: &plugin, env: &env, stdin: &mut read });
    let printed = std::io::stdout()
        .write_all(answer.stdout.as_bytes())
        .and_then(|()| std::io::stderr().write_all(answer.stderr.as_bytes()));
    // A caller that does not read the answer gets no success either.
    if printed.is_err() { ExitCode::FAILURE } else { ExitCode::from(answer.exit) }
}
