//! Real programs of Debian packages: the same command lines in the guest and in a chroot of the host.
//!
//! `tests/packages/list` has the lines, `docs/packages.md` the results. The reference is the host's kernel with
//! exactly the same files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use xtask_build::archive::Archive;
use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::image::{self, Images};
use xtask_build::packages::{self, Packages};
use xtask_build::project::{read_text, temp_dir, Ended, Project};
use xtask_build::signals;
use xtask_machine::control::Event;
use xtask_machine::{self as machine, Add, End, Operator, Options};

/// The list, in the checkout.
const LIST: &str = "tests/packages/list";
/// The results.
const PAGE: &str = "docs/packages.md";
/// How long a command line may take, in seconds.
const PATIENCE: u64 = 300;

/// A command line.
pub(crate) struct Line {
    pub(crate) command: String,
    /// Why the results differ, if that is known.
    differs: Option<String>,
}

/// Lines for one machine.
pub(crate) struct Section {
    pub(crate) packages: Vec<String>,
    pub(crate) short: bool,
    pub(crate) lines: Vec<Line>,
}

impl Section {
    /// A machine with these files of the packages, and with the command lines at `/lines` by number; `run` is the
    /// program that runs them.
    pub(crate) fn machine(&self, config: Config, files: &Archive, run: String) -> Options {
        let mut options = Options::new(config);
        options.packages = Some(files.clone());
        options
            .adds
            .push(Add::bytes(run.into(), false, "/lines/run"));
        for (number, line) in self.lines.iter().enumerate() {
            let command = format!("{}\n", line.command);
            let path = format!("/lines/{number}");
            options.adds.push(Add::bytes(command.into(), false, &path));
        }
        options
    }
}

/// The output of a command line, and its status.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Came {
    output: Vec<u8>,
    status: String,
}

impl Came {
    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.output);
        format!("{}[status {}]", text, self.status)
    }
}

/// A line with its results in the guest and on the host.
struct Result {
    command: String,
    known: Option<String>,
    guest: Option<Came>,
    host: Option<Came>,
}

impl Result {
    fn is_same(&self) -> bool {
        self.guest.is_some() && self.guest == self.host
    }

    /// Whether the host has run it: a missing program shows nothing.
    fn is_run(&self) -> bool {
        let status = self.host.as_ref().map(|host| host.status.as_str());
        !matches!(status, None | Some("126" | "127"))
    }

    /// Whether the result is the one that the list expects.
    fn is_expected(&self) -> bool {
        self.is_run() && self.is_same() == self.known.is_none()
    }
}

/// Reads the list.
fn read(text: &str) -> std::result::Result<Vec<Section>, String> {
    let mut sections: Vec<Section> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let head = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let names =
            head.and_then(|(names, rest)| Some((packages::names(names).ok()?, rest.trim())));
        match names {
            Some((packages, rest)) if matches!(rest, "" | "short") => sections.push(Section {
                packages,
                short: rest == "short",
                lines: Vec::new(),
            }),
            _ => {
                let (command, differs) = match line.split_once(" ## ") {
                    Some((command, why)) => (command, Some(why.trim().to_string())),
                    None => (line, None),
                };
                let section = sections.last_mut();
                let section =
                    section.ok_or(format!("line {}: it belongs to no packages", number + 1))?;
                section.lines.push(Line {
                    command: command.trim().into(),
                    differs,
                });
            }
        }
    }
    Ok(sections)
}

/// The script that runs all lines of a section, and writes the output and status of each to files.
fn script(section: &Section) -> String {
    let mut script = String::from("mkdir -p /tmp/work /tmp/out; cd /tmp/work\n");
    for number in 0..section.lines.len() {
        let _ = writeln!(
            script,
            "timeout -s KILL {PATIENCE} sh /lines/{number} > /tmp/out/{number} 2>&1 < /dev/null; echo $? > /tmp/out/{number}.status; cd /tmp/work"
        );
    }
    script.push_str("tar cf /tmp/out.tar -C /tmp/out .\n");
    script
}

/// The content of the archive that the script makes.
fn outcomes(tar: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut reader = tar::Archive::new(tar);
    for mut entry in reader.entries().into_iter().flatten().flatten() {
        let name = entry
            .path()
            .ok()
            .and_then(|path| Some(path.file_name()?.to_str()?.to_string()));
        let mut content = Vec::new();
        if let (Some(name), Ok(_)) = (name, entry.read_to_end(&mut content)) {
            files.insert(name, content);
        }
    }
    files
}

fn came(files: &BTreeMap<String, Vec<u8>>, number: usize) -> Option<Came> {
    let status = files.get(&format!("{number}.status"))?;
    Some(Came {
        output: files.get(&number.to_string())?.clone(),
        status: String::from_utf8_lossy(status).trim().into(),
    })
}

