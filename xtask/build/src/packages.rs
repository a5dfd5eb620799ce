//! Debian's packages as files of the guest: `apt-get` resolves and fetches them as if nothing were installed, and
//! `dpkg-deb` unpacks them.
//!
//! Nothing is installed, no script of a package runs, and root is not needed. Of the work of such scripts only the
//! links of `update-alternatives` are made. Fetched files stay in `target/packages`, with a record of which files a
//! set of names needs: later commands with the same names need no network.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::archive::{self, Archive, Content};
use crate::error::Error;
use crate::project::{Ended, Project};
use crate::signals;

/// Directories that are left out: nothing in them is needed to run a program.
const LEFT_OUT: [&str; 8] = [
    "usr/share/doc",
    "usr/share/doc-base",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/bug",
    "usr/share/zsh",
];

/// Packages that have been fetched with everything that they depend on: files of the host.
pub struct Packages {
    files: Vec<PathBuf>,
}

/// A file that `apt-get` would fetch.
struct Wanted {
    name: String,
    size: u64,
}

/// Whether a package can have this name.
fn is_name(name: &str) -> bool {
    let first = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    let rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    first && name.len() >= 2 && name.chars().all(rest)
}

/// The names in a comma-separated list.
///
/// # Errors
/// A sentence about a name that no package can have.
pub fn names(list: &str) -> Result<Vec<String>, String> {
    let names = list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let names: Vec<String> = names.map(ToString::to_string).collect();
    match names.iter().find(|name| !is_name(name)) {
        Some(wrong) => Err(format!("'{wrong}' is not the name of a package")),
        None if names.is_empty() => Err("there is no name of a package".into()),
        None => Ok(names),
    }
}

/// The directory in which everything is kept.
struct Store {
    root: PathBuf,
}

impl Store {
    fn new(project: &Project) -> Result<Self, Error> {
        let root = project.target.join("packages");
        for directory in ["archives/partial", "lists/partial", "none/partial"] {
            let directory = root.join(directory);
            fs::create_dir_all(&directory)
                .map_err(|error| Error::new(format!("{}: {error}", directory.display())))?;
        }
        let store = Store { root };
        store.write("status", "")?;
        Ok(store)
    }

    fn write(&self, name: &str, content: &str) -> Result<(), Error> {
        let path = self.root.join(name);
        let partial = path.with_extension(format!("{}", std::process::id()));
        fs::write(&partial, content)
            .and_then(|()| fs::rename(&partial, &path))
            .map_err(|error| Error::new(format!("{}: {error}", path.display())))
    }

    fn archive(&self, name: &str) -> PathBuf {
        self.root.join("archives").join(name)
    }

