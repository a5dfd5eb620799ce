//! `edus SEED KILLS`: kills a driver whose device reaches memory again and again, at instants that follow from the
//! seed, while another driver watches the memory around. `edus SEED`: the two share a line. `edus hostile`: a driver
//! does what no driver may, while the other one is served. Needs the system port (`trust`), and a machine with two
//! `edu` devices.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use guest_tests::edu::{Attempt, EduClient, NAMES};
use guest_tests::killer;
use rt::proto::Error;
use rt::{println, thread, time};
use services::process::{Info, Pid};

rt::entry!(main);

/// The program of both drivers.
const DRIVER: &str = "edu";
/// The longest time between two kills, in nanoseconds: a driver takes 100 ms for each transfer, may have to wait for
/// one, and then does two or three.
const PAUSE: u64 = 450_000_000;
/// How long a transfer takes, in nanoseconds.
const TRANSFER: u64 = 100_000_000;
/// The pause between two checks for a missing driver, and how long to wait for it, in nanoseconds.
const LOOK: u64 = 1_000_000;
const PATIENCE: u64 = 20_000_000_000;
/// How often a driver dies while another one uses its line.
const SHARED_KILLS: usize = 20;
/// Longest time that the other driver takes for an interrupt, in nanoseconds.
const PROMPT: u64 = 50_000_000;

fn failed(what: &str) -> impl Fn(Error) -> String + '_ {
    move |error| format!("{what}: {}", error.text())
}

/// A session with a driver, once it is there.
fn open(name: &str) -> Result<EduClient, Error> {
    let deadline = time::now() + PATIENCE;
    loop {
        let session = rt::system::control(name).and_then(|door| EduClient::open_known(&door));
        match session {
            Err(_) if time::now() < deadline => time::sleep(LOOK),
            session => return session,
        }
    }
}

/// The process of the second driver, which is not killed.
fn spared() -> Result<Pid, Error> {
    let processes = rt::system::supervisor("native")?.list()?;
    let drivers = processes.iter().filter(|process| process.name == DRIVER);
    drivers
        .map(|process| process.pid)
        .max()
        .ok_or(Error::NotFound)
}

/// What all others have, except for the killed driver, and what the machine has: names, kernel objects, and free
/// bytes of memory.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    objects: Vec<(String, u64)>,
    free: u64,
}

impl Left {
    fn now(spared: Pid) -> Result<Self, Error> {
        let processes = rt::system::supervisor("native")?.list()?;
        let is_ours = |process: &&Info| {
            process.name.contains("edus") || process.name == DRIVER && process.pid != spared
        };
        let others = processes.iter().filter(|process| !is_ours(process));
        Ok(Left {
            objects: others
                .map(|process| (process.name.clone(), u64::from(process.objects)))
                .collect(),
            free: rt::memory::usage()?.free,
        })
    }
}

/// The counts of a run.
#[derive(Default)]
struct Counts {
    /// Transfers that a driver's death interrupted.
    interrupted: u64,
    /// Drivers that lived to the end of their work.
    whole: u64,
}

