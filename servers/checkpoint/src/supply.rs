//! Supplying the chunks that restored processes owe, while they run ([`checkpoint_image::owed`]).
//!
//! Each restore that left chunks for later has a thread, always at the priority of programs. It reads a chunk of the
//! image into a segment of this program, and the memory server copies it into the process's: first chunks that a thread
//! waits for, else one after the other, in turns with other programs. When all chunks have been supplied the thread
//! ends, and the image is no longer needed.
//!
//! Processes never get other bytes than those that were saved. If the image cannot be read, or has changed, the
//! processes are ended, and the log says why. If this program ends, the memory server ends their memory, since nothing
//! refers to the supplier's port any more.

use crate::machine;
use crate::parents::File;
use crate::Sentence;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use checkpoint_image::chain::Chain;
use checkpoint_image::owed::{self, Owed};
use checkpoint_image::tool::plain;
use checkpoint_image::turns::Job;
use proto::layout::{CHUNK, PRIORITY_PROGRAM};
use proto::Error;
use rt::access::{READ, WRITE};
use rt::heap::Hold;
use rt::memory::{Supplier, Supplies};
use rt::obj::Ref;
use rt::process::Process;
use rt::sync::Mutex;
use rt::window::Window;

/// Most restores that are being supplied at a time, and most of one job, 0 aside. Further restores read all memory
/// before the processes run.
const MOST: usize = 8;
const MOST_OF_JOB: usize = 4;

/// How long the thread works before it yields to others, in nanoseconds: the kernel's time slice.
const TURN: u64 = 10_000_000;

/// The interval at which a save checks whether all chunks have been supplied, in nanoseconds.
const A_MOMENT: u64 = 1_000_000;

/// Bytes of memory that a thread takes besides the description of the pages: its stack, and its buffers.
const THREAD: u64 = rt::thread::STACK as u64 + 2 * CHUNK;

/// A restore that is being supplied.
struct Known {
    number: u64,
    job: Job,
    /// The control ports of its processes.
    ports: Vec<Ref>,
}

/// All such restores, and the number of the last one.
static KNOWN: Mutex<(Vec<Known>, u64)> = Mutex::new((Vec::new(), 0));

/// A place among the restores that are being supplied, until this is dropped.
pub(crate) struct Place(u64);

impl Place {
    /// Takes a place for this job, if there is one.
    pub(crate) fn take(job: Job) -> Option<Self> {
        let (known, last) = &mut *KNOWN.lock();
        let of_job = known.iter().filter(|known| known.job == job).count();
        if known.len() >= MOST || job != 0 && of_job >= MOST_OF_JOB {
            return None;
        }
        *last += 1;
        known.push(Known {
            number: *last,
            job,
            ports: Vec::new(),
        });
        Some(Place(*last))
    }

    /// Sets the processes of this place.
    fn for_processes(&self, ports: Vec<Ref>) {
        let (known, _) = &mut *KNOWN.lock();
        if let Some(known) = known.iter_mut().find(|known| known.number == self.0) {
            known.ports = ports;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        KNOWN.lock().0.retain(|known| known.number != self.0);
    }
}

/// Whether one of these processes still owes chunks.
pub(crate) fn owes(processes: &[(&str, Process)]) -> bool {
    let (known, _) = &*KNOWN.lock();
    let mut ports = known.iter().flat_map(|known| &known.ports);
    ports.any(|port| {
        let mut all = processes.iter();
        all.any(|(_, process)| process.port().same_as(port.at()))
    })
}

/// Waits until these processes owe no chunks any more; `check` fails if the client no longer waits.
pub(crate) fn wait_for(
    processes: &[(&str, Process)],
    check: impl Fn() -> Result<(), Sentence>,
) -> Result<(), Sentence> {
    while owes(processes) {
        check()?;
        rt::time::sleep(A_MOMENT);
    }
    Ok(())
}

/// The memory of a process, and the chunks that it owes.
pub(crate) struct Debt {
    /// Its number in the image.
    pub(crate) process: u32,
    pub(crate) supplier: Supplier,
    pub(crate) owed: Owed,
}

/// A restore whose chunks are to be supplied from an image.
pub(crate) struct Supplying {
    pub(crate) path: String,
    pub(crate) chain: Chain<File>,
    pub(crate) debts: Vec<Debt>,
    /// The processes, which are ended if the supply fails.
    pub(crate) processes: Vec<Process>,
    pub(crate) place: Place,
}

impl Supplying {
    /// Begins to supply, in a thread of its own.
    pub(crate) fn begin(self) -> Result<(), Sentence> {
        let words = |error: Error| format!("no thread that reads the rest: {}", error.text());
        let bytes = THREAD + self.chain.memory();
        let hold = Hold::new(bytes).map_err(words)?;
        let supplies = Supplies::new().map_err(words)?;
        let ports = self.processes.iter().map(|process| process.port().copy());
        let ports = ports.collect::<Result<_, _>>();
        let ports = ports.map_err(|code| words(rt::error_of(code)))?;
        self.place.for_processes(ports);
        let work = move |raised| {
            drop(raised);
            self.run(&supplies);
            drop(hold);
        };
        rt::thread::spawn_below(PRIORITY_PROGRAM, machine::RAISED, work)
            .map_err(|code| words(rt::error_of(code)))?;
        Ok(())
    }

    fn run(mut self, supplies: &Supplies) {
        // The restored processes run first.
        rt::sys::thread_yield();
        let Err(why) = self.supply(supplies) else {
            return;
        };
        let path = plain(&self.path);
        rt::log!("checkpoint: {path}: {why}; what was restored from it is ended");
        for process in &self.processes {
            let _ = process.kill();
        }
    }

    /// Supplies all chunks, or returns a sentence that says why that is impossible.
    fn supply(&mut self, supplies: &Supplies) -> Result<(), Sentence> {
        let words = |error: Error| error.text().to_string();
        let window = Window::map(supplies.region(), 0, CHUNK, READ | WRITE).map_err(words)?;
        let mut bytes = Vec::new();
        let mut turn = rt::time::now();
        let mut at = 0;
        while !self.debts.is_empty() {
            at = (at + 1) % self.debts.len();
            let debt = &mut self.debts[at];
            let next = match debt.supplier.left() {
                Ok(left) => debt.owed.take_next(left.wanted),
                // The process has ended.
                Err(_) => None,
            };
            let Some((number, waits)) = next else {
                self.debts.swap_remove(at);
                at = 0;
                continue;
            };
            let read = owed::read_chunk(&mut self.chain, debt.process, number, &mut bytes);
            let (offset, size) = read?;
            window.write(offset % CHUNK, &bytes).map_err(words)?;
            match debt.supplier.supply(offset, size, supplies) {
                Ok(_) => {}
                Err(Error::NoMemory) => return Err("no memory for what is still in it".to_string()),
                // The process has ended.
                Err(_) => debt.owed = Owed::default(),
            }
            let now = rt::time::now();
            if waits || now - turn > TURN {
                rt::sys::thread_yield();
                turn = rt::time::now();
            }
        }
        Ok(())
    }
}
