//! The process that is debugged: its threads and its memory, reached through its control port alone.
use abi::access::{OBJECTS, READ, WRITE};
use abi::state::ThreadState;
use abi::{Exception, Type, OBJECT_SIZE, PAGE_SIZE};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use fermata_gdb::access::{self, Access, LONGEST};
use fermata_gdb::watch::{Point, Points};
use gdbstub::target::ext::breakpoints::WatchKind;
use proto::layout::{CONTROL_MAPPINGS, CONTROL_SIZE, MEMORY_SIZE};
use proto::Error;
use rt::error_of;
use rt::obj::{MappingAt, Ref, ThreadAt};
use rt::process::Process;
use rt::sync::Mutex;
use rt::window::Window;
use services::process::{DebugClient, Spotted, Status, EVERY, IN_MEMORY, ROOM, TOUCHED};

/// A range of the process's addresses, from one mapping.
struct Range {
    start: u64,
    size: u64,
    /// Where the range begins in the region.
    offset: u64,
    /// The imported region; `None` for the process's own memory region.
    region: Option<Ref>,
}

/// The process that is debugged.
pub(crate) struct Held {
    /// The process's number for GDB.
    pub(crate) number: u64,
    process: Process,
    session: DebugClient,
    memory: Ref,
    memory_window: Window,
    control: Ref,
    control_window: Window,
    /// The spot of each thread seen so far; GDB's number of a thread is its index here plus one.
    known: Vec<u64>,
    /// The threads, as of the last [`Held::look`].
    threads: Vec<Spotted>,
    /// The process's mappings, as of the last [`Held::look`].
    ranges: Vec<Range>,
    /// The threads that were told to stop behind their next instruction.
    stepping: Vec<usize>,
    /// The threads of which GDB itself wants a step.
    wanted: Vec<usize>,
    /// The threads that run when the process runs; `None` for all.
    going: Option<Vec<usize>>,
    /// The addresses at which GDB's breakpoints are in memory.
    breakpoints: BTreeSet<u64>,
    /// The watchpoints.
    points: Points,
    /// Accesses to watched bytes that GDB has not been told of. They are kept, since no thread makes them a second
    /// time.
    untold: VecDeque<News>,
    /// The call of a thread that is still under way, if watched pages have their rights for it.
    open: Option<Open>,
    /// How the process has ended, as the thread says that waits for the end.
    end: Arc<Mutex<End>>,
}

/// A call that needs watched pages and waits: until it is over, the pages have their rights for all threads.
struct Open {
    thread: usize,
    pages: Vec<u64>,
    accesses: Vec<Option<Access>>,
}

/// What the thread that waits for the end of the process knows of it.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// The process has not ended yet.
    Awaited,
    /// The process has ended with this status.
    Told(Status),
    /// The waiting thread has given up: the end will not be known.
    Unknown,
}

/// What has happened to the process.
pub(crate) enum News {
    /// A thread has met an exception.
    Exception { thread: usize, code: u64 },
    /// A thread has accessed watched bytes in the way they are watched for.
    Watch {
        thread: usize,
        kind: WatchKind,
        address: u64,
    },
    /// The process has ended.
    Ended(Status),
}

/// How long a read waits for a page of another's region that was present a moment ago, in nanoseconds.
const A_WHILE: u64 = 100_000_000;
/// How often a page that is still to come is asked for, and the pause after each attempt, in nanoseconds.
const ATTEMPTS: u32 = 10_000;
const A_MOMENT: u64 = 1_000_000;

/// How long a thread that makes one step alone is waited for, in nanoseconds, and the first pause between two looks at
/// it. An instruction takes a moment; a call may wait for another thread.
const STEP: u64 = 20_000_000;
const LOOK: u64 = 20_000;

const fn page_of(address: u64) -> u64 {
    address & !(PAGE_SIZE - 1)
}

/// Repeats `ask` while it returns `WouldBlock`: the page is still to come from the image that the process is restored
/// from. Asking makes it the next page to be read.
fn patiently<T>(mut ask: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..ATTEMPTS {
        match ask() {
            Err(Error::WouldBlock) => rt::time::sleep(A_MOMENT),
            answer => return answer,
        }
    }
    Err(Error::WouldBlock)
}

