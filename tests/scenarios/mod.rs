//! Scenarios: whole machines that boot, run a script and are examined from outside.
//!
//! Each is a function over [`Ctx`] that returns an error, or panics, when something is wrong. It runs in each
//! configuration that is tested or, if `once` made it, in one of them (with `--all`: in one for each way to be
//! preempted). A scenario of `daily` also runs with all servers and drivers in the kernel, as `placed/CONFIG/NAME`,
//! in one configuration; with `--all` so do all scenarios that do not place servers themselves (`itself`). They are
//! compiled into xtask; `xtask/test/src/scenario.rs` has their vocabulary. A new scenario is a function in a file
//! here and a line in [`ALL`].

mod attack;
mod browser;
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
mod sound;
mod trees;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::scenario::{Ctx, Failure, Run, Scenario, When};

pub(crate) use attack::{services_from, Limits};
pub(crate) use browser::PROGRAM as BROWSER;
pub(crate) use inspect::shown_in_browser;

/// All scenarios.
pub(crate) const ALL: &[Scenario] = &[
    scenario("script_status", script_status),
    scenario("examples", examples::all),
    once("examples_new", examples::new),
    once("tutorial", examples::tutorial),
    once("linux_applets", linux::applets),
    once("linux_scripts", linux::scripts),
    scenario("linux_calls", linux::calls),
    scenario("linux_threads", linux::threads),
    scenario("linux_jobs", linux::jobs),
    once("linux_ptrace", linux::ptrace),
    once("linux_busy", linux::busy),
    once("linux_sysv", linux::sysv),
    once("linux_ipcs", linux::ipcs),
    once("linux_tracers", linux::tracers),
    once("linux_events", linux::events),
    once("linux_names", linux::names),
    once("linux_sockets", linux::sockets),
    once("linux_shared", linux::shared),
    once("linux_locks", linux::locks),
    once("linux_faults", linux::faults),
    once("linux_limits", linux::limits),
    once("linux_ptys", linux::ptys),
    once("linux_inotify", linux::inotify),
    once("linux_proc", linux::proc),
    once("linux_http", linux::http),
    once("linux_parallel", linux::parallel),
    scenario("linux_stopped", linux::stopped),
    once("linux_turns", linux::turns),
    once("linux_refusals", linux::refusals),
    once("linux_console", linux::console),
    once("linux_memory_runs_out", linux::memory_runs_out),
    once("linux_packages", linux::packages),
    itself(scenario("place_servers", place::servers)),
    itself(scenario("place_checkpoints", place::checkpoints)),
    itself(once("place_same_images", place::same_images)),
    itself(once("place_command", place::command)),
    itself(once("place_stray", place::stray)),
    once("shell_language", shell::language),
    once("shell_refusals", shell::refusals),
    once("shell_statuses", shell::statuses),
    scenario("shell_jobs", shell::jobs),
    scenario("shell_at_the_console", shell::at_the_console),
    once("shell_memory_runs_out", shell::memory_runs_out),
    once("shell_nothing_remains", shell::nothing_remains),
    once("shell_programs", shell::programs),
    scenario("shell_console_input", shell::console_input),
    once("shell_posix", shell::posix),
    once(
        "shell_linux_shell_at_the_console",
        shell::linux_shell_at_the_console,
    ),
    once("shell_native_from_linux", shell::native_from_linux),
    once("shell_posix_at_the_console", shell::posix_at_the_console),
    scenario("checkpoint_four_programs", checkpoint::four_programs),
    scenario("checkpoint_threads", checkpoint::threads),
    scenario("checkpoint_clock", checkpoint::clock),
    once("checkpoint_eight_megabytes", checkpoint::eight_megabytes),
    scenario("checkpoint_other_boot", checkpoint::other_boot),
    once("checkpoint_incremental", checkpoint::incremental),
    once("checkpoint_hundred", checkpoint::hundred),
    once("checkpoint_named_files", checkpoint::named_files),
    once("checkpoint_full_disk", checkpoint::full_disk),
    once("checkpoint_moved", checkpoint::moved),
    once("checkpoint_by_shell", checkpoint::by_shell),
    scenario("checkpoint_inside_calls", checkpoint::inside_calls),
    scenario("checkpoint_console_read", checkpoint::console_read),
    scenario("checkpoint_console_session", checkpoint::console_session),
    scenario("checkpoint_trees", trees::shells),
    scenario("checkpoint_tree_programs", trees::programs),
    once("checkpoint_tree_kept", trees::kept),
    once("checkpoint_tree_refusals", trees::refusals),
    once("checkpoint_tree_jobs", trees::jobs_of_shells),
    once("checkpoint_tree_elsewhere", trees::other_machine),
    once("checkpoint_packages", trees::packages),
    once("checkpoint_bad_images", checkpoint::bad_images),
    once("checkpoint_savers", checkpoint::savers),
    once("checkpoint_lazily", checkpoint::lazily),
    once("checkpoint_lazily_by_shell", checkpoint::lazily_by_shell),
    scenario("checkpoint_while_it_goes_on", checkpoint::while_it_goes_on),
    once("date", disk::date),
    once("random", linux::random),
    once("random_entropy", entropy::comes),
    once("random_silent", entropy::silent),
    once("random_poor", entropy::poor),
    once("random_slow", entropy::slow),
    once("random_driver_kills", entropy::kills),
    scenario("disk_two_boots", disk::two_boots),
    once("disk_refusals", disk::refusals),
    once("disk_hostile", disk::hostile),
    once("disk_silent", disk::silent),
    once("disk_absent", disk::absent),
    once("disk_slow", disk::slow),
    once("disk_kills", disk::kills),
    daily(once("disk_files", disk::files)),
    once("disk_files_kills", disk::files_kills),
    once("disk_server_kills", disk::server_kills),
    once("disk_foreign", disk::foreign),
    once("disk_checkpoint", disk::checkpoint),
    once("disk_checkpoint_reopens", disk::checkpoint_reopens),
    once("disk_checkpoint_clock", disk::checkpoint_clock),
    once("disk_cut", disk::cut),
    once("driver_kills", driver::kills),
    scenario("driver_hostile", driver::hostile),
    scenario("driver_shared", driver::shared),
    once("inspect", inspect::page),
    once("inspect_browser", inspect::in_browser),
    once("inspect_hostile", inspect::hostile),
    scenario("gdb_native", gdb::native),
    once("gdb_linux", gdb::linux),
    scenario("gdb_watch", gdb::watched),
    once("gdb_watch_linux", gdb::watched_linux),
    once("gdb_step_linux", gdb::stepped_linux),
    once("gdb_ends", gdb::ended),
    once("gdb_debian", gdb::debian),
    once("net_user", net::user),
    daily(scenario("net_pair", net::pair)),
    once("net_slow_reader", net::slow_reader),
    once("net_lost_ends", net::lost_ends),
    once("net_refusals", net::refusals),
    once("net_driver_kills", net::driver_kills),
    once("net_server_kills", net::server_kills),
    once("net_flood", net::flood),
    once("net_hostile", net::hostile),
    scenario("outside_pair", outside::pair),
    once("outside_interfaces", outside::interfaces),
    once("outside_user", outside::user),
    once("outside_saved", outside::saved),
    once("outside_errors", outside::errors),
    once("outside_hostile", outside::hostile),
    once("outside_server_ends", outside::server_ends),
    once("outside_left", outside::left),
    once("legacy_list", legacy::list),
    daily(once("legacy_pair", legacy::pair)),
    once("legacy_pairs", legacy::pairs),
    once("legacy_isa", legacy::isa),
    once("legacy_kills", legacy::kills),
    once("legacy_flood", legacy::flood),
    once("legacy_wild", legacy::wild),
    once("legacy_disks", legacy::disks),
    once("legacy_disk_kills", legacy::disk_kills),
    once("legacy_disk_errors", legacy::disk_errors),
    once("legacy_disk_recovers", legacy::disk_recovers),
    once("sound_plays", sound::plays),
    once("sound_placed", sound::placed),
    once("sound_kills", legacy::sound_kills),
    once("sound_channels", sound::channels),
    once("sound_hostile", sound::hostile),
    scenario("attack_power", attack::power),
    itself(scenario("attack_placed", attack::placed)),
    scenario("attack_priority", attack::priority),
    once("attack_crowd", attack::crowd),
    scenario("attack_quotas", attack::quotas),
    scenario("attack_limits", attack::limits),
    scenario("attack_linux_job", attack::linux_job),
    scenario("attack_directory", attack::directory),
    scenario("attack_remains", attack::remains),
    once("attack_saving", attack::saving),
    once("attack_restores", attack::restores),
    once("attack_memory_taken", attack::memory_taken),
    once("attack_memory_reserved", attack::memory_reserved),
    once("attack_memory_shared", attack::memory_shared),
    scenario("attack_memory_touched", attack::memory_touched),
    once("attack_room_taken", attack::room_taken),
    once("attack_leavings", attack::leavings),
    once("attack_heirs", attack::heirs),
    daily(scenario("attack_churn", attack::churn)),
    once("attack_silence", attack::silence),
    once("attack_services", attack::services),
    once("attack_services_disk", attack::services_disk),
    once("attack_services_sound", attack::services_sound),
    daily(once("attack_held", attack::held)),
    once("attack_held_disk", attack::held_disk),
    once("attack_held_sound", attack::held_sound),
    once("attack_linux", attack::linux),
    once("attack_linux_processes", attack::linux_processes),
    once("attack_linux_waits", attack::linux_waits),
    once("attack_executables", attack::executables),
    once("attack_growing", attack::growing),
    once("attack_heavy", attack::heavy),
    once("attack_console", attack::console),
    once("attack_lines", attack::lines),
    daily(scenario("attack_keepers", attack::keepers)),
    once("attack_gets", attack::gets),
    once("attack_crashes", attack::crashes),
    scenario("deterministic", checkpoint::deterministic),
];

