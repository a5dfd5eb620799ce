//! The network of a machine: what its card is connected to.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::getuid;
use xtask_build::error::Error;

/// The addresses of the machines' cards, without their last byte.
const CARD: &str = "52:54:00:12:34:";
/// QEMU's device whose driver is Fermata's own.
pub(crate) const VIRTIO: &str = "virtio-net-pci";

/// What the card is connected to.
#[derive(Clone, Debug, Default)]
pub enum Net {
    /// There is no card.
    #[default]
    None,
    /// A card that is connected to nothing. A machine that counts instructions is still deterministic with it.
    Nothing,
    /// A network that QEMU simulates: addresses, a router that answers, and nothing behind the router.
    User {
        /// TCP ports of this host, on its loopback, and the ports of the machine to which they lead.
        forwards: Vec<(u16, u16)>,
    },
    /// A wire to one other machine.
    Pair(Pair),
}

/// One end of a wire between two machines: sockets of the host, one for each end.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The directory where they are.
    pub directory: PathBuf,
    /// Which end: 0 or 1.
    pub end: u8,
}

impl Pair {
    /// The socket of an end.
    #[must_use]
    pub fn socket(&self, end: u8) -> PathBuf {
        self.directory.join(end.to_string())
    }

    /// Takes the free end of the wire with this name, and returns a lock that keeps it taken: the first machine that
    /// asks gets the first end.
    pub fn take(name: &str) -> Result<(Pair, File), Error> {
        let directory =
            std::env::temp_dir().join(format!("fermata-pair-{}-{name}", getuid().as_raw()));
        let cannot = |why: &dyn std::fmt::Display| {
            Error::new(format!("--net pair:{name}: {}: {why}", directory.display()))
        };
        let made = DirBuilder::new().mode(0o700).create(&directory);
        match made {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(cannot(&error))
            }
            _ => {}
        }
        let found = std::fs::symlink_metadata(&directory).map_err(|error| cannot(&error))?;
        if !found.is_dir() || found.uid() != getuid().as_raw() || found.mode() & 0o077 != 0 {
            return Err(cannot(&"it is not a directory of ours"));
        }
        for end in [0, 1] {
            let lock = File::create(directory.join(format!("{end}.lock")))
                .map_err(|error| cannot(&error))?;
            if lock.try_lock().is_ok() {
                return Ok((Pair { directory, end }, lock));
            }
        }
        Err(cannot(&"both ends are taken by machines that run"))
    }
}

/// The option that leaves out the ROM of a card, since nothing boots from it. An ISA card, by QEMU's names, has none.
fn without_rom(card: &str) -> &'static str {
    match card.split(',').next() {
        Some(name) if name.ends_with("_isa") => "",
        _ => "romfile=,",
    }
}

impl Net {
    /// QEMU's arguments: this device is the card, and a file gets all frames.
    pub(crate) fn arguments(
        &self,
        pcap: Option<&Path>,
        card: &str,
        quoted: impl Fn(&Path) -> String,
    ) -> Vec<String> {
        let (backend, address) = match self {
            Net::None => return Vec::new(),
            Net::Nothing => {
                // Requests of the driver are done at once, or at a time of the machine's clock, and not by another
                // thread of QEMU.
                let own = match card {
                    VIRTIO => ",ioeventfd=off,tx=timer",
                    _ => "",
                };
                let rom = without_rom(card);
                let card = format!("{card},{rom}mac={CARD}56{own}");
                return ["-device".to_string(), card].into();
            }
            Net::User { forwards } => {
                let mut backend = "user,id=net,restrict=on".to_string();
                for (host, guest) in forwards {
                    backend.push_str(&format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}"));
                }
                (backend, 0)
            }
            Net::Pair(pair) => {
                let socket = |end| quoted(&pair.socket(end));
                let (local, remote) = (socket(pair.end), socket(1 - pair.end));
                let backend = format!(
                    "dgram,id=net,local.type=unix,local.path={local},remote.type=unix,remote.path={remote}"
                );
                (backend, pair.end)
            }
        };
        let rom = without_rom(card);
        let card = format!("{card},netdev=net,{rom}mac={CARD}{:02x}", 0x56 + address);
        let mut arguments: Vec<String> = ["-netdev", &backend, "-device", &card]
            .map(String::from)
            .into();
        if let Some(pcap) = pcap {
            let dump = format!("filter-dump,id=dump,netdev=net,file={}", quoted(pcap));
            arguments.extend(["-object".to_string(), dump]);
        }
        arguments
    }

    /// The machine's address, for the kernel's command line, if no server assigns one.
    pub(crate) fn address(&self) -> Option<String> {
        match self {
            Net::Pair(pair) => Some(format!("address=10.0.3.{}/24", pair.end + 1)),
            Net::Nothing => Some("address=10.0.3.1/24".to_string()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Net, Pair};

    #[test]
    fn a_wire_has_two_ends() {
        let name = format!("test-{}", std::process::id());
        let first = Pair::take(&name).expect("the first end");
        let second = Pair::take(&name).expect("the second end");
        assert_eq!((first.0.end, second.0.end), (0, 1));
        assert!(Pair::take(&name).is_err());
        drop(first.1);
        let third = Pair::take(&name).expect("the end that is free again");
        assert_eq!(third.0.end, 0);
        assert_eq!(
            Net::Pair(third.0.clone()).address().as_deref(),
            Some("address=10.0.3.1/24")
        );
        std::fs::remove_dir_all(&third.0.directory).expect("a directory");
    }
}
