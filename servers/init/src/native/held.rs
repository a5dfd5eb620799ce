//! The requests at a process's control port, from its holder or a checkpointer: stop, end, freeze, describe, rebuild.
use super::{Entry, Frozen, Live, Manager, Processes, MAX_NAME, SIGKILL};
use crate::drivers::manifest;
use crate::{names, slow};
use abi::state::SpaceState;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use fermata_init::{may_have, Part, MAX_PART};
use interface::server::Event;
use process::held::{self, Known, Managed};
use process::{account, Process};
use proto::Error;
use rt::error_of;
use rt::memory::Segment;
use rt::obj::{PortAt, Ref};
use services::process::{Info, Pid, Status, IN_MEMORY};

/// A process that is being rebuilt, and references to its control port, the keeper of its space, its regions and its
/// account.
pub(super) type Adopted = (Pid, Vec<Ref>);

impl Manager {
    /// The complete part of a process's image that is init's.
    fn whole_part(&mut self, pid: Pid) -> Result<Vec<u8>, Error> {
        let entry = self.entry(pid)?;
        let live = entry.live.as_ref().ok_or(Error::Ended)?;
        Part {
            name: entry.name.clone(),
            stopped: entry.status == Status::Stopped,
            names: known_ports(pid, &live.process),
        }
        .to_bytes()
    }

    /// Makes a process to be rebuilt, with a space and a thread, and nothing else.
    pub(super) fn adopt(&mut self, owner: Pid) -> Result<Adopted, Error> {
        let (pid, job) = self.new_pid(owner, None)?;
        let (own, control) = self.ports(pid)?;
        let keeper = own.reference.copy().map_err(error_of)?;
        let handed = control.reference.copy().map_err(error_of)?;
        let space = SpaceState {
            quota: self.quota,
            max_priority: self.ceiling,
            ..SpaceState::default()
        };
        let process = self.process_of(job, account::program, &space, &keeper)?;
        let regions = (
            process.memory().region.copy(),
            process.control().region.copy(),
            process.account().account.copy(),
        );
        let (Ok(memory), Ok(segment), Ok(account)) = regions else {
            process.destroy();
            return Err(self.nothing_of(job, Error::NoMemory));
        };
        let serial = self.serial();
        self.entries.insert(
            pid,
            Entry {
                name: "(being restored)".to_string(),
                status: Status::Running,
                live: Some(Live {
                    process,
                    stopped: Vec::new(),
                    frozen: Some(Frozen::Rebuilt),
                    part: Vec::new(),
                    debugged: None,
                    own,
                }),
                arriving: Some(Vec::new()),
                names: Vec::new(),
                owner,
                job,
                control,
                serial,
                event: Arc::new(Event::new()),
                end: Arc::default(),
                service: None,
                collocated: false,
                server: false,
                essential: false,
                driver: None,
            },
        );
        Ok((pid, vec![handed, keeper, memory, segment, account]))
    }
}

impl held::Manager for Manager {
    fn known(&mut self, (pid, serial): Known) -> Result<(), Error> {
        match self.entry(pid)?.serial == serial {
            true => Ok(()),
            false => Err(Error::NotFound),
        }
    }

    fn status(&mut self, pid: Pid) -> Result<Status, Error> {
        Ok(self.entry(pid)?.status)
    }

    fn reap(&mut self, pid: Pid) -> Result<Status, Error> {
        let entry = self.entry(pid)?;
        if entry.live.is_some() {
            return Err(Error::Invalid);
        }
        let status = entry.status;
        self.announce(pid);
        self.entries.remove(&pid);
        Ok(status)
    }

