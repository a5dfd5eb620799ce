//! The promises of `docs/security.md`, and the tests that the page names for them.
//!
//! The last column of the page's first table is read. It has groups with `;` between them, each one of
//!
//! | | |
//! |---|---|
//! | `` `NAME`, `NAME` `` | scenarios |
//! | `` `NAME`: `PART`, `PART` `` | a scenario, and words by which it names parts of its own |
//! | `` `host/PACKAGE` `` | all tests of a package on the host |
//! | `` `host/PACKAGE`: `NAME`, `NAME` `` | some: functions, or modules with all that is in them |
//! | `` `guest/`: `NAME` ``, `` `machine/`: `NAME` `` | tests of the guest and of the machine under the kernel |
//! | `` `./fermata ...` `` | a command |
//! | `no test` and why | that there is none |
//!
//! Text outside the backticks is for the reader. `./fermata check` checks that all of these exist ([`missing`]), and
//! `./fermata test attack` runs them ([`named`]).

use crate::filter::Name;
use xtask_build::error::Error;
use xtask_build::project::{read_text, rust_files, Project};
use xtask_docs::test_names;

/// The page.
pub(crate) const PAGE: &str = "docs/security.md";
/// The directory of the scenarios, which contain the words for their parts.
const SCENARIOS: &str = "tests/scenarios";
/// The beginning of a cell for a promise without a test.
const NO_TEST: &str = "no test";
/// The beginning of a command.
const COMMAND: &str = "./fermata ";

/// An item of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shown {
    Test(Name),
    /// A word of the scenario before it.
    Part(String),
    /// A command without `./fermata`.
    Command(String),
}

/// A promise.
struct Row {
    /// Its line, from one.
    line: usize,
    /// The text of the promise.
    promise: String,
    /// The items of its cell, or what is wrong with the cell.
    shown: Vec<Result<Shown, String>>,
}

/// The rows of the first table.
fn rows(page: &str) -> Vec<Row> {
    let lines = (1..).zip(page.lines());
    let table = lines
        .skip_while(|(_, line)| !line.starts_with('|'))
        .take_while(|(_, line)| line.starts_with('|'));
    // Behind the table's head, and the line below that.
    let row = |(line, text): (usize, &str)| {
        let cells: Vec<&str> = text.trim_matches('|').split('|').map(str::trim).collect();
        let promise = cells[..cells.len() - 1].join(", ");
        Row {
            line,
            promise: promise.chars().take(80).collect(),
            shown: shown(cells[cells.len() - 1]),
        }
    };
    table.skip(2).map(row).collect()
}

/// The items of a cell.
fn shown(cell: &str) -> Vec<Result<Shown, String>> {
    if cell.starts_with(NO_TEST) {
        return Vec::new();
    }
    cell.split(';').flat_map(group).collect()
}

/// The items of a group of a cell.
fn group(text: &str) -> Vec<Result<Shown, String>> {
    let quoted: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    let Some((&first, rest)) = quoted.split_first() else {
        return vec![Err(format!("'{}' names nothing", text.trim()))];
    };
    let test = |name: Name| Ok(Shown::Test(name));
    let behind_colon = text
        .split_once('`')
        .and_then(|(_, text)| text.split_once('`'))
        .is_some_and(|(_, text)| text.starts_with(':'));
    let names = rest.iter().map(|name| (*name).to_string());
    if let Some(command) = first.strip_prefix(COMMAND) {
        return vec![Ok(Shown::Command(command.into()))];
    }
    if let Some(package) = first.strip_prefix("host/") {
        let host = |name: Option<String>| {
            let package = package.to_string();
            test(Name::Host { package, name })
        };
        return match rest.is_empty() {
            true => vec![host(None)],
            false => names.map(|name| host(Some(name))).collect(),
        };
    }
    if let "guest/" | "machine/" = first {
        let name = |name: String| match first {
            "guest/" => test(Name::Guest(name)),
            _ => test(Name::Machine(name)),
        };
        return match rest.is_empty() {
            true => vec![Err(format!("'{first}' without a name"))],
            false => names.map(name).collect(),
        };
    }
    let scenario = test(Name::Scenario(first.into()));
    let others = names.map(|name| match behind_colon {
        true => Ok(Shown::Part(name)),
        false => test(Name::Scenario(name)),
    });
    std::iter::once(scenario).chain(others).collect()
}

fn page(project: &Project) -> Result<String, Error> {
    read_text(&project.root.join(PAGE))
}

/// The tests that the page names.
pub(crate) fn named(project: &Project) -> Result<Vec<Name>, Error> {
    let test = |shown| match shown {
        Ok(Shown::Test(name)) => Some(name),
        _ => None,
    };
    let rows = rows(&page(project)?).into_iter();
    Ok(rows.flat_map(|row| row.shown).filter_map(test).collect())
}

