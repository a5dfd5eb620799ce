//! The vDSO of Linux programs: functions that read the clock without a system call.
//!
//! An ELF image, as Linux's vDSO is: a page with `__vdso_clock_gettime`, `__vdso_gettimeofday` and `__vdso_time`, and
//! behind it a page with a [`Clock`], which turns the time-stamp counter into the time. C libraries and Go find the
//! image by `AT_SYSINFO_EHDR`.
//!
//! A program can be stopped, saved and restored at any instruction in here. So the clock has a number, which changes at
//! each restore: a function that finds another number after it has read the counter than before begins again.
#![cfg_attr(not(test), no_std)]

/// Bytes of the image and the clock, which have a page each.
pub const SIZE: u64 = 2 * PAGE;
/// The offset of the clock.
pub const CLOCK: u64 = PAGE;
/// Bytes of a clock.
pub const CLOCK_SIZE: usize = 40;
const PAGE: u64 = 4096;

/// How the machine's time-stamp counter becomes the time that a process sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// What the counter shows when the machine's clock is 0.
    pub start: u64,
    /// Nanoseconds of a step of the counter, in units of 2^-32.
    pub rate: u64,
    /// What is added to the machine's clock for the process, in nanoseconds.
    pub offset: u64,
    /// What is added to the machine's clock for the date, in nanoseconds since the beginning of 1970.
    pub origin: u64,
}

