//! The process that is debugged: its threads and its memory, by the control port alone.
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

/// A range of the process's addresses.
struct Range {
    start: u64,
    size: u64,
    /// Where it begins in the region.
    offset: u64,
    /// The region; `None` for the process's memory.
    region: Option<Ref>,
}

/// The process.
pub(crate) struct Held {
    /// Its number for GDB.
    pub(crate) number: u64,
    process: Process,
    session: DebugClient,
    memory: Ref,
    memory_window: Window,
    control: Ref,
    control_window: Window,
    /// The spot of each thread that there has been; its number is one more than the index.
    known: Vec<u64>,
    /// The threads, since it stands still.
    threads: Vec<Spotted>,
    /// Its addresses, since it stands still.
    ranges: Vec<Range>,
    /// The threads that were told to stop behind their next instruction.
    stepping: Vec<usize>,
    /// Those of them for which GDB wants that.
    wanted: Vec<usize>,
    /// The threads that go on, of a process that does: `None` are all.
    going: Option<Vec<usize>>,
    /// The addresses of GDB's breakpoints, as far as they are in.
    breakpoints: BTreeSet<u64>,
    /// What is watched.
    points: Points,
    /// What has been done to watched bytes besides what GDB was told of: nobody does it again.
    untold: VecDeque<News>,
    /// A call that is still to end, if pages have their rights for it.
    open: Option<Open>,
    /// What is known of its end by who waits for that.
    end: Arc<Mutex<End>>,
}

/// A call of a thread that needs watched pages and waits: they have their rights until it is over, for all threads.
struct Open {
    thread: usize,
    pages: Vec<u64>,
    accesses: Vec<Option<Access>>,
}

/// What who waits for the end of the process knows of it.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// Nothing has come yet.
    Awaited,
    /// That was it.
    Told(Status),
    /// Nobody will say.
    Unknown,
}

/// What has happened to it.
pub(crate) enum News {
    /// A thread has met an exception, at this address if it is about one.
    Exception { thread: usize, code: u64 },
    /// A thread has done to watched bytes what they are watched for.
    Watch {
        thread: usize,
        kind: WatchKind,
        address: u64,
    },
    /// It has ended.
    Ended(Status),
}

/// How long is waited for a page of others that was there a moment ago, in nanoseconds.
const A_WHILE: u64 = 100_000_000;
/// How often is asked for a page that is still to come, and how long is waited before each time but the first, in nanoseconds.
const ATTEMPTS: u32 = 10_000;
const A_MOMENT: u64 = 1_000_000;

/// How long is waited for a thread that makes one step by itself, in nanoseconds, and the first pause between two
/// looks. An instruction takes a moment; a call may wait for another thread.
const STEP: u64 = 20_000_000;
const LOOK: u64 = 20_000;

const fn page_of(address: u64) -> u64 {
    address & !(PAGE_SIZE - 1)
}

/// Asks until a page has come that is still to come, since the process was restored before its memory was read. It is
/// the next one that does.
fn patiently<T>(mut ask: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..ATTEMPTS {
        match ask() {
            Err(Error::WouldBlock) => rt::time::sleep(A_MOMENT),
            answer => return answer,
        }
    }
    Err(Error::WouldBlock)
}

/// Memory and control region, as they are now.
fn regions(session: &mut DebugClient) -> Result<[Ref; 2], Error> {
    let mut regions = session.regions()?.into_iter();
    let mut next = || regions.next().ok_or(Error::Broken);
    Ok([next()?, next()?])
}

/// Windows on them.
fn windows(memory: &Ref, control: &Ref) -> Result<[Window; 2], Error> {
    let rights = READ | WRITE | OBJECTS;
    Ok([
        Window::map(memory, 0, MEMORY_SIZE, rights)?,
        Window::map(control, 0, CONTROL_SIZE, rights)?,
    ])
}

impl Held {
    /// Begins to debug a process: it stands still.
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

    /// A further session, which waits for what happens, and where its user says how the process has ended.
    pub(crate) fn watcher(&self) -> Result<(DebugClient, Arc<Mutex<End>>), Error> {
        let session = DebugClient::open_known(self.process.port())?;
        Ok((session, Arc::clone(&self.end)))
    }

