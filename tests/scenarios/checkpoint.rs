//! Checkpoints of programs, in one boot and over two; damaged and hostile images; determinism.

use std::fmt::Write;

use super::linux_program;
use crate::scenario::{Ctx, Failure, Output, Run};
use xtask_build::project::temp_dir;

/// The four programs that are cut everywhere, as arguments of busybox, and whether their input is `/data/text`.
const PROGRAMS: [(&str, &str); 4] = [
    ("gzip", "gzip -9 -c /data/text"),
    ("sha256sum", "sha256sum /data/text"),
    ("sort", "sort /data/text"),
    (
        "awk",
        "awk '{ n[$1]++; s += $NF } END { for (w in n) t += n[w]; print t, s }' /data/text",
    ),
];

/// Text of about this many bytes, the same every time: lines of made-up words and a number.
pub(super) fn text(bytes: usize) -> String {
    let mut random = fastrand::Rng::with_seed(1);
    let mut next = |end: u64| random.u64(..end);
    let mut text = String::with_capacity(bytes + 128);
    while text.len() < bytes {
        for _ in 0..2 + next(9) {
            // Lines begin with one of a few words, so that the count of words by `awk` has entries above one.
            let word = next(4000);
            for shift in 0..2 + word % 5 {
                let letter = (word.wrapping_mul(31).wrapping_add(shift * 7 + word / 26)) % 26;
                text.push(char::from(b'a' + letter as u8));
            }
            text.push(' ');
        }
        let _ = writeln!(text, "{}", next(100_000));
    }
    text
}

/// Reads the line that the cutter prints: the number of cuts, and how many threads were in user code, in faults
/// and in calls.
fn counts(line: &str) -> Option<[u64; 4]> {
    let numbers: Vec<u64> = line
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect();
    match numbers[..] {
        // Cuts, microseconds, seed, and the three counts.
        [cuts, _, _, user, fault, call] => Some([cuts, user, fault, call]),
        _ => None,
    }
}

/// Four programs on 1 MB, twenty instants each, at least a quarter of them inside a fault or call: saved, killed,
/// restored from the image alone; the output must be that of an undisturbed run.
pub(crate) fn four_programs(ctx: &mut Ctx) -> Result<(), Failure> {
    let mut script = String::new();
    for (n, (name, command)) in PROGRAMS.iter().enumerate() {
        let _ = writeln!(
            script,
            "/test/cutter seed={} cuts=20 hunt=6 out=/tmp/{name} linux /bin/busybox {command}",
            n + 1
        );
    }
    let run = Run::script(script)
        .word("program-ceiling=31")
        .deterministic()
        .add("/data/text", text(1 << 20));
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let text = output.text();
    let cut: Vec<[u64; 4]> = text
        .lines()
        .filter(|line| line.starts_with("note ") && line.contains("cuts within"))
        .filter_map(counts)
        .collect();
    if cut.len() != PROGRAMS.len() || text.matches("bytes of output equal").count() != cut.len() {
        return Err(format!("not all outputs are equal:\n{text}"));
    }
    for ((name, _), [cuts, user, fault, call]) in PROGRAMS.iter().zip(cut) {
        ctx.note(format!(
            "{name}: {cuts} instants, {user} in user code, {fault} in faults, {call} in calls"
        ));
        if cuts != 20 || (fault + call) * 4 < cuts {
            return Err(format!(
                "too few instants, or too few in faults and calls:\n{text}"
            ));
        }
    }
    Ok(())
}

/// A program of eight threads that wait for each other all the time, each in user code or at a futex word, is saved,
/// killed and restored like one with a single thread; so is a program whose waiters were moved from word to word, and
/// whose locks have owners.
pub(crate) fn threads(ctx: &mut Ctx) -> Result<(), Failure> {
    let scratch = temp_dir().map_err(|error| error.message)?;
    let Some(program) = linux_program(ctx, scratch.path(), "threads") else {
        return Ok(());
    };
    let script = "\
/test/cutter seed=1 cuts=20 linux /bin/threads compute
/test/cutter seed=2 cuts=10 linux /bin/threads calls
/test/cutter seed=3 cuts=10 linux /bin/threads conditions
/test/cutter seed=4 cuts=10 linux /bin/threads owners
";
    let run = Run::script(script)
        .word("program-ceiling=31")
        .deterministic()
        .add_program(
            "/bin/threads",
            std::fs::read(program).map_err(|e| e.to_string())?,
        );
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let text = output.text();
    if text.matches("bytes of output equal").count() != 4 {
        return Err(format!("not all outputs are equal:\n{text}"));
    }
    Ok(())
}

/// A program that reads the clock without a system call is cut while it does so.
pub(crate) fn clock(ctx: &mut Ctx) -> Result<(), Failure> {
    let scratch = temp_dir().map_err(|error| error.message)?;
    let Some(program) = linux_program(ctx, scratch.path(), "clock") else {
        return Ok(());
    };
    let program = std::fs::read(program).map_err(|error| error.to_string())?;
    let run = Run::script("/bin/clock\n/test/cutter seed=2 cuts=40 linux /bin/clock\n")
        .word("program-ceiling=31")
        .deterministic()
        .add_program("/bin/clock", program);
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let text = output.text();
    match text.starts_with("100000 readings\n") && text.contains("bytes of output equal") {
        true => Ok(()),
        false => Err(text),
    }
}

