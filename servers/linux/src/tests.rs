//! Tests of what needs no real program: areas, parts of images, executables and single calls, with a host that can fail
//! at any point.

extern crate std;

use std::boxed::Box;
use std::cell::RefMut;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use crate::files::{Reply, Request};
use abi::Registers;
use fastrand::Rng;
use fermata_fs::session::{Session, Shared};
use fermata_fs::tree::FileSystem;
use linux_raw_sys::general as linux;
use services::console::Mode;
use services::fs::{Files, Flags, ON_DISK};
use services::process::Status;

use crate::emulate::{self, Outcome};
use crate::errno::*;
use crate::host::{Host, MemoryUsage, OutOfMemory, Start};
use crate::late::{Late, Told};
use crate::memory::{Area, Areas, Kind, OfFile, Prot, EXECUTE, MMAP_TOP, PAGE, READ, WRITE};
use crate::number as nr;
use crate::process::{
    open_flags, Current, Description, Files as Descriptors, Kind as FileKind, Memory, Task,
    PIPE_BUF, PIPE_CAPACITY,
};
use crate::signal::{bit, sig, Origin};
use crate::system::{Key, System, Thing, To, Which};
use crate::templates::{Loaded, Templates};
use crate::{exec, part};

#[path = "../tests/files.rs"]
mod files;
mod inotify;
mod interfaces;
mod limits;
mod mapped;
mod maps;
mod ordinary;
mod outside;
mod parts;
mod shares;
mod signals;
mod sockets;
mod sysv;
mod traces;
mod trees;

/// The instruction `int3`.
const INT3: u8 = 0xcc;

/// A host with memory in a map, and mappings that are only recorded.
struct Fake {
    pages: BTreeMap<u64, Vec<u8>>,
    /// The memory into which the next program is loaded.
    staged: Option<BTreeMap<u64, Vec<u8>>>,
    templates: Templates<BTreeMap<u64, Vec<u8>>>,
    slots: BTreeMap<u32, (u64, u64, Prot)>,
    /// Bytes of memory objects by their place.
    objects: BTreeMap<u64, BTreeMap<u64, u8>>,
    /// The memory objects of an image that is being restored.
    adopted: Vec<BTreeMap<u64, u8>>,
    files: Rc<Shared>,
    session: Session,
    /// How much oftener the emulation has opened files than closed them.
    opens: i64,
    now: u64,
    /// How many mappings can still be made or grown.
    mappings_left: u32,
    /// Bytes of memory that the server may still take.
    room: u64,
    /// Bytes of memory that the process may still take.
    free: u64,
    /// Whether the account of the memory objects is full.
    objects_are_full: bool,
    /// Whether the file system has no memory for what is written.
    cannot_write: bool,
    log: Vec<String>,
    /// Tasks that were started.
    born: Vec<Start>,
    /// How many more tasks can be started.
    children_left: u32,
    /// Whether there is a network.
    network: bool,
    /// What the call waits for, if file servers answer late.
    late: Option<Late>,
    /// Files to be closed when the call is complete.
    closes: Vec<Request>,
    /// The task whose call is being made, and how many calls have been made.
    caller: Option<u32>,
    calls: u32,
    /// Whether making data durable fails.
    cannot_sync: bool,
    /// Whether there is a disk at `/disk`, and how often it was made durable.
    disk: bool,
    syncs: u32,
    /// The modes that the console was set to, in order.
    modes: Vec<Mode>,
    /// Address of a debugger's breakpoint, and the byte that belongs there.
    breakpoint: Option<(u64, u8)>,
}

impl Fake {
    fn new() -> Self {
        let mut files = FileSystem::new(1 << 24);
        files.budget().set_left(1 << 24);
        files.make_devices().unwrap();
        let files = Shared::new(files, |_| ());
        Fake {
            // A session of a server.
            session: Session::new(&files, 0, 100),
            opens: 0,
            pages: BTreeMap::new(),
            staged: None,
            templates: Templates::default(),
            slots: BTreeMap::new(),
            objects: BTreeMap::new(),
            adopted: Vec::new(),
            files,
            now: 1_000,
            mappings_left: u32::MAX,
            room: u64::MAX,
            free: 1 << 29,
            objects_are_full: false,
            cannot_write: false,
            log: Vec::new(),
            born: Vec::new(),
            children_left: u32::MAX,
            network: false,
            late: None,
            closes: Vec::new(),
            caller: None,
            calls: 0,
            cannot_sync: false,
            disk: false,
            syncs: 0,
            modes: Vec::new(),
            breakpoint: None,
        }
    }

    fn page(&mut self, address: u64) -> &mut Vec<u8> {
        self.pages
            .entry(address / PAGE)
            .or_insert_with(|| vec![0; PAGE as usize])
    }

    fn put(&mut self, slot: u32, start: u64, size: u64, prot: Prot) {
        assert!(size > 0 && (start | size).is_multiple_of(PAGE) && prot != 0);
        for (other, (from, length, _)) in &self.slots {
            let apart = start >= from + length || *from >= start + size;
            assert!(*other != slot && apart, "mappings collide");
        }
        self.slots.insert(slot, (start, size, prot));
    }

    /// Asserts that the mappings are exactly those of the areas.
    fn agrees_with(&self, areas: &Areas) {
        let expected: BTreeMap<_, _> = areas
            .list()
            .iter()
            .filter(|a| a.prot != 0)
            .map(|a| (a.slot, (a.start, a.end - a.start, a.prot)))
            .collect();
        assert_eq!(expected, self.slots);
        assert!(areas.is_sound());
    }
}

/// Asks for something below `/disk`, which has inode numbers of its own, 100 MB and 1,000 files.
fn ask_disk(
    session: &Session,
    request: &Request,
    bulk: &[u8],
) -> Result<(Reply, Vec<u8>), proto::Error> {
    let mut request = request.clone();
    match &mut request {
        // Such paths are kept below `/tmp` of the file system in memory.
        Request::Open { path, .. } | Request::Stat { path, .. } => path.insert_str(0, "/tmp"),
        Request::Close { ino }
        | Request::StatIno { ino }
        | Request::PathOf { ino }
        | Request::Read { ino, .. }
        | Request::Write { ino, .. }
        | Request::Truncate { ino, .. }
        | Request::Sync { ino } => *ino &= !ON_DISK,
        _ => {}
    }
    let (mut reply, bytes) = files::ask(session, &request, bulk)?;
    match &mut reply {
        Reply::Opened(opened) => opened.ino |= ON_DISK,
        Reply::Attr(attr) => attr.ino |= ON_DISK,
        Reply::Usage {
            most_bytes,
            most_files,
            ..
        } => (*most_bytes, *most_files) = (100 << 20, 1000),
        _ => {}
    }
    Ok((reply, bytes))
}

impl Host for Fake {
    fn room(&mut self, bytes: u64) -> Result<(), Errno> {
        (bytes <= self.room).then_some(()).ok_or(ENOMEM)
    }

    fn read_memory(&mut self, address: u64, into: &mut [u8]) -> Result<(), OutOfMemory> {
        for (i, byte) in into.iter_mut().enumerate() {
            let at = address + i as u64;
            *byte = self.page(at)[(at % PAGE) as usize];
        }
        Ok(())
    }

    // All tasks have the same memory here.
    fn read_peer(&mut self, _tid: u32, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.read_memory(address, into).map_err(|_| EIO)
    }

    fn write_peer(&mut self, _tid: u32, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.write_memory(address, bytes).map_err(|_| EIO)
    }

    fn write_memory(&mut self, address: u64, bytes: &[u8]) -> Result<(), OutOfMemory> {
        for (i, byte) in bytes.iter().enumerate() {
            let at = address + i as u64;
            self.page(at)[(at % PAGE) as usize] = *byte;
        }
        Ok(())
    }

    fn exchange(&mut self, address: u64, old: u32, new: u32) -> Result<u32, OutOfMemory> {
        let mut bytes = [0; 4];
        self.read_memory(address, &mut bytes)?;
        let found = u32::from_le_bytes(bytes);
        if found == old {
            self.write_memory(address, &new.to_le_bytes())?;
        }
        Ok(found)
    }

    fn is_present(&mut self, _address: u64, _length: u64) -> bool {
        true
    }

    fn discard(&mut self, start: u64, size: u64) {
        self.pages
            .retain(|page, _| *page < start / PAGE || *page >= (start + size) / PAGE);
    }

    fn hide_breakpoints(&mut self, hidden: bool) {
        if let Some((at, byte)) = self.breakpoint {
            let byte = if hidden { byte } else { INT3 };
            self.write_memory(at, &[byte]).unwrap();
        }
    }

    fn map(&mut self, area: &Area) -> Result<(), Errno> {
        self.mappings_left = self.mappings_left.checked_sub(1).ok_or(ENOMEM)?;
        self.put(area.slot, area.start, area.end - area.start, area.prot);
        Ok(())
    }

    fn remap(&mut self, area: &Area) -> Result<(), Errno> {
        let (from, length, before) = self.slots[&area.slot];
        let smaller = area.start >= from && area.end <= from + length;
        if !smaller || area.prot != before {
            self.mappings_left = self.mappings_left.checked_sub(1).ok_or(ENOMEM)?;
        }
        self.slots.remove(&area.slot);
        self.put(area.slot, area.start, area.end - area.start, area.prot);
        Ok(())
    }

    fn new_object(&mut self, id: u64) -> Result<(), Errno> {
        assert!(self.objects.insert(id, BTreeMap::new()).is_none());
        Ok(())
    }

    fn adopt_object(&mut self, id: u64, number: usize) -> Result<(), Errno> {
        let bytes = self.adopted.get(number).cloned().unwrap_or_default();
        assert!(self.objects.insert(id, bytes).is_none());
        Ok(())
    }

    fn end_object(&mut self, id: u64) {
        self.objects.remove(&id).unwrap();
    }

    fn read_object(&mut self, id: u64, offset: u64, into: &mut [u8]) -> Result<(), OutOfMemory> {
        let object = &self.objects[&id];
        for (byte, at) in into.iter_mut().zip(offset..) {
            *byte = object.get(&at).copied().unwrap_or(0);
        }
        Ok(())
    }

    fn write_object(&mut self, id: u64, offset: u64, bytes: &[u8]) -> Result<(), OutOfMemory> {
        if self.objects_are_full {
            return Err(OutOfMemory);
        }
        let object = self.objects.get_mut(&id).unwrap();
        object.extend((offset..).zip(bytes.iter().copied()));
        Ok(())
    }

    fn hold_object(&mut self, _id: u64, _offset: u64, _length: u64) -> Result<(), OutOfMemory> {
        match self.objects_are_full {
            true => Err(OutOfMemory),
            false => Ok(()),
        }
    }

    fn discard_object(&mut self, id: u64, offset: u64, size: u64) {
        let object = self.objects.get_mut(&id).unwrap();
        object.retain(|at, _| !(offset..offset + size).contains(at));
    }

    fn unmap(&mut self, slot: u32) {
        self.slots.remove(&slot).unwrap();
        // An unmapped slot can be used again.
        self.mappings_left = self.mappings_left.saturating_add(1);
    }

    fn memory_usage(&mut self) -> MemoryUsage {
        MemoryUsage {
            total: 1 << 30,
            free: self.free,
        }
    }

    fn fs(
        &mut self,
        request: &Request,
        bulk: &[u8],
        into: &mut [u8],
    ) -> Result<(Reply, usize), proto::Error> {
        if self.cannot_sync && matches!(request, Request::Sync { .. }) {
            return Err(proto::Error::Broken);
        }
        if self.cannot_write && matches!(request, Request::Write { .. }) {
            return Err(proto::Error::NoMemory);
        }
        let ask = match self.disk && request.is_on_disk() == Some(true) {
            true => ask_disk,
            false => files::ask,
        };
        let (reply, bytes) = match &mut self.late {
            Some(_) if matches!(request, Request::Close { .. }) => {
                self.closes.push(request.clone());
                return Ok((Reply::Done, 0));
            }
            Some(late) => match late.ask(1, request, &mut Vec::new()) {
                Told::Answer(answer) => {
                    let (reply, bytes) = answer.clone()?;
                    into[..bytes.len()].copy_from_slice(&bytes);
                    return Ok((reply, bytes.len()));
                }
                Told::Wait => return Err(proto::Error::WouldBlock),
                Told::Ask(number) => {
                    let answer = ask(&self.session, request, bulk);
                    self.syncs += u32::from(matches!(request, Request::Sync { .. }));
                    late.answered(number, answer).unwrap();
                    return Err(proto::Error::WouldBlock);
                }
            },
            _ => {
                self.syncs += u32::from(matches!(request, Request::Sync { .. }));
                ask(&self.session, request, bulk)?
            }
        };
        match (request, &reply) {
            (_, Reply::Opened(_)) => self.opens += 1,
            (Request::Close { .. }, _) => self.opens -= 1,
            _ => {}
        }
        into[..bytes.len()].copy_from_slice(&bytes);
        Ok((reply, bytes.len()))
    }

    fn waits(&self) -> bool {
        self.late.as_ref().is_some_and(|late| late.waits(1))
    }

    fn asked(&self) -> Option<&Request> {
        self.late.as_ref()?.asked(1)
    }

    fn begin_call(&mut self, tid: u32) {
        let rule = "S1: what a call asks for is taken for another one's";
        assert_eq!(self.caller.replace(tid), None, "{rule}");
        if let Some(late) = &mut self.late {
            late.begin(1);
        }
    }

    fn end_call(&mut self) -> bool {
        let rule = "S1: a call that has not begun has an end";
        assert!(self.caller.take().is_some(), "{rule}");
        self.calls += 1;
        let waits = self.waits();
        for close in core::mem::take(&mut self.closes) {
            if !waits {
                ask_disk(&self.session, &close, &[]).unwrap();
            }
        }
        let mut rest = Vec::new();
        if let Some(late) = &mut self.late {
            late.end(1, &mut rest);
        }
        for ino in rest {
            ask_disk(&self.session, &Request::Close { ino }, &[]).unwrap();
        }
        waits
    }

    fn has_network(&mut self) -> bool {
        self.network
    }

    fn console_write(&mut self, bytes: &[u8]) -> Result<usize, proto::Error> {
        Ok(bytes.len())
    }

    fn console_read(&mut self, _into: &mut [u8], _mode: Mode) -> Result<usize, proto::Error> {
        Err(proto::Error::WouldBlock)
    }

    fn console_readable(&mut self, _mode: Mode) -> bool {
        false
    }

    fn console_mode(&mut self, mode: Mode) {
        self.modes.push(mode);
    }

    fn now(&mut self) -> u64 {
        self.now
    }

    fn date(&mut self) -> u64 {
        self.now + DATE
    }

    fn random(&mut self, into: &mut [u8]) -> Result<(), Errno> {
        into.fill(4);
        Ok(())
    }

    fn gives_secrets(&mut self) -> Result<bool, Errno> {
        Ok(true)
    }

    fn hardware_capabilities(&mut self) -> u64 {
        0
    }

    fn fpu(&mut self, into: &mut [u8; abi::state::FPU_BYTES]) {
        *into = abi::state::initial_fpu();
    }

    fn log(&mut self, sentence: &str) {
        self.log.push(sentence.to_string());
    }

    fn start(&mut self, start: Start) -> Result<(), Errno> {
        if self.children_left == 0 {
            return Err(ENOMEM);
        }
        self.children_left -= 1;
        self.born.push(start);
        Ok(())
    }

    fn stage(&mut self, loaded: Option<&Loaded>) -> Result<bool, Errno> {
        if self.staged.is_some() {
            return Ok(false);
        }
        let template = loaded.and_then(|loaded| self.templates.find(loaded, |_| true));
        self.staged = Some(template.cloned().unwrap_or_default());
        Ok(template.is_some())
    }

    fn keep_staged(&mut self, loaded: &Loaded) {
        if self.templates.wants((0, u64::MAX), loaded, |_| true) {
            let staged = self.staged.clone().unwrap_or_default();
            let stack = crate::memory::STACK_TOP - crate::memory::STACK_SIZE;
            let rule = "S2: a template has nothing of who was started";
            assert!(staged.keys().all(|page| page * PAGE < stack), "{rule}");
            self.templates.add(loaded.clone(), staged);
        }
    }

    fn write_staged(&mut self, address: u64, bytes: &[u8]) -> Result<(), OutOfMemory> {
        let own = core::mem::take(&mut self.pages);
        self.pages = self.staged.take().unwrap();
        let result = self.write_memory(address, bytes);
        self.staged = Some(core::mem::replace(&mut self.pages, own));
        result
    }

    fn unstage(&mut self) {
        self.staged = None;
    }

    fn leave_memory(&mut self) -> Result<(), Errno> {
        self.slots.clear();
        self.pages = self.staged.take().unwrap_or_default();
        Ok(())
    }
}

/// The areas as a simple model: protection and kind of each page.
type Model = BTreeMap<u64, (Prot, Kind)>;

fn model_of(areas: &Areas) -> Model {
    let mut model = Model::new();
    for area in areas.list() {
        for page in area.start / PAGE..area.end / PAGE {
            assert!(model.insert(page, (area.prot, area.kind)).is_none());
        }
    }
    model
}

