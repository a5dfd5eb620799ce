//! Random hostile clients of every service, and a client that needs these services meanwhile.
//!
//! * [`table`] has the forms of the requests of each service; a new service is a row there, and one in [`honest`].
//! * [`client`] is a hostile program: it makes requests of the table, mostly well formed, and spoils them.
//! * [`references`] has the references that it can send: dead, vacant, of wrong types, ports that never answer.
//! * [`honest`] makes a health check of each service, and measures how long the answer takes.
//! * [`warden`] starts hostile programs, kills them at any instant, makes health checks, and reports the results.
//! * [`room`] takes all the room in the file system, [`images`] restores images that lie.
//! * [`ceiling`] asks for a higher priority and more kernel memory than programs may have.
//! * [`held`] holds a service in the middle of a request, in every way: by memory there, by other things that a
//!   client owns in [`owned`].

mod awake;
pub mod ceiling;
pub mod client;
pub mod counters;
pub mod held;
pub mod honest;
pub mod images;
pub mod owned;
pub mod pending;
pub mod references;
pub mod room;
pub mod table;
pub mod warden;

use rt::Code;

/// What a program of these prints when it cannot go on.
pub type Sentence = alloc::string::String;

/// A result code as an error of a service.
pub(crate) fn error(code: Code) -> proto::Error {
    rt::error_of(code)
}
