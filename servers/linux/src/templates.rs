//! Templates: memories of programs that are loaded and have not begun. Memories for further runs are copies of them, on
//! write.
//!
//! A shell starts one program again and again; without a template its file would be read into memory each time. A
//! template belongs to the memory account of a tree, which pays for it, and ends with the tree. It is made when a
//! program is loaded for the second time, so that a program which is started once costs nothing. It is valid for one
//! state of a file, which is recognised by the file's number, its size, and its times of modification and change. Files
//! on a disk get no templates, because their times are too coarse for that.
//!
//! This module only decides which templates there are, so that it can be tested on the host; `world` makes them.
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use services::fs::{Attr, Ino, ON_DISK};

/// Most bytes of files in a template, and in all templates of a tree together.
pub const MOST_BYTES: u64 = 8 << 20;
/// Most templates of a tree, and in all: each takes a segment, of which the memory server has some hundred.
const MOST: (usize, usize) = (4, 32);
/// A template is made only if this many times its size is free for the tree.
const MUST_BE_FREE: u64 = 8;
/// How many programs that were loaded once are remembered: for a tree, and in all.
const SEEN: (usize, usize) = (4, 64);

/// The files that a program was loaded from (its own, and that of its interpreter), in their state at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Number, size, times of modification and of change.
    files: Vec<(Ino, u64, u64, u64)>,
    /// Bytes that are loaded from the files.
    bytes: u64,
}

impl Loaded {
    /// Files with these attributes, of which `bytes` bytes are loaded; `None` if they get no template.
    #[must_use]
    pub fn new(files: &[Attr], bytes: u64) -> Option<Self> {
        let is_told = files.iter().all(|attr| attr.ino & ON_DISK == 0);
        (is_told && bytes <= MOST_BYTES).then(|| Loaded {
            files: files
                .iter()
                .map(|attr| (attr.ino, attr.size, attr.mtime_ns, attr.ctime_ns))
                .collect(),
            bytes,
        })
    }
}

/// A template and its last use.
#[derive(Debug)]
struct Kept<T> {
    loaded: Loaded,
    used: u64,
    template: T,
}

/// The templates of all trees.
#[derive(Debug)]
pub struct Templates<T> {
    kept: Vec<Kept<T>>,
    /// Programs that were loaded once, the latest first, each with the number that the caller has for the tree.
    seen: VecDeque<(usize, Loaded)>,
    /// Counts uses, as the time of `Kept::used`.
    time: u64,
}

impl<T> Default for Templates<T> {
    fn default() -> Self {
        Templates {
            kept: Vec::new(),
            seen: VecDeque::new(),
            time: 0,
        }
    }
}

impl<T> Templates<T> {
    /// Forgets templates that do not exist any more.
    pub fn retain(&mut self, lives: impl Fn(&T) -> bool) {
        self.kept.retain(|kept| lives(&kept.template));
    }

    /// The template of these files in a tree.
    pub fn find(&mut self, loaded: &Loaded, is_of: impl Fn(&T) -> bool) -> Option<&T> {
        self.time += 1;
        let its = |kept: &&mut Kept<T>| kept.loaded == *loaded && is_of(&kept.template);
        let kept = self.kept.iter_mut().find(its)?;
        kept.used = self.time;
        Some(&kept.template)
    }

    /// Notes that a tree has loaded these files, and decides whether to make a template of them. `tree` is any number
    /// for the tree, `free` the bytes of memory that it may still take. If so there is room: templates used least
    /// recently are gone.
    pub fn wants(
        &mut self,
        (tree, free): (usize, u64),
        loaded: &Loaded,
        is_of: impl Fn(&T) -> bool,
    ) -> bool {
        let is_it = |(its, seen): &(usize, Loaded)| *its == tree && seen == loaded;
        if !self.seen.iter().any(is_it) {
            let of_tree = |(_, (its, _)): &(usize, &(usize, Loaded))| *its == tree;
            let mut own = self.seen.iter().enumerate().filter(of_tree);
            if let Some((oldest, _)) = own.nth(SEEN.0 - 1) {
                self.seen.remove(oldest);
            }
            self.seen.truncate(SEEN.1 - 1);
            self.seen.push_front((tree, loaded.clone()));
            return false;
        }
        if loaded.bytes.saturating_mul(MUST_BE_FREE) > free {
            return false;
        }
        // A template of the same file in an earlier state is of no use.
        let number = |loaded: &Loaded| loaded.files.first().map(|file| file.0);
        let is_new = |kept: &Kept<T>| number(&kept.loaded) != number(loaded);
        self.kept
            .retain(|kept| is_new(kept) || !is_of(&kept.template));
        let of_tree = |kept: &Kept<T>| is_of(&kept.template);
        loop {
            let (count, bytes) = self
                .kept
                .iter()
                .filter(|kept| of_tree(kept))
                .fold((0, loaded.bytes), |(count, bytes), kept| {
                    (count + 1, bytes + kept.loaded.bytes)
                });
            if count < MOST.0 && bytes <= MOST_BYTES {
                break;
            }
            self.give_up_oldest(of_tree);
        }
        if self.kept.len() >= MOST.1 {
            self.give_up_oldest(|_| true);
        }
        true
    }

