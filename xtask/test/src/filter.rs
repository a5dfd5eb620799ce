//! Which tests are wanted: all, those with a text in their names, or those of a list.

use crate::scenarios;
use crate::security;
use xtask_build::error::Error;
use xtask_build::project::Project;

/// The text that stands for the tests of [`security::PAGE`].
const ATTACK: &str = "attack";

/// The prefixes of the names of tests, by their kinds.
const KINDS: [&str; 8] = [
    "host/",
    "machine",
    "guest/",
    "forgetful",
    "scenario/",
    "placed",
    "bench/",
    "cut",
];

/// Which tests are wanted.
pub(crate) enum Filter {
    /// Every test.
    All,
    /// Tests whose names contain this.
    Containing(String),
    /// Tests that one of these names.
    Named(Vec<Name>),
}

impl Filter {
    /// The filter of a command line: without a text, all tests; `attack` stands for the tests of the page of promises
    /// and the scenarios whose names begin like that.
    pub(crate) fn new(project: &Project, text: Option<&str>) -> Result<Self, Error> {
        let Some(text) = text else {
            return Ok(Filter::All);
        };
        if text != ATTACK {
            return Ok(Filter::Containing(text.into()));
        }
        let mut names = security::named(project)?;
        for scenario in scenarios::ALL {
            if scenario.name.starts_with(ATTACK) {
                names.push(Name::Scenario(scenario.name.into()));
            }
        }
        Ok(Filter::Named(names))
    }

    /// Whether the test of this name is wanted.
    pub(crate) fn takes(&self, name: &str) -> bool {
        match self {
            Filter::All => true,
            Filter::Containing(text) => name.contains(text.as_str()),
            Filter::Named(names) => names.iter().any(|one| one.takes(name)),
        }
    }

    /// The filter for a program that runs the tests whose names begin with `prefix`, applied to the rest of their
    /// names: words of which a name must contain one, none if all are wanted, and `None` if no test is.
    pub(crate) fn within(&self, prefix: &str) -> Option<Vec<&str>> {
        match self {
            Filter::All => Some(Vec::new()),
            Filter::Containing(text) => {
                let rest = behind(Some(text), prefix);
                let other = rest == text && KINDS.iter().any(|kind| text.starts_with(kind));
                // The machine's own tests run only for a filter that begins with `machine`: no machine is booted for
                // a word that may mean another test.
                let unasked = prefix.starts_with("machine") && !text.starts_with("machine");
                match (rest.is_empty(), other || unasked) {
                    (true, _) => Some(Vec::new()),
                    (false, true) => None,
                    (false, false) => Some(vec![rest]),
                }
            }
            Filter::Named(names) => {
                let found: Vec<&str> = names.iter().filter_map(|one| one.behind(prefix)).collect();
                let all = found.iter().any(|word| word.is_empty());
                match found.is_empty() {
                    true => None,
                    false if all => Some(Vec::new()),
                    false => Some(found),
                }
            }
        }
    }
}

/// The part of `filter` that is about names behind `prefix`: an empty one if it matches all of them.
pub(crate) fn behind<'a>(filter: Option<&'a str>, prefix: &str) -> &'a str {
    match filter {
        None => "",
        Some(filter) if prefix.contains(filter) => "",
        // `guest/process-np/ipc` means `ipc` behind `guest/process-np/`.
        Some(filter) => filter.strip_prefix(prefix).unwrap_or(filter),
    }
}

/// A test, or some tests of a kind, as the page of promises names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// A scenario.
    Scenario(String),
    /// A test of the guest: its name, or the subject and the number that it begins with.
    Guest(String),
    /// A test of the machine under the kernel.
    Machine(String),
    /// Tests of a package on the host: a function, the modules that contain it, both, or all tests.
    Host {
        /// In the form of the names of tests: `servers-net`.
        package: String,
        name: Option<String>,
    },
}

impl Name {
    /// Whether it names this test: `KIND/CONFIG/NAME` or `host/PACKAGE/NAME`.
    pub(crate) fn takes(&self, test: &str) -> bool {
        let mut parts = test.splitn(3, '/');
        let (Some(kind), Some(room), Some(test)) = (parts.next(), parts.next(), parts.next())
        else {
            return false;
        };
        match self {
            Name::Scenario(name) => matches!(kind, "scenario" | "placed") && test == name,
            Name::Machine(name) => kind == "machine" && test == name,
            Name::Guest(name) => {
                let rest = test.strip_prefix(name.as_str());
                kind == "guest" && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
            }
            Name::Host { package, name } => {
                let is = |name: &String| format!("::{test}::").contains(&format!("::{name}::"));
                kind == "host" && room == package && name.as_ref().is_none_or(is)
            }
        }
    }

