//! The limit on simultaneous connections.

/// Most connections at a time.
pub const MOST: usize = 16;

/// Which of the connections is closed when one more comes: if there are [`MOST`], the one that began first, whatever it
/// has sent. `deadlines`: the time of each in nanoseconds at which its patience is over.
#[must_use]
pub fn makes_room(deadlines: impl ExactSizeIterator<Item = u64>) -> Option<usize> {
    let is_full = deadlines.len() >= MOST;
    let longest = deadlines.enumerate().min_by_key(|(_, deadline)| *deadline);
    longest.filter(|_| is_full).map(|(n, _)| n)
}
