//! The command line of `./fermata`: one declaration, from which arguments are parsed, and help, completions and the
//! manual page are made.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use xtask_bench::BenchOptions;
use xtask_build::config::{Choice, Config};
use xtask_build::project::BuildTarget;
use xtask_test::fuzz::FuzzOptions;
use xtask_test::TestOptions;

use crate::disk::DiskOptions;
use crate::root::RootOptions;
use crate::run::RunOptions;

/// The end of every help text about configurations.
const CONFIGURATIONS: &str = "\
A configuration is MODEL[,irq=hardware|optimistic]. The model says what a waiting thread keeps in the kernel and \
where the kernel can be preempted: process-np, process-pp, process-fp, interrupt-np (the default), interrupt-pp, \
continuation-np, continuation-pp, continuation-fp. `irq` says how the kernel masks interrupts: by hardware (the \
default), or optimistically, by a word in memory.";

const RUN: &str = "\
On a terminal, Ctrl-C and Ctrl-Z belong to the guest; Ctrl-] x stops the machine. The status is that of the \
guest's `exit N`, 1 instead of 0 if a file of --get was not there; 124 after a timeout; 125 when the machine panicked or could not be built.";

const TEST: &str = "\
Without --config and --all: one configuration of each model. --all goes on where an earlier call with the same \
sources stopped. The last line is `P passed, F failed`; the status is 0 only if F is 0 and P is not.";

/// A microkernel whose programs can be stopped, saved and resumed at any instant
#[derive(Parser)]
#[command(
    name = "fermata",
    bin_name = "./fermata",
    version,
    after_help = CONFIGURATIONS,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_version_flag = true,
    max_term_width = 110
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// A command with its options.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Boot to a shell on this terminal; with a script, run it and power off
    #[command(after_help = RUN, after_long_help = long(RUN))]
    Run(Box<RunOptions>),
    /// Make, read and check disks of machines: ext4, without root and without a machine
    Disk(DiskOptions),
    /// Inspect the images of checkpoints: show, check, diff, extract, merge; `./fermata image help` explains these
    #[command(disable_help_flag = true)]
    Image {
        /// The action, and its images
        #[arg(
            value_name = "ARG",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        arguments: Vec<OsString>,
    },
    /// Make a disk or an archive of Debian packages and everything that they depend on, without root and without a
    /// machine
    Root(RootOptions),
    /// Run the tests: on the host, in the guest, and whole scenarios
    #[command(after_help = TEST, after_long_help = long(TEST))]
    Test(TestOptions),
    /// Measure the costs of the kernel's operations; prints tables, and writes plots to target/bench/report.html
    #[command(after_long_help = CONFIGURATIONS)]
    Bench(BenchOptions),
    /// Run random programs on the kernel beside its specification, on the host
    ///
    /// Its results are in target/fuzz; a program that fails is shortened and printed.
    Fuzz(FuzzOptions),
    /// Prove a claim by a test that takes long
    ///
    /// --interrupts, --mutants and --checkpoints continue where an earlier call with the same sources stopped.
    Prove(ProveOptions),
    /// List Linux's drivers that `run --driver NAME` builds: version, lines, symbols that each needs, and those that
    /// the glue has
    ///
    /// Fetches and builds what is missing.
    Drivers {
        /// One of them: the functions that the glue does not have
        name: Option<String>,
    },
    /// List the entrypoints of the kernel and their classes
    Syscalls,
    /// Explain an entrypoint
    Explain {
        /// By name, number or row (PORT0003)
        call: String,
    },
    /// Make a book of all pages, the API reference and rustdoc of all crates, in target/book/
    Doc,
    /// Write the API reference to docs/api/ and the C header to target/include/
    Reference,
    /// Write docs/numbers.md: lines, calls, costs and tests, counted in the sources
    Numbers,
    /// Check rustfmt, clippy for everything in every configuration, the rules of the rooms, docs/security.md and docs/numbers.md
    Check,
    /// Make a small program in the new directory DIR, anywhere; `run --program DIR` builds it and puts it into the
    /// guest
    New {
        /// A directory that does not exist yet, or is empty
        directory: PathBuf,
    },
    /// Build the kernel and all programs, without booting
    #[command(after_long_help = CONFIGURATIONS)]
    Build(Choice),
    /// Download what later calls would download: crates and busybox
    Fetch {
        /// Also download what tests need: Debian packages, and the sources of Linux's drivers, which are prepared
        #[arg(long)]
        tests: bool,
    },
    /// Call cargo with the rest of the arguments, as the other commands do
    #[command(disable_help_flag = true)]
    Cargo {
        /// host (xtask and host tests), user (programs of the guest), kernel, or probe (the kernel with the probe of cut
        /// tests); the last two also as kernel:CONFIG and probe:CONFIG
        #[arg(value_name = "BUILD", value_parser = build)]
        build: (BuildTarget, Config),
        /// Arguments of cargo
        #[arg(
            value_name = "ARG",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        arguments: Vec<OsString>,
    },
    /// Remove target/, with everything that was built; docs/api/, ~/.cargo and committed pages stay
    Clean,
    /// Print a script that completes these commands: `source <(./fermata completions bash)`
    Completions {
        /// The shell that reads it
        shell: Shell,
    },
    /// Print the manual page: `./fermata man | man -l -`
    Man,
}

