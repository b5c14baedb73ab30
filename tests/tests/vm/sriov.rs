//! Virtual functions of a network card: real hardware for the kernel, as far as it can tell. One goes into a pod and comes home.
//!
//! The machine's own network namespace is used, as that is where drivers make their devices.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use podwire_linux::{
    netns,
    rtnl::{LinkRef, Socket},
};
use podwire_netdev::{Found, Inside, Snapshot, attach, bring_home};
use podwire_testkit::eventually;

use super::netdriver::{add_address, answers, set_up};

/// Devices of a driver below `/sys/bus/pci`: address and interface.
fn devices(driver: &str) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(Path::new("/sys/bus/pci/drivers").join(driver))? {
        let path = entry?.path();
        let Ok(mut names) = fs::read_dir(path.join("net")) else { continue };
        if let Some(name) = names.next() {
            let address = path.file_name().context("a name")?.display().to_string();
            all.push((address, name?.file_name().display().to_string()));
        }
    }
    all.sort();
    Ok(all)
}

fn snapshot(name: &str) -> Result<Option<Snapshot>> {
    Ok(Snapshot::take(&mut Socket::route()?, LinkRef::Name(name))?)
}

#[test]
fn sriov_functions_go_into_a_pod_carry_packets_and_come_home() -> Result<()> {
    let (address, card) = devices("igb")?.pop().context("this machine has no card with virtual functions")?;
    fs::write(format!("/sys/bus/pci/devices/{address}/sriov_numvfs"), "2")?;
    let functions = eventually("two functions", Duration::from_secs(120), || match devices("igbvf") {
        Ok(all) if all.len() == 2 => Ok(all),
        other => Err(format!("{other:?}")),
    })?;
    println!("{card} at {address}: {functions:?}");
    let (at, name) = &functions[0];
    set_up(&card)?;
    add_address(&card, "10.1.0.1/24")?;
    add_address(name, "192.0.2.7/24")?;
    let before = snapshot(name)?.context("the function")?;
    ensure!(before.parent_device == Some(("pci".to_owned(), at.clone())), "{before:?}");
    let pod = netns::create()?;
    let inside = Inside {
        name: "net1".to_owned(),
        mtu: Some(1400),
        addresses: vec!["10.1.0.7/24".parse()?],
        ..Inside::default()
    };
    let attached = attach(&pod, &before, &inside)?;
    let there = pod.run(|| snapshot("net1"))??.context("it is in the pod")?;
    println!("in the pod: {there:?}");
    ensure!((there.mtu, there.up) == (1400, true) && snapshot(name)?.is_none(), "{there:?}");
    // Through the card's own switch, to the card.
    answers(&pod, &["10.1.0.1"])?;
    let found = bring_home(Some(&pod), &before, &inside, Some(attached.index))?;
    ensure!(matches!(found, Found::InPod(_)), "{found:?}");
    ensure!(snapshot(name)?.as_ref() == Some(&before), "{:?} instead of {before:?}", snapshot(name)?);
    // As when the pod's namespace ends and nobody was asked: the kernel puts hardware back, under the pod's name.
    attach(&pod, &before, &inside)?;
    drop(pod);
    eventually("the kernel gives it back", Duration::from_secs(120), || match devices("igbvf") {
        Ok(all) if all.len() == 2 => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    bring_home(None, &before, &inside, None)?;
    ensure!(snapshot(name)?.as_ref() == Some(&before), "{:?} instead of {before:?}", snapshot(name)?);
    Ok(())
}
