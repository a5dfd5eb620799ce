//! Programs that watch files with inotify: what they are told, the bounds, saving and restoring.

use super::*;
use crate::inotify::CAPACITY;
use std::format;

const PATH: u64 = 0x10_0000;
const OTHER: u64 = 0x10_1000;
const BUFFER: u64 = 0x10_2000;
const ROOM: u64 = 0x1000;

/// Writes the two paths to [`PATH`] and [`OTHER`], makes the call, and returns its result.
fn with_paths(
    process: &mut One,
    host: &mut Fake,
    (path, other): (&str, &str),
    number: u64,
    arguments: &[u64],
) -> i64 {
    host.write_memory(PATH, format!("{path}\0").as_bytes())
        .unwrap();
    host.write_memory(OTHER, format!("{other}\0").as_bytes())
        .unwrap();
    process.result(host, number, arguments)
}

/// Makes a nonblocking instance whose watch 1 is `path`, and returns its descriptor.
fn watching(process: &mut One, host: &mut Fake, path: &str, asks: u32) -> u64 {
    let fd = process.result(host, nr::inotify_init1, &[0o4000]) as u64;
    let made = with_paths(
        process,
        host,
        (path, ""),
        nr::inotify_add_watch,
        &[fd, PATH, u64::from(asks)],
    );
    assert_eq!(made, 1);
    fd
}

/// Reads all events that are queued: watch, mask and name of each.
fn told(process: &mut One, host: &mut Fake, fd: u64) -> Vec<(i32, u32, String)> {
    let mut all = Vec::new();
    loop {
        let got = process.result(host, nr::read, &[fd, BUFFER, ROOM]);
        if got < 0 {
            assert_eq!(got, EAGAIN.rax() as i64);
            return all;
        }
        let mut bytes = vec![0; got as usize];
        host.read_memory(BUFFER, &mut bytes).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let word = |at| crate::wire::u32_at(rest, at);
            let length = 16 + word(12) as usize;
            let name = rest[16..length].split(|byte| *byte == 0).next().unwrap();
            let name = String::from_utf8(name.to_vec()).unwrap();
            all.push((word(0) as i32, word(4), name));
            rest = &rest[length..];
        }
    }
}

fn make(process: &mut One, host: &mut Fake, path: &str) {
    assert_eq!(
        with_paths(process, host, (path, ""), nr::mkdir, &[PATH, 0o755]),
        0
    );
}

#[test]
fn what_is_watched_and_by_how_many_has_an_end() {
    let mut host = Fake::new();
    host.session = Session::new(&host.files, 1, 1 << 20);
    let mut process = example(&mut host);
    let before = host.opens;
    let mut instances = 0;
    let error = loop {
        match process.result(&mut host, nr::inotify_init, &[]) {
            made if made < 0 => break made,
            _ => instances += 1,
        }
    };
    let full = EMFILE.rax() as i64;
    assert_eq!((error, instances), (full, 128), "S3: instances of a tree");
    let mut watched = 0;
    let error = 'full: loop {
        make(&mut process, &mut host, &format!("/tmp/{watched}"));
        for fd in [5, 6, 7] {
            let add = [fd, PATH, u64::from(linux::IN_ALL_EVENTS)];
            match process.result(&mut host, nr::inotify_add_watch, &add) {
                made if made < 0 => break 'full made,
                _ => watched += 1,
            }
        }
    };
    let full = ENOSPC.rax() as i64;
    assert_eq!(
        (error, watched),
        (full, 1024),
        "S4: files that a tree watches"
    );
    // Three instances watch each file, which is open once.
    assert_eq!(host.opens - before, 342);
    process.close_all(&mut host);
    assert!(process.system.is_without_inotify());
    assert_eq!(host.opens, before - 1);
}

/// Many events that nobody reads fill bounded queues.
#[test]
fn what_is_not_read_has_an_end() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    make(&mut process, &mut host, "/tmp/d");
    let asks = linux::IN_CREATE | linux::IN_DELETE;
    let fds: Vec<u64> = (0..12)
        .map(|_| watching(&mut process, &mut host, "/tmp/d", asks))
        .collect();
    let name = "n".repeat(200);
    for n in 0..400 {
        let path = format!("/tmp/d/{name}{n}");
        make(&mut process, &mut host, &path);
        let gone = with_paths(&mut process, &mut host, (&path, ""), nr::rmdir, &[PATH]);
        assert_eq!(gone, 0);
    }
    let ids = process.files();
    let lengths: Vec<usize> = fds
        .iter()
        .map(|fd| match ids.get(*fd as u32).unwrap().kind {
            FileKind::Inotify { id } => process.system.inotify.queue(id).unwrap().len(),
            _ => panic!(),
        })
        .collect();
    drop(ids);
    let most: Vec<bool> = lengths
        .iter()
        .enumerate()
        .map(|(n, length)| *length <= 16 + if n < 8 { CAPACITY } else { CAPACITY / 8 })
        .collect();
    assert!(
        most.iter().all(|fits| *fits) && lengths[0] > CAPACITY - 300,
        "S5: what waits to be read has an end: {lengths:?}"
    );
    let all = told(&mut process, &mut host, fds[0]);
    assert_eq!(all.last().unwrap().1, linux::IN_Q_OVERFLOW);
    // An event for which there is no memory is lost; the removal succeeds, and events before it stay.
    host.room = 10 << 10;
    make(&mut process, &mut host, "/tmp/d/x");
    host.room = 100;
    let gone = with_paths(
        &mut process,
        &mut host,
        ("/tmp/d/x", ""),
        nr::rmdir,
        &[PATH],
    );
    assert_eq!(gone, 0);
    host.room = u64::MAX;
    let all = told(&mut process, &mut host, fds[0]);
    assert_eq!(all[0].1, linux::IN_CREATE | linux::IN_ISDIR);
    process.close_all(&mut host);
    assert!(process.system.is_without_inotify());
}

