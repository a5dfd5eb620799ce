/* Tracing: stops, requests and their errors. It prints the same on Linux and in the guest. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *self;

static long ask(int request, pid_t pid, void *address, void *data) {
    errno = 0;
    long result = syscall(SYS_ptrace, request, pid, address, data);
    return errno ? -errno : result;
}

static int waited(pid_t pid, pid_t *who) {
    int status = 0;
    pid_t found = waitpid(pid, &status, __WALL);
    if (who) *who = found;
    return found < 0 ? -errno : status;
}

static struct user_regs_struct registers(pid_t pid) {
    struct user_regs_struct r;
    memset(&r, 0, sizeof r);
    long result = ask(PTRACE_GETREGS, pid, 0, &r);
    if (result) printf("registers: %ld\n", result);
    return r;
}

/* A child that is traced and has stopped itself. */
static pid_t child(void (*act)(void)) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(90);
        raise(SIGSTOP);
        act();
        _exit(0);
    }
    printf("stopped: %x\n", waited(pid, 0));
    return pid;
}

static const char *call_name(long number) {
    switch (number) {
    case SYS_getppid: return "getppid";
    case SYS_write: return "write";
    case SYS_exit_group: return "exit_group";
    case SYS_execve: return "execve";
    case SYS_nanosleep: case SYS_clock_nanosleep: return "sleep";
    case SYS_rt_sigreturn: return "rt_sigreturn";
    case SYS_pause: return "pause";
    case SYS_read: return "read";
    case SYS_chdir: return "chdir";
    }
    return 0;
}

/* Goes through the calls of a child until it ends, and tells of those that are named. */
static void follow(pid_t pid, int limit) {
    for (int n = 0; n < limit; n++) {
        if (ask(PTRACE_SYSCALL, pid, 0, 0)) return;
        int status = waited(pid, 0);
        if (!WIFSTOPPED(status)) {
            printf("ended: %x\n", status);
            return;
        }
        struct user_regs_struct r = registers(pid);
        const char *name = call_name((long)r.orig_rax);
        struct __ptrace_syscall_info info;
        memset(&info, 0, sizeof info);
        long size = ask(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof info, &info);
        if (name == 0) continue;
        if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
            printf("%x enter %s rax %ld size %ld nr %d ip %d\n", status, name, (long)r.rax, size, info.entry.nr == r.orig_rax,
                   info.instruction_pointer == r.rip);
        else if (info.op == PTRACE_SYSCALL_INFO_EXIT)
            printf("%x exit %s %s size %ld same %d fails %d\n", status, name,
                   (long)r.rax < 0 ? "fails" : "is done", size, info.exit.rval == (long)r.rax, info.exit.is_error);
        else
            printf("%x other %s size %ld\n", status, name, size);
    }
}

static void calls_some(void) {
    syscall(SYS_getppid);
    syscall(SYS_chdir, "/does/not/exist");
    _exit(7);
}

static void calls(void) {
    pid_t pid = child(calls_some);
    long result = ask(PTRACE_SETOPTIONS, pid, 0, (void *)PTRACE_O_TRACESYSGOOD);
    printf("options: %ld %ld\n", result, ask(PTRACE_SETOPTIONS, pid, 0, (void *)0x40000000));
    follow(pid, 1000);
}

static void execs(void) {
    char *arguments[] = {(char *)self, "child", 0}, *none[] = {0};
    execve(self, arguments, none);
    _exit(91);
}

