//! A test for every row of the table of calls, by the row's stable name.
//!
//! `PORT0003` fails unless its call has returned every code that the row lists, has raised every exception, and
//! has done what the row says when the identity of each of its parties is vacant, and when it is dead. Each
//! assertion notes what it has checked in a [`Met`]. The situations are those of [`super::calls`] and
//! [`super::ipc`].

use super::world::*;
use super::{calls, ipc};
use abi::syscalls::{Fate, Party};
use abi::{Call, Code, Exception, Syscall, SYSCALLS};
use std::collections::BTreeSet;
use std::string::{String, ToString};
use std::vec::Vec;

/// The codes, exceptions and situations of a row that tests have met.
#[derive(Default)]
pub(super) struct Met {
    results: BTreeSet<(u8, u8)>,
    raised: BTreeSet<(u8, u8)>,
    vacant: BTreeSet<(u8, Party)>,
    dead: BTreeSet<(u8, Party)>,
}

impl Met {
    /// Checks that the manager's call has this result, and notes it.
    pub(super) fn is(&mut self, w: &World, call: Call, args: &[u64], code: Code) {
        self.returned(call, w.sys(call, args), code);
    }

    /// Checks that a call has returned this result, and notes it.
    pub(super) fn returned(&mut self, call: Call, is: Code, must: Code) {
        assert_eq!(is, must, "{}/{must:?}", call.name());
        self.results.insert((call as u8, is as u8));
    }

    /// Checks that a call has raised this exception about this address, and notes it.
    pub(super) fn raised(&mut self, call: Call, is: Outcome, must: Exception, at: u64) {
        let name = call.name();
        assert_eq!(is, Outcome::Raised(must, at), "{name} with what is wrong");
        self.raised.insert((call as u8, must as u8));
    }

    /// Checks what a call does with a vacant identity, at first and when it has a body again, and notes it.
    pub(super) fn vacant(&mut self, call: Call, party: Party, first: Outcome, then: Outcome) {
        let name = call.name();
        match call.row().vacant(party) {
            Fate::Waits => {
                let waits = matches!(first, Outcome::Waits(_));
                assert!(waits, "{name} with {party:?} vacant: {first:?}");
            }
            fate => assert_eq!(first.fate(), Some(fate), "{name} with {party:?} vacant"),
        }
        if let Outcome::Returned(code) = first {
            self.results.insert((call as u8, code as u8));
        }
        // It goes on as if the identity had never been vacant.
        let sound = match then {
            Outcome::Returned(code) => call.row().codes.contains(&code),
            Outcome::Waits(_) => then != first,
            Outcome::Raised(..) => false,
        };
        assert!(sound, "{name} after {party:?} was vacant: {then:?}");
        self.vacant.insert((call as u8, party));
    }

    /// Checks what a call does with a dead identity, and notes it.
    pub(super) fn dead(&mut self, call: Call, party: Party, is: Outcome) {
        let fate = call.row().dead(party);
        let name = call.name();
        assert_eq!(is.fate(), Some(fate), "{name} with {party:?} dead");
        self.dead.insert((call as u8, party));
    }

    /// Everything in the row that no test has met.
    fn missing(&self, row: &'static Syscall) -> Vec<String> {
        let n = row.number;
        let codes = row
            .codes
            .iter()
            .filter(|&&c| !self.results.contains(&(n, c as u8)));
        let exceptions = row
            .exceptions()
            .iter()
            .filter(|&&e| !self.raised.contains(&(n, e as u8)));
        let vacant = row.parties().filter(|&p| !self.vacant.contains(&(n, p)));
        let dead = row.parties().filter(|&p| !self.dead.contains(&(n, p)));
        codes
            .map(|c| std::format!("the result {c:?}"))
            .chain(exceptions.map(|e| std::format!("the exception {e:?}")))
            .chain(vacant.map(|p| std::format!("a vacant {p:?}")))
            .chain(dead.map(|p| std::format!("a dead {p:?}")))
            .collect()
    }
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The call is complete.
    Returned(Code),
    /// The call has raised an exception, with this address.
    Raised(Exception, u64),
    /// The call waits.
    Waits(abi::state::Waiting),
}

impl Outcome {
    fn fate(self) -> Option<Fate> {
        match self {
            Outcome::Returned(code) => Some(Fate::Returns(code)),
            Outcome::Raised(exception, _) => Some(Fate::Raises(exception)),
            Outcome::Waits(_) => None,
        }
    }
}

