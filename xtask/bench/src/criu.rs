//! `./fermata bench --beside-criu`: checkpoints beside CRIU in Debian's Linux on the same emulator, as the page `docs/criu.md`.
//!
//! `benches/criu/program.c` runs in both. In Linux `benches/criu/init` saves it, and prints what came of it; in Fermata scripts here have it
//! print the same words. The plugin counts what stands between the program's marks.
//!
//! * [`said`] reads what the machines print.
//! * [`page`] makes the page of it.

mod page;
mod said;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::boots::{self, numbers, Line};
use super::report::alone;
use super::{build_plugin, per};
use page::Found;
use said::Said;
use xtask_build::archive::{Archive, Content};
use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::image::{self, Images};
use xtask_build::packages::Packages;
use xtask_build::project::{finish, temp_dir, Project};
use xtask_machine::control::Event;
use xtask_machine::debian::Debian;
use xtask_machine::{self as machine, Add, End, Operator, Options, Plugin};

/// What is written.
const PAGE: &str = "docs/criu.md";
const PLOT: &str = "docs/criu.svg";
/// Where the program and the first process of Linux are.
const SOURCES: &str = "benches/criu";
/// Packages with CRIU, a shell for its machine, and the kernel.
const PACKAGES: [&str; 3] = ["criu", "busybox-static", "linux-image-amd64"];
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
/// The two between which a byte's share is taken.
const SHARE: [u64; 2] = [16, 256];
/// Host time for a machine.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// In megabytes: the largest program, its image, and what was made of it, twice.
const MEMORY: u32 = 2048;

/// States that may be refused, as `program.c` calls them, and what they are.
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
/// The options with which a state is tried again that was refused: of Fermata's command and of CRIU's, in the names of their results.
const CUT: &str = "--cut";
const ALL_OPTIONS: &str = "all-options";
/// In how many ways the program with the calls is run.
const WAYS: [&str; 3] = ["undisturbed", "goes-on", "restored"];

/// The program for both systems.
fn program(project: &Project) -> Result<Vec<u8>, Error> {
    let directory = temp_dir()?;
    let made = directory.path().join("program");
    let mut command = Command::new("cc");
    command
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-static", "-o"])
        .arg(&made)
        .arg(project.root.join(SOURCES).join("program.c"));
    finish(command, "compiling benches/criu/program.c")?;
    std::fs::read(&made).map_err(|error| Error::new(format!("{}: {error}", made.display())))
}

/// Whether Linux's machine wants this file of the packages.
fn is_wanted(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let library = (name.starts_with("lib") || name.starts_with("ld-linux")) && name.contains(".so");
    let module = name.strip_suffix(".ko");
    library && !path.contains("python")
        || path.ends_with("sbin/criu")
        || path == "bin/busybox"
        || path.starts_with("boot/vmlinuz-")
        || module.is_some_and(|name| MODULES.contains(&name))
}

/// The machine with Debian's kernel and CRIU.
fn linux(project: &Project, program: &[u8], library: &Path) -> Result<Said, Error> {
    let names = PACKAGES.map(String::from);
    let files = Packages::get(project, &names)?.unpacked_of(&is_wanted)?;
    let mut archive = Archive::with_directories()?;
    let mut kernel = None;
    for (path, content, attributes) in files.entries() {
        let name = path.rsplit('/').next().unwrap_or_default();
        match content {
            Content::File(bytes) if path.starts_with("boot/vmlinuz-") => {
                kernel = Some(bytes.clone());
            }
            // Found by its name alone: nothing here has an index of modules.
            Content::File(bytes) if name.ends_with(".ko") => {
                archive.file(&format!("modules/{name}"), bytes.clone(), false)?;
            }
            _ => archive.put(path, content.clone(), *attributes)?,
        }
    }
    let kernel =
        kernel.ok_or_else(|| Error::new("Debian's package of a kernel has no kernel in it"))?;
    let init = std::fs::read(project.root.join(SOURCES).join("init"))
        .map_err(|error| Error::new(format!("{SOURCES}/init: {error}")))?;
    archive.file("init", init, true)?;
    archive.file("bin/program", program.to_vec(), true)?;
    let list = |words: &[String]| format!("{}\n", words.join(" ")).into_bytes();
    archive.file("modules/order", list(&MODULES.map(String::from)), false)?;
    archive.file("sizes", list(&SIZES.map(|size| size.to_string())), false)?;
    let states = STATES.map(|(state, _)| state.to_string());
    archive.file("states", list(&states), false)?;

    let directory = temp_dir()?;
    let output = directory.path().join("counts");
    let debian = Debian {
        kernel,
        initrd: archive.initrd()?,
        memory: MEMORY,
        plugin: plugin(library, &output),
        timeout: TIMEOUT,
    };
    let mut lines = Vec::new();
    debian.run(&mut |line| {
        eprintln!("Linux: {line}");
        lines.push(line.to_string());
    })?;
    understood(&lines, &output, "Linux")
}

