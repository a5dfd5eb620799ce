//! One server, two ports: a server that waits at the set receives from either.

use rt::abi::state::PortState;
use rt::abi::Call;
use rt::obj::{Port, Portset, Ref};
use rt::sys::{self, IpcRegs};
use rt::Code;

/// Sends an empty message to the port, from a thread of its own.
fn knock(port: Ref) -> Result<(), Code> {
    rt::thread::spawn(move || {
        let mut regs = IpcRegs::to(port.handle());
        // SAFETY: nothing but registers: an empty message each way.
        unsafe { sys::ipc(Call::CallShort, &mut regs) };
    })?;
    Ok(())
}

pub fn example() -> Result<(), Code> {
    let portset = Portset::new()?;
    let set = portset.reference()?;
    let (front, back) = (Port::new()?, Port::new()?);
    front.set_state(
        &PortState {
            alias: 1,
            ..PortState::default()
        },
        set.handle(),
    )?;
    back.set_state(
        &PortState {
            alias: 2,
            ..PortState::default()
        },
        set.handle(),
    )?;
    knock(front.reference()?)?;
    knock(back.reference()?)?;

    let mut heard = 0;
    let mut regs = IpcRegs::to(portset.handle());
    // SAFETY: a message in registers, and no references.
    let mut code = unsafe { sys::ipc(Call::ServerWaitReceiveShort, &mut regs) };
    while code == Code::Call {
        heard |= regs.value();
        if heard == 3 {
            break;
        }
        // Answers with an empty message, then waits for the next client.
        regs = IpcRegs::to(portset.handle());
        // SAFETY: as above.
        code = unsafe { sys::ipc(Call::ReplyWaitReceiveShort, &mut regs) };
    }
    assert_eq!(heard, 3);
    // SAFETY: an empty message in registers.
    let code = unsafe { sys::ipc(Call::ReplyShort, &mut IpcRegs::default()) };
    assert_eq!(code, Code::Ok);

    // A portset has no state: its ports name it in their states, and so do the servers that wait there.
    assert_eq!(sys::portset_get_state(portset.handle()), Code::Ok);
    Ok(())
}
