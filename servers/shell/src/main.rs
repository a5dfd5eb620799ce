//! The shell.
//!
//! Started with the path of a script it runs that and powers the machine off; otherwise it reads commands from the
//! console. Programs are processes of the managers `native` and `linux`; the shell keeps a table of those that run in
//! the background. It waits only for interrupts of its first thread, and then checks again. Its other threads, which
//! wait for the console and for the program in the foreground, send these interrupts.
//!
//! * [`builtins`] has the commands that are part of the shell.
//! * [`programs`] finds, starts and waits for programs.
//! * [`posix`] passes commands beyond this shell's language to a POSIX shell.
#![no_std]
#![no_main]

extern crate alloc;

mod builtins;
mod posix;
mod programs;
mod progress;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use fermata_shell::editor::{Action, Editor, MAX_LINE};
use fermata_shell::jobs::{Jobs, Manager, State};
use fermata_shell::line::{self, Item, What, When, MAX_TEXT};
use fermata_shell::parse::Command;
use programs::Managers;
use proto::Error;
use rt::console::{self, Event, Mode};
use rt::sys;
use services::console::ConsoleControlClient;

rt::entry!(main);

/// Exit status of a command that was used wrongly.
const USAGE: u8 = 2;
/// Exit status of a file that cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status of a command that does not exist.
const UNKNOWN_COMMAND: u8 = 127;
/// Exit status of a command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;
/// Exit status of a command that Ctrl-Z stopped.
const SUSPENDED: u8 = 148;

/// The job that is set at the console when no job is in the foreground.
const NOBODY: console::Job = 0;

/// How long to wait for the last output to leave the machine, in nanoseconds.
const DRAIN: u64 = 60_000_000_000;

/// The result of reading a line from the console.
enum Typed {
    /// A line.
    Line(String),
    /// A line of which the end is missing.
    Cut,
    /// The line was given up by Ctrl-C.
    Cancelled,
    /// The end of input.
    End,
}

/// Why a command failed: its exit status, and a sentence for the console, empty if the error was reported already.
#[derive(Debug)]
struct Failure {
    status: u8,
    sentence: String,
}

impl Failure {
    fn new(status: u8, sentence: String) -> Self {
        Failure { status, sentence }
    }
}

/// A failure of the shell's own commands has status 1.
impl From<String> for Failure {
    fn from(sentence: String) -> Self {
        Failure {
            status: 1,
            sentence,
        }
    }
}

/// The shell.
struct Shell {
    interactive: bool,
    /// Working directory: absolute and without dots.
    cwd: String,
    /// The one before, for `cd -`.
    before: Option<String>,
    jobs: Jobs,
    managers: Managers,
    /// The POSIX shell, once it has been found.
    posix: Option<&'static str>,
    /// The variables that commands have set, as [`fermata_shell::turn::Left`] has them.
    variables: String,
    /// Control of the console.
    console: ConsoleControlClient,
    /// Exit status of the last command.
    status: u8,
    /// Whether Ctrl-C was typed for the command that has just ended, and not sent to a program.
    interrupted: bool,
    /// Set when the shell is to end, with this status.
    exit: Option<u8>,
}

/// Writes to the console. If that fails it cannot be reported either.
fn say(text: &str) {
    let _ = console::write_all(text.as_bytes());
}

impl Shell {
    fn new(interactive: bool) -> Result<Self, Error> {
        let thread = rt::thread::current().map_err(rt::error_of)?;
        let control = rt::system::control("console")?;
        let me = thread.copy().map_err(rt::error_of)?;
        console::watch(&control, move || me.interrupt())?;
        let mut console = console::control(&control)?;
        console.set_foreground(NOBODY)?;
        Ok(Shell {
            interactive,
            cwd: "/".into(),
            before: None,
            jobs: Jobs::new(),
            managers: Managers::new(thread),
            posix: None,
            variables: String::new(),
            console,
            status: 0,
            interrupted: false,
            exit: None,
        })
    }

    /// Changes the working directory.
    fn change_to(&mut self, path: String) {
        self.before = Some(core::mem::replace(&mut self.cwd, path));
    }

