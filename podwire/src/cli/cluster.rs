//! Where the API server keeps its objects: kube-apiserver's flags by their names.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

/// The etcd cluster that objects are kept in, if it is not the embedded store.
#[derive(Debug, Clone, Args)]
pub struct ClusterArgs {
    /// Client URLs of the etcd cluster that objects are kept in (default: the embedded store).
    #[arg(long, value_delimiter = ',', value_name = "URL")]
    pub etcd_servers: Vec<String>,
    /// Who signs the certificates of https members.
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    pub etcd_cafile: Option<PathBuf>,
    /// The API server's certificate for etcd.
    #[arg(long, value_name = "FILE", requires_all = ["etcd_servers", "etcd_keyfile"])]
    pub etcd_certfile: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", requires_all = ["etcd_servers", "etcd_certfile"])]
    pub etcd_keyfile: Option<PathBuf>,
    /// What all keys begin with in etcd.
    #[arg(long, default_value = "/registry", value_parser = prefix)]
    pub etcd_prefix: String,
    /// How values are encrypted where they are kept: an EncryptionConfiguration of apiserver.config.k8s.io/v1.
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,
    /// How often history is compacted in etcd; 0s leaves that to other API servers.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = crate::nri::duration)]
    pub etcd_compaction_interval: std::time::Duration,
}

/// A prefix as kube-apiserver reads it: with one slash in front and none behind.
fn prefix(text: &str) -> Result<String, String> {
    let bare = text.trim_matches('/');
    let odd = |part: &str| part.is_empty() || part == "." || part == "..";
    if bare.split('/').any(odd) || bare.chars().any(char::is_control) {
        return Err(format!("{text:?} is no path"));
    }
    Ok(format!("/{bare}"))
}

/// An address that others can reach.
pub fn published(text: &str) -> Result<IpAddr, String> {
    match text.parse::<IpAddr>() {
        Ok(address) if address.is_loopback() || address.is_unspecified() => {
            Err(format!("nobody else reaches {address}"))
        }
        Ok(address) => Ok(address),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_path_and_certificates_are_for_a_cluster() {
        assert_eq!(prefix("registry"), Ok("/registry".into()));
        assert_eq!(prefix("/a/b/"), Ok("/a/b".into()));
        for bad in ["", "/", "/a//b", "/a/../b", "/a\nb"] {
            assert!(prefix(bad).is_err(), "{bad:?}");
        }
        use clap::Parser;
        let typed =
            |words: &[&str]| crate::cli::Cli::try_parse_from([&["podwire", "apiserver"], words].concat());
        assert!(typed(&["--etcd-servers=https://a:2379,https://b:2379", "--etcd-cafile=/ca"]).is_ok());
        assert!(typed(&["--etcd-cafile=/ca"]).is_err());
        assert!(typed(&["--etcd-servers=https://a:2379", "--advertise-address=10.0.0.1"]).is_ok());
        assert!(typed(&["--etcd-servers=https://a:2379", "--advertise-address=127.0.0.1"]).is_err());
        assert!(typed(&["--advertise-address=10.0.0.1"]).is_err());
        assert!(typed(&["--etcd-servers=https://a:2379", "--etcd-certfile=/c"]).is_err());
    }
}
