//! The program `image`: tools for the image of a checkpoint that do not restore it.
//!
//! The descriptions of an image come from [`checkpoint_image::tool`] and, of the part of Linux, from
//! [`personality::part`]: the libraries of the servers that restore it. Here are the command line and its work on
//! files, for the host (`tools/image`) and for the guest (`main.rs`), which supply their files ([`Files`]).
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use checkpoint_image::chain::Bytes;
use checkpoint_image::meta::{Meta, Parent};
use checkpoint_image::tool::{diff, dump, plain, show, Whole};
use personality::part::Shown;

/// How it is used.
pub const USAGE: &str = "\
Says what is in the image of a checkpoint, checks it, compares two, takes something out of one, or makes one of a chain.
An incremental image is read with those that it is based on, which lie beside it under the names that they had (in the
machine itself also where they were).

  image show IMAGE                          what is in it: processes, what they have open, threads, objects, pages
  image check IMAGE                         all of it; the status is 0 only if it is sound
  image diff BEFORE THEN                    how two differ; the status is 0 if they do not, 1 if they do
  image extract --core PROCESS IMAGE FILE   memory and threads of a process, by number or name, as a core file:
                                            gdb PROGRAM FILE
  image extract --file NAME IMAGE FILE      a file that the image has, by its path or the number that `show` gives
  image merge IMAGE FILE                    one whole image of an incremental one and those that it is based on, or of
                                            a compressed one, whose pages are as they are
  image merge --compress IMAGE FILE         the same, its pages compressed

FILE is a path where nothing is yet. The status is 1 if something cannot be done, of `diff` then 2, and 2 if it is not
understood.
";

/// The files of the system that runs the tool.
pub trait Files {
    /// A file that is read.
    type File: Bytes;
    /// A file that is made, and gets its name when it is complete. If it is dropped before, nothing of it is left.
    type New: New;
    /// Opens a file.
    ///
    /// # Errors
    /// A sentence that names it.
    fn open(&self, path: &str) -> Result<Self::File, String>;
    /// Makes a file at a path where nothing exists.
    ///
    /// # Errors
    /// A sentence that names it, also if something exists there.
    fn create(&self, path: &str) -> Result<Self::New, String>;
    /// The paths at which the parent of the image at `child` may be, which was at `parent` when the image was written.
    /// The first one with the right image is used.
    fn places(&self, child: &str, parent: &str) -> Vec<String>;
    /// Whether there is memory for so many bytes more.
    fn room(&self, bytes: u64) -> bool;
    /// Prints.
    ///
    /// # Errors
    /// A sentence.
    fn print(&self, text: &str) -> Result<(), String>;
    /// Reports that so many of all bytes have been read or written.
    fn progress(&self, _done: u64, _all: u64) {}
}

/// A file that is made.
pub trait New {
    /// Writes bytes at an offset; offsets without bytes read as zero.
    ///
    /// # Errors
    /// A sentence.
    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), String>;
    /// Completes the file.
    ///
    /// # Errors
    /// A sentence.
    fn keep(self) -> Result<(), String>;
}

/// The command.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verb<'a> {
    Show {
        image: &'a str,
    },
    Check {
        image: &'a str,
    },
    Diff {
        before: &'a str,
        then: &'a str,
    },
    Extract {
        what: What<'a>,
        image: &'a str,
        to: &'a str,
    },
    Merge {
        compress: bool,
        image: &'a str,
        to: &'a str,
    },
    Help,
}

