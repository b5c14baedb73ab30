//! `podwire device-plugin`: the devices of this node as resources that pods can ask for, alone or beside the kubelet in `up`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use podwire_devplugin::{Config, Plugin, Settings, check};

use crate::{cli::DevicePluginArgs, say, serve, solo::until_signal};

/// Serves until SIGTERM or SIGINT, or tells what would be served.
pub fn run(args: DevicePluginArgs) -> Result<ExitCode> {
    if let Some(file) = &args.check {
        let checked = check(&Config::read(file)?, Path::new("/")).context("look at the devices")?;
        say(checked.text.trim_end());
        return Ok(if checked.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let config = args.config.context("--config says which devices to offer")?;
    serve(async move {
        let shutdown = until_signal()?;
        let plugin = plugin(&config, args.kubelet_dir.clone())?;
        say(&format!("ready folder={}", args.kubelet_dir.display()));
        plugin.run(shutdown).await;
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The plugin for what a file says.
pub fn plugin(config: &Path, kubelet_dir: PathBuf) -> Result<Plugin> {
    let config = Config::read(config)?;
    Settings { config, root: "/".into(), kubelet_dir }.build().context("start the device plugin")
}
