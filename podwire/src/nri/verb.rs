//! `podwire nri list` and `podwire nri log`: what to ask the node, and in which form to show the answer.

use std::{path::Path, time::Duration};

use anyhow::{Result, bail};
use podwire_nri::{Entry, PluginInfo};

use super::serve::ask;
use crate::{cli::NriVerb, instance::Instance, say};

/// Carries out one of the verbs.
pub fn run(verb: NriVerb) -> Result<()> {
    match verb {
        NriVerb::List { data, output } => {
            let socket = Instance::at(&data.data_dir)?.nri_control_socket();
            list(&socket, output.as_deref())
        }
        NriVerb::Log { data, tail, no_follow, pod, plugin, output } => {
            let socket = Instance::at(&data.data_dir)?.nri_control_socket();
            let wanted = Wanted { pod, plugin };
            let json = match output.as_deref() {
                None => false,
                Some("json") => true,
                Some(other) => bail!("error: unknown form {other:?}; choose json"),
            };
            log(&socket, tail, !no_follow, &wanted, json)
        }
    }
}

fn list(socket: &Path, output: Option<&str>) -> Result<()> {
    let mut plugins: Vec<PluginInfo> = Vec::new();
    ask(socket, "list", |line| {
        plugins.push(serde_json::from_str(line)?);
        Ok(())
    })?;
    match output {
        Some("json") => say(&serde_json::to_string_pretty(&plugins)?),
        None | Some("wide") => say(table(&plugins, output.is_some()).trim_end()),
        Some(other) => bail!("error: unknown form {other:?}; choose wide or json"),
    }
    Ok(())
}

fn state(plugin: &PluginInfo) -> &'static str {
    match (plugin.ready, plugin.connected, plugin.connects) {
        (true, ..) => "ready",
        (_, true, _) => "synchronizing",
        (_, _, 0) => "absent",
        _ => "gone",
    }
}

fn table(plugins: &[PluginInfo], wide: bool) -> String {
    let mut rows = vec![
        ["INDEX", "NAME", "STATE", "REQUIRED", "CALLS", "ERRORS", "P50", "P99", "EVENTS", "LAST ERROR"]
            .map(str::to_owned),
    ];
    rows.extend(plugins.iter().map(|one| {
        let names = one.event_names();
        let events = match names.as_slice() {
            [] => "-".to_owned(),
            ["all"] => "all".to_owned(),
            names if !wide && names.len() > 3 => format!("{} of them", names.len()),
            names => names.join(","),
        };
        [
            if one.index.is_empty() { "-" } else { one.index.as_str() }.to_owned(),
            one.name.clone(),
            state(one).to_owned(),
            if one.required { "yes" } else { "no" }.to_owned(),
            one.calls.to_string(),
            one.errors.to_string(),
            millis(one.median),
            millis(one.p99),
            events,
            one.last_error.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    }));
    let widths: Vec<usize> =
        (0..10).map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
    let line = |row: &[String; 10]| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("   ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn millis(time: Duration) -> String {
    format!("{:.2}ms", time.as_secs_f64() * 1000.0)
}

/// Which entries to show.
struct Wanted {
    pod: Option<String>,
    plugin: Option<String>,
}

impl Wanted {
    fn takes(&self, entry: &Entry) -> bool {
        let same = |asked: &Option<String>, full: &str, separator: char| {
            asked.as_deref().is_none_or(|asked| {
                asked == full || full.split_once(separator).is_some_and(|(_, short)| short == asked)
            })
        };
        same(&self.pod, &entry.pod, '/') && same(&self.plugin, &entry.plugin, '-')
    }
}

fn log(socket: &Path, tail: usize, follow: bool, wanted: &Wanted, json: bool) -> Result<()> {
    let show = |entry: &Entry| -> Result<()> {
        say(&if json { serde_json::to_string(entry)? } else { words(entry) });
        Ok(())
    };
    let mut past: Vec<Entry> = Vec::new();
    ask(socket, "log", |line| {
        past.push(serde_json::from_str(line)?);
        Ok(())
    })?;
    past.retain(|entry| wanted.takes(entry));
    let mut last = past.last().map_or(0, |entry| entry.at);
    past[past.len().saturating_sub(tail)..].iter().try_for_each(show)?;
    if !follow {
        return Ok(());
    }
    ask(socket, "log follow", |line| {
        let entry: Entry = serde_json::from_str(line)?;
        // What was shown above comes again at the beginning.
        if (entry.at > last || entry.at == 0) && wanted.takes(&entry) {
            last = last.max(entry.at);
            show(&entry)?;
        }
        Ok(())
    })
}

/// An entry in one line: when, who, what, to whom, how long, how it went.
fn words(entry: &Entry) -> String {
    let at = i64::try_from(entry.at)
        .ok()
        .and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok())
        .map_or_else(String::new, |time| time.strftime("%H:%M:%S%.3f").to_string());
    let mut parts = vec![at, entry.plugin.clone(), entry.event.clone()];
    if !entry.pod.is_empty() {
        let container =
            if entry.container.is_empty() { String::new() } else { format!(" [{}]", entry.container) };
        parts.push(format!("{}{container}", entry.pod));
    }
    if entry.micros > 0 {
        parts.push(millis(Duration::from_micros(entry.micros)));
    }
    parts.extend([entry.outcome.clone(), entry.detail.clone()].into_iter().filter(|text| !text.is_empty()));
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_required_plugin_that_never_came_is_absent() {
        let never = PluginInfo { name: "net".into(), required: true, ..PluginInfo::default() };
        let there = PluginInfo {
            index: "10".into(),
            name: "log".into(),
            events: 1,
            connected: true,
            ready: true,
            connects: 1,
            calls: 3,
            ..PluginInfo::default()
        };
        let text = table(&[there, never], false);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1][..5], ["10", "log", "ready", "no", "3"]);
        assert_eq!(lines[1][8], "RUN_POD_SANDBOX");
        assert_eq!(lines[2][..4], ["-", "net", "absent", "yes"]);
    }

    #[test]
    fn entries_are_chosen_by_pod_and_plugin_with_or_without_their_prefix() {
        let entry = Entry { pod: "default/web".into(), plugin: "10-net".into(), ..Entry::default() };
        let takes = |pod: Option<&str>, plugin: Option<&str>| {
            Wanted { pod: pod.map(str::to_owned), plugin: plugin.map(str::to_owned) }.takes(&entry)
        };
        assert!(takes(None, None) && takes(Some("web"), Some("net")));
        assert!(takes(Some("default/web"), Some("10-net")));
        assert!(!takes(Some("other"), None) && !takes(None, Some("11-net")));
    }

    #[test]
    fn an_entry_is_one_line() {
        let entry = Entry {
            at: 1_000_000,
            plugin: "10-net".into(),
            event: "CreateContainer".into(),
            pod: "default/web".into(),
            container: "main".into(),
            outcome: "ok".into(),
            detail: "env A".into(),
            micros: 1500,
        };
        assert_eq!(
            words(&entry),
            "00:00:01.000  10-net  CreateContainer  default/web [main]  1.50ms  ok  env A"
        );
    }
}
