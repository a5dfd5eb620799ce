//! The costs of requests to a disk's driver, and of reads of a file in memory: `disk_requests [FILTER]`. Needs the
//! system port (`trust`).
//!
//! A request is one of `services::block`, in a session with the driver. Its cost is that of the client, the driver,
//! the kernel and whatever else runs until the data is in the client's own memory (a read) or in the device (a
//! write). The disk reads as zeros everywhere, and drops what is written, so that a read can be checked.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::String;
use alloc::vec;
use benches::loops;
use benches::report::{Outcome, Report, Sample};
use benches::run::Must;
use block::{Request, SystemDisk};
use rt::fs::{File, Flags};
use services::block::{BlockClient, MOST, OUTSTANDING, SECTOR};

rt::entry!(main);

/// Requests of each row, and how many are made before they are counted.
const REQUESTS: u64 = 1000;
const WARM: u64 = 200;
/// Bytes of a page.
const PAGE: u64 = 4096;
/// A file in memory, and its length.
const FILE: &str = "/tmp/disk-requests";
const LENGTH: u64 = 256 * 1024;
/// The previous content of the memory that is read into, which the disk does not have.
const OTHER: u8 = 0xa5;

/// The kind of request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

/// The order of the places.
#[derive(Clone, Copy)]
enum Order {
    Random,
    /// Each behind the one before, from the first sector on.
    Sequential,
}

/// A session with the driver, and the size of its disk.
struct Disk {
    session: BlockClient,
    sectors: u64,
}

impl Disk {
    fn open() -> Result<Self, String> {
        let door = rt::system::control("disk").must("the disk")?;
        let mut session = BlockClient::open_known(&door).must("a session")?;
        let (sectors, _) = session.geometry().must("the size")?;
        Ok(Disk { session, sectors })
    }

    /// The place of the request with this number.
    fn place(&self, order: Order, random: &mut fastrand::Rng, number: u64, sectors: u64) -> u64 {
        match order {
            Order::Random => random.u64(..self.sectors / sectors) * sectors,
            Order::Sequential => number * sectors % (self.sectors - sectors),
        }
    }

    /// Waits until some of the `open` requests are done.
    fn done(&mut self, open: u64) -> Result<u64, String> {
        let (done, failed) = self.session.done().must("done")?;
        match done & !open {
            0 if done != 0 && failed == 0 => Ok(done),
            _ => Err(format!(
                "of {open:#x}, {done:#x} are done and {failed:#x} failed"
            )),
        }
    }

    /// Copies the data of a read.
    fn take(&mut self, tag: u64, into: &mut [u8]) -> Result<(), String> {
        let length = self.session.data(tag, into).must("data")?;
        self.session.release(tag).must("release")?;
        match length == into.len() {
            true => Ok(()),
            false => Err(format!("{length} bytes were read")),
        }
    }

    /// Makes so many requests, one at a time.
    fn one_by_one(
        &mut self,
        kind: Kind,
        order: Order,
        count: u64,
        data: &mut [u8],
    ) -> Result<(), String> {
        let mut random = fastrand::Rng::with_seed(1);
        let sectors = data.len() as u64 / SECTOR;
        for number in 0..count {
            let sector = self.place(order, &mut random, number, sectors);
            match kind {
                Kind::Read => {
                    self.session.read(0, sector, sectors).must("read")?;
                    self.done(1)?;
                    self.take(0, data)?;
                }
                Kind::Write => {
                    self.session.write(0, sector, data).must("write")?;
                    self.done(1)?;
                }
            }
        }
        Ok(())
    }

    /// Makes so many reads at random places, as many of them at a time as a session allows.
    fn many(&mut self, count: u64, data: &mut [u8]) -> Result<(), String> {
        let mut random = fastrand::Rng::with_seed(1);
        let sectors = data.len() as u64 / SECTOR;
        let (mut open, mut begun, mut finished) = (0u64, 0u64, 0);
        let all = self.sectors / sectors;
        let mut submit = |disk: &mut Self, tag| {
            let sector = random.u64(..all) * sectors;
            disk.session.read(tag, sector, sectors).must("read")
        };
        while begun < count.min(OUTSTANDING as u64) {
            submit(self, begun)?;
            open |= 1 << begun;
            begun += 1;
        }
        while finished < count {
            let mut done = self.done(open)?;
            while done != 0 {
                let tag = u64::from(done.trailing_zeros());
                done &= done - 1;
                self.take(tag, data)?;
                finished += 1;
                match begun < count {
                    true => {
                        submit(self, tag)?;
                        begun += 1;
                    }
                    false => open &= !(1 << tag),
                }
            }
        }
        Ok(())
    }
}

