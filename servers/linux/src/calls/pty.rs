//! Pseudo-terminals as file descriptors, and their `ioctl`s.

use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use linux_raw_sys::ioctl;

use crate::emulate::{Caller, Result, Stop, Wake, STEP};
use crate::errno::{EAGAIN, EFAULT, EINVAL, EIO, ENOENT, ENOTTY, ENXIO, EPERM};
use crate::memory::WRITE;
use crate::process::{open_flags, Description, Kind};
use crate::pty::{Pty, OUTPUT, TERMIOS};
use crate::signal::{bit, sig};
use crate::system::{Key, CONSOLE_SESSION};
use crate::wire::u32_at;

/// Nanoseconds of a tenth of a second.
const TENTH: u64 = 100_000_000;

/// Most bytes that are written in one turn: a byte can take some hundred instructions.
const TURN: u64 = STEP / 16;

/// Memory for what one write to a master sends: three signals for each process that a payer may have.
const NEWS_BYTES: u64 = 32 << 10;

/// One end of a pseudo-terminal.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The number of the pseudo-terminal.
    pub number: u32,
    /// Its identity, for [`Key::Pty`].
    pub id: u64,
    /// Whether it is the master.
    pub master: bool,
}

fn pty<'a>(c: &'a mut Caller, end: End) -> Result<&'a mut Pty> {
    Ok(c.s.ptys.get(end.number).ok_or(EIO)?)
}

/// Opens `/dev/ptmx`: makes a pseudo-terminal and opens its master.
pub fn open_master(c: &mut Caller) -> Result<Kind> {
    let (root, payer) = (c.process().root, c.process().payer);
    c.h.room(32 << 10)?;
    let (number, id) = c.s.new_pty(root, payer)?;
    let master = true;
    Ok(Kind::Pty { number, id, master })
}

/// Opens the slave of the pseudo-terminal that programs of the caller's tree see as `/dev/pts/N`, `shown` being N.
pub fn open_shown(c: &mut Caller, shown: u32, flags: u32) -> Result<Kind> {
    let root = c.process().root;
    let number = c.s.ptys.of_tree(shown, root).ok_or(ENOENT)?;
    open_slave(c, number, flags)
}

/// Opens the slave of a pseudo-terminal. If the caller is the leader of a session without a controlling terminal, the
/// slave becomes that, unless `O_NOCTTY` is set.
pub fn open_slave(c: &mut Caller, number: u32, flags: u32) -> Result<Kind> {
    let root = c.process().root;
    let pty = c.s.ptys.get(number);
    let pty = pty.filter(|pty| pty.root == root && pty.masters > 0);
    let pty = pty.ok_or(ENOENT)?;
    if pty.is_locked {
        return Err(EIO.into());
    }
    let (id, is_free) = (pty.id, pty.session.is_none());
    c.s.open_pty(number, false);
    let pid = c.p.task.pid;
    let has_none = c.s.terminal(pid).is_none();
    let process = c.process();
    let is_leader = process.session == process.number;
    if is_leader && has_none && is_free && flags & linux::O_NOCTTY == 0 {
        c.s.take_terminal(pid, number);
    }
    let master = false;
    Ok(Kind::Pty { number, id, master })
}

/// Opens `/dev/tty`, the controlling terminal of the process; `None` if that is the console.
pub fn open_own(c: &mut Caller) -> Result<Option<Kind>> {
    if let Some(number) = c.s.terminal(c.p.task.pid) {
        return open_slave(c, number, linux::O_NOCTTY).map(Some);
    }
    match c.process().session {
        CONSOLE_SESSION => Ok(None),
        _ => Err(ENXIO.into()),
    }
}

/// Parks the call until the pseudo-terminal changes. Errors: `EAGAIN` with `O_NONBLOCK`.
fn blocked(end: End, flags: u32) -> Result {
    if flags & open_flags::NONBLOCK != 0 {
        return Err(EAGAIN.into());
    }
    Err(Stop::Park(Wake::on(Key::Pty(end.id))))
}

