//! The configuration of this kernel: one typed constant, chosen at build time.

/// What a thread keeps in the kernel while it waits (Ford et al., section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Its own kernel stack.
    Process,
    /// Nothing: there is one stack per processor.
    Interrupt,
}

/// Where in the kernel a thread can be preempted (Ford et al., section 5.2 and Table 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// Nowhere.
    None,
    /// At points: in the copying of messages, and in searches.
    Points,
}

/// The configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The execution model.
    pub model: Model,
    /// Preemption in the kernel.
    pub preemption: Preemption,
}

/// The configuration of this kernel.
pub const CONFIG: Config = Config {
    model: if cfg!(any(
        fermata_model = "process-np",
        fermata_model = "process-pp"
    )) {
        Model::Process
    } else {
        Model::Interrupt
    },
    preemption: if cfg!(any(
        fermata_model = "process-pp",
        fermata_model = "interrupt-pp"
    )) {
        Preemption::Points
    } else {
        Preemption::None
    },
};

impl Config {
    /// Its name, as `--config` takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match (self.model, self.preemption) {
            (Model::Process, Preemption::None) => "process-np",
            (Model::Process, Preemption::Points) => "process-pp",
            (Model::Interrupt, Preemption::None) => "interrupt-np",
            (Model::Interrupt, Preemption::Points) => "interrupt-pp",
        }
    }
}
