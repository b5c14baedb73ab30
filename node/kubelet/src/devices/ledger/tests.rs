//! The ledger under generated pods, plugins and failures, and the cases that upstream decides.

use serde_json::{Value, json};

use super::*;
use crate::topology::{Machine, NumaNode};

/// Numbers that look like chance and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }
}

fn topology(policy: &str, scope: &str) -> Topology {
    let node = |id| NumaNode { id, distances: vec![10, 20] };
    let machine = Machine::new(vec![node(0), node(1)]).unwrap();
    Topology::new(policy, scope, &BTreeMap::new(), machine).unwrap()
}

fn none() -> Topology {
    topology("none", "container")
}

fn device(id: &str, node: Option<i64>) -> Device {
    Device { id: id.to_owned(), healthy: true, nodes: node.map(|node| vec![node]) }
}

fn plain(ids: &[&str]) -> Vec<Device> {
    ids.iter().map(|id| device(id, None)).collect()
}

/// A ledger whose plugin tells `devices` of the resource `a.b/c`.
fn ledger(devices: Vec<Device>) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.settle(|_| true);
    ledger.registered("a.b/c", false);
    ledger.listed("a.b/c", devices);
    ledger
}

fn container(name: &str, count: usize) -> Value {
    json!({"name": name, "resources": {"limits": {"a.b/c": count.to_string(), "cpu": "1"}}})
}

fn pod(uid: &str, init: &[Value], apps: &[Value]) -> Wishes {
    let object =
        json!({"metadata": {"name": uid, "uid": uid}, "spec": {"initContainers": init, "containers": apps}});
    Wishes::of(&serde_json::from_value(object).unwrap())
}

fn one(uid: &str, count: usize) -> Wishes {
    pod(uid, &[], &[container("app", count)])
}

fn sidecar(name: &str, count: usize) -> Value {
    let mut made = container(name, count);
    made["restartPolicy"] = json!("Always");
    made
}

fn reserve(ledger: &mut Ledger, wishes: &Wishes) -> Decision {
    ledger.reserve(wishes, &none(), &Answers::default())
}

const ANEW: Decision = Decision::Reserved { anew: true };
const AGAIN: Decision = Decision::Reserved { anew: false };

fn ids(ledger: &Ledger, pod: &str, container: &str) -> Vec<String> {
    let name = ContainerName::from(container);
    ledger.held_by(pod, &name).flat_map(|(_, holding)| holding.devices.keys().cloned()).collect()
}

fn lack(decision: Decision) -> Lack {
    match decision {
        Decision::Wait(lack) => lack,
        other => panic!("{other:?}"),
    }
}

fn refusal(decision: Decision) -> String {
    match decision {
        Decision::Refused(refused) => format!("{}: {}", refused.reason, refused.message),
        other => panic!("{other:?}"),
    }
}

/// No device is two pods', none that a pod holds is another's by way of its containers' kinds, and all who hold asked.
fn check(ledger: &Ledger, pods: &BTreeMap<String, Wishes>) {
    let mut owners: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for (uid, holdings) in ledger.held() {
        let wishes = &pods[uid.as_str()];
        for ((name, resource), holding) in holdings {
            let wish = wishes.containers.iter().find(|wish| wish.container == *name).unwrap();
            assert_eq!(holding.devices.len(), wish.counts[resource], "{uid} {name}");
            for id in holding.devices.keys() {
                let owner = owners.entry((resource, id)).or_insert(uid);
                assert_eq!(*owner, uid.as_str(), "{resource} {id} has two owners");
            }
        }
        // Those that run beside each other share nothing.
        let lasting = wishes.containers.iter().filter(|wish| wish.kind != Kind::Init);
        let mut used = BTreeSet::new();
        for wish in lasting {
            for id in ids(ledger, uid, &wish.container) {
                assert!(used.insert(id.clone()), "{uid}: {id} is in two containers at once");
            }
        }
    }
}

