//! Starts hostile clients, kills them at any instant, makes health checks of every service meanwhile, and reports the
//! results.

use super::awake::Awake;
use super::ceiling;
use super::counters::{Counters, IMAGES, OTHER, ROOM};
use super::held;
use super::honest::{
    clear, files, remove, HealthCheck, Honest, HEALTH_CHECKS, NETWORK_REQUESTS, PROGRAM_BOUND,
};
use super::table::{is_there, methods_of, PLACE, PROGRAM, SERVICES};
use super::Sentence;
use crate::harness::Random;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use proto::Error;
use rt::obj::{Ref, RefAt};
use rt::process::{Client, Process};
use rt::{println, time};
use services::process::{Start, Status, Stdio};

/// Hostile clients at a time.
const CLIENTS: usize = 4;
/// When files that hostile clients had open are closed at the latest after the clients were killed, and the pause
/// between two checks, in nanoseconds. Threads of a program's priority do that work, two of which may each need some
/// slices first.
const CLOSED: u64 = 100_000_000;
const MOMENT: u64 = 1_000_000;
/// The warden's priority: above the clients, below all servers, since it waits for the work of servers.
const PRIORITY: u64 = proto::layout::PRIORITY_PROGRAM + 1;
/// The longest time between two health checks, in nanoseconds.
const PAUSE: u64 = 1_000_000;
/// A client is killed once in so many health checks.
const KILLS: u64 = 40;
/// A program is started and a process is saved about once in so many health checks.
const LONG: u64 = 100;

/// Of so many clients in a row there is one of each special kind; the others make random requests.
const KINDS: u64 = 8;
/// The one among them that takes all the room in the file system.
const ROOM_TAKEN: u64 = 6;
/// The one that restores images.
const IMAGES_RESTORED: u64 = 3;
/// The one that makes Linux calls.
const LINUX_CALLS: u64 = 5;
/// The program that makes Linux calls, `servers/linux/tests/hostile.c`, if it could be built.
const LINUX: &str = "/bin/hostile";
/// What that program can do.
const LINUX_WAYS: [&str; 6] = ["calls", "vectors", "calls", "memory", "files", "signals"];

/// The name of the program whose job the hostile clients count for, and of its port: what they use up is not the
/// warden's, which is in another job.
const NURSERY: &str = "nursery";

/// The program whose job is that of the hostile clients: lets others start processes for its job.
pub fn nurse() -> u8 {
    if rt::names::register_with(NURSERY, &rt::start::names(), &rt::start::names()).is_err() {
        return 1;
    }
    loop {
        time::sleep(1_000_000_000);
    }
}

/// The measurements of a health check.
#[derive(Clone, Copy, Default)]
struct Measured {
    asked: u64,
    worst: u64,
}

struct Warden {
    random: Random,
    counters: Counters,
    honest: Honest,
    /// The clients, with the names of their managers.
    clients: Vec<(&'static str, Process)>,
    started: u64,
    seed: u64,
    /// A check fails if it takes so many times as long as it should.
    patience: u64,
    measured: [Measured; HEALTH_CHECKS.len()],
    programs: Measured,
    /// How often hostile clients had taken all the room in the file system.
    full: u64,
    /// The services of this machine.
    there: Vec<usize>,
    /// Services that hostile clients are trusted with, and their control ports.
    powers: Vec<(String, Ref)>,
    /// Processes that existed before the hostile ones, including servers: their managers, numbers and names.
    before: Vec<(&'static str, u32, String)>,
}

/// The directories of hostile clients' files on this machine. A disk with other content than a file system has none.
fn places() -> impl Iterator<Item = &'static str> {
    let there = SERVICES.iter().filter(|service| is_there(service));
    let is_place = |place: &&str| {
        let parent = place.rsplit_once('/').map_or("/", |(parent, _)| parent);
        rt::fs::stat(parent, false).is_ok()
    };
    there.filter_map(|service| service.place).filter(is_place)
}

/// The managers of processes.
const MANAGERS: [&str; 2] = ["native", "linux"];

/// All processes.
fn processes() -> Result<Vec<(&'static str, u32, String)>, Sentence> {
    let mut all = Vec::new();
    for manager in MANAGERS {
        let list = rt::system::supervisor(manager).and_then(|supervisor| supervisor.list());
        let list = list.map_err(failed(manager))?;
        all.extend(list.into_iter().map(|info| (manager, info.pid, info.name)));
    }
    Ok(all)
}

/// Makes the directories of hostile clients, or removes them.
fn at_places(what: fn(&str) -> Result<(), Error>) -> Result<(), Sentence> {
    places().try_for_each(|place| what(place).map_err(failed(place)))
}

fn make(place: &str) -> Result<(), Error> {
    rt::fs::mkdir(place, 0o755)
}

fn failed(what: &str) -> impl Fn(Error) -> Sentence + '_ {
    move |error| format!("{what}: {}", error.text())
}

