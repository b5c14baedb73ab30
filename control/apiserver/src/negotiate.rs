//! Which representation a client wants, and in which one it wrote its body.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use crate::status::{ApiError, Result};

/// The media types objects can have, as errors list them.
const SUPPORTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// Kubernetes' protobuf.
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// What is put into that encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The object itself.
    Object,
    /// Rows and columns for people.
    Table,
    /// Only the metadata.
    Partial,
}

/// A chosen representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Representation {
    /// The encoding.
    pub(crate) encoding: Encoding,
    /// The shape.
    pub(crate) shape: Shape,
    /// Indented JSON for people at a terminal.
    pub(crate) pretty: bool,
}

struct MediaType<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaType<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let parameters =
            parts.filter_map(|part| part.split_once('=')).map(|(key, value)| (key.trim(), value.trim()));
        Self { name, parameters: parameters.collect() }
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }
}

fn encoding_of(name: &str) -> Option<Encoding> {
    match name {
        "application/json" | "*/*" | "application/*" => Some(Encoding::Json),
        "application/yaml" => Some(Encoding::Yaml),
        PROTOBUF => Some(Encoding::Protobuf),
        _ => None,
    }
}

fn accepted(media: &MediaType<'_>) -> Option<(Encoding, Shape)> {
    let encoding = encoding_of(media.name)?;
    let shape = match (media.get("as"), media.get("g")) {
        (None, _) => Shape::Object,
        (Some("Table"), Some("meta.k8s.io")) => Shape::Table,
        (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("meta.k8s.io")) => Shape::Partial,
        _ => return None,
    };
    Some((encoding, shape))
}

/// Chooses the first representation of the `Accept` header that can be given; `fits` says what can.
pub(crate) fn choose(
    headers: &HeaderMap,
    pretty: Option<&str>,
    collection: bool,
    fits: impl Fn(Encoding, Shape) -> bool,
) -> Result<Representation> {
    let pretty = match pretty {
        Some(value) => !matches!(value, "0" | "false"),
        None => is_person(headers),
    };
    let texts: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let mut clauses =
        texts.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|c| !c.is_empty()).peekable();
    if clauses.peek().is_none() {
        return Ok(Representation { encoding: Encoding::Json, shape: Shape::Object, pretty });
    }
    let mut known = false;
    for clause in clauses {
        known |= encoding_of(MediaType::parse(clause).name).is_some();
        if let Some((encoding, shape)) = accepted(&MediaType::parse(clause))
            && fits(encoding, shape)
        {
            return Ok(Representation { encoding, shape, pretty });
        }
    }
    if known {
        // The encoding would do, but not what is asked to be put into it.
        let message = format!("only the following media types are accepted: {SUPPORTED}");
        return Err(ApiError::new(http::StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message));
    }
    let streams = ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    Err(ApiError::not_acceptable(&format!("{SUPPORTED}{}", if collection { streams } else { "" })))
}

fn is_person(headers: &HeaderMap) -> bool {
    let agent =
        headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|known| agent.starts_with(known))
}

/// The encoding of a request body; none given means JSON.
pub(crate) fn body_encoding(headers: &HeaderMap) -> Result<Encoding> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(Encoding::Json) };
    let name = value.to_str().ok().map(|text| MediaType::parse(text).name).unwrap_or_default();
    match name {
        "" => Ok(Encoding::Json),
        "*/*" | "application/*" => Err(ApiError::unsupported_media(SUPPORTED)),
        other => encoding_of(other).ok_or_else(|| ApiError::unsupported_media(SUPPORTED)),
    }
}

/// The media type of a request body, without parameters.
pub(crate) fn body_media(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    MediaType::parse(value).name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(accept: &str) -> Result<Representation> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        choose(&headers, None, false, |encoding, _| encoding != Encoding::Protobuf)
    }

    #[test]
    fn kubectl_gets_a_table_and_typed_clients_fall_back_to_json() {
        let table = chosen("application/json;as=Table;v=v1;g=meta.k8s.io,application/json").unwrap();
        assert_eq!((table.encoding, table.shape), (Encoding::Json, Shape::Table));
        let typed = chosen("application/vnd.kubernetes.protobuf,application/json").unwrap();
        assert_eq!((typed.encoding, typed.shape), (Encoding::Json, Shape::Object));
        assert!(chosen("*/*").is_ok());
        assert_eq!(chosen("text/html").unwrap_err().code, 406);
    }

    #[test]
    fn a_body_without_a_type_is_json() {
        let mut headers = HeaderMap::new();
        assert_eq!(body_encoding(&headers).unwrap(), Encoding::Json);
        headers.insert(CONTENT_TYPE, "text/plain".parse().unwrap());
        assert_eq!(body_encoding(&headers).unwrap_err().code, 415);
    }
}
