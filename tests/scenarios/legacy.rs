//! Linux's drivers, unmodified, as programs.

use super::{disk, net, sound};
use crate::scenario::{Ctx, Failure, Run};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use xtask_build::linux::{self, Driver, Program, Ungranted};
use xtask_build::project::{temp_dir, Project};
use xtask_machine::net::Net;

/// Builds a driver.
pub(super) fn build(name: &str) -> Result<Program, Failure> {
    let built = Project::find().and_then(|project| {
        let driver = linux::find(name)?;
        Ok(linux::build(&project, driver, Ungranted::Ends)?.0)
    });
    built.map_err(|error| error.message)
}

/// Runs `./fermata ARGUMENTS` in the checkout at `root`, with commands found only in `path`. Returns whether it
/// succeeded, and its output.
fn fermata(arguments: &[&str], root: &Path, path: &OsStr) -> Result<(bool, String), Failure> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(own);
    command
        .args(arguments)
        .env("FERMATA_ROOT", root)
        .env("PATH", path);
    let output = command.output().map_err(|error| error.to_string())?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok((output.status.success(), text))
}

/// `drivers` lists all drivers, and for one of them the functions that the glue does not have. If the tools that
/// build them are missing, it says which, also if Linux's headers are there.
pub(crate) fn list(_: &mut Ctx) -> Result<(), Failure> {
    let failed = |error: std::io::Error| error.to_string();
    let project = Project::find().map_err(|error| error.message)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let (well, text) = fermata(&["drivers"], &project.root, &path)?;
    // Messages of a build, if one is needed, come after the list.
    let listed = text.lines().filter(|line| !line.starts_with("fermata: "));
    let mut lines = listed.skip_while(|line| !line.starts_with("DRIVER "));
    assert!(well && lines.next().is_some(), "{text}");
    for (driver, line) in linux::DRIVERS.iter().zip(lines.by_ref()) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let named = [driver.name, linux::VERSION, driver.device, driver.service];
        assert_eq!(words[..4], named, "{text}");
        let counts: Vec<usize> = words[4..].iter().flat_map(|word| word.parse()).collect();
        let [lines, needs, has] = counts[..] else {
            return Err(text);
        };
        assert!(lines > 400 && needs >= has && has > needs / 2, "{line}");
    }
    assert_eq!(lines.next(), None);
    let (well, text) = fermata(&["drivers", "e100"], &project.root, &path)?;
    let missing = |name: &str| text.contains(&format!(" when it is called: {name}\n"));
    assert!(well && missing("pci_prepare_to_sleep"), "{text}");
    assert!(!missing("pci_enable_device"), "{text}");

    let directory = temp_dir().map_err(|error| error.message)?;
    let (tools, other) = (
        directory.path().join("tools"),
        directory.path().join("root"),
    );
    std::fs::create_dir_all(&tools).map_err(failed)?;
    std::fs::create_dir_all(&other).map_err(failed)?;
    std::os::unix::fs::symlink(project.root.join("drivers"), other.join("drivers"))
        .map_err(failed)?;
    let packages = ["gcc", "binutils", "make", "flex", "bison", "bc", "xz-utils"];
    for (root, missing) in [(&project.root, 2), (&other, packages.len())] {
        let (well, text) = fermata(&["drivers", "e100"], root, tools.as_os_str())?;
        let start = "fermata: Linux's drivers need tools to build with, and these ";
        let said = text.lines().find(|line| line.starts_with(start));
        let said = said.ok_or_else(|| format!("it says\n{text}"))?;
        for (index, package) in packages.iter().enumerate() {
            let mut words = said.split([' ', ';', '.']);
            let named = words.any(|word| word == *package);
            assert_eq!(named, index < missing, "{package}: {said}");
        }
        assert!(!well, "{text}");
    }
    Ok(())
}

/// Two machines with Linux's drivers send files to each other, by IPv4 and IPv6.
pub(crate) fn pair(ctx: &mut Ctx) -> Result<(), Failure> {
    pairs_of(ctx, &[("e100", "pcnet32", 100_000)])
}

/// The same with other drivers.
pub(crate) fn pairs(ctx: &mut Ctx) -> Result<(), Failure> {
    // A ne2000 has room for some ten frames, and QEMU's drops frames in bursts: by TCP's rules it is slow.
    let pairs = [
        ("8139cp", "ne2k-pci", 1_500),
        ("ne", "e1000", 1_500),
        ("tulip", "e1000", 100_000),
    ];
    pairs_of(ctx, &pairs)
}

