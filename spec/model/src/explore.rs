//! The exploration: the model checker makes every move in every state.

use crate::key::key;
use crate::moves::{self, Move};
use crate::plant::Plant;
use crate::properties::{self, Reach, PROPERTIES};
use crate::scene::{line, role, Line, Role, Scene, CALL_BYTES, OUR_DATA, OUR_DATA_FRAME, SAVED};
use abi::{Code, Registers, PAGE_SIZE};
use spec::object::{Body, Target};
use spec::wait::{Status, Waiting};
use spec::{Event, Id, Seen, System};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

/// A state: a system, and what the properties must remember of how it came about.
#[derive(Clone, Debug)]
pub struct State {
    /// The system.
    pub system: System,
    /// The thread that each exception was delivered to: pairs of the thread that met it and the thread that has it.
    pub holders: Vec<(Id, Id)>,
    /// The property, of [`PROPERTIES`], that the last step broke. No move is made from such a state.
    pub broken: Option<usize>,
    /// Moves that led here.
    pub moves: usize,
    key: Vec<u64>,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.key.hash(hasher);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.key == other.key
    }
}

/// A scene that is explored, perhaps with a planted broken rule.
#[derive(Clone, Debug)]
pub struct Exploration {
    /// The scene.
    pub scene: Scene,
    /// The broken rule.
    pub plant: Option<Plant>,
    /// What the hostile threads may reach.
    pub reach: Reach,
    /// The most moves that may lead to a state.
    pub depth: usize,
}

impl Exploration {
    /// An exploration of the scene up to so many moves, with a broken rule or none.
    #[must_use]
    pub fn new(scene: Scene, plant: Option<Plant>, depth: usize) -> Exploration {
        let reach = Reach::closure(&scene.system, scene.theirs);
        Exploration { scene, plant, reach, depth }
    }

    fn state(
        &self,
        system: System,
        holders: Vec<(Id, Id)>,
        broken: Option<usize>,
        moves: usize,
    ) -> State {
        let mut words = key(&system, &self.scene.shelves);
        let place = |id: &Id| system.objects.get(id).map_or((0, 0), |o| o.place);
        for (thread, holder) in &holders {
            words.extend([place(thread).0, place(thread).1, place(holder).0, place(holder).1]);
        }
        words.push(broken.map_or(u64::MAX, |n| n as u64));
        State { system, holders, broken, moves, key: words }
    }

    /// What an event leads to for the running thread, by the specification or, if the planted rule changes this step,
    /// by that rule.
    pub(crate) fn advance(&self, system: &mut System, event: Event, seen: Seen) {
        let (now, who) = (system.now, system.running);
        match self.plant.filter(|plant| plant.changes(system, event, who)) {
            Some(plant) => plant.step(system, event, now, seen),
            None => system.step(event, now, seen),
        }
    }

    /// What a move leads to.
    #[must_use]
    pub fn step(&self, state: &State, next: &Move) -> Option<State> {
        let mut system = state.system.clone();
        let event = self.begin(&mut system, next)?;
        if let Some((event, who, late)) = event {
            system.running = who;
            let mut order: Vec<Id> = system.threads().map(|(id, _)| id).collect();
            if late {
                order.reverse();
            }
            let seen = Seen { order, ..Seen::default() };
            self.advance(&mut system, event, seen);
            // A hostile thread that does wrong and has no keeper stops: its manager might have stopped it as well.
            let halted = system.objects.contains_key(&who)
                && state.system.thread(who).stops < system.thread(who).stops
                && system.thread(who).exception.0 != state.system.thread(who).exception.0;
            if halted && role(&state.system.thread(who).registers) == Some(Role::Hostile) {
                return None;
            }
        }
        if self.plant != Some(Plant::ForgetsToWake) {
            settle(&mut system);
        }
        let holders = holders(state, &system);
        let broken = PROPERTIES.iter().position(|p| !p.judge_step(self, state, next, &system));
        self.forget(&mut system);
        Some(self.state(system, holders, broken, state.moves + 1))
    }

