//! Any bytes as a plugin's result in every version: reading, converting and reading again must agree.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_cni_lib::CniError;
use podwire_cni_lib::spec::result::CniResult;
use podwire_cni_lib::spec::version::Version;

const VERSIONS: &[&str] = &["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

fuzz_target!(init: {
    let texts = [
        r#"{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","mtu":1500,"sandbox":"/n"}],"ips":[{"address":"10.1.0.2/24","gateway":"10.1.0.1","interface":0}],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.0.1","mtu":1400,"advmss":1300,"priority":1,"table":2,"scope":0}],"dns":{"nameservers":["10.1.0.1"],"domain":"a","search":["b"],"options":["c"]}}"#,
        r#"{"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.2/24","gateway":"10.1.0.1","routes":[{"dst":"0.0.0.0/0"}]},"ip6":{"ip":"fd00::2/64"},"dns":{}}"#,
        r#"{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.1.0.2/24"}]}"#,
        r#"{"cniVersion":"1.0.0","code":7,"msg":"m","details":"d"}"#,
    ];
    for (number, text) in texts.iter().enumerate() {
        podwire_fuzz::seed(number, text.as_bytes());
    }
}, |data: &[u8]| {
    let Ok(value) = serde_json::from_slice(data) else { return };
    drop(CniError::from_value(&value));
    for version in VERSIONS.iter().filter_map(|text| Version::parse(text).ok()) {
        let Ok(result) = CniResult::parse(&value, version) else { continue };
        for name in ["eth0", ""] {
            std::hint::black_box((result.ips_of(name).count(), result.container_interface(name)));
        }
        for other in VERSIONS.iter().filter_map(|text| Version::parse(text).ok()) {
            drop(result.to_value(other));
        }
        let Ok(written) = result.to_value(version) else { continue };
        let again = CniResult::parse(&written, version).expect("what was written can be read");
        assert_eq!(again.to_value(version).ok(), Some(written), "writing is stable");
    }
});
