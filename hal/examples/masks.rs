//! A kernel that measures what it costs to mask interrupts, and to unmask them: by each of the ways that
//! the processor offers, and optimistically (Stodolsky, Chen and Bershad, 1993, Tables 1 and 2).
//!
//! It runs where a kernel that is preemptible everywhere would: in kernel mode, with interrupts on. Each
//! measurement is a loop over pairs, and the ways take turns. Lines go out on the control channel as those
//! of `benches/` do: `bench NAME pair PAIRS TICKS NANOSECONDS STRETCHES`. The word `rounds=N` of the command
//! line says how many turns there are. `./fermata bench mask_` builds and runs it.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this is a kernel: build it for the target x86_64-unknown-none");
}

#[cfg(target_os = "none")]
mod image {
    use core::arch::asm;
    use core::fmt::Write;
    use core::panic::PanicInfo;
    use hal::mask::{self, Level};

    hal::entry!(main);

    #[panic_handler]
    fn panic(info: &PanicInfo) -> ! {
        hal::die(format_args!("{}", info.message()))
    }

    // ---- the ways --------------------------------------------------------------------------------

    /// Where `hal` maps the local APIC; its task priority is 0x80 bytes from there.
    const TASK_PRIORITY: *mut u32 = 0xffff_ffff_ffe0_0080 as *mut u32;
    /// The priority class that the kernel gives to devices.
    const CLASS: u32 = 0x9;
    /// The masks of the two 8259s, and what they have while interrupts are on: all but the cascade.
    const PIC: [u16; 2] = [0x21, 0xa1];
    const PIC_OPEN: u16 = !(1 << 2);

    // Every `raise` returns what was before, and every `restore` takes that: such pairs can be nested.

    /// The interrupt flag.
    mod flag {
        use core::arch::asm;

