//! Runs real Linux programs on the development machine against the emulation.
//!
//! The program is a traced child whose system calls the kernel reports and does not carry out
//! (`PTRACE_SYSEMU`). Its memory below 64 GiB shows a `memfd`, offset and address being equal, just
//! as a memory segment stands behind a process of Fermata; mappings are made by injected calls.
//! Files are the file system server's own code; clock and console are simulated, so that a program
//! that sleeps does not take time.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use abi::message::ExceptionMessage;
use abi::{Exception, Registers};
use fermata_fs::session::{Session, Shared};
use fermata_fs::tree::FileSystem;
use personality::emulate::{self, Outcome};
use personality::errno::{Errno, ENOMEM};
use personality::exec;
use personality::files::{Reply, Request};
use personality::host::{Fpu, Host, MemoryUsage, OutOfMemory, Start};
use personality::late::{Late, Told};
use personality::memory::{Area, Source};
use personality::node::Nodes;
use personality::part;
use personality::process::{open_flags, Current, Description, Device, Kind, Task};
use personality::system::{System, Tid};
use personality::templates::Loaded;
use services::console::Mode;
use services::fs::{Files, Flags};
use services::process::Status;

/// A `syscall` instruction whose address is known, in parent and child alike.
#[unsafe(naked)]
unsafe extern "C" fn syscall_instruction() {
    core::arch::naked_asm!("syscall", "ud2");
}

#[path = "../files.rs"]
mod files;

/// A task, and the system that has its process.
pub(crate) struct Process {
    pub(crate) task: Task,
    pub(crate) system: System,
}

/// The traced child, and the simulated machine.
pub(crate) struct World {
    child: libc::pid_t,
    memory: File,
    slots: BTreeMap<u32, (u64, u64)>,
    /// The memory objects, by number: file, and descriptor in the child.
    objects: BTreeMap<u64, (File, u64)>,
    /// The areas that map an object, by slot: first address, end, object and offset in it.
    shown: BTreeMap<u32, (u64, u64, u64, u64)>,
    /// The objects of a saved process until it is restored; meanwhile areas name them by the complements of their
    /// indices.
    saved: Vec<Option<(File, u64)>>,
    pub(crate) files: Rc<Shared>,
    pub(crate) session: Session,
    pub(crate) console_in: VecDeque<u8>,
    /// Whether the input ends behind `console_in`.
    pub(crate) console_ends: bool,
    pub(crate) console_out: Vec<u8>,
    /// How many bytes the console takes before it has to be asked again.
    pub(crate) console_room: usize,
    pub(crate) now: u64,
    random: u64,
    pub(crate) log: Vec<String>,
    /// Bytes of free memory; small values let programs meet `ENOMEM`.
    pub(crate) free: u64,
    /// Whether the file system answers nothing at once.
    pub(crate) is_late: bool,
    late: Late,
    /// The memory that the process is going to have ([`Host::stage`]).
    staged: Option<File>,
    /// Whether a call is being made.
    calls: bool,
    /// The files that the call has closed, which are closed when it is done.
    closed: Vec<u64>,
}

/// The number of the only task.
const TID: Tid = 1;

fn check(result: libc::c_long, what: &str) -> libc::c_long {
    assert!(result >= 0, "{what}: {}", std::io::Error::last_os_error());
    result
}

/// Whether this machine lets a process be traced.
pub(crate) fn available() -> bool {
    // SAFETY: plain system calls; the child only makes such.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let refused = libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0;
            libc::_exit(i32::from(refused));
        }
        let mut status = 0;
        child > 0 && libc::waitpid(child, &mut status, 0) == child && status == 0
    }
}

