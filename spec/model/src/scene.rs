//! Small systems: two spaces, a few threads and objects, and what each thread runs.
//!
//! Space *ours* has the manager and the honest threads, space *theirs* has the hostile ones. Our manager has a page
//! of its own objects and the page of their objects, so that it has the handles of all; they have the handles in
//! their page. The objects that hold this together (root region, mappings, spaces) are in a page that nobody maps,
//! unless a scene puts them elsewhere.
//!
//! A thread's program counter tells what it runs. A *free* program is always at its beginning and makes any call; a
//! *script* does line after line.

use abi::{access, Call, Code, RefKind, Registers, OBJECT_SIZE, PAGE_SIZE, ROLES};
use spec::object::{
    Account, Body, Mapping, Object, Phase, Reference, Region, Source, Space, Target, Thread,
};
use spec::wait::Status;
use spec::{Id, Machine, Place, System};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Our objects: the address in our space.
pub const OURS: u64 = 0x10_0000;
/// Their objects, at the same address in both spaces.
pub const THEIRS: u64 = 0x20_0000;
/// Our data, in our space.
pub const OUR_DATA: u64 = 0x30_0000;
/// Their data, in theirs.
pub const THEIR_DATA: u64 = 0x40_0000;
/// Where nothing is mapped, for mappings that they make.
pub const HOLE: u64 = 0x50_0000;

/// The frames of these pages, and of the page that nobody maps.
const INSIDE: u64 = 1;
const OUR_OBJECTS: u64 = 2;
const THEIR_OBJECTS: u64 = 3;
/// The frame of our data.
pub const OUR_DATA_FRAME: u64 = 4;
const THEIR_DATA_FRAME: u64 = 5;
const FRAMES: std::ops::Range<u64> = 1..7;

/// Where states are saved, in [`OUR_DATA`]; [`SCRATCH`] is what calls read and write otherwise.
pub const SAVED: u64 = OUR_DATA + 0x400;
/// See [`SAVED`].
pub const SCRATCH: u64 = OUR_DATA;

/// The highest priority of their threads.
pub const CEILING: u64 = 1;

/// The free program that makes every call.
pub const HOSTILE: u64 = 0x1000_0000;
/// The free program that manages.
pub const MANAGER: u64 = 0x2000_0000;
/// The first script; the others follow.
const SCRIPTS: u64 = 0x3000_0000;
const SCRIPT_SIZE: u64 = 0x100_0000;
const LINE_SIZE: u64 = 16;

/// What a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Any call at any time.
    Hostile,
    /// Any call of a manager.
    Manager,
    /// A script, at a line.
    Script(usize, usize),
}

/// What the thread with these registers runs; `None` if its program counter is nowhere in a program.
#[must_use]
pub fn role(registers: &Registers) -> Option<Role> {
    match registers.pc() {
        HOSTILE => Some(Role::Hostile),
        MANAGER => Some(Role::Manager),
        pc => {
            let at = pc.checked_sub(SCRIPTS)?;
            let (script, line) = (at / SCRIPT_SIZE, at % SCRIPT_SIZE);
            let there = script < 16 && line % LINE_SIZE == 0;
            there.then_some(Role::Script(script as usize, (line / LINE_SIZE) as usize))
        }
    }
}

/// The address of a script's line.
#[must_use]
pub fn line(script: usize, line: usize) -> u64 {
    SCRIPTS + script as u64 * SCRIPT_SIZE + line as u64 * LINE_SIZE
}

/// A line of a script.
#[derive(Clone, Copy, Debug)]
pub enum Line {
    /// A call with these parameters.
    Call(Call, &'static [(usize, u64)]),
    /// An instruction that the processor refuses; the keeper lets the thread go on behind it.
    Bad,
    /// Answers the exception that has just been received in registers: the thread that met it goes on behind it.
    Answer,
    /// After the last call ended with this code, go to that line.
    On(Code, usize),
    /// Go to that line.
    Jump(usize),
    /// The script ends.
    End,
}

/// What an honest thread does.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its lines.
    pub lines: &'static [Line],
    /// Whether the results of its calls are kept, in its stack pointer.
    pub logs: bool,
}

