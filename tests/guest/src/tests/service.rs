//! Services as interfaces: requests in registers and with bytes, sessions, requests that wait, and
//! requests that must not be repeated.

use abi::registers::Area;
use abi::state::{port_flags, PortState};
use abi::{Call, Code, RefKind};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::cell::{Cell, Ref as Borrowed, RefCell};
use core::future::Future;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Context, Waker};
use guest_tests::harness::{eventually, Failure, Must, Outcome};
use guest_tests::{check, check_eq, guest_test};
use interface::client::Asked;
use interface::server::{
    own_port, Event, Host, NoSessions, Reply, Request, SharedService, Visitor, OWN,
};
use interface::{
    interface, query_interface, Answer, Error, Object, Own, RefAt, Server, Session, MAX_BULK,
};
use rt::obj::{Port, Portset, Ref};
use rt::sync::Mutex;
use rt::sys::IpcRegs;
use services::fs::{FilesClient, Flags};

/// A sum that clients share.
#[interface]
pub trait Counter {
    /// Adds, and returns the sum. Errors: `Invalid` if it would overflow. Must not be repeated.
    #[once]
    fn add(&self, amount: u64) -> Result<u64, Error>;
    /// The sum, and how often this session added. Errors: none of its own. May be repeated.
    fn read(&self) -> Result<(u64, u32), Error>;
    /// Waits until the sum is at least this, and returns it. Errors: none of its own. May be repeated.
    async fn at_least(&self, sum: u64) -> Result<u64, Error>;
    /// How many sessions there are. Errors: none of its own. May be repeated.
    fn sessions(&self) -> Result<u32, Error>;
}

/// The number of additions.
#[interface]
pub trait Tally {
    /// The number of additions. Errors: none of its own. May be repeated.
    fn times(&self) -> Result<u32, Error>;
    /// Resets the number. Returns the old one. Errors: none of its own. Must not be repeated.
    #[once]
    fn forget(&self) -> Result<u32, Error>;
    /// Waits until the number is at least this, and returns it. Errors: none of its own. May be repeated.
    async fn reached(&self, times: u32) -> Result<u32, Error>;
}

/// Text that the service keeps for each session.
#[interface]
pub trait Notes {
    /// Writes text at an offset. Returns the length of the whole text. Errors: `Invalid` beyond the end. May be
    /// repeated.
    fn write(&self, offset: u32, text: &str) -> Result<u32, Error>;
    /// Reads from an offset. Errors: `Invalid` beyond the end. May be repeated.
    fn read(&self, offset: u32) -> Result<Bytes, Error>;
    /// Removes and returns the text. Errors: none of its own. Must not be repeated.
    #[once]
    fn tear(&self) -> Result<Bytes, Error>;
}

/// References that the service keeps for each session.
#[interface]
pub trait Keeping {
    /// Keeps a reference behind the others. Returns how many are kept. Errors: `NoMemory`. Must not be repeated.
    #[once]
    fn keep(&self, one: &RefAt) -> Result<u32, Error>;
    /// Whether both references name the same. Errors: none of its own. May be repeated.
    fn same(&self, one: &RefAt, other: &RefAt) -> Result<bool, Error>;
    /// Keeps any number of references under a name. Returns how many are kept. Errors: `NoMemory`. Must not be
    /// repeated.
    #[once]
    fn keep_all(&self, offset: u64, all: &[RefAt], name: &str) -> Result<u64, Error>;
    /// The reference at this position. Errors: `NotFound`. May be repeated.
    fn give(&self, place: u32) -> Result<Ref, Error>;
    /// The number of references, the name, the first and the last reference. Errors: `NotFound` if there are none.
    /// May be repeated.
    fn look(&self) -> Result<(u32, Bytes, Ref, Ref), Error>;
    /// Removes and returns all references, and their name. Errors: none of its own. Must not be repeated.
    #[once]
    fn take(&self) -> Result<(Bytes, Refs), Error>;
    /// Waits until so many are kept, and keeps these too. Returns the name that it was given, the first reference,
    /// and all. Errors: none of its own. Must not be repeated.
    async fn at_least(
        &self,
        many: u64,
        one: &RefAt,
        more: &[RefAt],
        name: &str,
    ) -> Result<(u64, Bytes, Ref, Refs), Error>;
}

#[derive(Default)]
struct Sum {
    sum: Cell<u64>,
    changed: Event,
    sessions: Cell<u32>,
}

struct Adder {
    shared: Rc<Sum>,
    times: Cell<u32>,
}

impl Adder {
    fn new(shared: &Rc<Sum>) -> Self {
        shared.sessions.set(shared.sessions.get() + 1);
        Adder {
            shared: Rc::clone(shared),
            times: Cell::new(0),
        }
    }
}

impl Drop for Adder {
    fn drop(&mut self) {
        self.shared.sessions.set(self.shared.sessions.get() - 1);
    }
}

impl Counter for Adder {
    fn add(&self, amount: u64) -> Result<u64, Error> {
        let sum = self
            .shared
            .sum
            .get()
            .checked_add(amount)
            .ok_or(Error::Invalid)?;
        self.shared.sum.set(sum);
        self.times.set(self.times.get() + 1);
        self.shared.changed.happened();
        Ok(sum)
    }

    fn read(&self) -> Result<(u64, u32), Error> {
        Ok((self.shared.sum.get(), self.times.get()))
    }

    fn sessions(&self) -> Result<u32, Error> {
        Ok(self.shared.sessions.get())
    }

    async fn at_least(&self, wanted: u64) -> Result<u64, Error> {
        let sum = &self.shared.sum;
        let reached = || (sum.get() >= wanted).then(|| sum.get());
        Ok(self.shared.changed.until(reached).await)
    }
}

impl Tally for Adder {
    fn times(&self) -> Result<u32, Error> {
        Ok(self.times.get())
    }

    fn forget(&self) -> Result<u32, Error> {
        Ok(self.times.replace(0))
    }

