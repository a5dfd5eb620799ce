//! The queue, and the worker turn by turn: many clients, clients that end, and requests that are synced together.

use super::{wanted, Desk, Gate, Remote, Worker};
use crate::tests::{fresh, mount, Memory};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use proto::Error;
use services::fs::{pair, FilesClient, FilesLater, Flags, ATTR_ROOM};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

extern crate std;

const CREATE: u32 = Flags {
    create: true,
    exclusive: false,
    truncate: false,
    nofollow: false,
    symlink: false,
    nameless: false,
}
.bits();

std::thread_local! {
    /// The time of a test, in milliseconds.
    static TIME: Cell<u64> = const { Cell::new(0) };
}

fn clock() -> u64 {
    TIME.get() * 1_000_000
}

fn pass(milliseconds: u64) {
    TIME.set(TIME.get() + milliseconds);
}

type Later<T> = Pin<Box<dyn Future<Output = Result<T, Error>>>>;

struct Machine {
    disk: Memory,
    desk: Arc<Desk<Memory>>,
    worker: Worker<Memory>,
}

impl Machine {
    fn new() -> Self {
        let (disk, volume) = fresh();
        let desk = Arc::new(Desk::new());
        let worker = Worker::new(Arc::clone(&desk), Ok(volume), clock);
        Machine { disk, desk, worker }
    }

    fn client(&self) -> Rc<Remote<Memory>> {
        Rc::new(Remote::new(&self.desk, 8).expect("a session"))
    }

    /// Waits for a request: the worker does all requests before it.
    fn wait<T>(&mut self, mut asked: Later<T>) -> Result<T, Error> {
        loop {
            if let Poll::Ready(result) = poll(&mut asked) {
                return result;
            }
            assert!(self.worker.turn(), "nobody works for who waits");
        }
    }

    fn open(&mut self, client: &Rc<Remote<Memory>>, path: &'static str) -> u64 {
        let asked = later(client, move |c| async move {
            c.open_file(CREATE, 0o644, path.into()).await
        });
        self.wait(asked).expect("a file").0
    }
}

/// A request of a client that has not been polled yet.
fn later<T, F: Future<Output = Result<T, Error>> + 'static>(
    client: &Rc<Remote<Memory>>,
    ask: impl FnOnce(Rc<Remote<Memory>>) -> F,
) -> Later<T> {
    Box::pin(ask(Rc::clone(client)))
}

