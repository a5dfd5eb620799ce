//! System V IPC: calls that wait, what is handed to them, and bounds.

use super::*;
use crate::system::Thing;

const AT: u64 = 0x10_0000;

/// One operation on a semaphore of a set.
fn operation(host: &mut Fake, set: u64, number: u16, add: i16, flags: u16) -> Registers {
    let words = [number, add as u16, flags];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let at = AT + 8 * u64::from(add as u8);
    host.write_memory(at, &bytes).unwrap();
    registers(nr::semop, &[set, at, 1])
}

fn value(one: &mut One, host: &mut Fake, set: u64) -> i64 {
    one.result(host, nr::semctl, &[set, 0, 12])
}

fn done(task: &mut Task, system: &mut System, host: &mut Fake, entry: &Registers) -> Option<i64> {
    match emulate::call(task, system, host, entry) {
        Outcome::Go { registers, .. } => Some(registers.rax as i64),
        Outcome::Park(_) => None,
        outcome => panic!("{outcome:?}"),
    }
}

/// A process and its child.
fn with_child(host: &mut Fake) -> (One, Task) {
    let mut root = example(host);
    root.result(host, nr::fork, &[]);
    let child = child_of(&mut root, host);
    (root, child)
}

#[test]
fn what_is_given_to_who_waits_is_his_whenever_he_comes() {
    let mut host = Fake::new();
    let (mut root, mut child) = with_child(&mut host);
    let set = root.result(&mut host, nr::semget, &[5, 2, 0o1600]) as u64;
    let queue = root.result(&mut host, nr::msgget, &[5, 0o1600]) as u64;
    let takes = operation(&mut host, set, 0, -2, 0);
    let gives = operation(&mut host, set, 0, 3, 0);
    let receive = registers(nr::msgrcv, &[queue, AT + 0x3000, 100, 7, 0]);
    let system = &mut root.system;
    assert_eq!(done(&mut child, system, &mut host, &takes), None);
    assert_eq!(done(&mut root.task, system, &mut host, &gives), Some(0));
    // The operation is done for the child before its call is made again; a restored child finds it done, too.
    assert_eq!(value(&mut root, &mut host, set), 1);
    let tasks = [(FIRST, &root.task), (FIRST, &child)];
    let saved = save(&tasks, None, &root.system, &mut host).unwrap();
    let system = &mut root.system;
    assert_eq!(done(&mut child, system, &mut host, &takes), Some(0));
    let mut again = System::new();
    let pid = again.create(None).unwrap();
    let adopted = part::adopt(&saved, (2, 0), 0, pid, &mut again, &mut host).unwrap();
    let mut tasks: Vec<Task> = adopted
        .tasks
        .into_iter()
        .map(|seated| seated.task)
        .collect();
    let mut other = tasks.pop().unwrap();
    assert_eq!(done(&mut other, &mut again, &mut host, &takes), Some(0));
    assert_eq!(done(&mut other, &mut again, &mut host, &takes), None);
    // A message is handed to the receiver that waits: nobody else finds it.
    assert_eq!(done(&mut child, system, &mut host, &receive), None);
    host.write_memory(AT + 0x2000, b"\x07\0\0\0\0\0\0\0text")
        .unwrap();
    let send = registers(nr::msgsnd, &[queue, AT + 0x2000, 4, 0]);
    assert_eq!(done(&mut root.task, system, &mut host, &send), Some(0));
    let other = registers(nr::msgrcv, &[queue, AT + 0x3000, 100, 0, 0o4000]);
    let none = -i64::from(linux_raw_sys::errno::ENOMSG);
    assert_eq!(done(&mut root.task, system, &mut host, &other), Some(none));
    assert_eq!(done(&mut child, system, &mut host, &receive), Some(4));
    let mut bytes = [0; 12];
    host.read_memory(AT + 0x3000, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\x07\0\0\0\0\0\0\0text");
}

#[test]
fn a_process_that_ends_undoes_and_the_last_one_leaves_nothing() {
    let mut host = Fake::new();
    let (mut root, mut child) = with_child(&mut host);
    let set = root.result(&mut host, nr::semget, &[5, 2, 0o1600]) as u64;
    assert!(root.result(&mut host, nr::shmget, &[5, PAGE, 0o1600]) >= 0);
    assert!(root.result(&mut host, nr::msgget, &[5, 0o1600]) >= 0);
    let gives = operation(&mut host, set, 0, 3, 0x1000);
    let waits = operation(&mut host, set, 0, 0, 0);
    let system = &mut root.system;
    assert_eq!(done(&mut child, system, &mut host, &gives), Some(0));
    assert_eq!(done(&mut root.task, system, &mut host, &waits), None);
    assert_eq!(system.counted_things(Thing::Undo), 1);
    let exit = registers(nr::exit, &[0]);
    emulate::call(&mut child, system, &mut host, &exit);
    assert_eq!(system.counted_things(Thing::Undo), 0);
    assert_eq!(done(&mut root.task, system, &mut host, &waits), Some(0));
    emulate::call(&mut root.task, system, &mut host, &exit);
    while system.objects.is_due() {
        system.settle_objects(&mut host);
    }
    for thing in [Thing::Set, Thing::Queue, Thing::Undo, Thing::Object] {
        assert_eq!(system.counted_things(thing), 0, "S2: {thing:?}");
    }
}

#[test]
fn there_is_an_end_of_ipc_and_others_have_as_much() {
    let mut host = Fake::new();
    let mut root = example(&mut host);
    let full = -i64::from(linux_raw_sys::errno::ENOSPC);
    let fills = |root: &mut One, host: &mut Fake, call: u64, arguments: &[u64]| {
        let mut count = 0;
        loop {
            match root.result(host, call, arguments) {
                id if id < 0 => {
                    assert_eq!(id, full);
                    return count;
                }
                _ => count += 1,
            }
        }
    };
    assert_eq!(
        fills(&mut root, &mut host, nr::semget, &[0, 250, 0o600]),
        64
    );
    assert_eq!(fills(&mut root, &mut host, nr::msgget, &[0, 0o600]), 32);
    assert_eq!(fills(&mut root, &mut host, nr::shmget, &[0, 1, 0o600]), 128);
    // Each semaphore with an adjustment to undo counts once.
    let mut undone = 0;
    'sets: for id in root
        .system
        .ipc(root.task.pid)
        .sets
        .ids()
        .collect::<Vec<_>>()
    {
        for number in 0..250 {
            let one = operation(&mut host, id as u64, number, 1, 0x1000);
            let system = &mut root.system;
            match done(&mut root.task, system, &mut host, &one) {
                Some(0) => undone += 1,
                result => {
                    assert_eq!(result, Some(full));
                    break 'sets;
                }
            }
        }
    }
    assert_eq!(undone, crate::ipc::MAX_UNDO);
    // Messages without text are bounded, too.
    let queue = root.system.ipc(root.task.pid).queues.ids().next().unwrap() as u64;
    host.write_memory(AT, &1u64.to_le_bytes()).unwrap();
    let mut count = 0;
    while root.result(&mut host, nr::msgsnd, &[queue, AT, 0, 0o4000]) == 0 {
        count += 1;
    }
    assert_eq!(count, crate::ipc::MAX_MESSAGES);
    // Another tree has its own keys and identifiers, and sees none of these.
    let pid = root.system.create(None).unwrap();
    let task = Task::new(pid, "/tmp".to_string());
    let first = core::mem::replace(&mut root.task, task);
    assert!(root.result(&mut host, nr::semget, &[5, 1, 0o1600]) >= 0);
    assert_eq!(root.result(&mut host, nr::semctl, &[1, 0, 12]), -22);
    root.task = first;
}

#[test]
fn anything_can_be_asked_of_ipc() {
    let mut host = Fake::new();
    let (mut root, mut child) = with_child(&mut host);
    let mut others = host.slots.clone();
    let mut random = fastrand::Rng::with_seed(7);
    let calls = [
        nr::shmget,
        nr::shmat,
        nr::shmdt,
        nr::shmctl,
        nr::semget,
        nr::semop,
        nr::semctl,
        nr::semtimedop,
        nr::msgget,
        nr::msgsnd,
        nr::msgrcv,
        nr::msgctl,
    ];
    for _ in 0..20_000 {
        let mut bytes = [0; 64];
        bytes
            .iter_mut()
            .for_each(|byte| *byte = random.u8(..) & random.u8(..) & random.u8(..) & random.u8(..));
        host.write_memory(AT, &bytes).unwrap();
        let any = [
            0,
            1,
            2,
            3,
            5,
            0o1600,
            0o4000,
            0x7fff,
            1 << 15,
            AT,
            AT + 3,
            u64::MAX,
            1 << 40,
            250,
        ];
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = match random.bool() {
                true => any[random.usize(..any.len())],
                false => random.u64(..20),
            };
        }
        let entry = registers(calls[random.usize(..calls.len())], &arguments);
        match random.bool() {
            true => done(&mut root.task, &mut root.system, &mut host, &entry),
            false => {
                // The child has its own mappings.
                std::mem::swap(&mut host.slots, &mut others);
                let result = done(&mut child, &mut root.system, &mut host, &entry);
                std::mem::swap(&mut host.slots, &mut others);
                result
            }
        };
        while root.system.objects.is_due() {
            root.system.settle_objects(&mut host);
        }
        if random.u8(..) == 0 {
            let tasks = [(FIRST, &root.task), (FIRST, &child)];
            let saved = save(&tasks, None, &root.system, &mut host).unwrap();
            // Another machine: identities belong to a host.
            let mut host = Fake::new();
            example(&mut host);
            let mut again = System::new();
            let pid = again.create(None).unwrap();
            let count = root.system.ipc(root.task.pid).memories.count();
            let adopted = (0..=count + 40).find_map(|objects| {
                part::adopt(&saved, (2, objects), 0, pid, &mut again, &mut host).ok()
            });
            assert!(adopted.is_some());
        }
    }
}

