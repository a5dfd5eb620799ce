//! Scenarios of the shell: its language, its exit statuses, its jobs, and its line editor.

use super::elf;
use crate::scenario::{Ctx, Failure, Run};

/// Quotes, comments, redirections and lists have the same meaning as in other shells.
pub(crate) fn language(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = r#"
# a comment
echo 'single # quotes' "double \" quotes" back\ slash   # and another
echo one > /tmp/a; echo two >> /tmp/a
cat < /tmp/a
cat /tmp/a >> /tmp/b; cat /tmp/a >> /tmp/b
sort < /tmp/b > /tmp/c
cat /tmp/c
cd /tmp; pwd
echo relative > ./d; cat d
ls
cd /; cd -
cd d; cd -; cd -
mkdir e; touch -- -f e/g; cp -- -f -h; mv -- -h h; cmp -- -f h; rm -- -f h; cd e; rm -rf .. . ; cd -; ls e
sleep 0.0001m
rm e/g; rmdir -- e; ls
echo one \
  line "in two
 or \
three"
"#;
    let output = ctx.run(Run::script(script))?;
    output.expect_status(0)?.expect_stdout(
        "single # quotes double \" quotes back slash\none\ntwo\none\none\ntwo\ntwo\n/tmp\nrelative\na\nb\nc\nd\n\
         /tmp\ncd: d: not a directory\n/\n/tmp\n\
         rm: ..: '.', '..' and '/' are not removed\nrm: .: '.', '..' and '/' are not removed\n/tmp\ng\n\
         a\nb\nc\nd\none line in two\n or three\n",
    )?;
    Ok(())
}

/// Missing or wrong things are reported in a message, and the shell goes on.
pub(crate) fn refusals(ctx: &mut Ctx) -> Result<(), Failure> {
    let lines = [
        ("nonsense", "nonsense: not found"),
        ("/no/file", "/no/file: no such file or directory"),
        ("/tmp", "/tmp: is a directory"),
        ("/etc/script", "/etc/script: permission denied"),
        ("ls >", "shell: a file name is missing after '>'"),
        (
            "nothing-there | cat",
            "sh: eval: line 0: nothing-there: not found",
        ),
        ("cat < /no/file", "/no/file: no such file or directory"),
        ("echo > /no/file", "/no/file: no such file or directory"),
        ("echo > /tmp", "/tmp: is a directory"),
        ("cat /no/file", "cat: /no/file: no such file or directory"),
        ("kill", "usage: kill JOB..."),
        ("kill %4", "kill: %4: no such job"),
        ("wait %4", "wait: %4: no such job"),
        ("fg", "fg: there is no job"),
        ("checkpoint %1 /tmp/x", "checkpoint: %1: no such job"),
        ("sleep soon", "sleep: soon: not a number of seconds"),
        ("exit many", "exit: many: not a number from 0 to 255"),
    ];
    let script: String = lines.iter().map(|(line, _)| format!("{line}\n")).collect();
    let expected: String = lines
        .iter()
        .map(|(_, sentence)| format!("{sentence}\n"))
        .collect();
    let output = ctx.run(Run::script(script + "echo end\n"))?;
    output
        .expect_status(0)?
        .expect_stdout(&format!("{expected}end\n"))?;
    Ok(())
}

/// A POSIX shell runs what is beyond the shell's own language: each command as one job, with the state that earlier
/// ones have left.
pub(crate) fn posix(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = r#"
X=1; Y='a  b'
echo $X "$Y"
for f in /etc/pass* /etc/grou*; do echo $f; done
for i in 1 2
do
  echo loop $i
done
mkdir /tmp/d; cd /tmp/d && pwd
(cd /; pwd); pwd
cd .. && cd d/.. && echo $X | tr 1 2; pwd
ps | grep -c 'checkpoint$'
false && echo no || echo yes
false
echo status $?
sh -c 'exit 3' | cat; echo $?
sh -c 'exit 3' ; echo "$?"
cat <<END | tr a-z A-Z
here $X
END
export Z=3; env | grep '^Z='
busybox sh -c 'echo Z is $Z'
[ -f /nothing ] && A=1; echo condition $X
Q=$(echo "it's :)") # a comment's
echo "$Q"
> empty; [ -s empty ] || echo empty
echo first | { sleep 1; cat; } &
echo second | cat; wait
ps > listed 2> errors | wc -c; grep -c 'checkpoint$' listed; ls errors
(sleep 100 | cat) &
jobs
kill %1
jobs
if [ $X = 1 ]; then exit_status() { return $1; }; exit_status 4; fi
"#;
    let output = ctx.run(Run::script(script))?;
    let expected = [
        "1 a  b",
        "/etc/passwd",
        "/etc/group",
        "loop 1",
        "loop 2",
        "/tmp/d",
        "/",
        "/tmp/d",
        "2",
        "/tmp",
        "1",
        "yes",
        "status 1",
        "0",
        "3",
        "HERE 1",
        "Z=3",
        "Z is 3",
        "condition 1",
        "it's :)",
        "empty",
        "second",
        "first",
        "0",
        "1",
        "errors",
        "[1] running  (sleep 100 | cat)",
        "",
    ];
    output
        .expect_status(4)?
        .expect_stdout(&expected.join("\n"))?;
    Ok(())
}

