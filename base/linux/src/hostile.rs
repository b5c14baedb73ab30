//! Every reader of netlink's answers fed with any bytes, for fuzzing and for tests.

use crate::nft;
use crate::rtnl::socket::{Outcome, Reply, read_answers};
use crate::rtnl::wire::{Batch, NLM_F_ACK, NLM_F_DUMP};
use crate::rtnl::{addr, link, neigh, route, tc};

/// Sequence number of the first message asked for.
pub const BASE: u32 = 7;
/// How many messages were asked for.
pub const ASKED: usize = 3;

/// Reads `datagrams` as the answers to a batch of [`ASKED`] messages from [`BASE`] on, and each object in them as
/// everything it could be. Must never panic.
pub fn answers(datagrams: &[&[u8]]) -> Outcome {
    let mut batch = Batch::new();
    batch.push("do", 1, NLM_F_ACK, |_| {});
    batch.push("list", 2, NLM_F_DUMP, |_| {});
    batch.push("tell", 3, 0, |_| {});
    let mut open = vec![true, true, false];
    let mut outcome = Outcome::default();
    for bytes in datagrams {
        read_answers(bytes, BASE, &batch, &mut open, &mut outcome);
    }
    outcome.replies.iter().for_each(object);
    outcome
}

fn object(reply: &Reply) {
    // Only the reading counts.
    drop(link::Link::parse(reply));
    std::hint::black_box((addr::Address::parse(reply), neigh::Neighbour::parse(reply), tc::parse(reply, 1)));
    if let Some(route) = route::Route::parse(reply) {
        let mut batch = Batch::new();
        batch.add_route(&route);
    }
    for element in nft::query::elements_in(reply) {
        assert!(element.key.len() <= reply.body.len(), "a key is part of the answer");
    }
    drop(nft::query::rule_in(reply));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, seq: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(16 + body.len()).unwrap().to_ne_bytes();
        let (kind, flags) = (kind.to_ne_bytes(), [0; 2]);
        [&length[..], &kind, &flags, &seq.to_ne_bytes(), &[0; 4], body].concat()
    }

    #[test]
    fn an_error_that_is_none_is_a_refusal_all_the_same() {
        for code in [i32::MIN, -4096, 1, i32::MAX] {
            let outcome = answers(&[&message(2, BASE, &code.to_ne_bytes())]);
            assert_eq!(outcome.refusals.len(), 1, "{code}");
            assert_eq!(outcome.refusals[0].errno, rustix::io::Errno::PROTO, "{code}");
        }
        let outcome = answers(&[&message(2, BASE, &(-17_i32).to_ne_bytes())]);
        assert_eq!(outcome.refusals[0].errno, rustix::io::Errno::EXIST);
    }
}