#[test]
fn what_is_given_is_not_lost_by_a_signal() {
    let mut host = Fake::new();
    let (mut root, mut child) = with_child(&mut host);
    let queue = root.result(&mut host, nr::msgget, &[5, 0o1600]) as u64;
    host.write_memory(AT, &0x5000u64.to_le_bytes()).unwrap();
    host.write_memory(AT + 8, &0x4400_0004u64.to_le_bytes())
        .unwrap();
    let system = &mut root.system;
    let handles = registers(nr::rt_sigaction, &[10, AT, 0, 8]);
    assert_eq!(done(&mut child, system, &mut host, &handles), Some(0));
    let receive = registers(nr::msgrcv, &[queue, AT + 0x2000, 100, 7, 0]);
    assert_eq!(done(&mut child, system, &mut host, &receive), None);
    host.write_memory(AT + 0x1000, b"\x07\0\0\0\0\0\0\0text")
        .unwrap();
    let send = registers(nr::msgsnd, &[queue, AT + 0x1000, 4, 0]);
    assert_eq!(done(&mut root.task, system, &mut host, &send), Some(0));
    // A signal stops the child's thread where it is about to make its call again.
    let post = |task: &mut Task, signal| {
        let actions = task.shares.actions.borrow();
        task.signals.post(&actions, signal, Origin::default());
    };
    post(&mut child, 10);
    let outcome = emulate::interrupt(&mut child, system, &mut host, &receive);
    let goes_on = matches!(outcome, Outcome::Go { registers, .. } if registers == receive);
    assert!(goes_on, "S3: what was done stays done");
    let outcome = emulate::call(&mut child, system, &mut host, &receive);
    assert!(matches!(outcome, Outcome::Go { registers, .. } if registers.rip == 0x5000));
    let mut bytes = [0; 12];
    host.read_memory(AT + 0x2000, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\x07\0\0\0\0\0\0\0text");
    // A signal ends a call that has received nothing, and nothing is handed to it afterwards: whether the call is made
    // again or its thread is stopped before that.
    let interrupted = -i64::from(linux_raw_sys::errno::EINTR);
    let all = registers(nr::msgrcv, &[queue, AT + 0x2000, 100, 0, 0o4000]);
    for deliver in [emulate::call, emulate::interrupt] {
        assert_eq!(done(&mut child, system, &mut host, &receive), None);
        post(&mut child, 10);
        let outcome = deliver(&mut child, system, &mut host, &receive);
        let Outcome::Go { registers: at, .. } = outcome else {
            panic!("{outcome:?}")
        };
        let rule = "S3: nothing is handed to a call that a signal has ended";
        assert_eq!(at.rip, 0x5000, "{rule}");
        assert!(system.ipcs.wait(child.tid).is_none(), "{rule}");
        let mut frame = [0; 1024];
        host.read_memory(at.rsp, &mut frame).unwrap();
        let mut words = frame.chunks(8).map(|word| word.try_into().unwrap());
        assert!(words.any(|word| i64::from_le_bytes(word) == interrupted));
        assert_eq!(done(&mut root.task, system, &mut host, &send), Some(0));
        assert_eq!(done(&mut root.task, system, &mut host, &all), Some(4));
    }
    // `SIGKILL` ends the call in any case.
    assert_eq!(done(&mut child, system, &mut host, &receive), None);
    assert_eq!(done(&mut root.task, system, &mut host, &send), Some(0));
    post(&mut child, 9);
    let outcome = emulate::interrupt(&mut child, system, &mut host, &receive);
    assert!(matches!(outcome, Outcome::End(_)));
}

#[test]
fn a_crowd_at_semaphores_holds_up_nobody() {
    const CROWD: u64 = 40;
    let mut host = Fake::new();
    let mut root = example(&mut host);
    let set = root.result(&mut host, nr::semget, &[5, 64, 0o1600]) as u64;
    // Each child takes its own semaphore and gives the one before: the last child goes first, and each success has all
    // the others tried again.
    let mut crowd = Vec::new();
    for number in 0..CROWD {
        root.result(&mut host, nr::fork, &[]);
        let mut child = child_of(&mut root, &mut host);
        let before = number.checked_sub(1).unwrap_or(CROWD + 1);
        let words = [number as u16, u16::MAX, 0, before as u16, 1, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        host.write_memory(AT, &bytes).unwrap();
        let takes = registers(nr::semop, &[set, AT, 2]);
        let system = &mut root.system;
        assert_eq!(done(&mut child, system, &mut host, &takes), None);
        crowd.push((child, takes));
    }
    let gives = operation(&mut host, set, (CROWD - 1) as u16, 1, 0);
    root.system.take_woken();
    let system = &mut root.system;
    assert_eq!(done(&mut root.task, system, &mut host, &gives), Some(0));
    let is_left = |(child, _): &&(Task, Registers)| !system.has_outcome(child.tid);
    let left = crowd.iter().filter(is_left).count();
    assert!(left > 0, "A9: every loop has a bound");
    assert!(left < CROWD as usize);
    // The children that are left are woken, and make their calls again in any order.
    let mut rounds = 0;
    while !crowd.is_empty() {
        let woken = root.system.take_woken();
        let system = &mut root.system;
        let mut there = 0;
        crowd.retain_mut(|(child, takes)| {
            let key = crate::system::Key::Ipc(child.tid);
            if !woken.iter().any(|(other, _)| *other == key) {
                return true;
            }
            there += 1;
            match done(child, system, &mut host, takes) {
                None => true,
                Some(result) => {
                    assert_eq!(result, 0);
                    false
                }
            }
        });
        assert!(there > 0, "A8: a lost wake-up");
        rounds += 1;
    }
    assert!(rounds > 1);
    let last = root.result(&mut host, nr::semctl, &[set, CROWD + 1, 12]);
    assert_eq!(last, 1);
}
