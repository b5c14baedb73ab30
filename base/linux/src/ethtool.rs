//! Switches of network devices: features that the kernel knows by name, and private flags of a device's driver.
//!
//! Over generic netlink, as <https://docs.kernel.org/networking/ethtool-netlink.html> describes it. A switch is changed by its name,
//! or all of them at once by words of bits that were read before from the same running kernel.

use std::collections::BTreeMap;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::rtnl::{Attrs, Batch, Error, Message, Reply, Socket, wire::NLM_F_ACK};

const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Length of `struct genlmsghdr`.
const GENERIC: usize = 4;

const HEADER: u16 = 1;
const DEVICE_INDEX: u16 = 1;
const FLAGS: u16 = 3;
const COMPACT: u32 = 1;
const BITSET_NOMASK: u16 = 1;
const BITSET_SIZE: u16 = 2;
const BITSET_BITS: u16 = 3;
const BITSET_VALUE: u16 = 4;
const BITSET_MASK: u16 = 5;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;

/// Which switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switches {
    /// What the kernel may do for a device, or leave to it.
    Features,
    /// What its driver has.
    PrivateFlags,
}

impl Switches {
    /// The requests to read and to change, and the attribute of a change.
    fn numbers(self) -> (u8, u8, u16) {
        match self {
            Switches::Features => (11, 12, FEATURES_WANTED),
            Switches::PrivateFlags => (13, 14, 2),
        }
    }
}

/// All switches of a device in words of bits, which mean something to this running kernel alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    /// Those that can be changed.
    pub changeable: Vec<u32>,
    /// Those of them that are on.
    pub on: Vec<u32>,
}

/// A switch by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// It can be changed.
    pub changeable: bool,
    /// It is on.
    pub on: bool,
}

/// A connection in the calling thread's network namespace.
pub struct Ethtool {
    socket: Socket,
    family: u16,
}

impl Ethtool {
    /// Opens one; `None` if the kernel has nothing of the kind.
    pub fn open() -> Result<Option<Ethtool>, Error> {
        let mut socket = Socket::generic()?;
        let mut batch = Batch::new();
        batch.push("look up ethtool", CONTROLLER, NLM_F_ACK, |m| {
            m.put(&[GET_FAMILY, 1, 0, 0]).str(FAMILY_NAME, "ethtool");
        });
        let replies = match socket.exchange(&mut batch) {
            Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(None),
            replies => replies?,
        };
        let id = replies.first().and_then(|reply| reply.attrs(GENERIC).find(FAMILY_ID));
        let id = id.and_then(|id| Some(u16::from_ne_bytes(id.try_into().ok()?)));
        Ok(id.map(|family| Ethtool { socket, family }))
    }

    fn ask(
        &mut self,
        attempt: &'static str,
        (number, link, flags): (u8, u32, u32),
        fill: impl FnOnce(&mut Message<'_>),
    ) -> Result<Option<Reply>, Error> {
        let mut batch = Batch::new();
        batch.push(attempt, self.family, NLM_F_ACK, |m| {
            m.put(&[number, 1, 0, 0]).nested(HEADER, |m| {
                m.u32(DEVICE_INDEX, link).u32(FLAGS, flags);
            });
            fill(m);
        });
        Ok(self.socket.exchange(&mut batch)?.into_iter().next())
    }

    /// All switches of a device as words; `None` if it has none of them.
    pub fn words(&mut self, of: Switches, link: u32) -> Result<Option<Words>, Error> {
        let reply = match self.ask("read switches", (of.numbers().0, link, COMPACT), |_| {}) {
            Err(error) if error.errno() == Some(Errno::OPNOTSUPP) => return Ok(None),
            reply => reply?,
        };
        let Some(reply) = reply else { return Ok(None) };
        let attrs = reply.attrs(GENERIC);
        // Of features the second attribute says which the device can change, the third which of them somebody wants.
        let (Some(all), Some(on)) = (attrs.nested(2), attrs.nested(of.numbers().2)) else { return Ok(None) };
        let changeable = match of {
            Switches::Features => words(all, BITSET_VALUE),
            Switches::PrivateFlags => words(all, BITSET_MASK),
        };
        let on = words(on, BITSET_VALUE).iter().zip(&changeable).map(|(on, can)| on & can).collect();
        Ok(Some(Words { changeable, on }))
    }

    /// Makes the switches of a device what they were.
    pub fn set_words(&mut self, of: Switches, link: u32, wanted: &Words) -> Result<(), Error> {
        let (_, number, attribute) = of.numbers();
        let bits = u32::try_from(wanted.changeable.len() * 32).unwrap_or(0);
        self.ask("change switches", (number, link, COMPACT), |m| {
            m.nested(attribute, |m| {
                m.u32(BITSET_SIZE, bits)
                    .attr(BITSET_VALUE, &bytes(&wanted.on))
                    .attr(BITSET_MASK, &bytes(&wanted.changeable));
            });
        })
        .map(drop)
    }

    /// The switches of a device by name; none if it has none of them.
    pub fn named(&mut self, of: Switches, link: u32) -> Result<BTreeMap<String, Switch>, Error> {
        let reply = match self.ask("read switches", (of.numbers().0, link, 0), |_| {}) {
            Err(error) if error.errno() == Some(Errno::OPNOTSUPP) => return Ok(BTreeMap::new()),
            reply => reply?,
        };
        let Some(reply) = reply else { return Ok(BTreeMap::new()) };
        let attrs = reply.attrs(GENERIC);
        let mut all: BTreeMap<String, Switch> = BTreeMap::new();
        for (name, value) in attrs.nested(2).map(bits).unwrap_or_default() {
            let switch = match of {
                Switches::Features => Switch { changeable: value, on: false },
                Switches::PrivateFlags => Switch { changeable: true, on: value },
            };
            all.insert(name, switch);
        }
        if of == Switches::Features {
            for (name, _) in attrs.nested(FEATURES_ACTIVE).map(bits).unwrap_or_default() {
                all.entry(name).or_default().on = true;
            }
        }
        Ok(all)
    }

    /// Changes switches by name. What the device cannot change it leaves as it is, and says nothing.
    pub fn set_named(
        &mut self,
        of: Switches,
        link: u32,
        wanted: &BTreeMap<String, bool>,
    ) -> Result<(), Error> {
        let (_, number, attribute) = of.numbers();
        self.ask("change switches", (number, link, 0), |m| {
            m.nested(attribute, |m| {
                m.nested(BITSET_BITS, |m| {
                    for (name, on) in wanted {
                        m.nested(BIT, |m| {
                            m.str(BIT_NAME, name);
                            if *on {
                                m.attr(BIT_VALUE, &[]);
                            }
                        });
                    }
                });
            });
        })
        .map(drop)
    }
}

fn words(bitset: Attrs<'_>, kind: u16) -> Vec<u32> {
    let bytes = bitset.find(kind).unwrap_or_default();
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect()
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The bits of a set that are listed, with what is said of them: in a list without a mask being there is being on.
fn bits(bitset: Attrs<'_>) -> Vec<(String, bool)> {
    let is_list = bitset.find(BITSET_NOMASK).is_some();
    let all = bitset.nested(BITSET_BITS).into_iter().flatten().filter(|(kind, _)| *kind == BIT);
    let one = |(_, bit): (u16, &[u8])| {
        let bit = Attrs(bit);
        Some((bit.str(BIT_NAME)?, is_list || bit.find(BIT_VALUE).is_some()))
    };
    all.filter_map(one).collect()
}