#[test]
fn whatever_happens_no_device_is_two_pods_and_none_is_lost() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let policy = ["none", "best-effort", "restricted", "single-numa-node"][dice.below(4)];
        let topology = topology(policy, ["container", "pod"][dice.below(2)]);
        let all: Vec<String> = (0..8).map(|n| format!("d{n}")).collect();
        let mut ledger = ledger(Vec::new());
        let mut pods: BTreeMap<String, Wishes> = BTreeMap::new();
        for step in 0..120 {
            match dice.below(8) {
                0 => drop(ledger.gone("a.b/c")),
                1 | 2 => {
                    ledger.registered("a.b/c", dice.below(2) == 0);
                    let told = all.iter().enumerate().filter(|_| !dice.0.is_multiple_of(7));
                    let told = told.map(|(n, id)| device(id, Some(i64::try_from(n).unwrap() % 2)));
                    let mut told: Vec<Device> = told.collect();
                    told.iter_mut().for_each(|device| device.healthy = dice.below(6) != 0);
                    ledger.listed("a.b/c", told);
                }
                3 => {
                    if let Some(uid) = pods.keys().nth(dice.below(pods.len().max(1))).cloned() {
                        ledger.ends(&uid.as_str().into());
                        ledger.free(&uid);
                        assert!(!ledger.held().contains_key(uid.as_str()));
                    }
                }
                4 => {
                    let bytes = super::super::checkpoint::encode(&ledger, "boot");
                    let (mut next, sound) = super::super::checkpoint::decode(&bytes, "boot").unwrap();
                    assert!(sound);
                    assert_eq!(next.held(), ledger.held());
                    next.settle(|_| true);
                    ledger = next;
                }
                _ => {
                    let uid = format!("p{}", step % 12);
                    let wishes = pods.entry(uid.clone()).or_insert_with(|| {
                        let init = [container("i1", dice.below(3)), sidecar("i2", dice.below(2))];
                        pod(&uid, &init, &[container("a1", dice.below(3)), container("a2", dice.below(3))])
                    });
                    let wishes = wishes.clone();
                    let mut answers = Answers::default();
                    let before = ledger.held().clone();
                    let decision = loop {
                        match ledger.reserve(&wishes, &topology, &answers) {
                            Decision::Ask(question) => {
                                let nonsense = vec!["d3".to_owned(), "x".to_owned(), "d1".to_owned()];
                                assert!(answers.told.insert(question, nonsense).is_none(), "asked twice");
                            }
                            other => break other,
                        }
                    };
                    match decision {
                        Decision::Reserved { .. } => {
                            assert_eq!(ledger.reserve(&wishes, &topology, &answers), AGAIN);
                        }
                        _ => assert_eq!(*ledger.held(), before, "who gets nothing holds nothing"),
                    }
                }
            }
            check(&ledger, &pods);
        }
        for uid in pods.keys() {
            ledger.free(uid);
        }
        assert!(ledger.held().is_empty());
        ledger.registered("a.b/c", false);
        ledger.listed("a.b/c", plain(&["d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7"]));
        assert_eq!(reserve(&mut ledger, &one("last", 8)), ANEW, "nothing is lost");
    }
}

#[test]
fn too_few_devices_are_a_refusal_unless_some_are_about_to_be_free() {
    let mut ledger = ledger(plain(&["d0", "d1"]));
    assert_eq!(reserve(&mut ledger, &one("a", 1)), ANEW);
    let words = "UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for a.b/c. \
                 Requested: 2, Available: 1, which is unexpected";
    assert_eq!(refusal(reserve(&mut ledger, &one("b", 2))), words);
    ledger.ends(&"a".into());
    let waits = lack(reserve(&mut ledger, &one("b", 2)));
    assert!(matches!(waits, Lack::Busy { .. }), "{waits:?}");
    assert_eq!(refusal(Decision::Refused(waits.refusal())), words);
    ledger.free("a");
    assert_eq!(reserve(&mut ledger, &one("b", 2)), ANEW);
}

#[test]
fn before_all_pods_are_known_nobody_is_refused_for_the_sake_of_one_that_may_be_gone() {
    let mut held = ledger(plain(&["d0"]));
    reserve(&mut held, &one("old", 1));
    let mut next = Ledger::recovered([], held.held().clone());
    assert!(matches!(lack(reserve(&mut next, &one("new", 1))), Lack::Away { .. }));
    next.registered("a.b/c", false);
    assert!(matches!(lack(reserve(&mut next, &one("new", 1))), Lack::Silent { .. }));
    next.listed("a.b/c", plain(&["d0"]));
    assert!(matches!(lack(reserve(&mut next, &one("new", 1))), Lack::Busy { .. }));
    assert!(next.settle(|uid| uid.as_str() != "old"));
    assert_eq!(reserve(&mut next, &one("new", 1)), ANEW);
}

#[test]
fn a_pod_that_holds_its_devices_waits_until_they_work() {
    let mut ledger = ledger(plain(&["d0", "d1"]));
    reserve(&mut ledger, &one("a", 1));
    let mut told = plain(&["d0", "d1"]);
    told[0].healthy = false;
    assert_eq!(ledger.listed("a.b/c", told), BTreeSet::from(["a".into()]));
    let waits = lack(reserve(&mut ledger, &one("a", 1)));
    assert_eq!(
        waits.refusal().message,
        "Allocate failed due to previously allocated devices are no longer healthy; cannot allocate unhealthy devices \
         a.b/c, which is unexpected"
    );
    assert!(ledger.listed("a.b/c", plain(&["d0"])).contains("a"));
    assert_eq!(reserve(&mut ledger, &one("a", 1)), AGAIN);
    assert_eq!(
        refusal(reserve(&mut ledger, &one("a", 2))),
        "UnexpectedAdmissionError: Allocate failed due to pod \"a\" container \"app\" changed request for resource \
         \"a.b/c\" from 1 to 2, which is unexpected"
    );
}

