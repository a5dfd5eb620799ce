//! Interrupt lines of PCI functions, which are level-triggered, and which drivers are interrupted when one rings.
//!
//! A function alone on its line does not need this server: the kernel interrupts the driver's thread, and masks the
//! line until that waits again. From the time a second function joins until the last one leaves, a thread of the device
//! server has the line. When it rings, that thread silences each function that pulls the line, interrupts the
//! function's driver, and waits for the next ring at once, so that the line is unmasked for all others. A driver's
//! acknowledgement lets its function pull again. So a driver that never acknowledges only silences its own function.
//!
//! A function's status shows a pending interrupt whether it may pull the line or not. So [`Lines`] must know at any
//! time which functions are silenced; one that joins has been silenced since it was claimed.

use alloc::vec::Vec;

/// Number of lines.
pub const LINES: usize = 16;

/// Rings in a row without a function that pulls, after which the line is masked for a while after each ring.
const MOST_IDLE: u32 = 16;

/// A function on a line, and the thread of its driver.
#[derive(Debug)]
struct Member<T> {
    function: u16,
    /// It is kept from interrupting: before its line has been attached, and after it has pulled until its driver
    /// acknowledges.
    silenced: bool,
    tell: T,
}

#[derive(Debug)]
struct Line<T> {
    members: Vec<Member<T>>,
    /// The device server's thread has the line.
    shared: bool,
    /// Rings in a row without a function that pulled.
    idle: u32,
}

/// What is to be done when a function has joined a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// It is alone: the kernel is to interrupt its driver's thread.
    Alone,
    /// It is the second one: the line is to pass from the first one's driver to the device server.
    Second,
    /// Nothing: the device server has the line already.
    More,
}

/// What is to be done when a line has rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for the next ring.
    Wait,
    /// Leave the line masked for a while first: it is pulled, but no function shows a pending interrupt.
    Pause,
}

/// All lines. A driver is interrupted through a `T`.
#[derive(Debug)]
pub struct Lines<T> {
    lines: [Line<T>; LINES],
}

impl<T> Lines<T> {
    /// Lines without functions.
    #[must_use]
    pub const fn new() -> Self {
        Lines {
            lines: [const {
                Line {
                    members: Vec::new(),
                    shared: false,
                    idle: 0,
                }
            }; LINES],
        }
    }

    /// Whether the device server's thread has this line.
    #[must_use]
    pub fn is_shared(&self, line: u8) -> bool {
        let line = self.lines.get(usize::from(line));
        line.is_some_and(|line| line.shared)
    }

    /// Whether a function is silenced until its driver acknowledges an interrupt.
    #[must_use]
    pub fn is_silenced(&self, line: u8, function: u16) -> bool {
        let line = self.lines.get(usize::from(line));
        let mut members = line.into_iter().flat_map(|line| &line.members);
        members.any(|member| member.function == function && member.silenced)
    }

    fn line(&mut self, line: u8) -> Option<&mut Line<T>> {
        self.lines.get_mut(usize::from(line))
    }

    /// The result for a function that joins this line next. `None` if there is no such line.
    #[must_use]
    pub fn next(&self, line: u8) -> Option<Joined> {
        let line = self.lines.get(usize::from(line))?;
        Some(match (line.members.is_empty(), line.shared) {
            (true, _) => Joined::Alone,
            (false, false) => Joined::Second,
            (false, true) => Joined::More,
        })
    }

    /// Adds a function that is on no line, and is kept from interrupting, to this one. It stays silenced until
    /// [`Lines::allow`]. `None` if there is no such line.
    pub fn join(&mut self, line: u8, function: u16, tell: T) -> Option<Joined> {
        let joined = self.next(line)?;
        let line = self.line(line)?;
        line.shared = joined != Joined::Alone;
        line.members.push(Member {
            function,
            silenced: true,
            tell,
        });
        Some(joined)
    }

    /// Removes a function. Returns whether it was the last one, so that the line has to be detached.
    pub fn leave(&mut self, line: u8, function: u16) -> bool {
        let Some(line) = self.line(line) else {
            return false;
        };
        let before = line.members.len();
        line.members.retain(|member| member.function != function);
        let last = line.members.is_empty() && before > 0;
        if last {
            (line.shared, line.idle) = (false, 0);
        }
        last
    }

