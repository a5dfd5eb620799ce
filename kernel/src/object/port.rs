//! Ports and portsets: where clients and servers find each other.
//!
//! A client that finds no server waits at the portset of its port, so that a server looks at one
//! queue whatever the number of ports; at the port itself if that has no portset.

use super::{Header, Object, Table, Weak, CHUNK, NO_PARTS};
use crate::wait::WaitQueue;
use crate::K;
use abi::{RefKind, Type};
use core::cell::Cell;

/// A port.
pub(crate) struct Port {
    head: Header,
    pub(crate) alias: Cell<u64>,
    pub(crate) portset: Cell<Weak>,
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
    pub(crate) fn portset(&self, k: K) -> Option<&'static Portset> {
        self.portset.get().get(k)
    }

    /// Where a client of this port waits for a server.
    pub(crate) fn client_queue(&'static self, k: K) -> &'static WaitQueue {
        self.portset(k).map_or(&self.clients, |set| &set.clients)
    }

    /// Moves the port to another portset. Who waits is sent to try again, and finds the new one.
    pub(crate) fn attach(&'static self, k: K, portset: Weak) {
        if self.portset.get() != portset {
            self.client_queue(k).wake_all(k);
            self.portset.set(portset);
        }
    }
}

impl Object for Port {
    const TYPE: Type = Type::Port;
    const KIND: RefKind = RefKind::Port;
    type Part = ();
    fn parts() -> Option<&'static [(); CHUNK]> {
        Some(NO_PARTS)
    }
    fn blank(head: Header, _: &'static ()) -> Self {
        Port {
            head,
            alias: Cell::new(0),
            portset: Cell::new(Weak::NONE),
            clients: WaitQueue::new(),
        }
    }
    fn head(&self) -> &Header {
        &self.head
    }
    fn table(k: K) -> &'static Table<Self> {
        &k.ports
    }
    fn open(&'static self, _: K) {
        self.alias.set(0);
        self.portset.set(Weak::NONE);
    }
    fn close(&'static self, k: K) {
        self.client_queue(k).wake_all(k);
        self.clients.wake_all(k);
        self.portset.set(Weak::NONE);
    }
    fn end(&'static self, _: K) {}
}

impl Object for Portset {
    const TYPE: Type = Type::Portset;
    const KIND: RefKind = RefKind::Portset;
    type Part = ();
    fn parts() -> Option<&'static [(); CHUNK]> {
        Some(NO_PARTS)
    }
    fn blank(head: Header, _: &'static ()) -> Self {
        Portset { head, servers: WaitQueue::new(), clients: WaitQueue::new() }
    }
    fn head(&self) -> &Header {
        &self.head
    }
    fn table(k: K) -> &'static Table<Self> {
        &k.portsets
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
