//! An API server by itself, to try kubectl against: `serve FOLDER [ADDRESS]`.
//!
//! Keeps everything under FOLDER and writes kubeconfigs for administrator, scheduler, controllers and a node
//! there.

use std::path::PathBuf;
use std::sync::Arc;

use podwire_apiserver::Config;
use podwire_apiserver::pki::Pki;
use podwire_store::EmbeddedConfig;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_env_filter("info,podwire_apiserver=debug")
        .with_writer(std::io::stderr)
        .init();
    let mut args = std::env::args_os().skip(1);
    let folder = PathBuf::from(args.next().ok_or("usage: serve FOLDER [ADDRESS]")?);
    let address =
        args.next().and_then(|text| text.into_string().ok()).unwrap_or_else(|| "127.0.0.1:6443".into());
    let store = EmbeddedConfig::new(folder.join("store")).open()?;
    let server = Config::new(Arc::new(store.clone()), folder.join("pki"), address.parse()?).build().await?;
    let pki = server.pki();
    let url = format!("https://{}", server.local_addr());
    let users: [(&str, &str, &[&str]); 4] = [
        ("admin", "kubernetes-admin", &["system:masters"]),
        ("scheduler", "system:kube-scheduler", &[]),
        ("controllers", "system:kube-controller-manager", &[]),
        ("node", "system:node:n1", &["system:nodes"]),
    ];
    for (file, user, groups) in users {
        let text = pki.kubeconfig(&url, user, &pki.issue_client(user, groups)?);
        Pki::write_private(&folder.join(format!("{file}.kubeconfig")), &text)?;
    }
    tracing::info!(%url, "serving");
    let shutdown = CancellationToken::new();
    let signal = shutdown.clone();
    let tasks = tokio_util::task::TaskTracker::new();
    tasks.spawn(async move {
        // Ignored: without signals the server simply runs until it is killed.
        tokio::signal::ctrl_c().await.ok();
        signal.cancel();
    });
    server.run(shutdown).await;
    store.close().await;
    Ok(())
}