    async fn reached(&self, wanted: u32) -> Result<u32, Error> {
        let reached = || (self.times.get() >= wanted).then(|| self.times.get());
        Ok(self.shared.changed.until(reached).await)
    }
}

interface::object! {
    /// The interfaces of an adder.
    enum Adding of Adder {
        Counter: CounterStub, dyn CounterCalls;
        Tally: TallyStub, dyn TallyCalls;
    }
}

#[derive(Default)]
struct Page(RefCell<Vec<u8>>);

impl Object for Page {}

impl Notes for Page {
    fn write(&self, offset: u32, text: &str) -> Result<u32, Error> {
        let mut page = self.0.borrow_mut();
        let offset = offset as usize;
        if offset > page.len() {
            return Err(Error::Invalid);
        }
        page.truncate(offset);
        page.extend_from_slice(text.as_bytes());
        Ok(page.len() as u32)
    }

    fn read(
        &self,
        offset: u32,
        room: usize,
    ) -> Result<impl core::ops::Deref<Target = [u8]>, Error> {
        let page = self.0.borrow();
        let end = page.len().min((offset as usize).saturating_add(room));
        if offset as usize > page.len() {
            return Err(Error::Invalid);
        }
        Ok(Borrowed::map(page, |page| &page[offset as usize..end]))
    }

    fn tear(&self, room: usize) -> Result<impl core::ops::Deref<Target = [u8]>, Error> {
        let mut page = self.0.take();
        page.truncate(room);
        Ok(page)
    }
}

#[derive(Default)]
struct Shelf {
    refs: RefCell<Vec<Ref>>,
    name: RefCell<String>,
    changed: Event,
}

impl Shelf {
    fn copy(&self, place: usize) -> Result<Ref, Error> {
        let refs = self.refs.borrow();
        let one = refs.get(place).ok_or(Error::NotFound)?;
        one.copy().map_err(rt::error_of)
    }

    fn add(&self, one: &RefAt) -> Result<u64, Error> {
        let copy = one.copy().map_err(rt::error_of)?;
        self.refs.borrow_mut().push(copy);
        self.changed.happened();
        Ok(self.refs.borrow().len() as u64)
    }
}

struct OnShelf(Rc<Shelf>);

impl Object for OnShelf {}

impl Keeping for OnShelf {
    fn keep(&self, one: &RefAt) -> Result<u32, Error> {
        self.0.add(one).map(|many| many as u32)
    }

    fn same(&self, one: &RefAt, other: &RefAt) -> Result<bool, Error> {
        Ok(one.same_as(*other))
    }

    fn keep_all(&self, offset: u64, all: &[RefAt], name: &str) -> Result<u64, Error> {
        *self.0.name.borrow_mut() = name.into();
        for one in all {
            self.0.add(one)?;
        }
        Ok(offset + all.len() as u64)
    }

    fn give(&self, place: u32) -> Result<Ref, Error> {
        self.0.copy(place as usize)
    }

    fn look(&self, room: usize) -> Result<(u32, Vec<u8>, Ref, Ref), Error> {
        let count = self.0.refs.borrow().len();
        let name = self.0.name.borrow();
        let name = &name.as_bytes()[..name.len().min(room)];
        let last = self.0.copy(count.wrapping_sub(1))?;
        Ok((count as u32, name.into(), self.0.copy(0)?, last))
    }

    fn take(&self, room: usize) -> Result<(Vec<u8>, Vec<Ref>), Error> {
        let mut name = self.0.name.take().into_bytes();
        name.truncate(room);
        Ok((name, self.0.refs.take()))
    }

    async fn at_least(
        &self,
        many: u64,
        one: Ref,
        more: Vec<Ref>,
        name: String,
        room: usize,
    ) -> Result<(u64, Vec<u8>, Ref, Vec<Ref>), Error> {
        let shelf = &self.0;
        let reached = || (shelf.refs.borrow().len() as u64 >= many).then_some(());
        shelf.changed.until(reached).await;
        let mut name = name.into_bytes();
        name.truncate(room);
        Ok((1 + more.len() as u64, name, one, more))
    }
}

/// Starts a server on a thread of its own. Returns a reference to its door.
fn start(serve: impl FnOnce(&mut dyn FnMut(Ref)) + Send + 'static) -> Result<Ref, Failure> {
    let door = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&door);
    rt::thread::spawn(move || serve(&mut |door| *tell.lock() = Some(door))).must("a thread")?;
    eventually("the server's start", || door.lock().is_some())?;
    let door = door.lock().take();
    door.ok_or_else(|| "no door".into())
}

fn counter() -> Result<Ref, Failure> {
    start(|tell| {
        let shared = Rc::new(Sum::default());
        let make =
            move |visitor: &Visitor| Adding::of(&Rc::new(Adder::new(&shared)), visitor.interface);
        if let Ok(server) = Server::new(make) {
            if let Ok(door) = server.door().reference() {
                tell(door);
            }
            server.run();
        }
    })
}

fn notes() -> Result<Ref, Failure> {
    start(|tell| {
        if let Ok(server) = Server::new(|_: &Visitor| Ok(NotesStub(Page::default()))) {
            if let Ok(door) = server.door().reference() {
                tell(door);
            }
            server.run();
        }
    })
}

fn shelf() -> Result<Ref, Failure> {
    start(|tell| {
        let shared = Rc::new(Shelf::default());
        let make = move |_: &interface::server::Visitor| Ok(KeepingStub(OnShelf(shared.clone())));
        if let Ok(server) = Server::new(make) {
            if let Ok(door) = server.door().reference() {
                tell(door);
            }
            server.run();
        }
    })
}

