//! Pictures of a pod's path: a sequence diagram in the terminal, the same as mermaid, and a table of where time went.

use super::Arrow;
use crate::client::columns;

/// The order in which the mission's diagrams name the participants.
const ORDER: &[&str] = &[
    "KubeCtl",
    "APIServer",
    "etcd",
    "Scheduler",
    "Kubelet",
    "ContainerRuntime",
    "CNIPlugin",
    "NetworkPlugin",
    "NetworkDriver",
    "DevicePlugin",
];

/// Who takes part, in the diagrams' order; strangers last.
pub fn participants(arrows: &[Arrow]) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for name in arrows.iter().flat_map(|arrow| [&arrow.from, &arrow.to]) {
        if !seen.contains(name) {
            seen.push(name.clone());
        }
    }
    seen.sort_by_key(|name| ORDER.iter().position(|known| known == name).unwrap_or(ORDER.len()));
    seen
}

fn shown_time(micros: u64) -> String {
    let millis = micros as f64 / 1000.0;
    if millis >= 1000.0 { format!("{:.2} s", millis / 1000.0) } else { format!("{millis:.1} ms") }
}

/// A sequence diagram in mermaid, in the form of the mission documents.
pub fn mermaid(arrows: &[Arrow]) -> String {
    let mut text = String::from("sequenceDiagram\n");
    for name in participants(arrows) {
        text.push_str(&format!("    participant {}\n", identifier(&name)));
    }
    let start = arrows.first().map_or(0, Arrow::began);
    for arrow in arrows {
        let (from, to) = (identifier(&arrow.from), identifier(&arrow.to));
        let at = shown_time(arrow.began() - start);
        if arrow.is_note() {
            text.push_str(&format!("    Note over {from}: {} [{at}]\n", safe(&arrow.what)));
            continue;
        }
        text.push_str(&format!("    {from}->>{to}: {} [{at}]\n", safe(&arrow.what)));
        let reply = if arrow.error.is_empty() { &arrow.reply } else { &arrow.error };
        if !reply.is_empty() {
            text.push_str(&format!("    {to}-->>{from}: {} [{}]\n", safe(reply), shown_time(arrow.micros)));
        }
    }
    text
}

fn identifier(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    if plain.is_empty() { "unknown".to_owned() } else { plain }
}

/// Text that mermaid does not read as syntax.
fn safe(text: &str) -> String {
    text.replace([';', '#'], ",").replace(['\n', '\r'], " ")
}

/// A sequence diagram for a terminal `width` columns wide; a list when it is too narrow for lanes.
pub fn sequence(arrows: &[Arrow], width: usize) -> String {
    let names = participants(arrows);
    let lane = width.saturating_sub(12) / names.len().max(1);
    if lane < 14 { list(arrows) } else { lanes(arrows, &names, lane.min(30)) }
}

fn list(arrows: &[Arrow]) -> String {
    let start = arrows.first().map_or(0, Arrow::began);
    let mut lines = vec![["AT", "TOOK", "FROM", "TO", "WHAT"].map(str::to_owned).to_vec()];
    for arrow in arrows {
        let to = if arrow.is_note() { String::new() } else { arrow.to.clone() };
        let mut what = arrow.what.clone();
        for (mark, more) in [(" -> ", &arrow.reply), (" !! ", &arrow.error)] {
            if !more.is_empty() {
                what.push_str(mark);
                what.push_str(more);
            }
        }
        lines.push(vec![
            shown_time(arrow.began() - start),
            shown_time(arrow.micros),
            arrow.from.clone(),
            to,
            what,
        ]);
    }
    columns(&lines)
}

fn lanes(arrows: &[Arrow], names: &[String], lane: usize) -> String {
    let center = |at: usize| at * lane + lane / 2;
    let column = |name: &String| center(names.iter().position(|known| known == name).unwrap_or(0));
    let total = lane * names.len();
    let mut text = String::new();
    let mut head = vec![' '; total];
    for (at, name) in names.iter().enumerate() {
        let shown: Vec<char> = name.chars().take(lane - 1).collect();
        put(&mut head, center(at).saturating_sub(shown.len() / 2), &shown);
    }
    push_line(&mut text, "", &head);
    let start = arrows.first().map_or(0, Arrow::began);
    for arrow in arrows {
        let mut row = vec![' '; total];
        for at in 0..names.len() {
            row[center(at)] = '│';
        }
        let (from, to) = (column(&arrow.from), column(&arrow.to));
        let took = if arrow.micros > 0 { format!(" ({})", shown_time(arrow.micros)) } else { String::new() };
        let label = format!(
            "{}{took}",
            if arrow.error.is_empty() {
                arrow.what.clone()
            } else {
                format!("{}: {}", arrow.what, arrow.error)
            }
        );
        let at = shown_time(arrow.began() - start);
        let mut words = row.clone();
        if arrow.is_note() {
            row[from] = '◆';
            put(&mut row, from + 2, &label.chars().collect::<Vec<_>>());
        } else {
            let (low, high) = (from.min(to), from.max(to));
            for cell in row.iter_mut().take(high).skip(low + 1) {
                *cell = '─';
            }
            if to > from {
                row[high - 1] = '▶'
            } else {
                row[low + 1] = '◀'
            }
            // The words stand above their arrow.
            put(&mut words, low + 2, &label.chars().collect::<Vec<_>>());
            push_line(&mut text, &at, &words);
            push_line(&mut text, "", &row);
            continue;
        }
        push_line(&mut text, &at, &row);
    }
    text
}