/// Receives the one file that is wanted.
struct Taker {
    tar: Vec<u8>,
    shown: Vec<u8>,
}

impl Operator for Taker {
    fn console(&mut self, bytes: &[u8]) -> bool {
        self.shown.extend_from_slice(bytes);
        true
    }

    fn event(&mut self, event: &Event) {
        if let Event::File { content, .. } = event {
            self.tar.clone_from(content);
        }
    }
}

/// Runs a section in the guest.
fn guest(
    (images, config): (&Images, Config),
    section: &Section,
    files: &Archive,
) -> std::result::Result<Vec<u8>, Error> {
    let mut options = section.machine(config, files, script(section));
    options.memory = 768 + u32::try_from(files.bytes() >> 20).unwrap_or(0);
    options.script = Some(b"sh /lines/run\n".to_vec());
    options.gets.push("/tmp/out.tar".into());
    options.timeout = Some(Duration::from_secs(3600));
    let mut taker = Taker {
        tar: Vec::new(),
        shown: Vec::new(),
    };
    match machine::run(images, &options, &mut taker)? {
        End::Exit(_) if !taker.tar.is_empty() => Ok(taker.tar),
        end => Err(Error::new(format!(
            "the machine with {} ended as {end:?}:\n{}",
            section.packages.join(", "),
            String::from_utf8_lossy(&taker.shown)
        ))),
    }
}

/// Runs a section on the host, in a chroot with the files of the machine.
fn host(
    images: &Images,
    section: &Section,
    files: &Archive,
) -> std::result::Result<Vec<u8>, Error> {
    let scratch = temp_dir()?;
    let tree = scratch.path().join("tree");
    let mut archive = images.archive()?;
    archive.merge(files.clone())?;
    for directory in ["dev", "proc", "tmp", "lines"] {
        archive.directory(directory)?;
    }
    archive.unpack(&tree)?;
    let write = |name: String, text: String| {
        let path = tree.join("lines").join(name);
        std::fs::write(&path, text)
            .map_err(|error| Error::new(format!("{}: {error}", path.display())))
    };
    write("run".into(), script(section))?;
    for (number, line) in section.lines.iter().enumerate() {
        write(number.to_string(), format!("{}\n", line.command))?;
    }
    let mut command = unshare();
    command
        .args(["sh", "-c"])
        .arg("mount --rbind /dev \"$0/dev\" && mount -t proc proc \"$0/proc\" && exec chroot \"$0\" /bin/sh /lines/run")
        .arg(&tree)
        .env_clear()
        .envs([("PATH", "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin"), ("HOME", "/"), ("TERM", "vt100")]);
    let said = complaints(command, &signals::caught).inspect_err(|_| remove(&tree))?;
    std::fs::read(tree.join("tmp/out.tar")).map_err(|_| {
        Error::new(format!(
            "the commands cannot be run in a chroot of the host: {}",
            said.trim()
        ))
    })
}

/// A command in file system and process namespaces of its own. The caller is root there, by a user namespace; when
/// the command is killed, all processes in it are.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("-r");
    }
    command.args(["-m", "-p", "-f", "--kill-child"]);
    command
}