guest_test!(SERVICE0001, arguments_results_and_errors);
fn arguments_results_and_errors() -> Outcome {
    let door = counter()?;
    let mut one = CounterClient::open(&door).must("a session")?;
    let mut two = CounterClient::open(&door).must("another session")?;
    check_eq!(one.add(40), Ok(40));
    check_eq!(two.add(2), Ok(42));
    check_eq!(two.add(u64::MAX), Err(Error::Invalid));
    check_eq!(one.add(0), Ok(42));
    check_eq!(one.read(), Ok((42, 2)));
    check_eq!(two.read(), Ok((42, 1)));
    check_eq!(two.at_least(42), Ok(42));
    check_eq!(NotesClient::open(&door).map(drop), Err(Error::Unsupported));
    Ok(())
}

guest_test!(SERVICE0002, bytes_both_ways);
fn bytes_both_ways() -> Outcome {
    let door = notes()?;
    let mut one = NotesClient::open(&door).must("a session")?;
    let mut two = NotesClient::open(&door).must("another session")?;
    let long: alloc::string::String = "0123456789abcdef".repeat(256);
    let mut into = [0; 5000];
    check_eq!(one.read(0, &mut into), Ok(0));
    check_eq!(one.write(0, "short"), Ok(5));
    check_eq!(one.write(3, ""), Ok(3));
    check_eq!(one.write(9, "beyond"), Err(Error::Invalid));
    check_eq!(two.write(0, &long), Ok(4096));
    check_eq!(one.read(1, &mut into), Ok(2));
    check_eq!(&into[..2], b"ho");
    check_eq!(two.read(16, &mut into), Ok(4080));
    check!(
        into[..4080] == long.as_bytes()[16..],
        "the bytes are others"
    );
    check_eq!(two.read(0, &mut into[..3]), Ok(3));
    check_eq!(two.read(0, &mut []), Ok(0));
    check_eq!(two.read(5000, &mut into), Err(Error::Invalid));
    Ok(())
}

guest_test!(SERVICE0018, lengths_around_a_piece);
fn lengths_around_a_piece() -> Outcome {
    const PIECE: usize = interface::wire::PIECE;
    let door = notes()?;
    let mut one = NotesClient::open(&door).must("a session")?;
    let long: String = "0123456789abcdefghijklm".repeat(40);
    for length in (PIECE - 72..=PIECE - 56).chain(PIECE - 16..=PIECE + 8) {
        let text = &long[length % 23..][..length];
        check_eq!(one.write(0, text), Ok(length as u32));
        // Room for less than the text, for exactly the text, and for more.
        for room in [length - 9, length, length + 1, length + 200] {
            let mut into = [0xee; PIECE + 300];
            let came = length.min(room);
            check_eq!(one.read(0, &mut into[..room]), Ok(came));
            check!(into[..came] == text.as_bytes()[..came], "other bytes came");
            check!(
                into[came..].iter().all(|byte| *byte == 0xee),
                "more was written than came"
            );
        }
        // A reply that the server keeps.
        let mut into = [0xee; PIECE + 300];
        check_eq!(one.tear(&mut into), Ok(length));
        check!(into[..length] == *text.as_bytes(), "other bytes were torn");
        check_eq!(one.read(0, &mut into), Ok(0));
    }
    Ok(())
}

guest_test!(SERVICE0012, the_date_goes_on_with_the_clock);
fn the_date_goes_on_with_the_clock() -> Outcome {
    const PATH: &str = "/tmp/dated";
    // A machine's clock begins when it is switched on.
    const YEAR_2020: u64 = 1_577_836_800_000_000_000;
    let before = rt::time::date().must("the date")?;
    check!(before > YEAR_2020 && before > rt::time::now());
    rt::fs::write_all(PATH, b"x", 0o644).must("a file")?;
    let written = rt::fs::stat(PATH, true).must("its attributes")?.mtime_ns;
    rt::fs::unlink(PATH).must("to remove it")?;
    let after = rt::time::date().must("the date again")?;
    check!(before <= written && written <= after);
    Ok(())
}

guest_test!(SERVICE0013, control_goes_to_whom_the_manifest_says);
fn control_goes_to_whom_the_manifest_says() -> Outcome {
    for server in ["disk", "device", "entropy", "native", "console", "nobody"] {
        check_eq!(rt::names::control(server).map(drop), Err(Error::Denied));
    }
    Ok(())
}

guest_test!(SERVICE0015, random_bytes_come_once);
fn random_bytes_come_once() -> Outcome {
    let mut pieces = [[0; 32]; 64];
    for piece in &mut pieces {
        rt::random::fill(piece).must("random bytes")?;
    }
    let mut large = alloc::vec![0; 10_000];
    rt::random::fill(&mut large).must("many random bytes")?;
    check!(large
        .chunks(16)
        .all(|piece| piece.iter().any(|byte| *byte != 0)));
    pieces.sort_unstable();
    check!(pieces.windows(2).all(|pair| pair[0] != pair[1]));
    Ok(())
}

guest_test!(SERVICE0003, who_waits_holds_nobody_up);
fn who_waits_holds_nobody_up() -> Outcome {
    let door = Arc::new(counter()?);
    static ANSWERS: AtomicU64 = AtomicU64::new(0);
    // Four clients wait, each in a session of its own; the first waits for a sum that never comes.
    for sum in [u64::MAX, 10, 20, 20] {
        let door = Arc::clone(&door);
        rt::thread::spawn(move || {
            let sum = CounterClient::open(&door).and_then(|mut client| client.at_least(sum));
            ANSWERS.fetch_add(sum.unwrap_or(1 << 32), Ordering::AcqRel);
        })
        .must("a thread")?;
    }
    rt::time::sleep(2_000_000);
    let mut client = CounterClient::open(&door).must("a session")?;
    for n in 1..=9 {
        check_eq!(client.add(1), Ok(n));
    }
    check_eq!(ANSWERS.load(Ordering::Acquire), 0);
    check_eq!(client.add(3), Ok(12));
    eventually("the first answer", || ANSWERS.load(Ordering::Acquire) == 12)?;
    check_eq!(client.add(8), Ok(20));
    eventually("the other answers", || {
        ANSWERS.load(Ordering::Acquire) == 52
    })?;
    for n in 21..=100 {
        check_eq!(client.add(1), Ok(n));
    }
    check_eq!(ANSWERS.load(Ordering::Acquire), 52);
    Ok(())
}