/// What a manager does to its targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Every managing call on the object; it needs the result of none of them.
    Everything,
    /// Stop, save, destroy (and keep the identity), create anew, restore, resume a thread.
    Cut,
    /// Destroy the object.
    Destroy,
    /// Stop and resume.
    Stop,
}

/// A small system.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// How it begins.
    pub system: System,
    /// Names of handles.
    pub names: BTreeMap<u64, &'static str>,
    /// What honest threads run.
    pub scripts: Vec<Script>,
    /// The calls that hostile threads make.
    pub calls: fn(Call) -> bool,
    /// What the manager does to the objects at these handles.
    pub tasks: Vec<(u64, Task)>,
    /// The space of the hostile threads.
    pub theirs: Id,
    /// References of theirs that are exchangeable.
    pub shelves: Vec<Vec<(Place, u64)>>,
    /// References of the manager's that receive a saved thread's space and ends, and an identity.
    pub shelf: [u64; 4],
    /// The manager's reference to their space.
    pub their_space: u64,
    /// Whether waiting threads may begin their calls again at any time.
    pub restarts: bool,
    /// How many moves deep the tests explore; `prove` goes deeper by its SIZE.
    pub depth: usize,
}

/// Builds a scene.
pub struct Builder {
    scene: Scene,
    ours: Id,
    next: BTreeMap<u64, u64>,
}

impl Builder {
    /// Two spaces with their pages, and our manager.
    #[must_use]
    pub fn new(name: &'static str, about: &'static str) -> Builder {
        let machine =
            Machine { costs: [1; 9], account_cost: 1, frames: FRAMES, end_frame: FRAMES.end };
        let mut system = System { machine, ..System::default() };
        system.accounts.push(Account { quota: 100, ..Account::default() });
        system.accounts.push(Account { parent: Some(0), quota: 2, ..Account::default() });
        let scene = Scene {
            name,
            about,
            system,
            names: BTreeMap::new(),
            scripts: Vec::new(),
            calls: |_| true,
            tasks: Vec::new(),
            theirs: 0,
            shelves: Vec::new(),
            shelf: [0; 4],
            their_space: 0,
            restarts: false,
            depth: 4,
        };
        let mut b = Builder { scene, ours: 0, next: BTreeMap::new() };
        let ram = b.inside(Body::Region(Region {
            source: Source::Memory,
            size: FRAMES.end * PAGE_SIZE,
            protection: access::ALL,
            ..Region::default()
        }));
        b.ours = b.inside(Body::Space(Space { max_priority: 2, ..Space::default() }));
        let theirs = b.object(
            OUR_OBJECTS,
            OURS,
            "their space",
            Body::Space(Space { account: 1, max_priority: CEILING, ..Space::default() }),
        );
        b.scene.theirs = theirs;
        let plain = access::READ | access::WRITE;
        for (space, start, frame, protection) in [
            (b.ours, OURS, OUR_OBJECTS, access::ALL),
            (b.ours, THEIRS, THEIR_OBJECTS, access::ALL),
            (b.ours, OUR_DATA, OUR_DATA_FRAME, plain),
            (theirs, THEIRS, THEIR_OBJECTS, access::ALL),
            (theirs, THEIR_DATA, THEIR_DATA_FRAME, plain),
        ] {
            b.inside(Body::Mapping(Mapping {
                start,
                size: PAGE_SIZE,
                offset: frame * PAGE_SIZE,
                protection,
                region: Some(ram),
                space: Some(space),
            }));
        }
        for (n, name) in ["(space)", "(client)", "(server)", "(identity)"].into_iter().enumerate() {
            b.scene.shelf[n] = b.reference_of_ours(name, Target::NULL);
        }
        b.scene.their_space = b.our_reference("(theirs)", theirs);
        let manager = Thread { registers: Registers::starting(MANAGER, 0, 0), ..b.started(b.ours) };
        b.inside(Body::Thread(Box::new(manager)));
        b
    }