fn long(text: &str) -> String {
    format!("{text}\n\n{CONFIGURATIONS}")
}

/// Options of `prove`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ProveOptions {
    #[command(flatten)]
    claim: Claim,
    /// With --mutants, --drivers, --packages or --checkpoints: only those whose name contains FILTER
    #[arg(conflicts_with_all = ["interrupts", "model", "browser"])]
    pub(crate) filter: Option<String>,
    /// With --interrupts, --mutants or --checkpoints: start over
    #[arg(long, conflicts_with_all = ["drivers", "packages", "model", "browser"])]
    pub(crate) fresh: bool,
}

#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
struct Claim {
    /// A hundred million interrupts at random masks on the real machine, for each way to mask: none is
    /// lost, doubled, or overtakes another of its level
    #[arg(long)]
    interrupts: bool,
    /// The mutants in tests/mutants: a test notices each, by an assertion; the last line is
    /// `K killed, S survived`
    #[arg(long)]
    mutants: bool,
    /// The specification explored exhaustively: no order of calls in small systems with a hostile party
    /// breaks a rule of the design; SIZE moves farther than `test` goes
    #[arg(long, value_name = "SIZE", num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    model: Option<u8>,
    /// Drivers killed while their devices work: each N times, at instants from seeds; no write is lost, no byte changes that is not
    /// the driver's, nothing remains
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "10000", require_equals = true,
        value_parser = clap::value_parser!(u64).range(1..))]
    drivers: Option<u64>,
    /// Command lines of real programs of Debian's packages print what they print on the host; writes docs/packages.md
    #[arg(long)]
    packages: bool,
    /// The same command lines, saved at instants from seeds, killed and restored, N times in all: what they print, their statuses and the
    /// files that they leave are as if they had been left alone
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1000", require_equals = true,
        value_parser = clap::value_parser!(u64).range(1..))]
    checkpoints: Option<u64>,
    /// The page of `inspect` in a browser without a window, which is installed if there is none (Debian's
    /// chromium-headless-shell, 100 MB with what it needs): what it shows, and what a click does; writes
    /// docs/inspect.png
    #[arg(long)]
    browser: bool,
}

impl ProveOptions {
    /// Whether the claim is about programs of packages.
    pub(crate) fn is_about_packages(&self) -> bool {
        self.claim.packages
    }

    /// Whether the claim is about the page of `inspect` in a browser.
    pub(crate) fn is_about_browser(&self) -> bool {
        self.claim.browser
    }

    /// Whether the claim is about the mutants.
    pub(crate) fn is_about_mutants(&self) -> bool {
        self.claim.mutants
    }

