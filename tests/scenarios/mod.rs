//! Scenarios: whole machines that boot, run a script and are looked at from outside.
//!
//! Each is a function over [`Ctx`] that returns an error, or panics, when something is not as it
//! should be. It runs once per model. They are compiled into xtask; `xtask/test/src/scenario.rs` is
//! what they are written with. A new one goes into a file here and a line into [`ALL`].

mod attack;
mod checkpoint;
mod disk;
mod driver;
mod entropy;
mod examples;
mod frames;
mod gdb;
mod images;
mod inspect;
mod legacy;
mod linux;
mod net;
mod outside;
mod place;
mod shell;
mod trees;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::scenario::{Ctx, Failure, Run, Scenario};

pub(crate) use attack::services_from;

/// All scenarios.
pub(crate) const ALL: &[Scenario] = &[
    scenario("script_status", script_status),
    scenario("examples", examples::all),
    scenario("examples_new", examples::new),
    scenario("tutorial", examples::tutorial),
    scenario("linux_applets", linux::applets),
    scenario("linux_scripts", linux::scripts),
    scenario("linux_calls", linux::calls),
    scenario("linux_threads", linux::threads),
    scenario("linux_jobs", linux::jobs),
    scenario("linux_ptrace", linux::ptrace),
    scenario("linux_busy", linux::busy),
    scenario("linux_sysv", linux::sysv),
    scenario("linux_ipcs", linux::ipcs),
    scenario("linux_tracers", linux::tracers),
    scenario("linux_events", linux::events),
    scenario("linux_sockets", linux::sockets),
    scenario("linux_shared", linux::shared),
    scenario("linux_locks", linux::locks),
    scenario("linux_ptys", linux::ptys),
    scenario("linux_inotify", linux::inotify),
    scenario("linux_proc", linux::proc),
    scenario("linux_http", linux::http),
    scenario("linux_parallel", linux::parallel),
    scenario("linux_stopped", linux::stopped),
    once("linux_turns", linux::turns),
    scenario("linux_refusals", linux::refusals),
    scenario("linux_console", linux::console),
    scenario("linux_memory_runs_out", linux::memory_runs_out),
    scenario("linux_packages", linux::packages),
    scenario("place_servers", place::servers),
    scenario("place_checkpoints", place::checkpoints),
    scenario("shell_language", shell::language),
    scenario("shell_refusals", shell::refusals),
    scenario("shell_statuses", shell::statuses),
    scenario("shell_jobs", shell::jobs),
    scenario("shell_at_the_console", shell::at_the_console),
    scenario("shell_memory_runs_out", shell::memory_runs_out),
    scenario("shell_nothing_remains", shell::nothing_remains),
    scenario("shell_programs", shell::programs),
    scenario("shell_console_input", shell::console_input),
    scenario("shell_posix", shell::posix),
    scenario(
        "shell_linux_shell_at_the_console",
        shell::linux_shell_at_the_console,
    ),
    scenario("shell_native_from_linux", shell::native_from_linux),
    scenario("shell_posix_at_the_console", shell::posix_at_the_console),
    scenario("checkpoint_four_programs", checkpoint::four_programs),
    scenario("checkpoint_threads", checkpoint::threads),
    scenario("checkpoint_clock", checkpoint::clock),
    scenario("checkpoint_eight_megabytes", checkpoint::eight_megabytes),
    scenario("checkpoint_other_boot", checkpoint::other_boot),
    scenario("checkpoint_incremental", checkpoint::incremental),
    scenario("checkpoint_moved", checkpoint::moved),
    scenario("checkpoint_inside_calls", checkpoint::inside_calls),
    scenario("checkpoint_console_read", checkpoint::console_read),
    scenario("checkpoint_console_session", checkpoint::console_session),
    scenario("checkpoint_trees", trees::shells),
    scenario("checkpoint_tree_programs", trees::programs),
    scenario("checkpoint_tree_kept", trees::kept),
    scenario("checkpoint_tree_refusals", trees::refusals),
    once("checkpoint_tree_elsewhere", trees::other_machine),
    once("checkpoint_packages", trees::packages),
    scenario("checkpoint_bad_images", checkpoint::bad_images),
    scenario("checkpoint_while_it_goes_on", checkpoint::while_it_goes_on),
    scenario("date", disk::date),
    scenario("random", linux::random),
    scenario("random_entropy", entropy::comes),
    scenario("random_silent", entropy::silent),
    scenario("random_poor", entropy::poor),
    scenario("random_slow", entropy::slow),
    scenario("random_driver_kills", entropy::kills),
    scenario("disk_two_boots", disk::two_boots),
    scenario("disk_refusals", disk::refusals),
    scenario("disk_hostile", disk::hostile),
    scenario("disk_silent", disk::silent),
    once("disk_absent", disk::absent),
    scenario("disk_slow", disk::slow),
    scenario("disk_kills", disk::kills),
    scenario("disk_files", disk::files),
    scenario("disk_files_kills", disk::files_kills),
    scenario("disk_server_kills", disk::server_kills),
    scenario("disk_foreign", disk::foreign),
    scenario("disk_checkpoint", disk::checkpoint),
    once("disk_cut", disk::cut),
    scenario("driver_kills", driver::kills),
    scenario("driver_hostile", driver::hostile),
    scenario("driver_shared", driver::shared),
    scenario("inspect", inspect::page),
    scenario("gdb_native", gdb::native),
    scenario("gdb_linux", gdb::linux),
    once("gdb_debian", gdb::debian),
    scenario("net_user", net::user),
    scenario("net_pair", net::pair),
    once("net_slow_reader", net::slow_reader),
    once("net_lost_ends", net::lost_ends),
    scenario("net_refusals", net::refusals),
    scenario("net_driver_kills", net::driver_kills),
    scenario("net_server_kills", net::server_kills),
    scenario("net_flood", net::flood),
    scenario("net_hostile", net::hostile),
    scenario("outside_pair", outside::pair),
    scenario("outside_user", outside::user),
    scenario("outside_saved", outside::saved),
    scenario("outside_errors", outside::errors),
    scenario("outside_hostile", outside::hostile),
    scenario("outside_server_ends", outside::server_ends),
    scenario("legacy_pairs", legacy::pairs),
    scenario("legacy_kills", legacy::kills),
    scenario("legacy_flood", legacy::flood),
    once("legacy_wild", legacy::wild),
    scenario("attack_power", attack::power),
    scenario("attack_placed", attack::placed),
    scenario("attack_priority", attack::priority),
    scenario("attack_crowd", attack::crowd),
    scenario("attack_quotas", attack::quotas),
    scenario("attack_limits", attack::limits),
    scenario("attack_remains", attack::remains),
    scenario("attack_saving", attack::saving),
    scenario("attack_restores", attack::restores),
    scenario("attack_memory_taken", attack::memory_taken),
    scenario("attack_memory_reserved", attack::memory_reserved),
    scenario("attack_memory_shared", attack::memory_shared),
    scenario("attack_memory_touched", attack::memory_touched),
    scenario("attack_room_taken", attack::room_taken),
    scenario("attack_leavings", attack::leavings),
    scenario("attack_churn", attack::churn),
    scenario("attack_silence", attack::silence),
    scenario("attack_services", attack::services),
    scenario("attack_services_disk", attack::services_disk),
    scenario("attack_held", attack::held),
    scenario("attack_held_disk", attack::held_disk),
    scenario("attack_linux", attack::linux),
    scenario("attack_executables", attack::executables),
    scenario("attack_growing", attack::growing),
    scenario("attack_console", attack::console),
    scenario("attack_lines", attack::lines),
    scenario("attack_keepers", attack::keepers),
    scenario("attack_gets", attack::gets),
    scenario("attack_crashes", attack::crashes),
    scenario("deterministic", checkpoint::deterministic),
];

