//! The disk: its driver, content that outlives a boot, and the driver's death.

use std::fmt::Write;

use super::{elf, expect_at_work, linux_program};
use crate::scenario::{Ctx, Failure, Run};
use std::path::{Path, PathBuf};
use xtask_build::linux::Program;
use xtask_build::project::temp_dir;
use xtask_machine::disk::{self, check, Disk};

const SECTOR: usize = 512;
const MEGABYTE: usize = 1 << 20;

/// A disk of the host, with a pattern that distinguishes each sector from all others.
fn make(directory: &tempfile::TempDir, bytes: usize) -> Result<PathBuf, Failure> {
    let file = directory.path().join("disk");
    std::fs::write(&file, pattern(bytes, 1)).map_err(|error| error.to_string())?;
    Ok(file)
}

/// Bytes that depend on the sector and on the owner.
fn pattern(bytes: usize, whose: u32) -> Vec<u8> {
    let word = |n: usize| (n as u32 / 128 * 7 + whose).wrapping_mul(0x9e37_79b9) ^ n as u32;
    (0..bytes / 4).flat_map(|n| word(n).to_le_bytes()).collect()
}

/// Data that is written in one boot is there in another, and on the host; all other data stays unchanged.
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

/// Requests for sectors that the disk does not have are refused, and so are programs without the power; on a machine
/// without a disk the program says so.
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

/// Programs that make, rename, link and remove files on a disk are saved, killed and restored in the middle of that:
/// each operation is done once. Done twice, it would fail the second time, or its result would be there twice.
pub(crate) fn cut(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = directory.path().join("disk");
    std::fs::write(&disk, vec![0; 64 * MEGABYTE]).map_err(|error| error.to_string())?;
    let command = "rm -rf /disk/d; mkdir /disk/d; cd /disk/d; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do \
        mkdir a && mv a b && rmdir b && echo \\$i > c && ln c e && rm c && mv e f && ln -s f g && rm g f || echo failed; \
        echo line \\$i >> log; done; cat log; ls";
    let mut script = String::new();
    for seed in 1..=3 {
        let _ = writeln!(
            script,
            "/test/cutter seed={seed} cuts=40 linux /bin/busybox sh -c \"{command}\"\n\
             busybox grep -c failed /tmp/cutter.plain"
        );
    }
    let run = Run::script(script).word("program-ceiling=31").disk(&disk);
    let output = ctx.run(run)?;
    let text = output.text();
    let lines: Vec<&str> = text.lines().collect();
    if text.matches("bytes of output equal").count() != 3
        || lines.iter().filter(|line| **line == "0").count() != 3
    {
        return Err(format!("not everything was done once:\n{text}"));
    }
    for line in lines.iter().filter(|line| line.contains("cuts within")) {
        ctx.note(line.trim_start_matches("note "));
    }
    expect_clean(&disk)
}

/// Fails unless `e2fsck` finds no error in the file system on a disk, after its journal was replayed.
fn expect_clean(disk: &Path) -> Result<(), Failure> {
    check(disk).map_err(|error| error.message)
}

/// A blank disk gets a file system, and files of native and Linux programs outlive the machine, which is switched off
/// without notice.
pub(crate) fn files(ctx: &mut Ctx) -> Result<(), Failure> {
    files_of(ctx, None)
}

