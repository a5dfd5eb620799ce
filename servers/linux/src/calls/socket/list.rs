//! The lists of sockets in `/proc/net`, in Linux's format. A process sees the sockets that count for its payer.

use crate::emulate::{Caller, Result};
use crate::socket::{Family, Name, Socket, State, Style};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use serde::{Deserialize, Serialize};

/// Which list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum List {
    Tcp,
    Tcp6,
    Udp,
    Udp6,
    Unix,
    /// Always empty: raw sockets cannot be made. They are last so that the numbers of the others in checkpoint images
    /// stay valid.
    Raw,
    Raw6,
}

/// Upper estimate of the bytes of a line.
const LINE: usize = 256;

/// Socket states, as the lists of TCP and UDP have them.
const ESTABLISHED: u8 = 1;
const CLOSED: u8 = 7;
const CLOSE_WAIT: u8 = 8;
const LISTENING: u8 = 10;

impl List {
    fn has(self, socket: &Socket) -> bool {
        let of = |family, style| socket.family == family && socket.style == style;
        match self {
            List::Tcp => of(Family::V4, Style::Stream),
            List::Tcp6 => of(Family::V6, Style::Stream),
            List::Udp => of(Family::V4, Style::Datagram),
            List::Udp6 => of(Family::V6, Style::Datagram),
            List::Unix => socket.family == Family::Unix,
            List::Raw | List::Raw6 => false,
        }
    }

    const fn head(self) -> &'static str {
        match self {
            List::Tcp => "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
            List::Tcp6 => "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
            List::Udp => "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops",
            List::Udp6 | List::Raw6 => "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops",
            List::Raw => "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops",
            List::Unix => "Num       RefCount Protocol Flags    Type St Inode Path",
        }
    }
}

/// An address and a port as the lists show them: the 32-bit words of the address in network byte order, printed as
/// words of the processor.
fn place(name: Option<&Name>, family: Family) -> String {
    let (address, port) = match name {
        Some(Name::Port(address, port)) => (*address, *port),
        _ => (0, 0),
    };
    let mut out = String::new();
    let words: &[u32] = match family {
        Family::V4 => &[address as u32],
        _ => &[96, 64, 32, 0].map(|shift| (address >> shift) as u32),
    };
    for word in words {
        // Writing to a string cannot fail.
        let _ = write!(out, "{:08X}", word.swap_bytes());
    }
    let _ = write!(out, ":{port:04X}");
    out
}

/// The state of an internet socket; `None` if Linux does not list such a socket.
fn state(socket: &Socket) -> Option<u8> {
    match (socket.style, socket.state) {
        (_, State::Listening) => Some(LISTENING),
        (Style::Stream, State::Connected) if socket.peer.is_none() && socket.link.is_none() => {
            Some(CLOSE_WAIT)
        }
        (_, State::Connected) => Some(ESTABLISHED),
        (Style::Stream, State::Idle) => None,
        (_, State::Idle) => socket.name.as_ref().map(|_| CLOSED),
    }
}

fn line(out: &mut String, at: usize, (id, socket): (u64, &Socket)) {
    let Some(state) = state(socket) else { return };
    let [local, remote] =
        [&socket.name, &socket.peer_name].map(|name| place(name.as_ref(), socket.family));
    let received: usize = match state {
        LISTENING => socket.ready.len(),
        _ => socket.queue.iter().map(|m| m.rest().len()).sum(),
    };
    let tail = match socket.style {
        Style::Stream => "1 0000000000000000 100 0 0 10 0",
        _ => "2 0000000000000000 0",
    };
    let number = match socket.style {
        Style::Stream => format!("{at:4}"),
        _ => format!("{at:5}"),
    };
    let _ = writeln!(
        out,
        "{number}: {local} {remote} {state:02X} 00000000:{received:08X} 00:00000000 00000000 {:5}        0 {id} {tail}",
        socket.owner.1,
    );
}

fn unix_line(out: &mut Vec<u8>, (id, socket): (u64, &Socket)) {
    let kind = match socket.style {
        Style::Stream => 1,
        Style::Datagram => 2,
        Style::Packets => 5,
    };
    let (flags, state) = match socket.state {
        State::Listening => (0x10000, 1),
        State::Connected => (0, 3),
        State::Idle => (0, 1),
    };
    let text =
        format!("0000000000000000: 00000002 00000000 {flags:08X} {kind:04X} {state:02X} {id:5}");
    out.extend_from_slice(text.as_bytes());
    match &socket.name {
        Some(Name::File(path, _)) => {
            out.push(b' ');
            out.extend_from_slice(path);
        }
        Some(Name::Abstract(name)) => {
            out.extend_from_slice(b" @");
            // As on Linux, zero bytes are shown as `@`, too.
            out.extend(
                name.iter()
                    .map(|byte| if *byte == 0 { b'@' } else { *byte }),
            );
        }
        Some(Name::Port(..) | Name::Number(..)) | None => {}
    }
    out.push(b'\n');
}

/// The current contents of a list.
pub fn list(c: &mut Caller, which: List) -> Result<Vec<u8>> {
    let payer = c.process().payer;
    let system = &*c.s;
    // A socket that stands for the other machine's end of a connection belongs to no program.
    let is_in = |(id, socket): &(u64, &Socket)| {
        which.has(socket) && socket.payer() == payer && !system.is_far(*id)
    };
    let count = system.sockets.all().filter(is_in).count();
    c.h.room((LINE * (count + 1)) as u64)?;
    let mut out = Vec::with_capacity(LINE * (count + 1));
    out.extend_from_slice(which.head().as_bytes());
    out.push(b'\n');
    let mut text = String::with_capacity(LINE);
    let mut at = 0;
    for (id, socket) in system.sockets.all().filter(is_in) {
        if which == List::Unix {
            unix_line(&mut out, (id, socket));
            continue;
        }
        text.clear();
        line(&mut text, at, (id, socket));
        at += usize::from(!text.is_empty());
        out.extend_from_slice(text.as_bytes());
    }
    Ok(out)
}
