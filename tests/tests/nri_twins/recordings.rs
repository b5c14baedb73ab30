//! What the plugin was told, event by event, taken apart into single facts that two runtimes can be compared by.
//!
//! Names that a runtime makes up (ids, folders, process numbers, times) become the same word on both.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;

/// Notes the order of events and everything they told.
pub fn note_recordings(lines: &[Value], folder: &Path, report: &mut BTreeMap<String, String>) {
    for container in ["env", "update", "unprompted"] {
        let events: Vec<&str> = lines
            .iter()
            .filter(|line| line["container"] == container && line["event"] != "Unprompted")
            .filter_map(|line| line["event"].as_str())
            .collect();
        report.insert(format!("events/{container}"), events.join(" "));
    }
    let of_pod = lines.iter().filter(|line| line["container"].is_null() && line["pod"] == "kinds");
    let events: Vec<&str> = of_pod.filter_map(|line| line["event"].as_str()).collect();
    report.insert("events/pod".to_owned(), events.join(" "));
    for line in lines {
        let (event, container) = (text(&line["event"]), text(&line["container"]));
        if container.is_empty() && line["pod"] != "kinds" {
            continue;
        }
        let words = Words::of(line, folder);
        let place = if container.is_empty() { event } else { format!("{event} {container}") };
        for part in ["podIs", "is", "asked", "owners"] {
            // What a pod is stands in every event of its containers; once is enough.
            if part != "podIs" || container.is_empty() || container == "env" {
                words.flatten(&format!("{place}/{part}"), &line[part], report);
            }
        }
    }
    let unprompted = lines.iter().find(|line| line["event"] == "Unprompted");
    let answer = unprompted.map(|line| format!("{} failed, {}", line["size"], line["text"]));
    report.insert("unprompted/answer".to_owned(), answer.unwrap_or_default());
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What a runtime made up, and what it is called here.
struct Words(Vec<(String, &'static str)>);

impl Words {
    fn of(line: &Value, folder: &Path) -> Words {
        let mut words = vec![
            (text(&line["is"]["id"]), "CONTAINER"),
            (text(&line["podIs"]["id"]), "POD"),
            (folder.display().to_string(), "FOLDER"),
            (text(&line["podIs"]["annotations"]["uts"]), "UTS"),
            (text(&line["podIs"]["ips"][0]), "ADDRESS"),
        ];
        words.retain(|(word, _)| !word.is_empty());
        Words(words)
    }

    /// Takes an object apart: lists of things by what names them, texts as they are.
    fn flatten(&self, place: &str, value: &Value, report: &mut BTreeMap<String, String>) {
        match value {
            Value::Null => {}
            Value::Object(map) => {
                for (key, inner) in map {
                    self.flatten(&format!("{place}/{key}"), inner, report);
                }
            }
            // Rules have an order and no names: together they are one fact.
            Value::Array(list) if list.iter().any(|one| one["access"].is_string()) => {
                report.insert(place.to_owned(), value.to_string());
            }
            Value::Array(list) => {
                for (number, one) in list.iter().enumerate() {
                    let (name, rest) = named(number, one);
                    self.flatten(&format!("{place}/{name}"), &rest, report);
                }
            }
            plain => {
                let plain = plain.as_str().map_or_else(|| plain.to_string(), str::to_owned);
                report.insert(place.to_owned(), self.plain(place, plain));
            }
        }
    }

    fn plain(&self, place: &str, mut value: String) -> String {
        let key = place.rsplit('/').next().unwrap_or_default();
        if ["pid", "createdAt", "startedAt", "finishedAt"].contains(&key) {
            return (if value == "0" { "none" } else { "some" }).to_owned();
        }
        for (word, name) in &self.0 {
            value = value.replace(word.as_str(), name);
        }
        value
    }
}

/// What an entry of a list is called, and what else there is to it.
fn named(number: usize, entry: &Value) -> (String, Value) {
    if let Some((name, value)) = entry.as_str().and_then(|text| text.split_once('=')) {
        return (name.to_owned(), value.into());
    }
    let Value::Object(map) = entry else { return (number.to_string(), entry.clone()) };
    for key in ["destination", "path", "pageSize", "key", "type", "name"] {
        // A namespace is called by its kind: its path is the runtime's own.
        let namespace = key == "path" && map.contains_key("type") && !map.contains_key("major");
        if let Some(name) = map.get(key).and_then(Value::as_str).filter(|_| !namespace) {
            return (name.replace('/', "\\"), entry.clone());
        }
    }
    (number.to_string(), entry.clone())
}
