//! A session at the control port of a process: the same for every manager of processes.
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Deref;
use interface::server::Event;
use proto::Error;
use rt::obj::Ref;
use services::process::{encoded, keep, Info, Named, Pid, Process, Status, MAX_WHY};

/// A process by its number, which can be reused, and a number that no other process of its manager ever has.
pub type Known = (Pid, u64);

/// The length of the part of a frozen process, its name, and references.
pub type Frozen = (u64, Vec<u8>, Vec<Ref>);

/// The operations of a manager on one of its processes; [`Process`] documents each.
#[allow(missing_docs)]
pub trait Manager {
    /// [`Error::NotFound`] unless the process of this number is still the same one.
    fn known(&mut self, known: Known) -> Result<(), Error>;
    fn status(&mut self, pid: Pid) -> Result<Status, Error>;
    fn reap(&mut self, pid: Pid) -> Result<Status, Error>;
    fn kill(&mut self, pid: Pid) -> Result<(), Error>;
    /// Whether a process that was killed, and all that end with it, have ended; [`Error::WouldBlock`] if not yet: then
    /// its event will happen.
    fn killed(&mut self, _pid: Pid) -> Result<(), Error> {
        Ok(())
    }
    fn stop(&mut self, pid: Pid) -> Result<(), Error>;
    fn go_on(&mut self, pid: Pid) -> Result<(), Error>;
    fn typed(&mut self, pid: Pid, suspend: bool) -> Result<bool, Error>;
    fn info(&mut self, pid: Pid) -> Result<Info, Error>;
    /// The length of the part, the name, and references. [`Error::Limit`] if the process is frozen already: it has one
    /// part, and its threads one stop of this kind. [`Error::WouldBlock`] if the process is stopped but the part takes
    /// time; when its event happens [`Manager::frozen`] may have the result.
    fn freeze(&mut self, pid: Pid, how: u32) -> Result<Frozen, Error>;
    /// The result of a `freeze` that takes time, or `WouldBlock` again.
    fn frozen(&mut self, _pid: Pid) -> Result<Frozen, Error> {
        Err(Error::Invalid)
    }
    /// Gives up a `freeze` for which no client waits any more: the process continues.
    fn give_up(&mut self, _pid: Pid) {}
    /// The part of a frozen process from this offset on, as much as there is room for.
    fn part(&mut self, pid: Pid, offset: u64, room: usize) -> Result<Vec<u8>, Error>;
    /// Name and regions of a further memory of a frozen process; a shared memory has only one region.
    fn member(&mut self, pid: Pid, number: u32) -> Result<(Vec<u8>, Vec<Ref>), Error>;
    /// The files of a frozen process, from the one with this number on, as many as there is room for.
    fn files(&mut self, _pid: Pid, _from: u32, room: usize) -> Result<Vec<u8>, Error> {
        Ok(Named::to_bytes(&[], room))
    }
    /// A copy of a memory of a frozen process: references.
    fn copy(&mut self, pid: Pid, number: u32) -> Result<Vec<Ref>, Error>;
    /// Undoes one `freeze`.
    fn thaw(&mut self, pid: Pid) -> Result<(), Error>;
    /// Starts a process that was rebuilt.
    fn let_go(&mut self, pid: Pid) -> Result<(), Error>;
    /// Adds a memory to a process that is being rebuilt. Returns its number, regions and keeper; for a shared memory
    /// its number and region.
    fn adopt_member(&mut self, pid: Pid, shared: bool) -> Result<(u32, Vec<Ref>), Error>;
    fn populate(
        &mut self,
        pid: Pid,
        member: u32,
        control: bool,
        offset: u64,
        size: u64,
    ) -> Result<(), Error>;
    fn supplier(&mut self, _pid: Pid, _member: u32) -> Result<Ref, Error> {
        Err(Error::Unsupported)
    }
    fn rebuild(
        &mut self,
        pid: Pid,
        offset: u64,
        length: u64,
        clock_offset: u64,
        piece: &[u8],
    ) -> Result<(), Error>;
    /// The result of a `rebuild` that takes time, or `WouldBlock` again, as for a `freeze`.
    fn rebuilt(&mut self, _pid: Pid) -> Result<(), Error> {
        Err(Error::Invalid)
    }
    /// What a process has said to who started it.
    fn said(&mut self, _pid: Pid, _offset: u32, _room: usize) -> Result<Vec<u8>, Error> {
        Ok(Vec::new())
    }
    /// Takes the sentence about the last refused request, if there is one.
    fn why(&mut self) -> String {
        String::new()
    }
}

