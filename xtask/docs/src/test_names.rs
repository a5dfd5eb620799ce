//! The names of all tests, found in the sources: which tests a page can name, and how many there are, without running
//! any.
//!
//! Names are those of `./fermata test` (`host/PACKAGE/NAME`, `guest/CONFIG/NAME`, ...), with `any` for the configuration.
//! Tests that a macro generates count as one here, however many it generates.

use std::path::Path;

use xtask_build::error::Error;
use xtask_build::project::{read_text, rust_files, Package, Project};

/// The names of all tests, kind by kind.
pub fn all(project: &Project) -> Result<Vec<String>, Error> {
    let scenarios = read_text(&project.root.join("tests/scenarios/mod.rs"))?;
    let mut known: Vec<String> = scenarios_in(&scenarios)
        .map(|name| format!("scenario/any/{name}"))
        .collect();
    let guest = of_guest(project)?.into_iter();
    known.extend(guest.map(|name| format!("guest/any/{name}")));
    let machine = of_machine(project)?.into_iter();
    known.extend(machine.map(|name| format!("machine/any/{name}")));
    for package in project
        .packages()?
        .iter()
        .filter(|package| package.on_host())
    {
        known.extend(host_tests(project, package)?);
    }
    Ok(known)
}

/// The names of the guest's tests, without the configuration in front.
pub fn of_guest(project: &Project) -> Result<Vec<String>, Error> {
    let mut known = Vec::new();
    for path in rust_files(&project.root.join("tests/guest/src"))? {
        known.extend(guest_tests(&read_text(&path)?));
    }
    Ok(known)
}

/// The names of the tests of the machine under the kernel, without the way to mask interrupts in front.
pub fn of_machine(project: &Project) -> Result<Vec<String>, Error> {
    let machine = read_text(&project.root.join("hal/examples/machine.rs"))?;
    // The table's rows are (a name, a program, a function of the same name).
    let names = machine.split('"').skip(1).step_by(2);
    let tests = names.filter(|name| machine.contains(&format!("fn {name}(")));
    Ok(tests.map(ToString::to_string).collect())
}

/// The scenarios of the table `ALL`: `scenario("NAME", FUNCTION)`, or `once`.
fn scenarios_in(source: &str) -> impl Iterator<Item = &str> {
    let lines = source
        .lines()
        .skip_while(|line| !line.contains("const ALL:"));
    let table = lines.take_while(|line| *line != "];");
    table.filter_map(|line| line.split('"').nth(1))
}

/// The tests of a file of the guest: `guest_test!(ID, NAME)`, examples, and those that are programs.
fn guest_tests(source: &str) -> impl Iterator<Item = String> + '_ {
    let registered = source.split("\nguest_test!(").skip(1).filter_map(|text| {
        let (id, rest) = text.split_once(',')?;
        let (name, _) = rest.split_once(')')?;
        Some(format!("{}_{}", id.trim(), name.trim()))
    });
    let examples = source.split("\nexamples!(").skip(1);
    let examples = examples.filter_map(|text| Some(text.split_once(')')?.0));
    let examples = examples.flat_map(str::split_whitespace);
    let programs = source.split("\n        name: \"").skip(1);
    let programs = programs.filter_map(|text| Some(text.split_once('"')?.0.to_string()));
    registered
        .chain(examples.map(|name| format!("example_{name}")))
        .chain(programs)
}

/// The tests of a package on the host, with their modules.
fn host_tests(project: &Project, package: &Package) -> Result<Vec<String>, Error> {
    let prefix = package.test_prefix();
    let root = project.root.join(&package.dir);
    let mut found = Vec::new();
    for path in rust_files(&root)? {
        let inside = path.strip_prefix(&root).unwrap_or(&path);
        // The file belongs to a package inside this one.
        let mut above = inside.ancestors().skip(1);
        if above.any(|at| at != Path::new("") && root.join(at).join("Cargo.toml").exists()) {
            continue;
        }
        let module = module_of(inside);
        for test in functions(&read_text(&path)?) {
            let parts = [module.as_str(), &test].into_iter();
            let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
            found.push(format!("{prefix}{}", parts.join("::")));
        }
    }
    Ok(found)
}

/// The module that a file is, from its path in the package: `src/tests/wild.rs` is `tests::wild`.
fn module_of(path: &Path) -> String {
    let path = path.with_extension("");
    let mut parts: Vec<String> = path
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    match parts[0].as_str() {
        "src" => {
            parts.remove(0);
        }
        // A program of its own: its name is not part of the names of its tests.
        _ => parts.clear(),
    }
    if parts.first().is_some_and(|part| part == "bin") {
        parts.clear();
    }
    if parts
        .last()
        .is_some_and(|part| ["lib", "main", "mod"].contains(&part.as_str()))
    {
        parts.pop();
    }
    parts.join("::")
}

/// The functions of a source that are tests, with their modules inside the file.
fn functions(source: &str) -> Vec<String> {
    let (mut module, mut is_test, mut found) = ("", false, Vec::new());
    for line in source.lines() {
        let code = line.trim();
        if let Some(name) = line.strip_prefix("mod ").and_then(|l| l.strip_suffix(" {")) {
            module = name;
        } else if line == "}" {
            module = "";
        } else if code == "#[test]" {
            is_test = true;
        } else if let (true, Some((_, rest))) = (is_test, code.split_once("fn ")) {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            found.push(match module {
                "" => name.to_string(),
                module => format!("{module}::{name}"),
            });
            is_test = false;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_in_sources() {
        let source = "#[test]\nfn outer() {}\nfn helper() {}\nmod tests {\n    #[test]\n    \
            #[ignore]\n    fn inner() {\n    }\n}\n#[test]\nfn last() {}\n";
        assert_eq!(functions(source), ["outer", "tests::inner", "last"]);
        for (path, module) in [
            ("src/lib.rs", ""),
            ("src/tests.rs", "tests"),
            ("src/tests/wild.rs", "tests::wild"),
            ("src/part/mod.rs", "part"),
            ("tests/hostile.rs", ""),
        ] {
            assert_eq!(module_of(Path::new(path)), module, "{path}");
        }
        let source = "\nguest_test!(A0001, does_it);\n\nexamples!(mutex\n    cond);\n\
            x {\n        name: \"HEADER1_c\",\n";
        let found: Vec<String> = guest_tests(source).collect();
        let wanted = [
            "A0001_does_it",
            "example_mutex",
            "example_cond",
            "HEADER1_c",
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn scenarios_are_the_rows_of_their_table() {
        let source = "fn f() {\n    g(\"x\");\n}\nconst ALL: &[Scenario] = &[\n    scenario(\"a\", f),\n    \
            once(\n        \"b\",\n        g,\n    ),\n];\nconst B: &str = \"c\";\n";
        assert!(scenarios_in(source).eq(["a", "b"]));
    }
}
