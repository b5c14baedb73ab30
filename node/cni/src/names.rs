//! Names shared with the reference plugins, so that one side's ADD meets the other side's DEL.

use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha512};

/// Lower-case hexadecimal SHA-512.
pub fn sha512_hex(text: &str) -> String {
    Sha512::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The iptables chain of an attachment: `prefix` and a hash, cut to 28 characters.
pub fn chain_name(prefix: &str, network: &str, container: &str) -> String {
    let mut name = format!("{prefix}{}", sha512_hex(&format!("{network}{container}")));
    name.truncate(28);
    name
}

/// The comment iptables rules carry.
pub fn comment(network: &str, container: &str) -> String {
    format!("name: \"{network}\" id: \"{container}\"")
}

/// The comment of a masquerade rule: hashes by which it is found, then words for people.
pub fn masquerade_comment(network: &str, ifname: &str, container: &str) -> String {
    let hash = |text: &str| sha512_hex(text)[..16].to_owned();
    let mut text = format!(
        "{}-{}, net: {network}, if: {ifname}, id: {container}",
        hash(network),
        hash(&format!("{ifname}:{container}"))
    );
    // A character of several bytes is cut as a whole.
    text.truncate(text.floor_char_boundary(128));
    text
}

/// The part of a masquerade comment that names the network and, if given, the attachment.
pub fn masquerade_prefix(network: &str, attachment: Option<(&str, &str)>) -> String {
    let network = sha512_hex(network)[..16].to_owned();
    match attachment {
        Some((ifname, container)) => {
            format!("{network}-{}", &sha512_hex(&format!("{ifname}:{container}"))[..16])
        }
        None => network,
    }
}

/// A name for a new host-side veth.
pub fn random_veth() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut bytes = [0u8; 8];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    if filled != Ok(bytes.len()) {
        let seed = (u64::from(std::process::id()) << 32) ^ COUNTER.fetch_add(1, Ordering::Relaxed);
        bytes = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes();
    }
    let tail: String = bytes[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("veth{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_length_the_kernel_allows() {
        assert!(masquerade_comment("n", &"é".repeat(200), "c").len() <= 128);
        assert_eq!(chain_name("CNI-", "net", "id").len(), 28);
        assert!(chain_name("CNI-DN-", "net", "id").starts_with("CNI-DN-"));
        assert_eq!(random_veth().len(), 12);
        assert!(masquerade_comment("n", "eth0", &"x".repeat(200)).len() <= 128);
        assert!(
            masquerade_comment("n", "eth0", "c").starts_with(&masquerade_prefix("n", Some(("eth0", "c"))))
        );
    }
}
