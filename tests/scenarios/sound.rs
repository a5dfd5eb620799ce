//! Sound: Linux's unmodified driver of a Sound Blaster 16 plays by ISA DMA, and QEMU records what is heard.

use super::legacy::build;
use super::place;
use crate::scenario::{Ctx, Failure, Run};
use std::collections::BTreeSet;
use std::path::Path;
use xtask_build::linux::{self, Driver, Program, Ungranted};
use xtask_build::project::{temp_dir, Project};

/// The samples that the program `tone` computes.
#[path = "../../drivers/sound/src/tone.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is a module of a library")]
mod tone;

const RATE: u32 = 44_100;
/// Bytes before the samples of a file.
const HEAD: usize = 44;
/// Most frames that a client keeps, which may be heard twice: those of a driver's ring, of a piece that is about to
/// go there, and of the part that the card may still hold.
const KEPT: u64 = 16_384 + 8192 + 2048;
/// Numbers in a sample.
const NUMBERS: u64 = 8192;

/// A file of samples of so many bits.
fn wav(rate: u32, channels: u16, bits: u16, samples: &[u8]) -> Vec<u8> {
    let frame = channels * bits / 8;
    let size = samples.len() as u32;
    let mut file = b"RIFF".to_vec();
    file.extend((size + 36).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0");
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate * u32::from(frame)).to_le_bytes());
    file.extend(frame.to_le_bytes());
    file.extend(bits.to_le_bytes());
    file.extend(b"data");
    file.extend(size.to_le_bytes());
    file.extend(samples);
    file
}

/// The recording: each frame has a sample for each ear.
fn heard(file: &Path) -> Result<Vec<[i16; 2]>, Failure> {
    let bytes = std::fs::read(file).map_err(|error| format!("what was heard: {error}"))?;
    let (frames, _) = bytes.get(HEAD..).unwrap_or_default().as_chunks::<4>();
    let frame = |f: &[u8; 4]| {
        [
            i16::from_le_bytes([f[0], f[1]]),
            i16::from_le_bytes([f[2], f[3]]),
        ]
    };
    Ok(frames.iter().map(frame).collect())
}

/// The recording from the first frame on that is not silence.
fn from_sound(frames: &[[i16; 2]]) -> &[[i16; 2]] {
    let first = frames.iter().position(|frame| *frame != [0, 0]);
    frames
        .get(first.unwrap_or(frames.len())..)
        .unwrap_or_default()
}

/// A tone and a file are heard exactly as computed; a file with another kind of samples sounds as it should. A second
/// client is refused, and so are senseless requests, and requests where there is no card.
pub(crate) fn plays(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let file = directory.path().join("heard.wav");
    // Frames that differ from each other.
    let counted: Vec<[i16; 2]> = (1..30_000i16).map(|n| [n, -n]).collect();
    let samples: Vec<u8> = counted
        .iter()
        .flatten()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    let bytes = vec![192; 11_025];
    let script = "\
tone 440 500
play /tmp/counted.wav
play /tmp/bytes.wav
tone 100 1000 & busybox sleep 0.3
tone 200 100
busybox sleep 2
tone 440
tone 0 100
play /tmp/no.wav
play /bin/busybox
play /tmp/fast.wav
echo on
";
    let run = Run::script(script)
        .add("/tmp/counted.wav", wav(RATE, 2, 16, &samples))
        .add("/tmp/bytes.wav", wav(22_050, 1, 8, &bytes))
        .add("/tmp/fast.wav", wav(96_000, 2, 16, &samples))
        .driver(Some(build("sb16")?))
        .sound(&file);
    let output = ctx.run(run.deterministic())?;
    let text = output.expect_status(0)?.text();
    let said: Vec<&str> = text.lines().take_while(|line| *line != "on").collect();
    let expected = [
        "tone: somebody else plays",
        "usage: tone HZ MS",
        "usage: tone HZ MS",
        "play: /tmp/no.wav: no such file or directory",
        "play: /bin/busybox: it is no WAV file",
        "play: /tmp/fast.wav: the card cannot play that",
    ];
    assert_eq!(said, expected, "{text}");

    let frames = heard(&file)?;
    let tone = tone(440, 500);
    // The tone's first sample is silence.
    let rest = from_sound(&frames);
    assert!(rest.starts_with(&tone[1..]), "the tone is another one");
    let rest = from_sound(&rest[tone.len() - 1..]);
    assert!(rest.starts_with(&counted), "the file is another one");
    // A quarter of a second of constant pressure, at another rate: QEMU makes the transitions.
    let rest = from_sound(&rest[counted.len()..]);
    let level = |frame: &&[i16; 2]| {
        frame
            .iter()
            .all(|sample| (16_000..=16_700).contains(sample))
    };
    let count = rest.iter().take(RATE as usize / 4).filter(level).count();
    assert!(count > 20_000 / 2, "{count} frames of 8 bits");
    let sum: usize = rest
        .iter()
        .skip(count)
        .filter(|frame| **frame != [0, 0])
        .count();
    assert!(sum > 40_000, "{sum} frames of the last tone");

    let none = ctx.run(Run::script("tone 440 100\n"))?;
    let why = "tone: there is no sound card: run --driver sb16\n";
    none.expect_stdout(why)?;
    Ok(())
}

