//! Runs one machine: makes its archive, starts QEMU, carries the console's input and output, reads its control
//! channel ([`control`]), and cleans up. [`terminal`] and [`signals`] handle the user's terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::ioctl_fionbio;
use rustix::process::{
    getpid, getppid, kill_process, set_parent_process_death_signal, Pid, Signal,
};

use xtask_build::archive::Archive;
use xtask_build::config::Config;
use xtask_build::error::{Error, BROKEN, TIMED_OUT};
use xtask_build::image::Images;
use xtask_build::linux;
use xtask_build::project::temp_dir;
pub use xtask_build::signals;

pub mod control;
pub mod debian;
pub mod disk;
mod hang;
pub mod net;
pub mod place;
pub mod rng;
pub mod terminal;
#[cfg(test)]
mod tests;

use control::{Event, Parser};
use net::Net;
use rng::Rng;

/// A processor that QEMU emulates completely, so that nothing depends on the host's processor.
const CPU: &str = "qemu64,+fsgsbase,+smep,+smap,+umip,+nx,+rdtscp,+xsave,+pdpe1gb,+popcnt,+cx16,\
    +rdrand,+ssse3,+sse4.1,+sse4.2,enforce";
/// Appended for a processor without random numbers: of two words about a feature the later one counts.
const WITHOUT_RDRAND: &str = ",-rdrand";

/// Where a machine that waits for a debugger listens; only this host can connect.
pub const DEBUGGER: &str = "tcp:127.0.0.1:1234";

/// The disk controller that the machine always has: only a disk is to be added.
const BUILT_IN: &str = "piix3-ide";

/// QEMU's exit status for the value that the kernel writes to port 0xf4 when it panics.
const PANIC_STATUS: i32 = 63 << 1 | 1;

/// How long to wait for input and output before the control channel is read again.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

/// A file or directory that goes into the guest's file system.
#[derive(Clone, Debug)]
pub struct Add {
    what: Source,
    /// Its path in the guest.
    pub guest: String,
}

#[derive(Clone, Debug)]
enum Source {
    Path(PathBuf),
    Bytes { content: Vec<u8>, executable: bool },
}

impl Add {
    /// A file or directory at `host`.
    pub fn path(host: impl Into<PathBuf>, guest: &str) -> Self {
        Self {
            what: Source::Path(host.into()),
            guest: guest.into(),
        }
    }

    /// A file with this content.
    pub fn bytes(content: Vec<u8>, executable: bool, guest: &str) -> Self {
        Self {
            what: Source::Bytes {
                content,
                executable,
            },
            guest: guest.into(),
        }
    }
}

/// A file of the guest that is copied out.
#[derive(Clone, Debug)]
pub struct Get {
    pub guest: String,
    pub host: PathBuf,
}

