//! Reservations on disk, in the reference plugin's folder: one file per address, its content the owner.
//!
//! Four steps, as a pod's address is given: lock the folder, select the next free address, record the owner, return. The
//! record appears complete or not at all (written aside, then renamed), so a kill leaves no file without owner. Nothing
//! is synced: after a power cut the boot id differs, and what earlier boots reserved is released.

use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};

use super::boot::own_boot;
use super::free_addresses::{self, Bits};
use super::index::{Index, State, ignore_absent, read_small, rewrite};
use super::lock;
use super::owners::{Owner, Owners};
use super::ranges::{Range, RangeSet, from_number, to_number};
use crate::spec::error::{CniError, code};
use crate::spec::request::is_identifier;

/// How ADD and STATUS begin to say that a range set is full; the words are the reference plugin's.
pub const EXHAUSTED: &str = "no IP addresses available in range set";

/// The reservations of one network, locked.
pub struct Store {
    dir: PathBuf,
    index: Index,
    boot: &'static str,
    lock: File,
    state: RefCell<Option<State>>,
    open: RefCell<Open>,
    /// Files of the folder read or listed so far: what constant cost is counted in.
    touched: Cell<u64>,
}

/// Files of the index that are open.
#[derive(Default)]
struct Open {
    maps: Vec<(IpAddr, IpAddr, Bits)>,
    owners: Option<Owners>,
}

fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CniError {
    let path = path.display().to_string();
    move |error| CniError::new(code::IO, format!("{attempt} {path}: {error}"))
}