/// The driver plays the same in the kernel as in a process; only the driver is there.
pub(crate) fn placed(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let file = directory.path().join("heard.wav");
    let run = Run::script("tone 440 500\nbusybox sleep 1\nps > /tmp/ps\ncat /tmp/ps\n")
        .driver(Some(build("sb16")?))
        .sound(&file)
        .place("sound=kernel");
    let output = ctx.run(run.deterministic())?;
    let text = output.expect_status(0)?.text();
    // A line for each process, which ends with its name, and below it one for each of its threads.
    let (mut name, mut inside) = ("", BTreeSet::new());
    for line in text.lines() {
        match place::address(line) {
            None => name = line.split_ascii_whitespace().last().unwrap_or_default(),
            Some(address) if address >= place::PLACES => drop(inside.insert(name)),
            Some(_) => {}
        }
    }
    assert_eq!(inside, BTreeSet::from(["sb16"]), "{text}");
    let frames = heard(&file)?;
    let wanted = tone(440, 500);
    assert!(
        from_sound(&frames).starts_with(&wanted[1..]),
        "the tone is another one"
    );
    Ok(())
}

/// A tone of so many milliseconds.
fn tone(hertz: u64, milliseconds: u64) -> Vec<[i16; 2]> {
    let frames = 0..u64::from(RATE) * milliseconds / 1000;
    frames
        .map(|number| [tone::sample(hertz, RATE.into(), number); 2])
        .collect()
}

/// The driver is killed at seeded instants while it plays: no call fails, and every frame is heard, in order. Some
/// frames just before a kill are heard twice.
pub(crate) fn kill(
    ctx: &mut Ctx,
    driver: Option<Program>,
    seed: u64,
    kills: u64,
) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let file = directory.path().join("heard.wav");
    let script = format!("trust /test/sounds {seed} {kills}\nbusybox sleep 1\n");
    let run = Run::script(script).driver(driver).sound(&file);
    let output = ctx.run(run.deterministic())?;
    let text = output.expect_status(0)?.text();
    let frames = text
        .strip_prefix(&format!("sounds: {kills} kills, "))
        .and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok())
        .ok_or_else(|| format!("the console holds\n{text}"))?;
    let found = Found::new(&heard(&file)?)?;
    let lost = found.heard.iter().position(|heard| !heard);
    assert_eq!(lost, None, "S3: a frame was not heard");
    let count = found.heard.len() as u64;
    assert_eq!(count, frames, "S3: the last ones were not heard");
    assert!(found.begun > 1, "nobody was killed while he played");
    ctx.note(format!(
        "seed {seed}, {kills} kills, {frames} frames, {} drivers were heard, {} gaps",
        found.begun, found.gaps
    ));
    Ok(())
}

/// Numbered frames, as `tests/guest/src/bin/sounds.rs` makes them.
fn frame(number: u64) -> [i16; 2] {
    [number % NUMBERS, number / NUMBERS].map(|part| part as i16 + 1)
}

/// The number of a frame.
fn number_of([low, high]: [i16; 2]) -> Option<u64> {
    let low = u64::try_from(low - 1).ok().filter(|low| *low < NUMBERS)?;
    Some(low + u64::try_from(high - 1).ok()? * NUMBERS)
}

/// What the recording has of numbered frames.
#[derive(Default)]
struct Found {
    /// By number.
    heard: Vec<bool>,
    /// How often a driver began, and how often there was silence.
    begun: u64,
    gaps: u64,
}

