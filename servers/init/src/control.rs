//! The control channel: the second serial port, from the guest to whoever runs the machine.
use core::arch::asm;
use rt::obj::RefAt;
use rt::sync::Mutex;
use rt::{sys, Code};

/// First port of COM2.
const PORTS: u16 = 0x2f8;
/// Port of QEMU's `isa-debug-exit`: a write ends the machine.
const EXIT: u16 = 0xf4;
/// Bit of the line status register: the transmitter accepts a byte.
const TAKES: u8 = 0x20;

/// Locked for each message, so that messages of several threads do not mix.
static CHANNEL: Mutex<Channel> = Mutex::new(Channel { open: false });

struct Channel {
    open: bool,
}

fn input(port: u16) -> u8 {
    let value: u8;
    // SAFETY: the port is granted to this space; reading it touches no memory.
    unsafe {
        asm!("in al, dx", out("al") value, in("dx") port, options(nomem, nostack, preserves_flags));
    }
    value
}

fn output(port: u16, value: u8) {
    // SAFETY: as for `input`.
    unsafe {
        asm!("out dx, al", in("al") value, in("dx") port, options(nomem, nostack, preserves_flags));
    }
}

/// Gets the I/O ports of the channel and of the debug exit from the device authority.
pub(crate) fn open(authority: RefAt, space: RefAt) -> Result<(), Code> {
    rt::obj::done(sys::device_grant_ports(
        authority.0,
        space.0,
        u64::from(PORTS),
        8,
    ))?;
    rt::obj::done(sys::device_grant_ports(
        authority.0,
        space.0,
        u64::from(EXIT),
        4,
    ))?;
    CHANNEL.lock().open = true;
    Ok(())
}

impl Channel {
    fn write(&self, bytes: &[u8]) {
        if !self.open {
            return;
        }
        for byte in bytes {
            while input(PORTS + 5) & TAKES == 0 {
                core::hint::spin_loop();
            }
            output(PORTS, *byte);
        }
    }
}

/// Writes pieces as one message, without bytes of other threads between them.
pub(crate) fn write(pieces: &[&[u8]]) {
    let channel = CHANNEL.lock();
    for piece in pieces {
        channel.write(piece);
    }
}

/// Ends the machine.
pub(crate) fn end() -> ! {
    let open = CHANNEL.lock().open;
    loop {
        if open {
            // SAFETY: the port is granted to this space; the machine ends here.
            unsafe {
                asm!("out dx, eax", in("eax") 0u32, in("dx") EXIT, options(nomem, nostack));
            }
        }
        sys::thread_wait_interrupt();
    }
}
