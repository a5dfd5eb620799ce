//! The runs of a segment, by the numbers of their chunks, with two indexes: of chunks that may hold kernel
//! objects, and of stretches of chunks that follow each other.
use super::Run;
use alloc::collections::btree_map::Range;
use alloc::collections::{BTreeMap, BTreeSet};

/// Runs by the number of their chunk in the segment.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: BTreeMap<u64, Run>,
    /// Those that may hold objects.
    objects: BTreeSet<u64>,
    /// First number of each stretch, and the number behind its last one.
    stretches: BTreeMap<u64, u64>,
}

impl Runs {
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Run> {
        self.runs.get(&number)
    }

    /// A run, to be changed. If [`Run::objects`] changes, [`Runs::note`] is to be called.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Run> {
        self.runs.get_mut(&number)
    }

    /// Notes whether the run may hold objects.
    pub(super) fn note(&mut self, number: u64) {
        if self.runs.get(&number).is_some_and(|run| run.objects) {
            self.objects.insert(number);
        } else {
            self.objects.remove(&number);
        }
    }

    /// Puts a run where there is none.
    pub(super) fn insert(&mut self, number: u64, run: Run) {
        self.runs.insert(number, run);
        self.note(number);
        let before = self.stretches.range(..number).next_back();
        let start = match before {
            Some((start, end)) if *end == number => *start,
            _ => number,
        };
        let end = self.stretches.remove(&(number + 1)).unwrap_or(number + 1);
        self.stretches.insert(start, end);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Run> {
        let run = self.runs.remove(&number)?;
        self.objects.remove(&number);
        let stretch = self.stretches.range(..=number).next_back();
        if let Some((&start, &end)) = stretch {
            self.stretches.remove(&start);
            if start < number {
                self.stretches.insert(start, number);
            }
            if number + 1 < end {
                self.stretches.insert(number + 1, end);
            }
        }
        Some(run)
    }

    /// The runs from this number on.
    pub(super) fn from(&self, number: u64) -> Range<'_, u64, Run> {
        self.runs.range(number..)
    }

    pub(super) fn last(&self) -> Option<(u64, Run)> {
        self.runs
            .last_key_value()
            .map(|(number, run)| (*number, *run))
    }

    /// The first chunk number from this one on whose run may hold objects.
    pub(super) fn objects_from(&self, number: u64) -> Option<u64> {
        self.objects.range(number..).next().copied()
    }

    /// How many stretches there are.
    pub(super) fn count_stretches(&self) -> usize {
        self.stretches.len()
    }

    /// The stretches: first number, and the number behind the last one.
    pub(super) fn stretches(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.stretches.iter().map(|(start, end)| (*start, *end))
    }
}
