//! `./fermata bench --beside-criu`: checkpoints beside CRIU in Debian's Linux on the same emulator, as the page `docs/criu.md`.
//!
//! `benches/criu/program.c` runs on both systems. In Linux `benches/criu/init` saves it and prints the results; in
//! Fermata the scripts below print the same words. The plugin counts the instructions between the program's marks.
//!
//! * [`said`] reads what the machines print.
//! * [`page`] writes the page.

mod page;
mod said;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::beside;
use super::boots::{self, Line};
use super::{build_plugin, per};
use page::Found;
use said::Said;
use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::image::{self, Images};
use xtask_build::project::Project;
use xtask_machine::{Add, Options};

/// The files that are written.
const PAGE: &str = "docs/criu.md";
const PLOT: &str = "docs/criu.svg";
/// Where the program and the first process of Linux are.
const SOURCES: &str = "benches/criu";
/// Packages with CRIU, a shell for its machine, and the kernel.
const PACKAGES: [&str; 3] = ["criu", "busybox-static", beside::KERNEL];
/// Modules of the kernel that CRIU asks about sockets and firewalls, each behind those that it needs.
const MODULES: [&str; 12] = [
    "crc32c_generic",
    "libcrc32c",
    "nfnetlink",
    "nf_tables",
    "inet_diag",
    "tcp_diag",
    "udp_diag",
    "unix_diag",
    "netlink_diag",
    "af_packet_diag",
    "tun",
    "veth",
];
/// Megabytes that the program holds.
const SIZES: [u64; 5] = [0, 2, 16, 64, 256];
/// The two sizes from which the share of a byte is computed.
const SHARE: [u64; 2] = [16, 256];
/// States that a checkpointer may refuse, by their names in `program.c`, and their descriptions.
const STATES: [(&str, &str); 21] = [
    ("job", "a job of a shell, in the shell's session"),
    (
        "terminal",
        "the program on a pseudo-terminal, whose master is outside of the tree",
    ),
    (
        "tracer",
        "a debugger (`ptrace`) with a process that it has stopped",
    ),
    ("vfork", "a process that waits for its child (`vfork`)"),
    ("pipeline", "one process of a shell's pipeline"),
    (
        "fifo",
        "a FIFO that a process outside of the tree has open, too",
    ),
    ("tcp-listens", "a TCP socket that listens"),
    ("tcp-inside", "a TCP connection within the process"),
    (
        "tcp-outside",
        "a TCP connection with a process outside of the tree",
    ),
    ("unlinked-small", "an open file of 1 KB without a name"),
    ("unlinked-large", "an open file of 2 MB without a name"),
    (
        "removed-directory",
        "a working directory that has been removed",
    ),
    ("flock", "a lock on a file"),
    (
        "sysv-memory",
        "shared memory of System V, without a namespace",
    ),
    ("memfd", "a file of `memfd_create`"),
    ("timerfd", "a timer of `timerfd_create` that runs"),
    ("signalfd", "signals that are read from a descriptor"),
    ("inotify", "a watched directory"),
    ("io_uring", "a ring of `io_uring`"),
    ("userfaultfd", "a descriptor of `userfaultfd`"),
    ("kernel-asynchronous", "a ring of `io_setup`"),
];
/// The options with which a refused state is tried again: Fermata's option, and the word for CRIU's, as the names of
/// the results have them.
const CUT: &str = "--cut";
const ALL_OPTIONS: &str = "all-options";
/// The ways in which the program with the calls is run.
const WAYS: [&str; 3] = ["undisturbed", "goes-on", "restored"];

/// Whether Linux's machine wants this file of the packages.
fn is_wanted(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let library = (name.starts_with("lib") || name.starts_with("ld-linux")) && name.contains(".so");
    let module = name.strip_suffix(".ko");
    library && !path.contains("python")
        || path.ends_with("sbin/criu")
        || path == "bin/busybox"
        || module.is_some_and(|name| MODULES.contains(&name))
}

/// The machine with Debian's kernel and CRIU.
fn linux(project: &Project, program: &[u8], library: &Path) -> Result<Said, Error> {
    let mut files = beside::files(project, &PACKAGES, &is_wanted)?;
    let init = beside::source(project, &format!("{SOURCES}/init"))?;
    let archive = &mut files.archive;
    archive.file("init", init, true)?;
    archive.file("bin/program", program.to_vec(), true)?;
    let modules = MODULES.map(String::from);
    archive.file("modules/order", beside::words(&modules), false)?;
    let sizes = SIZES.map(|size| size.to_string());
    archive.file("sizes", beside::words(&sizes), false)?;
    let states = STATES.map(|(state, _)| state.to_string());
    archive.file("states", beside::words(&states), false)?;
    let ran = beside::linux(files, library)?;
    understood(&ran.lines, &ran.stretches, "Linux")
}

