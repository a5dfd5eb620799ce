//! Devices of random numbers, good and bad ones, and the server of random bytes, which uses the good ones and is not
//! harmed by the bad ones.

use super::expect_at_work;
use crate::scenario::{Ctx, Failure, Run};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use xtask_build::project::temp_dir;
use xtask_machine::disk;
use xtask_machine::rng::Rng;

/// The server's message on a processor without random numbers.
const NO_SECRET: &str =
    "random: the processor has no random numbers: what programs get is no secret\n";
/// The server's later message, when a device has supplied some.
const SECRET: &str =
    "random: the device has given random numbers: what programs get is good for secrets\n";
/// The server's message about a device without randomness.
const POOR: &str = "random: what the device gives does not look like chance, and does not count\n";

/// Runs a machine, and checks how often the server prints each of these messages. Returns the script's output.
fn said(ctx: &mut Ctx, run: Run, server: &[(&str, usize)]) -> Result<String, Failure> {
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let mut text = output.text();
    for (line, count) in server {
        if text.matches(line).count() != *count {
            return Err(format!("not {count} times {line}in\n{text}"));
        }
        text = text.replace(line, "");
    }
    Ok(text)
}

fn expect(text: &str, expected: &str) -> Result<(), Failure> {
    match text == expected {
        true => Ok(()),
        false => Err(format!("the console holds\n{text}\ninstead of\n{expected}")),
    }
}

/// Prints the state of the random bytes, whatever that is, and that two reads differ.
const STATE: &str = "\
/test/entropy state
busybox cat /proc/sys/kernel/random/entropy_avail
busybox head -c 64 /dev/urandom > /tmp/a
busybox head -c 64 /dev/random > /tmp/b
busybox cmp -s /tmp/a /tmp/b || echo others
";

/// Random bytes are good for secrets if the processor or a device has random numbers, and only the server of random
/// bytes can open a session with the driver.
pub(crate) fn comes(ctx: &mut Ctx) -> Result<(), Failure> {
    let script =
        format!("/test/entropy wait 1\n{STATE}/test/entropy doors\ntrust /test/entropy doors\n");
    let denied = "permission denied";
    let doors = "\
by its name: permission denied
by init: permission denied
";
    let with = |state: &str| {
        format!("{state}256\nothers\n{doors}by the system port: {denied}\n{doors}by the system port: {denied}\n")
    };
    let run = || Run::script(&*script).rng(Rng::Host);
    let text = said(ctx, run(), &[(NO_SECRET, 0), (SECRET, 0), (POOR, 0)])?;
    expect(&text, &with("secret, something of a device\n"))?;
    let server = [(NO_SECRET, 1), (SECRET, 1), (POOR, 0)];
    let text = said(ctx, run().without_rdrand(), &server)?;
    expect(&text, &with("secret, something of a device\n"))?;

    let text = said(ctx, Run::script(STATE), &[(NO_SECRET, 0)])?;
    expect(&text, "secret, nothing of a device\n256\nothers\n")?;
    let text = said(ctx, Run::script(STATE).without_rdrand(), &[(NO_SECRET, 1)])?;
    expect(&text, "no secret, nothing of a device\n0\nothers\n")
}

/// A device that never answers: clients that ask for bytes get them, also when the driver that waits for the device
/// is killed.
pub(crate) fn silent(ctx: &mut Ctx) -> Result<(), Failure> {
    let kill = "trust /test/nets kill virtio-rng\nsleep 0.1\n";
    let script = format!("{STATE}{kill}{STATE}{kill}{STATE}");
    let run = Run::script(script).without_rdrand().rng(Rng::Silent);
    let text = said(ctx, run, &[(NO_SECRET, 1), (SECRET, 0), (POOR, 0)])?;
    expect(
        &text,
        &"no secret, nothing of a device\n0\nothers\n".repeat(3),
    )
}

