//! Scenarios of the Linux personality: unmodified programs, whose output must be what they print on the host.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{elf, linux_program};
use crate::scenario::{Ctx, Failure, Run};
use xtask_build::project::temp_dir;

/// The busybox of the guest.
fn busybox() -> PathBuf {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/downloads/busybox");
    if fetched.exists() {
        fetched
    } else {
        "busybox".into()
    }
}

/// A text of numbered lines, the same each time.
fn text(lines: u32) -> Vec<u8> {
    let mut seed = 7u32;
    let mut out = String::new();
    for line in 0..lines {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        out.push_str(&format!(
            "{} line {line} of words {}\n",
            seed >> 12,
            seed % 97
        ));
    }
    out.into_bytes()
}

/// Words of a command; single quotes hold blanks together.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().expect("there is one").push(c),
        }
    }
    words
}

/// Commands of busybox, and the file that each reads. The output must be the same as on the host, on standard output
/// and on standard error.
const COMMANDS: &[(&str, &str)] = &[
    ("cat small text", "empty"),
    ("cat missing", "empty"),
    ("cat", "text"),
    ("grep -n 77 text", "empty"),
    ("grep -E -c '^[0-9]*5 line' text", "empty"),
    ("grep x missing small", "empty"),
    ("sort text", "empty"),
    ("sort -n -r -k 4", "text"),
    ("wc text small", "empty"),
    ("sha256sum text small missing", "empty"),
    ("gzip -k -9 text", "empty"),
    ("gzip -c", "text"),
    ("gunzip -c text.gz", "empty"),
    ("gunzip small", "empty"),
    ("awk '{ s += $1 } END { print s, NR }' text", "empty"),
    (
        "awk '{ n[$NF]++ } END { for (k in n) print k, n[k] }' text",
        "empty",
    ),
    ("sed -e 's/line/LINE/;20q' text", "empty"),
    ("cp text copied", "empty"),
    ("sed -i s/words/letters/ copied", "empty"),
    ("tar cf all.tar small copied", "empty"),
    ("tar tf all.tar", "empty"),
    ("mkdir -p out/deep", "empty"),
    ("mkdir out", "empty"),
    ("tar xvf all.tar -C out", "empty"),
    ("tar xf small", "empty"),
    ("cmp copied out/copied", "empty"),
    ("cmp small out/copied", "empty"),
    ("mv copied out/deep", "empty"),
    ("ls -1 -R", "empty"),
    ("ls missing", "empty"),
    ("ln -s ../small out/link", "empty"),
    ("readlink out/link", "empty"),
    ("cat out/link", "empty"),
    ("rm -r out", "empty"),
    ("rm out", "empty"),
    ("chmod 640 small", "empty"),
    ("stat -c '%n %s %a %h' small", "empty"),
    ("touch -d '2020-02-03 04:05:06' small", "empty"),
    ("stat -c %Y small", "empty"),
    ("dd if=text of=piece bs=100 count=3 skip=2", "empty"),
    ("od -c piece", "empty"),
    ("head -c 200", "text"),
    ("tail -n 2 text", "empty"),
    ("tr a-z A-Z", "small"),
    ("cut -d ' ' -f 1,3 text", "empty"),
    ("uniq -c small", "empty"),
    ("tee teed", "small"),
    ("md5sum teed text", "empty"),
    ("diff small text", "small"),
    ("seq 3 7", "empty"),
    ("expr 6 '*' 7", "empty"),
    ("env", "empty"),
    (
        "sh -c 'x=2; echo $x; test -f small && echo there; cd .. && ls missing'",
        "empty",
    ),
    (
        "sh -c 'trap \"echo caught\" USR1; kill -USR1 $$; echo after'",
        "empty",
    ),
    ("sh -c 'read a; exec cat'", "text"),
    ("nonsense", "empty"),
];

/// Debian's busybox prints the same here as on the host.
pub(crate) fn applets(ctx: &mut Ctx) -> Result<(), Failure> {
    let scratch = temp_dir().map_err(|error| error.message)?;
    let files = [
        ("text", text(3000)),
        ("small", b"hello\nhello\nthere\nhello\n".to_vec()),
        ("empty", Vec::new()),
    ];
    for (name, content) in &files {
        std::fs::write(scratch.path().join(name), content).map_err(|e| e.to_string())?;
    }
    let mut script = String::from("cd /tmp/work\n");
    let mut expected = Vec::new();
    let mut console = String::new();
    for (index, (command, input)) in COMMANDS.iter().enumerate() {
        script.push_str(&format!("busybox {command} < {input} > /tmp/out.{index}\n"));
        let input = std::fs::File::open(scratch.path().join(input)).map_err(|e| e.to_string())?;
        let output = Command::new(busybox())
            .arg0_and(&words(command))
            .current_dir(scratch.path())
            .env_clear()
            .stdin(Stdio::from(input))
            .output()
            .map_err(|e| format!("busybox on the host: {e}"))?;
        console.push_str(&String::from_utf8_lossy(&output.stderr));
        expected.push(output.stdout);
    }
    let mut run = Run::script(script);
    for (name, content) in files {
        run = run.add(&format!("/tmp/work/{name}"), content);
    }
    for index in 0..COMMANDS.len() {
        run = run.get(&format!("/tmp/out.{index}"));
    }
    let output = ctx.run(run)?;
    for (index, (command, _)) in COMMANDS.iter().enumerate() {
        // The guest's shell gives its programs an environment of its own.
        if *command == "env" {
            continue;
        }
        let found = output.file(&format!("/tmp/out.{index}"))?;
        if found != expected[index] {
            return Err(format!(
                "busybox {command} prints\n{}\ninstead of\n{}",
                String::from_utf8_lossy(&found[..found.len().min(1000)]),
                String::from_utf8_lossy(&expected[index][..expected[index].len().min(1000)]),
            ));
        }
    }
    output.expect_stdout(&console)?;
    ctx.note(format!("{} commands agree", COMMANDS.len()));
    Ok(())
}

