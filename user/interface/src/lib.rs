//! Services as interfaces.
//!
//! A trait marked [`#[interface]`](interface) is a service. The attribute makes of it
//!
//! * the trait that a server implements, once for each session;
//! * a proxy, `NAMEClient`, with the same methods for clients;
//! * a stub that takes a request apart and calls the method ([`Service`]);
//! * a trait with the methods as callers see them, `NAMECalls`, implemented by the proxy and by objects of the program
//!   ([`Own`]);
//! * a stable id (`ID` of the proxy), a hash of the trait's name and its methods' signatures.
//!
//! A trait marked `#[interface(shared)]` has only requests that are answered at once and may be repeated. It needs no
//! session: many clients use one port ([`client::Shared`], [`server::SharedService`]).
//!
//! A trait marked `#[interface(may_wait)]` can be implemented by a server that has to wait, too: as `NAMELater`, in
//! which all methods are `async`.
//!
//! `docs/services.md` shows a service from the trait to the call. The parts:
//!
//! * [`wire`]: the form of requests and replies in registers, and the calls of the kernel;
//! * [`client`]: what proxies are made of: a session, and the number of its request;
//! * [`mod@object`]: objects of the program, and asking an object for its other interfaces, in this program or another;
//! * [`server`]: sessions, and requests that wait without delaying others.
#![no_std]

#[doc(hidden)]
pub extern crate alloc;
#[doc(hidden)]
pub extern crate base;

pub mod client;
pub mod object;
pub mod server;
pub mod wire;

pub use base::obj::{Ref, RefAt};
pub use client::{Session, Shared};
pub use interface_macros::interface;
pub use object::{query_interface, Calls, Interface, Object, Own};
pub use proto::{Error, MAX_BULK};
pub use server::{Answer, Host, Server, Service};

/// The result type of a method that replies with bytes. A server returns them as anything that
/// dereferences to a slice, and they are copied once, from there into the client's buffer.
#[derive(Clone, Copy, Debug)]
pub struct Bytes;

/// In the result type of a method: references, as many as the server returns, at most [`wire::MAX_REFS`]. Server and
/// client have them as a vector of [`Ref`].
#[derive(Clone, Copy, Debug)]
pub struct Refs;
