//! References in four bytes.
//!
//! Most fields of an object are links to other objects. All memory that the kernel has references to lies in the
//! highest 2 GiB of its addresses (`x86_64/memory.rs` maps it there), so the lower 32 bits of an address are enough:
//! the processor extends their sign when it loads them. On the host a reference has its usual width.

use core::cell::Cell;

/// A reference in four bytes, or none.
pub struct Narrow<T: 'static>(word::Word<T>);

/// A reference in four bytes.
pub struct NarrowRef<T: 'static>(word::Word<T>);

/// A cell that holds a [`Narrow`], like a `Cell<Option<&'static T>>` in four bytes.
pub struct NarrowCell<T: 'static>(Cell<Narrow<T>>);

impl<T> Clone for Narrow<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Narrow<T> {}

impl<T> PartialEq for Narrow<T> {
    /// Whether both are none, or references to the same place.
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        word::same(self.0, other.0)
    }
}

impl<T> Clone for NarrowRef<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for NarrowRef<T> {}

impl<T> PartialEq for NarrowRef<T> {
    /// Whether both are references to the same place.
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        word::same(self.0, other.0)
    }
}

impl<T> Narrow<T> {
    /// None.
    pub const NONE: Self = Narrow(word::none());

    /// The reference (or none) in four bytes.
    #[inline(always)]
    pub fn of(reference: Option<&'static T>) -> Self {
        Narrow(word::of(reference))
    }

    /// The reference (or none) in its usual width.
    #[inline(always)]
    pub fn get(self) -> Option<&'static T> {
        word::get(self.0)
    }
}

impl<T> NarrowRef<T> {
    /// The reference in four bytes.
    #[inline(always)]
    pub fn of(reference: &'static T) -> Self {
        NarrowRef(word::of(Some(reference)))
    }

    /// The reference in its usual width.
    #[inline(always)]
    pub fn get(self) -> &'static T {
        word::get_some(self.0)
    }
}

impl<T> NarrowCell<T> {
    /// A cell that refers to nothing.
    pub const fn none() -> Self {
        NarrowCell(Cell::new(Narrow::NONE))
    }

    /// The reference in it.
    #[inline(always)]
    pub fn get(&self) -> Option<&'static T> {
        self.0.get().get()
    }

    /// Stores a reference.
    #[inline(always)]
    pub fn set(&self, reference: Option<&'static T>) {
        self.0.set(Narrow::of(reference));
    }

    /// Stores a reference and returns the one that was in it.
    #[inline(always)]
    pub fn replace(&self, reference: Option<&'static T>) -> Option<&'static T> {
        self.0.replace(Narrow::of(reference)).get()
    }

    /// Stores none and returns the reference that was in it.
    #[inline(always)]
    pub fn take(&self) -> Option<&'static T> {
        self.replace(None)
    }
}

#[cfg(target_os = "none")]
mod word {
    use core::marker::PhantomData;

    /// The lower half of an address in the highest 2 GiB, or 0. Only [`of`] makes words other than 0.
    pub(super) struct Word<T: 'static>(i32, PhantomData<&'static T>);

    impl<T> Clone for Word<T> {
        fn clone(&self) -> Self {
            *self
        }
    }

    impl<T> Copy for Word<T> {}

    pub(super) const fn none<T>() -> Word<T> {
        Word(0, PhantomData)
    }

    #[inline(always)]
    pub(super) fn of<T>(reference: Option<&'static T>) -> Word<T> {
        // A value without bytes may have any address.
        const { assert!(size_of::<T>() > 0) };
        let address = reference.map_or(core::ptr::null(), core::ptr::from_ref) as usize;
        debug_assert!(address as i32 as isize as usize == address);
        Word(address as i32, PhantomData)
    }

    #[inline(always)]
    fn address<T>(word: Word<T>) -> *const T {
        word.0 as isize as *const T
    }

    #[inline(always)]
    pub(super) fn get<T>(word: Word<T>) -> Option<&'static T> {
        let address = address(word);
        // SAFETY: `of` made the word from a `'static` reference. All objects with such references lie in the
        // highest 2 GiB, so extending the sign restores the address; 0 is no such address.
        (!address.is_null()).then(|| unsafe { &*address })
    }

    /// The reference of a word that is not [`none`].
    #[inline(always)]
    pub(super) fn get_some<T>(word: Word<T>) -> &'static T {
        // SAFETY: as in `get`; a `NarrowRef` is made from a reference, so its word is not 0. The compiler
        // would not know that.
        unsafe {
            core::hint::assert_unchecked(word.0 != 0);
            &*address(word)
        }
    }

    #[inline(always)]
    pub(super) fn same<T>(a: Word<T>, b: Word<T>) -> bool {
        a.0 == b.0
    }
}

#[cfg(not(target_os = "none"))]
mod word {
    pub(super) type Word<T> = Option<&'static T>;

    pub(super) const fn none<T>() -> Word<T> {
        None
    }

    pub(super) fn of<T>(reference: Option<&'static T>) -> Word<T> {
        reference
    }

    pub(super) fn get<T>(word: Word<T>) -> Option<&'static T> {
        crate::host::follow();
        word
    }

    pub(super) fn get_some<T>(word: Word<T>) -> &'static T {
        word.expect("a narrow reference is never none")
    }

    pub(super) fn same<T>(a: Word<T>, b: Word<T>) -> bool {
        a.map(core::ptr::from_ref) == b.map(core::ptr::from_ref)
    }
}
