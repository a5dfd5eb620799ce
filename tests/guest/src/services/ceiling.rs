//! Programs that ask for more than they may have: images with a higher priority or more kernel memory, control ports
//! that are used to raise a process, and a crowd of programs that all have the highest priority that programs can
//! have.

use super::images::Image;
use super::table::{PLACE, PROGRAM};
use super::{error, Sentence};
use abi::access::{OBJECTS, READ, WRITE};
use abi::state::{ThreadState, REGISTER_WORDS};
use abi::{PAGE_SIZE, PRIORITIES};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use checkpoint_image::meta::{Object, Place, Segment, State, Target, MAX_QUOTA};
use proto::layout::{CONTROL_SIZE, CONTROL_SPACE, CONTROL_THREAD};
use proto::Error;
use rt::obj::{Ref, RefAt, SpaceAt, ThreadAt};
use rt::process::{Client, Process};
use rt::window::Window;
use rt::{fs, println, time};
use services::process::{Start, Stdio};

/// The argument of a program that uses all the time that it gets.
pub const SPIN: &str = "spin";
/// A program of this kind for each manager.
const SPINNERS: [(&str, &str, &[&str]); 2] = [
    ("native", PROGRAM, &["services", SPIN]),
    (
        "linux",
        "/bin/busybox",
        &["busybox", "sh", "-c", "while :; do :; done"],
    ),
];
/// The priority that is asked for.
const WANTED: u64 = PRIORITIES as u64 - 1;
/// Where a thread's priority stands behind its registers.
const PRIORITY: usize = 1;
/// The offset at which the image is changed: no program has anything there.
const FAR: u64 = 60 << 30;

/// How a program of [`SPINNERS`] is started.
pub(super) fn start(args: &[&str]) -> Start {
    Start {
        args: args.iter().map(ToString::to_string).collect(),
        stdio: [Stdio::Null, Stdio::Null, Stdio::Null].to_vec(),
        cwd: "/".to_string(),
        ..Start::default()
    }
}

/// Uses all the time that it gets, in so many threads, at the highest priority that it can have.
pub fn spin(threads: u64) -> u8 {
    for _ in 1..threads {
        let mut priorities = (0..=WANTED).rev();
        if !priorities.any(|priority| rt::thread::spawn_at(priority, || forever()).is_ok()) {
            return 1;
        }
    }
    forever()
}

/// Without the processor's pause hint, for which an emulator takes its time.
fn forever() -> ! {
    let mut turns = 0u64;
    loop {
        turns = core::hint::black_box(turns.wrapping_add(1));
    }
}