impl Found {
    /// QEMU plays what a driver had given it before it died to the end, for some milliseconds, while the next drivers
    /// begin: then the sum of all of them is heard.
    fn new(heard: &[[i16; 2]]) -> Result<Self, Failure> {
        let mut found = Found::default();
        // The frames that are heard now, of one driver after the other: those of the first drivers end first.
        let mut now: Vec<u64> = Vec::new();
        let mut was_silent = true;
        for (at, &all) in heard.iter().enumerate() {
            let is_silent = all == [0, 0];
            found.gaps += u64::from(is_silent && !was_silent);
            was_silent = is_silent;
            if is_silent {
                now.clear();
                continue;
            }
            let without = |numbers: &[u64]| {
                let minus = |[low, high]: [i16; 2], number: &u64| {
                    let frame = frame(*number);
                    [low - frame[0], high - frame[1]]
                };
                numbers.iter().fold(all, minus)
            };
            let ended = (0..now.len()).find(|ended| without(&now[*ended..]) == [0, 0]);
            let begins = || {
                let begins = |ended| {
                    let number = number_of(without(&now[ended..]))?;
                    // Near the frames that were heard last.
                    let far = found.heard.len() as u64;
                    (number <= far + KEPT && far <= number + KEPT).then_some((ended, number))
                };
                (0..=now.len()).find_map(begins)
            };
            match ended {
                Some(ended) => drop(now.drain(..ended)),
                None => {
                    let (ended, number) =
                        begins().ok_or_else(|| format!("frame {at} is noise: {all:?}"))?;
                    now.drain(..ended);
                    now.push(number);
                    found.begun += 1;
                }
            }
            for number in &mut now {
                let index = *number as usize;
                found.heard.resize(found.heard.len().max(index + 1), false);
                found.heard[index] = true;
                *number += 1;
            }
        }
        Ok(found)
    }
}

/// A driver that asks for channels and memory that are not its own is refused with a reason each time, and goes on
/// with its own.
pub(crate) fn channels(ctx: &mut Ctx) -> Result<(), Failure> {
    let project = Project::find().map_err(|error| error.message)?;
    let driver = Driver {
        name: "wild",
        device: "sb16",
        service: "sound",
        grants: "isa=22c+1 channel=5",
        sources: &[],
        parameter: "",
    };
    let source = Path::new("drivers/linux/tests/channel.c");
    let program = linux::build_own(&project, &driver, source, Ungranted::Ends);
    let program = program.map_err(|error| error.message)?;
    let run = Run::script("busybox sleep 1\necho on\n").driver(Some(program));
    let output = ctx.run(run)?;
    let text = output.expect_status(0)?.text();
    let numbers =
        "wild: channels of ISA DMA have numbers below 8, of which 4 is the controller's own\n";
    let said = [
        "wild: the boot manifest does not give the ISA DMA channel 1 to this driver\n",
        numbers,
        numbers,
        "wild: this driver does not have the ISA DMA channel 5\n",
        "wild: this driver has the ISA DMA channel 5 already, or a part\n",
        "wild: this driver does not have the physical memory 0x1f0000 to 0x1f0fff\n",
        "wild: ISA DMA reaches the first 16 MB\n",
        "wild: this driver does not have the ISA DMA channel 5\n",
        "wild: all was as it should be\n",
        "wild: error -19\n",
    ]
    .concat();
    assert!(text.contains(&said), "{text}");
    assert!(
        text.contains("the server of sound has ended again and again"),
        "{text}"
    );
    assert!(text.ends_with("on\n"), "{text}");
    Ok(())
}

/// A client that comes second, has not begun, or makes senseless requests is refused, and the client that plays
/// meanwhile is heard to the last frame.
pub(crate) fn hostile(ctx: &mut Ctx) -> Result<(), Failure> {
    let directory = temp_dir().map_err(|error| error.message)?;
    let file = directory.path().join("heard.wav");
    let run = Run::script("/test/sounds hostile\nbusybox sleep 1\n");
    let run = run.driver(Some(build("sb16")?)).sound(&file);
    let output = ctx.run(run.deterministic())?;
    let text = output.expect_status(0)?.text();
    assert_eq!(text, HOSTILE);
    let frames: Vec<[i16; 2]> = (0..15 * 2048).map(frame).collect();
    let heard = heard(&file)?;
    assert!(
        from_sound(&heard).starts_with(&frames),
        "S2: what plays is not heard, or not to its end"
    );
    Ok(())
}

/// The answers that a hostile client gets.
const HOSTILE: &str = "\
begin while another one plays: exists already
write to its ring: invalid argument
ask how far it is: invalid argument
wait for its room: invalid argument
wait for its end: invalid argument
122880 of 122880 bytes were played
half a frame: invalid argument
more than there may be: invalid argument
nothing: DONE
what the card cannot: not supported
what the card cannot: not supported
what the card cannot: not supported
what the card cannot: not supported
what the card cannot: not supported
what the card cannot: not supported
what the card cannot: not supported
what the card cannot: not supported
what the card cannot: not supported
write without it: invalid argument
4096 bytes were played
";
