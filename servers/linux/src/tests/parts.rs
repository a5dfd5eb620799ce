//! Parts of trees that are saved without the rest: what they share with other processes is as if those had closed it.

use super::trees::{nothing_is_left, terminal};
use super::*;

/// A shell, and the job that it has started: the leader, another process of the group, and a child of the leader.
struct Shell {
    shell: One,
    job: [Task; 3],
}

/// What the shell has open, beside what [`example`] has: a pipe (0 and 1), a socket and its other end (2 and 3), a
/// terminal (5 and 6), and a pipe of the job (7 and 8), of which the shell has closed its own ends. The job has closed
/// 0, 3 and 5.
fn shell(host: &mut Fake) -> Shell {
    let mut shell = example(host);
    assert_eq!(shell.result(host, nr::pipe, &[0x10_0000]), 0);
    let pair = [u64::from(linux_raw_sys::net::AF_UNIX), 1, 0, 0x10_0000];
    assert_eq!(shell.result(host, nr::socketpair, &pair), 0);
    assert_eq!(terminal(&mut shell, host), (5, 6));
    assert_eq!(shell.result(host, nr::pipe, &[0x10_0000]), 0);
    shell.result(host, nr::fork, &[]);
    let mut first = child_of(&mut shell, host);
    shell.result(host, nr::fork, &[]);
    let mut second = child_of(&mut shell, host);
    let group = u64::from(first.number);
    for task in [&mut first, &mut second] {
        let set = registers(nr::setpgid, &[0, group]);
        assert_eq!(returns(task, &mut shell.system, host, &set), 0);
        for fd in [0, 3, 5] {
            let close = registers(nr::close, &[fd]);
            assert_eq!(returns(task, &mut shell.system, host, &close), 0);
        }
    }
    let number = returns(
        &mut first,
        &mut shell.system,
        host,
        &registers(nr::fork, &[]),
    );
    let third = host.born.pop().expect("a child was started").task;
    assert_eq!(number, i64::from(third.number));
    for fd in [7, 8] {
        assert_eq!(shell.result(host, nr::close, &[fd]), 0);
    }
    let _ = (shell.system.take_sent(), shell.system.take_woken());
    Shell {
        shell,
        job: [first, second, third],
    }
}

impl Shell {
    /// Saves the job's process with this index, and what belongs to the part that it stands for.
    fn save(&self, of: usize, cut: bool, host: &mut Fake) -> Result<part::Made, part::Refusal> {
        let tasks = core::iter::once(&self.shell.task).chain(&self.job);
        let tasks: Vec<(u64, &Task)> = tasks.map(|task| (FIRST, task)).collect();
        let known = |_| (None, String::new());
        let what = part::What {
            cut,
            ..whole(self.job[of].pid)
        };
        let mut gathered = part::Gathered::default();
        loop {
            let system = &self.shell.system;
            let set = what.set(system);
            match part::save((what, &set), &mut gathered, &tasks, known, system, host) {
                Err(part::Refusal::Turn) => {}
                made => return made,
            }
        }
    }

    fn end(mut self, host: &mut Fake) {
        for mut task in self.job {
            task.close_files(&mut self.shell.system, host);
        }
        self.shell.close_all(host);
        nothing_is_left(&self.shell.system);
    }
}