/// Scripts for busybox's shell, which must have the same standard output, standard error and status.
const SCRIPTS: &[&str] = &[
    "true; echo $?; false; echo $?",
    "(exit 7); echo $?",
    "sh -c 'exit 200'; echo $?",
    "exit 255",
    "ls | sort | wc -l",
    "cat text | sort | uniq -c | sort -rn | head -n 5",
    "sort -n text | sed -n '5,9p' | tr a-z A-Z",
    "seq 1 100000 | tail -n 1",
    "seq 1 100000 | head -n 3",
    "yes | head -n 20000 | wc",
    "cat text text text | gzip -c | gunzip -c | sha256sum",
    "tar cf - text small | tar tf -",
    "x=$(echo one; echo two); echo \"$x\"; echo $x",
    "echo $(echo $(echo $(echo deep)))",
    "echo `seq 1 5`",
    "for i in 1 2 3; do echo $i | cat; done",
    "i=0; while [ $i -lt 20 ]; do i=$((i + 1)); expr $i '*' $i; done",
    "seq 1 10 | while read n; do echo line $n; done",
    "until false; do echo once; break; done",
    "f() { echo in f with $1; return 3; }; f a | cat; f b; echo $?",
    "sleep 0.2 & wait; echo waited",
    "(sleep 0.1; exit 9) & wait $!; echo $?",
    "for i in 5 6 7; do (exit $i) & p=$!; wait $p; echo $?; done",
    "sh -c 'kill -TERM $$'; echo $?",
    "sh -c 'kill -9 $$'; echo $?",
    "sleep 100 & p=$!; (sleep 0.2; kill $p) & wait $p; echo $?",
    "trap 'echo got it' USR1; (kill -USR1 $$); wait; echo after",
    "trap 'echo bye' EXIT; echo working",
    "trap '' TERM; sh -c 'kill -TERM $PPID'; echo still here",
    "echo a > a; cat < a >> b; cat a b | wc -l; rm a b",
    "exec 3> three; echo to three >&3; exec 3>&-; cat three; rm three",
    "{ echo out; echo err >&2; } 2>&1 | sort",
    "cat <<END | tr e E\nhere is\nthe document $((6 * 7))\nEND",
    "echo '#!/bin/busybox sh' > s; echo 'echo script $0 $1 $#' >> s; chmod 755 s; ./s one two; rm s",
    "printf 'echo no first line\\n' > s; chmod 755 s; ./s; rm s",
    "echo rubbish > s; ./s; echo $?; rm s",
    "./missing; echo $?",
    "nonsense-that-is-not-there; echo $?",
    "cd /; ( cd /dev; echo inside ); cat dev/null; echo outside",
    "find . -name 's*' -exec echo found {} ';' | sort",
    "seq 1 40 | xargs -n 7 echo",
    "seq 1 9 | xargs -I N sh -c 'echo N'",
    "cat text | tee copy | md5sum; md5sum < copy; rm copy",
    "awk 'BEGIN { \"echo from a command\" | getline x; print x; print \"b\\na\" | \"sort\" }'",
    "awk 'BEGIN { exit system(\"exit 5\") }'; echo $?",
    "time -p true 2> times; wc -l < times; rm times",
    "timeout 1 sleep 20; echo $?",
    "sh -c 'sh -c \"sh -c \\\"echo four deep\\\"\"'",
    "n=0; for f in $(ls); do n=$((n + $(wc -c < $f))); done; test $n -gt 1000 && echo sum",
    "set -o pipefail; false | true; echo $?; true | false | true; echo $?",
    "a() { if [ $1 -gt 0 ]; then (a $(($1 - 1))); else echo bottom; fi; }; a 12",
    "echo $$ > p; sh -c 'echo $PPID' > q; cmp p q && echo its parent; rm p q",
    "mkfifo-is-not-asked-for 2> /dev/null || echo fallen back",
    "mkfifo f; cat f & echo through > f; wait; ls -l f | cut -c 1; rm f; ls f",
    "mkfifo f; echo first > f & cat < f; (sleep 0.2; seq 1 30000 > f) & tail -n 1 f; wait; rm f",
    "mkfifo f g; (sort -n < f > g; rm f) & (seq 9 -1 1 > f) & cat g; wait; rm g",
    "mkfifo f; (exec 3<> f; echo both >&3; read x <&3; echo $x); timeout 0.2 cat f; echo $?; rm f",
    "dd if=/dev/zero bs=1k count=30 2> /dev/null | dd bs=7 2> /dev/null | wc -c",
    "sh -c 'echo $0 $@' name a b | cat -; readlink /proc/self/exe > /dev/null && echo exe",
];

