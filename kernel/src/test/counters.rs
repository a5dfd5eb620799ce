//! The events that the kernel reports to a counting emulator, and the costs of threads.

use super::world::*;
use crate::counters::{counted, restarts, Kind};
use crate::object::thread::Thread;
use crate::object::{Object, CHUNK};
use abi::state::Waiting;
use abi::{Call, PAGE_SIZE};

/// RPCs of the client.
const CALLS: u64 = 10;

/// The number of times that threads blocked for this reason, whatever became of their stacks.
fn blocks(reason: Waiting) -> u64 {
    [Kind::Kept, Kind::Compressed, Kind::HandedOff]
        .map(|kind| counted(kind, reason))
        .iter()
        .sum()
}

/// An RPC in registers blocks each side once, and completes each side's call in its frame.
#[test]
fn an_rpc_is_two_blocks_and_two_recognitions() {
    let w = World::with_frames(64);
    let set = w.create(Call::PortsetCreate);
    let (_, port) = w.port(set, 1);
    let registers = |name| [(A0, name), (A10, 0), (A9, 0)];
    let wait = Program::new().call(Call::ServerWaitReceiveShort, &registers(set));
    let again = wait.len();
    let server = wait
        .call(Call::ServerAckSendWaitReceiveShort, &registers(set))
        .jump(again);
    w.thread(0, server, 5);
    w.run();
    let mut client = Program::new();
    for _ in 0..CALLS {
        client = client.call(Call::ClientConnectSendOverReceiveShort, &registers(port));
    }
    let before = [Waiting::Peer, Waiting::Portset]
        .map(|reason| (reason, blocks(reason), counted(Kind::Recognised, reason)));
    w.thread(0, client.end(), 5);
    w.run();
    for (reason, blocked, recognised) in before {
        assert_eq!(blocks(reason), blocked + CALLS, "{reason:?}");
        assert_eq!(
            counted(Kind::Recognised, reason),
            recognised + CALLS,
            "{reason:?}"
        );
    }
    assert_eq!(restarts(), [0, 0]);
}

/// A call that meets an absent page is abandoned once, and begun again when its keeper is there.
#[test]
fn a_call_that_faults_is_a_restart() {
    let w = World::with_frames(64);
    let set = w.create(Call::PortsetCreate);
    let (_, port) = w.port(set, 1);
    let (_, space) = w.space(1 << 16, 0, 0);
    // The region has no pages: its keeper is asked.
    let (_, region) = w.region(space, 0x100_0000, PAGE_SIZE, port);
    let (_, own) = w.region(0, RAM, 8 * PAGE_SIZE, 0);
    let (_, other) = w.space(1 << 16, 0, 0);
    w.map(other, 0x20_0000, PAGE_SIZE, region, 0);
    let p = Program::new().call(Call::MutexLock, &[(A0, 0x20_0000)]);
    let t = w.thread(other, p.end(), 5);
    w.run();
    assert_eq!(restarts(), [1, 0]);
    assert!(w.thread_at(t).waits_for(Waiting::Port));
    // The page is mapped, and then a server waits at the keeper's port: the call is made again, and finds the
    // page.
    w.map(space, 0x100_0000, PAGE_SIZE, own, 0);
    let keeper = Program::new()
        .call(
            Call::ServerWaitReceiveShort,
            &[(A0, set), (A10, 0), (A9, 0)],
        )
        .end();
    w.thread(0, keeper, 6);
    w.run();
    assert_eq!(restarts(), [1, 1]);
}

/// A space is charged for all the memory that its threads take from the kernel: there is no table, link or list that is
/// not charged.
#[test]
fn threads_cost_what_is_charged() {
    let w = World::with_frames(256);
    let used = || {
        let (all, free) = hal::pool_bytes();
        all - free
    };
    let fill = || {
        while w.k.threads.counts().1 > 0 {
            w.create(Call::ThreadCreate);
        }
    };
    fill();
    let (before, slots) = (used(), w.k.threads.slots());
    w.create(Call::ThreadCreate);
    fill();
    let more = (w.k.threads.slots() - slots) as u64;
    assert_eq!(more, CHUNK as u64);
    assert_eq!(used() - before, more * Thread::cost());
}
