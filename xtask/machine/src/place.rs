//! Where servers run: in spaces of their own, or in the kernel's rings.

use std::fmt;
use std::str::FromStr;

/// The services whose servers can be placed: all but those that start the others.
const SERVICES: [&str; 11] = [
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

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn what_cannot_be_placed_is_refused() {
        for line in ["fs=kernel", "all=process", "link=kernel"] {
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
        ] {
            assert!(line.parse::<Place>().is_err(), "'{line}' was accepted");
        }
    }
}
