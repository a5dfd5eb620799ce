//! Files that an image names and does not contain, as they are on this machine.
//!
//! They are read as by any program, in the thread that saves or restores, a bounded part of each: only the client of
//! that request waits for it.

use crate::desk::Wanted;
use crate::Sentence;
use alloc::vec::Vec;
use checkpoint_image::files::{self, Differences, File, Now, MAX_SUMMED};
use proto::Error;
use rt::fs::{mode, Flags};

/// Computes the checksums of files that are still as their managers saw them. The processes may run meanwhile, and
/// others do: a file that is written to gets no checksum.
pub(crate) fn sum_up(all: &mut [File], wanted: &Wanted) -> Result<(), Sentence> {
    if !all.is_empty() {
        wanted.hold(MAX_SUMMED)?;
    }
    for file in all {
        wanted.check()?;
        if let Now::File { size, written, sum } = look(&file.path, Some(file.size)) {
            if (size, written) == (file.size, file.written) {
                file.sum = sum;
            }
        }
    }
    Ok(())
}

/// Returns a sentence for each of these files of an image that has changed.
pub(crate) fn compare(all: &[File], wanted: &Wanted) -> Result<Vec<Sentence>, Sentence> {
    wanted.hold(MAX_SUMMED)?;
    let mut differences = Differences::default();
    for file in all {
        wanted.check()?;
        let size = file.sum.map(|_| file.size);
        differences.look(file, look(&file.path, size));
    }
    Ok(differences.sentences())
}

/// What is at this path now, with the checksum if it is a file of this size.
fn look(path: &str, wanted: Option<u64>) -> Now {
    let opened = rt::fs::File::open(path, Flags::default(), 0);
    let file = match opened {
        Ok(file) => file,
        Err(Error::NotFound | Error::NotDirectory) => return Now::Gone,
        Err(error) => return Now::Closed(error),
    };
    let about = || {
        let attr = rt::fs::attributes(file.ino());
        attr.map(|attr| (attr.size, attr.mtime_ns))
    };
    if file.opened().mode & mode::TYPE != mode::FILE {
        return Now::Other;
    }
    let read = |at, into: &mut [u8]| match file.read_full(at, into) {
        Ok(length) if length == into.len() => Ok(()),
        _ => Err(()),
    };
    let (size, written) = match about() {
        Ok(about) => about,
        Err(error) => return Now::Closed(error),
    };
    let mut sum = None;
    if wanted == Some(size) {
        sum = files::sum(size, read).ok();
        // If the file was written to meanwhile, the checksum may be of old and new bytes.
        sum = sum.filter(|_| about() == Ok((size, written)));
    }
    Now::File { size, written, sum }
}
