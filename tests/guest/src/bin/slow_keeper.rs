//! A program to be checkpointed: it walks over memory whose pages a keeper of its own supplies, one by one and
//! slowly. The regions, the keeper and the memory behind them are its own.
#![no_std]
#![no_main]

extern crate alloc;

use abi::access::{READ, WRITE};
use abi::message::FaultMessage;
use abi::state::{MappingState, RegionState};
use abi::PAGE_SIZE;
use alloc::alloc::{alloc_zeroed, Layout};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use interface::server::{own_port, Host, NoSessions, Visitor, OWN};
use interface::Server;
use rt::obj::{Mapping, Portset, Ref, Region};
use rt::Error;

rt::entry!(main);

const PAGES: u64 = 128;
const SIZE: u64 = PAGES * PAGE_SIZE;
/// How often it walks; meanwhile the keeper takes pages away again.
const WALKS: u64 = 6;

fn main() -> u8 {
    match run() {
        Ok(sum) => {
            rt::println!("the walks sum up to {sum}");
            0
        }
        Err(why) => {
            rt::println!("{why}");
            1
        }
    }
}

fn must<T>(what: &str, result: Result<T, rt::Code>) -> Result<T, String> {
    result.map_err(|code| alloc::format!("{what}: {code:?}"))
}

/// Exports a range of this program's addresses.
fn export(start: u64, keeper: u64) -> Result<(Region, Ref), String> {
    let region = must("a region", Region::new())?;
    let state = RegionState {
        start,
        size: SIZE,
        protection: READ | WRITE,
    };
    must("a region's state", region.set_state(&state, 0, keeper))?;
    let reference = must("a reference", region.reference())?;
    Ok((region, reference))
}

fn map(start: u64, size: u64, region: &Ref, offset: u64) -> Result<Mapping, String> {
    let mapping = must("a mapping", Mapping::new())?;
    let state = MappingState {
        start,
        size,
        offset,
        protection: READ | WRITE,
    };
    must(
        "a mapping's state",
        mapping.set_state(&state, region.handle(), 0),
    )?;
    Ok(mapping)
}

/// The keeper of the region.
struct Keeper {
    /// The present pages.
    pages: Vec<Option<Mapping>>,
    /// How often it was asked.
    faults: Arc<AtomicU64>,
    /// The address at which the pages are supplied.
    supplied: u64,
    /// The memory that they come from.
    backing: Ref,
}

impl Host<NoSessions> for Keeper {
    fn open(&mut self, _: &Visitor) -> Result<NoSessions, Error> {
        Err(Error::Unsupported)
    }

    fn fault(&mut self, _: u64, message: &FaultMessage) -> bool {
        let page = message.offset / PAGE_SIZE % PAGES;
        rt::time::sleep(100_000);
        if self.pages[page as usize].is_none() {
            self.faults.fetch_add(1, Ordering::Relaxed);
            // The page two before this one is taken away: two stay.
            self.pages[((page + PAGES - 2) % PAGES) as usize] = None;
            let at = self.supplied + page * PAGE_SIZE;
            self.pages[page as usize] = map(at, PAGE_SIZE, &self.backing, page * PAGE_SIZE).ok();
        }
        true
    }
}

fn run() -> Result<u64, String> {
    let addresses =
        || rt::window::take_addresses(SIZE, PAGE_SIZE).ok_or("no addresses".to_string());
    // The walk is over the first range; its pages come from the second, which begins empty.
    let (walked, supplied) = (addresses()?, addresses()?);
    let layout = Layout::from_size_align(SIZE as usize, PAGE_SIZE as usize)
        .map_err(|_| "no layout".to_string())?;
    // SAFETY: the size is not 0.
    let behind = unsafe { alloc_zeroed(layout) } as u64;
    if behind == 0 {
        return Err("no memory".into());
    }
    let portset = must("a portset", Portset::new())?;
    let portset_ref = must("a reference", portset.reference())?;
    let port = must("a port", own_port(*portset_ref, OWN))?;
    let port_ref = must("a reference", port.reference())?;
    let (_backing, backing) = export(behind, 0)?;
    let (_region, region) = export(supplied, port_ref.handle())?;
    let _window = map(walked, SIZE, &region, 0)?;

    let faults = Arc::new(AtomicU64::new(0));
    let keeper = Keeper {
        pages: (0..PAGES).map(|_| None).collect(),
        faults: faults.clone(),
        supplied,
        backing,
    };
    must(
        "a thread",
        rt::thread::spawn(move || {
            if let Ok(server) = Server::on(portset, keeper) {
                server.run();
            }
        }),
    )?;

    let mut sum = 0u64;
    for walk in 0..WALKS {
        for page in 0..PAGES {
            let word = (walked + page * PAGE_SIZE + walk * 8) as *mut u64;
            // SAFETY: within the window; the keeper supplies the page.
            unsafe {
                word.write_volatile(walk * 1000 + page);
                sum = sum.wrapping_mul(31).wrapping_add(word.read_volatile());
            }
        }
    }
    if faults.load(Ordering::Relaxed) < PAGES {
        return Err("the keeper was hardly asked".into());
    }
    Ok(sum)
}
