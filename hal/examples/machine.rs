//! A kernel that tests the machine: what `hal` promises about user mode, on the real thing.
//!
//! It has a few threads, whose programs are the lines of assembly below, and a list of tests. A
//! test starts a program and looks at each trap until it is satisfied. Results go out as lines of
//! the control channel. `README.md` says how to run it.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this is a kernel: build it for the target x86_64-unknown-none");
}

#[cfg(target_os = "none")]
mod image {
    use abi::{access, Registers, PAGE_SIZE};
    use core::arch::{asm, global_asm};
    use core::cell::Cell;
    use core::fmt::Write;
    use core::panic::PanicInfo;
    use hal::mask::{self, Level};
    use hal::{Context, Irq, Kernel, PageTable, Pfn, Trap, IRQ, OWN_LINES};

    hal::entry!(main);

    #[panic_handler]
    fn panic(info: &PanicInfo) -> ! {
        match info.location() {
            Some(location) => hal::die(format_args!("{}, {location}", info.message())),
            None => hal::die(format_args!("{}", info.message())),
        }
    }

    // ---- programs --------------------------------------------------------------------------------

    // Position-independent. A program says by `syscall` with rax = 0 that all is well, and with any
    // other value that it is not. It ends in an endless loop.
    global_asm!(
        r#"
        .section .rodata.programs, "a"
        .balign 4096
    programs_start:

        .macro fill from
        lea rbx, [rax + \from]
        lea rcx, [rax + \from + 1]
        lea rdx, [rax + \from + 2]
        lea rsi, [rax + \from + 3]
        lea rdi, [rax + \from + 4]
        lea rbp, [rax + \from + 5]
        lea r8, [rax + \from + 6]
        lea r9, [rax + \from + 7]
        lea r10, [rax + \from + 8]
        lea r11, [rax + \from + 9]
        lea r12, [rax + \from + 10]
        lea r13, [rax + \from + 11]
        lea r14, [rax + \from + 12]
        lea r15, [rax + \from + 13]
        .endm

        .macro check register, from
        lea rcx, [rax + \from]
        cmp \register, rcx
        jne bad
        .endm

        // All registers in, other values out.
        .global program_registers
    program_registers:
        mov eax, 1000
        fill 1
        syscall
        // The kernel adds 1000 to each but rax.
        check rbx, 1001
        check rdx, 1003
        check rsi, 1004
        check rdi, 1005
        check rbp, 1006
        check r8, 1007
        check r9, 1008
        check r10, 1009
        check r12, 1011
        check r13, 1012
        check r14, 1013
        check r15, 1014
        jmp good

        // Interrupted at any instruction, the registers stay.
        .global program_count
    program_count:
        syscall
        mov eax, 5000
        fill 7
        mov qword ptr [rsp - 8], 0
    1:  inc qword ptr [rsp - 8]
        cmp rcx, 5008
        jne bad
        check rbx, 7
        check rdx, 9
        check rsi, 10
        check rdi, 11
        check rbp, 12
        check r8, 13
        check r9, 14
        check r10, 15
        check r11, 16
        check r12, 17
        check r13, 18
        check r14, 19
        check r15, 20
        lea rcx, [rax + 8]
        jmp 1b

        // Memory at rdi: read, write, execute.
        .global program_memory
    program_memory:
        mov rdi, 0x600000
        mov rsi, [rdi]
        mov dword ptr [rdi], 0x1234
        add rdi, 0x1000
        call rdi
        jmp good

        // Reads a word, again and again.
        .global program_read
    program_read:
        mov rdi, 0x600000
    1:  mov rax, [rdi]
        syscall
        jmp 1b

        // In ring 1: registers, its own memory, and what it must not do, at which the kernel steps on.
        .global program_inner
    program_inner:
        mov eax, 1
        syscall
        mov ecx, cs
        and ecx, 3
        cmp ecx, 1
        jne bad
        mov [rbx], rsp
        cmp [rbx], rsp
        jne bad
        // A page of user mode, and its code.
        mov rcx, [rdi]
        nop
        jmp rdi
        nop
        // A page of its own that may only be read.
        mov [rsi], rsp
        nop
        cli
        nop
        in al, 0x60
        nop
        mov rcx, cr3
        jmp good

        // In ring 1, among programs that come and go: their memory, at which the kernel steps on, and its own.
        .global program_among_others
    program_among_others:
        mov eax, 1
    1:  mov rcx, [rdi]
        mov [rdi], rcx
        jmp rsi
        inc qword ptr [rbx]
        inc rbp
        cmp [rbx], rbp
        jne bad
        syscall
        jmp 1b

        // In ring 1: uses its stack for ever, and says now and then that it is still there.
        .global program_pushes
    program_pushes:
        mov ebx, 0x1111
        mov ebp, 0x2222
    1:  mov ecx, 1000
    2:  push rbx
        push rbp
        call 3f
        pop rdx
        cmp rdx, rbp
        jne bad
        pop rdx
        cmp rdx, rbx
        jne bad
        dec ecx
        jnz 2b
        mov eax, 1
        syscall
        jmp 1b
    3:  ret

        // In ring 3: the memory of ring 1.
        .global program_outer
    program_outer:
        mov rcx, [rbx]
        nop
        mov [rbx], rcx
        nop
        jmp rbx
        nop
        jmp good

        // Exceptions that the kernel steps over.
        .global program_exceptions
    program_exceptions:
        ud2
        int3
        .byte 0xcd, 0x03
        nop
        xor ecx, ecx
        xor edx, edx
        div ecx
        hlt
        int 0x30
        mov dx, 0x3fd
        in al, dx
        in al, dx
        in al, dx
        smsw eax
        jmp good

        // To an address that is not canonical.
        .global program_wild
    program_wild:
        mov rax, 0x1234567812345678
        jmp rax

        // Flags: direction, alignment check, nested task, single step.
        .global program_flags
    program_flags:
        push 0x44402
        popfq
        xor eax, eax
        syscall
        pushfq
        pop rbx
        and ebx, 0x44400
        cmp ebx, 0x44400
        jne bad
        ud2
        pushfq
        pop rbx
        and ebx, 0x44400
        cmp ebx, 0x44400
        jne bad
        push 0x102
        popfq
        nop
        push 2
        popfq
        // A misaligned access, with the check on.
        push 0x40002
        popfq
        mov rbx, [rsp - 17]
        push 2
        popfq
        jmp good

        // Single steps over calls: one that is done, one that is made twice, and out of it.
        .global program_steps
    program_steps:
        mov eax, 1
        push 0x4102
        popfq
        syscall
        nop
        syscall
        nop
        push 2
        popfq
        jmp good

        // Segment bases.
        .global program_bases
    program_bases:
        mov rbx, 0x501000 - 64
        wrfsbase rbx
        lea rcx, [rbx + 8]
        wrgsbase rcx
        mov qword ptr fs:[0], 77
        mov qword ptr gs:[0], 88
        mov eax, 1
        syscall
        cmp qword ptr fs:[0], 77
        jne bad
        cmp qword ptr gs:[0], 88
        jne bad
        add rbx, 8
        wrfsbase rbx
        lea rcx, [rbx + 8]
        wrgsbase rcx
        mov eax, 1
        ud2
        rdfsbase rdx
        cmp rdx, rbx
        jne bad
        rdgsbase rdx
        lea rcx, [rbx + 8]
        cmp rdx, rcx
        jne bad
        jmp good

        // Reads a port of a serial line for ever.
        .global program_ports
    program_ports:
        mov edx, 0x3fd
    1:  in al, dx
        mov eax, 1
        syscall
        jmp 1b

        // FPU registers made of rdi, given away and checked for ever.
        .global program_fpu
    program_fpu:
        movq xmm0, rdi
        movq xmm15, rdi
        pslldq xmm15, 8
        push rdi
        fild qword ptr [rsp]
    1:  mov eax, 1
        syscall
        movq rsi, xmm0
        cmp rsi, rdi
        jne bad
        movdqa xmm1, xmm15
        psrldq xmm1, 8
        movq rsi, xmm1
        cmp rsi, rdi
        jne bad
        fist dword ptr [rsp]
        cmp dword ptr [rsp], edi
        jne bad
        jmp 1b

        .global program_fpu_bad
    program_fpu_bad:
        movq rdi, xmm0
        mov eax, 1
        syscall

        // Thread 0 (rdi = 1) fills the FPU again and again. Thread 1 asks where its last instruction was, which is
        // nowhere: it has not had any.
        .global program_fpu_traces
    program_fpu_traces:
        mov eax, 1
    1:  test edi, edi
        jz 2f
        pcmpeqd xmm0, xmm0
        movdqa xmm15, xmm0
        fninit
        fild dword ptr [rip + programs_start]
    2:  syscall
        test edi, edi
        jnz 1b
        fnstenv [rsp - 64]
        mov ebx, [rsp - 64 + 12]
        mov esi, [rsp - 64 + 20]
        mov eax, 2
        syscall

        .global program_call
    program_call:
        mov eax, 1
        syscall
        jmp program_call

        .global program_yield
    program_yield:
        mov eax, 1
    1:  syscall
        jmp 1b

        // Calls for ever, and looks whether all registers stay.
        .global program_calls
    program_calls:
        mov eax, 5000
        fill 7
    1:  syscall
        cmp eax, 5000
        jne bad
        check rbx, 7
        check rdx, 9
        check rsi, 10
        check rdi, 11
        check rbp, 12
        check r8, 13
        check r9, 14
        check r10, 15
        check r12, 17
        check r13, 18
        check r14, 19
        check r15, 20
        jmp 1b

        .global program_spin
    program_spin:
        syscall
    1:  jmp 1b

    good:
        xor eax, eax
        syscall
        jmp good
    bad:
        mov eax, 99
        syscall
        jmp bad
    programs_end:
        .text
        "#
    );

