//! A pager in user mode: memory whose pages are made on first access.
//!
//! The program exports a range of its addresses as a region, and names a port of its own as the keeper
//! of that region. The range has no memory. It then maps the region elsewhere and reads it there: the
//! first touch of each page is a fault that the kernel sends to the keeper as a message. The keeper puts
//! a page there, and its answer lets the reader try again.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec::Vec;
use interface::server::{own_port, Host, NoSessions, Visitor, OWN};
use interface::Server;
use rt::abi::message::FaultMessage;
use rt::abi::state::{MappingState, RegionState};
use rt::abi::{access, PAGE_SIZE};
use rt::memory::Segment;
use rt::obj::{Mapping, Portset, Ref, Region};
use rt::window::Window;
use rt::{Code, Error};

rt::entry!(main);

/// Pages of the range.
const PAGES: u64 = 1024;
/// Alias of the keeper's port.
const KEEPER: u64 = OWN;

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
    // Addresses at which nothing is mapped.
    let range = rt::window::take_addresses(PAGES * PAGE_SIZE, PAGE_SIZE).ok_or(Code::NoMemory)?;
    let portset = Portset::new()?;
    let port = own_port(portset.reference()?.at(), KEEPER)?;
    let region = Region::new()?;
    let state = RegionState {
        start: range,
        size: PAGES * PAGE_SIZE,
        protection: access::READ,
    };
    region.set_state(&state, 0, port.reference()?.handle())?;

    // The memory behind the pages comes from the memory server.
    let segment = rt::memory::create(PAGES * PAGE_SIZE).map_err(|_| Code::NoMemory)?;
    let keeper = Keeper {
        range,
        segment,
        pages: Vec::new(),
    };
    rt::thread::spawn(move || match Server::on(portset, keeper) {
        Ok(server) => server.run(),
        Err(error) => rt::println!("pager: the keeper ends: {}", error.text()),
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
struct Keeper {
    range: u64,
    segment: Segment,
    /// The pages that have been made, by number.
    pages: Vec<(u64, Mapping)>,
}

impl Host<NoSessions> for Keeper {
    /// The keeper is no service.
    fn open(&mut self, _: &Visitor) -> Result<NoSessions, Error> {
        Err(Error::Unsupported)
    }

    /// Returns whether the thread tries again. If the page is still absent then, the thread ends.
    fn fault(&mut self, _: u64, message: &FaultMessage) -> bool {
        let page = message.offset / PAGE_SIZE;
        // The kernel may ask twice for one page, which must do no harm.
        if self.pages.iter().all(|(other, _)| *other != page) {
            rt::println!("page {page} is wanted");
            match make(&self.segment.region, page, self.range) {
                Ok(mapping) => self.pages.push((page, mapping)),
                Err(code) => rt::println!("pager: no page: {code:?}"),
            }
        }
        true
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