    fn kill(&mut self, pid: Pid) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        if entry.server && entry.driver.is_none() {
            return Err(Error::Denied);
        }
        if entry.live.is_none() {
            return Err(Error::Ended);
        }
        self.end(pid, Status::Killed(SIGKILL));
        Ok(())
    }

    fn stop(&mut self, pid: Pid) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        if entry.server {
            return Err(Error::Denied);
        }
        if entry.arriving.is_some() {
            // The threads belong to the rebuilder until the part has arrived.
            return Err(Error::Invalid);
        }
        let live = entry.live.as_mut().ok_or(Error::Ended)?;
        if entry.status == Status::Running {
            if !live.is_saved() {
                live.stopped = live.process.stop_all();
            }
            entry.status = Status::Stopped;
            self.announce(pid);
        }
        Ok(())
    }

    fn go_on(&mut self, pid: Pid) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        let live = entry.live.as_mut().ok_or(Error::Ended)?;
        if entry.status == Status::Stopped {
            if !live.is_saved() {
                live.process.resume_all(&core::mem::take(&mut live.stopped));
            }
            entry.status = Status::Running;
            self.announce(pid);
        }
        Ok(())
    }

    fn typed(&mut self, pid: Pid, _: bool) -> Result<bool, Error> {
        // A native program has no signals.
        self.live(pid).map(|_| false)
    }

    fn info(&mut self, pid: Pid) -> Result<Info, Error> {
        Ok(Manager::info_of(pid, self.entry(pid)?))
    }

    fn freeze(&mut self, pid: Pid, _: u32) -> Result<held::Frozen, Error> {
        let entry = self.entry(pid)?;
        if entry.is_trusted() {
            return Err(Error::Denied);
        }
        let name = entry.name.clone().into_bytes();
        let live = entry.live.as_mut().ok_or(Error::Ended)?;
        if live.frozen.is_some() {
            return Err(Error::Limit);
        }
        if live.process.owes() {
            // The chunks that are still owed would be saved as zeros.
            return Err(Error::Unsupported);
        }
        let copy = |segment: &Segment| segment.region.copy().map_err(error_of);
        let refs = vec![
            copy(live.process.memory())?,
            copy(live.process.control())?,
            live.process.account().account.copy().map_err(error_of)?,
        ];
        live.frozen = Some(Frozen::Saved {
            threads: live.process.stop_all(),
            was_stopped: entry.status == Status::Stopped,
        });
        if let Some(debugged) = &mut live.debugged {
            debugged.freeze(&live.process);
            // Freezing can take exceptions, which the debugger waits for.
            self.announce(pid);
        }
        match self.whole_part(pid) {
            Ok(part) => {
                let length = part.len() as u64;
                self.live(pid)?.part = part;
                Ok((length, name, refs))
            }
            Err(error) => {
                self.thaw(pid)?;
                Err(error)
            }
        }
    }

    fn part(&mut self, pid: Pid, offset: u64, room: usize) -> Result<Vec<u8>, Error> {
        let part = &self.live(pid)?.part;
        let start = usize::try_from(offset).map_err(|_| Error::Invalid)?;
        let rest = part.get(start..).ok_or(Error::Invalid)?;
        Ok(rest[..rest.len().min(room)].to_vec())
    }

    fn copy(&mut self, pid: Pid, number: u32) -> Result<Vec<Ref>, Error> {
        if number != 0 {
            return Err(Error::NotFound);
        }
        let supply = self.supply(account::copy);
        let job = self.job_of(pid).unwrap_or(0);
        let entry = self.entries.get(&pid).ok_or(Error::NotFound)?;
        let live = entry.live.as_ref().ok_or(Error::Ended)?;
        live.process.freeze_memory(&supply, &mut self.copies, job)
    }

    fn thaw(&mut self, pid: Pid) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        if entry.arriving.is_some() {
            return Err(Error::Invalid);
        }
        let stopped = entry.status == Status::Stopped;
        let live = entry.live.as_mut().ok_or(Error::Ended)?;
        let mut threads = match live.frozen.as_ref().ok_or(Error::Invalid)? {
            Frozen::Saved { threads, .. } => threads.clone(),
            Frozen::Rebuilt => {
                // The rebuilder has filled the process, so its objects are known only from here on.
                if !live.process.has_objects() {
                    return Err(Error::Invalid);
                }
                live.process.learn()?;
                for (name, address) in core::mem::take(&mut entry.names) {
                    let again = match may_have(&name, None, manifest()) {
                        true => restore_name(pid, entry.job, &live.process, &name, address),
                        false => Err(Error::Denied),
                    };
                    if let Err(error) = again {
                        slow::log(&[&name, ": ", error.text()].concat());
                    }
                }
                live.process.threads()
            }
        };
        match live.frozen.take() {
            // It was stopped meanwhile: the stops of `freeze` become those of `stop`.
            Some(Frozen::Saved { was_stopped, .. }) if stopped && !was_stopped => {
                live.stopped = core::mem::take(&mut threads);
            }
            // It was to continue meanwhile.
            Some(Frozen::Saved { was_stopped, .. }) if !stopped && was_stopped => {
                live.process.resume_all(&core::mem::take(&mut live.stopped));
            }
            // The threads in the image have the stop of `freeze` and that of `stop`; the latter stays.
            Some(Frozen::Rebuilt) if stopped && live.stopped.is_empty() => {
                live.stopped.clone_from(&threads);
            }
            _ => {}
        }
        if let Some(debugged) = &mut live.debugged {
            debugged.thaw(&live.process);
        }
        live.process.resume_all(&threads);
        self.late_exception(pid);
        Ok(())
    }

    fn member(&mut self, _: Pid, _: u32) -> Result<(Vec<u8>, Vec<Ref>), Error> {
        Err(Error::NotFound)
    }

    fn adopt_member(&mut self, _: Pid, _: bool) -> Result<(u32, Vec<Ref>), Error> {
        Err(Error::Unsupported)
    }

    fn let_go(&mut self, pid: Pid) -> Result<(), Error> {
        match self.live(pid)?.frozen {
            Some(Frozen::Rebuilt) => self.thaw(pid),
            _ => Err(Error::Invalid),
        }
    }

    fn populate(
        &mut self,
        pid: Pid,
        member: u32,
        control: bool,
        offset: u64,
        size: u64,
    ) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        if entry.arriving.is_none() || member != 0 {
            return Err(Error::Invalid);
        }
        let live = entry.live.as_ref().ok_or(Error::Ended)?;
        live.process.populate(control, offset, size)
    }

    fn supplier(&mut self, pid: Pid, member: u32) -> Result<Ref, Error> {
        let entry = self.entry(pid)?;
        if entry.arriving.is_none() {
            return Err(Error::Invalid);
        }
        let live = entry.live.as_ref().ok_or(Error::Ended)?;
        match member {
            0 => live.process.supplier(),
            _ => Err(Error::NotFound),
        }
    }

    fn rebuild(
        &mut self,
        pid: Pid,
        offset: u64,
        length: u64,
        clock_offset: u64,
        piece: &[u8],
    ) -> Result<(), Error> {
        let entry = self.entry(pid)?;
        let part = entry.arriving.as_mut().ok_or(Error::Invalid)?;
        let live = entry.live.as_ref().ok_or(Error::Ended)?;
        let end = part.len() as u64 + piece.len() as u64;
        let taken = if offset == part.len() as u64 && end <= length && length <= MAX_PART {
            part.extend_from_slice(piece);
            if end < length {
                return Ok(());
            }
            Part::from_bytes(part)
                .and_then(|part| live.process.set_clock(clock_offset).map(|()| part))
        } else {
            Err(Error::BadFormat)
        };
        match taken {
            Ok(part) => {
                entry.arriving = None;
                let name = fermata_init::line(part.name.as_bytes());
                entry.name = name.chars().take(MAX_NAME).collect();
                entry.names = part.names;
                entry.status = if part.stopped {
                    Status::Stopped
                } else {
                    Status::Running
                };
                Ok(())
            }
            Err(error) => {
                self.end(pid, Status::Killed(SIGKILL));
                Err(error)
            }
        }
    }
}