/// Pairs of drivers, and how many words the files have.
fn pairs_of(ctx: &mut Ctx, pairs: &[(&str, &str, u32)]) -> Result<(), Failure> {
    for &(first, second, words) in pairs {
        let drivers = [Some(build(first)?), Some(build(second)?)];
        net::pair_of(ctx, drivers, words).map_err(|why| format!("{first} and {second}: {why}"))?;
    }
    Ok(())
}

/// An ISA card, which reports neither its ports nor its line: its driver finds the line among those that it was
/// granted, whichever it is. A line that was not granted is not found, and the driver is given up.
pub(crate) fn isa(ctx: &mut Ctx) -> Result<(), Failure> {
    let program = build("ne")?;
    let mut on_line = |line: &str, device: &'static str, network: bool| {
        let driver = Program {
            device,
            ..program.clone()
        };
        let run = Run::script("net up\nping 10.0.2.2\necho on\n").driver(Some(driver));
        let user = Net::User {
            forwards: Vec::new(),
        };
        let output = ctx.run(if network { run.net(user) } else { run })?;
        let output = output.expect_status(0)?;
        let text = output.text();
        assert!(text.ends_with("on\n"), "line {line}: {text}");
        Ok::<_, Failure>(text.to_string())
    };
    for (line, device) in [("3", "ne2k_isa,irq=3"), ("9", "ne2k_isa,irq=9")] {
        let text = on_line(line, device, true)?;
        assert!(
            text.contains("answer 3 from 10.0.2.2"),
            "line {line}: {text}"
        );
    }
    let text = on_line("12", "ne2k_isa,irq=12", true)?;
    assert!(text.contains("ne: error -19\n"), "{text}");
    assert!(text.contains("has ended again and again"), "{text}");
    let text = on_line("none", "ne2k_isa", false)?;
    assert!(!text.contains("ne: "), "there is no card: {text}");
    Ok(())
}

/// The service of a driver, which decides the load under which it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Link,
    Disk,
    Sound,
}

/// All drivers: the service of each, and how often the suite kills it. `prove --drivers` kills as often as the user
/// asks.
pub(crate) const DRIVERS: [(&str, Kind, u64); 11] = [
    ("e100", Kind::Link, 50),
    ("e1000", Kind::Link, 30),
    ("tulip", Kind::Link, 30),
    ("pcnet32", Kind::Link, 20),
    ("8139cp", Kind::Link, 20),
    // A ne2000 is slow under load, and the driver of the ISA card takes 30 ms to find its line.
    ("ne2k-pci", Kind::Link, 10),
    ("ne", Kind::Link, 10),
    ("sym53c8xx", Kind::Disk, 50),
    // It takes most of a second to start: it reads its settings bit by bit.
    ("am53c974", Kind::Disk, 15),
    ("ata_piix", Kind::Disk, 15),
    ("sb16", Kind::Sound, 30),
];

/// The seed of the suite's kills.
const SEED: u64 = 20_261_125;

/// Kills this driver so often, at instants that follow from a seed, while its service is under load.
pub(crate) fn kill(
    ctx: &mut Ctx,
    (name, kind): (&str, Kind),
    seed: u64,
    count: u64,
) -> Result<(), Failure> {
    let driver = Some(build(name)?);
    let killed = match kind {
        Kind::Link => net::kills(ctx, driver, name, seed, count),
        Kind::Disk => disk::kill_of(ctx, driver, seed, count),
        Kind::Sound => sound::kill(ctx, driver, seed, count),
    };
    killed.map_err(|why| format!("{name}: {why}"))
}

/// Kills all drivers of this kind, as often as in the suite.
fn kill_all(ctx: &mut Ctx, of: Kind) -> Result<(), Failure> {
    for (name, kind, count) in DRIVERS {
        if kind == of {
            kill(ctx, (name, kind), SEED, count)?;
        }
    }
    Ok(())
}

/// The drivers are killed at seeded instants under load: no connection is lost, and all bytes come back.
pub(crate) fn kills(ctx: &mut Ctx) -> Result<(), Failure> {
    kill_all(ctx, Kind::Link)
}

