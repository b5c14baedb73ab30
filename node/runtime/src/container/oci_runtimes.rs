//! Runtime handlers that name an OCI runtime program: the bundle it wants, and what it can do.
//!
//! The supervisor runs the program; here its bundle is made before (a folder with `config.json` and the root file system
//! mounted at `rootfs`) and taken away after.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use podwire_container::OciRuntimeRequest;
use podwire_linux::mount::{self, Handing};
use podwire_wire::cri;
use serde::Deserialize;

use crate::{
    config::Handler,
    container,
    context::Context,
    error::{Error, OpError},
    model::Container,
};

/// Handlers that mean the built-in creator.
pub(crate) const BUILT_IN: [&str; 2] = ["", "podwire"];

/// One OCI runtime program.
#[derive(Debug, Clone)]
pub(crate) struct OciRuntime {
    name: String,
    runtime: PathBuf,
    features: cri::RuntimeHandlerFeatures,
}

/// All handlers that are not ours.
#[derive(Debug, Default)]
pub(crate) struct OciRuntimes {
    by_name: BTreeMap<String, OciRuntime>,
}

/// What `features` of an OCI runtime says, as far as it matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Features {
    mount_options: Vec<String>,
}

impl OciRuntimes {
    /// Looks at each program once; one that cannot be run is an error.
    pub(crate) fn open(handlers: &[Handler]) -> Result<OciRuntimes, Error> {
        let mut by_name = BTreeMap::new();
        for Handler { name, runtime } in handlers {
            let failed = |source| Error::Handler { name: name.clone(), path: runtime.clone(), source };
            if BUILT_IN.contains(&name.as_str()) || name.contains('/') {
                return Err(failed(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "this name is taken or no name",
                )));
            }
            let runtime = fs::canonicalize(runtime).map_err(failed)?;
            let features = features(&runtime).map_err(failed)?;
            by_name.insert(name.clone(), OciRuntime { name: name.clone(), runtime, features });
        }
        Ok(OciRuntimes { by_name })
    }

    /// Whether pods of this handler can be run as they ask to be.
    pub(crate) fn check(&self, handler: &str, config: &cri::PodSandboxConfig) -> Result<(), OpError> {
        if BUILT_IN.contains(&handler) {
            return Ok(());
        }
        if !self.by_name.contains_key(handler) {
            return Err(OpError::invalid(format!("no runtime for {handler:?} is configured")));
        }
        let options = config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref())
            .and_then(|security| security.namespace_options.as_ref());
        let users = options.and_then(|options| options.userns_options.as_ref());
        if users.is_some_and(|users| users.mode == cri::NamespaceMode::Pod as i32) {
            return Err(OpError::invalid(format!("runtime handler {handler:?} has no user namespaces")));
        }
        Ok(())
    }

    /// As CRI's Status lists them.
    pub(crate) fn listed(&self) -> impl Iterator<Item = cri::RuntimeHandler> {
        self.by_name
            .values()
            .map(|known| cri::RuntimeHandler { name: known.name.clone(), features: Some(known.features) })
    }
}

fn features(runtime: &Path) -> io::Result<cri::RuntimeHandlerFeatures> {
    let said = Command::new(runtime).arg("features").stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    // A runtime too old to know the word can do none of what is asked about.
    let features: Features = serde_json::from_slice(&said.stdout).unwrap_or_default();
    Ok(cri::RuntimeHandlerFeatures {
        recursive_read_only_mounts: features.mount_options.iter().any(|option| option == "rro"),
        user_namespaces: false,
    })
}

impl Context {
    /// The program that makes this container, if it is not us.
    pub(crate) fn oci_runtime(&self, container: &Container) -> Option<&OciRuntime> {
        if self.handlers.by_name.is_empty() {
            return None;
        }
        let sandbox = self.registry.sandbox(&container.sandbox)?;
        self.handlers.by_name.get(&sandbox.handler)
    }
}

impl Context {
    /// As [`Context::oci_runtime`], for a start: a handler that is no longer configured must not fall back to us.
    pub(crate) fn oci_runtime_for_start(
        &self,
        container: &Container,
    ) -> Result<Option<&OciRuntime>, OpError> {
        let sandbox = self.registry.sandbox(&container.sandbox);
        let handler = sandbox.map(|sandbox| sandbox.handler.clone()).unwrap_or_default();
        if BUILT_IN.contains(&handler.as_str()) {
            return Ok(None);
        }
        let known = self.handlers.by_name.get(&handler);
        known.map(Some).ok_or_else(|| OpError::invalid(format!("no runtime for {handler:?} is configured")))
    }
}

