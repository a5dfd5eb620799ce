//! Where servers and programs run: in spaces of their own, or in the kernel's rings.

use std::fmt;
use std::str::FromStr;

/// The services whose servers can be placed: all but those that start the others, and the debugger's.
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
/// archive that is started by this path. Of two that concern the same the later counts.
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
        // It goes through the words of a command line.
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
    /// The program at this path of the guest runs there.
    ///
    /// # Errors
    /// A sentence, if that cannot be said in a line.
    pub fn program(path: &str, in_kernel: bool) -> Result<Self, String> {
        format!("{path}={}", if in_kernel { "kernel" } else { "process" }).parse()
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

#[cfg(test)]
mod tests {
    use super::Place;

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