/// The same while a client plays: no call fails, and every frame is heard.
pub(crate) fn sound_kills(ctx: &mut Ctx) -> Result<(), Failure> {
    kill_all(ctx, Kind::Sound)
}

/// Frames as fast as they can be sent, by each kind of driver (polled, and not): the console is still served.
pub(crate) fn flood(ctx: &mut Ctx) -> Result<(), Failure> {
    // A ne2000 has room for few frames, and drops most.
    for (name, least) in [("e100", 100), ("ne2k-pci", 10)] {
        net::flood_of(ctx, Some(build(name)?), least).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

/// A blank disk gets a file system, and files outlive the machine. A client that makes senseless requests gets the
/// same answers as from `virtio-blk`.
pub(crate) fn disks(ctx: &mut Ctx) -> Result<(), Failure> {
    for name in ["sym53c8xx", "am53c974", "ata_piix"] {
        let told = |why| format!("{name}: {why}");
        disk::files_of(ctx, Some(build(name)?)).map_err(told)?;
        disk::hostile_of(ctx, Some(build(name)?)).map_err(told)?;
    }
    Ok(())
}

/// The driver is killed at seeded instants while requests are open, and while programs write files: no request ends
/// with an error, every read returns what was written before it, and in the end the host finds what was written last.
pub(crate) fn disk_kills(ctx: &mut Ctx) -> Result<(), Failure> {
    kill_all(ctx, Kind::Disk)?;
    for (name, kind, count) in DRIVERS {
        if kind == Kind::Disk {
            let killed = disk::files_kills_of(ctx, Some(build(name)?), count * 3 / 5);
            killed.map_err(|why| format!("{name}: {why}"))?;
        }
    }
    Ok(())
}

/// Disks that answer wrongly: their requests end with an error, and those that can be repeated are repeated. A disk
/// that this system does not support, or that does not answer when it is detected, is not offered.
pub(crate) fn disk_errors(ctx: &mut Ctx) -> Result<(), Failure> {
    let project = Project::find().map_err(|error| error.message)?;
    let directory = temp_dir().map_err(|error| error.message)?;
    let file = directory.path().join("disk");
    std::fs::write(&file, vec![0; 1 << 20]).map_err(|error| error.to_string())?;
    let mut script = String::from("trust disk size\n");
    for sector in 100..=107 {
        script += &format!("trust disk read {sector} 1 > /tmp/{sector}\n");
    }
    script += "trust disk flush\nbusybox cmp /tmp/100 /tmp/107 && echo on\n";
    // The machine's clock jumps over the time in which a disk is late.
    let mut run = |parameter, script: &str, flies: bool| {
        let driver = Driver {
            name: "wild",
            device: "lsi53c895a",
            service: "disk",
            grants: "pci=1000:0012",
            sources: &[],
            parameter,
        };
        let program = linux::build_own(
            &project,
            &driver,
            Path::new("drivers/linux/tests/disk.c"),
            Ungranted::Ends,
        );
        let program = program.map_err(|error| error.message)?;
        let run = Run::script(script).disk(&file).driver(Some(program));
        let output = ctx.run(if flies { run.deterministic() } else { run })?;
        Ok::<_, Failure>(output.text())
    };
    let text = run("", &script, true)?;
    let failed = "disk: the server does not answer sensibly\n";
    let late = "wild: the disk has not answered for 30 s, and is reset\n";
    let expected = format!(
        "4096 sectors of 512 bytes\n{}{late}{late}{failed}on\n",
        failed.repeat(5)
    );
    assert_eq!(text, expected);

    let error = "wild: error -5\n";
    let large = "wild: the disk has 4096 sectors of 4096 bytes\n";
    for (parameter, said) in [
        ("mode=1", error.to_string()),
        ("mode=2", large.to_string()),
        ("mode=3", error.to_string()),
        ("mode=4", format!("{late}{late}{error}")),
    ] {
        let flies = parameter == "mode=4";
        let wait = if flies { "busybox sleep 70\n" } else { "" };
        let script = format!("{wait}trust disk size\necho on\n");
        let text = run(parameter, &script, flies)?;
        // A disk that is still being detected is one that does not answer.
        let offered = text.contains("sectors of 512 bytes");
        assert!(text.contains(&said) && !offered, "{parameter}: {text}");
        assert!(text.ends_with("\non\n"), "{parameter}: {text}");
    }
    Ok(())
}

/// libata's own handler handles errors of a disk: a failed read is an error of that request, a failed write is
/// repeated successfully, at a lower speed, and the driver goes on.
pub(crate) fn disk_recovers(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let file = directory.path().join("disk");
    std::fs::write(&file, vec![0; 1 << 20]).map_err(|error| error.to_string())?;
    let script = "busybox head -c 512 /dev/urandom > /tmp/w\n\
                  trust disk read 1499 1 > /tmp/a\n\
                  trust disk read 1500 1 > /tmp/b\n\
                  trust disk write 1700 < /tmp/w\n\
                  trust disk read 1700 1 > /tmp/r\n\
                  trust disk flush\n\
                  busybox cmp /tmp/w /tmp/r && echo on\n";
    let run = Run::script(script).disk(&file).bad_sectors(1500, 1700);
    let output = ctx.run(run.driver(Some(build("ata_piix")?)))?;
    let output = output.expect_status(0)?;
    let text = output.text();
    let failed = text.matches("disk: the server does not answer sensibly\n");
    assert_eq!(failed.count(), 1, "{text}");
    for said in ["(device error)\n", "limiting speed to PIO"] {
        assert!(text.contains(said), "{text}");
    }
    assert!(
        text.ends_with("\non\n") && !text.contains("has ended"),
        "{text}"
    );
    Ok(())
}

/// A driver that touches a port that it was not granted, and one that calls a function that the glue does not have,
/// are ended, with a message that names their function and what it did. A driver that was ended repeatedly is given
/// up, and the machine goes on. A driver that was told to read ones goes on.
pub(crate) fn wild(ctx: &mut Ctx) -> Result<(), Failure> {
    let project = Project::find().map_err(|error| error.message)?;
    let touched = |port, bytes| {
        format!("wild: port_probe touches port {port:#x} ({bytes} bytes), which it was not granted")
    };
    let mut goes_on: Vec<String> = [(0x3f8, 2), (0x3f9, 1), (0x3fa, 2), (0x3fc, 4), (0x228, 1)]
        .map(|(port, bytes)| touched(port, bytes) + ": it reads ones\n")
        .into();
    goes_on.push("wild: it goes on\n".to_string());
    for (file, ungranted, said) in [
        ("port", Ungranted::Ends, touched(0x3f8, 2) + "\n"),
        ("port", Ungranted::Ones, goes_on.concat()),
        (
            "call",
            Ungranted::Ends,
            "wild: it calls pci_prepare_to_sleep, which the glue does not have\n".to_string(),
        ),
        (
            "sleep",
            Ungranted::Ones,
            "wild: it sleeps in a handler, or with softirqs disabled\n".to_string(),
        ),
    ] {
        let driver = Driver {
            name: "wild",
            device: "i82557b",
            service: "link",
            grants: "pci=8086:1229 ports=220+10",
            sources: &[],
            parameter: "",
        };
        let source = Path::new("drivers/linux/tests")
            .join(file)
            .with_extension("c");
        let program = linux::build_own(&project, &driver, &source, ungranted);
        let program = program.map_err(|error| error.message)?;
        let run = Run::script("busybox sleep 1\necho on\n")
            .net(Net::Nothing)
            .driver(Some(program));
        let output = ctx.run(run)?;
        let output = output.expect_status(0)?;
        let text = output.text();
        assert!(text.contains(&said), "{text}");
        let given_up = "the server of link has ended again and again";
        assert!(text.contains(given_up), "{text}");
        assert!(text.ends_with("on\n"), "{text}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_driver_is_killed() {
        let kinds = |service| match service {
            "link" => Kind::Link,
            "disk" => Kind::Disk,
            "sound" => Kind::Sound,
            _ => panic!("nobody kills a driver of {service}"),
        };
        assert_eq!(DRIVERS.len(), linux::DRIVERS.len());
        for driver in linux::DRIVERS {
            let found = DRIVERS.iter().find(|(name, ..)| *name == driver.name);
            let (_, kind, count) = found.unwrap_or_else(|| panic!("{} is not killed", driver.name));
            assert_eq!(*kind, kinds(driver.service), "{}", driver.name);
            assert!(*count >= 10, "{}", driver.name);
        }
        let all = super::super::kills();
        for (name, ..) in DRIVERS {
            assert!(all.iter().any(|(known, _)| *known == name), "{name}");
        }
    }
}