static void exec(void) {
    pid_t pid = child(execs);
    ask(PTRACE_CONT, pid, 0, 0);
    printf("exec: %x\n", waited(pid, 0));
    struct user_regs_struct r = registers(pid);
    printf("orig_rax %lld rax %lld\n", r.orig_rax, r.rax);
    siginfo_t info;
    memset(&info, 0, sizeof info);
    long result = ask(PTRACE_GETSIGINFO, pid, 0, &info);
    printf("siginfo %ld: %d %d\n", result, info.si_signo, info.si_code);
    ask(PTRACE_CONT, pid, 0, 0);
    printf("then: %x\n", waited(pid, 0));

    pid = child(execs);
    ask(PTRACE_SETOPTIONS, pid, 0, (void *)(PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXIT));
    ask(PTRACE_CONT, pid, 0, 0);
    printf("exec event: %x\n", waited(pid, 0));
    unsigned long message = 0;
    result = ask(PTRACE_GETEVENTMSG, pid, 0, &message);
    printf("message %ld: %d\n", result, message == (unsigned long)pid);
    ask(PTRACE_CONT, pid, 0, 0);
    printf("exit event: %x", waited(pid, 0));
    ask(PTRACE_GETEVENTMSG, pid, 0, &message);
    printf(" %lx\n", message);
    ask(PTRACE_CONT, pid, 0, 0);
    printf("then: %x\n", waited(pid, 0));
}

static volatile long word = 0x1122334455667788;
static const volatile long fixed = 42;
static void reads_word(void) { _exit(word == 5 && fixed == 43 ? 33 : 34); }

/* Memory of another process in pieces, up to where there is none. */
static void pieces(pid_t pid) {
    static char there[5000], here[6000];
    char *edge = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(edge + 4096, 4096);
    memset(edge, 'e', 4096), memset(there, 't', sizeof there);
    struct iovec own[3] = {{here, 1}, {here + 1, 0}, {here + 1, 5999}}, others[3] = {{there, 3}, {&word, 8}, {there + 4990, 10}};
    long one = process_vm_readv(getpid(), own, 3, others, 3, 0);
    printf("pieces of its own %ld %.3s %lx\n", one, here, *(long *)(here + 3));
    struct iovec beyond[2] = {{edge + 4090, 100}, {there, 5}};
    one = process_vm_readv(getpid(), own, 3, beyond, 2, 0);
    long nothing = process_vm_readv(getpid(), own, 3, (struct iovec[]){{edge + 4096, 1}}, 1, 0);
    printf("up to the edge %ld %.6s, then %ld %s\n", one, here, nothing, strerrorname_np(errno));
    one = process_vm_readv(pid, own, 3, others + 1, 1, 0), memcpy(here + 20, here, 8);
    long five = 5, also = process_vm_writev(pid, (struct iovec[]){{&five, 8}}, 1, others + 1, 1, 0);
    printf("of the child %ld %lx, written %ld\n", one, *(long *)(here + 20), also);
    nothing = process_vm_writev(pid, own, 1, (struct iovec[]){{(void *)pieces, 1}}, 1, 0);
    printf("what it may not write %ld %s\n", nothing, strerrorname_np(errno));
    nothing = process_vm_readv(1 << 21, own, 1, others, 1, 0), also = errno;
    printf("of nobody %ld %s, ", nothing, strerrorname_np(also));
    nothing = process_vm_readv(pid, own, 1, others, 1, 1), also = errno;
    printf("with flags %ld %s, without anything %ld\n", nothing, strerrorname_np(also), process_vm_readv(pid, 0, 0, others, 1, 0));
}

/* The memory of a child that has stopped, as a file; and its auxiliary vector. */
static void as_file(pid_t pid) {
    char path[100];
    static unsigned long vector[100];
    long found = 0, new = 6;
    sprintf(path, "/proc/%d/mem", pid);
    int fd = open(path, O_RDWR);
    printf("mem %d", fd >= 0);
    printf(" %zd", pread(fd, &found, 8, (long)&word));
    printf(" %lx", found);
    printf(" %zd", pwrite(fd, &new, 8, (long)&word));
    pread(fd, &found, 8, (long)&word);
    printf(" %lx %lx", found, word);
    /* What it may not write itself. */
    new = 44, found = 0;
    printf(" %zd", pwrite(fd, &new, 8, (long)&fixed));
    pread(fd, &found, 8, (long)&fixed);
    printf(" %ld %ld", found, fixed);
    printf(" %zd", pread(fd, &found, 8, 8));
    printf(" %s\n", strerror(errno));
    close(fd);
    sprintf(path, "/proc/%d/auxv", pid);
    fd = open(path, O_RDONLY);
    ssize_t got = read(fd, vector, sizeof vector);
    printf("auxv %d %d\n", got > 200 && got % 16 == 0, got >= 16 && vector[got / 8 - 2] == 0);
    close(fd);
}