        #[inline(always)]
        pub(super) fn raise() -> u64 {
            let flags;
            // SAFETY: the handlers that do not come now come later.
            unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) };
            flags
        }

        #[inline(always)]
        pub(super) fn restore(flags: u64) {
            // SAFETY: at most turns interrupts on, as they were before.
            unsafe { asm!("test {:e}, 0x200", "jz 2f", "sti", "2:", in(reg) flags) };
        }
    }

    /// The task priority, as a register of the processor.
    mod cr8 {
        use core::arch::asm;

        #[inline(always)]
        pub(super) fn raise() -> u64 {
            let before;
            // SAFETY: holds interrupts back.
            unsafe {
                asm!("mov {}, cr8", out(reg) before);
                asm!("mov cr8, {}", in(reg) u64::from(super::CLASS));
            }
            before
        }

        #[inline(always)]
        pub(super) fn restore(before: u64) {
            // SAFETY: lets them through as before.
            unsafe { asm!("mov cr8, {}", in(reg) before) };
        }
    }

    /// The same, as a register of the local APIC.
    mod tpr {
        use super::{CLASS, TASK_PRIORITY};

        #[inline(always)]
        pub(super) fn raise() -> u32 {
            // SAFETY: the register is mapped there; it holds interrupts back.
            unsafe {
                let before = TASK_PRIORITY.read_volatile();
                TASK_PRIORITY.write_volatile(CLASS << 4);
                before
            }
        }

        #[inline(always)]
        pub(super) fn restore(before: u32) {
            // SAFETY: as above; lets them through as before.
            unsafe { TASK_PRIORITY.write_volatile(before) };
        }
    }

    /// The masks of the 8259s, with a copy in memory of what they are: reading them takes as long as
    /// writing.
    mod pic {
        use super::{out, PIC, PIC_OPEN};
        use core::sync::atomic::{AtomicU16, Ordering::Relaxed};

        static MASK: AtomicU16 = AtomicU16::new(PIC_OPEN);

        #[inline(always)]
        fn write(mask: u16) {
            MASK.store(mask, Relaxed);
            out(PIC[0], mask as u8);
            out(PIC[1], (mask >> 8) as u8);
        }

        #[inline(always)]
        pub(super) fn raise() -> u16 {
            let before = MASK.load(Relaxed);
            write(!0);
            before
        }

        #[inline(always)]
        pub(super) fn restore(before: u16) {
            write(before);
        }
    }

    // ---- measuring -------------------------------------------------------------------------------

    /// Pairs in a row, so that the loop around them does not count.
    const ROW: u64 = 16;

    /// Marks an instant for the emulator's plugin.
    macro_rules! mark {
        ($which:literal) => {
            // SAFETY: a nop.
            unsafe { asm!(".byte 0x0f, 0x1f, 0x80", concat!(".long ", $which)) }
        };
    }

    /// Measures so many pairs, and reports.
    macro_rules! measure {
        ($name:literal, $rows:expr, $raise:expr, $restore:expr) => {{
            let rows = $rows;
            let start = hal::now();
            mark!("0x4d524601");
            for _ in 0..rows {
                // As many as `ROW`.
                measure!(@row $raise, $restore);
            }
            mark!("0x4d524602");
            let time = hal::now() - start;
            say(format_args!(
                "bench {} pair {} {time} {time} 1\n",
                $name,
                rows * ROW
            ));
        }};
        (@row $raise:expr, $restore:expr) => {
            measure!(@four $raise, $restore);
            measure!(@four $raise, $restore);
            measure!(@four $raise, $restore);
            measure!(@four $raise, $restore);
        };
        (@four $raise:expr, $restore:expr) => {
            measure!(@pair $raise, $restore);
            measure!(@pair $raise, $restore);
            measure!(@pair $raise, $restore);
            measure!(@pair $raise, $restore);
        };
        (@pair $raise:expr, $restore:expr) => {{
            let before = $raise;
            // The section: the compiler must not see through it.
            SECTION.with();
            $restore(before);
        }};
    }

    /// Stands for what is protected: nothing, at no cost.
    struct Section;
    static SECTION: Section = Section;

    impl Section {
        #[inline(always)]
        fn with(&self) {
            // SAFETY: does nothing; memory may have changed, for the compiler.
            unsafe { asm!("", options(nostack, preserves_flags)) };
        }
    }

    fn main() -> ! {
        let word = |name: &str, default: u64| {
            let words = hal::command_line().split(' ');
            let value = |word: &str| word.strip_prefix(name)?.parse().ok();
            words.filter_map(value).next_back().unwrap_or(default)
        };
        let (rounds, rows) = (word("rounds=", 1), word("pairs=", 1600) / ROW);
        mask::restore(Level::None);
        // SAFETY: nothing comes that is not handled. As in a kernel that has entered user mode once.
        unsafe { asm!("sti") };
        let flags = flag::raise();
        flag::restore(flags);
        assert!(flags & 1 << 9 != 0, "interrupts are off");
        for _ in 0..rounds {
            measure!("mask_cli_sti", rows, flag::raise(), flag::restore);
            measure!("mask_cr8", rows, cr8::raise(), cr8::restore);
            measure!("mask_lapic_tpr", rows, tpr::raise(), tpr::restore);
            measure!("mask_pic", rows, pic::raise(), pic::restore);
            measure!(
                "mask_optimistic",
                rows,
                mask::raise(Level::High),
                mask::restore
            );
        }
        say(format_args!("exit 0\n"));
        loop {
            out(0xf4, 0);
        }
    }

    #[inline(always)]
    fn out(port: u16, byte: u8) {
        // SAFETY: only for the ports of a serial line, the 8259s, and the emulator's debug exit.
        unsafe { asm!("out dx, al", in("dx") port, in("al") byte) };
    }

    /// The control channel.
    struct Control;

    impl Write for Control {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            text.bytes().for_each(|byte| out(0x2f8, byte));
            Ok(())
        }
    }

    fn say(text: core::fmt::Arguments) {
        let _ = Control.write_fmt(text);
    }
}
