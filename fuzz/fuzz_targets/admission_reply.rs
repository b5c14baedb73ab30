//! Any bytes as the reply of an admission webhook, with any patch in it: it stays an object of the same kind.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use podwire_apiserver::hostile;
use serde_json::{Value, json};

static POD: LazyLock<Value> = LazyLock::new(|| {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n", "labels": {"a": "b"},
        "managedFields": [{"manager": "m", "operation": "Update"}]},
        "spec": {"containers": [{"name": "main", "image": "i", "env": [{"name": "A", "value": "b"}]}]}})
});

/// The first byte tells a whole reply from a patch that is put into a good one.
fn reply(input: &[u8]) -> Option<Vec<u8>> {
    let (first, rest) = input.split_first()?;
    if first % 4 == 0 {
        return Some(rest.to_vec());
    }
    let response = json!({"uid": "u", "allowed": true, "patchType": "JSONPatch", "patch": base64(rest)});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Some(review.to_string().into_bytes())
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |bits: u32| char::from(LETTERS[(bits & 63) as usize]);
    let group = |group: &[u8]| {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        let all: String = (0..4).rev().map(|place| letter(bits >> (6 * place))).collect();
        format!("{}{}", &all[..=group.len()], &"=="[group.len() - 1..])
    };
    bytes.chunks(3).map(group).collect()
}

fuzz_target!(init: {
    podwire_fuzz::seeds(&[
        "\0{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"response\":{\"uid\":\"u\",\"allowed\":true,\"warnings\":[\"w\"]}}",
        "\0{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"response\":{\"uid\":\"u\",\"allowed\":false,\"status\":{\"code\":418,\"message\":\"m\",\"details\":{\"causes\":[]}}}}",
        "\u{1}[{\"op\":\"add\",\"path\":\"/metadata/labels/x\",\"value\":\"y\"},{\"op\":\"replace\",\"path\":\"/metadata\",\"value\":{\"name\":\"a\"}}]",
        "\u{1}[{\"op\":\"copy\",\"from\":\"/spec\",\"path\":\"/spec/containers/-\"},{\"op\":\"move\",\"from\":\"/metadata/labels\",\"path\":\"/spec/nodeSelector\"}]",
        "\u{1}[{\"op\":\"test\",\"path\":\"/kind\",\"value\":\"Pod\"},{\"op\":\"remove\",\"path\":\"/metadata/managedFields\"},{\"op\":\"replace\",\"path\":\"/spec/containers/0\",\"value\":5}]",
    ]);
}, |input: &[u8]| {
    let Some(reply) = reply(input) else { return };
    let Some(made) = hostile::admission_reply(&reply, "u", &POD) else { return };
    for key in ["apiVersion", "kind"] {
        assert_eq!(made[key], POD[key]);
    }
    assert_eq!(made["metadata"]["managedFields"], POD["metadata"]["managedFields"]);
});