/// A machine whose driver is killed at instants from a seed, so many times.
pub(crate) type Kills = fn(&mut Ctx, u64, u64) -> Result<(), Failure>;

/// For each driver that can be started anew.
pub(crate) const KILLS: [(&str, Kills); 5] = [
    ("edu", driver::kill),
    ("virtio-blk", disk::kill),
    ("virtio-net", net::kill_driver),
    ("virtio-rng", entropy::kill),
    ("e100", legacy::kill),
];

/// A scenario that is run.
const fn scenario(name: &'static str, run: fn(&mut Ctx) -> Result<(), Failure>) -> Scenario {
    Scenario {
        name,
        run,
        ignored: None,
        once: false,
    }
}

/// A long one, about what servers do whatever the kernel's model is ([`Scenario::once`]).
const fn once(name: &'static str, run: fn(&mut Ctx) -> Result<(), Failure>) -> Scenario {
    Scenario {
        once: true,
        ..scenario(name, run)
    }
}

/// Links one of the C programs of `servers/linux/tests` statically into `directory`: an unmodified Linux
/// program. Where `cc` cannot do that, the scenario or this part of it is left out, and counts as ignored.
fn linux_program(ctx: &mut Ctx, directory: &Path, name: &str) -> Option<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../servers/linux/tests");
    let program = directory.join(name);
    let made = Command::new("cc")
        .args(["-O1", "-w", "-static", "-o"])
        .args([&program, &sources.join(name).with_extension("c")])
        .stderr(Stdio::null())
        .status();
    if made.is_ok_and(|status| status.success()) {
        return Some(program);
    }
    ctx.leave_out("cc cannot link a static program");
    None
}

/// An ELF executable of one segment with this code.
fn elf(code: &[u8]) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    elf.extend(2u16.to_le_bytes()); // ET_EXEC
    elf.extend(62u16.to_le_bytes()); // x86-64
    elf.extend(1u32.to_le_bytes());
    for word in [BASE + HEADERS, 64, 0] {
        elf.extend(word.to_le_bytes()); // entry, program headers, section headers
    }
    elf.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 1, 64, 0, 0] {
        elf.extend(half.to_le_bytes());
    }
    let size = HEADERS + code.len() as u64;
    elf.extend(1u32.to_le_bytes()); // PT_LOAD
    elf.extend(5u32.to_le_bytes()); // read, execute
    for word in [0, BASE, BASE, size, size, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(code);
    elf
}

/// `exit N` powers the machine off with N, and nothing but the commands' output is printed.
fn script_status(ctx: &mut Ctx) -> Result<(), Failure> {
    let output = ctx.run(Run::script("# nothing\necho hello\nexit 7\n"))?;
    output.expect_status(7)?.expect_stdout("hello\n")?;
    Ok(())
}
