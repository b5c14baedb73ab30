//! Rules of security contexts, of pods and of containers.

use serde_json::Value;

use super::super::error::{Errors, Internal, Seen, list, text};
use crate::path::Path;

const CONTEXT: &[(&str, &str)] = &[
    ("Capabilities", "capabilities"),
    ("Privileged", "privileged"),
    ("SELinuxOptions", "seLinuxOptions"),
    ("WindowsOptions", "windowsOptions"),
    ("RunAsUser", "runAsUser"),
    ("RunAsGroup", "runAsGroup"),
    ("RunAsNonRoot", "runAsNonRoot"),
    ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem"),
    ("AllowPrivilegeEscalation", "allowPrivilegeEscalation"),
    ("ProcMount", "procMount"),
    ("SeccompProfile", "seccompProfile"),
    ("AppArmorProfile", "appArmorProfile"),
];
const PROFILE: &[(&str, &str)] = &[("Type", "type"), ("LocalhostProfile", "localhostProfile")];

fn id(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(number) = value.as_i64()
        && !(0..=i64::from(i32::MAX)).contains(&number)
    {
        errors.invalid(path, number, "must be between 0 and 2147483647, inclusive");
    }
}

pub(super) fn pod(spec: &Value, spec_path: &Path<'_>, errors: &mut Errors) {
    let path = spec_path.child("securityContext");
    let context = &spec["securityContext"];
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(&context[field], &path.child(field), errors);
    }
    let groups = path.child("supplementalGroups");
    for (i, group) in list(&context["supplementalGroups"]).iter().enumerate() {
        id(group, &groups.index(i), errors);
    }
    if spec["shareProcessNamespace"] == true && spec["hostPID"] == true {
        let words = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.child("shareProcessNamespace"), &spec["shareProcessNamespace"], words);
    }
    sysctls(spec, &path.child("sysctls"), errors);
    enumerated(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], &path, errors);
    enumerated(context, "supplementalGroupsPolicy", &["Merge", "Strict"], &path, errors);
    enumerated(context, "seLinuxChangePolicy", &["Recursive"], &path, errors);
    profiles(context, &path, errors);
    if spec["hostUsers"] == false {
        for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")]
        {
            if spec[field] == true {
                errors.forbidden(&spec_path.child(shown), "when `hostUsers` is false");
            }
        }
    }
}

fn enumerated(context: &Value, field: &str, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if let Some(value) = context[field].as_str()
        && !supported.contains(&value)
    {
        errors.not_supported(&path.child(field), value, supported);
    }
}

fn sysctls(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const WORDS: &str = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let given = list(&spec["securityContext"]["sysctls"]);
    let mut seen = Seen::default();
    for (i, sysctl) in given.iter().enumerate() {
        let here = path.index(i);
        let name = text(&sysctl["name"]);
        let again = seen.again(name);
        let word = |part: &str| {
            let b = part.as_bytes();
            let edge = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
            !b.is_empty()
                && edge(b[0])
                && edge(b[b.len() - 1])
                && b.iter().all(|c| edge(*c) || matches!(c, b'-' | b'_'))
        };
        if name.is_empty() {
            errors.required(&here.child("name"), "");
        } else if name.len() > 253 || !name.split(['.', '/']).all(word) {
            errors.invalid(&here.child("name"), name, WORDS);
        } else if again {
            errors.duplicate(&here.child("name"), name);
        }
        let namespace = sysctl_namespace(name);
        for (field, hit) in [("hostNetwork", namespace == Some("net")), ("hostIPC", namespace == Some("ipc"))]
        {
            if hit && spec[field] == true {
                errors.invalid(
                    &here.child("name"),
                    name,
                    &format!("may not be specified when '{field}' is true"),
                );
            }
        }
    }
}

/// A sysctl's name with dots between its parts. With slashes, which the kernel also takes, dots belong to the parts
/// (`net/ipv4/conf/eth0.100/mtu`); whichever comes first says which it is.
fn dotted(name: &str) -> String {
    match name.find(['.', '/']).map(|at| name.as_bytes()[at]) {
        Some(b'/') => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    }
}

