//! Pseudo-terminals. A pair is a master, for the program that plays the terminal, and a slave, which other programs use
//! as a terminal, with the line discipline between them.
//!
//! What is written to the master is input: it is edited line by line or not, echoed, and turned into signals, as the
//! settings say (`struct termios`). What is written to the slave is output, which the master reads. A pair exists as
//! long as one of its ends is open.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use serde::{Deserialize, Serialize};
use services::process::Pid;

use crate::errno::{Errno, ENOSPC};
use crate::process::open_flags;
use crate::signal::{sig, Origin};
use crate::system::{Key, Payer, System, Thing, To};
use crate::wire::{u32_at, Writer};

/// Bytes of the kernel's `struct termios`.
pub const TERMIOS: usize = 36;
/// Most bytes of unread input.
pub const INPUT: usize = 4096;
/// Most bytes of unread output.
pub const OUTPUT: usize = 4096;

/// The initial settings of a terminal: line by line, with echo.
#[must_use]
pub fn default_termios() -> Vec<u8> {
    Writer::new()
        .u32(linux::ICRNL | linux::IXON)
        .u32(linux::OPOST | linux::ONLCR)
        .u32(linux::B38400 | linux::CS8 | linux::CREAD)
        .u32(
            linux::ISIG
                | linux::ICANON
                | linux::ECHO
                | linux::ECHOE
                | linux::ECHOK
                | linux::ECHOCTL
                | linux::ECHOKE
                | linux::IEXTEN,
        )
        .bytes(&[
            0, 3, 0x1c, 0x7f, 0x15, 4, 0, 1, 0, 0x11, 0x13, 0x1a, 0, 0x12, 0x0f, 0x17, 0x16,
        ])
        .pad_to(TERMIOS)
        .done()
}

/// A pseudo-terminal: a pair of master and slave.
#[derive(Clone, Debug)]
pub struct Pty {
    /// Identity; a number is used again for another pair.
    pub id: u64,
    /// Its number as programs of its tree see it.
    pub shown: u32,
    /// The root of the tree that it belongs to. Nobody else can open it.
    pub root: Pid,
    payer: Payer,
    termios: Vec<u8>,
    /// `struct winsize`.
    pub window: [u8; 8],
    /// Whether the slave cannot be opened yet.
    pub is_locked: bool,
    /// Open descriptions of the master.
    pub masters: usize,
    /// Open descriptions of the slave.
    pub slaves: usize,
    /// Whether the slave was ever open.
    pub had_slave: bool,
    /// The session whose controlling terminal it is: namespace and number.
    pub session: Option<(u32, u32)>,
    /// The foreground process group.
    pub foreground: u32,
    /// Input that can be read.
    ready: VecDeque<u8>,
    /// Lengths of the lines in `ready`, if input is read by lines; a line of length 0 is the end of input.
    lines: VecDeque<usize>,
    /// The line that is being edited.
    edit: Vec<u8>,
    /// Whether the next byte is taken literally.
    is_literal: bool,
    /// Whether output is held until the user lets it go on (Ctrl-S, Ctrl-Q).
    is_held: bool,
    output: VecDeque<u8>,
    /// If the master is read in packet mode (`TIOCPKT`): events at the slave, of [`packet`], that have not been read.
    packets: Option<u8>,
}

/// Events of packet mode: bits that `<asm-generic/ioctls.h>` of Linux calls `TIOCPKT_`.
mod packet {
    pub(super) const FLUSHREAD: u8 = 1;
    pub(super) const FLUSHWRITE: u8 = 2;
    pub(super) const STOP: u8 = 4;
    pub(super) const START: u8 = 8;
    pub(super) const NOSTOP: u8 = 16;
    pub(super) const DOSTOP: u8 = 32;
    /// All of them.
    pub(super) const ALL: u8 = 63;
}

/// A pair in an image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SavedPty {
    /// The identity, as descriptions have it.
    pub(crate) id: u64,
    pub(crate) shown: u32,
    pub(crate) termios: Vec<u8>,
    window: [u8; 8],
    is_locked: bool,
    had_slave: bool,
    /// The number of the session, in the tree's namespace.
    pub(crate) session: Option<u32>,
    foreground: u32,
    pub(crate) ready: Vec<u8>,
    pub(crate) lines: Vec<u32>,
    edit: Vec<u8>,
    is_literal: bool,
    is_held: bool,
    pub(crate) output: Vec<u8>,
    packets: Option<u8>,
}

