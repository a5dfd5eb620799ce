//! Saving: freeze, copy, describe, thaw, write.
//!
//! The order makes an image consistent. First every process of the set is frozen: from then on none of their threads
//! runs, and their managers complete no request for them. Then their memory is frozen by copy-on-write, and the
//! managers' parts and the objects are read, none of which changes now. Then the processes continue, and the image is
//! written from the copies. If no copy can be made, or the processes are to stay stopped, they are stopped until the
//! image is written. The file gets its name when it is complete.

use crate::compare;
use crate::desk::Wanted;
use crate::machine::{self, Kernel};
use crate::pages::Pages;
use crate::parents::{self, Parents};
use crate::supply;
use crate::Sentence;
use abi::state::{Stage, REGISTER_WORDS};
use abi::{Code, RefKind, Type, OBJECT_SIZE};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use checkpoint_image::doing;
use checkpoint_image::files::{File, MAX_FILES};
use checkpoint_image::meta::{
    self, fields, Kept, Meta, Object, Place, Segment, State, Target, DOORS,
};
use checkpoint_image::resolve::{Compare, Known, Paced};
use proto::layout::{CHUNK, CONTROL_SPACE};
use proto::Error;
use rt::fs::{mode, Attr};
use rt::obj::{MappingAt, MutexAt, PortAt, Ref, RefAt, RegionAt, SpaceAt, ThreadAt};
use rt::process::{keep, Copy, Frozen, Process};
use rt::window::Window;
use services::checkpoint::Saved;

/// All types of objects, as `region_search` takes them.
const OBJECTS: u64 = 0x3fe;
/// How often the set is resumed for a moment because one of its threads is connected to a server outside, before the
/// request is refused.
const ATTEMPTS: u32 = 400;
/// How long that moment is at first, in nanoseconds.
const MOMENT: u64 = 20_000;
/// How often freezing a process that another save has frozen is tried, with pauses that grow to 8 ms: at least 1.6
/// seconds in all. A save with copies freezes it for some milliseconds, and one without until its image is written.
const TURNS: u32 = 400;

/// The ways to save processes.
#[derive(Clone, Default)]
pub(crate) struct How {
    /// Without the pages that are the same in the image with this path.
    pub(crate) parent: Option<String>,
    /// With the contents of the files that they read, too.
    pub(crate) files: bool,
    /// They are stopped when they are saved.
    pub(crate) stop: bool,
    /// The pages are compressed in the file.
    pub(crate) compress: bool,
    /// Their ties to other processes are cut.
    pub(crate) cut: bool,
}

impl How {
    /// The ways in which the managers are to make their parts.
    fn keep(&self) -> u32 {
        [(self.files, keep::FILES), (self.cut, keep::CUT)]
            .into_iter()
            .filter(|(wanted, _)| *wanted)
            .fold(0, |all, (_, way)| all | way)
    }
}

