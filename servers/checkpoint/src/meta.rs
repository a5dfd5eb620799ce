//! The description of saved processes: everything except the bytes of their pages.
//!
//! [`Meta`] is a tree of plain values. Kernel objects are numbered by their place in [`Meta::objects`]; a reference
//! from one object to another is a [`Target`]. [`Meta::check`] checks every rule that an image must obey before an
//! object is made from it: an image is hostile input.

use crate::files::{File, MAX_FILES};
use abi::state::{
    MappingState, RegionState, Registers, SpaceState, Stage, ThreadState, FPU_BYTES,
    REGISTER_WORDS, THREAD_WORDS,
};
use abi::{RefKind, Type, OBJECT_ALIGN, OBJECT_SIZE, PAGE_SIZE};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::marker::PhantomData;
use interface::wire::{KEPT_BYTES, KEPT_WORDS};
use proto::layout::{CONTROL_SIZE, CONTROL_SPACE, CONTROL_THREAD, MEMORY_SIZE};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Most processes in one image for which the client has control ports, which come in one message.
pub const MAX_ROOTS: usize = abi::MAX_LIST_REFS as usize;
/// Most processes in one image, descendants in trees included.
pub const MAX_PROCESSES: usize = 256;
/// Most bytes of a manager's part.
pub const MAX_PART: usize = 4 << 20;
/// Most objects in one image: more than the kernel has memory for.
pub const MAX_OBJECTS: usize = 1 << 16;
/// Most runs of pages in one image.
pub const MAX_RUNS: usize = 1 << 18;
/// Most references of an object.
const MAX_REFS: usize = 3;
/// Most pages in one run, so that a run and its checksum fit into one message of the file system.
pub const MAX_RUN: u32 = 15;
/// Most stretches of pages that an image leaves to its parent.
pub const MAX_SAME: usize = MAX_RUNS;
/// Most bytes of the path of a parent.
pub const MAX_PATH: usize = 4096;
/// Most kernel memory that the space of an image may ask for.
pub const MAX_QUOTA: u64 = 64 << 20;
/// Among [`OUTSIDE`], for each process its own memory account.
pub const ACCOUNT: &str = "memory";
/// The ports outside of an image that it may name: those that every program knows or can look up.
pub const OUTSIDE: [&str; 8] = [
    ACCOUNT,
    "fs",
    "ext4",
    "console",
    "native",
    "linux",
    "checkpoint",
    "random",
];
/// Those among them at which sessions are opened. The service of a session is searched for in this order: the disk's
/// server may not answer, so it is last.
pub const DOORS: [&str; 7] = [
    "console",
    "fs",
    "native",
    "linux",
    "checkpoint",
    "random",
    "ext4",
];
/// The managers of processes.
pub const MANAGERS: [&str; 2] = ["native", "linux"];

/// Reads a list, and refuses one of more than `MOST` elements before it takes their memory: in memory elements may be
/// thirty times as long as in the image.
fn at_most<'de, D, T, const MOST: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct AtMost<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for AtMost<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            write!(f, "at most {MOST} elements")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let said = seq.size_hint().unwrap_or(0);
            if said > MOST {
                return Err(A::Error::invalid_length(said, &self));
            }
            // Memory is taken only for elements that have come, since the length may be forged.
            let mut list = Vec::new();
            while let Some(element) = seq.next_element()? {
                if list.len() == MOST {
                    return Err(A::Error::invalid_length(MOST + 1, &self));
                }
                list.push(element);
            }
            Ok(list)
        }
    }

    from.deserialize_seq(AtMost::<T, MOST>(PhantomData))
}

/// Everything about the saved processes except the bytes of their pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Meta {
    /// The processes.
    pub processes: Vec<Process>,
    /// Their kernel objects, by rising [`Place`].
    pub objects: Vec<Object>,
    /// Their pages that are not zero, by rising place. The bytes stand in the file in this order.
    pub runs: Vec<Run>,
    /// The image that has the pages that this one leaves out.
    pub parent: Option<Parent>,
    /// The pages that are left to the parent, by rising place; none of them is in `runs`.
    pub same: Vec<Same>,
    /// Files that are named and not in the image, by rising process and path.
    pub files: Vec<File>,
}

/// The image on which an incremental one is based.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Its absolute path when the incremental one was written.
    pub path: String,
    /// Identifies the image, wherever it is now.
    pub identity: Identity,
}

/// What distinguishes an image from all others: facts of its header, and a checksum of the table of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Identity {
    pub total: u64,
    pub clock: u64,
    pub meta_sum: u32,
    pub table: u32,
}

/// Pages of a memory segment that are equal to those at the same offset of a process of the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Same {
    /// Number of the process.
    pub process: u32,
    /// Offset of the first page in its memory segment.
    pub offset: u64,
    /// How many, at least one.
    pub pages: u32,
    /// Number of the process in the parent.
    pub theirs: u32,
}

impl Same {
    /// Where the first page lies.
    #[must_use]
    pub const fn place(&self) -> Place {
        Place {
            process: self.process,
            segment: Segment::Memory,
            offset: self.offset,
        }
    }

    /// Bytes of the pages.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.pages as u64 * PAGE_SIZE
    }
}

