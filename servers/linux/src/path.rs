//! Joins and normalizes paths as text.

use alloc::string::String;
use alloc::vec::Vec;

/// The absolute path: `path` itself if it is absolute, else `path` below `base`. Resolves nothing: that is the file
/// system's work.
#[must_use]
pub fn join(base: &str, path: &str) -> String {
    if path.starts_with('/') {
        return String::from(path);
    }
    let mut joined = String::with_capacity(base.len() + 1 + path.len());
    joined.push_str(base);
    if !base.ends_with('/') {
        joined.push('/');
    }
    joined.push_str(path);
    joined
}

/// The absolute path without empty, `.` and `..` components, without regard to symbolic links. Only for recognising the
/// names of [`crate::special`].
#[must_use]
pub fn lexical(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    let mut out = String::new();
    for part in parts {
        out.push('/');
        out.push_str(part);
    }
    if out.is_empty() {
        out.push('/');
    }
    out
}

/// Whether this is an absolute path that a file system could have handed out.
#[must_use]
pub fn is_sound(path: &str) -> bool {
    path.starts_with('/') && path.len() <= 4096 && !path.contains('\0')
}
