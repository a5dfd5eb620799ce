//! The debugger: this host acts as GDB, by a client of a few lines and by Debian's own GDB.

use super::linux_program;
use super::net::free_port;
use crate::scenario::{Ctx, Failure, Output, Run};
use elf::endian::LittleEndian;
use elf::ElfBytes;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use xtask_build::busybox;
use xtask_build::config::Config;
use xtask_build::debian::install;
use xtask_build::project::{BuildTarget, Project};

/// The address at which native programs are loaded.
const BASE: u64 = 0x40_0000;
const PROGRAM: &str = "debugged";
const INT3: u8 = 0xcc;
/// The flag of a single step.
const SINGLE_STEP: u32 = 1 << 8;

/// Bytes that a long answer reports, each by two digits: one such answer is more than the server keeps. And how many
/// are requested at once.
const LONG: usize = 48_000;
const QUESTIONS: usize = 4;

/// The program to be debugged, with its symbols.
fn program() -> Result<(PathBuf, Vec<u8>), Failure> {
    let project = Project::find().map_err(|error| error.message)?;
    let directory = project.binaries(BuildTarget::User, Config::DEFAULT);
    let path = directory.join(PROGRAM);
    let elf = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok((path, elf))
}

/// The address of a symbol in the running program.
fn symbol(elf: &[u8], wanted: &str) -> Result<u64, Failure> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(elf).map_err(|error| error.to_string())?;
    let table = file.symbol_table().map_err(|error| error.to_string())?;
    let (symbols, names) = table.ok_or("the program has no symbols")?;
    let found = symbols.iter().find(|symbol| {
        names
            .get(symbol.st_name as usize)
            .is_ok_and(|name| name == wanted)
    });
    found
        .map(|symbol| BASE + symbol.st_value)
        .ok_or_else(|| format!("the program has no {wanted}"))
}

/// The bytes of the program at an address.
fn bytes_at(elf: &[u8], address: u64, count: usize) -> Result<Vec<u8>, Failure> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(elf).map_err(|error| error.to_string())?;
    let segments = file.segments().ok_or("the program has no segments")?;
    let at = address - BASE;
    let within = |start: u64, size: u64| at >= start && at + count as u64 <= start + size;
    let segment = segments.iter().find(|s| within(s.p_vaddr, s.p_filesz));
    let segment = segment.ok_or("the address is not in the program")?;
    let from = (segment.p_offset + at - segment.p_vaddr) as usize;
    Ok(elf[from..from + count].to_vec())
}

/// A client of GDB's remote protocol.
struct Client {
    stream: TcpStream,
    /// The conversation so far, for error messages.
    said: Vec<String>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>, Failure> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
    bytes.ok_or_else(|| format!("'{text}' is not hexadecimal"))
}

/// The thread of a stop, and its reason: `T05thread:p7.1;swbreak:;`.
fn stopped(said: &str) -> Result<(String, String), Failure> {
    let wrong = || format!("this is no stop: '{said}'");
    let rest = said.strip_prefix('T').ok_or_else(wrong)?;
    let (signal, rest) = rest.split_at_checked(2).ok_or_else(wrong)?;
    let thread = rest
        .strip_prefix("thread:")
        .and_then(|rest| rest.split(';').next());
    Ok((thread.ok_or_else(wrong)?.to_string(), signal.to_string()))
}