    fn started(&self, space: Id) -> Thread {
        Thread {
            stops: 0,
            status: Status::Ready,
            space: Some(space),
            priority: CEILING,
            ..Thread::default()
        }
    }

    fn place(&mut self, frame: u64) -> u64 {
        let next = self.next.entry(frame).or_default();
        *next += OBJECT_SIZE;
        *next
    }

    fn insert(&mut self, place: Place, payer: usize, body: Body) -> Id {
        self.scene.system.last += 1;
        let id = spec::id(body.ty(), self.scene.system.last);
        self.scene.system.accounts[payer].used += 1;
        if payer == 1 {
            self.scene.system.accounts[1].quota += 1;
        }
        let object = Object { place, phase: Phase::Active, payer, body };
        self.scene.system.objects.insert(id, Arc::new(object));
        id
    }

    /// An object that nobody has a handle of.
    pub fn inside(&mut self, body: Body) -> Id {
        let offset = self.place(INSIDE);
        self.insert((INSIDE, offset), 0, body)
    }

    fn object(&mut self, frame: u64, page: u64, name: &'static str, body: Body) -> Id {
        let offset = self.place(frame);
        self.scene.names.insert(page + offset, name);
        let payer = usize::from(page == THEIRS);
        self.insert((frame, offset), payer, body)
    }

    /// An object of ours.
    pub fn our(&mut self, name: &'static str, body: Body) -> Id {
        self.object(OUR_OBJECTS, OURS, name, body)
    }

    /// An object of theirs.
    pub fn their(&mut self, name: &'static str, body: Body) -> Id {
        self.object(THEIR_OBJECTS, THEIRS, name, body)
    }

    /// A space in their page that we have made and pay for: they hold its handle.
    pub fn held(&mut self, name: &'static str) -> Id {
        let account = self.scene.system.accounts.len();
        self.scene.system.accounts.push(Account { parent: Some(0), ..Account::default() });
        let offset = self.place(THEIR_OBJECTS);
        self.scene.names.insert(THEIRS + offset, name);
        let space = Space { account, max_priority: CEILING, ..Space::default() };
        self.insert((THEIR_OBJECTS, offset), 0, Body::Space(space))
    }

    /// A place of theirs where nothing is yet.
    pub fn their_room(&mut self, name: &'static str) {
        let offset = self.place(THEIR_OBJECTS);
        self.scene.names.insert(THEIRS + offset, name);
    }

    fn reference_of_ours(&mut self, name: &'static str, target: Target) -> u64 {
        let id = self.our(name, Body::Reference(Reference { target, keeps: false }));
        self.handle(id)
    }

    /// A reference of theirs to an object.
    pub fn their_reference(&mut self, name: &'static str, to: Option<Id>) -> Id {
        let target = to.map_or(Target::NULL, |id| Target {
            kind: RefKind::from_raw(u64::from(id >> 24)).unwrap_or(RefKind::Null),
            id,
            of_server: false,
        });
        self.their(name, Body::Reference(Reference { target, keeps: false }))
    }

    /// A reference of ours to an object.
    pub fn our_reference(&mut self, name: &'static str, id: Id) -> u64 {
        let kind = RefKind::from_raw(u64::from(id >> 24)).unwrap_or(RefKind::Null);
        self.reference_of_ours(name, Target { kind, id, of_server: false })
    }

    /// The address of an object in the space that can name it.
    #[must_use]
    pub fn handle(&self, id: Id) -> u64 {
        let (frame, offset) = self.scene.system.objects[&id].place;
        match frame {
            OUR_OBJECTS => OURS + offset,
            THEIR_OBJECTS => THEIRS + offset,
            _ => 0,
        }
    }

