//! Runs the plays: once undisturbed, and then cut at every site that it passed, in every way. What
//! comes out must be the same.

use super::knife::Parts;
use super::plays::{Act, Play, Prop, Step, INTERRUPT_LINE, IO_PORTS, LATER};
use super::probe::{Fired, Probe};
use super::stage::{
    on, Page, Stage, CLIENT, KEEPER, KEPT, PAGES, RECEIVED, REFERENCES, SENT, SERVER,
};
use crate::harness::{ok, Failure, Must, DESTROY, REFERENCE};
use abi::state::{port_flags, PortState, THREAD_WORDS};
use abi::{Call, Code, Type, PAGE_SIZE};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use rt::obj::RefAt;
use rt::sys::{self, IpcRegs};

/// How a cut is made at the site where the probe has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The thread, made again where it was.
    Here,
    /// The thread, made elsewhere and moved back.
    Elsewhere,
    /// Both victims.
    Both,
    /// The thread; the others go on as far as they can while it has no body.
    Slow,
    /// Every other object, one after the other.
    Objects,
    /// Everything at once.
    All,
}

/// Where cuts are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At the n-th site that is passed, once.
    At(u64),
    /// At every site, in every state in which it is passed: once each, one after the other.
    Sweep,
}

/// All ways.
pub const WAYS: [Way; 6] = [
    Way::Here,
    Way::Elsewhere,
    Way::Both,
    Way::Slow,
    Way::Objects,
    Way::All,
];

/// Bits of an instant that say how long after an act it is; those above say which act.
const ACT: u32 = 24;

/// How many stages a machine has memory for.
const RENEWALS: u32 = 4;

/// How long a play may take, in nanoseconds. One that takes longer has failed.
const PATIENCE: u64 = 200_000_000;

/// The counts of the plays of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Distinct sites.
    pub sites: u64,
    /// Distinct states.
    pub distinct: u64,
    pub cuts: u64,
    pub mismatches: u64,
    /// Cuts that were not made, because the call had been cut in that state in that way before.
    pub known: u64,
    /// Most instructions that were done again, from the last progress to the site where it had been cut,
    /// when the thread had been made again where it was; and that site.
    pub redone: u64,
    pub redone_at: u64,
}

/// The outcome of a play: pairs of what a number stands for and the number.
type Outcome = Vec<(u32, u64)>;

/// What was wrong with a play, and behind an `@` which cut repeats it.
pub struct Wrong {
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
        4 => format!("an object of the stage: offset and type, number {b}"),
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

/// Tells states of threads apart.
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
    pub stage: Stage,
    pub probe: Probe,
    parts: Vec<Parts>,
    again: Parts,
    /// An empty place for an object.
    elsewhere: u64,
    vacant: Vec<Parts>,
    dead: [bool; 2],
    bodiless: [bool; 2],
    /// Objects of the stage that have no body now.
    without: Vec<u64>,
    armed: Option<(When, Way)>,
    pub cuts: u64,
    pub answer: u64,
    pub seen: BTreeSet<(u64, u64)>,
    /// In which states of both victims the present call has been cut in which way.
    known: BTreeSet<(u8, u64)>,
    pub distinct: u64,
    /// See [`Sum::known`].
    pub left_out: u64,
    /// The site of the last cut.
    cut_at: u64,
    /// See [`Sum::redone`].
    pub redone: (u64, u64),
    /// Cuts at instants at which a victim had been displaced in the kernel.
    pub in_kernel: u64,
    pub sites: BTreeSet<u64>,
    roles: u64,
    /// The deadline of the play that runs.
    deadline: u64,
    /// A victim whose `cond_wait` returned spuriously (rule A8) has the mutex that the manager wanted.
    refused: bool,
    /// The keeper of the segment is stopped.
    held: bool,
    /// An object has been taken apart and not yet been made again.
    apart: bool,
    /// How many stages have been abandoned after failures.
    renewed: u32,
    /// The call of which plays run. Its first play was run once before, not counted.
    warm: Option<&'static str>,
}