    /// Handles a ring of a shared line. `pulls` returns whether a function pulls it, and silences it if so; then `tell`
    /// interrupts its driver. Functions that were silenced before are skipped: whatever their status, they do not pull
    /// the line.
    pub fn rings(
        &mut self,
        line: u8,
        mut pulls: impl FnMut(u16) -> bool,
        mut tell: impl FnMut(&T),
    ) -> Next {
        let Some(line) = self.line(line) else {
            return Next::Wait;
        };
        let mut some = false;
        for member in line.members.iter_mut().filter(|member| !member.silenced) {
            if pulls(member.function) {
                member.silenced = true;
                some = true;
                tell(&member.tell);
            }
        }
        line.idle = if some {
            0
        } else {
            (line.idle + 1).min(MOST_IDLE)
        };
        match line.idle < MOST_IDLE {
            true => Next::Wait,
            false => Next::Pause,
        }
    }

    /// Allows a function to pull the line, which has been attached, or for which the driver has acknowledged an
    /// interrupt. Returns whether the function was silenced: the caller then has to enable its interrupts before
    /// anything else reads this state.
    pub fn allow(&mut self, line: u8, function: u16) -> bool {
        let members = self.line(line).map(|line| &mut line.members);
        let mut own = members.into_iter().flatten();
        let own = own.find(|member| member.function == function);
        own.is_some_and(|member| core::mem::take(&mut member.silenced))
    }
}