/// How the sessions of a manager reach it.
pub trait Managed: 'static {
    /// The manager.
    type Manager: Manager;
    /// Does something with it.
    fn with<R>(&self, f: impl FnOnce(&mut Self::Manager) -> R) -> R;
}

impl<M: Manager + 'static> Managed for Rc<RefCell<M>> {
    type Manager = M;

    fn with<R>(&self, f: impl FnOnce(&mut M) -> R) -> R {
        f(&mut self.borrow_mut())
    }
}

/// A session at a control port: what it has frozen is thawed when it is dropped.
#[derive(Debug)]
pub struct Held<M: Managed, E: Deref<Target = Event> + 'static> {
    manager: M,
    known: Known,
    /// Happens when the status of the process may have changed.
    event: E,
    /// Whether this session has frozen it.
    has_frozen: Cell<bool>,
    /// Why the last request that was refused with a sentence was refused.
    why: RefCell<String>,
}

impl<M: Managed, E: Deref<Target = Event>> Held<M, E> {
    /// A session about this process.
    pub const fn new(manager: M, known: Known, event: E) -> Self {
        Held {
            manager,
            known,
            event,
            has_frozen: Cell::new(false),
            why: RefCell::new(String::new()),
        }
    }

    /// Does something with the process, if it is still known.
    fn with<R>(
        &self,
        f: impl FnOnce(&mut M::Manager, Pid) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.manager.with(|manager| {
            manager.known(self.known)?;
            f(manager, self.known.0)
        })
    }

    /// As [`Held::with`], and keeps the sentence about a refusal.
    fn told<R>(
        &self,
        f: impl FnOnce(&mut M::Manager, Pid) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.with(|manager, pid| {
            // A sentence that no client has read is about an earlier request.
            drop(manager.why());
            let done = f(manager, pid);
            let mut why = manager.why();
            why.truncate(why.floor_char_boundary(MAX_WHY));
            match done {
                Err(Error::WouldBlock) => {}
                Err(_) => *self.why.borrow_mut() = why,
                Ok(_) => *self.why.borrow_mut() = String::new(),
            }
            done
        })
    }

    /// The result of an operation that may take time: begins it, and calls `again` whenever the process's event has
    /// happened.
    async fn outcome<T>(
        &self,
        begin: impl FnOnce(&mut M::Manager, Pid) -> Result<T, Error>,
        again: impl Fn(&mut M::Manager, Pid) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let taken = |result| match result {
            Err(Error::WouldBlock) => None,
            result => Some(result),
        };
        if let Some(result) = taken(self.told(begin)) {
            return result;
        }
        let mut waiting = Waiting {
            held: self,
            is_over: false,
        };
        let result = self.event.until(|| taken(self.told(&again))).await;
        waiting.is_over = true;
        result
    }

    /// Waits for a status.
    async fn wait_for(&self, wanted: impl Fn(Status) -> bool) -> Result<Status, Error> {
        let look = || match self.status() {
            Ok(status) if !wanted(status) => None,
            status => Some(status),
        };
        self.event.until(look).await
    }
}

/// A request that takes time. If it is dropped before the request is done, the request is given up.
struct Waiting<'a, M: Managed, E: Deref<Target = Event> + 'static> {
    held: &'a Held<M, E>,
    is_over: bool,
}

impl<M: Managed, E: Deref<Target = Event>> Drop for Waiting<'_, M, E> {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.held.with(|manager, pid| {
                manager.give_up(pid);
                Ok(())
            });
        }
    }
}

impl<M: Managed, E: Deref<Target = Event>> Drop for Held<M, E> {
    fn drop(&mut self) {
        if self.has_frozen.get() {
            let _ = self.with(Manager::thaw);
        }
    }
}

