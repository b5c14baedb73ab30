//! What was asked for: pools of devices and how each is offered, read from YAML.
//!
//! A field that nobody knows is refused by its name, and everything that can be judged without looking at the node is judged
//! here; what two pools name both is judged by `plan`. The reference is `docs/device-plugin.md`.

use std::{collections::BTreeSet, os::unix::fs::OpenOptionsExt, path::Path};

use serde::Deserialize;

use crate::glob;

/// A configuration is written by hand.
const LARGEST: usize = 1 << 20;
/// Ids that one resource may offer: what fits into one message to the kubelet many times over.
pub(crate) const MOST_IDS: u32 = 16_384;

/// What the plugin is to offer.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub(crate) pools: Vec<Pool>,
}

/// One resource and the devices behind it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Pool {
    /// The extended resource's name.
    pub(crate) resource: String,
    /// A device belongs to the pool if one of these chooses it.
    pub(crate) select: Vec<Selector>,
    /// How many containers may have a device at a time.
    #[serde(default = "once")]
    pub(crate) share: u32,
    /// What a container may do with device files: some of `r`, `w` and `m`.
    #[serde(default = "read_and_write")]
    pub(crate) permissions: String,
    /// Where the device file is in the container, with `{name}` and `{index}`; default: where it is on the node.
    pub(crate) container_path: Option<String>,
    /// Which NUMA node the devices are told to be at.
    #[serde(default)]
    pub(crate) numa: Numa,
    /// The devices' names for the runtime's Container Device Interface.
    pub(crate) cdi: Option<Cdi>,
    /// The environment variable that tells a container what it was given.
    pub(crate) env: Option<String>,
}

/// Which devices a pool takes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub(crate) enum Selector {
    /// Device files by path or serial number.
    Node { path: Option<String>, serial: Option<String> },
    /// `/dev/net/tun`.
    Tun {},
    /// `/dev/vhost-net`.
    VhostNet {},
    /// Macvtap interfaces, each with its `/dev/tapN`.
    Macvtap { name: String },
    /// Tap interfaces that were made to last.
    Tap { name: String },
    /// SR-IOV virtual functions; each list that is given must have one that fits.
    Vf {
        #[serde(default)]
        pf: Vec<String>,
        #[serde(default)]
        driver: Vec<String>,
        #[serde(default)]
        address: Vec<String>,
        #[serde(default)]
        vendor: Vec<String>,
        #[serde(default)]
        device: Vec<String>,
        /// Only functions with an RDMA device, whose files are given as well.
        #[serde(default)]
        rdma: bool,
        /// Unhealthy while the link of the physical function is down.
        #[serde(default)]
        require_link: bool,
    },
    /// RDMA devices by their name in `/sys/class/infiniband`.
    Rdma {
        name: String,
        #[serde(default)]
        driver: Vec<String>,
        /// Also the files that speak to the subnet's management.
        #[serde(default)]
        mad: bool,
    },
}

/// Where devices are told to be.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(rename_all = "lowercase", untagged)]
pub(crate) enum Numa {
    /// At this node, whatever sysfs says.
    At(u16),
    /// As the word says.
    Said(NumaWord),
    /// As sysfs says.
    #[default]
    Sysfs,
}

/// The words for NUMA.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NumaWord {
    /// What sysfs says.
    Sysfs,
    /// Nothing is told.
    None,
}

/// Names for the Container Device Interface.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Cdi {
    /// `vendor/class`; a device is `vendor/class=NAME`.
    pub(crate) kind: String,
    /// The runtime's specification brings the device files; none are given beside it.
    #[serde(default)]
    pub(crate) only: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    pools: Vec<Pool>,
}

/// Why a configuration is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("read the device plugin's configuration {path:?}")]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is larger than anybody writes.
    #[error("the device plugin's configuration has more than {LARGEST} bytes")]
    TooLarge,
    /// It is not what a configuration looks like.
    #[error("the device plugin's configuration is not understood: {0}")]
    Parse(serde_yaml_ng::Error),
    /// It says something that cannot be.
    #[error("the device plugin's configuration: {place}: {what}")]
    Invalid {
        /// The field.
        place: String,
        /// What is wrong, and what to write.
        what: String,
    },
}

