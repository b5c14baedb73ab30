//! etcdctl's verbs against `podwire etcd`, word by word beside what the real etcd answers.
#![cfg(feature = "interop")]

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::mpsc,
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{isolate, node::peer};
use podwire_tests::programs::{Running, WAIT, etcd, etcdctl, our_etcd, real_etcd};

/// Two etcds that are told the same.
struct Both {
    ours: String,
    theirs: String,
    _running: [Running; 2],
    folder: tempfile::TempDir,
}

/// Says what may differ, a member's number say, in the same words.
fn masked(text: &str, names: &[(&str, &str)]) -> String {
    names.iter().fold(text.to_owned(), |text, (number, name)| text.replace(number, name))
}

impl Both {
    fn start() -> Result<Both> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        let (first, ours) = etcd(our_etcd(), &at("ours"), &at("ours.log"))?;
        let (second, theirs) = etcd(real_etcd()?, &at("theirs"), &at("theirs.log"))?;
        Ok(Both { ours, theirs, _running: [first, second], folder })
    }

    /// What each says to the same words, with the exit status.
    fn asked(&self, words: &[&str], typed: &str) -> Result<[String; 2]> {
        let ask = |url: &str| -> Result<String> {
            let mut command = Command::new(peer("etcdctl")?);
            command.arg(format!("--endpoints={url}")).args(words);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn()?;
            // Ignored: who does not read what was typed says why not.
            child.stdin.take().context("no input")?.write_all(typed.as_bytes()).ok();
            let told = child.wait_with_output()?;
            let err = String::from_utf8_lossy(&told.stderr);
            // A retry's log line tells the time.
            let err: Vec<&str> = err.lines().filter(|line| !line.starts_with('{')).collect();
            let text = format!(
                "{}{}\n{:?}",
                String::from_utf8_lossy(&told.stdout),
                err.join("\n"),
                told.status.code()
            );
            Ok(masked(&text, &[(url, "URL"), (&url[7..], "ADDRESS")]))
        };
        Ok([ask(&self.ours)?, ask(&self.theirs)?])
    }

    fn agree(&self, words: &[&str]) -> Result<String> {
        self.agree_typed(words, "")
    }

    fn agree_typed(&self, words: &[&str], typed: &str) -> Result<String> {
        let [ours, theirs] = self.asked(words, typed)?;
        ensure!(ours == theirs, "{words:?}\nours: {ours}\netcd: {theirs}");
        Ok(ours)
    }

    /// The same in JSON, without what says who answered.
    fn agree_json(&self, words: &[&str]) -> Result<()> {
        let [ours, theirs] = self.asked(&[words, &["-w", "json"]].concat(), "")?;
        let read = |text: &str| -> Result<serde_json::Value> {
            let mut value: serde_json::Value = serde_json::from_str(text.lines().next().unwrap_or_default())
                .with_context(|| format!("{words:?}: {text}"))?;
            let revision = value["header"]["revision"].clone();
            value["header"] = revision;
            Ok(value)
        };
        let (ours, theirs) = (read(&ours)?, read(&theirs)?);
        ensure!(ours == theirs, "{words:?}\nours: {ours}\netcd: {theirs}");
        Ok(())
    }
}