/// As in Linux, numbers of pairs that programs see are below this.
const NUMBERS: u32 = 1 << 20;

impl SavedPty {
    /// Approximate encoded length in bytes.
    pub(crate) fn length(&self) -> usize {
        let lines = 2 * self.lines.len();
        200 + self.ready.len() + lines + self.edit.len() + self.output.len()
    }

    /// Whether a pair from an image is possible by itself.
    pub(crate) fn is_sound(&self) -> bool {
        let is_number = |number: u32| number <= i32::MAX as u32;
        if self.termios.len() != TERMIOS {
            return false;
        }
        let by_lines = u32_at(&self.termios, 12) & linux::ICANON != 0;
        let lines: u64 = self.lines.iter().map(|line| u64::from(*line)).sum();
        // In line mode the lines add up to the readable bytes; otherwise there are no lines.
        let readable = if by_lines { self.ready.len() } else { 0 };
        self.shown < NUMBERS
            && is_number(self.foreground)
            && self
                .session
                .is_none_or(|session| session > 0 && is_number(session))
            && lines == readable as u64
            && self.lines.len() <= INPUT
            && self.ready.len() + self.edit.len() <= INPUT
            && self.output.len() <= OUTPUT
            && self.packets.is_none_or(|told| told & !packet::ALL == 0)
    }
}

impl Pty {
    fn new(id: u64, shown: u32, root: Pid, payer: Payer) -> Self {
        Pty {
            id,
            shown,
            root,
            payer,
            termios: default_termios(),
            window: [0; 8],
            is_locked: true,
            masters: 0,
            slaves: 0,
            had_slave: false,
            session: None,
            foreground: 0,
            ready: VecDeque::new(),
            lines: VecDeque::new(),
            edit: Vec::new(),
            is_literal: false,
            is_held: false,
            output: VecDeque::new(),
            packets: None,
        }
    }

    /// Notes an event of [`packet`] at the slave, and drops the events `before`, which it makes void.
    fn tell(&mut self, what: u8, before: u8) {
        if let Some(told) = &mut self.packets {
            *told = *told & !before | what;
        }
    }

    fn hold(&mut self, is_held: bool) {
        if core::mem::replace(&mut self.is_held, is_held) != is_held {
            match is_held {
                true => self.tell(packet::STOP, packet::START),
                false => self.tell(packet::START, packet::STOP),
            }
        }
    }

    /// Whether the keys that stop output and let it go on are Ctrl-S and Ctrl-Q.
    fn stops_by_usual_keys(&self) -> bool {
        let keys = (self.control(linux::VSTOP), self.control(linux::VSTART));
        self.has(0, linux::IXON) && keys == (0x13, 0x11)
    }

    /// Whether the master is in packet mode.
    #[must_use]
    pub const fn has_packets(&self) -> bool {
        self.packets.is_some()
    }

    /// Turns packet mode on or off.
    pub fn set_packets(&mut self, are_on: bool) {
        if self.has_packets() != are_on {
            self.packets = are_on.then_some(0);
        }
    }

