//! A scheduler that is killed at any of its writes, or hears nothing of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use podwire_client::{Body, BoxError, Client};
use serde_json::json;
use tokio::sync::Notify;

use crate::world::{World, claim, device, exactly, node_of, pod, slice};
use crate::{is_bound, results, users};

/// What becomes of a write.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Normal,
    /// It is not sent, and there is no answer.
    HangsBefore,
    /// It is carried out, and there is no answer.
    HangsAfter,
    /// It is carried out, and the answer is lost.
    Lost,
}

/// A client whose writes of claims and bindings have the fates that their numbers say.
fn fateful(client: Client, fate: impl Fn(usize) -> Fate + Send + Sync + 'static, hit: Arc<Notify>) -> Client {
    let (count, fate) = (Arc::new(AtomicUsize::new(0)), Arc::new(fate));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, hit, path) = (client.clone(), hit.clone(), request.uri().path().to_owned());
        let matters = path.contains("/resourceclaims/") || path.ends_with("/binding");
        let fate = match matters && request.method() != http::Method::GET {
            true => fate(count.fetch_add(1, Ordering::SeqCst)),
            false => Fate::Normal,
        };
        async move {
            if fate != Fate::Normal {
                hit.notify_one();
            }
            if fate == Fate::HangsBefore {
                return std::future::pending().await;
            }
            let answer = client.send(request).await.map_err(BoxError::from);
            match fate {
                Fate::HangsAfter => std::future::pending().await,
                Fate::Lost => Err("the answer was lost".into()),
                _ => answer,
            }
        }
    });
    Client::new(service, "default")
}

async fn world() -> World {
    let mut world = World::start().await;
    world.stop_scheduler().await;
    world.nodes(&["n1", "n2"]).await;
    world.class("gpu", json!({})).await;
    for node in ["n1", "n2"] {
        world.slice(slice(node, &[device("d0", "x"), device("d1", "x")])).await;
    }
    for at in 0..3 {
        world.claim(claim(&format!("c{at}"), exactly("gpu", 1))).await;
        world.create(pod(&format!("p{at}"), &[&format!("c{at}")])).await;
    }
    world
}

/// All four devices are somebody's, each one pod's, and that pod is where its device is.
async fn all_is_well(world: &World) {
    world.claim(claim("c3", exactly("gpu", 1))).await;
    world.create(pod("p3", &["c3"])).await;
    let mut given = BTreeSet::new();
    for at in 0..4 {
        let bound = world.until(&format!("p{at}"), is_bound).await;
        let claim = world.get_claim(&format!("c{at}")).await;
        let device = results(&claim).join(" ");
        assert_eq!(users(&claim), [format!("p{at}")], "who is bound may use its claim");
        assert!(device.starts_with(node_of(&bound).unwrap()), "p{at} is on {:?}, {device}", node_of(&bound));
        given.insert(device);
    }
    assert_eq!(given.len(), 4, "{given:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_that_is_killed_at_any_write_gives_no_device_twice_and_loses_none() {
    // Three pods: a finalizer, a status and a binding each.
    for (number, fate) in (0..9).flat_map(|at| [(at, Fate::HangsBefore), (at, Fate::HangsAfter)]) {
        let mut world = world().await;
        let hit = Arc::new(Notify::new());
        let client = fateful(
            world.as_scheduler.clone(),
            move |at| if at == number { fate } else { Fate::Normal },
            hit.clone(),
        );
        world.start_scheduler_with(client).await;
        hit.notified().await;
        world.stop_scheduler().await;
        world.start_scheduler().await;
        all_is_well(&world).await;
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_a_dead_schedulers_last_write_gave_once_more_stays_with_the_pod_that_runs() {
    let world = World::start().await;
    world.nodes(&["n1"]).await;
    world.class("gpu", json!({})).await;
    world.slice(slice("n1", &[device("d0", "x"), device("d1", "x")])).await;
    world.claim(claim("c0", exactly("gpu", 1))).await;
    world.create(pod("p0", &["c0"])).await;
    world.until("p0", is_bound).await;
    world.claim(claim("c1", exactly("gpu", 1))).await;
    let given = world.get_claim("c0").await["status"]["allocation"].clone();
    world.patch_claim_status("c1", json!({"status": {"allocation": given}})).await;
    world.create(pod("p1", &["c1"])).await;
    world.until("p1", is_bound).await;
    let (first, second) = (world.get_claim("c0").await, world.get_claim("c1").await);
    assert_eq!((results(&first), users(&first)), (vec!["n1/d0".to_owned()], vec!["p0".to_owned()]));
    assert_eq!((results(&second), users(&second)), (vec!["n1/d1".to_owned()], vec!["p1".to_owned()]));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_deleted_while_it_is_written_is_missed_and_the_pod_is_bound_when_there_is_another() {
    let mut world = world().await;
    let (inner, claims, first) =
        (world.as_scheduler.clone(), world.claims(), Arc::new(std::sync::atomic::AtomicBool::new(true)));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (inner, claims, first) = (inner.clone(), claims.clone(), first.clone());
        async move {
            let writes = request.method() == http::Method::PATCH
                && request.uri().path().ends_with("/resourceclaims/c0");
            if writes && first.swap(false, Ordering::SeqCst) {
                claims.delete("c0", &kube::api::DeleteParams::default()).await.unwrap();
            }
            inner.send(request).await.map_err(BoxError::from)
        }
    });
    world.start_scheduler_with(Client::new(service, "default")).await;
    let missed = "claim default/c0 got deleted in the meantime";
    world.until("p0", |pod| crate::world::refused(pod).is_some_and(|text| text.contains(missed))).await;
    world.claim(claim("c0", exactly("gpu", 1))).await;
    all_is_well(&world).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_that_hears_nothing_of_its_writes_gives_no_device_twice() {
    for lost in [1, 2, 3] {
        let mut world = world().await;
        let fate = move |at: usize| if (at / lost).is_multiple_of(2) { Fate::Lost } else { Fate::Normal };
        let client = fateful(world.as_scheduler.clone(), fate, Arc::default());
        world.start_scheduler_with(client).await;
        all_is_well(&world).await;
        world.stop().await;
    }
}
