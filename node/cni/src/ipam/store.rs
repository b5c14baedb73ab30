//! Reservations on disk, in the reference plugin's folder: one file per address, its content the owner.
//!
//! Four steps, as a pod's address is given: lock the folder, select the next free address, record the owner, return. The
//! record appears complete or not at all (written aside, then renamed), so a kill leaves no file without owner. Nothing
//! is synced: after a power cut the boot id differs, and what earlier boots reserved is released.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags};

use super::index::{Index, State, ignore_absent};
use super::ranges::{Range, RangeSet, from_number, to_number};
use crate::spec::error::{CniError, code};
use crate::spec::request::is_identifier;

/// How long the lock of a network may be waited for.
const LOCK_WITHIN: Duration = Duration::from_secs(30);

/// Who has an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The container.
    pub container: String,
    /// The interface in it; empty in files of old.
    pub ifname: String,
}

impl Owner {
    /// As written into the file of an address.
    pub fn record(&self) -> String {
        format!("{}\r\n{}", self.container, self.ifname)
    }

    /// Reads the content of such a file; an empty one has no owner.
    pub fn parse(text: &str) -> Option<Owner> {
        let mut lines = text.trim().lines().map(str::trim);
        let container = lines.next().filter(|line| !line.is_empty())?.to_owned();
        Some(Owner { container, ifname: lines.next().unwrap_or_default().to_owned() })
    }

    /// Whether a record of `found` belongs to this owner.
    fn owns(&self, found: &Owner) -> bool {
        self.container == found.container && (found.ifname.is_empty() || found.ifname == self.ifname)
    }
}

/// The reservations of one network, locked.
pub struct Store {
    dir: PathBuf,
    index: Index,
    boot: String,
    lock: File,
    /// Files of the folder read or listed so far: what constant cost is counted in.
    touched: std::cell::Cell<u64>,
}

fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CniError {
    let path = path.display().to_string();
    move |error| CniError::new(code::IO, format!("{attempt} {path}: {error}"))
}

/// The identifier of this boot; empty when the kernel tells none.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