/// If this is the controlling terminal of the caller's process, and its process group is not in the foreground: stops
/// the caller by the signal before it uses the terminal.
fn in_foreground(c: &mut Caller, end: End, signal: u32) -> Result<()> {
    let pid = c.p.task.pid;
    if c.s.terminal(pid) != Some(end.number) {
        return Ok(());
    }
    let foreground = pty(c, end)?.foreground;
    let ignores = super::file::cannot_stop(c, signal);
    if foreground == c.process().group || signal == sig::TTOU && ignores {
        return Ok(());
    }
    let wait = Stop::Park(Wake::on(Key::Pty(end.id)));
    let is_pending = super::file::is_pending(c, signal);
    match c.s.stop_background(pid, signal, (ignores, is_pending)) {
        Ok(()) => Err(wait),
        Err(error) => Err(error.into()),
    }
}

/// Reads the bytes that are there; waits as `VMIN` and `VTIME` say if there are none.
pub fn read(c: &mut Caller, end: End, flags: u32, address: u64, length: u64) -> Result {
    if length == 0 {
        return Ok(0);
    }
    if !end.master {
        in_foreground(c, end, sig::TTIN)?;
    }
    let pty = pty(c, end)?;
    let most = length.min(OUTPUT as u64) as usize;
    let there = match end.master {
        true => pty.readable_by_master(),
        false if pty.is_readable() || pty.suffices(most, flags) => pty.readable(),
        false => 0,
    };
    let (least, hung_up) = (pty.least(), pty.masters == 0);
    let (has_slaves, is_end) = (pty.slaves > 0 || !pty.had_slave, pty.is_readable());
    let is_end = is_end && !end.master;
    if there == 0 && !is_end {
        return match (end.master, least) {
            (true, _) if !has_slaves => Err(EIO.into()),
            (false, _) if hung_up => Ok(0),
            // With `VMIN` 0 the call waits not at all, or for `VTIME` tenths of a second.
            (false, Some((0, 0))) => Ok(0),
            (false, Some((0, tenths))) if flags & open_flags::NONBLOCK == 0 => {
                let deadline = c.deadline_after(u64::from(tenths) * TENTH);
                if c.now() >= deadline {
                    return Ok(0);
                }
                let mut wake = Wake::on(Key::Pty(end.id));
                wake.deadline = Some(deadline);
                Err(Stop::Park(wake))
            }
            _ => blocked(end, flags),
        };
    }
    c.check(address, there.min(most) as u64, WRITE)?;
    let pty = self::pty(c, end)?;
    let bytes = match end.master {
        true => pty.read_by_master(most),
        false => pty.read(most),
    };
    c.write(address, &bytes)?;
    c.s.wake(Key::Pty(end.id));
    Ok(bytes.len() as u64)
}

/// What a write has to tell others: once for all of it, however many pieces it comes in.
#[derive(Default)]
struct News {
    /// The signals that were typed, as a mask. A standard signal that is sent several times is pending once.
    signals: u64,
    /// Whether the terminal took any byte.
    took: bool,
}

impl News {
    fn tell(self, c: &mut Caller, end: End) {
        let typed = (1..=64).filter(|signal| self.signals & bit(*signal) != 0);
        for signal in typed {
            c.s.signal_foreground(end.number, signal);
        }
        if self.took {
            c.s.wake(Key::Pty(end.id));
        }
    }
}

/// Writes several ranges one after the other. The number of bytes written so far is kept with the call while it waits.
pub fn write(c: &mut Caller, end: End, flags: u32, ranges: &[(u64, u64)], total: u64) -> Result {
    if !end.master {
        let stops = pty(c, end)?.stops_writers();
        if stops {
            in_foreground(c, end, sig::TTOU)?;
        }
    } else if let Err(error) = c.h.room(NEWS_BYTES) {
        return match c.progress() {
            0 => Err(error.into()),
            written => Ok(written),
        };
    }
    let mut news = News::default();
    let result = write_ranges(c, end, flags, (ranges, total), &mut news);
    news.tell(c, end);
    result
}

