//! The Linux personality's server: an event loop over one port for each process.
//!
//! A Linux process is a space marked foreign, whose keeper is the process's port here (alias: its
//! number). Each `syscall` instruction and each exception comes as one event; the emulation
//! (the library of this package) says what becomes of the thread. A call that has to wait is
//! *parked*: the exception is released, and the call is made again when the console has news, its
//! deadline passes, or the process is thawed. All of that happens between two events of one
//! thread, so a checkpoint, which is an event too, finds every call either done or not begun.
//!
//! * [`table`]: the processes and what is done with them; [`world`]: the emulation's host.
//! * The service port speaks [`proto::process`]; it is registered as `linux`.
#![no_std]
#![no_main]

extern crate alloc;

mod table;
mod world;

use abi::message::ExceptionMessage;
use alloc::vec::Vec;
use proto::process::Request;
use proto::Error;
use rt::obj::Ref;
use rt::server::{decode, Event, Server};

use table::Table;

rt::entry!(main);

/// Alias of the service port.
const SERVICE: u64 = u64::MAX;
/// Alias of the port by which the helper thread makes the loop turn.
const HELPER: u64 = u64::MAX - 1;

/// What an event was, without its borrows.
enum Came {
    Request {
        request: Result<Request, Error>,
        bulk: Vec<u8>,
        refs: Vec<Ref>,
    },
    Exception {
        pid: u32,
        message: ExceptionMessage,
    },
    Poke,
    TimedOut,
    Other,
}

/// A thread that passes the console's interrupts on to the event loop.
fn start_helper(server: &Server) -> Result<(), Error> {
    let port = server.port(HELPER).map_err(rt::error_of)?;
    let reference = port.reference().map_err(rt::error_of)?;
    // The port lives as long as the server.
    core::mem::forget(port);
    let watch = move || {
        let Ok(me) = rt::thread::current() else {
            return;
        };
        if let Err(error) = rt::console::watch(&me) {
            rt::log!("linux: the console cannot be watched: {}", error.text());
            return;
        }
        loop {
            rt::sys::thread_wait_interrupt();
            if rt::server::poke(&reference).is_err() {
                return;
            }
        }
    };
    rt::thread::spawn(watch).map(|_| ()).map_err(rt::error_of)
}

fn run() -> Result<(), Error> {
    let mut server = Server::new().map_err(rt::error_of)?;
    let port = server.port(SERVICE).map_err(rt::error_of)?;
    start_helper(&server)?;
    rt::names::register("linux", &port)?;
    let mut table = Table::new();
    loop {
        let came = match server.next(table.deadline()) {
            Event::Request {
                alias: SERVICE,
                header,
                bulk,
                refs,
            } => Came::Request {
                request: decode(header),
                bulk: bulk.to_vec(),
                refs,
            },
            Event::Exception { alias, message } => match u32::try_from(alias) {
                Ok(pid) => Came::Exception { pid, message },
                Err(_) => Came::Other,
            },
            Event::Poke { alias: HELPER } => Came::Poke,
            Event::TimedOut => Came::TimedOut,
            _ => Came::Other,
        };
        match came {
            Came::Request {
                request,
                bulk,
                refs,
            } => {
                let answer =
                    request.and_then(|request| table.request(&server, request, &bulk, refs));
                match answer {
                    Ok(answer) => {
                        let refs: Vec<&rt::obj::RefAt> =
                            answer.refs.iter().map(core::ops::Deref::deref).collect();
                        server.reply(&Ok(answer.reply), &answer.bulk, &refs);
                    }
                    Err(error) => server.reply::<proto::process::Reply>(&Err(error), &[], &[]),
                }
            }
            Came::Exception { pid, message } => table.exception(&mut server, pid, &message),
            Came::Poke => table.console_news(),
            Came::TimedOut => {}
            Came::Other => server.drop_client(),
        }
        table.settle();
    }
}

fn main() -> u8 {
    if let Err(error) = run() {
        rt::log!("linux: {}", error.text());
    }
    1
}
