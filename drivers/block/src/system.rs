//! The machine's disk, for programs with the system port, and for servers that may use the disk by the boot manifest.
use crate::{Disk, Drivers, Session};
use proto::Error;
use rt::obj::Ref;
use rt::time;
use services::block::BlockClient;

/// How long to wait for a driver, in nanoseconds.
const PATIENCE: u64 = 10_000_000_000;
/// How long to pause between two attempts, in nanoseconds.
const PAUSE: u64 = 200_000;

/// Drivers of the disk; the function returns their control ports by name.
#[derive(Debug)]
pub struct System(fn(&str) -> Result<Ref, Error>);

/// The machine's disk.
pub type SystemDisk = Disk<System>;

impl SystemDisk {
    /// By the system port.
    ///
    /// # Errors
    /// `Denied` if this program was not given the system port, `NotFound` if there is no disk.
    pub fn open() -> Result<Self, Error> {
        rt::system::control("disk")?;
        Ok(Disk::new(System(rt::system::control)))
    }

    /// By the boot manifest. Whether the manifest allows it shows at the first request.
    #[must_use]
    pub fn by_manifest() -> Self {
        Disk::new(System(rt::names::control))
    }
}

impl Drivers for System {
    type Session = BlockClient;

    fn open(&mut self) -> Result<BlockClient, Error> {
        let deadline = time::now() + PATIENCE;
        loop {
            // Between two drivers the name is missing, or leads to a port that is gone.
            let session = (self.0)("disk").and_then(|door| BlockClient::open_known(&door));
            match session {
                Err(Error::NotFound | Error::Broken) if time::now() < deadline => {
                    time::sleep(PAUSE);
                }
                // There is a disk, but no driver for it.
                Err(Error::NotFound) => return Err(Error::Broken),
                session => return session,
            }
        }
    }
}

impl Session for BlockClient {
    fn geometry(&mut self) -> Result<(u64, bool), Error> {
        BlockClient::geometry(self)
    }

    fn read(&mut self, tag: u64, sector: u64, sectors: u64) -> Result<(), Error> {
        BlockClient::read(self, tag, sector, sectors)
    }

    fn write(&mut self, tag: u64, sector: u64, data: &[u8]) -> Result<(), Error> {
        BlockClient::write(self, tag, sector, data)
    }

    fn flush(&mut self, tag: u64) -> Result<(), Error> {
        BlockClient::flush(self, tag)
    }

    fn done(&mut self) -> Result<(u64, u64), Error> {
        BlockClient::done(self)
    }

    fn data(&mut self, tag: u64, into: &mut [u8]) -> Result<usize, Error> {
        BlockClient::data(self, tag, into)
    }

    fn release(&mut self, tag: u64) -> Result<(), Error> {
        BlockClient::release(self, tag)
    }

    fn room(&mut self) -> Result<(), Error> {
        BlockClient::room(self)
    }
}