impl Store {
    /// Opens and locks the reservations of a network.
    pub fn open(data_dir: &Path, network: &str) -> Result<Store, CniError> {
        if !is_identifier(network) {
            return Err(CniError::config(format!("network name {network:?} cannot be a folder")));
        }
        let dir = data_dir.join(network);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&dir)
            .map_err(failed("create reservations folder", &dir))?;
        let lock_path = dir.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(failed("open", &lock_path))?;
        take(&lock, &lock_path)?;
        let index = Index::open(data_dir, network).map_err(failed("open the index beside", &dir))?;
        let store = Store { dir, index, boot: boot_id(), lock, touched: std::cell::Cell::new(0) };
        store.release_earlier_boots()?;
        Ok(store)
    }

    /// How many reservations have been read or listed, by which tests know that the cost is constant.
    pub fn touched(&self) -> u64 {
        self.touched.get()
    }

    fn touch(&self) {
        self.touched.set(self.touched.get() + 1);
    }

    fn path_of(&self, ip: IpAddr) -> PathBuf {
        self.dir.join(ip.to_string())
    }

    fn owner_of(&self, ip: IpAddr) -> Option<Owner> {
        self.touch();
        Owner::parse(&std::fs::read_to_string(self.path_of(ip)).ok()?)
    }

    /// Every reserved address; only names are read.
    pub fn reserved(&self) -> Result<Vec<IpAddr>, CniError> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(failed("list", &self.dir))? {
            self.touch();
            let entry = entry.map_err(failed("list", &self.dir))?;
            if let Some(ip) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                found.push(ip);
            }
        }
        Ok(found)
    }

    /// Every reservation with its owner; a file without one belongs to nobody.
    pub fn reservations(&self) -> Result<Vec<(IpAddr, Option<Owner>)>, CniError> {
        Ok(self.reserved()?.into_iter().map(|ip| (ip, self.owner_of(ip))).collect())
    }

    /// Whether the folder is as we left it.
    fn is_fresh(&self) -> bool {
        self.index.state().is_some_and(|state| State::of(&self.dir, &self.boot).is_ok_and(|now| now == state))
    }

    /// Rebuilds the index when somebody else has changed the folder.
    fn refresh(&self, sets: &[RangeSet]) -> Result<(), CniError> {
        let ranges = || sets.iter().flat_map(|set| &set.0).filter(|range| Index::is_mapped(range));
        let index_failed = |error| failed("write the index of", &self.dir)(error);
        if !self.is_fresh() {
            self.index.clear().map_err(index_failed)?;
            let found = self.reservations()?;
            let owned = found.iter().filter_map(|(ip, owner)| Some((owner.as_ref()?, *ip)));
            self.index.adopt(owned).map_err(index_failed)?;
            self.remember()?;
        }
        for range in ranges() {
            if self.index.map(range).is_none() {
                self.index.build_map(range, self.reserved()?.into_iter()).map_err(index_failed)?;
            }
        }
        Ok(())
    }

    fn remember(&self) -> Result<(), CniError> {
        State::of(&self.dir, &self.boot)
            .and_then(|state| self.index.write_state(&state))
            .map_err(failed("write the index of", &self.dir))
    }

    /// Releases what was reserved before this boot: no container has survived it.
    fn release_earlier_boots(&self) -> Result<(), CniError> {
        let remember = || self.index.write_boot(&self.boot).map_err(failed("write the index of", &self.dir));
        match self.index.boot() {
            Some(boot) if boot == self.boot => return Ok(()),
            _ if self.boot.is_empty() => return Ok(()),
            // Never used by us: what others have put there, they did in whichever boot.
            None => return remember(),
            // Another boot's, or torn by a power cut.
            Some(_) => {}
        }
        let booted = boot_time();
        for ip in self.reserved()? {
            let path = self.path_of(ip);
            let before =
                std::fs::metadata(&path).is_ok_and(|meta| booted.is_some_and(|booted| meta.mtime() < booted));
            if before {
                tracing::info!(%ip, folder = %self.dir.display(), "released a reservation of an earlier boot");
                ignore_absent(std::fs::remove_file(&path)).map_err(failed("release", &path))?;
            }
        }
        self.index.clear().map_err(failed("clear the index of", &self.dir))?;
        remember()
    }

    /// The addresses of an owner.
    pub fn owned(&self, owner: &Owner, sets: &[RangeSet]) -> Result<Vec<IpAddr>, CniError> {
        self.refresh(sets)?;
        let mut found = self.index.addresses(owner);
        // Files of old name the container only.
        found.extend(
            self.index.addresses(&Owner { container: owner.container.clone(), ifname: String::new() }),
        );
        found.retain(|ip| self.owner_of(*ip).is_some_and(|holder| owner.owns(&holder)));
        Ok(found)
    }

    /// Reserves one address of each set for the owner: the wanted ones where given.
    pub fn reserve(
        &self,
        owner: &Owner,
        sets: &[RangeSet],
        wanted: &[Option<IpAddr>],
    ) -> Result<Vec<IpAddr>, CniError> {
        let held = self.owned(owner, sets)?;
        for set in sets {
            if let Some(ip) = held.iter().find(|ip| set.range_of(**ip).is_some()) {
                return Err(CniError::internal(format!(
                    "{ip} has been allocated to {}, duplicate allocation is not allowed",
                    owner.container
                )));
            }
        }
        let mut taken = Vec::new();
        for (number, set) in sets.iter().enumerate() {
            let one = match wanted.get(number).copied().flatten() {
                Some(ip) => self.reserve_exact(owner, set, ip, &taken),
                None => self.reserve_next(owner, number, set, &taken),
            };
            match one {
                Ok(ip) => taken.push(ip),
                Err(error) => {
                    for ip in taken {
                        if let Err(undo) = self.free(ip, sets) {
                            tracing::warn!(%ip, error = %undo, "a reservation could not be undone");
                        }
                    }
                    self.remember()?;
                    return Err(error.context(&format!("failed to allocate for range {number}")));
                }
            }
        }
        self.remember()?;
        Ok(taken)
    }

    fn reserve_exact(
        &self,
        owner: &Owner,
        set: &RangeSet,
        ip: IpAddr,
        before: &[IpAddr],
    ) -> Result<IpAddr, CniError> {
        let range = set
            .range_of(ip)
            .ok_or_else(|| CniError::internal(format!("requested IP {ip} is not in range set {set}")))?;
        if ip == range.gateway {
            return Err(CniError::internal(format!("requested ip {ip} is subnet's gateway")));
        }
        if self.claim(owner, range, ip, before)? {
            Ok(ip)
        } else {
            Err(CniError::internal(format!("requested IP address {ip} is not available in range set {set}")))
        }
    }

    fn reserve_next(
        &self,
        owner: &Owner,
        number: usize,
        set: &RangeSet,
        before: &[IpAddr],
    ) -> Result<IpAddr, CniError> {
        let last_path = self.dir.join(format!("last_reserved_ip.{number}"));
        let last: Option<IpAddr> =
            std::fs::read_to_string(&last_path).ok().and_then(|text| text.trim().parse().ok());
        for (range, from, to) in search_order(set, last) {
            let mut at = from;
            while let Some(ip) = self.next_free(range, at).filter(|ip| to_number(*ip) <= to) {
                if self.claim(owner, range, ip, before)? {
                    std::fs::write(&last_path, ip.to_string()).map_err(failed("write", &last_path))?;
                    return Ok(ip);
                }
                // Somebody else holds it and the map did not know: teach the map and go on.
                self.index.mark(range, ip, true).map_err(failed("write the index of", &self.dir))?;
                let Some(next) = to_number(ip).checked_add(1) else { break };
                at = next;
            }
        }
        let size: u128 = set.0.iter().map(Range::size).sum();
        Err(CniError::internal(format!(
            "no IP addresses available in range set: {set} ({} of {size} in use)",
            self.in_use(set)
        )))
    }

    fn next_free(&self, range: &Range, from: u128) -> Option<IpAddr> {
        if let Some(bits) = self.index.map(range) {
            return bits.next_free(range, from, range.gateway);
        }
        let v6 = range.start.is_ipv6();
        (from..=to_number(range.end))
            .map(|number| from_number(number, v6))
            .find(|ip| *ip != range.gateway && !self.path_of(*ip).exists())
    }

    /// How many addresses of a set cannot be given out, its gateways among them.
    pub fn in_use(&self, set: &RangeSet) -> u128 {
        let per_range = set.0.iter().map(|range| {
            let gateway_free = range.contains(range.gateway) && !self.path_of(range.gateway).exists();
            self.index.map(range).map_or(0, |bits| bits.taken()) + u128::from(gateway_free)
        });
        per_range.sum()
    }

    /// Whether an address of the set can still be given out.
    pub fn has_room(&self, set: &RangeSet) -> Result<bool, CniError> {
        self.refresh(std::slice::from_ref(set))?;
        Ok(set.0.iter().any(|range| self.next_free(range, to_number(range.start)).is_some()))
    }

    /// Writes the owner's record under the address; false when it is taken.
    fn claim(&self, owner: &Owner, range: &Range, ip: IpAddr, before: &[IpAddr]) -> Result<bool, CniError> {
        let index_failed = |error| failed("write the index of", &self.dir)(error);
        let aside = self.index.aside();
        let path = self.path_of(ip);
        let written = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&aside);
        written
            .and_then(|mut file| file.write_all(owner.record().as_bytes()))
            .map_err(failed("write", &aside))?;
        // The index first: it is only believed when the folder agrees.
        let mut all = before.to_vec();
        all.push(ip);
        self.index.write_owner(owner, &all).map_err(index_failed)?;
        match rustix::fs::renameat_with(CWD, &aside, CWD, &path, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST) => return Ok(false),
            Err(error) => return Err(failed("reserve", &path)(error.into())),
        }
        self.index.mark(range, ip, true).map_err(index_failed)?;
        Ok(true)
    }

    fn free(&self, ip: IpAddr, sets: &[RangeSet]) -> Result<(), CniError> {
        let path = self.path_of(ip);
        ignore_absent(std::fs::remove_file(&path)).map_err(failed("release", &path))?;
        for range in sets.iter().flat_map(|set| &set.0) {
            // Ignored: without a map there is nothing to unmark, and the next change rebuilds it.
            self.index.mark(range, ip, false).ok();
        }
        Ok(())
    }

    /// Releases everything an owner has; tells what that was.
    pub fn release(&self, owner: &Owner, sets: &[RangeSet]) -> Result<Vec<IpAddr>, CniError> {
        let held = self.owned(owner, sets)?;
        for ip in &held {
            self.free(*ip, sets)?;
        }
        self.index.remove_owner(owner).map_err(failed("write the index of", &self.dir))?;
        if !held.is_empty() {
            self.remember()?;
        }
        Ok(held)
    }

    /// Releases every reservation that `keep` does not want, and those without owner; tells which.
    pub fn sweep(&self, keep: impl Fn(&Owner) -> bool) -> Result<Vec<(IpAddr, Option<Owner>)>, CniError> {
        let mut released = Vec::new();
        for (ip, owner) in self.reservations()? {
            if owner.as_ref().is_some_and(&keep) {
                continue;
            }
            let path = self.path_of(ip);
            ignore_absent(std::fs::remove_file(&path)).map_err(failed("release", &path))?;
            released.push((ip, owner));
        }
        // With it goes what killed processes have left in the index.
        self.index.clear().map_err(failed("clear the index of", &self.dir))?;
        Ok(released)
    }

    /// Gives the lock up early.
    pub fn unlock(self) {
        drop(self.lock);
    }
}