    /// Whether an event of packet mode is to be read.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.packets.is_some_and(|told| told != 0)
    }

    /// How many bytes a read of the master finds.
    #[must_use]
    pub fn readable_by_master(&self) -> usize {
        match self.packets {
            Some(told) if told != 0 => 1,
            Some(_) if self.written() > 0 => 1 + self.written(),
            _ => self.written(),
        }
    }

    /// Reads the master, which must have something to read: at most `most` bytes.
    pub fn read_by_master(&mut self, most: usize) -> Vec<u8> {
        let Some(told) = &mut self.packets else {
            return self.take_output(most);
        };
        let mut bytes = alloc::vec![core::mem::take(told)];
        if bytes == [0] {
            bytes.extend(self.take_output(most - 1));
        }
        bytes
    }

    /// As [`Pty::flush`], noted as an event of packet mode.
    pub fn flush_at_slave(&mut self, input: bool, output: bool) {
        self.flush(input, output);
        for (is_flushed, what) in [(input, packet::FLUSHREAD), (output, packet::FLUSHWRITE)] {
            if is_flushed {
                self.tell(what, 0);
            }
        }
    }

    fn has(&self, word: usize, flag: u32) -> bool {
        u32_at(&self.termios, 4 * word) & flag != 0
    }

    fn local(&self, flag: u32) -> bool {
        self.has(3, flag)
    }

    /// A control character of the settings; 0 if it is disabled.
    fn control(&self, which: u32) -> u8 {
        self.termios.get(17 + which as usize).copied().unwrap_or(0)
    }

    fn is_control(&self, byte: u8, which: u32) -> bool {
        byte != 0 && byte == self.control(which)
    }

    /// The settings.
    #[must_use]
    pub fn termios(&self) -> &[u8] {
        &self.termios
    }

    /// Whether processes in the background are stopped when they write.
    #[must_use]
    pub fn stops_writers(&self) -> bool {
        self.local(linux::TOSTOP)
    }

    /// Changes the settings.
    pub fn set_termios(&mut self, mut new: Vec<u8>) {
        new.resize(TERMIOS, 0);
        let before = self.local(linux::ICANON);
        let stopped = self.stops_by_usual_keys();
        self.termios = new;
        match (stopped, self.stops_by_usual_keys()) {
            (false, true) => self.tell(packet::DOSTOP, packet::NOSTOP),
            (true, false) => self.tell(packet::NOSTOP, packet::DOSTOP),
            _ => {}
        }
        let now = self.local(linux::ICANON);
        if before && !now {
            // Text that was typed and not finished becomes readable as it is.
            self.lines.clear();
            self.ready.extend(self.edit.drain(..));
        } else if now && !before && !self.ready.is_empty() {
            self.lines = VecDeque::from([self.ready.len()]);
        }
        if !self.has(0, linux::IXON) {
            self.hold(false);
        }
    }

    /// `VMIN` (bytes that a read waits for) and `VTIME` (tenths of a second; 0: for ever); `None` in line mode.
    #[must_use]
    pub fn least(&self) -> Option<(usize, u8)> {
        let raw = !self.local(linux::ICANON);
        raw.then(|| {
            (
                usize::from(self.control(linux::VMIN)),
                self.control(linux::VTIME),
            )
        })
    }

    /// Whether a read of `most` bytes returns at once though fewer than `VMIN` are there: it asks for no more than there
    /// are, or does not wait (`O_NONBLOCK` in `flags`).
    #[must_use]
    pub fn suffices(&self, most: usize, flags: u32) -> bool {
        let waits = flags & open_flags::NONBLOCK == 0;
        self.least().is_some_and(|(least, _)| {
            let wanted = if waits { least.min(most) } else { 1 };
            self.ready.len() >= wanted.max(1)
        })
    }

    /// Whether the slave has something to read.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        match self.least() {
            None => !self.lines.is_empty(),
            Some((least, 0)) => self.ready.len() >= least.max(1),
            Some(_) => !self.ready.is_empty(),
        }
    }

    /// How many bytes the slave can read at once.
    #[must_use]
    pub fn readable(&self) -> usize {
        match self.least() {
            None => self.lines.front().copied().unwrap_or(0),
            Some(_) => self.ready.len(),
        }
    }

    /// Reads at most `most` bytes, and at most one line. Does not wait.
    pub fn read(&mut self, most: usize) -> Vec<u8> {
        let length = self.readable().min(most);
        if self.least().is_none() {
            if let Some(left) = self.lines.front_mut() {
                *left -= length;
                if *left == 0 {
                    self.lines.pop_front();
                }
            }
        }
        self.ready.drain(..length).collect()
    }

    /// How many bytes of output wait.
    #[must_use]
    pub fn written(&self) -> usize {
        self.output.len()
    }

    /// Takes at most `most` bytes of output.
    pub fn take_output(&mut self, most: usize) -> Vec<u8> {
        let length = self.output.len().min(most);
        self.output.drain(..length).collect()
    }

    /// Whether the slave can write.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        !self.is_held && self.output.len() + 2 <= OUTPUT
    }

    /// Whether the master can write.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let used = self.ready.len() + self.edit.len();
        match self.least() {
            Some(_) => used < INPUT,
            // The rest of a line that is too long is dropped, and its end is still accepted. If complete lines wait,
            // nothing need be dropped: the master waits until one has been read.
            None => self.lines.is_empty() || used + 1 < INPUT && self.lines.len() < INPUT,
        }
    }

    /// Writes output, and returns how many of the bytes were taken.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() && self.is_writable() {
            self.put(bytes[done]);
            done += 1;
        }
        done
    }

    /// Adds a byte to the output, as the settings say. Drops it if there is no room.
    fn put(&mut self, byte: u8) {
        if self.output.len() + 2 > OUTPUT {
            return;
        }
        let processed = self.has(1, linux::OPOST);
        match byte {
            b'\n' if processed && self.has(1, linux::ONLCR) => self.output.extend(b"\r\n"),
            b'\r' if processed && self.has(1, linux::OCRNL) => self.output.push_back(b'\n'),
            _ => self.output.push_back(byte),
        }
    }

    fn shows_as_two(&self, byte: u8) -> bool {
        (byte < 32 && byte != b'\t' || byte == 127) && self.local(linux::ECHOCTL)
    }

    fn echo(&mut self, byte: u8) {
        if !self.local(linux::ECHO) {
            if byte == b'\n' && self.local(linux::ECHONL) && self.local(linux::ICANON) {
                self.put(byte);
            }
        } else if byte != b'\n' && self.shows_as_two(byte) {
            self.put(b'^');
            self.put(byte ^ 0x40);
        } else {
            self.put(byte);
        }
    }

    /// Erases the last character of the edited line. Returns whether there was one.
    fn erase(&mut self) -> bool {
        let Some(mut byte) = self.edit.pop() else {
            return false;
        };
        // With `IUTF8`, the bytes of one character are erased together.
        while self.has(0, linux::IUTF8) && byte & 0xc0 == 0x80 {
            let Some(before) = self.edit.pop() else { break };
            byte = before;
        }
        if self.local(linux::ECHO) && self.local(linux::ECHOE) {
            for _ in 0..=usize::from(self.shows_as_two(byte)) {
                [8, b' ', 8].into_iter().for_each(|byte| self.put(byte));
            }
        }
        true
    }

    /// Makes the edited line readable.
    fn finish(&mut self) {
        if self.lines.len() >= INPUT {
            return;
        }
        self.lines.push_back(self.edit.len());
        self.ready.extend(self.edit.drain(..));
    }

    /// Drops unread input, unread output or both.
    pub fn flush(&mut self, input: bool, output: bool) {
        if input {
            self.ready.clear();
            self.lines.clear();
            self.edit.clear();
        }
        if output {
            self.output.clear();
        }
    }

    /// Takes input. Returns how many of the bytes were taken, and the signals that they cause in the foreground group.
    pub fn input(&mut self, bytes: &[u8]) -> (usize, Vec<u32>) {
        let mut signals = Vec::new();
        for (done, byte) in bytes.iter().enumerate() {
            if !self.has_room() {
                return (done, signals);
            }
            self.type_in(*byte, &mut signals);
        }
        (bytes.len(), signals)
    }

    fn type_in(&mut self, byte: u8, signals: &mut Vec<u32>) {
        let mut byte = byte;
        let by_lines = self.local(linux::ICANON);
        if core::mem::take(&mut self.is_literal) {
            return self.accept(byte, by_lines);
        }
        if self.has(0, linux::ISTRIP) {
            byte &= 0x7f;
        }
        match byte {
            b'\r' if self.has(0, linux::IGNCR) => return,
            b'\r' if self.has(0, linux::ICRNL) => byte = b'\n',
            b'\n' if self.has(0, linux::INLCR) => byte = b'\r',
            _ => {}
        }
        if self.has(0, linux::IXON) {
            if self.is_control(byte, linux::VSTART) {
                self.hold(false);
                return;
            }
            if self.is_control(byte, linux::VSTOP) {
                self.hold(true);
                return;
            }
        }
        if self.local(linux::ISIG) {
            let all = [
                (linux::VINTR, sig::INT),
                (linux::VQUIT, sig::QUIT),
                (linux::VSUSP, sig::TSTP),
            ];
            if let Some((_, signal)) = all
                .into_iter()
                .find(|(which, _)| self.is_control(byte, *which))
            {
                if !self.local(linux::NOFLSH) {
                    self.flush_at_slave(true, true);
                }
                self.hold(false);
                self.echo(byte);
                signals.push(signal);
                return;
            }
        }
        if !by_lines {
            return self.accept(byte, false);
        }
        let extended = self.local(linux::IEXTEN);
        if extended && self.is_control(byte, linux::VLNEXT) {
            self.is_literal = true;
            if self.local(linux::ECHO) && self.local(linux::ECHOCTL) {
                [b'^', 8].into_iter().for_each(|byte| self.put(byte));
            }
        } else if self.is_control(byte, linux::VERASE) {
            self.erase();
        } else if extended && self.is_control(byte, linux::VWERASE) {
            let is_word = |byte: Option<&u8>| {
                byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b >= 128)
            };
            while self.edit.last().is_some() && !is_word(self.edit.last()) {
                self.erase();
            }
            while is_word(self.edit.last()) {
                self.erase();
            }
        } else if self.is_control(byte, linux::VKILL) {
            if self.local(linux::ECHOKE) && self.local(linux::ECHOE) {
                while self.erase() {}
            } else {
                self.edit.clear();
                self.echo(byte);
                if self.local(linux::ECHO) && self.local(linux::ECHOK) {
                    self.put(b'\n');
                }
            }
        } else if self.is_control(byte, linux::VEOF) {
            self.finish();
        } else if byte == b'\n' {
            if self.ready.len() + self.edit.len() >= INPUT {
                return;
            }
            self.echo(byte);
            self.edit.push(byte);
            self.finish();
        } else {
            let ends = self.is_control(byte, linux::VEOL)
                || extended && self.is_control(byte, linux::VEOL2);
            self.accept(byte, true);
            if ends {
                self.finish();
            }
        }
    }

    /// Takes a byte without a special meaning.
    fn accept(&mut self, byte: u8, by_lines: bool) {
        match by_lines {
            // One byte is kept free for the end of the line.
            true if self.ready.len() + self.edit.len() + 1 >= INPUT => return,
            true => self.edit.push(byte),
            false => self.ready.push_back(byte),
        }
        self.echo(byte);
    }
}

