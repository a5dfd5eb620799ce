//! A program to be checkpointed together with `tally_client`: adds, appends and swaps for it, for ever.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::rc::Rc;
use core::cell::Cell;
use core::convert::Infallible;
use guest_tests::tally::{Tally, TallyStub, NAME};
use interface::server::{Event, Visitor};
use interface::{Error, Object, Server};
use rt::time;

rt::entry!(main);

/// How often it registers its name, in nanoseconds: to the name service, a restored server is a new one, while the
/// service still knows the old one.
const AGAIN: u64 = 2_000_000;

fn main() -> u8 {
    match serve() {
        Ok(never) => match never {},
        Err(error) => {
            rt::println!("tally_server: {}", error.text());
            2
        }
    }
}

/// What all sessions share.
#[derive(Default)]
struct Shared {
    sum: Cell<u64>,
    length: Cell<u64>,
    /// The number of the request that waits for another one, and what that other one has brought.
    waiting: Cell<Option<u64>>,
    brought: Cell<Option<u64>>,
    changed: Event,
}

struct Session(Rc<Shared>);

impl Object for Session {}

impl Tally for Session {
    fn add(&self, amount: u64) -> Result<u64, Error> {
        self.0.sum.set(self.0.sum.get().wrapping_add(amount));
        Ok(self.0.sum.get())
    }

    fn append(&self, text: &str) -> Result<u64, Error> {
        self.0.length.set(self.0.length.get() + text.len() as u64);
        Ok(self.0.length.get())
    }

    async fn swap(&self, number: u64) -> Result<u64, Error> {
        let shared = &self.0;
        match shared.waiting.take() {
            Some(other) => {
                shared.brought.set(Some(number));
                shared.changed.happened();
                Ok(other)
            }
            None => {
                shared.waiting.set(Some(number));
                Ok(shared.changed.until(|| shared.brought.take()).await)
            }
        }
    }
}

fn serve() -> Result<Infallible, Error> {
    let shared = Rc::new(Shared::default());
    let server = Server::new(move |_: &Visitor| Ok(TallyStub(Session(Rc::clone(&shared)))))?;
    let door = server.door().reference().map_err(rt::error_of)?;
    rt::thread::spawn(move || loop {
        // Refused while the name is ours.
        let _ = rt::names::register_with(NAME, &door, &door);
        time::sleep(AGAIN);
    })
    .map_err(rt::error_of)?;
    server.run()
}
