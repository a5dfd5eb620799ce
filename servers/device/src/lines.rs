//! Interrupt lines of PCI functions, which are levels, and who is told when one rings.
//!
//! A function alone on its line needs nobody: the kernel tells the driver's thread, and masks the line until that waits
//! again. From when a second function joins until the last one leaves, a thread of the device server has the line. When
//! it rings, that thread keeps each function that pulls it from pulling, tells the function's driver, and waits for the
//! next ring at once: the line is up again for all others. A driver's acknowledgement lets its function pull again. So
//! who never acknowledges has silenced its own function.
//!
//! A function says that it has reason to interrupt whether it may pull the line or not. So [`Lines`] must know at any
//! time which functions may not: one that joins has been kept from interrupting since it was claimed.

use alloc::vec::Vec;

/// Lines that there can be.
pub const LINES: usize = 16;

/// Rings in a row for which no function was pulling, until the line is looked at only now and then.
const MOST_IDLE: u32 = 16;

/// A function on a line, and how its driver is told.
#[derive(Debug)]
struct Member<T> {
    function: u16,
    /// It is kept from interrupting: until its line has been attached, and when it has pulled, until its driver
    /// acknowledges.
    silenced: bool,
    tell: T,
}

#[derive(Debug)]
struct Line<T> {
    members: Vec<Member<T>>,
    /// The device server's thread has it.
    shared: bool,
    /// Rings in a row for which no function was pulling.
    idle: u32,
}

/// What is to be done when a function has joined a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// It is alone: the kernel is to tell its driver.
    Alone,
    /// It is the second one: the line is to be the device server's, and no longer the first one's.
    Second,
    /// Nothing: the line is the device server's.
    More,
}

/// What is to be done when a line has rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for the next ring.
    Wait,
    /// Leave the line masked for a while first: something pulls it that no function admits.
    Pause,
}

/// All lines. A driver is told by a `T`.
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

    /// Whether a function was kept from interrupting, and its driver has not acknowledged that yet.
    #[must_use]
    pub fn is_silenced(&self, line: u8, function: u16) -> bool {
        let line = self.lines.get(usize::from(line));
        let mut members = line.into_iter().flat_map(|line| &line.members);
        members.any(|member| member.function == function && member.silenced)
    }

    fn line(&mut self, line: u8) -> Option<&mut Line<T>> {
        self.lines.get_mut(usize::from(line))
    }

    /// What a function will be that joins this line next. `None`: there is no such line.
    #[must_use]
    pub fn next(&self, line: u8) -> Option<Joined> {
        let line = self.lines.get(usize::from(line))?;
        Some(match (line.members.is_empty(), line.shared) {
            (true, _) => Joined::Alone,
            (false, false) => Joined::Second,
            (false, true) => Joined::More,
        })
    }

    /// A function that is on no line, and is kept from interrupting, joins this one. It stays silenced until
    /// [`Lines::allow`]. `None`: there is no such line.
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

    /// A function leaves. Whether it was the last one: the line is to be nobody's.
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

    /// A shared line has rung. `pulls` says whether a function pulls it, and keeps it from pulling if so; then its
    /// driver is told. Nobody is told of a function that was silenced before: whatever it says, it does not pull the
    /// line.
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

    /// A function may pull the line: this has been attached, or the driver has acknowledged an interrupt. Whether the
    /// function was silenced: it is to pull the line again if it has reason to, before anybody else asks.
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
        // One is left, and the line stays the server's.
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
        // Who comes anew begins anew.
        lines.leave(10, 1);
        join(&mut lines, 1, 1);
        assert_eq!(ring(&mut lines, &[1]), [1]);
        assert!(!lines.allow(16, 1) && !lines.allow(11, 1));
        // It is told who is silenced: 2 was told and has not acknowledged.
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

    /// A device, its driver, and what came of them.
    #[derive(Clone, Default)]
    struct Side {
        /// The device has reason to interrupt.
        reason: bool,
        /// It may not pull the line.
        silenced: bool,
        /// The driver's thread has an interrupt, or several.
        told: bool,
        raised: u64,
        handled: u64,
    }

    /// Functions on one line, some of whose drivers misbehave, in any order of steps: whatever those do, a good
    /// driver's device is handled after each interrupt, within one ring.
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
            // The first one is good. The others never acknowledge, or always do, or come and go.
            for _ in 0..400 {
                let who = random.below(count);
                match random.below(6) {
                    0 | 1 => {
                        sides[who].reason = true;
                        sides[who].raised += 1;
                    }
                    2 if who != 0 => {
                        // Without having looked at the device.
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

    /// What is known of the functions is so.
    fn check(lines: &Lines<usize>, sides: &[Side]) {
        for (function, side) in sides.iter().enumerate() {
            assert_eq!(
                lines.is_silenced(10, function as u16),
                side.silenced,
                "S2: who is silenced does not pull the line, and nobody else is passed by"
            );
        }
    }

    /// The line rings if somebody pulls it, and the good driver does what it is told to.
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
