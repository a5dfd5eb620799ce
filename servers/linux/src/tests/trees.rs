//! Trees of processes that are saved together: true images are restored as they were, forged ones are refused or sound.

use super::*;
use crate::part::tests::{forge, forge_many, forge_pipes, with_tree, Forged};
use crate::part::Adopted;
use alloc::collections::BTreeMap;
use alloc::format;

/// A root with two living children, one of which shares its memory, one child that has ended, and a thread. They share
/// descriptors, a pipe, an event and sockets, of which one is on its way in a message.
struct Family {
    root: One,
    /// Child, child in the same memory, and thread.
    others: Vec<Task>,
}

/// The number of memory objects of a family.
const OBJECTS: usize = 3;
const PLACES: [u64; 4] = [FIRST, FIRST, 0x200, 0x210];

fn family(host: &mut Fake) -> Family {
    let mut root = example(host);
    assert_eq!(root.result(host, nr::pipe, &[0x10_0000]), 0);
    assert_eq!(root.result(host, nr::eventfd2, &[7, 0]), 2);
    let pair = [u64::from(linux_raw_sys::net::AF_UNIX), 1, 0, 0x10_0000];
    assert_eq!(root.result(host, nr::socketpair, &pair), 0);
    lock(&mut root, host, 4, linux::F_WRLCK, 0, 10);
    lock(&mut root, host, 4, linux::F_RDLCK, 20, 5);
    assert_eq!(
        root.result(host, nr::flock, &[4, u64::from(linux::LOCK_EX)]),
        0
    );
    host.write_memory(0x10_0000, b"memory\0").unwrap();
    let seals = u64::from(linux::MFD_ALLOW_SEALING);
    assert_eq!(root.result(host, nr::memfd_create, &[0x10_0000, seals]), 6);
    assert!(map_shared(&mut root, host, u64::MAX) > 0);
    assert!(map_shared(&mut root, host, 6) > 0);
    assert_eq!(terminal(&mut root, host), (7, 8));
    let shared = root.result(host, nr::shmget, &[5, PAGE, 0o1600]);
    assert!(shared >= 0);
    let set = root.result(host, nr::semget, &[5, 2, 0o1600]) as u64;
    operation(host, 1, 3, 0x1000);
    assert_eq!(root.result(host, nr::semop, &[set, 0x10_0000, 1]), 0);
    let queue = root.result(host, nr::msgget, &[5, 0o1600]) as u64;
    host.write_memory(0x10_0000, &7u64.to_le_bytes()).unwrap();
    let send = [queue, 0x10_0000, 5, 0];
    assert_eq!(root.result(host, nr::msgsnd, &send), 0);
    let ended = root.result(host, nr::fork, &[]);
    let mut child = child_of(&mut root, host);
    let exit = registers(nr::exit, &[3]);
    let outcome = emulate::call(&mut child, &mut root.system, host, &exit);
    assert!(matches!(outcome, Outcome::End(Status::Exited(3))));
    drop(child);
    root.result(host, nr::fork, &[]);
    let child = child_of(&mut root, host);
    let shares = u64::from(linux::CLONE_VM | linux::CLONE_FILES) | 17;
    root.result(host, nr::clone, &[shares, 0x10_2000, 0, 0, 0]);
    let beside = child_of(&mut root, host);
    let thread = thread_of(&mut root, host);
    assert_ne!(ended, i64::from(child.number));
    // Signals and wake-ups so far are not looked at by the tests.
    let _ = (root.system.take_sent(), root.system.take_woken());
    Family {
        root,
        others: vec![child, beside, thread],
    }
}

/// Locks a range of a file, which must be free.
fn lock(one: &mut One, host: &mut Fake, fd: u64, kind: u32, start: u64, length: u64) {
    asked(host, kind, start, length);
    let set = [fd, u64::from(linux::F_SETLK), 0x10_0000];
    assert_eq!(one.result(host, nr::fcntl, &set), 0);
}

/// Writes an operation on a semaphore to where `semop` reads it.
pub(super) fn operation(host: &mut Fake, number: u16, add: i16, flags: u16) {
    let words = [number, add as u16, flags];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    host.write_memory(0x10_0000, &bytes).unwrap();
}

