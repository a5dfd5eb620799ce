//! `./fermata bench --placed`: the costs of loads with servers in processes and in the kernel, over files in memory,
//! on a disk and from the network, as the page `docs/collocation.md`. It repeats section 7 of R. Draves and S.
//! Cutshall, *Unifying the User and Kernel Environments*.
//!
//! The program of `benches/linux` runs commands by the script `benches/collocation/rows`, and the plugin measures
//! between its marks: instructions in one boot for each placement, host time in boots of their own.
//!
//! * [`page`] writes the page.

mod page;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::beside::said::Said;
use super::beside::{self, Ran};
use super::boots::{self, Boot, Line, Look};
use super::{build_plugin, per};
use page::Found;
use xtask_build::archive::Archive;
use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::image::{self, Images};
use xtask_build::packages::Packages;
use xtask_build::project::{temp_dir, Project};
use xtask_machine::control::Event;
use xtask_machine::net::{Net, Pair};
use xtask_machine::{self as machine, disk, Add, End, Operator, Options};

/// The files that are written.
const PAGE: &str = "docs/collocation.md";
const PLOT: &str = "docs/collocation.svg";
/// The program that sets the marks, and the scripts.
const PROGRAM: &str = "benches/linux/program.c";
const SOURCES: &str = "benches/collocation";
const SCRIPTS: [&str; 3] = ["prepare", "rows", "services"];
/// Packages with the compiler.
const PROGRAMS: [&str; 2] = ["gcc", "libc6-dev"];
/// Bytes of the disk.
const DISK: u64 = 64 << 20;
/// How often host time is measured for each placement, in turns.
const ROUNDS: usize = 3;

/// Where servers run: the name, and the machine's option. The first and the last placement are compared in
/// everything.
const PLACEMENTS: [(&str, &str); 5] = [
    ("process", ""),
    ("file servers", "fs=kernel,ext4=kernel,disk=kernel"),
    ("linux", "linux=kernel"),
    (
        "file servers, linux",
        "fs=kernel,ext4=kernel,disk=kernel,linux=kernel",
    ),
    ("all", "all=kernel"),
];
/// Indices of those two.
const ENDS: [usize; 2] = [0, PLACEMENTS.len() - 1];

/// Where files are.
const MEDIA: [&str; 3] = ["memory", "disk", "network"];
/// The media of a single machine, and the directory of each.
const ALONE: [(&str, &str); 2] = [("memory", "/tmp"), ("disk", "/disk")];
/// The medium that comes from a second machine.
const NETWORK: &str = "network";

/// The loads, by the names in `rows`: with local files, and from the network.
const LOADS: [(&str, &str, &str); 4] = [
    (
        "tar",
        "`tar c` of 200 files of 2,000 B",
        "`wget` of that archive into `tar x`",
    ),
    (
        "sort",
        "`sort` of 10,000 lines",
        "`wget` of these lines into `sort`",
    ),
    (
        "services",
        "20 processes that do nothing, `find`, `sha256sum` of 200 files, 1 MB of random bytes, `cp` of those files",
        "`wget` of 20 files of 2,000 B into `sha256sum`, and of one of 1 MB",
    ),
    (
        COMPILATION,
        "`gcc -O1 -c` of eight functions",
        "`wget` of these into `gcc`",
    ),
];
/// The load that is measured only with all servers in one kind of place.
const COMPILATION: &str = "gcc";

/// The operations of `benches/`, from a process and from the kernel.
const CALLS: [(&str, &str); 2] = [
    ("null_call", "collocated_null_call"),
    ("rpc_0", "collocated_rpc_0"),
];

/// The row of a load.
fn row(load: &str, medium: &str) -> String {
    format!("{load}-{medium}")
}

/// All rows of a placement.
fn rows(placement: usize) -> impl Iterator<Item = String> {
    let is_end = ENDS.contains(&placement);
    let wanted =
        move |load: &str, medium: &str| is_end || (load != COMPILATION && medium != NETWORK);
    MEDIA.into_iter().flat_map(move |medium| {
        let loads = LOADS.iter().filter(move |(load, ..)| wanted(load, medium));
        loads.map(move |(load, ..)| row(load, medium))
    })
}

