//! The server of the file system on the disk. The boot manifest lets it find the disk, whichever driver process serves
//! it at the moment; `BOOT` in its environment is a number of this boot.
//!
//! One thread serves clients; this one has the volume and waits for the disk ([`fermata_ext4::desk`]).
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use block::SystemDisk;
use core::convert::Infallible;
use fermata_ext4::desk::{Desk, Gate, Worker};
use fermata_ext4::volume::{format, is_blank, timestamp, Volume};
use interface::server::Visitor;
use interface::Server;
use proto::Error;
use rsext4::{
    BlockIo, Clock, DeviceCapabilities, DeviceGeometry, Ext4Error, Ext4ErrorKind, Ext4Result,
    Ext4Timestamp, SectorId,
};
use services::block::SECTOR;
use services::fs::server::most_open;
use services::fs::MOUNT;

rt::entry!(main);

/// The disk, in the form that `rsext4` needs.
struct Device {
    disk: SystemDisk,
    sectors: u64,
    writable: bool,
}

fn done(result: Result<(), Error>) -> Ext4Result<()> {
    result.map_err(|_| Ext4Error::new(Ext4ErrorKind::Io))
}

impl BlockIo for Device {
    fn write(&mut self, buffer: &[u8], sector: SectorId, _: u32) -> Ext4Result<()> {
        done(self.disk.write(sector.raw(), buffer))
    }

    fn read(&mut self, buffer: &mut [u8], sector: SectorId, _: u32) -> Ext4Result<()> {
        done(self.disk.read(sector.raw(), buffer))
    }

    fn geometry(&self) -> DeviceGeometry {
        DeviceGeometry::new(SECTOR as u32, self.sectors)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        DeviceCapabilities {
            read_only: !self.writable,
            flush: true,
            ..DeviceCapabilities::default()
        }
    }

    fn flush(&mut self) -> Ext4Result<()> {
        done(self.disk.flush())
    }
}

/// The date, if the machine knows it, else the time since it was switched on.
#[derive(Clone, Copy)]
struct Time {
    origin: u64,
}

impl Clock for Time {
    fn now(&self) -> Ext4Result<Ext4Timestamp> {
        Ok(timestamp(self.origin.saturating_add(rt::time::now())))
    }
}

/// Mounts the disk; a blank one gets a file system.
fn mount() -> Result<Volume<Device>, Error> {
    let mut disk = SystemDisk::by_manifest();
    let (sectors, writable) = disk.geometry()?;
    let time = Time {
        origin: rt::time::origin(),
    };
    let mut device = Device {
        disk,
        sectors,
        writable,
    };
    if is_blank(&mut device)? && writable {
        device = format(device, time)?;
    }
    // Files have the same numbers as with the previous server, but others than in another boot.
    let mut boot = rt::start()
        .env
        .iter()
        .filter_map(|text| text.strip_prefix("BOOT="));
    let boot: u64 = boot
        .find_map(|text| text.parse().ok())
        .ok_or(Error::Invalid)?;
    Volume::mount(device, time, boot as u32)
}

/// Serves clients, on a thread of its own: the first thread has a larger stack, for the depth of `rsext4`.
fn serve(desk: Arc<Desk<Device>>) -> Result<Infallible, Error> {
    let mut server =
        Server::new(move |visitor: &Visitor| Gate::new(&desk, most_open(visitor.job)))?;
    server.knows(rt::names::job_of, rt::heap::want);
    server.opens();
    // The mount point in memory, so that it is in listings of the root; requests for its path come here.
    let _ = rt::fs::memory().mkdir(0o755, MOUNT);
    rt::names::register("ext4", server.door())?;
    server.run()
}

fn work() -> Result<Infallible, Error> {
    // From here on memory is reserved before it is touched.
    rt::heap::want(0)?;
    // If the disk cannot be mounted every request reports why, and for lack of memory or of a disk it is tried again.
    // The service is registered after the first mount, since nothing could be answered before; and while a file system
    // is being made its disk is neither blank nor whole.
    let volume = mount();
    let desk = Arc::new(Desk::new());
    desk.tell(rt::thread::current().map_err(rt::error_of)?);
    let clients = Arc::clone(&desk);
    let served = rt::thread::spawn(move || {
        let Err(error) = serve(clients);
        failed(error);
        rt::process::exit(1);
    });
    served.map_err(rt::error_of)?;
    Worker::new(desk, volume, rt::time::now)
        .or_later(mount)
        .run()
}

fn failed(error: Error) {
    rt::log!("ext4: {}", error.text());
}

fn main() -> u8 {
    let Err(error) = work();
    failed(error);
    1
}
