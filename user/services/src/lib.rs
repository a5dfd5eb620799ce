//! The interfaces of Fermata's services.
//!
//! * [`checkpoint`] saves and restores processes, [`console`] is the terminal, [`fs`] has files;
//! * [`memory`] gives all processes memory, [`device`] gives drivers hardware;  [`block`] is what the driver of a disk
//!   offers, [`link`] that of a network card, [`entropy`] that of a device of random numbers, [`sound`] that of a sound
//!   card; [`net`] has sockets;
//! * [`names`] has the requests of each process to init, [`process`] the managers of processes and the power over one,
//!   [`system`] power over the machine; [`random`] gives random bytes.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod block;
pub mod checkpoint;
pub mod console;
pub mod device;
pub mod entropy;
pub mod fs;
pub mod link;
pub mod memory;
pub mod names;
pub mod net;
pub mod process;
pub mod random;
pub mod sound;
pub mod system;

/// Declarations for C of all interfaces.
pub const C: [&str; 22] = [
    names::NamesClient::C,
    system::SystemClient::C,
    memory::MemorySupervisorClient::C,
    memory::AccountClient::C,
    memory::AccountControlClient::C,
    memory::SegmentClient::C,
    process::ProcessesClient::C,
    process::ProcessClient::C,
    process::DebugClient::C,
    process::SupervisorClient::C,
    fs::FilesClient::C,
    console::ConsoleClient::C,
    console::ConsoleControlClient::C,
    checkpoint::CheckpointClient::C,
    block::BlockClient::C,
    link::LinkClient::C,
    net::NetworkClient::C,
    device::DevicesClient::C,
    device::DeviceControlClient::C,
    random::RandomClient::C,
    entropy::EntropyClient::C,
    sound::SoundClient::C,
];