/// Saves the processes with these control ports together.
pub(crate) fn save(
    ports: &[Ref],
    path: &str,
    how: How,
    wanted: &Wanted,
) -> Result<Saved, Sentence> {
    let keep = how.keep();
    let How {
        parent,
        stop,
        compress,
        ..
    } = how;
    let processes = verify(ports)?;
    wanted.lower();
    look_at_place(path)?;
    wanted.raise();
    if supply::owes(&processes) {
        // Pages that are still owed cannot be read.
        wanted.lower();
        supply::wait_for(&processes, || wanted.check())?;
        wanted.raise();
    }
    let mut parents = None;
    if let Some(parent) = &parent {
        wanted.lower();
        parents = Some(parents::of_new(parent, path, wanted)?);
        wanted.raise();
    }
    let outside = machine::outside();
    let (mut attempt, mut copying, mut turns) = (0, !stop, 0);
    let held = wanted.held();
    loop {
        wanted.check()?;
        // Memory of an earlier attempt is free.
        wanted.hold_only(held)?;
        wanted.raise();
        let begin = rt::time::now();
        let set = match Set::freeze(&processes, (&outside, keep), wanted) {
            Err(Unfrozen::Taken(_)) if turns < TURNS => {
                turns += 1;
                wanted.lower();
                rt::time::sleep(MOMENT * u64::from(turns + turns % 17));
                continue;
            }
            Err(Unfrozen::Taken(what) | Unfrozen::Refused(what)) => return Err(what),
            Ok(set) => set,
        };
        // Read after the freeze, so that no program has seen a later time: freezing may take long, and programs that
        // were not frozen yet saw time pass.
        let clock = rt::time::now();
        // Copies make the search for objects faster. A further attempt makes copies only when the set can be described.
        let mut copies = Vec::new();
        if copying && attempt == 0 {
            copies = set.copies(wanted);
        }
        match set.describe(&copies, wanted) {
            Ok(mut meta) => {
                if copying && attempt > 0 {
                    copies = set.copies(wanted);
                }
                let mut pages = set.pages(copies)?;
                set.keep_control(&mut pages, &meta, wanted)?;
                // Without copies the processes are stopped until the image is written.
                let (mut still, mut held) = (0, Some(set));
                if pages.are_copies() {
                    drop(held.take());
                    still = rt::time::now() - begin;
                    wanted.lower();
                    // The processes continue now, and not only when this thread's turn is over.
                    wanted.give_way();
                }
                wanted.lower();
                let saved = write(
                    &mut meta,
                    &pages,
                    (path, compress, clock),
                    parents.as_mut(),
                    wanted,
                );
                if let Some(set) = held {
                    still = rt::time::now() - begin;
                    if stop && saved.is_ok() {
                        set.stop();
                    }
                }
                pages.release();
                match saved? {
                    Some((bytes, doing)) => {
                        return Ok(Saved {
                            bytes,
                            doing,
                            still,
                        })
                    }
                    // The running processes have taken the memory that the copies needed. The next attempt stops them
                    // instead.
                    None => copying = false,
                }
            }
            Err(Problem::Connected(_)) if attempt < ATTEMPTS => {
                attempt += 1;
                drop(set);
                release(copies);
                wanted.lower();
                // The pause varies, so as not to coincide with the program's own rhythm.
                rt::time::sleep(MOMENT + u64::from(attempt % 17) * MOMENT / 4);
            }
            Err(Problem::Connected(what)) | Err(Problem::Refused(what)) => return Err(what),
        }
    }
}

/// Writes the image. Returns its bytes, and what the threads are doing. `None` if the copies lost contents.
fn write(
    meta: &mut Meta,
    pages: &Pages,
    (path, compress, clock): (&str, bool, u64),
    parents: Option<&mut Parents>,
    wanted: &Wanted,
) -> Result<Option<(u64, Vec<String>)>, Sentence> {
    let doing = doing::all(meta, |process, address| pages.code_at(process, address));
    without_deliveries(meta);
    compare::sum_up(&mut meta.files, wanted)?;
    pages.list(meta, parents, wanted)?;
    let bytes = pages.write(meta, clock, (path, compress), wanted)?;
    Ok(bytes.map(|bytes| (bytes, doing)))
}

/// Refuses a path at which no image can be made, as far as the names show it, before any process is stopped.
fn look_at_place(path: &str) -> Result<(), Sentence> {
    let cannot = |error: Error| format!("cannot write {path}: {}", error.text());
    let is_directory = |attr: Attr| attr.mode & mode::TYPE == mode::DIRECTORY;
    match rt::fs::stat(path, false) {
        Ok(attr) if is_directory(attr) => return Err(cannot(Error::IsDirectory)),
        // An existing file is replaced.
        Ok(_) => return Ok(()),
        Err(Error::NotFound) => {}
        Err(error) => return Err(cannot(error)),
    }
    let end = path.rfind('/').filter(|end| *end > 0);
    let directory = end.map_or("/", |end| &path[..end]);
    match rt::fs::stat(directory, true).map(is_directory) {
        Ok(true) => Ok(()),
        Ok(false) => Err(cannot(Error::NotDirectory)),
        Err(error) => Err(cannot(error)),
    }
}

/// The processes behind the control ports that a client has passed, with the names of their managers.
fn verify(ports: &[Ref]) -> Result<Vec<(&'static str, Process)>, Sentence> {
    if ports.is_empty() {
        return Err("it is not said what is to be saved".to_string());
    }
    let mut processes: Vec<(&str, Process)> = Vec::new();
    for port in ports {
        let (manager, process) = machine::process(port)?;
        if processes
            .iter()
            .any(|(_, known)| known.port().same_as(process.port().at()))
        {
            return Err(format!("process {} is named twice", process.pid()));
        }
        processes.push((manager, process));
    }
    Ok(processes)
}

/// Why a set cannot be described.
enum Problem {
    /// Temporary: a thread has a connection to a server outside of the set.
    Connected(Sentence),
    /// Permanent.
    Refused(Sentence),
}

