//! Where servers and programs run: in spaces of their own, or in the kernel's rings.

use std::fmt;
use std::str::FromStr;

use abi::collocated::{SIZE, START};
use abi::USER_END;

/// The address in its place at which a program is loaded: `proto::layout::PROGRAM_BASE`.
const PROGRAM_BASE: u64 = 0x40_0000;

/// The services whose servers can be placed: all but the servers that start the others, and the debugger's.
const SERVICES: [&str; 13] = [
    "all",
    "device",
    "fs",
    "console",
    "random",
    "linux",
    "checkpoint",
    "disk",
    "ext4",
    "link",
    "entropy",
    "net",
    "sound",
];

/// A line of the boot manifest: `SERVICE=process` or `SERVICE=kernel`, or `/PATH=kernel` for the program of the boot
/// archive that is started by this path. Of two lines about the same thing the later one counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(String);

impl FromStr for Place {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (service, placement) = line.split_once('=').unwrap_or((line, ""));
        let is_program = service.len() > 1 && service.starts_with('/');
        if !is_program && !SERVICES.contains(&service) {
            let known = SERVICES.join(", ");
            return Err(format!(
                "'{service}' is no service that can be placed, nor the path of a program, which begins with /: {known}"
            ));
        }
        // The line goes onto the kernel's command line as a word.
        if service.contains(|c: char| c.is_whitespace() || c.is_control() || ",;".contains(c)) {
            return Err(format!(
                "'{service}' cannot be placed: its name has a space, a comma or a semicolon"
            ));
        }
        match placement {
            "process" | "kernel" => Ok(Place(line.to_string())),
            _ => Err(format!(
                "{service} runs in process or in kernel, not in '{placement}'"
            )),
        }
    }
}

impl Place {
    /// Places the program at this path of the guest in the kernel, or in a process.
    ///
    /// # Errors
    /// A sentence, if the path cannot be part of a line.
    pub fn program(path: &str, in_kernel: bool) -> Result<Self, String> {
        format!("{path}={}", if in_kernel { "kernel" } else { "process" }).parse()
    }

    /// Places all servers and drivers that can be placed in the kernel.
    #[must_use]
    pub fn all_in_kernel() -> Self {
        Place("all=kernel".into())
    }

    /// The path of the program that is placed, unless it is a service.
    #[must_use]
    pub fn path_of_program(&self) -> Option<&str> {
        let (name, _) = self.0.split_once('=')?;
        name.starts_with('/').then_some(name)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// If a line of the machine's log says that a program has tried to access the kernel's memory from the kernel's
/// rings: the program, and the address in its file.
pub(crate) fn stray(line: &str) -> Option<(&str, u64)> {
    let (who, what) = line.rsplit_once(": kernel address 0x")?;
    let (_, at) = what.split_once(" at 0x")?;
    let at = u64::from_str_radix(at, 16).ok()?;
    // The kernel names a program by its command line.
    let who = who.strip_prefix("the machine panicked: ").unwrap_or(who);
    let program = who.split(' ').next()?.rsplit('/').next()?;
    let inside = (START..USER_END).contains(&at);
    let address = (at & (SIZE - 1)).checked_sub(PROGRAM_BASE)?;
    inside.then_some((program, address))
}

#[cfg(test)]
mod tests {
    use super::{stray, Place};

    #[test]
    fn who_has_tried_the_kernels_memory_is_known_by_the_line() {
        for (line, wanted) in [
            (
                "the machine panicked: fs: kernel address 0xffff800000000000 at 0x40000040ab12",
                Some(("fs", 0xab12)),
            ),
            (
                "/bin/hello a: kernel address 0x1 at 0x2: kernel address 0xffffffffffffffff at 0x7c0000400000",
                Some(("hello", 0)),
            ),
            // A jump to the kernel's memory, and a line that is not of this form.
            ("fs: kernel address 0xffff800000000000 at 0xffff800000000000", None),
            ("fs: kernel address 0xffff800000000000 at 0x400000000000", None),
            ("fs: kernel address 0xffff800000000000 at 0x40ab12", None),
            ("fs: kernel address 0xffff800000000000 at 0x", None),
            ("kernel/src/trap.rs:1: too bad", None),
        ] {
            assert_eq!(stray(line), wanted, "{line}");
        }
    }

    #[test]
    fn what_cannot_be_placed_is_refused() {
        for line in [
            "fs=kernel",
            "all=process",
            "link=kernel",
            "sound=kernel",
            "/bin/hello=kernel",
        ] {
            let place: Result<Place, String> = line.parse();
            assert_eq!(place.map(|place| place.to_string()), Ok(line.to_string()));
        }
        for line in [
            "",
            "fs",
            "fs=",
            "fs=moon",
            "memory=kernel",
            "init=kernel",
            "=kernel",
            "/=kernel",
            "bin/hello=kernel",
            "/bin/hel lo=kernel",
            "/bin/hello,fs=kernel",
        ] {
            assert!(line.parse::<Place>().is_err(), "'{line}' was accepted");
        }
    }
}