impl Warden {
    fn new(seed: u64, powers: &[String], patience: u64) -> Result<Self, Sentence> {
        let port = |name: &String| match rt::system::control(name) {
            Ok(port) => Ok((name.clone(), port)),
            Err(error) => Err(failed(name)(error)),
        };
        let before = processes()?;
        Ok(Warden {
            before,
            random: Random(seed | 1 << 40),
            counters: Counters::new().map_err(failed("counters"))?,
            honest: Honest::new().map_err(failed("processes of its own"))?,
            clients: Vec::new(),
            started: 0,
            seed,
            patience,
            measured: Default::default(),
            programs: Measured::default(),
            full: 0,
            there: (0..SERVICES.len())
                .filter(|n| is_there(&SERVICES[*n]))
                .collect(),
            powers: powers.iter().map(port).collect::<Result<_, _>>()?,
        })
    }

    /// Makes the health check of a service.
    fn ask(&mut self, index: usize) -> Result<(), Sentence> {
        self.ask_within(index, HEALTH_CHECKS[index].bound)
    }

    /// Makes the health check of a service, whose answer may take so many instructions.
    fn ask_within(&mut self, index: usize, bound: u64) -> Result<(), Sentence> {
        let check = &HEALTH_CHECKS[index];
        let HealthCheck { service, ask, .. } = check;
        let _awake = check.waits_for_the_host().then(Awake::begin).transpose()?;
        // The warden wants the processor then, and gets it when no server has work to do for others.
        let before = time::now() + self.random.below(PAUSE);
        time::sleep_until(before);
        // How long the answer, or the refusal, took.
        let took = Cell::new(None);
        let ask = |warden: &Self| {
            let answer = ask(&warden.honest);
            took.set(took.get().or(Some(time::now() - before)));
            answer
        };
        self.or_make_room(ask)
            .map_err(|why| format!("{service}: {why}"))?;
        let took = took.get().unwrap_or(0);
        let measured = &mut self.measured[index];
        measured.asked += 1;
        measured.worst = measured.worst.max(took);
        if took <= bound {
            return Ok(());
        }
        let why = format!("{service}: an answer took {took}, more than {bound}");
        self.unless_it_hangs(why, took, bound)
    }

    /// A check took longer than it should, for this reason: that is a failure, or only reported.
    fn unless_it_hangs(&self, why: Sentence, took: u64, bound: u64) -> Result<(), Sentence> {
        if took > bound.saturating_mul(self.patience) {
            return Err(why);
        }
        println!("services: slow: {why}");
        Ok(())
    }

    /// Does something that needs room in the file system. If hostile clients have taken it, they and their files are
    /// removed; then there must be room.
    fn or_make_room(
        &mut self,
        ask: impl Fn(&Self) -> Result<(), Sentence>,
    ) -> Result<(), Sentence> {
        match ask(self) {
            Err(why) if why.contains(Error::NoMemory.text()) => {
                self.full += 1;
                self.sweep(true)?;
                for place in places() {
                    clear(place)?;
                    let _ = make(place);
                }
                // Files that were open when their holder was killed still take room for a moment.
                let end = time::now() + CLOSED * (self.patience - 1);
                loop {
                    match ask(self) {
                        Err(why) if why.contains(Error::NoMemory.text()) && time::now() < end => {
                            time::sleep(MOMENT);
                        }
                        result => return result.map_err(|why| format!("with room made: {why}")),
                    }
                }
            }
            result => result,
        }
    }

    /// Ends every process of the hostile clients and, with `all`, the clients themselves.
    fn sweep(&mut self, all: bool) -> Result<(), Sentence> {
        for process in processes()? {
            let (manager, pid, _) = process;
            let is_this = |(its, client): &(&str, Process)| *its == manager && client.pid() == pid;
            let ours = self.before.contains(&process)
                || self.honest.processes().contains(&(manager, pid))
                || !all && self.clients.iter().any(is_this);
            if ours {
                continue;
            }
            let process = rt::system::supervisor(manager).and_then(|manager| manager.process(pid));
            if let Ok(process) = process {
                if matches!(process.kill(), Ok(()) | Err(Error::Ended)) {
                    let _ = process.reap();
                }
            }
        }
        if all {
            self.clients.clear();
        }
        Ok(())
    }

