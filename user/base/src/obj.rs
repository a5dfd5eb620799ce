//! Kernel objects as types.
//!
//! For every type of object there is a borrowed handle (`MutexAt`, `RefAt`, ...: an address and
//! nothing else) with the operations, and an owned object (`Mutex`, `Ref`, ...) in a slot of the
//! program's slab, which dereferences to the handle and destroys the object when it is dropped.
//! Borrowed handles serve for objects elsewhere, for example in a mapped control segment.
//!
//! Where a state names other objects, the parameters are handles of references, 0 standing for
//! none.
use crate::{guard, slots, sys};
use abi::state::{
    FpuState, MappingState, MutexState, PortState, RegionState, SpaceState, ThreadState,
};
use abi::{Code, RefKind, Registers, Type};
use core::ops::Deref;

/// `Ok(())` for [`Code::Ok`], else the code.
pub fn done(code: Code) -> Result<(), Code> {
    match code {
        Code::Ok => Ok(()),
        code => Err(code),
    }
}

macro_rules! object {
    ($(#[doc = $doc:literal])+ $kind:ident $Owned:ident $At:ident $create:ident $destroy:ident $move_to:ident $reference:ident) => {
        /// The handle of
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $At(pub u64);

        impl $At {
            /// The handle as a number.
            #[inline]
            #[must_use]
            pub const fn handle(self) -> u64 {
                self.0
            }

            /// Creates the object at this address: [`Code::NoObject`] if there is no memory for objects at the address,
            /// or others take it away.
            pub fn create(self) -> Result<(), Code> {
                done(guard::create(Type::$kind, self.0).unwrap_or(Code::NoObject))
            }

            /// Destroys the object.
            pub fn destroy(self) -> Result<(), Code> {
                done(sys::$destroy(self.0, 0))
            }

            /// Moves the object to another address.
            pub fn move_to(self, to: u64) -> Result<(), Code> {
                done(sys::$move_to(self.0, to))
            }

            /// A new reference to the object.
            pub fn reference(self) -> Result<Ref, Code> {
                let reference = Ref::new()?;
                self.reference_into(*reference)?;
                Ok(reference)
            }

            /// Points an existing reference at the object.
            pub fn reference_into(self, reference: RefAt) -> Result<(), Code> {
                done(sys::$reference(self.0, reference.0))
            }
        }

        /// An owned object:
        $(#[doc = $doc])+
        #[derive(Debug)]
        pub struct $Owned($At);

        impl $Owned {
            /// Creates the object in a slot of the slab.
            pub fn new() -> Result<Self, Code> {
                let slot = slots::allocate(1).ok_or(Code::NoMemory)?;
                match done(sys::$create(slot, 0)) {
                    Ok(()) => Ok($Owned($At(slot))),
                    Err(code) => {
                        slots::free(slot, 1);
                        Err(code)
                    }
                }
            }

            /// The borrowed handle.
            #[must_use]
            pub const fn at(&self) -> $At {
                self.0
            }
        }

        impl Deref for $Owned {
            type Target = $At;
            fn deref(&self) -> &$At {
                &self.0
            }
        }

        impl Drop for $Owned {
            fn drop(&mut self) {
                let _ = self.0.destroy();
                slots::free(self.0 .0, 1);
            }
        }
    };
}

object!(
    /// a mutex.
    Mutex Mutex MutexAt mutex_create mutex_destroy mutex_move mutex_reference
);
object!(
    /// a condition variable.
    Cond Cond CondAt cond_create cond_destroy cond_move cond_reference
);
object!(
    /// a mapping.
    Mapping Mapping MappingAt mapping_create mapping_destroy mapping_move mapping_reference
);
object!(
    /// a region.
    Region Region RegionAt region_create region_destroy region_move region_reference
);
object!(
    /// a port.
    Port Port PortAt port_create port_destroy port_move port_reference
);
object!(
    /// a portset.
    Portset Portset PortsetAt portset_create portset_destroy portset_move portset_reference
);
object!(
    /// a space.
    Space Space SpaceAt space_create space_destroy space_move space_reference
);
object!(
    /// a thread.
    Thread Thread ThreadAt thread_create thread_destroy thread_move thread_reference
);
object!(
    /// a reference; a new one names nothing.
    Reference Ref RefAt reference_create reference_destroy reference_move reference_reference
);

impl MutexAt {
    /// Locks.
    pub fn lock(self) {
        sys::mutex_lock(self.0);
    }

    /// Locks if it is free.
    pub fn try_lock(self) -> bool {
        sys::mutex_trylock(self.0) == Code::Ok
    }

    /// Unlocks.
    pub fn unlock(self) {
        sys::mutex_unlock(self.0);
    }

    /// Whether it is locked.
    pub fn get_state(self) -> Result<MutexState, Code> {
        let mut state = MutexState::default();
        done(sys::mutex_get_state(self.0, &mut state))?;
        Ok(state)
    }

    /// Sets whether it is locked.
    pub fn set_state(self, state: &MutexState) -> Result<(), Code> {
        done(sys::mutex_set_state(self.0, state))
    }
}

impl CondAt {
    /// Unlocks the mutex, waits, locks the mutex again. May return for no reason.
    pub fn wait(self, mutex: MutexAt) {
        sys::cond_wait(self.0, mutex.0);
    }

    /// As `wait`, but no longer than the deadline.
    pub fn wait_until(self, mutex: MutexAt, deadline: u64) {
        sys::cond_wait_until(self.0, mutex.0, deadline);
    }

    /// Wakes one waiter.
    pub fn signal(self) {
        sys::cond_signal(self.0);
    }

    /// Wakes all waiters.
    pub fn broadcast(self) {
        sys::cond_broadcast(self.0);
    }

    /// Opens a vacant identity that got a new body.
    pub fn set_state(self) -> Result<(), Code> {
        done(sys::cond_set_state(self.0))
    }
}

impl MappingAt {
    /// The state; references that are not wanted are 0.
    pub fn get_state(self, region: u64, space: u64) -> Result<MappingState, Code> {
        let mut state = MappingState::default();
        done(sys::mapping_get_state(self.0, &mut state, region, space))?;
        Ok(state)
    }

    /// Sets the state; a space of 0 is the caller's own.
    pub fn set_state(self, state: &MappingState, region: u64, space: u64) -> Result<(), Code> {
        done(sys::mapping_set_state(self.0, state, region, space))
    }

    /// Changes the rights.
    pub fn protect(self, rights: u64) -> Result<(), Code> {
        done(sys::mapping_protect(self.0, rights))
    }
}

impl RegionAt {
    /// The state; references that are not wanted are 0.
    pub fn get_state(self, space: u64, keeper: u64) -> Result<RegionState, Code> {
        let mut state = RegionState::default();
        done(sys::region_get_state(self.0, &mut state, space, keeper))?;
        Ok(state)
    }

    /// Sets the state; a space of 0 is the caller's own, a keeper of 0 is none.
    pub fn set_state(self, state: &RegionState, space: u64, keeper: u64) -> Result<(), Code> {
        done(sys::region_set_state(self.0, state, space, keeper))
    }

    /// Changes the most that mappings can allow.
    pub fn protect(self, rights: u64) -> Result<(), Code> {
        done(sys::region_protect(self.0, rights))
    }
}

impl PortAt {
    /// The state; a portset reference that is not wanted is 0.
    pub fn get_state(self, portset: u64) -> Result<PortState, Code> {
        let mut state = PortState::default();
        done(sys::port_get_state(self.0, &mut state, portset))?;
        Ok(state)
    }

    /// Sets the state; a portset of 0 is none.
    pub fn set_state(self, state: &PortState, portset: u64) -> Result<(), Code> {
        done(sys::port_set_state(self.0, state, portset))
    }
}

impl Port {
    /// Creates a port with this state in a portset.
    pub fn in_portset(state: &PortState, portset: RefAt) -> Result<Self, Code> {
        let port = Port::new()?;
        port.set_state(state, portset.handle())?;
        Ok(port)
    }
}

impl PortsetAt {
    /// Opens a vacant identity that got a new body.
    pub fn set_state(self) -> Result<(), Code> {
        done(sys::portset_set_state(self.0))
    }
}

impl SpaceAt {
    /// The state; a keeper reference that is not wanted is 0.
    pub fn get_state(self, keeper: u64) -> Result<SpaceState, Code> {
        let mut state = SpaceState::default();
        done(sys::space_get_state(self.0, &mut state, keeper))?;
        Ok(state)
    }

    /// Sets the state; a keeper of 0 is none.
    pub fn set_state(self, state: &SpaceState, keeper: u64) -> Result<(), Code> {
        done(sys::space_set_state(self.0, state, keeper))
    }

    /// See [`abi::Call::SpaceSetPayer`].
    pub fn set_payer(self, payer: RefAt) -> Result<(), Code> {
        done(sys::space_set_payer(self.0, payer.0))
    }
}

impl ThreadAt {
    /// The state; references that are not wanted are 0.
    pub fn get_state(
        self,
        space: u64,
        client_end: u64,
        server_end: u64,
    ) -> Result<ThreadState, Code> {
        let mut state = ThreadState::default();
        self.read_state(&mut state, space, client_end, server_end)?;
        Ok(state)
    }

    /// As [`ThreadAt::get_state`], into memory of the caller.
    pub fn read_state(
        self,
        into: &mut ThreadState,
        space: u64,
        client_end: u64,
        server_end: u64,
    ) -> Result<(), Code> {
        done(sys::thread_get_state(
            self.0, into, space, client_end, server_end,
        ))
    }

    /// Changes the state of a stopped thread and leaves its space and connections as they are.
    ///
    /// # Errors
    /// Those of `thread_get_state` and `thread_set_state`.
    pub fn change(self, f: impl FnOnce(&mut ThreadState)) -> Result<(), Code> {
        let (space, client, server) = (Ref::new()?, Ref::new()?, Ref::new()?);
        let (space, client, server) = (space.handle(), client.handle(), server.handle());
        let mut state = self.get_state(space, client, server)?;
        f(&mut state);
        // References that name nothing are passed too: a 0 would give a thread without a space the caller's own.
        self.set_state(&state, space, client, server)
    }

    /// Sets the state of a stopped thread; a space of 0 is the caller's own, ends of 0 are none.
    pub fn set_state(
        self,
        state: &ThreadState,
        space: u64,
        client_end: u64,
        server_end: u64,
    ) -> Result<(), Code> {
        done(sys::thread_set_state(
            self.0, state, space, client_end, server_end,
        ))
    }

    /// Answers the exception that was received from the thread, which continues with these registers, and with this FPU
    /// state or its own.
    pub fn answer(self, registers: &Registers, fpu: Option<&FpuState>) -> Result<(), Code> {
        done(sys::thread_answer(self.0, registers, fpu))
    }

    /// Adds one to the stop count.
    pub fn stop(self) -> Result<(), Code> {
        done(sys::thread_stop(self.0))
    }

    /// Takes one from the stop count.
    pub fn resume(self) -> Result<(), Code> {
        done(sys::thread_resume(self.0))
    }

    /// Sets the priority.
    pub fn set_priority(self, priority: u64) -> Result<(), Code> {
        done(sys::thread_set_priority(self.0, priority))
    }

    /// Points the reference at the client end of the thread.
    pub fn client_end_into(self, reference: RefAt) -> Result<(), Code> {
        done(sys::thread_reference_client_end(self.0, reference.0))
    }

    /// Points the reference at the server end of the thread.
    pub fn server_end_into(self, reference: RefAt) -> Result<(), Code> {
        done(sys::thread_reference_server_end(self.0, reference.0))
    }
}

impl RefAt {
    /// What it names: [`RefKind::Null`] for nothing or something dead.
    #[must_use]
    pub fn kind(self) -> RefKind {
        sys::reference_check(self.0).unwrap_or(RefKind::Null)
    }

    /// Whether both name the same object in the same role.
    #[must_use]
    pub fn same_as(self, other: RefAt) -> bool {
        sys::reference_equal(self.0, other.0) == Code::Ok
    }

    /// Points this reference at what `other` names.
    pub fn point_to(self, other: RefAt) -> Result<(), Code> {
        // The kind in the state is a statement about the target, which the kernel checks.
        let mut state = abi::state::ReferenceState::default();
        done(sys::reference_get_state(other.0, &mut state, self.0))
    }

    /// Makes this reference name nothing.
    pub fn clear(self) -> Result<(), Code> {
        done(sys::reference_set_state(
            self.0,
            &abi::state::ReferenceState::default(),
            0,
        ))
    }

    /// A new reference that names what this one names.
    pub fn copy(self) -> Result<Ref, Code> {
        let copy = Ref::new()?;
        copy.point_to(self)?;
        Ok(copy)
    }

    /// Interrupts the thread that it names.
    pub fn interrupt(self) -> Result<(), Code> {
        done(sys::thread_interrupt(self.0))
    }

    /// Sends an empty request to the port, which its server answers at once, so that the server makes a turn.
    pub fn poke(self) -> Result<(), Code> {
        let mut regs = sys::IpcRegs::to(self.0);
        // SAFETY: an empty register message writes no memory.
        done(unsafe { sys::ipc(abi::Call::CallShort, &mut regs) })
    }

    /// Looks in `offset..end` of the region that it names for the next object whose type is in
    /// `kinds` (bit n for type n), or with bit 0 for the next present page: offset and type.
    pub fn search(self, offset: u64, end: u64, kinds: u64) -> Result<(u64, u64), Code> {
        sys::region_search(self.0, offset, end, kinds)
    }
}

/// A run of references at consecutive addresses, as the reference lists of IPC need them.
#[derive(Debug)]
pub struct RefBlock {
    address: u64,
    count: usize,
}

impl RefBlock {
    /// `count` references (at most [`abi::MAX_LIST_REFS`]) that name nothing.
    pub fn new(count: usize) -> Result<Self, Code> {
        if count as u64 > abi::MAX_LIST_REFS {
            return Err(Code::TooLarge);
        }
        let address = slots::allocate(count).ok_or(Code::NoMemory)?;
        let mut block = RefBlock { address, count: 0 };
        for index in 0..count {
            if let Err(code) = block.handle_of(index).create() {
                slots::free(
                    address + block.count as u64 * abi::OBJECT_SIZE,
                    count - block.count,
                );
                return Err(code);
            }
            block.count += 1;
        }
        Ok(block)
    }

    fn handle_of(&self, index: usize) -> RefAt {
        RefAt(self.address + index as u64 * abi::OBJECT_SIZE)
    }

    /// The reference at this place; the last one for an index that is too high.
    #[must_use]
    pub fn get(&self, index: usize) -> RefAt {
        self.handle_of(index.min(self.count.saturating_sub(1)))
    }

    /// Number of references.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first `count` references as a list for IPC calls.
    #[must_use]
    pub const fn list(&self, count: usize) -> u64 {
        abi::ref_list(
            self.address,
            if count < self.count {
                count
            } else {
                self.count
            } as u64,
        )
    }

    /// Makes the references name nothing.
    pub fn clear(&self) {
        for index in 0..self.count {
            let _ = self.handle_of(index).clear();
        }
    }
}

impl Drop for RefBlock {
    fn drop(&mut self) {
        for index in 0..self.count {
            let _ = self.handle_of(index).destroy();
        }
        slots::free(self.address, self.count);
    }
}

/// References as the reference lists of IPC take them: at consecutive addresses.
#[derive(Debug)]
pub enum RefList {
    /// The caller's own, which are at consecutive addresses already (or there are none).
    Direct {
        /// The handle of the first.
        address: u64,
        /// How many.
        count: usize,
    },
    /// Copies.
    Block(RefBlock),
}

impl RefList {
    fn direct(refs: &[&RefAt]) -> Option<Self> {
        let address = refs.first().map_or(0, |first| first.0);
        refs.iter()
            .enumerate()
            .all(|(index, reference)| reference.0 == address + index as u64 * abi::OBJECT_SIZE)
            .then_some(RefList::Direct {
                address,
                count: refs.len(),
            })
    }

    /// A list of references to send. Errors: [`Code::TooLarge`] if there are more than a list can have.
    pub fn to_send(refs: &[&RefAt]) -> Result<Self, Code> {
        let list = RefList::to_receive(refs)?;
        if let RefList::Block(block) = &list {
            for (index, reference) in refs.iter().enumerate() {
                block.get(index).point_to(**reference)?;
            }
        }
        Ok(list)
    }

    /// A list for references to receive; [`RefList::hand_over`] then sets `refs` to those received. Errors: as
    /// [`RefList::to_send`].
    pub fn to_receive(refs: &[&RefAt]) -> Result<Self, Code> {
        match RefList::direct(refs) {
            Some(_) if refs.len() as u64 > abi::MAX_LIST_REFS => Err(Code::TooLarge),
            Some(list) => Ok(list),
            None => RefBlock::new(refs.len()).map(RefList::Block),
        }
    }

    /// Sets the first `received` of `refs`, for which the list was made, to the references that came.
    pub fn hand_over(&self, refs: &[&RefAt], received: usize) -> Result<(), Code> {
        if let RefList::Block(block) = self {
            for (index, reference) in refs.iter().take(received).enumerate() {
                reference.point_to(block.get(index))?;
            }
        }
        Ok(())
    }

    /// How many.
    #[must_use]
    pub const fn count(&self) -> usize {
        match self {
            RefList::Direct { count, .. } => *count,
            RefList::Block(block) => block.len(),
        }
    }

    /// The list in the form that IPC calls take.
    #[must_use]
    pub const fn word(&self) -> u64 {
        match self {
            RefList::Direct { count: 0, .. } => 0,
            RefList::Direct { address, count } => abi::ref_list(*address, *count as u64),
            RefList::Block(block) => block.list(block.len()),
        }
    }
}