fn poll<T>(asked: &mut Later<T>) -> Poll<Result<T, Error>> {
    asked.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// A file system that could not be mounted for lack of memory is mounted when there is some.
#[test]
fn want_of_memory_is_not_for_ever() {
    let (disk, volume) = fresh();
    drop(volume);
    let desk = Arc::new(Desk::new());
    let (again, mut tries) = (disk.clone(), 0);
    let worker = Worker::new(Arc::clone(&desk), Err(Error::NoMemory), clock).or_later(move || {
        tries += 1;
        match tries {
            1 => Err(Error::NoMemory),
            _ => mount(&again),
        }
    });
    let mut machine = Machine { disk, desk, worker };
    let client = machine.client();
    for expected in [Err(Error::NoMemory), Ok(())] {
        let asked = later(&client, |c| async move {
            c.stat(true, "/disk".into(), ATTR_ROOM).await
        });
        assert_eq!(machine.wait(asked).map(drop), expected);
    }
}

/// A close is not refused for lack of memory: the client forgets the file all the same, and it would stay open here
/// until the session ends.
#[test]
fn what_is_closed_takes_no_memory() {
    for (method, number) in FilesClient::METHODS.iter().zip(1..) {
        let frees = method.name.starts_with("close");
        let wanted = wanted(number, 100);
        assert_eq!(wanted.is_none(), frees, "S2: {}: {wanted:?}", method.name);
    }
    let machine = Machine::new();
    let clients: Vec<_> = (0..100).map(|_| machine.client()).collect();
    let room = machine.desk.work.lock().asked.capacity();
    assert!(room >= clients.len(), "S2: room for {room} requests");
}

/// A disk that could not be read is mounted when it can be, and tried again after pauses that double from a second; one
/// with something else on it is not tried again.
#[test]
fn a_disk_that_is_silent_at_first_is_not_so_for_ever() {
    let (disk, volume) = fresh();
    drop(volume);
    // Any read of a mount can fail, and the disk may still be good.
    let before = disk.reads();
    mount(&disk).expect("a volume");
    for read in 0..disk.reads() - before {
        disk.fail(read);
        assert_eq!(mount(&disk).err(), Some(Error::Broken), "read {read}");
    }
    for (why, tries) in [(Error::Broken, 3), (Error::BadFormat, 0)] {
        let desk = Arc::new(Desk::new());
        let again = disk.clone();
        let count = Rc::new(Cell::new(0));
        let counted = Rc::clone(&count);
        let worker = Worker::new(Arc::clone(&desk), Err(why), clock).or_later(move || {
            counted.set(counted.get() + 1);
            match counted.get() {
                1 | 2 => Err(why),
                _ => mount(&again),
            }
        });
        let mut machine = Machine {
            disk: disk.clone(),
            desk,
            worker,
        };
        let client = machine.client();
        let ask = |machine: &mut Machine| {
            let asked = later(&client, |c| async move {
                c.stat(true, "/disk".into(), ATTR_ROOM).await
            });
            machine.wait(asked).map(drop)
        };
        for second in 1..=3 {
            for _ in 0..5 {
                assert_eq!(ask(&mut machine), Err(why), "{why:?}, {second}");
                assert!(count.get() < second.min(tries + 1), "{why:?}, {second}");
            }
            // Each pause is twice as long as the one before it.
            pass(1000 << (second - 1));
        }
        let last = if tries == 0 { Err(why) } else { Ok(()) };
        assert_eq!(ask(&mut machine), last);
        assert_eq!(count.get(), tries, "{why:?}");
    }
}

/// Data written to a file that stays open, and that no client syncs, survives a loss of power some seconds later. While
/// there is nothing to write back the worker waits without a deadline.
#[test]
fn what_is_written_is_durable_some_seconds_later() {
    let mut machine = Machine::new();
    let one = machine.client();
    let file = machine.open(&one, "/disk/log");
    assert!(!machine.worker.turn());
    assert_eq!(machine.worker.due, None, "a name is durable at once");
    let kept = |machine: &Machine| {
        let mut volume = mount(&Memory::new(machine.disk.content())).expect("a volume");
        crate::tests::read(&mut volume, "/disk/log")
            .expect("a file")
            .len()
    };
    let write = |machine: &mut Machine, at: u64| {
        let asked = later(&one, move |c| async move {
            c.write(file, at, vec![1; 100]).await
        });
        assert_eq!(machine.wait(asked), Ok(100));
    };
    // Further writes do not delay writing the first one back.
    for n in 0..5 {
        write(&mut machine, n * 100);
        assert_eq!(kept(&machine), 0, "not at once");
        let due = machine.worker.due.expect("something to write back");
        assert!(due <= clock() + 5_000_000_000);
        pass(1000);
    }
    let flushes = machine.disk.flushes();
    // There are no requests: the worker's deadline has passed.
    assert!(clock() >= machine.worker.due.expect("a deadline"));
    assert!(!machine.worker.turn());
    assert!(machine.disk.flushes() > flushes);
    assert_eq!((machine.worker.due, kept(&machine)), (None, 500));
    // Data that was synced or closed before is not written a second time.
    write(&mut machine, 500);
    let sync = later(&one, move |c| async move { c.sync(file).await });
    assert_eq!(machine.wait(sync), Ok(()));
    assert_eq!(machine.worker.due, None);
    let flushes = machine.disk.flushes();
    pass(60_000);
    assert!(!machine.worker.turn());
    assert_eq!(machine.disk.flushes(), flushes, "there is nothing to write");
}

/// While the worker waits for the disk the other thread refuses requests, and opens and ends sessions; requests for the
/// disk wait.
#[test]
fn nobody_waits_but_who_asked() {
    let mut machine = Machine::new();
    let one = machine.client();
    let file = machine.open(&one, "/disk/a");
    let mut slow = later(&one, move |c| async move {
        c.write(file, 0, vec![1; 5000]).await
    });
    assert_eq!(poll(&mut slow), Poll::Pending);
    // The disk does not answer from here on.
    let two = machine.client();
    let mut none = later(&two, move |c| async move { c.attributes(file, 100).await });
    assert_eq!(poll(&mut none), Poll::Ready(Err(Error::NotFound)));
    let mut wrong = later(&two, |c| async move {
        c.open_file(u32::MAX, 0, "/disk/b".into()).await
    });
    assert_eq!(poll(&mut wrong), Poll::Ready(Err(Error::Invalid)));
    let mut torn = later(
        &two,
        |c| async move { c.rename(99, "/disk/a".into()).await },
    );
    assert_eq!(poll(&mut torn), Poll::Ready(Err(Error::Invalid)));
    let mut other = later(&two, |c| async move {
        c.stat(true, "/disk/a".into(), ATTR_ROOM).await
    });
    assert_eq!(poll(&mut other), Poll::Pending);
    assert_eq!(machine.desk.waiting(), 2);
    // Now it does, and each client gets its answer.
    assert_eq!(machine.wait(slow), Ok(5000));
    let attr = services::fs::attr(&machine.wait(other).expect("attributes"));
    assert_eq!(attr.expect("attributes").size, 5000);
}

/// A client that ends while its request waits leaves nothing: the request is not done, and what the client had open is
/// closed. A client whose request is under way leaves nothing, too.
#[test]
fn clients_end_while_their_requests_wait() {
    let mut machine = Machine::new();
    let other = machine.client();
    for round in 0..200 {
        let one = machine.client();
        machine.open(&one, "/disk/held");
        let unlink = later(
            &other,
            |c| async move { c.unlink("/disk/held".into()).await },
        );
        machine.wait(unlink).expect("unlinked");
        let mut asked = later(&one, |c| async move {
            c.mkdir(0o755, "/disk/never".into()).await
        });
        assert_eq!(poll(&mut asked), Poll::Pending);
        drop(asked);
        assert_eq!(machine.desk.waiting(), 0, "round {round}");
        // The request is under way when the client ends, and opens a file in a session that is gone.
        let mut asked = later(&one, |c| async move {
            c.open_file(CREATE, 0o644, "/disk/held".into()).await
        });
        assert_eq!(poll(&mut asked), Poll::Pending);
        if round % 2 == 0 {
            machine.worker.turn();
        }
        drop((asked, one));
        machine.worker.turn();
        assert!(machine.worker.sessions.len() <= 1, "round {round}");
    }
    let gone = later(&other, |c| async move {
        c.stat(true, "/disk/never".into(), ATTR_ROOM).await
    });
    assert_eq!(machine.wait(gone), Err(Error::NotFound));
    // The open file without a name is gone: the last round has left nothing.
    let usage = later(&other, |c| async move { c.usage().await });
    let (_, files, ..) = machine.wait(usage).expect("usage");
    let mut again = Machine::new();
    let client = again.client();
    let usage = later(&client, |c| async move { c.usage().await });
    assert_eq!(again.wait(usage).expect("usage").1, files);
}

/// Many clients at once: each finds its data, and all data written before a `sync` was requested survives a loss of
/// power.
#[test]
fn many_clients_and_one_sync() {
    const CLIENTS: usize = 40;
    let mut machine = Machine::new();
    let paths: Vec<&'static str> = (0..CLIENTS)
        .map(|n| &*std::format!("/disk/{n}").leak())
        .collect();
    let clients: Vec<_> = (0..CLIENTS).map(|_| machine.client()).collect();
    let files: Vec<u64> = (0..CLIENTS)
        .map(|n| machine.open(&clients[n], paths[n]))
        .collect();
    let mut writes: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let file = files[n];
            later(&clients[n], move |c| async move {
                c.write(file, 0, vec![n as u8; 3000 + n]).await
            })
        })
        .collect();
    for write in &mut writes {
        assert_eq!(poll(write), Poll::Pending);
    }
    for (n, write) in writes.into_iter().enumerate() {
        assert_eq!(machine.wait(write), Ok(3000 + n as u32));
    }
    let before = machine.disk.flushes();
    let mut syncs: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let file = files[n];
            later(&clients[n], move |c| async move { c.sync(file).await })
        })
        .collect();
    for sync in &mut syncs {
        assert_eq!(poll(sync), Poll::Pending);
    }
    let first = syncs.remove(0);
    assert_eq!(machine.wait(first), Ok(()));
    let once = machine.disk.flushes() - before;
    for sync in &mut syncs {
        assert_eq!(poll(sync), Poll::Ready(Ok(())));
    }
    assert!((1..=4).contains(&once), "{once} flushes");
    // A later `sync` is done separately.
    let file = files[1];
    let change = later(&clients[1], move |c| async move {
        c.write(file, 0, vec![9; 10]).await
    });
    assert_eq!(machine.wait(change), Ok(10));
    let before = machine.disk.flushes();
    let sync = later(&clients[1], move |c| async move { c.sync(file).await });
    assert_eq!(machine.wait(sync), Ok(()));
    assert!(machine.disk.flushes() > before);
    // Loss of power: nothing was closed.
    let desk = Arc::new(Desk::new());
    let mut next = Machine {
        worker: Worker::new(Arc::clone(&desk), mount(&machine.disk), clock),
        disk: machine.disk.clone(),
        desk,
    };
    let client = next.client();
    for (n, path) in paths.into_iter().enumerate() {
        let file = next.open(&client, path);
        let read = later(
            &client,
            move |c| async move { c.read(file, 0, 1 << 20).await },
        );
        let read = next.wait(read).expect("bytes");
        assert_eq!(read.len(), 3000 + n);
        assert_eq!(read[100], n as u8);
        let close = later(&client, move |c| async move { c.close(file).await });
        next.wait(close).expect("closed");
    }
}

