//! Any datagrams as the kernel's answers: every reader of replies ends without a panic and makes nothing up.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use podwire_linux::hostile::{ASKED, BASE, answers};
use podwire_linux::rtnl::Attrs;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Bytes(Vec<&'a [u8]>),
    /// Sound headers in front of any bodies.
    Messages(Vec<(u16, u16, u8, &'a [u8])>),
}

fn walk(attrs: Attrs<'_>, depth: usize) -> usize {
    let mut size = 0;
    for (kind, value) in attrs {
        assert!(kind <= 0x3fff, "flags are no part of a kind");
        size += 4 + value.len();
        if depth > 0 {
            assert!(walk(Attrs(value), depth - 1) <= value.len(), "more is nested than there is");
        }
    }
    size
}

fuzz_target!(|input: Input<'_>| {
    let built: Vec<Vec<u8>>;
    let datagrams: Vec<&[u8]> = match input {
        Input::Bytes(datagrams) => datagrams,
        Input::Messages(messages) => {
            built = messages
                .iter()
                .map(|(kind, flags, index, body)| {
                    let length = u32::try_from(16 + body.len()).expect("a short message").to_ne_bytes();
                    let seq = (BASE + u32::from(*index) % 4).to_ne_bytes();
                    let mut bytes =
                        [&length[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &seq, &[0; 4], body]
                            .concat();
                    bytes.resize(bytes.len().next_multiple_of(4), 0);
                    bytes
                })
                .collect();
            built.iter().map(Vec::as_slice).collect()
        }
    };
    let outcome = answers(&datagrams);
    let sent: usize = datagrams.iter().map(|bytes| bytes.len()).sum();
    let told = outcome.replies.len() + outcome.refusals.len();
    assert!(told <= sent / 16, "{told} answers in {sent} bytes");
    assert!(outcome.replies.iter().map(|reply| 16 + reply.body.len()).sum::<usize>() <= sent);
    assert!(outcome.replies.iter().all(|reply| reply.index < ASKED), "an answer to what was not asked");
    for refusal in &outcome.refusals {
        assert!(refusal.index < ASKED && !refusal.to_string().is_empty());
        assert!(refusal.text.as_ref().is_none_or(|text| text.len() <= 3 * sent));
    }
    for reply in &outcome.replies {
        assert!(walk(reply.attrs(0), 3) <= reply.body.len());
    }
});