impl Runner {
    pub fn new(stage: Stage, probe: Probe) -> Result<Self, Failure> {
        let mut parts = Vec::new();
        for _ in 0..48 {
            parts.push(Parts::new()?);
        }
        let elsewhere = rt::slots::allocate(1).ok_or("no slot")?;
        Ok(Runner {
            stage,
            probe,
            parts,
            again: Parts::new()?,
            elsewhere,
            vacant: (0..4).map(|_| Parts::new()).collect::<Result<_, _>>()?,
            dead: [false; 2],
            bodiless: [false; 2],
            without: Vec::new(),
            armed: None,
            cuts: 0,
            answer: 0,
            seen: BTreeSet::new(),
            known: BTreeSet::new(),
            left_out: 0,
            in_kernel: 0,
            redone: (0, 0),
            cut_at: 0,
            distinct: 0,
            sites: BTreeSet::new(),
            roles: 1 << CLIENT | 1 << SERVER | 1 << KEEPER,
            deadline: 0,
            refused: false,
            held: false,
            apart: false,
            renewed: 0,
            warm: None,
        })
    }

    fn thread(&self, role: u64) -> u64 {
        match role {
            0 | 1 => self.stage.victims[role as usize].thread.handle(),
            _ => self.stage.keeper.thread.handle(),
        }
    }

    /// Leaves everything as it is after a failure, for a new stage: nobody knows what state the old
    /// one is in.
    fn renew(&mut self) -> Result<(), Wrong> {
        self.renewed += 1;
        // The threads of the old stage must not run on. A thread without a body does not run anyway.
        for side in [CLIENT, SERVER] {
            if !self.apart && !self.dead[side] && !self.bodiless[side] {
                let _ = self.stage.victims[side].thread.stop();
            }
        }
        let new = || -> Result<Runner, Failure> {
            let stage = self.stage.anew()?;
            Runner::new(stage, self.probe)
        };
        let new = new().map_err(|why| Wrong {
            cut: String::new(),
            why: why.during("after a failure there is no new stage"),
        })?;
        let old = core::mem::replace(self, new);
        (self.cuts, self.answer, self.distinct) = (old.cuts, old.answer, old.distinct);
        (self.left_out, self.redone, self.renewed) = (old.left_out, old.redone, old.renewed);
        self.in_kernel = old.in_kernel;
        (self.seen, self.sites) = (old.seen.clone(), old.sites.clone());
        // The old stage is not dropped: objects without a body cannot be destroyed in order.
        core::mem::forget(old);
        Ok(())
    }

    // ---- a play

