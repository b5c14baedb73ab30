//! An API server for tests that keeps pods and nodes in memory: it binds, patches, deletes, and it can be out of sorts.
//!
//! What it tells its watchers waits in `news` until the test hands it on: a watch may be late.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use podwire_client::watcher::Event;
use podwire_client::{Body, Client};
use serde_json::{Value, json};

/// How writes are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    /// As they should be.
    Well,
    /// Not at all.
    Away,
    /// Somebody else was always faster.
    Conflict,
    /// As they should be, after a long time.
    Slow,
    /// They are done, and the answer is lost.
    Mute,
}

/// What watchers are to hear: of a pod or of a node.
#[derive(Debug, Clone)]
pub(super) enum News {
    Pod(Event<Value>),
    Node(Event<Value>),
}

#[derive(Debug)]
pub(super) struct Objects {
    pub(super) pods: BTreeMap<String, Value>,
    pub(super) nodes: BTreeMap<String, Value>,
    pub(super) news: VecDeque<News>,
    pub(super) mood: Mood,
    /// Which node each pod was bound to, by uid, in order; a second one is what must never be.
    pub(super) bound: Vec<(String, String)>,
    /// Whether deleted pods leave at once, or when their kubelet says so.
    pub(super) lingering: bool,
}

/// The server; clones are the same one.
#[derive(Clone)]
pub(super) struct Pretend(Arc<Mutex<Objects>>);

impl Pretend {
    /// One with nothing in it.
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Objects {
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            news: VecDeque::new(),
            mood: Mood::Well,
            bound: Vec::new(),
            lingering: false,
        })))
    }

    /// What it has.
    pub(super) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.0.lock().unwrap()
    }

    /// The way to it.
    pub(super) fn client(&self) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let this = this.clone();
            async move { this.answer(request).await }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, std::io::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mood = self.objects().mood;
        if mood == Mood::Slow {
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        let (code, answer) = match mood {
            Mood::Away => return Err(std::io::Error::other("nobody listens")),
            Mood::Conflict if head.method != "GET" => failure(StatusCode::CONFLICT),
            Mood::Well | Mood::Slow | Mood::Mute | Mood::Conflict => {
                self.objects().write(head.method.as_str(), head.uri.path(), &body)
            }
        };
        if mood == Mood::Mute {
            return Err(std::io::Error::other("the answer is lost"));
        }
        let body = http_body_util::Full::new(answer.to_string().into());
        let mut response = Response::new(Body::wrap(body));
        *response.status_mut() = code;
        Ok(response)
    }
}

fn failure(code: StatusCode) -> (StatusCode, Value) {
    let reason = if code == StatusCode::NOT_FOUND { "NotFound" } else { "Conflict" };
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no",
        "reason": reason, "code": code.as_u16()});
    (code, status)
}

fn answered(object: &Value) -> (StatusCode, Value) {
    (StatusCode::OK, object.clone())
}

impl Objects {
    fn write(&mut self, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
        let parts: Vec<&str> = path.trim_start_matches("/api/v1/namespaces/").split('/').collect();
        match (method, parts.as_slice()) {
            (_, [_, "events", ..]) => answered(&json!({"kind": "Event", "metadata": {}})),
            ("POST", [_, "pods", name, "binding"]) => self.bind(name, body),
            ("GET", [_, "pods", name]) => match self.pods.get(*name) {
                Some(pod) => answered(pod),
                None => failure(StatusCode::NOT_FOUND),
            },
            ("PATCH", [_, "pods", name, "status"]) => self.patch(name, body),
            ("DELETE", [_, "pods", name]) => self.delete(name),
            _ => panic!("{method} {path}: a scheduler asks no such thing"),
        }
    }

    fn bind(&mut self, name: &str, body: &Value) -> (StatusCode, Value) {
        let Some(pod) = self.pods.get_mut(name) else { return failure(StatusCode::NOT_FOUND) };
        let is = pod["metadata"]["uid"] == body["metadata"]["uid"];
        if !is || !pod["spec"]["nodeName"].is_null() || !pod["metadata"]["deletionTimestamp"].is_null() {
            return failure(StatusCode::CONFLICT);
        }
        pod["spec"]["nodeName"] = body["target"]["name"].clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.bound.push((text(&pod["metadata"]["uid"]), text(&body["target"]["name"])));
        self.news.push_back(News::Pod(Event::Apply(pod.clone())));
        answered(&json!({"kind": "Status", "metadata": {}, "status": "Success"}))
    }

    fn patch(&mut self, name: &str, body: &Value) -> (StatusCode, Value) {
        let Some(pod) = self.pods.get_mut(name) else { return failure(StatusCode::NOT_FOUND) };
        if pod["metadata"]["uid"] != body["metadata"]["uid"] {
            return failure(StatusCode::CONFLICT);
        }
        for condition in body["status"]["conditions"].as_array().into_iter().flatten() {
            let known = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let mut all: Vec<Value> =
                known.into_iter().filter(|one| one["type"] != condition["type"]).collect();
            all.push(condition.clone());
            pod["status"]["conditions"] = all.into();
        }
        if let Some(node) = body["status"].get("nominatedNodeName") {
            pod["status"]["nominatedNodeName"] = node.clone();
        }
        self.news.push_back(News::Pod(Event::Apply(pod.clone())));
        answered(pod)
    }

    /// Deletes a pod, or begins to if it runs and kubelets take their time.
    pub(super) fn delete(&mut self, name: &str) -> (StatusCode, Value) {
        let Some(pod) = self.pods.get_mut(name) else { return failure(StatusCode::NOT_FOUND) };
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let pod = pod.clone();
        if self.lingering && !pod["spec"]["nodeName"].is_null() {
            self.news.push_back(News::Pod(Event::Apply(pod.clone())));
        } else {
            self.pods.remove(name);
            self.news.push_back(News::Pod(Event::Delete(pod.clone())));
        }
        answered(&pod)
    }

    /// The last words of the kubelets about pods that are being deleted.
    pub(super) fn reap(&mut self) {
        let leaving = self.pods.iter().filter(|(_, pod)| !pod["metadata"]["deletionTimestamp"].is_null());
        for name in leaving.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            if let Some(pod) = self.pods.remove(&name) {
                self.news.push_back(News::Pod(Event::Delete(pod)));
            }
        }
    }

    /// Makes or changes a pod.
    pub(super) fn put_pod(&mut self, name: &str, pod: Value) {
        self.news.push_back(News::Pod(Event::Apply(pod.clone())));
        self.pods.insert(name.to_owned(), pod);
    }

    /// Makes or changes a node.
    pub(super) fn put_node(&mut self, name: &str, node: Value) {
        self.news.push_back(News::Node(Event::Apply(node.clone())));
        self.nodes.insert(name.to_owned(), node);
    }

    /// Deletes a node; its pods stay.
    pub(super) fn remove_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            self.news.push_back(News::Node(Event::Delete(node)));
        }
    }
}
