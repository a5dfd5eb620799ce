//! The counts of hostile clients, in memory that they share with the warden: they survive however a client is killed.

use super::table::{REACHED_METHODS, SERVICES};
use abi::access::{READ, WRITE};
use abi::PAGE_SIZE;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use proto::Error;
use rt::memory::Segment;
use rt::obj::RefAt;
use rt::window::Window;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The service has done it.
    Done,
    /// The service has returned an error.
    Refused,
    /// The kernel has returned an error: the service did not get the request, or did not answer.
    Code,
    /// The request was made by a thread that cannot finish it.
    Held,
}

/// The row of clients that take all the room in the file system.
pub const ROOM: usize = SERVICES.len();
/// The row of clients that restore images.
pub const IMAGES: usize = ROOM + 1;
/// The row of clients that hold services by other things than memory.
pub const OTHER: usize = IMAGES + 1;
/// Rows of the counters: one for each service, and these.
const ROWS: usize = OTHER + 1;

/// How many outcomes there are.
pub const OUTCOMES: usize = 4;

/// Where the counters of methods begin.
const METHODS: usize = ROWS * OUTCOMES;
const _: () = assert!((METHODS + REACHED_METHODS) * 8 <= PAGE_SIZE as usize);

/// Counters, one for each row and outcome, and one for each method.
pub struct Counters {
    window: Window,
    segment: Option<Segment>,
}

impl Counters {
    /// A new one.
    pub fn new() -> Result<Self, Error> {
        let segment = rt::memory::create(PAGE_SIZE)?;
        segment.populate(0, PAGE_SIZE)?;
        let window = Window::map(&segment.region, 0, PAGE_SIZE, READ | WRITE)?;
        Ok(Counters {
            window,
            segment: Some(segment),
        })
    }

    /// The counters in a shared region.
    pub fn at(region: RefAt) -> Result<Self, Error> {
        let window = Window::map(&region, 0, PAGE_SIZE, READ | WRITE)?;
        Ok(Counters {
            window,
            segment: None,
        })
    }

    /// Its region, which its maker can pass on.
    #[must_use]
    pub fn region(&self) -> Option<RefAt> {
        self.segment.as_ref().map(|segment| *segment.region)
    }

    fn cell(&self, service: usize, outcome: Outcome) -> &AtomicU64 {
        self.at_index(service % ROWS * OUTCOMES + outcome as usize)
    }

    fn at_index(&self, index: usize) -> &AtomicU64 {
        let index = (index % (METHODS + REACHED_METHODS)) as u64;
        // SAFETY: within the page of the window, aligned, and only used as an atomic.
        unsafe { &*((self.window.address() + index * 8) as *const AtomicU64) }
    }

    /// Counts a request that was not spoilt, of the method with this place ([`super::table::place_of`]), that was
    /// answered in any way, or that may be answered late.
    pub fn answered(&self, method: usize) {
        self.at_index(METHODS + method).fetch_add(1, Relaxed);
    }

    /// How many such requests there were.
    #[must_use]
    pub fn answers(&self, method: usize) -> u64 {
        self.at_index(METHODS + method).load(Relaxed)
    }

    /// Counts one more.
    pub fn count(&self, service: usize, outcome: Outcome) {
        self.cell(service, outcome).fetch_add(1, Relaxed);
    }

    /// The counts of a row, by outcome.
    #[must_use]
    pub fn counts(&self, service: usize) -> [u64; OUTCOMES] {
        [
            Outcome::Done,
            Outcome::Refused,
            Outcome::Code,
            Outcome::Held,
        ]
        .map(|outcome| self.cell(service, outcome).load(Relaxed))
    }
}
