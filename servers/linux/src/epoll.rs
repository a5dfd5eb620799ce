//! Instances of `epoll`: which instance watches which open file descriptions, and for which events.
//!
//! Each instance has a ready list: the watches that *may* be ready. An event at a watched description puts its watch
//! into that list ([`Epolls::happened`]). `epoll_wait` looks at this list only, and leaves a watch that is still ready
//! in it, unless the watch is edge-triggered. So the cost of waiting does not grow with the number of watches, and an
//! edge is what it is in Linux: something has happened since the last report. A few descriptions become ready without
//! an event: timers; signals, whose readiness depends on the task that waits; instances that watch such descriptions.
//! Their watches are *asked* (polled) at each wait ([`crate::calls::epoll`]).
//!
//! A watch does not keep a description open: it ends with the description.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::RefCell;
use linux_raw_sys::general as linux;

use crate::errno::{Errno, EEXIST, EINVAL, ELOOP, ENOENT, ENOSPC};
use crate::process::{Counter, Description, Kind, Shared};
use crate::system::{Key, Payer, System, Thing};

/// All event bits.
pub const ALL: u32 = 0xffff;
/// Events that are always reported, whether the caller asked for them or not.
pub const ALWAYS: u32 = linux::EPOLLERR | linux::EPOLLHUP;
/// The watch is disabled after one report.
pub const ONESHOT: u32 = linux::EPOLLONESHOT;
/// The watch is edge-triggered.
pub const EDGE: u32 = linux::EPOLLET;
/// An event need not wake every instance that watches the description; here it does.
pub const EXCLUSIVE: u32 = linux::EPOLLEXCLUSIVE;
/// The bits of `events` that are not events.
const PRIVATE: u32 = ONESHOT | EDGE | EXCLUSIVE | linux::EPOLLWAKEUP;
/// Most links of a chain of instances that watch one another.
const DEEPEST: usize = 6;

/// A file description that an instance watches.
#[derive(Clone, Debug)]
pub struct Watch {
    key: Key,
    /// The descriptor that `epoll_ctl` named.
    pub fd: u32,
    /// The watched description.
    pub description: Weak<RefCell<Description>>,
    /// Event bits, and the flags that are not events.
    pub events: u32,
    /// The caller's word, which is returned with each report.
    pub data: u64,
    /// The place in the instance's ready list.
    listed: Option<i64>,
    /// For a watch that is asked: the value of its last answer ([`Epolls::answers`]), which differs after each event.
    pub seen: u64,
}

impl Watch {
    /// The address of the description. No other description gets this address while the watch holds its `Weak`.
    fn address(&self) -> usize {
        Weak::as_ptr(&self.description) as usize
    }

    /// Whether descriptions of this kind become ready without an event, so that their watches have to be asked.
    #[must_use]
    fn is_asked(kind: &Kind) -> bool {
        matches!(
            kind,
            Kind::Signals { .. }
                | Kind::Epoll { .. }
                | Kind::Counter {
                    counter: Counter::Timer { .. },
                    ..
                }
        )
    }
}

/// An instance of `epoll`.
#[derive(Clone, Debug, Default)]
struct Instance {
    payer: Payer,
    watches: BTreeMap<u64, Watch>,
    /// The watches by descriptor and address of the description.
    names: BTreeMap<(u32, usize), u64>,
    /// The ready list: watches by place.
    listed: BTreeMap<i64, u64>,
    /// The watches that are asked at each wait.
    asked: BTreeSet<u64>,
}

/// All instances.
#[derive(Clone, Debug, Default)]
pub struct Epolls {
    all: BTreeMap<u64, Instance>,
    /// Key of the watched description, identity of the instance, number of the watch.
    watchers: BTreeSet<(Key, u64, u64)>,
    /// The same by the address of the description.
    descriptions: BTreeSet<(usize, u64, u64)>,
    /// The last number given to a watch.
    last: u64,
}

/// The event bits of `epoll_ctl` as a watch stores them.
const fn kept(events: u32) -> u32 {
    events | ALWAYS
}

/// The event bits that make a watch ready. Wakers report `EPOLLIN` and `EPOLLOUT` only, which stand for the band events
/// too.
const fn told_of(events: u32) -> u32 {
    let mut told = events;
    if events & (linux::EPOLLRDNORM | linux::EPOLLRDBAND) != 0 {
        told |= linux::EPOLLIN;
    }
    if events & (linux::EPOLLWRNORM | linux::EPOLLWRBAND) != 0 {
        told |= linux::EPOLLOUT;
    }
    told
}

