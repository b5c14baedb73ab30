//! What the node has, what it keeps for itself, and what is left for pods.

use std::{collections::BTreeMap, fmt, fs, io, path::Path};

use podwire_api::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::Thresholds;

/// Names of resources in `--kube-reserved` and `--system-reserved`.
const RESERVABLE: &str = "cpu, memory, ephemeral-storage";

/// What the node keeps from its pods for its own programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Thousandths of a core.
    pub milli_cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes on the disk that pods' files lie on.
    pub storage: i64,
}

/// Why a list of reservations is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReservedError {
    /// No name and amount.
    #[error("{0:?} is not RESOURCE=AMOUNT")]
    Form(String),
    /// No amount, or one below nothing.
    #[error("{name}: {amount:?} is not an amount")]
    Amount {
        /// The resource.
        name: String,
        /// What was said of it.
        amount: String,
    },
    /// Nothing that can be kept back.
    #[error("{0:?} cannot be reserved; what can are {RESERVABLE}")]
    Unknown(String),
    /// Said twice.
    #[error("{0:?} is reserved twice")]
    Twice(String),
}

impl Reserved {
    /// Reads upstream's form, e.g. `cpu=100m,memory=512Mi`; empty is nothing.
    pub fn parse(text: &str) -> Result<Reserved, ReservedError> {
        let mut reserved = Reserved::default();
        let mut seen = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, amount) = part.split_once('=').ok_or_else(|| ReservedError::Form(part.to_owned()))?;
            if seen.contains(&name) {
                return Err(ReservedError::Twice(name.to_owned()));
            }
            seen.push(name);
            let wrong = || ReservedError::Amount { name: name.to_owned(), amount: amount.to_owned() };
            let quantity = Quantity::parse(amount).ok().filter(|q| !q.is_negative()).ok_or_else(wrong)?;
            match name {
                "cpu" => reserved.milli_cpu = quantity.milli_value(),
                "memory" => reserved.memory = quantity.value(),
                "ephemeral-storage" => reserved.storage = quantity.value(),
                _ => return Err(ReservedError::Unknown(name.to_owned())),
            }
        }
        Ok(reserved)
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Reserved) -> Reserved {
        Reserved {
            milli_cpu: self.milli_cpu.saturating_add(other.milli_cpu),
            memory: self.memory.saturating_add(other.memory),
            storage: self.storage.saturating_add(other.storage),
        }
    }

    /// With what must stay free on the node before pods are evicted.
    fn with_thresholds(self, thresholds: Option<&Thresholds>, capacity: &Capacity) -> Reserved {
        let Some(limits) = thresholds else { return self };
        // Upstream keeps the share as a number of 32 bits.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "as upstream counts"
        )]
        let storage = (capacity.storage as f64 * f64::from(limits.disk as f32)) as i64;
        let memory = i64::try_from(limits.memory).unwrap_or(i64::MAX);
        self.plus(Reserved { milli_cpu: 0, memory, storage })
    }
}

/// More is kept back than there is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid Node Allocatable configuration. Resource {resource:?} has a reservation of {reserved} but capacity of {capacity}. \
     Expected capacity >= reservation."
)]
pub struct TooMuchReserved {
    resource: &'static str,
    reserved: String,
    capacity: String,
}

/// Amounts of what a node has of its own: all of them, or what is left for pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) milli_cpu: i64,
    /// Bytes.
    pub(crate) memory: i64,
    /// Bytes.
    pub(crate) storage: i64,
    /// Bytes in huge pages, by the size of a page.
    pub(crate) hugepages: BTreeMap<u64, i64>,
}

impl Capacity {
    /// Looks at the machine, and at the disk that `root_dir` is on.
    pub(crate) fn of_node(root_dir: &Path) -> Capacity {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib: i64 = total.and_then(|t| t.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(1 << 20);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let disk = rustix::fs::statvfs(root_dir).map_or(0, |s| s.f_blocks.saturating_mul(s.f_frsize));
        Capacity {
            milli_cpu: i64::try_from(cores).unwrap_or(1) * 1000,
            memory: kib.saturating_mul(1024),
            storage: i64::try_from(disk).unwrap_or(i64::MAX),
            // A kernel without huge pages has no such folder.
            hugepages: hugepages(Path::new("/sys/kernel/mm/hugepages")).unwrap_or_default(),
        }
    }

    /// What pods may use when `reserved` and what `thresholds` want free are kept back. Huge pages are memory that
    /// nothing else can use.
    pub(crate) fn left(
        &self,
        reserved: Reserved,
        thresholds: Option<&Thresholds>,
    ) -> Result<Capacity, TooMuchReserved> {
        let kept = reserved.with_thresholds(thresholds, self);
        let milli = |value: i64| Quantity::from_milli(value).to_string();
        let bytes = |value: i64| Bytes(value).to_string();
        let all = [
            ("cpu", kept.milli_cpu, self.milli_cpu, &milli as &dyn Fn(i64) -> String),
            ("memory", kept.memory, self.memory, &bytes),
            ("ephemeral-storage", kept.storage, self.storage, &bytes),
        ];
        if let Some((resource, kept, has, show)) = all.into_iter().find(|(_, kept, has, _)| kept > has) {
            return Err(TooMuchReserved { resource, reserved: show(kept), capacity: show(has) });
        }
        let huge: i64 = self.hugepages.values().sum();
        Ok(Capacity {
            milli_cpu: self.milli_cpu - kept.milli_cpu,
            memory: (self.memory - kept.memory - huge).max(0),
            storage: self.storage - kept.storage,
            hugepages: self.hugepages.clone(),
        })
    }

    /// All of it by name: cpu in thousandths, the others in bytes.
    pub(crate) fn amounts(&self) -> Vec<(String, i64)> {
        let mut all = vec![
            ("cpu".to_owned(), self.milli_cpu),
            ("memory".to_owned(), self.memory),
            ("ephemeral-storage".to_owned(), self.storage),
        ];
        let huge = self.hugepages.iter().map(|(size, bytes)| {
            (format!("hugepages-{}", Bytes(i64::try_from(*size).unwrap_or(i64::MAX))), *bytes)
        });
        all.extend(huge);
        all
    }

    /// As a node's status shows it, with the number of pods.
    pub(crate) fn shown(&self, pods: u32) -> Value {
        let shown = self.amounts().into_iter().map(|(name, amount)| {
            let text = if name == "cpu" {
                Quantity::from_milli(amount).to_string()
            } else {
                Bytes(amount).to_string()
            };
            (name, json!(text))
        });
        let mut list: Map<String, Value> = shown.collect();
        list.insert("pods".to_owned(), json!(pods.to_string()));
        Value::Object(list)
    }
}

/// Bytes in the largest binary unit that holds them without a rest.
struct Bytes(i64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        for unit in ["", "Ki", "Mi", "Gi", "Ti", "Pi"] {
            if rest == 0 || rest % 1024 != 0 {
                return write!(f, "{rest}{unit}");
            }
            rest /= 1024;
        }
        write!(f, "{rest}Ei")
    }
}