/// Writes a lock to where `fcntl` reads it.
fn asked(host: &mut Fake, kind: u32, start: u64, length: u64) {
    let words = [u64::from(kind), start, length, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    host.write_memory(0x10_0000, &bytes).unwrap();
}

/// Maps two pages shared, of this file or anonymous ones (`u64::MAX`).
fn map_shared(one: &mut One, host: &mut Fake, fd: u64) -> i64 {
    let flags = match fd {
        u64::MAX => linux::MAP_SHARED | linux::MAP_ANONYMOUS,
        _ => linux::MAP_SHARED,
    };
    let rights = u64::from(READ | WRITE);
    let size = 2 * PAGE;
    one.result(host, nr::mmap, &[0, size, rights, u64::from(flags), fd, 0])
}

/// Opens a pseudo-terminal, which becomes the session's: the descriptors of master and slave.
pub(super) fn terminal(one: &mut One, host: &mut Fake) -> (i64, i64) {
    host.write_memory(0x10_0000, b"/dev/ptmx\0").unwrap();
    let rights = u64::from(linux::O_RDWR);
    let master = one.result(host, nr::open, &[0x10_0000, rights]);
    let ioctl = |one: &mut One, host: &mut Fake, request: u32| {
        one.result(
            host,
            nr::ioctl,
            &[master as u64, u64::from(request), 0x10_0000],
        )
    };
    host.write_memory(0x10_0000, &[0; 4]).unwrap();
    assert_eq!(ioctl(one, host, linux_raw_sys::ioctl::TIOCSPTLCK), 0);
    assert_eq!(ioctl(one, host, linux_raw_sys::ioctl::TIOCGPTN), 0);
    let mut number = [0; 4];
    host.read_memory(0x10_0000, &mut number).unwrap();
    let path = std::format!("/dev/pts/{}\0", u32::from_le_bytes(number));
    host.write_memory(0x10_0000, path.as_bytes()).unwrap();
    (master, one.result(host, nr::open, &[0x10_0000, rights]))
}

/// Does all pending work on memory objects.
fn settle(system: &mut System, host: &mut Fake) {
    while system.objects.is_due() {
        system.settle_objects(host);
    }
}

impl Family {
    fn save(&self, host: &mut Fake) -> Vec<u8> {
        let tasks: Vec<(u64, &Task)> = core::iter::once(&self.root.task)
            .chain(&self.others)
            .zip(PLACES)
            .map(|(task, place)| (place, task))
            .collect();
        save(&tasks, None, &self.root.system, host).expect("it can be saved")
    }

    /// Closes the files of all its tasks.
    fn end(&mut self, host: &mut Fake) {
        self.root.close_all(host);
        for task in &mut self.others {
            task.close_files(&mut self.root.system, host);
        }
    }
}

fn adopt(saved: &[u8], memories: usize, host: &mut Fake) -> Result<(System, Adopted), String> {
    let mut system = System::new();
    // No process gets the number that it had.
    for _ in 0..20 {
        system.create(None).unwrap();
    }
    // And nothing gets the identity that it had in the other system.
    for _ in 0..1000 {
        system.new_identity();
    }
    let root = system.create(None).unwrap();
    let adopted = part::adopt(saved, (memories, OBJECTS), 0, root, &mut system, host);
    if adopted.is_err() {
        // Nothing was made, and the root can still be given up.
        assert_eq!(system.count(), 21);
        nothing_is_left(&system);
    }
    adopted.map(|adopted| (system, adopted))
}

fn end_all(adopted: Adopted, system: &mut System, host: &mut Fake) {
    let root = adopted.members[0].pid;
    // With its task each process drops its memory.
    for mut seated in adopted.tasks {
        seated.task.close_files(system, host);
    }
    system.end_ipc(root);
    settle(system, host);
    nothing_is_left(system);
    assert!(system.has_no_sockets());
}

pub(super) fn nothing_is_left(system: &System) {
    for thing in [
        Thing::Pipe,
        Thing::Socket,
        Thing::Watch,
        Thing::Right,
        Thing::Lock,
        Thing::Object,
        Thing::Pty,
        Thing::Set,
        Thing::Queue,
        Thing::Undo,
    ] {
        assert_eq!(system.counted_things(thing), 0, "S2: {thing:?}");
    }
    assert!(system.locks.is_empty() && system.memfds.is_empty());
}

#[test]
fn a_tree_comes_back_with_what_its_processes_share() {
    let mut host = Fake::new();
    let mut family = family(&mut host);
    let saved = family.save(&mut host);
    assert!(adopt(&saved, 1, &mut host).is_err() && adopt(&saved, 3, &mut host).is_err());
    let (mut system, adopted) = adopt(&saved, 2, &mut host).unwrap();
    let numbers: Vec<u32> = core::iter::once(&family.root.task)
        .chain(&family.others)
        .map(|task| task.thread)
        .collect();
    let places = [
        (0, PLACES[0]),
        (1, PLACES[1]),
        (0, PLACES[2]),
        (0, PLACES[3]),
    ];
    let order = |task: &Task| numbers.iter().position(|n| *n == task.thread).unwrap();
    for seated in &adopted.tasks {
        assert_eq!((seated.memory, seated.place), places[order(&seated.task)]);
    }
    let mut tasks: Vec<Task> = adopted.tasks.into_iter().map(|s| s.task).collect();
    tasks.sort_by_key(order);
    let [root, child, beside, thread] = &mut tasks[..] else {
        panic!("{} tasks", tasks.len())
    };
    // The numbers that programs see.
    let get = |number| registers(number, &[]);
    for (task, number, parent) in [
        (&mut *root, numbers[0], 1),
        (child, numbers[1], numbers[0]),
        (beside, numbers[2], numbers[0]),
    ] {
        let system = &mut system;
        assert_eq!(
            returns(task, system, &mut host, &get(nr::getpid)),
            i64::from(number)
        );
        assert_eq!(
            returns(task, system, &mut host, &get(nr::getppid)),
            i64::from(parent)
        );
        let group = i64::from(numbers[0]);
        assert_eq!(returns(task, system, &mut host, &get(nr::getpgrp)), group);
    }
    let tid = returns(thread, &mut system, &mut host, &get(nr::gettid));
    assert_eq!(tid, i64::from(numbers[3]));
    // A shared description and its offset, a shared table, a shared memory.
    let seek = registers(nr::lseek, &[4, 50, 0]);
    assert_eq!(returns(child, &mut system, &mut host, &seek), 50);
    let tell = registers(nr::lseek, &[4, 0, 1]);
    assert_eq!(returns(thread, &mut system, &mut host, &tell), 50);
    assert!(Rc::ptr_eq(&beside.shares.files, &root.shares.files));
    assert!(Rc::ptr_eq(&beside.shares.memory, &root.shares.memory));
    assert!(Rc::ptr_eq(&thread.shares.actions, &root.shares.actions));
    assert!(!Rc::ptr_eq(&child.shares.files, &root.shares.files));
    assert!(!Rc::ptr_eq(&child.shares.memory, &root.shares.memory));
    // A pipe, an event and a connection.
    for (write, read) in [(1, 0), (2, 2), (3, 5)] {
        host.write_memory(0x10_0000, b"8 bytes!").unwrap();
        let put = registers(nr::write, &[write, 0x10_0000, 8]);
        assert_eq!(returns(child, &mut system, &mut host, &put), 8);
        let get = registers(nr::read, &[read, 0x10_1000, 8]);
        assert_eq!(returns(root, &mut system, &mut host, &get), 8);
    }
    // The child that has ended is waited for once.
    let wait = registers(nr::wait4, &[u64::MAX, 0x10_0000, 1, 0]);
    assert!(returns(root, &mut system, &mut host, &wait) > 0);
    let mut status = [0; 4];
    host.read_memory(0x10_0000, &mut status).unwrap();
    assert_eq!(u32::from_le_bytes(status), 3 << 8);
    assert_eq!(returns(root, &mut system, &mut host, &wait), 0);
    drop(tasks.split_off(1));
    drop(tasks);
    family.end(&mut host);
}

#[test]
fn a_tree_that_does_not_fit_is_refused() {
    let mut host = Fake::new();
    let mut family = family(&mut host);
    let saved = family.save(&mut host);
    let mut system = System::new();
    for _ in 0..1000 {
        system.new_identity();
    }
    let job = system.create(None).unwrap();
    // The job has room for two more processes, and the tree has four.
    for _ in 0..services::process::MAX_JOB - 3 {
        system.create(Some(job)).unwrap();
    }
    let root = system.create(Some(job)).unwrap();
    let count = system.count();
    let refused = part::adopt(&saved, (2, OBJECTS), 0, root, &mut system, &mut host).unwrap_err();
    assert!(refused.contains("too many processes"), "{refused}");
    assert_eq!((system.count(), system.find(root).is_some()), (count, true));
    assert_eq!(system.counted_things(Thing::Socket), 0);
    family.end(&mut host);
}

/// What one thing of an image says of another must be true, or the image is refused.
#[test]
fn forged_trees_are_refused() {
    let mut host = Fake::new();
    let mut family = family(&mut host);
    let saved = family.save(&mut host);
    let (mut system, adopted) = adopt(&forge(&saved, Forged::Nothing), 2, &mut host).unwrap();
    end_all(adopted, &mut system, &mut host);
    let mut is_taken = |forged: &Forged| {
        let is_taken = adopt(&forge(&saved, *forged), 2, &mut host).is_ok();
        if is_taken {
            // The next image may use the same identities.
            host.objects.clear();
        }
        is_taken
    };
    let taken: Vec<Forged> = Forged::ALL.into_iter().filter(&mut is_taken).collect();
    assert!(taken.is_empty(), "S2: {taken:?} were taken");
    family.end(&mut host);
}

/// Lists that are longer than those of any tree are refused for their length, before one is searched for each element
/// of another.
#[test]
fn a_tree_with_endless_lists_is_refused_for_their_length() {
    let mut host = Fake::new();
    let mut family = family(&mut host);
    let saved = family.save(&mut host);
    const MANY: u32 = 4000;
    let bytes = forge_many(&saved, MANY);
    let refused = |counts, host: &mut Fake| part::Rebuilding::new(&bytes, counts, host).err();
    let sentence = refused((2, MANY as usize), &mut host).unwrap();
    assert_eq!(
        sentence, "it has 4000 files of memory, of which a tree can have 1024",
        "S2"
    );
    // For another number of memory objects than it lists the part is refused at once.
    let sentence = refused((2, OBJECTS), &mut host).unwrap();
    assert_eq!(sentence, "its Linux part makes no sense");
    let sentence = part::Shown::read(&bytes, None, |_| true).err().unwrap();
    assert!(sentence.contains("4000 files of memory"), "{sentence}");
    family.end(&mut host);
}

/// However many large pipes an image has, no more are restored as large ones than the share allows, nothing that is in
/// them is lost, and those that were large by right stay so.
#[test]
fn restored_pipes_are_not_larger_than_others() {
    let mut host = Fake::new();
    let mut program = example(&mut host);
    let mut ends = Vec::new();
    for _ in 0..40 {
        assert_eq!(program.result(&mut host, nr::pipe, &[0x10_0000]), 0);
        let mut fds = [0; 4];
        host.read_memory(0x10_0000, &mut fds).unwrap();
        ends.push(u64::from(u32::from_le_bytes(fds)));
    }
    let large = |one: &mut One, host: &mut Fake| {
        let sizes = ends.iter().map(|fd| {
            let ask = [*fd, u64::from(linux::F_GETPIPE_SZ)];
            one.result(host, nr::fcntl, &ask)
        });
        sizes.filter(|size| *size > 0x3000).count()
    };
    assert_eq!(large(&mut program, &mut host), 32);
    let saved = program.save(&mut host).unwrap();
    program.close_all(&mut host);
    let mut same = One::adopt(&saved, 0, &mut host).unwrap();
    assert_eq!(large(&mut same, &mut host), 32);
    same.close_all(&mut host);
    let forged = forge_pipes(&saved, 0x2345);
    let mut again = One::adopt(&forged, 0, &mut host).unwrap();
    assert_eq!(
        large(&mut again, &mut host),
        32,
        "S2: an image has no more than its share"
    );
    // The pipes that are not large hold what they held, and can be saved again.
    let saved = again.save(&mut host).unwrap();
    again.close_all(&mut host);
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    for fd in &ends {
        let mut read = 0;
        while read < 0x2345 {
            let got = again.result(&mut host, nr::read, &[*fd, 0x10_0000, 0x1000]);
            assert!(got > 0, "A6: nothing is lost");
            read += got;
        }
    }
    again.close_all(&mut host);
    nothing_is_left(&again.system);
}

/// What people are shown of a part is what the part has; of a part that is refused nothing is shown.
#[test]
fn what_is_shown_of_a_tree_is_what_it_has() {
    let mut host = Fake::new();
    let mut family = family(&mut host);
    let saved = family.save(&mut host);
    let shown = part::Shown::read(&saved, None, |_| true).unwrap();
    let text = shown.lines(0).join("\n");
    let processes = text.lines().filter(|line| line.starts_with("process "));
    assert_eq!(processes.count(), 4, "{text}");
    for said in [
        "ended with status 3",
        "pipe ",
        "socket ",
        "eventfd, ",
        ", child of ",
        "threads, ",
        "shared memory 0: key 0x5, 4096 bytes",
        "set 0: key 0x5, 2 semaphores",
        "queue 0: key 0x5, 1 messages of 5 bytes",
    ] {
        assert!(text.contains(said), "{said}:\n{text}");
    }
    for (number, (path, _, contents)) in shown.contents().enumerate() {
        let line = format!(
            "file {number} in the image: {}",
            path.unwrap_or("a file without a name")
        );
        let length = format!(", {} bytes", contents.len());
        assert!(text.contains(&(line + &length)), "{length}:\n{text}");
    }
    let files = shown.contents().count();
    assert!(files > 0, "{text}");
    let text = shown.lines(7).join("\n");
    for number in 0..8 + files {
        let line = format!("file {number} in the image: ");
        let is_there = (7..7 + files).contains(&number);
        assert_eq!(text.contains(&line), is_there, "{line}:\n{text}");
    }
    // As at a restore, one count of memories and of memory objects fits.
    let counts: Vec<(usize, usize)> = (0..64).map(|n| (n / 8, n % 8)).collect();
    let read =
        |counts: &&(usize, usize)| part::Shown::read(&saved, Some(**counts), |_| true).is_ok();
    assert_eq!(counts.iter().filter(read).count(), 1, "A9: other counts");
    let refused = part::Shown::read(&saved, None, |_| false).err().unwrap();
    assert!(refused.contains("no memory"), "{refused}");
    for length in (0..saved.len()).step_by(7) {
        assert!(part::Shown::read(&saved[..length], None, |_| true).is_err());
    }
    let mut random = Rng::with_seed(6);
    for _ in 0..3000 {
        let mut bytes = saved.clone();
        for _ in 0..1 + random.usize(..4) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        if let Ok(shown) = part::Shown::read(&bytes, None, |_| true) {
            let _ = shown.lines(0);
        }
    }
    for forged in Forged::ALL {
        if let Ok(shown) = part::Shown::read(&forge(&saved, forged), None, |_| true) {
            let _ = shown.lines(0);
        }
    }
    family.end(&mut host);
}

/// A task reads the files of `/proc` about its process.
fn read_about_itself(task: &mut Task, system: &mut System, host: &mut Fake) {
    for name in ["stat", "statm", "status", "maps", "cmdline", "environ"] {
        let path = format!("/proc/self/{name}\0");
        // Some altered trees have too many descriptors for one more.
        host.write_memory(0x10_0040, path.as_bytes()).unwrap();
        let open = registers(nr::open, &[0x10_0040, 0]);
        let Outcome::Go {
            registers: opened, ..
        } = emulate::call(task, system, host, &open)
        else {
            continue;
        };
        for (number, arguments) in [
            (nr::read, [opened.rax, 0x10_0100, 2000]),
            (nr::close, [opened.rax, 0, 0]),
        ] {
            let _ = emulate::call(task, system, host, &registers(number, &arguments));
        }
    }
}

/// Alters bytes of a part as [`altered`] does, and in one more way: a byte more or less, which moves all behind it, a
/// very large number, or a copied piece.
fn altered_more(saved: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut bytes = altered(saved, random);
    let at = random.usize(..bytes.len());
    match random.u32(..6) {
        0 => {
            bytes.remove(at);
        }
        1 => bytes.insert(at, random.u8(..)),
        2 => bytes[at] = bytes[at].wrapping_add([1, 255, 2, 254][random.usize(..4)]),
        3 => {
            // A number of almost any size.
            let huge = [0xff, 0xff, 0xff, 0xff, [0x0f, 0xff][random.usize(..2)], 1];
            bytes.splice(at..=at, huge);
        }
        4 => {
            // A piece is copied to another place.
            let from = random.usize(..bytes.len());
            let length = random.usize(..32).min(bytes.len() - from);
            let piece = bytes[from..from + length].to_vec();
            let end = bytes.len().min(at + random.usize(..2) * length);
            bytes.splice(at..end, piece);
        }
        _ => {}
    }
    bytes
}

/// A sentence without numbers and names of files.
fn without_numbers(text: &str) -> String {
    let plain = |word: &str| match word.starts_with('/') {
        true => String::from("/"),
        false => word.chars().filter(|c| !c.is_ascii_digit()).collect(),
    };
    let words: Vec<String> = text.split(' ').map(plain).collect();
    words.join(" ")
}

fn number(name: &str, usual: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => usual,
    }
}

