//! The configuration of this kernel: one typed constant, chosen at build time.
//!
//! Only `exec`, `kept` and `counters` depend on the model, only `preempt` on the preemption (the rooms of full
//! preemption use `FULL`), and only `hal` on how interrupts are masked; `./fermata check` enforces that. Every branch
//! is compiled and checked in every configuration.

/// The execution model: what a thread keeps in the kernel while it waits (Ford et al., section 3; Draves et
/// al., section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Its own kernel stack.
    Process,
    /// Nothing: there is one stack per processor.
    Interrupt,
    /// A continuation; also a kernel stack, if the thread was preempted in the kernel.
    Continuation,
}

/// The places in the kernel where a thread can be preempted (Ford et al., section 5.2 and Table 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// Nowhere.
    None,
    /// At preemption points, in work that can be long: copying messages, searches, waking many threads.
    Points,
    /// Everywhere except in the core.
    Full,
}

/// The configuration that this kernel was built for. It is a constant, so that the branches of other configurations are
/// compiled and then removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The execution model.
    pub model: Model,
    /// Preemption in the kernel.
    pub preemption: Preemption,
    /// How interrupts are masked.
    pub irq: hal::Irq,
    /// Whether stacks and continuations are dropped at random, to show that they are caches.
    pub forgetful: bool,
    /// Whether the kernel reports to a counting emulator what becomes of threads that block.
    pub counters: bool,
    /// Whether this is a kernel for cut tests, which can stop a call at any of its sites and checks its
    /// own structures (`--cfg fermata_probe`).
    pub probe: bool,
}

/// Makes the constant from the configurations' names, which `--config` takes.
macro_rules! config {
    ($($name:tt: $model:ident, $preemption:ident;)*) => {
        /// The configuration of this kernel.
        pub const CONFIG: Config = {
            // The configuration without a name, as on the host.
            let mut config = Config {
                model: Model::Interrupt,
                preemption: Preemption::None,
                irq: hal::IRQ,
                forgetful: cfg!(fermata_forgetful),
                counters: cfg!(any(fermata_counters, test)),
                probe: cfg!(fermata_probe),
            };
            $(if cfg!(fermata_model = $name) {
                config.model = Model::$model;
                config.preemption = Preemption::$preemption;
            })*
            config
        };
    };
}

config! {
    "process-np": Process, None;
    "process-pp": Process, Points;
    "process-fp": Process, Full;
    "interrupt-np": Interrupt, None;
    "interrupt-pp": Interrupt, Points;
    "continuation-np": Continuation, None;
    "continuation-pp": Continuation, Points;
    "continuation-fp": Continuation, Full;
}

/// Whether the kernel can be preempted anywhere except in its core.
pub(crate) const FULL: bool = matches!(CONFIG.preemption, Preemption::Full);
