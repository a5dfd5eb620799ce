// SPDX-License-Identifier: GPL-2.0-or-later
//! Linux's drivers as servers; see README.md of the room. The C part is in `glue/`.
//!
//! The server's thread is the process-level thread of the driver set. The build chooses the service of a program; the
//! functions of the other services are not linked.
#![no_std]

extern crate alloc;

mod disk;
mod link;
mod sound;

use core::convert::Infallible;
use interface::server::{Event, Watchers};
use interface::Error;
use services::device::Reach;

rt::entry!(main);

/// The door that leads to the device. Door 0, which every program finds by name, leads nowhere.
const CONTROL: u64 = 1;

// Made by the build.
extern "C" {
    /// Offers this program's service: `lx_serve_link`, `lx_serve_disk` or `lx_serve_sound`.
    fn lx_serve();
    /// Bytes of memory that the device and its driver share.
    static lx_memory: u64;
    /// Whether a channel of ISA DMA has to reach that memory.
    static lx_isa: bool;
}

/// Something has arrived, is done, or there is work to do.
static CAME: Event = Event::new();
/// The watchers whose threads are interrupted then.
static WATCHERS: Watchers = Watchers::new();

/// The process-level thread is to look after the driver. Called from handlers, and from in the driver.
#[no_mangle]
extern "C" fn lx_came() {
    kit::later(|| {
        CAME.happened();
        WATCHERS.happened();
    });
}

/// Reports a driver that cannot be started.
fn failed(error: i32) -> Error {
    rt::log!("{}: error {error}", name());
    Error::Unsupported
}

/// Says why the service has ended.
fn ended(result: Result<Infallible, Error>) {
    let Err(error) = result;
    rt::log!("{}: {}", name(), error.text());
}

fn name() -> &'static str {
    rt::start()
        .args
        .first()
        .map_or("driver", |name| name.as_str())
}

/// Runs on the process-level thread.
fn drive() -> u8 {
    // SAFETY: one of the three functions, each of which is called nowhere else.
    unsafe { lx_serve() };
    1
}

fn main() -> u8 {
    // SAFETY: a number and a byte that stay as they are, the byte 0 or 1.
    let (memory, isa) = unsafe { (lx_memory, lx_isa) };
    let reach = if isa { Reach::Low } else { Reach::Bits32 };
    ended(kit::run(memory, reach, drive));
    1
}
