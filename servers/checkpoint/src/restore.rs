//! Restoring: makes everything new, from the image alone.
//!
//! First the managers make empty processes for the client: segments, a space and a first thread, which the managers
//! own, with the quota and the rights of any program, and the ports that become keepers. Then the pages of the image
//! are filled in, and every other object is created in its place, without state. Then the managers get their parts; the
//! offsets of the spaces' clocks follow from the image's clock and the machine's. Then all states are set, with
//! references to the new objects, threads last. Nothing runs until all of that is done: the threads have the stop count
//! of their freeze, which thawing undoes.
//!
//! If anything fails, everything that was made is undone and the cause is reported.

use crate::compare;
use crate::desk::Wanted;
use crate::machine::{self, KernelMemory};
use crate::parents::{self, File, Parents};
use crate::supply::{self, Debt, Supplying};
use crate::Sentence;
use abi::state::{MappingState, MutexState, PortState, ReferenceState, RegionState, SpaceState};
use abi::{Code, RefKind, Type, PAGE_SIZE};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use checkpoint_image::chain::{self, Chain, Image, Read};
use checkpoint_image::charges::{Charges, Number};
use checkpoint_image::file::{Table, MAX_RUN_BYTES};
use checkpoint_image::meta::{
    self, space_field, thread_state, Meta, Object, Place, Run, Same, Segment, State, Target,
    ACCOUNT,
};
use checkpoint_image::owed::{self, Owed};
use checkpoint_image::tool::plain;
use checkpoint_image::turns::Job;
use proto::layout::{CHUNK, CONTROL_SPACE, PRIORITY_PROGRAM};
use proto::Error;
use rt::fs::Flags;
use rt::memory::Supplier;
use rt::obj::{
    CondAt, MappingAt, MutexAt, PortAt, PortsetAt, Ref, RefAt, RegionAt, SpaceAt, ThreadAt,
};
use rt::process::Process;
use rt::sync::{Lazy, Mutex};
use rt::window::Window;
use services::checkpoint::Restored;

/// The kernel memory of this program that restored processes take.
static CHARGES: Mutex<Charges> = Mutex::new(Charges::new());
/// Charges for processes that clients have taken, with the ports by which their managers know them.
static TAKEN: Mutex<Vec<(Charge, Vec<Ref>)>> = Mutex::new(Vec::new());
static KERNEL_MEMORY: Lazy<KernelMemory> = Lazy::new();

/// To be called before anything is restored.
pub(crate) fn start() -> Result<(), Code> {
    KERNEL_MEMORY.set(KernelMemory::measure()?);
    Ok(())
}

/// A charge, until this is dropped: then it has ended, and is given back when the charged objects are gone.
struct Charge(Number);

impl Drop for Charge {
    fn drop(&mut self) {
        CHARGES.lock().end(self.0);
    }
}

/// How often charging a job is tried again while objects of its ended processes may still be destroyed, and the pause
/// before that, in nanoseconds: a thread with the priority of programs takes their memory apart.
const ATTEMPTS: u32 = 50;
const A_MOMENT: u64 = 2_000_000;

impl Charge {
    /// Charges a job for the objects of an image.
    fn new(meta: &Meta, job: Job, wanted: &Wanted) -> Result<Self, Sentence> {
        let memory = KERNEL_MEMORY
            .get(|| KernelMemory::measure().map_err(rt::error_of))
            .map_err(|error| refused("kernel memory", error))?;
        let bytes = meta.kernel_memory(|kind| memory.cost(kind));
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                wanted.lower();
                rt::time::sleep(A_MOMENT);
                wanted.check()?;
            }
            // Removes charges of processes that have ended since.
            let lives = |port: &Ref| port.kind() != RefKind::Null;
            TAKEN.lock().retain(|(_, ports)| ports.iter().any(lives));
            let mut charges = CHARGES.lock();
            charges.settle(|bytes| memory.is_in(bytes));
            if let Some(number) = charges.take(job, bytes, memory.total) {
                return Ok(Charge(number));
            }
            if !charges.has_ended() {
                break;
            }
        }
        Err("what was restored for this job has as many kernel objects as it may".into())
    }
}

