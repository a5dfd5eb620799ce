//! A client that needs the services, and measures how long their answers take.

use super::table::{IDLE, PROGRAM, SERVICES};
use super::Sentence;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use proto::Error;
use rt::net::{Network, Place, ALWAYS};
use rt::process::{Client, Process};
use rt::time;
use services::block::BlockClient;
use services::device::DevicesClient;
use services::entropy::EntropyClient;
use services::link::LinkClient;
use services::process::{Start, Status, Stdio};
use services::sound::{Format, SoundClient};

/// A request to a service that a healthy one answers properly, and how long its answer may take.
pub struct HealthCheck {
    /// The service, in the order of [`super::table::SERVICES`].
    pub service: &'static str,
    /// Makes the request, and checks the answer.
    pub ask: fn(&Honest) -> Result<(), Sentence>,
    /// Instructions, on a machine that counts them.
    pub bound: u64,
}

impl HealthCheck {
    /// Whether the answer depends on the host, and not only on instructions of this machine.
    #[must_use]
    pub fn waits_for_the_host(&self) -> bool {
        self.bound == DISK
    }
}

const fn health_check(
    service: &'static str,
    ask: fn(&Honest) -> Result<(), Sentence>,
    bound: u64,
) -> HealthCheck {
    HealthCheck {
        service,
        ask,
        bound,
    }
}

/// A million instructions.
const M: u64 = 1_000_000;

/// In fifteen seeds it was at most 30 M: the work of the checkpointer for a program takes turns with other programs.
const SERVER: u64 = 100 * M;
/// Each of the [`NETWORK_REQUESTS`] waits for a turn among programs.
const NETWORK: u64 = 200 * M;
/// How often one check waits for the network server at most: for a session, a socket, the sending and the receiving,
/// which it may repeat.
pub const NETWORK_REQUESTS: u64 = 6;
/// How long the host may take for the disk while the machine does nothing else: some seconds of the host. With ten
/// programs on a host with two processors it took 38 M at most. While a check waits for the answer the machine is
/// kept busy ([`super::awake`]): without anything to do it would set its clock to the next alarm, again and again, so
/// that any time could pass.
const DISK: u64 = 4_000 * M;

/// One for each service, in the services' order. `docs/security.md` says where the bounds come from.
pub const HEALTH_CHECKS: [HealthCheck; SERVICES.len()] = [
    health_check("memory", Honest::memory, SERVER),
    health_check("names", Honest::names, SERVER),
    health_check("native", Honest::native, SERVER),
    health_check("linux", Honest::linux, SERVER),
    health_check("fs", |_| Honest::file("/tmp/honest"), SERVER),
    health_check("console", Honest::console, SERVER),
    health_check("checkpoint", Honest::checkpoint, SERVER),
    health_check("random", Honest::random, SERVER),
    health_check("device", Honest::device, SERVER),
    health_check("net", Honest::net, NETWORK),
    health_check("link", Honest::link, SERVER),
    health_check("entropy", Honest::entropy, SERVER),
    health_check("ext4", Honest::ext4, DISK),
    health_check("disk", Honest::disk, SERVER),
    health_check("sound", Honest::sound, SERVER),
];

/// The most that a program may take from its start to its end, with a fair share of the processor.
pub const PROGRAM_BOUND: u64 = 2_000 * M;

/// The client.
pub struct Honest {
    native: Process,
    linux: Process,
}

fn failed(what: &str, error: Error) -> Sentence {
    format!("{what}: {}", error.text())
}

/// How both processes are started.
fn start(args: &[&str]) -> Start {
    Start {
        args: args.iter().map(ToString::to_string).collect(),
        stdio: [Stdio::Null, Stdio::Null, Stdio::Null].to_vec(),
        cwd: "/".to_string(),
        ..Start::default()
    }
}

/// Starts a program at this manager.
pub(super) fn spawn(manager: &str, path: &str, args: &[&str]) -> Result<Process, Error> {
    Client::new(manager)?.spawn(path, &start(args), &[])
}

fn expect<T: PartialEq + core::fmt::Debug>(
    what: &str,
    is: Result<T, Error>,
    wanted: T,
) -> Result<(), Sentence> {
    match is {
        Ok(is) if is == wanted => Ok(()),
        Ok(is) => Err(format!("{what}: {is:?} instead of {wanted:?}")),
        Err(error) => Err(failed(what, error)),
    }
}

impl Honest {
    /// A client with a process at each manager.
    pub fn new() -> Result<Self, Error> {
        Ok(Honest {
            native: spawn("native", PROGRAM, &["services", IDLE])?,
            linux: spawn("linux", "/bin/busybox", &["busybox", "sleep", "100000"])?,
        })
    }

