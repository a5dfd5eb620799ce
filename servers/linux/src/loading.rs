//! Loading: what `mmap` of a file and `execve` read, a piece after the other.
//!
//! Neither can be done at once: a file can be large, and a disk slow. A call that loads does a piece, and comes again
//! when others have had their turn ([`Stop::Turn`]) or the disk has answered ([`crate::late`]). How far it is stands in
//! its [`Task`], which nobody else sees, and what it has loaded is where no program sees it: in a range of addresses
//! that is only kept free ([`Kind::Loading`]), or in a memory that is not the program's yet ([`Host::stage`]). So for
//! programs such a call has happened, or it has not.
//!
//! * No handler runs in between; a signal that ends the process does so at once.
//! * A process that is frozen goes on with what it was loading when it is thawed. An image does not have that: where it
//!   is restored the call begins again.
//! * Others of the process may unmap the range, or map something else there, meanwhile. That happens after the call:
//!   what they have put there stays.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;

use crate::calls::{file, name};
use crate::emulate::{Caller, Result, Stop, Wake};
use crate::errno::{E2BIG, EFAULT};
use crate::exec::{self, Staged};
use crate::host::{Host, OutOfMemory};
use crate::memory::{Area, Areas, Kind, OfFile, Prot};
use crate::object::Use;
use crate::process::{CallKey, Task};

/// What a call has loaded so far.
#[derive(Debug)]
pub struct Loading {
    /// Which call it belongs to. Any other call of the task gives it up.
    pub key: CallKey,
    what: What,
}

#[derive(Debug)]
enum What {
    Mapping(Mapping),
    Program(Box<Staged>),
    /// What a program is to be started with.
    Strings(Box<Strings>),
    /// A shared mapping of a file: its object, which has what was loaded as long as it is kept.
    Object(Rc<Use>),
}

/// A private mapping of a file.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// The file.
    pub ino: u64,
    /// Where the mapping begins in it.
    pub offset: u64,
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Protection.
    pub prot: Prot,
    /// Whether it was asked for as a shared one.
    pub shared: bool,
    /// Bytes that are there.
    pub done: u64,
}

impl Loading {
    /// The memory object that is being loaded.
    #[must_use]
    pub fn object(&self) -> Option<u64> {
        match &self.what {
            What::Object(used) => Some(used.id()),
            What::Mapping(_) | What::Program(_) | What::Strings(_) => None,
        }
    }
}

/// The arguments and the environment of `execve`, as far as they have been read: tens of thousands of strings anywhere
/// in the memory of a program, which are read in turns.
#[derive(Debug, Default)]
pub struct Strings {
    lists: [List; 2],
    /// How many of the lists are complete.
    complete: usize,
    /// They were not read in one turn.
    is_long: bool,
}

/// A list of strings, one behind the other.
#[derive(Debug, Default)]
struct List {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<u32>,
}

impl List {
    fn strings(&self) -> Vec<Vec<u8>> {
        let mut start = 0;
        let strings = self.ends.iter().map(|end| {
            let string = &self.bytes[start..*end as usize];
            start = *end as usize;
            string.to_vec()
        });
        strings.collect()
    }
}

impl Strings {
    /// Most strings of a list.
    pub const MOST: usize = 32 * 1024;
    /// Most bytes of a list, with the pointers to its strings.
    const MOST_BYTES: usize = 1 << 20;
    /// Most bytes of a string.
    const LONGEST: usize = 128 * 1024;
    /// How many are read at once, of how many bytes together.
    pub const AT_ONCE: usize = 2_000;
    const BYTES_AT_ONCE: usize = 256 * 1024;