/// Makes processes from an image, for the process whose port at init is `owner`, and for its job. With `lazy` their
/// memory is read while they run, as far as possible.
pub(crate) fn restore(
    path: &str,
    lazy: bool,
    owner: (&RefAt, Job),
    wanted: &Wanted,
) -> Result<Making, Sentence> {
    // A lazy restore is short, since most pages are read later, and so stays raised.
    if !lazy {
        wanted.lower();
    }
    let file = rt::fs::File::open(path, Flags::default(), 0)
        .map_err(|error| format!("{path}: {}", error.text()))?;
    let file = File(file);
    let mut making = Making::default();
    // On failure `making` is dropped, which undoes everything.
    making
        .make((file, path, lazy), owner, wanted)
        .map_err(|why| format!("{path}: {why}"))?;
    Ok(making)
}

fn failed(what: &str, code: Code) -> Sentence {
    match code {
        Code::NoMemory => format!("{what}: kernel memory is out"),
        code => format!("{what}: the kernel says {code:?}"),
    }
}

fn refused(what: &str, error: Error) -> Sentence {
    format!("{what}: {}", error.text())
}

/// The error of a manager about a process that is being made, with the manager's sentence.
fn refused_by(manager: &str, process: &Process, error: Error) -> Sentence {
    match process.why() {
        why if why.is_empty() => refused(&format!("{manager} refuses it"), error),
        why => format!("{manager} refuses it: {why}"),
    }
}

/// A description of fewer bytes, which needs no more memory than this, is read at once, while less important threads
/// wait.
const QUICK: u64 = 1 << 20;

/// After so many objects waiting threads may run.
const AT_A_TIME: usize = 64;

/// The debts of the processes, and the chunks that must be present before they run.
type Debts = (Vec<Debt>, Vec<(u32, u64)>);

/// A process that is being made.
struct Made {
    manager: String,
    /// The process, or its place in the tree of a process before it.
    process: Own,
    keeper: Ref,
    /// Its memory account, if it has a reference to it.
    account: Ref,
    /// Memory and control region, and their windows.
    segments: [(Ref, Option<Window>); 2],
}

/// Most characters of a restored process's name that are returned to the client.
const MAX_SHOWN: usize = 200;

/// The name of a process as it is returned to the client. The image has chosen it, so it is made plain and cut.
fn shown(name: &str) -> String {
    plain(&name.chars().take(MAX_SHOWN).collect::<String>())
}

/// The power over a process that is being made.
enum Own {
    Process(Process),
    /// The power is that of the process with the first number, of which this is the member with the second one.
    Member(u32, u32),
}

/// What has been made so far. Dropping it undoes that, unless the client has taken the processes.
#[derive(Default)]
pub(crate) struct Making {
    made: Vec<Made>,
    names: Vec<String>,
    at_once: Sentence,
    differs: Vec<Sentence>,
    taken: bool,
    /// Dropped after the processes have ended.
    charge: Option<Charge>,
}

impl Drop for Making {
    fn drop(&mut self) {
        for made in &mut self.made {
            for (_, window) in &mut made.segments {
                *window = None;
            }
            if let (false, Own::Process(process)) = (self.taken, &made.process) {
                // Objects are destroyed with their pages.
                let _ = process.kill();
                let _ = process.reap();
            }
        }
    }
}

impl Making {
    /// Hands the processes over to the client, with their control ports in `ports`.
    pub(crate) fn taken(mut self, ports: &mut Vec<Ref>) -> Restored {
        self.taken = true;
        let known = self.made.iter().filter_map(|made| made.keeper.copy().ok());
        if let Some(charge) = self.charge.take() {
            let known = known.collect();
            TAKEN.lock().push((charge, known));
        }
        let mut processes = Vec::new();
        for (manager, process) in self.roots() {
            processes.push((manager.to_string(), process.pid()));
            // A process whose port cannot be copied is of no use to the client, but does no harm.
            ports.extend(process.port().copy());
        }
        Restored {
            processes,
            names: core::mem::take(&mut self.names),
            at_once: core::mem::take(&mut self.at_once),
            differs: core::mem::take(&mut self.differs),
        }
    }

