//! Ports and portsets, at which clients and servers meet.
//!
//! A client that finds no server waits at the portset of its port, so that a server checks one queue whatever the
//! number of ports. If the port has no portset or holds its clients, the client waits at the port itself.
//!
//! A port counts the references that name it, and the regions and spaces whose keeper it is. If its flags ask for a
//! notice, a server gets one when the count reaches 0 (Mach's no-senders notification): the port is then in a list of
//! its portset until a server waits there.

use super::{Handles, Header, Link, NonNullLink, Object, Table, Target};
use crate::object::thread::Thread;
use crate::queue::WaitQueue;
use crate::{Stop, K};
use abi::state::port_flags;
use abi::{Code, Type};
use core::cell::Cell;
use hal::NarrowCell;

/// A port.
pub(crate) struct Port {
    head: Header,
    pub(crate) alias: Cell<u64>,
    /// The port takes calls only, no connections.
    pub(crate) calls_only: Cell<bool>,
    /// The portset that gets its notices.
    portset: Cell<Link<Portset>>,
    /// The portset at which its clients meet servers; none while the port holds its clients.
    pub(crate) meets_at: Cell<Link<Portset>>,
    /// Waiting clients, while `meets_at` is none.
    clients: WaitQueue,
    /// A notice is due when nothing names the port: see [`port_flags::NOTIFY_UNREFERENCED`].
    pub(crate) notify: Cell<bool>,
    /// No server takes its clients: see [`port_flags::HOLD_CLIENTS`].
    holds: Cell<bool>,
    /// Number of references to this identity, and of regions and spaces whose keeper it is.
    named_by: Cell<u32>,
    /// The portset in whose list of unreferenced ports it is, if any.
    listed_at: NarrowCell<Portset>,
    next_listed: NarrowCell<Port>,
    prev_listed: NarrowCell<Port>,
}

/// A portset.
pub(crate) struct Portset {
    head: Header,
    pub(crate) servers: WaitQueue,
    pub(crate) clients: WaitQueue,
    /// The ports of this set for which a notice is due, in the order in which they became unreferenced.
    first_unreferenced: NarrowCell<Port>,
    last_unreferenced: NarrowCell<Port>,
    /// Whether it is in the list of [`Notices`].
    noticed: Cell<bool>,
    next_noticed: NarrowCell<Portset>,
}

/// The portsets with waiting servers to which notices are delivered at the end of the trap.
pub(crate) struct Notices {
    first: NarrowCell<Portset>,
    /// The ports whose notices were delivered, for tests that follow the order.
    #[cfg(test)]
    pub(crate) told: core::cell::RefCell<std::vec::Vec<&'static Port>>,
}

impl Notices {
    pub(crate) const fn new() -> Self {
        Notices {
            first: NarrowCell::none(),
            #[cfg(test)]
            told: core::cell::RefCell::new(std::vec::Vec::new()),
        }
    }

    fn add(&self, k: K, set: &'static Portset) {
        if !set.noticed.replace(true) {
            set.next_noticed.set(self.first.replace(Some(set)));
            k.cpu().sched.raise_notices();
        }
    }

    /// Delivers the notices to waiting servers. At the end of a trap only: in the middle of a call its handler
    /// may be using one of the servers.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell(&self, k: K) {
        while let Some(set) = self.first.get() {
            self.first.set(set.next_noticed.take());
            set.noticed.set(false);
            while let Some((server, port)) = set.servers.first().zip(set.unreferenced()) {
                server.ctx.parameter(0).set(port.told(k));
                server.complete(k, Code::Unreferenced);
            }
        }
    }
}

/// The target of a reference, or a keeper. The port that it names counts it.
pub(crate) struct Naming(Cell<Target>);

impl Naming {
    pub(crate) const fn new() -> Self {
        Naming(Cell::new(Target::Null))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Target {
        self.0.get()
    }

    /// Sets the target. Returns the old one.
    #[inline(always)]
    pub(crate) fn set(&self, k: K, target: Target) -> Target {
        // Counts the new target first: both may be the same port, whose count must not reach 0 in between.
        if let Some(port) = target.get::<Port>() {
            port.count(k, 1);
        }
        let old = self.0.replace(target);
        if let Some(port) = old.get::<Port>() {
            port.count(k, u32::MAX);
        }
        old
    }
}

impl Port {
    /// The portset in the port's state.
    pub(crate) fn portset(&self) -> Link<Portset> {
        self.portset.get()
    }

