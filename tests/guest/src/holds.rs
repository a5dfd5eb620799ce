//! A thread held in every state in which it can wait.
//!
//! [`each`] makes every call of the table that can wait, in every stage in which it can begin, without the other half
//! that it waits for; then a call of each row on a vacant identity, and the waits outside of calls: for a page, for
//! an exception's keeper, in user code. Each time it passes the thread to a function, for example one that checks
//! that a stop is answered at once (rule A5) by [`Held::stop_and_read`], which measures that.
//!
//! The tables show that nothing is missing: every row that is long or has several stages must have been held, and so
//! must every reason to wait.

use crate::harness::{eventually, Absent, Actor, Failure, Must, Outcome, Receiver, Twin};
use abi::ipc::{plan, Plan};
use abi::registers::Area;
use abi::state::{space_flags, Registers, ThreadState, Waiting};
use abi::syscalls::Param;
use abi::{Call, Class, Common, Type, PAGE_SIZE, SYSCALLS};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::arch::{asm, global_asm};
use rt::obj::{Mutex, Ref};
use rt::sys::{self, IpcRegs};

/// Bytes that a side has to send, and room to receive.
const BYTES: usize = 200;
/// A deadline that never comes.
const NEVER: u64 = 1 << 62;

global_asm!(
    ".globl fermata_hold_invalid",
    "fermata_hold_invalid:",
    "ud2",
    ".globl fermata_hold_spin",
    "fermata_hold_spin:",
    "jmp fermata_hold_spin",
);

extern "C" {
    fn fermata_hold_invalid();
    fn fermata_hold_spin();
}

/// Where [`Held::stop_and_read`] stores the state: across the border of two pages.
#[repr(C, align(4096))]
struct Across {
    before: [u8; PAGE_SIZE as usize - 128],
    state: ThreadState,
}

/// Reads the states of held threads.
pub struct Asker {
    room: Box<Across>,
    refs: [Ref; 3],
    /// A page to be taken away.
    spare: Absent,
}

impl Asker {
    /// Makes room for an answer.
    pub fn new() -> Result<Self, Failure> {
        let new = || Ref::new().must("a reference");
        Ok(Asker {
            room: Box::new(Across {
                before: [0; PAGE_SIZE as usize - 128],
                state: ThreadState::default(),
            }),
            refs: [new()?, new()?, new()?],
            spare: Absent::new(PAGE_SIZE, 0)?,
        })
    }

    /// Takes a translation away from the asker's space: the kernel forgets where it found the objects of its handles,
    /// so that the next answer takes equally long whatever was looked up before, and wherever the objects are.
    pub fn make_lookups_cold(&mut self) -> Outcome {
        self.spare.supply(0)?;
        // SAFETY: the page was supplied, and no other code uses it.
        unsafe { (self.spare.base as *mut u8).write_volatile(1) };
        self.spare.withdraw();
        Ok(())
    }
}

/// The result of [`Held::stop_and_read`].
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Its state, including references to its space and peers.
    pub state: ThreadState,
    /// From the request to stop to the complete answer: ticks of the time-stamp counter, which are instructions where
    /// instructions are counted. This includes the asker's two calls.
    pub ticks: u64,
}

fn ticks() -> u64 {
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Makes a call whose parameters are in order, and nothing else.
fn bare(call: Call, p: [u64; 5]) -> u64 {
    let code;
    // SAFETY: `thread_stop`, or `thread_get_state` with a state of the asker's.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") call as u64 => code,
            inlateout("rdi") p[0] => _,
            inlateout("rsi") p[1] => _,
            inlateout("rdx") p[2] => _,
            inlateout("r10") p[3] => _,
            inlateout("r8") p[4] => _,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    code
}

/// A thread that is held in a wait.
pub struct Held<'a> {
    /// The call and the situation.
    pub name: String,
    /// The call that it made, if it made one.
    pub call: Option<Call>,
    /// The thread.
    pub actor: &'a Actor,
}

impl Held<'_> {
    /// Stops the thread and reads its state.
    pub fn stop_and_read(&self, asker: &mut Asker) -> Result<Answer, Failure> {
        let thread = self.actor.thread.handle();
        let [space, client, server] = [0, 1, 2].map(|n: usize| asker.refs[n].handle());
        let state = &raw mut asker.room.state as u64;
        let before = ticks();
        let stopped = bare(Call::ThreadStop, [thread, 0, 0, 0, 0]);
        let got = bare(Call::ThreadGetState, [thread, state, space, client, server]);
        let after = ticks();
        if (stopped, got) != (0, 0) {
            crate::fail!("{}: results {stopped} and {got}", self.name);
        }
        // SAFETY: the kernel has written the state; every bit pattern is valid for it.
        let state = unsafe { (&raw const asker.room.state).read_volatile() };
        Ok(Answer {
            state,
            ticks: after - before,
        })
    }
}