impl Config {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let failed = |source: std::io::Error| ConfigError::Read { path: path.to_owned(), source };
        // A FIFO in the file's place cannot hold the reader up; links are how config maps are mounted.
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file =
            std::fs::OpenOptions::new().read(true).custom_flags(nonblock).open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(std::io::Error::other("it is not a regular file")));
        }
        let mut text = String::new();
        std::io::Read::read_to_string(&mut std::io::Read::take(file, LARGEST as u64 + 1), &mut text)
            .map_err(failed)?;
        Config::parse(&text)
    }

    /// Reads YAML.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        if text.len() > LARGEST {
            return Err(ConfigError::TooLarge);
        }
        let File { pools } = serde_yaml_ng::from_str(text).map_err(ConfigError::Parse)?;
        if pools.is_empty() {
            return Err(invalid("pools", "there is none; write at least one"));
        }
        let mut names = BTreeSet::new();
        for (at, pool) in pools.iter().enumerate() {
            let place = format!("pools[{at}]");
            if !names.insert(&pool.resource) {
                let what = format!(
                    "{:?} is offered by another pool already; put its selectors there",
                    pool.resource
                );
                return Err(invalid(&format!("{place}.resource"), what));
            }
            judge(&place, pool)?;
        }
        Ok(Config { pools })
    }
}

fn once() -> u32 {
    1
}

fn read_and_write() -> String {
    "rw".to_owned()
}

fn invalid(place: &str, what: impl Into<String>) -> ConfigError {
    ConfigError::Invalid { place: place.to_owned(), what: what.into() }
}

fn judge(place: &str, pool: &Pool) -> Result<(), ConfigError> {
    let at = |field: &str| format!("{place}.{field}");
    resource(&pool.resource).map_err(|what| invalid(&at("resource"), what))?;
    if pool.select.is_empty() {
        return Err(invalid(&at("select"), "it chooses nothing; write at least one selector"));
    }
    if !(1..=MOST_IDS).contains(&pool.share) {
        return Err(invalid(&at("share"), format!("{} is not between 1 and {MOST_IDS}", pool.share)));
    }
    permissions(&pool.permissions).map_err(|what| invalid(&at("permissions"), what))?;
    if let Some(path) = &pool.container_path {
        let own = pool.select.iter().all(|one| {
            matches!(
                one,
                Selector::Node { .. } | Selector::Macvtap { .. } | Selector::Tun {} | Selector::VhostNet {}
            )
        });
        if !own {
            return Err(invalid(
                &at("containerPath"),
                "only devices of a single file can be put elsewhere: node, tun, vhost-net, macvtap",
            ));
        }
        absolute(path).map_err(|what| invalid(&at("containerPath"), what))?;
    }
    if let Some(cdi) = &pool.cdi {
        cdi_kind(&cdi.kind).map_err(|what| invalid(&at("cdi.kind"), what))?;
    }
    if let Some(name) = &pool.env {
        let fits = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !fits {
            return Err(invalid(&at("env"), format!("{name:?} is no name of an environment variable")));
        }
    }
    pool.select
        .iter()
        .enumerate()
        .try_for_each(|(number, one)| selector(&at(&format!("select[{number}]")), one))
}

fn selector(place: &str, selector: &Selector) -> Result<(), ConfigError> {
    let at = |field: &str| format!("{place}.{field}");
    match selector {
        Selector::Node { path: None, serial: None } => {
            Err(invalid(place, "it chooses nothing; write path or serial"))
        }
        Selector::Node { path, serial } => {
            if let Some(path) = path {
                below_dev(path).map_err(|what| invalid(&at("path"), what))?;
            }
            match serial {
                Some(serial) if serial.trim() != serial || serial.is_empty() => {
                    Err(invalid(&at("serial"), "it is empty or has white space around it"))
                }
                _ => Ok(()),
            }
        }
        Selector::Macvtap { name } | Selector::Tap { name } | Selector::Rdma { name, .. }
            if name.is_empty() =>
        {
            Err(invalid(&at("name"), "it is empty; write a name or a pattern such as *"))
        }
        Selector::Vf { pf, driver, address, vendor, device, .. } => {
            if [pf, driver, address, vendor, device].iter().all(|list| list.is_empty()) {
                return Err(invalid(
                    place,
                    "it chooses nothing; write pf, driver, address, vendor or device",
                ));
            }
            for one in pf {
                PhysicalFunction::parse(one).map_err(|what| invalid(&at("pf"), what))?;
            }
            for one in vendor.iter().chain(device) {
                if one.len() != 4 || !one.chars().all(|c| c.is_ascii_hexdigit()) {
                    return Err(invalid(
                        place,
                        format!("{one:?} is no PCI number; write four hexadecimal digits such as \"15b3\""),
                    ));
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A physical function as it is typed: a name or pattern, and perhaps which of its functions: `eth0#0-3,7`.
pub(crate) struct PhysicalFunction<'a> {
    pub(crate) name: &'a str,
    ranges: Vec<(u32, u32)>,
}

impl PhysicalFunction<'_> {
    pub(crate) fn parse(text: &str) -> Result<PhysicalFunction<'_>, String> {
        let (name, ranges) = text.split_once('#').map_or((text, None), |(name, ranges)| (name, Some(ranges)));
        if name.is_empty() {
            return Err(format!("{text:?} names no interface"));
        }
        let wrong = || format!("{text:?}: write ranges such as eth0#0-3,7");
        let range = |part: &str| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to) = (from.parse().map_err(|_| wrong())?, to.parse().map_err(|_| wrong())?);
            if from <= to { Ok((from, to)) } else { Err(wrong()) }
        };
        let ranges = ranges.map_or(Ok(Vec::new()), |all| all.split(',').map(range).collect())?;
        Ok(PhysicalFunction { name, ranges })
    }

    pub(crate) fn has(&self, index: Option<u32>) -> bool {
        let inside = |index: u32| self.ranges.iter().any(|(from, to)| (*from..=*to).contains(&index));
        self.ranges.is_empty() || index.is_some_and(inside)
    }
}