guest_test!(SERVICE0004, done_once_however_often_asked);
fn done_once_however_often_asked() -> Outcome {
    let door = counter()?;
    let mut client = CounterClient::open(&door).must("a session")?;
    check_eq!(client.add(5), Ok(5));
    let (port, number) = client.session().kept();
    check_eq!(client.add(7), Ok(12));
    // A client that was restored to an instant before its reply came asks with the same number again.
    for _ in 0..3 {
        let port = port.copy().must("a reference")?;
        let mut restored = CounterClient::resume(Session::resume(port, number));
        check_eq!(restored.add(7), Ok(12));
    }
    check_eq!(client.read(), Ok((12, 2)));
    check_eq!(client.add(1), Ok(13));
    Ok(())
}

guest_test!(SERVICE0019, what_others_did_to_a_file_stays);
fn what_others_did_to_a_file_stays() -> Outcome {
    const PATH: &str = "/tmp/of-two";
    let door = rt::names::lookup("fs").must("the files")?;
    let mut one = FilesClient::open_known(&door).must("a session")?;
    let mut two = FilesClient::open_known(&door).must("another session")?;
    let flags = Flags {
        create: true,
        ..Flags::default()
    };
    let file = one.open_file(flags.bits(), 0o644, PATH).must("a file")?.0;
    check_eq!(two.open_file(0, 0, PATH).map(|opened| opened.0), Ok(file));
    check_eq!(one.append(file, b"first"), Ok((5, 0)));
    // A client that was stopped before the answer came asks again with the same number, after another client has gone
    // on.
    let again = |(port, number): (RefAt, u64)| {
        let port = port.copy().must("a reference")?;
        Ok::<_, Failure>(FilesClient::resume(Session::resume(port, number)))
    };
    let kept = one.session().kept();
    check_eq!(one.truncate(file, 0), Ok(()));
    check_eq!(two.append(file, b"second"), Ok((6, 0)));
    check_eq!(again(kept)?.truncate(file, 0), Ok(()));
    let mut into = [0; 16];
    check_eq!(two.read(file, 0, &mut into), Ok(6));
    let kept = one.session().kept();
    check_eq!(one.chmod(file, 0o600), Ok(()));
    check_eq!(two.chmod(file, 0o640), Ok(()));
    check_eq!(again(kept)?.chmod(file, 0o600), Ok(()));
    let seen = rt::fs::stat(PATH, false).must("its attributes")?;
    check_eq!(seen.mode & 0o777, 0o640);
    rt::fs::unlink(PATH).must("to remove it")?;
    Ok(())
}

guest_test!(SERVICE0005, nonsense_is_refused);
fn nonsense_is_refused() -> Outcome {
    let door = notes()?;
    let client = NotesClient::open(&door).must("a session")?;
    let session = client.session();
    // Methods that do not exist, arguments that are missing or too large, text that is not UTF-8.
    check_eq!(
        session.ask::<()>(4, interface::wire::NONE, 0),
        Err(Error::Unsupported)
    );
    check_eq!(
        session.ask::<()>(0xffff, interface::wire::NONE, 0),
        Err(Error::Unsupported)
    );
    check_eq!(
        session.ask::<()>(1, interface::wire::NONE, 0),
        Err(Error::Invalid)
    );
    let large = [1 << 32, 0, 0, 0, 0, 0, 0];
    let all = [0; 7];
    let ask = |words: &[u64], from: &[u8]| {
        let asked = session.ask_with_bytes::<u32>(1, words, from, &mut []);
        asked.map(|(result, _)| result)
    };
    check_eq!(ask(&large, b"x"), Err(Error::Invalid));
    check_eq!(ask(&all, &[0xff]), Err(Error::Invalid));
    check_eq!(ask(&[0; 8], b"x"), Err(Error::Invalid));
    check_eq!(ask(&all, &[b'x'; 70_000]), Err(Error::Invalid));
    // Messages without even a first word, and first words that make no sense; at the door, too.
    for port in [session.kept().0, *door] {
        for length in [0, 3, 8, 20] {
            let mut regs = rt::sys::IpcRegs::to(port.handle()).sending_words([0; 8], length);
            // SAFETY: a register message writes no memory.
            let code = unsafe { rt::sys::ipc(abi::Call::CallShort, &mut regs) };
            check_eq!(code, abi::Code::Ok);
            check!(
                regs.short_len() == 8 && regs.word(0) != 0,
                "{length} bytes were taken"
            );
        }
    }
    check_eq!(ask(&all, b"x"), Ok(1));
    Ok(())
}

guest_test!(SERVICE0006, sessions_end_with_their_clients);
fn sessions_end_with_their_clients() -> Outcome {
    let door = counter()?;
    let mut client = CounterClient::open(&door).must("a session")?;
    check_eq!(client.sessions(), Ok(1));
    // More requests than a server keeps at a time.
    for n in 0..10_000 {
        let mut other = CounterClient::open(&door).must("another session")?;
        check_eq!(other.add(1), Ok(n + 1));
    }
    eventually("the end of the others", || client.sessions() == Ok(1))?;
    // A waiting request is given up as soon as nothing names its port.
    let at = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&at);
    let copy = door.copy().must("a reference")?;
    let thread = rt::thread::spawn(move || {
        if let Ok(mut waits) = CounterClient::open(&copy) {
            *tell.lock() = Some(waits.session().kept().0);
            let _ = waits.at_least(10_001);
        }
    })
    .must("a thread")?;
    eventually("a session that waits", || client.sessions() == Ok(2))?;
    eventually("its port", || at.lock().is_some())?;
    rt::time::sleep(1_000_000);
    thread.with(|thread| thread.stop()).must("a stop")?;
    let port = at.lock().take().ok_or(Error::Broken).must("a port")?;
    port.clear().must("letting go of the session")?;
    eventually("its end", || client.sessions() == Ok(1))?;
    check_eq!(client.add(1), Ok(10_001));
    check_eq!(client.sessions(), Ok(1));
    Ok(())
}