/// A list of at most `MOST` elements.
#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
struct List<T, const MOST: usize>(#[serde(deserialize_with = "at_most::<_, _, MOST>")] Vec<T>);

/// How many bytes a list that grows to `count` elements takes at most, also while it grows.
const fn growing<T>(count: usize) -> u64 {
    (3 * size_of::<T>() * count) as u64
}

impl Meta {
    /// Most bytes that an object takes in memory, including its name in a list and the references to it.
    pub const OBJECT_BYTES: u64 = growing::<Object>(1) + THREAD_BYTES + 512;
    /// Most bytes that a page takes.
    pub const PAGE_BYTES: u64 = growing::<Run>(1) + growing::<Same>(1) + growing::<u64>(1) + 64;

    /// Reads a description, and also returns the bytes behind it. `room` gets how much memory the next part needs, and
    /// returns whether it is available.
    pub fn decode(
        bytes: &[u8],
        mut room: impl FnMut(u64) -> bool,
    ) -> Result<(Meta, &[u8]), Undecoded> {
        // Texts and the like are as long as in the image.
        let mut ask = |more: u64| room(more).then_some(()).ok_or(Undecoded::NoRoom);
        // The length of a list may be forged, and is limited by the number of bytes left.
        let count =
            |bytes| postcard::take_from_bytes::<usize>(bytes).map(|(n, rest)| n.min(rest.len()));
        let processes = count(bytes)?.min(MAX_PROCESSES);
        ask(3 * bytes.len() as u64 + growing::<Process>(processes))?;
        let (List(processes), bytes) =
            postcard::take_from_bytes::<List<Process, MAX_PROCESSES>>(bytes)?;
        let objects = count(bytes)?.min(MAX_OBJECTS);
        ask(growing::<Object>(objects) + (objects * DECODED_REFS) as u64)?;
        let (List(objects), bytes) = postcard::take_from_bytes::<List<Object, MAX_OBJECTS>>(bytes)?;
        ask(growing::<Run>(count(bytes)?.min(MAX_RUNS)))?;
        let (runs, bytes) = runs(bytes)?;
        let (parent, bytes) = postcard::take_from_bytes::<Option<Parent>>(bytes)?;
        ask(growing::<Same>(count(bytes)?.min(MAX_SAME)))?;
        let (List(same), bytes) = postcard::take_from_bytes::<List<Same, MAX_SAME>>(bytes)?;
        ask(growing::<File>(count(bytes)?.min(MAX_FILES)))?;
        let (List(files), rest) = postcard::take_from_bytes::<List<File, MAX_FILES>>(bytes)?;
        let meta = Meta {
            processes,
            objects,
            runs,
            parent,
            same,
            files,
        };
        Ok((meta, rest))
    }
}

/// Reads the list of runs. Written for speed: its length grows with the memory of the processes, and even a process
/// that is restored on demand waits for it.
fn runs(bytes: &[u8]) -> Result<(Vec<Run>, &[u8]), postcard::Error> {
    let (count, mut rest) = postcard::take_from_bytes::<usize>(bytes)?;
    if count > MAX_RUNS {
        return Err(postcard::Error::SerdeDeCustom);
    }
    // The shortest run has four bytes.
    let mut runs = Vec::with_capacity(count.min(rest.len() / 4));
    for _ in 0..count {
        let run = match rest.first_chunk().and_then(usual_run) {
            Some((run, length)) => {
                rest = &rest[length..];
                run
            }
            None => {
                let (run, behind) = postcard::take_from_bytes(rest)?;
                rest = behind;
                run
            }
        };
        runs.push(run);
    }
    Ok((runs, rest))
}

/// The run that these bytes begin with, and how many of them it takes, if its numbers are short: process, segment and
/// pages of one byte, the offset of at most eight. Nearly all runs are such.
#[inline(always)]
fn usual_run(bytes: &[u8; 16]) -> Option<(Run, usize)> {
    let [process, segment, rest @ ..] = bytes;
    let segment = match segment {
        0 => Segment::Memory,
        1 => Segment::Control,
        _ => return None,
    };
    let word = u64::from_le_bytes(*rest.first_chunk()?);
    // The last byte of a number is the first one without the highest bit.
    let last = (!word & 0x8080_8080_8080_8080).trailing_zeros() / 8;
    let pages = *rest.get(last as usize + 1)?;
    if process | pages >= 0x80 || last == 8 {
        return None;
    }
    // Seven bits of each byte, then fourteen of each two, and so on.
    let word = word & (u64::MAX >> (56 - 8 * last));
    let word = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let word = word & 0x0000_3fff_0000_3fff | (word & 0x3fff_0000_3fff_0000) >> 2;
    let offset = word & 0x0fff_ffff | (word & 0x0fff_ffff_0000_0000) >> 4;
    let place = Place {
        process: u32::from(*process),
        segment,
        offset,
    };
    let pages = u32::from(pages);
    Some((Run { place, pages }, last as usize + 4))
}

/// Bytes that the state of a thread takes besides the object, including its encoded form.
const THREAD_BYTES: u64 = 4 * (FPU_BYTES + 8 * THREAD_WORDS) as u64;
/// Bytes that the references of an object and the words of a thread take; a list of references has room for at least
/// four.
const DECODED_REFS: usize =
    4 * size_of::<Target>() + MAX_REFS * size_of::<Kept>() + 8 * THREAD_WORDS;

/// Why a description cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecoded {
    /// There is no memory for it.
    NoRoom,
    /// The bytes are no description.
    Senseless,
}

impl From<postcard::Error> for Undecoded {
    fn from(_: postcard::Error) -> Self {
        Undecoded::Senseless
    }
}

/// Most bytes of the name of a process: managers give it 1,024, and bytes of it that are not UTF-8 become three times as
/// long.
pub const MAX_NAME: usize = 4096;

/// A name in the form in which it is saved: the beginning of one that is too long.
#[must_use]
pub fn name(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(MAX_NAME));
    name
}

/// A saved process: two segments; or memory that several share, which is one segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its manager, one of [`MANAGERS`].
    pub manager: String,
    /// 0, or for a memory of a tree of Linux processes its number in the tree, whose first process is the last one
    /// before it with 0. These follow in their order, and the part of the first one is about all of them.
    pub member: u32,
    /// It is only memory that members before it map: no control segment, no objects, no threads. Such entries follow
    /// behind the other members.
    pub shared: bool,
    /// Its name, for people.
    pub name: String,
    /// Its manager's part: opaque here.
    #[serde(deserialize_with = "at_most::<_, _, MAX_PART>")]
    pub part: Vec<u8>,
}

impl Process {
    /// A copy without the part, which is enough to identify it.
    #[must_use]
    pub fn known_by(&self) -> Self {
        Process {
            manager: self.manager.clone(),
            name: self.name.clone(),
            part: Vec::new(),
            ..*self
        }
    }
}

/// One of the two segments that make a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Segment {
    /// Its memory.
    Memory,
    /// The control segment, with the objects that its manager keeps for it.
    Control,
}

impl Segment {
    /// Bytes of such a segment.
    #[must_use]
    pub const fn size(self) -> u64 {
        match self {
            Segment::Memory => MEMORY_SIZE,
            Segment::Control => CONTROL_SIZE,
        }
    }
}

/// Where an object lies: the process, the segment, and the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Number of the process.
    pub process: u32,
    /// Which of its segments.
    pub segment: Segment,
    /// Offset in the segment.
    pub offset: u64,
}

impl Place {
    /// Whether the manager of its process makes the object there.
    #[must_use]
    pub fn is_managers(self) -> bool {
        self.segment == Segment::Control && [CONTROL_SPACE, CONTROL_THREAD].contains(&self.offset)
    }
}

