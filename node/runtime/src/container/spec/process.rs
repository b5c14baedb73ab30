//! The process: arguments, environment, working directory, scores and labels.

use podwire_wire::cri;

use super::{ImageDefaults, SpecError};

const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Kubernetes' rule: a command replaces the image's entrypoint and cmd; arguments alone replace the cmd.
pub(crate) fn args(config: &cri::ContainerConfig, image: &ImageDefaults) -> Result<Vec<String>, SpecError> {
    let mut all = config.command.clone();
    let mut tail = config.args.clone();
    if all.is_empty() {
        all.clone_from(&image.entrypoint);
        if tail.is_empty() {
            tail.clone_from(&image.cmd);
        }
    }
    all.append(&mut tail);
    if all.is_empty() || all[0].is_empty() {
        return Err(SpecError::NoCommand);
    }
    Ok(all)
}

/// The image's environment, then HOSTNAME, then the config's; the last word on a name counts, in the first one's place.
pub(crate) fn env(config: &cri::ContainerConfig, image: &ImageDefaults, hostname: &str) -> Vec<String> {
    let mut list: Vec<String> = vec![DEFAULT_PATH.to_owned()];
    if config.tty {
        set(&mut list, "TERM=xterm".to_owned());
    }
    if !hostname.is_empty() {
        set(&mut list, format!("HOSTNAME={hostname}"));
    }
    for pair in &image.env {
        set(&mut list, pair.clone());
    }
    for pair in &config.envs {
        set(&mut list, format!("{}={}", pair.key, String::from_utf8_lossy(&pair.value)));
    }
    list
}

fn set(list: &mut Vec<String>, pair: String) {
    let name = pair.split('=').next().unwrap_or_default().to_owned() + "=";
    match list.iter_mut().find(|known| known.starts_with(&name)) {
        Some(known) => *known = pair,
        None => list.push(pair),
    }
}

/// The config's directory, else the image's, else the root.
pub(crate) fn cwd(config: &cri::ContainerConfig, image: &ImageDefaults) -> String {
    [&config.working_dir, &image.working_dir].into_iter().find(|dir| !dir.is_empty()).map_or_else(
        || "/".to_owned(),
        |dir| if dir.starts_with('/') { dir.clone() } else { format!("/{dir}") },
    )
}

/// A score that is asked for, lifted to what this process is allowed to give.
pub(crate) fn oom_score(requested: i64, floor: i32) -> i32 {
    i32::try_from(requested.clamp(-1000, 1000)).unwrap_or(0).max(floor)
}

/// Options that say nothing.
pub(crate) fn is_no_label(options: &cri::SeLinuxOption) -> bool {
    *options == cri::SeLinuxOption::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> ImageDefaults {
        ImageDefaults {
            entrypoint: vec!["/entry".into()],
            cmd: vec!["serve".into()],
            env: vec!["A=image".into(), "PATH=/only".into()],
            working_dir: "srv".into(),
        }
    }

    fn own(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn command_and_args_replace_what_they_should() {
        let config = |command: &[&str], args: &[&str]| cri::ContainerConfig {
            command: own(command),
            args: own(args),
            ..Default::default()
        };
        assert_eq!(args(&config(&[], &[]), &image()).unwrap(), own(&["/entry", "serve"]));
        assert_eq!(args(&config(&[], &["x"]), &image()).unwrap(), own(&["/entry", "x"]));
        assert_eq!(args(&config(&["sh"], &[]), &image()).unwrap(), own(&["sh"]));
        assert_eq!(args(&config(&["sh"], &["-c"]), &image()).unwrap(), own(&["sh", "-c"]));
        assert!(args(&config(&[], &[]), &ImageDefaults::default()).is_err());
    }

    #[test]
    fn the_last_value_of_a_variable_counts() {
        let envs = vec![
            cri::KeyValue { key: "A".into(), value: "config".into() },
            cri::KeyValue { key: "B".into(), value: "x=y".into() },
        ];
        let config = cri::ContainerConfig { envs, ..Default::default() };
        assert_eq!(
            env(&config, &image(), "web-0"),
            own(&["PATH=/only", "HOSTNAME=web-0", "A=config", "B=x=y"])
        );
        assert_eq!(
            env(&cri::ContainerConfig::default(), &ImageDefaults::default(), ""),
            own(&[DEFAULT_PATH])
        );
    }

    #[test]
    fn a_relative_working_directory_starts_at_the_root() {
        assert_eq!(cwd(&cri::ContainerConfig::default(), &image()), "/srv");
        assert_eq!(cwd(&cri::ContainerConfig::default(), &ImageDefaults::default()), "/");
    }

    #[test]
    fn an_oom_score_below_the_floor_is_lifted() {
        assert_eq!(oom_score(-997, -500), -500);
        assert_eq!(oom_score(-997, -1000), -997);
        assert_eq!(oom_score(5000, -1000), 1000);
    }
}
