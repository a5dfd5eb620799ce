//! New processes and threads.

use abi::RefKind;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use personality::exec;
use personality::process::{open_flags, Current, Description, Device, Kind, Task};
use process::Process;
use proto::layout::{MAX_PASSED, PRIORITY_PROGRAM};
use proto::Error;
use rt::obj::Ref;
use services::fs::{mode, Flags};
use services::process::{Pid, Start, Stdio};

use super::{error_of, Entry, Living, Starter, Table};
use crate::clock;
use crate::world::{Seat, View};

fn bytes(list: &[String]) -> Vec<Vec<u8>> {
    list.iter().map(|s| s.as_bytes().to_vec()).collect()
}

impl Table {
    /// Makes a process without a parent that is charged to this job, and returns its identity.
    pub(super) fn new_pid(&mut self, job: Option<Pid>) -> Result<Pid, Error> {
        // Zombies are forgotten whose owners have ended, so that their status can never be asked for.
        let orphans: Vec<Pid> = self
            .entries
            .iter()
            .filter(|(_, entry)| matches!(entry, Entry::Ended { reaped: false, .. }))
            .map(|(pid, _)| *pid)
            .filter(|pid| {
                let owner = self
                    .holds
                    .get(pid)
                    .and_then(|hold| hold.starter.owner.as_ref());
                owner.is_some_and(|owner| owner.kind() != RefKind::Port)
            })
            .collect();
        for pid in orphans {
            let _ = self.reap(pid);
        }
        // For the new process, and for what loading its program takes meanwhile.
        self.world.room.add(256 << 10)?;
        self.system.create(job).map_err(error_of)
    }

    /// Takes a new task into the table, and with a first task its process.
    pub(super) fn born(&mut self, task: Task, seat: Seat) {
        let (pid, tid) = (task.pid, task.tid);
        if tid == pid {
            let root = self.system.find(pid).map_or(pid, |p| p.root);
            let job = self.holds.get(&root).and_then(|hold| hold.job);
            self.hold(pid, Starter::default(), job);
            self.live(Living::new(task, seat));
        } else {
            self.tasks.insert(tid, Box::new(Living::new(task, seat)));
        }
        self.note_work(tid);
    }

    /// Takes a new process with one task into the table.
    fn live(&mut self, living: Living) {
        let pid = living.task.pid;
        self.entries.insert(pid, Entry::Living(Box::default()));
        self.tasks.insert(pid, Box::new(living));
        self.note_work(pid);
    }

    /// Starts a program for this owner, in this job.
    pub(crate) fn spawn(
        &mut self,
        path: &str,
        start: &Start,
        (owner, job): (Ref, Option<Pid>),
        passed: Vec<Ref>,
    ) -> Result<Pid, Error> {
        if passed.len() as u64 > MAX_PASSED {
            return Err(Error::Limit);
        }
        let pid = self.new_pid(job)?;
        let started = self.spawn_as(pid, path, start);
        let Ok(living) = started else {
            self.system.forget(pid);
            return started.map(|_| pid);
        };
        self.live(living);
        let starter = Starter {
            owner: Some(owner),
            passed,
            ..Starter::default()
        };
        self.hold(pid, starter, job);
        Ok(pid)
    }

