//! A read-only registry on loopback, in the calling thread's network namespace.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::{Context, Result};

use crate::images::{Image, MANIFEST, digest};

/// A registry that runs until it is dropped.
pub struct Registry {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
}

/// What a path answers: its media type and its bytes.
type Pages = HashMap<String, (&'static str, Arc<Vec<u8>>)>;

impl Registry {
    /// Serves these images to everybody, under every host's name that leads here.
    pub fn serve(images: Vec<Image>) -> Result<Registry> {
        let mut pages = Pages::new();
        for image in images {
            let manifest = Arc::new(image.manifest);
            for name in &image.names {
                let (repository, tag) = name.rsplit_once(':').context("an image's name needs a tag")?;
                for version in [tag, &digest(&manifest)] {
                    let page = (MANIFEST, Arc::clone(&manifest));
                    pages.insert(format!("/v2/{repository}/manifests/{version}"), page);
                }
            }
            for (name, blob) in image.blobs {
                pages.insert(name, ("application/octet-stream", blob));
            }
        }
        let listener = TcpListener::bind("127.0.0.1:0").context("listen for the registry")?;
        let address = listener.local_addr()?;
        let ended = Arc::new(AtomicBool::new(false));
        let (pages, stop) = (Arc::new(pages), Arc::clone(&ended));
        thread::Builder::new().name("registry".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let pages = Arc::clone(&pages);
                let serving = thread::Builder::new().name("registry-client".to_owned());
                // Clients go away as they please; a thread that cannot start is a refused connection.
                serving.spawn(move || converse(stream, &pages)).ok();
            }
        })?;
        Ok(Registry { address, ended })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Writes settings in containerd's form that send every image name here; the folder is what runtimes are given.
    pub fn settings(&self, folder: &Path) -> Result<()> {
        let all = folder.join("_default");
        fs::create_dir_all(&all)?;
        let text = format!(
            "server = \"http://{0}\"\n[host.\"http://{0}\"]\ncapabilities = [\"pull\", \"resolve\"]\n",
            self.address
        );
        fs::write(all.join("hosts.toml"), text).context("write the registry's settings")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts; ignored: it is gone already then.
        TcpStream::connect(self.address).ok();
    }
}

/// Answers one request after the other; `None` when the client is gone.
fn converse(stream: TcpStream, pages: &Pages) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first).ok()? == 0 {
            return None;
        }
        let mut header = String::new();
        while reader.read_line(&mut header).ok()? > 2 {
            header.clear();
        }
        let mut words = first.split_whitespace();
        let (method, target) = (words.next()?, words.next()?);
        let path = target.split('?').next().unwrap_or(target);
        let found = match path.rsplit_once("/blobs/") {
            Some((_, name)) => pages.get(name),
            None => pages.get(path),
        };
        let nothing = Arc::new(br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"unknown"}]}"#.to_vec());
        let (status, kind, body) = match found {
            Some((kind, body)) => ("200 OK", *kind, Arc::clone(body)),
            None if path.trim_end_matches('/') == "/v2" => {
                ("200 OK", "application/json", Arc::new(b"{}".to_vec()))
            }
            None => ("404 Not Found", "application/json", nothing),
        };
        let mut head =
            format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
        if kind == MANIFEST {
            head.push_str(&format!("Docker-Content-Digest: {}\r\n", digest(&body)));
        }
        writer.write_all(format!("{head}\r\n").as_bytes()).ok()?;
        if method != "HEAD" {
            writer.write_all(&body).ok()?;
        }
    }
}
