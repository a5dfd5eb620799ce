//! `./fermata run`: one machine on this terminal.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::Args;
use rustix::io::Errno;
use rustix::stdio::stdin;
use tempfile::NamedTempFile;

use xtask_build::archive::Archive;
use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::linux::{self, Driver, Ungranted};
use xtask_build::packages::{self, Packages};
use xtask_build::project::{file_beside, Project};
use xtask_build::{image, program};
use xtask_machine::control::Event;
use xtask_machine::net::{Net, Pair};
use xtask_machine::place::Place;
use xtask_machine::rng::Rng;
use xtask_machine::signals;
use xtask_machine::terminal::{self, RawMode};
use xtask_machine::{self as machine, Add, End, Get, Operator, Options, Typed};

/// Options of `run`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunOptions {
    /// The kernel's configuration, MODEL[,irq=hardware|optimistic]
    #[arg(long, value_parser = Config::parser(), hide_possible_values = true, default_value = Config::DEFAULT.name())]
    config: Config,
    /// Run the commands in FILE, one per line; - is standard input
    #[arg(long, value_name = "FILE")]
    script: Option<Script>,
    /// Use a Linux shell instead of Fermata's own, with the power over the machine, which powers off with the shell's
    /// status: sh, which is busybox's, or bash, dash and others, whose packages are put into the guest; with --script
    /// it runs FILE. checkpoint, restore and processes are programs there
    #[arg(long, value_name = "NAME", value_parser = shell_name, conflicts_with = "program")]
    shell: Option<String>,
    /// Put a file or directory of the host into the guest; may be repeated
    #[arg(long = "add", value_name = "HOST:GUEST", value_parser = add)]
    adds: Vec<Add>,
    /// Put Debian packages into the guest, with everything that they depend on: python3,gcc. Downloaded once; may be
    /// repeated
    #[arg(long = "packages", value_name = "PACKAGE,...", value_parser = packages::names)]
    packages: Vec<Vec<String>>,
    /// Put the files of an archive that `./fermata root FILE.tar` made into the guest; may be repeated
    #[arg(long = "root", value_name = "FILE.tar")]
    roots: Vec<PathBuf>,
    /// Build the program in DIR (a cargo package, or C files) and put it into /bin of the guest; may be repeated
    #[arg(long = "program", value_name = "DIR")]
    programs: Vec<PathBuf>,
    /// Copy a file out when the machine stops, to HOST or into the directory HOST; may be repeated
    #[arg(long = "get", value_name = "GUEST:HOST", value_parser = get)]
    gets: Vec<Get>,
    /// Give the machine a disk: FILE of the host, raw; created with SIZE (at least 20M, such as 64M) if it does not
    /// exist
    #[arg(long, value_name = "FILE[:SIZE]", value_parser = disk)]
    disk: Option<Disk>,
    /// Give the machine a network: none; user, which QEMU simulates and which leads nowhere; pair:NAME, a wire to the
    /// other machine with this option. pcap:FILE in addition writes all frames to FILE
    #[arg(long = "net", value_name = "none|user|pair:NAME|pcap:FILE", value_parser = net)]
    nets: Vec<Connection>,
    /// Forward connections from HOSTPORT of this host's loopback to GUESTPORT of the machine (implies --net user);
    /// may be repeated
    #[arg(long = "forward", value_name = "HOSTPORT:GUESTPORT", value_parser = forward)]
    forwards: Vec<(u16, u16)>,
    /// Use one of Linux's drivers for the network card, the disk, or a sound card; it is downloaded and built:
    /// `./fermata drivers` lists them. A driver that touches a port that it was not granted is ended; with ports=ones
    /// it continues and reads ones
    #[arg(long, value_name = "NAME[:ports=ones]", value_parser = driver)]
    driver: Option<(String, Ungranted)>,
    /// Give the machine a sound card, and write what it plays to FILE, a WAV file (implies --driver sb16)
    #[arg(long, value_name = "FILE.wav")]
    sound: Option<PathBuf>,
    /// Give the machine a device: virtio-rng, with random numbers of the host, or a device of one of Linux's drivers,
    /// with that driver as by --driver; a network card without --net is connected to nothing. May be repeated
    #[arg(long = "device", value_name = "NAME", value_parser = Device::parser())]
    devices: Vec<Device>,
    /// Run this program instead of a shell, with these arguments, and power off with its status: a directory of the
    /// host that is built as by --program, or the path of a program of the guest (NAME: /bin/NAME)
    #[arg(value_name = "PROGRAM", conflicts_with = "script")]
    program: Option<String>,
    /// The arguments of PROGRAM
    #[arg(
        value_name = "ARGUMENT",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<String>,
    /// Where PROGRAM runs, as for --place
    #[arg(long = "in", value_name = "process|kernel", requires = "program")]
    place_of_program: Option<Ring>,
    /// Where services run, and programs by path: fs=kernel,linux=kernel,/bin/NAME=kernel. process (the default): in
    /// spaces of their own; kernel: in ring 1, with the kernel's translations, and trusted like the kernel. The
    /// binary is the same either way; may be repeated
    #[arg(
        long = "place",
        value_name = "SERVICE=process|kernel,...",
        value_delimiter = ','
    )]
    places: Vec<Place>,
    /// Let GDB connect to PORT of this host's loopback and debug any program of the machine: gdb -ex 'target
    /// extended-remote :PORT'. A user who can connect there has the power over all programs
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    gdb: Option<u16>,
    /// Memory of the machine, at least 48 [default: 512, and more if packages need it]
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u32).range(48..=65_536))]
    memory: Option<u32>,
    /// Stop after S seconds of host time, with status 124
    #[arg(long, value_name = "S", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Count instructions instead of time: every run is the same
    #[arg(long)]
    deterministic: bool,
    /// Show the kernel's log on standard error, and report Linux calls that do not exist
    #[arg(long)]
    verbose: bool,
    /// Print each call of Linux programs on the console, as strace does
    #[arg(long)]
    trace: bool,
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Ring {
    /// In a space of its own
    Process,
    /// In ring 1, trusted as the kernel is
    Kernel,
}