static void memory(void) {
    pid_t pid = child(reads_word);
    pieces(pid);
    long found = 0;
    long result = ask(PTRACE_PEEKDATA, pid, (void *)&word, &found);
    printf("peek %ld", result);
    printf(" %lx\n", found);
    result = ask(PTRACE_POKEDATA, pid, (void *)&word, (void *)5);
    printf("poke %ld %ld\n", result, ask(PTRACE_POKETEXT, pid, (void *)&fixed, (void *)43));
    printf("own %lx %ld\n", word, fixed);
    printf("nowhere %ld %ld\n", ask(PTRACE_PEEKDATA, pid, (void *)8, &found), ask(PTRACE_POKEDATA, pid, (void *)8, 0));
    as_file(pid);
    struct user_regs_struct r = registers(pid);
    result = ask(PTRACE_PEEKUSER, pid, (void *)offsetof(struct user, regs.rip), &found);
    printf("user %ld %d %ld %ld\n", result, found == (long)r.rip, ask(PTRACE_PEEKUSER, pid, (void *)3, &found),
           ask(PTRACE_PEEKUSER, pid, (void *)100000, &found));
    struct user_regs_struct again;
    struct iovec vector = {&again, sizeof again};
    result = ask(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &vector);
    printf("set %ld %zu %d\n", result, vector.iov_len, again.rip == r.rip && again.rsp == r.rsp);
    struct user_fpregs_struct floats;
    result = ask(PTRACE_GETFPREGS, pid, 0, &floats);
    printf("floats %ld %ld %x\n", result, ask(PTRACE_SETFPREGS, pid, 0, &floats), floats.mxcsr);
    printf("bad signal %ld\n", ask(PTRACE_CONT, pid, 0, (void *)100));
    ask(PTRACE_CONT, pid, 0, 0);
    printf("then: %x\n", waited(pid, 0));
}

static volatile int caught;
static void catches(int signal) { caught += signal; }

static void signalled(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = catches;
    sigaction(SIGUSR1, &action, 0);
    sigaction(SIGUSR2, &action, 0);
    raise(SIGUSR1);
    raise(SIGUSR1);
    raise(SIGUSR1);
    _exit(caught);
}

static void signals(void) {
    pid_t pid = child(signalled);
    int gives[] = {SIGUSR1, 0, SIGUSR2};
    for (int n = 0; n < 3; n++) {
        ask(PTRACE_CONT, pid, 0, (void *)(long)(n ? gives[n - 1] : 0));
        printf("signal: %x\n", waited(pid, 0));
        siginfo_t info;
        memset(&info, 0, sizeof info);
        long result = ask(PTRACE_GETSIGINFO, pid, 0, &info);
        printf("siginfo %ld: %d %d %d\n", result, info.si_signo, info.si_code, info.si_pid == pid);
    }
    ask(PTRACE_CONT, pid, 0, (void *)(long)gives[2]);
    printf("caught %d: %x\n", SIGUSR1 + SIGUSR2, waited(pid, 0));

    pid = child(calls_some);
    ask(PTRACE_CONT, pid, 0, (void *)SIGTERM);
    printf("ended by a signal: %x\n", waited(pid, 0));
    pid = child(calls_some);
    printf("killed: %ld", ask(PTRACE_KILL, pid, 0, 0));
    printf(" %x\n", waited(pid, 0));
}

static int ends[2];
static void reads(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = catches;
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, 0);
    action.sa_flags = 0;
    sigaction(SIGUSR2, &action, 0);
    char byte;
    long got = syscall(SYS_read, ends[0], &byte, 1);
    _exit(got == 1 ? 50 : got < 0 && errno == EINTR ? 51 : 52);
}