/// Why a set cannot be frozen.
enum Unfrozen {
    /// Temporary: another client has frozen one of the processes. An image would contain its stops.
    Taken(Sentence),
    /// Permanent.
    Refused(Sentence),
}

impl From<Sentence> for Unfrozen {
    fn from(sentence: Sentence) -> Self {
        Unfrozen::Refused(sentence)
    }
}

impl From<Sentence> for Problem {
    fn from(sentence: Sentence) -> Self {
        Problem::Refused(sentence)
    }
}

fn failed(what: &str, code: Code) -> Sentence {
    format!("{what}: the kernel says {code:?}")
}

/// A frozen process; thawed when this is dropped.
struct Held<'a> {
    manager: &'a str,
    /// Its number among the members of a process before it, which are frozen and thawed with that process.
    member: u32,
    process: &'a Process,
    frozen: Frozen,
    /// It is only memory that other members share.
    shared: bool,
    memory: Option<Window>,
    control: Option<Window>,
}

impl Held<'_> {
    /// The segments that it has.
    const fn segments(&self) -> &'static [Segment] {
        match self.shared {
            true => &[Segment::Memory],
            false => &[Segment::Memory, Segment::Control],
        }
    }

    fn region(&self, segment: Segment) -> &Ref {
        match segment {
            Segment::Memory => &self.frozen.memory,
            Segment::Control => &self.frozen.control,
        }
    }

    fn window(&self, segment: Segment) -> Result<&Window, Sentence> {
        let window = match segment {
            Segment::Memory => &self.memory,
            Segment::Control => &self.control,
        };
        window
            .as_ref()
            .ok_or_else(|| "a segment is not mapped".to_string())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.memory = None;
        self.control = None;
        if self.member == 0 {
            let _ = self.process.thaw();
        }
    }
}

/// The frozen processes, and the ports outside that an image may name.
struct Set<'a> {
    held: Vec<Held<'a>>,
    outside: &'a [(&'static str, Ref)],
}

/// An object of the set.
struct Found {
    place: Place,
    kind: Type,
    /// Its address here.
    handle: u64,
    to: Option<Ref>,
}

/// After so many objects waiting threads may run.
const AT_A_TIME: usize = 64;

/// Gives the memory that processes share with their copies back to them.
fn release(copies: Vec<Copy>) {
    for copy in copies {
        let _ = rt::memory::release(&copy.control);
    }
}