    /// Prepares the frame of the thread that moves, and returns the event that happens to it.
    #[allow(clippy::type_complexity)]
    fn begin(&self, system: &mut System, next: &Move) -> Option<Option<(Event, Id, bool)>> {
        match *next {
            Move::Call { who, ref registers, store, late } => {
                system.thread_mut(who).registers = **registers;
                if let Some((at, number)) = store {
                    let space = system.thread(who).space?;
                    self.write(system, space, at, &moves::content(number));
                }
                Some(Some((Event::Syscall, who, late)))
            }
            Move::Go { who, late } => {
                let registers = system.thread(who).registers;
                if registers.call() & 0xff != 0 {
                    return Some(Some((Event::Syscall, who, late)));
                }
                let Some(Role::Script(script, at)) = role(&registers) else {
                    return None;
                };
                let event = match self.scene.scripts[script].lines[at] {
                    Line::Call(call, parameters) => {
                        let mut loaded = Registers::starting(registers.pc(), registers.sp(), 0);
                        loaded.set_call(call as u64);
                        parameters.iter().for_each(|&(n, value)| loaded.set_parameter(n, value));
                        system.thread_mut(who).registers = loaded;
                        Event::Syscall
                    }
                    Line::Answer => {
                        let words = registers.words();
                        let [pc, sp, flags] = [words[4], words[5], words[6]];
                        let script = matches!(role(&at_pc(pc)), Some(Role::Script(..)));
                        let behind = if script { pc + 16 } else { pc };
                        let mut loaded = Registers::starting(registers.pc(), registers.sp(), 0);
                        loaded.set_words(&[behind, sp, flags, 0, 0, 0, 0, 0]);
                        loaded.set_call(abi::Call::ReplyShort as u64 | 32 << 8);
                        system.thread_mut(who).registers = loaded;
                        Event::Syscall
                    }
                    Line::Bad => Event::Processor { vector: 3, error: 0 },
                    _ => return None,
                };
                Some(Some((event, who, late)))
            }
            Move::Bad(who) => Some(Some((Event::Processor { vector: 3, error: 0 }, who, false))),
            Move::Restart(who) => {
                system.restart(who);
                Some(None)
            }
            Move::Timer => {
                system.now = 1;
                Some(Some((Event::Timer, system.threads().next()?.0, false)))
            }
        }
    }

    fn write(&self, system: &mut System, space: Id, at: u64, words: &[u64]) {
        let Some(mapping) = system.mapping_at(space, at) else { return };
        let m = system.mapping(mapping);
        let frame = (m.offset + at - m.start) / PAGE_SIZE;
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        system.poke(frame, at % PAGE_SIZE, &bytes);
    }

    /// Clears what nobody reads any more, so that systems that differ in nothing else are one state: the registers of
    /// free programs, results of scripts that are not kept, scratch memory, what a stopped thread waited for.
    fn forget(&self, system: &mut System) {
        let threads: Vec<Id> = system.threads().map(|(id, _)| id).collect();
        for id in threads {
            let t = system.thread(id);
            let mut new = t.registers;
            let finished = match at_finished(&t.registers) {
                Some(Role::Hostile | Role::Manager) => {
                    new = Registers::starting(t.registers.pc() - CALL_BYTES, 0, 0);
                    true
                }
                Some(Role::Script(script, at)) => {
                    new.set_pc(t.registers.pc() - CALL_BYTES + 16);
                    let code = t.registers.call() & 0xff;
                    let made = &self.scene.scripts[script];
                    if made.logs && matches!(made.lines.get(at), Some(Line::Call(..))) {
                        new.set_sp(t.registers.sp() << 5 | (code + 1));
                    }
                    self.resolve(script, &mut new, Some(code));
                    true
                }
                None => {
                    if let Some(Role::Script(script, _)) = role(&new) {
                        if new.call() & 0xff == 0 {
                            self.resolve(script, &mut new, None);
                        }
                    }
                    false
                }
            };
            let exception = if t.exception_delivered { t.exception } else { (0, 0) };
            let same = new == t.registers
                && exception == t.exception
                && t.waited == (Waiting::Nothing, 0)
                && !(finished && t.in_call);
            if !same {
                let t = system.thread_mut(id);
                (t.exception, t.waited, t.registers) = (exception, (Waiting::Nothing, 0), new);
                t.in_call &= !finished;
            }
        }
        // A saved state stays until it is restored; no thread but the manager has it.
        let offset = (SAVED - OUR_DATA) as usize;
        let saved = system
            .memory
            .get(&OUR_DATA_FRAME)
            .is_some_and(|page| page[offset..].iter().any(|&byte| byte != 0));
        system.memory.retain(|&frame, _| saved && frame == OUR_DATA_FRAME);
        if saved {
            system.poke(OUR_DATA_FRAME, 0, &vec![0; offset]);
        } else {
            for &at in &self.scene.shelf[..3] {
                if let Some(id) = self.scene.at(system, at) {
                    if system.reference(id).target != Target::NULL {
                        system.reference_mut(id).target = Target::NULL;
                    }
                }
            }
        }
    }