/// The same with this driver of the disk.
pub(crate) fn files_of(ctx: &mut Ctx, driver: Option<Program>) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = directory.path().join("disk");
    std::fs::write(&disk, vec![0; 64 * MEGABYTE]).map_err(|error| error.to_string())?;
    let content = pattern(2 * MEGABYTE + 100, 3);
    let first = "\
mkdir /disk/d
cp /tmp/new /disk/d/native
busybox cp /tmp/new /disk/d/linux
busybox ln -s d/linux /disk/link
busybox ln /disk/d/linux /disk/hard
echo one > /disk/text
echo two >> /disk/text
busybox mv /tmp/moved /disk/moved
mv /disk/d/native /tmp/back
cp /tmp/back /disk/d/again
busybox ln -s d /disk/into
busybox sh -c 'cd /disk/into && ls linux'
rm /disk/into
cd /disk/d
echo here > ./h
busybox mv h ../h2
busybox rm -f again
busybox ls -1 ..
cd /
rm /disk/hard
busybox stat -c '%i on %d' /disk/text > /disk/d/number
mv /disk/d /tmp/d
rmdir /disk/d
cat /disk/../disk/text
cat /tmp/new > /disk/last
";
    let first = Run::script(first)
        .add("/tmp/new", content.clone())
        .add("/tmp/moved", "moved\n")
        .get("/tmp/back")
        .driver(driver.clone());
    let output = ctx.run(first.disk(&disk))?;
    output.expect_status(0)?.expect_stdout(
        "linux\nd\nh2\nhard\nlink\nlost+found\nmoved\ntext\n\
         mv: /disk/d: not supported\n\
         rmdir: /disk/d: directory not empty\n\
         one\ntwo\n",
    )?;
    assert!(output.file("/tmp/back")? == content);
    expect_clean(&disk)?;
    // The machine is switched off as soon as the program has ended: its writes are durable by then.
    let last = directory.path().join("last");
    let got = Disk::open(&disk).and_then(|disk| disk.get("last", &last));
    got.map_err(|error| error.message)?;
    let last = std::fs::read(last).map_err(|error| error.to_string())?;
    assert!(last == content, "what a program's output was");

    let second = "\
ls /disk /disk/d
cat /disk/text /disk/moved /disk/h2
busybox cmp /disk/link /tmp/new
cp /bin/busybox /disk/busybox
/disk/busybox echo from the disk
busybox stat -c '%i on %d' /disk/text | busybox cmp - /disk/d/number && echo the same file
busybox ls -i /disk/text | busybox sed 's/ *\\([0-9]*\\).*/\\1 on 22/' | busybox cmp - /disk/d/number && echo in lists too
";
    let second = Run::script(second)
        .add("/tmp/new", content)
        .get("/disk/d/linux")
        .driver(driver);
    let output = ctx.run(second.disk(&disk))?;
    output.expect_status(0)?.expect_stdout(
        "/disk:\nd\nh2\nlast\nlink\nlost+found\nmoved\ntext\n\n/disk/d:\nlinux\nnumber\n\
         one\ntwo\nmoved\nhere\nfrom the disk\nthe same file\nin lists too\n",
    )?;
    assert!(output.file("/disk/d/linux")? == pattern(2 * MEGABYTE + 100, 3));
    expect_clean(&disk)
}

/// Programs write and read files while the driver is killed at seeded instants: they notice nothing.
pub(crate) fn files_kills(ctx: &mut Ctx) -> Result<(), Failure> {
    files_kills_of(ctx, None, 100)
}

/// The same with this driver of the disk, and so many kills.
pub(crate) fn files_kills_of(
    ctx: &mut Ctx,
    driver: Option<Program>,
    kills: u64,
) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = directory.path().join("disk");
    std::fs::write(&disk, vec![0; 64 * MEGABYTE]).map_err(|error| error.to_string())?;
    let round = "\
busybox cp /bin/busybox /disk/new
mv /disk/new /disk/kept
busybox cmp /bin/busybox /disk/kept
cp /disk/kept /tmp/back
cmp /tmp/back /bin/busybox
";
    let whom = driver.as_ref().map_or("virtio-blk", |driver| driver.name);
    let killer = format!("trust /test/disks kill 5 {kills} {whom} > /tmp/killer &\n");
    let script = format!("{killer}{}wait\ncat /tmp/killer\n", round.repeat(6));
    let output = ctx.run(Run::script(script).disk(&disk).driver(driver))?;
    output.expect_status(0)?;
    let text = output.text();
    let at_work = came_at_work(&text, kills).ok_or_else(|| format!("the console holds\n{text}"))?;
    expect_at_work(at_work, kills)?;
    ctx.note(format!("{kills} kills, {at_work} at work"));
    expect_clean(&disk)
}