/// All pairs, by number.
#[derive(Debug, Default)]
pub struct Ptys {
    all: BTreeMap<u32, Pty>,
}

impl Ptys {
    /// The pair with this number.
    pub fn get(&mut self, number: u32) -> Option<&mut Pty> {
        self.all.get_mut(&number)
    }

    /// The foreground group of a pair.
    #[must_use]
    pub fn foreground(&self, number: u32) -> Option<u32> {
        self.all.get(&number).map(|pty| pty.foreground)
    }

    /// The number of the pair that processes of the tree of `root` see as `shown` and may open.
    #[must_use]
    pub fn of_tree(&self, shown: u32, root: Pid) -> Option<u32> {
        let mut all = self.all.iter();
        let own = |pty: &Pty| pty.shown == shown && pty.root == root && pty.masters > 0;
        all.find(|(_, pty)| own(pty)).map(|(number, _)| *number)
    }

    /// The numbers, as processes of this tree see them, of the pairs that they may open.
    pub fn numbers(&self, root: Pid) -> impl Iterator<Item = u32> + '_ {
        let own = move |pty: &&Pty| pty.root == root && pty.masters > 0;
        self.all.values().filter(own).map(|pty| pty.shown)
    }

    /// The number of a pair as programs see it.
    #[must_use]
    pub fn shown(&self, number: u32) -> u32 {
        self.all.get(&number).map_or(number, |pty| pty.shown)
    }

    /// How many open descriptions the ends of a pair have.
    #[must_use]
    pub fn ends(&self, number: u32) -> usize {
        let pty = self.all.get(&number);
        pty.map_or(0, |pty| pty.masters + pty.slaves)
    }

    /// A pair as an image has it, for the tree of `root`.
    pub(crate) fn saved(&self, number: u32, root: Pid) -> Option<SavedPty> {
        let pty = self.all.get(&number)?;
        let is_own = pty.root == root;
        Some(SavedPty {
            id: pty.id,
            shown: pty.shown,
            termios: pty.termios.clone(),
            window: pty.window,
            is_locked: pty.is_locked,
            had_slave: pty.had_slave,
            session: pty.session.map(|(_, session)| session).filter(|_| is_own),
            foreground: pty.foreground,
            ready: pty.ready.iter().copied().collect(),
            lines: pty.lines.iter().map(|line| *line as u32).collect(),
            edit: pty.edit.clone(),
            is_literal: pty.is_literal,
            is_held: pty.is_held,
            output: pty.output.iter().copied().collect(),
            packets: pty.packets,
        })
    }

    /// The lowest number that no pair has and that is not `taken`.
    fn free(&self, taken: impl Fn(u32) -> bool) -> u32 {
        let mut number = 0;
        while self.all.contains_key(&number) || taken(number) {
            number += 1;
        }
        number
    }
}

