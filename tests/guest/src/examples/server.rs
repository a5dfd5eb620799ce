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
        let mut regs = IpcRegs::to(port.handle())
            .sending_bytes(text.as_bytes())
            .receiving_bytes(&mut buffer);
        // SAFETY: the text is only read, and the buffer is ours.
        let code = unsafe { sys::ipc(Call::ClientConnectSendOverReceive, &mut regs) };
        assert_eq!(code, Code::Ok);
        assert_eq!(
            &buffer[..64 - regs.left().length as usize],
            answer.as_bytes()
        );
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
    let room = buffer.len();
    let receive = |buffer: &mut [u8]| {
        IpcRegs::to(portset.handle())
            .receiving_bytes(buffer)
            // A limited wait, so that the example ends.
            .until(rt::time::now() + 100_000_000)
    };
    let mut regs = receive(&mut buffer);
    // SAFETY: the buffer is ours.
    let mut code = unsafe { sys::ipc(Call::ServerWaitReceiveUntil, &mut regs) };
    let mut served = 0;
    while code == Code::Ok {
        served += 1;
        let answer = buffer[..room - regs.left().length as usize].to_ascii_uppercase();
        if served == 2 {
            regs = IpcRegs::default().sending_bytes(&answer);
            // The last client gets its answer, then the connection ends in order.
            // SAFETY: the answer is only read.
            code = unsafe { sys::ipc(Call::ServerAckSend, &mut regs) };
            regs = receive(&mut buffer);
            // SAFETY: the buffer is ours.
            let none = unsafe { sys::ipc(Call::ServerWaitReceiveUntil, &mut regs) };
            assert_eq!(none, Code::TimedOut);
            break;
        }
        regs = receive(&mut buffer).sending_bytes(&answer);
        // SAFETY: the answer is only read, and the buffer is ours.
        code = unsafe { sys::ipc(Call::ServerAckSendWaitReceive, &mut regs) };
    }
    assert_eq!((code, served), (Code::Ok, 2));
    Ok(())
}