/// How many of so many kills came while the server was working, from this line of `disks kill`.
fn came_at_work(line: &str, kills: u64) -> Option<u64> {
    let rest = line.strip_prefix(&format!("done: {kills} kills, "))?;
    rest.trim_end().strip_suffix(" at work")?.parse().ok()
}

/// Programs and files have the date, in memory and on the disk. A machine that counts instructions begins at a fixed
/// date. (While it waits for its disk its clock may jump.)
pub(crate) fn date(ctx: &mut Ctx) -> Result<(), Failure> {
    /// The beginning of 2030.
    const BEGIN: u64 = 1_893_456_000;
    const DAY: u64 = 86_400;
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = directory.path().join("disk");
    std::fs::write(&disk, vec![0; 32 * MEGABYTE]).map_err(|error| error.to_string())?;
    let script = "\
busybox date +%s
echo x > /tmp/file
echo x > /disk/file
busybox touch /tmp/touched /disk/touched
sleep 3
busybox stat -c '%X %Y %Z' /tmp/file /disk/file /tmp/touched /disk/touched
busybox date +%s
ls -l /disk/file
date
";
    let output = ctx.run(Run::script(script).disk(&disk).deterministic())?;
    output.expect_status(0)?;
    let text = output.text();
    let (times, days) = text.split_once("-rw-").unwrap_or_default();
    let times: Vec<u64> = times
        .split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let first = times.first().copied().unwrap_or(0);
    let last = times.last().copied().unwrap_or(0);
    let sound = times.len() == 2 + 4 * 3
        && (BEGIN..BEGIN + DAY).contains(&first)
        && (first + 3..BEGIN + DAY).contains(&last)
        && times.iter().all(|time| (first..=last).contains(time))
        && days.matches("2030-01-01 ").count() == 2;
    sound
        .then_some(())
        .ok_or_else(|| format!("the console holds\n{text}"))
}

/// The same while the file server is killed: open files stay open, and nothing is lost or done twice.
pub(crate) fn server_kills(ctx: &mut Ctx) -> Result<(), Failure> {
    const KILLS: u64 = 100;
    const ROUNDS: usize = 8;
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = directory.path().join("disk");
    std::fs::write(&disk, vec![0; 64 * MEGABYTE]).map_err(|error| error.to_string())?;
    // Many requests to one open file: pieces of 1,000 bytes, each appended.
    let round = "\
cp /bin/busybox /disk/new
mv /disk/new /disk/native
cmp /bin/busybox /disk/native
busybox cp /bin/busybox /disk/new
busybox mv /disk/new /disk/linux
busybox cmp /bin/busybox /disk/linux
busybox dd if=/tmp/pieces of=/disk/pieces bs=1000
busybox dd if=/tmp/pieces bs=1000 >> /disk/log
mkdir /disk/d
busybox rmdir /disk/d
echo line >> /disk/lines
";
    let killer = format!("trust /test/disks kill 7 {KILLS} ext4 > /tmp/killer &\n");
    let script = format!("{killer}{}wait\ncat /tmp/killer\n", round.repeat(ROUNDS));
    let pieces = pattern(100_000, 4);
    let run = Run::script(script)
        .add("/tmp/pieces", pieces.clone())
        .disk(&disk);
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let text = output.text();
    let silent = |line: &&str| !line.contains("records ") && !line.contains("bytes (");
    let said: Vec<&str> = text.lines().filter(silent).collect();
    let at_work = match said[..] {
        [line] => came_at_work(line, KILLS),
        _ => None,
    };
    let at_work = at_work.ok_or_else(|| format!("the console holds\n{text}"))?;
    expect_at_work(at_work, KILLS)?;
    ctx.note(format!("{KILLS} kills, {at_work} at work"));
    expect_clean(&disk)?;
    let disk = Disk::open(&disk).map_err(|error| error.message)?;
    let read = |name: &str| -> Result<Vec<u8>, Failure> {
        let to = directory.path().join(name);
        disk.get(name, &to).map_err(|error| error.message)?;
        std::fs::read(to).map_err(|error| error.to_string())
    };
    assert!(read("native")? == read("linux")?);
    assert!(read("pieces")? == pieces);
    assert!(read("log")? == pieces.repeat(ROUNDS), "each piece once");
    assert_eq!(read("lines")?, b"line\n".repeat(ROUNDS));
    Ok(())
}