guest_test!(SERVICE0007, a_service_is_not_given_its_clients_power);
fn a_service_is_not_given_its_clients_power() -> Outcome {
    let set = Portset::new().must("a portset")?;
    let port = Port::new().must("a port")?;
    let state = PortState {
        alias: 1,
        flags: port_flags::CALLS_ONLY,
    };
    let at = set.reference().must("a reference")?;
    port.set_state(&state, at.handle()).must("its state")?;
    let door = port.reference().must("a reference")?;
    // A service that keeps the reference that it gets when a session is opened.
    let given = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&given);
    rt::thread::spawn(move || {
        let Ok(reference) = Ref::new() else { return };
        let mut words = [0u64; 8];
        let mut regs = IpcRegs::to(set.handle()).receiving(Area {
            refs: abi::ref_list(reference.handle(), 1),
            ..Area::new(words.as_mut_ptr() as u64, size_of_val(&words) as u64)
        });
        // SAFETY: only this thread uses the words.
        let code = unsafe { rt::sys::ipc(Call::ServerWaitReceive, &mut regs) };
        *tell.lock() = Some((code, reference.kind()));
        // SAFETY: nothing is sent.
        unsafe { rt::sys::ipc(Call::Reply, &mut IpcRegs::default()) };
    })
    .must("a thread")?;
    check!(
        CounterClient::open(&door).is_err(),
        "a session with a service that gives none"
    );
    let given = given.lock().take();
    check_eq!(given, Some((Code::Call, RefKind::Null)));
    Ok(())
}

guest_test!(SERVICE0008, who_is_given_up_is_not_kept);
fn who_is_given_up_is_not_kept() -> Outcome {
    struct Count(AtomicU64);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }
    let event = Event::new();
    let count = Arc::new(Count(AtomicU64::new(0)));
    for _ in 0..3 {
        let waker = Waker::from(Arc::clone(&count));
        let mut waits = Box::pin(event.until(|| None::<()>));
        let mut context = Context::from_waker(&waker);
        check!(waits.as_mut().poll(&mut context).is_pending(), "it waits");
        check_eq!(Arc::strong_count(&count), 3);
        drop(waits);
        drop(waker);
        check_eq!(Arc::strong_count(&count), 1);
    }
    event.happened();
    check_eq!(count.0.load(Ordering::Acquire), 0);
    Ok(())
}

/// Different references.
fn ports(count: usize) -> Result<Vec<(Port, Ref)>, Failure> {
    let mut ports = Vec::new();
    for _ in 0..count {
        let port = Port::new().must("a port")?;
        let reference = port.reference().must("a reference")?;
        ports.push((port, reference));
    }
    Ok(ports)
}

guest_test!(SERVICE0009, references_both_ways);
fn references_both_ways() -> Outcome {
    let door = shelf()?;
    let mut client = KeepingClient::open(&door).must("a session")?;
    let ports = ports(4)?;
    let of = |n: usize| &*ports[n].1;
    let mut into = [0; 64];
    check_eq!(client.give(0).map(drop), Err(Error::NotFound));
    check_eq!(client.look(&mut into).map(drop), Err(Error::NotFound));
    check_eq!(client.keep(of(0)), Ok(1));
    check_eq!(client.same(of(0), of(0)), Ok(true));
    check_eq!(client.same(of(0), of(1)), Ok(false));
    check_eq!(client.keep_all(10, &[], "none"), Ok(10));
    check_eq!(client.keep_all(10, &[*of(1), *of(2)], "three"), Ok(12));
    let given = client.give(1).must("a reference")?;
    check!(given.same_as(*of(1)), "another reference was given");
    let (count, length, first, last) = client.look(&mut into).must("a look")?;
    check_eq!((count, &into[..length]), (3, &b"three"[..]));
    check!(
        first.same_as(*of(0)) && last.same_as(*of(2)),
        "other references were shown"
    );
    // Done once: a client that asks again with the number gets the same reply.
    let (port, number) = client.session().kept();
    let (length, all) = client.take(&mut into).must("all")?;
    check_eq!((length, all.len()), (5, 3));
    let port = port.copy().must("a reference")?;
    let mut again = KeepingClient::resume(Session::resume(port, number));
    let (length, again) = again.take(&mut into).must("all again")?;
    check_eq!((&into[..length], again.len()), (&b"three"[..], 3));
    for (one, port) in again.iter().zip(&ports) {
        check!(
            one.same_as(*port.1),
            "another reference came the second time"
        );
    }
    let (_, none) = client.take(&mut into).must("nothing")?;
    check_eq!(none.len(), 0);
    // A method that waits, and one that does not.
    let waited = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&waited);
    let (other, own) = (door.copy().must("a door")?, of(3).copy().must("a copy")?);
    rt::thread::spawn(move || {
        let mut into = [0; 3];
        let came = KeepingClient::open(&other)
            .and_then(|mut client| client.at_least(1, &own, &[*own, *own], "waits", &mut into));
        *tell.lock() = Some(came.map(|came| (came, into)));
    })
    .must("a thread")?;
    rt::time::sleep(1_000_000);
    check!(waited.lock().is_none(), "it did not wait");
    check_eq!(client.keep(of(0)), Ok(1));
    eventually("its answer", || waited.lock().is_some())?;
    let came = waited.lock().take().ok_or(Error::Broken).must("it")?;
    let ((count, length, first, rest), mut into) = came.must("what came")?;
    check_eq!((count, length, into, rest.len()), (3, 3, *b"wai", 2));
    check!(
        first.same_as(*of(3)) && rest.iter().all(|one| one.same_as(*of(3))),
        "other references came back"
    );
    let at_once = client.at_least(0, of(1), &[], "", &mut into);
    let (count, length, first, rest) = at_once.must("an answer")?;
    check_eq!((count, length, rest.len()), (1, 0, 0));
    check!(first.same_as(*of(1)), "another reference came back at once");
    Ok(())
}