/* A signal comes while it waits in a call. `give` is what it gets. */
static void interrupts(int signal, int give) {
    if (pipe(ends)) exit(1);
    pid_t pid = child(reads);
    ask(PTRACE_SETOPTIONS, pid, 0, (void *)PTRACE_O_TRACESYSGOOD);
    for (;;) {
        ask(PTRACE_SYSCALL, pid, 0, 0);
        waited(pid, 0);
        if (registers(pid).orig_rax == SYS_read) break;
    }
    ask(PTRACE_SYSCALL, pid, 0, 0);
    kill(pid, signal);
    int status = waited(pid, 0);
    struct user_regs_struct r = registers(pid);
    printf("interrupted: %x rax %lld orig %lld\n", status, r.rax, r.orig_rax);
    ask(PTRACE_SYSCALL, pid, 0, 0);
    status = waited(pid, 0);
    r = registers(pid);
    printf("signal: %x rax %lld orig %lld\n", status, r.rax, r.orig_rax);
    if (write(ends[1], "x", 1) != 1) exit(1);
    ask(PTRACE_CONT, pid, 0, (void *)(long)give);
    printf("then: %x\n", waited(pid, 0));
    close(ends[0]), close(ends[1]);
}

static void interrupted(void) {
    interrupts(SIGUSR1, SIGUSR1);
    interrupts(SIGUSR2, SIGUSR2);
    interrupts(SIGUSR2, 0);
}

static void skipped(void) { _exit(syscall(SYS_getppid) == 1234 && syscall(SYS_chdir, "/") == -1 ? 60 : 61); }

static void changes(void) {
    pid_t pid = child(skipped);
    for (;;) {
        ask(PTRACE_SYSCALL, pid, 0, 0);
        waited(pid, 0);
        if (registers(pid).orig_rax == SYS_getppid) break;
    }
    struct user_regs_struct r = registers(pid);
    r.orig_rax = -1;
    printf("skips %ld\n", ask(PTRACE_SETREGS, pid, 0, &r));
    ask(PTRACE_SYSCALL, pid, 0, 0);
    waited(pid, 0);
    r = registers(pid);
    printf("rax %lld\n", r.rax);
    r.rax = 1234;
    ask(PTRACE_SETREGS, pid, 0, &r);
    ask(PTRACE_SYSCALL, pid, 0, 0);
    waited(pid, 0);
    r = registers(pid);
    printf("chdir %d\n", r.orig_rax == SYS_chdir);
    r.rdi = 0;
    ask(PTRACE_SETREGS, pid, 0, &r);
    ask(PTRACE_CONT, pid, 0, 0);
    printf("then: %x\n", waited(pid, 0));
}

static void forks(void) {
    pid_t pid = fork();
    if (pid == 0) _exit(3);
    int status;
    while (waitpid(pid, &status, 0) < 0) {}
    _exit(WEXITSTATUS(status) + 1);
}

static void vforks(void) {
    pid_t pid = vfork();
    if (pid == 0) _exit(3);
    int status;
    while (waitpid(pid, &status, 0) < 0) {}
    _exit(WEXITSTATUS(status) + 2);
}

/* Follows a child and what it starts. */
static void family(void (*act)(void), long options) {
    pid_t pid = child(act), young = 0;
    ask(PTRACE_SETOPTIONS, pid, 0, (void *)(options | PTRACE_O_EXITKILL));
    ask(PTRACE_CONT, pid, 0, 0);
    int status = waited(pid, 0);
    unsigned long message = 0;
    ask(PTRACE_GETEVENTMSG, pid, 0, &message);
    young = message;
    printf("event: %x\n", status);
    pid_t who;
    status = waited(young, &who);
    printf("young: %x %d\n", status, who == young);
    ask(PTRACE_CONT, pid, 0, 0);
    ask(PTRACE_CONT, young, 0, 0);
    status = waited(young, &who);
    printf("young: %x %d\n", status, who == young);
    for (;;) {
        status = waited(pid, 0);
        if (!WIFSTOPPED(status)) break;
        if (WSTOPSIG(status) == SIGCHLD) {
            /* When it comes depends on who is faster. */
            ask(PTRACE_CONT, pid, 0, (void *)SIGCHLD);
            continue;
        }
        printf("old: %x\n", status);
        ask(PTRACE_CONT, pid, 0, 0);
    }
    printf("then: %x\n", status);
}

