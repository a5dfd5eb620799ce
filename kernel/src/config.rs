//! The configuration of this kernel: one typed constant, chosen at build time.

/// What a thread keeps in the kernel while it waits (Ford et al., section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Its own kernel stack.
    Process,
    /// Nothing: there is one stack per processor.
    Interrupt,
}

/// The configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The execution model.
    pub model: Model,
}

/// The configuration of this kernel.
pub const CONFIG: Config = Config {
    model: if cfg!(fermata_model = "process-np") { Model::Process } else { Model::Interrupt },
};

impl Config {
    /// Its name, as `--config` takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.model {
            Model::Process => "process-np",
            Model::Interrupt => "interrupt-np",
        }
    }
}