    fn make(
        &mut self,
        (file, path, lazy): (File, &str, bool),
        (owner, job): (&RefAt, Job),
        wanted: &Wanted,
    ) -> Result<(), Sentence> {
        let room = |bytes| {
            if bytes > QUICK {
                wanted.lower();
            }
            wanted.hold(bytes).is_ok()
        };
        let all = chain::read(&file, machine::features(), room)?;
        chain::check_padding(&file, &all.header)?;
        let Read {
            header,
            mut meta,
            table,
        } = all;
        if meta.parent.is_some() {
            wanted.lower();
        }
        let mut parents = parents::of(&meta, path, wanted)?;
        self.charge = Some(Charge::new(&meta, job, wanted)?);
        if !meta.files.is_empty() {
            wanted.lower();
            // Compared before the managers get their parts, since restored processes may change files, or files are
            // made again with them.
            self.differs = compare::compare(&meta.files, wanted)?;
        }
        self.adopt(&meta, owner, wanted)?;
        let place = match lazy {
            true => self.place(job),
            false => None,
        };
        let (debts, at_first) = match place {
            Some(_) => self.owe(&meta, wanted)?,
            None => (Vec::new(), Vec::new()),
        };
        let is_lazy = |place: Place| {
            let mut all = debts.iter().map(|debt: &Debt| debt.process);
            place.segment == Segment::Memory && all.any(|process| process == place.process)
        };
        if debts.len() < meta.processes.len() {
            wanted.lower();
        }
        let left = meta.same.iter().map(Same::bytes);
        wanted.begins(meta.page_bytes() + left.sum::<u64>());
        self.fill(&file, (&table, &meta), is_lazy, wanted)?;
        if let Some(parents) = &mut parents {
            self.fill_from(parents, &meta, is_lazy, wanted)?;
        }
        let mut supplying = None;
        if let Some(place) = place.filter(|_| !debts.is_empty()) {
            let own = Image::of(file, Read::of_pages(&header, &mut meta, table));
            let chain = match parents {
                Some(parents) => parents.chain.led_by(own),
                None => Chain::new(own, &[])?,
            };
            let mut lazily = Supplying {
                path: path.to_string(),
                chain,
                debts,
                processes: self.copies()?,
                place,
            };
            self.fill_chunks(&mut lazily.chain, &at_first, wanted)?;
            lazily.debts.retain(|debt| !debt.owed.is_empty());
            supplying = Some(lazily).filter(|lazily| !lazily.debts.is_empty());
        }
        self.create(&meta, wanted)?;
        let passed = header.clock.wrapping_sub(rt::time::now());
        self.rebuild(&meta, passed)?;
        self.set_states(&meta, passed, wanted)?;
        let roots = meta.processes.iter().filter(|process| process.member == 0);
        self.names = roots.map(|process| shown(&process.name)).collect();
        for made in &mut self.made {
            // Drops the windows in this thread; another thread may drop the rest.
            for (_, window) in &mut made.segments {
                *window = None;
            }
        }
        wanted.check()?;
        wanted.raise();
        if let Some(supplying) = supplying {
            supplying.begin()?;
        }
        for (manager, process) in self.roots() {
            process
                .thaw()
                .map_err(|error| refused_by(manager, process, error))?;
        }
        Ok(())
    }

    /// Takes a place for a restore whose memory is supplied later, if there is one.
    fn place(&mut self, job: Job) -> Option<supply::Place> {
        let place = supply::Place::take(job);
        if place.is_none() {
            self.at_once = "as many images as may are being read while what was restored from them runs; this one was read at once".to_string();
        }
        place
    }

    /// Makes the memory of each process owe the chunks that the image has of it. Returns the debts, and the chunks that
    /// must be present before it runs, as process and chunk.
    fn owe(&mut self, meta: &Meta, wanted: &Wanted) -> Result<Debts, Sentence> {
        let (mut debts, mut at_first) = (Vec::new(), Vec::new());
        for process in (0u32..).zip(&meta.processes).map(|(n, _)| n) {
            wanted.pause_in_time();
            let (of, member) = self.power(process)?;
            let supplier = match of.supplier(member) {
                Ok(port) => Supplier::new(port),
                Err(Error::Unsupported) => {
                    let manager = &self.made(process)?.manager;
                    self.at_once = format!("what {manager} runs was read at once");
                    continue;
                }
                Err(error) => return Err(refused("its memory cannot be read later", error)),
            };
            let mut owed = Owed::of(meta, process);
            let with_objects = owed.without_objects(meta, process);
            at_first.extend(with_objects.into_iter().map(|number| (process, number)));
            for (n, (from, to)) in owed.stretches().enumerate() {
                if n % AT_A_TIME == AT_A_TIME - 1 {
                    wanted.pause_in_time();
                    wanted.check()?;
                }
                supplier
                    .owe(from * CHUNK, (to - from) * CHUNK)
                    .map_err(|error| refused("no memory for its pages", error))?;
            }
            debts.push(Debt {
                process,
                supplier,
                owed,
            });
        }
        Ok((debts, at_first))
    }