#[test]
fn areas_do_what_a_map_of_pages_does() {
    for seed in 0..40 {
        let mut random = Rng::with_seed(seed);
        let mut host = Fake::new();
        let mut areas = Areas::default();
        let mut model = Model::new();
        for step in 0..120 {
            let start = 0x10_0000 + random.u64(..40) * PAGE;
            let end = start + (1 + random.u64(..12)) * PAGE;
            let prot = [0, READ, READ | WRITE, READ | EXECUTE][random.u64(..4) as usize];
            let kind = [Kind::Anonymous, Kind::File, Kind::Heap][random.u64(..3) as usize];
            // In every third change the kernel runs out of memory at some point.
            host.mappings_left = if step % 3 == 0 {
                random.u64(..4) as u32
            } else {
                u32::MAX
            };
            let before = areas.clone();
            let mut next = model.clone();
            let pages = start / PAGE..end / PAGE;
            let new = match random.u64(..3) {
                0 => {
                    next.retain(|page, _| !pages.contains(page));
                    areas.replaced(start, end, None)
                }
                1 => {
                    next.extend(pages.map(|page| (page, (prot, kind))));
                    areas.replaced(start, end, Some((prot, kind)))
                }
                _ => {
                    let all = pages.clone().all(|page| model.contains_key(&page));
                    let new = areas.protected(start, end, prot);
                    assert_eq!(new.is_some(), all);
                    let Some(new) = new else { continue };
                    next.retain(|page, entry| {
                        if pages.contains(page) {
                            entry.0 = prot;
                        }
                        true
                    });
                    new
                }
            };
            match areas.apply(&mut host, new) {
                Ok(()) => model = next,
                Err(error) => {
                    assert_eq!(error, ENOMEM);
                    // Undoing a change must not need more mappings than there were.
                    if host.log.is_empty() {
                        assert_eq!(model_of(&areas), model_of(&before));
                    } else {
                        model = model_of(&areas);
                        host.log.clear();
                    }
                }
            }
            assert_eq!(model_of(&areas), model);
            host.agrees_with(&areas);
            for page in 0x100 - 2..0x100 + 60 {
                let found = areas.find(page * PAGE + 17).map(|a| (a.prot, a.kind));
                assert_eq!(found, model.get(&page).copied());
            }
        }
    }
}

#[test]
fn what_was_loaded_in_many_pieces_is_mapped_at_once() {
    let (thread, other) = (7, 8);
    let kind = |n: u64| match n % 4 {
        0 | 1 => Kind::Loading { thread },
        2 => Kind::Loading { thread: other },
        _ => Kind::Anonymous,
    };
    let list = (0..200).map(|n| Area {
        start: (16 + 3 * n / 2) * PAGE,
        end: (17 + 3 * n / 2) * PAGE,
        prot: if n % 4 == 3 { READ } else { 0 },
        kind: kind(n),
        slot: crate::memory::NO_SLOT,
    });
    let areas = Areas::from_list(list.collect());
    let from = OfFile {
        file: 3,
        shift: 5 * PAGE,
        shared: false,
    };
    let mut expected = areas.clone();
    for area in areas.list() {
        if area.kind == (Kind::Loading { thread }) {
            let by = Some((READ, Kind::Mapped(from)));
            expected = Areas::from_list(expected.replaced(area.start, area.end, by));
        }
    }
    assert_eq!(areas.with_loaded(thread, READ, from), expected.list());
}

#[test]
fn free_ranges_are_found_from_the_top_down() {
    let mut host = Fake::new();
    let mut areas = Areas::default();
    assert_eq!(areas.find_free(PAGE, 0), Some(MMAP_TOP - PAGE));
    assert_eq!(areas.find_free(PAGE, 0x5000_0123), Some(0x5000_0000));
    assert_eq!(areas.find_free(MMAP_TOP, 0), None);
    assert_eq!(areas.find_free(u64::MAX, 0x10_0000), None);
    let new = areas.replaced(
        MMAP_TOP - 4 * PAGE,
        MMAP_TOP - 2 * PAGE,
        Some((READ, Kind::File)),
    );
    areas.apply(&mut host, new).unwrap();
    assert_eq!(areas.find_free(2 * PAGE, 0), Some(MMAP_TOP - 2 * PAGE));
    assert_eq!(areas.find_free(3 * PAGE, 0), Some(MMAP_TOP - 7 * PAGE));
    assert_eq!(
        areas.find_free(PAGE, MMAP_TOP - 3 * PAGE),
        Some(MMAP_TOP - PAGE)
    );
    assert_eq!(areas.reach(MMAP_TOP - 3 * PAGE, 9 * PAGE, READ), PAGE);
    assert!(!areas.allows(MMAP_TOP - 3 * PAGE, PAGE, WRITE));
    assert!(!areas.allows(u64::MAX - 5, 10, READ));
}

/// The place of a process's first thread.
const FIRST: u64 = proto::layout::CONTROL_THREAD;

/// Saves the tree of the first of these tasks. `first` is the place of its first thread, if the task of that has ended.
fn save(
    tasks: &[(u64, &Task)],
    first: Option<u64>,
    system: &System,
    host: &mut Fake,
) -> Result<Vec<u8>, part::Refusal> {
    let root = tasks[0].1.pid;
    let known = |pid| (first.filter(|_| pid == root), "ended".to_string());
    let mut gathered = part::Gathered::default();
    let what = whole(root);
    loop {
        let set = what.set(system);
        match part::save((what, &set), &mut gathered, tasks, known, system, host) {
            Err(part::Refusal::Turn) => {}
            made => return made.map(|made| made.part),
        }
    }
}

/// The whole tree of this process, without the contents of files that are only read.
const fn whole(root: services::process::Pid) -> part::What {
    part::What {
        root,
        files: false,
        cut: false,
    }
}

/// A task, and the table with its process.
#[derive(Debug)]
struct One {
    task: Task,
    system: System,
}

/// Makes a call, and starts the program that it asks for.
fn call(task: &mut Task, system: &mut System, host: &mut Fake, registers: &Registers) -> Outcome {
    loop {
        match emulate::call(task, system, host, registers) {
            Outcome::Execute(prepared) => return emulate::execute(task, system, host, *prepared),
            Outcome::Turn => {}
            outcome => return outcome,
        }
    }
}

impl One {
    fn new(cwd: &str) -> Self {
        let mut system = System::new();
        let task = Task::new(system.create(None).unwrap(), cwd.to_string());
        system.process(task.pid).actions = Rc::clone(&task.shares.actions);
        One { task, system }
    }

    fn call(&mut self, host: &mut Fake, registers: &Registers) -> Outcome {
        call(&mut self.task, &mut self.system, host, registers)
    }

    /// Makes a call, and returns its result.
    fn result(&mut self, host: &mut Fake, number: u64, arguments: &[u64]) -> i64 {
        match self.call(host, &registers(number, arguments)) {
            Outcome::Go { registers, .. } => registers.rax as i64,
            outcome => panic!("{outcome:?}"),
        }
    }

    fn files(&self) -> RefMut<'_, Descriptors> {
        self.task.shares.files.borrow_mut()
    }

    fn memory(&self) -> RefMut<'_, Memory> {
        self.task.shares.memory.borrow_mut()
    }

    fn close_all(&mut self, host: &mut Fake) {
        self.task.close_files(&mut self.system, host);
    }

    fn save(&self, host: &mut Fake) -> Result<Vec<u8>, part::Refusal> {
        save(&[(FIRST, &self.task)], None, &self.system, host)
    }

    fn adopt(bytes: &[u8], clock_offset: u64, host: &mut Fake) -> Result<Self, String> {
        let mut system = System::new();
        let pid = system.create(None).unwrap();
        let mut adopted = part::adopt(bytes, (1, 0), clock_offset, pid, &mut system, host)?;
        let task = adopted.tasks.remove(0).task;
        Ok(One { task, system })
    }

    fn prepare(
        &mut self,
        host: &mut Fake,
        path: &str,
        args: Vec<Vec<u8>>,
    ) -> Result<exec::Prepared, exec::Failure> {
        let shares = self.task.shares.clone();
        let current = Current::new(&mut self.task, &shares);
        exec::prepare(&current, &self.system, host, path, args, Vec::new())
    }

    fn commit(
        &mut self,
        host: &mut Fake,
        prepared: exec::Prepared,
    ) -> Result<Registers, exec::Lost> {
        exec::commit(&mut self.task, &mut self.system, host, prepared)
    }
}

/// A process with one page of memory at 1 MB and an open file.
fn example(host: &mut Fake) -> One {
    let process = One::new("/tmp");
    {
        let mut memory = process.memory();
        memory.exe = "/bin/thing".to_string();
        memory.brk_start = 0x20_0000;
        memory.brk = 0x20_0000;
        let whole = Some((READ | WRITE, Kind::Anonymous));
        let new = memory.areas.replaced(0x10_0000, 0x10_4000, whole);
        memory.areas.apply(host, new).unwrap();
    }
    let flags = Flags {
        create: true,
        ..Flags::default()
    };
    let opened = host.session.open_file(flags.bits(), 0o600, "/tmp/file");
    let (ino, ..) = opened.unwrap();
    let description = Description {
        kind: FileKind::File { ino },
        flags: open_flags::RDWR,
        offset: 3,
        owner: None,
    };
    process.files().install(4, description, false);
    process
}

fn registers(number: u64, arguments: &[u64]) -> Registers {
    let mut r = Registers {
        rax: number,
        rip: 0x10_0100,
        rsp: 0x10_3000,
        ..Registers::default()
    };
    let all = [
        &mut r.rdi, &mut r.rsi, &mut r.rdx, &mut r.r10, &mut r.r8, &mut r.r9,
    ];
    for (register, argument) in all.into_iter().zip(arguments) {
        *register = *argument;
    }
    r
}

#[test]
fn a_part_comes_back_as_it_was() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    {
        let task = &mut process.task;
        let origin = Origin::default();
        task.signals.post(&task.shares.actions.borrow(), 10, origin);
    }
    process.memory().args = (0x10_0000, 5);
    let saved = process.save(&mut host).unwrap();
    process.close_all(&mut host);
    let again = One::adopt(&saved, 55, &mut host).unwrap();
    assert_eq!(again.task.clock_offset, 55);
    assert_eq!(again.memory().areas, process.memory().areas);
    assert_eq!(again.files().get(4).unwrap().offset, 3);
    assert_eq!(again.memory().args, process.memory().args);
    assert_eq!(again.task.signals, process.task.signals);
}

#[test]
fn a_file_without_a_name_comes_back_with_its_contents() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let ino = process.files().get(4).unwrap().ino().unwrap();
    host.session.write(ino, 0, b"contents").unwrap();
    host.session.unlink("/tmp/file").unwrap();
    let saved = process.save(&mut host).unwrap();
    process.close_all(&mut host);
    let files = host.files.borrow_mut().files();
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    let ino = again.files().get(4).unwrap().ino().unwrap();
    assert_eq!(*host.session.read(ino, 0, 100).unwrap(), *b"contents");
    assert_eq!(host.files.borrow_mut().stat_ino(ino).unwrap().links, 0);
    again.close_all(&mut host);
    assert_eq!(host.files.borrow_mut().files(), files);
}

#[test]
fn a_missing_file_is_named() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    // A file that is open for writing would be carried in the image.
    process.files().fds[4].description.borrow_mut().flags = 0;
    let saved = process.save(&mut host).unwrap();
    process.close_all(&mut host);
    host.session.unlink("/tmp/file").unwrap();
    let sentence = One::adopt(&saved, 0, &mut host).unwrap_err();
    assert_eq!(sentence, "/tmp/file: no such file or directory");
    host.session.mkdir(0o700, "/tmp/file").unwrap();
    let sentence = One::adopt(&saved, 0, &mut host).unwrap_err();
    assert!(
        sentence.starts_with("/tmp/file: is not what it was"),
        "{sentence}"
    );
}

/// A call that needs memory of the server asks for it first, and fails if there is none.
#[test]
fn without_memory_for_the_server_what_keeps_something_is_refused() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let before = process.memory().clone();
    let own = u64::from(process.task.number);
    host.room = 100;
    let mut result = |number: u64, arguments: &[u64]| process.result(&mut host, number, arguments);
    let refused = -i64::from(crate::errno::ENOMEM.0);
    assert_eq!(
        result(nr::mmap, &[0, 1 << 20, 3, 0x22, u64::MAX, 0]),
        refused
    );
    assert_eq!(result(nr::munmap, &[0x10_0000, 4096]), refused);
    for number in [nr::open, nr::dup, nr::execve, nr::getdents64] {
        assert_eq!(result(number, &[4, 4, 4]), refused, "call {number}");
    }
    // So do a signal that is left for another task, and the first action of a signal.
    for (number, arguments) in [
        (nr::rt_sigaction, [10, 0x10_0000, 0, 8]),
        (nr::kill, [own, 10, 0, 0]),
        (nr::tkill, [own, 10, 0, 0]),
        (nr::setsockopt, [4, 1, 9, 0]),
    ] {
        assert_eq!(result(number, &arguments), refused, "call {number}");
    }
    assert_eq!(result(nr::kill, &[own, 0]), 0);
    // Calls that need no memory succeed, above all those that release some.
    assert_eq!(result(nr::lseek, &[4, 0, 0]), 0);
    assert_eq!(result(nr::close, &[4]), 0);
    assert_eq!(process.memory().areas, before.areas);
}

#[test]
fn a_part_that_needs_more_memory_than_there_is_is_refused() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let saved = process.save(&mut host).unwrap();
    process.close_all(&mut host);
    host.room = 20 * saved.len() as u64;
    let sentence = One::adopt(&saved, 0, &mut host).unwrap_err();
    assert!(sentence.starts_with("there is no memory"), "{sentence}");
    host.room = 1000;
    let out = part::Refusal::Because("memory is out".to_string());
    assert_eq!(process.save(&mut host), Err(out));
}

/// A file without a path takes three bytes in an image, and more than ten times as many in memory.
#[test]
fn a_part_with_too_many_files_is_refused_before_it_takes_memory() {
    let mut host = Fake::new();
    const FILES: u32 = 300_000;
    let files = vec![(0u32, (0u32, "")); FILES as usize];
    let bytes = postcard::to_allocvec(&(3u32, Vec::<u8>::new(), files)).unwrap();
    let (result, took) = allocated::counted(|| One::adopt(&bytes, 0, &mut host));
    assert!(result.is_err());
    let most = bytes.len() / 10;
    assert!(took.most < most, "{} bytes", took.most);
}

/// However many directory entries wait to be handed out, a call that hands out few takes little memory.
#[test]
fn entries_that_wait_are_not_copied() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let entry = |n: u64| crate::process::Entry {
        ino: n,
        mode: 0o100_644,
        name: std::format!("{n:040}"),
    };
    let description = Description {
        kind: FileKind::Directory {
            ino: 1,
            pending: (1..=300).map(entry).collect(),
            cookie: 0,
        },
        flags: 0,
        offset: 0,
        owner: None,
    };
    process.files().install(5, description, false);
    let list = registers(nr::getdents64, &[5, 0x10_0000, 150]);
    for names in [[1, 2], [3, 4], [5, 6]] {
        let (outcome, took) = allocated::counted(|| process.call(&mut host, &list));
        let Outcome::Go { registers, .. } = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(registers.rax, 128);
        let mut inos = [0; 2];
        for (at, ino) in (0x10_0000..).step_by(64).zip(&mut inos) {
            let mut bytes = [0; 8];
            host.read_memory(at, &mut bytes).unwrap();
            *ino = u64::from_le_bytes(bytes);
        }
        assert_eq!(inos, names);
        // The first call allocates a buffer that is kept for later ones.
        assert!(names[0] == 1 || took.most < 2048, "{} bytes", took.most);
    }
    // If not even one entry fits, none is lost.
    let result = process.result(&mut host, nr::getdents64, &[5, 0x10_0000, 20]);
    assert_eq!(result, EINVAL.rax() as i64);
    assert_eq!(
        process.result(&mut host, nr::getdents64, &[5, 0x10_0000, 150]),
        128
    );
}

/// A process that makes one unknown call after the other makes the server keep and report a bounded number of them.
#[test]
fn calls_that_are_not_there_are_not_kept_without_an_end() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    for number in 1000..3000 {
        process.call(&mut host, &registers(number, &[]));
    }
    assert_eq!(
        process.system.process(process.task.pid).reported.len(),
        crate::process::MAX_REPORTED
    );
    let saved = process.save(&mut host).unwrap();
    assert!(One::adopt(&saved, 0, &mut host).is_ok());
}

/// A part with up to three of its bytes altered.
fn altered(saved: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut altered = saved.to_vec();
    for _ in 0..1 + random.u64(..3) {
        let at = random.u64(..altered.len() as u64) as usize;
        altered[at] = random.u64(..256) as u8;
    }
    altered
}

#[test]
fn altered_parts_are_refused_or_sound() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    for (number, arguments) in [
        (nr::epoll_create1, [0, 0, 0, 0]),
        (nr::epoll_create1, [0, 0, 0, 0]),
        (nr::eventfd2, [1, 0, 0, 0]),
        (nr::signalfd4, [u64::MAX, 0x10_0000, 8, 0]),
        (nr::epoll_ctl, [1, 1, 0, 0x10_0000]),
        (nr::epoll_ctl, [0, 1, 2, 0x10_0000]),
    ] {
        process.result(&mut host, number, &arguments);
    }
    let saved = process.save(&mut host).unwrap();
    for length in 0..saved.len() {
        assert!(One::adopt(&saved[..length], 0, &mut host).is_err());
    }
    let mut random = Rng::with_seed(3);
    let mut taken = 0;
    for _ in 0..30_000 {
        let altered = altered(&saved, &mut random);
        if let Ok(mut process) = One::adopt(&altered, 0, &mut host) {
            taken += 1;
            assert!(process.memory().areas.is_sound());
            // Whatever was accepted, calls work on it without a panic.
            for number in [
                nr::read,
                nr::lseek,
                nr::fstat,
                nr::close,
                nr::brk,
                nr::getcwd,
            ] {
                let _ = process.call(&mut host, &registers(number, &[4, 0x10_0000, 1]));
            }
            for epoll in 0..2 {
                let wait = registers(nr::epoll_wait, &[epoll, 0x10_0000, 9, 0]);
                let _ = process.call(&mut host, &wait);
            }
            process.close_all(&mut host);
            assert!(process.system.is_unwatched());
        }
    }
    assert!(taken > 0);
}

/// The date at which the machine's clock is zero.
const DATE: u64 = 1_900_000_000_000_000_000;

