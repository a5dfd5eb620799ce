//! Saving: freeze, describe, write, thaw.
//!
//! The order is what makes an image consistent. First every process of the set is frozen: from
//! then on none of their threads runs, and their managers complete nothing for them. Only then are
//! the managers' parts, the objects and the pages read, all of which now stand still. The file gets
//! its name when it is complete.

use crate::desk::Wanted;
use crate::machine::{self, Kernel};
use crate::Sentence;
use abi::state::{space_flags, Stage, REGISTER_WORDS};
use abi::{Code, RefKind, Type, OBJECT_SIZE, PAGE_SIZE};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use checkpoint_image::doing::doing;
use checkpoint_image::meta::{
    fields, thread_state, Kept, Meta, Object, Place, Run, Segment, State, Target, DOORS, MAX_RUN,
};
use checkpoint_image::resolve::Known;
use checkpoint_image::{file, meta};
use proto::layout::{CONTROL_SPACE, MEMORY_SIZE};
use proto::Error;
use rt::fs::Flags;
use rt::obj::{MappingAt, MutexAt, PortAt, Ref, RefAt, RegionAt, SpaceAt, ThreadAt};
use rt::process::{Frozen, Process};
use rt::window::Window;
use services::checkpoint::Saved;

/// All types of objects, as `region_search` takes them.
const OBJECTS: u64 = 0x3fe;
/// How often the set is let go on for a moment because one of its threads is connected to a server
/// outside, before it is refused.
const ATTEMPTS: u32 = 400;
/// How long that moment is at first, in nanoseconds.
const MOMENT: u64 = 20_000;

/// Saves processes together, whose control ports these are; with the files that they read, too, if `files`.
pub(crate) fn save(
    ports: &[Ref],
    (path, files): (&str, bool),
    wanted: &Wanted,
) -> Result<Saved, Sentence> {
    let processes = verify(ports)?;
    let mut attempt = 0;
    loop {
        wanted.check()?;
        wanted.raise();
        let set = Set::freeze(&processes, files, wanted)?;
        wanted.lower();
        match set.describe(wanted) {
            Ok(described) => {
                let saved = set.write(&described, path, wanted);
                set.go_on(wanted);
                return saved;
            }
            Err(Problem::Connected(_)) if attempt < ATTEMPTS => {
                attempt += 1;
                drop(set);
                // Not always the same moment, so as not to meet the program's own rhythm.
                rt::time::sleep(MOMENT + u64::from(attempt % 17) * MOMENT / 4);
            }
            Err(Problem::Connected(what)) | Err(Problem::Refused(what)) => return Err(what),
        }
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
    /// For now: a thread has a connection that leads outside.
    Connected(Sentence),
    /// For good.
    Refused(Sentence),
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
    /// Its number among those that are frozen together with one before it, and are thawed with that.
    member: u32,
    process: &'a Process,
    frozen: Frozen,
    memory: Option<Window>,
    control: Option<Window>,
}

impl Held<'_> {
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

/// The frozen processes.
struct Set<'a>(Vec<Held<'a>>);

/// The session whose port this is, if it belongs to one of the services that an image can name. The services
/// are asked, not the port: of that nobody knows whether it ever answers.
fn session(port: &Ref) -> Option<(&'static str, Kept)> {
    if port.kind() != RefKind::Port {
        return None;
    }
    DOORS.iter().find_map(|name| {
        let door = machine::port(name).ok()?;
        let interface::client::Kept { words, bytes } = interface::client::keep(&door, port).ok()?;
        Some((*name, Kept { words, bytes }))
    })
}

/// What is known about them.
struct Described {
    meta: Meta,
    doing: Vec<String>,
    /// The machine's clock while they stand still.
    clock: u64,
}

