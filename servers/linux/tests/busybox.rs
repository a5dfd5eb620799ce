//! Debian's busybox and a C program, run against the emulation and against Linux: both must agree.
//!
//! These tests need ptrace and the busybox that `./fermata` fetches; where either is missing they
//! say so and pass.

// The tests are all there is; without them this is an empty program.
#![cfg_attr(not(test), allow(dead_code, unused_imports))]

mod tracer;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use abi::Registers;
use personality::emulate::Wake;
use personality::number as nr;
use personality::system::Key;
use services::process::Status;
use tracer::{Ended, Observer, Process, Quiet, Stream, World};

/// The path of busybox; `None`, with a message, where it cannot be run.
fn busybox() -> Option<PathBuf> {
    if !tracer::available() {
        println!("left out: processes cannot be traced here");
        return None;
    }
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/downloads/busybox");
    let named = std::env::var_os("FERMATA_BUSYBOX").map(PathBuf::from);
    let found = named
        .into_iter()
        .chain([fetched])
        .find(|path| path.exists());
    if found.is_none() {
        println!("left out: there is no busybox in target/downloads yet");
    }
    found
}

/// A pseudo-random text of numbered lines.
fn text(lines: u32) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut out = Vec::new();
    for line in 0..lines {
        let number = random.u32(..1 << 20);
        out.extend_from_slice(
            format!("{number} line {line} of words {}\n", number % 97).as_bytes(),
        );
    }
    out
}

/// Commands that list directories as they find them.
const WALKERS: &[&str] = &["find", "du"];

const DIRECTORY: &str = "work";

/// The same files on both sides: in a temporary directory of the machine, and in the emulated world.
struct Sides {
    here: PathBuf,
    busybox: PathBuf,
    world: World,
}