/// The image of a job has all of the job, and nothing of its shell.
#[test]
fn a_job_is_saved_without_its_shell() {
    let mut host = Fake::new();
    let mut all = shell(&mut host);
    host.write_memory(0x10_0000, b"through").unwrap();
    let put = registers(nr::write, &[8, 0x10_0000, 7]);
    let system = &mut all.shell.system;
    assert_eq!(returns(&mut all.job[0], system, &mut host, &put), 7);
    for fd in [1, 2] {
        let put = registers(nr::write, &[fd, 0x10_0000, 4]);
        assert_eq!(returns(&mut all.job[0], system, &mut host, &put), 4);
    }
    // The third process watches the other end of 2, and has looked once.
    let third = &mut all.job[2];
    let epoll = returns(
        third,
        system,
        &mut host,
        &registers(nr::epoll_create1, &[0]),
    );
    let epoll = epoll as u64;
    // `EPOLLIN`, and a word of its own.
    host.write_memory(0x10_0100, &[1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0])
        .unwrap();
    let add = registers(nr::epoll_ctl, &[epoll, 1, 2, 0x10_0100]);
    assert_eq!(returns(third, system, &mut host, &add), 0);
    let look = registers(nr::epoll_wait, &[epoll, 0x10_0200, 8, 0]);
    assert_eq!(returns(third, system, &mut host, &look), 0);
    // A job is not saved without its parent unless that is asked for; the parent is not disturbed.
    let refused = all.save(0, false, &mut host).unwrap_err();
    assert_eq!(refused, part::Refusal::Parent(all.shell.task.pid));
    let made = all.save(0, true, &mut host).unwrap();
    assert_eq!(
        made.memories.len(),
        3,
        "A6: the job is whole, and nobody else is saved"
    );
    let mut system = System::new();
    let root = system.create(None).unwrap();
    let again = part::adopt(&made.part, (3, 0), 0, root, &mut system, &mut host).unwrap();
    let mut tasks: Vec<Task> = again.tasks.into_iter().map(|s| s.task).collect();
    let old: Vec<u32> = all.job.iter().map(|task| task.number).collect();
    tasks.sort_by_key(|task| old.iter().position(|n| *n == task.number));
    let [first, second, third] = &mut tasks[..] else {
        panic!("{} tasks", tasks.len())
    };
    let get = |number| registers(number, &[]);
    for (task, parent) in [(&mut *first, 1), (second, 1), (third, old[0])] {
        let system = &mut system;
        let found = returns(task, system, &mut host, &get(nr::getppid));
        assert_eq!(found, i64::from(parent));
        let group = returns(task, system, &mut host, &get(nr::getpgrp));
        assert_eq!(group, i64::from(old[0]));
    }
    // What the processes of the job share goes on.
    let read = |fd| registers(nr::read, &[fd, 0x10_1000, 99]);
    assert_eq!(returns(second, &mut system, &mut host, &read(7)), 7);
    let mut bytes = [0; 7];
    host.read_memory(0x10_1000, &mut bytes).unwrap();
    assert_eq!(&bytes, b"through");
    // What the shell has is closed.
    let told = returns(third, &mut system, &mut host, &look);
    assert_eq!(told, 1, "A4: who watches hears of an end that was cut");
    let pipe = crate::signal::bit(crate::signal::sig::PIPE);
    host.write_memory(0x10_0000, &pipe.to_le_bytes()).unwrap();
    let block = registers(nr::rt_sigprocmask, &[0, 0x10_0000, 0, 8]);
    assert_eq!(returns(third, &mut system, &mut host, &block), 0);
    host.write_memory(0x10_0000, b"more").unwrap();
    let write = |fd| registers(nr::write, &[fd, 0x10_0000, 4]);
    let broken = crate::errno::EPIPE.rax() as i64;
    for fd in [1, 2] {
        let found = returns(third, &mut system, &mut host, &write(fd));
        assert_eq!(found, broken, "A6: nobody has the other end of {fd}");
    }
    assert_eq!(returns(third, &mut system, &mut host, &read(2)), 0);
    let hung_up = returns(third, &mut system, &mut host, &write(6));
    assert_eq!(hung_up, crate::errno::EIO.rax() as i64);
    // A file that job and shell have open keeps its offset, and each has an offset of its own after the restore.
    let tell = registers(nr::lseek, &[4, 0, 1]);
    assert_eq!(returns(third, &mut system, &mut host, &tell), 3);
    for task in &mut tasks {
        task.close_files(&mut system, &mut host);
    }
    drop(tasks);
    nothing_is_left(&system);
    // The processes that went on are not changed.
    let read = [0, 0x10_1000, 99];
    assert_eq!(all.shell.result(&mut host, nr::read, &read), 4);
    let read = [3, 0x10_1000, 99];
    assert_eq!(all.shell.result(&mut host, nr::read, &read), 4);
    all.end(&mut host);
}

/// Any process of a job stands for the job; a process in its parent's group is saved with its descendants alone.
#[test]
fn a_part_is_a_job_or_a_process_of_one() {
    let mut host = Fake::new();
    let all = shell(&mut host);
    let [first, second, third] = all.job.each_ref().map(|task| task.tid);
    let made = all.save(1, true, &mut host).unwrap();
    assert_eq!(
        made.memories,
        [second, first, third],
        "A6: who is named comes first"
    );
    let made = all.save(2, true, &mut host).unwrap();
    assert_eq!(made.memories, [third], "S1: nobody else");
    let mut system = System::new();
    let root = system.create(None).unwrap();
    let (_, mut task) = adopt_one(&made.part, root, &mut system, &mut host);
    assert_eq!(task.number, all.job[2].number);
    task.close_files(&mut system, &mut host);
    drop(task);
    nothing_is_left(&system);
    all.end(&mut host);
}

/// What cannot be separated is refused, with a sentence.
#[test]
fn what_a_part_cannot_leave_is_refused() {
    let mut host = Fake::new();
    let mut parent = example(&mut host);
    let rights = u64::from(READ | WRITE);
    let flags = u64::from(linux::MAP_SHARED | linux::MAP_ANONYMOUS);
    let map = [0, PAGE, rights, flags, u64::MAX, 0];
    let at = parent.result(&mut host, nr::mmap, &map);
    assert!(at > 0);
    parent.result(&mut host, nr::fork, &[]);
    let mut child = child_of(&mut parent, &mut host);
    let save = |parent: &One, child: &Task, host: &mut Fake| {
        let what = part::What {
            cut: true,
            ..whole(child.pid)
        };
        let tasks = [(FIRST, &parent.task), (FIRST, child)];
        let known = |_| (None, String::new());
        let mut gathered = part::Gathered::default();
        let set = what.set(&parent.system);
        part::save(
            (what, &set),
            &mut gathered,
            &tasks,
            known,
            &parent.system,
            host,
        )
    };
    let refused = |parent: &One, child: &Task, host: &mut Fake| {
        let refused = save(parent, child, host).unwrap_err();
        refused.sentence("thing (2)", false)
    };
    assert_eq!(
        refused(&parent, &child, &mut host),
        "it shares mapped memory (MAP_SHARED) with thing (2), which is not saved with it"
    );
    let unmap = registers(nr::munmap, &[at as u64, PAGE]);
    assert_eq!(
        returns(&mut child, &mut parent.system, &mut host, &unmap),
        0
    );
    let _ = save(&parent, &child, &mut host).unwrap();
    // System V IPC belongs to the tree.
    let set = parent.result(&mut host, nr::semget, &[5, 2, 0o1600]) as u64;
    super::trees::operation(&mut host, 1, 3, 0x1000);
    let change = registers(nr::semop, &[set, 0x10_0000, 1]);
    assert_eq!(
        returns(&mut child, &mut parent.system, &mut host, &change),
        0
    );
    assert_eq!(
        refused(&parent, &child, &mut host),
        "it uses System V IPC of its tree, which is not saved with it"
    );
}

