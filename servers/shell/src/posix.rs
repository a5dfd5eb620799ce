//! Commands beyond the shell's own language, which a POSIX shell runs, each as one job.
//!
//! Each command is a process of its own. Variables and the working directory are passed from one to the next in
//! files, which the POSIX shell writes at its end: the variables, which the next one reads at its beginning and this
//! shell passes to programs, and the command's [`turn`]. Functions and aliases last for one command.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use fermata_shell::jobs::Manager;
use fermata_shell::line::{has_prefix, TRUST};
use fermata_shell::parse::Command;
use fermata_shell::text::clean_path;
use fermata_shell::turn::{self, How, Left, BEGUN};
use proto::Error;
use rt::fs::{self, mode, File, Flags};
use services::fs::PATH_ROOM;
use services::process::Stdio;

use crate::programs::Request;
use crate::{builtins, Failure, Shell, NOT_EXECUTABLE};

/// POSIX shells in order of preference: those that a user has added come first.
const SHELLS: [&str; 3] = ["/bin/bash", "/bin/dash", "/bin/sh"];
/// The directory of the state that is passed from one command to the next.
const DIRECTORY: &str = "/run/shell";
/// The file of the variables that commands have set.
const VARIABLES: &str = "/run/shell/variables";
/// Most bytes of them that go to programs that no POSIX shell starts; if there are more none do.
const EXPORTED_ROOM: usize = 16 << 10;
/// The argument of the POSIX shell: the script is in a variable, so that lists of processes show the command.
const START: &str = "eval \"$RUN\"";

/// Makes the file of a turn.
fn begin_turn() -> Result<String, Error> {
    // Commands in the foreground follow each other, and none takes less than a nanosecond.
    let path = own_file(&format!("turn-{}", rt::time::now()))?;
    let flags = Flags {
        create: true,
        truncate: true,
        ..Flags::default()
    };
    File::open(&path, flags, 0o644)?.write_all(0, BEGUN)?;
    Ok(path)
}

/// The contents of a file that any program could have written. `None` if there is none, or it is longer than that.
fn contents(path: &str, room: usize) -> Option<Vec<u8>> {
    let file = File::open(path, Flags::default(), 0).ok()?;
    let opened = file.opened();
    let is_file = opened.mode & mode::TYPE == mode::FILE;
    if !is_file || opened.size > room as u64 {
        return None;
    }
    file.read_whole().ok()
}

/// What is in the file of a turn.
fn said(path: &str) -> Option<Left> {
    turn::left(&contents(path, BEGUN.len() + 1 + PATH_ROOM)?)
}

/// The variables that commands have exported, for the environment of programs that this shell starts itself.
pub(crate) fn exported() -> Vec<String> {
    let file = contents(VARIABLES, EXPORTED_ROOM);
    file.map(|file| turn::variables(&file)).unwrap_or_default()
}

impl Shell {
    /// Lets a POSIX shell run a text. Its input may come from a file.
    pub(crate) fn posix(
        &mut self,
        text: &str,
        background: bool,
        input: Option<String>,
    ) -> Result<u8, Failure> {
        let source = text;
        let (text, trusted) = match has_prefix(text, TRUST) {
            Some(text) => (text, true),
            None => (text, false),
        };
        let shell = self.posix_shell()?;
        // Without a file for its turn no state is kept, but the command runs.
        let turn = match background || trusted {
            true => None,
            false => begin_turn().ok(),
        };
        let script = turn::script(How {
            variables: (!trusted).then_some(VARIABLES),
            turn: turn.as_deref(),
            asks: text.contains("$?") || text.contains("${?"),
        });
        let status = self.status.to_string();
        let cwd = self.cwd.clone();
        let args: Vec<String> = ["sh", "-c", START, "sh", text, &cwd, &status]
            .into_iter()
            .map(ToString::to_string)
            .collect();
        let mut stdio = vec![Stdio::Console; 3];
        let is_piped = input.is_some();
        if let Some(path) = input {
            stdio[0] = Stdio::File {
                path,
                append: false,
            };
        }
        let ended = self.start(&Request {
            name: "sh",
            path: shell,
            manager: Manager::Linux,
            args,
            env: vec![format!("RUN={script}")],
            stdio,
            source,
            background,
            trusted,
        });
        if let Some(turn) = turn {
            let left = said(&turn);
            // If the command was stopped it is to keep nothing when it goes on.
            let _ = fs::unlink(&turn);
            if let (Ok(status), Some(left)) = (&ended, left) {
                self.follow(left.directory.as_deref());
                // In a part of a pipe `exit` is for that part.
                if !is_piped && turn::ends(&left, text, *status, self.interactive) {
                    self.exit = Some(*status);
                }
            }
        }
        ended
    }

    /// Changes to the working directory in which a command has ended.
    fn follow(&mut self, directory: Option<&str>) {
        let is_directory = |path: &str| {
            fs::stat(path, true).is_ok_and(|attr| attr.mode & mode::TYPE == mode::DIRECTORY)
        };
        match directory {
            Some(directory) if directory != self.cwd && is_directory(directory) => {
                self.change_to(clean_path("/", directory));
            }
            _ => {}
        }
    }

    /// The path of the POSIX shell.
    fn posix_shell(&mut self) -> Result<&'static str, Failure> {
        if let Some(shell) = self.posix {
            return Ok(shell);
        }
        let found = SHELLS.into_iter().find(|path| fs::stat(path, true).is_ok());
        self.posix = found;
        let sentence = "shell: this needs /bin/sh, which is not there".to_string();
        found.ok_or(Failure::new(NOT_EXECUTABLE, sentence))
    }

    /// Runs a command of the shell, and lets a POSIX shell run the rest with its output as input.
    pub(crate) fn piped(
        &mut self,
        command: &Command,
        rest: &str,
        background: bool,
    ) -> Result<u8, Failure> {
        let Some(builtin) = builtins::find(&command.words[0]) else {
            return Ok(0);
        };
        let target = self.target(command)?;
        let mut output = builtins::Output::new(false);
        let result = self.builtin_into(builtin, command, &mut output);
        if output.is_passed && (self.interrupted || !matches!(result, Ok(0))) {
            // The rest would read an empty input, and could take it for a complete image: a user who ends the program
            // after moving it so would lose it.
            if let Some(file) = output.file {
                let _ = fs::unlink(&file);
            }
            return result;
        }
        // The command's error is reported, and the rest gets the output that there is.
        self.told(result);
        if let Some(target) = target {
            let delivered = builtins::deliver(&command.words[0], &target, &mut output);
            self.told(delivered.map(|()| 0));
        }
        let flags = Flags {
            create: true,
            truncate: true,
            ..Flags::default()
        };
        let write = || -> Result<String, Error> {
            let path = own_file("input")?;
            File::open(&path, flags, 0o644)?.write_all(0, output.text.as_bytes())?;
            Ok(path)
        };
        let path = match output.file {
            Some(file) => file,
            None => {
                write().map_err(|error| Failure::from(format!("its input: {}", error.text())))?
            }
        };
        let result = self.posix(rest, background, Some(path.clone()));
        // Its reader has it open by now, and the next command's input is another file.
        let _ = fs::unlink(&path);
        result
    }
}

/// The path of a file of the shell's own.
pub(crate) fn own_file(name: &str) -> Result<String, Error> {
    match fs::mkdir(DIRECTORY, 0o755) {
        Ok(()) | Err(Error::Exists) => Ok(format!("{DIRECTORY}/{name}")),
        Err(error) => Err(error),
    }
}
