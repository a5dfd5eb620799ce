//! A thread can be stopped and its state read at once, whatever it waits for (rule A5).

use guest_tests::harness::{call_site, Outcome};
use guest_tests::holds::{self, Asker};
use guest_tests::{check, check_eq, guest_test};

guest_test!(PROMPT0001, every_wait_is_answered);
fn every_wait_is_answered() -> Outcome {
    let mut asker = Asker::new()?;
    let mut states = 0;
    holds::each(|held| {
        let waits = held.actor.state().waiting;
        let answer = held.stop_and_read(&mut asker)?;
        let state = answer.state;
        check_eq!(state.stop_count, 1);
        check_eq!(state.waiting, waits, "what it says it waited for");
        if let Some(call) = held.call {
            // The frame is at the call, or at the rest of the call.
            check_eq!(state.registers.pc(), call_site());
            let mut at = Some(call);
            while at.is_some_and(|c| c as u64 != state.registers.call() & 0xff) {
                at = at.and_then(abi::Call::rest);
            }
            check!(
                at.is_some(),
                "its frame says call {}",
                state.registers.call() & 0xff
            );
        }
        states += 1;
        Ok(())
    })?;
    rt::println!("note {states} states");
    Ok(())
}
