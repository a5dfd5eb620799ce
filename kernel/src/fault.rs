//! Faults and exceptions: how keepers hear of them.
//!
//! A *memory fault* goes as an idempotent message to the keeper of the region where the walk
//! failed. It leaves no trace in the thread: after the reply, or a restart, the thread tries again.
//! An *exception* goes as a reliable message to the keeper of the thread's space: once delivered,
//! the thread's state says so, and the reply with registers is the commit.

use crate::ipc::{self, KernelMessage};
use crate::memory::{self, Access, Fault};
use crate::object::port::Port;
use crate::object::region::Region;
use crate::object::thread::{Hint, Missing, Thread};
use crate::object::Object;
use crate::{Stop, K};
use abi::message::FAULT_WORDS;
use abi::state::Waiting;
use abi::{access, Exception, PAGE_SIZE};
use hal::Pfn;

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
    let made = memory::make_present(k, space, address, need);
    match &made {
        // If it is the first one, there was nothing that the processor could be in.
        Ok(_) | Err(Stop::Device(..)) => space.table.keep_active(),
        // No memory even for the tables of one page. There is no call whose result could say so.
        Err(Stop::Code(_)) => exception(k, t, Exception::Memory, address, need.0),
        Err(Stop::Fault(fault)) => {
            if let Some(next) = ask_keeper(k, t, fault) {
                return next;
            }
            memory(k, t, fault);
            if matches!(t.waiting(), Waiting::Reply | Waiting::Port) {
                t.goes_on_with_page(address, need);
            }
        }
        Err(_) => return went_wrong(k, t, made),
    }
    k.exit_trap(t)
}

#[cold]
fn went_wrong(k: K, t: &'static Thread, made: Result<Pfn, Stop>) -> &'static Thread {
    if let Err(stop) = made {
        k.deal_with(t, stop);
    }
    k.exit_trap(t)
}

/// The keeper's port, the message, and the region whose keeper it is; `None` if that keeper has already replied
/// to this page without supplying it.
#[inline(always)]
fn keeper_of(
    t: &Thread,
    fault: &Fault,
) -> Option<(&'static Port, [u64; FAULT_WORDS], &'static Region)> {
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

/// Asks for a page that the running thread needs, by itself or in a call, if its keeper waits to be asked.
/// Returns whom to resume.
#[inline(always)]
pub(crate) fn ask_keeper(k: K, t: &'static Thread, fault: &Fault) -> Option<&'static Thread> {
    let (port, words, region) = keeper_of(t, fault)?;
    ipc::fast::fault(k, t, port, &words, fault, region)
}

/// A page that is not there, for an access of the running thread, by itself or in a call.
pub(crate) fn memory(k: K, t: &'static Thread, fault: &Fault) {
    let keeper = keeper_of(t, fault);
    t.hint.set(Hint::None);
    if let Some((port, words, region)) = keeper {
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
    if let Err(vacant) = port.head().open() {
        k.deal_with(t, vacant);
        return;
    }
    ipc::send_from_kernel(k, t, port, news);
}

/// An exception of the processor. Returns whom to resume.
pub(crate) fn processor(k: K, t: &'static Thread, vector: u8, error: u64) -> &'static Thread {
    let code = match Exception::from_raw(u64::from(vector)) {
        Some(code) if vector < 32 => code,
        _ => Exception::Processor,
    };
    let address = t.ctx.pc().get();
    if let Some(next) = ipc::fast::exception(k, t, code, address, error) {
        return next;
    }
    exception(k, t, code, address, error);
    k.exit_trap(t)
}
