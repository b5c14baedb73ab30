//! Finds the links in a page of HTML and replaces them; every other byte stays as it was.
//!
//! Pure, and linear in the length of the page. It knows tags, attributes, comments and the elements whose content is no
//! markup, as browsers read them; it does not build a tree.

/// The attributes of tags that hold addresses, as upstream lists them.
const LINKS: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Elements whose content is no markup.
const RAW: &[&str] =
    &["iframe", "noembed", "noframes", "plaintext", "script", "style", "textarea", "title", "xmp"];

/// The page with its links replaced.
pub(super) fn rewrite(page: &[u8], link: impl Fn(&str) -> String) -> Vec<u8> {
    let mut reader = Reader { page, at: 0, copied: 0, out: Vec::with_capacity(page.len()) };
    while let Some(open) = find(page, reader.at, b"<") {
        reader.at = open + 1;
        match page.get(open + 1) {
            Some(byte) if byte.is_ascii_alphabetic() => {
                let name = reader.tag(&link);
                if RAW.contains(&name.as_str()) {
                    reader.at = end_of_raw(page, reader.at, &name);
                }
            }
            Some(b'!') if page[open..].starts_with(b"<!--") => reader.at = end_of_comment(page, open + 4),
            Some(b'!' | b'?') => reader.at = after(page, open, b">"),
            Some(b'/') if page.get(open + 2).is_some() => reader.at = after(page, open + 2, b">"),
            _ => {}
        }
    }
    reader.out.extend_from_slice(&page[reader.copied..]);
    reader.out
}

struct Reader<'a> {
    page: &'a [u8],
    at: usize,
    /// Everything before this is in `out`.
    copied: usize,
    out: Vec<u8>,
}

impl Reader<'_> {
    /// Reads the tag whose name begins here, replaces its links, and returns that name.
    fn tag(&mut self, link: impl Fn(&str) -> String) -> String {
        let name = self.take(|byte| is_space(byte) || matches!(byte, b'/' | b'>'));
        let wanted = LINKS.iter().find(|(tag, _)| *tag == name).map_or(&[][..], |(_, attributes)| attributes);
        loop {
            self.skip(|byte| is_space(byte) || byte == b'/');
            match self.page.get(self.at) {
                None => return name,
                Some(b'>') => {
                    self.at += 1;
                    return name;
                }
                Some(_) => {}
            }
            let first = self.at;
            self.at += 1;
            self.take(|byte| is_space(byte) || matches!(byte, b'/' | b'=' | b'>'));
            let key = lower(&self.page[first..self.at]);
            self.skip(is_space);
            if self.page.get(self.at) != Some(&b'=') {
                continue;
            }
            self.at += 1;
            self.skip(is_space);
            let whole = self.at;
            let value = self.value();
            if wanted.contains(&key.as_str()) {
                self.replace(whole, value, &link);
            }
        }
    }

    /// Reads a value and returns where it is inside its quotes.
    fn value(&mut self) -> std::ops::Range<usize> {
        match self.page.get(self.at) {
            Some(quote @ (b'"' | b'\'')) => {
                let begin = self.at + 1;
                let end = find(self.page, begin, &[*quote]).unwrap_or(self.page.len());
                self.at = (end + 1).min(self.page.len());
                begin..end
            }
            _ => {
                let begin = self.at;
                self.take(|byte| is_space(byte) || byte == b'>');
                begin..self.at
            }
        }
    }

    fn replace(&mut self, whole: usize, value: std::ops::Range<usize>, link: impl Fn(&str) -> String) {
        // Ignored: what is no text is no address either.
        let Ok(text) = std::str::from_utf8(&self.page[value]) else { return };
        let decoded = decode(text);
        let old = decoded.as_deref().unwrap_or(text);
        let new = link(old);
        if new == old {
            return;
        }
        self.out.extend_from_slice(&self.page[self.copied..whole]);
        // References that are not known here are left as they were written.
        let ampersand = if decoded.is_some() { "&amp;" } else { "&" };
        let new = new.replace('&', ampersand).replace('"', "&#34;").replace('\'', "&#39;");
        let new = new.replace('<', "&lt;").replace('>', "&gt;").replace('\r', "&#13;");
        self.out.extend_from_slice(format!("\"{new}\"").as_bytes());
        self.copied = self.at;
    }

    fn skip(&mut self, is: impl Fn(u8) -> bool) {
        while self.page.get(self.at).is_some_and(|byte| is(*byte)) {
            self.at += 1;
        }
    }

    /// Goes on to the first byte that ends a word; the word in small letters.
    fn take(&mut self, ends: impl Fn(u8) -> bool) -> String {
        let begin = self.at;
        self.skip(|byte| !ends(byte));
        lower(&self.page[begin..self.at])
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x0c)
}

/// No name that matters is longer.
fn lower(word: &[u8]) -> String {
    String::from_utf8_lossy(&word[..word.len().min(16)]).to_ascii_lowercase()
}

