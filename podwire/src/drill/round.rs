//! One round: pods with claims come, a fault meets one arrow of theirs, they run and go, and everything is as it was.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, sleep};

use super::{
    cluster::{Cluster, Container, Pod},
    door::Door,
    look,
    plan::{self, At, Device, Fault, Found, Link, Round, Seen},
    victim::Victim,
};

/// Between looks.
pub const PAUSE: Duration = Duration::from_millis(50);
/// Between looks for an arrow's sign.
const KEEN: Duration = Duration::from_millis(5);

/// All that the drill works with.
pub struct Drill {
    /// The API server.
    pub cluster: Cluster,
    /// The driver's way there.
    pub door: Door,
    /// The driver.
    pub driver: Victim,
    /// The kubelet, if it may suffer.
    pub kubelet: Option<Victim>,
    /// The runtime, if it may suffer.
    pub runtime: Option<Victim>,
    /// What pods run.
    pub container: Container,
    /// How many pods at once.
    pub pods: usize,
    /// How long a fault lasts.
    pub lasts: Duration,
    /// What takes longer is stuck.
    pub bound: Duration,
    /// The driver's devices that are links of the node; what is lost is none any more.
    pub devices: Vec<Device>,
    /// The links of a pod without devices.
    pub plain: Vec<String>,
}

impl Drill {
    /// Carries out one round.
    pub async fn round(&mut self, round: Round, number: usize) -> Result<Found> {
        let mut found = Found::default();
        let names: Vec<String> =
            (0..self.pods).map(|at| format!("{}-{number}-{at}", self.cluster.prefix)).collect();
        if round.at == At::Publish {
            self.cluster.delete_slices().await.context("take the slices away")?;
            self.suffer(round, &mut found).await?;
            self.slices(&mut found).await;
        }
        for name in &names {
            self.cluster.make_pod(name, &self.container, true).await?;
        }
        let made = Instant::now();
        if matches!(round.at, At::Prepare | At::Attach) {
            self.sign(round.at, &names).await;
            self.suffer(round, &mut found).await?;
        }
        self.until_run(&names, made, &mut found).await?;
        if round.at == At::Run {
            self.suffer(round, &mut found).await?;
        }
        for name in &names {
            self.cluster.delete_pod(name, false).await?;
        }
        let told = Instant::now();
        if matches!(round.at, At::Stop | At::Unprepare) {
            if round.at == At::Unprepare {
                self.sign(round.at, &names).await;
            }
            self.suffer(round, &mut found).await?;
        }
        self.until_ended(&names, told, &mut found).await?;
        self.settle(&names, &mut found).await;
        Ok(found)
    }

    /// The fault, from its beginning to its end, with looks at pods meanwhile.
    async fn suffer(&mut self, round: Round, found: &mut Found) -> Result<()> {
        sleep(round.delay()).await;
        self.driver.revive(self.bound).await?;
        match round.fault {
            Fault::Kill => self.driver.kill(self.bound).await?,
            Fault::Hang => self.driver.hang()?,
            Fault::Restart => {
                self.driver.end(self.bound).await?;
                self.driver.start(self.bound).await?;
            }
            Fault::Disconnect => self.door.set(false),
            Fault::KubeletKill => victim(&mut self.kubelet)?.kill(self.bound).await?,
            Fault::RuntimeKill => victim(&mut self.runtime)?.kill(self.bound).await?,
        }
        let begun = Instant::now();
        while begun.elapsed() < self.lasts {
            self.look(found).await;
            sleep(PAUSE).await;
        }
        match round.fault {
            Fault::Kill => self.driver.start(self.bound).await,
            Fault::Hang => self.driver.go_on(),
            Fault::Restart => self.driver.revive(self.bound).await,
            Fault::Disconnect => {
                self.door.set(true);
                Ok(())
            }
            Fault::KubeletKill => victim(&mut self.kubelet)?.start(self.bound).await,
            Fault::RuntimeKill => victim(&mut self.runtime)?.start(self.bound).await,
        }
    }

    /// Waits until an arrow has begun, as far as that can be seen from outside.
    async fn sign(&self, at: At, names: &[String]) {
        let begun = Instant::now();
        while begun.elapsed() < self.bound {
            // Ignored: who cannot be asked now is asked again.
            let pods = self.cluster.pods().await.unwrap_or_default();
            let mut ours = pods.iter().filter(|pod| names.contains(&pod.name));
            let home = links().await.map(|host| self.devices.len() - plan::away(&self.devices, &host).len());
            let all_home = home.as_ref().is_ok_and(|home| *home == self.devices.len());
            let come = match at {
                At::Prepare => ours.any(|pod| pod.bound),
                At::Attach => ours.any(|pod| pod.running.is_some()) || (home.is_ok() && !all_home),
                At::Unprepare => {
                    let free = self.devices.len().saturating_sub(self.pods);
                    ours.next().is_none() || home.is_ok_and(|home| home > free)
                }
                At::Publish | At::Run | At::Stop => true,
            };
            if come {
                return;
            }
            sleep(KEEN).await;
        }
    }