/// A `sync` does not overtake the writes of its own client, and a failed `sync` does not count for others.
#[test]
fn a_sync_comes_after_what_was_written() {
    let mut machine = Machine::new();
    let (one, two) = (machine.client(), machine.client());
    let (a, b) = (machine.open(&one, "/disk/a"), machine.open(&two, "/disk/b"));
    let mut write = later(
        &one,
        move |c| async move { c.write(a, 0, vec![7; 100]).await },
    );
    assert_eq!(poll(&mut write), Poll::Pending);
    let mut sync = later(&two, move |c| async move { c.sync(b).await });
    assert_eq!(poll(&mut sync), Poll::Pending);
    machine.worker.turn();
    assert_eq!(poll(&mut write), Poll::Ready(Ok(100)));
    // The `sync` was behind the write in the queue, and is not done yet.
    assert_eq!(poll(&mut sync), Poll::Pending);
    assert_eq!(machine.wait(sync), Ok(()));
    // Without a file system each `sync` fails.
    let desk = Arc::new(Desk::new());
    let worker = Worker::new(Arc::clone(&desk), Err(Error::BadFormat), clock);
    let mut none = Machine {
        disk: machine.disk.clone(),
        desk,
        worker,
    };
    let client = none.client();
    let stat = later(&client, |c| async move {
        c.stat(true, "/disk/a".into(), ATTR_ROOM).await
    });
    assert_eq!(none.wait(stat), Err(Error::BadFormat));
}

