//! When an object ends or changes, nothing of it may be left: not for the next object in its slot, not for the next
//! owner of a page, and not for a program that had access to memory which is no longer mapped.

use super::world::*;
use crate::object::Object;
use abi::{access, boot, Call, PAGE_SIZE};

/// The address at which another space sees the memory that is mapped for it.
const SEEN: u64 = 0x50_0000;

/// The rights that the page table gives a space at an address.
fn seen(w: &World, thread: u64, address: u64) -> Option<u64> {
    let space = w.thread_at(thread).space().expect("a space");
    space.table.lookup(address).map(|(_, rights)| rights)
}

/// Makes a thread that reads that many pages from [`SEEN`] on, in a space.
fn reader(w: &World, space: u64, pages: u64) -> u64 {
    let reads = (0..pages).fold(Program::new(), |p, n| p.load(SEEN + n * PAGE_SIZE, A10));
    w.thread(space, reads.end(), 5)
}

/// An interrupt belongs to an identity, and ends with it.
#[test]
fn a_thread_begins_without_anothers_interrupt() {
    let w = World::with_frames(64);
    let t = w.create(Call::ThreadCreate);
    let r = w.reference(Call::ThreadReference, t);
    let slot = w.thread_at(t).head().id();
    w.ok(Call::ThreadInterrupt, &[r]);
    w.ok(Call::ThreadDestroy, &[t, 0]);
    let next = w.create(Call::ThreadCreate);
    assert_eq!(w.thread_at(next).head().id(), slot, "the same slot");
    let state = w.page();
    w.ok(Call::ThreadGetState, &[next, state, 0, 0, 0]);
    let pending = w.peek(state + INTERRUPT_WORD as u64 * 8);
    assert_eq!(pending, 0, "A6: an interrupt that was another's");
}

/// An interrupt of a dead thread's line reaches no thread, also not the next one in its slot.
#[test]
fn a_line_ends_with_its_thread() {
    let w = World::with_frames(64);
    let attach = |t: u64| {
        let r = w.reference(Call::ThreadReference, t);
        w.ok(Call::DeviceAttachInterrupt, &[boot::AUTHORITY, r, 3]);
    };
    let t = w.create(Call::ThreadCreate);
    attach(t);
    w.ok(Call::ThreadDestroy, &[t, 0]);
    let out = w.page();
    w.poke(out, 99);
    let p = Program::new()
        .call(Call::ThreadWaitInterrupt, &[])
        .keep(out, RESULT);
    w.thread(0, p.end(), 5);
    w.run();
    assert!(!hal::host::irq_unmasked(3), "a line without a thread");
    hal::host::raise(3);
    w.run();
    assert_eq!(w.peek(out), 99, "a device's interrupt that was another's");
}

/// When a space loses its body, spaces that import from it lose their translations at once.
#[test]
fn a_vacant_space_shows_nothing() {
    let w = World::with_frames(64);
    let (owner, owners) = w.space(1 << 16, 0, 0);
    let (_, ram) = w.region(0, RAM, 8 * PAGE_SIZE, 0);
    w.map(owners, 0x100_0000, PAGE_SIZE, ram, 0);
    let (_, shown) = w.region(owners, 0x100_0000, PAGE_SIZE, 0);
    let (_, other) = w.space(1 << 16, 0, 0);
    w.map(other, SEEN, PAGE_SIZE, shown, 0);
    let t = reader(&w, other, 1);
    w.run();
    assert!(seen(&w, t, SEEN).is_some());
    let kept = w.create(Call::ReferenceCreate);
    w.checked.set(false);
    w.ok(Call::SpaceDestroy, &[owner, kept]);
    assert_eq!(seen(&w, t, SEEN), None, "a vacant space shows its memory");
}

/// Takes memory away, by one of: a mapping of it, the region that the mapping imports, a mapping below that region.
type Takes = fn(&World, [u64; 3]);

/// When a mapping or a region, or an object below them, changes or ends, all translations through it go, those of every
/// page.
#[test]
fn what_is_taken_away_is_seen_no_longer() {
    const PAGES: u64 = 20;
    let ways: [(&str, Takes); 6] = [
        ("mapping_destroy", |w, [m, _, _]| {
            w.ok(Call::MappingDestroy, &[m, 0]);
        }),
        ("mapping_protect", |w, [m, _, _]| {
            w.ok(Call::MappingProtect, &[m, 0]);
        }),
        ("region_destroy", |w, [_, r, _]| {
            w.ok(Call::RegionDestroy, &[r, 0]);
        }),
        ("region_protect", |w, [_, r, _]| {
            w.ok(Call::RegionProtect, &[r, 0]);
        }),
        ("mapping_destroy below", |w, [_, _, below]| {
            w.ok(Call::MappingDestroy, &[below, 0]);
        }),
        ("mapping_set_state below", |w, [_, _, below]| {
            // The mapping maps other pages than before.
            let state = w.page();
            w.words(
                state,
                &[0x100_0000, PAGES * PAGE_SIZE, PAGE_SIZE, access::ALL],
            );
            let space = w.create(Call::ReferenceCreate);
            let region = w.create(Call::ReferenceCreate);
            let old = w.page();
            w.ok(Call::MappingGetState, &[below, old, region, space]);
            w.ok(Call::MappingSetState, &[below, state, region, space]);
        }),
    ];
    for (name, takes) in ways {
        let w = World::with_frames(96);
        let (_, owner) = w.space(1 << 16, 0, 0);
        let (_, ram) = w.region(0, RAM, 96 * PAGE_SIZE, 0);
        let below = w.map(owner, 0x100_0000, PAGES * PAGE_SIZE, ram, 0);
        let (region, shown) = w.region(owner, 0x100_0000, PAGES * PAGE_SIZE, 0);
        let (_, other) = w.space(1 << 16, 0, 0);
        let mapping = w.map(other, SEEN, PAGES * PAGE_SIZE, shown, 0);
        let t = reader(&w, other, PAGES);
        w.run();
        let left = || {
            (0..PAGES)
                .filter(|n| seen(&w, t, SEEN + n * PAGE_SIZE).is_some_and(|rights| rights != 0))
                .count() as u64
        };
        assert_eq!(left(), PAGES, "{name}");
        w.checked.set(false);
        takes(&w, [mapping, region, below]);
        assert_eq!(left(), 0, "pages that are seen after {name}");
    }
}

