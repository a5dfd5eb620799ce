//! `./fermata doc`: a book of all pages in `target/book`, which a browser reads from the disk.
//!
//! The pages are the Markdown files of the checkout, at the same paths so that their links are valid; the API
//! reference, made anew; and rustdoc of all crates. A link to a source file leads to a copy of it with line numbers.
//! A broken link is reported, and the status is 1.
//!
//! No network is needed. If crates that rustdoc needs are missing, the book is made without rustdoc, and a message
//! says so.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{html, CowStr, Event, Options, Parser, Tag, TagEnd};

use crate::reference;
use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::project::{finish, read_text, BuildTarget, Package, Project};

/// The parts of the book: a title, and pages. A directory stands for all pages in it.
const PARTS: &[(&str, &[&str])] = &[
    (
        "Begin",
        &[
            "README.md",
            "docs/tutorial.md",
            "examples/README.md",
            "user/README.md",
            "docs/glossary.md",
            "CAVEATS.md",
            "CHANGES.md",
        ],
    ),
    (
        "Concepts",
        &[
            "kernel/README.md",
            "docs/checkpoint.md",
            "docs/packages.md",
            "hal/README.md",
            "abi/README.md",
            "boot/README.md",
            "user/base/README.md",
            "user/rt/README.md",
            "user/proto/README.md",
            "user/process/README.md",
        ],
    ),
    (
        "Services",
        &[
            "docs/services.md",
            "user/interface/README.md",
            "user/services/README.md",
            "servers/README.md",
            "drivers/README.md",
            "drivers/kit/README.md",
            "drivers/linux/README.md",
            "servers",
        ],
    ),
    ("API reference", &["docs/api/README.md", "docs/api"]),
    (
        "Proof",
        &[
            "docs/proof.md",
            "docs/model.md",
            "docs/security.md",
            "spec/README.md",
            "spec/model/README.md",
            "docs/soundness.md",
            "tests/README.md",
            "tests/guest/README.md",
            "tests/mutants/README.md",
        ],
    ),
    (
        "Measurements",
        &[
            "docs/numbers.md",
            "docs/other-systems.md",
            "docs/comparison.md",
            "docs/devices.md",
            "docs/criu.md",
            "docs/linux-costs.md",
            "docs/collocation.md",
            "docs/bench.md",
            "benches/README.md",
            "tools/README.md",
        ],
    ),
    ("Decisions", &["docs/README.md", "docs/adr"]),
    ("Tools", &["xtask/README.md"]),
];

/// Pages that are generated with the book.
pub const MADE: &str = "docs/api";

/// The rooms of the kernel, documented for the machine. (On the host `hal` is a simulated machine.)
const KERNEL: &[&str] = &["abi", "boot", "boot/archive", "hal", "kernel"];

/// The directory in the book for the rustdoc of each build.
const BUILDS: &[(BuildTarget, &str)] = &[
    (BuildTarget::Kernel, "kernel"),
    (BuildTarget::User, "guest"),
    (BuildTarget::Host, "host"),
];

const STYLE: &str = "\
body{margin:0;font:16px/1.5 system-ui,sans-serif;color:#222;background:#fff;display:flex}\
nav{width:17em;flex:none;height:100vh;overflow:auto;position:sticky;top:0;background:#f6f6f4;padding:1em;\
box-sizing:border-box;font-size:.9em}nav b{display:block;margin-top:1em}nav a{display:block;color:#222;\
text-decoration:none;padding:.1em 0}nav a.here{font-weight:bold}nav a:hover{text-decoration:underline}\
main{padding:1em 2.5em 4em;max-width:52em;min-width:0}a{color:#0059a0}\
pre{background:#f6f6f4;padding:.8em;overflow-x:auto;font-size:.85em;line-height:1.4}\
code{font-family:ui-monospace,monospace;font-size:.92em}pre code{font-size:1em}\
table{border-collapse:collapse;display:block;overflow-x:auto}td,th{border:1px solid #ddd;padding:.2em .6em;\
text-align:left;vertical-align:top}@media(max-width:50em){body{display:block}nav{position:static;width:auto;\
height:auto;max-height:12em}}";

/// A page: its path in the checkout, and its title.
struct Page {
    path: PathBuf,
    title: String,
    text: String,
}

