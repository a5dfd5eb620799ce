//! Connections, messages, references in messages, and idempotent calls.

use abi::message::Segment;
use abi::registers::Area;
use abi::state::{Stage, Waiting};
use abi::{Call, Code, RefKind};
use alloc::vec;
use alloc::vec::Vec;
use guest_tests::harness::{reply, Actor, Must, Outcome, Receiver};
use guest_tests::{check, check_eq, guest_test};
use rt::obj::{Ref, RefBlock};
use rt::sys::{self, IpcRegs};

/// The time limit of a receive, in nanoseconds.
const SOON: u64 = guest_tests::harness::PATIENCE;
/// The time limit of a receive for which no message comes, in nanoseconds.
const NEVER: u64 = 2_000_000;

fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|n| seed.wrapping_add((n % 251) as u8))
        .collect()
}

/// The buffers of a client: what it sends, and where it receives.
struct Talk {
    out: Vec<u8>,
    into: Vec<u8>,
}

impl Talk {
    fn new(out: Vec<u8>, room: usize) -> Self {
        Talk {
            out,
            into: vec![0; room],
        }
    }

    fn regs(&mut self, port: &Ref) -> IpcRegs {
        IpcRegs::to(port.handle())
            .sending_bytes(&self.out)
            .receiving_bytes(&mut self.into)
    }

    /// The same, with a list of references to send.
    fn regs_with(&mut self, port: &Ref, refs: u64) -> IpcRegs {
        self.regs(port).sending(Area {
            refs,
            ..Area::new(self.out.as_ptr() as u64, self.out.len() as u64)
        })
    }

    fn received(&self, regs: &IpcRegs) -> &[u8] {
        &self.into[..self.into.len() - (regs.left().length as usize).min(self.into.len())]
    }
}

guest_test!(IPC0001, rpc_round_trip);
fn rpc_round_trip() -> Outcome {
    let mut server = Receiver::new(42)?;
    for length in [0usize, 1, 63, 64, 65, 4096, 8000] {
        let client = Actor::new()?;
        let mut talk = Talk::new(bytes(1, length), 9000);
        client.call(
            Call::ClientConnectSendOverReceive,
            talk.regs(&server.port_ref),
        )?;
        let got = server.receive(SOON);
        check_eq!((got.code, got.alias, got.length), (Code::Ok, 42, length));
        check!(
            server.buffer[..length] == bytes(1, length)[..],
            "the request of {length}"
        );
        let answer = bytes(7, length + 1);
        let regs = server.receive_regs().sending_bytes(&answer);
        check_eq!(server.run(Call::ServerAckSendOver, regs).code, Code::Ok);
        let regs = client.finish()?;
        check_eq!(regs.code(), Code::Ok);
        check!(talk.received(&regs) == &answer[..], "the reply to {length}");
    }
    Ok(())
}

fn words(n: usize) -> [u64; 8] {
    core::array::from_fn(|i| {
        if i < n.div_ceil(8) {
            0x0101_0101_0101_0101 * (i as u64 + 1)
        } else {
            0
        }
    })
}

fn short_regs(port: &Ref, n: usize) -> IpcRegs {
    IpcRegs::to(port.handle()).sending_words(words(n), n)
}

fn masked(words: [u64; 8], n: usize) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).take(n).collect()
}

guest_test!(IPC0002, short_round_trip);
fn short_round_trip() -> Outcome {
    let server = Receiver::new(5)?;
    for n in [0usize, 1, 7, 8, 9, 33, 63, 64] {
        let client = Actor::new()?;
        client.call(
            Call::ClientConnectSendOverReceiveShort,
            short_regs(&server.port_ref, n),
        )?;
        let other = Actor::new()?;
        let regs = IpcRegs::to(server.portset.handle());
        other.call(Call::ServerWaitReceiveShort, regs)?;
        let regs = other.finish()?;
        check_eq!(
            (regs.code(), regs.value(), regs.short_len()),
            (Code::Ok, 5, n)
        );
        check_eq!(masked(regs.short_words(), n), masked(words(n), n));
        // Sends the message back, and waits for more.
        let back = regs.sending_words(regs.short_words(), n);
        other.call(Call::ServerAckSendOverReceiveShort, back)?;
        let regs = client.finish()?;
        check_eq!((regs.code(), regs.short_len()), (Code::Ok, n));
        check_eq!(masked(regs.short_words(), n), masked(words(n), n));
        // The connection ends with the client.
        drop(client);
        check_eq!(other.finish_code()?, Code::Disconnected);
    }
    Ok(())
}

