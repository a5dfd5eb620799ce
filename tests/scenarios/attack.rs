//! Hostile programs with the power of ordinary ones. Each scenario runs one, and checks that other programs go on and
//! that nothing of it remains. `docs/security.md` says which promise each scenario tests.

use super::legacy::build;
use super::linux_program;
use crate::scenario::{Ctx, Failure, Output, Run};
use std::path::{Path, PathBuf};
use xtask_build::project::temp_dir;
use xtask_machine::net::Net;
use xtask_machine::rng::Rng;

/// A program that asks for power over other processes or over the machine is refused.
pub(crate) fn power(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
/test/attack peek
/test/attack power
/test/attack control
/test/attack priority
echo alive
";
    // The log goes to the control channel, on which no program may write.
    let output = ctx.run(Run::script(script).word("verbose"))?;
    output.expect_status(0)?.expect_stdout(
        "peek: all processes of native: invalid argument\n\
         peek: power at the door of native: not supported\n\
         peek: the supervisor of native: permission denied\n\
         peek: all processes of linux: invalid argument\n\
         peek: power at the door of linux: not supported\n\
         peek: the supervisor of linux: permission denied\n\
         power: off: permission denied\n\
         power: a report: permission denied\n\
         power: off by another port: refused\n\
         power: off by another port: refused\n\
         power: a line of the log: no such file or directory\n\
         control: of its own: DONE\n\
         control: of its own port: permission denied\n\
         control: of a service: permission denied\n\
         control: kill by its own port: refused\n\
         control: what is forgotten: no such file or directory\n\
         control: the other: Running\n\
         priority: 31: refused\n\
         priority: 16: refused\n\
         priority: 14: refused\n\
         priority: 12: refused\n\
         priority: 9: refused\n\
         alive\n",
    )?;
    Ok(())
}

/// A program that is placed in the kernel gives the kernel's power to nobody: neither to a program that starts it,
/// nor to one that writes to its file. All places can be used, each is free again afterwards, and nothing is left.
/// `/test/attack` is placed, and attacks under another spelling of its path.
pub(crate) fn placed(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "busybox cp -n /test/attack /tmp/attack\nbusybox cp /tmp/attack /test/attack\n/test//attack placed\n";
    leaves_no_trace(
        ctx,
        script,
        "placed: itself: false\n\
         placed: a child: true\n\
         placed: its memory: permission denied\n\
         placed: its threads: permission denied, permission denied\n\
         placed: its stop: DONE\n\
         placed: by another file: true\n\
         placed: 16 of them, then: there are as many as there may be\n\
         placed: and 40 one after the other\n",
        // As much memory as is promised to seventeen programs.
        |run| run.place("/test/attack=kernel").memory(256),
    )
}

/// An image, and a holder of the control port of a process, ask for the highest priority and more kernel memory:
/// neither gets more than programs may have.
pub(crate) fn priority(ctx: &mut Ctx) -> Result<(), Failure> {
    let output = ctx.run(Run::script("/test/services ceiling\necho alive\n"))?;
    let refused = |manager: &str| {
        format!("ceiling: {manager}: by its control port: Denied, Denied, Denied, Denied\n")
    };
    let restored = |manager: &str, threads: &str| {
        format!(
            "{0}ceiling: {manager}: a thread without a space is in Null\n{0}ceiling: {manager}: from an image that asks for 31: {threads}, at most 8, no more kernel memory\n",
            refused(manager)
        )
    };
    let expected = [restored("native", "[8, 8]"), restored("linux", "[8]")].concat() + "alive\n";
    output.expect_status(0)?.expect_stdout(&expected)?;
    Ok(())
}

/// The least size of a crowd: a job may have 32 programs at each manager, one of which is the first.
const CROWD: usize = 60;
/// How long the shell may take for a command of its own beside a crowd, in seconds: one turn of a program is 10 ms.
const AT_ONCE: f64 = 0.05;

/// The times that `time` has printed, in seconds.
fn times(text: &str) -> Vec<f64> {
    let number = |line: &str| line.strip_suffix(" s")?.parse().ok();
    text.lines().filter_map(number).collect()
}

/// As many programs as allowed, all at the highest priority that they can have, hold up neither a service nor the
/// shell.
pub(crate) fn crowd(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = format!(
        "{NURSERY}trust /test/services crowd\ntime ps > /tmp/ps\ntime kill %1\necho alive\n"
    );
    let run = Run::script(script)
        .net(Net::Nothing)
        .deterministic()
        .word("program-ceiling=9")
        .get("/tmp/ps");
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let text = output.text();
    let number = |line: &str, front: &str, behind: &str| -> Option<f64> {
        line.strip_prefix(front)?.strip_suffix(behind)?.parse().ok()
    };
    let count = text
        .lines()
        .find_map(|line| number(line, "services: a crowd of ", ""));
    let times = times(&text);
    ctx.note(format!("{count:?} programs; ps and kill took {times:?} s"));
    let net = text
        .lines()
        .find(|line| line.starts_with("services: net: "));
    ctx.note(net.unwrap_or("the network was not asked"));
    let there = String::from_utf8_lossy(output.file("/tmp/ps")?)
        .lines()
        .filter(|line| line.ends_with("services spin") || line.ends_with("do :; done"))
        .count();
    let right = text.contains("services: all is well\n")
        && text.contains("alive\n")
        && net.is_some_and(|line| line.contains("; asked 1 times, "))
        && count == Some(there as f64)
        && there >= CROWD
        && times.len() == 2
        && times.iter().all(|time| *time < AT_ONCE);
    match right {
        true => Ok(()),
        false => Err(format!("{there} programs\n{text}\n{}", output.stderr)),
    }
}

/// While one job has as much kernel memory as it can get by spaces of restored processes, other jobs can restore
/// theirs.
pub(crate) fn quotas(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
/test/services quotas > /tmp/said &
sleep 1
/test/attack restores-beside
wait %1
cat /tmp/said
echo alive
";
    let output = ctx.run(Run::script(script).deterministic().memory(256))?;
    output.expect_status(0)?;
    let text = output.text();
    let why = "what was restored for this job has as many kernel objects as it may";
    let starts = [
        format!("restores: some, then: /tmp/restores-beside: {why}"),
        "restores: when these have ended: DONE".to_string(),
        "quotas: 0x".to_string(),
        "alive".to_string(),
    ];
    let lines: Vec<&str> = text.lines().collect();
    let right = starts
        .iter()
        .zip(&lines)
        .all(|(start, line)| line.starts_with(start.as_str()));
    match right && lines.len() >= starts.len() && lines[2].ends_with(why) {
        true => Ok(()),
        false => Err(format!("{text}\n{}", output.stderr)),
    }
}

