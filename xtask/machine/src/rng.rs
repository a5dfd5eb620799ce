//! A device of random numbers, and where they come from.

use std::path::{Path, PathBuf};

/// Where the numbers of the machine's device come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rng {
    /// There is no device.
    #[default]
    None,
    /// The host's random numbers.
    Host,
    /// What is read from this file of the host, as it comes.
    File(PathBuf),
    /// Nowhere: the device never answers.
    Silent,
}

impl Rng {
    /// What QEMU is told. With `address` the device stands there on the bus, and on the line of every fourth device.
    pub(crate) fn arguments(
        &self,
        address: Option<u8>,
        quoted: impl Fn(&Path) -> String,
    ) -> Vec<String> {
        let mut arguments = Vec::new();
        let source = match self {
            Rng::None => return arguments,
            Rng::Host => "rng-builtin,id=rng".to_string(),
            Rng::File(file) => format!("rng-random,id=rng,filename={}", quoted(file)),
            Rng::Silent => {
                arguments.extend(["-chardev".to_string(), "null,id=silent".to_string()]);
                "rng-egd,id=rng,chardev=silent".to_string()
            }
        };
        let place = address.map_or(String::new(), |address| format!(",addr={address}"));
        let device = format!("virtio-rng-pci,rng=rng{place}");
        arguments.extend(["-object".to_string(), source, "-device".to_string(), device]);
        arguments
    }
}
