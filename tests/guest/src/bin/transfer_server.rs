//! A program to be checkpointed together with `transfer_client`: receives what it sends and
//! answers with a checksum, for ever.
#![no_std]
#![no_main]

extern crate alloc;

use abi::{Call, Code};
use alloc::vec;
use guest_tests::demo::{sum, NAME, TRANSFER};
use rt::server::Server;
use rt::sys::{self, IpcRegs};

rt::entry!(main);

fn main() -> u8 {
    let Ok(server) = Server::new() else { return 2 };
    let Ok(port) = server.port(0) else { return 2 };
    if let Err(error) = rt::names::register(NAME, &port) {
        rt::println!("cannot register: {}", error.text());
        return 2;
    }
    let mut data = vec![0u8; TRANSFER];
    let mut answer = [0u8; 8];
    let mut call = Call::ServerWaitReceive;
    loop {
        let mut regs = IpcRegs {
            rdi: server.portset().handle(),
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
            Call::ServerWaitReceive
        };
    }
}