/// One long run: 8 MB through gzip, cut in the middle.
pub(crate) fn eight_megabytes(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
/test/cutter seed=9 cuts=3 hunt=1 linux /bin/busybox gzip -9 -c /data/text
";
    let run = Run::script(script)
        .word("program-ceiling=31")
        .deterministic()
        .add("/data/text", text(8 << 20));
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    if !output.text().contains("bytes of output equal") {
        return Err(output.text());
    }
    Ok(())
}

/// Each of the four is saved in one boot and continues in another, from nothing but the image, its input, and its
/// earlier output.
pub(crate) fn other_boot(ctx: &mut Ctx) -> Result<(), Failure> {
    let input = text(1 << 20);
    let mut script = String::new();
    for (name, command) in PROGRAMS {
        let _ = writeln!(script, "busybox {command} > /tmp/{name} &");
        let _ = writeln!(
            script,
            "sleep 0.01\ncheckpoint -v %1 /tmp/{name}.image\nkill %1"
        );
    }
    for (name, command) in PROGRAMS {
        let _ = writeln!(script, "busybox {command} > /tmp/whole.{name}");
    }
    script.push_str("cd /tmp\nls -l\nbusybox sha256sum ");
    script.push_str(&PROGRAMS.map(|(name, _)| format!("whole.{name}")).join(" "));
    script.push('\n');
    // By the host's clock, a program could end before it is saved on a busy host.
    let mut run = Run::script(script)
        .deterministic()
        .add("/data/text", input.clone());
    for (name, _) in PROGRAMS {
        run = run
            .get(&format!("/tmp/{name}"))
            .get(&format!("/tmp/{name}.image"));
    }
    let first = ctx.run(run)?;
    first.expect_status(0)?;

    let mut script = String::new();
    for (name, _) in PROGRAMS {
        let _ = writeln!(script, "restore /tmp/{name}.image");
    }
    script.push_str("wait %1 %2 %3 %4\ncd /tmp\nbusybox sha256sum ");
    script.push_str(&PROGRAMS.map(|(name, _)| name).join(" "));
    script.push('\n');
    let mut run = Run::script(script).add("/data/text", input);
    for (name, _) in PROGRAMS {
        for suffix in ["", ".image"] {
            let path = format!("/tmp/{name}{suffix}");
            run = run.add(&path, first.file(&path)?.to_vec());
        }
    }
    let second = ctx.run(run)?;
    second.expect_status(0)?;
    let sum = |output: &Output, file: &str| {
        let text = output.text();
        let line = text
            .lines()
            .find(|line| line.ends_with(&format!("  {file}")));
        line.and_then(|line| line.split(' ').next().map(ToString::to_string))
    };
    for (name, _) in PROGRAMS {
        let before = first.file(&format!("/tmp/{name}"))?.len();
        let (whole, restored) = (sum(&first, &format!("whole.{name}")), sum(&second, name));
        if whole.is_none() || whole != restored {
            return Err(format!(
                "{name}: {whole:?} in one boot, {restored:?} over two; the second printed\n{}",
                second.text()
            ));
        }
        let doing = first.text();
        let doing = doing
            .lines()
            .skip_while(|l| !l.contains(&format!("{name}.image:")))
            .nth(1);
        ctx.note(format!(
            "{name}: {before} bytes written before, then in '{}'",
            doing.unwrap_or_default().trim()
        ));
    }
    Ok(())
}

/// Programs saved in long calls: a sleep ends at its original time, and writes of one byte are neither lost nor
/// repeated.
pub(crate) fn inside_calls(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
sleep 10 &
sleep 4
checkpoint -v %1 /tmp/native
kill %1
sleep 3
restore /tmp/native
time wait
busybox sleep 10 &
sleep 4
checkpoint -v %1 /tmp/linux
kill %1
sleep 3
restore /tmp/linux
time wait
/test/cutter seed=21 cuts=20 linux /bin/busybox awk 'BEGIN { for (i = 0; i < 5000; i++) { printf \"%c\", 65 + i % 26; fflush() } }'
/test/cutter seed=22 cuts=10 linux /bin/busybox sleep 0.2
";
    let output = ctx.run(
        Run::script(script)
            .word("program-ceiling=31")
            .deterministic(),
    )?;
    output.expect_status(0)?;
    let text = output.text();
    let seconds: Vec<f64> = text
        .lines()
        .filter_map(|line| line.strip_suffix(" s")?.parse().ok())
        .collect();
    if seconds.len() != 2 || seconds.iter().any(|s| !(5.9..6.1).contains(s)) {
        return Err(format!("10 s less 4 s are not 6 s:\n{text}"));
    }
    if !text.contains("note 5000 bytes of output equal") {
        return Err(format!("bytes were lost or doubled:\n{text}"));
    }
    for cut in text.lines().filter_map(counts) {
        ctx.note(format!(
            "{} in user code, {} in faults, {} in calls",
            cut[1], cut[2], cut[3]
        ));
    }
    Ok(())
}