/// As upstream judges the name of an extended resource.
/// <https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources>
fn resource(name: &str) -> Result<(), String> {
    let wrong = |why: &str| {
        Err(format!("{name:?} is no extended resource: {why}; write one such as podwire.dev/tun"))
    };
    let Some((domain, rest)) = name.split_once('/') else { return wrong("it has no domain") };
    if domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") {
        return wrong("kubernetes.io belongs to Kubernetes");
    }
    if domain.starts_with("requests.") {
        return wrong("quotas use the prefix requests.");
    }
    let label = |label: &str| {
        let inner = label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        !label.is_empty() && label.len() <= 63 && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    // Quotas put "requests." before it, and the whole is still to be a name.
    if domain.len() > 253 - "requests.".len() || !domain.split('.').all(label) {
        return wrong("its domain is no DNS name");
    }
    if !is_word(rest, &['-', '_', '.']) || rest.len() > 63 {
        return wrong("what follows the slash is no name");
    }
    Ok(())
}

/// Letters, digits and the others, with a letter or digit at both ends.
fn is_word(text: &str, others: &[char]) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.chars().next())
        && ends(text.chars().last())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(&c))
}

fn permissions(text: &str) -> Result<(), String> {
    let known: BTreeSet<char> = text.chars().collect();
    if text.is_empty() || known.len() != text.len() || !known.iter().all(|c| "rwm".contains(*c)) {
        return Err(format!("{text:?} is not made of r, w and m, each at most once"));
    }
    Ok(())
}

fn absolute(path: &str) -> Result<(), String> {
    let parts = path.strip_prefix('/').ok_or_else(|| format!("{path:?} does not begin with a slash"))?;
    if parts.split('/').any(|part| matches!(part, "" | "." | "..")) || path.contains(['\0', '\n']) {
        return Err(format!("{path:?} has parts that are empty, . or .."));
    }
    Ok(())
}

fn below_dev(path: &str) -> Result<(), String> {
    absolute(path)?;
    let mut parts = path.split('/').skip(1);
    match (parts.next(), parts.next()) {
        (Some("dev"), Some(_)) if path.split('/').any(|part| part.contains("**")) => {
            Err(format!("{path:?}: ** is not known; write a pattern for each folder"))
        }
        (Some("dev"), Some(_)) => Ok(()),
        _ if glob::is_pattern(path) => Err(format!("{path:?} does not begin with /dev/ as it stands")),
        _ => Err(format!("{path:?} is not below /dev")),
    }
}

