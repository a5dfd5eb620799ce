//! A hostile client that takes all the room in the file system, by everything that takes room.

use super::counters::{Counters, Outcome, ROOM};
use super::table::PLACE;
use crate::harness::Random;
use alloc::format;
use alloc::string::String;
use proto::Error;
use rt::fs::{self, Flags};
use rt::time;

/// The unit of a file in the file system: its last byte takes as much room as the whole unit.
const PIECE: u64 = 64 * 1024;
/// Most files of a client.
const FILES: u64 = 40;

struct Filler {
    random: Random,
    place: String,
}

impl Filler {
    /// The path of one of its files.
    fn path(&mut self) -> String {
        let number = self.random.below(FILES);
        format!("{}/{number}", self.place)
    }

    /// Does something that takes room.
    fn take(&mut self) -> Result<(), Error> {
        let path = self.path();
        let far = self.random.below(1 << 30);
        match self.random.below(40) {
            0 => fs::mkdir(&format!("{path}{:0240}", far), 0o755),
            1 => fs::symlink(&"x".repeat(4000), &format!("{path}-{far}")),
            2 => fs::link(&self.path(), &format!("{path}-{far}")),
            3 => fs::rename(&self.path(), &path),
            _ => self.write(&path, far),
        }
    }

    /// Writes to a file, mostly with holes.
    fn write(&mut self, path: &str, far: u64) -> Result<(), Error> {
        let flags = Flags {
            create: true,
            ..Flags::default()
        };
        let file = fs::File::open(path, flags, 0o644)?;
        let begin = far * PIECE;
        for n in 0..64 {
            file.write(begin + (n + 1) * PIECE - 1, b"x")?;
        }
        match self.random.below(20) {
            0 => fs::truncate(file.ino(), self.random.number()),
            // A file without a name is freed when the client ends.
            1 => fs::unlink(path),
            _ => Ok(()),
        }
    }
}

/// The program: takes room until that is refused, holds it for a while, frees some, and repeats.
pub fn run(seed: u64) -> u8 {
    let Some(Ok(counters)) = rt::start::passed(0).map(Counters::at) else {
        return 1;
    };
    let mut filler = Filler {
        random: Random(seed),
        place: format!("{PLACE}/room{}", seed % 3),
    };
    let _ = fs::mkdir(PLACE, 0o755);
    let _ = fs::mkdir(&filler.place, 0o755);
    loop {
        match filler.take() {
            Ok(()) => {}
            Err(Error::NoMemory) => {
                counters.count(ROOM, Outcome::Refused);
                time::sleep(filler.random.below(2_000_000));
                if filler.random.below(4) == 0 {
                    let path = filler.path();
                    let _ = fs::unlink(&path);
                }
            }
            Err(_) => counters.count(ROOM, Outcome::Code),
        }
        counters.count(ROOM, Outcome::Done);
    }
}