/// The calls and waits that have been held.
#[derive(Default)]
struct Seen {
    calls: BTreeSet<u8>,
    waits: BTreeSet<u64>,
}

/// A service, the thread to hold and its partner.
struct Scene {
    service: Receiver,
    held: Actor,
    partner: Actor,
    /// The memory from which each of them sends, and into which it receives.
    memory: [Vec<u8>; 2],
}

impl Scene {
    fn new() -> Result<Self, Failure> {
        Ok(Scene {
            service: Receiver::new(1)?,
            held: Actor::new()?,
            partner: Actor::new()?,
            memory: [vec![1; 2 * BYTES], vec![2; 2 * BYTES]],
        })
    }

    fn registers(&self, call: Call, memory: &[u8]) -> IpcRegs {
        let p = plan(call);
        let name = if p.has(Plan::CLIENT) {
            self.service.port_ref.handle()
        } else {
            self.service.portset.handle()
        };
        let base = IpcRegs::to(name).until(NEVER);
        if p.has(Plan::SHORT) {
            return base.message(&[0; 3]);
        }
        let (address, length) = (memory.as_ptr() as u64, BYTES as u64);
        base.sending(Area::new(address, length))
            .receiving(Area::new(address + length, length))
    }

    fn begin(&self, partner: bool, call: Call) -> Outcome {
        let actor = if partner { &self.partner } else { &self.held };
        actor.call(
            call,
            self.registers(call, &self.memory[usize::from(partner)]),
        )?;
        // Wait until the thread waits: in its call, or for its next call.
        eventually(call.name(), || actor.state().waiting != 0)
    }

    /// Brings both threads into the stage in which `call` begins; then neither does anything more.
    fn before(&self, call: Call) -> Outcome {
        let p = plan(call);
        let steps: &[(bool, Call)] = match (p.has(Plan::CLIENT), p.first()) {
            (true, Some(Plan::SEND | Plan::OVER)) => {
                &[(true, Call::ServerWait), (false, Call::ClientConnect)]
            }
            (true, Some(Plan::RECEIVE)) => &[
                (true, Call::ServerWaitReceive),
                (false, Call::ClientConnectSendOver),
            ],
            (true, Some(Plan::ACK)) => &[
                (true, Call::ServerWaitReceive),
                (false, Call::ClientConnectSendOverReceive),
                (true, Call::ServerAckSendOver),
            ],
            (false, Some(Plan::RECEIVE)) => {
                &[(false, Call::ServerWait), (true, Call::ClientConnect)]
            }
            (false, Some(Plan::ACK)) => &[
                (false, Call::ServerWaitReceive),
                (true, Call::ClientConnectSendOver),
            ],
            (false, Some(Plan::SEND | Plan::OVER)) => &[
                (false, Call::ServerWaitReceive),
                (true, Call::ClientConnectSendOver),
                (false, Call::ServerAck),
            ],
            (false, Some(Plan::REPLY)) => {
                &[(false, Call::ServerWaitReceive), (true, Call::CallShort)]
            }
            _ => &[],
        };
        steps
            .iter()
            .try_for_each(|&(partner, call)| self.begin(partner, call))
    }
}

/// Passes a thread in every state in which it can wait to `f`.
pub fn each(mut f: impl FnMut(&Held) -> Outcome) -> Outcome {
    let mut seen = Seen::default();
    let mut show = |name: &str, call: Option<Call>, actor: &Actor| -> Outcome {
        seen.waits.insert(actor.state().waiting);
        seen.calls.extend(call.map(|call| call as u8));
        let name = String::from(name);
        let held = Held { name, call, actor };
        f(&held).map_err(|why| why.during(&held.name))
    };
    for row in SYSCALLS {
        ordinary(row.call, &mut show)?;
        if plan(row.call).is_ipc() {
            messages(row.call, &mut show)?;
        }
        vacant(row.call, &mut show)?;
    }
    others(&mut show)?;
    for row in SYSCALLS {
        let waits = matches!(row.class, Class::Long | Class::MultiStage);
        if waits && !seen.calls.contains(&row.number) {
            crate::fail!("{} was never held", row.name);
        }
    }
    for &why in Waiting::ALL {
        // A thread waits for the kernel's lock only while another has been preempted in the kernel.
        if why != Waiting::Kernel && !seen.waits.contains(&(why as u64)) {
            crate::fail!("nobody was held waiting for {why:?}");
        }
    }
    Ok(())
}