impl System {
    /// Makes a pair with an open master, and returns its number and identity. Errors: `ENOSPC` if there are too many.
    pub fn new_pty(&mut self, root: Pid, payer: Payer) -> Result<(u32, u64), Errno> {
        self.count_thing(Thing::Pty, payer).map_err(|_| ENOSPC)?;
        // Programs may see a restored pair under a number other than its own.
        let all = self.ptys.all.values();
        let own: Vec<u32> = all.filter(|p| p.root == root).map(|p| p.shown).collect();
        let number = self.ptys.free(|number| own.contains(&number));
        let id = self.new_identity();
        let mut pty = Pty::new(id, number, root, payer);
        pty.masters = 1;
        self.ptys.all.insert(number, pty);
        Ok((number, id))
    }

    /// Makes a pair from an image, with this many open descriptions of masters and slaves. It is not a controlling
    /// terminal yet. Returns its number and identity. Errors: `ENOSPC` if there are too many.
    pub(crate) fn restore_pty(
        &mut self,
        saved: SavedPty,
        (masters, slaves): (usize, usize),
        root: Pid,
        payer: Payer,
    ) -> Result<(u32, u64), Errno> {
        self.count_thing(Thing::Pty, payer).map_err(|_| ENOSPC)?;
        let number = self.ptys.free(|_| false);
        let id = self.new_identity();
        let pty = Pty {
            id,
            shown: saved.shown,
            root,
            payer,
            termios: saved.termios,
            window: saved.window,
            is_locked: saved.is_locked,
            masters,
            slaves,
            had_slave: saved.had_slave,
            session: None,
            foreground: saved.foreground,
            ready: saved.ready.into(),
            lines: saved.lines.iter().map(|line| *line as usize).collect(),
            edit: saved.edit,
            is_literal: saved.is_literal,
            is_held: saved.is_held,
            output: saved.output.into(),
            packets: saved.packets,
        };
        self.ptys.all.insert(number, pty);
        Ok((number, id))
    }