    /// The filter behind a prefix, which is empty if it means all tests; `None` if the name is about other tests.
    fn behind(&self, prefix: &str) -> Option<&str> {
        let (kind, room) = prefix.split_once('/')?;
        match (self, kind) {
            (Name::Scenario(name), "scenario")
            | (Name::Machine(name), "machine")
            | (Name::Guest(name), "guest") => Some(name),
            (Name::Host { package, name }, "host") => {
                let is = room.trim_end_matches('/') == package;
                is.then(|| name.as_deref().unwrap_or_default())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(package: &str, name: Option<&str>) -> Name {
        Name::Host {
            package: package.into(),
            name: name.map(Into::into),
        }
    }

    #[test]
    fn filters_reach_behind_prefixes() {
        let within = |text: &str, prefix: &str| {
            let filter = Filter::Containing(text.into());
            filter.within(prefix).map(|words| words.join(" "))
        };
        assert_eq!(Filter::All.within("host/abi/"), Some(Vec::new()));
        assert_eq!(within("ipc", "host/abi/").as_deref(), Some("ipc"));
        assert_eq!(within("host/abi", "host/abi/").as_deref(), Some(""));
        let of_abi = within("host/abi/state::x", "host/abi/");
        assert_eq!(of_abi.as_deref(), Some("state::x"));
        assert_eq!(within("guest/process-np/x", "guest/interrupt-np/"), None);
        assert_eq!(within("host/abi/x", "guest/interrupt-np/"), None);
        assert_eq!(within("cut/interrupt-np/0", "host/abi/"), None);
        let placed = "placed/interrupt-np/guest/";
        assert_eq!(
            within("placed/interrupt-np/guest/x", placed).as_deref(),
            Some("x")
        );
        assert_eq!(within("placed/interrupt-np/net_pair", placed), None);
        assert_eq!(within("placed/interrupt-np", placed).as_deref(), Some(""));
        assert_eq!(within("placed/interrupt-np", "guest/interrupt-np/"), None);
        assert_eq!(within("ipc", "machine/hardware/"), None);
        assert_eq!(within("machine", "machine/hardware/").as_deref(), Some(""));
    }

    #[test]
    fn a_list_takes_what_it_names() {
        let filter = Filter::Named(vec![
            Name::Scenario("attack_held".into()),
            Name::Guest("SERVICE0015".into()),
            host("servers-net", Some("a_flood")),
            host("servers-net", Some("tests::wild")),
            host("servers-random", None),
        ]);
        for (name, taken) in [
            ("scenario/interrupt-np/attack_held", true),
            ("scenario/process-np/attack_held_disk", false),
            ("placed/interrupt-np/attack_held", true),
            ("placed/interrupt-np/guest/SERVICE0015_random_bytes", false),
            ("guest/interrupt-np/SERVICE0015_random_bytes", true),
            ("guest/interrupt-np/SERVICE00150_others", false),
            ("forgetful/process-np/SERVICE0015_random_bytes", false),
            ("host/servers-net/stack::tests::a_flood", true),
            ("host/servers-net/stack::tests::a_flood_of_others", false),
            ("host/servers-net/tests::wild::frames", true),
            ("host/servers-linux/tests::a_flood", false),
            ("host/servers-random/anything", true),
            ("bench/interrupt-np/rpc_0", false),
        ] {
            assert_eq!(filter.takes(name), taken, "{name}");
        }
        let within = |prefix: &str| filter.within(prefix).map(|words| words.join(" "));
        assert_eq!(within("guest/process-np/").as_deref(), Some("SERVICE0015"));
        let net = within("host/servers-net/");
        assert_eq!(net.as_deref(), Some("a_flood tests::wild"));
        assert_eq!(within("host/servers-random/").as_deref(), Some(""));
        assert_eq!(within("host/servers-linux/"), None);
        assert_eq!(within("machine/hardware/"), None);
        assert_eq!(within("forgetful/process-np/"), None);
    }
}