/// Requests with two paths arrive with both.
#[test]
fn requests_reach_the_disk_as_they_came() {
    let mut machine = Machine::new();
    let one = machine.client();
    let file = machine.open(&one, "/disk/a");
    let appended = later(&one, move |c| async move {
        c.append(file, b"text".to_vec()).await
    });
    assert_eq!(machine.wait(appended), Ok((4, 0)));
    let (first, both) = pair("/disk/a", "/disk/c");
    let renamed = later(&one, move |c| async move { c.rename(first, both).await });
    assert_eq!(machine.wait(renamed), Ok(()));
    let path = later(&one, move |c| async move { c.path_of(file, 4096).await });
    assert_eq!(machine.wait(path).as_deref(), Ok(&b"/disk/c"[..]));
    let (first, both) = pair("c", "/disk/s");
    let made = later(&one, move |c| async move { c.symlink(first, both).await });
    assert_eq!(machine.wait(made), Ok(()));
    let link = later(
        &one,
        |c| async move { c.readlink("/disk/s".into(), 4096).await },
    );
    assert_eq!(machine.wait(link).as_deref(), Ok(&b"c"[..]));
    let list = later(
        &one,
        move |c| async move { c.read_dir(file, 0, 4096).await },
    );
    assert_eq!(machine.wait(list), Err(Error::NotDirectory));
    let cut = later(&one, move |c| async move { c.truncate(file, 2).await });
    assert_eq!(machine.wait(cut), Ok(()));
    // Closed as often as it was opened, and no more.
    for expected in [Ok(()), Err(Error::NotFound)] {
        let close = later(&one, move |c| async move { c.close(file).await });
        assert_eq!(machine.wait(close), expected);
    }
}

/// The worker wakes a waiting request, once.
#[test]
fn who_waits_is_woken() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut machine = Machine::new();
    let one = machine.client();
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut asked = later(&one, |c| async move { c.usage().await });
    let mut context = Context::from_waker(&waker);
    assert!(asked.as_mut().poll(&mut context).is_pending());
    assert_eq!(count.0.load(Ordering::Relaxed), 0);
    machine.worker.turn();
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(asked.as_mut().poll(&mut context).is_ready());
    assert!(Gate::new(&machine.desk, 1).is_ok());
}