/// A restored process has the date of the machine on which it is; its other clocks go on.
#[test]
fn the_date_is_the_machines_and_the_clock_is_the_process_s() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    process.task.clock_offset = 5_000;
    let mut time = |host: &mut Fake, clock: u32| {
        let call_of = registers(nr::clock_gettime, &[u64::from(clock), 0x10_0000]);
        let outcome = process.call(host, &call_of);
        assert!(matches!(outcome, Outcome::Go { registers, .. } if registers.rax == 0));
        let mut bytes = [0; 16];
        host.read_memory(0x10_0000, &mut bytes).unwrap();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        word(0) * 1_000_000_000 + word(8)
    };
    let now = host.now;
    for clock in [linux::CLOCK_REALTIME, linux::CLOCK_REALTIME_COARSE] {
        assert_eq!(time(&mut host, clock), DATE + now);
    }
    for clock in [linux::CLOCK_MONOTONIC, linux::CLOCK_BOOTTIME] {
        assert_eq!(time(&mut host, clock), now + 5_000);
    }
    // A deadline given as a date is converted to the process's clock.
    let deadline = DATE + now + 2_000_000_000;
    let (seconds, rest) = (deadline / 1_000_000_000, deadline % 1_000_000_000);
    host.write_memory(0x10_0000, &seconds.to_le_bytes())
        .unwrap();
    host.write_memory(0x10_0008, &rest.to_le_bytes()).unwrap();
    let absolute = u64::from(linux::TIMER_ABSTIME);
    let real = u64::from(linux::CLOCK_REALTIME);
    let sleep = registers(nr::clock_nanosleep, &[real, absolute, 0x10_0000, 0]);
    let bitset = u64::from(linux::FUTEX_WAIT_BITSET | linux::FUTEX_CLOCK_REALTIME);
    let wait = registers(nr::futex, &[0x10_0020, bitset, 0, 0x10_0000, 0, u64::MAX]);
    for waiting in [sleep, wait] {
        let Outcome::Park(wake) = process.call(&mut host, &waiting) else {
            panic!()
        };
        assert_eq!(wake.deadline, Some(now + 5_000 + 2_000_000_000));
    }
}

#[test]
fn a_parked_sleep_keeps_its_deadline_and_only_that_call_uses_it() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    host.write_memory(0x10_0000, &10u64.to_le_bytes()).unwrap();
    let sleep = registers(nr::nanosleep, &[0x10_0000, 0]);
    let Outcome::Park(wake) = process.call(&mut host, &sleep) else {
        panic!()
    };
    assert_eq!(wake.deadline, Some(1_000 + 10_000_000_000));
    host.now += 4_000_000_000;
    let saved = process.save(&mut host).unwrap();
    // In another boot, where the machine's clock is at 500.
    let own_now = host.now;
    host.now = 500;
    let mut again = One::adopt(&saved, own_now - 500, &mut host).unwrap();
    let Outcome::Park(wake) = again.call(&mut host, &sleep) else {
        panic!()
    };
    assert_eq!(wake.deadline, Some(1_000 + 10_000_000_000));
    assert_eq!(
        wake.deadline.unwrap() - again.task.now(&mut host),
        6_000_000_000
    );
    // The same call from another place sleeps for its whole time.
    let elsewhere = Registers {
        rip: 0x10_0200,
        ..sleep
    };
    let Outcome::Park(wake) = again.call(&mut host, &elsewhere) else {
        panic!()
    };
    assert_eq!(
        wake.deadline.unwrap() - again.task.now(&mut host),
        10_000_000_000
    );
    host.now += 10_000_000_000;
    let Outcome::Go { registers, .. } = again.call(&mut host, &elsewhere) else {
        panic!()
    };
    assert_eq!((registers.rax, registers.rip), (0, 0x10_0202));
    assert_eq!(again.task.wait, None);
}

#[test]
fn wild_calls_end_in_an_answer() {
    let mut random = Rng::with_seed(11);
    for round in 0..60 {
        let mut host = Fake::new();
        let mut process = example(&mut host);
        for _ in 0..200 {
            let mut word = || match random.u64(..9) {
                0 => 0,
                1 => u64::MAX,
                2 => 0x10_0000 + random.u64(..0x4000),
                3 => 0x10_3ff0 + random.u64(..32),
                4 => random.u64(..10),
                5 => random.u64(..u64::MAX),
                6 => 1 << random.u64(..64),
                7 => 0x10_0000 + random.u64(..8) * PAGE,
                _ => random.u64(..0x2_0000),
            };
            let arguments: Vec<u64> = (0..6).map(|_| word()).collect();
            // New call numbers (from 424 on) and unknown ones are included.
            let number = random.u64(..470);
            // These calls would really move gigabytes, which only makes the test slow.
            if matches!(
                number,
                nr::read | nr::pread64 | nr::getrandom | nr::fallocate
            ) {
                continue;
            }
            match process.call(&mut host, &registers(number, &arguments)) {
                Outcome::Go { registers, .. } => assert!(registers.rip < abi::USER_END),
                Outcome::Park(_) => {}
                // The process has ended, or only this one of its threads.
                outcome => {
                    let has_ended = matches!(outcome, Outcome::End(_) | Outcome::Left);
                    assert!(has_ended, "{outcome:?}");
                    break;
                }
            }
            host.agrees_with(&process.memory().areas);
            assert!(process.files().fds.len() <= 1024, "round {round}");
        }
    }
}

/// A minimal executable: one page that is loaded at 4 MB.
fn tiny_elf() -> Vec<u8> {
    let mut elf = vec![0; 120];
    elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    (elf[16], elf[18]) = (2, 62);
    elf[24..32].copy_from_slice(&0x40_0078u64.to_le_bytes());
    elf[32..40].copy_from_slice(&64u64.to_le_bytes());
    (elf[54], elf[56]) = (56, 1);
    (elf[64], elf[68]) = (1, 5);
    elf[80..88].copy_from_slice(&0x40_0000u64.to_le_bytes());
    elf.extend_from_slice(&[0x0f, 0x05]);
    let size = elf.len() as u64;
    elf[96..104].copy_from_slice(&size.to_le_bytes());
    elf[104..112].copy_from_slice(&(size + 9000).to_le_bytes());
    elf
}

/// Writes words into the memory of the program.
fn words(host: &mut Fake, at: u64, words: &[u64]) {
    for (place, word) in (at..).step_by(8).zip(words) {
        host.write_memory(place, &word.to_le_bytes()).unwrap();
    }
}

/// The byte at this offset of a file, as the file system has it.
fn stored(host: &mut Fake, ino: u64, offset: u64) -> u8 {
    let mut byte = [0];
    let length = 1;
    let read = Request::Read {
        ino,
        offset,
        length,
    };
    host.fs(&read, &[], &mut byte).unwrap();
    byte[0]
}

/// The descriptors of a connected pair of `AF_UNIX` sockets of this type.
fn socket_pair(process: &mut One, host: &mut Fake, style: u64) -> [u64; 2] {
    const PLACE: u64 = 0x10_0000;
    let pair = [1, style, 0, PLACE];
    assert_eq!(process.result(host, nr::socketpair, &pair), 0);
    let mut fds = [0; 8];
    host.read_memory(PLACE, &mut fds).unwrap();
    [0, 4].map(|at| crate::wire::u32_at(&fds, at).into())
}

fn add_program(host: &mut Fake, bytes: &[u8]) {
    add_executable(host, "/tmp/program", bytes);
}

/// Makes an executable file.
fn add_executable(host: &mut Fake, path: &str, bytes: &[u8]) {
    let flags = Flags {
        create: true,
        truncate: true,
        ..Flags::default()
    };
    let opened = host.session.open_file(flags.bits(), 0o755, path);
    let (ino, ..) = opened.unwrap();
    host.session.write(ino, 0, bytes).unwrap();
    host.session.close(ino).unwrap();
}

#[test]
fn a_program_is_loaded_with_its_stack() {
    let mut host = Fake::new();
    let mut process = One::new("/");
    add_program(&mut host, &tiny_elf());
    let args = vec![b"first".to_vec(), b"second".to_vec()];
    let prepared = process.prepare(&mut host, "/tmp/program", args).unwrap();
    let start = process.commit(&mut host, prepared).unwrap();
    assert_eq!(start.rip, 0x40_0078);
    assert_eq!(start.rsp % 16, 0);
    assert_eq!(process.memory().brk, 0x40_3000);
    host.agrees_with(&process.memory().areas);
    let word = |host: &mut Fake, at: u64| {
        let mut bytes = [0; 8];
        host.read_memory(at, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    };
    assert_eq!(word(&mut host, start.rsp), 2);
    let second = word(&mut host, start.rsp + 16);
    let mut text = [0; 7];
    host.read_memory(second, &mut text).unwrap();
    assert_eq!(&text, b"second\0");
    assert_eq!(word(&mut host, start.rsp + 24), 0);
    // Starting the first program of a process leaves no descriptors open.
    assert!(process.files().fds.is_empty());
}

#[test]
fn altered_programs_are_refused_or_run() {
    let good = tiny_elf();
    let mut random = Rng::with_seed(5);
    let mut loaded = 0;
    for round in 0..4000u64 {
        let mut bytes = good.clone();
        if round < good.len() as u64 {
            bytes.truncate(round as usize);
        }
        for _ in 0..random.u64(..4) {
            let length = bytes.len() as u64;
            if length > 0 {
                bytes[random.u64(..length) as usize] = random.u64(..256) as u8;
            }
        }
        let mut host = Fake::new();
        let mut process = One::new("/");
        add_program(&mut host, &bytes);
        let args = vec![b"program".to_vec()];
        match process.prepare(&mut host, "/tmp/program", args) {
            Ok(prepared) => {
                if let Ok(start) = process.commit(&mut host, prepared) {
                    loaded += 1;
                    assert!(start.rip < abi::USER_END);
                    host.agrees_with(&process.memory().areas);
                }
            }
            Err(failure) => assert!(failure.sentence.starts_with('/'), "{}", failure.sentence),
        }
    }
    assert!(loaded > 100, "{loaded}");
}

#[test]
fn a_script_runs_its_interpreter() {
    let mut host = Fake::new();
    let mut process = One::new("/");
    add_program(&mut host, &tiny_elf());
    let script = b"#! /tmp/program one argument\nrest\n";
    add_executable(&mut host, "/tmp/script", script);
    let args = vec![b"name".to_vec(), b"more".to_vec()];
    let prepared = process.prepare(&mut host, "/tmp/script", args).unwrap();
    process.commit(&mut host, prepared).unwrap();
    assert_eq!(
        process.memory().name,
        "/tmp/program one argument /tmp/script more"
    );
    assert_eq!(process.memory().exe, "/tmp/program");
}

#[test]
fn exit_gives_its_status() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let outcome = process.call(&mut host, &registers(nr::exit_group, &[0x103]));
    assert!(matches!(outcome, Outcome::End(Status::Exited(3))));
    assert!(process.files().fds.is_empty());
}

const CLONE_VFORK_VM: u64 = (linux::CLONE_VM | linux::CLONE_VFORK) as u64;

/// Takes the child that was started last. It is in the same system as its parent.
fn child_of(process: &mut One, host: &mut Fake) -> Task {
    let child = host.born.pop().expect("a child was started");
    assert_eq!(
        process.system.parent_number(child.task.pid),
        process.task.number
    );
    assert_eq!(child.registers.rax, 0);
    child.task
}

#[test]
fn a_child_shares_descriptions_and_has_the_rest_for_itself() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let number = process.result(&mut host, nr::fork, &[]);
    let mut child = child_of(&mut process, &mut host);
    assert_eq!(number, i64::from(child.number));
    // The offset belongs to the shared description.
    let seek = registers(nr::lseek, &[4, 77, 0]);
    emulate::call(&mut child, &mut process.system, &mut host, &seek);
    assert_eq!(process.files().get(4).unwrap().offset, 77);
    // Descriptors, working directory and memory are the child's own.
    let close = registers(nr::close, &[4]);
    emulate::call(&mut child, &mut process.system, &mut host, &close);
    assert!(process.files().get(4).is_ok());
    let unmap = registers(nr::munmap, &[0x10_0000, 4096]);
    host.slots.insert(0, (0x10_0000, 0x4000, READ | WRITE));
    emulate::call(&mut child, &mut process.system, &mut host, &unmap);
    assert!(process.memory().areas.find(0x10_0000).is_some());
    assert!(child.shares.memory.borrow().areas.find(0x10_0000).is_none());
}

#[test]
fn the_parent_gets_the_status_once() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let number = process.result(&mut host, nr::fork, &[]);
    let mut child = child_of(&mut process, &mut host);
    let wait = registers(nr::wait4, &[u64::MAX, 0x10_0000, 0, 0]);
    let Outcome::Park(wake) = process.call(&mut host, &wait) else {
        panic!()
    };
    let nohang = u64::from(linux::WNOHANG);
    assert_eq!(
        process.result(&mut host, nr::wait4, &[u64::MAX, 0, nohang, 0]),
        0
    );
    let exit = registers(nr::exit_group, &[200]);
    let ended = emulate::call(&mut child, &mut process.system, &mut host, &exit);
    assert!(matches!(ended, Outcome::End(Status::Exited(200))));
    assert_eq!(woken(&mut process.system)[..], wake.keys[..]);
    let sent = process.system.take_sent();
    assert_eq!((sent[0].0, sent[0].1), (To::Process(process.task.pid), 17));
    assert_eq!((sent[0].2.pid, sent[0].2.status), (child.number, 200));
    assert_eq!(
        process.result(&mut host, nr::wait4, &[u64::MAX, 0x10_0000, 0, 0]),
        number
    );
    let mut status = [0; 4];
    host.read_memory(0x10_0000, &mut status).unwrap();
    assert_eq!(u32::from_le_bytes(status), 200 << 8);
    assert_eq!(process.system.take_gone(), [child.pid]);
    process.system.forget(child.pid);
    let none = process.result(&mut host, nr::wait4, &[u64::MAX, 0, 0, 0]);
    assert_eq!(none, -i64::from(ECHILD.0));
    assert_eq!(process.system.count(), 1);
}

#[test]
fn a_child_that_cannot_be_made_leaves_nothing() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let again = -i64::from(EAGAIN.0);
    host.children_left = 0;
    assert_eq!(process.result(&mut host, nr::fork, &[]), again);
    assert_eq!(process.system.count(), 1);
    // The number of processes of a tree is bounded.
    host.children_left = u32::MAX;
    let mut children = 0;
    while process.result(&mut host, nr::fork, &[]) != again {
        children += 1;
    }
    assert_eq!(children, crate::system::MAX_TREE - 1);
    for child in core::mem::take(&mut host.born) {
        process.system.end(child.task.pid, Status::Killed(9));
        process.system.reap(child.task.pid);
    }
    for gone in process.system.take_gone() {
        process.system.forget(gone);
    }
    assert_eq!(process.system.count(), 1);
    assert!(process.result(&mut host, nr::fork, &[]) > 0);
}

#[test]
fn who_lends_its_memory_waits_until_it_has_it_back() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let clone = registers(nr::clone, &[CLONE_VFORK_VM | 17, 0x10_2000, 0, 0, 0]);
    let Outcome::Park(wake) = process.call(&mut host, &clone) else {
        panic!()
    };
    assert!(wake.firm);
    assert_eq!(host.born[0].registers.rsp, 0x10_2000);
    let mut child = child_of(&mut process, &mut host);
    assert!(Rc::ptr_eq(
        &child.shares.memory,
        &process.task.shares.memory
    ));
    // Making the call again starts no second child.
    assert!(matches!(process.call(&mut host, &clone), Outcome::Park(_)));
    assert!(host.born.is_empty());
    // The child executes a program, and gets a memory of its own for it.
    add_program(&mut host, &tiny_elf());
    host.write_memory(0x10_0000, b"/tmp/program\0").unwrap();
    let execute = registers(nr::execve, &[0x10_0000, 0, 0]);
    let outcome = call(&mut child, &mut process.system, &mut host, &execute);
    assert!(matches!(outcome, Outcome::Go { .. }), "{outcome:?}");
    assert!(!Rc::ptr_eq(
        &child.shares.memory,
        &process.task.shares.memory
    ));
    assert_eq!(process.memory().exe, "/bin/thing");
    assert_eq!(woken(&mut process.system)[..], wake.keys[..]);
    let Outcome::Go { registers, .. } = process.call(&mut host, &clone) else {
        panic!()
    };
    assert_eq!(registers.rax, u64::from(child.number));
}

#[test]
fn pipes_move_bytes_in_order_and_end() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    assert_eq!(process.result(&mut host, nr::pipe2, &[0x10_0000, 0]), 0);
    let (read, write) = (0, 1);
    // Up to PIPE_BUF bytes are written all at once; otherwise the writer waits.
    let mut written = 0;
    let size = PIPE_BUF as u64 - 1;
    while let Outcome::Go { registers, .. } =
        process.call(&mut host, &registers(nr::write, &[write, 0x10_1000, size]))
    {
        assert_eq!(registers.rax, size);
        written += size;
    }
    assert_eq!(written, PIPE_CAPACITY as u64 / size * size);
    // More bytes are written as far as they fit, and the rest when there is room.
    let long = registers(nr::write, &[write, 0x10_0000, 0x4000]);
    let Outcome::Park(wake) = process.call(&mut host, &long) else {
        panic!()
    };
    assert_eq!(
        process.task.wait.unwrap().progress,
        PIPE_CAPACITY as u64 - written
    );
    process.system.take_woken();
    let wait = process.task.wait;
    assert_eq!(
        process.result(&mut host, nr::read, &[read, 0x10_0000, 0x4000]),
        0x4000
    );
    assert_eq!(woken(&mut process.system)[..], wake.keys[..]);
    process.task.wait = wait;
    let Outcome::Go {
        registers: after, ..
    } = process.call(&mut host, &long)
    else {
        panic!()
    };
    assert_eq!(after.rax, 0x4000);
    // When the writer has closed its end, the reader finds the end of the stream.
    assert_eq!(process.result(&mut host, nr::close, &[write]), 0);
    let mut left = written + 0x4000 - 0x4000;
    while left > 0 {
        left -= process.result(&mut host, nr::read, &[read, 0x10_0000, 0x4000]) as u64;
    }
    assert_eq!(
        process.result(&mut host, nr::read, &[read, 0x10_0000, 10]),
        0
    );
}