/// The machine to run: its memory, its files and its limits.
pub struct Options {
    pub config: Config,
    /// The shell's commands; without, it reads the console.
    pub script: Option<Vec<u8>>,
    pub adds: Vec<Add>,
    /// Debian's packages, unpacked.
    pub packages: Option<Archive>,
    /// Paths in the guest of files that are to be copied out when the machine stops.
    pub gets: Vec<String>,
    /// A file that is the machine's disk.
    pub disk: Option<PathBuf>,
    /// The file is a test's, which need not survive a loss of the host's power. QEMU then does not make each flush of
    /// the guest wait until the host has written the bytes to a disk, which takes seconds while other programs write.
    /// Other programs of the host still see the bytes.
    pub disk_of_a_test: bool,
    /// Instead of that, a disk of so many bytes that reads as zeros, drops what is written, and takes no time: for
    /// measurements.
    pub null_disk: Option<u64>,
    /// A sector of the disk whose reads fail, and one whose first write fails.
    pub bad_sectors: Option<(u64, u64)>,
    /// What its network card is connected to.
    pub net: Net,
    /// A file that gets all frames that the card sends and receives.
    pub pcap: Option<PathBuf>,
    /// The source of the numbers of its device of random numbers.
    pub rng: Rng,
    /// The place of that device on the bus, if it is to share a line with another device.
    pub rng_address: Option<u8>,
    /// Whether the processor has random numbers.
    pub rdrand: bool,
    /// Two of QEMU's `edu` devices, on lines of their own, and drivers for them.
    pub edu: bool,
    /// Whether they share a line.
    pub edu_shared: bool,
    /// A file that gets the sound card's output, if there is a driver for one.
    pub sound: Option<PathBuf>,
    /// Linux's driver of its network card, of its disk, or of a sound card. Without it the drivers are virtio's, and
    /// there is no sound.
    pub driver: Option<linux::Program>,
    /// In megabytes.
    pub memory: u32,
    /// A file of the host that is the machine's memory.
    pub memory_file: Option<PathBuf>,
    /// In host time; QEMU may use half of that in processor time. A machine that does nothing for five minutes is
    /// stopped, too.
    pub timeout: Option<Duration>,
    /// With a timeout: only the host's time counts.
    pub by_host_time: bool,
    pub deterministic: bool,
    /// Whether a machine that counts instructions waits for as long as its clock says while it idles, because it
    /// talks with other machines, which have other clocks. Otherwise its clock jumps to the next event that it waits
    /// for.
    pub waits: bool,
    /// Where servers run.
    pub places: Vec<place::Place>,
    /// More words for the kernel's command line.
    pub words: Vec<String>,
    /// Whether to boot the counting kernel instead of the ordinary one.
    pub counting: bool,
    /// Wait for a debugger before the first instruction.
    pub debug: bool,
    /// A TCP port of this host's loopback where GDB can connect to the machine's debugger.
    pub gdb: Option<u16>,
    /// A plugin for QEMU.
    pub plugin: Option<Plugin>,
}

/// The plugin that counts.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// The shared library.
    pub library: PathBuf,
    /// The file for its counts, if it is to count.
    pub output: Option<PathBuf>,
    /// The file for the kernel's events, if they are wanted.
    pub events: Option<PathBuf>,
    /// The file for how often each instruction was executed, if that is wanted.
    pub profile: Option<PathBuf>,
    /// The file for how often the page table was changed and the kernel was left, if that is wanted.
    pub switches: Option<PathBuf>,
    /// The file for the time of the host's thread, if that is wanted.
    pub time: Option<PathBuf>,
}

impl Options {
    /// A machine with the defaults of `./fermata run`.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            script: None,
            adds: Vec::new(),
            packages: None,
            gets: Vec::new(),
            disk: None,
            disk_of_a_test: false,
            null_disk: None,
            bad_sectors: None,
            net: Net::None,
            pcap: None,
            rng: Rng::None,
            rng_address: None,
            rdrand: true,
            edu: false,
            edu_shared: false,
            sound: None,
            driver: None,
            memory: 512,
            memory_file: None,
            timeout: None,
            by_host_time: false,
            deterministic: false,
            waits: false,
            places: Vec::new(),
            words: Vec::new(),
            counting: false,
            debug: false,
            gdb: None,
            plugin: None,
        }
    }
}

/// The user or program at the console of a machine.
pub trait Operator {
    /// The guest printed `bytes`. False: no one can read them any more, stop the machine.
    fn console(&mut self, bytes: &[u8]) -> bool;
    /// The guest sent a message on the control channel.
    fn event(&mut self, event: &Event);
    /// Whether the guest's output is read now: otherwise its serial line fills, and then its console.
    fn reads(&self) -> bool {
        true
    }
    /// Some time has passed. False: the machine has run long enough, stop it.
    fn tick(&mut self) -> bool {
        true
    }
    /// A descriptor to watch for input to the guest.
    fn input(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Bytes for the guest, when the descriptor is readable or, without one, at every tick.
    fn typed(&mut self) -> Typed {
        Typed::Bytes(Vec::new())
    }
}

/// What an [`Operator`] typed.
pub enum Typed {
    /// These bytes.
    Bytes(Vec<u8>),
    /// These, and then the machine is to be stopped.
    Stop,
    /// These are the last.
    End(Vec<u8>),
}

/// How a machine ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// It powered off with this status.
    Exit(u8),
    /// Its time was up.
    TimedOut,
    /// It panicked, or stopped without a word. Lines for people.
    Broken(Vec<String>),
    /// The operator stopped it, or a signal did.
    Stopped(u8),
}

