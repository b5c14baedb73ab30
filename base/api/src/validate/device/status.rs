//! Rules of what becomes of a claim: what it was given, who uses it, and what drivers say about its devices.

use std::collections::HashSet;

use serde_json::Value;

use super::claim::RequestNames;
use super::{MOST_CONFIGS, MOST_REQUESTS, binding_conditions, config, each, label, meta, node_selector};
use super::{pool_name, quoted, raw, set, shown};
use crate::path::Path;
use crate::validate::error::{Errors, list, text};
use crate::validate::volume::driver_name;
use crate::validate::{address, condition};

const MOST_USERS: usize = 256;
const MOST_CONDITIONS: usize = 8;
const LONGEST_DATA: usize = 10 * 1024;
const LONGEST_INTERFACE: usize = 256;
const LONGEST_HARDWARE_ADDRESS: usize = 128;
const MOST_ADDRESSES: usize = 16;

/// What tells devices that claims have from one another: driver, pool, device, and share.
type DeviceId<'a> = [&'a str; 4];

/// A change of a claim's status.
pub(crate) fn claim_status_change(new: &Value, old: &Value, errors: &mut Errors) {
    meta::update_known(new, old, errors);
    let path = Path::root("status");
    let (status, before) = (&new["status"], &old["status"]);
    let names = RequestNames::of(&new["spec"]["devices"]);
    users(&status["reservedFor"], &path.child("reservedFor"), errors);
    devices(status, &path.child("devices"), errors);
    if !list(&status["reservedFor"]).is_empty() {
        reservations(new, before, &path.child("reservedFor"), errors);
    }
    let here = path.child("allocation");
    match (&status["allocation"], &before["allocation"]) {
        (Value::Null, _) => {}
        (given, Value::Null) => allocation(given, &names, &here, errors),
        (given, before) if given != before => {
            errors.invalid(&here, shown::allocation(given), "field is immutable");
        }
        _ => {}
    }
}

fn users(users: &Value, path: &Path<'_>, errors: &mut Errors) {
    let one = |user: &Value, path: &Path<'_>, errors: &mut Errors| {
        for field in ["resource", "name", "uid"] {
            if text(&user[field]).is_empty() {
                errors.required(&path.child(field), "");
            }
        }
    };
    set(users, MOST_USERS, path, errors, one, |user| text(&user["uid"]), quoted);
}

/// Only what is allocated can be reserved, and nobody new while the claim goes.
fn reservations(new: &Value, before: &Value, path: &Path<'_>, errors: &mut Errors) {
    if new["status"]["allocation"].is_null() {
        return errors.forbidden(path, "may not be specified when `allocated` is not set");
    }
    if new["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    let user = |user: &Value| ["apiGroup", "resource", "name", "uid"].map(|key| text(&user[key]).to_owned());
    let known: HashSet<[String; 4]> = list(&before["reservedFor"]).iter().map(user).collect();
    if list(&new["status"]["reservedFor"]).iter().any(|one| !known.contains(&user(one))) {
        let words =
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        errors.forbidden(path, words);
    }
}

fn id(device: &Value) -> DeviceId<'_> {
    ["driver", "pool", "device", "shareID"].map(|key| text(&device[key]))
}

/// What drivers say about the devices.
fn devices(status: &Value, path: &Path<'_>, errors: &mut Errors) {
    let results = list(&status["allocation"]["devices"]["results"]);
    let given: HashSet<DeviceId<'_>> = results.iter().map(id).collect();
    let one = |device: &Value, path: &Path<'_>, errors: &mut Errors| {
        driver_name(text(&device["driver"]), &path.child("driver"), errors);
        pool_name(text(&device["pool"]), &path.child("pool"), errors);
        label(text(&device["device"]), &path.child("device"), errors);
        share(&device["shareID"], &path.child("shareID"), errors);
        if !given.contains(&id(device)) {
            errors.invalid(path, shown::device_id(id(device)), "must be an allocated device in the claim");
        }
        let (here, conditions) = (path.child("conditions"), &device["conditions"]);
        if list(conditions).len() > MOST_CONDITIONS {
            errors.too_many(&here, list(conditions).len(), MOST_CONDITIONS);
        }
        condition::all(conditions, &here, errors);
        if !device["data"].is_null() {
            raw(&device["data"], LONGEST_DATA, &path.child("data"), errors);
        }
        network(&device["networkData"], &path.child("networkData"), errors);
    };
    set(&status["devices"], usize::MAX, path, errors, one, id, shown::device_id);
}

fn network(data: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (field, longest) in
        [("interfaceName", LONGEST_INTERFACE), ("hardwareAddress", LONGEST_HARDWARE_ADDRESS)]
    {
        if text(&data[field]).len() > longest {
            errors.too_long(&path.child(field), longest);
        }
    }
    let one = |address: &Value, path: &Path<'_>, errors: &mut Errors| {
        address::of_interface(text(address), path, errors);
    };
    set(&data["ips"], MOST_ADDRESSES, &path.child("ips"), errors, one, text, quoted);
}

/// The id of a share of a device.
fn share(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(uid) = value.as_str() else { return };
    if let Some(why) = no_uuid(uid) {
        errors.invalid(path, uid, &format!("error validating uid: {why}"));
    } else if uid.len() != 36 || uid.bytes().any(|b| b.is_ascii_uppercase()) {
        let words = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
        errors.invalid(path, uid, words);
    }
}

/// Why a text is no UUID in any of the forms that upstream reads.
fn no_uuid(given: &str) -> Option<String> {
    const FORMAT: &str = "invalid UUID format";
    let bytes = given.as_bytes();
    let plain = match bytes.len() {
        32 => return bytes.iter().any(|b| !b.is_ascii_hexdigit()).then(|| FORMAT.to_owned()),
        36 => bytes,
        38 if bytes[0] == b'{' && bytes[37] == b'}' => &bytes[1..37],
        38 => return Some("invalid bracketed UUID format".to_owned()),
        45 if bytes[..9].eq_ignore_ascii_case(b"urn:uuid:") => &bytes[9..],
        45 => return Some(format!("invalid urn prefix: {:?}", String::from_utf8_lossy(&bytes[..9]))),
        length => return Some(format!("invalid UUID length: {length}")),
    };
    let fits = plain.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    (!fits).then(|| FORMAT.to_owned())
}

/// What a claim is given anew.
fn allocation(given: &Value, names: &RequestNames<'_>, path: &Path<'_>, errors: &mut Errors) {
    let (devices, here) = (&given["devices"], path.child("devices"));
    each(&devices["results"], MOST_REQUESTS, &here.child("results"), errors, |one, path, errors| {
        result(one, names, path, errors);
    });
    each(&devices["config"], 2 * MOST_CONFIGS, &here.child("config"), errors, |one, path, errors| {
        errors.one_of(&path.child("source"), &one["source"], &["FromClaim", "FromClass"]);
        names.check(&one["requests"], &path.child("requests"), errors);
        config(one, false, path, errors);
    });
    if given["nodeSelector"].is_object() {
        node_selector(&given["nodeSelector"], &path.child("nodeSelector"), errors);
    }
}

/// One device.
fn result(result: &Value, names: &RequestNames<'_>, path: &Path<'_>, errors: &mut Errors) {
    names.check_one(text(&result["request"]), &path.child("request"), errors);
    driver_name(text(&result["driver"]), &path.child("driver"), errors);
    pool_name(text(&result["pool"]), &path.child("pool"), errors);
    label(text(&result["device"]), &path.child("device"), errors);
    binding_conditions(result, path, errors);
    share(&result["shareID"], &path.child("shareID"), errors);
}