impl<T> Default for Lines<T> {
    fn default() -> Self {
        Lines::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{Joined, Lines, Next, MOST_IDLE};
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn who_is_alone_has_the_line_and_the_second_one_makes_it_the_servers() {
        let mut lines = Lines::new();
        assert_eq!(lines.next(10), Some(Joined::Alone));
        assert_eq!(lines.join(10, 1, ()), Some(Joined::Alone));
        assert_eq!(lines.join(11, 2, ()), Some(Joined::Alone));
        assert_eq!(lines.join(10, 3, ()), Some(Joined::Second));
        assert_eq!(lines.join(10, 4, ()), Some(Joined::More));
        assert_eq!(lines.join(16, 5, ()), None);
        assert_eq!(lines.next(16), None);
        assert!(!lines.leave(10, 1));
        assert!(!lines.leave(10, 4));
        // One function is left, and the server keeps the line.
        assert_eq!(lines.join(10, 1, ()), Some(Joined::More));
        assert!(!lines.leave(10, 1));
        assert!(!lines.leave(10, 1), "it is not there");
        assert!(lines.leave(10, 3), "nobody is left");
        assert!(!lines.leave(10, 3) && !lines.leave(16, 3));
        assert_eq!(lines.join(10, 1, ()), Some(Joined::Alone));
    }

    /// A function joins line 10 and may pull it.
    fn join<T>(lines: &mut Lines<T>, function: u16, tell: T) {
        lines.join(10, function, tell);
        lines.allow(10, function);
    }

    #[test]
    fn who_pulls_is_told_once_until_it_acknowledges() {
        let mut lines = Lines::new();
        for function in 1..=3 {
            join(&mut lines, function, function);
        }
        let mut told = Vec::new();
        let mut ring = |lines: &mut Lines<u16>, pulling: &[u16]| {
            told.clear();
            let next = lines.rings(10, |f| pulling.contains(&f), |f| told.push(*f));
            assert_eq!(next, Next::Wait);
            told.clone()
        };
        assert_eq!(ring(&mut lines, &[1, 3]), [1, 3]);
        assert_eq!(ring(&mut lines, &[1, 2, 3]), [2], "one is not told twice");
        assert!(lines.allow(10, 3));
        assert!(!lines.allow(10, 3), "there was nothing");
        assert_eq!(ring(&mut lines, &[1, 3]), [3]);
        // A function that joins again is no longer silenced.
        lines.leave(10, 1);
        join(&mut lines, 1, 1);
        assert_eq!(ring(&mut lines, &[1]), [1]);
        assert!(!lines.allow(16, 1) && !lines.allow(11, 1));
        // `is_silenced` reports it: the driver of 2 was interrupted and has not acknowledged.
        assert!(lines.is_silenced(10, 2) && !lines.is_silenced(10, 4));
        assert!(lines.allow(10, 2) && !lines.is_silenced(10, 2));
        assert!(lines.is_shared(10) && !lines.is_shared(11) && !lines.is_shared(16));
        assert!(!lines.is_silenced(16, 2));
    }

    #[test]
    fn a_line_that_rings_for_nobody_is_looked_at_now_and_then() {
        let mut lines = Lines::new();
        join(&mut lines, 1, ());
        join(&mut lines, 2, ());
        let mut ring = |pulling: bool| {
            let next = lines.rings(10, |f| pulling && f == 1, |()| ());
            lines.allow(10, 1);
            next
        };
        for _ in 1..MOST_IDLE {
            assert_eq!(ring(false), Next::Wait);
        }
        for _ in 0..100 {
            assert_eq!(ring(false), Next::Pause, "S2: a line keeps the processor");
        }
        assert_eq!(
            ring(true),
            Next::Wait,
            "and those on it are told all the same"
        );
        assert_eq!(ring(false), Next::Wait);
    }

    /// A device, its driver, and their counts.
    #[derive(Clone, Default)]
    struct Side {
        /// The device has reason to interrupt.
        reason: bool,
        /// It may not pull the line.
        silenced: bool,
        /// The driver's thread has one or more interrupts.
        told: bool,
        raised: u64,
        handled: u64,
    }

    /// Functions on one line, some of whose drivers misbehave, in any order of steps: whatever these do, a good
    /// driver's device is served after each interrupt, within one ring.
    #[test]
    fn no_interrupt_of_a_good_driver_is_lost() {
        for seed in 0..400 {
            let mut random = Random(seed);
            let count = 2 + random.below(3);
            let mut sides = vec![Side::default(); count];
            let mut lines = Lines::new();
            for function in 0..count {
                join(&mut lines, function as u16, function);
            }
            // The first driver is good. The others never acknowledge, or always do, or come and go.
            for _ in 0..400 {
                let who = random.below(count);
                match random.below(6) {
                    0 | 1 => {
                        sides[who].reason = true;
                        sides[who].raised += 1;
                    }
                    2 if who != 0 => {
                        // Acknowledges without having served the device.
                        if lines.allow(10, who as u16) {
                            sides[who].silenced = false;
                        }
                    }
                    3 if who != 0 => {
                        lines.leave(10, who as u16);
                        let reason = random.below(2) == 0;
                        comes(&mut lines, &mut sides, who, reason);
                    }
                    _ => step(&mut lines, &mut sides),
                }
                check(&lines, &sides);
            }
            for _ in 0..2 {
                step(&mut lines, &mut sides);
            }
            assert!(!sides[0].reason, "S2: an interrupt is lost, seed {seed}");
            assert!(sides[0].handled <= sides[0].raised, "told of nothing");
        }
    }

    /// A driver claims a function, which may have reason to interrupt and may not, and attaches it, while the line
    /// rings for the first function: before it joins, when it has joined, and when it may pull.
    fn comes(lines: &mut Lines<usize>, sides: &mut [Side], who: usize, reason: bool) {
        sides[who] = Side {
            reason,
            silenced: true,
            ..Side::default()
        };
        ring(lines, sides);
        lines.join(10, who as u16, who);
        check(lines, sides);
        ring(lines, sides);
        check(lines, sides);
        assert!(!sides[who].told, "told of what it could not pull for");
        if lines.allow(10, who as u16) {
            sides[who].silenced = false;
        }
        check(lines, sides);
        ring(lines, sides);
    }

    /// The first function has reason to interrupt, and the line rings.
    fn ring(lines: &mut Lines<usize>, sides: &mut [Side]) {
        sides[0].reason = true;
        sides[0].raised += 1;
        step(lines, sides);
    }

    /// Checks that the known state of the functions is right.
    fn check(lines: &Lines<usize>, sides: &[Side]) {
        for (function, side) in sides.iter().enumerate() {
            assert_eq!(
                lines.is_silenced(10, function as u16),
                side.silenced,
                "S2: who is silenced does not pull the line, and nobody else is passed by"
            );
        }
    }

    /// The line rings if a function pulls it, and the good driver serves its device.
    fn step(lines: &mut Lines<usize>, sides: &mut [Side]) {
        if sides.iter().any(|side| side.reason && !side.silenced) {
            let mut told = Vec::new();
            let next = lines.rings(
                10,
                |function| {
                    let side = &mut sides[usize::from(function)];
                    side.silenced |= side.reason;
                    side.reason
                },
                |who| told.push(*who),
            );
            assert_eq!(next, Next::Wait);
            for who in told {
                sides[who].told = true;
            }
            assert!(
                !sides.iter().any(|side| side.reason && !side.silenced),
                "the line is still pulled"
            );
        }
        let good = &mut sides[0];
        if core::mem::take(&mut good.told) {
            good.reason = false;
            good.handled += 1;
            if lines.allow(10, 0) {
                good.silenced = false;
            }
        }
    }

    /// Numbers that follow from a seed.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (self.0 >> 33) as usize % end
        }
    }
}