    extern "C" {
        static programs_start: u8;
        static programs_end: u8;
        static program_registers: u8;
        static program_count: u8;
        static program_memory: u8;
        static program_read: u8;
        static program_exceptions: u8;
        static program_inner: u8;
        static program_among_others: u8;
        static program_pushes: u8;
        static program_outer: u8;
        static program_wild: u8;
        static program_flags: u8;
        static program_steps: u8;
        static program_bases: u8;
        static program_ports: u8;
        static program_fpu: u8;
        static program_fpu_bad: u8;
        static program_fpu_traces: u8;
        static program_call: u8;
        static program_yield: u8;
        static program_calls: u8;
        static program_spin: u8;
    }

    /// How many interrupts are tested with, unless the command line says `interrupts=N`.
    const INTERRUPTS: u64 = 2_000_000;
    /// How many switches there are between a collocated thread and programs, unless the command line says `switches=N`.
    const SWITCHES: u64 = 1_000_000;
    /// How often a collocated thread has no stack, unless the command line says `stacks=N`.
    const ABSENT_STACKS: u64 = 100_000;
    /// What has not come after so many nanoseconds does not come.
    const LOST: u64 = 1_000_000;
    /// Numbers of ports.
    const MINE: u16 = 7;
    const OTHERS: u16 = 9;
    const CODE: u64 = 0x40_0000;
    const STACK: u64 = 0x50_0000;
    const DATA: u64 = 0x60_0000;
    const SECRET: u64 = 0x70_0000;
    /// The thread that is collocated, its place, and the place's first address.
    const INNER: usize = 2;
    const PLACE: u64 = 3;
    const INSIDE: u64 = abi::collocated::range(PLACE).0;
    /// The threads that have a space each.
    const CLIENTS: core::ops::Range<usize> = INNER + 1..INNER + 5;
    const R: u64 = access::READ;
    const W: u64 = access::WRITE;
    const X: u64 = access::EXECUTE;

    // ---- the kernel ------------------------------------------------------------------------------

    struct Machine {
        threads: &'static [Thread],
        table: PageTable,
        /// That of the third thread, which is collocated.
        inner: PageTable,
        /// The threads after it, which have a space each.
        clients: &'static [Client],
        /// Frames for tests to use.
        frames: Cell<u32>,
        test: Cell<usize>,
        /// How often the running test has been called.
        step: Cell<u64>,
        word: Cell<u64>,
        failed: Cell<u32>,
        campaign: Campaign,
        mix: Mix,
    }

    /// What a test wants next.
    enum Next {
        /// Go on with this thread.
        Run(usize),
        Passed,
        Failed(&'static str),
    }
    use Next::{Failed, Passed, Run};