#[test]
fn keys_are_put_read_deleted_and_compacted_as_by_etcd() -> Result<()> {
    isolate()?;
    let both = Both::start()?;
    for words in [
        &["put", "/a/1", "one"][..],
        &["put", "/a/2", "two", "--prev-kv"],
        &["put", "/a/2", "three", "--prev-kv"],
        &["put", "/a/3", ""],
        &["put", "/b", "x"],
        &["put", "/b", "--ignore-value"],
        &["put", "/none", "--ignore-value"],
        &["put", "/b", "y", "--lease=77"],
        &["get", "/a/1"],
        &["get", "/none"],
        &["get", "--prefix", "/a/"],
        &["get", "--prefix", "/", "--keys-only"],
        &["get", "--prefix", "/", "--limit=2"],
        &["get", "--from-key", "/a/2", "--order=DESCEND"],
        &["get", "/a/1", "/a/3", "--sort-by=MODIFY", "--order=DESCEND", "--print-value-only"],
        &["get", "--prefix", "/", "--rev=3"],
        &["get", "--prefix", "/", "--rev=300"],
        &["get", "/a/2", "--consistency=s"],
        &["get", "/a/1", "--min-mod-rev=3"],
        &["del", "/a/1", "--prev-kv"],
        &["del", "/a/1"],
        &["del", "--prefix", "/a/"],
        &["get", "--prefix", ""],
        &["compaction", "5"],
        &["compaction", "5"],
        &["compaction", "500"],
        &["get", "/b", "--rev=4"],
        &["get", "/b", "--rev=6"],
        &["alarm", "list"],
        &["endpoint", "health"],
        &["defrag"],
    ] {
        let told = both.agree(words);
        // How long it took is told of these.
        let timed = ["health", "defrag"].iter().any(|word| words.contains(word));
        if !timed {
            told?;
        }
    }
    for words in [&["get", "--prefix", ""][..], &["put", "/c", "z", "--prev-kv"], &["del", "/c", "--prev-kv"]]
    {
        both.agree_json(words)?;
    }
    ensure!(both.agree(&["get", "/b"])?.contains("x"), "it compares answers");
    Ok(())
}

#[test]
fn transactions_leases_and_locks_are_as_etcds() -> Result<()> {
    isolate()?;
    let both = Both::start()?;
    for typed in [
        "mod(\"k\") = \"0\"\n\nput k one\nget k\n\nget k\n\n",
        "mod(\"k\") = \"0\"\n\nput k two\n\nget k\nput other v\n\n",
        "value(\"k\") = \"one\"\nversion(\"k\") > \"0\"\ncreate(\"k\") < \"9\"\n\ndel k\nput k three\n\n\n",
        "version(\"none\") > \"0\"\n\n\nput k four\nput j five\nget --prefix \"\"\n\n",
    ] {
        both.agree_typed(&["txn"], typed)?;
    }
    both.agree(&["get", "--prefix", ""])?;
    let grant = |url: &str| -> Result<String> {
        let told = etcdctl(url, &["lease", "grant", "600"])?;
        let id = told.split(' ').nth(1).context("no number")?.to_owned();
        ensure!(told.trim() == format!("lease {id} granted with TTL(600s)"), "{told}");
        Ok(id)
    };
    let (ours, theirs) = (grant(&both.ours)?, grant(&both.theirs)?);
    let each = |words: &[&str]| -> Result<String> {
        let ask = |url: &str, id: &str| {
            let words: Vec<String> = words.iter().map(|word| word.replace("ID", id)).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            Ok::<_, anyhow::Error>(masked(&etcdctl(url, &words)?, &[(id, "ID")]))
        };
        let (ours, theirs) = (ask(&both.ours, &ours)?, ask(&both.theirs, &theirs)?);
        // Of the time that is left, whole seconds may have passed at one of them.
        let whole = |text: &str| text.split("remaining").next().unwrap_or_default().to_owned();
        ensure!(whole(&ours) == whole(&theirs), "{words:?}\nours: {ours}\netcd: {theirs}");
        Ok(ours)
    };
    each(&["put", "leased/1", "v", "--lease=ID"])?;
    each(&["put", "leased/2", "v", "--lease=ID"])?;
    each(&["lease", "list"])?;
    let told = each(&["lease", "timetolive", "ID", "--keys"])?;
    ensure!(told.contains("leased/1") && told.contains("granted with TTL(600s)"), "{told}");
    each(&["lease", "keep-alive", "ID", "--once"])?;
    each(&["get", "--prefix", "leased/"])?;
    each(&["lease", "revoke", "ID"])?;
    let gone = both.agree(&["get", "--prefix", "leased/"])?;
    ensure!(!gone.contains("leased/1"), "{gone}");
    each(&["lease", "timetolive", "ID"])?;
    both.agree(&["lease", "revoke", "1234"])?;
    // A lock is a lease, a transaction and a watch.
    both.agree(&["lock", "l", "echo", "held"])?;
    Ok(())
}

