//! A watcher before a server that follows a script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::{Body, Client};

type Script = Arc<Mutex<VecDeque<(u16, String)>>>;
type Asked = Arc<Mutex<Vec<String>>>;

/// A watch that tells nothing and does not end.
const SILENCE: &str = "silence";

/// A watcher of config maps, and what it has asked for.
fn before(script: &[(u16, &str)]) -> (BoxStream<'static, Result<Event<ConfigMap>>>, Asked) {
    let script: Script = Arc::new(Mutex::new(script.iter().map(|(c, t)| (*c, (*t).to_owned())).collect()));
    let asked = Asked::default();
    let log = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        log.lock().unwrap().push(request.uri().to_string());
        let next = script.lock().unwrap().pop_front();
        async move {
            let Some((code, text)) = next else { return std::future::pending().await };
            let silence = StreamBody::new(stream::pending::<std::io::Result<Frame<Bytes>>>());
            let body = if text == SILENCE { Body::wrap(silence) } else { Body::from(text) };
            let mut answer = Response::new(body);
            *answer.status_mut() = StatusCode::from_u16(code).unwrap();
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let api = Api::all(Client::new(service, "default"));
    (watcher(api, Config::default().fields("a=b")), asked)
}

fn map(name: &str, version: u32) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#)
}

fn list(version: u32, next: &str, maps: &[String]) -> String {
    let items = maps.join(",");
    format!(r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":[{items}]}}"#)
}

fn line(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// The next `count` things it tells, in short.
async fn told(events: &mut BoxStream<'static, Result<Event<ConfigMap>>>, count: usize) -> Vec<String> {
    let mut told = Vec::new();
    for _ in 0..count {
        let name = |map: ConfigMap| map.metadata.name.unwrap();
        told.push(match events.next().await.unwrap() {
            Ok(Event::Init) => "init".to_owned(),
            Ok(Event::InitApply(map)) => format!("+{}", name(map)),
            Ok(Event::InitDone) => "done".to_owned(),
            Ok(Event::Apply(map)) => format!("~{}", name(map)),
            Ok(Event::Delete(map)) => format!("-{}", name(map)),
            Err(error) => error.to_string(),
        });
    }
    told
}

#[tokio::test(start_paused = true)]
async fn it_lists_page_by_page_then_watches_and_resumes_where_it_was() {
    let mark = r#"{"kind":"ConfigMap","metadata":{"resourceVersion":"9"}}"#;
    let first = line("MODIFIED", &map("a", 7)) + &line("DELETED", &map("b", 8)) + &line("BOOKMARK", mark);
    let (mut events, asked) = before(&[
        (200, &list(5, "more", &[map("a", 1)])),
        (200, &list(5, "", &[map("b", 2)])),
        (200, &first),
        (200, &line("ADDED", &map("c", 10))),
    ]);
    assert_eq!(told(&mut events, 7).await, ["init", "+a", "+b", "done", "~a", "-b", "~c"]);
    let asked = asked.lock().unwrap();
    assert!(asked[0].contains("fieldSelector=a%3Db") && asked[0].contains("limit=500"), "{asked:?}");
    assert!(asked[1].contains("continue=more"), "{asked:?}");
    assert!(asked[2].contains("resourceVersion=5") && asked[3].contains("resourceVersion=9"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_too_old_is_listed_anew() {
    let gone = r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old"}"#;
    let (mut events, _) =
        before(&[(200, &list(5, "", &[])), (200, &line("ERROR", gone)), (200, &list(9, "", &[map("c", 8)]))]);
    let wanted = ["init", "done", "watch ended by the server: too old (410)", "init", "+c", "done"];
    assert_eq!(told(&mut events, 6).await, wanted);
}

#[tokio::test(start_paused = true)]
async fn it_waits_after_a_failure() {
    let refused = (403, r#"{"code":403,"message":"no"}"#);
    let (mut events, _) = before(&[refused, refused, (200, &list(5, "", &[]))]);
    let begun = Instant::now();
    let wanted =
        ["init", "objects not listed: no (403)", "init", "objects not listed: no (403)", "init", "done"];
    assert_eq!(told(&mut events, 6).await, wanted);
    // What is told in between is no failure, so each wait is a first one.
    let (least, most) = (FIRST_WAIT * 2, FIRST_WAIT * 4);
    assert!((least..=most).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!((wait(0, 0), wait(2, 0)), (FIRST_WAIT, FIRST_WAIT * 4));
    assert_eq!(wait(40, 0), LONGEST_WAIT);
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_given_up() {
    let (mut events, asked) = before(&[(200, &list(5, "", &[])), (200, SILENCE)]);
    assert_eq!(told(&mut events, 2).await, ["init", "done"]);
    assert!(tokio::time::timeout(LONGEST_SILENCE - FIRST_WAIT, events.next()).await.is_err());
    assert_eq!(asked.lock().unwrap().len(), 2);
    assert!(tokio::time::timeout(FIRST_WAIT * 2, events.next()).await.is_err());
    assert_eq!(asked.lock().unwrap().len(), 3, "another watch");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_every_watch_at_once_is_not_asked_without_end() {
    let mut script = vec![(200, list(5, "", &[]))];
    script.extend((0..40).map(|_| (200, String::new())));
    let script: Vec<(u16, &str)> = script.iter().map(|(code, text)| (*code, text.as_str())).collect();
    let (mut events, asked) = before(&script);
    assert_eq!(told(&mut events, 2).await, ["init", "done"]);
    let begun = Instant::now();
    // Whoever takes what is there and no more is not held up either.
    assert!(futures::FutureExt::now_or_never(events.next()).is_none());
    assert_eq!(asked.lock().unwrap().len(), 2);
    assert!(tokio::time::timeout(Duration::from_secs(60), events.next()).await.is_err());
    let watches = asked.lock().unwrap().len() - 1;
    assert!((4..12).contains(&watches), "{watches} watches in {:?}", begun.elapsed());
}