    /// Its processes, which no other program ends.
    #[must_use]
    pub fn processes(&self) -> [(&'static str, u32); 2] {
        [("native", self.native.pid()), ("linux", self.linux.pid())]
    }

    fn memory(&self) -> Result<(), Sentence> {
        let ask = || {
            let segment = rt::memory::create(1 << 16)?;
            segment.populate(0, 4096)?;
            let usage = segment.usage()?;
            segment.destroy()?;
            Ok(usage.resident > 0)
        };
        expect("a segment", ask(), true)
    }

    fn names(&self) -> Result<(), Sentence> {
        let port = rt::names::lookup("fs").map_err(|error| failed("a name", error))?;
        expect("the kind of fs", Ok(port.kind()), abi::RefKind::Port)
    }

    fn native(&self) -> Result<(), Sentence> {
        expect("the native one", self.native.status(), Status::Running)
    }

    fn linux(&self) -> Result<(), Sentence> {
        expect("the Linux one", self.linux.status(), Status::Running)
    }

    fn file(path: &str) -> Result<(), Sentence> {
        let text = b"what was written";
        let ask = || {
            rt::fs::write_all(path, text, 0o644)?;
            let content = rt::fs::read_all(path)?;
            rt::fs::unlink(path)?;
            Ok(content)
        };
        expect("a file", ask(), text.to_vec())
    }

    fn ext4(&self) -> Result<(), Sentence> {
        match rt::fs::stat(services::fs::MOUNT, false) {
            // The disk has other content than a file system.
            Err(Error::BadFormat) => Ok(()),
            _ => Honest::file("/disk/honest"),
        }
    }

    fn random(&self) -> Result<(), Sentence> {
        let mut bytes = [0; 16];
        let ask = rt::random::fill(&mut bytes).map(|()| bytes != [0; 16]);
        expect("random bytes", ask, true)
    }

    /// The server answers, and gives nothing to a program that is no driver.
    fn device(&self) -> Result<(), Sentence> {
        let door = rt::names::lookup("device").map_err(|error| failed("a name", error))?;
        match DevicesClient::open_known(&door) {
            Err(Error::Denied) => Ok(()),
            other => Err(format!("a door that is not ours: {other:?}")),
        }
    }

    /// A datagram from the machine to itself.
    fn net(&self) -> Result<(), Sentence> {
        let text = b"what was sent";
        let ask = || {
            let mut net = Network::open()?;
            let (socket, port) = net.datagrams(0)?;
            let to = Place {
                address: IpAddr::V4(Ipv4Addr::LOCALHOST),
                port,
            };
            net.send(socket, to, text)?;
            let came = net.receive(socket, ALWAYS)?;
            Ok(came.map(|(_, bytes)| bytes))
        };
        expect("a datagram", ask(), Some(text.to_vec()))
    }

    fn link(&self) -> Result<(), Sentence> {
        let ask = || LinkClient::open_known(&*rt::system::control("link")?)?.address();
        expect("a card", ask().map(|address| address != 0), true)
    }

    /// The server answers, and leads nowhere for all clients but one.
    fn entropy(&self) -> Result<(), Sentence> {
        let door = rt::system::control("entropy");
        match door.and_then(|door| EntropyClient::open_known(&door)) {
            Err(Error::Denied) => Ok(()),
            other => Err(format!("a session that another server has: {other:?}")),
        }
    }

    fn disk(&self) -> Result<(), Sentence> {
        let ask = || BlockClient::open_known(&*rt::system::control("disk")?)?.geometry();
        expect("a disk", ask().map(|(sectors, _)| sectors > 0), true)
    }

    /// The server reports that nothing was begun, and plays unless another client does.
    fn sound(&self) -> Result<(), Sentence> {
        let ask = || {
            let mut card = SoundClient::open_known(&*rt::names::lookup("sound")?)?;
            let early = card.played();
            match card.begin(8000, 1, Format::S16) {
                Ok(()) => Ok((early, card.write(&[0; 64])? == 64)),
                Err(Error::Exists) => Ok((early, true)),
                Err(error) => Err(error),
            }
        };
        expect("a card", ask(), (Err(Error::Invalid), true))
    }

    fn console(&self) -> Result<(), Sentence> {
        expect("nothing written", rt::console::write(&[]), 0)
    }

    fn checkpoint(&self) -> Result<(), Sentence> {
        match rt::checkpoint::restore("/tmp/no image") {
            Err(why) if why.starts_with("/tmp/no image: ") => Ok(()),
            other => Err(format!("an image that is not there: {other:?}")),
        }
    }

    /// A Linux program makes a FIFO, and this native program removes it: no server keeps anything of it.
    pub fn fifo(&self) -> Result<(), Sentence> {
        const PATH: &str = "/tmp/honest-fifo";
        let mkfifo = spawn("linux", "/bin/busybox", &["busybox", "mkfifo", PATH])
            .map_err(|error| failed("starting a program", error))?;
        while mkfifo.status() == Ok(Status::Running) {
            time::sleep(200_000);
        }
        expect("mkfifo", mkfifo.reap(), Status::Exited(0))?;
        rt::fs::unlink(PATH).map_err(|error| failed("the FIFO", error))
    }

    /// Starts a program at each manager and waits for both ends, at most so long. Returns how long both took.
    pub fn programs(&self, bound: u64) -> Result<u64, Sentence> {
        let before = time::now();
        for (manager, path, args) in [
            ("native", PROGRAM, &["services", "nothing"][..]),
            ("linux", "/bin/busybox", &["busybox", "true"][..]),
        ] {
            let process =
                spawn(manager, path, args).map_err(|error| failed("starting a program", error))?;
            let status = loop {
                match process.status() {
                    Ok(Status::Running) if time::now() - before < bound => {
                        time::sleep(200_000);
                    }
                    Ok(Status::Running) => break Err(Error::WouldBlock),
                    _ => break process.reap(),
                }
            };
            expect(path, status, Status::Exited(0))?;
        }
        Ok(time::now() - before)
    }

    /// Saves a process and restores it.
    pub fn image(&self) -> Result<(), Sentence> {
        const PATH: &str = "/tmp/honest-image";
        rt::checkpoint::save(&[**self.native.port()], PATH)
            .map_err(|why| format!("saving: {why}"))?;
        let restored = rt::checkpoint::restore(PATH).map_err(|why| format!("restoring: {why}"))?;
        let [(_, _, restored)] = &restored[..] else {
            return Err(format!("restoring: {restored:?}"));
        };
        expect("the restored one", restored.status(), Status::Running)?;
        let end = restored.kill().and_then(|()| restored.reap());
        expect("the restored one", end, Status::Killed(9))?;
        rt::fs::unlink(PATH).map_err(|error| failed("the image", error))
    }

    /// Ends its processes.
    pub fn end(self) -> Result<(), Sentence> {
        for process in [self.native, self.linux] {
            let end = process.kill().and_then(|()| process.reap());
            expect("the end", end, Status::Killed(9))?;
        }
        Ok(())
    }
}

/// Removes what hostile clients have left in one of their places: they may have moved or removed the place itself.
pub fn clear(place: &str) -> Result<(), Sentence> {
    match rt::fs::stat(place, false) {
        Err(Error::NotFound) => Ok(()),
        _ => remove(place),
    }
}

fn is_directory(attr: &rt::fs::Attr) -> bool {
    attr.mode & rt::fs::mode::TYPE == rt::fs::mode::DIRECTORY
}

/// What is in a directory.
fn inside(path: &str) -> Result<Vec<String>, Error> {
    let directory = rt::fs::File::open(path, rt::fs::Flags::default(), 0)?;
    let mut cookie = 0;
    let mut names = Vec::new();
    loop {
        let (entries, next) = directory.read_dir(cookie)?;
        if entries.is_empty() {
            return Ok(names);
        }
        let others = entries.into_iter().map(|entry| entry.name);
        names.extend(others.filter(|name| name != "." && name != ".."));
        cookie = next;
    }
}

/// Removes a file, or a directory with what is in it.
pub fn remove(path: &str) -> Result<(), Sentence> {
    let why = |error| failed(&format!("removing {path:?}"), error);
    let attr = rt::fs::stat(path, false).map_err(why)?;
    if !is_directory(&attr) {
        return rt::fs::unlink(path).map_err(why);
    }
    for name in inside(path).map_err(why)? {
        remove(&format!("{path}/{name}"))?;
    }
    rt::fs::rmdir(path).map_err(why)
}

/// All files, with their sizes.
pub fn files(path: &str, found: &mut Vec<String>) -> Result<(), Error> {
    let attr = match rt::fs::stat(path, false) {
        // A disk with other content than a file system.
        Err(Error::BadFormat) => return Ok(()),
        attr => attr?,
    };
    if !is_directory(&attr) {
        found.push(format!("{path} {}", attr.size));
        return Ok(());
    }
    found.push(format!("{path}/"));
    for name in inside(path)? {
        files(&format!("{}/{name}", path.trim_end_matches('/')), found)?;
    }
    Ok(())
}
