//! JSON as the reference implementation reads it: keys in any case, `null` is absent, wrong types are errors that name
//! the field.
//!
//! containerd sends `{"HostPort":8080}` where the convention says `hostPort`, so this is not optional.

use serde_json::{Map, Value};

use super::error::{CniError, code};

/// A JSON object with the path that leads to it.
#[derive(Clone)]
pub struct Object<'a> {
    map: Option<&'a Map<String, Value>>,
    path: String,
}

impl<'a> Object<'a> {
    /// The object in a value, named `path` in errors.
    pub fn of(value: &'a Value, path: &str) -> Result<Object<'a>, CniError> {
        match value {
            Value::Object(map) => Ok(Object { map: Some(map), path: path.to_owned() }),
            Value::Null => Ok(Object { map: None, path: path.to_owned() }),
            other => Err(wrong(path, "an object", other)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its keys and values as written.
    pub fn entries(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.map.into_iter().flatten()
    }

    /// The value of a field: the exact name first, else the last that matches without regard to case.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        let map = self.map?;
        let found = map.get(name).or_else(|| {
            map.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next_back()
        });
        found.filter(|value| !value.is_null())
    }

    /// The path of a field, for messages.
    pub fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A text field.
    pub fn str(&self, name: &str) -> Result<Option<&'a str>, CniError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(&self.at(name), "a string", other)),
        }
    }

    /// A text field; an empty one counts as absent.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>, CniError> {
        Ok(self.str(name)?.filter(|text| !text.is_empty()))
    }

    /// A yes-or-no field.
    pub fn bool(&self, name: &str) -> Result<Option<bool>, CniError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(wrong(&self.at(name), "true or false", other)),
        }
    }

    /// A whole number.
    pub fn i64(&self, name: &str) -> Result<Option<i64>, CniError> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => {
                value.as_i64().map(Some).ok_or_else(|| wrong(&self.at(name), "a whole number", value))
            }
        }
    }

    /// A whole number that is not negative.
    pub fn u64(&self, name: &str) -> Result<Option<u64>, CniError> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => {
                value.as_u64().map(Some).ok_or_else(|| wrong(&self.at(name), "a whole number from 0", value))
            }
        }
    }

    /// A whole number that fits 32 bits.
    pub fn u32(&self, name: &str) -> Result<Option<u32>, CniError> {
        let Some(number) = self.u64(name)? else { return Ok(None) };
        let fits = u32::try_from(number);
        fits.map(Some).map_err(|_| wrong(&self.at(name), "a number of 32 bits", &Value::from(number)))
    }

    /// An object field; absent is empty.
    pub fn object(&self, name: &str) -> Result<Object<'a>, CniError> {
        match self.get(name) {
            None => Ok(Object { map: None, path: self.at(name) }),
            Some(value) => Object::of(value, &self.at(name)),
        }
    }

    /// A list field; absent is empty.
    pub fn list(&self, name: &str) -> Result<Vec<(String, &'a Value)>, CniError> {
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                let at = self.at(name);
                Ok(items.iter().enumerate().map(|(i, item)| (format!("{at}[{i}]"), item)).collect())
            }
            Some(other) => Err(wrong(&self.at(name), "a list", other)),
        }
    }

    /// A list of objects.
    pub fn objects(&self, name: &str) -> Result<Vec<Object<'a>>, CniError> {
        self.list(name)?.into_iter().map(|(path, value)| Object::of(value, &path)).collect()
    }

    /// A list of texts.
    pub fn strings(&self, name: &str) -> Result<Vec<String>, CniError> {
        let items = self.list(name)?.into_iter();
        items
            .map(|(path, value)| {
                value.as_str().map(str::to_owned).ok_or_else(|| wrong(&path, "a string", value))
            })
            .collect()
    }

    /// A text field parsed into something, with what it should have been.
    pub fn parsed<T: std::str::FromStr>(&self, name: &str, expected: &str) -> Result<Option<T>, CniError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let parsed = text.parse();
        parsed.map(Some).map_err(|_| wrong(&self.at(name), expected, &Value::from(text)))
    }
}

/// The field at `path` is not what it should be.
pub fn wrong(path: &str, expected: &str, found: &Value) -> CniError {
    let mut shown = found.to_string();
    if shown.len() > 80 {
        let cut = (0..=80).rev().find(|at| shown.is_char_boundary(*at)).unwrap_or(0);
        shown.truncate(cut);
        shown.push('…');
    }
    CniError::new(code::DECODE, format!("field {path:?}: expected {expected}, found {shown}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_match_in_any_case_and_null_is_absent() {
        let value = json!({"HostPort": 80, "mtu": null, "ISGATEWAY": true});
        let object = Object::of(&value, "").expect("object");
        assert_eq!(object.u64("hostPort").expect("number"), Some(80));
        assert_eq!(object.u32("mtu").expect("absent"), None);
        assert_eq!(object.bool("isGateway").expect("bool"), Some(true));
    }

    #[test]
    fn a_wrong_type_names_the_field() {
        let value = json!({"ipam": {"routes": [{"dst": 5}]}});
        let routes = Object::of(&value, "")
            .expect("object")
            .object("ipam")
            .expect("ipam")
            .objects("routes")
            .expect("list");
        let error = routes[0].str("dst").expect_err("a number is no string");
        assert_eq!(error.code, code::DECODE);
        assert!(error.msg.contains("ipam.routes[0].dst"), "{}", error.msg);
    }
}
