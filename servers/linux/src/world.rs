//! The emulation's host over Fermata: memory through the process's window, files and console
//! through their servers.

use abi::state::{space_flags, FpuState, MappingState, SpaceState, ThreadState, FPU_BYTES};
use abi::{access, Registers, OBJECT_SIZE, PAGE_SIZE};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{RefCell, RefMut};
use personality::errno::{Errno, EIO, ENOMEM, ESRCH};
use personality::files::{Reply, Request};
use personality::host::{Fpu, Host, MemoryUsage, OutOfMemory, Start};
use personality::keeper::Keepers;
use personality::kept::Kept;
use personality::known::Known;
use personality::memory::{Area, Areas, Source, NO_SLOT};
use personality::object::read_sparse;
use personality::process::Task;
use personality::system::Tid;
use personality::templates::{Loaded, Templates};
use process::account::{self, Supply};
use process::debug::{Breakpoints, BREAKPOINT, SINGLE_STEP};
use process::watch::Watched;
use process::{Common, Copies, Process, Template};
use proto::layout::{CONTROL_MAPPINGS, CONTROL_THREAD, MEMORY_SIZE, PRIORITY_PROGRAM};
use rt::console::{Job, Mode, LINUX};
use rt::fs::{Files, Shown};
use rt::heap::Hold;
use rt::memory::{Limits, Usage};
use rt::obj::{MappingAt, Port, Ref, RefAt, ThreadAt};
use rt::window::Window;
use services::console::ConsoleControlClient;
use services::fs::{self, Ino, Opened, Place};
use services::process::Pid;

use crate::clock;
use crate::control::keeper;
use crate::disk::Disk;

/// A set of pages.
#[derive(Clone, Default)]
pub(crate) struct Pages {
    /// One bit for each page, 64 pages to a word.
    words: BTreeMap<u64, u64>,
}

/// Pages of a process that are known to be present: touching them cannot fail.
#[derive(Clone, Default)]
pub(crate) struct Present {
    /// Pages that can be read; they may be shared with a copy of the memory.
    readable: Pages,
    /// Pages that can be read and written.
    writable: Pages,
    /// Some pages are shared until one memory writes to them: a page that can be read cannot always be written.
    copied: bool,
}

impl Present {
    /// Whether all pages from `first` to `last` can be read, or written if `write`.
    fn has(&self, first: u64, last: u64, write: bool) -> bool {
        self.writable.has(first, last) || !write && self.readable.has(first, last)
    }

    fn remove(&mut self, first: u64, end: u64) {
        self.readable.remove(first, end);
        self.writable.remove(first, end);
    }

    /// Notes that the whole memory was copied on write: its pages can only be read. Returns what the copy has.
    fn copy(&mut self) -> Self {
        let writable = core::mem::take(&mut self.writable);
        for (index, word) in writable.words {
            *self.readable.words.entry(index).or_default() |= word;
        }
        self.copied = true;
        self.clone()
    }
}

impl Pages {
    /// Whether all pages from `first` to `last` are known to be present.
    fn has(&self, first: u64, last: u64) -> bool {
        (first..=last).all(|page| {
            self.words
                .get(&(page / 64))
                .is_some_and(|word| word & (1 << (page % 64)) != 0)
        })
    }

    fn add(&mut self, first: u64, last: u64) {
        for page in first..=last {
            *self.words.entry(page / 64).or_default() |= 1 << (page % 64);
        }
    }

    fn remove(&mut self, first: u64, end: u64) {
        let gone: Vec<u64> = self
            .words
            .range(first / 64..end.div_ceil(64))
            .map(|w| *w.0)
            .collect();
        for index in gone {
            let Some(word) = self.words.get_mut(&index) else {
                continue;
            };
            for bit in 0..64 {
                if (first..end).contains(&(index * 64 + bit)) {
                    *word &= !(1 << bit);
                }
            }
            if *word == 0 {
                self.words.remove(&index);
            }
        }
    }
}

/// A memory object: a segment that several memories map.
pub(crate) struct Object {
    body: Common,
    present: Present,
}

impl Object {
    /// A memory object with this segment.
    fn new(body: Common) -> Rc<RefCell<Self>> {
        let present = Present::default();
        Rc::new(RefCell::new(Object { body, present }))
    }

    /// Its segment.
    pub(crate) const fn body(&self) -> &Common {
        &self.body
    }

    /// Makes sure that a range is present, for writing, and returns the window through which the object is seen.
    fn window(&mut self, offset: u64, length: u64) -> Result<&Window, OutOfMemory> {
        make_present(&self.body, &mut self.present, offset, length)?;
        Ok(self.body.window())
    }

    /// Reads a range, which makes no page present.
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), OutOfMemory> {
        let Object { body, present } = self;
        let end = offset.checked_add(into.len() as u64).ok_or(OutOfMemory)?;
        let next = |at| present_from(body, present, at, end);
        let read = |at, into: &mut [u8]| body.window().read(at, into).map_err(|_| OutOfMemory);
        read_sparse(offset, into, next, read)
    }
}

/// Makes sure that a range of a memory object is present, for writing.
fn make_present(
    body: &Common,
    present: &mut Present,
    offset: u64,
    length: u64,
) -> Result<(), OutOfMemory> {
    if length == 0 {
        return Ok(());
    }
    let last = offset.checked_add(length).ok_or(OutOfMemory)? - 1;
    let (first, last) = (offset / PAGE_SIZE, last / PAGE_SIZE);
    if !present.has(first, last, true) {
        let (start, size) = (first * PAGE_SIZE, (last + 1 - first) * PAGE_SIZE);
        let made = body.segment().populate(start, size);
        made.map_err(|_| OutOfMemory)?;
        present.writable.add(first, last);
    }
    Ok(())
}

/// The first pages of a memory object from `at` on that can be read without taking memory, as offset and bytes; `None`
/// if there are none before `end`.
fn present_from(
    body: &Common,
    present: &mut Present,
    at: u64,
    end: u64,
) -> Result<Option<(u64, u64)>, OutOfMemory> {
    let (first, behind) = (at / PAGE_SIZE, end.div_ceil(PAGE_SIZE));
    let absent = (first..behind).find(|page| !present.has(*page, *page, false));
    let known = absent.unwrap_or(behind);
    if known > first {
        return Ok(Some((first * PAGE_SIZE, (known - first) * PAGE_SIZE)));
    }
    match rt::memory::present_from(&body.segment().control, first * PAGE_SIZE) {
        Ok(found) => {
            if let Some((start, size)) = found {
                let found = (start / PAGE_SIZE, start.saturating_add(size) / PAGE_SIZE);
                let (from, to) = (found.0.max(first), found.1.min(behind));
                if from < to {
                    // A page may be shared with a frozen copy, so writing to it can take memory.
                    present.readable.add(from, to - 1);
                }
            }
            Ok(found.filter(|(start, _)| *start < end))
        }
        // While bytes of a restored object are still to come nobody knows what is present.
        Err(_) => {
            make_present(body, present, at, end - at)?;
            Ok(Some((at, end - at)))
        }
    }
}

