//! The commands that are part of the shell.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use fermata_shell::jobs::{Manager, State};
use fermata_shell::list;
use fermata_shell::parse::Command;
use fermata_shell::text::{absolute_path, clean_path, echo, exit_status};
use fermata_shell::ways::{self, PIPE};
use proto::Error;
use rt::checkpoint::{plain, GiveUp, How, Sentence, MAX_PROCESSES};
use rt::console::Event;
use rt::fs::{self, mode, File, Flags};
use rt::obj::RefAt;
use rt::process::Process;
use rt::sync::Mutex;
use rt::sys;
use services::process::{Info, Pid, Status, Stdio};

use crate::posix;
use crate::programs::Wait;
use crate::progress;
use crate::{say, Failure, Shell, INTERRUPTED, UNKNOWN_COMMAND, USAGE};

/// More than the most stops of a process that its manager counts.
const MAX_STOPS: u32 = 80;

/// The output of a builtin, which is written to the console or its redirection when the builtin is done.
pub(crate) struct Output {
    pub(crate) text: String,
    /// A file whose bytes follow the text, and which is then removed.
    pub(crate) file: Option<String>,
    /// Whether the file is the purpose of the command: without it the rest of a pipe must not run.
    pub(crate) is_passed: bool,
    /// Whether people read it.
    is_console: bool,
}

impl Output {
    pub(crate) fn new(is_console: bool) -> Self {
        Output {
            text: String::new(),
            file: None,
            is_passed: false,
            is_console,
        }
    }
}

impl Write for Output {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.text.push_str(text);
        Ok(())
    }
}

/// A builtin: its arguments, and where its output goes.
type Run = fn(&mut Shell, &[String], &mut Output) -> Result<u8, Failure>;

/// A builtin command.
pub(crate) struct Builtin {
    name: &'static str,
    /// Its arguments, as `help` shows them.
    usage: &'static str,
    /// What it does, as `help` shows it.
    help: &'static str,
    run: Run,
    /// Whether it is the builtin even in the background, where it is refused. In the background the other names run as
    /// programs.
    pub(crate) always: bool,
}

const fn builtin(name: &'static str, usage: &'static str, help: &'static str, run: Run) -> Builtin {
    Builtin {
        name,
        usage,
        help,
        run,
        always: true,
    }
}

const BUILTINS: [Builtin; 14] = [
    builtin(
        "bg",
        "[JOB]",
        "let a stopped job go on in the background",
        bg,
    ),
    builtin("cd", "[DIRECTORY|-]", "change the working directory, or back", cd),
    builtin(
        "checkpoint",
        "[-v] [--files] [--stop] [--cut] [--compress] [--parent IMAGE] JOB... FILE|-",
        "save jobs or processes (linux:7), each with all that it has started, or what has changed since IMAGE; they go on, or with --stop when fg says so; --cut is for a part of a job; - is for a pipe",
        checkpoint,
    ),
    Builtin {
        name: "echo",
        usage: "[-n] [WORD]...",
        help: "write the words",
        run: run_echo,
        always: false,
    },
    builtin("exit", "[STATUS]", "power off", exit),
    builtin("fg", "[JOB]", "let a job go on in the foreground", fg),
    builtin("help", "", "show this", help),
    builtin("jobs", "", "list the jobs", jobs),
    builtin(
        "kill",
        "JOB...",
        "end jobs, or processes by number: native:7",
        kill,
    ),
    builtin(
        "ps",
        "",
        "list processes, and what their threads are about to do",
        ps,
    ),
    builtin("pwd", "", "show the working directory", pwd),
    builtin(
        "restore",
        "[-v] [--lazy] FILE",
        "start the jobs saved in a file, in the background; --lazy: before their memory has been read",
        restore,
    ),
    builtin("wait", "[JOB]...", "wait for jobs to end, or for all", wait),
    builtin(":", "", "do nothing", nothing),
];

/// The builtin of that name.
pub(crate) fn find(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|builtin| builtin.name == name)
}

