//! `execve` of a native program: who calls it becomes the stand-in of that program.
//!
//! The manager of native programs starts it, for the job and with the power that the caller's tree was given, and the
//! caller's process stands for it: it has no memory and no code any more, waits, passes on that it is stopped,
//! continued or ended, and ends as the program ends.
//!
//! A native program's standard streams are the console, nothing, or files. Where the caller has something else, a pipe above all, a shell
//! stands in between ([`CARRIER`]), which carries what comes and goes by files.

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

/// Who carries between a native program and what is not a file.
const CARRIER: &str = "/bin/sh";

/// A native program that is to take the place of a Linux program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Native {
    /// The path of its file.
    pub path: String,
    /// How it starts.
    pub start: Start,
}

/// What a stream of the caller is to the program.
enum Stream {
    /// The same.
    Same(Stdio),
    /// Something that has to be carried.
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
    // What is no text, it could not read.
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

/// What a descriptor of the caller is to the program.
fn stream(c: &mut Caller, fd: u32) -> Result<Stream> {
    let (kind, offset) = match c.p.files.get(fd) {
        Ok(description) => (description.kind.clone(), description.offset),
        Err(_) => return Ok(Stream::Same(Stdio::Null)),
    };
    let output = fd > 0;
    Ok(match kind {
        Kind::Device(Device::Null) => Stream::Same(Stdio::Null),
        // What is typed is for the job in the foreground, which is the caller's.
        Kind::Device(Device::Console) if !output => Stream::Same(Stdio::Null),
        Kind::Device(Device::Console) => Stream::Same(Stdio::Console),
        Kind::File { ino } if output || offset == 0 => {
            match c.h.fs(&Request::PathOf { ino }, &[], &mut []) {
                Ok((Reply::Path(path), _)) => Stream::Same(Stdio::File {
                    path,
                    // Behind what others have written there.
                    append: output,
                }),
                // It has no name any more, by which the program could open it.
                Ok(_) | Err(Error::NotFound) => Stream::Carried,
                Err(error) => return Err(error.into()),
            }
        }
        _ => Stream::Carried,
    })
}

/// The arguments of a shell that runs the program and carries these of its streams by files.
fn carrier(path: &str, carried: [bool; 3], args: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    // The last six characters of the name are `mktemp`'s to choose. A shell that a signal ends does not do what is to be
    // done at its exit. Ctrl-C is for the program, too; of another signal the shell would do nothing before that has
    // ended.
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
        // Who waits for it is not kept waiting by a signal for it alone.
        let trapped =
            ["INT", "HUP", "TERM"].map(|signal| words[2].contains(&[" ", signal, "; "].concat()));
        assert_eq!(trapped, [true, false, false], "{}", words[2]);
        assert_eq!(words[3..], ["/bin/x", "a b"]);
    }
}
