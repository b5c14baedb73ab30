//! Objects from files, folders and standard input; YAML with several documents, JSON, and Lists.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

/// Every object in the named files, in order, with the name of its file.
pub fn read(paths: &[PathBuf]) -> Result<Vec<(String, Value)>> {
    let mut objects = Vec::new();
    for path in paths {
        for (name, text) in sources(path)? {
            let mut found = Vec::new();
            parse(&text, &mut found).with_context(|| format!("error: error parsing {name}"))?;
            objects.extend(found.into_iter().map(|object| (name.clone(), object)));
        }
    }
    if objects.is_empty() {
        bail!("error: no objects passed to apply");
    }
    Ok(objects)
}

fn sources(path: &Path) -> Result<Vec<(String, String)>> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("read standard input")?;
        return Ok(vec![("STDIN".to_owned(), text)]);
    }
    if !path.exists() {
        bail!("error: the path {:?} does not exist", path.display().to_string());
    }
    let missing = || format!("error: read {:?}", path.display().to_string());
    if !path.is_dir() {
        let text = fs::read_to_string(path).with_context(missing)?;
        return Ok(vec![(path.display().to_string(), text)]);
    }
    let mut files: Vec<PathBuf> = fs::read_dir(path)
        .with_context(missing)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|file| matches!(file.extension().and_then(|e| e.to_str()), Some("yaml" | "yml" | "json")))
        .collect();
    files.sort();
    files.into_iter().map(|file| Ok((file.display().to_string(), fs::read_to_string(&file)?))).collect()
}

fn parse(text: &str, objects: &mut Vec<Value>) -> Result<()> {
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let value = Value::deserialize(document)?;
        match value {
            Value::Null => {}
            Value::Object(ref map) if map.get("kind").and_then(Value::as_str) == Some("List") => {
                objects.extend(map.get("items").and_then(Value::as_array).cloned().unwrap_or_default());
            }
            Value::Object(_) => {
                for field in ["apiVersion", "kind"] {
                    if value[field].as_str().unwrap_or_default().is_empty() {
                        bail!("error validating data: {field} not set");
                    }
                }
                objects.push(value);
            }
            _ => bail!("json: cannot unmarshal this document into an object"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_lists_become_objects_in_order() {
        let mut objects = Vec::new();
        let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n";
        parse(text, &mut objects).unwrap();
        let names: Vec<_> = objects.iter().map(|o| o["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_document_without_kind_is_refused() {
        let error = parse("apiVersion: v1\nmetadata: {}\n", &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("kind not set"), "{error}");
    }
}
