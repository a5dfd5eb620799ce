//! Measurements with Linux programs, beside Debian's Linux or beside other placements of servers: a program for both
//! systems, one machine for each, and the parts of pages about the results.
//!
//! * [`said`] reads what the machines print.

pub(super) mod said;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::boots::{numbers, Look};
use super::report::alone;
use super::table::grouped;
use xtask_build::archive::{Archive, Content};
use xtask_build::busybox;
use xtask_build::config::Config;
use xtask_build::error::{Error, BROKEN};
use xtask_build::image::Images;
use xtask_build::packages::Packages;
use xtask_build::project::{finish, temp_dir, Project};
use xtask_machine::control::Event;
use xtask_machine::debian::Debian;
use xtask_machine::{self as machine, End, Operator, Options, Plugin};

/// Host time for a machine.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// In megabytes, of each machine.
pub(super) const MEMORY: u32 = 2048;
/// The package of Debian's kernel.
pub(super) const KERNEL: &str = "linux-image-amd64";

/// What a machine printed, and what the plugin measured in the stretches that its programs marked.
#[derive(Default)]
pub(super) struct Ran {
    pub(super) lines: Vec<String>,
    /// Instructions, or nanoseconds of the host's thread if host time is measured.
    pub(super) stretches: Vec<u64>,
    /// Empty if host time is measured.
    pub(super) switches: Vec<Switches>,
}

/// How often the page table was changed, and how often the kernel was left by `iretq` and by `sysretq`.
pub(super) type Switches = [u64; 3];

/// Compiles a Linux program that runs on both systems.
pub(super) fn program(project: &Project, source: &str) -> Result<Vec<u8>, Error> {
    let directory = temp_dir()?;
    let made = directory.path().join("program");
    let mut command = Command::new("cc");
    command
        .args([
            "-std=gnu11",
            "-O2",
            "-Wall",
            "-Wextra",
            "-static",
            "-pthread",
            "-o",
        ])
        .arg(&made)
        .arg(project.root.join(source));
    finish(command, &format!("compiling {source}"))?;
    std::fs::read(&made).map_err(|error| Error::new(format!("{}: {error}", made.display())))
}

/// The busybox of the Linux programs.
pub(super) fn busybox(project: &Project) -> Result<Vec<u8>, Error> {
    let path = busybox::find(project)?;
    std::fs::read(&path).map_err(|error| Error::new(format!("{}: {error}", path.display())))
}

/// A file of the sources.
pub(super) fn source(project: &Project, path: &str) -> Result<Vec<u8>, Error> {
    std::fs::read(project.root.join(path)).map_err(|error| Error::new(format!("{path}: {error}")))
}

/// A line of words for a shell.
pub(super) fn words(words: &[String]) -> Vec<u8> {
    format!("{}\n", words.join(" ")).into_bytes()
}

/// The plugin, with its output files in `directory`.
fn plugin(library: &Path, directory: &Path, look: Look) -> Plugin {
    let is_time = look == Look::HostTime;
    let wanted = |is_wanted: bool, name: &str| is_wanted.then(|| directory.join(name));
    Plugin {
        library: library.to_path_buf(),
        output: wanted(!is_time, "counts"),
        events: None,
        profile: None,
        switches: wanted(!is_time, "switches"),
        time: wanted(is_time, "time"),
    }
}

impl Ran {
    /// The lines, with what the plugin has written to its files.
    fn of(lines: Vec<String>, plugin: &Plugin) -> Self {
        fn all<const N: usize>(path: &Option<PathBuf>) -> Vec<[u64; N]> {
            let path = path.as_ref();
            let text = path.and_then(|path| std::fs::read_to_string(path).ok());
            let text = text.unwrap_or_default();
            text.lines().filter_map(numbers).collect()
        }
        let times = all(&plugin.time).into_iter().map(|[time]| time);
        let counts = all::<3>(&plugin.output).into_iter();
        Ran {
            lines,
            stretches: times.chain(counts.map(|[count, ..]| count)).collect(),
            switches: all(&plugin.switches),
        }
    }
}

/// Files of packages for Debian's machine, among them its kernel.
pub(super) struct Files {
    kernel: Vec<u8>,
    pub(super) archive: Archive,
}

