//! The machine's real-time clock: an MC146818 or a compatible one. It knows the date in whole seconds, UTC.

/// The clock's registers.
pub trait Registers {
    /// Reads a register.
    fn read(&mut self, register: u8) -> u8;
    /// Waits a moment, while the clock changes its registers.
    fn pause(&mut self);
}

/// Registers: the date, a byte each, and the two with the format.
const SECOND: u8 = 0x00;
const MINUTE: u8 = 0x02;
const HOUR: u8 = 0x04;
const DAY: u8 = 0x07;
const MONTH: u8 = 0x08;
const YEAR: u8 = 0x09;
const STATUS_A: u8 = 0x0a;
const STATUS_B: u8 = 0x0b;
/// The register in which firmware of PCs keeps the century, which the chip does not know.
const CENTURY: u8 = 0x32;

/// In [`STATUS_A`]: the registers are about to change.
const UPDATING: u8 = 0x80;
/// In [`STATUS_B`]: numbers are binary, not two decimal digits; hours go to 23, not to 12 twice.
const BINARY: u8 = 4;
const HOURS_24: u8 = 2;
/// In the hour, if it goes to 12: after noon.
const AFTERNOON: u8 = 0x80;

/// How often the clock is read before it is given up.
const TRIES: usize = 100;

/// The date in seconds since the beginning of 1970. `None` if there is no clock, or no valid date.
pub fn read(registers: &mut impl Registers) -> Option<u64> {
    const DATE: [u8; 7] = [SECOND, MINUTE, HOUR, DAY, MONTH, YEAR, CENTURY];
    let mut last = None;
    for _ in 0..TRIES {
        if registers.read(STATUS_A) & UPDATING != 0 {
            last = None;
            registers.pause();
            continue;
        }
        // A date that is read twice the same did not change meanwhile.
        let date = DATE.map(|register| registers.read(register));
        if last.replace(date) == Some(date) {
            return seconds(date, registers.read(STATUS_B));
        }
    }
    None
}

