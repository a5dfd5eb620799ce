//! A file that is written under a temporary name, and gets its final one when it is complete.
//!
//! The temporary name is `PATH.tmp`, or `PATH.tmp1` and so on if that is taken: an existing file belongs to somebody
//! else. It may be an image that is being read meanwhile, one that another job writes for the same path, or a user's
//! file.

use alloc::format;
use alloc::string::{String, ToString};
use proto::Error;

/// How many names are tried.
const ATTEMPTS: u32 = 100;

/// The file system in which such files are made.
pub trait Names {
    /// A file that can be written.
    type File;
    /// Makes a file at this path, where nothing may exist, not even a symbolic link.
    ///
    /// # Errors
    /// [`Error::Exists`] if something exists there.
    fn make(&self, path: &str) -> Result<Self::File, Error>;
    /// Returns when the whole file survives a loss of power, if files there do.
    ///
    /// # Errors
    /// It may not survive.
    fn sync(&self, file: &Self::File) -> Result<(), Error>;
    /// Renames the first path to the second, and replaces what is there.
    ///
    /// # Errors
    /// Those of the file system.
    fn rename(&self, from: &str, to: &str) -> Result<(), Error>;
    /// Removes a name.
    fn unlink(&self, path: &str);
}

/// The files of programs, which make kernel calls, and so do not exist on the host.
#[cfg(target_os = "none")]
#[derive(Clone, Copy, Debug)]
pub struct Programs;

#[cfg(target_os = "none")]
impl Names for Programs {
    type File = rt::fs::File;

    fn make(&self, path: &str) -> Result<rt::fs::File, Error> {
        let flags = rt::fs::Flags {
            create: true,
            exclusive: true,
            ..rt::fs::Flags::default()
        };
        rt::fs::File::open(path, flags, 0o644)
    }

    fn sync(&self, file: &rt::fs::File) -> Result<(), Error> {
        file.sync()
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        rt::fs::rename(from, to)
    }

    fn unlink(&self, path: &str) {
        let _ = rt::fs::unlink(path);
    }
}

/// A file that is not complete. If it is dropped, nothing of it is left.
#[derive(Debug)]
pub struct New<N: Names> {
    names: N,
    file: N::File,
    /// Its temporary name.
    own: String,
    path: String,
    is_kept: bool,
}

impl<N: Names> New<N> {
    /// Makes a file that is to get the name `path`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(names: N, path: &str) -> Result<Self, Error> {
        for attempt in 0..ATTEMPTS {
            let own = match attempt {
                0 => format!("{path}.tmp"),
                number => format!("{path}.tmp{number}"),
            };
            match names.make(&own) {
                Err(Error::Exists) => {}
                made => {
                    return Ok(New {
                        file: made?,
                        names,
                        own,
                        path: path.to_string(),
                        is_kept: false,
                    })
                }
            }
        }
        Err(Error::Exists)
    }

    /// The file.
    pub const fn file(&self) -> &N::File {
        &self.file
    }

    /// Gives the complete file its final name.
    ///
    /// # Errors
    /// The file is removed then, and an older one at the path stays.
    pub fn keep(mut self) -> Result<(), Error> {
        // After a loss of power the name must not lead to missing bytes: an older image with that name would be lost,
        // too.
        self.names.sync(&self.file)?;
        self.names.rename(&self.own, &self.path)?;
        self.is_kept = true;
        Ok(())
    }
}

impl<N: Names> Drop for New<N> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.names.unlink(&self.own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use core::cell::{Cell, RefCell};

    /// Files by their paths, and whether the last write is durable.
    #[derive(Default)]
    struct Disk {
        files: RefCell<BTreeMap<String, &'static str>>,
        fails: Cell<bool>,
        synced: Cell<u32>,
    }

    impl Disk {
        fn with(files: &[(&str, &'static str)]) -> Self {
            let files = files.iter().map(|(path, what)| (path.to_string(), *what));
            Disk {
                files: RefCell::new(files.collect()),
                ..Disk::default()
            }
        }

        fn is(&self, files: &[(&str, &str)]) -> bool {
            let own = self.files.borrow();
            own.iter()
                .map(|(path, what)| (path.as_str(), *what))
                .eq(files.iter().copied())
        }
    }

    impl Names for &Disk {
        type File = ();

        fn make(&self, path: &str) -> Result<(), Error> {
            let mut files = self.files.borrow_mut();
            if files.contains_key(path) {
                return Err(Error::Exists);
            }
            files.insert(path.to_string(), "new");
            Ok(())
        }

        fn sync(&self, _: &()) -> Result<(), Error> {
            self.synced.set(self.synced.get() + 1);
            match self.fails.get() {
                true => Err(Error::Broken),
                false => Ok(()),
            }
        }

        fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
            let mut files = self.files.borrow_mut();
            let what = files.remove(from).ok_or(Error::NotFound)?;
            files.insert(to.to_string(), what);
            Ok(())
        }

        fn unlink(&self, path: &str) {
            self.files.borrow_mut().remove(path);
        }
    }

    #[test]
    fn nobody_elses_file_is_taken_for_the_temporary_one() {
        let before = [("/a", "old"), ("/a.tmp", "parent"), ("/a.tmp1", "other")];
        let disk = Disk::with(&before);
        let new = New::create(&disk, "/a").unwrap();
        assert_eq!(
            disk.files.borrow().get("/a.tmp"),
            Some(&"parent"),
            "what has the name already is somebody else's"
        );
        drop(new);
        assert!(
            disk.is(&before),
            "what is not complete leaves nothing, and takes nothing with it"
        );
        New::create(&disk, "/a").unwrap().keep().unwrap();
        let then = [("/a", "new"), ("/a.tmp", "parent"), ("/a.tmp1", "other")];
        assert!(disk.is(&then), "what is complete takes its place");
    }

    #[test]
    fn two_that_are_to_be_at_one_path_are_two_files() {
        let disk = Disk::default();
        let one = New::create(&disk, "/a").unwrap();
        let two = New::create(&disk, "/a").unwrap();
        assert_ne!(one.own, two.own, "two files have two names");
        one.keep().unwrap();
        drop(two);
        assert!(disk.is(&[("/a", "new")]), "the one that is complete stays");
    }

    #[test]
    fn names_end() {
        let disk = Disk::default();
        let all: Vec<_> = (0..ATTEMPTS)
            .map(|_| New::create(&disk, "/a").unwrap())
            .collect();
        assert_eq!(New::create(&disk, "/a").err(), Some(Error::Exists));
        drop(all);
        assert!(disk.is(&[]));
    }

    #[test]
    fn what_may_not_be_durable_gets_no_name() {
        let disk = Disk::with(&[("/a", "old")]);
        disk.fails.set(true);
        let kept = New::create(&disk, "/a").unwrap().keep();
        let rule = "the bytes are durable before the name is there";
        assert_eq!(kept, Err(Error::Broken), "{rule}");
        assert!(disk.is(&[("/a", "old")]), "{rule}");
        disk.fails.set(false);
        New::create(&disk, "/a").unwrap().keep().unwrap();
        assert!(disk.is(&[("/a", "new")]));
        assert_eq!(disk.synced.get(), 2);
    }
}
