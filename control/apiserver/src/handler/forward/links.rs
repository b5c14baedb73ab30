//! Paths and addresses of what is passed on: how a path is cleaned and escaped, and how a backend's link to itself is
//! made to lead through this server again.
//!
//! Pure. What is no link to the backend, or cannot be read, stays as it is.

use crate::query::unescape;

/// A path without empty, `.` and `..` segments; one that is rooted stays below its root.
pub(super) fn clean(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

/// Two paths as one, which ends in a slash if the second does.
pub(super) fn join(first: &str, second: &str) -> String {
    let joined = clean(&format!("{first}/{second}"));
    if second.ends_with('/') && !joined.ends_with('/') { joined + "/" } else { joined }
}

/// A path as it stands in a request: what Go escapes is escaped.
pub(super) fn escape(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    path.bytes().map(one).collect()
}

/// Makes links of a page lead through the proxy.
pub(super) struct Links {
    /// What stands before the backend's own path in the request.
    pub(super) prefix: String,
    /// The backend as it is asked.
    pub(super) backend: String,
    /// The host that the client asked for.
    pub(super) asked: String,
}

impl Links {
    /// The links of a page that was asked for at `whole`, which is `path` to the backend.
    pub(super) fn new(whole: &str, path: &str, backend: String, asked: String) -> Self {
        let slash = whole.ends_with('/') && !path.ends_with('/');
        let suffix = if slash { format!("{path}/") } else { path.to_owned() };
        let prefix = whole.strip_suffix(suffix.as_str()).unwrap_or(whole).to_owned();
        Self { prefix, backend, asked }
    }

    /// A link of the page as the client can follow it.
    pub(super) fn rewrite(&self, target: &str) -> String {
        self.through(target).unwrap_or_else(|| target.to_owned())
    }

    fn through(&self, target: &str) -> Option<String> {
        let link = Link::parse(target)?;
        let elsewhere = !link.host.is_empty() && link.host != self.backend && link.host != self.asked;
        let path = unescape(link.path, false);
        if elsewhere || !path.starts_with('/') {
            return None;
        }
        let head = match link.scheme {
            Some(scheme) if link.host == self.asked => format!("{scheme}://{}", link.host),
            None if !link.host.is_empty() && link.host == self.asked => format!("//{}", link.host),
            _ => String::new(),
        };
        if path.starts_with(&self.prefix) {
            return Some(format!("{head}{}{}", link.path, link.rest));
        }
        Some(format!("{head}{}{}", escape(&join(&self.prefix, &join("", &path))), link.rest))
    }
}

/// The parts of an address that matter here.
struct Link<'a> {
    scheme: Option<&'a str>,
    host: &'a str,
    path: &'a str,
    /// Query and fragment.
    rest: &'a str,
}

impl<'a> Link<'a> {
    fn parse(target: &'a str) -> Option<Self> {
        if target.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return None;
        }
        let (before, rest) = target.split_at(target.find(['?', '#']).unwrap_or(target.len()));
        let is_scheme = |word: &str| {
            word.starts_with(|first: char| first.is_ascii_alphabetic())
                && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        };
        let (scheme, after) = match before.split_once(':') {
            Some((word, after)) if is_scheme(word) => (Some(word), after),
            _ => (None, before),
        };
        let (host, path) = match after.strip_prefix("//") {
            Some(after) => after.split_at(after.find('/').unwrap_or(after.len())),
            None => ("", after),
        };
        let odd = host.contains(['@', ' ', '%', '<', '>', '"']);
        (!odd && crate::request::is_well_escaped(path)).then_some(Self { scheme, host, path, rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_its_root() {
        assert_eq!(clean("/a//b/./c"), "/a/b/c");
        assert_eq!(clean("/../../etc/passwd"), "/etc/passwd");
        assert_eq!(join("", "/a/../b/"), "/b/");
        assert_eq!((join("", "/"), join("/x", "/")), ("/".to_owned(), "/x/".to_owned()));
        assert_eq!(escape("/a b/(c)?é:@"), "/a%20b/%28c%29%3F%C3%A9:@");
    }

    #[test]
    fn links_to_the_backend_lead_through_the_proxy_and_others_do_not() {
        let whole = "/api/v1/namespaces/a/pods/p:80/proxy/dir/";
        let links = Links::new(whole, "/dir/", "10.0.0.1:80".into(), "server:6443".into());
        assert_eq!(links.prefix, "/api/v1/namespaces/a/pods/p:80/proxy");
        let through = "/api/v1/namespaces/a/pods/p:80/proxy";
        for (link, expected) in [
            ("/x", format!("{through}/x")),
            ("/x/", format!("{through}/x/")),
            ("/../../x?a=/b#c", format!("{through}/x?a=/b#c")),
            ("http://10.0.0.1:80/x", format!("{through}/x")),
            ("https://server:6443/x", format!("https://server:6443{through}/x")),
            ("http://other/x", "http://other/x".into()),
            ("//other/x", "//other/x".into()),
            ("x/y", "x/y".into()),
            ("", String::new()),
            ("javascript:alert(1)", "javascript:alert(1)".into()),
            ("http://10.0.0.1:80", "http://10.0.0.1:80".into()),
            (&format!("{through}/z%20"), format!("{through}/z%20")),
            ("/a b", format!("{through}/a%20b")),
            ("/%zz", "/%zz".into()),
            ("/a\nb", "/a\nb".into()),
        ] {
            assert_eq!(links.rewrite(link), expected, "{link}");
        }
    }

    #[test]
    fn the_prefix_is_what_the_backend_does_not_see() {
        let at = |whole: &str, path: &str| Links::new(whole, path, String::new(), String::new()).prefix;
        assert_eq!(at("/n/x/proxy/", "/"), "/n/x/proxy");
        assert_eq!(at("/n/x/proxy/a", "/a"), "/n/x/proxy");
        assert_eq!(
            at("/n/x/proxy/a//b", "/a/b"),
            "/n/x/proxy/a//b",
            "as upstream: a path that was cleaned is no suffix"
        );
    }
}