#[test]
fn amounts_and_health_follow_the_plugin() {
    let mut ledger = ledger(plain(&["d0", "d1"]));
    reserve(&mut ledger, &one("a", 1));
    let health = |ledger: &Ledger| {
        let all = ledger.health("a").remove("app").unwrap();
        all[0].resources.as_ref().unwrap()[0].health.clone().unwrap()
    };
    let amounts = |ledger: &Ledger| ledger.amounts()["a.b/c"];
    assert_eq!((amounts(&ledger), health(&ledger).as_str()), ((2, 2), "Healthy"));
    assert!(ledger.gone("a.b/c").contains("a"));
    assert_eq!((amounts(&ledger), health(&ledger).as_str()), ((2, 0), "Unhealthy"));
    ledger.expired("a.b/c");
    assert_eq!((amounts(&ledger), health(&ledger).as_str()), ((0, 0), "Unknown"));
    ledger.registered("a.b/c", false);
    assert!(ledger.expired("a.b/c").is_empty());
    ledger.listed("a.b/c", plain(&["d0"]));
    assert_eq!((amounts(&ledger), health(&ledger).as_str()), ((1, 1), "Healthy"));
}

#[test]
fn init_containers_pass_devices_on_and_sidecars_keep_them() {
    let mut ledger = ledger(plain(&["d0", "d1", "d2"]));
    let wishes = pod("a", &[container("init", 2), sidecar("side", 1)], &[container("app", 2)]);
    assert_eq!(reserve(&mut ledger, &wishes), ANEW);
    assert_eq!(ids(&ledger, "a", "init"), ["d0", "d1"]);
    assert_eq!(ids(&ledger, "a", "side"), ["d0"]);
    assert_eq!(ids(&ledger, "a", "app"), ["d1", "d2"]);
}

#[test]
fn a_policy_decides_where_devices_come_from() {
    let four = || (0..4).map(|n| device(&format!("d{n}"), Some(n % 2))).collect::<Vec<_>>();
    let ask = |ledger: &mut Ledger, policy: &str, scope: &str, wishes: &Wishes| {
        ledger.reserve(wishes, &topology(policy, scope), &Answers::default())
    };
    let mut aligned = ledger(four());
    assert_eq!(ask(&mut aligned, "single-numa-node", "container", &one("a", 2)), ANEW);
    assert_eq!(ids(&aligned, "a", "app"), ["d0", "d2"]);
    let refused = refusal(ask(&mut aligned, "single-numa-node", "container", &one("b", 3)));
    assert_eq!(refused, "TopologyAffinityError: Resources cannot be allocated with Topology locality");
    let two = pod("b", &[], &[container("x", 1), container("y", 2)]);
    let mut whole = ledger(four());
    assert!(matches!(ask(&mut whole, "single-numa-node", "pod", &two), Decision::Refused(_)));
    assert_eq!(ask(&mut whole, "single-numa-node", "container", &two), ANEW);
    assert_eq!(
        (ids(&whole, "b", "x"), ids(&whole, "b", "y")),
        (vec!["d0".into()], vec!["d1".into(), "d3".into()])
    );
}

#[test]
fn a_resource_that_no_plugin_ever_had_is_somebody_elses() {
    let mut ledger = Ledger::default();
    assert_eq!(reserve(&mut ledger, &one("a", 1)), AGAIN);
    assert!(!ledger.knows("a.b/c") && ledger.held().is_empty());
}

#[test]
fn only_a_plugin_that_prefers_is_asked_and_only_while_there_is_a_choice() {
    let mut ledger = ledger(plain(&["d0", "d1", "d2"]));
    ledger.registered("a.b/c", true);
    let Decision::Ask(question) = reserve(&mut ledger, &one("a", 1)) else { panic!("it is asked") };
    assert_eq!((question.available.len(), question.must_include.len(), question.size), (3, 0, 1));
    let mut answers = Answers::default();
    answers.told.insert(question, vec!["d2".to_owned()]);
    assert_eq!(ledger.reserve(&one("a", 1), &none(), &answers), ANEW);
    assert_eq!(ids(&ledger, "a", "app"), ["d2"]);
    let enough = Answers { enough: true, ..Answers::default() };
    assert_eq!(ledger.reserve(&one("b", 1), &none(), &enough), ANEW);
    assert_eq!(ids(&ledger, "b", "app"), ["d0"]);
}
