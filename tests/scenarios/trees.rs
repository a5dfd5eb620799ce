//! Checkpoints of trees of Linux processes: saved at seeded instants, killed, and restored from the image, in the same
//! boot and in another machine.

use std::fmt::Write;

use super::checkpoint::text;
use super::linux_program;
use crate::scenario::{Ctx, Failure, Run};
use xtask_build::project::temp_dir;

/// Trees that a shell makes: their names, how often each is cut, and their scripts. Their output does not depend on
/// which process runs first.
const SHELLS: [(&str, u64, &str); 4] = [
    ("pipeline", 10, "cat /data/text | sort | sha256sum"),
    (
        "loop",
        10,
        "i=0; while [ $i -lt 12 ]; do i=$((i+1)); echo $(expr $i '*' $i) $(echo $i | sha256sum); done",
    ),
    (
        "background",
        10,
        "for n in 1 2 3 4; do (head -c ${n}0000 /data/text | gzip -9 | sha256sum) & done | sort; wait; echo $?",
    ),
    (
        "statuses",
        10,
        "trap 'echo told' USR1; (sleep 0.01; kill -USR1 $$; exit 3) & p=$!; (exit 7) & q=$!; sleep 0.03; wait $p; \
         echo $?; wait $q; echo $?",
    ),
];

/// Pipelines, loops and background processes of a shell.
pub(crate) fn shells(ctx: &mut Ctx) -> Result<(), Failure> {
    let mut script = String::new();
    for (n, (_, cuts, command)) in SHELLS.iter().enumerate() {
        let command = command.replace('\\', "\\\\").replace('"', "\\\"");
        let command = command.replace('$', "\\$");
        let _ = writeln!(
            script,
            "/test/cutter seed={} cuts={cuts} linux /bin/busybox sh -c \"{command}\"",
            n + 31
        );
    }
    let run = Run::script(script).add("/data/text", text(100 << 10));
    all_equal(ctx, run, SHELLS.len())
}

/// Runs cutters; all their programs must print the same as undisturbed.
fn all_equal(ctx: &mut Ctx, run: Run, count: usize) -> Result<(), Failure> {
    let run = run.word("program-ceiling=31").deterministic();
    let output = ctx.run(run)?;
    let text = output.text();
    if output.expect_status(0).is_err() || text.matches("bytes of output equal").count() != count {
        return Err(format!("not all outputs are equal:\n{text}"));
    }
    for line in text.lines().filter(|line| line.contains("cuts within")) {
        ctx.note(line.trim_start_matches("note "));
    }
    Ok(())
}

/// Programs that fork, share memory, sockets and descriptors, stop each other and wait for many things.
pub(crate) fn programs(ctx: &mut Ctx) -> Result<(), Failure> {
    let scratch = temp_dir().map_err(|error| error.message)?;
    let mut script = String::new();
    let mut run = Vec::new();
    let all = [
        ("trees", ""),
        ("sockets", ""),
        ("jobs", ""),
        ("locks", " many"),
        ("shared", " many"),
        ("ptys", " many"),
        ("inotify", " many"),
        ("ptrace", " all"),
        ("busy", " all"),
        ("sysv", " all"),
    ];
    for (n, (name, arguments)) in all.into_iter().enumerate() {
        let Some(program) = linux_program(ctx, scratch.path(), name) else {
            return Ok(());
        };
        let program = std::fs::read(program).map_err(|error| error.to_string())?;
        let _ = writeln!(
            script,
            "/test/cutter seed={} cuts=25 linux /bin/busybox sh -c \"rm -rf /tmp/work; mkdir /tmp/work; cd /tmp/work; \
             head -c 100 /data/text > text; exec /bin/{name}{arguments}\"",
            n + 41
        );
        run.push((format!("/bin/{name}"), program));
    }
    let count = run.len();
    let run = run
        .into_iter()
        .fold(Run::script(script), |run, (path, program)| {
            run.add_program(&path, program)
        });
    all_equal(ctx, run.add("/data/text", text(4 << 10)), count)
}

/// Programs of Debian packages continue as if nothing had happened.
pub(crate) fn packages(ctx: &mut Ctx) -> Result<(), Failure> {
    ctx.checkpoints_of_packages()
}

