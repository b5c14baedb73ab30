//! Service-account tokens: JSON web tokens signed with ES256, bound to objects that must still exist.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use podwire_api::builtin;
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::context::Context;
use crate::identity::{Identity, NODE_NAME};

/// Tokens of a deleted object are believed for this many seconds after it was due to go.
const DELETED_LEEWAY: i64 = 60;

/// Why a token is not believed; clients only ever hear "Unauthorized".
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    /// Not a token of ours.
    #[error("the token is malformed")]
    Malformed,
    /// Signed by another key.
    #[error("the token's signature is wrong")]
    Signature,
    /// Too late or too early.
    #[error("the token is not valid at this time")]
    Time,
    /// Meant for others.
    #[error("the token is for another audience")]
    Audience,
    /// The account or the bound object is gone.
    #[error("the token is bound to an object that is gone")]
    Bound,
}

/// A key could not be used for signing.
#[derive(Debug, thiserror::Error)]
#[error("the key for service account tokens cannot be used")]
pub struct KeyError;

/// A believed token.
pub(crate) struct Verified {
    /// Who it stands for.
    pub(crate) identity: Identity,
    /// The audiences both sides know.
    pub(crate) audiences: Vec<String>,
}

/// Signs and checks tokens.
pub(crate) struct Tokens {
    key: EcdsaKeyPair,
    key_id: String,
    issuer: String,
    longest_life: Option<i64>,
    random: SystemRandom,
}

impl Tokens {
    /// Takes the signing key as PKCS#8 PEM.
    ///
    /// No token is given for longer than `longest_life`, if that is set.
    pub(crate) fn new(
        key_pem: &str,
        issuer: String,
        longest_life: Option<Duration>,
    ) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let der = PrivatePkcs8KeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|_| KeyError)?;
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let key =
            EcdsaKeyPair::from_pkcs8(algorithm, der.secret_pkcs8_der(), &random).map_err(|_| KeyError)?;
        let digest = ring::digest::digest(&ring::digest::SHA256, key.public_key().as_ref());
        let longest_life = longest_life.map(|life| i64::try_from(life.as_secs()).unwrap_or(i64::MAX));
        Ok(Self { key, key_id: URL_SAFE_NO_PAD.encode(digest), issuer, longest_life, random })
    }

    /// The most seconds a token may live.
    pub(crate) fn longest_life(&self) -> Option<i64> {
        self.longest_life
    }

    /// Who signs, and the audience of tokens that name none.
    pub(crate) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Signs a set of claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header.to_string()),
            URL_SAFE_NO_PAD.encode(claims.to_string())
        );
        let signature = self.key.sign(&self.random, signed.as_bytes()).expect("the system gives randomness");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// The claims of a token that this server signed and that is valid at `now` (seconds).
    pub(crate) fn verify(&self, token: &str, now: i64) -> Result<Value, TokenError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (_, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Malformed)?;
        let public = signature::UnparsedPublicKey::new(
            &signature::ECDSA_P256_SHA256_FIXED,
            self.key.public_key().as_ref(),
        );
        public.verify(signed.as_bytes(), &signature).map_err(|_| TokenError::Signature)?;
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|_| TokenError::Malformed)?;
        let claims: Value = serde_json::from_slice(&claims).map_err(|_| TokenError::Malformed)?;
        let time = |key: &str| claims[key].as_i64().ok_or(TokenError::Malformed);
        if now >= time("exp")? || now < time("nbf")?.saturating_sub(60) {
            return Err(TokenError::Time);
        }
        Ok(claims)
    }

    /// Believes a token if it is ours, for one of `audiences` and bound to living objects.
    pub(crate) fn identify<'a>(
        &'a self,
        context: &'a Context,
        token: &str,
        audiences: Option<&[String]>,
    ) -> BoxFuture<'a, Result<Verified, TokenError>> {
        let believed = self.believe(token, audiences);
        Box::pin(async move {
            let (claims, audiences) = believed?;
            let identity = bound_identity(context, &claims).await?;
            Ok(Verified { identity, audiences })
        })
    }

    /// The claims of a token and the audiences it shares with the asker.
    fn believe(&self, token: &str, audiences: Option<&[String]>) -> Result<(Value, Vec<String>), TokenError> {
        let claims = self.verify(token, jiff::Timestamp::now().as_second())?;
        let own = [self.issuer.clone()];
        let wanted = audiences.unwrap_or(&own);
        let common: Vec<String> = claims["aud"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .filter(|audience| wanted.iter().any(|other| other == audience))
            .map(str::to_owned)
            .collect();
        if common.is_empty() { Err(TokenError::Audience) } else { Ok((claims, common)) }
    }

    /// The public key as a JSON web key set.
    pub(crate) fn jwks(&self) -> Value {
        let point = &self.key.public_key().as_ref()[1..];
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(&point[..32]), "y": URL_SAFE_NO_PAD.encode(&point[32..]),
        }]})
    }
}

