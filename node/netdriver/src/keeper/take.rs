//! Devices into a sandbox: all of them, or none.

use std::{os::fd::AsFd, path::Path};

use podwire_linux::{
    netns::Netns,
    rtnl::{Batch, LinkRef, Rule, Socket},
};
use podwire_netdev as netdev;
use podwire_trace::chain;

use super::{Error, Keeper};
use crate::{
    book::{Attachment, Given, Place},
    plan::{devices::What, inside::inside},
};

/// Names of devices that are told none.
const FALLBACKS: std::ops::Range<usize> = 1..4096;

impl Keeper {
    /// Attaches the devices of these claims that are not in the sandbox yet.
    pub(super) fn attach(&mut self, sandbox: &str, netns: &Path, claims: &[String]) -> Result<(), Error> {
        let mut todo = Vec::new();
        for uid in claims {
            for (at, device) in self.book.claims[uid].devices.iter().enumerate() {
                if device.attachment.is_none() {
                    todo.push((uid.clone(), at));
                }
            }
        }
        if todo.is_empty() {
            return Ok(());
        }
        let pod = Netns::open(netns)?;
        let place = self.pin(sandbox, netns, &pod)?;
        number(&self.home, &pod);
        let planned = self.plan(sandbox, &place, &pod, &todo);
        // From here on the record knows where every device of them may be.
        let done = planned.and_then(|()| self.write()).and_then(|()| self.carry(&pod, &todo));
        match done {
            Ok(()) => self.write(),
            Err(first) => {
                let back = self.give_back(|_, one| one.sandbox == sandbox);
                if let Err(error) = back {
                    tracing::error!(sandbox, %error, "what was begun is not undone yet; will try again");
                }
                Err(first)
            }
        }
    }

    /// Says of each device what it is and what it will be. Nothing is touched.
    fn plan(
        &mut self,
        sandbox: &str,
        place: &Place,
        pod: &Netns,
        todo: &[(String, usize)],
    ) -> Result<(), Error> {
        let links = pod.run(|| Socket::route().and_then(|mut socket| socket.links()))?;
        let mut taken: Vec<String> = match links {
            Ok(links) => links.into_iter().map(|link| link.name).collect(),
            Err(error) => return Err(Error::Attach { device: sandbox.to_owned(), why: chain(&error) }),
        };
        for at in todo {
            let (home, book) = (&self.home, &mut self.book);
            let Some(device) = book.device(at) else { continue };
            let failed = |why: String| Error::Attach { device: device.device.clone(), why };
            let looked = look_at(home, device).map_err(failed)?;
            let free = FALLBACKS.map(|number| format!("net{number}")).find(|name| !taken.contains(name));
            let fallback = free.unwrap_or_default();
            let mut inside = inside(&device.configuration, looked.0.as_ref(), &looked.1, &fallback);
            inside.bandwidth = device.bandwidth;
            if taken.contains(&inside.name) {
                let why = format!("the pod has a network device {:?} already", inside.name);
                return Err(Error::Attach { device: device.device.clone(), why });
            }
            taken.push(inside.name.clone());
            device.attachment = Some(Attachment {
                sandbox: sandbox.to_owned(),
                place: place.clone(),
                inside,
                snapshot: looked.0,
                child: device.child(&at.0),
                attached: None,
            });
        }
        Ok(())
    }

    fn carry(&mut self, pod: &Netns, todo: &[(String, usize)]) -> Result<(), Error> {
        for at in todo {
            let (home, book) = (&self.home, &mut self.book);
            let Some(device) = book.device(at) else { continue };
            let Some(attachment) = device.attachment.as_mut() else { continue };
            let done = home.run(|| match (&attachment.snapshot, &attachment.child) {
                (Some(snapshot), _) => {
                    netdev::attach(pod, snapshot, &attachment.inside).map_err(|error| chain(&error))
                }
                (None, Some(child)) => {
                    netdev::make(pod, child, &attachment.inside).map_err(|error| chain(&error))
                }
                (None, None) => Err("it is neither a device of the node nor one that is made".to_owned()),
            })?;
            match done {
                Ok(attached) => attachment.attached = Some(attached),
                Err(why) => return Err(Error::Attach { device: device.device.clone(), why }),
            }
        }
        Ok(())
    }
}

/// Has the node's namespace hear of links of the pod's, for the health of devices.
fn number(home: &Netns, pod: &Netns) {
    let mut batch = Batch::new();
    batch.number(pod.as_fd());
    let done = home.run(|| Socket::route()?.exchange(&mut batch).map(drop));
    match done {
        Ok(Err(error)) if !error.is_present() => {
            tracing::warn!(error = chain(&error), "what becomes of devices in a pod is not heard of");
        }
        _ => {}
    }
}

/// What a device of the node is now, with the node's rules; nothing for one that is made.
fn look_at(home: &Netns, device: &Given) -> Result<(Option<netdev::Snapshot>, Vec<Rule>), String> {
    let What::Link { name, index } = &device.what else { return Ok((None, Vec::new())) };
    let looked = home.run(|| {
        let mut socket = Socket::route()?;
        // Its number is its own as long as it is there; whoever was renamed since the claim was prepared is found by it.
        let found = netdev::Snapshot::take(&mut socket, LinkRef::Index(*index))?;
        let found = match found {
            None => netdev::Snapshot::take(&mut socket, LinkRef::Name(name))?,
            found => found,
        };
        let mut rules = socket.rules(false)?;
        rules.extend(socket.rules(true)?);
        Ok::<_, podwire_linux::rtnl::Error>((found, rules))
    });
    match looked {
        Ok(Ok((Some(found), rules))) => Ok((Some(found), rules)),
        Ok(Ok((None, _))) => Err(format!("there is no network device {name:?} on the node")),
        Ok(Err(error)) => Err(chain(&error)),
        Err(error) => Err(chain(&error)),
    }
}
