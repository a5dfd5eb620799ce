//! Tests of the console on the host, with a simulated 16550.

extern crate std;

use crate::Console;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use interface::Error;
use services::console::{Event, Mode};
use uart::Ports;

/// A 16550 as the driver sees it. `slots` is how many bytes it sends before the other side stops it.
#[derive(Default)]
struct Device {
    arrived: VecDeque<u8>,
    sent: Vec<u8>,
    fifo: VecDeque<u8>,
    slots: usize,
    enabled: u8,
    line_control: u8,
    transmit_pending: bool,
    overrun: bool,
}

impl Device {
    /// Sends bytes over the line, as many as `slots` allows.
    fn run(&mut self) {
        let before = self.fifo.len();
        while self.slots > 0 {
            let Some(byte) = self.fifo.pop_front() else {
                break;
            };
            self.sent.push(byte);
            self.slots -= 1;
        }
        if before > 0 && self.fifo.is_empty() {
            self.transmit_pending = true;
        }
    }

    /// Whether the interrupt line is raised.
    fn interrupts(&self) -> bool {
        self.enabled & 1 != 0 && !self.arrived.is_empty()
            || self.enabled & 2 != 0 && self.transmit_pending
    }
}

#[derive(Clone)]
struct Bus(Rc<RefCell<Device>>);

impl Ports for Bus {
    fn read(&mut self, port: u8) -> u8 {
        let mut device = self.0.borrow_mut();
        match port {
            0 => device.arrived.pop_front().unwrap_or(0),
            2 => {
                if device.arrived.is_empty() || device.enabled & 1 == 0 {
                    device.transmit_pending = false;
                }
                1
            }
            5 => {
                let empty = device.fifo.is_empty();
                u8::from(!device.arrived.is_empty()) | if empty { 0x60 } else { 0 }
            }
            _ => 0,
        }
    }

    fn write(&mut self, port: u8, value: u8) {
        let mut device = self.0.borrow_mut();
        match port {
            0 if device.line_control & 0x80 == 0 => {
                device.transmit_pending = false;
                if device.fifo.len() == 16 {
                    device.overrun = true;
                } else {
                    device.fifo.push_back(value);
                }
                if device.fifo.len() == 16 {
                    device.run();
                }
            }
            1 if device.line_control & 0x80 == 0 => {
                device.enabled = value;
                if value & 2 != 0 && device.fifo.is_empty() {
                    device.transmit_pending = true;
                }
            }
            3 => device.line_control = value,
            _ => {}
        }
    }
}

/// A device that always has another byte, and takes all output.
struct Endless(Rc<RefCell<u32>>);

impl Ports for Endless {
    fn read(&mut self, port: u8) -> u8 {
        *self.0.borrow_mut() += 1;
        assert!(
            *self.0.borrow() < 100_000,
            "S3: a device that always has more holds up nobody"
        );
        match port {
            // Now and then Ctrl-C.
            0 if self.0.borrow().is_multiple_of(50) => 3,
            0 => b'x',
            5 => 0x21,
            _ => 0,
        }
    }

    fn write(&mut self, _: u8, _: u8) {}
}

#[test]
fn a_device_that_always_has_more_holds_up_nobody() {
    for interactive in [true, false] {
        let reads = Rc::new(RefCell::new(0));
        let mut console = Console::new(Endless(Rc::clone(&reads)), interactive);
        for _ in 0..3 {
            *reads.borrow_mut() = 0;
            assert!(console.pump(), "S3: Ctrl-C is an event");
            assert!(console.has_more());
            // Three reads for each byte of input, and few for the echo.
            assert!(*reads.borrow() < 2000, "{}", reads.borrow());
            assert_eq!(console.take_event(), Some(Event::Interrupt));
        }
        assert_eq!(console.write(&[b'y'; 50_000]), 50_000);
    }
    let mut machine = Machine::new(true);
    machine.console.pump();
    assert!(!machine.console.has_more(), "what has no byte has no more");
}

