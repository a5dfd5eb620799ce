//! A plugin of QEMU's that counts instructions, loads and stores between marker instructions.
//!
//! The markers are nops of seven bytes, `0f 1f 80` with a displacement of 0x4d524601 where a stretch
//! begins and 0x4d524602 where it ends. `./fermata bench` loads this as
//! `-plugin libfermata_count.so,out=FILE`; the file gets a line `INSTRUCTIONS LOADS STORES` per
//! stretch, in the order in which they end. The machine has one processor.
//!
//! With `profile=FILE` that file gets, per stretch, a line `stretch` and then a line
//! `ADDRESS INSTRUCTIONS LOADS STORES` (the address in hexadecimal) for every instruction that was
//! executed.
//!
//! With `events=FILE` that file gets, per stretch, a line `stretch` and then a line
//! `EVENT COUNT TIMES` for every event that came. An event is a nop with a displacement from
//! 0x4d524700 on; `TIMES` is the sum of the instructions that were executed in the stretch before each of them, so
//! that two events that alternate show how long it takes from one to the other.
//!
//! With `switches=FILE` that file gets a line `CR3 IRETQ SYSRETQ` per stretch: how often the register
//! of the page table was written, and how often the kernel was left by either instruction.
//!
//! With `time=FILE` that file gets a line `NANOSECONDS` per stretch: processor time of the host's thread that
//! executes the machine's instructions, without the machine's idle time and without QEMU's other threads. Nothing is
//! counted without `out=FILE`, as counting takes far more time than the measured work.
//!
//! It uses version 1 of the plugin interface (QEMU 6 to 8), whose declarations below are all of QEMU that is in here.
//! Loads and stores are counted by callbacks, since QEMU 7.2 counts them wrongly inline.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The version of the interface that this plugin uses.
#[no_mangle]
pub static qemu_plugin_version: c_int = 1;

/// `struct qemu_plugin_tb`, known to QEMU alone.
#[repr(C)]
pub struct Block(c_void);
/// `struct qemu_plugin_insn`, known to QEMU alone.
#[repr(C)]
pub struct Insn(c_void);

type ExecCallback = extern "C" fn(cpu: c_uint, userdata: *mut c_void);
type MemoryCallback = extern "C" fn(cpu: c_uint, info: u32, address: u64, userdata: *mut c_void);

/// `QEMU_PLUGIN_CB_NO_REGS`
const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_MEM_RW`
const LOADS_AND_STORES: c_int = 3;
/// `QEMU_PLUGIN_INLINE_ADD_U64`
const ADD: c_int = 0;

extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, cb: extern "C" fn(u64, *mut Block));
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Insn;
    fn qemu_plugin_insn_data(insn: *const Insn) -> *const u8;
    fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        cb: ExecCallback,
        flags: c_int,
        userdata: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_inline(
        insn: *mut Insn,
        operation: c_int,
        counter: *mut c_void,
        amount: u64,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        cb: MemoryCallback,
        flags: c_int,
        kind: c_int,
        userdata: *mut c_void,
    );
    fn qemu_plugin_mem_is_store(info: u32) -> bool;
}

/// Counts since the machine started. QEMU's code adds to the first without atomicity, which is sufficient for one
/// processor.
static INSTRUCTIONS: AtomicU64 = AtomicU64::new(0);
static LOADS: AtomicU64 = AtomicU64::new(0);
static STORES: AtomicU64 = AtomicU64::new(0);

/// The counts at the beginning of the stretch.
static BEGIN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static OUT: Mutex<Option<File>> = Mutex::new(None);
/// As [`INSTRUCTIONS`], for each [`Switch`], and the counts at the beginning of the stretch.
static SWITCHES: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static SWITCHES_BEGIN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static SWITCHES_OUT: Mutex<Option<File>> = Mutex::new(None);
/// The thread's time when the stretch began.
static TIME_BEGIN: AtomicU64 = AtomicU64::new(0);
static TIME_OUT: Mutex<Option<File>> = Mutex::new(None);
static PROFILE: Mutex<Option<Profile>> = Mutex::new(None);
/// The file for events, if they are wanted.
static EVENTS_OUT: Mutex<Option<File>> = Mutex::new(None);

/// How often an event came in the stretch, and the sum of its times.
struct Event {
    count: AtomicU64,
    times: AtomicU64,
}

/// One for each value of the last byte of the displacement.
static EVENTS: [Event; 256] = [const {
    Event {
        count: AtomicU64::new(0),
        times: AtomicU64::new(0),
    }
}; 256];

/// How often each instruction was executed in a stretch.
struct Profile {
    file: File,
    /// One per translation of an instruction, never freed: QEMU's code adds to them.
    places: Vec<&'static Place>,
}

/// A translation of an instruction.
struct Place {
    address: u64,
    count: AtomicU64,
    loads: AtomicU64,
    stores: AtomicU64,
}

impl Profile {
    /// The counter of an instruction that is being translated.
    fn place(&mut self, address: u64) -> &'static Place {
        let place = Box::leak(Box::new(Place {
            address,
            count: AtomicU64::new(0),
            loads: AtomicU64::new(0),
            stores: AtomicU64::new(0),
        }));
        self.places.push(place);
        place
    }

    fn begin(&self) {
        for place in &self.places {
            for counter in [&place.count, &place.loads, &place.stores] {
                counter.store(0, Relaxed);
            }
        }
    }

    fn end(&mut self) {
        let mut sums: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
        for place in &self.places {
            let counts = [&place.count, &place.loads, &place.stores].map(|c| c.load(Relaxed));
            if counts[0] > 0 {
                let sum = sums.entry(place.address).or_default();
                for (sum, count) in sum.iter_mut().zip(counts) {
                    *sum += count;
                }
            }
        }
        let mut text = String::from("stretch\n");
        for (address, [count, loads, stores]) in sums {
            text.push_str(&format!("{address:x} {count} {loads} {stores}\n"));
        }
        // If this fails, the stretch is missing and the reader reports that.
        let _ = self.file.write_all(text.as_bytes());
    }
}

fn profile() -> MutexGuard<'static, Option<Profile>> {
    locked(&PROFILE)
}

/// The meaning of a marker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Begin,
    End,
    Event(u8),
}

/// The marker that an instruction is, if it is one.
fn mark_of(bytes: &[u8]) -> Option<Mark> {
    match bytes {
        [0x0f, 0x1f, 0x80, 1, 0x46, 0x52, 0x4d] => Some(Mark::Begin),
        [0x0f, 0x1f, 0x80, 2, 0x46, 0x52, 0x4d] => Some(Mark::End),
        [0x0f, 0x1f, 0x80, event, 0x47, 0x52, 0x4d] => Some(Mark::Event(*event)),
        _ => None,
    }
}

/// An instruction that changes the page table or leaves the kernel, as an index of [`SWITCHES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Switch {
    Cr3,
    Iretq,
    Sysretq,
}