/// Bytes in huge pages by the size of a page: `hugepages-2048kB/nr_hugepages` below a folder.
fn hugepages(folder: &Path) -> io::Result<BTreeMap<u64, i64>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let size = name.to_str().and_then(|name| name.strip_prefix("hugepages-")?.strip_suffix("kB"));
        let Some(kib) = size.and_then(|kib| kib.parse::<u64>().ok()) else { continue };
        let count = fs::read_to_string(entry.path().join("nr_hugepages"))?;
        let count: u64 = count.trim().parse().map_err(io::Error::other)?;
        let size = kib.saturating_mul(1024);
        found.insert(size, i64::try_from(size.saturating_mul(count)).unwrap_or(i64::MAX));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MI: i64 = 1 << 20;

    fn node() -> Capacity {
        Capacity {
            milli_cpu: 4000,
            memory: 8192 * MI,
            storage: 100 << 30,
            hugepages: BTreeMap::from([(2 << 20, 64 * MI), (1 << 30, 0)]),
        }
    }

    #[test]
    fn reservations_are_read_as_upstream_writes_them() {
        let read = Reserved::parse("cpu=100m,memory=512Mi,ephemeral-storage=1Gi");
        assert_eq!(read, Ok(Reserved { milli_cpu: 100, memory: 512 * MI, storage: 1024 * MI }));
        assert_eq!(Reserved::parse(""), Ok(Reserved::default()));
        let wrong = |text: &str| Reserved::parse(text).unwrap_err().to_string();
        assert_eq!(wrong("cpu"), "\"cpu\" is not RESOURCE=AMOUNT");
        assert_eq!(wrong("memory=lots"), "memory: \"lots\" is not an amount");
        assert_eq!(wrong("cpu=-1"), "cpu: \"-1\" is not an amount");
        assert_eq!(wrong("pid=5"), "\"pid\" cannot be reserved; what can are cpu, memory, ephemeral-storage");
        assert_eq!(wrong("cpu=1,cpu=2"), "\"cpu\" is reserved twice");
    }

    #[test]
    fn pods_get_what_is_not_reserved_kept_free_or_in_huge_pages() {
        let reserved = Reserved { milli_cpu: 500, memory: 1024 * MI, storage: 10 << 30 };
        let left = node().left(reserved, Some(&Thresholds::default())).unwrap();
        assert_eq!(left.milli_cpu, 3500);
        assert_eq!(left.memory, (8192 - 1024 - 100 - 64) * MI);
        // A tenth in 32 bits is a little more than a tenth.
        assert_eq!(left.storage, (90 << 30) - 10_737_418_400);
        assert_eq!(left.hugepages, node().hugepages);
        let plain = node().left(Reserved::default(), None).unwrap();
        assert_eq!(plain.memory, (8192 - 64) * MI);
    }

    #[test]
    fn more_than_there_is_cannot_be_reserved() {
        let reserved = Reserved { memory: 9000 * MI, ..Reserved::default() };
        let error = node().left(reserved, None).unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid Node Allocatable configuration. Resource \"memory\" has a reservation of 9000Mi but capacity of 8Gi. \
             Expected capacity >= reservation."
        );
    }

    #[test]
    fn a_status_shows_amounts_in_kubernetes_units() {
        let shown = node().shown(110);
        assert_eq!(
            shown,
            json!({"cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi", "pods": "110",
                "hugepages-2Mi": "64Mi", "hugepages-1Gi": "0"})
        );
        let odd = Capacity { memory: 1025, milli_cpu: 1500, ..Capacity::default() };
        assert_eq!(odd.shown(1)["memory"], "1025");
        assert_eq!(odd.shown(1)["cpu"], "1500m");
    }

    #[test]
    fn huge_pages_are_counted_by_their_size() {
        let folder = tempfile::tempdir().unwrap();
        for (size, count) in [("2048", "12\n"), ("1048576", "0\n")] {
            let place = folder.path().join(format!("hugepages-{size}kB"));
            fs::create_dir(&place).unwrap();
            fs::write(place.join("nr_hugepages"), count).unwrap();
        }
        fs::create_dir(folder.path().join("other")).unwrap();
        let found = hugepages(folder.path()).unwrap();
        assert_eq!(found, BTreeMap::from([(2 << 20, 24 * MI), (1 << 30, 0)]));
    }
}
