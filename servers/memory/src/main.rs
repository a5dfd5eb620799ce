//! The memory server: makes real what `memory::segments` decides, and answers.
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
use abi::state::{MappingState, PortState, RegionState};
use abi::{Call, Code, MAX_SHORT, PAGE_SIZE};
use alloc::vec::Vec;
use memory::chunks::{Chunks, CHUNK};
use memory::segments::{Id, Machine, Segments, Shown};
use proto::layout::MEMORY_SIZE;
use proto::memory::{Reply, Request};
use proto::Error;
use rt::obj::{Mapping, MappingAt, Port, Portset, Ref, RefAt, RefBlock, Region};
use rt::sys::{self, IpcRegs};
use rt::{error_of, slots, start, window};

rt::entry!(main);

/// Where physical memory is mapped: the address is the sum of this and the physical address.
const PHYSICAL: u64 = 0x0800_0000_0000;

/// The ports of the server are told apart by the upper half of their alias; the lower half is the
/// segment.
mod alias {
    /// The server's own port.
    pub(crate) const SERVER: u64 = 0;
    /// As `SERVER`, for segments that may use the reserve.
    pub(crate) const RESERVE: u64 = 1;
    /// Control port of a segment.
    pub(crate) const CONTROL: u64 = 2;
    /// Keeper of a segment's region.
    pub(crate) const KEEPER: u64 = 3;

    pub(crate) const fn of(kind: u64, id: usize) -> u64 {
        kind << 32 | id as u64
    }
}

/// References that init puts into the start page.
mod passed {
    /// The root region.
    pub(crate) const ROOT: usize = 0;
    /// To be pointed at the server's port.
    pub(crate) const SERVER: usize = 1;
    /// To be pointed at the port for segments that may use the reserve.
    pub(crate) const RESERVE: usize = 2;
    /// The thread to interrupt when that is done.
    pub(crate) const STARTER: usize = 3;
}

/// Kernel calls behind the bookkeeping.
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

    fn destroy_objects(&mut self, physical: u64, size: u64) {
        let end = physical + size;
        let mut at = physical;
        while let Ok((found, kind)) = self.root.search(at, end, ALL_TYPES) {
            destroy_object(PHYSICAL + found, kind);
            at = found + abi::OBJECT_SIZE;
        }
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
    region: Region,
    /// The ports live with it.
    _control: Port,
    _keeper: Port,
}

struct Server {
    segments: Segments,
    calls: Calls,
    objects: Vec<Option<Objects>>,
    portset: Portset,
    portset_ref: Ref,
    /// References of a reply.
    outgoing: RefBlock,
}