/// A device, by QEMU's name.
#[derive(Clone, Copy, Debug)]
enum Device {
    /// Random numbers of the host. A deterministic machine cannot have it, since all of its runs are the same
    VirtioRng,
    /// The device of this driver of Linux.
    Of(&'static Driver),
}

impl Device {
    fn parser() -> impl TypedValueParser<Value = Device> {
        let of = |driver: &Driver| {
            PossibleValue::new(driver.device).help(format!("driven by Linux's {}", driver.name))
        };
        let rng = PossibleValue::new("virtio-rng").help("random numbers of the host's");
        let names: Vec<_> = std::iter::once(rng)
            .chain(linux::DRIVERS.iter().map(of))
            .collect();
        PossibleValuesParser::new(names).map(|name| {
            let driver = linux::DRIVERS.iter().find(|driver| driver.device == name);
            driver.map_or(Device::VirtioRng, Device::Of)
        })
    }
}

impl RunOptions {
    /// An error if the options contradict each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        let rng = |device: &Device| matches!(device, Device::VirtioRng);
        if self.deterministic && self.devices.iter().any(rng) {
            return Err("--deterministic: a machine with virtio-rng is another in each run".into());
        }
        let mut names = Vec::from_iter(self.driver.iter().map(|(name, _)| &**name));
        for device in &self.devices {
            let Device::Of(driver) = device else {
                continue;
            };
            if names.iter().any(|name| *name != driver.name) {
                return Err(format!(
                    "--device: a machine has one of Linux's drivers, and {} is not that of {}",
                    names[0], driver.device
                ));
            }
            if driver.service == "disk" && self.disk.is_none() {
                return Err(format!(
                    "--device: without --disk FILE there is nothing behind {}",
                    driver.device
                ));
            }
            names.push(driver.name);
        }
        Ok(())
    }

    /// Adds the drivers of the devices.
    fn take_drivers(&mut self) {
        for device in &self.devices {
            let Device::Of(driver) = device else {
                continue;
            };
            let own = || (driver.name.to_string(), Ungranted::Ends);
            self.driver.get_or_insert_with(own);
            if driver.service == "link" && self.nets.is_empty() && self.forwards.is_empty() {
                self.nets.push(Connection::Nothing);
            }
        }
    }
}

/// The source of a script.
#[derive(Clone, Debug)]
enum Script {
    Stdin,
    File(PathBuf),
}

impl From<OsString> for Script {
    fn from(file: OsString) -> Self {
        if file == "-" {
            Script::Stdin
        } else {
            Script::File(file.into())
        }
    }
}

/// HOST:GUEST. The path of the host may have colons.
fn add(pair: &str) -> Result<Add, &'static str> {
    let (host, guest) = pair
        .rsplit_once(':')
        .filter(|(host, guest)| !host.is_empty() && !guest.is_empty())
        .ok_or("it is not HOST:GUEST, two paths with a colon between them")?;
    let mut names = guest.split('/').filter(|name| !matches!(*name, "" | "."));
    // The file system in memory makes no files there.
    if names.next() == Some("disk") {
        return Err("/disk is the disk: './fermata disk make' puts files there");
    }
    Ok(Add::path(host, guest))
}

/// GUEST:HOST. The path of the host may have colons.
fn get(pair: &str) -> Result<Get, &'static str> {
    pair.split_once(':')
        .filter(|(guest, host)| !host.is_empty() && !guest.is_empty())
        .map(|(guest, host)| Get {
            guest: guest.into(),
            host: host.into(),
        })
        .ok_or("it is not GUEST:HOST, two paths with a colon between them")
}