/// A range of a memory that maps a memory object.
#[derive(Clone)]
struct Range {
    end: u64,
    object: Rc<RefCell<Object>>,
    /// The offset in the object at which the range begins.
    offset: u64,
}

/// The ranges of a memory that map memory objects.
#[derive(Clone, Default)]
struct Ranges {
    /// The ranges, by first address.
    by_start: BTreeMap<u64, Range>,
    /// The first addresses, by slot.
    starts: BTreeMap<u32, u64>,
}

impl Ranges {
    fn remove(&mut self, slot: u32) {
        if let Some(start) = self.starts.remove(&slot) {
            self.by_start.remove(&start);
        }
    }

    /// Calls `each` for the pieces of a range: address, part of the range, and the object with the offset in it; `None`
    /// where the piece is in no object.
    fn pieces(
        &self,
        address: u64,
        length: usize,
        mut each: impl FnMut(
            u64,
            core::ops::Range<usize>,
            Option<(&Rc<RefCell<Object>>, u64)>,
        ) -> Result<(), OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        let mut done = 0;
        while done < length {
            let at = address + done as u64;
            let inside = self
                .by_start
                .range(..=at)
                .next_back()
                .filter(|(_, range)| at < range.end);
            let next = self
                .by_start
                .range(at + 1..)
                .next()
                .map_or(u64::MAX, |(start, _)| *start);
            let end = inside.map_or(next, |(_, range)| range.end);
            let until = done + (end - at).min((length - done) as u64) as usize;
            let place = inside.map(|(start, range)| (&range.object, range.offset + (at - start)));
            each(at, done..until, place)?;
            done = until;
        }
        Ok(())
    }
}

/// The memory of one or several tasks: a space with its segments.
pub(crate) struct Memory {
    /// The number of the keeper of the space.
    pub(crate) id: u64,
    /// The space with its segments.
    pub(crate) body: Process,
    pub(crate) present: Present,
    ranges: Ranges,
    breakpoints: Breakpoints,
    pub(crate) watched: Watched,
    /// A thread of a task of another process, for which breakpoints and watches are taken out.
    guest: Option<u64>,
    /// The port of the space's keeper, which ends with the memory.
    _port: Port,
}

/// The memory and the thread of a task.
pub(crate) struct Seat {
    pub(crate) memory: Rc<RefCell<Memory>>,
    /// Offset of the thread in the control segment.
    pub(crate) thread: u64,
    /// The thread does not run yet: the program of an `execve` is to begin in it.
    pub(crate) fresh: bool,
    /// The seat in which the task made the `execve`; it is left when the exception of its thread is answered.
    pub(crate) old: Option<Box<Seat>>,
    /// The seat in the memory into which the task's next program is being read.
    pub(crate) next: Option<Box<Seat>>,
}

impl Seat {
    /// The first thread of a process.
    pub(crate) fn first(id: u64, body: Process, port: Port) -> Self {
        Seat {
            memory: Rc::new(RefCell::new(Memory {
                id,
                body,
                present: Present::default(),
                ranges: Ranges::default(),
                breakpoints: Breakpoints::default(),
                watched: Watched::default(),
                guest: None,
                _port: port,
            })),
            thread: CONTROL_THREAD,
            fresh: false,
            old: None,
            next: None,
        }
    }

    /// Another thread in the same memory, at this offset of the control segment.
    pub(crate) fn beside(&self, thread: u64) -> Self {
        Seat {
            memory: Rc::clone(&self.memory),
            thread,
            fresh: false,
            old: None,
            next: None,
        }
    }

    /// The thread.
    pub(crate) fn thread(&self) -> ThreadAt {
        self.memory.borrow().body.thread_at(self.thread)
    }

    /// Ends the thread, and with the last thread the memory.
    pub(crate) fn leave(self) {
        for other in [self.old, self.next].into_iter().flatten() {
            other.leave();
        }
        match Rc::try_unwrap(self.memory) {
            Ok(memory) => memory.into_inner().body.destroy(),
            Err(memory) => {
                memory.borrow_mut().guest_leaves(self.thread);
                let thread = memory.borrow().body.thread_at(self.thread);
                // Images and restores rely on the first thread of a memory.
                let _ = match self.thread {
                    CONTROL_THREAD => thread.stop(),
                    _ => thread.destroy(),
                };
            }
        }
    }
}

/// A task that was just started.
pub(crate) struct Born {
    pub(crate) task: Task,
    pub(crate) seat: Seat,
}

/// Most frozen copies of the memories and memory objects of one job, and of all. A tree that is saved beyond that is
/// stopped until its image is written.
const MAX_JOB_COPIES: usize = 32;
const MAX_COPIES: usize = 48;

/// What all processes of the server share.
pub(crate) struct World {
    fs: Files,
    /// What is known of the files in memory.
    known: Known,
    /// The memory that the file server shows, if it does.
    shown: Option<Shown>,
    /// Files in memory that nobody has open any more, and that are still open at the file server.
    kept: Kept,
    /// The file system on the disk, if there is one.
    pub(crate) disk: Disk,
    /// Control of the console.
    console: Option<ConsoleControlClient>,
    /// All memory objects.
    objects: BTreeMap<u64, Rc<RefCell<Object>>>,
    /// The segments of the memory objects of a tree that is being restored, until each is taken by an object.
    pub(crate) adopted: Vec<Option<Common>>,
    /// Templates of loaded programs.
    templates: Templates<Template>,
    /// The frozen copies of memories and memory objects.
    pub(crate) copies: Copies,
    /// The memory and the thread's offset of each task that is stopped for its tracer.
    pub(crate) peers: BTreeMap<Tid, (Weak<RefCell<Memory>>, u64)>,
    /// Tasks that were started and are not in the table yet.
    pub(crate) born: Vec<Born>,
    /// The portset of all ports.
    pub(crate) portset: Ref,
    /// The numbers of the memories' keepers.
    keepers: Keepers,
    /// `cpuid` leaf 1, `edx`.
    capabilities: u64,
    /// The memory server's supervisor port, as init has passed it.
    supervisor: Option<RefAt>,
    /// The date at which the machine's clock was zero.
    origin: u64,
    /// Whether notes of what the personality does not have are logged.
    verbose: bool,
    /// Whether each call is logged.
    pub(crate) trace: bool,
    /// Whether a debugger may watch some process's memory.
    pub(crate) watches: bool,
    /// What the counter shows when the machine's clock is 0, and its rate ([`vdso::Clock`]).
    clock: Option<(u64, u64)>,
    /// Room for a thread's state of which a part is needed.
    state: Box<ThreadState>,
    /// Memory that is reserved for the current work. Cleared before the server waits.
    pub(crate) room: Hold,
}