fn plugin(library: &Path, output: &Path) -> Plugin {
    Plugin {
        library: library.to_path_buf(),
        output: output.to_path_buf(),
        events: None,
        profile: None,
    }
}

/// What a machine's lines and the plugin's file tell.
fn understood(lines: &[String], output: &Path, system: &str) -> Result<Said, Error> {
    let counts = std::fs::read_to_string(output).unwrap_or_default();
    let stretches: Vec<u64> = counts
        .lines()
        .filter_map(numbers::<3>)
        .map(|[instructions, ..]| instructions)
        .collect();
    let mut said = Said::default();
    for line in lines {
        said.line(line, &stretches);
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
    // What is outside of the trees that are tried: the first two jobs.
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

/// Collects what is printed.
#[derive(Default)]
struct Listener {
    text: String,
}

impl Operator for Listener {
    fn console(&mut self, bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        eprint!("{text}");
        self.text.push_str(&text);
        true
    }

    fn event(&mut self, _: &Event) {}
}

/// The machine with Fermata, in which the same program is saved by the command for that.
fn fermata(images: &Images, program: &[u8], library: &Path) -> Result<Said, Error> {
    let (script, files) = script();
    let directory = temp_dir()?;
    let output = directory.path().join("counts");
    let mut options = Options::new(Config::DEFAULT);
    options.script = Some(script.into_bytes());
    options.memory = MEMORY;
    options.deterministic = true;
    options.timeout = Some(TIMEOUT);
    options.plugin = Some(plugin(library, &output));
    options
        .adds
        .push(Add::bytes(program.to_vec(), true, "/bin/program"));
    for (path, content) in files {
        options
            .adds
            .push(Add::bytes(content.into_bytes(), false, path));
    }
    let mut listener = Listener::default();
    let end = machine::run(images, &options, &mut listener)?;
    match end {
        End::Exit(0) => {}
        End::Stopped(status) => {
            return Err(Error {
                message: "interrupted".into(),
                status,
            })
        }
        end => {
            return Err(Error::new(format!(
                "the machine with the program of Linux ended as {end:?}\n{}",
                listener.text
            )))
        }
    }
    understood(&tried(&listener.text), &output, "Fermata")
}

/// The lines that were printed, with what commands said about a state as [`Said`] wants it.
fn tried(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut state: Option<(&str, String)> = None;
    let end = |state: &mut Option<(&str, String)>, lines: &mut Vec<String>| {
        if let Some((name, came)) = state.take() {
            let came = if came.is_empty() { "saved" } else { &came };
            lines.push(format!("state {name}: {came}"));
        }
    };
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("trying ") {
            end(&mut state, &mut lines);
            state = Some((name, String::new()));
        } else if line == "done" {
            end(&mut state, &mut lines);
            lines.push(line.into());
        } else if let Some((_, came)) = &mut state {
            let refused = line.split_once(": cannot be saved: ");
            let lost = line
                .strip_prefix("a process cannot be restored: ")
                .or(line.strip_prefix("restore: "));
            // The first reason is that of the others.
            if !came.is_empty() {
            } else if let Some((_, why)) = refused {
                *came = format!("refused {why}");
            } else if let Some(why) = lost {
                *came = format!("lost {why}");
            } else if line.contains("Function not implemented") {
                *came = "absent".into();
            }
        } else {
            lines.push(line.into());
        }
    }
    lines
}

/// The rows of checkpoints of native programs: instructions, by their names.
fn native(images: &Images, library: &Path) -> Result<BTreeMap<String, u64>, Error> {
    let mut options = Options::new(Config::DEFAULT);
    // A size that others do not ask for is asked for by its number.
    options.script = Some(b"trust /bench/save_restore checkpoint_,256\nexit 0\n".to_vec());
    options.memory = MEMORY;
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
    let program = program(project)?;
    let native = native(&images, &library)?;
    let fermata = fermata(&images, &program, &library)?;
    let linux = linux(project, &program, &library)?;
    let found = Found {
        linux,
        fermata,
        native,
    };
    let write = |name: &str, text: String| {
        std::fs::write(project.root.join(name), text)
            .map_err(|error| Error::new(format!("{name}: {error}")))
    };
    write(PAGE, found.page())?;
    if let Some(svg) = found.plot() {
        write(PLOT, alone(svg))?;
    }
    println!("written: {PAGE}, {PLOT}");
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
        assert_eq!(
            tried(text),
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
