//! The small programs of the shell, in one executable: the first argument selects one.
//!
//! They are ordinary native programs: they can be stopped, saved and restored like any other. So nothing here may rely
//! on state outside of the program's own memory: deadlines are absolute, and a file is found again by its path.
#![no_std]
#![no_main]

extern crate alloc;

mod progress;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use fermata_shell::jobs::Manager;
use fermata_shell::list;
use fermata_shell::text::{
    absolute_path, base_name, date, duration, echo, is_kept, join, mode_text, options,
};
use fermata_shell::ways::{self, PIPE};
use proto::Error;
use rt::checkpoint::plain;
use rt::fs::{self, mode, Attr, File, Flags};
use rt::obj::Port;
use rt::process::Process;
use rt::{io, print, println};

rt::entry!(main);

/// Bytes moved at a time.
const BLOCK: usize = 32 * 1024;

/// Why a program ends with a status other than 0.
enum Failure {
    /// It was used wrongly: status 2.
    Usage(String),
    /// Something about this file or argument: status 1.
    About(String, Error),
    /// The message has been printed already; this is the status.
    Status(u8),
}

type Done = Result<(), Failure>;

/// The absolute path for a path as the user wrote it.
fn place(path: &str) -> String {
    absolute_path(&rt::start().cwd, path)
}

fn about(path: &str) -> impl FnOnce(Error) -> Failure + '_ {
    move |error| Failure::About(path.to_string(), error)
}

fn usage(text: &str) -> Failure {
    Failure::Usage(format!("usage: {text}"))
}

fn say(name: &str, text: &str) {
    rt::eprintln!("{name}: {text}");
}

fn main() -> u8 {
    let arguments = rt::start().args.as_slice();
    let (name, arguments) = match arguments.split_first() {
        Some((name, rest)) if base_name(name) != "tools" => (base_name(name), rest),
        Some((_, [name, rest @ ..])) => (name.as_str(), rest),
        _ => ("tools", arguments),
    };
    let result = match name {
        "cat" => cat(arguments),
        "checkpoint" => checkpoint(arguments),
        "cmp" => cmp(arguments),
        "cp" => cp(arguments),
        "date" => today(arguments),
        "echo" => io::write(echo(arguments).as_bytes()).map_err(about("output")),
        "false" => Err(Failure::Status(1)),
        "ln" => ln(arguments),
        "ls" => ls(arguments),
        "mkdir" => mkdir(arguments),
        "mv" => mv(arguments),
        "processes" => processes(arguments),
        "restore" => restore(arguments),
        "rm" => rm(arguments),
        "rmdir" => {
            paths(arguments).and_then(|paths| each(name, paths, |path| fs::rmdir(&place(path))))
        }
        "sleep" => sleep(arguments),
        "touch" => paths(arguments).and_then(|paths| each(name, paths, touch)),
        "true" => Ok(()),
        _ => Err(usage("tools NAME [ARGUMENT]...")),
    };
    match result {
        Ok(()) => 0,
        Err(Failure::Usage(sentence)) => {
            say(name, &sentence);
            2
        }
        Err(Failure::About(what, error)) => {
            say(name, &format!("{what}: {}", error.text()));
            1
        }
        Err(Failure::Status(status)) => status,
    }
}

/// The arguments of a program without options. A path that begins with `-` stands behind `--`.
fn paths(arguments: &[String]) -> Result<&[String], Failure> {
    let (_, paths) = options(arguments, "").map_err(Failure::Usage)?;
    Ok(paths)
}

/// Does something for each path; goes on after a failure.
fn each(name: &str, paths: &[String], mut action: impl FnMut(&str) -> Result<(), Error>) -> Done {
    if paths.is_empty() {
        return Err(usage(&format!("{name} PATH...")));
    }
    let mut done = Ok(());
    for path in paths {
        if let Err(error) = action(path) {
            say(name, &format!("{path}: {}", error.text()));
            done = Err(Failure::Status(1));
        }
    }
    done
}

fn today(arguments: &[String]) -> Done {
    if !arguments.is_empty() {
        return Err(usage("date"));
    }
    let seconds = rt::time::date().map_err(about("the clock"))? / 1_000_000_000;
    println!("{}:{:02} UTC", date(seconds), seconds % 60);
    Ok(())
}