/// If several mappings of a space import a range, its translations go in all of them, whatever the order in which the
/// mappings were made.
#[test]
fn a_range_that_is_imported_twice() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let w = World::with_frames(64);
        let (_, ram) = w.region(0, RAM, 8 * PAGE_SIZE, 0);
        let (_, owner) = w.space(1 << 16, 0, 0);
        let below = w.map(owner, 0x100_0000, PAGE_SIZE, ram, 0);
        let (_, shown) = w.region(owner, 0x100_0000, PAGE_SIZE, 0);
        let (_, other) = w.space(1 << 16, 0, 0);
        let at = |n: u64| SEEN + n * PAGE_SIZE;
        for n in order {
            w.map(other, at(n), PAGE_SIZE, shown, 0);
        }
        let t = reader(&w, other, 3);
        w.run();
        let left = || (0..3).filter(|n| seen(&w, t, at(*n)).is_some()).count();
        assert_eq!(left(), 3);
        w.checked.set(false);
        w.ok(Call::MappingDestroy, &[below, 0]);
        assert_eq!(left(), 0, "what was imported more than once");
    }
}

/// A mapping whose state is set with fewer rights, and otherwise unchanged, gives only these.
#[test]
fn a_mapping_that_grows_has_the_rights_of_now() {
    for size in [1, 2] {
        let w = World::with_frames(64);
        let (_, ram) = w.region(0, RAM, 8 * PAGE_SIZE, 0);
        let (_, space) = w.space(1 << 16, 0, 0);
        let m = w.map(space, SEEN, PAGE_SIZE, ram, 0);
        let t = reader(&w, space, 1);
        w.run();
        assert_eq!(seen(&w, t, SEEN), Some(access::ALL));
        let state = w.page();
        w.words(state, &[SEEN, size * PAGE_SIZE, 0, access::READ]);
        w.checked.set(false);
        w.ok(Call::MappingSetState, &[m, state, ram, space]);
        let rights = seen(&w, t, SEEN).unwrap_or(0);
        assert_eq!(rights & access::WRITE, 0, "a right that was taken away");
    }
}

/// When a page was unmapped and mapped elsewhere, its objects are no longer found at their former handles.
#[test]
fn a_handle_that_is_unmapped_finds_nothing() {
    let w = World::with_frames(64);
    let (_, ram) = w.region(0, RAM, 64 * PAGE_SIZE, 0);
    let page = w.page();
    let alias = 0x7000_0000;
    let m = w.map(0, alias, PAGE_SIZE, ram, page - RAM);
    w.ok(Call::MutexCreate, &[page, 0]);
    // The lookup by the other handle is cached.
    w.ok(Call::MutexTrylock, &[alias]);
    w.ok(Call::MutexUnlock, &[alias]);
    let other = w.page();
    let state = w.page();
    w.words(state, &[alias, PAGE_SIZE, other - RAM, access::ALL]);
    w.ok(Call::MappingSetState, &[m, state, ram, 0]);
    w.begin(Call::MutexTrylock, &[alias]);
    assert_eq!(
        u64::from(w.manager.exception.get()),
        abi::Exception::NoObject as u64,
        "a handle of what is not there any more"
    );
}

/// `get_state` of a thread writes every word of the state.
#[test]
fn a_state_leaves_no_word_as_it_was() {
    let w = World::with_frames(64);
    let (t, state) = (w.create(Call::ThreadCreate), w.page());
    let words = abi::state::THREAD_WORDS + abi::state::FPU_BYTES / 8;
    let read = |noise: u64| {
        w.words(state, &std::vec![noise; words + 1]);
        w.ok(Call::ThreadGetState, &[t, state, 0, 0, 0]);
        w.read(state, words * 8 + 8)
    };
    let (one, other) = (read(0), read(u64::MAX));
    let end = words * 8;
    assert!(one[..end] == other[..end], "A6: a word that is not written");
    assert_eq!(other[end..], [0xff; 8], "a word behind the state");
}
