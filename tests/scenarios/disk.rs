//! The disk: its driver, what outlives a boot, and the driver's death.

use crate::scenario::{Ctx, Failure, Run};
use std::path::PathBuf;
use xtask_build::project::temp_dir;

const SECTOR: usize = 512;
const MEGABYTE: usize = 1 << 20;

/// A disk of the host, with a pattern on it that tells each sector from all others.
fn make(directory: &tempfile::TempDir, bytes: usize) -> Result<PathBuf, Failure> {
    let file = directory.path().join("disk");
    std::fs::write(&file, pattern(bytes, 1)).map_err(|error| error.to_string())?;
    Ok(file)
}

/// Bytes that say in which sector they are, and whose they are.
fn pattern(bytes: usize, whose: u32) -> Vec<u8> {
    let word = |n: usize| (n as u32 / 128 * 7 + whose).wrapping_mul(0x9e37_79b9) ^ n as u32;
    (0..bytes / 4).flat_map(|n| word(n).to_le_bytes()).collect()
}

/// What is written in one boot is there in another, and on the host; all else stays as it was.
pub(crate) fn two_boots(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = make(&directory, 8 * MEGABYTE)?;
    let written = pattern(3 * MEGABYTE + SECTOR, 2);
    let first = Run::script(
        "trust disk size\n\
         trust disk read 100 300 > /tmp/before\n\
         trust disk write 1001 < /tmp/new\n\
         echo short > /tmp/short\n\
         trust disk write 16383 < /tmp/short\n",
    );
    let first = first.add("/tmp/new", written.clone()).get("/tmp/before");
    let output = ctx.run(first.disk(&disk))?;
    let expected = "16384 sectors of 512 bytes\n";
    output.expect_status(0)?.expect_stdout(expected)?;
    let mut all = pattern(8 * MEGABYTE, 1);
    let read = output.file("/tmp/before")?;
    assert!(
        read == &all[100 * SECTOR..400 * SECTOR],
        "what the host wrote"
    );

    let at = 1001 * SECTOR;
    all[at..at + written.len()].copy_from_slice(&written);
    let last = all.len() - SECTOR;
    all[last..].fill(0);
    all[last..last + 6].copy_from_slice(b"short\n");
    let host = std::fs::read(&disk).map_err(|error| error.to_string())?;
    assert!(host == all, "what the first boot wrote, on the host");

    let second = Run::script("trust disk read 0 16384 > /tmp/all\n").get("/tmp/all");
    let output = ctx.run(second.disk(&disk))?;
    output.expect_status(0)?.expect_stdout("")?;
    assert!(
        output.file("/tmp/all")? == all,
        "what the first boot wrote, in the second"
    );
    Ok(())
}

/// What a disk does not have is refused, and so is who does not have the power; a machine without a disk says so.
pub(crate) fn refusals(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = make(&directory, 64 * 1024)?;
    let script = "\
trust disk read 127 1 > /tmp/last
trust disk read 127 2
trust disk read 128 1
trust disk read 18446744073709551615 1
echo more > /tmp/more
trust disk write 128 < /tmp/more
disk size
disk read 0 1
trust disk flush
trust disk dance
echo alive
";
    let output = ctx.run(Run::script(script).get("/tmp/last").disk(&disk))?;
    let invalid = "disk: invalid argument\n";
    let denied = "disk: only who has the system port may: trust disk ...\n";
    let usage = "\
usage: disk size
       disk read SECTOR COUNT      to standard output
       disk write SECTOR           from standard input; the last sector is filled up with zeros
       disk flush                  what was written survives a loss of power
";
    let expected = format!("{}{}{usage}alive\n", invalid.repeat(4), denied.repeat(2));
    output.expect_status(0)?.expect_stdout(&expected)?;
    let host = std::fs::read(&disk).map_err(|error| error.to_string())?;
    assert!(host == pattern(64 * 1024, 1), "nothing was written");
    assert!(output.file("/tmp/last")? == &host[127 * SECTOR..]);

    let output = ctx.run(Run::script("trust disk size\n"))?;
    let none = "disk: there is no disk: run --disk FILE\n";
    output.expect_status(1)?.expect_stdout(none)?;
    Ok(())
}

/// The driver is killed at seeded instants while 40 requests are open: every read has what was written before it, no request ends with an error,
/// and in the end the host finds what was written last.
pub(crate) fn kills(ctx: &mut Ctx) -> Result<(), Failure> {
    const SEED: u64 = 20_261_123;
    const KILLS: u64 = 200;
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = make(&directory, 4 * MEGABYTE)?;
    let script = format!("trust /test/disks {SEED} {KILLS}\ntrust disk size\n");
    let run = Run::script(script).get("/tmp/model");
    let output = ctx.run(run.disk(&disk).timeout(300))?;
    output.expect_status(0)?;
    let text = output.text();
    let requests = text
        .strip_prefix(&format!("disks: {KILLS} kills, "))
        .and_then(|text| text.strip_suffix(" requests\n8192 sectors of 512 bytes\n"))
        .and_then(|requests| requests.parse::<u64>().ok())
        .ok_or_else(|| format!("the console holds\n{text}"))?;
    assert!(requests > 4 * KILLS, "{requests} requests are no load");
    ctx.note(format!("seed {SEED}, {KILLS} kills, {requests} requests"));
    let mut all = pattern(4 * MEGABYTE, 1);
    let model = output.file("/tmp/model")?;
    all[..model.len()].copy_from_slice(model);
    let host = std::fs::read(&disk).map_err(|error| error.to_string())?;
    assert!(host == all, "what the host finds");
    Ok(())
}
