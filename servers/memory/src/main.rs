//! The memory server: makes the kernel calls that `memory::segments` decides on, and answers requests.
//!
//! Init starts it with a reference to the root region, maps its own memory beforehand, and names the
//! free physical memory in its arguments (`START+SIZE`, hexadecimal). It maps all of that into its
//! own space, for zeroing and copying, and exports windows of its space as segments.
//!
//! Everything comes to one thread as register messages: faults as the kernel sends them, requests as
//! idempotent calls. Nothing that it does can fault or wait, so nobody can hold it up.
#![no_std]
#![no_main]

extern crate alloc;

use abi::access::{ALL, READ, WRITE};
use abi::state::{MappingState, RegionState};
use abi::{Call, Code, MAX_SHORT, PAGE_SIZE};
use alloc::vec::Vec;
use memory::accounts;
use memory::chunks::{Chunks, CHUNK};
use memory::segments::{Id, Machine, Progress, Refusal, Segments, Shown};
use proto::layout::{MEMORY_SIZE, PRIORITY_PROGRAM};
use proto::memory::{Reply, Request};
use proto::Error;
use rt::obj::{Mapping, MappingAt, Port, Portset, Ref, RefAt, RefBlock, Region};
use rt::server::new_port;
use rt::sys::{self, IpcRegs};
use rt::{error_of, slots, start, window};
use serde::de::DeserializeOwned;

rt::entry!(main);

/// Where physical memory is mapped: the address is the sum of this and the physical address.
const PHYSICAL: u64 = 0x0800_0000_0000;

/// The ports of the server are told apart by the upper half of their alias; the lower half is the number of
/// the segment or account.
mod alias {
    /// The supervisor port.
    pub(crate) const SUPERVISOR: u64 = 0;
    /// An account.
    pub(crate) const ACCOUNT: u64 = 1;
    /// Control port of an account.
    pub(crate) const ACCOUNT_CONTROL: u64 = 2;
    /// Control port of a segment.
    pub(crate) const CONTROL: u64 = 3;
    /// Keeper of a segment's region.
    pub(crate) const KEEPER: u64 = 4;
    /// Where the server's second thread asks for steps of taking apart what has ended.
    pub(crate) const REAPER: u64 = 5;

    pub(crate) const fn of(kind: u64, id: usize) -> u64 {
        kind << 32 | id as u64
    }
}

/// References that init puts into the start page.
mod passed {
    /// The root region.
    pub(crate) const ROOT: usize = 0;
    /// A reference that the server points at its supervisor port.
    pub(crate) const SUPERVISOR: usize = 1;
    /// The thread to interrupt when that is done.
    pub(crate) const STARTER: usize = 2;
}

/// The part of the memory that is kept for the promises of new accounts.
const SPARE_PART: usize = 4;

/// The kernel calls that the bookkeeping makes.
struct Calls {
    root: RefAt,
}

impl Calls {
    fn state(shown: Shown) -> MappingState {
        MappingState {
            start: shown.address,
            size: shown.size,
            offset: shown.physical,
            protection: shown.rights,
        }
    }
}

impl Machine for Calls {
    fn map(&mut self, shown: Shown) -> Option<u64> {
        let slot = slots::allocate(1)?;
        let mapping = MappingAt(slot);
        if mapping.create().is_err() {
            slots::free(slot, 1);
            return None;
        }
        if mapping
            .set_state(&Calls::state(shown), self.root.0, 0)
            .is_err()
        {
            self.unmap(slot);
            return None;
        }
        Some(slot)
    }

    fn change(&mut self, mapping: u64, shown: Shown) -> bool {
        MappingAt(mapping)
            .set_state(&Calls::state(shown), self.root.0, 0)
            .is_ok()
    }

    fn unmap(&mut self, mapping: u64) {
        let _ = MappingAt(mapping).destroy();
        slots::free(mapping, 1);
    }

    fn zero(&mut self, physical: u64, size: u64) {
        // SAFETY: physical memory that this server manages, mapped here, and no Rust object.
        unsafe { core::ptr::write_bytes((PHYSICAL + physical) as *mut u8, 0, size as usize) };
    }

