//! Sends each of its arguments to `echo_server`, and prints the answers.
//!
//! A request leaves no trace in the client until its answer has arrived: a client that is saved in the middle of a
//! request makes it again after it was restored.
#![no_std]
#![no_main]

use echo::{EchoClient, NAME};
use rt::Error;

rt::entry!(main);

/// How long to wait for the server, in nanoseconds: it may have been started a moment ago.
const PATIENCE: u64 = 5_000_000_000;

fn main() -> u8 {
    match ask() {
        Ok(()) => 0,
        Err(error) => {
            rt::println!("echo_client: {}", error.text());
            1
        }
    }
}

fn ask() -> Result<(), Error> {
    let door = rt::names::wait_for(NAME, rt::time::now() + PATIENCE)?;
    let mut server = EchoClient::open(&door)?;
    let mut buffer = [0; 4096];
    for word in rt::start().args.iter().skip(1) {
        let length = server.echo(word, &mut buffer)?;
        let answer = core::str::from_utf8(&buffer[..length]).map_err(|_| Error::Broken)?;
        rt::println!("{answer}");
    }
    Ok(())
}