/// What to extract from an image.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What<'a> {
    Core(&'a str),
    File(&'a str),
}

impl<'a> Verb<'a> {
    fn read(arguments: &[&'a str]) -> Option<Self> {
        Some(match *arguments {
            ["show", image] => Verb::Show { image },
            ["check", image] => Verb::Check { image },
            ["diff", before, then] => Verb::Diff { before, then },
            ["extract", "--core", process, image, to] => {
                let what = What::Core(process);
                Verb::Extract { what, image, to }
            }
            ["extract", "--file", name, image, to] => {
                let what = What::File(name);
                Verb::Extract { what, image, to }
            }
            ["merge", "--compress", image, to] => Verb::Merge {
                compress: true,
                image,
                to,
            },
            ["merge", image, to] => Verb::Merge {
                compress: false,
                image,
                to,
            },
            ["help" | "--help" | "-h"] => Verb::Help,
            _ => return None,
        })
    }
}

/// Executes the command of the arguments. Returns the exit status, or a sentence to print as an error, and the status.
///
/// # Errors
/// What went wrong.
pub fn run(arguments: &[&str], files: &impl Files) -> Result<u8, (String, u8)> {
    let Some(verb) = Verb::read(arguments) else {
        let sentence = match arguments {
            [] => "it is not said what is to be done".to_string(),
            all => format!("'{}' is not understood", all.join(" ")),
        };
        return Err((format!("{sentence}; `image help` says how it is used"), 2));
    };
    let failure = match verb {
        Verb::Diff { .. } => 2,
        _ => 1,
    };
    act(&verb, files).map_err(|sentence| (sentence, failure))
}

fn act<F: Files>(verb: &Verb, files: &F) -> Result<u8, String> {
    match *verb {
        Verb::Help => files.print(USAGE)?,
        Verb::Show { image } => {
            let mut text = String::new();
            let mut first = 0;
            let part = |manager: &str, bytes: &[u8]| part(manager, bytes, &mut first, files);
            show::show(&mut open(image, files)?, part, &mut text).map_err(|_| "cannot print")?;
            files.print(&text)?;
        }
        Verb::Check { image } => {
            let parents = check(image, files)?;
            let sentence = match parents {
                0 => "sound, and whole".to_string(),
                1 => "sound, with the image that it is based on".to_string(),
                many => format!("sound, with the {many} images that it is based on"),
            };
            files.print(&format!("{image}: {sentence}\n"))?;
        }
        Verb::Diff { before, then } => {
            let (mut before, mut then) = (open(before, files)?, open(then, files)?);
            let mut text = String::new();
            let count = diff::diff(&mut before, &mut then, &mut text)?;
            files.print(&text)?;
            return Ok(u8::from(count > 0));
        }
        Verb::Extract {
            ref what,
            image,
            to,
        } => extract(what, &mut open(image, files)?, to, files)?,
        Verb::Merge {
            compress,
            image,
            to,
        } => {
            let mut whole = open(image, files)?;
            let mut new = files.create(to)?;
            let all = whole.stretches().iter().map(|(_, bytes)| bytes).sum();
            let length = whole.write_merged(compress, |at, bytes| {
                files.progress(at, all);
                new.put(at, bytes)
            })?;
            new.keep()?;
            files.print(&format!("{to}: {length} bytes, based on no other\n"))?;
        }
    }
    Ok(0)
}

/// Opens an image with its parents.
fn open<F: Files>(path: &str, files: &F) -> Result<Whole<F::File>, String> {
    // The path of the image whose parent is searched for, and the path that was tried last.
    let (mut child, mut last) = (path.to_string(), path.to_string());
    let find = |parent: &Parent, number: usize| {
        if number == 0 {
            child.clone_from(&last);
        }
        let place = files.places(&child, &parent.path).into_iter().nth(number)?;
        // The name is a text of the image, and the error, which contains it, is shown.
        let opened = files.open(&place).map_err(|why| plain(&why));
        last = place;
        Some(opened)
    };
    let whole = Whole::open(files.open(path)?, find, |bytes| files.room(bytes));
    whole.map_err(|why| format!("{path}: {why}"))
}

/// Checks all of an image, the managers' parts too. Returns how many parents it has.
fn check<F: Files>(path: &str, files: &F) -> Result<usize, String> {
    let mut whole = open(path, files)?;
    let (all, mut done) = (whole.page_bytes(), 0);
    let checked = whole.check(|bytes| {
        done += bytes;
        files.progress(done, all);
    });
    checked.map_err(|(number, why)| {
        // The image is named by the given path, each parent by the name that its child has for it.
        match number.checked_sub(1) {
            None => format!("{path}: {why}"),
            Some(number) => {
                let names: Vec<_> = whole.names().collect();
                let name = plain(names.get(number).copied().unwrap_or_default());
                format!("{name}, on which it is based: {why}")
            }
        }
    })?;
    linux(&whole.meta)
        .try_for_each(|(number, part)| {
            let counts = Some(counts(&whole.meta, number));
            shown(part, counts, files).map(|_| ())
        })
        .map_err(|why| format!("{path}: {why}"))?;
    Ok(whole.parents())
}

/// The parts of Linux, each with the number of its process.
fn linux(meta: &Meta) -> impl Iterator<Item = (usize, &[u8])> {
    let processes = meta.processes.iter().enumerate();
    let of_linux = processes.filter(|(_, one)| one.manager == "linux" && one.member == 0);
    of_linux.map(|(number, process)| (number, &process.part[..]))
}

/// The numbers of memories, and of pieces of memory that these share, which the image has of the tree whose first
/// process has this number; the members of the tree follow it.
fn counts(meta: &Meta, root: usize) -> (usize, usize) {
    let members = meta.processes.iter().skip(root + 1);
    let members = members.take_while(|process| process.member > 0);
    members.fold((1, 0), |(own, shared), process| match process.shared {
        true => (own, shared + 1),
        false => (own + 1, shared),
    })
}

/// A part of Linux, of so many memories and pieces of shared memory, if these are to be checked.
fn shown(part: &[u8], counts: Option<(usize, usize)>, files: &impl Files) -> Result<Shown, String> {
    let shown = Shown::read(part, counts, |bytes| files.room(bytes));
    shown.map_err(|why| format!("the part of Linux cannot be read: {why}"))
}

/// The description of a manager's part, whose files are numbered from `first` on. Advances `first` to the number for
/// the next part.
fn part(manager: &str, bytes: &[u8], first: &mut usize, files: &impl Files) -> Vec<String> {
    match (manager, bytes) {
        (_, []) => Vec::new(),
        ("linux", bytes) => match shown(bytes, None, files) {
            Ok(shown) => {
                let lines = shown.lines(*first);
                *first += shown.contents().count();
                lines
            }
            Err(why) => vec![why],
        },
        (_, bytes) => vec![format!("{} bytes of its manager's", bytes.len())],
    }
}

fn extract<F: Files>(
    what: &What,
    whole: &mut Whole<F::File>,
    to: &str,
    files: &F,
) -> Result<(), String> {
    let mut new = files.create(to)?;
    match *what {
        What::Core(process) => {
            let number = dump::find(&whole.meta, process)?;
            dump::write(whole, number, |at, bytes| new.put(at, bytes))?;
        }
        What::File(name) => {
            let parts = linux(&whole.meta).map(|(_, part)| shown(part, None, files));
            let parts: Vec<Shown> = parts.collect::<Result<_, _>>()?;
            // Numbers count through all trees, as in `show`.
            let all = parts.iter().flat_map(Shown::contents).enumerate();
            let number = name.parse().ok();
            let mut found = all.filter(|(n, (path, ..))| *path == Some(name) || number == Some(*n));
            let (_, (.., contents)) = found.next().ok_or_else(|| {
                format!("the image has no file '{name}'; `image show` lists those that it has")
            })?;
            if found.next().is_some() {
                return Err(format!(
                    "several trees of the image have a file '{name}'; each has a number in `image show`"
                ));
            }
            new.put(0, contents)?;
        }
    }
    new.keep()
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkpoint_image::meta::Process;

    #[test]
    fn members_are_counted_with_their_tree() {
        let process = |member, shared| Process {
            manager: "linux".into(),
            member,
            shared,
            name: "one".into(),
            part: vec![7],
        };
        let meta = Meta {
            processes: vec![
                process(0, false),
                process(1, false),
                process(2, true),
                process(0, false),
                process(0, false),
                process(1, true),
                process(2, true),
            ],
            ..Meta::default()
        };
        let all: Vec<_> = linux(&meta).map(|(n, _)| (n, counts(&meta, n))).collect();
        assert_eq!(all, [(0, (2, 1)), (3, (1, 0)), (4, (1, 2))]);
    }

    #[test]
    fn arguments_are_understood_or_refused() {
        let show = Verb::Show { image: "a" };
        assert_eq!(Verb::read(&["show", "a"]), Some(show));
        let core = Verb::Extract {
            what: What::Core("sh"),
            image: "a",
            to: "b",
        };
        assert_eq!(
            Verb::read(&["extract", "--core", "sh", "a", "b"]),
            Some(core)
        );
        for wrong in [
            &[][..],
            &["show"],
            &["show", "a", "b"],
            &["extract", "a", "b"],
            &["walk", "a"],
        ] {
            assert_eq!(Verb::read(wrong), None, "{wrong:?}");
        }
        for line in USAGE
            .lines()
            .filter_map(|line| line.strip_prefix("  image "))
        {
            let words = line.split("  ").next().unwrap_or_default();
            let words: Vec<_> = words.split(' ').collect();
            assert!(Verb::read(&words).is_some(), "{words:?}");
        }
    }
}