/// The number of different outcomes that every seed tried has reached at least.
const LEAST_OUTCOMES: usize = 200;

/// Altered and forged trees are refused or sound. A tree with a rare outcome is altered further: the sentences of
/// refusals, and the results of the calls of accepted trees, lead the search behind the first checks. `FERMATA_SEED`
/// sets the seed, `FERMATA_IMAGES` the number of images.
#[test]
fn altered_trees_are_refused_or_sound() {
    let mut host = Fake::new();
    let mut family = family(&mut host);
    let saved = family.save(&mut host);
    for length in (0..saved.len()).step_by(3) {
        assert!(adopt(&saved[..length], 2, &mut host).is_err());
    }
    let (seed, images) = (number("FERMATA_SEED", 5), number("FERMATA_IMAGES", 100_000));
    let mut random = Rng::with_seed(seed);
    let mut corpus = vec![saved.clone()];
    corpus.extend(Forged::ALL.map(|forged| forge(&saved, forged)));
    corpus.retain(|part| with_tree(part, false, <[u8]>::to_vec).is_some());
    let begin = corpus.len();
    let mut reached: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..images {
        let from = match random.u32(..3) {
            0 => &saved,
            _ => &corpus[random.usize(..corpus.len())],
        };
        // Mostly parts that can be decoded, for more checks come behind that.
        let may = random.u32(..20) == 0;
        let mut tries = (0..200).map(|_| match random.u32(..50) {
            0 => Some(altered_more(from, &mut random)),
            _ => with_tree(from, may, |tree| altered_more(tree, &mut random)),
        });
        let Some(altered) = tries.find_map(|altered| altered) else {
            continue;
        };
        let outcome = match adopt(&altered, 2, &mut host) {
            Ok((mut system, adopted)) => {
                let threads = adopted.tasks.len();
                let said = use_and_end(adopted, &mut system, &mut host);
                format!("taken, {threads} threads, whose calls said {said}")
            }
            Err(sentence) => without_numbers(&sentence),
        };
        // The next tree must not find the objects of this one.
        host.objects.clear();
        let times = reached.entry(outcome).or_insert(0);
        *times += 1;
        if (*times == 1 || *times < 40 && random.u32(..8) == 0) && altered.len() < 2 * saved.len() {
            corpus.push(altered);
        }
    }
    for (outcome, times) in &reached {
        std::println!("{times:>8}  {outcome}");
    }
    std::println!(
        "{} outcomes, {begin} parts became {}, seed {seed}",
        reached.len(),
        corpus.len()
    );
    assert!(reached.keys().any(|outcome| outcome.starts_with("taken")));
    if images >= 100_000 {
        assert!(
            reached.len() >= LEAST_OUTCOMES,
            "only {} outcomes",
            reached.len()
        );
    }
    family.end(&mut host);
}