    /// Checks that no server has died, not even one that was restarted.
    fn nobody_died(&self) -> Result<(), Sentence> {
        let now = processes()?;
        match self.before.iter().find(|process| !now.contains(process)) {
            Some((_, pid, name)) => Err(format!("{name}, which was process {pid}, has died")),
            None => Ok(()),
        }
    }

    /// Starts the next client, with the next seed.
    fn next(&mut self) -> Result<(), Sentence> {
        let number = self.started;
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(number);
        self.started += 1;
        let seed_text = seed.to_string();
        match number % KINDS {
            ROOM_TAKEN => self.start(&["room", &seed_text]),
            IMAGES_RESTORED => self.start(&["images", &seed_text]),
            LINUX_CALLS if rt::fs::stat(LINUX, true).is_ok() => {
                let way = LINUX_WAYS[(seed % LINUX_WAYS.len() as u64) as usize];
                self.start_at("linux", LINUX, &["hostile", way, &seed_text])
            }
            _ => {
                let names: Vec<String> = self.powers.iter().map(|(name, _)| name.clone()).collect();
                let names = names.iter().map(String::as_str);
                let args: Vec<&str> = ["hostile", &seed_text].into_iter().chain(names).collect();
                self.start(&args)
            }
        }
    }

    /// Starts a program of this package with these arguments.
    fn start(&mut self, args: &[&str]) -> Result<(), Sentence> {
        self.start_at("native", PROGRAM, &[&["services"], args].concat())
    }

    /// Starts a program at a manager, for the job of the hostile clients.
    fn start_at(
        &mut self,
        manager: &'static str,
        path: &str,
        args: &[&str],
    ) -> Result<(), Sentence> {
        let start = Start {
            args: args.iter().map(ToString::to_string).collect(),
            stdio: [Stdio::Null, Stdio::Null, Stdio::Null].to_vec(),
            cwd: PLACE.to_string(),
            ..Start::default()
        };
        let client = Client::new(manager).map_err(failed(manager))?;
        let counters = self.counters.region().ok_or("no counters")?;
        let nursery = rt::names::lookup(NURSERY).map_err(failed(NURSERY))?;
        let spawn = |warden: &Self| {
            let mut passed: Vec<&RefAt> = Vec::new();
            if manager == "native" {
                passed.push(&counters);
                passed.extend(warden.powers.iter().map(|(_, port)| &**port));
            }
            client.spawn_for(&nursery, path, &start, &passed)
        };
        let process = match spawn(self) {
            // The job has as many processes as it may have: those of the clients are ended, which makes room.
            Err(Error::Limit) => {
                self.sweep(false)?;
                spawn(self)
            }
            result => result,
        };
        let process = process.map_err(failed("a hostile client"))?;
        self.clients.push((manager, process));
        Ok(())
    }

    fn run(&mut self, length: u64) -> Result<(), Sentence> {
        for _ in 0..CLIENTS {
            self.next()?;
        }
        let end = time::now() + length;
        while time::now() < end {
            let check = self.random.below(self.there.len() as u64) as usize;
            self.ask(self.there[check])?;
            if self.random.below(LONG) == 0 {
                self.long()?;
            }
            let chosen = self.random.below(CLIENTS as u64 * KILLS) as usize;
            if chosen < self.clients.len() {
                let (_, client) = self.clients.swap_remove(chosen);
                let _ = client.kill();
                let _ = client.reap();
            }
            // Some clients end by themselves.
            let ended =
                |(_, client): &(&str, Process)| !matches!(client.status(), Ok(Status::Running));
            if let Some(at) = self.clients.iter().position(ended) {
                let _ = self.clients.swap_remove(at).1.reap();
            }
            while self.clients.len() < CLIENTS {
                self.next()?;
            }
        }
        self.sweep(true)?;
        for check in self.there.clone() {
            self.ask(check)?;
        }
        self.long()
    }

    /// The longer checks: programs, and an image.
    fn long(&mut self) -> Result<(), Sentence> {
        // Makes room for them.
        self.sweep(false)?;
        let took = self.honest.programs(PROGRAM_BOUND * self.patience)?;
        if took > PROGRAM_BOUND {
            let why = format!("programs took {took}, more than {PROGRAM_BOUND}");
            self.unless_it_hangs(why, took, PROGRAM_BOUND)?;
        }
        self.programs.asked += 1;
        self.programs.worst = self.programs.worst.max(took);
        self.or_make_room(|warden| warden.honest.image())
    }