/// A native program in a request to the console that waits: in the other boot it gets a session of its own again,
/// waits in that, and reads and writes each line once.
pub(crate) fn console_session(ctx: &mut Ctx) -> Result<(), Failure> {
    let run = Run::interactive()
        .type_after("$ ", "cat\r")
        .type_after("cat\n", "one\r")
        .type_after("one\none\n", "\x1a")
        .type_after("stopped  cat\nfermata:/$ ", "checkpoint %1 /tmp/image\r")
        .type_after("image: ", "kill %1\r")
        .type_after("kill %1\nfermata:/$ ", "exit\r")
        .get("/tmp/image");
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let run = Run::interactive()
        .add("/tmp/image", output.file("/tmp/image")?)
        .type_after("$ ", "restore /tmp/image\r")
        .type_after("fermata:/$ ", "fg %1\r")
        .type_after("fg %1\ncat\n", "two\r")
        .type_after("two\ntwo\n", "three\r")
        .type_after("three\nthree\n", "\x04")
        .type_after("fermata:/$ ", "exit 3\r");
    let output = ctx.run(run)?;
    output.expect_status(3)?;
    let text = output.text();
    let twice = |line: &str| text.matches(line).count() == 2;
    if !twice("two\n") || !twice("three\n") || text.contains("one\n") {
        return Err(format!("not each line twice, typed and copied:\n{text}"));
    }
    Ok(())
}

/// A Linux program in a read from the console: text that is typed after the restore arrives, once.
pub(crate) fn console_read(ctx: &mut Ctx) -> Result<(), Failure> {
    // When `cat` has printed its input, it is in its next read. Ctrl-Z discards text that was typed and not read, as
    // every terminal does.
    let run = Run::interactive()
        .type_after("$ ", "busybox cat\r")
        .type_after("cat\n", "one\r")
        .type_after("one\none\n", "\x1a")
        .type_after(
            "stopped  busybox cat\nfermata:/$ ",
            "checkpoint -v %1 /tmp/image\r",
        )
        .type_after(
            "call: Linux 0, with the personality\nfermata:/$ ",
            "kill %1\r",
        )
        .type_after("kill %1\nfermata:/$ ", "restore /tmp/image\r")
        .type_after("busybox cat\nfermata:/$ ", "fg %1\r")
        .type_after("fg %1\nbusybox cat\n", "two\r")
        .type_after("two\ntwo\n", "\x04")
        .type_after("fermata:/$ ", "exit 3\r");
    let output = ctx.run(run)?;
    output.expect_status(3)?;
    let text = output.text();
    if text.matches("two\n").count() != 2 || text.matches("one\n").count() != 2 {
        return Err(format!("not each line twice, typed and copied:\n{text}"));
    }
    Ok(())
}

/// Damaged images and files that are not images are refused with a message each, nothing is left behind, and
/// everything else goes on.
pub(crate) fn bad_images(ctx: &mut Ctx) -> Result<(), Failure> {
    let first = ctx.run(
        Run::script("busybox sleep 1000 &\nsleep 0.1\ncheckpoint %1 /tmp/image\nkill %1\n")
            .get("/tmp/image"),
    )?;
    first.expect_status(0)?;
    let image = first.file("/tmp/image")?.to_vec();
    let altered = |at: usize| {
        let mut image = image.clone();
        image[at] ^= 0x10;
        image
    };
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", Vec::new(), "not an image"),
        ("foreign", b"#!/bin/sh\necho no\n".to_vec(), "not an image"),
        ("head", image[..30].to_vec(), "truncated"),
        ("half", image[..image.len() / 2].to_vec(), "truncated"),
        ("short", image[..image.len() - 1].to_vec(), "truncated"),
        ("longer", [&image[..], b"more"].concat(), "damaged"),
        ("version", altered(9), "version"),
        ("header", altered(40), "damaged"),
        ("description", altered(100), "damaged"),
        ("page", altered(image.len() / 2), "damaged"),
        ("sum", altered(image.len() - 8), "damaged"),
        (
            "last",
            altered(image.len() - 1),
            "its length is not that of its pages",
        ),
    ];
    let mut script = String::from("restore /tmp/missing\n");
    for (name, _, _) in &cases {
        let _ = writeln!(script, "restore /bad/{name}\nps > /tmp/ps");
    }
    script.push_str(
        "/bad/elf\n/bad/nothing\ncat /tmp/ps\nrestore /bad/good\nkill %1\necho it goes on\n",
    );
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(4096, 0x55);
    let mut run = Run::script(script)
        .add("/bad/good", image.clone())
        .add_program("/bad/elf", elf);
    for (name, bytes, _) in &cases {
        run = run.add(&format!("/bad/{name}"), bytes.clone());
    }
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let text = output.text();
    let line_of = |path: &str| {
        text.lines()
            .find(|line| line.contains(path))
            .unwrap_or_default()
    };
    for (name, _, cause) in &cases {
        let line = line_of(&format!("/bad/{name}:"));
        if !line.contains(cause) {
            return Err(format!(
                "{name}: '{line}' does not say {cause}; console:\n{text}"
            ));
        }
    }
    for (path, cause) in [
        ("/tmp/missing", "no such file"),
        ("/bad/nothing", "not found"),
    ] {
        if !line_of(path).contains(cause) && !line_of(path).contains("no such file") {
            return Err(format!("{path}: '{}'", line_of(path)));
        }
    }
    if line_of("/bad/elf").is_empty() {
        return Err(format!("nothing is said of the corrupt program:\n{text}"));
    }
    if text.lines().any(|line| line.starts_with('%')) {
        return Err(format!("a refused image left a job behind:\n{text}"));
    }
    if !text.ends_with("it goes on\n") {
        return Err(format!("it does not go on:\n{text}"));
    }
    Ok(())
}