/// Kills the driver of a machine at instants from a seed, so many times.
pub(crate) type Kills = Box<dyn Fn(&mut Ctx, u64, u64) -> Result<(), Failure>>;

/// For each driver that can be restarted: its name, and the function that kills it.
pub(crate) fn kills() -> Vec<(&'static str, Kills)> {
    let mut kills: Vec<(&str, Kills)> = vec![
        ("edu", Box::new(driver::kill)),
        ("virtio-blk", Box::new(disk::kill)),
        ("virtio-net", Box::new(net::kill_driver)),
        ("virtio-rng", Box::new(entropy::kill)),
    ];
    for (name, kind, _) in legacy::DRIVERS {
        let kill = move |ctx: &mut Ctx, seed, count| legacy::kill(ctx, (name, kind), seed, count);
        kills.push((name, Box::new(kill)));
    }
    kills
}

/// If a driver was never working when it was killed, it was killed only while it started: half of the kills wait
/// until it works.
fn expect_at_work(at_work: u64, kills: u64) -> Result<(), Failure> {
    match at_work >= kills / 4 {
        true => Ok(()),
        false => Err(format!("only {at_work} of {kills} kills came at work")),
    }
}

/// A scenario.
const fn scenario(name: &'static str, run: fn(&mut Ctx) -> Result<(), Failure>) -> Scenario {
    Scenario {
        name,
        run,
        ignored: None,
        once: false,
        placed: When::Rarely,
    }
}

/// The same; it also runs with all servers and drivers in the kernel, whenever it is run.
const fn daily(scenario: Scenario) -> Scenario {
    Scenario {
        placed: When::Daily,
        ..scenario
    }
}

/// The same, for a scenario that places servers itself.
const fn itself(scenario: Scenario) -> Scenario {
    Scenario {
        placed: When::Itself,
        ..scenario
    }
}

/// A scenario about programs and servers, whatever the kernel's model ([`Scenario::once`]).
const fn once(name: &'static str, run: fn(&mut Ctx) -> Result<(), Failure>) -> Scenario {
    Scenario {
        once: true,
        ..scenario(name, run)
    }
}

/// Links one of the C programs of `servers/linux/tests` statically into `directory`: an unmodified Linux program. If
/// `cc` cannot do that, the scenario or this part of it is left out, and counts as ignored.
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

/// `exit N` powers the machine off with N, and only the commands' output is printed.
fn script_status(ctx: &mut Ctx) -> Result<(), Failure> {
    let output = ctx.run(Run::script("# nothing\necho hello\nexit 7\n"))?;
    output.expect_status(7)?.expect_stdout("hello\n")?;
    Ok(())
}