/// Makes calls in an accepted tree and ends it, after which nothing is left. The errors that the calls returned.
fn use_and_end(mut adopted: Adopted, system: &mut System, host: &mut Fake) -> String {
    let mut said = String::new();
    for seated in &mut adopted.tasks {
        for number in [nr::read, nr::getppid, nr::wait4, nr::close, nr::getsid] {
            let call_of = registers(number, &[4, 0x10_0000, 1]);
            match emulate::call(&mut seated.task, system, host, &call_of) {
                Outcome::Go { registers, .. } => {
                    let result = (registers.rax as i64).min(0);
                    said += &format!("{result} ");
                }
                _ => said += "nothing ",
            }
        }
        read_about_itself(&mut seated.task, system, host);
    }
    for member in &adopted.members {
        assert!(system.find(member.pid).is_some());
    }
    end_all(adopted, system, host);
    said
}

/// Files that were open for writing are restored, files that were read are there, and no name is that of half a file.
#[test]
fn files_come_with_the_tree() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    host.write_memory(0x10_0000, b"as it was").unwrap();
    assert_eq!(process.result(&mut host, nr::write, &[4, 0x10_0000, 9]), 9);
    let saved = process.save(&mut host).unwrap();
    assert_eq!(process.result(&mut host, nr::ftruncate, &[4, 2]), 0);
    let read = |host: &mut Fake, process: &mut One| {
        let read = process.result(host, nr::pread64, &[4, 0x10_1000, 99, 3]);
        let mut bytes = vec![0; read as usize];
        host.read_memory(0x10_1000, &mut bytes).unwrap();
        bytes
    };
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    assert_eq!(read(&mut host, &mut again), b"as it was");
    // The file is not there at all.
    again.close_all(&mut host);
    host.session.unlink("/tmp/file").unwrap();
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    assert_eq!(read(&mut host, &mut again), b"as it was");
    again.close_all(&mut host);
    process.close_all(&mut host);
    // A file that may not be durable does not replace one that is.
    host.session.unlink("/tmp/file").unwrap();
    host.cannot_sync = true;
    assert!(One::adopt(&saved, 0, &mut host).is_err());
    assert_eq!(
        host.session.stat(true, "/tmp/file", 100).err(),
        Some(proto::Error::NotFound),
        "A6: a file is durable before it has its name"
    );
    host.cannot_sync = false;
    // A directory has the name of the file.
    host.session.mkdir(0o755, "/tmp/file").unwrap();
    assert!(One::adopt(&saved, 0, &mut host).is_err());
}

/// A process is restored in its working directory, or the directory is said to be missing. A process whose directory
/// had been removed before the checkpoint is in a removed one again.
#[test]
fn a_working_directory_is_there_or_was_not() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    host.session.mkdir(0o755, "/tmp/within").unwrap();
    host.write_memory(0x10_0000, b"/tmp/within\0").unwrap();
    assert_eq!(process.result(&mut host, nr::chdir, &[0x10_0000]), 0);
    let saved = process.save(&mut host).unwrap();
    One::adopt(&saved, 0, &mut host)
        .unwrap()
        .close_all(&mut host);
    host.session.rmdir("/tmp/within").unwrap();
    let gone = process.save(&mut host).unwrap();
    let refused = One::adopt(&saved, 0, &mut host).err();
    assert_eq!(
        refused.as_deref(),
        Some("/tmp/within: no such file or directory")
    );
    let mut again = One::adopt(&gone, 0, &mut host).unwrap();
    let cwd = again.task.shares.context.borrow().cwd.clone();
    assert_eq!(cwd, "/tmp/within", "A6: it was removed before");
    again.close_all(&mut host);
    // A file has the directory's name.
    let flags = Flags {
        create: true,
        ..Flags::default()
    };
    let file = host.session.open_file(flags.bits(), 0o600, "/tmp/within");
    file.unwrap();
    let refused = One::adopt(&saved, 0, &mut host).err();
    let sentence = "/tmp/within: is not what it was when the process was saved";
    assert_eq!(refused.as_deref(), Some(sentence));
    process.close_all(&mut host);
}

/// Of a file that is open for reading, executed or mapped an image has only the name: the checkpointer is told the
/// file's size and time, and those of no other file.
#[test]
fn files_that_an_image_only_names_are_told() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let flags = Flags {
        create: true,
        ..Flags::default()
    };
    let make = |host: &mut Fake, path: &str, size: usize| {
        let (ino, ..) = host.session.open_file(flags.bits(), 0o600, path).unwrap();
        host.session.write(ino, 0, &vec![7; size]).unwrap();
        ino
    };
    let open = |host: &mut Fake, fd: u32, path: &str, size: usize| {
        let ino = make(host, path, size);
        let description = Description {
            kind: FileKind::File { ino },
            flags: 0,
            offset: 0,
            owner: None,
        };
        process.files().install(fd, description, false);
    };
    open(&mut host, 5, "/tmp/read", 10);
    open(&mut host, 6, "/tmp/library", 9000);
    open(&mut host, 7, "/tmp/data", 9000);
    let program = make(&mut host, "/tmp/program", 30);
    let map = |fd: u64, offset| [0, 3 * PAGE, u64::from(READ), 2, fd, offset];
    assert!(process.result(&mut host, nr::mmap, &map(6, 0)) > 0);
    assert!(process.result(&mut host, nr::mmap, &map(6, 0)) > 0);
    // Not mapped from its beginning.
    assert!(process.result(&mut host, nr::mmap, &map(7, PAGE)) > 0);
    let (executed, _) = process.system.busy.execute(program);
    process.memory().executed = Some(executed);
    for fd in 6..8 {
        assert_eq!(process.result(&mut host, nr::close, &[fd]), 0);
    }
    let told = |process: &One, host: &mut Fake, files| {
        let mut gathered = part::Gathered::default();
        let what = part::What {
            files,
            ..whole(process.task.pid)
        };
        let (tasks, known) = ([(FIRST, &process.task)], |_| (None, String::new()));
        let set = what.set(&process.system);
        let made = part::save(
            (what, &set),
            &mut gathered,
            &tasks,
            known,
            &process.system,
            host,
        );
        let files = made.unwrap().files.into_iter();
        files.map(|file| (file.path, file.size)).collect::<Vec<_>>()
    };
    let named = |path: &str, size| (path.to_string(), size);
    let [data, library, program, read] = [
        named("/tmp/data", 9000),
        named("/tmp/library", 9000),
        named("/tmp/program", 30),
        named("/tmp/read", 10),
    ];
    let all = [data.clone(), library.clone(), program.clone(), read];
    // `/tmp/file` is open for writing: the image has it.
    assert_eq!(told(&process, &mut host, false), all, "A6: others are told");
    let with_files = told(&process, &mut host, true);
    assert_eq!(
        with_files,
        [data.clone(), library, program],
        "A6: the image has it"
    );
    // A file that was removed cannot be told.
    host.session.unlink("/tmp/library").unwrap();
    let left = [data, all[2].clone(), all[3].clone()];
    assert_eq!(told(&process, &mut host, false), left);
    // A restored process has the names, too.
    let saved = process.save(&mut host).unwrap();
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    let names: Vec<String> = again.memory().mapped.paths().map(String::from).collect();
    assert_eq!(names, ["/tmp/library", "/tmp/data"]);
    again.close_all(&mut host);
    process.memory().executed = None;
    process.system.settle_executed(&mut host);
    process.close_all(&mut host);
}

