//! Kinds of the network: services and what stands behind them, ingresses, policies, addresses.

use serde_json::{Value, json};

use super::{Facts, Generation, Object, Strategy, differs, keep_metadata, stored_only};
use crate::defaults::{self, absent, child, each, set};
use crate::quota::Measure;
use crate::table::{self, Column};
use crate::validate::{self, Errors};
use crate::{Kind, Part, syntax};

/// Facts of kinds whose generation counts.
const COUNTED: Facts = Facts { generation: Generation::Counted, ..Facts::PLAIN };

/// Services.
#[derive(Debug)]
pub(crate) struct Services;

impl Strategy for Services {
    fn facts(&self) -> Facts {
        Facts { creates_on_update: true, deletion_shows_object: true, ..Facts::PLAIN }
    }

    fn name_complaints(&self, name: &str) -> Vec<String> {
        syntax::dns_1035_label(name)
    }

    fn defaults(&self, object: &mut Object) {
        defaults::service(object);
    }

    fn prepare_create(&self, _: &Kind, object: &mut Object) {
        object.insert("status".to_owned(), json!({"loadBalancer": {}}));
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::workload::service(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::workload::service_update(new, old, errors);
    }

    fn measure(&self) -> Measure {
        Measure::Services
    }

    fn columns(&self) -> &[Column] {
        table::columns::SERVICE
    }
}

/// Endpoints.
#[derive(Debug)]
pub(crate) struct Endpoints;

impl Strategy for Endpoints {
    fn facts(&self) -> Facts {
        Facts {
            creates_on_update: true,
            deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
            ..Facts::PLAIN
        }
    }

    fn defaults(&self, object: &mut Object) {
        each(object, "subsets", |subset| each(subset, "ports", |port| set(port, "protocol", "TCP")));
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::endpoints::endpoints(object, None, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::endpoints::endpoints(new, Some(old), errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::ENDPOINTS
    }
}

/// Endpoint slices.
#[derive(Debug)]
pub(crate) struct EndpointSlices;

impl Strategy for EndpointSlices {
    fn facts(&self) -> Facts {
        COUNTED
    }

    fn defaults(&self, object: &mut Object) {
        each(object, "ports", |port| {
            absent(port, "name", "");
            absent(port, "protocol", "TCP");
        });
    }

    fn differs(&self, kind: &Kind, new: &Value, old: &Value) -> bool {
        new["metadata"]["labels"] != old["metadata"]["labels"] || differs(kind, new, old)
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::endpoints::slice(object, None, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::endpoints::slice(new, Some(old), errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::ENDPOINT_SLICE
    }
}

/// Ingresses.
#[derive(Debug)]
pub(crate) struct Ingresses;

impl Strategy for Ingresses {
    fn facts(&self) -> Facts {
        COUNTED
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::ingress::create(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::ingress::update(new, old, errors);
    }

    fn validate_part(&self, part: Part, new: &Value, old: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::ingress::status(new, old, errors);
        }
    }

    fn columns(&self) -> &[Column] {
        table::columns::INGRESS
    }
}

/// Classes of ingresses.
#[derive(Debug)]
pub(crate) struct IngressClasses;

impl Strategy for IngressClasses {
    fn facts(&self) -> Facts {
        COUNTED
    }

    fn defaults(&self, object: &mut Object) {
        if let Some(Value::Object(parameters)) = child(object, "spec").get_mut("parameters") {
            set(parameters, "scope", "Cluster");
        }
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::ingress::class(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::ingress::class_update(new, old, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::INGRESS_CLASS
    }
}

/// Network policies.
#[derive(Debug)]
pub(crate) struct Policies;

impl Strategy for Policies {
    fn facts(&self) -> Facts {
        COUNTED
    }

    fn defaults(&self, object: &mut Object) {
        defaults::network_policy(object);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::network::policy(object, None, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::network::policy(new, Some(old), errors);
    }

    fn unenforced(&self, kind: &Kind, _: &Value) -> Option<String> {
        Some(stored_only(&kind.kind))
    }

    fn columns(&self) -> &[Column] {
        table::columns::NETWORK_POLICY
    }
}

/// Addresses of services; named by the address.
#[derive(Debug)]
pub(crate) struct Addresses;

impl Strategy for Addresses {
    fn name_complaints(&self, name: &str) -> Vec<String> {
        validate::canonical_address(name)
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::network::ip_address(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::network::ip_address_update(new, old, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::IP_ADDRESS
    }
}

/// Ranges of services' addresses.
#[derive(Debug)]
pub(crate) struct ServiceRanges;

impl Strategy for ServiceRanges {
    fn prepare_status(&self, new: &mut Object, old: &Value) {
        keep_metadata(new, old);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::network::service_range(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::network::service_range_update(new, old, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::SERVICE_CIDR
    }
}