guest_test!(IPC0003, every_stage_by_itself);
/// One actor on each side, one entrypoint per stage.
fn every_stage_by_itself() -> Outcome {
    let mut server = Receiver::new(1)?;
    let (client, other) = (Actor::new()?, Actor::new()?);
    let request = bytes(3, 100);
    let answer = bytes(9, 200);
    let mut into = vec![0u8; 300];

    client.call(Call::ClientConnect, IpcRegs::to(server.port_ref.handle()))?;
    client.settle(Waiting::Port)?;
    other.call(Call::ServerWait, IpcRegs::to(server.portset.handle()))?;
    check_eq!(client.finish_code()?, Code::Ok);
    let regs = other.finish()?;
    check_eq!((regs.code(), regs.value()), (Code::Ok, 1));

    client.call(Call::ClientSend, IpcRegs::default().sending_bytes(&request))?;
    other.call(Call::ServerReceive, server.receive_regs())?;
    check_eq!(client.finish_code()?, Code::Ok);
    client.call(Call::ClientOver, IpcRegs::default())?;
    let regs = other.finish()?;
    check_eq!((regs.code(), regs.left().length), (Code::Ok, 8192 - 100));
    check!(server.buffer[..100] == request[..], "the request");
    check_eq!(client.finish_code()?, Code::Ok);

    other.call(Call::ServerAck, IpcRegs::default())?;
    check_eq!(other.finish_code()?, Code::Ok);
    other.call(Call::ServerSend, IpcRegs::default().sending_bytes(&answer))?;
    client.call(
        Call::ClientReceive,
        IpcRegs::default().receiving_bytes(&mut into[..300]),
    )?;
    check_eq!(other.finish_code()?, Code::Ok);
    other.call(Call::ServerOver, IpcRegs::default())?;
    check_eq!(other.finish_code()?, Code::Ok);
    let regs = client.finish()?;
    check_eq!((regs.code(), regs.left().length), (Code::Ok, 100));
    check!(into[..200] == answer[..], "the answer");

    client.call(
        Call::ClientAckSendOver,
        IpcRegs::default().sending_bytes(&request[..10]),
    )?;
    other.call(Call::ServerReceive, server.receive_regs())?;
    check_eq!(client.finish_code()?, Code::Ok);
    let regs = other.finish()?;
    check_eq!((regs.code(), regs.left().length), (Code::Ok, 8192 - 10));
    client.call(Call::ClientDisconnect, IpcRegs::default())?;
    check_eq!(client.finish_code()?, Code::Ok);
    other.call(
        Call::ServerAckSend,
        IpcRegs::default().sending_bytes(&answer),
    )?;
    check_eq!(other.finish_code()?, Code::Disconnected);
    Ok(())
}

guest_test!(IPC0004, full_buffer_says_more);
fn full_buffer_says_more() -> Outcome {
    let mut server = Receiver::new(1)?;
    let client = Actor::new()?;
    let mut talk = Talk::new(bytes(0, 1000), 100);
    client.call(
        Call::ClientConnectSendOverReceive,
        talk.regs(&server.port_ref),
    )?;
    let regs = server.receive_regs_of(300);
    let got = server.run(Call::ServerWaitReceive, regs);
    check_eq!((got.code, got.length), (Code::More, 300));
    let mut all = server.buffer[..300].to_vec();
    for _ in 0..3 {
        let regs = server.receive_regs_of(300);
        let got = server.run(Call::ServerReceive, regs);
        all.extend_from_slice(&server.buffer[..got.length]);
        if got.code == Code::Ok {
            break;
        }
        check_eq!(got.code, Code::More);
    }
    check!(all == bytes(0, 1000), "the pieces do not make the whole");
    Ok(())
}