impl Shell {
    /// Runs a builtin.
    pub(crate) fn builtin(&mut self, builtin: &Builtin, command: &Command) -> Result<u8, Failure> {
        let name = builtin.name;
        if command.background {
            let sentence = format!("{name}: part of the shell, cannot run in the background");
            return Err(Failure::new(USAGE, sentence));
        }
        let target = self.target(command)?.unwrap_or(Stdio::Console);
        let mut output = Output::new(matches!(target, Stdio::Console));
        let result = self.builtin_into(builtin, command, &mut output);
        deliver(name, &target, &mut output)?;
        result
    }

    /// Where the output of a builtin goes by its redirections, if it has one for it. All their files are made.
    pub(crate) fn target(&self, command: &Command) -> Result<Option<Stdio>, Failure> {
        let mut target = None;
        for redirection in &command.redirections {
            let stdio = self.redirect(redirection)?;
            if redirection.stream == 1 {
                target = Some(stdio);
            }
        }
        Ok(target)
    }

    /// Runs a builtin, whose output is to go elsewhere.
    pub(crate) fn builtin_into(
        &mut self,
        builtin: &Builtin,
        command: &Command,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        let name = builtin.name;
        let result = (builtin.run)(self, &command.words[1..], output);
        result.map_err(|failure| {
            let sentence = match failure.status {
                USAGE if failure.sentence.is_empty() => format!("usage: {name} {}", builtin.usage),
                _ => format!("{name}: {}", failure.sentence),
            };
            Failure::new(failure.status, sentence.trim_end().to_string())
        })
    }

    /// The job that a word names, after its state has been updated.
    fn job(&mut self, word: &str) -> Result<u32, Failure> {
        let number = self.jobs.number(word)?;
        self.look_at(number);
        Ok(number)
    }

    /// As `job`, but it must not have ended.
    fn live_job(&mut self, word: &str) -> Result<u32, Failure> {
        let number = self.job(word)?;
        if self.jobs.get(number).is_some_and(|job| job.has_ended()) {
            self.jobs.know(number);
            return Err(format!("{word}: the job has ended").into());
        }
        Ok(number)
    }

    /// The job that an optional argument means: without one the most recent.
    fn job_or_recent(&mut self, arguments: &[String]) -> Result<u32, Failure> {
        self.look_at_jobs();
        match arguments {
            [] => self
                .jobs
                .recent()
                .ok_or_else(|| "there is no job".to_string().into()),
            [word] => self.live_job(word),
            _ => Err(wrong()),
        }
    }
}

/// Wrong arguments: the sentence is made from the builtin's usage.
fn wrong() -> Failure {
    Failure::new(USAGE, String::new())
}

/// Moves the output of a builtin to its target.
pub(crate) fn deliver(name: &str, target: &Stdio, output: &mut Output) -> Result<(), Failure> {
    let written = write(target, output);
    output.text.clear();
    if let Some(file) = output.file.take() {
        let _ = fs::unlink(&file);
    }
    written.map_err(|error| format!("{name}: {}", error.text()).into())
}

/// Writes the output of a builtin.
fn write(target: &Stdio, output: &Output) -> Result<(), Error> {
    let text = output.text.as_str();
    if text.is_empty() && output.file.is_none() {
        return Ok(());
    }
    match target {
        Stdio::Console => {
            say(text);
            Ok(())
        }
        Stdio::Null => Ok(()),
        Stdio::File { path, append } => {
            let file = File::open(
                path,
                Flags {
                    create: true,
                    ..Flags::default()
                },
                0o644,
            )?;
            let mut offset = if *append { file.opened().size } else { 0 };
            file.write_all(offset, text.as_bytes())?;
            offset += text.len() as u64;
            let Some(from) = &output.file else {
                return file.close();
            };
            let from = File::open(from, Flags::default(), 0)?;
            let mut at = 0;
            let read = |block: &mut [u8]| {
                let count = from.read(at, block)?;
                at += count as u64;
                Ok(count)
            };
            rt::io::carry(read, |block| {
                let at = offset;
                offset += block.len() as u64;
                file.write_all(at, block)
            })?;
            file.close()
        }
    }
}

fn nothing(_: &mut Shell, _: &[String], _: &mut Output) -> Result<u8, Failure> {
    Ok(0)
}

fn run_echo(_: &mut Shell, arguments: &[String], output: &mut Output) -> Result<u8, Failure> {
    output.text.push_str(&echo(arguments));
    Ok(0)
}

