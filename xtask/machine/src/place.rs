//! Where servers run: in spaces of their own, or in the kernel's rings.

use std::fmt;
use std::str::FromStr;

/// The services whose servers can be placed: all but those that start the others.
const SERVICES: [&str; 12] = [
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
    "net",
    "inspect",
];

/// A line of the boot manifest: `SERVICE=process` or `SERVICE=kernel`. Of two that concern the same service the later counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(String);

impl FromStr for Place {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (service, placement) = line.split_once('=').unwrap_or((line, ""));
        if !SERVICES.contains(&service) {
            let known = SERVICES.join(", ");
            return Err(format!(
                "'{service}' is no service that can be placed: {known}"
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

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}
