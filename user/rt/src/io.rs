//! Standard streams, and the macros that write to them.
//!
//! Where each goes is in the start information: the console, nowhere, or a file. The path of a file and the position in
//! it live in the program's own memory: so a program that is restored, perhaps with another file system in another
//! boot, opens it again and continues at that position.
use crate::fs::{File, Flags};
use crate::sync::Mutex;
use alloc::string::ToString;
use alloc::vec;
use core::fmt::{self, Write};
use proto::Error;
use services::process::Stdio;

/// Bytes that [`carry`] moves at a time.
const BLOCK: usize = 32 * 1024;

/// Copies a stream: passes the bytes that `read` puts into a buffer, and whose number it returns, to `write`, until
/// there are none.
///
/// # Errors
/// Those of either.
pub fn carry<E>(
    mut read: impl FnMut(&mut [u8]) -> Result<usize, E>,
    mut write: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut block = vec![0; BLOCK];
    loop {
        match read(&mut block)? {
            0 => return Ok(()),
            count => write(&block[..count])?,
        }
    }
}

/// A stream by number: 0 input, 1 output, 2 errors.
struct Stream {
    number: usize,
    /// The file has been opened before: it is not cut again.
    begun: bool,
    file: Option<File>,
    offset: u64,
}

impl Stream {
    const fn new(number: usize) -> Self {
        Stream {
            number,
            begun: false,
            file: None,
            offset: 0,
        }
    }

    fn target(&self) -> &'static Stdio {
        crate::start()
            .stdio
            .get(self.number)
            .unwrap_or(&Stdio::Console)
    }

    /// Does something with the file. Opens it at first, and once more if it is gone, since the program was restored
    /// without it; a file for output is then made.
    fn with<T>(
        &mut self,
        path: &str,
        append: bool,
        mut act: impl FnMut(&File) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if let Some(file) = &self.file {
            match act(file) {
                Err(Error::NotFound) => self.file = None,
                result => return result,
            }
        }
        let output = self.number != 0;
        let flags = Flags {
            create: output,
            truncate: output && !append && !self.begun,
            ..Flags::default()
        };
        let file = self.file.insert(File::open(path, flags, 0o644)?);
        self.begun = true;
        act(file)
    }

    fn write(&mut self, mut from: &[u8]) -> Result<(), Error> {
        match self.target() {
            Stdio::Console => crate::console::write_all(from),
            Stdio::Null => Ok(()),
            Stdio::File { path, append } => {
                while !from.is_empty() {
                    let offset = self.offset;
                    let (length, at) = self.with(path, *append, |file| match append {
                        true => file.append(from),
                        false => file.write(offset, from).map(|length| (length, offset)),
                    })?;
                    if length == 0 {
                        return Err(Error::NoMemory);
                    }
                    self.offset = at + length as u64;
                    from = &from[length..];
                }
                Ok(())
            }
        }
    }

    fn read(&mut self, to: &mut [u8]) -> Result<usize, Error> {
        match self.target() {
            Stdio::Console => crate::console::read(to),
            Stdio::Null => Ok(0),
            Stdio::File { path, .. } => {
                let offset = self.offset;
                let length = self.with(path, false, |file| file.read(offset, to))?;
                self.offset += length as u64;
                Ok(length)
            }
        }
    }
}

static STREAMS: [Mutex<Stream>; 3] = [
    Mutex::new(Stream::new(0)),
    Mutex::new(Stream::new(1)),
    Mutex::new(Stream::new(2)),
];

/// Closes the files to which output goes: the program ends, and its output is to be durable before others learn that.
/// Returns whether all of it is, and logs a line if not.
pub(crate) fn finish() -> bool {
    // A thread that panics may hold the lock of a stream, or of the files. The server closes open files when the
    // program has ended.
    if crate::panic::is_panicking() {
        return true;
    }
    let mut is_whole = true;
    for stream in &STREAMS[1..] {
        // The lock is only tried: a thread that ends the program in the middle of a line would wait for itself, and
        // what other threads still write is lost anyway.
        let Some(file) = stream.try_lock().and_then(|mut stream| stream.file.take()) else {
            continue;
        };
        let path = file.path().to_string();
        match file.close() {
            // The file is no longer open since its name is gone or names another file: nobody can miss the output.
            Ok(()) | Err(Error::NotFound) => {}
            Err(error) => {
                is_whole = false;
                let name = crate::start().args.first();
                let name = name.map_or("program", |name| name.as_str());
                crate::log!("{name}: {path}: {}", error.text());
            }
        }
    }
    is_whole
}

/// Whether this standard stream, of 0 to 2, is the console.
#[must_use]
pub fn is_console(number: usize) -> bool {
    STREAMS
        .get(number)
        .is_some_and(|stream| *stream.lock().target() == Stdio::Console)
}

/// Reads from standard input; 0 at its end. Waits for the console.
pub fn read(to: &mut [u8]) -> Result<usize, Error> {
    STREAMS[0].lock().read(to)
}

/// Writes to standard output.
pub fn write(from: &[u8]) -> Result<(), Error> {
    STREAMS[1].lock().write(from)
}

/// Writes to standard error.
pub fn write_error(from: &[u8]) -> Result<(), Error> {
    STREAMS[2].lock().write(from)
}

/// Collects the pieces of one `print!`, so that it is one write.
struct Line<'a> {
    buffer: [u8; 512],
    length: usize,
    sink: &'a mut dyn FnMut(&[u8]),
}

impl Line<'_> {
    fn flush(&mut self) {
        if self.length > 0 {
            (self.sink)(&self.buffer[..self.length]);
            self.length = 0;
        }
    }
}

impl Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.length == self.buffer.len() {
                self.flush();
            }
            self.buffer[self.length] = byte;
            self.length += 1;
        }
        Ok(())
    }
}

/// Formats, and gives the text to `sink` in pieces.
pub(crate) fn format(arguments: fmt::Arguments<'_>, sink: &mut dyn FnMut(&[u8])) {
    let mut line = Line {
        buffer: [0; 512],
        length: 0,
        sink,
    };
    let _ = line.write_fmt(arguments);
    line.flush();
}

#[doc(hidden)]
pub fn print(arguments: fmt::Arguments<'_>) {
    let mut stream = STREAMS[1].lock();
    format(arguments, &mut |bytes| {
        let _ = stream.write(bytes);
    });
}

#[doc(hidden)]
pub fn print_error(arguments: fmt::Arguments<'_>) {
    let mut stream = STREAMS[2].lock();
    format(arguments, &mut |bytes| {
        let _ = stream.write(bytes);
    });
}

/// Writes to standard output.
#[macro_export]
macro_rules! print {
    ($($arguments:tt)*) => { $crate::io::print(core::format_args!($($arguments)*)) };
}

/// Writes a line to standard output.
#[macro_export]
macro_rules! println {
    () => { $crate::io::print(core::format_args!("\n")) };
    ($($arguments:tt)+) => {
        $crate::io::print(core::format_args!("{}\n", core::format_args!($($arguments)+)))
    };
}

/// Writes a line to standard error.
#[macro_export]
macro_rules! eprintln {
    () => { $crate::io::print_error(core::format_args!("\n")) };
    ($($arguments:tt)+) => {
        $crate::io::print_error(core::format_args!("{}\n", core::format_args!($($arguments)+)))
    };
}

/// Writes a line to the console, for the people who run the system, without waiting for the console:
/// [`log`](mod@crate::log).
#[macro_export]
macro_rules! log {
    ($($arguments:tt)+) => {
        $crate::log::say(core::format_args!("{}\n", core::format_args!($($arguments)+)))
    };
}