fn pwd(shell: &mut Shell, arguments: &[String], output: &mut Output) -> Result<u8, Failure> {
    if !arguments.is_empty() {
        return Err(wrong());
    }
    let _ = writeln!(output, "{}", shell.cwd);
    Ok(0)
}

fn cd(shell: &mut Shell, arguments: &[String], output: &mut Output) -> Result<u8, Failure> {
    let before = shell.before.clone();
    let word = match arguments {
        [] => "/",
        [word] if word == "-" => {
            let before = before.as_deref();
            before.ok_or_else(|| "-: this is the first directory".to_string())?
        }
        [word] => word,
        _ => return Err(wrong()),
    };
    let path = clean_path(&shell.cwd, word);
    match fs::stat(&path, true) {
        Ok(attr) if attr.mode & mode::TYPE == mode::DIRECTORY => {
            if arguments.first().is_some_and(|word| word == "-") {
                let _ = writeln!(output, "{path}");
            }
            shell.change_to(path);
            Ok(0)
        }
        Ok(_) => Err(format!("{word}: {}", Error::NotDirectory.text()).into()),
        Err(error) => Err(format!("{word}: {}", error.text()).into()),
    }
}

fn exit(shell: &mut Shell, arguments: &[String], _: &mut Output) -> Result<u8, Failure> {
    let status = match arguments {
        [] => shell.status,
        [word] => match exit_status(word) {
            Some(status) => status,
            None => {
                return Err(Failure::new(
                    USAGE,
                    format!("{word}: not a number from 0 to 255"),
                ))
            }
        },
        _ => return Err(wrong()),
    };
    shell.exit = Some(status);
    Ok(status)
}

fn help(_: &mut Shell, _: &[String], output: &mut Output) -> Result<u8, Failure> {
    output.text.push_str("Commands of the shell:\n");
    for builtin in &BUILTINS {
        let _ = writeln!(
            output,
            "  {:<30} {}",
            format!("{} {}", builtin.name, builtin.usage),
            builtin.help
        );
    }
    let _ = writeln!(
        output,
        "  {:<30} run a command, tell how long it took",
        "time COMMAND"
    );
    let _ = writeln!(
        output,
        "  {:<30} run a program with the shell's power over the machine",
        "trust COMMAND"
    );
    output.text.push_str(
        "Small programs:\n  cat cmp cp false ln ls mkdir mv rm rmdir sleep touch true\n\
         Other names are programs in /bin (try ls /bin), names with a slash are paths.\n\
         A JOB is %1, %2, ... Pipes, variables, patterns of file names, loops and all else of a POSIX\n\
         shell are run by one (bash, dash or busybox's), as one job; variables and the directory are\n\
         kept. Ctrl-C ends the command in the foreground, Ctrl-Z stops it.\n",
    );
    Ok(0)
}

fn jobs(shell: &mut Shell, arguments: &[String], output: &mut Output) -> Result<u8, Failure> {
    if !arguments.is_empty() {
        return Err(wrong());
    }
    shell.look_at_jobs();
    let mut ended = Vec::new();
    for (number, job) in shell.jobs.iter() {
        let _ = writeln!(output, "[{number}] {}  {}", job.state.text(), job.source);
        if job.has_ended() {
            ended.push(number);
        }
    }
    for number in ended {
        shell.jobs.know(number);
    }
    Ok(0)
}

fn kill(shell: &mut Shell, arguments: &[String], _: &mut Output) -> Result<u8, Failure> {
    if arguments.is_empty() {
        return Err(wrong());
    }
    let mut sentences = Vec::new();
    for word in arguments {
        let killed = kill_one(shell, word);
        sentences.extend(killed.err().map(|failure| failure.sentence));
    }
    if sentences.is_empty() {
        return Ok(0);
    }
    Err(sentences.join("\nkill: ").into())
}

/// The process that `native:7` or `linux:3` names, as in the list of `ps`.
fn number_of(word: &str) -> Option<(Manager, Pid)> {
    let (manager, pid) = word.split_once(':')?;
    Some((Manager::from_name(manager)?, pid.parse().ok()?))
}

/// The process of that number.
fn process_of(manager: Manager, pid: u32) -> Result<Process, Error> {
    rt::system::supervisor(manager.name()).and_then(|all| all.process(pid))
}