/// Starts as many of these programs as a job may have, for the job of the process whose port at init is `owner`.
/// Returns how many.
pub(super) fn crowd(owner: &RefAt) -> Result<usize, Error> {
    let mut count = 0;
    for (manager, path, args) in SPINNERS {
        let client = Client::new(manager)?;
        loop {
            match client.spawn_for(owner, path, &start(args), &[]) {
                Ok(process) => {
                    core::mem::forget(process);
                    count += 1;
                }
                Err(Error::Limit) => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(count)
}

/// What a process got.
struct Got {
    /// The priority of the first thread, and that of the additional thread of an image.
    priorities: Vec<u64>,
    /// The highest priority that threads of its space can get.
    ceiling: u64,
    /// Kernel memory of its space.
    quota: u64,
}

/// Does something with the objects of a process while it is frozen.
fn opened<R>(process: &Process, f: impl FnOnce(u64, &Ref) -> Result<R, Error>) -> Result<R, Error> {
    let frozen = process.freeze(0)?;
    let window = Window::map(&frozen.control, 0, CONTROL_SIZE, READ | WRITE | OBJECTS)?;
    let result = f(window.address(), &frozen.memory);
    drop(window);
    process.thaw()?;
    result
}

fn look(process: &Process, added: bool) -> Result<Got, Error> {
    opened(process, |control, memory| {
        let priority = |at: u64| {
            let state = ThreadAt(at).get_state(0, 0, 0).map_err(error)?;
            Ok(state.priority)
        };
        let mut priorities = [priority(control + CONTROL_THREAD)?].to_vec();
        if added {
            let window = Window::map(memory, FAR, PAGE_SIZE, READ | WRITE | OBJECTS)?;
            priorities.push(priority(window.address())?);
        }
        let space = SpaceAt(control + CONTROL_SPACE)
            .get_state(0)
            .map_err(error)?;
        Ok(Got {
            priorities,
            ceiling: space.max_priority,
            quota: space.quota,
        })
    })
}

/// Tries to raise a process by its control port.
fn raise(manager: &str, process: &Process) -> Result<(), Error> {
    opened(process, |control, _| {
        let (thread, space) = (
            ThreadAt(control + CONTROL_THREAD),
            SpaceAt(control + CONTROL_SPACE),
        );
        let said = |result: Result<(), abi::Code>| match result {
            Ok(()) => "DONE".to_string(),
            Err(code) => format!("{code:?}"),
        };
        let asked = said(thread.set_priority(WANTED));
        let mut state = thread.get_state(0, 0, 0).map_err(error)?;
        state.priority = WANTED;
        let set = said(thread.set_state(&state, 0, 0, 0));
        let mut state = space.get_state(0).map_err(error)?;
        state.max_priority = WANTED;
        let ceiling = said(space.set_state(&state, 0));
        let mut state = space.get_state(0).map_err(error)?;
        state.quota += 1 << 12;
        let quota = said(space.set_state(&state, 0));
        println!("ceiling: {manager}: by its control port: {asked}, {set}, {ceiling}, {quota}");
        Ok(())
    })
}

/// A thread without a space, in a process, with an exception of a guarded access, must not be put into its manager's
/// space, where it would go on.
fn stray(manager: &str, process: &Process) -> Result<(), Error> {
    let there = |memory: &Ref| {
        let window = Window::map(memory, FAR + PAGE_SIZE, PAGE_SIZE, READ | WRITE | OBJECTS)?;
        Ok::<_, Error>((ThreadAt(window.address()), window))
    };
    opened(process, |_, memory| {
        let (thread, _window) = there(memory)?;
        thread.create().map_err(error)?;
        let state = ThreadState {
            registers: rt::guard::in_access(PAGE_SIZE, PAGE_SIZE + 1),
            exception_delivered: 1,
            exception: abi::Exception::Memory as u64,
            stop_count: 1,
            ..ThreadState::default()
        };
        let nothing = Ref::new().map_err(error)?;
        thread
            .set_state(&state, nothing.handle(), 0, 0)
            .map_err(error)
    })?;
    let space = opened(process, |_, memory| {
        let (thread, _window) = there(memory)?;
        let space = Ref::new().map_err(error)?;
        thread.get_state(space.handle(), 0, 0).map_err(error)?;
        thread.destroy().map_err(error)?;
        Ok(space.kind())
    })?;
    println!("ceiling: {manager}: a thread without a space is in {space:?}");
    Ok(())
}

/// An image in which everything has the highest priority and much kernel memory, with an additional thread and space.
fn lie(image: &mut Image, native: bool) {
    let mut added = None;
    for object in &mut image.meta.objects {
        match &mut object.state {
            State::Space {
                quota,
                max_priority,
                ..
            } => {
                (*quota, *max_priority) = (MAX_QUOTA, WANTED);
            }
            State::Thread { words, .. } => {
                words[REGISTER_WORDS + PRIORITY] = WANTED;
                added = added.or(native.then(|| object.clone()));
            }
            _ => {}
        }
    }
    let Some(mut thread) = added else { return };
    thread.place = place(0);
    insert(image, thread);
    insert(image, space(1, 0));
}

fn place(n: u64) -> Place {
    Place {
        process: 0,
        segment: Segment::Memory,
        offset: FAR + n * 16,
    }
}

/// A space with a quota of kernel memory.
fn space(n: u64, quota: u64) -> Object {
    Object {
        place: place(n),
        state: State::Space {
            flags: 0,
            quota,
            clock_offset: 0,
            max_priority: WANTED,
        },
        refs: [Target::Null].to_vec(),
    }
}

/// Objects are in the order of their places, and name each other by their positions.
fn insert(image: &mut Image, mut object: Object) {
    let objects = &mut image.meta.objects;
    let behind = objects.partition_point(|other| other.place < object.place);
    let all = objects.iter_mut().chain([&mut object]);
    for target in all.flat_map(|object| &mut object.refs) {
        if let Target::Object(n) | Target::ClientEnd(n) | Target::ServerEnd(n) = target {
            *n += u32::from(*n as usize >= behind);
        }
    }
    objects.insert(behind, object);
}

fn words(error: Error) -> Sentence {
    error.text().to_string()
}

fn end(process: &Process) {
    let _ = process.kill();
    let _ = process.reap();
}

/// A process that spins is saved, and restored from an image that asks for more.
fn image((manager, path, args): (&str, &str, &[&str])) -> Result<(), Sentence> {
    let file = format!("{PLACE}-ceiling");
    let process = Client::new(manager).and_then(|m| m.spawn(path, &start(args), &[]));
    let process = process.map_err(words)?;
    // By then the process is somewhere in its loop.
    time::sleep(50_000_000);
    let before = look(&process, false).map_err(words)?;
    raise(manager, &process).map_err(words)?;
    stray(manager, &process).map_err(words)?;
    let saved = rt::checkpoint::save(&[process.port().at()], &file);
    end(&process);
    saved?;
    let mut image = Image::read(&file)?;
    let native = manager == "native";
    lie(&mut image, native);
    fs::write_all(&file, &image.bytes(), 0o644).map_err(words)?;
    let restored = rt::checkpoint::restore(&file)?;
    let _ = fs::unlink(&file);
    let [(_, _, restored)] = &restored[..] else {
        return Err("another number of processes".to_string());
    };
    // If they got what the image asks for, they could now take the processor for ever.
    time::sleep(50_000_000);
    let got = look(restored, native).map_err(words)?;
    raise(manager, restored).map_err(words)?;
    end(restored);
    let Got {
        priorities,
        ceiling,
        quota,
    } = got;
    println!(
        "ceiling: {manager}: from an image that asks for {WANTED}: {priorities:?}, at most {ceiling}, {} kernel memory",
        if quota == before.quota { "no more" } else { "more" }
    );
    Ok(())
}

/// The program: images and control ports.
pub fn run() -> u8 {
    for spinner in SPINNERS {
        if let Err(why) = image(spinner) {
            println!("ceiling: {}: {why}", spinner.0);
        }
    }
    0
}

/// The program: restores an image with a space that asks for as much kernel memory as it can get, and keeps it for
/// two seconds.
pub fn quotas() -> u8 {
    match hold_quotas() {
        Ok(()) => 0,
        Err(why) => {
            println!("quotas: {why}");
            1
        }
    }
}

fn hold_quotas() -> Result<(), Sentence> {
    let file = format!("{PLACE}-quotas");
    let (manager, path, _) = SPINNERS[0];
    let process =
        Client::new(manager).and_then(|m| m.spawn(path, &start(&["services", "idle"]), &[]));
    let process = process.map_err(words)?;
    time::sleep(10_000_000);
    let saved = rt::checkpoint::save(&[process.port().at()], &file);
    end(&process);
    saved?;
    let asks = format!("{file}-asks");
    let ask = |quota: u64| {
        let mut image = Image::read(&file)?;
        insert(&mut image, space(0, quota));
        fs::write_all(&asks, &image.bytes(), 0o644).map_err(words)?;
        rt::checkpoint::restore(&asks)
    };
    let (mut most, mut why) = (0, Sentence::new());
    for bit in (PAGE_SIZE.ilog2()..=MAX_QUOTA.ilog2()).rev() {
        match ask(most | 1 << bit) {
            Ok(restored) => {
                most |= 1 << bit;
                restored.iter().for_each(|(_, _, process)| end(process));
                // They are destroyed in the background.
                time::sleep(20_000_000);
            }
            Err(refused) => why = refused,
        }
    }
    let held = ask(most)?;
    println!("quotas: {most:#x} bytes, then: {why}");
    time::sleep(2_000_000_000);
    for (_, _, process) in &held {
        end(process);
    }
    Ok(())
}
