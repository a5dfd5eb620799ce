//! The checkpointer: saves processes in an image file and makes processes from one.
//!
//! It has no privilege. A manager that is asked to freeze a process hands out references to the two
//! segments that the process consists of; everything else is found and read by public calls. What
//! an image is and when it is sound is said in the library beside this program; `save` and
//! `restore` make the calls.
#![no_std]
#![no_main]

extern crate alloc;

mod machine;
mod restore;
mod save;

use alloc::string::String;
use alloc::vec::Vec;
use proto::checkpoint::{Reply, Request};
use proto::Error;
use rt::obj::{Ref, RefAt};
use rt::server::{decode, Event, Server};

rt::entry!(main);

/// Why something was refused: a sentence for people.
type Sentence = String;

fn main() -> u8 {
    match serve() {
        Ok(()) => 0,
        Err(what) => {
            rt::log!("checkpoint: {what}");
            1
        }
    }
}

fn serve() -> Result<(), Sentence> {
    let mut server = Server::new().map_err(|code| alloc::format!("no portset: {code:?}"))?;
    let port = server
        .port(0)
        .map_err(|code| alloc::format!("no port: {code:?}"))?;
    rt::names::register("checkpoint", &port)
        .map_err(|error| alloc::format!("cannot register: {}", error.text()))?;
    loop {
        let mut ports = Vec::new();
        let reply: Result<Reply, Error> = match server.next(None) {
            Event::Request { header, refs, .. } => decode(header).map(|request| match request {
                Request::Save { managers, path } => save::save(&managers, &refs, &path),
                Request::Restore { path } => restore::restore(&path, &refs, &mut ports),
            }),
            Event::Poke { .. } | Event::TimedOut => continue,
            _ => {
                server.drop_client();
                continue;
            }
        };
        let ports: Vec<&RefAt> = ports.iter().map(|port: &Ref| &**port).collect();
        server.reply(&reply, &[], &ports);
    }
}
