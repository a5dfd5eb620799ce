//! A program to be checkpointed together with `transfer_server`: sends it 4 MB at a time over one reliable connection
//! and checks its answers.
#![no_std]
#![no_main]

extern crate alloc;

use abi::{Call, Code};
use alloc::vec;
use guest_tests::demo::{sum, word, NAME, ROUNDS, TRANSFER};
use rt::sys::{self, IpcRegs};

rt::entry!(main);

fn main() -> u8 {
    let end = rt::time::now() + 1_000_000_000;
    let port = loop {
        match rt::names::wait_for(NAME, end) {
            // The name may still be that of a server that is gone.
            Ok(port) if port.kind() == abi::RefKind::Port => break port,
            Ok(_) if rt::time::now() < end => rt::time::sleep(1_000_000),
            Ok(_) => {
                rt::println!("the server is gone");
                return 2;
            }
            Err(error) => {
                rt::println!("no server: {}", error.text());
                return 2;
            }
        }
    };
    let mut data = vec![0u8; TRANSFER];
    let mut answer = [0u8; 8];
    for round in 0..ROUNDS {
        for (index, chunk) in data.chunks_exact_mut(8).enumerate() {
            chunk.copy_from_slice(&word(round, index as u64).to_le_bytes());
        }
        let mut regs = IpcRegs::to(port.handle())
            .sending_bytes(&data)
            .receiving_bytes(&mut answer);
        let call = if round == 0 {
            Call::ClientConnectSendOverReceive
        } else {
            Call::ClientAckSendOverReceive
        };
        // SAFETY: the data is only read, the answer is ours.
        let code = unsafe { sys::ipc(call, &mut regs) };
        let missing = regs.left().length;
        if code != Code::Ok || missing != 0 || u64::from_le_bytes(answer) != sum(&data) {
            rt::println!("round {round}: {code:?}, {missing} bytes of the answer missing");
            return 1;
        }
    }
    sys::client_disconnect();
    rt::println!("{ROUNDS} transfers of {TRANSFER} bytes arrived");
    0
}
