//! What others measured, and what Fermata wants to reach.
//!
//! The systems on the emulator ran on the same QEMU, TCG, one processor, and the numbers are retired
//! guest instructions of a round trip between two address spaces, both sides' user code included.

/// What is known about a benchmark.
pub(super) struct Reference {
    pub(super) name: &'static str,
    /// For `interrupt-np`.
    pub(super) goal: Option<u64>,
    /// seL4 16, fast path, no mitigations, threads without FPU.
    pub(super) sel4: Option<u64>,
    /// Linux 6.1 as Debian ships it, and the way that it was done there.
    pub(super) linux: Option<(u64, &'static str)>,
}

const fn reference(
    name: &'static str,
    goal: u64,
    sel4: Option<u64>,
    linux: Option<(u64, &'static str)>,
) -> Reference {
    Reference {
        name,
        goal: Some(goal),
        sel4,
        linux,
    }
}

/// The benchmarks that something is known about.
pub(super) const REFERENCES: &[Reference] = &[
    reference("rpc_0", 250, Some(406), Some((10_951, "eventfd"))),
    reference("rpc_8", 255, Some(418), None),
    reference("rpc_32", 270, Some(448), None),
    reference("rpc_64", 285, Some(1561), Some((13_422, "pipe"))),
    reference("rpc_512", 600, Some(2121), None),
    reference(
        "exception_rt",
        400,
        Some(1312),
        Some((4241, "SIGSEGV to itself")),
    ),
    // 1,312 for the message and 736 for the mapping.
    reference("fault_rt", 900, Some(2048), Some((20_031, "userfaultfd"))),
    reference("notify_rt", 450, Some(2001), Some((12_656, "futex"))),
    reference("null_call", 70, None, Some((348, "getppid"))),
    reference("null_handle_call", 90, Some(245), None),
    reference("yield_2", 250, Some(519), Some((3789, "sched_yield"))),
    reference("thread_bytes", 288, Some(344), None),
];

/// What is known about the benchmark of this name.
pub(super) fn of(name: &str) -> Option<&'static Reference> {
    REFERENCES.iter().find(|reference| reference.name == name)
}

/// Ford et al., Interface and Execution Models in the Fluke Kernel, Table 5: execution time of
/// memtest, flukeperf and gcc, normalized to the first row (200 MHz Pentium Pro).
pub(super) const FLUKE_TABLE_5: &[(&str, [f64; 3])] = &[
    ("process-np", [1.0, 1.0, 1.0]),
    ("process-pp", [1.0, 1.01, 1.03]),
    ("process-fp", [1.11, 1.20, 1.05]),
    ("interrupt-np", [1.0, 0.94, 1.03]),
    ("interrupt-pp", [1.0, 0.94, 1.03]),
];

/// The same paper, Table 7: bytes of kernel memory per thread: control block, stack, all.
pub(super) const FLUKE_TABLE_7: &[(&str, &str, [Option<u64>; 3])] = &[
    ("FreeBSD", "process", [Some(2132), Some(6700), Some(8832)]),
    ("Linux", "process", [Some(2395), Some(4096), Some(6491)]),
    ("Mach", "process", [Some(452), Some(4022), Some(4474)]),
    ("Mach", "interrupt", [Some(690), None, Some(690)]),
    ("L3", "process", [None, None, Some(1024)]),
    ("Fluke", "process", [None, None, Some(4096)]),
    ("Fluke", "process", [None, None, Some(1024)]),
    ("Fluke", "interrupt", [Some(300), None, Some(300)]),
];

/// Draves et al., Continuations: Unifying Thread Management and Communication in Operating Systems,
/// Table 5, its last row: instructions, loads and stores of a null RPC (DECstation 3100).
pub(super) const MACH_TABLE_5: &[(&str, [u64; 3])] = &[
    ("Mach MK40, with continuations", [1167, 315, 212]),
    ("Mach MK32, without", [1480, 341, 206]),
];