/// The pages of the book without the generated ones, by their paths below `root`.
pub fn pages(root: &Path) -> Result<BTreeSet<PathBuf>, Error> {
    let mut found = BTreeSet::new();
    for entry in PARTS.iter().flat_map(|(_, entries)| *entries) {
        if !entry.starts_with(MADE) {
            found.extend(pages_at(root, Path::new(entry))?);
        }
    }
    Ok(found)
}

/// Makes the book.
pub fn write(project: &Project) -> Result<u8, Error> {
    reference::write(project)?;
    let book = project.target.join("book");
    match std::fs::remove_dir_all(&book) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::new(format!(
                "cannot remove {}: {error}",
                book.display()
            )))
        }
        _ => {}
    }
    let crates = if project.has_crates() {
        rustdoc(project, &book)?
    } else {
        eprintln!(
            "fermata: the book has no rustdoc: crates that Cargo.lock names are not on this machine; \
             `./fermata doc` fetches them where there is a network"
        );
        Vec::new()
    };
    let broken = bind(&project.root, &book, &crates)?;
    for line in &broken {
        eprintln!("{line}");
    }
    println!("the book: {}", book.join("README.html").display());
    Ok(u8::from(!broken.is_empty()))
}

/// Makes the pages of a checkout's book and of the source files that they link to, and links the rustdoc of these
/// crates. Returns the broken links, a line for each.
fn bind(root: &Path, book: &Path, crates: &[(String, String)]) -> Result<Vec<String>, Error> {
    let mut parts = Vec::new();
    for (title, entries) in PARTS {
        let mut pages: Vec<Page> = Vec::new();
        for entry in *entries {
            for path in pages_at(root, Path::new(entry))? {
                if pages.iter().all(|page| page.path != path) {
                    pages.push(read(root, path)?);
                }
            }
        }
        parts.push((*title, pages));
    }
    let paths: BTreeSet<&Path> = parts
        .iter()
        .flat_map(|(_, pages)| pages)
        .map(|page| page.path.as_path())
        .collect();
    let mut sources = BTreeSet::new();
    let mut broken = Vec::new();
    for page in parts.iter().flat_map(|(_, pages)| pages) {
        let mut links = Links {
            root,
            page: &page.path,
            pages: &paths,
            sources: &mut sources,
            broken: &mut broken,
        };
        let body = render(&page.text, &mut links);
        let text = whole(&page.title, &contents(&parts, crates, &page.path), &body);
        save(&book.join(page.path.with_extension("html")), &text)?;
    }
    for path in sources {
        if is_picture(&path) {
            let to = book.join(&path);
            let picture = std::fs::read(root.join(&path));
            let copied = picture.and_then(|picture| {
                std::fs::create_dir_all(to.parent().unwrap_or(book))?;
                std::fs::write(&to, picture)
            });
            copied
                .map_err(|error| Error::new(format!("cannot copy {}: {error}", path.display())))?;
            continue;
        }
        let text = read_text(&root.join(&path))?;
        let name = path.display().to_string();
        let body = format!("<h1>{}</h1>{}", escaped(&name), numbered(&text));
        let text = whole(&name, &contents(&parts, crates, &path), &body);
        save(&book.join(format!("{name}.html")), &text)?;
    }
    Ok(broken)
}

/// Whether a file is a picture, which the book copies as it is.
fn is_picture(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("png" | "svg"))
}

