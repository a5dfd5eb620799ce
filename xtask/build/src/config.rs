//! The configurations of the kernel: an execution model with its preemption, and how interrupts are masked.
//! [`Config::parse`] reads the argument of `--config`; the lists in here say which configurations exist, and which of
//! them a command uses by default.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

/// Declares the models, each with its name.
macro_rules! models {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// What a waiting thread keeps, and where in the kernel it can be preempted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Model {
            $($(#[$doc])* $variant,)*
        }

        /// All models.
        const MODELS: &[Model] = &[$(Model::$variant,)*];

        impl Model {
            /// The name on the command line and in `cfg(fermata_model)`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Model::$variant => $name,)*
                }
            }
        }

        impl Config {
            /// Its name, in the form of `--config`: the model, and the masking if that is not the default.
            pub const fn name(self) -> &'static str {
                match (self.model, self.irq) {
                    $((Model::$variant, Irq::Hardware) => $name,
                    (Model::$variant, Irq::Optimistic) => concat!($name, ",irq=optimistic"),)*
                }
            }
        }
    };
}

models! {
    /// Every thread has a kernel stack; no preemption in the kernel.
    ProcessNp "process-np",
    /// The same, with preemption points.
    ProcessPp "process-pp",
    /// The same, preemptible everywhere.
    ProcessFp "process-fp",
    /// One kernel stack for all; no preemption in the kernel.
    InterruptNp "interrupt-np",
    /// The same, with preemption points.
    InterruptPp "interrupt-pp",
    /// A waiting thread stores a continuation, and keeps a stack where that does not suffice; no preemption in the
    /// kernel.
    ContinuationNp "continuation-np",
    /// The same, with preemption points.
    ContinuationPp "continuation-pp",
    /// The same, preemptible everywhere.
    ContinuationFp "continuation-fp",
}

/// How the kernel masks interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Irq {
    /// By the processor's flag and its controllers.
    Hardware,
    /// By a word in memory, which the interrupt's entry reads.
    Optimistic,
}

impl Irq {
    /// Both.
    pub const ALL: [Irq; 2] = [Irq::Hardware, Irq::Optimistic];

    /// The name on the command line and in `cfg(fermata_irq)`.
    pub const fn name(self) -> &'static str {
        match self {
            Irq::Hardware => "hardware",
            Irq::Optimistic => "optimistic",
        }
    }
}

/// A configuration of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub model: Model,
    pub irq: Irq,
}

// ---- which exist: the lists to extend when the kernel gets more ----------------------------------

/// The models that the kernel has. All are type-checked by `./fermata check`; only these can be
/// chosen.
const EXISTING: &[Model] = &[
    Model::ProcessNp,
    Model::ProcessPp,
    Model::ProcessFp,
    Model::InterruptNp,
    Model::InterruptPp,
    Model::ContinuationNp,
    Model::ContinuationPp,
    Model::ContinuationFp,
];

/// The maskings that the kernel has.
const MASKINGS: &[Irq] = &[Irq::Hardware, Irq::Optimistic];

/// The default of `./fermata test` and `./fermata build`: one of each model, and one that is preemptible everywhere.
const TESTED: &[Model] = &[Model::ProcessNp, Model::InterruptNp, Model::ContinuationFp];

/// The models in which every call is cut at every site, unless a configuration is named.
const CUT: &[Model] = &[Model::ProcessNp, Model::InterruptNp];

/// The models in which `--all` repeats the tests with servers in the kernel: the default one, and one that is
/// preemptible everywhere.
const PLACED: &[Model] = &[Model::InterruptNp, Model::ProcessFp];

/// The models that `--all` takes with optimistic masking as well.
const ALSO_OPTIMISTIC: &[Model] = &[Model::ProcessNp, Model::InterruptNp, Model::ContinuationNp];

/// The model whose forgetful kernel `./fermata test` runs by default. With `--all` it runs the forgetful kernel of
/// every model in which a waiting thread keeps something besides its frame.
const FORGETFUL: Model = Model::ContinuationFp;

/// The maskings that `--all` includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// Every model by hardware, and some optimistically.
    #[value(skip)]
    Usual,
    /// Every model by hardware.
    Hardware,
    /// Every model optimistically.
    Optimistic,
    /// Every model with both.
    Both,
}

/// The options of every command that takes several configurations.
#[derive(Args, Clone, Debug, Default)]
pub struct Choice {
    /// Only this configuration of the kernel
    #[arg(long, value_parser = Config::parser(), hide_possible_values = true, conflicts_with = "all")]
    config: Option<Config>,
    /// Every model, and the models without preemption also with irq=optimistic
    #[arg(long)]
    all: bool,
    /// With --all: every model with this way to mask interrupts, or with both
    #[arg(long, value_name = "WHICH", requires = "all")]
    irq: Option<Which>,
}

impl Choice {
    /// Whether `--all` was given.
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// The configurations that the options choose, or `default`.
    pub fn among(&self, default: Vec<Config>) -> Vec<Config> {
        match (self.config, self.all) {
            (Some(config), _) => vec![config],
            (None, true) => Config::all(self.irq.unwrap_or(Which::Usual)),
            (None, false) => default,
        }
    }
}