/// The process's memory and control region.
fn regions(session: &mut DebugClient) -> Result<[Ref; 2], Error> {
    let mut regions = session.regions()?.into_iter();
    let mut next = || regions.next().ok_or(Error::Broken);
    Ok([next()?, next()?])
}

/// Maps windows of the full size on both regions.
fn windows(memory: &Ref, control: &Ref) -> Result<[Window; 2], Error> {
    let rights = READ | WRITE | OBJECTS;
    Ok([
        Window::map(memory, 0, MEMORY_SIZE, rights)?,
        Window::map(control, 0, CONTROL_SIZE, rights)?,
    ])
}

impl Held {
    /// Begins to debug a process, and stops it.
    pub(crate) fn new(number: u64, process: Process) -> Result<Self, Error> {
        let mut session = DebugClient::open_known(process.port())?;
        session.hold()?;
        let [memory, control] = regions(&mut session)?;
        let [memory_window, control_window] = windows(&memory, &control)?;
        let mut held = Held {
            number,
            process,
            session,
            memory_window,
            control_window,
            memory,
            control,
            known: Vec::new(),
            threads: Vec::new(),
            ranges: Vec::new(),
            stepping: Vec::new(),
            wanted: Vec::new(),
            going: None,
            breakpoints: BTreeSet::new(),
            points: Points::default(),
            untold: VecDeque::new(),
            open: None,
            end: Arc::new(Mutex::new(End::Awaited)),
        };
        held.look()?;
        Ok(held)
    }

    /// Opens another session, for a thread that waits for exceptions and the end of the process, and returns with it
    /// where that thread stores the end.
    pub(crate) fn watcher(&self) -> Result<(DebugClient, Arc<Mutex<End>>), Error> {
        let session = DebugClient::open_known(self.process.port())?;
        Ok((session, Arc::clone(&self.end)))
    }

    /// Takes up the new memory and control region of a Linux process that has made `execve`. The old ones are gone, or
    /// belong to the other processes that were in them; breakpoints and watchpoints went with them.
    fn follow(&mut self) -> Result<(), Error> {
        let [memory, control] = regions(&mut self.session)?;
        if memory.same_as(*self.memory) {
            return Ok(());
        }
        [self.memory_window, self.control_window] = windows(&memory, &control)?;
        (self.memory, self.control) = (memory, control);
        self.breakpoints.clear();
        self.points.clear();
        self.untold.clear();
        self.open = None;
        // The only thread that is left may have another number.
        self.going = None;
        Ok(())
    }

    /// Reads the threads and the mappings of the stopped process.
    fn look(&mut self) -> Result<(), Error> {
        self.follow()?;
        let mut bytes = vec![0; ROOM];
        let came = self.session.threads(&mut bytes)?;
        let came = bytes.get(..came).ok_or(Error::Broken)?;
        self.threads = postcard::from_bytes(came).map_err(|_| Error::Broken)?;
        for thread in &self.threads {
            if !self.known.contains(&thread.spot) {
                self.known.push(thread.spot);
            }
        }
        self.ranges.clear();
        let mut offset = CONTROL_MAPPINGS;
        let kinds = 1 << Type::Mapping as u64;
        while let Ok((found, _)) = self.control.search(offset, CONTROL_SIZE, kinds) {
            offset = found + OBJECT_SIZE;
            let region = Ref::new().map_err(error_of)?;
            let mapping = MappingAt(self.control_window.address() + found);
            let Ok(state) = mapping.get_state(region.handle(), 0) else {
                continue;
            };
            let own = region.same_as(*self.memory);
            self.ranges.push(Range {
                start: state.start,
                size: state.size,
                offset: state.offset,
                region: (!own).then_some(region),
            });
        }
        Ok(())
    }