/// The kernel namespace that a sysctl belongs to, where upstream knows one.
fn sysctl_namespace(name: &str) -> Option<&'static str> {
    const IPC: &[&str] = &[
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.msg",
    ];
    let name = dotted(name);
    if IPC.contains(&name.as_str()) || name.starts_with("fs.mqueue.") {
        Some("ipc")
    } else if name.starts_with("net.") {
        Some("net")
    } else {
        None
    }
}

fn profiles(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (field, shown) in [("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")] {
        let profile = &context[field];
        if !profile.is_object() {
            continue;
        }
        let here = path.child(field);
        errors.one_of(&here.child("type"), &profile["type"], &["Localhost", "RuntimeDefault", "Unconfined"]);
        let local = &profile["localhostProfile"];
        if profile["type"] == "Localhost" {
            match local.as_str() {
                None => errors.required(
                    &here.child("localhostProfile"),
                    &format!("must be set when {shown} type is Localhost"),
                ),
                Some(file) if field == "seccompProfile" => {
                    super::volume::descending(file, &here.child("localhostProfile"), errors);
                }
                Some(file) if file.trim() != file => {
                    errors.invalid(
                        &here.child("localhostProfile"),
                        file,
                        "must not be padded with whitespace",
                    );
                }
                Some(_) => {}
            }
        } else if !local.is_null() {
            let words = format!("can only be set when {shown} type is Localhost");
            let here = here.child("localhostProfile");
            if field == "seccompProfile" {
                errors.invalid(&here, Internal(profile, PROFILE), &words);
            } else {
                errors.invalid(&here, local, &words);
            }
        }
    }
}

pub(super) fn container(context: &Value, host_users: bool, path: &Path<'_>, errors: &mut Errors) {
    if !context.is_object() {
        return;
    }
    id(&context["runAsUser"], &path.child("runAsUser"), errors);
    id(&context["runAsGroup"], &path.child("runAsGroup"), errors);
    enumerated(context, "procMount", &["Default", "Unmasked"], path, errors);
    if context["procMount"] == "Unmasked" && host_users {
        errors.invalid(&path.child("procMount"), "Unmasked", "`hostUsers` must be false to use `Unmasked`");
    }
    profiles(context, path, errors);
    if context["allowPrivilegeEscalation"] != false {
        return;
    }
    let mut context = context.clone();
    if let Some(capabilities) = context.get_mut("capabilities").filter(|c| c.is_object()) {
        *capabilities = serde_json::json!({"Add": capabilities["add"], "Drop": capabilities["drop"]});
    }
    if context["privileged"] == true {
        errors.invalid(
            path,
            Internal(&context, CONTEXT),
            "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
        );
    }
    if list(&context["capabilities"]["Add"]).iter().any(|c| c == "CAP_SYS_ADMIN") {
        let words = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        errors.invalid(path, Internal(&context, CONTEXT), words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn complaints(spec: &Value) -> Vec<String> {
        let mut errors = Errors::default();
        sysctls(spec, &Path::root("sysctls"), &mut errors);
        errors.done().into_iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn sysctls_of_the_hosts_namespaces_are_refused_in_either_spelling() {
        for (field, name) in [
            ("hostNetwork", "net.ipv4.ip_forward"),
            ("hostNetwork", "net/ipv4/ip_forward"),
            ("hostNetwork", "net/ipv4/conf/eth0.100/forwarding"),
            ("hostIPC", "kernel/shm_rmid_forced"),
            ("hostIPC", "fs/mqueue/msg_max"),
        ] {
            let mut spec = json!({"securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
            assert!(complaints(&spec).is_empty(), "{name}");
            spec[field] = true.into();
            let words = format!(
                "sysctls[0].name: Invalid value: \"{name}\": may not be specified when '{field}' is true"
            );
            assert_eq!(complaints(&spec), [words]);
        }
        let twice = json!({"securityContext": {"sysctls": [{"name": "a.b"}, {"name": "a.b"}]}});
        assert_eq!(complaints(&twice), ["sysctls[1].name: Duplicate value: \"a.b\""]);
    }
}
