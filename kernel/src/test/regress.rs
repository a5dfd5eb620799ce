//! What has been wrong once.

use super::world::*;
use abi::{boot, Call, Code};

#[test]
fn world_runs() {
    let w = World::new();
    let m = w.create(Call::MutexCreate);
    let out = w.page();
    w.ok(Call::MutexLock, &[m]);
    let p = Program::new().call(Call::MutexLock, &[(RDI, m)]).keep(out, RAX).end();
    w.thread(0, p, 10);
    w.poke(out, 77);
    w.run();
    assert_eq!(w.peek(out), 77);
    w.ok(Call::MutexUnlock, &[m]);
    w.run();
    assert_eq!(w.peek(out), 0);
    assert_eq!(w.sys(Call::MutexTrylock, &[m]), Code::WouldBlock);
    let _ = boot::AUTHORITY;
}