    /// Fills these chunks of processes' memory.
    fn fill_chunks(
        &self,
        chain: &mut Chain<File>,
        chunks: &[(u32, u64)],
        wanted: &Wanted,
    ) -> Result<(), Sentence> {
        let mut bytes = Vec::new();
        for (process, number) in chunks {
            // The image determines how many chunks there are, and how long one takes.
            wanted.pause_in_time();
            wanted.check()?;
            let (offset, _) = owed::read_chunk(chain, *process, *number, &mut bytes)?;
            let place = Place {
                process: *process,
                segment: Segment::Memory,
                offset,
            };
            self.write(place, &bytes)?;
        }
        Ok(())
    }

    /// Copies of the processes with control ports.
    fn copies(&self) -> Result<Vec<Process>, Sentence> {
        let copy = |(_, process): (&str, &Process)| {
            let port = process.port().copy();
            port.map(|port| Process::at(process.pid(), port))
        };
        let copies = self.roots().map(copy).collect::<Result<_, _>>();
        copies.map_err(|code| failed("a reference", code))
    }

    /// The processes with control ports, and their managers.
    fn roots(&self) -> impl Iterator<Item = (&str, &Process)> {
        self.made.iter().filter_map(|made| match &made.process {
            Own::Process(process) => Some((made.manager.as_str(), process)),
            Own::Member(..) => None,
        })
    }

    fn adopt(&mut self, meta: &Meta, owner: &RefAt, wanted: &Wanted) -> Result<(), Sentence> {
        let mut root = 0;
        for (n, process) in (0u32..).zip(&meta.processes) {
            wanted.pause_in_time();
            if process.member > 0 {
                self.adopt_member(process, root)?;
                continue;
            }
            root = n;
            let client = machine::manager(&process.manager)?;
            let adopted = client
                .adopt(owner)
                .map_err(|error| refused(&format!("{} refuses it", process.manager), error))?;
            // From here on dropping `self` undoes it.
            self.made.push(Made {
                manager: process.manager.clone(),
                process: Own::Process(adopted.process),
                keeper: adopted.keeper,
                account: adopted.account,
                segments: [(adopted.memory, None), (adopted.control, None)],
            });
        }
        for (made, process) in self.made.iter_mut().zip(&meta.processes) {
            for ((region, window), segment) in made
                .segments
                .iter_mut()
                .zip([Segment::Memory, Segment::Control])
                .filter(|(_, segment)| *segment == Segment::Memory || !process.shared)
            {
                let mapped = machine::window(region, segment)
                    .map_err(|error| refused("cannot map the process", error))?;
                *window = Some(mapped);
            }
        }
        Ok(())
    }

    /// Makes a member of process `root` of the image.
    fn adopt_member(&mut self, process: &meta::Process, root: u32) -> Result<(), Sentence> {
        let (of, _) = self.power(root)?;
        let adopted = of
            .adopt_member(process.shared)
            .map_err(|error| refused_by(&process.manager, of, error))?;
        if adopted.number != process.member {
            return Err(format!("{} counts otherwise", process.manager));
        }
        let none = || Ref::new().map_err(|code| failed("a reference", code));
        // The control region and keeper of a shared memory are never named.
        let (control, keeper) = match adopted.own {
            Some(own) => own,
            None => (none()?, none()?),
        };
        self.made.push(Made {
            manager: process.manager.clone(),
            process: Own::Member(root, adopted.number),
            keeper,
            account: none()?,
            segments: [(adopted.memory, None), (control, None)],
        });
        Ok(())
    }

