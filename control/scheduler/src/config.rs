//! What a scheduler is told: `KubeSchedulerConfiguration` of `kubescheduler.config.k8s.io/v1`, with profiles by scheduler
//! name, plugins and their arguments. Pure.
//!
//! The reference: <https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/>. What is not understood is
//! refused with its path, never ignored; so are extenders, which would put a foreign server into every decision.

mod arguments;

use std::time::Duration;

use serde_json::{Map, Value};

use crate::framework::Name;
use crate::profile::{Profile, Row};
use crate::queue::Backoff;

/// A configuration that was understood.
#[derive(Clone, Default)]
pub struct Configuration {
    profiles: Vec<Profile>,
    times: Backoff,
    /// How one of several schedulers is chosen; `None` for the only one.
    pub(crate) election: Option<Election>,
}

/// How one of several schedulers is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// How long a leader that is not heard of is waited for.
    pub lease: Duration,
    /// How long a leader that cannot renew goes on.
    pub renew: Duration,
    /// How often is tried.
    pub retry: Duration,
}

impl Default for Election {
    fn default() -> Self {
        Self {
            namespace: "kube-system".to_owned(),
            name: "kube-scheduler".to_owned(),
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// Why a configuration is not understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigurationError {
    /// It is something else.
    #[error("not a KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1 but {0}")]
    Kind(String),
    /// A field is not known.
    #[error("{path}: unknown field {field:?}")]
    Unknown {
        /// Where.
        path: String,
        /// What.
        field: String,
    },
    /// A value will not do.
    #[error("{path}: {problem}")]
    Value {
        /// Where.
        path: String,
        /// Why.
        problem: String,
    },
}

/// A part of the configuration with its path.
pub(crate) struct Part<'a> {
    pub(crate) path: String,
    pub(crate) value: &'a Value,
}

impl<'a> Part<'a> {
    pub(crate) fn at(&self, field: &str) -> Part<'a> {
        Part { path: format!("{}.{field}", self.path), value: &self.value[field] }
    }

    pub(crate) fn wrong<T>(&self, problem: impl Into<String>) -> Result<T, ConfigurationError> {
        Err(ConfigurationError::Value { path: self.path.clone(), problem: problem.into() })
    }

    fn object(&self) -> Result<Option<&'a Map<String, Value>>, ConfigurationError> {
        match self.value {
            Value::Null => Ok(None),
            Value::Object(object) => Ok(Some(object)),
            _ => self.wrong("must be an object"),
        }
    }

    /// Refuses fields that are not known.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), ConfigurationError> {
        let fields = self.object()?.into_iter().flatten();
        match fields.map(|(field, _)| field).find(|field| !known.contains(&field.as_str())) {
            None => Ok(()),
            Some(field) => Err(ConfigurationError::Unknown { path: self.path.clone(), field: field.clone() }),
        }
    }

    pub(crate) fn list(&self) -> Result<Vec<Part<'a>>, ConfigurationError> {
        match self.value {
            Value::Null => Ok(Vec::new()),
            Value::Array(all) => {
                let part = |(at, value)| Part { path: format!("{}[{at}]", self.path), value };
                Ok(all.iter().enumerate().map(part).collect())
            }
            _ => self.wrong("must be a list"),
        }
    }

    pub(crate) fn text(&self) -> Result<Option<&'a str>, ConfigurationError> {
        match self.value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text)),
            _ => self.wrong("must be a text"),
        }
    }

    pub(crate) fn truth(&self) -> Result<Option<bool>, ConfigurationError> {
        match self.value {
            Value::Null => Ok(None),
            Value::Bool(truth) => Ok(Some(*truth)),
            _ => self.wrong("must be true or false"),
        }
    }

    /// A whole number in a range.
    pub(crate) fn number(&self, least: i64, most: i64) -> Result<Option<i64>, ConfigurationError> {
        match (self.value, self.value.as_i64()) {
            (Value::Null, _) => Ok(None),
            (_, Some(number)) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => self.wrong(format!("must be a whole number from {least} to {most}")),
        }
    }

    fn duration(&self, default: Duration) -> Result<Duration, ConfigurationError> {
        let Some(text) = self.text()? else { return Ok(default) };
        let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let Ok(count) = digits.parse::<u64>() else { return self.wrong("must be a duration such as 15s") };
        match unit {
            "ms" => Ok(Duration::from_millis(count)),
            "s" => Ok(Duration::from_secs(count)),
            "m" => Ok(Duration::from_secs(count.saturating_mul(60))),
            _ => self.wrong("must be a duration such as 15s"),
        }
    }
}

