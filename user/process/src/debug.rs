//! A process that is being debugged: the state that every manager keeps for that, and restores.
use crate::held::{self, Known, Managed};
use crate::live::Process;
use crate::watch::Watch;
use abi::state::ThreadState;
use abi::{Exception, PAGE_SIZE};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};
use interface::server::Event;
use interface::wire::Plain;
use proto::layout::MEMORY_SIZE;
use proto::Error;
use rt::error_of;
use rt::obj::{Ref, ThreadAt};
use services::process::{Debug, Pid, Spotted, Status, MAX_BREAKPOINTS};

/// The instruction `int3`.
pub const BREAKPOINT: u8 = 0xcc;
/// The flag of a single step.
pub const SINGLE_STEP: u64 = 1 << 8;

/// Memory for breakpoints.
pub trait Text {
    /// Prepares for a write of the byte at an offset: from then on the write cannot fail, and other processes do not
    /// see it.
    ///
    /// # Errors
    /// As of [`services::process::Debug::breakpoint`].
    fn make_own(&self, offset: u64) -> Result<(), Error>;
    /// Puts a byte there, and returns the one that was there.
    ///
    /// # Errors
    /// If the page was not made private before.
    fn exchange(&self, offset: u64, byte: u8) -> Result<u8, Error>;
}

impl Text for Process {
    fn make_own(&self, offset: u64) -> Result<(), Error> {
        if offset >= MEMORY_SIZE {
            return Err(Error::Invalid);
        }
        self.memory().populate(offset & !(PAGE_SIZE - 1), PAGE_SIZE)
    }

    fn exchange(&self, offset: u64, byte: u8) -> Result<u8, Error> {
        // The memory of a process that is restored on demand can end while its manager uses it, with its supplier.
        if !self.is_present(offset) {
            return Err(Error::Ended);
        }
        let mut old = [0];
        self.memory_window().read(offset, &mut old)?;
        self.memory_window().write(offset, &[byte])?;
        Ok(old[0])
    }
}

/// The breakpoints in a memory.
#[derive(Debug, Default)]
pub struct Breakpoints {
    /// Their offsets, and for those that are inserted the byte that belongs there.
    offsets: BTreeMap<u64, Option<u8>>,
    /// How often they were taken out and not put back.
    out: u32,
}

impl Breakpoints {
    /// Inserts a breakpoint.
    ///
    /// # Errors
    /// As of [`services::process::Debug::breakpoint`].
    pub fn set(&mut self, text: &impl Text, offset: u64) -> Result<(), Error> {
        if self.offsets.contains_key(&offset) {
            return Ok(());
        }
        if self.offsets.len() >= MAX_BREAKPOINTS {
            return Err(Error::Limit);
        }
        text.make_own(offset)?;
        let old = match self.out {
            0 => Some(text.exchange(offset, BREAKPOINT)?),
            _ => None,
        };
        self.offsets.insert(offset, old);
        Ok(())
    }

    /// Removes a breakpoint.
    pub fn clear(&mut self, text: &impl Text, offset: u64) {
        if let Some(old) = self.offsets.remove(&offset) {
            restore(text, offset, old);
        }
    }

    /// Removes all breakpoints.
    pub fn clear_all(&mut self, text: &impl Text) {
        for (offset, old) in core::mem::take(&mut self.offsets) {
            restore(text, offset, old);
        }
    }

    /// Takes all out until [`Breakpoints::put_back`].
    pub fn take_out(&mut self, text: &impl Text) {
        self.out += 1;
        for (offset, old) in &mut self.offsets {
            restore(text, *offset, old.take());
        }
    }

    /// Undoes one `take_out`. A breakpoint for which there is no memory is removed.
    pub fn put_back(&mut self, text: &impl Text) {
        self.out = self.out.saturating_sub(1);
        if self.out > 0 {
            return;
        }
        self.offsets.retain(|offset, old| {
            let put = text.make_own(*offset);
            match put.and_then(|()| text.exchange(*offset, BREAKPOINT)) {
                Ok(byte) => {
                    *old = Some(byte);
                    true
                }
                Err(_) => false,
            }
        });
    }

    /// Forgets the breakpoints between these offsets, whose memory is gone.
    pub fn forget(&mut self, start: u64, end: u64) {
        if self.offsets.range(start..end).next().is_some() {
            self.offsets
                .retain(|offset, _| !(start..end).contains(offset));
        }
    }

    /// Whether there is a breakpoint at this offset.
    #[must_use]
    pub fn has(&self, offset: u64) -> bool {
        self.offsets.contains_key(&offset)
    }
}

/// Puts back the byte that belongs there, unless the program has written there itself.
fn restore(text: &impl Text, offset: u64, old: Option<u8>) {
    let Some(byte) = old else { return };
    if let Ok(found) = text.exchange(offset, byte) {
        if found != BREAKPOINT {
            let _ = text.exchange(offset, found);
        }
    }
}