/// The same at the console: commands of several lines, and jobs of several processes.
pub(crate) fn posix_at_the_console(ctx: &mut Ctx) -> Result<(), Failure> {
    let run = Run::interactive()
        .type_after("$ ", "for i in 1 2; do\r")
        .type_after("> ", "echo no $i; done\x03")
        .type_after("$ ", "for i in 1 2; do\r")
        .type_after("> ", "echo loop-$i; done\r")
        .type_after("loop-2\n", "")
        // A command that is stopped has no say in the directory, nor has what ran before `cd`.
        .type_after("$ ", "cd /tmp\r")
        .type_after("fermata:/tmp$ ", "sleep 100 | cat\r")
        .type_after("sleep 100 | cat\n", "\x1a")
        .type_after("[1] stopped  sleep 100 | cat\n", "")
        .type_after("fermata:/tmp$ ", "jobs; X=5\r")
        .type_after("[1] stopped  sleep 100 | cat\n", "fg\r")
        .type_after("sleep 100 | cat\n", "\x03")
        .type_after("$ ", "sleep 100 | cat &\r")
        .type_after("$ ", "wait; echo waited-$X\r")
        .type_after("waited-$X\n", "\x03")
        .type_after(
            "$ ",
            "exit_with() { return $1; }; ps | grep -c sleep; exit_with $X\r",
        )
        .type_after("0\n", "")
        .type_after("$ ", "(exit $X)\r")
        .type_after("$ ", "exit\r");
    let output = ctx.run(run)?;
    output.expect_status(5)?;
    let text = output.text();
    let was_run = text.contains("no 1") || text.contains("waited-5");
    match was_run || !text.contains("loop-1") {
        true => Err(format!("a line that was given up was run:\n{text}")),
        false => Ok(()),
    }
}

/// A Linux shell has job control of its own: Ctrl-C and Ctrl-Z go to its foreground group.
pub(crate) fn linux_shell_at_the_console(ctx: &mut Ctx) -> Result<(), Failure> {
    let run = Run::interactive()
        .type_after("$ ", "busybox sh\r")
        .type_after("# ", "echo go\"\"-1; sleep 100\r")
        .type_after("go-1", "\x03")
        .type_after("# ", "echo st-$?; sh -c 'echo go\"\"-2; exec sleep 100'\r")
        .type_after("st-130", "")
        .type_after("go-2", "\x1a")
        .type_after("Stopped", "")
        .type_after("# ", "hello from-sh\r")
        .type_after("hello, from-sh", "")
        // The settings of `stty`, a program of its own, stay for the next reader.
        .type_after("# ", "stty -echo; echo say\"\"-it; read x; stty echo; echo got-$x\r")
        .type_after("say-it", "sec-ret\r")
        .type_after("got-sec-ret", "")
        .type_after("# ", "stty -icanon min 1; echo a\"\"-key; dd bs=1 count=1 2> /dev/null; stty icanon; echo -end\r")
        .type_after("a-key", "k")
        .type_after("k-end", "")
        .type_after("# ", "sh -c 'setsid head -n 1; :'\r")
        .type_after("setsid head -n 1; :'", "of another session\r")
        .type_after("of another session\nof another session\n", "")
        .type_after("# ", "exit 6\r")
        .type_after("You have stopped jobs", "")
        .type_after("# ", "exit 6\r")
        .type_after("$ ", "exit\r");
    let output = ctx.run(run)?;
    output.expect_status(6)?;
    let text = output.text();
    match text.matches("sec-ret").count() {
        1 => Ok(()),
        _ => Err(format!("what nobody is to see was shown:\n{text}")),
    }
}