fn kill_one(shell: &mut Shell, word: &str) -> Result<(), Failure> {
    if let Some((manager, pid)) = number_of(word) {
        let killed = process_of(manager, pid).and_then(|process| process.kill());
        return killed.map_err(|error| format!("{word}: {}", error.text()).into());
    }
    let number = shell.job(word)?;
    let Some(job) = shell.jobs.get(number) else {
        return Err(format!("{word}: no such job").into());
    };
    let (manager, pid) = (job.manager, job.pid);
    // Processes that it has started may still run, and are ended through it. A later job may have had its process
    // number.
    let is_its = job.has_ended() && shell.jobs.is_last_of_process(number);
    if is_its && shell.managers.kill_left(manager, pid) {
        shell.jobs.know(number);
        return Ok(());
    }
    let number = shell.live_job(word)?;
    let refused = |error: Error| Failure::from(format!("{word}: {}", error.text()));
    match shell.managers.kill(manager, pid) {
        // The process may have ended by itself meanwhile.
        Ok(()) | Err(Error::Ended) => {}
        Err(error) => return Err(refused(error)),
    }
    let state = shell.managers.reap(manager, pid);
    let state = state.unwrap_or(State::Ended(137));
    shell.jobs.set_state(number, state);
    shell.jobs.know(number);
    Ok(())
}

fn wait(shell: &mut Shell, arguments: &[String], _: &mut Output) -> Result<u8, Failure> {
    shell.look_at_jobs();
    let mut numbers = Vec::new();
    for word in arguments {
        let number = shell
            .job(word)
            .map_err(|failure| Failure::new(UNKNOWN_COMMAND, failure.sentence))?;
        if shell
            .jobs
            .get(number)
            .is_some_and(|job| job.state == State::Stopped)
        {
            return Err(format!("{word}: the job is stopped; fg or bg lets it go on").into());
        }
        numbers.push(number);
    }
    let all = numbers.is_empty();
    if all {
        numbers = shell.jobs.iter().map(|(number, _)| number).collect();
    }
    let mut status = 0;
    for number in numbers {
        let Some(job) = shell.jobs.get(number) else {
            continue;
        };
        let (manager, pid) = (job.manager, job.pid);
        match job.state {
            State::Ended(ended) => status = ended,
            State::Stopped => continue,
            State::Running => loop {
                match shell.wait_for(manager, pid) {
                    Wait::Ended(end) => {
                        status = end.ended.status;
                        shell.jobs.set_state(number, State::Ended(status));
                        // It got the Ctrl-C, which is for the rest of the line, too.
                        if status == INTERRUPTED {
                            shell.jobs.know(number);
                            return Ok(INTERRUPTED);
                        }
                        break;
                    }
                    Wait::Interrupt => return Ok(INTERRUPTED),
                    Wait::Stopped => {
                        shell.jobs.set_state(number, State::Stopped);
                        break;
                    }
                    // Ctrl-Z is for programs in the foreground.
                    Wait::Suspend => {}
                }
            },
        }
        shell.jobs.know(number);
    }
    Ok(if all { 0 } else { status })
}

fn fg(shell: &mut Shell, arguments: &[String], _: &mut Output) -> Result<u8, Failure> {
    let number = shell.job_or_recent(arguments)?;
    resume(shell, number)?;
    let Some(job) = shell.jobs.get(number).cloned() else {
        return Ok(0);
    };
    if shell.interactive {
        say(&format!("{}\n", job.source));
    }
    let end = shell.foreground(job.manager, job.pid, &job.source, Some(number));
    Ok(end.ended.status)
}

fn bg(shell: &mut Shell, arguments: &[String], output: &mut Output) -> Result<u8, Failure> {
    let number = shell.job_or_recent(arguments)?;
    resume(shell, number)?;
    if let Some(job) = shell.jobs.get(number).filter(|_| shell.interactive) {
        let _ = writeln!(output, "[{number}] {}", job.source);
    }
    Ok(0)
}