    fn copy(&mut self, from: u64, to: u64, size: u64) {
        // SAFETY: as for `zero`; the two are different chunks.
        unsafe {
            core::ptr::copy_nonoverlapping(
                (PHYSICAL + from) as *const u8,
                (PHYSICAL + to) as *mut u8,
                size as usize,
            );
        }
    }

    fn has_objects(&mut self, physical: u64, size: u64) -> bool {
        self.root
            .search(physical, physical + size, ALL_TYPES)
            .is_ok()
    }

    fn destroy_objects(&mut self, physical: u64, size: u64, most: u64) -> u64 {
        let end = physical + size;
        let mut at = physical;
        for gone in 0..most {
            let Ok((found, kind)) = self.root.search(at, end, ALL_TYPES) else {
                return gone;
            };
            destroy_object(PHYSICAL + found, kind);
            at = found + abi::OBJECT_SIZE;
        }
        most
    }
}

/// For `region_search`: objects of every type, but no pages.
const ALL_TYPES: u64 = 0x3fe;

fn destroy_object(handle: u64, kind: u64) {
    use abi::Type;
    match Type::from_raw(kind) {
        Some(Type::Mutex) => sys::mutex_destroy(handle, 0),
        Some(Type::Cond) => sys::cond_destroy(handle, 0),
        Some(Type::Mapping) => sys::mapping_destroy(handle, 0),
        Some(Type::Region) => sys::region_destroy(handle, 0),
        Some(Type::Port) => sys::port_destroy(handle, 0),
        Some(Type::Portset) => sys::portset_destroy(handle, 0),
        Some(Type::Space) => sys::space_destroy(handle, 0),
        Some(Type::Thread) => sys::thread_destroy(handle, 0),
        Some(Type::Reference) => sys::reference_destroy(handle, 0),
        None => Code::Ok,
    };
}

/// The objects of a segment.
struct Objects {
    _region: Region,
    /// The ports live with it.
    _control: Port,
    _keeper: Port,
}

/// The ports of an account.
struct AccountPorts {
    _account: Port,
    _control: Port,
}

const fn reply_of(progress: Progress) -> Reply {
    match progress {
        Progress::Done => Reply::Done,
        Progress::More(bytes) => Reply::More(bytes),
    }
}

/// A reply, and the number of references that go with it.
type Answer = (Reply, usize);

struct Server {
    segments: Segments,
    calls: Calls,
    objects: Vec<Option<Objects>>,
    accounts: Vec<Option<AccountPorts>>,
    portset: Portset,
    portset_ref: Ref,
    /// References of a reply.
    outgoing: RefBlock,
    /// The thread that asks for steps of taking apart ([`reaper`]).
    reaper: Option<Ref>,
}

/// Puts a value into the list at its number. Numbers count from 0.
fn put<T>(list: &mut Vec<Option<T>>, id: usize, value: T) {
    if list.len() <= id {
        list.resize_with(id + 1, || None);
    }
    list[id] = Some(value);
}

impl Server {
    fn port(&self, alias: u64) -> Result<Port, Code> {
        new_port(alias, *self.portset_ref)
    }

    fn new_objects(&self, window: u64, size: u64, id: Id) -> Result<Objects, Code> {
        let keeper = self.port(alias::of(alias::KEEPER, id))?;
        let control = self.port(alias::of(alias::CONTROL, id))?;
        let region = Region::new()?;
        let keeper_ref = keeper.reference()?;
        let state = RegionState {
            start: window,
            size,
            protection: ALL,
        };
        region.set_state(&state, 0, keeper_ref.handle())?;
        region.reference_into(self.outgoing.get(0))?;
        control.reference_into(self.outgoing.get(1))?;
        Ok(Objects {
            _region: region,
            _control: control,
            _keeper: keeper,
        })
    }

