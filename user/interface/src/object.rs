//! Interfaces to objects, wherever they are.
//!
//! An interface as its callers see it is a trait of its own, `NAMECalls`. A `Box<dyn NAMECalls>` holds either a proxy,
//! whose functions make requests, or an object of the program itself ([`Own`]), whose functions are the methods. The
//! caller sees no difference, and asks either for its other interfaces in the same way ([`query_interface`]).
use crate::client::Session;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use base::obj::{Cond, Mutex, Ref, RefAt};
use core::any::Any;
use core::fmt;
use core::future::Future;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use proto::Error;

/// What every interface to an object can do.
pub trait Calls {
    /// The object's interface with this id. [`query_interface`] turns the result into one that can be called.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the object has no such interface, [`Error::NoMemory`], [`Error::Limit`] if the
    /// program's job has as many sessions with the service as it may have, [`Error::Broken`] if the service is gone.
    fn find(&mut self, id: u64) -> Result<Found, Error>;
}

/// An interface that was found.
#[derive(Debug)]
pub enum Found {
    /// Of an object elsewhere: a session about it.
    Session(Session),
    /// Of an object of the program: a `Box<dyn NAMECalls>`.
    Own(Box<dyn Any>),
}

/// An interface as its callers see it: `#[interface]` makes `dyn NAMECalls` one.
pub trait Interface: 'static {
    /// Its id.
    const ID: u64;
    /// Its proxy, for this session.
    fn proxy(session: Session) -> Box<Self>;
}

/// Asks an object at run time for another of its interfaces. May be repeated.
///
/// # Errors
/// Those of [`Calls::find`].
pub fn query_interface<T: Interface + ?Sized>(
    of: &mut (impl Calls + ?Sized),
) -> Result<Box<T>, Error> {
    match of.find(T::ID)? {
        Found::Session(session) => Ok(T::proxy(session)),
        Found::Own(own) => match own.downcast::<Box<T>>() {
            Ok(interface) => Ok(*interface),
            Err(_) => Err(Error::Unsupported),
        },
    }
}

/// A type that can be an [`Own`] object. [`object!`](crate::object!) implements this for a type with several
/// interfaces; a type with a single one needs only an empty implementation.
pub trait Object: 'static {
    /// Its interface with this id: a `Box<dyn NAMECalls>`.
    fn find(self: Rc<Self>, id: u64) -> Option<Box<dyn Any>> {
        let _ = id;
        None
    }
}

/// An object of the program, called directly: arguments are not copied, and a method is done once because it is called
/// once. Only the thread that made it uses it. A method that waits makes that thread wait, so another thread has to
/// wake it.
pub struct Own<S: ?Sized>(Rc<S>);

impl<S> Own<S> {
    /// This object.
    pub fn new(object: S) -> Self {
        Own(Rc::new(object))
    }
}

impl<S: ?Sized> Own<S> {
    /// The object.
    #[must_use]
    pub fn object(&self) -> &S {
        &self.0
    }
}

impl<S: ?Sized> Clone for Own<S> {
    fn clone(&self) -> Self {
        Own(Rc::clone(&self.0))
    }
}

impl<S: ?Sized> From<Rc<S>> for Own<S> {
    fn from(object: Rc<S>) -> Self {
        Own(object)
    }
}

impl<S: ?Sized> fmt::Debug for Own<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").finish_non_exhaustive()
    }
}

impl<S: Object> Calls for Own<S> {
    fn find(&mut self, id: u64) -> Result<Found, Error> {
        let found = Rc::clone(&self.0).find(id).ok_or(Error::Unsupported)?;
        Ok(Found::Own(found))
    }
}

/// Copies the bytes of a direct call's result to `into`, and returns how many they are.
///
/// # Errors
/// [`Error::Broken`] if `into` has no room for them.
#[doc(hidden)]
pub fn put_bytes(bytes: &[u8], into: &mut [u8]) -> Result<usize, Error> {
    let place = into.get_mut(..bytes.len()).ok_or(Error::Broken)?;
    place.copy_from_slice(bytes);
    Ok(bytes.len())
}

/// Copies of the references that a direct call passes, which the method owns.
///
/// # Errors
/// [`Error::NoMemory`].
#[doc(hidden)]
pub fn copies(refs: &[RefAt]) -> Result<Vec<Ref>, Error> {
    let copy = |one: &RefAt| one.copy().map_err(base::error_of);
    refs.iter().map(copy).collect()
}