/// However many working directories and programs a tree has, they are looked up in turns, at a checkpoint and at a
/// restore.
#[test]
fn names_are_looked_for_in_turns() {
    const CHILDREN: usize = 100;
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let mut children = Vec::new();
    for n in 0..CHILDREN {
        process.result(&mut host, nr::fork, &[]);
        let task = child_of(&mut process, &mut host);
        let path = format!("/tmp/{n}");
        host.session.mkdir(0o755, &path).unwrap();
        task.shares.context.borrow_mut().cwd = path;
        children.push(task);
    }
    let all = core::iter::once(&process.task).chain(&children);
    let tasks: Vec<(u64, &Task)> = all.map(|task| (FIRST, task)).collect();
    let (mut gathered, mut turns) = (part::Gathered::default(), 0);
    let (what, known) = (whole(process.task.pid), |_| (None, String::new()));
    let set = what.set(&process.system);
    let made = loop {
        let set = (what, &set[..]);
        match part::save(
            set,
            &mut gathered,
            &tasks,
            known,
            &process.system,
            &mut host,
        ) {
            Err(part::Refusal::Turn) => turns += 1,
            made => break made.unwrap(),
        }
    };
    assert!(
        turns > 0,
        "S1: {CHILDREN} directories are looked for at once"
    );
    let mut system = System::new();
    let root = system.create(None).unwrap();
    let mut rebuilding = part::Rebuilding::new(&made.part, (CHILDREN + 1, 0), &mut host).unwrap();
    let mut turns = 0;
    while let Err(refusal) = rebuilding.open(&mut host) {
        assert_eq!(refusal, part::Refusal::Turn);
        turns += 1;
    }
    assert!(
        turns > 0,
        "S1: {CHILDREN} directories are looked for at once"
    );
    let adopted = rebuilding.finish(0, root, &mut system, &mut host).unwrap();
    assert_eq!(adopted.tasks.len(), CHILDREN + 1);
    for mut seated in adopted.tasks {
        seated.task.close_files(&mut system, &mut host);
    }
    for mut task in children {
        task.close_files(&mut process.system, &mut host);
    }
    process.close_all(&mut host);
}

/// An image cannot have a `signalfd` that takes signals which nobody can block.
#[test]
fn no_image_reads_away_what_ends_a_process() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let mut fd = u64::from(u32::MAX);
    let mut of_signal = |signal: u32, process: &mut One, host: &mut Fake| {
        let mask = crate::signal::bit(signal).to_le_bytes();
        host.write_memory(0x10_0000, &mask).unwrap();
        fd = process.result(host, nr::signalfd4, &[fd, 0x10_0000, 8, 0]) as u64;
        process.save(host).unwrap()
    };
    let one = of_signal(10, &mut process, &mut host);
    let other = of_signal(11, &mut process, &mut host);
    let differs = |at: &usize| one[*at] != other[*at];
    let at: Vec<usize> = (0..one.len()).filter(differs).collect();
    assert_eq!((one.len(), at.len()), (other.len(), 1), "the mask");
    // The mask is encoded in groups of seven bits: half of the byte for signal 10 is the one for signal 9.
    let mut forged = one.clone();
    forged[at[0]] /= 2;
    let taken = One::adopt(&forged, 0, &mut host).is_ok();
    assert!(!taken, "S2: an image keeps a process from being ended");
    let mut again = One::adopt(&one, 0, &mut host).expect("as it was");
    again.close_all(&mut host);
    process.close_all(&mut host);
}

/// An edge-triggered watch reports a date that has passed, also if the date is before the beginning of the restored
/// process's clock.
#[test]
fn a_date_that_passed_is_an_edge() {
    const SECOND: u64 = 1_000_000_000;
    let mut host = Fake::new();
    host.now += 100 * SECOND;
    let mut process = example(&mut host);
    let at = (host.now + DATE) / SECOND + 10;
    let setting = [0, 0, at, 0].map(u64::to_le_bytes).concat();
    host.write_memory(0x10_0000, &setting).unwrap();
    let clock = u64::from(linux::CLOCK_REALTIME);
    let fd = process.result(&mut host, nr::timerfd_create, &[clock, 0]) as u64;
    let set = [fd, u64::from(linux::TFD_TIMER_ABSTIME), 0x10_0000, 0];
    assert_eq!(process.result(&mut host, nr::timerfd_settime, &set), 0);
    let epoll = process.result(&mut host, nr::epoll_create1, &[0]) as u64;
    let event = [linux::EPOLLIN | linux::EPOLLET, 0, 0].map(u32::to_le_bytes);
    host.write_memory(0x10_0100, &event.concat()).unwrap();
    let add = [epoll, 1, fd, 0x10_0100];
    assert_eq!(process.result(&mut host, nr::epoll_ctl, &add), 0);
    let wait = [epoll, 0x10_1000, 3, 0];
    assert_eq!(process.result(&mut host, nr::epoll_wait, &wait), 0);
    let saved = process.save(&mut host).unwrap();
    host.now += 1000 * SECOND;
    let stood = 0u64.wrapping_sub(1000 * SECOND);
    let mut again = One::adopt(&saved, stood, &mut host).unwrap();
    let told = again.result(&mut host, nr::epoll_wait, &wait);
    assert_eq!(told, 1, "A6: what happened while it lay is news");
    process.close_all(&mut host);
    again.close_all(&mut host);
}