impl World {
    /// The state at the start, without processes.
    pub(crate) fn new(portset: Ref) -> Self {
        World {
            fs: rt::fs::memory(),
            known: Known::default(),
            shown: Shown::open().ok(),
            kept: Kept::default(),
            disk: Disk::new(),
            // Opened at once if possible, so that what the server keeps does not depend on what programs ask first.
            console: rt::start::passed(CONSOLE).and_then(|door| rt::console::control(&door).ok()),
            objects: BTreeMap::new(),
            adopted: Vec::new(),
            templates: Templates::default(),
            copies: Copies::new(MAX_JOB_COPIES, MAX_COPIES),
            peers: BTreeMap::new(),
            born: Vec::new(),
            portset,
            keepers: Keepers::default(),
            capabilities: u64::from(core::arch::x86_64::__cpuid(1).edx),
            supervisor: rt::start::passed(0),
            origin: rt::time::origin(),
            clock: clock::told(),
            verbose: is_told("verbose"),
            trace: is_told("trace"),
            watches: false,
            state: Box::default(),
            room: Hold::default(),
        }
    }

    /// The memory and the thread's offset of a task that is stopped for its tracer.
    fn peer(&self, tid: Tid) -> Result<(Rc<RefCell<Memory>>, u64), Errno> {
        let (memory, thread) = self.peers.get(&tid).ok_or(ESRCH)?;
        Ok((memory.upgrade().ok_or(ESRCH)?, *thread))
    }

    /// Where the memory of a process comes from, with the limits of a process.
    pub(crate) fn supply(&self) -> Result<Supply, proto::Error> {
        self.supply_of(account::linux)
    }

    /// Where memory comes from, with limits that `limits` computes from the bytes of the machine.
    pub(crate) fn supply_of(&self, limits: fn(u64) -> Limits) -> Result<Supply, proto::Error> {
        let supervisor = self.supervisor.ok_or(proto::Error::Denied)?;
        let limits = limits(rt::memory::machine_usage(&supervisor)?.total);
        Ok(Supply {
            supervisor,
            limits,
            payer: None,
        })
    }

    /// The keeper of a new space, its number, and the state of the space.
    pub(crate) fn new_keeper(
        &mut self,
        clock_offset: u64,
    ) -> Result<(u64, Port, SpaceState), proto::Error> {
        let number = self.keepers.another()?;
        let port = keeper(*self.portset, number).map_err(rt::error_of)?;
        let space = SpaceState {
            flags: space_flags::FOREIGN,
            max_priority: PRIORITY_PROGRAM,
            clock_offset,
            ..SpaceState::default()
        };
        Ok((number, port, space))
    }

    /// The memory that a process may still take; without a process, that a new one may.
    fn usage(&self, body: Option<&Process>) -> Result<Usage, proto::Error> {
        if let Some(body) = body {
            return body.account().usage();
        }
        let supply = self.supply()?;
        let usage = rt::memory::machine_usage(&supply.supervisor)?;
        Ok(Usage {
            free: usage.free.min(supply.limits.most),
            ..usage
        })
    }

    /// A memory object, if there is one.
    pub(crate) fn find_object(&self, id: u64) -> Option<&Rc<RefCell<Object>>> {
        self.objects.get(&id)
    }

    /// The memory object that an area shows, if it shows one.
    fn object(&self, area: &Area) -> Result<Option<Rc<RefCell<Object>>>, Errno> {
        match area.object() {
            None => Ok(None),
            Some(id) => self.objects.get(&id).cloned().map(Some).ok_or(ENOMEM),
        }
    }

    /// Whether a request is for the file system on the disk. Error: `Unsupported` if it names files of both file
    /// systems.
    fn is_for_disk(&mut self, request: &Request) -> Result<bool, proto::Error> {
        let on_disk = request.is_on_disk().ok_or(proto::Error::Unsupported)?;
        // Without a disk the file system in memory says that nothing is there.
        Ok(on_disk && self.disk.is_there())
    }

    /// Asks the file system, in one session for all processes, whose descriptors the emulation keeps apart.
    pub(crate) fn ask_fs(
        &mut self,
        request: &Request,
        bulk: &[u8],
        into: &mut [u8],
    ) -> Result<(Reply, usize), proto::Error> {
        match self.is_for_disk(request)? {
            true => self.disk.ask_now(request, bulk, into),
            false => self.ask_memory(request, bulk, into),
        }
    }

    #[inline(never)]
    fn ask_memory(
        &mut self,
        request: &Request,
        bulk: &[u8],
        into: &mut [u8],
    ) -> Result<(Reply, usize), proto::Error> {
        self.ask_or_know(request, bulk, into)
    }

    /// As [`World::ask_fs`], for the call that is being made, which may have to wait.
    #[inline(always)]
    fn ask_for_call(
        &mut self,
        request: &Request,
        bulk: &[u8],
        into: &mut [u8],
    ) -> Result<(Reply, usize), proto::Error> {
        match self.is_for_disk(request)? {
            true => self.disk.ask(request, bulk, into),
            // A call that waits does nothing but close files.
            false if self.disk.waits() && !matches!(request, Request::Close { .. }) => {
                Err(proto::Error::WouldBlock)
            }
            false => self.ask_or_know(request, bulk, into),
        }
    }

    /// Answers a request from what is known, or asks the file system in memory.
    #[inline(always)]
    fn ask_or_know(
        &mut self,
        request: &Request,
        bulk: &[u8],
        into: &mut [u8],
    ) -> Result<(Reply, usize), proto::Error> {
        let Some(before) = self.shown.as_ref().and_then(Shown::changes) else {
            return ask(&mut self.fs, request, bulk, into);
        };
        if !self.kept.is_empty() && (!self.known.is_true(before) || self.needs_closed(request)) {
            self.let_go();
        }
        match *request {
            Request::Read {
                ino,
                offset,
                length,
            } => {
                let length = into.len().min(length as usize);
                if let Some(came) = self.read_shown(ino, offset, before, &mut into[..length]) {
                    return Ok((Reply::Done, came));
                }
            }
            Request::Open {
                ref path, flags, ..
            } => {
                let opened = self.known.opens(path, flags, before);
                if let Some(opened) = opened.filter(|opened| self.kept.take(opened.ino)) {
                    return Ok((Reply::Opened(opened), 0));
                }
            }
            Request::Close { ino } => {
                if self.kept.is_full() {
                    self.let_go();
                }
                let opened = self.known.opened(ino, before);
                if opened.is_some_and(|opened| self.kept.keep(&opened)) {
                    return Ok((Reply::Done, 0));
                }
            }
            _ => {}
        }
        let Some(shown) = &self.shown else {
            return ask(&mut self.fs, request, bulk, into);
        };
        if let Some(known) = self.known.answer(request, before) {
            return known.map(|attr| (Reply::Attr(attr), 0));
        }
        let result = ask(&mut self.fs, request, bulk, into);
        if let Some(after) = shown.changes() {
            self.known.learn(request, &result, (before, after));
        }
        result
    }

    /// Whether the kept files are to be closed before this request, since a removed file has no name, and a file that
    /// is written to may grow.
    fn needs_closed(&self, request: &Request) -> bool {
        match *request {
            Request::Unlink { .. } | Request::Rename { .. } => true,
            Request::Write { ino, .. } | Request::Truncate { ino, .. } => self.kept.has(ino),
            _ => false,
        }
    }

    /// Closes the files that nobody has open any more.
    #[cold]
    fn let_go(&mut self) {
        // The files are open, so this does not fail; and nobody could do anything about it.
        let _ = self.fs.close_all(&self.kept.let_go());
    }