    /// The process with the control port for this one, and the number as a member there.
    fn power(&self, process: u32) -> Result<(&Process, u32), Sentence> {
        let (root, member) = match self.made(process)?.process {
            Own::Process(ref process) => return Ok((process, 0)),
            Own::Member(root, member) => (root, member),
        };
        match &self.made(root)?.process {
            Own::Process(process) => Ok((process, member)),
            Own::Member(..) => Err("no such process".to_string()),
        }
    }

    fn made(&self, process: u32) -> Result<&Made, Sentence> {
        let made = self.made.get(process as usize);
        made.ok_or_else(|| "no such process".to_string())
    }

    fn region(&self, process: u32, segment: Segment) -> Result<&Ref, Sentence> {
        Ok(&self.made(process)?.segments[segment as usize].0)
    }

    fn window(&self, place: Place) -> Result<&Window, Sentence> {
        self.made(place.process)?.segments[place.segment as usize]
            .1
            .as_ref()
            .ok_or_else(|| "a segment is not mapped".to_string())
    }

    /// The address here at which the object is to be.
    fn handle(&self, place: Place) -> Result<u64, Sentence> {
        Ok(self.window(place)?.address() + place.offset)
    }

    /// Makes pages present, so that touching them cannot fail for lack of memory.
    fn populate(&self, place: Place, bytes: u64) -> Result<(), Sentence> {
        let (process, member) = self.power(place.process)?;
        process
            .populate(
                member,
                place.segment == Segment::Control,
                place.offset,
                bytes,
            )
            .map_err(|error| refused("no memory for its pages", error))
    }

    fn fill(
        &self,
        file: &File,
        (table, meta): (&Table, &Meta),
        is_lazy: impl Fn(Place) -> bool,
        wanted: &Wanted,
    ) -> Result<(), Sentence> {
        let (mut packed, mut pages) = (Vec::new(), Vec::new());
        let mut number = 0;
        while let Some(run) = meta.runs.get(number) {
            if is_lazy(run.place) {
                let its = (run.place.process, run.place.segment);
                let other = |run: &Run| (run.place.process, run.place.segment) <= its;
                number = meta.runs.partition_point(other);
                continue;
            }
            wanted.pause_in_time();
            wanted.check()?;
            chain::read_run(file, (table, &meta.runs), number, &mut packed, &mut pages)?;
            self.write(run.place, &pages)?;
            wanted.has_done(run.bytes());
            number += 1;
        }
        Ok(())
    }

    /// Fills the pages that are left to the parent.
    fn fill_from(
        &self,
        parents: &mut Parents,
        meta: &Meta,
        is_lazy: impl Fn(Place) -> bool,
        wanted: &Wanted,
    ) -> Result<(), Sentence> {
        let mut buffer = vec![0; MAX_RUN_BYTES];
        for same in meta.same.iter().filter(|same| !is_lazy(same.place())) {
            let (mut place, mut left) = (same.place(), same.bytes());
            while left > 0 {
                wanted.check()?;
                let length = left.min(MAX_RUN_BYTES as u64);
                let bytes = &mut buffer[..length as usize];
                for (number, page) in (0..).zip(bytes.chunks_exact_mut(PAGE_SIZE as usize)) {
                    let offset = place.offset + number * PAGE_SIZE;
                    let found = parents.chain.page(same.theirs, offset, page);
                    if !found.map_err(|why| format!("{}: {why}", plain(&parents.name.path)))? {
                        page.fill(0);
                    }
                }
                self.write(place, bytes)?;
                wanted.has_done(length);
                place.offset += length;
                left -= length;
            }
        }
        Ok(())
    }

    /// Writes pages of a process that is being made.
    fn write(&self, place: Place, bytes: &[u8]) -> Result<(), Sentence> {
        let length = bytes.len() as u64;
        self.populate(place, length)?;
        let written = self.window(place)?.write(place.offset, bytes);
        written.map_err(|error| refused("cannot write its pages", error))
    }