fn find(page: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let rest = page.get(from..)?;
    rest.windows(what.len()).position(|window| window == what).map(|at| from + at)
}

fn after(page: &[u8], from: usize, what: &[u8]) -> usize {
    find(page, from, what).map_or(page.len(), |at| at + what.len())
}

/// Where the comment ends whose text begins at `from`.
fn end_of_comment(page: &[u8], from: usize) -> usize {
    for short in [&b">"[..], b"->"] {
        if page[from..].starts_with(short) {
            return from + short.len();
        }
    }
    // One search for both ends, so that many comments cost no more than their length.
    let mut at = from;
    while let Some(dashes) = find(page, at, b"--") {
        for end in [&b">"[..], b"!>"] {
            if page[dashes + 2..].starts_with(end) {
                return dashes + 2 + end.len();
            }
        }
        at = dashes + 1;
    }
    page.len()
}

/// Where the end tag of an element begins whose content is no markup.
fn end_of_raw(page: &[u8], from: usize, name: &str) -> usize {
    if name == "plaintext" {
        return page.len();
    }
    let mut at = from;
    while let Some(open) = find(page, at, b"</") {
        let word = page.get(open + 2..open + 2 + name.len());
        let ended =
            page.get(open + 2 + name.len()).is_none_or(|byte| is_space(*byte) || b"/>".contains(byte));
        if ended && word.is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes())) {
            return open;
        }
        at = open + 2;
    }
    page.len()
}

/// A value with its references resolved; nothing if it has one that is not known here.
fn decode(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let word = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '#').unwrap_or(rest.len());
        if word == 0 || !rest[word..].starts_with(';') {
            out.push('&');
            continue;
        }
        out.push(reference(&rest[..word])?);
        rest = &rest[word + 1..];
    }
    out.push_str(rest);
    Some(out)
}

fn reference(word: &str) -> Option<char> {
    match word {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = word.strip_prefix('#')?;
            let parsed = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => number.parse(),
            };
            char::from_u32(parsed.ok()?).filter(|c| !c.is_control())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(page: &str) -> String {
        let link = |old: &str| if old.starts_with('/') { format!("/P{old}") } else { old.to_owned() };
        String::from_utf8(rewrite(page.as_bytes(), link)).unwrap()
    }

    #[test]
    fn links_are_replaced_and_nothing_else_is() {
        for (page, expected) in [
            (r#"<a href="/x">/y</a>"#, r#"<a href="/P/x">/y</a>"#),
            (r#"<A  HREF='/x' Title=/y>"#, r#"<A  HREF="/P/x" Title=/y>"#),
            ("<img src=/x/><p href=/y>", "<img src=\"/P/x/\"><p href=/y>"),
            (r#"<img src = "/x" longdesc='/y'/>"#, r#"<img src = "/P/x" longdesc="/P/y"/>"#),
            (r#"<a href="x">"#, r#"<a href="x">"#),
            (r#"<a href="/x?a=1&amp;b=2&c=3">"#, r#"<a href="/P/x?a=1&amp;b=2&amp;c=3">"#),
            (r#"<a href="/&#x26;&quot;">"#, r#"<a href="/P/&amp;&#34;">"#),
            (r#"<a href="/caf&eacute;">"#, r#"<a href="/P/caf&eacute;">"#),
            ("<a href>b<a href=>c", "<a href>b<a href=>c"),
            (r#"<a =href="/x" href="/y">"#, r#"<a =href="/x" href="/P/y">"#),
        ] {
            assert_eq!(through(page), expected);
        }
    }

    #[test]
    fn what_is_no_markup_is_left_alone() {
        for page in [
            r#"<!-- <a href="/x"> --><!--><!---><!-- --!>"#,
            r#"<!DOCTYPE html><?x <a href="/x"?>"#,
            r#"<script>"<a href='/x'>" </scriptx> </script >"#,
            r#"<TextArea><a href="/x"></textarea>"#,
            r#"<plaintext></plaintext><a href="/x">"#,
            r#"1 < 2 <a"#,
            "</",
            "<",
            "",
            r#"</a href="/x">"#,
        ] {
            assert_eq!(through(page), page);
        }
        assert_eq!(
            through(r#"<script src=/x></script><a href=/y>"#),
            r#"<script src="/P/x"></script><a href="/P/y">"#
        );
        assert_eq!(through(r#"<!-- a --><a href="/x">"#), r#"<!-- a --><a href="/P/x">"#);
    }

    #[test]
    fn pages_that_end_anywhere_do_no_harm() {
        let page = br#"<!-- c --><a href="/x" b='c' d=e><script>&#x41;</script><?p?></a><img src=/y/>"#;
        for end in 0..page.len() {
            rewrite(&page[..end], |old| format!("/P{old}"));
        }
        let odd = b"<a href=\"/\xff\"><a href=/\xff>";
        assert_eq!(rewrite(odd, |old| format!("/P{old}")), odd);
    }
}
