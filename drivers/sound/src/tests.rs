extern crate std;

use crate::{tone, wav, Cards, Kind, Player, Session};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use proto::Error;
use services::sound::Format;

const KIND: Kind = Kind {
    rate: 8000,
    channels: 1,
    format: Format::S16,
};

/// A card with a ring, whose drivers die now and then: in any request, before or after they have done it.
struct Card {
    random: fastrand::Rng,
    /// How many more drivers die.
    deaths: u32,
    ring: Vec<u8>,
    given: u64,
    heard: Vec<u8>,
    driver: u64,
    drained: bool,
}

const RING: usize = 4096;

impl Card {
    /// Plays a part of the ring.
    fn play(&mut self) {
        let most = self.ring.len() / 2;
        let part = 2 * self.random.usize(0..=most);
        let played: Vec<u8> = self.ring.drain(..part).collect();
        self.heard.extend(played);
    }

    /// Whether the driver dies now.
    fn dies(&mut self) -> bool {
        let dies = self.deaths > 0 && self.random.u32(..8) == 0;
        if dies {
            self.deaths -= 1;
            self.driver += 1;
            self.ring.clear();
            self.given = 0;
        }
        dies
    }
}

#[derive(Clone)]
struct All(Rc<RefCell<Card>>);

struct One(Rc<RefCell<Card>>, u64);

impl Cards for All {
    type Session = One;

    fn open(&mut self) -> Result<One, Error> {
        let driver = self.0.borrow().driver;
        Ok(One(Rc::clone(&self.0), driver))
    }
}

impl One {
    fn ask<T>(&self, f: impl FnOnce(&mut Card) -> T) -> Result<T, Error> {
        let mut card = self.0.borrow_mut();
        card.play();
        if card.driver != self.1 || card.dies() {
            return Err(Error::Broken);
        }
        let result = f(&mut card);
        match card.dies() {
            true => Err(Error::Broken),
            false => Ok(result),
        }
    }
}

impl Session for One {
    fn begin(&mut self, kind: Kind) -> Result<(), Error> {
        assert_eq!(kind, KIND);
        self.ask(|_| ())
    }

    fn write(&mut self, samples: &[u8]) -> Result<u64, Error> {
        assert!(samples.len().is_multiple_of(2), "half a frame");
        self.ask(|card| {
            let room = RING - card.ring.len();
            let taken = samples.len().min(room / 2 * 2);
            card.ring.extend(&samples[..taken]);
            card.given += taken as u64;
            taken as u64
        })
    }

    fn played(&mut self) -> Result<u64, Error> {
        self.ask(|card| card.given - card.ring.len() as u64)
    }

    fn room(&mut self) -> Result<(), Error> {
        self.ask(|card| {
            while card.ring.len() > RING / 2 {
                card.play();
            }
        })
    }

    fn drain(&mut self) -> Result<(), Error> {
        self.ask(|card| {
            card.heard.append(&mut card.ring);
            card.drained = true;
        })
    }
}

fn card(seed: u64, deaths: u32) -> All {
    All(Rc::new(RefCell::new(Card {
        random: fastrand::Rng::with_seed(seed),
        deaths,
        ring: Vec::new(),
        given: 0,
        heard: Vec::new(),
        driver: 0,
        drained: false,
    })))
}

/// Plays so many numbers, in pieces, some of which end in the middle of a number. Returns what was heard.
fn heard(seed: u64, deaths: u32, count: u16) -> Vec<u16> {
    let card = card(seed, deaths);
    let bytes: Vec<u8> = (0..count).flat_map(u16::to_le_bytes).collect();
    let mut random = fastrand::Rng::with_seed(!seed);
    let mut player = Player::begin(card.clone(), KIND).unwrap();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(random.usize(1..=rest.len().min(9000)));
        player.write(piece).unwrap();
        assert!(
            player.kept.len() <= RING + 1,
            "more is kept than a driver keeps"
        );
        rest = behind;
    }
    player.drain().unwrap();
    let card = card.0.borrow();
    let numbers = card.heard.as_chunks::<2>().0.iter();
    numbers.map(|bytes| u16::from_le_bytes(*bytes)).collect()
}

#[test]
fn all_is_heard_once_if_nobody_dies() {
    for seed in 0..20 {
        let all: Vec<u16> = (0..20_000).collect();
        assert_eq!(heard(seed, 0, 20_000), all);
    }
}

/// No number is left out, whenever a driver dies. After a death, only some of the numbers just before may be heard
/// again.
#[test]
fn nothing_is_left_out_whoever_dies() {
    for seed in 0..200 {
        let heard = heard(seed, 40, 20_000);
        let (mut next, mut back) = (0, 0);
        for number in heard {
            assert!(
                number <= next,
                "seed {seed}: {next} was left out, {number} came"
            );
            if number < next {
                back += 1;
                assert!(next - number <= RING as u16, "seed {seed}: far back");
            }
            next = number + 1;
        }
        assert_eq!(next, 20_000, "seed {seed}");
        assert!(back <= 41, "seed {seed}: again and again without a death");
    }
}

#[test]
fn a_card_whose_drivers_all_die_is_given_up() {
    let card = card(1, u32::MAX);
    let mut player = Player::begin(card, KIND);
    let done = player.as_mut().map_err(|error| *error).and_then(|player| {
        let samples = [0; 8192];
        (0..10).try_for_each(|_| player.write(&samples).and_then(|()| player.drain()))
    });
    // The driver makes progress now and then, or the card is given up: the client must not see another error, nor
    // wait for ever.
    assert!(matches!(done, Ok(()) | Err(Error::Broken)));
}

/// A driver that always announces room, takes so much of what it is given, and reports so much as played.
#[derive(Clone)]
struct Liar {
    takes: u64,
    played: u64,
    asked: Rc<RefCell<u32>>,
}

