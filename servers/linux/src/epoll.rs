//! Instances of `epoll`: who watches which open file descriptions for what.
//!
//! Each instance has a list of those that *may* be ready. Something that happens to what is watched puts the watch into that
//! list ([`Epolls::happened`]); who waits looks at the list only, and leaves in it what is still ready, unless it is
//! watched for edges. So waiting does not take longer the more is watched, and an edge is what it is in Linux: something
//! has happened since. A few things become ready without anybody's doing (a timer; signals, which are other ones for each
//! task; instances that watch such): they are *asked* at each wait ([`crate::calls::epoll`]).
//!
//! A watch does not keep a description open. What is nobody's any more is not watched any more.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::RefCell;
use linux_raw_sys::general as linux;

use crate::errno::{Errno, EEXIST, EINVAL, ELOOP, ENOENT, ENOSPC};
use crate::process::{Counter, Description, Kind, Shared};
use crate::system::{Key, Payer, System, Thing};

/// All events.
pub const ALL: u32 = 0xffff;
/// What is always told of.
pub const ALWAYS: u32 = linux::EPOLLERR | linux::EPOLLHUP;
/// It is told of once.
pub const ONESHOT: u32 = linux::EPOLLONESHOT;
/// Only when something has happened is it told of.
pub const EDGE: u32 = linux::EPOLLET;
/// Not all who wait need to be told.
pub const EXCLUSIVE: u32 = linux::EPOLLEXCLUSIVE;
/// What is no event.
const PRIVATE: u32 = ONESHOT | EDGE | EXCLUSIVE | linux::EPOLLWAKEUP;
/// Most instances that watch one another in a row.
const DEEPEST: usize = 6;

/// Something that is watched.
#[derive(Clone, Debug)]
pub struct Watch {
    key: Key,
    /// The descriptor by which it was named.
    pub fd: u32,
    /// What is watched.
    pub description: Weak<RefCell<Description>>,
    /// For which events, and how.
    pub events: u32,
    /// What is said of it.
    pub data: u64,
    /// Its place in the list of those that may be ready.
    listed: Option<i64>,
    /// When it was told of last, in a way that is different each time, for what is asked.
    pub seen: u64,
}

impl Watch {
    /// The address of the description, which no other one has as long as it is watched.
    fn address(&self) -> usize {
        Weak::as_ptr(&self.description) as usize
    }

    /// Whether it becomes ready without anybody's doing.
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

/// An instance.
#[derive(Clone, Debug, Default)]
struct Instance {
    payer: Payer,
    watches: BTreeMap<u64, Watch>,
    /// The watches by descriptor and address of the description.
    names: BTreeMap<(u32, usize), u64>,
    /// Those that may be ready, by their places.
    listed: BTreeMap<i64, u64>,
    /// Those that are asked.
    asked: BTreeSet<u64>,
}

/// All instances.
#[derive(Clone, Debug, Default)]
pub struct Epolls {
    all: BTreeMap<u64, Instance>,
    /// What is watched, by which instance, and the number of the watch.
    watchers: BTreeSet<(Key, u64, u64)>,
    /// The same, by the address of the description.
    descriptions: BTreeSet<(usize, u64, u64)>,
    /// The last number of a watch.
    last: u64,
}

/// The events of a call, as they are kept.
const fn kept(events: u32) -> u32 {
    events | ALWAYS
}

/// By which events somebody hears of what he watches for: what happens is told of by the events without bands.
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
    /// What has this key may be ready for these events. Instances that may be ready then are noted.
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

    /// A watch of an instance is gone.
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

    /// A watch of an instance, and the description, if it is still somebody's.
    #[must_use]
    pub fn watch(&self, epoll: u64, watch: u64) -> Option<(&Watch, Shared<Description>)> {
        let watch = self.all.get(&epoll)?.watches.get(&watch)?;
        Some((watch, watch.description.upgrade()?))
    }

