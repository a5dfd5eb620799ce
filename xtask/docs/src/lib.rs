//! The generated pages: [`mod@reference`] makes the API reference from the tables of `abi`, [`explain`] prints the
//! same about one call on a terminal, [`syscalls`] lists all calls, [`numbers`] counts ([`test_names`] the tests),
//! [`book`] makes a book of all pages.

pub mod book;
pub mod explain;
pub mod numbers;
pub mod reference;
pub mod syscalls;
pub mod test_names;