    /// Reads on in the lists at these addresses: whether all is there.
    pub fn read(&mut self, c: &mut Caller, at: [u64; 2]) -> Result<bool> {
        let mut bytes = 0;
        for _ in 0..Self::AT_ONCE {
            let (Some(address), Some(list)) =
                (at.get(self.complete), self.lists.get_mut(self.complete))
            else {
                return Ok(true);
            };
            let place = address
                .checked_add(8 * list.ends.len() as u64)
                .ok_or(EFAULT)?;
            // A null list is an empty list.
            let pointer = match address {
                0 => 0,
                _ => c.word(place)?,
            };
            if pointer == 0 {
                self.complete += 1;
                continue;
            }
            let string = c.string(pointer, Self::LONGEST, E2BIG)?;
            let with = list.bytes.len() + string.len();
            if list.ends.len() >= Self::MOST || with + 9 * (list.ends.len() + 1) > Self::MOST_BYTES
            {
                return Err(E2BIG.into());
            }
            // They are copied onto the stack, in one piece.
            c.h.room(6 * (string.len() as u64 + 64))?;
            list.bytes.extend_from_slice(&string);
            list.ends.push(with as u32);
            bytes += string.len();
            if bytes >= Self::BYTES_AT_ONCE {
                break;
            }
        }
        self.is_long |= self.complete < self.lists.len();
        Ok(self.complete == self.lists.len())
    }

    /// The arguments, and the environment.
    #[must_use]
    pub fn lists(&self) -> [Vec<Vec<u8>>; 2] {
        [self.lists[0].strings(), self.lists[1].strings()]
    }
}

/// The strings that this call has begun to read.
pub fn begun_strings(c: &mut Caller) -> Option<Box<Strings>> {
    match c.p.task.loading.take()?.what {
        What::Strings(strings) => Some(strings),
        What::Mapping(_) | What::Program(_) | What::Object(_) => None,
    }
}

/// Keeps strings until the call is made again, if it takes long to read them, and if it has not come further.
pub fn keep_strings(c: &mut Caller, strings: Box<Strings>) {
    if strings.is_long && c.p.task.loading.is_none() {
        keep(c, What::Strings(strings));
    }
}

/// Gives up what a task was loading.
pub fn give_up(task: &mut Task, host: &mut dyn Host) {
    let Some(loading) = task.loading.take() else {
        return;
    };
    match loading.what {
        What::Mapping(_) => {
            let mut memory = task.shares.memory.borrow_mut();
            clear(&mut memory.areas, host, task.thread);
        }
        What::Program(staged) => exec::unstage(host, *staged),
        What::Object(_) | What::Strings(_) => {}
    }
}

/// Gives back what is kept free for this thread, with what has been loaded there.
fn clear(areas: &mut Areas, host: &mut dyn Host, thread: u32) {
    for (start, end) in areas.forget_loading(|of| of == thread) {
        host.discard(start, end - start);
    }
}

/// A shared mapping of a file is not there as a whole yet: the call goes on when others have had their turn.
pub fn go_on_with(c: &mut Caller, object: Rc<Use>) -> Stop {
    keep(c, What::Object(object));
    Stop::Turn
}

fn keep(c: &mut Caller, what: What) {
    let key = c.key();
    c.p.task.loading = Some(Box::new(Loading { key, what }));
}

/// The mapping that this call was loading, if it was loading one of this file. What else there is of the thread is
/// cleared: another one, or what an image had of one.
pub fn begun(c: &mut Caller, ino: Option<u64>) -> Option<Mapping> {
    if let Some(loading) = c.p.task.loading.take() {
        match loading.what {
            What::Mapping(mapping) if Some(mapping.ino) == ino => return Some(mapping),
            What::Mapping(_) | What::Strings(_) => {}
            // It is still found by its file: this call is what goes on with it, or gives it up.
            What::Object(object) => drop(object),
            What::Program(staged) => exec::unstage(c.h, *staged),
        }
    }
    clear(&mut c.p.memory.areas, c.h, c.p.task.thread);
    None
}

/// Loads the next piece of a mapping, whose range is kept free for it; with the last one it is a mapping.
pub fn map(c: &mut Caller, mut mapping: Mapping) -> Result {
    let (begun, size) = (mapping.done, mapping.end - mapping.start);
    let until = size.min(begun + file::step_of(mapping.ino));
    let mut chunk = c.s.take_chunk();
    while mapping.done < until {
        let want = (until - mapping.done).min(chunk.len() as u64) as usize;
        let from = mapping.offset + mapping.done;
        match file::read_file(c, mapping.ino, from, &mut chunk[..want]) {
            Ok(got) => {
                fill(c, mapping.start + mapping.done, &chunk[..got])?;
                // Behind the end of the file are zeros.
                mapping.done = match got < want {
                    true => size,
                    false => mapping.done + got as u64,
                };
            }
            Err(stop) => {
                if c.h.waits() {
                    // It asks for the same again.
                    mapping.done = begun;
                    keep(c, What::Mapping(mapping));
                } else {
                    clear(&mut c.p.memory.areas, c.h, c.p.task.thread);
                }
                return Err(stop);
            }
        }
    }
    c.s.give_chunk(chunk);
    if mapping.done < size {
        keep(c, What::Mapping(mapping));
        return Err(Stop::Turn);
    }
    match file_of(c, &mapping) {
        Ok(file) => finish(c, &mapping, file),
        Err(stop) => {
            // It asks for the same again.
            mapping.done = begun;
            keep(c, What::Mapping(mapping));
            Err(stop)
        }
    }
}