    /// How many checkpoints of programs of packages are to be made, if the claim is about that.
    pub(crate) fn checkpoints(&self) -> Option<u64> {
        self.claim.checkpoints
    }

    /// How often each driver is to be killed, if the claim is about that.
    pub(crate) fn kills(&self) -> Option<u64> {
        self.claim.drivers
    }

    /// How many moves farther than by `test` the specification is to be explored, if the claim is about that.
    pub(crate) fn size_of_model(&self) -> Option<u8> {
        self.claim.model
    }
}

/// `ROOM[:CONFIG]`.
fn build(text: &str) -> Result<(BuildTarget, Config), String> {
    let (build, config) = match text.split_once(':') {
        Some((build, name)) => (
            build,
            Config::parse(name).ok_or_else(|| format!("there is no configuration {name}"))?,
        ),
        None => (text, Config::DEFAULT),
    };
    let build = match build {
        "host" => BuildTarget::Host,
        "kernel" => BuildTarget::Kernel,
        "probe" => BuildTarget::Probe,
        "user" => BuildTarget::User,
        _ => return Err("it is not host, kernel, probe or user".into()),
    };
    Ok((build, config))
}

/// Parses the arguments of this process. An error has a message and an exit status.
pub(crate) fn parse() -> Result<Command, clap::Error> {
    parse_from(std::env::args_os())
}

/// Whether these words, behind `./fermata`, are a valid command.
pub(crate) fn is_command(line: &str) -> bool {
    let words = std::iter::once("fermata").chain(line.split_whitespace());
    parse_from(words.map(OsString::from)).is_ok()
}

fn parse_from(arguments: impl Iterator<Item = OsString>) -> Result<Command, clap::Error> {
    let command = Cli::try_parse_from(arguments)?.command;
    if let Command::Test(options) = &command {
        options
            .check()
            .map_err(|why| declaration().error(ErrorKind::ValueValidation, why))?;
    }
    if let Command::Run(options) = &command {
        options
            .check()
            .map_err(|why| declaration().error(ErrorKind::ArgumentConflict, why))?;
    }
    Ok(command)
}

/// The declaration of the command line, from which other things are made.
pub(crate) fn declaration() -> clap::Command {
    Cli::command()
}

/// The script that completes these commands in a shell.
pub(crate) fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut declaration(), "fermata", &mut script);
    script
}

