//! Numbers for the processes of both managers, since GDB knows a process by one number.

/// The managers, in the order of their numbers.
pub const MANAGERS: [&str; 2] = ["native", "linux"];

/// The processes of a manager are numbered from this, times the manager's index in [`MANAGERS`].
const STEP: u64 = 1_000_000;

/// The number by which GDB knows a manager's process; `None` if the pid is too large for one.
#[must_use]
pub fn number(manager: usize, pid: u32) -> Option<u64> {
    let pid = u64::from(pid);
    (pid < STEP).then_some(manager as u64 * STEP + pid)
}

/// The manager's index in [`MANAGERS`] and the pid of the process with this number.
#[must_use]
pub fn process(number: u64) -> Option<(usize, u32)> {
    let manager = usize::try_from(number / STEP).ok()?;
    (manager < MANAGERS.len()).then_some((manager, (number % STEP) as u32))
}

#[cfg(test)]
mod tests {
    use super::{number, process};

    #[test]
    fn numbers_are_of_one_process() {
        assert_eq!(number(0, 7), Some(7));
        assert_eq!(number(1, 3), Some(1_000_003));
        assert_eq!(number(0, 1_000_003), None, "that is another one's");
        assert_eq!(process(7), Some((0, 7)));
        assert_eq!(process(1_000_003), Some((1, 3)));
        for none in [2_000_000, u64::MAX] {
            assert_eq!(process(none), None);
        }
    }
}