impl Epolls {
    /// Reports events of the descriptions with this key: lists the watches that ask for one of them. Each instance that
    /// gets a listed watch is added to `woken` and counts as an event for the instances that watch it.
    pub fn happened(&mut self, key: Key, events: u32, woken: &mut Vec<(Key, u32)>) {
        if self.watchers.is_empty() {
            return;
        }
        let mut news = Vec::from([(key, events)]);
        let mut told = BTreeSet::new();
        while let Some((key, events)) = news.pop() {
            for (_, epoll, watch) in self.watchers.range((key, 0, 0)..=(key, u64::MAX, u64::MAX)) {
                let Some(instance) = self.all.get_mut(epoll) else {
                    continue;
                };
                if instance.list(*watch, events) && told.insert(*epoll) {
                    woken.push((Key::Epoll(*epoll), linux::EPOLLIN));
                    news.push((Key::Epoll(*epoll), linux::EPOLLIN));
                }
            }
        }
    }

    /// Removes a watch of an instance from the indexes.
    fn forget(&mut self, epoll: u64, id: u64, watch: &Watch) {
        self.watchers.remove(&(watch.key, epoll, id));
        self.descriptions.remove(&(watch.address(), epoll, id));
    }

    /// The watches of an instance that have to be asked.
    #[must_use]
    pub fn asked(&self, epoll: u64) -> Vec<u64> {
        let instance = self.all.get(&epoll);
        instance.map_or_else(Vec::new, |i| i.asked.iter().copied().collect())
    }

    /// A watch of an instance and its description, if the description is still open.
    #[must_use]
    pub fn watch(&self, epoll: u64, watch: u64) -> Option<(&Watch, Shared<Description>)> {
        let watch = self.all.get(&epoll)?.watches.get(&watch)?;
        Some((watch, watch.description.upgrade()?))
    }

    /// A watch that is asked answers that it is ready. `value` differs from the last answer's if something has happened
    /// since. Returns whether the watch was listed: always if it is level-triggered, else only for a new value.
    pub fn answers(&mut self, epoll: u64, watch: u64, value: u64) -> bool {
        let Some(instance) = self.all.get_mut(&epoll) else {
            return false;
        };
        let is_new = instance.watches.get_mut(&watch).is_some_and(|watch| {
            core::mem::replace(&mut watch.seen, value) != value || watch.events & EDGE == 0
        });
        // Asked descriptions can become readable only. A watch for other events would be listed and dropped at every
        // wait.
        is_new && instance.list(watch, linux::EPOLLIN)
    }

    /// The length of the ready list of an instance.
    #[must_use]
    pub fn listed(&self, epoll: u64) -> usize {
        self.all.get(&epoll).map_or(0, |i| i.listed.len())
    }

    /// Takes the first watch from the ready list.
    pub fn take(&mut self, epoll: u64) -> Option<u64> {
        let instance = self.all.get_mut(&epoll)?;
        let (_, id) = instance.listed.pop_first()?;
        if let Some(watch) = instance.watches.get_mut(&id) {
            watch.listed = None;
        }
        Some(id)
    }

    /// Puts a watch that was taken back into the ready list: at its front (`first`), else at its end.
    pub fn put_back(&mut self, epoll: u64, id: u64, first: bool) {
        if let Some(instance) = self.all.get_mut(&epoll) {
            instance.put(id, first);
        }
    }

    /// A watch that was taken from the ready list has been reported: disables it (one-shot) or lists it again
    /// (level-triggered).
    pub fn told(&mut self, epoll: u64, id: u64) {
        let instance = self.all.get_mut(&epoll);
        let Some(watch) = instance.and_then(|i| i.watches.get_mut(&id)) else {
            return;
        };
        if watch.events & ONESHOT != 0 {
            watch.events &= PRIVATE;
        } else if watch.events & EDGE == 0 {
            self.put_back(epoll, id, false);
        }
    }

    /// The watches of an instance by rising number, each with its position in the ready list.
    #[must_use]
    pub fn watches(&self, epoll: u64) -> Vec<(&Watch, Option<u32>)> {
        let Some(instance) = self.all.get(&epoll) else {
            return Vec::new();
        };
        let places: BTreeMap<u64, u32> = instance.listed.values().copied().zip(0..).collect();
        let watches = instance.watches.iter();
        watches
            .map(|(id, watch)| (watch, places.get(id).copied()))
            .collect()
    }

