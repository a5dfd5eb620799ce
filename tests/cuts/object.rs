//! How an object is taken apart and made again (rule A6), and which words of its state are compared: the same for the
//! kernel on the host and for the kernel in the guest. The tests of both include this file, since each has its own
//! `abi`.

use abi::state::{FPU_BYTES, STATES, THREAD_WORDS};
use abi::{Call, Common, Type};

/// Words of the longest state.
pub(super) const WORDS: usize = THREAD_WORDS + FPU_BYTES / 8;

/// How many words the state of a type has, and the indices of those that `set_state` ignores.
pub(super) const fn words(ty: Type) -> (usize, &'static [usize]) {
    match ty {
        Type::Mutex | Type::Reference => (1, &[]),
        Type::Port => (2, &[]),
        Type::Cond | Type::Portset => (0, &[]),
        Type::Region => (3, &[]),
        Type::Mapping => (4, &[]),
        // The quota in use.
        Type::Space => (5, &[2]),
        // What the thread waits for.
        Type::Thread => (WORDS, &[THREAD_WORDS - 3, THREAD_WORDS - 2]),
    }
}

/// How many references the state of a type has.
pub(super) fn references(ty: Type) -> usize {
    STATES[ty as usize - 1].references.len()
}

/// Makes the calls.
pub(super) trait Manager {
    /// The error of a call that does not succeed.
    type Error;
    /// Makes a call that must succeed.
    fn call(&self, call: Call, parameters: [u64; 5]) -> Result<(), Self::Error>;
}

/// An object by its handle, and the places for its parts: the address of its state, references that it holds, and a
/// reference that keeps its identity while it has no body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) ty: Type,
    pub(super) handle: u64,
    pub(super) state: u64,
    pub(super) references: [u64; 3],
    pub(super) identity: u64,
}

impl Object {
    fn common<M: Manager>(
        &self,
        manager: &M,
        which: Common,
        parameters: [u64; 5],
    ) -> Result<(), M::Error> {
        manager.call(which.of(self.ty), parameters)
    }

    fn parameters(&self) -> [u64; 5] {
        let mut p = [self.handle, self.state, 0, 0, 0];
        let count = references(self.ty);
        p[2..2 + count].copy_from_slice(&self.references[..count]);
        p
    }

    /// Stops it, if it is a thread.
    pub(super) fn stop<M: Manager>(&self, manager: &M) -> Result<(), M::Error> {
        match self.ty {
            Type::Thread => manager.call(Call::ThreadStop, [self.handle, 0, 0, 0, 0]),
            _ => Ok(()),
        }
    }

    /// Lets it go on, if it is a thread.
    pub(super) fn resume<M: Manager>(&self, manager: &M) -> Result<(), M::Error> {
        match self.ty {
            Type::Thread => manager.call(Call::ThreadResume, [self.handle, 0, 0, 0, 0]),
            _ => Ok(()),
        }
    }

    /// Takes its state.
    pub(super) fn get<M: Manager>(&self, manager: &M) -> Result<(), M::Error> {
        self.common(manager, Common::GetState, self.parameters())
    }

    /// Destroys its body.
    pub(super) fn destroy<M: Manager>(&self, manager: &M) -> Result<(), M::Error> {
        let parameters = [self.handle, self.identity, 0, 0, 0];
        self.common(manager, Common::Destroy, parameters)
    }

    /// Gives the identity a new body: at its address, or at `elsewhere` and moved back from there.
    pub(super) fn create<M: Manager>(
        &self,
        manager: &M,
        elsewhere: Option<u64>,
    ) -> Result<(), M::Error> {
        let at = elsewhere.unwrap_or(self.handle);
        self.common(manager, Common::Create, [at, self.identity, 0, 0, 0])?;
        match elsewhere {
            Some(at) => self.common(manager, Common::Move, [at, self.handle, 0, 0, 0]),
            None => Ok(()),
        }
    }

    /// Sets the state that was taken.
    pub(super) fn set<M: Manager>(&self, manager: &M) -> Result<(), M::Error> {
        self.common(manager, Common::SetState, self.parameters())
    }
}
