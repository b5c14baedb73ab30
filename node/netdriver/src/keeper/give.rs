//! Devices home again, from wherever they are.

use std::path::{Path, PathBuf};

use podwire_linux::{
    mount,
    netns::{Identity, Netns},
};
use podwire_netdev::{self as netdev, Found};
use podwire_trace::chain;

use super::{Error, Keeper};
use crate::{
    book::{Attachment, Claim, Place},
    plan::status::{Became, told},
};

impl Keeper {
    /// Gives back every device whose attachment is chosen; all are tried, the error is the first.
    pub(crate) fn give_back(&mut self, chosen: impl Fn(&Claim, &Attachment) -> bool) -> Result<(), Error> {
        let away = self.book.away(chosen);
        if away.is_empty() {
            return Ok(());
        }
        let mut first = None;
        let (mut pins, mut claims, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for at in &away {
            let (home, book) = (&self.home, &mut self.book);
            let Some(device) = book.device(at) else { continue };
            let Some(attachment) = device.attachment.clone() else { continue };
            match one_back(home, &attachment) {
                Ok(back) => {
                    if back == Back::Lost {
                        tracing::error!(device = device.device, "a device did not come back from its pod");
                        lost.push(at.0.clone());
                    }
                    device.attachment = None;
                    pins.push(attachment.place.pin.clone());
                    claims.push(at.0.clone());
                }
                Err(why) => {
                    tracing::error!(
                        device = device.device,
                        why,
                        "a device is not given back; will try again"
                    );
                    first = first.or(Some(Error::GiveBack { device: device.device.clone(), why }));
                }
            }
        }
        let written = self.write();
        claims.dedup();
        for claim in claims.iter().filter_map(|uid| self.book.claims.get(uid)) {
            let why = "the device was destroyed in its pod, or with its pod's network namespace";
            let became = if lost.contains(&claim.uid) {
                Became::Failed("NetworkDeviceLost", why.to_owned())
            } else {
                Became::Released
            };
            self.teller.tell(told(&self.driver, claim, &became));
        }
        for pin in pins {
            self.unpin(&pin);
        }
        first.map_or(written, Err)
    }

    /// Keeps the namespace of a sandbox from ending before its devices are home, whoever else lets go of it.
    pub(super) fn pin(&self, sandbox: &str, netns: &Path, pod: &Netns) -> Result<Place, Error> {
        let Identity { dev, ino } = pod.identity()?;
        let name: String = sandbox.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
        let place = Place {
            path: netns.to_owned(),
            identity: (dev, ino),
            pin: self.pins.join(format!("{name}-{ino}")),
        };
        if open(&place.pin, place.identity).is_none()
            && let Err(why) = bind(netns, &place.pin)
        {
            // Without it a namespace that ends while the driver is away takes devices that are no hardware with it.
            tracing::warn!(sandbox, why, "the pod's network namespace is not pinned");
        }
        Ok(place)
    }

    /// Lets go of namespaces in which no device is: the driver before may have been killed between pin and record.
    pub(crate) fn sweep(&self) {
        for entry in std::fs::read_dir(&self.pins).into_iter().flatten().flatten() {
            self.unpin(&entry.path());
        }
    }

    fn unpin(&self, pin: &PathBuf) {
        let in_use = self.book.away(|_, one| one.place.pin == *pin);
        if !in_use.is_empty() || !pin.exists() {
            return;
        }
        // Ignored: it may have been no mount at all, and the file that is left is replaced by the next one.
        mount::detach(pin).ok();
        if let Err(error) = std::fs::remove_file(pin) {
            tracing::warn!(?pin, %error, "the place where a network namespace was pinned is left behind");
        }
    }
}

fn bind(netns: &Path, pin: &Path) -> Result<(), String> {
    if let Some(folder) = pin.parent() {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    }
    std::fs::File::create(pin).map_err(|error| error.to_string())?;
    mount::bind(netns, pin, false).map_err(|error| chain(&error))
}

/// The namespace, if that is what is at the path.
fn open(path: &Path, identity: (u64, u64)) -> Option<Netns> {
    let found = Netns::open(path).ok()?;
    found.identity().ok().filter(|is| (is.dev, is.ino) == identity)?;
    Some(found)
}

/// What became of a device that was to come home.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Back {
    /// It is home, or ended as it should.
    Home,
    /// It is nowhere: the pod destroyed it, or its namespace did.
    Lost,
}

/// One device home. The namespace may have ended: then the kernel has put hardware somewhere on the node and destroyed the rest.
fn one_back(home: &Netns, attachment: &Attachment) -> Result<Back, String> {
    let Attachment { place, inside, snapshot, child, attached, .. } = attachment;
    let pod = open(&place.pin, place.identity).or_else(|| open(&place.path, place.identity));
    let index = attached.as_ref().map(|attached| attached.index);
    let done = home.run(|| match (snapshot, child) {
        (Some(snapshot), _) => {
            let found = netdev::bring_home(pod.as_ref(), snapshot, inside, index);
            found.map(|found| if found == Found::Nowhere { Back::Lost } else { Back::Home })
        }
        (None, Some(child)) => netdev::unmake(pod.as_ref(), child, inside, index).map(|()| Back::Home),
        (None, None) => Ok(Back::Home),
    });
    match done {
        Ok(Ok(back)) => Ok(back),
        Ok(Err(error)) => Err(chain(&error)),
        Err(error) => Err(chain(&error)),
    }
}