/// Which of the files that its memory knows a mapping is of, as [`OfFile`] says it. Fails only if the file system has
/// to be waited for.
fn file_of(c: &mut Caller, mapping: &Mapping) -> Result<u16> {
    // Whoever maps a library maps it from its beginning, and then more of it: it is asked once.
    if mapping.offset != 0 {
        if let Some(file) = c.p.memory.mapped.of_ino(mapping.ino) {
            return Ok(file);
        }
    }
    let name = name::of_open(c, mapping.ino);
    match name {
        _ if c.h.waits() => Err(proto::Error::WouldBlock.into()),
        Ok(name) => {
            let memory = &mut *c.p.memory;
            Ok(memory.mapped.add(&memory.areas, mapping.ino, &name))
        }
        Err(_) => Ok(OfFile::UNKNOWN),
    }
}

/// Whether an area is kept free for this thread.
fn is_kept_for(thread: u32) -> impl Fn(&&Area) -> bool {
    move |area| area.kind == Kind::Loading { thread }
}

/// Writes what was loaded where it is still kept free.
fn fill(c: &mut Caller, at: u64, bytes: &[u8]) -> core::result::Result<(), OutOfMemory> {
    let end = at + bytes.len() as u64;
    let kept = c.p.memory.areas.list().iter();
    for area in kept.filter(is_kept_for(c.p.task.thread)) {
        let (from, to) = (area.start.max(at), area.end.min(end));
        if from < to {
            let bytes = &bytes[(from - at) as usize..(to - at) as usize];
            c.h.write_memory(from, bytes)?;
        }
    }
    Ok(())
}

/// All is there: what is still kept free for it is mapped, from this file.
fn finish(c: &mut Caller, mapping: &Mapping, file: u16) -> Result {
    let thread = c.p.task.thread;
    let from = OfFile {
        file,
        shift: mapping.offset.wrapping_sub(mapping.start),
        shared: mapping.shared,
    };
    let areas = &mut c.p.memory.areas;
    let new = areas.with_loaded(thread, mapping.prot, from);
    if let Err(error) = areas.apply(c.h, new) {
        clear(areas, c.h, thread);
        return Err(error.into());
    }
    Ok(mapping.start)
}

/// The program that this call was loading, if it was.
pub fn begun_program(c: &mut Caller) -> Option<Box<Staged>> {
    let is_no_list = |loading: &mut Box<Loading>| !matches!(loading.what, What::Strings(_));
    let loading = c.p.task.loading.take_if(is_no_list)?;
    match loading.what {
        What::Program(staged) => Some(staged),
        What::Object(_) | What::Strings(_) => None,
        What::Mapping(_) => {
            clear(&mut c.p.memory.areas, c.h, c.p.task.thread);
            None
        }
    }
}

/// The call goes on with this program when others have had their turn.
pub fn turn(c: &mut Caller, staged: Box<Staged>) -> Stop {
    keep(c, What::Program(staged));
    Stop::Turn
}

/// Loads the next piece of a program; with the last one it takes the place of the one that called.
pub fn execute(c: &mut Caller, mut staged: Box<Staged>) -> Result {
    let result = staged.load(c.h);
    if c.h.waits() {
        keep(c, What::Program(staged));
        return Err(Stop::Park(Wake::firm()));
    }
    match result {
        Ok(true) => Err(Stop::Execute(Box::new(staged.prepared))),
        Ok(false) => Err(turn(c, staged)),
        Err(error) => {
            exec::unstage(c.h, *staged);
            Err(error.into())
        }
    }
}
