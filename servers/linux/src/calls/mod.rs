//! The Linux calls, by subject: [`mod@file`] (file descriptors), [`name`] (paths), [`memory`], [`time`], [`signal`],
//! [`socket`], [`poll`], [`pipe`], [`counter`], [`epoll`], [`mod@inotify`], [`futex`], [`process`] (starting processes
//! and waiting for them) and [`system`] (the process itself, and the rest).
//!
//! [`dispatch`] is the table. Each function makes all its checks before its first change; a call that cannot be
//! completed yet returns [`Stop::Park`].

pub mod counter;
pub mod epoll;
pub mod file;
pub mod futex;
pub mod inotify;
pub mod interface;
pub mod ipc;
pub mod limit;
pub mod lock;
pub mod memfd;
pub mod memory;
pub mod name;
pub mod peer;
pub mod pipe;
pub mod poll;
pub mod process;
pub mod pty;
pub mod signal;
pub mod socket;
pub mod stat;
pub mod system;
pub mod time;
pub mod timer;
pub mod trace;

use abi::Registers;
use alloc::format;

use crate::emulate::{Caller, Result, Stop, Wake, AT_FDCWD};
use crate::errno::{EINVAL, ENOSYS, ENOTSUP, EPERM};
use crate::memory::{Area, Areas};
use crate::number as nr;
use crate::process::Wait;

/// Whether a call that a signal has interrupted can be restarted (`SA_RESTART`). `kept`: what is kept of the call. A
/// call with a deadline, as of `SO_RCVTIMEO`, cannot: it would wait for its whole time again.
#[must_use]
pub fn can_restart(entry: &Registers, kept: Option<&Wait>) -> bool {
    if entry.rax == nr::futex {
        return futex::can_restart(entry.rsi, entry.r10);
    }
    if kept.is_some_and(|wait| wait.deadline.is_some()) {
        return false;
    }
    !matches!(
        entry.rax,
        nr::nanosleep
            | nr::clock_nanosleep
            | nr::pause
            | nr::rt_sigsuspend
            | nr::rt_sigtimedwait
            | nr::poll
            | nr::ppoll
            | nr::select
            | nr::pselect6
            | nr::epoll_wait
            | nr::epoll_pwait
            | nr::epoll_pwait2
            | nr::semop
            | nr::semtimedop
            | nr::msgsnd
            | nr::msgrcv
    )
}

/// Whether a call that a signal has interrupted is restarted without `SA_RESTART`, too.
#[must_use]
pub fn always_restarts(entry: &Registers) -> bool {
    entry.rax == nr::futex && futex::always_restarts(entry.rsi)
}

/// A signal has interrupted a call, which fails with `EINTR`.
pub fn interrupted(c: &mut Caller) {
    if matches!(c.entry.rax, nr::select | nr::pselect6) {
        poll::tell_time_left(c);
    }
}

/// Whether the call can be done in several turns ([`Stop::Turn`]).
#[must_use]
pub fn goes_on(entry: &Registers) -> bool {
    matches!(
        entry.rax,
        nr::read
            | nr::write
            | nr::pread64
            | nr::pwrite64
            | nr::readv
            | nr::writev
            | nr::preadv
            | nr::pwritev
            | nr::preadv2
            | nr::pwritev2
            | nr::sendfile
            | nr::getrandom
            | nr::process_vm_readv
            | nr::process_vm_writev
            | nr::madvise
            | nr::getdents64
    )
}

/// Whether all turns of such a call are done before a signal is delivered, since Linux does not interrupt it.
#[must_use]
pub fn is_firm(entry: &Registers) -> bool {
    matches!(entry.rax, nr::madvise | nr::mremap | nr::getdents64)
}

/// Bytes of the largest table of file descriptors and of the one that it replaces.
const TABLE: u64 = 24 << 10;