impl OciRuntime {
    fn root(&self, ctx: &Context) -> PathBuf {
        ctx.settings.run_dir.join("oci").join(&self.name)
    }

    /// Makes the bundle. Blocks.
    pub(crate) fn request(&self, ctx: &Context, container: &Container) -> Result<OciRuntimeRequest, OpError> {
        let (row, spec) = (&container.row, container.spec());
        let bundle = ctx.container_dir(&row.id).join("bundle");
        let rootfs = bundle.join("rootfs");
        let make = || -> io::Result<()> {
            ctx.make_container_dir(&row.id)?;
            fs::create_dir_all(&rootfs)?;
            fs::create_dir_all(self.root(ctx))?;
            fs::write(bundle.join("config.json"), serde_json::to_vec(&*spec)?)
        };
        make().map_err(OpError::failed("make the OCI bundle"))?;
        let lower: Vec<PathBuf> = row.lower.iter().map(PathBuf::from).collect();
        let upper = (Path::new(&row.upper), Path::new(&row.work));
        let mounted = if lower.is_empty() {
            // An image without layers is its upper folder.
            mount::bind(upper.0, &rootfs, false)
        } else {
            let layers = mount::Overlay { lower: &lower, upper: Some(upper), newest: Handing::default() };
            mount::overlay(&layers, &rootfs)
        };
        mounted.map_err(OpError::failed("mount the root file system"))?;
        Ok(OciRuntimeRequest {
            id: row.id.clone(),
            spec: (*spec).clone(),
            runtime: self.runtime.clone(),
            root: self.root(ctx),
            bundle,
            log_path: container::log_path(container),
            tty: container.config.tty,
            stdin: container.config.stdin,
            stdin_once: container.config.stdin_once,
        })
    }
}

/// The bundle that a container's hooks are told, if it has hooks. Blocks.
pub(crate) fn bundle_of_hooks(ctx: &Context, container: &Container) -> Result<Option<PathBuf>, OpError> {
    let spec = container.spec();
    if spec.hooks().is_none() {
        return Ok(None);
    }
    let bundle = ctx.container_dir(container.id()).join("bundle");
    ctx.make_container_dir(container.id())
        .and_then(|()| fs::create_dir_all(&bundle))
        .and_then(|()| fs::write(bundle.join("config.json"), serde_json::to_vec(&*spec)?))
        .map_err(OpError::failed("make the OCI bundle"))?;
    Ok(Some(bundle))
}

/// What a supervisor that died may have left: the runtime forgets the container. Blocks.
pub(crate) fn release(ctx: &Context, container: &Container) -> Result<(), OpError> {
    let Some(oci_runtime) = ctx.oci_runtime(container) else { return Ok(()) };
    let root = oci_runtime.root(ctx);
    let state = root.join(container.id().as_str());
    if !state.exists() {
        return Ok(());
    }
    let deleted = Command::new(&oci_runtime.runtime)
        .arg("--root")
        .arg(&root)
        .args(["delete", "--force", container.id()])
        .stdin(Stdio::null())
        .output()
        .map_err(OpError::failed("run the OCI runtime"))?;
    if !deleted.status.success() && state.exists() {
        let said = String::from_utf8_lossy(&deleted.stderr).trim().to_owned();
        return Err(OpError::failed("delete the container of the OCI runtime")(io::Error::other(said)));
    }
    Ok(())
}

/// The process of an exec in the runtime specification's words.
pub(crate) fn process(container: &Container, argv: Vec<String>, tty: bool) -> Result<String, OpError> {
    let spec = container.spec();
    let mut process = spec.process().clone().unwrap_or_default();
    process.set_args(Some(argv));
    process.set_terminal(Some(tty));
    if tty {
        let mut env = process.env().clone().unwrap_or_default();
        if !env.iter().any(|pair| pair.starts_with("TERM=")) {
            env.push("TERM=xterm".to_owned());
        }
        process.set_env(Some(env));
    }
    serde_json::to_string(&process).map_err(OpError::failed("write the process"))
}
