//! A client that holds each service in the middle of a request, in every way, and stays.

use super::counters::{Counters, Outcome};
use super::error;
use super::honest::spawn;
use super::pending::{PendingCall, Way, WAYS};
use super::references::{SilentKeeper, SILENT_BYTES};
use super::table::{Service, Writer, IDLE, PROGRAM, SERVICES};
use super::Sentence;
use abi::message::Segment;
use abi::registers::Area;
use abi::{Call, MAX_LIST_REFS, PAGE_SIZE};
use alloc::format;
use proto::Error;
use rt::obj::RefBlock;
use rt::process::Process;
use rt::sys::IpcRegs;

/// Makes a part of a request memory at this address.
type Put = fn(IpcRegs, u64) -> IpcRegs;

/// What of a request is memory whose keeper never answers.
const BUFFERS: [(&str, Put); 6] = [
    ("nothing", |regs, _| regs),
    ("the message", |regs, never| {
        regs.sending(area(never, SILENT_BYTES - PAGE_SIZE))
    }),
    ("the end of the message", |regs, never| {
        let rest: &'static [Segment] = alloc::vec![Segment {
            address: never,
            length: 64,
        }]
        .leak();
        regs.sending(Area {
            list: rest.as_ptr() as u64,
            entries: 1,
            ..regs.unsent()
        })
    }),
    ("the place of the answer", |regs, never| {
        regs.receiving(area(never, SILENT_BYTES - PAGE_SIZE))
    }),
    ("the references that go", |regs, never| {
        regs.sending(Area {
            refs: abi::ref_list(never, 3),
            ..regs.unsent()
        })
    }),
    ("the references that come", |regs, never| {
        regs.taking_refs(abi::ref_list(never, 3))
    }),
];

fn area(address: u64, length: u64) -> Area {
    Area {
        address,
        length,
        ..Area::default()
    }
}

/// Holds this service by one thread in this way: whether the thread is in the middle of its request.
fn hold(
    number: usize,
    (buffer, way): (Put, Way),
    writer: &mut Writer,
    silent: &SilentKeeper,
) -> Result<bool, Error> {
    let service = &SERVICES[number];
    let request = (service.write)(writer, number);
    let message = request.message().leak();
    let refs = RefBlock::new(MAX_LIST_REFS as usize).map_err(error)?;
    for n in 0..refs.len() {
        // Live, dead and vacant ones of every type.
        let reference = writer.pool.any(&mut writer.random);
        let _ = refs.get(n).point_to(reference);
    }
    let to = (service.port)()?;
    let regs = IpcRegs::to(to.handle()).sending(Area {
        refs: refs.list(refs.len()),
        ..area(message.as_ptr() as u64, message.len() as u64)
    });
    let regs = buffer(regs, silent.memory + PAGE_SIZE);
    // SAFETY: the message is leaked, the references are forgotten; the other memory is nobody's.
    let pending = unsafe { PendingCall::new(Call::Call, regs, [to].into()) }?;
    core::mem::forget(refs);
    // Its turn comes while this one sleeps.
    rt::time::sleep(100_000);
    let away = pending.is_away();
    if away {
        way(&pending)?;
    }
    core::mem::forget(pending);
    Ok(away)
}

/// Makes a request of the service that waits for ever, if it has one, from a thread of its own: the end of a process that
/// does not end, input that does not come.
fn wait(service: &Service) -> Result<bool, Error> {
    let ended = |process: Process| {
        move || {
            let _ = process.ended();
        }
    };
    let thread = match service.name {
        "native" => {
            let process = spawn("native", PROGRAM, &["services", IDLE])?;
            rt::thread::spawn(ended(process))
        }
        "linux" => {
            let process = spawn("linux", "/bin/busybox", &["busybox", "sleep", "100000"])?;
            rt::thread::spawn(ended(process))
        }
        "console" => rt::thread::spawn(|| {
            let _ = rt::console::read(&mut [0; 64]);
        }),
        _ => return Ok(false),
    };
    let thread = thread.map_err(error)?;
    rt::time::sleep(1_000_000);
    Ok(!thread.is_finished())
}

/// Holds the service in one way, by a few threads with different requests, and stays.
fn stay(service: usize, way: usize) -> Result<(), Error> {
    let counters = rt::start::passed(0)
        .ok_or(Error::Invalid)
        .and_then(Counters::at)?;
    let silent = SilentKeeper::new()?;
    let mut writer = Writer::new(way as u64, &silent)?;
    if way == 0 && wait(&SERVICES[service])? {
        counters.count(service, Outcome::Held);
    }
    let (buffer, way) = (BUFFERS[way / WAYS.len()].1, WAYS[way % WAYS.len()].1);
    for _ in 0..THREADS {
        if hold(service, (buffer, way), &mut writer, &silent)? {
            counters.count(service, Outcome::Held);
        }
    }
    loop {
        rt::time::sleep(1_000_000_000);
    }
}

/// Threads that hold a service in the same way.
const THREADS: usize = 3;

/// The program: holds the service with this number, in the way with this number.
pub fn run(service: u64, way: u64) -> u8 {
    let (service, way) = (service as usize, way as usize);
    if service >= SERVICES.len() || way >= COUNT {
        return 2;
    }
    u8::from(stay(service, way).is_err())
}

/// How many ways there are.
pub const COUNT: usize = BUFFERS.len() * WAYS.len();

/// What a way is, in words.
#[must_use]
pub fn words(way: usize) -> Sentence {
    let (buffer, _) = BUFFERS[way / WAYS.len() % BUFFERS.len()];
    format!(
        "{buffer} never comes, the thread is {}",
        WAYS[way % WAYS.len()].0
    )
}
