//! Runs the plays: each once undisturbed, and then with every kind of cut at every site that it passed. The
//! outcome must be the same.

use super::fixture::{
    on, Fixture, Page, CLIENT, KEEPER, KEPT, PAGES, RECEIVED, REFERENCES, SENT, SERVER,
};
use super::knife::Parts;
use super::plays::{Act, Play, Precondition, Step, INTERRUPT_LINE, IO_PORTS, LATER};
use super::probe::{Fired, Probe};
use crate::harness::{ok, Failure, Must};
use abi::state::{port_flags, PortState, THREAD_WORDS};
use abi::{Call, Code, Common, Type, PAGE_SIZE};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use rt::obj::RefAt;
use rt::sys::{self, IpcRegs};

/// What is taken apart and made again at the site where the probe has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutKind {
    /// The thread that passed the site, made again at its address.
    Here,
    /// The same thread, made at another address and moved back.
    Elsewhere,
    /// Both victims.
    Both,
    /// The same thread; the others run until none can go on, while it has no body.
    Slow,
    /// Every object but the victims, one after the other.
    Objects,
    /// The victims and every other object, at once.
    All,
}

/// Where cuts are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At the n-th site that is passed, once.
    At(u64),
    /// At every site, once for each state in which a thread passes it, in one run of the play.
    Sweep,
}

/// All kinds of cuts.
pub const CUT_KINDS: [CutKind; 6] = [
    CutKind::Here,
    CutKind::Elsewhere,
    CutKind::Both,
    CutKind::Slow,
    CutKind::Objects,
    CutKind::All,
];

/// An instant is a word: in this many low bits the nanoseconds after an act, above them the act's number.
const ACT: u32 = 24;

/// How many fixtures a machine has memory for.
const REPLACEMENTS: u32 = 4;

/// How long a play may take, in nanoseconds. One that takes longer has failed.
const PATIENCE: u64 = 200_000_000;

/// The counts of the plays of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Distinct sites.
    pub sites: u64,
    /// Distinct states of a thread at a site.
    pub distinct: u64,
    pub cuts: u64,
    pub mismatches: u64,
    /// Cuts that were not made, because both victims had been in that state at an earlier cut of that kind.
    pub known: u64,
    /// Most instructions that a thread repeated after a cut [`CutKind::Here`] until it was at the same site
    /// again; and that site.
    pub redone: u64,
    pub redone_at: u64,
}

/// The outcome of a play: numbers, each with what it stands for ([`label`]).
type Outcome = Vec<(u32, u64)>;

/// An outcome that a cut changed; `cut` is empty or, behind an `@`, the cut that repeats it.
pub struct Mismatch {
    pub cut: String,
    pub why: Failure,
}

/// Says what a number in an outcome stands for.
fn label(what: u32) -> String {
    let (kind, a, b) = (what >> 24, what >> 12 & 0xfff, what & 0xfff);
    match kind {
        1 => format!(
            "register {b} after call {} of the {}",
            a & 0xff,
            side(a >> 8)
        ),
        2 => format!("word {b} of the state of the {}", side(a)),
        3 => format!("the bytes of page {b} of the {}", side(a)),
        4 => format!("an object in the segment: offset and type, number {b}"),
        5 => format!("word {b} of the state of object {a}"),
        6 => format!("what reference {b} of object {a} names"),
        7 => "bytes moved".into(),
        8 => format!("how many calls the {} has made", side(a)),
        9 => format!("how many objects of type {b} there are afterwards"),
        _ => "?".into(),
    }
}

fn side(n: u32) -> &'static str {
    if n == 0 {
        "client"
    } else {
        "server"
    }
}