/// The processes and names of a job are limited; further ones are refused with a message, and all are free again when
/// the job ends.
pub(crate) fn limits(ctx: &mut Ctx) -> Result<(), Failure> {
    let limit = "there are as many as there may be";
    let denied = "permission denied";
    let script = "\
/test/attack names
/test/attack names
/test/attack watch
/test/attack checkpointer
/test/attack part
/test/attack strings
/test/attack resumes
/test/attack bomb
/test/attack bomb
sleep 0.1 &
wait %1
busybox true
echo alive
";
    let reserved = |name: &str| format!("names: {name}: {denied}\n");
    let names = [
        "names",
        "memory",
        "native",
        "fs",
        "device",
        "disk",
        "ext4",
        "link",
        "entropy",
        "net",
        "sound",
        "console",
        "linux",
        "random",
        "checkpoint",
        "with the system port",
    ];
    let names: String = names.iter().map(|name| reserved(name)).collect();
    let names = format!("{names}names: 32 of its own, then: {limit}\n");
    // A program can make 17 threads, which have stacks in the process model: it needs this share of the kernel's
    // memory.
    let output = ctx.run(Run::script(script).memory(1024))?;
    output.expect_status(0)?.expect_stdout(&format!(
        "{names}{names}\
         watch: 128 sessions, then: {limit}\n\
         watch: DONE\n\
         checkpointer: save: this is no process of any manager\n\
         checkpointer: save: it is not said what is to be saved\n\
         checkpointer: save: this is no process of any manager\n\
         checkpointer: save its own: DONE\n\
         checkpointer: for another: {denied}\n\
         checkpointer: restore its own: DONE\n\
         part: for a port that is nobody's: {denied}\n\
         part: all its pages at once, of native: invalid argument\n\
         part: all its pages at once, of linux: invalid argument\n\
         part: nonsense: not in a valid format\n\
         part: then: Killed(9)\n\
         part: 31 begun, then: {limit}\n\
         part: go on with nothing: invalid argument\n\
         strings: arguments for native: invalid argument\n\
         strings: arguments for linux: invalid argument\n\
         strings: parts of 8192 bytes: not in a valid format\n\
         strings: parts of 262144 bytes: not in a valid format\n\
         resumes: native: 0 sessions, then: invalid argument\n\
         resumes: fs: 0 sessions, then: invalid argument\n\
         resumes: console: 4 sessions, then: {limit}\n\
         bomb: 31 processes, then: {limit}\n\
         bomb: 31 processes, then: {limit}\n\
         alive\n",
    ))?;
    Ok(())
}

/// All native programs that a Linux program has started count as one job, including those that they start in turn.
pub(crate) fn linux_job(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
busybox sh -c '/test/attack bomb; /test/attack bomb'
echo alive
";
    let output = ctx.run(Run::script(script).memory(1024))?;
    let limit = "there are as many as there may be";
    output.expect_status(0)?.expect_stdout(&format!(
        "bomb: 31 processes, then: {limit}\nbomb: 0 processes, then: {limit}\nalive\n"
    ))?;
    Ok(())
}

/// How and in which directory a POSIX shell has ended is said to the shell by it alone, and variables are passed on by
/// the shell: whatever another program writes to files meanwhile ends no script, and hides no `exit`.
pub(crate) fn directory(ctx: &mut Ctx) -> Result<(), Failure> {
    let others = |what: &str| {
        let all = "/run/shell/turn-* /run/shell/* /proc/[0-9]*/said";
        let does = format!("while :; do for f in {all}; do {what}; done; done");
        format!("mkdir -p /run/shell\nbusybox sh -c '{does}' 2> /dev/null &\nsleep 0.2\n")
    };
    for what in [
        "printf x >> $f",
        "rm -f $f",
        "echo exit 9 > /run/shell/variables",
        "printf /tmp > $f",
    ] {
        let script = others(what)
            + "cd /dev; X=5\nfor i in 1 2 3; do echo $i; sleep 0.1; done | cat\npwd; echo $X\n\
               echo alive\n";
        let output = ctx.run(Run::script(script))?;
        output
            .expect_status(0)?
            .expect_stdout("1\n2\n3\n/dev\n5\nalive\n")?;
    }
    for what in ["echo >> $f", "rm -f $f", "echo > $f"] {
        let child = "sh -c 'echo > /proc/$PPID/said; echo >> /proc/self/said' 2> /dev/null";
        let script = others(what) + &format!("if ! false; then {child}; exit 9; fi\necho unseen\n");
        let output = ctx.run(Run::script(script))?;
        output.expect_status(9)?.expect_stdout("")?;
    }
    Ok(())
}

/// A program that leaves objects behind, or destroys objects that its manager uses, does not disturb its manager, the
/// memory server or the checkpointer, and nothing of it remains.
pub(crate) fn remains(ctx: &mut Ctx) -> Result<(), Failure> {
    let round = "\
/test/attack frozen
/test/attack hollow
/test/attack vacant-exit
/test/attack vacant > /tmp/out &
sleep 0.05
ps > /tmp/during
checkpoint %1 /tmp/image
kill %1
ps > /tmp/ps
";
    // In the first round servers allocate memory that they keep.
    let script = format!("{}echo alive\n", round.repeat(2));
    let run = Run::script(script).deterministic();
    let output = ctx.run(run.get("/tmp/during").get("/tmp/ps"))?;
    output.expect_status(0)?;
    let text = output.text();
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        "frozen: before: true",
        "frozen: it stands still: true",
        "frozen: it goes on: true",
        "hollow: Killed(9)",
        "vacant: Ok",
        "checkpoint: /test/attack vacant has a reference",
    ];
    let expected: Vec<&str> = [expected, expected].concat();
    let fits = lines.len() == expected.len() + 1
        && lines
            .iter()
            .zip(expected)
            .all(|(line, start)| line.starts_with(start))
        && text.ends_with("alive\n");
    assert!(fits, "{text}");
    let during = String::from_utf8_lossy(output.file("/tmp/during")?);
    assert!(during.contains("/test/attack vacant"), "{during}");
    let after = String::from_utf8_lossy(output.file("/tmp/ps")?);
    assert!(!after.contains("attack"), "{after}");
    Ok(())
}