    /// `apt-get` for a machine on which nothing is installed. Of this machine it uses only the list of sources.
    fn apt(&self, own_lists: bool) -> Command {
        let mut command = Command::new("apt-get");
        let at = |name: &str| self.root.join(name).display().to_string();
        let mut options = vec![
            format!("Dir::State::status={}", at("status")),
            format!("Dir::Cache={}", at("")),
            format!("Dir::Cache::archives={}", at("archives")),
            "Debug::NoLocking=true".into(),
            "APT::Architecture=amd64".into(),
            "APT::Install-Recommends=false".into(),
            "APT::Install-Suggests=false".into(),
            "APT::Sandbox::User=root".into(),
            "Acquire::Retries=2".into(),
        ];
        if own_lists {
            options.push(format!("Dir::State::Lists={}", at("lists")));
        }
        for option in options {
            command.args(["-o", &option]);
        }
        command.env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// The files that an earlier command found for these names, if all are still here.
    fn known(&self, key: &str) -> Option<Vec<PathBuf>> {
        let sets = fs::read_to_string(self.root.join("sets")).ok()?;
        let line = sets.lines().filter_map(|line| line.split_once(": "));
        let (_, files) = line.rev().find(|(names, _)| *names == key)?;
        let files: Vec<PathBuf> = files.split(' ').map(|name| self.archive(name)).collect();
        files.iter().all(|file| file.is_file()).then_some(files)
    }

    fn note(&self, key: &str, files: &[String]) -> Result<(), Error> {
        let sets = fs::read_to_string(self.root.join("sets")).unwrap_or_default();
        let others = sets.lines().filter(|line| {
            let is_this = line.split_once(": ").is_some_and(|(names, _)| names == key);
            !is_this
        });
        let mut sets: String = others.map(|line| format!("{line}\n")).collect();
        sets.push_str(&format!("{key}: {}\n", files.join(" ")));
        self.write("sets", &sets)
    }

    /// The files that these packages need.
    fn resolve(&self, names: &[String]) -> Result<(Vec<Wanted>, bool), Error> {
        // This machine's package lists may be old, or missing: our own lists are used as soon as there are any.
        let has_own = fs::read_dir(self.root.join("lists"))
            .is_ok_and(|mut lists| lists.any(|entry| entry.is_ok_and(|e| e.path().is_file())));
        if let Ok(wanted) = self.uris(names, has_own) {
            return Ok((wanted, has_own));
        }
        // Our own may be those of one source, if they were interrupted.
        let update = self.update();
        let wanted = self.uris(names, true).map_err(|why| match update {
            Err(unreachable) if why.contains("Unable to locate") => Error::new(format!(
                "the packages {} are not known here, and the lists of Debian's packages cannot be fetched ({unreachable}): connect to the \
                 network and call again",
                names.join(", ")
            )),
            _ => unresolved(names, &why),
        })?;
        Ok((wanted, true))
    }

    /// Fetches the lists of packages; or why they cannot be fetched.
    fn update(&self) -> Result<(), String> {
        eprintln!("fermata: fetching the lists of Debian's packages");
        said(self.apt(true).args(["-qq", "update"])).map(|_| ())
    }

    fn uris(&self, names: &[String], own_lists: bool) -> Result<Vec<Wanted>, String> {
        let mut command = self.apt(own_lists);
        // A file that is already in apt's cache would not be listed.
        let none = format!("Dir::Cache::archives={}", self.root.join("none").display());
        command
            .args(["-o", &none, "-qq", "-y", "--print-uris", "install"])
            .args(names);
        let text = said(&mut command)?;
        Ok(text.lines().filter_map(wanted).collect())
    }

    fn fetch(&self, names: &[String], own_lists: bool, wanted: &[Wanted]) -> Result<(), Error> {
        let missing: Vec<&Wanted> = wanted
            .iter()
            .filter(|file| !self.archive(&file.name).is_file())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let bytes: u64 = missing.iter().map(|file| file.size).sum();
        eprintln!(
            "fermata: fetching {} of {} packages of Debian, {:.1} MB",
            missing.len(),
            wanted.len(),
            bytes as f64 / 1e6
        );
        let mut command = self.apt(own_lists);
        command
            .args(["-qq", "-y", "--download-only", "install"])
            .args(names);
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Error::new(format!("cannot run apt-get: {error}")))?;
        let mut child = Ended(child);
        self.watch(&mut child.0, &missing);
        let mut why = String::new();
        if let Some(mut stderr) = child.0.stderr.take() {
            // Output that is not text gives no reason.
            let _ = stderr.read_to_string(&mut why);
        }
        let fetched = child.0.wait().is_ok_and(|status| status.success());
        let absent: Vec<&str> = missing
            .iter()
            .filter(|file| !self.archive(&file.name).is_file())
            .map(|file| file.name.split('_').next().unwrap_or_default())
            .collect();
        if fetched && absent.is_empty() {
            return Ok(());
        }
        Err(Error::new(format!(
            "of the packages that are needed, these are not in {} and cannot be fetched: {} ({}): connect to the network and call again",
            self.root.display(),
            absent.join(", "),
            reason(&why)
        )))
    }

    /// Reports how many files have arrived, every few seconds, until `apt-get` has ended.
    fn watch(&self, child: &mut Child, missing: &[&Wanted]) {
        let mut seconds = 0;
        while matches!(child.try_wait(), Ok(None)) {
            std::thread::sleep(std::time::Duration::from_millis(200));
            seconds += 1;
            if seconds % 25 == 0 {
                let here = |file: &&&Wanted| self.archive(&file.name).is_file();
                let come = missing.iter().filter(here).count();
                eprintln!("fermata: {come} of {} packages are here", missing.len());
            }
        }
    }
}

/// A line of `--print-uris`: 'URI' NAME SIZE HASH.
fn wanted(line: &str) -> Option<Wanted> {
    let rest = line.strip_prefix('\'')?.split_once("' ")?.1;
    let mut words = rest.split(' ');
    let (name, size) = (words.next()?, words.next()?.parse().ok()?);
    let sound = name.ends_with(".deb") && !name.contains('/');
    sound.then(|| Wanted {
        name: name.into(),
        size,
    })
}

