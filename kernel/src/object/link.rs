//! Names of identities: [`Link`], between objects, and [`Target`], in references.
//!
//! Neither keeps anything alive. A slot's memory never changes its type, so a link may simply point
//! at the slot; the slot's [`Life`] tells whether the identity that it was made for is still the
//! one in there.

use super::cond::Cond;
use super::mapping::Mapping;
use super::mutex::Mutex;
use super::port::{Port, Portset};
use super::reference::Reference;
use super::region::Region;
use super::space::Space;
use super::thread::Thread;
use super::{Header, Life, Object, Phase};
use abi::RefKind;
use hal::{Narrow, NarrowRef};

/// A link to an identity of a known type, or to none.
pub(crate) struct Link<T: 'static> {
    object: Narrow<T>,
    /// The slot's life while the identity is active.
    life: Life,
}

impl<T> Clone for Link<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Link<T> {}

impl<T> PartialEq for Link<T> {
    fn eq(&self, other: &Self) -> bool {
        self.object == other.object && self.life == other.life
    }
}

impl<T> core::fmt::Debug for Link<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.object.get() {
            Some(object) => write!(f, "{object:p}.{:?}", self.life),
            None => f.write_str("none"),
        }
    }
}

impl<T> Link<T> {
    pub(crate) const NONE: Self = Link {
        object: Narrow::NONE,
        life: Life::NONE,
    };

    pub(crate) fn is_none(self) -> bool {
        self.object == Narrow::NONE
    }

    /// This link as a [`NonNullLink`], unless it is none.
    pub(crate) fn non_null(self) -> Option<NonNullLink<T>> {
        let life = self.life;
        self.object.get().map(|object| NonNullLink {
            object: NarrowRef::of(object),
            life,
        })
    }
}

impl<T: Object> Link<T> {
    /// Names the identity that is in the slot now.
    #[inline]
    pub(crate) fn to(object: &'static T) -> Self {
        Link {
            object: Narrow::of(Some(object)),
            life: object.head().life.get().with(Phase::Active),
        }
    }

    /// Names an object that is known to be active. One instruction shorter than [`Link::to`].
    #[inline(always)]
    pub(crate) fn to_active(object: &'static T) -> Self {
        Link {
            object: Narrow::of(Some(object)),
            life: object.head().life.get(),
        }
    }

    /// The object if its identity is alive; it may be vacant.
    #[inline]
    pub(crate) fn get(self) -> Option<&'static T> {
        self.object
            .get()
            .filter(|object| object.head().life.get().with(Phase::Active) == self.life)
    }

    /// The object if it is active.
    #[inline(always)]
    pub(crate) fn active(self) -> Option<&'static T> {
        self.object
            .get()
            .filter(|object| object.head().life.get() == self.life)
    }

    /// Whether this names the identity that is in the slot now.
    #[inline]
    pub(crate) fn is(self, object: &'static T) -> bool {
        self == Link::to(object)
    }
}

/// A [`Link`] that always leads to a slot; a link to no identity has a life that no slot ever has. This saves a test.
pub(crate) struct NonNullLink<T: 'static> {
    object: NarrowRef<T>,
    life: Life,
}

impl<T> NonNullLink<T> {
    /// A link to no identity, at any slot.
    pub(crate) fn none(object: &'static T) -> Self {
        NonNullLink {
            object: NarrowRef::of(object),
            life: Life::NONE,
        }
    }

    /// A link to no identity, at the same slot.
    pub(crate) fn cut(self) -> Self {
        NonNullLink {
            life: Life::NONE,
            ..self
        }
    }

    #[inline(always)]
    pub(crate) fn link(self) -> Link<T> {
        if self.life == Life::NONE {
            return Link::NONE;
        }
        Link {
            object: Narrow::of(Some(self.object.get())),
            life: self.life,
        }
    }
}

impl<T: Object> NonNullLink<T> {
    /// Whether this names the identity that is in the slot now.
    #[inline]
    pub(crate) fn is(self, object: &'static T) -> bool {
        self == NonNullLink::to(object)
    }

    /// Names the identity that is in the slot now.
    #[inline]
    pub(crate) fn to(object: &'static T) -> Self {
        NonNullLink {
            object: NarrowRef::of(object),
            life: object.head().life.get().with(Phase::Active),
        }
    }

