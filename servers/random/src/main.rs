//! The server of random numbers: README.md.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::rc::Rc;
use alloc::vec;
use core::arch::asm;
use core::arch::x86_64::{__cpuid, _rdtsc};
use core::cell::RefCell;
use core::convert::Infallible;
use core::ops::Deref;
use fermata_random::{Generator, Seed};
use interface::server::Visitor;
use interface::Server;
use proto::Error;
use services::random::{Random, RandomStub, MOST};

rt::entry!(main);

/// The feature `rdrand`, in `ecx` of leaf 1.
const RDRAND: u32 = 1 << 30;
/// How often the processor is asked for a number before it is given up: it may be exhausted for a moment.
const TRIES: usize = 100;

/// A random number of the processor, which has the feature.
fn number() -> Option<u64> {
    (0..TRIES).find_map(|_| {
        let (word, good): (u64, u8);
        // SAFETY: the instruction touches registers and flags only.
        unsafe {
            asm!("rdrand {word}", "setc {good}", word = out(reg) word, good = out(reg_byte) good,
                options(nomem, nostack));
        }
        (good != 0).then_some(word)
    })
}

/// What nobody knows: of the processor. Without, what few know, and `false`.
fn fresh() -> (Seed, bool) {
    let mut seed = [0; 32];
    let mut good = __cpuid(1).ecx & RDRAND != 0;
    for place in seed.chunks_exact_mut(8) {
        // SAFETY: reads a counter, which user mode may.
        let counter = unsafe { _rdtsc() };
        let word = if good { number() } else { None };
        good &= word.is_some();
        place.copy_from_slice(&(word.unwrap_or(0) ^ counter).to_le_bytes());
    }
    (seed, good)
}

/// A session.
struct Client(Rc<RefCell<Generator>>);

impl Random for Client {
    fn bytes(&self, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let mut bytes = vec![0; room.min(MOST)];
        self.0.borrow_mut().fill(fresh().0, &mut bytes);
        Ok(bytes)
    }
}

fn serve() -> Result<Infallible, Error> {
    let (seed, good) = fresh();
    if !good {
        rt::log!("random: the processor has no random numbers: what programs get is no secret");
    }
    let generator = Rc::new(RefCell::new(Generator::new(seed)));
    let mut server = Server::new(move |_: &Visitor| Ok(RandomStub(Client(Rc::clone(&generator)))))?;
    server.knows(rt::names::job_of);
    rt::names::register("random", server.door())?;
    server.run()
}

fn main() -> u8 {
    let Err(error) = serve();
    rt::log!("random: {}", error.text());
    1
}