/// An exception that was taken from a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceptional {
    /// The thread's spot.
    pub spot: u64,
    /// The exception.
    pub code: u64,
    /// The address concerned.
    pub address: u64,
    /// Its details: see [`abi::message::ExceptionMessage`].
    pub detail: u64,
}

/// The exceptions that were taken.
#[derive(Debug, Default)]
pub struct Taken {
    untold: VecDeque<Exceptional>,
    /// By spot, for threads that have not continued since.
    met: BTreeMap<u64, Exceptional>,
    count: u64,
}

impl Taken {
    /// Adds an exception.
    pub fn add(&mut self, one: Exceptional) {
        // At most one exception of each thread is kept untold, so the queue is bounded by the number of threads.
        self.untold.retain(|other| other.spot != one.spot);
        self.untold.push_back(one);
        self.met.insert(one.spot, one);
        self.count += 1;
    }

    /// Adds an exception that cannot be passed on to the process.
    pub fn add_past(&mut self, one: Exceptional) {
        self.untold.push_back(one);
        self.count += 1;
    }

    /// The next exception that was not reported yet.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn tell(&mut self) -> Result<Exceptional, Error> {
        self.untold.pop_front().ok_or(Error::NotFound)
    }

    /// Notes that a thread continues, and forgets its exception.
    pub fn goes_on(&mut self, spot: u64) {
        self.met.remove(&spot);
        self.untold.retain(|one| one.spot != spot);
    }

    /// The exception that the thread at this spot has met since it last continued.
    ///
    /// # Errors
    /// `NotFound` if there is nothing.
    pub fn of(&self, spot: u64) -> Result<Exceptional, Error> {
        self.met.get(&spot).copied().ok_or(Error::NotFound)
    }

    /// Forgets threads that are gone.
    pub fn keep(&mut self, is_there: impl Fn(u64) -> bool) {
        self.untold.retain(|one| is_there(one.spot));
        self.met.retain(|spot, _| is_there(*spot));
    }

    /// How many exceptions were taken.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }
}

/// Undoes the exception of a stopped thread that its keeper has released, and returns it, if there is one. The
/// exception stays if the thread's registers are not valid as new state, as those of a thread that jumped out of its
/// addresses.
pub fn undo(spot: u64, thread: ThreadAt) -> Option<Exceptional> {
    let state = thread.get_state(0, 0, 0).ok()?;
    if state.exception_delivered == 0 || state.exception == Exception::ForeignCall as u64 {
        return None;
    }
    let _ = thread.change(|state| {
        state.exception_delivered = 0;
        if state.exception == Exception::Debug as u64 {
            state.registers.rflags &= !SINGLE_STEP;
        }
    });
    Some(Exceptional {
        spot,
        code: state.exception,
        address: state.exception_address,
        detail: 0,
    })
}

/// Makes a thread whose failed access was guarded ([`rt::guard`]), and which its keeper has released, continue at the
/// address that the guard gives.
pub fn let_guarded_go_on(thread: ThreadAt) {
    let goes_on = |state: &ThreadState| {
        let of_it = (state.exception_delivered != 0).then_some(state.exception)?;
        rt::guard::goes_on(of_it, &state.registers)
    };
    let is_guarded = |state: ThreadState| goes_on(&state).is_some();
    if thread.get_state(0, 0, 0).is_ok_and(is_guarded) && thread.stop().is_ok() {
        let _ = thread.change(|state| {
            if let Some(registers) = goes_on(state) {
                state.registers = registers;
                state.exception_delivered = 0;
            }
        });
        let _ = thread.resume();
    }
}

/// Sets the single-step flag of a stopped thread, or clears it.
///
/// # Errors
/// Those of the kernel's calls.
pub fn set_step(thread: ThreadAt, steps: bool) -> Result<(), Error> {
    let set = thread.change(|state| {
        let flags = &mut state.registers.rflags;
        match steps {
            true => *flags |= SINGLE_STEP,
            false => *flags &= !SINGLE_STEP,
        }
    });
    set.map_err(error_of)
}

/// Clears the single-step flag of a stopped thread, and returns whether it was set.
pub fn clear_step(thread: ThreadAt) -> bool {
    let steps = thread
        .get_state(0, 0, 0)
        .is_ok_and(|state| state.registers.rflags & SINGLE_STEP != 0);
    steps
        && thread
            .change(|state| state.registers.rflags &= !SINGLE_STEP)
            .is_ok()
}

