//! `podwire netdriver drill` against DRANET on our node, at every arrow, with faults that it is expected to bear; what it loses when it
//! is killed or hung is in docs/netdriver.md.
#![cfg(feature = "interop")]

use std::path::Path;

use anyhow::{Result, ensure};
use podwire_testkit::{
    Node,
    isolate::{OwnFolder, isolate},
    node::peer,
};
use podwire_tests::drill::{drill, make_devices};

const FAULTS: [&str; 2] = ["restart", "disconnect"];
const ARROWS: [&str; 6] = ["publish", "prepare", "attach", "run", "stop", "unprepare"];

#[test]
fn dranet_is_drilled_at_every_arrow() -> Result<()> {
    isolate()?;
    let nri = OwnFolder::at(Path::new("/run/nri"))?;
    make_devices(2)?;
    let node = Node::up(&[])?;
    std::os::unix::fs::symlink(node.names()?.run_dir.join("nri.sock"), Path::new("/run/nri/nri.sock"))?;
    let filter =
        r#"'"dra.net/ifName" in attributes && attributes["dra.net/ifName"].StringValue.startsWith("eth")'"#;
    let command = format!(
        "{} --hostname-override node1 --bind-address 127.0.0.1:9177 --cloud-provider-hint NONE --inventory-max-poll-interval 5s \
         --kubeconfig $KUBECONFIG --db-path {} --kubelet-root-dir {} --filter {filter}",
        peer("dranet")?.display(),
        node.data_dir.join("dranet.db").display(),
        node.data_dir.join("kubelet").display(),
    );
    let rounds = ["--tries", "1", "--lasts", "3s", "--faults", "restart,disconnect"];
    let drilled = drill(&node, "dra.net", &command, &rounds)?;
    println!("{}", drilled.out);
    for fault in FAULTS {
        for at in ARROWS {
            let counts = drilled.counts(fault, at);
            // No pod without its device, and no device of two; what is lost is DRANET's own affair.
            let kept = counts.as_ref().is_some_and(|counts| counts[0] == 0 && counts[2] == 0);
            ensure!(kept, "{fault} at {at}: {counts:?}\n{}", drilled.all);
        }
    }
    drop(nri);
    node.down()
}
