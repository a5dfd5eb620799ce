//! A server that answers and waits for the next client in one call.

use alloc::vec;
use rt::abi::state::PortState;
use rt::abi::Call;
use rt::obj::{Port, Portset, Ref};
use rt::sys::{self, IpcRegs};
use rt::Code;

/// Sends `text` to the port from a thread of its own, and compares the answer.
fn client(port: Ref, text: &'static str, answer: &'static str) -> Result<(), Code> {
    rt::thread::spawn(move || {
        let mut buffer = [0u8; 64];
        let mut regs = IpcRegs {
            rdi: port.handle(),
            rsi: text.as_ptr() as u64,
            rdx: text.len() as u64,
            r12: buffer.as_mut_ptr() as u64,
            r13: buffer.len() as u64,
            ..IpcRegs::default()
        };
        // SAFETY: the text is only read, and the buffer is ours.
        let code = unsafe { sys::ipc(Call::ClientConnectSendOverReceive, &mut regs) };
        assert_eq!(code, Code::Ok);
        assert_eq!(&buffer[..64 - regs.r13 as usize], answer.as_bytes());
    })?;
    Ok(())
}

pub fn example() -> Result<(), Code> {
    let portset = Portset::new()?;
    let port = Port::new()?;
    port.set_state(
        &PortState {
            alias: 0,
            ..PortState::default()
        },
        portset.reference()?.handle(),
    )?;
    client(port.reference()?, "stop", "STOP")?;
    client(port.reference()?, "go on", "GO ON")?;

    let mut buffer = vec![0u8; 4096];
    let room = buffer.len() as u64;
    let receive = |buffer: &mut [u8]| IpcRegs {
        rdi: portset.handle(),
        r12: buffer.as_mut_ptr() as u64,
        r13: room,
        // Not for ever, so that the example ends.
        rbp: rt::time::now() + 100_000_000,
        ..IpcRegs::default()
    };
    let mut regs = receive(&mut buffer);
    // SAFETY: the buffer is ours.
    let mut code = unsafe { sys::ipc(Call::ServerWaitReceiveUntil, &mut regs) };
    let mut served = 0;
    while code == Code::Ok {
        served += 1;
        let answer = buffer[..(room - regs.r13) as usize].to_ascii_uppercase();
        if served == 2 {
            regs = IpcRegs::default();
            regs.rsi = answer.as_ptr() as u64;
            regs.rdx = answer.len() as u64;
            // The last one gets its answer, then the connection ends in order.
            // SAFETY: the answer is only read.
            code = unsafe { sys::ipc(Call::ServerAckSend, &mut regs) };
            regs = receive(&mut buffer);
            // SAFETY: the buffer is ours.
            let none = unsafe { sys::ipc(Call::ServerWaitReceiveUntil, &mut regs) };
            assert_eq!(none, Code::TimedOut);
            break;
        }
        regs = receive(&mut buffer);
        regs.rsi = answer.as_ptr() as u64;
        regs.rdx = answer.len() as u64;
        // SAFETY: the answer is only read, and the buffer is ours.
        code = unsafe { sys::ipc(Call::ServerAckSendWaitReceive, &mut regs) };
    }
    assert_eq!((code, served), (Code::Ok, 2));
    Ok(())
}