/// Collects what a machine's lines and the plugin's counts say.
fn understood(lines: &[String], stretches: &[u64], system: &str) -> Result<Said, Error> {
    let mut said = Said::default();
    for line in lines {
        said.line(line, stretches);
    }
    if said.marks != stretches.len() {
        said.failures.push(format!(
            "{} stretches were marked, and {} told of",
            stretches.len(),
            said.marks
        ));
    }
    if !said.ended {
        return Err(Error::new(format!(
            "{system} did not come to its end:\n{}",
            lines.join("\n")
        )));
    }
    Ok(said)
}

/// The script of Fermata's machine, and files for it.
fn script() -> (String, Vec<(&'static str, String)>) {
    let mut script = String::new();
    for size in SIZES {
        let _ = writeln!(
            script,
            "rm /tmp/ready\n/bin/program hold {} /tmp/ready &\ntrust sh /lines/save {size}\nkill %1\ntrust sh /lines/restore {size}\nkill %1\nkill %2",
            size << 20
        );
    }
    for way in WAYS {
        let _ = writeln!(
            script,
            "rm /tmp/ready\n/bin/program calls /tmp/calls /tmp/ready &\nsh /lines/ready"
        );
        script.push_str(match way {
            "goes-on" => "checkpoint %1 /tmp/image\n",
            "restored" => "checkpoint %1 /tmp/image\nkill %1\nrestore /tmp/image\n",
            _ => "",
        });
        let _ = writeln!(script, "sh /lines/calls {way}\nkill %1");
    }
    // Objects outside the trees that are saved: the first two jobs.
    script.push_str(
        "/bin/program state serve /tmp/serves &\nbusybox mkfifo /tmp/outside\nsh -c \"exec sleep 1000000 <> /tmp/outside\" &\n",
    );
    for (state, _) in STATES {
        let command = match state {
            "fifo" => {
                "sh -c \"exec /bin/program state fifo /tmp/ready > /tmp/outside\"".to_string()
            }
            "pipeline" => "/bin/program state pipeline /tmp/ready | busybox cat".to_string(),
            _ => format!("/bin/program state {state} /tmp/ready"),
        };
        let _ = writeln!(
            script,
            "rm /tmp/ready\necho trying {state}\n{command} &\ntrust sh /lines/try {state}\nkill %3\nrestore /tmp/image\nkill %3\nrm /tmp/image"
        );
    }
    script.push_str("echo done\nexit 0\n");
    let ready =
        "n=0\nuntil [ -s /tmp/ready ] || [ $n = 300 ]; do usleep 10000; n=$((n + 1)); done\n";
    let files = vec![
        ("/lines/ready", ready.to_string()),
        (
            "/lines/save",
            format!(
                "{ready}pid=$(cat /tmp/ready)\nfor pass in 1 2; do\n\
                 /bin/program measured /bin/checkpoint linux:$pid /tmp/image\necho \"counted save $1 $?\"\ndone\n\
                 ls -ln /tmp/image | awk -v size=$1 '{{ print \"bytes\", size, $5 }}'\n"
            ),
        ),
        (
            "/lines/try",
            format!(
                "{ready}if [ -s /tmp/ready ]; then\nnumber=$(cat /tmp/ready)\n\
                 checkpoint linux:$number /tmp/image || {{ echo \"trying {CUT} $1\"; checkpoint {CUT} linux:$number /tmp/image; }}\nfi\n"
            ),
        ),
        (
            "/lines/restore",
            "for pass in 1 2; do\n/bin/program measured /bin/restore /tmp/image\necho \"counted restore $1 $?\"\ndone\nrm /tmp/image\n"
                .to_string(),
        ),
        (
            "/lines/calls",
            "n=0\nuntil grep -qs '^end' /tmp/calls || [ $n = 800 ]; do usleep 10000; n=$((n + 1)); done\n\
             sed \"s/^call/call $1/\" /tmp/calls\nrm /tmp/calls\n"
                .to_string(),
        ),
    ];
    (script, files)
}

/// The machine with Fermata, in which a command saves the same program.
fn fermata(images: &Images, program: &[u8], library: &Path) -> Result<Said, Error> {
    let (script, files) = script();
    let files = files.into_iter();
    let mut adds: Vec<Add> = files
        .map(|(path, content)| Add::bytes(content.into_bytes(), false, path))
        .collect();
    adds.push(Add::bytes(program.to_vec(), true, "/bin/program"));
    let mut options = beside::options(&script);
    options.adds = adds;
    let ran = beside::fermata(images, library, boots::Look::Counts, options)?;
    understood(&tried(&ran.lines), &ran.stretches, "Fermata")
}

/// The printed lines, with the messages of commands about a state in the form that [`Said`] reads.
fn tried(printed: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut state: Option<(&str, String)> = None;
    let end = |state: &mut Option<(&str, String)>, lines: &mut Vec<String>| {
        if let Some((name, came)) = state.take() {
            let came = if came.is_empty() { "saved" } else { &came };
            lines.push(format!("state {name}: {came}"));
        }
    };
    for line in printed {
        if let Some(name) = line.strip_prefix("trying ") {
            end(&mut state, &mut lines);
            state = Some((name, String::new()));
        } else if line == "done" {
            end(&mut state, &mut lines);
            lines.push(line.clone());
        } else if let Some((_, came)) = &mut state {
            let refused = line.split_once(": cannot be saved: ");
            let lost = line
                .strip_prefix("a process cannot be restored: ")
                .or(line.strip_prefix("restore: "));
            // The first reason is the cause of the others.
            if !came.is_empty() {
            } else if let Some((_, why)) = refused {
                *came = format!("refused {why}");
            } else if let Some(why) = lost {
                *came = format!("lost {why}");
            } else if line.contains("Function not implemented") {
                *came = "absent".into();
            }
        } else {
            lines.push(line.clone());
        }
    }
    lines
}

/// The rows of checkpoints of native programs: instructions, by their names.
fn native(images: &Images, library: &Path) -> Result<BTreeMap<String, u64>, Error> {
    let mut options = Options::new(Config::DEFAULT);
    // A size outside the default set is requested by its number.
    options.script = Some(b"trust /bench/save_restore checkpoint_,256\nexit 0\n".to_vec());
    options.memory = beside::MEMORY;
    options.words.push("program-quota=10".into());
    options.words.push("program-ceiling=31".into());
    let session = boots::session(
        images,
        options,
        boots::Look::Counts,
        library,
        "Fermata",
        &mut |line| super::show("Fermata", line),
    )?;
    let failed = super::failures(&session);
    if let Some(why) = failed.first() {
        return Err(Error::new(why.clone()));
    }
    let rows = session
        .into_iter()
        .filter_map(|(line, stretch)| match line {
            Line::Sample {
                name, operations, ..
            } => Some((name, per(stretch?.counts[0], operations))),
            Line::Value { name, value, .. } => Some((name, value)),
            Line::Failed { .. } => None,
        });
    Ok(rows.collect())
}

/// Measures, and writes the page.
pub(super) fn run(project: &Project) -> Result<u8, Error> {
    let images = image::build(project, &[Config::DEFAULT])?;
    let library = build_plugin(project)?;
    let program = beside::program(project, &format!("{SOURCES}/program.c"))?;
    let native = native(&images, &library)?;
    let fermata = fermata(&images, &program, &library)?;
    let linux = linux(project, &program, &library)?;
    let found = Found {
        linux,
        fermata,
        native,
    };
    beside::write(
        project,
        (PAGE, found.page()),
        (PLOT, found.plot()),
        "Checkpoints beside CRIU",
        "Instructions to save and to restore, by what the program holds: docs/criu.md has them as tables.",
    )?;
    let failures = [("Linux", &found.linux), ("Fermata", &found.fermata)];
    let mut status = 0;
    for (system, said) in failures {
        for failure in &said.failures {
            eprintln!("fermata: {system}: {failure}");
            status = xtask_build::error::BROKEN;
        }
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::tried;

    #[test]
    fn what_commands_say_of_a_state_is_its_outcome() {
        let text = "bytes 2 5\ntrying job\ntrying pipe\nprogram (6): cannot be saved: it shares the pipe\ntrying --cut pipe\nrestore: none\ntrying io_uring\nio_uring: Function not implemented\ncheckpoint: no job\ndone\n";
        let printed: Vec<String> = text.lines().map(String::from).collect();
        assert_eq!(
            tried(&printed),
            [
                "bytes 2 5",
                "state job: saved",
                "state pipe: refused it shares the pipe",
                "state --cut pipe: lost none",
                "state io_uring: absent",
                "done"
            ]
        );
    }
}
