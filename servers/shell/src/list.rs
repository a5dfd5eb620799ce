//! Processes as `ps` and `processes` list them.

use alloc::format;
use alloc::string::String;
use services::checkpoint::plain;
use services::process::Info;

use crate::jobs::{Manager, State};

/// The heading of the list of processes, behind the column for jobs.
pub const HEADING: &str = "KIND      PID  STATE       KB  OBJECTS  COMMAND";

/// The line of a process below [`HEADING`].
#[must_use]
pub fn process(manager: Manager, info: &Info) -> String {
    format!(
        "{:<6} {:>6}  {:<8} {:>5}  {:>7}  {}",
        manager.name(),
        info.pid,
        State::from_status(info.status).text(),
        info.resident / 1024,
        info.objects,
        plain(&info.name)
    )
}

/// Its threads, a line each, and what each is doing.
pub fn threads(info: &Info) -> impl Iterator<Item = String> + '_ {
    info.threads.iter().enumerate().map(|(index, thread)| {
        let doing = info.doing.get(index).map_or("", String::as_str);
        format!("  thread {}: {doing} (rip {:#x})", index + 1, thread.rip)
    })
}