/// A page, or all pages in a directory and in those below it.
fn pages_at(root: &Path, path: &Path) -> Result<Vec<PathBuf>, Error> {
    let full = root.join(path);
    if !full.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let failed = |error| Error::new(format!("cannot read {}: {error}", full.display()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&full).map_err(failed)? {
        let name = path.join(entry.map_err(failed)?.file_name());
        if root.join(&name).is_dir() {
            found.extend(pages_at(root, &name)?);
        } else if name.extension().is_some_and(|extension| extension == "md") {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

/// Reads a page; its title is its first heading.
fn read(root: &Path, path: PathBuf) -> Result<Page, Error> {
    let text = read_text(&root.join(&path))?;
    let heading = text.lines().find_map(|line| line.strip_prefix("# "));
    let title = heading.map_or_else(
        || path.display().to_string(),
        |title| title.replace('`', ""),
    );
    Ok(Page { path, title, text })
}

/// The table of contents, with links relative to a page.
fn contents(parts: &[(&str, Vec<Page>)], crates: &[(String, String)], here: &Path) -> String {
    let up = "../".repeat(here.components().count() - 1);
    let mut text = String::new();
    let link = |to: &str, title: &str, is_here: bool| {
        let class = if is_here { " class=here" } else { "" };
        format!("<a{class} href='{up}{to}'>{}</a>", escaped(title))
    };
    for (title, pages) in parts {
        let _ = write!(text, "<b>{}</b>", escaped(title));
        for page in pages {
            let to = page.path.with_extension("html").display().to_string();
            text.push_str(&link(&to, &page.title, page.path == here));
        }
    }
    text.push_str("<b>Source, by crate</b>");
    for (name, to) in crates {
        text.push_str(&link(to, name, false));
    }
    text
}

fn whole(title: &str, contents: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>{} - Fermata</title><style>{STYLE}</style><body><nav>{contents}</nav><main>{body}</main></body></html>\n",
        escaped(title)
    )
}

/// Translates the links of a page.
struct Links<'a> {
    root: &'a Path,
    page: &'a Path,
    pages: &'a BTreeSet<&'a Path>,
    /// Files that pages link to.
    sources: &'a mut BTreeSet<PathBuf>,
    broken: &'a mut Vec<String>,
}

impl Links<'_> {
    /// Translates a link of the page to a link of the book.
    fn translate(&mut self, link: &str) -> String {
        if link.contains("://") || link.starts_with('#') || link.starts_with("mailto:") {
            return link.into();
        }
        let (file, anchor) = link
            .split_once('#')
            .map_or((link, String::new()), |(file, anchor)| {
                (file, format!("#{anchor}"))
            });
        let at = normal(&self.page.parent().unwrap_or(Path::new("")).join(file));
        let readme = at.join("README.md");
        let (at, extension) = if self.pages.contains(at.as_path()) {
            (at.with_extension(""), "html".to_string())
        } else if self.pages.contains(readme.as_path()) {
            (readme.with_extension(""), "html".to_string())
        } else if is_picture(&at) && self.root.join(&at).is_file() {
            self.sources.insert(at.clone());
            let extension = at.extension().map(|e| e.to_string_lossy().into_owned());
            (at.with_extension(""), extension.unwrap_or_default())
        } else if let Some(source) = self.source(&at) {
            let extension = source
                .extension()
                .map(|e| format!("{}.html", e.to_string_lossy()));
            self.sources.insert(source.clone());
            match extension {
                Some(extension) => (source.with_extension(""), extension),
                None => (source, "html".into()),
            }
        } else {
            self.broken
                .push(format!("{}: {link} leads nowhere", self.page.display()));
            return link.into();
        };
        let up = "../".repeat(self.page.components().count() - 1);
        format!("{up}{}.{extension}{anchor}", at.display())
    }

    /// The file to show for a link that is not to a page: for a directory, the file to read first.
    fn source(&self, at: &Path) -> Option<PathBuf> {
        let first = [
            "",
            "README.md",
            "src/lib.rs",
            "src/main.rs",
            "lib.rs",
            "mod.rs",
        ];
        let found = first.iter().map(|name| {
            if name.is_empty() {
                at.to_path_buf()
            } else {
                at.join(name)
            }
        });
        let found = found
            .filter(|path| self.root.join(path).is_file())
            .find(|_| true);
        found.or_else(|| {
            let entries = std::fs::read_dir(self.root.join(at)).ok()?;
            let mut files: Vec<PathBuf> =
                entries.flatten().map(|e| at.join(e.file_name())).collect();
            files.retain(|path| self.root.join(path).is_file());
            files.sort();
            files.into_iter().next()
        })
    }
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::Normal(part) => out.push(part),
            _ => {}
        }
    }
    out
}

