//! The order of the simulated machine's registers in a context. `abi::simulated` has their roles.

crate::context::frame! {
    status Status;
    top Top, g12 G12, g0 G0, g4 G4, counter Counter, g9 G9, g1 G1, link Link, g11 G11,
    g3 G3, g5 G5, g2 G2, g10 G10, local Local, g8 G8, g6 G6, g7 G7,
}
