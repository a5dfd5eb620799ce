//! The pages: [`mod@reference`] makes the API reference from the tables of `abi`, [`explain`] says the same
//! about one call on a terminal, [`syscalls`] lists all calls, [`numbers`] counts
//! ([`test_names`] the tests), [`book`] binds all pages.

pub mod book;
pub mod explain;
pub mod numbers;
pub mod reference;
pub mod syscalls;
pub mod test_names;
