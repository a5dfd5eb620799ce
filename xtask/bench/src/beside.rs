//! What is measured beside Debian's Linux: a program of Linux for both systems, one machine for each, and what pages
//! about that are made of.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::boots::numbers;
use super::report::alone;
use super::table::grouped;
use xtask_build::archive::{Archive, Content};
use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::image::Images;
use xtask_build::packages::Packages;
use xtask_build::project::{finish, temp_dir, Project};
use xtask_machine::control::Event;
use xtask_machine::debian::Debian;
use xtask_machine::{self as machine, Add, End, Operator, Options, Plugin};

/// Host time for a machine.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// In megabytes, of each machine.
pub(super) const MEMORY: u32 = 2048;
/// The package of Debian's kernel.
pub(super) const KERNEL: &str = "linux-image-amd64";

/// What a machine printed, and the instructions of the stretches that its programs marked.
pub(super) struct Ran {
    pub(super) lines: Vec<String>,
    pub(super) stretches: Vec<u64>,
}

/// A program of Linux for both systems.
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

/// A file of the sources.
pub(super) fn source(project: &Project, path: &str) -> Result<Vec<u8>, Error> {
    std::fs::read(project.root.join(path)).map_err(|error| Error::new(format!("{path}: {error}")))
}

/// A list for a shell.
pub(super) fn words(words: &[String]) -> Vec<u8> {
    format!("{}\n", words.join(" ")).into_bytes()
}

fn plugin(library: &Path, output: &Path) -> Plugin {
    Plugin {
        library: library.to_path_buf(),
        output: Some(output.to_path_buf()),
        events: None,
        profile: None,
        switches: None,
        time: None,
    }
}

/// The instructions of all stretches, of the plugin's file.
fn stretches(output: &Path) -> Vec<u64> {
    let counts = std::fs::read_to_string(output).unwrap_or_default();
    let lines = counts.lines().filter_map(numbers::<3>);
    lines.map(|[instructions, ..]| instructions).collect()
}

/// Files of packages for Debian's machine, among them its kernel.
pub(super) struct Files {
    kernel: Vec<u8>,
    pub(super) archive: Archive,
}

/// The files of these packages that are wanted; modules of the kernel stand in `/modules`, where they are found by their names alone.
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
    let output = directory.path().join("counts");
    let debian = Debian {
        kernel: files.kernel,
        initrd: files.archive.initrd()?,
        memory: MEMORY,
        plugin: plugin(library, &output),
        timeout: TIMEOUT,
    };
    let mut lines = Vec::new();
    debian.run(&mut |line| {
        eprintln!("Linux: {line}");
        lines.push(line.to_string());
    })?;
    Ok(Ran {
        lines,
        stretches: stretches(&output),
    })
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

/// Runs the machine with Fermata, which gets these files, by a script of its shell.
pub(super) fn fermata(
    images: &Images,
    library: &Path,
    script: String,
    adds: Vec<Add>,
    packages: Option<Archive>,
) -> Result<Ran, Error> {
    let directory = temp_dir()?;
    let output = directory.path().join("counts");
    let mut options = Options::new(Config::DEFAULT);
    options.script = Some(script.into_bytes());
    options.memory = MEMORY;
    options.deterministic = true;
    options.timeout = Some(TIMEOUT);
    options.plugin = Some(plugin(library, &output));
    options.adds = adds;
    options.packages = packages;
    let mut listener = Listener::default();
    let end = machine::run(images, &options, &mut listener)?;
    match end {
        End::Exit(0) => Ok(Ran {
            lines: listener.text.lines().map(ToString::to_string).collect(),
            stretches: stretches(&output),
        }),
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

/// Writes a page and its plot, which `title` and `description` tell to who does not see it.
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

/// Millions, with as many digits as tell something.
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