    /// Runs the commands of a text; the status is that of the last one. Returns false, and runs nothing, if the text
    /// continues in the next line, unless this is the `last`.
    fn run(&mut self, text: &str, last: bool) -> bool {
        let items = match line::read(text, last, |name| builtins::find(name).is_some()) {
            Ok(Some(items)) => items,
            Ok(None) => return false,
            Err(sentence) => {
                say(&format!("shell: {sentence}\n"));
                self.status = USAGE;
                return true;
            }
        };
        for item in items {
            match item.when {
                When::Success if self.status != 0 => continue,
                When::Failure if self.status == 0 => continue,
                _ => {}
            }
            self.status = self.item(&item);
            if self.was_interrupted() {
                self.status = INTERRUPTED;
            }
            // Ctrl-C ends the whole line.
            if self.exit.is_some() || self.status == INTERRUPTED {
                break;
            }
        }
        true
    }

    /// Whether Ctrl-C was typed for the command that has just ended. Drops its events, which are not meant for the next
    /// command.
    fn was_interrupted(&mut self) -> bool {
        while let Ok(event @ (Event::Interrupt | Event::Suspend)) = self.console.take_event() {
            self.interrupted |= event == Event::Interrupt;
        }
        core::mem::take(&mut self.interrupted)
    }

    fn item(&mut self, item: &Item) -> u8 {
        let result = match &item.what {
            What::Own(command) => return self.command(command),
            What::Piped(command, rest) => self.piped(command, rest, item.background),
            What::Posix(text) => match line::has_prefix(text, line::TIME) {
                Some(text) if !item.background => {
                    return self.time(|shell| {
                        let result = shell.posix(text, false, None);
                        shell.told(result)
                    })
                }
                _ => self.posix(text, item.background, None),
            },
        };
        self.told(result)
    }

    fn command(&mut self, command: &Command) -> u8 {
        let Some(name) = command.words.first() else {
            return 0;
        };
        if name == line::TIME && command.words.len() > 1 && !command.background {
            let mut timed = command.clone();
            timed.words.remove(0);
            return self.time(|shell| shell.command(&timed));
        }
        if name == line::TRUST && command.words.len() > 1 {
            let mut trusted = command.clone();
            trusted.words.remove(0);
            let result = self.program(&trusted, true);
            return self.told(result);
        }
        let result = match builtins::find(name) {
            Some(builtin) if builtin.always || !command.background => {
                self.builtin(builtin, command)
            }
            _ => self.program(command, false),
        };
        self.told(result)
    }

    /// Reports an error, if any; returns the status.
    fn told(&self, result: Result<u8, Failure>) -> u8 {
        match result {
            Ok(status) => status,
            Err(failure) => {
                if !failure.sentence.is_empty() {
                    say(&format!("{}\n", failure.sentence));
                }
                failure.status
            }
        }
    }

    /// Runs the command behind `time`, and reports how long it took. On a machine that counts instructions a nanosecond
    /// is an instruction.
    fn time(&mut self, run: impl FnOnce(&mut Self) -> u8) -> u8 {
        let start = rt::time::now();
        let status = run(self);
        let ns = rt::time::now().saturating_sub(start);
        say(&format!(
            "{}.{:09} s\n",
            ns / 1_000_000_000,
            ns % 1_000_000_000
        ));
        status
    }

    /// Updates the states of all jobs.
    fn look_at_jobs(&mut self) {
        for number in self.jobs.live() {
            self.look_at(number);
        }
    }

    /// Updates the state of a job; for one that has ended only its status is kept.
    fn look_at(&mut self, number: u32) {
        let Some(job) = self.jobs.get(number).filter(|job| !job.has_ended()) else {
            return;
        };
        let (manager, pid) = (job.manager, job.pid);
        if let Some(state) = self.managers.state(manager, pid) {
            self.jobs.set_state(number, state);
        }
    }