/// A timer that is set to a date goes off then, however long the image lay, also if the date has passed; one that is
/// set to a time of the process's clock waits as long as it would have waited.
#[test]
fn dates_are_kept() {
    const SECOND: u64 = 1_000_000_000;
    const MINUTE: u64 = 60 * SECOND;
    let mut host = Fake::new();
    host.now += 20 * MINUTE;
    let mut process = example(&mut host);
    let mut all = Vec::new();
    for (clock, by) in [(linux::CLOCK_REALTIME, DATE), (linux::CLOCK_MONOTONIC, 0)] {
        let at = (host.now + by + 10 * MINUTE) / SECOND;
        let setting = [60, 0, at, 0].map(u64::to_le_bytes).concat();
        host.write_memory(0x10_0000, &setting).unwrap();
        let clock = u64::from(clock);
        let fd = process.result(&mut host, nr::timerfd_create, &[clock, 0]) as u64;
        let set = [fd, u64::from(linux::TFD_TIMER_ABSTIME), 0x10_0000, 0];
        assert_eq!(process.result(&mut host, nr::timerfd_settime, &set), 0);
        let create = [clock, 0, 0x10_0040];
        assert_eq!(process.result(&mut host, nr::timer_create, &create), 0);
        let mut id = [0; 4];
        host.read_memory(0x10_0040, &mut id).unwrap();
        let id = u64::from(u32::from_le_bytes(id));
        let set = [id, u64::from(linux::TIMER_ABSTIME), 0x10_0000, 0];
        assert_eq!(process.result(&mut host, nr::timer_settime, &set), 0);
        all.push((fd, id));
    }
    let saved = process.save(&mut host).unwrap();
    let left = |one: &mut One, host: &mut Fake, call, of| {
        assert_eq!(one.result(host, call, &[of, 0x10_0000]), 0);
        let mut left = [0; 8];
        host.read_memory(0x10_0010, &mut left).unwrap();
        // The next second has just begun, which whole seconds do not show.
        u64::from_le_bytes(left) + 1
    };
    for (lay, date) in [(7 * MINUTE, 180), (0, 600)] {
        host.now += lay;
        let stood = 0u64.wrapping_sub(lay);
        let mut again = One::adopt(&saved, stood, &mut host).unwrap();
        for ((fd, id), seconds) in all.iter().zip([date, 600]) {
            let of_file = left(&mut again, &mut host, nr::timerfd_gettime, *fd);
            let of_signal = left(&mut again, &mut host, nr::timer_gettime, *id);
            assert_eq!((of_file, of_signal), (seconds, seconds), "A6: {lay}");
        }
        again.close_all(&mut host);
        host.now -= lay;
    }
    // The first date was eight minutes ago, and one has passed in each minute since.
    host.now += 18 * MINUTE;
    let stood = 0u64.wrapping_sub(18 * MINUTE);
    let mut again = One::adopt(&saved, stood, &mut host).unwrap();
    let read = [all[0].0, 0x10_0000, 8];
    assert_eq!(again.result(&mut host, nr::read, &read), 8);
    let mut count = [0; 8];
    host.read_memory(0x10_0000, &mut count).unwrap();
    assert_eq!(u64::from_le_bytes(count), 9, "A6: no time is missed");
    again.close_all(&mut host);
    process.close_all(&mut host);
}

/// A restore that is given up while it waits for a disk leaves nothing of the file that it was restoring.
#[test]
fn who_is_killed_while_a_file_is_put_back_leaves_nothing() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    host.write_memory(0x10_0000, b"as it was").unwrap();
    assert_eq!(process.result(&mut host, nr::write, &[4, 0x10_0000, 9]), 9);
    let saved = process.save(&mut host).unwrap();
    assert_eq!(process.result(&mut host, nr::ftruncate, &[4, 2]), 0);
    let name = std::format!("/tmp/.restored-{}-0-0", process.task.number);
    let (mut made, mut left) = (0, 0);
    for rounds in 0.. {
        let mut rebuilding = part::Rebuilding::new(&saved, (1, 0), &mut host).unwrap();
        host.late = Some(Late::new());
        let mut is_open = false;
        for _ in 0..rounds {
            host.begin_call(1);
            is_open = rebuilding.open(&mut host).is_ok();
            host.end_call();
        }
        host.late = None;
        let exists = |host: &Fake| host.session.stat(true, &name, 100).is_ok();
        made += u32::from(exists(&host));
        rebuilding.give_up(&mut process.system, &mut host);
        if exists(&host) {
            left += 1;
            host.session.unlink(&name).unwrap();
        }
        if is_open {
            break;
        }
    }
    assert!(made > 2, "it is waited for again and again");
    // A file's name is known only once it was made: one that is being made may be left.
    assert!(left <= 1, "A6: a restore that is killed leaves nothing");
}

/// Locks are restored for their owners: a process's, a description's, and that of a whole file. The tree is refused
/// while another process has one of them.
#[test]
fn locks_come_with_the_tree() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    lock(&mut process, &mut host, 4, linux::F_WRLCK, 0, 10);
    asked(&mut host, linux::F_RDLCK, 100, 50);
    let set = [4, u64::from(linux::F_OFD_SETLK), 0x10_0000];
    assert_eq!(process.result(&mut host, nr::fcntl, &set), 0);
    let whole = [4, u64::from(linux::LOCK_SH)];
    assert_eq!(process.result(&mut host, nr::flock, &whole), 0);
    let saved = process.save(&mut host).unwrap();
    let root = process.system.create(None).unwrap();
    let refused = part::adopt(&saved, (1, 0), 0, root, &mut process.system, &mut host).unwrap_err();
    assert_eq!(refused, "/tmp/file: somebody else has locked it now");
    assert_eq!(process.system.counted_things(Thing::Lock), 3);
    process.close_all(&mut host);
    nothing_is_left(&process.system);
    let system = &mut process.system;
    let mut adopted = part::adopt(&saved, (1, 0), 0, root, system, &mut host).unwrap();
    let mut again = adopted.tasks.remove(0).task;
    assert_eq!(system.counted_things(Thing::Lock), 3, "A6: all are there");
    let mut other = One::new("/tmp").task;
    other.pid = system.create(None).unwrap();
    other.shares.memory = Rc::clone(&again.shares.memory);
    let open = registers(nr::open, &[0x10_0040, 2]);
    host.write_memory(0x10_0040, b"/tmp/file\0").unwrap();
    assert_eq!(returns(&mut other, system, &mut host, &open), 0);
    // Locks of the process keep others out, and not the process.
    let mut blocked =
        |task: &mut Task, fd: u64, host: &mut Fake, command: u32, range: (u64, u64)| {
            asked(host, linux::F_WRLCK, range.0, range.1);
            let ask = registers(nr::fcntl, &[fd, u64::from(command), 0x10_0000]);
            returns(task, system, host, &ask) != 0
        };
    for (range, is) in [
        ((0, 1), true),
        ((9, 1), true),
        ((10, 90), false),
        ((149, 0), true),
    ] {
        assert_eq!(
            blocked(&mut other, 0, &mut host, linux::F_SETLK, range),
            is,
            "{range:?}"
        );
    }
    assert!(!blocked(&mut again, 4, &mut host, linux::F_SETLK, (0, 5)));
    assert!(!blocked(
        &mut again,
        4,
        &mut host,
        linux::F_OFD_SETLK,
        (100, 50)
    ));
    let exclusive = registers(nr::flock, &[0, u64::from(linux::LOCK_EX | linux::LOCK_NB)]);
    assert_eq!(
        returns(&mut other, system, &mut host, &exclusive),
        EAGAIN.rax() as i64
    );
    // The locks end with their owner.
    again.close_files(system, &mut host);
    assert_eq!(returns(&mut other, system, &mut host, &exclusive), 0);
    other.close_files(system, &mut host);
    nothing_is_left(system);
}

/// A file of `memfd_create` is restored with its contents, name and seals, for all that share its description.
#[test]
fn files_of_memory_come_with_the_tree() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    host.write_memory(0x10_0000, b"its name\0").unwrap();
    let allow = u64::from(linux::MFD_ALLOW_SEALING);
    assert_eq!(
        process.result(&mut host, nr::memfd_create, &[0x10_0000, allow]),
        0
    );
    assert_eq!(process.result(&mut host, nr::write, &[0, 0x10_0000, 8]), 8);
    let add = u64::from(linux::F_ADD_SEALS);
    let grow = u64::from(linux::F_SEAL_GROW);
    assert_eq!(process.result(&mut host, nr::fcntl, &[0, add, grow]), 0);
    let memfds: Vec<_> = process.system.memfds.values().cloned().collect();
    let saved = process.save(&mut host).unwrap();
    process.close_all(&mut host);
    assert!(process.system.memfds.is_empty());
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    let found: Vec<_> = again.system.memfds.values().cloned().collect();
    assert_eq!(found, memfds, "A6: name and seals are what they were");
    assert_eq!(
        again.result(&mut host, nr::pread64, &[0, 0x10_1000, 99, 0]),
        8
    );
    let mut text = [0; 8];
    host.read_memory(0x10_1000, &mut text).unwrap();
    assert_eq!(&text, b"its name");
    // The offset is restored, and the seal holds.
    assert_eq!(again.result(&mut host, nr::lseek, &[0, 0, 1]), 8);
    assert_eq!(
        again.result(&mut host, nr::write, &[0, 0x10_0000, 1]),
        EPERM.rax() as i64
    );
    assert_eq!(
        again.result(&mut host, nr::pwrite64, &[0, 0x10_0000, 8, 0]),
        8
    );
    again.close_all(&mut host);
    nothing_is_left(&again.system);
    // A file that is too large is refused.
    let mut host = Fake::new();
    let mut process = example(&mut host);
    assert_eq!(
        process.result(&mut host, nr::memfd_create, &[0x10_0000, 0]),
        0
    );
    let large = part::MAX_UNLINKED + 1;
    assert_eq!(process.result(&mut host, nr::ftruncate, &[0, large]), 0);
    let refused = process.save(&mut host).unwrap_err().sentence("", false);
    assert!(
        refused.starts_with("an open file without a name has"),
        "{refused}"
    );
}