guest_test!(SERVICE0010, other_numbers_of_references_are_refused);
fn other_numbers_of_references_are_refused() -> Outcome {
    let door = shelf()?;
    let mut client = KeepingClient::open(&door).must("a session")?;
    let ports = ports(1)?;
    let one: &RefAt = &ports[0].1;
    let all = [one; 16];
    // `keep`, `same`, `keep_all`, `give`, `at_least`: the number of references that each takes.
    let methods: [(u16, &[u64], usize, usize); 5] = [
        (1, &[], 1, 1),
        (2, &[], 2, 2),
        (3, &[0; 7], 0, 15),
        (4, &[0], 0, 0),
        (7, &[0; 7], 1, 15),
    ];
    for (method, words, least, most) in methods {
        for count in (0..16).filter(|count| !(least..=most).contains(count)) {
            let asked = client.session().ask_with_refs::<()>(
                method,
                words,
                (&[], &all[..count]),
                (&mut [], &[]),
            );
            check_eq!(
                asked.map(drop),
                Err(Error::Invalid),
                "method {method} with {count}"
            );
        }
    }
    // More than fit into a message.
    let too_many = client
        .session()
        .ask_with_refs::<u64>(3, &[0; 7], (&[], &all), (&mut [], &[]));
    check_eq!(too_many.map(drop), Err(Error::Invalid));
    // In registers, which cannot carry references, and to a method of another service that takes none.
    check_eq!(
        client.session().ask::<u32>(1, interface::wire::NONE, 0),
        Err(Error::Invalid)
    );
    let counter = counter()?;
    let counter = CounterClient::open(&counter).must("a session")?;
    let ask = |refs: &[&RefAt]| {
        let asked =
            counter
                .session()
                .ask_with_refs::<(u64, u32)>(2, &[], (&[], refs), (&mut [], &[]));
        asked.map(|(came, ..)| came)
    };
    check_eq!(ask(&[one]), Err(Error::Invalid));
    check_eq!(ask(&[one, one]), Err(Error::Invalid));
    check_eq!(ask(&[]), Ok((0, 0)));
    // Text that is not UTF-8, or too long for a method that may wait.
    let ask = |bytes: &[u8]| {
        let asked =
            client
                .session()
                .ask_with_refs::<u64>(7, &[0; 7], (bytes, &[one]), (&mut [], &[one]));
        asked.map(|(came, ..)| came)
    };
    check_eq!(ask(&[0xff]), Err(Error::Invalid));
    check_eq!(ask(&[b'x'; 4097]), Err(Error::Invalid));
    check_eq!(ask(&[b'x'; 4096]), Ok(1));
    check_eq!(client.keep(one), Ok(1));
    Ok(())
}

/// What a host does besides sessions.
#[interface(shared)]
pub trait Turns {
    /// How often the server has waited, and how often this request was delivered. Errors: none of its own. May be
    /// repeated.
    fn turns(&self) -> Result<(u64, u64), Error>;
}

/// A server that waits no longer than a millisecond at a time, and gets each request delivered three times.
struct Turning {
    waits: u64,
    delivered: u64,
    again: bool,
}

/// The port at which these requests are made.
struct At<'a>(&'a Turning);

impl Turns for At<'_> {
    fn turns(&self) -> Result<(u64, u64), Error> {
        Ok((self.0.waits, self.0.delivered))
    }
}

impl Host<NoSessions> for Turning {
    fn open(&mut self, _: &Visitor) -> Result<NoSessions, Error> {
        Err(Error::Unsupported)
    }

    fn shared(&mut self, _: u64, request: &Request<'_>, reply: &mut Reply) -> Answer {
        self.delivered += 1;
        self.again = !self.delivered.is_multiple_of(3);
        TurnsStub(At(self)).answer(request, reply)
    }

    fn again(&mut self) -> bool {
        core::mem::take(&mut self.again)
    }

    fn deadline(&mut self) -> Option<u64> {
        Some(rt::time::now() + 1_000_000)
    }

    fn settle(&mut self) {
        self.waits += 1;
    }
}

guest_test!(SERVICE0011, deadlines_and_what_is_delivered_again);
fn deadlines_and_what_is_delivered_again() -> Outcome {
    let port = start(|tell| {
        let made = || {
            let portset = Portset::new().ok()?;
            let port = own_port(*portset.reference().ok()?, OWN).ok()?;
            let reference = port.reference().ok()?;
            let host = Turning {
                waits: 0,
                delivered: 0,
                again: false,
            };
            Some((Server::on(portset, host).ok()?, port, reference))
        };
        if let Some((server, _port, reference)) = made() {
            tell(reference);
            server.run();
        }
    })?;
    let client = TurnsClient::at(*port);
    let (before, delivered) = client.turns().must("a reply")?;
    check_eq!(delivered, 3);
    // Without requests the server keeps waiting.
    rt::time::sleep(20_000_000);
    let (after, delivered) = client.turns().must("a reply")?;
    check_eq!(delivered, 6);
    // Each delivery is a wait, and so is each millisecond.
    check!(after >= before + 3 + 5, "{before} waits, then {after}");
    Ok(())
}