    /// The links in the pods' namespaces, by uid; pods that cannot be looked at are missing.
    pub async fn inside(&self, pods: &[&Pod]) -> Result<BTreeMap<String, Vec<Link>>> {
        let uids: Vec<String> = pods.iter().map(|pod| pod.uid.clone()).collect();
        let looked = tokio::task::spawn_blocking(move || {
            let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
            let namespaces = look::namespaces(&uids).into_iter();
            let inside = namespaces.filter_map(|(uid, path)| Some((uid.to_owned(), look::inside(&path)?)));
            inside.collect()
        });
        looked.await.context("look into pods")
    }

    /// Looks at every pod of ours that runs, and counts those that lack a device and devices that two have. What is counted
    /// still holds after the look: a pod that ended meanwhile is not.
    async fn look(&self, found: &mut Found) {
        // Ignored throughout: who cannot be asked now is asked again with the next look.
        let Ok(seen) = self.seen().await else { return };
        let lacking = seen.iter().filter_map(|(pod, seen)| {
            let missing = seen.missing(&self.devices, &self.plain);
            (!missing.is_empty() && seen.links.is_some()).then(|| (pod, missing.join(", ")))
        });
        let lacking: Vec<(&Pod, String)> = lacking.collect();
        let all: Vec<Seen> = seen.iter().map(|(_, seen)| seen.clone()).collect();
        let shared = plan::shared(&all, &self.devices);
        if lacking.is_empty() && shared.is_empty() {
            return;
        }
        let Ok(after) = self.cluster.pods().await else { return };
        let same = |pod: &Pod| after.iter().any(|other| other.uid == pod.uid && other.running == pod.running);
        for (pod, why) in lacking.iter().filter(|(pod, _)| same(pod)) {
            found.without.insert(pod.name.clone(), why.clone());
        }
        if seen.iter().all(|(pod, _)| same(pod)) {
            found.shared.extend(shared);
        }
    }

    async fn seen(&self) -> Result<Vec<(Pod, Seen)>> {
        let pods = self.cluster.pods().await?;
        let running: Vec<&Pod> =
            pods.iter().filter(|pod| pod.running.is_some() && !pod.claims.is_empty()).collect();
        if running.is_empty() {
            return Ok(Vec::new());
        }
        let claims = self.cluster.claims().await?;
        let mut inside = self.inside(&running).await?;
        let seen = running.into_iter().map(|pod| {
            let claimed = pod.claims.iter().filter_map(|name| claims.get(name)).flatten().cloned().collect();
            let links = inside.remove(&pod.uid);
            (pod.clone(), Seen { pod: pod.name.clone(), claimed, links })
        });
        Ok(seen.collect())
    }

    /// Waits until the round's pods run; what does not is stuck.
    async fn until_run(&mut self, names: &[String], since: Instant, found: &mut Found) -> Result<()> {
        let mut waiting: BTreeSet<&String> = names.iter().collect();
        let begun = Instant::now();
        while !waiting.is_empty() && begun.elapsed() < self.bound {
            self.driver.revive(self.bound).await?;
            self.look(found).await;
            for pod in self.cluster.pods().await.unwrap_or_default() {
                if pod.running.is_some() && waiting.remove(&pod.name) {
                    found.worst = found.worst.max(since.elapsed());
                }
            }
            sleep(PAUSE).await;
        }
        self.look(found).await;
        // Of a pod that cannot be looked at nothing is proved.
        let unseen =
            self.seen().await.unwrap_or_default().into_iter().filter(|(_, seen)| seen.links.is_none());
        found.stuck.extend(unseen.map(|(pod, _)| format!("pod {} cannot be looked at", pod.name)));
        if !waiting.is_empty() {
            found.worst = found.worst.max(since.elapsed());
        }
        let stuck = waiting.into_iter().map(|name| format!("pod {name} does not run"));
        found.stuck.extend(stuck);
        Ok(())
    }