/// A job of a Linux shell is saved without the shell, by its number there: the shell and the job go on, or the job
/// stops as by Ctrl-Z. The job is restored next to the shell, in the same boot, and in another machine without a
/// shell.
pub(crate) fn jobs_of_shells(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = r#"
set -m
count() {
    i=0
    while [ $i -lt 40 ]; do
        i=$((i+1)); echo $i; sleep 0.01
    done
}
(count | sha256sum > /tmp/sum) &
job=$!
sleep 0.1
checkpoint $job /tmp/none && echo wrong
checkpoint --cut $job /tmp/image || exit 1
wait $job
echo "went on: $? $(cat /tmp/sum)"
rm /tmp/sum
restore /tmp/image
until [ -s /tmp/sum ]; do sleep 0.02; done
echo "restored: $(cat /tmp/sum)"
(count > /tmp/count; exit 9) &
job=$!
sleep 0.1
checkpoint --stop --cut $job /tmp/stopped || exit 1
jobs
lines=$(wc -l < /tmp/count); sleep 0.1; [ $(wc -l < /tmp/count) = $lines ] && echo stands still
fg
echo "ended: $? $(wc -l < /tmp/count)"
"#;
    let run = Run::script("trust sh /tmp/script\n")
        .add("/tmp/script", script)
        .get("/tmp/image")
        .get("/tmp/stopped");
    let output = ctx.run(run.deterministic())?;
    output.expect_status(0)?;
    let text = output.text();
    let sums: Vec<&str> = text
        .lines()
        .filter_map(|line| {
            line.strip_prefix("went on: 0 ")
                .or(line.strip_prefix("restored: "))
        })
        .collect();
    let told = ["its parent, sh", "Stopped", "stands still", "ended: 9 40"];
    if !told.iter().all(|part| text.contains(part)) || text.contains("wrong") {
        return Err(text);
    }
    let [whole, restored] = sums[..] else {
        return Err(text);
    };
    if whole != restored || !whole.ends_with(" -") {
        return Err(format!("{whole}, and restored {restored}"));
    }
    // In the other machine there is no shell, and no file.
    let script = "restore /image\nrestore /stopped\nwait\ncat /tmp/sum\nbusybox wc -l /tmp/count\n";
    let run = Run::script(script)
        .add("/image", output.file("/tmp/image")?)
        .add("/stopped", output.file("/tmp/stopped")?);
    let elsewhere = ctx.run(run.deterministic())?;
    let found = elsewhere.text();
    if !found.contains(whole) || !found.contains("40 /tmp/count") {
        return Err(format!("elsewhere, instead of {whole}:\n{found}"));
    }
    Ok(())
}

/// Things that a tree shares with another one are reported with the names of both, and both trees go on.
pub(crate) fn refusals(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
busybox mkfifo /tmp/fifo
busybox sh -c \"(sleep 0.2; echo through) > /tmp/fifo\" &
busybox sh -c \"cat < /tmp/fifo > /tmp/out\" &
sleep 0.1
checkpoint %1 /tmp/image
checkpoint %2 /tmp/image
wait
cat /tmp/out
ls /tmp
";
    let output = ctx.run(Run::script(script).deterministic())?;
    let text = output.text();
    let told = [
        "it shares the pipe at descriptor 1 of process",
        "it shares the pipe at descriptor 0 of process",
        "with cat (",
        "with busybox sh -c (sleep 0.2; echo through) > /tmp/fifo (",
    ];
    let files = text.lines().skip_while(|line| *line != "through");
    let files: Vec<&str> = files.skip(1).collect();
    if !told.iter().all(|part| text.contains(part)) || files != ["fifo", "out"] {
        return Err(text);
    }
    Ok(())
}

/// Instants at which a tree is saved in one machine, to continue in another, in milliseconds from its start. Before
/// the first instant the tree has opened its input files.
const INSTANTS: [u64; 3] = [6, 9, 12];

