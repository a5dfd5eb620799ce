//! No row of the table of calls is without a conformance test.
//!
//! The tests of `kernel/src/test` note each result that a call has given them, and end with
//! `complete("Object")`, which fails unless every row of that object has given every code that it
//! lists. So what is left to see here is that there is such a test for the object of every row: a
//! row of a new object would otherwise be met by nobody.

use std::collections::BTreeSet;

use abi::SYSCALLS;

use crate::project::Project;

/// The objects whose tests are complete or fail: the arguments of `complete` in code that is run.
fn objects(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in source
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//"))
    {
        let mut rest = line;
        while let Some((_, after)) = rest.split_once(".complete(\"") {
            let Some((object, tail)) = after.split_once("\")") else {
                break;
            };
            found.insert(object.to_string());
            rest = tail;
        }
    }
    found
}

#[test]
fn every_row_has_a_conformance_test() {
    let project = Project::find().expect("the checkout");
    let directory = project.root.join("kernel/src/test");
    let mut tested = BTreeSet::new();
    for entry in std::fs::read_dir(directory).expect("the kernel's tests") {
        let path = entry.expect("a file").path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            tested.extend(objects(
                &std::fs::read_to_string(path).expect("a source file"),
            ));
        }
    }
    let missing: Vec<&str> = SYSCALLS
        .iter()
        .filter(|call| !tested.contains(call.object))
        .map(|call| call.name)
        .collect();
    assert!(
        missing.is_empty(),
        "calls without a conformance test: {}",
        missing.join(", ")
    );
}

#[test]
fn what_is_commented_out_tests_nothing() {
    let source = "    met.complete(\"Mutex\");\n    // met.complete(\"Cond\");\n";
    assert_eq!(objects(source).into_iter().collect::<Vec<_>>(), ["Mutex"]);
}
