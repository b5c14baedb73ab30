//! Any text as an image reference or as a registry's challenge: normal forms are stable, and nothing is made up.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_image::Reference;
use podwire_image::pull::{Challenge, parse_challenges};

/// Written so that it is read back: every value quoted, quotes and backslashes escaped.
fn written(challenge: &Challenge) -> String {
    let Challenge::Bearer { realm, service, scope, error } = challenge else { return "Basic".to_owned() };
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut text = format!("Bearer realm={}", quoted(realm));
    for (name, value) in [("service", service), ("scope", scope), ("error", error)] {
        if let Some(value) = value {
            text += &format!(",{name}={}", quoted(value));
        }
    }
    text
}

fuzz_target!(init: {
    podwire_fuzz::seeds(&[
        "localhost:5000/a/b-c.d__e:v1@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "[::1]:5000/app",
        "index.docker.io/nginx",
        r#"Bearer realm="https://a.example/token",service="r.example",scope="repository:a/b:pull,push""#,
        r#"Basic realm="x\"y", bearer realm="https://a.example/token", error=invalid_token"#,
        "Negotiate abc==, Bearer realm=\"",
    ]);
}, |text: &str| {
    let challenges = parse_challenges(text);
    assert!(challenges.len() <= text.len() / 5, "a challenge takes five letters at least");
    for challenge in &challenges {
        if let Challenge::Bearer { realm, service, scope, error } = challenge {
            let optional = [service, scope, error].into_iter().flatten();
            let size: usize = optional.chain([realm]).map(String::len).sum();
            assert!(size <= text.len(), "more was read than was written");
        }
    }
    let again: Vec<String> = challenges.iter().map(written).collect();
    assert_eq!(parse_challenges(&again.join(", ")), challenges, "a round trip loses nothing");

    let Ok(reference) = text.parse::<Reference>() else { return };
    let again: Reference = reference.to_string().parse().expect("the normal form is a reference");
    assert_eq!(again, reference, "the normal form is stable");
    let pieces = [reference.domain(), reference.path(), &reference.target()].map(str::to_owned);
    for piece in pieces.iter().flat_map(|piece| piece.split('/')) {
        assert!(!piece.is_empty() && piece != "." && piece != "..", "{piece:?} leaves the folder it names");
        assert!(piece.bytes().all(|byte| byte.is_ascii_graphic()), "{piece:?} is not a name");
    }
    assert!(reference.domain().len() <= 255 && reference.path().len() <= 255);
    let url = format!("https://{}/v2/{}/manifests/{}", reference.domain(), reference.path(), reference.target());
    let uri: http::Uri = url.parse().expect("a reference makes a URL");
    assert_eq!(uri.authority().map(|authority| authority.as_str()), Some(reference.domain()), "of its own registry");
});
