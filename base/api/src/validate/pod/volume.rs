//! Rules of volumes: exactly one source, and the fields of the common ones.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::error::{Errors, Seen, list, text};
use super::{container, resources};
use crate::path::Path;
use crate::quantity::Quantity;
use crate::syntax;

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const FILE_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// Checks all volumes; gives the names of those without fault, which mounts may use.
pub(super) fn volumes<'a>(volumes: &'a Value, path: &Path<'_>, errors: &mut Errors) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (i, volume) in list(volumes).iter().enumerate() {
        let here = path.index(i);
        let before = errors.len();
        source(volume, &here, errors);
        let name = text(&volume["name"]);
        if name.is_empty() {
            errors.required(&here.child("name"), "");
        } else {
            errors.all_invalid(&here.child("name"), name, syntax::dns_label(name));
        }
        if names.contains(name) {
            errors.duplicate(&here.child("name"), name);
        }
        if errors.len() == before {
            names.insert(name);
        }
    }
    names
}

fn source(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut found = 0;
    for (kind, source) in
        volume.as_object().into_iter().flatten().filter(|(k, v)| *k != "name" && v.is_object())
    {
        let here = path.child(kind);
        found += 1;
        if found > 1 {
            errors.forbidden(&here, "may not specify more than 1 volume type");
            continue;
        }
        match kind.as_str() {
            "emptyDir" => {
                let limit = source["sizeLimit"].as_str().and_then(|s| Quantity::parse(s).ok());
                if limit.is_some_and(|q| q.is_negative()) {
                    errors.forbidden(
                        &here.child("sizeLimit"),
                        "SizeLimit field must be a valid resource quantity",
                    );
                }
            }
            "hostPath" => host_path(source, &here, errors),
            "configMap" => from_keys(source, "name", &here, errors),
            "secret" => from_keys(source, "secretName", &here, errors),
            "downwardAPI" => {
                mode(&source["defaultMode"], &here.child("defaultMode"), errors);
                for file in list(&source["items"]) {
                    downward_file(file, &here, errors);
                }
            }
            "projected" => projected(source, &here, errors),
            "persistentVolumeClaim" if text(&source["claimName"]).is_empty() => {
                errors.required(&here.child("claimName"), "");
            }
            "csi" if text(&source["driver"]).is_empty() => errors.required(&here.child("driver"), ""),
            "nfs" => {
                for field in ["server", "path"] {
                    if text(&source[field]).is_empty() {
                        errors.required(&here.child(field), "");
                    }
                }
                if !text(&source["path"]).starts_with('/') {
                    errors.invalid(&here.child("path"), text(&source["path"]), "must be an absolute path");
                }
            }
            "ephemeral" if source["volumeClaimTemplate"].is_null() => {
                errors.required(&here.child("volumeClaimTemplate"), "");
            }
            "image" => {
                if text(&source["reference"]).is_empty() {
                    errors.required(&here.child("reference"), "");
                }
                errors.one_of(
                    &here.child("pullPolicy"),
                    &source["pullPolicy"],
                    &["Always", "IfNotPresent", "Never"],
                );
            }
            _ => {}
        }
    }
    if found == 0 {
        errors.required(path, "must specify a volume type");
    }
}

pub(in crate::validate) fn host_path(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    if text(&source["path"]).is_empty() {
        errors.required(&path.child("path"), "");
        return;
    }
    no_backsteps(text(&source["path"]), &path.child("path"), errors);
    let kinds =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if let Some(kind) = source["type"].as_str()
        && !kinds.contains(&kind)
    {
        errors.not_supported(&path.child("type"), kind, &kinds);
    }
}

fn mode(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = value.as_i64()
        && !(0..=0o777).contains(&mode)
    {
        errors.invalid(path, mode, FILE_MODE);
    }
}

fn from_keys(source: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    if text(&source[name]).is_empty() {
        errors.required(&path.child(name), "");
    }
    mode(&source["defaultMode"], &path.child("defaultMode"), errors);
    items(source, path, errors);
}

