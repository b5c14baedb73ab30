//! Programs that the spec wants run at points of a container's life.

use oci_spec::runtime::{Hook, Spec};
use serde::{Deserialize, Serialize};

use super::namespaces::utf8;
use super::{PlanError, text};

/// All hooks of a container, by when they run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookPlans {
    /// Before the container is said to be created, in the supervisor's namespaces.
    #[serde(default)]
    pub create_runtime: Vec<HookPlan>,
    /// After those, in the container's namespaces but with the host's files.
    #[serde(default)]
    pub create_container: Vec<HookPlan>,
    /// Before the container's program, inside the container.
    #[serde(default)]
    pub start_container: Vec<HookPlan>,
    /// Once the program runs.
    #[serde(default)]
    pub post_start: Vec<HookPlan>,
    /// Once the container is gone.
    #[serde(default)]
    pub post_stop: Vec<HookPlan>,
}

/// One program to run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookPlan {
    /// Its file, absolute.
    pub path: String,
    /// Its arguments, the name first.
    #[serde(default)]
    pub args: Vec<String>,
    /// Its whole environment.
    #[serde(default)]
    pub env: Vec<String>,
    /// Seconds it may take.
    #[serde(default)]
    pub timeout: Option<u64>,
}

impl HookPlans {
    /// True without a single one.
    pub fn is_empty(&self) -> bool {
        *self == HookPlans::default()
    }
}

pub(super) fn plan(spec: &Spec) -> Result<HookPlans, PlanError> {
    let Some(hooks) = spec.hooks() else { return Ok(HookPlans::default()) };
    type Plans = Result<Vec<HookPlan>, PlanError>;
    let list = |hooks: &Option<Vec<Hook>>| -> Plans {
        hooks.as_deref().unwrap_or_default().iter().map(hook).collect()
    };
    let mut create_runtime: Vec<HookPlan> = list(hooks.prestart())?;
    create_runtime.append(&mut list(hooks.create_runtime())?);
    Ok(HookPlans {
        create_runtime,
        create_container: list(hooks.create_container())?,
        start_container: list(hooks.start_container())?,
        post_start: list(hooks.poststart())?,
        post_stop: list(hooks.poststop())?,
    })
}

fn hook(hook: &Hook) -> Result<HookPlan, PlanError> {
    let path = utf8("hook", hook.path())?;
    if !path.starts_with('/') {
        return Err(PlanError::Invalid { field: "hook", value: path, reason: "is not absolute" });
    }
    let args = hook.args().clone().unwrap_or_default();
    let env = hook.env().clone().unwrap_or_default();
    for word in args.iter().chain(&env) {
        text("hook", word)?;
    }
    let timeout = hook.timeout().and_then(|seconds| u64::try_from(seconds).ok()).filter(|s| *s > 0);
    Ok(HookPlan { path, args, env, timeout })
}
