//! How the kernel holds interrupts back.

/// How interrupts are masked (Stodolsky et al., 1993).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Irq {
    /// By the processor's interrupt flag and the controllers.
    Hardware,
    /// By a word in memory, which an interrupt finds when it comes.
    Optimistic,
}

/// How this kernel masks them, chosen at build time.
pub const IRQ: Irq = if cfg!(fermata_irq = "optimistic") {
    Irq::Optimistic
} else {
    Irq::Hardware
};