impl World {
    /// A stopped child with no memory below 64 GiB, and an empty file system.
    pub(crate) fn new() -> Self {
        let name = CString::new("memory").unwrap();
        // SAFETY: plain system calls; between fork and the stop the child only makes such.
        let (child, memory) = unsafe {
            let fd = check(libc::memfd_create(name.as_ptr(), 0).into(), "memfd_create") as i32;
            let memory = File::from_raw_fd(fd);
            memory.set_len(personality::memory::END).unwrap();
            let child = libc::fork();
            if child == 0 {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::dup2(fd, MEMORY_FD);
                libc::raise(libc::SIGSTOP);
                libc::_exit(99);
            }
            check(child.into(), "fork");
            (child, memory)
        };
        let mut files = FileSystem::new(1 << 30);
        files.budget().set_left(1 << 30);
        files.make_devices().unwrap();
        let files = Shared::new(files, |_| ());
        let world = World {
            session: Session::new(&files, 0, 1 << 20),
            child,
            memory,
            slots: BTreeMap::new(),
            objects: BTreeMap::new(),
            shown: BTreeMap::new(),
            saved: Vec::new(),
            files,
            console_in: VecDeque::new(),
            console_ends: true,
            console_out: Vec::new(),
            console_room: usize::MAX,
            now: 1_600_000_000_000_000_000,
            random: 1,
            log: Vec::new(),
            free: 1 << 30,
            is_late: false,
            late: Late::new(),
            staged: None,
            calls: false,
            closed: Vec::new(),
        };
        assert!(libc::WIFSTOPPED(world.wait()));
        world.trace(
            libc::PTRACE_SETOPTIONS,
            libc::PTRACE_O_TRACESYSGOOD as usize,
        );
        world
    }

    fn wait(&self) -> i32 {
        let mut status = 0;
        // SAFETY: writes one number.
        check(
            unsafe { libc::waitpid(self.child, &mut status, 0) }.into(),
            "waitpid",
        );
        status
    }

    fn trace(&self, request: libc::c_uint, data: usize) {
        // SAFETY: the requests used here read at most what `data` points to.
        check(
            unsafe { libc::ptrace(request, self.child, 0, data) },
            "ptrace",
        );
    }

    fn registers(&self) -> libc::user_regs_struct {
        // SAFETY: plain data, which the call fills in.
        unsafe {
            let mut registers: libc::user_regs_struct = core::mem::zeroed();
            let at = &mut registers as *mut libc::user_regs_struct;
            check(
                libc::ptrace(libc::PTRACE_GETREGS, self.child, 0, at),
                "PTRACE_GETREGS",
            );
            registers
        }
    }

    fn set_registers(&self, registers: &libc::user_regs_struct) {
        let at: *const libc::user_regs_struct = registers;
        self.trace(libc::PTRACE_SETREGS, at as usize);
    }

    /// Lets the child make a system call of its own.
    fn inject(&self, number: libc::c_long, arguments: [u64; 6]) -> i64 {
        let before = self.registers();
        let mut registers = before;
        let at = syscall_instruction as *const () as u64;
        registers.rip = at;
        registers.rax = number as u64;
        registers.orig_rax = u64::MAX;
        [
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.r10,
            registers.r8,
            registers.r9,
        ] = arguments;
        self.set_registers(&registers);
        loop {
            self.trace(libc::PTRACE_SINGLESTEP, 0);
            let status = self.wait();
            assert!(libc::WIFSTOPPED(status), "the child is gone: {status:#x}");
            let now = self.registers();
            if now.rip == at + 2 {
                self.set_registers(&before);
                return now.rax as i64;
            }
            assert_eq!(now.rip, at, "the injected call went astray");
        }
    }

    fn show(&self, area: &Area) {
        let (start, size) = (area.start, area.end - area.start);
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let (fd, offset) = match area.source() {
            Source::Own => (MEMORY_FD as u64, start),
            Source::Object { id, offset } => (self.objects[&id].1, offset),
        };
        let arguments = [start, size, u64::from(area.prot), flags as u64, fd, offset];
        assert_eq!(
            self.inject(libc::SYS_mmap, arguments),
            start as i64,
            "injected mmap"
        );
    }

    /// The file with a byte of the process's memory, and the offset in it.
    fn place(&self, address: u64) -> (&File, u64) {
        let mut shown = self.shown.values();
        match shown.find(|(start, end, ..)| (*start..*end).contains(&address)) {
            Some((start, _, id, offset)) => (&self.objects[id].0, offset + (address - start)),
            None => (&self.memory, address),
        }
    }

    /// Keeps these objects of a process that is saved, and drops the others.
    fn take_objects(&mut self, ids: &[u64]) {
        let mut objects = std::mem::take(&mut self.objects);
        for (_, _, object, _) in self.shown.values_mut() {
            *object = !(ids.iter().position(|id| id == object).unwrap() as u64);
        }
        self.saved = ids.iter().map(|id| objects.remove(id)).collect();
    }