    fn spawn_as(&mut self, pid: Pid, path: &str, start: &Start) -> Result<Living, Error> {
        self.world.disk.finish();
        let cwd = if start.cwd.starts_with('/') {
            start.cwd.as_str()
        } else {
            "/"
        };
        let mut task = Task::new(pid, String::from(cwd));
        self.system.process(pid).actions = Rc::clone(&task.shares.actions);
        let mut args: Vec<Vec<u8>> = bytes(&start.args);
        if args.is_empty() {
            args.push(path.as_bytes().to_vec());
        }
        let mut prepared = self.prepare(&mut task, path, &args, start);
        let looked_at = match &prepared {
            Ok(prepared) => prepared.inos(),
            Err(failure) => &failure.inos,
        };
        // Loading reads files past the memory objects, so what was changed there is written back first.
        if self.system.objects.behind(looked_at).is_some() {
            let looked_at = looked_at.to_vec();
            let Table { system, world, .. } = self;
            let (root, seat) = (pid, None);
            let mut view = View { root, seat, world };
            if let Ok(prepared) = prepared {
                exec::cancel(&mut view, prepared);
            }
            system.settle_files(&mut view, &looked_at);
            prepared = self.prepare(&mut task, path, &args, start);
        }
        let prepared = prepared.map_err(|failure| {
            let error = error_of(failure.errno);
            if error != Error::NotFound || failure.names_another {
                rt::log!("{}", failure.sentence);
            }
            error
        })?;
        let made = self.open_stdio(&mut task, &start.stdio).and_then(|()| {
            let (id, port, space) = self.world.new_keeper(0)?;
            let keeper = port.reference().map_err(rt::error_of)?;
            let body = Process::create(&self.world.supply()?, &space, Some(&keeper))?;
            Ok(Seat::first(id, body, port))
        });
        let Table { system, world, .. } = self;
        let mut view = View {
            root: pid,
            seat: None,
            world,
        };
        let mut seat = match made {
            Ok(made) => made,
            Err(error) => {
                exec::cancel(&mut view, prepared);
                task.close_files(system, &mut view);
                return Err(error);
            }
        };
        view.seat = Some(&mut seat);
        system.process(pid).started = clock::now();
        let registers = exec::commit(&mut task, system, &mut view, prepared);
        system.process(pid).said.begin();
        let started = registers
            .map_err(|_| Error::NoMemory)
            .and_then(|registers| {
                let memory = seat.memory.borrow();
                memory
                    .body
                    .start(&registers, u64::from(pid), PRIORITY_PROGRAM)
            });
        if let Err(error) = started {
            let mut view = View {
                root: pid,
                seat: None,
                world,
            };
            task.close_files(system, &mut view);
            seat.leave();
            rt::log!("{path}: could not be started: {}", error.text());
            return Err(error);
        }
        Ok(Living::new(task, seat))
    }

    /// Makes all checks for loading the first program of a task.
    fn prepare(
        &mut self,
        task: &mut Task,
        path: &str,
        args: &[Vec<u8>],
        start: &Start,
    ) -> Result<exec::Prepared, exec::Failure> {
        let shares = task.shares.clone();
        let mut view = View {
            root: task.pid,
            seat: None,
            world: &mut self.world,
        };
        let env = bytes(&start.env);
        let current = Current::new(task, &shares);
        exec::prepare(&current, &self.system, &mut view, path, args.to_vec(), env)
    }

    /// Opens descriptors 0, 1 and 2. On failure the caller must close those that are open.
    fn open_stdio(&mut self, task: &mut Task, stdio: &[Stdio]) -> Result<(), Error> {
        for fd in 0..3u32 {
            let output = fd > 0;
            let mut flags = open_flags::RDWR;
            let kind = match stdio.get(fd as usize) {
                None | Some(Stdio::Console) => Kind::Device(Device::Console),
                Some(Stdio::Null) => Kind::Device(Device::Null),
                Some(Stdio::File { path, append }) => {
                    flags = match (output, append) {
                        (false, _) => 0,
                        (true, false) => open_flags::WRONLY,
                        (true, true) => open_flags::WRONLY | open_flags::APPEND,
                    };
                    self.open_file(path, output, *append)?
                }
            };
            let flags = flags | open_flags::LARGEFILE;
            let description = Description {
                kind,
                flags,
                offset: 0,
                owner: None,
            };
            self.system.busy.opened(&description);
            let mut files = task.shares.files.borrow_mut();
            files.install(fd, description, false);
        }
        Ok(())
    }

    fn open_file(&mut self, path: &str, output: bool, append: bool) -> Result<Kind, Error> {
        let request = personality::files::Request::Open {
            path: String::from(path),
            flags: Flags {
                create: output,
                truncate: output && !append,
                ..Flags::default()
            },
            mode: 0o644,
        };
        let personality::files::Reply::Opened(attr) = self.world.ask_fs(&request, &[], &mut [])?.0
        else {
            return Err(Error::Broken);
        };
        let ino = attr.ino;
        let (kind, error) = match attr.mode & mode::TYPE {
            mode::FILE => return Ok(Kind::File { ino }),
            mode::CHARACTER if ino == services::fs::NULL_INO => (Kind::Device(Device::Null), None),
            mode::CHARACTER => (Kind::Device(Device::Console), None),
            _ => (Kind::Device(Device::Null), Some(Error::IsDirectory)),
        };
        let _ = self
            .world
            .ask_fs(&personality::files::Request::Close { ino }, &[], &mut []);
        error.map_or(Ok(kind), Err)
    }
}