    /// Length in links of the longest chain of instances below `epoll`, or above it (`up`: instances that watch it);
    /// `None` if `end` is in such a chain. `known` has the results so far, by instance.
    fn depth(
        &self,
        epoll: u64,
        end: u64,
        up: bool,
        known: &mut BTreeMap<u64, usize>,
    ) -> Option<usize> {
        if epoll == end {
            return None;
        }
        if let Some(depth) = known.get(&epoll) {
            return Some(*depth);
        }
        let mut deepest = 0;
        for next in self.neighbours(epoll, up) {
            deepest = deepest.max(1 + self.depth(next, end, up, known)?);
        }
        known.insert(epoll, deepest);
        Some(deepest)
    }

    fn neighbours(&self, epoll: u64, up: bool) -> BTreeSet<u64> {
        if up {
            let key = Key::Epoll(epoll);
            let watchers = self.watchers.range((key, 0, 0)..=(key, u64::MAX, u64::MAX));
            return watchers.map(|(_, epoll, _)| *epoll).collect();
        }
        let asked = self.all.get(&epoll).into_iter().flat_map(|i| &i.asked);
        let inner = asked.filter_map(|id| match self.watch(epoll, *id)?.1.borrow().kind {
            Kind::Epoll { id } => Some(id),
            _ => None,
        });
        inner.collect()
    }
}

impl Instance {
    /// Lists a watch if it asks for one of these events. Returns whether it is in the ready list.
    fn list(&mut self, id: u64, events: u32) -> bool {
        let Some(watch) = self.watches.get(&id) else {
            return false;
        };
        if told_of(watch.events) & events & !PRIVATE == 0 {
            return false;
        }
        self.put(id, false);
        true
    }

    /// Puts a watch at the front (`first`) or at the end of the ready list, unless it is listed already.
    fn put(&mut self, id: u64, first: bool) {
        let end = match first {
            true => self.listed.first_key_value(),
            false => self.listed.last_key_value(),
        };
        let place = end.map_or(0, |(place, _)| if first { place - 1 } else { place + 1 });
        match self.watches.get_mut(&id) {
            Some(watch) if watch.listed.is_none() => watch.listed = Some(place),
            _ => return,
        }
        self.listed.insert(place, id);
    }

    fn remove(&mut self, id: u64) -> Option<Watch> {
        let watch = self.watches.remove(&id)?;
        self.names.remove(&(watch.fd, watch.address()));
        self.asked.remove(&id);
        if let Some(place) = watch.listed {
            self.listed.remove(&place);
        }
        Some(watch)
    }
}

impl System {
    /// Whether there is no instance, and no watch is left over.
    #[cfg(test)]
    pub(crate) fn is_unwatched(&self) -> bool {
        self.epolls.all.is_empty()
            && self.epolls.watchers.is_empty()
            && self.epolls.descriptions.is_empty()
            && self.counted_things(Thing::Watch) == 0
    }

    /// Makes an instance and returns its identity.
    pub fn new_epoll(&mut self, payer: Payer) -> u64 {
        let id = self.new_identity();
        let instance = Instance {
            payer,
            ..Instance::default()
        };
        self.epolls.all.insert(id, instance);
        id
    }

    /// Removes an instance and its watches.
    pub fn forget_epoll(&mut self, epoll: u64) {
        let Some(instance) = self.epolls.all.remove(&epoll) else {
            return;
        };
        for (id, watch) in &instance.watches {
            self.epolls.forget(epoll, *id, watch);
            self.uncount_thing(Thing::Watch, instance.payer);
        }
    }

    /// The description at this address was closed: removes all watches of it. They are not looked up by key, because
    /// one key can have the descriptions of many processes (the console).
    pub fn forget_watches(&mut self, address: usize) {
        let all = (address, 0, 0)..=(address, u64::MAX, u64::MAX);
        let gone: Vec<_> = self.epolls.descriptions.range(all).copied().collect();
        for (_, epoll, id) in gone {
            self.remove_watch(epoll, id);
        }
    }

    fn remove_watch(&mut self, epoll: u64, id: u64) {
        let Some(instance) = self.epolls.all.get_mut(&epoll) else {
            return;
        };
        let payer = instance.payer;
        if let Some(watch) = instance.remove(id) {
            self.epolls.forget(epoll, id, &watch);
            self.uncount_thing(Thing::Watch, payer);
        }
    }

