//! Who is calling, from the client's certificate or token, and what they may do: the API server says both.
//!
//! A token is what a TokenReview says, a right is what a SubjectAccessReview about this node says; both answers are kept
//! for as long as upstream keeps them. Nobody without a name gets in. The map from paths to subresources is upstream's:
//! <https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/>.

use std::{collections::HashMap, hash::Hash, sync::Mutex, time::Duration};

use http::{HeaderMap, Method, StatusCode, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{sync::Semaphore, time::Instant};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Refusal;
use crate::api::{Api, ApiError};

/// How long an answer about a token is kept.
const TOKEN_KEPT: Duration = Duration::from_secs(120);
/// How long a right is kept.
const ALLOWED_KEPT: Duration = Duration::from_secs(300);
/// How long a refusal is kept.
const DENIED_KEPT: Duration = Duration::from_secs(30);
/// Answers kept at most.
const KEPT: usize = 4096;
/// Questions to the API server at once: strangers must not be able to make this node ask more.
const QUESTIONS: usize = 32;

/// Somebody with a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct User {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: Value,
}

impl User {
    /// The subject of a certificate that TLS has verified already; one without a common name is nobody.
    pub(super) fn of(der: &[u8]) -> Option<User> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().find_map(|cn| cn.as_str().ok()).filter(|name| !name.is_empty());
        let groups = subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
        Some(User { name: name?.to_owned(), groups, ..User::default() }.authenticated())
    }

    /// The user in the status of a TokenReview, if it says that there is one.
    fn reviewed(status: &Value) -> Option<User> {
        let user = &status["user"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let named = status["authenticated"] == true && !text(&user["username"]).is_empty();
        named.then(|| {
            User {
                name: text(&user["username"]),
                uid: text(&user["uid"]),
                groups: user["groups"].as_array().into_iter().flatten().map(text).collect(),
                extra: user["extra"].clone(),
            }
            .authenticated()
        })
    }

    fn authenticated(mut self) -> User {
        const EVERYBODY: &str = "system:authenticated";
        if !self.groups.iter().any(|group| group == EVERYBODY) {
            self.groups.push(EVERYBODY.to_owned());
        }
        self
    }
}

/// The subresources of the node of which one must be allowed: the finer one first, then the one that allows everything.
fn subresources(path: &str) -> &'static [&'static str] {
    let is =
        |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match () {
        () if is("/pods") || is("/runningpods") => &["pods", "proxy"],
        () if is("/healthz") => &["healthz", "proxy"],
        () if is("/configz") => &["configz", "proxy"],
        () if is("/stats") => &["stats"],
        () if is("/metrics") => &["metrics"],
        () if is("/logs") => &["log"],
        () if is("/checkpoint") => &["checkpoint"],
        () if is("/statusz") => &["statusz"],
        () => &["proxy"],
    }
}

fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Answers that hold until a time.
struct Kept<K, V> {
    all: Mutex<HashMap<K, (V, Instant)>>,
}

impl<K: Eq + Hash, V: Clone> Kept<K, V> {
    fn new() -> Self {
        Kept { all: Mutex::default() }
    }

    fn get(&self, key: &K, now: Instant) -> Option<V> {
        let all = self.all.lock().expect("no holder panics");
        all.get(key).filter(|(_, until)| *until > now).map(|(value, _)| value.clone())
    }

    fn put(&self, key: K, value: V, long: Duration, now: Instant) {
        let mut all = self.all.lock().expect("no holder panics");
        if all.len() >= KEPT {
            all.retain(|_, (_, until)| *until > now);
        }
        if all.len() >= KEPT {
            // Forgetting costs a question, remembering everything costs the node's memory.
            all.clear();
        }
        all.insert(key, (value, now + long));
    }
}

/// Lets in those whom the API server knows and allows.
pub(super) struct Gate {
    api: Api,
    node_name: String,
    tokens: Kept<[u8; 32], Option<User>>,
    decisions: Kept<String, bool>,
    questions: Semaphore,
}

