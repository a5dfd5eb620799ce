//! Reads the arguments of `./fermata`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lexopt::prelude::*;

use crate::config::{Config, Irq, Which};
use crate::error::Error;
use crate::machine::{Add, Get};
use crate::project::Room;

/// What `./fermata help` prints.
pub(crate) const HELP: &str = "\
Fermata: a microkernel whose programs can be stopped, saved and resumed at any instant.

usage: ./fermata COMMAND [OPTION]...

run      boot to a shell on this terminal; with a script, run it and power off
    --config CONFIG    the kernel's configuration, MODEL[,irq=hardware|optimistic]; see below
    --script FILE      run the commands in FILE, one per line; - is standard input
    --add HOST:GUEST   put a file or directory of the host into the guest; may be repeated
    --get GUEST:HOST   copy a file out when the machine stops; may be repeated
    --memory MB        memory of the machine (512)
    --timeout S        stop after S seconds of host time, with status 124
    --deterministic    count instructions instead of time: every run is the same
    --verbose          show the kernel's log on standard error
    On a terminal, Ctrl-C and Ctrl-Z belong to the guest; Ctrl-] x stops the machine.
    The status is that of the guest's `exit N`; 124 after a timeout; 125 when the machine
    panicked or could not be built.

test     run the tests: on the host, in the guest, and whole scenarios
    --config CONFIG    only this configuration (without: one of each model)
    --all              every model, and those without preemption with irq=optimistic as well;
                       goes on where an earlier call with the same sources stopped
    --irq WHICH        with --all: every model with hardware, with optimistic, or with both
    --fresh            with --all: begin anew
    --verbose          show the log of every machine
    --debug            with one of the cuts: the machine waits for a debugger on port 1234
    FILTER             only tests whose name contains FILTER: `host/`, `machine/`, `guest/`, `scenario/`,
                       `bench/`, `forgetful/` (the guest's tests on a kernel that drops at random what
                       it keeps for waiting threads) name the kinds; `cut` is every call cut at every
                       site of the kernel in every way, in process-np and interrupt-np unless another
                       CONFIG is named: under pp at preemption points as well, under fp the main
                       calls at every instruction
    The last line is `P passed, F failed`; the status is 0 only if F is 0 and P is not.

bench    measure what the kernel's operations cost; tables here, plots in target/bench/report.html
    --config CONFIG    this configuration (without: interrupt-np)
    --all, --irq WHICH   several, as for `test`
    --json FILE        write the results to FILE as well
    --plots DIR        write the plots to DIR as well, as files of their own
    --rounds N         runs that take the host's time (5); 0 for none
    --profile          only count, and show which functions of the kernel the instructions are in
    --update-thresholds  make these counts the ones that `test` holds later ones against
    FILTER             only benchmarks whose name contains FILTER (or one of several, with commas)

fuzz     random programs for the kernel beside its specification, on the host; what it keeps lies
         in target/fuzz, and a program that fails is shortened and printed
    --time S           for S seconds (60)
    --seed N           begin with this seed
    --replay FILE      only run the program in FILE
    --guest            hostile callers in a machine instead, with a kernel that checks its structures
                       at every exit

prove    prove a claim by a test that takes long; goes on where an earlier call with the same
         sources stopped
    --interrupts       a hundred million interrupts at random masks on the real machine, for each
                       way to mask: none is lost, doubled, or overtakes another of its level
    --mutants [FILTER] the mistakes planted by tests/mutants (those whose name contains FILTER): a test
                       notices each, by an assertion; the last line is `K killed, S survived`
    --fresh            begin anew

syscalls list the entrypoints of the kernel and their classes
explain CALL
         print what there is to know about an entrypoint, by name, number or row (PORT0003)
reference
         write the API reference to docs/api/ and the C header to target/include/
check    rustfmt, clippy for everything in every configuration, and the rules of the rooms
build    build the kernel and all programs, and boot nothing
    --config CONFIG    only this configuration
fetch    get everything that later calls would want from the network
cargo    call cargo as the other commands do, with the rest of the arguments
    host ARG...        for xtask and host tests
    kernel[:CONFIG] ARG...  for the kernel's target
    probe[:CONFIG] ARG...   the same, with the probe of cut tests
    user ARG...        for programs of the guest
clean    remove everything generated
help     print this