/// Resumes a job if it is stopped.
fn resume(shell: &mut Shell, number: u32) -> Result<(), Failure> {
    shell.jobs.touch(number);
    let Some(job) = shell
        .jobs
        .get(number)
        .filter(|job| job.state == State::Stopped)
    else {
        return Ok(());
    };
    let (manager, pid) = (job.manager, job.pid);
    let resume = || -> Result<(), Error> {
        let process = shell.managers.process(manager, pid)?;
        // The process may have been stopped several times, by Ctrl-Z, by `--stop`, by a signal, and each stop has to be
        // undone. The bound is above the most stops, and ends the loop for a process that stops itself again.
        for _ in 0..MAX_STOPS {
            process.resume()?;
            if process.status()? != Status::Stopped {
                break;
            }
        }
        Ok(())
    };
    resume().map_err(|error| Failure::from(format!("%{number}: {}", error.text())))?;
    shell.jobs.set_state(number, State::Running);
    Ok(())
}

/// Takes `-v` from the front of the arguments.
fn verbose(arguments: &[String]) -> (bool, &[String]) {
    match arguments.split_first() {
        Some((first, rest)) if first == "-v" => (true, rest),
        _ => (false, arguments),
    }
}

/// Makes a request that may take long, and shows its progress if people read the output.
fn told<T>(output: &Output, what: &'static str, ask: impl FnOnce() -> T) -> T {
    match output.is_console {
        true => progress::told(what, ask),
        false => ask(),
    }
}

impl Shell {
    /// Makes a request to the checkpointer, and shows its progress. A thread of its own waits for the answer, so that
    /// Ctrl-C can give the request up: then nothing is saved or restored. If the request is done already its answer is
    /// taken, and the Ctrl-C is left for the check at the end of the command.
    fn ask<T: Send + 'static>(
        &mut self,
        output: &Output,
        what: &'static str,
        ask: impl FnOnce(&GiveUp) -> Result<T, Sentence> + Send + 'static,
    ) -> Result<T, Failure> {
        let waker = self.managers.waker();
        let waker = waker.map_err(|error| error.text().to_string())?;
        let given = Arc::new(GiveUp::default());
        let came = Arc::new(Mutex::new(None));
        let (theirs, put) = (Arc::clone(&given), Arc::clone(&came));
        let asking = rt::thread::spawn(move || {
            let answer = ask(&theirs);
            *put.lock() = Some(answer);
            let _ = waker.interrupt();
        });
        asking.map_err(|code| format!("no thread for it: {}", rt::error_of(code).text()))?;
        let mut is_given_up = false;
        let answer = told(output, what, || loop {
            if let Some(answer) = came.lock().take() {
                break answer;
            }
            match self.console.take_event() {
                Ok(Event::Interrupt) => {
                    is_given_up = true;
                    given.give_up();
                }
                // The request cannot be stopped, and Ctrl-Z is not meant for the next program.
                Ok(Event::Suspend) => {}
                _ => {
                    sys::thread_wait_interrupt();
                }
            }
        });
        self.interrupted |= is_given_up;
        answer.map_err(|sentence| match is_given_up {
            true => Failure::new(INTERRUPTED, "given up".to_string()),
            false => Failure::from(plain(&sentence)),
        })
    }
}