impl End {
    /// The exit status of `./fermata run`.
    pub fn status(&self) -> u8 {
        match self {
            End::Exit(status) | End::Stopped(status) => *status,
            End::TimedOut => TIMED_OUT,
            End::Broken(_) => BROKEN,
        }
    }
}

/// Runs a machine to its end.
pub fn run(images: &Images, options: &Options, operator: &mut dyn Operator) -> Result<End, Error> {
    let dir = temp_dir()?;
    let control = dir.path().join("control");
    let console = options.deterministic.then(|| dir.path().join("console"));
    let write = |name: &str, content: &[u8]| -> Result<PathBuf, Error> {
        let path = dir.path().join(name);
        std::fs::write(&path, content)
            .map_err(|error| Error::new(format!("cannot write {}: {error}", path.display())))?;
        Ok(path)
    };
    let kernel = images.kernel_of(options.config, options.counting);
    if kernel.is_empty() {
        return Err(Error::new(format!(
            "the kernel of {} is not among those that were built: --config {0} builds it",
            options.config.name()
        )));
    }
    let kernel = write("kernel", kernel)?;
    let content = archive(images, options)?;
    check_memory(content.len() as u64, options.memory)?;
    let archive = write("archive", &content)?;
    drop(content);
    write("control", b"")?;
    if console.is_some() {
        write("console", b"")?;
    }
    let errors = write("qemu.log", b"")?;

    let mut command = qemu(options, &kernel, &archive, &control, console.as_deref());
    let log = File::create(&errors).map_err(|error| Error::new(format!("qemu.log: {error}")))?;
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|error| Error::new(format!("cannot run qemu-system-x86_64: {error}")))?;
    let mut machine = Machine::new(
        Qemu(child, options.sound.is_some()),
        &control,
        console.as_deref(),
    )?;
    let end = machine.attend(options, operator)?;
    Ok(match end {
        End::Broken(mut lines) => {
            let told: Vec<String> = lines
                .iter()
                .filter_map(|line| place::stray(line))
                .flat_map(|(name, address)| images.functions_at(name, address))
                .collect();
            lines.extend(told.iter().map(|function| format!("in {function}")));
            let said = std::fs::read_to_string(&errors).unwrap_or_default();
            lines.extend(said.lines().map(ToString::to_string));
            End::Broken(lines)
        }
        end => end,
    })
}

/// Megabytes that a machine needs beside its boot archive, to boot to the shell; programs need more.
const BESIDE_ARCHIVE: u64 = 36;

/// Fails if the archive is too large for the memory of a machine.
fn check_memory(archive: u64, memory: u32) -> Result<(), Error> {
    let needed = archive.div_ceil(1 << 20) + BESIDE_ARCHIVE;
    if u64::from(memory) >= needed {
        return Ok(());
    }
    Err(Error::new(format!(
        "the files of the machine are {} MB, which do not fit into its {memory} MB of memory: give it --memory {} or more",
        archive.div_ceil(1 << 20),
        needed.next_multiple_of(16) + 64
    )))
}

/// The lines that the archive adds to the boot manifest if there are `edu` devices: two drivers of the tests, which
/// kill them and make them do what drivers may not.
const EDU_DRIVERS: &str = "\
test/edu edu pci=1234:11e8 ports=280+8 line=5 channel=5 channel=6 dma=40000
test/edu edu2 pci=1234:11e8 ports=288+8 channel=5 channel=6 dma=40000
";