    /// Reads a file from the memory that the file server shows, as one request would: the number of bytes. `None`: the
    /// server has to be asked, since the file does not lie there or others are changing files.
    ///
    /// `count` is the number of changes at the beginning; others may have made more since.
    fn read_shown(
        &mut self,
        ino: Ino,
        offset: u64,
        mut count: u64,
        into: &mut [u8],
    ) -> Option<usize> {
        let shown = self.shown.as_ref()?;
        let mut done = 0;
        while done < into.len() {
            let at = offset.checked_add(done as u64)?;
            let place = match self.known.place(ino, at, count) {
                Some(place) => place,
                None => {
                    let place = Place::from_words(self.fs.place(ino, at).ok()?);
                    let after = shown.changes()?;
                    self.known.learn_place(ino, at, place, (count, after));
                    if !self.known.is_true(after) {
                        return None;
                    }
                    count = after;
                    place
                }
            };
            let (length, stored, start) = place.from(at);
            let length = length.min(into.len() - done);
            let (piece, zeros) = into[done..done + length].split_at_mut(stored.min(length));
            if !piece.is_empty() {
                shown.read(place.part, start, piece).ok()?;
            }
            zeros.fill(0);
            done += length;
            if length == 0 {
                break;
            }
        }
        // If nothing has changed meanwhile, the bytes are those of the file.
        self.known.is_true(shown.changes()?).then_some(done)
    }

    /// The clock of a process whose time is the machine's.
    pub(crate) fn clock(&self) -> Option<vdso::Clock> {
        self.clock.map(|(start, rate)| vdso::Clock {
            start,
            rate,
            offset: 0,
            origin: self.origin,
        })
    }

    /// Control of the console.
    fn console(&mut self) -> Result<&mut ConsoleControlClient, proto::Error> {
        if self.console.is_none() {
            let door = rt::start::passed(CONSOLE).ok_or(proto::Error::Denied)?;
            self.console = Some(rt::console::control(&door)?);
        }
        self.console.as_mut().ok_or(proto::Error::Broken)
    }
}

/// Whether init has given the server this word.
fn is_told(word: &str) -> bool {
    rt::start().args.iter().skip(1).any(|given| given == word)
}

/// Asks a file system. In line, so that answers of the one in memory are not moved about.
#[inline(always)]
pub(crate) fn ask(
    files: &mut Files,
    request: &Request,
    bulk: &[u8],
    into: &mut [u8],
) -> Result<(Reply, usize), proto::Error> {
    let done = |()| Reply::Done;
    let reply = match *request {
        Request::Open {
            ref path,
            flags,
            mode,
        } => {
            let (ino, mode, size) = files.open_file(flags.bits(), mode, path)?;
            Reply::Opened(Opened { ino, mode, size })
        }
        Request::Close { ino } => files.close(ino).map(done)?,
        Request::Stat { ref path, follow } => attr(|into| files.stat(follow, path, into))?,
        Request::StatIno { ino } => attr(|into| files.attributes(ino, into))?,
        Request::Read {
            ino,
            offset,
            length,
        } => {
            let length = into.len().min(length as usize);
            let came = files.read(ino, offset, &mut into[..length])?;
            return Ok((Reply::Done, came));
        }
        Request::Write {
            ino, append: true, ..
        } => {
            let (length, offset) = files.append(ino, bulk)?;
            Reply::Written { length, offset }
        }
        Request::Write { ino, offset, .. } => {
            let length = files.write(ino, offset, bulk)?;
            Reply::Written { length, offset }
        }
        Request::Truncate { ino, size } => files.truncate(ino, size).map(done)?,
        Request::ReadDir { ino, cookie } => {
            let came = files.read_dir(ino, cookie, into)?;
            return Ok((Reply::Done, came));
        }
        Request::Mkdir { ref path, mode } => files.mkdir(mode, path).map(done)?,
        Request::Unlink { ref path } => files.unlink(path).map(done)?,
        Request::Rmdir { ref path } => files.rmdir(path).map(done)?,
        Request::Rename { ref from, ref to } => {
            let (first, both) = fs::pair(from, to);
            files.rename(first, &both).map(done)?
        }
        Request::Link { ref from, ref to } => {
            let (first, both) = fs::pair(from, to);
            files.link(first, &both).map(done)?
        }
        Request::Symlink {
            ref target,
            ref path,
        } => {
            let (first, both) = fs::pair(target, path);
            files.symlink(first, &both).map(done)?
        }
        Request::Readlink { ref path } => text(|into| files.readlink(path, into))?,
        Request::PathOf { ino } => text(|into| files.path_of(ino, into))?,
        Request::Chmod { ino, mode } => files.chmod(ino, mode).map(done)?,
        Request::Chown { ino, uid, gid } => files.chown(ino, uid, gid).map(done)?,
        Request::Utimens {
            ino,
            atime_ns,
            mtime_ns,
        } => files.utimens(ino, atime_ns, mtime_ns).map(done)?,
        Request::Usage { .. } => {
            let (bytes, files, most_bytes, most_files) = files.usage()?;
            Reply::Usage {
                bytes,
                files,
                most_bytes,
                most_files,
            }
        }
        Request::Sync { ino } => files.sync(ino).map(done)?,
    };
    Ok((reply, 0))
}

/// The attributes that `ask` writes as bytes.
fn attr(ask: impl FnOnce(&mut [u8]) -> Result<usize, proto::Error>) -> Result<Reply, proto::Error> {
    let mut bytes = [0; fs::ATTR_ROOM];
    let came = ask(&mut bytes)?;
    fs::attr(&bytes[..came.min(fs::ATTR_ROOM)]).map(Reply::Attr)
}

/// The path that `ask` writes as bytes.
fn text(ask: impl FnOnce(&mut [u8]) -> Result<usize, proto::Error>) -> Result<Reply, proto::Error> {
    let mut bytes = vec![0; fs::PATH_ROOM];
    let came = ask(&mut bytes)?;
    bytes.truncate(came);
    String::from_utf8(bytes)
        .map(Reply::Path)
        .map_err(|_| proto::Error::Broken)
}

/// The place, among the references that init passes, of the door that gives control of the console.
pub(crate) const CONSOLE: usize = 1;

/// The host of one process, for the call of one of its tasks.
pub(crate) struct View<'a> {
    /// The process at the root of its tree.
    pub(crate) root: Pid,
    /// The task's memory and thread; none while a part is saved or restored.
    pub(crate) seat: Option<&'a mut Seat>,
    /// What all processes share.
    pub(crate) world: &'a mut World,
}