/// The files that the machines get.
struct Programs {
    files: Vec<Add>,
    packages: Archive,
}

impl Programs {
    fn get(project: &Project) -> Result<Self, Error> {
        let program = beside::program(project, PROGRAM)?;
        let mut files = vec![
            Add::bytes(program, true, "/bin/program"),
            Add::bytes(beside::busybox(project)?, true, "/bin/busybox"),
        ];
        for name in SCRIPTS {
            let script = beside::source(project, &format!("{SOURCES}/{name}"))?;
            files.push(Add::bytes(script, false, &format!("/{name}")));
        }
        Ok(Self {
            files,
            packages: Packages::get(project, &PROGRAMS.map(String::from))?.unpacked()?,
        })
    }
}

/// What a machine of a placement has printed: its rows, and the output of `ps` after them.
struct Placed {
    said: Said,
    memory: page::Memory,
}

/// Operates a machine that serves others until those are done.
struct Serves<'a>(&'a AtomicBool);

impl Operator for Serves<'_> {
    fn console(&mut self, bytes: &[u8]) -> bool {
        eprint!("{}", String::from_utf8_lossy(bytes));
        true
    }

    fn event(&mut self, _: &Event) {}

    fn tick(&mut self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

/// What is needed to measure.
struct Bench<'a> {
    images: &'a Images,
    library: &'a Path,
    programs: &'a Programs,
}

impl Bench<'_> {
    /// A machine with servers in a placement.
    fn options(&self, placement: usize, script: &str) -> Result<Options, Error> {
        let mut options = beside::options(script);
        options.adds.clone_from(&self.programs.files);
        options.packages = Some(self.programs.packages.clone());
        let (_, places) = PLACEMENTS[placement];
        for place in places.split(',').filter(|place| !place.is_empty()) {
            options.places.push(place.parse().map_err(Error::new)?);
        }
        Ok(options)
    }

    /// What is typed for a medium.
    fn typed(placement: usize, medium: &str, at: &str) -> String {
        let compiles = if ENDS.contains(&placement) {
            COMPILATION
        } else {
            ""
        };
        format!("sh /rows {medium} {at} {compiles}\n")
    }

    /// Files in memory and on a disk.
    fn alone(&self, placement: usize, look: Look) -> Result<Ran, Error> {
        let directory = temp_dir()?;
        let file = directory.path().join("disk");
        disk::make(&file, DISK, None)?;
        let typed = ALONE.map(|(medium, at)| Self::typed(placement, medium, at));
        let mut options = self.options(placement, &format!("{}ps\nexit 0\n", typed.concat()))?;
        options.disk = Some(file);
        options.disk_of_a_test = true;
        beside::fermata(self.images, self.library, look, options)
    }

    /// Files from another machine, in which nothing is measured, and whose servers are in the same places.
    fn pair(&self, placement: usize, look: Look) -> Result<Ran, Error> {
        let directory = temp_dir()?;
        let of = |end: u8, script: &str| {
            let mut options = self.options(placement, script)?;
            options.net = Net::Pair(Pair {
                directory: directory.path().into(),
                end,
            });
            options.waits = true;
            options.deterministic = look != Look::HostTime;
            Ok::<_, Error>(options)
        };
        let serves = of(
            0,
            "sh /prepare /tmp/served\nbusybox httpd -f -p 80 -h /tmp/served\n",
        )?;
        let asks = Self::typed(placement, NETWORK, "/tmp");
        let asks = of(1, &format!("{asks}exit 0\n"))?;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let serves = scope.spawn(|| machine::run(self.images, &serves, &mut Serves(&is_over)));
            let ran = beside::fermata(self.images, self.library, look, asks);
            is_over.store(true, Ordering::Relaxed);
            let serves = serves
                .join()
                .map_err(|_| Error::new("a machine panicked xtask"))??;
            match serves {
                End::Stopped(_) => ran,
                end => Err(Error::new(format!(
                    "the machine that serves ended as {end:?}"
                ))),
            }
        })
    }

    /// All rows of a placement.
    fn placed(&self, placement: usize, look: Look) -> Result<Placed, Error> {
        let (name, _) = PLACEMENTS[placement];
        eprintln!("fermata: placed: {name}, {look:?}");
        let alone = self.alone(placement, look)?;
        let mut said = Said::of(&alone, name)?;
        if ENDS.contains(&placement) {
            said = said.and(Said::of(&self.pair(placement, look)?, name)?);
        }
        Ok(Placed {
            said,
            memory: page::Memory::of(&alone.lines),
        })
    }

    /// What the operations of [`CALLS`] took, by name: instructions, or ticks of the host's counter.
    fn calls(&self, look: Look) -> Result<BTreeMap<String, u64>, Error> {
        let names = CALLS.map(|(process, _)| process).join(",");
        let mut taken = BTreeMap::new();
        let run = |boot: &Boot| {
            let boot = boot.looked_at(look);
            boot.run(
                self.images,
                Config::DEFAULT,
                &names,
                self.library,
                &mut |_| (),
            )
        };
        for session in [run(&boots::SMALL)?, run(&boots::COLLOCATED)?] {
            taken.extend(session.into_iter().filter_map(|(line, _)| match line {
                Line::Sample {
                    name,
                    operations,
                    ticks,
                    ..
                } => Some((name, per(ticks, operations))),
                // A program in the kernel computes the quotient itself.
                Line::Value { name, value, .. } => Some((name, value)),
                Line::Failed { .. } => None,
            }));
        }
        Ok(taken)
    }
}