/// The session whose port this is, if it belongs to one of the services that an image can name. This asks the services
/// and does not call the port, which might never answer.
fn session(
    outside: &[(&'static str, Ref)],
    port: &Ref,
    wanted: &Wanted,
) -> Option<(&'static str, Kept)> {
    if port.kind() != RefKind::Port {
        return None;
    }
    DOORS.iter().find_map(|door| {
        let (name, door) = outside.iter().find(|(name, _)| name == door)?;
        // Each of them compares the port with all sessions that it has.
        wanted.breathe();
        let interface::client::Kept { words, bytes } = interface::client::keep(door, port).ok()?;
        Some((*name, Kept { words, bytes }))
    })
}

impl<'a> Set<'a> {
    fn freeze(
        processes: &'a [(&'static str, Process)],
        (outside, keep): (&'a [(&'static str, Ref)], u32),
        wanted: &Wanted,
    ) -> Result<Self, Unfrozen> {
        let mut set = Set {
            held: Vec::new(),
            outside,
        };
        for (manager, process) in processes {
            let who = || format!("process {} of {manager}", process.pid());
            let mut frozen = process.freeze(keep).map_err(|error| match error {
                Error::Limit => Unfrozen::Taken(format!(
                    "{} is being saved by somebody else, or with another one that is named, and stands still for that",
                    who()
                )),
                error => Unfrozen::Refused(match process.why() {
                    why if why.is_empty() => format!("{}: {}", who(), error.text()),
                    why => format!("{} cannot be saved: {why}", who()),
                }),
            })?;
            let members = core::mem::take(&mut frozen.members);
            let held = |member, frozen, shared| Held {
                manager,
                member,
                process,
                frozen,
                shared,
                memory: None,
                control: None,
            };
            // The part is copied and encoded.
            let part = 5 * frozen.part.len() as u64;
            set.held.push(held(0, frozen, false));
            wanted.hold(part)?;
            for (number, member) in (1..).zip(members) {
                let shared = member.control.is_none();
                let frozen = Frozen {
                    name: member.name,
                    part: Vec::new(),
                    files: Vec::new(),
                    memory: member.memory,
                    control: member.control.map_or_else(reference, Ok)?,
                    account: reference()?,
                    members: Vec::new(),
                };
                set.held.push(held(number, frozen, shared));
            }
        }
        for held in &mut set.held {
            wanted.rest();
            let map = |segment, region: &Ref| {
                machine::window(region, segment)
                    .map_err(|error| format!("cannot map the process: {}", error.text()))
            };
            held.memory = Some(map(Segment::Memory, &held.frozen.memory)?);
            if !held.shared {
                held.control = Some(map(Segment::Control, &held.frozen.control)?);
            }
        }
        Ok(set)
    }

    /// Makes frozen copies of the memory of all processes; none if not all can be made.
    fn copies(&self, wanted: &Wanted) -> Vec<Copy> {
        let mut copies = Vec::with_capacity(self.held.len());
        for held in &self.held {
            wanted.rest();
            match held.process.copy(held.member) {
                Ok(copy) => copies.push(copy),
                Err(_) => {
                    release(copies);
                    return Vec::new();
                }
            }
        }
        copies
    }

    /// The source of their pages: these copies, or if there are none the processes themselves.
    fn pages(&self, copies: Vec<Copy>) -> Result<Pages, Sentence> {
        let mut copies = copies.into_iter();
        let mut memory = Vec::with_capacity(self.held.len());
        for held in &self.held {
            let copy = copies.next();
            let region = copy.as_ref().map_or(&held.frozen.memory, |c| &c.region);
            let region = region.copy().map_err(|code| failed("a copy", code))?;
            memory.push((region, copy));
        }
        Pages::new(memory.into_iter())
    }

    /// Reads the pages of their control segments that are to be saved.
    fn keep_control(
        &self,
        pages: &mut Pages,
        meta: &Meta,
        wanted: &Wanted,
    ) -> Result<(), Sentence> {
        let all = self.held.iter().enumerate();
        for (process, held) in all.filter(|(_, held)| !held.shared) {
            wanted.rest();
            let window = held.window(Segment::Control)?;
            let control = (process as u32, &held.frozen.control, window);
            pages.keep_control(control, meta, wanted)?;
        }
        Ok(())
    }

    /// Stops the processes, so that they stay stopped when they are thawed.
    fn stop(&self) {
        for held in self.held.iter().filter(|held| held.member == 0) {
            // A process that has ended meanwhile need not be stopped.
            let _ = held.process.stop();
        }
    }

    /// Describes the processes, without their pages. Objects are searched for in chunks that may have some according to
    /// the copies.
    fn describe(&self, copies: &[Copy], wanted: &Wanted) -> Result<Meta, Problem> {
        let mut found = self.find(copies, wanted)?;
        let known = self.known(&mut found, wanted)?;
        let mut meta = Meta {
            processes: self
                .held
                .iter()
                .map(|held| meta::Process {
                    manager: held.manager.to_string(),
                    member: held.member,
                    shared: held.shared,
                    name: meta::name(held.frozen.name.clone()),
                    part: held.frozen.part.clone(),
                })
                .collect(),
            objects: Vec::with_capacity(found.len()),
            files: self.files(wanted)?,
            ..Meta::default()
        };
        let refs = [reference()?, reference()?, reference()?];
        // If references are in no order, the names of a few objects take as many comparisons as there are objects.
        let compare = Paced::new(Kernel, || wanted.breathe());
        for (
            n,
            Found {
                place,
                kind,
                handle,
                ..
            },
        ) in found.into_iter().enumerate()
        {
            if n % AT_A_TIME == 0 {
                wanted.breathe();
                wanted.check()?;
            }
            let known = (&known, &compare);
            let object = self.object(place, kind, handle, &refs, (known, wanted))?;
            meta.objects.push(object);
        }
        Ok(meta)
    }

    /// The files that they name, as their managers saw them.
    fn files(&self, wanted: &Wanted) -> Result<Vec<File>, Sentence> {
        let mut files = Vec::new();
        for (process, held) in (0u32..).zip(&self.held) {
            for named in &held.frozen.files {
                // The list is also encoded.
                wanted.hold(3 * (size_of::<File>() + named.path.len()) as u64)?;
                files.push(File {
                    process,
                    path: named.path.clone(),
                    size: named.size,
                    written: named.written,
                    sum: None,
                });
            }
        }
        files.retain(File::is_sound);
        files.truncate(MAX_FILES);
        Ok(files)
    }

    /// Every object in the segments: its place, type and handle here. Vacant identities are left out, since they have
    /// no state.
    fn find(&self, copies: &[Copy], wanted: &Wanted) -> Result<Vec<Found>, Sentence> {
        let mut found = Vec::new();
        let all = self.held.iter().enumerate();
        // Shared memory has no objects: no mapping of it has the right to make some.
        for (process, held) in all.filter(|(_, held)| !held.shared) {
            for segment in [Segment::Memory, Segment::Control] {
                let base = held.window(segment)?.address();
                let copy = match segment {
                    Segment::Memory => copies.get(process),
                    Segment::Control => None,
                };
                each_object(held.region(segment), segment.size(), copy, |offset, raw| {
                    let place = Place {
                        process: process as u32,
                        segment,
                        offset,
                    };
                    if let Some(kind) = machine::type_of(raw) {
                        wanted.hold(Meta::OBJECT_BYTES)?;
                        if found.len() % AT_A_TIME == 0 {
                            wanted.breathe();
                        }
                        let handle = base + offset;
                        let to = reference()?;
                        match reference_to(kind, handle, &to) {
                            Ok(()) => found.push(Found {
                                place,
                                kind,
                                handle,
                                to: Some(to),
                            }),
                            Err(Code::Vacant) => {}
                            Err(code) => return Err(failed("a reference to an object", code)),
                        }
                    }
                    Ok(())
                })?;
            }
        }
        Ok(found)
    }

    /// References to everything that the image can name. The first name of a thing wins.
    fn known(&self, found: &mut [Found], wanted: &Wanted) -> Result<Known<Ref>, Sentence> {
        let mut known = Known::default();
        for (n, object) in found.iter_mut().enumerate() {
            if n % AT_A_TIME == 0 {
                wanted.breathe();
            }
            let n = n as u32;
            if let Some(to) = object.to.take() {
                known.add(&Kernel, to, Target::Object(n));
            }
            if object.kind == Type::Thread {
                let (client, server) = (reference()?, reference()?);
                let thread = ThreadAt(object.handle);
                thread
                    .client_end_into(client.at())
                    .and_then(|()| thread.server_end_into(server.at()))
                    .map_err(|code| failed("a reference to an end of a thread", code))?;
                known.add(&Kernel, client, Target::ClientEnd(n));
                known.add(&Kernel, server, Target::ServerEnd(n));
            }
        }
        for (name, port) in self.outside {
            let port = port.copy().map_err(|code| failed("a copy", code))?;
            known.add(&Kernel, port, Target::Outside((*name).into()));
        }
        for (process, held) in self.held.iter().enumerate() {
            wanted.rest();
            let process = process as u32;
            for segment in held.segments() {
                let copy = held
                    .region(*segment)
                    .copy()
                    .map_err(|code| failed("a copy", code))?;
                known.add(&Kernel, copy, Target::Region(process, *segment));
            }
            if held.shared {
                continue;
            }
            let account = held
                .frozen
                .account
                .copy()
                .map_err(|code| failed("a copy", code))?;
            known.add(&Kernel, account, Target::Outside(meta::ACCOUNT.into()));
            let keeper = reference()?;
            let space = SpaceAt(held.window(Segment::Control)?.address() + CONTROL_SPACE);
            space
                .get_state(keeper.handle())
                .map_err(|code| failed("the state of the space", code))?;
            known.add(&Kernel, keeper, Target::Manager(process));
        }
        Ok(known)
    }

    /// State and references of an object.
    fn object(
        &self,
        place: Place,
        kind: Type,
        handle: u64,
        refs: &[Ref; 3],
        ((known, compare), wanted): ((&Known<Ref>, &impl Compare<Ref = Ref>), &Wanted),
    ) -> Result<Object, Problem> {
        let [a, b, c] = [refs[0].handle(), refs[1].handle(), refs[2].handle()];
        let mut stages = [Stage::None; 2];
        let state = match kind {
            Type::Mutex => MutexAt(handle).get_state().map(|s| State::Mutex {
                locked: s.locked != 0,
            }),
            Type::Cond => Ok(State::Cond),
            Type::Mapping => MappingAt(handle)
                .get_state(a, b)
                .map(|s| State::mapping(&s)),
            Type::Region => RegionAt(handle).get_state(a, b).map(|s| State::region(&s)),
            Type::Port => PortAt(handle).get_state(a).map(|s| State::Port {
                alias: s.alias,
                flags: s.flags,
            }),
            Type::Portset => Ok(State::Portset),
            Type::Space => SpaceAt(handle).get_state(a).map(|s| State::space(&s)),
            Type::Thread => ThreadAt(handle).get_state(a, b, c).map(|s| {
                stages = [s.client_stage, s.server_stage]
                    .map(|stage| Stage::from_raw(stage).unwrap_or_default());
                State::thread(&s)
            }),
            Type::Reference => refs[0].point_to(RefAt(handle)).map(|()| State::Reference),
        };
        let state = state.map_err(|code| failed("the state of an object", code))?;
        let mut targets = Vec::new();
        for (field, reference) in refs.iter().take(fields(kind).len()).enumerate() {
            targets.push(match known.name(compare, reference) {
                Ok(target) => target,
                Err(_) if kind == Type::Thread && field > 0 => match stages[field - 1] {
                    // One-way messages, which are delivered again after the restore.
                    Stage::Call | Stage::Fault | Stage::Exception => Target::Null,
                    _ => {
                        return Err(Problem::Connected(
                            self.sentence(place, "is connected to a thread"),
                        ))
                    }
                },
                Err(what) => match session(self.outside, reference, wanted) {
                    Some((name, kept)) => {
                        wanted.hold(3 * kept.bytes.len() as u64)?;
                        Target::Session(name.to_string(), Box::new(kept))
                    }
                    None => return Err(Problem::Refused(self.refers(place, kind, what))),
                },
            });
        }
        Ok(Object {
            place,
            state,
            refs: targets,
        })
    }

    fn sentence(&self, place: Place, what: &str) -> Sentence {
        let name = self
            .held
            .get(place.process as usize)
            .map_or("", |held| &held.frozen.name);
        format!(
            "{name} {what} outside of what is saved (object at {:#x})",
            place.offset
        )
    }

    fn refers(&self, place: Place, kind: Type, to: RefKind) -> Sentence {
        self.sentence(
            place,
            &format!("has a {} that refers to a {to:?}", kind.name()),
        )
    }
}

