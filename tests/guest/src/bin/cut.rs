//! Cuts every call at every site: `cut [filter=TEXT] [kinds=KIND,...] [site=N] [shard=I/N] [collocated=SIDE,...]`; with
//! `instants=1` at every instruction instead; or `cut hostile=ROUNDS [seed=N]`. A SIDE, `client` or `server`, is then in
//! ring 1. Needs a kernel with
//! the probe, and the device authority; init starts it when the command line has the word `cut`.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use guest_tests::cuts::fixture::{self, Fixture, CLIENT, MANAGER, SERVER};
use guest_tests::cuts::hostile::Hostile;
use guest_tests::cuts::plays;
use guest_tests::cuts::probe::Probe;
use guest_tests::cuts::run::{CutKind, Mismatch, Runner, Sum, CUT_KINDS};
use guest_tests::harness::Failure;

rt::entry!(main);

static RESULT: AtomicU64 = AtomicU64::new(u64::MAX);

fn main() -> u8 {
    // Above all other priorities, so that nothing changes while an object is taken apart.
    let started = rt::thread::spawn_at(MANAGER, || {
        let status = match all() {
            Ok(0) => 0,
            Ok(_) => 1,
            Err(why) => {
                report(&format!("test run ... FAILED {why}"));
                1
            }
        };
        report("tests done");
        RESULT.store(status, Ordering::Release);
    });
    if started.is_err() {
        return 2;
    }
    while RESULT.load(Ordering::Acquire) == u64::MAX {
        rt::time::sleep(1_000_000);
    }
    let status = RESULT.load(Ordering::Acquire) as u8;
    let _ = rt::system::power_off(status);
    status
}

fn report(line: &str) {
    let _ = rt::system::report(line);
}

fn argument(key: &str) -> Option<&'static str> {
    let mut args = rt::start().args.iter().skip(1);
    args.find_map(|arg| {
        arg.split_once('=')
            .filter(|(k, _)| *k == key)
            .map(|(_, v)| v)
    })
}

/// `shard=I/N`: only the calls of the `I`th of `N` shards.
fn shard() -> Option<(usize, usize)> {
    let (shard, shards) = argument("shard")?.split_once('/')?;
    Some((shard.parse().ok()?, shards.parse().ok().filter(|n| *n > 0)?))
}

/// The name of a play as a test.
fn name(play: &plays::Play) -> String {
    let words = if play.name.is_empty() {
        "plain"
    } else {
        &play.name
    };
    let words: String = words
        .chars()
        .filter(|c| *c != ',' && *c != '\'')
        .map(|c| if c == ' ' { '_' } else { c })
        .collect();
    format!("{}/{words}", play.subject())
}

/// Touches as much of the heap for small blocks as will be needed, in addition to what is in use now, so that the
/// memory server creates no objects for it during a play, which would change the census.
fn warm_up() {
    // Not whole units of the heap: those are large blocks, which have a range of their own.
    let blocks: Vec<Vec<u8>> = (0..112).map(|_| alloc::vec![1; 33_000]).collect();
    drop(blocks);
}

/// Runs `rounds` rounds of hostile callers.
fn hostile(probe: Probe, rounds: u64) -> Result<u64, Failure> {
    let seed = argument("seed").and_then(|n| n.parse().ok()).unwrap_or(1);
    warm_up();
    let mut hostile = Hostile::new(probe)?;
    for round in seed..seed + rounds {
        // Reported before the round, so that the log shows which round stopped the machine.
        report(&format!("test hostile/{round} ..."));
        match hostile.round(round) {
            Ok(()) => report(&format!("test hostile/{round} ... ok")),
            Err(why) => report(&format!("test hostile/{round} ... FAILED {why}")),
        }
    }
    let (calls, exceptions) = hostile.calls;
    report(&format!(
        "log {calls} hostile calls came back, {exceptions} caused exceptions"
    ));
    Ok(0)
}

fn all() -> Result<u64, Failure> {
    let filter = argument("filter").unwrap_or("");
    let kinds: Vec<CutKind> = match argument("kinds") {
        None => CUT_KINDS.to_vec(),
        Some(text) => CUT_KINDS
            .into_iter()
            .filter(|kind| {
                text.split(',')
                    .any(|t| t == format!("{kind:?}").to_lowercase())
            })
            .collect(),
    };
    let me = rt::thread::current().map_err(|code| format!("{code:?}"))?;
    let authority = rt::start::passed(1).ok_or("no authority")?;
    let probe = Probe::attach(authority, *me).ok_or("this kernel has no probe")?;
    if let Some(rounds) = argument("hostile").and_then(|n| n.parse().ok()) {
        return hostile(probe, rounds);
    }
    for (side, name) in [(CLIENT, "client"), (SERVER, "server")] {
        if argument("collocated").is_some_and(|sides| sides.split(',').any(|one| one == name)) {
            fixture::collocate(side);
        }
    }
    let fixture = Fixture::new(authority, me)?;
    let mut runner = Runner::new(fixture, probe)?;
    let only = argument("site").and_then(|n| n.parse().ok());
    let mut failed = 0;
    let mut plays = plays::all();
    if filter.is_empty() && shard().is_none_or(|(shard, _)| shard == 0) {
        let missing = plays::missing(&plays);
        for words in &missing {
            failed += 1;
            report(&format!("test rows ... FAILED {words}"));
        }
        if missing.is_empty() {
            report("test rows ... ok");
        }
    }
    let instants = argument("instants").is_some();
    if instants {
        plays::keep_main(&mut plays)?;
    }
    if let Some((shard, shards)) = shard() {
        let mut subjects: Vec<&str> = plays.iter().map(plays::Play::subject).collect();
        subjects.dedup();
        let of = |name| subjects.iter().position(|s| *s == name);
        plays.retain(|play| of(play.subject()).is_some_and(|n| n % shards == shard));
    }
    warm_up();
    let mut sum = Sum::default();
    let mut at = None;
    for (n, play) in plays.iter().enumerate() {
        let name = name(play);
        if !name.contains(filter) {
            continue;
        }
        if at != Some(play.subject()) {
            at = Some(play.subject());
            sum = Sum::default();
            runner.begin();
        }
        let (cuts, distinct, known) = (runner.cuts, runner.distinct, runner.left_out);
        let result = match instants {
            true => runner.instants(play, only),
            false => runner.play(play, &kinds, only),
        };
        sum.cuts += runner.cuts - cuts;
        sum.distinct += runner.distinct - distinct;
        sum.known += runner.left_out - known;
        sum.sites = match instants {
            true => runner.in_kernel,
            false => runner.sites.len() as u64,
        };
        (sum.redone, sum.redone_at) = runner.redone;
        match result {
            Ok(()) => report(&format!("test {name} ... ok")),
            Err(Mismatch { cut, why }) => {
                failed += 1;
                sum.mismatches += 1;
                report(&format!("test {name}{cut} ... FAILED {why}"));
            }
        }
        let last = plays[n + 1..]
            .iter()
            .all(|p| p.subject() != play.subject() || !self::name(p).contains(filter));
        if last {
            report(&format!(
                "log cut call {} {} {} {} {} {} {} {:x}",
                play.subject(),
                sum.sites,
                sum.distinct,
                sum.cuts,
                sum.mismatches,
                sum.known,
                sum.redone,
                sum.redone_at
            ));
        }
    }
    for site in probe.sites() {
        report(&format!("log cut site {:x} {}", site.id, site.times));
    }
    report(&format!("log cut stop {}", runner.longest_stop));
    Ok(failed)
}