/// Measures, and writes the page if nothing has failed.
pub(super) fn run(project: &Project) -> Result<u8, Error> {
    let images = image::build(project, &[Config::DEFAULT])?;
    let library = build_plugin(project)?;
    let programs = Programs::get(project)?;
    let bench = Bench {
        images: &images,
        library: &library,
        programs: &programs,
    };
    let mut found = Found {
        calls: bench.calls(Look::Instructions)?,
        ..Found::default()
    };
    for placement in 0..PLACEMENTS.len() {
        let placed = bench.placed(placement, Look::Counts)?;
        found.counted.push(placed.said);
        found.memory.push(placed.memory);
    }
    for _ in 0..ROUNDS {
        found.call_times.push(bench.calls(Look::HostTime)?);
        for (end, placement) in ENDS.into_iter().enumerate() {
            let placed = bench.placed(placement, Look::HostTime)?;
            found.times[end].push(placed.said);
        }
    }
    beside::write_unless(
        &found.failures(),
        project,
        (PAGE, found.page()),
        (PLOT, found.plot()),
        "Servers in the kernel beside servers in processes",
        "Instructions and the host's processor time of loads with all servers in the kernel, in times of those with servers in processes: docs/collocation.md has them as tables.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page has a row for every measurement of the script, in both of its halves.
    #[test]
    fn rows_are_those_of_the_script() {
        let script = include_str!("../../../benches/collocation/rows");
        let (network, alone) = script.split_once("\nelse\n").unwrap();
        let (alone, compilation) = alone.split_once("\nfi\n").unwrap();
        let loads = |text: &str| -> Vec<String> {
            let lines = text.lines().map(str::trim_start);
            let names = lines.filter_map(|line| line.strip_prefix("whole ")?.split(' ').next());
            names.map(String::from).collect()
        };
        for half in [network, alone] {
            let all = [loads(half), loads(compilation)].concat();
            assert_eq!(all, LOADS.map(|(name, ..)| name));
        }
        assert!(network.contains(&format!("[ $medium = {NETWORK} ]")));
        assert!(compilation.contains(&format!("[ \"$3\" = {COMPILATION} ]")));
        assert_eq!(
            [ALONE[0].0, ALONE[1].0, NETWORK],
            MEDIA,
            "each medium is measured once"
        );
        assert_eq!(rows(0).count(), LOADS.len() * MEDIA.len());
        assert_eq!(rows(1).count(), (LOADS.len() - 1) * ALONE.len());
    }
}