static void children(void) {
    family(forks, PTRACE_O_TRACEFORK);
    family(vforks, PTRACE_O_TRACEVFORK | PTRACE_O_TRACEVFORKDONE);
}

static void breaks(void) {
    __asm__ volatile("int3; nop; nop");
    __asm__ volatile("ud2");
    _exit(0);
}

static void faults(void) {
    pid_t pid = child(breaks);
    ask(PTRACE_CONT, pid, 0, 0);
    printf("breakpoint: %x", waited(pid, 0));
    struct user_regs_struct r = registers(pid);
    long text = 0;
    ask(PTRACE_PEEKTEXT, pid, (void *)(r.rip - 1), &text);
    printf(" %lx orig %lld\n", text & 0xff, r.orig_rax);
    ask(PTRACE_SINGLESTEP, pid, 0, 0);
    printf("step: %x\n", waited(pid, 0));
    ask(PTRACE_PEEKTEXT, pid, (void *)registers(pid).rip, &text);
    for (int n = 0; n < 100 && (text & 0xffff) != 0x0b0f; n++) {
        ask(PTRACE_SINGLESTEP, pid, 0, 0);
        waited(pid, 0);
        r = registers(pid);
        ask(PTRACE_PEEKTEXT, pid, (void *)r.rip, &text);
    }
    ask(PTRACE_CONT, pid, 0, 0);
    printf("illegal: %x\n", waited(pid, 0));
    r = registers(pid);
    r.rip += 2;
    ask(PTRACE_SETREGS, pid, 0, &r);
    ask(PTRACE_CONT, pid, 0, 0);
    printf("then: %x\n", waited(pid, 0));
}

static void attach(void) {
    fflush(stdout);
    if (pipe(ends)) exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        long got = read(ends[0], &byte, 1);
        _exit(got == 1 ? 70 : 71);
    }
    long first = ask(PTRACE_ATTACH, pid, 0, 0);
    printf("attach %ld again %ld self %ld nobody %ld\n", first, ask(PTRACE_ATTACH, pid, 0, 0), ask(PTRACE_ATTACH, getpid(), 0, 0), ask(PTRACE_ATTACH, 999999, 0, 0));
    printf("stopped: %x\n", waited(pid, 0));
    char name[64], line[256];
    snprintf(name, sizeof name, "/proc/%d/status", pid);
    FILE *file = fopen(name, "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "TracerPid:", 10) == 0) printf("tracer %d\n", atoi(line + 10) == getpid());
    }
    if (file) fclose(file);
    printf("detach %ld", ask(PTRACE_DETACH, pid, 0, 0));
    printf(" then %ld\n", ask(PTRACE_CONT, pid, 0, 0));
    if (write(ends[1], "x", 1) != 1) exit(1);
    printf("then: %x\n", waited(pid, 0));
}

int main(int count, char **words) {
    self = words[0];
    if (count > 1 && strcmp(words[1], "child") == 0) _exit(5);
    setvbuf(stdout, 0, _IOFBF, 1 << 16);
    printf("no child: %ld %ld\n", ask(PTRACE_CONT, 999999, 0, 0), ask(0x1234, getpid(), 0, 0));
    static const struct { const char *name; void (*act)(void); } all[] = {
        {"calls", calls}, {"exec", exec}, {"memory", memory}, {"signals", signals}, {"interrupted", interrupted},
        {"changes", changes}, {"children", children}, {"faults", faults}, {"attach", attach},
    };
    for (unsigned n = 0; n < sizeof all / sizeof *all; n++) {
        if (count > 1 && strcmp(words[1], "all") && strcmp(words[1], all[n].name)) continue;
        printf("-- %s\n", all[n].name);
        all[n].act();
    }
    return 0;
}
