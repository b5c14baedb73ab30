//! `podwire etcd`: what etcd's flags mean, and the store served as one.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};
use podwire_store::{AutoCompaction, Door, EtcdConfig, TlsFiles, self_signed};
use tokio::net::TcpListener;

use crate::{cli::EtcdArgs, say, solo::until_signal};

/// Where a door's certificate comes from.
#[derive(Debug, PartialEq, Eq)]
enum Tls {
    Files(TlsFiles),
    /// It is made for these hosts.
    Made(Vec<String>),
}

/// Serves until it is asked to end.
pub async fn run(args: EtcdArgs) -> Result<()> {
    let tls = tls(&args)?;
    let config = config(&args)?;
    let folder = config.dir.clone();
    let mut doors = Vec::new();
    for (urls, metrics_only) in [(&args.listen_client_urls, false), (&args.listen_metrics_urls, true)] {
        for url in urls {
            doors.push(door(url, tls.as_ref(), metrics_only).await?);
        }
    }
    let first = doors.first().context("--listen-client-urls names nothing to listen on")?;
    let listen = first.listener.local_addr()?;
    let etcd = config.open().with_context(|| format!("open the store in {}", folder.display()))?;
    say(&format!("ready etcd={listen} data-dir={}", folder.display()));
    // In upstream's words: those who start etcd wait for them.
    tracing::info!(etcd = %listen, "ready to serve client requests");
    etcd.run(doors, until_signal()?).await;
    Ok(())
}

fn config(args: &EtcdArgs) -> Result<EtcdConfig> {
    let cluster = &args.cluster;
    let members: Vec<&str> =
        cluster.initial_cluster.iter().map(|member| member.split('=').next().unwrap_or_default()).collect();
    if members.iter().any(|member| *member != args.name) {
        bail!(
            "--initial-cluster names {}; podwire etcd is a cluster of the one member --name={}",
            members.join(", "),
            args.name
        );
    }
    let dir = args.data_dir.clone().unwrap_or_else(|| PathBuf::from(format!("{}.etcd", args.name)));
    let defaults = EtcdConfig::new(dir);
    Ok(EtcdConfig {
        name: args.name.clone(),
        token: cluster.initial_cluster_token.clone(),
        client_urls: args.advertise_client_urls.clone(),
        peer_urls: cluster.initial_advertise_peer_urls.clone(),
        quota_bytes: match u64::try_from(args.quota_backend_bytes) {
            Ok(0) => defaults.quota_bytes,
            Ok(bytes) => bytes,
            // As upstream: a negative quota is none.
            Err(_) => u64::MAX / 2,
        },
        max_request_bytes: args.max_request_bytes,
        max_txn_ops: args.max_txn_ops,
        auto_compaction: auto_compaction(&args.auto_compaction_mode, &args.auto_compaction_retention)?,
        progress_interval: duration(&args.watch_progress_notify_interval)
            .context("--watch-progress-notify-interval")?,
        no_sync: args.unsafe_no_fsync,
        ..defaults
    })
}

fn tls(args: &EtcdArgs) -> Result<Option<Tls>> {
    let client_ca = match (&args.trusted_ca_file, args.client_cert_auth) {
        (Some(file), true) => Some(file.clone()),
        (None, true) => bail!("--client-cert-auth needs --trusted-ca-file"),
        (_, false) => None,
    };
    match (&args.cert_file, &args.key_file) {
        // Files that are named come before what could be made, as upstream has it.
        (Some(cert), Some(key)) => {
            Ok(Some(Tls::Files(TlsFiles { cert: cert.clone(), key: key.clone(), client_ca })))
        }
        (None, None) if args.auto_tls && client_ca.is_none() => {
            let hosts = args.listen_client_urls.iter().filter_map(|url| url.split("://").nth(1));
            let host = |address: &str| address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
            Ok(Some(Tls::Made(
                hosts.map(|address| host(address).trim_matches(['[', ']']).to_owned()).collect(),
            )))
        }
        (None, None) if client_ca.is_none() => Ok(None),
        _ => bail!("TLS needs --cert-file and --key-file"),
    }
}

async fn door(url: &str, tls: Option<&Tls>, metrics_only: bool) -> Result<Door> {
    let (scheme, rest) = url.split_once("://").with_context(|| format!("{url:?} is not a URL"))?;
    let address = rest.trim_end_matches('/');
    let tls = match (scheme, tls) {
        ("http", _) => None,
        ("https", Some(Tls::Files(files))) => Some(files.load()?),
        ("https", Some(Tls::Made(hosts))) => Some(self_signed(hosts.clone())?),
        ("https", None) => bail!("{url} needs --cert-file and --key-file, or --auto-tls"),
        _ => bail!("{url}: only http and https are listened on"),
    };
    let listener = TcpListener::bind(address).await.with_context(|| format!("listen on {url}"))?;
    Ok(Door { listener, tls, metrics_only })
}