/// The operations of a manager on a process that is debugged; [`Debug`] documents each.
#[allow(missing_docs)]
pub trait Manager: held::Manager {
    /// The process is debugged from now on. [`Error::Exists`] if it is already, [`Error::Denied`] for a server.
    fn debug(&mut self, pid: Pid) -> Result<(), Error>;
    /// Ends the debugging of the process, and undoes all its effects.
    fn leave(&mut self, pid: Pid);
    fn regions(&mut self, pid: Pid) -> Result<Vec<Ref>, Error>;
    fn hold(&mut self, pid: Pid) -> Result<(), Error>;
    fn let_run(&mut self, pid: Pid, spot: u64) -> Result<(), Error>;
    fn threads(&mut self, pid: Pid) -> Result<Vec<Spotted>, Error>;
    fn taken(&mut self, pid: Pid) -> Result<&mut Taken, Error>;
    fn pass(&mut self, pid: Pid, spot: u64) -> Result<(), Error>;
    fn breakpoint(&mut self, pid: Pid, offset: u64, set: bool) -> Result<(), Error>;
    fn make_present(&mut self, pid: Pid, offset: u64, size: u64) -> Result<(), Error>;
    fn watch(&mut self, pid: Pid, watch: Watch, set: bool) -> Result<(), Error>;
    fn give(&mut self, pid: Pid, address: u64, given: bool) -> Result<(), Error>;
    fn step(&mut self, pid: Pid, spot: u64, steps: bool) -> Result<(), Error>;
}

/// The final status of a process, once it has ended. Its debugger has this also when the process has been reaped and
/// forgotten.
#[derive(Debug, Default)]
pub struct End(AtomicU64);

impl End {
    /// Sets the final status.
    pub fn set(&self, status: Status) {
        self.0.store(status.to_word(), Ordering::Release);
    }

    /// The final status, if the process has ended.
    #[must_use]
    pub fn get(&self) -> Option<Status> {
        let status = Status::from_word(self.0.load(Ordering::Acquire));
        status.filter(|status| status.has_ended())
    }
}

/// A debugger's session with one process: when it is dropped its breakpoints and stops are undone.
#[derive(Debug)]
pub struct Debugging<M: Managed, E: Deref<Target = Event> + 'static>
where
    M::Manager: Manager,
{
    manager: M,
    known: Known,
    /// Happens when an exception was taken, or the process has ended.
    event: E,
    end: Arc<End>,
    /// Whether it is this session that debugs the process.
    debugs: Cell<bool>,
}

impl<M: Managed, E: Deref<Target = Event>> Debugging<M, E>
where
    M::Manager: Manager,
{
    /// A session about this process, which it does not debug yet.
    pub const fn new(manager: M, known: Known, event: E, end: Arc<End>) -> Self {
        Debugging {
            manager,
            known,
            event,
            end,
            debugs: Cell::new(false),
        }
    }

    /// Does something with the process, if it is still known.
    fn look<R>(
        &self,
        f: impl FnOnce(&mut M::Manager, Pid) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.manager.with(|manager| {
            held::Manager::known(manager, self.known)?;
            f(manager, self.known.0)
        })
    }

    /// Does something with the process; the session begins to debug it if it has not yet.
    fn with<R>(
        &self,
        f: impl FnOnce(&mut M::Manager, Pid) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.look(|manager, pid| {
            if !self.debugs.get() {
                manager.debug(pid)?;
                self.debugs.set(true);
            }
            f(manager, pid)
        })
    }
}

impl<M: Managed, E: Deref<Target = Event>> Drop for Debugging<M, E>
where
    M::Manager: Manager,
{
    fn drop(&mut self) {
        let _ = Debug::leave(self);
    }
}

