//! Addresses of services, given out from the service range.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Mutex;

use podwire_api::validate::{Cause, FieldError};
use serde_json::{Value, json};

use crate::cache::Scope;
use crate::core::{self, Core};
use crate::status::{ApiError, Result};

/// Gives out cluster addresses; what is taken is read from the stored services at first use.
pub(crate) struct Allocator {
    base: IpAddr,
    prefix: u8,
    taken: Mutex<Option<HashSet<IpAddr>>>,
}

impl Allocator {
    /// Addresses of `base/prefix`.
    pub(crate) fn new(base: IpAddr, prefix: u8) -> Self {
        Self { base, prefix, taken: Mutex::new(None) }
    }

    /// The address of the `kubernetes` service.
    pub(crate) fn first(&self) -> IpAddr {
        self.nth(1)
    }

    fn nth(&self, n: u32) -> IpAddr {
        match self.base {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0);
                IpAddr::from(((u32::from(v4) & mask) + n).to_be_bytes())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix.min(128))).unwrap_or(0);
                IpAddr::from(((u128::from(v6) & mask) + u128::from(n)).to_be_bytes())
            }
        }
    }

    fn size(&self) -> u32 {
        let bits = if self.base.is_ipv4() { 32 } else { 128 } - self.prefix.min(128);
        1_u32.checked_shl(u32::from(bits.min(16))).unwrap_or(1 << 16)
    }

    /// Gives a new service its address.
    pub(crate) fn assign(&self, core: &Core, service: &mut Value) -> Result<()> {
        if service["spec"]["type"] == "ExternalName" {
            return Ok(());
        }
        let asked = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
        if asked == "None" {
            service["spec"]["clusterIPs"] = json!(["None"]);
        } else {
            let address = self.take(core, service, &asked)?;
            service["spec"]["clusterIP"] = address.to_string().into();
            service["spec"]["clusterIPs"] = json!([address.to_string()]);
        }
        let selectorless = service["spec"]["selector"].as_object().is_none_or(serde_json::Map::is_empty);
        if asked == "None" && selectorless {
            // Nobody here picks the endpoints, so they may be of any family.
            for (key, value) in
                [("ipFamilies", json!(["IPv4", "IPv6"])), ("ipFamilyPolicy", json!("RequireDualStack"))]
            {
                if service["spec"][key].is_null() {
                    service["spec"][key] = value;
                }
            }
        }
        if service["spec"]["ipFamilies"].is_null() {
            service["spec"]["ipFamilies"] = json!([if self.base.is_ipv4() { "IPv4" } else { "IPv6" }]);
        }
        if service["spec"]["ipFamilyPolicy"].is_null() {
            service["spec"]["ipFamilyPolicy"] = "SingleStack".into();
        }
        Ok(())
    }

    /// Keeps the address over an update.
    pub(crate) fn reassign(&self, core: &Core, new: &mut Value, old: &Value) -> Result<()> {
        if new["spec"]["type"] == "ExternalName" {
            return Ok(());
        }
        if old["spec"]["clusterIP"].is_string() {
            let moved =
                new["spec"]["clusterIP"].is_string() && new["spec"]["clusterIP"] != old["spec"]["clusterIP"];
            if moved && new["spec"]["clusterIPs"] == old["spec"]["clusterIPs"] {
                new["spec"]["clusterIPs"] = json!([new["spec"]["clusterIP"]]);
            }
            for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if new["spec"][key].is_null() && !old["spec"][key].is_null() {
                    new["spec"][key] = old["spec"][key].clone();
                }
            }
            return Ok(());
        }
        self.assign(core, new)
    }

    fn take(&self, core: &Core, service: &Value, asked: &str) -> Result<IpAddr> {
        let mut guard = self.taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let taken = guard.get_or_insert_with(|| stored_addresses(core));
        if asked.is_empty() {
            let free = (10..self.size().saturating_sub(1)).map(|n| self.nth(n)).find(|a| !taken.contains(a));
            let address =
                free.ok_or_else(|| ApiError::internal("failed to allocate a serviceIP: range is full"))?;
            taken.insert(address);
            return Ok(address);
        }
        let refuse = |why: String| {
            let name = service["metadata"]["name"].as_str().unwrap_or_default();
            let message = format!("Invalid value: [\"{asked}\"]: {why}");
            let error = FieldError { reason: Cause::Invalid, field: "spec.clusterIPs".into(), message };
            ApiError::invalid(core::kind("", "v1", "services"), name, &[error])
        };
        let address: IpAddr =
            asked.parse().map_err(|_| refuse(format!("failed to allocate IP {asked}: not a valid IP")))?;
        if !taken.insert(address) {
            return Err(refuse(format!("failed to allocate IP {asked}: provided IP is already allocated")));
        }
        Ok(address)
    }

    /// Takes back the address of a removed service.
    pub(crate) fn release(&self, service: &Value) {
        let address = service["spec"]["clusterIP"].as_str().and_then(|text| text.parse().ok());
        let mut guard = self.taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let (Some(address), Some(taken)) = (address, guard.as_mut()) {
            taken.remove::<IpAddr>(&address);
        }
    }
}

fn stored_addresses(core: &Core) -> HashSet<IpAddr> {
    let services = core::kind("", "v1", "services");
    let scope = Scope { prefix: services.storage_prefix.into(), node: None, key: None };
    let snapshot = core.caches.of(services).snapshot(&scope);
    snapshot.entries.iter().filter_map(|entry| entry.field("spec.clusterIP")?.parse().ok()).collect()
}