impl Configuration {
    /// The one with this scheduler name and the default plugins.
    pub fn named(scheduler_name: &str) -> Self {
        Self { profiles: vec![Profile::default_for(scheduler_name)], ..Self::default() }
    }

    /// Reads a configuration.
    pub fn read(object: &Value) -> Result<Self, ConfigurationError> {
        let kind = (object["apiVersion"].as_str(), object["kind"].as_str());
        if kind != (Some("kubescheduler.config.k8s.io/v1"), Some("KubeSchedulerConfiguration")) {
            let told = |one: Option<&str>| one.unwrap_or("nothing").to_owned();
            return Err(ConfigurationError::Kind(format!("{} of {}", told(kind.1), told(kind.0))));
        }
        let root = Part { path: "configuration".to_owned(), value: object };
        root.only(&[
            "apiVersion",
            "kind",
            "parallelism",
            "leaderElection",
            "clientConnection",
            "enableProfiling",
            "enableContentionProfiling",
            "percentageOfNodesToScore",
            "podInitialBackoffSeconds",
            "podMaxBackoffSeconds",
            "profiles",
            "extenders",
            "delayCacheUntilActive",
        ])?;
        let extenders = root.at("extenders");
        if !extenders.list()?.is_empty() {
            return extenders.wrong(
                "extenders are not supported: each decision would wait for a foreign server; write a plugin instead",
            );
        }
        let percentage = percentage(&root.at("percentageOfNodesToScore"))?;
        let first = root.at("podInitialBackoffSeconds").number(1, 86_400)?.unwrap_or(1);
        let longest = root.at("podMaxBackoffSeconds");
        let most = longest.number(1, 86_400)?.unwrap_or_else(|| first.max(10));
        if most < first {
            return longest.wrong("must not be less than podInitialBackoffSeconds");
        }
        let times = Backoff { first_ms: first.unsigned_abs() * 1000, longest_ms: most.unsigned_abs() * 1000 };
        let mut profiles: Vec<Profile> = Vec::new();
        for part in root.at("profiles").list()? {
            let profile = profile(&part, percentage)?;
            if profiles.iter().any(|other| other.scheduler_name == profile.scheduler_name) {
                return part
                    .at("schedulerName")
                    .wrong(format!("{:?} is there twice", profile.scheduler_name));
            }
            profiles.push(profile);
        }
        if profiles.is_empty() {
            let mut only = Profile::default_for("default-scheduler");
            only.percentage = percentage;
            profiles.push(only);
        }
        Ok(Self { profiles, times, election: election(&root.at("leaderElection"))? })
    }

    /// The same, as one of several.
    #[must_use]
    pub fn elected(self, election: Option<Election>) -> Self {
        Self { election, ..self }
    }

    pub(crate) fn profiles(&self) -> Vec<Profile> {
        if self.profiles.is_empty() {
            return vec![Profile::default_for("default-scheduler")];
        }
        self.profiles.clone()
    }

    pub(crate) fn backoff(&self) -> Backoff {
        self.times
    }
}

fn percentage(part: &Part) -> Result<Option<usize>, ConfigurationError> {
    let given = part.number(0, 100)?.filter(|percent| *percent > 0);
    Ok(given.and_then(|percent| usize::try_from(percent).ok()))
}

