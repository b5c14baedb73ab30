//! How a user says who it is, beside a certificate: a password, a token, a file with one, a program that gives one.
//!
//! Programs: <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kubeconfig::{ConfigError, refused, words};

/// A file's token is read again after this; it is replaced long before it expires.
const FILE_PERIOD: Duration = Duration::from_secs(50);
/// A program is asked again so long before its token expires.
const EARLY: Duration = Duration::from_secs(60);

/// How a user says who it is.
#[derive(Clone)]
pub(crate) enum Credentials {
    /// By nothing but its certificate, if it has one.
    None,
    /// By the same header in every request.
    Fixed(HeaderValue),
    /// By a token in a file that somebody keeps fresh.
    File(PathBuf, Arc<Mutex<Kept>>),
    /// By what a program gives.
    Program(Arc<Program>, Arc<Mutex<Kept>>),
}

/// A header, and how long it is good.
#[derive(Default)]
pub(crate) struct Kept {
    header: Option<HeaderValue>,
    until: Option<Instant>,
}

impl Kept {
    fn fresh(&self) -> Option<HeaderValue> {
        let good = self.until.is_none_or(|until| Instant::now() < until);
        self.header.clone().filter(|_| good)
    }
}

/// A program that gives credentials, and what it is told.
pub(crate) struct Program {
    command: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    interactive: bool,
    info: String,
}

/// What a program gave.
#[derive(Default)]
pub(crate) struct Given {
    /// Certificate and key, as PEM.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
    token: Option<String>,
    expires: Option<jiff::Timestamp>,
}

impl Credentials {
    /// What a kubeconfig says of a user; `folder` is where relative paths begin.
    pub(crate) fn of(user: &Value, cluster: &Value, folder: &Path) -> Result<Credentials, ConfigError> {
        let provider = &user["auth-provider"];
        if !provider.is_null() {
            let token = words(&provider["config"], "id-token").filter(|_| provider["name"] == "oidc");
            let unsupported = || refused("auth-provider", "only oidc with an id-token is supported");
            return Ok(Credentials::Fixed(bearer(token.ok_or_else(unsupported)?)?));
        }
        if let (Some(name), Some(password)) = (words(user, "username"), words(user, "password")) {
            let secret = STANDARD.encode(format!("{name}:{password}"));
            return Ok(Credentials::Fixed(header(format!("Basic {secret}"))?));
        }
        if let Some(token) = words(user, "token") {
            return Ok(Credentials::Fixed(bearer(token)?));
        }
        if let Some(file) = words(user, "tokenFile") {
            let path = folder.join(file);
            std::fs::metadata(&path).map_err(|source| ConfigError::Read { path: path.clone(), source })?;
            return Ok(Credentials::File(path, Arc::default()));
        }
        match &user["exec"] {
            Value::Null => Ok(Credentials::None),
            exec => Ok(Credentials::Program(Arc::new(Program::of(exec, cluster, folder)?), Arc::default())),
        }
    }

    /// The certificate that a program gives; what else it gives is kept for the first request.
    pub(crate) async fn identity(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>, ConfigError> {
        let Credentials::Program(program, kept) = self else { return Ok(None) };
        let given = program.ask().await?;
        keep(kept, &given)?;
        Ok(given.identity)
    }

    /// The header of the next request.
    pub(crate) async fn header(&self) -> Result<Option<HeaderValue>, ConfigError> {
        let (Credentials::File(_, kept) | Credentials::Program(_, kept)) = self else {
            return Ok(match self {
                Credentials::Fixed(value) => Some(value.clone()),
                _ => None,
            });
        };
        if let Some(value) = kept.lock().expect("no holder panics").fresh() {
            return Ok(Some(value));
        }
        match self {
            Credentials::File(path, kept) => {
                let read = tokio::fs::read_to_string(path).await;
                let mut kept = kept.lock().expect("no holder panics");
                match read {
                    Ok(token) => kept.header = Some(bearer(token.trim())?),
                    // The old one may still be good.
                    Err(_) if kept.header.is_some() => {}
                    Err(source) => return Err(ConfigError::Read { path: path.clone(), source }),
                }
                kept.until = Some(Instant::now() + FILE_PERIOD);
                Ok(kept.header.clone())
            }
            Credentials::Program(program, kept) => keep(kept, &program.ask().await?),
            Credentials::None | Credentials::Fixed(_) => Ok(None),
        }
    }
}

fn keep(kept: &Mutex<Kept>, given: &Given) -> Result<Option<HeaderValue>, ConfigError> {
    let mut kept = kept.lock().expect("no holder panics");
    kept.header = given.token.as_deref().map(bearer).transpose()?;
    kept.until = given.expires.map(|at| {
        let left = Duration::try_from(at.duration_since(jiff::Timestamp::now())).unwrap_or_default();
        Instant::now() + left.saturating_sub(EARLY)
    });
    Ok(kept.header.clone())
}

fn bearer(token: &str) -> Result<HeaderValue, ConfigError> {
    header(format!("Bearer {token}"))
}

fn header(text: String) -> Result<HeaderValue, ConfigError> {
    let mut value = HeaderValue::try_from(text).map_err(|error| refused("token", error))?;
    value.set_sensitive(true);
    Ok(value)
}

impl Program {
    fn of(exec: &Value, cluster: &Value, folder: &Path) -> Result<Program, ConfigError> {
        let command = words(exec, "command").ok_or_else(|| refused("exec", "names no command"))?;
        // A bare name is looked for where programs are.
        let command = match command.contains('/') {
            true => folder.join(command).to_string_lossy().into_owned(),
            false => command.to_owned(),
        };
        let texts = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let pair = |one: &Value| Some((one["name"].as_str()?.to_owned(), one["value"].as_str()?.to_owned()));
        let interactive = exec["interactiveMode"] != "Never";
        let mut spec = json!({"interactive": interactive});
        if exec["provideClusterInfo"] == true {
            spec["cluster"] = described(cluster, folder)?;
        }
        let info = json!({"kind": "ExecCredential", "apiVersion": exec["apiVersion"], "spec": spec});
        Ok(Program {
            command,
            arguments: texts(&exec["args"]),
            environment: exec["env"].as_array().into_iter().flatten().filter_map(pair).collect(),
            interactive,
            info: info.to_string(),
        })
    }