/// Measures requests after some that are not counted, and checks what the last of them has read.
fn measured(
    kind: Kind,
    bytes: u64,
    mut requests: impl FnMut(u64, &mut [u8]) -> Result<(), String>,
) -> Outcome {
    let mut data = vec![OTHER; bytes as usize];
    requests(WARM, &mut data)?;
    data.fill(OTHER);
    loops::stretch(|| requests(REQUESTS, &mut data))?;
    match kind == Kind::Read && data.iter().any(|byte| *byte != 0) {
        true => Err("it has read something else than the disk has".into()),
        false => Ok(Sample::of_block(REQUESTS)),
    }
}

/// Requests of so many bytes, one at a time.
fn single(kind: Kind, order: Order, bytes: u64) -> Outcome {
    let mut disk = Disk::open()?;
    measured(kind, bytes, |count, data| {
        disk.one_by_one(kind, order, count, data)
    })
}

/// Many reads of a page at a time.
fn parallel() -> Outcome {
    let mut disk = Disk::open()?;
    measured(Kind::Read, PAGE, |count, data| disk.many(count, data))
}

/// Van Maren's trace: so many requests, at most so many of them at once, and most of them one at a time. The trace of
/// the thesis is not available; this one follows from a seed, and half of it is writes, of 4 or 8 KB. One in 64
/// requests begins a burst of any length up to the most. The client is one that outlives the driver, as for a file
/// system, and gives the driver as many requests as a session allows.
const TRACE: u64 = 44_519;
const AT_ONCE: u64 = 102;

fn replay(disk: &mut SystemDisk, sectors: u64, requests: u64) -> Result<u64, String> {
    let mut random = fastrand::Rng::with_seed(1999);
    let (mut begun, mut most) = (0, 0);
    while begun < requests {
        let burst = match random.u8(..64) {
            0 => random.u64(2..=AT_ONCE),
            _ => 1,
        };
        let burst = burst.min(requests - begun);
        for _ in 0..burst {
            let length = random.u64(1..=2) * PAGE / SECTOR;
            let sector = random.u64(..sectors / length) * length;
            let request = match random.bool() {
                true => Request::Read {
                    sector,
                    sectors: length,
                },
                false => Request::Write {
                    sector,
                    data: vec![OTHER; (length * SECTOR) as usize],
                },
            };
            disk.submit(request).must("submit")?;
        }
        for _ in 0..burst {
            let (_, outcome) = disk.wait().must("wait")?;
            // The first byte and the last: checking all of them would be most of the work.
            let read = outcome.must("a request")?;
            if [read.first(), read.last()]
                .into_iter()
                .flatten()
                .any(|byte| *byte != 0)
            {
                return Err("a read has something else than the disk has".into());
            }
        }
        begun += burst;
        most = burst.max(most);
    }
    Ok(most)
}

fn trace() -> Outcome {
    let mut disk = SystemDisk::open().must("the disk")?;
    let (sectors, _) = disk.geometry().must("the size")?;
    replay(&mut disk, sectors, WARM)?;
    match loops::stretch(|| replay(&mut disk, sectors, TRACE))? {
        AT_ONCE => Ok(Sample::of_block(TRACE)),
        most => Err(format!("at most {most} requests were open at a time")),
    }
}

/// The sizes of Van Maren's disk read test.
const SIZES: [(&str, u64); 8] = [
    ("disk_read_512", 512),
    ("disk_read_1k", 1024),
    ("disk_read_2k", 2048),
    ("disk_read_4k", 4096),
    ("disk_read_8k", 8192),
    ("disk_read_16k", 16_384),
    ("disk_read_32k", 32_768),
    ("disk_read_64k", 65_536),
];

/// Reads of a page of a file in memory.
fn file() -> Outcome {
    rt::fs::write_all(FILE, &vec![0; LENGTH as usize], 0o644).must("the file")?;
    let file = File::open(FILE, Flags::default(), 0).must("open")?;
    measured(Kind::Read, PAGE, |count, data| {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..count {
            let offset = random.u64(..LENGTH / PAGE) * PAGE;
            let length = file.read(offset, data).must("read")?;
            if length != data.len() {
                return Err(format!("{length} bytes were read"));
            }
        }
        Ok(())
    })
}

fn main() -> u8 {
    let report = Report::from_arguments();
    // The file server opens the disk when the machine starts. Its answer, an error, shows that it has done so.
    let _ = rt::fs::stat("/disk/none", false);
    let (random, sequential) = (Order::Random, Order::Sequential);
    let mut good = report.bench("blk_read_4k", "request", || {
        single(Kind::Read, random, PAGE)
    });
    good &= report.bench("blk_write_4k", "request", || {
        single(Kind::Write, random, PAGE)
    });
    good &= report.bench("blk_read_64k", "request", || {
        single(Kind::Read, sequential, MOST)
    });
    good &= report.bench("blk_write_64k", "request", || {
        single(Kind::Write, sequential, MOST)
    });
    good &= report.bench("blk_read_4k_x32", "request", parallel);
    good &= report.bench("file_read_4k", "read", file);
    for (name, bytes) in SIZES {
        good &= report.bench(name, "request", || single(Kind::Read, sequential, bytes));
    }
    good &= report.bench("trace_request", "request", trace);
    u8::from(!good)
}
