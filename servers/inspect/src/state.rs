//! What is shown of the machine, as JSON.
use alloc::string::String;
use alloc::vec::Vec;
use serde::Serialize;
use services::process::{Info, Status};

/// The machine.
#[derive(Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct State {
    /// Nanoseconds since it began.
    pub now_ns: u64,
    /// Bytes of memory that there are, and that are in no segment.
    pub memory_total: u64,
    pub memory_free: u64,
    /// Bytes and number of the files in memory.
    pub file_bytes: u64,
    pub files: u64,
    pub processes: Vec<Process>,
    /// Sentences: what could not be asked, and why.
    pub missing: Vec<String>,
}

/// A process.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Process {
    /// Who manages it: `native` or `linux`.
    pub manager: &'static str,
    pub pid: u32,
    pub name: String,
    /// `running`, `stopped`, `exited N` or `killed by signal N`.
    pub status: String,
    pub resident_bytes: u64,
    pub objects: u32,
    pub threads: Vec<Thread>,
}

/// A thread, as its exported state shows it.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Thread {
    /// What it is about to do, in words.
    pub doing: String,
    /// In hexadecimal, since not every reader of JSON has 64 bits.
    pub instruction: String,
    pub stops: u32,
}

impl Process {
    /// As the manager tells of it.
    #[must_use]
    pub fn new(manager: &'static str, info: Info) -> Self {
        let mut doing = info.doing.into_iter();
        let threads = info.threads.iter().map(|thread| Thread {
            doing: doing.next().unwrap_or_default(),
            instruction: alloc::format!("{:#x}", thread.rip),
            stops: thread.stops,
        });
        Process {
            manager,
            pid: info.pid,
            name: info.name,
            status: words(info.status),
            resident_bytes: info.resident,
            objects: info.objects,
            threads: threads.collect(),
        }
    }
}

fn words(status: Status) -> String {
    match status {
        Status::Running => "running".into(),
        Status::Stopped => "stopped".into(),
        Status::Exited(status) => alloc::format!("exited {status}"),
        Status::Killed(signal) => alloc::format!("killed by signal {signal}"),
    }
}
