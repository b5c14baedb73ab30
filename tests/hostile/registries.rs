//! Registries that mean harm: what they send, what they ask for, and where they point.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use podwire_image::build::{Built, Compression, ImageBuilder};
use podwire_testkit::images::digest;
use podwire_wire::cri::{self, image_service_client::ImageServiceClient};
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::{
    liar::{Liar, Reply, Request, challenge, honest, manifest, redirect},
    on_node::{Fate, OnNode, etc, tools},
    row::{Outcome, Row, World, row},
};

/// What must never be heard by anybody but its owner: `user:hidden` as Basic authentication, and its token.
const BASIC: &str = "dXNlcjpoaWRkZW4=";
const TOKEN: &str = "identity-of-user";

/// A node whose pulls are looked at from the registry's side.
pub struct WithRegistries {
    node: OnNode,
    certs: PathBuf,
    images: ImageServiceClient<Channel>,
    tokio: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

impl World for WithRegistries {
    fn make() -> Result<WithRegistries> {
        let folder = tempfile::tempdir()?;
        let certs = folder.path().join("certs.d");
        fs::create_dir_all(&certs)?;
        let node = OnNode::on("256m", &["--registry-config", &certs.display().to_string()])?;
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = tokio.enter();
        let images =
            ImageServiceClient::new(podwire_wire::unix::channel(node.names.run_dir.join("cri.sock")));
        drop(inside);
        Ok(WithRegistries { node, certs, images, tokio, _folder: folder })
    }

    fn well(&self) -> Result<()> {
        self.node.well()
    }

    fn sound(&self) -> Result<()> {
        self.node.sound()
    }

    fn end(self) -> Result<()> {
        self.node.end()
    }

    fn destroy(self) {
        self.node.destroy();
    }
}

impl WithRegistries {
    /// Lets the node speak plain HTTP with a registry; more lines of its settings may name mirrors.
    fn trust(&self, registry: &Liar, more: &str) -> Result<()> {
        let folder = self.certs.join(registry.address.to_string());
        fs::create_dir_all(&folder)?;
        Ok(fs::write(folder.join("hosts.toml"), format!("server = \"http://{}\"\n{more}", registry.address))?)
    }

    /// Pulls `x:1` of a registry with credentials; what the node said.
    fn pull(&self, registry: &Liar, auth: Option<cri::AuthConfig>) -> Result<String, tonic::Status> {
        self.pull_as(&format!("{}/x:1", registry.address), auth)
    }

    fn pull_as(&self, name: &str, auth: Option<cri::AuthConfig>) -> Result<String, tonic::Status> {
        let image = Some(cri::ImageSpec { image: name.to_owned(), ..Default::default() });
        let request = cri::PullImageRequest { image, auth, sandbox_config: None };
        let mut images = self.images.clone();
        self.tokio.block_on(async {
            match tokio::time::timeout(Duration::from_secs(14), images.pull_image(request)).await {
                Ok(answer) => answer.map(|answer| answer.into_inner().image_ref),
                Err(_) => Err(tonic::Status::deadline_exceeded("no answer within 14 s")),
            }
        })
    }

