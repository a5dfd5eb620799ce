//! Drivers that are killed while their devices write to memory, and drivers that try what they may not do.
//!
//! The device is QEMU's `edu`, which transfers a page a tenth of a second after the request. The machines count
//! instructions, so that a seed repeats the same kills.

use crate::scenario::{Ctx, Failure, Run};
use guest_words::{word, WORDS};
use std::collections::HashMap;
use std::path::Path;
use xtask_build::project::temp_dir;

const PAGE: usize = 4096;

/// The words that the driver writes.
#[path = "../guest/src/edu/words.rs"]
#[allow(unreachable_pub, reason = "the guest's library shows it")]
mod guest_words;

/// Megabytes of a machine's memory.
const MEMORY: u32 = 128;

/// The pages of a machine's memory that have the words of one of these seeds, to the last.
fn found(memory: &Path, seeds: u64) -> Result<Vec<u64>, Failure> {
    let bytes = std::fs::read(memory).map_err(|error| error.to_string())?;
    let first: HashMap<u64, u64> = (0..=seeds).map(|seed| (word(seed, 0), seed)).collect();
    let at = |page: &[u8], index: usize| {
        let word = page[8 * index..][..8].try_into();
        word.map_or(0, u64::from_le_bytes)
    };
    let is = |page: &[u8]| {
        let seed = *first.get(&at(page, 0))?;
        (0..WORDS)
            .all(|index| at(page, index as usize) == word(seed, index))
            .then_some(seed)
    };
    Ok(bytes.chunks_exact(PAGE).filter_map(is).collect())
}

/// The driver is killed at seeded instants while its device reads and writes memory. What the device does afterwards
/// changes no byte; the next driver gets all of the memory, the line and the ports; and in the end no memory anywhere
/// has data of an earlier driver.
pub(crate) fn kills(ctx: &mut Ctx) -> Result<(), Failure> {
    kill(ctx, 20_261_123, 200)
}

/// The same with this seed, and so many kills.
pub(crate) fn kill(ctx: &mut Ctx, seed: u64, kills: u64) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let memory = directory.path().join("memory");
    let script = format!("trust /test/edus {seed} {kills} 2> /tmp/counts\n");
    let run = Run::script(script).get("/tmp/counts").edu().deterministic();
    let run = run.memory(MEMORY).memory_file(&memory);
    let output = ctx.run(run)?;
    let said = format!("edus: {kills} kills\n");
    output.expect_status(0)?.expect_stdout(&said)?;
    let counts = String::from_utf8_lossy(output.file("/tmp/counts")?).into_owned();
    let number = |index: usize| {
        let mut numbers = counts.split(|c: char| !c.is_ascii_digit());
        let number = numbers.by_ref().filter(|text| !text.is_empty()).nth(index);
        number.and_then(|text| text.parse::<u64>().ok())
    };
    let (attempts, interrupted) = (number(0).unwrap_or(0), number(1).unwrap_or(0));
    assert!(
        interrupted >= kills / 20,
        "{interrupted} transfers are too few"
    );
    // Two pages of the last driver's transfer, seed 0, and none of earlier ones.
    let found = found(&memory, attempts)?;
    assert!(
        found.contains(&0) && found.iter().all(|seed| *seed == 0),
        "pages of earlier drivers: {found:?}"
    );
    ctx.note(format!("seed {seed}, {kills} kills, {}", counts.trim()));
    Ok(())
}

/// A driver that asks for what others have, writes its device's configuration, asks for everything, allocates and
/// frees without end, sends wrong references, and never acknowledges an interrupt, is refused with a reason each
/// time, while another driver goes on.
pub(crate) fn hostile(ctx: &mut Ctx) -> Result<(), Failure> {
    let run = Run::script("trust /test/edus hostile\n").edu();
    let output = ctx.run(run.deterministic().memory(MEMORY))?;
    output.expect_status(0)?.expect_stdout(HOSTILE)?;
    Ok(())
}

/// Two drivers share a line. One of them never acknowledges an interrupt, or acknowledges it without having served
/// its device, and is killed again and again; the other one gets all its interrupts in time, and the remaining one
/// works on in the end.
pub(crate) fn shared(ctx: &mut Ctx) -> Result<(), Failure> {
    let run = Run::script("trust /test/edus 20261127\n").edu_shared();
    let output = ctx.run(run.deterministic().memory(MEMORY))?;
    output.expect_status(0)?.expect_stdout(SHARED)?;
    Ok(())
}

/// The output of drivers on a shared line.
const SHARED: &str = "\
Mute: told 1 times
Careless: told 101 times
edus: the other one has all its interrupts
edus: the one that is left works on
";

/// The output of a hostile driver.
const HOSTILE: &str = include_str!("driver_hostile.txt");