guest_test!(IPC0005, scatter_lists);
fn scatter_lists() -> Outcome {
    let server = Receiver::new(1)?;
    let client = Actor::new()?;
    let parts: [Vec<u8>; 4] = [bytes(1, 10), bytes(2, 0), bytes(3, 5000), bytes(4, 1)];
    let list: Vec<Segment> = parts[1..]
        .iter()
        .map(|p| Segment {
            address: p.as_ptr() as u64,
            length: p.len() as u64,
        })
        .collect();
    let regs = IpcRegs::to(server.port_ref.handle()).sending(Area {
        list: list.as_ptr() as u64,
        entries: list.len() as u64,
        ..Area::new(parts[0].as_ptr() as u64, parts[0].len() as u64)
    });
    client.call(Call::ClientConnectSendOver, regs)?;
    // The message is received into pieces of other sizes than those that it is sent from.
    let mut into = [vec![0u8; 7], vec![0u8; 4000], vec![0u8; 4000]];
    let (first, rest) = into.split_at_mut(1);
    let list: Vec<Segment> = rest
        .iter_mut()
        .map(|p| Segment {
            address: p.as_mut_ptr() as u64,
            length: p.len() as u64,
        })
        .collect();
    let mut regs = IpcRegs::to(server.portset.handle()).receiving(Area {
        list: list.as_ptr() as u64,
        entries: list.len() as u64,
        ..Area::new(first[0].as_mut_ptr() as u64, 7)
    });
    // SAFETY: the buffers live longer than the call.
    let code = unsafe { sys::ipc(Call::ServerWaitReceive, &mut regs) };
    check_eq!(code, Code::Ok);
    let expected = parts.concat();
    let got = into.concat();
    check!(
        got[..expected.len()] == expected[..],
        "the pieces were mixed up"
    );
    // The position: within the last segment.
    check_eq!(regs.left().length as usize, got.len() - expected.len());
    check_eq!(regs.left().entries, 0);
    check_eq!(client.finish_code()?, Code::Ok);
    Ok(())
}

guest_test!(IPC0006, references_travel);
fn references_travel() -> Outcome {
    let mut server = Receiver::new(1)?;
    let client = Actor::new()?;
    let (mutex, port) = (
        rt::obj::Mutex::new().must("new")?,
        rt::obj::Port::new().must("new")?,
    );
    let block = RefBlock::new(3).must("references")?;
    mutex.reference_into(block.get(0)).must("reference")?;
    port.reference_into(block.get(1)).must("reference")?;
    let mut talk = Talk::new(bytes(0, 5), 5);
    let regs = talk.regs_with(&server.port_ref, block.list(3));
    client.call(Call::ClientConnectSendOver, regs)?;
    let got = server.receive(SOON);
    check_eq!((got.code, got.length, got.refs), (Code::Ok, 5, 3));
    check_eq!(server.refs.get(0).kind(), RefKind::Mutex);
    check_eq!(server.refs.get(1).kind(), RefKind::Port);
    check_eq!(server.refs.get(2).kind(), RefKind::Null);
    check!(server.refs.get(0).same_as(block.get(0)));
    check!(server.refs.get(1).same_as(block.get(1)));
    let regs = client.finish()?;
    check_eq!(
        (regs.code(), regs.unsent().refs & abi::MAX_LIST_REFS),
        (Code::Ok, 0)
    );

    // More references than there is room for.
    let client = Actor::new()?;
    let five = RefBlock::new(5).must("references")?;
    mutex.reference_into(five.get(4)).must("reference")?;
    let regs = talk.regs_with(&server.port_ref, five.list(5));
    client.call(Call::ClientConnectSendOver, regs)?;
    let got = server.receive(SOON);
    check_eq!((got.code, got.refs), (Code::More, 4));
    let regs = server.receive_regs();
    let got = server.run(Call::ServerReceive, regs);
    check_eq!((got.code, got.refs), (Code::Ok, 1));
    check!(server.refs.get(0).same_as(five.get(4)));
    Ok(())
}

