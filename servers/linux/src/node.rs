//! Special files: FIFOs, and the names of sockets. The file system in memory has them as empty files and never reuses
//! the inode number of one. So they are not kept open, and if a native program removes one, only its entry here is
//! left.

use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::errno::{Errno, ENOSPC};
use crate::files::{Reply, Request};
use crate::host::Host;
use crate::process::{End, Pipe, Shared};
use crate::system::{Payer, System, Thing, Tid};

/// The type bits of a FIFO.
pub const FIFO: u32 = 0o010_000;
/// The type bits of a socket.
pub const SOCKET: u32 = 0o140_000;

/// A special file.
#[derive(Clone, Debug)]
struct Node {
    /// Type bits.
    mode: u32,
    payer: Payer,
    /// The pipe of a FIFO that is open, with the pipe's identity.
    pipe: Option<(u64, Weak<RefCell<Pipe>>)>,
}

/// A task that waits for the other end of a FIFO to be opened.
#[derive(Clone, Debug)]
struct Opener {
    ino: u64,
    /// Whether it opens the FIFO for writing.
    writes: bool,
    /// The pipe and its identity, once a task has opened the other end. The waiting task's end counts as open from then
    /// on.
    granted: Option<(u64, Shared<Pipe>)>,
}

impl Opener {
    const fn end(&self) -> End {
        if self.writes {
            End::Write
        } else {
            End::Read
        }
    }
}

/// All special files, and the tasks that wait for FIFOs.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    all: BTreeMap<u64, Node>,
    openers: BTreeMap<Tid, Opener>,
}

impl Nodes {
    /// The type bits of a special file; `None` for other files.
    #[must_use]
    pub fn mode(&self, ino: u64) -> Option<u32> {
        self.all.get(&ino).map(|node| node.mode)
    }

    /// The pipe of a FIFO that is open, with the pipe's identity.
    #[must_use]
    pub fn fifo(&self, ino: u64) -> Option<(u64, Shared<Pipe>)> {
        let (id, pipe) = self.all.get(&ino)?.pipe.as_ref()?;
        let pipe = pipe.upgrade()?;
        // A description that has ended can still hold the pipe, so the open ends are counted.
        let is_open = pipe.borrow().readers + pipe.borrow().writers > 0;
        is_open.then_some((*id, pipe))
    }

    /// Sets the pipe of a FIFO that was opened.
    pub fn set_fifo(&mut self, ino: u64, id: u64, pipe: &Shared<Pipe>) {
        if let Some(node) = self.all.get_mut(&ino) {
            node.pipe = Some((id, Rc::downgrade(pipe)));
        }
    }

    /// Whether a task waits for this end of a FIFO (`writes`: the write end) to be opened.
    #[must_use]
    pub fn is_awaited(&self, ino: u64, writes: bool) -> bool {
        let mut others = self.openers.values();
        others.any(|other| other.ino == ino && other.writes != writes)
    }

    /// Whether a task waits for this end; otherwise `tid` waits for the other end from now on.
    pub fn meets(&mut self, ino: u64, tid: Tid, writes: bool) -> bool {
        if self.is_awaited(ino, writes) {
            return true;
        }
        let opener = Opener {
            ino,
            writes,
            granted: None,
        };
        self.openers.insert(tid, opener);
        false
    }

    /// This end of a FIFO was opened: gives the tasks that wait for it their own ends.
    pub fn grant(&mut self, ino: u64, end: End, id: u64, pipe: &Shared<Pipe>) {
        let waiting = self.openers.values_mut().filter(|opener| opener.ino == ino);
        for opener in waiting.filter(|opener| opener.granted.is_none()) {
            let meets = if opener.writes {
                end.reads()
            } else {
                end.writes()
            };
            if meets {
                pipe.borrow_mut().open(opener.end());
                opener.granted = Some((id, Rc::clone(pipe)));
            }
        }
    }