/// A hash of a thread's state, in which the play's deadline counts as [`LATER`].
fn hash(seed: u64, thread: &Parts, deadline: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed;
    for (i, word) in thread.words() {
        let word = if word == deadline { LATER } else { word };
        // The FPU's state does not change during a play.
        if i < THREAD_WORDS {
            hash = (hash ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(11);
        }
    }
    hash
}

/// Runs plays.
pub struct Runner {
    pub fixture: Fixture,
    pub probe: Probe,
    parts: Vec<Parts>,
    again: Parts,
    /// A slot in which [`CutKind::Elsewhere`] creates objects.
    elsewhere: u64,
    vacant: Vec<Parts>,
    dead: [bool; 2],
    bodiless: [bool; 2],
    /// Objects of the fixture that have no body now.
    bodiless_objects: Vec<u64>,
    armed: Option<(When, CutKind)>,
    pub cuts: u64,
    pub longest_stop: u64,
    pub seen: BTreeSet<(u64, u64)>,
    /// The cuts that the present call has had: their kind, and a hash of both victims' states.
    cut_states: BTreeSet<(u8, u64)>,
    pub distinct: u64,
    /// See [`Sum::known`].
    pub left_out: u64,
    /// The site of the last cut.
    cut_at: u64,
    /// See [`Sum::redone`].
    pub redone: (u64, u64),
    /// Cuts at instants at which a victim had been preempted in the kernel.
    pub in_kernel: u64,
    pub sites: BTreeSet<u64>,
    roles: u64,
    /// The deadline of the play that runs.
    deadline: u64,
    /// The manager's `mutex_trylock` failed, because a victim whose `cond_wait` returned spuriously (rule A8)
    /// has the mutex; [`Act::Unlock`] then does nothing.
    refused: bool,
    /// The pager is stopped.
    keeper_stopped: bool,
    /// An object has been taken apart and not yet been made again.
    taken_apart: bool,
    /// How many fixtures have been abandoned after failures.
    replaced: u32,
    /// The call whose first play has had an extra run that was not compared; see [`Runner::play`].
    warm: Option<&'static str>,
}

impl Runner {
    pub fn new(fixture: Fixture, probe: Probe) -> Result<Self, Failure> {
        let mut parts = Vec::new();
        for _ in 0..48 {
            parts.push(Parts::new()?);
        }
        let elsewhere = rt::slots::allocate(1).ok_or("no slot")?;
        Ok(Runner {
            fixture,
            probe,
            parts,
            again: Parts::new()?,
            elsewhere,
            vacant: (0..4).map(|_| Parts::new()).collect::<Result<_, _>>()?,
            dead: [false; 2],
            bodiless: [false; 2],
            bodiless_objects: Vec::new(),
            armed: None,
            cuts: 0,
            longest_stop: 0,
            seen: BTreeSet::new(),
            cut_states: BTreeSet::new(),
            left_out: 0,
            in_kernel: 0,
            redone: (0, 0),
            cut_at: 0,
            distinct: 0,
            sites: BTreeSet::new(),
            roles: 1 << CLIENT | 1 << SERVER | 1 << KEEPER,
            deadline: 0,
            refused: false,
            keeper_stopped: false,
            taken_apart: false,
            replaced: 0,
            warm: None,
        })
    }

    fn thread(&self, role: u64) -> u64 {
        match role {
            0 | 1 => self.fixture.victims[role as usize].thread.handle(),
            _ => self.fixture.keeper.thread.handle(),
        }
    }

    /// Makes a new fixture after a failure, because the state of the old one is unknown.
    fn replace_fixture(&mut self) -> Result<(), Mismatch> {
        self.replaced += 1;
        // The threads of the old fixture must not run on. A thread without a body does not run anyway.
        for side in [CLIENT, SERVER] {
            if !self.taken_apart && !self.dead[side] && !self.bodiless[side] {
                let _ = self.fixture.victims[side].thread.stop();
            }
        }
        let new = || -> Result<Runner, Failure> {
            let fixture = self.fixture.another()?;
            Runner::new(fixture, self.probe)
        };
        let new = new().map_err(|why| Mismatch {
            cut: String::new(),
            why: why.during("after a failure there is no new fixture"),
        })?;
        let old = core::mem::replace(self, new);
        (self.cuts, self.longest_stop, self.distinct) = (old.cuts, old.longest_stop, old.distinct);
        (self.left_out, self.redone, self.replaced) = (old.left_out, old.redone, old.replaced);
        self.in_kernel = old.in_kernel;
        (self.seen, self.sites) = (old.seen.clone(), old.sites.clone());
        // The old fixture is not dropped, because objects without a body cannot be destroyed in order.
        core::mem::forget(old);
        Ok(())
    }

    // ---- running a play

    fn set_up(&mut self, play: &Play) -> Result<u64, Failure> {
        for side in [CLIENT, SERVER] {
            if core::mem::take(&mut self.dead[side]) {
                let victim = &self.fixture.victims[side];
                victim.thread.create().must("create")?;
                victim
                    .thread
                    .reference_into(*victim.reference)
                    .must("a reference")?;
                victim
                    .thread
                    .client_end_into(*victim.ends[CLIENT])
                    .must("an end")?;
                victim
                    .thread
                    .server_end_into(*victim.ends[SERVER])
                    .must("an end")?;
            }
        }
        for victim in &self.fixture.victims {
            victim.thread.stop().must("stop")?;
        }
        if core::mem::take(&mut self.keeper_stopped) {
            self.fixture.keeper.thread.resume().must("resume")?;
        }
        for side in [CLIENT, SERVER] {
            self.fixture.set_keeper(side, false, None)?;
        }
        self.fixture.pager.supplies_nothing.store(false, Relaxed);
        self.fixture.clear()?;
        self.bodiless_objects.clear();
        self.refused = false;
        self.fixture.pages(0)?;
        for s in [CLIENT, SERVER] {
            for page in PAGES {
                if play.used & page.bit(s) != 0
                    && !matches!(page, Page::Handles | Page::References | Page::Fresh)
                {
                    self.fill(s, page);
                }
            }
        }
        let now = rt::time::now();
        let near = play.acts.contains(&Act::WaitForDeadline);
        let deadline = now + if near { LATER } else { 1_000_000 * LATER };
        self.deadline = deadline;
        let registers = |steps: &[Step]| -> Vec<IpcRegs> {
            let at = |step: &Step| {
                let mut r = step.regs;
                if step.deadline {
                    for register in [&mut r.rdi, &mut r.rdx, &mut r.rbp] {
                        if *register == LATER {
                            *register = deadline;
                        }
                    }
                }
                r
            };
            steps.iter().map(at).collect()
        };
        let steps = [
            registers(&play.steps[CLIENT]),
            registers(&play.steps[SERVER]),
        ];
        self.fixture
            .prepare([&steps[CLIENT], &steps[SERVER]], play.again, play.ends)?;
        let mut made = 0;
        for precondition in &play.preconditions {
            self.establish(*precondition, &mut made)?;
        }
        self.fixture.pages(play.absent)?;
        Ok(deadline)
    }

    fn fill(&self, side: usize, page: Page) {
        let s = &self.fixture;
        // Pages that are only read are filled once.
        let written = matches!(page, Page::State | Page::Receive | Page::ReceiveMore);
        if written {
            s.zero(side, page);
        } else if s.word(side, page, 0) != 0 {
            return;
        }
        if matches!(page, Page::Send | Page::SendMore) {
            for i in 0..512 {
                let word = (side as u64 * 2 + page as u64) << 32 | (i * 0x1_0001);
                s.set_word(side, page, i, word);
            }
        }
        let list = |words: &[u64]| {
            for (i, word) in words.iter().enumerate() {
                s.set_word(side, page, i as u64, *word);
            }
        };
        match page {
            Page::SendList => list(&[
                Fixture::victim_address(side, Page::Send, 6000),
                500,
                Fixture::victim_address(side, Page::Send, 100),
                40,
                // From here on: the segments of long messages.
                Fixture::victim_address(side, Page::Send, 0),
                2 * PAGE_SIZE,
                Fixture::victim_address(side, Page::Send, 0),
                2 * PAGE_SIZE,
            ]),
            Page::ReceiveList => list(&[
                Fixture::victim_address(side, Page::Receive, 4300),
                3800,
                Fixture::victim_address(side, Page::Receive, 0),
                2 * PAGE_SIZE,
                Fixture::victim_address(side, Page::Receive, 0),
                2 * PAGE_SIZE,
                Fixture::victim_address(side, Page::Receive, 0),
                2 * PAGE_SIZE,
            ]),
            _ => {}
        }
    }

    fn establish(&mut self, precondition: Precondition, made: &mut u32) -> Result<(), Failure> {
        let slot = |fixture: &Fixture, side, ty: Type| fixture.slot(side, Page::Handles, ty as u64);
        match precondition {
            Precondition::Object(side, ty) => self.fixture.object(side, ty, made),
            Precondition::NullReference(side, page, number) => {
                self.fixture.null_reference(side, page, number)
            }
            Precondition::Authority(side) => self.fixture.authority(side),
            Precondition::StateOf(side, ty) => {
                let parts = &mut self.again;
                parts.get(ty, slot(&self.fixture, side, ty))?;
                for (i, word) in parts.state.0.iter().enumerate() {
                    self.fixture.set_word(side, Page::State, i as u64, *word);
                }
                Ok(())
            }
            Precondition::Excepted(side) => self.fixture.excepted(side),
            Precondition::Locked(side) => {
                ok(sys::mutex_lock(slot(&self.fixture, side, Type::Mutex))).must("lock")
            }
            Precondition::Kept(side, ty) => {
                let handle = slot(&self.fixture, side, ty);
                let kept = self.fixture.slot(side, Page::Handles, KEPT);
                self.bodiless_objects.push(handle);
                ok(on(ty, Common::Destroy, [handle, kept, 0, 0, 0])).must("destroy")
            }
            Precondition::Vacant(side, ty) => {
                let handle = slot(&self.fixture, side, ty);
                self.bodiless_objects.push(handle);
                let parts = &mut self.vacant[0];
                parts.get(ty, handle)?;
                parts.destroy()
            }
            Precondition::VacantVictim(side) => {
                self.bodiless[side] = true;
                let handle = self.fixture.victims[side].thread.handle();
                let parts = &mut self.vacant[1];
                parts.get(Type::Thread, handle)?;
                parts.destroy()
            }
            Precondition::SpaceKeeper { foreign } => {
                self.fixture.object(SERVER, Type::Port, made)?;
                let port = RefAt(self.fixture.slot(
                    SERVER,
                    Page::Handles,
                    REFERENCES + Type::Port as u64,
                ));
                self.fixture.set_keeper(CLIENT, foreign, Some(port))
            }
            Precondition::KeeperSuppliesNothing => {
                self.fixture.pager.supplies_nothing.store(true, Relaxed);
                Ok(())
            }
            Precondition::KeeperStopped => {
                self.keeper_stopped = true;
                self.fixture.keeper.thread.stop().must("stop")
            }
            Precondition::Line => {
                let thread = self.fixture.victims[CLIENT].reference.handle();
                let authority = self.fixture.device_authority();
                let code = sys::device_attach_interrupt(authority.0, thread, INTERRUPT_LINE);
                ok(code).must("an interrupt line")
            }
            Precondition::IoPorts => {
                let place = REFERENCES + Type::Space as u64;
                let space = self.fixture.slot(CLIENT, Page::Handles, place);
                let authority = self.fixture.device_authority();
                let code = sys::device_grant_ports(authority.0, space, IO_PORTS.0, IO_PORTS.1);
                ok(code).must("I/O ports")
            }
            Precondition::Service => {
                self.fixture.object(SERVER, Type::Port, made)?;
                self.fixture.null_reference(
                    CLIENT,
                    Page::Handles,
                    REFERENCES + Type::Port as u64,
                )?;
                let reference =
                    self.fixture
                        .slot(CLIENT, Page::Handles, REFERENCES + Type::Port as u64);
                let port = slot(&self.fixture, SERVER, Type::Port);
                ok(on(
                    Type::Port,
                    Common::Reference,
                    [port, reference, 0, 0, 0],
                ))
                .must("a reference")
            }
            Precondition::OnlyReference => {
                let port = slot(&self.fixture, SERVER, Type::Port);
                let reference = |ty: Type| {
                    let number = REFERENCES + ty as u64;
                    self.fixture.slot(SERVER, Page::Handles, number)
                };
                let state = PortState {
                    alias: 77,
                    flags: port_flags::NOTIFY_UNREFERENCED,
                };
                ok(sys::port_set_state(port, &state, reference(Type::Portset)))
                    .must("a port's state")?;
                let own = reference(Type::Port);
                self.bodiless_objects.push(own);
                ok(sys::reference_destroy(own, 0)).must("destroy")
            }
            Precondition::Messages => {
                for side in [CLIENT, SERVER] {
                    self.fixture.object(side, Type::Mutex, made)?;
                    for n in 0..2 {
                        let at = self.fixture.slot(side, Page::References, SENT + n);
                        ok(sys::reference_create(at, 0)).must("a reference")?;
                        let mutex = slot(&self.fixture, side, Type::Mutex);
                        ok(on(Type::Mutex, Common::Reference, [mutex, at, 0, 0, 0]))
                            .must("a reference")?;
                    }
                    for n in 0..3 {
                        self.fixture
                            .null_reference(side, Page::References, RECEIVED + n)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn act(&mut self, act: Act, deadline: u64) -> Result<(), Failure> {
        let slot = |fixture: &Fixture, side, ty: Type| fixture.slot(side, Page::Handles, ty as u64);
        match act {
            Act::Start(side) => self.fixture.victims[side].thread.resume().must("start"),
            Act::Restore(..) => {
                let parts = &mut self.vacant[0];
                let handle = parts.handle;
                parts.create(None)?;
                parts.set(&mut self.again)?;
                self.bodiless_objects.retain(|h| *h != handle);
                Ok(())
            }
            Act::RestoreVictim(side) => {
                let parts = &mut self.vacant[1];
                parts.create(None)?;
                self.bodiless[side] = false;
                parts.set_late(&mut self.again)
            }
            Act::Unlock(_) if core::mem::take(&mut self.refused) => Ok(()),
            Act::Unlock(side) => {
                ok(sys::mutex_unlock(slot(&self.fixture, side, Type::Mutex))).must("unlock")
            }
            Act::Lock(side) => {
                let code = sys::mutex_trylock(slot(&self.fixture, side, Type::Mutex));
                self.refused = code == Code::WouldBlock;
                if self.refused {
                    return Ok(());
                }
                ok(code).must("lock")
            }
            Act::Raise => {
                self.probe.raise(INTERRUPT_LINE);
                Ok(())
            }
            Act::PrepareReply(length) => {
                self.fixture.prepare_reply(length);
                Ok(())
            }
            Act::PrepareShortReply(length) => {
                self.fixture.victims[SERVER].prepare_reply(length);
                Ok(())
            }
            Act::ResumeKeeper => {
                self.keeper_stopped = false;
                self.fixture.keeper.thread.resume().must("resume")
            }
            Act::Signal(side) => {
                ok(sys::cond_signal(slot(&self.fixture, side, Type::Cond))).must("signal")
            }
            Act::Interrupt(side) => ok(sys::thread_interrupt(
                self.fixture.victims[side].reference.handle(),
            ))
            .must("interrupt"),
            Act::WaitForDeadline => {
                self.settle(Some(deadline + 10_000))?;
                Ok(())
            }
            Act::Stop(side) => {
                let thread = self.fixture.victims[side].thread.at();
                thread.stop().must("stop")?;
                self.settle(None)?;
                thread.resume().must("resume")
            }
            Act::Kill(side) => {
                self.dead[side] = true;
                self.fixture.victims[side].thread.destroy().must("destroy")
            }
        }
    }

    /// Waits until no victim can go on, or until a time, and makes a cut each time the probe fires meanwhile.
    fn settle(&mut self, until: Option<u64>) -> Result<(), Failure> {
        let patience = rt::time::now() + PATIENCE;
        loop {
            self.fixture.ask_whether_idle();
            let code = sys::thread_wait_interrupt_until(until.unwrap_or(patience));
            if let Some((when, kind)) = self.armed {
                let counted = self.probe.read();
                if kind == CutKind::Here && self.cut_at != 0 {
                    self.redone = self.redone.max((counted.again, self.cut_at));
                }
                if let Some(fired) = counted.fired {
                    // The calls of the keeper itself are not cut.
                    self.cut_at = if fired.role < 2 { fired.site } else { 0 };
                    self.armed = None;
                    self.cut(fired, kind, when)?;
                    if when == When::Sweep {
                        self.armed = Some((when, kind));
                        self.probe.sweep(self.roles);
                    }
                    continue;
                }
            }
            match until {
                Some(_) if code == Code::TimedOut => return Ok(()),
                None if self.fixture.is_idle() => return Ok(()),
                None if rt::time::now() > patience => {
                    crate::fail!("never comes to rest: {}", self.doing());
                }
                _ => {}
            }
        }
    }

    /// What the victims are doing, for the report of a failure.
    fn doing(&mut self) -> String {
        let mut words = String::new();
        for side in [CLIENT, SERVER] {
            if self.dead[side] || self.bodiless[side] {
                continue;
            }
            let s = self.fixture.victims[side]
                .thread
                .get_state(0, 0, 0)
                .unwrap_or_default();
            words += &format!(
                "{}: call {} at {:#x} waiting {} stages {} {} exception {} at {:#x}; ",
                self::side(side as u32),
                s.registers.call() as u8,
                s.registers.pc(),
                s.waiting,
                s.client_stage,
                s.server_stage,
                s.exception,
                s.exception_address
            );
        }
        words
    }

    /// Runs the play once, with cuts if `arm` says so. Returns the outcome and how many sites were passed.
    fn once(
        &mut self,
        play: &Play,
        arm: Option<(When, CutKind)>,
    ) -> Result<(Outcome, u64), Failure> {
        let deadline = self.set_up(play)?;
        self.probe.set(0, play.general);
        self.armed = arm;
        self.cut_at = 0;
        match arm {
            Some((When::Sweep, _)) => {
                self.probe.fresh();
                self.probe.sweep(self.roles);
            }
            Some((When::At(n), _)) => self.probe.arm(n, self.roles),
            None => self.probe.arm(0, self.roles),
        }
        for act in &play.acts {
            self.act(*act, deadline)?;
            self.settle(None)?;
        }
        let counted = self.probe.read();
        self.probe.arm(0, 0);
        self.armed = None;
        let mut outcome = self.outcome(play, deadline)?;
        if !play.twice {
            outcome.push((7 << 24, counted.moved));
        }
        Ok((outcome, counted.passed))
    }

    /// Runs the play once, and cuts both victims `n` nanoseconds (in this machine, instructions) after the
    /// manager began to wait behind an act. `None` if no thread was ready any more by then.
    fn once_at(&mut self, play: &Play, act: usize, n: u64) -> Result<Option<Outcome>, Failure> {
        let deadline = self.set_up(play)?;
        self.probe.set(0, play.general);
        self.probe.arm(0, 0);
        for (i, one) in play.acts.iter().enumerate() {
            self.act(*one, deadline)?;
            if i == act {
                self.fixture.ask_whether_idle();
                let preempted = self.probe.read().preempted;
                sys::thread_wait_interrupt_until(rt::time::now() + n);
                if self.fixture.is_idle() {
                    return Ok(None);
                }
                let fired = Fired {
                    site: self.probe.read().preempted - preempted,
                    role: CLIENT as u64,
                };
                self.in_kernel += u64::from(fired.site != 0);
                if !self.dead[CLIENT] && !self.bodiless[CLIENT] {
                    self.cut(fired, CutKind::Both, When::At(0))?;
                }
            }
            self.settle(None)?;
        }
        let mut outcome = self.outcome(play, deadline)?;
        if !play.twice {
            outcome.push((7 << 24, self.probe.read().moved));
        }
        Ok(Some(outcome))
    }

    /// Runs the play undisturbed, and then with a cut after every instruction; or only at this instant
    /// ([`ACT`]).
    pub fn instants(&mut self, play: &Play, only: Option<u64>) -> Result<(), Mismatch> {
        let undisturbed = |why: Failure| Mismatch {
            cut: String::new(),
            why: why.during("undisturbed"),
        };
        self.once(play, None).map_err(undisturbed)?;
        let (expected, _) = self.once(play, None).map_err(undisturbed)?;
        let census = self.probe.census();
        let acts = match only {
            Some(instant) => (instant >> ACT) as usize..(instant >> ACT) as usize + 1,
            None => 0..play.acts.len(),
        };
        for act in acts {
            let first = only.map_or(0, |instant| instant & ((1 << ACT) - 1));
            for n in first..1 << ACT {
                let wrong = |why| Mismatch {
                    cut: format!("@instant:{}", (act as u64) << ACT | n),
                    why,
                };
                let outcome = match self.once_at(play, act, n) {
                    Ok(Some(outcome)) => self.compare(&expected, &outcome, &census),
                    Ok(None) => break,
                    Err(why) => Err(why),
                };
                if let Err(why) = outcome {
                    let wrong = wrong(why);
                    self.replace_fixture()?;
                    return Err(wrong);
                }
                if only.is_some() {
                    break;
                }
            }
        }
        Ok(())
    }

    // ---- outcomes

    fn outcome(&mut self, play: &Play, deadline: u64) -> Result<Outcome, Failure> {
        let mut all = Outcome::new();
        for side in [CLIENT, SERVER] {
            if self.dead[side] || self.bodiless[side] {
                continue;
            }
            for page in [Page::State, Page::Receive, Page::ReceiveMore] {
                if play.used & page.bit(side) != 0 {
                    let what = 3 << 24 | (side as u32) << 12 | page as u32;
                    all.push((what, self.fixture.hash(side, page)));
                }
            }
            if play.twice && side == SERVER {
                continue;
            }
            let results = self.fixture.victims[side].results();
            let s = side as u32;
            all.push((8 << 24 | s << 12, results.len() as u64));
            let finished = results.len() == play.steps[side].len();
            for (n, r) in results.iter().enumerate() {
                let step = &play.steps[side][n];
                let clock = step.regs.rax as u8 == Call::ClockGet as u8;
                let registers = [
                    r.rax, r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9, r.rbx, r.rbp, r.r12, r.r13,
                    r.r14, r.r15,
                ];
                for (i, word) in registers.into_iter().enumerate() {
                    let word = if step.deadline && word == deadline {
                        LATER
                    } else {
                        word
                    };
                    let word = if clock && i == 1 { 0 } else { word };
                    all.push((1 << 24 | (s << 8 | n as u32) << 12 | i as u32, word));
                }
            }
            let handle = self.fixture.victims[side].thread.handle();
            self.again.get(Type::Thread, handle)?;
            let w = &self.again.state.0;
            // Of a victim that has made all its calls the registers do not count, of others they do.
            let from = if finished { 20 } else { 0 };
            for (i, &word) in w.iter().enumerate().take(THREAD_WORDS - 1).skip(from) {
                let word = if word == deadline { LATER } else { word };
                all.push((2 << 24 | s << 12 | i as u32, word));
            }
        }
        self.graph(&mut all)?;
        Ok(all)
    }

    /// Adds the objects in the segment, their states, and what references name.
    fn graph(&mut self, all: &mut Outcome) -> Result<(), Failure> {
        let objects = self.fixture.objects();
        self.find_bodiless(&objects);
        let places: Vec<u64> = objects
            .iter()
            .filter(|(_, ty)| *ty == Type::Reference)
            .map(|(offset, _)| self.fixture.handle_at(*offset))
            .collect();
        for (n, &(offset, ty)) in objects.iter().enumerate() {
            let n = n as u32 & 0xfff;
            all.push((4 << 24 | n, offset << 8 | ty as u64));
            let handle = self.fixture.handle_at(offset);
            if self.bodiless_objects.contains(&handle) {
                continue;
            }
            self.again.get(ty, handle)?;
            all.extend(
                self.again
                    .words()
                    .map(|(i, word)| (5 << 24 | n << 12 | i as u32, word)),
            );
            for i in 0..3 {
                let Some(reference) = self.again.reference(i) else {
                    break;
                };
                let kind = reference.kind();
                let mut names = (kind as u64) << 8;
                if let Some(ty) = Type::from_raw(kind as u64) {
                    // Whether it is the client's object of that type, or the server's.
                    for side in [CLIENT, SERVER] {
                        let named = self
                            .fixture
                            .slot(side, Page::Handles, REFERENCES + ty as u64);
                        if places.contains(&named) && RefAt(named).same_as(reference) {
                            names |= 1 + side as u64;
                        }
                    }
                }
                all.push((6 << 24 | n << 12 | i as u32, names));
            }
        }
        Ok(())
    }

    /// Updates which objects have no body: a call of the play may have destroyed one and kept its identity.
    fn find_bodiless(&mut self, objects: &[(u64, Type)]) {
        for side in [CLIENT] {
            let kept = self.fixture.slot(side, Page::Handles, KEPT);
            let here = objects.iter().any(|&(offset, ty)| {
                self.fixture.handle_at(offset) == kept && ty == Type::Reference
            });
            if !here {
                continue;
            }
            let kind = RefAt(kept).kind();
            if let Some(ty) = Type::from_raw(kind as u64) {
                let handle = self.fixture.slot(side, Page::Handles, ty as u64);
                if !self.bodiless_objects.contains(&handle) {
                    self.bodiless_objects.push(handle);
                }
            } else {
                // The object has a body again.
                let vacant = self.vacant[0].handle;
                self.bodiless_objects.retain(|h| *h == vacant);
            }
        }
    }

    // ---- cuts

    fn cut(&mut self, fired: Fired, kind: CutKind, when: When) -> Result<(), Failure> {
        let thread = self.thread(fired.role);
        self.taken_apart = true;
        // The instructions of the probe itself, and of reading it, are subtracted.
        let own = [self.probe.read().own, self.probe.read().own];
        let took = self.parts[0].stop(thread)?;
        let probe = self.probe.read().own - own[1] - (own[1] - own[0]);
        self.longest_stop = self.longest_stop.max(took.saturating_sub(probe));
        let state = self.count_state(fired);
        // `Here` is made always, the other kinds once in each state of both victims.
        let other = fired.role ^ 1;
        let whole = match self.parts[1..].first_mut() {
            Some(parts)
                if other < 2 && !self.dead[other as usize] && !self.bodiless[other as usize] =>
            {
                let handle = self.fixture.victims[other as usize].thread.handle();
                parts.get(Type::Thread, handle)?;
                hash(state, parts, self.deadline)
            }
            _ => state,
        };
        let new = self
            .cut_states
            .insert((kind as u8, whole ^ fired.site.rotate_left(17)));
        if when == When::Sweep && kind != CutKind::Here && !new {
            self.left_out += 1;
            self.taken_apart = false;
            return ok(sys::thread_resume(thread)).must("resume");
        }
        self.cuts += 1;
        match kind {
            CutKind::Here => {
                self.parts[0].destroy()?;
                self.parts[0].create(None)?;
                self.parts[0].set(&mut self.again)?;
            }
            CutKind::Elsewhere => {
                self.parts[0].destroy()?;
                self.parts[0].create(Some(self.elsewhere))?;
                self.parts[0].set(&mut self.again)?;
            }
            CutKind::Slow => {
                self.parts[0].destroy()?;
                let armed = self.armed.take();
                let role = fired.role as usize;
                if role < 2 {
                    self.bodiless[role] = true;
                }
                self.settle(None)?;
                if role < 2 {
                    self.bodiless[role] = false;
                }
                self.armed = armed;
                self.parts[0].create(None)?;
                self.parts[0].set_late(&mut self.again)?;
            }
            CutKind::Both | CutKind::Objects | CutKind::All => {
                let mut all: Vec<(Type, u64)> = Vec::new();
                if kind != CutKind::Objects {
                    for role in 0..2 {
                        let other = self.thread(role);
                        if other != thread
                            && !self.dead[role as usize]
                            && !self.bodiless[role as usize]
                        {
                            all.push((Type::Thread, other));
                        }
                    }
                }
                let threads = all.len();
                if kind != CutKind::Both {
                    let objects = self.fixture.objects();
                    self.find_bodiless(&objects);
                    all.extend(self.fixture.surroundings());
                    let kept = self.fixture.slot(CLIENT, Page::Handles, KEPT);
                    for (offset, ty) in objects {
                        let handle = self.fixture.handle_at(offset);
                        if handle != kept && !self.bodiless_objects.contains(&handle) {
                            all.push((ty, handle));
                        }
                    }
                }
                if kind == CutKind::Objects {
                    for (ty, handle) in all {
                        let parts = &mut self.parts[1];
                        parts.get(ty, handle)?;
                        parts.destroy()?;
                        parts.create(None)?;
                        parts.set(&mut self.again)?;
                    }
                } else {
                    self.take_all_apart(&all, threads)?;
                }
            }
        }
        self.taken_apart = false;
        ok(sys::thread_resume(thread)).must("resume")
    }

    /// Takes the stopped thread in `parts[0]` and all these objects apart, and makes them again. The first
    /// `threads` of the objects are threads.
    fn take_all_apart(&mut self, all: &[(Type, u64)], threads: usize) -> Result<(), Failure> {
        if all.len() + 1 > self.parts.len() {
            return Err("more objects than a cut has room for".into());
        }
        for (n, (parts, &(ty, handle))) in self.parts[1..].iter_mut().zip(all).enumerate() {
            // Threads in the segment are stopped or vacant already.
            if n < threads {
                ok(sys::thread_stop(handle)).must("stop")?;
            }
            parts.get(ty, handle)?;
        }
        let count = all.len() + 1;
        for parts in &self.parts[..count] {
            parts.destroy()?;
        }
        for parts in &self.parts[..count] {
            parts.create(None)?;
        }
        // In reverse: objects that other states name come later in the list, and get their states first.
        for parts in self.parts[..count].iter_mut().rev() {
            parts.set(&mut self.again)?;
        }
        for parts in &self.parts[1..=threads] {
            parts.resume()?;
        }
        Ok(())
    }

    /// Counts the state that is cut, if it is new. Returns its hash.
    fn count_state(&mut self, fired: Fired) -> u64 {
        let hash = hash(fired.role, &self.parts[0], self.deadline);
        if self.seen.insert((fired.site, hash)) {
            self.distinct += 1;
        }
        self.sites.insert(fired.site);
        hash
    }

    /// Begins the plays of another call.
    pub fn begin(&mut self) {
        self.sites.clear();
        self.seen.clear();
        self.in_kernel = 0;
        self.cut_states.clear();
        self.redone = (0, 0);
    }

    // ---- all cuts of a play

    /// Runs the play undisturbed, then with each of these kinds of cuts in every state. Fails with the first
    /// mismatch. `only` makes one cut, at that site.
    pub fn play(
        &mut self,
        play: &Play,
        kinds: &[CutKind],
        only: Option<u64>,
    ) -> Result<(), Mismatch> {
        let undisturbed = |why: Failure| Mismatch {
            cut: String::new(),
            why: why.during("undisturbed"),
        };
        if self.warm != Some(play.subject()) {
            // An extra run that is not compared, for what happens only once, such as faults of the heap.
            self.once(play, None).map_err(undisturbed)?;
            self.warm = Some(play.subject());
        }
        let (expected, passed) = self.once(play, None).map_err(undisturbed)?;
        let census = self.probe.census();
        for &kind in kinds {
            let when = only.map_or(When::Sweep, When::At);
            let cuts = self.cuts;
            let Err(why) = self.compared(play, &expected, &census, when, kind) else {
                continue;
            };
            let word = format!("{kind:?}").to_lowercase();
            if let Some(n) = only {
                let cut = format!("@{word}:{n}");
                return Err(Mismatch { cut, why });
            }
            let made = self.cuts - cuts;
            // Finds which of the cuts it was, by one run with each of them alone, if there is memory for another
            // fixture.
            if self.replaced < REPLACEMENTS {
                self.replace_fixture()?;
                let (expected, _) = self.once(play, None).map_err(undisturbed)?;
                let census = self.probe.census();
                for n in 1..=passed {
                    if let Err(why) = self.compared(play, &expected, &census, When::At(n), kind) {
                        self.replace_fixture()?;
                        let cut = format!("@{word}:{n}");
                        return Err(Mismatch { cut, why });
                    }
                }
            }
            return Err(Mismatch {
                cut: format!("@{word}"),
                why: why.during(format_args!("after {made} cuts one after the other")),
            });
        }
        Ok(())
    }

    fn compared(
        &mut self,
        play: &Play,
        expected: &Outcome,
        census: &[u64; 9],
        when: When,
        kind: CutKind,
    ) -> Result<(), Failure> {
        match self.once(play, Some((when, kind))) {
            Ok((outcome, _)) => self.compare(expected, &outcome, census),
            Err(why) => {
                self.probe.arm(0, 0);
                self.armed = None;
                Err(why)
            }
        }
    }

    fn compare(
        &mut self,
        expected: &Outcome,
        outcome: &Outcome,
        census: &[u64; 9],
    ) -> Result<(), Failure> {
        let different = expected.iter().zip(outcome).find(|(a, b)| a != b);
        if let Some((a, b)) = different {
            crate::fail!("{} is {:#x} and not {:#x}", label(b.0), b.1, a.1);
        }
        if expected.len() != outcome.len() && !outcome.iter().zip(expected).all(|(a, b)| a == b) {
            return Err("another number of things".into());
        }
        let now = self.probe.census();
        match now.iter().zip(census).position(|(a, b)| a != b) {
            Some(i) => Err(Failure::new(format!(
                "{}: {} and not {}",
                label(9 << 24 | i as u32),
                now[i],
                census[i]
            ))),
            None => Ok(()),
        }
    }
}