/// Checks that account, pod and node of a token still are the ones it was made for.
async fn bound_identity(context: &Context, claims: &Value) -> Result<Identity, TokenError> {
    let facts = &claims["kubernetes.io"];
    let namespace = facts["namespace"].as_str().ok_or(TokenError::Malformed)?;
    let account = facts["serviceaccount"]["name"].as_str().ok_or(TokenError::Malformed)?;
    let uid = facts["serviceaccount"]["uid"].as_str().unwrap_or_default();
    let subject = format!("system:serviceaccount:{namespace}:{account}");
    if claims["sub"] != *subject {
        return Err(TokenError::Malformed);
    }
    // A pod's token says on which node it runs, and lives as long as the pod; one for a node, as long as that.
    let node = if facts["pod"].is_object() { "" } else { "node" };
    let checks = [
        (builtin::service_accounts(), "serviceaccount", namespace),
        (builtin::pods(), "pod", namespace),
        (builtin::secrets(), "secret", namespace),
        (builtin::nodes(), node, ""),
    ];
    let now = jiff::Timestamp::now();
    for (kind, claim, namespace) in checks {
        let Some(name) = facts[claim]["name"].as_str() else { continue };
        let found = context.object(kind, namespace, name).await.map_err(|_| TokenError::Bound)?;
        if found["metadata"]["uid"] != facts[claim]["uid"] || is_long_deleted(&found, now) {
            return Err(TokenError::Bound);
        }
    }
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let mut identity = Identity::new(subject, &groups);
    identity.uid = uid.to_owned();
    let extra = [
        ("authentication.kubernetes.io/pod-name", &facts["pod"]["name"]),
        ("authentication.kubernetes.io/pod-uid", &facts["pod"]["uid"]),
        (NODE_NAME, &facts["node"]["name"]),
        ("authentication.kubernetes.io/node-uid", &facts["node"]["uid"]),
    ];
    for (key, value) in extra {
        if let Some(value) = value.as_str() {
            identity.extra.insert(key.to_owned(), vec![value.to_owned()]);
        }
    }
    if let Some(id) = claims["jti"].as_str() {
        identity.extra.insert("authentication.kubernetes.io/credential-id".into(), vec![format!("JTI={id}")]);
    }
    Ok(identity)
}

/// Whether an object should have been gone for a while; what holds it up must not keep its tokens alive.
fn is_long_deleted(object: &Value, now: jiff::Timestamp) -> bool {
    let due = object["metadata"]["deletionTimestamp"]
        .as_str()
        .and_then(|text| text.parse::<jiff::Timestamp>().ok());
    due.is_some_and(|due| now.as_second() - due.as_second() > DELETED_LEEWAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Tokens {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        Tokens::new(&key.serialize_pem(), "https://test".into(), None).unwrap()
    }

    #[test]
    fn a_token_is_believed_only_unchanged_in_time_and_from_the_same_key() {
        let signer = tokens();
        let token = signer.sign(&json!({"sub": "x", "exp": 100, "nbf": 10, "iat": 10}));
        assert_eq!(signer.verify(&token, 50).unwrap()["sub"], "x");
        assert!(matches!(signer.verify(&token, 100), Err(TokenError::Time)));
        assert!(matches!(tokens().verify(&token, 50), Err(TokenError::Signature)));
        let mut changed = token.clone();
        changed.replace_range(40..41, if &token[40..41] == "A" { "B" } else { "A" });
        assert!(signer.verify(&changed, 50).is_err());
        assert!(matches!(signer.verify("x", 50), Err(TokenError::Malformed)));
        let always = signer.sign(&json!({"exp": i64::MAX, "nbf": i64::MIN}));
        assert!(signer.verify(&always, 50).is_ok());
    }
}
