//! A program to be checkpointed: it walks over memory whose pages a keeper of its own supplies, one
//! by one and slowly. The regions, the keeper and the memory behind them are all its own.
#![no_std]
#![no_main]

extern crate alloc;

use abi::access::{READ, WRITE};
use abi::state::{MappingState, RegionState};
use abi::PAGE_SIZE;
use alloc::alloc::{alloc_zeroed, Layout};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use rt::obj::{Mapping, Ref, Region};
use rt::server::{Event, Server};

rt::entry!(main);

const PAGES: u64 = 128;
const SIZE: u64 = PAGES * PAGE_SIZE;
/// How often it walks; before each walk the pages are taken away again.
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

fn run() -> Result<u64, String> {
    let addresses =
        || rt::window::take_addresses(SIZE, PAGE_SIZE).ok_or("no addresses".to_string());
    // Walked over here; the pages of this range come from that one, which begins empty.
    let (walked, supplied) = (addresses()?, addresses()?);
    let layout = Layout::from_size_align(SIZE as usize, PAGE_SIZE as usize)
        .map_err(|_| "no layout".to_string())?;
    // SAFETY: the size is not 0.
    let behind = unsafe { alloc_zeroed(layout) } as u64;
    if behind == 0 {
        return Err("no memory".into());
    }
    let mut server = must("a server", Server::new())?;
    let port = must("a port", server.port(0))?;
    let port_ref = must("a reference", port.reference())?;
    let (_backing, backing) = export(behind, 0)?;
    let (_region, region) = export(supplied, port_ref.handle())?;
    let _window = map(walked, SIZE, &region, 0)?;

    // The keeper begins a new walk when it is asked for the first page.
    let faults = Arc::new(AtomicU64::new(0));
    let counted = faults.clone();
    must(
        "a thread",
        rt::thread::spawn(move || {
            let mut pages: Vec<Option<Mapping>> = (0..PAGES).map(|_| None).collect();
            loop {
                let Event::Fault { message, .. } = server.next(None) else {
                    server.drop_client();
                    continue;
                };
                let page = message.offset / PAGE_SIZE % PAGES;
                rt::time::sleep(100_000);
                if pages[page as usize].is_none() {
                    counted.fetch_add(1, Ordering::Relaxed);
                    // The page of the walk before is taken away: two stay.
                    pages[((page + PAGES - 2) % PAGES) as usize] = None;
                    let at = supplied + page * PAGE_SIZE;
                    pages[page as usize] = map(at, PAGE_SIZE, &backing, page * PAGE_SIZE).ok();
                }
                server.reply_fault();
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
