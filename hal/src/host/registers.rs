//! Where the registers of the simulated machine lie in a context. What they are for says
//! `abi::simulated`: not what registers of these places are for on any real one.

crate::context::frame! {
    status Status;
    top Top, g12 G12, g0 G0, g4 G4, counter Counter, g9 G9, g1 G1, link Link, g11 G11,
    g3 G3, g5 G5, g2 G2, g10 G10, local Local, g8 G8, g6 G6, g7 G7,
}
