//! `ping`: sends echo requests to a machine and shows its replies.
#![no_std]
#![no_main]

extern crate alloc;

use net_tools::{end, open, resolve, Explain, Failure};
use rt::net::Place;
use rt::{println, time};

rt::entry!(main);

const USAGE: &str = "usage: ping HOST [COUNT]";
/// How long it waits for a reply, and the pause between two requests, in nanoseconds.
const PATIENCE: u64 = 1_000_000_000;
const PAUSE: u64 = 200_000_000;
/// The data in each request.
const CONTENT: [u8; 56] = [0x2a; 56];

fn ping(host: &str, count: u16) -> Result<(), Failure> {
    let mut net = open()?;
    let address = resolve(&mut net, host)?;
    let socket = net.echo().explain(&mut net)?;
    let mut answers = 0;
    for port in 1..=count {
        if port > 1 {
            time::sleep(PAUSE);
        }
        let start = time::now();
        let to = Place { address, port };
        net.send(socket, to, &CONTENT).explain(&mut net)?;
        let deadline = start.saturating_add(PATIENCE);
        loop {
            let left = deadline.saturating_sub(time::now());
            let Some((from, content)) = net.receive(socket, left).explain(&mut net)? else {
                println!("no answer {port} from {address}");
                break;
            };
            if from == to && content == CONTENT {
                let micros = (time::now() - start) / 1000;
                println!("answer {port} from {address} after {micros} us");
                answers += 1;
                break;
            }
        }
    }
    match answers {
        0 => Err(Failure::Because("nobody answers".into())),
        _ => Ok(()),
    }
}

fn main() -> u8 {
    let args = &rt::start().args;
    let count = |word: &str| word.parse().ok().filter(|count| *count > 0);
    let done = match (args.get(1), args.get(2).map(|word| count(word)), args.len()) {
        (Some(host), None, 2) => ping(host, 3),
        (Some(host), Some(Some(count)), 3) => ping(host, count),
        _ => Err(Failure::Usage),
    };
    end("ping", USAGE, done)
}