impl<M: Managed, E: Deref<Target = Event>> Debug for Debugging<M, E>
where
    M::Manager: Manager,
{
    fn regions(&self) -> Result<Vec<Ref>, Error> {
        self.with(Manager::regions)
    }

    fn hold(&self) -> Result<(), Error> {
        self.with(Manager::hold)
    }

    fn let_run(&self, spot: u64) -> Result<(), Error> {
        self.with(|manager, pid| manager.let_run(pid, spot))
    }

    fn threads(&self, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let threads = self.with(Manager::threads)?;
        let bytes = postcard::to_allocvec(&threads).map_err(|_| Error::NoMemory)?;
        (bytes.len() <= room).then_some(bytes).ok_or(Error::Limit)
    }

    fn taken(&self) -> Result<(u64, u64, u64), Error> {
        self.with(|manager, pid| {
            let one = manager.taken(pid)?.tell()?;
            Ok((one.spot, one.code, one.address))
        })
    }

    async fn more_taken(&self, seen: u64) -> Result<(u64, Status), Error> {
        let more = || {
            if let Some(status) = self.end.get() {
                return Some(Ok((seen, status)));
            }
            let count = self.look(|manager, pid| Ok(manager.taken(pid)?.count()));
            match count {
                Ok(count) if count == seen => None,
                result => Some(result.map(|count| (count, Status::Running))),
            }
        };
        self.event.until(more).await
    }

    fn pass(&self, spot: u64) -> Result<(), Error> {
        self.with(|manager, pid| manager.pass(pid, spot))
    }

    fn breakpoint(&self, offset: u64, set: bool) -> Result<(), Error> {
        self.with(|manager, pid| manager.breakpoint(pid, offset, set))
    }

    fn make_present(&self, offset: u64, size: u64) -> Result<(), Error> {
        self.with(|manager, pid| manager.make_present(pid, offset, size))
    }

    fn watch(&self, address: u64, size: u64, access: u64, set: bool) -> Result<(), Error> {
        let watch = Watch::new(address, size, access)?;
        self.with(|manager, pid| manager.watch(pid, watch, set))
    }

    fn give(&self, address: u64, given: bool) -> Result<(), Error> {
        self.with(|manager, pid| manager.give(pid, address, given))
    }

    fn step(&self, spot: u64, steps: bool) -> Result<(), Error> {
        self.with(|manager, pid| manager.step(pid, spot, steps))
    }

    fn leave(&self) -> Result<(), Error> {
        if self.debugs.replace(false) {
            self.look(|manager, pid| {
                manager.leave(pid);
                Ok(())
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Breakpoints, Text, BREAKPOINT, MAX_BREAKPOINTS};
    use alloc::vec::Vec;
    use core::cell::{Cell, RefCell};
    use proto::Error;

    struct Bytes {
        bytes: RefCell<Vec<u8>>,
        full: Cell<bool>,
    }

    impl Text for Bytes {
        fn make_own(&self, offset: u64) -> Result<(), Error> {
            match (self.full.get(), self.bytes.borrow().len() as u64 > offset) {
                (true, _) => Err(Error::NoMemory),
                (_, true) => Ok(()),
                _ => Err(Error::Invalid),
            }
        }

        fn exchange(&self, offset: u64, byte: u8) -> Result<u8, Error> {
            let mut bytes = self.bytes.borrow_mut();
            let old = bytes.get_mut(offset as usize).ok_or(Error::Invalid)?;
            Ok(core::mem::replace(old, byte))
        }
    }

    fn text() -> Bytes {
        Bytes {
            bytes: RefCell::new((0..=255).chain(0..=255).collect()),
            full: Cell::new(false),
        }
    }

    #[test]
    fn what_belongs_there_comes_back() {
        let (text, mut all) = (text(), Breakpoints::default());
        let before = text.bytes.borrow().clone();
        for offset in [7, 9, 7, 204] {
            all.set(&text, offset).expect("a breakpoint");
        }
        assert_eq!(text.bytes.borrow()[7], BREAKPOINT);
        all.clear(&text, 9);
        assert_eq!(text.bytes.borrow()[9], 9);
        all.take_out(&text);
        assert_eq!(
            *text.bytes.borrow(),
            before,
            "S2: an image has a breakpoint"
        );
        all.take_out(&text);
        all.set(&text, 11).expect("one more");
        all.put_back(&text);
        assert_eq!(*text.bytes.borrow(), before, "S2: put back too early");
        all.put_back(&text);
        for offset in [7, 11, 204] {
            assert_eq!(text.bytes.borrow()[offset], BREAKPOINT);
        }
        all.clear_all(&text);
        assert_eq!(
            *text.bytes.borrow(),
            before,
            "S2: a breakpoint stays behind"
        );
    }

    #[test]
    fn what_the_program_has_written_stays() {
        let (text, mut all) = (text(), Breakpoints::default());
        all.set(&text, 7).expect("a breakpoint");
        text.bytes.borrow_mut()[7] = 0x90;
        all.clear_all(&text);
        assert_eq!(text.bytes.borrow()[7], 0x90);
        all.set(&text, 8).expect("a breakpoint");
        all.set(&text, 12).expect("a breakpoint");
        // The page is gone and there is another one.
        all.forget(8, 12);
        text.bytes.borrow_mut()[8] = BREAKPOINT;
        all.clear_all(&text);
        assert_eq!(text.bytes.borrow()[8], BREAKPOINT);
        assert_eq!(text.bytes.borrow()[12], 12);
    }

    #[test]
    fn there_is_an_end_to_them() {
        let (text, mut all) = (text(), Breakpoints::default());
        assert_eq!(all.set(&text, 512), Err(Error::Invalid));
        for offset in 0..MAX_BREAKPOINTS as u64 {
            all.set(&text, offset).expect("a breakpoint");
        }
        assert_eq!(all.set(&text, 300), Err(Error::Limit));
        all.take_out(&text);
        text.full.set(true);
        all.put_back(&text);
        let before: Vec<u8> = (0..=255).chain(0..=255).collect();
        assert_eq!(*text.bytes.borrow(), before);
        assert!(!all.has(0));
        assert_eq!(all.set(&text, 300), Err(Error::NoMemory));
    }
}
