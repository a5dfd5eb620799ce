//! What init decodes of what programs send: parts of images and requests to start a program, that somebody has made
//! up. Whatever they are, init's memory is enough for as many as it may keep.

// The test is all there is; without it this is an empty program.
#![cfg_attr(not(test), allow(dead_code, unused_imports))]

use allocated::{counted, Allocated};
use fastrand::Rng;
use fermata_init::{Part, MAX_PART};
use proto::MAX_BULK;
use services::process::{Program, Start, Stdio, MAX_JOB};

#[cfg(not(test))]
fn main() {}

/// The smallest heap that init has.
const HEAP: usize = 2 << 20;
/// What one message may take of it while it is looked at.
const TRANSIENT: usize = HEAP / 2;

/// Changes some bytes, doubles or drops a piece, or fills the end with one byte up to `most` bytes.
fn change(random: &mut Rng, bytes: &mut Vec<u8>, most: usize) {
    for _ in 0..1 + random.usize(..4) {
        let at = random.usize(..bytes.len().max(1));
        let value = [0, 1, 0x7f, 0x80, 0xff, random.usize(..256) as u8][random.usize(..6)];
        match random.usize(..5) {
            0 => bytes.truncate(at),
            1 => {
                let piece = bytes[at..].to_vec();
                bytes.extend(piece);
            }
            2 => bytes.resize(most, value),
            3 => bytes.insert(at, value),
            _ if at < bytes.len() => bytes[at] = value,
            _ => {}
        }
        bytes.truncate(most);
    }
}

/// The longest list that `length` bytes can hold, `head` before it.
fn longest(head: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = head.to_vec();
    let mut count = length - head.len() - 3;
    for more in [true, true, false] {
        bytes.push((count & 0x7f) as u8 | if more { 0x80 } else { 0 });
        count >>= 7;
    }
    bytes.resize(length, 0);
    bytes
}

#[test]
fn parts_take_what_init_has() {
    let sample = Part {
        name: "demo".into(),
        stopped: true,
        names: vec![("demo-service".into(), 0x1000_0020)],
    }
    .to_bytes()
    .unwrap();
    let decode = |bytes: &[u8]| {
        let (part, Allocated { most, kept }) = counted(|| Part::from_bytes(bytes));
        assert!(most <= TRANSIENT, "{most} bytes");
        // As many processes as a job may have are being rebuilt at a time.
        assert!(kept * MAX_JOB <= HEAP / 2, "{kept} bytes kept");
        part.is_ok()
    };
    let most = MAX_PART as usize;
    let mut list = longest(&sample[..1], most);
    // Its form, no name, not stopped, names.
    list.splice(1..1, [0, 0]);
    list.truncate(most);
    decode(&list);
    let mut random = Rng::with_seed(1);
    let mut taken = 0;
    for _ in 0..100_000 {
        let mut bytes = sample.clone();
        change(&mut random, &mut bytes, most);
        taken += u32::from(decode(&bytes));
    }
    assert!(taken > 1000, "{taken} taken");
}

#[test]
fn requests_take_what_init_has() {
    let start = Start {
        args: vec!["demo".into(), "argument".into()],
        env: vec!["A=b".into()],
        stdio: vec![Stdio::Null, Stdio::Console],
        cwd: "/".into(),
    };
    let path = "/bin/demo".to_string();
    let sample = Program { path, start }.to_bytes().unwrap();
    let decode = |bytes: &[u8]| {
        let (program, Allocated { most, .. }) = counted(|| Program::from_bytes(bytes));
        assert!(most <= TRANSIENT, "{most} bytes");
        program.is_ok()
    };
    assert!(decode(&sample));
    // No path, arguments; no arguments, environment; neither, streams.
    for head in [&[0][..], &[0, 0], &[0, 0, 0]] {
        assert!(!decode(&longest(head, MAX_BULK)));
    }
    let mut random = Rng::with_seed(2);
    let mut taken = 0;
    for _ in 0..100_000 {
        let mut bytes = sample.clone();
        change(&mut random, &mut bytes, MAX_BULK);
        taken += u32::from(decode(&bytes));
    }
    assert!(taken > 1000, "{taken} taken");
}
