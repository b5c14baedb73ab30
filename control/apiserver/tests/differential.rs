//! The same requests to the real kube-apiserver and to this one; the answers have to agree.
//!
//! `differential/*.jsonl` have one request a line: method `m`, path `p`, body `b` (or `raw` text),
//! headers `h`. `save` remembers uid and version of the answer for later lines (`$a.uid`); `$long` is more than can be
//! stored. A line with
//! `allow` says why its body may differ, with `allow_code` also its code; `quiet` lines only prepare. `until` is a code
//! that comes after a while, where upstream does later what is done here at once.
#![cfg(feature = "interop")]
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/backend.rs"]
mod backend;
#[path = "support/inside.rs"]
mod inside;
#[path = "support/server.rs"]
mod server;
#[path = "support/webhook.rs"]
mod webhook;

#[path = "differential/compare.rs"]
mod compare;
#[path = "differential/conversion.rs"]
mod conversion;
#[path = "differential/races.rs"]
mod races;
#[path = "differential/upstream.rs"]
mod upstream;

use std::collections::HashMap;

use http_body_util::BodyExt;
use serde_json::Value;

/// One of the two servers, with what its answers were remembered for.
struct Side {
    client: kube::Client,
    saved: HashMap<String, String>,
}

struct Answer {
    code: u16,
    body: Value,
    warning: Option<String>,
    media: Option<String>,
    location: Option<String>,
}

impl Side {
    fn new(client: kube::Client) -> Self {
        // More than etcd takes, less than a request may have.
        Self { client, saved: HashMap::from([("long".to_owned(), "x".repeat(1_600_000))]) }
    }

    fn fill_in(&self, text: &str) -> String {
        self.saved.iter().fold(text.to_owned(), |text, (key, value)| text.replace(&format!("${key}"), value))
    }

    async fn ask(&mut self, line: &Value) -> Answer {
        let path = self.fill_in(line["p"].as_str().unwrap());
        let mut request = http::Request::builder().method(line["m"].as_str().unwrap()).uri(&path);
        request = request.header("user-agent", "difftest/1");
        let body = match (&line["b"], line["raw"].as_str()) {
            (_, Some(raw)) => Some(self.fill_in(raw)),
            (Value::Null, None) => None,
            (body, None) => Some(self.fill_in(&body.to_string())),
        };
        let headers = line["h"].as_object().cloned().unwrap_or_default();
        if body.is_some() && !headers.contains_key("Content-Type") {
            request = request.header("content-type", "application/json");
        }
        for (key, value) in &headers {
            request = request.header(key, value.as_str().unwrap());
        }
        let request = request.body(kube::client::Body::from(body.unwrap_or_default().into_bytes())).unwrap();
        let Ok(response) = self.client.send(request).await else {
            let body = "the connection was broken off".into();
            return Answer { code: 0, body, warning: None, media: None, location: None };
        };
        let header =
            |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        // Only ours says what it stores and does not enforce.
        let warning = header("warning").filter(|text| !text.contains(": stored, but this version does not"));
        let (code, media, location) =
            (response.status().as_u16(), header("content-type"), header("location"));
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes).into_owned()));
        if let Some(name) = line["save"].as_str() {
            for (key, field) in [("rv", "resourceVersion"), ("uid", "uid")] {
                let value = body["metadata"][field].as_str().unwrap_or_default();
                self.saved.insert(format!("{name}.{key}"), value.to_owned());
            }
        }
        Answer { code, body, warning, media, location }
    }
}