/// The process that a word names: `native:7`, or the number of a Linux process.
fn process(word: &str) -> Result<Process, Failure> {
    let (manager, pid) = word
        .split_once(':')
        .unwrap_or((Manager::Linux.name(), word));
    let pid = pid.parse();
    let (Some(manager), Ok(pid)) = (Manager::from_name(manager), pid) else {
        let why = format!("{word}: not a process, as native:7 is, or 7 of Linux");
        return Err(Failure::Usage(why));
    };
    match rt::system::supervisor(manager.name()).and_then(|all| all.process(pid)) {
        Ok(process) => Ok(process),
        Err(Error::NotFound) => Err(Failure::Usage(format!("{word}: no such process"))),
        Err(error) => Err(Failure::About(word.into(), error)),
    }
}

/// Lists all processes, Fermata's own and those of Linux, or ends, stops or resumes some of them. Needs the system
/// port, as [`checkpoint`].
fn processes(arguments: &[String]) -> Done {
    let wrong = || usage("processes [kill|stop|continue [KIND:]NUMBER...]");
    let Some((what, words)) = arguments.split_first() else {
        println!("{}", list::HEADING);
        let mut done = Ok(());
        for manager in Manager::ALL {
            let all = rt::system::supervisor(manager.name()).and_then(|all| all.list());
            if let Err(error) = all {
                say(
                    "processes",
                    &format!("{}: {}", manager.name(), error.text()),
                );
                done = Err(Failure::Status(1));
            }
            for info in all.unwrap_or_default() {
                println!("{}", list::process(manager, &info));
                list::threads(&info).for_each(|thread| println!("{thread}"));
            }
        }
        return done;
    };
    let act = match what.as_str() {
        "kill" => Process::kill,
        "stop" => Process::stop,
        "continue" => Process::resume,
        _ => return Err(wrong()),
    };
    if words.is_empty() {
        return Err(wrong());
    }
    let mut done = Ok(());
    for word in words {
        let why = match process(word) {
            Ok(process) => match act(&process) {
                Ok(()) => continue,
                Err(error) => format!("{word}: {}", error.text()),
            },
            Err(Failure::Usage(why)) => why,
            Err(Failure::About(_, error)) => format!("{word}: {}", error.text()),
            Err(status @ Failure::Status(_)) => return Err(status),
        };
        say("processes", &why);
        done = Err(Failure::Status(1));
    }
    done
}

/// Saves processes by their numbers, as the shell's command of that name does with jobs: `checkpoint linux:7 FILE`. A
/// number alone is that of a Linux process, as `$!` in a Linux shell. It needs the system port, which a program gets if
/// it is called by `trust`.
fn checkpoint(arguments: &[String]) -> Done {
    let wrong = || {
        let ways = "[--files] [--stop] [--cut] [--compress] [--parent IMAGE]";
        usage(&format!("checkpoint [-v] {ways} [KIND:]NUMBER... FILE|-"))
    };
    let ways = ways::read(arguments);
    let refused = |why: String| {
        say("checkpoint", &plain(&why));
        Failure::Status(1)
    };
    let refuse = ways.refuse(io::is_console(1));
    refuse.map_err(|why| refused(why.to_string()))?;
    let parent = ways.parent.map(place);
    let Some((file, words)) = ways.file_and_words() else {
        return Err(wrong());
    };
    let mut processes = Vec::new();
    for word in words {
        processes.push(process(word)?);
    }
    let ports: Vec<_> = processes.iter().map(|process| **process.port()).collect();
    let how = ways.how(parent.as_deref());
    if file == PIPE {
        let passing = Passing::new().map_err(about(PASSING))?;
        rt::checkpoint::save_with(&ports, &passing.path, how).map_err(refused)?;
        let mut reader = Reader::open(&passing.path).map_err(about("the image"))?;
        // The file is removed first, so that nothing is left if this program is ended while it copies.
        drop(passing);
        return pour(|block| reader.read(block)).map_err(about("output"));
    }
    let save = || rt::checkpoint::save_with(&ports, &place(file), how);
    let saved = told("checkpoint", save).map_err(refused)?;
    if ways.verbose {
        println!("{file}: {} bytes", saved.bytes);
        saved
            .doing
            .iter()
            .for_each(|doing| println!("  {}", plain(doing)));
    }
    Ok(())
}

/// Makes a request that may take long. Shows its progress if output and errors go to the console.
fn told<T>(what: &'static str, ask: impl FnOnce() -> T) -> T {
    match io::is_console(1) && io::is_console(2) {
        true => progress::told(what, ask),
        false => ask(),
    }
}

/// The directory of images that are copied from or to streams.
const PASSING: &str = "/run/passing";

/// A temporary file for an image that is copied from or to a stream; removed when this is dropped. If the program is
/// ended before, the next one that makes such a file removes it.
struct Passing {
    path: String,
    /// Registered by a name as long as the program lives.
    _mark: Port,
}