fn election(part: &Part) -> Result<Option<Election>, ConfigurationError> {
    part.only(&[
        "leaderElect",
        "leaseDuration",
        "renewDeadline",
        "retryPeriod",
        "resourceLock",
        "resourceName",
        "resourceNamespace",
    ])?;
    if !part.at("leaderElect").truth()?.unwrap_or(true) {
        return Ok(None);
    }
    if part.at("resourceLock").text()?.is_some_and(|lock| lock != "leases") {
        return part.at("resourceLock").wrong("must be leases");
    }
    let default = Election::default();
    let found = Election {
        namespace: part.at("resourceNamespace").text()?.unwrap_or(&default.namespace).to_owned(),
        name: part.at("resourceName").text()?.unwrap_or(&default.name).to_owned(),
        lease: part.at("leaseDuration").duration(default.lease)?,
        renew: part.at("renewDeadline").duration(default.renew)?,
        retry: part.at("retryPeriod").duration(default.retry)?,
    };
    if found.lease <= found.renew || found.renew <= found.retry || found.retry.is_zero() {
        return part.wrong("leaseDuration must be longer than renewDeadline, and that than retryPeriod");
    }
    Ok(Some(found))
}

fn profile(part: &Part, percentage_of_all: Option<usize>) -> Result<Profile, ConfigurationError> {
    part.only(&["schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"])?;
    let name = part.at("schedulerName").text()?.unwrap_or("default-scheduler");
    if name.is_empty() {
        return part.at("schedulerName").wrong("must be a name that pods can ask for");
    }
    let mut profile = Profile::new(name, arguments::read(&part.at("pluginConfig"))?);
    profile.percentage = percentage(&part.at("percentageOfNodesToScore"))?.or(percentage_of_all);
    let plugins = part.at("plugins");
    plugins.only(&[
        "multiPoint",
        "preEnqueue",
        "queueSort",
        "preFilter",
        "filter",
        "postFilter",
        "preScore",
        "score",
        "reserve",
        "permit",
        "preBind",
        "bind",
        "postBind",
    ])?;
    choose(&mut profile.rows, &plugins.at("multiPoint"), |_, _| true)?;
    for point in ["preFilter", "filter"] {
        choose(&mut profile.rows, &plugins.at(point), |row, on| {
            row.filters = on;
            false
        })?;
    }
    for point in ["preScore", "score"] {
        choose(&mut profile.rows, &plugins.at(point), |row, on| {
            row.scores = on;
            false
        })?;
    }
    for point in ["preEnqueue", "queueSort", "postFilter", "reserve", "permit", "preBind", "bind", "postBind"]
    {
        let only = plugins.at(point);
        if !only.at("enabled").list()?.is_empty() || !only.at("disabled").list()?.is_empty() {
            return only.wrong("a plugin is turned on or off as a whole here: use multiPoint");
        }
    }
    Ok(profile)
}

/// Turns plugins of a set on and off. `set` says whether a plugin that is off is to be taken out, or notes it in its row.
fn choose(
    rows: &mut Vec<Row>,
    part: &Part,
    set: impl Fn(&mut Row, bool) -> bool,
) -> Result<(), ConfigurationError> {
    part.only(&["enabled", "disabled"])?;
    let all = rows.clone();
    for one in part.at("disabled").list()? {
        one.only(&["name", "weight"])?;
        let name = one.at("name").text()?.unwrap_or_default();
        if name == "*" {
            rows.retain_mut(|row| !set(row, false));
            continue;
        }
        let wanted = plugin(&one.at("name"))?;
        rows.retain_mut(|row| row.plugin.name() != wanted || !set(row, false));
    }
    for one in part.at("enabled").list()? {
        one.only(&["name", "weight"])?;
        let wanted = plugin(&one.at("name"))?;
        let weight = one.at("weight").number(0, 1_000_000)?.filter(|weight| *weight > 0);
        if !rows.iter().any(|row| row.plugin.name() == wanted) {
            rows.extend(all.iter().find(|row| row.plugin.name() == wanted).cloned());
        }
        for row in rows.iter_mut().filter(|row| row.plugin.name() == wanted) {
            set(row, true);
            row.weight = weight.unwrap_or(row.weight).max(1);
        }
    }
    Ok(())
}