impl View<'_> {
    /// The job of the process, for the console.
    fn job(&self) -> Job {
        LINUX + Job::from(self.root)
    }

    /// The nanoseconds that the clock of the process's space adds to the machine's.
    fn clock_offset(&self) -> Result<u64, Errno> {
        let own = self.seat.as_deref().ok_or(ENOMEM)?;
        let memory = own.memory.borrow();
        let keeper = Ref::new().map_err(|_| ENOMEM)?;
        let state = memory.body.space().get_state(keeper.handle());
        Ok(state.map_err(|_| ENOMEM)?.clock_offset)
    }

    /// A seat in a new memory, which is empty and in the process's account.
    fn beside(&mut self) -> Result<Seat, Errno> {
        let clock = self.clock_offset()?;
        let own = self.seat.as_deref().ok_or(ENOMEM)?;
        let made = self.world.new_keeper(clock).and_then(|(id, port, space)| {
            let keeper = port.reference().map_err(rt::error_of)?;
            let body = own.memory.borrow().body.beside(&space, &keeper)?;
            Ok(Seat {
                fresh: true,
                ..Seat::first(id, body, port)
            })
        });
        made.map_err(|_| ENOMEM)
    }

    /// The task's memory.
    fn memory(&self) -> Option<RefMut<'_, Memory>> {
        Some(self.seat.as_ref()?.memory.borrow_mut())
    }

    /// A seat in a copy of the template of this loaded program, if there is a template.
    fn made_of(&mut self, loaded: &Loaded) -> Option<Seat> {
        let clock = self.clock_offset().ok()?;
        let (id, port, space) = self.world.new_keeper(clock).ok()?;
        let keeper = port.reference().ok()?;
        let own = self.seat.as_deref()?.memory.borrow();
        let templates = &mut self.world.templates;
        templates.retain(Template::lives);
        let is_of = |template: &Template| template.is_of(&own.body);
        let template = templates.find(loaded, is_of)?;
        // Memory for the program's first writes is reserved, so that others cannot take it.
        let _ = own.body.account().reserve(FIRST_WRITES);
        match own.body.made_of(template, &space, &keeper) {
            Ok(body) => {
                let seat = Seat::first(id, body, port);
                seat.memory.borrow_mut().present.copied = true;
                Some(Seat {
                    fresh: true,
                    ..seat
                })
            }
            // There is no room for both the template and the copy.
            Err(_) => {
                templates.give_up(is_of);
                None
            }
        }
    }
}

impl Memory {
    /// Makes sure that the range is present, for reading or for writing.
    fn ensure(&mut self, address: u64, length: usize, write: bool) -> Result<(), OutOfMemory> {
        let Memory { body, present, .. } = self;
        if length == 0 {
            return Ok(());
        }
        let last = address.checked_add(length as u64 - 1).ok_or(OutOfMemory)?;
        let (first, last) = (address / PAGE_SIZE, last / PAGE_SIZE);
        if present.has(first, last, write) {
            return Ok(());
        }
        if write && present.copied {
            let start = first * PAGE_SIZE;
            let size = (last + 1 - first) * PAGE_SIZE;
            body.memory()
                .populate(start, size)
                .map_err(|_| OutOfMemory)?;
        } else {
            body.ensure(address, length as u64)
                .map_err(|_| OutOfMemory)?;
        }
        let known = if write || !present.copied {
            &mut present.writable
        } else {
            &mut present.readable
        };
        known.add(first, last);
        Ok(())
    }

    /// The mapping of a slot, whose page of the control segment is present then.
    fn place(&mut self, slot: u32) -> Result<MappingAt, Errno> {
        let Memory { body, present, .. } = self;
        let offset = place_of(slot);
        // Pages of the control segment have numbers behind those of the memory.
        let page = (MEMORY_SIZE + offset) / PAGE_SIZE;
        if !present.writable.has(page, page) {
            let start = offset & !(PAGE_SIZE - 1);
            body.control()
                .populate(start, PAGE_SIZE)
                .map_err(|_| ENOMEM)?;
            present.writable.add(page, page);
        }
        Ok(MappingAt(body.control_window().address() + offset))
    }

    /// Makes the mapping of an area, which maps this object or, without one, the memory's own segment.
    fn map(&mut self, area: &Area, object: Option<Rc<RefCell<Object>>>) -> Result<(), Errno> {
        let mapping = self.place(area.slot)?;
        mapping.create().map_err(|_| ENOMEM)?;
        self.show(mapping, area, object).inspect_err(|_| {
            let _ = mapping.destroy();
        })
    }

    /// Sets a mapping to an area.
    fn show(
        &mut self,
        mapping: MappingAt,
        area: &Area,
        object: Option<Rc<RefCell<Object>>>,
    ) -> Result<(), Errno> {
        let Memory { body, watched, .. } = &mut *self;
        let body = &*body;
        let space = body.space_ref().handle();
        let set = |region| mapping.set_state(&mapping_state(area), region, space);
        let place = place_of(area.slot);
        watched.make_whole(body, place);
        let shown = match &object {
            None => set(body.memory().region.handle()),
            Some(object) => set(object.borrow().body.segment().region.handle()),
        };
        if !watched.cut_if_possible(body, place) {
            rt::log!("linux: a debugger's watchpoint is gone: there is no memory for it");
        }
        shown.map_err(|_| ENOMEM)?;
        self.learn_range(area, object);
        Ok(())
    }

    /// Notes that an area maps this object, or the memory's own segment.
    fn learn_range(&mut self, area: &Area, object: Option<Rc<RefCell<Object>>>) {
        self.ranges.remove(area.slot);
        if let (Some(object), Source::Object { offset, .. }) = (object, area.source()) {
            let range = Range {
                end: area.end,
                object,
                offset,
            };
            self.ranges.starts.insert(area.slot, area.start);
            self.ranges.by_start.insert(area.start, range);
        }
    }

    /// Notes which areas map memory objects. To be called when the mappings were made elsewhere, as at a restore.
    pub(crate) fn learn_ranges(&mut self, areas: &Areas, world: &World) {
        for area in areas.list().iter().filter(|area| area.slot != NO_SLOT) {
            self.learn_range(area, world.object(area).ok().flatten());
        }
    }

