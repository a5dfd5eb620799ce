//! `./fermata prove --model`: the specification explored exhaustively, in small systems
//! (`spec/model`, docs/model.md).

use xtask_build::config::Config;
use xtask_build::error::Error;
use xtask_build::project::{BuildTarget, Project};

/// Explores every scene, `size` moves farther than `test` does.
pub fn run(project: &Project, size: u8) -> Result<u8, Error> {
    let mut command = project.cargo(BuildTarget::Host, Config::DEFAULT, "run");
    command.args(["--quiet", "--package", "fermata-model", "--"]);
    command.arg(size.to_string());
    let status = command
        .status()
        .map_err(|error| Error::new(format!("cannot run cargo: {error}")))?;
    Ok(u8::from(!status.success()))
}
