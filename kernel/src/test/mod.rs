//! Unit tests on the simulated machine.
