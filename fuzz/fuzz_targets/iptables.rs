//! Any text as the output of `iptables-save`: a removal touches only the chains asked for and what leads to them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_cni_lib::plugins::iptables::{Saved, Script, quote};
use podwire_cni_lib::plugins::portmap::iptables::stale;

/// The words of a rule as the tool reads them: quotes hold words together, a backslash in them the next letter.
fn words(line: &str) -> Vec<String> {
    let (mut all, mut word, mut quoted, mut any) = (Vec::new(), String::new(), false, false);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => (quoted, any) = (!quoted, true),
            '\\' if quoted => word.extend(letters.next()),
            ' ' if !quoted => {
                if any || !word.is_empty() {
                    all.push(std::mem::take(&mut word));
                }
                any = false;
            }
            other => word.push(other),
        }
    }
    if any || !word.is_empty() {
        all.push(word);
    }
    all
}

fuzz_target!(init: {
    podwire_fuzz::seeds(&[
        "*nat\n:PREROUTING ACCEPT [0:0]\n:CNI-HOSTPORT-DNAT - [0:0]\n:CNI-DN-a - [0:0]\n:CNI-DN-ab - [0:0]\n-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment \"dnat name: \\\"net\\\" id: \\\"c1\\\"\" -m multiport --dports 80 -j CNI-DN-a\n-A CNI-HOSTPORT-DNAT -p udp -m comment --comment \"dnat name: \\\"net\\\" id: \\\"c1\\\"\" -m multiport --dports 53 -j CNI-DN-a\n-A CNI-DN-a -p tcp --dport 80 -j DNAT --to-destination 10.0.0.2:80\nCOMMIT\n",
        ":CNI-DN-a - [0:0]\n-A POSTROUTING -m comment --comment \"see -j CNI-DN-a here\" -j ACCEPT\n-A POSTROUTING -g CNI-DN-a\n",
    ]);
}, |text: &str| {
    let saved = Saved::parse("nat", text);
    let mut chains: Vec<String> = ["CNI-DN-a", "CNI-HOSTPORT-DNAT", "CNI-none"].map(str::to_owned).to_vec();
    chains.extend(stale(&saved, "net", &["CNI-DN-ab".to_owned()]));
    assert!(!chains.iter().any(|chain| chain == "CNI-DN-ab"), "what is kept is not stale");
    for chain in saved.chains("CNI-") {
        let listed = text.lines().any(|line| line.starts_with(&format!(":{chain} ")));
        assert_eq!(saved.has_chain(chain), listed, "a chain is there if it is listed");
    }
    let script = saved.removal(&chains).text();
    assert!(script.len() <= chains.len() * (text.len() + 100) + 100, "no more than was there is removed");
    // Not `lines`, which would take a carriage return from a rule.
    let lines: Vec<&str> = script.trim_end_matches('\n').split('\n').collect();
    let [head, body @ .., last] = lines.as_slice() else { panic!("a script without a frame: {script:?}") };
    assert_eq!((*head, *last), ("*nat", "COMMIT"));
    for line in body.iter().filter(|line| !line.is_empty()) {
        let (verb, rest) = line.split_once(' ').expect("a verb and a chain");
        match verb {
            "-D" => {
                let removed = body.iter().filter(|other| other == &line).count();
                let there = text.lines().filter(|known| known.strip_prefix("-A ") == Some(rest)).count();
                assert!(removed <= there, "{line:?} is removed {removed} times and there {there} times");
                let words = words(rest);
                let leads = words.windows(2).any(|pair| {
                    matches!(pair[0].as_str(), "-j" | "-g") && chains.contains(&pair[1])
                });
                assert!(leads, "{line:?} leads to none of {chains:?}");
            }
            "-F" | "-X" => {
                assert_eq!(body.iter().filter(|other| other == &line).count(), 1, "{line:?} a second time");
                assert!(chains.iter().any(|chain| chain == rest) && saved.has_chain(rest), "{line:?} was not asked for");
            }
            other => panic!("a removal does not {other:?}"),
        }
    }
    // A word without line breaks is one word of one line, whatever is in it.
    if !text.contains(['\n', '\r']) {
        assert_eq!(words(&quote(text)), [text], "a quoted word is read back");
        let mut script = Script::new("nat");
        script.rule("-A", "CHAIN", &["--comment", text]);
        assert_eq!(words(script.text().lines().nth(1).expect("a rule")), ["-A", "CHAIN", "--comment", text]);
    }
});