type Show<'a> = dyn FnMut(&str, Option<Call>, &Actor) -> Outcome + 'a;

/// Holds threads in the calls that can wait by themselves.
fn ordinary(call: Call, show: &mut Show) -> Outcome {
    let (locked, other) = (Mutex::new().must("a mutex")?, Mutex::new().must("a mutex")?);
    let cond = rt::obj::Cond::new().must("a cond")?;
    locked.lock();
    other.lock();
    let (p, why) = match call {
        Call::MutexLock => ([locked.handle(), 0, 0], Waiting::Mutex),
        Call::CondWait | Call::CondWaitUntil => {
            ([cond.handle(), other.handle(), NEVER], Waiting::Cond)
        }
        Call::ThreadSleepUntil => ([NEVER, 0, 0], Waiting::Deadline),
        Call::ThreadWaitInterrupt => ([0; 3], Waiting::Interrupt),
        Call::ThreadWaitInterruptUntil => ([NEVER, 0, 0], Waiting::Interrupt),
        _ => return Ok(()),
    };
    let actor = Actor::new()?;
    // An actor that has finished waits for an interrupt too, so the test must tell the two waits apart.
    actor.ordinary(call, [p[0], p[1], p[2], 0, 0, 0])?;
    eventually(call.name(), || {
        let state = actor.state();
        state.waiting == why as u64 && state.registers.pc() == crate::harness::call_site()
    })?;
    show(call.name(), Some(call), &actor)
}

/// The stages of messages.
fn messages(call: Call, show: &mut Show) -> Outcome {
    let waits = |scene: &Scene| {
        let state = scene.held.state();
        state.waiting != 0 && state.registers.pc() == crate::harness::call_site()
    };
    let name = call.name();
    let scene = Scene::new()?;
    scene.before(call).must(name)?;
    scene.begin(false, call)?;
    if waits(&scene) {
        show(&format!("{name}, nobody answers"), Some(call), &scene.held)?;
    }
    drop(scene);
    // The partner only does what lets the held call find it.
    let p = plan(call);
    let partner = match p.first() {
        Some(Plan::CONNECT) => Call::ServerWait,
        Some(Plan::CALL) => Call::ServerWaitReceive,
        Some(Plan::WAIT) => Call::ClientConnect,
        _ => return Ok(()),
    };
    let scene = Scene::new()?;
    scene.begin(true, partner)?;
    scene.begin(false, call)?;
    if waits(&scene) {
        show(
            &format!("{name}, in its next stage"),
            Some(call),
            &scene.held,
        )?;
    }
    drop(scene);
    // A message whose memory is absent, on the side that is held.
    if p.has(Plan::SHORT) || !(p.has(Plan::SEND) || p.has(Plan::RECEIVE) || p.has(Plan::CALL)) {
        return Ok(());
    }
    let mut keeper = Receiver::new(9)?;
    let absent = Absent::new(PAGE_SIZE, keeper.port_ref.handle())?;
    let address = rt::window::take_addresses(PAGE_SIZE, PAGE_SIZE).ok_or("no addresses")?;
    let mapping = absent.map_at(address, 0, PAGE_SIZE)?;
    let scene = Scene::new()?;
    let partner = match partner {
        Call::ClientConnect => Call::ClientConnectSendOver,
        _ => Call::ServerWaitReceive,
    };
    let page = Area::new(address, BYTES as u64);
    let regs = scene.registers(call, &scene.memory[0]);
    let regs = regs.sending(page).receiving(page);
    scene.held.call(call, regs)?;
    scene.begin(true, partner)?;
    eventually(name, || waits(&scene))?;
    show(&format!("{name}, its page absent"), Some(call), &scene.held)?;
    // The fault's message was withdrawn when the thread was stopped; it is sent again when the thread goes on.
    let _ = scene.held.thread.resume();
    let got = keeper.receive(1_000_000);
    if got.code == abi::Code::Fault {
        show(
            &format!("{name}, its page asked for"),
            Some(call),
            &scene.held,
        )?;
    }
    drop((scene, mapping));
    rt::window::give_addresses(address, PAGE_SIZE);
    Ok(())
}