/// The life of a driver: an error that a kill causes is no error.
fn live(
    random: &mut fastrand::Rng,
    seed: u64,
    begun: &mut Option<(u64, u64)>,
    counts: &mut Counts,
) -> Result<(), String> {
    let mut edu = open(NAMES[0]).map_err(failed("the driver does not come back"))?;
    // The previous driver's session has ended. A transfer that its device had not finished must not happen now, even
    // as long as no driver has claimed the device.
    let cut = begun.is_some_and(|(_, since)| time::now() < since + TRANSFER);
    if random.bool() {
        time::sleep(2 * TRANSFER);
    }
    // The content of the device's buffer is known only if this driver checks it.
    let earlier = begun.take();
    let busy = match edu.drive() {
        Ok(busy) => busy,
        // The driver tries to claim the device, and does not get it.
        Err(Error::Broken) if edu.had(0) == Err(Error::NotFound) => {
            return Err(
                "memory that a driver was given is not all zeros, or no interrupt came".into(),
            );
        }
        Err(_) => return Ok(()),
    };
    counts.interrupted += u64::from(busy || cut);
    if let (true, Some((earlier, _))) = (busy || cut, earlier) {
        if edu.had(earlier) == Ok(true) {
            return Err("the device has read memory after the death of its driver".into());
        }
    }
    if random.u8(..4) == 0 {
        match edu.echo(seed) {
            Ok(()) => counts.whole += 1,
            Err(Error::Broken) if edu.had(0).is_ok() => {
                return Err("a transfer there and back has failed".into());
            }
            Err(_) => return Ok(()),
        }
    }
    let back = random.bool();
    if !back {
        *begun = Some((seed, time::now()));
    }
    if edu.begin(seed, back).is_err() {
        *begun = None;
        return Ok(());
    }
    // Waits until the driver is killed.
    while edu.had(0).is_ok() && !killer::is_done() {
        time::sleep(LOOK);
    }
    Ok(())
}

fn kills(seed: u64, kills: u64) -> Result<(), String> {
    let text = |error: Error| error.text().to_string();
    let spare = spared().map_err(text)?;
    let mut witness = open(NAMES[1]).map_err(failed("the other driver"))?;
    let mut random = fastrand::Rng::with_seed(!seed);
    let mut counts = Counts::default();
    let mut begun = None;
    // The first measurement is made when the driver has everything that it can have.
    open(NAMES[0])
        .and_then(|mut edu| edu.drive())
        .map_err(failed("the first driver"))?;
    witness.watch(0).map_err(text)?;
    thread::spawn(move || killer::run_but(DRIVER, spare, seed, kills, PAUSE))
        .map_err(|_| "no thread")?;
    let before = Left::now(spare).map_err(text)?;
    let mut attempts = 0;
    while !killer::is_done() {
        attempts += 1;
        live(&mut random, attempts, &mut begun, &mut counts)?;
        witness
            .watch(random.u64(..))
            .map_err(failed("memory that is another driver's"))?;
    }
    // The last driver's memory is there, and the device works.
    time::sleep(LOOK);
    let mut edu = open(NAMES[0]).map_err(failed("the last driver"))?;
    match edu.drive() {
        Ok(_) | Err(Error::Exists) => {}
        Err(error) => return Err(failed("the last driver")(error)),
    }
    edu.echo(0).map_err(failed("the last driver's transfer"))?;
    witness.watch(0).map_err(text)?;
    let deadline = time::now() + PATIENCE;
    let mut after = Left::now(spare).map_err(text)?;
    while after != before && time::now() < deadline {
        time::sleep(10 * LOOK);
        after = Left::now(spare).map_err(text)?;
    }
    println!("edus: {} kills", killer::killed());
    if after != before {
        println!("edus: before, {before:?}; after, {after:?}");
    }
    rt::eprintln!(
        "{attempts} attempts, {} transfers interrupted, {} whole",
        counts.interrupted,
        counts.whole
    );
    Ok(())
}

/// Interrupts of the other driver that were served, the longest time for one, and whether one was lost.
static SERVED: AtomicU64 = AtomicU64::new(0);
static LONGEST: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Makes the other driver serve its device, for ever.
fn serve_other() {
    let Ok(mut other) = open(NAMES[1]) else {
        return REFUSED.store(true, Relaxed);
    };
    while other.ring().is_ok() {
        let before = time::now();
        if other.ring().is_err() {
            break;
        }
        LONGEST.fetch_max(time::now() - before, Relaxed);
        SERVED.fetch_add(1, Relaxed);
        time::sleep(LOOK);
    }
    REFUSED.store(true, Relaxed);
}

/// Waits until the other driver has served its device.
fn expect_other() -> Result<(), String> {
    let before = SERVED.load(Relaxed);
    while SERVED.load(Relaxed) < before + 2 {
        if REFUSED.load(Relaxed) {
            return Err("the other driver is not served".into());
        }
        time::sleep(LOOK);
    }
    match LONGEST.swap(0, Relaxed) {
        longest if longest > PROMPT => Err(format!(
            "the other driver waited {longest} ns for an interrupt"
        )),
        _ => Ok(()),
    }
}