    /// The object if its identity is alive; it may be vacant.
    #[inline]
    pub(crate) fn get(self) -> Option<&'static T> {
        let life = self.object.get().head().life.get();
        let alive = life == self.life || life.with(Phase::Active) == self.life;
        alive.then(|| self.object.get())
    }

    /// The object if it is active.
    #[inline(always)]
    pub(crate) fn active(self) -> Option<&'static T> {
        Some(self.object.get()).filter(|object| object.head().life.get() == self.life)
    }
}

impl<T> Clone for NonNullLink<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for NonNullLink<T> {}

impl<T> PartialEq for NonNullLink<T> {
    fn eq(&self, other: &Self) -> bool {
        self.object == other.object && self.life == other.life
    }
}

impl<T> core::fmt::Debug for NonNullLink<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.link().fmt(f)
    }
}

/// The target of a reference: an identity in a role.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    Null,
    Authority,
    Mutex(NonNullLink<Mutex>),
    Cond(NonNullLink<Cond>),
    Mapping(NonNullLink<Mapping>),
    Region(NonNullLink<Region>),
    Port(NonNullLink<Port>),
    Portset(NonNullLink<Portset>),
    Space(NonNullLink<Space>),
    Thread(NonNullLink<Thread>),
    Reference(NonNullLink<Reference>),
    /// The client end of the thread: the right to be its server.
    ClientEnd(NonNullLink<Thread>),
    /// The same end, as the state of its server shows it. It gives power over this connection only, not over later
    /// connections of the thread: a former server must not act as the thread's keeper.
    Client(NonNullLink<Thread>),
    /// The server end of the thread's connection.
    ServerEnd(NonNullLink<Thread>),
}

impl Target {
    /// Names an object in its plain role.
    pub(crate) fn to<T: Object>(object: &'static T) -> Self {
        T::target(NonNullLink::to(object))
    }

    /// The target that a link names, or null.
    pub(crate) fn of<T: Object>(link: Link<T>) -> Self {
        link.non_null().map_or(Target::Null, T::target)
    }

    /// The object, if the target names one of this type in its plain role and its identity is alive.
    #[inline]
    pub(crate) fn get<T: Object>(self) -> Option<&'static T> {
        T::named(self)?.get()
    }

    /// Whether both name the same identity in the same role; [`Target::Client`] and [`Target::ClientEnd`] count
    /// as the same.
    pub(crate) fn is_like(self, other: Target) -> bool {
        let plain = |target| match target {
            Target::Client(link) => Target::ClientEnd(link),
            target => target,
        };
        plain(self) == plain(other)
    }

    /// Its number in the ABI.
    pub(crate) fn kind(self) -> RefKind {
        match self {
            Target::Null => RefKind::Null,
            Target::Authority => RefKind::Authority,
            Target::Mutex(_) => RefKind::Mutex,
            Target::Cond(_) => RefKind::Cond,
            Target::Mapping(_) => RefKind::Mapping,
            Target::Region(_) => RefKind::Region,
            Target::Port(..) => RefKind::Port,
            Target::Portset(_) => RefKind::Portset,
            Target::Space(_) => RefKind::Space,
            Target::Thread(_) => RefKind::Thread,
            Target::Reference(_) => RefKind::Reference,
            Target::ClientEnd(_) | Target::Client(_) => RefKind::ClientEnd,
            Target::ServerEnd(_) => RefKind::ServerEnd,
        }
    }

    /// The header of the object that the target names, if its identity is alive.
    pub(crate) fn header(self) -> Option<&'static Header> {
        fn head<T: Object>(link: NonNullLink<T>) -> Option<&'static Header> {
            link.get().map(T::head)
        }
        match self {
            Target::Null | Target::Authority => None,
            Target::Mutex(link) => head(link),
            Target::Cond(link) => head(link),
            Target::Mapping(link) => head(link),
            Target::Region(link) => head(link),
            Target::Port(link) => head(link),
            Target::Portset(link) => head(link),
            Target::Space(link) => head(link),
            Target::Thread(link)
            | Target::ClientEnd(link)
            | Target::Client(link)
            | Target::ServerEnd(link) => head(link),
            Target::Reference(link) => head(link),
        }
    }

    /// Whether the target names an identity that is alive, or the device authority.
    pub(crate) fn alive(self) -> bool {
        self == Target::Authority || self.header().is_some()
    }
}
