//! A program's log: lines on the console for the people who run the system, for which the program does not wait.
//!
//! Other programs can keep the console full, and a server must not wait for them. Text that the console does not take
//! at once waits in a [`Queue`], which a thread empties that exists only as long as the queue is not empty. Lines for
//! which the queue has no room are lost, and a line says how many. A program that ends gives the console [`PATIENCE`]
//! to take the rest.
use crate::console::Logger;
use crate::sync::Mutex;
use crate::{io, thread, time};
use alloc::collections::VecDeque;
use alloc::format;
use core::fmt;

/// Most bytes in the queue.
const ROOM: usize = 16 * 1024;
/// How long a program that ends waits for its queue, in nanoseconds.
const PATIENCE: u64 = 2_000_000_000;
/// The interval at which it checks the queue meanwhile, in nanoseconds.
const LOOK: u64 = 1_000_000;
/// Bytes that the thread writes at a time.
const PIECE: usize = 512;

/// Text that waits for the console.
struct Queue {
    bytes: VecDeque<u8>,
    /// Lines that found no room since the last one that did.
    lost: u64,
    /// The text that was taken last did not end a line.
    is_within: bool,
}

impl Queue {
    const fn new() -> Self {
        Queue {
            bytes: VecDeque::new(),
            lost: 0,
            is_within: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.lost == 0
    }

    /// Appends a piece of a line of the program with this name. `whole`: no earlier piece of the line was lost.
    fn put(&mut self, piece: &[u8], whole: &mut bool, name: &str) {
        // After a loss nothing is taken before the line that reports it.
        if *whole && self.tell_lost(name) && self.append(piece) {
            return;
        }
        if core::mem::take(whole) {
            self.lost += 1;
        }
    }

    /// Reports lost lines, if there are any. Returns false if there was no room for that.
    fn tell_lost(&mut self, name: &str) -> bool {
        if self.lost == 0 {
            return true;
        }
        // The end of a line may have been lost.
        let end = if self.is_within { "\n" } else { "" };
        let (lines, were) = match self.lost {
            1 => ("line", "was"),
            _ => ("lines", "were"),
        };
        let lost = self.lost;
        let told = format!("{end}{name}: {lost} {lines} {were} lost, the console was full\n");
        let told = self.append(told.as_bytes());
        if told {
            self.lost = 0;
        }
        told
    }

    /// Appends all of the piece or nothing. Returns whether it did.
    fn append(&mut self, piece: &[u8]) -> bool {
        let fits = self.bytes.len() + piece.len() <= ROOM;
        let fits = fits && self.bytes.try_reserve(piece.len()).is_ok();
        if fits {
            self.bytes.extend(piece);
            self.passed(piece);
        }
        fits
    }

    /// Notes that these bytes were taken, by the queue or by the console.
    fn passed(&mut self, bytes: &[u8]) {
        self.is_within = bytes.last().map_or(self.is_within, |last| *last != b'\n');
    }

    /// Passes the waiting bytes to `take`, which returns how many bytes of a piece the console took.
    fn give(&mut self, name: &str, mut take: impl FnMut(&[u8]) -> usize) {
        while !self.is_empty() {
            if self.bytes.is_empty() && !self.tell_lost(name) {
                return;
            }
            let taken = take(self.bytes.as_slices().0);
            if taken == 0 {
                return;
            }
            self.bytes.drain(..taken);
        }
    }

    /// Moves the first waiting bytes to `piece`, and returns how many.
    fn take(&mut self, name: &str, piece: &mut [u8]) -> usize {
        let mut length = 0;
        self.give(name, |bytes| {
            let taken = bytes.len().min(piece.len() - length);
            piece[length..length + taken].copy_from_slice(&bytes[..taken]);
            length += taken;
            taken
        });
        if self.bytes.is_empty() {
            self.bytes.shrink_to_fit();
        }
        length
    }
}

struct Log {
    queue: Queue,
    /// A thread empties the queue, and is the only one that writes then.
    has_thread: bool,
}

static LOG: Mutex<Log> = Mutex::new(Log {
    queue: Queue::new(),
    has_thread: false,
});
static LOGGER: Logger = Logger::new();

fn name() -> &'static str {
    let args = &crate::start().args;
    args.first().map_or("program", |name| name.as_str())
}

/// Logs a line, which includes its newline. `log!` calls it.
#[doc(hidden)]
pub fn say(arguments: fmt::Arguments<'_>) {
    let mut whole = true;
    io::format(arguments, &mut |piece| {
        // A thread that panics may hold the lock.
        let log = match crate::panic::is_panicking() {
            true => LOG.try_lock(),
            false => Some(LOG.lock()),
        };
        if let Some(mut log) = log {
            log.say(piece, &mut whole);
        }
    });
}