/// Bytes of the smallest disk that is made: on a smaller one the guest makes no file system.
pub(crate) const LEAST_DISK: u64 = 20 << 20;

/// The status if a file of `--get` did not exist, and nothing else was wrong.
const NOT_GOT: u8 = 1;

/// The driver of a sound card.
const SOUND: &str = "sb16";

/// Megabytes of memory of a machine without packages.
const DEFAULT_MEMORY: u32 = 512;

/// A disk of the machine.
#[derive(Clone, Debug)]
struct Disk {
    file: PathBuf,
    /// The size in bytes with which it is created.
    size: Option<u64>,
}

impl Disk {
    /// Creates the file if it does not exist: completely, or not at all.
    fn make(&self) -> Result<(), Error> {
        let cannot = |why: &dyn std::fmt::Display| {
            Error::new(format!("--disk {}: {why}", self.file.display()))
        };
        match (std::fs::metadata(&self.file), self.size) {
            (Ok(found), _) if !found.is_file() => Err(cannot(&"it is not a file")),
            // An existing disk stays as it is, whatever size was given.
            (Ok(_), _) => Ok(()),
            (Err(error), Some(size)) if error.kind() == std::io::ErrorKind::NotFound => {
                let made = file_beside(&self.file).and_then(|made| {
                    made.as_file().set_len(size)?;
                    Ok(made.persist_noclobber(&self.file)?)
                });
                made.map(drop).map_err(|error| cannot(&error))
            }
            (Err(error), None) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(cannot(&"it is not there; FILE:64M makes one of 64 MB"))
            }
            (Err(error), _) => Err(cannot(&error)),
        }
    }
}

/// `FILE[:SIZE]`. The path may contain colons, if it does not end like a size.
fn disk(text: &str) -> Result<Disk, &'static str> {
    let (file, size) = match text.rsplit_once(':') {
        Some((file, size)) if size.starts_with(|c: char| c.is_ascii_digit()) => (file, Some(size)),
        _ => (text, None),
    };
    if file.is_empty() {
        return Err("it is not FILE or FILE:SIZE");
    }
    // With a place behind the size, all of the text would become the name of a file.
    let before = text.rsplit_once(":/");
    let before = before.and_then(|(disk, _)| disk.rsplit_once(':'));
    if before.is_some_and(|(_, size)| bytes(size).is_ok()) {
        return Err("a disk has no place of its own, it is always at /disk: say FILE:SIZE");
    }
    let size = size.map(bytes).transpose()?;
    if size.is_some_and(|size| size < LEAST_DISK) {
        return Err("a disk has at least 20M");
    }
    Ok(Disk {
        file: file.into(),
        size,
    })
}

/// A value of `--net`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Connection {
    None,
    /// A card without a connection, because of `--device`; `--net` cannot ask for it.
    Nothing,
    User,
    Pair(String),
    Pcap(PathBuf),
}

fn net(text: &str) -> Result<Connection, &'static str> {
    let is_name = |name: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (1..=32).contains(&name.len()) && name.chars().all(fits)
    };
    match text.split_once(':').unwrap_or((text, "")) {
        ("none", "") => Ok(Connection::None),
        ("user", "") => Ok(Connection::User),
        ("pair", name) if is_name(name) => Ok(Connection::Pair(name.into())),
        ("pair", _) => Err("the name of a pair is up to 32 letters, digits, - and _"),
        ("pcap", file) if !file.is_empty() => Ok(Connection::Pcap(file.into())),
        _ => Err("it is not none, user, pair:NAME or pcap:FILE"),
    }
}

/// NAME or NAME:ports=ones.
fn driver(text: &str) -> Result<(String, Ungranted), &'static str> {
    let (name, ungranted) = match text.split_once(':') {
        None => (text, Ungranted::Ends),
        Some((name, "ports=ones")) => (name, Ungranted::Ones),
        Some(_) => return Err("it is not NAME or NAME:ports=ones"),
    };
    Ok((name.to_string(), ungranted))
}

/// HOSTPORT:GUESTPORT.
fn forward(text: &str) -> Result<(u16, u16), &'static str> {
    let port = |text: &str| text.parse().ok().filter(|port| *port != 0);
    text.split_once(':')
        .and_then(|(host, guest)| Some((port(host)?, port(guest)?)))
        .ok_or("it is not HOSTPORT:GUESTPORT, two numbers from 1 to 65535")
}

