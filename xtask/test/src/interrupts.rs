//! `./fermata prove --interrupts`: the machine's own test of masks, with a hundred million interrupts for
//! each way to mask.
//!
//! It has several parts, each a boot with another seed. Finished parts are recorded in `target/`, so that an
//! interrupted call can be continued.

use std::sync::{Mutex, PoisonError};

use serde_json::json;

use super::journal::{checkout, keep, kept};
use super::{boot_tests, Report};
use xtask_build::config::{Config, Irq};
use xtask_build::error::Error;
use xtask_build::image::{self, Images};
use xtask_build::project::Project;
use xtask_machine::signals;
use xtask_machine::Options;

/// Interrupts in a part.
const EACH: u64 = 5_000_000;
/// Parts for each way to mask.
const PARTS: u64 = 20;
/// The test in `hal/examples/machine.rs`.
const TEST: &str = "interrupts_at_random_masks";

/// The names of the parts that are finished.
struct Done {
    sources: String,
    names: Vec<String>,
}

impl Done {
    /// The parts that an earlier call has finished with the same sources; none if `fresh`.
    fn read(project: &Project, fresh: bool) -> Result<Self, Error> {
        let sources = checkout(&project.root)?;
        let sources = format!("{sources:016x}");
        let whole = kept(&project.target.join(FILE), &sources, fresh);
        let names = whole["done"].as_array().into_iter().flatten();
        let names = names.filter_map(|name| Some(name.as_str()?.to_string()));
        Ok(Self {
            sources,
            names: names.collect(),
        })
    }

    /// Records that a part is finished.
    fn add(&mut self, project: &Project, name: String) -> Result<(), Error> {
        self.names.push(name);
        let whole = json!({ "sources": self.sources, "done": self.names });
        keep(&project.target.join(FILE), &whole)
    }
}

const FILE: &str = "prove-interrupts.json";

/// Runs all parts that are left. The last line printed is the sum.
pub fn run(project: &Project, fresh: bool) -> Result<u8, Error> {
    signals::catch();
    let done = Mutex::new(Done::read(project, fresh)?);
    let mut images = Vec::new();
    for irq in Config::maskings(&[]) {
        let config = Config::machine(irq);
        images.push((config, image::build_example(project, config, "machine")?));
    }
    let report = Mutex::new(Report::default());
    let earlier = done
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .names
        .len();
    if earlier > 0 {
        println!("{earlier} parts were done by an earlier call (--fresh: again)");
    }
    std::thread::scope(|scope| -> Result<(), Error> {
        let each = images.iter().map(|(config, images)| {
            let (done, report) = (&done, &report);
            scope.spawn(move || parts(project, *config, images, done, report))
        });
        let each: Vec<_> = each.collect();
        each.into_iter().try_for_each(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err(Error::new("a part of the proof panicked")))
        })
    })?;
    if let Some(signal) = signals::caught() {
        return Err(Error {
            message: "interrupted: the same command goes on from here".into(),
            status: 128 + signal,
        });
    }
    let report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (passed, failed) = (earlier + report.passed, report.failed.len());
    let wanted = PARTS as usize * images.len();
    println!("{} interrupts", (passed as u64) * EACH);
    println!("{passed} of {wanted} passed, {failed} failed");
    Ok(status(passed, failed, wanted))
}

/// The command's status: a part that did not run, or had no result, proves nothing.
fn status(passed: usize, failed: usize, wanted: usize) -> u8 {
    u8::from(failed != 0 || passed != wanted)
}

/// The parts for one way to mask.
fn parts(
    project: &Project,
    config: Config,
    images: &Images,
    done: &Mutex<Done>,
    report: &Mutex<Report>,
) -> Result<(), Error> {
    let name = |irq: Irq, part| format!("{} {part}", irq.name());
    for part in 1..=PARTS {
        let name = name(config.irq, part);
        let lock = || done.lock().unwrap_or_else(PoisonError::into_inner);
        if signals::caught().is_some() || lock().names.contains(&name) {
            continue;
        }
        let mut options = Options::new(config);
        options.deterministic = true;
        let words = [
            format!("filter={TEST}"),
            format!("interrupts={EACH}"),
            format!("seed={part}"),
        ];
        options.words.extend(words);
        let of_part = Mutex::new(Report::default());
        let prefix = format!("machine/{}/{part} of {PARTS}: ", config.irq.name());
        boot_tests(images, options, &prefix, (&[], 1), false, &of_part);
        if signals::caught().is_some() {
            return Ok(());
        }
        let found = of_part.into_inner().unwrap_or_else(PoisonError::into_inner);
        if found.passed == 1 && found.failed.is_empty() {
            lock().add(project, name)?;
        }
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        report.passed += found.passed;
        report.failed.extend(found.failed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_without_a_result_proves_nothing() {
        assert_eq!(status(40, 0, 40), 0);
        assert_eq!(status(39, 0, 40), 1);
        assert_eq!(status(39, 1, 40), 1);
    }
}