/// Scripts with pipelines, loops and substitutions print the same here as on the host.
pub(crate) fn scripts(ctx: &mut Ctx) -> Result<(), Failure> {
    let scratch = temp_dir().map_err(|error| error.message)?;
    let small = b"hello\nhello\nthere\nhello\n".to_vec();
    for (name, content) in [("text", text(3000)), ("small", small.clone())] {
        std::fs::write(scratch.path().join(name), content).map_err(|e| e.to_string())?;
    }
    let mut run = String::from("cd /tmp/work\n");
    let mut expected = Vec::new();
    for (index, script) in SCRIPTS.iter().enumerate() {
        run.push_str(&format!(
            "busybox sh /tmp/scripts/{index} > /tmp/out.{index}\n"
        ));
        let path = scratch.path().with_extension("script");
        let text = whole(script).replace("/bin/busybox", &busybox().display().to_string());
        std::fs::write(&path, text).map_err(|e| e.to_string())?;
        let output = Command::new(busybox())
            .arg0_and(&["sh".into(), path.display().to_string()])
            .current_dir(scratch.path())
            .env_clear()
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("busybox on the host: {e}"))?;
        let _ = std::fs::remove_file(&path);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        expected.push(text.replace(
            &path.display().to_string(),
            &format!("/tmp/scripts/{index}"),
        ));
    }
    run.push_str("ps\n");
    let mut run = Run::script(run)
        .add("/tmp/work/text", text(3000))
        .add("/tmp/work/small", small);
    for (index, script) in SCRIPTS.iter().enumerate() {
        run = run
            .add(&format!("/tmp/scripts/{index}"), whole(script).into_bytes())
            .get(&format!("/tmp/out.{index}"));
    }
    let output = ctx.run(run)?;
    let mut wrong = String::new();
    for (index, script) in SCRIPTS.iter().enumerate() {
        let found = String::from_utf8_lossy(output.file(&format!("/tmp/out.{index}"))?);
        if found != expected[index] {
            let short = |text: &str| text.chars().take(600).collect::<String>();
            let (found, expected) = (short(&found), short(&expected[index]));
            wrong += &format!("{script}\nprints\n{found}\ninstead of\n{expected}\n");
        }
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    // No process and no zombie is left.
    if output.text().contains("%") {
        return Err(format!("processes are left:\n{}", output.text()));
    }
    ctx.note(format!("{} scripts agree", SCRIPTS.len()));
    Ok(())
}

/// A script whose errors and last status are part of what it prints.
fn whole(script: &str) -> String {
    format!("exec 2>&1\n{script}\necho status $?\n")
}

trait ArgumentsOfBusybox {
    fn arg0_and(&mut self, words: &[String]) -> &mut Self;
}

impl ArgumentsOfBusybox for Command {
    /// Arguments in the form that the guest's shell uses.
    fn arg0_and(&mut self, words: &[String]) -> &mut Self {
        use std::os::unix::process::CommandExt;
        self.arg0("busybox").args(words)
    }
}

/// A program with 250 calls that busybox does not make, linked statically on the host.
pub(crate) fn calls(ctx: &mut Ctx) -> Result<(), Failure> {
    let scratch = temp_dir().map_err(|error| error.message)?;
    let Some(program) = linux_program(ctx, scratch.path(), "calls") else {
        return Ok(());
    };
    let text = text(400);
    std::fs::write(scratch.path().join("text"), &text).map_err(|e| e.to_string())?;
    let host = Command::new(&program)
        .arg("argument")
        .current_dir(scratch.path())
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("on the host: {e}"))?;
    let elf = std::fs::read(&program).map_err(|e| e.to_string())?;
    let run = Run::script("cd /tmp/work\n/bin/calls argument > /tmp/out\n")
        .add("/tmp/work/text", text)
        .add_program("/bin/calls", elf)
        .get("/tmp/out");
    let output = ctx.run(run)?;
    // The program ends by `abort`.
    output.expect_status(134)?;
    let found = String::from_utf8_lossy(output.file("/tmp/out")?).into_owned();
    let expected = String::from_utf8_lossy(&host.stdout).into_owned();
    // The first line is the program's name.
    let mut lines = found.lines().skip(1);
    let mut count = 0;
    for line in expected.lines().skip(1) {
        let other = lines.next().unwrap_or("(nothing)");
        if other != line {
            return Err(format!("'{other}' instead of '{line}'\n{}", output.text()));
        }
        count += 1;
    }
    ctx.note(format!("{count} lines agree"));
    Ok(())
}

/// The tests of `threads.c`.
const THREADS: &[&str] = &[
    "join",
    "conditions",
    "calls",
    "owners",
    "signals",
    "ends",
    "many",
    "compute",
];

/// A program with many threads prints the same here as on the host.
pub(crate) fn threads(ctx: &mut Ctx) -> Result<(), Failure> {
    agrees(ctx, "threads", THREADS)
}

/// Processes that are stopped and resumed, and the processes that are told.
pub(crate) fn jobs(ctx: &mut Ctx) -> Result<(), Failure> {
    agrees(ctx, "jobs", &["all"])
}

/// Changes of files, reported to the programs that watch them.
pub(crate) fn inotify(ctx: &mut Ctx) -> Result<(), Failure> {
    let ways = ["calls", "files", "selves", "lost", "waits", "many"];
    agrees(ctx, "inotify", &ways)
}

/// Traced programs, and their tracers.
pub(crate) fn ptrace(ctx: &mut Ctx) -> Result<(), Failure> {
    agrees(ctx, "ptrace", &["all"])
}