#[test]
fn writing_to_nobody_ends_the_writer() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    assert_eq!(process.result(&mut host, nr::pipe, &[0x10_0000]), 0);
    assert_eq!(process.result(&mut host, nr::close, &[0]), 0);
    let outcome = process.call(&mut host, &registers(nr::write, &[1, 0x10_0000, 1]));
    assert!(
        matches!(outcome, Outcome::End(Status::Killed(13))),
        "{outcome:?}"
    );
}

#[test]
fn a_pipe_of_the_tree_is_saved_and_one_of_others_is_not() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    assert_eq!(process.result(&mut host, nr::pipe, &[0x10_0000]), 0);
    assert_eq!(process.result(&mut host, nr::dup, &[1]), 2);
    host.write_memory(0x10_0000, b"bytes").unwrap();
    assert_eq!(process.result(&mut host, nr::write, &[2, 0x10_0000, 5]), 5);
    let saved = process.save(&mut host).unwrap();
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    for fd in [1, 2] {
        assert_eq!(again.result(&mut host, nr::close, &[fd]), 0);
    }
    assert_eq!(again.result(&mut host, nr::read, &[0, 0x10_1000, 100]), 5);
    assert_eq!(again.result(&mut host, nr::read, &[0, 0x10_1000, 100]), 0);
    assert_eq!(again.result(&mut host, nr::close, &[0]), 0);
    // A child cannot be saved without its parent.
    process.result(&mut host, nr::fork, &[]);
    let mut child = child_of(&mut process, &mut host);
    let refusal = save(&[(FIRST, &child)], None, &process.system, &mut host).unwrap_err();
    assert_eq!(refusal, part::Refusal::Parent(process.task.pid));
    // An orphan still shares a pipe with another process.
    let exit = registers(nr::exit, &[0]);
    process.system.process(child.pid).parent = None;
    process.system.process(process.task.pid).children.clear();
    let refusal = save(&[(FIRST, &child)], None, &process.system, &mut host).unwrap_err();
    assert!(matches!(&refusal, part::Refusal::Shared(_)), "{refusal:?}");
    let common = part::Common::of(core::iter::once(&child), &process.system);
    assert!(common.has(&process.task, &process.system));
    emulate::call(&mut child, &mut process.system, &mut host, &exit);
    // Its former parent does not wait for it.
    process.system.forget(child.pid);
    drop(child);
    assert!(process.save(&mut host).is_ok());
}

#[test]
fn what_is_watched_has_an_end_and_leaves_nothing() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let event = process.result(&mut host, nr::eventfd2, &[0, 0]) as u64;
    // One description can be watched many times, but not without bound.
    let mut watched = 0;
    let mut epolls = Vec::new();
    let error = 'full: loop {
        let epoll = process.result(&mut host, nr::epoll_create1, &[0]) as u64;
        epolls.push(epoll);
        for _ in 0..400 {
            let fd = process.result(&mut host, nr::dup, &[event]) as u64;
            match process.result(&mut host, nr::epoll_ctl, &[epoll, 1, fd, 0x10_0000]) {
                0 => watched += 1,
                error => break 'full error,
            }
        }
        let files = process.files();
        let last = files.fds.numbers().filter(|fd| *fd > 10).max();
        drop(files);
        // The description stays open through `event`.
        for fd in 11..=last.unwrap() as u64 {
            if !epolls.contains(&fd) {
                process.result(&mut host, nr::close, &[fd]);
            }
        }
    };
    let full = ENOSPC.rax() as i64;
    assert_eq!((error, watched), (full, 2048), "S2: what a tree watches");
    for epoll in epolls {
        assert_eq!(process.result(&mut host, nr::close, &[epoll]), 0);
    }
    let again = process.result(&mut host, nr::epoll_create1, &[0]) as u64;
    let watch = [again, 1, event, 0x10_0000];
    assert_eq!(process.result(&mut host, nr::epoll_ctl, &watch), 0);
}

/// Whatever watches are made in whatever order, saved or not: calls end, and when all is closed nothing is left.
#[test]
fn wild_watches_end() {
    for seed in 0..40 {
        let mut random = Rng::with_seed(seed);
        let mut host = Fake::new();
        let mut process = example(&mut host);
        for step in 0..400 {
            let fd = random.u64(..24);
            let other = random.u64(..24);
            let arguments = [fd, random.u64(1..4), other, 0x10_0000];
            let events = [1, 4, 5, 1 | 1 << 31, 5 | 1 << 30, 1 << 28, random.u32(..)];
            let mut event = random.choice(events).unwrap().to_le_bytes().to_vec();
            event.extend(step.to_string().as_bytes());
            host.write_memory(0x10_0000, &event).unwrap();
            let (number, arguments): (u64, &[u64]) = match random.u32(..14) {
                0 => (nr::epoll_create1, &[0]),
                1 => (nr::eventfd2, &[1, 0o4000]),
                2 => (nr::timerfd_create, &[1, 0o4000]),
                3 => (nr::pipe2, &[0x10_0000, 0o4000]),
                4 => (nr::signalfd4, &[u64::MAX, 0x10_0000, 8, 0o4000]),
                5 => (nr::close, &[fd]),
                6 => (nr::dup2, &[fd, other]),
                7 => (nr::write, &[fd, 0x10_0000, 8]),
                8 => (nr::read, &[fd, 0x10_1000, 8]),
                9 => (nr::epoll_wait, &[fd, 0x10_1000, 3, 0]),
                10 => (nr::timerfd_settime, &[fd, 0, 0x10_2000, 0]),
                _ => (nr::epoll_ctl, &arguments),
            };
            if let Outcome::End(_) = process.call(&mut host, &registers(number, arguments)) {
                // Ended by `SIGPIPE`.
                break;
            }
            if random.u32(..20) == 0 {
                let saved = process.save(&mut host).unwrap();
                let watched = process.system.counted_things(Thing::Watch);
                process.close_all(&mut host);
                assert!(process.system.is_unwatched());
                process = One::adopt(&saved, 0, &mut host).unwrap();
                assert_eq!(process.system.counted_things(Thing::Watch), watched);
            }
        }
        process.close_all(&mut host);
        assert!(process.system.is_unwatched());
    }
}

/// Whatever is done with sockets in whatever order, saved or not: calls end, queues are bounded, and when all is closed
/// nothing is left, circles of descriptors in queues included.
#[test]
fn wild_sockets_end() {
    let mut saved_ones = 0;
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let mut host = Fake::new();
        let mut process = example(&mut host);
        // A file longer than a message can be. `SIGPIPE` is blocked, so that writing does not end the process.
        add_executable(&mut host, "/tmp/long", &[7; 70_000]);
        host.write_memory(0x10_0000, b"/tmp/long\0").unwrap();
        assert_eq!(process.result(&mut host, nr::open, &[0x10_0000, 0]), 0);
        let pipe = bit(sig::PIPE).to_le_bytes();
        host.write_memory(0x10_0000, &pipe).unwrap();
        let block = [0, 0x10_0000, 0, 8];
        assert_eq!(process.result(&mut host, nr::rt_sigprocmask, &block), 0);
        // Names: two abstract ones, two paths, two ports, and one on another machine.
        let names: [&[u8]; 7] = [
            b"\x01\0\0one",
            b"\x01\0\0other",
            b"\x01\0/tmp/a\0",
            b"\x01\0b",
            b"\x02\0\x10\x10\x7f\0\0\x01\0\0\0\0\0\0\0\0",
            b"\x02\0\x10\x11\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x02\0\x10\x11\x08\x08\x08\x08\0\0\0\0\0\0\0\0",
        ];
        for _ in 0..500 {
            let fd = random.u64(..20);
            let other = random.u64(..20);
            let name = names[random.usize(..7)];
            host.write_memory(0x10_0000, name).unwrap();
            host.write_memory(0x10_0080, &[128, 0, 0, 0]).unwrap();
            host.write_memory(0x10_0400, &[0; 8]).unwrap();
            // A message of 2,000 bytes with a descriptor.
            let words = [0u64, 0, 0x10_0200, 1, 0x10_0300, 24, 0];
            let header: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            host.write_memory(0x10_0180, &header).unwrap();
            let range = [0x10_1000u64, 2000].map(u64::to_le_bytes).concat();
            host.write_memory(0x10_0200, &range).unwrap();
            let control = [20u64, 1 | 1 << 32, other].map(u64::to_le_bytes).concat();
            host.write_memory(0x10_0300, &control).unwrap();
            let length = name.len() as u64;
            let (family, style) = (random.u64(1..3), random.u64(1..3) | 0o4000);
            let (number, arguments): (u64, &[u64]) = match random.u32(..23) {
                0 => (nr::socket, &[family, style, 0]),
                1 => (nr::socketpair, &[1, style, 0, 0x10_0100]),
                2 => (nr::socketpair, &[1, 5 | 0o4000, 0, 0x10_0100]),
                3 => (nr::bind, &[fd, 0x10_0000, length]),
                4 => (nr::listen, &[fd, 3]),
                5..8 => (nr::connect, &[fd, 0x10_0000, length]),
                8 | 9 => (nr::accept4, &[fd, 0, 0, 0o4000]),
                10 => (nr::close, &[fd]),
                11 => (nr::dup2, &[fd, other]),
                12 => (nr::shutdown, &[fd, other % 3]),
                13 => (
                    nr::sendto,
                    &[fd, 0x10_1000, 3000, 0x4000, 0x10_0000, length],
                ),
                14 => (nr::sendto, &[fd, 0x10_1000, 3000, 0x4000, 0, 0]),
                15 => (
                    nr::sendto,
                    &[fd, 0x10_1000, random.u64(..200), 0x4000, 0, 0],
                ),
                16 => (nr::recvfrom, &[fd, 0x10_1000, 900, 0, 0x10_0000, 0x10_0080]),
                17 | 18 => (nr::sendmsg, &[fd, 0x10_0180, 0x4000]),
                19 => (nr::recvmsg, &[fd, 0x10_0180, 0]),
                20 => (nr::getsockname, &[fd, 0x10_0000, 0x10_0080]),
                21 => (nr::sendfile, &[fd, 0, 0x10_0400, 70_000]),
                _ => (nr::poll, &[0x10_0100, 1, 0]),
            };
            let outcome = process.call(&mut host, &registers(number, arguments));
            assert!(matches!(outcome, Outcome::Go { .. }), "{outcome:?}");
            assert!(process.system.sockets_are_bounded(), "seed {seed}");
            if random.u32(..20) == 0 {
                // Saving may fail if descriptors are on their way to a socket without a descriptor.
                if let Ok(saved) = process.save(&mut host) {
                    saved_ones += 1;
                    let sockets = process.system.counted_things(Thing::Socket);
                    process.close_all(&mut host);
                    assert!(process.system.has_no_sockets());
                    process = One::adopt(&saved, 0, &mut host).unwrap();
                    assert_eq!(process.system.counted_things(Thing::Socket), sockets);
                }
            }
        }
        process.close_all(&mut host);
        assert!(process.system.has_no_sockets(), "seed {seed}");
    }
    assert!(saved_ones > 200, "{saved_ones}");
}

/// A process has at most its share of sockets and of descriptors on their way, and fills at most the queues.
#[test]
fn sockets_have_an_end() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let mut made = 0;
    let error = loop {
        match process.result(&mut host, nr::socketpair, &[1, 2 | 0o4000, 0, 0x10_0100]) {
            0 => made += 1,
            error => break error,
        }
    };
    let full = ENFILE.rax() as i64;
    assert_eq!((error, made), (full, 128), "S2: the sockets of a tree");
    let mut bytes = 0;
    for fd in (0..257).filter(|fd| *fd != 4) {
        while let 1.. = process.result(&mut host, nr::write, &[fd, 0x10_0000, 0x1000]) {
            bytes += 0x1000;
        }
    }
    assert!((1 << 20..4 << 20).contains(&bytes), "{bytes}");
    process.close_all(&mut host);
    assert!(process.system.has_no_sockets());
}

/// A waiting call is not woken by events that it does not wait for: it would be made again and again.
#[test]
fn nobody_is_told_of_what_he_does_not_want() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    // A timer that has expired, watched for writing.
    let timer = process.result(&mut host, nr::timerfd_create, &[1, 0]) as u64;
    let soon = [0u64, 0, 0, 1].map(u64::to_le_bytes).concat();
    host.write_memory(0x10_0000, &soon).unwrap();
    let set = [timer, 0, 0x10_0000, 0];
    assert_eq!(process.result(&mut host, nr::timerfd_settime, &set), 0);
    host.now += 1_000;
    let epoll = process.result(&mut host, nr::epoll_create1, &[0]) as u64;
    let event = [linux::EPOLLOUT, 0, 0].map(u32::to_le_bytes).concat();
    host.write_memory(0x10_0100, &event).unwrap();
    let watch = [epoll, 1, timer, 0x10_0100];
    assert_eq!(process.result(&mut host, nr::epoll_ctl, &watch), 0);
    process.system.take_woken();
    let poll = [epoll, u64::from(linux::POLLIN)].map(|word| word as u32);
    host.write_memory(0x10_0200, &poll.map(u32::to_le_bytes).concat())
        .unwrap();
    for call in [
        registers(nr::epoll_wait, &[epoll, 0x10_1000, 3, u64::MAX]),
        registers(nr::poll, &[0x10_0200, 1, u64::MAX]),
    ] {
        for _ in 0..2 {
            let Outcome::Park(wake) = process.call(&mut host, &call) else {
                panic!("{call:?}")
            };
            assert_eq!(wake.keys.len(), 1);
            assert_eq!(woken(&mut process.system), []);
        }
    }
    // A pipe polled 400 times for an event that never comes needs only one key.
    assert_eq!(process.result(&mut host, nr::pipe2, &[0x10_0000, 0]), 0);
    let mut read = [0; 4];
    host.read_memory(0x10_0000, &mut read).unwrap();
    let entry = [u32::from_le_bytes(read), linux::POLLPRI]
        .map(u32::to_le_bytes)
        .concat();
    host.write_memory(0x10_2000, &entry.repeat(400)).unwrap();
    let poll = registers(nr::poll, &[0x10_2000, 400, u64::MAX]);
    let Outcome::Park(wake) = process.call(&mut host, &poll) else {
        panic!()
    };
    assert_eq!(wake.keys.len(), 1);
    let events = linux::POLLPRI | linux::POLLERR | linux::POLLHUP;
    assert_eq!(wake.events, Some(events));
}

/// The keys that were woken.
fn woken(system: &mut System) -> Vec<Key> {
    let woken = system.take_woken();
    woken.into_iter().map(|(key, _)| key).collect()
}

/// Messages without bytes fill a queue, too, and senders that found it full are forgotten when they are closed.
#[test]
fn what_a_socket_keeps_is_bounded() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    for style in [2, 5] {
        let style = style | 0o4000;
        let made = process.result(&mut host, nr::socketpair, &[1, style, 0, 0x10_0100]);
        assert_eq!(made, 0);
        let mut sent = 0;
        while process.result(&mut host, nr::sendto, &[0, 0x10_0000, 0, 0x4000, 0, 0]) == 0 {
            sent += 1;
            assert!(sent < 10_000, "a queue has an end");
        }
        for fd in [0, 1] {
            assert_eq!(process.result(&mut host, nr::close, &[fd]), 0);
        }
    }
    // A full socket with a name, and others that want to send to it.
    let name = b"\x01\0\0full";
    host.write_memory(0x10_0000, name).unwrap();
    let (at, length) = (0x10_0000, name.len() as u64);
    let one = [1, 2 | 0o4000, 0];
    assert_eq!(process.result(&mut host, nr::socket, &one), 0);
    assert_eq!(process.result(&mut host, nr::bind, &[0, at, length]), 0);
    for connects in [false, true] {
        for _ in 0..50 {
            let fd = process.result(&mut host, nr::socket, &one) as u64;
            if connects {
                let made = process.result(&mut host, nr::connect, &[fd, at, length]);
                assert_eq!(made, 0);
            }
            let send = [fd, 0x10_1000, 3000, 0x4000, at, length];
            while process.result(&mut host, nr::sendto, &send) == 3000 {}
            assert!(process.system.sockets_are_bounded());
            assert_eq!(process.result(&mut host, nr::close, &[fd]), 0);
            assert!(process.system.sockets_are_bounded());
        }
    }
    process.close_all(&mut host);
    assert!(process.system.has_no_sockets());
}