impl<'a> Set<'a> {
    fn freeze(
        processes: &'a [(&'static str, Process)],
        files: bool,
        wanted: &Wanted,
    ) -> Result<Self, Sentence> {
        let mut set = Set(Vec::new());
        for (manager, process) in processes {
            let mut frozen = process.freeze(files).map_err(|error| {
                format!("process {} of {manager}: {}", process.pid(), error.text())
            })?;
            let members = core::mem::take(&mut frozen.members);
            let held = |member, frozen| Held {
                manager,
                member,
                process,
                frozen,
                memory: None,
                control: None,
            };
            // It is copied, and encoded.
            let part = 5 * frozen.part.len() as u64;
            set.0.push(held(0, frozen));
            wanted.hold(part)?;
            for (number, member) in (1..).zip(members) {
                let frozen = Frozen {
                    name: member.name,
                    part: Vec::new(),
                    memory: member.memory,
                    control: member.control,
                    account: reference()?,
                    members: Vec::new(),
                };
                set.0.push(held(number, frozen));
            }
        }
        for held in &mut set.0 {
            let map = |segment, region: &Ref| {
                machine::window(region, segment)
                    .map_err(|error| format!("cannot map the process: {}", error.text()))
            };
            held.memory = Some(map(Segment::Memory, &held.frozen.memory)?);
            held.control = Some(map(Segment::Control, &held.frozen.control)?);
        }
        Ok(set)
    }

    /// Lets the processes go on.
    fn go_on(mut self, wanted: &Wanted) {
        for held in &mut self.0 {
            held.memory = None;
            held.control = None;
        }
        wanted.raise();
    }

    fn describe(&self, wanted: &Wanted) -> Result<Described, Problem> {
        let clock = rt::time::now();
        let found = self.find(wanted)?;
        let known = self.known(&found)?;
        let mut meta = Meta {
            processes: self
                .0
                .iter()
                .map(|held| meta::Process {
                    manager: held.manager.to_string(),
                    member: held.member,
                    name: held.frozen.name.clone(),
                    part: held.frozen.part.clone(),
                })
                .collect(),
            objects: Vec::with_capacity(found.len()),
            runs: Vec::new(),
        };
        let refs = [reference()?, reference()?, reference()?];
        for (place, kind, handle) in found {
            let object = self.object(place, kind, handle, &refs, (&known, wanted))?;
            meta.objects.push(object);
        }
        let doing = self.doing(&meta);
        for n in 0..meta.objects.len() {
            let delivered_again = !meta.keeper_is_saved(n);
            if let State::Thread { words, .. } = &mut meta.objects[n].state {
                // Its keeper will not know the restored thread: the exception begins again.
                if delivered_again {
                    words[REGISTER_WORDS + 6] = 0;
                }
            }
        }
        meta.runs = self.runs(&meta, wanted)?;
        Ok(Described { meta, doing, clock })
    }

    /// Every object in the segments: its place, type and handle here. A vacant identity is none: it has
    /// nothing to save.
    fn find(&self, wanted: &Wanted) -> Result<Vec<(Place, Type, u64)>, Sentence> {
        let mut found = Vec::new();
        let scratch = reference()?;
        for (process, held) in self.0.iter().enumerate() {
            for segment in [Segment::Memory, Segment::Control] {
                let base = held.window(segment)?.address();
                each_object(held.region(segment), segment.size(), |offset, raw| {
                    let place = Place {
                        process: process as u32,
                        segment,
                        offset,
                    };
                    if let Some(kind) = machine::type_of(raw) {
                        wanted.hold(Meta::OBJECT_BYTES)?;
                        let handle = base + offset;
                        let named =
                            machine::with_object(held.region(segment), offset, kind, || {
                                reference_to(kind, handle, &scratch)
                            });
                        if named != Err(Code::Vacant) {
                            found.push((place, kind, handle));
                        }
                    }
                    Ok(())
                })?;
            }
        }
        Ok(found)
    }

    /// A reference to everything that the image can name. What comes first wins.
    fn known(&self, found: &[(Place, Type, u64)]) -> Result<Known<Ref>, Sentence> {
        let mut known = Known::default();
        for (n, (place, kind, handle)) in found.iter().enumerate() {
            let n = n as u32;
            let to = reference()?;
            self.with(*place, *kind, || reference_to(*kind, *handle, &to))
                .map_err(|code| failed("a reference to an object", code))?;
            known.add(&Kernel, to, Target::Object(n));
            if *kind == Type::Thread {
                let (client, server) = (reference()?, reference()?);
                let thread = ThreadAt(*handle);
                let ends = || {
                    thread.client_end_into(client.at())?;
                    thread.server_end_into(server.at())
                };
                self.with(*place, *kind, ends)
                    .map_err(|code| failed("a reference to an end of a thread", code))?;
                known.add(&Kernel, client, Target::ClientEnd(n));
                known.add(&Kernel, server, Target::ServerEnd(n));
            }
        }
        for (name, port) in machine::outside() {
            known.add(&Kernel, port, Target::Outside(name.into()));
        }
        for (process, held) in self.0.iter().enumerate() {
            let process = process as u32;
            for segment in [Segment::Memory, Segment::Control] {
                let copy = held
                    .region(segment)
                    .copy()
                    .map_err(|code| failed("a copy", code))?;
                known.add(&Kernel, copy, Target::Region(process, segment));
            }
            let account = held
                .frozen
                .account
                .copy()
                .map_err(|code| failed("a copy", code))?;
            known.add(&Kernel, account, Target::Outside(meta::ACCOUNT.into()));
            let keeper = reference()?;
            let space = SpaceAt(held.window(Segment::Control)?.address() + CONTROL_SPACE);
            let place = Place {
                process,
                segment: Segment::Control,
                offset: CONTROL_SPACE,
            };
            self.with(place, Type::Space, || space.get_state(keeper.handle()))
                .map_err(|code| failed("the state of the space", code))?;
            known.add(&Kernel, keeper, Target::Manager(process));
        }
        Ok(known)
    }

    /// Does something with an object, while it is there.
    fn with<R>(
        &self,
        place: Place,
        kind: Type,
        f: impl FnOnce() -> Result<R, Code>,
    ) -> Result<R, Code> {
        let held = self.0.get(place.process as usize).ok_or(Code::Dead)?;
        machine::with_object(held.region(place.segment), place.offset, kind, f)
    }

    /// State and references of an object.
    fn object(
        &self,
        place: Place,
        kind: Type,
        handle: u64,
        refs: &[Ref; 3],
        (known, wanted): (&Known<Ref>, &Wanted),
    ) -> Result<Object, Problem> {
        let [a, b, c] = [refs[0].handle(), refs[1].handle(), refs[2].handle()];
        let mut stages = [Stage::None; 2];
        let state = || match kind {
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
        let state = self
            .with(place, kind, state)
            .map_err(|code| failed("the state of an object", code))?;
        let mut targets = Vec::new();
        for (field, reference) in refs.iter().take(fields(kind).len()).enumerate() {
            targets.push(match known.name(&Kernel, reference) {
                Ok(target) => target,
                Err(_) if kind == Type::Thread && field > 0 => match stages[field - 1] {
                    // One-way things that are delivered again to whoever still wants them.
                    Stage::Call | Stage::Fault | Stage::Exception => Target::Null,
                    _ => {
                        return Err(Problem::Connected(
                            self.sentence(place, "is connected to a thread"),
                        ))
                    }
                },
                Err(what) => match session(reference) {
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
            .0
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

    /// What each thread is doing, in words.
    fn doing(&self, meta: &Meta) -> Vec<String> {
        let mut words = Vec::new();
        for object in &meta.objects {
            let State::Thread { words: thread, fpu } = &object.state else {
                continue;
            };
            let state = thread_state(thread, fpu);
            // The space tells whether calls are redirected, and whose memory `rip` is in.
            let (mut foreign, mut process) = (false, object.place.process);
            if let Some(Target::Object(space)) = object.refs.first() {
                if let Some(Object {
                    state: State::Space { flags, .. },
                    place,
                    ..
                }) = meta.objects.get(*space as usize)
                {
                    foreign = flags & space_flags::FOREIGN != 0;
                    process = place.process;
                }
            }
            let code = self.code_at(process, state.registers.rip);
            words.push(doing(&state, foreign, &code));
        }
        words
    }

    /// The two bytes at an address of a process, as far as they are present.
    fn code_at(&self, process: u32, address: u64) -> Vec<u8> {
        let Some(held) = self.0.get(process as usize) else {
            return Vec::new();
        };
        let mut bytes = vec![
            0;
            if address % PAGE_SIZE == PAGE_SIZE - 1 {
                1
            } else {
                2
            }
        ];
        let length = bytes.len() as u64;
        let read = match &held.memory {
            Some(window) if address < MEMORY_SIZE - PAGE_SIZE => {
                machine::with_pages(&held.frozen.memory, address, length, || {
                    window.read(address, &mut bytes)
                })
            }
            _ => return Vec::new(),
        };
        read.map_or(Vec::new(), |()| bytes)
    }

    /// The pages that hold anything but zeros and objects.
    fn runs(&self, meta: &Meta, wanted: &Wanted) -> Result<Vec<Run>, Sentence> {
        let mut runs: Vec<Run> = Vec::new();
        let mut page = vec![0; PAGE_SIZE as usize];
        for (process, held) in self.0.iter().enumerate() {
            for segment in [Segment::Memory, Segment::Control] {
                let mut offset = 0;
                while let Some((next, filled)) = filled(held, segment, offset)? {
                    wanted.check()?;
                    wanted.hold(Meta::PAGE_BYTES * filled.len() as u64)?;
                    for offset in filled {
                        let place = Place {
                            process: process as u32,
                            segment,
                            offset,
                        };
                        if !meta.objects_in(place, PAGE_SIZE).is_empty() {
                            self.read(meta, Run { place, pages: 1 }, &mut page)?;
                            if page.iter().all(|byte| *byte == 0) {
                                continue;
                            }
                        }
                        match runs.last_mut() {
                            Some(run)
                                if run.pages < MAX_RUN
                                    && Place {
                                        offset: run.place.offset + run.bytes(),
                                        ..run.place
                                    } == place =>
                            {
                                run.pages += 1;
                            }
                            _ => runs.push(Run { place, pages: 1 }),
                        }
                    }
                    offset = next;
                }
            }
        }
        Ok(runs)
    }

    /// Reads the pages of a run. The bytes of objects are the kernel's and read as zero.
    fn read(&self, meta: &Meta, run: Run, into: &mut [u8]) -> Result<(), Sentence> {
        let held = self
            .0
            .get(run.place.process as usize)
            .ok_or("no such process")?;
        let window = held.window(run.place.segment)?;
        let region = held.region(run.place.segment);
        machine::with_pages(region, run.place.offset, run.bytes(), || {
            window.read(run.place.offset, into)
        })
        .map_err(|error| format!("reading its pages: {}", error.text()))?;
        for object in meta.objects_in(run.place, run.bytes()) {
            let at = (object.place.offset - run.place.offset) as usize;
            into[at..at + OBJECT_SIZE as usize].fill(0);
        }
        Ok(())
    }

    fn write(&self, described: &Described, path: &str, wanted: &Wanted) -> Result<Saved, Sentence> {
        let meta = &described.meta;
        let head = file::encode(meta, machine::features(), described.clock)
            .map_err(|bad| bad.to_string())?;
        let temporary = format!("{path}.tmp");
        let cannot = |error: Error| format!("cannot write {path}: {}", error.text());
        let written = (|| {
            let flags = Flags {
                create: true,
                truncate: true,
                ..Flags::default()
            };
            let mut out = Out {
                file: rt::fs::File::open(&temporary, flags, 0o644).map_err(cannot)?,
                offset: 0,
            };
            out.put(&head).map_err(cannot)?;
            let sums_bytes = file::SUM_BYTES * meta.runs.len() as u64;
            wanted.hold(sums_bytes)?;
            let mut sums = Vec::with_capacity(sums_bytes as usize);
            let mut buffer = vec![0; file::MAX_RUN_BYTES];
            for run in &meta.runs {
                wanted.check()?;
                let pages = &mut buffer[..run.bytes() as usize];
                self.read(meta, *run, pages)?;
                sums.extend(file::checksum(pages).to_le_bytes());
                out.put(pages).map_err(cannot)?;
            }
            out.put(&sums).map_err(cannot)?;
            let bytes = out.offset;
            drop(out);
            rt::fs::rename(&temporary, path).map_err(cannot)?;
            Ok(Saved {
                bytes,
                doing: described.doing.clone(),
            })
        })();
        if written.is_err() {
            let _ = rt::fs::unlink(&temporary);
        }
        written
    }
}

/// Looks at the next few pages of a segment from `offset` on: where to go on, and those that hold anything but zeros. `None` behind the
/// last one.
fn filled(
    held: &Held<'_>,
    segment: Segment,
    offset: u64,
) -> Result<Option<(u64, Vec<u64>)>, Sentence> {
    let (region, window) = (held.region(segment), held.window(segment)?);
    let mut filled = Vec::with_capacity(MAX_RUN as usize);
    let mut next = offset;
    machine::while_nobody_runs(|| {
        for _ in 0..MAX_RUN {
            match region.search(next, segment.size(), 1) {
                Ok((page, _)) => {
                    next = page + PAGE_SIZE;
                    let is_zero = window.is_zero(page, PAGE_SIZE);
                    if !is_zero.map_err(|error| error.text().to_string())? {
                        filled.push(page);
                    }
                }
                Err(Code::NotFound) => break,
                Err(code) => return Err(failed("searching the process", code)),
            }
        }
        Ok(())
    })?;
    Ok((next > offset).then_some((next, filled)))
}

/// Calls `f` with offset and type of each object that `region_search` finds.
fn each_object(
    region: &RefAt,
    size: u64,
    mut f: impl FnMut(u64, u64) -> Result<(), Sentence>,
) -> Result<(), Sentence> {
    let mut offset = 0;
    while offset < size {
        match region.search(offset, size, OBJECTS) {
            Ok((found, kind)) => {
                f(found, kind)?;
                offset = found + OBJECT_SIZE;
            }
            Err(Code::NotFound) => break,
            Err(code) => return Err(failed("searching the process", code)),
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

/// Writes from front to back.
struct Out {
    file: rt::fs::File,
    offset: u64,
}

impl Out {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(self.offset, bytes)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}