    /// Creates every object in its place, without state, except those that the managers have made.
    fn create(&self, meta: &Meta, wanted: &Wanted) -> Result<(), Sentence> {
        let mut page = None;
        for (n, object) in meta.objects.iter().enumerate() {
            if n % AT_A_TIME == AT_A_TIME - 1 {
                wanted.pause();
                wanted.check()?;
            }
            if object.place.is_managers() {
                continue;
            }
            let offset = object.place.offset & !(PAGE_SIZE - 1);
            let its_page = Place {
                offset,
                ..object.place
            };
            if page != Some(its_page) {
                self.populate(its_page, PAGE_SIZE)?;
                page = Some(its_page);
            }
            let handle = self.handle(object.place)?;
            let create = match object.state {
                State::Mutex { .. } => MutexAt(handle).create(),
                State::Cond => CondAt(handle).create(),
                State::Mapping { .. } => MappingAt(handle).create(),
                State::Region { .. } => RegionAt(handle).create(),
                State::Port { .. } => PortAt(handle).create(),
                State::Portset => PortsetAt(handle).create(),
                State::Space { .. } => SpaceAt(handle).create(),
                State::Thread { .. } => ThreadAt(handle).create(),
                State::Reference => RefAt(handle).create(),
            };
            create.map_err(|code| failed("cannot create an object", code))?;
        }
        Ok(())
    }

    /// Gives the managers their parts.
    fn rebuild(&self, meta: &Meta, passed: u64) -> Result<(), Sentence> {
        for (n, (process, made)) in meta.processes.iter().zip(&self.made).enumerate() {
            let Own::Process(own) = &made.process else {
                continue;
            };
            let space = meta.object_at(Place {
                process: n as u32,
                segment: Segment::Control,
                offset: CONTROL_SPACE,
            });
            let space = space.and_then(|space| meta.objects.get(space as usize));
            let offset = match space.map(|space| &space.state) {
                Some(State::Space { clock_offset, .. }) => clock_offset.wrapping_add(passed),
                _ => passed,
            };
            own.rebuild(&process.part, offset)
                .map_err(|error| refused_by(&process.manager, own, error))?;
        }
        Ok(())
    }

    fn set_states(&self, meta: &Meta, passed: u64, wanted: &Wanted) -> Result<(), Sentence> {
        let mut makers = Makers {
            making: self,
            meta,
            outside: BTreeMap::new(),
            named: Vec::new(),
        };
        let rank = |object: &Object| match object.state {
            State::Space { .. } => 0,
            State::Thread { .. } => 2,
            _ => 1,
        };
        let mut set = 0;
        for turn in 0..3 {
            for (n, object) in meta.objects.iter().enumerate() {
                if rank(object) == turn {
                    // Not by `n`: the image chooses the order in which objects are set.
                    set += 1;
                    if set % AT_A_TIME == 0 {
                        wanted.pause();
                        wanted.check()?;
                    }
                    makers
                        .set(object, passed)
                        .map_err(|why| format!("object {n}: {why}"))?;
                }
            }
        }
        Ok(())
    }
}

/// Sets the states of objects, and makes the references that they need.
struct Makers<'a> {
    making: &'a Making,
    meta: &'a Meta,
    outside: BTreeMap<&'a str, Ref>,
    /// References for the object whose state is being set.
    named: Vec<Ref>,
}