/// The network that `--net` and `--forward` describe, the file that gets its frames, and the lock on the end of a
/// wire.
fn network(
    nets: Vec<Connection>,
    forwards: Vec<(u16, u16)>,
) -> Result<(Net, Option<PathBuf>, Option<std::fs::File>), Error> {
    let (mut pcap, mut connection) = (None, None);
    for net in nets {
        let twice = match net {
            Connection::Pcap(file) => pcap.replace(file).is_some(),
            net => connection.replace(net).is_some(),
        };
        if twice {
            return Err(Error::new("--net: a machine has one network"));
        }
    }
    let goes_without_saying = pcap.is_some() || !forwards.is_empty();
    match connection {
        None if goes_without_saying => Ok((Net::User { forwards }, pcap, None)),
        Some(Connection::User) => Ok((Net::User { forwards }, pcap, None)),
        Some(Connection::Pair(name)) if forwards.is_empty() => {
            let (pair, lock) = Pair::take(&name)?;
            Ok((Net::Pair(pair), pcap, Some(lock)))
        }
        Some(Connection::Nothing) => Ok((Net::Nothing, pcap, None)),
        _ if goes_without_saying => Err(Error::new(
            "--net: ports are forwarded and frames written with --net user; with pair there is nothing to forward, with none nothing at all",
        )),
        _ => Ok((Net::None, None, None)),
    }
}

/// A size of a disk: a number of bytes, or of K, M or G.
pub(crate) fn bytes(text: &str) -> Result<u64, &'static str> {
    let (number, unit) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(number) => (number, &text[number.len()..]),
        None => (text, ""),
    };
    let shift = match unit {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => 0,
    };
    let number: Option<u64> = number.parse().ok();
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|bytes| (512..=1 << 40).contains(bytes) && bytes.is_multiple_of(512))
        .ok_or("the size is not a multiple of 512 bytes up to 1024G, as 65536, 64K, 64M or 1G")
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let time = text.parse().ok();
    time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| !time.is_zero())
        .ok_or("it is not a number of seconds")
}

/// The Linux shell that every machine has.
const BUSYBOX_SHELL: &str = "sh";
/// Where the script of a shell of Linux is in the guest.
const SHELL_SCRIPT: &str = "/run/script";
/// Ctrl-], then x: stop the machine.
const ESCAPE: u8 = 0x1d;
/// Ctrl-D, which the guest's console takes for the end of input.
const END_OF_INPUT: u8 = 0x04;

/// Builds the programs of this directory for the guest. Returns their paths there.
fn add_program(
    project: &Project,
    adds: &mut Vec<Add>,
    directory: &Path,
) -> Result<Vec<String>, Error> {
    let built = program::build(project, directory)?;
    let paths = built.into_iter().map(|(name, file)| {
        let guest = format!("/bin/{name}");
        adds.push(Add::bytes(file, true, &guest));
        guest
    });
    Ok(paths.collect())
}

/// The script that runs the program of the command line. If that is a directory, it is built first.
fn command(project: &Project, options: &mut RunOptions) -> Result<Option<Vec<u8>>, Error> {
    let Some(program) = &options.program else {
        return Ok(None);
    };
    let path = match program.as_str() {
        folder if Path::new(folder).is_dir() => {
            let mut added = add_program(project, &mut options.adds, Path::new(folder))?;
            if added.len() != 1 {
                let names = added.join(", ");
                return Err(Error::new(format!(
                    "{folder} has several programs ({names}): --program {folder} puts them into the guest, and PROGRAM is one of these"
                )));
            }
            added.remove(0)
        }
        path if path.starts_with('/') => path.to_string(),
        name if name.contains('/') => {
            return Err(Error::new(format!(
                "{name} is no folder here; the path of a program of the guest begins with /"
            )))
        }
        name => format!("/bin/{name}"),
    };
    if let Some(ring) = options.place_of_program {
        let place = Place::program(&path, ring == Ring::Kernel).map_err(Error::new)?;
        options.places.push(place);
    }
    line_of(&path, &options.arguments).map(Some)
}

/// The name of a program in /bin.
fn shell_name(text: &str) -> Result<String, &'static str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    match !text.is_empty() && text.chars().all(is_part) && !text.starts_with(['-', '.']) {
        true => Ok(text.into()),
        false => Err("it is the name of a program in /bin, as sh or bash"),
    }
}

/// The script that runs a Linux shell, interactively or with the user's script.
fn run_shell(name: &str, script: Option<Vec<u8>>, options: &mut RunOptions) -> Vec<u8> {
    if name != BUSYBOX_SHELL {
        options.packages.push(vec![name.into()]);
    }
    let arguments = match script {
        None => "-i",
        Some(script) => {
            options.adds.push(Add::bytes(script, false, SHELL_SCRIPT));
            SHELL_SCRIPT
        }
    };
    format!("trust /bin/{name} {arguments}\n").into_bytes()
}