    /// Goes to the next line of a script at which something happens. Keeps the registers that an answer needs.
    fn resolve(&self, script: usize, registers: &mut Registers, code: Option<u64>) {
        let lines = self.scene.scripts[script].lines;
        let Some(Role::Script(_, mut at)) = role(registers) else { return };
        loop {
            at = match lines.get(at) {
                Some(Line::On(wanted, to)) if code == Some(*wanted as u64) => *to,
                Some(Line::On(..)) => at + 1,
                Some(Line::Jump(to)) => *to,
                _ => break,
            };
        }
        let mut new = Registers::starting(line(script, at), registers.sp(), 0);
        if let Some(Line::Answer) = lines.get(at) {
            let mut words = registers.words();
            words[..4].fill(0);
            words[7] = 0;
            new.set_words(&words);
        }
        *registers = new;
    }
}

fn at_pc(pc: u64) -> Registers {
    Registers::starting(pc, 0, 0)
}

/// The program of a thread that has just finished a call.
fn at_finished(registers: &Registers) -> Option<Role> {
    role(&at_pc(registers.pc().wrapping_sub(CALL_BYTES)))
}

/// Restarts every thread that waits without a reason.
pub fn settle(system: &mut System) {
    loop {
        let idle = system.threads().map(|(id, _)| id).find(|&id| !system.may_wait(id));
        match idle {
            Some(id) => system.restart(id),
            None => break,
        }
    }
}

/// Which thread has which thread's exception after a step.
fn holders(state: &State, system: &System) -> Vec<(Id, Id)> {
    let mut holders = Vec::new();
    for (id, t) in system.threads().filter(|(_, t)| t.exception_delivered) {
        let before = state.system.objects.get(&id).is_some_and(|o| match &o.body {
            Body::Thread(t) => t.exception_delivered,
            _ => false,
        });
        let holder =
            if before { state.holders.iter().find(|h| h.0 == id).map(|h| h.1) } else { t.keeper };
        holders.extend(holder.map(|holder| (id, holder)));
    }
    holders
}

impl Model for Exploration {
    type State = State;
    type Action = Move;

