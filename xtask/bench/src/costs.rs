//! `./fermata bench --beside-linux`: what calls and whole programs of Linux cost in Fermata, beside Debian's Linux on
//! the same emulator, as the page `docs/linux-costs.md`.
//!
//! `benches/linux/program.c` runs on both systems, by the same script of the same shell (`benches/linux/rows`). The
//! plugin counts the instructions between the program's marks.
//!
//! * [`page`] writes the page.

mod page;

use std::path::Path;

use super::beside;
use super::beside::said::Said;
use super::boots::Look;
use super::build_plugin;
use page::Found;
use xtask_build::archive::Archive;
use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::image::{self, Images};
use xtask_build::packages::Packages;
use xtask_build::project::Project;
use xtask_machine::Add;

/// The files that are written.
const PAGE: &str = "docs/linux-costs.md";
const PLOT: &str = "docs/linux-costs.svg";
/// Where the program, its script, and the first process of Linux are.
const SOURCES: &str = "benches/linux";
/// Packages with the programs that are run and are not part of busybox.
const PROGRAMS: [&str; 2] = ["gcc", "python3"];

/// The most that a row is to take.
#[derive(Clone, Copy)]
enum Aim {
    /// So many instructions.
    Count(u64),
    /// So many hundredths of what Linux takes.
    OfLinux(u64),
    None,
}

/// A row without any call, which must be the same on both machines.
const USER: &str = "user";
/// By how many hundredths of it they may differ: the clock of Linux ticks.
const USER_TOLERANCE: u64 = 1;

/// The calls, by the names in `program.c`, and operations that are done once.
const CALLS: [(&str, &str, Aim); 21] = [
    ("getppid", "`getppid`", Aim::Count(700)),
    ("clock", "`clock_gettime` by the C library", Aim::Count(78)),
    ("lseek", "`lseek`", Aim::None),
    ("write_null", "`write` of 1 B to `/dev/null`", Aim::None),
    (
        "fstat",
        "`fstat`, for which glibc calls `newfstatat` with an empty path",
        Aim::Count(1_500),
    ),
    ("stat", "`stat`", Aim::Count(3_600)),
    ("open_close", "`open` and `close`", Aim::Count(6_500)),
    ("pread_1", "`pread` of 1 B", Aim::None),
    ("pread_4096", "`pread` of 4 KB", Aim::Count(2_500)),
    ("pread_1m", "`pread` of 1 MB", Aim::Count(256_000)),
    (
        "write_1m",
        "`write` of 1 MB to a new file",
        Aim::Count(800_000),
    ),
    (
        "getdents",
        "`lseek`, and `getdents64` until there are no more: 100 files",
        Aim::None,
    ),
    (
        "mmap",
        "`mmap` of 64 KB, a store to each page, `munmap`",
        Aim::None,
    ),
    (
        "signal",
        "`kill` of itself, a handler, `rt_sigreturn`",
        Aim::Count(3_000),
    ),
    (
        "pipe",
        "1 B by a pipe to another process, 1 B by another one back",
        Aim::Count(6_000),
    ),
    (
        "unix",
        "the same by a pair of `AF_UNIX` stream sockets",
        Aim::Count(8_000),
    ),
    (
        "eventfd",
        "the same by two descriptors of `eventfd`, 8 B",
        Aim::Count(6_000),
    ),
    (
        "futex",
        "the turn given to another thread and back, by `futex`",
        Aim::Count(4_000),
    ),
    (
        "fork",
        "`fork`, `_exit` of the child, `waitpid`",
        Aim::Count(200_000),
    ),
    ("vfork", "the same by `vfork`", Aim::Count(50_000)),
    (
        "thread",
        "`pthread_create` and `pthread_join`",
        Aim::Count(30_000),
    ),
];