impl Sides {
    fn new(busybox: &Path, name: &str) -> Self {
        let here = std::env::temp_dir().join(format!("fermata-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&here);
        std::fs::create_dir_all(here.join(DIRECTORY)).unwrap();
        let mut world = World::new();
        world.add_directory(here.join(DIRECTORY).to_str().unwrap());
        world.add_directory("/bin");
        world.add_directory("/tmp");
        world.add_directory("/etc");
        for name in ["/etc/passwd", "/etc/group"] {
            world.add(name, &std::fs::read(name).unwrap_or_default(), 0o644);
        }
        world.add("/bin/busybox", &std::fs::read(busybox).unwrap(), 0o755);
        Sides {
            here,
            busybox: busybox.to_path_buf(),
            world,
        }
    }

    fn add(&mut self, name: &str, contents: &[u8]) {
        let path = self.here.join(DIRECTORY).join(name);
        std::fs::write(&path, contents).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(time)
            .unwrap();
        let name = path.to_str().unwrap();
        self.world.add(name, contents, 0o644);
        let ino = self.world.files.borrow_mut().stat(name, true).unwrap().ino;
        let nanoseconds = 1_000_000_000 * 1_000_000_000;
        self.world
            .files
            .borrow_mut()
            .utimens(ino, nanoseconds, nanoseconds)
            .unwrap();
    }

    fn cwd(&self) -> String {
        self.here.join(DIRECTORY).to_str().unwrap().to_string()
    }

    /// Runs a command on Linux: output, errors, status.
    fn there(&self, args: &[&str], input: &str) -> (Vec<u8>, Vec<u8>, i32) {
        let stdin = std::fs::File::open(self.here.join(DIRECTORY).join(input)).unwrap();
        use std::os::unix::process::CommandExt;
        let output = Command::new(&self.busybox)
            .arg0(args[0])
            .args(&args[1..])
            .current_dir(self.cwd())
            .env_clear()
            .env("PATH", "/bin")
            .env("TZ", "UTC0")
            .stdin(Stdio::from(stdin))
            .output()
            .unwrap();
        (
            output.stdout,
            output.stderr,
            output.status.code().unwrap_or(-1),
        )
    }

    /// Runs a command in the emulation: output, errors, status, and the result of the run.
    fn emulated(
        &mut self,
        args: &[&str],
        input: &str,
        observer: &mut dyn Observer,
    ) -> (Vec<u8>, Vec<u8>, i32, Ended) {
        let input: &'static str = format!("{}/{input}", self.cwd()).leak();
        let streams = [
            Stream::File(input),
            Stream::File("/out"),
            Stream::File("/err"),
        ];
        let cwd = self.cwd();
        let (process, registers) =
            tracer::start(&mut self.world, "/bin/busybox", args, &cwd, streams).unwrap();
        let ended = tracer::run(&mut self.world, process, registers, observer);
        let status = match ended.status {
            Status::Exited(status) => i32::from(status),
            _ => -1,
        };
        let out = self.world.contents("/out").unwrap();
        let err = self.world.contents("/err").unwrap();
        (out, err, status, ended)
    }

    /// Runs the command on both sides and compares everything.
    fn agree(
        &mut self,
        args: &[&str],
        input: &str,
        observer: &mut dyn Observer,
    ) -> Result<Ended, String> {
        let mut expected = self.there(args, input);
        let (mut out, mut err, status, ended) = self.emulated(args, input, observer);
        if WALKERS.contains(&args[0]) || args.contains(&"-r") {
            // The order of a directory's entries is the file system's own.
            for bytes in [&mut out, &mut err, &mut expected.0, &mut expected.1] {
                let mut lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
                lines.sort();
                *bytes = lines.concat();
            }
        }
        let show =
            |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned();
        if (&out, &err, status) != (&expected.0, &expected.1, expected.2) {
            return Err(format!(
                "{args:?} < {input}\n  Linux: status {}\n{}{}\n  Fermata: status {status}\n{}{}\n{:?}",
                expected.2,
                show(&expected.0),
                show(&expected.1),
                show(&out),
                show(&err),
                self.world.log,
            ));
        }
        Ok(ended)
    }

    /// Compares all files of the directory.
    fn files_agree(&mut self) {
        let mut stack = vec![self.here.join(DIRECTORY)];
        while let Some(directory) = stack.pop() {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(&directory).unwrap() {
                let entry = entry.unwrap();
                let path = entry.path();
                names.push(entry.file_name().into_string().unwrap());
                let kind = entry.file_type().unwrap();
                let name = path.to_str().unwrap();
                if kind.is_dir() {
                    stack.push(path);
                } else if kind.is_symlink() {
                    let target = self.world.files.borrow_mut().readlink(name).unwrap();
                    assert_eq!(
                        Path::new(&target),
                        std::fs::read_link(&path).unwrap(),
                        "{name}"
                    );
                } else {
                    let expected = std::fs::read(&path).unwrap();
                    let found = self.world.contents(name);
                    assert!(found.as_deref() == Some(&expected[..]), "{name} differs");
                    use std::os::unix::fs::PermissionsExt;
                    let mode = entry.metadata().unwrap().permissions().mode();
                    assert_eq!(
                        self.world
                            .files
                            .borrow_mut()
                            .stat(name, false)
                            .unwrap()
                            .mode,
                        mode,
                        "{name}"
                    );
                }
            }
            let ino = self
                .world
                .files
                .borrow_mut()
                .stat(directory.to_str().unwrap(), true)
                .unwrap()
                .ino;
            let mut found = Vec::new();
            let mut cookie = 0;
            loop {
                let listed = self.world.files.borrow_mut().read_dir(ino, cookie).unwrap();
                let (entries, next) = services::fs::entries(&listed).unwrap();
                if entries.is_empty() {
                    break;
                }
                cookie = next;
                found.extend(
                    entries
                        .into_iter()
                        .map(|e| e.name)
                        .filter(|n| n != "." && n != ".."),
                );
            }
            names.sort();
            found.sort();
            assert_eq!(names, found, "{}", directory.display());
        }
    }
}

impl Drop for Sides {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.here);
    }
}

/// Words of a command, separated by blanks; single quotes hold blanks together.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    let mut quote_seen = false;
    for c in line.chars() {
        match c {
            '\'' => (quoted, quote_seen) = (!quoted, true),
            ' ' if !quoted => {
                if !words.last().unwrap().is_empty() || quote_seen {
                    words.push(String::new());
                }
                quote_seen = false;
            }
            c => words.last_mut().unwrap().push(c),
        }
    }
    words
}

