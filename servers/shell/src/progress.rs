//! Shows the progress of long requests to the checkpointer at the console.
//!
//! A thread prints it, in a line that it rewrites, since the thread of the request waits for the answer. There is one
//! such thread, from the first request on: it sleeps while there is no long request.

use alloc::format;
use alloc::string::String;
use rt::obj::Ref;
use rt::sync::Mutex;
use rt::{sys, time, Error};
use services::checkpoint::CheckpointClient;

/// The time after which progress is shown, and the interval at which it is updated, in nanoseconds.
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
    /// The number of the last request.
    number: u64,
    /// The current request: its number, its name, and when it began.
    request: Option<(u64, &'static str, u64)>,
    /// The length of the line that is shown at the console.
    length: usize,
}

impl Told {
    /// Begins a request, and returns its number.
    fn begin(&mut self, what: &'static str) -> u64 {
        self.number += 1;
        self.request = Some((self.number, what, time::now()));
        if self.thread.is_none() {
            // Without a thread no progress is shown.
            let thread = rt::thread::spawn(watch).and_then(|thread| thread.reference());
            self.thread = thread.ok();
        }
        if let Some(thread) = &self.thread {
            let _ = thread.interrupt();
        }
        self.number
    }

    /// Ends a request, and removes its line from the console.
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

/// Makes a request to the checkpointer, and if it takes long shows its progress at the console: its name `what`, and
/// how many megabytes of how many are done.
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

/// The line for `done` bytes of `all`, which is 0 if it is not known.
fn line(what: &str, done: u64, all: u64) -> String {
    let done = done / MB;
    match all {
        0 => format!("{what}: {done} MB"),
        all => format!("{what}: {done} of {} MB", all.div_ceil(MB)),
    }
}

/// The progress of this job's request.
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