/// A watched directory that is removed between the checkpoint and the restore is reported at the restore, and the other
/// one is watched again.
#[test]
fn what_has_gone_meanwhile_is_told_of() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    make(&mut process, &mut host, "/tmp/d");
    make(&mut process, &mut host, "/tmp/e");
    let asks = linux::IN_CREATE | linux::IN_DELETE_SELF;
    let fd = watching(&mut process, &mut host, "/tmp/d", asks);
    let add = [fd, PATH, u64::from(asks)];
    let made = with_paths(
        &mut process,
        &mut host,
        ("/tmp/e", ""),
        nr::inotify_add_watch,
        &add,
    );
    assert_eq!(made, 2);
    make(&mut process, &mut host, "/tmp/d/before");
    let saved = process.save(&mut host).unwrap();
    process.close_all(&mut host);
    let before = host.opens;
    host.session.rmdir("/tmp/e").unwrap();
    let mut process = One::adopt(&saved, 0, &mut host).unwrap();
    make(&mut process, &mut host, "/tmp/d/after");
    let directory = linux::IN_CREATE | linux::IN_ISDIR;
    let expected = [
        (1, directory, "before".to_string()),
        (2, linux::IN_DELETE_SELF, String::new()),
        (2, linux::IN_IGNORED, String::new()),
        (1, directory, "after".to_string()),
    ];
    assert_eq!(
        told(&mut process, &mut host, fd),
        expected,
        "R1: a restored watch is told of what has gone"
    );
    // The next watch has the next number.
    make(&mut process, &mut host, "/tmp/f");
    assert_eq!(
        process.result(&mut host, nr::inotify_add_watch, &add),
        3,
        "R2: numbers of watches are not used twice"
    );
    process.close_all(&mut host);
    assert_eq!(host.opens, before);
}

/// Random watches, file operations, reads, saves and restores: every call ends, queues are bounded, and when all is
/// closed nothing is left.
#[test]
fn wild_watches_of_files_end() {
    let mut restored = 0;
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let mut host = Fake::new();
        let mut process = example(&mut host);
        for _ in 0..500 {
            let names = [
                "/tmp/a",
                "/tmp/d",
                "/tmp/d/a",
                "/tmp/d/e",
                "/tmp/d/e/x",
                "/tmp",
            ];
            let (path, other) = (random.choice(names).unwrap(), random.choice(names).unwrap());
            let (fd, to) = (random.u64(..16), random.u64(5..16));
            let masks = [
                linux::IN_ALL_EVENTS,
                linux::IN_ALL_EVENTS | linux::IN_EXCL_UNLINK,
                linux::IN_ALL_EVENTS | linux::IN_ONESHOT,
                linux::IN_CREATE | linux::IN_MASK_ADD,
                linux::IN_DELETE_SELF | linux::IN_MASK_CREATE,
                random.u32(..1 << 12),
            ];
            let mask = u64::from(random.choice(masks).unwrap());
            let add = [fd, PATH, mask];
            let open = [PATH, random.u64(..3) | (0o100 * random.u64(..2)), 0o644];
            let (number, arguments): (u64, &[u64]) = match random.u32(..24) {
                0 => (nr::inotify_init1, &[0o4000]),
                1..=4 => (nr::inotify_add_watch, &add),
                5 => (nr::inotify_rm_watch, &[fd, random.u64(1..9)]),
                6..=8 => (nr::open, &open),
                9 => (nr::close, &[fd]),
                10 => (nr::dup2, &[fd, to]),
                11 => (nr::read, &[fd, BUFFER, random.u64(..600)]),
                12 => (nr::write, &[fd, BUFFER, 8]),
                13 => (nr::mkdir, &[PATH, 0o755]),
                14 => (nr::rmdir, &[PATH]),
                15..=16 => (nr::unlink, &[PATH]),
                17..=18 => (nr::rename, &[PATH, OTHER]),
                19 => (nr::link, &[PATH, OTHER]),
                20 => (nr::chmod, &[PATH, 0o600]),
                21 => (nr::getdents64, &[fd, BUFFER, 600]),
                22 => (nr::ftruncate, &[fd, 3]),
                _ => (nr::mknod, &[PATH, 0o010_644]),
            };
            host.write_memory(PATH, format!("{path}\0").as_bytes())
                .unwrap();
            host.write_memory(OTHER, format!("{other}\0").as_bytes())
                .unwrap();
            match process.call(&mut host, &registers(number, arguments)) {
                Outcome::End(_) => break,
                _ => process.task.wait = None,
            }
            process.system.leave_queues(process.task.tid);
            if random.u32(..25) == 0 {
                // Saving is refused while a removed directory is open.
                let Ok(saved) = process.save(&mut host) else {
                    continue;
                };
                process.close_all(&mut host);
                assert!(process.system.is_without_inotify(), "{seed}");
                process = One::adopt(&saved, 0, &mut host).unwrap();
                restored += 1;
            }
        }
        process.close_all(&mut host);
        assert!(process.system.is_without_inotify(), "{seed}");
    }
    assert!(restored > 100, "{restored}");
}