struct Machine {
    console: Console<Bus>,
    bus: Bus,
}

impl Machine {
    fn new(interactive: bool) -> Self {
        let bus = Bus(Rc::default());
        bus.0.borrow_mut().slots = usize::MAX;
        Machine {
            console: Console::new(bus.clone(), interactive),
            bus,
        }
    }

    /// Serves interrupts until there are none.
    fn settle(&mut self) -> bool {
        let mut news = false;
        loop {
            self.bus.0.borrow_mut().run();
            if !self.bus.0.borrow().interrupts() {
                return news;
            }
            news |= self.console.pump();
        }
    }

    /// Lets bytes arrive. Returns whether there was news for watchers.
    fn type_in(&mut self, bytes: &[u8]) -> bool {
        self.bus.0.borrow_mut().arrived.extend(bytes);
        self.settle()
    }

    /// The output since the last call.
    fn shown(&mut self) -> String {
        self.settle();
        assert!(!self.bus.0.borrow().overrun);
        let sent = core::mem::take(&mut self.bus.0.borrow_mut().sent);
        String::from_utf8(sent).unwrap()
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = self.console.write(bytes);
        self.console.pump();
        taken
    }

    fn line(&mut self) -> Result<String, Error> {
        self.console
            .read(4096)
            .map(|bytes| String::from_utf8(bytes).unwrap())
    }
}

#[test]
fn a_line_is_echoed_and_read_when_it_is_complete() {
    let mut m = Machine::new(true);
    assert!(!m.type_in(b"hel"));
    assert_eq!(m.line(), Err(Error::WouldBlock));
    assert!(m.type_in(b"lo\rnext\n"));
    assert_eq!(m.shown(), "hello\nnext\n");
    assert_eq!(m.console.read(2).unwrap(), b"he");
    assert_eq!(m.line().unwrap(), "llo\n");
    assert_eq!(m.line().unwrap(), "next\n");
    assert_eq!(m.line(), Err(Error::WouldBlock));
}

#[test]
fn typing_can_be_taken_back() {
    let mut m = Machine::new(true);
    m.type_in(b"ab\x7fc\x08d\r");
    assert_eq!(m.line().unwrap(), "ad\n");
    assert_eq!(m.shown(), "ab\x08 \x08c\x08 \x08d\n");
    m.type_in(b"one two  \x17x\r");
    assert_eq!(m.line().unwrap(), "one x\n");
    m.type_in(b"all gone\x15\x7f\x17kept\r");
    assert_eq!(m.line().unwrap(), "kept\n");
    m.shown();
    m.type_in("é\x7f\x01\x7f\r".as_bytes());
    assert_eq!(m.line().unwrap(), "\n");
    assert_eq!(m.shown(), "é\x08 \x08^A\x08 \x08\x08 \x08\n");
}

#[test]
fn control_d_ends_input() {
    let mut m = Machine::new(true);
    m.type_in(b"part\x04\x04rest\r");
    assert_eq!(m.line().unwrap(), "part");
    assert_eq!(m.line().unwrap(), "");
    assert_eq!(m.line().unwrap(), "rest\n");
    assert_eq!(m.line(), Err(Error::WouldBlock));
}

#[test]
fn control_c_and_control_z_are_events() {
    let mut m = Machine::new(true);
    assert!(m.type_in(b"lost\x03"));
    assert!(m.type_in(b"\x1a"));
    assert_eq!(m.shown(), "lost^C\n^Z\n");
    assert_eq!(m.console.take_event(), Some(Event::Interrupt));
    assert_eq!(m.console.take_event(), Some(Event::Suspend));
    assert_eq!(m.console.take_event(), None);
    m.type_in(&[3; 100]);
    let events = core::iter::from_fn(|| m.console.take_event()).count();
    assert_eq!(events, 16, "S2: events that wait are bounded");
    m.type_in(b"fine\r");
    assert_eq!(m.line().unwrap(), "fine\n");
}