guest_test!(IPC0007, disconnect_by_the_server);
fn disconnect_by_the_server() -> Outcome {
    let mut server = Receiver::new(1)?;
    let client = Actor::new()?;
    let mut talk = Talk::new(bytes(0, 50), 50);
    client.call(
        Call::ClientConnectSendOverReceive,
        talk.regs(&server.port_ref),
    )?;
    check_eq!(server.receive(SOON).code, Code::Ok);
    check_eq!(sys::server_disconnect(), Code::Ok);
    check_eq!(client.finish_code()?, Code::Disconnected);
    check_eq!(client.state().client_stage, Stage::None as u64);
    // The end of the connection delivers what was sent before it.
    client.call(
        Call::ClientConnectSendOverReceive,
        talk.regs(&server.port_ref),
    )?;
    check_eq!(server.receive(SOON).code, Code::Ok);
    let answer = bytes(4, 20);
    let regs = server.receive_regs().sending_bytes(&answer);
    let mut deadline = Actor::new()?; // wakes the wait below
    poke(&mut deadline, &server)?;
    let got = server.run(Call::ServerAckSendWaitReceive, regs);
    check_eq!(got.code, Code::Ok);
    let regs = client.finish()?;
    check!(
        matches!(regs.code(), Code::Ok | Code::Disconnected),
        "{:?}",
        regs.code()
    );
    check!(
        talk.received(&regs) == &answer[..],
        "the last words were lost"
    );
    Ok(())
}

/// Lets `actor` send one byte to the server.
fn poke(actor: &mut Actor, server: &Receiver) -> Outcome {
    static BYTE: [u8; 1] = [1];
    let regs = IpcRegs::to(server.port_ref.handle()).sending_bytes(&BYTE);
    actor.call(Call::ClientConnectSendOver, regs)
}

guest_test!(IPC0008, disconnect_by_the_client);
fn disconnect_by_the_client() -> Outcome {
    let mut server = Receiver::new(1)?;
    let client = Actor::new()?;
    let mut talk = Talk::new(bytes(0, 50), 50);
    client.call(Call::ClientConnectSendOver, talk.regs(&server.port_ref))?;
    check_eq!(server.receive(SOON).code, Code::Ok);
    check_eq!(client.finish_code()?, Code::Ok);
    client.call(Call::ClientDisconnect, IpcRegs::default())?;
    check_eq!(client.finish_code()?, Code::Ok);
    let regs = server.receive_regs().sending_bytes(&talk.out);
    check_eq!(
        server.run(Call::ServerAckSendOver, regs).code,
        Code::Disconnected
    );
    Ok(())
}

guest_test!(IPC0009, death_of_the_client);
fn death_of_the_client() -> Outcome {
    let mut server = Receiver::new(1)?;
    let client = Actor::new()?;
    let mut talk = Talk::new(bytes(0, 50), 50);
    client.call(
        Call::ClientConnectSendOverReceive,
        talk.regs(&server.port_ref),
    )?;
    check_eq!(server.receive(SOON).code, Code::Ok);
    drop(client);
    let regs = server.receive_regs().sending_bytes(&talk.out);
    check_eq!(
        server.run(Call::ServerAckSendOver, regs).code,
        Code::Disconnected
    );
    check_eq!(server.receive(NEVER).code, Code::TimedOut);
    Ok(())
}