fn checkpoint(shell: &mut Shell, arguments: &[String], output: &mut Output) -> Result<u8, Failure> {
    // Set first, so that also after wrong arguments nothing is passed on.
    output.is_passed = arguments.last().is_some_and(|word| word == PIPE);
    let ways = ways::read(arguments);
    let Some((file, words)) = ways.file_and_words() else {
        return Err(wrong());
    };
    ways.refuse(output.is_console)
        .map_err(ToString::to_string)?;
    let parent = ways.parent.map(|image| absolute_path(&shell.cwd, image));
    let (how, verbose) = (ways.how(None), ways.verbose);
    if words.len() > MAX_PROCESSES {
        return Err(format!("at most {MAX_PROCESSES} jobs can be saved together").into());
    }
    let mut named: Vec<(Manager, Pid)> = Vec::new();
    // Processes that belong to no job of the shell.
    let mut others: Vec<Process> = Vec::new();
    // The control ports, which give the checkpointer power over the processes.
    let mut ports: Vec<RefAt> = Vec::new();
    for word in words {
        let refused = |error: Error| format!("{word}: {}", error.text());
        let one = if let Some((manager, pid)) = number_of(word) {
            let process = process_of(manager, pid).map_err(refused)?;
            ports.push(**process.port());
            others.push(process);
            (manager, pid)
        } else {
            let number = shell.live_job(word)?;
            let job = shell.jobs.get(number);
            let job = job.ok_or_else(|| format!("{word}: no such job"))?;
            let process = shell.managers.process(job.manager, job.pid);
            ports.push(**process.map_err(refused)?.port());
            (job.manager, job.pid)
        };
        if named.contains(&one) {
            return Err(format!("{word}: named twice").into());
        }
        named.push(one);
    }
    let mut path = absolute_path(&shell.cwd, file);
    if file == PIPE {
        path = posix::own_file("image").map_err(|error| error.text().to_string())?;
    }
    let own_path = path.clone();
    let save = move |given: &GiveUp| {
        let parent = parent.as_deref();
        rt::checkpoint::save_until(&ports, &path, How { parent, ..how }, given)
    };
    let saved = shell.ask(output, "checkpoint", save)?;
    // The ports were needed until now.
    drop(others);
    if file == PIPE {
        output.file = Some(own_path);
        return Ok(0);
    }
    if verbose && !how.stop {
        let (bytes, still) = (saved.bytes, saved.still / 1000);
        let _ = writeln!(output, "{file}: {bytes} bytes, stood still for {still} us");
    } else if verbose || shell.interactive {
        let _ = writeln!(output, "{file}: {} bytes", saved.bytes);
    }
    if verbose {
        for doing in saved.doing {
            let _ = writeln!(output, "  {}", plain(&doing));
        }
    }
    Ok(0)
}

fn restore(shell: &mut Shell, arguments: &[String], output: &mut Output) -> Result<u8, Failure> {
    let (verbose, arguments) = verbose(arguments);
    let (lazy, file) = match arguments {
        [word, file] if word == "--lazy" => (true, file),
        [file] if file != "--lazy" => (false, file),
        _ => return Err(wrong()),
    };
    let path = absolute_path(&shell.cwd, file);
    let restore = move |given: &GiveUp| rt::checkpoint::restore_until(&path, lazy, given);
    let made = shell.ask(output, "restore", restore)?;
    for sentence in made.sentences() {
        let _ = writeln!(output, "{file}: {}", plain(sentence));
    }
    shell.look_at_jobs();
    for (manager, name, process) in made.processes {
        let pid = process.pid();
        // The name comes from the image, and is not trusted.
        let name = plain(&name);
        let Some(manager) = Manager::from_name(&manager) else {
            return Err(format!("{name}: there is no manager '{}'", plain(&manager)).into());
        };
        shell.managers.hold(manager, process);
        let state = shell.managers.state(manager, pid).unwrap_or(State::Running);
        let number = shell.jobs.add(manager, pid, name.clone(), state);
        if verbose || shell.interactive {
            let _ = writeln!(output, "[{number}] {pid}  {name}");
        }
    }
    Ok(0)
}

fn ps(shell: &mut Shell, arguments: &[String], output: &mut Output) -> Result<u8, Failure> {
    if !arguments.is_empty() {
        return Err(wrong());
    }
    shell.look_at_jobs();
    let _ = writeln!(output, "JOB  {}", list::HEADING);
    let mut objects = 0;
    for manager in Manager::ALL {
        let all = match shell.managers.list(manager) {
            Ok(all) => all,
            Err(error) => {
                let _ = writeln!(
                    output,
                    "(the server '{}': {})",
                    manager.name(),
                    error.text()
                );
                continue;
            }
        };
        for info in all {
            objects += info.objects;
            show_process(shell, manager, &info, output);
        }
    }
    let (memory, files) = (rt::memory::usage(), fs::usage());
    if let (Ok(memory), Ok((bytes, count))) = (memory, files) {
        let _ = writeln!(
            output,
            "{objects} kernel objects; {} KB of {} KB free; {} KB in {count} files",
            memory.free / 1024,
            memory.total / 1024,
            bytes / 1024
        );
    }
    Ok(0)
}

fn show_process(shell: &Shell, manager: Manager, info: &Info, output: &mut Output) {
    let job = match shell.jobs.find(manager, info.pid) {
        Some(number) => format!("%{number}"),
        None => "-".to_string(),
    };
    let _ = writeln!(output, "{job:<4} {}", list::process(manager, info));
    for thread in list::threads(info) {
        let _ = writeln!(output, "     {thread}");
    }
}