/// A program that makes ports of services the keepers of its own memory and spaces takes no memory away from others,
/// and all services go on.
pub(crate) fn keepers(ctx: &mut Ctx) -> Result<(), Failure> {
    // With each further running program, the numbers of accounts and segments differ.
    let round = "/test/attack wait &\n/test/attack keeper-faults > /tmp/said\n".repeat(4);
    let script = format!(
        "/test/attack peek > /tmp/said\nps > /tmp/before\n{round}ps > /tmp/after\n\
         /test/attack keeper-calls\ncat /tmp/said\nbusybox echo alive\n"
    );
    let run = Run::script(script).get("/tmp/before").get("/tmp/after");
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let text = output.text();
    let tried = text.matches("nothing came\n").count();
    let called = text.matches("keeper-calls: ").count();
    if (tried, called) != (8, 10) || !text.ends_with("alive\n") {
        return Err(format!("{text}\n{}", output.stderr));
    }
    let before = taken(&output, "/tmp/before")?;
    for (name, kb) in taken(&output, "/tmp/after")? {
        let was = before.iter().find(|(other, _)| *other == name);
        if was.is_some_and(|(_, was)| kb > was + 512) {
            return Err(format!("{name} had {was:?} and has {kb} KB"));
        }
    }
    Ok(())
}

/// The names and KB of the services, as `ps` shows them.
fn taken(output: &Output, path: &str) -> Result<Vec<(String, u64)>, Failure> {
    let text = String::from_utf8_lossy(output.file(path)?).into_owned();
    let service = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["-", "native", _, "running", kb, _, name] => {
                Some((name.to_string(), kb.parse().ok()?))
            }
            _ => None,
        }
    };
    let services: Vec<_> = text.lines().filter_map(service).collect();
    if services.len() < 6 {
        return Err(format!("{path} holds\n{text}"));
    }
    Ok(services)
}

/// A program can make only those files be sent to the host that the user wants, and cannot keep the machine from
/// powering off.
pub(crate) fn gets(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
echo wanted > /tmp/wanted
echo secret > /tmp/secret
echo /tmp/secret > /etc/gets
busybox truncate -s 1000000000000 /tmp/endless
";
    let run = Run::script(script).get("/tmp/endless").get("/tmp/wanted");
    let output = ctx.run(run)?;
    output.expect_status(0)?.expect_stdout("")?;
    let sent: Vec<&str> = output.files.keys().map(String::as_str).collect();
    match sent[..] {
        ["/tmp/wanted"] => Ok(()),
        _ => Err(format!("{sent:?} were sent")),
    }
}

/// Programs that crash as fast as they can, while init prints a line for each, do not keep the machine from powering
/// off.
pub(crate) fn crashes(ctx: &mut Ctx) -> Result<(), Failure> {
    let run = Run::script("/test/attack crashes &\nsleep 0.5\necho alive\n").deterministic();
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let text = output.text();
    match text.contains("(process ") && text.contains("alive\n") {
        true => Ok(()),
        false => Err(text),
    }
}

/// A job that saves a process of its own again and again does not deny others the checkpointer, the files or the
/// processor; it can be killed in the middle, and nothing of it remains.
pub(crate) fn saving(ctx: &mut Ctx) -> Result<(), Failure> {
    let attack = "\
/test/attack saves &
sleep 0.5
/test/attack beside
kill %1
sleep 3
rm /tmp/saves
restore /tmp/nothing
echo alive
";
    let stdout =
        "beside: answered in time\nrestore: /tmp/nothing: no such file or directory\nalive\n";
    // The program beside it measures by the clock, which counts instructions. From round to round the free memory
    // differs by some chunks (CAVEATS.md, Checkpoints).
    leaves_at_most(ctx, attack, stdout, |run| run, 192)
}

/// What is restored for a job counts for it: a job that restores again and again is refused, while others are not,
/// and can restore again when the restored processes have ended.
pub(crate) fn restores(ctx: &mut Ctx) -> Result<(), Failure> {
    let attack = "\
/test/attack restores > /tmp/first &
sleep 1
/test/attack restores-beside
wait %1
cat /tmp/first
";
    let why = "what was restored for this job has as many kernel objects as it may";
    let said = ["restores", "restores-beside"].map(|image| {
        format!(
            "restores: some, then: /tmp/{image}: {why}\n\
             restores: when these have ended: DONE\n"
        )
    });
    let [first, second] = said;
    leaves_no_trace(ctx, attack, &(second + &first), |run| run.memory(256))
}

/// The last line of `ps`: kernel objects, and KB of memory free.
fn totals(output: &Output, path: &str) -> Result<(u64, u64), Failure> {
    let text = String::from_utf8_lossy(output.file(path)?).into_owned();
    let line = text
        .lines()
        .find(|line| line.contains(" kernel objects; "))
        .ok_or_else(|| format!("{path} holds\n{text}"))?;
    let numbers: Vec<u64> = line
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    match numbers[..] {
        [objects, free, ..] => Ok((objects, free)),
        _ => Err(format!("{path} says {line}")),
    }
}

/// Runs `attack` three times. Before and after the last time there must be as many objects and as much free memory;
/// in the first rounds servers allocate memory that they keep. The machine counts instructions: the threads that
/// destroy what has ended are less important than the shell, and get the same number of instructions before the
/// measurement on any host.
fn without_a_trace(ctx: &mut Ctx, attack: &str, stdout: &str) -> Result<(), Failure> {
    leaves_no_trace(ctx, attack, stdout, |run| run)
}

/// The same on a machine that `machine` changes.
fn leaves_no_trace(
    ctx: &mut Ctx,
    attack: &str,
    stdout: &str,
    machine: fn(Run) -> Run,
) -> Result<(), Failure> {
    leaves_at_most(ctx, attack, stdout, machine, 0)
}

/// The same for an attack after which the free memory may differ by so many KB.
fn leaves_at_most(
    ctx: &mut Ctx,
    attack: &str,
    stdout: &str,
    machine: fn(Run) -> Run,
    kept: u64,
) -> Result<(), Failure> {
    // Processes that have ended are destroyed in the background.
    let look = "sleep 0.2\nps > ";
    let script =
        format!("{attack}{attack}ps > /dev/null\n{look}/tmp/before\n{attack}{look}/tmp/after\n");
    let run = machine(Run::script(script).deterministic().memory(96));
    let output = ctx.run(run.get("/tmp/before").get("/tmp/after"))?;
    output.expect_status(0)?;
    output.expect_stdout(&stdout.repeat(3))?;
    let (before, after) = (
        totals(&output, "/tmp/before")?,
        totals(&output, "/tmp/after")?,
    );
    ctx.note(format!(
        "kernel objects and KB free: {before:?}, then {after:?}"
    ));
    if before.0 != after.0 || before.1.abs_diff(after.1) > kept {
        return Err(format!("{before:?} became {after:?}"));
    }
    Ok(())
}