    fn give_up_oldest(&mut self, is_one: impl Fn(&Kept<T>) -> bool) {
        let ones = self
            .kept
            .iter()
            .enumerate()
            .filter(|(_, kept)| is_one(kept));
        if let Some((oldest, _)) = ones.min_by_key(|(_, kept)| kept.used) {
            self.kept.remove(oldest);
        }
    }

    /// Adds a template that [`Templates::wants`] has decided on.
    pub fn add(&mut self, loaded: Loaded, template: T) {
        self.time += 1;
        self.kept.push(Kept {
            loaded,
            used: self.time,
            template,
        });
    }

    /// Drops all templates of a tree, whose memory is needed. Returns whether there were any.
    pub fn give_up(&mut self, is_of: impl Fn(&T) -> bool) -> bool {
        let before = self.kept.len();
        self.kept.retain(|kept| !is_of(&kept.template));
        self.kept.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::{Loaded, Templates, MOST, MOST_BYTES, MUST_BE_FREE};
    use services::fs::{Attr, Ino, ON_DISK};

    const MB: u64 = 1 << 20;

    fn loaded(ino: Ino, bytes: u64) -> Loaded {
        Loaded::new(&[attr(ino)], bytes).expect("what it is loaded from")
    }

    fn attr(ino: Ino) -> Attr {
        Attr {
            ino,
            size: 5 * MB,
            ctime_ns: 7,
            ..Attr::default()
        }
    }

    /// Loads a program twice for a tree, whose number is in its templates. Returns whether there is a template then.
    fn load(templates: &mut Templates<(u32, Ino)>, tree: u32, ino: Ino, bytes: u64) -> bool {
        let one = loaded(ino, bytes);
        let is_of = |template: &(u32, Ino)| template.0 == tree;
        for _ in 0..2 {
            if templates.find(&one, is_of).is_none()
                && templates.wants((tree as usize, u64::MAX), &one, is_of)
            {
                templates.add(one.clone(), (tree, ino));
            }
        }
        templates.find(&one, is_of).is_some()
    }

    #[test]
    fn what_is_started_once_has_none() {
        let mut templates = Templates::default();
        let one = loaded(1, 2 * MB);
        assert!(
            !templates.wants((1, u64::MAX), &one, |_: &u32| true),
            "a template of what is loaded for the first time"
        );
        assert!(
            templates.wants((1, u64::MAX), &one, |_| true),
            "none of what is loaded again"
        );
        assert!(
            !templates.wants((1, MUST_BE_FREE * 2 * MB - 1), &one, |_| true),
            "S2: a template takes what the program may need"
        );
        // What counts is each tree's own list, whatever others load.
        for other in 2..200 {
            templates.wants((2, u64::MAX), &loaded(other, 2 * MB), |_| true);
        }
        assert!(
            templates.wants((1, u64::MAX), &one, |_| true),
            "S2: others have it forgotten"
        );
        assert!(
            !templates.wants((3, u64::MAX), &one, |_| true),
            "S2: a tree is told what others have started"
        );
    }

    #[test]
    fn a_file_that_was_changed_is_another_one() {
        let mut templates = Templates::default();
        assert!(load(&mut templates, 1, 5, MB), "a template");
        let others = [
            Attr {
                size: 5 * MB + 1,
                ..attr(5)
            },
            Attr {
                mtime_ns: 1,
                ..attr(5)
            },
            Attr {
                ctime_ns: 8,
                ..attr(5)
            },
            attr(6),
        ];
        for other in others {
            let other = Loaded::new(&[other], MB).expect("what it is loaded from");
            assert!(
                templates.find(&other, |_| true).is_none(),
                "a file as it was before is executed: {other:?}"
            );
        }
        let with = Loaded::new(&[attr(5), attr(6)], MB).expect("what it is loaded from");
        assert!(
            templates.find(&with, |_| true).is_none(),
            "a program without its interpreter"
        );
        let on_disk = Loaded::new(&[attr(5), attr(6 | ON_DISK)], MB);
        assert_eq!(on_disk, None, "of the disk");
    }

    #[test]
    fn a_tree_has_its_own_and_so_many() {
        let mut templates = Templates::default();
        for ino in 0..10 {
            assert!(load(&mut templates, 1, ino, MB), "the newest is there");
            assert!(
                load(&mut templates, 2, 100, MB),
                "S2: another tree loses its own"
            );
            let of_one = templates.kept.iter().filter(|kept| kept.template.0 == 1);
            assert!(
                of_one.count() <= MOST.0,
                "S2: a tree has as many as it likes"
            );
        }
        assert!(
            templates.find(&loaded(100, MB), |t| t.0 == 1).is_none(),
            "S2: a tree has what another one has loaded"
        );
        assert!(load(&mut templates, 1, 50, MOST_BYTES), "a large one");
        let of_one = templates.kept.iter().filter(|kept| kept.template.0 == 1);
        assert_eq!(of_one.count(), 1, "S2: bytes of a tree");
        for tree in 3..100 {
            assert!(load(&mut templates, tree, 1, MB), "the newest is there");
        }
        assert_eq!(templates.kept.len(), MOST.1, "in all");
        assert!(templates.give_up(|t| t.0 == 99), "one was there");
        assert!(!templates.give_up(|t| t.0 == 99), "and went");
        assert_eq!(Loaded::new(&[attr(1)], MOST_BYTES + 1), None, "too large");
    }
}
