//! What the drill does and how it judges what it saw, from values to values: no clock, no I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clap::ValueEnum;

/// What is done to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// The driver is killed, is away for a while, and is started.
    Kill,
    /// The driver is stopped in whatever it does, and goes on after a while.
    Hang,
    /// The driver is asked to end, as an upgrade does, and is started.
    Restart,
    /// The driver does not reach the API server for a while.
    Disconnect,
    /// The kubelet is killed, and whoever looks after it starts it.
    KubeletKill,
    /// The runtime is killed, and whoever looks after it starts it.
    RuntimeKill,
}

/// On which of the driver's arrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum At {
    /// It publishes its slices.
    Publish,
    /// Pods are bound: it prepares their claims.
    Prepare,
    /// The first device leaves the node: it attaches.
    Attach,
    /// All pods run.
    Run,
    /// Pods are told to end.
    Stop,
    /// The first device is back: it unprepares.
    Unprepare,
}

/// How a value is typed.
fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// One time that one fault happens at one arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// What.
    pub fault: Fault,
    /// When.
    pub at: At,
    /// Which time, from 0.
    pub attempt: usize,
}

impl Round {
    /// How long after the arrow's sign: an arrow is no moment, and each try meets another one of it.
    pub fn delay(self) -> Duration {
        const STEPS: [u64; 6] = [0, 2, 5, 12, 30, 80];
        Duration::from_millis(STEPS[self.attempt % STEPS.len()])
    }

    /// Its name in words.
    pub fn name(self) -> String {
        format!("{} at {}, try {}", word(&self.fault), word(&self.at), self.attempt + 1)
    }
}

/// Every round, in the order of the table.
pub fn rounds(faults: &[Fault], arrows: &[At], tries: usize) -> Vec<Round> {
    let mut all = Vec::new();
    for &fault in faults {
        for &at in arrows {
            all.extend((0..tries).map(|attempt| Round { fault, at, attempt }));
        }
    }
    all
}

/// A link as it is seen in some namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its name there.
    pub name: String,
    /// Its hardware address.
    pub mac: Option<String>,
}

/// A device of the driver that is a link of the node while nobody has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// As it is published.
    pub name: String,
    /// What it was when the drill began.
    pub link: Link,
}

impl Device {
    /// Whether a link is this device: by its hardware address, or by its name if it has none of its own.
    pub fn is(&self, link: &Link) -> bool {
        match &self.link.mac {
            Some(mac) => link.mac.as_ref() == Some(mac),
            None => link.name == self.link.name,
        }
    }
}

/// Devices that are links of the node, of those that are published with their links' names.
pub fn devices(published: &[(String, Option<String>)], host: &[Link]) -> Vec<Device> {
    let alike = |mac: &String| host.iter().filter(|link| link.mac.as_ref() == Some(mac)).count() > 1;
    let device = |(name, link): &(String, Option<String>)| {
        let mut link = host.iter().find(|one| Some(&one.name) == link.as_ref())?.clone();
        link.mac = link.mac.filter(|mac| !alike(mac) && mac != "00:00:00:00:00:00");
        Some(Device { name: name.clone(), link })
    };
    published.iter().filter_map(device).collect()
}

/// A pod of the drill that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its name.
    pub pod: String,
    /// The devices that its claims are allocated.
    pub claimed: Vec<String>,
    /// The links in its network namespace; none if that could not be looked at.
    pub links: Option<Vec<Link>>,
}

impl Seen {
    /// Which of its devices the pod does not have. Of devices that are made on demand only their number is known: `plain`
    /// are the links of a pod without any.
    pub fn missing(&self, devices: &[Device], plain: &[String]) -> Vec<String> {
        let links = self.links.as_deref().unwrap_or_default();
        let known = |name: &&String| devices.iter().find(|device| device.name == **name);
        let mut missing = Vec::new();
        let mut made: Vec<&String> = Vec::new();
        for name in &self.claimed {
            match known(&name) {
                Some(device) if links.iter().any(|link| device.is(link)) => {}
                Some(_) => missing.push(name.clone()),
                None => made.push(name),
            }
        }
        let others = links
            .iter()
            .filter(|link| !plain.contains(&link.name) && !devices.iter().any(|device| device.is(link)));
        missing.extend(made.into_iter().skip(others.count()).cloned());
        missing
    }
}

