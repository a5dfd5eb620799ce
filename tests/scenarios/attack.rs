//! Hostile programs, each with what an ordinary program has: what comes of it, and that everybody else goes on.
//! `docs/security.md` says which promise each of them shows.

use crate::scenario::{Ctx, Failure, Run};

/// Power over processes and over the machine is not to be had by asking for it.
pub(crate) fn power(ctx: &mut Ctx) -> Result<(), Failure> {
    let script = "\
/test/attack peek
/test/attack power
/test/attack control
/test/attack priority
echo alive
";
    let output = ctx.run(Run::script(script))?;
    output.expect_status(0)?.expect_stdout(
        "peek: all processes of native: invalid argument\n\
         peek: the supervisor of native: permission denied\n\
         peek: all processes of linux: invalid argument\n\
         peek: the supervisor of linux: permission denied\n\
         power: off: permission denied\n\
         power: a report: permission denied\n\
         power: off by another port: refused\n\
         power: off by another port: refused\n\
         control: of its own: DONE\n\
         control: of its own port: permission denied\n\
         control: of a service: permission denied\n\
         control: kill by its own port: refused\n\
         control: what is forgotten: the server does not answer sensibly\n\
         control: the other: Running\n\
         priority: 31: refused\n\
         priority: 16: refused\n\
         priority: 14: refused\n\
         priority: 12: refused\n\
         priority: 9: refused\n\
         alive\n",
    )?;
    Ok(())
}

/// What can be had is bounded for each job, is refused with a sentence, and is free again when it ends.
pub(crate) fn limits(ctx: &mut Ctx) -> Result<(), Failure> {
    let limit = "there are as many as there may be";
    let denied = "permission denied";
    let script = "\
/test/attack names
/test/attack names
/test/attack watch
/test/attack checkpointer
/test/attack part
/test/attack bomb
/test/attack bomb
sleep 0.1 &
wait %1
busybox true
echo alive
";
    let reserved = |name: &str| format!("names: {name}: {denied}\n");
    let names = [
        "names",
        "memory",
        "native",
        "fs",
        "console",
        "linux",
        "checkpoint",
        "with the system port",
    ];
    let names: String = names.iter().map(|name| reserved(name)).collect();
    let names = format!("{names}names: 32 of its own, then: {limit}\n");
    let output = ctx.run(Run::script(script))?;
    output.expect_status(0)?.expect_stdout(&format!(
        "{names}{names}\
         watch: 16 watchers, then: {limit}\n\
         watch: DONE\n\
         checkpointer: save: this is no process of native: {denied}\n\
         checkpointer: save: this is no process of linux: {denied}\n\
         checkpointer: save: there is no manager nobody\n\
         checkpointer: save its own: DONE\n\
         checkpointer: restore: /tmp/attack: native refuses it: {denied}\n\
         checkpointer: restore: it is not said for whom\n\
         part: for a port that is nobody's: {denied}\n\
         part: nonsense: not in a valid format\n\
         part: then: Killed(9)\n\
         part: 31 begun, then: {limit}\n\
         part: go on with nothing: invalid argument\n\
         bomb: 31 processes, then: {limit}\n\
         bomb: 31 processes, then: {limit}\n\
         alive\n",
    ))?;
    Ok(())
}

/// What a program leaves behind, or takes away from its manager, is its own trouble: its manager, the
/// memory server and the checkpointer go on, and nothing is left.
pub(crate) fn remains(ctx: &mut Ctx) -> Result<(), Failure> {
    let round = "\
/test/attack hollow
/test/attack vacant-exit
/test/attack vacant > /tmp/out &
sleep 0.05
ps > /tmp/during
checkpoint %1 /tmp/image
kill %1
ps > /tmp/ps
";
    // In the first round servers set up what they keep.
    let script = format!("{}echo alive\n", round.repeat(2));
    let output = ctx.run(Run::script(script).get("/tmp/during").get("/tmp/ps"))?;
    output.expect_status(0)?;
    let text = output.text();
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        "hollow: Killed(9)",
        "vacant: Ok",
        "checkpoint: /test/attack vacant has a reference",
    ];
    let expected: Vec<&str> = [expected, expected].concat();
    let fits = lines.len() == expected.len() + 1
        && lines
            .iter()
            .zip(expected)
            .all(|(line, start)| line.starts_with(start))
        && text.ends_with("alive\n");
    assert!(fits, "{text}");
    let during = String::from_utf8_lossy(output.file("/tmp/during")?);
    assert!(during.contains("/test/attack vacant"), "{during}");
    let after = String::from_utf8_lossy(output.file("/tmp/ps")?);
    assert!(!after.contains("attack"), "{after}");
    Ok(())
}