/// Resets exceptions whose keeper is not saved and so will not know the restored thread: they are delivered again.
fn without_deliveries(meta: &mut Meta) {
    for n in 0..meta.objects.len() {
        let delivered_again = !meta.keeper_is_saved(n);
        if let State::Thread { words, .. } = &mut meta.objects[n].state {
            if delivered_again {
                words[REGISTER_WORDS + 6] = 0;
            }
        }
    }
}

/// Calls `f` with offset and type of each object of a segment. Its copy, if it has one, shows which chunks may have
/// some.
fn each_object(
    region: &RefAt,
    size: u64,
    copy: Option<&Copy>,
    mut f: impl FnMut(u64, u64) -> Result<(), Sentence>,
) -> Result<(), Sentence> {
    let mut end = 0;
    while end < size {
        let mut offset = end;
        end = size;
        if let Some(copy) = copy {
            let next = rt::memory::objects_from(&copy.control, offset);
            let next = next.map_err(|error| format!("where its objects are: {}", error.text()))?;
            let Some(next) = next else {
                return Ok(());
            };
            offset = next;
            end = next.saturating_add(CHUNK);
        }
        while offset < end {
            match region.search(offset, end, OBJECTS) {
                Ok((found, kind)) => {
                    f(found, kind)?;
                    offset = found + OBJECT_SIZE;
                }
                Err(Code::NotFound) => break,
                Err(code) => return Err(failed("searching the process", code)),
            }
        }
    }
    Ok(())
}

/// Points a reference at an object.
fn reference_to(kind: Type, handle: u64, to: &Ref) -> Result<(), Code> {
    match kind {
        Type::Mutex => MutexAt(handle).reference_into(to.at()),
        Type::Cond => rt::obj::CondAt(handle).reference_into(to.at()),
        Type::Mapping => MappingAt(handle).reference_into(to.at()),
        Type::Region => RegionAt(handle).reference_into(to.at()),
        Type::Port => PortAt(handle).reference_into(to.at()),
        Type::Portset => rt::obj::PortsetAt(handle).reference_into(to.at()),
        Type::Space => SpaceAt(handle).reference_into(to.at()),
        Type::Thread => ThreadAt(handle).reference_into(to.at()),
        Type::Reference => RefAt(handle).reference_into(to.at()),
    }
}

fn reference() -> Result<Ref, Sentence> {
    Ref::new().map_err(|code| failed("a reference", code))
}
