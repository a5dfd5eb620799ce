//! A pager in user mode: memory whose pages are made when somebody touches them.
//!
//! The program exports a range of its addresses as a region, and names a port of its own as the keeper
//! of that region. The range has no memory. It then maps the region elsewhere and reads it there: the
//! first touch of each page is a fault that the kernel sends to the keeper as a message. The keeper puts
//! a page there, and its answer lets the reader try again.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec::Vec;
use rt::abi::state::{MappingState, RegionState};
use rt::abi::{access, PAGE_SIZE};
use rt::obj::{Mapping, Ref, Region};
use rt::server::{Event, Server};
use rt::window::Window;
use rt::Code;

rt::entry!(main);

/// Pages of the range.
const PAGES: u64 = 1024;

fn main() -> u8 {
    match run() {
        Ok(()) => 0,
        Err(code) => {
            rt::println!("pager: {code:?}");
            1
        }
    }
}

fn run() -> Result<(), Code> {
    // Addresses that nothing is mapped at.
    let range = rt::window::take_addresses(PAGES * PAGE_SIZE, PAGE_SIZE).ok_or(Code::NoMemory)?;
    let server = Server::new()?;
    let port = server.port(0)?;
    let region = Region::new()?;
    let state = RegionState {
        start: range,
        size: PAGES * PAGE_SIZE,
        protection: access::READ,
    };
    region.set_state(&state, 0, port.reference()?.handle())?;

    rt::thread::spawn(move || {
        if let Err(code) = supply(server, range) {
            rt::println!("pager: the keeper ends: {code:?}");
        }
    })?;

    let exported = region.reference()?;
    let view =
        Window::map(&exported, 0, PAGES * PAGE_SIZE, access::READ).map_err(|_| Code::NoMemory)?;
    for page in [3, 700, 3, 44] {
        let mut word = [0; 8];
        view.read(page * PAGE_SIZE, &mut word)
            .map_err(|_| Code::Invalid)?;
        rt::println!("page {page} has {}", u64::from_le_bytes(word));
    }
    Ok(())
}

/// The keeper: answers every fault of the region with a page that begins with the square of its number.
fn supply(mut server: Server, range: u64) -> Result<(), Code> {
    // The memory behind the pages comes from the memory server.
    let segment = rt::memory::create(PAGES * PAGE_SIZE).map_err(|_| Code::NoMemory)?;
    let mut pages: Vec<(u64, Mapping)> = Vec::new();
    loop {
        let Event::Fault { message, .. } = server.next(None) else {
            server.drop_client();
            continue;
        };
        let page = message.offset / PAGE_SIZE;
        // The kernel may ask twice for one page. That must do no harm.
        if pages.iter().all(|(other, _)| *other != page) {
            rt::println!("page {page} is wanted");
            let mapping = make(&segment.region, page, range)?;
            pages.push((page, mapping));
        }
        server.reply_fault();
    }
}

/// Writes the content of a page, and puts the page into the range.
fn make(memory: &Ref, page: u64, range: u64) -> Result<Mapping, Code> {
    let content = Window::map(
        memory,
        page * PAGE_SIZE,
        PAGE_SIZE,
        access::READ | access::WRITE,
    )
    .map_err(|_| Code::NoMemory)?;
    content
        .write(0, &(page * page).to_le_bytes())
        .map_err(|_| Code::Invalid)?;
    let mapping = Mapping::new()?;
    let state = MappingState {
        start: range + page * PAGE_SIZE,
        size: PAGE_SIZE,
        offset: page * PAGE_SIZE,
        protection: access::READ,
    };
    mapping.set_state(&state, memory.handle(), 0)?;
    Ok(mapping)
}