impl Switch {
    /// The kind of an instruction, if it is one of these.
    fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            // The first byte, if there is one, selects a register from r8 on.
            [0x0f, 0x22, 0xd8..=0xdf] | [0x41, 0x0f, 0x22, 0xd8..=0xdf] => Some(Self::Cr3),
            [0x48, 0xcf] => Some(Self::Iretq),
            [0x48, 0x0f, 0x07] => Some(Self::Sysretq),
            _ => None,
        }
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(|e| e.into_inner())
}

/// Processor time of the thread that calls, in nanoseconds.
fn thread_time() -> u64 {
    /// `CLOCK_THREAD_CPUTIME_ID` and `struct timespec` of Linux, the only parts of the C library that are used.
    const THREAD_CPUTIME: c_int = 3;
    #[repr(C)]
    struct Timespec {
        seconds: i64,
        nanoseconds: i64,
    }
    extern "C" {
        fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
    }
    let mut time = Timespec {
        seconds: 0,
        nanoseconds: 0,
    };
    // SAFETY: it writes to the structure that it is given.
    let failed = unsafe { clock_gettime(THREAD_CPUTIME, &mut time) };
    assert_eq!(failed, 0, "a thread has no clock");
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let time = seconds + Duration::from_nanos(time.nanoseconds.unsigned_abs());
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The increase of these counters since they had those values.
fn since<const N: usize>(counters: [u64; N], begin: &[AtomicU64; N]) -> [u64; N] {
    let mut since = counters;
    for (count, begin) in since.iter_mut().zip(begin) {
        *count = count.wrapping_sub(begin.load(Relaxed));
    }
    since
}

fn switches() -> [u64; 3] {
    SWITCHES.each_ref().map(|counter| counter.load(Relaxed))
}

/// Adds a line to a file. If this fails, the line is missing and the reader reports that.
fn tell(file: &Mutex<Option<File>>, line: std::fmt::Arguments) {
    if let Some(file) = locked(file).as_mut() {
        let _ = writeln!(file, "{line}");
    }
}

fn counts() -> [u64; 3] {
    [&INSTRUCTIONS, &LOADS, &STORES].map(|counter| counter.load(Relaxed))
}

extern "C" fn begin(_: c_uint, _: *mut c_void) {
    if let Some(profile) = profile().as_ref() {
        profile.begin();
    }
    for (to, from) in BEGIN.iter().zip(counts()) {
        to.store(from, Relaxed);
    }
    for event in &EVENTS {
        event.count.store(0, Relaxed);
        event.times.store(0, Relaxed);
    }
    for (to, from) in SWITCHES_BEGIN.iter().zip(switches()) {
        to.store(from, Relaxed);
    }
    // Last, so that the work of this function is not included.
    TIME_BEGIN.store(thread_time(), Relaxed);
}

/// The event whose number is in `userdata`.
extern "C" fn happened(_: c_uint, userdata: *mut c_void) {
    let Some(event) = EVENTS.get(userdata as usize) else {
        return;
    };
    let time = INSTRUCTIONS
        .load(Relaxed)
        .wrapping_sub(BEGIN[0].load(Relaxed));
    let count = event.count.load(Relaxed).wrapping_add(1);
    event.count.store(count, Relaxed);
    let times = event.times.load(Relaxed).wrapping_add(time);
    event.times.store(times, Relaxed);
}

/// The events of the stretch, as lines.
fn events() -> String {
    let mut text = String::from("stretch\n");
    for (number, event) in EVENTS.iter().enumerate() {
        let (count, times) = (event.count.load(Relaxed), event.times.load(Relaxed));
        if count > 0 {
            text.push_str(&format!("{number} {count} {times}\n"));
        }
    }
    text
}

extern "C" fn end(_: c_uint, _: *mut c_void) {
    let time = thread_time().wrapping_sub(TIME_BEGIN.load(Relaxed));
    let [instructions, loads, stores] = since(counts(), &BEGIN);
    tell(&OUT, format_args!("{instructions} {loads} {stores}"));
    let [cr3, iretq, sysretq] = since(switches(), &SWITCHES_BEGIN);
    tell(&SWITCHES_OUT, format_args!("{cr3} {iretq} {sysretq}"));
    tell(&TIME_OUT, format_args!("{time}"));
    if let Some(file) = locked(&EVENTS_OUT).as_mut() {
        // As for a line.
        let _ = file.write_all(events().as_bytes());
    }
    if let Some(profile) = profile().as_mut() {
        profile.end();
    }
}

fn add_one(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
}

extern "C" fn access(_: c_uint, info: u32, _: u64, _: *mut c_void) {
    // SAFETY: only reads the number.
    let store = unsafe { qemu_plugin_mem_is_store(info) };
    add_one(if store { &STORES } else { &LOADS });
}

/// As [`access`], by the instruction whose [`Place`] is at `userdata`.
extern "C" fn access_at(cpu: c_uint, info: u32, address: u64, userdata: *mut c_void) {
    access(cpu, info, address, userdata);
    // SAFETY: `translate` passes a place, which lives for ever.
    let place = unsafe { &*userdata.cast::<Place>() };
    // SAFETY: only reads the number.
    let store = unsafe { qemu_plugin_mem_is_store(info) };
    add_one(if store { &place.stores } else { &place.loads });
}

extern "C" fn translate(_: u64, block: *mut Block) {
    let mut profile = profile();
    let is_counting = locked(&OUT).is_some();
    // SAFETY: QEMU passes a block that lives as long as this call, and so do its instructions; counters and functions
    // live for ever.
    unsafe {
        for index in 0..qemu_plugin_tb_n_insns(block) {
            let insn = qemu_plugin_tb_get_insn(block, index);
            let bytes = std::slice::from_raw_parts(
                qemu_plugin_insn_data(insn),
                qemu_plugin_insn_size(insn),
            );
            let nobody: *mut c_void = std::ptr::null_mut();
            if let Some(mark) = mark_of(bytes) {
                let (callback, number): (ExecCallback, u8) = match mark {
                    Mark::Begin => (begin, 0),
                    Mark::End => (end, 0),
                    Mark::Event(number) => (happened, number),
                };
                let userdata = usize::from(number) as *mut c_void;
                qemu_plugin_register_vcpu_insn_exec_cb(insn, callback, NO_REGISTERS, userdata);
                continue;
            }
            if !is_counting {
                continue;
            }
            let count = |counter: &AtomicU64| {
                qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD, counter.as_ptr().cast(), 1);
            };
            count(&INSTRUCTIONS);
            if let Some(switch) = Switch::of(bytes) {
                count(&SWITCHES[switch as usize]);
            }
            let (access, userdata): (MemoryCallback, _) = match profile.as_mut() {
                Some(profile) => {
                    let place = profile.place(qemu_plugin_insn_vaddr(insn));
                    count(&place.count);
                    (access_at, std::ptr::from_ref(place).cast_mut().cast())
                }
                None => (access, nobody),
            };
            qemu_plugin_register_vcpu_mem_cb(
                insn,
                access,
                NO_REGISTERS,
                LOADS_AND_STORES,
                userdata,
            );
        }
    }
}

/// Called by QEMU when it loads the plugin.
///
/// # Safety
/// `argv` holds `argc` strings that end with a zero byte.
#[no_mangle]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    _info: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    for index in 0..usize::try_from(argc).unwrap_or(0) {
        // SAFETY: promised by the caller.
        let argument = unsafe { CStr::from_ptr(*argv.add(index)) };
        let argument = argument.to_string_lossy();
        let Some((key, path)) = argument.split_once('=') else {
            eprintln!("fermata-count: {argument}: not understood");
            return 1;
        };
        let file = match File::create(path) {
            Ok(file) => file,
            Err(error) => {
                eprintln!("fermata-count: {argument}: {error}");
                return 1;
            }
        };
        match key {
            "out" => *locked(&OUT) = Some(file),
            "events" => *locked(&EVENTS_OUT) = Some(file),
            "switches" => *locked(&SWITCHES_OUT) = Some(file),
            "time" => *locked(&TIME_OUT) = Some(file),
            "profile" => {
                *profile() = Some(Profile {
                    file,
                    places: Vec::new(),
                });
            }
            _ => {
                eprintln!("fermata-count: {argument}: not understood");
                return 1;
            }
        }
    }
    // SAFETY: a function of the type that QEMU expects.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, translate) };
    0
}
