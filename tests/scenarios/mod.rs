//! Scenarios: whole machines that boot, run a script and are looked at from outside.
//!
//! Each is a function over [`Ctx`] that returns an error, or panics, when something is not as it
//! should be. It runs once per model. They are compiled into xtask; `xtask/src/scenario.rs` is
//! what they are written with. A new one goes into a file here and a line into [`ALL`].

use crate::scenario::{Ctx, Failure, Run, Scenario};

/// All scenarios.
pub(crate) const ALL: &[Scenario] = &[Scenario {
    name: "script_status",
    run: script_status,
    ignored: None,
}];

/// `exit N` powers the machine off with N, and nothing but the commands' output is printed.
fn script_status(ctx: &mut Ctx) -> Result<(), Failure> {
    let output = ctx.run(Run::script("# nothing\necho hello\nexit 7\n"))?;
    output.expect_status(7)?.expect_stdout("hello\n")?;
    Ok(())
}
