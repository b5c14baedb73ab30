//! iptables, where a configuration names it or the reference plugins would pick it.
//!
//! Whole batches go through `iptables-restore --noflush`, which is atomic per table: one process to read, one to write,
//! instead of tens. Rules to be removed are taken from what `iptables-save` printed, so that they match to the letter.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use podwire_linux::nft::{self, Family};

use super::exec;
use crate::spec::error::CniError;

const WITHIN: Duration = Duration::from_secs(60);
/// Where system tools are; a plugin's environment may lack a path.
const DIRS: [&str; 6] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin"];

/// The tools of one family.
#[derive(Debug, Clone)]
pub struct Iptables {
    v6: bool,
    save: PathBuf,
    restore: PathBuf,
}

fn find(name: &str) -> Option<PathBuf> {
    DIRS.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())
}

/// Whether both backends' common question has the answer "iptables": it is installed and works.
pub fn works() -> bool {
    Iptables::find(false).is_some_and(|tool| tool.save("filter").is_ok())
}

impl Iptables {
    /// The tools of a family, if they are installed.
    pub fn find(v6: bool) -> Option<Iptables> {
        let prefix = if v6 { "ip6tables" } else { "iptables" };
        Some(Iptables {
            v6,
            save: find(&format!("{prefix}-save"))?,
            restore: find(&format!("{prefix}-restore"))?,
        })
    }

    /// The tools of a family, which the configuration asks for.
    pub fn require(v6: bool) -> Result<Iptables, CniError> {
        let name = if v6 { "ip6tables" } else { "iptables" };
        Iptables::find(v6).ok_or_else(|| CniError::internal(format!("failed to locate {name}")))
    }

    /// A table as it is.
    pub fn save(&self, table: &str) -> Result<Saved, CniError> {
        let mut command = Command::new(&self.save);
        command.args(["-t", table]);
        Ok(Saved::parse(table, &run(command, "iptables-save", "")?))
    }

    /// Whether the kernel has a table; no program is run to know.
    pub fn has_table(&self, table: &str) -> Result<bool, CniError> {
        is_present(self.v6, table)
    }

