//! The alias of a port tells the server which port a message came to.

use rt::abi::state::PortState;
use rt::abi::{Call, RefKind};
use rt::obj::{Port, Portset, Ref};
use rt::sys::{self, IpcRegs};
use rt::Code;

pub fn example() -> Result<(), Code> {
    let portset = Portset::new()?;
    let port = Port::new()?;
    port.set_state(
        &PortState {
            alias: 0xcafe,
            ..PortState::default()
        },
        portset.reference()?.handle(),
    )?;

    // The state names the portset of the port. A reference to the port is the right to call it.
    let set = Ref::new()?;
    assert_eq!(port.get_state(set.handle())?.alias, 0xcafe);
    assert_eq!(set.kind(), RefKind::Portset);
    let reference = port.reference()?;

    rt::thread::spawn(move || {
        let mut regs = IpcRegs::to(reference.handle());
        // SAFETY: nothing but registers: an empty message each way.
        unsafe { sys::ipc(Call::CallShort, &mut regs) };
    })?;
    let mut regs = IpcRegs::to(portset.handle());
    // SAFETY: a message in registers, and no references.
    let code = unsafe { sys::ipc(Call::ServerWaitReceiveShort, &mut regs) };
    assert_eq!((code, regs.value()), (Code::Call, 0xcafe));
    // SAFETY: an empty message in registers.
    let code = unsafe { sys::ipc(Call::ReplyShort, &mut IpcRegs::default()) };
    assert_eq!(code, Code::Ok);

    // A port that is gone cannot be called.
    let reference = port.reference()?;
    drop(port);
    assert_eq!(reference.kind(), RefKind::Null);
    Ok(())
}