A configuration is MODEL[,irq=hardware|optimistic]. The model says what a waiting thread keeps in
the kernel and where the kernel can be preempted: process-np, process-pp, process-fp, interrupt-np
(the default), interrupt-pp, continuation-np, continuation-pp, continuation-fp. `irq` says how the
kernel masks interrupts: by hardware (the default), or optimistically, by a word in memory.
";

/// A command with its options.
pub(crate) enum Command {
    /// Print [`HELP`].
    Help,
    /// Boot a machine.
    Run(RunOptions),
    /// Run tests.
    Test(TestOptions),
    /// Measure.
    Bench(BenchOptions),
    /// Look for differences between the kernel and its specification.
    Fuzz(FuzzOptions),
    /// Prove a claim by long tests.
    Prove(ProveOptions),
    /// Print the table of entrypoints.
    Syscalls,
    /// Print a row of it.
    Explain(String),
    /// Write the API reference.
    Reference,
    /// Run rustfmt and clippy.
    Check,
    /// Remove `target/`.
    Clean,
    /// Build all for these configurations.
    Build(Vec<Config>),
    /// Prepare for work without a network.
    Fetch,
    /// Become cargo.
    Cargo(Room, Config, Vec<OsString>),
}

/// Where a script comes from.
pub(crate) enum Script {
    /// `--script -`
    Stdin,
    /// `--script FILE`
    File(PathBuf),
}

/// Options of `run`.
pub(crate) struct RunOptions {
    pub(crate) config: Config,
    pub(crate) script: Option<Script>,
    pub(crate) adds: Vec<Add>,
    pub(crate) gets: Vec<Get>,
    pub(crate) memory: u32,
    pub(crate) timeout: Option<Duration>,
    pub(crate) deterministic: bool,
    pub(crate) verbose: bool,
}

/// What `prove` can prove.
pub(crate) enum Claim {
    /// No interrupt is lost.
    Interrupts,
    /// The tests notice every planted mistake, or those whose name contains this.
    Mutants(Option<String>),
}

/// Options of `prove`.
pub(crate) struct ProveOptions {
    pub(crate) claim: Claim,
    /// Forget what an earlier call has done.
    pub(crate) fresh: bool,
}

/// Options of `test`.
pub(crate) struct TestOptions {
    pub(crate) configs: Vec<Config>,
    /// Go on where an earlier call stopped.
    pub(crate) resume: bool,
    /// Forget what an earlier call has done.
    pub(crate) fresh: bool,
    pub(crate) filter: Option<String>,
    pub(crate) verbose: bool,
    /// Have the machine wait for a debugger.
    pub(crate) debug: bool,
}

/// Options of `bench`.
pub(crate) struct BenchOptions {
    pub(crate) configs: Vec<Config>,
    pub(crate) json: Option<PathBuf>,
    /// A directory for the plots as files of their own.
    pub(crate) plots: Option<PathBuf>,
    /// Runs that take the host's time.
    pub(crate) rounds: usize,
    pub(crate) update_thresholds: bool,
    /// Show where the instructions are.
    pub(crate) profile: bool,
    pub(crate) filter: Option<String>,
}

/// Options of `fuzz`.
pub(crate) struct FuzzOptions {
    pub(crate) time: Duration,
    pub(crate) seed: Option<u64>,
    /// Hostile callers in a machine instead.
    pub(crate) guest: bool,
    /// A program to run instead.
    pub(crate) replay: Option<PathBuf>,
}

/// Reads the arguments of this process.
pub(crate) fn parse() -> Result<Command, Error> {
    parse_from(lexopt::Parser::from_env())
}

fn parse_from(mut parser: lexopt::Parser) -> Result<Command, Error> {
    let name = match parser.next()? {
        None => return Err(Error::usage("a command is missing")),
        Some(Short('h') | Long("help")) => return Ok(Command::Help),
        Some(Value(name)) => name.string()?,
        Some(other) => return Err(other.unexpected().into()),
    };
    match name.as_str() {
        "help" => end(parser, Command::Help),
        "syscalls" => end(parser, Command::Syscalls),
        "reference" => end(parser, Command::Reference),
        "explain" => parse_explain(parser),
        "check" => end(parser, Command::Check),
        "clean" => end(parser, Command::Clean),
        "fetch" => end(parser, Command::Fetch),
        "run" => parse_run(parser),
        "test" => parse_test(parser),
        "bench" => parse_bench(parser),
        "prove" => parse_prove(parser),
        "fuzz" => parse_fuzz(parser),
        "build" => parse_build(parser),
        "cargo" => parse_cargo(parser),
        other => Err(Error::usage(format!("there is no command '{other}'"))),
    }
}