/// While three programs hold all the memory that they can get, other programs, native and Linux, can be started and
/// get the memory that is promised to them.
pub(crate) fn memory_taken(ctx: &mut Ctx) -> Result<(), Failure> {
    memory_gone(ctx, "hog", 3, |run| run)
}

/// The same while the hostile programs have reserved it and touch none of it.
pub(crate) fn memory_reserved(ctx: &mut Ctx) -> Result<(), Failure> {
    memory_gone(ctx, "reserve", 3, |run| run)
}

/// The same while a little memory is mapped in as many places as the memory server allows.
pub(crate) fn memory_shared(ctx: &mut Ctx) -> Result<(), Failure> {
    memory_gone(ctx, "share", 4, |run| run.memory(256))
}

fn memory_gone(
    ctx: &mut Ctx,
    how: &str,
    programs: usize,
    machine: fn(Run) -> Run,
) -> Result<(), Failure> {
    let mut script = format!("/test/hostile {how} &\n").repeat(programs);
    script += "\
sleep 1
echo alive
sort /etc/script > /tmp/sorted
busybox sha256sum /bin/busybox > /tmp/sum
busybox echo and well
";
    for program in 1..=programs {
        script += &format!("kill %{program}\n");
    }
    leaves_no_trace(ctx, &script, "alive\nand well\n", machine)
}

/// A program that touches more memory than it may have is ended, and no other program is.
pub(crate) fn memory_touched(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "/test/hostile hog &\nsleep 0.5\n/test/hostile touch\necho alive\nkill %1\n";
    let output = ctx.run(Run::script(script).memory(96))?;
    output.expect_status(0)?;
    let text = output.text();
    if !text.starts_with("/test/hostile touch (process ")
        || !text.contains("): memory is out: ")
        || !text.ends_with("alive\n")
    {
        return Err(format!("touching too much looks like\n{text}"));
    }
    Ok(())
}

/// A program takes all the room in the file system while another takes all memory: writes are refused, and the file
/// system, which then can touch only memory that it has reserved, goes on.
pub(crate) fn room_taken(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
busybox dd if=/dev/zero of=/tmp/full bs=65536 2> /tmp/said &
sleep 0.02
/test/hostile hog &
wait %1
sleep 0.5
cat /tmp/said
rm /tmp/full
kill %2
echo alive > /tmp/alive
cat /tmp/alive
";
    let output = ctx.run(Run::script(script).memory(96))?;
    output.expect_status(0)?;
    let text = output.text();
    match text.contains("No space left on device") && text.ends_with("alive\n") {
        true => Ok(()),
        false => Err(text),
    }
}

/// Programs that end and leave segments, objects, and identities without bodies.
pub(crate) fn leavings(ctx: &mut Ctx) -> Result<(), Failure> {
    let mut script = String::new();
    for how in ["segments", "vacant", "objects"] {
        script += &format!("/test/hostile {how} &\nwait %1\n");
    }
    without_a_trace(ctx, &(script + "echo goes on\n"), "goes on\n")?;
    // All three programs ran to their ends.
    for how in ["segments", "vacant", "objects"] {
        let run = Run::script(format!("/test/hostile {how}\n"));
        ctx.run(run)?.expect_status(7)?;
    }
    Ok(())
}

/// What a job's programs leave behind counts for the job until it is gone: init pays for none of it, other jobs have
/// their shares, and all is free again when the job has ended.
pub(crate) fn heirs(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "/test/hostile heirs stay > /tmp/said &
sleep 1
/test/hostile heirs
cat /tmp/said
kill %1
sleep 0.2
/test/hostile heirs
echo goes on
";
    let output = ctx.run(Run::script(script).deterministic().memory(256))?;
    output.expect_status(0)?;
    let text = output.text();
    let lines: Vec<&str> = text.lines().collect();
    let [first, second, third, "goes on", ..] = lines[..] else {
        return Err(format!("{text}\n{}", output.stderr));
    };
    assert_eq!((first, first), (second, third), "S2: each job has the same");
    let count = first.strip_suffix(" programs, then: there are as many as there may be");
    let count = count.and_then(|rest| rest.strip_prefix("heirs: ")?.parse().ok());
    let count: u32 = count.ok_or_else(|| first.to_string())?;
    // As much as the most processes that a job may have at once, one of which is this program.
    assert!(
        (30..32).contains(&count),
        "S2: what is left counts: {first}"
    );
    Ok(())
}

/// An executable that grows and shrinks while init reads it; and an executable on a disk that the machine does not
/// have.
pub(crate) fn growing(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "/test/hostile nodisk
/test/hostile grow
sort /etc/script > /tmp/sorted
echo goes on
exit 7
";
    // The duration of a refusal is bounded, in instructions.
    let output = ctx.run(Run::script(script).deterministic())?;
    output.expect_status(7)?;
    match output.text().ends_with("goes on\n") && !output.text().contains("hostile:") {
        true => Ok(()),
        false => Err(output.text().to_string()),
    }
}

/// Loading large executables all the time holds up neither the shell nor a service.
pub(crate) fn heavy(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "/test/hostile heavy &
sleep 0.3
time ps > /tmp/ps
time busybox true
time kill %1
echo alive
";
    let run = Run::script(script).deterministic().memory(512);
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let text = output.text();
    let times = times(&text);
    ctx.note(format!("ps, a Linux program and kill took {times:?} s"));
    let right =
        text.contains("alive\n") && times.len() == 3 && times.iter().all(|time| *time < AT_ONCE);
    match right {
        true => Ok(()),
        false => Err(format!("{text}\n{}", output.stderr)),
    }
}

/// Programs that keep the memory server busy with large segments, and one whose faults are served meanwhile.
pub(crate) fn churn(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
/test/hostile churn &
/test/hostile churn &
/test/hostile churn &
/test/hostile neighbour &
wait %4
kill %1
kill %2
kill %3
";
    without_a_trace(ctx, script, "")
}