#[test]
fn a_script_sees_every_byte_unchanged() {
    let mut m = Machine::new(false);
    assert_eq!(m.write(b"a\nb\r\n\x7f\x00"), 7);
    assert_eq!(m.shown(), "a\nb\r\n\x7f\x00");
    m.type_in(b"x\x7fy\r\x15\nlast\x04\x04");
    assert_eq!(m.line().unwrap(), "x\x7fy\r\x15\n");
    assert_eq!(m.line().unwrap(), "last");
    assert_eq!(m.line().unwrap(), "");
    assert_eq!(m.shown(), "");
    // More than fits stays in the device until it is read.
    let bytes: Vec<u8> = (0..200_000u32).map(|i| b'a' + (i % 26) as u8).collect();
    m.type_in(&bytes);
    assert!(!m.bus.0.borrow().arrived.is_empty());
    let mut read = Vec::new();
    while read.len() < 196_608 {
        read.extend(m.console.read(1000).unwrap());
        m.console.pump();
        m.settle();
    }
    m.type_in(b"\x04");
    while let Some(more) = m.console.read(1000).ok().filter(|more| !more.is_empty()) {
        read.extend(more);
    }
    assert!(read == bytes);
}

#[test]
fn raw_mode_keeps_lines_from_others() {
    let mut m = Machine::new(true);
    m.console.set_mode(Mode::Raw);
    assert!(m.type_in(b"\x1b[A\x03"));
    assert_eq!(m.shown(), "");
    assert_eq!(m.line(), Err(Error::WouldBlock));
    assert_eq!(m.console.read_raw(1).unwrap(), b"\x1b");
    assert_eq!(m.console.read_raw(100).unwrap(), b"[A\x03");
    assert_eq!(m.console.read_raw(100), Err(Error::WouldBlock));
    assert_eq!(m.console.take_event(), None);
    // Typed ahead in raw mode, read in cooked mode, and the other way round.
    m.type_in(b"ahead\rpart");
    assert!(m.console.set_mode(Mode::Cooked));
    assert_eq!(m.console.read_raw(1), Err(Error::WouldBlock));
    assert_eq!(m.line().unwrap(), "ahead\n");
    m.type_in(b"\rmore\r\x04");
    assert!(m.console.set_mode(Mode::Raw));
    assert_eq!(m.console.read_raw(100).unwrap(), b"part\nmore\n\x04");
    m.type_in(b"kill it\x03");
    assert!(m.console.set_mode(Mode::Cooked));
    assert_eq!(m.console.take_event(), Some(Event::Interrupt));
}

/// In quiet mode lines are read, edited, ended and interrupted as usual, without echo.
#[test]
fn quiet_mode_shows_nothing_that_is_typed() {
    let mut m = Machine::new(true);
    m.type_in(b"seen\rand");
    assert_eq!(m.shown(), "seen\nand");
    // The change brings no news: the lines stay as they were.
    assert!(!m.console.set_mode(Mode::Quiet));
    assert!(m.console.is_readable(Mode::Cooked) && m.console.is_readable(Mode::Quiet));
    assert!(!m.console.is_readable(Mode::Raw));
    assert_eq!(m.console.read_raw(1), Err(Error::WouldBlock));
    assert_eq!(m.line().unwrap(), "seen\n");
    m.type_in(b" secrex\x7f\x7fet\x01\x17more words\x15secret\r");
    assert_eq!(m.line().unwrap(), "secret\n");
    m.type_in(&[b'x'; 5000]);
    m.type_in(b"\x03");
    assert_eq!(m.console.take_event(), Some(Event::Interrupt));
    m.type_in(b"\x04");
    assert_eq!(m.line().unwrap(), "");
    assert_eq!(m.shown(), "", "a password is shown");
    // Bytes typed ahead in raw mode are not echoed either, and none is lost.
    m.console.set_mode(Mode::Raw);
    m.type_in(b"pass\rwo");
    assert!(m.console.set_mode(Mode::Quiet));
    assert_eq!(m.line().unwrap(), "pass\n");
    assert!(!m.console.set_mode(Mode::Cooked));
    m.type_in(b"rd\r");
    assert_eq!(m.line().unwrap(), "word\n");
    assert_eq!(m.shown(), "rd\n");
}