fn auto_compaction(mode: &str, retention: &str) -> Result<Option<AutoCompaction>> {
    let number = retention.parse::<u64>().ok();
    match (mode, number) {
        ("periodic" | "revision", Some(0)) => Ok(None),
        ("revision", Some(count)) => Ok(Some(AutoCompaction::Revisions(count))),
        ("revision", None) => {
            bail!("--auto-compaction-retention: {retention:?} is not a number of revisions")
        }
        ("periodic", Some(hours)) => {
            Ok(Some(AutoCompaction::Period(Duration::from_secs(hours.saturating_mul(3600)))))
        }
        ("periodic", None) => {
            let period = duration(retention).context("--auto-compaction-retention")?;
            Ok((!period.is_zero()).then_some(AutoCompaction::Period(period)))
        }
        _ => bail!("--auto-compaction-mode is periodic or revision, not {mode:?}"),
    }
}

/// A time as Go writes it: `1h30m`, `5s`, `100ms`.
fn duration(text: &str) -> Result<Duration> {
    let bad = || format!("{text:?} is not a time like 1h30m or 5s");
    let (mut rest, mut sum) = (text, Duration::ZERO);
    if rest.is_empty() {
        bail!(bad());
    }
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').with_context(bad)?;
        let number: f64 = rest[..digits].parse().with_context(bad)?;
        let unit = &rest[digits..];
        let end = unit.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(unit.len());
        let seconds = match &unit[..end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => bail!(bad()),
        };
        let part = Duration::try_from_secs_f64(number * seconds).with_context(bad)?;
        sum = sum.checked_add(part).with_context(bad)?;
        rest = &unit[end..];
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::EtcdCli;

    fn parsed(words: &[&str]) -> EtcdArgs {
        EtcdCli::try_parse_from([&["etcd"], words].concat()).unwrap().args
    }

    #[test]
    fn times_are_read_as_go_writes_them() {
        assert_eq!(duration("1h30m").unwrap(), Duration::from_secs(5400));
        assert_eq!(duration("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(duration("100ms").unwrap(), Duration::from_millis(100));
        for bad in ["", "5", "h", "5x", "-5s", "1e9h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn kubeadms_and_envtests_command_lines_are_taken() {
        let kubeadm = parsed(&[
            "--advertise-client-urls=https://10.0.0.1:2379",
            "--cert-file=/c",
            "--key-file=/k",
            "--trusted-ca-file=/ca",
            "--client-cert-auth=true",
            "--data-dir=/var/lib/etcd",
            "--experimental-initial-corrupt-check=true",
            "--experimental-watch-progress-notify-interval=5s",
            "--initial-advertise-peer-urls=https://10.0.0.1:2380",
            "--initial-cluster=node1=https://10.0.0.1:2380",
            "--listen-client-urls=https://127.0.0.1:2379,https://10.0.0.1:2379",
            "--listen-metrics-urls=http://127.0.0.1:2381",
            "--listen-peer-urls=https://10.0.0.1:2380",
            "--name=node1",
            "--peer-client-cert-auth=true",
            "--snapshot-count=10000",
        ]);
        assert!(kubeadm.client_cert_auth && kubeadm.listen_client_urls.len() == 2);
        let config = config(&kubeadm).unwrap();
        assert_eq!((config.progress_interval, config.auto_compaction), (Duration::from_secs(5), None));
        let Some(Tls::Files(files)) = tls(&kubeadm).unwrap() else { panic!("it names files") };
        assert_eq!(files.client_ca, Some(PathBuf::from("/ca")));
        let envtest = parsed(&["--unsafe-no-fsync=true", "--listen-peer-urls=http://localhost:0"]);
        assert!(envtest.unsafe_no_fsync);
        // As with Go's flags, the last one counts.
        assert_eq!(parsed(&["--name=a", "--auto-tls", "--name", "b", "--auto-tls=false"]).name, "b");
        let made = parsed(&["--auto-tls", "--listen-client-urls=https://localhost:1,https://[::1]:2"]);
        assert_eq!(tls(&made).unwrap(), Some(Tls::Made(vec!["localhost".into(), "::1".into()])));
        assert!(!parsed(&[]).unsafe_no_fsync);
    }

    #[test]
    fn what_cannot_be_meant_is_said() {
        let several = parsed(&["--initial-cluster=default=http://a:2380,other=http://b:2380"]);
        assert!(config(&several).unwrap_err().to_string().contains("default, other"));
        assert!(tls(&parsed(&["--client-cert-auth"])).is_err());
        assert!(tls(&parsed(&["--cert-file=/c"])).is_err());
        assert!(tls(&parsed(&["--auto-tls", "--cert-file=/c"])).is_err());
        assert!(tls(&parsed(&["--auto-tls", "--client-cert-auth"])).is_err());
        assert!(auto_compaction("revision", "1h").is_err());
        assert_eq!(
            auto_compaction("periodic", "8").unwrap(),
            Some(AutoCompaction::Period(Duration::from_secs(28_800)))
        );
        assert_eq!(auto_compaction("revision", "1000").unwrap(), Some(AutoCompaction::Revisions(1000)));
        assert_eq!(auto_compaction("periodic", "0").unwrap(), None);
    }
}
