//! One of several schedulers, or of others that take turns, leads: by a lease, in upstream's record and with its times, so that a real kube-scheduler and
//! this one take turns.
//!
//! The clock of others is not trusted: a lease is over when its record has not changed for its whole duration by our clock.
//! <https://kubernetes.io/docs/concepts/architecture/leases/>

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use podwire_client::api::{Api, PostParams};
use podwire_client::{Client, Meta};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Election;

/// A name that no other process has: the host's and a part by chance, as upstream's is made.
pub fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let chance = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
    format!("{}_{chance:016x}", host.trim())
}

/// What a lease says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    holder: String,
    duration: Duration,
    renewed: String,
    acquired: String,
    transitions: i64,
}

impl Record {
    fn new(lease: &Value) -> Self {
        let spec = &lease["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            holder: text(&spec["holderIdentity"]),
            duration: Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or_default()),
            renewed: text(&spec["renewTime"]),
            acquired: text(&spec["acquireTime"]),
            transitions: spec["leaseTransitions"].as_i64().unwrap_or_default(),
        }
    }
}

/// What to do about a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Move {
    /// It is another's.
    Wait,
    /// It is ours, or nobody's: write these fields, if nobody else wrote meanwhile.
    Write(Value),
}

/// Decides; `unchanged` is for how long the record has been as it is, by our clock.
fn next(
    record: &Record,
    unchanged: Duration,
    identity: &str,
    election: &Election,
    now: jiff::Timestamp,
) -> Move {
    let own = record.holder == identity;
    if !own && !record.holder.is_empty() && unchanged < record.duration {
        return Move::Wait;
    }
    Move::Write(json!({
        "holderIdentity": identity,
        "leaseDurationSeconds": election.lease.as_secs(),
        "acquireTime": if own { record.acquired.clone() } else { micro(now) },
        "renewTime": micro(now),
        "leaseTransitions": record.transitions + i64::from(!own),
    }))
}

fn micro(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Takes part in the choice.
pub struct Elector {
    leases: Api<Lease>,
    election: Election,
    identity: String,
    /// The last record that was seen, and when it was first seen so.
    seen: Option<(Record, Instant)>,
}

impl Elector {
    /// Takes part under this name, which nobody else has.
    pub fn new(client: Client, election: Election, identity: String) -> Self {
        let leases = Api::namespaced(client, &election.namespace);
        Self { leases, election, identity, seen: None }
    }

    /// Waits until this one leads; `false` at `shutdown`.
    pub async fn acquire(&mut self, shutdown: &CancellationToken) -> bool {
        loop {
            match self.attempt().await {
                Ok(true) => {
                    tracing::info!(identity = self.identity, lease = self.election.name, "leading");
                    return true;
                }
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "lease not taken; will retry"),
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return false,
                () = tokio::time::sleep(self.election.retry) => {}
            }
        }
    }

    /// Goes on leading; returns when the lease is lost or at `shutdown`.
    pub async fn keep(&mut self, shutdown: &CancellationToken) {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(self.election.retry) => {}
            }
            let left = self.election.renew.saturating_sub(renewed.elapsed());
            match tokio::time::timeout(left, self.attempt()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => {
                    tracing::warn!(lease = self.election.name, "another one leads now");
                    return;
                }
                Ok(Err(error)) => tracing::warn!(%error, "lease not renewed; will retry"),
                Err(_) => {}
            }
            if renewed.elapsed() >= self.election.renew {
                tracing::warn!(lease = self.election.name, "lease lost: not renewed in time");
                return;
            }
        }
    }

    /// Lets others lead at once.
    pub async fn release(&mut self) {
        let Ok(Some(lease)) = self.leases.get_value(&self.election.name).await else { return };
        if Record::new(&lease).holder != self.identity {
            return;
        }
        let now = micro(jiff::Timestamp::now());
        let fields =
            json!({"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now});
        if let Err(error) = self.write(lease, &fields).await {
            tracing::debug!(%error, "lease not released");
        }
    }

    /// Tries once to take or renew the lease; says whether it is ours now.
    async fn attempt(&mut self) -> Result<bool, podwire_client::Error> {
        let now = jiff::Timestamp::now();
        let Some(lease) = self.leases.get_value(&self.election.name).await? else {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.election.name, "namespace": self.election.namespace},
                "spec": {
                    "holderIdentity": self.identity,
                    "leaseDurationSeconds": self.election.lease.as_secs(),
                    "acquireTime": micro(now),
                    "renewTime": micro(now),
                    "leaseTransitions": 0,
                },
            });
            return won(self.leases.create(&PostParams::default(), &lease).await);
        };
        let record = Record::new(&lease);
        let unchanged = match &self.seen {
            Some((seen, since)) if *seen == record => since.elapsed(),
            _ => {
                self.seen = Some((record.clone(), Instant::now()));
                Duration::ZERO
            }
        };
        match next(&record, unchanged, &self.identity, &self.election, now) {
            Move::Wait => Ok(false),
            Move::Write(fields) => won(self.write(lease, &fields).await),
        }
    }

    /// Writes the lease back as it was read, but for these fields.
    async fn write(&self, mut lease: Value, fields: &Value) -> Result<Meta, podwire_client::Error> {
        for (field, value) in fields.as_object().into_iter().flatten() {
            lease["spec"][field] = value.clone();
        }
        self.leases.replace(&self.election.name, &PostParams::default(), &lease).await
    }
}