/// Markdown as HTML, with links into the book and names for the headings.
fn render(text: &str, links: &mut Links<'_>) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    let mut events: Vec<Event> = Parser::new_ext(text, options).collect();
    let mut names = BTreeSet::new();
    for at in 0..events.len() {
        let heading = matches!(events[at], Event::Start(Tag::Heading { .. }));
        let name = heading.then(|| name_of(&events[at + 1..], &mut names));
        match &mut events[at] {
            Event::Start(Tag::Heading { id, .. }) => *id = name.map(CowStr::from),
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                *dest_url = links.translate(dest_url).into();
            }
            _ => {}
        }
    }
    let mut out = String::new();
    html::push_html(&mut out, events.into_iter());
    out
}

/// The anchor of the heading that these events begin with, by the rule of code forges.
fn name_of(events: &[Event], names: &mut BTreeSet<String>) -> String {
    let mut text = String::new();
    for event in events {
        match event {
            Event::End(TagEnd::Heading(_)) => break,
            Event::Text(part) | Event::Code(part) => text.push_str(part),
            _ => {}
        }
    }
    let word = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ => c.is_alphanumeric().then(|| c.to_ascii_lowercase()),
    };
    let first: String = text.chars().filter_map(word).collect();
    let mut name = first.clone();
    let mut count = 0;
    while !names.insert(name.clone()) {
        count += 1;
        name = format!("{first}-{count}");
    }
    name
}

