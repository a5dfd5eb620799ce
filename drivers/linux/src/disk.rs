// SPDX-License-Identifier: GPL-2.0-or-later
//! A disk on a SCSI bus, as `services::block`. The bookkeeping of `virtio-blk` says which slot each request has. Data
//! is copied once, between the client and memory that the device reaches. Finished requests are collected when a
//! client asks for them; until the driver announces some, handlers only note that they are done.

use crate::{failed, CAME, CONTROL};
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::convert::Infallible;
use core::ffi::{c_int, c_uint, c_ulong, c_void};
use core::ops::Deref;
use interface::server::Visitor;
use interface::Error;
use requests::{fits, Kind, Requests, Session, Slot};
use services::block::{Block, BlockClient, BlockStub, SECTOR};

// `glue/scsi.c`. All are called in the driver (`kit::inside`), by the process-level thread.
extern "C" {
    /// Starts Linux's driver and finds its disk, the number of its sectors and whether they can be written. Returns
    /// how many commands it takes, or a negative error.
    fn lx_scsi_start(sectors: *mut c_ulong, writable: *mut c_int) -> c_int;
    fn lx_scsi_data(number: c_int) -> *mut c_void;
    fn lx_scsi_transfer(number: c_int, write: c_int, sector: c_ulong, bytes: c_uint);
    fn lx_scsi_flush(number: c_int);
    fn lx_scsi_ended(failed: *mut c_int) -> c_int;
}

/// The disk, and its requests: one slot for each command that the driver can have.
struct Disk {
    sectors: u64,
    writable: bool,
    requests: RefCell<Requests>,
}

impl Disk {
    /// Collects the commands that are done.
    fn look(&self) -> Result<(), Error> {
        loop {
            let mut failed = 0;
            // SAFETY: as said above; `failed` is there.
            let ended = kit::inside(|| unsafe { lx_scsi_ended(&mut failed) });
            let Ok(slot) = usize::try_from(ended) else {
                return Ok(());
            };
            if !self.requests.borrow_mut().complete(slot, failed != 0) {
                return Err(Error::Broken);
            }
        }
    }

    /// The address of a request's data.
    fn place(slot: Slot) -> *mut u8 {
        // SAFETY: as said above; there is a command for each slot.
        kit::inside(|| unsafe { lx_scsi_data(slot as c_int) }).cast()
    }

    /// Gives the driver a request.
    fn transfer(slot: Slot, write: bool, sector: u64, bytes: usize) {
        // SAFETY: as said above; the driver has no other request in this slot, and the disk has these sectors.
        kit::inside(|| unsafe {
            lx_scsi_transfer(slot as c_int, write.into(), sector, bytes as c_uint);
        });
    }
}

/// A client's session.
struct Client {
    disk: Rc<Disk>,
    session: Session,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.disk.requests.borrow_mut().end(self.session);
        CAME.happened();
    }
}

impl Block for Client {
    fn geometry(&self) -> Result<(u64, bool), Error> {
        Ok((self.disk.sectors, self.disk.writable))
    }

    fn read(&self, tag: u64, sector: u64, sectors: u64) -> Result<(), Error> {
        let bytes = sectors.checked_mul(SECTOR).ok_or(Error::Invalid)?;
        if !fits(sector, bytes, self.disk.sectors) {
            return Err(Error::Invalid);
        }
        let bytes = bytes as usize;
        let mut requests = self.disk.requests.borrow_mut();
        let slot = requests.submit(self.session, tag, Kind::Read(bytes))?;
        Disk::transfer(slot, false, sector, bytes);
        Ok(())
    }

    fn write(&self, tag: u64, sector: u64, data: &[u8]) -> Result<(), Error> {
        if !self.disk.writable {
            return Err(Error::Denied);
        }
        if !fits(sector, data.len() as u64, self.disk.sectors) {
            return Err(Error::Invalid);
        }
        let mut requests = self.disk.requests.borrow_mut();
        let slot = requests.submit(self.session, tag, Kind::Write)?;
        // SAFETY: there is room for `services::block::MOST` bytes, and the driver does not have this slot.
        unsafe { core::ptr::copy_nonoverlapping(data.as_ptr(), Disk::place(slot), data.len()) };
        Disk::transfer(slot, true, sector, data.len());
        Ok(())
    }

    fn flush(&self, tag: u64) -> Result<(), Error> {
        let mut requests = self.disk.requests.borrow_mut();
        let slot = requests.submit(self.session, tag, Kind::Flush)?;
        // SAFETY: as said above; the driver has no other request in this slot.
        kit::inside(|| unsafe { lx_scsi_flush(slot as c_int) });
        Ok(())
    }

    async fn done(&self) -> Result<(u64, u64), Error> {
        let done = || {
            self.disk.look()?;
            self.disk.requests.borrow_mut().tell(self.session)
        };
        let told = CAME.until(|| done().transpose()).await?;
        // A slot may be free that others wait for.
        CAME.happened();
        Ok(told)
    }

    fn data(&self, tag: u64, room: usize) -> Result<impl Deref<Target = [u8]>, Error> {
        let (slot, bytes) = self.disk.requests.borrow().data(self.session, tag)?;
        if bytes > room {
            return Err(Error::Invalid);
        }
        // SAFETY: so many bytes were read, no more than there is room for, and the driver does not have this slot
        // until it is released.
        Ok(unsafe { core::slice::from_raw_parts(Disk::place(slot), bytes) })
    }

    fn release(&self, tag: u64) -> Result<(), Error> {
        self.disk.requests.borrow_mut().release(self.session, tag)?;
        CAME.happened();
        Ok(())
    }

    async fn room(&self) -> Result<(), Error> {
        let room = || {
            self.disk.look()?;
            let has_room = self.disk.requests.borrow().has_room(self.session);
            Ok(has_room.then_some(()))
        };
        CAME.until(|| room().transpose()).await
    }
}

/// Starts the driver.
fn start() -> Result<Disk, Error> {
    let (mut sectors, mut writable) = (0, 0);
    // SAFETY: called once, first; both are there.
    let commands = kit::inside(|| unsafe { lx_scsi_start(&mut sectors, &mut writable) });
    let commands = usize::try_from(commands).map_err(|_| failed(commands))?;
    Ok(Disk {
        sectors,
        writable: writable != 0,
        requests: RefCell::new(Requests::new(commands)),
    })
}

fn serve() -> Result<Infallible, Error> {
    let disk = Rc::new(start()?);
    let sessions = Cell::new(0);
    rt::names::serve("disk", move |visitor: &Visitor| {
        if visitor.door != CONTROL || visitor.interface != BlockClient::ID {
            return Err(Error::Denied);
        }
        sessions.set(sessions.get() + 1);
        Ok(BlockStub(Client {
            disk: Rc::clone(&disk),
            session: sessions.get(),
        }))
    })
}

/// Offers the disk, and ends the program when it cannot any more.
#[no_mangle]
extern "C" fn lx_serve_disk() {
    crate::ended(serve());
}