/// Commands whose output, errors, status and effect on files must be the same. `< file` at the end
/// names the input.
const COMMANDS: &[&str] = &[
    "echo hello world",
    "echo -n no newline",
    "echo -e a\\tb",
    "printf '%05d|%s|%x\\n' 42 abc 255",
    "true",
    "false",
    "seq 1 20",
    "seq 10 -3 -5",
    "cat small",
    "cat small text small",
    "cat -n small",
    "cat missing",
    "cat < text",
    "cat .",
    "head -n 3 text",
    "head -c 100 text",
    "tail -n 3 text",
    "tail -c 50 text",
    "wc text",
    "wc -l text small",
    "wc < text",
    "sort text",
    "sort -n text",
    "sort -rn -k 4 text",
    "sort -u small",
    "sort -o sorted text",
    "sort -t ' ' -k 3,3n text",
    "uniq small",
    "uniq -c small",
    "grep 7 text",
    "grep -c line text",
    "grep -v -n line text",
    "grep -i 'LINE 1[0-9] ' text",
    "grep -E '^(1|2)+' text",
    "grep -r hello .",
    "grep -l hello small text",
    "grep nothing-at-all text",
    "grep x missing",
    "sed s/line/LINE/ text",
    "sed -n 5,10p text",
    "sed -e '/9/d' -e 's/\\([0-9]*\\)/<\\1>/' text",
    "sed -i s/hello/goodbye/ copied",
    "sed '$!N;s/\\n/ /' small",
    "awk '{ s += $1 } END { print s }' text",
    "awk -F ' ' '$1 % 2 == 0 { n++ } END { printf \"%d %s\\n\", n, NR }' text",
    "awk '{ a[$NF]++ } END { for (k in a) print k, a[k] }' text",
    "awk 'BEGIN { while ((getline line < \"small\") > 0) print toupper(line) }'",
    "awk '{ print > \"awk.\" (NR % 3) }' small",
    "awk 'BEGIN { printf \"%.3f %e %g\\n\", exp(1), atan2(0,-1), 1/3 }'",
    "sha256sum text small",
    "sha512sum text",
    "md5sum < text",
    "sha1sum missing",
    "cksum text",
    "gzip -k -9 text",
    "gzip -c text",
    "gzip -d -c text.gz",
    "gunzip -t text.gz",
    "gunzip -f -k text.gz",
    "gzip small2",
    "gunzip small2.gz",
    "gunzip small",
    "bzip2 -k small",
    "bunzip2 -c small.bz2",
    "touch -d '2021-01-02 03:04:05' small text",
    "tar cf all.tar small text",
    "tar tf all.tar",
    "mkdir -p out/deep/er",
    "mkdir out",
    "mkdir a/b/c",
    "tar xf all.tar -C out",
    "tar xvf all.tar -C out small",
    "tar xf small",
    "cmp small out/small",
    "cmp small text",
    "diff small text",
    "diff small out/small",
    "cp text copy",
    "cp text small out/deep",
    "cp -r out out2",
    "cp missing x",
    "mv copy moved",
    "mv moved out/deep",
    "mv missing x",
    "rm out/deep/moved",
    "rm missing",
    "rm -f missing",
    "rm -r out2",
    "rm out",
    "rmdir out",
    "rmdir out/deep/er",
    "ln -s small link",
    "ln small hard",
    "ln -s nowhere dangling",
    "ln small hard",
    "ls link",
    "ls -1",
    "ls -a out",
    "ls -R",
    "ls -1F",
    "ls missing",
    "ls -l missing small",
    "readlink link",
    "readlink -f link",
    "realpath out/../small",
    "cat link",
    "cat dangling",
    "find . -name 's*'",
    "find . -type d",
    "find . -type f -size +1",
    "find missing",
    "touch new",
    "touch -d '2020-02-03 04:05:06' new",
    "stat -c '%n %s %f %h %Y' new",
    "ls -l -e new",
    "chmod 640 new",
    "chmod u+x,go-r new",
    "chmod 600 missing",
    "stat -c '%a %A' new",
    "truncate -s 5000 new",
    "wc -c new",
    "dd if=text of=piece bs=100 count=3 skip=2",
    "dd if=text of=piece bs=50 seek=3 count=1 conv=notrunc",
    "dd if=/dev/zero of=zeros bs=1k count=3",
    "od -c small",
    "od -A x -t x1 piece",
    "hexdump -C piece",
    "tr a-z A-Z < small",
    "tr -d aeiou < text",
    "cut -d ' ' -f 1,3 text",
    "cut -c 1-5 text",
    "tee teed < small",
    "tee -a teed < small",
    "tac small",
    "rev small",
    "nl small",
    "fold -w 10 small",
    "expand small",
    "paste small small",
    "comm sorted sorted",
    "split -l 100 text part.",
    "basename /a/b.c .c",
    "dirname /a/b.c",
    "pwd",
    "env",
    "expr 6 * 7",
    "test -f small",
    "test -d small",
    "test -x small",
    "test small -nt missing",
    "id -u",
    "date -u -d @1234567890 +%Y-%m-%dT%H:%M:%S",
    "sleep 0.25",
    "usleep 1000",
    "base64 small",
    "strings text",
    "xxd piece",
    "which busybox-is-not-here",
    "mktemp -u /tmp/fixed",
    "du -a missing",
    "cpio -t < small",
    "install -m 700 small installed",
    "uuencode small small",
    "factor 123456",
    "cal 2 2024",
    "yes-is-no-applet",
    "sort missing",
    "wc missing small",
    "dd if=missing",
    "rm -r out",
    "find . -name 'part.*' -delete",
    "sh -c 'echo one; x=2; echo $x > shell; test -f shell && echo there; cd out2 || pwd'",
    "sh -c 'i=0; while [ $i -lt 10 ]; do i=$((i+1)); echo $i; done > loop; exit 3'",
    "sh -c 'read a b; echo $b; kill -TERM $$; echo not here' < small",
    "sh -c 'trap \"echo caught\" USR1; kill -USR1 $$; echo after'",
    "sh -c 'umask; umask 077; echo x > private'",
    "sh -c 'exec 3< small; read x <&3; echo $x; exec 3<&-; exec cat text'",
];

