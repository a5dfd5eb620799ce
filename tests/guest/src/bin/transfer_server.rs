//! A program to be checkpointed together with `transfer_client`: receives what it sends and
//! answers with a checksum, for ever.
#![no_std]
#![no_main]

extern crate alloc;

use abi::state::PortState;
use abi::{Call, Code};
use alloc::string::String;
use alloc::vec;
use guest_tests::demo::{sum, NAME, TRANSFER};
use rt::obj::{Port, Portset};
use rt::sys::{self, IpcRegs};

rt::entry!(main);

fn main() -> u8 {
    match serve() {
        Ok(never) => match never {},
        Err(why) => {
            rt::println!("{why}");
            2
        }
    }
}

fn serve() -> Result<core::convert::Infallible, String> {
    let must = |code: Code| alloc::format!("cannot begin: {code:?}");
    let portset = Portset::new().map_err(must)?;
    let set_ref = portset.reference().map_err(must)?;
    let port = Port::new().map_err(must)?;
    port.set_state(
        &PortState {
            alias: 0,
            ..PortState::default()
        },
        set_ref.handle(),
    )
    .map_err(must)?;
    let mut data = vec![0u8; TRANSFER];
    let mut answer = [0u8; 8];
    let mut call = Call::ServerWaitReceiveUntil;
    loop {
        if call == Call::ServerWaitReceiveUntil {
            // Until there is a client, again and again: a server that was restored is another one
            // for the name service, which knows the old one. Refused while the name is ours.
            let _ = rt::names::register(NAME, &port);
        }
        let mut regs = IpcRegs {
            rdi: portset.handle(),
            rbp: rt::time::now() + 2_000_000,
            rsi: answer.as_ptr() as u64,
            rdx: answer.len() as u64,
            r12: data.as_mut_ptr() as u64,
            r13: data.len() as u64,
            ..IpcRegs::default()
        };
        // SAFETY: the answer is only read, the data is ours.
        let code = unsafe { sys::ipc(call, &mut regs) };
        call = if code == Code::Ok && regs.r13 == 0 {
            answer = sum(&data).to_le_bytes();
            Call::ServerAckSendOverReceive
        } else {
            Call::ServerWaitReceiveUntil
        };
    }
}
