//! Client of the console server.
use crate::obj::{Ref, RefAt};
use crate::rpc::{self, Io};
use crate::sync::Lazy;
pub use proto::console::{Event, Mode};
use proto::console::{Reply, Request};
use proto::{Error, MAX_BULK};

static PORT: Lazy<Ref> = Lazy::new();

/// How long to wait for the console to be there, in nanoseconds.
const PATIENCE: u64 = 5_000_000_000;

/// How long to wait at most before asking again, should an interrupt have gone to someone else in
/// this program.
const AGAIN: u64 = 20_000_000;

/// Tells the console's port to a program that has no name service (it is the name service).
pub fn set_port(port: Ref) {
    PORT.set(port);
}

/// The console's port.
pub fn port() -> Result<&'static Ref, Error> {
    PORT.get(|| crate::names::wait_for("console", crate::time::now() + PATIENCE))
}

fn done(request: Request) -> Result<(), Error> {
    match rpc::ask(port()?, &request)? {
        Reply::Done => Ok(()),
        _ => Err(Error::Broken),
    }
}

/// Writes what the console takes at once, perhaps nothing.
pub fn write(from: &[u8]) -> Result<usize, Error> {
    let from = &from[..from.len().min(MAX_BULK)];
    let mut io = Io {
        bulk: from,
        ..Io::default()
    };
    match rpc::call(port()?, &Request::Write, &mut io)? {
        Reply::Written(length) if length as usize <= from.len() => Ok(length as usize),
        _ => Err(Error::Broken),
    }
}

/// Writes everything, waiting when the console is busy.
pub fn write_all(from: &[u8]) -> Result<(), Error> {
    let mut rest = from;
    let mut watching = false;
    while !rest.is_empty() {
        let length = write(rest)?;
        rest = &rest[length..];
        if length == 0 {
            wait(&mut watching)?;
        }
    }
    Ok(())
}

/// Reads at most `to.len()` bytes, or [`Error::WouldBlock`]; 0 at the end of input.
pub fn read(to: &mut [u8]) -> Result<usize, Error> {
    let length = to.len().min(MAX_BULK);
    let mut io = Io {
        bulk_in: &mut to[..length],
        ..Io::default()
    };
    match rpc::call(
        port()?,
        &Request::Read {
            length: length as u32,
        },
        &mut io,
    )? {
        Reply::Done => Ok(io.bulk_len),
        _ => Err(Error::Broken),
    }
}

/// Reads at most `to.len()` bytes as they arrived in raw mode, or [`Error::WouldBlock`].
pub fn read_raw(to: &mut [u8]) -> Result<usize, Error> {
    let length = to.len().min(MAX_BULK);
    let mut io = Io {
        bulk_in: &mut to[..length],
        ..Io::default()
    };
    match rpc::call(
        port()?,
        &Request::ReadRaw {
            length: length as u32,
        },
        &mut io,
    )? {
        Reply::Done => Ok(io.bulk_len),
        _ => Err(Error::Broken),
    }
}

/// As [`read`], but waits for input. Interrupts of the calling thread are consumed.
pub fn read_waiting(to: &mut [u8]) -> Result<usize, Error> {
    let mut watching = false;
    loop {
        match read(to) {
            Err(Error::WouldBlock) => wait(&mut watching)?,
            result => return result,
        }
    }
}

/// Waits for the console to announce something; the first time only registers the thread, so that
/// what happens between the question and the wait is not missed.
fn wait(watching: &mut bool) -> Result<(), Error> {
    if *watching {
        crate::sys::thread_wait_interrupt_until(crate::time::now() + AGAIN);
    } else {
        watch(&*crate::thread::current().map_err(crate::error_of)?)?;
        *watching = true;
    }
    Ok(())
}

/// From now on the thread is interrupted whenever input or an event arrives, or output has room
/// again.
pub fn watch(thread: &RefAt) -> Result<(), Error> {
    let mut io = Io {
        refs: &[thread],
        ..Io::default()
    };
    match rpc::call(port()?, &Request::Watch, &mut io)? {
        Reply::Done => Ok(()),
        _ => Err(Error::Broken),
    }
}

/// Sets how input is treated.
pub fn set_mode(mode: Mode) -> Result<(), Error> {
    done(Request::SetMode(mode))
}

/// The oldest event, if there is one.
pub fn take_event() -> Result<Option<Event>, Error> {
    match rpc::ask(port()?, &Request::TakeEvent)? {
        Reply::Event(event) => Ok(event),
        _ => Err(Error::Broken),
    }
}

/// Waits until all output has left the machine, at most until the deadline.
pub fn drain(deadline: u64) -> Result<(), Error> {
    loop {
        match done(Request::Drained) {
            Err(Error::WouldBlock) if crate::time::now() < deadline => {
                crate::time::sleep(1_000_000);
            }
            result => return result,
        }
    }
}