/// The same machine twice: the console output is equal byte for byte, and so is the number of instructions.
pub(crate) fn deterministic(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
busybox gzip -9 -c /data/text > /tmp/gz &
sleep 0.02
ps
checkpoint -v %1 /tmp/image
kill %1
restore -v /tmp/image
time wait
ls -l /tmp
busybox sha256sum /tmp/gz /tmp/image
";
    let mut again = || -> Result<Output, Failure> {
        let run = Run::script(script)
            .deterministic()
            .add("/data/text", text(200_000));
        let output = ctx.run(run)?;
        output.expect_status(0)?;
        Ok(output)
    };
    let (one, two) = (again()?, again()?);
    if one.stdout != two.stdout {
        return Err(format!(
            "the first time:\n{}\nthe second time:\n{}",
            one.text(),
            two.text()
        ));
    }
    match (one.instructions, two.instructions) {
        (Some(a), Some(b)) if a == b => ctx.note(format!("instructions: {a}")),
        (a, b) => return Err(format!("{a:?} and {b:?}")),
    }
    Ok(())
}

/// A program that writes all the time is saved while it goes on: the image is of one instant, even if the program is
/// killed while the image is written, and however much memory there is.
pub(crate) fn while_it_goes_on(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
/test/writer save 6 4000
/test/writer kill 20 1500
/test/writer stop 2 20000
/test/writer full 12 2000
";
    let run = Run::script(script).deterministic().memory(192);
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let text = output.text();
    for how in ["save", "kill", "stop", "full"] {
        if !text.contains(&format!("{how}: as it should be\n")) {
            return Err(text);
        }
    }
    ctx.note(
        text.lines()
            .filter(|line| line.starts_with("full: "))
            .collect::<Vec<_>>()
            .join(", "),
    );
    Ok(())
}

/// A process that another client has frozen is not saved with that client's stop in its image, nor is one that is
/// stopped meanwhile saved with that stop; and saving destroys no file that has the image's temporary name.
pub(crate) fn savers(ctx: &mut Ctx) -> Result<(), Failure> {
    let plays = ["native", "linux", "names"];
    let script: String = plays.map(|play| format!("/test/savers {play}\n")).concat();
    let output = ctx.run(Run::script(script))?;
    let said: Vec<String> = plays
        .iter()
        .map(|play| format!("{play}: as it should be\n"))
        .collect();
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    all_said(&output.text(), &said)
}

/// Processes run before their memory has been read from the image: all of it is right, whatever the form of the
/// image, and nothing is left of processes that end before all of it has arrived. A process whose image turns out to
/// be damaged is killed, and the log says why. A client that makes such a process itself holds up no other.
pub(crate) fn lazily(ctx: &mut Ctx) -> Result<(), Failure> {
    let plays = [
        "bytes",
        "killed",
        "damaged",
        "truncated",
        "saved",
        "two",
        "based",
        "maker",
    ];
    let script: String = plays.map(|play| format!("/test/lazily {play}\n")).concat();
    let run = Run::script(script).deterministic().memory(384);
    let output = ctx.run(run)?;
    let mut said: Vec<String> = plays
        .iter()
        .map(|play| format!("{play}: as it should be\n"))
        .collect();
    said.push("checkpoint: /tmp/lazy-image: the image is damaged: the pages at ".to_string());
    said.push("what was restored from it is ended".to_string());
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    all_said(&output.text(), &said)
}

/// `restore --lazy` in the shell, and as a program. Linux programs get their memory at once, which the command
/// reports. A process that is restored, and saved again while its memory arrives, has an image that differs only in
/// what the process has done meanwhile.
pub(crate) fn lazily_by_shell(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
/test/lazily hold 16 &
sleep 0.5
checkpoint %1 /tmp/one
kill %1
restore --lazy /tmp/one
checkpoint %1 /tmp/two
kill %1
image check /tmp/two && echo the second one is whole
image diff /tmp/one /tmp/two | grep -c 'memory at'
restore --lazy /tmp/two
echo go > /tmp/lazy-go
wait %1
echo it ended with $?
rm /tmp/lazy-go
cat /tmp/one | restore --lazy -
echo go > /tmp/lazy-go
sleep 2
ps
busybox sleep 100 &
checkpoint %1 /tmp/linux
kill %1
restore --lazy /tmp/linux
kill %1
restore --lazy
";
    let output = ctx.run(Run::script(script).deterministic().memory(256))?;
    let text = output.text();
    let said = [
        "the second one is whole",
        "it ended with 7",
        "/tmp/linux: what linux runs was read at once",
    ];
    all_said(&text, &said)
}