impl Passing {
    fn new() -> Result<Self, Error> {
        match fs::mkdir(PASSING, 0o755) {
            Ok(()) | Err(Error::Exists) => {}
            Err(error) => return Err(error),
        }
        for entry in entries(PASSING)? {
            if rt::names::lookup(&mark(&entry.name)).err() == Some(Error::NotFound) {
                let _ = fs::unlink(&join(PASSING, &entry.name));
            }
        }
        // No other program makes one in the same nanosecond, since making one takes longer.
        let path = join(PASSING, &rt::time::now().to_string());
        let port = Port::new().map_err(rt::error_of)?;
        rt::names::register(&mark(base_name(&path)), &port)?;
        Ok(Passing { path, _mark: port })
    }
}

/// The registered name of the program that owns this file. The checkpointer writes the file under a longer name first.
fn mark(file: &str) -> String {
    let number = file.split('.').next().unwrap_or_default();
    format!("passing-{number}")
}

impl Drop for Passing {
    fn drop(&mut self) {
        let _ = fs::unlink(&self.path);
    }
}

/// Restores the processes that were saved in a file, or in the image at its input; they run on without this program.
fn restore(arguments: &[String]) -> Done {
    let (lazy, file) = match arguments {
        [word, file] if word == "--lazy" => (true, file),
        [file] if file != "--lazy" => (false, file),
        _ => return Err(usage("restore [--lazy] FILE|-")),
    };
    let mut path = place(file);
    let mut passing = None;
    if file == PIPE {
        let passed = passing.insert(Passing::new().map_err(about(PASSING))?);
        let flags = Flags {
            create: true,
            exclusive: true,
            ..Flags::default()
        };
        let image = File::open(&passed.path, flags, 0o600).map_err(about(&passed.path))?;
        let mut length = 0;
        io::carry(
            |block| io::read(block).map_err(about("input")),
            |block| {
                let at = length;
                length += block.len() as u64;
                image.write_all(at, block).map_err(about(&passed.path))
            },
        )?;
        path.clone_from(&passed.path);
    }
    // The checkpointer keeps the file open as long as it needs it.
    let restored = told("restore", || match lazy {
        true => rt::checkpoint::restore_lazily(&path),
        false => rt::checkpoint::restore_and_tell(&path),
    });
    drop(passing);
    let restored = restored.map_err(|why| {
        // The user does not know the temporary name.
        let why = match file.as_str() {
            PIPE => why.replace(&path, PIPE),
            _ => why,
        };
        say("restore", &plain(&why));
        Failure::Status(1)
    })?;
    for sentence in restored.sentences() {
        say("restore", &plain(sentence));
    }
    for (manager, name, process) in restored.processes {
        println!("{manager}:{}  {}", process.pid(), plain(&name));
    }
    Ok(())
}

fn sleep(arguments: &[String]) -> Done {
    let [text] = arguments else {
        return Err(usage("sleep NUMBER[s|m|h|d]"));
    };
    let Some(ns) = duration(text) else {
        return Err(Failure::Usage(format!("{text}: not a number of seconds")));
    };
    rt::time::sleep_until(rt::time::now().saturating_add(ns));
    Ok(())
}

/// A file that is read from its beginning.
struct Reader {
    file: File,
    offset: u64,
}

impl Reader {
    fn open(path: &str) -> Result<Self, Error> {
        Ok(Reader {
            file: File::open(&place(path), Flags::default(), 0)?,
            offset: 0,
        })
    }

