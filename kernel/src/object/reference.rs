//! References: each names an object across spaces and carries the right to use it.

use super::port::{Naming, Port};
use super::{Handles, Header, NonNullLink, Object, Table, Target};
use crate::K;
use abi::Type;
use core::cell::Cell;

/// A reference.
pub(crate) struct Reference {
    head: Header,
    pub(crate) target: Naming,
    /// Whether it keeps the identity of its target, which has no body.
    keeps: Cell<bool>,
}

impl Reference {
    /// Points the reference at another target. If it kept an identity, that identity ends.
    pub(crate) fn point(&self, k: K, target: Target) {
        let old = self.target.set(k, target);
        if self.keeps.take() {
            super::release_kept(k, old);
        }
    }

    /// Points the reference at an identity that is losing its body, and keeps that identity.
    pub(crate) fn keep(&self, k: K, target: Target) {
        self.point(k, target);
        self.keeps.set(true);
    }

    /// A link to the port that the reference names, if it names a port.
    #[inline(always)]
    pub(crate) fn port(&self) -> Option<NonNullLink<Port>> {
        Port::named(self.target.get())
    }

    /// Whether it keeps the identity of its target.
    pub(crate) fn keeps(&self) -> bool {
        self.keeps.get()
    }

    /// Notes that the identity which the reference kept has a body again.
    pub(crate) fn hand_over(&self) {
        self.keeps.set(false);
    }
}

impl Object for Reference {
    const TYPE: Type = Type::Reference;
    fn target(link: NonNullLink<Self>) -> Target {
        Target::Reference(link)
    }
    fn named(target: Target) -> Option<NonNullLink<Self>> {
        match target {
            Target::Reference(link) => Some(link),
            _ => None,
        }
    }
    type Seed = ();
    fn blank(head: Header, (): ()) -> Self {
        Reference {
            head,
            target: Naming::new(),
            keeps: Cell::new(false),
        }
    }
    fn head(&self) -> &Header {
        &self.head
    }
    fn table(k: K) -> &'static Table<Self> {
        &k.references
    }
    fn handles(k: K) -> &'static Handles<Self> {
        &k.handles.references
    }
    fn open(&'static self, k: K) {
        self.target.set(k, Target::Null);
        self.keeps.set(false);
    }
    fn close(&'static self, k: K) {
        self.point(k, Target::Null);
    }
    fn end(&'static self, _: K) {}
}