impl<M: Managed, E: Deref<Target = Event>> Process for Held<M, E> {
    fn status(&self) -> Result<Status, Error> {
        self.with(Manager::status)
    }

    async fn changed(&self, from: Status) -> Result<Status, Error> {
        self.wait_for(|status| status != from).await
    }

    async fn ended(&self) -> Result<Status, Error> {
        self.wait_for(Status::has_ended).await
    }

    fn reap(&self) -> Result<Status, Error> {
        self.with(Manager::reap)
    }

    async fn kill(&self) -> Result<(), Error> {
        self.with(Manager::kill)?;
        let over = || match self.with(Manager::killed) {
            Err(Error::WouldBlock) => None,
            // Otherwise the process is gone.
            _ => Some(()),
        };
        self.event.until(over).await;
        Ok(())
    }

    fn stop(&self) -> Result<(), Error> {
        self.with(Manager::stop)
    }

    fn go_on(&self) -> Result<(), Error> {
        self.with(Manager::go_on)
    }

    fn typed(&self, suspend: bool) -> Result<bool, Error> {
        self.with(|manager, pid| manager.typed(pid, suspend))
    }

    fn info(&self, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        encoded(&self.with(Manager::info)?, room)
    }

    async fn freeze(&self, how: u32, room: usize) -> Result<Frozen, Error> {
        if how & !keep::ALL != 0 {
            return Err(Error::Invalid);
        }
        let begin = |manager: &mut M::Manager, pid| manager.freeze(pid, how);
        let (length, mut name, refs) = self.outcome(begin, Manager::frozen).await?;
        self.has_frozen.set(true);
        name.truncate(room);
        Ok((length, name, refs))
    }

    fn part(&self, offset: u64, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        if !self.has_frozen.get() {
            return Err(Error::Invalid);
        }
        self.with(|manager, pid| manager.part(pid, offset, room))
    }

    fn member(&self, number: u32, room: usize) -> Result<(Vec<u8>, Vec<Ref>), Error> {
        if !self.has_frozen.get() {
            return Err(Error::Invalid);
        }
        let (mut name, refs) = self.with(|manager, pid| manager.member(pid, number))?;
        name.truncate(room);
        Ok((name, refs))
    }

    fn files(&self, from: u32, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        if !self.has_frozen.get() {
            return Err(Error::Invalid);
        }
        self.with(|manager, pid| manager.files(pid, from, room))
    }

    fn copy(&self, number: u32) -> Result<Vec<Ref>, Error> {
        if !self.has_frozen.get() {
            return Err(Error::Invalid);
        }
        self.with(|manager, pid| manager.copy(pid, number))
    }

    fn thaw(&self) -> Result<(), Error> {
        let has_frozen = self.has_frozen.get();
        self.told(|manager, pid| match has_frozen {
            false => manager.let_go(pid),
            true => manager.thaw(pid),
        })?;
        self.has_frozen.set(false);
        Ok(())
    }

    fn adopt_member(&self, shared: bool) -> Result<(u32, Vec<Ref>), Error> {
        self.told(|manager, pid| manager.adopt_member(pid, shared))
    }

    fn populate(&self, member: u32, control: bool, offset: u64, size: u64) -> Result<(), Error> {
        self.with(|manager, pid| manager.populate(pid, member, control, offset, size))
    }

    fn supplier(&self, member: u32) -> Result<Ref, Error> {
        self.with(|manager, pid| manager.supplier(pid, member))
    }

    async fn rebuild(
        &self,
        offset: u64,
        length: u64,
        clock_offset: u64,
        piece: Vec<u8>,
    ) -> Result<(), Error> {
        let begin = |manager: &mut M::Manager, pid| {
            manager.rebuild(pid, offset, length, clock_offset, &piece)
        };
        self.outcome(begin, Manager::rebuilt).await
    }

    fn why(&self, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let why = self.why.borrow();
        Ok(why.as_bytes()[..why.floor_char_boundary(room)].to_vec())
    }

    fn said(&self, offset: u32, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        self.with(|manager, pid| manager.said(pid, offset, room))
    }
}
