//! The programs of `examples/`, one made by `./fermata new`, and the steps of the tutorial.

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
    // A program that does not compile is refused.
    let main = directory.join("src/main.rs");
    std::fs::write(main, "fn main() { nonsense }").map_err(|error| error.to_string())?;
    match program::build(&project, &directory) {
        Err(error) if error.message.contains("does not build") => Ok(()),
        other => Err(format!("{:?}", other.map(|built| built.len()))),
    }
}

/// The part of a page between two texts.
fn between<'a>(page: &'a str, start: &str, end: &str) -> Result<&'a str, Failure> {
    let found = page
        .split_once(start)
        .and_then(|(_, rest)| rest.split_once(end));
    found
        .map(|(found, _)| found)
        .ok_or_else(|| format!("the tutorial has no '{start}'"))
}

/// The programs and scripts of `docs/tutorial.md`, unchanged, do what it says.
pub(crate) fn tutorial(ctx: &mut Ctx) -> Result<(), Failure> {
    let text = |error: std::io::Error| error.to_string();
    let project = Project::find().map_err(|error| error.message)?;
    let page = std::fs::read_to_string(project.root.join("docs/tutorial.md")).map_err(text)?;
    let scratch = temp_dir().map_err(|error| error.message)?;
    let tally = scratch.path().join("tally");
    program::create(&project, &tally).map_err(|error| error.message)?;
    // The effect of the line with `sed`.
    let manifest = std::fs::read_to_string(tally.join("Cargo.toml")).map_err(text)?;
    let edit = between(&page, "sed -i '", "' ../tally/Cargo.toml")?;
    let edited = std::process::Command::new("sed")
        .arg(edit)
        .arg(tally.join("Cargo.toml"))
        .output();
    let edited = String::from_utf8_lossy(&edited.map_err(text)?.stdout).into_owned();
    if edited.lines().count() != manifest.lines().count() + 1 {
        return Err(format!("the dependency was not added: {edited}"));
    }
    std::fs::write(tally.join("Cargo.toml"), edited).map_err(text)?;
    std::fs::create_dir(tally.join("src/bin")).map_err(text)?;
    for file in ["src/lib.rs", "src/main.rs", "src/bin/add.rs"] {
        let code = between(&page, &format!("`../tally/{file}`:\n\n```rust\n"), "```\n")?;
        std::fs::write(tally.join(file), code).map_err(text)?;
    }
    let built = program::build(&project, &tally).map_err(|error| error.message)?;
    let with = |name: &str| {
        let script = between(&page, &format!("cat > ../{name} <<'END'\n"), "END\n")?;
        let run = Run::script(script);
        Ok::<_, Failure>(built.iter().fold(run, |run, (name, file)| {
            run.add_program(&format!("/bin/{name}"), &file[..])
        }))
    };
    // The page says the same.
    let says = |output: &str| match page.contains(&format!("{output}```\n")) {
        true => Ok(()),
        false => Err(format!(
            "the tutorial does not end an output with '{output}'"
        )),
    };
    let used = "40\n42\nadd: invalid argument\n";
    ctx.run(with("use")?)?
        .expect_status(0)?
        .expect_stdout(used)?;
    says(used)?;
    let mut ends_with = |name: &str, add: Option<(&str, Vec<u8>)>, get: &str, end: &str| {
        let mut run = with(name)?.get(get);
        if let Some((guest, content)) = add {
            run = run.add(guest, content);
        }
        let output = ctx.run(run)?;
        output.expect_status(0)?;
        if !output.text().ends_with(end) {
            return Err(format!("{name}: {}", output.text()));
        }
        output.file(get).map(<[u8]>::to_vec)
    };
    let image = "/tmp/tally.image";
    let saved = ends_with("save", None, image, "\n43\n")?;
    ends_with("again", Some((image, saved)), image, "\n142\n")?;
    says("\n43\n")?;
    says("\n142\n")?;
    let image = "/tmp/image";
    let saved = ends_with("one", None, image, "")?;
    ends_with("two", Some((image, saved)), image, "\n1999999000000\n")?;
    says("\n1999999000000\n")
}