    /// Holds these services, or all, in every way, by one client after the other, and makes health checks of all
    /// services meanwhile.
    fn hold(&mut self, names: &[String]) -> Result<(), Sentence> {
        let powers: Vec<String> = self.powers.iter().map(|(name, _)| name.clone()).collect();
        for service in self.there.clone() {
            let held = &SERVICES[service];
            if !names.is_empty() && !names.iter().any(|name| name == held.name) {
                continue;
            }
            let ways = (0..held::COUNT).filter(|way| held::applies(service, *way));
            let (mut count, mut without) = (0, Vec::new());
            for way in ways {
                let number = held::number(service, way).to_string();
                let names = powers.iter().map(String::as_str);
                let args: Vec<&str> = ["held", &number].into_iter().chain(names).collect();
                let [.., right] = self.counters.counts(OTHER);
                let [.., before] = self.counters.counts(service);
                self.start(&args)?;
                time::sleep(5_000_000);
                for check in self.there.clone() {
                    self.ask(check)
                        .map_err(|why| format!("{}: {}: {why}", held.name, held::words(way)))?;
                }
                if held::other(way).is_some() {
                    self.is_held(right)
                        .map_err(|why| format!("{}: {}: {why}", held.name, held::words(way)))?;
                } else if self.counters.counts(service)[3] == before {
                    without.push(held::words(way));
                }
                if self.clients.len() == CLIENTS {
                    self.sweep(true)?;
                }
                count += 1;
            }
            println!("services: {} was held in {count} ways", held.name);
            for way in without {
                println!("services: {} was not held: {way}", held.name);
            }
        }
        self.sweep(true)?;
        self.long()
    }

    /// Waits until the hostile client that was started last reports that everything went as it should.
    fn is_held(&mut self, before: u64) -> Result<(), Sentence> {
        for _ in 0..TRIED {
            let [_, wrong, _, right] = self.counters.counts(OTHER);
            match (right > before, wrong) {
                (true, _) => return Ok(()),
                (_, 1..) => return Err("it does not hold, or is not answered".to_string()),
                _ => time::sleep(MOMENT),
            }
            for check in self.there.clone() {
                self.ask(check)?;
            }
        }
        Err("nothing came of it".to_string())
    }

    /// Every service must answer as usual while as many programs as a job may have use all the time that they get:
    /// none of them can be more important than a program. They keep running.
    fn crowd(&mut self) -> Result<(), Sentence> {
        let nursery = rt::names::lookup(NURSERY).map_err(failed(NURSERY))?;
        let count = ceiling::crowd(&nursery).map_err(failed("a crowd"))?;
        time::sleep(CROWDED);
        // The network server is a program: for each request it gets its turn after all of these.
        let turns = NETWORK_REQUESTS * (count as u64 + BESIDE) * SLICE;
        for check in self.there.clone() {
            let bound = match SERVICES[check].name {
                "net" => turns,
                _ => HEALTH_CHECKS[check].bound,
            };
            self.ask_within(check, bound)?;
        }
        println!("services: a crowd of {count}");
        Ok(())
    }

    fn report(&self) {
        for &index in &self.there {
            let service = &SERVICES[index];
            let [done, refused, code, held] = self.counters.counts(index);
            let Measured { asked, worst } = self.measured[index];
            println!(
                "services: {}: {done} done, {refused} refused, {code} not taken, {held} held; asked {asked} times, \
                 worst {worst}",
                service.name
            );
            let never = methods_of(index, |method| self.counters.answers(method) == 0);
            if !never.is_empty() {
                println!(
                    "services: {}: never asked: {}",
                    service.name,
                    never.join(" ")
                );
            }
        }
        let Measured { asked, worst } = self.programs;
        println!(
            "services: {} clients; programs {asked} times, worst {worst}",
            self.started
        );
        let [took, refused, ..] = self.counters.counts(ROOM);
        let [restored, senseless, ..] = self.counters.counts(IMAGES);
        println!(
            "services: room taken {took} times and refused {refused} times, made {} times; images restored {restored} \
             times and refused {senseless} times",
            self.full
        );
    }
}

/// A check with a seed that was not chosen before fails if it takes so many times as long as it should: among many
/// seeds some is slower than all that were measured. A service that takes that long is hanging.
pub const PATIENCE: u64 = 50;
/// How many moments at most it takes until a client holds a service in all its ways. While a disk is waited for, the
/// clock may jump.
const TRIED: u64 = 3000;
/// A turn of a program that uses all the time that it gets, in nanoseconds, as in `kernel/src/sched.rs`.
const SLICE: u64 = 10_000_000;
/// Programs that may want a turn besides a crowd: the nursery and the honest ones.
const BESIDE: u64 = 3;
/// The time by which all programs of a crowd have started, in nanoseconds.
const CROWDED: u64 = 500_000_000;