/// A file that is opened again by the name of its descriptor is open until both descriptors are closed, in any order,
/// and in an image.
#[test]
fn what_is_open_twice_is_closed_with_the_last_one() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let before = host.opens;
    host.write_memory(0x10_0000, b"its name\0").unwrap();
    assert_eq!(
        process.result(&mut host, nr::memfd_create, &[0x10_0000, 0]),
        0
    );
    host.write_memory(0x10_0100, b"/proc/self/fd/0\0").unwrap();
    assert_eq!(process.result(&mut host, nr::open, &[0x10_0100, 0]), 1);
    assert_eq!(process.result(&mut host, nr::write, &[0, 0x10_0000, 8]), 8);
    let saved = process.save(&mut host).unwrap();
    let rule = "a file is open until its last descriptor goes";
    for fd in [0, 1] {
        assert_eq!(host.opens, before + 1, "{rule}");
        let read = [1, 0x10_1000, 99];
        let expected = if fd == 0 { 8 } else { 0 };
        assert_eq!(process.result(&mut host, nr::read, &read), expected);
        assert_eq!(process.result(&mut host, nr::close, &[fd]), 0);
    }
    assert_eq!((host.opens, process.system.memfds.len()), (before, 0));
    nothing_is_left(&process.system);
    let mut again = One::adopt(&saved, 0, &mut host).unwrap();
    assert_eq!(again.system.memfds.len(), 1);
    assert_eq!(again.result(&mut host, nr::close, &[0]), 0);
    assert_eq!(again.system.memfds.len(), 1, "{rule}");
    assert_eq!(again.result(&mut host, nr::read, &[1, 0x10_1000, 99]), 8);
    again.close_all(&mut host);
    nothing_is_left(&again.system);
    assert_eq!(host.opens, before, "{rule}");
}

/// Each open of a pipe by a descriptor's name is one more end.
#[test]
fn a_pipe_is_opened_by_the_name_of_a_descriptor() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    assert_eq!(process.result(&mut host, nr::pipe, &[0x10_0000]), 0);
    host.write_memory(0x10_0100, b"/proc/self/fd/0\0").unwrap();
    let (reads, writes) = (0, 1);
    let also = process.result(&mut host, nr::open, &[0x10_0100, 1]) as u64;
    assert_eq!(
        (also, process.result(&mut host, nr::close, &[writes])),
        (2, 0)
    );
    let read = [reads, 0x10_1000, 8];
    let rule = "there is no end while somebody can write";
    assert!(
        matches!(
            process.call(&mut host, &registers(nr::read, &read)),
            Outcome::Park(_)
        ),
        "{rule}"
    );
    assert_eq!(
        process.result(&mut host, nr::write, &[also, 0x10_0000, 3]),
        3
    );
    assert_eq!(process.result(&mut host, nr::read, &read), 3);
    assert_eq!(process.result(&mut host, nr::close, &[also]), 0);
    assert_eq!(
        process.result(&mut host, nr::read, &read),
        0,
        "it is at its end"
    );
    process.close_all(&mut host);
    nothing_is_left(&process.system);
}

/// Memory that processes share is shared again, and a task that waits at a word of it is woken by the other process.
#[test]
fn shared_memory_comes_with_the_tree() {
    let mut host = Fake::new();
    let mut root = example(&mut host);
    let at = map_shared(&mut root, &mut host, u64::MAX) as u64;
    root.result(&mut host, nr::fork, &[]);
    let mut child = child_of(&mut root, &mut host);
    let wait = registers(nr::futex, &[at + 8, u64::from(linux::FUTEX_WAIT), 0, 0]);
    let parked = emulate::call(&mut child, &mut root.system, &mut host, &wait);
    assert!(matches!(parked, Outcome::Park(_)));
    let tasks = [(FIRST, &root.task), (FIRST, &child)];
    let saved = save(&tasks, None, &root.system, &mut host).unwrap();
    let mut system = System::new();
    for _ in 0..9 {
        // Nothing has the identity that it had.
        system.new_identity();
    }
    let pid = system.create(None).unwrap();
    for wrong in [(2, 0), (2, 2), (1, 1)] {
        assert!(part::adopt(&saved, wrong, 0, pid, &mut system, &mut host).is_err());
    }
    host.adopted = vec![BTreeMap::from([(5, 55)])];
    let adopted = part::adopt(&saved, (2, 1), 0, pid, &mut system, &mut host).unwrap();
    let mut tasks: Vec<Task> = adopted.tasks.into_iter().map(|s| s.task).collect();
    let ids = |task: &Task| {
        task.shares
            .memory
            .borrow()
            .objects
            .ids()
            .collect::<Vec<_>>()
    };
    let id = ids(&tasks[0])[0];
    assert_eq!(
        (ids(&tasks[0]), ids(&tasks[1])),
        (vec![id], vec![id]),
        "A6: both have one"
    );
    assert_ne!(ids(&root.task), [id]);
    assert_eq!(host.objects[&id], host.adopted[0]);
    let area = *tasks[1].shares.memory.borrow().areas.find(at).unwrap();
    assert_eq!(area.object(), Some(id));
    let wake = registers(nr::futex, &[at + 8, u64::from(linux::FUTEX_WAKE), 9]);
    let woken = returns(&mut tasks[0], &mut system, &mut host, &wake);
    assert_eq!(woken, 1, "A6: who waited waits");
    assert_eq!(system.futexes.take_granted(), [tasks[1].tid]);
    for mut task in tasks {
        task.close_files(&mut system, &mut host);
    }
    settle(&mut system, &mut host);
    nothing_is_left(&system);
    assert!(!host.objects.contains_key(&id));
    child.close_files(&mut root.system, &mut host);
    root.close_all(&mut host);
}