impl<'a> Makers<'a> {
    fn set(&mut self, object: &'a Object, passed: u64) -> Result<(), Sentence> {
        let kind = object.state.kind();
        // The space of a process belongs to its manager: the image cannot choose flags, quota and keeper.
        if kind == Type::Space && object.place.is_managers() {
            return Ok(());
        }
        // Without its space the object can never be used again, and 0 would name this program's space.
        if space_field(kind).is_some_and(|field| object.refs[field] == Target::Null) {
            return Ok(());
        }
        for (n, target) in object.refs.iter().enumerate() {
            if n == self.named.len() {
                let named = Ref::new().map_err(|code| failed("a reference", code))?;
                self.named.push(named);
            }
            self.name(n, target, object.place.process)?;
        }
        let refs = &self.named;
        let r = |n: usize| match object.refs[n] {
            Target::Null => 0,
            _ => refs[n].handle(),
        };
        let handle = self.making.handle(object.place)?;
        let set = match object.state {
            State::Mutex { locked } => MutexAt(handle).set_state(&MutexState {
                locked: u64::from(locked),
            }),
            State::Cond => CondAt(handle).set_state(),
            State::Portset => PortsetAt(handle).set_state(),
            State::Mapping {
                start,
                size,
                offset,
                protection,
            } => MappingAt(handle).set_state(
                &MappingState {
                    start,
                    size,
                    offset,
                    protection,
                },
                r(0),
                r(1),
            ),
            State::Region {
                start,
                size,
                protection,
            } => RegionAt(handle).set_state(
                &RegionState {
                    start,
                    size,
                    protection,
                },
                r(0),
                r(1),
            ),
            State::Port { alias, flags } => {
                PortAt(handle).set_state(&PortState { alias, flags }, r(0))
            }
            State::Space {
                flags,
                quota,
                clock_offset,
                max_priority,
            } => {
                let clock_offset = clock_offset.wrapping_add(passed);
                let state = SpaceState {
                    flags,
                    quota,
                    used: 0,
                    clock_offset,
                    max_priority: max_priority.min(PRIORITY_PROGRAM),
                };
                SpaceAt(handle).set_state(&state, r(0))
            }
            State::Thread { ref words, ref fpu } => {
                // An image asks for priorities; it gets what a program can have.
                let mut state = thread_state(words, fpu);
                state.priority = state.priority.min(PRIORITY_PROGRAM);
                ThreadAt(handle).set_state(&state, r(0), r(1), r(2))
            }
            State::Reference => {
                let kind = match object.refs[0] {
                    Target::Null => abi::RefKind::Null,
                    _ => refs[0].kind(),
                };
                let state = ReferenceState { kind: kind as u64 };
                rt::obj::done(rt::sys::reference_set_state(handle, &state, r(0)))
            }
        };
        set.map_err(|code| failed(&format!("the state of a {}", kind.name()), code))
    }

    /// Does something with an object's handle.
    fn with(
        &self,
        object: u32,
        f: impl FnOnce(u64, &State) -> Result<(), Code>,
    ) -> Result<Result<(), Code>, Sentence> {
        let object = self.meta.objects.get(object as usize);
        let object = object.ok_or("no such object")?;
        let handle = self.making.handle(object.place)?;
        Ok(f(handle, &object.state))
    }

    /// A port that every program can look up.
    fn outside(&mut self, name: &'a str) -> Result<RefAt, Sentence> {
        if !self.outside.contains_key(name) {
            let port = machine::port(name).map_err(|error| refused(name, error))?;
            self.outside.insert(name, port);
        }
        Ok(self.outside[name].at())
    }

    /// Points the reference with this number at the thing that `target` names for this process, if any.
    fn name(&mut self, number: usize, target: &'a Target, process: u32) -> Result<(), Sentence> {
        let to = self.named[number].at();
        let pointed = match target {
            Target::Null => return Ok(()),
            Target::Object(n) => self.with(*n, |handle, state| match state {
                State::Mutex { .. } => MutexAt(handle).reference_into(to),
                State::Cond => CondAt(handle).reference_into(to),
                State::Mapping { .. } => MappingAt(handle).reference_into(to),
                State::Region { .. } => RegionAt(handle).reference_into(to),
                State::Port { .. } => PortAt(handle).reference_into(to),
                State::Portset => PortsetAt(handle).reference_into(to),
                State::Space { .. } => SpaceAt(handle).reference_into(to),
                State::Thread { .. } => ThreadAt(handle).reference_into(to),
                State::Reference => RefAt(handle).reference_into(to),
            })?,
            Target::ClientEnd(n) => {
                self.with(*n, |handle, _| ThreadAt(handle).client_end_into(to))?
            }
            Target::ServerEnd(n) => {
                self.with(*n, |handle, _| ThreadAt(handle).server_end_into(to))?
            }
            Target::Outside(name) if name == ACCOUNT => {
                to.point_to(self.making.made(process)?.account.at())
            }
            Target::Outside(name) => to.point_to(self.outside(name)?),
            Target::Session(name, kept) => {
                let door = self.outside(name)?;
                let own = self.making.made(process)?.keeper.at();
                let kept = interface::client::Kept {
                    words: kept.words,
                    bytes: kept.bytes.clone(),
                };
                let session = interface::client::open_kept(&door, &kept, own)
                    .map_err(|error| refused(&format!("a session with {name}"), error))?;
                to.point_to(*session)
            }
            Target::Manager(process) => to.point_to(self.making.made(*process)?.keeper.at()),
            Target::Region(process, segment) => {
                to.point_to(self.making.region(*process, *segment)?.at())
            }
        };
        pointed.map_err(|code| failed("a reference", code))
    }
}
