//! The programs of `examples/`, and one that `./fermata new` makes.

use crate::scenario::{Ctx, Failure, Run};
use xtask_build::program;
use xtask_build::project::{temp_dir, Project};

/// Each does what its first lines promise.
pub(crate) fn all(ctx: &mut Ctx) -> Result<(), Failure> {
    let project = Project::find().map_err(|error| error.message)?;
    let script = "\
hello
hello you
echo_server &
echo_client one two
counter plums=5 &
count
count apples 7
count apples
count pears
count
count apples @12 &
count apples +3
count pears +3
count apples +2
wait %3
count figs=2
count --sum
pager
checkpointer
primes
";
    let mut run = Run::script(script);
    let c = project.root.join("examples/c");
    for (name, file) in program::build(&project, &c).map_err(|error| error.message)? {
        run = run.add_program(&format!("/bin/{name}"), file);
    }
    let output = ctx.run(run)?;
    output.expect_status(0)?.expect_stdout(
        "\
hello, world
hello, you
one
two
1
7
7
count: there is no such counter
2
10
count: there is no such counter
12
12
2
19
page 3 is wanted
page 3 has 9
page 700 is wanted
page 700 has 490000
page 3 has 9
page 44 is wanted
page 44 has 1936
undisturbed: 0xef3fa7ad8419a334
saved and restored 20 times: 0xef3fa7ad8419a334
",
    )?;
    Ok(())
}

/// A new program builds outside of the checkout, and runs.
pub(crate) fn new(ctx: &mut Ctx) -> Result<(), Failure> {
    let project = Project::find().map_err(|error| error.message)?;
    let scratch = temp_dir().map_err(|error| error.message)?;
    let directory = scratch.path().join("newcomer");
    program::create(&project, &directory).map_err(|error| error.message)?;
    let built = program::build(&project, &directory).map_err(|error| error.message)?;
    let [(name, file)] = &built[..] else {
        return Err(format!("{} programs", built.len()));
    };
    let run =
        Run::script(format!("{name} there\n")).add_program(&format!("/bin/{name}"), &file[..]);
    ctx.run(run)?
        .expect_status(0)?
        .expect_stdout("hello, there\n")?;
    // What does not compile is refused.
    let main = directory.join("src/main.rs");
    std::fs::write(main, "fn main() { nonsense }").map_err(|error| error.to_string())?;
    match program::build(&project, &directory) {
        Err(error) if error.message.contains("does not build") => Ok(()),
        other => Err(format!("{:?}", other.map(|built| built.len()))),
    }
}