/// A disk without a file system is left unchanged, and reported; one with a file system that the host has made is
/// read and written.
pub(crate) fn foreign(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = make(&directory, 4 * MEGABYTE)?;
    let script = "ls /disk\necho x > /disk/x\nls /diskette\n";
    let output = ctx.run(Run::script(script).disk(&disk))?;
    let format = "not in a valid format";
    output.expect_status(1)?.expect_stdout(&format!(
        "ls: /disk: {format}\n/disk/x: {format}\nls: /diskette: no such file or directory\n"
    ))?;
    let host = std::fs::read(&disk).map_err(|error| error.to_string())?;
    assert!(host == pattern(4 * MEGABYTE, 1), "it was left as it is");

    let tree = directory.path().join("tree");
    let text = |error: std::io::Error| error.to_string();
    std::fs::create_dir_all(tree.join("sub")).map_err(text)?;
    std::fs::write(tree.join("sub/file"), "of the host\n").map_err(text)?;
    let made = directory.path().join("made");
    disk::make(&made, 64 << 20, Some(&tree)).map_err(|error| error.message)?;
    let script = "cat /disk/sub/file\necho of the guest > /disk/sub/other\n";
    let output = ctx.run(Run::script(script).disk(&made))?;
    output.expect_status(0)?.expect_stdout("of the host\n")?;
    expect_clean(&made)?;
    let got = directory.path().join("got");
    let disk = Disk::open(&made).and_then(|disk| disk.get("sub/other", &got));
    disk.map_err(|error| error.message)?;
    assert_eq!(std::fs::read(&got).map_err(text)?, b"of the guest\n");
    Ok(())
}

/// A native program that reads a file of the disk is saved, killed and restored at eight instants, and prints the
/// same as an undisturbed run: the image names its session with the file system of the disk. In some runs it is saved
/// again before the reopened file was read.
pub(crate) fn checkpoint(ctx: &mut Ctx) -> Result<(), Failure> {
    const RUNS: usize = 10;
    let directory = temp_dir().map_err(|error| error.message)?;
    let tree = directory.path().join("tree");
    let text = |error: std::io::Error| error.to_string();
    std::fs::create_dir(&tree).map_err(text)?;
    std::fs::write(tree.join("a"), pattern(4 * MEGABYTE, 4)).map_err(text)?;
    let disk = directory.path().join("disk");
    disk::make(&disk, 64 << 20, Some(&tree)).map_err(|error| error.message)?;
    let mut script = String::new();
    for seed in 1..=RUNS {
        script += &format!("/test/cutter seed={seed} cuts=8 native /sbin/tools cat /disk/a\n");
    }
    let run = Run::script(&script).word("program-ceiling=31").disk(&disk);
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let text = output.text();
    let equal = format!("{} bytes of output equal", 4 * MEGABYTE);
    assert_eq!(text.matches("note 8 cuts within").count(), RUNS, "{text}");
    assert_eq!(text.matches(&equal).count(), RUNS, "{text}");
    expect_clean(&disk)
}