/// The line of a script that runs a program with exactly these arguments.
fn line_of(path: &str, arguments: &[String]) -> Result<Vec<u8>, Error> {
    let mut line = String::new();
    for word in std::iter::once(path).chain(arguments.iter().map(String::as_str)) {
        if word.contains(['\n', '\0']) {
            return Err(Error::new("an argument of PROGRAM has more than one line"));
        }
        line.push_str(&format!("'{}' ", word.replace('\'', r"'\''")));
    }
    line.push('\n');
    Ok(line.into_bytes())
}

/// Boots the machine and returns its status.
pub(crate) fn run(project: &Project, mut options: RunOptions) -> Result<u8, Error> {
    let script = match &options.script {
        None => None,
        Some(Script::Stdin) => {
            let mut script = Vec::new();
            std::io::stdin()
                .read_to_end(&mut script)
                .map_err(|error| Error::new(format!("cannot read the script: {error}")))?;
            Some(script)
        }
        Some(Script::File(path)) => Some(
            std::fs::read(path)
                .map_err(|error| Error::new(format!("cannot read {}: {error}", path.display())))?,
        ),
    };
    for get in &mut options.gets {
        get.host = place_for(get)?;
    }
    options.take_drivers();
    if let Some(file) = &options.sound {
        let parent = file
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        if parent.is_some_and(|parent| !parent.is_dir()) {
            return Err(Error::new(format!(
                "--sound: {} cannot be written, its directory does not exist",
                file.display()
            )));
        }
        let driver = (SOUND.to_string(), Ungranted::Ends);
        let (name, _) = options.driver.get_or_insert(driver);
        if linux::find(name)?.service != "sound" {
            return Err(Error::new(format!(
                "--sound: a machine has one of Linux's drivers, and {name} drives no sound card"
            )));
        }
    }
    for directory in std::mem::take(&mut options.programs) {
        add_program(project, &mut options.adds, &directory)?;
    }
    let command = command(project, &mut options)?;
    let talks = script.is_none();
    let script = match options.shell.clone() {
        Some(name) => Some(run_shell(&name, script, &mut options)),
        None => script,
    };
    if let Some(disk) = &options.disk {
        disk.make()?;
    }
    let driver = match &options.driver {
        Some((name, ungranted)) => Some(linux::build(project, linux::find(name)?, *ungranted)?.0),
        None => None,
    };
    let packages = files_of_packages(project, &options).map_err(|error| match &options.shell {
        Some(name) if name != BUSYBOX_SHELL => Error::new(format!(
            "{} (--shell {name} takes the package of that name)",
            error.message
        )),
        _ => error,
    })?;
    let memory = options.memory.unwrap_or_else(|| {
        let megabytes = packages
            .as_ref()
            .map_or(0, |packages| packages.bytes() >> 20);
        // As much memory as the packages take, in addition.
        DEFAULT_MEMORY
            + u32::try_from(megabytes)
                .unwrap_or(u32::MAX / 2)
                .next_multiple_of(16)
    });
    // The lock is held until the machine has stopped.
    let (net, pcap, _lock) = network(options.nets, options.forwards)?;
    let images = image::build(project, &[options.config])?;

    let at_terminal = terminal::stdin_is_terminal();
    let input = match options.script {
        // The script was standard input, so the console has no input.
        Some(Script::Stdin) => Input::None,
        // With a script, a terminal is not read; other input goes to the script's programs.
        Some(Script::File(_)) if at_terminal => Input::None,
        _ => Input::Stdin,
    };
    let interactive = talks && at_terminal;
    let script = script.or(command);
    let machine = Options {
        script,
        adds: options.adds,
        gets: options.gets.iter().map(|get| get.guest.clone()).collect(),
        disk: options.disk.map(|disk| disk.file),
        net,
        pcap,
        rng: if options
            .devices
            .iter()
            .any(|device| matches!(device, Device::VirtioRng))
        {
            Rng::Host
        } else {
            Rng::None
        },
        sound: options.sound,
        driver,
        packages,
        memory,
        timeout: options.timeout,
        by_host_time: true,
        deterministic: options.deterministic,
        gdb: options.gdb,
        places: options.places,
        words: [("verbose", options.verbose), ("trace", options.trace)]
            .into_iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(word, _)| word.to_string())
            .collect(),
        ..Options::new(options.config)
    };
    signals::catch();
    let gets = options.gets.into_iter().map(Wanted::new);
    let mut person = Person {
        gets: gets.collect::<Result<_, _>>()?,
        verbose: options.verbose,
        input,
        interactive,
        escaped: false,
    };
    let raw = if interactive { RawMode::enter() } else { None };
    let end = machine::run(&images, &machine, &mut person);
    drop(raw);
    let end = end?;

    match &end {
        End::Exit(_) => {}
        End::TimedOut => eprintln!("fermata: the time is up"),
        End::Broken(lines) => {
            for line in lines {
                eprintln!("fermata: {line}");
            }
        }
        End::Stopped(_) => eprintln!("fermata: stopped"),
    }
    for wanted in &person.gets {
        if !wanted.got && !wanted.failed {
            eprintln!(
                "fermata: --get {}: the machine stopped before it handed it out",
                wanted.get.guest
            );
        }
    }
    let lacks = person.gets.iter().any(|wanted| !wanted.got);
    Ok(match end.status() {
        0 if lacks => NOT_GOT,
        status => status,
    })
}

