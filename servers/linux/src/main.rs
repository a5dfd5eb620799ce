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
use proto::process::Reply;
use proto::Error;
use rt::obj::Ref;
use rt::process::Client;
use rt::server::{decode, Event, Server};

use table::Table;

rt::entry!(main);

/// Alias of the service port.
const SERVICE: u64 = u64::MAX;
/// Alias of the supervisor's port.
const SUPERVISOR: u64 = u64::MAX - 2;
/// With the number of a process: alias of its control port.
const CONTROL: u64 = 1 << 32;
/// Alias of the port that the helper thread calls to wake the event loop.
const HELPER: u64 = u64::MAX - 1;

/// An event, without borrows of the server.
enum Came {
    Answer(Result<table::Answer, Error>),
    Exception { pid: u32, message: ExceptionMessage },
    Poke,
    TimedOut,
    Other,
}

/// Starts a thread that wakes the event loop when the state of the console has changed.
fn start_helper(server: &Server) -> Result<(), Error> {
    let port = server.port(HELPER).map_err(rt::error_of)?;
    let reference = port.reference().map_err(rt::error_of)?;
    // The port lives as long as the server.
    core::mem::forget(port);
    let console = rt::start::passed(world::CONSOLE).ok_or(Error::Denied)?;
    rt::console::watch(&console, move || reference.poke())
}

/// Answers a request to one of the ports of the service.
fn request(
    table: &mut Table,
    server: &Server,
    alias: u64,
    header: &[u8],
    bulk: &[u8],
    refs: Vec<Ref>,
) -> Result<table::Answer, Error> {
    match alias {
        SERVICE => table.manage(server, decode(header)?, &refs),
        SUPERVISOR => table.supervise(&decode(header)?),
        alias if alias & !0xffff_ffff == CONTROL => {
            table.serve(alias as u32, decode(header)?, bulk, refs)
        }
        _ => Err(Error::Invalid),
    }
}

fn run() -> Result<(), Error> {
    let mut server = Server::new().map_err(rt::error_of)?;
    let port = server.port(SERVICE).map_err(rt::error_of)?;
    if let Err(error) = start_helper(&server) {
        rt::log!("linux: the console cannot be watched: {}", error.text());
    }
    let supervisor = server.port(SUPERVISOR).map_err(rt::error_of)?;
    let [port, supervisor] = [port.reference(), supervisor.reference()];
    rt::names::register_with(
        "linux",
        &*port.map_err(rt::error_of)?,
        &*supervisor.map_err(rt::error_of)?,
    )?;
    let mut table = Table::new(Client::new("native")?);
    loop {
        let came = match server.next(table.deadline()) {
            Event::Request {
                alias,
                header,
                bulk,
                refs,
            } => {
                // The answer needs the server itself, to make ports.
                let (bulk, header) = (bulk.to_vec(), header.to_vec());
                Came::Answer(request(&mut table, &server, alias, &header, &bulk, refs))
            }
            Event::Exception { alias, message } => match u32::try_from(alias) {
                Ok(pid) => Came::Exception { pid, message },
                Err(_) => Came::Other,
            },
            Event::Poke { alias: HELPER } => Came::Poke,
            Event::TimedOut => Came::TimedOut,
            _ => Came::Other,
        };
        match came {
            Came::Answer(Ok(answer)) => {
                let refs: Vec<&rt::obj::RefAt> =
                    answer.refs.iter().map(core::ops::Deref::deref).collect();
                server.reply(&Ok(answer.reply), &answer.bulk, &refs);
            }
            Came::Answer(Err(error)) => server.reply::<Reply>(&Err(error), &[], &[]),
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
