//! Tests of the client that outlives its file server ([`services::fs::lasting`]), with this server, which dies at any
//! request: before the request is done, or after it, so that the answer is lost.

use crate::session::Session;
use crate::tests::{complaint, fresh, mount, Memory};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use proto::Error;
use services::fs::lasting::{self, Known, Lasting, Servers};
use services::fs::{pair, Files, Flags, ATTR_ROOM, PATH_ROOM};

extern crate std;

/// The successive servers on the same disk.
struct Machine {
    disk: Memory,
    shared: crate::session::Shared<Memory>,
    /// How many servers have died.
    deaths: u64,
    /// How often the client has been restored.
    restores: u64,
    random: fastrand::Rng,
    /// One request in so many kills the server; `None`: none does.
    danger: Option<u64>,
    /// The server dies at the first request that changes names: after it is done, or before.
    doom: Option<Doom>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Doom {
    Before,
    After,
}

impl Machine {
    fn new(seed: u64, danger: Option<u64>) -> Rc<RefCell<Self>> {
        let (disk, volume) = fresh();
        Rc::new(RefCell::new(Machine {
            disk,
            shared: Rc::new(RefCell::new(Ok(volume))),
            deaths: 0,
            restores: 0,
            random: fastrand::Rng::with_seed(seed),
            danger,
            doom: None,
        }))
    }

    /// Kills the server, with all that it had not written, and starts another one.
    fn die(&mut self) {
        *self.shared.borrow_mut() = Err(Error::Broken);
        self.shared = Rc::new(RefCell::new(mount(&self.disk)));
        self.deaths += 1;
    }

    /// Another client does something.
    fn meanwhile<T>(&self, does: impl FnOnce(&mut crate::volume::Volume<Memory>) -> T) -> T {
        does(self.shared.borrow_mut().as_mut().expect("a volume"))
    }

    /// Another client writes this to a file, which is durable then.
    fn others_write(&self, path: &str, bytes: &[u8]) {
        self.meanwhile(|volume| {
            let (other, ..) = volume.open(path, CREATE, 0o644).expect("a file");
            volume.write(other, Some(0), bytes).expect("written");
            volume.close(other).expect("closed");
        });
    }
}

/// A client's sessions with the server.
struct Client {
    machine: Rc<RefCell<Machine>>,
    last: Option<u64>,
    /// The first session after a death cannot be opened, for lack of memory.
    refuses: bool,
    /// The files outlive the server.
    durable: bool,
    /// Bytes of memory that are free.
    memory: u64,
}

struct Open {
    machine: Rc<RefCell<Machine>>,
    files: Session<Memory>,
    server: u64,
    /// How often the client had been restored when it opened this.
    restores: u64,
}

impl Servers for Client {
    type Session = Open;
    type Room = ();

    fn hold(&self, bytes: u64) -> Result<(), Error> {
        (bytes <= self.memory).then_some(()).ok_or(Error::NoMemory)
    }

    fn is_durable(&self) -> bool {
        self.durable
    }

