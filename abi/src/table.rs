//! Macros that make a type and its documentation as data from one text.
//!
//! The meaning of a result code or of a field of a state is written once, as the documentation
//! comment of the item. [`numbered!`] and [`structures!`] declare the items as they would be without
//! the macros, and keep the comments as data, so that the API reference, the C header and the
//! messages of tools have the same text as the source.

/// The layout of a structure that the kernel reads or writes in a program's memory.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The structure's name.
    pub name: &'static str,
    /// The documentation of the structure.
    pub doc: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its alignment in bytes.
    pub align: usize,
    /// Its fields, in order and without gaps.
    pub fields: &'static [Field],
}

/// A field of a structure.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// The meaning of the field; empty where the name says it.
    pub doc: &'static str,
    /// Its type, as the source has it.
    pub ty: &'static str,
    /// Offset of its first byte.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
}

impl Layout {
    /// Fails, when compiled, unless the fields follow each other without a gap up to the end.
    pub(crate) const fn assert_packed(&self) {
        let mut end = 0;
        let mut i = 0;
        while i < self.fields.len() {
            assert!(
                self.fields[i].offset == end,
                "a structure has padding between its fields"
            );
            end += self.fields[i].size;
            i += 1;
        }
        assert!(end == self.size, "a structure has padding at its end");
    }
}

/// Structures whose layout is part of the interface.
macro_rules! structures {
    ($($(#[doc = $doc:literal])+
       #[derive($($derive:ident),+)]
       #[repr($($repr:tt)+)]
       pub struct $name:ident {
           $($(#[doc = $field_doc:literal])* pub $field:ident: $ty:ty,)+
       })+) => {$(
        $(#[doc = $doc])+
        #[derive($($derive),+)]
        #[repr($($repr)+)]
        #[allow(missing_docs)] // Fields whose name says all.
        pub struct $name {
            $($(#[doc = $field_doc])* pub $field: $ty,)+
        }

        impl $name {
            /// The layout of the structure in memory.
            pub const LAYOUT: $crate::table::Layout = $crate::table::Layout {
                name: stringify!($name),
                doc: concat!($($doc),+),
                size: core::mem::size_of::<$name>(),
                align: core::mem::align_of::<$name>(),
                fields: &[$($crate::table::Field {
                    name: stringify!($field),
                    doc: concat!($($field_doc),*),
                    ty: stringify!($ty),
                    offset: core::mem::offset_of!($name, $field),
                    size: core::mem::size_of::<$ty>(),
                }),+],
            };
        }

        const _: () = $name::LAYOUT.assert_packed();
    )+};
}

/// An enumeration whose numbers are part of the interface.
macro_rules! numbered {
    ($(#[doc = $doc:literal])+
     pub enum $name:ident $(= $default:ident)? {
        $($(#[doc = $variant_doc:literal])+ $variant:ident = $number:literal,)+
     }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[doc = $variant_doc])+ $variant = $number,)+
        }

        impl $name {
            /// All values, in numerical order.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The value with the number `raw`, if there is one.
            #[must_use]
            pub const fn from_raw(raw: u64) -> Option<Self> {
                match raw {
                    $($number => Some($name::$variant),)+
                    _ => None,
                }
            }

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => stringify!($variant),)+
                }
            }

            /// What it means.
            #[must_use]
            pub const fn doc(self) -> &'static str {
                match self {
                    $($name::$variant => concat!($($variant_doc),+),)+
                }
            }
        }

        $(impl Default for $name {
            fn default() -> Self {
                $name::$default
            }
        })?
    };
}

pub(crate) use {numbered, structures};