    /// A pull of what this liar serves must fail, in time, and say why.
    fn refused(&self, answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Outcome {
        let registry = Liar::listen(answer)?;
        self.trust(&registry, "")?;
        self.is_refused(self.pull(&registry, None))
    }

    fn is_refused(&self, pulled: Result<String, tonic::Status>) -> Outcome {
        match pulled {
            Ok(image) => bail!("it was pulled: {image}"),
            Err(status) if status.code() == tonic::Code::DeadlineExceeded => bail!("{}", status.message()),
            Err(status) => Ok(format!("refused: {}", status.message())),
        }
    }
}

fn user(registry: &Liar) -> cri::AuthConfig {
    let server_address = registry.address.to_string();
    cri::AuthConfig {
        username: "user".into(),
        password: "hidden".into(),
        server_address,
        ..Default::default()
    }
}

/// An image that the node has no part of yet.
fn image() -> Result<Built> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let unique = format!("number {}", NEXT.fetch_add(1, Ordering::Relaxed));
    Ok(ImageBuilder::new().layer(&tools()?.dir("etc", 0o755).file("etc/unique", unique, 0o644)).build())
}

/// An image whose manifest was changed.
fn changed(change: impl FnOnce(&mut Value)) -> Result<Built> {
    let mut image = image()?;
    let mut value: Value = serde_json::from_slice(&image.manifest)?;
    change(&mut value);
    image.manifest = value.to_string().into_bytes();
    Ok(image)
}

/// Nobody but the registry may have heard a credential.
fn unheard(other: &Liar, told: &str) -> Outcome {
    let heard = other.heard();
    ensure!(!heard.contains(BASIC) && !heard.contains(TOKEN), "the other host was told the credentials");
    Ok(format!("{} requests to the other host, no credentials; {told}", heard.matches("HTTP/1.1").count()))
}

fn say(pulled: &Result<String, tonic::Status>) -> String {
    match pulled {
        Ok(image) => format!("pulled {}", image.chars().take(20).collect::<String>()),
        Err(status) => format!("the pull said: {}", status.message()),
    }
}

/// The rows.
pub const ROWS: &[Row<WithRegistries>] = &[
    row(
        "a 401 names a realm on another host over plain HTTP",
        "the password does not go there",
        |world: &WithRegistries| {
            let other = Liar::elsewhere(|_| Reply::Full(200, Vec::new(), br#"{"token":"t"}"#.to_vec()))?;
            let words = format!("Bearer realm=\"http://{}/token\",service=\"x\"", other.address);
            let registry = Liar::listen(move |_| challenge(&words))?;
            world.trust(&registry, "")?;
            let pulled = world.pull(&registry, Some(user(&registry)));
            unheard(&other, &say(&pulled))
        },
    )
    .broken_before(),
    row("the same with an identity token", "the token does not go there", |world: &WithRegistries| {
        let other = Liar::elsewhere(|_| Reply::Full(200, Vec::new(), br#"{"token":"t"}"#.to_vec()))?;
        let words = format!("Bearer realm=\"http://{}/token\",service=\"x\"", other.address);
        let registry = Liar::listen(move |_| challenge(&words))?;
        world.trust(&registry, "")?;
        let auth = cri::AuthConfig {
            identity_token: TOKEN.into(),
            server_address: registry.address.to_string(),
            ..Default::default()
        };
        let pulled = world.pull(&registry, Some(auth));
        unheard(&other, &say(&pulled))
    })
    .broken_before(),
    row(
        "a token's address redirects to another host",
        "the password does not go there",
        |world: &WithRegistries| {
            let other = Liar::elsewhere(|_| Reply::Full(200, Vec::new(), br#"{"token":"t"}"#.to_vec()))?;
            let to = format!("http://{}/token", other.address);
            let registry = Liar::listen(move |request| {
                if request.path.starts_with("/token") {
                    return redirect(&to);
                }
                let host = request
                    .text
                    .to_ascii_lowercase()
                    .split("host: ")
                    .nth(1)
                    .and_then(|rest| rest.split_whitespace().next().map(str::to_owned));
                challenge(&format!("Bearer realm=\"http://{}/token\"", host.unwrap_or_default()))
            })?;
            world.trust(&registry, "")?;
            let pulled = world.pull(&registry, Some(user(&registry)));
            unheard(&other, &say(&pulled))
        },
    ),
    row("a blob redirects to another host", "it is asked without credentials", |world: &WithRegistries| {
        let made = image()?;
        let copy = made.clone();
        let other = Liar::elsewhere(move |request| honest(&copy, request))?;
        let to = other.address;
        let registry = Liar::listen(move |request| {
            if !request.text.contains(BASIC) {
                return challenge("Basic realm=\"x\"");
            }
            if request.path.contains("/blobs/") {
                redirect(&format!("http://{to}{}", request.path))
            } else {
                honest(&made, request)
            }
        })?;
        world.trust(&registry, "")?;
        let pulled = world.pull(&registry, Some(user(&registry)));
        unheard(&other, &say(&pulled))
    }),
    row("the host behind a redirect asks for a password", "it does not get it", |world: &WithRegistries| {
        let other = Liar::elsewhere(|_| challenge("Basic realm=\"x\""))?;
        let to = format!("http://{}/v2/x/manifests/1", other.address);
        let registry = Liar::listen(move |_| redirect(&to))?;
        world.trust(&registry, "")?;
        let pulled = world.pull(&registry, Some(user(&registry)));
        unheard(&other, &say(&pulled))
    }),
    row("a mirror asks for the registry's password", "it does not get it", |world: &WithRegistries| {
        let other = Liar::elsewhere(|_| challenge("Basic realm=\"x\""))?;
        let made = image()?;
        let registry = Liar::listen(move |request| honest(&made, request))?;
        let mirror = format!("[host.\"http://{}\"]\ncapabilities = [\"pull\", \"resolve\"]\n", other.address);
        world.trust(&registry, &mirror)?;
        let pulled = world.pull(&registry, Some(user(&registry)));
        unheard(&other, &say(&pulled))
    })
    .broken_before(),
    row(
        "a layer names its own addresses",
        "they are not asked, least of all with credentials",
        |world: &WithRegistries| {
            let other = Liar::elsewhere(|_| challenge("Basic realm=\"x\""))?;
            let url = format!("http://{}/layer", other.address);
            let made = changed(|manifest| {
                manifest["layers"][0]["urls"] = json!([url]);
                manifest["layers"][0]["mediaType"] =
                    json!("application/vnd.oci.image.layer.nondistributable.v1.tar");
            })?;
            let registry = Liar::listen(move |request| {
                if request.path.contains("/blobs/") {
                    crate::liar::not_found()
                } else {
                    honest(&made, request)
                }
            })?;
            world.trust(&registry, "")?;
            let pulled = world.pull(&registry, Some(user(&registry)));
            unheard(&other, &say(&pulled))
        },
    ),
    row(
        "a wrong password beside a pull with the right one",
        "refused, although the other pull is under way",
        wrong_password,
    )
    .broken_before(),
    row("a layer of other bytes than its digest", "refused", |world: &WithRegistries| {
        let (made, mut other) = (image()?, image()?);
        other.layers[0].0.reverse();
        world.refused(move |request| {
            if request.path.contains(&digest(&made.layers[0].0)) {
                return Reply::Full(200, Vec::new(), other.layers[0].0.clone());
            }
            honest(&made, request)
        })
    }),
    row(
        "a layer that unpacks to other bytes than the configuration says",
        "refused",
        |world: &WithRegistries| {
            let mut made = image()?;
            let mut config: Value = serde_json::from_slice(&made.config)?;
            config["rootfs"]["diff_ids"][0] = json!(format!("sha256:{}", "1".repeat(64)));
            made.config = config.to_string().into_bytes();
            let mut value: Value = serde_json::from_slice(&made.manifest)?;
            value["config"]["digest"] = json!(digest(&made.config));
            value["config"]["size"] = json!(made.config.len());
            made.manifest = value.to_string().into_bytes();
            world.refused(move |request| honest(&made, request))
        },
    ),
    row("another manifest than the digest that was asked for", "refused", |world: &WithRegistries| {
        let made = image()?;
        let registry = Liar::listen(move |request| {
            if request.path.contains("/manifests/") {
                let headers = vec![
                    "Content-Type: application/vnd.oci.image.manifest.v1+json".into(),
                    format!("Docker-Content-Digest: sha256:{}", "2".repeat(64)),
                ];
                return Reply::Full(200, headers, made.manifest.clone());
            }
            honest(&made, request)
        })?;
        world.trust(&registry, "")?;
        let name = format!("{}/x@sha256:{}", registry.address, "2".repeat(64));
        world.is_refused(world.pull_as(&name, None))
    }),
    row("a manifest whose sizes are wrong", "refused", |world: &WithRegistries| {
        for size in [1_u64, 1 << 60] {
            let made = changed(|manifest| manifest["layers"][0]["size"] = json!(size))?;
            world.refused(move |request| honest(&made, request))?;
        }
        let made = changed(|manifest| manifest["config"]["size"] = json!(-1))?;
        world.refused(move |request| honest(&made, request))
    }),
    row("a manifest without end", "refused; little memory", |world: &WithRegistries| {
        world.refused(|_| {
            Reply::Endless(vec!["Content-Type: application/vnd.oci.image.manifest.v1+json".into()])
        })
    }),
    row("a layer without end", "refused; little memory and disk", |world: &WithRegistries| {
        let made = changed(|manifest| manifest["layers"][0]["size"] = json!(5000))?;
        world.refused(move |request| {
            let layer = request.path.contains("/blobs/") && !request.path.contains(&digest(&made.config));
            if layer { Reply::Endless(Vec::new()) } else { honest(&made, request) }
        })
    }),
    row("a redirect to itself", "refused after a few steps", |world: &WithRegistries| {
        world.refused(|request| redirect(&request.path))
    }),
    row("redirects to files and to other protocols", "refused", |world: &WithRegistries| {
        for to in ["file:///etc/passwd", "ftp://127.0.0.1/", "//", "http://", "http://[::1", "javascript:x"] {
            world.refused(move |_| redirect(to))?;
        }
        Ok("each is refused".to_owned())
    }),
    row(
        "a gzip layer that unpacks to more than the disk",
        "refused; the disk is free again",
        |world: &WithRegistries| {
            let made = gzip_bomb()?;
            // Little room is as good as a large bomb.
            let ballast = world.node.disk().path().join("ballast");
            let size = free(world)?.saturating_sub(32 << 20);
            let file = fs::File::create(&ballast)?;
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size)?;
            let before = free(world)?;
            let told = world.refused(move |request| honest(&made, request));
            let after = podwire_testkit::eventually("the disk is free again", Duration::from_secs(5), || {
                let now = free(world).map_err(|error| error.to_string())?;
                if now + (8 << 20) > before {
                    Ok(())
                } else {
                    Err(format!("{now} bytes free, {before} before"))
                }
            });
            drop(file);
            fs::remove_file(ballast)?;
            let told = told?;
            after?;
            Ok(told)
        },
    ),
    row("a zstd layer that wants a window of 2 GB", "refused; little memory", |world: &WithRegistries| {
        let mut bytes = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8];
        for _ in 0..20_000 {
            // A block of 128 KiB of one byte.
            bytes.extend_from_slice(&[0x02, 0x00, 0x10, 0x00]);
        }
        let unique = etc().file("etc/windows", "2 GB", 0o644);
        let named = Compression::Zstd(<[u8]>::to_vec);
        let mut made = ImageBuilder::new().compression(named).layer(&unique).build();
        made.layers[0].0 = bytes;
        let mut value: Value = serde_json::from_slice(&made.manifest)?;
        value["layers"][0]["digest"] = json!(digest(&made.layers[0].0));
        value["layers"][0]["size"] = json!(made.layers[0].0.len());
        made.manifest = value.to_string().into_bytes();
        world.refused(move |request| honest(&made, request))
    }),
    row("a registry that says nothing", "other pulls go on meanwhile", |world: &WithRegistries| {
        let silent = Liar::listen(|_| Reply::Silence)?;
        world.trust(&silent, "")?;
        let name = format!("{}/x:1", silent.address);
        let mut images = world.images.clone();
        let request = cri::PullImageRequest {
            image: Some(cri::ImageSpec { image: name, ..Default::default() }),
            ..Default::default()
        };
        let first = world.tokio.spawn(async move { images.pull_image(request).await.map(drop) });
        let made = image()?;
        let registry = Liar::listen(move |request| honest(&made, request))?;
        world.trust(&registry, "")?;
        let pulled = world.pull(&registry, None);
        first.abort();
        ensure!(pulled.is_ok(), "{}", say(&pulled));
        Ok(say(&pulled))
    }),
    row("an index in an index in an index, fifty deep", "refused", |world: &WithRegistries| {
        let mut documents = vec![image()?.manifest];
        for _ in 0..50 {
            let inner = documents.last().context("a document")?;
            let kind = if documents.len() == 1 {
                "application/vnd.oci.image.manifest.v1+json"
            } else {
                "application/vnd.oci.image.index.v1+json"
            };
            let outer = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                "manifests": [{"mediaType": kind, "digest": digest(inner), "size": inner.len(), "platform": {"architecture": "amd64", "os": "linux"}}]});
            documents.push(outer.to_string().into_bytes());
        }
        world.refused(move |request| {
            let asked = documents.iter().find(|one| request.path.contains(&digest(one)));
            let bytes = asked.or(documents.last()).cloned().unwrap_or_default();
            let kind = serde_json::from_slice::<Value>(&bytes).unwrap_or_default()["mediaType"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            Reply::Full(
                200,
                vec![format!("Content-Type: {kind}"), format!("Docker-Content-Digest: {}", digest(&bytes))],
                bytes,
            )
        })
    }),
    row("a manifest of ten thousand layers", "refused", |world: &WithRegistries| {
        let made = changed(|manifest| {
            let layer = manifest["layers"][0].clone();
            manifest["layers"] = json!(vec![layer; 10_000]);
        })?;
        world.refused(move |request| honest(&made, request))
    }),
    row("a document that is manifest and index at once", "refused", |world: &WithRegistries| {
        let made = changed(|value| {
            let layer = value["layers"][0].clone();
            value["manifests"] = json!([layer]);
        })?;
        world.refused(move |request| honest(&made, request))
    }),
    row("a manifest of nested lists, and one of 20 MB", "refused", |world: &WithRegistries| {
        let deep = format!("{{\"schemaVersion\":2,\"layers\":{}{}}}", "[".repeat(50_000), "]".repeat(50_000))
            .into_bytes();
        world.refused(move |_| manifest(&deep))?;
        let large = format!("{{\"schemaVersion\":2,\"x\":\"{}\"}}", "x".repeat(20 << 20)).into_bytes();
        let kind = vec!["Content-Type: application/vnd.oci.image.manifest.v1+json".to_owned()];
        world.refused(move |_| Reply::Full(200, kind.clone(), large.clone()))
    }),
    row("headers of a megabyte", "refused", |world: &WithRegistries| {
        world.refused(|_| Reply::Full(200, vec![format!("X: {}", "x".repeat(1 << 20))], Vec::new()))
    }),
];

/// The bytes free on the node's disk.
fn free(world: &WithRegistries) -> Result<u64> {
    let stat = rustix::fs::statvfs(&world.node.node.data_dir)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// One file of 64 MB of zeros, packed by the machine's own gzip: an unoptimised build takes long for it.
fn gzip_bomb() -> Result<Built> {
    let zeros = podwire_testkit::images::Files::default().file("zeros", vec![0; 64 << 20], 0o644);
    let layer = podwire_testkit::images::Layer::large(&zeros)?;
    let made = podwire_testkit::images::Image::new(&["x:1"], &layer, &json!({}))?;
    let blobs: Vec<Vec<u8>> = made.blobs.iter().map(|(_, bytes)| bytes.to_vec()).collect();
    let mut built = ImageBuilder::new().build();
    built.config = blobs[0].clone();
    built.layers = vec![(blobs[1].clone(), "application/vnd.oci.image.layer.v1.tar+gzip")];
    built.manifest = made.manifest;
    Ok(built)
}

/// Two pods of one user with two passwords, one of them right.
fn wrong_password(world: &WithRegistries) -> Outcome {
    let made = image()?;
    let registry = Liar::listen(move |request| {
        if !request.text.contains(BASIC) {
            return challenge("Basic realm=\"x\"");
        }
        if request.path.contains("/blobs/") {
            std::thread::sleep(Duration::from_secs(2));
        }
        honest(&made, request)
    })?;
    world.trust(&registry, "")?;
    let node = &world.node;
    let (good, bad) = (node.fresh(), node.fresh());
    for (name, password) in [(&good, "hidden"), (&bad, "wrong")] {
        let config =
            json!({"auths": {registry.address.to_string(): {"username": "user", "password": password}}});
        let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": config.to_string()}});
        node.api.must("POST", "/api/v1/namespaces/default/secrets", Some(&body))?;
    }
    let name = format!("{}/x:1", registry.address);
    let pod = |secret: &str| {
        let mut pod = node.pod(&name, "echo PROBED");
        pod["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
        pod["spec"]["imagePullSecrets"] = json!([{"name": secret}]);
        pod
    };
    let first = pod(&good);
    let first_name = first["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    node.api.must("POST", crate::on_node::PODS, Some(&first))?;
    let begun = podwire_testkit::eventually("the first pull is under way", Duration::from_secs(10), || {
        if registry.heard().contains("/blobs/") { Ok(()) } else { Err(registry.heard()) }
    });
    let second = node.fate(pod(&bad));
    let done = node.until(&first_name, "has run", |pod| pod["status"]["phase"] == "Succeeded");
    node.remove(&first_name)?;
    begun?;
    match second? {
        Fate::Ended { .. } => bail!("the pod with the wrong password got the image"),
        Fate::Refused(why) | Fate::Stuck(why) => {
            done?;
            Ok(format!("refused: {why}"))
        }
    }
}