/// <https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md#kind>
fn cdi_kind(kind: &str) -> Result<(), String> {
    match kind.split_once('/') {
        Some((vendor, class)) if is_word(vendor, &['-', '_', '.']) && is_word(class, &['-', '_']) => Ok(()),
        _ => Err(format!("{kind:?} is no kind of CDI devices; write one such as podwire.dev/net")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Config::parse(text).unwrap_err().to_string()
    }

    fn pool(more: &str) -> String {
        format!("pools: [{{resource: podwire.dev/a, {more}}}]")
    }

    #[test]
    fn a_pool_of_every_kind_is_read() {
        let text = r#"
pools:
- resource: podwire.dev/tun
  share: 100
  select: [{kind: tun}]
- resource: podwire.dev/serial
  permissions: rwm
  containerPath: "/dev/tty{index}"
  numa: 1
  env: SERIAL
  select:
  - {kind: node, path: "/dev/ttyUSB*"}
  - {kind: node, serial: A10}
- resource: podwire.dev/vf
  numa: none
  cdi: {kind: podwire.dev/net}
  select:
  - {kind: vf, pf: ["eth0#0-3,7"], vendor: ["15b3"], requireLink: true}
- {resource: podwire.dev/rdma, numa: sysfs, select: [{kind: rdma, name: "mlx5_*"}]}
- {resource: podwire.dev/links, select: [{kind: macvtap, name: m*}, {kind: tap, name: t*}, {kind: vhost-net}]}
"#;
        let config = Config::parse(text).unwrap();
        assert_eq!(config.pools.len(), 5);
        assert_eq!((config.pools[0].share, config.pools[1].share), (100, 1));
        assert_eq!(config.pools[1].numa, Numa::At(1));
        assert_eq!(config.pools[2].numa, Numa::Said(NumaWord::None));
        assert_eq!(config.pools[3].permissions, "rw");
    }

    #[test]
    fn an_unknown_field_is_named() {
        for (text, field) in [
            ("pools: []\nextra: 1", "extra"),
            (&pool("select: [{kind: tun}], shares: 2"), "shares"),
            (&pool("select: [{kind: tun, path: /dev/x}]"), "path"),
            (&pool("select: [{kind: node, glob: /dev/x}]"), "glob"),
            (&pool("select: [{kind: tun}], cdi: {kind: a/b, names: 1}"), "names"),
            (&pool("select: [{kind: gpu}]"), "gpu"),
        ] {
            let said = refused(text);
            assert!(said.contains(&format!("`{field}`")), "{said}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place() {
        for (more, place) in [
            ("select: []", "pools[0].select:"),
            ("select: [{kind: tun}], share: 0", "pools[0].share:"),
            ("select: [{kind: tun}], share: 100000", "pools[0].share:"),
            ("select: [{kind: tun}], permissions: rx", "pools[0].permissions:"),
            ("select: [{kind: tun}], permissions: rr", "pools[0].permissions:"),
            ("select: [{kind: tun}], containerPath: dev/x", "pools[0].containerPath:"),
            ("select: [{kind: tun}], containerPath: /dev/../etc", "pools[0].containerPath:"),
            ("select: [{kind: rdma, name: x}], containerPath: /dev/x", "pools[0].containerPath:"),
            ("select: [{kind: tun}], cdi: {kind: nothing}", "pools[0].cdi.kind:"),
            ("select: [{kind: tun}], env: 1A", "pools[0].env:"),
            ("select: [{kind: node}]", "pools[0].select[0]:"),
            ("select: [{kind: node, path: /etc/passwd}]", "pools[0].select[0].path:"),
            ("select: [{kind: node, path: '/*/x'}]", "pools[0].select[0].path:"),
            ("select: [{kind: node, path: '/dev/**'}]", "pools[0].select[0].path:"),
            ("select: [{kind: node, path: /dev/../etc/x}]", "pools[0].select[0].path:"),
            ("select: [{kind: tap, name: ''}]", "pools[0].select[0].name:"),
            ("select: [{kind: vf}]", "pools[0].select[0]:"),
            ("select: [{kind: vf, pf: ['eth0#3-1']}]", "pools[0].select[0].pf:"),
            ("select: [{kind: vf, vendor: ['0x15b3']}]", "pools[0].select[0]:"),
        ] {
            let said = refused(&pool(more));
            assert!(said.contains(place), "{more}: {said}");
        }
        assert!(refused("pools: []").contains("pools:"));
        for name in
            ["tun", "kubernetes.io/tun", "x.kubernetes.io/tun", "requests.a/tun", "A/tun", "a/-", "a/b/c"]
        {
            let said = refused(&format!("pools: [{{resource: {name}, select: [{{kind: tun}}]}}]"));
            assert!(said.contains("pools[0].resource:"), "{name}: {said}");
        }
    }

    #[test]
    fn one_resource_has_one_pool() {
        let one = "{resource: podwire.dev/a, select: [{kind: tun}]}";
        assert!(refused(&format!("pools: [{one}, {one}]")).contains("pools[1].resource"));
    }
}
