//! Takes objects apart and makes them again from their states (rule A6).

use super::fixture::on;
use crate::harness::{ok, Failure, Must};
use abi::state::{Stage, FPU_BYTES, REGISTER_WORDS, STATES, THREAD_WORDS};
use abi::{Code, Common, Type};
use alloc::boxed::Box;
use alloc::format;
use rt::obj::{Ref, RefAt};
use rt::sys;

/// Words of the longest state.
const WORDS: usize = THREAD_WORDS + FPU_BYTES / 8;

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

/// How many words the state of a type has, and the indices of those that `set_state` ignores.
const fn words(ty: Type) -> (usize, &'static [usize]) {
    match ty {
        Type::Mutex | Type::Reference => (1, &[]),
        Type::Port => (2, &[]),
        Type::Cond | Type::Portset => (0, &[]),
        Type::Region => (3, &[]),
        Type::Mapping => (4, &[]),
        // What is in use.
        Type::Space => (5, &[2]),
        // What it waits for.
        Type::Thread => (WORDS, &[THREAD_WORDS - 3, THREAD_WORDS - 2]),
    }
}

/// How many references the state of a type has.
fn references(ty: Type) -> usize {
    STATES[ty as usize - 1].references.len()
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

    fn parameters(&self) -> [u64; 5] {
        let state = core::ptr::from_ref(&*self.state) as u64;
        let mut p = [self.handle, state, 0, 0, 0];
        for (i, reference) in self.references.iter().take(references(self.ty)).enumerate() {
            p[2 + i] = reference.handle();
        }
        p
    }

    fn call(&self, which: Common, parameters: [u64; 5], what: &str) -> Result<(), Failure> {
        match on(self.ty, which, parameters) {
            Code::Ok => Ok(()),
            code => Err(Failure::new(format!(
                "{what} of a {}: {code:?}",
                self.ty.name()
            ))),
        }
    }

    /// Takes the state of an object.
    pub fn get(&mut self, ty: Type, handle: u64) -> Result<(), Failure> {
        (self.ty, self.handle) = (ty, handle);
        self.call(Common::GetState, self.parameters(), "get_state")
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
        let begin = sys::clock_get();
        ok(sys::thread_stop(thread)).must("stop")?;
        self.get(Type::Thread, thread)?;
        Ok(sys::clock_get() - begin)
    }

    /// Destroys the body.
    pub fn destroy(&self) -> Result<(), Failure> {
        self.call(
            Common::Destroy,
            [self.handle, self.identity.handle(), 0, 0, 0],
            "destroy",
        )
    }

    /// Gives the identity a new body: at its address, or at `elsewhere` and moved back from there.
    pub fn create(&self, elsewhere: Option<u64>) -> Result<(), Failure> {
        let at = elsewhere.unwrap_or(self.handle);
        self.call(
            Common::Create,
            [at, self.identity.handle(), 0, 0, 0],
            "create",
        )?;
        match elsewhere {
            Some(at) => self.call(Common::Move, [at, self.handle, 0, 0, 0], "move"),
            None => Ok(()),
        }
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
        self.call(Common::SetState, self.parameters(), "set_state")
            .map_err(|why| match self.ty {
                Type::Thread => why.during(format_args!(
                    "rip {:#x} rax {:#x} stops {} stages {} {} delivered {}",
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