    /// Removes a pair that was made from an image, when the restore fails.
    pub(crate) fn give_up_pty(&mut self, number: u32) {
        if let Some(pty) = self.ptys.all.remove(&number) {
            self.uncount_thing(Thing::Pty, pty.payer);
        }
    }

    /// Counts one more open description of an end.
    pub fn open_pty(&mut self, number: u32, master: bool) {
        if let Some(pty) = self.ptys.get(number) {
            match master {
                true => pty.masters += 1,
                false => (pty.slaves, pty.had_slave) = (pty.slaves + 1, true),
            }
            let id = pty.id;
            self.wake(Key::Pty(id));
        }
    }

    /// Counts one open description of an end less. When no master is left, the terminal hangs up; without any end the
    /// pair goes.
    pub fn close_pty(&mut self, number: u32, master: bool) {
        let Some(pty) = self.ptys.get(number) else {
            return;
        };
        match master {
            true => pty.masters -= 1,
            false => pty.slaves -= 1,
        }
        let (id, payer) = (pty.id, pty.payer);
        let (hangs_up, is_gone) = (master && pty.masters == 0, pty.masters + pty.slaves == 0);
        self.wake(Key::Pty(id));
        if hangs_up {
            self.hang_up(number);
        }
        if is_gone {
            self.ptys.all.remove(&number);
            self.uncount_thing(Thing::Pty, payer);
        }
    }

