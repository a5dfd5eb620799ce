//! The file system server.
//!
//! It is started with a reference to the region that holds the boot archive, and two arguments: the archive's offset in
//! the region and its length in bytes, in decimal. Requests are answered by [`Session`]; this file adds the clock, and
//! limits the memory of the files.
#![no_std]
#![no_main]

extern crate alloc;

use abi::state::RegionState;
use abi::{access, Code, PAGE_SIZE};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::convert::Infallible;
use fermata_fs::archive::{Archive, Kind};
use fermata_fs::session::{Session, Shared, Shown};
use fermata_fs::tree::FileSystem;
use interface::server::Visitor;
use interface::Server;
use proto::Error;
use rt::heap::Hold;
use rt::obj::Region;
use rt::window::Window;
use services::fs::server::most_open;
use services::fs::FilesStub;

rt::entry!(main);

/// Memory that is kept free for other programs: with less the server refuses to grow.
const RESERVE: u64 = 8 << 20;
/// The reserve of a small machine is this part of its memory.
const RESERVE_PART: u64 = 8;
/// Most bytes that are taken before the memory server is asked again.
const STRIDE: u64 = 1 << 20;
/// The memory server is asked again when less than this may still be taken. One request needs less than this.
const LOW: u64 = 256 << 10;
/// Bytes of memory that are reserved for a stride. When freed pieces are reused, each quarter of a chunk that is taken
/// may touch a chunk of its own; the rest is for the needs of requests. Without the reservation others could take the
/// memory meanwhile, and the server would end.
const RESERVED: u64 = 4 * STRIDE + LOW * 4;
/// Most that the files can take: the heap, less its part for small blocks and what requests need.
const MOST: u64 = proto::layout::HEAP_END - proto::layout::HEAP_START - (288 << 20);

/// The reservation for the memory that files take next.
#[derive(Default)]
struct Memory(RefCell<Hold>);

impl Memory {
    /// Sets the budget of the file system to the memory that can be reserved for it. Does so only if little of the
    /// budget is left, or much more than is reserved, since files were removed.
    fn look(&self, fs: &mut FileSystem) {
        let budget = fs.budget();
        if (LOW..=STRIDE + LOW).contains(&budget.left()) {
            return;
        }
        let used = budget.used();
        // If the memory server does not answer, no memory is assumed to be free.
        let usage = rt::memory::usage().unwrap_or_default();
        let reserve = RESERVE.min(usage.total / RESERVE_PART);
        if usage.free >= reserve + RESERVED && self.0.borrow_mut().set(RESERVED).is_ok() {
            budget.set_left(STRIDE.min(MOST.saturating_sub(used)));
        } else {
            // Memory that files have freed may be used again as far as it is reserved; the rest is for others.
            budget.set_left(budget.left().min(STRIDE));
        }
    }
}

/// The boot archive, mapped for as long as the server runs.
fn archive() -> Result<&'static [u8], Error> {
    let number = |index: usize| -> Result<u64, Error> {
        let text = rt::start().args.get(index).ok_or(Error::Invalid)?;
        text.parse().map_err(|_| Error::Invalid)
    };
    let (offset, length) = (number(1)?, number(2)?);
    if length == 0 {
        return Ok(&[]);
    }
    let region = rt::start::passed(0).ok_or(Error::Invalid)?;
    let first = offset - offset % PAGE_SIZE;
    let end = offset
        .checked_add(length)
        .and_then(|end| end.checked_next_multiple_of(PAGE_SIZE));
    let window = Window::map(
        &region,
        first,
        end.ok_or(Error::Invalid)? - first,
        access::READ,
    )?;
    let start = window.address() + (offset - first);
    // Files borrow from the archive for as long as the server runs.
    core::mem::forget(window);
    // SAFETY: the window maps these bytes, stays, and nobody writes to the archive.
    Ok(unsafe { core::slice::from_raw_parts(start as *const u8, length as usize) })
}

/// A number that differs between boots: made from the time since the machine was switched on, and from the contents of
/// the archive, since that time is always the same on a machine that counts instructions.
fn salt(archive: &[u8], now: u64) -> u32 {
    // FNV-1a. Headers name every file and its size; the first bytes of contents are enough.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut mix = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    mix(&now.to_le_bytes());
    for member in Archive::new(archive).filter_map(Result::ok) {
        mix(member.path.as_bytes());
        if let Kind::File(content) = member.kind {
            mix(&(content.len() as u64).to_le_bytes());
            mix(&content[..content.len().min(256)]);
        }
    }
    (hash ^ hash >> 32) as u32
}

/// Fills the file system with the boot archive, and returns that.
fn start(fs: &mut FileSystem, origin: u64) -> Result<&'static [u8], Error> {
    fs.set_now(origin.saturating_add(rt::time::now()));
    fs.budget().set_left(MOST);
    let archive = archive()?;
    fs.set_salt(salt(archive, rt::time::now()));
    fs.unpack(archive)?;
    fs.make_devices()?;
    fs.budget().set_left(0);
    Ok(archive)
}

/// Makes regions through which servers read the number of changes and the files, some of which borrow from the archive.
/// If a region cannot be made, servers make requests instead.
fn show(shared: &Shared, archive: &[u8]) {
    let changes = core::ptr::from_ref(shared.changes()).addr() as u64;
    let archive = archive.as_ptr_range();
    let (first, end) = (archive.start.addr() as u64, archive.end.addr() as u64);
    let first = first / PAGE_SIZE * PAGE_SIZE;
    // In the order of `services::fs::part`.
    let parts = [
        (changes, PAGE_SIZE),
        rt::start::heap_range(),
        (first, (end - first).next_multiple_of(PAGE_SIZE)),
    ];
    let made: Result<Vec<Shown>, Code> = parts
        .into_iter()
        // An empty archive has no address.
        .filter(|(start, _)| *start != 0)
        .map(|(start, size)| {
            let state = RegionState {
                start,
                size,
                protection: access::READ,
            };
            let region = Region::new()?;
            region.set_state(&state, 0, 0)?;
            Ok(Shown {
                start,
                size,
                region,
            })
        })
        .collect();
    match made {
        Ok(parts) => shared.show(parts),
        Err(code) => rt::log!("fs: files are not shown: {code:?}"),
    }
}

fn serve(fs: FileSystem, origin: u64, archive: &[u8]) -> Result<Infallible, Error> {
    let memory = Memory::default();
    let shared = Shared::new(fs, move |fs| {
        memory.look(fs);
        fs.set_now(origin.saturating_add(rt::time::now()));
    });
    show(&shared, archive);
    let mut server = Server::new(move |visitor: &Visitor| {
        Ok(FilesStub(Session::new(
            &shared,
            visitor.job,
            most_open(visitor.job),
        )))
    })?;
    server.knows(rt::names::job_of, rt::heap::want);
    server.opens();
    rt::names::register("fs", server.door())?;
    server.run()
}

fn main() -> u8 {
    let mut fs = FileSystem::new(MOST);
    let origin = rt::time::origin();
    match start(&mut fs, origin) {
        Ok(archive) => {
            let Err(_) = serve(fs, origin, archive);
        }
        Err(error) => rt::log!("fs: the boot archive: {}", error.text()),
    }
    1
}