/// The console: every program can use it, within limits; the job in the foreground reads it; the shell has the power
/// over it.
pub(crate) fn console(ctx: &mut Ctx) -> Result<(), Failure> {
    let (denied, limit) = ("permission denied", "there are as many as there may be");
    let script = "\
/test/attack console-power
/test/attack console-sessions
/test/attack console-sessions
/test/attack console-read &
sleep 0.05
cat > /tmp/native
busybox cat > /tmp/linux
kill %1
echo alive
";
    let run = Run::script(script)
        .type_after("", "one\ntwo\n\x04three\n\x04")
        .get("/tmp/native")
        .get("/tmp/linux");
    let output = ctx.run(run)?;
    output.expect_status(0)?.expect_stdout(&format!(
        "console: control at its door: {denied}\n\
         console: control from init: {denied}\n\
         console: control of a session: none\n\
         console: methods of control that a session has: 0\n\
         console: a session for a port of its own: {denied}\n\
         console: what is kept of a port of its own: no such file or directory\n\
         console: a session for the door: {denied}\n\
         console: what is kept of the door: no such file or directory\n\
         sessions: one to write\n\
         sessions: 127 more, then: {limit}\n\
         sessions: one to write\n\
         sessions: 127 more, then: {limit}\n\
         console: it reads\n\
         alive\n",
    ))?;
    assert_eq!(output.file("/tmp/native")?, b"one\ntwo\n");
    assert_eq!(output.file("/tmp/linux")?, b"three\n");
    Ok(())
}

/// How often the Linux program of [`lines`] makes the personality print a line.
const LINES: u64 = 600;

/// A Linux program makes the personality print many lines while another keeps the console full, which nobody reads:
/// other Linux programs go on. When the console is read again, the lines are there, or are counted as lost.
pub(crate) fn lines(ctx: &mut Ctx) -> Result<(), Failure> {
    let scratch = temp_dir().map_err(|error| error.message)?;
    let Some(program) = linux_program(ctx, scratch.path(), "hostile") else {
        return Ok(());
    };
    let program = std::fs::read(&program).map_err(|error| error.to_string())?;
    let script = "\
busybox yes &
sleep 1
/bin/hostile lines
busybox echo alive > /tmp/alive
kill %1
trust /test/hostile tell
sleep 1
";
    let run = Run::script(script)
        .unread()
        .add_program("/bin/hostile", program)
        .get("/tmp/alive");
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    assert_eq!(output.file("/tmp/alive")?, b"alive\n");
    // The output of the other program, `y` and ends of lines, may be inside a line.
    let text = output.text().replace(['y', '\n'], "");
    let said = "a signal handler returned to a frame that is not there";
    let said = text.matches(said).count() as u64;
    let lost = text.split("linux: ").skip(1).filter_map(|rest| {
        let (count, _) = rest.split_once(" lost, the console was full")?;
        count.split(' ').next()?.parse::<u64>().ok()
    });
    let lost: u64 = lost.sum();
    ctx.note(format!("{said} lines were said, {lost} lost"));
    // On a busy host the console may not be full in time: then no line is lost.
    match said > 0 && said + lost == LINES {
        true => Ok(()),
        false => Err(format!("{said} lines were said and {lost} lost of {LINES}")),
    }
}

/// Services, and how many ports of each can be connected to: those by which it is found and controlled, and one of
/// each kind that it hands out.
const PORTS: [(&str, usize); 15] = [
    ("memory", 2),
    ("names", 3),
    ("native", 7),
    ("linux", 6),
    ("fs", 2),
    ("device", 2),
    ("disk", 3),
    ("ext4", 2),
    ("link", 3),
    ("entropy", 2),
    ("net", 2),
    ("console", 4),
    ("random", 2),
    ("checkpoint", 2),
    ("sound", 3),
];

/// A client that connected to a server and sent nothing would hold it for ever, so no server's port accepts
/// connections.
pub(crate) fn silence(ctx: &mut Ctx) -> Result<(), Failure> {
    let holds = PORTS.map(|(name, _)| format!("trust /test/hostile hold {name}\n"));
    let script = holds.concat() + "echo > /tmp/x\ncat /tmp/x\nbusybox echo goes on\n";
    let refused =
        PORTS.map(|(name, count)| format!("hold: {name}: {count} ports take no connections\n"));
    let scratch = temp_dir().map_err(|error| error.message)?;
    let disk = hostile_disk(scratch.path(), b"")?;
    let run = Run::script(script)
        .disk(&disk)
        .net(Net::Nothing)
        .rng(Rng::Host);
    let output = ctx.run(with_sound(run, scratch.path())?)?;
    let expected = refused.concat() + "\ngoes on\n";
    output.expect_status(0)?.expect_stdout(&expected)?;
    Ok(())
}

/// KB that servers may keep after the first play, however long: the file system and the checkpointer keep 4 MB of
/// free blocks each.
const SERVICES_KEPT: u64 = 8192;
/// KB that servers may keep after a play that is as long as the one before it, without suspicion. Most of the memory
/// that they keep for later use is there by then, but free blocks vary.
const SERVICES_LOST: u64 = 2048;
/// How often a play is repeated if it is suspected of losing memory each time: the memory that servers may keep in
/// all plays but the first is then less than twice what they may keep in one.
const SERVICES_PLAYS: usize = 8;
/// Kernel objects that servers may keep: references to killed objects, which they drop little by little.
const SERVICES_OBJECTS: u64 = 32;
/// How many requests of hostile clients a service must have carried out at least, or answered if the machine is not
/// about this service. With fewer, the requests would have been refused at once and would have tested little.
const SERVICES_DONE: u64 = 5;

/// A machine with hostile clients.
struct Hostile {
    /// The content of its disk at the beginning.
    disk: Option<&'static [u8]>,
    /// Whether it has a device of random numbers.
    entropy: bool,
    /// Whether it has a sound card.
    sound: bool,
    /// Services that the hostile clients are trusted with.
    powers: &'static str,
    /// Services that must have carried out requests.
    about: &'static [&'static str],
    /// The length of each play in nanoseconds of the guest, each an instruction.
    length: u64,
    /// How many services it has.
    services: usize,
}