/// Where to look for a free address, in order: after the last one given, to its range's end, then round.
fn search_order(set: &RangeSet, last: Option<IpAddr>) -> Vec<(&Range, u128, u128)> {
    fn whole(range: &Range) -> (&Range, u128, u128) {
        (range, to_number(range.start), to_number(range.end))
    }
    let Some((at, last)) =
        last.and_then(|last| Some((set.0.iter().position(|range| range.contains(last))?, last)))
    else {
        return set.0.iter().map(whole).collect();
    };
    let home = &set.0[at];
    let number = to_number(last);
    let mut order = vec![(home, number.saturating_add(1), to_number(home.end))];
    order.extend(set.0[at + 1..].iter().chain(&set.0[..at]).map(whole));
    order.push((home, to_number(home.start), number));
    order
}

/// When this boot began, in seconds of the wall clock.
fn boot_time() -> Option<i64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn take(lock: &File, path: &Path) -> Result<(), CniError> {
    let deadline = Instant::now() + LOCK_WITHIN;
    let mut pause = Duration::from_micros(50);
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(std::fs::TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(2));
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(CniError::new(
                    code::TRY_AGAIN,
                    format!("another process has held {} for {} s", path.display(), LOCK_WITHIN.as_secs()),
                ));
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(failed("lock", path)(error)),
        }
    }
}