    /// The portset at which its clients meet servers.
    pub(crate) fn meets_at(&self) -> Option<&'static Portset> {
        self.meets_at.get().get()
    }

    /// The queue in which a client of this port waits for a server.
    pub(crate) fn client_queue(&'static self) -> &'static WaitQueue {
        self.meets_at().map_or(&self.clients, |set| &set.clients)
    }

    /// Wakes the waiting clients, before a call of `t` moves the port to this portset and gives it these flags, if the
    /// change concerns them: they try again at the place where the port's clients then meet servers, or their connect
    /// fails with `Denied`.
    pub(crate) fn disperse_for(
        &'static self,
        k: K,
        t: &'static Thread,
        portset: Link<Portset>,
        flags: u64,
    ) -> Result<(), Stop> {
        let refuses = flags & port_flags::CALLS_ONLY != 0 && !self.calls_only.get();
        if refuses || self.meets_at.get() != meeting(portset, flags) {
            self.client_queue().wake_all_or_again(k, t)?;
        }
        Ok(())
    }

    /// Its flags, of [`port_flags`].
    pub(crate) fn flags(&self) -> u64 {
        let flag = |on: bool, flag| if on { flag } else { 0 };
        flag(self.calls_only.get(), port_flags::CALLS_ONLY)
            | flag(self.notify.get(), port_flags::NOTIFY_UNREFERENCED)
            | flag(self.holds.get(), port_flags::HOLD_CLIENTS)
    }

    /// Sets its portset and its flags, after [`Port::disperse_for`].
    pub(crate) fn set(&self, portset: Link<Portset>, flags: u64) {
        self.portset.set(portset);
        self.meets_at.set(meeting(portset, flags));
        self.calls_only.set(flags & port_flags::CALLS_ONLY != 0);
        self.notify
            .set(flags & port_flags::NOTIFY_UNREFERENCED != 0);
        self.holds.set(flags & port_flags::HOLD_CLIENTS != 0);
    }

    /// Counts one more name, or one less (`u32::MAX`).
    fn count(&'static self, k: K, change: u32) {
        self.named_by.set(self.named_by.get().wrapping_add(change));
        if self.notify.get() {
            self.list(k);
        }
    }

    /// Puts the port into the list of unreferenced ports to which it belongs now, if any, and takes it out of any other
    /// list.
    pub(crate) fn list(&'static self, k: K) {
        let tells = self.head.is_open() && self.notify.get() && self.named_by.get() == 0;
        let set = self.portset.get().get().filter(|_| tells);
        let same = match (set, self.listed_at.get()) {
            (Some(set), Some(listed)) => core::ptr::eq(set, listed),
            (None, None) => true,
            _ => false,
        };
        if same {
            return;
        }
        self.unlist();
        let Some(set) = set else { return };
        let last = set.last_unreferenced.replace(Some(self));
        match last {
            Some(last) => last.next_listed.set(Some(self)),
            None => set.first_unreferenced.set(Some(self)),
        }
        self.prev_listed.set(last);
        self.listed_at.set(Some(set));
        if !set.servers.is_empty() {
            k.notices.add(k, set);
        }
    }

    fn unlist(&self) {
        let Some(set) = self.listed_at.take() else {
            return;
        };
        let (next, prev) = (self.next_listed.take(), self.prev_listed.take());
        match prev {
            Some(prev) => prev.next_listed.set(next),
            None => set.first_unreferenced.set(next),
        }
        match next {
            Some(next) => next.prev_listed.set(prev),
            None => set.last_unreferenced.set(prev),
        }
    }

    /// Notes that a server has got the notice; there is no further notice until the server asks for one. Returns the
    /// alias.
    #[cfg_attr(not(test), allow(unused_variables))]
    pub(crate) fn told(&'static self, k: K) -> u64 {
        self.notify.set(false);
        self.unlist();
        #[cfg(test)]
        k.notices.told.borrow_mut().push(self);
        self.alias.get()
    }
}

/// The portset at which the clients of a port with this portset and these flags meet servers.
fn meeting(portset: Link<Portset>, flags: u64) -> Link<Portset> {
    match flags & port_flags::HOLD_CLIENTS {
        0 => portset,
        _ => Link::NONE,
    }
}

impl Portset {
    /// The first port for which a notice is due.
    #[inline(always)]
    pub(crate) fn unreferenced(&self) -> Option<&'static Port> {
        self.first_unreferenced.get()
    }
}