/// Pages that lie one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Where the first one lies.
    pub place: Place,
    /// How many, at most [`MAX_RUN`].
    pub pages: u32,
}

impl Run {
    /// Bytes of the pages.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.pages as u64 * PAGE_SIZE
    }
}

/// A kernel object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Where it lies; this is also its handle in the restored process.
    pub place: Place,
    /// Its simple state.
    pub state: State,
    /// Its references, in the order of the parameters of its `set_state`.
    #[serde(deserialize_with = "at_most::<_, _, MAX_REFS>")]
    pub refs: Vec<Target>,
}

/// The simple fields of an object's state.
// Threads are large and few: a box would bring nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum State {
    Mutex {
        locked: bool,
    },
    Cond,
    Mapping {
        start: u64,
        size: u64,
        offset: u64,
        protection: u64,
    },
    Region {
        start: u64,
        size: u64,
        protection: u64,
    },
    Port {
        alias: u64,
        flags: u64,
    },
    Portset,
    Space {
        flags: u64,
        quota: u64,
        clock_offset: u64,
        max_priority: u64,
    },
    Thread {
        words: Box<[u64; THREAD_WORDS]>,
        #[serde(deserialize_with = "at_most::<_, _, FPU_BYTES>")]
        fpu: Vec<u8>,
    },
    Reference,
}

/// What a reference names, in a form that means the same in another boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// Nothing, or something dead.
    Null,
    /// The object with this number.
    Object(u32),
    /// The client end of the thread with this number.
    ClientEnd(u32),
    /// The server end of the thread with this number.
    ServerEnd(u32),
    /// A port outside, of [`OUTSIDE`].
    Outside(String),
    /// The port by which the manager of the process with this number knows it.
    Manager(u32),
    /// The region of a segment of the process with this number.
    Region(u32, Segment),
    /// A session with the service of that name, of [`DOORS`], and its kept state: the restore opens another session for
    /// the process, which continues this one.
    Session(String, Box<Kept>),
}

/// The kept state of a session: words, and the bytes of the reply that has not arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Kept {
    pub words: [u64; KEPT_WORDS],
    #[serde(deserialize_with = "at_most::<_, _, KEPT_BYTES>")]
    pub bytes: Vec<u8>,
}

/// Why a description makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Senseless(pub String);

impl core::fmt::Display for Senseless {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! senseless {
    ($($arg:tt)*) => { Err(Senseless(alloc::format!($($arg)*))) };
}

impl State {
    /// The type of the object.
    #[must_use]
    pub const fn kind(&self) -> Type {
        match self {
            State::Mutex { .. } => Type::Mutex,
            State::Cond => Type::Cond,
            State::Mapping { .. } => Type::Mapping,
            State::Region { .. } => Type::Region,
            State::Port { .. } => Type::Port,
            State::Portset => Type::Portset,
            State::Space { .. } => Type::Space,
            State::Thread { .. } => Type::Thread,
            State::Reference => Type::Reference,
        }
    }

    /// From the state of a mapping.
    #[must_use]
    pub const fn mapping(s: &MappingState) -> Self {
        State::Mapping {
            start: s.start,
            size: s.size,
            offset: s.offset,
            protection: s.protection,
        }
    }

    /// From the state of a region.
    #[must_use]
    pub const fn region(s: &RegionState) -> Self {
        State::Region {
            start: s.start,
            size: s.size,
            protection: s.protection,
        }
    }

    /// From the state of a space. Its used quota is not part of the image.
    #[must_use]
    pub const fn space(s: &SpaceState) -> Self {
        State::Space {
            flags: s.flags,
            quota: s.quota,
            clock_offset: s.clock_offset,
            max_priority: s.max_priority,
        }
    }

    /// From the state of a thread.
    #[must_use]
    pub fn thread(s: &ThreadState) -> Self {
        let mut words = [0; THREAD_WORDS];
        words[..REGISTER_WORDS].copy_from_slice(&s.registers.to_words());
        words[REGISTER_WORDS..].copy_from_slice(&[
            s.tag,
            s.priority,
            s.stop_count,
            s.interrupt,
            s.client_stage,
            s.server_stage,
            s.exception_delivered,
            s.exception,
            s.exception_address,
            s.waiting,
            s.waiting_for,
            s.reserved,
        ]);
        State::Thread {
            words: Box::new(words),
            fpu: s.fpu.to_vec(),
        }
    }
}

/// The state of a thread from its words and FPU area. Missing bytes of the area read as zero; [`Meta::check`] ensures
/// that none are missing.
#[must_use]
pub fn thread_state(words: &[u64; THREAD_WORDS], fpu: &[u8]) -> ThreadState {
    let mut registers = [0; REGISTER_WORDS];
    registers.copy_from_slice(&words[..REGISTER_WORDS]);
    let w = &words[REGISTER_WORDS..];
    let mut state = ThreadState {
        registers: Registers::from_words(&registers),
        tag: w[0],
        priority: w[1],
        stop_count: w[2],
        interrupt: w[3],
        client_stage: w[4],
        server_stage: w[5],
        exception_delivered: w[6],
        exception: w[7],
        exception_address: w[8],
        waiting: w[9],
        waiting_for: w[10],
        reserved: w[11],
        fpu: [0; FPU_BYTES],
    };
    for (to, from) in state.fpu.iter_mut().zip(fpu) {
        *to = *from;
    }
    state
}

/// What the references of an object of this type must name, in order. `Null` stands for anything.
#[must_use]
pub const fn fields(kind: Type) -> &'static [RefKind] {
    match kind {
        Type::Mutex | Type::Cond | Type::Portset => &[],
        Type::Mapping => &[RefKind::Region, RefKind::Space],
        Type::Region => &[RefKind::Space, RefKind::Port],
        Type::Port => &[RefKind::Portset],
        Type::Space => &[RefKind::Port],
        Type::Thread => &[RefKind::Space, RefKind::ServerEnd, RefKind::ClientEnd],
        Type::Reference => &[RefKind::Null],
    }
}

/// The index of the space among the references of an object of this type. An object whose space is gone can never be
/// used again.
#[must_use]
pub const fn space_field(kind: Type) -> Option<usize> {
    match kind {
        Type::Mapping => Some(1),
        Type::Region | Type::Thread => Some(0),
        _ => None,
    }
}

