//! ipc
