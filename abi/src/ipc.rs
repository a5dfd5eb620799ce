//! The stages of the IPC entrypoints, and the entrypoint at which each of them restarts.
//!
//! The words in the name of an IPC entrypoint are its stages, in order. The tables here are
//! computed from those names when this crate is compiled, so that they cannot disagree with the
//! table of calls. A call that has finished its first stage becomes the call without that stage
//! (rule A3): [`next`] returns that call, and the kernel writes its number into the frame.

use crate::syscalls::{Call, SYSCALLS};

/// A set of stages and properties of an entrypoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan(u16);

impl Plan {
    /// The client's end of a connection.
    pub const CLIENT: Plan = Plan(1);
    /// The server's end of a connection.
    pub const SERVER: Plan = Plan(2);
    /// Connect to a port.
    pub const CONNECT: Plan = Plan(4);
    /// Accept the direction that the peer turned round.
    pub const ACK: Plan = Plan(8);
    /// Answer an idempotent request.
    pub const REPLY: Plan = Plan(16);
    /// Send an idempotent request and receive its reply.
    pub const CALL: Plan = Plan(32);
    /// Send.
    pub const SEND: Plan = Plan(64);
    /// Turn the direction round.
    pub const OVER: Plan = Plan(128);
    /// End the connection and wait for a client.
    pub const WAIT: Plan = Plan(256);
    /// Receive.
    pub const RECEIVE: Plan = Plan(512);
    /// End the connection.
    pub const DISCONNECT: Plan = Plan(1024);
    /// The message travels in registers.
    pub const SHORT: Plan = Plan(2048);
    /// A message in registers that has still to be sent.
    pub const SHORT_SEND: Plan = Plan(Plan::SHORT.0 | Plan::SEND.0);
    /// The wait has a deadline.
    pub const UNTIL: Plan = Plan(4096);

    /// All stages. A call runs through its stages in the order of their bits.
    const STAGES: u16 = Plan::CONNECT.0
        | Plan::ACK.0
        | Plan::REPLY.0
        | Plan::CALL.0
        | Plan::SEND.0
        | Plan::OVER.0
        | Plan::WAIT.0
        | Plan::RECEIVE.0
        | Plan::DISCONNECT.0;

    /// Whether all of `other` is in `self`.
    #[inline]
    #[must_use]
    pub const fn has(self, other: Plan) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether this is an IPC entrypoint at all.
    #[inline]
    #[must_use]
    pub const fn is_ipc(self) -> bool {
        self.0 != 0
    }

    /// The first stage that is left.
    #[inline]
    #[must_use]
    pub const fn first(self) -> Option<Plan> {
        match self.0 & Plan::STAGES {
            0 => None,
            stages => Some(Plan(stages & stages.wrapping_neg())),
        }
    }
}

const fn word_plan(name: &[u8], start: usize, end: usize) -> u16 {
    const WORDS: [(&[u8], Plan); 13] = [
        (b"client", Plan::CLIENT),
        (b"server", Plan::SERVER),
        (b"connect", Plan::CONNECT),
        (b"ack", Plan::ACK),
        (b"reply", Plan::REPLY),
        (b"call", Plan::CALL),
        (b"send", Plan::SEND),
        (b"over", Plan::OVER),
        (b"wait", Plan::WAIT),
        (b"receive", Plan::RECEIVE),
        (b"disconnect", Plan::DISCONNECT),
        (b"short", Plan::SHORT),
        (b"until", Plan::UNTIL),
    ];
    let mut w = 0;
    while w < WORDS.len() {
        let word = WORDS[w].0;
        if word.len() == end - start {
            let mut i = 0;
            while i < word.len() && word[i] == name[start + i] {
                i += 1;
            }
            if i == word.len() {
                return WORDS[w].1 .0;
            }
        }
        w += 1;
    }
    0
}

const fn plan_of_name(name: &[u8]) -> u16 {
    let mut mask = 0;
    let mut start = 0;
    let mut i = 0;
    while i <= name.len() {
        if i == name.len() || name[i] == b'_' {
            let word = word_plan(name, start, i);
            if word == 0 {
                return 0;
            }
            mask |= word;
            start = i + 1;
        }
        i += 1;
    }
    // `reply` and what follows it belong to the server's end.
    if mask & Plan::REPLY.0 != 0 {
        mask |= Plan::SERVER.0;
    }
    if mask & Plan::CALL.0 != 0 {
        mask |= Plan::CLIENT.0;
    }
    mask
}

const PLANS: [Plan; 256] = {
    let mut plans = [Plan(0); 256];
    let mut i = 0;
    while i < SYSCALLS.len() {
        plans[i + 1] = Plan(plan_of_name(SYSCALLS[i].name.as_bytes()));
        i += 1;
    }
    plans
};

/// For each number of a call, that of the call after its first stage; 0 if the call is complete then.
const NEXT: [u8; 256] = {
    let mut next = [0; 256];
    let mut n = 1;
    while n < 256 {
        let plan = PLANS[n];
        if let Some(first) = plan.first() {
            let mut rest = plan.0 & !first.0;
            if first.0 == Plan::WAIT.0 {
                rest &= !Plan::UNTIL.0;
            }
            if Plan(rest).first().is_some() {
                let mut found = 0;
                let mut m = 1;
                while m < 256 {
                    if PLANS[m].0 == rest {
                        found = m as u8;
                    }
                    m += 1;
                }
                assert!(
                    found != 0,
                    "a multi-stage call has no entrypoint for its restart"
                );
                next[n] = found;
            }
        }
        n += 1;
    }
    next
};

/// The stages of an entrypoint.
#[inline]
#[must_use]
pub const fn plan(call: Call) -> Plan {
    PLANS[call as usize]
}

/// The stages of the entrypoint with this number; empty if the number is not that of an IPC call.
#[inline]
#[must_use]
pub const fn plan_of_number(number: u8) -> Plan {
    PLANS[number as usize]
}

/// The entrypoint with the remaining stages when the first stage of `call` is done, or `None` if `call` is complete
/// then.
#[inline]
#[must_use]
pub const fn next(call: Call) -> Option<Call> {
    Call::from_number(NEXT[call as usize])
}
