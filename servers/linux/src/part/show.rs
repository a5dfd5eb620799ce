//! Describes the contents of a part to people, without restoring it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use services::process::Status;

use super::adopt::read;
use super::file::SavedFile;
use super::{Saved, SavedProcess, SavedTask};
use crate::process::{Counter, Description, Device, End, Kind};

/// A part that has been read and checked as for a restore.
pub struct Shown {
    saved: Saved,
    files: BTreeMap<u64, SavedFile>,
}

impl Shown {
    /// Reads a part. `counts`, if known, are the memories and memory objects saved beside the part, which must match.
    /// `room` is told how many bytes of memory this takes, and says whether they are there.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn read(
        bytes: &[u8],
        counts: Option<(usize, usize)>,
        room: impl FnOnce(u64) -> bool,
    ) -> Result<Self, String> {
        let (saved, files) = read(bytes, counts, room)?;
        let files = files.into_iter().collect();
        Ok(Shown { saved, files })
    }

    /// Lines about the processes with what they have open, and about the files that the part carries, numbered from
    /// `first` on.
    #[must_use]
    pub fn lines(&self, first: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let mut said = BTreeMap::new();
        for (n, process) in (0u32..).zip(&self.saved.processes) {
            self.process(n, process, &mut said, &mut lines);
        }
        self.ipc(&mut lines);
        for (number, (path, written, contents)) in (first..).zip(self.contents()) {
            let name =
                path.map_or_else(|| "a file without a name".to_string(), ToString::to_string);
            let why = match (path, written) {
                (None, _) => "",
                (_, true) => ", open to be written",
                (_, false) => ", open to be read",
            };
            lines.push(format!(
                "file {number} in the image: {name}, {} bytes{why}",
                contents.len()
            ));
        }
        lines
    }

    /// Adds lines about the System V IPC of the tree.
    fn ipc(&self, lines: &mut Vec<String>) {
        let Some(ipc) = &self.saved.ipc else {
            return;
        };
        for (id, memory) in ipc.memories.ids().zip(ipc.memories.values()) {
            let (key, size) = (memory.owner.key, memory.size);
            lines.push(format!("shared memory {id}: key {key:#x}, {size} bytes"));
        }
        for (id, set) in ipc.sets.ids().zip(ipc.sets.values()) {
            let (key, count) = (set.owner.key, set.semaphores.len());
            lines.push(format!("set {id}: key {key:#x}, {count} semaphores"));
        }
        for (id, queue) in ipc.queues.ids().zip(ipc.queues.values()) {
            let (key, count, bytes) = (queue.owner.key, queue.messages.len(), queue.bytes);
            lines.push(format!(
                "queue {id}: key {key:#x}, {count} messages of {bytes} bytes"
            ));
        }
    }

    /// The files that the part carries: path, whether they were open for writing, and their contents.
    pub fn contents(&self) -> impl Iterator<Item = (Option<&str>, bool, &[u8])> {
        self.files.values().filter_map(|file| match file {
            SavedFile::Named(_) => None,
            SavedFile::Carried {
                path,
                written,
                contents,
                ..
            } => Some((Some(path.as_str()), *written, &contents[..])),
            SavedFile::Unlinked { contents, .. } => Some((None, true, &contents[..])),
        })
    }

    /// Adds lines about a process. Several processes can share a descriptor table: `said` has, by the number of a
    /// table, the process at which it was listed.
    fn process(
        &self,
        n: u32,
        process: &SavedProcess,
        said: &mut BTreeMap<u32, u32>,
        lines: &mut Vec<String>,
    ) {
        let SavedProcess {
            process: own,
            parent,
            ended,
            stopped,
            ..
        } = process;
        let of = |task: &&SavedTask| task.process == n;
        let tasks: Vec<&SavedTask> = self.saved.tasks.iter().filter(of).collect();
        let memory = tasks
            .first()
            .and_then(|task| self.saved.memories.get(task.memory as usize));
        let name = match (memory, ended) {
            (Some(memory), _) => memory.name.as_str(),
            (None, Some((_, name))) => name.as_str(),
            (None, None) => "",
        };
        let mut line = format!(
            "process {} {name}: group {}, session {}",
            own.number, own.group, own.session
        );
        let parent = parent.and_then(|parent| self.saved.processes.get(parent as usize));
        if let Some(parent) = parent {
            line += &format!(", child of {}", parent.process.number);
        }
        match (ended, stopped) {
            (Some((Status::Killed(signal), _)), _) => {
                line += &format!(", ended by signal {signal}")
            }
            (Some((Status::Exited(status), _)), _) => {
                line += &format!(", ended with status {status}")
            }
            (Some(_), _) => line += ", ended",
            (None, Some(signal)) => line += &format!(", stopped by signal {signal}"),
            (None, None) => {}
        }
        let traces = tasks.iter().find_map(|task| task.trace.as_ref());
        let tracer = traces.and_then(|(tracer, _)| self.saved.processes.get(*tracer as usize));
        if let Some(tracer) = tracer {
            line += &format!(", traced by {}", tracer.process.number);
        }
        lines.push(line);
        if let Some(memory) = memory {
            let threads = match tasks.len() {
                1 => "1 thread".to_string(),
                many => format!("{many} threads"),
            };
            let context = tasks
                .first()
                .and_then(|task| self.saved.contexts.get(task.context as usize));
            let cwd = context.map_or("", |context| context.cwd.as_str());
            let mapped: u64 = memory
                .areas
                .list()
                .iter()
                .map(|area| area.end - area.start)
                .sum();
            lines.push(format!(
                "  {} in {cwd}: {threads}, {} KB mapped",
                memory.exe,
                mapped >> 10
            ));
        }
        let tables: BTreeSet<u32> = tasks.iter().map(|task| task.files).collect();
        for table in tables {
            let with = *said.entry(table).or_insert(own.number);
            if with != own.number {
                lines.push(format!("  the descriptors of process {with}"));
                continue;
            }
            let table = self.saved.tables.get(table as usize);
            for (fd, _, number) in table.into_iter().flatten() {
                if let Some(description) = self.saved.descriptions.get(*number as usize) {
                    lines.push(format!("  {fd}: {}", self.description(description)));
                }
            }
        }
    }

    fn description(&self, description: &Description) -> String {
        let path = |ino: &u64| match self.files.get(ino) {
            Some(SavedFile::Named(path) | SavedFile::Carried { path, .. }) => path.clone(),
            _ => "a file without a name".to_string(),
        };
        match &description.kind {
            Kind::File { ino } => format!("{}, at {}", path(ino), description.offset),
            Kind::Directory { ino, .. } => path(ino),
            Kind::Device(device) => match device {
                Device::Null => "/dev/null",
                Device::Zero => "/dev/zero",
                Device::Full => "/dev/full",
                Device::Random => "/dev/random",
                Device::Console => "/dev/console",
            }
            .to_string(),
            Kind::Text(_) => "a text under /proc".to_string(),
            Kind::Folder(_) => "a directory under /proc or /dev".to_string(),
            Kind::Counter { counter, .. } => match counter {
                Counter::Event { count, .. } => format!("eventfd, {count}"),
                Counter::Timer { .. } => "timerfd".to_string(),
            },
            Kind::Signals { mask, .. } => format!("signalfd of {mask:#x}"),
            Kind::Epoll { .. } => "epoll".to_string(),
            Kind::Inotify { id } => {
                let one = self.saved.inotifies.iter().find(|one| one.id == *id);
                let (watches, bytes) =
                    one.map_or((0, 0), |one| (one.watches.len(), one.queue.len()));
                format!("inotify, {watches} files watched, {bytes} bytes in it")
            }
            Kind::Socket { id } => format!("socket {id}"),
            Kind::Pty {
                number,
                master: true,
                ..
            } => format!("/dev/ptmx, the master of {number}"),
            Kind::Pty { number, .. } => format!("/dev/pts/{number}"),
            Kind::Pipe { id, end, .. } => {
                let waiting = self.saved.pipes.iter().find(|pipe| pipe.0 == *id);
                let bytes = waiting.map_or(0, |pipe| pipe.3.len());
                let end = match end {
                    End::Read => "to read",
                    End::Write => "to write",
                    End::Both => "to read and write",
                };
                format!("pipe {id} {end}, {bytes} bytes in it")
            }
        }
    }
}
