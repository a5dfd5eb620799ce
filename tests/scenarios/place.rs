//! Servers in the kernel's rings: the same binaries, and programs see no difference.

use super::{checkpoint, images};
use crate::scenario::{Ctx, Failure, Output, Run};
use std::process::{Command, Stdio};
use xtask_build::project::Project;

/// All servers that can be placed.
const KERNEL: &str = "all=kernel";
const PROCESS: &str = "all=process";

/// The lowest address of the places.
pub(super) const PLACES: u64 = 0x4000_0000_0000;

/// The address of the thread in this line of a table of processes, if it is the line of a thread.
pub(super) fn address(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("(rip 0x")?;
    u64::from_str_radix(rest.split(')').next()?, 16).ok()
}

/// How many threads of a table of processes are in places, and how many are not.
fn threads(output: &Output) -> (usize, usize) {
    let text = output.text();
    let addresses = text.lines().filter_map(address);
    let (inside, outside): (Vec<u64>, Vec<u64>) = addresses.partition(|rip| *rip >= PLACES);
    (inside.len(), outside.len())
}

/// Each server is where the machine's options placed it, and programs are served alike.
pub(crate) fn servers(ctx: &mut Ctx) -> Result<(), Failure> {
    let script =
        "busybox seq 1 300 > /tmp/numbers\nbusybox sort -r /tmp/numbers | busybox head -n 2\n\
                  cat /tmp/numbers | busybox wc -c\nps > /tmp/ps\ncat /tmp/ps\n";
    let mut shown = Vec::new();
    for (places, inside) in [
        (PROCESS, 0),
        ("fs=kernel", 1),
        ("all=kernel,linux=process", 4),
        (KERNEL, 5),
    ] {
        let output = ctx.run(Run::script(script).place(places))?;
        output.expect_status(0)?;
        let (found, outside) = threads(&output);
        // The shell is always in a process.
        if found < inside || (inside == 0) != (found == 0) || outside == 0 {
            return Err(format!(
                "{places}: {found} threads in places\n{}",
                output.text()
            ));
        }
        shown.push(output.text().lines().take(3).collect::<Vec<_>>().join("\n"));
    }
    if shown.iter().any(|lines| lines != "99\n98\n1092") {
        return Err(format!("programs notice where servers are: {shown:?}"));
    }
    Ok(())
}

/// A program that was saved with its servers in processes continues with them in the kernel, and the other way round.
pub(crate) fn checkpoints(ctx: &mut Ctx) -> Result<(), Failure> {
    let input = checkpoint::text(1 << 19);
    let script =
        "busybox sort /data/text > /tmp/sorted &\nsleep 0.01\ncheckpoint %1 /tmp/image\nkill %1\n\
                  busybox sort /data/text | busybox sha256sum\n";
    for (saved, restored) in [(PROCESS, KERNEL), (KERNEL, PROCESS)] {
        let run = Run::script(script)
            .deterministic()
            .add("/data/text", input.clone())
            .place(saved);
        let first = ctx.run(run.get("/tmp/image").get("/tmp/sorted"))?;
        first.expect_status(0)?;
        let go_on = "restore /tmp/image\nwait %1\nbusybox sha256sum < /tmp/sorted\n";
        let run = Run::script(go_on)
            .add("/data/text", input.clone())
            .add("/tmp/image", first.file("/tmp/image")?.to_vec())
            .add("/tmp/sorted", first.file("/tmp/sorted")?.to_vec());
        let second = ctx.run(run.place(restored))?;
        second.expect_status(0)?;
        let sum = |output: &Output| {
            let text = output.text();
            let line = text.lines().find(|line| line.ends_with("  -"));
            line.map(ToString::to_string)
        };
        let (whole, over_two) = (sum(&first), sum(&second));
        if whole.is_none() || whole != over_two {
            return Err(format!(
                "{saved}, then {restored}: {whole:?} in one boot, {over_two:?} over two\n{}",
                second.text()
            ));
        }
    }
    Ok(())
}

/// How many bytes of pages may differ between two images of one program: the numbers of its sessions and the time,
/// wherever it has copies.
const MAY_DIFFER: u64 = 128;

/// The output of `image diff`, if two images differ in more than a few bytes of pages.
fn more_than_a_few_bytes(said: &str) -> Option<String> {
    // The images must have been compared: `image diff` ends with 1 if they differ.
    if !said.starts_with("image diff one other: exit status: 1,") {
        return Some(said.into());
    }
    let mut bytes = 0;
    for line in said.lines().skip(1) {
        let of_page = line
            .strip_prefix("page at ")
            .and_then(|rest| rest.rsplit_once(": "))
            .and_then(|(_, bytes)| bytes.strip_suffix(" bytes")?.parse::<u64>().ok());
        match of_page {
            Some(of_page) => bytes += of_page,
            None if line.is_empty() || line.ends_with(" differences in all") => {}
            None => return Some(said.into()),
        }
    }
    (bytes > MAY_DIFFER).then(|| said.into())
}

