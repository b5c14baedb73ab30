//! Plugins that are installed beside the runtime: found in a folder, started with a socket as descriptor 3, and started
//! again when they end.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::session::{self, Identity};
use super::{Config, Context, Error};

/// The shell hands its standard input on as descriptor 3; then the plugin takes the shell's place.
const HAND_ON: &str = r#"exec "$0" 3<&0 0</dev/null"#;

/// An installed plugin.
#[derive(Debug)]
pub(super) struct Installed {
    path: PathBuf,
    identity: Identity,
}

/// Finds the installed plugins, in their order.
pub(super) fn discover(config: &Config) -> Result<Vec<Installed>, Error> {
    let Some(dir) = &config.plugin_dir else { return Ok(Vec::new()) };
    let failed = |source| Error::Discover { path: dir.clone(), source };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let meta =
            std::fs::metadata(&path).map_err(|source| Error::Discover { path: path.clone(), source })?;
        if !meta.is_file() || meta.permissions().mode() & 0o111 == 0 {
            continue;
        }
        let identity = identify(&path, config.config_dir.as_deref())?;
        found.push(Installed { path, identity });
    }
    found.sort_by(|a, b| (&a.identity.index, &a.identity.name).cmp(&(&b.identity.index, &b.identity.name)));
    Ok(found)
}

fn identify(path: &Path, config_dir: Option<&Path>) -> Result<Identity, Error> {
    let wrong = || Error::PluginName { path: path.into() };
    let file = path.file_name().and_then(|name| name.to_str()).ok_or_else(wrong)?;
    let (index, name) = file.split_once('-').ok_or_else(wrong)?;
    if index.len() != 2 || !index.bytes().all(|byte| byte.is_ascii_digit()) || name.is_empty() {
        return Err(wrong());
    }
    let mut config = String::new();
    for candidate in [format!("{file}.conf"), format!("{name}.conf")] {
        let Some(path) = config_dir.map(|dir| dir.join(&candidate)) else { break };
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                config = text;
                break;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::Discover { path, source }),
        }
    }
    Ok(Identity { name: name.into(), index: index.into(), config })
}

/// The first pause before a plugin that ended is started again; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest pause; a plugin that ran for longer than this begins anew with the first.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Starts an installed plugin, and again whenever it ends; it is killed when the runtime's side ends.
pub(super) fn keep(context: &Context, installed: Installed) -> Result<(), Error> {
    let Installed { path, identity } = installed;
    let mut child = start(context, &path, &identity)?;
    let task = context.clone();
    context.tasks.spawn(async move {
        let (mut pause, mut begun) = (PAUSE, Instant::now());
        loop {
            tokio::select! {
                ended = child.wait() => {
                    let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                    tracing::warn!(plugin = ?path, how, ?pause, "an installed NRI plugin ended; it is started again");
                }
                () = task.shutdown.cancelled() => {
                    if let Err(error) = child.kill().await {
                        tracing::debug!(plugin = ?path, %error, "an installed NRI plugin was already gone");
                    }
                    return;
                }
            }
            if begun.elapsed() > LONGEST_PAUSE {
                pause = PAUSE;
            }
            child = loop {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = task.shutdown.cancelled() => return,
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
                match start(&task, &path, &identity) {
                    Ok(child) => break child,
                    Err(error) => tracing::warn!(plugin = ?path, %error, "an installed NRI plugin does not start"),
                }
            };
            begun = Instant::now();
        }
    });
    Ok(())
}

fn start(context: &Context, path: &Path, identity: &Identity) -> Result<Child, Error> {
    let failed = |source| Error::Launch { path: path.into(), source };
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
    ours.set_nonblocking(true).map_err(failed)?;
    let stream = UnixStream::from_std(ours).map_err(failed)?;
    let child = Command::new("/bin/sh")
        .arg("-c")
        .arg(HAND_ON)
        .arg(path)
        .env_clear()
        .env("NRI_PLUGIN_NAME", &identity.name)
        .env("NRI_PLUGIN_IDX", &identity.index)
        .env("NRI_PLUGIN_SOCKET", "3")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    session::begin(context, stream, Some(identity.clone()));
    Ok(child)
}