fn plugin(part: &Part) -> Result<Name, ConfigurationError> {
    let name = part.text()?.unwrap_or_default();
    match Name::ALL.iter().find(|one| one.text() == name) {
        Some(found) => Ok(*found),
        None => part.wrong(format!("there is no plugin {name:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(over: Value) -> Result<Configuration, String> {
        let mut object =
            json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"});
        for (field, value) in over.as_object().unwrap() {
            object[field] = value.clone();
        }
        Configuration::read(&object).map_err(|error| error.to_string())
    }

    #[test]
    fn profiles_are_told_apart_and_plugins_turned_off() {
        let found = read(json!({
            "podMaxBackoffSeconds": 3,
            "profiles": [
                {"schedulerName": "default-scheduler"},
                {"schedulerName": "packing", "percentageOfNodesToScore": 30, "plugins": {
                    "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 7}]},
                    "multiPoint": {"disabled": [{"name": "InterPodAffinity"}]}},
                 "pluginConfig": [{"name": "NodeResourcesFit", "args":
                    {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}]}}}]},
            ],
        }))
        .unwrap();
        let profiles = found.profiles();
        assert_eq!(profiles.len(), 2);
        assert_eq!(found.backoff().longest_ms, 3000);
        let packing = &profiles[1];
        assert_eq!((packing.scheduler_name.as_str(), packing.percentage), ("packing", Some(30)));
        assert!(packing.plugin(Name::InterPodAffinity).is_none());
        let scoring: Vec<_> =
            packing.rows.iter().filter(|row| row.scores).map(|row| (row.plugin.name(), row.weight)).collect();
        assert_eq!(scoring, [(Name::NodeResourcesFit, 7)]);
        assert!(profiles[0].plugin(Name::InterPodAffinity).is_some());
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_path() {
        for (over, text) in [
            (
                json!({"extenders": [{"urlPrefix": "http://x"}]}),
                "configuration.extenders: extenders are not supported",
            ),
            (json!({"profile": []}), "configuration: unknown field \"profile\""),
            (
                json!({"profiles": [{"plugins": {"score": {"enabled": [{"name": "Nope"}]}}}]}),
                "configuration.profiles[0].plugins.score.enabled[0].name: there is no plugin \"Nope\"",
            ),
            (
                json!({"profiles": [{}, {}]}),
                "configuration.profiles[1].schedulerName: \"default-scheduler\" is there twice",
            ),
            (
                json!({"percentageOfNodesToScore": 101}),
                "configuration.percentageOfNodesToScore: must be a whole number from 0 to 100",
            ),
            (
                json!({"kind": "Pod"}),
                "not a KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1 but Pod",
            ),
            (
                json!({"profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignored": 1}}]}]}),
                "configuration.profiles[0].pluginConfig[0].args: unknown field \"ignored\"",
            ),
            (
                json!({"leaderElection": {"leaseDuration": "5s"}}),
                "configuration.leaderElection: leaseDuration must be longer than renewDeadline",
            ),
        ] {
            let Err(error) = read(over) else { panic!("understood, but expected: {text}") };
            assert!(error.starts_with(text), "{error}");
        }
    }

    #[test]
    fn one_of_several_leads_unless_told_otherwise() {
        assert_eq!(read(json!({})).unwrap().election, Some(Election::default()));
        assert_eq!(read(json!({"leaderElection": {"leaderElect": false}})).unwrap().election, None);
    }
}