/// What hostile clients do.
#[derive(Clone)]
pub enum Play {
    /// There are as many as allowed, all at the highest priority that they can have.
    Crowd,
    /// Random requests from this seed, for so many nanoseconds, by clients that are trusted with the services of
    /// these names. A check that takes so many times as long as it should is a failure, and one that takes longer
    /// than it should is reported.
    Random(u64, u64, Vec<String>, u64),
    /// They hold these services, or all, in the middle of a request; they are trusted with the services behind them.
    Held(Vec<String>, Vec<String>),
}

/// Runs hostile clients.
fn play(play: &Play) -> Result<(), Sentence> {
    at_places(make)?;
    let before = Files::now()?;
    let mut warden = match play {
        Play::Random(seed, _, powers, patience) => Warden::new(*seed, powers, *patience),
        Play::Held(_, powers) => Warden::new(1, powers, 1),
        Play::Crowd => Warden::new(1, &[], 1),
    }?;
    if let Play::Crowd = play {
        warden.crowd()?;
        warden.report();
        at_places(rt::fs::rmdir)?;
        return warden.honest.end();
    }
    let came = match play {
        Play::Random(_, length, _, _) => warden.run(*length),
        Play::Held(services, _) => warden.hold(services),
        Play::Crowd => Ok(()),
    };
    let swept = warden.sweep(true);
    let patience = warden.patience;
    warden.report();
    came?;
    swept?;
    warden.nobody_died()?;
    warden.honest.fifo()?;
    warden.honest.end()?;
    places().try_for_each(clear)?;
    // A name with a spoilt byte may have made something outside of the directories.
    for stray in before.strays(&Files::now()?) {
        remove(&stray)?;
    }
    at_places(make)?;
    // Files that were open when their holder was killed are closed a moment later.
    let end = time::now() + CLOSED * patience;
    let mut after = Files::now()?;
    while before.expect(&after).is_err() && time::now() < end {
        time::sleep(MOMENT);
        after = Files::now()?;
    }
    at_places(rt::fs::rmdir)?;
    before.expect(&after)
}

/// The content of the file system.
struct Files {
    /// Bytes and number of files, including those without a name.
    usage: (u64, u64),
    names: Vec<Sentence>,
}

impl Files {
    fn now() -> Result<Self, Sentence> {
        let mut names = Vec::new();
        files("/", &mut names).map_err(failed("files"))?;
        Ok(Files {
            usage: rt::fs::usage().map_err(failed("files"))?,
            names,
        })
    }

    /// Paths that exist in `later` and not here.
    fn strays(&self, later: &Self) -> Vec<Sentence> {
        let new = later.names.iter().filter(|name| !self.names.contains(name));
        let path = |name: &Sentence| match name.strip_suffix('/') {
            Some(directory) => directory.to_string(),
            // The size is behind the name.
            None => name
                .rsplit_once(' ')
                .map_or("", |(path, _)| path)
                .to_string(),
        };
        // The content of a directory before the directory.
        let mut paths: Vec<Sentence> = new.map(path).collect();
        paths.reverse();
        paths
    }

    fn expect(&self, other: &Self) -> Result<(), Sentence> {
        if self.usage == other.usage && self.names == other.names {
            return Ok(());
        }
        let differ = |a: &Self, b: &Self| -> Vec<Sentence> {
            let gone = a.names.iter().filter(|name| !b.names.contains(name));
            gone.cloned().collect()
        };
        Err(format!(
            "files: {:?} became {:?}; gone {:?}, new {:?}",
            self.usage,
            other.usage,
            differ(self, other),
            differ(other, self)
        ))
    }
}

/// The exit status of the play; 0 while it runs.
static STATUS: AtomicU64 = AtomicU64::new(0);

/// The program.
pub fn run(what: Play) -> u8 {
    let play = move || {
        let status = match play(&what) {
            Ok(()) => {
                println!("services: all is well");
                0
            }
            Err(why) => {
                println!("services: {why}");
                1
            }
        };
        STATUS.store(1 << 8 | status, Relaxed);
    };
    if rt::thread::spawn_at(PRIORITY, play).is_err() {
        println!("services: the warden needs a priority above that of programs");
        return 1;
    }
    while STATUS.load(Relaxed) == 0 {
        time::sleep(1_000_000);
    }
    STATUS.load(Relaxed) as u8
}