    fn set_up(&mut self, play: &Play) -> Result<u64, Failure> {
        for side in [CLIENT, SERVER] {
            if core::mem::take(&mut self.dead[side]) {
                let victim = &self.stage.victims[side];
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
        for victim in &self.stage.victims {
            victim.thread.stop().must("stop")?;
        }
        if core::mem::take(&mut self.held) {
            self.stage.keeper.thread.resume().must("resume")?;
        }
        for side in [CLIENT, SERVER] {
            self.stage.govern(side, false, None)?;
        }
        self.stage.pager.deaf.store(false, Relaxed);
        self.stage.clear()?;
        self.without.clear();
        self.refused = false;
        self.stage.pages(0)?;
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
        let near = play.acts.contains(&Act::Until);
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
        self.stage
            .prepare([&steps[CLIENT], &steps[SERVER]], play.again, play.ends)?;
        let mut made = 0;
        for prop in &play.props {
            self.prop(*prop, &mut made)?;
        }
        self.stage.pages(play.absent)?;
        Ok(deadline)
    }

    fn fill(&self, side: usize, page: Page) {
        let s = &self.stage;
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
                Stage::user(side, Page::Send, 6000),
                500,
                Stage::user(side, Page::Send, 100),
                40,
                // Of long messages.
                Stage::user(side, Page::Send, 0),
                2 * PAGE_SIZE,
                Stage::user(side, Page::Send, 0),
                2 * PAGE_SIZE,
            ]),
            Page::ReceiveList => list(&[
                Stage::user(side, Page::Receive, 4300),
                3800,
                Stage::user(side, Page::Receive, 0),
                2 * PAGE_SIZE,
                Stage::user(side, Page::Receive, 0),
                2 * PAGE_SIZE,
                Stage::user(side, Page::Receive, 0),
                2 * PAGE_SIZE,
            ]),
            _ => {}
        }
    }

    fn prop(&mut self, prop: Prop, made: &mut u32) -> Result<(), Failure> {
        let slot = |stage: &Stage, side, ty: Type| stage.slot(side, Page::Handles, ty as u64);
        match prop {
            Prop::Object(side, ty) => self.stage.object(side, ty, made),
            Prop::Blank(side, page, number) => self.stage.blank(side, page, number),
            Prop::Authority(side) => self.stage.authority(side),
            Prop::StateOf(side, ty) => {
                let parts = &mut self.again;
                parts.get(ty, slot(&self.stage, side, ty))?;
                for (i, word) in parts.state.0.iter().enumerate() {
                    self.stage.set_word(side, Page::State, i as u64, *word);
                }
                Ok(())
            }
            Prop::Locked(side) => {
                ok(sys::mutex_lock(slot(&self.stage, side, Type::Mutex))).must("lock")
            }
            Prop::Kept(side, ty) => {
                let handle = slot(&self.stage, side, ty);
                let kept = self.stage.slot(side, Page::Handles, KEPT);
                self.without.push(handle);
                ok(on(ty, DESTROY, [handle, kept, 0, 0, 0])).must("destroy")
            }
            Prop::Vacant(side, ty) => {
                let handle = slot(&self.stage, side, ty);
                self.without.push(handle);
                let parts = &mut self.vacant[0];
                parts.get(ty, handle)?;
                parts.destroy()
            }
            Prop::VacantVictim(side) => {
                self.bodiless[side] = true;
                let handle = self.stage.victims[side].thread.handle();
                let parts = &mut self.vacant[1];
                parts.get(Type::Thread, handle)?;
                parts.destroy()
            }
            Prop::Keeper { foreign } => {
                self.stage.object(SERVER, Type::Port, made)?;
                let port = RefAt(self.stage.slot(
                    SERVER,
                    Page::Handles,
                    REFERENCES + Type::Port as u64,
                ));
                self.stage.govern(CLIENT, foreign, Some(port))
            }
            Prop::Deaf => {
                self.stage.pager.deaf.store(true, Relaxed);
                Ok(())
            }
            Prop::Held => {
                self.held = true;
                self.stage.keeper.thread.stop().must("stop")
            }
            Prop::Line => {
                let thread = self.stage.victims[CLIENT].reference.handle();
                let authority = self.stage.device_authority();
                let code = sys::device_attach_interrupt(authority.0, thread, INTERRUPT_LINE);
                ok(code).must("an interrupt line")
            }
            Prop::IoPorts => {
                let place = 16 + Type::Space as u64;
                let space = self.stage.slot(CLIENT, Page::Handles, place);
                let authority = self.stage.device_authority();
                let code = sys::device_grant_ports(authority.0, space, IO_PORTS.0, IO_PORTS.1);
                ok(code).must("I/O ports")
            }
            Prop::Service => {
                self.stage.object(SERVER, Type::Port, made)?;
                self.stage
                    .blank(CLIENT, Page::Handles, 16 + Type::Port as u64)?;
                let reference = self
                    .stage
                    .slot(CLIENT, Page::Handles, 16 + Type::Port as u64);
                let port = slot(&self.stage, SERVER, Type::Port);
                ok(on(Type::Port, REFERENCE, [port, reference, 0, 0, 0])).must("a reference")
            }
            Prop::Alone => {
                let port = slot(&self.stage, SERVER, Type::Port);
                let reference = |ty: Type| {
                    let number = REFERENCES + ty as u64;
                    self.stage.slot(SERVER, Page::Handles, number)
                };
                let state = PortState {
                    alias: 77,
                    flags: port_flags::NOTIFY_UNREFERENCED,
                };
                ok(sys::port_set_state(port, &state, reference(Type::Portset)))
                    .must("a port's state")?;
                let own = reference(Type::Port);
                self.without.push(own);
                ok(sys::reference_destroy(own, 0)).must("destroy")
            }
            Prop::Messages => {
                for side in [CLIENT, SERVER] {
                    self.stage.object(side, Type::Mutex, made)?;
                    for n in 0..2 {
                        let at = self.stage.slot(side, Page::References, SENT + n);
                        ok(sys::reference_create(at, 0)).must("a reference")?;
                        let mutex = slot(&self.stage, side, Type::Mutex);
                        ok(on(Type::Mutex, REFERENCE, [mutex, at, 0, 0, 0])).must("a reference")?;
                    }
                    for n in 0..3 {
                        self.stage.blank(side, Page::References, RECEIVED + n)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn act(&mut self, act: Act, deadline: u64) -> Result<(), Failure> {
        let slot = |stage: &Stage, side, ty: Type| stage.slot(side, Page::Handles, ty as u64);
        match act {
            Act::Start(side) => self.stage.victims[side].thread.resume().must("start"),
            Act::Restore(..) => {
                let parts = &mut self.vacant[0];
                let handle = parts.handle;
                parts.create(None)?;
                parts.set(&mut self.again)?;
                self.without.retain(|h| *h != handle);
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
                ok(sys::mutex_unlock(slot(&self.stage, side, Type::Mutex))).must("unlock")
            }
            Act::Lock(side) => {
                let code = sys::mutex_trylock(slot(&self.stage, side, Type::Mutex));
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
            Act::Answer(length) => {
                self.stage.answer(length);
                Ok(())
            }
            Act::AnswerShort(length) => {
                self.stage.victims[SERVER].answer(length);
                Ok(())
            }
            Act::Keeper => {
                self.held = false;
                self.stage.keeper.thread.resume().must("resume")
            }
            Act::Signal(side) => {
                ok(sys::cond_signal(slot(&self.stage, side, Type::Cond))).must("signal")
            }
            Act::Interrupt(side) => ok(sys::thread_interrupt(
                self.stage.victims[side].reference.handle(),
            ))
            .must("interrupt"),
            Act::Until => {
                self.settle(Some(deadline + 10_000))?;
                Ok(())
            }
            Act::Stop(side) => {
                let thread = self.stage.victims[side].thread.at();
                thread.stop().must("stop")?;
                self.settle(None)?;
                thread.resume().must("resume")
            }
            Act::Kill(side) => {
                self.dead[side] = true;
                self.stage.victims[side].thread.destroy().must("destroy")
            }
        }
    }

    /// Waits until no victim can go on, or for a deadline, and cuts where the probe fires meanwhile.
    fn settle(&mut self, until: Option<u64>) -> Result<(), Failure> {
        let patience = rt::time::now() + PATIENCE;
        loop {
            self.stage.ask();
            let code = sys::thread_wait_interrupt_until(until.unwrap_or(patience));
            if let Some((when, way)) = self.armed {
                let counted = self.probe.read();
                if way == Way::Here && self.cut_at != 0 {
                    self.redone = self.redone.max((counted.again, self.cut_at));
                }
                if let Some(fired) = counted.fired {
                    // The calls of the keeper itself are not cut.
                    self.cut_at = if fired.role < 2 { fired.site } else { 0 };
                    self.armed = None;
                    self.cut(fired, way, when)?;
                    if when == When::Sweep {
                        self.armed = Some((when, way));
                        self.probe.sweep(self.roles);
                    }
                    continue;
                }
            }
            match until {
                Some(_) if code == Code::TimedOut => return Ok(()),
                None if self.stage.quiet() => return Ok(()),
                None if rt::time::now() > patience => {
                    crate::fail!("never comes to rest: {}", self.doing());
                }
                _ => {}
            }
        }
    }

    /// What the victims are doing.
    fn doing(&mut self) -> String {
        let mut words = String::new();
        for side in [CLIENT, SERVER] {
            if self.dead[side] || self.bodiless[side] {
                continue;
            }
            let s = self.stage.victims[side]
                .thread
                .get_state(0, 0, 0)
                .unwrap_or_default();
            words += &format!(
                "{}: call {} rip {:#x} waiting {} stages {} {} exception {} at {:#x}; ",
                self::side(side as u32),
                s.registers.rax as u8,
                s.registers.rip,
                s.waiting,
                s.client_stage,
                s.server_stage,
                s.exception,
                s.exception_address
            );
        }
        words
    }

    /// Plays it. Returns the outcome.
    fn once(&mut self, play: &Play, arm: Option<(When, Way)>) -> Result<(Outcome, u64), Failure> {
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

    /// Plays it, and cuts both victims `n` nanoseconds, which are instructions, after the manager has let
    /// go behind an act. None if by then everything had come to rest.
    fn once_at(&mut self, play: &Play, act: usize, n: u64) -> Result<Option<Outcome>, Failure> {
        let deadline = self.set_up(play)?;
        self.probe.set(0, play.general);
        self.probe.arm(0, 0);
        for (i, one) in play.acts.iter().enumerate() {
            self.act(*one, deadline)?;
            if i == act {
                self.stage.ask();
                let displaced = self.probe.read().displaced;
                sys::thread_wait_interrupt_until(rt::time::now() + n);
                if self.stage.quiet() {
                    return Ok(None);
                }
                let fired = Fired {
                    site: self.probe.read().displaced - displaced,
                    role: CLIENT as u64,
                };
                self.in_kernel += u64::from(fired.site != 0);
                if !self.dead[CLIENT] && !self.bodiless[CLIENT] {
                    self.cut(fired, Way::Both, When::At(0))?;
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

    /// Plays undisturbed, and cut after every instruction of whoever runs; or only at this instant: the
    /// act, and how long after it, in a word.
    pub fn instants(&mut self, play: &Play, only: Option<u64>) -> Result<(), Wrong> {
        let undisturbed = |why: Failure| Wrong {
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
                let wrong = |why| Wrong {
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
                    self.renew()?;
                    return Err(wrong);
                }
                if only.is_some() {
                    break;
                }
            }
        }
        Ok(())
    }

    // ---- what comes out

    fn outcome(&mut self, play: &Play, deadline: u64) -> Result<Outcome, Failure> {
        let mut all = Outcome::new();
        for side in [CLIENT, SERVER] {
            if self.dead[side] || self.bodiless[side] {
                continue;
            }
            for page in [Page::State, Page::Receive, Page::ReceiveMore] {
                if play.used & page.bit(side) != 0 {
                    let what = 3 << 24 | (side as u32) << 12 | page as u32;
                    all.push((what, self.stage.hash(side, page)));
                }
            }
            if play.twice && side == SERVER {
                continue;
            }
            let results = self.stage.victims[side].results();
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
            let handle = self.stage.victims[side].thread.handle();
            self.again.get(Type::Thread, handle)?;
            let w = &self.again.state.0;
            // One that is through is where it always is then; of the others the whole frame counts.
            let from = if finished { 20 } else { 0 };
            for (i, &word) in w.iter().enumerate().take(THREAD_WORDS - 1).skip(from) {
                let word = if word == deadline { LATER } else { word };
                all.push((2 << 24 | s << 12 | i as u32, word));
            }
        }
        self.graph(&mut all)?;
        Ok(all)
    }

    /// The objects of the stage, their states, and what references name.
    fn graph(&mut self, all: &mut Outcome) -> Result<(), Failure> {
        let objects = self.stage.objects();
        self.find_vacant(&objects);
        let places: Vec<u64> = objects
            .iter()
            .filter(|(_, ty)| *ty == Type::Reference)
            .map(|(offset, _)| self.stage.found(*offset))
            .collect();
        for (n, &(offset, ty)) in objects.iter().enumerate() {
            let n = n as u32 & 0xfff;
            all.push((4 << 24 | n, offset << 8 | ty as u64));
            let handle = self.stage.found(offset);
            if self.without.contains(&handle) {
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
                        let fixture = self.stage.slot(side, Page::Handles, 16 + ty as u64);
                        if places.contains(&fixture) && RefAt(fixture).same_as(reference) {
                            names |= 1 + side as u64;
                        }
                    }
                }
                all.push((6 << 24 | n << 12 | i as u32, names));
            }
        }
        Ok(())
    }

    /// Notes which object has lost its body to a call of the play.
    fn find_vacant(&mut self, objects: &[(u64, Type)]) {
        for side in [CLIENT] {
            let kept = self.stage.slot(side, Page::Handles, KEPT);
            let here = objects
                .iter()
                .any(|&(offset, ty)| self.stage.found(offset) == kept && ty == Type::Reference);
            if !here {
                continue;
            }
            let kind = RefAt(kept).kind();
            if let Some(ty) = Type::from_raw(kind as u64) {
                let handle = self.stage.slot(side, Page::Handles, ty as u64);
                if !self.without.contains(&handle) {
                    self.without.push(handle);
                }
            } else {
                // The object has a body again.
                let vacant = self.vacant[0].handle;
                self.without.retain(|h| *h == vacant);
            }
        }
    }

    // ---- cuts

    fn cut(&mut self, fired: Fired, way: Way, when: When) -> Result<(), Failure> {
        let thread = self.thread(fired.role);
        self.apart = true;
        // The instructions of the probe itself, and of reading it, are subtracted.
        let own = [self.probe.read().own, self.probe.read().own];
        let took = self.parts[0].stop(thread)?;
        let probe = self.probe.read().own - own[1] - (own[1] - own[0]);
        self.answer = self.answer.max(took.saturating_sub(probe));
        let state = self.note(fired);
        // The plain way is made always, the others once in each state of both victims.
        let other = fired.role ^ 1;
        let whole = match self.parts[1..].first_mut() {
            Some(parts)
                if other < 2 && !self.dead[other as usize] && !self.bodiless[other as usize] =>
            {
                let handle = self.stage.victims[other as usize].thread.handle();
                parts.get(Type::Thread, handle)?;
                hash(state, parts, self.deadline)
            }
            _ => state,
        };
        let new = self
            .known
            .insert((way as u8, whole ^ fired.site.rotate_left(17)));
        if when == When::Sweep && way != Way::Here && !new {
            self.left_out += 1;
            self.apart = false;
            return ok(sys::thread_resume(thread)).must("resume");
        }
        self.cuts += 1;
        match way {
            Way::Here => {
                self.parts[0].destroy()?;
                self.parts[0].create(None)?;
                self.parts[0].set(&mut self.again)?;
            }
            Way::Elsewhere => {
                self.parts[0].destroy()?;
                self.parts[0].create(Some(self.elsewhere))?;
                self.parts[0].set(&mut self.again)?;
            }
            Way::Slow => {
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
            Way::Both | Way::Objects | Way::All => {
                let mut all: Vec<(Type, u64)> = Vec::new();
                if way != Way::Objects {
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
                if way != Way::Both {
                    let objects = self.stage.objects();
                    self.find_vacant(&objects);
                    all.extend(self.stage.fixtures());
                    let kept = self.stage.slot(CLIENT, Page::Handles, KEPT);
                    for (offset, ty) in objects {
                        let handle = self.stage.found(offset);
                        if handle != kept && !self.without.contains(&handle) {
                            all.push((ty, handle));
                        }
                    }
                }
                if way == Way::Objects {
                    for (ty, handle) in all {
                        let parts = &mut self.parts[1];
                        parts.get(ty, handle)?;
                        parts.destroy()?;
                        parts.create(None)?;
                        parts.set(&mut self.again)?;
                    }
                } else {
                    self.all(&all, threads)?;
                }
            }
        }
        self.apart = false;
        ok(sys::thread_resume(thread)).must("resume")
    }

    /// Takes everything apart, the thread in the first place already stopped, and makes it again.
    fn all(&mut self, all: &[(Type, u64)], threads: usize) -> Result<(), Failure> {
        if all.len() + 1 > self.parts.len() {
            return Err("more objects than the knife has room for".into());
        }
        for (n, (parts, &(ty, handle))) in self.parts[1..].iter_mut().zip(all).enumerate() {
            // The other threads of the stage are stopped or vacant already.
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
        // Objects that the states of others name get their states first.
        for parts in self.parts[..count].iter_mut().rev() {
            parts.set(&mut self.again)?;
        }
        for parts in &self.parts[1..=threads] {
            ok(sys::thread_resume(parts.handle)).must("resume")?;
        }
        Ok(())
    }

    /// Counts the state that is cut, if it is a new one, and says which it is.
    fn note(&mut self, fired: Fired) -> u64 {
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
        self.known.clear();
        self.redone = (0, 0);
    }

    // ---- all of a play

    /// Plays undisturbed, and cut in every state in each of these ways: the first thing that was
    /// wrong. `only` makes one cut, at that site.
    pub fn play(&mut self, play: &Play, ways: &[Way], only: Option<u64>) -> Result<(), Wrong> {
        let undisturbed = |why: Failure| Wrong {
            cut: String::new(),
            why: why.during("undisturbed"),
        };
        if self.warm != Some(play.subject()) {
            // A first run that does not count, because of what happens only once, such as faults of the heap.
            self.once(play, None).map_err(undisturbed)?;
            self.warm = Some(play.subject());
        }
        let (expected, passed) = self.once(play, None).map_err(undisturbed)?;
        let census = self.probe.census();
        for &way in ways {
            let when = only.map_or(When::Sweep, When::At);
            let cuts = self.cuts;
            let Err(why) = self.compared(play, &expected, &census, when, way) else {
                continue;
            };
            let word = format!("{way:?}").to_lowercase();
            if let Some(n) = only {
                let cut = format!("@{word}:{n}");
                return Err(Wrong { cut, why });
            }
            let made = self.cuts - cuts;
            // Which of the cuts it was: each of them on a stage of its own, as far as stages go.
            if self.renewed < RENEWALS {
                self.renew()?;
                let (expected, _) = self.once(play, None).map_err(undisturbed)?;
                let census = self.probe.census();
                for n in 1..=passed {
                    if let Err(why) = self.compared(play, &expected, &census, When::At(n), way) {
                        self.renew()?;
                        let cut = format!("@{word}:{n}");
                        return Err(Wrong { cut, why });
                    }
                }
            }
            return Err(Wrong {
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
        way: Way,
    ) -> Result<(), Failure> {
        match self.once(play, Some((when, way))) {
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