/// Files that are being executed cannot be written, and the other way round.
pub(crate) fn busy(ctx: &mut Ctx) -> Result<(), Failure> {
    agrees(ctx, "busy", &["all"])
}

/// System V IPC, and its lists.
pub(crate) fn sysv(ctx: &mut Ctx) -> Result<(), Failure> {
    agrees(ctx, "sysv", &["memory", "semaphores", "messages", "around"])
}

/// The commands for the host's `ipcmk`, `ipcs` and `ipcrm`, where no objects exist before.
const LISTS: &str = "\
export PATH=/usr/bin:/bin
exec 2>&1
ipcmk -M 5000; ipcmk -S 3 -p 0640; ipcmk -Q
ipcs
ipcs -s -i 0
ipcs -m -i 0
ipcs -u
ipcrm -m 0 -s 0
ipcs
ipcrm -s 0
ipcrm -s 32768
ipcrm -a
cat /proc/sysvipc/msg
ls /proc/sysvipc
";

/// The host's own programs for System V IPC print the same here as in a namespace of the host, which begins empty as
/// each tree does.
pub(crate) fn ipcs(ctx: &mut Ctx) -> Result<(), Failure> {
    let mut added = Vec::new();
    for program in ["ipcs", "ipcrm", "ipcmk"] {
        let Some(needed) = libraries(&format!("/usr/bin/{program}")) else {
            ctx.leave_out(format!("there is no {program}"));
            return Ok(());
        };
        added.extend(needed);
    }
    added.sort_unstable();
    added.dedup();
    let scratch = temp_dir().map_err(|error| error.message)?;
    let lists = scratch.path().join("lists");
    std::fs::write(&lists, LISTS).map_err(|e| e.to_string())?;
    let mut command = Command::new("unshare");
    let command = command.arg("-i").arg(busybox()).arg("sh").arg(&lists);
    let output = command.env("LC_ALL", "C").output();
    let Some(host) = output.ok().filter(|output| output.status.success()) else {
        ctx.leave_out("the host makes no namespace of IPC");
        return Ok(());
    };
    let script = "busybox sh /tmp/lists > /tmp/first\nbusybox sh /tmp/lists > /tmp/second\n";
    let mut run = Run::script(script).add("/tmp/lists", LISTS.as_bytes());
    for path in added {
        let bytes = std::fs::read(&path).map_err(|e| format!("{path}: {e}"))?;
        run = run.add_program(&path, bytes);
    }
    let run = run.get("/tmp/first").get("/tmp/second");
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    // Keys are random, times and process numbers differ, untouched memory is resident at most here, and the guest has
    // no user names.
    let plain = |text: &[u8]| -> Vec<String> {
        let text = String::from_utf8_lossy(text).replace("root", "0   ");
        let differs = ["time", "lpid=", "resident"];
        let lines = text.lines();
        let lines = lines.filter(|line| !differs.iter().any(|d| line.contains(d)));
        let word = |word: &str| match word.starts_with("0x") && word.len() == 10 {
            true => "KEY".to_string(),
            false => word.to_string(),
        };
        lines
            .map(|line| line.split(' ').map(word).collect())
            .collect()
    };
    let expected = plain(&host.stdout);
    for name in ["/tmp/first", "/tmp/second"] {
        let found = plain(output.file(name)?);
        if expected.len() < 40 || found != expected {
            return Err(format!(
                "they say\n{}\ninstead of\n{}\n{}",
                found.join("\n"),
                expected.join("\n"),
                output.text()
            ));
        }
    }
    ctx.note(format!("{} lines agree, twice", expected.len()));
    Ok(())
}

/// The commands for the host's own `strace` and `gdb`, for a program that `cc` has linked statically. Each writes to
/// /tmp/OUT.
const TRACERS: &[&[&str]] = &[
    &[
        "/usr/bin/strace",
        "-qq",
        "-e",
        "trace=chdir,exit_group",
        "-e",
        "signal=none",
        "-o",
        "/tmp/OUT",
        "/bin/busybox",
        "sh",
        "-c",
        "cd /none; cd /; exit 3",
    ],
    &[
        "/usr/bin/gdb",
        "-nx",
        "-batch",
        "-ex",
        "set logging file /tmp/OUT",
        "-ex",
        "set logging enabled on",
        "-ex",
        "break main",
        "-ex",
        "run child",
        "-ex",
        "x/3i $pc",
        "-ex",
        "stepi",
        "-ex",
        "stepi",
        "-ex",
        "print $pc",
        "-ex",
        "catch syscall exit_group",
        "-ex",
        "continue",
        "-ex",
        "print $orig_rax",
        "-ex",
        "continue",
        "/bin/ptrace",
    ],
];

