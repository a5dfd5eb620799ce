//! A Linux program: `linux_program [FILTER]` sorts the lines of a file of 1 MB with busybox; measured from the
//! request to start it to the notice of its end.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use benches::loops;
use benches::report::{Outcome, Report, Sample};
use benches::run::Must;
use rt::process::{Client, Start, Status, Stdio};

rt::entry!(main);

/// The file to sort; the host puts it into the boot archive.
const INPUT: &str = "/bench/input";
/// Where the sorted lines are written.
const OUTPUT: &str = "/tmp/bench-output";

fn main() -> u8 {
    u8::from(!Report::from_arguments().bench("sort", "run", sort))
}

fn sort() -> Outcome {
    let linux = Client::new("linux").must("the Linux personality")?;
    let start = Start {
        args: ["sort", INPUT].map(ToString::to_string).to_vec(),
        env: Vec::new(),
        stdio: [
            Stdio::Null,
            Stdio::File {
                path: OUTPUT.to_string(),
                append: false,
            },
            Stdio::Console,
        ]
        .to_vec(),
        cwd: "/".to_string(),
    };
    let status = loops::stretch(|| {
        let process = linux.spawn("/bin/sort", &start, &[])?;
        process.ended()?;
        process.reap()
    });
    let status = status.must("sort")?;
    if status != Status::Exited(0) {
        return Err(format!("sort ended with {status:?}"));
    }
    let input = rt::fs::read_all(INPUT).must("the input")?;
    let output = rt::fs::read_all(OUTPUT).must("the output")?;
    let mut lines: Vec<&[u8]> = input.split_inclusive(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    if !lines.iter().flat_map(|line| line.iter()).eq(output.iter()) {
        return Err("the output is not the sorted input".to_string());
    }
    Ok(Sample::of_block(1))
}
