//! A log of what is denied: now and then one line for each rule that has dropped packets since the last look, and some of
//! the connections that were denied, each with the policies that denied it.
//!
//! The kernel counts, and hands single packets over only while somebody listens: after so many of them nobody does until the
//! next look, so that a flood of packets becomes neither a flood of lines nor of work.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use podwire_linux::nft::log::{Log, Logged};
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;

use crate::explain::port_text;
use crate::plan::evaluate::Flow;
use crate::policy::{SCTP, TCP, UDP};
use crate::table::{LOGGED, Table, log_group};

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(10);
/// Lines of one look of each kind; the rest is in the metrics.
const LINES: usize = 20;
/// Packets that are read between two looks.
const PACKETS: usize = 500;

/// Looks and listens until `shutdown`.
pub(crate) async fn log(table: String, shutdown: CancellationToken) {
    tokio::join!(rules(table.clone(), shutdown.clone()), connections(log_group(&table), shutdown));
}

/// What each rule has dropped.
async fn rules(table: String, shutdown: CancellationToken) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut before: Option<BTreeMap<String, u64>> = None;
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let name = table.clone();
        match tokio::task::spawn_blocking(move || Table::dropped(&name)).await {
            Ok(Ok(now)) => {
                for (rule, packets) in before.iter().flat_map(|before| since(before, &now)).take(LINES) {
                    tracing::info!(rule, packets, "packets denied");
                }
                before = Some(now);
            }
            Ok(Err(error)) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "what is denied cannot be read; will look again"
            ),
            Err(error) => tracing::warn!(%error, "the look at what is denied broke off"),
        }
    }
}

/// Which connections were denied.
async fn connections(group: u16, shutdown: CancellationToken) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut heard = true;
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let listening = tokio::time::timeout(EVERY, listen(group));
        let ended = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            ended = listening => ended,
        };
        match ended {
            Ok(Err(error)) if heard => {
                heard = false;
                tracing::warn!(%error, "denied connections are only counted");
            }
            Ok(Err(_)) => {}
            Ok(Ok(())) | Err(_) => heard = true,
        }
    }
}

#[expect(deprecated, reason = "the unsafe successor asks for what an owned descriptor already gives")]
fn readable(log: Log) -> std::io::Result<AsyncFd<Log>> {
    AsyncFd::new(log)
}

/// Tells of connections until it has told of enough.
async fn listen(group: u16) -> std::io::Result<()> {
    let log = Log::open(group, LOGGED).map_err(std::io::Error::other)?;
    let mut log = readable(log)?;
    let (mut told, mut read) = (HashSet::new(), 0);
    while told.len() < LINES && read < PACKETS {
        let mut ready = log.readable_mut().await?;
        let (some, more) = ready.get_inner_mut().take().map_err(std::io::Error::other)?;
        if !more {
            ready.clear_ready();
        }
        read += some.len();
        for one in some {
            tell(one, &mut told);
        }
    }
    Ok(())
}

/// Tells of a connection that was not told of yet.
fn tell(one: Logged, told: &mut HashSet<(String, String)>) {
    // What every link says to all of its neighbours as it comes up is no connection.
    let Some(flow) = flow(&one.packet).filter(|flow| !flow.destination.is_multicast()) else { return };
    let connection = format!("{} to {}, {}", flow.source, flow.destination, port_text(flow));
    if told.len() < LINES && told.insert((connection.clone(), one.prefix.clone())) {
        tracing::info!(connection, rule = one.prefix, "connection denied");
    }
}

/// Who wanted to speak to whom, by the first bytes of a packet.
fn flow(packet: &[u8]) -> Option<Flow> {
    let v4 = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    let v6 = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?));
    let half = |at: usize| Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?));
    let first = *packet.first()?;
    let (source, destination, protocol, ports) = match first >> 4 {
        4 => {
            // Only the first fragment has ports.
            let whole = half(6)? & 0x1fff == 0;
            (v4(12)?, v4(16)?, *packet.get(9)?, whole.then_some(usize::from(first & 15) * 4))
        }
        6 => (v6(8)?, v6(24)?, *packet.get(6)?, Some(40)),
        _ => return None,
    };
    let port = ports.filter(|_| [TCP, UDP, SCTP].contains(&protocol)).and_then(|at| half(at + 2));
    Some(Flow { source, destination, protocol, port })
}

/// What was dropped between two looks; a counter that is smaller was begun anew.
fn since(before: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let more = |(rule, packets): (&String, &u64)| {
        let earlier = before.get(rule).copied().filter(|earlier| earlier <= packets).unwrap_or(0);
        (packets > &earlier).then(|| (rule.clone(), packets - earlier))
    };
    now.iter().filter_map(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_read_from_its_first_packet_and_told_once() {
        let mut v4 = vec![0x46, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1];
        v4.extend([0x30, 0x39, 0, 80]);
        let found = flow(&v4).unwrap();
        assert_eq!(
            (found.source.to_string(), found.protocol, found.port),
            ("10.0.0.1".into(), TCP, Some(80))
        );
        let mut told = HashSet::new();
        for _ in 0..2 {
            tell(Logged { prefix: "no rule allows it, of a/b".into(), packet: v4.clone() }, &mut told);
        }
        let connection = "10.0.0.1 to 10.0.0.2, 80/TCP".to_owned();
        assert_eq!(told, HashSet::from([(connection, "no rule allows it, of a/b".to_owned())]));
        let mut reports = v4.clone();
        reports[16] = 224;
        tell(Logged { prefix: "floor".into(), packet: reports }, &mut told);
        assert_eq!(told.len(), 1, "nobody in particular was spoken to");
        v4[7] = 9;
        assert_eq!(flow(&v4).unwrap().port, None, "a later fragment has no ports");
        let mut v6 = vec![0x60, 0, 0, 0, 0, 0, 132, 64];
        v6.extend([[0xfd; 16], [0xfe; 16]].concat());
        assert_eq!(flow(&v6).unwrap().port, None, "ports may be cut off");
        v6.extend([0, 1, 0, 81]);
        assert_eq!(flow(&v6).map(|flow| (flow.protocol, flow.port)), Some((SCTP, Some(81))));
        for torn in [&[][..], &[0x45, 0, 0], &[0x60; 39], &[0x75; 64], &v4[..19]] {
            assert_eq!(flow(torn), None, "{torn:?}");
        }
    }

    #[test]
    fn only_what_is_new_is_told() {
        let counts = |all: &[(&str, u64)]| all.iter().map(|(rule, n)| ((*rule).to_owned(), *n)).collect();
        let before = counts(&[("same", 5), ("more", 5), ("anew", 9)]);
        let now = counts(&[("same", 5), ("more", 7), ("anew", 2), ("new", 1)]);
        let told = since(&before, &now);
        assert_eq!(told, [("anew".to_owned(), 2), ("more".to_owned(), 2), ("new".to_owned(), 1)]);
    }
}
