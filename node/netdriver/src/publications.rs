//! When slices were published: drawn on the path of each pod whose claim has a device of theirs, as no pod causes a slice.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use podwire_trace::{Arrow, Outcome, Participant, Pod, Side, What, is_heard};
use serde_json::Value;
use tokio::time::Instant;

/// One slice as it was written last.
#[derive(Debug)]
struct Published {
    took: Duration,
    at: Instant,
    devices: Vec<String>,
}

/// The last write of each slice, by its name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Publications(Arc<Mutex<BTreeMap<String, Published>>>);

impl Publications {
    fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Published>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The slice was written just now.
    pub(crate) fn written(&self, name: &str, slice: &Value, begun: Instant) {
        let devices = slice.pointer("/spec/devices").and_then(Value::as_array).into_iter().flatten();
        let devices = devices.filter_map(|device| device["name"].as_str().map(str::to_owned)).collect();
        let published = Published { took: begun.elapsed(), at: Instant::now(), devices };
        self.with(|all| all.insert(name.to_owned(), published));
    }

    /// The slice was deleted.
    pub(crate) fn deleted(&self, name: &str) {
        self.with(|all| all.remove(name));
    }

    /// Draws, on the path of a pod, how each slice with one of these devices was published.
    pub(crate) fn draw(&self, pod: Pod<'_>, driver: &str, devices: &[&str]) {
        if !is_heard() {
            return;
        }
        self.with(|all| {
            for (name, Published { took, at, devices: offered }) in all.iter() {
                if !offered.iter().any(|one| devices.contains(&one.as_str())) {
                    continue;
                }
                let path = format!("/apis/resource.k8s.io/v1/resourceslices/{name}");
                let what = What::Http { method: "PATCH", path: &path };
                let arrow = Arrow::new(pod, Participant::Driver(driver), Participant::ApiServer, what);
                let reply = match offered.len() {
                    1 => "1 device published".to_owned(),
                    many => format!("{many} devices published"),
                };
                let arrow = Arrow { side: Side::Earlier, ..arrow };
                arrow.draw_from(*took, at.elapsed(), &Outcome::reply(reply));
            }
        });
    }
}