guest_test!(IPC0010, death_of_the_port);
fn death_of_the_port() -> Outcome {
    let server = Receiver::new(1)?;
    let (long, call) = (Actor::new()?, Actor::new()?);
    let mut talk = Talk::new(bytes(0, 50), 50);
    let port = server.port_ref.copy().must("copy")?;
    long.call(Call::ClientConnectSendOverReceive, talk.regs(&port))?;
    long.settle(Waiting::Port)?;
    call.call(Call::Call, talk.regs(&port))?;
    call.settle(Waiting::Port)?;
    drop(server);
    check_eq!(long.finish_code()?, Code::Dead);
    check_eq!(call.finish_code()?, Code::Dead);
    long.call(Call::ClientConnect, talk.regs(&port))?;
    check_eq!(long.finish_code()?, Code::Dead);
    // A reference that names no port.
    let mutex = rt::obj::Mutex::new().must("new")?;
    let wrong = mutex.reference().must("reference")?;
    long.call(Call::ClientConnect, talk.regs(&wrong))?;
    check_eq!(long.finish_code()?, Code::Dead);
    Ok(())
}

guest_test!(IPC0011, wrong_stages);
fn wrong_stages() -> Outcome {
    let server = Receiver::new(1)?;
    let client = Actor::new()?;
    let data = bytes(0, 10);
    for call in [
        Call::ClientSend,
        Call::ClientReceive,
        Call::ClientOver,
        Call::ClientAck,
        Call::ClientAckSendOver,
        Call::ServerSend,
        Call::ServerReceive,
        Call::ServerAck,
        Call::ServerOver,
        Call::Reply,
        Call::ServerRelease,
    ] {
        client.call(call, IpcRegs::default().sending_bytes(&data))?;
        let code = client.finish_code()?;
        check!(
            matches!(code, Code::WrongStage | Code::Disconnected),
            "{} without a connection says {code:?}",
            call.name()
        );
    }
    // A second connection while there is one.
    let mut talk = Talk::new(data.clone(), 10);
    let mut server = server;
    client.call(Call::ClientConnectSendOver, talk.regs(&server.port_ref))?;
    check_eq!(server.receive(SOON).code, Code::Ok);
    check_eq!(client.finish_code()?, Code::Ok);
    client.call(Call::ClientConnect, talk.regs(&server.port_ref))?;
    check_eq!(client.finish_code()?, Code::WrongStage);
    client.call(Call::ClientSend, talk.regs(&server.port_ref))?;
    check_eq!(client.finish_code()?, Code::WrongStage);
    // The two ends are independent: disconnecting an end without a connection is fine.
    check_eq!(sys::client_disconnect(), Code::Ok);
    Ok(())
}

guest_test!(IPC0012, wait_deadline);
fn wait_deadline() -> Outcome {
    let mut server = Receiver::new(1)?;
    let start = rt::time::now();
    check_eq!(server.receive(2_000_000).code, Code::TimedOut);
    let late = rt::time::now() - start;
    check!(
        (2_000_000..guest_tests::harness::PATIENCE).contains(&late),
        "it took {late} ns"
    );
    let regs = server.receive_regs().until(0);
    check_eq!(
        server.run(Call::ServerWaitReceiveUntil, regs).code,
        Code::TimedOut
    );
    Ok(())
}