/// An error unless the text contains all of these.
fn all_said(text: &str, said: &[&str]) -> Result<(), Failure> {
    match said.iter().find(|said| !text.contains(**said)) {
        None => Ok(()),
        Some(missing) => Err(format!("nobody said \"{missing}\":\n{text}")),
    }
}

/// A running program is moved to another machine by a pipe and a connection, and ends there as if it had stayed; and
/// again by a pipe within that machine. No part of the image is left in files.
pub(crate) fn moved(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let [first, second] = super::net::wire(directory.path());
    let program = "awk 'BEGIN { for (i = 0; i < 20000; i++) a[i] = i * 7; \
        for (n = 0; n < 600000; n++) s += a[n % 500]; for (i in a) t += a[i]; print s, t }'";
    let leaves = format!(
        "busybox {program} > /tmp/whole\nbusybox {program} > /tmp/out &\nsleep 0.5\ncheckpoint %1 -\n\
         checkpoint --stop --compress %1 - | tcp -l 9\nkill %1\ncheckpoint %1 - | busybox wc -c\n\
         busybox sha256sum /tmp/whole\nls /run/shell /tmp\n"
    );
    let comes = "\
tcp -w 10.0.3.1 9 < /dev/null > /tmp/image
restore /tmp/image
checkpoint %1 - > /tmp/again
checkpoint %1 - | busybox cmp - /tmp/again && echo the same || echo it went on
wait
busybox sha256sum /tmp/out
rm /tmp/out
cat /tmp/again | restore -
busybox sh -c 'until [ -s /tmp/out ]; do sleep 0.1; done'
busybox sha256sum /tmp/out
echo nonsense | restore -
ls /run/shell /tmp
";
    let [left, came] = ctx.run_both(
        Run::script(leaves).net(first).stays(),
        Run::script(comes).net(second).stays(),
    )?;
    let text = left.text();
    let said = [
        "checkpoint: an image is nothing to read: give it a file, or a pipe to go on\n",
        "checkpoint: %1: the job has ended\n",
    ];
    all_said(&text, &said)?;
    if text.lines().any(|line| line == "0") {
        return Err(format!(
            "what was to read an image was run without one:\n{text}"
        ));
    }
    let sum = text
        .lines()
        .find_map(|line| line.strip_suffix("  /tmp/whole"));
    let sum = sum.ok_or_else(|| format!("no sum:\n{text}"))?;
    let text = came.text();
    if text.matches(sum).count() != 2 {
        return Err(format!("it has another result, and not {sum}:\n{text}"));
    }
    all_said(
        &text,
        &[
            "it went on\n",
            "restore: -: the file is not an image of Fermata\n",
        ],
    )?;
    let images = |text: &str| text.lines().any(|line| line.starts_with("image."));
    match images(&left.text()) || images(&text) {
        false => Ok(()),
        true => Err(format!("an image is left:\n{}\n{text}", left.text())),
    }
}