fn put(row: &mut Vec<char>, at: usize, chars: &[char]) {
    if row.len() < at + chars.len() {
        row.resize(at + chars.len(), ' ');
    }
    row[at..at + chars.len()].copy_from_slice(chars);
}

fn push_line(text: &mut String, at: &str, row: &[char]) {
    let line: String = row.iter().collect();
    text.push_str(format!("{at:>10}  {line}").trim_end());
    text.push('\n');
}

/// Where the time of several pods went: one line each, one column per kind of step.
pub fn summary(pods: &[Vec<Arrow>]) -> String {
    let head =
        ["POD", "SCHEDULE", "SANDBOX", "CNI", "CREATE", "START", "RUNNING AFTER"].map(str::to_owned).to_vec();
    let mut lines = vec![head];
    for arrows in pods {
        let Some(first) = arrows.first() else { continue };
        let sum = |prefix: &str, to: &str| -> String {
            let own: Vec<u64> = arrows
                .iter()
                .filter(|a| a.what.starts_with(prefix) && a.to == to)
                .map(|a| a.micros)
                .collect();
            if own.is_empty() { "-".to_owned() } else { shown_time(own.iter().sum()) }
        };
        let until = |wanted: &dyn Fn(&Arrow) -> bool| -> String {
            arrows.iter().find(|a| wanted(a)).map_or("-".to_owned(), |a| shown_time(a.ended - first.began()))
        };
        lines.push(vec![
            first.pod.clone(),
            until(&|a| a.what.ends_with("/binding")),
            sum("RunPodSandbox", "ContainerRuntime"),
            sum("ADD", "CNIPlugin"),
            sum("CreateContainer", "ContainerRuntime"),
            sum("StartContainer", "ContainerRuntime"),
            last_status_before_stop(arrows).map_or("-".to_owned(), |ended| shown_time(ended - first.began())),
        ]);
    }
    columns(&lines)
}

/// The end of the first status PATCH after the last StartContainer: the pod is Running for everybody.
fn last_status_before_stop(arrows: &[Arrow]) -> Option<u64> {
    let started = arrows.iter().filter(|a| a.what.starts_with("StartContainer")).map(|a| a.ended).max()?;
    arrows
        .iter()
        .find(|a| a.from == "Kubelet" && a.what.contains("/status") && a.began() >= started)
        .map(|a| a.ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> Vec<Arrow> {
        let arrow = |from: &str, to: &str, what: &str, reply: &str, ended: u64, micros: u64| Arrow {
            uid: "u".to_owned(),
            pod: "default/web".to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            what: what.to_owned(),
            reply: reply.to_owned(),
            ended,
            micros,
            ..Arrow::default()
        };
        vec![
            arrow("KubeCtl", "APIServer", "POST /api/v1/namespaces/default/pods", "201", 2_000, 2_000),
            arrow("Scheduler", "Scheduler", "filtered 1 of 1 nodes; chose node1", "", 3_000, 0),
            arrow("Kubelet", "ContainerRuntime", "RunPodSandbox", "sandbox 1", 9_000, 5_000),
        ]
    }

    #[test]
    fn mermaid_names_participants_in_the_missions_order_and_keeps_arrows_in_time() {
        let text = mermaid(&path());
        let order: Vec<&str> =
            text.lines().filter_map(|line| line.trim().strip_prefix("participant ")).collect();
        assert_eq!(order, ["KubeCtl", "APIServer", "Scheduler", "Kubelet", "ContainerRuntime"]);
        let first = text.find("KubeCtl->>APIServer: POST").unwrap();
        let second = text.find("Kubelet->>ContainerRuntime: RunPodSandbox").unwrap();
        assert!(first < second);
        assert!(text.contains("ContainerRuntime-->>Kubelet: sandbox 1 [5.0 ms]"), "{text}");
        assert!(!text.contains(';'), "a semicolon would end the statement: {text}");
    }

    #[test]
    fn a_narrow_terminal_gets_a_list_and_a_wide_one_lanes() {
        assert!(sequence(&path(), 60).starts_with("AT"));
        let wide = sequence(&path(), 160);
        assert!(wide.contains('▶') && wide.contains('◆'), "{wide}");
    }
}
