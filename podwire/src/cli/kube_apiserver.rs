//! What was typed for a program called `kube-apiserver`: upstream's flags, as test environments of operators give them.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Parser};

use super::ClusterArgs;

/// The program when it is called by the name `kube-apiserver`.
#[derive(Debug, Parser)]
#[command(
    name = "kube-apiserver",
    version,
    about = "Podwire's API server, started as kube-apiserver is",
    args_override_self = true
)]
pub struct KubeApiserverCli {
    #[command(flatten)]
    pub args: KubeApiserverArgs,
}

/// Flags of `kube-apiserver`.
#[derive(Debug, Clone, Args)]
pub struct KubeApiserverArgs {
    /// Folder of certificates: apiserver.crt and apiserver.key are served from there, if they are there.
    #[arg(long, default_value = "/var/run/kubernetes")]
    pub cert_dir: PathBuf,
    /// Address to listen on.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port to listen on.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// The address that is published: there is none but that of the port.
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
    /// The serving certificate.
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Who signs the certificates of clients.
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    /// The key that signs service-account tokens.
    #[arg(long)]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// What service-account tokens are checked with: what signs them.
    #[arg(long)]
    pub service_account_key_file: Vec<PathBuf>,
    /// The issuer in service-account tokens.
    #[arg(long, default_value = "https://kubernetes.default.svc.cluster.local")]
    pub service_account_issuer: String,
    /// Addresses of services.
    #[arg(long, default_value = "10.0.0.0/24")]
    pub service_cluster_ip_range: String,
    /// Who decides what clients may do: RBAC, or nodes' rights before it.
    #[arg(long, value_delimiter = ',', default_value = "Node,RBAC", value_parser = ["Node", "RBAC"])]
    pub authorization_mode: Vec<String>,
    /// Admission plugins that do nothing.
    #[arg(long, value_delimiter = ',', value_parser = ["ServiceAccount"])]
    pub disable_admission_plugins: Vec<String>,
    /// Privileged containers are allowed, as always.
    #[arg(long, default_value = "true", value_parser = ["true"], num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_privileged: String,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}
