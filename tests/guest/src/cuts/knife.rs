//! Takes objects apart and makes them again from their states (rule A6).

use crate::harness::{Failure, Must};
use abi::state::{Stage, REGISTER_WORDS};
use abi::{Call, Code, Type};
use alloc::boxed::Box;
use alloc::format;
use rt::obj::{Ref, RefAt};
use rt::sys;

#[path = "../../../cuts/object.rs"]
mod object;

use object::{references, words, Manager, Object, WORDS};

/// A state, aligned as the kernel wants it.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct State(pub [u64; WORDS]);

/// Words of a thread's state: whether an interrupt is pending, and the stage of its client end.
const INTERRUPT: usize = REGISTER_WORDS + 3;
const CLIENT_STAGE: usize = REGISTER_WORDS + 4;

/// An object that has been taken apart: its simple state, and the references that it holds.
pub struct Parts {
    pub ty: Type,
    pub handle: u64,
    pub state: Box<State>,
    references: [Ref; 3],
    /// A reference that keeps the identity while the object has no body.
    identity: Ref,
}

/// The calling thread.
struct Caller;

impl Manager for Caller {
    type Error = Failure;

    fn call(&self, call: Call, [a, b, c, d, e]: [u64; 5]) -> Result<(), Failure> {
        // SAFETY: handles and states are in the segment, where no Rust value lives, or in buffers of the caller.
        match unsafe { sys::syscall(call, [a, b, c, d, e, 0]) }.code {
            Code::Ok => Ok(()),
            code => Err(Failure::new(format!("{}: {code:?}", call.name()))),
        }
    }
}

impl Parts {
    /// Memory and references for the parts of one object.
    pub fn new() -> Result<Self, Failure> {
        let reference = || Ref::new().must("a reference");
        Ok(Parts {
            ty: Type::Mutex,
            handle: 0,
            state: Box::new(State([0; WORDS])),
            references: [reference()?, reference()?, reference()?],
            identity: reference()?,
        })
    }

    fn object(&self) -> Object {
        let [a, b, c] = &self.references;
        Object {
            ty: self.ty,
            handle: self.handle,
            state: core::ptr::from_ref(&*self.state) as u64,
            references: [a.handle(), b.handle(), c.handle()],
            identity: self.identity.handle(),
        }
    }

    /// Takes the state of an object.
    pub fn get(&mut self, ty: Type, handle: u64) -> Result<(), Failure> {
        (self.ty, self.handle) = (ty, handle);
        self.object().get(&Caller)
    }

    /// The words of the state that are set again, with their indices.
    pub fn words(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let (count, ignored) = words(self.ty);
        let used = self.state.0.iter().copied().enumerate().take(count);
        used.filter(move |(i, _)| !ignored.contains(i))
    }

    /// The `n`th reference of the state.
    #[must_use]
    pub fn reference(&self, n: usize) -> Option<RefAt> {
        (n < references(self.ty)).then(|| self.references[n].at())
    }

    /// Stops the thread and takes its state. Returns how many instructions that took.
    pub fn stop(&mut self, thread: u64) -> Result<u64, Failure> {
        (self.ty, self.handle) = (Type::Thread, thread);
        let begin = sys::clock_get();
        self.object().stop(&Caller)?;
        self.get(Type::Thread, thread)?;
        Ok(sys::clock_get() - begin)
    }

    /// Lets the thread go on.
    pub fn resume(&self) -> Result<(), Failure> {
        self.object().resume(&Caller)
    }

    /// Destroys the body.
    pub fn destroy(&self) -> Result<(), Failure> {
        self.object().destroy(&Caller)
    }

    /// Gives the identity a new body: at its address, or at `elsewhere` and moved back from there.
    pub fn create(&self, elsewhere: Option<u64>) -> Result<(), Failure> {
        self.object().create(&Caller, elsewhere)
    }

    /// Sets the state that was taken, and fails if `get_state` then returns another.
    pub fn set(&mut self, again: &mut Parts) -> Result<(), Failure> {
        self.set_and_compare(again, false)
    }

    /// As [`Parts::set`], when other threads ran since the state was taken: a connection that the server has
    /// ended meanwhile may stay ended, and an interrupt that has come may be pending.
    pub fn set_late(&mut self, again: &mut Parts) -> Result<(), Failure> {
        self.set_and_compare(again, true)
    }

    fn set_and_compare(&mut self, again: &mut Parts, late: bool) -> Result<(), Failure> {
        if self.ty == Type::Space && self.state.0[1] < self.state.0[2] {
            return Err("a space uses more than its quota".into());
        }
        let w = &self.state.0;
        self.object().set(&Caller).map_err(|why| match self.ty {
            Type::Thread => why.during(format_args!(
                "at {:#x} call {:#x} stops {} stages {} {} delivered {}",
                w[16], w[0], w[22], w[24], w[25], w[26]
            )),
            _ => why,
        })?;
        again.get(self.ty, self.handle)?;
        let ended = late
            && self.ty == Type::Thread
            && [Stage::Receiving as u64, Stage::Over as u64].contains(&self.state.0[CLIENT_STAGE])
            && again.state.0[CLIENT_STAGE] == Stage::Finished as u64;
        let expected = |i: usize, was: u64, is: u64| {
            let came = late && i == INTERRUPT && is == 1;
            was == is || self.ty == Type::Thread && (came || ended && i == CLIENT_STAGE)
        };
        let other = |&((i, was), (_, is)): &((usize, u64), (usize, u64))| !expected(i, was, is);
        if let Some(((i, was), (_, is))) = self.words().zip(again.words()).find(other) {
            crate::fail!(
                "word {i} of the state of a {} was set to {was:#x} and reads {is:#x}",
                self.ty.name()
            );
        }
        for n in 0..references(self.ty) {
            let (was, is) = (self.references[n].at(), again.references[n].at());
            let null = was.kind() == abi::RefKind::Null && is.kind() == abi::RefKind::Null;
            // The server has ended the connection, so the state names it no longer.
            let peer = ended && n == 1;
            if !null && !peer && !was.same_as(is) {
                crate::fail!("reference {n} of a {} is another now", self.ty.name());
            }
        }
        self.clear_port_references(self.ty == Type::Port)?;
        again.clear_port_references(false)
    }

    /// Clears references to ports, because a server may wait for the notice that nothing names its port.
    fn clear_port_references(&self, of_identity: bool) -> Result<(), Failure> {
        let identity = of_identity.then_some(&self.identity);
        let references = self.references.iter().take(references(self.ty));
        for reference in references.chain(identity) {
            let at = reference.at();
            if at.kind() == abi::RefKind::Port {
                at.clear().must("clear")?;
            }
        }
        Ok(())
    }
}