impl Log {
    fn say(&mut self, piece: &[u8], whole: &mut bool) {
        let mut rest = piece;
        if !self.has_thread {
            self.write();
            while self.queue.is_empty() && !rest.is_empty() {
                match LOGGER.write(rest) {
                    0 => break,
                    taken => rest = &rest[taken..],
                }
            }
        }
        self.queue.passed(&piece[..piece.len() - rest.len()]);
        if rest.is_empty() {
            return;
        }
        self.queue.put(rest, whole, name());
        // If no thread can be made the text waits for the next line.
        self.has_thread = self.has_thread || thread::spawn(empty).is_ok();
    }

    /// Writes as much of the queue as the console takes at once.
    fn write(&mut self) {
        if !self.queue.is_empty() {
            self.queue.give(name(), |bytes| LOGGER.write(bytes));
        }
    }
}

/// Writes the queue, however long that takes.
fn empty() {
    let mut piece = [0; PIECE];
    loop {
        let length = {
            let mut log = LOG.lock();
            let length = log.queue.take(name(), &mut piece);
            log.has_thread = length > 0;
            length
        };
        if length == 0 {
            return;
        }
        LOGGER.write_all(&piece[..length]);
    }
}

/// Waits up to [`PATIENCE`] for the last lines of the program, which ends.
pub(crate) fn finish() {
    let until = time::now().saturating_add(PATIENCE);
    loop {
        // The holder of the lock may have panicked.
        if let Some(mut log) = LOG.try_lock() {
            if !log.has_thread {
                log.write();
                if log.queue.is_empty() {
                    return;
                }
            }
        }
        if time::now() >= until {
            return;
        }
        time::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    /// The text that a console would get which takes everything.
    fn all(queue: &mut Queue) -> String {
        let mut text = alloc::vec![0; 2 * ROOM];
        let length = queue.take("me", &mut text);
        String::from_utf8_lossy(&text[..length]).into_owned()
    }

    fn put(queue: &mut Queue, line: &str) {
        queue.put(line.as_bytes(), &mut true, "me");
    }

    #[test]
    fn what_waits_has_a_bound_and_what_is_lost_is_counted() {
        let mut queue = Queue::new();
        let line = "a line of thirty-two bytes, here\n";
        let fit = ROOM / line.len();
        for _ in 0..fit + 5 {
            put(&mut queue, line);
        }
        assert!(queue.bytes.len() <= ROOM, "S2: what waits has a bound");
        // There is room again for the line that tells of the loss, and one more.
        let mut piece = [0; 64];
        assert_eq!(queue.take("me", &mut piece), 64);
        put(&mut queue, "more\n");
        let text = all(&mut queue);
        let lost = "me: 5 lines were lost, the console was full\n";
        let (before, after) = text.split_once(lost).expect("the loss is told");
        assert_eq!(before.len(), fit * line.len() - 64, "nothing else is lost");
        assert_eq!(after, "more\n");
        assert!(queue.is_empty() && queue.bytes.capacity() == 0);
    }

    #[test]
    fn the_loss_is_told_when_nothing_more_is_said() {
        let mut queue = Queue::new();
        put(&mut queue, &"x".repeat(ROOM));
        put(&mut queue, "gone\n");
        let text = all(&mut queue);
        let end = "x\nme: 1 line was lost, the console was full\n";
        assert!(text.ends_with(end), "{:?}", &text[ROOM - 8..]);
        assert_eq!(all(&mut queue), "");
    }

    #[test]
    fn a_line_in_pieces_is_lost_from_the_first_piece_that_is() {
        let mut queue = Queue::new();
        put(&mut queue, &"x".repeat(ROOM - 10));
        let mut whole = true;
        for piece in [&b"begins "[..], b"goes on, ", b"!"] {
            queue.put(piece, &mut whole, "me");
        }
        let text = all(&mut queue);
        let end = "xbegins \nme: 1 line was lost, the console was full\n";
        assert!(text.ends_with(end), "{:?}", &text[ROOM - 20..]);
    }

    #[test]
    fn what_the_console_takes_at_once_is_given_in_order() {
        let mut queue = Queue::new();
        put(&mut queue, "one\n");
        put(&mut queue, "two\n");
        let mut got = String::new();
        queue.give("me", |bytes| {
            let taken = bytes.len().min(5 - got.len());
            got += core::str::from_utf8(&bytes[..taken]).expect("text");
            taken
        });
        assert_eq!(got, "one\nt");
        assert_eq!(all(&mut queue), "wo\n");
    }
}
