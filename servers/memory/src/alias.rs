//! The ports of the server, told apart by the upper half of their alias; the lower half is the number of the segment or
//! account.

use interface::server::OWN;

/// The supervisor port.
pub const SUPERVISOR: u64 = 1;
/// The port of an account for its process.
pub const ACCOUNT: u64 = 2;
/// The port of an account for its manager.
pub const ACCOUNT_CONTROL: u64 = 3;
/// Control port of a segment.
pub const CONTROL: u64 = 4;
/// Keeper of a segment's region.
pub const KEEPER: u64 = 5;
/// Where the server's second thread requests steps of taking ended segments apart.
pub const REAPER: u64 = 6;

/// Where the supplier of a segment says which chunks it owes, and supplies them.
pub const SUPPLIER: u64 = 7;

/// The alias of a port of this kind, for the segment or account of this number.
#[must_use]
pub const fn of(kind: u64, id: usize) -> u64 {
    kind * OWN + id as u64
}

/// Kind and number.
#[must_use]
pub const fn parts(alias: u64) -> (u64, usize) {
    (alias / OWN, (alias % OWN) as usize)
}

/// The segment of a keeper port at which a fault arrived. `None` for all other ports: a program can make any port to
/// which it has a reference the keeper of its own memory, and the number of that port may be that of another client's
/// segment.
#[must_use]
pub const fn kept(alias: u64) -> Option<usize> {
    match parts(alias) {
        (KEEPER, id) => Some(id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        kept, of, ACCOUNT, ACCOUNT_CONTROL, CONTROL, KEEPER, REAPER, SUPERVISOR, SUPPLIER,
    };

    #[test]
    fn faults_come_to_keepers_only() {
        assert_eq!(kept(of(KEEPER, 7)), Some(7));
        for kind in [
            SUPERVISOR,
            ACCOUNT,
            ACCOUNT_CONTROL,
            CONTROL,
            REAPER,
            SUPPLIER,
        ] {
            let segment = kept(of(kind, 7));
            assert_eq!(
                segment, None,
                "S2: a fault at a port of kind {kind} is one of a segment"
            );
        }
    }
}