/// `command`, if no argument is left.
fn end(mut parser: lexopt::Parser, command: Command) -> Result<Command, Error> {
    match parser.next()? {
        None => Ok(command),
        Some(Short('h') | Long("help")) => Ok(Command::Help),
        Some(other) => Err(other.unexpected().into()),
    }
}

/// The value of an option that is `what`: a number that fits.
fn number<T: FromStr>(
    parser: &mut lexopt::Parser,
    option: &str,
    fits: impl Fn(&T) -> bool,
    what: &str,
) -> Result<T, Error> {
    let text = parser.value()?.string()?;
    let value = text.parse().ok().filter(fits);
    value.ok_or_else(|| Error::usage(format!("{option} {text}: not {what}")))
}

fn parse_explain(mut parser: lexopt::Parser) -> Result<Command, Error> {
    match parser.next()? {
        None => Err(Error::usage("explain: which call?")),
        Some(Value(name)) => {
            let name = name.string()?;
            end(parser, Command::Explain(name))
        }
        Some(Short('h') | Long("help")) => Ok(Command::Help),
        Some(other) => Err(other.unexpected().into()),
    }
}

fn parse_run(mut parser: lexopt::Parser) -> Result<Command, Error> {
    let mut options = RunOptions {
        config: Config::DEFAULT,
        script: None,
        adds: Vec::new(),
        gets: Vec::new(),
        memory: 512,
        timeout: None,
        deterministic: false,
        verbose: false,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("config") => options.config = Config::parse(&parser.value()?.string()?)?,
            Long("script") => {
                let file = parser.value()?;
                options.script = Some(if file == "-" {
                    Script::Stdin
                } else {
                    Script::File(file.into())
                });
            }
            Long("add") => {
                let pair = parser.value()?.string()?;
                let (host, guest) = pair
                    .rsplit_once(':')
                    .filter(|(host, guest)| !host.is_empty() && !guest.is_empty())
                    .ok_or_else(|| Error::usage(format!("--add {pair}: not HOST:GUEST")))?;
                options.adds.push(Add::path(host, guest));
            }
            Long("get") => {
                let pair = parser.value()?.string()?;
                let (guest, host) = pair
                    .split_once(':')
                    .filter(|(guest, host)| !host.is_empty() && !guest.is_empty())
                    .ok_or_else(|| Error::usage(format!("--get {pair}: not GUEST:HOST")))?;
                options.gets.push(Get {
                    guest: guest.into(),
                    host: host.into(),
                });
            }
            Long("memory") => {
                let fits = |megabytes: &u32| (16..=65_536).contains(megabytes);
                let what = "a number of megabytes from 16 to 65536";
                options.memory = number(&mut parser, "--memory", fits, what)?;
            }
            Long("timeout") => {
                let time = |seconds: &f64| Duration::try_from_secs_f64(*seconds);
                let fits = |seconds: &f64| time(seconds).is_ok_and(|time| !time.is_zero());
                let seconds = number(&mut parser, "--timeout", fits, "a number of seconds")?;
                options.timeout = time(&seconds).ok();
            }
            Long("deterministic") => options.deterministic = true,
            Long("verbose") => options.verbose = true,
            Short('h') | Long("help") => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Command::Run(options))
}