/// A source file, each line with its number.
fn numbered(text: &str) -> String {
    let mut out = String::from("<pre>");
    for (index, line) in text.lines().enumerate() {
        let _ = writeln!(
            out,
            "<span id=L{0}>{0:5}  {1}</span>",
            index + 1,
            escaped(line)
        );
    }
    out.push_str("</pre>");
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The packages that rustdoc documents in a build. What programs link is in the build for programs; what is neither
/// that nor the kernel's is in the host's.
fn described(build: BuildTarget, packages: &[Package]) -> Vec<&Package> {
    let is_kernel = |package: &&Package| KERNEL.iter().any(|room| package.dir == Path::new(room));
    let in_guest = |package: &&Package| package.guest_dir().is_some() && !package.is_macros;
    let all = packages.iter();
    match build {
        BuildTarget::User => all.filter(in_guest).collect(),
        BuildTarget::Host => all.filter(|p| !in_guest(p) && !is_kernel(p)).collect(),
        _ => all.filter(is_kernel).collect(),
    }
}

/// Documents all crates by rustdoc, without a warning, and puts the result into the book. Returns the names of the
/// crates, and their first pages.
fn rustdoc(project: &Project, book: &Path) -> Result<Vec<(String, String)>, Error> {
    let packages = project.packages()?;
    let mut found = Vec::new();
    for &(build, name) in BUILDS {
        let packages = described(build, &packages);
        let mut command = project.cargo_doc(build, Config::DEFAULT);
        command.args(["--offline", "--quiet", "--no-deps", "--keep-going"]);
        for package in &packages {
            command.args(["--package", &package.name]);
        }
        finish(command, &format!("describing the crates of the {name}"))?;
        // Beside the directory of the binaries, whose name is that of the profile.
        let made = project
            .binaries(build, Config::DEFAULT)
            .with_file_name("doc");
        copy(&made, &book.join("rustdoc").join(name))?;
        for package in packages {
            for (title, crate_name) in crates_of(package) {
                let to = format!("rustdoc/{name}/{crate_name}/index.html");
                if !book.join(&to).is_file() {
                    return Err(Error::new(format!("{title}: rustdoc made no {to}")));
                }
                found.push((title, to));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The crates of a package: their names in the contents, and rustdoc's names. A program with the name of its library
/// is not documented separately.
fn crates_of(package: &Package) -> Vec<(String, String)> {
    let dir = package.dir.display().to_string();
    let lib = package
        .lib
        .iter()
        .map(|name| (dir.clone(), name.replace('-', "_")));
    let mut crates: Vec<(String, String)> = lib.collect();
    for name in &package.bins {
        let crate_name = name.replace('-', "_");
        if crates.iter().all(|(_, known)| *known != crate_name) {
            crates.push((format!("{dir}: {name}"), crate_name));
        }
    }
    crates
}

/// Copies a directory with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let failed = |error| Error::new(format!("cannot copy {}: {error}", from.display()));
    std::fs::create_dir_all(to).map_err(failed)?;
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to)?;
        } else {
            std::fs::copy(&path, &to).map_err(failed)?;
        }
    }
    Ok(())
}

fn save(path: &Path, text: &str) -> Result<(), Error> {
    let failed = |error| Error::new(format!("cannot write {}: {error}", path.display()));
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    std::fs::write(path, text).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_glossary_is_in_order_and_its_rooms_exist() {
        let project = Project::find().expect("the checkout");
        let text = std::fs::read_to_string(project.root.join("docs/glossary.md"));
        let text = text.expect("the glossary");
        let rows: Vec<&str> = text.lines().filter(|l| l.starts_with("| **")).collect();
        assert!(rows.len() > 50, "{} terms", rows.len());
        assert!(rows.is_sorted_by_key(|row| row.split("**").nth(1).map(str::to_lowercase)));
        for row in rows {
            let rooms = row.trim_end_matches(" |").rsplit(" | ").next();
            let rooms = rooms.expect("three columns").split('`');
            for room in rooms.skip(1).step_by(2).filter(|room| room.contains('/')) {
                assert!(project.root.join(room).exists(), "{room} in {row}");
            }
        }
    }

    #[test]
    fn all_links_of_the_book_lead_somewhere() {
        let project = Project::find().expect("the checkout");
        reference::write(&project).expect("the API reference");
        let book = project.target.join("book-of-the-test");
        let broken = bind(&project.root, &book, &[]).expect("a book");
        assert_eq!(broken, Vec::<String>::new(), "links that lead nowhere");
        for page in ["README.html", "docs/tutorial.html", "CAVEATS.html"] {
            let text = std::fs::read_to_string(book.join(page)).expect(page);
            assert!(text.contains("<h1") && text.contains("</nav>"), "{page}");
        }
        assert!(
            book.join("docs/inspect.png").is_file(),
            "pictures are there"
        );
        std::fs::remove_dir_all(&book).expect("what the test made goes");
    }

    #[test]
    fn links_lead_into_the_book() {
        let project = Project::find().expect("the checkout");
        let pages = ["README.md", "docs/bench.md", "kernel/README.md"].map(Path::new);
        let pages = pages.into_iter().collect();
        let (mut sources, mut broken) = (BTreeSet::new(), Vec::new());
        let mut links = Links {
            root: &project.root,
            page: Path::new("docs/bench.md"),
            pages: &pages,
            sources: &mut sources,
            broken: &mut broken,
        };
        for (link, to) in [
            ("../README.md#the-map", "../README.html#the-map"),
            ("../kernel/", "../kernel/README.html"),
            ("../fermata", "../fermata.html"),
            ("../abi/src/syscalls.rs", "../abi/src/syscalls.rs.html"),
            ("inspect.png", "../docs/inspect.png"),
            ("#here", "#here"),
            ("https://example.org/a.md", "https://example.org/a.md"),
        ] {
            assert_eq!(links.translate(link), to);
        }
        let _ = links.translate("nowhere.md");
        assert_eq!(broken.len(), 1);
        assert!(sources.contains(Path::new("abi/src/syscalls.rs")));
    }

    #[test]
    fn headings_have_the_names_that_links_use() {
        let pages = BTreeSet::new();
        let mut links = Links {
            root: Path::new("/"),
            page: Path::new("a.md"),
            pages: &pages,
            sources: &mut BTreeSet::new(),
            broken: &mut Vec::new(),
        };
        let html = render(
            "## How to add a `call`?\n\n## Same\n\n## Same\n",
            &mut links,
        );
        for name in ["how-to-add-a-call", "same", "same-1"] {
            assert!(html.contains(&format!("id=\"{name}\"")), "{html}");
        }
    }

    #[test]
    fn every_part_has_its_pages() {
        let project = Project::find().expect("the checkout");
        for (title, entries) in PARTS {
            for entry in entries
                .iter()
                .filter(|entry| !entry.starts_with("docs/api"))
            {
                let pages = pages_at(&project.root, Path::new(entry)).expect("pages");
                assert!(!pages.is_empty(), "{title}: {entry}");
                assert!(
                    pages.iter().all(|page| project.root.join(page).is_file()),
                    "{title}: {entry}"
                );
            }
        }
    }
}
