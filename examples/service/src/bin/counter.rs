//! A service: named counters, until it is killed: `counter &`.
//!
//! It is an implementation of the trait [`Counters`] and a `main` that registers the server's door. Whatever a client
//! sends, it gets an answer or a refusal, and the others are served.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::RefCell;
use interface::server::{Event, Visitor};
use interface::{Error, Server};
use service::{Counters, CountersStub, LONGEST, MOST, NAME};

rt::entry!(main);

fn main() -> u8 {
    match serve() {
        Ok(never) => match never {},
        Err(error) => {
            rt::println!("counter: {}", error.text());
            1
        }
    }
}

/// What all clients share.
#[derive(Default)]
struct Shared {
    counters: RefCell<BTreeMap<String, u64>>,
    /// A counter has another value.
    changed: Event,
}

/// A client's session. What belonged to this client alone would stand here, and go with it.
struct Session(Rc<Shared>);

impl Counters for Session {
    fn get(&self, name: &str) -> Result<u64, Error> {
        let counters = self.0.counters.borrow();
        counters.get(name).copied().ok_or(Error::NotFound)
    }

    fn set(&self, value: u64, name: &str) -> Result<(), Error> {
        if name.is_empty() || name.len() > LONGEST {
            return Err(Error::Invalid);
        }
        let mut counters = self.0.counters.borrow_mut();
        if counters.len() == MOST && !counters.contains_key(name) {
            return Err(Error::Limit);
        }
        counters.insert(name.into(), value);
        self.0.changed.happened();
        Ok(())
    }

    fn add(&self, amount: u64, name: &str) -> Result<u64, Error> {
        let mut counters = self.0.counters.borrow_mut();
        let value = counters.get_mut(name).ok_or(Error::NotFound)?;
        *value = value.checked_add(amount).ok_or(Error::Invalid)?;
        self.0.changed.happened();
        Ok(*value)
    }

    async fn at_least(&self, value: u64, name: String) -> Result<u64, Error> {
        let reached = || self.get(&name).ok().filter(|now| *now >= value);
        Ok(self.0.changed.until(reached).await)
    }

    fn count(&self) -> Result<u64, Error> {
        Ok(self.0.counters.borrow().len() as u64)
    }
}

fn serve() -> Result<core::convert::Infallible, Error> {
    let shared = Rc::<Shared>::default();
    let server = Server::new(move |_: &Visitor| Ok(CountersStub(Session(shared.clone()))))?;
    rt::names::register(NAME, server.door())?;
    server.run()
}