impl Meta {
    /// Number of the object at `place`.
    #[must_use]
    pub fn object_at(&self, place: Place) -> Option<u32> {
        self.objects
            .binary_search_by(|o| o.place.cmp(&place))
            .ok()
            .map(|i| i as u32)
    }

    /// The objects whose places are among the `bytes` from `start` on.
    #[must_use]
    pub fn objects_in(&self, start: Place, bytes: u64) -> &[Object] {
        let end = Place {
            offset: start.offset + bytes,
            ..start
        };
        let before = |place: Place| self.objects.partition_point(|object| object.place < place);
        self.objects.get(before(start)..before(end)).unwrap_or(&[])
    }

    /// Kernel memory that all objects take except those that managers make, where `cost` is that of one object of a
    /// type. A space costs its quota, too.
    pub fn kernel_memory(&self, cost: impl Fn(Type) -> u64) -> u64 {
        let created = self.objects.iter().filter(|o| !o.place.is_managers());
        let bytes = created.map(|object| {
            let given = match object.state {
                State::Space { quota, .. } => quota,
                _ => 0,
            };
            cost(object.state.kind()).saturating_add(given)
        });
        bytes.fold(0, u64::saturating_add)
    }

    /// Bytes of all pages.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.runs.iter().map(Run::bytes).sum()
    }

    /// Whether the port that handles the exceptions of thread `n` is saved, too. If not, the keeper that had received
    /// its exception does not know the restored thread, so the exception must be delivered again.
    #[must_use]
    pub fn keeper_is_saved(&self, n: usize) -> bool {
        let space = self.objects.get(n).and_then(|thread| thread.refs.first());
        let Some(Target::Object(space)) = space else {
            return false;
        };
        let keeper = self
            .objects
            .get(*space as usize)
            .and_then(|space| space.refs.first());
        matches!(keeper, Some(Target::Object(_)))
    }

    /// Reports the first violation of a rule.
    pub fn check(&self) -> Result<(), Senseless> {
        self.check_processes()?;
        if self.objects.len() > MAX_OBJECTS || self.runs.len() > MAX_RUNS {
            return senseless!("it holds too many objects or pages");
        }
        let mut last = None;
        for (n, object) in self.objects.iter().enumerate() {
            self.check_place(object.place, OBJECT_ALIGN, OBJECT_SIZE)?;
            if self.is_shared(object.place.process) {
                return senseless!("object {n} is in memory that several have");
            }
            if last.is_some_and(|last| last >= object.place) {
                return senseless!("object {n} is out of order");
            }
            last = Some(object.place);
            self.check_object(n, object)?;
        }
        for (process, saved) in (0..).zip(&self.processes) {
            if saved.shared {
                continue;
            }
            // Its manager will use these handles without a check.
            for (offset, kind) in [(CONTROL_SPACE, Type::Space), (CONTROL_THREAD, Type::Thread)] {
                let place = Place {
                    process,
                    segment: Segment::Control,
                    offset,
                };
                let found = self
                    .object_at(place)
                    .map(|n| self.objects[n as usize].state.kind());
                if found != Some(kind) {
                    return senseless!("process {process} has no {}", kind.name());
                }
            }
        }
        self.check_runs()?;
        self.check_parent()?;
        self.check_files()
    }

    fn check_files(&self) -> Result<(), Senseless> {
        if self.files.len() > MAX_FILES {
            return senseless!("it names {} files", self.files.len());
        }
        let mut last: Option<(u32, &str)> = None;
        for (n, file) in self.files.iter().enumerate() {
            let process = self.processes.get(file.process as usize);
            if process.is_none_or(|process| process.member != 0) {
                return senseless!("file {n} belongs to no process");
            }
            if !file.is_sound() {
                return senseless!("the path of file {n} is none");
            }
            let this = (file.process, file.path.as_str());
            if last.is_some_and(|last| last >= this) {
                return senseless!("file {n} is out of order");
            }
            last = Some(this);
        }
        Ok(())
    }

    /// Whether this process is memory that several share.
    #[must_use]
    pub fn is_shared(&self, process: u32) -> bool {
        let process = self.processes.get(process as usize);
        process.is_some_and(|process| process.shared)
    }

    fn check_processes(&self) -> Result<(), Senseless> {
        if self.processes.is_empty() || self.processes.len() > MAX_PROCESSES {
            return senseless!("it holds {} processes", self.processes.len());
        }
        let roots = self.processes.iter().filter(|process| process.member == 0);
        if roots.count() > MAX_ROOTS {
            return senseless!(
                "it holds more than {MAX_ROOTS} processes and those that came of them"
            );
        }
        let mut before: Option<&Process> = None;
        for (n, process) in self.processes.iter().enumerate() {
            let follows = |before: &Process| {
                process.member - 1 == before.member
                    && process.manager == before.manager
                    && process.part.is_empty()
                    && (process.shared || !before.shared)
            };
            let is_alone = process.member == 0;
            if !is_alone && !before.is_some_and(follows) || is_alone && process.shared {
                return senseless!("process {n} belongs to none before it");
            }
            before = Some(process);
            if !MANAGERS.contains(&process.manager.as_str()) {
                return senseless!("process {n} belongs to an unknown manager");
            }
            if process.name.len() > MAX_NAME {
                return senseless!("the name of process {n} is too long");
            }
            if process.part.len() > MAX_PART {
                return senseless!("the manager's part of process {n} is too long");
            }
        }
        Ok(())
    }

    fn check_place(&self, place: Place, align: u64, size: u64) -> Result<(), Senseless> {
        let end = place.offset.checked_add(size);
        let process = self.processes.get(place.process as usize);
        if process.is_none_or(|process| process.shared && place.segment == Segment::Control)
            || !place.offset.is_multiple_of(align)
            || end.is_none_or(|end| end > place.segment.size())
        {
            return senseless!(
                "something lies at {:#x}, outside of its process",
                place.offset
            );
        }
        Ok(())
    }

    fn check_object(&self, n: usize, object: &Object) -> Result<(), Senseless> {
        let kind = object.state.kind();
        let fields = fields(kind);
        if object.refs.len() != fields.len() {
            return senseless!(
                "object {n}, a {}, has {} references",
                kind.name(),
                object.refs.len()
            );
        }
        for (target, &wanted) in object.refs.iter().zip(fields) {
            let is = self.kind_of(n, target)?;
            // References with power over a manager's own objects may only be the manager's own, which it keeps in the
            // control segment, where the process cannot reach them.
            let managers = kind == Type::Reference && object.place.segment == Segment::Control;
            if !managers && matches!(target, Target::Region(_, Segment::Control)) {
                return senseless!("object {n} reaches for what belongs to its manager");
            }
            if is != RefKind::Null && wanted != RefKind::Null && is != wanted {
                return senseless!("object {n}, a {}, refers to a {is:?}", kind.name());
            }
        }
        match &object.state {
            State::Space { quota, .. } if *quota > MAX_QUOTA => {
                senseless!("space {n} asks for {quota} bytes of kernel memory")
            }
            State::Thread { words, fpu } => self.check_thread(n, words, fpu, &object.refs),
            _ => Ok(()),
        }
    }

    /// What kind of thing a reference to `target` names.
    fn kind_of(&self, n: usize, target: &Target) -> Result<RefKind, Senseless> {
        let object = |m: u32| match self.objects.get(m as usize) {
            Some(object) => Ok(object.state.kind()),
            None => senseless!("object {n} refers to object {m}, which is not there"),
        };
        let process = |p: u32, kind| match self.processes.get(p as usize) {
            Some(process) if process.shared && *target != Target::Region(p, Segment::Memory) => {
                senseless!("object {n} refers to what process {p} does not have")
            }
            Some(_) => Ok(kind),
            None => senseless!("object {n} refers to process {p}, which is not there"),
        };
        match *target {
            Target::Null => Ok(RefKind::Null),
            Target::Object(m) => Ok(RefKind::from_raw(object(m)? as u64).unwrap_or(RefKind::Null)),
            Target::ClientEnd(m) | Target::ServerEnd(m) if object(m)? != Type::Thread => {
                senseless!("object {n} refers to an end of object {m}, which is no thread")
            }
            Target::ClientEnd(_) => Ok(RefKind::ClientEnd),
            Target::ServerEnd(_) => Ok(RefKind::ServerEnd),
            Target::Outside(ref name) if OUTSIDE.contains(&name.as_str()) => Ok(RefKind::Port),
            Target::Outside(_) => senseless!("object {n} refers to an unknown service"),
            Target::Session(ref door, _) if DOORS.contains(&door.as_str()) => Ok(RefKind::Port),
            Target::Session(..) => {
                senseless!("object {n} refers to a session with an unknown service")
            }
            Target::Manager(p) => process(p, RefKind::Port),
            Target::Region(p, _) => process(p, RefKind::Region),
        }
    }

    fn check_thread(
        &self,
        n: usize,
        words: &[u64; THREAD_WORDS],
        fpu: &[u8],
        refs: &[Target],
    ) -> Result<(), Senseless> {
        if fpu.len() != FPU_BYTES {
            return senseless!("thread {n} has an FPU area of {} bytes", fpu.len());
        }
        let state = thread_state(words, fpu);
        if state.stop_count == 0 {
            return senseless!("thread {n} is not stopped");
        }
        let (Some(client), Some(server)) = (
            Stage::from_raw(state.client_stage),
            Stage::from_raw(state.server_stage),
        ) else {
            return senseless!("thread {n} is in an unknown stage");
        };
        if state.exception_delivered != 0 && !self.keeper_is_saved(n) {
            return senseless!("thread {n} waits for a keeper that does not know it");
        }
        self.check_end(n, client, &refs[1])?;
        self.check_end(n, server, &refs[2])
    }

    /// Checks that the two ends of a connection, which exists while both name each other, have matching stages.
    fn check_end(&self, n: usize, stage: Stage, peer: &Target) -> Result<(), Senseless> {
        if matches!(stage, Stage::None | Stage::Finished) && *peer != Target::Null {
            return senseless!("thread {n} has a peer and no connection");
        }
        // The peer has died, or it is a one-way message that the kernel delivers again.
        if matches!(
            stage,
            Stage::None | Stage::Finished | Stage::Call | Stage::Fault | Stage::Exception
        ) || *peer == Target::Null
        {
            return Ok(());
        }
        let n32 = n as u32;
        let (m, index, back) = match *peer {
            Target::ServerEnd(m) => (m, 2, Target::ClientEnd(n32)),
            Target::ClientEnd(m) => (m, 1, Target::ServerEnd(n32)),
            _ => return senseless!("thread {n} is connected to no thread"),
        };
        // `kind_of` has seen that `m` is a thread; it may not have been checked itself yet.
        let Some(other) = self.objects.get(m as usize) else {
            return senseless!("thread {n} is connected to no thread");
        };
        let State::Thread { words, .. } = &other.state else {
            return senseless!("thread {n} is connected to no thread");
        };
        let theirs = thread_state(words, &[]);
        let theirs = if index == 2 {
            theirs.server_stage
        } else {
            theirs.client_stage
        };
        // The other end has closed the connection, and this one has not noticed yet.
        if other.refs.get(index) != Some(&back) {
            return Ok(());
        }
        let fits = match stage {
            Stage::Sending => theirs == Stage::Receiving as u64,
            Stage::Receiving => theirs == Stage::Sending as u64,
            Stage::Over => theirs == Stage::Ack as u64,
            Stage::Ack => theirs == Stage::Over as u64,
            _ => false,
        };
        if !fits {
            return senseless!("threads {n} and {m} disagree about their connection");
        }
        Ok(())
    }

    fn check_runs(&self) -> Result<(), Senseless> {
        let mut last: Option<Place> = None;
        for run in &self.runs {
            if run.pages == 0 || run.pages > MAX_RUN {
                return senseless!("a run of {} pages", run.pages);
            }
            if let Some(end) = &mut last {
                // Nearly all runs follow another one of the same segment, and only need this check.
                let behind = run.place.offset.saturating_add(run.bytes());
                if (end.process, end.segment) == (run.place.process, run.place.segment)
                    && end.offset <= run.place.offset
                    && run.place.offset.is_multiple_of(PAGE_SIZE)
                    && behind <= end.segment.size()
                {
                    end.offset = behind;
                    continue;
                }
            }
            self.check_place(run.place, PAGE_SIZE, run.bytes())?;
            if last.is_some_and(|end| end > run.place) {
                return senseless!("the pages at {:#x} are out of order", run.place.offset);
            }
            last = Some(Place {
                offset: run.place.offset + run.bytes(),
                ..run.place
            });
        }
        Ok(())
    }

    fn check_parent(&self) -> Result<(), Senseless> {
        match &self.parent {
            None if self.same.is_empty() => return Ok(()),
            None => return senseless!("it leaves pages to a parent that it does not name"),
            Some(Parent { path, .. }) => {
                if !path.starts_with('/') || path.contains('\0') || path.len() > MAX_PATH {
                    return senseless!("the path of its parent is none");
                }
            }
        }
        let mut last: Option<Place> = None;
        let mut runs = self.runs.iter().peekable();
        for same in &self.same {
            let start = same.place();
            if same.pages == 0 || same.theirs as usize >= MAX_PROCESSES {
                return senseless!("the parent cannot have the pages at {:#x}", same.offset);
            }
            self.check_place(start, PAGE_SIZE, same.bytes())?;
            if last.is_some_and(|end| end > start) {
                return senseless!(
                    "the pages of the parent at {:#x} are out of order",
                    same.offset
                );
            }
            let end = Place {
                offset: same.offset + same.bytes(),
                ..start
            };
            last = Some(end);
            let before = |run: &&Run| {
                let behind = run.place.offset + run.bytes();
                Place {
                    offset: behind,
                    ..run.place
                } <= start
            };
            while runs.next_if(before).is_some() {}
            if runs.peek().is_some_and(|run| run.place < end) {
                return senseless!(
                    "the pages at {:#x} are its own and the parent's",
                    same.offset
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn place(process: u32, segment: Segment, offset: u64) -> Place {
        Place {
            process,
            segment,
            offset,
        }
    }

    fn thread(refs: Vec<Target>, client: Stage, server: Stage) -> (State, Vec<Target>) {
        let state = ThreadState {
            client_stage: client as u64,
            server_stage: server as u64,
            ..ThreadState::default()
        };
        (State::thread(&state), refs)
    }

    /// A client and a server in two spaces, connected, with something of every type.
    pub(crate) fn sample() -> Meta {
        use Segment::{Control, Memory};
        let process = |manager: &str| Process {
            manager: manager.into(),
            member: 0,
            shared: false,
            name: "demo".into(),
            part: vec![1, 2, 3],
        };
        let mut objects = Vec::new();
        let mut add = |p, s, offset, state, refs| {
            objects.push(Object {
                place: place(p, s, offset),
                state,
                refs,
            })
        };
        let mapping = State::Mapping {
            start: 0x1000,
            size: 0x2000,
            offset: 0x1000,
            protection: 7,
        };
        add(
            0,
            Memory,
            0x1_0000,
            State::Reference,
            vec![Target::Outside("fs".into())],
        );
        add(0, Memory, 0x1_0010, State::Mutex { locked: true }, vec![]);
        add(0, Memory, 0x1_0020, State::Cond, vec![]);
        add(0, Memory, 0x1_0030, State::Reference, vec![Target::Null]);
        add(
            0,
            Control,
            0,
            State::Space {
                flags: 0,
                quota: 1 << 16,
                clock_offset: 5,
                max_priority: 8,
            },
            vec![Target::Manager(0)],
        );
        let (state, refs) = thread(
            vec![Target::Object(4), Target::ServerEnd(12), Target::Null],
            Stage::Sending,
            Stage::None,
        );
        add(0, Control, 0x10, state, refs);
        add(
            0,
            Control,
            0x1000,
            mapping.clone(),
            vec![Target::Region(0, Memory), Target::Object(4)],
        );
        add(1, Memory, 0x2_0000, State::Portset, vec![]);
        add(
            1,
            Memory,
            0x2_0010,
            State::Port { alias: 9, flags: 1 },
            vec![Target::Object(7)],
        );
        add(
            1,
            Memory,
            0x2_0020,
            State::Region {
                start: 0x1000,
                size: 0x1000,
                protection: 3,
            },
            vec![Target::Object(11), Target::Object(8)],
        );
        add(
            1,
            Memory,
            0x2_0030,
            State::Reference,
            vec![Target::Region(1, Memory)],
        );
        add(
            1,
            Control,
            0,
            State::Space {
                flags: 1,
                quota: 0,
                clock_offset: 0,
                max_priority: 8,
            },
            vec![Target::Object(8)],
        );
        let (state, refs) = thread(
            vec![Target::Object(11), Target::Null, Target::ClientEnd(5)],
            Stage::None,
            Stage::Receiving,
        );
        add(1, Control, 0x10, state, refs);
        add(
            1,
            Control,
            0x100,
            State::Reference,
            vec![Target::Region(1, Control)],
        );
        let runs = vec![
            Run {
                place: place(0, Memory, 0x1000),
                pages: 2,
            },
            Run {
                place: place(0, Memory, 0x3000),
                pages: 1,
            },
            Run {
                place: place(1, Control, 0),
                pages: 1,
            },
        ];
        Meta {
            processes: vec![process("native"), process("linux")],
            objects,
            runs,
            parent: None,
            same: Vec::new(),
            files: vec![
                file(0, "/bin/demo"),
                file(1, "/bin/demo"),
                file(1, "/lib/c"),
            ],
        }
    }

    pub(crate) fn file(process: u32, path: &str) -> File {
        File {
            process,
            path: path.into(),
            size: 1 << 20,
            written: 5,
            sum: Some(0x1234),
        }
    }

    /// The same, with pages that are left to a parent.
    pub(crate) fn child(identity: Identity) -> Meta {
        let same = |process, offset, pages, theirs| Same {
            process,
            offset,
            pages,
            theirs,
        };
        Meta {
            parent: Some(Parent {
                path: "/disk/first".into(),
                identity,
            }),
            same: vec![
                same(0, 0x0, 1, 0),
                same(0, 0x4000, 40, 0),
                same(1, 0x1000, 2, 0),
            ],
            ..sample()
        }
    }

    const SOME: Identity = Identity {
        total: 1,
        clock: 2,
        meta_sum: 3,
        table: 4,
    };

    /// The list of runs is read with the same result as by `postcard`, whatever its bytes.
    #[test]
    fn runs_are_read_as_any_list_is() {
        let mut random = 7_u64;
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            random >> 16
        };
        for _ in 0..2_000 {
            let run = |_| {
                let [a, b, c, d] = [next(), next(), next(), next()];
                let segment = [Segment::Memory, Segment::Control][(a & 1) as usize];
                let shift = |number: u64, by: u64| (number << 16) >> (by % 64);
                Run {
                    place: place((a >> 1 & 0xff) as u32, segment, shift(b, c)),
                    pages: (shift(d, c >> 8) & 0xff) as u32,
                }
            };
            let all: Vec<Run> = (0..5).map(run).collect();
            let mut bytes = postcard::to_allocvec(&all).expect("it can be encoded");
            assert_eq!(runs(&bytes), Ok((all, &[][..])), "A1: other runs are read");
            // Other bytes, and fewer.
            for at in 0..bytes.len() {
                bytes[at] = next() as u8;
                let bytes = &bytes[..at + 1];
                let by_postcard = postcard::take_from_bytes::<List<Run, MAX_RUNS>>(bytes);
                let by_postcard = by_postcard.map(|(List(runs), rest)| (runs, rest)).ok();
                assert_eq!(
                    runs(bytes).ok(),
                    by_postcard,
                    "A1: {bytes:x?} is read otherwise"
                );
            }
        }
    }

    #[test]
    fn a_true_description_passes() {
        assert_eq!(sample().check(), Ok(()));
    }

    fn wrong(change: impl FnOnce(&mut Meta)) -> String {
        let mut meta = sample();
        change(&mut meta);
        meta.check().expect_err("it was accepted").0
    }

    #[test]
    fn every_rule_bites() {
        assert!(wrong(|m| m.processes.clear()).contains("0 processes"));
        assert!(wrong(|m| m.processes[0].manager = "root".into()).contains("unknown manager"));
        assert!(wrong(|m| m.processes[1].part = vec![0; MAX_PART + 1]).contains("too long"));
        // Members of a tree have one manager and one part, and are in order.
        let member = |member: u32, manager: &str, part: &[u8]| {
            let process = Process {
                manager: manager.into(),
                member,
                shared: false,
                name: "child".into(),
                part: part.into(),
            };
            wrong(move |m| m.processes.push(process))
        };
        for (number, manager, part) in [
            (2, "linux", &[][..]),
            (u32::MAX, "linux", &[]),
            (1, "native", &[]),
            (1, "linux", &[1]),
        ] {
            assert!(member(number, manager, part).contains("belongs to none"));
        }
        assert_eq!(member(1, "linux", &[]), "process 2 has no space");
        assert!(wrong(|m| m.processes[0].member = 1).contains("belongs to none"));
        // Shared memory is behind the other members, and has only pages.
        let shares = |m: &mut Meta, member| {
            m.processes.push(Process {
                manager: "linux".into(),
                member,
                shared: true,
                name: "shared".into(),
                part: Vec::new(),
            });
        };
        let mut meta = sample();
        shares(&mut meta, 1);
        shares(&mut meta, 2);
        meta.objects[6].refs[0] = Target::Region(2, Segment::Memory);
        let pages = |process, segment| Run {
            place: place(process, segment, 0),
            pages: 1,
        };
        meta.runs.push(pages(2, Segment::Memory));
        assert_eq!(meta.check(), Ok(()));
        let with = |change: &dyn Fn(&mut Meta)| {
            let mut meta = meta.clone();
            change(&mut meta);
            meta.check().expect_err("it was accepted").0
        };
        assert!(with(&|m| m.processes[2].member = 0).contains("belongs to none"));
        assert!(with(&|m| m.processes[3].shared = false).contains("belongs to none"));
        assert!(with(&|m| m.processes[1].shared = true).contains("belongs to none"));
        for target in [Target::Region(2, Segment::Control), Target::Manager(2)] {
            let why = with(&|m| m.objects[0].refs[0] = target.clone());
            assert!(why.contains("does not have"), "S2: {why}");
        }
        assert!(with(&|m| m.runs.push(pages(2, Segment::Control))).contains("outside"));
        let why = with(&|m| {
            let object = Object {
                place: place(2, Segment::Memory, 0),
                state: State::Cond,
                refs: vec![],
            };
            m.objects.push(object);
        });
        assert!(why.contains("that several have"), "S2: {why}");
        assert!(wrong(|m| {
            let process = m.processes[0].clone();
            m.processes.extend(vec![process; MAX_ROOTS]);
        })
        .contains("more than"));
        assert!(wrong(|m| m.objects[0].place.offset += 8).contains("outside"));
        assert!(wrong(|m| m.objects[0].place.process = 2).contains("outside"));
        assert!(wrong(|m| m.objects[13].place.offset = CONTROL_SIZE).contains("outside"));
        assert!(wrong(|m| m.objects[13].place.offset = u64::MAX - 15).contains("outside"));
        // Files are in order, belong to a process that can have files, and have a path.
        assert!(wrong(|m| m.files[1].process = 2).contains("belongs to no process"));
        for path in ["", "bin", "/a\0", &format!("/{}", "x".repeat(MAX_PATH))] {
            assert!(wrong(|m| m.files[2].path = path.into()).contains("path of file 2"));
        }
        assert!(wrong(|m| m.files.swap(1, 2)).contains("out of order"));
        assert!(wrong(|m| m.files[2].path = m.files[1].path.clone()).contains("out of order"));
        assert!(wrong(|m| {
            let name = |n| file(1, &format!("/{n:08}"));
            m.files = (0..=MAX_FILES).map(name).collect();
        })
        .contains("names 1025 files"));
        let long = wrong(|m| m.processes[1].name = "x".repeat(MAX_NAME + 1));
        assert!(
            long.contains("name of process 1"),
            "a name that is told takes memory: {long}"
        );
        let longest = name("\u{fffd}".repeat(MAX_NAME));
        assert!(
            longest.len() <= MAX_NAME && longest.len() + 3 > MAX_NAME,
            "what is saved of a long name can be restored: {}",
            longest.len()
        );
        assert!(wrong(|m| m.objects.swap(1, 2)).contains("out of order"));
        assert!(wrong(|m| m.objects[2].place = m.objects[1].place).contains("out of order"));
        assert!(wrong(|m| m.objects[1].refs.push(Target::Null)).contains("references"));
        assert!(wrong(|m| m.objects[6].refs.clear()).contains("has 0 references"));
        assert!(wrong(|m| m.objects[6].refs[0] = Target::Object(4)).contains("refers to a Space"));
        assert!(
            wrong(|m| m.objects[6].refs[1] = Target::Region(0, Segment::Memory))
                .contains("refers to a Region")
        );
        assert!(wrong(|m| m.objects[0].refs[0] = Target::Object(99)).contains("not there"));
        assert!(wrong(|m| m.objects[0].refs[0] = Target::Manager(2)).contains("not there"));
        assert!(wrong(|m| m.objects[0].refs[0] = Target::ClientEnd(1)).contains("no thread"));
        assert!(
            wrong(|m| m.objects[0].refs[0] = Target::Outside("root".into()))
                .contains("unknown service")
        );
        assert!(
            wrong(|m| m.objects[4].state = State::Mutex { locked: false }).contains("references")
        );
        assert!(wrong(|m| m.objects[4].place.offset = 0x20).contains("out of order"));
        assert!(wrong(|m| m.objects[4].place.segment = Segment::Memory).contains("out of order"));
        assert!(
            wrong(|m| m.objects[0].refs[0] = Target::Region(0, Segment::Control))
                .contains("belongs to its manager")
        );
        assert!(wrong(|m| {
            m.objects[12].place.offset = 0x20;
        })
        .contains("no thread"));
        assert!(wrong(|m| m.runs[0].pages = 3).contains("out of order"));
        assert!(wrong(|m| m.runs[0].pages = 0).contains("a run of"));
        assert!(wrong(|m| m.runs[0].pages = MAX_RUN + 1).contains("a run of"));
        assert!(wrong(|m| m.runs[2].place.offset = CONTROL_SIZE).contains("outside"));
    }

    #[test]
    fn what_is_left_to_the_parent_is_doubted() {
        assert_eq!(child(SOME).check(), Ok(()));
        let wrong = |change: fn(&mut Meta)| {
            let mut meta = child(SOME);
            change(&mut meta);
            meta.check().expect_err("it was accepted").0
        };
        assert!(wrong(|m| m.parent = None).contains("does not name"));
        for path in ["", "first", "/a\0b"] {
            let mut meta = child(SOME);
            meta.parent.as_mut().expect("it has one").path = path.into();
            assert!(meta.check().expect_err("S1: a path").0.contains("path"));
        }
        let long = |m: &mut Meta| {
            let parent = m.parent.as_mut().expect("it has one");
            parent.path.extend(core::iter::repeat_n('x', MAX_PATH));
        };
        assert!(wrong(long).contains("path"));
        assert!(wrong(|m| m.same[1].pages = 0).contains("cannot have"));
        assert!(wrong(|m| m.same[1].theirs = MAX_PROCESSES as u32).contains("cannot have"));
        assert!(wrong(|m| m.same[1].offset += 8).contains("outside"));
        assert!(wrong(|m| m.same[1].pages = u32::MAX).contains("outside"));
        assert!(wrong(|m| m.same[1].offset = u64::MAX - 0xfff).contains("outside"));
        assert!(wrong(|m| m.same[2].process = 2).contains("outside"));
        assert!(wrong(|m| m.same.swap(0, 1)).contains("out of order"));
        assert!(wrong(|m| m.same[1].offset = 0).contains("out of order"));
        // Its own pages are at 0x1000 to 0x3fff.
        for (offset, pages) in [(0x1000, 1), (0x3000, 1), (0x2000, 1), (0x0, 2), (0x3000, 9)] {
            let mut meta = child(SOME);
            meta.same[0] = Same {
                offset,
                pages,
                ..meta.same[0]
            };
            if offset > 0 {
                meta.same.remove(1);
            }
            let why = meta.check().expect_err("S1: pages that are in both");
            assert!(why.0.contains("its own and the parent's"), "{why}");
        }
    }

    #[test]
    fn what_a_space_gives_is_kernel_memory() {
        let mut meta = sample();
        let cost = |kind| if kind == Type::Space { 100 } else { 1 };
        let managers = meta.objects.iter().filter(|o| o.place.is_managers());
        assert_eq!(managers.count(), 4);
        let others = meta.objects.len() as u64 - 4;
        assert_eq!(meta.kernel_memory(cost), others);
        // In the memory of the first process, where managers have no objects.
        for (offset, quota) in [(0x1_1000, 5000), (0x1_1010, u64::MAX)] {
            let place = Place {
                process: 0,
                segment: Segment::Memory,
                offset,
            };
            let state = State::Space {
                flags: 0,
                quota,
                clock_offset: 0,
                max_priority: 8,
            };
            let refs = [Target::Null].to_vec();
            meta.objects.push(Object { place, state, refs });
            let expected = match quota {
                u64::MAX => u64::MAX,
                quota => others + 100 + quota,
            };
            let asked = meta.kernel_memory(cost);
            assert_eq!(asked, expected, "S2: what a space gets is counted");
        }
    }

    #[test]
    fn an_end_may_outlive_its_connection() {
        let mut meta = sample();
        meta.objects[5].refs = vec![Target::Null; 3];
        meta.objects[5].state = thread(vec![], Stage::None, Stage::None).0;
        meta.check().expect("the peer has not noticed yet");
    }

    #[test]
    fn threads_are_doubted() {
        let set = |field: usize, value: u64| {
            wrong(move |m| {
                if let State::Thread { words, .. } = &mut m.objects[5].state {
                    words[REGISTER_WORDS + field] = value;
                }
            })
        };
        assert!(set(2, 0).contains("not stopped"));
        assert!(set(4, 99).contains("unknown stage"));
        assert!(set(5, u64::MAX).contains("unknown stage"));
        assert!(set(4, Stage::Ack as u64).contains("disagree"));
        assert!(set(4, 0).contains("no connection"));
        assert!(set(4, Stage::Finished as u64).contains("no connection"));
        assert!(set(6, 1).contains("does not know it"));
        assert!(wrong(
            |m| if let State::Thread { fpu, .. } = &mut m.objects[5].state {
                fpu.pop();
            }
        )
        .contains("FPU"));
    }

    #[test]
    fn thread_words_keep_everything() {
        let mut state = ThreadState::default();
        let mut words = [0; REGISTER_WORDS];
        for (n, word) in words.iter_mut().enumerate() {
            *word = n as u64 + 100;
        }
        state.registers = Registers::from_words(&words);
        state.tag = 1;
        state.priority = 2;
        state.stop_count = 3;
        state.interrupt = 4;
        state.client_stage = 5;
        state.server_stage = 6;
        state.exception_delivered = 7;
        state.exception = 8;
        state.exception_address = 9;
        state.waiting = 10;
        state.waiting_for = 11;
        state.reserved = 12;
        state.fpu[511] = 13;
        let State::Thread { words, fpu } = State::thread(&state) else {
            unreachable!()
        };
        assert_eq!(thread_state(&words, &fpu), state);
    }

    #[test]
    fn only_saved_keepers_keep_their_exceptions() {
        let meta = sample();
        assert!(!meta.keeper_is_saved(5));
        assert!(meta.keeper_is_saved(12));
        assert!(!meta.keeper_is_saved(0));
    }
}
