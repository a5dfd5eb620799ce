//! Faults and exceptions: how keepers hear of them.
//!
//! A *memory fault* goes as an idempotent message to the keeper of the region where the walk
//! failed. It leaves no trace in the thread: after the reply, or a restart, the thread tries again.
//! An *exception* goes as a reliable message to the keeper of the thread's space: once delivered,
//! the thread's state says so, and the reply with registers is the commit.

use super::KernelMessage;
use crate::kept::Continuation;
use crate::memory;
use crate::object::port::Port;
use crate::object::region::Region;
use crate::object::space::Space;
use crate::object::thread::{Hint, Missing, Thread};
use crate::object::Object;
use crate::stop::{Access, Fault, Stop};
use crate::{Kernel, K};
use abi::message::FAULT_WORDS;
use abi::state::Waiting;
use abi::{access, Exception, PAGE_SIZE};

/// A page fault of the running thread's own instruction. Returns whom to resume.
pub(crate) fn page(
    k: K,
    t: &'static Thread,
    address: u64,
    write: bool,
    execute: bool,
) -> &'static Thread {
    let need = match (write, execute) {
        (true, _) => access::WRITE,
        (_, true) => access::EXECUTE,
        _ => access::READ,
    };
    absent(k, t, address, Access(need))
}

/// A page that an instruction of the running thread needs. Returns whom to resume.
pub(crate) fn absent(k: K, t: &'static Thread, address: u64, need: Access) -> &'static Thread {
    let Some(space) = t.open_space() else {
        t.halt(Exception::NoSpace, address);
        return k.exit_trap(t);
    };
    match memory::make_present(k, space, address, need) {
        // If it is the first one, there was nothing that the processor could be in.
        Ok(_) | Err(Stop::Device(..)) => space.table.keep_active(),
        // No memory even for the tables of one page. There is no call whose result could say so.
        Err(Stop::Code(_)) => exception(k, t, Exception::Memory, address, need.0),
        Err(Stop::Fault(fault)) => {
            if let Some(next) = ask_keeper(k, t, &fault) {
                return next;
            }
            if matches!(t.waiting(), Waiting::Reply | Waiting::Port) {
                goes_on_with_page(t, address, need);
            }
        }
        Err(stop) => return k.stopped(t, stop),
    }
    k.exit_trap(t)
}

/// The wait of the thread that has just begun is for a page that an instruction of its own needs.
#[inline(always)]
pub(super) fn goes_on_with_page(t: &Thread, address: u64, need: Access) {
    t.kept.set(Continuation {
        function: look_again,
        words: [address, need.0, t.ctx.pc().get(), 0],
    });
}

/// Looks for the page again: the instruction does not have to fault to find out.
fn look_again(k: K, t: &'static Thread, [address, need, pc, _]: [u64; 4]) -> &'static Thread {
    if t.ctx.pc().get() == pc {
        return absent(k, t, address, Access(need));
    }
    k.exit_trap(t)
}

/// Who is to be asked for a page, and how.
type Question = (&'static Port, [u64; FAULT_WORDS], &'static Region);

/// The keeper's port, the message, and the region whose keeper it is; `None` if that keeper has already replied
/// to this page without supplying it.
#[inline(always)]
fn keeper_of(t: &Thread, fault: &Fault) -> Option<Question> {
    let page = fault.address & !(PAGE_SIZE - 1);
    if matches!(t.hint.get(), Hint::Refused(p) if p.0 == page) {
        return None;
    }
    let (region, offset) = fault.at?;
    let port = region.keeper.get().get::<Port>()?;
    let words = [
        offset & !(PAGE_SIZE - 1),
        (region.start.get() + offset) & !(PAGE_SIZE - 1),
        fault.access.0,
        t.ctx.tag.get(),
    ];
    Some((port, words, region))
}

/// Asks for a page that the running thread needs, by itself or in a call. Returns whom to resume, if the keeper waits
/// to be asked and the processor goes straight to it.
#[inline(always)]
fn ask_keeper(k: K, t: &'static Thread, fault: &Fault) -> Option<&'static Thread> {
    let question = keeper_of(t, fault);
    if let Some((port, words, region)) = &question {
        let next = super::fast::fault(k, t, port, words, fault, region);
        if next.is_some() {
            return next;
        }
    }
    send_fault(k, t, fault, question);
    None
}

/// Asks for a page that a thread needs which is not the running one.
pub(super) fn ask_for(k: K, t: &'static Thread, fault: &Fault) {
    send_fault(k, t, fault, keeper_of(t, fault));
}

/// Asks stage by stage. Without anybody to ask it is an exception.
#[inline(never)]
fn send_fault(k: K, t: &'static Thread, fault: &Fault, question: Option<Question>) {
    t.hint.set(Hint::None);
    if let Some((port, words, region)) = question {
        // The reply compares with what failed here.
        return send(
            k,
            t,
            port,
            &KernelMessage::Fault(words, Missing::of(fault), region),
        );
    }
    exception(k, t, Exception::Memory, fault.address, fault.access.0);
}

/// An exception of the running thread.
pub(crate) fn exception(k: K, t: &'static Thread, code: Exception, address: u64, detail: u64) {
    let keeper = t.space().and_then(|s| s.keeper.get().get::<Port>());
    let Some(port) = keeper else {
        t.quit(k);
        return t.halt(code, address);
    };
    t.exception.set(code as u8);
    t.exception_address.set(address);
    let news = KernelMessage::Exception([code as u64, address, detail, t.ctx.tag.get()]);
    send(k, t, port, &news);
}

fn send(k: K, t: &'static Thread, port: &'static Port, news: &KernelMessage) {
    if !port.head().is_open() {
        return t.wait_vacant(k, port.head());
    }
    super::send_from_kernel(k, t, port, news);
}

/// An exception of the processor. Returns whom to resume.
pub(crate) fn processor(k: K, t: &'static Thread, vector: u8, error: u64) -> &'static Thread {
    let code = match Exception::from_raw(u64::from(vector)) {
        Some(code) if vector < 32 => code,
        _ => Exception::Processor,
    };
    let address = t.ctx.pc().get();
    if let Some(next) = super::fast::exception(k, t, code, address, error) {
        return next;
    }
    exception(k, t, code, address, error);
    k.exit_trap(t)
}

/// What has to happen before a call of a thread that makes a detour. Its space, if it can then make
/// the call.
#[cold]
pub(crate) fn prepare(k: K, t: &'static Thread) -> Option<&'static Space> {
    let Some(space) = t.space() else {
        exception(k, t, Exception::NoSpace, 0, 0);
        return None;
    };
    if space.foreign.get() {
        let (pc, call) = (t.ctx.pc().get(), t.ctx.call().get());
        exception(k, t, Exception::ForeignCall, pc, call);
        return None;
    }
    Some(space)
}

impl Kernel {
    /// Ends a trap whose handler was stopped.
    #[inline(never)]
    pub(crate) fn stopped(&'static self, t: &'static Thread, stop: Stop) -> &'static Thread {
        self.counters.abandon(t, &stop);
        match stop {
            Stop::Code(code) => t.finish(code),
            Stop::Again | Stop::Cut => {}
            Stop::Vacant(met) => t.wait_vacant(self, met),
            Stop::Fault(fault) => {
                if let Some(next) = ask_keeper(self, t, &fault) {
                    return next;
                }
            }
            Stop::Device(page, access) => {
                exception(self, t, Exception::Memory, page, access.0);
            }
            Stop::Exception(code, address) => exception(self, t, code, address, 0),
        }
        self.exit_trap(t)
    }
}