/// `strace` and `gdb` themselves, with their libraries, print the same here as on the host.
pub(crate) fn tracers(ctx: &mut Ctx) -> Result<(), Failure> {
    let scratch = temp_dir().map_err(|error| error.message)?;
    let Some(program) = linux_program(ctx, scratch.path(), "ptrace") else {
        return Ok(());
    };
    let mut script = String::new();
    let mut added = Vec::new();
    let mut expected = Vec::new();
    for command in TRACERS {
        let Some(needed) = libraries(command[0]) else {
            ctx.leave_out(format!("there is no {}", command[0]));
            continue;
        };
        added.extend(needed);
        let number = expected.len();
        let out = scratch.path().join("out");
        let own = |word: &&str| {
            word.replace("/tmp/OUT", &out.display().to_string())
                .replace("/bin/ptrace", &program.display().to_string())
                .replace("/bin/busybox", &busybox().display().to_string())
        };
        let host: Vec<String> = command.iter().map(own).collect();
        Command::new(&host[0])
            .args(&host[1..])
            .output()
            .map_err(|e| format!("{}: {e}", host[0]))?;
        let found = std::fs::read_to_string(&out).map_err(|e| e.to_string())?;
        expected.push(found);
        let _ = std::fs::remove_file(&out);
        let words = command.iter().map(|word| {
            let word = word.replace("/tmp/OUT", &format!("/tmp/out.{number}"));
            format!("'{word}'")
        });
        let words: Vec<String> = words.collect();
        script.push_str(&format!("{} > /tmp/said.{number}\n", words.join(" ")));
    }
    added.sort_unstable();
    added.dedup();
    let elf = std::fs::read(&program).map_err(|e| e.to_string())?;
    let mut run = Run::script(script + "true\n").add_program("/bin/ptrace", elf);
    for path in added {
        let bytes = std::fs::read(&path).map_err(|e| format!("{path}: {e}"))?;
        run = run.add_program(&path, bytes);
    }
    for number in 0..expected.len() {
        run = run.get(&format!("/tmp/out.{number}"));
    }
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    for (number, expected) in expected.iter().enumerate() {
        let found = output.file(&format!("/tmp/out.{number}"))?;
        let found = String::from_utf8_lossy(found);
        // Process numbers differ.
        let plain = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.contains(" (process "));
            lines.map(String::from).collect()
        };
        if expected.is_empty() || plain(&found) != plain(expected) {
            return Err(format!(
                "command {number} says\n{found}\ninstead of\n{expected}\n{}",
                output.text()
            ));
        }
        ctx.note(format!("{} lines agree", expected.lines().count()));
    }
    Ok(())
}

/// A dynamic program of the host, and the libraries that it is linked with.
fn libraries(program: &str) -> Option<Vec<String>> {
    let said = Command::new("ldd").arg(program).output().ok()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let words = said.split_whitespace().filter(|w| w.starts_with('/'));
    let mut all: Vec<String> = words.map(String::from).collect();
    if all.is_empty() {
        return None;
    }
    all.push(program.to_string());
    // `gdb` contains Python, which ends it if the first of its modules is missing; and it reads the names of calls.
    let python = all.iter().find_map(|path| {
        let name = path.rsplit_once("/libpython")?.1;
        let end = name.find(".so")?;
        Some(format!("/usr/lib/python{}", &name[..end]))
    });
    if let Some(python) = python {
        // Directories, and whether to include their subdirectories.
        let mut directories = vec![(PathBuf::from("/usr/share/gdb"), true)];
        let own = ["", "/encodings", "/collections", "/importlib", "/re"];
        directories.extend(own.map(|name| (PathBuf::from(python.clone() + name), false)));
        while let Some((directory, deep)) = directories.pop() {
            for file in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                let path = file.path();
                if path.is_dir() {
                    directories.extend(deep.then_some((path, true)));
                } else if deep || path.extension().is_some_and(|e| e == "py") {
                    all.push(path.display().to_string());
                }
            }
        }
    }
    Some(all)
}

/// Calls that wait for many events at once, and what makes them ready.
pub(crate) fn events(ctx: &mut Ctx) -> Result<(), Failure> {
    agrees(ctx, "events", &["one", "many"])
}

/// Opening and executing files by the name of a descriptor.
pub(crate) fn names(ctx: &mut Ctx) -> Result<(), Failure> {
    agrees(ctx, "names", &["one", "many"])
}

/// Pseudo-terminals, and sessions that have one.
pub(crate) fn ptys(ctx: &mut Ctx) -> Result<(), Failure> {
    agrees(ctx, "ptys", &["one", "many"])
}

/// The files under `/proc` and `/dev`, of the process itself and of others.
pub(crate) fn proc(ctx: &mut Ctx) -> Result<(), Failure> {
    agrees(ctx, "proc", &["one", "many", "maps"])
}

/// Locks on files, within a process and between several.
pub(crate) fn locks(ctx: &mut Ctx) -> Result<(), Failure> {
    agrees(ctx, "locks", &["one", "many"])
}

/// The information about exceptions in signal frames.
pub(crate) fn faults(ctx: &mut Ctx) -> Result<(), Failure> {
    agrees(ctx, "faults", &["one", "memory"])
}

/// Limits of files, addresses, stacks and processor time, of a process itself and of others.
pub(crate) fn limits(ctx: &mut Ctx) -> Result<(), Failure> {
    agrees(ctx, "limits", &["one", "stack", "many"])
}

/// Memory that several processes map: anonymous, of files, of `memfd_create`.
pub(crate) fn shared(ctx: &mut Ctx) -> Result<(), Failure> {
    agrees(ctx, "shared", &["one", "many"])
}

/// Sockets, within a process and between several.
pub(crate) fn sockets(ctx: &mut Ctx) -> Result<(), Failure> {
    agrees(ctx, "sockets", &["one", "many"])
}

