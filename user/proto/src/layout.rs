//! How the memory of a process is laid out.
//!
//! A process consists of two segments of the memory server:
//!
//! * its *memory* segment, [`MEMORY_SIZE`] bytes, sparse. Offset in the segment and address in the
//!   process are the same number, unless a mapping was moved (Linux `mremap`);
//! * its *control* segment, [`CONTROL_SIZE`] bytes, never mapped by the process itself. Its
//!   manager keeps there the objects that make it a process: the space at [`CONTROL_SPACE`], the
//!   first thread at [`CONTROL_THREAD`], the mappings from [`CONTROL_MAPPINGS`] on.
//!
//! So two region references are all that a checkpointer needs: `region_search` finds every object
//! of the process and every page in these two segments.
//!
//! All addresses here are offsets from where the memory of the process begins: 0, or in a collocated process the first
//! address of its place (`abi::collocated`).

/// Size of every memory segment: all addresses of a process are below.
pub const MEMORY_SIZE: u64 = 1 << 36;
/// Size of every control segment.
pub const CONTROL_SIZE: u64 = 4 << 20;
/// Offset of the space in the control segment.
pub const CONTROL_SPACE: u64 = 0;
/// Offset of the first thread in the control segment.
pub const CONTROL_THREAD: u64 = 0x10;
/// Offset of further threads that the manager has made, up to the first mapping.
pub const CONTROL_THREADS: u64 = 0x200;
/// Offset of the first mapping in the control segment.
pub const CONTROL_MAPPINGS: u64 = 0x1000;

/// The page in which a native program finds its references and arguments (readable, writable, objects).
pub const START_PAGE: u64 = 0x1_0000;
/// Reference to the process's own port at init: the process looks names up and registers them there, and ends itself
/// there. The port is the keeper of the space.
pub const START_NAMES: u64 = START_PAGE;
/// Reference to the process's memory account, a port of the memory server.
pub const START_MEMORY: u64 = START_PAGE + 0x10;
/// Reference to the process's own space.
pub const START_SPACE: u64 = START_PAGE + 0x20;
/// Reference to the first thread.
pub const START_THREAD: u64 = START_PAGE + 0x30;
/// Further references that the starter of the program passed on, [`MAX_PASSED`] of them.
pub const START_PASSED: u64 = START_PAGE + 0x50;
/// Most further references.
pub const MAX_PASSED: u64 = 8;
/// Reference to the control port of the process's memory segment, so that the process can give memory back; names
/// nothing except in servers.
pub const START_SEGMENT: u64 = START_PAGE + 0xd0;
/// The priority of the first thread (u64), which further threads get unless told otherwise.
pub const START_PRIORITY: u64 = START_PAGE + 0x1f0;
/// Bytes of the heap (u64); 0 if it is all of [`HEAP_START`] to [`HEAP_END`].
pub const START_HEAP: u64 = START_PAGE + 0x1f8;
/// Where the start information stands: length (u64), then a postcard `services::process::Start`.
pub const START_INFO: u64 = START_PAGE + 0x200;
/// Bytes of the start area (page included).
pub const START_SIZE: u64 = 0x1_0000;

/// Priority of ordinary programs.
pub const PRIORITY_PROGRAM: u64 = 8;
/// Priority of the shell: above the programs that it must be able to stop.
pub const PRIORITY_SHELL: u64 = 10;
/// Priority of servers.
pub const PRIORITY_SERVER: u64 = 12;
/// Priority of the file system and the console: above other servers and programs that stop others, which wait for them.
/// Nothing relies on a request's being served before its program is stopped: requests have numbers, and are done once
/// (ADR 0020).
pub const PRIORITY_FILES: u64 = 14;
/// Priority of the memory server, which all others need.
pub const PRIORITY_MEMORY: u64 = 16;

/// Load address of a native program (static position-independent).
pub const PROGRAM_BASE: u64 = 0x40_0000;
/// Memory is given to a segment in pieces of this many bytes, aligned to their size.
pub const CHUNK: u64 = 64 * 1024;

/// First address of the heap: zero pages on demand, no call needed.
pub const HEAP_START: u64 = 0x1000_0000;
/// End of the heap.
pub const HEAP_END: u64 = 0x5000_0000;
/// End of the first thread's stack.
pub const STACK_TOP: u64 = 0x7000_0000;
/// Bytes of the first thread's stack.
pub const STACK_SIZE: u64 = 0x40_0000;
/// Addresses from here on are free for mapping regions of others.
pub const WINDOWS: u64 = 0x1000_0000_0000;
/// The same in a collocated process, whose place is smaller.
pub const COLLOCATED_WINDOWS: u64 = 0x1_0000_0000;