/// The whole programs, by the names in `rows`.
const WHOLE: [(&str, &str, Aim); 7] = [
    (
        "tar",
        "`tar c` of 200 files of 2,000 B into a file",
        Aim::OfLinux(120),
    ),
    (
        "find",
        "`find -type f -name` in that tree",
        Aim::OfLinux(120),
    ),
    (
        "dd",
        "`dd bs=512 count=2000` from file to file",
        Aim::OfLinux(120),
    ),
    ("sort", "`sort` of 10,000 lines", Aim::None),
    (
        "sh",
        "`sh`, which starts `/bin/busybox true` 20 times",
        Aim::None,
    ),
    (
        "gcc",
        "`gcc -O2 -c` of a file with 300 functions",
        Aim::OfLinux(105),
    ),
    (
        "python",
        "`python3 -c`, which prints a list of 200 numbers by `json`",
        Aim::None,
    ),
];

/// The files that both machines get.
struct Programs {
    program: Vec<u8>,
    rows: Vec<u8>,
    busybox: Vec<u8>,
    packages: Archive,
}

impl Programs {
    fn get(project: &Project) -> Result<Self, Error> {
        let names = PROGRAMS.map(String::from);
        Ok(Self {
            program: beside::program(project, &format!("{SOURCES}/program.c"))?,
            rows: beside::source(project, &format!("{SOURCES}/rows"))?,
            busybox: beside::busybox(project)?,
            packages: Packages::get(project, &names)?.unpacked()?,
        })
    }
}

/// The machine with Debian's kernel.
fn linux(project: &Project, programs: &Programs, library: &Path) -> Result<Said, Error> {
    let mut files = beside::files(project, &[beside::KERNEL], &|_| false)?;
    let init = beside::source(project, &format!("{SOURCES}/init"))?;
    let archive = &mut files.archive;
    archive.file("init", init, true)?;
    archive.file("rows", programs.rows.clone(), false)?;
    archive.file("bin/program", programs.program.clone(), true)?;
    archive.file("bin/busybox", programs.busybox.clone(), true)?;
    archive.merge(programs.packages.clone())?;
    let ran = beside::linux(files, library)?;
    Said::of(&ran, "Linux")
}

/// The machine with Fermata, whose busybox is the same file.
fn fermata(images: &Images, programs: &Programs, library: &Path) -> Result<Said, Error> {
    let adds = vec![
        Add::bytes(programs.program.clone(), true, "/bin/program"),
        Add::bytes(programs.busybox.clone(), true, "/bin/busybox"),
        Add::bytes(programs.rows.clone(), false, "/rows"),
    ];
    let mut options = beside::options("sh /rows\nexit 0\n");
    options.adds = adds;
    options.packages = Some(programs.packages.clone());
    let ran = beside::fermata(images, library, Look::Counts, options)?;
    Said::of(&ran, "Fermata")
}

/// Measures, and writes the page if nothing has failed.
pub(super) fn run(project: &Project) -> Result<u8, Error> {
    let images = image::build(project, &[Config::DEFAULT])?;
    let library = build_plugin(project)?;
    let programs = Programs::get(project)?;
    let found = Found {
        fermata: fermata(&images, &programs, &library)?,
        linux: linux(project, &programs, &library)?,
    };
    beside::write_unless(
        &found.failures(),
        project,
        (PAGE, found.page()),
        (PLOT, found.plot()),
        "Linux programs beside Linux",
        "Instructions of calls and of whole programs in Fermata, in times of Linux's, and aims: docs/linux-costs.md has them as tables.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page has a row for every measurement, in the same order.
    #[test]
    fn rows_are_those_of_the_program_and_of_its_script() {
        let program = include_str!("../../../benches/linux/program.c");
        let (_, table) = program.split_once("} all[] = {\n").unwrap();
        let (table, _) = table.split_once("\n};").unwrap();
        let calls: Vec<&str> = table
            .lines()
            .map(|line| line.split('"').nth(1).unwrap())
            .collect();
        assert_eq!(calls[0], USER);
        assert_eq!(calls[1..], CALLS.map(|(name, ..)| name));
        let script = include_str!("../../../benches/linux/rows");
        let whole: Vec<&str> = script
            .lines()
            .filter_map(|line| line.strip_prefix("whole ")?.split(' ').next())
            .collect();
        assert_eq!(whole, WHOLE.map(|(name, ..)| name));
    }
}