/// The boot archive of a machine with `options`.
fn archive(images: &Images, options: &Options) -> Result<Vec<u8>, Error> {
    let mut archive = images.archive()?;
    if let Some(packages) = &options.packages {
        archive.merge(packages.clone())?;
    }
    for add in &options.adds {
        match &add.what {
            Source::Path(host) => archive.host_path(host, &add.guest)?,
            Source::Bytes {
                content,
                executable,
            } => {
                archive.file(&add.guest, content.clone(), *executable)?;
            }
        }
    }
    let mut drivers = String::new();
    if options.edu {
        drivers.push_str(EDU_DRIVERS);
    }
    if let Some(driver) = &options.driver {
        archive.file(&format!("sbin/{}", driver.name), driver.elf.clone(), true)?;
        drivers.push_str(&driver.line);
    }
    if !drivers.is_empty() {
        archive.file("etc/drivers", drivers.into(), false)?;
    }
    // Only the guest can check, and reports, whether the file is a program for Fermata.
    let missing = |place: &&place::Place| {
        let path = place.path_of_program();
        path.is_some_and(|path| archive.find(path).is_none())
    };
    if let Some(place) = options.places.iter().find(missing) {
        return Err(Error::new(format!(
            "--place {place}: the guest has no such file when it starts; --program DIR or --add HOST:GUEST gives it one"
        )));
    }
    if let Some(script) = &options.script {
        archive.file("etc/script", script.clone(), false)?;
    }
    let mut gets = String::new();
    for path in &options.gets {
        if path.contains('\n') {
            return Err(Error::new(format!(
                "'{path}' is not a path that the guest can have"
            )));
        }
        gets.push_str(path);
        gets.push('\n');
    }
    archive.file("etc/gets", gets.into_bytes(), false)?;
    archive.finish()
}

/// The beginning of a command that starts a machine, with this processor and memory and without QEMU's default
/// devices.
fn bare(cpu: &str, megabytes: u32) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-machine", "pc", "-accel", "tcg", "-cpu", cpu])
        .args(["-m", &megabytes.to_string(), "-smp", "1"])
        .args([
            "-display",
            "none",
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
        ]);
    command
}