/// A device that supplies zeros: they do no harm and do not count.
pub(crate) fn poor(ctx: &mut Ctx) -> Result<(), Failure> {
    let zeros = || Rng::File("/dev/zero".into());
    let script = format!("/test/entropy wait 1\n{STATE}");
    let server = [(NO_SECRET, 1), (SECRET, 0), (POOR, 1)];
    let run = Run::script(&*script).without_rdrand().rng(zeros());
    let text = said(ctx, run, &server)?;
    expect(&text, "no secret, something of a device\n0\nothers\n")?;
    let run = Run::script(script).rng(zeros());
    let text = said(ctx, run, &[(NO_SECRET, 0), (SECRET, 0), (POOR, 1)])?;
    expect(&text, "secret, something of a device\n256\nothers\n")
}

/// A device that supplies a byte now and then: the bytes are collected, and no client waits for them.
pub(crate) fn slow(ctx: &mut Ctx) -> Result<(), Failure> {
    /// The pause between two bytes.
    const PAUSE: Duration = Duration::from_millis(10);
    let directory = temp_dir().map_err(|error| error.message)?;
    let pipe = directory.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|status| status.success()) {
        return Err("mkfifo failed".into());
    }
    // Opened for reading, too, so that opening does not wait for the machine, and the pipe outlives it.
    let file = std::fs::File::options().read(true).write(true).open(&pipe);
    let mut file = file.map_err(|error| error.to_string())?;
    let over = AtomicBool::new(false);
    let text = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(1);
            while !over.load(Ordering::Relaxed) && file.write_all(&[random.u8(..)]).is_ok() {
                std::thread::sleep(PAUSE);
            }
        });
        let script = format!("/test/entropy wait 2\n{STATE}");
        let run = Run::script(script).without_rdrand();
        let server = [(NO_SECRET, 1), (SECRET, 1), (POOR, 0)];
        let text = said(ctx, run.rng(Rng::File(pipe)), &server);
        over.store(true, Ordering::Relaxed);
        text
    });
    expect(&text?, "secret, something of a device\n256\nothers\n")
}

/// The driver is killed at seeded instants while clients ask for bytes, and while the disk that shares the line is
/// used: no client notices, and the following drivers ask the device again.
pub(crate) fn kills(ctx: &mut Ctx) -> Result<(), Failure> {
    kill(ctx, 20_261_127, 200)
}

/// The same with this seed, and so many kills.
pub(crate) fn kill(ctx: &mut Ctx, seed: u64, kills: u64) -> Result<(), Failure> {
    /// Disks are at address 2, and every fourth device has the same line.
    const ADDRESS: u8 = 6;
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = directory.path().join("disk");
    std::fs::write(&disk, vec![0; 32 << 20]).map_err(|error| error.to_string())?;
    let round = "\
busybox cp /bin/busybox /disk/new
mv /disk/new /disk/kept
busybox cmp /bin/busybox /disk/kept
";
    let load = format!("trust /test/entropy load {seed} {kills} 2> /tmp/counts &\n");
    let script = format!("{load}{}wait\n{STATE}", round.repeat(4));
    let run = Run::script(script).without_rdrand().get("/tmp/counts");
    let output = ctx.run(run.disk(&disk).rng(Rng::Host).rng_at(ADDRESS))?;
    output.expect_status(0)?;
    let text = output.text().replace(NO_SECRET, "").replace(SECRET, "");
    let state = "secret, something of a device\n256\nothers\n";
    let at_work = text
        .strip_prefix(&format!("entropy: {kills} kills, "))
        .and_then(|rest| {
            rest.strip_suffix(&format!(" at work\n{state}"))?
                .parse()
                .ok()
        })
        .ok_or_else(|| format!("the console holds\n{text}"))?;
    expect_at_work(at_work, kills)?;
    clean(&disk)?;
    let counts = String::from_utf8_lossy(output.file("/tmp/counts")?).into_owned();
    let counts = counts.trim();
    ctx.note(format!(
        "seed {seed}, {kills} kills, {at_work} at work, {counts}"
    ));
    Ok(())
}

/// Fails unless the file system on a disk is sound.
fn clean(disk: &Path) -> Result<(), Failure> {
    disk::check(disk).map_err(|error| error.message)
}