    fn read(&mut self, to: &mut [u8]) -> Result<usize, Error> {
        let count = self.file.read(self.offset, to)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// Copies a stream to standard output.
fn pour(read: impl FnMut(&mut [u8]) -> Result<usize, Error>) -> Result<(), Error> {
    io::carry(read, io::write)
}

fn cat(arguments: &[String]) -> Done {
    let (_, paths) = options(arguments, "u").map_err(Failure::Usage)?;
    if paths.is_empty() {
        return pour(io::read).map_err(about("input"));
    }
    each("cat", paths, |path| {
        if path == "-" {
            return pour(io::read);
        }
        let mut reader = Reader::open(path)?;
        let special = [rt::fs::CONSOLE_INO, rt::fs::TTY_INO];
        if special.contains(&reader.file.ino()) {
            return pour(rt::console::read);
        }
        pour(|block| reader.read(block))
    })
}

fn cmp(arguments: &[String]) -> Done {
    let [a, b] = paths(arguments)? else {
        return Err(usage("cmp FILE FILE"));
    };
    let mut readers = (
        Reader::open(a).map_err(about(a))?,
        Reader::open(b).map_err(about(b))?,
    );
    let mut blocks = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut offset = 0;
    loop {
        let counts = (
            readers.0.read(&mut blocks.0).map_err(about(a))?,
            readers.1.read(&mut blocks.1).map_err(about(b))?,
        );
        let (first, second) = (&blocks.0[..counts.0], &blocks.1[..counts.1]);
        if let Some(place) = first.iter().zip(second).position(|(a, b)| a != b) {
            println!("{a} {b} differ: byte {}", offset + place + 1);
            return Err(Failure::Status(1));
        }
        if counts.0 != counts.1 {
            let shorter = if counts.0 < counts.1 { a } else { b };
            println!(
                "{shorter} ends after byte {}",
                offset + counts.0.min(counts.1)
            );
            return Err(Failure::Status(1));
        }
        if counts.0 == 0 {
            return Ok(());
        }
        offset += counts.0;
    }
}

fn is_directory(path: &str) -> bool {
    fs::stat(&place(path), true).is_ok_and(|attr| attr.mode & mode::TYPE == mode::DIRECTORY)
}

/// Does something for each source and its place in the last argument: the argument itself, or if it is a directory the
/// source's name in it.
fn into_last(
    name: &str,
    arguments: &[String],
    action: impl Fn(&str, &str) -> Result<(), Error>,
) -> Done {
    let Some((to, from)) = paths(arguments)?
        .split_last()
        .filter(|(_, from)| !from.is_empty())
    else {
        return Err(usage(&format!("{name} FROM... TO")));
    };
    let directory = is_directory(to);
    if from.len() > 1 && !directory {
        return Err(Failure::About(to.clone(), Error::NotDirectory));
    }
    each(name, from, |from| {
        let to = if directory {
            join(to, base_name(from))
        } else {
            to.clone()
        };
        action(from, &to)
    })
}

fn cp(arguments: &[String]) -> Done {
    into_last("cp", arguments, copy)
}

fn copy(from: &str, to: &str) -> Result<(), Error> {
    let mut reader = Reader::open(from)?;
    if reader.file.opened().mode & mode::TYPE == mode::DIRECTORY {
        return Err(Error::IsDirectory);
    }
    let there = fs::stat(&place(to), true);
    if there.is_ok_and(|there| there.ino == reader.file.ino()) {
        return Err(Error::Exists);
    }
    let flags = Flags {
        create: true,
        truncate: true,
        ..Flags::default()
    };
    let target = File::open(&place(to), flags, reader.file.opened().mode & 0o777)?;
    let mut length = 0;
    io::carry(
        |block| reader.read(block),
        |block| {
            let at = length;
            length += block.len() as u64;
            target.write_all(at, block)
        },
    )?;
    // A move removes the source next, so the copy must be durable.
    target.close()
}

fn mv(arguments: &[String]) -> Done {
    into_last("mv", arguments, |from, to| {
        let (old, new) = (place(from), place(to));
        match fs::rename(&old, &new) {
            // Moves to or from the disk can only copy the contents of a file.
            Err(Error::Unsupported) => {
                if fs::stat(&old, false)?.mode & mode::TYPE != mode::FILE {
                    return Err(Error::Unsupported);
                }
                copy(from, to)?;
                fs::unlink(&old)
            }
            renamed => renamed,
        }
    })
}

fn ln(arguments: &[String]) -> Done {
    let (found, paths) = options(arguments, "s").map_err(Failure::Usage)?;
    let [target, path] = paths else {
        return Err(usage("ln [-s] TARGET PATH"));
    };
    let path = if is_directory(path) {
        join(path, base_name(target))
    } else {
        path.clone()
    };
    let made = if found.contains('s') {
        fs::symlink(target, &place(&path))
    } else {
        fs::link(&place(target), &place(&path))
    };
    made.map_err(about(&path))
}

fn touch(path: &str) -> Result<(), Error> {
    let flags = Flags {
        create: true,
        ..Flags::default()
    };
    let file = File::open(&place(path), flags, 0o644)?;
    let now = rt::time::now();
    fs::utimens(file.ino(), now, now)?;
    file.close()
}

fn mkdir(arguments: &[String]) -> Done {
    let (found, paths) = options(arguments, "p").map_err(Failure::Usage)?;
    each("mkdir", paths, |path| {
        if !found.contains('p') {
            return fs::mkdir(&place(path), 0o755);
        }
        let whole = place(path);
        let ends = whole
            .match_indices('/')
            .map(|(end, _)| end)
            .chain([whole.len()]);
        for end in ends.filter(|end| *end > 0) {
            match fs::mkdir(&whole[..end], 0o755) {
                Err(Error::Exists) if is_directory(&whole[..end]) => {}
                result => result?,
            }
        }
        Ok(())
    })
}

fn rm(arguments: &[String]) -> Done {
    let (found, paths) = options(arguments, "rRf").map_err(Failure::Usage)?;
    let (recursive, force) = (found.contains(['r', 'R']), found.contains('f'));
    if paths.is_empty() && force {
        return Ok(());
    }
    let is_kept = |path: &String| recursive && is_kept(path);
    let (kept, others): (Vec<String>, Vec<String>) = paths.iter().cloned().partition(is_kept);
    let mut done = Ok(());
    for path in &kept {
        say("rm", &format!("{path}: '.', '..' and '/' are not removed"));
        done = Err(Failure::Status(1));
    }
    if others.is_empty() && done.is_err() {
        return done;
    }
    each("rm", &others, |path| {
        match remove(&place(path), recursive) {
            Err(Error::NotFound) if force => Ok(()),
            result => result,
        }
    })?;
    done
}

/// Removes a file, or a directory with everything in it.
fn remove(path: &str, recursive: bool) -> Result<(), Error> {
    match fs::unlink(path) {
        Err(Error::IsDirectory) if recursive => {}
        result => return result,
    }
    for entry in entries(path)? {
        remove(&join(path, &entry.name), true)?;
    }
    fs::rmdir(path)
}

/// The entries of a directory, except `.` and `..`, by name.
fn entries(path: &str) -> Result<Vec<fs::Entry>, Error> {
    let directory = File::open(path, Flags::default(), 0)?;
    let mut all = Vec::new();
    let mut cookie = 0;
    loop {
        let (entries, next) = directory.read_dir(cookie)?;
        if entries.is_empty() {
            break;
        }
        cookie = next;
        all.extend(
            entries
                .into_iter()
                .filter(|entry| entry.name != "." && entry.name != ".."),
        );
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

fn ls(arguments: &[String]) -> Done {
    let (found, paths) = options(arguments, "al1d").map_err(Failure::Usage)?;
    let here = ["".to_string()];
    let paths = if paths.is_empty() { &here[..] } else { paths };
    let mut done = Ok(());
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for path in paths {
        let whole = if path.is_empty() {
            rt::start().cwd.clone()
        } else {
            place(path)
        };
        match fs::stat(&whole, !found.contains('l')).or_else(|_| fs::stat(&whole, false)) {
            Ok(attr) if attr.mode & mode::TYPE == mode::DIRECTORY && !found.contains('d') => {
                directories.push((path, whole));
            }
            Ok(attr) => files.push((path, whole, attr)),
            Err(error) => {
                say("ls", &format!("{path}: {}", error.text()));
                done = Err(Failure::Status(1));
            }
        }
    }
    let long = found.contains('l');
    let blank = !files.is_empty();
    for (path, whole, attr) in files {
        show(
            if path.is_empty() { "." } else { path },
            &whole,
            &attr,
            long,
        );
    }
    for (index, (path, whole)) in directories.iter().enumerate() {
        if paths.len() > 1 {
            let line = if index > 0 || blank { "\n" } else { "" };
            println!("{line}{path}:");
        }
        match entries(whole) {
            Ok(entries) => {
                let dots: &[&str] = if found.contains('a') {
                    &[".", ".."]
                } else {
                    &[]
                };
                let hidden = |name: &str| name.starts_with('.') && !found.contains('a');
                let names = entries
                    .iter()
                    .map(|entry| entry.name.as_str())
                    .filter(|name| !hidden(name));
                for name in dots.iter().copied().chain(names) {
                    let whole = join(whole, name);
                    if !long {
                        println!("{name}");
                    } else if let Ok(attr) = fs::stat(&whole, false) {
                        show(name, &whole, &attr, long);
                    }
                }
            }
            Err(error) => {
                say("ls", &format!("{path}: {}", error.text()));
                done = Err(Failure::Status(1));
            }
        }
    }
    done
}

/// A line of `ls`.
fn show(name: &str, whole: &str, attr: &Attr, long: bool) {
    if !long {
        println!("{name}");
        return;
    }
    print!(
        "{} {:>3} {:>4} {:>4} {:>9} {} {name}",
        mode_text(attr.mode),
        attr.links,
        attr.uid,
        attr.gid,
        attr.size,
        date(attr.mtime_ns / 1_000_000_000)
    );
    if attr.mode & mode::TYPE == mode::SYMLINK {
        if let Ok(target) = fs::readlink(whole) {
            print!(" -> {target}");
        }
    }
    println!();
}
