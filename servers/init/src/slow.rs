//! A thread for work that waits for other servers: lines on the console, and power off.
use crate::control;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use fermata_init::Options;
use rt::fs::File;
use rt::obj::Ref;
use rt::sync::Mutex;
use rt::{console, fs, sys, thread, time, Code};

/// How long power off waits until the console has written everything, in nanoseconds.
const PATIENCE: u64 = 2_000_000_000;
/// Most lines that wait to be written.
const MAX_LINES: usize = 256;

#[derive(Default)]
struct Work {
    lines: VecDeque<String>,
    power_off: Option<u8>,
    worker: Option<Ref>,
    deterministic: bool,
    verbose: bool,
    gets: Gets,
}

/// The files that are sent when the machine powers off.
#[derive(Clone, Copy, Default)]
pub(crate) struct Gets {
    /// Their paths, a line for each.
    pub(crate) paths: &'static [u8],
    /// Most bytes of a file. A file larger than memory consists of holes, and could take for ever.
    pub(crate) largest: u64,
}

static WORK: Mutex<Option<Work>> = Mutex::new(None);

/// Starts the thread.
pub(crate) fn start(priority: u64, options: &Options, gets: Gets) -> Result<(), Code> {
    *WORK.lock() = Some(Work {
        deterministic: options.deterministic,
        verbose: options.verbose,
        gets,
        ..Work::default()
    });
    let worker = thread::spawn_at(priority, run)?.reference()?;
    let _ = worker.interrupt();
    if let Some(work) = WORK.lock().as_mut() {
        work.worker = Some(worker);
    }
    Ok(())
}

fn with(change: impl FnOnce(&mut Work)) {
    if let Some(work) = WORK.lock().as_mut() {
        change(work);
        if let Some(worker) = &work.worker {
            let _ = worker.interrupt();
        }
    }
}

/// Queues a line for the console. Once the machine is to power off, lines are dropped: programs that end one after the
/// other could delay it for ever.
pub(crate) fn say(line: String) {
    with(|work| {
        if work.power_off.is_none() && work.lines.len() < MAX_LINES {
            work.lines.push_back(line);
        }
    });
}

/// Writes a line to the control channel, if the log is wanted there. Names that programs chose may be in it, and must
/// not begin another line.
pub(crate) fn log(line: &str) {
    if WORK.lock().as_ref().is_some_and(|work| work.verbose) {
        let line = fermata_init::line(line.as_bytes());
        control::write(&[b"log init: ", line.as_bytes(), b"\n"]);
    }
}

/// Powers the machine off, after the lines that were queued before have been written.
pub(crate) fn power_off(status: u8) {
    with(|work| work.power_off = Some(work.power_off.unwrap_or(status)));
}

fn run() {
    loop {
        let (line, power_off, deterministic, gets) = match WORK.lock().as_mut() {
            Some(work) => (
                work.lines.pop_front(),
                work.power_off,
                work.deterministic,
                work.gets,
            ),
            None => (None, None, false, Gets::default()),
        };
        match (line, power_off) {
            (Some(line), _) => {
                let _ = console::write_all(format!("{line}\n").as_bytes());
            }
            (None, Some(status)) => shut_down(status, deterministic, gets),
            (None, None) => {
                sys::thread_wait_interrupt();
            }
        }
    }
}

fn shut_down(status: u8, deterministic: bool, gets: Gets) -> ! {
    if deterministic {
        // On a deterministic machine the clock counts instructions.
        let _ = console::write_all(format!("instructions: {}\n", time::now()).as_bytes());
    }
    let _ = console::drain(time::now().saturating_add(PATIENCE));
    send_files(gets);
    control::write(&[format!("exit {status}\n").as_bytes()]);
    control::end()
}

/// Sends files over the control channel.
fn send_files(gets: Gets) {
    for path in String::from_utf8_lossy(gets.paths)
        .lines()
        .filter(|path| !path.is_empty())
    {
        if send_file(path, gets.largest).is_none() {
            control::write(&[format!("missing {path}\n").as_bytes()]);
        }
    }
}

fn send_file(path: &str, largest: u64) -> Option<()> {
    let file = File::open(path, fs::Flags::default(), 0).ok()?;
    if file.opened().mode & fs::mode::TYPE != fs::mode::FILE {
        return None;
    }
    let size = file.opened().size;
    if size > largest {
        return None;
    }
    control::write(&[format!("file {path} {size}\n").as_bytes()]);
    let mut buffer = alloc::vec![0; proto::MAX_BULK];
    let mut sent = 0;
    while sent < size {
        let wanted = (size - sent).min(buffer.len() as u64) as usize;
        // The announced number of bytes is sent; if the file has become shorter, zeros fill it up.
        let length = match file.read_full(sent, &mut buffer[..wanted]) {
            Ok(length) if length > 0 => length,
            _ => {
                buffer[..wanted].fill(0);
                wanted
            }
        };
        control::write(&[&buffer[..length]]);
        sent += length as u64;
    }
    Some(())
}