/// The wanted files of these packages. Kernel modules go to `/modules`, where their names alone find them.
pub(super) fn files(
    project: &Project,
    names: &[&str],
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Files, Error> {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let is_kernel = |path: &str| path.starts_with("boot/vmlinuz-");
    let files =
        Packages::get(project, &names)?.unpacked_of(&|path| is_kernel(path) || wanted(path))?;
    let mut archive = Archive::with_directories()?;
    let mut kernel = None;
    for (path, content, attributes) in files.entries() {
        let name = path.rsplit('/').next().unwrap_or_default();
        match content {
            Content::File(bytes) if is_kernel(path) => kernel = Some(bytes.clone()),
            Content::File(bytes) if name.ends_with(".ko") => {
                archive.file(&format!("modules/{name}"), bytes.clone(), false)?;
            }
            _ => archive.put(path, content.clone(), *attributes)?,
        }
    }
    let kernel =
        kernel.ok_or_else(|| Error::new("Debian's package of a kernel has no kernel in it"))?;
    Ok(Files { kernel, archive })
}

/// Runs the machine with Debian's kernel until it powers off.
pub(super) fn linux(files: Files, library: &Path) -> Result<Ran, Error> {
    let directory = temp_dir()?;
    let plugin = plugin(library, directory.path(), Look::Counts);
    let debian = Debian {
        kernel: files.kernel,
        initrd: files.archive.initrd()?,
        memory: MEMORY,
        plugin: plugin.clone(),
        timeout: TIMEOUT,
    };
    let mut lines = Vec::new();
    debian.run(&mut |line| {
        eprintln!("Linux: {line}");
        lines.push(line.to_string());
    })?;
    Ok(Ran::of(lines, &plugin))
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

/// The options of a machine with Fermata that runs a script of its shell.
pub(super) fn options(script: &str) -> Options {
    let mut options = Options::new(Config::DEFAULT);
    options.script = Some(script.into());
    options.memory = MEMORY;
    options.timeout = Some(TIMEOUT);
    options
}

/// Runs a machine with Fermata to its end, and measures its instructions or, with [`Look::HostTime`], host time.
pub(super) fn fermata(
    images: &Images,
    library: &Path,
    look: Look,
    mut options: Options,
) -> Result<Ran, Error> {
    let directory = temp_dir()?;
    let plugin = plugin(library, directory.path(), look);
    options.deterministic = look != Look::HostTime;
    options.plugin = Some(plugin.clone());
    let mut listener = Listener::default();
    let end = machine::run(images, &options, &mut listener)?;
    match end {
        End::Exit(0) => {
            let lines = listener.text.lines().map(ToString::to_string);
            Ok(Ran::of(lines.collect(), &plugin))
        }
        End::Stopped(status) => Err(Error {
            message: "interrupted".into(),
            status,
        }),
        end => Err(Error::new(format!(
            "the machine with the program of Linux ended as {end:?}\n{}",
            listener.text
        ))),
    }
}

/// As [`write()`], unless something has failed: then the page is only printed, and the old file stays. Returns the
/// exit status of the command.
pub(super) fn write_unless(
    failures: &[String],
    project: &Project,
    page: (&str, String),
    plot: (&str, Option<String>),
    title: &str,
    description: &str,
) -> Result<u8, Error> {
    for failure in failures {
        eprintln!("fermata: {failure}");
    }
    if !failures.is_empty() {
        println!("{}", page.1);
        eprintln!("fermata: {} is left as it is", page.0);
        return Ok(BROKEN);
    }
    write(project, page, plot, title, description).map(|()| 0)
}

/// Writes a page and its plot; `title` and `description` are for readers who cannot see the plot.
pub(super) fn write(
    project: &Project,
    page: (&str, String),
    plot: (&str, Option<String>),
    title: &str,
    description: &str,
) -> Result<(), Error> {
    let write = |name: &str, text: String| {
        let path: PathBuf = project.root.join(name);
        std::fs::write(path, text).map_err(|error| Error::new(format!("{name}: {error}")))
    };
    write(page.0, page.1)?;
    if let Some(svg) = plot.1 {
        write(plot.0, alone(svg, title, description))?;
    }
    println!("written: {}, {}", page.0, plot.0);
    Ok(())
}

/// How many times as much, with two digits.
pub(super) fn ratio(ours: Option<u64>, theirs: Option<u64>) -> String {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if theirs > 0 => format!("{:.2}", ours as f64 / theirs as f64),
        _ => "-".into(),
    }
}

/// Millions, with enough digits to be meaningful.
pub(super) fn millions(count: Option<u64>) -> String {
    match count {
        Some(count) if count >= 100_000_000 => {
            format!("{} M", grouped((count + 500_000) / 1_000_000))
        }
        Some(count) => format!("{:.1} M", count as f64 / 1e6),
        None => "-".into(),
    }
}

/// A table of a page.
pub(super) fn table(page: &mut String, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let _ = writeln!(
        page,
        "| {} |\n|{}",
        head.join(" | "),
        "---|".repeat(head.len())
    );
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    }
    page.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_a_page() {
        let mut page = String::new();
        table(&mut page, &["a", "b"], [vec!["x|y".into(), "1".into()]]);
        assert_eq!(page, "| a | b |\n|---|---|\n| x\\|y | 1 |\n\n");
        assert_eq!(millions(Some(1_420_607)), "1.4 M");
        assert_eq!(millions(Some(1_335_341_154)), "1,335 M");
        assert_eq!(millions(None), "-");
        assert_eq!(ratio(Some(3), Some(2)), "1.50");
        assert_eq!(ratio(Some(3), Some(0)), "-");
    }
}