fn parse_test(mut parser: lexopt::Parser) -> Result<Command, Error> {
    let mut options = TestOptions {
        configs: Vec::new(),
        resume: false,
        fresh: false,
        filter: None,
        verbose: false,
        debug: false,
    };
    let mut choice = Choice::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long(option @ ("config" | "all" | "irq")) => {
                let option = option.to_string();
                choice.option(&option, &mut parser)?;
            }
            Long("fresh") => options.fresh = true,
            Long("debug") => options.debug = true,
            Long("verbose") => options.verbose = true,
            Short('h') | Long("help") => return Ok(Command::Help),
            Value(filter) if options.filter.is_none() => options.filter = Some(filter.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    if options.filter.as_deref() == Some("") {
        return Err(Error::usage("the filter is empty"));
    }
    let one = options
        .filter
        .as_deref()
        .is_some_and(|f| f.starts_with("cut/"));
    if options.debug && !one {
        return Err(Error::usage(
            "--debug: which cut? (FILTER must begin with cut/)",
        ));
    }
    options.resume = choice.all;
    if options.fresh && !options.resume {
        return Err(Error::usage("--fresh: only --all goes on where it stopped"));
    }
    options.configs = choice.among(Config::tested())?;
    Ok(Command::Test(options))
}

fn parse_prove(mut parser: lexopt::Parser) -> Result<Command, Error> {
    let mut claim = None;
    let mut fresh = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("interrupts") if claim.is_none() => claim = Some(Claim::Interrupts),
            Long("mutants") if claim.is_none() => claim = Some(Claim::Mutants(None)),
            Long("fresh") => fresh = true,
            Short('h') | Long("help") => return Ok(Command::Help),
            Value(name) if matches!(claim, Some(Claim::Mutants(None))) => {
                claim = Some(Claim::Mutants(Some(name.string()?)));
            }
            other => return Err(other.unexpected().into()),
        }
    }
    match claim {
        Some(claim) => Ok(Command::Prove(ProveOptions { claim, fresh })),
        None => Err(Error::usage("prove: what? --interrupts or --mutants")),
    }
}

fn parse_bench(mut parser: lexopt::Parser) -> Result<Command, Error> {
    let mut options = BenchOptions {
        configs: Vec::new(),
        json: None,
        plots: None,
        rounds: 5,
        update_thresholds: false,
        profile: false,
        filter: None,
    };
    let mut choice = Choice::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long(option @ ("config" | "all" | "irq")) => {
                let option = option.to_string();
                choice.option(&option, &mut parser)?;
            }
            Long("json") => options.json = Some(parser.value()?.into()),
            Long("plots") => options.plots = Some(parser.value()?.into()),
            Long("rounds") => {
                let fits = |rounds: &usize| *rounds <= 1000;
                options.rounds = number(&mut parser, "--rounds", fits, "a number of runs")?;
            }
            Long("profile") => options.profile = true,
            Long("update-thresholds") => options.update_thresholds = true,
            Short('h') | Long("help") => return Ok(Command::Help),
            Value(filter) if options.filter.is_none() => {
                let filter = filter.string()?;
                if filter.is_empty() || filter.contains(|c: char| !c.is_ascii_graphic()) {
                    return Err(Error::usage("the filter is not a part of a name"));
                }
                options.filter = Some(filter);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    options.configs = choice.among(vec![Config::DEFAULT])?;
    Ok(Command::Bench(options))
}

fn parse_fuzz(mut parser: lexopt::Parser) -> Result<Command, Error> {
    let mut options = FuzzOptions {
        time: Duration::from_secs(60),
        seed: None,
        guest: false,
        replay: None,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("time") => {
                let fits = |seconds: &u64| *seconds > 0;
                let seconds = number(&mut parser, "--time", fits, "a number of seconds")?;
                options.time = Duration::from_secs(seconds);
            }
            Long("seed") => {
                options.seed = Some(number(&mut parser, "--seed", |_| true, "a number")?);
            }
            Long("guest") => options.guest = true,
            Long("replay") => options.replay = Some(parser.value()?.into()),
            Short('h') | Long("help") => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Command::Fuzz(options))
}

fn parse_build(mut parser: lexopt::Parser) -> Result<Command, Error> {
    let mut choice = Choice::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long(option @ ("config" | "all" | "irq")) => {
                let option = option.to_string();
                choice.option(&option, &mut parser)?;
            }
            Short('h') | Long("help") => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Command::Build(choice.among(Config::tested())?))
}

fn parse_cargo(mut parser: lexopt::Parser) -> Result<Command, Error> {
    let room = parser
        .value()
        .map_err(|_| Error::usage("cargo: for host, kernel, probe or user?"))?
        .string()?;
    let (room, config) = match room.split_once(':') {
        Some((room, name)) => (room, Config::parse(name)?),
        None => (room.as_str(), Config::DEFAULT),
    };
    let room = match room {
        "host" => Room::Host,
        "kernel" => Room::Kernel,
        "probe" => Room::Probe,
        "user" => Room::User,
        other => {
            return Err(Error::usage(format!(
                "cargo: '{other}' is not host, kernel, probe or user"
            )))
        }
    };
    Ok(Command::Cargo(room, config, parser.raw_args()?.collect()))
}

/// `--config CONFIG`, or `--all` with or without `--irq`: the same wherever several configurations
/// can be chosen.
#[derive(Default)]
struct Choice {
    config: Option<Config>,
    all: bool,
    which: Option<Which>,
}