/// Devices that two pods have, or were both told that they have.
pub fn shared(pods: &[Seen], devices: &[Device]) -> BTreeSet<String> {
    let mut holders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for seen in pods {
        let links = seen.links.as_deref().unwrap_or_default();
        let there = devices.iter().filter(|device| links.iter().any(|link| device.is(link)));
        let names = there.map(|device| &device.name).chain(&seen.claimed);
        for name in names {
            holders.entry(name).or_default().insert(&seen.pod);
        }
    }
    let twice = holders.into_iter().filter(|(_, pods)| pods.len() > 1);
    twice.map(|(name, _)| name.to_owned()).collect()
}

/// Devices that are not on the node under their own names, with where they are instead: nowhere is lost.
pub fn away<'a>(devices: &'a [Device], host: &[Link]) -> Vec<(&'a Device, Option<String>)> {
    let mut away = Vec::new();
    for device in devices {
        match host.iter().find(|link| device.is(link)) {
            Some(link) if link.name == device.link.name => {}
            other => away.push((device, other.map(|link| link.name.clone()))),
        }
    }
    away
}

/// What is counted of one fault at one arrow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    tries: usize,
    without: usize,
    lost: usize,
    shared: usize,
    stuck: usize,
    worst: Duration,
}

/// What went wrong in one round, each with its words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Pods that ran without a device, by name.
    pub without: BTreeMap<String, String>,
    /// Devices that are nowhere.
    pub lost: BTreeSet<String>,
    /// Devices of two pods.
    pub shared: BTreeSet<String>,
    /// Objects that were not as they should be when the bound was over.
    pub stuck: BTreeSet<String>,
    /// The longest time that a pod took to run or to end.
    pub worst: Duration,
}

impl Found {
    /// Each thing in a line.
    pub fn lines(&self) -> Vec<String> {
        let without = self.without.iter().map(|(pod, why)| format!("pod {pod} ran without {why}"));
        let lost = self.lost.iter().map(|name| format!("device {name} is lost"));
        let shared = self.shared.iter().map(|name| format!("device {name} is two pods'"));
        let stuck = self.stuck.iter().map(|what| format!("stuck: {what}"));
        without.chain(lost).chain(shared).chain(stuck).collect()
    }
}

/// All that was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<(Fault, At), Row>);