impl Clock {
    /// The clock as it stands behind the image, with a number that differs from that of the clock before.
    #[must_use]
    pub fn to_bytes(&self, number: u64) -> [u8; CLOCK_SIZE] {
        let mut bytes = [0; CLOCK_SIZE];
        let words = [number, self.start, self.rate, self.offset, self.origin];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

core::arch::global_asm!(
    r#"
    .pushsection .rodata.fermata_vdso, "a"
    .balign 8
    .globl fermata_vdso_start, fermata_vdso_end
fermata_vdso_start:
.Lstart:
    // The header.
    .byte 0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0
    .short 3, 62
    .long 1
    .quad 0, .Lsegments - .Lstart, 0
    .long 0
    .short 64, 56, 2, 64, 0, 0
.Lsegments:
    // All of it is loaded, and may be read and executed.
    .long 1, 5
    .quad 0, 0, 0, .Lend - .Lstart, .Lend - .Lstart, 4096
    // The dynamic section.
    .long 2, 4
    .quad .Ldynamic - .Lstart, .Ldynamic - .Lstart, .Ldynamic - .Lstart
    .quad .Ldynamic_end - .Ldynamic, .Ldynamic_end - .Ldynamic, 8
.Ldynamic:
    .quad 14, .Lsoname - .Lstrings
    .quad 4, .Lhash - .Lstart
    .quad 5, .Lstrings - .Lstart
    .quad 6, .Lsymbols - .Lstart
    .quad 10, .Lstrings_end - .Lstrings
    .quad 11, 24
    .quad 0, 0
.Ldynamic_end:
.Lsymbols:
    .quad 0, 0, 0
    .macro function name
    .long .Lname_\name - .Lstrings
    .byte 0x12, 0
    .short 1
    .quad .L\name - .Lstart, .L\name\()_end - .L\name
    .endm
    function clock_gettime
    function gettimeofday
    function time
    // One list of all symbols.
.Lhash:
    .long 1, 4, 1, 0, 2, 3, 0
.Lstrings:
    .byte 0
.Lsoname:
    .asciz "linux-vdso.so.1"
.Lname_clock_gettime:
    .asciz "__vdso_clock_gettime"
.Lname_gettimeofday:
    .asciz "__vdso_gettimeofday"
.Lname_time:
    .asciz "__vdso_time"
.Lstrings_end:

    .set .Lnumber, .Lstart + 4096
    .set .Lcounter, .Lstart + 4096 + 8
    .set .Lrate, .Lstart + 4096 + 16
    .set .Loffset, .Lstart + 4096 + 24
    .set .Lorigin, .Lstart + 4096 + 32

    // Puts into rax the time in nanoseconds, to which the word at r8 is added. Uses rdx, r9.
    .balign 16
.Lread:
    mov r9, [rip + .Lnumber]
    lfence
    rdtsc
    shl rdx, 32
    or rax, rdx
    sub rax, [rip + .Lcounter]
    mul qword ptr [rip + .Lrate]
    shrd rax, rdx, 32
    add rax, [r8]
    cmp r9, [rip + .Lnumber]
    jne .Lread
    ret

    // int clock_gettime(clockid_t, struct timespec *)
    .balign 16
.Lclock_gettime:
    // Realtime and its coarse twin; monotonic, raw, coarse, and since boot.
    mov ecx, 0xf3
    cmp edi, 7
    ja 3f
    bt ecx, edi
    jnc 3f
    mov ecx, 0x21
    lea r8, [rip + .Loffset]
    bt ecx, edi
    jnc 2f
    lea r8, [rip + .Lorigin]
2:
    call .Lread
    xor edx, edx
    mov ecx, 1000000000
    div rcx
    mov [rsi], rax
    mov [rsi + 8], rdx
    xor eax, eax
    ret
3:
    mov eax, 228
    syscall
    ret
.Lclock_gettime_end:

    // int gettimeofday(struct timeval *, struct timezone *)
    .balign 16
.Lgettimeofday:
    test rsi, rsi
    jnz 3f
    test rdi, rdi
    jz 2f
    lea r8, [rip + .Lorigin]
    call .Lread
    xor edx, edx
    mov ecx, 1000000000
    div rcx
    mov [rdi], rax
    mov eax, edx
    xor edx, edx
    mov ecx, 1000
    div rcx
    mov [rdi + 8], rax
2:
    xor eax, eax
    ret
3:
    mov eax, 96
    syscall
    ret
.Lgettimeofday_end:

    // time_t time(time_t *)
    .balign 16
.Ltime:
    lea r8, [rip + .Lorigin]
    call .Lread
    xor edx, edx
    mov ecx, 1000000000
    div rcx
    test rdi, rdi
    jz 2f
    mov [rdi], rax
2:
    ret
.Ltime_end:
.Lend:
fermata_vdso_end:
    .popsection
    "#
);

extern "C" {
    static fermata_vdso_start: u8;
    static fermata_vdso_end: u8;
}

/// The image, which is shorter than a page.
#[must_use]
pub fn image() -> &'static [u8] {
    let (start, end) = (&raw const fermata_vdso_start, &raw const fermata_vdso_end);
    // SAFETY: between the two symbols is the image, which is never written.
    unsafe { core::slice::from_raw_parts(start, end as usize - start as usize) }
}

#[cfg(test)]
mod tests {
    use super::{image, Clock, CLOCK, CLOCK_SIZE, PAGE, SIZE};
    use core::ffi::c_int;
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use elf::abi::{STT_FUNC, STV_DEFAULT};
    use elf::endian::NativeEndian;
    use elf::ElfBytes;

    const SECOND: u64 = 1_000_000_000;

    /// The image and the page of its clock, as a process has them.
    struct Loaded(*mut u8);

    impl Loaded {
        fn new() -> Self {
            // SAFETY: new pages, which are nobody else's.
            let at = unsafe {
                libc::mmap(
                    core::ptr::null_mut(),
                    SIZE as usize,
                    libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                )
            };
            assert_ne!(at, libc::MAP_FAILED);
            let at = at.cast::<u8>();
            // SAFETY: the image is shorter than a page.
            unsafe { at.copy_from_nonoverlapping(image().as_ptr(), image().len()) };
            Loaded(at)
        }

