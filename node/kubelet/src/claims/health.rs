//! What drivers say of the health of their devices. Pure.
//!
//! A statement holds for a while; then nothing is known again.

use std::{collections::BTreeMap, time::Duration};

use podwire_wire::dra_health::{DeviceHealth, HealthStatus};
use tokio::time::Instant;

/// How long a statement holds that does not say.
const HOLDS: Duration = Duration::from_secs(30);
/// The longest it may: none is asked for longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Of more devices than any driver has nothing is kept.
const MOST: usize = 16_384;
/// The longest message of the API.
const MESSAGE: usize = 1024;
/// The longest name of a pool or device.
const NAME: usize = 1024;

/// Pool and name.
type Device = (String, String);

/// How a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// `Healthy`, `Unhealthy` or `Unknown`.
    pub(crate) health: &'static str,
    /// Why.
    pub(crate) message: String,
}

impl Condition {
    /// Nothing is known.
    pub(crate) fn unknown() -> Condition {
        Condition { health: "Unknown", message: String::new() }
    }
}

#[derive(Clone, Debug)]
struct Statement {
    condition: Condition,
    until: Instant,
}

/// What one driver says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    devices: BTreeMap<Device, Statement>,
}

impl Health {
    /// The driver told; says which devices are in another condition than before.
    pub(crate) fn heard(&mut self, told: Vec<DeviceHealth>, now: Instant) -> Vec<Device> {
        let mut changed = self.expire(now);
        for one in told {
            let named = one.device.clone().unwrap_or_default();
            let device = (named.pool_name, named.device_name);
            let known = self.devices.contains_key(&device);
            let fits = device.0.len() <= NAME && device.1.len() <= NAME;
            if !fits || (!known && self.devices.len() >= MOST) {
                continue;
            }
            let statement = statement(&one, now);
            let old = self.devices.insert(device.clone(), statement.clone());
            if old.is_none_or(|old| old.condition != statement.condition) {
                changed.push(device);
            }
        }
        changed
    }

    /// Statements that hold no more are forgotten; says of which devices.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Device> {
        let over = |statement: &Statement| statement.until <= now;
        let gone: Vec<Device> =
            self.devices.iter().filter(|(_, said)| over(said)).map(|(device, _)| device.clone()).collect();
        self.devices.retain(|_, said| !over(said));
        gone
    }

    /// When the next statement holds no more.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.devices.values().map(|said| said.until).min()
    }

    /// What is known of a device.
    pub(crate) fn of(&self, pool: &str, device: &str, now: Instant) -> Option<&Condition> {
        let said = self.devices.get(&(pool.to_owned(), device.to_owned()))?;
        (said.until > now).then_some(&said.condition)
    }

    /// Everything that was said, to be forgotten.
    pub(crate) fn clear(&mut self) -> Vec<Device> {
        std::mem::take(&mut self.devices).into_keys().collect()
    }
}

fn statement(one: &DeviceHealth, now: Instant) -> Statement {
    let health = match HealthStatus::try_from(one.health) {
        Ok(HealthStatus::Healthy) => "Healthy",
        Ok(HealthStatus::Unhealthy) => "Unhealthy",
        Ok(HealthStatus::Unknown) | Err(_) => "Unknown",
    };
    let holds = match u64::try_from(one.health_check_timeout_seconds) {
        Ok(0) | Err(_) => HOLDS,
        Ok(seconds) => Duration::from_secs(seconds).min(LONGEST),
    };
    Statement { condition: Condition { health, message: shortened(&one.message) }, until: now + holds }
}

fn shortened(message: &str) -> String {
    if message.len() <= MESSAGE {
        return message.to_owned();
    }
    let end = (0..=MESSAGE - 3).rev().find(|at| message.is_char_boundary(*at)).unwrap_or_default();
    format!("{}...", &message[..end])
}

#[cfg(test)]
mod tests {
    use podwire_wire::dra_health::DeviceIdentifier;

    use super::*;

    fn told(name: &str, health: HealthStatus, timeout: i64, message: &str) -> DeviceHealth {
        DeviceHealth {
            device: Some(DeviceIdentifier { pool_name: "p".to_owned(), device_name: name.to_owned() }),
            health: health as i32,
            last_updated_time: 0,
            health_check_timeout_seconds: timeout,
            message: message.to_owned(),
        }
    }

    #[test]
    fn only_what_changed_is_news_and_nothing_holds_for_ever() {
        let (mut health, now) = (Health::default(), Instant::now());
        let a = ("p".to_owned(), "a".to_owned());
        assert_eq!(
            health.heard(vec![told("a", HealthStatus::Healthy, 0, "")], now),
            std::slice::from_ref(&a)
        );
        assert_eq!(health.heard(vec![told("a", HealthStatus::Healthy, 5, "")], now), []);
        assert_eq!(health.of("p", "a", now).unwrap().health, "Healthy");
        assert_eq!(
            health.heard(vec![told("a", HealthStatus::Unhealthy, 5, "hot")], now),
            std::slice::from_ref(&a)
        );
        let later = now + Duration::from_secs(5);
        assert_eq!(health.next(), Some(later));
        assert_eq!(health.of("p", "a", later), None);
        assert_eq!(health.expire(later), [a]);
        assert!(health.of("p", "a", now).is_none() && health.next().is_none());
    }

    #[test]
    fn messages_are_as_long_as_the_api_takes_and_cut_between_letters() {
        assert_eq!(shortened(&"x".repeat(1024)).len(), 1024);
        let long = shortened(&"x".repeat(1025));
        assert_eq!((long.len(), long.ends_with("x...")), (1024, true));
        assert!(shortened(&"ä".repeat(600)).ends_with("ä..."));
    }

    #[test]
    fn no_driver_fills_the_memory() {
        let (mut health, now) = (Health::default(), Instant::now());
        let many = (0..MOST + 5).map(|n| told(&n.to_string(), HealthStatus::Healthy, -1, "")).collect();
        assert_eq!(health.heard(many, now).len(), MOST);
        let long = told(&"x".repeat(NAME + 1), HealthStatus::Healthy, 0, "");
        assert!(Health::default().heard(vec![long], now).is_empty());
    }
}
