//! Nothing yet.
#![no_std]