impl Side {
    /// Asks again until the answer has the code that the line waits for, or has had ten seconds for it.
    async fn ask_until(&mut self, line: &Value) -> Answer {
        let begun = std::time::Instant::now();
        loop {
            let answer = self.ask(line).await;
            let late = begun.elapsed() > std::time::Duration::from_secs(10);
            if line["until"].is_null() || line["until"] == answer.code || late {
                return answer;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

/// What came of the comparison.
struct Compared {
    requests: usize,
    allowed: usize,
    report: Vec<String>,
}

impl Compared {
    fn check(&self, least: usize) {
        let Self { requests, allowed, report } = self;
        assert!(*requests >= least, "the corpus has only {requests} requests");
        assert!(
            allowed * 20 <= *requests,
            "{allowed} of {requests} answers may differ, more than one in twenty"
        );
        let differ = report.len();
        assert!(differ == 0, "{differ} of {requests} answers differ ({allowed} may):\n{}", report.join("\n"));
    }
}

/// Asks both sides every line of the corpora.
async fn compare(left: &mut Side, right: &mut Side, corpora: &[&str]) -> Compared {
    let (mut compared, mut allowed, mut report) = (0, 0, Vec::new());
    for (number, line) in corpora.iter().flat_map(|corpus| corpus.lines()).enumerate() {
        let line: Value = serde_json::from_str(line).unwrap();
        let both = async { (left.ask_until(&line).await, right.ask_until(&line).await) };
        let answered = tokio::time::timeout(std::time::Duration::from_secs(30), both).await;
        let (a, b) = answered.unwrap_or_else(|_| panic!("no answer to line {}: {line}", number + 1));
        if line["quiet"] == true {
            continue;
        }
        compared += 1;
        let mut differences = Vec::new();
        if !line["until"].is_null() && (line["until"] != a.code || line["until"] != b.code) {
            let came = format!("{} {}", a.code, a.body["message"]);
            differences.push(format!("waited for {}, and {came} came", line["until"]));
        }
        if a.code != b.code && line["allow_code"] != true {
            differences.push(format!("code: ours {}, upstream {}", a.code, b.code));
        }
        let mut others = compare::differences(&a.body, &b.body);
        let headers =
            |answer: &Answer| format!("{:?} {:?} {:?}", answer.warning, answer.media, answer.location);
        if headers(&a) != headers(&b) {
            others.push(format!("headers: ours {}, upstream {}", headers(&a), headers(&b)));
        }
        match line["allow"].as_str() {
            None => differences.extend(others),
            // An allowance that nothing needs hides the next difference.
            Some(_) if others.is_empty() && a.code == b.code => {
                differences.push("nothing differs any more: take the allowance away".to_owned());
            }
            Some(_) => allowed += 1,
        }
        if !differences.is_empty() {
            let head = format!("line {}: {} {}", number + 1, line["m"], line["p"]);
            report.push(format!("{head}\n    {}", differences.join("\n    ")));
        }
    }
    Compared { requests: compared, allowed, report }
}

#[tokio::test]
async fn answers_agree_with_upstream() {
    let ours = server::start().await;
    let upstream = upstream::start(&ours.pki, &[]).await;
    let mut left = Side::new(ours.remote("kubernetes-admin", &["system:masters"]).await);
    let mut right = Side::new(upstream.client(&ours.pki).await);
    let corpora = [
        include_str!("differential/corpus.jsonl"),
        include_str!("differential/admission.jsonl"),
        include_str!("differential/policy.jsonl"),
        include_str!("differential/devices.jsonl"),
    ];
    let compared = compare(&mut left, &mut right, &corpora).await;
    let races = [races::run(&left.client).await, races::run(&right.client).await];
    upstream.stop().await;
    ours.stop().await;
    assert_eq!(races[0], races[1], "races end as they do upstream");
    compared.check(300);
}

#[tokio::test]
async fn proxies_agree_with_upstream() {
    if !inside::inside("proxies_agree_with_upstream") {
        return;
    }
    let ours = server::start().await;
    // There is no route from which upstream could learn an address of its own.
    let advertised = format!("--advertise-address={}", inside::ADDRESS);
    let upstream = upstream::start(&ours.pki, &[&advertised]).await;
    let plain = backend::plain(inside::ADDRESS).await;
    let secure = backend::tls(inside::ADDRESS, &ours.pki, inside::ADDRESS, false).await;
    let mut left = Side::new(ours.remote("kubernetes-admin", &["system:masters"]).await);
    let mut right = Side::new(upstream.client(&ours.pki).await);
    for side in [&mut left, &mut right] {
        side.saved.insert("plain".to_owned(), plain.port.to_string());
        side.saved.insert("secure".to_owned(), secure.port.to_string());
    }
    let compared = compare(&mut left, &mut right, &[include_str!("differential/proxies.jsonl")]).await;
    upstream.stop().await;
    ours.stop().await;
    compared.check(40);
}

#[tokio::test]
async fn conversions_agree_with_upstream() {
    let ours = server::start().await;
    let upstream = upstream::start(&ours.pki, &[]).await;
    let mut left = Side::new(ours.remote("kubernetes-admin", &["system:masters"]).await);
    let mut right = Side::new(upstream.client(&ours.pki).await);
    conversion::walk(&mut left, &mut right, &ours.pki).await;
    upstream.stop().await;
    ours.stop().await;
}