    /// Takes the controlling terminal from its session: the session leader and the foreground group get `SIGHUP` and
    /// `SIGCONT`.
    pub fn hang_up(&mut self, number: u32) {
        let Some(pty) = self.ptys.get(number) else {
            return;
        };
        let (foreground, id, root) = (pty.foreground, pty.id, pty.root);
        let Some((namespace, session)) = pty.session.take() else {
            return;
        };
        for signal in [sig::HUP, sig::CONT] {
            let leader = self.by_number_in(namespace, session);
            let is_own = |pid: &Pid| self.find(*pid).is_some_and(|process| process.root == root);
            if let Some(leader) = leader.filter(is_own) {
                self.send(To::Process(leader), signal, Origin::kernel());
            }
            if foreground != session {
                self.signal_group(root, namespace, foreground, signal);
            }
        }
        self.wake(Key::Pty(id));
    }

    /// Sends a signal to the foreground group of a terminal.
    pub fn signal_foreground(&mut self, number: u32, signal: u32) {
        if let Some(pty) = self.ptys.get(number) {
            let (session, foreground, root) = (pty.session, pty.foreground, pty.root);
            if let Some((namespace, _)) = session {
                self.signal_group(root, namespace, foreground, signal);
            }
        }
    }

    /// The controlling terminal of a process: the number of the pair.
    #[must_use]
    pub fn terminal(&self, pid: Pid) -> Option<u32> {
        let process = self.find(pid)?;
        let (number, id) = process.terminal?;
        let pty = self.ptys.all.get(&number)?;
        // It may have gone to another session since.
        let is_own = pty.session == Some((process.namespace, process.session));
        (pty.id == id && is_own).then_some(number)
    }

    /// Makes a pair the controlling terminal of the session of `leader`, whose group becomes the foreground group.
    pub fn take_terminal(&mut self, leader: Pid, number: u32) {
        let Some(process) = self.find(leader) else {
            return;
        };
        let (session, group) = ((process.namespace, process.session), process.group);
        if let Some(pty) = self.ptys.get(number) {
            (pty.session, pty.foreground) = (Some(session), group);
            let id = pty.id;
            self.process(leader).terminal = Some((number, id));
        }
    }

