//! The server of random numbers: README.md.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec;
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::convert::Infallible;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, Ordering};
use fermata_random::device::{Came, PAUSES, PIECE};
use fermata_random::{Seed, Store};
use interface::server::Visitor;
use interface::Server;
use proto::Error;
use rt::obj::Ref;
use rt::sync::{Lazy, Mutex};
use rt::{thread, time};
use services::entropy::EntropyClient;
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

/// A seed of the processor's random numbers. Without these, one of values that are hard to guess, and `false`.
fn fresh() -> (Seed, bool) {
    let (mut seed, mut words) = ([0; 32], [0; 4]);
    let mut good = __cpuid(1).ecx & RDRAND != 0;
    for (place, number_of) in seed.chunks_exact_mut(8).zip(&mut words) {
        let counter = rt::time::counter();
        let word = if good { number() } else { None };
        good &= word.is_some();
        *number_of = word.unwrap_or(0);
        place.copy_from_slice(&(*number_of ^ counter).to_le_bytes());
    }
    (seed, good && fermata_random::look_like_chance(&words))
}

static STORE: Mutex<Option<Store>> = Mutex::new(None);
/// The thread that asks the device, if there is one; no client waits for it.
static COLLECTOR: Lazy<Ref> = Lazy::new();
/// The collector waits for an interrupt when more is wanted.
static WAITS: AtomicBool = AtomicBool::new(false);

const _: () = assert!(PIECE >= services::entropy::MOST);

/// Does something with the store.
fn with<T>(f: impl FnOnce(&mut Store) -> T) -> Result<T, Error> {
    STORE.lock().as_mut().map(f).ok_or(Error::Broken)
}

/// A session.
struct Client;

impl Random for Client {
    fn bytes(&self, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let mut bytes = vec![0; room.min(MOST)];
        with(|store| store.fill(fresh().0, &mut bytes))?;
        if let Ok(collector) = COLLECTOR.get(|| Err(())) {
            let waits = WAITS.load(Ordering::Relaxed) && is_wanted();
            if waits && WAITS.swap(false, Ordering::AcqRel) {
                let _ = collector.interrupt();
            }
        }
        Ok(bytes)
    }

    fn state(&self) -> Result<(bool, u64), Error> {
        with(|store| store.state())
    }
}

/// Whether the device is to be asked.
fn is_wanted() -> bool {
    with(|store| store.wants(time::now())) == Ok(true)
}

/// Waits until the device is to be asked.
fn wait() {
    loop {
        // A client's request after this sends an interrupt, which stays pending until the wait below.
        WAITS.store(true, Ordering::Release);
        if is_wanted() {
            WAITS.store(false, Ordering::Release);
            return;
        }
        rt::sys::thread_wait_interrupt();
    }
}

/// Asks the driver of the device, in a session that is opened if there is none. Returns how many bytes came.
fn ask(session: &mut Option<EntropyClient>, into: &mut [u8]) -> Result<usize, Error> {
    let client = match session {
        Some(client) => client,
        None => {
            let door = rt::names::control("entropy")?;
            session.insert(EntropyClient::open_known(&door)?)
        }
    };
    // The request waits as long as the device takes. It ends when the driver dies.
    let came = client.bytes(into)?;
    (1..=into.len())
        .contains(&came)
        .then_some(came)
        .ok_or(Error::Broken)
}

/// Puts the device's bytes into the key, as long as the machine runs. The driver may not run yet or any more, or be
/// another one.
fn collect() {
    let mut session = None;
    let mut pauses = time::Pauses::new(PAUSES);
    let mut is_told = false;
    loop {
        wait();
        let mut bytes = [0; PIECE];
        let came = ask(&mut session, &mut bytes).and_then(|length| {
            with(|store| {
                let (was_secret, _) = store.state();
                (store.came(&bytes[..length], time::now()), was_secret)
            })
        });
        match came {
            Ok((Came::Little, _)) => continue,
            Ok((Came::Sound, was_secret)) => {
                if !was_secret {
                    rt::log!("random: the device has given random numbers: what programs get is good for secrets");
                }
                pauses.end();
                continue;
            }
            Ok((Came::Unsound, _)) if !is_told => {
                rt::log!(
                    "random: what the device gives does not look like chance, and does not count"
                );
                is_told = true;
            }
            Ok((Came::Unsound, _)) => {}
            Err(_) => {
                let ended = session.take();
                if ended.is_some_and(|client| client.session().is_gone()) {
                    // The next driver starts soon; init stops restarting one that dies again and again.
                    pauses.end();
                }
            }
        }
        pauses.pause();
    }
}

fn serve() -> Result<Infallible, Error> {
    let (seed, good) = fresh();
    if !good {
        rt::log!("random: the processor has no random numbers: what programs get is no secret");
    }
    *STORE.lock() = Some(Store::new(seed, good));
    // Init says whether there is a device.
    if rt::start().args.iter().any(|word| word == "device") {
        let collector = || thread::spawn(collect)?.reference();
        COLLECTOR.set(collector().map_err(rt::error_of)?);
    }
    let mut server = Server::new(|_: &Visitor| Ok(RandomStub(Client)))?;
    server.knows(rt::names::job_of, rt::heap::want);
    rt::names::register("random", server.door())?;
    server.run()
}

fn main() -> u8 {
    let Err(error) = serve();
    rt::log!("random: {}", error.text());
    1
}
