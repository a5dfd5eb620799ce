//! The call gate: a loader redirects the calls of a program without relinking it.

use abi::access::ALL;
use abi::gate::{redirection, PREFIXES, SITE_SIZE};
use abi::PAGE_SIZE;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use guest_tests::harness::{eventually, Failure, Must, Outcome};
use guest_tests::redirected::{Mailbox, WRONG};
use guest_tests::{check, check_eq, guest_test};
use interface::server::{own_port, Host, NoSessions, Visitor, OWN};
use interface::{Error, Server};
use process::gate::sites;
use process::image::Plan;
use rt::obj::Portset;
use rt::window::Window;
use rt::{fs, memory};

const PROGRAM: &str = "/test/redirected";

/// An entry that counts and then makes the call: `lock inc qword ptr [rip + 3]; syscall; ret`, and
/// the counter.
const ENTRY: [u8; 11] = [0xf0, 0x48, 0xff, 0x05, 3, 0, 0, 0, 0x0f, 0x05, 0xc3];

/// Places the program at the window and redirects its calls to [`ENTRY`] in the page after it. Returns the program's
/// start address.
fn place(file: &[u8], window: &Window, size: u64) -> Result<u64, Failure> {
    let base = window.address();
    let plan = Plan::new(file, base, base, base + size).must("the program's headers")?;
    for piece in &plan.pieces {
        let bytes = &file[piece.offset..piece.offset + piece.length];
        window.write(piece.address - base, bytes).must("place")?;
    }
    window.write(size, &ENTRY).must("place the entry")?;
    let sites = sites(file, &plan).must("the list of calls")?;
    check!(sites.len() >= 9, "there are {} sites", sites.len());
    for site in sites {
        let call = redirection(site, base + size)
            .ok_or("it is too far away")
            .must("the entry")?;
        window.write(site - base, &call).must("redirect")?;
    }
    Ok(plan.entry)
}

/// A server that only answers every caller.
struct Answers;

impl Host<NoSessions> for Answers {
    fn open(&mut self, _: &Visitor) -> Result<NoSessions, Error> {
        Err(Error::Unsupported)
    }
}

guest_test!(GATE0001, calls_are_redirected_without_relinking);
fn calls_are_redirected_without_relinking() -> Outcome {
    let file = fs::read_all(PROGRAM).must(PROGRAM)?;
    let end = Plan::new(&file, PAGE_SIZE, 0, 1 << 30)
        .must("its size")?
        .end;
    let size = end.next_multiple_of(PAGE_SIZE);
    let segment = memory::create(size + PAGE_SIZE).must("memory")?;
    let window = Window::map(&segment.region, 0, size + PAGE_SIZE, ALL).must("a window")?;
    let entry = place(&file, &window, size)?;

    let portset = Portset::new().must("a portset")?;
    let portset_ref = portset.reference().must("a reference")?;
    let port = own_port(*portset_ref, OWN).must("a port")?;
    let reference = port.reference().must("a reference")?;
    let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox {
        slot: rt::slots::allocate(1).ok_or("none").must("a slot")?,
        port: reference.handle(),
        result: AtomicU64::new(0),
    }));
    rt::thread::spawn(move || {
        if let Ok(server) = Server::on(portset, Answers) {
            server.run();
        }
    })
    .must("the server's thread")?;
    rt::thread::spawn(move || {
        // SAFETY: the program uses its own memory, the mailbox and this stack, and never returns.
        unsafe { asm!("call {entry}", entry = in(reg) entry, in("r12") mailbox, options(noreturn)) }
    })
    .must("the program's thread")?;

    eventually("the end of the program", || {
        mailbox.result.load(Ordering::Acquire) != 0
    })?;
    let calls = mailbox.result.load(Ordering::Acquire);
    check!(calls != WRONG, "a redirected call went wrong");
    // It now waits in one more call.
    let counter = || {
        let mut counter = [0; 8];
        window.read(size + ENTRY.len() as u64, &mut counter)?;
        Ok(u64::from_le_bytes(counter))
    };
    eventually("the last call", || {
        counter().is_ok_and(|counted: u64| counted > calls)
    })?;
    check_eq!(counter(), Ok::<_, rt::Error>(calls + 1));
    check_eq!(calls, 9);
    // This memory must not be freed, since a thread still runs in it.
    core::mem::forget((window, segment, port, reference));
    Ok(())
}

guest_test!(GATE0002, wrong_lists_of_calls_are_refused);
fn wrong_lists_of_calls_are_refused() -> Outcome {
    let file = fs::read_all(PROGRAM).must(PROGRAM)?;
    let plan = Plan::new(&file, 0x40_0000, 0, 1 << 36).must("the program")?;
    let good = sites(&file, &plan).must("the list")?;
    // A site that is not one.
    let piece = plan
        .pieces
        .iter()
        .find(|piece| (piece.address..piece.address + piece.length as u64).contains(&good[0]))
        .ok_or("none")
        .must("the code")?;
    for byte in 0..SITE_SIZE {
        let mut bad: Vec<u8> = file.clone();
        bad[piece.offset + (good[0] - piece.address) as usize + byte] ^= 1;
        check!(sites(&bad, &plan).is_err(), "byte {byte} of a site");
    }
    // The note's type, and where it says that the list is.
    let note = b"Fermata\0";
    let mut found = 0;
    for at in 0..file.len() - 16 {
        let is_ours =
            file[at..].starts_with(&2u32.to_le_bytes()) && file[at + 4..].starts_with(note);
        if is_ours {
            found += 1;
            for (place, bit) in [
                (at, 4),
                (at + 12 + 3, 0x40),
                (at + 16 + 3, 0x40),
                (at + 16, 1),
            ] {
                let mut bad = file.clone();
                bad[place] ^= bit;
                check!(sites(&bad, &plan).is_err(), "byte {place}");
            }
        }
    }
    check_eq!(found, 1);
    check_eq!(PREFIXES, 3);
    Ok(())
}