impl Object for Port {
    const TYPE: Type = Type::Port;
    fn target(link: NonNullLink<Self>) -> Target {
        Target::Port(link)
    }
    #[inline(always)]
    fn named(target: Target) -> Option<NonNullLink<Self>> {
        match target {
            Target::Port(link) => Some(link),
            _ => None,
        }
    }
    type Seed = ();
    fn blank(head: Header, (): ()) -> Self {
        Port {
            head,
            alias: Cell::new(0),
            calls_only: Cell::new(false),
            portset: Cell::new(Link::NONE),
            meets_at: Cell::new(Link::NONE),
            clients: WaitQueue::new(),
            notify: Cell::new(false),
            holds: Cell::new(false),
            named_by: Cell::new(0),
            listed_at: NarrowCell::none(),
            next_listed: NarrowCell::none(),
            prev_listed: NarrowCell::none(),
        }
    }
    fn head(&self) -> &Header {
        &self.head
    }
    fn table(k: K) -> &'static Table<Self> {
        &k.ports
    }
    fn handles(k: K) -> &'static Handles<Self> {
        &k.handles.ports
    }
    fn open(&'static self, _: K) {
        self.alias.set(0);
        self.set(Link::NONE, 0);
    }
    fn disperse(&'static self, k: K, t: &'static Thread) -> Result<(), Stop> {
        self.client_queue().wake_all_or_again(k, t)
    }
    fn close(&'static self, k: K) {
        self.client_queue().wake_all(k);
        self.clients.wake_all(k);
        self.unlist();
        self.set(Link::NONE, self.flags());
    }
    fn end(&'static self, _: K) {
        // References to it are dead from now on.
        self.named_by.set(0);
    }
}

#[cfg(any(test, fermata_probe))]
impl Port {
    /// Checks its count of names and the list that it is in.
    pub(crate) fn check(&'static self, named_by: u32) {
        use crate::queue::same;
        assert_eq!(self.named_by.get(), named_by, "who names a port");
        let tells = self.head.is_open() && self.notify.get() && named_by == 0;
        let set = self.portset.get().get().filter(|_| tells);
        assert!(
            same(self.listed_at.get(), set),
            "an unreferenced port in the wrong list"
        );
        let Some(set) = set else { return };
        let before = match self.prev_listed.get() {
            Some(prev) => prev.next_listed.get(),
            None => set.first_unreferenced.get(),
        };
        let behind = match self.next_listed.get() {
            Some(next) => next.prev_listed.get(),
            None => set.last_unreferenced.get(),
        };
        assert!(
            same(before, Some(self)) && same(behind, Some(self)),
            "the links of a list of ports"
        );
    }
}

impl Object for Portset {
    const TYPE: Type = Type::Portset;
    fn target(link: NonNullLink<Self>) -> Target {
        Target::Portset(link)
    }
    fn named(target: Target) -> Option<NonNullLink<Self>> {
        match target {
            Target::Portset(link) => Some(link),
            _ => None,
        }
    }
    type Seed = ();
    fn blank(head: Header, (): ()) -> Self {
        Portset {
            head,
            servers: WaitQueue::new(),
            clients: WaitQueue::new(),
            first_unreferenced: NarrowCell::none(),
            last_unreferenced: NarrowCell::none(),
            noticed: Cell::new(false),
            next_noticed: NarrowCell::none(),
        }
    }
    fn head(&self) -> &Header {
        &self.head
    }
    fn table(k: K) -> &'static Table<Self> {
        &k.portsets
    }
    fn handles(k: K) -> &'static Handles<Self> {
        &k.handles.portsets
    }
    fn open(&'static self, _: K) {}
    fn disperse(&'static self, k: K, t: &'static Thread) -> Result<(), Stop> {
        self.servers.wake_all_or_again(k, t)?;
        self.clients.wake_all_or_again(k, t)
    }
    fn close(&'static self, k: K) {
        self.servers.wake_all(k);
        self.clients.wake_all(k);
    }
    fn end(&'static self, k: K) {
        self.clients.wake_all_in_turns(k);
        while let Some(port) = self.unreferenced() {
            port.unlist();
        }
    }
}
