//! `podwire snapshot` and `podwire migrate`: what a store holds, as a file or in another store.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use podwire_apiserver::migrate;
use podwire_store::{
    ClientTls, Embedded, EmbeddedConfig, RemoteConfig, Store,
    backup::{self, SnapshotStatus},
};

use crate::{
    cli::{MigrateArgs, MigrateVerb, RestoreArgs, SaveArgs, SnapshotVerb},
    objects::{Kept, Objects},
    say,
};

/// A key outside of what API servers use; written once for each revision that a cluster must have left behind.
const STEPPING: &str = "/podwire/moving";

/// Carries out a verb about snapshots.
pub async fn run(verb: SnapshotVerb) -> Result<()> {
    match verb {
        SnapshotVerb::Save(args) => save(args).await,
        SnapshotVerb::Restore(RestoreArgs { file, to, bump_revision }) => {
            let to = std::path::absolute(to)?;
            let restored =
                blocking(move || backup::restore(&file, &to, bump_revision)).await.context("restore")?;
            say(&described(&restored));
            Ok(())
        }
        SnapshotVerb::Status { file } => {
            let status = blocking(move || backup::status(&file)).await.context("read the snapshot")?;
            say(&described(&status));
            Ok(())
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, podwire_store::StoreError> + Send + 'static,
) -> Result<T> {
    Ok(tokio::task::spawn_blocking(work).await??)
}

async fn save(args: SaveArgs) -> Result<()> {
    let file = std::path::absolute(args.file)?;
    if let Some(folder) = args.from {
        let saved = blocking(move || backup::save_folder(&folder, &file)).await.context("save")?;
        say(&described(&saved));
        return Ok(());
    }
    let tls = ClientTls { ca: args.cacert, cert: args.cert, key: args.key };
    let cluster = RemoteConfig { tls, ..RemoteConfig::new(args.endpoints) };
    let cluster = cluster.connect().await.context("connect to etcd")?;
    backup::save_cluster(&cluster, &file).await.context("save")?;
    match backup::status(&file) {
        Ok(saved) => say(&described(&saved)),
        Err(why) => say(&format!("saved {}; {why}", file.display())),
    }
    Ok(())
}

/// As `etcdutl snapshot status -w json` calls it.
fn described(status: &SnapshotStatus) -> String {
    let SnapshotStatus { revision, keys, compacted, size } = status;
    let compacted = compacted.map_or_else(|| "null".to_owned(), |revision| revision.to_string());
    format!("{{\"revision\":{revision},\"totalKey\":{keys},\"totalSize\":{size},\"compacted\":{compacted}}}")
}

/// Moves all objects from one store to another.
pub async fn migrate(verb: MigrateVerb) -> Result<()> {
    match verb {
        MigrateVerb::ToEtcd(args) => to_etcd(&args).await,
        MigrateVerb::FromEtcd(args) => from_etcd(&args).await,
    }
}

/// The cluster: as it is, with its objects as API servers read them, and how they are encrypted there and in the folder.
async fn cluster(args: &MigrateArgs) -> Result<(podwire_store::Remote, Objects)> {
    let objects = Objects::open(&args.folder, &args.cluster).await?;
    match &objects.kept {
        Kept::Cluster(cluster) => Ok((cluster.clone(), objects)),
        Kept::Embedded(_) => bail!("--etcd-servers names no cluster"),
    }
}

/// The store of a folder as API servers read it.
fn folder(store: &Embedded, objects: &Objects) -> Arc<dyn Store> {
    Objects { kept: Kept::Embedded(store.clone()), encryption: objects.encryption.clone() }.store()
}

/// Whether a folder has a store.
fn has_store(folder: &Path) -> bool {
    let names =
        std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.file_name());
    names.into_iter().any(|name| name.to_string_lossy().starts_with("log-"))
}

async fn to_etcd(args: &MigrateArgs) -> Result<()> {
    if args.cluster.etcd_servers.is_empty() {
        bail!("--etcd-servers names no cluster");
    }
    if !has_store(&args.folder) {
        bail!("there is no store in {}", args.folder.display());
    }
    let (cluster, objects) = cluster(args).await?;
    let source = EmbeddedConfig::new(&args.folder).open().context("open the store")?;
    migrate::advance(&cluster, STEPPING, source.revision().await?)
        .await
        .context("go on to later versions")?;
    let moved = migrate::copy(&*folder(&source, &objects), &*objects.store()).await;
    let moved = moved.context("move the objects")?;
    source.close().await;
    told(&moved, cluster.revision().await?);
    Ok(())
}

async fn from_etcd(args: &MigrateArgs) -> Result<()> {
    if args.cluster.etcd_servers.is_empty() {
        bail!("--etcd-servers names no cluster");
    }
    let folder: PathBuf = std::path::absolute(&args.folder)?;
    if has_store(&folder) {
        bail!("there is a store in {} already", folder.display());
    }
    let (cluster, objects) = cluster(args).await?;
    let target = EmbeddedConfig { first: cluster.revision().await?, ..EmbeddedConfig::new(&folder) };
    let target = target.open().context("make the store")?;
    let moved = migrate::copy(&*objects.store(), &*self::folder(&target, &objects)).await;
    let moved = moved.context("move the objects")?;
    let revision = target.revision().await?;
    target.close().await;
    told(&moved, revision);
    Ok(())
}

fn told(moved: &migrate::Moved, revision: u64) {
    say(&format!("moved {} objects; the newest version is {revision}", moved.objects));
    for (place, count) in &moved.left {
        say(&format!("left behind {count} under {place}: no object of this server"));
    }
}