/// Opening one end of a FIFO waits for the other end. Both go on, even if the first opener's call is made again late.
#[test]
fn the_ends_of_a_fifo_meet() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    host.write_memory(0x10_0000, b"/tmp/fifo\0").unwrap();
    let (fifo, at) = (0o010_666, 0x10_0000);
    assert_eq!(process.result(&mut host, nr::mknod, &[at, fifo, 0]), 0);
    let mut other = thread_of(&mut process, &mut host);
    let One { task, system } = &mut process;
    let (read, write) = (registers(nr::open, &[at, 0]), registers(nr::open, &[at, 1]));
    let at_once = registers(nr::open, &[at, 1 | 0o4000]);
    for round in 0..4 {
        // Opening for writing with `O_NONBLOCK` needs a reader; one that still waits is enough.
        assert_eq!(returns(&mut other, system, &mut host, &at_once), -6);
        parks(task, system, &mut host, &read);
        let open = if round == 3 { &at_once } else { &write };
        assert_eq!(returns(&mut other, system, &mut host, open), 0);
        // What is written before the reader's call is made again is not lost.
        let bytes = registers(nr::write, &[0, 0x10_0000, 5]);
        assert_eq!(returns(&mut other, system, &mut host, &bytes), 5);
        if round == 1 {
            // Nor if the writer has closed its end by then.
            let close = registers(nr::close, &[0]);
            assert_eq!(returns(&mut other, system, &mut host, &close), 0);
        }
        let end = returns(task, system, &mut host, &read);
        assert_eq!(end, i64::from(round != 1));
        let bytes = registers(nr::read, &[end as u64, 0x10_1000, 9]);
        assert_eq!(returns(task, system, &mut host, &bytes), 5);
        for fd in 0..2 {
            let _ = call(task, system, &mut host, &registers(nr::close, &[fd]));
        }
    }
    // An opener that gives up does not let the other end open.
    parks(task, system, &mut host, &write);
    assert!(returns(task, system, &mut host, &registers(nr::getpid, &[])) > 0);
    parks(&mut other, system, &mut host, &read);
    // What was granted to an opener that gives up is taken back.
    assert_eq!(returns(task, system, &mut host, &write), 0);
    assert!(returns(&mut other, system, &mut host, &registers(nr::getpid, &[])) > 0);
    let bytes = registers(nr::write, &[0, 0x10_0000, 5]);
    let ended = call(task, system, &mut host, &bytes);
    assert!(
        matches!(ended, Outcome::End(Status::Killed(13))),
        "{ended:?}"
    );
    other.close_files(system, &mut host);
    assert_eq!(system.counted_things(Thing::Pipe), 0);
}

fn adopt_one(saved: &[u8], pid: u32, system: &mut System, host: &mut Fake) -> (u64, Task) {
    let mut adopted = part::adopt(saved, (1, 0), 0, pid, system, host).unwrap();
    let seated = adopted.tasks.remove(0);
    (seated.place, seated.task)
}

#[test]
fn a_tree_with_many_open_files_is_saved_in_turns() {
    const CHILDREN: usize = 5;
    const STRANGER: u32 = 9999;
    let mut host = Fake::new();
    let mut process = example(&mut host);
    host.write_memory(0x10_0000, b"/dev/null\0").unwrap();
    let mut children = Vec::new();
    for _ in 0..CHILDREN {
        process.result(&mut host, nr::fork, &[]);
        let mut task = child_of(&mut process, &mut host);
        let open = registers(nr::open, &[0x10_0000, 0]);
        let mut number = 0;
        while number >= 0 {
            number = match call(&mut task, &mut process.system, &mut host, &open) {
                Outcome::Go { registers, .. } => registers.rax as i64,
                outcome => panic!("{outcome:?}"),
            };
        }
        children.push(task);
    }
    let open = |task: &Task| task.shares.files.borrow().fds.len();
    let all: usize = children.iter().map(open).sum();
    assert!(all > CHILDREN * 1000);
    let tasks: Vec<(u64, &Task)> = core::iter::once(&process.task)
        .chain(&children)
        .map(|task| (FIRST, task))
        .collect();
    let known = |_| (None, String::new());
    let what = whole(process.task.pid);
    let mut gathered = part::Gathered::default();
    let mut turns = 0;
    let made = loop {
        let system = &process.system;
        let set = what.set(system);
        match part::save(
            (what, &set),
            &mut gathered,
            &tasks,
            known,
            system,
            &mut host,
        ) {
            Err(part::Refusal::Turn) => turns += 1,
            made => break made.unwrap(),
        }
        // Ends of tasks outside the tree, however many, change nothing.
        let before = gathered.size();
        gathered.forget_if_of(&[STRANGER]);
        assert_eq!(
            gathered.size(),
            before,
            "S1: a stranger's end makes the saving begin anew"
        );
        // The end of a task in the tree makes the saving begin again, without a reference to any description.
        if turns == 2 {
            assert!(before > 0);
            gathered.forget_if_of(&[STRANGER, children[2].tid]);
            let description = children[0].shares.files.borrow().fds[100]
                .description
                .clone();
            assert_eq!(
                Rc::strong_count(&description),
                2,
                "S2: a description is kept"
            );
        }
    };
    // Each descriptor is looked at, and each description encoded.
    let least = 2 * all / 2000;
    assert!(turns >= least, "S1: {all} descriptors in {turns} turns");
    let pid = process.system.create(None).unwrap();
    let memories = CHILDREN + 1;
    let adopted = part::adopt(
        &made.part,
        (memories, 0),
        0,
        pid,
        &mut process.system,
        &mut host,
    );
    let adopted = adopted.unwrap();
    let again: usize = adopted.tasks.iter().map(|seated| open(&seated.task)).sum();
    assert_eq!(again, all + open(&process.task));
}

/// Descriptors of many files are restored in turns, whether the files have names or not.
#[test]
fn a_tree_with_many_open_files_is_restored_in_turns() {
    const CHILDREN: usize = 5;
    let mut host = Fake::new();
    host.session = Session::new(&host.files, 1, 10_000);
    let mut process = example(&mut host);
    host.write_memory(0x10_0000, b"/tmp/file\0").unwrap();
    host.write_memory(0x10_0040, b"/tmp/other\0").unwrap();
    let mut children = Vec::new();
    let make = [0x10_0040, u64::from(linux::O_CREAT), 0o600];
    assert!(process.result(&mut host, nr::open, &make) >= 0);
    for _ in 0..CHILDREN {
        process.result(&mut host, nr::fork, &[]);
        let mut task = child_of(&mut process, &mut host);
        let system = &mut process.system;
        let mut path = 0x10_0000;
        loop {
            let open = registers(nr::open, &[path, 0]);
            if returns(&mut task, system, &mut host, &open) < 0 {
                break;
            }
            path ^= 0x40;
        }
        children.push(task);
    }
    let unlink = [0x10_0040];
    assert_eq!(process.result(&mut host, nr::unlink, &unlink), 0);
    let open = |task: &Task| task.shares.files.borrow().fds.len();
    let all: usize = children.iter().map(open).sum();
    assert!(all > CHILDREN * 1000);
    let of = |task| (FIRST, task);
    let tasks: Vec<(u64, &Task)> = core::iter::once(&process.task)
        .chain(&children)
        .map(of)
        .collect();
    let saved = save(&tasks, None, &process.system, &mut host).unwrap();
    let own = open(&process.task);
    for mut task in children {
        task.close_files(&mut process.system, &mut host);
    }
    process.close_all(&mut host);
    let before = host.opens;
    for gives_up in [true, false] {
        let mut system = System::new();
        let root = system.create(None).unwrap();
        let mut rebuilding = part::Rebuilding::new(&saved, (CHILDREN + 1, 0), &mut host).unwrap();
        let mut turns = 0;
        while let Err(refusal) = rebuilding.open(&mut host) {
            assert_eq!(refusal, part::Refusal::Turn);
            turns += 1;
            if gives_up && turns == 2 {
                break;
            }
        }
        if gives_up {
            rebuilding.give_up(&mut system, &mut host);
            assert_eq!(host.opens, before, "A6: a file stays open");
        } else {
            let least = all / 2000;
            assert!(turns >= least, "S1: {all} descriptors in {turns} turns");
            let adopted = rebuilding.finish(0, root, &mut system, &mut host).unwrap();
            let again: usize = adopted.tasks.iter().map(|seated| open(&seated.task)).sum();
            assert_eq!(again, all + own);
        }
        // Files without names have left none, whether the restore was given up or completed.
        let (tmp, ..) = host.session.open_file(0, 0, "/tmp").unwrap();
        let list = host
            .session
            .read_dir(tmp, 0, services::fs::ENTRIES_ROOM)
            .unwrap();
        let (_, names) = services::fs::listing(&list).unwrap();
        let names: Vec<&str> = names.map(|entry| entry.unwrap().2).collect();
        assert_eq!(names, [".", "..", "file"]);
    }
}

/// An unmapped file is written back in turns. What another process changes meanwhile is written, too.
#[test]
fn what_others_change_while_a_file_is_written_back_is_kept() {
    const SIZE: u64 = 3 << 20;
    const MAP: [u64; 4] = [0, SIZE, 3, linux::MAP_SHARED as u64];
    let mut host = Fake::new();
    let mut one = example(&mut host);
    let ino = one.files().get(4).unwrap().ino().unwrap();
    assert_eq!(one.result(&mut host, nr::ftruncate, &[4, SIZE]), 0);
    let map = |fd| [&MAP[..], &[fd, 0]].concat();
    let at = one.result(&mut host, nr::mmap, &map(4)) as u64;
    let object = one.system.objects.of_ino(ino).unwrap();
    host.write_object(object, SIZE - 1, b"a").unwrap();
    let unmap = registers(nr::munmap, &[at, SIZE]);
    let parked = one.call(&mut host, &unmap);
    assert!(matches!(parked, Outcome::Park(_)), "{parked:?}");

    // Another process maps the file, changes a part that is written back already, and unmaps it.
    let pid = one.system.create(None).unwrap();
    let mut other = Task::new(pid, "/tmp".to_string());
    let description = one.files().fds[4].description.clone();
    let fd = crate::process::Fd {
        description,
        cloexec: false,
    };
    other.shares.files.borrow_mut().fds.insert(0, fd);
    let slots = core::mem::take(&mut host.slots);
    let map = registers(nr::mmap, &map(0));
    let mut answer = |host: &mut Fake, call_of: &Registers| match call(
        &mut other,
        &mut one.system,
        host,
        call_of,
    ) {
        Outcome::Go { registers, .. } => registers.rax,
        outcome => panic!("{outcome:?}"),
    };
    let there = answer(&mut host, &map);
    assert_eq!(one.system.objects.of_ino(ino), Some(object));
    host.write_object(object, 0, b"b").unwrap();
    let unmap_there = registers(nr::munmap, &[there, SIZE]);
    let mut answer = |host: &mut Fake| match call(&mut other, &mut one.system, host, &unmap_there) {
        Outcome::Go { registers, .. } => registers.rax,
        outcome => panic!("{outcome:?}"),
    };
    assert_eq!(answer(&mut host), 0);
    host.slots = slots;

    while one.system.objects.is_due() {
        one.system.settle_objects(&mut host);
    }
    let done = one.call(&mut host, &unmap);
    assert!(
        matches!(done, Outcome::Go { registers, .. } if registers.rax == 0),
        "{done:?}"
    );
    while one.system.objects.is_due() {
        one.system.settle_objects(&mut host);
    }
    assert_eq!(one.system.objects.of_ino(ino), None);
    for (offset, is) in [(0, b'b'), (SIZE - 1, b'a')] {
        assert_eq!(
            stored(&mut host, ino, offset),
            is,
            "S3: what was changed at {offset} is in the file"
        );
    }
}

/// A process that has unmapped as many memory objects as it may have can make as many new ones at once, before the old
/// ones were removed in their turns.
#[test]
fn objects_that_were_given_up_make_room_for_others() {
    let mut host = Fake::new();
    let mut one = example(&mut host);
    let flags = (linux::MAP_SHARED | linux::MAP_ANONYMOUS) as u64;
    let map = [0, PAGE, 3, flags, u64::MAX, 0];
    let mut maps = Vec::new();
    loop {
        let at = one.result(&mut host, nr::mmap, &map);
        if at < 0 {
            break;
        }
        maps.push(at as u64);
    }
    assert_eq!(maps.len(), services::process::MAX_OBJECTS);
    for round in 0..2 {
        for at in &mut maps {
            assert_eq!(one.result(&mut host, nr::munmap, &[*at, PAGE]), 0);
        }
        for at in &mut maps {
            let again = one.result(&mut host, nr::mmap, &map);
            assert!(again > 0, "S3: what was given up is no room, round {round}");
            *at = again as u64;
        }
    }
}

/// Many processes that ask for a file to be written back, one after the other and without end, do not delay one that
/// has asked before: its data is in the file, and its call returns. Nor does a process that asks in a loop without
/// waiting.
#[test]
fn who_waits_for_a_file_is_not_kept_waiting_by_a_crowd() {
    const SIZE: u64 = 8 << 20;
    const TURNS: u32 = 3 * (SIZE >> 20) as u32;
    for (flag, asks) in [(linux::MS_SYNC, 1), (linux::MS_ASYNC, 10)] {
        let mut host = Fake::new();
        let mut one = example(&mut host);
        let ino = one.files().get(4).unwrap().ino().unwrap();
        assert_eq!(one.result(&mut host, nr::ftruncate, &[4, SIZE]), 0);
        let map = [0, SIZE, 3, linux::MAP_SHARED as u64, 4, 0];
        let at = one.result(&mut host, nr::mmap, &map) as u64;
        let object = one.system.objects.of_ino(ino).unwrap();
        host.write_object(object, 0, b"a").unwrap();
        host.write_object(object, SIZE - 1, b"b").unwrap();
        let sync = registers(nr::msync, &[at, SIZE, linux::MS_SYNC.into()]);
        let parked = one.call(&mut host, &sync);
        assert!(matches!(parked, Outcome::Park(_)), "{parked:?}");
        // Each request comes from a new process, since the one before waits.
        let memory = Rc::clone(&one.task.shares.memory);
        let mut turns = 0;
        loop {
            for _ in 0..asks {
                let pid = one.system.create(None).unwrap();
                let mut other = Task::new(pid, "/tmp".to_string());
                other.shares.memory = Rc::clone(&memory);
                let entry = registers(nr::msync, &[at, SIZE, flag.into()]);
                call(&mut other, &mut one.system, &mut host, &entry);
            }
            one.system.settle_objects(&mut host);
            turns += 1;
            match one.call(&mut host, &sync) {
                Outcome::Go { registers, .. } => break assert_eq!(registers.rax, 0),
                _ => assert!(
                    turns < TURNS,
                    "S1: a crowd keeps who waits for his file waiting"
                ),
            }
        }
        for (offset, is) in [(0, b'a'), (SIZE - 1, b'b')] {
            let there = stored(&mut host, ino, offset);
            assert_eq!(there, is, "S3: what he had written is in the file");
        }
    }
}

#[test]
fn numbers_that_are_taken_are_another_namespaces() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let saved = process.save(&mut host).unwrap();
    let number = process.task.number;
    let pid = process.system.create(None).unwrap();
    let (_, again) = adopt_one(&saved, pid, &mut process.system, &mut host);
    assert_eq!((again.number, process.task.number), (number, number));
    let system = &mut process.system;
    assert_eq!(system.by_number(again.pid, number), Some(again.pid));
    assert_eq!(
        system.by_number(process.task.pid, number),
        Some(process.task.pid)
    );
    // Its child has a number that it can use, and that others cannot.
    let child = system.fork(again.pid, 17).unwrap();
    let of_child = system.find(child).unwrap().number;
    assert_eq!(
        system.those(again.pid, Which::Number(of_child))[..],
        [child]
    );
    assert!(system
        .those(process.task.pid, Which::Number(of_child))
        .is_empty());
    let may = system.may_signal(process.task.pid, again.pid);
    assert_eq!(may, Err(EPERM), "S2: a stranger's process is signalled");
    // If its number is free, the process keeps it, and no namespace is made.
    let pid = process.task.pid;
    process.system.forget(pid);
    let pid = process.system.create(None).unwrap();
    let (_, third) = adopt_one(&saved, pid, &mut process.system, &mut host);
    assert_eq!(process.system.find(third.pid).unwrap().namespace, 0);
}

const THREAD: u64 = (linux::CLONE_VM
    | linux::CLONE_FS
    | linux::CLONE_FILES
    | linux::CLONE_SIGHAND
    | linux::CLONE_THREAD) as u64;
/// Address of a futex in the example's memory.
const WORD: u64 = 0x10_0800;

/// Starts a thread.
fn thread_of(process: &mut One, host: &mut Fake) -> Task {
    let number = process.result(host, nr::clone, &[THREAD, 0x10_2000, 0, 0, 0]);
    let thread = host.born.pop().expect("a thread was started").task;
    assert_eq!(i64::from(thread.thread), number);
    assert_eq!(
        (thread.pid, thread.number),
        (process.task.pid, process.task.number)
    );
    assert_ne!(thread.tid, thread.pid);
    thread
}

/// A `futex` call at [`WORD`].
fn futex(operation: u32, value: u64, timeout: u64, second: u64, third: u64) -> Registers {
    registers(
        nr::futex,
        &[WORD, u64::from(operation), value, timeout, second, third],
    )
}

/// Makes a call that must wait.
fn parks(task: &mut Task, system: &mut System, host: &mut Fake, registers: &Registers) {
    let outcome = emulate::call(task, system, host, registers);
    assert!(matches!(outcome, Outcome::Park(_)), "{outcome:?}");
}

/// Makes a call of a thread, and returns its result.
fn returns(task: &mut Task, system: &mut System, host: &mut Fake, registers: &Registers) -> i64 {
    match emulate::call(task, system, host, registers) {
        Outcome::Go { registers, .. } => registers.rax as i64,
        outcome => panic!("{outcome:?}"),
    }
}

/// Notes granted futex waits at the tasks, as the server does.
fn grant(threads: &mut [Task], system: &mut System) -> Vec<u32> {
    let granted = system.futexes.take_granted();
    for thread in threads.iter_mut().filter(|t| granted.contains(&t.tid)) {
        thread.wait.as_mut().unwrap().progress = crate::futex::GRANTED;
    }
    granted
}