    /// Makes a segment; its references are then in `outgoing`.
    fn create(&mut self, account: accounts::Id, size: u64) -> Result<Id, Refusal> {
        if size == 0 || !size.is_multiple_of(PAGE_SIZE) || size > MEMORY_SIZE {
            return Err(Error::Invalid.into());
        }
        let room = size.next_multiple_of(CHUNK);
        let align = if room >= 1 << 30 { 1 << 30 } else { CHUNK };
        let window = window::take_addresses(room, align).ok_or(Error::NoMemory)?;
        let id = match self.segments.create(account, window, size) {
            Ok(id) => id,
            Err(refusal) => {
                window::give_addresses(window, room);
                return Err(refusal);
            }
        };
        match self.new_objects(window, size, id) {
            Ok(objects) => put(&mut self.objects, id, objects),
            Err(code) => {
                // Nobody has seen it: it goes at once.
                self.destroy(id)?;
                self.reap();
                return Err(error_of(code).into());
            }
        }
        Ok(id)
    }

    /// Ends a segment. It cannot be reached any more; its memory is freed step by step.
    fn destroy(&mut self, id: Id) -> Result<(), Error> {
        self.segments.destroy(id)?;
        if let Some(place) = self.objects.get_mut(id) {
            *place = None;
        }
        Ok(())
    }

    /// Makes an account; its references are then in `outgoing`.
    fn create_account(&mut self, limits: &proto::memory::Limits) -> Result<(), Refusal> {
        let chunks = |bytes: u64| bytes.div_ceil(CHUNK) as usize;
        let id = self.segments.create_account(accounts::Limits {
            promised: chunks(limits.promised),
            most: chunks(limits.most),
            segments: limits.segments as usize,
        })?;
        match self.account_ports(id) {
            Ok(ports) => put(&mut self.accounts, id, ports),
            Err(code) => {
                self.segments.end_account(id);
                return Err(error_of(code).into());
            }
        }
        Ok(())
    }

    fn account_ports(&self, id: accounts::Id) -> Result<AccountPorts, Code> {
        let account = self.port(alias::of(alias::ACCOUNT, id))?;
        let control = self.port(alias::of(alias::ACCOUNT_CONTROL, id))?;
        account.reference_into(self.outgoing.get(0))?;
        control.reference_into(self.outgoing.get(1))?;
        Ok(AccountPorts {
            _account: account,
            _control: control,
        })
    }

    /// Ends an account and all its segments.
    fn end_account(&mut self, id: accounts::Id) {
        for segment in self.segments.of_account(id) {
            if let Some(place) = self.objects.get_mut(segment) {
                *place = None;
            }
        }
        self.segments.end_account(id);
        if let Some(place) = self.accounts.get_mut(id) {
            *place = None;
        }
    }

    /// Does one step of freeing what has ended.
    fn reap(&mut self) {
        self.segments.reap(&mut self.calls, &mut |window, size| {
            window::give_addresses(window, size.next_multiple_of(CHUNK));
        });
    }

    /// After something has ended: a step at once, which is often all, and the rest when there is time.
    fn ended(&mut self) -> Answer {
        self.reap();
        if let Some(reaper) = self.reaper.as_ref().filter(|_| self.segments.has_ended()) {
            let _ = reaper.interrupt();
        }
        (Reply::Done, 0)
    }

    fn copy(&mut self, from: Id) -> Result<Answer, Refusal> {
        let (account, size) = self.segments.describe(from)?;
        let to = self.create(account, size)?;
        match self.segments.copy(&mut self.calls, from, to) {
            Ok(progress) => Ok((reply_of(progress), 2)),
            Err(refusal) => {
                self.destroy(to)?;
                self.ended();
                Err(refusal)
            }
        }
    }