        fn set(&self, clock: &Clock, number: u64) {
            let bytes = clock.to_bytes(number);
            // SAFETY: the second page, which nobody reads meanwhile.
            unsafe {
                let to = self.0.add(CLOCK as usize);
                to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
        }

        /// The address of a function, found as C libraries find it.
        fn function(&self, name: &str) -> *const u8 {
            let file = ElfBytes::<NativeEndian>::minimal_parse(image()).unwrap();
            let dynamic = file.dynamic().unwrap().unwrap();
            let of = |tag| dynamic.iter().find(|d| d.d_tag == tag).unwrap().d_val() as usize;
            let at = |offset: usize| &image()[offset..];
            let word = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
            let hash = at(of(elf::abi::DT_HASH));
            assert_eq!(word(hash), 1);
            let mut next = word(&hash[8..]);
            while next != 0 {
                let symbol = &at(of(elf::abi::DT_SYMTAB))[24 * next..];
                let text = &at(of(elf::abi::DT_STRTAB))[word(symbol)..];
                let text = text.split(|byte| *byte == 0).next().unwrap();
                assert_eq!(symbol[4] & 15, STT_FUNC);
                assert_eq!(symbol[5], STV_DEFAULT);
                if text == name.as_bytes() {
                    let value = u64::from_le_bytes(symbol[8..16].try_into().unwrap());
                    // SAFETY: the function is in the image.
                    return unsafe { self.0.add(value as usize) };
                }
                next = word(&hash[12 + 4 * next..]);
            }
            panic!("{name} is not there")
        }

        fn clock_gettime(&self, which: c_int) -> (c_int, u64) {
            type Function = extern "C" fn(c_int, *mut [u64; 2]) -> c_int;
            // SAFETY: that is the type of this function.
            let function: Function =
                unsafe { core::mem::transmute(self.function("__vdso_clock_gettime")) };
            let mut time = [0; 2];
            let result = function(which, &raw mut time);
            assert!(time[1] < SECOND);
            (result, time[0] * SECOND + time[1])
        }
    }

    #[test]
    fn it_is_an_image_that_is_loaded_as_it_is() {
        assert!((image().len() as u64) < PAGE);
        let file = ElfBytes::<NativeEndian>::minimal_parse(image()).unwrap();
        let segments: Vec<_> = file.segments().unwrap().iter().collect();
        assert_eq!(segments.len(), 2);
        assert_eq!(
            (
                segments[0].p_offset,
                segments[0].p_vaddr,
                segments[0].p_filesz
            ),
            (0, 0, image().len() as u64)
        );
        assert_eq!(segments[0].p_flags & elf::abi::PF_W, 0);
    }

    #[test]
    fn clocks_are_as_the_counter_and_the_process_say() {
        let loaded = Loaded::new();
        // SAFETY: reads the counter.
        let start = unsafe { core::arch::x86_64::_rdtsc() };
        // A step takes 2 ns.
        let clock = Clock {
            start,
            rate: 2 << 32,
            offset: 5 * SECOND,
            origin: 1000 * SECOND,
        };
        loaded.set(&clock, 1);
        for (which, added) in [(1, 5), (4, 5), (6, 5), (7, 5), (0, 1000), (5, 1000)] {
            // SAFETY: reads the counter.
            let now = || (unsafe { core::arch::x86_64::_rdtsc() } - start) * 2 + added * SECOND;
            let before = now();
            let (result, time) = loaded.clock_gettime(which);
            let after = now();
            assert_eq!(result, 0);
            assert!(
                before <= time && time <= after,
                "{which}: {before} {time} {after}"
            );
        }
        // Other clocks are read by the kernel, here the host's, which has 2, of processor time, and no 1000.
        assert_eq!(loaded.clock_gettime(2).0, 0);
        assert!(loaded.clock_gettime(1000).0 < 0);
        type Time = extern "C" fn(*mut u64) -> u64;
        type TimeOfDay = extern "C" fn(*mut [u64; 2], *mut u64) -> c_int;
        // SAFETY: those are the types of these functions.
        let (time, of_day): (Time, TimeOfDay) = unsafe {
            (
                core::mem::transmute::<*const u8, Time>(loaded.function("__vdso_time")),
                core::mem::transmute::<*const u8, TimeOfDay>(
                    loaded.function("__vdso_gettimeofday"),
                ),
            )
        };
        let (mut word, mut both) = (0, [0; 2]);
        let seconds = time(&raw mut word);
        assert!(seconds == word && (1000..2000).contains(&seconds));
        assert_eq!(time(core::ptr::null_mut()), word.max(seconds));
        assert_eq!(of_day(&raw mut both, core::ptr::null_mut()), 0);
        assert!((1000..2000).contains(&both[0]) && both[1] < 1_000_000);
        assert_eq!(of_day(core::ptr::null_mut(), core::ptr::null_mut()), 0);
    }
    /// The steps that were made; the step before which the clock is replaced; and the clock's address and new bytes.
    static STEPS: AtomicU64 = AtomicU64::new(0);
    static RESTORED_AT: AtomicU64 = AtomicU64::new(0);
    static RESTORED: [AtomicU64; 1 + CLOCK_SIZE / 8] = [const { AtomicU64::new(0) }; 6];