    /// Since `execve` a process of Linux is in another memory. The one before is gone, or others' who were in it, too;
    /// and with it is what was watched there, and its breakpoints.
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
        // Its only thread may have another number.
        self.going = None;
        Ok(())
    }

    /// Learns what there is, of a process that stands still.
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

    /// The numbers of its threads.
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

    /// What a thread is about to do, in words.
    pub(crate) fn doing(&self, number: usize) -> &str {
        let spot = self.spot(number);
        let thread = self.threads.iter().find(|thread| Ok(thread.spot) == spot);
        thread.map_or("", |thread| &thread.doing)
    }

    /// The place of the thread with this number.
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

    /// Changes the state of a thread. One in a call of Linux cannot be changed: that goes on with the registers with which it was made.
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

    /// Has a thread stop behind its next instruction, or behind the call that it is in.
    pub(crate) fn step(&mut self, number: usize) -> Result<(), Error> {
        self.session.step(self.spot(number)?, true)?;
        self.stepping.push(number);
        Ok(())
    }

    /// As [`Held::step`], since GDB wants it.
    pub(crate) fn want_step(&mut self, number: usize) -> Result<(), Error> {
        self.step(number)?;
        self.wanted.push(number);
        Ok(())
    }

    /// GDB wants no step any more.
    pub(crate) fn end_wanted(&mut self) {
        self.wanted.clear();
        self.end_steps();
    }

    /// No thread stops behind its next instruction. One that waits in a call has not made its step when something else
    /// has stopped the process, and would stop when it is woken, which nobody wants by then.
    fn end_steps(&mut self) {
        for number in core::mem::take(&mut self.stepping) {
            if let Ok(spot) = self.spot(number) {
                // It may be gone.
                let _ = self.session.step(spot, false);
            }
        }
    }

    /// Where an address is: the range, and how many bytes there are from there on.
    fn find(&self, address: u64) -> Result<(&Range, u64), Error> {
        let has = |range: &&Range| address.wrapping_sub(range.start) < range.size;
        let range = self.ranges.iter().find(has).ok_or(Error::NotFound)?;
        Ok((range, range.start + range.size - address))
    }

    /// The pieces of a range of addresses, each within a page: calls `f` with its region (`None`: the process's memory), the offset
    /// there, and which bytes it is.
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
                // Its keeper may be anybody, and need not answer: a page that is absent is not asked for, and one that goes after
                // this look not waited for.
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

    /// Writes memory of the process's own.
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

    /// Puts a breakpoint in, or takes it out.
    pub(crate) fn breakpoint(&mut self, address: u64, set: bool) -> Result<(), Error> {
        if !set && !self.has_breakpoint(address) {
            // It went with the memory that it was in, of which GDB does not know.
            return Ok(());
        }
        let mut at = None;
        self.pieces(address, 1, |region, offset, _| {
            at = region.is_none().then_some(offset);
            Ok(())
        })?;
        // What several memories show is not this process's to change.
        let offset = at.ok_or(Error::Unsupported)?;
        patiently(|| self.session.breakpoint(offset, set))?;
        match set {
            true => self.breakpoints.insert(address),
            false => self.breakpoints.remove(&address),
        };
        Ok(())
    }

    /// Whether one of GDB's breakpoints is in at this address.
    pub(crate) fn has_breakpoint(&self, address: u64) -> bool {
        self.breakpoints.contains(&address)
    }

    /// Watches, or no longer.
    pub(crate) fn watch(&mut self, point: Point, set: bool) -> Result<(), Error> {
        let access = point.access();
        self.session.watch(point.address, point.size, access, set)?;
        match set {
            true => self.points.add(point),
            false => self.points.remove(&point),
        }
        Ok(())
    }

    /// A watched page has its rights for the moment, or lacks them again.
    fn give(&mut self, address: u64, given: bool) -> Result<(), Error> {
        match self.session.give(address, given) {
            // Its manager had no memory to watch it any longer.
            Err(Error::NotFound) => Ok(()),
            result => result,
        }
    }

    /// All threads stand still, and all pages that are watched lack their rights.
    pub(crate) fn hold(&mut self) -> Result<(), Error> {
        self.session.hold()?;
        self.end_steps();
        self.look()
    }

    /// The same, of a process that somebody wants to stop. If a call was still to end for which pages had their
    /// rights, something may have happened there.
    pub(crate) fn stop(&mut self) -> Result<Option<News>, Error> {
        self.hold()?;
        self.close()?;
        // All else that was taken is met again.
        while let Ok(one) = self.session.taken() {
            self.note_touched(one);
        }
        Ok(self.untold.pop_front())
    }

    /// The pages lack their rights again that a call had for itself: what has been done there meanwhile is to be told.
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

    /// What the manager has done itself for the thread at a spot is to be told if it is watched for: whether `code` says
    /// that. Nobody meets it again.
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

    /// What a thread has met that has made these accesses, and may have made others.
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

    /// These threads go on, or all, and what is watched is as it is now.
    pub(crate) fn go(&mut self, threads: Option<Vec<usize>>) -> Result<(), Error> {
        self.going = threads;
        // Nobody wants to know of what is not watched any more. Of all else GDB is told before a thread does anything.
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

    /// The threads go on that went on before.
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

    /// The same, after something of which GDB need not know.
    fn go_on(&mut self) -> Result<Option<News>, Error> {
        for number in self.wanted.clone() {
            // It may be gone.
            let _ = self.step(number);
        }
        self.let_go()?;
        Ok(None)
    }

    /// What the instruction or the call of a thread does that has met a watched page at this address.
    fn accesses(&mut self, number: usize, met: u64) -> Result<[Option<Access>; 2], Error> {
        let r = self.state(number)?.registers;
        let mut code = [0; LONGEST];
        // It may be at the end of what can be read.
        let mut length = LONGEST;
        while length > 0 && self.read(r.rip, &mut code[..length]).is_err() {
            length -= 1;
        }
        Ok(access::all(&code[..length], met, [r.rsi, r.rdi, r.rsp]))
    }

    /// A thread that has met a watched page does what it was about to do: the page has its rights while it alone
    /// runs. A call that waits for others goes on while they do.
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
            // It touches another one, too.
            accesses.extend(self.accesses(number, address)?);
            pages.push(page_of(address));
            self.give(address, true)?;
        };
        for page in pages {
            self.give(page, false)?;
        }
        if let Some(code) = other {
            // It was not done.
            let thread = number;
            return Ok(Some(News::Exception { thread, code }));
        }
        if let Some(met) = self.met(number, &accesses) {
            return Ok(Some(met));
        }
        self.stepped(number)
    }

    /// A thread has made its step, and nothing that is watched was met.
    fn stepped(&mut self, number: usize) -> Result<Option<News>, Error> {
        if self.wanted.contains(&number) {
            let code = Exception::Debug as u64;
            let thread = number;
            return Ok(Some(News::Exception { thread, code }));
        }
        self.go_on()
    }

    /// What the thread at this spot meets, which alone runs, if it does so soon.
    fn soon(&mut self, spot: u64) -> Result<Option<(u64, u64)>, Error> {
        let (mut waited, mut pause) = (0, LOOK);
        loop {
            match self.session.taken() {
                Ok(one) if self.note_touched(one) => {}
                Ok((of, code, address)) if of == spot => return Ok(Some((code, address))),
                // What others have met they meet again.
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

    /// What a thread has met is the process's own affair.
    pub(crate) fn pass(&mut self, number: usize) -> Result<(), Error> {
        let spot = self.spot(number)?;
        self.session.pass(spot)
    }

    /// What has happened since it went on; if something has, it stands still. Of several things that have happened the
    /// first: what other threads have met they meet again.
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

    /// What its manager has taken since it went on.
    fn taken(&mut self) -> Result<Option<News>, Error> {
        let mut taken = vec![self.session.taken()?];
        self.hold()?;
        while let Ok(one) = self.session.taken() {
            taken.push(one);
        }
        // In a call for which pages had their rights; and what a manager has done itself.
        let waited = self.open.as_ref().map(|open| open.thread);
        self.close()?;
        taken.retain(|one| !self.note_touched(*one));
        if let Some(news) = self.untold.pop_front() {
            return Ok(Some(news));
        }
        // A step that was made is not made again, as all else is.
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
            // The thread is gone, and what it has met with it.
            return self.go_on();
        };
        if code == Exception::Memory as u64 && self.points.has_page(address) {
            return self.step_over(thread, address);
        }
        if code == Exception::Debug as u64 && waited == Some(thread) {
            // Its call is over.
            return self.stepped(thread);
        }
        Ok(Some(News::Exception { thread, code }))
    }

    /// How it has ended, if it has. Whoever has started it may have reaped it already, so that its manager knows
    /// nothing of it any more; who waits for its end says that then, now or soon.
    fn end(&self) -> Result<Option<Status>, Error> {
        match (self.process.status(), *self.end.lock()) {
            (Ok(status), _) => Ok(status.has_ended().then_some(status)),
            (Err(_), End::Told(status)) => Ok(Some(status)),
            (Err(_), End::Awaited) => Ok(None),
            (Err(error), End::Unknown) => Err(error),
        }
    }

    /// Ends with debugging it.
    pub(crate) fn leave(mut self) -> Result<(), Error> {
        self.session.leave()
    }
}