/// Calls that move many bytes, or change many areas; memory that is left behind in mapped files, and a tree with very
/// many open files that is saved or ended: the longest time that another thread or program waits, in instructions.
pub(crate) fn turns(ctx: &mut Ctx) -> Result<(), Failure> {
    const MOST: u64 = 10_000_000;
    // The programs that save, and the shell that asks for it, have time slices, too.
    const SLICES: u64 = 20_000_000;
    let scratch = temp_dir().map_err(|error| error.message)?;
    let Some(program) = linux_program(ctx, scratch.path(), "turns") else {
        return Ok(());
    };
    let program = std::fs::read(&program).map_err(|error| error.to_string())?;
    let script = "\
/bin/turns
/bin/turns crowd &
sleep 0.5
ps > /tmp/ps
/bin/turns watch 1000 &
sleep 0.1
trust sh -c 'set -- $(grep \"%.*crowd\" /tmp/ps); checkpoint linux:$3 /tmp/image'
wait %2
/bin/turns watch 200 &
kill %1
wait %2
ls -l /tmp/image
";
    let run = Run::script(script)
        .deterministic()
        .add_program("/bin/turns", program);
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let text = output.text();
    let mut calls = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, moved, "longest", longest, "in", "all", _] = words[..] else {
            continue;
        };
        let longest: u64 = longest.parse().map_err(|_| line.to_string())?;
        let most = match name {
            "watch" => MOST + SLICES,
            _ => MOST,
        };
        if moved.starts_with('-') || longest > most {
            return Err(format!("S1: {line}: at most {most}\n{text}"));
        }
        calls.push(format!("{name} {longest}"));
    }
    if calls.len() != 17 || !text.contains("/tmp/image\n") {
        return Err(text.to_string());
    }
    ctx.note(calls.join(", "));
    Ok(())
}

/// Kills a group of stopped processes at once, more than the personality ends in one turn.
pub(crate) fn stopped(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "busybox sh -c 'set -m; sleep 99 | sleep 99 | sleep 99 | sleep 99 | sleep 99 | sleep 99 & sleep 0.2; \
                  kill -STOP %1; sleep 0.2; kill -9 %1; wait %1; echo gone'\nps\n";
    let output = ctx.run(Run::script(script))?;
    output.expect_status(0)?;
    let text = output.text();
    match text.contains("gone\n") && !text.contains("sleep") {
        true => Ok(()),
        false => Err(text.to_string()),
    }
}

/// Busybox's web server and its clients talk over the loopback, also after the server was saved, killed and restored.
pub(crate) fn http(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
busybox httpd -f -p 127.0.0.1:8080 -h /tmp/work &
sleep 0.3
busybox wget -q -O /tmp/one http://127.0.0.1:8080/text
busybox wget -q -O /tmp/missing http://127.0.0.1:8080/missing
sleep 0.3
checkpoint %1 /tmp/image
kill %1
busybox wget -q -O /tmp/nobody http://127.0.0.1:8080/text
restore /tmp/image
busybox wget -q -O /tmp/two http://localhost:8080/text
kill %1
busybox nc -l -p 9000 > /tmp/three &
sleep 0.3
busybox nc 127.0.0.1 9000 < /tmp/work/text
wait
busybox nc -w 1 127.0.0.1 9001 < /tmp/work/text
busybox ping -c 1 10.9.9.9
ps
";
    let run = Run::script(script)
        .add("/tmp/work/text", text(3000))
        .add("/etc/hosts", b"127.0.0.1 localhost\n".to_vec())
        .get("/tmp/one")
        .get("/tmp/two")
        .get("/tmp/three");
    let output = ctx.run(run)?;
    for path in ["/tmp/one", "/tmp/two", "/tmp/three"] {
        if output.file(path)? != text(3000) {
            return Err(format!("{path} is another text\n{}", output.text()));
        }
    }
    for sentence in [
        "wget: server returned error: HTTP/1.1 404 Not Found\n",
        "wget: can't connect to remote host (127.0.0.1): Connection refused\n",
        "nc: can't connect to remote host (127.0.0.1): Connection refused\n",
    ] {
        if output.text().matches(sentence).count() != 1 {
            return Err(format!(
                "'{sentence}' is not there once:\n{}",
                output.text()
            ));
        }
    }
    Ok(())
}

/// How often a program is run on the host at most until it has printed the same twice.
const TRIES: usize = 5;

/// The output of a program on the host, for each of these arguments in turn, in a directory of its own with the same
/// text.
fn on_the_host(program: &Path, scratch: &Path, ways: &[&str]) -> Result<Vec<Vec<u8>>, Failure> {
    let directory = tempfile::tempdir_in(scratch).map_err(|e| e.to_string())?;
    std::fs::write(directory.path().join("text"), text(400)).map_err(|e| e.to_string())?;
    let run = |way: &&str| {
        let mut command = Command::new(program);
        let output = command.arg(way).current_dir(directory.path()).output();
        output.map(|output| output.stdout)
    };
    let printed: Result<_, _> = ways.iter().map(run).collect();
    printed.map_err(|e| format!("on the host: {e}"))
}