    type Test = (
        &'static str,
        &'static u8,
        fn(&'static Machine, usize, Trap) -> Next,
    );

    // SAFETY: of the programs only the addresses are used.
    static TESTS: &[Test] = unsafe {
        &[
            ("registers", &program_registers, registers),
            ("system_call_restarts", &program_call, system_call_restarts),
            (
                "timer_keeps_registers",
                &program_count,
                timer_keeps_registers,
            ),
            ("page_faults", &program_memory, page_faults),
            ("changed_translations", &program_read, changed_translations),
            ("translations", &program_call, translations),
            ("translation_budget", &program_call, translation_budget),
            ("collocated", &program_call, collocated),
            ("collocated_registers", &program_call, collocated_registers),
            (
                "collocated_from_below",
                &program_call,
                collocated_from_below,
            ),
            ("collocated_switches", &program_call, collocated_switches),
            (
                "timer_at_an_absent_stack",
                &program_call,
                timer_at_an_absent_stack,
            ),
            ("exceptions", &program_exceptions, exceptions),
            ("wild_jump", &program_wild, wild_jump),
            ("flags", &program_flags, flags),
            ("single_steps_over_calls", &program_steps, single_steps),
            ("segment_bases", &program_bases, segment_bases),
            ("ports_of_two_threads", &program_ports, ports_of_two_threads),
            ("many_ports", &program_call, many_ports),
            ("fpu_of_two_threads", &program_fpu, fpu_of_two_threads),
            (
                "fpu_leaves_no_trace",
                &program_fpu_traces,
                fpu_leaves_no_trace,
            ),
            ("fpu_state", &program_fpu_bad, fpu_state),
            ("hostile_fpu_state", &program_fpu_bad, hostile_fpu_state),
            ("stacks", &program_yield, stacks),
            ("waiting", &program_call, waiting),
            ("device_interrupts", &program_spin, device_interrupts),
            ("interrupts_at_random_masks", &program_calls, interrupts),
            ("memory_access", &program_call, memory_access),
            ("costs", &program_call, costs),
            ("kernel_memory", &program_call, kernel_memory),
        ]
    };

    impl Machine {
        fn frame(&self) -> Pfn {
            let frame = self.frames.get();
            self.frames.set(frame + 1);
            for offset in (0..PAGE_SIZE).step_by(8) {
                hal::write_word(Pfn(frame), offset, 0);
            }
            Pfn(frame)
        }

        fn map(&self, address: u64, pfn: Pfn, rights: u64) {
            self.table
                .insert(address, pfn, rights, false)
                .expect("a translation");
        }

        /// Makes the thread begin the program.
        fn begin(&self, thread: usize, program: &'static u8) {
            let start = &raw const programs_start as u64;
            let inside = if thread == INNER { INSIDE } else { 0 };
            self.threads[thread].set_registers(&Registers {
                rip: inside + CODE + (core::ptr::from_ref(program) as u64 - start),
                rsp: inside + STACK + PAGE_SIZE - 64 - 1024 * (thread as u64 % 3),
                rflags: 2,
                ..Registers::default()
            });
            self.threads[thread].set_fpu(&abi::state::initial_fpu());
        }

        fn begin_test(&'static self) -> &'static Thread {
            let filter = word("filter=").unwrap_or_default();
            while TESTS
                .get(self.test.get())
                .is_some_and(|(name, ..)| !filter.split(',').any(|word| name.contains(word)))
            {
                self.test.set(self.test.get() + 1);
            }
            let Some((_, program, _)) = TESTS.get(self.test.get()) else {
                say(format_args!(
                    "tests done\nexit {}\n",
                    u32::from(self.failed.get() > 0)
                ));
                exit()
            };
            self.step.set(0);
            self.word.set(0);
            hal::set_timer(u64::MAX);
            hal::load_ports(0, &[]);
            for thread in self.threads {
                thread.set_ports(0);
            }
            self.begin(0, program);
            &self.threads[0]
        }

        fn advance(&self, thread: usize, bytes: u64) {
            let context = &self.threads[thread];
            context.frame.rip.set(context.frame.rip.get() + bytes);
        }
    }

    /// What follows `name` in a word of the command line.
    fn word(name: &str) -> Option<&'static str> {
        let mut words = hal::command_line().split(' ');
        words.find_map(|word| word.strip_prefix(name))
    }

    fn out(port: u16, byte: u8) {
        // SAFETY: only for the ports of a serial line, the 8254, and the emulator's debug exit.
        unsafe { asm!("out dx, al", in("dx") port, in("al") byte) };
    }

    fn exit() -> ! {
        loop {
            out(0xf4, 0);
        }
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

    /// A thread is its context.
    #[repr(C, align(16))]
    struct Thread(Context);

    impl core::ops::Deref for Thread {
        type Target = Context;

        fn deref(&self) -> &Context {
            &self.0
        }
    }

    impl Kernel for Machine {
        type Thread = Thread;

        fn context(thread: &'static Thread) -> &'static Context {
            &thread.0
        }

        fn trap(&'static self, context: &'static Thread, trap: Trap) -> &'static Thread {
            let is = |thread: &Thread| core::ptr::eq(context, thread);
            let thread = self.threads.iter().position(is).expect("a thread");
            let (name, _, test) = TESTS[self.test.get()];
            let next = test(self, thread, trap);
            self.step.set(self.step.get() + 1);
            match next {
                Run(thread) => return &self.threads[thread],
                Passed => say(format_args!("test {name} ... ok\n")),
                Failed(why) => {
                    self.failed.set(self.failed.get() + 1);
                    let step = self.step.get() - 1;
                    let registers = context.registers();
                    say(format_args!(
                        "test {name} ... FAILED {why}, step {step}, thread {thread}, {trap:x?}, {registers:x?}\n"
                    ));
                }
            }
            self.test.set(self.test.get() + 1);
            self.begin_test()
        }

        fn change_ports(&'static self, context: &'static Thread) {
            hal::load_ports(
                context.ports(),
                match context.ports() {
                    MINE => &[(0x3f0, 2), (0x3f8, 8)],
                    OTHERS => &[(0x2f8, 8)],
                    _ => &[],
                },
            );
        }

        fn interrupt(&'static self, trap: Trap) {
            if self.campaign.runs.get() {
                return self.campaign.handle(trap);
            }
            self.word.set(match trap {
                Trap::Timer => self.word.get() + 1,
                Trap::Irq(line) => self.word.get() + 1000 * (1 + u64::from(line)),
                _ => panic!("{trap:?} while waiting"),
            });
        }
    }

    fn main() -> ! {
        let threads = hal::alloc_slice(CLIENTS.end, |_| Thread(Context::new())).expect("memory");
        let mut frames = 0;
        hal::free_ranges(&mut |start, size| {
            if size >= 64 * PAGE_SIZE {
                frames = (start / PAGE_SIZE) as u32;
            }
        });
        let machine = hal::alloc_slice(1, |_| Machine {
            threads,
            table: PageTable::new(),
            inner: PageTable::new(),
            clients: hal::alloc_slice(CLIENTS.len(), |_| Client::new()).expect("memory"),
            frames: Cell::new(frames),
            test: Cell::new(0),
            step: Cell::new(0),
            word: Cell::new(0),
            failed: Cell::new(0),
            campaign: Campaign::new(),
            mix: Mix::new(),
        });
        let machine = &machine.expect("memory")[0];
        machine.inner.collocate(PLACE).expect("a place");
        for thread in threads {
            thread.set_table(&machine.table);
        }
        threads[INNER].set_table(&machine.inner);
        for (thread, client) in threads[CLIENTS].iter().zip(machine.clients) {
            thread.set_table(&client.table);
        }
        // SAFETY: the linker's own symbols around bytes that nobody writes.
        let programs = unsafe {
            let (start, end) = (&raw const programs_start, &raw const programs_end);
            core::slice::from_raw_parts(start, end as usize - start as usize)
        };
        assert!(programs.len() <= PAGE_SIZE as usize);
        let code = machine.frame();
        hal::write_bytes(code, 0, programs);
        machine.map(CODE, code, R | X);
        machine.map(STACK, machine.frame(), R | W);
        for (page, rights) in [(CODE, R | X), (STACK, R | W), (DATA, R | W), (SECRET, 0)] {
            let pfn = if page == CODE { code } else { machine.frame() };
            let inserted = machine.inner.insert(INSIDE + page, pfn, rights, false);
            inserted.expect("a translation");
        }
        hal::start(machine, machine.begin_test())
    }

    // ---- the tests -------------------------------------------------------------------------------

    /// What a program that has ended says.
    fn ended(machine: &Machine, thread: usize, trap: Trap) -> Next {
        match (trap, machine.threads[thread].frame.rax.get()) {
            (Trap::Syscall, 0) => Passed,
            (Trap::Syscall, _) => Failed("the program says so"),
            _ => Failed("an unexpected trap"),
        }
    }

    fn registers(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        if machine.step.get() > 0 {
            return ended(machine, thread, trap);
        }
        let context = &machine.threads[thread];
        if trap != Trap::Syscall || context.is_full() {
            return Failed("no system call");
        }
        let r = context.registers();
        let expected = Registers {
            rax: 1000,
            rbx: 1001,
            rcx: r.rip + 2,
            rdx: 1003,
            rsi: 1004,
            rdi: 1005,
            rbp: 1006,
            rsp: STACK + PAGE_SIZE - 64,
            r8: 1007,
            r9: 1008,
            r10: 1009,
            r11: r.rflags,
            r12: 1011,
            r13: 1012,
            r14: 1013,
            r15: 1014,
            rip: r.rip,
            rflags: r.rflags,
            fs_base: 0,
            gs_base: 0,
        };
        let mut instruction = [0; 2];
        hal::read_bytes(
            machine.table.lookup(r.rip).expect("code").0,
            r.rip % PAGE_SIZE,
            &mut instruction,
        );
        if r != expected || instruction != [0x0f, 0x05] || r.rflags & 0x202 != 0x202 {
            return Failed("wrong registers");
        }
        for register in [
            &context.frame.rbx,
            &context.frame.rdx,
            &context.frame.rsi,
            &context.frame.rdi,
            &context.frame.rbp,
            &context.frame.r8,
            &context.frame.r9,
            &context.frame.r10,
            &context.frame.r12,
            &context.frame.r13,
            &context.frame.r14,
            &context.frame.r15,
        ] {
            register.set(register.get() + 1000);
        }
        // The program compares with rax + 1001 and so on.
        context.frame.rax.set(1000);
        machine.advance(thread, 2);
        Run(thread)
    }

    fn system_call_restarts(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let context = &machine.threads[thread];
        if trap != Trap::Syscall || context.frame.rax.get() != 1 + machine.step.get() {
            return Failed("not the same call");
        }
        context.frame.rax.set(context.frame.rax.get() + 1);
        match machine.step.get() {
            // Restarted by sysret.
            0..3 => Run(thread),
            // Restarted by iret.
            3..6 => {
                context.set_registers(&context.registers());
                if !context.is_full() {
                    return Failed("set_registers without effect");
                }
                Run(thread)
            }
            _ => Passed,
        }
    }

    fn timer_keeps_registers(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let context = &machine.threads[thread];
        if machine.step.get() == 0 {
            machine.advance(thread, 2);
        } else if trap != Trap::Timer || !context.is_full() && IRQ == Irq::Hardware {
            // Optimistically masked, it may have come on the way out of the system call.
            return Failed("not the timer");
        }
        if machine.step.get() == 500 {
            return Passed;
        }
        hal::set_timer(hal::now() + 1000 + 13 * machine.step.get());
        Run(thread)
    }

    fn page_faults(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let fault = |address, write, execute, present| Trap::PageFault {
            address,
            write,
            execute,
            present,
        };
        let frame = || machine.table.lookup(DATA).expect("mapped").0;
        match machine.step.get() {
            0 if trap == fault(DATA, false, false, false) => machine.map(DATA, machine.frame(), R),
            1 if trap == fault(DATA, true, false, true) => machine.map(DATA, frame(), R | W),
            2 if trap == fault(DATA + PAGE_SIZE, false, true, false) => {
                let page = machine.frame();
                hal::write_bytes(page, 0, &[0xc3]);
                machine.map(DATA + PAGE_SIZE, page, R | W);
            }
            3 if trap == fault(DATA + PAGE_SIZE, false, true, true) => {
                if hal::read_word(frame(), 0) != 0x1234 {
                    return Failed("the store did not arrive");
                }
                let page = machine.table.lookup(DATA + PAGE_SIZE).expect("mapped").0;
                machine.map(DATA + PAGE_SIZE, page, R | X);
            }
            4 => {
                machine.table.remove(DATA, DATA + 2 * PAGE_SIZE);
                return ended(machine, thread, trap);
            }
            _ => return Failed("another fault"),
        }
        Run(thread)
    }

    /// What the processor remembers of a page goes when the page does.
    fn changed_translations(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let page = |word| {
            let frame = machine.frame();
            hal::write_word(frame, 0, word);
            frame
        };
        let absent = Trap::PageFault {
            address: DATA,
            write: false,
            execute: false,
            present: false,
        };
        let read = machine.threads[thread].frame.rax.get();
        match machine.step.get() {
            0 if trap == absent => machine.map(DATA, page(0x11), R),
            1 if trap == Trap::Syscall && read == 0x11 => {
                machine.map(DATA, page(0x22), R);
                machine.advance(thread, 2);
            }
            2 if trap == Trap::Syscall && read == 0x22 => {
                machine.table.remove(DATA, DATA + PAGE_SIZE);
                machine.advance(thread, 2);
            }
            3 if trap == absent => return Passed,
            2 | 3 => return Failed("a translation that is gone is used"),
            _ => return Failed("another trap"),
        }
        Run(thread)
    }

    fn translations(machine: &'static Machine, _: usize, _: Trap) -> Next {
        let table = &machine.table;
        let before = table.pages();
        let frame = machine.frame();
        for i in 0..2000 {
            machine.map(
                0x10_0000_0000 + i * PAGE_SIZE,
                frame,
                R | W | access::OBJECTS,
            );
        }
        let far = abi::collocated::START - 2 * PAGE_SIZE;
        machine.map(far, frame, X);
        // Four leaves and one table above them, three for the far page.
        if table.pages() != before + 8 {
            return Failed("pages after insertion");
        }
        if table.lookup(0x10_0000_0000 + 1999 * PAGE_SIZE + 5)
            != Some((frame, R | W | access::OBJECTS))
            || table.lookup(far) != Some((frame, X))
            || table.lookup(0x10_0000_0000 + 2000 * PAGE_SIZE).is_some()
            || table.lookup(u64::MAX).is_some()
            || table.lookup(0xffff_ffff_8020_0000).is_some()
        {
            return Failed("lookup");
        }
        table.remove(
            0x10_0000_0000 + 1000 * PAGE_SIZE,
            0x10_0000_0000 + 1500 * PAGE_SIZE,
        );
        for (i, there) in [(999, true), (1000, false), (1499, false), (1500, true)] {
            if table.lookup(0x10_0000_0000 + i * PAGE_SIZE).is_some() != there {
                return Failed("remove");
            }
        }
        table.remove(0x9_0000_0000, abi::USER_END);
        if table.pages() != before || table.lookup(CODE).is_none() {
            return Failed("pages after removal");
        }
        Passed
    }

    fn translation_budget(machine: &'static Machine, _: usize, _: Trap) -> Next {
        let (other, third) = (PageTable::new(), PageTable::new());
        let frame = machine.frame();
        let mut inserted = 0;
        while other.insert(inserted << 30, frame, R, false).is_some() {
            inserted += 1;
        }
        if third.insert(0, frame, R, false).is_some() || third.lookup(0).is_some() {
            return Failed("more than there is");
        }
        let pages = other.pages();
        other.clear();
        third.clear();
        if other.pages() != 0 || third.pages() != 0 || other.lookup(0).is_some() {
            return Failed("clear leaves something");
        }
        if other.insert(0, frame, R, false).is_none() || other.pages() != 4 {
            return Failed("a table that was given back is used");
        }
        other.clear();
        let again = PageTable::new();
        for i in 0..inserted {
            if again.insert(i << 30, frame, R, false).is_none() {
                return Failed("pages were lost");
            }
        }
        hal::log(format_args!("machine: {pages} table pages"));
        again.clear();
        Passed
    }

    /// What a collocated thread can do, and what it cannot: all that a program cannot, and reach pages of programs.
    fn collocated(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let fault = |address, write, execute, present| Trap::PageFault {
            address,
            write,
            execute,
            present,
        };
        let refused = Trap::Exception {
            vector: 13,
            error: 0,
        };
        let length = match machine.step.get() {
            // The first thread stays loaded: the page of its stack is there.
            0 => {
                // SAFETY: only its address is used.
                machine.begin(INNER, unsafe { &program_inner });
                let frame = &machine.threads[INNER].frame;
                frame.rbx.set(INSIDE + DATA);
                frame.rsi.set(INSIDE + CODE);
                frame.rdi.set(STACK);
                return Run(INNER);
            }
            _ if thread != INNER => return Failed("another thread"),
            1 if trap == Trap::Syscall && !machine.threads[thread].is_full() => 2,
            2 if trap == fault(STACK, false, false, true) => 3,
            3 if trap == fault(STACK, false, true, true) => {
                // The jump has been made.
                let rip = &machine.threads[thread].frame.rip;
                rip.set(machine.word.get() + 3);
                0
            }
            4 if trap == fault(INSIDE + CODE, true, false, true) => 3,
            5 | 6 | 7 if trap == refused => [1, 2, 3][machine.step.get() as usize - 5],
            8 => return ended(machine, thread, trap),
            _ => return Failed("another trap"),
        };
        machine.advance(thread, length);
        let rip = machine.threads[thread].frame.rip.get();
        machine.word.set(rip);
        Run(thread)
    }

    /// The registers of a collocated thread: as in `registers`, also when others run in between.
    fn collocated_registers(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        match machine.step.get() {
            0 => {
                // SAFETY: only its address is used.
                machine.begin(INNER, unsafe { &program_registers });
                return Run(INNER);
            }
            1 if trap == Trap::Syscall && thread == INNER => {
                let frame = &machine.threads[thread].frame;
                for register in [
                    &frame.rbx, &frame.rdx, &frame.rsi, &frame.rdi, &frame.rbp, &frame.r8,
                    &frame.r9, &frame.r10, &frame.r12, &frame.r13, &frame.r14, &frame.r15,
                ] {
                    register.set(register.get() + 1000);
                }
                frame.rax.set(1000);
                machine.advance(thread, 2);
                machine.advance(0, 2);
                return Run(0);
            }
            2 if thread == 0 => return Run(INNER),
            3 => ended(machine, thread, trap),
            _ => Failed("another trap"),
        }
    }

    /// A program sees nothing of a collocated thread's memory, whatever stands in its translations.
    fn collocated_from_below(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let address = [DATA, CODE, SECRET].map(|page| INSIDE + page);
        let context = &machine.threads[thread];
        let begin = |address| {
            // SAFETY: only its address is used.
            machine.begin(thread, unsafe { &program_outer });
            context.frame.rbx.set(address);
            Run(thread)
        };
        let Some(step) = machine.step.get().checked_sub(1) else {
            return begin(address[0]);
        };
        let (round, step) = (step as usize / 3, step as usize % 3);
        let wanted = Trap::PageFault {
            address: address[round],
            write: step == 1,
            execute: step == 2,
            present: address[round] != INSIDE + SECRET,
        };
        if trap != wanted {
            return Failed("another trap");
        }
        if step < 2 {
            machine.advance(thread, 3);
            return Run(thread);
        }
        match address.get(round + 1) {
            Some(next) => begin(*next),
            None => Passed,
        }
    }

    /// A thread with a space of its own, which reads the word at [`DATA`].
    struct Client {
        table: PageTable,
        /// Its page there, one of [`Mix::frames`], whether or not it is translated.
        frame: Cell<Option<usize>>,
        /// The word in it.
        word: Cell<u64>,
    }

    impl Client {
        const fn no_number() -> Cell<Option<usize>> {
            Cell::new(None)
        }

        fn new() -> Client {
            Client {
                table: PageTable::new(),
                frame: Client::no_number(),
                word: Cell::new(0),
            }
        }
    }

    /// A collocated thread among clients that come and go.
    struct Mix {
        random: Cell<u64>,
        /// The client whose table is loaded, if one is.
        loaded: Cell<Option<usize>>,
        /// Which of its instructions the collocated thread comes to.
        at: Cell<u64>,
        /// Pages that clients have one after the other.
        frames: [Cell<(Pfn, bool)>; 6],
        /// The word that no page had yet.
        word: Cell<u64>,
        switches: Cell<u64>,
        /// Accesses that only SMAP or SMEP refused.
        refused: Cell<u64>,
        /// When the timer is to ring; 0: it has rung.
        rings: Cell<u64>,
        /// Rounds that are over, and those in which it rang while there was no stack.
        rounds: Cell<u64>,
        without: Cell<u64>,
    }

    /// The word of a page that nobody has.
    const NOBODYS: u64 = u64::MAX;

    impl Mix {
        const fn new() -> Mix {
            Mix {
                random: Cell::new(0),
                loaded: Client::no_number(),
                at: Cell::new(0),
                frames: [const { Cell::new((Pfn(0), false)) }; 6],
                word: Cell::new(0),
                switches: Cell::new(0),
                refused: Cell::new(0),
                rings: Cell::new(0),
                rounds: Cell::new(0),
                without: Cell::new(0),
            }
        }

        /// A number below `n`.
        fn dice(&self, n: u64) -> u64 {
            let mut random = fastrand::Rng::with_seed(self.random.get());
            let number = random.u64(..n);
            self.random.set(random.get_seed());
            number
        }
    }

    impl Machine {
        /// Gives a client a page with a word that no other one has had, in place of the one that it has.
        fn supply(&self, client: &Client) {
            let frames = &self.mix.frames;
            let free = |i: &usize| !frames[*i].get().1;
            let first = self.mix.dice(frames.len() as u64) as usize;
            let all = (first..frames.len()).chain(0..first);
            let new = { all }.find(free).expect("more pages than clients");
            self.take_back(client);
            let pfn = frames[new].get().0;
            frames[new].set((pfn, true));
            self.mix.word.set(self.mix.word.get() + 1);
            client.word.set(self.mix.word.get());
            hal::write_word(pfn, 0, client.word.get());
            client.frame.set(Some(new));
        }

        /// Takes its page from a client. Its translation may still be there.
        fn take_back(&self, client: &Client) {
            if let Some(old) = client.frame.take() {
                let pfn = self.mix.frames[old].get().0;
                hal::write_word(pfn, 0, NOBODYS);
                self.mix.frames[old].set((pfn, false));
            }
        }

        /// Translates a client's page at [`DATA`], or its code.
        fn translate(&self, client: &Client, address: u64) {
            let (pfn, rights) = if address == DATA {
                let frame = client.frame.get().expect("a page");
                (self.mix.frames[frame].get().0, R | W)
            } else {
                (self.table.lookup(CODE).expect("code").0, R | X)
            };
            let inserted = client.table.insert(address, pfn, rights, false);
            inserted.expect("a translation");
        }

        /// Something happens to one of the clients, whoever runs.
        fn disturb(&'static self) {
            let (mix, which) = (&self.mix, self.mix.dice(CLIENTS.len() as u64) as usize);
            let client = &self.clients[which];
            match mix.dice(8) {
                // It loses its page.
                0 => {
                    client.table.remove(DATA, DATA + PAGE_SIZE);
                    self.take_back(client);
                }
                // It gets another one.
                1 if client.table.lookup(DATA).is_some() => {
                    self.supply(client);
                    self.translate(client, DATA);
                }
                // Its tables are wanted elsewhere.
                2 => client.table.clear_some(1),
                3 => client.table.clear(),
                // It ends, and another one begins.
                4 => {
                    client.table.clear();
                    self.take_back(client);
                    // SAFETY: only its address is used.
                    self.begin(CLIENTS.start + which, unsafe { &program_read });
                }
                _ => {}
            }
            if mix.loaded.get() == Some(which) && client.table.pages() == 0 {
                mix.loaded.set(None);
            }
        }

        /// What a client did. `None`: something that it cannot do.
        fn client_did(&self, which: usize, trap: Trap) -> Option<()> {
            let (client, thread) = (&self.clients[which], CLIENTS.start + which);
            let context = &self.threads[thread];
            match trap {
                Trap::Syscall if context.frame.rax.get() == client.word.get() => {
                    client.frame.get()?;
                    self.advance(thread, 2);
                }
                Trap::PageFault {
                    address,
                    write: false,
                    execute,
                    present: false,
                } if client.table.lookup(address).is_none() => {
                    let code = address / PAGE_SIZE == CODE / PAGE_SIZE;
                    if execute != code || !code && address != DATA {
                        return None;
                    }
                    if !code && client.frame.get().is_none() {
                        self.supply(client);
                    }
                    self.translate(client, if code { CODE } else { DATA });
                }
                _ => return None,
            }
            Some(())
        }

        /// What the collocated thread did: each access to a page of the client whose table is loaded is refused, and where
        /// there is none, there is none.
        fn inner_did(&self, trap: Trap) -> Option<()> {
            let (mix, frame) = (&self.mix, &self.threads[INNER].frame);
            let at = mix.at.get();
            let there = |address| {
                let loaded = mix.loaded.get().map(|which| &self.clients[which].table);
                loaded.is_some_and(|table| table.lookup(address).is_some())
            };
            let address = [DATA, DATA, CODE, 0][at as usize];
            let wanted = Trap::PageFault {
                address,
                write: at == 1,
                execute: at == 2,
                present: there(address),
            };
            match at {
                0..3 if trap != wanted => return None,
                0..3 => mix
                    .refused
                    .set(mix.refused.get() + u64::from(there(address))),
                _ if trap != Trap::Syscall || frame.rax.get() != 1 => return None,
                _ => {}
            }
            // Or the same again, perhaps in another space.
            if mix.dice(4) > 0 {
                match at {
                    0 | 1 => self.advance(INNER, 3),
                    // The jump has been made.
                    2 => frame.rip.set(self.word.get() + 2),
                    _ => self.advance(INNER, 2),
                }
                if at == 1 {
                    self.word.set(frame.rip.get());
                }
                mix.at.set((at + 1) % 4);
            }
            Some(())
        }
    }

    /// A collocated thread never meets memory of a program, whichever it follows, while programs end, lose pages, get others
    /// and lose their tables; and those meet their own.
    fn collocated_switches(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let mix = &machine.mix;
        if machine.step.get() == 0 {
            let seed: Option<u64> = word("seed=").and_then(|number| number.parse().ok());
            mix.random.set(seed.unwrap_or_default() + 1);
            for frame in &mix.frames {
                frame.set((machine.frame(), false));
            }
            for thread in CLIENTS {
                // SAFETY: only its address is used.
                machine.begin(thread, unsafe { &program_read });
            }
            // SAFETY: only its address is used.
            machine.begin(INNER, unsafe { &program_among_others });
            let own = machine.inner.lookup(INSIDE + DATA).expect("its page").0;
            hal::write_word(own, 0, 0);
            let frame = &machine.threads[INNER].frame;
            frame.rdi.set(DATA);
            frame.rsi.set(CODE);
            frame.rbx.set(INSIDE + DATA);
            // From here on no other table is loaded than those of clients.
            mix.loaded.set(None);
            return Run(CLIENTS.start);
        }
        let did = match thread.checked_sub(CLIENTS.start) {
            Some(client) => machine.client_did(client, trap),
            None => machine.inner_did(trap),
        };
        if did.is_none() && thread == INNER {
            return Failed("a page of a program, or none where there was one");
        }
        if did.is_none() {
            return Failed("not the client's page");
        }
        machine.disturb();
        let goal = word("switches=").and_then(|number| number.parse().ok());
        let goal = goal.unwrap_or(SWITCHES);
        if mix.switches.get() >= goal {
            let refused = mix.refused.get();
            hal::log(format_args!(
                "machine: {goal} switches, {refused} accesses refused by SMAP and SMEP"
            ));
            machine
                .clients
                .iter()
                .for_each(|client| client.table.clear());
            return match refused {
                _ if refused < goal / 16 => Failed("too few pages were there"),
                _ => Passed,
            };
        }
        let client = mix.dice(CLIENTS.len() as u64) as usize;
        let next = match mix.dice(4) {
            0 if thread == INNER => INNER,
            0 => CLIENTS.start + client,
            _ if thread == INNER => CLIENTS.start + client,
            _ => INNER,
        };
        if next != INNER {
            // It loads its table, if there is one.
            let which = next - CLIENTS.start;
            let there = machine.clients[which].table.pages() > 0;
            mix.loaded.set(there.then_some(which));
        }
        mix.switches
            .set(mix.switches.get() + u64::from(next != thread));
        Run(next)
    }

    /// The timer rings at any instant around that at which a collocated thread has no stack, and once.
    fn timer_at_an_absent_stack(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let (mix, stack) = (&machine.mix, INSIDE + STACK);
        let frame = || machine.inner.lookup(stack).map(|(pfn, _)| pfn);
        let rings = mix.rings.get();
        match trap {
            _ if machine.step.get() == 0 => {
                let seed: Option<u64> = word("seed=").and_then(|number| number.parse().ok());
                mix.random.set(seed.unwrap_or_default() + 2);
                mix.rings.set(0);
                // SAFETY: only its address is used.
                machine.begin(INNER, unsafe { &program_pushes });
                machine.word.set(frame().expect("a stack").0.into());
            }
            Trap::Timer if rings == 0 => return Failed("the timer rang twice"),
            Trap::Timer if hal::now() < rings => return Failed("the timer rang early"),
            Trap::Timer => {
                mix.rings.set(0);
                mix.without
                    .set(mix.without.get() + u64::from(frame().is_none()));
            }
            Trap::PageFault {
                address,
                execute: false,
                present: false,
                ..
            } if thread == INNER && address & !(PAGE_SIZE - 1) == stack => {
                if frame().is_some() {
                    return Failed("no stack where there is one");
                }
                match mix.dice(4) {
                    // It stays away for a while, and another thread runs, or this one again.
                    0 => return Run(0),
                    1 if rings != 0 => {}
                    _ => {
                        let pfn = Pfn(machine.word.get() as u32);
                        let inserted = machine.inner.insert(stack, pfn, R | W, false);
                        inserted.expect("a translation");
                    }
                }
            }
            Trap::Syscall if machine.threads[thread].frame.rax.get() != 1 => {
                return Failed("the stack changed")
            }
            Trap::Syscall => machine.advance(thread, 2),
            _ => return Failed("another trap"),
        }
        if rings != 0 && mix.rings.get() != 0 && hal::now() > rings + LOST {
            return Failed("an interrupt was lost");
        }
        if mix.rings.get() == 0 && frame().is_some() {
            let goal = word("stacks=").and_then(|number| number.parse().ok());
            let goal = goal.unwrap_or(ABSENT_STACKS);
            if mix.rounds.replace(mix.rounds.get() + 1) == goal {
                let without = mix.without.get();
                hal::log(format_args!(
                    "machine: {goal} absent stacks, {without} interrupts while there was none"
                ));
                return match without {
                    _ if without < goal / 16 || without > goal - goal / 16 => {
                        Failed("too few at one side")
                    }
                    _ => Passed,
                };
            }
            machine.inner.remove(stack, stack + PAGE_SIZE);
            mix.rings.set(hal::now() + mix.dice(2 * LONGEST));
            hal::set_timer(mix.rings.get());
        }
        Run(INNER)
    }

    fn exceptions(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let exception = |vector, error| Trap::Exception { vector, error };
        let rip = machine.threads[thread].frame.rip.get();
        let mut byte_at_rip = [0];
        let code = machine.table.lookup(rip).expect("code").0;
        hal::read_bytes(code, rip % PAGE_SIZE, &mut byte_at_rip);
        let [byte_at_rip] = byte_at_rip;
        let length = match machine.step.get() {
            0 if trap == exception(6, 0) => 2,
            1 if trap == exception(3, 0) && byte_at_rip == 0xcc => 1,
            2 if trap == exception(3, 0) && byte_at_rip == 0xcd => 2,
            3 if trap == exception(0, 0) => 2,
            4 if trap == exception(13, 0) => 1,
            // The error code names the vector; QEMU gets that wrong.
            5 if matches!(
                trap,
                Trap::Exception {
                    vector: 13,
                    error: 2..
                }
            ) =>
            {
                2
            }
            6 if trap == exception(13, 0) => {
                machine.threads[0].set_ports(MINE);
                machine.change_ports(&machine.threads[0]);
                0
            }
            // The first `in` is through: the trap is after the third.
            7 if trap == exception(13, 0) => 3,
            8 => return ended(machine, thread, trap),
            _ => return Failed("another exception"),
        };
        machine.advance(thread, length);
        Run(thread)
    }

    fn wild_jump(machine: &'static Machine, _: usize, trap: Trap) -> Next {
        // Some processors fault at the jump, some at its target, which then stands in the frame:
        // going on must fault again, in the thread.
        let Trap::Exception { vector: 13, .. } = trap else {
            return Failed("no protection fault");
        };
        if machine.step.get() == 5 {
            return Passed;
        }
        machine.threads[0].frame.rip.set(0x1234_5678_1234_5678);
        Run(0)
    }

    fn flags(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        // SAFETY: reads the flags.
        let mine: u64 = unsafe {
            let flags;
            asm!("pushfq", "pop {}", out(reg) flags);
            flags
        };
        // All but the interrupt flag, which optimistic masking leaves as it is.
        let clear = match IRQ {
            Irq::Hardware => 0x4_7700,
            Irq::Optimistic => 0x4_7500,
        };
        if mine & clear != 0 {
            return Failed("the kernel runs with the user's flags");
        }
        match (machine.step.get(), trap) {
            (0, Trap::Syscall) => machine.advance(thread, 2),
            (1, Trap::Exception { vector: 6, .. }) => machine.advance(thread, 2),
            // After the `nop`, the `push` and the `popfq`.
            (2..=4, Trap::Exception { vector: 1, .. }) => {}
            // QEMU has no alignment check.
            (5, Trap::Exception { vector: 17, .. }) => machine.advance(thread, 5),
            (5 | 6, _) => return ended(machine, thread, trap),
            _ => return Failed("another trap"),
        }
        Run(thread)
    }

    /// A call that is done is one step: the trap comes after it, before the next instruction. The kernel is
    /// never stepped through. When a call is begun again the trap comes once more at the instruction, for `sysret`
    /// traps before what it returns to.
    fn single_steps(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let start = &raw const programs_start as u64;
        let program = core::ptr::from_ref(TESTS[machine.test.get()].1) as u64;
        let at = machine.threads[thread].frame.rip.get() - CODE - (program - start);
        let step = Trap::Exception {
            vector: 1,
            error: 0,
        };
        // `mov` is five bytes, each `push` five but the last, `popfq` one, `syscall` two, `nop` one.
        let expected = [
            (11, Trap::Syscall),
            (13, step),
            (14, step),
            (14, Trap::Syscall),
            (14, step),
            (14, Trap::Syscall),
            (16, step),
            (17, step),
            (19, step),
            (20, step),
        ];
        let now = machine.step.get() as usize;
        let Some(expected) = expected.get(now) else {
            return ended(machine, thread, trap);
        };
        if *expected != (at, trap) {
            return Failed("another step");
        }
        if machine.threads[thread].flags() & 0x4000 == 0 && now < 9 {
            return Failed("the nested task flag is lost");
        }
        if matches!(now, 0 | 5) {
            machine.advance(thread, 2);
        }
        Run(thread)
    }

    fn segment_bases(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let context = &machine.threads[thread];
        // It has set other ones since the call.
        let base = STACK + PAGE_SIZE - 64 + 8 * machine.step.get();
        match (machine.step.get(), trap) {
            (0, Trap::Syscall) | (1, Trap::Exception { vector: 6, .. }) => {
                if (context.frame.fs_base.get(), context.frame.gs_base.get()) != (base, base + 8) {
                    return Failed("wrong bases");
                }
                machine.advance(thread, 2);
                Run(thread)
            }
            _ => ended(machine, thread, trap),
        }
    }

    /// The one thread may read its port, and the other never, whatever else it may read.
    fn ports_of_two_threads(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let refused = trap
            == Trap::Exception {
                vector: 13,
                error: 0,
            };
        match machine.step.get() {
            0 if refused => {
                machine.threads[0].set_ports(MINE);
                machine.change_ports(&machine.threads[0]);
                machine.begin(1, TESTS[machine.test.get()].1);
                return Run(0);
            }
            _ if thread == 0 && trap == Trap::Syscall => machine.advance(0, 2),
            _ if thread == 1 && refused => {}
            _ => return Failed("ports of another thread"),
        }
        match machine.step.get() {
            60 => return Passed,
            20 => machine.threads[1].set_ports(OTHERS),
            40 => machine.threads[1].set_ports(0),
            _ => {}
        }
        Run(usize::from(machine.step.get() % 5 < 3))
    }

    fn fpu_of_two_threads(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let step = machine.step.get();
        match trap {
            Trap::Syscall if machine.threads[thread].frame.rax.get() == 1 => {
                machine.advance(thread, 2)
            }
            _ => return Failed("a register changed"),
        }
        if step == 0 {
            machine.begin(1, TESTS[machine.test.get()].1);
            machine.threads[1].frame.rdi.set(0x5555);
            return Run(1);
        }
        match step {
            200 => Passed,
            // Runs of different lengths.
            _ => Run(if step % 7 < 3 { thread } else { 1 - thread }),
        }
    }

    /// The FPU's registers as they are in the processor, whoever may use them.
    fn fpu_in_processor() -> (bool, [u64; 64]) {
        #[repr(align(16))]
        struct Area([u64; 64]);
        let mut area = Area([0; 64]);
        let cr0: u64;
        // SAFETY: the kernel does not use the FPU. Whether it traps is as before afterwards.
        unsafe {
            asm!("mov {cr0}, cr0", "clts", "fxsave64 [{area}]", "mov cr0, {cr0}",
                cr0 = out(reg) cr0, area = in(reg) &raw mut area);
        }
        (cr0 & 8 != 0, area.0)
    }

    /// Who does not use the FPU finds nothing of others in its registers, not even by speculation, which may
    /// read them although they trap; who begins to, does not learn where others have used it.
    fn fpu_leaves_no_trace(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let registers = machine.threads[thread].registers();
        let (traps, fpu) = fpu_in_processor();
        // The control words are those of `finit`; behind the first two words are data, up to word 52.
        let something = fpu[4..52].iter().any(|word| *word != 0);
        match (machine.step.get(), thread) {
            (_, 0 | 1) if trap != Trap::Syscall => return Failed("no call"),
            (0, 0) => {
                machine.begin(1, TESTS[machine.test.get()].1);
                machine.begin(0, TESTS[machine.test.get()].1);
                machine.threads[0].frame.rdi.set(1);
                return Run(0);
            }
            (_, 0) if traps || !something => return Failed("its own registers are not there"),
            (_, 0) => {
                machine.advance(0, 2);
                return Run(1);
            }
            (_, 1) if registers.rax == 2 => {}
            _ if !traps || something => return Failed("registers of another thread are there"),
            (10.., _) => {
                machine.advance(1, 2);
                return Run(1);
            }
            _ => return Run(0),
        }
        let foreign = |address: u64| (CODE..CODE + PAGE_SIZE).contains(&address);
        if foreign(registers.rbx) || foreign(registers.rsi) {
            return Failed("where another thread used the FPU is there");
        }
        if machine.threads[1].fpu() != machine.threads[1].fpu() {
            return Failed("the state is not stable");
        }
        Passed
    }

    fn fpu_state(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let context = &machine.threads[thread];
        let mut fpu = context.fpu();
        let xmm0 = 160;
        if trap != Trap::Syscall {
            return Failed("no call");
        }
        if machine.step.get() > 0 && context.frame.rdi.get() != 0x1111 * machine.step.get() {
            return Failed("another value arrived");
        }
        if machine.step.get() == 4 {
            return Passed;
        }
        let value: u64 = 0x1111 * (machine.step.get() + 1);
        fpu[xmm0..xmm0 + 8].copy_from_slice(&value.to_le_bytes());
        machine.begin(thread, TESTS[machine.test.get()].1);
        context.set_fpu(&fpu);
        if context.fpu() != fpu {
            return Failed("not what was set");
        }
        Run(thread)
    }

    fn hostile_fpu_state(machine: &'static Machine, thread: usize, _: Trap) -> Next {
        let context = &machine.threads[thread];
        if machine.step.get() == 0 {
            machine.begin(thread, TESTS[machine.test.get()].1);
            context.set_fpu(&[0xff; 512]);
            return Run(thread);
        }
        let fpu = context.fpu();
        context.set_fpu(&fpu);
        if fpu != context.fpu() {
            return Failed("the state is not stable");
        }
        Passed
    }

    fn stacks(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let (a, b) = (&machine.threads[0], &machine.threads[1]);
        if trap != Trap::Syscall {
            return Failed("no call");
        }
        match machine.step.get() {
            0 => {
                let (Some(first), Some(second)) = (hal::alloc_stack(), hal::alloc_stack()) else {
                    return Failed("no stack");
                };
                machine.begin(1, TESTS[machine.test.get()].1);
                a.set_stack(first);
                b.set_stack(second);
                // From here on each trap runs on its thread's own stack.
                hal::reset_stack::<Machine>(b);
                machine.advance(thread, 2);
                Run(0)
            }
            1 => {
                // Thread 0 goes to sleep, and goes on below when thread 1 has called often.
                machine.step.set(2);
                let secret = core::hint::black_box([hal::now(); 64]);
                hal::switch_stack(a, b);
                if machine.step.get() != 12 || secret.iter().any(|word| *word != secret[0]) {
                    return Failed("the stack changed");
                }
                // Now thread 1 is suspended. Its activation is dropped, and it starts afresh.
                machine.begin(1, TESTS[machine.test.get()].1);
                hal::reset_stack::<Machine>(b);
                machine.step.set(20);
                hal::switch_stack(a, b);
                if machine.step.get() != 22 {
                    return Failed("did not run afresh");
                }
                Passed
            }
            // Calls of thread 1.
            12 | 22 if thread == 1 => {
                hal::switch_stack(b, a);
                Failed("a dropped activation went on")
            }
            _ if thread == 1 => {
                machine.advance(thread, 2);
                Run(1)
            }
            _ => Failed("the wrong thread runs"),
        }
    }

    fn waiting(machine: &'static Machine, _: usize, _: Trap) -> Next {
        let start = hal::now();
        for i in 1..=10 {
            hal::set_timer(start + 100_000 * i);
            while machine.word.get() < i {
                hal::wait_for_interrupt();
            }
            let late = hal::now().wrapping_sub(start + 100_000 * i);
            // Not early, and soon; how soon is the host's matter unless instructions are counted.
            if late > 50_000_000 {
                return Failed("at the wrong time");
            }
        }
        // A time that has passed.
        hal::set_timer(start);
        hal::wait_for_interrupt();
        if machine.word.get() != 11 {
            return Failed("no interrupt for a time that has passed");
        }
        Passed
    }

    fn device_interrupts(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        // The first counter of the 8254 raises line 0.
        match (machine.step.get(), trap) {
            (0, Trap::Syscall) => {
                machine.advance(thread, 2);
                out(0x43, 0x34);
                out(0x40, 0x00);
                out(0x40, 0x10);
                hal::irq_unmask(0);
            }
            // Each comes once, and only after it was let through.
            (1..=5, Trap::Irq(0)) => {
                hal::set_timer(hal::now() + 20_000_000);
            }
            _ => return Failed("another interrupt"),
        }
        if machine.step.get() == 0 {
            return Run(thread);
        }
        // Whatever wakes the processor, only the timer comes.
        while machine.word.get() % 1000 < machine.step.get() {
            hal::wait_for_interrupt();
        }
        if machine.word.get() != machine.step.get() {
            return Failed("a masked line interrupted");
        }
        if machine.step.get() == 5 {
            return Passed;
        }
        hal::irq_unmask(0);
        Run(thread)
    }

    /// Interrupts at random instants, under random masks.
    struct Campaign {
        /// Whether it is under way.
        runs: Cell<bool>,
        /// How many are to be handled.
        goal: Cell<u64>,
        handled: Cell<u64>,
        /// For each level the own lines that have been raised and not handled, as bits, the first one
        /// highest: the processor prefers high vectors, so that this is their order by either way of
        /// masking.
        raised: [Cell<u8>; 3],
        /// What is masked; while that changes, the lower of both.
        masked: Cell<Level>,
        timer_set: Cell<bool>,
        /// Which interrupts came where: in a section's end or the open kernel, and as traps.
        places: [Cell<u64>; 2],
        random: Cell<u64>,
        wrong: Cell<Option<&'static str>>,
    }

    const LEVELS: [Level; 3] = [Level::Low, Level::High, Level::Clock];
    /// The 8254 interrupts every so many of its ticks.
    const DEVICE_TICKS: u16 = 700;
    /// The longest time to the timer's interrupt, in nanoseconds.
    const LONGEST: u64 = 511;

    impl Campaign {
        const fn new() -> Campaign {
            Campaign {
                runs: Cell::new(false),
                goal: Cell::new(0),
                handled: Cell::new(0),
                raised: [const { Cell::new(0) }; 3],
                masked: Cell::new(Level::All),
                timer_set: Cell::new(false),
                places: [const { Cell::new(0) }; 2],
                random: Cell::new(0x2545_f491_4f6c_dd1d),
                wrong: Cell::new(None),
            }
        }

        fn random(&self) -> u64 {
            let mut random = fastrand::Rng::with_seed(self.random.get());
            let number = random.u64(..);
            self.random.set(random.get_seed());
            number
        }

        /// What is said first counts.
        fn fail(&self, why: &'static str) {
            self.wrong.set(self.wrong.get().or(Some(why)));
        }

        /// An interrupt has come.
        fn handle(&self, trap: Trap) {
            let level = match trap {
                Trap::Timer => {
                    if !self.timer_set.replace(false) {
                        self.fail("the timer rang twice");
                    }
                    Level::Clock
                }
                Trap::Irq(line) if OWN_LINES.contains(&line) => {
                    let index = usize::from((line - OWN_LINES.start) / 4);
                    let (bits, bit) = (self.raised[index].get(), 1 << (line % 4));
                    if bits & bit == 0 {
                        self.fail("an interrupt came twice");
                    } else if bits >= 2 * bit {
                        self.fail("an interrupt overtook another of its level");
                    }
                    self.raised[index].set(bits & !bit);
                    LEVELS[index]
                }
                Trap::Irq(line) => {
                    hal::irq_unmask(line);
                    Level::of_line(line)
                }
                _ => return self.fail("something else came"),
            };
            if level <= self.masked.get() {
                self.fail("a masked interrupt came");
            }
            self.handled.set(self.handled.get() + 1);
        }

        /// Raises one of the lines of a level, and sees to it that it comes at once if it may.
        fn raise(&self, index: usize) {
            let bits = self.raised[index].get();
            // Behind those that are raised already.
            let Some(bit) = (0..4).rev().find(|bit| bits.trailing_zeros() > *bit) else {
                return;
            };
            self.raised[index].set(bits | 1 << bit);
            if !hal::irq_raise(OWN_LINES.start + 4 * index as u8 + bit as u8) {
                self.fail("a line is raised that was handled");
            }
            if LEVELS[index] > self.masked.get() && self.raised[index].get() != 0 {
                self.fail("an interrupt that is not masked did not come");
            }
        }

        fn set_timer(&self) {
            // While it is set, it may ring at any instant.
            if !self.timer_set.get() {
                self.timer_set.set(true);
                hal::set_timer(hal::now() + (self.random() & LONGEST));
            }
        }

        /// A section with something in it.
        fn section(&self) {
            let dice = self.random();
            let level = Level::EVERY[(dice >> 32) as usize % Level::EVERY.len()];
            let before = self.masked.get();
            if mask::raise(level) != before {
                self.fail("another level was masked before");
            }
            self.masked.set(level.max(before));
            for i in 0..dice & 3 {
                match dice >> (8 + 4 * i) & 7 {
                    0 => self.section(),
                    1 => self.set_timer(),
                    2 => {}
                    other => self.raise((other % 3) as usize),
                }
            }
            self.masked.set(before);
            mask::restore(before);
            for (raised, level) in self.raised.iter().zip(LEVELS) {
                if level > before && raised.get() != 0 {
                    self.fail("an interrupt was held back beyond its section");
                }
            }
        }

        /// What the kernel does in one system call: sections, and something that comes on its way out.
        fn turn(&self) {
            let before = self.handled.get();
            self.masked.set(Level::None);
            mask::restore(Level::None);
            for _ in 0..4 {
                self.section();
            }
            if mask::raise(Level::All) != Level::None {
                self.fail("a section was not left");
            }
            self.masked.set(Level::All);
            self.count(0, before);
            let dice = self.random();
            if dice & 1 != 0 {
                self.raise((dice >> 8) as usize % 3);
            }
            if dice & 2 != 0 {
                self.set_timer();
            }
            // In user mode everything may come.
            self.masked.set(Level::None);
        }

        fn count(&self, place: usize, before: u64) {
            self.places[place].set(self.places[place].get() + self.handled.get() - before);
        }
    }

    fn interrupts(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        let campaign = &machine.campaign;
        if !campaign.runs.replace(true) {
            let number = |name| word(name)?.parse().ok();
            campaign
                .goal
                .set(number("interrupts=").unwrap_or(INTERRUPTS));
            let seed: u64 = number("seed=").unwrap_or_default();
            campaign.random.set(campaign.random.get() ^ (seed << 20));
            // The first counter of the 8254 raises line 0, again and again.
            out(0x43, 0x34);
            out(0x40, DEVICE_TICKS as u8);
            out(0x40, (DEVICE_TICKS >> 8) as u8);
            hal::irq_unmask(0);
        }
        match trap {
            Trap::Syscall if machine.threads[thread].frame.rax.get() != 5000 => {
                campaign.fail("a register changed");
            }
            Trap::Syscall => {
                machine.advance(thread, 2);
                if campaign.handled.get() < campaign.goal.get() {
                    campaign.turn();
                }
            }
            _ => {
                let before = campaign.handled.get();
                campaign.handle(trap);
                campaign.count(1, before);
            }
        }
        let (handled, goal) = (campaign.handled.get(), campaign.goal.get());
        if machine.step.get() & 0xf_ffff == 0 {
            hal::log(format_args!("machine: {handled} of {goal} interrupts"));
        }
        if handled < goal && campaign.wrong.get().is_none() {
            return Run(thread);
        }
        hal::irq_mask(0);
        if handled >= goal
            && (campaign.timer_set.get() || campaign.raised.iter().any(|r| r.get() != 0))
        {
            // The last ones come in user mode.
            let started = machine.word.replace(hal::now());
            if started == 0 || hal::now() - started < LOST {
                machine
                    .word
                    .set(if started == 0 { hal::now() } else { started });
                campaign.masked.set(Level::None);
                return Run(thread);
            }
            campaign.fail("an interrupt was lost");
        }
        campaign.runs.set(false);
        let [kernel, traps] = [0, 1].map(|place| campaign.places[place].get());
        hal::log(format_args!(
            "machine: {handled} interrupts, {kernel} in the kernel, {traps} as traps"
        ));

        match campaign.wrong.get() {
            Some(why) => Failed(why),
            None if kernel < handled / 16 || traps < handled / 16 => Failed("too few in one place"),
            None => Passed,
        }
    }

    fn memory_access(machine: &'static Machine, _: usize, _: Trap) -> Next {
        let (a, b) = (machine.frame(), machine.frame());
        let bytes: [u8; 97] = core::array::from_fn(|i| i as u8 + 1);
        hal::write_bytes(a, 4096 - 97, &bytes);
        hal::copy_bytes((b, 3), (a, 4096 - 97), 97);
        let mut back = [0; 97];
        hal::read_bytes(b, 3, &mut back);
        hal::write_word(a, 4088, 0x0123_4567_89ab_cdef);
        if back != bytes || hal::read_word(b, 96) != 0x6160_5f5e {
            return Failed("bytes changed");
        }
        if hal::read_word(a, 4088) != 0x0123_4567_89ab_cdef || hal::read_word(b, 104) != 0 {
            return Failed("words changed");
        }
        if hal::user_frame(Pfn(0)) || hal::user_frame(Pfn(u32::MAX)) || !hal::user_frame(a) {
            return Failed("whose is it");
        }
        if !hal::device_frame(Pfn(0xb8)) || hal::device_frame(Pfn(0xfee00)) || hal::device_frame(a)
        {
            return Failed("what is a device's");
        }
        // The emulator's processor has 40 bits of addresses.
        if !hal::device_frame(Pfn((1 << 28) - 1)) || hal::device_frame(Pfn(1 << 28)) {
            return Failed("what the processor can address");
        }
        // Ranges that begin before, end within, or contain what is not a device's; and one that does not.
        let (ram, controller) = (a.0, 0xfee00);
        for (first, count) in [
            (ram - 1, 2),
            (ram, 3),
            (0xb8, 1 << 24),
            (controller - 5, 6),
            (controller - 5, 10),
            ((1 << 28) - 5, 6),
        ] {
            if hal::device_frames(Pfn(first), count) {
                return Failed("S1: a range with what is not a device's");
            }
        }
        if !hal::device_frames(Pfn(controller - 5), 5)
            || !hal::device_frames(Pfn(controller + 1), 5)
        {
            return Failed("a range beside the interrupt controller");
        }
        Passed
    }

    /// Whatever ports a driver has, and whoever had others before: what is loaded with interrupts masked is bounded.
    fn many_ports(_: &'static Machine, _: usize, _: Trap) -> Next {
        const MOST: u64 = 20_000;
        let before = hal::now();
        hal::load_ports(1, &[(3, u16::MAX - 3)]);
        let all = hal::now() - before;
        hal::load_ports(2, &[(40, 1)]);
        let others = hal::now() - before - all;
        hal::load_ports(0, &[]);
        hal::log(format_args!(
            "machine: {all} ns to load all ports, {others} ns to load others"
        ));
        // Instructions, where they are what is counted.
        if hal::now() - before > 2 * MOST {
            return Failed("A9: loading ports takes as long as there are ports");
        }
        Passed
    }

    fn costs(machine: &'static Machine, thread: usize, trap: Trap) -> Next {
        // Instructions, where they are what is counted: from one system call to the next.
        let now = hal::now();
        match (machine.step.get(), trap) {
            (0..=2, Trap::Syscall) => {
                if machine.step.get() == 2 {
                    let ticks = now - machine.word.get();
                    hal::log(format_args!(
                        "machine: {ticks} ns from system call to system call"
                    ));
                    return Passed;
                }
                machine.advance(thread, 2);
                machine.word.set(hal::now());
                Run(thread)
            }
            _ => Failed("no call"),
        }
    }

    fn kernel_memory(_: &'static Machine, _: usize, _: Trap) -> Next {
        let (_, before) = hal::pool_bytes();
        if hal::alloc_slice(usize::MAX, |_| 0u64).is_some() {
            return Failed("too much");
        }
        let Some(words) = hal::alloc_slice(1000, |i| Cell::new(i as u64 * 3)) else {
            return Failed("none");
        };
        words[5].set(1);
        if words[999].get() != 2997 || before - hal::pool_bytes().1 < 8000 {
            return Failed("not what was asked for");
        }
        while hal::alloc_slice(1 << 16, |_| 0u8).is_some() {}
        while hal::alloc_stack().is_some() {}
        if hal::pool_bytes().1 >= 1 << 16 || words[998].get() != 2994 {
            return Failed("the end");
        }
        Passed
    }
}
