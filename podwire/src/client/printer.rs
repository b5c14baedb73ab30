//! Tables in kubectl's form: upper-case headers, columns three spaces apart.

use serde_json::Value;

/// Which columns of a server-side Table are shown, and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape {
    /// Also the columns of lower priority.
    pub wide: bool,
    /// A first column with each object's namespace.
    pub namespaces: bool,
    /// No header line.
    pub bare: bool,
    /// A last column with each object's labels.
    pub labels: bool,
}

/// Renders the server's Table, or nothing when it has no rows; `prefix` stands before each name (`pod/`).
pub fn table(table: &Value, shape: Shape, prefix: &str) -> String {
    let empty = Vec::new();
    let definitions = table["columnDefinitions"].as_array().unwrap_or(&empty);
    let shown: Vec<usize> = (0..definitions.len())
        .filter(|&at| shape.wide || definitions[at]["priority"].as_i64().unwrap_or(0) == 0)
        .collect();
    let mut lines: Vec<Vec<String>> = Vec::new();
    if !shape.bare {
        let mut header: Vec<String> = shown
            .iter()
            .map(|&at| definitions[at]["name"].as_str().unwrap_or_default().to_uppercase())
            .collect();
        if shape.namespaces {
            header.insert(0, "NAMESPACE".to_owned());
        }
        if shape.labels {
            header.push("LABELS".to_owned());
        }
        lines.push(header);
    }
    for row in table["rows"].as_array().unwrap_or(&empty) {
        let mut cells: Vec<String> = shown.iter().map(|&at| cell(&row["cells"][at])).collect();
        if let Some(name) = cells.first_mut() {
            name.insert_str(0, prefix);
        }
        if shape.labels {
            cells.push(labels(&row["object"]["metadata"]["labels"]));
        }
        if shape.namespaces {
            cells.insert(0, cell(&row["object"]["metadata"]["namespace"]));
        }
        lines.push(cells);
    }
    columns(&lines)
}

fn labels(value: &Value) -> String {
    let Some(map) = value.as_object().filter(|map| !map.is_empty()) else { return "<none>".to_owned() };
    let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key}={}", cell(value))).collect();
    pairs.join(",")
}

/// Lines of cells, each column as wide as its widest cell (but no narrower than six), three spaces apart.
pub fn columns(lines: &[Vec<String>]) -> String {
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|at| {
            lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in lines {
        for (at, cell) in line.iter().enumerate() {
            text.push_str(cell);
            if at + 1 < line.len() {
                let pad = (widths[at] + 3).max(6) - cell.chars().count();
                text.extend(std::iter::repeat_n(' ', pad));
            }
        }
        text.push('\n');
    }
    text
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<none>".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_are_three_spaces_apart_and_wide_ones_hidden() {
        let server = json!({
            "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Ready", "priority": 0}, {"name": "IP", "priority": 1}],
            "rows": [{"cells": ["web", "1/1", "10.0.0.2"], "object": {"metadata": {"namespace": "default"}}}],
        });
        assert_eq!(table(&server, Shape::default(), ""), "NAME   READY\nweb    1/1\n");
        let bare = Shape { bare: true, labels: true, ..Shape::default() };
        assert_eq!(table(&server, bare, "pod/"), "pod/web   1/1   <none>\n");
        let wide = Shape { wide: true, namespaces: true, ..Shape::default() };
        assert_eq!(
            table(&server, wide, ""),
            "NAMESPACE   NAME   READY   IP\ndefault     web    1/1     10.0.0.2\n"
        );
    }
}