    /// The numbers of the process's threads.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.threads
            .iter()
            .filter_map(move |thread| self.number(thread.spot))
    }

    /// The number of the thread at this spot.
    fn number(&self, spot: u64) -> Option<usize> {
        let known = self.known.iter().position(|known| *known == spot);
        known.map(|index| index + 1)
    }

    /// The spot of the thread with this number.
    fn spot(&self, number: usize) -> Result<u64, Error> {
        let spot = self.known.get(number.wrapping_sub(1));
        spot.copied().ok_or(Error::NotFound)
    }

    /// What a thread is about to do, in words for people.
    pub(crate) fn doing(&self, number: usize) -> &str {
        let spot = self.spot(number);
        let thread = self.threads.iter().find(|thread| Ok(thread.spot) == spot);
        thread.map_or("", |thread| &thread.doing)
    }

    /// The thread with this number, as an object in the window on its region.
    fn thread(&self, number: usize) -> Result<ThreadAt, Error> {
        let spot = self.spot(number)?;
        let offset = spot & !IN_MEMORY;
        let window = match spot & IN_MEMORY {
            0 => &self.control_window,
            _ => &self.memory_window,
        };
        Ok(ThreadAt(window.address() + offset))
    }

    /// The state of a thread.
    pub(crate) fn state(&self, number: usize) -> Result<ThreadState, Error> {
        self.thread(number)?.get_state(0, 0, 0).map_err(error_of)
    }

    /// Changes the state of a thread. A thread in a Linux call cannot be changed, since the call continues with the
    /// registers with which it was made: `Unsupported`.
    pub(crate) fn change(
        &self,
        number: usize,
        f: impl FnOnce(&mut ThreadState),
    ) -> Result<(), Error> {
        let thread = self.thread(number)?;
        if self.state(number)?.exception_delivered != 0 {
            return Err(Error::Unsupported);
        }
        thread.change(f).map_err(error_of)
    }

    /// Makes a thread stop behind its next instruction, or behind the call that it is in.
    pub(crate) fn step(&mut self, number: usize) -> Result<(), Error> {
        self.session.step(self.spot(number)?, true)?;
        self.stepping.push(number);
        Ok(())
    }

    /// The same as [`Held::step`], on behalf of GDB.
    pub(crate) fn want_step(&mut self, number: usize) -> Result<(), Error> {
        self.step(number)?;
        self.wanted.push(number);
        Ok(())
    }

    /// Cancels all steps, including those that GDB wanted.
    pub(crate) fn end_wanted(&mut self) {
        self.wanted.clear();
        self.end_steps();
    }

    /// Cancels the steps that have not been made. A thread that waits in a call is still to make its step when
    /// something else has stopped the process; it would stop when it is woken, and nobody wants that stop any more.
    fn end_steps(&mut self) {
        for number in core::mem::take(&mut self.stepping) {
            if let Ok(spot) = self.spot(number) {
                // The thread may be gone.
                let _ = self.session.step(spot, false);
            }
        }
    }

    /// The range that contains an address, and the number of bytes from the address to the range's end.
    fn find(&self, address: u64) -> Result<(&Range, u64), Error> {
        let has = |range: &&Range| address.wrapping_sub(range.start) < range.size;
        let range = self.ranges.iter().find(has).ok_or(Error::NotFound)?;
        Ok((range, range.start + range.size - address))
    }

    /// Splits a range of addresses into pieces that each lie within a page, and calls `f` for each with its region
    /// (`None`: the process's own memory), its offset there, and which bytes of the range it is.
    fn pieces(
        &self,
        address: u64,
        length: usize,
        mut f: impl FnMut(Option<&Ref>, u64, core::ops::Range<usize>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut done = 0;
        while done < length {
            let at = address.checked_add(done as u64).ok_or(Error::Invalid)?;
            let (range, left) = self.find(at)?;
            let offset = range.offset + (at - range.start);
            let in_page = PAGE_SIZE - offset % PAGE_SIZE;
            let count = left.min(in_page).min((length - done) as u64) as usize;
            f(range.region.as_ref(), offset, done..done + count)?;
            done += count;
        }
        Ok(())
    }

    /// Reads memory.
    pub(crate) fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Error> {
        let mut absent = Vec::new();
        self.pieces(address, into.len(), |region, offset, _| {
            let page = offset & !(PAGE_SIZE - 1);
            if region.is_none() && self.memory.search(page, page + PAGE_SIZE, 1).is_err() {
                absent.push(page);
            }
            Ok(())
        })?;
        for page in absent {
            patiently(|| self.session.make_present(page, PAGE_SIZE))?;
        }
        self.pieces(address, into.len(), |region, offset, piece| match region {
            None => self.memory_window.read(offset, &mut into[piece]),
            Some(region) => {
                // The region's keeper may be any program, and need not answer: a page that is absent is not asked for,
                // and the read waits only `A_WHILE` for one that goes after this check.
                let page = offset & !(PAGE_SIZE - 1);
                if region.search(page, page + PAGE_SIZE, 1).is_err() {
                    return Err(Error::NotFound);
                }
                let window = Window::map(region, page, PAGE_SIZE, READ)?;
                let bytes = window.read_within(offset - page, piece.len(), A_WHILE)?;
                into[piece].copy_from_slice(&bytes);
                Ok(())
            }
        })
    }

    /// Writes memory. Only the process's own can be written: `Unsupported` for others' regions.
    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut pages = Vec::new();
        self.pieces(address, bytes.len(), |region, offset, _| match region {
            None => {
                pages.push(offset & !(PAGE_SIZE - 1));
                Ok(())
            }
            Some(_) => Err(Error::Unsupported),
        })?;
        for page in pages {
            patiently(|| self.session.make_present(page, PAGE_SIZE))?;
        }
        self.pieces(address, bytes.len(), |_, offset, piece| {
            self.memory_window.write(offset, &bytes[piece])
        })
    }

    /// Puts a breakpoint into memory, or removes it.
    pub(crate) fn breakpoint(&mut self, address: u64, set: bool) -> Result<(), Error> {
        if !set && !self.has_breakpoint(address) {
            // The breakpoint went with the memory before an `execve`, which GDB does not know of.
            return Ok(());
        }
        let mut at = None;
        self.pieces(address, 1, |region, offset, _| {
            at = region.is_none().then_some(offset);
            Ok(())
        })?;
        // A region that other processes see must not be changed for this one.
        let offset = at.ok_or(Error::Unsupported)?;
        patiently(|| self.session.breakpoint(offset, set))?;
        match set {
            true => self.breakpoints.insert(address),
            false => self.breakpoints.remove(&address),
        };
        Ok(())
    }

    /// Whether one of GDB's breakpoints is in memory at this address.
    pub(crate) fn has_breakpoint(&self, address: u64) -> bool {
        self.breakpoints.contains(&address)
    }

    /// Adds or removes a watchpoint.
    pub(crate) fn watch(&mut self, point: Point, set: bool) -> Result<(), Error> {
        let access = point.access();
        self.session.watch(point.address, point.size, access, set)?;
        match set {
            true => self.points.add(point),
            false => self.points.remove(&point),
        }
        Ok(())
    }

    /// Gives a watched page its rights for the moment, or takes them again.
    fn give(&mut self, address: u64, given: bool) -> Result<(), Error> {
        match self.session.give(address, given) {
            // The manager may have ended the watch for lack of memory.
            Err(Error::NotFound) => Ok(()),
            result => result,
        }
    }

    /// Stops all threads, cancels their steps, and reads the state of the process.
    pub(crate) fn hold(&mut self) -> Result<(), Error> {
        self.session.hold()?;
        self.end_steps();
        self.look()
    }

    /// Stops a process for a user who wants that. If a call was under way for which watched pages had their rights,
    /// returns what happened to watched bytes meanwhile.
    pub(crate) fn stop(&mut self) -> Result<Option<News>, Error> {
        self.hold()?;
        self.close()?;
        // The threads meet all other exceptions again.
        while let Ok(one) = self.session.taken() {
            self.note_touched(one);
        }
        Ok(self.untold.pop_front())
    }

    /// Takes the rights of the watched pages again that the open call had, and notes what was done to watched bytes
    /// meanwhile.
    fn close(&mut self) -> Result<(), Error> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        for page in &open.pages {
            self.give(*page, false)?;
        }
        let met = self.met(open.thread, &open.accesses);
        self.untold.extend(met);
        Ok(())
    }

    /// If `code` says that the manager has accessed watched bytes in a call of the thread at this spot, notes the
    /// access to be reported, since no thread meets it again. Returns whether `code` says that.
    fn note_touched(&mut self, (spot, code, address): (u64, u64, u64)) -> bool {
        if code & TOUCHED == 0 {
            return false;
        }
        let operand = access::Operand {
            size: 1,
            access: code & !TOUCHED,
        };
        let thread = self.number(spot).unwrap_or(1);
        let met = self.met(thread, &[Some(Access { address, operand })]);
        self.untold.extend(met);
        true
    }

    /// The watchpoint that a thread has met with these accesses, and perhaps with others that are not known.
    fn met(&mut self, thread: usize, accesses: &[Option<Access>]) -> Option<News> {
        let mut points = core::mem::take(&mut self.points);
        let met = points.met(accesses, |at, into| self.read(at, into).is_ok());
        let met = met.map(|point| News::Watch {
            thread,
            kind: point.kind,
            address: point.address,
        });
        self.points = points;
        met
    }

    /// Lets these threads run, or all, and notes what the watched bytes are at this moment.
    pub(crate) fn go(&mut self, threads: Option<Vec<usize>>) -> Result<(), Error> {
        self.going = threads;
        // Drops accesses that nobody watches for any more. If others are left, GDB is told of them before any thread
        // runs.
        let points = &self.points;
        self.untold.retain(|news| match news {
            News::Watch { kind, address, .. } => points.has(*address, *kind),
            _ => true,
        });
        if !self.untold.is_empty() {
            return Ok(());
        }
        if !self.points.is_empty() {
            let mut points = core::mem::take(&mut self.points);
            points.note(|at, into| self.read(at, into).is_ok());
            self.points = points;
        }
        self.let_go()
    }

    /// Lets the threads run again that ran before.
    fn let_go(&mut self) -> Result<(), Error> {
        let gone = |result| match result {
            Err(Error::Ended | Error::NotFound) => Ok(()),
            result => result,
        };
        match self.going.clone() {
            None => gone(self.session.let_run(EVERY)),
            Some(threads) => threads.into_iter().try_for_each(|number| {
                let spot = self.spot(number)?;
                gone(self.session.let_run(spot))
            }),
        }
    }

    /// Lets the process run again after something that GDB need not know of.
    fn go_on(&mut self) -> Result<Option<News>, Error> {
        for number in self.wanted.clone() {
            // The thread may be gone.
            let _ = self.step(number);
        }
        self.let_go()?;
        Ok(None)
    }

    /// The accesses of a thread's current instruction or call, which has met a watched page at the address `met`.
    fn accesses(&mut self, number: usize, met: u64) -> Result<[Option<Access>; 2], Error> {
        let r = self.state(number)?.registers;
        let mut code = [0; LONGEST];
        // Fewer than `LONGEST` bytes may be readable from `rip` on.
        let mut length = LONGEST;
        while length > 0 && self.read(r.rip, &mut code[..length]).is_err() {
            length -= 1;
        }
        Ok(access::all(&code[..length], met, [r.rsi, r.rdi, r.rsp]))
    }

    /// Lets a thread that has met a watched page make its access: the page has its rights while that thread runs alone.
    /// If the access is in a call that waits for other threads, all run until the call is over.
    fn step_over(&mut self, number: usize, met: u64) -> Result<Option<News>, Error> {
        let spot = self.spot(number)?;
        let mut accesses = Vec::from(self.accesses(number, met)?);
        let mut pages = vec![page_of(met)];
        self.give(met, true)?;
        let other = loop {
            self.step(number)?;
            self.session.let_run(spot)?;
            let Some((code, address)) = self.soon(spot)? else {
                self.open = Some(Open {
                    thread: number,
                    pages,
                    accesses,
                });
                self.let_go()?;
                return Ok(None);
            };
            self.session.hold()?;
            self.end_steps();
            if code == Exception::Debug as u64 {
                break None;
            }
            let is_watched = code == Exception::Memory as u64 && self.points.has_page(address);
            if !is_watched || pages.contains(&page_of(address)) {
                break Some(code);
            }
            // The instruction touches another watched page, too.
            accesses.extend(self.accesses(number, address)?);
            pages.push(page_of(address));
            self.give(address, true)?;
        };
        for page in pages {
            self.give(page, false)?;
        }
        if let Some(code) = other {
            // The instruction met another exception and was not executed.
            let thread = number;
            return Ok(Some(News::Exception { thread, code }));
        }
        if let Some(met) = self.met(number, &accesses) {
            return Ok(Some(met));
        }
        self.stepped(number)
    }

    /// A thread has made its step and met nothing that is watched: reports the step if GDB wanted it.
    fn stepped(&mut self, number: usize) -> Result<Option<News>, Error> {
        if self.wanted.contains(&number) {
            let code = Exception::Debug as u64;
            let thread = number;
            return Ok(Some(News::Exception { thread, code }));
        }
        self.go_on()
    }

    /// The exception and its address that the thread at this spot meets while it runs alone; `None` if it meets none
    /// within `STEP`.
    fn soon(&mut self, spot: u64) -> Result<Option<(u64, u64)>, Error> {
        let (mut waited, mut pause) = (0, LOOK);
        loop {
            match self.session.taken() {
                Ok(one) if self.note_touched(one) => {}
                Ok((of, code, address)) if of == spot => return Ok(Some((code, address))),
                // Other threads meet their exceptions again.
                Ok(_) => {}
                Err(Error::NotFound) if waited < STEP => {
                    rt::time::sleep(pause);
                    waited += pause;
                    pause += pause / 4;
                }
                Err(Error::NotFound) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Delivers the exception that a thread has met to the process, as if it were not debugged.
    pub(crate) fn pass(&mut self, number: usize) -> Result<(), Error> {
        let spot = self.spot(number)?;
        self.session.pass(spot)
    }

    /// What has happened since the process was let run; if something has, the process is stopped. Of several exceptions
    /// the first is returned, and the other threads meet theirs again.
    pub(crate) fn news(&mut self) -> Result<Option<News>, Error> {
        match self.happened() {
            Err(Error::NotFound | Error::Ended) => Ok(self.end()?.map(News::Ended)),
            news => news,
        }
    }

    fn happened(&mut self) -> Result<Option<News>, Error> {
        if self.untold.is_empty() {
            let news = self.taken()?;
            if news.is_some() || self.untold.is_empty() {
                return Ok(news);
            }
        }
        self.stop()
    }

    /// What the manager has taken since the process was let run.
    fn taken(&mut self) -> Result<Option<News>, Error> {
        let mut taken = vec![self.session.taken()?];
        self.hold()?;
        while let Ok(one) = self.session.taken() {
            taken.push(one);
        }
        // Accesses in the open call, whose pages had their rights, and accesses of the manager itself.
        let waited = self.open.as_ref().map(|open| open.thread);
        self.close()?;
        taken.retain(|one| !self.note_touched(*one));
        if let Some(news) = self.untold.pop_front() {
            return Ok(Some(news));
        }
        // A finished step comes first: unlike every other exception, it is not met again.
        let made = |one: &(u64, u64, u64)| {
            let number = self.number(one.0);
            let wanted = number.is_some_and(|number| self.wanted.contains(&number));
            one.1 == Exception::Debug as u64 && wanted
        };
        let made = taken.iter().position(made).unwrap_or(0);
        let Some(&(spot, code, address)) = taken.get(made) else {
            return self.go_on();
        };
        let Some(thread) = self.number(spot) else {
            // The thread is gone, and its exception with it.
            return self.go_on();
        };
        if code == Exception::Memory as u64 && self.points.has_page(address) {
            return self.step_over(thread, address);
        }
        if code == Exception::Debug as u64 && waited == Some(thread) {
            // The open call of the thread is over.
            return self.stepped(thread);
        }
        Ok(Some(News::Exception { thread, code }))
    }

    /// How the process has ended, if it has. Its parent may have reaped it, so that the manager does not know it any
    /// more; then the thread that waits for the end knows the status, or will soon.
    fn end(&self) -> Result<Option<Status>, Error> {
        match (self.process.status(), *self.end.lock()) {
            (Ok(status), _) => Ok(status.has_ended().then_some(status)),
            (Err(_), End::Told(status)) => Ok(Some(status)),
            (Err(_), End::Awaited) => Ok(None),
            (Err(error), End::Unknown) => Err(error),
        }
    }

    /// Ends the debugging of the process.
    pub(crate) fn leave(mut self) -> Result<(), Error> {
        self.session.leave()
    }
}