/// How many bytes of the server's memory a call may need, for state that stays and while it is carried out; 0 for calls
/// that allocate nothing. (`execve` asks again, for its arguments.)
fn room(areas: &Areas, number: u64) -> u64 {
    let areas = areas.list().len() as u64;
    match number {
        // The list is copied and changed, then compared.
        nr::mmap | nr::munmap | nr::mprotect | nr::mremap | nr::brk => {
            (16 << 10) + 6 * areas * size_of::<Area>() as u64
        }
        nr::open | nr::openat | nr::creat | nr::mknod | nr::mknodat => TABLE + (16 << 10),
        nr::dup | nr::dup2 | nr::dup3 | nr::fcntl | nr::ptrace => TABLE + (4 << 10),
        nr::memfd_create => TABLE + (16 << 10),
        nr::getdents64 => (proto::MAX_BULK + 3 * file::MAX_LISTED) as u64,
        nr::execve | nr::execveat => 256 << 10,
        nr::fork | nr::vfork | nr::clone | nr::clone3 => {
            (192 << 10) + 3 * areas * size_of::<Area>() as u64
        }
        nr::pipe | nr::pipe2 => TABLE + (8 << 10),
        nr::eventfd
        | nr::eventfd2
        | nr::timerfd_create
        | nr::timer_create
        | nr::signalfd
        | nr::signalfd4
        | nr::epoll_create
        | nr::epoll_create1
        | nr::epoll_ctl
        | nr::inotify_init
        | nr::inotify_init1
        | nr::inotify_add_watch => TABLE + (4 << 10),
        // The signal action or socket option is stored, and the first one allocates the table.
        nr::rt_sigaction | nr::setsockopt => 4 << 10,
        nr::shmget | nr::semget | nr::msgget => 8 << 10,
        nr::semop | nr::semtimedop => 8 << 10,
        nr::msgsnd | nr::msgrcv => 32 << 10,
        nr::shmat | nr::shmdt => (16 << 10) + 7 * areas * size_of::<Area>() as u64,
        nr::shmctl | nr::semctl | nr::msgctl => 32 << 10,
        nr::socket | nr::socketpair | nr::bind | nr::connect | nr::accept | nr::accept4 => {
            TABLE + (16 << 10)
        }
        nr::sendmsg | nr::recvmsg | nr::sendmmsg | nr::recvmmsg => 96 << 10,
        nr::epoll_wait | nr::epoll_pwait | nr::epoll_pwait2 => 256 << 10,
        _ => 0,
    }
}

