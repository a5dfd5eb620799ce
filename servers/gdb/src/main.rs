//! `gdb`: the debugger's server, at the machine's fourth serial port.
//!
//! Whoever is at the other end of that line has power over all processes, through the system port; the option `--gdb
//! PORT` of `./fermata run` chooses who that is. One thread does everything. Interrupts of the line wake it, and so
//! does a second thread for each process that is debugged, which waits for exceptions and the end of that process.
#![no_std]
#![no_main]

extern crate alloc;

mod held;
mod target;

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::RefCell;
use core::convert::Infallible;
use fermata_gdb::newcomer::Newcomer;
use gdbstub::conn::Connection;
use gdbstub::stub::state_machine::GdbStubStateMachine;
use gdbstub::stub::GdbStub;
use proto::Error;
use rt::{sys, thread, time};
use services::device::DevicesClient;
use target::Machine;
use uart::{Granted, Uart};

rt::entry!(main);

/// The fourth serial port: its first I/O port, the number of its I/O ports, and its interrupt line.
const PORTS: u16 = 0x2e8;
const PORT_COUNT: u64 = 8;
const LINE: u64 = 7;
/// The index of the reference to the device server's door among those passed, behind the system port.
const DOOR: usize = services::system::PASSED + 1;
/// Bytes of the longest packet.
const PACKET: usize = 16 << 10;

/// Bytes waiting to be sent, beyond which no input is taken. The answer to one packet can come on top.
const MOST_OUTPUT: usize = 4 * PACKET;

/// Most bytes taken in one go, and the pause after that many in nanoseconds, so that a device which always has another
/// byte leaves the processor to other programs.
const BURST: u32 = 1024;
const PAUSE: u64 = 1_000_000;

/// The serial line.
struct Line {
    uart: Uart<Granted>,
    /// What is still to be sent.
    output: VecDeque<u8>,
}

impl Line {
    /// Sends what the device takes, and asks it for an interrupt if something is left.
    fn pump(&mut self) {
        let output = &mut self.output;
        self.uart.send(|| output.pop_front());
        self.uart.enable(true, !self.output.is_empty());
    }
}

/// The line as the connection that the protocol writes to.
struct Writer(Rc<RefCell<Line>>);

impl Connection for Writer {
    type Error = Infallible;

    fn write(&mut self, byte: u8) -> Result<(), Infallible> {
        self.0.borrow_mut().output.push_back(byte);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        self.0.borrow_mut().pump();
        Ok(())
    }
}

type Stub = GdbStubStateMachine<'static, Machine, Writer>;

/// The protocol in its initial state.
fn stub(line: &Rc<RefCell<Line>>, machine: &mut Machine) -> Result<Stub, Error> {
    let stub = GdbStub::builder(Writer(Rc::clone(line)))
        .packet_buffer_size(PACKET)
        .build()
        .map_err(|_| Error::Broken)?;
    stub.run_state_machine(machine).map_err(|_| Error::Broken)
}

/// Gives the protocol one byte that has arrived. `None` if the protocol has failed and must begin again.
fn hear(stub: Stub, machine: &mut Machine, byte: u8) -> Option<Stub> {
    let next = match stub {
        GdbStubStateMachine::Idle(idle) => idle.incoming_data(machine, byte),
        GdbStubStateMachine::Running(running) => running.incoming_data(machine, byte),
        other => Ok(other),
    };
    next.ok()
}

/// Does what the protocol's state asks for without a further byte: handles Ctrl-C, reports a stop, or leaves the
/// process. `None` if the protocol has failed.
fn go_on(stub: Stub, machine: &mut Machine) -> Option<Stub> {
    match stub {
        GdbStubStateMachine::CtrlCInterrupt(interrupt) => {
            let reason = machine.interrupt();
            interrupt.interrupt_handled(machine, reason).ok()
        }
        GdbStubStateMachine::Running(running) => match machine.news() {
            Some(reason) => running.report_stop(machine, reason).ok(),
            None => Some(running.into()),
        },
        GdbStubStateMachine::Disconnected(ended) => {
            machine.leave();
            Some(ended.return_to_idle())
        }
        idle => Some(idle),
    }
}

fn serve() -> Result<Infallible, Error> {
    let door = rt::start::passed(DOOR).ok_or(Error::Denied)?;
    let mut devices = DevicesClient::open_known(&door)?;
    devices.grant_ports(u64::from(PORTS), PORT_COUNT, &rt::start::space())?;
    let line = Rc::new(RefCell::new(Line {
        uart: Uart::new(Granted(PORTS)),
        output: VecDeque::new(),
    }));
    let own = || thread::current().map_err(rt::error_of);
    devices.attach_line(LINE, &*own()?)?;
    let mut machine = Machine::new(own()?)?;
    let mut newcomer = Newcomer::default();
    let mut at = Some(stub(&line, &mut machine)?);
    loop {
        let mut left = BURST;
        let mut is_full = false;
        while left > 0 {
            left -= 1;
            // A debugger that does not read its answers gets no more of them.
            is_full = line.borrow().output.len() > MOST_OUTPUT;
            if is_full {
                break;
            }
            let byte = line.borrow_mut().uart.receive();
            let Some(byte) = byte else { break };
            if newcomer.begins(byte) {
                // The previous debugger is gone.
                machine.leave();
                line.borrow_mut().output.clear();
                let mut new = Some(stub(&line, &mut machine)?);
                for byte in Newcomer::said() {
                    new = new.and_then(|stub| hear(stub, &mut machine, *byte));
                }
                at = new;
                continue;
            }
            at = at
                .and_then(|stub| hear(stub, &mut machine, byte))
                .and_then(|stub| go_on(stub, &mut machine));
        }
        at = at.and_then(|stub| go_on(stub, &mut machine));
        if at.is_none() {
            // The protocol begins again; that loses nothing, since GDB's next request is a packet of its own.
            at = Some(stub(&line, &mut machine)?);
        }
        line.borrow_mut().pump();
        // The device sends no second interrupt for input that is already there, and none for sent output while its line
        // is up for input: so look again after a pause.
        match left == 0 || is_full {
            true => time::sleep(PAUSE),
            false => {
                sys::thread_wait_interrupt();
            }
        }
    }
}

fn main() -> u8 {
    let Err(error) = serve();
    rt::log!("gdb: {}", error.text());
    1
}