    /// Reads a range, which may be in memory objects.
    pub(crate) fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), OutOfMemory> {
        self.watched.touch(address, into.len() as u64, access::READ);
        if self.ranges.by_start.is_empty() {
            return self.read_own(address, into);
        }
        let ranges = core::mem::take(&mut self.ranges);
        let length = into.len();
        let result = ranges.pieces(address, length, |at, piece, place| match place {
            None => self.read_own(at, &mut into[piece]),
            Some((object, offset)) => object.borrow_mut().read(offset, &mut into[piece]),
        });
        self.ranges = ranges;
        result
    }

    /// Writes a range, which may be in memory objects.
    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), OutOfMemory> {
        let length = bytes.len() as u64;
        self.watched.touch(address, length, access::WRITE);
        if self.ranges.by_start.is_empty() {
            return self.write_own(address, bytes);
        }
        let ranges = core::mem::take(&mut self.ranges);
        let result = ranges.pieces(address, bytes.len(), |at, piece, place| match place {
            None => self.write_own(at, &bytes[piece]),
            Some((object, offset)) => {
                let mut object = object.borrow_mut();
                let window = object.window(offset, piece.len() as u64)?;
                let written = window.write(offset, &bytes[piece]);
                written.map_err(|_| OutOfMemory)
            }
        });
        self.ranges = ranges;
        result
    }

    fn read_own(&mut self, address: u64, into: &mut [u8]) -> Result<(), OutOfMemory> {
        self.ensure(address, into.len(), false)?;
        let window = self.body.memory_window();
        window.read(address, into).map_err(|_| OutOfMemory)
    }

    fn write_own(&mut self, address: u64, bytes: &[u8]) -> Result<(), OutOfMemory> {
        self.ensure(address, bytes.len(), true)?;
        let window = self.body.memory_window();
        window.write(address, bytes).map_err(|_| OutOfMemory)
    }

    /// Replaces the word at `address` by `new` if it is `old`, in one step, and returns the word that was there.
    fn exchange(&mut self, address: u64, old: u32, new: u32) -> Result<u32, OutOfMemory> {
        self.watched.touch(address, 4, access::READ | access::WRITE);
        let range = self.ranges.by_start.range(..=address).next_back();
        if let Some((start, range)) = range.filter(|(_, range)| address < range.end) {
            let offset = range.offset + (address - start);
            let mut object = range.object.borrow_mut();
            let window = object.window(offset, 4)?;
            return window.exchange(offset, old, new).map_err(|_| OutOfMemory);
        }
        self.ensure(address, 4, true)?;
        let window = self.body.memory_window();
        window.exchange(address, old, new).map_err(|_| OutOfMemory)
    }

    /// Whether the page at this address is present.
    fn has_page(&self, page: u64) -> bool {
        let range = self.ranges.by_start.range(..=page).next_back();
        if let Some((start, range)) = range.filter(|(_, range)| page < range.end) {
            let at = range.offset + (page - start);
            let object = range.object.borrow();
            let number = at / PAGE_SIZE;
            let region = &object.body.segment().region;
            return object.present.has(number, number, false)
                || region.search(at, at + PAGE_SIZE, 1).is_ok();
        }
        let number = page / PAGE_SIZE;
        let region = &self.body.memory().region;
        self.present.has(number, number, false) || region.search(page, page + PAGE_SIZE, 1).is_ok()
    }

    /// Takes breakpoints and watches out of the memory until [`Memory::put_back`]; calls can be nested.
    pub(crate) fn take_out(&mut self) {
        self.breakpoints.take_out(&self.body);
        self.watched.take_out(&self.body);
    }

    /// Undoes one [`Memory::take_out`]. A watch for which there is no memory is removed.
    pub(crate) fn put_back(&mut self) {
        self.breakpoints.put_back(&self.body);
        if !self.watched.put_back(&self.body) {
            rt::log!("linux: a debugger's watchpoint is gone: there is no memory for it");
        }
    }

    /// Sets or removes a breakpoint.
    pub(crate) fn breakpoint(&mut self, offset: u64, set: bool) -> Result<(), proto::Error> {
        match set {
            true => self.breakpoints.set(&self.body, offset),
            false => {
                self.breakpoints.clear(&self.body, offset);
                Ok(())
            }
        }
    }

    /// Removes all breakpoints and watches, for the debugger has gone. `frozen`: they are taken out because the process
    /// is frozen.
    pub(crate) fn clear_breakpoints(&mut self, frozen: bool) {
        self.breakpoints.clear_all(&self.body);
        self.watched.clear(&self.body);
        if self.guest.take().is_some() {
            // The guest may stay, and the next debugger's breakpoints must be in the memory.
            self.put_back();
        }
        if frozen {
            self.put_back();
        }
    }

    /// A task whose process is not debugged has met a breakpoint that is another process's in the same memory: takes
    /// the breakpoints out until the task leaves the memory. False: there is none here, or the program has one of its
    /// own.
    pub(crate) fn make_way(&mut self, address: u64, thread: u64) -> bool {
        if !self.breakpoints.has(address) {
            return false;
        }
        if self.guest.is_none() {
            self.guest = Some(thread);
            self.take_out();
        }
        // If the byte is a breakpoint all the same, it is the program's own.
        let mut byte = [0];
        let read = self.body.memory_window().read(address, &mut byte);
        read.is_ok() && byte != [BREAKPOINT]
    }

    /// The same for a task that has met a page with bytes that another process's debugger watches. False: it has not.
    pub(crate) fn give_way(&mut self, address: u64, thread: u64) -> bool {
        let met = self.guest.is_none() && self.watched.has_page(address);
        if met {
            self.guest = Some(thread);
            self.take_out();
        }
        met
    }

    /// A thread leaves the memory: what was taken out for it is put back.
    fn guest_leaves(&mut self, thread: u64) {
        if self.guest == Some(thread) {
            self.guest = None;
            self.put_back();
        }
    }

    /// The seat of a new task in a copy of the memory, on write.
    fn copy(&mut self, world: &mut World, task: &Task) -> Result<Seat, Errno> {
        let made = world
            .new_keeper(task.clock_offset)
            .and_then(|(id, port, space)| {
                let keeper = port.reference().map_err(rt::error_of)?;
                // Memory for the child's first writes is reserved, so that others cannot take it.
                let _ = self.body.account().reserve(FIRST_WRITES);
                // The debugger of this process is not the copy's.
                self.breakpoints.take_out(&self.body);
                let copy = self.body.copy(&space, &keeper);
                self.breakpoints.put_back(&self.body);
                Ok((id, copy?, port))
            });
        let (id, body, port) = made.map_err(|_| ENOMEM)?;
        let seat = Seat::first(id, body, port);
        let mapped = {
            let mut memory = seat.memory.borrow_mut();
            let mut present = self.present.copy();
            // The copy has a new control segment.
            present.remove(MEMORY_SIZE / PAGE_SIZE, u64::MAX / PAGE_SIZE);
            memory.present = present;
            let mut shared = task.shares.memory.borrow_mut();
            // Ranges into which other threads are loading stay theirs.
            for (start, end) in shared.areas.forget_loading(|_| true) {
                let _ = memory.body.memory().discard(start, end - start);
                memory.present.remove(start / PAGE_SIZE, end / PAGE_SIZE);
            }
            let areas = shared.areas.list().iter().filter(|a| a.slot != NO_SLOT);
            let mut areas = areas.map(|area| memory.map(area, world.object(area)?));
            areas.try_for_each(|made| made)
        };
        match mapped {
            Ok(()) => Ok(seat),
            Err(error) => {
                seat.leave();
                Err(error)
            }
        }
    }
}

/// The offset of a slot's mapping in the control segment.
pub(crate) const fn place_of(slot: u32) -> u64 {
    CONTROL_MAPPINGS + slot as u64 * OBJECT_SIZE
}

/// How many bytes a child is going to write at once: its stack and what its library keeps.
const FIRST_WRITES: u64 = 512 << 10;

/// The state of the mapping of an area, with the rights that the processor can give: what may be written or executed
/// may be read.
fn mapping_state(area: &Area) -> MappingState {
    MappingState {
        start: area.start,
        size: area.end - area.start,
        offset: match area.source() {
            Source::Own => area.start,
            Source::Object { offset, .. } => offset,
        },
        protection: u64::from(area.prot) | access::READ,
    }
}