#[test]
fn applets_agree_with_linux() {
    applets_agree(false);
}

/// The same when the file system answers nothing at once, so that a call is made again for each request that it makes.
#[test]
fn calls_that_wait_for_a_file_system_agree_with_linux() {
    applets_agree(true);
}

fn applets_agree(is_late: bool) {
    let Some(busybox) = busybox() else { return };
    let mut sides = Sides::new(&busybox, if is_late { "late" } else { "agree" });
    sides.world.is_late = is_late;
    let small = b"hello\nhello\nthere\nfriend\nhello\n";
    for name in ["small", "small2", "copied"] {
        sides.add(name, small);
    }
    sides.add("text", &text(300));
    sides.add("empty", b"");
    let mut seen = std::collections::BTreeMap::new();
    let mut differences = Vec::new();
    let only = std::env::var("FERMATA_ONLY").unwrap_or_default();
    for command in COMMANDS.iter().filter(|c| c.contains(&only)) {
        let (line, input) = match command.rsplit_once(" < ") {
            Some((line, input)) if input.bytes().all(|b| b.is_ascii_lowercase()) => (line, input),
            _ => (*command, "empty"),
        };
        let args = words(line);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        match sides.agree(&args, input, &mut Quiet) {
            Ok(ended) => {
                for (number, count) in ended.seen {
                    *seen.entry(nr::name(number).unwrap_or("?")).or_insert(0) += count;
                }
            }
            Err(difference) => differences.push(difference),
        }
        let log = core::mem::take(&mut sides.world.log);
        if !log.iter().all(|l| l.ends_with(": terminated")) {
            differences.push(format!("{command}: {log:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    if only.is_empty() {
        sides.files_agree();
    }
    println!("calls made: {seen:?}");
}

/// Saves the process at every `every`th call, and goes on with the restored one.
struct Saver {
    every: u64,
    count: u64,
    saved: u64,
}

impl Observer for Saver {
    fn before(&mut self, world: &mut World, process: &mut Process, _registers: &Registers) {
        self.count += 1;
        if self.count.is_multiple_of(self.every) {
            tracer::replace(world, process);
            self.saved += 1;
        }
    }
}

#[test]
fn processes_survive_saving_at_every_call() {
    let Some(busybox) = busybox() else { return };
    let mut sides = Sides::new(&busybox, "save");
    sides.add("text", &text(2000));
    sides.add("empty", b"");
    let commands: &[&[&str]] = &[
        &["gzip", "-9", "-c", "text"],
        &["sha256sum", "text"],
        &["sort", "text"],
        &[
            "awk",
            "{ s += $1; print s, NR > \"sums\" } END { print s }",
            "text",
        ],
        &["tar", "cf", "all.tar", "text", "empty"],
        &["ls", "-R", "."],
        &["sed", "-i", "s/line/LINE/", "text"],
        &["rm", "-r", "."],
    ];
    for args in commands {
        let mut saver = Saver {
            every: 1,
            count: 0,
            saved: 0,
        };
        sides.agree(args, "empty", &mut saver).unwrap();
        assert!(saver.saved > 5, "{args:?}: {}", saver.saved);
        sides.files_agree();
    }
}

/// Lets 4 of 10 seconds of a sleep pass, saves, and goes on with another clock.
struct Sleeper {
    parks: u32,
}

impl Observer for Sleeper {
    fn before(&mut self, world: &mut World, process: &mut Process, registers: &Registers) {
        if registers.rax == nr::clock_nanosleep && self.parks == 1 {
            let asleep_until = process.task.wait.unwrap().deadline.unwrap();
            // Restored on a machine whose clock is an hour ahead.
            let Process { task, system } = process;
            let saved = tracer::save(task, system, world).unwrap();
            let own_now = task.now(world);
            task.close_files(system, world);
            world.now = 3_600_000_000_000;
            let offset = own_now.wrapping_sub(world.now);
            *process = tracer::adopt(world, &saved, offset);
            let left = asleep_until - process.task.now(world);
            assert!((5_990_000_000..=6_000_000_000).contains(&left), "{left}");
        }
    }

    fn parked(&mut self, world: &mut World, process: &Process, wake: Wake) {
        self.parks += 1;
        match self.parks {
            1 => world.now += 4_000_000_000,
            _ => {
                world.now = wake
                    .deadline
                    .unwrap()
                    .wrapping_sub(process.task.clock_offset)
            }
        }
    }
}

#[test]
fn a_sleep_goes_on_where_it_was() {
    let Some(busybox) = busybox() else { return };
    let mut sides = Sides::new(&busybox, "sleep");
    sides.add("empty", b"");
    let mut sleeper = Sleeper { parks: 0 };
    let (_, _, status, ended) = sides.emulated(&["sleep", "10"], "empty", &mut sleeper);
    assert_eq!((status, ended.parks, sleeper.parks), (0, 2, 2));
    // On the new machine an hour and six seconds have passed.
    let now = sides.world.now;
    assert!(
        (3_605_900_000_000..=3_606_100_000_000).contains(&now),
        "{now}"
    );
}

/// A console that gives input late and takes little output at a time, and a process that is saved at each call.
struct Terminal {
    lines: Vec<&'static [u8]>,
}

impl Observer for Terminal {
    fn before(&mut self, world: &mut World, process: &mut Process, _registers: &Registers) {
        tracer::replace(world, process);
    }

    fn parked(&mut self, world: &mut World, _process: &Process, wake: Wake) {
        assert!(wake.keys.contains(&Key::Console));
        if world.console_room == 0 {
            world.console_room = 3;
        } else if self.lines.is_empty() {
            world.console_ends = true;
        } else {
            world.console_in.extend(self.lines.remove(0));
        }
    }
}

#[test]
fn console_bytes_are_neither_lost_nor_doubled() {
    let Some(busybox) = busybox() else { return };
    let mut sides = Sides::new(&busybox, "console");
    let world = &mut sides.world;
    world.console_ends = false;
    world.console_room = 5;
    let streams = [Stream::Console, Stream::Console, Stream::Console];
    let args = ["cat", "-n"];
    let (process, registers) = tracer::start(world, "/bin/busybox", &args, "/", streams).unwrap();
    let mut terminal = Terminal {
        lines: vec![b"first line\n", b"second, longer line\n", b"third\n"],
    };
    let ended = tracer::run(world, process, registers, &mut terminal);
    assert_eq!(ended.status, Status::Exited(0));
    let expected = "     1\tfirst line\n     2\tsecond, longer line\n     3\tthird\n";
    assert_eq!(String::from_utf8_lossy(&world.console_out), expected);
    assert!(ended.parks > 10, "{}", ended.parks);
}

/// Leaves the process almost no free memory.
struct Poor;

impl Observer for Poor {
    fn before(&mut self, world: &mut World, _process: &mut Process, _registers: &Registers) {
        world.free = personality::exec::RESERVE + (256 << 10);
    }
}

#[test]
fn memory_that_is_out_is_an_error_of_the_program() {
    let Some(busybox) = busybox() else { return };
    let mut sides = Sides::new(&busybox, "memory");
    sides.add("empty", b"");
    let args = ["dd", "if=/dev/zero", "of=zeros", "bs=1M", "count=1"];
    let (out, err, status, _) = sides.emulated(&args, "empty", &mut Poor);
    let err = String::from_utf8_lossy(&err).into_owned();
    assert_ne!(status, 0);
    assert!(out.is_empty());
    assert!(err.contains("out of memory"), "{err}");
}

/// A C program of this directory, linked statically; `None` where that cannot be done.
fn compiled(source: &str) -> Option<PathBuf> {
    if !tracer::available() {
        println!("left out: processes cannot be traced here");
        return None;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(source);
    let program = std::env::temp_dir().join(format!("fermata-{source}-{}", std::process::id()));
    let made = Command::new("cc")
        .args(["-O1", "-w", "-static", "-o"])
        .args([&program, &path.with_extension("c")])
        .stderr(Stdio::null())
        .status();
    if made.is_ok_and(|status| status.success()) {
        return Some(program);
    }
    println!("left out: cc cannot link a static program");
    None
}

/// The lines that differ.
fn difference(expected: &[u8], found: &[u8]) -> String {
    let (expected, found) = (
        String::from_utf8_lossy(expected),
        String::from_utf8_lossy(found),
    );
    let mut out = String::new();
    let mut found = found.lines();
    for line in expected.lines() {
        let other = found.next().unwrap_or("(nothing)");
        if line != other {
            out.push_str(&format!("  Linux:   {line}\n  Fermata: {other}\n"));
        }
    }
    found.for_each(|line| out.push_str(&format!("  Fermata only: {line}\n")));
    out
}

/// A C program prints the same on both sides, also when it is saved and restored at each call.
fn agrees(source: &str, argument: &str, status: Status) {
    agrees_saved(source, argument, status, &[u64::MAX, 1]);
}

/// The same when the process is saved at every `n`th call, for each `n` of `saved`, and when the file system answers
/// late.
fn agrees_saved(source: &str, argument: &str, status: Status, saved: &[u64]) {
    let ways = saved.iter().map(|every| (*every, false));
    for (every, is_late) in ways.chain([(u64::MAX, true)]) {
        let name = format!("{source}-{}-{is_late}", every == 1);
        let Some(program) = compiled(source) else {
            return;
        };
        let mut sides = Sides::new(&program, &name);
        sides.world.is_late = is_late;
        sides.add("text", &text(400));
        sides.add("empty", b"");
        let args = ["program", argument, ""];
        let (expected, _, _) = sides.there(&args, "empty");
        std::fs::remove_dir_all(&sides.here).unwrap();
        let mut saver = Saver {
            every,
            count: 0,
            saved: 0,
        };
        let (found, _, _, ended) = sides.emulated(&args, "empty", &mut saver);
        let _ = std::fs::remove_file(&program);
        let difference = difference(&expected, &found);
        assert!(
            difference.is_empty(),
            "{name}:\n{difference}{:?}",
            sides.world.log
        );
        assert_eq!(ended.status, status);
    }
}

#[test]
fn other_calls_agree_with_linux() {
    agrees("calls", "argument", Status::Killed(6));
}

#[test]
fn sockets_agree_with_linux() {
    agrees("sockets", "one", Status::Exited(0));
}

#[test]
fn interfaces_agree_with_linux() {
    agrees("interfaces", "one", Status::Exited(0));
}

#[test]
fn terminals_agree_with_linux() {
    agrees("ptys", "one", Status::Exited(0));
}

#[test]
fn what_is_under_proc_agrees_with_linux() {
    agrees("proc", "one", Status::Exited(0));
    // Not saved: an image does not tell which file without a name was which.
    agrees_saved("proc", "maps", Status::Exited(0), &[u64::MAX]);
}

#[test]
fn locks_agree_with_linux() {
    agrees("locks", "one", Status::Exited(0));
}

#[test]
fn exceptions_agree_with_linux() {
    for way in ["one", "sse"] {
        agrees("faults", way, Status::Exited(0));
    }
}

#[test]
fn limits_agree_with_linux() {
    agrees("limits", "one", Status::Exited(0));
}

#[test]
fn shared_memory_agrees_with_linux() {
    agrees("shared", "one", Status::Exited(0));
}

#[test]
fn events_agree_with_linux() {
    agrees("events", "one", Status::Exited(0));
}

#[test]
fn what_is_opened_by_the_name_of_a_descriptor_agrees_with_linux() {
    agrees("names", "one", Status::Exited(0));
}

#[test]
fn what_happens_to_files_is_told_as_on_linux() {
    for way in ["calls", "files", "selves"] {
        agrees("inotify", way, Status::Exited(0));
    }
}

#[cfg(not(test))]
fn main() {
    println!("These are tests: cargo test -p fermata-linux");
}