/// The items of the page that do not exist: one line each, with the row and the name. `is_command` says whether these
/// words are a valid command.
pub fn missing(project: &Project, is_command: &dyn Fn(&str) -> bool) -> Result<Vec<String>, Error> {
    let known = test_names::all(project)?;
    let mut words = Vec::new();
    for path in rust_files(&project.root.join(SCENARIOS))? {
        words.extend(literal_words(&read_text(&path)?));
    }
    let wrong = |shown: &Result<Shown, String>| match shown {
        Ok(Shown::Test(name)) if known.iter().any(|test| name.takes(test)) => None,
        Ok(Shown::Test(name)) => Some(format!("there is no test {}", words_of(name))),
        Ok(Shown::Part(part)) if words.contains(part) => None,
        Ok(Shown::Part(part)) => Some(format!("no scenario says `{part}`")),
        Ok(Shown::Command(command)) if is_command(command) => None,
        Ok(Shown::Command(command)) => Some(format!("there is no command `{COMMAND}{command}`")),
        Err(why) => Some(why.clone()),
    };
    let rows = rows(&page(project)?);
    if rows.is_empty() {
        return Ok(vec![format!("{PAGE}: there is no table of promises")]);
    }
    let lines = rows.iter().flat_map(|row| {
        let wrong = row.shown.iter().filter_map(wrong);
        wrong.map(|why| format!("{PAGE}:{}: {why} (of: {})", row.line, row.promise))
    });
    Ok(lines.collect())
}

/// The name in the form that the page uses.
fn words_of(name: &Name) -> String {
    match name {
        Name::Scenario(name) => format!("`{name}` among the scenarios"),
        Name::Guest(name) => format!("`guest/`: `{name}`"),
        Name::Machine(name) => format!("`machine/`: `{name}`"),
        Name::Host { package, name } => match name {
            Some(name) => format!("`host/{package}`: `{name}`"),
            None => format!("of `host/{package}`"),
        },
    }
}

/// The words, separated by spaces, of all string literals in a source.
fn literal_words(source: &str) -> Vec<String> {
    let literals = source.split('"').skip(1).step_by(2);
    let part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    literals
        .flat_map(|text| text.split(move |c| !part(c)))
        .filter(|word| !word.is_empty())
        .map(Into::into)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios;

    fn host(package: &str, name: Option<&str>) -> Shown {
        Shown::Test(Name::Host {
            package: package.into(),
            name: name.map(Into::into),
        })
    }

    fn scenario(name: &str) -> Shown {
        Shown::Test(Name::Scenario(name.into()))
    }

    #[test]
    fn cells_are_understood() {
        let page = "text\n\n| to | shown by |\n|---|---|\n\
            | a | `one`, `two`, a part for each; `host/servers-net`: `f`, `m::g` |\n\
            | b | `attack`: `x`, twice; `host/servers-random`; `./fermata prove --drivers` |\n\
            | c | `guest/`: `SERVICE1`; `machine/`: `below` |\n\
            | d | no test: nobody can see it |\n\
            | e | by hand |\n\n| other | table |\n|---|---|\n| x | `y` |\n";
        let rows = rows(page);
        let lines: Vec<usize> = rows.iter().map(|row| row.line).collect();
        assert_eq!(lines, [5, 6, 7, 8, 9]);
        let mut shown = rows.into_iter().map(|row| {
            let shown: Result<Vec<Shown>, String> = row.shown.into_iter().collect();
            shown
        });
        let mut next = || shown.next().expect("a row");
        let net = |name| host("servers-net", Some(name));
        let all = vec![scenario("one"), scenario("two"), net("f"), net("m::g")];
        assert_eq!(next(), Ok(all));
        let part = Shown::Part("x".into());
        let command = Shown::Command("prove --drivers".into());
        let all = vec![
            scenario("attack"),
            part,
            host("servers-random", None),
            command,
        ];
        assert_eq!(next(), Ok(all));
        let guest = Shown::Test(Name::Guest("SERVICE1".into()));
        let machine = Shown::Test(Name::Machine("below".into()));
        assert_eq!(next(), Ok(vec![guest, machine]));
        assert_eq!(next(), Ok(Vec::new()));
        assert!(next().is_err(), "a cell that names nothing");
    }

    #[test]
    fn the_scenarios_are_those_of_the_sources() {
        let project = Project::find().expect("the checkout");
        let known = test_names::all(&project).expect("tests");
        let named = known
            .iter()
            .filter_map(|name| name.strip_prefix("scenario/any/"));
        let all = scenarios::ALL.iter().map(|scenario| scenario.name);
        assert!(
            named.eq(all),
            "the sources have other scenarios than the program"
        );
    }

    #[test]
    fn the_page_names_what_there_is() {
        let project = Project::find().expect("the checkout");
        let missing = missing(&project, &|_| true).expect("a page");
        assert!(missing.is_empty(), "{}", missing.join("\n"));
        let named = named(&project).expect("names");
        assert!(named.len() >= 100, "only {} tests", named.len());
        // `is_command` is called for commands.
        let none = super::missing(&project, &|_| false).expect("a page");
        assert!(none
            .iter()
            .any(|line| line.contains("./fermata prove --drivers")));
    }

    #[test]
    fn a_test_that_is_not_there_is_missed() {
        let project = Project::find().expect("the checkout");
        let known = test_names::all(&project).expect("tests");
        let is_known = |shown: &Shown| match shown {
            Shown::Test(name) => known.iter().any(|test| name.takes(test)),
            _ => false,
        };
        assert!(is_known(&scenario("attack_power")));
        assert!(!is_known(&scenario("attack_powers")));
        assert!(is_known(&host("xtask-test", Some("cells_are_understood"))));
        assert!(!is_known(&host(
            "servers-net",
            Some("cells_are_understood")
        )));
        assert!(!is_known(&host("servers-nothing", None)));
        let machine = |name: &str| Shown::Test(Name::Machine(name.into()));
        assert!(is_known(&machine("collocated_from_below")));
        assert!(!is_known(&machine("tests done")));
        let guest = |name: &str| Shown::Test(Name::Guest(name.into()));
        assert!(is_known(&guest("example_device")));
        assert!(!is_known(&guest("EXCEPTION")));
    }
}