/// A native program is restored in the boot in which it was saved, after others have renamed and written the files that
/// it had open, in memory and on the disk. It writes to no other file, and writes nothing again of what it had written
/// before it was saved, not even when the server of the disk dies afterwards.
pub(crate) fn checkpoint_reopens(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = directory.path().join("disk");
    disk::make(&disk, 64 << 20, None).map_err(|error| error.message)?;
    let places = ["/tmp", "/disk"];
    let mut script = String::new();
    for place in places {
        let _ = write!(
            script,
            "echo to read > {place}/in\n\
             /test/reopens {place} &\n\
             sleep 1\n\
             checkpoint --stop %1 /tmp/image\n\
             kill %1\n\
             mv {place}/out {place}/in\n\
             echo BBBB > {place}/shared\n\
             restore /tmp/image\n\
             sleep 3.5\n\
             trust /test/disks kill 7 1 ext4 > /tmp/killer\n\
             wait\n\
             cat {place}/in {place}/shared\n"
        );
    }
    let output = ctx.run(Run::script(&script).disk(&disk))?;
    let text = output.text();
    for place in places {
        // What is at the path of the input is read, and the output has no name any more.
        let said = format!(
            "{place}: in \"put out\\n\", out: no such file or directory, shared \"BBBB\\nCCCC\\n\"\n\
             put out\nBBBB\nCCCC\n"
        );
        if !text.contains(&said) {
            return Err(format!("{said}is not in\n{text}"));
        }
    }
    expect_clean(&disk)
}

/// A process goes on while another one of its set is frozen, whose file is read from the disk meanwhile: the clock of
/// the image is not before the times that the process has seen.
pub(crate) fn checkpoint_clock(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let tree = directory.path().join("tree");
    let text = |error: std::io::Error| error.to_string();
    std::fs::create_dir(&tree).map_err(text)?;
    std::fs::write(tree.join("a"), pattern(2 * MEGABYTE, 4)).map_err(text)?;
    let disk = directory.path().join("disk");
    disk::make(&disk, 64 << 20, Some(&tree)).map_err(|error| error.message)?;
    let run = Run::script("/test/savers clock /disk/a\n").disk(&disk);
    let output = ctx.run(run)?;
    let text = output.text();
    match text.contains("clock: as it should be\n") {
        true => Ok(()),
        false => Err(text),
    }
}

/// A client that makes senseless requests gets a defined error each time, changes nothing, and disturbs no other
/// client by what it leaves behind.
pub(crate) fn hostile(ctx: &mut Ctx) -> Result<(), Failure> {
    hostile_of(ctx, None)
}

/// The same with this driver of the disk.
pub(crate) fn hostile_of(ctx: &mut Ctx, driver: Option<Program>) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = make(&directory, MEGABYTE)?;
    let script = "trust /test/disks hostile\ntrust disk size\n";
    let output = ctx.run(Run::script(script).disk(&disk).driver(driver))?;
    let line = |(what, said): (&str, &str)| format!("hostile: {what}: {said}\n");
    let (invalid, none) = ("invalid argument", "not supported");
    let doors = [
        ("device, as a driver", "permission denied"),
        ("device, as init", "permission denied"),
        ("device, its sectors", none),
        ("disk, as a driver", none),
        ("disk, as init", none),
        ("disk, its sectors", "permission denied"),
    ];
    let nonsense = [
        "nothing to wait for",
        "a tag that is none",
        "another one",
        "no sectors",
        "too many",
        "as many as there are numbers",
        "more bytes than there are numbers",
        "behind the last",
        "across the last",
        "far behind the last",
        "half a sector",
        "nothing",
        "what was not read",
        "its release",
    ];
    let order = [
        ("a read", "DONE"),
        ("the same tag", invalid),
        ("its end", "DONE"),
        ("with too little room", invalid),
        ("with room", "DONE"),
        ("the same tag, as it is not released", invalid),
        ("a release", "DONE"),
        ("another one", invalid),
    ];
    let doors: String = doors.map(line).concat();
    let nonsense: String = nonsense.map(|what| line((what, invalid))).concat();
    let order: String = order.map(line).concat();
    output.expect_status(0)?.expect_stdout(&format!(
        "{doors}{nonsense}{order}\
         hostile: 32 at a time\n\
         hostile: one more: nothing there yet\n\
         hostile: after that: DONE\n\
         2048 sectors of 512 bytes\n"
    ))?;
    let host = std::fs::read(&disk).map_err(|error| error.to_string())?;
    assert!(host == pattern(MEGABYTE, 1), "nothing was written");
    Ok(())
}

