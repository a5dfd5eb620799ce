//! A service with named counters, until it is killed: `counter &`, or `counter NAME=VALUE... &` with initial
//! counters.
//!
//! It is an implementation of the trait [`Counters`] and a `main` that registers the server's door. Whatever a client
//! sends, it gets an answer or an error, and the other clients are served.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::RefCell;
use interface::server::{Event, Visitor};
use interface::{Error, Own, Server};
use service::{
    set_as, Counters, CountersCalls, CountersStub, Totals, TotalsCalls, TotalsStub, LONGEST, MOST,
    NAME,
};

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

/// The data that all clients share.
#[derive(Default)]
struct Shared {
    counters: RefCell<BTreeMap<String, u64>>,
    /// Happens when a counter has changed.
    changed: Event,
}

/// A client's session. Data of one client would be a field here, and end with the session.
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

impl Totals for Session {
    fn sum(&self) -> Result<u64, Error> {
        let counters = self.0.counters.borrow();
        let mut values = counters.values();
        values.try_fold(0, |sum: u64, value| {
            sum.checked_add(*value).ok_or(Error::Limit)
        })
    }
}

interface::object! {
    /// The interfaces of a session.
    enum Asked of Session {
        Counters: CountersStub, dyn CountersCalls;
        Totals: TotalsStub, dyn TotalsCalls;
    }
}

fn serve() -> Result<core::convert::Infallible, Error> {
    let shared = Rc::<Shared>::default();
    // The program calls its own counters directly, by the same trait as those of a session.
    let mut own = Own::new(Session(shared.clone()));
    for said in rt::start().args.iter().skip(1) {
        set_as(&mut own, said)?;
    }
    let server = Server::new(move |visitor: &Visitor| {
        Asked::of(&Rc::new(Session(shared.clone())), visitor.interface)
    })?;
    rt::names::register(NAME, server.door())?;
    server.run()
}
