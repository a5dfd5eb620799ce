//! Checks that every row of the table of calls has a conformance test.
//!
//! The tests are those of `kernel/src/test/conformance.rs`, which lists them by the stable names of the rows and
//! fails where a test does not show everything that its row says. So this checks only that the list is complete:
//! tests that are removed from the build together would otherwise go unnoticed. It also checks that no test of the
//! guest has the name of a row that it does not test.

use abi::SYSCALLS;

use xtask_build::project::Project;

fn source(project: &Project, file: &str) -> String {
    std::fs::read_to_string(project.root.join(file)).unwrap_or_else(|why| panic!("{file}: {why}"))
}

/// The words between `rows! {` and its end.
fn listed(source: &str) -> Vec<&str> {
    let lines = source.lines().filter(|line| !line.trim().starts_with("//"));
    lines
        .skip_while(|line| *line != "rows! {")
        .skip(1)
        .take_while(|line| *line != "}")
        .flat_map(str::split_whitespace)
        .collect()
}

#[test]
fn every_row_has_a_conformance_test() {
    let project = Project::find().expect("the checkout");
    let tests = source(&project, "kernel/src/test/conformance.rs");
    let tests = listed(&tests);
    let missing: Vec<String> = SYSCALLS
        .iter()
        .map(|call| (call.id().to_string(), call.name))
        .filter(|(id, _)| !tests.contains(&id.as_str()))
        .map(|(id, name)| format!("{id} {name}"))
        .collect();
    assert!(
        missing.is_empty(),
        "calls without a conformance test: {}",
        missing.join(", ")
    );
    let modules = source(&project, "kernel/src/test/mod.rs");
    assert!(
        modules.lines().any(|line| line == "mod conformance;"),
        "the conformance tests are not built"
    );
}

#[test]
fn no_other_test_has_the_name_of_a_row() {
    let project = Project::find().expect("the checkout");
    let directory = project.root.join("tests/guest/src/tests");
    for entry in std::fs::read_dir(directory).expect("the guest's tests") {
        let path = entry.expect("a file").path();
        let text = std::fs::read_to_string(&path).expect("a source file");
        for call in SYSCALLS {
            let name = format!("guest_test!({},", call.id());
            assert!(!text.contains(&name), "{}: {name}", path.display());
        }
    }
}

#[test]
fn what_is_commented_out_tests_nothing() {
    let source = "rows! {\n    PORT0001\n    // PORT0002\n}\nPORT0003\n";
    assert_eq!(listed(source), ["PORT0001"]);
}