guest_test!(IPC0013, idempotent_call);
fn idempotent_call() -> Outcome {
    let mut server = Receiver::new(3)?;
    let client = Actor::new()?;
    for length in [0usize, 1, 64, 5000] {
        let mut talk = Talk::new(bytes(1, length), 6000);
        client.call(Call::Call, talk.regs(&server.port_ref))?;
        let got = server.receive(SOON);
        check_eq!((got.code, got.alias, got.length), (Code::Call, 3, length));
        check!(
            server.buffer[..length] == bytes(1, length)[..],
            "the request of {length}"
        );
        let answer = bytes(2, length + 3);
        check_eq!(reply(&answer), Code::Ok);
        let regs = client.finish()?;
        check_eq!(regs.code(), Code::Ok);
        check!(talk.received(&regs) == &answer[..], "the reply to {length}");
    }
    // A restart sends it again.
    let mut talk = Talk::new(bytes(1, 9), 20);
    client.call(Call::Call, talk.regs(&server.port_ref))?;
    check_eq!(server.receive(SOON).code, Code::Call);
    check_eq!(client.state().waiting, Waiting::Reply as u64);
    check_eq!(
        client.state().registers.pc(),
        guest_tests::harness::call_site()
    );
    client.thread.stop().must("stop")?;
    client.thread.resume().must("resume")?;
    let late = reply(b"late");
    check!(
        matches!(late, Code::Ok | Code::WrongStage),
        "a late reply says {late:?}"
    );
    if !client.is_finished() {
        check_eq!(server.receive(SOON).code, Code::Call);
        check_eq!(reply(b"again"), Code::Ok);
    }
    check_eq!(client.finish_code()?, Code::Ok);
    // The same in registers.
    client.call(Call::CallShort, short_regs(&server.port_ref, 64))?;
    let mut regs = IpcRegs::to(server.portset.handle());
    // SAFETY: a register message touches no memory.
    let code = unsafe { sys::ipc(Call::ServerWaitReceiveShort, &mut regs) };
    check_eq!((code, regs.short_len()), (Code::Call, 64));
    check_eq!(regs.short_words(), words(64));
    let mut back = IpcRegs::default().message(&[5, 6]);
    // SAFETY: as above.
    check_eq!(unsafe { sys::ipc(Call::ReplyShort, &mut back) }, Code::Ok);
    let regs = client.finish()?;
    check_eq!(
        (regs.code(), regs.short_len(), regs.word(0), regs.word(1)),
        (Code::Ok, 16, 5, 6)
    );
    Ok(())
}

guest_test!(IPC0014, idempotent_limits);
fn idempotent_limits() -> Outcome {
    let mut server = Receiver::new(3)?;
    let client = Actor::new()?;
    let mut talk = Talk::new(vec![1; abi::MAX_IDEMPOTENT as usize + 1], 10);
    client.call(Call::Call, talk.regs(&server.port_ref))?;
    check_eq!(client.finish_code()?, Code::TooLarge);
    // The reply does not fit: as much as fits arrives, and the code says so.
    let mut talk = Talk::new(bytes(1, 5), 10);
    client.call(Call::Call, talk.regs(&server.port_ref))?;
    check_eq!(server.receive(SOON).code, Code::Call);
    let _ = reply(&bytes(5, 30));
    let regs = client.finish()?;
    check_eq!(regs.code(), Code::Truncated);
    check!(
        talk.into[..] == bytes(5, 10)[..],
        "what fitted is not there"
    );
    // The request does not fit at the server: the client's call fails, and the server keeps waiting.
    let mut talk = Talk::new(bytes(1, 500), 10);
    let other = Actor::new()?;
    let regs = server.receive_regs_of(100);
    other.call(Call::ServerWaitReceive, regs)?;
    client.call(Call::Call, talk.regs(&server.port_ref))?;
    check_eq!(client.finish_code()?, Code::TooLarge);
    other.settle(Waiting::Portset)?;
    let mut talk = Talk::new(bytes(1, 100), 10);
    client.call(Call::Call, talk.regs(&server.port_ref))?;
    check_eq!(other.finish_code()?, Code::Call);
    Ok(())
}

guest_test!(IPC0015, queue_of_clients);
fn queue_of_clients() -> Outcome {
    let mut server = Receiver::new(1)?;
    let data: Vec<[u8; 1]> = (0..8).map(|n| [n]).collect();
    let mut clients = Vec::new();
    for byte in &data {
        let client = Actor::new()?;
        let regs = IpcRegs::to(server.port_ref.handle()).sending_bytes(byte);
        client.call(Call::ClientConnectSendOver, regs)?;
        client.settle(Waiting::Port)?;
        clients.push(client);
    }
    // One client is destroyed while it waits.
    drop(clients.remove(3));
    let mut seen = Vec::new();
    while seen.len() < 7 {
        let got = server.receive(SOON);
        check_eq!((got.code, got.length), (Code::Ok, 1));
        seen.push(server.buffer[0]);
    }
    seen.sort_unstable();
    check_eq!(seen, vec![0u8, 1, 2, 4, 5, 6, 7]);
    check_eq!(server.receive(NEVER).code, Code::TimedOut);
    Ok(())
}

