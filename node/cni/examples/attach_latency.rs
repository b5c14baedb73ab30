//! How long one pod's network takes in process: `attach_latency [N]` attaches and detaches N pods in turn, in a
//! namespace of its own, and prints the middle and the slow end; then thirty at once.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use podwire_cni_lib::{Attachment, DefaultNetwork, RuntimeConfig, write_default_conflist};
use podwire_linux::netns;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: usize = std::env::args().nth(1).map_or(Ok(100), |text| text.parse())?;
    let _node = netns::unshare()?;
    let dir = std::env::temp_dir().join(format!("attach-latency-{}", std::process::id()));
    let network = DefaultNetwork {
        name: "pods".into(),
        bridge: "pw0".into(),
        subnets: vec!["10.88.0.0/16".parse()?],
        data_dir: dir.join("ipam"),
        nft_prefix: "latency".into(),
        mtu: None,
        cluster: Vec::new(),
    };
    write_default_conflist(&dir.join("net.d"), &network)?;
    let networks = RuntimeConfig {
        conf_dir: dir.join("net.d"),
        bin_dirs: vec![dir.join("bin")],
        cache_dir: dir.join("cache"),
        state_dir: dir.join("state"),
        builtin: true,
        timeout: Duration::from_secs(10),
    }
    .open()?;
    let (mut adds, mut dels) = (Vec::new(), Vec::new());
    let cpu = || std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let field =
        |text: &str, n: usize| text.split(' ').nth(n).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    let (mut used, mut queued) = (0, 0);
    for n in 0..count {
        let pod = netns::create()?;
        let attachment = Attachment {
            container_id: format!("pod{n}"),
            netns: PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), pod.as_fd().as_raw_fd())),
            ifname: "eth0".into(),
            ..Attachment::default()
        };
        let (start, before) = (Instant::now(), cpu());
        networks.ensure(&attachment)?;
        adds.push(start.elapsed());
        let after = cpu();
        used += field(&after, 0) - field(&before, 0);
        queued += field(&after, 1) - field(&before, 1);
        let start = Instant::now();
        networks.detach_dying(&attachment)?;
        dels.push(start.elapsed());
    }
    let pods: Vec<_> = (0..30).map(|_| netns::create()).collect::<Result<_, _>>()?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (n, pod) in pods.iter().enumerate() {
            let attachment = Attachment {
                container_id: format!("burst{n}"),
                netns: PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), pod.as_fd().as_raw_fd())),
                ifname: "eth0".into(),
                ..Attachment::default()
            };
            let networks = &networks;
            let attach = move || networks.ensure(&attachment).map(|_| ());
            std::thread::Builder::new().name("burst".into()).spawn_scoped(scope, attach).expect("thread");
        }
    });
    writeln!(std::io::stdout(), "30 ADDs at once {:?}", start.elapsed())?;
    networks.gc(&[])?;
    std::fs::remove_dir_all(&dir)?;
    let each = |total: u64| Duration::from_nanos(total / count.max(1) as u64);
    writeln!(std::io::stdout(), "ADD: {:?} on a processor, {:?} waiting for one", each(used), each(queued))?;
    for (name, mut times) in [("ADD", adds), ("DEL", dels)] {
        times.sort();
        let at = |part: usize| times[(times.len() - 1) * part / 100];
        writeln!(std::io::stdout(), "{name} p50 {:?} p90 {:?} p99 {:?}", at(50), at(90), at(99))?;
    }
    Ok(())
}