    fn init_states(&self) -> Vec<State> {
        let mut system = self.scene.system.clone();
        self.forget(&mut system);
        vec![self.state(system, Vec::new(), None, 0)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Move>) {
        if state.broken.is_none() && state.moves < self.depth {
            moves::all(&self.scene, &state.system, actions);
        }
    }

    fn next_state(&self, state: &State, action: Move) -> Option<State> {
        self.step(state, &action)
    }

    fn properties(&self) -> Vec<Property<Exploration>> {
        properties::for_checker()
    }
}

/// The result of an exploration.
#[derive(Debug)]
pub struct Report {
    /// Transitions.
    pub steps: usize,
    /// Different states.
    pub states: usize,
    /// Moves from the beginning to the farthest.
    pub depth: usize,
    /// Whether all states that can be reached have been seen.
    pub all: bool,
    /// How long it took.
    pub time: Duration,
    /// For each property that does not hold: its name, and how it is broken, move by move.
    pub found: Vec<(&'static str, String)>,
}

/// Explores every order of events in a small system, and reports what breaks a property.
#[must_use]
pub fn explore(exploration: Exploration) -> Report {
    let begin = Instant::now();
    let model = exploration.clone();
    // One thread, so that the depth is exact and the first trace is the shortest.
    let checker = exploration
        .checker()
        .threads(1)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let mut found = Vec::new();
    for (name, path) in checker.discoveries() {
        found.push((name, trace(&model, path.into_vec())));
    }
    found.sort();
    let deepest = checker.max_depth() - 1;
    Report {
        steps: checker.state_count(),
        states: checker.unique_state_count(),
        depth: deepest,
        all: deepest < model.depth && found.is_empty(),
        time: begin.elapsed(),
        found,
    }
}

/// A path in words: which thread makes which call with which parameters, and the result.
fn trace(model: &Exploration, path: Vec<(State, Option<Move>)>) -> String {
    let mut text = String::new();
    for (n, (state, next)) in path.iter().enumerate() {
        let Some(next) = next else { break };
        let step = model.step(state, next);
        text += &format!("{:3}. {}\n", n + 1, describe(model, state, next, step.as_ref()));
    }
    text
}

/// The name of parameter `n` of a call.
fn parameter(call: abi::Call, n: usize) -> &'static str {
    let row = call.row();
    match n {
        _ if !abi::ipc::plan(call).is_ipc() => row.params.get(n).map_or("-", |p| p.0),
        0 => row.params.first().map_or("?", |p| p.0),
        5 | 9 => "sends",
        10 => "takes",
        abi::registers::DEADLINE => "deadline",
        1 => "from",
        6 => "into",
        2 | 7 => "bytes",
        _ => "word",
    }
}

fn describe(model: &Exploration, state: &State, next: &Move, after: Option<&State>) -> String {
    let (scene, system) = (&model.scene, &state.system);
    let name = |id: &Id| match role(&system.thread(*id).registers) {
        Some(Role::Manager) => "manager".into(),
        _ => scene.name_of(system.objects[id].place),
    };
    let of_call = |registers: &Registers| {
        let Some(call) = abi::Call::from_number(registers.call() as u8) else {
            return "runs".to_string();
        };
        let mut text = call.name().to_string();
        for n in 0..abi::registers::PARAMETERS {
            let value = registers.parameter(n);
            if value != 0 {
                let count = value & abi::MAX_LIST_REFS;
                let shown = match scene.names.get(&(value - count)) {
                    Some(name) if count > 0 => format!("{name}/{count}"),
                    Some(name) => (*name).to_string(),
                    None => format!("{value:#x}"),
                };
                text += &format!(" {}={shown}", parameter(call, n));
            }
        }
        text
    };
    let (who, what) = match next {
        Move::Call { who, registers, store, .. } => {
            let stored =
                store.map_or(String::new(), |(_, n)| match n.checked_sub(moves::CONTENTS.len()) {
                    Some(n) => format!(" with {}", moves::ends(n)),
                    None => format!(" with {:?}", moves::content(n)),
                });
            (Some(*who), of_call(registers) + &stored)
        }
        Move::Go { who, .. } => {
            let registers = system.thread(*who).registers;
            let what = match role(&registers) {
                Some(Role::Script(script, at)) if registers.call() & 0xff == 0 => {
                    match scene.scripts[script].lines[at] {
                        Line::Call(call, parameters) => {
                            let mut loaded = Registers::default();
                            loaded.set_call(call as u64);
                            parameters
                                .iter()
                                .for_each(|&(n, value)| loaded.set_parameter(n, value));
                            of_call(&loaded)
                        }
                        line => format!("{line:?}").to_lowercase(),
                    }
                }
                _ => format!("again {}", of_call(&registers)),
            };
            (Some(*who), what)
        }
        Move::Bad(who) => (Some(*who), "breakpoint".into()),
        Move::Restart(who) => (Some(*who), "begins again".into()),
        Move::Timer => (None, "time passes".into()),
    };
    let result = match (who, after) {
        (Some(who), Some(after)) => model.result(state, next, who, after),
        _ => String::new(),
    };
    let who = who.map_or("clock".into(), |id| name(&id));
    format!("{who}: {what}{result}")
}

impl Exploration {
    /// The result of the call, read off a step that forgets nothing.
    fn result(&self, state: &State, next: &Move, who: Id, _after: &State) -> String {
        let mut system = state.system.clone();
        let Some(Some((event, _, late))) = self.begin(&mut system, next) else {
            return String::new();
        };
        system.running = who;
        let mut order: Vec<Id> = system.threads().map(|(id, _)| id).collect();
        if late {
            order.reverse();
        }
        let seen = Seen { order, ..Seen::default() };
        self.advance(&mut system, event, seen);
        match system.objects.get(&who).map(|o| &o.body) {
            Some(Body::Thread(t)) => match t.status {
                Status::Waiting(why) => format!(" -> waits: {why:?}"),
                _ if at_finished(&t.registers).is_some() => {
                    format!(" -> {:?}", Code::from_raw(t.registers.call() & 0xff))
                }
                Status::Stopped => " -> stopped".into(),
                Status::Ready => String::new(),
            },
            _ => " -> gone".into(),
        }
    }
}