/// What the shell and its program `checkpoint` refuse, give up and undo: the reason is printed, programs stay as they
/// are, and commands that depend on it are not run.
pub(crate) fn by_shell(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
busybox mkfifo /tmp/fifo
busybox sh -c 'sleep 0.5 > /tmp/fifo' &
busybox cat /tmp/fifo &
sleep 0.2
checkpoint --stop %1 - | busybox tee /tmp/reader && kill %1
jobs
wait
ls /tmp
busybox sleep 100 &
sleep 0.1
checkpoint --stop %1 /tmp
checkpoint --stop %1 /tmp/none/image
checkpoint --stop %1 /tmp/fifo/image
jobs
checkpoint --stop %1 /tmp/one
checkpoint --stop %1 /tmp/one
jobs
bg
jobs
ln -s one /tmp/latest
checkpoint --parent /tmp/latest %1 /tmp/two
rm /tmp/latest
ln -s two /tmp/latest
checkpoint %1 - | tools cat > /tmp/carried &
wait %2
trust checkpoint linux:1 -
trust checkpoint --parent /tmp/one linux:1 - | busybox wc -c
kill %1
restore -v /tmp/two
kill %1
restore -v /tmp/carried
kill %1
mkdir -p /run/passing; echo left > /run/passing/5; echo left > /run/passing/6.tmp
cat /tmp/one | restore - && ls /run/passing
mkdir /tmp/d; cd /tmp/d
busybox sh -c 'sleep 100; :' 'x
[9] made up' &
sleep 0.1
checkpoint %1 /tmp/three
kill %1
cd /
mv /tmp/d /tmp/e
restore /tmp/three
mv /tmp/e /tmp/d
restore -v /tmp/three
jobs
";
    let output = ctx.run(Run::script(script))?;
    output.expect_status(0)?;
    let text = output.text();
    let said = [
        "checkpoint: process ",
        " of linux cannot be saved: it shares the pipe at descriptor ",
        "\n[1] running  busybox sh -c 'sleep 0.5 > /tmp/fifo'\n[2] running  busybox cat /tmp/fifo\nfifo\n",
        "checkpoint: cannot write /tmp: is a directory\n\
         checkpoint: cannot write /tmp/none/image: no such file or directory\n\
         checkpoint: cannot write /tmp/fifo/image: not a directory\n\
         [1] running  busybox sleep 100\n\
         [1] stopped  busybox sleep 100\n\
         [1] running  busybox sleep 100\n\
         checkpoint: an image is nothing to read: give it a file, or a pipe to go on\n\
         checkpoint: an image that is based on another one lies beside it: give it a file\n0\n\
         [1] ",
    ];
    all_said(&text, &said)?;
    let restored = |name: &str| {
        let line = |line: &&str| line.starts_with("[1] ") && line.ends_with(name);
        text.lines().filter(line).count()
    };
    // After `running` and `stopped` there are two spaces, too.
    if restored("  busybox sleep 100") != 5 || restored("\\n[9] made up") != 2 {
        return Err(format!("not all that was saved was restored:\n{text}"));
    }
    let why = "restore: /tmp/three: linux refuses it: ";
    let why = text.lines().find_map(|line| line.strip_prefix(why));
    if !why.is_some_and(|why| why.contains("/tmp/d")) {
        return Err(format!("it is not said why it is not restored:\n{text}"));
    }
    if text
        .lines()
        .any(|line| line.starts_with("[9]") || line == "5" || line == "6.tmp")
    {
        return Err(format!(
            "a name makes a line, or something is left:\n{text}"
        ));
    }
    let run = Run::interactive()
        .type_after(
            "$ ",
            "busybox dd if=/dev/urandom of=/dev/null bs=24M count=900 &\r",
        )
        .type_after("$ ", "sleep 3\r")
        .type_after(
            "$ ",
            "checkpoint --compress %1 /tmp/image; echo the\"\"-rest\r",
        )
        .type_after("-rest\n", "\x03")
        .type_after("$ ", "jobs; ls /tmp; kill %1\r")
        .type_after("[1] running", "")
        .type_after("$ ", "exit 3\r");
    let output = ctx.run(run)?;
    output.expect_status(3)?;
    let text = output.text();
    match text.contains("checkpoint: given up\n") && !text.contains("the-rest") {
        true => Ok(()),
        false => Err(format!(
            "Ctrl-C gives up neither the save nor its line:\n{text}"
        )),
    }
}