/// The files of the packages and roots that were requested.
fn files_of_packages(project: &Project, options: &RunOptions) -> Result<Option<Archive>, Error> {
    if options.packages.is_empty() && options.roots.is_empty() {
        return Ok(None);
    }
    let mut files = Archive::default();
    if !options.packages.is_empty() {
        files = Packages::get(project, &options.packages.concat())?.unpacked()?;
    }
    for root in &options.roots {
        files.merge(Archive::read(root)?)?;
    }
    eprintln!(
        "fermata: {:.0} MB of packages go into the machine's memory",
        files.bytes() as f64 / 1e6
    );
    Ok(Some(files))
}

enum Input {
    None,
    Stdin,
}

/// The path of the host for a file of the guest: in a directory it keeps its name.
fn place_for(get: &Get) -> Result<PathBuf, Error> {
    let cannot = |why: &str| {
        let host = get.host.display();
        Error::new(format!("--get: {host} cannot be written, {why}"))
    };
    if get.host.is_dir() {
        let name = Path::new(&get.guest).file_name();
        let name = name.ok_or_else(|| cannot("it is a directory"))?;
        let place = get.host.join(name);
        return match place.is_dir() {
            true => Err(Error::new(format!(
                "--get: {} cannot be written, it is a directory",
                place.display()
            ))),
            false => Ok(place),
        };
    }
    let parent = get.host.parent();
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
    let is_none = get.host.as_os_str().as_encoded_bytes().ends_with(b"/");
    match is_none || parent.is_some_and(|parent| !parent.is_dir()) {
        true => Err(cannot("its directory does not exist")),
        false => Ok(get.host.clone()),
    }
}

/// A file that the guest has to hand out.
struct Wanted {
    get: Get,
    /// Gets the content first, and then takes the place of the file of the host: an old file stays if the guest hands
    /// out nothing, or if there is no room.
    part: Option<Part>,
    got: bool,
    failed: bool,
}

/// A file that is being written, and the path that it will get.
struct Part {
    file: NamedTempFile,
    path: PathBuf,
}

impl Wanted {
    /// Checks, before the machine runs, that the file can be written.
    fn new(get: Get) -> Result<Self, Error> {
        let cannot = |error: std::io::Error| {
            let host = get.host.display();
            Error::new(format!("--get: {host} cannot be written: {error}"))
        };
        let part = match get.host.metadata() {
            // A terminal or pipe is written to directly.
            Ok(found) if !found.is_file() => None,
            Ok(found) => {
                // The target of a symbolic link is replaced, and keeps its mode.
                let path = get.host.canonicalize().map_err(cannot)?;
                match file_beside(&path) {
                    Ok(file) => {
                        let kept = file.as_file().set_permissions(found.permissions());
                        kept.map_err(cannot)?;
                        Some(Part { file, path })
                    }
                    // The directory may belong to another user.
                    Err(error) => match OpenOptions::new().write(true).open(&path) {
                        Ok(_) => None,
                        Err(_) => return Err(cannot(error)),
                    },
                }
            }
            Err(_) => Some(Part {
                file: file_beside(&get.host).map_err(cannot)?,
                path: get.host.clone(),
            }),
        };
        Ok(Self {
            get,
            part,
            got: false,
            failed: false,
        })
    }

    /// Writes what the guest handed out.
    fn keep(&mut self, content: &[u8]) -> std::io::Result<()> {
        match self.part.take() {
            Some(mut part) => {
                part.file.write_all(content)?;
                part.file.persist(&part.path)?;
                Ok(())
            }
            None => std::fs::write(&self.get.host, content),
        }
    }
}

/// The user of `./fermata run`: the terminal, and the files that the guest hands out.
struct Person {
    gets: Vec<Wanted>,
    verbose: bool,
    input: Input,
    interactive: bool,
    escaped: bool,
}

impl Person {
    /// Writes a file that the guest handed out.
    fn keep(&mut self, path: &str, content: &[u8]) {
        let wanted = self.gets.iter_mut();
        for wanted in wanted.filter(|wanted| wanted.get.guest == path) {
            match wanted.keep(content) {
                Ok(()) => wanted.got = true,
                Err(error) => {
                    let host = wanted.get.host.display();
                    eprintln!("fermata: --get: cannot write {host}: {error}");
                    wanted.failed = true;
                }
            }
        }
    }
}