impl Tally {
    /// Adds a round.
    pub fn add(&mut self, round: Round, found: &Found) {
        let row = self.0.entry((round.fault, round.at)).or_default();
        row.tries += 1;
        row.without += found.without.len();
        row.lost += found.lost.len();
        row.shared += found.shared.len();
        row.stuck += found.stuck.len();
        row.worst = row.worst.max(found.worst);
    }

    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.0.values().all(|row| row.without + row.lost + row.shared + row.stuck == 0)
    }

    /// The table, a line for each fault at each arrow.
    pub fn table(&self) -> Vec<Vec<String>> {
        let head = ["FAULT", "AT", "TRIES", "WITHOUT", "LOST", "SHARED", "STUCK", "WORST WAIT"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for ((fault, at), row) in &self.0 {
            let Row { tries, without, lost, shared, stuck, worst } = row;
            let counts = [tries, without, lost, shared, stuck].map(ToString::to_string);
            let mut line = vec![word(fault), word(at)];
            line.extend(counts);
            line.push(format!("{:.1} s", worst.as_secs_f64()));
            lines.push(line);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, mac: &str) -> Link {
        Link { name: name.to_owned(), mac: Some(mac.to_owned()) }
    }

    fn seen(pod: &str, claimed: &[&str], links: &[Link]) -> Seen {
        let claimed = claimed.iter().map(|name| (*name).to_owned()).collect();
        Seen { pod: pod.to_owned(), claimed, links: Some(links.to_vec()) }
    }

    fn two() -> Vec<Device> {
        let published: Vec<(String, Option<String>)> = ["eth1", "eth2", "made-0"]
            .into_iter()
            .map(|name| (name.to_owned(), name.starts_with("eth").then(|| name.to_owned())))
            .collect();
        devices(&published, &[link("lo", "00:00:00:00:00:00"), link("eth1", "a"), link("eth2", "b")])
    }

    #[test]
    fn a_device_is_known_by_its_address_or_by_its_name_if_two_have_the_same() {
        let all = two();
        assert_eq!(all.len(), 2);
        assert!(all[0].is(&link("net1", "a")) && !all[0].is(&link("eth1", "c")));
        let published = [("x".to_owned(), Some("x".to_owned()))];
        let alike = devices(&published, &[link("x", "a"), link("y", "a")]);
        assert!(alike[0].is(&link("x", "c")) && !alike[0].is(&link("y", "a")));
    }

    #[test]
    fn a_pod_without_its_device_is_told_from_one_that_has_it_under_another_name() {
        let plain = ["lo".to_owned(), "eth0".to_owned()];
        let missing = |claimed: &[&str], links: &[Link]| seen("p", claimed, links).missing(&two(), &plain);
        let (lo, eth0) = (link("lo", "00:00:00:00:00:00"), link("eth0", "x"));
        assert_eq!(missing(&["eth1"], &[lo.clone(), eth0.clone(), link("net1", "a")]), [""; 0]);
        assert_eq!(missing(&["eth1"], &[lo.clone(), eth0.clone()]), ["eth1"]);
        assert_eq!(missing(&["eth1"], &[lo.clone(), eth0.clone(), link("eth1", "b")]), ["eth1"], "another's");
        assert_eq!(missing(&["made-0"], &[lo.clone(), eth0.clone()]), ["made-0"]);
        assert_eq!(missing(&["made-0", "eth1"], &[lo.clone(), link("net1", "a")]), ["made-0"]);
        assert_eq!(missing(&["made-0", "eth1"], &[lo, link("net1", "a"), link("net2", "n")]), [""; 0]);
        let unseen = Seen { links: None, ..seen("p", &["eth1"], &[]) };
        assert_eq!(unseen.missing(&two(), &plain), ["eth1"], "what cannot be looked at is no proof");
    }

    #[test]
    fn a_device_of_two_pods_is_found_by_what_they_were_told_and_by_what_they_have() {
        let told = [seen("a", &["eth1"], &[]), seen("b", &["eth1"], &[])];
        assert_eq!(shared(&told, &two()), BTreeSet::from(["eth1".to_owned()]));
        let have = [seen("a", &["eth1"], &[]), seen("b", &[], &[link("net1", "a")])];
        assert_eq!(shared(&have, &two()), BTreeSet::from(["eth1".to_owned()]));
        let own = [seen("a", &["eth1"], &[link("net1", "a")]), seen("b", &["eth2"], &[])];
        assert_eq!(shared(&own, &two()), BTreeSet::new());
    }

    #[test]
    fn a_device_that_is_nowhere_is_told_from_one_that_is_called_otherwise() {
        let all = two();
        let host = [link("home7", "b")];
        let away: Vec<(&str, Option<String>)> =
            away(&all, &host).into_iter().map(|(device, name)| (device.name.as_str(), name)).collect();
        assert_eq!(away, [("eth1", None), ("eth2", Some("home7".to_owned()))]);
    }

    #[test]
    fn every_fault_meets_every_arrow_at_several_moments_and_is_counted_in_one_row() {
        let all = rounds(&[Fault::Kill, Fault::Hang], &[At::Prepare, At::Stop], 2);
        assert_eq!(all.len(), 8);
        assert_eq!(all[1].name(), "kill at prepare, try 2");
        assert!(all[0].delay() < all[1].delay());
        let mut tally = Tally::default();
        for round in &all {
            tally.add(*round, &Found { worst: Duration::from_secs(1), ..Found::default() });
        }
        assert!(tally.is_clean());
        let found = Found { lost: BTreeSet::from(["eth1".to_owned()]), ..Found::default() };
        tally.add(all[7], &found);
        assert!(!tally.is_clean());
        assert_eq!(found.lines(), ["device eth1 is lost"]);
        assert_eq!(tally.table()[4], ["hang", "stop", "3", "0", "1", "0", "0", "1.0 s"]);
    }
}
