//! The checkpointer: saves processes in an image file and makes processes from one.
//!
//! It has no privilege. A manager that is asked to freeze a process hands out references to the two
//! segments that the process consists of; everything else is found and read by public calls. The
//! library beside this program defines images and checks them; `save` and `restore` make the calls,
//! in threads of their own (`desk`).
#![no_std]
#![no_main]

extern crate alloc;

mod compare;
mod desk;
mod machine;
mod pages;
mod parents;
mod restore;
mod save;
mod supply;

use alloc::string::String;
use alloc::vec::Vec;
use checkpoint_image::tool::plain;
use core::convert::Infallible;
use interface::server::{Server, Visitor};
use proto::Error;
use rt::obj::Ref;
use serde::Serialize;
use services::checkpoint::{how, Checkpoint, CheckpointStub, Restored, Saved, ROOM};

rt::entry!(main);

/// Why a request was refused: a sentence for people.
type Sentence = String;

/// Most bytes of a sentence.
const MAX_SENTENCE: usize = 8 * 1024;

fn main() -> u8 {
    let Err(error) = serve();
    rt::log!("checkpoint: {}", error.text());
    1
}

fn serve() -> Result<Infallible, Error> {
    restore::start().map_err(rt::error_of)?;
    rt::heap::want(0)?;
    let mut server = Server::new(open)?;
    server.knows(rt::names::job_of, rt::heap::want);
    rt::names::register("checkpoint", server.door())?;
    server.run()
}

/// A session.
struct Session {
    job: u32,
    /// The client's own port at init.
    client: Ref,
}

fn open(visitor: &Visitor) -> Result<CheckpointStub<Session>, Error> {
    let client = visitor.client.ok_or(Error::Denied)?;
    Ok(CheckpointStub(Session {
        job: visitor.job,
        client: client.copy().map_err(rt::error_of)?,
    }))
}

impl Checkpoint for Session {
    async fn save(
        &self,
        how: u32,
        first: u32,
        processes: Vec<Ref>,
        mut paths: String,
        room: usize,
    ) -> Result<Vec<u8>, Error> {
        let room = has_room(room)?;
        let first = first as usize;
        if how & !how::ALL != 0 || !paths.is_char_boundary(first) {
            return Err(Error::Invalid);
        }
        let parent = paths.split_off(first);
        let path = paths;
        let how = save::How {
            parent: (!parent.is_empty()).then_some(parent),
            files: how & how::FILES != 0,
            stop: how & how::STOP != 0,
            compress: how & how::COMPRESS != 0,
            cut: how & how::CUT != 0,
        };
        let save = move |wanted: &_| save::save(&processes, &path, how, wanted);
        let saved = desk::work(self.job, &self.client, save).await;
        encode(saved, room, |saved: &mut Saved| {
            saved.doing.truncate(saved.doing.len() / 2);
        })
    }

    async fn restore(
        &self,
        lazy: bool,
        path: String,
        room: usize,
    ) -> Result<(Vec<u8>, Vec<Ref>), Error> {
        let room = has_room(room)?;
        let owner = self.client.copy().map_err(rt::error_of)?;
        let job = self.job;
        let restore = move |wanted: &_| restore::restore(&path, lazy, (&owner, job), wanted);
        let restored = desk::work(self.job, &self.client, restore).await;
        let mut ports = Vec::new();
        let restored = restored.map(|made| made.taken(&mut ports));
        let bytes = encode(restored, room, |restored: &mut Restored| {
            restored.names.clear();
        })?;
        Ok((bytes, ports))
    }

    fn progress(&self) -> Result<(u64, u64), Error> {
        Ok(desk::progress(self.job))
    }
}

/// The room for an answer, if it is enough for every answer.
fn has_room(room: usize) -> Result<usize, Error> {
    (room >= ROOM).then_some(ROOM).ok_or(Error::Invalid)
}

/// The outcome of a request, encoded, without the parts for which there is no room.
fn encode<T: Serialize>(
    mut outcome: Result<T, Sentence>,
    room: usize,
    shorten: impl Fn(&mut T),
) -> Result<Vec<u8>, Error> {
    if let Err(sentence) = &mut outcome {
        // The sentence can have names in it that programs and images have chosen.
        *sentence = plain(sentence);
        sentence.truncate(sentence.floor_char_boundary(MAX_SENTENCE));
    }
    loop {
        let bytes = postcard::to_allocvec(&outcome).map_err(|_| Error::NoMemory)?;
        match &mut outcome {
            Ok(value) if bytes.len() > room => shorten(value),
            _ => return Ok(bytes),
        }
    }
}