/// Runs the tests of a row, and checks that they have met everything that it lists.
fn conforms(id: &str) {
    let row = SYSCALLS.iter().find(|row| row.id().to_string() == id);
    let row = row.unwrap_or_else(|| panic!("{id}: there is no such row"));
    let mut met = Met::default();
    match row.object {
        "Mutex" => calls::mutex(&mut met),
        "Cond" => calls::cond(&mut met),
        "Mapping" => calls::mapping(&mut met),
        "Region" => calls::region(&mut met),
        "Port" => calls::port(&mut met),
        "Portset" => calls::portset(&mut met),
        "Space" => calls::space(&mut met),
        "Thread" => calls::thread(&mut met),
        "Reference" => calls::reference(&mut met),
        "Clock" => calls::clock(&mut met),
        "Device" => calls::device(&mut met),
        "Client" => ipc::client(&mut met, row.call),
        "Server" => ipc::server(&mut met, row.call),
        "Idempotent" => ipc::idempotent(&mut met, row.call),
        other => panic!("{id}: no test meets the rows of {other}"),
    }
    if abi::ipc::plan(row.call).is_ipc() {
        ipc::parties(&mut met, row.call);
    } else {
        calls::parties(&mut met, row.call);
    }
    let missing = met.missing(row);
    assert!(
        missing.is_empty(),
        "{id} {}: nothing meets {missing:#?}",
        row.name
    );
}

/// A test for each of these rows.
macro_rules! rows {
    ($($id:ident)*) => {
        $(#[test]
        #[allow(non_snake_case)]
        fn $id() {
            conforms(stringify!($id));
        })*

        /// Every row has a test.
        #[test]
        fn every_row_has_a_conformance_test() {
            let tests = [$(stringify!($id)),*];
            let rows: Vec<String> = SYSCALLS.iter().map(|row| row.id().to_string()).collect();
            for (id, row) in rows.iter().zip(SYSCALLS) {
                assert!(tests.contains(&id.as_str()), "{}: no test {id} in `rows!`", row.name);
            }
            assert_eq!(tests.len(), rows.len(), "a test without a row");
            assert!(rows.len() >= 90, "a kernel of fewer than 90 calls");
        }
    };
}

rows! {
    MUTEX0001 MUTEX0002 MUTEX0003 MUTEX0004 MUTEX0005 MUTEX0006 MUTEX0007 MUTEX0008 MUTEX0009
    COND0001 COND0002 COND0003 COND0004 COND0005 COND0006 COND0007 COND0008 COND0009 COND0010
    MAPPING0001 MAPPING0002 MAPPING0003 MAPPING0004 MAPPING0005 MAPPING0006 MAPPING0007
    REGION0001 REGION0002 REGION0003 REGION0004 REGION0005 REGION0006 REGION0007 REGION0008
    PORT0001 PORT0002 PORT0003 PORT0004 PORT0005 PORT0006
    PORTSET0001 PORTSET0002 PORTSET0003 PORTSET0004 PORTSET0005 PORTSET0006
    SPACE0001 SPACE0002 SPACE0003 SPACE0004 SPACE0005 SPACE0006
    SPACE0007
    THREAD0001 THREAD0002 THREAD0003 THREAD0004 THREAD0005 THREAD0006 THREAD0007 THREAD0008
    THREAD0009 THREAD0010 THREAD0011 THREAD0012 THREAD0013 THREAD0014 THREAD0015 THREAD0016
    THREAD0017 THREAD0018
    REFERENCE0001 REFERENCE0002 REFERENCE0003 REFERENCE0004 REFERENCE0005 REFERENCE0006
    REFERENCE0007 REFERENCE0008
    CLOCK0001
    DEVICE0001 DEVICE0002 DEVICE0003 DEVICE0004 DEVICE0005 DEVICE0006
    CLIENT0001 CLIENT0002 CLIENT0003 CLIENT0004 CLIENT0005 CLIENT0006 CLIENT0007 CLIENT0008
    CLIENT0009 CLIENT0010 CLIENT0011 CLIENT0012 CLIENT0013 CLIENT0014 CLIENT0015 CLIENT0016
    CLIENT0017 CLIENT0018 CLIENT0019 CLIENT0020
    SERVER0001 SERVER0002 SERVER0003 SERVER0004 SERVER0005 SERVER0006 SERVER0007 SERVER0008
    SERVER0009 SERVER0010 SERVER0011 SERVER0012 SERVER0013 SERVER0014 SERVER0015 SERVER0016
    SERVER0017 SERVER0018 SERVER0019 SERVER0020 SERVER0021 SERVER0022 SERVER0023 SERVER0024
    SERVER0025
    IDEMPOTENT0001 IDEMPOTENT0002 IDEMPOTENT0003 IDEMPOTENT0004 IDEMPOTENT0005 IDEMPOTENT0006
    IDEMPOTENT0007 IDEMPOTENT0008
}
