//! Which protocol a client gets. Pure.

use http::header::{
    CONNECTION, HeaderMap, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderName, StatusCode};

/// A version of the remote command protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// Errors as text, no terminal resizing.
    V1,
    /// As the first, without its bugs.
    V2,
    /// Terminal resizing.
    V3,
    /// Exit codes as a Status.
    V4,
    /// Streams can be closed one by one (WebSocket only).
    V5,
}

/// The protocol agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// WebSocket; without a version, SPDY frames are tunnelled in it.
    WebSocket { key: String, protocol: Option<&'static str>, version: Option<Version> },
    /// SPDY/3.1.
    Spdy { protocol: Option<&'static str>, version: Version },
}

/// Why a request gets no stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: &'static str,
    /// The protocols the client could have asked for.
    pub(super) offered: &'static [&'static str],
}

const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const FORWARD: &str = "portforward.k8s.io";
const SPDY_COMMAND: &[&str] =
    &["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
const WEBSOCKET_COMMAND: &[&str] = &["v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io"];
const STREAM_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Chooses the best protocol both sides know.
pub(super) fn choose(headers: &HeaderMap, port_forward: bool) -> Result<Choice, Refusal> {
    if !tokens(headers, &CONNECTION).iter().any(|token| token.eq_ignore_ascii_case("upgrade")) {
        return Err(refusal(StatusCode::BAD_REQUEST, "this endpoint needs a connection upgrade", &[]));
    }
    let upgrades = tokens(headers, &UPGRADE);
    if upgrades.iter().any(|upgrade| upgrade.eq_ignore_ascii_case("websocket")) {
        return websocket(headers, port_forward);
    }
    if !upgrades.iter().any(|upgrade| upgrade.eq_ignore_ascii_case("spdy/3.1")) {
        return Err(refusal(StatusCode::BAD_REQUEST, "upgrade to websocket or SPDY/3.1", &[]));
    }
    let asked = tokens(headers, &STREAM_VERSION);
    let known: &[&str] = if port_forward { &[FORWARD] } else { SPDY_COMMAND };
    let protocol = known.iter().find(|known| asked.contains(known)).copied();
    if protocol.is_none() && !asked.is_empty() {
        return Err(refusal(StatusCode::FORBIDDEN, "no stream protocol in common", known));
    }
    Ok(Choice::Spdy { protocol, version: protocol.map_or(Version::V1, version) })
}

fn websocket(headers: &HeaderMap, port_forward: bool) -> Result<Choice, Refusal> {
    let bad = |message| refusal(StatusCode::BAD_REQUEST, message, &[]);
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version.as_bytes() != b"13") {
        return Err(bad("only WebSocket version 13"));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
    let key = key.ok_or_else(|| bad("Sec-WebSocket-Key is missing"))?.to_owned();
    let asked = tokens(headers, &SEC_WEBSOCKET_PROTOCOL);
    if port_forward && asked.contains(&TUNNEL) {
        return Ok(Choice::WebSocket { key, protocol: Some(TUNNEL), version: None });
    }
    let known = if port_forward { &WEBSOCKET_COMMAND[1..] } else { WEBSOCKET_COMMAND };
    let protocol = known.iter().find(|known| asked.contains(known)).copied();
    if protocol.is_none() && !asked.is_empty() {
        return Err(refusal(StatusCode::FORBIDDEN, "no stream protocol in common", known));
    }
    Ok(Choice::WebSocket { key, protocol, version: Some(protocol.map_or(Version::V1, version)) })
}

fn version(protocol: &str) -> Version {
    match protocol {
        "v5.channel.k8s.io" => Version::V5,
        "v4.channel.k8s.io" => Version::V4,
        "v3.channel.k8s.io" => Version::V3,
        "v2.channel.k8s.io" => Version::V2,
        _ => Version::V1,
    }
}

fn refusal(status: StatusCode, message: &'static str, offered: &'static [&'static str]) -> Refusal {
    Refusal { status, message, offered }
}

/// The comma-separated values of all headers of this name.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn the_newest_protocol_in_common_wins() {
        let ws = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "k"),
        ];
        let mut map = headers(&ws);
        map.append("sec-websocket-protocol", "v4.channel.k8s.io, v5.channel.k8s.io".parse().unwrap());
        let Ok(Choice::WebSocket { version, protocol, .. }) = choose(&map, false) else { panic!() };
        assert_eq!((version, protocol), (Some(Version::V5), Some("v5.channel.k8s.io")));
        map.append("sec-websocket-protocol", TUNNEL.parse().unwrap());
        let Ok(Choice::WebSocket { version: None, .. }) = choose(&map, true) else { panic!() };

        let spdy = headers(&[
            ("connection", "Upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v3.channel.k8s.io"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ]);
        let Ok(Choice::Spdy { version, .. }) = choose(&spdy, false) else { panic!() };
        assert_eq!(version, Version::V4);
    }

    #[test]
    fn strangers_are_refused() {
        assert_eq!(choose(&HeaderMap::new(), false).unwrap_err().status, StatusCode::BAD_REQUEST);
        let odd = headers(&[("connection", "upgrade"), ("upgrade", "h2c")]);
        assert_eq!(choose(&odd, false).unwrap_err().status, StatusCode::BAD_REQUEST);
        let unknown = headers(&[
            ("connection", "upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v9.channel.k8s.io"),
        ]);
        let refusal = choose(&unknown, false).unwrap_err();
        assert_eq!((refusal.status, refusal.offered), (StatusCode::FORBIDDEN, SPDY_COMMAND));
    }
}