#[test]
fn altered_parts_with_watches_are_refused_or_sound() {
    let mut host = Fake::new();
    let mut process = example(&mut host);
    make(&mut process, &mut host, "/tmp/d");
    let fd = watching(&mut process, &mut host, "/tmp/d", linux::IN_ALL_EVENTS);
    let other = watching(&mut process, &mut host, "/tmp/d", linux::IN_ONESHOT | 1);
    let add = [other, PATH, u64::from(linux::IN_ALL_EVENTS)];
    process.result(&mut host, nr::inotify_add_watch, &add);
    make(&mut process, &mut host, "/tmp/d/e");
    let file = [fd, PATH, u64::from(linux::IN_ALL_EVENTS)];
    let paths = ("/tmp/file", "");
    with_paths(&mut process, &mut host, paths, nr::inotify_add_watch, &file);
    // The file that is open has no name any more.
    with_paths(&mut process, &mut host, paths, nr::unlink, &[PATH]);
    let saved = process.save(&mut host).unwrap();
    for length in 0..saved.len() {
        assert!(One::adopt(&saved[..length], 0, &mut host).is_err());
    }
    let mut random = Rng::with_seed(5);
    let mut taken = 0;
    for _ in 0..10_000 {
        let altered = altered(&saved, &mut random);
        if let Ok(mut process) = One::adopt(&altered, 0, &mut host) {
            taken += 1;
            for fd in 3..8 {
                let _ = process.call(&mut host, &registers(nr::read, &[fd, BUFFER, ROOM]));
                process.task.wait = None;
                let chmod = registers(nr::fchmod, &[fd, 0o600]);
                let _ = process.call(&mut host, &chmod);
            }
            process.close_all(&mut host);
            assert!(process.system.is_without_inotify());
        }
    }
    assert!(taken > 0);
}

/// A removal waits for the disk before and after it unlinks the name, and another task adds or removes a watch
/// meanwhile: the name is removed once.
#[test]
fn what_is_removed_is_removed_once_whoever_watches_meanwhile() {
    for (begins, changes) in [(true, 1), (false, 1), (false, 2), (false, 3)] {
        let mut host = Fake::new();
        let mut process = example(&mut host);
        make(&mut process, &mut host, "/tmp/d");
        make(&mut process, &mut host, "/tmp/d/e");
        let fd = process.result(&mut host, nr::inotify_init1, &[0o4000]) as u64;
        let FileKind::Inotify { id } = process.files().get(fd as u32).unwrap().kind else {
            panic!();
        };
        let open = Request::Open {
            path: "/tmp/d".into(),
            flags: Flags::default(),
            mode: 0,
        };
        let Ok((Reply::Opened(opened), _)) = host.fs(&open, &[], &mut []) else {
            panic!();
        };
        let asks = linux::IN_DELETE;
        let watch = |process: &mut One| process.system.watch_file(id, (opened.ino, true), asks);
        if !begins {
            watch(&mut process).unwrap();
        }
        host.write_memory(PATH, b"/tmp/d/e\0").unwrap();
        host.late = Some(Late::new());
        let mut attempts = 0;
        let result = loop {
            let late = host.late.as_mut().unwrap();
            late.begin(1);
            match process.call(&mut host, &registers(nr::rmdir, &[PATH])) {
                Outcome::Go { registers, .. } => break registers.rax as i64,
                Outcome::Park(_) => attempts += 1,
                outcome => panic!("{outcome:?}"),
            }
            if attempts == changes {
                let late = host.late.take();
                match begins {
                    true => assert_eq!(watch(&mut process), Ok((1, true))),
                    false => process
                        .system
                        .remove_watch_of_file(&mut host, id, 1)
                        .unwrap(),
                }
                host.late = late;
            }
        };
        assert_eq!(
            result, 0,
            "A1: what was removed is removed again: {begins} {changes}"
        );
        assert!(attempts >= changes);
    }
}