impl Managed for &'static Processes {
    type Manager = Manager;

    fn with<R>(&self, f: impl FnOnce(&mut Manager) -> R) -> R {
        Processes::with(self, f)
    }
}

/// The names under which ports of a process are registered, and the addresses of these ports in its memory.
fn known_ports(pid: Pid, process: &Process) -> Vec<(String, u64)> {
    let (mut known, mut names) = (Vec::new(), names::names_of(pid));
    if names.is_empty() {
        return known;
    }
    // A name can belong to a port that is elsewhere, so the search covers only memory that can have objects.
    for found in process.walk(IN_MEMORY, PORTS).flatten() {
        let Ok(port) = PortAt(found.address).reference() else {
            continue;
        };
        names.retain(|(name, named)| {
            let other = !named.same_as(*port);
            if !other {
                known.push((name.clone(), found.spot & !IN_MEMORY));
            }
            other
        });
        if names.is_empty() {
            break;
        }
    }
    known
}

/// Registers the port at this address of a process again. Name and address come from an image.
fn restore_name(
    pid: Pid,
    job: Pid,
    process: &Process,
    name: &str,
    address: u64,
) -> Result<(), Error> {
    let end = address
        .checked_add(abi::OBJECT_SIZE)
        .ok_or(Error::BadFormat)?;
    match process.memory().region.search(address, end, PORTS) {
        Ok((found, _)) if found == address => {
            let port = PortAt(process.memory_window().address() + found).reference();
            names::register(name, port.map_err(error_of)?, None, pid, job)
        }
        _ => Err(Error::BadFormat),
    }
}

/// The kind of object for `region_search`: ports.
const PORTS: u64 = 1 << abi::Type::Port as u64;