    /// A watch that is asked says that it is ready, with a value that is another one when something has happened since.
    /// Whether that is news.
    pub fn answers(&mut self, epoll: u64, watch: u64, value: u64) -> bool {
        let Some(instance) = self.all.get_mut(&epoll) else {
            return false;
        };
        let is_new = instance.watches.get_mut(&watch).is_some_and(|watch| {
            core::mem::replace(&mut watch.seen, value) != value || watch.events & EDGE == 0
        });
        // What is asked can be read, and nothing else: who watches for something else would look for ever.
        is_new && instance.list(watch, linux::EPOLLIN)
    }

    /// How many watches of an instance may be ready.
    #[must_use]
    pub fn listed(&self, epoll: u64) -> usize {
        self.all.get(&epoll).map_or(0, |i| i.listed.len())
    }

    /// Takes the first watch of those that may be ready.
    pub fn take(&mut self, epoll: u64) -> Option<u64> {
        let instance = self.all.get_mut(&epoll)?;
        let (_, id) = instance.listed.pop_first()?;
        if let Some(watch) = instance.watches.get_mut(&id) {
            watch.listed = None;
        }
        Some(id)
    }

    /// Puts back what was taken: at the end, or (`first`) where it was.
    pub fn put_back(&mut self, epoll: u64, id: u64, first: bool) {
        if let Some(instance) = self.all.get_mut(&epoll) {
            instance.put(id, first);
        }
    }

    /// A watch has been told of, and was taken for that.
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

    /// The watches of an instance in their order, and their places in the list of those that may be ready.
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

    /// How many instances an instance reaches one behind the other; `None` if `end` is one of them. `up`: those that watch
    /// it. `known` are those that were looked at.
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
    /// Puts a watch into the list, if it is for one of these events: whether it is in it now.
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

    /// Puts a watch at the end of the list, or at its beginning, if it is not in it.
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
    /// Whether there is no instance, and nothing is left of any.
    #[cfg(test)]
    pub(crate) fn is_unwatched(&self) -> bool {
        self.epolls.all.is_empty()
            && self.epolls.watchers.is_empty()
            && self.epolls.descriptions.is_empty()
            && self.counted_things(Thing::Watch) == 0
    }

    /// A new instance.
    pub fn new_epoll(&mut self, payer: Payer) -> u64 {
        let id = self.new_identity();
        let instance = Instance {
            payer,
            ..Instance::default()
        };
        self.epolls.all.insert(id, instance);
        id
    }

    /// The instance is gone.
    pub fn forget_epoll(&mut self, epoll: u64) {
        let Some(instance) = self.epolls.all.remove(&epoll) else {
            return;
        };
        for (id, watch) in &instance.watches {
            self.epolls.forget(epoll, *id, watch);
            self.uncount_thing(Thing::Watch, instance.payer);
        }
    }

    /// The description at this address is nobody's any more. What others have of the same key is not looked at: one key
    /// can have many descriptions, of everybody (the console).
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

    /// Has an instance watch a description. Errors: `EEXIST`, `ELOOP`, `ENOSPC`.
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

    /// The number of a watch. Errors: `ENOENT`.
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

    /// Has an instance watch a description no more. Errors: `ENOENT`.
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

    /// Changes for what a description is watched: the number of the watch. Errors: `ENOENT`, `EINVAL`.
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

    /// A watch may be ready: whoever waits is told.
    pub fn may_be_ready(&mut self, epoll: u64, id: u64) {
        let instance = self.epolls.all.get_mut(&epoll);
        if instance.is_some_and(|instance| instance.list(id, ALL)) {
            self.wake_for(Key::Epoll(epoll), linux::EPOLLIN);
        }
    }

    /// A watch of an image: as it was.
    pub fn set_watch(&mut self, epoll: u64, id: u64, events: u32, seen: u64) {
        let instance = self.epolls.all.get_mut(&epoll);
        if let Some(watch) = instance.and_then(|i| i.watches.get_mut(&id)) {
            (watch.events, watch.seen) = (events, seen);
        }
    }
}