    fn open(&mut self, died: &mut bool) -> Result<Open, Error> {
        let machine = self.machine.borrow();
        let has_died = self.last.replace(machine.deaths) != Some(machine.deaths);
        *died |= has_died;
        if has_died && self.refuses {
            return Err(Error::NoMemory);
        }
        Ok(Open {
            machine: Rc::clone(&self.machine),
            files: Session::new(&machine.shared, 1000),
            server: machine.deaths,
            restores: machine.restores,
        })
    }
}

impl Open {
    /// `changes`: the request may change names.
    fn call<T>(
        &self,
        changes: bool,
        request: impl FnOnce(&Session<Memory>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if lasting::Session::is_gone(self) {
            return Err(Error::Broken);
        }
        if self.restores != self.machine.borrow().restores {
            // The restore has opened this one, as `interface::Server::opens` says.
            return Err(Error::Restored);
        }
        let fate = {
            let mut machine = self.machine.borrow_mut();
            let doom = machine.doom.take_if(|_| changes);
            let danger = machine.danger.unwrap_or(u64::MAX);
            doom.map_or_else(|| machine.random.u64(..danger), |doom| doom as u64)
        };
        if fate == 0 {
            self.machine.borrow_mut().die();
            return Err(Error::Broken);
        }
        let result = request(&self.files);
        if fate == 1 {
            drop(result);
            self.machine.borrow_mut().die();
            return Err(Error::Broken);
        }
        result
    }
}

/// The methods of a session; those with bytes copy them.
macro_rules! forward {
    (changes { $($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)* }
        words { $($word:ident($($with:ident: $sort:ty),*) -> $came:ty;)* }
        bytes { $($bytes:ident($($of:ident: $kind:ty),*);)* }) => {
        impl lasting::Session for Open {
            fn is_gone(&self) -> bool {
                self.server != self.machine.borrow().deaths
            }
            $(fn $name(&mut self, $($argument: $type),*) -> Result<$result, Error> {
                let changes = !matches!(stringify!($name), "close" | "write" | "append" | "sync");
                self.call(changes, |files| files.$name($($argument),*))
            })*
            $(fn $word(&mut self, $($with: $sort),*) -> Result<$came, Error> {
                self.call(false, |files| files.$word($($with),*))
            })*
            $(fn $bytes(&mut self, $($of: $kind,)* into: &mut [u8]) -> Result<usize, Error> {
                let room = into.len();
                let came = self.call(false, |files| Ok(files.$bytes($($of,)* room)?.to_vec()))?;
                into[..came.len()].copy_from_slice(&came);
                Ok(came.len())
            })*
        }
    };
}

services::file_requests!(forward);

/// A client that works on files, and keeps some of them open.
struct User {
    files: Lasting<Client>,
    machine: Rc<RefCell<Machine>>,
    /// The open files: number and name.
    open: Vec<(u64, String)>,
}

const CREATE: Flags = Flags {
    create: true,
    exclusive: false,
    truncate: false,
    nofollow: false,
    symlink: false,
    nameless: false,
};

impl User {
    fn new(seed: u64, danger: Option<u64>) -> Self {
        let machine = Machine::new(seed, danger);
        let client = Client {
            machine: Rc::clone(&machine),
            last: None,
            refuses: false,
            durable: true,
            memory: u64::MAX,
        };
        User {
            files: Lasting::new(client),
            machine,
            open: Vec::new(),
        }
    }

    /// Makes one request, chosen at random. Returns its result, and the bytes that it read.
    fn act(&mut self, random: &mut fastrand::Rng) -> (Result<(), Error>, Vec<u8>) {
        let mut name = || format!("/disk/{}", random.u8(..8));
        let (one, other) = (name(), name());
        let (kind, word) = (random.u8(..16), random.u32(..));
        let bytes: Vec<u8> = (0..random.usize(1..30_000))
            .map(|n| (word as usize + n * n) as u8)
            .collect();
        let busy = |path: &str| self.open.iter().any(|(_, open)| open == path);
        let chosen = self.open.get(word as usize % self.open.len().max(1));
        let files = &mut self.files;
        let mut read = Vec::new();
        let result = match (kind, chosen) {
            (0 | 1, _) if self.open.len() < 4 => {
                let flags = Flags {
                    exclusive: word % 4 == 0,
                    truncate: word % 4 == 1,
                    ..CREATE
                };
                files
                    .open_file(flags.bits(), 0o644, &one)
                    .map(|(file, _, size)| {
                        read.push(size as u8);
                        self.open.push((file, one));
                    })
            }
            (2 | 3, Some((file, _))) => {
                let offset = u64::from(word % 50_000);
                files
                    .write(*file, offset, &bytes)
                    .map(|length| read.push(length as u8))
            }
            (4 | 5, Some((file, _))) => files.append(*file, &bytes).map(|(length, at)| {
                read.extend([length as u8, at as u8, (at >> 8) as u8]);
            }),
            (6, Some((file, _))) => files.truncate(*file, u64::from(word % 40_000)),
            (7 | 8, Some((file, _))) => {
                read.resize(60_000, 0);
                let length = files.read(*file, u64::from(word % 1000), &mut read);
                length.map(|length| read.truncate(length))
            }
            (9, Some((file, _))) => files.chmod(*file, word % 0o1000),
            (10, Some((file, _))) => files.sync(*file),
            (11, Some((file, _))) => {
                let file = *file;
                self.open.retain(|(open, _)| *open != file);
                let mut result = Ok(());
                while result.is_ok() {
                    result = files.close(file);
                }
                Ok(())
            }
            (12, _) => files.mkdir(0o755, &format!("{one}.d")),
            (13, _) if !busy(&one) => files.unlink(&one),
            (14, _) if !busy(&other) => {
                let (first, both) = pair(&one, &other);
                let renamed = files.rename(first, &both);
                if renamed.is_ok() {
                    let names = self.open.iter_mut().map(|(_, name)| name);
                    names
                        .filter(|name| **name == one)
                        .for_each(|name| name.clone_from(&other));
                }
                renamed
            }
            (15, _) if word % 3 == 0 => files.rmdir(&format!("{one}.d")),
            (15, _) if word % 3 == 1 && !busy(&one) => {
                let (first, both) = pair(&one, &format!("{other}.l"));
                files.link(first, &both)
            }
            (15, _) => {
                let (first, both) = pair("0", &format!("{other}.s"));
                files.symlink(first, &both)
            }
            _ => {
                let mut attr = [0; ATTR_ROOM];
                let length = files.stat(false, &one, &mut attr);
                length.map(|length| {
                    let attr = services::fs::attr(&attr[..length]).unwrap();
                    read.extend(attr.mode.to_le_bytes());
                    read.extend(attr.size.to_le_bytes());
                    read.push(attr.links as u8);
                })
            }
        };
        (result, read)
    }

