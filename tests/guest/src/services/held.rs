//! A client that holds each service in the middle of a request, in every way, and stays.

use super::counters::{Counters, Outcome, OTHER};
use super::error;
use super::owned::{Other, OTHERS};
use super::pending::{PendingCall, Way, WAYS};
use super::references::{SilentKeeper, SILENT_BYTES};
use super::table::{Writer, SERVICES};
use super::Sentence;
use abi::message::Segment;
use abi::registers::Area;
use abi::{Call, MAX_LIST_REFS, PAGE_SIZE};
use alloc::format;
use proto::Error;
use rt::obj::RefBlock;
use rt::sys::IpcRegs;

/// Replaces a part of a request by the memory at this address.
type Put = fn(IpcRegs, u64) -> IpcRegs;

/// The parts of a request that can be memory whose keeper never answers.
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

/// Holds this service by one thread in this way. Returns whether the thread is in the middle of its request.
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
        // Live, dead and vacant references of every type.
        let reference = writer.pool.any(&mut writer.random);
        let _ = refs.get(n).point_to(reference);
    }
    let to = (service.port)()?;
    let regs = IpcRegs::to(to.handle()).sending(Area {
        refs: refs.list(refs.len()),
        ..area(message.as_ptr() as u64, message.len() as u64)
    });
    let regs = buffer(regs, silent.memory + PAGE_SIZE);
    // SAFETY: the message is leaked, the references are forgotten; the other memory is not in use.
    let pending = unsafe { PendingCall::new(Call::Call, regs, [to].into()) }?;
    core::mem::forget(refs);
    // The other thread runs while this one sleeps.
    rt::time::sleep(100_000);
    let away = pending.is_away();
    if away {
        way(&pending)?;
    }
    core::mem::forget(pending);
    Ok(away)
}

/// Holds the service with this number in the way with this number, and stays.
fn stay(service: usize, way: usize) -> Result<(), Error> {
    let counters = rt::start::passed(0)
        .ok_or(Error::Invalid)
        .and_then(Counters::at)?;
    if let Some(other) = way.checked_sub(BUFFERS.len() * WAYS.len()) {
        let outcome = match (OTHERS[other].hold)(SERVICES[service].name) {
            Ok(true) => Outcome::Held,
            Ok(false) | Err(_) => Outcome::Refused,
        };
        counters.count(OTHER, outcome);
    } else {
        let silent = SilentKeeper::new()?;
        let mut writer = Writer::new(way as u64, &silent)?;
        let (buffer, way) = (BUFFERS[way / WAYS.len()].1, WAYS[way % WAYS.len()].1);
        for _ in 0..THREADS {
            if hold(service, (buffer, way), &mut writer, &silent)? {
                counters.count(service, Outcome::Held);
            }
        }
        core::mem::forget(silent);
    }
    loop {
        rt::time::sleep(1_000_000_000);
    }
}

/// Threads that hold a service in the same way.
const THREADS: usize = 3;

/// The program: holds the service in the way that this number stands for.
pub fn run(number: u64) -> u8 {
    let (service, way) = (number as usize / COUNT, number as usize % COUNT);
    if service >= SERVICES.len() {
        return 2;
    }
    u8::from(stay(service, way).is_err())
}

/// The number that stands for this service and this way.
#[must_use]
pub const fn number(service: usize, way: usize) -> usize {
    service * COUNT + way
}

/// How many ways there are.
pub const COUNT: usize = BUFFERS.len() * WAYS.len() + OTHERS.len();

/// Whether a service can be held in this way.
#[must_use]
pub fn applies(service: usize, way: usize) -> bool {
    other(way).is_none_or(|other| other.services.contains(&SERVICES[service].name))
}

/// The way with this number, if it is not by memory that never comes.
#[must_use]
pub fn other(way: usize) -> Option<&'static Other> {
    OTHERS.get(way.checked_sub(BUFFERS.len() * WAYS.len())?)
}

/// What a way is, in words.
#[must_use]
pub fn words(way: usize) -> Sentence {
    if let Some(other) = other(way) {
        return other.words.into();
    }
    let (buffer, _) = BUFFERS[way / WAYS.len()];
    format!(
        "{buffer} never comes, the thread is {}",
        WAYS[way % WAYS.len()].0
    )
}