    /// Takes the pipe that this task has waited for, if it was given.
    pub fn take_granted(&mut self, tid: Tid, ino: u64) -> Option<(u64, Shared<Pipe>)> {
        let opener = self
            .openers
            .get_mut(&tid)
            .filter(|opener| opener.ino == ino)?;
        let granted = opener.granted.take()?;
        self.openers.remove(&tid);
        Some(granted)
    }

    /// Whether this task has been given a pipe that it has not taken.
    #[must_use]
    pub fn is_granted(&self, tid: Tid) -> bool {
        let opener = self.openers.get(&tid);
        opener.is_some_and(|opener| opener.granted.is_some())
    }

    /// Whether there are no special files.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Ends the wait of a task. Returns the pipe that it was given and has not taken, with the pipe's identity and the
    /// task's end.
    pub fn leave(&mut self, tid: Tid) -> Option<(u64, End, Shared<Pipe>)> {
        let opener = self.openers.remove(&tid)?;
        let end = opener.end();
        opener.granted.map(|(id, pipe)| (id, end, pipe))
    }
}

impl System {
    /// Makes a file a special file. Errors: `ENOSPC`.
    pub fn new_node(
        &mut self,
        host: &mut dyn Host,
        ino: u64,
        mode: u32,
        payer: Payer,
    ) -> Result<(), Errno> {
        if self.count_thing(Thing::Node, payer).is_err() {
            // Native programs may have removed some special files.
            for ino in self.nodes.all.keys().copied().collect::<Vec<_>>() {
                self.forget_removed(host, ino);
            }
            while self.count_thing(Thing::Node, payer).is_err() {
                if self.is_full(Thing::Node, payer) || !self.give_up_node() {
                    return Err(ENOSPC);
                }
            }
        }
        let node = Node {
            mode,
            payer,
            pipe: None,
        };
        if let Some(old) = self.nodes.all.insert(ino, node) {
            self.uncount_thing(Thing::Node, old.payer);
        }
        Ok(())
    }

    /// Forgets a special file that has no name any more.
    pub fn forget_removed(&mut self, host: &mut dyn Host, ino: u64) {
        if !self.nodes.all.contains_key(&ino) {
            return;
        }
        // Special files are in memory, so the answer comes at once.
        let attr = host.fs_now(&Request::StatIno { ino }, &[], &mut []);
        if matches!(attr, Ok((Reply::Attr(attr), _)) if attr.links > 0) {
            return;
        }
        self.forget_node(ino);
    }

    /// Forgets a special file that no task uses: it is an ordinary empty file again.
    pub fn leave_node(&mut self, ino: u64) {
        if !self.is_node_used(ino) {
            self.forget_node(ino);
        }
    }

    /// Whether a FIFO is open or waited for, or a socket is bound to the name.
    fn is_node_used(&self, ino: u64) -> bool {
        let is_awaited = self.nodes.openers.values().any(|opener| opener.ino == ino);
        is_awaited || self.nodes.fifo(ino).is_some() || self.sockets.has_file(ino)
    }

    fn forget_node(&mut self, ino: u64) {
        if let Some(node) = self.nodes.all.remove(&ino) {
            self.uncount_thing(Thing::Node, node.payer);
        }
    }

    /// Makes room for another special file. Of the payers without processes that have left unused special files, takes
    /// the one with the most, and forgets its oldest. Returns whether there was one.
    fn give_up_node(&mut self) -> bool {
        let mut left: BTreeMap<Payer, (usize, u64)> = BTreeMap::new();
        for (ino, node) in &self.nodes.all {
            if !self.is_node_used(*ino) && self.counted(node.payer) == 0 {
                left.entry(node.payer).or_insert((0, *ino)).0 += 1;
            }
        }
        let most = left.into_values().max_by_key(|(count, _)| *count);
        if let Some((_, ino)) = most {
            self.forget_node(ino);
        }
        most.is_some()
    }
}