    /// All files, with their modes and contents.
    fn all(&mut self) -> Vec<(String, u32, Vec<u8>)> {
        let mut all = Vec::new();
        for n in 0..8 {
            for end in ["", ".d", ".l", ".s"] {
                let path = format!("/disk/{n}{end}");
                let mut bytes = [0; ATTR_ROOM];
                let Ok(length) = self.files.stat(false, &path, &mut bytes) else {
                    continue;
                };
                let attr = services::fs::attr(&bytes[..length]).unwrap();
                let mut content = vec![0; 200_000];
                let length = match end {
                    ".d" => 0,
                    ".s" => self
                        .files
                        .readlink(&path, &mut content[..PATH_ROOM])
                        .unwrap(),
                    _ => {
                        let opened = self.files.open_file(0, 0, &path).unwrap();
                        let length = self.files.read(opened.0, 0, &mut content).unwrap();
                        self.files.close(opened.0).unwrap();
                        length
                    }
                };
                content.truncate(length);
                all.push((path, attr.mode, content));
            }
        }
        all
    }
}

/// The same requests to a server that dies again and again and to one that lives have the same results.
#[test]
fn a_server_that_dies_is_a_slow_one() {
    let mut deaths = 0;
    for seed in 0..12 {
        let (mut mortal, mut living) = (User::new(seed, Some(12)), User::new(seed, None));
        let mut random = fastrand::Rng::with_seed(seed + 1000);
        for step in 0..200 {
            let mut same = random.clone();
            let (one, two) = (mortal.act(&mut random), living.act(&mut same));
            assert_eq!(random, same, "seed {seed}, step {step}");
            assert!(
                one == two,
                "seed {seed}, step {step}: {:?} and {:?}",
                one.0,
                two.0
            );
        }
        for user in [&mut mortal, &mut living] {
            while let Some((file, _)) = user.open.pop() {
                let _ = user.files.close(file);
            }
        }
        assert!(mortal.all() == living.all(), "seed {seed}");
        deaths += mortal.machine.borrow().deaths;
        mortal.machine.borrow_mut().die();
        assert!(mortal.all() == living.all(), "seed {seed}, all was durable");
        let disk = mortal.machine.borrow().disk.content();
        assert_eq!(complaint(&disk), None, "seed {seed}");
    }
    assert!(deaths > 500, "{deaths}");
}

/// If a server dies at a change of names that it refuses, before or after the check, the client does not report
/// success: names that others made or removed long ago are not its own. A change that is not refused is done.
#[test]
fn what_was_so_before_is_not_taken_for_done() {
    const EXCLUSIVE: Flags = Flags {
        exclusive: true,
        ..CREATE
    };
    type Change = fn(&mut Lasting<Client>) -> Result<(), Error>;
    fn two(
        [one, other]: [&str; 2],
        change: impl FnOnce(u32, &str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (first, both) = pair(one, other);
        change(first, &both)
    }
    // Each change can be done once.
    let changes: [(&str, Error, Change); 7] = [
        ("mkdir", Error::Exists, |f| f.mkdir(0o755, "/disk/lock")),
        ("exclusive", Error::Exists, |f| {
            let (file, ..) = f.open_file(EXCLUSIVE.bits(), 0o644, "/disk/file")?;
            f.close(file)
        }),
        ("link", Error::Exists, |f| {
            two(["/disk/a", "/disk/linked"], |n, p| f.link(n, p))
        }),
        ("symlink", Error::Exists, |f| {
            two(["a", "/disk/symbolic"], |n, p| f.symlink(n, p))
        }),
        ("unlink", Error::NotFound, |f| f.unlink("/disk/b")),
        ("rmdir", Error::NotFound, |f| f.rmdir("/disk/c")),
        ("rename", Error::NotFound, |f| {
            two(["/disk/d", "/disk/e"], |n, p| f.rename(n, p))
        }),
    ];
    for doom in [Doom::Before, Doom::After] {
        let mut user = User::new(1, None);
        for path in ["/disk/a", "/disk/b", "/disk/d", "/disk/e"] {
            let (file, ..) = user.files.open_file(CREATE.bits(), 0o644, path).unwrap();
            user.files.close(file).unwrap();
        }
        user.files.mkdir(0o755, "/disk/c").unwrap();
        for (name, refused, change) in changes {
            for expected in [Ok(()), Err(refused)] {
                user.machine.borrow_mut().doom = Some(doom);
                assert_eq!(change(&mut user.files), expected, "{name}, {doom:?}");
                assert_eq!(user.machine.borrow().doom, None, "{name}: it has died");
            }
        }
    }
}

/// A user that has written so many bytes to a new file, `/disk/a`, which are not durable; the server has died since.
fn bereaved(bytes: usize) -> (User, u64) {
    let mut user = User::new(1, None);
    let (file, ..) = user
        .files
        .open_file(CREATE.bits(), 0o644, "/disk/a")
        .unwrap();
    user.files.write(file, 0, &vec![7; bytes]).unwrap();
    user.machine.borrow_mut().die();
    (user, file)
}

/// Others fill the disk, before anything is repeated.
fn fill(user: &User) {
    user.machine.borrow().meanwhile(|volume| {
        let (other, ..) = volume.open("/disk/b", CREATE, 0o644).unwrap();
        let mut end = 0;
        while volume.write(other, Some(end), &[1; 60_000]).is_ok() {
            end += 60_000;
        }
        while volume.write(other, Some(end), &[1; 4_000]).is_ok() {
            end += 4_000;
        }
        volume.close(other).unwrap();
    });
}

/// Writes that cannot be repeated after the server's death are lost, and the next sync reports that, once.
#[test]
fn what_is_lost_with_a_server_is_told() {
    let (mut user, file) = bereaved(10_000);
    fill(&user);
    let lost = Err(Error::NoMemory);
    assert_eq!(
        user.files.sync(file),
        lost,
        "who syncs is told what is lost"
    );
    assert_eq!(user.files.sync(file), Ok(()), "once");
    assert_eq!(user.files.close(file), Ok(()), "it is open");
}

/// The client does not forget a server's death if the first session with the next one cannot be opened.
#[test]
fn a_session_that_is_refused_once_loses_nothing() {
    let (mut user, file) = bereaved(1000);
    user.files.servers().refuses = true;
    assert_eq!(user.files.sync(file), Err(Error::NoMemory));
    assert_eq!(user.files.sync(file), Ok(()));
    user.machine.borrow_mut().die();
    user.files.servers().refuses = false;
    let mut content = [0; 1000];
    let length = user.files.read(file, 0, &mut content).unwrap();
    let is_whole = length == 1000 && content == [7; 1000];
    assert!(is_whole, "what sync says is durable is there");
}

/// A rename of a directory with open files is refused if there is no memory for their paths, and nothing is renamed;
/// else the next server finds the files. A path with the same prefix of characters is not in the directory.
#[test]
fn open_files_follow_a_rename_or_refuse_it() {
    let rule = "S2: what cannot be refused in the middle is refused before";
    let mut user = User::new(1, None);
    user.files.mkdir(0o755, "/disk/d").expect("a directory");
    let open: Vec<_> = (0..20)
        .map(|n| {
            let path = format!("/disk/d{}{n}", if n < 10 { "/" } else { "" });
            let opened = user.files.open_file(CREATE.bits(), 0o644, &path);
            let (file, ..) = opened.expect("a file");
            user.files.write(file, 0, &[n as u8]).expect("written");
            file
        })
        .collect();
    let long = format!("/disk/{}", "x".repeat(200));
    let (first, both) = pair("/disk/d", &long);
    // Each of ten paths takes 209 bytes and 32.
    user.files.servers().memory = 2000;
    let refused = user.files.rename(first, &both);
    assert_eq!(refused, Err(Error::NoMemory), "{rule}");
    let mut attr = [0; ATTR_ROOM];
    let there = user.files.stat(false, "/disk/d/1", &mut attr);
    assert!(there.is_ok(), "{rule}: nothing is renamed");
    user.files.servers().memory = 2500;
    assert_eq!(user.files.rename(first, &both), Ok(()), "{rule}");
    user.machine.borrow_mut().die();
    for (n, file) in open.into_iter().enumerate() {
        let mut byte = [0xff];
        let read = user.files.read(file, 0, &mut byte);
        assert_eq!((read, byte), (Ok(1), [n as u8]), "it is found again");
    }
}

/// A cut is durable at once: it is not repeated after others have written to the file.
#[test]
fn what_others_have_written_since_is_not_cut() {
    let mut user = User::new(1, None);
    let (file, ..) = user
        .files
        .open_file(CREATE.bits(), 0o644, "/disk/a")
        .unwrap();
    user.files.write(file, 0, &[7; 1000]).unwrap();
    user.files.truncate(file, 0).unwrap();
    {
        let machine = user.machine.borrow_mut();
        let mut volume = machine.shared.borrow_mut();
        let volume = volume.as_mut().expect("a volume");
        let (other, ..) = volume.open("/disk/a", CREATE, 0o644).unwrap();
        volume.write(other, Some(0), &[9; 500]).unwrap();
        volume.close(other).unwrap();
    }
    user.machine.borrow_mut().die();
    let mut content = [0; 600];
    let length = user.files.read(file, 0, &mut content).unwrap();
    assert_eq!(
        (length, content[0]),
        (500, 9),
        "what others have synced stays"
    );
}

/// A server that dies after a rename, before the answer, has open files at paths that the client does not know yet: it
/// finds them, the renamed one and those below a renamed directory.
#[test]
fn open_files_are_found_where_a_lost_rename_has_put_them() {
    for doom in [Doom::Before, Doom::After] {
        let mut user = User::new(1, None);
        user.files.mkdir(0o755, "/disk/d").expect("a directory");
        let mut open = |path| {
            let opened = user.files.open_file(CREATE.bits(), 0o644, path);
            let (file, ..) = opened.expect("a file");
            let length = user.files.write(file, 0, path.as_bytes());
            assert_eq!(length, Ok(path.len() as u32));
            file
        };
        let (one, below) = (open("/disk/a"), open("/disk/d/x"));
        for (from, to) in [("/disk/a", "/disk/b"), ("/disk/d", "/disk/e")] {
            let (first, both) = pair(from, to);
            user.machine.borrow_mut().doom = Some(doom);
            assert_eq!(user.files.rename(first, &both), Ok(()), "{from}, {doom:?}");
            assert_eq!(user.machine.borrow().doom, None, "{from}: it has died");
        }
        // The next death shows whether the new paths are kept.
        user.machine.borrow_mut().die();
        for (file, content) in [(one, "/disk/a"), (below, "/disk/d/x")] {
            let mut read = [0; 20];
            let length = user.files.read(file, 0, &mut read);
            assert_eq!(
                length.map(|length| &read[..length]),
                Ok(content.as_bytes()),
                "S3: {content} is open after {doom:?}"
            );
        }
    }
}

/// If no session can be opened after the death of a server that was to rename, the request fails, and whether it was
/// done is unknown. The open file is found later all the same, by whichever path it has.
#[test]
fn open_files_are_found_after_a_rename_that_was_given_up() {
    for doom in [Doom::Before, Doom::After] {
        let mut user = User::new(1, None);
        let opened = user.files.open_file(CREATE.bits(), 0o644, "/disk/a");
        let (file, ..) = opened.expect("a file");
        let rename = |user: &mut User, from, to| {
            let (first, both) = pair(from, to);
            user.files.rename(first, &both)
        };
        user.files.servers().refuses = true;
        user.machine.borrow_mut().doom = Some(doom);
        let given_up = rename(&mut user, "/disk/a", "/disk/b");
        assert_eq!(given_up, Err(Error::NoMemory), "{doom:?}");
        // Another one has its effect before it is known what has become of the first.
        let refused = rename(&mut user, "/disk/none", "/disk/c");
        assert_eq!(refused, Err(Error::NotFound), "{doom:?}");
        assert_eq!(
            user.files.write(file, 0, b"there"),
            Ok(5),
            "S3: it is open after {doom:?}"
        );
    }
}

/// Makes a request about a file as `rt::fs::File` does: opens it by its path if the program was restored.
fn about<T>(
    user: &mut User,
    (known, path): (&mut Known, &str),
    mut request: impl FnMut(&mut Lasting<Client>, u64) -> Result<T, Error>,
) -> Result<T, Error> {
    loop {
        if let Some(result) = user.files.with(*known, &mut request) {
            return result;
        }
        *known = user.files.open_known(0, 0, path)?.0;
    }
}

/// A restored program whose files have been renamed does not take one for the other, since its numbers are void.
#[test]
fn a_restored_program_writes_to_no_other_file() {
    let rule = "a number from before a restore names nothing";
    let (input, output) = ("/disk/in", "/disk/out");
    let mut user = User::new(1, None);
    let mut open = |path| {
        let opened = user.files.open_known(CREATE.bits(), 0o644, path);
        opened.expect("a file").0
    };
    let (mut from, mut to) = (open(input), open(output));
    {
        let mut machine = user.machine.borrow_mut();
        machine.others_write(output, b"what was put out");
        machine.meanwhile(|volume| volume.rename(output, input).expect("renamed"));
        machine.restores += 1;
    }
    let mut read = [0; 20];
    let length = about(&mut user, (&mut from, input), |files, file| {
        files.read(file, 0, &mut read)
    });
    assert_eq!(length, Ok(16), "what has that path now");
    assert_eq!(from.file, to.file, "the number is another file's");
    let written = about(&mut user, (&mut to, output), |files, file| {
        files.write(file, 0, b"wrong")
    });
    assert_eq!(written, Err(Error::NotFound), "{rule}");
    let closed = user.files.with(to, Lasting::close);
    assert_eq!(closed, None, "{rule}: nothing is closed by it");
    let length = about(&mut user, (&mut from, input), |files, file| {
        files.read(file, 0, &mut read)
    });
    assert_eq!(
        length.map(|length| &read[..length]),
        Ok(&b"what was put out"[..])
    );
}

/// After a restore, in the boot in which it was saved, a program writes nothing again that it wrote before: others have
/// gone on.
#[test]
fn a_restored_program_writes_nothing_again() {
    let rule = "S3: what was written before the save is written once";
    for opens_first in [false, true] {
        let path = "/disk/f";
        let mut user = User::new(1, None);
        let opened = user.files.open_known(CREATE.bits(), 0o644, path);
        let mut known = opened.expect("a file").0;
        let written = user.files.write(known.file, 0, b"AAAA");
        assert_eq!(written, Ok(4));
        user.machine.borrow().others_write(path, b"BBBB");
        user.machine.borrow_mut().restores += 1;
        if opens_first {
            // The same number, in a session that would know it again.
            let opened = user.files.open_known(0, 0, path).expect("a file").0;
            user.files.close(opened.file).expect("closed");
        }
        let written = about(&mut user, (&mut known, path), |files, file| {
            files.write(file, 4, b"CCCC")
        });
        assert_eq!(written, Ok(4));
        user.machine.borrow_mut().die();
        let mut read = [0; 20];
        let length = about(&mut user, (&mut known, path), |files, file| {
            files.read(file, 0, &mut read)
        });
        assert_eq!(
            length.map(|length| &read[..length]),
            Ok(&b"BBBBCCCC"[..]),
            "{rule}, {opens_first}"
        );
        assert_eq!(user.files.close(known.file), Ok(()));
        assert_eq!(
            user.files.read(known.file, 0, &mut read),
            Err(Error::NotFound),
            "it was opened once since then"
        );
    }
}

/// A file that was renamed by another program is lost with its server: it is opened again by its path, if there is one.
#[test]
fn a_lost_file_is_opened_by_its_path() {
    let (path, elsewhere) = ("/disk/log", "/disk/log.1");
    let mut user = User::new(1, None);
    let opened = user.files.open_known(CREATE.bits(), 0o644, path);
    let mut known = opened.expect("a file").0;
    assert_eq!(user.files.write(known.file, 0, b"old"), Ok(3));
    {
        let machine = user.machine.borrow_mut();
        let mut volume = machine.shared.borrow_mut();
        let volume = volume.as_mut().expect("a volume");
        volume.rename(path, elsewhere).expect("renamed");
    }
    user.machine.borrow().others_write(path, b"new");
    user.machine.borrow_mut().die();
    let mut read = [0; 8];
    let length = about(&mut user, (&mut known, path), |files, file| {
        files.read(file, 0, &mut read)
    });
    assert_eq!(
        length.map(|length| &read[..length]),
        Ok(&b"new"[..]),
        "a program goes on with the file that has the path now"
    );
}

/// That written data was lost is reported by the next `sync`, also if the program is saved and restored before.
#[test]
fn a_loss_is_reported_after_a_restore() {
    let rule = "A6: a program that syncs hears of what is not there";
    let path = "/disk/f";
    let mut user = User::new(1, None);
    let opened = user.files.open_known(CREATE.bits(), 0o644, path);
    let mut known = opened.expect("a file").0;
    assert_eq!(user.files.write(known.file, 0, &[7; 10_000]), Ok(10_000));
    user.machine.borrow_mut().die();
    fill(&user);
    let mut byte = [0];
    let read = user.files.read(known.file, 0, &mut byte);
    assert!(read.is_ok(), "it is open again: {read:?}");
    user.machine.borrow_mut().restores += 1;
    let mut sync = || {
        about(&mut user, (&mut known, path), |files, file| {
            files.sync(file)
        })
    };
    assert_eq!([sync(), sync()], [Err(Error::NoMemory), Ok(())], "{rule}");
}

/// A request that the session of a restored program has refused was not done: a directory that is there was made by
/// somebody else. A client of files in memory does not look first.
#[test]
fn what_a_restore_refused_is_not_taken_for_done() {
    let rule = "S3: a change that somebody else made is not taken for the own one";
    for durable in [true, false] {
        let mut user = User::new(1, None);
        user.files.servers().durable = durable;
        user.files.mkdir(0o755, "/disk/d").expect("a directory");
        user.machine.borrow_mut().restores += 1;
        let made = user.files.mkdir(0o755, "/disk/d");
        assert_eq!(made, Err(Error::Exists), "{rule}, {durable}");
        user.machine.borrow_mut().restores += 1;
        let removed = user.files.rmdir("/disk/none");
        assert_eq!(removed, Err(Error::NotFound), "{rule}, {durable}");
    }
}
