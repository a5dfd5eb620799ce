//! A request that may be delivered twice, and its reply. This is how all services are called.

use rt::abi::state::PortState;
use rt::abi::Call;
use rt::obj::{Port, Portset};
use rt::sys::{self, IpcRegs};
use rt::Code;

/// Squares numbers until it is asked for the square of 0.
fn square(portset: u64) {
    let mut regs = IpcRegs::to(portset);
    // SAFETY: a message in registers, and no references.
    let mut code = unsafe { sys::ipc(Call::ServerWaitReceiveShort, &mut regs) };
    while code == Code::Call && regs.word(0) != 0 {
        let n = regs.word(0);
        regs = IpcRegs::to(portset).message(&[n * n]);
        // Answers, and waits for the next request. If the client is gone, the answer is dropped.
        // SAFETY: as above.
        code = unsafe { sys::ipc(Call::ReplyWaitReceiveShort, &mut regs) };
    }
    // SAFETY: an empty message in registers.
    let code = unsafe { sys::ipc(Call::ReplyShort, &mut IpcRegs::default()) };
    assert_eq!(code, Code::Ok);
    // The server owes no reply any more.
    // SAFETY: as above.
    let code = unsafe { sys::ipc(Call::ReplyShort, &mut IpcRegs::default()) };
    assert_eq!(code, Code::WrongStage);
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
    let server = rt::thread::spawn(move || square(set))?;

    let port = port.reference()?;
    for n in [12, 1999, 0] {
        let mut regs = IpcRegs::to(port.handle()).message(&[n]);
        // If it is stopped here, saved and restored, the client simply calls again: that is why a request must do no
        // harm when it arrives twice.
        // SAFETY: a message in registers, and no references.
        let code = unsafe { sys::ipc(Call::CallShort, &mut regs) };
        assert_eq!(code, Code::Ok);
        let expected = if n == 0 { 0 } else { 8 };
        assert_eq!(regs.short_len(), expected);
        assert!(n == 0 || regs.word(0) == n * n);
    }
    while !server.is_finished() {
        rt::time::sleep(10_000);
    }
    Ok(())
}