/// The driver is killed at seeded instants while 40 requests are open: every read returns what was written before it,
/// no request ends with an error, and in the end the host finds what was written last.
pub(crate) fn kills(ctx: &mut Ctx) -> Result<(), Failure> {
    kill(ctx, 20_261_123, 200)
}

/// The same with this seed, and so many kills.
pub(crate) fn kill(ctx: &mut Ctx, seed: u64, kills: u64) -> Result<(), Failure> {
    kill_of(ctx, None, seed, kills)
}

/// The same with this driver of the disk.
pub(crate) fn kill_of(
    ctx: &mut Ctx,
    driver: Option<Program>,
    seed: u64,
    kills: u64,
) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = make(&directory, 4 * MEGABYTE)?;
    let whom = driver.as_ref().map_or("virtio-blk", |driver| driver.name);
    let script = format!("trust /test/disks {seed} {kills} {whom}\ntrust disk size\n");
    let run = Run::script(script).get("/tmp/model").driver(driver);
    let output = ctx.run(run.disk(&disk))?;
    output.expect_status(0)?;
    let text = output.text();
    let counts = text
        .strip_prefix(&format!("disks: {kills} kills, "))
        .and_then(|text| text.strip_suffix(" requests\n8192 sectors of 512 bytes\n"));
    let at_work = counts
        .and_then(|counts| counts.split_once(" at work, ")?.0.parse().ok())
        .ok_or_else(|| format!("the console holds\n{text}"))?;
    expect_at_work(at_work, kills)?;
    let counts = counts.unwrap_or_default();
    ctx.note(format!("seed {seed}, {kills} kills, {counts} requests"));
    let mut all = pattern(4 * MEGABYTE, 1);
    let model = output.file("/tmp/model")?;
    all[..model.len()].copy_from_slice(model);
    let host = std::fs::read(&disk).map_err(|error| error.to_string())?;
    assert!(host == all, "what the host finds");
    Ok(())
}

/// A machine whose disk driver is started and never offers the disk is not one without a disk: the disk's files are
/// not looked for in memory, and the boot goes on.
pub(crate) fn absent(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = directory.path().join("disk");
    std::fs::write(&disk, vec![0; MEGABYTE]).map_err(|error| error.to_string())?;
    let call = abi::Call::ThreadWaitInterrupt as u8;
    // mov eax, call; syscall; jmp back
    let waits = elf(&[0xb8, call, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7]);
    let driver = Program {
        name: "absent",
        device: "",
        service: "disk",
        line: "sbin/absent disk pci=1af4:1001 pci=1af4:1042 dma=400000\n".into(),
        elf: waits,
    };
    let run = Run::script("cat /disk/file\necho made > /disk/file\ncat /tmp/file\n")
        .disk(&disk)
        .driver(Some(driver));
    let output = ctx.run(run)?;
    let text = output.text();
    let late = "does not answer sensibly";
    let lines: Vec<&str> = text.lines().collect();
    let fits = lines.contains(&"init: disk has not started")
        && lines.iter().filter(|line| line.ends_with(late)).count() == 2
        && lines.last() == Some(&"cat: /tmp/file: no such file or directory");
    match fits {
        true => Ok(()),
        false => Err(text),
    }
}