/// Runs a method that may wait, during which the thread waits too, and returns its result.
///
/// # Errors
/// Those of the method, and [`Error::NoMemory`] if there is no memory for a mutex and a condition variable.
#[doc(hidden)]
pub fn wait_for<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let mut future = pin!(future);
    // Most methods need not wait, and then no kernel object is made.
    if let Poll::Ready(result) = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        return result;
    }
    let woken = Arc::new(Woken {
        is: AtomicBool::new(false),
        mutex: Mutex::new().map_err(base::error_of)?,
        changed: Cond::new().map_err(base::error_of)?,
    });
    let waker = Waker::from(Arc::clone(&woken));
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return result;
        }
        woken.mutex.lock();
        while !woken.is.swap(false, Ordering::AcqRel) {
            woken.changed.wait(*woken.mutex);
        }
        woken.mutex.unlock();
    }
}

/// Wakes a thread that waits for a method.
struct Woken {
    is: AtomicBool,
    mutex: Mutex,
    changed: Cond,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.mutex.lock();
        self.is.store(true, Ordering::Release);
        self.changed.signal();
        self.mutex.unlock();
    }
}

/// Declares the interfaces of an object, both for clients in other spaces and for callers in its own. It defines an
/// enumeration with a variant per interface, each with the object, which a server's `make` returns
/// (`NAME::of(&object, visitor.interface)`).
///
/// ```ignore
/// interface::object! {
///     /// What an adder is asked by.
///     pub enum Asked of Adder {
///         Counter: CounterStub, dyn CounterCalls;
///         Status: StatusStub, dyn StatusCalls;
///     }
/// }
/// ```
#[macro_export]
macro_rules! object {
    ($(#[$meta:meta])* $vis:vis enum $name:ident of $object:ty {
        $($variant:ident: $stub:ident, $calls:ty;)*
    }) => {
        $(#[$meta])*
        $vis enum $name {
            $(#[doc = concat!("Its ", stringify!($variant), ".")]
            $variant($crate::alloc::rc::Rc<$stub<$crate::alloc::rc::Rc<$object>>>),)*
        }

        impl $name {
            /// The object's interface with this id, for a session.
            ///
            /// # Errors
            /// `Unsupported` if it has none such.
            $vis fn of(
                object: &$crate::alloc::rc::Rc<$object>,
                id: u64,
            ) -> ::core::result::Result<Self, $crate::Error> {
                use $crate::alloc::rc::Rc;
                $(if id == <$calls as $crate::Interface>::ID {
                    return Ok(Self::$variant(Rc::new($stub(Rc::clone(object)))));
                })*
                Err($crate::Error::Unsupported)
            }
        }

        impl $crate::Service for $name {
            const BYTES: bool =
                false $(|| <$stub<$crate::alloc::rc::Rc<$object>> as $crate::Service>::BYTES)*;
            const KEEPS_BYTES: bool = false
                $(|| <$stub<$crate::alloc::rc::Rc<$object>> as $crate::Service>::KEEPS_BYTES)*;
            const REFS: usize = {
                let mut most = 0;
                $(if <$stub<$crate::alloc::rc::Rc<$object>> as $crate::Service>::REFS > most {
                    most = <$stub<$crate::alloc::rc::Rc<$object>> as $crate::Service>::REFS;
                })*
                most
            };

            fn has(id: u64) -> bool {
                false $(|| id == <$calls as $crate::Interface>::ID)*
            }

            fn answer(
                self: &$crate::alloc::rc::Rc<Self>,
                request: &$crate::server::Request<'_>,
                reply: &mut $crate::server::Reply,
            ) -> $crate::Answer {
                match &**self {
                    $(Self::$variant(stub) => stub.answer(request, reply),)*
                }
            }

            #[inline(always)]
            fn quick(
                self: &$crate::alloc::rc::Rc<Self>,
                came: &$crate::wire::Came,
                done: &$crate::server::Done,
                waker: &::core::task::Waker,
            ) -> $crate::server::Quick {
                match &**self {
                    $(Self::$variant(stub) => stub.quick(came, done, waker),)*
                }
            }

            fn query(
                self: &$crate::alloc::rc::Rc<Self>,
                id: u64,
            ) -> Option<$crate::alloc::rc::Rc<Self>> {
                let object = match &**self {
                    $(Self::$variant(stub) => &stub.0,)*
                };
                Self::of(object, id).ok().map($crate::alloc::rc::Rc::new)
            }
        }

        impl $crate::Object for $object {
            fn find(
                self: $crate::alloc::rc::Rc<Self>,
                id: u64,
            ) -> Option<$crate::alloc::boxed::Box<dyn ::core::any::Any>> {
                $(if id == <$calls as $crate::Interface>::ID {
                    let own: $crate::alloc::boxed::Box<$calls> =
                        $crate::alloc::boxed::Box::new($crate::Own::from(self));
                    return Some($crate::alloc::boxed::Box::new(own));
                })*
                None
            }
        }
    };
}