/// Whether a write went through; if not because somebody else was faster, that is no failure.
fn won(written: Result<Meta, podwire_client::Error>) -> Result<bool, podwire_client::Error> {
    match written {
        Ok(_) => Ok(true),
        Err(podwire_client::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(holder: &str) -> Record {
        Record {
            holder: holder.to_owned(),
            duration: Duration::from_secs(15),
            renewed: String::new(),
            acquired: "1970-01-01T00:00:00.000000Z".to_owned(),
            transitions: 4,
        }
    }

    /// Leases of an API server that has one, which is anybody's to change.
    fn elector(lease: &std::sync::Arc<std::sync::Mutex<Value>>) -> Elector {
        let lease = lease.clone();
        let service = tower::service_fn(move |request: http::Request<podwire_client::Body>| {
            let lease = lease.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = http_body_util::BodyExt::collect(body).await.map_err(std::io::Error::other)?;
                if head.method == http::Method::PUT {
                    *lease.lock().unwrap() = serde_json::from_slice(&body.to_bytes()).unwrap();
                }
                let text = lease.lock().unwrap().to_string();
                let answer = podwire_client::Body::wrap(http_body_util::Full::new(text.into()));
                Ok::<_, std::io::Error>(http::Response::new(answer))
            }
        });
        Elector::new(Client::new(service, "default"), Election::default(), "me".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn clocks_that_step_neither_shorten_a_lease_nor_lengthen_it() {
        let of_other = |renewed: &str| {
            json!({"metadata": {"name": "kube-scheduler", "namespace": "kube-system"}, "spec": {"holderIdentity": "other",
                "leaseDurationSeconds": 15, "renewTime": renewed, "acquireTime": renewed, "leaseTransitions": 0}})
        };
        let lease = std::sync::Arc::new(std::sync::Mutex::new(Value::Null));
        let mut elector = elector(&lease);
        // The other's clock is a year behind, then ahead, then steps to and fro: as long as it renews, it leads.
        for renewed in [
            "2025-01-01T00:00:00.000000Z",
            "2099-01-01T00:00:00.000000Z",
            "2098-12-31T23:00:00.000000Z",
            "2099-01-02T00:00:00.000000Z",
            "1970-01-01T00:00:00.000000Z",
            "2099-01-02T00:00:00.000000Z",
        ] {
            *lease.lock().unwrap() = of_other(renewed);
            for _ in 0..7 {
                assert!(!elector.attempt().await.unwrap(), "{renewed}");
                tokio::time::advance(Duration::from_secs(2)).await;
            }
        }
        // It says nothing any more: its last word is decades ahead, and counts for fifteen seconds.
        assert!(!elector.attempt().await.unwrap(), "14 s");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(elector.attempt().await.unwrap(), "15 s");
        // Our own clock was set back: what we wrote is ahead of it, and ours all the same.
        lease.lock().unwrap()["spec"]["renewTime"] = "2099-01-03T00:00:00.000000Z".into();
        assert!(elector.attempt().await.unwrap());
        let renewed = lease.lock().unwrap()["spec"]["renewTime"].clone();
        assert!(renewed.as_str().is_some_and(|text| text < "2099"), "{renewed}");
    }

    fn decide(holder: &str, unchanged: u64) -> Move {
        let now = jiff::Timestamp::from_second(100).unwrap();
        next(&record(holder), Duration::from_secs(unchanged), "me", &Election::default(), now)
    }

    #[test]
    fn a_lease_is_taken_only_when_its_holder_was_not_heard_of_for_its_whole_duration() {
        assert_eq!(decide("other", 0), Move::Wait);
        assert_eq!(decide("other", 14), Move::Wait);
        let Move::Write(spec) = decide("other", 15) else { panic!("it is over") };
        assert_eq!(spec["leaseTransitions"], 5);
        assert_eq!(spec["acquireTime"], "1970-01-01T00:01:40.000000Z");
    }

    #[test]
    fn ones_own_lease_is_renewed_and_a_released_one_is_free_at_once() {
        let Move::Write(spec) = decide("me", 0) else { panic!("it is ours") };
        assert_eq!(spec["leaseTransitions"], 4);
        assert_eq!(spec["acquireTime"], "1970-01-01T00:00:00.000000Z");
        assert_eq!(spec["renewTime"], "1970-01-01T00:01:40.000000Z");
        assert!(matches!(decide("", 0), Move::Write(_)));
    }
}
