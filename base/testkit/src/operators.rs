//! Operators that other people wrote: the files that kueue is installed and configured with, for whatever API server.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};

use crate::node::peer;

/// What is applied before kueue starts.
pub const KUEUE_INSTALL: &str = "kueue-install.yaml";
/// What kueue is started with.
pub const KUEUE_CONFIG: &str = "kueue-config.yaml";
/// Where kueue looks for the certificate that it put into its secret: a kubelet would mount the secret there.
const CERTIFICATES: &str = "kueue-certificates";

/// Where the webhooks of kueue are: an address that is not of the loopback range, as those are no endpoints.
const ADDRESS: &str = "10.76.0.1";
/// Its own manifests come without the place where it runs as a process.
const SLICE: &str = r#"
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: kueue-webhook-service-process
  namespace: kueue-system
  labels: {kubernetes.io/service-name: kueue-webhook-service}
addressType: IPv4
endpoints: [{addresses: ["10.76.0.1"]}]
ports: [{name: "", port: 9443, protocol: TCP}]
"#;

/// Writes what kueue is installed from and configured with into `folder`, and gives this network namespace the address
/// of its webhooks. Everything is as its own manifests say, but for the Deployment, as it runs as a process, and for the
/// APIServices of a part of it that is switched off.
pub fn prepare_kueue(folder: &Path) -> Result<()> {
    let tree = peer("kueue")?.with_file_name("kueue.manifests").join("default");
    let made = Command::new(peer("kubectl")?).arg("kustomize").arg(tree).output().context("run kubectl")?;
    ensure!(made.status.success(), "kubectl kustomize: {}", String::from_utf8_lossy(&made.stderr));
    let manifests = String::from_utf8(made.stdout)?;
    let foreign = ["\nkind: Deployment\n", "\nkind: APIService\n"];
    let kept = manifests.split("\n---\n").filter(|text| !foreign.iter().any(|kind| text.contains(kind)));
    let install: Vec<&str> = kept.collect();
    fs::write(folder.join(KUEUE_INSTALL), install.join("\n---\n") + SLICE)?;
    let certificates = folder.join(CERTIFICATES);
    fs::create_dir_all(&certificates)?;
    fs::write(
        folder.join(KUEUE_CONFIG),
        format!(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
             health: {{healthProbeBindAddress: \"127.0.0.1:8081\"}}\nmetrics: {{bindAddress: \"0\"}}\n\
             webhook: {{port: 9443, certDir: {}}}\nleaderElection: {{leaderElect: false}}\n\
             featureGates: {{VisibilityOnDemand: false}}\nintegrations: {{frameworks: [batch/job]}}\n",
            certificates.display()
        ),
    )?;
    let status =
        Command::new("ip").args(["addr", "replace", &format!("{ADDRESS}/32"), "dev", "lo"]).status()?;
    ensure!(status.success(), "ip could not set {ADDRESS}: {status}");
    Ok(())
}

/// A line of shell that puts the certificate where kueue looks for it, once kueue has made it; it fails until then.
pub fn mount_kueue_certificate() -> String {
    let one = |name: &str| {
        format!(
            "kubectl -n kueue-system get secret kueue-webhook-server-cert -o jsonpath='{{.data.tls\\.{name}}}' \
             | base64 -d > {CERTIFICATES}/{name}.new && test -s {CERTIFICATES}/{name}.new"
        )
    };
    // It takes both for there as soon as the certificate is.
    format!(
        "{} && {} && mv {CERTIFICATES}/key.new {CERTIFICATES}/tls.key && mv {CERTIFICATES}/crt.new {CERTIFICATES}/tls.crt \
         && echo mounted",
        one("key"),
        one("crt")
    )
}