/// Lines that a program says, as they come.
struct Lines {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Lines {
    fn of(url: &str, words: &[&str]) -> Result<Lines> {
        let mut command = Command::new(peer("etcdctl")?);
        command.arg(format!("--endpoints={url}")).args(words);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let (sender, lines) = mpsc::channel();
        std::thread::Builder::new().name("lines".into()).spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        })?;
        Ok(Lines { child, lines })
    }

    /// All lines up to one.
    fn until(&self, last: &str) -> Result<Vec<String>> {
        let mut all = Vec::new();
        while all.last().is_none_or(|line| line != last) {
            all.push(self.lines.recv_timeout(WAIT).with_context(|| format!("after {all:?}"))?);
        }
        Ok(all)
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // Ignored: it has ended when all is well.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn watches_tell_what_etcds_tell_from_the_past_on() -> Result<()> {
    isolate()?;
    let both = Both::start()?;
    for number in 0..3 {
        both.agree(&["put", &format!("w/{number}"), "before"])?;
    }
    let words = [
        &["watch", "--prefix", "w/", "--rev=2", "--prev-kv"][..],
        &["watch", "w/1", "--rev=3"],
        &["watch", "w/0", "w/2", "--rev=1"],
    ];
    let watch = |url: &str| words.map(|words| Lines::of(url, words));
    let (ours, theirs) = (watch(&both.ours), watch(&both.theirs));
    both.agree(&["del", "w/0"])?;
    both.agree(&["put", "w/2", "after"])?;
    both.agree_typed(&["txn"], "\n\nput w/0 in-txn\nput w/1 in-txn\nput w/2 end\n\n")?;
    for number in [0, 1] {
        both.agree(&["put", &format!("w/{number}"), "end"])?;
    }
    both.agree(&["put", "w/end", "the very end"])?;
    for ((ours, theirs), last) in ours.into_iter().zip(theirs).zip(["the very end", "end", "end"]) {
        let (ours, theirs) = (ours?.until(last)?, theirs?.until(last)?);
        ensure!(ours == theirs && ours.len() > 3, "ours: {ours:#?}\netcd: {theirs:#?}");
    }
    Ok(())
}

#[test]
fn a_member_tells_its_status_and_hands_out_a_snapshot() -> Result<()> {
    isolate()?;
    let both = Both::start()?;
    for number in 0..20 {
        both.agree(&["put", &format!("k{}", number % 5), "v"])?;
    }
    let status = |url: &str| -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&etcdctl(url, &["endpoint", "status", "-w", "json"])?)?)
    };
    let (ours, theirs) = (status(&both.ours)?, status(&both.theirs)?);
    let names = |value: &serde_json::Value| -> Vec<String> {
        value[0]["Status"].as_object().into_iter().flat_map(|object| object.keys().cloned()).collect()
    };
    ensure!(names(&ours) == names(&theirs), "ours: {ours}\netcd: {theirs}");
    let told = &ours[0]["Status"];
    ensure!(told["header"]["revision"] == 21 && told["version"] == theirs[0]["Status"]["version"], "{ours}");
    ensure!(told["leader"] == told["header"]["member_id"] && told["dbSize"].as_u64() > Some(0), "{ours}");
    let health = etcdctl(&both.ours, &["endpoint", "health", "-w", "json"])?;
    let health: serde_json::Value = serde_json::from_str(&health)?;
    ensure!(health[0]["health"] == true, "{health}");
    let hash = |url: &str| -> Result<serde_json::Value> {
        let told = etcdctl(url, &["endpoint", "hashkv", "-w", "json"])?;
        Ok(serde_json::from_str::<serde_json::Value>(&told)?[0]["HashKV"]["hash"].clone())
    };
    ensure!(hash(&both.ours)? == hash(&both.theirs)?, "the same by its hash");
    let members = etcdctl(&both.ours, &["member", "list", "-w", "json"])?;
    let members: serde_json::Value = serde_json::from_str(&members)?;
    ensure!(members["members"].as_array().map(Vec::len) == Some(1), "{members}");
    ensure!(members["members"][0]["clientURLs"][0] == both.ours.as_str(), "{members}");
    let file = both.folder.path().join("saved");
    let saved = etcdctl(&both.ours, &["snapshot", "save", &file.display().to_string()])?;
    ensure!(saved.contains("Snapshot saved at") && std::fs::metadata(&file)?.len() > 512, "{saved}");
    both.agree(&["auth", "status"])?;
    Ok(())
}