    fn hide(&self, start: u64, size: u64) {
        assert_eq!(self.inject(libc::SYS_munmap, [start, size, 0, 0, 0, 0]), 0);
    }

    /// Makes a file.
    pub(crate) fn add(&mut self, path: &str, contents: &[u8], permissions: u32) {
        let flags = Flags {
            create: true,
            truncate: true,
            ..Flags::default()
        };
        let opened = self.session.open_file(flags.bits(), permissions, path);
        let (ino, ..) = opened.unwrap();
        self.session.write(ino, 0, contents).unwrap();
        self.session.close(ino).unwrap();
    }

    /// Makes a directory and those above it.
    pub(crate) fn add_directory(&mut self, path: &str) {
        let mut made = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            made.push('/');
            made.push_str(part);
            let _ = self.session.mkdir(0o755, &made);
        }
    }

    /// The contents of a file.
    pub(crate) fn contents(&mut self, path: &str) -> Option<Vec<u8>> {
        let files = self.files.borrow_mut();
        let attr = files.stat(path, true).ok()?;
        let mut all = Vec::new();
        while all.len() < attr.size as usize {
            let more = files.read(attr.ino, all.len() as u64, 65536).ok()?;
            if more.is_empty() {
                break;
            }
            all.extend_from_slice(&more);
        }
        Some(all)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // SAFETY: ends and collects our own child.
        unsafe {
            libc::kill(self.child, libc::SIGKILL);
            libc::waitpid(self.child, core::ptr::null_mut(), 0);
        }
    }
}

fn punch(file: &File, start: u64, size: u64) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a plain system call on our own file.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), mode, start as i64, size as i64) };
    check(result.into(), "fallocate");
}

/// Copies the data of a sparse file to the same offsets in another one, which is empty there.
fn copy_data(from: &File, to: &File) {
    let mut at = 0;
    let mut piece = vec![0; 1 << 16];
    loop {
        // SAFETY: a plain system call on our own file.
        at = unsafe { libc::lseek(from.as_raw_fd(), at, libc::SEEK_DATA) };
        if at < 0 {
            return;
        }
        from.read_exact_at(&mut piece, at as u64).unwrap();
        to.write_all_at(&piece, at as u64).unwrap();
        at += piece.len() as i64;
    }
}

/// The address of a page in the child that no program uses.
const SCRATCH: u64 = 0x6000_0000_0000;
/// The descriptor of the memory in the child.
const MEMORY_FD: i32 = 200;

impl Host for World {
    fn room(&mut self, _: u64) -> Result<(), Errno> {
        Ok(())
    }

    fn read_memory(&mut self, address: u64, into: &mut [u8]) -> Result<(), OutOfMemory> {
        for (at, byte) in (address..).zip(into.chunks_mut(1)) {
            if self.shown.is_empty() {
                self.memory.read_exact_at(into, address).unwrap();
                return Ok(());
            }
            let (file, offset) = self.place(at);
            file.read_exact_at(byte, offset).unwrap();
        }
        Ok(())
    }

    fn write_memory(&mut self, address: u64, bytes: &[u8]) -> Result<(), OutOfMemory> {
        for (at, byte) in (address..).zip(bytes.chunks(1)) {
            if self.shown.is_empty() {
                self.memory.write_all_at(bytes, address).unwrap();
                return Ok(());
            }
            let (file, offset) = self.place(at);
            file.write_all_at(byte, offset).unwrap();
        }
        Ok(())
    }

    fn new_object(&mut self, id: u64) -> Result<(), Errno> {
        let name = CString::new("object").unwrap();
        // SAFETY: a plain system call.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), 0) };
        check(fd.into(), "memfd_create");
        // SAFETY: the descriptor is our own.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(personality::memory::END).unwrap();
        // The child opens it by its name in our own directory of descriptors.
        let path = format!("/proc/{}/fd/{fd}\0", std::process::id());
        let at = SCRATCH;
        let arguments = [
            at,
            4096,
            3,
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64,
            u64::MAX,
            0,
        ];
        assert_eq!(self.inject(libc::SYS_mmap, arguments), at as i64);
        let child = File::options()
            .write(true)
            .open(format!("/proc/{}/mem", self.child))
            .unwrap();
        child.write_all_at(path.as_bytes(), at).unwrap();
        let theirs = self.inject(libc::SYS_open, [at, libc::O_RDWR as u64, 0, 0, 0, 0]);
        assert!(theirs >= 0, "injected open: {theirs}");
        self.objects.insert(id, (file, theirs as u64));
        Ok(())
    }

