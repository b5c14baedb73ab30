//! Any text as the node's resolv.conf: what pods get of it is bounded and reads back as it was meant.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_kubelet::dns::{ClusterDns, HostResolver, config};
use podwire_runtime::hostile::resolv_conf;

fuzz_target!(init: {
    podwire_fuzz::seeds(&[
        "# made\nnameserver 9.9.9.9\nnameserver fe80::1%eth0\nsearch corp.example. a. .\noptions ndots:2 edns0\noptions ndots:3 rotate\n",
        "search . ..\nnameserver\n",
    ]);
}, |text: &str| {
    let host = HostResolver::parse(text);
    for word in host.servers.iter().chain(&host.searches).chain(&host.options) {
        assert!(!word.is_empty() && !word.contains(char::is_whitespace), "{word:?} is not one word");
        assert!(text.contains(word), "{word:?} was not there");
    }
    let named = text.lines().filter(|line| line.split_whitespace().next() == Some("options"));
    for option in named.flat_map(|line| line.split_whitespace().skip(1)) {
        let name = |option: &str| option.split(':').next().map(str::to_owned);
        assert!(host.options.iter().any(|kept| name(kept) == name(option)), "{option:?} is lost");
    }
    for policy in ["Default", "ClusterFirst", "None"] {
        let pod = serde_json::json!({"metadata": {"name": "a", "namespace": "b"}, "spec": {"containers": [], "dnsPolicy": policy}});
        let pod = serde_json::from_value(pod).expect("a pod");
        let cluster = ClusterDns { servers: vec!["10.96.0.10".into()], domain: "cluster.local".into() };
        let dns = config(&pod, &cluster, &host);
        assert!(dns.servers.len() <= 3 && dns.searches.len() <= 32 && dns.searches.join(" ").len() <= 2048);
        let again = HostResolver::parse(&resolv_conf(&dns));
        let wanted = HostResolver { servers: dns.servers, searches: dns.searches, options: dns.options };
        assert_eq!(again, wanted, "a pod reads what was meant for it");
    }
});
