//! The Linux personality's server: an event loop over one port for each process.
//!
//! A Linux process is a space marked foreign, whose keeper is the process's port here. Each `syscall` instruction and
//! each exception is one event; the emulation (the library of this package) decides how the thread continues. A call
//! that has to wait is *parked*: the exception is released, and the call is made again when the console has news, its
//! deadline passes, or the process is thawed. All of that happens between two events of one thread, so a checkpoint,
//! which is an event too, finds every call either done or not begun.
//!
//! * [`table`]: the processes and the operations on them; [`world`]: the emulation's host; [`disk`]: the thread that
//!   asks the disk; [`net`]: the thread that asks the network; [`pace`]: turns of programs between the steps of long
//!   work.
//! * [`control`]: the interfaces of a manager of processes ([`services::process`]).
#![no_std]
#![no_main]

extern crate alloc;

mod clock;
mod control;
mod disk;
mod net;
mod pace;
mod table;
mod world;

use alloc::rc::Rc;
use core::cell::RefCell;
use core::convert::Infallible;
use core::sync::atomic::{AtomicBool, Ordering};
use interface::Server;
use proto::Error;
use rt::obj::Portset;

use control::Personality;
use pace::Pace;
use table::Table;

rt::entry!(main);

/// Set when the console has news.
static NEWS: AtomicBool = AtomicBool::new(false);

fn run() -> Result<Infallible, Error> {
    rt::heap::want(0)?;
    let portset = Portset::new().map_err(rt::error_of)?;
    let portset_ref = portset.reference().map_err(rt::error_of)?;
    let supervisor = control::supervisor(*portset_ref).map_err(rt::error_of)?;
    let table = Rc::new(RefCell::new(Table::new(portset_ref)));
    let mut server = Server::on(portset, Personality::new(Rc::clone(&table)))?;
    server.knows(rt::names::job_of, rt::heap::want);
    if let Err(error) = watch_console(&server) {
        rt::log!("linux: the console cannot be watched: {}", error.text());
    }
    disk::set_bell(server.bell()?);
    net::set_bell(server.bell()?);
    table::set_bell(server.bell()?);
    let pace = Pace::new(server.bell()?).map_err(rt::error_of)?;
    table.borrow_mut().set_pace(pace);
    let door = server.door().reference().map_err(rt::error_of)?;
    rt::names::register_with("linux", &door, &supervisor)?;
    server.run()
}

/// Starts a thread that wakes the server when the state of the console has changed.
fn watch_console(server: &control::PersonalityServer) -> Result<(), Error> {
    let bell = server.bell()?;
    let console = rt::start::passed(world::CONSOLE).ok_or(Error::Denied)?;
    rt::console::watch(&console, move || {
        NEWS.store(true, Ordering::Release);
        bell.poke()
    })
}

fn main() -> u8 {
    let Err(error) = run();
    rt::log!("linux: {}", error.text());
    1
}
