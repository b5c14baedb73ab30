//! Node ports of services: one bitmap in the store that all servers write in turns.
//!
//! It lies under upstream's key in upstream's encoding, on every store: a `RangeAllocation`, whose `data` is one number in big-endian
//! bytes with a bit for each port. Each change is guarded by the version that was read.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use podwire_api::protobuf;
use podwire_store::{Guard, Op, Outcome};
use serde_json::{Value, json};

use crate::context::Context;
use crate::handler::create;
use crate::status::{ApiError, Result};

/// Ports that a service may have on every node.
pub(super) const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;
/// The first of them that is given to those who ask for none in particular, while there are any from here on.
const FIRST_DYNAMIC: u16 = 30_086;
/// Where the bitmap lies.
const KEY: &str = "/registry/ranges/servicenodeports";
const BYTES: usize = (32_767 - 30_000) / 8 + 1;

/// Which ports are taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Ports(BTreeSet<u16>);

impl Ports {
    pub(super) fn contains(&self, port: u16) -> bool {
        self.0.contains(&port)
    }

    pub(super) fn insert(&mut self, port: u16) -> bool {
        NODE_PORTS.contains(&port) && self.0.insert(port)
    }

    pub(super) fn remove(&mut self, port: u16) {
        self.0.remove(&port);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.iter().copied()
    }

    /// A port that nobody has, not the one that was given back last.
    pub(super) fn free(&self) -> Option<u16> {
        let dynamic = FIRST_DYNAMIC..=*NODE_PORTS.end();
        let start = FIRST_DYNAMIC + create::random_number() % (NODE_PORTS.end() - FIRST_DYNAMIC + 1);
        let from_there = (start..=*NODE_PORTS.end()).chain(dynamic).chain(NODE_PORTS);
        from_there.into_iter().find(|port| !self.contains(*port))
    }

    /// As Go's `big.Int.Bytes`: the highest bits first, and no zeros before them.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0_u8; BYTES];
        for port in &self.0 {
            let bit = usize::from(port - NODE_PORTS.start());
            bytes[BYTES - 1 - bit / 8] |= 1 << (bit % 8);
        }
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        bytes.split_off(zeros)
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut ports = Self::default();
        for (at, byte) in bytes.iter().rev().enumerate() {
            for bit in (0..8).filter(|bit| byte & (1 << bit) != 0) {
                let port = u16::try_from(at * 8 + bit).ok()?.checked_add(*NODE_PORTS.start())?;
                ports.insert(port).then_some(())?;
            }
        }
        Some(ports)
    }
}

/// The range as upstream names it.
fn range() -> String {
    format!("{}-{}", NODE_PORTS.start(), NODE_PORTS.end())
}

/// The bitmap at one version.
pub(super) struct Stored {
    /// What is taken; `None` while nobody has written it down for this range.
    pub(super) ports: Option<Ports>,
    metadata: Value,
    guard: Guard,
}

fn unreadable(why: impl std::fmt::Display) -> ApiError {
    ApiError::internal(format!("the node ports that are taken cannot be read: {why}"))
}

/// The bitmap as it is at this moment.
pub(super) async fn read(context: &Context) -> Result<Stored> {
    let Some(kv) = context.store.get(KEY).await? else {
        return Ok(Stored { ports: None, metadata: json!({}), guard: Guard::Absent });
    };
    let mut object = protobuf::decode_any(&kv.value).map_err(unreadable)?;
    let guard = Guard::ModRevision(kv.mod_revision);
    let data = BASE64.decode(object["data"].as_str().unwrap_or_default()).map_err(unreadable)?;
    let ports = (object["range"] == range()).then(|| Ports::from_bytes(&data)).flatten();
    Ok(Stored { ports, metadata: object["metadata"].take(), guard })
}

impl Stored {
    /// Writes it anew; false if somebody else has written in between.
    pub(super) async fn write(&self, context: &Context, ports: &Ports) -> Result<bool> {
        let schema = protobuf::schema_of("v1", "RangeAllocation")
            .ok_or_else(|| ApiError::internal("the table has no RangeAllocation"))?;
        let data = BASE64.encode(ports.to_bytes());
        let object = json!({"metadata": self.metadata, "range": range(), "data": data});
        let value = protobuf::envelope("v1", "RangeAllocation", &protobuf::encode_message(schema, &object));
        let op = Op::Put { value: value.into(), ttl: None };
        Ok(matches!(context.store.txn(KEY, self.guard, op).await?, Outcome::Committed { .. }))
    }
}

/// Gives ports back; what nobody has is left alone.
pub(super) async fn release(context: &Context, ports: &BTreeSet<u16>) -> Result<()> {
    let _turn = context.services.turn().await;
    loop {
        let stored = read(context).await?;
        let Some(before) = &stored.ports else { return Ok(()) };
        let mut after = before.clone();
        ports.iter().for_each(|port| after.remove(*port));
        if after == *before || stored.write(context, &after).await? {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(list: &[u16]) -> Ports {
        Ports(list.iter().copied().collect())
    }

    #[test]
    fn a_bitmap_is_one_number_with_its_highest_bits_first() {
        assert_eq!(ports(&[]).to_bytes(), Vec::<u8>::new());
        assert_eq!(ports(&[30_000]).to_bytes(), [1]);
        assert_eq!(ports(&[30_007, 30_008]).to_bytes(), [1, 0x80]);
        assert_eq!(ports(&[32_767]).to_bytes().len(), BYTES);
        let many = ports(&[30_000, 30_001, 30_085, 31_234, 32_767]);
        assert_eq!(Ports::from_bytes(&many.to_bytes()), Some(many));
        assert_eq!(Ports::from_bytes(&[0, 0, 1]), Some(ports(&[30_000])));
        assert_eq!(Ports::from_bytes(&vec![0xff; BYTES + 1]), None, "ports that the range does not have");
    }

    #[test]
    fn the_first_ports_are_left_for_those_who_ask_for_them() {
        let mut taken = Ports::default();
        for _ in FIRST_DYNAMIC..=*NODE_PORTS.end() {
            let port = taken.free().unwrap();
            assert!(port >= FIRST_DYNAMIC && taken.insert(port));
        }
        for _ in *NODE_PORTS.start()..FIRST_DYNAMIC {
            let port = taken.free().unwrap();
            assert!(port < FIRST_DYNAMIC && taken.insert(port));
        }
        assert_eq!(taken.free(), None);
        assert!(!taken.insert(80));
    }
}
