//! How far the checkpointer is with something long, at the console.
//!
//! A thread says it, in a line that is rewritten: the one that asked waits for the answer. There is one such thread,
//! from the first time on, however often is asked: it sleeps while nothing takes long.

use alloc::format;
use alloc::string::String;
use rt::obj::Ref;
use rt::sync::Mutex;
use rt::{sys, time, Error};
use services::checkpoint::CheckpointClient;

/// What takes no longer is not told, and how often the rest is, in nanoseconds.
const PATIENCE: u64 = 2_000_000_000;
const EVERY: u64 = 500_000_000;
/// Bytes of a megabyte.
const MB: u64 = 1 << 20;

static TOLD: Mutex<Told> = Mutex::new(Told {
    thread: None,
    number: 0,
    request: None,
    length: 0,
});

struct Told {
    thread: Option<Ref>,
    /// That of the last request.
    number: u64,
    /// What is being done: its number, what it is called, and since when.
    request: Option<(u64, &'static str, u64)>,
    /// How long the line is that stands at the console.
    length: usize,
}

impl Told {
    /// Something is begun: its number.
    fn begin(&mut self, what: &'static str) -> u64 {
        self.number += 1;
        self.request = Some((self.number, what, time::now()));
        if self.thread.is_none() {
            // Without a thread nothing is said.
            let thread = rt::thread::spawn(watch).and_then(|thread| thread.reference());
            self.thread = thread.ok();
        }
        if let Some(thread) = &self.thread {
            let _ = thread.interrupt();
        }
        self.number
    }

    /// It is done: nothing of it is left at the console.
    fn end(&mut self, number: u64) {
        if self.request.is_some_and(|request| request.0 == number) {
            self.request = None;
            if self.length > 0 {
                self.say("");
            }
        }
    }

    /// Replaces the line by another one, or by none.
    fn say(&mut self, line: &str) {
        let blanks = self.length.saturating_sub(line.len());
        let end = if line.is_empty() { "\r" } else { "" };
        let text = format!("\r{line}{:blanks$}{end}", "");
        let _ = rt::console::write_all(text.as_bytes());
        self.length = line.len();
    }
}

/// Does what is asked of the checkpointer, and if that takes long says at the console how far it is: `what` it does,
/// and how many megabytes of how many are done.
pub(crate) fn told<T>(what: &'static str, ask: impl FnOnce() -> T) -> T {
    let number = TOLD.lock().begin(what);
    let came = ask();
    TOLD.lock().end(number);
    came
}

fn watch() {
    let mut session = None;
    loop {
        let request = TOLD.lock().request;
        let Some((number, what, since)) = request else {
            sys::thread_wait_interrupt();
            continue;
        };
        let due = since.saturating_add(PATIENCE);
        if time::now() < due {
            time::sleep_until(due);
            continue;
        }
        match progress(&mut session) {
            Ok((done, all)) if done > 0 => {
                let mut told = TOLD.lock();
                if told.request.is_some_and(|request| request.0 == number) {
                    told.say(&line(what, done, all));
                }
            }
            Ok(_) => {}
            Err(_) => session = None,
        }
        time::sleep(EVERY);
    }
}

/// What is said of so many bytes of so many, of which it may not be known how many they are.
fn line(what: &str, done: u64, all: u64) -> String {
    let done = done / MB;
    match all {
        0 => format!("{what}: {done} MB"),
        all => format!("{what}: {done} of {} MB", all.div_ceil(MB)),
    }
}

/// How far the request of this job is.
fn progress(session: &mut Option<CheckpointClient>) -> Result<(u64, u64), Error> {
    let session = match session {
        Some(session) => session,
        None => {
            let door = rt::names::lookup("checkpoint")?;
            session.insert(CheckpointClient::open_known(&door)?)
        }
    };
    session.progress()
}