impl Choice {
    /// One of the three has been given.
    fn option(&mut self, option: &str, parser: &mut lexopt::Parser) -> Result<(), Error> {
        if option == "all" {
            self.all = true;
            return Ok(());
        }
        let text = parser.value()?.string()?;
        if option == "config" {
            return match self.config.replace(Config::parse(&text)?) {
                Some(_) => Err(Error::usage("--config can be given once")),
                None => Ok(()),
            };
        }
        let one = || Irq::ALL.into_iter().find(|irq| irq.name() == text);
        self.which = Some(match &*text {
            "both" => Which::Both,
            _ => Which::One(one().ok_or_else(|| {
                Error::usage(format!("--irq {text}: not hardware, optimistic or both"))
            })?),
        });
        Ok(())
    }

    /// What was chosen, or `default`.
    fn among(self, default: Vec<Config>) -> Result<Vec<Config>, Error> {
        match (self.config, self.all, self.which) {
            (Some(_), true, _) => Err(Error::usage("either --config or --all can be given")),
            (_, false, Some(_)) => Err(Error::usage(
                "--irq goes with --all; one configuration is --config MODEL,irq=...",
            )),
            (Some(config), false, None) => Ok(vec![config]),
            (None, true, which) => {
                let configs = Config::all(which.unwrap_or(Which::Usual));
                if configs.is_empty() {
                    return Err(Error::usage("this kernel has no such configuration"));
                }
                Ok(configs)
            }
            (None, false, None) => Ok(default),
        }
    }
}

impl From<lexopt::Error> for Error {
    fn from(error: lexopt::Error) -> Self {
        Error::usage(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, Error> {
        parse_from(lexopt::Parser::from_args(line.split_whitespace()))
    }

    #[test]
    fn run_options_are_read() {
        let Ok(Command::Run(options)) = parse(
            "run --config process-np --script - --add a:b:/c --get /x:y:z --memory 64 --timeout 1.5 --deterministic",
        ) else {
            panic!("not understood");
        };
        assert_eq!(options.config.name(), "process-np");
        assert!(matches!(options.script, Some(Script::Stdin)));
        assert_eq!(options.adds[0].guest, "/c");
        assert_eq!(options.gets[0].guest, "/x");
        assert_eq!(options.gets[0].host, PathBuf::from("y:z"));
        assert_eq!(options.memory, 64);
        assert_eq!(options.timeout, Some(Duration::from_millis(1500)));
        assert!(options.deterministic);
    }

    #[test]
    fn nonsense_is_refused_with_status_2() {
        for line in [
            "",
            "fly",
            "run fast",
            "run --memory many",
            "run --memory 1",
            "run --timeout -1",
            "run --timeout 0",
            "run --config process",
            "run --add here",
            "run --get :x",
            "run --script",
            "test a b",
            "test --all --config process-np",
            "test --config process-np --config process-np",
            "test --irq both",
            "test --all --irq some",
            "test --fresh",
            "prove",
            "prove --interrupts now",
            "prove --interrupts --mutants",
            "prove --mutants a b",
            "syscalls all",
            "bench a b",
            "fuzz --time soon",
            "fuzz --seed",
            "fuzz --time 0",
            "bench --rounds many",
            "bench --all --config process-np",
            "cargo moon build",
        ] {
            let error = parse(line)
                .err()
                .unwrap_or_else(|| panic!("'{line}' was accepted"));
            assert_eq!(error.status, crate::error::USAGE, "{line}");
            assert!(!error.message.is_empty());
        }
    }

    #[test]
    fn bench_options_are_read() {
        let Ok(Command::Bench(options)) =
            parse("bench --all --json out --rounds 3 --update-thresholds rpc")
        else {
            panic!("not understood")
        };
        assert_eq!(options.configs, Config::all(Which::Usual));
        assert_eq!(options.json, Some(PathBuf::from("out")));
        assert_eq!((options.rounds, options.update_thresholds), (3, true));
        assert_eq!(options.filter.as_deref(), Some("rpc"));
    }

    #[test]
    fn tests_default_to_one_of_each_model() {
        let Ok(Command::Test(options)) = parse("test ipc") else {
            panic!("not understood")
        };
        assert_eq!(options.configs, Config::tested());
        assert!(!options.resume);
        assert_eq!(options.filter.as_deref(), Some("ipc"));
    }
}
