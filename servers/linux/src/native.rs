//! `execve` of a native program: the caller's process becomes the program's stand-in.
//!
//! The manager of native programs starts the program, for the job and with the authority that the caller's tree was
//! given. The caller's process stands for it: it has no memory and no code any more, waits, passes on that it is
//! stopped, continued or ended, and ends with the program's status.
//!
//! The standard streams of a native program are the console, nothing, or files. If the caller has something else,
//! usually a pipe, a shell in between ([`CARRIER`]) copies the data to and from files.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use proto::Error;
use services::process::{Start, Stdio, MAX_STRINGS};

use crate::emulate::{Caller, Result, Stop};
use crate::errno::{E2BIG, ENOEXEC};
use crate::exec;
use crate::files::{Reply, Request};
use crate::process::{Device, Kind};

/// The shell that copies between a native program's files and other streams.
const CARRIER: &str = "/bin/sh";

/// A native program that replaces a Linux program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Native {
    /// The path of its file.
    pub path: String,
    /// Arguments, environment, streams and directory.
    pub start: Start,
}

/// How a native program gets a standard stream of the caller.
enum Stream {
    /// As it is.
    Same(Stdio),
    /// As a file from which or to which a shell copies.
    Carried,
}

/// `execve` of a native program.
pub fn execve(c: &mut Caller, native: exec::IsNative) -> Result {
    let exec::IsNative { path, args, env } = native;
    let mut stdio = Vec::new();
    let mut carried = [false; 3];
    for fd in 0..3 {
        match stream(c, fd)? {
            Stream::Same(same) => stdio.push(same),
            Stream::Carried => carried[fd as usize] = true,
        }
    }
    if carried.contains(&true) {
        let args = carrier(&path, carried, args);
        return match exec::prepare(&c.p, c.s, c.h, CARRIER, args, env) {
            Ok(prepared) => Err(Stop::Execute(Box::new(prepared))),
            Err(failure) => Err(failure.errno.into()),
        };
    }
    // Native programs take arguments as UTF-8 text only.
    let texts = |list: Vec<Vec<u8>>| -> Result<Vec<String>> {
        if list.len() > MAX_STRINGS {
            return Err(E2BIG.into());
        }
        let text = |bytes| String::from_utf8(bytes).map_err(|_| Stop::Errno(ENOEXEC));
        list.into_iter().map(text).collect()
    };
    let start = Start {
        args: texts(args)?,
        env: texts(env)?,
        stdio,
        cwd: c.p.context.cwd.clone(),
    };
    Err(Stop::Native(Box::new(Native { path, start })))
}

/// How the native program gets a descriptor of the caller.
fn stream(c: &mut Caller, fd: u32) -> Result<Stream> {
    let (kind, offset) = match c.p.files.get(fd) {
        Ok(description) => (description.kind.clone(), description.offset),
        Err(_) => return Ok(Stream::Same(Stdio::Null)),
    };
    let output = fd > 0;
    Ok(match kind {
        Kind::Device(Device::Null) => Stream::Same(Stdio::Null),
        // Console input belongs to the foreground job, which is the caller's, so the program gets none of it.
        Kind::Device(Device::Console) if !output => Stream::Same(Stdio::Null),
        Kind::Device(Device::Console) => Stream::Same(Stdio::Console),
        Kind::File { ino } if output || offset == 0 => {
            match c.h.fs(&Request::PathOf { ino }, &[], &mut []) {
                Ok((Reply::Path(path), _)) => Stream::Same(Stdio::File {
                    path,
                    // Output goes behind what is already in the file.
                    append: output,
                }),
                // The file has no name any more by which the program could open it.
                Ok(_) | Err(Error::NotFound) => Stream::Carried,
                Err(error) => return Err(error.into()),
            }
        }
        _ => Stream::Carried,
    })
}

/// The arguments of a shell that runs the program and copies these of its streams through files.
fn carrier(path: &str, carried: [bool; 3], args: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    // `mktemp` replaces the last six characters of the name. A shell that a signal ends does not run its `EXIT` trap,
    // so Ctrl-C, which the program gets too, is trapped. Other signals are not trapped, since the shell would act on
    // them only after the program's end.
    let mut script = "d=$(mktemp -d /run/native.XXXXXX) || exit 126; trap 'rm -rf $d' EXIT; \
         trap 'exit 130' INT; "
        .to_string();
    if carried[0] {
        script.push_str("cat > $d/0; ");
    }
    script.push_str("\"$0\" \"$@\"");
    for (stream, operator) in ["<", ">", "2>"].iter().enumerate() {
        if carried[stream] {
            let _ = write!(script, " {operator} $d/{stream}");
        }
    }
    script.push_str("; s=$?");
    for (stream, target) in [(1, ""), (2, " >&2")] {
        if carried[stream] {
            let _ = write!(script, "; cat $d/{stream}{target}");
        }
    }
    script.push_str("; exit $s");
    let shell = [CARRIER, "-c", &script, path];
    let shell = shell.iter().map(|word| word.as_bytes().to_vec());
    shell.chain(args.into_iter().skip(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::carrier;
    use alloc::string::String;
    use alloc::vec::Vec;

    #[test]
    fn a_shell_carries_what_is_no_file() {
        let args = [b"x".to_vec(), b"a b".to_vec()].to_vec();
        let words: Vec<String> = carrier("/bin/x", [true, true, false], args)
            .into_iter()
            .map(|word| String::from_utf8(word).unwrap())
            .collect();
        assert_eq!(words[..2], ["/bin/sh", "-c"]);
        assert!(
            words[2].contains("cat > $d/0; \"$0\" \"$@\" < $d/0 > $d/1; s=$?; cat $d/1; exit $s"),
            "{}",
            words[2]
        );
        // A task that waits for the shell is not kept waiting when a signal is sent to the shell alone.
        let trapped =
            ["INT", "HUP", "TERM"].map(|signal| words[2].contains(&[" ", signal, "; "].concat()));
        assert_eq!(trapped, [true, false, false], "{}", words[2]);
        assert_eq!(words[3..], ["/bin/x", "a b"]);
    }
}