guest_test!(IPC0016, exported_stages);
fn exported_stages() -> Outcome {
    let mut server = Receiver::new(1)?;
    let (client, other) = (Actor::new()?, Actor::new()?);
    let mut talk = Talk::new(bytes(1, 10), 10);
    client.call(
        Call::ClientConnectSendOverReceive,
        talk.regs(&server.port_ref),
    )?;
    other.call(Call::ServerWaitReceive, server.receive_regs())?;
    check_eq!(other.finish_code()?, Code::Ok);
    client.settle(Waiting::Peer)?;
    let (space, client_end, server_end) = guest_tests::harness::refs3()?;
    let state = client
        .thread
        .get_state(space.handle(), client_end.handle(), server_end.handle())
        .must("get_state")?;
    check_eq!(client_end.kind(), RefKind::ServerEnd);
    check_eq!(server_end.kind(), RefKind::Null);
    check_eq!(space.kind(), RefKind::Space);
    let peer = Ref::new().must("new")?;
    other.thread.server_end_into(peer.at()).must("server end")?;
    check!(client_end.same_as(peer.at()));
    // The request is sent and the direction turned: what remains is to receive.
    check_eq!(state.registers.pc(), guest_tests::harness::call_site());
    check!(
        [Call::ClientReceive, Call::ClientOverReceive]
            .iter()
            .any(|c| *c as u8 == state.registers.call() as u8),
        "the client is about to {}",
        Call::from_number(state.registers.call() as u8).map_or("?", Call::name)
    );
    let left = (state.registers.send(), state.registers.receive());
    check_eq!((left.0.length, left.1.length), (0, 10));
    check_eq!(state.client_stage, Stage::Over as u64);
    let state = other
        .thread
        .get_state(0, 0, server_end.handle())
        .must("get_state")?;
    check_eq!(state.server_stage, Stage::Ack as u64);
    check_eq!(server_end.kind(), RefKind::ClientEnd);
    Ok(())
}

guest_test!(IPC0017, short_meets_long);
fn short_meets_long() -> Outcome {
    let mut server = Receiver::new(1)?;
    let client = Actor::new()?;
    client.call(
        Call::ClientConnectSendOverReceiveShort,
        short_regs(&server.port_ref, 40),
    )?;
    let got = server.receive(SOON);
    check_eq!((got.code, got.length), (Code::Ok, 40));
    check!(
        server.buffer[..40] == masked(words(40), 40)[..],
        "the short request"
    );
    // A long answer and a short receive: as much as fits arrives, then more.
    let answer = bytes(8, 100);
    let other = Actor::new()?;
    check_eq!(sys::server_disconnect(), Code::Ok);
    check_eq!(client.finish_code()?, Code::Disconnected);
    client.call(
        Call::ClientConnectSendOverReceiveShort,
        short_regs(&server.port_ref, 40),
    )?;
    other.call(Call::ServerWaitReceive, server.receive_regs())?;
    check_eq!(other.finish_code()?, Code::Ok);
    other.call(
        Call::ServerAckSendOver,
        IpcRegs::default().sending_bytes(&answer),
    )?;
    let regs = client.finish()?;
    check_eq!((regs.code(), regs.short_len()), (Code::More, 64));
    check!(masked(regs.short_words(), 64) == answer[..64], "the answer");
    client.call(Call::ClientReceiveShort, IpcRegs::default())?;
    let regs = client.finish()?;
    check_eq!((regs.code(), regs.short_len()), (Code::Ok, 36));
    check!(
        masked(regs.short_words(), 36) == answer[64..],
        "the rest of the answer"
    );
    check_eq!(other.finish_code()?, Code::Ok);
    Ok(())
}

