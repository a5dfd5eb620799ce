//! Faults and exceptions: how keepers hear of them.
//!
//! A *memory fault* goes as an idempotent message to the keeper of the region where the walk
//! failed. It leaves no trace in the thread: after the reply, or a restart, the thread tries again.
//! An *exception* goes as a reliable message to the keeper of the thread's space: once delivered,
//! the thread's state says so, and the reply with registers is the commit.

use crate::ipc::{self, News};
use crate::memory::{self, Access, Fault};
use crate::object::port::Port;
use crate::object::thread::{Hint, Missing, Thread};
use crate::object::Object;
use crate::{Stop, K};
use abi::message::FAULT_WORDS;
use abi::state::Waiting;
use abi::{access, Exception, PAGE_SIZE};

/// A page fault of the running thread's own instruction.
pub(crate) fn page(k: K, t: &'static Thread, address: u64, write: bool, execute: bool) {
    let need = match (write, execute) {
        (true, _) => access::WRITE,
        (_, true) => access::EXECUTE,
        _ => access::READ,
    };
    absent(k, t, address, Access(need));
}

/// A page that an instruction of the running thread needs.
pub(crate) fn absent(k: K, t: &'static Thread, address: u64, need: Access) {
    let Some(space) = t.space() else {
        return t.halt(Exception::NoSpace, address);
    };
    match memory::make_present(k, space, address, need) {
        Ok(()) => {}
        // No memory even for the tables of one page. There is no call whose result could say so.
        Err(Stop::Code(_)) => exception(k, t, Exception::Memory, address, need.0),
        Err(stop) => {
            k.deal_with(t, stop);
            if matches!(t.waiting(), Waiting::Reply | Waiting::Port) {
                t.goes_on_with_page(address, need);
            }
        }
    }
}

/// A page that is not there, for an access of the running thread, by itself or in a call.
pub(crate) fn memory(k: K, t: &'static Thread, fault: &Fault) {
    let page = fault.address & !(PAGE_SIZE - 1);
    let refused = matches!(t.hint.get(), Hint::Refused(p) if p == page);
    t.hint.set(Hint::None);
    if !refused {
        if let Some((region, offset)) = fault.at {
            if let Some(port) = region.keeper.get().get::<Port>() {
                let words: [u64; FAULT_WORDS] = [
                    offset & !(PAGE_SIZE - 1),
                    (region.start.get() + offset) & !(PAGE_SIZE - 1),
                    fault.access.0,
                    t.tag.get(),
                ];
                // The reply compares with what failed here.
                let missing = Missing::new(fault.address, fault.access);
                return send(k, t, port, &News::Fault(words, missing, region));
            }
        }
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
    let news = News::Exception([code as u64, address, detail, t.tag.get()]);
    send(k, t, port, &news);
}

fn send(k: K, t: &'static Thread, port: &'static Port, news: &News) {
    if port.head().open().is_err() {
        k.deal_with(t, Stop::Vacant);
        return;
    }
    ipc::send_from_kernel(k, t, port, news);
}

/// An exception of the processor.
pub(crate) fn processor(k: K, t: &'static Thread, vector: u8, error: u64) {
    let code = match Exception::from_raw(u64::from(vector)) {
        Some(code) if vector < 32 => code,
        _ => Exception::Processor,
    };
    exception(k, t, code, t.ctx.rip.get(), error);
}
