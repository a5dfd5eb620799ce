//! Runs tests and reports over the control channel: `runner [FILTER]`, words with commas between them.
//!
//! Every test runs in a process of its own, so that a failing one affects no other. Tests of the kernel are in
//! `kernel`, which lists their names; the others are programs whose exit status is the result.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use guest_tests::harness::is_wanted;
use rt::process::{Client, Start, Status, Stdio};

rt::entry!(main);

/// How long a test may take, in nanoseconds of the guest.
const PATIENCE: u64 = 1_000_000_000_000;
/// Where the output of a test goes.
const OUTPUT: &str = "/tmp/test-output";

/// A test that is a program: its name, and what to start.
struct Program {
    name: &'static str,
    args: &'static [&'static str],
}

/// The kernel's interface and services from C; and programs stopped and saved at random instants, killed, and
/// restored from the image alone.
const PROGRAMS: &[Program] = &[
    Program {
        name: "HEADER0001_a_c_program_uses_it",
        args: &["/test/c_interface"],
    },
    Program {
        name: "HEADER0002_a_c_program_asks_services",
        args: &["/test/c_services"],
    },
    Program {
        name: "CHECKPOINT0001_four_threads_on_two_mutexes",
        args: &[
            "/test/cutter",
            "seed=11",
            "cuts=100",
            "native",
            "/test/mutexes",
        ],
    },
    Program {
        name: "CHECKPOINT0002_client_and_server_in_a_transfer",
        args: &[
            "/test/cutter",
            "seed=12",
            "cuts=100",
            "native",
            "/test/transfer_client",
            "+",
            "native",
            "/test/transfer_server",
        ],
    },
    Program {
        name: "CHECKPOINT0003_slow_keeper",
        args: &[
            "/test/cutter",
            "seed=13",
            "cuts=100",
            "native",
            "/test/slow_keeper",
        ],
    },
    Program {
        name: "CHECKPOINT0004_accesses_to_what_is_gone",
        args: &[
            "/test/cutter",
            "seed=14",
            "cuts=100",
            "native",
            "/test/gone",
        ],
    },
    Program {
        name: "CHECKPOINT0005_what_is_done_once_with_both_saved",
        args: &[
            "/test/cutter",
            "seed=15",
            "cuts=100",
            "native",
            "/test/tally_client",
            "+",
            "native",
            "/test/tally_server",
        ],
    },
];

fn main() -> u8 {
    let filter = rt::start().args.get(1).map_or("", String::as_str);
    let filter = filter.strip_prefix("filter=").unwrap_or(filter);
    let native = match Client::new("native") {
        Ok(native) => native,
        Err(error) => {
            report(&format!(
                "test runner ... FAILED no manager: {}",
                error.text()
            ));
            return done(1);
        }
    };
    let names = match run(&native, &["/test/kernel", "--names", filter]) {
        Ok(names) => names,
        Err(why) => {
            report(&format!("test runner ... FAILED no names of tests: {why}"));
            return done(1);
        }
    };
    // If the list were empty, no test would run and no failure would show.
    if names.is_empty() && filter.is_empty() {
        report("test runner ... FAILED the list of tests is empty");
        return done(1);
    }
    let kernel = names
        .lines()
        .map(|name| (name, ["/test/kernel", name].to_vec()));
    let programs = PROGRAMS
        .iter()
        .filter(|program| is_wanted(program.name, filter))
        .map(|program| (program.name, program.args.to_vec()));
    let mut failed = 0;
    for (name, args) in kernel.chain(programs) {
        report(&format!("test {name} ..."));
        match run(&native, &args) {
            Ok(output) => {
                for line in output.lines().filter(|line| line.starts_with("note ")) {
                    report(&format!("log {name}: {}", &line[5..]));
                }
                report(&format!("test {name} ... ok"));
            }
            Err(why) => {
                failed += 1;
                report(&format!("test {name} ... FAILED {why}"));
            }
        }
    }
    done(u8::from(failed > 0))
}

/// Reports that all tests have run and stops the machine.
fn done(status: u8) -> u8 {
    report("tests done");
    let _ = rt::system::power_off(status);
    status
}

/// Writes a line to the control channel. If that fails it cannot be reported either.
fn report(line: &str) {
    let _ = rt::system::report(line);
}

/// Runs a program. Returns its output, or why it failed.
fn run(native: &Client, args: &[&str]) -> Result<String, String> {
    let output = Stdio::File {
        path: OUTPUT.to_string(),
        append: true,
    };
    let start = Start {
        args: args.iter().map(|arg| (*arg).to_string()).collect(),
        env: Vec::new(),
        stdio: [Stdio::Null, output.clone(), output].to_vec(),
        cwd: "/".to_string(),
    };
    // A program that prints nothing makes no file: with an empty file made before, a missing file is a failure.
    let _ = rt::fs::unlink(OUTPUT);
    rt::fs::write_all(OUTPUT, b"", 0o644)
        .map_err(|error| format!("cannot make {OUTPUT}: {}", error.text()))?;
    let said = |what: String| {
        let output = rt::fs::read_all(OUTPUT).unwrap_or_default();
        let text = String::from_utf8_lossy(&output).replace('\n', " | ");
        format!("{what}: {text}")
    };
    let process = native
        .spawn(args[0], &start, &[])
        .map_err(|error| format!("cannot start: {}", error.text()))?;
    let end = rt::time::now() + PATIENCE;
    let status = loop {
        match process.status() {
            Ok(Status::Running) if rt::time::now() < end => rt::time::sleep(1_000_000),
            Ok(Status::Running) => {
                let doing = process
                    .info()
                    .map_or_else(|_| String::new(), |info| info.doing.join("; "));
                let _ = process.kill();
                let _ = process.reap();
                return Err(said(format!("not done in time ({doing})")));
            }
            Ok(status) => break status,
            Err(error) => return Err(said(format!("its status: {}", error.text()))),
        }
    };
    let _ = process.reap();
    match status {
        Status::Exited(0) => {
            let output = rt::fs::read_all(OUTPUT)
                .map_err(|error| format!("its output cannot be read: {}", error.text()))?;
            Ok(String::from_utf8_lossy(&output).into_owned())
        }
        Status::Exited(status) => Err(said(format!("exit status {status}"))),
        status => Err(said(format!("{status:?}"))),
    }
}