/// The date of these register values in seconds.
fn seconds(date: [u8; 7], format: u8) -> Option<u64> {
    let number = |byte: u8| match (format & BINARY != 0, byte >> 4, byte & 15) {
        (true, ..) => Some(u64::from(byte)),
        (false, tens @ 0..=9, ones @ 0..=9) => Some(u64::from(tens * 10 + ones)),
        _ => None,
    };
    let [second, minute, hour, day, month, year, century] = date;
    let hour = match (format & HOURS_24 != 0, hour & AFTERNOON != 0) {
        (true, _) => number(hour)?,
        (false, afternoon) => {
            let hour = number(hour & !AFTERNOON)?;
            let twelve = (1..=12).contains(&hour).then_some(hour % 12)?;
            twelve + if afternoon { 12 } else { 0 }
        }
    };
    let year = number(year).filter(|year| *year < 100)?;
    let year = match number(century) {
        Some(century @ 19..=29) => century * 100 + year,
        // No century is kept. This clock did not exist before 1984.
        _ if year < 84 => 2000 + year,
        _ => 1900 + year,
    };
    let (second, minute) = (number(second)?, number(minute)?);
    let (day, month) = (number(day)?, number(month)?);
    let sound = second < 60 && minute < 60 && hour < 24 && (1..=12).contains(&month);
    if !sound || !(1..=days(year, month)).contains(&day) || year < 1970 {
        return None;
    }
    let before = (1970..year).map(|year| 337 + days(year, 2));
    let before = before.chain((1..month).map(|month| days(year, month)));
    let days = before.sum::<u64>() + day - 1;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Days of a month.
const fn days(year: u64, month: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::{read, seconds, Registers, BINARY, HOURS_24, STATUS_A, STATUS_B, TRIES, UPDATING};
    use alloc::vec::Vec;

    /// A clock with these register values one after the other, then the last one for ever.
    struct Clock {
        dates: Vec<[u8; 7]>,
        updating: usize,
        reads: usize,
        format: u8,
    }

    impl Registers for Clock {
        fn read(&mut self, register: u8) -> u8 {
            match register {
                STATUS_A if self.updating > 0 => {
                    self.updating -= 1;
                    UPDATING
                }
                STATUS_A => 0,
                STATUS_B => self.format,
                _ => {
                    let places = [0x00, 0x02, 0x04, 0x07, 0x08, 0x09, 0x32];
                    let place = places.iter().position(|place| *place == register).unwrap();
                    let date = (self.reads / 7).min(self.dates.len() - 1);
                    self.reads += 1;
                    self.dates[date][place]
                }
            }
        }

        fn pause(&mut self) {}
    }

    const DECIMAL: u8 = HOURS_24;
    /// 2026-11-23 13:07:59, which is 1795439279.
    const DATE: [u8; 7] = [0x59, 0x07, 0x13, 0x23, 0x11, 0x26, 0x20];
    const SECONDS: u64 = 1_795_439_279;

    #[test]
    fn a_date_in_every_form() {
        assert_eq!(seconds(DATE, DECIMAL), Some(SECONDS));
        let with = |place: usize, byte: u8, format| {
            let mut date = DATE;
            date[place] = byte;
            seconds(date, format)
        };
        assert_eq!(with(2, 0x81, 0), Some(SECONDS), "one in the afternoon");
        assert_eq!(with(2, 0x12, 0), Some(SECONDS - 13 * 3600), "midnight");
        assert_eq!(with(2, 0x92, 0), Some(SECONDS - 3600), "noon");
        let binary = [59, 7, 13, 23, 11, 26, 20];
        assert_eq!(seconds(binary, BINARY | HOURS_24), Some(SECONDS));
        assert_eq!(with(6, 0, DECIMAL), Some(SECONDS), "without a century");
        assert_eq!(with(6, 0xff, DECIMAL), Some(SECONDS));
        assert_eq!(seconds([0, 0, 0, 1, 1, 0x70, 0x19], DECIMAL), Some(0));
        let leap = [0, 0, 0, 0x29, 2, 0, 0x20];
        assert_eq!(seconds(leap, DECIMAL), Some(951_782_400));
    }

    #[test]
    fn what_is_no_date_is_none() {
        let wrong = [
            (0, 0x60),
            (0, 0x1a),
            (1, 0x60),
            (2, 0x24),
            (3, 0x31),
            (3, 0),
            (4, 0),
            (4, 0x13),
            (5, 0xff),
        ];
        for (place, byte) in wrong {
            let mut date = DATE;
            date[place] = byte;
            assert_eq!(seconds(date, DECIMAL), None, "{place} {byte:x}");
        }
        assert_eq!(seconds([0, 0, 0, 0x29, 2, 0x26, 0x20], DECIMAL), None);
        assert_eq!(seconds([0xff; 7], 0xff), None, "there is no clock");
        for hour in [0, 0x13, 0x80] {
            let mut date = DATE;
            date[2] = hour;
            assert_eq!(seconds(date, 0), None, "{hour:x} of twelve");
        }
    }

    #[test]
    fn a_clock_that_changes_while_it_is_read() {
        let clock = |dates: &[[u8; 7]], updating| Clock {
            dates: dates.to_vec(),
            updating,
            reads: 0,
            format: DECIMAL,
        };
        let mut earlier = DATE;
        earlier[0] = 0x58;
        let mut changes = clock(&[earlier, DATE, DATE], 3);
        assert_eq!(read(&mut changes), Some(SECONDS));
        assert_eq!(read(&mut clock(&[DATE], TRIES)), None, "it never ends");
        let restless: Vec<_> = (0..=TRIES).map(|n| [[n as u8; 7], DATE][n % 2]).collect();
        assert_eq!(read(&mut clock(&restless, 0)), None);
    }
}