impl Config {
    /// The default configuration of commands.
    pub const DEFAULT: Config = Config::hardware(Model::InterruptNp);

    /// A model that masks by hardware.
    pub const fn hardware(model: Model) -> Config {
        Config {
            model,
            irq: Irq::Hardware,
        }
    }

    /// The configuration of the kernel that tests the machine: a model that uses all functions of `hal`, including
    /// those for stacks.
    pub const fn machine(irq: Irq) -> Config {
        Config {
            model: Model::ProcessFp,
            irq,
        }
    }

    /// Whether its forgetful kernel is tested; `all` if every model's is.
    pub fn is_tested_forgetful(self, all: bool) -> bool {
        let keeps = !matches!(self.model, Model::InterruptNp | Model::InterruptPp);
        keeps && (all || self.model == FORGETFUL)
    }

    /// The name of its directory below the target directory.
    pub fn directory(self) -> String {
        self.name().replace(",irq=", "-")
    }

    /// Whether the kernel has it.
    fn exists(self) -> bool {
        EXISTING.contains(&self.model) && MASKINGS.contains(&self.irq)
    }

    /// Every configuration, whether it exists or not.
    pub fn every() -> Vec<Config> {
        let with = |irq| move |&model| Config { model, irq };
        Irq::ALL
            .into_iter()
            .flat_map(|irq| MODELS.iter().map(with(irq)))
            .collect()
    }

    /// The configurations of `--all`.
    pub fn all(which: Which) -> Vec<Config> {
        let wanted = |config: &Config| match which {
            Which::Both => true,
            Which::Hardware => config.irq == Irq::Hardware,
            Which::Optimistic => config.irq == Irq::Optimistic,
            Which::Usual => config.irq == Irq::Hardware || ALSO_OPTIMISTIC.contains(&config.model),
        };
        Config::every()
            .into_iter()
            .filter(|config| config.exists() && wanted(config))
            .collect()
    }

    /// The maskings among several configurations: all that exist, or that of a single configuration.
    pub fn maskings(configs: &[Config]) -> Vec<Irq> {
        let only = |irq: &Irq| configs.len() != 1 || configs[0].irq == *irq;
        MASKINGS.iter().copied().filter(only).collect()
    }

    /// The configurations that are tested by default.
    pub fn tested() -> Vec<Config> {
        TESTED.iter().copied().map(Config::hardware).collect()
    }

    /// Whether `test --all` repeats all its tests with servers in the kernel.
    pub fn is_placed(&self) -> bool {
        PLACED.contains(&self.model) && self.irq == Irq::Hardware
    }

    /// Whether cuts at every site are made in it by default.
    pub fn is_cut(&self) -> bool {
        CUT.contains(&self.model) && self.irq == Irq::Hardware
    }

    /// Whether the kernel can be preempted anywhere.
    pub fn is_preemptible(&self) -> bool {
        matches!(self.model, Model::ProcessFp | Model::ContinuationFp)
    }

    /// The configuration that `text` names: `MODEL[,irq=hardware|optimistic]`.
    pub fn parse(text: &str) -> Option<Config> {
        let (model, irq) = text
            .split_once(",irq=")
            .unwrap_or((text, Irq::Hardware.name()));
        Config::all(Which::Both)
            .into_iter()
            .find(|config| config.model.name() == model && config.irq.name() == irq)
    }

    /// Reads an option of a command in this form; help and completions list all names.
    pub fn parser() -> impl TypedValueParser<Value = Config> {
        let value = |config: Config| {
            let explicit = format!("{},irq={}", config.model.name(), config.irq.name());
            PossibleValue::new(config.name()).alias(explicit)
        };
        PossibleValuesParser::new(Config::all(Which::Both).into_iter().map(value)).try_map(|text| {
            Config::parse(&text).ok_or_else(|| format!("'{text}' is no configuration"))
        })
    }

    /// The `--cfg` flags that choose the configuration when the kernel is compiled.
    pub fn flags(self) -> [String; 4] {
        let (model, irq) = (self.model.name(), self.irq.name());
        [
            "--cfg".into(),
            format!("fermata_model=\"{model}\""),
            "--cfg".into(),
            format!("fermata_irq=\"{irq}\""),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for config in Config::all(Which::Both) {
            assert_eq!(Config::parse(config.name()), Some(config));
            let explicit = format!("{},irq={}", config.model.name(), config.irq.name());
            assert_eq!(Config::parse(&explicit), Some(config));
        }
        for text in [
            "",
            "process",
            "irq=hardware",
            "process-np,irq=soft",
            "process-np,",
        ] {
            assert!(Config::parse(text).is_none(), "'{text}' was accepted");
        }
    }

    #[test]
    fn the_lists_agree() {
        assert_eq!(Config::every().len(), 16);
        assert!(Config::DEFAULT.exists());
        assert!(Config::tested().into_iter().all(Config::exists));
        let both = Config::all(Which::Both);
        assert!(Config::all(Which::Usual).iter().all(|c| both.contains(c)));
        assert_eq!(both.len(), EXISTING.len() * MASKINGS.len());
    }
}