    /// Takes the controlling terminal from a process that has ended or gives it up; from the whole session if the
    /// process is its leader.
    pub fn leave_terminal(&mut self, leader: Pid) {
        let Some(number) = self.terminal(leader) else {
            return;
        };
        self.process(leader).terminal = None;
        let is_leader = self.find(leader).is_some_and(|p| p.session == p.number);
        if is_leader {
            for signal in [sig::HUP, sig::CONT] {
                self.signal_foreground(number, signal);
            }
            if let Some(pty) = self.ptys.get(number) {
                pty.session = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Pty, INPUT, OUTPUT};
    use crate::signal::sig;
    use crate::system::Payer;
    use alloc::string::String;
    use alloc::vec;
    use fastrand::Rng;
    use linux_raw_sys::general as linux;

    fn pty() -> Pty {
        Pty::new(1, 0, 1, Payer::Nobody)
    }

    fn set(pty: &mut Pty, word: usize, off: u32, on: u32) {
        let mut termios = pty.termios().to_vec();
        let flags = crate::wire::u32_at(&termios, 4 * word) & !off | on;
        termios[4 * word..4 * word + 4].copy_from_slice(&flags.to_le_bytes());
        pty.set_termios(termios);
    }

    fn shown(pty: &mut Pty) -> String {
        String::from_utf8(pty.take_output(usize::MAX)).unwrap()
    }

    #[test]
    fn lines_are_edited_and_echoed() {
        let mut pty = pty();
        assert_eq!(pty.input(b"one tw"), (6, vec![]));
        assert!(!pty.is_readable());
        // Erase, erase a word, literal, end of line.
        pty.input(b"x\x7fo\x17three\x16\x03\r");
        assert_eq!(pty.read(100), b"one three\x03\n");
        assert_eq!(
            shown(&mut pty),
            "one twx\x08 \x08o\x08 \x08\x08 \x08\x08 \x08three^\x08^C\r\n"
        );
        // Ctrl-U erases the whole line; Ctrl-D ends a line, and an empty one is the end of input.
        pty.input(b"gone\x15kept\x04\x04");
        assert_eq!(
            (pty.readable(), pty.read(2), pty.read(9)),
            (4, b"ke".to_vec(), b"pt".to_vec())
        );
        assert!(pty.is_readable() && pty.read(9).is_empty() && !pty.is_readable());
        // In raw mode an unfinished line can be read, too.
        pty.input(b"line\nrest");
        set(&mut pty, 3, linux::ICANON | linux::ECHO, 0);
        assert_eq!(pty.read(100), b"line\nrest");
        pty.flush(false, true);
        pty.input(b"\x7f\x04");
        assert_eq!(
            (pty.read(100), shown(&mut pty)),
            (b"\x7f\x04".to_vec(), String::new())
        );
    }

    #[test]
    fn keys_are_signals_and_hold_output() {
        let mut pty = pty();
        let (taken, signals) = pty.input(b"typed\x03\x1c\x1arest\n");
        assert_eq!((taken, signals), (13, vec![sig::INT, sig::QUIT, sig::TSTP]));
        assert_eq!(pty.read(100), b"rest\n");
        assert_eq!(shown(&mut pty), "^Zrest\r\n");
        pty.input(b"\x13");
        assert_eq!((pty.write(b"x"), pty.is_writable()), (0, false));
        pty.input(b"\x11");
        assert_eq!((pty.write(b"a\nb"), shown(&mut pty)), (3, "a\r\nb".into()));
        set(&mut pty, 3, linux::ISIG, 0);
        assert_eq!(pty.input(b"\x03\n"), (2, vec![]));
        assert_eq!(pty.read(9), b"\x03\n");
    }

    /// While complete lines wait to be read, the writer waits: no byte that was taken is lost.
    #[test]
    fn lines_that_wait_are_not_lost() {
        let mut pty = pty();
        set(&mut pty, 3, linux::ECHO, 0);
        let line = b"0123456789\n";
        let all: vec::Vec<u8> = line.iter().copied().cycle().take(22_000).collect();
        let (mut typed, mut read) = (0, vec![]);
        while read.len() < all.len() {
            typed += pty.input(&all[typed..]).0;
            let rule = "where lines wait there is an end of what is taken";
            assert!(pty.ready.len() + pty.edit.len() < INPUT, "{rule}");
            assert_eq!(pty.has_room(), typed == all.len(), "{rule}");
            assert!(pty.is_readable());
            read.extend(pty.read(100));
        }
        assert_eq!(read, all, "no byte is lost");
    }

    /// Whatever is typed, written, set and read, the buffers stay bounded and as much can be read as is announced.
    #[test]
    fn anything_can_come() {
        let mut rng = Rng::with_seed(11);
        for _ in 0..50 {
            let mut pty = pty();
            for _ in 0..80 {
                let bytes: vec::Vec<u8> = (0..rng.usize(0..600)).map(|_| rng.u8(..)).collect();
                match rng.u32(0..6) {
                    0 => assert!(pty.write(&bytes) <= bytes.len()),
                    1 => {
                        let mut termios = pty.termios().to_vec();
                        for _ in 0..rng.usize(0..4) {
                            let at = rng.usize(0..termios.len());
                            termios[at] = rng.u8(..);
                        }
                        pty.set_termios(termios);
                    }
                    2 => drop(pty.take_output(rng.usize(0..5000))),
                    3 => {
                        let there = pty.readable();
                        assert_eq!(pty.read(4096).len(), there.min(4096));
                    }
                    _ => assert!(pty.input(&bytes).0 <= bytes.len()),
                }
                assert!(
                    pty.ready.len() + pty.edit.len() <= INPUT + 1 && pty.output.len() <= OUTPUT
                );
                assert!(pty.lines.len() <= INPUT + 1);
                assert!(pty.lines.iter().sum::<usize>() <= pty.ready.len());
            }
        }
    }
}