/// What a holder of a counter does with it, whether the counter is in this process or not.
fn counts(counter: &mut dyn CounterCalls, before: u32) -> Outcome {
    check_eq!(counter.add(40), Ok(40));
    check_eq!(counter.add(u64::MAX), Err(Error::Invalid));
    check_eq!(counter.add(2), Ok(42));
    check_eq!(counter.at_least(42), Ok(42));
    check_eq!(counter.read(), Ok((42, 2)));
    let mut tally = query_interface::<dyn TallyCalls>(counter).must("its tally")?;
    check_eq!(tally.times(), Ok(2));
    check_eq!(tally.reached(2), Ok(2));
    check_eq!(tally.forget(), Ok(2));
    check_eq!(counter.read(), Ok((42, 0)));
    // Back again, and the same once more: each proxy has requests of its own, which are all about one object.
    let mut other = query_interface::<dyn CounterCalls>(&mut *tally).must("the counter")?;
    check_eq!(other.add(1), Ok(43));
    check_eq!(counter.add(1), Ok(44));
    check_eq!(tally.forget(), Ok(2));
    check_eq!(other.sessions(), Ok(before + 1));
    let notes = query_interface::<dyn NotesCalls>(counter);
    check_eq!(notes.err(), Some(Error::Unsupported));
    Ok(())
}

guest_test!(SERVICE0016, interfaces_of_an_object_near_and_far);
fn interfaces_of_an_object_near_and_far() -> Outcome {
    let door = counter()?;
    let mut witness = CounterClient::open(&door).must("a session")?;
    let mut far = CounterClient::open(&door).must("another session")?;
    counts(&mut far, 1)?;
    let mut tally = query_interface::<dyn TallyCalls>(&mut far).must("its tally")?;
    drop(far);
    check_eq!(tally.times(), Ok(0));
    check_eq!(witness.sessions(), Ok(2));
    drop(tally);
    eventually("the end of the object", || witness.sessions() == Ok(1))?;

    let shared = Rc::new(Sum::default());
    let mut near = Own::new(Adder::new(&shared));
    counts(&mut near, 0)?;
    drop(near);
    check_eq!(shared.sessions.get(), 0);

    // With messages in memory.
    let door = notes()?;
    let mut far = NotesClient::open(&door).must("a session")?;
    check_eq!(far.write(0, "one"), Ok(3));
    let mut again = query_interface::<dyn NotesCalls>(&mut far).must("its notes")?;
    check_eq!(again.write(3, " two"), Ok(7));
    let counter = query_interface::<dyn CounterCalls>(&mut far);
    check_eq!(counter.err(), Some(Error::Unsupported));
    Ok(())
}

/// A number that another thread sets.
struct Told(Arc<(AtomicU64, Event)>);

impl Object for Told {}

impl Tally for Told {
    fn times(&self) -> Result<u32, Error> {
        Ok(self.0 .0.load(Ordering::Acquire) as u32)
    }

    fn forget(&self) -> Result<u32, Error> {
        Err(Error::Unsupported)
    }

    async fn reached(&self, times: u32) -> Result<u32, Error> {
        let reached = || self.times().ok().filter(|now| *now >= times);
        Ok(self.0 .1.until(reached).await)
    }
}

guest_test!(SERVICE0014, direct_calls_take_and_return_all);
fn direct_calls_take_and_return_all() -> Outcome {
    let mut notes: Box<dyn NotesCalls> = Box::new(Own::new(Page::default()));
    let mut into = [0; 16];
    check_eq!(notes.write(0, "a note"), Ok(6));
    check_eq!(notes.write(7, "beyond"), Err(Error::Invalid));
    check_eq!(notes.read(2, &mut into), Ok(4));
    check_eq!(&into[..4], b"note");
    check_eq!(notes.read(0, &mut into[..1]), Ok(1));

    let shelf = Rc::new(Shelf::default());
    let mut keeping: Box<dyn KeepingCalls> = Box::new(Own::new(OnShelf(Rc::clone(&shelf))));
    let refs: Vec<Port> = (0..3)
        .map(|_| Port::new().must("a port"))
        .collect::<Result<_, _>>()?;
    let refs: Vec<Ref> = refs
        .iter()
        .map(|port| port.reference().must("a reference"))
        .collect::<Result<_, _>>()?;
    check_eq!(keeping.keep(&refs[0]), Ok(1));
    check_eq!(keeping.keep_all(5, &[*refs[1], *refs[2]], "three"), Ok(7));
    check_eq!(keeping.same(&refs[0], &refs[0]), Ok(true));
    check_eq!(keeping.same(&refs[0], &refs[1]), Ok(false));
    let given = keeping.give(1).must("the second")?;
    check!(given.same_as(*refs[1]), "another one was given");
    let (count, came, first, last) = keeping.look(&mut into).must("a look")?;
    check_eq!((count, &into[..came]), (3, &b"three"[..]));
    check!(first.same_as(*refs[0]) && last.same_as(*refs[2]), "others");
    let long = "x".repeat(5000);
    let too_long = keeping.at_least(3, &refs[0], &[], &long, &mut into);
    check_eq!(too_long.err(), Some(Error::Invalid));
    let (count, came, one, more) = keeping
        .at_least(3, &refs[0], &[*refs[1]], "name", &mut into)
        .must("what was there")?;
    check_eq!((count, &into[..came], more.len()), (2, &b"name"[..], 1));
    check!(one.same_as(*refs[0]) && more[0].same_as(*refs[1]), "others");
    let (came, all) = keeping.take(&mut into).must("all")?;
    check_eq!((&into[..came], all.len()), (&b"three"[..], 3));

    // A waiting method makes its thread wait until another thread wakes it.
    let told = Arc::new((AtomicU64::new(0), Event::new()));
    let teller = Arc::clone(&told);
    rt::thread::spawn(move || {
        for times in 1..=3 {
            rt::time::sleep(100_000);
            teller.0.store(times, Ordering::Release);
            teller.1.happened();
        }
    })
    .must("a thread")?;
    let mut tally: Box<dyn TallyCalls> = Box::new(Own::new(Told(told)));
    check_eq!(tally.reached(3), Ok(3));
    check_eq!(tally.forget(), Err(Error::Unsupported));
    Ok(())
}