#[test]
fn waiters_are_woken_in_their_order_and_once() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let mut threads: Vec<Task> = (0..4).map(|_| thread_of(&mut process, &mut host)).collect();
    let tids: Vec<u32> = threads.iter().map(|t| t.tid).collect();
    let wait = futex(linux::FUTEX_WAIT, 0, 0, 0, 0);
    for thread in &mut threads {
        parks(thread, &mut process.system, &mut host, &wait);
    }
    // A wait that is made again continues, whatever the word contains by then.
    host.write_memory(WORD, &[1; 4]).unwrap();
    parks(&mut threads[0], &mut process.system, &mut host, &wait);
    assert_eq!(process.result(&mut host, nr::futex, &[WORD, 1, 2]), 2);
    assert_eq!(grant(&mut threads, &mut process.system), tids[..2]);
    for thread in &mut threads[..2] {
        assert_eq!(returns(thread, &mut process.system, &mut host, &wait), 0);
        // Made once more it is a new wait.
        let again = -i64::from(EAGAIN.0);
        assert_eq!(
            returns(thread, &mut process.system, &mut host, &wait),
            again
        );
    }
    // One waiter is moved to another futex, and is woken there.
    let other = WORD + 8;
    assert_eq!(
        process.result(&mut host, nr::futex, &[WORD, 3, 0, 1, other, 0]),
        1
    );
    assert_eq!(process.result(&mut host, nr::futex, &[other, 1, 9]), 1);
    assert_eq!(grant(&mut threads, &mut process.system), [tids[2]]);
    assert_eq!(
        returns(&mut threads[2], &mut process.system, &mut host, &wait),
        0
    );
    // The same address in another memory is another futex.
    let mut stranger = example(&mut Fake::new());
    let mut elsewhere = Fake::new();
    assert_eq!(stranger.result(&mut elsewhere, nr::futex, &[WORD, 1, 9]), 0);
    // A thread that ends does not wait any longer.
    assert_eq!(
        process.result(&mut host, nr::futex, &[WORD, 1, 0x7fff_ffff]),
        1
    );
    grant(&mut threads, &mut process.system);
    parks(
        &mut threads[1],
        &mut process.system,
        &mut host,
        &futex(0, 0x0101_0101, 0, 0, 0),
    );
    let exit = registers(nr::exit, &[0]);
    let left = emulate::call(&mut threads[1], &mut process.system, &mut host, &exit);
    assert!(matches!(left, Outcome::Left), "{left:?}");
    assert_eq!(process.result(&mut host, nr::futex, &[WORD, 1, 9]), 0);
}

/// The page of a futex can be unmapped, or become unreadable, while a thread waits there.
#[test]
fn who_waits_where_nothing_is_mapped_any_more_comes_back() {
    for call in [nr::munmap, nr::mprotect] {
        let mut host = Fake::new();
        let mut process = example(&mut host);
        let mut thread = thread_of(&mut process, &mut host);
        let flags = u64::from(linux::MAP_PRIVATE | linux::MAP_ANONYMOUS);
        let rights = u64::from(READ | WRITE);
        let map = [0, PAGE, rights, flags, u64::MAX, 0];
        let at = process.result(&mut host, nr::mmap, &map) as u64;
        let wait = registers(nr::futex, &[at, u64::from(linux::FUTEX_WAIT), 0, 0]);
        parks(&mut thread, &mut process.system, &mut host, &wait);
        assert_eq!(process.result(&mut host, call, &[at, PAGE, 0]), 0);
        let tasks = [(FIRST, &process.task), (0x200, &thread)];
        let saved = save(&tasks, None, &process.system, &mut host);
        let saved = saved.expect("A6: who waits comes back wherever it waits");
        let mut system = System::new();
        let pid = system.create(None).unwrap();
        let again = part::adopt(&saved, (1, 0), 0, pid, &mut system, &mut host);
        let again = again.expect("A6: who waits comes back wherever it waits");
        let mut again: Vec<Task> = again.tasks.into_iter().map(|t| t.task).collect();
        parks(&mut again[1], &mut system, &mut host, &wait);
        let wake = registers(nr::futex, &[at, u64::from(linux::FUTEX_WAKE), 1]);
        if call == nr::mprotect {
            let back = registers(nr::mprotect, &[at, PAGE, rights]);
            assert_eq!(returns(&mut again[0], &mut system, &mut host, &back), 0);
            assert_eq!(returns(&mut again[0], &mut system, &mut host, &wake), 1);
            let woken = again[1].tid;
            assert_eq!(grant(&mut again, &mut system), [woken]);
            assert_eq!(returns(&mut again[1], &mut system, &mut host, &wait), 0);
        } else {
            let fault = -i64::from(EFAULT.0);
            assert_eq!(returns(&mut again[0], &mut system, &mut host, &wake), fault);
        }
    }
}

/// `/dev/zero` has no end, but an offset has a largest value.
#[test]
fn no_read_leaves_an_offset_that_no_image_may_have() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let zero = opened(&mut process, &mut host, "/dev/zero");
    let last = i64::MAX as u64;
    let files = Rc::clone(&process.task.shares.files);
    // An image may contain this offset.
    files.borrow().get_mut(zero as u32).unwrap().offset = last;
    assert_eq!(
        process.result(&mut host, nr::read, &[zero, 0x10_0000, 8]),
        8
    );
    assert_eq!(
        files.borrow().get(zero as u32).unwrap().offset,
        last,
        "A6: an offset is one that an image may have"
    );
    drop(files);
    let saved = process.save(&mut host).unwrap();
    One::adopt(&saved, 0, &mut host).unwrap();
}

/// A tree that could not be restored is not saved.
#[test]
fn a_tree_that_no_image_may_have_is_refused_when_it_is_saved() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let zero = opened(&mut process, &mut host, "/dev/zero");
    let files = Rc::clone(&process.task.shares.files);
    files.borrow().get_mut(zero as u32).unwrap().offset = u64::MAX;
    drop(files);
    let refused = process.save(&mut host).map(|_| ());
    let sentence = "it has something that no image can be restored with";
    assert_eq!(
        refused,
        Err(part::Refusal::Because(sentence.to_string())),
        "A6: what is saved can be restored"
    );
}

#[test]
fn threads_come_back_where_they_waited_and_in_their_order() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let mut threads: Vec<Task> = (0..3).map(|_| thread_of(&mut process, &mut host)).collect();
    let wait = futex(linux::FUTEX_WAIT, 0, 0, 0, 0);
    for n in [2, 0, 1] {
        parks(&mut threads[n], &mut process.system, &mut host, &wait);
    }
    let other = WORD + 4;
    // The first waiter is moved to another futex; the second is woken, and its call is not made again yet.
    assert_eq!(
        process.result(&mut host, nr::futex, &[WORD, 3, 0, 1, other, 0]),
        1
    );
    assert_eq!(process.result(&mut host, nr::futex, &[WORD, 1, 1]), 1);
    grant(&mut threads, &mut process.system);
    // A PI futex has an owner, and another thread waits for it.
    let lock = WORD + 16;
    assert_eq!(process.result(&mut host, nr::futex, &[lock, 6, 0, 0]), 0);
    let mut locker = thread_of(&mut process, &mut host);
    let locking = registers(nr::futex, &[lock, 6, 0, 0]);
    parks(&mut locker, &mut process.system, &mut host, &locking);
    let places = [FIRST, 0x200, 0x210, 0x220, 0x230];
    let tasks: Vec<(u64, &Task)> = core::iter::once(&process.task)
        .chain(&threads)
        .chain([&locker])
        .zip(places)
        .map(|(task, place)| (place, task))
        .collect();
    let saved = save(&tasks, None, &process.system, &mut host).unwrap();
    let mut system = System::new();
    let pid = system.create(None).unwrap();
    let again = part::adopt(&saved, (1, 0), 0, pid, &mut system, &mut host).unwrap();
    assert_eq!(
        again.tasks.iter().map(|t| t.place).collect::<Vec<_>>(),
        places
    );
    let mut again: Vec<Task> = again.tasks.into_iter().map(|t| t.task).collect();
    let numbers = |tasks: &[Task]| tasks.iter().map(|t| t.thread).collect::<Vec<_>>();
    assert_eq!(numbers(&again[1..4]), numbers(&threads));
    assert_eq!(again[0].tid, pid);
    // The granted wait stays granted, the moved waiter waits at its new futex, and the last one still waits.
    assert_eq!(returns(&mut again[1], &mut system, &mut host, &wait), 0);
    parks(&mut again[3], &mut system, &mut host, &wait);
    parks(&mut again[2], &mut system, &mut host, &wait);
    let wake = registers(nr::futex, &[other, 1, 9]);
    assert_eq!(returns(&mut again[0], &mut system, &mut host, &wake), 1);
    let woken = again[3].tid;
    assert_eq!(grant(&mut again, &mut system), [woken]);
    // The end of the owner hands the lock to the waiter.
    parks(&mut again[4], &mut system, &mut host, &locking);
    let exit = registers(nr::exit, &[0]);
    let mut first = again.remove(0);
    let left = emulate::call(&mut first, &mut system, &mut host, &exit);
    assert!(matches!(left, Outcome::Left));
    drop(first);
    let woken = again[3].tid;
    assert_eq!(grant(&mut again, &mut system), [woken]);
    let mut word = [0; 4];
    host.read_memory(lock, &mut word).unwrap();
    let flags = linux::FUTEX_WAITERS | linux::FUTEX_OWNER_DIED;
    assert_eq!(u32::from_le_bytes(word), again[3].thread | flags);
    // The process lives on without its first thread, and can be saved like that.
    let rest: Vec<(u64, &Task)> = places[1..].iter().copied().zip(&again).collect();
    let saved = save(&rest, Some(FIRST), &system, &mut host).unwrap();
    let mut system = System::new();
    let pid = system.create(None).unwrap();
    let third = part::adopt(&saved, (1, 0), 0, pid, &mut system, &mut host).unwrap();
    assert_eq!(third.members[0].first, Some((0, FIRST)));
    assert!(third
        .tasks
        .iter()
        .all(|t| t.task.tid != pid && t.task.number == process.task.number));
    assert_eq!(system.find(pid).unwrap().tasks.len(), 4);
    system.forget(pid);
    assert_eq!(system.create(None).map(|_| system.count()), Ok(1));
}

#[test]
fn a_list_of_locks_ends_whatever_it_says() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let (head, entry) = (WORD + 0x100, WORD + 0x200);
    for (what, next) in [
        ("a circle", entry),
        ("the head", head),
        ("nowhere", 8),
        ("null", 0),
    ] {
        let mut thread = thread_of(&mut process, &mut host);
        let list = [entry, 16, 0, 0];
        for (n, word) in list.iter().enumerate() {
            host.write_memory(head + 8 * n as u64, &word.to_le_bytes())
                .unwrap();
        }
        host.write_memory(entry, &next.to_le_bytes()).unwrap();
        host.write_memory(entry + 16, &thread.thread.to_le_bytes())
            .unwrap();
        let set = registers(nr::set_robust_list, &[head, 24]);
        assert_eq!(
            returns(&mut thread, &mut process.system, &mut host, &set),
            0
        );
        let exit = registers(nr::exit, &[0]);
        let left = emulate::call(&mut thread, &mut process.system, &mut host, &exit);
        assert!(matches!(left, Outcome::Left), "{what}");
        let mut word = [0; 4];
        host.read_memory(entry + 16, &mut word).unwrap();
        assert_eq!(u32::from_le_bytes(word), linux::FUTEX_OWNER_DIED, "{what}");
    }
}

#[test]
fn threads_have_an_end() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let clone = [THREAD, 0x10_2000, 0, 0, 0];
    let again = -i64::from(EAGAIN.0);
    let mut started = 1;
    while process.result(&mut host, nr::clone, &clone) != again {
        started += 1;
    }
    assert_eq!(started, crate::system::MAX_THREADS);
    // A child may have as many threads as its tree has left.
    let number = process.result(&mut host, nr::fork, &[]);
    let mut child = host.born.pop().unwrap().task;
    assert_eq!(i64::from(child.number), number);
    let clone = registers(nr::clone, &clone);
    let mut further = 1;
    while returns(&mut child, &mut process.system, &mut host, &clone) != again {
        further += 1;
    }
    assert_eq!(further, 128);
    // Nothing is left for another child.
    process.result(&mut host, nr::fork, &[]);
    let mut last = child_of(&mut process, &mut host);
    let mut more = 0;
    while returns(&mut last, &mut process.system, &mut host, &clone) != again {
        more += 1;
        assert!(more < 2, "S2: a tree has more threads than it may have");
    }
    // The threads are uncounted with their processes.
    for pid in [last.pid, child.pid, process.task.pid] {
        process.system.forget(pid);
    }
    let pid = process.system.create(None).unwrap();
    assert!(process.system.new_thread(pid).is_ok());
}

#[test]
fn a_signal_for_a_process_goes_to_who_takes_it() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let mut thread = thread_of(&mut process, &mut host);
    // The signal is for the process, whichever of its tasks takes it.
    let own = u64::from(process.task.number);
    assert_eq!(process.result(&mut host, nr::kill, &[own, 10]), 0);
    let sent = process.system.take_sent();
    assert_eq!((sent[0].0, sent[0].1), (To::Process(process.task.pid), 10));
    // A thread is found only with the right number of its process.
    let number = u64::from(thread.thread);
    let gone = -i64::from(ESRCH.0);
    assert_eq!(
        process.result(&mut host, nr::tgkill, &[number, number, 10]),
        gone
    );
    assert_eq!(process.result(&mut host, nr::tgkill, &[own, number, 10]), 0);
    let sent = process.system.take_sent();
    assert_eq!((sent[0].0, sent[0].1), (To::Task(thread.tid), 10));
    // A signal for the process is taken by the first task that does not block it.
    process
        .system
        .process(thread.pid)
        .pending
        .add(10, Origin::default());
    thread.signals.mask = crate::signal::bit(10);
    assert_eq!(
        returns(
            &mut thread,
            &mut process.system,
            &mut host,
            &registers(nr::gettid, &[])
        ),
        number as i64
    );
    let outcome = process.call(&mut host, &registers(nr::getpid, &[]));
    assert!(
        matches!(outcome, Outcome::End(Status::Killed(10))),
        "{outcome:?}"
    );
}

#[test]
fn who_is_stopped_is_told_of_once_and_ends_when_killed() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let number = process.result(&mut host, nr::fork, &[]);
    let mut child = child_of(&mut process, &mut host);
    let (stop, cont) = (crate::signal::sig::STOP, crate::signal::sig::CONT);
    process
        .system
        .process(child.pid)
        .pending
        .add(stop, Origin::default());
    // The call completes, and the stop is left to whoever runs the child.
    assert!(
        returns(
            &mut child,
            &mut process.system,
            &mut host,
            &registers(nr::getpid, &[])
        ) > 0
    );
    assert_eq!(process.system.take_halts(), [child.pid]);
    let untraced = u64::from(linux::WUNTRACED);
    let wait = [u64::MAX, 0x10_0000, untraced, 0];
    assert_eq!(process.result(&mut host, nr::wait4, &wait), number);
    let mut status = [0; 4];
    host.read_memory(0x10_0000, &mut status).unwrap();
    assert_eq!(u32::from_le_bytes(status), stop << 8 | 0x7f);
    assert!(matches!(
        process.call(&mut host, &registers(nr::wait4, &wait)),
        Outcome::Park(_)
    ));
    assert!(process.system.go_on(child.pid) && !process.system.go_on(child.pid));
    let sent = process.system.take_sent();
    assert_eq!(sent.len(), 2);
    let wait = [u64::MAX, 0x10_0000, u64::from(linux::WCONTINUED), 0];
    assert_eq!(process.result(&mut host, nr::wait4, &wait), number);
    // A stop does not interrupt a call that waits.
    process
        .system
        .process(child.pid)
        .pending
        .add(stop, Origin::default());
    let pause = registers(nr::pause, &[]);
    parks(&mut child, &mut process.system, &mut host, &pause);
    assert_eq!(process.system.take_halts(), [child.pid]);
    // In a group that is orphaned by the parent's end, a stopped process is continued.
    process.system.take_sent();
    process.call(&mut host, &registers(nr::exit_group, &[0]));
    let sent: Vec<_> = process
        .system
        .take_sent()
        .into_iter()
        .map(|(to, s, _)| (to, s))
        .collect();
    let to = To::Process(child.pid);
    assert_eq!(sent, [(to, crate::signal::sig::HUP), (to, cont)]);
}

#[test]
fn the_console_belongs_to_the_group_that_has_it() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    process.result(&mut host, nr::fork, &[]);
    let mut child = child_of(&mut process, &mut host);
    let description = Description {
        kind: FileKind::Device(crate::process::Device::Console),
        flags: open_flags::RDWR,
        offset: 0,
        owner: None,
    };
    child
        .shares
        .files
        .borrow_mut()
        .install(0, description, false);
    let system = &mut process.system;
    let group = child.number;
    // A group that does not exist is refused; then the child gets a group of its own.
    assert_eq!(system.set_foreground(child.pid, 4711), Err(EPERM));
    system
        .set_group(process.task.pid, child.pid, group)
        .unwrap();
    system
        .set_foreground(process.task.pid, process.task.number)
        .unwrap();
    let read = registers(nr::read, &[0, 0x10_0000, 10]);
    parks(&mut child, system, &mut host, &read);
    let ttin = (To::Process(child.pid), crate::signal::sig::TTIN);
    let sent = system.take_sent();
    assert_eq!((sent[0].0, sent[0].1), ttin);
    // Made again before the signal has stopped the reader, the call does not send it again.
    system
        .process(child.pid)
        .pending
        .add(ttin.1, Origin::default());
    let _ = emulate::call(&mut child, system, &mut host, &read);
    let again = system.take_sent().into_iter();
    let again = again.filter(|(to, signal, _)| (*to, *signal) == ttin);
    assert_eq!(again.count(), 0, "one read, one signal");
    system.process(child.pid).pending = crate::signal::Pending::default();
    // A reader that ignores `SIGTTIN` gets an error.
    let ignore = crate::signal::Action {
        handler: 1,
        ..Default::default()
    };
    child.shares.actions.borrow_mut().set(ttin.1, ignore);
    assert_eq!(
        returns(&mut child, system, &mut host, &read),
        -i64::from(EIO.0)
    );
    system.set_foreground(process.task.pid, group).unwrap();
    parks(&mut child, system, &mut host, &read);
    assert!(system.take_sent().is_empty());
    // For a process in another session (`setsid`) the console is no controlling terminal: it just waits for input.
    let fork = registers(nr::fork, &[]);
    returns(&mut child, system, &mut host, &fork);
    let mut other = host.born.pop().unwrap().task;
    let leads = registers(nr::setsid, &[]);
    let number = i64::from(other.number);
    assert_eq!(returns(&mut other, system, &mut host, &leads), number);
    assert_ne!(system.foreground(other.pid), other.number);
    parks(&mut other, system, &mut host, &read);
    assert!(system.take_sent().is_empty());
}