/// The command that starts the machine.
fn qemu(
    options: &Options,
    kernel: &Path,
    archive: &Path,
    control: &Path,
    console: Option<&Path>,
) -> Command {
    let mut words = vec![options.config.name().to_string()];
    if options.script.is_some() {
        words.push("script=/etc/script".into());
    }
    if options.deterministic {
        words.push("deterministic".into());
    }
    words.extend(options.net.address());
    if !options.places.is_empty() {
        let places: Vec<String> = options.places.iter().map(ToString::to_string).collect();
        words.push(format!("place={}", places.join(",")));
    }
    if options.gdb.is_some() {
        words.push("gdb".into());
    }
    words.extend(options.words.iter().cloned());

    let without = if options.rdrand { "" } else { WITHOUT_RDRAND };
    let cpu = format!("{CPU}{without}");
    let mut command = bare(&cpu, options.memory);
    if Path::new("/usr/share/qemu/qboot.rom").exists() {
        command.args(["-bios", "qboot.rom"]);
    }
    command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
    match console {
        Some(path) => command.args([
            "-chardev",
            &format!("file,id=console,path={}", quoted(path)),
        ]),
        None => command.args(["-chardev", "stdio,id=console,signal=off"]),
    };
    command
        .args(["-serial", "chardev:console"])
        .args([
            "-chardev",
            &format!("file,id=control,path={}", quoted(control)),
        ])
        .args(["-serial", "chardev:control"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(archive)
        .args(["-append", &words.join(" ")]);
    if let Some(file) = &options.memory_file {
        let size = options.memory;
        let file = quoted(file);
        let backend = format!("memory-backend-file,id=ram,size={size}M,mem-path={file},share=on");
        command.args(["-object", &backend, "-machine", "memory-backend=ram"]);
    }
    if options.edu {
        // Every fourth device is on the same line.
        let second = if options.edu_shared {
            "edu,addr=6"
        } else {
            "edu,addr=3"
        };
        command.args(["-device", "edu,addr=2", "-device", second]);
    }
    let file = options.disk.as_ref().map(|disk| {
        let path = quoted(&disk_path(disk));
        let drive = match options.bad_sectors {
            Some(bad) => bad_disk(&path, bad),
            None => format!("file={path},format=raw"),
        };
        let unflushed = if options.disk_of_a_test {
            ",cache=unsafe"
        } else {
            ""
        };
        drive + unflushed
    });
    let null = options
        .null_disk
        .map(|size| format!("driver=null-co,size={size},read-zeroes=on"));
    if let Some(what) = null.or(file) {
        let drive = format!("{what},if=none,id=disk");
        command.args(["-drive", &drive]);
        match &options.driver {
            Some(driver) if driver.service == "disk" && !driver.device.is_empty() => {
                if driver.device == BUILT_IN {
                    command.args(["-device", "ide-hd,drive=disk,bus=ide.0"]);
                } else {
                    let adapter = format!("{},id=scsi", driver.device);
                    command.args(["-device", &adapter]);
                    command.args(["-device", "scsi-hd,drive=disk,bus=scsi.0"]);
                }
            }
            _ => {
                command.args(["-device", "virtio-blk-pci,drive=disk"]);
            }
        }
    }
    let card = match &options.driver {
        Some(driver) if driver.service == "link" => driver.device,
        _ => net::VIRTIO,
    };
    let net = options.net.arguments(options.pcap.as_deref(), card, quoted);
    command.args(net);
    if let Some(driver) = &options.driver {
        if driver.service == "sound" && !driver.device.is_empty() {
            let backend = match &options.sound {
                Some(file) => format!("wav,id=sound,path={}", quoted(file)),
                None => "none,id=sound".to_string(),
            };
            command.args(["-audiodev", &backend]);
            command.args(["-device", &format!("{},audiodev=sound", driver.device)]);
        }
    }
    command.args(options.rng.arguments(options.rng_address, quoted));
    if options.deterministic {
        command.args([
            "-icount",
            if options.waits {
                "shift=0,sleep=on"
            } else {
                "shift=0,sleep=off"
            },
            "-rtc",
            // The machine's clock: a time after that of every file.
            "clock=vm,base=2030-01-01",
            // The seed of the processor's random numbers.
            "-seed",
            "1",
        ]);
    }
    if options.debug {
        command.args(["-S", "-gdb", DEBUGGER]);
    }
    if let Some(port) = options.gdb {
        // A line of its own: this port would lower COM2's.
        let channel =
            format!("socket,id=gdb,host=127.0.0.1,port={port},server=on,wait=off,nodelay=on");
        command.args(["-chardev", &channel]);
        command.args(["-device", "isa-serial,chardev=gdb,iobase=0x2e8,irq=7"]);
    }
    if let Some(plugin) = &options.plugin {
        command.args(["-plugin", &of_plugin(plugin)]);
    }
    end_with_this_process(&mut command);
    command
}

/// The plugin as an argument of QEMU's.
fn of_plugin(plugin: &Plugin) -> String {
    let mut options = format!("file={}", quoted(&plugin.library));
    let outputs = [
        ("out", &plugin.output),
        ("events", &plugin.events),
        ("profile", &plugin.profile),
        ("switches", &plugin.switches),
        ("time", &plugin.time),
    ];
    for (name, path) in outputs {
        if let Some(path) = path {
            options.push_str(&format!(",{name}={}", quoted(path)));
        }
    }
    options
}

/// The path of a disk for QEMU, which takes the text before the first colon of a relative path for a protocol.
fn disk_path(path: &Path) -> PathBuf {
    // This fails only for an empty path, and if the current directory is unknown.
    std::path::absolute(path).unwrap_or_else(|_| Path::new(".").join(path))
}

/// A disk in this file, with a sector that cannot be read and one that cannot be written the first time.
fn bad_disk(path: &str, (read, write): (u64, u64)) -> String {
    let mut drive = format!(
        "driver=raw,file.driver=blkdebug,file.image.driver=file,file.image.filename={path}"
    );
    for (number, (event, sector, once)) in [("read", read, "off"), ("write", write, "on")]
        .into_iter()
        .enumerate()
    {
        let error = format!("file.inject-error.{number}");
        drive += &format!(
            ",{error}.event={event}_aio,{error}.errno=5,{error}.sector={sector},{error}.once={once}"
        );
    }
    drive
}

/// A path inside an option of QEMU, where commas are doubled.
fn quoted(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// The child must not outlive xtask, and must not get Ctrl-C.
pub fn end_with_this_process(command: &mut Command) {
    // A group of its own, so that Ctrl-C on the terminal reaches only xtask.
    command.process_group(0);
    let parent = getpid();
    // SAFETY: between fork and exec only system calls are made: prctl, getppid and kill.
    unsafe {
        command.pre_exec(move || {
            // However xtask ends, the child is killed.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != Some(parent) {
                kill_process(getpid(), Signal::KILL)?;
            }
            Ok(())
        });
    }
}

/// QEMU's process, killed when dropped. If it writes a file of sound, it is given the time to end that.
struct Qemu(Child, bool);

/// How long QEMU has to end a file.
const PATIENCE: Duration = Duration::from_secs(2);

impl Drop for Qemu {
    fn drop(&mut self) {
        if self.1 {
            // It may have ended already.
            let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE && matches!(self.0.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A machine that runs.
struct Machine {
    qemu: Qemu,
    stdin: Option<ChildStdin>,
    /// The source of the console's output.
    console: Output,
    control: File,
    parser: Parser,
    /// Whether the guest takes input.
    ready: bool,
    /// Bytes that were typed and that the guest has not taken yet.
    to_type: Vec<u8>,
    exit: Option<u8>,
    panic: Vec<String>,
}

/// The source of console output.
enum Output {
    /// A pipe, to be waited for.
    Pipe(std::process::ChildStdout),
    /// A file that grows.
    File(File),
}

impl Machine {
    fn new(mut qemu: Qemu, control: &Path, console: Option<&Path>) -> Result<Self, Error> {
        let open = |path: &Path| {
            File::open(path).map_err(|error| Error::new(format!("{}: {error}", path.display())))
        };
        let stdin = qemu.0.stdin.take();
        let pipe = qemu
            .0
            .stdout
            .take()
            .ok_or_else(|| Error::new("QEMU has no output"))?;
        for fd in [Some(pipe.as_fd()), stdin.as_ref().map(AsFd::as_fd)]
            .into_iter()
            .flatten()
        {
            ioctl_fionbio(fd, true)
                .map_err(|error| Error::new(format!("a pipe to QEMU: {error}")))?;
        }
        let console = match console {
            Some(path) => Output::File(open(path)?),
            None => Output::Pipe(pipe),
        };
        Ok(Self {
            qemu,
            stdin,
            console,
            control: open(control)?,
            parser: Parser::default(),
            ready: false,
            to_type: Vec::new(),
            exit: None,
            panic: Vec::new(),
        })
    }

    /// Carries input and output until the machine stops.
    fn attend(&mut self, options: &Options, operator: &mut dyn Operator) -> Result<End, Error> {
        let watch = |limit| hang::Watch::new(limit, options.by_host_time);
        let mut watch = options.timeout.map(watch);
        let mut input_open = !options.deterministic;
        loop {
            let exited = self
                .qemu
                .0
                .try_wait()
                .map_err(|error| Error::new(format!("QEMU: {error}")))?;
            // Read after checking whether QEMU has ended, so that the last output is not lost.
            if operator.reads() && !self.carry_output(operator)? {
                return Ok(End::Stopped(BROKEN));
            }
            self.listen(operator)?;
            if let Some(status) = exited {
                return Ok(self.end(status));
            }
            if let Some(signal) = signals::caught() {
                return Ok(End::Stopped(128 + signal));
            }
            let pid = self.qemu.0.id();
            if watch.as_mut().is_some_and(|watch| watch.is_over(pid)) {
                return Ok(End::TimedOut);
            }
            if !operator.tick() {
                return Ok(End::Stopped(BROKEN));
            }
            self.type_pending();
            let watched = operator
                .input()
                .filter(|_| input_open && self.to_type.len() < 4096);
            let typed = self.wait(watched, operator.reads());
            if input_open && (typed || operator.input().is_none()) {
                match operator.typed() {
                    Typed::Bytes(bytes) => self.to_type.extend(bytes),
                    Typed::Stop => return Ok(End::Stopped(130)),
                    Typed::End(bytes) => {
                        self.to_type.extend(bytes);
                        input_open = false;
                    }
                }
            }
        }
    }

    /// Waits for output on the console, if that is read, or for `input`, at most a tick. True if there is input.
    fn wait(&self, input: Option<BorrowedFd<'_>>, reads: bool) -> bool {
        let console = match &self.console {
            Output::Pipe(pipe) if reads => Some(pipe.as_fd()),
            _ => None,
        };
        let mut fds: Vec<PollFd<'_>> = input
            .into_iter()
            .chain(console)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // If a signal interrupts the wait, nothing has come.
        let ready = poll(&mut fds, Some(&TICK)).unwrap_or(0);
        ready > 0 && input.is_some() && !fds[0].revents().is_empty()
    }

    /// Hands what the guest printed to the operator.
    fn carry_output(&mut self, operator: &mut dyn Operator) -> Result<bool, Error> {
        let mut buffer = [0; 16 * 1024];
        loop {
            let count = match &mut self.console {
                Output::Pipe(pipe) => pipe.read(&mut buffer),
                Output::File(file) => file.read(&mut buffer),
            };
            match count {
                Ok(0) => return Ok(true),
                Ok(count) => {
                    self.ready = true;
                    if !operator.console(&buffer[..count]) {
                        return Ok(false);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::new(format!("the machine's console: {error}"))),
            }
        }
    }

    /// Reads the control channel.
    fn listen(&mut self, operator: &mut dyn Operator) -> Result<(), Error> {
        let mut bytes = Vec::new();
        self.control
            .read_to_end(&mut bytes)
            .map_err(|error| Error::new(format!("the machine's control channel: {error}")))?;
        self.parser.feed(&bytes);
        for event in self.parser.by_ref() {
            match &event {
                Event::Ready => self.ready = true,
                Event::Exit(status) => self.exit = Some(*status),
                Event::Panic(message) => self.panic.push(message.clone()),
                _ => {}
            }
            operator.event(&event);
        }
        Ok(())
    }

    /// Gives the guest as much of the typed bytes as it takes.
    fn type_pending(&mut self) {
        if !self.ready || self.to_type.is_empty() {
            return;
        }
        if let Some(stdin) = &mut self.stdin {
            match stdin.write(&self.to_type) {
                Ok(count) => {
                    self.to_type.drain(..count);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                // The machine has just stopped.
                Err(_) => self.to_type.clear(),
            }
        }
    }

    /// The end of the machine, by QEMU's exit status.
    fn end(&mut self, status: std::process::ExitStatus) -> End {
        if status.code() == Some(PANIC_STATUS) || !self.panic.is_empty() {
            let mut lines = std::mem::take(&mut self.panic);
            lines.extend(self.parser.last_words());
            if lines.is_empty() {
                lines.push("no message".into());
            }
            lines[0] = format!("the machine panicked: {}", lines[0]);
            return End::Broken(lines);
        }
        match (self.exit, status.code(), status.signal()) {
            (Some(status), _, _) => End::Exit(status),
            (None, Some(0), _) => End::Broken(vec![
                "the machine reset itself without a word (a triple fault?)".into(),
            ]),
            (None, Some(1), _) if self.parser.last_words().is_empty() => {
                End::Broken(vec!["QEMU stopped, and the guest did not say why".into()])
            }
            (None, Some(code), _) => End::Broken(vec![format!("QEMU stopped with status {code}")]),
            (None, None, signal) => End::Broken(vec![format!(
                "QEMU was killed by signal {}",
                signal.unwrap_or(0)
            )]),
        }
    }
}