guest_test!(IPC0018, alias_and_portset);
fn alias_and_portset() -> Outcome {
    let mut server = Receiver::new(10)?;
    let second = rt::obj::Port::new().must("new")?;
    second
        .set_state(
            &abi::state::PortState {
                alias: 20,
                ..abi::state::PortState::default()
            },
            server.portset_ref.handle(),
        )
        .must("set_state")?;
    let second_ref = second.reference().must("reference")?;
    let client = Actor::new()?;
    let mut talk = Talk::new(bytes(1, 1), 0);
    client.call(Call::ClientConnectSendOver, talk.regs(&second_ref))?;
    let got = server.receive(SOON);
    check_eq!((got.code, got.alias), (Code::Ok, 20));
    let portset = Ref::new().must("new")?;
    check_eq!(second.get_state(portset.handle()).map(|s| s.alias), Ok(20));
    check!(portset.same_as(server.portset_ref.at()));
    // A port that moves to another portset takes its waiting clients along.
    let other = Receiver::new(30)?;
    let client = Actor::new()?;
    client.call(Call::ClientConnectSendOver, talk.regs(&server.port_ref))?;
    client.settle(Waiting::Port)?;
    server
        .port
        .set_state(
            &abi::state::PortState {
                alias: 11,
                ..abi::state::PortState::default()
            },
            other.portset_ref.handle(),
        )
        .must("set_state")?;
    check_eq!(server.receive(NEVER).code, Code::TimedOut);
    let mut other = other;
    let got = other.receive(SOON);
    check_eq!((got.code, got.alias), (Code::Ok, 11));
    Ok(())
}

guest_test!(IPC0019, vacant_port_waits);
fn vacant_port_waits() -> Outcome {
    let mut server = Receiver::new(1)?;
    let client = Actor::new()?;
    let mut talk = Talk::new(bytes(1, 10), 10);
    let identity = Ref::new().must("new")?;
    client.call(Call::ClientConnectSendOver, talk.regs(&server.port_ref))?;
    client.settle(Waiting::Port)?;
    let state = server.port.get_state(0).must("get_state")?;
    check_eq!(
        sys::port_destroy(server.port.handle(), identity.handle()),
        Code::Ok
    );
    rt::time::sleep(1_000_000);
    check!(!client.is_finished());
    check_eq!(
        sys::port_create(server.port.handle(), identity.handle()),
        Code::Ok
    );
    server
        .port
        .set_state(&state, server.portset_ref.handle())
        .must("set_state")?;
    check_eq!(server.receive(SOON).code, Code::Ok);
    check_eq!(client.finish_code()?, Code::Ok);
    Ok(())
}

guest_test!(IPC0020, connection_lasts_over_exchanges);
fn connection_lasts_over_exchanges() -> Outcome {
    let mut server = Receiver::new(1)?;
    let client = Actor::new()?;
    let mut talk = Talk::new(bytes(1, 10), 10);
    client.call(
        Call::ClientConnectSendOverReceive,
        talk.regs(&server.port_ref),
    )?;
    let mut got = server.receive(SOON);
    for round in 0..5u8 {
        check_eq!((got.code, got.length), (Code::Ok, 10));
        let answer = bytes(round, 10);
        let regs = server.receive_regs().sending_bytes(&answer);
        check_eq!(server.run(Call::ServerAckSendOver, regs).code, Code::Ok);
        let regs = client.finish()?;
        check_eq!(regs.code(), Code::Ok);
        check!(talk.received(&regs) == &answer[..], "round {round}");
        client.call(Call::ClientAckSendOverReceive, talk.regs(&server.port_ref))?;
        let regs = server.receive_regs();
        got = server.run(Call::ServerReceive, regs);
    }
    Ok(())
}
