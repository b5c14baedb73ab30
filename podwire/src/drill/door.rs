//! A door between the driver and the API server, which can be shut: a listener on loopback that hands every byte on, and a
//! kubeconfig that leads to it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// The door.
pub struct Door {
    open: watch::Sender<bool>,
    folder: PathBuf,
    _serving: JoinSet<()>,
}

impl Door {
    /// Opens a door to the API server of a kubeconfig.
    pub async fn open(kubeconfig: &Path) -> Result<Door> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen on loopback")?;
        let port = listener.local_addr().context("look at the listener")?.port();
        let text = std::fs::read_to_string(kubeconfig).with_context(|| format!("read {kubeconfig:?}"))?;
        let at = kubeconfig.parent().unwrap_or(Path::new("."));
        let at = std::path::absolute(at).with_context(|| format!("find {at:?}"))?;
        let (led, server) = led(&text, &at, port)?;
        let folder = std::env::temp_dir().join(format!("podwire-drill-{}", std::process::id()));
        crate::private::folder(&folder)?;
        let (open, is_open) = watch::channel(true);
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, server, is_open));
        let door = Door { open, folder, _serving: serving };
        std::fs::write(door.kubeconfig(), led).context("write the driver's kubeconfig")?;
        Ok(door)
    }

    /// The kubeconfig that leads through it.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Lets through or shuts; connections that stand are cut.
    pub fn set(&self, open: bool) {
        self.open.send_replace(open);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Ignored: what is left is a private folder of the system's temporary ones.
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

async fn serve(listener: TcpListener, server: String, open: watch::Receiver<bool>) {
    let mut through = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = through.join_next() => {}
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                through.spawn(pass(stream, server.clone(), open.clone()));
            }
        }
    }
}

/// Hands on until either side ends or the door is shut; one that comes while it is shut is hung up on.
async fn pass(mut stream: TcpStream, server: String, mut open: watch::Receiver<bool>) {
    if !*open.borrow_and_update() {
        return;
    }
    let copied = async {
        if let Ok(mut other) = TcpStream::connect(&server).await {
            // Ignored: whoever was cut off sees it at the other end.
            tokio::io::copy_bidirectional(&mut stream, &mut other).await.ok();
        }
    };
    tokio::select! {
        () = copied => {}
        () = async { drop(open.wait_for(|open| !*open).await) } => {}
    }
}

/// The kubeconfig with every cluster at the door, and where the server of the current one is.
fn led(text: &str, folder: &Path, port: u16) -> Result<(String, String)> {
    let mut file = serde_yaml_ng::Deserializer::from_str(text)
        .next()
        .map(Value::deserialize)
        .context("the kubeconfig is empty")?
        .context("read the kubeconfig")?;
    let named = |list: &Value, name: &Value| {
        list.as_array().and_then(|all| all.iter().position(|one| one["name"] == *name))
    };
    let context = named(&file["contexts"], &file["current-context"]).context("no current context")?;
    let cluster = file["contexts"][context]["context"]["cluster"].clone();
    let at = named(&file["clusters"], &cluster).context("no cluster of the current context")?;
    let cluster = &mut file["clusters"][at]["cluster"];
    let uri: http::Uri = cluster["server"].as_str().unwrap_or_default().parse().context("read the server")?;
    let host = uri.host().context("the server has no host")?.to_owned();
    let plain = uri.scheme_str() == Some("http");
    let server = format!("{host}:{}", uri.port_u16().unwrap_or(if plain { 80 } else { 443 }));
    let scheme = if plain { "http" } else { "https" };
    cluster["server"] = format!("{scheme}://127.0.0.1:{port}{}", uri.path().trim_end_matches('/')).into();
    if !plain && cluster["tls-server-name"].is_null() {
        cluster["tls-server-name"] = host.trim_start_matches('[').trim_end_matches(']').into();
    }
    for (list, entry, names) in [
        ("clusters", "cluster", &["certificate-authority"][..]),
        ("users", "user", &["client-certificate", "client-key", "tokenFile"][..]),
    ] {
        for one in file[list].as_array_mut().into_iter().flatten() {
            for name in names {
                if let Some(path) = one[entry][name].as_str().map(|path| folder.join(path)) {
                    one[entry][name] = path.to_string_lossy().into();
                }
            }
        }
    }
    Ok((file.to_string(), server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_leads_to_the_door_and_names_whom_it_expects_behind_it() {
        let text = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {server: 'https://api.example.com:6443', certificate-authority: ca.crt}}]\nusers: [{name: u, user: {client-key: /keys/u.key}}]\n";
        let (led, server) = led(text, Path::new("/etc/k"), 4711).unwrap();
        let led: Value = serde_json::from_str(&led).unwrap();
        assert_eq!(server, "api.example.com:6443");
        let cluster = &led["clusters"][0]["cluster"];
        assert_eq!(cluster["server"], "https://127.0.0.1:4711");
        assert_eq!(cluster["tls-server-name"], "api.example.com");
        assert_eq!(cluster["certificate-authority"], "/etc/k/ca.crt");
        assert_eq!(led["users"][0]["user"]["client-key"], "/keys/u.key");
    }
}