fn write_ranges(
    c: &mut Caller,
    end: End,
    flags: u32,
    (ranges, total): (&[(u64, u64)], u64),
    news: &mut News,
) -> Result {
    let mut done = c.progress().min(total);
    // The line discipline takes time for every byte, whether or not anybody reads, so a long write takes several turns.
    let until = total.min(done.saturating_add(TURN));
    let mut bytes = Vec::new();
    while done < until {
        if !end.master && pty(c, end)?.masters == 0 {
            return match done {
                0 => Err(EIO.into()),
                // As on Linux: the error is for the next call.
                written => Ok(written),
            };
        }
        bytes.resize((until - done).min(OUTPUT as u64) as usize, 0);
        let got = super::file::gather(c, ranges, done, &mut bytes)?;
        if got == 0 {
            return match done {
                0 => Err(EFAULT.into()),
                written => Ok(written),
            };
        }
        let taken = put(c, end, &bytes[..got], news)?;
        done += taken as u64;
        if taken < got {
            if flags & open_flags::NONBLOCK != 0 && done > 0 {
                return Ok(done);
            }
            if done > 0 {
                c.wait().progress = done;
            }
            return blocked(end, flags);
        }
    }
    match done < total {
        true => Err(c.turn(done)),
        false => Ok(done),
    }
}

/// Writes as many bytes as the terminal takes at the moment; returns how many.
fn put(c: &mut Caller, end: End, bytes: &[u8], news: &mut News) -> Result<usize> {
    let pty = pty(c, end)?;
    let (taken, signals) = match end.master {
        true => pty.input(bytes),
        false => (pty.write(bytes), Vec::new()),
    };
    for signal in signals {
        news.signals |= bit(signal);
    }
    news.took |= taken > 0;
    Ok(taken)
}

/// As `put`, but waits if no byte is taken.
pub fn send(c: &mut Caller, end: End, flags: u32, bytes: &[u8]) -> Result {
    let mut news = News::default();
    let taken = put(c, end, bytes, &mut news);
    news.tell(c, end);
    match taken? {
        0 => blocked(end, flags),
        taken => Ok(taken as u64),
    }
}

/// Whether the master, in packet mode, can read a packet with news of the slave.
pub fn has_news(c: &mut Caller, end: End) -> bool {
    let pty = c.s.ptys.get(end.number).filter(|_| end.master);
    pty.is_some_and(|pty| pty.has_news())
}

/// Whether an end can be read, whether it can be written, and whether the other end is gone.
pub fn readiness(c: &mut Caller, end: End) -> (bool, bool, bool) {
    let Some(pty) = c.s.ptys.get(end.number) else {
        return (true, true, true);
    };
    match end.master {
        true => {
            let gone = pty.slaves == 0 && pty.had_slave;
            (pty.readable_by_master() > 0, pty.has_room(), gone)
        }
        false => {
            let gone = pty.masters == 0;
            (pty.is_readable() || gone, pty.is_writable() || gone, gone)
        }
    }
}