/// The image of a program is the same wherever its servers are, except for the numbers of its sessions and the time.
pub(crate) fn same_images(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "/test/still &\nsleep 0.2\ncheckpoint %1 /tmp/image\nkill %1\n";
    let mut image = |places: &str| {
        let run = Run::script(script).deterministic().get("/tmp/image");
        let output = ctx.run(run.place(places))?;
        output.expect_status(0)?;
        let text = output.text();
        if !text.contains(" bytes, ") || !text.contains(" entries, 3, true, true\n") {
            return Err(format!("{places}: it was to ask all of them:\n{text}"));
        }
        Ok(output.file("/tmp/image")?.to_vec())
    };
    let in_process = image(PROCESS)?;
    for places in [KERNEL, "fs=kernel"] {
        let in_kernel = image(places)?;
        let same = images::are_the_same([&in_process, &in_kernel]);
        if let Some(why) = same.err().and_then(|said| more_than_a_few_bytes(&said)) {
            return Err(format!("{places}: {why}"));
        }
    }
    Ok(())
}

/// `./fermata run --in kernel PROGRAM`: the program is built if it is a directory, is placed correctly, gets its
/// arguments and input, and its status is the command's.
pub(crate) fn command(ctx: &mut Ctx) -> Result<(), Failure> {
    let project = Project::find().map_err(|error| error.message)?;
    let xtask = std::env::current_exe().map_err(|error| error.to_string())?;
    let config = ctx.config();
    for (ring, program, status, said, why) in [
        ("kernel", "/test/attack inside", 0, "", ""),
        (
            "process",
            "/test/attack inside",
            1,
            "inside: could not try: ",
            "",
        ),
        ("kernel", "examples/hello you", 0, "hello, you\n", ""),
        (
            "kernel",
            "/bin/nobody",
            125,
            "",
            "--place /bin/nobody=kernel: the guest has no such file when it starts",
        ),
        // A Linux program cannot be placed there.
        (
            "kernel",
            "/bin/busybox true",
            125,
            "",
            "/bin/busybox cannot be placed: it is not a program for Fermata",
        ),
    ] {
        let output = Command::new(&xtask)
            .current_dir(&project.root)
            .args(["run", "--config", config, "--timeout", "120", "--in", ring])
            .args(program.split(' '))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("xtask: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let right = output.status.code() == Some(status) && text.starts_with(said);
        if !right || !errors.contains(why) {
            return Err(format!(
                "run --in {ring} {program}: {} instead of {status}, and not {said:?}:\n{text}{errors}",
                output.status
            ));
        }
    }
    Ok(())
}

/// A program in the kernel that accesses the kernel's memory, guarded or not, ends the machine, with a message that
/// names the source line; at any other address it ends alone, or goes on if the access was guarded. A program in a
/// process always ends alone.
pub(crate) fn stray(ctx: &mut Ctx) -> Result<(), Failure> {
    // An address of the kernel; a page that every program has; an address without memory.
    let (kernels, programs, nobodys) = ("ffffa00000000000", "400000", "1000");
    let wild = |address: &str| format!("/test/attack wild {address}\n");
    let others =
        [programs, nobodys].map(|address| wild(address) + &wild(&format!("{address} guarded")));
    let others = others.concat();
    // A machine that ends like this loses output that is not yet on the console.
    let (gone, alive) = ("wild: Err(Gone)\n", "echo alive\nsleep 0.2\n");
    for guarded in ["", " guarded"] {
        let script = format!(
            "{others}{alive}{}echo on\n",
            wild(&format!("{kernels}{guarded}"))
        );
        let output = ctx.run(Run::script(script).place("/test/attack=kernel"))?;
        output.expect_status(125)?;
        let (text, said) = (output.text(), &output.stderr);
        let ended = text.matches(": bad access to 0x").count();
        if (ended, text.matches(gone).count()) != (2, 2) || !text.ends_with("alive\n") {
            return Err(format!(
                "a program alone was to end, twice:\n{text}\n{said}"
            ));
        }
        let line =
            format!("/test/attack wild {kernels}{guarded}: kernel address 0x{kernels} at 0x4");
        if !said.contains(&line) {
            return Err(format!("the machine does not say what happened:\n{said}"));
        }
        let function = "read_wildly, tests/guest/src/bin/attack.rs:";
        if guarded.is_empty() && !said.contains(function) {
            return Err(format!(
                "the machine does not say where it happened:\n{said}"
            ));
        }
    }
    // The same file in a process.
    let script = format!(
        "{}{}{alive}",
        wild(kernels),
        wild(&format!("{kernels} guarded"))
    );
    let output = ctx.run(Run::script(script))?;
    output.expect_status(0)?;
    let text = output.text();
    if !text.contains(": bad access to 0xffffa00000000000")
        || !text.ends_with(&(gone.to_string() + "alive\n"))
    {
        return Err(format!("in a process:\n{text}\n{}", output.stderr));
    }
    Ok(())
}