/// Carries out the call that the registers `c.entry` describe.
pub fn dispatch(c: &mut Caller) -> Result {
    let r = c.entry;
    let room = room(&c.p.memory.areas, r.rax);
    if room != 0 {
        c.h.room(room)?;
    }
    let [a, b, d, e, f, g] = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
    // Descriptors, modes and flags are 32 bits wide; the upper halves of their registers are ignored.
    let cwd = crate::emulate::AT_FDCWD;
    match r.rax {
        // Descriptors.
        nr::pipe => pipe::pipe2(c, a, 0),
        nr::pipe2 => pipe::pipe2(c, a, b as u32),
        nr::eventfd => counter::eventfd(c, a as u32, 0),
        nr::eventfd2 => counter::eventfd(c, a as u32, b as u32),
        nr::timerfd_create => counter::timerfd_create(c, a as u32, b as u32),
        nr::timerfd_settime => counter::timerfd_settime(c, a as u32, b as u32, d, e),
        nr::timerfd_gettime => counter::timerfd_gettime(c, a as u32, b),
        nr::signalfd => epoll::signalfd(c, a as i32, b, d, 0),
        nr::signalfd4 => epoll::signalfd(c, a as i32, b, d, e as u32),
        nr::epoll_create if a as i32 <= 0 => Err(EINVAL.into()),
        nr::epoll_create => epoll::create(c, 0),
        nr::epoll_create1 => epoll::create(c, a as u32),
        nr::epoll_ctl => epoll::control(c, a as u32, b as u32, d as u32, e),
        nr::epoll_wait => {
            let timeout = epoll::milliseconds(e as i32);
            epoll::wait(c, a as u32, b, d as i32, timeout)
        }
        nr::epoll_pwait => epoll::pwait(c, [a, b, d, e, f, g]),
        nr::epoll_pwait2 => epoll::pwait2(c, [a, b, d, e, f, g]),
        nr::inotify_init => inotify::init(c, 0),
        nr::inotify_init1 => inotify::init(c, a as u32),
        nr::inotify_add_watch => inotify::add_watch(c, a as u32, b, d as u32),
        nr::inotify_rm_watch => inotify::remove_watch(c, a as u32, b as i32),
        nr::socket => socket::socket(c, a as u32, b as u32, d as u32),
        nr::socketpair => socket::socketpair(c, a as u32, b as u32, d as u32, e),
        nr::bind => socket::bind(c, a as u32, b, d as u32),
        nr::listen => socket::listen(c, a as u32, b as i32),
        nr::accept => socket::accept(c, a as u32, b, d, 0),
        nr::accept4 => socket::accept(c, a as u32, b, d, e as u32),
        nr::connect => socket::connect(c, a as u32, b, d as u32),
        nr::shutdown => socket::shutdown(c, a as u32, b as u32),
        nr::getsockname => socket::name_of(c, a as u32, b, d, false),
        nr::getpeername => socket::name_of(c, a as u32, b, d, true),
        nr::sendto => socket::sendto(c, [a, b, d, e, f, g]),
        nr::recvfrom => socket::recvfrom(c, [a, b, d, e, f, g]),
        nr::sendmsg => socket::sendmsg(c, a as u32, b, d as u32),
        nr::recvmsg => socket::recvmsg(c, a as u32, b, d as u32),
        nr::sendmmsg => socket::sendmmsg(c, a as u32, b, d as u32, e as u32),
        nr::recvmmsg => socket::recvmmsg(c, a as u32, b, d as u32, e as u32, f != 0),
        nr::setsockopt => socket::setsockopt(c, a as u32, b as u32, d as u32, e, f as u32),
        nr::getsockopt => socket::getsockopt(c, a as u32, b as u32, d as u32, (e, f)),
        nr::read => file::read(c, a as u32, b, d, None),
        nr::write => file::write(c, a as u32, b, d, None),
        nr::pread64 => file::read(c, a as u32, b, d, Some(e)),
        nr::pwrite64 => file::write(c, a as u32, b, d, Some(e)),
        nr::readv => file::readv(c, a as u32, b, d, None),
        nr::writev => file::writev(c, a as u32, b, d, None),
        nr::preadv => file::readv(c, a as u32, b, d, Some(e)),
        nr::pwritev => file::writev(c, a as u32, b, d, Some(e)),
        nr::preadv2 => {
            let at = file::place_of(e, g as u32)?;
            file::readv(c, a as u32, b, d, at)
        }
        nr::pwritev2 => {
            let at = file::place_of(e, g as u32)?;
            file::writev(c, a as u32, b, d, at)
        }
        nr::close => file::close(c, a as u32),
        nr::close_range => file::close_range(c, a as u32, b as u32, d as u32),
        nr::lseek => file::lseek(c, a as u32, b as i64, d as u32),
        nr::dup => file::dup(c, a as u32, 0, false),
        nr::dup2 => file::dup_to(c, a as u32, b as u32, None),
        nr::dup3 => file::dup_to(c, a as u32, b as u32, Some(d as u32)),
        nr::fcntl => file::fcntl(c, a as u32, b as u32, d),
        nr::ioctl => file::ioctl(c, a as u32, b as u32, d),
        nr::sendfile => file::sendfile(c, a as u32, b as u32, d, e),
        nr::ftruncate => file::ftruncate(c, a as u32, b),
        nr::fallocate => file::fallocate(c, a as u32, b as u32, d, e),
        nr::fsync | nr::fdatasync => file::fsync(c, a as u32),
        nr::fadvise64 | nr::readahead => file::fadvise(c, a as u32),
        // The call gives no guarantee after a crash, so nothing needs to be done.
        nr::sync_file_range if e as u32 > 7 => Err(EINVAL.into()),
        nr::sync_file_range => file::fadvise(c, a as u32),
        nr::sync => file::sync(c),
        nr::syncfs => file::syncfs(c, a as u32),
        nr::flock => lock::flock(c, a as u32, b as u32),
        nr::getdents64 => file::getdents64(c, a as u32, b, d as u32),
        nr::fchmod => stat::fchmod(c, a as u32, b as u32),
        nr::fchown => stat::fchown(c, a as u32, b as u32, d as u32),

        // Paths.
        nr::open => name::open(c, cwd, a, b as u32, d as u32),
        nr::openat => name::open(c, a as i32, b, d as u32, e as u32),
        nr::creat => name::open(c, cwd, a, 0o1101, b as u32),
        nr::unlink => name::unlink(c, cwd, a, 0),
        nr::unlinkat => name::unlink(c, a as i32, b, d as u32),
        nr::rmdir => name::unlink(c, cwd, a, name::AT_REMOVEDIR),
        nr::mkdir => name::mkdir(c, cwd, a, b as u32),
        nr::mkdirat => name::mkdir(c, a as i32, b, d as u32),
        nr::rename => name::rename(c, (cwd, a), (cwd, b), 0),
        nr::renameat => name::rename(c, (a as i32, b), (d as i32, e), 0),
        nr::renameat2 => name::rename(c, (a as i32, b), (d as i32, e), f as u32),
        nr::link => name::link(c, (cwd, a), (cwd, b), 0),
        nr::linkat => name::link(c, (a as i32, b), (d as i32, e), f as u32),
        nr::symlink => name::symlink(c, a, cwd, b),
        nr::symlinkat => name::symlink(c, a, b as i32, d),
        nr::readlink => name::readlink(c, cwd, a, b, d),
        nr::readlinkat => name::readlink(c, a as i32, b, d, e),
        nr::chdir => name::chdir(c, a),
        nr::fchdir => name::fchdir(c, a as u32),
        nr::getcwd => name::getcwd(c, a, b),
        nr::truncate => name::truncate(c, a, b),
        nr::access => name::access(c, cwd, a, b as u32, 0),
        nr::faccessat => name::access(c, a as i32, b, d as u32, 0),
        nr::faccessat2 => name::access(c, a as i32, b, d as u32, e as u32),
        nr::mknod => name::mknod(c, cwd, a, b as u32),
        nr::mknodat => name::mknod(c, a as i32, b, d as u32),
        nr::stat => stat::stat(c, cwd, a, b, 0),
        nr::lstat => stat::stat(c, cwd, a, b, stat::AT_SYMLINK_NOFOLLOW),
        nr::fstat => stat::fstat(c, a as u32, b),
        nr::newfstatat => stat::stat(c, a as i32, b, d, e as u32),
        nr::statx => stat::statx(c, a as i32, b, d as u32, f),
        nr::statfs => stat::statfs(c, a, b),
        nr::fstatfs => stat::fstatfs(c, a as u32, b),
        nr::chmod => stat::chmod(c, cwd, a, b as u32, 0),
        nr::fchmodat => stat::chmod(c, a as i32, b, d as u32, 0),
        nr::chown => stat::chown(c, cwd, a, (b as u32, d as u32), 0),
        nr::lchown => stat::chown(c, cwd, a, (b as u32, d as u32), stat::AT_SYMLINK_NOFOLLOW),
        nr::fchownat => stat::chown(c, a as i32, b, (d as u32, e as u32), f as u32),
        nr::utimensat => stat::utimensat(c, a as i32, b, d, e as u32),
        nr::utimes => stat::utimes(c, cwd, a, b),
        nr::futimesat => stat::utimes(c, a as i32, b, d),
        nr::utime => stat::utime(c, a, b),

        // Memory.
        nr::brk => memory::brk(c, a),
        nr::mmap => memory::mmap(c, a, b, d as u32, e as u32, f as i32, g),
        nr::munmap => memory::munmap(c, a, b),
        nr::mprotect => memory::mprotect(c, a, b, d as u32),
        nr::mremap => memory::mremap(c, a, b, d, e as u32, f),
        nr::madvise => memory::madvise(c, a, b, d as u32),
        nr::msync => memory::msync(c, a, b, d as u32),
        nr::memfd_create => memfd::memfd_create(c, a, b as u32),
        nr::mincore => memory::mincore(c, a, b, d),
        nr::mlock | nr::munlock | nr::mlockall | nr::munlockall | nr::membarrier => Ok(0),

        // System V IPC.
        nr::shmget => ipc::shmget(c, a as i32, b, d as u32),
        nr::shmat => ipc::shmat(c, a as i32, b, d as u32),
        nr::shmdt => ipc::shmdt(c, a),
        nr::shmctl => ipc::shmctl(c, a as i32, b as u32, d),
        nr::semget => ipc::semget(c, a as i32, b as i32, d as u32),
        nr::semop => ipc::semop(c, a as i32, b, d, None),
        nr::semtimedop => ipc::semop(c, a as i32, b, d, Some(e)),
        nr::semctl => ipc::semctl(c, a as i32, b as i32, d as u32, e),
        nr::msgget => ipc::msgget(c, a as i32, b as u32),
        nr::msgsnd => ipc::msgsnd(c, a as i32, b, d, e as u32),
        nr::msgrcv => ipc::msgrcv(c, a as i32, b, d, e as i64, f as u32),
        nr::msgctl => ipc::msgctl(c, a as i32, b as u32, d),

        // Time.
        nr::clock_gettime => time::clock_gettime(c, a as u32, b),
        nr::clock_getres => time::clock_getres(c, a as u32, b),
        nr::gettimeofday => time::gettimeofday(c, a, b),
        nr::time => time::time(c, a),
        nr::nanosleep => time::nanosleep(c, a, b),
        nr::clock_nanosleep => time::clock_nanosleep(c, a as u32, b as u32, d, e),
        nr::times => time::times(c, a),
        nr::getrusage => time::getrusage(c, a as i32, b),
        nr::alarm => time::alarm(c, a as u32),
        nr::setitimer => time::setitimer(c, a as u32, b, d),
        nr::getitimer => time::getitimer(c, a as u32, b),
        nr::timer_create => timer::timer_create(c, a as u32, b, d),
        nr::timer_settime => timer::timer_settime(c, a as u32, b as u32, d, e),
        nr::timer_gettime => timer::timer_gettime(c, a as u32, b),
        nr::timer_getoverrun => timer::timer_getoverrun(c, a as u32),
        nr::timer_delete => timer::timer_delete(c, a as u32),
        nr::settimeofday | nr::clock_settime => Err(EPERM.into()),
        nr::adjtimex => time::adjtimex(c, a),
        nr::clock_adjtime if a as u32 != 0 => Err(ENOTSUP.into()),
        nr::clock_adjtime => time::adjtimex(c, b),
        nr::poll => poll::poll(c, a, b, d as i32),
        nr::ppoll => poll::ppoll(c, a, b, d, e),
        nr::select => poll::select(c, a as i32, [b, d, e], f, false),
        nr::pselect6 => poll::select(c, a as i32, [b, d, e], f, true),

        // Signals.
        nr::rt_sigaction => signal::rt_sigaction(c, a as u32, b, d, e),
        nr::rt_sigprocmask => signal::rt_sigprocmask(c, a as u32, b, d, e),
        nr::rt_sigpending => signal::rt_sigpending(c, a, b),
        nr::rt_sigreturn => signal::rt_sigreturn(c),
        nr::rt_sigsuspend => signal::rt_sigsuspend(c, a, b),
        nr::rt_sigtimedwait => signal::rt_sigtimedwait(c, a, b, d, e),
        nr::pause => Err(Stop::Park(Wake::default())),
        nr::sigaltstack => signal::sigaltstack(c, a, b),
        nr::kill => signal::kill(c, a as i32, b as u32),
        nr::tkill => signal::tkill(c, None, a as i32, b as u32),
        nr::process_vm_readv => peer::transfer(c, a as i32, (b, d), (e, f), g, false),
        nr::process_vm_writev => peer::transfer(c, a as i32, (b, d), (e, f), g, true),
        nr::tgkill => signal::tkill(c, Some(a as i32), b as i32, d as u32),
        nr::rt_sigqueueinfo => signal::rt_sigqueueinfo(c, a as i32, b as u32, d),
        nr::rt_tgsigqueueinfo => signal::rt_tgsigqueueinfo(c, (a as i32, b as i32), d as u32, e),

        // The process and the rest.
        nr::exit => {
            memory::settle_all(c)?;
            file::settle_all(c)?;
            Err(Stop::Leave(services::process::Status::Exited(a as u8)))
        }
        nr::exit_group => {
            memory::settle_all(c)?;
            file::settle_all(c)?;
            Err(Stop::End(services::process::Status::Exited(a as u8)))
        }
        nr::ptrace => trace::ptrace(c, a, b as i32, d, e),
        nr::execve => system::execveat(c, (AT_FDCWD, a), b, d, 0),
        nr::execveat => system::execveat(c, (a as i32, b), d, e, f as u32),
        nr::wait4 => process::wait4(c, a as i32, b, d as u32, e),
        nr::waitid => process::waitid(c, a as u32, b as u32, d, e as u32, f),
        nr::fork => process::fork(c),
        nr::vfork => process::vfork(c),
        nr::clone => process::clone(c, a, b, d, e, f),
        nr::clone3 => process::clone3(c, a, b),
        nr::arch_prctl => system::arch_prctl(c, a, b),
        nr::prctl => system::prctl(c, a as u32, b, [d, e, f]),
        nr::set_tid_address => {
            c.p.task.clear_at = a;
            Ok(u64::from(c.p.task.thread))
        }
        nr::set_robust_list => futex::set_robust_list(c, a, b),
        nr::get_robust_list => futex::get_robust_list(c, a as u32, b, d),
        nr::futex => futex::futex(c, [a, b, d, e, f, g]),
        nr::getpid => Ok(u64::from(c.p.task.number)),
        nr::gettid => Ok(u64::from(c.p.task.thread)),
        nr::getppid => Ok(u64::from(c.s.parent_number(c.p.task.pid))),
        nr::getpgrp => Ok(u64::from(c.process().group)),
        nr::getpgid => process::getpgid(c, a as u32),
        nr::getsid => process::getsid(c, a as u32),
        nr::setpgid => process::setpgid(c, a as u32, b as u32),
        nr::setsid => Ok(u64::from(c.s.new_session(c.p.task.pid)?)),
        nr::getuid => Ok(u64::from(c.process().ids.uid[0])),
        nr::geteuid => Ok(u64::from(c.process().ids.uid[1])),
        nr::getgid => Ok(u64::from(c.process().ids.gid[0])),
        nr::getegid => Ok(u64::from(c.process().ids.gid[1])),
        nr::setuid => system::setuid(c, a as u32),
        nr::setgid => system::setgid(c, a as u32),
        nr::setreuid => system::set_ids(c, true, [a as u32, b as u32, b as u32]),
        nr::setregid => system::set_ids(c, false, [a as u32, b as u32, b as u32]),
        nr::setresuid => system::set_ids(c, true, [a as u32, b as u32, d as u32]),
        nr::setresgid => system::set_ids(c, false, [a as u32, b as u32, d as u32]),
        nr::getresuid => system::get_ids(c, true, [a, b, d]),
        nr::getresgid => system::get_ids(c, false, [a, b, d]),
        nr::setfsuid => Ok(u64::from(c.process().ids.uid[1])),
        nr::setfsgid => Ok(u64::from(c.process().ids.gid[1])),
        nr::getgroups => system::getgroups(c, a as i32, b),
        nr::setgroups => Ok(0),
        nr::umask => {
            let old = c.p.context.umask;
            c.p.context.umask = a as u32 & 0o777;
            Ok(u64::from(old))
        }
        nr::uname => system::uname(c, a),
        nr::sysinfo => system::sysinfo(c, a),
        nr::getrandom => file::getrandom(c, a, b),
        nr::prlimit64 => limit::prlimit64(c, a as u32, b as u32, d, e),
        nr::getrlimit => limit::prlimit64(c, 0, a as u32, 0, b),
        nr::setrlimit => limit::prlimit64(c, 0, a as u32, b, 0),
        nr::sched_yield => Ok(0),
        nr::sched_getaffinity => system::sched_getaffinity(c, b, d),
        nr::sched_setaffinity => system::sched_setaffinity(c, b, d),
        nr::sched_getscheduler => Ok(0),
        nr::sched_get_priority_max => system::priority_range(a as u32).map(|range| range.1),
        nr::sched_get_priority_min => system::priority_range(a as u32).map(|range| range.0),
        nr::sched_getparam => c.write(b, &[0; 4]).map(|()| 0),
        nr::sched_setscheduler => system::set_scheduler(c, b as u32, d),
        nr::sched_setparam => system::set_scheduler(c, 0, b),
        nr::sched_rr_get_interval => system::slice(c, b),
        nr::capget => system::capget(c, a, b),
        nr::capset => system::capset(c, a, b),
        nr::getpriority => system::getpriority(c, a as u32, b as u32),
        nr::setpriority => system::setpriority(c, a as u32, b as u32, d as i32),
        nr::ioprio_get | nr::ioprio_set => Ok(0),
        nr::getcpu => system::getcpu(c, a, b),
        nr::sethostname
        | nr::setdomainname
        | nr::reboot
        | nr::mount
        | nr::umount2
        | nr::pivot_root
        | nr::chroot
        | nr::swapon
        | nr::swapoff => Err(EPERM.into()),

        // Libraries fall back when these are missing, so there is no message.
        nr::rseq | nr::copy_file_range | nr::io_uring_setup | nr::openat2 => Err(ENOSYS.into()),
        // The error of descriptors that cannot be spliced: Go falls back to copying only for this one.
        nr::splice | nr::tee => Err(EINVAL.into()),
        nr::getxattr
        | nr::lgetxattr
        | nr::fgetxattr
        | nr::listxattr
        | nr::llistxattr
        | nr::flistxattr
        | nr::setxattr
        | nr::lsetxattr
        | nr::fsetxattr
        | nr::removexattr
        | nr::lremovexattr
        | nr::fremovexattr => Err(ENOTSUP.into()),
        nr::personality => system::personality(c, a as u32),
        other => {
            let name = nr::name(other).unwrap_or("unknown");
            c.note(
                other,
                &format!("the Linux call {other} ({name}) is not there"),
            );
            Err(ENOSYS.into())
        }
    }
}
