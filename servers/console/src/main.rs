//! The console server.
//!
//! Two threads share the [`Console`]: the server's own answers requests, the other waits for the
//! device's interrupt and moves bytes. Both leave the device so that it interrupts again when there
//! is something to do.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec::Vec;
use fermata_console::uart::Ports;
use fermata_console::Console;
use proto::console::{Reply, Request};
use proto::Error;
use rt::obj::{Ref, RefAt};
use rt::server::{decode, Event, Server};
use rt::sync::Mutex;
use rt::{sys, thread, Code};

rt::entry!(main);

/// First port of COM1.
const PORTS: u16 = 0x3f8;
/// Number of its ports.
const PORT_COUNT: u64 = 8;
/// Its interrupt line.
const LINE: u64 = 4;
/// Priority of the thread that moves bytes: the device must not overrun.
const PRIORITY: u64 = proto::layout::PRIORITY_FILES + 1;
/// Most watchers. Those whose thread is gone are forgotten first.
const MAX_WATCHERS: usize = 1024;

/// The ports of COM1, granted to this space.
#[derive(Debug)]
struct Com1;

impl Ports for Com1 {
    fn read(&mut self, port: u8) -> u8 {
        let value: u8;
        // SAFETY: reading a port of the UART touches no memory.
        unsafe {
            core::arch::asm!("in al, dx", out("al") value, in("dx") PORTS + u16::from(port),
                options(nomem, nostack, preserves_flags));
        }
        value
    }

    fn write(&mut self, port: u8, value: u8) {
        // SAFETY: writing a port of the UART touches no memory.
        unsafe {
            core::arch::asm!("out dx, al", in("al") value, in("dx") PORTS + u16::from(port),
                options(nomem, nostack, preserves_flags));
        }
    }
}

struct Shared {
    console: Console<Com1>,
    /// Threads to interrupt when there is something new.
    watchers: Vec<Ref>,
    /// The watcher that is looked at next, whether it is still there.
    suspect: usize,
}

/// Watchers that are looked at for each new one: more than come, so that those whose threads are gone are soon
/// few, however long nothing is announced.
const SUSPECTS: usize = 2;

static SHARED: Mutex<Option<Shared>> = Mutex::new(None);

impl Shared {
    /// Tells the watchers.
    fn announce(&mut self) {
        self.watchers.retain(|watcher| watcher.interrupt().is_ok());
    }

    /// Forgets some of the watchers whose threads are gone.
    fn forget_some(&mut self) {
        for _ in 0..SUSPECTS {
            match self.watchers.get(self.suspect) {
                Some(watcher) if watcher.kind() == abi::RefKind::Thread => self.suspect += 1,
                Some(_) => drop(self.watchers.swap_remove(self.suspect)),
                None => self.suspect = 0,
            }
        }
    }

    /// Adds a watcher, unless it is one already.
    fn watch(&mut self, watcher: Ref) -> Result<(), Error> {
        if watcher.kind() != abi::RefKind::Thread {
            return Err(Error::Invalid);
        }
        self.forget_some();
        if self.watchers.iter().any(|known| known.same_as(*watcher)) {
            return Ok(());
        }
        if self.watchers.len() >= MAX_WATCHERS {
            self.announce();
        }
        if self.watchers.len() >= MAX_WATCHERS {
            return Err(Error::NoMemory);
        }
        self.watchers.push(watcher);
        Ok(())
    }

    /// Moves bytes and tells the watchers what came of it.
    fn pump(&mut self) {
        if self.console.pump() {
            self.announce();
        }
    }
}

/// Moves bytes whenever the device interrupts.
fn serve_interrupts() {
    loop {
        sys::thread_wait_interrupt();
        if let Some(shared) = SHARED.lock().as_mut() {
            shared.pump();
        }
    }
}

/// Gets the ports and the interrupt, by the authority that init passed on.
fn attach(authority: RefAt) -> Result<(), Code> {
    rt::obj::done(sys::device_grant_ports(
        authority.handle(),
        rt::start::SPACE.handle(),
        u64::from(PORTS),
        PORT_COUNT,
    ))?;
    let interactive = !rt::start().args.iter().any(|argument| argument == "script");
    *SHARED.lock() = Some(Shared {
        console: Console::new(Com1, interactive),
        watchers: Vec::new(),
        suspect: 0,
    });
    let thread = thread::spawn_at(PRIORITY, serve_interrupts)?.reference()?;
    rt::obj::done(sys::device_attach_interrupt(
        authority.handle(),
        thread.handle(),
        LINE,
    ))?;
    // What arrived before there was an interrupt.
    thread.interrupt()
}

/// Answers a request.
fn handle(header: &[u8], bulk: &[u8], refs: Vec<Ref>) -> Result<(Reply, Vec<u8>), Error> {
    let mut shared = SHARED.lock();
    let shared = shared.as_mut().ok_or(Error::Broken)?;
    let length = |length: u32| (length as usize).min(proto::MAX_BULK);
    let reply = match decode(header)? {
        Request::Write => Reply::Written(shared.console.write(bulk) as u32),
        Request::Read { length: wanted } => {
            let bytes = shared.console.read(length(wanted))?;
            // There may be room again for what the device holds back.
            shared.pump();
            return Ok((Reply::Done, bytes));
        }
        Request::ReadRaw { length: wanted } => {
            let bytes = shared.console.read_raw(length(wanted))?;
            shared.pump();
            return Ok((Reply::Done, bytes));
        }
        Request::Watch => {
            shared.watch(refs.into_iter().next().ok_or(Error::Invalid)?)?;
            Reply::Done
        }
        Request::SetMode(mode) => {
            if shared.console.set_mode(mode) {
                shared.announce();
            }
            Reply::Done
        }
        Request::TakeEvent => Reply::Event(shared.console.take_event()),
        Request::Drained => {
            if !shared.console.is_drained() {
                return Err(Error::WouldBlock);
            }
            Reply::Done
        }
    };
    shared.pump();
    Ok((reply, Vec::new()))
}

fn main() -> u8 {
    let Some(authority) = rt::start::passed(0) else {
        return 1;
    };
    if attach(authority).is_err() {
        return 1;
    }
    let Ok(mut server) = Server::new() else {
        return 1;
    };
    let Ok(port) = server.port(0) else { return 1 };
    if rt::names::register("console", &port).is_err() {
        return 1;
    }
    loop {
        match server.next(None) {
            Event::Request {
                header, bulk, refs, ..
            } => {
                let (reply, bytes) = match handle(header, bulk, refs) {
                    Ok((reply, bytes)) => (Ok(reply), bytes),
                    Err(error) => (Err(error), Vec::new()),
                };
                server.reply(&reply, &bytes, &[]);
            }
            _ => server.drop_client(),
        }
    }
}