    /// Serves a request.
    fn serve(&mut self, kind: u64, id: usize, request: Request) -> Result<Answer, Refusal> {
        match (kind, request) {
            (alias::ACCOUNT, Request::Create { size }) => {
                self.create(id, size)?;
                Ok((Reply::Done, 2))
            }
            (alias::CONTROL, Request::Copy) => self.copy(id),
            (alias::CONTROL, Request::CopyOn) => {
                let progress = self.segments.copy_on(&mut self.calls, id)?;
                Ok((reply_of(progress), 0))
            }
            (alias::CONTROL, Request::Discard { offset, size }) => {
                let progress = self.segments.discard(&mut self.calls, id, offset, size)?;
                Ok((reply_of(progress), 0))
            }
            (alias::CONTROL, Request::Populate { offset, size }) => {
                let progress = self.segments.populate(&mut self.calls, id, offset, size)?;
                Ok((reply_of(progress), 0))
            }
            (alias::CONTROL, Request::Destroy) => {
                self.destroy(id)?;
                Ok(self.ended())
            }
            (alias::SUPERVISOR, Request::CreateAccount(limits)) => {
                self.create_account(&limits)?;
                Ok((Reply::Done, 2))
            }
            (alias::ACCOUNT_CONTROL, Request::EndAccount) => {
                self.end_account(id);
                Ok(self.ended())
            }
            (alias::ACCOUNT, Request::Reserve { size }) => {
                self.segments.reserve(id, size)?;
                Ok((Reply::Done, 0))
            }
            (_, Request::Usage) => Ok((self.usage(kind, id), 0)),
            _ => Err(Error::Invalid.into()),
        }
    }

    fn usage(&self, kind: u64, id: usize) -> Reply {
        let of = |account| self.segments.usage(account);
        let ((total, free), resident) = match kind {
            alias::ACCOUNT | alias::ACCOUNT_CONTROL => (of(id), self.segments.taken(id)),
            alias::CONTROL => match self.segments.describe(id) {
                Ok((account, _)) => (of(account), self.segments.resident(id)),
                Err(_) => ((0, 0), 0),
            },
            _ => (self.segments.machine_usage(), 0),
        };
        Reply::Usage {
            total,
            free,
            resident,
        }
    }

    /// Serves a fault or request that has come, and puts the answer into its registers; `None`: there is no answer.
    fn handle(&mut self, code: Code, regs: &mut IpcRegs) -> Option<()> {
        let (kind, id) = (regs.rdi >> 32, (regs.rdi & 0xffff_ffff) as usize);
        let served = match code {
            Code::Fault if kind == alias::KEEPER => {
                let (offset, access) = (regs.rsi, regs.r10);
                let served = self.segments.fault(&mut self.calls, id, offset, access);
                served.map(|()| (Reply::Done, 0))
            }
            Code::Call if kind == alias::REAPER => {
                self.reap();
                Ok((Reply::More(u64::from(self.segments.has_ended())), 0))
            }
            Code::Call => match read(&regs.short_words(), regs.short_len()) {
                Ok(request) => self.serve(kind, id, request),
                Err(error) => Err(error.into()),
            },
            // A message that is too large for a request, or of a form that is not served.
            _ => return None,
        };
        let reply = match served {
            Ok(answer) => Ok(answer),
            Err(Refusal::Error(error)) => Err(error),
            Err(Refusal::Again) => {
                // Without a reply the kernel delivers the request again, after those that wait already.
                self.reap();
                return None;
            }
        };
        if code == Code::Fault {
            // The thread tries again. If there is still no page, the kernel sends an exception to its space's keeper.
            *regs = IpcRegs::default();
        } else {
            let refs = reply.as_ref().map_or(0, |(_, refs)| *refs);
            *regs = answer(&reply.map(|(reply, _)| reply));
            regs.r15 = self.outgoing.list(refs);
        }
        Some(())
    }

    /// Receives messages and answers them. Does not return.
    fn run(&mut self) -> ! {
        let mut regs = IpcRegs::default();
        let mut call = Call::ServerWaitReceiveShort;
        loop {
            regs.rdi = self.portset.handle();
            regs.rbx = 0;
            // SAFETY: register messages touch no memory but the listed references.
            let code = unsafe { sys::ipc(call, &mut regs) };
            call = match self.handle(code, &mut regs) {
                Some(()) => Call::ReplyWaitReceiveShort,
                None => {
                    regs = IpcRegs::default();
                    Call::ServerWaitReceiveShort
                }
            };
        }
    }
}

