//! Directories that vanish with the run that made them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Error;

/// A directory of this run alone.
pub(crate) struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Makes one. The name holds the process and a counter, so that no two runs share it.
    pub(crate) fn new() -> Result<Self, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let base = std::env::temp_dir();
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("fermata-{}-{n}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                // Left behind by a killed process of the same number.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(Error::new(format!(
                        "cannot make {}: {error}",
                        path.display()
                    )));
                }
            }
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // Nobody is left to hear about a failure.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