/// Linux programs start native ones, which get exactly the power that the line was given.
pub(crate) fn native_from_linux(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = r#"
sh -c 'hello there; tools false; echo $?; tools exit-nowhere 2> /dev/null; echo $?'
hello piped | tr a-z A-Z
sh -c 'echo carried | tools cat | tr a-z A-Z; tools cat < /etc/group | wc -l'
sh -c 'tools echo one > /tmp/f; tools echo two >> /tmp/f; cat /tmp/f'
cd /tmp; sh -c 'cd /etc; tools ls' | grep passwd
ls /run | wc -l
tools sleep 100 &
ps | grep 'sleep 100$' | tr -s ' ' | cut -d' ' -f3 > /tmp/n
checkpoint native:$(cat /tmp/n) /tmp/image; echo untrusted $?
trust checkpoint native:$(cat /tmp/n) /tmp/image && echo trusted
kill %1
trust restore /tmp/image | sed 's/:[0-9]*//'
ps | grep -c 'tools sleep 100$'
sh -c 'tools sleep 200 & sleep 0.3; kill $!; wait $!; echo $?'
sh -c 'exec tools sleep 300' &
sleep 0.2
checkpoint %1 /tmp/stands
kill %1
ps | grep -c 'sleep [23]00$'
sh -c 'for i in $(seq 20); do tools sleep 1 & p="$p $!"; done; for q in $p; do wait $q || echo refused; done 2> /dev/null' 2> /dev/null
"#;
    // Twenty exist at the same time only if the machine's time is not the host's.
    let output = ctx.run(Run::script(script).deterministic())?;
    let lines = [
        "hello, there",
        "1",
        "2",
        "HELLO, PIPED",
        "CARRIED",
        "1",
        "one",
        "two",
        "passwd",
        // Nothing is left of what was carried, and the shell keeps no files.
        "0",
        "untrusted 1",
        "trusted",
        "native  tools sleep 100",
        "1",
        "143",
        "0",
    ];
    let text = output.text();
    let mut rest = text.lines();
    for line in lines {
        if !rest.any(|shown| shown == line) {
            return Err(format!("'{line}' is missing:\n{text}"));
        }
    }
    let refused = rest.filter(|line| *line == "refused").count();
    match refused {
        4 => Ok(()),
        _ => Err(format!(
            "{refused} of 20 native programs were refused:\n{text}"
        )),
    }
}

/// The status of a script is that of `exit`, or of its last command.
pub(crate) fn statuses(ctx: &mut Ctx) -> Result<(), Failure> {
    // More than a command may have: no line of it is taken for a command.
    let line = format!("exit 0 # {}\n", "x".repeat(1000));
    let long = format!("cat <<END > /tmp/long\n{}END\n", line.repeat(70));
    for (script, status) in [
        ("nonsense\n", 127),
        ("/tmp\nexit", 126),
        ("kill", 2),
        ("false; # nothing", 1),
        ("exit 200; echo unseen", 200),
        (long.as_str(), 2),
        ("if ! false; then exit 9; fi\necho unseen; true", 9),
        (
            "false | true || exit 8\nX=1 || exit 7\n(exit 6); sh -c 'exit 5' $X",
            5,
        ),
    ] {
        ctx.run(Run::script(script))?.expect_status(status)?;
    }
    Ok(())
}

/// Jobs have the lowest free number, can be waited for and killed, and are gone afterwards.
pub(crate) fn jobs(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
sleep 100 &
sleep 100 &
jobs
kill %1
kill %1
sleep 0.3 &
jobs
wait %1
kill 2
wait
jobs
sleep 0.1 &
wait %1
echo over
false &
wait %1
";
    // By the host's clock a job that sleeps for a moment could end before it is examined.
    let output = ctx.run(Run::script(script).deterministic())?;
    output.expect_status(1)?;
    output.expect_stdout(
        "[1] running  sleep 100\n[2] running  sleep 100\nkill: %1: the job has ended\n\
         [1] running  sleep 0.3\n[2] running  sleep 100\nover\n",
    )?;
    Ok(())
}

/// Ctrl-C ends the command in the foreground, Ctrl-Z stops it, and the line can be edited.
pub(crate) fn at_the_console(ctx: &mut Ctx) -> Result<(), Failure> {
    let run = Run::interactive()
        .type_after("$ ", "sleep 100\r")
        .type_after("sleep 100\n", "\x03")
        .type_after("$ ", "sleep 100\r")
        .type_after("sleep 100\n", "\x1a")
        .type_after("[1] stopped  sleep 100\n", "jobs\r")
        .type_after("[1] stopped  sleep 100\n", "kill %1\r")
        .type_after("$ ", "cat\r")
        .type_after("cat\n", "helo\x7flo\r")
        .type_after("hello\n", "\x04")
        .type_after("$ ", "ecoh\x02\x02\x04\x05o\x7f\x7fho lin\x01\x05e\r")
        .type_after("line\n", "\x1b[A\x1b[A\x1b[B\x0b\x15exit 5\r");
    let output = ctx.run(run)?;
    output.expect_status(5)?;
    let text = output.text();
    if !text.contains("^C\n") || !text.contains("^Z\n") {
        return Err(format!("Ctrl-C and Ctrl-Z are not shown:\n{text}"));
    }
    Ok(())
}

