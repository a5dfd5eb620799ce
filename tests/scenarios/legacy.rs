//! Linux's drivers, unmodified, as programs.

use super::{disk, net};
use crate::scenario::{Ctx, Failure, Run};
use std::path::Path;
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

/// Two machines with Linux's drivers send each other files, by IPv4 and IPv6.
pub(crate) fn pairs(ctx: &mut Ctx) -> Result<(), Failure> {
    // A ne2000 has room for some ten frames, and QEMU's drops what comes in bursts: it is slow, by TCP's rules.
    let pairs = [
        ("e100", "pcnet32", 100_000),
        ("8139cp", "ne2k-pci", 1_500),
        ("ne", "e1000", 1_500),
        ("tulip", "e1000", 100_000),
    ];
    for (first, second, words) in pairs {
        let drivers = [Some(build(first)?), Some(build(second)?)];
        net::pair_of(ctx, drivers, words).map_err(|why| format!("{first} and {second}: {why}"))?;
    }
    Ok(())
}

/// A card on ISA, which says neither where it is nor on which line: its driver finds the line among those that it was
/// granted, whichever it is. One that was not granted is not found, and the driver is given up.
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

/// The driver is killed at seeded instants under load: no connection is lost, and all bytes come back.
pub(crate) fn kills(ctx: &mut Ctx) -> Result<(), Failure> {
    kill(ctx, 20_261_125, 50)?;
    net::kills(ctx, Some(build("e1000")?), "e1000", 20_261_130, 30)?;
    net::kills(ctx, Some(build("tulip")?), "tulip", 20_261_131, 30)?;
    // A ne2000 is slow under load, and its driver takes 30 ms to find the line.
    net::kills(ctx, Some(build("ne")?), "ne", 20_261_129, 10)
}

/// The same from a seed, so many times.
pub(crate) fn kill(ctx: &mut Ctx, seed: u64, count: u64) -> Result<(), Failure> {
    net::kills(ctx, Some(build("e100")?), "e100", seed, count)
}

/// Frames as fast as they can be sent, by each kind of driver (polled, and not): the console is served all the same.
pub(crate) fn flood(ctx: &mut Ctx) -> Result<(), Failure> {
    // A ne2000 has room for few, and drops most.
    for (name, least) in [("e100", 100), ("ne2k-pci", 10)] {
        net::flood_of(ctx, Some(build(name)?), least).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

/// A blank disk gets a file system, and files outlive the machine. A client that asks for nonsense gets what `virtio-blk` gives it.
pub(crate) fn disks(ctx: &mut Ctx) -> Result<(), Failure> {
    for name in ["sym53c8xx", "am53c974"] {
        let told = |why| format!("{name}: {why}");
        disk::files_of(ctx, Some(build(name)?)).map_err(told)?;
        disk::hostile_of(ctx, Some(build(name)?)).map_err(told)?;
    }
    Ok(())
}

/// The driver is killed at seeded instants while requests are open, and while programs write files: no request ends
/// with an error, every read has what was written before it, and in the end the host finds what was written last.
pub(crate) fn disk_kills(ctx: &mut Ctx) -> Result<(), Failure> {
    // An am53c974 takes most of a second to begin: it looks for settings bit by bit.
    for (name, kills, kills_of_files) in [("sym53c8xx", 50, 30), ("am53c974", 15, 8)] {
        let told = |why| format!("{name}: {why}");
        disk::kill_of(ctx, Some(build(name)?), 20_261_128, kills).map_err(told)?;
        disk::files_kills_of(ctx, Some(build(name)?), kills_of_files).map_err(told)?;
    }
    Ok(())
}

/// Sectors under load, from a seed, so many kills.
pub(crate) fn kill_disk(ctx: &mut Ctx, seed: u64, count: u64) -> Result<(), Failure> {
    disk::kill_of(ctx, Some(build("sym53c8xx")?), seed, count)
}

/// Disks that answer as disks should not: what was asked for ends with an error, and what can be done again is done
/// again. One that is no disk for this system, or does not answer when it is looked for, is not offered.
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
    // The time in which a disk is late flies.
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
        let text = output.text();
        let counted = text.find("instructions: ").unwrap_or(text.len());
        Ok::<_, Failure>(text[..counted].to_string())
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
        // A disk that is still looked for is one that does not answer.
        let offered = text.contains("sectors of 512 bytes");
        assert!(text.contains(&said) && !offered, "{parameter}: {text}");
        assert!(text.ends_with("\non\n"), "{parameter}: {text}");
    }
    Ok(())
}

/// A driver that touches a port that it was not granted, and one that calls what the glue does not have: each is ended,
/// by a sentence that says which function of it did what. One that was ended again and again is given up, and the
/// machine goes on. One that was told to read ones goes on itself.
pub(crate) fn wild(ctx: &mut Ctx) -> Result<(), Failure> {
    let project = Project::find().map_err(|error| error.message)?;
    let touched = |port, bytes| {
        format!("wild: port_probe touches port {port:#x} ({bytes} bytes), which it was not granted")
    };
    let mut goes_on: Vec<String> = [(0x3f8, 2), (0x3f9, 1), (0x3fa, 2), (0x3fc, 4)]
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
            grants: "pci=8086:1229",
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