/// A program is saved again and again, each time without what the previous image has: the images are small. The last
/// one, moved elsewhere, is restored in another machine from all of them, and the program ends as if it had been left
/// alone; so does the single, compressed image that the host makes of all. Some of the images are compressed, others
/// are not. A base image that is missing, or is a different one, is named.
pub(crate) fn incremental(ctx: &mut Ctx) -> Result<(), Failure> {
    const IMAGES: usize = 4;
    let program = "awk 'BEGIN { for (i = 0; i < 40000; i++) a[i] = i * 7; \
        for (n = 0; n < 1200000; n++) s += a[n % 500]; for (i in a) t += a[i]; print s, t }'";
    let mut script = format!(
        "busybox {program} > /tmp/whole\nbusybox {program} > /tmp/out &\nsleep 1\ncheckpoint -v %1 /tmp/image0\n"
    );
    for n in 1..IMAGES {
        let (before, compress) = (n - 1, ["", "--compress "][n % 2]);
        let _ = writeln!(
            script,
            "sleep 0.05\ncheckpoint -v {compress}--parent /tmp/image{before} %1 /tmp/image{n}"
        );
    }
    script.push_str(
        "checkpoint --parent /tmp/none %1 /tmp/half
checkpoint --parent /tmp/whole %1 /tmp/half
checkpoint --parent /tmp/image1 %1 /tmp/image0
ls /tmp
kill %1
cp /tmp/image0 /tmp/kept
cp /tmp/image1 /tmp/image0
restore /tmp/image3
rm /tmp/image0
restore /tmp/image3
cp /tmp/kept /tmp/image0
busybox sha256sum /tmp/whole
",
    );
    let mut run = Run::script(script).deterministic();
    run = run.get("/tmp/out");
    for n in 0..IMAGES {
        run = run.get(&format!("/tmp/image{n}"));
    }
    let first = ctx.run(run)?;
    first.expect_status(0)?;
    let text = first.text();
    let said = [
        "checkpoint: /tmp/none: no such file or directory",
        "checkpoint: /tmp/whole: the file is not an image of Fermata",
        "checkpoint: /tmp/image0 cannot be replaced by an image that needs it",
        "restore: /tmp/image3: the image that /tmp/image1 is based on is missing: /tmp/image0 is another image",
        "restore: /tmp/image3: the image that /tmp/image1 is based on is missing: /tmp/image0 is not there",
    ];
    all_said(&text, &said)?;
    if text.contains("half") {
        return Err(format!("there is half an image:\n{text}"));
    }
    let sizes = (0..IMAGES).map(|n| Ok(first.file(&format!("/tmp/image{n}"))?.len()));
    let sizes: Vec<usize> = sizes.collect::<Result<_, Failure>>()?;
    ctx.note(format!("images of {sizes:?} bytes"));
    if sizes[0] < 2 << 20 || sizes[1..].iter().any(|size| size * 8 > sizes[0]) {
        return Err(format!("the images have {sizes:?} bytes"));
    }

    let script = "\
image check /images/image3
image merge --compress /images/image3 /images/again
image merge /images/image3 /images/again
cmp /images/again /images/merged && echo the same on the host
image extract --file /tmp/out image3 /tmp/one
image extract --file 7 /images/image3 /tmp/one
image show /images/image1 | grep -c 'awk BEGIN'
image diff /images/image3 /images/merged
rm /images/again
restore /images/image3
sleep 0.1
checkpoint --compress %1 /images/packed
checkpoint --parent /images/image3 %1 /images/image4
kill %1
restore /images/image4
wait %1
busybox sha256sum /tmp/out
rm /tmp/out
restore /images/merged
wait
busybox sha256sum /tmp/out
rm /tmp/out
restore /images/packed
wait
busybox sha256sum /tmp/out
ls -l /images
";
    let mut run = Run::script(script).deterministic();
    run = run.get("/images/image4").get("/images/packed");
    let mut images = Vec::new();
    for n in 0..IMAGES {
        let image = first.file(&format!("/tmp/image{n}"))?.to_vec();
        run = run.add(&format!("/images/image{n}"), image.clone());
        images.push(image);
    }
    run = run.add("/images/merged", super::images::merged(&images)?);
    let second = ctx.run(run)?;
    second.expect_status(0)?;
    let text = second.text();
    let said = [
        "/images/image3: sound, with the 3 images that it is based on\n",
        "image: /images/again is there already\n",
        "the same on the host\n",
        "image: cannot read image3: no such file or directory\n",
        "image: the image has no file '7'; `image show` lists those that it has\n",
        "the same processes, objects and pages\n",
    ];
    all_said(&text, &said)?;
    if text.contains(".tmp") {
        return Err(format!("something was left behind:\n{text}"));
    }
    let sums = |output: &Output, file: &str| {
        let text = output.text();
        let lines = text.lines().filter(|line| line.ends_with(file));
        let sums = lines.filter_map(|line| line.split(' ').next().map(ToString::to_string));
        sums.collect::<Vec<_>>()
    };
    let (whole, restored) = (sums(&first, "/tmp/whole"), sums(&second, "/tmp/out"));
    // From the chain, from the single image, and from a compressed one.
    if whole.len() != 1 || restored != [whole[0].as_str(); 3] {
        return Err(format!(
            "{whole:?} undisturbed, {restored:?} after two boots:\n{}",
            second.text()
        ));
    }
    let packed = second.file("/images/packed")?.len();
    ctx.note(format!("compressed, {packed} bytes"));
    if packed * 2 > sizes[0] {
        return Err(format!("compressed it has {packed} bytes"));
    }
    let size = second.file("/images/image4")?.len();
    if size * 8 > sizes[0] {
        return Err(format!("saved in another machine it has {size} bytes"));
    }
    Ok(())
}

/// Files of which an image has only the names are compared when it is restored, and each changed file is named: one
/// with another size, one with another content, one that is gone. An unchanged file is not named, however often it
/// was written.
pub(crate) fn named_files(ctx: &mut Ctx) -> Result<(), Failure> {
    let large = vec![b'x'; 1 << 20];
    let mut other = large.clone();
    other[0] ^= 1;
    let script = "\
cp /bin/busybox /tmp/busybox
/tmp/busybox sh -c 'exec 3< /data/content 4< /data/size 5< /data/same 6< /data/large; echo begun > /tmp/begun; \
until [ -e /tmp/go ]; do busybox sleep 0.1; done; echo went on > /tmp/went; busybox sleep 100000' &
busybox sh -c 'until [ -s /tmp/begun ]; do busybox sleep 0.1; done'
checkpoint %1 /tmp/image
image show /tmp/image
kill %1
wait %1
echo before
restore /tmp/image
kill %1
wait %1
echo ONE > /data/content
echo longer > /data/size
cp /data/same /tmp/copy
cat /tmp/copy > /data/same
cat /data/other > /data/large
rm /tmp/busybox
echo changed
restore /tmp/image
echo go > /tmp/go
busybox sh -c 'until [ -s /tmp/went ]; do busybox sleep 0.1; done'
cat /tmp/went
kill %1
";
    let run = Run::script(script)
        .add("/data/content", b"one\n".to_vec())
        .add("/data/size", b"long\n".to_vec())
        .add("/data/same", b"same\n".to_vec())
        .add("/data/large", large)
        .add("/data/other", other);
    let output = ctx.run(run)?;
    let text = output.text();
    let (shown, rest) = text.split_once("before\n").ok_or_else(|| text.clone())?;
    let (before, changed) = rest.split_once("changed\n").ok_or_else(|| text.clone())?;
    let said: Vec<&str> = changed
        .lines()
        .filter(|line| line.starts_with("/tmp/image: "))
        .collect();
    let expected = [
        "/tmp/image: /data/content has another content than when the process was saved",
        "/tmp/image: /data/large has another content than when the process was saved",
        "/tmp/image: /data/size has 7 bytes, and had 5 when the process was saved",
        "/tmp/image: /tmp/busybox is gone",
    ];
    let known = [
        "/data/same: 5 bytes, checksum 0x",
        "/data/large: 1,048,576 bytes, checksum 0x",
    ];
    match said == expected
        && !before.contains("/tmp/image: ")
        && known.iter().all(|line| shown.contains(line))
        && changed.contains("went on\n")
    {
        true => Ok(()),
        false => Err(text),
    }
}

