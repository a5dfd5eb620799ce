//! A client keeps its connection over two exchanges.

use rt::abi::state::PortState;
use rt::abi::Call;
use rt::obj::{Port, Portset};
use rt::sys::{self, IpcRegs};
use rt::Code;

/// Doubles what it receives, for one client, until that client disconnects.
fn double(portset: u64) -> Code {
    let mut regs = IpcRegs::to(portset);
    // SAFETY: a message in registers, and no references.
    let mut code = unsafe { sys::ipc(Call::ServerWaitReceiveShort, &mut regs) };
    while code == Code::Ok {
        regs = IpcRegs::default().message(&[2 * regs.word(0)]);
        // SAFETY: as above.
        code = unsafe { sys::ipc(Call::ServerAckSendOverReceiveShort, &mut regs) };
    }
    code
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
    let set = portset.handle();
    let server = rt::thread::spawn(move || assert_eq!(double(set), Code::Disconnected))?;

    // Connects, sends, turns the direction round, and receives: one call.
    let reference = port.reference()?;
    let mut regs = IpcRegs::to(reference.handle()).message(&[21]);
    // SAFETY: a message in registers, and no references.
    let code = unsafe { sys::ipc(Call::ClientConnectSendOverReceiveShort, &mut regs) };
    assert_eq!((code, regs.short_len(), regs.word(0)), (Code::Ok, 8, 42));

    // The server has turned the direction round: the client accepts it, and sends again.
    let mut regs = IpcRegs::default().message(&[42]);
    // SAFETY: as above.
    let code = unsafe { sys::ipc(Call::ClientAckSendOverReceiveShort, &mut regs) };
    assert_eq!((code, regs.word(0)), (Code::Ok, 84));

    assert_eq!(sys::client_disconnect(), Code::Ok);
    let mut regs = IpcRegs::default().message(&[1]);
    // SAFETY: as above.
    let code = unsafe { sys::ipc(Call::ClientSendOverReceiveShort, &mut regs) };
    assert_eq!(code, Code::WrongStage);
    while !server.is_finished() {
        rt::time::sleep(10_000);
    }
    Ok(())
}