/// Settings of the console hold for the whole tree: also after the end of the process that has made them, and after a
/// restore, until the tree gives the console back.
#[test]
fn the_console_is_set_for_a_tree() {
    const SETTINGS: u64 = 0x10_0000;
    let (get, set) = (0x5401, 0x5402);
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let description = Description {
        kind: FileKind::Device(crate::process::Device::Console),
        flags: open_flags::RDWR,
        offset: 0,
        owner: None,
    };
    process.files().install(0, description, false);
    let mut settings = crate::pty::default_termios();
    let found = |one: &mut One, host: &mut Fake| {
        assert_eq!(one.result(host, nr::ioctl, &[0, get, SETTINGS]), 0);
        let mut found = vec![0; crate::pty::TERMIOS];
        host.read_memory(SETTINGS, &mut found).unwrap();
        found
    };
    assert_eq!(found(&mut process, &mut host), settings);
    let read = registers(nr::read, &[0, SETTINGS, 10]);
    parks(&mut process.task, &mut process.system, &mut host, &read);
    assert_eq!(host.modes, [], "who sets nothing asks for nothing");
    // As `stty -echo` does, in a process of its own.
    for (off, mode) in [(linux::ECHO, Mode::Quiet), (linux::ICANON, Mode::Raw)] {
        process.result(&mut host, nr::fork, &[]);
        let mut child = child_of(&mut process, &mut host);
        let local = crate::wire::u32_at(&settings, 12) & !off;
        settings[12..16].copy_from_slice(&local.to_le_bytes());
        host.write_memory(SETTINGS, &settings).unwrap();
        let system = &mut process.system;
        let sets = registers(nr::ioctl, &[0, set, SETTINGS]);
        assert_eq!(returns(&mut child, system, &mut host, &sets), 0);
        let rule = "what nobody is to see is not shown";
        assert_eq!(host.modes.pop(), Some(mode), "{rule}");
        let woken = system.take_woken();
        assert!(woken.iter().any(|(key, _)| *key == Key::Console));
        let exit = registers(nr::exit, &[0]);
        let ended = emulate::call(&mut child, system, &mut host, &exit);
        assert!(matches!(ended, Outcome::End(_)));
        assert_eq!(host.modes, [], "{rule}");
        assert_eq!(found(&mut process, &mut host), settings, "{rule}");
        // A restored tree sets the console again as soon as it reads.
        let saved = process.save(&mut host).unwrap();
        let mut again = One::adopt(&saved, 0, &mut host).unwrap();
        assert_eq!(found(&mut again, &mut host), settings, "{rule}");
        assert_eq!(host.modes, []);
        parks(&mut again.task, &mut again.system, &mut host, &read);
        assert_eq!(host.modes.pop(), Some(mode), "{rule}");
        host.modes.clear();
    }
    let exit = registers(nr::exit, &[0]);
    let ended = process.call(&mut host, &exit);
    assert!(matches!(ended, Outcome::End(_)));
    assert_eq!(
        host.modes,
        [Mode::Cooked],
        "who comes next sees what he types"
    );
}

/// Size in bytes of each half of the area in which tests of long calls have their buffers.
const LARGE: u64 = 4 << 20;
const AT: u64 = 0x2000_0000;

/// A process with a large area, filled with bytes that differ from their neighbours.
fn with_large(host: &mut Fake) -> One {
    let mut process = example(host);
    let flags = u64::from(linux::MAP_PRIVATE | linux::MAP_ANONYMOUS | linux::MAP_FIXED);
    let arguments = [AT, 2 * LARGE, 3, flags, u64::MAX, 0];
    assert_eq!(process.result(host, nr::mmap, &arguments), AT as i64);
    host.write_memory(AT, &pattern()).unwrap();
    process
}

fn pattern() -> Vec<u8> {
    (0..LARGE as u32)
        .map(|n| (n ^ n >> 8 ^ n >> 16) as u8)
        .collect()
}

/// Makes a call that is done in parts. Returns its result, and how many attempts it took.
fn in_turns(process: &mut One, host: &mut Fake, entry: &Registers) -> (i64, u32) {
    let mut turns = 1;
    loop {
        let One { task, system } = process;
        let before = task.wait.map_or(0, |wait| wait.progress);
        match emulate::call(task, system, host, entry) {
            Outcome::Turn => {
                let done = task.wait.unwrap().progress;
                assert!(done > before && done <= before + emulate::STEP);
            }
            Outcome::Go { registers, .. } => {
                assert!(process.task.wait.is_none());
                return (registers.rax as i64, turns);
            }
            outcome => panic!("{outcome:?}"),
        }
        turns += 1;
    }
}

fn opened(process: &mut One, host: &mut Fake, path: &str) -> u64 {
    host.write_memory(0x10_0000, path.as_bytes()).unwrap();
    host.write_memory(0x10_0000 + path.len() as u64, &[0])
        .unwrap();
    let flags = u64::from(open_flags::RDWR | open_flags::CREAT);
    let fd = process.result(host, nr::open, &[0x10_0000, flags, 0o600]);
    u64::try_from(fd).unwrap()
}

#[test]
fn a_long_transfer_lets_others_have_their_turn_and_moves_all() {
    let mut host = Fake::new();
    let mut process = with_large(&mut host);
    let fd = opened(&mut process, &mut host, "/tmp/long");
    let all = LARGE as i64;
    // One range; then several ranges, none of which ends where a step does.
    let entry = registers(nr::write, &[fd, AT, LARGE]);
    assert_eq!(in_turns(&mut process, &mut host, &entry), (all, 4));
    let ranges = [
        (AT, 3),
        (AT, 0),
        (AT + 3, LARGE - 1_000_003),
        (AT + LARGE - 1_000_000, 1_000_000),
    ];
    let list: Vec<u8> = ranges
        .iter()
        .flat_map(|(at, length)| [at.to_le_bytes(), length.to_le_bytes()])
        .flatten()
        .collect();
    host.write_memory(0x10_0000, &list).unwrap();
    let entry = registers(nr::writev, &[fd, 0x10_0000, 4]);
    assert_eq!(in_turns(&mut process, &mut host, &entry), (all, 4));
    let ino = process.files().get(fd as u32).unwrap().ino().unwrap();
    assert_eq!(process.files().get(fd as u32).unwrap().offset, 2 * LARGE);
    for half in [0, LARGE] {
        let mut contents = vec![0; LARGE as usize];
        for (n, piece) in contents.chunks_mut(1 << 16).enumerate() {
            let at = half + (n << 16) as u64;
            piece.copy_from_slice(&host.session.read(ino, at, 1 << 16).unwrap());
        }
        assert!(contents == pattern());
    }
    // Reading back: from an offset, and into several ranges. The end of the file ends the call.
    let back = AT + LARGE;
    let clear = vec![0; LARGE as usize];
    let entry = registers(nr::pread64, &[fd, back, LARGE, LARGE]);
    assert_eq!(in_turns(&mut process, &mut host, &entry), (all, 4));
    assert!(read_back(&mut host, back) == pattern());
    host.write_memory(back, &clear).unwrap();
    let list: Vec<u8> = ranges
        .iter()
        .flat_map(|(at, length)| [(at + LARGE).to_le_bytes(), length.to_le_bytes()])
        .flatten()
        .collect();
    host.write_memory(0x10_0000, &list).unwrap();
    let entry = registers(nr::preadv, &[fd, 0x10_0000, 4, LARGE]);
    assert_eq!(in_turns(&mut process, &mut host, &entry), (all, 4));
    assert!(read_back(&mut host, back) == pattern());
    assert_eq!(process.files().get(fd as u32).unwrap().offset, 2 * LARGE);
    let entry = registers(nr::pread64, &[fd, back, LARGE, 2 * LARGE - 5]);
    assert_eq!(in_turns(&mut process, &mut host, &entry), (5, 1));
    // From file to file.
    let to = opened(&mut process, &mut host, "/tmp/other");
    host.write_memory(0x10_0000, &LARGE.to_le_bytes()).unwrap();
    let entry = registers(nr::sendfile, &[to, fd, 0x10_0000, 10 * LARGE]);
    assert_eq!(in_turns(&mut process, &mut host, &entry), (all, 5));
    let mut offset = [0; 8];
    host.read_memory(0x10_0000, &mut offset).unwrap();
    assert_eq!(u64::from_le_bytes(offset), 2 * LARGE);
    host.write_memory(back, &clear).unwrap();
    let entry = registers(nr::pread64, &[to, back, LARGE, 0]);
    assert_eq!(in_turns(&mut process, &mut host, &entry), (all, 4));
    assert!(read_back(&mut host, back) == pattern());
    // Sources that never wait are read in steps, too.
    let zero = opened(&mut process, &mut host, "/dev/zero");
    let entry = registers(nr::read, &[zero, back, LARGE]);
    assert_eq!(in_turns(&mut process, &mut host, &entry), (all, 4));
    assert!(read_back(&mut host, back) == clear);
    let entry = registers(nr::getrandom, &[back, LARGE, 0]);
    assert_eq!(in_turns(&mut process, &mut host, &entry), (all, 64));
    assert!(read_back(&mut host, back).iter().all(|byte| *byte == 4));
    // The call ends where memory is not mapped.
    let entry = registers(nr::pread64, &[fd, AT + 2 * LARGE - (3 << 19), LARGE, 0]);
    assert_eq!(in_turns(&mut process, &mut host, &entry), (3 << 19, 2));
    let entry = registers(nr::pread64, &[fd, AT + 2 * LARGE, LARGE, 0]);
    let fault = -i64::from(EFAULT.0);
    assert_eq!(in_turns(&mut process, &mut host, &entry), (fault, 1));
}