/// Machines with hostile clients. While a machine waits for a disk its clock may jump, so that only the first is
/// repeatable with the same seed.
const HOSTILE: [Hostile; 4] = [
    Hostile {
        disk: None,
        entropy: false,
        sound: false,
        powers: "link",
        about: &[
            "memory",
            "names",
            "native",
            "linux",
            "fs",
            "console",
            "checkpoint",
            "random",
            "net",
            "link",
        ],
        length: 1_500_000_000,
        services: 11,
    },
    // A blank disk, which gets a file system.
    Hostile {
        disk: Some(b""),
        entropy: true,
        sound: false,
        powers: "entropy",
        about: &["ext4"],
        length: 600_000_000,
        services: 14,
    },
    // A disk with other content, to which only holders of its power have access.
    Hostile {
        disk: Some(b"no file system"),
        entropy: false,
        sound: false,
        powers: "disk",
        about: &["disk"],
        length: 400_000_000,
        services: 13,
    },
    Hostile {
        disk: None,
        entropy: false,
        sound: true,
        powers: "",
        about: &["sound"],
        length: 400_000_000,
        services: 12,
    },
];

impl Hostile {
    /// This machine, running a script; its files on the host are in this directory.
    fn run(&self, script: String, directory: &Path) -> Result<Run, Failure> {
        let mut run = Run::script(script)
            .net(Net::Nothing)
            .deterministic()
            // The program that makes health checks is above the hostile programs: it waits for the work of servers.
            .word("program-ceiling=9");
        if let Some(content) = self.disk {
            run = run.disk(&hostile_disk(directory, content)?);
        }
        if self.entropy {
            run = run.rng(Rng::Host);
        }
        match self.sound {
            true => with_sound(run, directory),
            false => Ok(run),
        }
    }
}

/// A machine with a sound card, whose output goes to a file in this directory.
fn with_sound(run: Run, directory: &Path) -> Result<Run, Failure> {
    let run = run.driver(Some(build("sb16")?));
    Ok(run.sound(&directory.join("heard.wav")))
}

/// Bytes of the disk.
const HOSTILE_DISK: u64 = 64 << 20;

/// The limits for plays of hostile clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limits {
    /// All limits: for seeds that are known to be within them.
    All,
    /// For seeds that were not chosen before: every server lives and answers, and no memory is lost in play after
    /// play. Of many seeds some exceed what others take, or make too few requests to some service: the times of
    /// answers, the numbers of requests and the memory that servers keep after one play are only noted.
    Faults,
}