    extern "C" fn step(_: c_int) {
        if STEPS.fetch_add(1, Relaxed) + 1 == RESTORED_AT.load(Relaxed) {
            let at = RESTORED[0].load(Relaxed) as *mut u64;
            for (n, word) in RESTORED[1..].iter().enumerate() {
                // SAFETY: the clock's page, which only the interrupted thread reads.
                unsafe { at.add(n).write_volatile(word.load(Relaxed)) };
            }
        }
    }

    /// A process is restored before each instruction, on a machine whose counter started earlier, with a clock that is
    /// as much behind: time goes on.
    #[test]
    fn a_restore_before_any_instruction_is_noticed() {
        const EARLIER: u64 = 1 << 50;
        // SAFETY: reads the counter.
        let counter = || unsafe { core::arch::x86_64::_rdtsc() };
        let loaded = Loaded::new();
        let start = counter();
        let clock = Clock {
            start,
            rate: 1 << 32,
            ..Clock::default()
        };
        let restored = Clock {
            start: start.wrapping_sub(EARLIER),
            offset: EARLIER.wrapping_neg(),
            ..clock
        };
        // SAFETY: the handler only does what a handler of signals may do.
        unsafe { libc::signal(libc::SIGTRAP, step as *const () as usize) };
        RESTORED[0].store(loaded.0 as u64 + CLOCK, Relaxed);
        let words = restored.to_bytes(2);
        for (to, word) in RESTORED[1..].iter().zip(words.chunks_exact(8)) {
            to.store(u64::from_le_bytes(word.try_into().unwrap()), Relaxed);
        }
        let function = loaded.function("__vdso_clock_gettime");
        let mut at = 0;
        loop {
            at += 1;
            loaded.set(&clock, 1);
            STEPS.store(0, Relaxed);
            RESTORED_AT.store(at, Relaxed);
            let mut time = [0u64; 2];
            let before = counter() - start;
            // SAFETY: calls the function, in which each instruction is a trap; the registers that it may change are
            // named.
            unsafe {
                core::arch::asm!(
                    "pushfq",
                    "or qword ptr [rsp], 0x100",
                    "popfq",
                    "call {function}",
                    "pushfq",
                    "and qword ptr [rsp], -257",
                    "popfq",
                    function = in(reg) function,
                    in("edi") 1,
                    in("rsi") time.as_mut_ptr(),
                    clobber_abi("C"),
                );
            }
            let after = counter() - start;
            let time = time[0] * SECOND + time[1];
            assert!(
                before <= time && time <= after,
                "restored before instruction {at}: {before} {time} {after}"
            );
            if STEPS.load(Relaxed) < at {
                break;
            }
        }
        assert!(at > 30, "only {at} instructions were looked at");
    }
}
