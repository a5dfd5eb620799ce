//! A device of random numbers, and the source of its numbers.

use std::path::{Path, PathBuf};

/// The source of the numbers of the machine's device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rng {
    /// There is no device.
    #[default]
    None,
    /// The host's random numbers.
    Host,
    /// The content of this file of the host, from the beginning on.
    File(PathBuf),
    /// No source: the device never answers.
    Silent,
}

impl Rng {
    /// QEMU's arguments. With `address` the device has that place on the bus, and the line of every fourth device.
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