/// A client as it is after a restore to an instant before its last reply came: in another session, which continues
/// where the first one was.
fn restored(door: &RefAt, (port, number): (RefAt, u64)) -> Result<Session, Failure> {
    let kept = interface::client::keep(door, &port).must("what is kept")?;
    let other = interface::client::open_kept(door, &kept, rt::start::names());
    Ok(Session::resume(other.must("another session")?, number))
}

guest_test!(SERVICE0017, what_is_kept_of_a_session);
fn what_is_kept_of_a_session() -> Outcome {
    let door = notes()?;
    let mut into = alloc::vec![0; MAX_BULK + 10];
    // A method that must not be repeated has no more room than the server keeps.
    for (written, length) in
        [0, 5, 4096, 4097, MAX_BULK, MAX_BULK + 10].map(|written| (written, written.min(MAX_BULK)))
    {
        let mut client = NotesClient::open(&door).must("a session")?;
        let text = "x".repeat(written);
        for part in [0..length, length..written] {
            let end = part.end as u32;
            check_eq!(client.write(part.start as u32, &text[part]), Ok(end));
        }
        let before = client.session().kept();
        check_eq!(client.tear(&mut into), Ok(length));
        let mut again = NotesClient::resume(restored(&door, before)?);
        // The other session has an empty page of its own.
        into.fill(0);
        check_eq!(again.tear(&mut into), Ok(length), "S3: {length}");
        check!(into[..length] == text.as_bytes()[..length], "S3: {length}");
        check_eq!(again.tear(&mut into), Ok(0), "{length}");
    }
    // References in a reply are lost by a restore: the request is done, and its result is lost.
    let door = shelf()?;
    let mut client = KeepingClient::open(&door).must("a session")?;
    let ports = ports(1)?;
    check_eq!(client.keep(&ports[0].1), Ok(1));
    let before = client.session().kept();
    let (_, all) = client.take(&mut into).must("all")?;
    check_eq!(all.len(), 1);
    check_eq!(client.keep(&ports[0].1), Ok(1));
    let before_keep = client.session().kept();
    let (_, all) = client.take(&mut into).must("all")?;
    check_eq!(all.len(), 1);
    let mut again = KeepingClient::resume(restored(&door, before_keep)?);
    check_eq!(again.take(&mut into).map(drop), Err(Error::Ended));
    check_eq!(again.keep(&ports[0].1), Ok(1));
    // A client that asks for an answer from before the last request is served anew.
    let mut older = KeepingClient::resume(restored(&door, before)?);
    let (_, all) = older.take(&mut into).must("all")?;
    check_eq!(all.len(), 1);
    Ok(())
}

guest_test!(SERVICE0021, a_reply_that_was_cut_is_one);
fn a_reply_that_was_cut_is_one() -> Outcome {
    let door = notes()?;
    let mut client = NotesClient::open(&door).must("a session")?;
    check_eq!(client.write(0, "a note that is long"), Ok(19));
    let (port, mut number) = client.session().kept();
    // The server is told of more room than there is. The text is torn out all the same.
    let method = interface::wire::numbered(NotesClient::METHODS, "tear");
    for (room, length) in [(4, 19), (600, 700)] {
        let mut into = alloc::vec![0; room];
        let text = "x".repeat(length);
        let mut client =
            NotesClient::resume(Session::resume(port.copy().must("a reference")?, number));
        check_eq!(client.write(0, &text), Ok(length as u32));
        let session = Session::resume(port.copy().must("a reference")?, client.session().kept().1);
        let cut = session.ask_with_bytes::<()>(method, &[1000], b"", &mut into);
        check_eq!(cut.err(), Some(Error::Broken));
        let next = client.session().kept().1 + 1;
        check_eq!(
            session.kept().1,
            next,
            "S3: the next request is another one"
        );
        let mut client = NotesClient::resume(session);
        check_eq!(client.tear(&mut [0; 1000]), Ok(0), "S3: it is done");
        number = client.session().kept().1;
    }
    Ok(())
}

guest_test!(SERVICE0022, what_was_open_is_not_open_after_a_restore);
fn what_was_open_is_not_open_after_a_restore() -> Outcome {
    const PATH: &str = "/tmp/opened-before";
    let door = rt::names::lookup("fs").must("the files")?;
    let flags = Flags {
        create: true,
        ..Flags::default()
    };
    let mut client = FilesClient::open_known(&door).must("a session")?;
    let file = client
        .open_file(flags.bits(), 0o644, PATH)
        .must("a file")?
        .0;
    let before = client.session().kept();
    check_eq!(client.append(file, b"first"), Ok((5, 0)));
    // Saved before the reply came: it comes once more, and the request is not done again.
    let mut again = FilesClient::resume(restored(&door, before)?);
    check_eq!(again.append(file, b"first"), Ok((5, 0)), "S3");
    let mut into = [0; 16];
    // Nothing else is done, whatever it is, until there is another session.
    for _ in 0..2 {
        check_eq!(again.append(file, b"second"), Err(Error::Restored));
        check_eq!(again.open_file(0, 0, PATH), Err(Error::Restored));
        check_eq!(again.usage(), Err(Error::Restored));
        let path = again.stat(true, PATH, &mut [0; 56]);
        check_eq!(path, Err(Error::Restored));
        let queried = again.session().query_interface(FilesClient::ID);
        check_eq!(queried.err(), Some(Error::Restored));
    }
    // Saved once more in that state, and with all replies received.
    let mut again = FilesClient::resume(restored(&door, again.session().kept())?);
    check_eq!(again.read(file, 0, &mut into), Err(Error::Restored));
    let mut again = FilesClient::resume(restored(&door, client.session().kept())?);
    check_eq!(again.read(file, 0, &mut into), Err(Error::Restored));
    check_eq!(
        client.read(file, 0, &mut into),
        Ok(5),
        "the other one goes on"
    );
    rt::fs::unlink(PATH).must("to remove it")?;
    Ok(())
}
