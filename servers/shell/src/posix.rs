//! Commands beyond the shell's own language, which a POSIX shell runs, each as one job.
//!
//! Each command is a process of its own. Variables and the working directory are passed from one to the next by this
//! shell, to which the POSIX shell says them at its end ([`turn`]); programs get the variables, too. Functions and
//! aliases last for one command.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use fermata_shell::jobs::Manager;
use fermata_shell::line::{has_prefix, TRUST};
use fermata_shell::parse::Command;
use fermata_shell::text::clean_path;
use fermata_shell::turn::{self, How, Left, SAID, VARIABLES};
use proto::{Error, MAX_BULK};
use rt::fs::{self, mode, File, Flags};
use services::fs::PATH_ROOM;
use services::process::Stdio;

use crate::programs::Request;
use crate::{builtins, say, Failure, Shell, NOT_EXECUTABLE};

/// POSIX shells in order of preference: those that a user has added come first.
const SHELLS: [&str; 3] = ["/bin/bash", "/bin/dash", "/bin/sh"];
/// The directory of the shell's own files.
const DIRECTORY: &str = "/run/shell";
/// Most bytes of variables that go to programs that no POSIX shell starts; if there are more none do.
const EXPORTED_ROOM: usize = 16 << 10;
/// Most bytes of a command and the script that runs it; the rest of a request is for what else a program starts with.
const TEXT_ROOM: usize = MAX_BULK - PATH_ROOM - 1024;
/// The argument of the POSIX shell: the script is in a variable, so that lists of processes show the command.
const START: &str = "eval \"$RUN\"";

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
        let keeps = !background && !trusted;
        let script = turn::script(How {
            has_variables: !trusted,
            said: keeps.then_some(SAID),
            asks: text.contains("$?") || text.contains("${?"),
        });
        let mut env = vec![format!("RUN={script}")];
        if !trusted {
            env.push(format!("{VARIABLES}={}", self.variables));
        }
        let length: usize = env.iter().map(String::len).sum();
        if text.len() + length > TEXT_ROOM {
            let sentence = "shell: the command and the variables are too long together".to_string();
            return Err(Failure::new(NOT_EXECUTABLE, sentence));
        }
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
        let end = self.start(&Request {
            name: "sh",
            path: shell,
            manager: Manager::Linux,
            args,
            env,
            stdio,
            source,
            background,
            trusted,
        })?;
        let Some(end) = end else {
            return Ok(0);
        };
        if let Some(said) = end.said.filter(|_| keeps) {
            let left = turn::left(&said);
            // In a part of a pipe `exit` is for that part.
            if !is_piped && turn::ends(&left, text, end.ended, self.interactive) {
                self.exit = Some(end.ended.status);
            }
            self.keep(left);
        }
        Ok(end.ended.status)
    }

    /// Keeps what a command has left for the next ones.
    fn keep(&mut self, left: Left) {
        self.follow(left.directory.as_deref());
        match left.variables {
            Some(variables) => self.variables = variables,
            None if left.directory.is_some() => {
                say("shell: the variables are too long: those from before are kept\n");
            }
            None if left.reached => {
                say("shell: the command has an EXIT trap of its own, or memory is out: directory and variables are as before\n");
            }
            None => {}
        }
    }

    /// The variables that commands have exported, for the environment of programs that this shell starts itself.
    pub(crate) fn exported(&self) -> Vec<String> {
        match self.variables.len() {
            ..=EXPORTED_ROOM => turn::variables(self.variables.as_bytes()),
            _ => Vec::new(),
        }
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
