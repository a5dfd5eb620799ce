//! Hostile clients of every service: `/test/services watch SEED NANOSECONDS [SERVICE]...` starts them, trusts them with the control ports of these services, asks all services
//! meanwhile and says what came of it; `/test/services hold` holds each service in every way. The other arguments are for what it starts.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;
use guest_tests::services::warden::{self, Play};
use guest_tests::services::{client, held, images, room, table};

rt::entry!(main);

fn number(index: usize) -> u64 {
    let text = rt::start().args.get(index).map_or("", String::as_str);
    text.parse().unwrap_or(0)
}

fn main() -> u8 {
    match rt::start().args.get(1).map(String::as_str) {
        Some("watch") => {
            let powers = rt::start().args.iter().skip(4).cloned().collect();
            warden::run(Play::Random(number(2), number(3), powers))
        }
        Some("hold") => warden::run(Play::Held),
        Some("nursery") => warden::nurse(),
        Some("hostile") => client::run(number(2)),
        Some("room") => room::run(number(2)),
        Some("images") => images::run(number(2)),
        Some("held") => held::run(number(2), number(3)),
        Some(table::IDLE) => loop {
            rt::time::sleep(1_000_000_000);
        },
        Some("nothing") => 0,
        _ => 2,
    }
}