fn items(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("items");
    for (i, item) in list(&source["items"]).iter().enumerate() {
        let here = path.index(i);
        for field in ["key", "path"] {
            if text(&item[field]).is_empty() {
                errors.required(&here.child(field), "");
            }
        }
        unreserved(text(&item["path"]), &here.child("path"), errors);
        mode(&item["mode"], &here.child("mode"), errors);
    }
}

fn downward_file(file: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(&file["path"]);
    if name.is_empty() {
        errors.required(&path.child("path"), "");
    }
    unreserved(name, &path.child("path"), errors);
    if file["fieldRef"].is_object() {
        container::field_ref(&file["fieldRef"], FILE_FIELDS, &path.child("fieldRef"), errors);
        if file["resourceFieldRef"].is_object() {
            errors.invalid(
                path,
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            );
        }
    } else if file["resourceFieldRef"].is_object() {
        resources::field_ref(&file["resourceFieldRef"], true, &path.child("resourceFieldRef"), errors);
    } else {
        errors.required(path, "one of fieldRef and resourceFieldRef is required");
    }
    mode(&file["mode"], &path.child("mode"), errors);
}

fn projected(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    mode(&source["defaultMode"], &path.child("defaultMode"), errors);
    let mut taken: Seen<&str> = Seen::default();
    let sources = path.child("sources");
    for (i, part) in list(&source["sources"]).iter().enumerate() {
        let here = sources.index(i);
        let mut found = 0;
        for field in ["secret", "configMap"] {
            if part[field].is_object() {
                found += 1;
                let at = here.child(field);
                if text(&part[field]["name"]).is_empty() {
                    errors.required(&at.child("name"), "");
                }
                items(&part[field], &at, errors);
                claim_paths(&part[field], text(&part[field]["name"]), &mut taken, path, errors);
            }
        }
        if part["downwardAPI"].is_object() {
            found += 1;
            for file in list(&part["downwardAPI"]["items"]) {
                downward_file(file, &here.child("downwardAPI"), errors);
            }
            claim_paths(&part["downwardAPI"], "", &mut taken, path, errors);
        }
        if part["serviceAccountToken"].is_object() {
            found += 1;
            token(&part["serviceAccountToken"], &here.child("serviceAccountToken"), path, errors);
        }
        found += usize::from(part["clusterTrustBundle"].is_object())
            + usize::from(part["podCertificate"].is_object());
        if found > 1 {
            errors.forbidden(&here, "may not specify more than 1 volume type per source");
        }
    }
}

fn claim_paths<'a>(
    source: &'a Value,
    name: &str,
    taken: &mut Seen<&'a str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for item in list(&source["items"]) {
        let file = text(&item["path"]);
        if file.is_empty() {
            continue;
        }
        if taken.again(file) {
            errors.invalid(path, if name.is_empty() { file } else { name }, "conflicting duplicate paths");
        }
    }
}

fn token(source: &Value, path: &Path<'_>, volume: &Path<'_>, errors: &mut Errors) {
    let seconds = source["expirationSeconds"].as_i64().unwrap_or(3600);
    let here = path.child("expirationSeconds");
    if seconds < 600 {
        errors.invalid(&here, seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > 1 << 32 {
        errors.invalid(&here, seconds, "may not specify a duration larger than 2^32 seconds");
    }
    match text(&source["path"]) {
        "" => errors.required(&volume.child("path"), ""),
        file => unreserved(file, &volume.child("path"), errors),
    }
}

pub(in crate::validate) fn no_backsteps(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if value.split('/').any(|part| part == "..") {
        errors.invalid(path, value, "must not contain '..'");
    }
}

/// A relative path that never climbs.
pub(super) fn descending(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if value.starts_with('/') {
        errors.invalid(path, value, "must be a relative path");
    }
    no_backsteps(value, path, errors);
}

fn unreserved(value: &str, path: &Path<'_>, errors: &mut Errors) {
    descending(value, path, errors);
    if value.starts_with("..") && !value.starts_with("../") {
        errors.invalid(path, value, "must not start with '..'");
    }
}