impl Operator for Person {
    fn console(&mut self, bytes: &[u8]) -> bool {
        let mut stdout = std::io::stdout();
        stdout
            .write_all(bytes)
            .and_then(|()| stdout.flush())
            .is_ok()
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Log(text) if self.verbose => eprintln!("log: {text}\r"),
            Event::Unknown(text) if self.verbose => eprintln!("control: {text}\r"),
            Event::File { path, content } => self.keep(path, content),
            Event::Missing(path) => {
                eprintln!("fermata: --get {path}: there is no such file in the guest, or it is larger than the guest's memory");
                let wanted = self.gets.iter_mut();
                for wanted in wanted.filter(|wanted| wanted.get.guest == *path) {
                    wanted.failed = true;
                }
            }
            _ => {}
        }
    }

    fn input(&self) -> Option<BorrowedFd<'_>> {
        match self.input {
            Input::Stdin => Some(stdin()),
            Input::None => None,
        }
    }

    fn typed(&mut self) -> Typed {
        if matches!(self.input, Input::None) {
            return Typed::Bytes(Vec::new());
        }
        let mut buffer = [0; 1024];
        // Not by `std::io::stdin`, whose buffer poll cannot see.
        let count = match rustix::io::read(stdin(), &mut buffer) {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => return Typed::Bytes(Vec::new()),
            Err(_) => return Typed::End(vec![END_OF_INPUT]),
        };
        if count == 0 {
            return Typed::End(vec![END_OF_INPUT]);
        }
        if !self.interactive {
            return Typed::Bytes(buffer[..count].to_vec());
        }
        let mut bytes = Vec::with_capacity(count);
        for &byte in &buffer[..count] {
            match (std::mem::take(&mut self.escaped), byte) {
                (true, b'x') => return Typed::Stop,
                // The escape character twice sends it once.
                (true, ESCAPE) => bytes.push(ESCAPE),
                (true, other) => bytes.extend([ESCAPE, other]),
                (false, ESCAPE) => self.escaped = true,
                (false, other) => bytes.push(other),
            }
        }
        Typed::Bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn disks_are_files_with_a_size() {
        let read = |text| disk(text).map(|disk| (disk.file, disk.size));
        assert_eq!(read("disk"), Ok(("disk".into(), None)));
        assert_eq!(read("disk:64M"), Ok(("disk".into(), Some(64 << 20))));
        assert_eq!(read("a:b:1G"), Ok(("a:b".into(), Some(1 << 30))));
        assert_eq!(read("a:b"), Ok(("a:b".into(), None)));
        assert_eq!(read("d:20M"), Ok(("d".into(), Some(20 << 20))));
        for wrong in [
            "",
            ":64M",
            "d:0",
            "d:1",
            "d:513",
            "d:16M",
            "d:5X",
            "d:99999999999G",
            "d:2000G",
        ] {
            assert!(disk(wrong).is_err(), "{wrong}");
        }
        for place in ["d:64M:/mnt", "a/b:1G:/", "d:64M:/disk/a"] {
            let refused = disk(place).expect_err(place);
            assert!(refused.contains("/disk"), "{place}: {refused}");
        }
        assert_eq!(read("a:/b"), Ok(("a:/b".into(), None)));
    }

    #[test]
    fn a_machine_has_one_network() {
        assert_eq!(net("user"), Ok(Connection::User));
        assert_eq!(net("pair:a-1"), Ok(Connection::Pair("a-1".into())));
        assert_eq!(net("pcap:a:b"), Ok(Connection::Pcap("a:b".into())));
        for wrong in [
            "", "users", "user:1", "pair:", "pair:a/b", "pair:..", "pcap:",
        ] {
            assert!(net(wrong).is_err(), "{wrong}");
        }
        assert_eq!(forward("8080:80"), Ok((8080, 80)));
        for wrong in ["80", "80:", "0:80", "80:0", "80:65536", "a:b"] {
            assert!(forward(wrong).is_err(), "{wrong}");
        }
        let user = || Connection::User;
        let file = || Connection::Pcap("file".into());
        assert!(matches!(
            network(vec![], vec![]),
            Ok((Net::None, None, None))
        ));
        assert!(matches!(
            network(vec![file()], vec![]),
            Ok((Net::User { .. }, Some(_), None))
        ));
        assert!(matches!(
            network(vec![], vec![(1, 2)]),
            Ok((Net::User { .. }, None, None))
        ));
        assert!(network(vec![user(), user()], vec![]).is_err());
        assert!(network(vec![Connection::None, file()], vec![]).is_err());
        assert!(network(vec![Connection::Pair("a".into())], vec![(1, 2)]).is_err());
    }

    #[test]
    fn a_device_brings_its_driver() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: RunOptions,
        }
        let read = |line: &str| {
            let words = std::iter::once("run").chain(line.split_whitespace());
            let mut options = Line::try_parse_from(words)
                .map_err(|e| e.to_string())?
                .options;
            options.check()?;
            options.take_drivers();
            Ok::<_, String>(options)
        };
        for driver in linux::DRIVERS {
            let disk = if driver.service == "disk" {
                "--disk d:64M"
            } else {
                ""
            };
            let options = read(&format!("--device {} {disk}", driver.device)).expect("a device");
            let expected = Some((driver.name.to_string(), Ungranted::Ends));
            assert_eq!(options.driver, expected, "{}", driver.device);
            let connected = options.nets == [Connection::Nothing];
            assert_eq!(connected, driver.service == "link", "{}", driver.device);
        }
        let options = read("--device i82557b --net user --device virtio-rng").expect("two devices");
        assert_eq!(
            (options.nets, options.devices.len()),
            (vec![Connection::User], 2)
        );
        let options = read("--driver e100:ports=ones --device i82557b --forward 1:2").expect("one");
        assert_eq!(options.driver, Some(("e100".into(), Ungranted::Ones)));
        assert!(options.nets.is_empty());
        for (wrong, why) in [
            ("--device e100", "i82557b"),
            (
                "--device i82557b --driver tulip",
                "tulip is not that of i82557b",
            ),
            (
                "--device e1000 --device tulip",
                "e1000 is not that of tulip",
            ),
            ("--device lsi53c895a", "without --disk"),
            ("--device virtio-rng --deterministic", "--deterministic"),
        ] {
            let error = read(wrong).expect_err(wrong);
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_disk_is_made_once() {
        let scratch = xtask_build::project::temp_dir().expect("a directory");
        let file = scratch.path().join("disk");
        let disk = |size| Disk {
            file: file.clone(),
            size,
        };
        assert!(disk(None).make().is_err(), "it is not there");
        assert!(disk(Some(4096)).make().is_ok());
        std::fs::write(&file, "kept").expect("a file");
        assert!(disk(Some(8192)).make().is_ok());
        assert!(disk(None).make().is_ok());
        assert_eq!(std::fs::read(&file).expect("the file"), b"kept");
        let directory = Disk {
            file: scratch.path().into(),
            size: Some(4096),
        };
        assert!(directory.make().is_err());
        // Larger than any file system allows: nothing of it may be left.
        let large = Disk {
            file: scratch.path().join("large"),
            size: Some(u64::MAX >> 1),
        };
        assert!(large.make().is_err());
        let names = std::fs::read_dir(scratch.path()).expect("names");
        assert_eq!(names.count(), 1);
    }

    #[test]
    fn files_of_the_guest_go_where_there_is_room_for_them() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = xtask_build::project::temp_dir().expect("a directory");
        let at = |name: &str| scratch.path().join(name);
        let want = |guest: &str, host: &Path| Get {
            guest: guest.into(),
            host: host.into(),
        };
        let place = |guest: &str, host: &str| place_for(&want(guest, &at(host)));
        std::fs::create_dir_all(at("out/sub")).expect("directories");
        std::fs::write(at("old"), "old").expect("a file");
        assert_eq!(place("/tmp/x", "out").expect("a place"), at("out/x"));
        assert_eq!(place("/tmp/x", "new").expect("a place"), at("new"));
        assert!(place_for(&want("/tmp/x", Path::new("x"))).is_ok());
        for (guest, host) in [
            ("/", "out"),
            ("/tmp/sub", "out"),
            ("/tmp/x", "none/x"),
            ("/tmp/x", "none/"),
        ] {
            assert!(place(guest, host).is_err(), "{guest} {host}");
        }

        let mode = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(at("old"), mode).expect("a mode");
        std::os::unix::fs::symlink(at("old"), at("link")).expect("a link");
        let wanted = |host: &str| Wanted::new(want("/tmp/x", &at(host)));
        // If the guest hands out nothing, nothing changes, and nothing is left.
        for host in ["old", "link", "out/x"] {
            drop(wanted(host).expect("room"));
        }
        assert_eq!(std::fs::read(at("old")).expect("the file"), b"old");
        let names = |path: &str| std::fs::read_dir(at(path)).expect("names").count();
        assert_eq!((names(""), names("out")), (3, 1));
        for host in ["link", "out/x"] {
            let mut wanted = wanted(host).expect("room");
            assert_eq!(std::fs::read(at("old")).expect("the file"), b"old");
            wanted.keep(b"new").expect("it is written");
            assert_eq!(std::fs::read(at(host)).expect("the file"), b"new");
            std::fs::write(at("old"), "old").expect("a file");
        }
        assert!(at("link").is_symlink());
        let found = std::fs::metadata(at("old")).expect("the file");
        assert_eq!(found.permissions().mode() & 0o777, 0o640);
        assert!(wanted("none/x").is_err());
        let mut null = Wanted::new(want("/tmp/x", Path::new("/dev/null"))).expect("a device");
        null.keep(b"new").expect("it takes everything");
    }
}