    async fn ask(self: &Arc<Self>) -> Result<Given, ConfigError> {
        let program = Arc::clone(self);
        let run = tokio::task::spawn_blocking(move || program.run()).await;
        run.map_err(|error| self.failed(error))?
    }

    fn failed(&self, reason: impl ToString) -> ConfigError {
        ConfigError::Program { command: self.command.clone(), reason: reason.to_string() }
    }

    fn run(&self) -> Result<Given, ConfigError> {
        let mut command = Command::new(&self.command);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("KUBERNETES_EXEC_INFO", &self.info).stdout(Stdio::piped());
        match self.interactive {
            true => command.stdin(Stdio::inherit()).stderr(Stdio::inherit()),
            false => command.stdin(Stdio::null()).stderr(Stdio::piped()),
        };
        let done = command.output().map_err(|error| self.failed(error))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            return Err(self.failed(format!("{}: {said}", done.status)));
        }
        let answer: Value = serde_json::from_slice(&done.stdout).map_err(|error| self.failed(error))?;
        let status = &answer["status"];
        if !status.is_object() {
            return Err(self.failed("its answer has no status"));
        }
        let pem = |key: &str| words(status, key).map(|text| text.as_bytes().to_vec());
        let expires = words(status, "expirationTimestamp").map(str::parse).transpose();
        Ok(Given {
            identity: pem("clientCertificateData").zip(pem("clientKeyData")),
            token: words(status, "token").map(str::to_owned),
            expires: expires.map_err(|error| self.failed(error))?,
        })
    }
}

/// What a program is told of the cluster.
fn described(cluster: &Value, folder: &Path) -> Result<Value, ConfigError> {
    let mut told = json!({});
    for key in ["server", "insecure-skip-tls-verify", "certificate-authority-data", "tls-server-name"] {
        if !cluster[key].is_null() {
            told[key] = cluster[key].clone();
        }
    }
    if let Some(path) = words(cluster, "certificate-authority").map(|path| folder.join(path)) {
        let bytes = std::fs::read(&path).map_err(|source| ConfigError::Read { path, source })?;
        told["certificate-authority-data"] = json!(STANDARD.encode(bytes));
    }
    let extensions = cluster["extensions"].as_array().into_iter().flatten();
    for one in extensions.filter(|one| one["name"] == "client.authentication.k8s.io/exec") {
        told["config"] = one["extension"].clone();
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(user: Value) -> Credentials {
        Credentials::of(&user, &json!({"server": "https://a:1"}), Path::new("/")).unwrap()
    }

    async fn said(credentials: &Credentials) -> String {
        credentials.header().await.unwrap().unwrap().to_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn a_token_and_a_password_are_said_in_every_request() {
        assert_eq!(said(&of(json!({"token": "t"}))).await, "Bearer t");
        assert_eq!(said(&of(json!({"username": "u", "password": "p"}))).await, "Basic dTpw");
        let oidc = json!({"auth-provider": {"name": "oidc", "config": {"id-token": "i"}}});
        assert_eq!(said(&of(oidc)).await, "Bearer i");
        assert!(of(json!({})).header().await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_files_token_is_read_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "old\n").unwrap();
        let credentials = of(json!({"tokenFile": file.path()}));
        assert_eq!(said(&credentials).await, "Bearer old");
        std::fs::write(file.path(), "new").unwrap();
        assert_eq!(said(&credentials).await, "Bearer old");
        tokio::time::advance(FILE_PERIOD).await;
        assert_eq!(said(&credentials).await, "Bearer new");
    }

    #[tokio::test]
    async fn a_program_is_told_of_the_cluster_and_gives_a_token() {
        let script = r#"printf '{"status":{"token":"%s-%s"}}' "$WORD" "$(printf %s "$KUBERNETES_EXEC_INFO" | cksum | wc -l)""#;
        let exec = json!({"command": "sh", "args": ["-c", script], "env": [{"name": "WORD", "value": "w"}],
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "provideClusterInfo": true});
        let credentials = of(json!({"exec": exec}));
        let Credentials::Program(program, _) = &credentials else { panic!("a program") };
        let info: Value = serde_json::from_str(&program.info).unwrap();
        assert_eq!(info["spec"], json!({"interactive": false, "cluster": {"server": "https://a:1"}}));
        assert_eq!(said(&credentials).await, "Bearer w-1");
    }

    #[tokio::test]
    async fn a_program_that_fails_is_named_with_what_it_said() {
        let exec =
            json!({"command": "sh", "args": ["-c", "echo no >&2; exit 3"], "interactiveMode": "Never"});
        let error = of(json!({"exec": exec})).header().await.unwrap_err().to_string();
        assert!(error.contains("\"sh\"") && error.contains("3: no"), "{error}");
    }
}