/// An image cannot have a file open for writing that others execute, for then nobody could execute it again.
#[test]
fn a_part_does_not_write_what_others_execute() {
    let mut host = Fake::new();
    let mut process = with_large(&mut host);
    add_program(&mut host, &long_elf());
    host.write_memory(0x10_0000, b"/tmp/program\0").unwrap();
    let with = |process: &mut One, host: &mut Fake, flags: u32| {
        let fd = process.result(host, nr::open, &[0x10_0000, u64::from(flags)]);
        assert!(fd >= 0);
        let saved = process.save(host).unwrap();
        assert_eq!(process.result(host, nr::close, &[fd as u64]), 0);
        saved
    };
    let written = with(&mut process, &mut host, linux::O_RDWR);
    let read = with(&mut process, &mut host, linux::O_RDONLY);
    let execve = registers(nr::execve, &[0x10_0000, 0, 0]);
    let (prepared, _) = until_executed(&mut process, &mut host, &execve);
    let One { task, system } = &mut process;
    emulate::execute(task, system, &mut host, *prepared);
    let ino = process.memory().executed.as_ref().unwrap().ino();
    let before = (host.opens, process.system.busy.counts());
    let system = &mut process.system;
    let root = system.create(None).unwrap();
    let made = part::adopt(&written, (1, 0), 0, root, system, &mut host);
    let refused = made.err().unwrap_or_default();
    let rule = "S1: a program that is executed can be written to";
    let sentence = "somebody else executes one of the files that it has open to be written";
    assert_eq!(refused, sentence, "{rule}");
    system.settle_executed(&mut host);
    assert_eq!((host.opens, system.busy.counts()), before);
    assert!(system.busy.is_executed(ino) && system.busy.writers(ino) == 0);
    // A process that only reads the file is restored.
    let (_, mut task) = adopt_one(&read, root, system, &mut host);
    task.close_files(system, &mut host);
    drop(task);
    assert_eq!((host.opens, system.busy.counts()), before);
    process.close_all(&mut host);
}

/// The name of a restored program's file can be that of a file which the process has open for writing: the process goes
/// on, and the file counts as written to and not as executed.
#[test]
fn a_part_that_writes_its_own_program_does_not_execute_it() {
    let mut host = Fake::new();
    let mut process = with_large(&mut host);
    add_program(&mut host, &long_elf());
    add_executable(&mut host, "/tmp/other", &long_elf());
    host.write_memory(0x10_0000, b"/tmp/other\0").unwrap();
    let open = [0x10_0000, u64::from(linux::O_RDWR)];
    let fd = process.result(&mut host, nr::open, &open);
    assert!(fd >= 0);
    host.write_memory(0x10_0000, b"/tmp/program\0").unwrap();
    let execve = registers(nr::execve, &[0x10_0000, 0, 0]);
    let (prepared, _) = until_executed(&mut process, &mut host, &execve);
    let One { task, system } = &mut process;
    emulate::execute(task, system, &mut host, *prepared);
    let ino = process.memory().executed.as_ref().unwrap().ino();
    let saved = process.save(&mut host).unwrap();
    let (from, to) = ("/tmp/program".to_string(), "/tmp/other".to_string());
    let unlink = Request::Unlink { path: to.clone() };
    files::ask(&host.session, &unlink, &[]).unwrap();
    files::ask(&host.session, &Request::Link { from, to }, &[]).unwrap();
    let before = host.opens;
    let made = One::adopt(&saved, 0, &mut host);
    let rule = "S1: what is open to be written is executed";
    assert_eq!(made.as_ref().err(), None, "{rule}");
    let mut again = made.unwrap();
    let busy = &again.system.busy;
    assert!(!busy.is_executed(ino) && busy.writers(ino) == 1, "{rule}");
    again.close_all(&mut host);
    again.task.shares.memory = Default::default();
    again.system.settle_executed(&mut host);
    assert_eq!((host.opens, again.system.busy.counts()), (before, (0, 0)));
    process.close_all(&mut host);
}
