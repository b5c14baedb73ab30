//! Query parameters of a request, decoded once.

use crate::status::ApiError;

/// The decoded parameters in the order they were written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes `a=b&c=d` with percent and plus escapes.
    pub(crate) fn parse(raw: &str) -> Self {
        let pairs = raw.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unescape(key, true), unescape(value, true))
        });
        Self(pairs.collect())
    }

    /// The first value of `key`.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The first value of `key`, unless it is empty.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|value| !value.is_empty())
    }

    /// All values of `key`.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// A boolean as Kubernetes reads one: absent, `0` and `false` are false, all else is true.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !matches!(value, "0" | "false" | "False" | "FALSE" | "F" | "f"))
    }

    /// A whole number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.text(key) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!("strconv.ParseInt: parsing \"{value}\": invalid syntax"))
        })
    }
}

/// Undoes percent escapes; `+` means a space in a query, itself in a path.
pub(crate) fn unescape(text: &str, plus: bool) -> String {
    if !text.contains(['%', '+']) {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
        match (bytes[at], hex.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) if plus => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_repeated_keys_kept() {
        let query =
            Query::parse("command=sh&command=-c&fieldSelector=spec.nodeName%3Dn1&x=a+b&watch=1&bad=%zz");
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["sh", "-c"]);
        assert_eq!(query.get("fieldSelector"), Some("spec.nodeName=n1"));
        assert_eq!(query.get("x"), Some("a b"));
        assert_eq!(query.get("bad"), Some("%zz"));
        assert!(query.flag("watch"));
        assert!(!query.flag("follow"));
    }
}