/// The call upon an object whose identity is vacant.
fn vacant(call: Call, show: &mut Show) -> Outcome {
    let row = call.row();
    let Some((_, Param::Object(kind))) = row.params.first() else {
        return Ok(());
    };
    // Calls that manage an object return the code `Vacant` and do not wait.
    if row.manages(0) {
        return Ok(());
    }
    // A call that has other stages first does not reach the object.
    let first = plan(call).first();
    if !matches!(first, None | Some(Plan::CONNECT | Plan::CALL | Plan::WAIT)) {
        return Ok(());
    }
    let slot = rt::slots::allocate(2).ok_or("no slots")?;
    let identity = Ref::new().must("a reference")?;
    make(*kind, Common::Create, [slot, 0])?;
    make(*kind, Common::Destroy, [slot, identity.handle()])?;
    let actor = Actor::new()?;
    let room = vec![0u64; 200];
    let spare = Ref::new().must("a reference")?;
    let mut p = [slot, 0, 0, 0, 0, 0];
    for (to, (_, param)) in p.iter_mut().zip(row.params).skip(1) {
        *to = match param {
            Param::State | Param::Registers | Param::OptFpu => room.as_ptr() as u64,
            Param::Fresh => slot + abi::OBJECT_SIZE,
            Param::Object(Type::Reference) => spare.handle(),
            _ => 0,
        };
    }
    actor.ordinary(call, p)?;
    let name = format!("{}, its object vacant", row.name);
    eventually(&name, || actor.state().waiting == Waiting::Vacant as u64)?;
    show(&name, Some(call), &actor)?;
    drop(actor);
    // The identity gets a body again, so that it can be destroyed.
    make(*kind, Common::Create, [slot, identity.handle()])?;
    make(*kind, Common::Destroy, [slot, 0])?;
    rt::slots::free(slot, 2);
    Ok(())
}

/// Creates or destroys an object.
fn make(kind: Type, which: Common, p: [u64; 2]) -> Outcome {
    let call = which.of(kind);
    // SAFETY: the handle is a slot, and the other parameter a reference or 0.
    let code = unsafe { sys::syscall(call, [p[0], p[1], 0, 0, 0, 0]) }.code;
    crate::harness::ok(code).must(call.name())
}

extern "C" fn read_word(address: u64) {
    // SAFETY: the value is not used.
    unsafe { (address as *const u64).read_volatile() };
}

/// Holds threads outside of calls: in user code, at an absent page, in an exception, at a call of a foreign space.
fn others(show: &mut Show) -> Outcome {
    let actor = Actor::new()?;
    let start = |actor: &Actor, code: unsafe extern "C" fn()| {
        actor.start(&Registers {
            rip: code as *const () as u64,
            rflags: 0x202,
            ..Registers::default()
        })
    };
    start(&actor, fermata_hold_spin)?;
    eventually("user code", || actor.state().waiting == 0)?;
    show("in user code", None, &actor)?;

    let mut keeper = Receiver::new(2)?;
    let absent = Absent::new(PAGE_SIZE, keeper.port_ref.handle())?;
    let address = rt::window::take_addresses(PAGE_SIZE, PAGE_SIZE).ok_or("no addresses")?;
    let mapping = absent.map_at(address, 0, PAGE_SIZE)?;
    let actor = Actor::new()?;
    actor.function(read_word, address)?;
    actor.settle(Waiting::Port)?;
    show("a page whose keeper is away", None, &actor)?;
    let _ = actor.thread.resume();
    let _ = keeper.receive(NEVER);
    actor.settle(Waiting::Reply)?;
    show("a page that the keeper looks for", None, &actor)?;
    drop((actor, mapping));
    rt::window::give_addresses(address, PAGE_SIZE);

    for (flags, name) in [
        (0, "an exception"),
        (space_flags::FOREIGN, "a foreign call"),
    ] {
        let mut keeper = Receiver::new(3)?;
        let twin = Twin::new(flags, keeper.port_ref.handle())?;
        let actor = Actor::within(&twin.space_ref)?;
        if flags == 0 {
            start(&actor, fermata_hold_invalid)?;
        }
        actor.settle(Waiting::Port)?;
        show(&format!("{name} whose keeper is away"), None, &actor)?;
        let _ = actor.thread.resume();
        let _ = keeper.receive(crate::harness::PATIENCE);
        actor.settle(Waiting::Exception)?;
        show(&format!("{name} that the keeper looks at"), None, &actor)?;
    }
    Ok(())
}
