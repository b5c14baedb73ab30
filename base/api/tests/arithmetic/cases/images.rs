//! Image references.

use serde_json::{Value, json};

use super::Kind;
use crate::dice::Dice;

const SHA256: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[rustfmt::skip]
const WRITTEN: &[&str] = &[
    "nginx", "nginx:1.2", "nginx:latest", "me/app", "library/nginx", "docker.io/nginx", "docker.io/library/nginx",
    "index.docker.io/nginx", "localhost/app", "localhost:5000/a/b:v1", "127.0.0.1:5000/app", "[::1]:5000/app", "[::1]/app",
    "[::g]/app", "registry.k8s.io/pause:3.9", "host:5000/nginx", "host:5000/nginx:1", "q.io/a__b/c-d.e---f", "a_b", "a___b",
    "a.b", "a.b/c", "a..b/c", "-a", "a-", "a_-b", "a...b", "a//b", "a/../b", "/a", "a/", "a/b/", "q.io/", "Nginx", "nginx:V1",
    "LOCALHOST/app", "Q.io/app", "Q.io:5/A", "ME/app", "me/App", "nginx:", "nginx:.x", "nginx:_x", "nginx:a+b", "nginx@sha256:00",
    "nginx@md5:x", "nginx@", "q.io:x/a", "q.io:99999/a", "q.io:/a", "", " nginx", "nginx\n", "é/a", "a:b:c", "a@b@c", "a:5000",
    "docker.io/",
];

fn long() -> Vec<String> {
    let hex = &SHA256["sha256:".len()..];
    vec![
        hex.to_owned(),
        hex[..63].to_owned(),
        format!("nginx@{SHA256}"),
        format!("nginx:1@{SHA256}"),
        format!("q.io/a/b:v1@{SHA256}"),
        format!("nginx@{}", SHA256.to_uppercase()),
        format!("nginx@sha256:{}", hex.to_uppercase()),
        format!("nginx@sha512:{hex}{hex}"),
        format!("nginx@sha384:{hex}{}", &hex[..32]),
        format!("nginx@sha1:{}", &hex[..40]),
        format!("nginx@a+b:{hex}"),
        format!("nginx:{}", "t".repeat(128)),
        format!("nginx:{}", "t".repeat(129)),
        format!("q.io/{}", "a".repeat(255)),
        format!("q.io/{}", "a".repeat(256)),
        format!("q.io/{}", "a".repeat(250)),
        "a".repeat(248),
    ]
}

fn image(dice: &mut Dice) -> Value {
    let host = dice.pick(&[
        "",
        "",
        "docker.io/",
        "q.io/",
        "localhost/",
        "localhost:80/",
        "h:5000/",
        "H/",
        "a-b.c:1/",
        "-a.c/",
        "[fe80::1]:443/",
        "index.docker.io/",
        "10.0.0.1/",
        "a+b.c/",
    ]);
    let path =
        dice.pick(&["app", "a/b", "library/app", "a/b/c", "App", "a.b", "a__b", "a--b/c", "_a", "a._b", "0"]);
    let tag = dice.pick(&["", "", ":1", ":latest", ":V-1._x", ":-1", ":5000", ":"]);
    let digest = if dice.one_in(4) { format!("@{SHA256}") } else { String::new() };
    json!({"ask": "image", "text": format!("{host}{path}{tag}{digest}")})
}

pub(super) fn images() -> Kind {
    let written = WRITTEN.iter().map(|text| (*text).to_owned()).chain(long());
    let written = written.map(|text| json!({"ask": "image", "text": text}));
    Kind { written: written.collect(), make: image, all: 320, recorded: 75 }
}
