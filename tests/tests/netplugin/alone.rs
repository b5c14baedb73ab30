//! The plugin as a process of its own beside a node, and a way to the API server that can be cut.

use std::{
    io::{BufRead, BufReader},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use podwire_linux::nft::{self, Family, Table, Transaction};
use podwire_testkit::{Node, eventually, node::bin_dir};

pub(crate) const TABLE: &str = "test_policy";

/// `podwire netplugin`; killed when dropped.
pub(crate) struct Alone(Child);

impl Alone {
    pub(crate) fn start(node: &Node, kubeconfig: &Path) -> Result<Alone> {
        let names = node.names()?;
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(node.data_dir.join("netplugin.log"))?;
        let mut child = Command::new(bin_dir().join("podwire"))
            .args(["netplugin", "--node-name", "node1", "--pod-cidr", "10.88.0.0/16", "--table", TABLE])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--nri-socket")
            .arg(names.run_dir.join("nri.sock"))
            .args(["--pod-link", &names.bridge])
            .arg("--trace-dir")
            .arg(&node.data_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let mut ready = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut ready)?;
        anyhow::ensure!(ready.starts_with("ready"), "the plugin said {ready:?}");
        Ok(Alone(child))
    }

    /// Waits until the runtime has it.
    #[allow(dead_code)] // Not every test that shares this file waits for it.
    pub(crate) fn loaded(&self, node: &Node) -> Result<()> {
        eventually("the plugin is connected", Duration::from_secs(20), || {
            let text = node.podwire(["nri", "list", "-o", "json"]).map_err(|error| format!("{error:#}"))?;
            if text.contains("\"netplugin\"") && text.contains("\"ready\":true")
                || text.contains("\"ready\": true")
            {
                Ok(())
            } else {
                Err(text)
            }
        })
    }

    /// Ends it without warning.
    pub(crate) fn kill(&mut self) {
        self.end();
    }

    /// Makes it hang, or go on.
    #[allow(dead_code)] // Not every test that shares this file needs it.
    pub(crate) fn hang(&self, hangs: bool) -> Result<()> {
        let signal = if hangs { rustix::process::Signal::STOP } else { rustix::process::Signal::CONT };
        Ok(rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal)?)
    }

    fn end(&mut self) {
        // Ignored: it may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.end();
    }
}

/// Removes the table that a killed plugin leaves, as it should.
pub(crate) fn remove_table() -> Result<()> {
    let mut tx = Transaction::new();
    tx.delete_table(Table { family: Family::Inet, name: TABLE });
    Ok(tx.commit(&mut nft::Socket::netfilter()?)?)
}

/// Bytes from one port to another, until it is cut; ends with the test.
pub(crate) struct Forwarder {
    open: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Forwarder {
    pub(crate) fn start(from: &str, to: &'static str) -> Result<Forwarder> {
        let listener = TcpListener::bind(from)?;
        let forwarder = Forwarder { open: Arc::new(AtomicBool::new(true)), streams: Arc::default() };
        let (open, streams) = (forwarder.open.clone(), forwarder.streams.clone());
        std::thread::Builder::new().name("forward".into()).spawn(move || {
            for client in listener.incoming().flatten() {
                let Some(server) = TcpStream::connect(to).ok().filter(|_| open.load(Ordering::Relaxed))
                else {
                    continue;
                };
                let mut held = streams.lock().expect("held shortly");
                for (one, other) in [(&client, &server), (&server, &client)] {
                    let (Ok(mut from), Ok(mut to)) = (one.try_clone(), other.try_clone()) else { continue };
                    held.extend(one.try_clone());
                    let copy = move || std::io::copy(&mut from, &mut to).is_ok();
                    std::thread::Builder::new().name("copy".into()).spawn(copy).ok();
                }
            }
        })?;
        Ok(forwarder)
    }

    pub(crate) fn cut(&self) {
        self.open.store(false, Ordering::Relaxed);
        for stream in self.streams.lock().expect("held shortly").drain(..) {
            // Ignored: it may have ended already.
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    pub(crate) fn mend(&self) {
        self.open.store(true, Ordering::Relaxed);
    }
}