/// Runs a command to its end, or until a signal is caught. Returns its standard error.
fn complaints(
    mut command: Command,
    caught: &dyn Fn() -> Option<u8>,
) -> std::result::Result<String, Error> {
    const TICK: Duration = Duration::from_millis(20);
    let name = command.get_program().to_string_lossy().into_owned();
    let cannot = |error: std::io::Error| Error::new(format!("cannot run {name}: {error}"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    machine::end_with_this_process(&mut command);
    let mut child = Ended(command.spawn().map_err(cannot)?);
    let stderr = child.0.stderr.take();
    let said = std::thread::spawn(move || {
        let mut said = Vec::new();
        // Output that cannot be read is left out.
        let _ = stderr.map(|mut stderr| stderr.read_to_end(&mut said));
        String::from_utf8_lossy(&said).into_owned()
    });
    while child.0.try_wait().map_err(cannot)?.is_none() {
        if let Some(signal) = caught() {
            return Err(signals::interrupted(signal));
        }
        std::thread::sleep(TICK);
    }
    Ok(said.join().unwrap_or_default())
}

/// Removes the tree of a chroot whose processes have been killed. More files may appear until the last process has
/// ended.
fn remove(tree: &Path) {
    for _ in 0..50 {
        if std::fs::remove_dir_all(tree).is_ok() || !tree.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a section in the guest and on the host.
fn compare(
    project: &Project,
    (images, config): (&Images, Config),
    section: Section,
) -> std::result::Result<Vec<Result>, Error> {
    let files = Packages::get(project, &section.packages)?.unpacked()?;
    let (guest, host) = std::thread::scope(|scope| {
        let host = scope.spawn(|| host(images, &section, &files));
        let guest = guest((images, config), &section, &files);
        let host = host.join();
        (
            guest,
            host.unwrap_or_else(|_| Err(Error::new("the comparison panicked"))),
        )
    });
    let (guest, host) = (outcomes(&guest?), outcomes(&host?));
    let lines = section.lines.into_iter().enumerate();
    Ok(lines
        .map(|(number, line)| Result {
            command: line.command,
            known: line.differs,
            guest: came(&guest, number),
            host: came(&host, number),
        })
        .collect())
}

/// The list of this checkout.
pub(crate) fn list(project: &Project) -> std::result::Result<Vec<Section>, Error> {
    let path = project.root.join(LIST);
    let text = read_text(&path)?;
    read(&text).map_err(|why| Error::new(format!("{}: {why}", path.display())))
}

/// The differences from the list.
fn wrong(results: &[Result]) -> String {
    let mut text = String::new();
    for result in results.iter().filter(|result| !result.is_expected()) {
        let came = |came: &Option<Came>| came.as_ref().map_or("nothing".into(), Came::text);
        let _ = match result.is_same() {
            true if result.is_run() => writeln!(text, "the same now: {}", result.command),
            _ => writeln!(
                text,
                "differs: {}\n--- in the guest\n{}\n--- on the host\n{}",
                result.command,
                came(&result.guest),
                came(&result.host)
            ),
        };
    }
    text
}

/// Whether the host runs this, and it succeeds.
fn succeeds(mut command: Command) -> bool {
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// What the host lacks for fetching packages, or `None`.
pub(crate) fn without_apt() -> Option<&'static str> {
    let mut command = Command::new("apt-get");
    command.arg("--version");
    (!succeeds(command)).then_some("there is no apt-get")
}

/// What the host lacks for a comparison, which needs packages and a chroot, or `None`.
pub(crate) fn without_reference() -> Option<&'static str> {
    without_apt().or_else(without_namespaces)
}

/// What the host lacks for a chroot, or `None`.
fn without_namespaces() -> Option<&'static str> {
    let mut command = unshare();
    command.arg("true");
    (!succeeds(command)).then_some("the host gives no namespaces for a chroot")
}

/// Fetches the packages that the test needs.
///
/// # Errors
/// They cannot be fetched.
pub fn fetch(project: &Project) -> std::result::Result<(), Error> {
    // The checkpoints of packages need no chroot.
    if without_apt().is_none() {
        for section in list(project)?.iter().filter(|section| section.short) {
            Packages::get(project, &section.packages)?;
        }
    }
    Ok(())
}

/// The short sections, as a test. Returns how many lines there were. An error says what differs.
pub(crate) fn short(
    project: &Project,
    machine: (&Images, Config),
) -> std::result::Result<usize, String> {
    let mut count = 0;
    let sections = list(project).map_err(|error| error.message)?;
    for section in sections.into_iter().filter(|section| section.short) {
        let results = compare(project, machine, section).map_err(|error| error.message)?;
        count += results.len();
        let wrong = wrong(&results);
        if !wrong.is_empty() {
            return Err(wrong);
        }
    }
    Ok(count)
}

/// The sections whose packages contain the filter; an error if there are none.
pub(crate) fn named(
    mut sections: Vec<Section>,
    filter: Option<&str>,
) -> std::result::Result<Vec<Section>, Error> {
    sections
        .retain(|section| filter.is_none_or(|filter| section.packages.join(", ").contains(filter)));
    match sections.is_empty() {
        true => Err(Error::new("no packages of the list are called so")),
        false => Ok(sections),
    }
}

/// Runs everything whose packages contain the filter; without a filter the page is written.
pub fn run(project: &Project, filter: Option<&str>) -> std::result::Result<u8, Error> {
    signals::catch();
    let done = compare_all(project, filter);
    // After a signal all other errors are consequences.
    done.map_err(|error| signals::check().err().unwrap_or(error))
}

fn compare_all(project: &Project, filter: Option<&str>) -> std::result::Result<u8, Error> {
    let wanted = named(list(project)?, filter)?;
    let images = image::build(project, &[Config::DEFAULT])?;
    let (mut all, mut same, mut sections) = (true, 0, Vec::new());
    for section in wanted {
        let name = section.packages.join(", ");
        eprintln!("fermata: {} command lines with {name}", section.lines.len());
        let results = compare(project, (&images, Config::DEFAULT), section)?;
        let wrong = wrong(&results);
        print!("{wrong}");
        all &= wrong.is_empty();
        same += results.iter().filter(|result| result.is_same()).count();
        sections.push((name, results));
    }
    let count: usize = sections.iter().map(|(_, results)| results.len()).sum();
    if filter.is_none() {
        let path = project.root.join(PAGE);
        std::fs::write(&path, page(&sections, same, count))
            .map_err(|error| Error::new(format!("{}: {error}", path.display())))?;
    }
    println!("{same} of {count} command lines are as on the host");
    Ok(u8::from(!all))
}

/// The page with the table.
fn page(sections: &[(String, Vec<Result>)], same: usize, count: usize) -> String {
    let mut page = format!(
        "# Programs of Debian's packages\n\n\
         Made by `./fermata prove --packages` from [tests/packages/list](../tests/packages/list): each command line runs in the guest and in a \
         chroot of the host with the same files; standard output and error together and the status are compared. {same} of {count} are as on \
         the host.\n"
    );
    for (name, results) in sections {
        let _ = write!(page, "\n## {name}\n| command line | |\n|---|---|\n");
        for result in results {
            let command = result.command.replace('|', "\\|");
            let ticks = if command.contains('`') { "``" } else { "`" };
            let came = match (&result.known, result.is_same()) {
                (_, true) => "the same",
                (Some(why), false) => why,
                (None, false) => "differs",
            };
            let _ = writeln!(page, "| {ticks}{command}{ticks} | {came} |");
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read() {
        let sections =
            read("# x\n[a1,b2] short\nls | wc ## not yet\n[[ a ]] && b\n[c3]\nd\n").unwrap();
        assert_eq!(sections.len(), 2);
        assert_eq!(sections[0].packages, ["a1", "b2"]);
        assert!(sections[0].short && !sections[1].short);
        assert_eq!(sections[0].lines[0].command, "ls | wc");
        assert_eq!(sections[0].lines[0].differs.as_deref(), Some("not yet"));
        assert_eq!(sections[0].lines[1].command, "[[ a ]] && b");
        assert!(read("ls").is_err());
    }

    #[test]
    fn what_runs_in_a_chroot_ends_with_a_signal() {
        let command = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let said = complaints(command("echo why >&2; exit 3"), &|| None);
        assert_eq!(said.ok().as_deref(), Some("why\n"));
        let began = std::time::Instant::now();
        let error = complaints(command("exec sleep 1000"), &|| Some(2)).unwrap_err();
        assert_eq!((error.status, &*error.message), (130, "interrupted"));
        assert!(began.elapsed() < Duration::from_secs(500));

        // Processes end with their namespace.
        if without_namespaces().is_some() {
            return;
        }
        let scratch = temp_dir().unwrap();
        let file = scratch.path().join("file");
        let mut inside = unshare();
        inside
            .args([
                "sh",
                "-c",
                "sh -c 'while echo x >> \"$0\"; do sleep 0.01; done' \"$0\" & wait",
            ])
            .arg(&file);
        let begun = || Some(2).filter(|_| file.exists());
        assert_eq!(complaints(inside, &begun).unwrap_err().status, 130);
        std::thread::sleep(Duration::from_millis(500));
        let length = || std::fs::metadata(&file).unwrap().len();
        let then = length();
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(length(), then, "a process was left");
    }

    #[test]
    fn a_name_of_no_packages_is_an_error() {
        let sections = || read("[a1,b2]\nls\n[c3]\nd\n").unwrap();
        assert_eq!(named(sections(), None).ok().map(|all| all.len()), Some(2));
        assert_eq!(
            named(sections(), Some("b2")).ok().map(|all| all.len()),
            Some(1)
        );
        assert!(named(sections(), Some("nosuch")).is_err());
    }

    #[test]
    fn the_list_of_this_checkout_is_sound() {
        let project = Project::find().unwrap();
        let sections = list(&project).unwrap();
        let count: usize = sections.iter().map(|section| section.lines.len()).sum();
        assert!(count >= 40 && sections.iter().any(|section| section.short));
    }

    #[test]
    fn a_difference_is_one() {
        let came = |text: &str| {
            Some(Came {
                output: text.into(),
                status: "0".into(),
            })
        };
        let result = |guest, host, known: Option<&str>| Result {
            command: String::new(),
            known: known.map(ToString::to_string),
            guest,
            host,
        };
        assert!(result(came("a"), came("a"), None).is_expected());
        assert!(!result(came("a"), came("b"), None).is_expected());
        assert!(result(came("a"), came("b"), Some("why")).is_expected());
        assert!(!result(came("a"), came("a"), Some("why")).is_expected());
        assert!(!result(None, None, None).is_expected());
        let absent = Some(Came {
            output: b"sh: x: not found".to_vec(),
            status: "127".into(),
        });
        assert!(!result(absent.clone(), absent, None).is_expected());
    }
}
