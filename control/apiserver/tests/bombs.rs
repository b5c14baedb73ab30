//! Requests that are small to send and large to serve: refused with the reason, and nobody else notices.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use serde_json::{Value, json};
use server::{Answer, Server, send, start};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// What a refused request may have taken at its worst, in kilobytes, with everything else the test does.
const MOST_MEMORY: u64 = 700 << 10;

/// The most memory this process ever had, in kilobytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn as_yaml(server: &Server, path: &str, text: String) -> Answer {
    send(&server.admin, "POST", path, &[("content-type", "application/yaml")], text).await
}

/// Aliases of aliases: `width` to the power of `levels` values.
fn laughs(width: usize, levels: usize) -> String {
    let list = |of: &str| format!("[{}]", vec![of; width].join(","));
    let mut text = format!("a0: &a0 {}\n", list("lol"));
    for level in 1..levels {
        text += &format!("a{level}: &a{level} {}\n", list(&format!("*a{}", level - 1)));
    }
    text
}

#[tokio::test]
async fn aliases_in_yaml_are_counted() {
    let server = start().await;
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let wide = format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(100_000), "*a,".repeat(100_000));
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a,".repeat(100_000));
    for (text, why) in [
        (laughs(9, 12), "yaml: document contains excessive aliasing"),
        (wide, "yaml: document contains excessive aliasing"),
        (long, "yaml: the object takes too much memory"),
    ] {
        for path in [review, MAPS] {
            let answer = as_yaml(&server, path, text.clone()).await;
            assert_eq!((answer.code, answer.body["reason"].as_str()), (400, Some("BadRequest")));
            assert!(answer.body["message"].as_str().unwrap().contains(why), "{}", answer.text);
        }
        let path = format!("{MAPS}/x?fieldManager=t");
        let headers = [("content-type", "application/apply-patch+yaml")];
        let answer = send(&server.admin, "PATCH", &path, &headers, text).await;
        assert_eq!(answer.code, 400, "{}", answer.text);
    }
    assert!(peak() < MOST_MEMORY, "{} kB", peak());
    server.stop().await;
}

