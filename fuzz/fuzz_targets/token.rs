//! Any text as a bearer token and any bytes as a client's certificate: only what was signed here is believed, unchanged.

#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use podwire_apiserver::hostile::{Signer, certificate};
use serde_json::Value;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    /// No token of ours.
    Text {
        text: &'a str,
        now: i64,
    },
    /// A signed one whose bytes are changed at some place.
    Changed {
        at: u16,
        by: u8,
        now: i64,
        claims: &'a str,
    },
    Certificate(&'a [u8]),
}

/// Whether the value is written and read to the letter, which fractions need not be.
fn is_exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => !number.is_f64(),
        Value::Array(items) => items.iter().all(is_exact),
        Value::Object(fields) => fields.values().all(is_exact),
        _ => true,
    }
}

static SIGNER: LazyLock<Signer> = LazyLock::new(Signer::fresh);

fuzz_target!(init: {
    podwire_fuzz::seeds(&[
        r#"{"exp":100,"nbf":10,"iat":10,"sub":"system:serviceaccount:a:b","kubernetes.io":{"namespace":"a"}}"#,
        r#"{"exp":9223372036854775807,"nbf":-9223372036854775808}"#,
        r#"{"exp":100,"nbf":"10"}"#,
    ].map(|claims| [&podwire_fuzz::variant(1, 3)[..], &[9, 0, 1], &50_i64.to_le_bytes(), claims.as_bytes()].concat()));
}, |input: Input<'_>| {
    match input {
        Input::Text { text, now } => assert_eq!(SIGNER.verify(text, now), None, "nobody signed {text:?}"),
        Input::Changed { at, by, now, claims } => {
            let Ok(claims) = serde_json::from_str::<Value>(claims) else { return };
            let token = SIGNER.sign(&claims);
            let time = |key: &str| claims[key].as_i64();
            let in_time = time("exp").is_some_and(|exp| now < exp)
                && time("nbf").is_some_and(|nbf| i128::from(now) >= i128::from(nbf) - 60);
            let believed = SIGNER.verify(&token, now);
            assert_eq!(believed.is_some(), in_time, "{claims} at {now}");
            assert!(!is_exact(&claims) || believed.is_none_or(|believed| believed == claims), "claims come back as they were signed");
            let mut bytes = token.clone().into_bytes();
            let at = usize::from(at) % bytes.len();
            bytes[at] ^= by;
            let Ok(changed) = String::from_utf8(bytes) else { return };
            if changed != token {
                assert_eq!(SIGNER.verify(&changed, now), None, "{changed:?} is not {token:?}");
            }
        }
        Input::Certificate(der) => {
            if let Some((user, groups)) = certificate(der) {
                let size: usize = groups.iter().map(String::len).sum();
                // The group of everybody who is known is added.
                assert!(user.len() + size <= 2 * der.len() + 100, "more names than bytes");
            }
        }
    }
});