impl Client {
    /// Connects to a machine that may not have booted, or not have started the server.
    fn new(port: u16, over: &AtomicBool) -> Result<Self, Failure> {
        loop {
            if over.load(Ordering::Relaxed) {
                return Err("the machine ended before the debugger was there".into());
            }
            if let Some(client) = Client::try_new(port) {
                return Ok(client);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn try_new(port: u16) -> Option<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        let mut client = Client {
            stream,
            said: Vec::new(),
        };
        // There is no answer before the server runs.
        client.ask("qSupported:multiprocess+;swbreak+").ok()?;
        client
            .stream
            .set_read_timeout(Some(Duration::from_secs(100)))
            .ok()?;
        (client.ask("!").ok()? == "OK").then_some(client)
    }

    fn send(&mut self, packet: &str) -> Result<(), Failure> {
        let sum = packet.bytes().fold(0u8, u8::wrapping_add);
        let whole = format!("${packet}#{sum:02x}");
        self.said.push(format!("-> {packet}"));
        self.stream
            .write_all(whole.as_bytes())
            .map_err(|error| error.to_string())
    }

    fn byte(&mut self) -> Result<u8, Failure> {
        let mut byte = [0];
        match self.stream.read_exact(&mut byte) {
            Ok(()) => Ok(byte[0]),
            Err(error) => {
                let last = self.said.len().saturating_sub(8);
                let last = self.said[last..].join("\n");
                Err(format!("the debugger does not answer: {error}\n{last}"))
            }
        }
    }

    fn receive(&mut self) -> Result<String, Failure> {
        while self.byte()? != b'$' {}
        let mut packet = Vec::new();
        loop {
            match self.byte()? {
                b'#' => break,
                // The byte before is repeated.
                b'*' => {
                    let count = self.byte()? - 29;
                    let last = *packet.last().ok_or("nothing to repeat")?;
                    packet.extend(std::iter::repeat_n(last, count.into()));
                }
                byte => packet.push(byte),
            }
        }
        let _sum = (self.byte()?, self.byte()?);
        self.stream
            .write_all(b"+")
            .map_err(|error| error.to_string())?;
        let packet = String::from_utf8_lossy(&packet).into_owned();
        self.said.push(format!("<- {packet}"));
        Ok(packet)
    }

    fn ask(&mut self, packet: &str) -> Result<String, Failure> {
        self.send(packet)?;
        self.receive()
    }

    /// Sends Ctrl-C.
    fn interrupt(&mut self) -> Result<(), Failure> {
        let sent = self.stream.write_all(b"\x03");
        sent.map_err(|error| error.to_string())
    }

    fn expect(&mut self, packet: &str, answer: &str) -> Result<(), Failure> {
        let said = self.ask(packet)?;
        match said == answer {
            true => Ok(()),
            false => Err(format!(
                "'{packet}' is answered by '{said}', not '{answer}'"
            )),
        }
    }

    /// The output of `monitor ps`.
    fn processes(&mut self) -> Result<String, Failure> {
        let mut text = String::new();
        let mut said = self.ask(&format!("qRcmd,{}", hex(b"ps")))?;
        while let Some(line) = said.strip_prefix('O').filter(|line| *line != "K") {
            text.push_str(&String::from_utf8_lossy(&unhex(line)?));
            said = self.receive()?;
        }
        Ok(text)
    }

    /// The number of the first process with this name, which may not exist yet.
    fn number(&mut self, name: &str) -> Result<u64, Failure> {
        // When the machine ends, the connection does.
        loop {
            let list = self.processes()?;
            let line = list.lines().find(|line| line.contains(name));
            if let Some(number) = line.and_then(|line| line.split_whitespace().next()) {
                return number
                    .parse()
                    .map_err(|_| format!("'{number}' is no number"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until there is no process of this name.
    fn gone(&mut self, name: &str) -> Result<(), Failure> {
        while self.processes()?.contains(name) {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn attach(&mut self, number: u64) -> Result<String, Failure> {
        let said = self.ask(&format!("vAttach;{number:x}"))?;
        Ok(stopped(&said)?.0)
    }

    /// Reads memory.
    fn read(&mut self, address: u64, count: usize) -> Result<Vec<u8>, Failure> {
        let said = self.ask(&format!("m{address:x},{count:x}"))?;
        unhex(&said)
    }

    fn word(&mut self, address: u64) -> Result<u64, Failure> {
        let bytes = self.read(address, 8)?;
        let bytes = bytes.try_into().map_err(|_| "no word is there")?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn write(&mut self, address: u64, word: u64) -> Result<(), Failure> {
        let bytes = hex(&word.to_le_bytes());
        self.expect(&format!("M{address:x},8:{bytes}"), "OK")
    }

    /// Reads the registers of a thread.
    fn registers(&mut self, thread: &str) -> Result<Vec<u8>, Failure> {
        self.expect(&format!("Hg{thread}"), "OK")?;
        let said = self.ask("g")?;
        unhex(&said)
    }

    fn rip(&mut self, thread: &str) -> Result<u64, Failure> {
        let all = self.registers(thread)?;
        let rip = all.get(128..136).ok_or("there are not all registers")?;
        Ok(u64::from_le_bytes(rip.try_into().map_err(|_| "no word")?))
    }

    fn flags(&mut self, thread: &str) -> Result<u32, Failure> {
        let all = self.registers(thread)?;
        let flags = all.get(136..140).ok_or("there are not all registers")?;
        Ok(u32::from_le_bytes(flags.try_into().map_err(|_| "no word")?))
    }

    /// Lets the program run for short times until this word of it has reached the value.
    fn run_until(&mut self, how: &str, word: u64, value: u64) -> Result<(), Failure> {
        // On a busy host the machine runs only part of the time.
        let mut pause = Duration::from_millis(20);
        while self.word(word)? < value {
            self.send(how)?;
            std::thread::sleep(pause);
            pause *= 2;
            self.interrupt()?;
            let said = self.receive()?;
            assert_eq!(stopped(&said)?.1, "02", "{said}");
        }
        Ok(())
    }

    fn breakpoint(&mut self, address: u64, set: bool) -> Result<(), Failure> {
        let kind = if set { 'Z' } else { 'z' };
        self.expect(&format!("{kind}0,{address:x},1"), "OK")
    }

    /// Steps one thread while the others stand still.
    fn step(&mut self, thread: &str) -> Result<(), Failure> {
        let said = self.ask(&format!("vCont;s:{thread}"))?;
        let (other, signal) = stopped(&said)?;
        match (other == thread, &*signal) {
            (true, "05") => Ok(()),
            _ => Err(format!("a step of {thread} ends with '{said}'")),
        }
    }

    /// Lets all threads run until one meets the breakpoint at this address, which is then removed. Returns the
    /// thread.
    fn meet(&mut self, address: u64) -> Result<String, Failure> {
        self.breakpoint(address, true)?;
        let said = self.ask("vCont;c")?;
        let (thread, signal) = stopped(&said)?;
        if signal != "05" || !said.contains("swbreak") {
            let last = self.said.len().saturating_sub(20);
            let before = self.said[last..].join("\n");
            let rip = self.rip(&thread)?;
            let why = format!("instead of the breakpoint, at {rip:#x}: '{said}'");
            return Err(format!("{why}\n{before}"));
        }
        self.breakpoint(address, false)?;
        let rip = self.rip(&thread)?;
        match rip == address {
            true => Ok(thread),
            false => Err(format!(
                "the breakpoint is at {address:#x}, not at {rip:#x}"
            )),
        }
    }

    /// The numbers of the threads, and their next actions.
    fn threads(&mut self) -> Result<Vec<(String, String)>, Failure> {
        let said = self.ask("qfThreadInfo")?;
        let list = said.strip_prefix('m').unwrap_or_default();
        let mut threads = Vec::new();
        for thread in list.split(',') {
            let doing = self.ask(&format!("qThreadExtraInfo,{thread}"))?;
            let doing = String::from_utf8_lossy(&unhex(&doing)?).into_owned();
            threads.push((thread.to_string(), doing));
        }
        self.expect("qsThreadInfo", "l")?;
        Ok(threads)
    }
}

/// Runs a machine with a debugger's port, and a client at it.
fn debug<T: Send>(
    ctx: &mut Ctx,
    run: Run,
    debugger: impl FnOnce(u16, &AtomicBool) -> Result<T, Failure> + Send,
) -> Result<(Output, T), Failure> {
    let port = free_port()?;
    let over = AtomicBool::new(false);
    let (output, debugged) = std::thread::scope(|scope| {
        let debugger = scope.spawn(|| debugger(port, &over));
        let output = ctx.run(run.gdb(port));
        over.store(true, Ordering::Relaxed);
        (output, debugger.join())
    });
    let output = output?;
    let debugged = debugged.map_err(|panic| {
        let why = panic.downcast_ref::<String>().map_or("", |why| why);
        format!("the debugger panicked: {why}")
    })?;
    match debugged {
        Ok(debugged) => Ok((output, debugged)),
        Err(why) => Err(format!(
            "{why}; console:\n{}\nlog:\n{}",
            output.text(),
            output.stderr
        )),
    }
}

/// Debugs the first program until it is saved while there is a breakpoint in it.
fn until_saved(port: u16, over: &AtomicBool, elf: &[u8]) -> Result<(), Failure> {
    let (tread, gate, turns) = (
        symbol(elf, "tread")?,
        symbol(elf, "GATE")?,
        symbol(elf, "TURNS")?,
    );
    let mut gdb = Client::new(port, over)?;
    assert_eq!(gdb.ask("vAttach;1")?, "E0d", "S2: a server was debugged");
    assert_eq!(gdb.ask("vAttach;f0000")?, "E03");
    let number = gdb.number("debugged first")?;
    let first = gdb.attach(number)?;
    let threads = gdb.threads()?;
    assert_eq!(threads.len(), 1, "{threads:?}");
    assert!(threads[0].1.contains("stopped"), "{threads:?}");
    // Memory that does not exist can be neither read nor written.
    assert_eq!(gdb.ask("m10,8")?, "E0e");
    assert_eq!(gdb.ask("Z0,10,1")?, "E03");
    // A register has the value that was written, and a program that continues with it does not notice.
    let before = gdb.registers(&first)?;
    let mut changed = before.clone();
    changed[14 * 8] ^= 0xff;
    gdb.expect(&format!("G{}", hex(&changed)), "OK")?;
    assert_eq!(gdb.registers(&first)?, changed);
    gdb.expect(&format!("G{}", hex(&before)), "OK")?;
    // Answers that the client has not read yet exceed what the server keeps; the server continues when they are read.
    let start = symbol(elf, "_start")?;
    let question = format!("m{start:x},{LONG:x}");
    (0..QUESTIONS).try_for_each(|_| gdb.send(&question))?;
    let text = bytes_at(elf, start, LONG)?;
    for n in 0..QUESTIONS {
        assert_eq!(unhex(&gdb.receive()?)?, text, "answer {n}");
    }
    gdb.write(gate, 1)?;
    let code = bytes_at(elf, tread, 16)?;
    // A Ctrl-C that crosses a stop is answered by that stop, and by nothing when the program continues.
    let thread = gdb.meet(tread)?;
    gdb.interrupt()?;
    gdb.step(&thread)?;
    gdb.interrupt()?;
    // A thread at a breakpoint stays there while only another thread runs.
    gdb.breakpoint(tread, true)?;
    let said = gdb.ask("vCont;c")?;
    let (thread, _) = stopped(&said)?;
    gdb.send(&format!("vCont;c:{first}"))?;
    gdb.interrupt()?;
    let said = gdb.receive()?;
    assert_eq!(stopped(&said)?.1, "02", "{said}");
    assert_eq!(gdb.rip(&thread)?, tread, "a breakpoint was stepped over");
    assert_eq!(gdb.word(turns)?, 1, "a turn was missed");
    gdb.breakpoint(tread, false)?;
    gdb.step(&thread)?;
    for n in 2..20 {
        let thread = gdb.meet(tread)?;
        assert_eq!(gdb.word(turns)?, n, "a turn was missed");
        assert_eq!(gdb.read(tread, 16)?, code);
        for _ in 0..3 {
            let at = gdb.rip(&thread)?;
            gdb.step(&thread)?;
            assert_ne!(gdb.rip(&thread)?, at);
        }
    }
    let threads = gdb.threads()?;
    assert_eq!(threads.len(), 4, "{threads:?}");
    let waits = |(_, doing): &&(String, String)| {
        doing.contains("cond_wait") || doing.contains("mutex_lock")
    };
    assert!(threads.iter().filter(waits).count() >= 2, "{threads:?}");
    // To the middle, where the program waits for the gate.
    let waits = symbol(elf, "WAITS")?;
    gdb.run_until("vCont;c", waits, 2)?;
    assert_eq!(gdb.word(turns)?, 60);
    // A step that a Ctrl-C interrupts is over: this thread waits for the others, and must not stop when it is woken.
    gdb.send(&format!("vCont;s:{first}"))?;
    gdb.interrupt()?;
    let said = gdb.receive()?;
    assert_eq!(stopped(&said)?.1, "02", "{said}");
    assert_eq!(gdb.flags(&first)? & SINGLE_STEP, 0, "a step has stayed");
    // The program is saved with a breakpoint in it.
    gdb.breakpoint(tread, true)?;
    assert_eq!(gdb.read(tread, 1)?, [INT3]);
    gdb.number("sleep 1001")?;
    assert_eq!(
        gdb.read(tread, 1)?,
        [INT3],
        "S3: saving has taken a breakpoint away"
    );
    gdb.write(gate, 2)?;
    for n in 61..65 {
        let thread = gdb.meet(tread)?;
        assert_eq!(gdb.word(turns)?, n, "a turn was missed");
        gdb.step(&thread)?;
    }
    gdb.breakpoint(tread, true)?;
    gdb.expect("D;1", "OK")?;
    Ok(())
}

/// A program that was saved while it was debugged has no trace of that, and can be debugged where it is restored.
fn elsewhere(port: u16, over: &AtomicBool, elf: &[u8]) -> Result<(), Failure> {
    let (tread, gate, turns) = (
        symbol(elf, "tread")?,
        symbol(elf, "GATE")?,
        symbol(elf, "TURNS")?,
    );
    let mut gdb = Client::new(port, over)?;
    let number = gdb.number("debugged first")?;
    gdb.attach(number)?;
    let code = bytes_at(elf, tread, 16)?;
    assert_eq!(
        gdb.read(tread, 16)?,
        code,
        "S2: a breakpoint is in the image"
    );
    let turn = gdb.word(turns)?;
    gdb.write(gate, 2)?;
    for n in 1..6 {
        let thread = gdb.meet(tread)?;
        assert_eq!(gdb.word(turns)?, turn + n);
        gdb.step(&thread)?;
    }
    // The program continues when the debugger is gone: here the debugger's server ends, with a breakpoint in the
    // program.
    gdb.breakpoint(tread, true)?;
    let sleep = gdb.number("sleep 1001")?;
    gdb.expect(&format!("vKill;{sleep:x}"), "OK")
}

/// A native program with threads is debugged, next to another one with the same code, saved meanwhile, and debugged
/// again in another machine, where the debugger dies.
pub(crate) fn native(ctx: &mut Ctx) -> Result<(), Failure> {
    let (_, elf) = program()?;
    let script = "\
/test/debugged first 40 &
/test/debugged second 40 free &
until test -e /tmp/half-first; do busybox usleep 10000; done
checkpoint %1 /tmp/image
sleep 1001 &
wait %2
wait %1
kill %3
";
    let run = Run::script(script).get("/tmp/image");
    let (output, ()) = debug(ctx, run, |port, over| until_saved(port, over, &elf))?;
    output.expect_status(0)?;
    for name in ["first", "second"] {
        let line = format!("{name}: 120 turns, right, 0 early\n");
        assert!(output.text().contains(&line), "{}", output.text());
    }
    let script = "\
sleep 1001 &
restore /tmp/image
wait %1
trust /test/debugged kill gdb
wait %2
";
    let run = Run::script(script).add("/tmp/image", output.file("/tmp/image")?);
    let (output, ()) = debug(ctx, run, |port, over| elsewhere(port, over, &elf))?;
    output.expect_status(0)?;
    let line = "first: 120 turns, right, 0 early\n";
    assert!(output.text().contains(line), "{}", output.text());
    Ok(())
}

/// Debugs programs to their ends; their starters reap them at once, and the debugger is told their statuses
/// nevertheless.
fn ends(port: u16, over: &AtomicBool, elf: &[u8]) -> Result<(), Failure> {
    let (gate, turns, waits) = (
        symbol(elf, "GATE")?,
        symbol(elf, "TURNS")?,
        symbol(elf, "WAITS")?,
    );
    let mut gdb = Client::new(port, over)?;
    let number = gdb.number("debugged fourth")?;
    gdb.attach(number)?;
    gdb.write(gate, 2)?;
    gdb.expect("vCont;c", "W00")?;
    replaced(&mut gdb, [gate, turns, waits])?;
    let number = gdb.number("busybox sleep")?;
    gdb.attach(number)?;
    gdb.expect("vCont;c", "W00")
}

/// Debugs a program of which one thread runs by itself, and replaces another thread, which stands still, by a new
/// one: the new one runs until the program is stopped.
fn replaced(gdb: &mut Client, [gate, turns, waits]: [u64; 3]) -> Result<(), Failure> {
    let number = gdb.number("debugged fifth")?;
    let first = gdb.attach(number)?;
    gdb.run_until("vCont;c", waits, 1)?;
    gdb.write(gate, 1)?;
    gdb.run_until(&format!("vCont;c:{first}"), turns, 1)?;
    let before = gdb.word(turns)?;
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(gdb.word(turns)?, before, "S2: a thread runs on");
    gdb.write(gate, 2)?;
    gdb.expect("vCont;c", "W00")
}

/// The shell waits for a native program that is being debugged, and a Linux program waits for another one.
pub(crate) fn ended(ctx: &mut Ctx) -> Result<(), Failure> {
    let (_, elf) = program()?;
    let script = "\
/test/debugged fourth 4
/test/debugged fifth replace
busybox sh -c 'busybox sleep 6; echo slept $?'
";
    let run = Run::script(script);
    let (output, ()) = debug(ctx, run, |port, over| ends(port, over, &elf))?;
    output.expect_status(0)?;
    output.expect_stdout(
        "fourth: 12 turns, right, 0 early\nfifth: in the same place: true\nslept 0\n",
    )?;
    Ok(())
}

/// Offsets of the words in the page of `debugged NAME watch`.
const OWN: u64 = 0;
const KERNEL: u64 = 16;
const FILE: u64 = 24;
const READ: u64 = 32;
const SENT: u64 = 48;

/// Kinds of watchpoints: the number in packets, and the name in a stop.
const WRITTEN: (u8, &str) = (2, "watch");
const IS_READ: (u8, &str) = (3, "rwatch");
const EITHER: (u8, &str) = (4, "awatch");

impl Client {
    fn watch(&mut self, kind: (u8, &str), address: u64, set: bool) -> Result<(), Failure> {
        let letter = if set { 'Z' } else { 'z' };
        let kind = kind.0;
        self.expect(&format!("{letter}{kind},{address:x},8"), "OK")
    }

    /// Lets all threads run until watched bytes are met. Returns the thread.
    fn met(&mut self, (_, kind): (u8, &str), address: u64) -> Result<String, Failure> {
        let said = self.ask("vCont;c")?;
        let (thread, signal) = stopped(&said)?;
        match signal == "05" && said.contains(&format!(";{kind}:{address:x};")) {
            true => Ok(thread),
            false => Err(format!("instead of {kind} at {address:#x}: '{said}'")),
        }
    }

    /// While this word is watched, it is met so often, each time with another value.
    fn changes(&mut self, word: u64, times: u32) -> Result<Vec<u64>, Failure> {
        self.watch(WRITTEN, word, true)?;
        let mut values = vec![self.word(word)?];
        for _ in 0..times {
            self.met(WRITTEN, word)?;
            values.push(self.word(word)?);
        }
        self.watch(WRITTEN, word, false)?;
        match values.windows(2).all(|pair| pair[0] != pair[1]) {
            true => Ok(values),
            false => Err(format!("{word:#x} has not changed: {values:?}")),
        }
    }
}

/// Watches words of a program until it is saved while one is watched, and afterwards.
fn watches(port: u16, over: &AtomicBool, elf: &[u8]) -> Result<(), Failure> {
    let (gate, waits, place) = (
        symbol(elf, "GATE")?,
        symbol(elf, "WAITS")?,
        symbol(elf, "PLACE")?,
    );
    let mut gdb = Client::new(port, over)?;
    let number = gdb.number("debugged first")?;
    gdb.attach(number)?;
    // Memory that does not exist cannot be watched, nor can a very large range.
    assert_eq!(gdb.ask("Z2,10,8")?, "E03");
    assert_eq!(gdb.ask("Z2,400000,1001")?, "E1c");
    gdb.run_until("vCont;c", waits, 1)?;
    let page = gdb.word(place)?;
    gdb.write(gate, 1)?;
    // Written by the program; by a call of the kernel; with data from a server.
    let own = gdb.changes(page + OWN, 4)?;
    let next = |pair: &[u64]| pair[1] == pair[0] + 1;
    assert!(own.windows(2).all(next), "a write was missed: {own:?}");
    let kernel = gdb.changes(page + KERNEL, 4)?;
    assert!(kernel.iter().all(|word| *word < 2), "{kernel:?}");
    let file = gdb.changes(page + FILE, 4)?;
    assert!(file.windows(2).all(next), "a write was missed: {file:?}");
    // Words that are only read, by the program and by the kernel for a server.
    for kind in [EITHER, IS_READ] {
        for at in [READ, SENT] {
            gdb.watch(kind, page + at, true)?;
            gdb.met(kind, page + at)?;
            gdb.met(kind, page + at)?;
            gdb.watch(kind, page + at, false)?;
        }
    }
    // Two words in one page, one of them with a step, and a step that meets one.
    gdb.watch(WRITTEN, page + OWN, true)?;
    gdb.watch(WRITTEN, page + FILE, true)?;
    let mut met = [0, 0];
    for _ in 0..9 {
        let said = gdb.ask("vCont;c")?;
        let which = [OWN, FILE].map(|at| said.contains(&format!(";watch:{:x};", page + at)));
        let (thread, _) = stopped(&said)?;
        assert!(which[0] ^ which[1], "{said}");
        met[usize::from(which[1])] += 1;
        gdb.step(&thread)?;
    }
    assert_eq!(met, [3, 6]);
    gdb.watch(WRITTEN, page + FILE, false)?;
    gdb.watch(WRITTEN, page + OWN, false)?;
    gdb.run_until("vCont;c", waits, 2)?;
    // The program is saved while it is watched.
    gdb.watch(WRITTEN, page + OWN, true)?;
    gdb.number("sleep 1001")?;
    let before = gdb.word(page + OWN)?;
    gdb.write(gate, 2)?;
    gdb.met(WRITTEN, page + OWN)?;
    assert_eq!(gdb.word(page + OWN)?, before + 1, "S3: it is not watched");
    gdb.expect("D;1", "OK")
}

/// A debugger that dies, and one whose line breaks, leave a watched program unchanged.
fn watches_and_dies(port: u16, over: &AtomicBool, elf: &[u8]) -> Result<(), Failure> {
    let (gate, place) = (symbol(elf, "GATE")?, symbol(elf, "PLACE")?);
    let mut gdb = Client::new(port, over)?;
    let number = gdb.number("debugged second")?;
    gdb.attach(number)?;
    let waits = symbol(elf, "WAITS")?;
    gdb.run_until("vCont;c", waits, 1)?;
    let page = gdb.word(place)?;
    gdb.watch(EITHER, page + OWN, true)?;
    gdb.write(gate, 2)?;
    gdb.met(EITHER, page + OWN)?;
    drop(gdb);
    let mut gdb = Client::new(port, over)?;
    let number = gdb.number("debugged first")?;
    gdb.attach(number)?;
    let page = gdb.word(place)?;
    gdb.write(gate, 2)?;
    gdb.watch(WRITTEN, page + OWN, true)?;
    gdb.met(WRITTEN, page + OWN)?;
    let sleep = gdb.number("sleep 1001")?;
    gdb.expect(&format!("vKill;{sleep:x}"), "OK")
}

/// Words of a native program are watched, which the program, the kernel and a server write while another thread
/// writes next to them; the program is saved meanwhile.
pub(crate) fn watched(ctx: &mut Ctx) -> Result<(), Failure> {
    let (_, elf) = program()?;
    let script = "\
/test/debugged first watch 200 &
until test -e /tmp/half-first; do busybox usleep 10000; done
checkpoint %1 /tmp/image
sleep 1001 &
wait %1
kill %2
";
    let run = Run::script(script).get("/tmp/image");
    let (output, ()) = debug(ctx, run, |port, over| watches(port, over, &elf))?;
    output.expect_status(0)?;
    let line = "first: 200 rounds, right\n";
    assert!(output.text().contains(line), "{}", output.text());
    let script = "\
busybox touch /tmp/watched-first
restore /tmp/image
sleep 1001 &
/test/debugged second watch 60 &
wait %2
trust /test/debugged kill gdb
wait
";
    let run = Run::script(script).add("/tmp/image", output.file("/tmp/image")?);
    let (output, ()) = debug(ctx, run, |port, over| watches_and_dies(port, over, &elf))?;
    output.expect_status(0)?;
    for line in [line, "second: 60 rounds, right\n"] {
        assert!(output.text().contains(line), "{}", output.text());
    }
    Ok(())
}

/// The page that `watched.c` maps and unmaps.
const COMES_AND_GOES: u64 = 0x1000_0000;

/// Watches words of a Linux program until it is saved, and afterwards; detaches while it is watched.
fn watches_linux(port: u16, over: &AtomicBool, elf: &[u8]) -> Result<(), Failure> {
    // The program runs at the addresses of its headers.
    let at = |name| Ok::<_, Failure>(symbol(elf, name)? - BASE);
    let (words, gate, waits) = (at("words")?, at("gate")?, at("waits")?);
    let [own, filed, sent] = [0, 8, 16].map(|offset| words + offset);
    let mut gdb = Client::new(port, over)?;
    let number = gdb.number("watched first")?;
    gdb.attach(number)?;
    gdb.run_until("vCont;c", waits, 1)?;
    gdb.write(gate, 1)?;
    // Written by the program, and by the personality for it.
    for word in [own, filed] {
        let values = gdb.changes(word, 12)?;
        let next = |pair: &[u64]| pair[1] == pair[0] + 1;
        assert!(
            values.windows(2).all(next),
            "a write was missed: {values:?}"
        );
    }
    gdb.watch(EITHER, sent, true)?;
    // Written by the program, and read by the personality.
    let mut values = Vec::new();
    for _ in 0..6 {
        gdb.met(EITHER, sent)?;
        values.push(gdb.word(sent)?);
    }
    gdb.watch(EITHER, sent, false)?;
    assert!(
        values.windows(3).all(|three| three[2] == three[0] + 1),
        "{values:?}"
    );
    gdb.changes(COMES_AND_GOES + 8, 12)?;
    gdb.run_until("vCont;c", waits, 2)?;
    gdb.watch(WRITTEN, own, true)?;
    gdb.watch(WRITTEN, COMES_AND_GOES, true)?;
    gdb.number("sleep 1001")?;
    let before = gdb.word(own)?;
    gdb.write(gate, 2)?;
    gdb.met(WRITTEN, own)?;
    assert_eq!(gdb.word(own)?, before + 1, "S3: it is not watched");
    gdb.expect("D;1", "OK")
}

/// Words of a Linux program are watched while it protects and unmaps their pages, has children, and is saved.
pub(crate) fn watched_linux(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let Some(program) = linux_program(ctx, directory.path(), "watched") else {
        return Ok(());
    };
    let elf = std::fs::read(program).map_err(|error| error.to_string())?;
    let script = "\
/tmp/watched first 120 &
until [ -e /tmp/half-first ]; do busybox usleep 10000; done
checkpoint %1 /tmp/image
busybox sleep 1001 &
wait %1
kill %2
restore /tmp/image
wait
";
    // The restored program waits for a gate that opens only when it is written; so a debugger lets it continue.
    let run = Run::script(script).add_program("/tmp/watched", elf.clone());
    let (output, ()) = debug(ctx, run, |port, over| {
        watches_linux(port, over, &elf)?;
        let gate = symbol(&elf, "gate")? - BASE;
        let mut gdb = Client::new(port, over)?;
        gdb.gone("busybox sleep")?;
        let number = gdb.number("watched first")?;
        gdb.attach(number)?;
        gdb.write(gate, 2)?;
        gdb.expect("vCont;c", "W00")
    })?;
    output.expect_status(0)?;
    let text = output.text();
    let right = text.matches("first: 120 rounds, right\n").count();
    assert_eq!(right, 2, "{text}");
    Ok(())
}

/// The page of `stepped.c` that moves.
const MOVES: u64 = 0x1000_0000;

/// Steps a Linux program into a handler, and leaves it there; passes on what it has met; is told of what two of its threads
/// have done at once; follows it, and its child, into other programs.
fn steps_linux(port: u16, over: &AtomicBool, elf: &[u8]) -> Result<(), Failure> {
    let at = |name| Ok::<_, Failure>(symbol(elf, name)? - BASE);
    let (gate, waits, got) = (at("gate")?, at("waits")?, at("got")?);
    let (calls, handler, tread) = (at("calls")?, at("on_signal")?, at("tread")?);
    let mut gdb = Client::new(port, over)?;
    let number = gdb.number("stepped first")?;
    gdb.attach(number)?;
    gdb.run_until("vCont;c", waits, 1)?;
    gdb.write(gate, 1)?;
    let thread = gdb.meet(calls)?;
    gdb.step(&thread)?;
    let rip = gdb.rip(&thread)?;
    assert!(
        (handler..handler + 16).contains(&rip),
        "a step that a signal meets ends at {rip:#x}"
    );
    gdb.expect("D;1", "OK")?;
    // It has returned from the handler when it waits again.
    let thread = gdb.attach(number)?;
    gdb.run_until("vCont;c", waits, 2)?;
    gdb.write(gate, 2)?;
    let said = gdb.ask("vCont;c")?;
    assert_eq!(stopped(&said)?, (thread.clone(), "05".into()));
    assert_eq!(gdb.rip(&thread)?, at("traps")?);
    let trapped = at("on_trap")?;
    gdb.breakpoint(trapped, true)?;
    let said = gdb.ask(&format!("vCont;C05:{thread};c"))?;
    assert!(said.contains("swbreak"), "{said}");
    assert_eq!(gdb.rip(&thread)?, trapped);
    gdb.breakpoint(trapped, false)?;
    gdb.run_until("vCont;c", waits, 3)?;
    // Both read in calls that end at once.
    for word in [got, got + 8] {
        gdb.watch(WRITTEN, word, true)?;
    }
    gdb.write(gate, 3)?;
    let mut met = Vec::new();
    for _ in 0..2 {
        let said = gdb.ask("vCont;c")?;
        let which = [got, got + 8].map(|word| said.contains(&format!(";watch:{word:x};")));
        assert!(which[0] ^ which[1], "{said}");
        met.push((which[1], stopped(&said)?.0));
    }
    assert!(met[0].0 != met[1].0 && met[0].1 != met[1].1, "{met:?}");
    for word in [got, got + 8] {
        gdb.watch(WRITTEN, word, false)?;
    }
    gdb.run_until("vCont;c", waits, 4)?;
    gdb.breakpoint(MOVES + 1, true)?;
    gdb.write(gate, 4)?;
    gdb.run_until("vCont;c", waits, 5)?;
    gdb.write(gate, 5)?;
    gdb.expect("D;1", "OK")?;
    // A child goes on with another program, where nothing is as it was.
    child(&mut gdb, elf, number, 6)?;
    while !gdb.processes()?.contains("stepped child") {
        gdb.send("vCont;c")?;
        std::thread::sleep(Duration::from_millis(50));
        gdb.interrupt()?;
        let said = gdb.receive()?;
        assert_eq!(stopped(&said)?.1, "02", "{said}");
    }
    assert_eq!(gdb.word(gate)?, 0, "S2: that is the memory of its parent");
    gdb.run_until("vCont;c", waits, 10)?;
    gdb.write(gate, 10)?;
    gdb.expect("vCont;c", "W07")?;
    // What was put into the memory for it is not there any more, and can be again.
    gdb.attach(number)?;
    gdb.meet(tread)?;
    gdb.write(gate, 7)?;
    gdb.expect("D;1", "OK")?;
    // Another one ends.
    child(&mut gdb, elf, number, 8)?;
    gdb.expect("vCont;c", "W07")?;
    gdb.attach(number)?;
    let thread = gdb.meet(tread)?;
    gdb.watch(WRITTEN, got, true)?;
    gdb.write(gate, 9)?;
    assert_eq!(gdb.meet(calls)?, thread);
    gdb.breakpoint(tread, true)?;
    gdb.step(&thread)?;
    assert_eq!(
        gdb.word(gate)?,
        0,
        "the debugger looks at a memory that is gone"
    );
    // GDB takes out what is gone.
    gdb.breakpoint(tread, false)?;
    gdb.watch(WRITTEN, got, false)?;
    gdb.meet(at("main")?)?;
    gdb.expect("vCont;c", "W00")
}

/// Debugs the child that is in the memory of its parent, the process with this number, until it waits for the gate to be so
/// much, and puts into that memory what a debugger does.
fn child(gdb: &mut Client, elf: &[u8], parent: u64, gate: u64) -> Result<(), Failure> {
    let at = |name| Ok::<_, Failure>(symbol(elf, name)? - BASE);
    let child = loop {
        let list = gdb.processes()?;
        let those = list.lines().filter(|line| line.contains("stepped first"));
        let mut numbers = those.filter_map(|line| line.split_whitespace().next()?.parse().ok());
        if let Some(child) = numbers.find(|number| *number != parent) {
            break child;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    gdb.attach(child)?;
    gdb.run_until("vCont;c", at("waits")?, gate)?;
    gdb.breakpoint(at("tread")?, true)?;
    gdb.watch(WRITTEN, at("got")?, true)?;
    gdb.write(at("gate")?, gate)
}

/// What a debugger does to a Linux program is not seen by that, and the debugger sees all of it: signals, exceptions,
/// calls that end at once, other programs.
pub(crate) fn stepped_linux(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let Some(program) = linux_program(ctx, directory.path(), "stepped") else {
        return Ok(());
    };
    let elf = std::fs::read(program).map_err(|error| error.to_string())?;
    // What a shell starts several times is kept for the next time.
    let script = "\
/tmp/stepped first &
wait
busybox sh -c 'busybox true; busybox true; busybox true; exec /tmp/stepped eats' &
wait
";
    let run = Run::script(script).add_program("/tmp/stepped", elf.clone());
    let (output, ()) = debug(ctx, run, |port, over| {
        steps_linux(port, over, &elf)?;
        let at = |name| Ok::<_, Failure>(symbol(&elf, name)? - BASE);
        let mut gdb = Client::new(port, over)?;
        let number = gdb.number("stepped eats")?;
        gdb.attach(number)?;
        gdb.run_until("vCont;c", at("waits")?, 1)?;
        gdb.write(at("gate")?, 1)?;
        // That memory is short is no affair of the program's.
        gdb.expect("vCont;c", "W00")
    })?;
    output.expect_status(0)?;
    assert_eq!(output.text(), "stepped: right\neats: right\n");
    Ok(())
}

/// The commands for Debian's GDB.
const COMMANDS: &str = "\
set pagination off
set confirm off
set style enabled off
set language c
target extended-remote 127.0.0.1:PORT
attach NUMBER
add-symbol-file FILE -o 0x400000
print *(long *)&GATE
set var *(long *)&GATE = 1
break *(long)&tread
continue
continue
continue
info threads
print/x $rip == (long)&tread
thread apply all print $rip != 0
stepi
stepi
delete
thread 1
set scheduler-locking on
print ((long (*)(long))tread)(12)
set scheduler-locking off
print *(long *)&TURNS
watch *(long *)&TURNS
continue
continue
delete
set var *(long *)&GATE = 2
detach
";

/// Debian's own GDB, with the symbols of a program.
fn debians(port: u16, over: &AtomicBool) -> Result<String, Failure> {
    let mut client = Client::new(port, over)?;
    let number = client.number("debugged third")?;
    drop(client);
    let (path, _) = program()?;
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = directory.path().join("commands");
    let commands = COMMANDS
        .replace("PORT", &port.to_string())
        .replace("NUMBER", &number.to_string())
        .replace("FILE", &path.display().to_string());
    std::fs::write(&file, commands).map_err(|error| error.to_string())?;
    let output = Command::new("gdb")
        .args(["-nx", "-batch", "-x"])
        .arg(&file)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("gdb: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(text(&output.stdout) + &text(&output.stderr))
}

/// Debian's GDB debugs a native program: breakpoints by name, steps, and a call of a function of the program by a
/// thread that waits in the kernel.
pub(crate) fn debian(ctx: &mut Ctx) -> Result<(), Failure> {
    if let Err(why) = install(&[("gdb", "gdb")]) {
        ctx.leave_out(why);
        return Ok(());
    }
    let run = Run::script("/test/debugged third 40\n");
    let (output, said) = debug(ctx, run, debians)?;
    output
        .expect_status(0)
        .map_err(|why| format!("{said}\n{why}"))?;
    output.expect_stdout("third: 120 turns, right, 0 early\n")?;
    for thread in 2..5 {
        let hit = format!("Thread {thread} hit Breakpoint 1, ");
        assert!(said.contains(&hit), "no '{hit}':\n{said}");
    }
    for turn in 3..5 {
        let old = turn - 1;
        let values = format!("Old value = {old}\nNew value = {turn}\n");
        assert!(said.contains(&values), "no '{values}':\n{said}");
    }
    let hit = "hit Hardware watchpoint 2: *(long *)&TURNS";
    assert_eq!(said.matches(hit).count(), 2, "{said}");
    assert!(
        said.contains(".1 (mutex_lock, waiting for a condition, stopped)"),
        "{said}"
    );
    let values = said
        .lines()
        .filter_map(|line| line.strip_prefix('$')?.split_once(" = "));
    let values: Vec<&str> = values.map(|(_, value)| value).collect();
    // The gate; the place of the breakpoint; four threads with registers; twelve times twelve; two turns done.
    assert_eq!(
        values,
        ["0", "0x1", "1", "1", "1", "1", "144", "2"],
        "{said}"
    );
    Ok(())
}

/// The places in a Linux program where it makes one of these calls, with the number in the instruction before.
fn calls(elf: &[u8], numbers: &[u8]) -> Result<Vec<u64>, Failure> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(elf).map_err(|error| error.to_string())?;
    let segments = file.segments().ok_or("the program has no segments")?;
    let mut found = Vec::new();
    for segment in segments.iter().filter(|segment| segment.p_flags & 1 != 0) {
        let bytes = &elf[segment.p_offset as usize..][..segment.p_filesz as usize];
        for (at, window) in bytes.windows(7).enumerate() {
            // mov eax, NUMBER; syscall
            let is = |number| window == [0xb8, number, 0, 0, 0, 0x0f, 0x05];
            if numbers.iter().any(|number| is(*number)) {
                found.push(segment.p_vaddr + at as u64 + 5);
            }
        }
    }
    Ok(found)
}

/// Linux's `clone`, `fork` and `vfork`.
const FORKS: [u8; 3] = [56, 57, 58];
/// An address where nothing is mapped.
const NOWHERE: u64 = 0x10;

/// Debugs a shell that starts children: these and other processes never meet its breakpoints.
fn shell(port: u16, over: &AtomicBool, forks: &[u64]) -> Result<(), Failure> {
    let mut gdb = Client::new(port, over)?;
    let number = gdb.number("busybox sh")?;
    let thread = gdb.attach(number)?;
    for at in forks {
        gdb.breakpoint(*at, true)?;
    }
    let said = gdb.ask("vCont;c")?;
    assert!(said.contains("swbreak"), "{said}");
    let fork = gdb.rip(&thread)?;
    assert!(forks.contains(&fork), "{fork:#x}");
    for at in forks {
        gdb.breakpoint(*at, false)?;
    }
    // The child is not stepped with its parent, and runs on where the parent has a breakpoint.
    let behind = fork + 2;
    gdb.step(&thread)?;
    for _ in 0..20 {
        gdb.step(&thread)?;
        gdb.meet(behind)?;
    }
    gdb.breakpoint(behind, true)?;
    let sleep = gdb.number("sleep 1001")?;
    gdb.expect(&format!("vKill;{sleep:x}"), "OK")?;
    gdb.number("sleep 1002")?;
    gdb.breakpoint(behind, false)?;
    gdb.step(&thread)?;
    // The program gets its own fault when the debugger passes it on.
    let mut all = gdb.registers(&thread)?;
    all[128..136].copy_from_slice(&NOWHERE.to_le_bytes());
    gdb.expect(&format!("G{}", hex(&all)), "OK")?;
    let said = gdb.ask("vCont;c")?;
    assert_eq!(stopped(&said)?, (thread.clone(), "0b".into()));
    assert_eq!(gdb.rip(&thread)?, NOWHERE);
    let said = gdb.ask(&format!("vCont;C0b:{thread};c"))?;
    assert_eq!(said, "X0b");
    Ok(())
}

/// A Linux program that starts others is debugged, saved meanwhile, and ends by its own action; the saved program
/// continues.
pub(crate) fn linux(ctx: &mut Ctx) -> Result<(), Failure> {
    let project = Project::find().map_err(|error| error.message)?;
    let path = busybox::find(&project).map_err(|error| error.message)?;
    let elf = std::fs::read(&path).map_err(|error| error.to_string())?;
    let forks = calls(&elf, &FORKS)?;
    let script = "\
busybox sh -c 'until [ -e /tmp/over ]; do (exit 3); [ $? = 3 ] || echo WRONG; done; echo over' &
busybox sleep 1001 &
wait %2
checkpoint %1 /tmp/image
busybox sleep 1002 &
wait %1
echo ended by $?
restore /tmp/image
kill %2
echo > /tmp/over
wait
";
    let (output, ()) = debug(ctx, Run::script(script), |port, over| {
        shell(port, over, &forks)
    })?;
    output.expect_status(0)?;
    let text = output.text();
    let wrong = text.lines().any(|line| line == "WRONG");
    assert!(!wrong, "S2: a child has met a breakpoint: {text}");
    assert!(text.contains("ended by 139"), "{text}");
    assert!(text.ends_with("over\n"), "{text}");
    Ok(())
}
