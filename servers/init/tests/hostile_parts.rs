//! Decodes hostile parts of images and hostile requests to start a program. Whatever their bytes are, init's memory
//! suffices for as many of them as it may keep.

// This file is only a test; built without tests, it is an empty program.
#![cfg_attr(not(test), allow(dead_code, unused_imports))]

use allocated::{counted, Allocated};
use fastrand::Rng;
use fermata_init::{Part, MAX_PART};
use proto::MAX_BULK;
use services::process::{Program, Start, Stdio, MAX_JOB};

#[cfg(not(test))]
fn main() {}

/// The smallest heap of init.
const HEAP: usize = 2 << 20;
/// How much of it decoding one message may take for the moment.
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

/// The longest list that fits in `length` bytes, behind the bytes of `head`.
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
        // A job may have this many processes that are being rebuilt.
        assert!(kept * MAX_JOB <= HEAP / 2, "{kept} bytes kept");
        part.is_ok()
    };
    let most = MAX_PART as usize;
    let mut list = longest(&sample[..1], most);
    // Between the format byte and the list of names: an empty name, and not stopped.
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
    // The list is that of the arguments, of the environment, or of the streams; everything before it is empty.
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
