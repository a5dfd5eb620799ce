//! Linux error numbers.

/// A Linux error, as the positive number that Linux gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// What the failed call leaves in `rax`.
    #[must_use]
    pub const fn rax(self) -> u64 {
        (-(self.0 as i64)) as u64
    }
}

impl From<proto::Error> for Errno {
    fn from(error: proto::Error) -> Self {
        Errno(error.errno())
    }
}

macro_rules! errors {
    ($($name:ident)*) => {
        $(#[doc = concat!("The error `", stringify!($name), "`.")]
        pub const $name: Errno = Errno(linux_raw_sys::errno::$name as i32);)*
    };
}

errors! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
    EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL EMFILE ENOTTY EFBIG ENOSPC ESPIPE ERANGE
    ENAMETOOLONG ENOSYS ELOOP ENOTSOCK EILSEQ ETIMEDOUT ENFILE EPIPE ETXTBSY EDEADLK
    EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EALREADY ECONNREFUSED ECONNRESET EDESTADDRREQ EINPROGRESS
    EISCONN EMSGSIZE ENETUNREACH ENOPROTOOPT ENOTCONN EPROTONOSUPPORT EPROTOTYPE ESOCKTNOSUPPORT
    ETOOMANYREFS ENETDOWN ENOBUFS EOVERFLOW EBUSY ENOLCK EIDRM ENOMSG
}

/// What POSIX calls `EOPNOTSUPP` for everything but sockets; Linux has one number for both.
pub const ENOTSUP: Errno = Errno(linux_raw_sys::errno::EOPNOTSUPP as i32);
