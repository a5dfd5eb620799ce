//! A driver for the 16550 UART.
//!
//! The registers are those of the National Semiconductor PC16550D data sheet. The driver never
//! waits for the device: it sends as much as fits, and asks for an interrupt when more does.
//!
//! The servers of serial lines use it: the console, and the debugger's. [`Ports`] is a trait so that tests can use a
//! simulated device.
#![no_std]

/// Access to the device's eight ports.
pub trait Ports {
    /// Reads port number `port`, 0 to 7.
    fn read(&mut self, port: u8) -> u8;
    /// Writes port number `port`, 0 to 7.
    fn write(&mut self, port: u8, value: u8);
}

/// The device whose first port this is. Its ports must be granted to the program's space.
#[derive(Debug)]
pub struct Granted(pub u16);

impl Ports for Granted {
    fn read(&mut self, port: u8) -> u8 {
        let value: u8;
        // SAFETY: reading a port of the UART touches no memory.
        unsafe {
            core::arch::asm!("in al, dx", out("al") value, in("dx") self.0 + u16::from(port),
                options(nomem, nostack, preserves_flags));
        }
        value
    }

    fn write(&mut self, port: u8, value: u8) {
        // SAFETY: writing a port of the UART touches no memory.
        unsafe {
            core::arch::asm!("out dx, al", in("al") value, in("dx") self.0 + u16::from(port),
                options(nomem, nostack, preserves_flags));
        }
    }
}

/// Receive and transmit buffer; with the latch bit set, low byte of the divisor.
const DATA: u8 = 0;
/// Interrupt enable; with the latch bit set, high byte of the divisor.
const INTERRUPT_ENABLE: u8 = 1;
/// Interrupt identification when read.
const INTERRUPT_ID: u8 = 2;
/// FIFO control when written.
const FIFO_CONTROL: u8 = 2;
const LINE_CONTROL: u8 = 3;
const MODEM_CONTROL: u8 = 4;
const LINE_STATUS: u8 = 5;

/// Interrupt when a byte has arrived.
const ENABLE_RECEIVE: u8 = 0x01;
/// Interrupt when the transmit FIFO is empty.
const ENABLE_TRANSMIT: u8 = 0x02;
/// FIFOs on and cleared, interrupt at 14 bytes received or after a pause.
const FIFO_14: u8 = 0xc7;
/// Eight data bits, no parity, one stop bit.
const EIGHT_N_ONE: u8 = 0x03;
/// Shows the divisor in place of the first two registers.
const DIVISOR_LATCH: u8 = 0x80;
/// Data terminal ready, request to send, and the output that lets interrupts through on a PC.
const DTR_RTS_OUT2: u8 = 0x0b;
const DATA_READY: u8 = 0x01;
const TRANSMIT_EMPTY: u8 = 0x20;
/// The line status that is read where there is no device. No device reports that: an error in the FIFO, a break and
/// all other conditions at once.
const NO_DEVICE: u8 = 0xff;
const TRANSMITTER_IDLE: u8 = 0x40;

/// Bytes that the transmit FIFO takes when it is empty.
const FIFO: usize = 16;
/// Most bytes sent in one go, so that input is handled in between.
const BURST: usize = 4096;

/// The device.
#[derive(Debug)]
pub struct Uart<P> {
    ports: P,
    enabled: u8,
}

impl<P: Ports> Uart<P> {
    /// Sets the device up: 115200 baud, 8N1, FIFOs on, interrupts on receive.
    pub fn new(mut ports: P) -> Self {
        ports.write(INTERRUPT_ENABLE, 0);
        ports.write(LINE_CONTROL, DIVISOR_LATCH);
        ports.write(DATA, 1);
        ports.write(INTERRUPT_ENABLE, 0);
        ports.write(LINE_CONTROL, EIGHT_N_ONE);
        ports.write(FIFO_CONTROL, FIFO_14);
        ports.write(MODEM_CONTROL, DTR_RTS_OUT2);
        ports.write(INTERRUPT_ENABLE, ENABLE_RECEIVE);
        Uart {
            ports,
            enabled: ENABLE_RECEIVE,
        }
    }

    /// The next byte that has arrived.
    pub fn receive(&mut self) -> Option<u8> {
        // Reading the identification takes back an interrupt that "transmitter empty" has raised,
        // so that the next one is seen as an edge.
        self.ports.read(INTERRUPT_ID);
        match self.ports.read(LINE_STATUS) {
            NO_DEVICE => None,
            status if status & DATA_READY != 0 => Some(self.ports.read(DATA)),
            _ => None,
        }
    }

    /// Sends the bytes that `next` returns, for as long as the device takes them.
    pub fn send(&mut self, mut next: impl FnMut() -> Option<u8>) {
        for _ in 0..BURST / FIFO {
            if self.ports.read(LINE_STATUS) & TRANSMIT_EMPTY == 0 {
                return;
            }
            for _ in 0..FIFO {
                let Some(byte) = next() else { return };
                self.ports.write(DATA, byte);
            }
        }
    }

    /// Sets which interrupts are wanted: bytes received, room to send.
    pub fn enable(&mut self, receive: bool, transmit: bool) {
        let wanted =
            if receive { ENABLE_RECEIVE } else { 0 } | if transmit { ENABLE_TRANSMIT } else { 0 };
        if wanted != self.enabled {
            self.enabled = wanted;
            self.ports.write(INTERRUPT_ENABLE, wanted);
        }
    }

    /// Whether the last bit of the last byte has been sent.
    pub fn is_idle(&mut self) -> bool {
        self.ports.read(LINE_STATUS) & TRANSMITTER_IDLE != 0
    }
}