    /// Waits until the round's pods are gone; what is not is stuck, and only its object goes.
    async fn until_ended(&mut self, names: &[String], since: Instant, found: &mut Found) -> Result<()> {
        let begun = Instant::now();
        let mut left: Vec<Pod> = Vec::new();
        while begun.elapsed() < self.bound {
            self.driver.revive(self.bound).await?;
            if let Ok(pods) = self.cluster.pods().await {
                left = pods.into_iter().filter(|pod| names.contains(&pod.name)).collect();
                if left.is_empty() {
                    found.worst = found.worst.max(since.elapsed());
                    return Ok(());
                }
            }
            sleep(PAUSE).await;
        }
        found.worst = found.worst.max(since.elapsed());
        for pod in left {
            found.stuck.insert(format!("pod {} does not end", pod.name));
            self.cluster.delete_pod(&pod.name, true).await?;
        }
        Ok(())
    }

    /// Waits until no claim is left and every device is home and offered.
    async fn settle(&mut self, names: &[String], found: &mut Found) {
        let begun = Instant::now();
        let mut left = self.left(names).await;
        while !left.is_empty() && begun.elapsed() < self.bound {
            sleep(PAUSE).await;
            left = self.left(names).await;
        }
        left.remove(AWAY);
        found.stuck.extend(left);
        let Ok(host) = links().await else {
            found.stuck.insert("the node's links cannot be read".to_owned());
            return;
        };
        let away: Vec<(Device, Option<String>)> =
            plan::away(&self.devices, &host).into_iter().map(|(device, at)| (device.clone(), at)).collect();
        for (device, at) in away {
            let looked = device.clone();
            let elsewhere =
                tokio::task::spawn_blocking(move || look::elsewhere(&looked)).await.unwrap_or(true);
            match at {
                Some(name) => {
                    found.stuck.insert(format!("device {} is called {name} on the node", device.name))
                }
                None if elsewhere => found.stuck.insert(format!("device {} is not home", device.name)),
                None => {
                    self.devices.retain(|other| *other != device);
                    found.lost.insert(device.name.clone())
                }
            };
        }
        self.slices(found).await;
    }

    /// Claims that nobody has, and devices that are not home, while it may still be that they come.
    async fn left(&self, names: &[String]) -> BTreeSet<String> {
        let claims = match self.cluster.claims().await {
            Ok(claims) => claims,
            Err(error) => return BTreeSet::from([format!("claims cannot be listed: {error:#}")]),
        };
        let ours = |claim: &String| names.iter().any(|name| claim.starts_with(&format!("{name}-")));
        let mut left: BTreeSet<String> =
            claims.into_keys().filter(ours).map(|claim| format!("claim {claim} is left")).collect();
        match links().await {
            // Of devices the end says more.
            Ok(host) if plan::away(&self.devices, &host).is_empty() => {}
            _ => {
                left.insert(AWAY.to_owned());
            }
        }
        left
    }

    /// Waits until every device is offered; what is not is stuck.
    async fn slices(&self, found: &mut Found) {
        let begun = Instant::now();
        loop {
            let published = self.cluster.published().await.unwrap_or_default();
            let offered = |device: &&Device| published.iter().any(|(name, _)| *name == device.name);
            let missing: Vec<&Device> = self.devices.iter().filter(|device| !offered(device)).collect();
            if missing.is_empty() {
                return;
            }
            if begun.elapsed() >= self.bound {
                found
                    .stuck
                    .extend(missing.into_iter().map(|one| format!("device {} is in no slice", one.name)));
                return;
            }
            sleep(PAUSE).await;
        }
    }

    /// Whatever was under way ends, pods of ours go, and a driver that the drill has started ends.
    pub async fn clean_up(&mut self) -> Result<()> {
        self.door.set(true);
        self.driver.go_on()?;
        if self.driver.check().is_err() {
            self.driver.start(self.bound).await?;
        }
        self.cluster.clean().await.context("take the drill's pods away")?;
        self.until_gone().await?;
        if self.driver.is_ours() { self.driver.end(self.bound).await } else { Ok(()) }
    }

    /// Waits until no pod of ours is left.
    async fn until_gone(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let left = self.cluster.pods().await;
            if left.as_ref().is_ok_and(Vec::is_empty) {
                return Ok(());
            }
            ensure!(begun.elapsed() < self.bound, "pods of the drill are left: {left:?}");
            sleep(PAUSE).await;
        }
    }
}

/// That some device is away is waited for, and told in other words at the end.
const AWAY: &str = "devices are away";

fn victim(victim: &mut Option<Victim>) -> Result<&mut Victim> {
    victim.as_mut().context("nobody told where it is")
}

async fn links() -> Result<Vec<Link>> {
    Ok(tokio::task::spawn_blocking(look::links).await??)
}