    fn adopt_object(&mut self, id: u64, number: usize) -> Result<(), Errno> {
        let object = self.saved[number].take().expect("an object once");
        self.objects.insert(id, object);
        let those = self.shown.values_mut();
        for (_, _, object, _) in those.filter(|(_, _, object, _)| *object == !(number as u64)) {
            *object = id;
        }
        Ok(())
    }

    fn end_object(&mut self, id: u64) {
        let (_, theirs) = self
            .objects
            .remove(&id)
            .expect("an object that is not there");
        self.inject(libc::SYS_close, [theirs, 0, 0, 0, 0, 0]);
    }

    fn read_object(&mut self, id: u64, offset: u64, into: &mut [u8]) -> Result<(), OutOfMemory> {
        self.objects[&id].0.read_exact_at(into, offset).unwrap();
        Ok(())
    }

    fn write_object(&mut self, id: u64, offset: u64, bytes: &[u8]) -> Result<(), OutOfMemory> {
        self.objects[&id].0.write_all_at(bytes, offset).unwrap();
        Ok(())
    }

    fn discard_object(&mut self, id: u64, offset: u64, size: u64) {
        punch(&self.objects[&id].0, offset, size);
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
        punch(&self.memory, start, size);
    }

    fn map(&mut self, area: &Area) -> Result<(), Errno> {
        let (slot, start, size) = (area.slot, area.start, area.end - area.start);
        for (other, (from, length)) in &self.slots {
            assert_ne!(*other, slot, "a mapping is made twice");
            assert!(
                start >= from + length || *from >= start + size,
                "mappings overlap"
            );
        }
        self.slots.insert(slot, (start, size));
        if let Source::Object { id, offset } = area.source() {
            self.shown.insert(slot, (start, area.end, id, offset));
        }
        self.show(area);
        Ok(())
    }

    fn remap(&mut self, area: &Area) -> Result<(), Errno> {
        let (from, length) = self.slots.remove(&area.slot).ok_or(ENOMEM)?;
        self.shown.remove(&area.slot);
        self.hide(from, length);
        self.map(area)
    }

    fn unmap(&mut self, slot: u32) {
        let (from, length) = self
            .slots
            .remove(&slot)
            .expect("a mapping that is not there");
        self.shown.remove(&slot);
        self.hide(from, length);
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
        if !self.is_late || !self.calls {
            return self.fs_now(request, bulk, into);
        }
        if let Request::Close { ino } = request {
            self.closed.push(*ino);
            return Ok((Reply::Done, 0));
        }
        let mut close = Vec::new();
        let told = match self.late.ask(TID, request, &mut close) {
            Told::Answer(answer) => Ok(answer.clone()),
            Told::Ask(number) => Err(Some(number)),
            Told::Wait => Err(None),
        };
        assert_eq!(
            close,
            [],
            "a call asks for something else when it is made again"
        );
        match told {
            Ok(answer) => {
                let (reply, bytes) = answer?;
                into[..bytes.len()].copy_from_slice(&bytes);
                Ok((reply, bytes.len()))
            }
            Err(number) => {
                if let Some(number) = number {
                    let mut bytes = vec![0; into.len()];
                    let answer = self.fs_now(request, bulk, &mut bytes);
                    let answer = answer.map(|(reply, came)| (reply, bytes[..came].to_vec()));
                    assert_eq!(self.late.answered(number, answer), Ok(TID));
                }
                Err(proto::Error::WouldBlock)
            }
        }
    }

    fn fs_now(
        &mut self,
        request: &Request,
        bulk: &[u8],
        into: &mut [u8],
    ) -> Result<(Reply, usize), proto::Error> {
        self.files.borrow_mut().set_now(self.now);
        let (reply, bytes) = files::ask(&self.session, request, bulk)?;
        into[..bytes.len()].copy_from_slice(&bytes);
        Ok((reply, bytes.len()))
    }