    /// A free hostile thread of theirs.
    pub fn hostile(&mut self, name: &'static str) -> Id {
        let registers = Registers::starting(HOSTILE, 0, 0);
        let thread = Thread { registers, ..self.started(self.scene.theirs) };
        self.their(name, Body::Thread(Box::new(thread)))
    }

    /// As [`Builder::hostile`], but no hostile thread has its handle.
    pub fn hostile_inside(&mut self) -> Id {
        let registers = Registers::starting(HOSTILE, 0, 0);
        let thread = Thread { registers, ..self.started(self.scene.theirs) };
        self.inside(Body::Thread(Box::new(thread)))
    }

    /// An honest thread of ours.
    pub fn honest(&mut self, name: &'static str, lines: &'static [Line], logs: bool) -> Id {
        let registers = Registers::starting(line(self.scene.scripts.len(), 0), 0, 0);
        self.scene.scripts.push(Script { lines, logs });
        let thread = Thread { registers, ..self.started(self.ours) };
        self.our(name, Body::Thread(Box::new(thread)))
    }

    /// Makes the port the keeper of our threads' exceptions.
    pub fn keep_ours(&mut self, port: Id) {
        let ours = self.ours;
        self.scene.system.space_mut(ours).keeper = Some(port);
    }

    /// Has the manager do this to the object.
    pub fn task(&mut self, id: Id, task: Task) {
        let handle = self.handle(id);
        self.scene.tasks.push((handle, task));
    }

    /// Makes these references of theirs exchangeable.
    pub fn shelf(&mut self, ids: &[Id]) {
        let slot = |&id: &Id| (self.scene.system.objects[&id].place, self.handle(id));
        let shelf = ids.iter().map(slot).collect();
        self.scene.shelves.push(shelf);
    }

    /// Builds the scene. `settings` may change what scenes have by default.
    #[must_use]
    pub fn build(mut self, settings: impl FnOnce(&mut Scene)) -> Scene {
        settings(&mut self.scene);
        self.scene
    }
}

impl Scene {
    /// The name of a place.
    #[must_use]
    pub fn name_of(&self, place: Place) -> String {
        let address = match place.0 {
            OUR_OBJECTS => OURS + place.1,
            THEIR_OBJECTS => THEIRS + place.1,
            _ => return "another".into(),
        };
        self.names.get(&address).map_or(format!("{address:#x}"), |name| (*name).into())
    }

    /// The slots in their page: the handle, and the object there in whatever phase, or `None` where there is room for
    /// one.
    pub fn their_slots<'a>(
        &'a self,
        system: &'a System,
    ) -> impl Iterator<Item = (u64, Option<Id>)> + 'a {
        self.names
            .range(THEIRS..THEIRS + PAGE_SIZE)
            .map(|(&address, _)| (address, system.object_at((THEIR_OBJECTS, address - THEIRS))))
    }

    /// The object at an address, seen from our space.
    #[must_use]
    pub fn at(&self, system: &System, address: u64) -> Option<Id> {
        let frame = match address & !(PAGE_SIZE - 1) {
            OURS => OUR_OBJECTS,
            THEIRS => THEIR_OBJECTS,
            _ => return None,
        };
        system.object_at((frame, address % PAGE_SIZE))
    }

    /// The manager's thread.
    #[must_use]
    pub fn manager(&self, system: &System) -> Option<Id> {
        system.threads().find(|(_, t)| role(&t.registers) == Some(Role::Manager)).map(|(id, _)| id)
    }

    /// Whether a thread's state is saved, to be restored later.
    #[must_use]
    pub fn has_saved(&self, system: &System) -> bool {
        system.memory.contains_key(&OUR_DATA_FRAME)
    }
}

/// Bytes of the instruction that makes a call.
pub const CALL_BYTES: u64 = ROLES.call_bytes;