/// The last line that says what is wrong.
fn reason(text: &str) -> String {
    let mut errors = text.lines().filter(|line| line.starts_with("E: "));
    let line = errors.next_back().or_else(|| text.lines().next_back());
    let line = line.unwrap_or("no reason given");
    line.trim_start_matches("E: ").trim_end_matches('.').into()
}

/// The output of a command; or why it failed.
fn said(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("cannot run apt-get: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&[&*output.stdout, &*output.stderr].concat())),
    }
}

/// Why packages could not be resolved.
fn unresolved(names: &[String], why: &str) -> Error {
    let unknown: Vec<&str> = why
        .lines()
        .filter_map(|line| line.strip_prefix("E: Unable to locate package "))
        .collect();
    match unknown.is_empty() {
        true => Error::new(format!(
            "the packages {} cannot be had together: {}",
            names.join(", "),
            why.lines()
                .rev()
                .take(8)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect::<Vec<_>>()
                .join("; ")
        )),
        false => Error::new(format!(
            "Debian has no package {}: `apt-cache search WORD` finds names",
            unknown.join(", ")
        )),
    }
}

impl Packages {
    /// Gets packages and all that they depend on.
    ///
    /// # Errors
    /// There is no such package, or it cannot be fetched.
    pub fn get(project: &Project, names: &[String]) -> Result<Self, Error> {
        let mut names = names.to_vec();
        names.sort();
        names.dedup();
        let store = Store::new(project)?;
        let key = names.join(" ");
        if let Some(files) = store.known(&key) {
            return Ok(Packages { files });
        }
        if !Path::new("/usr/bin/apt-get").exists() {
            return Err(Error::new(
                "packages are fetched by apt-get and unpacked by dpkg-deb, which are not here: use a Debian machine, or copy target/packages \
                 from one",
            ));
        }
        eprintln!("fermata: looking up what {} need", names.join(", "));
        let (mut wanted, own_lists) = store.resolve(&names)?;
        if let Err(error) = store.fetch(&names, own_lists, &wanted) {
            signals::check()?;
            // The archive may have newer packages than the lists, and these no more.
            store.update().map_err(|_| error)?;
            wanted = store.resolve(&names)?.0;
            store.fetch(&names, true, &wanted)?;
        }
        let files: Vec<String> = wanted.into_iter().map(|file| file.name).collect();
        store.note(&key, &files)?;
        Ok(Packages {
            files: files.iter().map(|name| store.archive(name)).collect(),
        })
    }

    /// The number of packages.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// All files of the packages.
    ///
    /// # Errors
    /// A package is damaged, or has an entry that the guest cannot have.
    pub fn unpacked(&self) -> Result<Archive, Error> {
        self.unpacked_of(&|_| true)
    }

    /// The files whose paths are wanted.
    ///
    /// # Errors
    /// As [`Packages::unpacked`].
    pub fn unpacked_of(&self, wanted: &dyn Fn(&str) -> bool) -> Result<Archive, Error> {
        let mut archive = Archive::default();
        let mut alternatives = Alternatives::default();
        for file in &self.files {
            unpack(file, wanted, &mut archive)
                .map_err(|why| Error::new(format!("{}: {why}", file.display())))?;
            if let Some(script) = script(file) {
                alternatives.read(&script);
            }
        }
        for (link, target) in alternatives.links() {
            if archive.find(link).is_none() && archive.find(target).is_some() {
                archive.symlink(link, target)?;
            }
        }
        Ok(archive)
    }
}

/// Puts the wanted files of a package into an archive.
fn unpack(file: &Path, wanted: &dyn Fn(&str) -> bool, archive: &mut Archive) -> Result<(), String> {
    let child = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run dpkg-deb: {error}"))?;
    let mut child = Ended(child);
    let stdout = child.0.stdout.take().ok_or("dpkg-deb has no output")?;
    let mut reader = tar::Archive::new(stdout);
    let damaged = |error| format!("the package is damaged ({error}): remove it and call again");
    for entry in reader.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        // Checked before the content is read: a package may have hundreds of megabytes of unwanted files.
        let path = entry.path_bytes();
        let path = String::from_utf8_lossy(&path);
        if !wanted(path.trim_start_matches("./")) {
            continue;
        }
        let (path, content, attributes) = archive::member(&mut entry)
            .map_err(|why| format!("{why}: it cannot be put into the guest"))?;
        let below = |directory: &str| Path::new(&path).starts_with(directory);
        let left_out = path.is_empty() || LEFT_OUT.iter().any(|directory| below(directory));
        let Some(content) = content.filter(|_| !left_out) else {
            continue;
        };
        // An existing directory, or link to one, stays as it is.
        if matches!(content, Content::Directory) && archive.find(&path).is_some() {
            continue;
        }
        archive
            .put(&path, content, attributes)
            .map_err(|error| error.message)?;
    }
    match child.0.wait() {
        Ok(status) if status.success() => Ok(()),
        _ => Err("dpkg-deb cannot unpack it: remove it and call again".into()),
    }
}