/// A program that takes all memory for its files is refused more, and everything else goes on.
pub(crate) fn memory_runs_out(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
busybox dd if=/bin/busybox of=/tmp/one
cat /tmp/one /tmp/one /tmp/one /tmp/one /tmp/one /tmp/one /tmp/one /tmp/one > /tmp/eight
cat /tmp/eight /tmp/eight /tmp/eight /tmp/eight /tmp/eight /tmp/eight /tmp/eight > /tmp/all
echo it goes on
rm /tmp/all
cat /tmp/eight > /tmp/again
cmp /tmp/eight /tmp/again
";
    let output = ctx.run(Run::script(script).memory(152))?;
    output.expect_status(0)?;
    let text = output.text();
    if !text.contains("out of memory\n") || !text.ends_with("it goes on\n") {
        return Err(format!("running out of memory looks like\n{text}"));
    }
    Ok(())
}

/// Between `kill` and `restore` nothing of a program exists: `ps` shows neither its process nor any additional kernel
/// object or memory.
pub(crate) fn nothing_remains(ctx: &mut Ctx) -> Result<(), Failure> {
    let round = "\
sort /bin/busybox > /tmp/sorted &
sleep 0.02
checkpoint %1 /tmp/image
kill %1
ps > /tmp/killed
restore /tmp/image
ps > /tmp/restored
wait %1
ps > /tmp/ended
";
    // In the first round servers allocate memory that they keep.
    let output = ctx.run(
        Run::script(round.repeat(2))
            .get("/tmp/killed")
            .get("/tmp/restored")
            .get("/tmp/ended"),
    )?;
    output.expect_status(0)?.expect_stdout("")?;
    let text = |path: &str| output.file(path).map(String::from_utf8_lossy);
    let (killed, restored, ended) = (
        text("/tmp/killed")?,
        text("/tmp/restored")?,
        text("/tmp/ended")?,
    );
    let objects = |text: &str| -> Option<u32> {
        let line = text
            .lines()
            .find(|line| line.contains(" kernel objects;"))?;
        line.split(' ').next()?.parse().ok()
    };
    ctx.note(format!(
        "kernel objects: {:?} after kill, {:?} after restore, {:?} at the end",
        objects(&killed),
        objects(&restored),
        objects(&ended)
    ));
    assert!(!killed.contains("sort /bin/busybox"), "{killed}");
    assert!(restored.contains("sort /bin/busybox"), "{restored}");
    assert!(objects(&killed).is_some());
    assert_eq!(objects(&killed), objects(&ended), "{killed}\n{ended}");
    assert!(objects(&restored) > objects(&killed), "{restored}");
    Ok(())
}

/// Programs that were put into the guest run by their paths; broken or crashing ones are named, and everything else
/// goes on.
pub(crate) fn programs(ctx: &mut Ctx) -> Result<(), Failure> {
    // mov edi, 42; mov eax, 60 (exit); syscall
    let exit = elf(b"\xbf\x2a\0\0\0\xb8\x3c\0\0\0\x0f\x05");
    let mut broken = exit.clone();
    broken[64 + 32..64 + 40].fill(0xff);
    let script = "\
/tmp/x/crash
/tmp/x/broken
/tmp/x/short
/tmp/x/text
cd /tmp/x; ./crash &
wait %1
./exit
";
    let run = Run::script(script)
        .add_program("/tmp/x/crash", elf(b"\x0f\x0b"))
        .add_program("/tmp/x/short", &exit[..100])
        .add_program("/tmp/x/broken", broken)
        .add_program("/tmp/x/text", *b"no program\n")
        .add_program("/tmp/x/exit", exit);
    let output = ctx.run(run)?;
    output.expect_status(42)?;
    let text = output.text();
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        "/tmp/x/crash: illegal instruction",
        "/tmp/x/broken: not an executable: ",
        "/tmp/x/short: not an executable: ",
        "/tmp/x/text: not a program for this machine",
        "./crash: illegal instruction",
    ];
    let fits = lines.len() == expected.len()
        && lines
            .iter()
            .zip(expected)
            .all(|(line, start)| line.starts_with(start));
    if fits {
        return Ok(());
    }
    Err(format!("the console holds\n{text}"))
}

/// A program in the script reads the console's input from a pipe, byte for byte.
pub(crate) fn console_input(ctx: &mut Ctx) -> Result<(), Failure> {
    let text = "first\r\nsecond\x7f\x15 line\nlast without end";
    let run = Run::script("busybox cat > /tmp/linux\ncat > /tmp/native\n")
        .type_after("", &format!("{text}\x04\x04{text}\x04\x04"))
        .get("/tmp/linux")
        .get("/tmp/native");
    let output = ctx.run(run)?;
    output.expect_status(0)?.expect_stdout("")?;
    for path in ["/tmp/linux", "/tmp/native"] {
        assert_eq!(String::from_utf8_lossy(output.file(path)?), text, "{path}");
    }
    Ok(())
}