    /// A table as it is; `None` if the kernel has no such table, so that nothing of ours can be in it.
    ///
    /// A table that is there and cannot be read (locked, half loaded, no memory) is an error: who goes on as if it were
    /// empty leaves rules behind and says that all is well.
    pub fn save_if_present(&self, table: &str) -> Result<Option<Saved>, CniError> {
        match self.save(table) {
            Ok(saved) => Ok(Some(saved)),
            Err(_) if !is_present(self.v6, table)? => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies a script at once or not at all.
    pub fn restore(&self, script: &Script) -> Result<(), CniError> {
        if script.lines.is_empty() {
            return Ok(());
        }
        let mut command = Command::new(&self.restore);
        command.args(["--noflush", "--wait", "30"]);
        run(command, "iptables-restore", &script.text()).map(|_| ())
    }
}

/// Whether the kernel has the table, in the old packet filter or in nf_tables; iptables itself is not asked.
fn is_present(v6: bool, table: &str) -> Result<bool, CniError> {
    // Of the calling thread: that of the process may be in another namespace.
    let names = format!("/proc/thread-self/net/{}_tables_names", if v6 { "ip6" } else { "ip" });
    let legacy = match std::fs::read_to_string(&names) {
        Ok(text) => text.lines().any(|line| line.trim() == table),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(CniError::internal(format!("read {names}: {error}"))),
    };
    let family = if v6 { Family::Ip6 } else { Family::Ip };
    Ok(legacy || nft::netfilter()?.nft_tables(family)?.iter().any(|name| name == table))
}

fn run(mut command: Command, name: &str, input: &str) -> Result<String, CniError> {
    use std::os::unix::process::CommandExt;
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .env("LC_ALL", "C");
    let child = command.spawn().map_err(|error| CniError::internal(format!("execute {name}: {error}")))?;
    let output = exec::finish(child, name, input.as_bytes(), WITHIN)?;
    if output.ok {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(CniError::internal(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

/// What `iptables-save` printed.
#[derive(Debug)]
pub struct Saved {
    table: String,
    lines: Vec<String>,
}

impl Saved {
    /// What the tool printed of a table.
    pub fn parse(table: &str, text: &str) -> Saved {
        Saved { table: table.to_owned(), lines: text.lines().map(str::to_owned).collect() }
    }

    /// Whether a chain exists.
    pub fn has_chain(&self, chain: &str) -> bool {
        let start = format!(":{chain} ");
        self.lines.iter().any(|line| line.starts_with(&start))
    }

    /// The chains whose names begin with a text.
    pub fn chains<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        let names = self
            .lines
            .iter()
            .filter_map(|line| line.strip_prefix(':'))
            .filter_map(|line| line.split(' ').next());
        names.filter(move |name| name.starts_with(prefix))
    }

    /// The rules of a chain, without `-A CHAIN`.
    pub fn rules<'a>(&'a self, chain: &str) -> impl Iterator<Item = &'a str> {
        let start = format!("-A {chain} ");
        self.lines.iter().filter_map(move |line| line.strip_prefix(&start))
    }

    /// Whether a chain has a rule of which every word group is part.
    pub fn has_rule(&self, chain: &str, parts: &[&str]) -> bool {
        self.rules(chain).any(|rule| {
            let padded = format!(" {rule} ");
            parts.iter().all(|part| padded.contains(&format!(" {part} ")))
        })
    }

    /// A script that removes a chain and every rule that leads to it.
    pub fn removal(&self, chains: &[String]) -> Script {
        let mut script = Script::new(&self.table);
        // Each once: what is removed twice is refused, and nothing is removed then.
        let present: BTreeSet<&str> =
            chains.iter().map(String::as_str).filter(|chain| self.has_chain(chain)).collect();
        for rule in self.lines.iter().filter_map(|line| line.strip_prefix("-A ")) {
            let own = rule.split(' ').next().unwrap_or_default();
            if target(rule).is_some_and(|target| target != own && present.contains(target)) {
                script.line(&format!("-D {rule}"));
            }
        }
        for chain in &present {
            script.line(&format!("-F {chain}"));
        }
        for chain in &present {
            script.line(&format!("-X {chain}"));
        }
        script
    }

    /// The rules of a chain that contain a text, each as the line that deletes it.
    pub fn deletions(&self, chain: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        self.rules(chain).filter(|rule| wanted(rule)).map(|rule| format!("-D {chain} {rule}")).collect()
    }
}

/// The chain a rule leads to. A comment may hold what looks like it.
fn target(rule: &str) -> Option<&str> {
    let mut words = Words(rule);
    words.find(|word| matches!(*word, "-j" | "-g"))?;
    words.next()
}

/// The words of a rule as they were printed; quotes hold a word together.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start_matches(' ');
        let (mut quoted, mut escaped) = (false, false);
        let ends = |byte: u8| {
            let ends = byte == b' ' && !quoted;
            quoted ^= byte == b'"' && !escaped;
            escaped = byte == b'\\' && quoted && !escaped;
            ends
        };
        let end = rest.bytes().position(ends).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
}

/// A script for `iptables-restore`.
#[derive(Debug)]
pub struct Script {
    table: String,
    lines: Vec<String>,
}

impl Script {
    /// An empty script for a table.
    pub fn new(table: &str) -> Script {
        Script { table: table.to_owned(), lines: Vec::new() }
    }

    /// Appends a line as it is.
    pub fn line(&mut self, line: &str) {
        self.lines.push(line.to_owned());
    }

    /// Makes a chain, or empties it.
    pub fn fresh_chain(&mut self, chain: &str) {
        self.lines.push(format!(":{chain} - [0:0]"));
    }

    /// Makes a chain unless it exists; tells whether it did.
    pub fn ensure_chain(&mut self, saved: &Saved, chain: &str) -> bool {
        if saved.has_chain(chain) {
            return false;
        }
        self.fresh_chain(chain);
        true
    }

    /// Appends a rule given as words.
    pub fn rule(&mut self, verb: &str, chain: &str, words: &[&str]) {
        let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
        self.lines.push(format!("{verb} {chain} {}", quoted.join(" ")));
    }

    /// As the tool reads it.
    pub fn text(&self) -> String {
        format!("*{}\n{}\nCOMMIT\n", self.table, self.lines.join("\n"))
    }
}

/// As the tool reads it back: quotes around words with blanks, inner quotes escaped.
pub fn quote(word: &str) -> String {
    if word.is_empty() || word.contains([' ', '"', '\'', '\\']) {
        return format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""));
    }
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved() -> Saved {
        let text = "*nat\n:PREROUTING ACCEPT [0:0]\n:CNI-a - [0:0]\n:CNI-ab - [0:0]\n-A PREROUTING -s 10.0.0.2/32 -m comment --comment \"name: x\" -j CNI-a\n-A PREROUTING -j CNI-ab\n-A CNI-a -j MASQUERADE\nCOMMIT";
        Saved::parse("nat", text)
    }

    #[test]
    fn a_chain_is_removed_with_what_leads_to_it_and_nothing_else() {
        let script = saved().removal(&["CNI-a".into(), "CNI-none".into()]);
        assert_eq!(
            script.text(),
            "*nat\n-D PREROUTING -s 10.0.0.2/32 -m comment --comment \"name: x\" -j CNI-a\n-F CNI-a\n-X CNI-a\nCOMMIT\n"
        );
    }

    #[test]
    fn a_chain_that_is_named_twice_or_only_in_a_comment_is_removed_once_or_not_at_all() {
        let text = ":CNI-a - [0:0]\n-A IN -p udp -j CNI-a\n-A IN -p tcp -g CNI-a\n-A IN -m comment --comment \"say \\\"a\\\" -j CNI-a or\" -j ACCEPT";
        let script = Saved::parse("nat", text).removal(&["CNI-a".into(), "CNI-a".into()]);
        assert_eq!(
            script.text(),
            "*nat\n-D IN -p udp -j CNI-a\n-D IN -p tcp -g CNI-a\n-F CNI-a\n-X CNI-a\nCOMMIT\n"
        );
    }

    #[test]
    fn rules_are_found_by_their_parts() {
        assert!(saved().has_rule("PREROUTING", &["-j CNI-a", "-s 10.0.0.2/32"]));
        assert!(!saved().has_rule("PREROUTING", &["-s 10.0.0.2"]));
        assert!(saved().has_chain("CNI-ab") && !saved().has_chain("CNI-abc"));
        assert_eq!(saved().chains("CNI-").collect::<Vec<_>>(), ["CNI-a", "CNI-ab"]);
    }

    #[test]
    fn words_with_blanks_and_quotes_are_quoted() {
        assert_eq!(quote("plain"), "plain");
        assert_eq!(quote("name: \"net\""), "\"name: \\\"net\\\"\"");
    }
}
