//! Files that are more than files: the names of sockets. The file system has them as empty files, and keeps them open as
//! long as they are known here, so that the number of one is nobody else's.

use alloc::collections::BTreeMap;

use crate::errno::{Errno, ENOSPC};
use crate::files::{Reply, Request};
use crate::host::Host;
use crate::system::{Payer, System, Thing};

/// The type bits of a socket.
pub const SOCKET: u32 = 0o140_000;

/// A file that is more.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Type bits.
    mode: u32,
    payer: Payer,
}

/// All of them, by inode.
#[derive(Clone, Debug, Default)]
pub struct Nodes(BTreeMap<u64, Node>);

impl Nodes {
    /// The type bits of a file, if it is more.
    #[must_use]
    pub fn mode(&self, ino: u64) -> Option<u32> {
        self.0.get(&ino).map(|node| node.mode)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl System {
    /// A file, which is open, is more than a file from now on. Errors: `ENOSPC`; it is to be closed then.
    pub fn new_node(
        &mut self,
        host: &mut dyn Host,
        ino: u64,
        mode: u32,
        payer: Payer,
    ) -> Result<(), Errno> {
        if self.count_thing(Thing::Node, payer).is_err() {
            // Others than Linux programs may have removed some.
            for ino in self.nodes.0.keys().copied().collect::<alloc::vec::Vec<_>>() {
                self.forget_removed(host, ino);
            }
            self.count_thing(Thing::Node, payer).map_err(|_| ENOSPC)?;
        }
        if let Some(old) = self.nodes.0.insert(ino, Node { mode, payer }) {
            self.uncount_thing(Thing::Node, old.payer);
        }
        Ok(())
    }

    /// Forgets a file that has no name any more.
    pub fn forget_removed(&mut self, host: &mut dyn Host, ino: u64) {
        let Some(node) = self.nodes.0.get(&ino).copied() else {
            return;
        };
        let attr = host.fs(&Request::StatIno { ino }, &[], &mut []);
        if matches!(attr, Ok((Reply::Attr(attr), _)) if attr.links > 0) {
            return;
        }
        self.nodes.0.remove(&ino);
        self.uncount_thing(Thing::Node, node.payer);
        let _ = host.fs(&Request::Close { ino }, &[], &mut []);
    }
}
