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
    ($($name:ident = $number:literal)*) => {
        $(#[doc = concat!("Number ", $number, ".")] pub const $name: Errno = Errno($number);)*
    };
}

errors! {
    EPERM = 1
    ENOENT = 2
    ESRCH = 3
    EINTR = 4
    EIO = 5
    E2BIG = 7
    ENOEXEC = 8
    EBADF = 9
    ECHILD = 10
    EAGAIN = 11
    ENOMEM = 12
    EACCES = 13
    EFAULT = 14
    EEXIST = 17
    EXDEV = 18
    ENODEV = 19
    ENOTDIR = 20
    EISDIR = 21
    EINVAL = 22
    EMFILE = 24
    ENOTTY = 25
    EFBIG = 27
    ENOSPC = 28
    ESPIPE = 29
    ERANGE = 34
    ENAMETOOLONG = 36
    ENOSYS = 38
    ELOOP = 40
    ENOTSOCK = 88
    EILSEQ = 84
    ENOTSUP = 95
    ETIMEDOUT = 110
}
