//! The memory and objects that the first program has when it starts.
//!
//! Boot loads the first program (`sbin/init` of the boot archive) at [`PROGRAM_BASE`], gives it a
//! stack below [`STACK_TOP`] and one page at [`BOOT_PAGE`] that begins with the objects named
//! here, followed by a [`BootInfo`]. There is no other authority in the system: all authority of
//! any program comes from these objects.

/// The address at which the page with the first objects is mapped.
pub const BOOT_PAGE: u64 = 0x1_0000;
/// A reference to the root region: physical memory, offsets being physical addresses.
pub const ROOT_REGION: u64 = BOOT_PAGE;
/// The first space, with the whole quota of kernel memory.
pub const ROOT_SPACE: u64 = BOOT_PAGE + 0x10;
/// The first thread.
pub const ROOT_THREAD: u64 = BOOT_PAGE + 0x20;
/// A reference to the device authority.
pub const AUTHORITY: u64 = BOOT_PAGE + 0x30;
/// Mappings of the first program: its segments, its stack, this page.
pub const FIRST_MAPPING: u64 = BOOT_PAGE + 0x40;
/// Room for that many mappings at [`FIRST_MAPPING`].
pub const BOOT_MAPPINGS: u64 = 12;
/// The address of the [`BootInfo`].
pub const BOOT_INFO: u64 = BOOT_PAGE + 0x200;

/// Load address of the first program, a static position-independent executable.
pub const PROGRAM_BASE: u64 = 0x40_0000;
/// End of the first program's stack.
pub const STACK_TOP: u64 = 0x7000_0000;
/// Bytes of the first program's stack.
pub const STACK_SIZE: u64 = 256 * 1024;

/// A range of physical memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PhysRange {
    /// First byte.
    pub start: u64,
    /// Number of bytes.
    pub size: u64,
}

/// Most ranges of free memory that boot reports.
pub const MAX_RANGES: usize = 32;

/// `"FERMATA1"` in little-endian order.
pub const MAGIC: u64 = 0x3141_5441_4d52_4546;

/// Facts about the machine, for the first program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BootInfo {
    /// [`MAGIC`].
    pub magic: u64,
    /// Number of free ranges.
    pub range_count: u64,
    /// Free physical memory, page aligned: neither the kernel's nor the first program's nor the
    /// archive's.
    pub ranges: [PhysRange; MAX_RANGES],
    /// The boot archive, not page aligned in general.
    pub archive: PhysRange,
    /// The value of the time-stamp counter when the machine's clock is 0.
    pub clock_start: u64,
    /// Nanoseconds per step of the time-stamp counter, in units of 2^-32. The clock is the number of steps since
    /// `clock_start` times this, rounded down.
    pub clock_rate: u64,
    /// Bytes of [`BootInfo::command_line`].
    pub command_line_len: u64,
    /// The kernel's command line.
    pub command_line: [u8; 1024],
}