fn read_back(host: &mut Fake, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; LARGE as usize];
    host.read_memory(at, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_vector_names_no_more_than_a_transfer_moves() {
    let mut host = Fake::new();
    let mut process = with_large(&mut host);
    let null = opened(&mut process, &mut host, "/dev/null");
    let list: Vec<u8> = [AT.to_le_bytes(), LARGE.to_le_bytes()]
        .concat()
        .repeat(1024);
    host.write_memory(0x10_0000, &list).unwrap();
    let entry = registers(nr::writev, &[null, 0x10_0000, 1024]);
    let moved = in_turns(&mut process, &mut host, &entry);
    assert_eq!(moved, (0x7fff_f000, 1), "S1: a vector names more");
}

#[test]
fn a_long_transfer_goes_on_after_a_restore_and_ends_early_for_a_signal() {
    let mut host = Fake::new();
    let mut process = with_large(&mut host);
    let fd = opened(&mut process, &mut host, "/tmp/long");
    let entry = registers(nr::write, &[fd, AT, LARGE]);
    let One { task, system } = &mut process;
    assert!(matches!(
        emulate::call(task, system, &mut host, &entry),
        Outcome::Turn
    ));
    let saved = process.save(&mut host).unwrap();
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    assert_eq!(in_turns(&mut again, &mut host, &entry), (LARGE as i64, 3));
    assert_eq!(again.files().get(fd as u32).unwrap().offset, LARGE);
    // The original's thread is stopped at the `syscall` instruction: for a signal that it ignores, and for one with a
    // handler.
    let One { task, system } = &mut process;
    let outcome = emulate::interrupt(task, system, &mut host, &entry);
    assert!(matches!(outcome, Outcome::Go { registers, .. } if registers == entry));
    host.write_memory(0x10_0000, &[1; 152]).unwrap();
    host.write_memory(0x10_0000, &0x5000u64.to_le_bytes())
        .unwrap();
    host.write_memory(0x10_0008, &0x0400_0004u64.to_le_bytes())
        .unwrap();
    assert_eq!(
        process.result_beside(&mut host, nr::rt_sigaction, &[10, 0x10_0000, 0, 8]),
        0
    );
    let One { task, system } = &mut process;
    task.signals
        .post(&task.shares.actions.borrow(), 10, Origin::default());
    let mut running = entry;
    running.rsp = AT + 2 * LARGE;
    task.wait.as_mut().unwrap().key[1] = running.rsp;
    let Outcome::Go { registers, .. } = emulate::interrupt(task, system, &mut host, &running)
    else {
        panic!()
    };
    assert_eq!(registers.rip, 0x5000);
    assert!(task.wait.is_none());
    // The handler returns to the end of the call, which has moved a part.
    let words = frame(&mut host, &registers);
    assert!(
        words.contains(&(entry.rip + 2)) && words.contains(&emulate::STEP),
        "{words:x?}"
    );
}

/// Words on the stack of a thread at the beginning of a handler: the signal frame, and what is above it.
fn frame(host: &mut Fake, registers: &Registers) -> Vec<u64> {
    let mut frame = [0; 1024];
    host.read_memory(registers.rsp, &mut frame).unwrap();
    let words = frame.chunks_exact(8);
    words
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

impl One {
    /// The result of a call of another thread, made while the task is in the middle of a call.
    fn result_beside(&mut self, host: &mut Fake, number: u64, arguments: &[u64]) -> i64 {
        let wait = self.task.wait;
        let result = self.result(host, number, arguments);
        self.task.wait = wait;
        result
    }
}

/// Reads a text as a program does, `size` bytes at a time, and calls `between` after each read.
fn text(
    process: &mut One,
    host: &mut Fake,
    path: &str,
    size: u64,
    mut between: impl FnMut(&mut One, &mut Fake),
) -> String {
    host.write_memory(0x10_0000, path.as_bytes()).unwrap();
    host.write_memory(0x10_0000 + path.len() as u64, &[0])
        .unwrap();
    let fd = process.result(host, nr::open, &[0x10_0000, 0, 0]) as u64;
    let mut text = Vec::new();
    loop {
        let got = process.result(host, nr::read, &[fd, 0x10_1000, size]);
        let mut bytes = vec![0; usize::try_from(got).unwrap()];
        host.read_memory(0x10_1000, &mut bytes).unwrap();
        text.extend(bytes);
        if got == 0 {
            assert_eq!(process.result(host, nr::close, &[fd]), 0);
            return String::from_utf8(text).unwrap();
        }
        between(process, host);
    }
}

#[test]
fn a_text_is_one_text_however_it_is_read() {
    let mut host = Fake::new();
    let mut process = with_large(&mut host);
    for n in 0..300 {
        let at = AT + 2 * n * PAGE;
        assert_eq!(process.result(&mut host, nr::mprotect, &[at, PAGE, 1]), 0);
    }
    let maps = "/proc/self/maps";
    let whole = text(&mut process, &mut host, maps, 1 << 12, |_, _| {});
    assert_eq!(whole.lines().count(), process.memory().areas.list().len());
    for size in [1, 7, 100, 5000] {
        assert!(text(&mut process, &mut host, maps, size, |_, _| {}) == whole);
    }
    // A line shows the area as it was when the line was begun.
    let mut prot = 0;
    let changed = text(&mut process, &mut host, maps, 3, |process, host| {
        prot = (prot + 1) % 8;
        for at in [AT, AT + 300 * PAGE, AT + 601 * PAGE] {
            assert_eq!(process.result(host, nr::mprotect, &[at, PAGE, prot]), 0);
        }
    });
    let mut last = 0;
    for line in changed.lines() {
        let (range, rest) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        assert!(
            last <= start && start < end && rest.ends_with("00000000 00:00 0 "),
            "{line}"
        );
        last = end;
    }
    // From any offset, as with `pread`.
    host.write_memory(0x10_0000, b"/proc/self/maps\0").unwrap();
    let fd = process.result(&mut host, nr::open, &[0x10_0000, 0, 0]) as u64;
    let whole = text(&mut process, &mut host, maps, 1 << 12, |_, _| {});
    for at in [
        7000u64,
        77,
        5000,
        whole.len() as u64 - 3,
        whole.len() as u64,
        1 << 40,
    ] {
        let expected = whole.as_bytes().get(at as usize..).unwrap_or_default();
        let expected = &expected[..expected.len().min(100)];
        let got = process.result(&mut host, nr::pread64, &[fd, 0x10_1000, 100, at]);
        let mut bytes = vec![0; got as usize];
        host.read_memory(0x10_1000, &mut bytes).unwrap();
        assert_eq!(bytes, expected);
    }
    // A short text stays as it was when its first bytes were read.
    let uptime = text(&mut process, &mut host, "/proc/uptime", 1, |_, host| {
        host.now += 7_777_777_777;
    });
    assert_eq!(uptime, "0.00 0.00\n");
    // The arguments are read from the program's memory.
    host.write_memory(AT + LARGE, b"thing\0with\0arguments\0")
        .unwrap();
    process.memory().args = (AT + LARGE, 21);
    for size in [1, 5, 4096] {
        let arguments = text(
            &mut process,
            &mut host,
            "/proc/self/cmdline",
            size,
            |_, _| {},
        );
        assert_eq!(arguments, "thing\0with\0arguments\0");
    }
    process.memory().args = (u64::MAX - 3, 21);
    let arguments = text(
        &mut process,
        &mut host,
        "/proc/self/cmdline",
        100,
        |_, _| {},
    );
    assert_eq!(arguments, "");
}

/// However long a text is, a description of it stays small.
#[test]
fn open_texts_keep_little() {
    let mut host = Fake::new();
    let mut process = with_large(&mut host);
    for n in 0..900 {
        let at = AT + 2 * n * PAGE;
        assert_eq!(process.result(&mut host, nr::mprotect, &[at, PAGE, 1]), 0);
    }
    process.memory().args = (AT, LARGE);
    let before = process.save(&mut host).unwrap().len();
    for n in 0..300 {
        let name = ["maps", "cmdline", "comm"][n % 3];
        let path = std::format!("/proc/self/{name}\0");
        host.write_memory(0x10_0000, path.as_bytes()).unwrap();
        let fd = process.result(&mut host, nr::open, &[0x10_0000, 0, 0]) as u64;
        assert!(process.result(&mut host, nr::read, &[fd, 0x10_1000, 100]) > 0);
    }
    let after = process.save(&mut host).unwrap().len();
    assert!(after - before < 300 * 64, "{before} {after}");
}

impl One {
    /// Makes one attempt of a call.
    fn attempt(&mut self, host: &mut Fake, registers: &Registers) -> Outcome {
        emulate::call(&mut self.task, &mut self.system, host, registers)
    }
}

/// A process, an open file of [`LARGE`] bytes, and a call that maps the file.
fn that_maps(host: &mut Fake) -> (One, u64, Registers) {
    let mut process = with_large(host);
    let fd = opened(&mut process, host, "/tmp/long");
    let entry = registers(nr::write, &[fd, AT, LARGE]);
    assert_eq!(in_turns(&mut process, host, &entry).0, LARGE as i64);
    let flags = u64::from(linux::MAP_PRIVATE);
    let entry = registers(nr::mmap, &[0, LARGE, 3, flags, fd, 0]);
    (process, fd, entry)
}

/// Makes a call that loads a file until it is complete. Returns its result, and how many attempts it took.
fn loaded(process: &mut One, host: &mut Fake, entry: &Registers) -> (i64, u32) {
    for turns in 1.. {
        match process.attempt(host, entry) {
            Outcome::Turn => {}
            Outcome::Go { registers, .. } => {
                assert!(process.task.loading.is_none());
                return (registers.rax as i64, turns);
            }
            outcome => panic!("{outcome:?}"),
        }
    }
    unreachable!()
}

/// Asserts that no area is reserved for loading, and that no page exists outside of areas.
fn nothing_is_kept(process: &One, host: &Fake) {
    let memory = process.memory();
    assert!(!memory.areas.list().iter().any(|area| area.is_loading()));
    host.agrees_with(&memory.areas);
    for page in host.pages.keys() {
        assert!(memory.areas.find(page * PAGE).is_some(), "{page:#x}");
    }
}

#[test]
fn a_file_is_mapped_in_turns_and_seen_as_a_whole() {
    let mut host = Fake::new();
    let (mut process, fd, entry) = that_maps(&mut host);
    assert!(matches!(process.attempt(&mut host, &entry), Outcome::Turn));
    let kept = |process: &One| {
        let memory = process.memory();
        let mut kept = memory.areas.list().iter().filter(|a| a.is_loading());
        kept.next().copied().map(|area| (area.start, area.end))
    };
    let (start, end) = kept(&process).unwrap();
    assert_eq!(end - start, LARGE);
    // Other calls cannot use or change the area while it is being loaded.
    assert!(!process.memory().areas.allows(start, PAGE, 0));
    // The handler of a signal waits for the end of the call.
    process
        .task
        .signals
        .post(&process.task.shares.actions.borrow(), 10, Origin::default());
    let One { task, system } = &mut process;
    let outcome = emulate::interrupt(task, system, &mut host, &entry);
    assert!(matches!(outcome, Outcome::Go { registers, .. } if registers == entry));
    process.task.signals.pending.take_all(bit(10));
    assert_eq!(
        loaded(&mut process, &mut host, &entry),
        (start as i64, 3),
        "of four turns the first one was made"
    );
    assert!(read_back(&mut host, start) == pattern());
    nothing_is_kept(&process, &host);
    // In place of a mapping, and beyond the end of the file, where it is zero.
    let fixed = u64::from(linux::MAP_PRIVATE | linux::MAP_FIXED);
    let entry = registers(nr::mmap, &[start, LARGE, 1, fixed, fd, LARGE - 2 * PAGE]);
    assert_eq!(loaded(&mut process, &mut host, &entry), (start as i64, 1));
    let back = read_back(&mut host, start);
    let two = 2 * PAGE as usize;
    assert!(back[..two] == pattern()[LARGE as usize - two..]);
    assert!(back[two..].iter().all(|byte| *byte == 0));
    nothing_is_kept(&process, &host);
}

#[test]
fn a_mapping_that_is_not_complete_leaves_nothing() {
    let begun = || {
        let mut host = Fake::new();
        let (mut process, _, entry) = that_maps(&mut host);
        assert!(matches!(process.attempt(&mut host, &entry), Outcome::Turn));
        (host, process, entry)
    };
    // Another call is made, as after a handler, or when a debugger has set registers.
    let (mut host, mut process, _) = begun();
    assert!(process.result(&mut host, nr::getpid, &[]) > 0);
    nothing_is_kept(&process, &host);
    // The descriptor has been closed meanwhile.
    let (mut host, mut process, entry) = begun();
    process.close_all(&mut host);
    assert_eq!(loaded(&mut process, &mut host, &entry), (-9, 1));
    nothing_is_kept(&process, &host);
    // An image has the reserved area, but not how much was loaded: there loading begins again.
    let (mut host, process, entry) = begun();
    let saved = process.save(&mut host).unwrap();
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    assert!(again.memory().areas.list().iter().any(|a| a.is_loading()));
    let (start, turns) = loaded(&mut again, &mut host, &entry);
    assert_eq!(turns, 4);
    assert!(read_back(&mut host, start as u64) == pattern());
    nothing_is_kept(&again, &host);
    // What other threads map in the reserved area stays.
    let (mut host, mut process, entry) = begun();
    let end = MMAP_TOP;
    let start = end - LARGE;
    let loading = process.task.loading.take();
    let fixed = u64::from(linux::MAP_PRIVATE | linux::MAP_ANONYMOUS | linux::MAP_FIXED);
    let mut other = thread_of(&mut process, &mut host);
    for (number, arguments) in [
        (nr::munmap, vec![start, PAGE]),
        (nr::mmap, vec![end - PAGE, PAGE, 3, fixed, u64::MAX, 0]),
    ] {
        let call = registers(number, &arguments);
        assert!(returns(&mut other, &mut process.system, &mut host, &call) >= 0);
    }
    host.write_memory(end - PAGE, b"theirs").unwrap();
    process.task.loading = loading;
    assert_eq!(loaded(&mut process, &mut host, &entry), (start as i64, 3));
    let mut theirs = [0; 7];
    host.read_memory(end - PAGE, &mut theirs).unwrap();
    assert_eq!(&theirs, b"theirs\0");
    assert!(process.memory().areas.is_free(start, start + PAGE));
    assert!(process.memory().areas.allows(start + PAGE, LARGE - PAGE, 3));
    nothing_is_kept(&process, &host);
    // Loading does not delay a signal that ends the process.
    let (mut host, mut process, entry) = begun();
    process.task.signals.post(
        &process.task.shares.actions.borrow(),
        sig::KILL,
        Origin::default(),
    );
    let outcome = process.attempt(&mut host, &entry);
    assert!(matches!(outcome, Outcome::End(_)), "{outcome:?}");
    nothing_is_kept(&process, &host);
}

/// A program with [`LARGE`] bytes of its own, whose pattern shows any change.
fn long_elf() -> Vec<u8> {
    let mut elf = tiny_elf();
    elf.extend_from_slice(&pattern());
    let size = elf.len() as u64;
    elf[96..104].copy_from_slice(&size.to_le_bytes());
    elf[104..112].copy_from_slice(&(size + 9000).to_le_bytes());
    elf
}

/// Makes `execve` until the program is loaded. Returns how many turns that took.
fn until_executed(
    process: &mut One,
    host: &mut Fake,
    entry: &Registers,
) -> (Box<exec::Prepared>, u32) {
    let mut turns = 0;
    loop {
        match process.attempt(host, entry) {
            Outcome::Turn => turns += 1,
            Outcome::Execute(prepared) => return (prepared, turns),
            outcome => panic!("{outcome:?}"),
        }
    }
}

#[test]
fn a_long_program_is_loaded_beside_the_one_that_calls() {
    let mut host = Fake::new();
    let mut process = with_large(&mut host);
    add_program(&mut host, &long_elf());
    let open_before = host.opens;
    host.write_memory(0x10_0000, b"/tmp/program\0").unwrap();
    host.write_memory(0x10_0800, &[0; 16]).unwrap();
    host.write_memory(0x10_0800, &0x10_0000u64.to_le_bytes())
        .unwrap();
    let entry = registers(nr::execve, &[0x10_0000, 0x10_0800, 0]);
    let areas = process.memory().areas.clone();
    // Loading is given up: by another call, and in an image.
    for _ in 0..2 {
        for _ in 0..3 {
            assert!(matches!(process.attempt(&mut host, &entry), Outcome::Turn));
        }
        assert!(host.staged.is_some());
        assert_eq!(host.opens, open_before + 1);
        assert!(process.memory().areas == areas && read_back(&mut host, AT) == pattern());
        let saved = process.save(&mut host).unwrap();
        assert!(process.result(&mut host, nr::getpid, &[]) > 0);
        assert!(host.staged.is_none());
        process.system.settle_executed(&mut host);
        assert_eq!(host.opens, open_before);
        let mut again = One::adopt(&saved, 0, &mut host).unwrap();
        assert!(again.task.loading.is_none());
        again.close_all(&mut host);
    }
    let (prepared, turns) = until_executed(&mut process, &mut host, &entry);
    // One turn to check the file, and one for each step except the last, which is short.
    assert_eq!(turns, 5);
    assert!(process.memory().areas == areas && read_back(&mut host, AT) == pattern());
    let One { task, system } = &mut process;
    let Outcome::Go { registers, .. } = emulate::execute(task, system, &mut host, *prepared) else {
        panic!()
    };
    assert_eq!(registers.rip, 0x40_0078);
    let mut bytes = vec![0; long_elf().len()];
    host.read_memory(0x40_0000, &mut bytes).unwrap();
    assert!(bytes == long_elf());
    assert_eq!(process.memory().name, "/tmp/program");
    let mut argument = [0; 13];
    let at = process.memory().args.0;
    host.read_memory(at, &mut argument).unwrap();
    assert_eq!(&argument, b"/tmp/program\0");
    // The executed file stays open.
    assert_eq!(host.opens, open_before + 1);
    host.agrees_with(&process.memory().areas);
    assert!(host.staged.is_none());
}

/// A call of `execve` for this path with more strings than are read in one step, and the strings' length in bytes.
fn many_strings(process: &mut One, host: &mut Fake, path: &[u8]) -> (Registers, u64) {
    const STRINGS: u64 = 5_000;
    assert!(process.memory().areas.allows(AT, LARGE, READ));
    host.write_memory(0x10_0000, path).unwrap();
    let (mut pointers, mut texts) = (Vec::new(), Vec::new());
    for n in 0..STRINGS {
        let at = AT + 0x10_0000 + texts.len() as u64;
        pointers.extend_from_slice(&at.to_le_bytes());
        texts.extend_from_slice(std::format!("{n}\0").as_bytes());
    }
    pointers.extend_from_slice(&[0; 8]);
    host.write_memory(AT, &pointers).unwrap();
    host.write_memory(AT + 0x10_0000, &texts).unwrap();
    let entry = registers(nr::execve, &[0x10_0000, AT, AT]);
    (entry, texts.len() as u64)
}

#[test]
fn a_long_list_of_arguments_is_read_in_turns() {
    for is_late in [false, true] {
        let mut host = Fake::new();
        let mut process = with_large(&mut host);
        add_program(&mut host, &tiny_elf());
        let (entry, _) = many_strings(&mut process, &mut host, b"/tmp/nothing\0");
        assert_eq!(loaded(&mut process, &mut host, &entry), (-2, 1));
        let (entry, length) = many_strings(&mut process, &mut host, b"/tmp/program\0");
        assert!(matches!(process.attempt(&mut host, &entry), Outcome::Turn));
        // Another call drops the strings that were read.
        assert!(process.result(&mut host, nr::getpid, &[]) > 0);
        assert!(process.task.loading.is_none());
        host.late = is_late.then(Late::new);
        let (mut turns, mut waits) = (0, 0);
        let prepared = loop {
            host.late.iter_mut().for_each(|late| late.begin(1));
            match process.attempt(&mut host, &entry) {
                Outcome::Turn => turns += 1,
                Outcome::Park(_) => waits += 1,
                Outcome::Execute(prepared) => break prepared,
                outcome => panic!("{outcome:?}"),
            }
            assert!(waits < 50, "they are kept while a disk is waited for");
        };
        assert_eq!((turns, waits > 0), (5, is_late));
        host.late = None;
        let One { task, system } = &mut process;
        let outcome = emulate::execute(task, system, &mut host, *prepared);
        assert!(matches!(outcome, Outcome::Go { .. }), "{outcome:?}");
        assert_eq!(process.memory().args.1, length);
        assert_eq!(process.memory().environment.1, length);
    }
}

/// A program that is started for the third time is copied from a template and not read again. Whatever earlier runs
/// have done to their memories, it has the contents of its file; if that was changed it is read again.
#[test]
fn what_is_started_again_is_a_copy() {
    let mut host = Fake::new();
    let mut process = with_large(&mut host);
    let (mut file, mut name) = (long_elf(), 0x10_0000);
    add_program(&mut host, &file);
    for (round, is_read) in [true, true, false, false, true, true, false]
        .into_iter()
        .enumerate()
    {
        if round == 4 {
            file.push(7);
            add_program(&mut host, &file);
        }
        host.write_memory(name, b"/tmp/program\0").unwrap();
        let entry = registers(nr::execve, &[name, 0, 0]);
        let (prepared, turns) = until_executed(&mut process, &mut host, &entry);
        assert_eq!(turns > 0, is_read, "what was loaded is there: {round}");
        let One { task, system } = &mut process;
        emulate::execute(task, system, &mut host, *prepared);
        let mut bytes = vec![0; long_elf().len()];
        host.read_memory(0x40_0000, &mut bytes).unwrap();
        assert!(
            bytes == file[..bytes.len()],
            "S2: a program has what another one wrote: {round}"
        );
        host.agrees_with(&process.memory().areas);
        name = 0x40_0000 + 128;
    }
    process.close_all(&mut host);
}

#[test]
fn what_is_executed_is_not_written_and_what_is_written_not_executed() {
    let mut host = Fake::new();
    let mut process = with_large(&mut host);
    add_program(&mut host, &long_elf());
    host.write_memory(0x10_0000, b"/tmp/program\0").unwrap();
    let open = |one: &mut One, host: &mut Fake, flags: u32| {
        one.result(host, nr::open, &[0x10_0000, u64::from(flags), 0o755])
    };
    let close = |one: &mut One, host: &mut Fake, fd: i64| {
        assert_eq!(one.result(host, nr::close, &[fd as u64]), 0);
    };
    let busy = -i64::from(linux_raw_sys::errno::ETXTBSY);
    let execve = registers(nr::execve, &[0x10_0000, 0, 0]);
    let before = (host.opens, process.system.busy.counts());
    let fd = open(&mut process, &mut host, linux::O_WRONLY);
    let again = process.result(&mut host, nr::dup, &[fd as u64]);
    close(&mut process, &mut host, fd);
    assert_eq!(
        process.result(&mut host, nr::execve, &[0x10_0000, 0, 0]),
        busy
    );
    close(&mut process, &mut host, again);
    assert_eq!((host.opens, process.system.busy.counts()), before);
    // The file counts as executed while it is being loaded.
    assert!(matches!(process.attempt(&mut host, &execve), Outcome::Turn));
    let loading = process.task.loading.take();
    for flags in [linux::O_WRONLY, linux::O_RDWR, linux::O_TRUNC] {
        assert_eq!(
            open(&mut process, &mut host, flags),
            busy,
            "What is executed is one program, and not half of another one"
        );
    }
    assert_eq!(
        process.result(&mut host, nr::truncate, &[0x10_0000, 0]),
        busy,
        "A program that runs is not changed by others"
    );
    process.task.loading = loading;
    let (prepared, _) = until_executed(&mut process, &mut host, &execve);
    let One { task, system } = &mut process;
    emulate::execute(task, system, &mut host, *prepared);
    assert_eq!(process.system.busy.counts(), (1, before.1 .1));
    let ino = process.memory().executed.as_ref().unwrap().ino();
    assert!(process.system.busy.is_executed(ino));
    // A restored process executes the file, too, and so does a copy of its memory.
    let saved = process.save(&mut host).unwrap();
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    assert!(again.system.busy.is_executed(ino));
    // The name of the file, at a place that the program has mapped.
    let name = 0x40_0000 + 128;
    host.write_memory(name, b"/tmp/program\0").unwrap();
    let copy = crate::process::copied(&again.task.shares.memory);
    again.close_all(&mut host);
    again.task.shares.memory = Default::default();
    assert!(again.system.busy.is_executed(ino) && !again.system.busy.is_due());
    drop(copy);
    assert!(!again.system.busy.is_executed(ino) && again.system.busy.is_due());
    again.system.settle_executed(&mut host);
    // If the file is gone at the restore, the program still runs.
    assert_eq!(process.result(&mut host, nr::unlink, &[name]), 0);
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    assert_eq!(again.system.busy.counts().0, 0);
    again.close_all(&mut host);
    process.close_all(&mut host);
    process.task.shares.memory = Default::default();
    process.system.settle_executed(&mut host);
    // The example's file was opened without being counted, so closing it counts as -1.
    assert_eq!((host.opens, process.system.busy.counts()), (-1, (0, 0)));
}