#[tokio::test]
async fn bodies_that_nest_too_deeply_are_refused() {
    let server = start().await;
    for depth in [101, 100_000, 1_000_000] {
        let lists = format!("{{\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        let answer =
            send(&server.admin, "POST", MAPS, &[("content-type", "application/json")], lists.clone()).await;
        assert_eq!(answer.code, 400);
        let message = answer.body["message"].as_str().unwrap();
        assert!(message.contains("json parse error: invalid character '[' exceeded max depth"), "{message}");
        for media in ["application/yaml", "application/json"] {
            let answer = send(&server.admin, "POST", MAPS, &[("content-type", media)], lists.clone()).await;
            assert!(answer.text.contains("exceeded max depth"), "{media}: {}", answer.text);
        }
        for media in [
            "application/merge-patch+json",
            "application/json-patch+json",
            "application/strategic-merge-patch+json",
            "application/apply-patch+yaml",
        ] {
            let path = format!("{MAPS}/x?fieldManager=t");
            let answer = send(&server.admin, "PATCH", &path, &[("content-type", media)], lists.clone()).await;
            assert_eq!(answer.code, 400, "{media}: {}", answer.text);
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_text_that_takes_hundreds_of_times_its_size_is_refused() {
    let server = start().await;
    let many = |piece: &str| vec![piece; 1_000_000 / piece.len() * 3].join(",");
    for body in [
        format!("{{\"spec\":{{\"containers\":[{}]}}}}", many("{}")),
        format!("{{\"x\":[{}]}}", many("{\"\":0}")),
    ] {
        let path = "/api/v1/namespaces/default/pods";
        let answer = send(&server.admin, "POST", path, &[("content-type", "application/json")], body).await;
        assert_eq!((answer.code, answer.body["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
    }
    assert!(peak() < MOST_MEMORY, "{} kB", peak());
    server.stop().await;
}

async fn json_patch(server: &Server, operations: Vec<Value>) -> Answer {
    server.patch(&format!("{MAPS}/a"), "application/json-patch+json", &operations.into()).await
}

#[tokio::test]
async fn json_patches_make_nothing_larger_or_deeper_than_a_body_may_be() {
    let server = start().await;
    let made = server.post(MAPS, &json!({"metadata": {"name": "a"}, "data": {"k": "v".repeat(1000)}})).await;
    assert_eq!(made.code, 201);
    let rejected = "the server rejected our request due to an error in our request";

    let doubled = (0..40).map(|i| json!({"op": "copy", "from": "/data", "path": format!("/data/{i}")}));
    let answer = json_patch(&server, doubled.collect()).await;
    assert_eq!((answer.code, answer.body["message"].as_str()), (422, Some(rejected)), "{}", answer.text);

    let deeper = (0..9000).map(|i| json!({"op": "add", "path": "/x".repeat(i + 1), "value": {}}));
    let answer = json_patch(&server, deeper.take(500).collect()).await;
    assert_eq!((answer.code, answer.body["message"].as_str()), (422, Some(rejected)), "{}", answer.text);

    let nested = (0..90).fold(json!({}), |inner, _| json!({"a": inner}));
    let tower = "/a".repeat(90);
    let mut moves = vec![json!({"op": "add", "path": "/x", "value": nested})];
    for _ in 0..1000 {
        moves.push(json!({"op": "add", "path": "/y", "value": nested}));
        moves.push(json!({"op": "move", "from": "/x", "path": format!("/y{tower}/a")}));
        moves.push(json!({"op": "move", "from": "/y", "path": "/x"}));
    }
    let answer = json_patch(&server, moves).await;
    assert_eq!((answer.code, answer.body["message"].as_str()), (422, Some(rejected)), "{}", answer.text);

    let many = vec![json!({"op": "test", "path": "/kind", "value": "ConfigMap"}); 10_001];
    let answer = json_patch(&server, many).await;
    assert_eq!((answer.code, answer.body["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
    let words =
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!(answer.body["message"], words);
    assert_eq!(server.get(&format!("{MAPS}/a")).await.body, made.body);
    assert!(peak() < MOST_MEMORY, "{} kB", peak());
    server.stop().await;
}

#[tokio::test]
async fn what_nests_as_deep_as_it_may_can_be_read_back_by_every_reader() {
    let server = start().await;
    // The deepest that anybody can store: what is written about the owners of fields.
    let fields = (0..95).fold(json!({}), |inner, _| json!({"f:a": inner}));
    let owners = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                         "time": "2026-01-01T00:00:00Z", "fieldsV1": fields}]);
    let object = json!({"metadata": {"name": "deep", "managedFields": owners}, "data": {"k": "v"}});
    let made = server.post(MAPS, &object).await;
    assert_eq!(made.code, 201, "{}", made.text);
    assert_eq!(server.get(&format!("{MAPS}/deep")).await.code, 200);
    assert_eq!(server.get(MAPS).await.body["items"].as_array().unwrap().len(), 1);
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let listed = send(&server.admin, "GET", &format!("{MAPS}?includeObject=Object"), &table, "").await;
    assert_eq!(listed.body["rows"].as_array().unwrap().len(), 1);
    let mut watch = server::Watch::open(&server.admin, &format!("{MAPS}?watch=true")).await;
    assert_eq!(watch.brief().await.1, "deep");
    server.stop().await;
}

#[tokio::test]
async fn what_etcd_would_not_take_is_not_stored() {
    let server = start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, variables: usize| {
        let env: Vec<Value> =
            (0..variables).map(|n| json!({"name": format!("N{n}"), "value": "x".repeat(80)})).collect();
        json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "a", "env": env}]}})
    };
    let refused = server.post(pods, &pod("huge", 12_000)).await;
    let told = (refused.code, refused.body["reason"].as_str(), refused.body["message"].as_str());
    assert_eq!(told, (500, None, Some("etcdserver: request is too large")));
    assert_eq!(server.get(&format!("{pods}/huge")).await.code, 404);
    let made = server.post(pods, &pod("large", 10_000)).await;
    assert_eq!(made.code, 201);
    let grown = json!({"metadata": {"annotations": {"a": "x".repeat(200_000)}}});
    let headers = [("content-type", "application/merge-patch+json")];
    let refused = send(&server.admin, "PATCH", &format!("{pods}/large"), &headers, grown.to_string()).await;
    assert_eq!(
        (refused.code, refused.body["message"].as_str()),
        (500, Some("etcdserver: request is too large"))
    );
    assert_eq!(server.get(&format!("{pods}/large")).await.body, made.body);

    // Twice as long in JSON as in protobuf: what counts is the latter.
    let quotes = json!({"metadata": {"name": "quotes"}, "data": {"k": "\"".repeat(1_000_000)}});
    assert_eq!(server.post(MAPS, &quotes).await.code, 201);
    server.stop().await;
}

#[tokio::test]
async fn complaints_are_upstreams_in_order_and_number() {
    let server = start().await;
    let post = async |query: &str, body: String| {
        let path = format!("{MAPS}?{query}");
        send(&server.admin, "POST", &path, &[("content-type", "application/json")], body).await
    };
    let both = r#"{"zoo":1,"metadata":{"name":"a"},"data":{"k":"1","k":"2"},"app":1}"#;
    let answer = post("fieldValidation=Strict", both.to_owned()).await;
    assert_eq!(
        answer.body["message"],
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
         unknown field \"zoo\", duplicate field \"data.k\", unknown field \"app\""
    );
    // Each complaint was compared with all before it, and each became a header.
    let keys: String = (0..20_000).map(|i| format!("\"k{i}\":\"\",\"k{i}\":\"\",")).collect();
    let many = format!("{{\"metadata\":{{\"name\":\"a\"}},\"data\":{{{keys}\"z\":\"\"}}}}");
    let answer = post("fieldValidation=Strict", many.clone()).await;
    assert_eq!(answer.body["message"].as_str().unwrap().matches("duplicate field").count(), 100);
    let answer = post("dryRun=All", many).await;
    assert_eq!(answer.code, 201, "{}", answer.text);
    let warnings = answer.headers.get_all("warning").iter().count();
    assert!((50..=100).contains(&warnings), "{warnings}");
    let long = format!("{{\"metadata\":{{\"name\":\"a\"}},\"{}\":1,\"x\":1}}", "y".repeat(9000));
    let answer = post("dryRun=All", long).await;
    let warnings: Vec<usize> = answer.headers.get_all("warning").iter().map(|value| value.len()).collect();
    assert_eq!(warnings, [265, 27], "an excess of warnings is cut");
    server.stop().await;
}