    /// Has an instance watch a description; returns the number of the watch. Errors: `EINVAL` (no such instance),
    /// `EPERM` (not pollable), `EEXIST`, `ELOOP`, `ENOSPC`.
    pub fn watch(
        &mut self,
        epoll: u64,
        fd: u32,
        description: &Shared<Description>,
        (events, data): (u32, u64),
    ) -> Result<u64, Errno> {
        let (key, is_asked, inner) = {
            let kind = &description.borrow().kind;
            let key = kind.key().ok_or(crate::errno::EPERM)?;
            let inner = match kind {
                Kind::Epoll { id } => Some(*id),
                _ => None,
            };
            (key, Watch::is_asked(kind), inner)
        };
        let name = (fd, Rc::as_ptr(description) as usize);
        let instance = self.epolls.all.get(&epoll).ok_or(EINVAL)?;
        if instance.names.contains_key(&name) {
            return Err(EEXIST);
        }
        if let Some(inner) = inner {
            let depth = |from, to, up| self.epolls.depth(from, to, up, &mut BTreeMap::new());
            let (down, up) = (depth(inner, epoll, false), depth(epoll, inner, true));
            let depth = down.zip(up).map(|(down, up)| down + up);
            if depth.is_none_or(|depth| depth >= DEEPEST) {
                return Err(ELOOP);
            }
        }
        let payer = instance.payer;
        self.count_thing(Thing::Watch, payer).map_err(|_| ENOSPC)?;
        self.epolls.last += 1;
        let id = self.epolls.last;
        if let Some(instance) = self.epolls.all.get_mut(&epoll) {
            let watch = Watch {
                key,
                fd,
                description: Rc::downgrade(description),
                events: kept(events),
                data,
                listed: None,
                seen: 0,
            };
            instance.watches.insert(id, watch);
            instance.names.insert(name, id);
            if is_asked {
                instance.asked.insert(id);
            }
        }
        self.epolls.watchers.insert((key, epoll, id));
        self.epolls.descriptions.insert((name.1, epoll, id));
        Ok(id)
    }

    /// The number of the watch of this descriptor and description. Errors: `EINVAL` (no such instance), `ENOENT`.
    fn find_watch(
        &self,
        epoll: u64,
        fd: u32,
        description: &Shared<Description>,
    ) -> Result<u64, Errno> {
        let name = (fd, Rc::as_ptr(description) as usize);
        let instance = self.epolls.all.get(&epoll).ok_or(EINVAL)?;
        instance.names.get(&name).copied().ok_or(ENOENT)
    }

    /// Ends the watch of a description. Errors: `EINVAL` (no such instance), `ENOENT`.
    pub fn unwatch(
        &mut self,
        epoll: u64,
        fd: u32,
        description: &Shared<Description>,
    ) -> Result<(), Errno> {
        let id = self.find_watch(epoll, fd, description)?;
        self.remove_watch(epoll, id);
        Ok(())
    }

    /// Changes the events and the data of a watch; returns its number. Errors: `ENOENT`; `EINVAL` (no such instance, or
    /// an exclusive watch).
    pub fn change_watch(
        &mut self,
        epoll: u64,
        fd: u32,
        description: &Shared<Description>,
        (events, data): (u32, u64),
    ) -> Result<u64, Errno> {
        let id = self.find_watch(epoll, fd, description)?;
        let instance = self.epolls.all.get_mut(&epoll).ok_or(EINVAL)?;
        let watch = instance.watches.get_mut(&id).ok_or(ENOENT)?;
        if watch.events & EXCLUSIVE != 0 {
            return Err(EINVAL);
        }
        watch.events = kept(events);
        watch.data = data;
        Ok(id)
    }

    /// Lists a watch that may be ready, and wakes the tasks that wait at its instance.
    pub fn may_be_ready(&mut self, epoll: u64, id: u64) {
        let instance = self.epolls.all.get_mut(&epoll);
        if instance.is_some_and(|instance| instance.list(id, ALL)) {
            self.wake_for(Key::Epoll(epoll), linux::EPOLLIN);
        }
    }

    /// Restores the events and the last answer of a watch from a checkpoint image.
    pub fn set_watch(&mut self, epoll: u64, id: u64, events: u32, seen: u64) {
        let instance = self.epolls.all.get_mut(&epoll);
        if let Some(watch) = instance.and_then(|i| i.watches.get_mut(&id)) {
            (watch.events, watch.seen) = (events, seen);
        }
    }
}
