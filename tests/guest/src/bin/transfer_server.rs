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
    let port = Port::in_portset(&PortState::default(), *set_ref).map_err(must)?;
    let mut data = vec![0u8; TRANSFER];
    let mut answer = [0u8; 8];
    let mut call = Call::ServerWaitReceiveUntil;
    loop {
        if call == Call::ServerWaitReceiveUntil {
            // Until there is a client, again and again: to the name service, a restored server is a new one, while
            // the service still knows the old one. Refused while the name is ours.
            let _ = rt::names::register(NAME, &port);
        }
        let mut regs = IpcRegs::to(portset.handle())
            .until(rt::time::now() + 2_000_000)
            .sending_bytes(&answer)
            .receiving_bytes(&mut data);
        // SAFETY: the answer is only read, the data is ours.
        let code = unsafe { sys::ipc(call, &mut regs) };
        call = if code == Code::Ok && regs.left().length == 0 {
            answer = sum(&data).to_le_bytes();
            Call::ServerAckSendOverReceive
        } else {
            Call::ServerWaitReceiveUntil
        };
    }
}