impl Store {
    /// Opens and locks the reservations of a network.
    pub fn open(data_dir: &Path, network: &str) -> Result<Store, CniError> {
        if !is_identifier(network) {
            return Err(CniError::config(format!("network name {network:?} cannot be a folder")));
        }
        let dir = data_dir.join(network);
        let lock_path = dir.join("lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let lock = match options.open(&lock_path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o755)
                    .create(&dir)
                    .map_err(failed("create reservations folder", &dir))?;
                options.open(&lock_path)
            }
            other => other,
        };
        let lock = lock.map_err(failed("open", &lock_path))?;
        lock::take(&lock, &lock_path)?;
        let index = Index::of(data_dir, network);
        let state = index.state();
        let known = state.as_ref().is_some_and(|state| state.boot == own_boot());
        let store = Store {
            dir,
            index,
            boot: own_boot(),
            lock,
            state: RefCell::new(state),
            open: RefCell::default(),
            touched: Cell::new(0),
        };
        if !known {
            store.index.create().map_err(failed("make the index beside", &store.dir))?;
            store.release_earlier_boots()?;
        }
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
        self.state.borrow().as_ref().is_some_and(|state| {
            state.boot == self.boot && State::mtime(&self.dir).is_ok_and(|now| now == state.mtime)
        })
    }

    /// Rebuilds the index when somebody else has changed the folder.
    fn refresh(&self, sets: &[RangeSet]) -> Result<(), CniError> {
        let index_failed = |error| failed("write the index of", &self.dir)(error);
        if !self.is_fresh() {
            self.forget()?;
            let found = self.reservations()?;
            let owned = found.iter().filter_map(|(ip, owner)| Some((owner.as_ref()?, *ip)));
            let adopted = self.index.adopt(owned).map_err(index_failed)?;
            let boot = self.boot.to_owned();
            self.state.replace(Some(State { boot, mtime: (0, 0), adopted, spares: 0 }));
            self.remember()?;
        }
        for range in sets.iter().flat_map(|set| &set.0).filter(|range| free_addresses::is_mapped(range)) {
            if self.with_map(range, |_| Ok(()))?.is_none() {
                self.index.build_map(range, self.reserved()?.into_iter()).map_err(index_failed)?;
            }
        }
        Ok(())
    }

    /// Throws the index away.
    fn forget(&self) -> Result<(), CniError> {
        self.state.replace(None);
        self.open.replace(Open::default());
        self.index.clear().map_err(failed("clear the index of", &self.dir))
    }

    /// Says that the index agrees with the folder as it is now.
    fn remember(&self) -> Result<(), CniError> {
        let mut state = self.state.borrow_mut();
        let written = match state.as_mut() {
            None => self.index.forget_state(),
            Some(state) => State::mtime(&self.dir).and_then(|mtime| {
                state.mtime = mtime;
                self.index.write_state(state)
            }),
        };
        written.map_err(failed("write the index of", &self.dir))
    }

    /// Does something with the bits of a range, if it has any.
    fn with_map<T>(
        &self,
        range: &Range,
        work: impl FnOnce(&Bits) -> io::Result<T>,
    ) -> Result<Option<T>, CniError> {
        let mut open = self.open.borrow_mut();
        if !open.maps.iter().any(|(start, end, _)| (*start, *end) == (range.start, range.end)) {
            open.maps.extend(self.index.map(range).map(|map| (range.start, range.end, map)));
        }
        let found = open.maps.iter().find(|(start, end, _)| (*start, *end) == (range.start, range.end));
        found.map(|(.., map)| work(map)).transpose().map_err(failed("use the index of", &self.dir))
    }

    fn with_owners<T>(&self, work: impl FnOnce(&Owners) -> io::Result<T>) -> Result<T, CniError> {
        let mut open = self.open.borrow_mut();
        let done = match &open.owners {
            Some(owners) => work(owners),
            None => self.index.owners().and_then(|owners| work(open.owners.insert(owners))),
        };
        done.map_err(failed("use the index of", &self.dir))
    }

    fn mark(&self, range: &Range, ip: IpAddr, taken: bool) -> Result<(), CniError> {
        self.with_map(range, |bits| bits.mark(range, ip, taken)).map(|_| ())
    }

    fn spares(&self) -> u32 {
        self.state.borrow().as_ref().map_or(0, |state| state.spares)
    }

    fn set_spares(&self, spares: u32) {
        if let Some(state) = self.state.borrow_mut().as_mut() {
            state.spares = spares;
        }
    }

    /// Releases what was reserved before this boot: no container has survived it.
    fn release_earlier_boots(&self) -> Result<(), CniError> {
        let remember = || self.index.write_boot(self.boot).map_err(failed("write the index of", &self.dir));
        match self.index.boot() {
            Some(boot) if boot == self.boot => return Ok(()),
            _ if self.boot.is_empty() => return Ok(()),
            // Never used by us: what others have put there, they did in whichever boot.
            None => return remember(),
            // Another boot's, or torn by a power cut.
            Some(_) => {}
        }
        let booted = podwire_linux::boot::began();
        for ip in self.reserved()? {
            let path = self.path_of(ip);
            let before =
                std::fs::metadata(&path).is_ok_and(|meta| booted.is_some_and(|booted| meta.mtime() < booted));
            if before {
                tracing::info!(%ip, folder = %self.dir.display(), "released a reservation of an earlier boot");
                ignore_absent(std::fs::remove_file(&path)).map_err(failed("release", &path))?;
            }
        }
        self.forget()?;
        remember()
    }

    /// The addresses of an owner.
    pub fn owned(&self, owner: &Owner, sets: &[RangeSet]) -> Result<Vec<IpAddr>, CniError> {
        self.refresh(sets)?;
        let mut found = self.with_owners(|owners| owners.find(owner))?;
        if self.state.borrow().as_ref().is_some_and(|state| state.adopted) {
            found.extend(self.index.adopted(owner));
            // Files of old name the container only.
            found.extend(
                self.index.adopted(&Owner { container: owner.container.clone(), ifname: String::new() }),
            );
        }
        found.sort_unstable();
        found.dedup();
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
                Some(ip) => self.reserve_exact(owner, set, ip),
                None => self.reserve_next(owner, number, set),
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

    fn reserve_exact(&self, owner: &Owner, set: &RangeSet, ip: IpAddr) -> Result<IpAddr, CniError> {
        let range = set
            .range_of(ip)
            .ok_or_else(|| CniError::internal(format!("requested IP {ip} is not in range set {set}")))?;
        if ip == range.gateway {
            return Err(CniError::internal(format!("requested ip {ip} is subnet's gateway")));
        }
        if self.claim(owner, range, ip)? {
            Ok(ip)
        } else {
            Err(CniError::internal(format!("requested IP address {ip} is not available in range set {set}")))
        }
    }

    fn reserve_next(&self, owner: &Owner, number: usize, set: &RangeSet) -> Result<IpAddr, CniError> {
        let last_path = self.dir.join(format!("last_reserved_ip.{number}"));
        let last: Option<IpAddr> = read_small(&last_path).ok().and_then(|text| text.trim().parse().ok());
        for (range, from, to) in search_order(set, last) {
            let mut at = from;
            while let Some(ip) = self.next_free(range, at)?.filter(|ip| to_number(*ip) <= to) {
                if self.claim(owner, range, ip)? {
                    rewrite(&last_path, ip.to_string().as_bytes()).map_err(failed("write", &last_path))?;
                    return Ok(ip);
                }
                // Somebody else holds it and the map did not know: teach the map and go on.
                self.mark(range, ip, true)?;
                let Some(next) = to_number(ip).checked_add(1) else { break };
                at = next;
            }
        }
        let size: u128 = set.0.iter().map(Range::size).sum();
        Err(CniError::internal(format!("{EXHAUSTED}: {set} ({} of {size} in use)", self.in_use(set)?)))
    }

    fn next_free(&self, range: &Range, from: u128) -> Result<Option<IpAddr>, CniError> {
        if let Some(found) = self.with_map(range, |bits| bits.next_free(range, from, range.gateway))? {
            return Ok(found);
        }
        let v6 = range.start.is_ipv6();
        Ok((from..=to_number(range.end))
            .map(|number| from_number(number, v6))
            .find(|ip| *ip != range.gateway && !self.path_of(*ip).exists()))
    }

    /// How many addresses of a set cannot be given out, its gateways among them.
    pub fn in_use(&self, set: &RangeSet) -> Result<u128, CniError> {
        let mut sum = 0;
        for range in &set.0 {
            let gateway_free = range.contains(range.gateway) && !self.path_of(range.gateway).exists();
            sum += self.with_map(range, Bits::taken)?.unwrap_or(0) + u128::from(gateway_free);
        }
        Ok(sum)
    }

    /// Whether an address of the set can still be given out.
    pub fn has_room(&self, set: &RangeSet) -> Result<bool, CniError> {
        self.refresh(std::slice::from_ref(set))?;
        for range in &set.0 {
            if self.next_free(range, to_number(range.start))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes the owner's record under the address; false when it is taken.
    fn claim(&self, owner: &Owner, range: &Range, ip: IpAddr) -> Result<bool, CniError> {
        let path = self.path_of(ip);
        let (prepared, left) = self
            .index
            .prepare(self.spares(), &owner.record())
            .map_err(failed("write a record into", self.index.dir()))?;
        // The index first: it is only believed when the folder agrees.
        let entered = self.with_owners(|owners| owners.insert(owner, ip))?;
        match rustix::fs::renameat_with(CWD, &prepared, CWD, &path, RenameFlags::NOREPLACE) {
            Ok(()) => self.set_spares(left),
            Err(rustix::io::Errno::EXIST) => return Ok(false),
            Err(error) => return Err(failed("reserve", &path)(error.into())),
        }
        if !entered {
            // No room for another owner: whoever comes next builds the index anew.
            self.state.replace(None);
        }
        self.mark(range, ip, true)?;
        Ok(true)
    }

    fn free(&self, ip: IpAddr, sets: &[RangeSet]) -> Result<(), CniError> {
        let path = self.path_of(ip);
        let spares = self.index.retire(&path, self.spares()).map_err(failed("release", &path))?;
        self.set_spares(spares);
        for range in sets.iter().flat_map(|set| &set.0) {
            if self.mark(range, ip, false).is_err() {
                // It is released whatever the index says, which whoever comes next builds anew.
                self.state.replace(None);
            }
        }
        Ok(())
    }

    /// Releases everything an owner has; tells what that was.
    pub fn release(&self, owner: &Owner, sets: &[RangeSet]) -> Result<Vec<IpAddr>, CniError> {
        let held = self.owned(owner, sets)?;
        for ip in &held {
            self.free(*ip, sets)?;
        }
        if !held.is_empty() {
            self.with_owners(|owners| owners.remove(owner))?;
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
        self.forget()?;
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