/// Trees continue in another machine from the image alone, with their earlier output and their input files.
pub(crate) fn other_machine(ctx: &mut Ctx) -> Result<(), Failure> {
    let scripts = [
        (
            "pipeline",
            "exec < /data/text; cat | sort | sha256sum",
        ),
        (
            "gzip",
            "gzip -9 < /data/text; rm -f /tmp/no-name; exec 3> /tmp/no-name 4< /tmp/no-name; rm /tmp/no-name; \
             head -c 3000 /data/text | tee /dev/fd/3 | sort; cat <&4",
        ),
        (
            "loop",
            "for n in $(seq 24); do echo $n $(seq $n | sha256sum); done",
        ),
    ];
    let (mut script, mut second) = (String::new(), String::new());
    let mut names = Vec::new();
    for (name, command) in scripts {
        let quoted = command.replace('$', "\\$");
        for instant in INSTANTS {
            let name = format!("{name}{instant}");
            let _ = writeln!(
                script,
                "busybox sh -c \"{quoted}\" > /tmp/{name} &\nsleep {}\ncheckpoint --files %1 /tmp/{name}.image\nkill %1",
                instant as f64 / 1000.0
            );
            let _ = writeln!(second, "restore /tmp/{name}.image\nwait %1");
            names.push(name);
        }
        let _ = writeln!(script, "busybox sh -c \"{quoted}\" > /tmp/{name}.whole");
    }
    let mut run = Run::script(script)
        .deterministic()
        .add("/data/text", text(100 << 10));
    for name in &names {
        run = run.get(&format!("/tmp/{name}.image"));
    }
    for (name, _) in scripts {
        run = run.get(&format!("/tmp/{name}.whole"));
    }
    let first = ctx.run(run)?;
    first.expect_status(0)?;
    // Nothing but the images and what a shell starts.
    second.push_str("ls -l /tmp\n");
    let mut run = Run::script(second).deterministic();
    for name in &names {
        let image = format!("/tmp/{name}.image");
        run = run
            .add(&image, first.file(&image)?.to_vec())
            .get(&format!("/tmp/{name}"));
    }
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    for (name, _) in scripts {
        let whole = first.file(&format!("/tmp/{name}.whole"))?;
        for instant in INSTANTS {
            let other = output.file(&format!("/tmp/{name}{instant}"))?;
            if whole.is_empty() || other != whole {
                return Err(format!(
                    "{name}{instant}: {} bytes in one machine, {} in two\n{}",
                    whole.len(),
                    other.len(),
                    output.text()
                ));
            }
        }
    }
    ctx.note(format!("{} images went on elsewhere", names.len()));
    Ok(())
}

/// What the processes of a tree share is theirs again in another machine, and nobody else's: one part of `kept.c`
/// after the other.
pub(crate) fn kept(ctx: &mut Ctx) -> Result<(), Failure> {
    const PARTS: [(&str, &str); 6] = [
        ("locks", "locks: 700\n"),
        (
            "memory_file",
            "memory_file: 800 from before, and after /memfd:kept (deleted)\n",
        ),
        (
            "shared_memory",
            "shared_memory: 900 from the child, by the child, 10\n",
        ),
        (
            "terminal",
            "terminal: 600half a line..44 99 half a line..\n",
        ),
        ("timers", "timers: in time\n"),
        ("names", "names: memorynameless too\n"),
    ];
    let scratch = temp_dir().map_err(|error| error.message)?;
    let Some(program) = linux_program(ctx, scratch.path(), "kept") else {
        return Ok(());
    };
    let program = std::fs::read(program).map_err(|error| error.to_string())?;
    let (mut script, mut second) = (String::new(), String::new());
    for (part, _) in PARTS {
        let _ = writeln!(
            script,
            "kept {part} > /tmp/{part} &\nsleep 0.15\ncheckpoint --stop %1 /tmp/{part}.image\nkill %1"
        );
        if part == "names" {
            // The image has the link by its path.
            second.push_str("busybox ln -s /tmp/nowhere /tmp/kept.link\n");
        }
        let _ = writeln!(second, "restore /tmp/{part}.image");
        if part == "locks" {
            // Restores of other images, and of the same image once more.
            second.push_str(
                "busybox flock -n /tmp/kept.locked echo free\nrestore /tmp/locks.image\n",
            );
        }
        second.push_str("wait %1\n");
    }
    let mut run = Run::script(script).deterministic();
    for (part, _) in PARTS {
        run = run.get(&format!("/tmp/{part}.image"));
    }
    let first = ctx.run(run.add_program("/bin/kept", program))?;
    first.expect_status(0)?;
    let mut run = Run::script(second).deterministic();
    for (part, _) in PARTS {
        let image = format!("/tmp/{part}.image");
        run = run.add(&image, first.file(&image)?.to_vec());
        run = run.get(&format!("/tmp/{part}"));
    }
    let output = ctx.run(run)?;
    for (part, expected) in PARTS {
        let found = output.file(&format!("/tmp/{part}"))?;
        if found != expected.as_bytes() {
            let found = String::from_utf8_lossy(found);
            return Err(format!("{part}: {found}\n{}", output.text()));
        }
    }
    let text = output.text();
    if text.contains("free") || !text.contains("/tmp/kept.locked: somebody else has locked it now")
    {
        return Err(format!("locks of others are taken:\n{text}"));
    }
    Ok(())
}