/// The second thread: where the server itself would keep all others waiting, since it has the highest priority,
/// this one asks it for a step at a time, and gets its turn with the programs.
fn reaper(port: RefAt) {
    loop {
        sys::thread_wait_interrupt();
        loop {
            let mut regs = IpcRegs::to(port.0);
            // SAFETY: a register message without references.
            let code = unsafe { sys::ipc(Call::CallShort, &mut regs) };
            let more = read::<Result<Reply, Error>>(&regs.short_words(), regs.short_len());
            if code != Code::Ok || !matches!(more, Ok(Ok(Reply::More(1)))) {
                break;
            }
        }
    }
}

/// A request or reply from the words of a register message.
fn read<T: DeserializeOwned>(words: &[u64; 8], length: usize) -> Result<T, Error> {
    let mut bytes = [0; MAX_SHORT as usize];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    let message = bytes.get(..length).ok_or(Error::Invalid)?;
    let (header, _) = rt::rpc::split(message).ok_or(Error::Invalid)?;
    postcard::from_bytes(header).map_err(|_| Error::Invalid)
}

/// The registers of a reply. All replies fit.
fn answer(reply: &Result<Reply, Error>) -> IpcRegs {
    let mut bytes = [0; MAX_SHORT as usize];
    let length = postcard::to_slice(reply, &mut bytes[4..]).map_or(0, |used| used.len());
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    let mut words = [0; 8];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut eight = [0; 8];
        eight.copy_from_slice(chunk);
        *word = u64::from_le_bytes(eight);
    }
    let [rsi, rdx, r10, r8, r9, r12, r13, r14] = words;
    let rax = (length as u64 + 4) << 8;
    IpcRegs {
        rax,
        rsi,
        rdx,
        r10,
        r8,
        r9,
        r12,
        r13,
        r14,
        ..IpcRegs::default()
    }
}

/// A range from an argument, `START+SIZE`.
fn range(argument: &str) -> Option<(u64, u64)> {
    let (first, size) = argument.split_once('+')?;
    Some((
        u64::from_str_radix(first, 16).ok()?,
        u64::from_str_radix(size, 16).ok()?,
    ))
}

/// Maps the free memory and makes the server.
fn set_up(root: RefAt) -> Result<Server, Code> {
    let mut chunks = Chunks::new();
    for (physical, size) in start::start().args.iter().filter_map(|a| range(a)) {
        let mapping = Mapping::new()?;
        let state = MappingState {
            start: PHYSICAL + physical,
            size,
            offset: physical,
            // Handles of objects in managed memory are found here too, to destroy them.
            protection: READ | WRITE | abi::access::OBJECTS,
        };
        mapping.set_state(&state, root.0, 0)?;
        // The mapping stays for as long as the server runs.
        core::mem::forget(mapping);
        chunks.add(physical, size);
    }
    chunks.finish();
    let spare = chunks.total() / SPARE_PART;
    let portset = Portset::new()?;
    let portset_ref = portset.reference()?;
    Ok(Server {
        segments: Segments::new(chunks, spare),
        calls: Calls { root },
        objects: Vec::new(),
        accounts: Vec::new(),
        portset,
        portset_ref,
        outgoing: RefBlock::new(2)?,
        reaper: None,
    })
}

fn serve() -> Result<(), Code> {
    let reference = |index| start::passed(index).ok_or(Code::Invalid);
    let mut server = set_up(reference(passed::ROOT)?)?;
    let supervisor = server.port(alias::of(alias::SUPERVISOR, 0))?;
    supervisor.reference_into(reference(passed::SUPERVISOR)?)?;
    let steps = server.port(alias::of(alias::REAPER, 0))?;
    let steps_ref = steps.reference()?;
    let thread = rt::thread::spawn_at(PRIORITY_PROGRAM, move || reaper(steps_ref.at()))?;
    server.reaper = Some(thread.reference()?);
    reference(passed::STARTER)?.interrupt()?;
    server.run()
}

fn main() -> u8 {
    match serve() {
        Ok(()) => 0,
        Err(_) => 1,
    }
}