impl Host for View<'_> {
    fn room(&mut self, bytes: u64) -> Result<(), Errno> {
        self.world.room.add(bytes).map_err(|_| ENOMEM)
    }

    fn read_memory(&mut self, address: u64, into: &mut [u8]) -> Result<(), OutOfMemory> {
        // An empty range can be anywhere, also beyond all memory.
        if into.is_empty() {
            return Ok(());
        }
        self.memory().ok_or(OutOfMemory)?.read(address, into)
    }

    fn write_memory(&mut self, address: u64, bytes: &[u8]) -> Result<(), OutOfMemory> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.memory().ok_or(OutOfMemory)?.write(address, bytes)
    }

    fn exchange(&mut self, address: u64, old: u32, new: u32) -> Result<u32, OutOfMemory> {
        let mut memory = self.memory().ok_or(OutOfMemory)?;
        memory.exchange(address, old, new)
    }

    fn is_present(&mut self, address: u64, length: u64) -> bool {
        let Some(memory) = self.memory() else {
            return false;
        };
        let (mut page, end) = (address & !(PAGE_SIZE - 1), address.saturating_add(length));
        while page < end {
            if !memory.has_page(page) {
                return false;
            }
            page += PAGE_SIZE;
        }
        true
    }

    fn discard(&mut self, start: u64, size: u64) {
        let result = self.memory().map(|mut memory| {
            memory
                .present
                .remove(start / PAGE_SIZE, (start + size) / PAGE_SIZE);
            memory.breakpoints.forget(start, start.saturating_add(size));
            memory.body.memory().discard(start, size)
        });
        if let Some(Err(error)) = result {
            rt::log!("linux: memory could not be given back: {}", error.text());
        }
    }

    fn hide_breakpoints(&mut self, hidden: bool) {
        let Some(mut memory) = self.memory() else {
            return;
        };
        let Memory {
            body, breakpoints, ..
        } = &mut *memory;
        match hidden {
            true => breakpoints.take_out(body),
            false => breakpoints.put_back(body),
        }
    }

    fn map(&mut self, area: &Area) -> Result<(), Errno> {
        let object = self.world.object(area)?;
        self.memory().ok_or(ENOMEM)?.map(area, object)
    }

    fn remap(&mut self, area: &Area) -> Result<(), Errno> {
        let object = self.world.object(area)?;
        let mut memory = self.memory().ok_or(ENOMEM)?;
        let mapping = memory.body.mapping(u64::from(area.slot));
        memory.show(mapping, area, object)
    }

    fn unmap(&mut self, slot: u32) {
        let Some(mut memory) = self.memory() else {
            return;
        };
        memory.ranges.remove(slot);
        let Memory { body, watched, .. } = &mut *memory;
        watched.mapping_ends(body, place_of(slot));
        let _ = memory.body.mapping(u64::from(slot)).destroy();
    }

    fn new_object(&mut self, id: u64) -> Result<(), Errno> {
        let body = {
            let memory = self.memory().ok_or(ENOMEM)?;
            memory.body.common().map_err(|_| ENOMEM)?
        };
        self.world.objects.insert(id, Object::new(body));
        Ok(())
    }

    fn adopt_object(&mut self, id: u64, number: usize) -> Result<(), Errno> {
        let adopted = self.world.adopted.get_mut(number);
        let body = adopted.and_then(Option::take).ok_or(EIO)?;
        self.world.objects.insert(id, Object::new(body));
        Ok(())
    }

    fn end_object(&mut self, id: u64) {
        // Nobody maps the object any more. A memory that is about to go may still refer to it, and the object ends with
        // that.
        self.world.objects.remove(&id);
    }

    fn read_object(&mut self, id: u64, offset: u64, into: &mut [u8]) -> Result<(), OutOfMemory> {
        if into.is_empty() {
            return Ok(());
        }
        let object = self.world.objects.get(&id).ok_or(OutOfMemory)?;
        object.borrow_mut().read(offset, into)
    }

    fn hold_object(&mut self, id: u64, offset: u64, length: u64) -> Result<(), OutOfMemory> {
        let object = self.world.objects.get(&id).ok_or(OutOfMemory)?;
        object.borrow_mut().window(offset, length).map(drop)
    }

    fn write_object(&mut self, id: u64, offset: u64, bytes: &[u8]) -> Result<(), OutOfMemory> {
        if bytes.is_empty() {
            return Ok(());
        }
        let object = self.world.objects.get(&id).ok_or(OutOfMemory)?;
        let mut object = object.borrow_mut();
        let window = object.window(offset, bytes.len() as u64)?;
        window.write(offset, bytes).map_err(|_| OutOfMemory)
    }

    fn discard_object(&mut self, id: u64, offset: u64, size: u64) {
        let Some(object) = self.world.objects.get(&id) else {
            return;
        };
        let mut object = object.borrow_mut();
        let (first, end) = (offset / PAGE_SIZE, (offset + size) / PAGE_SIZE);
        object.present.remove(first, end);
        if let Err(error) = object.body.segment().discard(offset, size) {
            rt::log!("linux: memory could not be given back: {}", error.text());
        }
    }

    fn memory_usage(&mut self) -> MemoryUsage {
        let seat = self.seat.as_deref();
        let memory = seat.map(|seat| seat.memory.borrow());
        match self.world.usage(memory.as_ref().map(|memory| &memory.body)) {
            Ok(usage) => MemoryUsage {
                total: usage.total,
                free: usage.free,
            },
            Err(_) => MemoryUsage::default(),
        }
    }

    fn fs(
        &mut self,
        request: &Request,
        bulk: &[u8],
        into: &mut [u8],
    ) -> Result<(Reply, usize), proto::Error> {
        self.world.ask_for_call(request, bulk, into)
    }

    fn fs_now(
        &mut self,
        request: &Request,
        bulk: &[u8],
        into: &mut [u8],
    ) -> Result<(Reply, usize), proto::Error> {
        self.world.ask_fs(request, bulk, into)
    }

    fn waits(&self) -> bool {
        self.world.disk.waits()
    }

    fn asked(&self) -> Option<&Request> {
        self.world.disk.asked()
    }

    fn begin_call(&mut self, tid: Tid) {
        self.world.disk.begin(tid);
    }

    fn end_call(&mut self) -> bool {
        self.world.disk.end()
    }

    fn is_unsynced(&self, ino: u64) -> bool {
        self.world.disk.is_unsynced(ino)
    }

    fn has_network(&mut self) -> bool {
        crate::net::is_there()
    }

    fn console_write(&mut self, bytes: &[u8]) -> Result<usize, proto::Error> {
        match rt::console::write(bytes)? {
            0 if !bytes.is_empty() => Err(proto::Error::WouldBlock),
            taken => Ok(taken),
        }
    }

    fn console_read(&mut self, into: &mut [u8], mode: Mode) -> Result<usize, proto::Error> {
        let job = self.job();
        self.world.console()?.read_for(job, mode, into)
    }

    fn console_readable(&mut self, mode: Mode) -> bool {
        let job = self.job();
        let readable = self
            .world
            .console()
            .and_then(|console| console.readable_for(job, mode));
        readable.unwrap_or(false)
    }

    fn console_mode(&mut self, mode: Mode) {
        // The console ignores this for a process in the background.
        let job = self.job();
        let _ = self
            .world
            .console()
            .and_then(|console| console.set_mode_for(job, mode));
    }

    fn now(&mut self) -> u64 {
        clock::now()
    }

    fn clock(&mut self) -> Option<vdso::Clock> {
        self.world.clock()
    }

    fn date(&mut self) -> u64 {
        self.world.origin.saturating_add(clock::now())
    }

    fn random(&mut self, into: &mut [u8]) -> Result<(), Errno> {
        rt::random::fill(into).map_err(|_| EIO)
    }

    fn gives_secrets(&mut self) -> Result<bool, Errno> {
        let state = rt::random::state().map_err(|_| EIO);
        state.map(|(is_secret, _)| is_secret)
    }

    fn hardware_capabilities(&mut self) -> u64 {
        self.world.capabilities
    }

    fn fpu(&mut self, into: &mut [u8; FPU_BYTES]) {
        let thread = self.seat.as_deref().map(Seat::thread);
        let state = &mut self.world.state;
        let known = thread.is_some_and(|thread| thread.read_state(state, 0, 0, 0).is_ok());
        *into = match known {
            true => state.fpu,
            false => abi::state::initial_fpu(),
        };
    }

    fn log(&mut self, sentence: &str) {
        rt::log!("{sentence}");
    }

    fn note(&mut self, sentence: &str) {
        if self.world.verbose {
            rt::log!("{sentence}");
        }
    }

    fn start(&mut self, start: Start) -> Result<(), Errno> {
        let Start {
            task,
            registers,
            fpu,
            in_memory,
            tid_at,
        } = start;
        let own = self.seat.as_deref().ok_or(ENOMEM)?;
        let seat = if in_memory {
            let thread = own.memory.borrow().body.add_thread();
            own.beside(thread.map_err(|_| ENOMEM)?)
        } else {
            let copied = own.memory.borrow_mut().copy(self.world, &task);
            match copied {
                Err(_) if self.give_up_templates() => {
                    let own = self.seat.as_deref().ok_or(ENOMEM)?;
                    let copied = own.memory.borrow_mut().copy(self.world, &task);
                    copied?
                }
                copied => copied?,
            }
        };
        let told = tid_at.map_or(Ok(()), |at| {
            let mut memory = seat.memory.borrow_mut();
            // The address may be in a page of a memory object.
            memory.write(at, &task.thread.to_le_bytes())
        });
        let state = ThreadState {
            registers: Registers {
                // A debugger's single step is not the child's.
                rflags: registers.rflags & !SINGLE_STEP,
                ..registers
            },
            fpu: fpu.0,
            tag: u64::from(task.tid),
            priority: PRIORITY_PROGRAM,
            ..ThreadState::default()
        };
        let started = told.is_ok() && {
            let memory = seat.memory.borrow();
            memory.body.start_thread(seat.thread, state).is_ok()
        };
        if !started {
            seat.leave();
            return Err(ENOMEM);
        }
        self.world.born.push(Born { task, seat });
        Ok(())
    }

    fn read_peer(&mut self, tid: Tid, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        let (memory, _) = self.world.peer(tid)?;
        let result = memory.borrow_mut().read(address, into);
        result.map_err(|_| EIO)
    }

    fn write_peer(&mut self, tid: Tid, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let (memory, _) = self.world.peer(tid)?;
        let result = memory.borrow_mut().write(address, bytes);
        result.map_err(|_| EIO)
    }

    fn peer_state(&mut self, tid: Tid) -> Result<(Registers, Fpu), Errno> {
        let (memory, thread) = self.world.peer(tid)?;
        let thread = memory.borrow().body.thread_at(thread);
        let state = thread.get_state(0, 0, 0).map_err(|_| ESRCH)?;
        Ok((state.registers, Box::new(FpuState(state.fpu))))
    }

    fn set_peer_state(&mut self, tid: Tid, registers: &Registers, fpu: &Fpu) -> Result<(), Errno> {
        let (memory, thread) = self.world.peer(tid)?;
        let memory = memory.borrow();
        let thread = memory.body.thread_at(thread);
        let mut state = thread.get_state(0, 0, 0).map_err(|_| ESRCH)?;
        (state.registers, state.fpu) = (*registers, fpu.0);
        let space = memory.body.space_ref().handle();
        thread.set_state(&state, space, 0, 0).map_err(|_| EIO)
    }

    fn stage(&mut self, loaded: Option<&Loaded>) -> Result<bool, Errno> {
        if self.seat.as_ref().is_some_and(|own| own.next.is_some()) {
            return Ok(false);
        }
        let made = loaded.and_then(|loaded| self.made_of(loaded));
        let is_there = made.is_some();
        let next = match made {
            Some(next) => next,
            None => match self.beside() {
                Err(_) if self.give_up_templates() => self.beside()?,
                next => next?,
            },
        };
        self.seat.as_deref_mut().ok_or(ENOMEM)?.next = Some(Box::new(next));
        Ok(is_there)
    }

    fn keep_staged(&mut self, loaded: &Loaded) {
        let next = self.seat.as_deref().and_then(|own| own.next.as_deref());
        let Some(mut memory) = next.map(|next| next.memory.borrow_mut()) else {
            return;
        };
        let Memory { body, present, .. } = &mut *memory;
        let free = body.account().usage().map_or(0, |usage| usage.free);
        let templates = &mut self.world.templates;
        templates.retain(Template::lives);
        let tree = body.account_number();
        if templates.wants((tree, free), loaded, |template| template.is_of(body)) {
            if let Ok(template) = body.template() {
                let _ = present.copy();
                templates.add(loaded.clone(), template);
            }
        }
    }

    fn give_up_templates(&mut self) -> bool {
        let Some(own) = self.seat.as_deref() else {
            return false;
        };
        let own = own.memory.borrow();
        let templates = &mut self.world.templates;
        templates.give_up(|template| template.is_of(&own.body))
    }

    fn write_staged(&mut self, address: u64, bytes: &[u8]) -> Result<(), OutOfMemory> {
        if bytes.is_empty() {
            return Ok(());
        }
        let own = self.seat.as_deref().ok_or(OutOfMemory)?;
        let next = own.next.as_ref().ok_or(OutOfMemory)?;
        next.memory.borrow_mut().write(address, bytes)
    }

    fn unstage(&mut self) {
        let own = self.seat.as_deref_mut();
        if let Some(next) = own.and_then(|own| own.next.take()) {
            next.leave();
        }
    }

    fn leave_memory(&mut self) -> Result<(), Errno> {
        let own = self.seat.as_deref_mut().ok_or(ENOMEM)?;
        let next = match own.next.take() {
            Some(next) => *next,
            None => self.beside()?,
        };
        let own = self.seat.as_deref_mut().ok_or(ENOMEM)?;
        let old = core::mem::replace(own, next);
        own.old = Some(Box::new(old));
        Ok(())
    }
}

/// A name that is short enough for lists.
pub(crate) fn short(name: &str) -> String {
    const MOST: usize = 60;
    match name.char_indices().nth(MOST) {
        Some((end, _)) => name[..end].to_string() + "...",
        None => name.to_string(),
    }
}