/// The seed that the user has asked for.
fn seed() -> u64 {
    let seed = std::env::var("FERMATA_SEED").ok();
    seed.and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// Random requests to every service, from several processes that are killed at any instant: no server dies, an honest
/// client is answered in time, and nothing remains. `FERMATA_SEED=N` plays other requests.
pub(crate) fn services(ctx: &mut Ctx) -> Result<(), Failure> {
    hostile_clients(ctx, seed(), &HOSTILE[0], Limits::All)
}

/// The same with a disk.
pub(crate) fn services_disk(ctx: &mut Ctx) -> Result<(), Failure> {
    let mut machines = HOSTILE[1..3].iter();
    machines.try_for_each(|machine| hostile_clients(ctx, seed(), machine, Limits::All))
}

/// The same with a sound card.
pub(crate) fn services_sound(ctx: &mut Ctx) -> Result<(), Failure> {
    hostile_clients(ctx, seed(), &HOSTILE[3], Limits::All)
}

/// The same on all machines, from this seed, within these limits.
pub(crate) fn services_from(ctx: &mut Ctx, seed: u64, limits: Limits) -> Result<(), Failure> {
    let mut machines = HOSTILE.iter();
    machines.try_for_each(|machine| hostile_clients(ctx, seed, machine, limits))
}

/// A disk in this directory with this content.
fn hostile_disk(directory: &Path, content: &[u8]) -> Result<PathBuf, Failure> {
    let disk = directory.join("disk");
    std::fs::write(&disk, content)
        .and_then(|()| {
            std::fs::File::options()
                .write(true)
                .open(&disk)?
                .set_len(HOSTILE_DISK)
        })
        .map_err(|error| error.to_string())?;
    Ok(disk)
}

/// Hostile clients are a job of their own.
const NURSERY: &str = "/test/services nursery &\nsleep 0.1\n";

fn hostile_clients(
    ctx: &mut Ctx,
    seed: u64,
    machine: &Hostile,
    limits: Limits,
) -> Result<(), Failure> {
    // In the first play servers set up memory that they keep.
    let twice = play_hostile(ctx, seed, machine, 2, limits)?;
    // With a disk, one more server has memory to keep.
    let kept = SERVICES_KEPT + u64::from(machine.disk.is_some()) * SERVICES_KEPT / 2;
    let lost = |plays: &Plays, from: usize, to: usize, most| {
        let (before, after) = (plays.totals[from], plays.totals[to]);
        match after.0 > before.0 + SERVICES_OBJECTS || after.1 + most < before.1 {
            true => Err(format!("seed {seed}: {:?}\n{}", plays.totals, plays.looks)),
            false => Ok(()),
        }
    };
    match (lost(&twice, 0, 1, kept), limits) {
        (Ok(()), _) if lost(&twice, 1, 2, SERVICES_LOST).is_ok() => return Ok(()),
        (Err(why), Limits::All) => return Err(why),
        (Err(_), Limits::Faults) => ctx.note(format!("seed {seed}: servers keep much of a play")),
        (Ok(()), _) => {}
    }
    // A server that leaks loses memory in each play; variations do not add up.
    let often = play_hostile(ctx, seed, machine, SERVICES_PLAYS, limits)?;
    lost(&often, 1, SERVICES_PLAYS, kept)
}

/// What the plays of hostile clients have left on one machine.
struct Plays {
    /// Kernel objects and KB free before the first play and after each.
    totals: Vec<(u64, u64)>,
    /// The output of `ps` at those times.
    looks: String,
}

/// Hostile clients play so often on a machine, each time the same play.
fn play_hostile(
    ctx: &mut Ctx,
    seed: u64,
    machine: &Hostile,
    plays: usize,
    limits: Limits,
) -> Result<Plays, Failure> {
    let Hostile { length, powers, .. } = machine;
    let times: Vec<String> = (0..=plays)
        .map(|play| format!("/tmp/after{play}"))
        .collect();
    let look = |time: &String| format!("sleep 0.2\nps > {time}\n");
    let how = match limits {
        Limits::All => "watch",
        Limits::Faults => "patient",
    };
    let play = format!("trust /test/services {how} {seed} {length} {powers}\n");
    let looks: Vec<_> = times.iter().map(look).collect();
    let script = [NURSERY.to_string(), looks.join(&play)].concat();
    let scratch = temp_dir().map_err(|error| error.message)?;
    let mut run = machine.run(script, scratch.path())?;
    if let Some(program) = linux_program(ctx, scratch.path(), "hostile") {
        let program = std::fs::read(&program).map_err(|error| error.to_string())?;
        run = run.add_program("/bin/hostile", program);
    }
    let run = times.iter().fold(run, |run, time| run.get(time));
    let output = ctx.run(run)?;
    ctx.note(format!("seed {seed}"));
    let text = output.text();
    let mut done = std::collections::BTreeMap::<&str, u64>::new();
    for (at, _) in text.match_indices("services: ") {
        // Hostile clients write to the console too, so the line is searched for.
        let line = text[at..].lines().next().unwrap_or_default();
        let words: Vec<_> = line.split(' ').skip(1).collect();
        if let ([service, done_count, _, refused, ..], true) =
            (&words[..], line.contains(" done, "))
        {
            let service = service.trim_end_matches(':');
            let number = |text: &str| text.parse::<u64>().unwrap_or(0);
            let refused = match machine.about.contains(&service) {
                true => 0,
                false => number(refused),
            };
            *done.entry(service).or_default() += number(done_count) + refused;
        }
        ctx.note(line);
    }
    output.expect_status(0)?;
    let enough = done.values().filter(|count| **count >= SERVICES_DONE);
    let enough = enough.count() == machine.services;
    let well = text.matches("services: all is well\n").count() == plays;
    if !well || !enough && limits == Limits::All {
        return Err(format!("seed {seed}: {done:?} done\n{}", output.stderr));
    }
    if !enough {
        ctx.note(format!("seed {seed}: little was carried out: {done:?}"));
    }
    let mut of = Plays {
        totals: Vec::new(),
        looks: String::new(),
    };
    for time in &times {
        of.totals.push(totals(&output, time)?);
        of.looks += &String::from_utf8_lossy(output.file(time)?);
    }
    ctx.note(format!("kernel objects and KB free: {:?}", of.totals));
    Ok(of)
}

/// The ways that do not hold a service, whatever the state of the thread: if all its memory is there, it is answered;
/// the kernel does not wait for the place of references that never comes; and a service that takes messages in
/// registers only refuses a message in memory. Every other way holds the service.
fn may_be_free(service: &str, way: &str) -> bool {
    let by_registers = !matches!(service, "checkpoint" | "linux" | "native");
    match way.split_once(" never comes").map(|(buffer, _)| buffer) {
        Some("nothing" | "the references that come") => true,
        Some("the end of the message") => by_registers,
        _ => false,
    }
}

/// Each service is held in the middle of a request by what a client owns: by memory that never comes, as the message,
/// as the place of the answer and as references, with threads that are stopped, vacant or gone; by requests that
/// never end, references of every kind, and processes whose objects are destroyed. All services answer an honest
/// client meanwhile.
pub(crate) fn held(ctx: &mut Ctx) -> Result<(), Failure> {
    hold(ctx, "", &HOSTILE[0], 11)
}

/// The same of the services of a disk, and of the driver of a device of random numbers.
pub(crate) fn held_disk(ctx: &mut Ctx) -> Result<(), Failure> {
    hold(ctx, "ext4 entropy", &HOSTILE[1], 2)?;
    hold(ctx, "disk", &HOSTILE[2], 1)
}

/// The same of the driver of a sound card.
pub(crate) fn held_sound(ctx: &mut Ctx) -> Result<(), Failure> {
    hold(ctx, "sound", &HOSTILE[3], 1)
}

/// Holds these services, or all, on this machine; `count` services must be held.
fn hold(ctx: &mut Ctx, services: &str, machine: &Hostile, count: usize) -> Result<(), Failure> {
    let powers = machine.powers;
    let script = format!("{NURSERY}trust /test/services hold {services} with {powers}\n");
    let scratch = temp_dir().map_err(|error| error.message)?;
    let output = ctx.run(machine.run(script, scratch.path())?)?;
    output.expect_status(0)?;
    let text = output.text();
    for line in text
        .lines()
        .filter(|line| line.contains(" held in ") || line.contains("worst"))
    {
        ctx.note(line);
    }
    let lines = text.lines().filter_map(|l| l.strip_prefix("services: "));
    let free = |line: &&str| {
        let found = line.split_once(" was not held: ");
        found.is_some_and(|(service, way)| !may_be_free(service, way))
    };
    let free: Vec<&str> = lines.filter(free).collect();
    if !free.is_empty() {
        return Err(free.join("\n"));
    }
    let held = text.lines().filter(|line| line.contains(" was held in "));
    if !text.contains("services: all is well\n") || held.count() != count {
        return Err(format!("{text:?}\n{}", output.stderr));
    }
    Ok(())
}

/// Programs that make hostile Linux calls (any with any arguments, vectors of 1,024 entries, all memory, all files,
/// signals within signals, a fork bomb, full pipes, files that are not programs, the processes of others, all
/// threads), and another program whose result must not change.
pub(crate) fn linux(ctx: &mut Ctx) -> Result<(), Failure> {
    let ways = [
        "calls 1", "calls 2", "calls 3", "calls 4", "vectors", "memory", "files", "texts", "holes",
    ];
    hostile_linux(ctx, &ways)
}

/// The same, with many processes and threads.
pub(crate) fn linux_processes(ctx: &mut Ctx) -> Result<(), Failure> {
    let ways = [
        "signals",
        "bomb",
        "pipes",
        "programs",
        "strangers",
        "threads",
        "herd",
        "hydra",
        "priorities",
    ];
    hostile_linux(ctx, &ways)
}

/// The same, with calls that wait.
pub(crate) fn linux_waits(ctx: &mut Ctx) -> Result<(), Failure> {
    hostile_linux(ctx, &["datagrams", "alarms", "timers", "moves", "ipc"])
}

fn hostile_linux(ctx: &mut Ctx, ways: &[&str]) -> Result<(), Failure> {
    let scratch = temp_dir().map_err(|error| error.message)?;
    let Some(program) = linux_program(ctx, scratch.path(), "hostile") else {
        return Ok(());
    };
    let program = std::fs::read(&program).map_err(|error| error.to_string())?;
    let mut script = String::from("busybox sha256sum /bin/busybox > /tmp/expected\n");
    let mut round = String::new();
    for way in ways {
        round += &format!(
            "/bin/hostile {way} > /dev/null &\nbusybox sha256sum /bin/busybox > /tmp/sum\n\
             cmp /tmp/sum /tmp/expected\nsleep 0.15\nkill %1\n"
        );
    }
    round += "ps > /dev/null\nsleep 0.2\n";
    // In the first rounds servers allocate memory that they keep: some of it in the second round, and none in later
    // ones.
    script += &format!("{round}{round}ps > /tmp/before\n{round}ps > /tmp/after\necho alive\n");
    // Its status is the machine's: it shows that the program has ended no other program's processes.
    script += "/bin/hostile strangers\n";
    let run = Run::script(script)
        .deterministic()
        .add_program("/bin/hostile", program)
        .get("/tmp/before")
        .get("/tmp/after");
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let text = output.text();
    if text.contains("differ") || !text.contains("alive\n") {
        return Err(format!("{text}\n{}", output.stderr));
    }
    let (before, after) = (
        totals(&output, "/tmp/before")?,
        totals(&output, "/tmp/after")?,
    );
    ctx.note(format!(
        "kernel objects and KB free: {before:?}, then {after:?}"
    ));
    if after.0 > before.0 || after.1 + SERVICES_KEPT < before.1 {
        return Err(format!("{before:?} became {after:?}\n{text}"));
    }
    Ok(())
}

/// A small executable of two segments, with the words at these offsets changed.
fn odd_elf(changes: &[(usize, u64)]) -> Vec<u8> {
    let mut elf = vec![0; 0x1100];
    let mut put = |at: usize, bytes: &[u8]| elf[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[2, 0, 62, 0, 1]);
    put(24, &0x40_1000u64.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(54, &[56, 0, 2]);
    for (n, flags, address) in [(0, 4, 0x40_0000u64), (1, 7, 0x40_1000)] {
        let at = 64 + n * 56;
        put(at, &[1, 0, 0, 0, flags]);
        let offset = address - 0x40_0000;
        for (word, value) in [offset, address, address, 0x100, 0x100, 0x1000]
            .into_iter()
            .enumerate()
        {
            put(at + 8 + word * 8, &value.to_le_bytes());
        }
    }
    // exit_group(0)
    put(0x1000, &[0x31, 0xff, 0xb8, 231, 0, 0, 0, 0x0f, 0x05]);
    for (at, value) in changes {
        put(*at, &value.to_le_bytes());
    }
    elf
}

/// The least number of files, of about 140, each twice, that are refused as executables; others end by a fault or
/// have other messages.
const ODD_REFUSED: usize = 100;

/// Executables of every odd kind: each is refused with a message or runs, and everything else goes on.
pub(crate) fn executables(ctx: &mut Ctx) -> Result<(), Failure> {
    const OFFSET: usize = 64 + 56 + 8;
    const ADDRESS: usize = OFFSET + 8;
    const IN_FILE: usize = OFFSET + 24;
    const IN_MEMORY: usize = OFFSET + 32;
    let edges = [
        0,
        1,
        0xfff,
        0x1001,
        0x40_0000,
        0x40_0fff,
        1 << 31,
        1 << 36,
        (1 << 36) - 0x1000,
        1 << 46,
        1 << 47,
        1 << 63,
        u64::MAX,
        u64::MAX - 0xfff,
    ];
    let mut files = vec![odd_elf(&[])];
    for at in [24, 32, OFFSET, ADDRESS, IN_FILE, IN_MEMORY] {
        files.extend(edges.map(|edge| odd_elf(&[(at, edge)])));
    }
    // Limits of both sizes, the same address twice, an interpreter that does not exist, is endless, or is the file
    // itself.
    files.extend(edges.map(|edge| odd_elf(&[(IN_FILE, edge), (IN_MEMORY, edge)])));
    files.push(odd_elf(&[(ADDRESS, 0x40_0000), (24, 0x40_0000)]));
    files.extend(edges.map(|edge| odd_elf(&[(64, 3 | 4 << 32), (72, edge), (96, 0x100)])));
    files.extend(edges.map(|edge| odd_elf(&[(64, 3 | 4 << 32), (96, edge)])));
    files.push({
        let mut own = odd_elf(&[(64, 3 | 4 << 32), (72, 0x800), (96, 12)]);
        own[0x800..0x80c].copy_from_slice(b"/tmp/odd.own");
        own
    });
    let own = files.len() - 1;
    // Cut off at every limit of its headers.
    let whole = odd_elf(&[]);
    for length in [
        0, 1, 4, 16, 63, 64, 65, 119, 120, 121, 175, 176, 0xfff, 0x1000,
    ] {
        files.push(whole[..length].to_vec());
    }
    let mut script = String::new();
    let mut run = Run::script("");
    for (n, file) in files.iter().enumerate() {
        let path = match n {
            n if n == own => "/tmp/odd.own".to_string(),
            n => format!("/tmp/odd.{n}"),
        };
        script += &format!("{path} > /dev/null &\nwait %1\n");
        run = run.add_program(&path, file.clone());
    }
    // The shell starts those files by the personality that have no note of Fermata's.
    script += &format!("/test/hostile odd {}\n", files.len());
    let script = format!("{script}ps > /tmp/before\n{script}ps > /tmp/after\necho alive\n");
    let run = run
        .with_script(script)
        .deterministic()
        .get("/tmp/before")
        .get("/tmp/after");
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let text = output.text();
    let refused = text.matches("not an executable").count();
    let native: Vec<&str> = text.lines().filter(|l| l.starts_with("odd: ")).collect();
    ctx.note(format!(
        "{} files, {refused} times refused; by init {native:?}",
        files.len()
    ));
    let [first, second] = native[..] else {
        return Err(format!("{text}\n{}", output.stderr));
    };
    assert_eq!(first, second, "init does the same twice");
    let by_init = first.split_ascii_whitespace().nth(3);
    let by_init: usize = by_init.and_then(|count| count.parse().ok()).unwrap_or(0);
    let all_refused = refused >= ODD_REFUSED && by_init >= ODD_REFUSED / 2;
    if !text.contains("alive\n") || !all_refused {
        return Err(format!("{text}\n{}", output.stderr));
    }
    let (before, after) = (
        totals(&output, "/tmp/before")?,
        totals(&output, "/tmp/after")?,
    );
    if after != before {
        return Err(format!("{before:?} became {after:?}\n{text}"));
    }
    Ok(())
}