/// The image has a mapped file as programs see it. If another process maps it at the checkpoint or at the restore, that
/// is refused.
#[test]
fn mapped_files_come_with_the_tree() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    host.write_memory(0x10_0000, b"written").unwrap();
    let write =
        |one: &mut One, host: &mut Fake| one.result(host, nr::pwrite64, &[4, 0x10_0000, 7, 0]);
    assert_eq!(write(&mut process, &mut host), 7);
    let read = |one: &mut One, host: &mut Fake| {
        assert_eq!(one.result(host, nr::pread64, &[4, 0x10_1000, 7, 0]), 7);
        let mut bytes = [0; 7];
        host.read_memory(0x10_1000, &mut bytes).unwrap();
        bytes
    };
    assert!(map_shared(&mut process, &mut host, 4) > 0);
    let id = process.memory().objects.ids().next().unwrap();
    host.write_object(id, 0, b"stored!").unwrap();
    // A caller waits until it is written back.
    assert!(process.system.objects.write_back(id, true).is_some());
    let saved = process.save(&mut host).unwrap();
    // Another process maps it.
    let open = process.files().fds[4].description.borrow().clone();
    let mut other = One::new("/tmp");
    other.memory().areas = Areas::default();
    let pid = process.system.create(None).unwrap();
    other.task.pid = pid;
    other.files().install(4, open, false);
    core::mem::swap(&mut other.system, &mut process.system);
    host.slots.clear();
    assert!(map_shared(&mut other, &mut host, 4) > 0);
    core::mem::swap(&mut other.system, &mut process.system);
    let refused = process.save(&mut host).unwrap_err();
    assert!(matches!(refused, part::Refusal::Shared(_)), "{refused:?}");
    let both = [&process.task, &other.task];
    let common = part::Common::of([both[0]].into_iter(), &process.system);
    assert!(common.has(both[1], &process.system));
    let root = process.system.create(None).unwrap();
    host.adopted = vec![host.objects[&id].clone()];
    // The file is as in the image, so it is not made again.
    let ino = process.files().get(4).unwrap().ino().unwrap();
    host.session.write(ino, 0, b"stored!").unwrap();
    let refused = part::adopt(&saved, (1, 1), 0, root, &mut process.system, &mut host);
    assert_eq!(
        refused.unwrap_err(),
        "somebody else has mapped one of its files now"
    );
    assert_eq!(process.system.counted_things(Thing::Object), 1);
    // A restore in another machine.
    let mut system = System::new();
    for _ in 0..1000 {
        system.new_identity();
    }
    let pid = system.create(None).unwrap();
    let mut adopted = part::adopt(&saved, (1, 1), 0, pid, &mut system, &mut host).unwrap();
    let task = adopted.tasks.remove(0).task;
    let mut again = One { task, system };
    assert_eq!(
        &read(&mut again, &mut host),
        b"stored!",
        "A6: the file is what it was"
    );
    let id = again.memory().objects.ids().next().unwrap();
    let is_due = again.system.objects.is_due() && again.system.objects.is_behind(id, 1);
    assert!(is_due, "A6: it is still written back");
    settle(&mut again.system, &mut host);
    assert!(!again.system.objects.is_behind(id, 1));
    // What is written to the file is in the memory, too.
    assert_eq!(write(&mut again, &mut host), 7);
    let mut bytes = [0; 7];
    host.read_object(id, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"written");
    again.close_all(&mut host);
    let One { task, mut system } = again;
    drop(task);
    settle(&mut system, &mut host);
    nothing_is_left(&system);
}

/// A terminal is restored with its settings, size, input, output, session and number, though another terminal has that
/// number.
#[test]
fn terminals_come_with_the_tree() {
    use linux_raw_sys::ioctl::{TIOCGPGRP, TIOCGPTN, TIOCGWINSZ, TIOCSCTTY, TIOCSWINSZ};
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let pid = process.task.pid;
    process.system.process(pid).session = process.task.number;
    let (master, slave) = terminal(&mut process, &mut host);
    let (master, slave) = (master as u64, slave as u64);
    let ioctl = |one: &mut One, host: &mut Fake, fd: u64, request: u32| {
        one.result(host, nr::ioctl, &[fd, u64::from(request), 0x10_0000])
    };
    assert_eq!(ioctl(&mut process, &mut host, slave, TIOCSCTTY), 0);
    host.write_memory(0x10_0000, &[44, 0, 99, 0, 0, 0, 0, 0])
        .unwrap();
    assert_eq!(ioctl(&mut process, &mut host, slave, TIOCSWINSZ), 0);
    host.write_memory(0x10_0000, b"one\ntwo\nthr").unwrap();
    assert_eq!(
        process.result(&mut host, nr::write, &[master, 0x10_0000, 11]),
        11
    );
    assert_eq!(
        process.result(&mut host, nr::write, &[slave, 0x10_0000, 3]),
        3
    );
    let saved = process.save(&mut host).unwrap();
    process.close_all(&mut host);
    let mut system = System::new();
    // The terminal of another tree.
    let other = system.create(None).unwrap();
    let payer = system.find(other).unwrap().payer;
    let taken = system.new_pty(other, payer).unwrap();
    assert_eq!(taken.0, 0);
    let pid = system.create(None).unwrap();
    let mut adopted = part::adopt(&saved, (1, 0), 0, pid, &mut system, &mut host).unwrap();
    let task = adopted.tasks.remove(0).task;
    let mut again = One { task, system };
    let told = |one: &mut One, host: &mut Fake, fd: u64, request: u32| {
        assert_eq!(ioctl(one, host, fd, request), 0);
        let mut bytes = [0; 8];
        host.read_memory(0x10_0000, &mut bytes).unwrap();
        bytes
    };
    assert_eq!(
        told(&mut again, &mut host, slave, TIOCGWINSZ),
        [44, 0, 99, 0, 0, 0, 0, 0]
    );
    let number = told(&mut again, &mut host, master, TIOCGPTN);
    assert_eq!(number[..4], [0; 4], "A6: its number is what it was");
    let group = told(&mut again, &mut host, slave, TIOCGPGRP);
    assert_eq!(
        group[..4],
        again.task.number.to_le_bytes(),
        "A6: it is the session's"
    );
    let read = |one: &mut One, host: &mut Fake, fd: u64| {
        let got = one.result(host, nr::read, &[fd, 0x10_1000, 99]);
        let mut bytes = vec![0; got.max(0) as usize];
        host.read_memory(0x10_1000, &mut bytes).unwrap();
        bytes
    };
    assert_eq!(read(&mut again, &mut host, slave), b"one\n");
    host.write_memory(0x10_0000, b"ee\n").unwrap();
    assert_eq!(
        again.result(&mut host, nr::write, &[master, 0x10_0000, 3]),
        3
    );
    assert_eq!(read(&mut again, &mut host, slave), b"two\n");
    assert_eq!(read(&mut again, &mut host, slave), b"three\n");
    assert_eq!(
        read(&mut again, &mut host, master),
        b"one\r\ntwo\r\nthroneee\r\n"
    );
    // The slave is opened by that number, and new terminals have others.
    host.write_memory(0x10_0000, b"/dev/pts/0\0").unwrap();
    assert!(again.result(&mut host, nr::open, &[0x10_0000, 2]) > 0);
    let (second, _) = terminal(&mut again, &mut host);
    assert!(told(&mut again, &mut host, second as u64, TIOCGPTN)[..4] > [0; 4][..]);
    again.close_all(&mut host);
    again.system.close_pty(taken.0, true);
    nothing_is_left(&again.system);
}

/// A tree that shares a terminal with a process of another tree is refused, with a sentence.
#[test]
fn a_terminal_that_others_have_is_refused() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    let (_, slave) = terminal(&mut process, &mut host);
    let slave = process.files().fds[slave as u32]
        .description
        .borrow()
        .clone();
    let other = One::new("/tmp");
    let FileKind::Pty { number, .. } = slave.kind else {
        panic!("{:?}", slave.kind)
    };
    process.system.open_pty(number, false);
    other.files().install(0, slave, false);
    let refused = process.save(&mut host).unwrap_err();
    let sentence = refused.sentence("other (2)", false);
    let process_number = process.task.number;
    assert_eq!(
        sentence,
        std::format!("it shares the terminal at descriptor 0 of process {process_number} with other (2), which is not saved with it")
    );
    // If both trees were named, the sentence does not say that the other is missing.
    let sentence = refused.sentence("other (2)", true);
    let end = "with other (2), in another tree, which cannot be saved together with it";
    assert!(sentence.ends_with(end), "{sentence}");
    let common = part::Common::of([&process.task].into_iter(), &process.system);
    assert!(common.has(&other.task, &process.system));
}