/// A disk whose server never answers does not hold up programs that are started from memory. A thread that waits for
/// a program of the disk can be stopped and killed, and nothing remains; saved and restored, it waits again, until
/// the server has died.
pub(crate) fn silent(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
trust /test/silent_disk stay &
sleep 0.05
/test/silent_disk wait > /tmp/out &
sleep 0.05
trust /test/silent_disk others
checkpoint -v %2 /tmp/image
kill %2
wait %2
cat /tmp/out
ps > /tmp/without
restore /tmp/image
sleep 0.05
ps > /tmp/with
cat /tmp/with
kill %1
wait %2
cat /tmp/out
ps > /tmp/after
";
    // There is no device, so that the machine can count instructions: they bound how long others wait.
    let run = Run::script(script)
        .deterministic()
        .get("/tmp/without")
        .get("/tmp/with")
        .get("/tmp/after");
    let output = ctx.run(run)?;
    let file = |path| {
        let bytes = output.file(path)?;
        Ok::<_, Failure>(String::from_utf8_lossy(bytes).into_owned())
    };
    let (without, with, after) = (
        file("/tmp/without")?,
        file("/tmp/with")?,
        file("/tmp/after")?,
    );
    let text = output.text();
    let waits = |text: &str| text.contains("/test/silent_disk wait");
    let fits = text.contains("others were started\n")
        && !waits(&without)
        && waits(&with)
        && !waits(&after)
        && text.ends_with("wait: the server does not answer sensibly\n");
    if !fits {
        return Err(format!("{text}\n{without}\n{with}\n{after}"));
    }
    Ok(())
}

/// A disk that does not answer for a while holds up only the programs that wait for it: other clients of the file
/// server are refused and end, and other programs run, native and Linux. Waiting programs are saved and restored, in
/// a read and in an `execve`, and when the disk answers again every request is answered. Saving and restoring a
/// program that has a file open there wait, too, and hold up no other program.
pub(crate) fn slow(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = directory.path().join("disk");
    std::fs::write(&disk, vec![0; 64 * MEGABYTE]).map_err(|error| error.to_string())?;
    let Some(program) = linux_program(ctx, directory.path(), "turns") else {
        return Ok(());
    };
    let program = std::fs::read(&program).map_err(|error| error.to_string())?;
    let script = "\
cp /tmp/content /disk/held
cp /bin/busybox /disk/busybox
trust /test/slow_disk hold > /tmp/holds &
until [ -s /tmp/holds ]; do sleep 0.01; done
/test/slow_disk read /disk/held > /tmp/native &
busybox sh -c 'cat /disk/held > /tmp/linux; echo kept > /disk/new' &
busybox cat /disk/held &
busybox sh -c 'exec /disk/busybox echo a program of the disk' > /tmp/executed &
/bin/turns /disk/held > /tmp/mapped &
sleep 0.05
/test/slow_disk others
busybox sh -c 'echo a Linux program | cat'
kill %4
checkpoint %2 /tmp/image
kill %2
ps > /tmp/without
restore /tmp/image
checkpoint %5 /tmp/image5
kill %5
restore /tmp/image5
sleep 0.05
ps > /tmp/with
trust sh -c 'set -- $(grep turns /tmp/with); checkpoint linux:$3 /tmp/image6' &
sleep 0.05
busybox sh -c 'echo another one | cat'
kill %1
wait
rm /tmp/mapped /tmp/holds
trust /test/slow_disk hold > /tmp/holds &
until [ -s /tmp/holds ]; do sleep 0.01; done
/bin/restore /tmp/image6 > /tmp/restored &
sleep 0.05
busybox sh -c 'echo a third one | cat'
kill %1
wait
until [ -s /tmp/mapped ]; do sleep 0.01; done
cat /tmp/executed /tmp/mapped
cat /tmp/native
cat /disk/new
cmp /tmp/linux /tmp/content
";
    let run = Run::script(script)
        .add("/tmp/content", pattern(100_000, 5))
        .add_program("/bin/turns", program)
        .get("/tmp/without")
        .get("/tmp/with")
        .disk(&disk);
    let output = ctx.run(run)?;
    let text = output.text();
    let fits = text
        == "1000 were refused, 140 were killed\na Linux program\nanother one\na third one\n\
            a program of the disk\n100000 bytes are mapped, the right ones\n\
            /disk/held: 100000 bytes\nkept\n";
    let lists = |path| {
        let list = String::from_utf8_lossy(output.file(path)?).into_owned();
        Ok::<_, Failure>(list.contains("slow_disk read"))
    };
    if !fits || lists("/tmp/without")? || !lists("/tmp/with")? {
        return Err(format!("the console holds\n{text}"));
    }
    expect_clean(&disk)
}
