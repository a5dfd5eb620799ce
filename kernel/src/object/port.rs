//! Ports and portsets: where clients and servers find each other.
//!
//! A client that finds no server waits at the portset of its port, so that a server looks at one
//! queue whatever the number of ports; at the port itself if that has no portset.

use super::{Handles, Header, Link, NonNullLink, Object, Table, Target};
use crate::wait::WaitQueue;
use crate::K;
use abi::Type;
use core::cell::Cell;

/// A port.
pub(crate) struct Port {
    head: Header,
    pub(crate) alias: Cell<u64>,
    /// Nobody connects to it.
    pub(crate) calls_only: Cell<bool>,
    pub(crate) portset: Cell<Link<Portset>>,
    /// Clients, while there is no portset.
    clients: WaitQueue,
}

/// A portset.
pub(crate) struct Portset {
    head: Header,
    pub(crate) servers: WaitQueue,
    pub(crate) clients: WaitQueue,
}

impl Port {
    pub(crate) fn portset(&self) -> Option<&'static Portset> {
        self.portset.get().get()
    }

    /// Where a client of this port waits for a server.
    pub(crate) fn client_queue(&'static self) -> &'static WaitQueue {
        self.portset().map_or(&self.clients, |set| &set.clients)
    }

    /// Moves the port to another portset. Who waits is sent to try again, and finds the new one.
    pub(crate) fn attach(&'static self, k: K, portset: Link<Portset>) {
        if self.portset.get() != portset {
            self.client_queue().wake_all(k);
            self.portset.set(portset);
        }
    }

    /// Sets whether clients may only call it. Who waits to connect tries again, and hears `Denied`.
    pub(crate) fn set_calls_only(&'static self, k: K, calls_only: bool) {
        if !self.calls_only.replace(calls_only) && calls_only {
            self.client_queue().wake_all(k);
        }
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
            clients: WaitQueue::new(),
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
        self.calls_only.set(false);
        self.portset.set(Link::NONE);
    }
    fn close(&'static self, k: K) {
        self.client_queue().wake_all(k);
        self.clients.wake_all(k);
        self.portset.set(Link::NONE);
    }
    fn end(&'static self, _: K) {}
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
    fn close(&'static self, k: K) {
        self.servers.wake_all(k);
        self.clients.wake_all(k);
    }
    fn end(&'static self, k: K) {
        self.clients.wake_all(k);
    }
}