    /// Tells the user about jobs that have ended.
    fn report(&mut self) {
        self.look_at_jobs();
        let ended: Vec<u32> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.has_ended())
            .map(|(number, _)| number)
            .collect();
        for number in ended {
            if let Some(job) = self.jobs.get(number) {
                say(&format!(
                    "[{number}] {}  {}\n",
                    job.state.text(),
                    job.source
                ));
            }
            self.jobs.know(number);
        }
    }

    /// Adds a job and, in an interactive shell, prints its number.
    fn add_job(&mut self, manager: Manager, pid: u32, source: &str, state: State) -> u32 {
        let number = self.jobs.add(manager, pid, source.to_string(), state);
        if self.interactive {
            say(&format!("[{number}] {pid}\n"));
        }
        number
    }

    /// Reads commands from the console until the shell is to end.
    fn talk(&mut self) {
        let mut editor = Editor::new();
        say("Fermata. Type help for help.\n");
        while self.exit.is_none() {
            self.report();
            let _ = self.console.set_mode(Mode::Raw);
            // Events for a command that has just ended are dropped.
            self.was_interrupted();
            let mut text = String::new();
            // Whether the command is too long. Its lines are read on, since none of them is to be run.
            let mut is_refused = false;
            loop {
                let was_refused = is_refused;
                let prompt = match text.is_empty() {
                    true => format!("fermata:{}$ ", self.cwd),
                    false => "> ".to_string(),
                };
                let line = self.read_line(&mut editor, &prompt);
                let _ = self.console.set_mode(Mode::Cooked);
                match line {
                    Typed::Line(_) | Typed::Cut if is_refused => {}
                    Typed::Line(line) => text.push_str(&line),
                    Typed::Cut => {
                        self.refuse(&format!("a line has at most {MAX_LINE} characters"));
                        if text.is_empty() {
                            break;
                        }
                        is_refused = true;
                    }
                    Typed::Cancelled => break,
                    Typed::End if text.is_empty() => {
                        self.exit = Some(self.status);
                        break;
                    }
                    Typed::End if is_refused => break,
                    Typed::End => {
                        self.run(&text, true);
                        break;
                    }
                }
                if !is_refused {
                    if self.run(&text, false) {
                        break;
                    }
                    is_refused = self.is_too_long(&text);
                    text.push('\n');
                }
                if is_refused && !was_refused {
                    say("shell: Ctrl-C ends the command\n");
                }
                let _ = self.console.set_mode(Mode::Raw);
            }
        }
    }

    /// Refuses a command.
    fn refuse(&mut self, why: &str) {
        say(&format!("shell: {why}: the command is not run\n"));
        self.status = USAGE;
    }

    /// Refuses a command that has become too long.
    fn is_too_long(&mut self, text: &str) -> bool {
        let is_too_long = text.len() > MAX_TEXT;
        if is_too_long {
            self.refuse(&format!(
                "a command of several lines has at most {MAX_TEXT} bytes"
            ));
        }
        is_too_long
    }

    /// A line from the console.
    fn read_line(&mut self, editor: &mut Editor, prompt: &str) -> Typed {
        say(&editor.begin(prompt));
        loop {
            // One key at a time, since bytes behind the line are input of the command.
            let mut key = [0];
            match self.console.read_keys(&mut key) {
                Ok(1) => {}
                Ok(_) => return Typed::End,
                Err(Error::WouldBlock) => {
                    sys::thread_wait_interrupt();
                    continue;
                }
                Err(_) => return Typed::End,
            }
            match editor.feed(key[0]) {
                Action::Show(text) if text.is_empty() => {}
                Action::Show(text) => say(&text),
                Action::Line(line, text) => {
                    say(&text);
                    return Typed::Line(line);
                }
                Action::Cut(text) => {
                    say(&text);
                    return Typed::Cut;
                }
                Action::Cancel(text) => {
                    say(&text);
                    self.status = INTERRUPTED;
                    return Typed::Cancelled;
                }
                Action::End(text) => {
                    say(&text);
                    return Typed::End;
                }
            }
        }
    }

    /// Runs the commands of a script.
    fn script(&mut self, path: &str) {
        let text = match rt::fs::read_all(path) {
            Ok(text) => text,
            Err(error) => {
                say(&format!("shell: {path}: {}\n", error.text()));
                self.exit = Some(UNKNOWN_COMMAND);
                return;
            }
        };
        let mut lines = text.split(|byte| *byte == b'\n').peekable();
        let mut text = String::new();
        while let Some(line) = lines.next() {
            text.push_str(String::from_utf8_lossy(line).trim_end_matches('\r'));
            if self.run(&text, lines.peek().is_none()) {
                text.clear();
            } else if self.is_too_long(&text) {
                // The lines that follow may belong to it.
                self.exit = Some(self.status);
            } else {
                text.push('\n');
            }
            if self.exit.is_some() {
                return;
            }
        }
        self.exit = Some(self.status);
    }
}

fn main() -> u8 {
    let script = rt::start().args.get(1);
    let Ok(mut shell) = Shell::new(script.is_none()) else {
        return 1;
    };
    match script {
        Some(path) => shell.script(path),
        None => shell.talk(),
    }
    let status = shell.exit.unwrap_or(shell.status);
    let _ = console::drain(rt::time::now().saturating_add(DRAIN));
    let _ = rt::system::power_off(status);
    status
}