/// A C program prints the same here as on the host, for each of its arguments, and leaves no process.
///
/// Such programs wait for each other by short sleeps where Linux has no other way: on a busy host a process may come
/// too late, and the output is then not typical of Linux. So if the output here differs, the program is run on the
/// host again, and an output that the host has printed twice counts.
fn agrees(ctx: &mut Ctx, name: &str, ways: &[&str]) -> Result<(), Failure> {
    let scratch = temp_dir().map_err(|error| error.message)?;
    let Some(program) = linux_program(ctx, scratch.path(), name) else {
        return Ok(());
    };
    let host = || on_the_host(&program, scratch.path(), ways);
    let mut runs = vec![host()?];
    let mut script = String::from("cd /tmp/work\n");
    for way in ways {
        script.push_str(&format!("/bin/{name} {way} > /tmp/{way}\n"));
    }
    script.push_str("ps\n");
    let elf = std::fs::read(&program).map_err(|e| e.to_string())?;
    let mut run = Run::script(script)
        .add("/tmp/work/text", text(400))
        .add_program(&format!("/bin/{name}"), elf);
    for way in ways {
        run = run.get(&format!("/tmp/{way}"));
    }
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    for (number, way) in ways.iter().enumerate() {
        let found = output.file(&format!("/tmp/{way}"))?;
        if found == runs[0][number] {
            continue;
        }
        let expected = loop {
            if let Some(twice) = printed_twice(&runs, number) {
                break twice.to_vec();
            }
            if runs.len() == TRIES {
                return Err(format!(
                    "{name} {way} prints something else in each run on the host"
                ));
            }
            runs.push(host()?);
            ctx.note(format!(
                "{name} is run on the host again, since {way} differs"
            ));
        };
        if found != expected {
            return Err(format!(
                "{name} {way} prints\n{}\ninstead of\n{}\n{}",
                String::from_utf8_lossy(found),
                String::from_utf8_lossy(&expected),
                output.text()
            ));
        }
    }
    if output.text().contains('%') {
        return Err(format!("processes are left:\n{}", output.text()));
    }
    ctx.note(format!("{} ways agree", ways.len()));
    Ok(())
}

/// The output that two runs have printed for this argument.
fn printed_twice(runs: &[Vec<Vec<u8>>], way: usize) -> Option<&[u8]> {
    let mut printed = runs.iter().enumerate().map(|(n, run)| (n, &run[way]));
    let twice = printed.find(|(n, one)| runs[..*n].iter().any(|run| run[way] == **one));
    twice.map(|(_, one)| &one[..])
}

/// Programs of the host's own packages that use threads. Each has the path of its output as an argument.
const PARALLEL: &[&str] = &[
    "/usr/bin/sort --parallel=4 -n -o OUT /tmp/text",
    "/usr/bin/xz -T2 --block-size=100000 -1 -c /tmp/text",
];

/// Dynamic programs of the host with threads, with their libraries, print the same here as there.
pub(crate) fn parallel(ctx: &mut Ctx) -> Result<(), Failure> {
    let mut run = String::new();
    let mut added = Vec::new();
    let mut expected = Vec::new();
    let scratch = temp_dir().map_err(|error| error.message)?;
    let input = scratch.path().join("text");
    let out = scratch.path().join("out");
    std::fs::write(&input, text(20_000)).map_err(|e| e.to_string())?;
    for command in PARALLEL {
        let program = command.split(' ').next().unwrap_or_default();
        let libraries = match Command::new("ldd").arg(program).output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(error) => {
                ctx.leave_out(format!("ldd, which names what {program} needs: {error}"));
                continue;
            }
        };
        let needed: Vec<&str> = libraries
            .split_whitespace()
            .filter(|w| w.starts_with('/'))
            .collect();
        if needed.is_empty() {
            ctx.leave_out(format!("there is no {program}"));
            continue;
        }
        for path in needed.into_iter().chain([program]) {
            if !added.iter().any(|known| known == path) {
                added.push(path.to_string());
            }
        }
        let host = command
            .replace("/tmp/text", &input.display().to_string())
            .replace("OUT", &out.display().to_string());
        let mut words = host.split(' ');
        let output = Command::new(words.next().unwrap_or_default())
            .args(words)
            .output()
            .map_err(|e| format!("{host}: {e}"))?;
        let number = expected.len();
        if command.contains("OUT") {
            run.push_str(&command.replace("OUT", &format!("/tmp/out.{number}")));
            let printed = std::fs::read(&out).map_err(|e| e.to_string())?;
            expected.push((*command, printed));
        } else {
            run.push_str(&format!("{command} > /tmp/out.{number}"));
            expected.push((*command, output.stdout));
        }
        run.push('\n');
    }
    if expected.is_empty() {
        return Ok(());
    }
    let mut run = Run::script(run).add("/tmp/text", text(20_000));
    for path in added {
        let bytes = std::fs::read(&path).map_err(|e| format!("{path}: {e}"))?;
        run = run.add_program(&path, bytes);
    }
    for number in 0..expected.len() {
        run = run.get(&format!("/tmp/out.{number}"));
    }
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    for (number, (command, expected)) in expected.iter().enumerate() {
        if output.file(&format!("/tmp/out.{number}"))? != expected {
            return Err(format!("{command} differs\n{}", output.text()));
        }
    }
    Ok(())
}

