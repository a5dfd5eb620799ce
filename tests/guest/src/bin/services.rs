//! Hostile clients of every service: `/test/services watch SEED NANOSECONDS [SERVICE]...` starts them, trusts them
//! with the control ports of these services, makes requests to all services meanwhile and prints the results. With
//! `patient` instead of `watch`, an answer that takes too long is only reported, unless it takes so long that the
//! service must be hanging. `/test/services hold [SERVICE]... [with SERVICE...]` holds these services, or each, in
//! every way, by clients that are trusted with the other services. The remaining commands are for the programs that
//! it starts.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;
use guest_tests::services::warden::{self, Play, PATIENCE};
use guest_tests::services::{ceiling, client, held, images, room, table};

rt::entry!(main);

fn number(index: usize) -> u64 {
    let text = rt::start().args.get(index).map_or("", String::as_str);
    text.parse().unwrap_or(0)
}

fn main() -> u8 {
    match rt::start().args.get(1).map(String::as_str) {
        Some(how @ ("watch" | "patient")) => {
            let powers = rt::start().args.iter().skip(4).cloned().collect();
            let patience = if how == "patient" { PATIENCE } else { 1 };
            warden::run(Play::Random(number(2), number(3), powers, patience))
        }
        Some("hold") => {
            let args = rt::start().args.get(2..).unwrap_or_default();
            let mut sides = args.split(|word| word == "with").map(<[String]>::to_vec);
            let mut side = || sides.next().unwrap_or_default();
            warden::run(Play::Held(side(), side()))
        }
        Some("crowd") => warden::run(Play::Crowd),
        Some("nursery") => warden::nurse(),
        Some("hostile") => client::run(number(2)),
        Some("ceiling") => ceiling::run(),
        Some("quotas") => ceiling::quotas(),
        Some(ceiling::SPIN) => ceiling::spin(number(2)),
        Some("room") => room::run(number(2)),
        Some("images") => images::run(number(2)),
        Some("held") => held::run(number(2)),
        Some(table::IDLE) => loop {
            rt::time::sleep(1_000_000_000);
        },
        Some("nothing") => 0,
        _ => 2,
    }
}