    fn waits(&self) -> bool {
        self.late.waits(TID)
    }

    fn asked(&self) -> Option<&Request> {
        self.late.asked(TID)
    }

    fn end_call(&mut self) -> bool {
        self.calls = false;
        let waits = self.waits();
        for ino in std::mem::take(&mut self.closed) {
            if !waits {
                self.fs_now(&Request::Close { ino }, &[], &mut []).unwrap();
            }
        }
        let mut rest = Vec::new();
        self.late.end(TID, &mut rest);
        for ino in rest {
            self.fs_now(&Request::Close { ino }, &[], &mut []).unwrap();
        }
        waits
    }

    fn is_unsynced(&self, _: u64) -> bool {
        self.is_late
    }

    fn console_write(&mut self, bytes: &[u8]) -> Result<usize, proto::Error> {
        let taken = bytes.len().min(self.console_room);
        if taken == 0 {
            return Err(proto::Error::WouldBlock);
        }
        if self.console_room != usize::MAX {
            self.console_room -= taken;
        }
        self.console_out.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn console_read(&mut self, into: &mut [u8], _mode: Mode) -> Result<usize, proto::Error> {
        if self.console_in.is_empty() {
            return if self.console_ends {
                Ok(0)
            } else {
                Err(proto::Error::WouldBlock)
            };
        }
        let line = self
            .console_in
            .iter()
            .position(|b| *b == b'\n')
            .map_or(usize::MAX, |n| n + 1);
        let length = into.len().min(self.console_in.len()).min(line);
        for (to, from) in into.iter_mut().zip(self.console_in.drain(..length)) {
            *to = from;
        }
        Ok(length)
    }

    fn console_readable(&mut self, _mode: Mode) -> bool {
        !self.console_in.is_empty() || self.console_ends
    }

    fn console_mode(&mut self, _mode: Mode) {}

    fn now(&mut self) -> u64 {
        self.now += 1000;
        self.now
    }

    fn date(&mut self) -> u64 {
        self.now()
    }

    fn random(&mut self, into: &mut [u8]) -> Result<(), Errno> {
        for byte in into {
            self.random = self
                .random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = (self.random >> 56) as u8;
        }
        Ok(())
    }

    fn gives_secrets(&mut self) -> Result<bool, Errno> {
        Ok(true)
    }

    fn hardware_capabilities(&mut self) -> u64 {
        u64::from(std::arch::x86_64::__cpuid(1).edx)
    }

    fn fpu(&mut self, into: &mut [u8; abi::state::FPU_BYTES]) {
        let at = into.as_mut_ptr();
        // SAFETY: the call writes 512 bytes.
        let result = unsafe { libc::ptrace(libc::PTRACE_GETFPREGS, self.child, 0, at) };
        check(result, "PTRACE_GETFPREGS");
    }

    fn log(&mut self, sentence: &str) {
        self.log.push(sentence.to_string());
    }

    fn start(&mut self, _start: Start) -> Result<(), Errno> {
        Err(ENOMEM)
    }

    fn stage(&mut self, _: Option<&Loaded>) -> Result<bool, Errno> {
        // SAFETY: the name is a string, and the descriptor is nobody else's.
        let file = unsafe {
            let fd = libc::memfd_create(c"staged".as_ptr(), 0);
            check(fd.into(), "memfd_create");
            File::from_raw_fd(fd)
        };
        file.set_len(personality::memory::END).unwrap();
        self.staged = Some(file);
        Ok(false)
    }

    fn write_staged(&mut self, address: u64, bytes: &[u8]) -> Result<(), OutOfMemory> {
        let staged = self.staged.as_ref().unwrap();
        staged.write_all_at(bytes, address).unwrap();
        Ok(())
    }

    fn unstage(&mut self) {
        self.staged = None;
    }

    fn leave_memory(&mut self) -> Result<(), Errno> {
        // The child keeps its memory, which gets the contents of the staged one.
        let staged = self.staged.take().ok_or(ENOMEM)?;
        for (from, length) in core::mem::take(&mut self.slots).into_values() {
            self.hide(from, length);
        }
        self.shown.clear();
        self.discard(0, personality::memory::END);
        copy_data(&staged, &self.memory);
        Ok(())
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Status,
    pub(crate) calls: u64,
    pub(crate) parks: u64,
    /// Calls by number.
    pub(crate) seen: BTreeMap<u64, u64>,
}

/// What a test does between two calls of the program.
pub(crate) trait Observer {
    /// A call is about to be emulated. The process may be replaced by one that was saved and restored.
    fn before(&mut self, _world: &mut World, _process: &mut Process, _registers: &Registers) {}

    /// The call waits, and is made again afterwards. The default lets the time pass until its deadline.
    fn parked(&mut self, world: &mut World, process: &Process, wake: emulate::Wake) {
        match wake.deadline {
            Some(deadline) => world.now = deadline.wrapping_sub(process.task.clock_offset),
            None => panic!("{} waits for ever", process.task.name()),
        }
    }
}

/// Does nothing.
pub(crate) struct Quiet;
impl Observer for Quiet {}

/// Where a standard stream goes.
pub(crate) enum Stream {
    Console,
    File(&'static str),
}

/// A process of the program, ready to run.
pub(crate) fn start(
    world: &mut World,
    program: &str,
    args: &[&str],
    cwd: &str,
    streams: [Stream; 3],
) -> Result<(Process, Registers), exec::Failure> {
    // An earlier process may have left memory.
    for (from, length) in core::mem::take(&mut world.slots).into_values() {
        world.hide(from, length);
    }
    world.discard(0, personality::memory::END);
    let mut system = System::new();
    let task = Task::new(system.create(None).unwrap(), cwd.to_string());
    system.process(task.pid).actions = Rc::clone(&task.shares.actions);
    let mut process = Process { task, system };
    for (fd, stream) in streams.into_iter().enumerate() {
        let (kind, flags) = match stream {
            Stream::Console => (Kind::Device(Device::Console), open_flags::RDWR),
            Stream::File(path) => {
                let create = fd > 0;
                let flags = Flags {
                    create,
                    truncate: create,
                    ..Flags::default()
                };
                let opened = world.session.open_file(flags.bits(), 0o644, path);
                let (ino, ..) = opened.unwrap();
                (Kind::File { ino }, u32::from(create))
            }
        };
        let flags = flags | open_flags::LARGEFILE;
        let description = Description {
            kind,
            flags,
            offset: 0,
            owner: None,
        };
        process.system.busy.opened(&description);
        let mut files = process.task.shares.files.borrow_mut();
        files.install(fd as u32, description, false);
    }
    let args = args.iter().map(|a| a.as_bytes().to_vec()).collect();
    let env = vec![b"PATH=/bin".to_vec(), b"TZ=UTC0".to_vec()];
    let prepared = {
        let shares = process.task.shares.clone();
        let current = Current::new(&mut process.task, &shares);
        exec::prepare(&current, &process.system, world, program, args, env)?
    };
    let Process { task, system } = &mut process;
    system.process(task.pid).started = world.now;
    let registers = exec::commit(task, system, world, prepared).expect("loading failed");
    Ok((process, registers))
}

/// Runs a process to its end.
pub(crate) fn run(
    world: &mut World,
    mut process: Process,
    registers: Registers,
    observer: &mut dyn Observer,
) -> Ended {
    let mut ended = Ended {
        status: Status::Running,
        calls: 0,
        parks: 0,
        seen: BTreeMap::new(),
    };
    let mut fpu = Some(Box::new(abi::state::FpuState(abi::state::initial_fpu())));
    let mut next = registers;
    let mut exceptions = 0;
    loop {
        if ended.calls > 1_000_000 || exceptions > 1000 {
            let out = world.contents("/out").unwrap_or_default();
            let tail = String::from_utf8_lossy(&out[out.len().saturating_sub(500)..]).into_owned();
            panic!(
                "it goes on and on at {:#x}; its last words:\n{tail}",
                next.rip
            );
        }
        resume(world, &next, fpu.take());
        let status = world.wait();
        assert!(libc::WIFSTOPPED(status), "the child is gone: {status:#x}");
        let signal = libc::WSTOPSIG(status);
        let mut registers = from_user(&world.registers());
        let outcome = if signal == libc::SIGTRAP | 0x80 {
            registers.rip -= 2;
            registers.rax = world.registers().orig_rax;
            *ended.seen.entry(registers.rax).or_default() += 1;
            ended.calls += 1;
            loop {
                observer.before(world, &mut process, &registers);
                world.late.begin(TID);
                world.calls = true;
                let outcome =
                    emulate::call(&mut process.task, &mut process.system, world, &registers);
                match outcome {
                    Outcome::Park(_) if world.waits() => {}
                    // Other tasks have their turn: mapped files are written back.
                    Outcome::Park(_) if process.system.objects.is_due() => {
                        process.system.settle_objects(world);
                    }
                    Outcome::Park(wake) => {
                        ended.parks += 1;
                        if !ring(world, &mut process, &wake) {
                            observer.parked(world, &process, wake);
                        }
                    }
                    Outcome::Turn => {}
                    Outcome::Execute(prepared) => {
                        let Process { task, system } = &mut process;
                        break emulate::execute(task, system, world, *prepared);
                    }
                    outcome => break outcome,
                }
            }
        } else {
            exceptions += 1;
            let message = message(world, signal, registers);
            emulate::exception(&mut process.task, &mut process.system, world, &message)
        };
        match outcome {
            Outcome::Go {
                registers,
                fpu: new,
            } => {
                next = registers;
                fpu = new;
            }
            Outcome::End(status) => {
                ended.status = status;
                return ended;
            }
            outcome => panic!("a single thread comes to {outcome:?}"),
        }
    }
}

/// Lets the process's next timer go off if that comes before the end of its wait: whether it has.
fn ring(world: &mut World, process: &mut Process, wake: &emulate::Wake) -> bool {
    let Process { task, system } = process;
    let Some(next) = system.process(task.pid).timers.earliest() else {
        return false;
    };
    if wake.deadline.is_some_and(|deadline| deadline < next) {
        return false;
    }
    world.now = next.wrapping_sub(task.clock_offset);
    let Process { task, system } = process;
    let of_process = &mut system.process(task.pid);
    let (timers, pending) = (&mut of_process.timers, &mut of_process.pending);
    let rung = timers.ring(next, next, |id, _, overrun| {
        pending.add_overrun(id, overrun) || task.signals.pending.add_overrun(id, overrun)
    });
    for rung in rung {
        let actions = task.shares.actions.borrow();
        task.signals.post(&actions, rung.signal, rung.origin);
    }
    true
}

/// The offset of a process's first thread in the control segment.
pub(crate) const FIRST: u64 = proto::layout::CONTROL_THREAD;

/// The part of a process. Its objects are kept for the process that is restored from the part.
pub(crate) fn save(
    task: &Task,
    system: &System,
    world: &mut World,
) -> Result<Vec<u8>, part::Refusal> {
    let made = made(task, system, world)?;
    world.take_objects(&made.objects);
    Ok(made.part)
}

fn made(task: &Task, system: &System, world: &mut World) -> Result<part::Made, part::Refusal> {
    let known = |_| (None, String::new());
    let tasks = [(FIRST, task)];
    let what = part::What {
        root: task.pid,
        files: false,
        cut: false,
    };
    let mut gathered = part::Gathered::default();
    loop {
        let set = what.set(system);
        match part::save((what, &set), &mut gathered, &tasks, known, system, world) {
            Err(part::Refusal::Turn) => {}
            made => return made,
        }
    }
}

/// Saves the process, ends it in the personality, and restores it from the part.
pub(crate) fn replace(world: &mut World, process: &mut Process) {
    let Process { task, system } = process;
    let saved = made(task, system, world).expect("the process can be saved");
    let offset = task.clock_offset;
    // Mapped files are written back when the process ends, so that they are what the part says of them.
    let objects: Vec<u64> = task.shares.memory.borrow().objects.ids().collect();
    for id in objects {
        let files: Vec<u64> = system.objects.ino(id).into_iter().collect();
        system.objects.write_back(id, true);
        system.settle_files(world, &files);
    }
    world.take_objects(&saved.objects);
    task.close_files(system, world);
    // The personality knows which files are FIFOs, not the process.
    let nodes = std::mem::take(&mut system.nodes);
    *process = adopt_beside(world, &saved.part, offset, nodes);
}

/// Restores a process from its part.
pub(crate) fn adopt(world: &mut World, saved: &[u8], offset: u64) -> Process {
    adopt_beside(world, saved, offset, Nodes::default())
}

fn adopt_beside(world: &mut World, saved: &[u8], offset: u64, nodes: Nodes) -> Process {
    let mut system = System::new();
    system.nodes = nodes;
    let pid = system.create(None).unwrap();
    let counts = (1, world.saved.len());
    let adopted = part::adopt(saved, counts, offset, pid, &mut system, world);
    let task = adopted.expect("the part is sound").tasks.remove(0).task;
    Process { task, system }
}

/// The code of a signal that has no address.
const SI_KERNEL: i32 = 128;
/// The code of an integer division.
const FPE_INTDIV: i32 = 1;

/// Whether the child has an x87 error.
fn has_x87_error(world: &mut World) -> bool {
    let mut state = abi::state::initial_fpu();
    world.fpu(&mut state);
    state[2] & 0x80 != 0
}

fn message(world: &mut World, signal: i32, registers: Registers) -> ExceptionMessage {
    // SAFETY: plain data, which the call fills in.
    let (address, how) = unsafe {
        let mut info: libc::siginfo_t = core::mem::zeroed();
        let at = &mut info as *mut libc::siginfo_t;
        check(
            libc::ptrace(libc::PTRACE_GETSIGINFO, world.child, 0, at),
            "PTRACE_GETSIGINFO",
        );
        (info.si_addr() as u64, info.si_code)
    };
    let code = match signal {
        libc::SIGSEGV if how == SI_KERNEL => Exception::Protection,
        libc::SIGSEGV => Exception::Memory,
        libc::SIGBUS if how == SI_KERNEL => Exception::Processor,
        libc::SIGILL => Exception::InvalidOpcode,
        libc::SIGFPE if how == FPE_INTDIV => Exception::Divide,
        libc::SIGFPE if has_x87_error(world) => Exception::X87,
        libc::SIGFPE => Exception::Simd,
        libc::SIGTRAP => Exception::Breakpoint,
        other => panic!("unexpected signal {other} at {:#x}", registers.rip),
    };
    let detail = match code {
        // All memory faults of the tests are writes.
        Exception::Memory => 2,
        _ => 0,
    };
    ExceptionMessage {
        code: code as u64,
        address,
        detail,
        tag: 0,
        registers,
    }
}

fn resume(world: &World, r: &Registers, fpu: Option<Fpu>) {
    if let Some(fpu) = fpu {
        world.trace(libc::PTRACE_SETFPREGS, fpu.0.as_ptr() as usize);
    }
    let mut u = world.registers();
    (u.rax, u.rbx, u.rcx, u.rdx) = (r.rax, r.rbx, r.rcx, r.rdx);
    (u.rsi, u.rdi, u.rbp, u.rsp) = (r.rsi, r.rdi, r.rbp, r.rsp);
    (u.r8, u.r9, u.r10, u.r11) = (r.r8, r.r9, r.r10, r.r11);
    (u.r12, u.r13, u.r14, u.r15) = (r.r12, r.r13, r.r14, r.r15);
    (u.rip, u.eflags) = (r.rip, r.rflags);
    (u.fs_base, u.gs_base) = (r.fs_base, r.gs_base);
    u.orig_rax = u64::MAX;
    world.set_registers(&u);
    world.trace(libc::PTRACE_SYSEMU, 0);
}

fn from_user(u: &libc::user_regs_struct) -> Registers {
    Registers {
        rax: u.rax,
        rbx: u.rbx,
        rcx: u.rcx,
        rdx: u.rdx,
        rsi: u.rsi,
        rdi: u.rdi,
        rbp: u.rbp,
        rsp: u.rsp,
        r8: u.r8,
        r9: u.r9,
        r10: u.r10,
        r11: u.r11,
        r12: u.r12,
        r13: u.r13,
        r14: u.r14,
        r15: u.r15,
        rip: u.rip,
        rflags: u.eflags,
        fs_base: u.fs_base,
        gs_base: u.gs_base,
    }
}