#[test]
fn output_waits_for_a_slow_line() {
    let mut m = Machine::new(false);
    m.bus.0.borrow_mut().slots = 100;
    let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
    let mut done = m.write(&bytes);
    assert!(done < bytes.len());
    assert_eq!(m.write(&bytes[done..]), 0);
    assert!(!m.console.is_drained());
    while done < bytes.len() {
        m.bus.0.borrow_mut().slots += 3000;
        // There is news for watchers when there is room again.
        while !m.settle() {
            m.bus.0.borrow_mut().slots += 100;
        }
        done += m.write(&bytes[done..]);
    }
    m.bus.0.borrow_mut().slots = usize::MAX;
    m.settle();
    assert!(m.console.is_drained());
    assert!(m.bus.0.borrow().sent == bytes);
    assert!(!m.bus.0.borrow().overrun);
}

#[test]
fn a_person_can_type_while_the_queues_are_full() {
    let mut m = Machine::new(true);
    m.bus.0.borrow_mut().slots = 0;
    m.write(&[b'x'; 100_000]);
    m.bus.0.borrow_mut().slots = usize::MAX;
    m.bus.0.borrow_mut().fifo.clear();
    assert!(m.type_in(b"seen\r"));
    assert!(
        m.shown().ends_with("seen\n"),
        "S1: a program that writes hides what is typed"
    );
    assert_eq!(m.line().as_deref(), Ok("seen\n"));
    m.bus.0.borrow_mut().slots = 0;
    m.type_in(&[b'y'; 10_000]);
    m.type_in(&[b'\r'; 100_000]);
    m.type_in(b"\x03");
    assert_eq!(m.console.take_event(), Some(Event::Interrupt));
    m.type_in(b"ok\r");
    assert_eq!(m.line().unwrap(), "ok\n");
}

#[test]
fn lines_that_nobody_reads_are_dropped_at_some_point() {
    const MOST: usize = 64 * 1024;
    let mut machine = Machine::new(true);
    machine.type_in(&[b'\n'; 3 * MOST]);
    let mut waiting = 0;
    while machine.line().is_ok_and(|line| line == "\n") {
        waiting += 1;
    }
    assert_eq!(waiting, MOST, "the last ones were dropped");
    machine.type_in(b"on\n");
    assert_eq!(machine.line().as_deref(), Ok("on\n"));
}

/// Ends of input take no bytes, and bytes in raw mode are not lines: both have a bound of their own.
#[test]
fn what_nobody_reads_is_bounded_in_every_form() {
    const MOST: usize = 64 * 1024;
    let mut machine = Machine::new(true);
    machine.type_in(&[4; 2 * MOST]);
    let mut ends = 0;
    while machine.line().as_deref() == Ok("") {
        ends += 1;
    }
    assert_eq!(ends, MOST, "S2: ends of input that wait are bounded");
    machine.console.set_mode(Mode::Raw);
    machine.type_in(&[b'r'; 2 * MOST]);
    let raw = machine.console.read_raw(3 * MOST).expect("bytes");
    assert_eq!(
        raw.len(),
        MOST,
        "S2: bytes that wait in raw mode are bounded"
    );
}

#[test]
fn a_line_is_so_long_and_no_longer() {
    let mut machine = Machine::new(true);
    machine.type_in(&[b'x'; 70_000]);
    machine.type_in(b"\r");
    let line = machine.console.read(100_000).expect("a line");
    assert_eq!(line.len(), 4096, "S2: a line that is typed is bounded");
    assert_eq!(machine.line(), Err(Error::WouldBlock));
}