/// Missing or broken programs are named in a message, and everything else goes on.
pub(crate) fn refusals(ctx: &mut Ctx) -> Result<(), Failure> {
    let busybox = std::fs::read(busybox()).map_err(|e| format!("busybox: {e}"))?;
    let mut corrupt = busybox.clone();
    // The size in the file of the first segment.
    corrupt[64 + 32 + 7] = 0x7f;
    let run = Run::script(
        "/tmp/short\n/tmp/corrupt\n/tmp/script\nbusybox nslookup -debug localhost 127.0.0.1 > /dev/null\n\
         busybox cat /tmp/short /tmp/none > /dev/null\n/tmp/fault\necho it goes on\n",
    )
    .add_program("/tmp/short", &busybox[..3000])
    .add_program("/tmp/corrupt", corrupt)
    .add_program("/tmp/script", b"#!/none/at/all\n".to_vec())
    // mov [0], eax
    .add_program("/tmp/fault", elf(b"\x89\x04\x25\0\0\0\0"));
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    let text = output.text();
    for sentence in [
        "/tmp/short: not an executable: it ends within a segment\n",
        "/tmp/corrupt: not an executable: a segment has impossible sizes\n",
        "/tmp/script: its interpreter cannot be used: /none/at/all: no such file or directory\n",
        "cat: can't open '/tmp/none': No such file or directory\n",
        "/tmp/fault: segmentation fault: access to 0x0 at 0x400078\n",
    ] {
        if text.matches(sentence).count() != 1 {
            return Err(format!("'{sentence}' is not there once:\n{text}"));
        }
    }
    if !text.ends_with("it goes on\n") {
        return Err(format!("it does not go on:\n{text}"));
    }
    Ok(())
}

/// A program that reads the console waits for it, can be stopped there, and loses no byte when it is saved there.
pub(crate) fn console(ctx: &mut Ctx) -> Result<(), Failure> {
    // The console echoes each line and `cat -n` writes it once more.
    let run = Run::interactive()
        .type_after("$ ", "busybox cat -n\r")
        .type_after("cat -n\n", "one\r")
        .type_after("1\tone\n", "\x1a")
        .type_after("[1] stopped", "checkpoint %1 /tmp/image\r")
        .type_after("$ ", "kill %1\r")
        .type_after("$ ", "restore /tmp/image\r")
        .type_after("$ ", "fg\r")
        .type_after("cat -n\n", "two\r")
        .type_after("2\ttwo\n", "\x04")
        .type_after("$ ", "exit 9\r");
    let output = ctx.run(run)?;
    output.expect_status(9)?;
    let text = output.text();
    for line in ["     1\tone\n", "     2\ttwo\n"] {
        if text.matches(line).count() != 1 {
            return Err(format!("{line:?} is not there once:\n{text}"));
        }
    }
    Ok(())
}

/// A Linux program that takes all memory is refused more or ended, and everything else goes on.
pub(crate) fn memory_runs_out(ctx: &mut Ctx) -> Result<(), Failure> {
    let run = Run::script(
        "busybox dd if=/dev/zero of=/dev/null bs=200M count=1\n\
         busybox awk 'BEGIN { s = \"xxxxxxxxxxxxxxxx\"; while (1) s = s s }'\n\
         busybox sha256sum /bin/busybox > /tmp/sum\nbusybox wc -c /tmp/sum\n",
    )
    .memory(96);
    let output = ctx.run(run)?;
    output.expect_status(0)?;
    output.expect_stdout("dd: out of memory\nawk: out of memory\n79 /tmp/sum\n")?;
    Ok(())
}

/// Random bytes differ in each read, in each boot, and in each of two programs that were restored from one image;
/// only on machines that count instructions are they equal.
pub(crate) fn random(ctx: &mut Ctx) -> Result<(), Failure> {
    let read = "busybox dd if=/dev/urandom of=/tmp/a bs=64 count=4\n\
                busybox dd if=/dev/random of=/tmp/b bs=64 count=4\n";
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for deterministic in [false, false, true, true] {
        let run = Run::script(read).get("/tmp/a").get("/tmp/b");
        let output = match deterministic {
            true => ctx.run(run.deterministic())?,
            false => ctx.run(run)?,
        };
        output.expect_status(0)?;
        for path in ["/tmp/a", "/tmp/b"] {
            let bytes = output.file(path)?;
            assert_eq!(bytes.len(), 256);
            seen.extend(bytes.chunks(64).map(<[u8]>::to_vec));
        }
    }
    let (rest, again) = seen.split_at(24);
    assert!(rest[16..] == *again, "a machine that counts instructions");
    let mut all = rest.to_vec();
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "twice");

    let twins = "\
busybox dd if=/dev/urandom of=/tmp/a bs=64 count=20000 &
until [ -s /tmp/a ]; do sleep 0.01; done
checkpoint %1 /tmp/image
kill %1
restore /tmp/image
wait
cp /tmp/a /tmp/one
restore /tmp/image
wait
";
    let run = Run::script(twins).get("/tmp/one").get("/tmp/a");
    let output = ctx.run(run)?;
    let (one, other) = (output.file("/tmp/one")?, output.file("/tmp/a")?);
    assert_eq!((one.len(), other.len()), (20_000 * 64, 20_000 * 64));
    let same = one
        .chunks(64)
        .zip(other.chunks(64))
        .take_while(|(a, b)| a == b);
    let common = same.count();
    assert!(
        (1..20_000).contains(&common),
        "{common} pieces before the image"
    );
    let mut later = one.chunks(64).zip(other.chunks(64)).skip(common);
    assert!(later.all(|(a, b)| a != b), "behind it");
    Ok(())
}

/// Programs of Debian packages print the same as on the host.
pub(crate) fn packages(ctx: &mut Ctx) -> Result<(), Failure> {
    ctx.packages()
}