/// The manual page: one for all commands.
pub(crate) fn manual() -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let mut declaration = declaration();
    declaration.build();
    clap_mangen::Man::new(declaration.clone()).render(&mut page)?;
    for command in declaration.get_subcommands() {
        if command.get_name() == "help" {
            continue;
        }
        writeln!(
            page,
            ".SH \"COMMAND {}\"",
            command.get_name().to_uppercase()
        )?;
        let man = clap_mangen::Man::new(command.clone());
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, clap::Error> {
        let words = std::iter::once("fermata").chain(line.split_whitespace());
        parse_from(words.map(OsString::from))
    }

    #[test]
    fn the_declaration_is_sound() {
        declaration().debug_assert();
    }

    #[test]
    fn the_manual_page_and_the_completions_name_all_commands_and_options() {
        use clap::ValueEnum as _;
        let mut texts = vec![("the manual page".to_string(), manual().expect("a page"))];
        for shell in Shell::value_variants() {
            texts.push((shell.to_string(), completions(*shell)));
        }
        for (of, text) in &texts {
            // A manual page has a hyphen as an escape, and fish has options without their two hyphens.
            let text = String::from_utf8_lossy(text).replace('\\', "");
            for command in declaration().get_subcommands().filter(|c| !c.is_hide_set()) {
                let name = command.get_name();
                let section = name.to_uppercase();
                assert!(
                    text.contains(name) || text.contains(&section),
                    "{of}: {name}"
                );
                for option in command.get_opts().filter_map(|o| o.get_long()) {
                    assert!(text.contains(option), "{of}: {name} --{option}");
                }
            }
        }
    }

    #[test]
    fn what_the_pages_and_scripts_say_is_understood() {
        for line in [
            "run --config process-np --script - --add a:b:/c --get /x:y:z --memory 64 --timeout 1.5 --deterministic",
            "run --config continuation-fp,irq=hardware",
            "run --device virtio-rng --net user",
            "run --device i82557b --net user --device virtio-rng",
            "run --device lsi53c895a --disk file:64M",
            "run --device sb16 --sound played.wav",
            "run --driver e100 --net user",
            "run --driver e100:ports=ones --net user",
            "run --sound played.wav",
            "run --driver sb16 --sound played.wav",
            "test",
            "test --all --irq both",
            "test --all --fresh guest/",
            "test --config process-fp,irq=optimistic --verbose ipc",
            "test --debug cut/interrupt-np/0",
            "bench --all --json out --rounds 0 --update-thresholds rpc,null",
            "bench --profile rpc_0",
            "fuzz --time 5 --seed 3",
            "fuzz --guest",
            "fuzz --services --time 30 --seed 7",
            "prove --interrupts --fresh",
            "prove --mutants ipc",
            "prove --model",
            "prove --model=2",
            "prove --drivers",
            "prove --drivers=400",
            "prove --drivers=400 pcnet32",
            "prove --browser",
            "prove --checkpoints=1000000 python3",
            "explain cond_wait",
            "build --all",
            "completions bash",
        ] {
            if let Err(error) = parse(line) {
                panic!("'{line}': {error}");
            }
        }
    }

    #[test]
    fn arguments_of_cargo_are_left_alone() {
        for (line, config, count) in [
            (
                "cargo host test -p fermata-kernel -- --nocapture",
                "interrupt-np",
                5,
            ),
            ("cargo kernel:process-np --version", "process-np", 1),
            ("cargo user build --help", "interrupt-np", 2),
        ] {
            let Ok(Command::Cargo { build, arguments }) = parse(line) else {
                panic!("'{line}' was not understood");
            };
            assert_eq!(build.1.name(), config);
            assert_eq!(arguments.len(), count, "{line}: {arguments:?}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_status_2() {
        for line in [
            "",
            "fly",
            "run --in kernel",
            "run --in moon ls",
            "run --script file ls",
            "run --device virtio-moon",
            "run --device virtio-rng --deterministic",
            "run --device e1000 --driver e100",
            "run --device e1000 --device tulip",
            "run --device lsi53c895a",
            "run --memory many",
            "run --memory 1",
            "run --timeout -1",
            "run --timeout 0",
            "run --config process",
            "run --add here",
            "run --add a:/disk/b",
            "run --add a:.//disk",
            "run --get :x",
            "run --driver e100:ports=zeros",
            "run --script",
            "test a b",
            "test --all --config process-np",
            "test --config process-np --config process-np",
            "test --irq both",
            "test --all --irq some",
            "test --fresh",
            "test --debug",
            "test --debug guest/",
            "prove",
            "prove --interrupts now",
            "prove --interrupts --mutants",
            "prove --model=deep",
            "prove --model --mutants",
            "prove --drivers=0",
            "prove --drivers --model",
            "prove --browser ipc",
            "prove --mutants a b",
            "syscalls all",
            "bench a b",
            "fuzz --time soon",
            "fuzz --seed",
            "fuzz --time 0",
            "fuzz --services --guest",
            "bench --rounds many",
            "bench --all --config process-np",
            "cargo moon build",
        ] {
            let error = parse(line)
                .err()
                .unwrap_or_else(|| panic!("'{line}' was accepted"));
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn a_typo_is_told_what_was_meant() {
        for (line, meant) in [
            ("tset", "'test'"),
            ("run --memroy 64", "'--memory'"),
            ("run --config interupt-np", "'interrupt-np'"),
        ] {
            let error = parse(line).err().expect("an error").to_string();
            assert!(error.contains(meant), "{line}: {error}");
        }
    }
}