impl Liar {
    fn count(&self) {
        *self.asked.borrow_mut() += 1;
        assert!(*self.asked.borrow() < 10_000, "S3: a driver is given up");
    }
}

impl Session for Liar {
    fn begin(&mut self, _: Kind) -> Result<(), Error> {
        Ok(())
    }
    fn write(&mut self, _: &[u8]) -> Result<u64, Error> {
        self.count();
        Ok(self.takes)
    }
    fn played(&mut self) -> Result<u64, Error> {
        Ok(self.played)
    }
    fn room(&mut self) -> Result<(), Error> {
        self.count();
        Ok(())
    }
    fn drain(&mut self) -> Result<(), Error> {
        self.count();
        Ok(())
    }
}

impl Cards for Liar {
    type Session = Liar;

    fn open(&mut self) -> Result<Liar, Error> {
        Ok(self.clone())
    }
}

#[test]
fn a_card_whose_driver_has_room_and_takes_nothing_is_given_up() {
    for (takes, played) in [(0, 0), (0, u64::MAX), (u64::MAX, 0)] {
        let liar = Liar {
            takes,
            played,
            asked: Rc::default(),
        };
        let mut player = Player::begin(liar, KIND).unwrap();
        let done = player.write(&[0; 8192]).and_then(|()| player.drain());
        assert_eq!(done, Err(Error::Broken), "{takes} {played}");
    }
}

/// A card that takes a little each time, after it has announced room often.
#[test]
fn a_card_that_takes_little_is_waited_for() {
    struct Slow(u32);
    impl Session for Slow {
        fn begin(&mut self, _: Kind) -> Result<(), Error> {
            Ok(())
        }
        fn write(&mut self, _: &[u8]) -> Result<u64, Error> {
            self.0 += 1;
            Ok(if self.0.is_multiple_of(100) { 2 } else { 0 })
        }
        fn played(&mut self) -> Result<u64, Error> {
            Ok(0)
        }
        fn room(&mut self) -> Result<(), Error> {
            Ok(())
        }
        fn drain(&mut self) -> Result<(), Error> {
            Ok(())
        }
    }
    struct Slows;
    impl Cards for Slows {
        type Session = Slow;
        fn open(&mut self) -> Result<Slow, Error> {
            Ok(Slow(0))
        }
    }
    let mut player = Player::begin(Slows, KIND).unwrap();
    assert_eq!(player.write(&[0; 64]), Ok(()), "it takes all in the end");
}

#[test]
fn a_tone_is_a_sine() {
    for (phase, expected) in [(0, 0), (1 << 30, 16_384), (1 << 31, 0), (3 << 30, -16_384)] {
        let found = i32::from(tone::sine(phase));
        assert!((found - expected).abs() <= 8, "{phase:#x}: {found}");
    }
    for phase in (0..=u32::MAX).step_by(99_991) {
        let turn = f64::from(phase) / 4_294_967_296.0 * std::f64::consts::TAU;
        let expected = 16_384.0 * turn.sin();
        let found = f64::from(tone::sine(phase));
        assert!(
            (found - expected).abs() < 20.0,
            "{phase:#x}: {found} {expected}"
        );
    }
    // As many periods as asked for.
    let ups = (1..44_100)
        .filter(|n| tone::sample(440, 44_100, n - 1) < 0 && tone::sample(440, 44_100, *n) >= 0);
    assert_eq!(ups.count(), 439);
}

/// A file with such a head.
fn file(kind: [u8; 16], before: &[u8], data: u32) -> Vec<u8> {
    let mut file = b"RIFF....WAVE".to_vec();
    file.extend(before);
    file.extend(b"fmt \x10\0\0\0");
    file.extend(kind);
    file.extend(b"data");
    file.extend(data.to_le_bytes());
    file
}

const CD: [u8; 16] = [1, 0, 2, 0, 0x44, 0xac, 0, 0, 0x10, 0xb1, 2, 0, 4, 0, 16, 0];

#[test]
fn files_are_read() {
    let kind = Kind {
        rate: 44_100,
        channels: 2,
        format: Format::S16,
    };
    assert_eq!(wav::head(&file(CD, b"", 8)), Ok((kind, 44, 8)));
    let list = b"LIST\x03\0\0\0abc\0";
    assert_eq!(wav::head(&file(CD, list, 9)), Ok((kind, 56, 9)));
    let wide: Vec<u8> = wav::widen(&[0, 128, 255]).collect();
    assert_eq!(wide, [0x00, 0x80, 0, 0, 0x00, 0x7f]);
}

#[test]
fn hostile_files_are_refused() {
    let good = file(CD, b"", u32::MAX);
    for length in 0..good.len() {
        assert!(wav::head(&good[..length]).is_err(), "{length}");
    }
    for (place, value) in [(0, 3), (2, 0), (14, 24), (14, 0)] {
        let mut kind = CD;
        kind[place] = value;
        assert!(wav::head(&file(kind, b"", 4)).is_err(), "{place}");
    }
    for before in [
        &b"LIST\xff\xff\xff\xff"[..],
        b"LIST\xfe\xff\xff\x7f",
        b"data\0\0\0\0",
    ] {
        assert!(wav::head(&file(CD, before, 4)).is_err());
    }
    let mut random = fastrand::Rng::with_seed(20_261_128);
    for _ in 0..20_000 {
        let mut file = good.clone();
        for _ in 0..random.usize(1..6) {
            let place = random.usize(..file.len());
            file[place] = random.u8(..);
        }
        if let Ok((kind, at, _)) = wav::head(&file) {
            assert!(at <= file.len() && kind.channels > 0 && kind.rate > 0);
        }
    }
}