/// `ioctl`.
pub fn ioctl(c: &mut Caller, end: End, request: u32, argument: u64) -> Result {
    match request {
        ioctl::TCGETS => {
            let termios = pty(c, end)?.termios().to_vec();
            c.write(argument, &termios)?;
        }
        ioctl::TCSETS | ioctl::TCSETSW | ioctl::TCSETSF => {
            let termios = c.read(argument, TERMIOS)?;
            if !end.master {
                in_foreground(c, end, sig::TTOU)?;
            }
            let pty = pty(c, end)?;
            if request == ioctl::TCSETSF {
                pty.flush_at_slave(true, false);
            }
            pty.set_termios(termios);
            c.s.wake(Key::Pty(end.id));
        }
        ioctl::TIOCGWINSZ => {
            let window = pty(c, end)?.window;
            c.write(argument, &window)?;
        }
        ioctl::TIOCSWINSZ => {
            let raw = c.read(argument, 8)?;
            let pty = pty(c, end)?;
            if pty.window[..] != raw[..] {
                pty.window.copy_from_slice(&raw);
                c.s.signal_foreground(end.number, linux::SIGWINCH);
            }
        }
        ioctl::TIOCGPTN if end.master => {
            let shown = c.s.ptys.shown(end.number);
            c.write(argument, &shown.to_le_bytes())?;
        }
        ioctl::TIOCSPTLCK if end.master => {
            let locks = u32_at(&c.read(argument, 4)?, 0) != 0;
            pty(c, end)?.is_locked = locks;
        }
        ioctl::TIOCGPTLCK if end.master => {
            let locks = u32::from(pty(c, end)?.is_locked);
            c.write(argument, &locks.to_le_bytes())?;
        }
        ioctl::TIOCGPTPEER if end.master => {
            let fd = super::file::free_fd(c)?;
            let flags = argument as u32;
            let kind = open_slave(c, end.number, flags)?;
            let kept = open_flags::ACCESS | open_flags::NONBLOCK;
            let description = Description {
                kind,
                flags: flags & kept | open_flags::LARGEFILE,
                offset: 0,
                owner: None,
            };
            let cloexec = flags & open_flags::CLOEXEC != 0;
            c.p.files.install(fd, description, cloexec);
            return Ok(u64::from(fd));
        }
        ioctl::TIOCGPGRP => {
            has_terminal(c, end)?;
            let group = pty(c, end)?.foreground;
            c.write(argument, &group.to_le_bytes())?;
        }
        ioctl::TIOCSPGRP => {
            let group = u32_at(&c.read(argument, 4)?, 0);
            has_terminal(c, end)?;
            if !end.master {
                in_foreground(c, end, sig::TTOU)?;
            }
            let pid = c.p.task.pid;
            if !c.s.is_group_of_session(pid, group) {
                return Err(EPERM.into());
            }
            pty(c, end)?.foreground = group;
            c.s.wake(Key::Pty(end.id));
        }
        ioctl::TIOCGSID => {
            has_terminal(c, end)?;
            let session = pty(c, end)?.session.map_or(0, |(_, session)| session);
            c.write(argument, &session.to_le_bytes())?;
        }
        ioctl::TIOCSCTTY if !end.master => {
            let pid = c.p.task.pid;
            if c.s.terminal(pid) == Some(end.number) {
                return Ok(0);
            }
            let has_none = c.s.terminal(pid).is_none();
            let is_free = pty(c, end)?.session.is_none();
            let process = c.process();
            if process.session != process.number || !has_none || !is_free {
                return Err(EPERM.into());
            }
            c.s.take_terminal(pid, end.number);
        }
        ioctl::TIOCNOTTY => {
            if c.s.terminal(c.p.task.pid) != Some(end.number) {
                return Err(ENOTTY.into());
            }
            c.s.leave_terminal(c.p.task.pid);
        }
        ioctl::TCFLSH => {
            let (input, output) = match (argument as u32, end.master) {
                (linux::TCIFLUSH, false) | (linux::TCOFLUSH, true) => (true, false),
                (linux::TCOFLUSH, false) | (linux::TCIFLUSH, true) => (false, true),
                (linux::TCIOFLUSH, _) => (true, true),
                _ => return Err(EINVAL.into()),
            };
            let pty = pty(c, end)?;
            match end.master {
                true => pty.flush(input, output),
                false => pty.flush_at_slave(input, output),
            }
            c.s.wake(Key::Pty(end.id));
        }
        ioctl::FIONREAD => {
            let pty = pty(c, end)?;
            let there = match end.master {
                true => pty.written(),
                false => pty.readable(),
            };
            c.write(argument, &(there as u32).to_le_bytes())?;
        }
        ioctl::TIOCOUTQ => c.write(argument, &[0; 4])?,
        ioctl::TCSBRK | ioctl::TCSBRKP | ioctl::TCXONC | ioctl::TIOCEXCL | ioctl::TIOCNXCL => {}
        ioctl::TIOCPKT if end.master => {
            let are_on = u32_at(&c.read(argument, 4)?, 0) != 0;
            pty(c, end)?.set_packets(are_on);
        }
        ioctl::TIOCGPKT if end.master => {
            let are_on = u32::from(pty(c, end)?.has_packets());
            c.write(argument, &are_on.to_le_bytes())?;
        }
        _ => return Err(ENOTTY.into()),
    }
    Ok(0)
}

/// Checks that the caller may ask about sessions and groups of the terminal: by its master, or as its controlling
/// terminal. Errors: `ENOTTY`.
fn has_terminal(c: &mut Caller, end: End) -> Result<()> {
    let is_own = c.s.terminal(c.p.task.pid) == Some(end.number);
    (end.master || is_own).then_some(()).ok_or(ENOTTY.into())
}
