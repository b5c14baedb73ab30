//! NRI plugins of a node: what the flags mean, the socket that tells about them, and the verbs that ask it.

mod metrics;
mod serve;
mod verb;

pub use self::{metrics::Metrics, serve::serve, verb::run};

use std::time::Duration;

use crate::{cli::NriArgs, instance::Instance};

/// What the flags mean for our runtime; the runtime adds its name.
pub fn config(instance: &Instance, args: &NriArgs) -> podwire_nri::Config {
    let (plugins, configs) = instance.nri_folders();
    let mut config = podwire_nri::Config::new("podwire", env!("CARGO_PKG_VERSION"));
    config.required = args.nri_required_plugins.iter().filter(|name| !name.is_empty()).cloned().collect();
    config.required_wait = args.nri_required_wait;
    config.registration_timeout = args.nri_registration_timeout;
    config.request_timeout = args.nri_request_timeout;
    config.request_timeouts = args.nri_plugin_timeout.iter().cloned().collect();
    config.toleration = args.nri_tolerate_missing_annotation.clone().map(|annotation| {
        podwire_nri::Toleration { annotation, namespaces: args.nri_tolerate_missing_namespaces.clone() }
    });
    if !args.disable_nri {
        config.socket = Some(args.nri_socket.clone().unwrap_or_else(|| instance.nri_socket()));
        config.plugin_dir = Some(args.nri_plugin_dir.clone().unwrap_or(plugins));
        config.config_dir = Some(args.nri_plugin_config_dir.clone().unwrap_or(configs));
    }
    config
}

/// A duration as Go writes it, of one unit: `500ms`, `2s`, `1m`.
/// <https://pkg.go.dev/time#ParseDuration>
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{text:?} is not a duration such as 500ms, 2s or 1m")),
    };
    let number: f64 = number.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

/// A plugin and how long it may take, as NAME=TIME.
pub fn plugin_timeout(text: &str) -> Result<(String, Duration), String> {
    let (name, time) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=TIME"))?;
    let time = duration(time)?;
    if name.is_empty() || time.is_zero() {
        return Err(format!("{text:?} names no plugin or leaves it no time"));
    }
    Ok((name.to_owned(), time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugins_own_time_names_it() {
        assert_eq!(plugin_timeout("net=1.5s"), Ok(("net".to_owned(), Duration::from_millis(1500))));
        for wrong in ["net", "=2s", "net=", "net=0s", "net=soon"] {
            assert!(plugin_timeout(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "5", "s", "1d", "-1s", "1.2.3s"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
