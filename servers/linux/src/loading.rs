//! Loading: `mmap` of files and `execve` read their files piece by piece.
//!
//! Neither can be done at once: a file can be large, and a disk slow. A call that loads does one piece, and is made
//! again when other programs have had a turn ([`Stop::Turn`]) or the disk has answered ([`crate::late`]). Its progress
//! is in the [`Task`], and what it has loaded is where no program sees it: in a range of addresses that is reserved
//! ([`Kind::Loading`]), or in a memory that is not the program's yet ([`Host::stage`]). So for programs such a call has
//! happened as a whole, or not at all.
//!
//! * No signal handler runs between two pieces; a signal that ends the process takes effect at once.
//! * A process that is frozen continues its loading when it is thawed. An image does not have the progress: after a
//!   restore the call begins again.
//! * Other tasks of the process may unmap the reserved range meanwhile, or map something else there. That counts as
//!   happening after the call, so their mappings stay.

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

/// The progress of a call that loads.
#[derive(Debug)]
pub struct Loading {
    /// The call that loads. Any other call of the task gives the loading up.
    pub key: CallKey,
    what: What,
}

#[derive(Debug)]
enum What {
    Mapping(Mapping),
    Program(Box<Staged>),
    /// The arguments and the environment of an `execve` that has no program yet.
    Strings(Box<Strings>),
    /// A shared mapping of a file: its memory object. Holding the use keeps what was loaded.
    Object(Rc<Use>),
}

/// A private mapping of a file.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// Inode of the file.
    pub ino: u64,
    /// Offset in the file at which the mapping begins.
    pub offset: u64,
    /// First address.
    pub start: u64,
    /// First address behind the mapping.
    pub end: u64,
    /// Protection.
    pub prot: Prot,
    /// Whether `MAP_SHARED` was asked for.
    pub shared: bool,
    /// Bytes loaded so far.
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

/// The arguments and the environment of `execve` read so far: tens of thousands of strings anywhere in the program's
/// memory, so they are read over several turns.
#[derive(Debug, Default)]
pub struct Strings {
    lists: [List; 2],
    /// How many of the lists are complete.
    complete: usize,
    /// Whether reading takes more than one turn.
    is_long: bool,
}

/// A list of strings, one behind the other without separators.
#[derive(Debug, Default)]
struct List {
    bytes: Vec<u8>,
    /// Offset in `bytes` of the end of each string.
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
    /// Most strings, and most bytes, that are read in one turn.
    pub const AT_ONCE: usize = 2_000;
    const BYTES_AT_ONCE: usize = 256 * 1024;

    /// Reads on in the lists at these addresses; returns whether both lists are complete.
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
            // Includes room for later copies of the strings, the whole initial stack among them.
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

/// The strings that earlier turns of this call have read.
pub fn begun_strings(c: &mut Caller) -> Option<Box<Strings>> {
    match c.p.task.loading.take()?.what {
        What::Strings(strings) => Some(strings),
        What::Mapping(_) | What::Program(_) | What::Object(_) => None,
    }
}

/// Keeps the strings until the call is made again, if reading them takes several turns and the call has not got to
/// loading yet.
pub fn keep_strings(c: &mut Caller, strings: Box<Strings>) {
    if strings.is_long && c.p.task.loading.is_none() {
        keep(c, What::Strings(strings));
    }
}

/// Gives up the loading of a task.
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

/// Unmaps the ranges that are reserved for this thread and frees the pages loaded there.
fn clear(areas: &mut Areas, host: &mut dyn Host, thread: u32) {
    for (start, end) in areas.forget_loading(|of| of == thread) {
        host.discard(start, end - start);
    }
}

/// Keeps the object of a shared mapping that is not loaded completely; the call goes on after other programs have had a
/// turn.
pub fn go_on_with(c: &mut Caller, object: Rc<Use>) -> Stop {
    keep(c, What::Object(object));
    Stop::Turn
}

fn keep(c: &mut Caller, what: What) {
    let key = c.key();
    c.p.task.loading = Some(Box::new(Loading { key, what }));
}

/// The mapping of this file that this call has begun to load. Any other loading of the thread is given up, and ranges
/// reserved by an earlier mapping, or one of an image, are cleared.
pub fn begun(c: &mut Caller, ino: Option<u64>) -> Option<Mapping> {
    if let Some(loading) = c.p.task.loading.take() {
        match loading.what {
            What::Mapping(mapping) if Some(mapping.ino) == ino => return Some(mapping),
            What::Mapping(_) | What::Strings(_) => {}
            // The object stays in the table while it is loaded, and this call finds it by its file or lets it go.
            What::Object(object) => drop(object),
            What::Program(staged) => exec::unstage(c.h, *staged),
        }
    }
    clear(&mut c.p.memory.areas, c.h, c.p.task.thread);
    None
}

/// Loads the next piece of a mapping into its reserved range; after the last piece turns the range into the mapping.
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
                // Pages behind the end of the file are zeros.
                mapping.done = match got < want {
                    true => size,
                    false => mapping.done + got as u64,
                };
            }
            Err(stop) => {
                if c.h.waits() {
                    // The next attempt must make the same requests.
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
            // The next attempt must make the same requests.
            mapping.done = begun;
            keep(c, What::Mapping(mapping));
            Err(stop)
        }
    }
}

/// The number by which [`OfFile`] names the mapping's file in this memory. Fails only if the call has to wait for the
/// file system.
fn file_of(c: &mut Caller, mapping: &Mapping) -> Result<u16> {
    // A library is mapped from its beginning first and from further offsets later, so its name is asked for once.
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

/// Whether an area is reserved for this thread.
fn is_kept_for(thread: u32) -> impl Fn(&&Area) -> bool {
    move |area| area.kind == Kind::Loading { thread }
}

/// Writes loaded bytes to those parts of the range that are still reserved.
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

/// Turns what is still reserved of a completely loaded range into a mapping of this file.
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

/// The program that this call has begun to load. Strings stay where they are, a mapping is given up.
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

/// Keeps the program; the call goes on after other programs have had a turn.
pub fn turn(c: &mut Caller, staged: Box<Staged>) -> Stop {
    keep(c, What::Program(staged));
    Stop::Turn
}

/// Loads the next piece of a program; after the last piece the program replaces the caller's.
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