/// On a full disk an image cannot be written: that is reported, no new file with a name is left, an older image of
/// that name is unchanged, and the tree goes on. When there is room again the tree is saved and restored.
pub(crate) fn full_disk(ctx: &mut Ctx) -> Result<(), Failure> {
    const MEGABYTE: usize = 1 << 20;
    let directory = temp_dir().map_err(|error| error.message)?;
    let disk = directory.path().join("disk");
    std::fs::write(&disk, vec![0; 32 * MEGABYTE]).map_err(|error| error.to_string())?;
    // An image in which a child has been forked, and not executed anything yet, has the memory twice: some 10 MB are
    // free when the disk is not full.
    let script = "\
busybox sh -c 'x=$(busybox head -c 3000000 /dev/zero | busybox tr \"\\0\" x); echo begun > /tmp/begun; \
until [ -e /tmp/go ]; do busybox sleep 0.1; done; echo ${#x}' > /tmp/out &
busybox sh -c 'until [ -s /tmp/begun ]; do busybox sleep 0.1; done'
checkpoint --compress %1 /disk/small
busybox dd if=/dev/zero of=/disk/fill bs=65536
echo full
checkpoint %1 /disk/image
checkpoint %1 /disk/small
ls /disk
image check /disk/small
rm /disk/fill
checkpoint %1 /disk/image
kill %1
restore /disk/image
echo go > /tmp/go
wait %1
cat /tmp/out
ls /disk
";
    let output = ctx.run(Run::script(script).disk(&disk))?;
    let text = output.text();
    let full = text.split_once("full\n").map_or("", |(_, rest)| rest);
    let lines: Vec<&str> = full.lines().collect();
    let said = [
        "checkpoint: cannot write /disk/image: the disk is full",
        "checkpoint: cannot write /disk/small: the disk is full",
        "fill",
        "lost+found",
        "small",
        "/disk/small: sound, and whole",
        "3000000",
        "image",
        "lost+found",
        "small",
    ];
    match lines == said {
        true => Ok(()),
        false => Err(text),
    }
}

/// A hundred images in a row, each based on the one before it, of a program that writes a page between them: each
/// takes about a hundredth of a whole image, and the last one is restored from all of them, or merged to a whole one.
pub(crate) fn hundred(ctx: &mut Ctx) -> Result<(), Failure> {
    const IMAGES: usize = 100;
    let mut script = "\
/test/writer pages 8 > /tmp/out &
busybox sh -c 'until [ -e /tmp/page.0 ]; do sleep 0.01; done'
checkpoint %1 /tmp/image0
"
    .to_string();
    for n in 1..=IMAGES {
        let before = n - 1;
        let _ = writeln!(
            script,
            "echo {n} > /tmp/page\nbusybox sh -c 'until [ -e /tmp/page.{n} ]; do sleep 0.01; done'\n\
             checkpoint --parent /tmp/image{before} %1 /tmp/image{n}"
        );
    }
    let _ = write!(
        script,
        "kill %1
wait %1
image merge /tmp/image{IMAGES} /tmp/merged
image check /tmp/image{IMAGES}
busybox sh -c 'busybox stat -c \"%n %s\" /tmp/image* /tmp/merged'
restore /tmp/image{IMAGES}
echo end > /tmp/page
wait %1
cat /tmp/out
busybox sh -c 'busybox rm /tmp/image*'
restore /tmp/merged
wait %1
cat /tmp/out
"
    );
    let output = ctx.run(Run::script(script))?;
    let text = output.text();
    let size = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|size| size.trim().parse::<usize>().ok())
            .ok_or_else(|| format!("no size of {name}:\n{text}"))
    };
    let whole = size("/tmp/image0 ")?;
    let sizes = (1..=IMAGES).map(|n| size(&format!("/tmp/image{n} ")));
    let sizes: Vec<usize> = sizes.collect::<Result<_, Failure>>()?;
    let (all, largest) = (sizes.iter().sum::<usize>(), sizes.iter().max());
    ctx.note(format!(
        "{whole} bytes, and then {all} in {IMAGES} images, at most {largest:?}"
    ));
    let merged = size("/tmp/merged ")?;
    let right = format!("{IMAGES} pages: as it should be\n");
    match all <= whole
        && largest.is_some_and(|largest| largest * 50 <= whole)
        && merged.abs_diff(whole) * 20 <= whole
        && text.matches(&right).count() == 2
        && text.contains(&format!("sound, with the {IMAGES} images"))
    {
        true => Ok(()),
        false => Err(text),
    }
}