fn hostile() -> Result<(), String> {
    let spare = spared().map_err(failed("the drivers"))?;
    let mut other = open(NAMES[1]).map_err(failed("the other driver"))?;
    other.drive().map_err(failed("the other driver"))?;
    thread::spawn(serve_other).map_err(|_| "no thread")?;
    let mut edu = open(NAMES[0]).map_err(failed("the driver"))?;
    edu.drive().map_err(failed("the driver"))?;
    for attempt in [
        Attempt::Taken,
        Attempt::Configuration,
        Attempt::Everything,
        Attempt::Loop,
        Attempt::References,
        Attempt::Channels,
        Attempt::Repeats,
        Attempt::Silence,
    ] {
        let mut report = vec![0; 4096];
        let length = edu
            .attempt(attempt, &mut report)
            .map_err(failed("an attempt"))?;
        println!("{attempt:?}");
        for line in String::from_utf8_lossy(&report[..length]).lines() {
            println!("  {line}");
        }
        expect_other()?;
    }
    // The driver's death ends the transfer, and the next driver finds the device intact.
    killer::kill_but(DRIVER, spare).map_err(failed("its death"))?;
    let mut edu = open(NAMES[0]).map_err(failed("the next driver"))?;
    edu.drive().map_err(failed("the next driver"))?;
    edu.echo(1).map_err(failed("the next driver"))?;
    expect_other()?;
    println!("both are served");
    Ok(())
}

/// Two drivers share a line: one of them acknowledges nothing, and dies again and again. The other one must get all
/// its interrupts.
fn shared(seed: u64) -> Result<(), String> {
    let spare = spared().map_err(failed("the drivers"))?;
    let mut other = open(NAMES[1]).map_err(failed("the other driver"))?;
    other.drive().map_err(failed("the other driver"))?;
    // Until here the other driver has had the line for itself.
    thread::spawn(serve_other).map_err(|_| "no thread")?;
    expect_other()?;
    for (place, attempt) in [Attempt::Mute, Attempt::Careless]
        .into_iter()
        .cycle()
        .take(SHARED_KILLS)
        .enumerate()
    {
        let mut edu = open(NAMES[0]).map_err(failed("the driver"))?;
        edu.drive().map_err(failed("the driver"))?;
        let mut report = vec![0; 4096];
        let length = edu
            .attempt(attempt, &mut report)
            .map_err(failed("an attempt"))?;
        if place < 2 {
            let text = String::from_utf8_lossy(&report[..length]);
            println!("{attempt:?}: {}", text.trim());
        }
        expect_other()?;
        time::sleep(fastrand::Rng::with_seed(seed ^ place as u64).u64(..LOOK));
        killer::kill_but(DRIVER, spare).map_err(failed("its death"))?;
        expect_other()?;
    }
    println!("edus: the other one has all its interrupts");
    // And the other way round: the remaining driver continues.
    let mut edu = open(NAMES[0]).map_err(failed("the next driver"))?;
    edu.drive().map_err(failed("the next driver"))?;
    let processes =
        rt::system::supervisor("native").and_then(|native| native.process(spare)?.kill());
    processes.map_err(failed("the other one's death"))?;
    for _ in 0..10 {
        edu.ring().map_err(failed("the one that is left"))?;
    }
    println!("edus: the one that is left works on");
    Ok(())
}

fn main() -> u8 {
    let number = |index: usize| {
        rt::start()
            .args
            .get(index)
            .and_then(|text| text.parse().ok())
    };
    let done = match (number(1), number(2)) {
        (Some(seed), Some(most)) => kills(seed, most),
        (Some(seed), None) => shared(seed),
        _ => hostile(),
    };
    match done {
        Ok(()) => 0,
        Err(why) => {
            println!("edus: {} kills: {why}", killer::killed());
            1
        }
    }
}
