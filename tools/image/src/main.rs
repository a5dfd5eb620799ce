//! `./fermata image`: what one can do with the image of a checkpoint without a machine.
//!
//! What is said of an image is said by `servers/checkpoint` (`tool`) and, of the part of Linux, by `servers/linux` (`part`): the programs that
//! restore one. Here are the command line and the files.

mod files;

use checkpoint_image::meta::Meta;
use checkpoint_image::tool::{diff, dump, show, Whole};
use clap::{Args, Parser, Subcommand};
use files::{open, File, New};
use personality::part::Shown;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Most memory that a description may take.
const MOST: u64 = 4 << 30;

/// Say what is in the image of a checkpoint, check it, compare two, take something out of one, or make one of a chain
///
/// An incremental image is read with those that it is based on, which lie beside it under the names that they had.
#[derive(Parser)]
#[command(
    name = "image",
    bin_name = "./fermata image",
    arg_required_else_help = true,
    max_term_width = 110
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Say what is in an image: its processes, what they have open, threads, objects and pages
    Show {
        /// The image
        image: PathBuf,
    },
    /// Check all of an image, and of those that it is based on; the status is 0 only if it is sound
    Check {
        /// The image
        image: PathBuf,
    },
    /// Say how an image differs from an earlier one; the status is 0 if it does not, 1 if it does, and 2 if one cannot be read
    Diff {
        /// The earlier one
        before: PathBuf,
        /// The later one
        then: PathBuf,
    },
    /// Take the memory of a process, or a file, out of an image
    Extract {
        #[command(flatten)]
        what: What,
        /// The image
        image: PathBuf,
        /// A path where nothing is yet
        to: PathBuf,
    },
    /// Make one whole image of an incremental one and those that it is based on
    Merge {
        /// The last image
        image: PathBuf,
        /// A path where nothing is yet
        to: PathBuf,
    },
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct What {
    /// Memory and threads of this process, by its number or its name, as a core file for debuggers: gdb PROGRAM FILE
    #[arg(long, value_name = "PROCESS")]
    core: Option<String>,
    /// A file that the image has: its path, or the number with which `show` lists it
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
}

fn main() -> ExitCode {
    let verb = Cli::parse().verb;
    let failure = match verb {
        Verb::Diff { .. } => 2,
        _ => 1,
    };
    match run(&verb) {
        Ok(status) => ExitCode::from(status),
        Err(sentence) => {
            eprintln!("image: {sentence}");
            ExitCode::from(failure)
        }
    }
}

fn run(verb: &Verb) -> Result<u8, String> {
    match verb {
        Verb::Show { image } => {
            let mut text = String::new();
            let mut whole = open(image)?;
            show::show(&mut whole, part, &mut text).map_err(|_| "cannot print")?;
            print(&text)?;
        }
        Verb::Check { image } => {
            let mut whole = open(image)?;
            check(&mut whole)?;
            let sentence = match whole.parents() {
                0 => "sound, and whole".to_string(),
                1 => "sound, with the image that it is based on".to_string(),
                many => format!("sound, with the {many} images that it is based on"),
            };
            print(&format!("{}: {sentence}\n", image.display()))?;
        }
        Verb::Diff { before, then } => {
            let (mut before, mut then) = (open(before)?, open(then)?);
            let mut text = String::new();
            let count = diff::diff(&mut before, &mut then, &mut text)?;
            print(&text)?;
            return Ok(u8::from(count > 0));
        }
        Verb::Extract { what, image, to } => extract(what, &mut open(image)?, to)?,
        Verb::Merge { image, to } => {
            let mut whole = open(image)?;
            // Its checksums would be those of what is wrong.
            let new = New::at(to)?;
            let mut at = 0;
            let mut progress = files::Progress::new("written", whole.page_bytes());
            let length = whole.write_merged(|bytes| {
                progress.add(bytes.len() as u64);
                at += bytes.len() as u64;
                new.put(at - bytes.len() as u64, bytes)
            })?;
            new.keep()?;
            print(&format!(
                "{}: {length} bytes, based on no other\n",
                to.display()
            ))?;
        }
    }
    Ok(0)
}

/// Checks all of an image, the managers' parts too.
fn check(whole: &mut Whole<File>) -> Result<(), String> {
    let mut progress = files::Progress::new("checked", whole.page_bytes());
    let checked = whole.check(|bytes| progress.add(bytes));
    checked.map_err(|(number, why)| {
        let file = whole.files().nth(number);
        let name = file.map_or_else(String::new, |file| format!("{}: ", file.path().display()));
        format!("{name}{why}")
    })?;
    linux(&whole.meta).try_for_each(|part| shown(part).map(|_| ()))
}

/// The parts of Linux.
fn linux(meta: &Meta) -> impl Iterator<Item = &[u8]> {
    let of_linux = meta
        .processes
        .iter()
        .filter(|process| process.manager == "linux" && process.member == 0);
    of_linux.map(|process| &process.part[..])
}

fn shown(part: &[u8]) -> Result<Shown, String> {
    Shown::read(part, |bytes| bytes <= MOST)
        .map_err(|why| format!("the image makes no sense: {why}"))
}

/// What a manager's part says.
fn part(manager: &str, bytes: &[u8]) -> Vec<String> {
    match (manager, bytes) {
        (_, []) => Vec::new(),
        ("linux", bytes) => shown(bytes).map_or_else(|why| vec![why], |shown| shown.lines()),
        (_, bytes) => vec![format!("{} bytes of its manager's", bytes.len())],
    }
}

fn extract(what: &What, whole: &mut Whole<File>, to: &Path) -> Result<(), String> {
    let new = New::at(to)?;
    if let Some(process) = &what.core {
        let number = dump::find(&whole.meta, process)?;
        dump::write(whole, number, |at, bytes| new.put(at, bytes))?;
    }
    if let Some(name) = &what.file {
        let parts: Vec<Shown> = linux(&whole.meta).map(shown).collect::<Result<_, _>>()?;
        let number = name.parse().ok();
        // Of several trees the first one that has it.
        let mut found = parts.iter().filter_map(|part| {
            let mut all = part.contents().enumerate();
            all.find(|(n, (path, ..))| *path == Some(name) || number == Some(*n))
        });
        let (_, (.., contents)) = found.next().ok_or_else(|| {
            format!("the image has no file '{name}'; `image show` lists those that it has")
        })?;
        new.put(0, contents)?;
    }
    new.keep()
}

/// Prints. A reader that has closed its end is no failure.
fn print(text: &str) -> Result<(), String> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot print: {error}"))
        }
        _ => Ok(()),
    }
}
