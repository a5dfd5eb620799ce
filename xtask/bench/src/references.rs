//! Measurements of other systems, and Fermata's goals.
//!
//! The systems on the emulator ran on the same QEMU, TCG, one processor, and the numbers are retired
//! guest instructions of a round trip between two address spaces, both sides' user code included.

/// The goal for a benchmark, and measurements of others.
pub(super) struct Reference {
    pub(super) name: &'static str,
    /// The goal for `interrupt-np`.
    pub(super) goal: Option<u64>,
    /// seL4 16, fast path, no mitigations, threads without FPU.
    pub(super) sel4: Option<u64>,
    /// Linux 6.1 as Debian ships it, and the mechanism that was measured there.
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

/// What is known about a request to a device.
pub(super) struct Device {
    pub(super) name: &'static str,
    pub(super) driver: &'static str,
    /// Linux 6.1 (Debian 6.1.192-2) by its driver of the same device, on the same emulator, one processor, executed
    /// instructions: a static program, disks with direct I/O on QEMU's `null-co`, two cards of one machine on one hub,
    /// both ends counted.
    pub(super) linux: Option<u64>,
    /// The goal: the most that it is to take with the driver in a process.
    pub(super) aim: Option<u64>,
}

const fn device(name: &'static str, driver: &'static str, linux: u64, aim: Option<u64>) -> Device {
    Device {
        name,
        driver,
        linux: Some(linux),
        aim,
    }
}

/// Linux's rows, and the goals.
pub(super) const DEVICES: &[Device] = &[
    device("blk_read_4k", "virtio-blk", 14_659, Some(7_500)),
    device("blk_write_4k", "virtio-blk", 17_440, Some(7_500)),
    device("blk_read_64k", "virtio-blk", 23_520, Some(12_000)),
    device("blk_write_64k", "virtio-blk", 25_460, Some(12_000)),
    device("blk_read_4k_x32", "virtio-blk", 8_468, Some(4_500)),
    device("blk_read_4k", "sym53c8xx", 14_936, None),
    device("blk_write_4k", "sym53c8xx", 17_850, None),
    device("blk_read_64k", "sym53c8xx", 24_561, None),
    device("blk_write_64k", "sym53c8xx", 26_757, None),
    device("blk_read_4k_x32", "sym53c8xx", 10_285, None),
    device("blk_read_4k", "am53c974", 35_209, None),
    device("blk_write_4k", "am53c974", 21_982, None),
    device("blk_read_64k", "am53c974", 40_351, None),
    device("blk_write_64k", "am53c974", 26_428, None),
    device("blk_read_4k_x32", "am53c974", 31_809, None),
    device("udp_1", "virtio-net", 34_623, None),
    device("udp_64", "virtio-net", 34_847, Some(34_847)),
    device("udp_512", "virtio-net", 37_407, None),
    device("udp_1400", "virtio-net", 39_944, Some(39_944)),
    device("tcp_kb", "virtio-net", 5_784, Some(5_784)),
    device("udp_1", "e100", 31_160, None),
    device("udp_64", "e100", 33_785, None),
    device("udp_512", "e100", 34_492, None),
    device("udp_1400", "e100", 36_320, None),
    // 7,715 to 8,238 in several runs.
    device("tcp_kb", "e100", 7_715, None),
    Device {
        name: "file_read_4k",
        driver: "none",
        linux: None,
        aim: Some(1_200),
    },
];

/// What is known about this row by this driver.
pub(super) fn of_device(name: &str, driver: &str) -> Option<&'static Device> {
    let same = |device: &&Device| (device.name, device.driver) == (name, driver);
    DEVICES.iter().find(same)
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
    reference("collocated_null_call", 90, None, None),
    reference("collocated_rpc_0", 265, None, None),
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

/// The same paper, Table 3: microseconds to remedy a fault in the middle of
/// `ipc_client_connect_send_over_receive`, and to roll back (process model, no preemption).
pub(super) const FLUKE_TABLE_3: &[(&str, &str, [f64; 2])] = &[
    ("client", "soft", [18.9, 0.0]),
    ("client", "hard", [118.0, 2.2]),
    ("server", "soft", [29.3, 2.5]),
    ("server", "hard", [135.0, 6.8]),
];

/// The same paper, Table 6: microseconds until a thread runs that is scheduled every millisecond, on
/// average and at most; how often it ran and how often it missed its turn.
pub(super) const FLUKE_TABLE_6: &[(&str, [f64; 4])] = &[
    ("process-np", [28.9, 7430.0, 7594.0, 132.0]),
    ("process-pp", [18.0, 1200.0, 7805.0, 5.0]),
    ("process-fp", [5.14, 19.6, 9212.0, 0.0]),
    ("interrupt-np", [30.4, 7356.0, 7348.0, 141.0]),
    ("interrupt-pp", [18.7, 1272.0, 7531.0, 7.0]),
];

/// Draves et al., Continuations: Unifying Thread Management and Communication in Operating Systems,
/// Table 1: blocks that used compression, by reason, in percent of all blocks: a compilation, a
/// build of the kernel, the emulation of DOS (Toshiba 5200).
pub(super) const MACH_TABLE_1: &[(&str, [f64; 3])] = &[
    ("msg receive", [83.4, 86.3, 55.2]),
    ("exception", [0.0, 0.0, 37.9]),
    ("page fault", [0.9, 0.2, 0.0]),
    ("thread switch", [0.0, 0.0, 0.0]),
    ("preempt", [7.7, 4.9, 5.3]),
    ("internal threads", [6.4, 8.4, 1.6]),
    ("compression total", [98.4, 99.9, 100.0]),
    ("no compression", [1.6, 0.1, 0.0]),
];

/// The same paper, Table 2: blocks, and how many of them in percent used recognition and stack
/// handoff.
pub(super) const MACH_TABLE_2: &[(&str, u64, [f64; 2])] = &[
    ("Mach MK40: a compilation", 3734, [60.2, 96.8]),
    ("Mach MK40: a build of the kernel", 1_612_518, [72.3, 99.7]),
    ("Mach MK40: an emulation of DOS", 362_851, [85.9, 100.0]),
];

/// The same paper, Table 4: microseconds of a null RPC and of an exception: MK40 with continuations,
/// MK32 without, Mach 2.5.
pub(super) const MACH_TABLE_4: &[(&str, [[u64; 3]; 2])] = &[
    ("DECstation 3100", [[95, 110, 185], [135, 425, 380]]),
    ("Toshiba 5200", [[535, 510, 890], [525, 1155, 1410]]),
];

/// The same paper, Table 5: instructions, loads and stores of a null RPC (DECstation 3100), request
/// and reply together: MK40 with continuations, MK32 without. The parts are named as in
/// [`super::parts::PARTS`]; "path" is its sender and receiver, "message" its copies.
pub(super) const MACH_TABLE_5: &[(&str, [[u64; 3]; 2])] = &[
    ("entry", [[128, 14, 50], [134, 16, 40]]),
    ("path", [[598, 184, 90], [593, 168, 76]]),
    ("message", [[164, 24, 24], [164, 24, 24]]),
    ("switch", [[166, 44, 36], [500, 104, 54]]),
    ("exit", [[70, 42, 2], [48, 22, 2]]),
    ("user", [[41, 7, 10], [41, 7, 10]]),
];

/// A machine, and the instructions and cycles of a pair on it: conventional, optimistic.
type Pair = (&'static str, [u64; 2], Option<[u64; 2]>);

/// Stodolsky et al., Fast Interrupt Priority Management in Operating System Kernels, Tables 1 and 2:
/// instructions and cycles of a pair of masking and unmasking in Mach 3.0, conventional and, where it was
/// done, optimistic.
pub(super) const FAST_INTERRUPT_TABLES_1_AND_2: &[Pair] = &[
    ("Luna88k (88100)", [68, 96], Some([51, 51])),
    ("Flamingo (Alpha 21064)", [25, 21], None),
    ("DECstation 5000/120 (R3000)", [65, 80], Some([31, 31])),
    ("DECstation 5000/200 (R3000)", [14, 14], Some([31, 31])),
    ("386 PC", [51, 179], None),
    ("Gateway 66V (486)", [51, 279], None),
];

/// The same, Table 3: cycles of a null RPC, optimistic and conventional.
pub(super) const FAST_INTERRUPT_TABLE_3: &[(&str, [u64; 2])] = &[
    ("Luna88k", [4225, 4400]),
    ("DECstation 5000/120", [1840, 2140]),
    ("DECstation 5000/200", [1198, 1234]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_machs_table_make_its_totals() {
        let total = |system: usize| {
            MACH_TABLE_5.iter().fold([0; 3], |sum: [u64; 3], row| {
                [0, 1, 2].map(|i| sum[i] + row.1[system][i])
            })
        };
        assert_eq!(total(0), [1167, 315, 212]);
        assert_eq!(total(1), [1480, 341, 206]);
    }
}
