//! A CRI server alone, for crictl and critest: `cri_daemon DIR [http://MIRROR] [HANDLER=PROGRAM] [IMAGE_ARCHIVE...]`.
//!
//! Everything it keeps is below DIR; the socket is `DIR/cri.sock`. Image archives are imported before it serves.
//! Run it in a network namespace of its own: it makes a bridge there.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use podwire_container::{SupervisorConfig, supervisor_main};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if args.first().is_some_and(|word| word == "supervisor") {
        return supervisor_main(args[1..].to_vec());
    }
    let Some(dir) = args.first().map(PathBuf::from) else {
        return fail("usage: cri_daemon DIR [IMAGE_ARCHIVE...]");
    };
    let words: Vec<String> = args[1..].iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (mirrors, archives): (Vec<String>, Vec<String>) =
        words.into_iter().partition(|word| word.starts_with("http://"));
    let (handlers, archives): (Vec<String>, Vec<String>) =
        archives.into_iter().partition(|word| word.contains('='));
    tracing_subscriber::fmt().with_env_filter("info,arrow=debug").with_writer(std::io::stderr).init();
    let serving = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(serve(&dir, mirrors, &handlers, &archives)));
    match serving {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => fail(&message),
    }
}

fn fail(message: &str) -> ExitCode {
    tracing::error!(message);
    ExitCode::FAILURE
}

async fn serve(
    dir: &Path,
    mirrors: Vec<String>,
    handlers: &[String],
    archives: &[String],
) -> Result<(), String> {
    let text = |error: &dyn std::error::Error| {
        let mut all = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            all += &format!(": {inner}");
            cause = inner.source();
        }
        all
    };
    let mut images = podwire_image::StoreConfig { root: dir.join("images"), ..Default::default() };
    if !mirrors.is_empty() {
        images.registries.mirrors.insert("*".to_owned(), mirrors);
    }
    if !archives.is_empty() {
        let store = images.clone().open().map_err(|error| text(&error))?;
        for archive in archives {
            store.import(Path::new(archive), None).await.map_err(|error| text(&error))?;
        }
    }
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let network = podwire_cni_lib::DefaultNetwork {
        name: name.clone(),
        bridge: "pods0".to_owned(),
        subnets: vec!["10.77.0.0/16".parse().map_err(|error: ipnet::AddrParseError| text(&error))?],
        data_dir: dir.join("cni/ipam"),
        nft_prefix: name.replace('-', "_"),
        mtu: None,
        cluster: Vec::new(),
    };
    podwire_cni_lib::write_default_conflist(&dir.join("cni/net.d"), &network)
        .map_err(|error| text(&error))?;
    let config = podwire_runtime::Config {
        listen: dir.join("cri.sock"),
        settings: podwire_runtime::Settings {
            data_dir: dir.join("data"),
            run_dir: dir.join("run"),
            cgroup_root: format!("/{name}"),
            cdi_dirs: vec![dir.join("cdi")],
            runtime_name: "podwire".to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        supervisor: SupervisorConfig {
            exe: std::env::current_exe().map_err(|error| text(&error))?,
            exe_args: vec!["supervisor".into()],
            socket: dir.join("supervisor.sock"),
            state_dir: dir.join("supervisor"),
            cgroup: Some(format!("/{name}/supervisor")),
        },
        images,
        cni: podwire_cni_lib::RuntimeConfig {
            conf_dir: dir.join("cni/net.d"),
            bin_dirs: vec![],
            cache_dir: dir.join("cni/cache"),
            state_dir: dir.join("cni/state"),
            builtin: true,
            timeout: Duration::from_secs(60),
        },
        streaming_listen: ([127, 0, 0, 1], 0).into(),
        nri: podwire_nri::Config {
            socket: Some(dir.join("nri.sock")),
            ..podwire_nri::Config::new("podwire", "0.1.0")
        },
        handlers: handlers
            .iter()
            .filter_map(|word| word.split_once('='))
            .map(|(name, path)| podwire_runtime::Handler { name: name.to_owned(), runtime: path.into() })
            .collect(),
    };
    let runtime = config.build().await.map_err(|error| text(&error))?;
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    let signals = async move {
        let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
        match &mut term {
            Ok(term) => tokio::select! { _ = term.recv() => {}, _ = tokio::signal::ctrl_c() => {} },
            Err(_) => std::future::pending().await,
        }
        stop.cancel();
    };
    tokio::join!(runtime.run(shutdown), signals);
    Ok(())
}