/// The script that Debian runs when the package has been unpacked, if it has one.
fn script(file: &Path) -> Option<String> {
    let output = Command::new("dpkg-deb")
        .arg("-I")
        .arg(file)
        .arg("postinst")
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The choices of `update-alternatives`: for each name the links of the alternative with the highest priority.
#[derive(Default)]
struct Alternatives {
    chosen: BTreeMap<String, (i64, Vec<(String, String)>)>,
}

impl Alternatives {
    /// Reads the `update-alternatives --install` commands of a script, as far as their words are literal.
    fn read(&mut self, script: &str) {
        let script = script.replace("\\\n", " ");
        for line in script.lines() {
            let Some((_, rest)) = line.split_once("update-alternatives ") else {
                continue;
            };
            let words: Vec<&str> = rest
                .split_whitespace()
                .take_while(|word| !matches!(*word, ";" | "||" | "&&" | "|"))
                .map(|word| word.trim_matches(['"', '\'', ';']))
                .collect();
            let Some(at) = words.iter().position(|word| *word == "--install") else {
                continue;
            };
            let [link, name, path, priority, slaves @ ..] = &words[at + 1..] else {
                continue;
            };
            let Ok(priority) = priority.parse::<i64>() else {
                continue;
            };
            let mut links = vec![(link.to_string(), path.to_string())];
            for slave in slaves.chunks(4) {
                if let ["--slave", link, _, path] = slave {
                    links.push((link.to_string(), path.to_string()));
                }
            }
            links.retain(|(link, path)| {
                let literal = |word: &str| word.starts_with('/') && !word.contains(['$', '`', '*']);
                literal(link) && literal(path)
            });
            let better = self
                .chosen
                .get(*name)
                .is_none_or(|(best, _)| priority > *best);
            if better {
                self.chosen.insert(name.to_string(), (priority, links));
            }
        }
    }

    fn links(&self) -> impl Iterator<Item = (&str, &str)> {
        let links = self.chosen.values().flat_map(|(_, links)| links);
        links.map(|(link, target)| (link.as_str(), target.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert_eq!(
            names("gcc, python3,g++").unwrap(),
            ["gcc", "python3", "g++"]
        );
        for wrong in ["", ",", "-y", "a", "gcc;x", "Gcc", "../x", "a b"] {
            assert!(names(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lines_of_apt_are_read() {
        let line = "'http://host/pool/b/b_1%3a2_amd64.deb' b_1%3a2_amd64.deb 86684 MD5Sum:00";
        let file = wanted(line).unwrap();
        assert_eq!(
            (file.name.as_str(), file.size),
            ("b_1%3a2_amd64.deb", 86684)
        );
        for wrong in ["", "Reading lists", "'http://x' ../x.deb 1", "'u' a.deb x"] {
            assert!(wanted(wrong).is_none(), "{wrong}");
        }
        assert_eq!(reason("W: x\nE: Unable to fetch.\n"), "Unable to fetch");
        let error = unresolved(&["a".into()], "E: Unable to locate package nix1\n");
        assert!(
            error.message.contains("no package nix1"),
            "{}",
            error.message
        );
    }

    #[test]
    fn the_best_alternative_wins() {
        let mut all = Alternatives::default();
        all.read(
            "if x; then\n  update-alternatives --quiet --install /usr/bin/awk awk \\\n   /usr/bin/mawk 5 \\\n  --slave /usr/bin/nawk nawk /usr/bin/mawk\nfi\n",
        );
        all.read("update-alternatives --install \"/usr/bin/awk\" awk /usr/bin/gawk 10 || true\n");
        all.read("update-alternatives --install /usr/bin/awk awk /usr/bin/busy 1\n");
        all.read("update-alternatives --install $link x /usr/bin/x 10\nupdate-alternatives --remove y /y\n");
        let links: Vec<_> = all.links().collect();
        assert_eq!(links, [("/usr/bin/awk", "/usr/bin/gawk")]);
    }
}
