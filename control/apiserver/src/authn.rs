//! Who is asking: the identity of the connection, a bearer token, or nobody.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::context::Context;
use crate::identity::Identity;
use crate::status::{ApiError, Result};

/// The identity of a request. `known` was attached by the door the request came through.
pub(crate) async fn identify(
    context: &Context,
    known: Option<Arc<Identity>>,
    headers: &HeaderMap,
) -> Result<Arc<Identity>> {
    if let Some(identity) = known {
        return Ok(identity);
    }
    let Some(header) = headers.get(AUTHORIZATION) else { return Ok(Arc::new(Identity::anonymous())) };
    let text = header.to_str().map_err(|_| ApiError::unauthorized())?;
    let Some((scheme, token)) = text.trim().split_once(' ') else {
        return Ok(Arc::new(Identity::anonymous()));
    };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Ok(Arc::new(Identity::anonymous()));
    }
    match context.tokens.identify(context, token.trim(), None).await {
        Ok(verified) => Ok(Arc::new(verified.identity)),
        Err(error) => {
            tracing::debug!(%error, "a bearer token was refused");
            Err(ApiError::unauthorized())
        }
    }
}

/// The identity in a client certificate: common name is the user, organizations are the groups.
pub(crate) fn from_certificate(der: &[u8]) -> Option<Identity> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    let subject = certificate.subject();
    let user = subject.iter_common_name().next()?.as_str().ok()?;
    let groups: Vec<&str> = subject.iter_organization().filter_map(|org| org.as_str().ok()).collect();
    Some(Identity::new(user, &groups))
}
