//! The keeper of init's own space, on a thread of its own. After a failed guarded access it continues the thread where
//! the guard says. Any other exception of a thread of init ends the machine, with a line that says why.
use crate::control;
use abi::boot::ROOT_SPACE;
use abi::message::ExceptionMessage;
use core::fmt::{self, Write};
use interface::server::{own_port, park, Host, NoSessions, Resumption, Visitor, OWN};
use interface::Server;
use proto::Error;
use rt::guard::Gone;
use rt::obj::{Portset, SpaceAt};
use rt::{thread, Code};

/// Most bytes of the description of an exception.
const MOST: usize = 80;

/// A line that needs no heap; what does not fit is left out.
struct Line([u8; MOST], usize);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let length = text.len().min(MOST - self.1);
        self.0[self.1..self.1 + length].copy_from_slice(&text.as_bytes()[..length]);
        self.1 += length;
        Ok(())
    }
}

struct Keeper;

impl Host<NoSessions> for Keeper {
    const BYTES: bool = true;

    fn open(&mut self, _: &Visitor) -> Result<NoSessions, Error> {
        Err(Error::Unsupported)
    }

    fn exception(&mut self, _: u64, message: &ExceptionMessage, resumption: &mut Resumption) {
        if let Some(registers) = rt::guard::goes_on(message.code, &message.registers) {
            return resumption.all(&registers);
        }
        park();
        // The thread that met the exception may hold the lock of the heap.
        let mut line = Line([0; MOST], 0);
        let (code, rip) = (message.code, message.registers.rip);
        let at = message.address;
        let _ = write!(line, "exception {code} at {rip:#x}, address {at:#x}");
        control::write(&[b"panic init: ", &line.0[..line.1], b"\n"]);
        control::end();
    }
}

/// Tests the keeper: whether a guarded access to unmapped memory fails instead of ending the machine.
pub(crate) fn works() -> bool {
    rt::guard::are_zero(0, 1) == Err(Gone)
}

/// Starts the keeper, for all exceptions from here on. Its thread has no other clients and waits for nobody.
pub(crate) fn start(priority: u64) -> Result<(), Code> {
    let portset = Portset::new()?;
    let port = own_port(*portset.reference()?, OWN)?;
    let reference = port.reference()?;
    let space = SpaceAt(ROOT_SPACE);
    space.set_state(&space.get_state(0)?, reference.handle())?;
    thread::spawn_at(priority, move || {
        // The port and the reference live as long as init.
        core::mem::forget((port, reference));
        if let Ok(server) = Server::on(portset, Keeper) {
            server.run();
        }
    })?;
    Ok(())
}
