//! How a device in a pod is, from what is seen of it there.

use std::collections::BTreeMap;

use podwire_linux::rtnl::Link;
use podwire_wire::dra_health::{DeviceHealth, DeviceIdentifier, HealthStatus};

/// RFC 2863: it is down, or what it stands on is.
const NO_CARRIER: [u8; 2] = [2, 3];

/// What is the matter with a device, if anything is. Who has taken it down in the pod has done so on purpose.
pub(crate) fn trouble(link: Option<&Link>) -> Option<&'static str> {
    match link {
        None => Some("the device is not in its pod any more"),
        Some(link) if link.is_up() && NO_CARRIER.contains(&link.oper_state) => {
            Some("the device has no carrier")
        }
        Some(_) => None,
    }
}

/// What is told of devices, by pool and name. Claims may share one: it is as well as the worst off of them.
pub(crate) fn told(
    seen: impl IntoIterator<Item = ((String, String), Option<&'static str>)>,
    now: i64,
    holds: i64,
) -> Vec<DeviceHealth> {
    let mut worst: BTreeMap<(String, String), Option<&'static str>> = BTreeMap::new();
    for (device, trouble) in seen {
        let entry = worst.entry(device).or_default();
        *entry = entry.or(trouble);
    }
    let one = |((pool_name, device_name), trouble): (_, Option<&str>)| DeviceHealth {
        device: Some(DeviceIdentifier { pool_name, device_name }),
        health: if trouble.is_some() { HealthStatus::Unhealthy } else { HealthStatus::Healthy }.into(),
        last_updated_time: now,
        health_check_timeout_seconds: holds,
        message: trouble.unwrap_or_default().to_owned(),
    };
    worst.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_as_well_as_the_worst_off_of_those_who_share_it() {
        let link = |flags, oper_state| Link { flags, oper_state, ..Link::default() };
        assert_eq!(trouble(Some(&link(1, 6))), None);
        assert_eq!(trouble(Some(&link(1, 0))), None, "some drivers do not tell");
        assert_eq!(trouble(Some(&link(0, 2))), None, "it was taken down");
        assert!(trouble(Some(&link(1, 2))).is_some() && trouble(Some(&link(1, 3))).is_some());
        assert!(trouble(None).is_some());
        let of = |name: &str| ("node1".to_owned(), name.to_owned());
        let told = told([(of("a"), None), (of("b"), Some("x")), (of("b"), None)], 7, 30);
        let health: Vec<_> = told.iter().map(|one| (one.health(), one.message.as_str())).collect();
        assert_eq!(health, [(HealthStatus::Healthy, ""), (HealthStatus::Unhealthy, "x")]);
    }
}
