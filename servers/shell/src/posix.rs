//! Commands beyond the shell's own language, which a POSIX shell runs, each as one job.
//!
//! Each command is a process of its own. Variables and the working directory are passed from one to the next in two
//! files, which the POSIX shell writes at its end and reads at its beginning: this shell does not read the variables.
//! Functions and aliases last for one command.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use fermata_shell::jobs::Manager;
use fermata_shell::line::{has_prefix, TRUST};
use fermata_shell::parse::Command;
use fermata_shell::text::clean_path;
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
/// The argument of the POSIX shell: the script is in a variable, so that lists of processes show the command.
const START: &str = "eval \"$RUN\"";
/// The beginning of the script: `$1` is the command, `$2` the directory, `$3` the last status.
const BEGIN: &str = "unset RUN; cd \"$2\"; ";
/// Reads the variables that earlier commands have set. Any program could have written that file, so a trusted command
/// does not read it. Variables that the command sets are exported, and so are passed to the next one.
const READ: &str = "[ -f /run/shell/variables ] && . /run/shell/variables; cd \"$2\" && set -a; ";
/// Writes the state at the end, if the command is not in the background.
const KEEP: &str =
    "trap '{ export -p > /run/shell/variables; pwd > /run/shell/directory; } 2> /dev/null' EXIT; ";
/// The command itself.
const RUN: &str = "eval \"set --; $1
\"";
/// The command, if it asks for the last status.
const RUN_WITH_STATUS: &str = "eval \"set --; (exit $3); $1
\"";

/// The contents of a file that any program could have written. `None` if there is none, or it is longer than a path.
fn said(path: &str) -> Option<Vec<u8>> {
    let file = File::open(path, Flags::default(), 0).ok()?;
    let opened = file.opened();
    let is_file = opened.mode & mode::TYPE == mode::FILE;
    if !is_file || opened.size > PATH_ROOM as u64 {
        return None;
    }
    file.read_whole().ok()
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
        let mut script = format!("RUN={BEGIN}");
        if !trusted {
            script.push_str(READ);
        }
        let keeps = !background && !trusted;
        if keeps {
            // Without the directory no state is kept, but the command runs.
            let _ = fs::mkdir(DIRECTORY, 0o755);
            script.push_str(KEEP);
        }
        let asks = text.contains("$?") || text.contains("${?");
        script.push_str(if asks { RUN_WITH_STATUS } else { RUN });
        let status = self.status.to_string();
        let cwd = self.cwd.clone();
        let args: Vec<String> = ["sh", "-c", START, "sh", text, &cwd, &status]
            .into_iter()
            .map(ToString::to_string)
            .collect();
        let mut stdio = vec![Stdio::Console; 3];
        if let Some(path) = input {
            stdio[0] = Stdio::File {
                path,
                append: false,
            };
        }
        let status = self.start(&Request {
            name: "sh",
            path: shell,
            manager: Manager::Linux,
            args,
            env: Some(script),
            stdio,
            source,
            background,
            trusted,
        })?;
        if keeps {
            self.follow();
        }
        Ok(status)
    }

    /// Changes to the working directory in which the command has ended.
    fn follow(&mut self) {
        let Some(text) = said(&format!("{DIRECTORY}/directory")) else {
            return;
        };
        let directory = String::from_utf8_lossy(&text);
        let directory = directory.trim_end_matches('\n');
        let is_directory = |path: &str| {
            fs::stat(path, true).is_ok_and(|attr| attr.mode & mode::TYPE == mode::DIRECTORY)
        };
        if directory != self.cwd && directory.starts_with('/') && is_directory(directory) {
            self.cwd = clean_path("/", directory);
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
        if let Some(file) = output.file {
            let result = self.posix(rest, background, Some(file.clone()));
            // Its reader has it open by now.
            let _ = fs::unlink(&file);
            return result;
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
        let path =
            write().map_err(|error| Failure::from(format!("its input: {}", error.text())))?;
        self.posix(rest, background, Some(path))
    }
}

/// The path of a file of the shell's own.
pub(crate) fn own_file(name: &str) -> Result<String, Error> {
    match fs::mkdir(DIRECTORY, 0o755) {
        Ok(()) | Err(Error::Exists) => Ok(format!("{DIRECTORY}/{name}")),
        Err(error) => Err(error),
    }
}
