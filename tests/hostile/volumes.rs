//! Volumes that mean harm: links, pipes and depths that a container leaves for those who work on its files as root.

use std::fs;

use anyhow::{Context, Result, ensure};
use podwire_image::{
    build::{ImageBuilder, LayerBuilder, header},
    tar::{Header, Kind},
};
use serde_json::{Value, json};

use crate::{
    on_node::{BOX, Fate, OnNode, etc},
    row::{Outcome, Row, row},
};

/// The rows.
pub const ROWS: &[Row<OnNode>] = &[
    row("a container writes into a secret", "the volume is read-only", |node: &OnNode| {
        object(node, "secrets", json!({"kind": "Secret", "stringData": {"key": "value"}}))?;
        let script = "(echo x > /v/key) 2>/dev/null && echo ESCAPED: written; (touch /v/new) 2>/dev/null && echo ESCAPED: made; echo PROBED";
        with_volume(node, json!({"secret": {"secretName": "hostile"}}), script, json!({}))
    })
    .broken_before(),
    row("a container takes the links of a config map away and plants its own", "the volume is read-only", |node: &OnNode| {
        object(node, "configmaps", json!({"kind": "ConfigMap", "data": {"key": "value"}}))?;
        let script = "(rm /v/..data) 2>/dev/null && echo ESCAPED: removed; (mv /v/..2* /v/moved) 2>/dev/null && echo ESCAPED: moved\n\
            (ln -s /tmp /v/..data_tmp) 2>/dev/null && echo ESCAPED: planted; echo PROBED";
        with_volume(node, json!({"configMap": {"name": "hostile"}}), script, json!({}))
    })
    .broken_before(),
    row("the same in projected and downward API volumes", "the volumes are read-only", |node: &OnNode| {
        object(node, "configmaps", json!({"kind": "ConfigMap", "data": {"key": "value"}}))?;
        let script = "(touch /v/x) 2>/dev/null && echo ESCAPED; (rm -r /v/..data) 2>/dev/null && echo ESCAPED; echo PROBED";
        let field = json!({"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]});
        with_volume(node, json!({"downwardAPI": field}), script, json!({}))?;
        with_volume(node, json!({"projected": {"sources": [{"configMap": {"name": "hostile"}}]}}), script, json!({}))
    })
    .broken_before(),
    row("a key of a config map becomes a FIFO before it changes", "the pod can be deleted; other pods start", |node: &OnNode| {
        object(node, "configmaps", json!({"kind": "ConfigMap", "data": {"key": "value"}}))?;
        let script = "(rm /v/..data && mkdir /v/mine && mkfifo -m 644 /v/mine/key && ln -s mine /v/..data) 2>/dev/null; echo READY; trap 'exit 0' TERM; while :; do sleep 0.1; done";
        let volumes = json!({"volumes": [{"name": "v", "configMap": {"name": "hostile"}}]});
        let name = node.running(node.script_with(script, volumes, mounted()))?;
        let ready = podwire_testkit::eventually("the pipe is there", crate::on_node::PATIENCE, || match node.log(&name) {
            Ok(log) if log.contains("READY") => Ok(()),
            other => Err(format!("{other:?}")),
        });
        object(node, "configmaps", json!({"kind": "ConfigMap", "data": {"key": "other"}}))?;
        // A change of the pod makes the kubelet look at it at once.
        let patch = json!({"metadata": {"annotations": {"look": "now"}}}).to_string();
        let path = format!("{}/{name}", crate::on_node::PODS);
        node.api.ask(&node.api.admin, "PATCH", &path, &[("Content-Type", "application/merge-patch+json")], patch.as_bytes())?;
        let other = node.fate(node.script("echo PROBED"));
        let removed = node.remove(&name);
        ready?;
        other?.harmless()?;
        removed?;
        Ok("deleted, and another pod ran meanwhile".to_owned())
    })
    .broken_before(),
    row("subPath is a link to the host's root", "refused, or what it leads to in the volume", |node: &OnNode| {
        sub_path(node, "ln -s / /v/way", json!({"subPath": "way"}))
    }),
    row("subPath goes through a link to a host's folder", "refused, or what it leads to in the volume", |node: &OnNode| {
        let folder = node.host.path().display().to_string();
        sub_path(node, &format!("ln -s {folder} /v/way; mkdir /v/x; ln -s ../way /v/x/y"), json!({"subPath": "x/y"}))
    }),
    row("subPath climbs through a link and ..", "refused", |node: &OnNode| {
        sub_path(node, "ln -s ../../../../../../../../../.. /v/way", json!({"subPath": "way/tmp"}))
    }),
    row("subPath with .., absolute, or from an environment variable", "refused", |node: &OnNode| {
        for field in [json!({"subPath": "../../x"}), json!({"subPath": "/etc"})] {
            refused_volume(node, json!({"emptyDir": {}}), field)?;
        }
        let mut container = mounted();
        container["env"] = json!([{"name": "UP", "value": "../../../../../../.."}]);
        container["volumeMounts"][0]["subPathExpr"] = json!("$(UP)/tmp");
        let spec = json!({"volumes": [{"name": "v", "emptyDir": {}}]});
        node.fate(node.script_with("ls /v; echo PROBED", spec, container))?.refused("subPath")
    }),
    row("subPath is a FIFO", "mounted as it is or refused, within seconds", |node: &OnNode| {
        sub_path(node, "mkfifo /v/way", json!({"subPath": "way"}))
    }),
    row("subPath is swapped between a folder and a link while containers start", "never the host's", |node: &OnNode| {
        let swap = "mkdir /v/way; (for n in $(seq 3000); do mv /v/way /v/was; ln -s / /v/way; rm /v/way; mv /v/was /v/way; done) & sleep 2; wait";
        let probe = format!("[ -e /s{} ] && echo ESCAPED; echo PROBED", node.marker());
        let mut containers = vec![json!({"name": "main", "image": BOX, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", swap],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]})];
        for number in 0..6 {
            containers.push(json!({"name": format!("try{number}"), "image": BOX, "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-c", probe], "volumeMounts": [{"name": "v", "mountPath": "/s", "subPath": "way"}]}));
        }
        let spec = json!({"volumes": [{"name": "v", "emptyDir": {}}], "containers": containers});
        let pod = node.script_with("", spec, json!({}));
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        node.api.must("POST", crate::on_node::PODS, Some(&pod))?;
        let settled = node.until(&name, "has tried", |pod| {
            let all = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
            let done = |one: &Value| !one["state"]["terminated"].is_null() || one["state"]["waiting"]["reason"].as_str().is_some_and(|word| word.contains("Err"));
            all.len() == 7 && all.iter().filter(|one| one["name"] != "main").all(done)
        });
        let mut seen = String::new();
        for number in 0..6 {
            let path = format!("{}/{name}/log?container=try{number}", crate::on_node::PODS);
            seen += &String::from_utf8_lossy(&node.api.admin("GET", &path, None)?.body);
        }
        node.remove(&name)?;
        settled?;
        ensure!(!seen.contains("ESCAPED"), "the host's root was mounted");
        Ok(format!("{} of 6 started", seen.matches("PROBED").count()))
    }),
    row("links to the host in an emptyDir when the pod goes", "the links go, what they lead to stays", |node: &OnNode| {
        let folder = node.host.path().display().to_string();
        let script = format!("ln -s {folder} /v/a; ln -s {folder}/marker /v/b; ln -s / /v/c; echo PROBED");
        let told = with_volume(node, json!({"emptyDir": {}}), &script, json!({}))?;
        ensure!(fs::read_dir(node.host.path())?.count() >= 1, "the host's folder was emptied");
        Ok(told)
    }),
    row("a folder as deep as a path can be in an emptyDir when the pod goes", "it goes whole", |node: &OnNode| {
        let script = "cd /v; n=0; while [ $n -lt 2000 ]; do mkdir dddddddddd && cd dddddddddd || break; n=$((n+1)); done; echo levels $n; echo PROBED";
        with_volume(node, json!({"emptyDir": {}}), script, json!({}))
    }),
    row("devices made in an emptyDir", "cannot be opened", |node: &OnNode| {
        let script = "mknod /v/mem c 1 1; mknod /v/disk b 8 0; for at in mem disk; do (: < /v/$at) 2>/dev/null && echo ESCAPED $at; done; echo PROBED";
        with_volume(node, json!({"emptyDir": {}}), script, json!({}))
    }),
    row("an emptyDir in memory with a limit is overfilled", "no space left, in the volume only", |node: &OnNode| {
        let script = "dd if=/dev/zero of=/v/x bs=1M count=20 2>&1 | grep -q 'No space' || echo ESCAPED: 20 MB went in; echo PROBED";
        with_volume(node, json!({"emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}}), script, json!({}))
    }),
    row("a volume mounted on /proc, below it, and on /proc/self/attr", "refused, or the kernel's files are as ever", |node: &OnNode| {
        for path in ["/proc", "/proc/self", "/proc/self/attr", "/proc/sys", "/proc/self/../sys"] {
            let mut container = mounted();
            container["volumeMounts"][0]["mountPath"] = json!(path);
            let script = "[ -e /proc/self/stat ] || echo ESCAPED: this is no procfs; (: >> /proc/sys/kernel/core_pattern) 2>/dev/null && echo ESCAPED; echo PROBED";
            let spec = json!({"volumes": [{"name": "v", "emptyDir": {}}]});
            node.fate(node.script_with(script, spec, container))?.harmless().with_context(|| path)?;
        }
        Ok("each is refused or harmless".to_owned())
    })
    .broken_before(),
    row("the image's mount point is a link to the host", "the volume is mounted in the container's root", |node: &OnNode| {
        let folder = node.host.path().display().to_string();
        let image = node.on_tools(&etc().symlink("v", &folder).symlink("w", &format!("{}{folder}", "../".repeat(12))))?;
        let mut pod = node.pod(&image, "touch /v/evil /w/evil 2>/dev/null; [ -e /v/marker ] && echo ESCAPED; echo PROBED");
        pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/w"}]);
        let told = node.fate(pod)?.harmless()?;
        ensure!(!node.host.path().join("evil").exists(), "the container wrote on the host");
        Ok(told)
    }),
    row("an image as volume with links, devices and set-uid programs", "read-only; links stay inside; devices cannot be opened", |node: &OnNode| {
        let device = Header { mode: 0o666, device: (1, 1), ..header("mem", Kind::CharDevice) };
        let layer = LayerBuilder::new().symlink("host", "/").entry(device, Vec::new()).dir("sub", 0o755);
        let layer = layer.symlink("sub/way", &node.host.path().display().to_string()).file("su", "x", 0o4755);
        let name = format!("localhost/{}:latest", node.fresh());
        node.image(&name, &ImageBuilder::new().layer(&layer))?;
        let script = format!("(touch /v/x) 2>/dev/null && echo ESCAPED: written; (: < /v/mem) 2>/dev/null && echo ESCAPED: device; [ -e /v/host{0} ] && echo ESCAPED; echo PROBED", node.marker());
        let source = json!({"image": {"reference": name, "pullPolicy": "Never"}});
        with_volume(node, source.clone(), &script, json!({}))?;
        let script = format!("ls /v; [ -e /v/marker ] && echo ESCAPED; [ -e /v{} ] && echo ESCAPED; echo PROBED", node.marker());
        for sub in ["host", "sub/way", "host/tmp"] {
            with_volume(node, source.clone(), &script, json!({"subPath": sub}))?;
        }
        Ok("read-only, and nothing of the host".to_owned())
    }),
    row("hostPath with .., a wrong type, and of what is not there", "refused with the reason", |node: &OnNode| {
        refused_volume(node, json!({"hostPath": {"path": "/tmp/../etc"}}), json!({}))?;
        refused_volume(node, json!({"hostPath": {"path": node.marker(), "type": "Directory"}}), json!({}))?;
        refused_volume(node, json!({"hostPath": {"path": "/does/not/exist", "type": "Socket"}}), json!({}))
    }),
    row("mount propagation to the host from an ordinary container", "refused", |node: &OnNode| {
        refused_volume(node, json!({"emptyDir": {}}), json!({"mountPropagation": "Bidirectional"}))
    }),
    row("keys and paths that climb in configMap, secret, downwardAPI and token volumes", "refused", |node: &OnNode| {
        for volume in [
            json!({"configMap": {"name": "hostile", "items": [{"key": "key", "path": "../x"}]}}),
            json!({"configMap": {"name": "hostile", "items": [{"key": "key", "path": "/etc/x"}]}}),
            json!({"configMap": {"name": "hostile", "items": [{"key": "key", "path": "..data"}]}}),
            json!({"secret": {"secretName": "hostile", "items": [{"key": "key", "path": "a/../../x"}]}}),
            json!({"downwardAPI": {"items": [{"path": "../x", "fieldRef": {"fieldPath": "metadata.name"}}]}}),
            json!({"projected": {"sources": [{"serviceAccountToken": {"path": "../../token"}}]}}),
        ] {
            refused_volume(node, volume, json!({}))?;
        }
        for key in ["..", "../x", "a/b"] {
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": node.fresh()}, "data": {key: "x"}});
            let answer = node.api.admin("POST", "/api/v1/namespaces/default/configmaps", Some(&body))?;
            ensure!(answer.status == 422, "{key}: {}", answer.brief());
        }
        Ok("each is refused".to_owned())
    }),
    row("a file of a host's folder is mounted over /dev/termination-log and /etc/hosts", "the host's file stays as it is", |node: &OnNode| {
        let path = node.host.path().display().to_string();
        for at in ["/dev/termination-log", "/etc/hosts", "/etc/hostname"] {
            let mut container = mounted();
            container["volumeMounts"] = json!([{"name": "v", "mountPath": at, "subPath": "marker", "readOnly": true}]);
            let spec = json!({"volumes": [{"name": "v", "hostPath": {"path": path}}]});
            node.fate(node.script_with("echo PROBED", spec, container))?.harmless()?;
        }
        Ok("untouched".to_owned())
    }),
];

fn mounted() -> Value {
    json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]})
}

/// Creates or replaces an object `hostile`.
fn object(node: &OnNode, resource: &str, mut body: Value) -> Result<()> {
    body["apiVersion"] = json!("v1");
    body["metadata"] = json!({"name": "hostile"});
    let path = format!("/api/v1/namespaces/default/{resource}");
    let answer = node.api.admin("POST", &path, Some(&body))?;
    if answer.status == 409 {
        node.api.must("PUT", &format!("{path}/hostile"), Some(&body))?;
    } else {
        ensure!(answer.status == 201, "{}", answer.brief());
    }
    Ok(())
}

/// A script beside a volume at `/v`, its mount with more fields.
fn volume_fate(node: &OnNode, mut source: Value, script: &str, field: Value) -> Result<Fate> {
    source["name"] = json!("v");
    let mut container = mounted();
    crate::on_node::merge(&mut container["volumeMounts"][0], field);
    node.fate(node.script_with(script, json!({"volumes": [source]}), container))
}

fn with_volume(node: &OnNode, source: Value, script: &str, field: Value) -> Outcome {
    volume_fate(node, source, script, field)?.harmless()
}

fn refused_volume(node: &OnNode, source: Value, field: Value) -> Outcome {
    volume_fate(node, source, "echo PROBED", field)?.refused("")
}

/// An init container prepares a volume, and the next one mounts a part of it.
fn sub_path(node: &OnNode, prepare: &str, field: Value) -> Outcome {
    let first = json!([{"name": "first", "image": BOX, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", prepare],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]);
    let mut container = mounted();
    crate::on_node::merge(&mut container["volumeMounts"][0], field);
    let script = format!(
        "[ -e /v/marker ] && echo ESCAPED; [ -e /v{0} ] && echo ESCAPED; [ -e /v/../{0} ] && echo ESCAPED; echo PROBED",
        node.marker()
    );
    let spec = json!({"initContainers": first, "volumes": [{"name": "v", "emptyDir": {}}]});
    node.fate(node.script_with(&script, spec, container))?.harmless()
}