impl Server {
    fn port(&self, alias: u64) -> Result<Port, Code> {
        let port = Port::new()?;
        port.set_state(&PortState { alias }, self.portset_ref.handle())?;
        Ok(port)
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
            region,
            _control: control,
            _keeper: keeper,
        })
    }

    /// Makes a segment; its references are then in `outgoing`.
    fn create(&mut self, size: u64, may_use_reserve: bool) -> Result<Id, Error> {
        if size == 0 || !size.is_multiple_of(PAGE_SIZE) || size > MEMORY_SIZE {
            return Err(Error::Invalid);
        }
        let id = self.segments.next_id()?;
        let room = size.next_multiple_of(CHUNK);
        let align = if room >= 1 << 30 { 1 << 30 } else { CHUNK };
        let window = window::take_addresses(room, align).ok_or(Error::NoMemory)?;
        let objects = match self.new_objects(window, size, id) {
            Ok(objects) => objects,
            Err(code) => {
                window::give_addresses(window, room);
                return Err(error_of(code));
            }
        };
        let id = self.segments.create(window, size, may_use_reserve)?;
        match self.objects.get_mut(id) {
            Some(place) => *place = Some(objects),
            None => self.objects.push(Some(objects)),
        }
        Ok(id)
    }

    fn destroy(&mut self, id: Id) -> Result<(), Error> {
        // First nobody can reach it any more, then it goes.
        if let Some(place) = self.objects.get_mut(id) {
            *place = None;
        }
        let (window, size) = self.segments.destroy(&mut self.calls, id)?;
        window::give_addresses(window, size.next_multiple_of(CHUNK));
        Ok(())
    }

    fn copy(&mut self, from: Id) -> Result<(), Error> {
        let objects = self
            .objects
            .get(from)
            .and_then(Option::as_ref)
            .ok_or(Error::NotFound)?;
        let size = objects.region.get_state(0, 0).map_err(error_of)?.size;
        let to = self.create(size, false)?;
        if let Err(error) = self.segments.copy(&mut self.calls, from, to) {
            self.destroy(to)?;
            return Err(error);
        }
        Ok(())
    }

    /// Serves a request: the reply, and the number of references that go with it.
    fn serve(&mut self, kind: u64, id: Id, request: Request) -> Result<(Reply, u64), Error> {
        let done = |()| (Reply::Done, 0);
        match (kind, request) {
            (alias::SERVER | alias::RESERVE, Request::Create { size }) => {
                self.create(size, kind == alias::RESERVE)?;
                Ok((Reply::Done, 2))
            }
            (_, Request::Usage) => {
                let id = (kind == alias::CONTROL).then_some(id);
                let (total, free, resident) = self.segments.usage(id);
                Ok((
                    Reply::Usage {
                        total,
                        free,
                        resident,
                    },
                    0,
                ))
            }
            (alias::CONTROL, Request::Copy) => self.copy(id).map(|()| (Reply::Done, 2)),
            (alias::CONTROL, Request::Discard { offset, size }) => self
                .segments
                .discard(&mut self.calls, id, offset, size)
                .map(done),
            (alias::CONTROL, Request::Populate { offset, size }) => self
                .segments
                .populate(&mut self.calls, id, offset, size)
                .map(done),
            (alias::CONTROL, Request::Destroy) => self.destroy(id).map(done),
            _ => Err(Error::Invalid),
        }
    }

    /// Waits for messages and answers them, for ever.
    fn run(&mut self) -> ! {
        let mut regs = IpcRegs::default();
        let mut call = Call::ServerWaitReceiveShort;
        loop {
            regs.rdi = self.portset.handle();
            regs.rbx = 0;
            // SAFETY: register messages touch no memory but the listed references.
            let code = unsafe { sys::ipc(call, &mut regs) };
            let (kind, id) = (regs.rdi >> 32, (regs.rdi & 0xffff_ffff) as Id);
            call = match code {
                Code::Fault => {
                    // Served or not, the thread tries again; if that was in vain, its manager
                    // hears of it.
                    if kind == alias::KEEPER {
                        let _ = self.segments.fault(&mut self.calls, id, regs.rsi, regs.r10);
                    }
                    regs = IpcRegs::default();
                    Call::ReplyWaitReceiveShort
                }
                Code::Call => {
                    let words = regs.short_words();
                    let reply = match read(&words, regs.short_len()) {
                        Ok(request) => self.serve(kind, id, request),
                        Err(error) => Err(error),
                    };
                    let refs = reply.as_ref().map_or(0, |(_, refs)| *refs);
                    regs = answer(&reply.map(|(reply, _)| reply));
                    regs.r15 = self.outgoing.list(refs as usize);
                    Call::ReplyWaitReceiveShort
                }
                // A message that is too large for a request, or of a form that is not served.
                _ => {
                    regs = IpcRegs::default();
                    Call::ServerWaitReceiveShort
                }
            };
        }
    }
}

/// A request from the words of a register message.
fn read(words: &[u64; 8], length: usize) -> Result<Request, Error> {
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
        // It stays for ever.
        core::mem::forget(mapping);
        chunks.add(physical, size);
    }
    // A sixteenth, at most 4 MB, for the servers.
    let reserve = (chunks.total() / 16).min(64);
    chunks.finish(reserve);
    let portset = Portset::new()?;
    let portset_ref = portset.reference()?;
    Ok(Server {
        segments: Segments::new(chunks),
        calls: Calls { root },
        objects: Vec::new(),
        portset,
        portset_ref,
        outgoing: RefBlock::new(2)?,
    })
}

fn serve() -> Result<(), Code> {
    let reference = |index| start::passed(index).ok_or(Code::Invalid);
    let mut server = set_up(reference(passed::ROOT)?)?;
    let port = server.port(alias::of(alias::SERVER, 0))?;
    let reserve = server.port(alias::of(alias::RESERVE, 0))?;
    port.reference_into(reference(passed::SERVER)?)?;
    reserve.reference_into(reference(passed::RESERVE)?)?;
    reference(passed::STARTER)?.interrupt()?;
    server.run()
}

fn main() -> u8 {
    match serve() {
        Ok(()) => 0,
        Err(_) => 1,
    }
}