impl Gate {
    /// The gate of a node.
    pub(super) fn new(api: Api, node_name: &str) -> Gate {
        Gate {
            api,
            node_name: node_name.to_owned(),
            tokens: Kept::new(),
            decisions: Kept::new(),
            questions: Semaphore::new(QUESTIONS),
        }
    }

    /// Whether the caller, whose certificate names `user`, may make this request.
    pub(super) async fn check(
        &self,
        user: Option<&User>,
        headers: &HeaderMap,
        method: &Method,
        path: &str,
    ) -> Result<(), Refusal> {
        let user = match (user, bearer(headers)) {
            (Some(user), _) => Some(user.clone()),
            (None, Some(token)) => self.token(token).await,
            (None, None) => None,
        };
        let user = user.ok_or_else(|| Refusal::new(StatusCode::UNAUTHORIZED, "Unauthorized"))?;
        let (verb, subresources) = (verb(method), subresources(path));
        for subresource in subresources {
            match self.may(&user, verb, subresource).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(user = user.name, error = %error, "the API server does not say what a caller may do");
                    let text = format!(
                        "Authorization error (user={}, verb={verb}, resource=nodes, subresource={subresource})",
                        user.name
                    );
                    return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, text));
                }
            }
        }
        let text = format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])",
            user.name,
            subresources.join(" ")
        );
        Err(Refusal::new(StatusCode::FORBIDDEN, text))
    }

    /// Whose token it is.
    async fn token(&self, token: &str) -> Option<User> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(known) = self.tokens.get(&key, Instant::now()) {
            return known;
        }
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        match self.ask("/apis/authentication.k8s.io/v1/tokenreviews", &review).await {
            Ok(answer) => {
                let user = User::reviewed(&answer["status"]);
                self.tokens.put(key, user.clone(), TOKEN_KEPT, Instant::now());
                user
            }
            Err(error) => {
                tracing::warn!(error = %error, "the API server does not say whose token a caller has");
                None
            }
        }
    }

    async fn may(&self, user: &User, verb: &str, subresource: &str) -> Result<bool, ApiError> {
        let mut spec = json!({
            "user": user.name, "groups": user.groups,
            "resourceAttributes": {
                "verb": verb, "version": "v1", "resource": "nodes", "subresource": subresource,
                "name": self.node_name,
            },
        });
        if !user.uid.is_empty() {
            spec["uid"] = user.uid.as_str().into();
        }
        if user.extra.is_object() {
            spec["extra"] = user.extra.clone();
        }
        let key = spec.to_string();
        if let Some(known) = self.decisions.get(&key, Instant::now()) {
            return Ok(known);
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec,
        });
        let answer = self.ask("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await?;
        let allowed = answer["status"]["allowed"] == true && answer["status"]["denied"] != true;
        let long = if allowed { ALLOWED_KEPT } else { DENIED_KEPT };
        self.decisions.put(key, allowed, long, Instant::now());
        Ok(allowed)
    }

    async fn ask(&self, path: &str, review: &Value) -> Result<Value, ApiError> {
        let _turn = self.questions.acquire().await.expect("the semaphore is never closed");
        self.api.json(Method::POST, path, review).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// An API server that knows one token and allows `metrics` to its owner, and counts what it is asked.
    fn gate(asked: &Arc<Mutex<Vec<Value>>>) -> Gate {
        let asked = asked.clone();
        let service = tower::service_fn(move |request: http::Request<podwire_client::Body>| {
            let asked = asked.clone();
            async move {
                let body = http_body_util::BodyExt::collect(request.into_body()).await.unwrap().to_bytes();
                let review: Value = serde_json::from_slice(&body).unwrap();
                asked.lock().unwrap().push(review["spec"].clone());
                let spec = &review["spec"];
                let status = if review["kind"] == "TokenReview" {
                    let user = json!({"username": "probe", "groups": ["watchers"], "uid": "u1"});
                    json!({"authenticated": spec["token"] == "good", "user": user})
                } else {
                    json!({"allowed": spec["resourceAttributes"]["subresource"] == "metrics"})
                };
                let answer = serde_json::to_vec(&json!({"status": status})).unwrap();
                Ok::<_, std::io::Error>(http::Response::new(podwire_client::Body::from(answer)))
            }
        });
        Gate::new(Api::new(podwire_client::Client::new(service, "default")), "n1")
    }

    fn with_token(token: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap())])
    }

    #[tokio::test]
    async fn the_api_server_says_who_calls_and_what_they_may_and_is_asked_once() {
        let asked = Arc::default();
        let gate = gate(&asked);
        let none = HeaderMap::new();
        let refused = gate.check(None, &none, &Method::GET, "/healthz").await.unwrap_err();
        assert_eq!((refused.code, refused.text.as_str()), (StatusCode::UNAUTHORIZED, "Unauthorized"));
        let refused = gate.check(None, &with_token("bad"), &Method::GET, "/metrics").await.unwrap_err();
        assert_eq!(refused.code, StatusCode::UNAUTHORIZED);
        for _ in 0..2 {
            gate.check(None, &with_token("good"), &Method::GET, "/metrics/cadvisor").await.unwrap();
        }
        let refused = gate.check(None, &with_token("good"), &Method::GET, "/pods").await.unwrap_err();
        assert_eq!(refused.code, StatusCode::FORBIDDEN);
        assert_eq!(
            refused.text,
            "Forbidden (user=probe, verb=get, resource=nodes, subresource(s)=[pods proxy])"
        );
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), 5, "two tokens, three rights: {asked:?}");
        assert_eq!(
            asked[2],
            json!({"user": "probe", "uid": "u1", "groups": ["watchers", "system:authenticated"], "resourceAttributes":
                {"verb": "get", "version": "v1", "resource": "nodes", "subresource": "metrics", "name": "n1"}})
        );
    }

    #[tokio::test]
    async fn an_api_server_that_does_not_answer_lets_nobody_in() {
        let silent = tower::service_fn(|_: http::Request<podwire_client::Body>| async {
            Err::<http::Response<podwire_client::Body>, _>(std::io::Error::other("away"))
        });
        let gate = Gate::new(Api::new(podwire_client::Client::new(silent, "default")), "n1");
        let user = User { name: "admin".into(), groups: vec!["system:masters".into()], ..User::default() };
        let none = HeaderMap::new();
        let refused = gate.check(Some(&user), &none, &Method::POST, "/exec/a/b/c").await.unwrap_err();
        assert_eq!(refused.code, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(
            refused.text,
            "Authorization error (user=admin, verb=create, resource=nodes, subresource=proxy)"
        );
        let refused = gate.check(None, &with_token("good"), &Method::GET, "/pods").await.unwrap_err();
        assert_eq!(refused.code, StatusCode::UNAUTHORIZED);
    }

    #[test]
    fn paths_ask_for_upstreams_subresources() {
        for (path, wanted) in [
            ("/pods", &["pods", "proxy"] as &[&str]),
            ("/runningpods/", &["pods", "proxy"]),
            ("/healthz/ping", &["healthz", "proxy"]),
            ("/configz", &["configz", "proxy"]),
            ("/stats/summary", &["stats"]),
            ("/metrics", &["metrics"]),
            ("/logs/x", &["log"]),
            ("/podsy", &["proxy"]),
            ("/containerLogs/a/b/c", &["proxy"]),
            ("//pods", &["proxy"]),
        ] {
            assert_eq!(subresources(path), wanted, "{path}");
        }
    }

    #[test]
    fn answers_are_kept_for_a_while_and_never_without_bound() {
        let (kept, now) = (Kept::new(), Instant::now());
        kept.put(0, true, DENIED_KEPT, now);
        assert_eq!(kept.get(&0, now), Some(true));
        assert_eq!(kept.get(&0, now + DENIED_KEPT), None);
        (0..3 * KEPT).for_each(|n| kept.put(n, true, ALLOWED_KEPT, now));
        assert!(kept.all.lock().unwrap().len() <= KEPT);
    }
}
