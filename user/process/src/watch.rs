//! Memory that a debugger watches: its pages lack rights in the mappings of the process, and nowhere else.
//!
//! A mapping that shows a watched page is *cut*: it keeps the pages before, and further mappings, the *pieces*, show
//! the page and the pages behind it. Code that changes a mapping makes it whole before ([`Watched::make_whole`]), and
//! cuts it again afterwards ([`Watched::cut`]), so that no other code has to know of pieces. They are in the control
//! segment, behind all other mappings.
use crate::live::{Process, MAX_MAPPINGS};
use abi::access::{EXECUTE, READ, WRITE};
use abi::state::MappingState;
use abi::{OBJECT_SIZE, PAGE_SIZE};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use proto::layout::{CONTROL_MAPPINGS, CONTROL_SIZE};
use proto::Error;
use rt::error_of;
use rt::obj::{MappingAt, Ref};
use services::process::MAX_WATCHES;

/// Most pieces: a watch is in two pages at most, and each page makes two pieces of a mapping.
pub const MAX_PIECES: usize = 4 * MAX_WATCHES;
// All pieces are in one page of the control segment.
const _: () = assert!(MAX_PIECES as u64 * OBJECT_SIZE <= PAGE_SIZE);

/// The mappings of a process.
pub trait Mappings {
    /// The range, offset and rights of the mapping at this place.
    fn state(&self, place: u64) -> Option<MappingState>;
    /// Sets the state.
    ///
    /// # Errors
    /// `Exists` if another mapping is in the way.
    fn set(&self, place: u64, state: &MappingState) -> Result<(), Error>;
    /// Makes a piece, which shows a part of what the mapping at a place shows.
    ///
    /// # Errors
    /// As of [`Mappings::set`]; `NoMemory`.
    fn make(&self, piece: usize, place: u64, state: &MappingState) -> Result<(), Error>;
    /// Ends a piece.
    fn end(&self, piece: usize);
    /// Changes the rights of a piece.
    fn protect(&self, piece: usize, rights: u64);
}

/// Where the first piece is in the control segment: in a page of their own.
const FIRST_PIECE: u64 =
    (CONTROL_MAPPINGS + MAX_MAPPINGS as u64 * OBJECT_SIZE).next_multiple_of(PAGE_SIZE);
const _: () = assert!(FIRST_PIECE + PAGE_SIZE <= CONTROL_SIZE);

impl Process {
    /// The mapping at this offset of the control segment.
    const fn mapping_at(&self, place: u64) -> MappingAt {
        MappingAt(self.control_window().address() + place)
    }

    /// Makes a mapping show a part of what another one shows.
    fn show_as(&self, mapping: MappingAt, place: u64, state: &MappingState) -> Result<(), Error> {
        let shown = || {
            let region = Ref::new()?;
            self.mapping_at(place).get_state(region.handle(), 0)?;
            mapping.set_state(state, region.handle(), self.space_ref().handle())
        };
        shown().map_err(error_of)
    }

    const fn piece(&self, piece: usize) -> MappingAt {
        self.mapping_at(FIRST_PIECE + piece as u64 * OBJECT_SIZE)
    }
}

impl Mappings for Process {
    fn state(&self, place: u64) -> Option<MappingState> {
        self.mapping_at(place).get_state(0, 0).ok()
    }

    fn set(&self, place: u64, state: &MappingState) -> Result<(), Error> {
        self.show_as(self.mapping_at(place), place, state)
    }

    fn make(&self, piece: usize, place: u64, state: &MappingState) -> Result<(), Error> {
        let control = self.control();
        let end = FIRST_PIECE + PAGE_SIZE;
        if control.region.search(FIRST_PIECE, end, 1).is_err() {
            control.populate(FIRST_PIECE, PAGE_SIZE)?;
        }
        let mapping = self.piece(piece);
        mapping.create().map_err(error_of)?;
        self.show_as(mapping, place, state).inspect_err(|_| {
            let _ = mapping.destroy();
        })
    }

    fn end(&self, piece: usize) {
        let _ = self.piece(piece).destroy();
    }

    fn protect(&self, piece: usize, rights: u64) {
        let _ = self.piece(piece).protect(rights);
    }
}

/// Bytes that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The first one.
    pub address: u64,
    /// How many.
    pub size: u64,
    /// The accesses to watch for, of [`abi::access`].
    pub access: u64,
}

impl Watch {
    /// A watch of these bytes.
    ///
    /// # Errors
    /// `Invalid` for no bytes, for more than a page, or for an access that cannot be watched.
    pub fn new(address: u64, size: u64, access: u64) -> Result<Self, Error> {
        let fits = (1..=PAGE_SIZE).contains(&size) && address.checked_add(size).is_some();
        let known = access != 0 && access & !(READ | WRITE) == 0;
        let watch = Watch {
            address,
            size,
            access,
        };
        (fits && known).then_some(watch).ok_or(Error::Invalid)
    }

    /// Whether it watches some of these bytes.
    const fn meets(&self, address: u64, size: u64) -> bool {
        address < self.address + self.size && self.address < address.saturating_add(size)
    }

    /// The pages that it is in.
    fn pages(&self) -> impl Iterator<Item = u64> {
        let last = page_of(self.address + self.size - 1);
        (page_of(self.address)..=last).step_by(PAGE_SIZE as usize)
    }

    /// The rights that its pages lack. A watch for reads denies execution, too, since executable pages are readable.
    const fn denied(&self) -> u64 {
        match self.access & READ {
            0 => WRITE,
            _ => READ | WRITE | EXECUTE,
        }
    }
}

const fn page_of(address: u64) -> u64 {
    address & !(PAGE_SIZE - 1)
}

/// A page with watched bytes.
#[derive(Debug, Default)]
struct Page {
    /// The rights that it lacks, of those that its mapping gives.
    denied: u64,
    /// It has these rights for the moment.
    given: bool,
    /// The place of the mapping that shows it, if one does.
    place: Option<u64>,
}

/// A mapping that is cut.
#[derive(Debug)]
struct Cut {
    /// Its state when whole.
    whole: MappingState,
    /// Pieces, and the address at which each begins.
    pieces: Vec<(usize, u64)>,
}

/// What is watched in a process.
#[derive(Debug, Default)]
pub struct Watched {
    watches: Vec<Watch>,
    /// By address.
    pages: BTreeMap<u64, Page>,
    /// By the place of the mapping.
    cuts: BTreeMap<u64, Cut>,
    /// Pieces in use.
    used: BTreeSet<usize>,
    /// How often `take_out` was called and not undone.
    out: u32,
    /// The manager's own access to watched bytes since the last query: the address, and the access.
    touched: Option<(u64, u64)>,
}

impl Watched {
    /// Adds or removes a watch. `find` returns the place of the mapping that shows a page, if there is one; it need not
    /// find one that is cut.
    ///
    /// # Errors
    /// As of [`services::process::Debug::watch`].
    pub fn set(
        &mut self,
        mappings: &impl Mappings,
        watch: Watch,
        set: bool,
        find: impl Fn(u64) -> Option<u64>,
    ) -> Result<(), Error> {
        let known = self.watches.iter().position(|other| *other == watch);
        match (known, set) {
            (Some(_), true) | (None, false) => return Ok(()),
            (Some(at), false) => {
                self.watches.swap_remove(at);
                return self.settle_if_possible(mappings, &watch);
            }
            (None, true) => {}
        }
        if self.watches.len() >= MAX_WATCHES {
            return Err(Error::Limit);
        }
        let mut places = Vec::new();
        for page in watch.pages() {
            let place = self.place(page).or_else(|| find(page));
            places.push((page, place.ok_or(Error::NotFound)?));
        }
        for (page, place) in places {
            self.pages.entry(page).or_default().place = Some(place);
        }
        self.watches.push(watch);
        self.settle(mappings, &watch).inspect_err(|_| {
            self.watches.pop();
            let _ = self.settle_if_possible(mappings, &watch);
        })
    }

    /// As [`Watched::settle`], but ends watches for which there is no memory.
    fn settle_if_possible(&mut self, mappings: &impl Mappings, watch: &Watch) -> Result<(), Error> {
        let places: Vec<u64> = watch.pages().filter_map(|page| self.place(page)).collect();
        let settled = self.settle(mappings, watch);
        if settled.is_err() {
            for place in places {
                self.make_whole(mappings, place);
                self.cut_if_possible(mappings, place);
            }
        }
        settled
    }

    /// The place of the mapping that shows a page, if it is known.
    fn place(&self, page: u64) -> Option<u64> {
        if let Some(place) = self.pages.get(&page).and_then(|page| page.place) {
            return Some(place);
        }
        let shows = |cut: &Cut| page.wrapping_sub(cut.whole.start) < cut.whole.size;
        let cut = self.cuts.iter().find(|(_, cut)| shows(cut));
        cut.map(|(place, _)| *place)
    }

    /// Sets the rights of the pages of a watch that was added or removed.
    fn settle(&mut self, mappings: &impl Mappings, watch: &Watch) -> Result<(), Error> {
        let mut places = BTreeSet::new();
        for page in watch.pages() {
            let here = self.watches.iter().filter(|w| w.meets(page, PAGE_SIZE));
            let denied = here.fold(0, |denied, w| denied | w.denied());
            if let Some(known) = self.pages.get_mut(&page) {
                known.denied = denied;
                places.extend(known.place);
            }
            if denied == 0 {
                self.pages.remove(&page);
            }
        }
        for place in &places {
            self.make_whole(mappings, *place);
        }
        places
            .iter()
            .try_for_each(|place| self.cut(mappings, *place))
    }

    /// Makes a mapping whole, before it is changed.
    pub fn make_whole(&mut self, mappings: &impl Mappings, place: u64) {
        let Some(cut) = self.cuts.remove(&place) else {
            return;
        };
        for (piece, _) in cut.pieces {
            mappings.end(piece);
            self.used.remove(&piece);
        }
        // This does not fail: no other mapping is in the way, since mappings are made whole before others change.
        let _ = mappings.set(place, &cut.whole);
    }

    /// To be called before a mapping ends.
    pub fn mapping_ends(&mut self, mappings: &impl Mappings, place: u64) {
        if self.pages.is_empty() {
            return;
        }
        self.make_whole(mappings, place);
        let pages = self.pages.values_mut();
        for page in pages.filter(|page| page.place == Some(place)) {
            page.place = None;
        }
    }

    /// Takes the rights that watched pages lack out of a mapping, which is whole and may be new.
    ///
    /// # Errors
    /// `NoMemory`. The mapping is whole then.
    pub fn cut(&mut self, mappings: &impl Mappings, place: u64) -> Result<(), Error> {
        if self.pages.is_empty() {
            return Ok(());
        }
        let Some(whole) = mappings.state(place) else {
            return Ok(());
        };
        let end = whole.start + whole.size;
        for (page, known) in &mut self.pages {
            if (whole.start..end).contains(page) {
                known.place = Some(place);
            } else if known.place == Some(place) {
                known.place = None;
            }
        }
        if self.out > 0 {
            return Ok(());
        }
        let mut parts = Vec::new();
        let mut at = whole.start;
        for (page, known) in self.pages.range(whole.start..end) {
            if at < *page {
                parts.push((at, *page, whole.protection));
            }
            at = page + PAGE_SIZE;
            parts.push((*page, at, known.rights(whole.protection)));
        }
        if parts.is_empty() {
            return Ok(());
        }
        if at < end {
            parts.push((at, end, whole.protection));
        }
        let mut parts = parts
            .into_iter()
            .map(|(start, end, protection)| MappingState {
                start,
                size: end - start,
                offset: whole.offset + (start - whole.start),
                protection,
            });
        if let Some(first) = parts.next() {
            mappings.set(place, &first)?;
        }
        let mut pieces = Vec::new();
        let mut made = Ok(());
        for part in parts {
            let free = (0..MAX_PIECES).find(|piece| !self.used.contains(piece));
            made = free.ok_or(Error::Limit).and_then(|piece| {
                mappings.make(piece, place, &part)?;
                self.used.insert(piece);
                pieces.push((piece, part.start));
                Ok(())
            });
            if made.is_err() {
                break;
            }
        }
        self.cuts.insert(place, Cut { whole, pieces });
        made.inspect_err(|_| self.make_whole(mappings, place))
    }

    /// As [`Watched::cut`], for a mapping that the program has changed, which must not fail: ends watches that are no
    /// longer possible. Returns false if there were any.
    pub fn cut_if_possible(&mut self, mappings: &impl Mappings, place: u64) -> bool {
        if self.cut(mappings, place).is_ok() {
            return true;
        }
        let lost: Vec<u64> = self.pages_of(place).collect();
        self.watches
            .retain(|watch| !watch.pages().any(|page| lost.contains(&page)));
        self.pages.retain(|page, _| !lost.contains(page));
        false
    }

    fn pages_of(&self, place: u64) -> impl Iterator<Item = u64> + '_ {
        let pages = self.pages.iter();
        pages.filter_map(move |(page, known)| (known.place == Some(place)).then_some(*page))
    }

    /// Gives a page its rights for the moment, or takes them again.
    ///
    /// # Errors
    /// `NotFound` if it is not watched.
    pub fn give(
        &mut self,
        mappings: &impl Mappings,
        address: u64,
        given: bool,
    ) -> Result<(), Error> {
        let page = page_of(address);
        let known = self.pages.get_mut(&page).ok_or(Error::NotFound)?;
        known.given = given;
        let Some((place, cut)) = known.place.and_then(|p| Some((p, self.cuts.get(&p)?))) else {
            return Ok(());
        };
        let rights = known.rights(cut.whole.protection);
        match cut.pieces.iter().find(|(_, start)| *start == page) {
            Some((piece, _)) => mappings.protect(*piece, rights),
            // The page is the first of the mapping.
            None => {
                if let Some(state) = mappings.state(place) {
                    let state = MappingState {
                        protection: rights,
                        ..state
                    };
                    mappings.set(place, &state)?;
                }
            }
        }
        Ok(())
    }

    /// Gives all pages their rights until [`Watched::put_back`]; calls can be nested.
    pub fn take_out(&mut self, mappings: &impl Mappings) {
        self.out += 1;
        let places: Vec<u64> = self.cuts.keys().copied().collect();
        for place in places {
            self.make_whole(mappings, place);
        }
    }

    /// Undoes one `take_out`. Returns false if it ended watches that are no longer possible.
    pub fn put_back(&mut self, mappings: &impl Mappings) -> bool {
        self.out = self.out.saturating_sub(1);
        if self.out > 0 {
            return true;
        }
        let places: BTreeSet<u64> = self.pages.values().filter_map(|page| page.place).collect();
        let mut all = true;
        for place in places {
            all &= self.cut_if_possible(mappings, place);
        }
        all
    }

    /// Removes all watches.
    pub fn clear(&mut self, mappings: &impl Mappings) {
        self.watches.clear();
        let places: Vec<u64> = self.cuts.keys().copied().collect();
        for place in places {
            self.make_whole(mappings, place);
        }
        self.pages.clear();
        self.touched = None;
    }

    /// Whether the page at this address has watched bytes, so that it may lack rights.
    #[must_use]
    pub fn has_page(&self, address: u64) -> bool {
        !self.pages.is_empty() && self.pages.contains_key(&page_of(address))
    }

    /// Notes that the manager itself accesses these bytes for the process.
    #[inline]
    pub fn touch(&mut self, address: u64, size: u64, access: u64) {
        if !self.watches.is_empty() && self.out == 0 {
            self.touch_watched(address, size, access);
        }
    }

    #[cold]
    fn touch_watched(&mut self, address: u64, size: u64, access: u64) {
        let met = |watch: &&Watch| watch.access & access != 0 && watch.meets(address, size);
        // A write is reported rather than a read.
        let tells = self.touched.is_none_or(|(_, before)| before & WRITE == 0);
        if let Some(watch) = self.watches.iter().find(met).filter(|_| tells) {
            self.touched = Some((watch.address, access));
        }
    }

    /// The manager's own access to watched bytes since the last call: the first of the bytes, and the access.
    pub fn take_touched(&mut self) -> Option<(u64, u64)> {
        self.touched.take()
    }
}

impl Page {
    /// The rights that the page has, of those that its mapping gives.
    const fn rights(&self, whole: u64) -> u64 {
        match self.given {
            true => whole,
            false => whole & !self.denied,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Mappings, Watch, Watched, MAX_PIECES};
    use abi::access::{EXECUTE, READ, WRITE};
    use abi::state::MappingState;
    use abi::PAGE_SIZE;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use core::cell::{Cell, RefCell};
    use proto::Error;
    use services::process::MAX_WATCHES;

    /// Mappings of a simulated space, by place; pieces have the places from `PIECES` on.
    #[derive(Default)]
    struct Space {
        mappings: RefCell<BTreeMap<u64, MappingState>>,
        /// How many more pieces can be made, if that is limited.
        room: Cell<Option<u32>>,
    }

    const PIECES: u64 = 1 << 32;
    const RW: u64 = READ | WRITE;

    impl Space {
        fn put(&self, place: u64, state: &MappingState) -> Result<(), Error> {
            let end = |state: &MappingState| state.start + state.size;
            let mut all = self.mappings.borrow_mut();
            let in_the_way = all.iter().any(|(other, there)| {
                *other != place && state.start < end(there) && there.start < end(state)
            });
            if in_the_way {
                return Err(Error::Exists);
            }
            all.insert(place, *state);
            Ok(())
        }

        fn at(&self, address: u64) -> Option<(u64, MappingState)> {
            let all = self.mappings.borrow();
            let found = all
                .iter()
                .find(|(_, m)| address.wrapping_sub(m.start) < m.size);
            found.map(|(place, state)| (*place, *state))
        }

        fn rights(&self, address: u64) -> Option<u64> {
            self.at(address).map(|(_, state)| state.protection)
        }

        fn find(&self, address: u64) -> Option<u64> {
            self.at(address).map(|(place, _)| place)
        }

        /// What each page shows, and its rights.
        fn shown(&self) -> Vec<(u64, u64, u64)> {
            let mut pages = Vec::new();
            for state in self.mappings.borrow().values() {
                for at in (0..state.size).step_by(PAGE_SIZE as usize) {
                    pages.push((state.start + at, state.offset + at, state.protection));
                }
            }
            pages.sort_unstable();
            pages
        }
    }

    impl Mappings for Space {
        fn state(&self, place: u64) -> Option<MappingState> {
            self.mappings.borrow().get(&place).copied()
        }
        fn set(&self, place: u64, state: &MappingState) -> Result<(), Error> {
            self.put(place, state)
        }
        fn make(&self, piece: usize, _: u64, state: &MappingState) -> Result<(), Error> {
            if let Some(room) = self.room.get() {
                self.room
                    .set(Some(room.checked_sub(1).ok_or(Error::NoMemory)?));
            }
            self.put(PIECES + piece as u64, state)
        }
        fn end(&self, piece: usize) {
            self.mappings.borrow_mut().remove(&(PIECES + piece as u64));
        }
        fn protect(&self, piece: usize, rights: u64) {
            let mut all = self.mappings.borrow_mut();
            all.get_mut(&(PIECES + piece as u64))
                .expect("a piece")
                .protection = rights;
        }
    }

    const A: u64 = 0x10_0000;

    fn mapping(start: u64, pages: u64, protection: u64) -> MappingState {
        MappingState {
            start,
            size: pages * PAGE_SIZE,
            offset: start + 0x100 * PAGE_SIZE,
            protection,
        }
    }

    /// Ten pages that can be written, and behind them two that cannot.
    fn space() -> Space {
        let space = Space::default();
        space.put(1, &mapping(A, 10, RW)).expect("room");
        let behind = mapping(A + 10 * PAGE_SIZE, 2, READ | EXECUTE);
        space.put(2, &behind).expect("room");
        space
    }

    fn watch(address: u64, size: u64, access: u64) -> Watch {
        Watch::new(address, size, access).expect("a watch")
    }

    #[test]
    fn only_watched_pages_lack_rights_and_all_have_them_in_the_end() {
        let (space, mut all) = (space(), Watched::default());
        let before = space.shown();
        let watches = [
            watch(A + 8, 8, WRITE),
            watch(A + 5 * PAGE_SIZE - 4, 8, WRITE),
            watch(A + 4 * PAGE_SIZE, 1, READ),
            watch(A + 10 * PAGE_SIZE - 1, 2, RW),
        ];
        for one in watches {
            let set = all.set(&space, one, true, |page| space.find(page));
            assert_eq!(set, Ok(()));
        }
        let page = |n: u64| space.rights(A + n * PAGE_SIZE);
        let expected = [READ, RW, RW, RW, 0, READ, RW, RW, RW, 0, 0];
        for (n, rights) in expected.into_iter().enumerate() {
            assert_eq!(page(n as u64), Some(rights), "S2: page {n}");
        }
        assert_eq!(page(11), Some(READ | EXECUTE));
        let places = |shown: Vec<(u64, u64, u64)>| {
            let places = shown.into_iter().map(|(at, offset, _)| (at, offset));
            places.collect::<Vec<_>>()
        };
        assert_eq!(places(space.shown()), places(before.clone()));
        // One of two watches in a page is removed.
        all.set(&space, watches[2], false, |_| None).expect("gone");
        assert_eq!(page(4), Some(READ));
        all.take_out(&space);
        assert_eq!(space.shown(), before, "S2: an image lacks rights");
        assert!(
            space.mappings.borrow().len() == 2,
            "S2: a piece is in an image"
        );
        all.take_out(&space);
        assert!(all.put_back(&space));
        assert_eq!(space.shown(), before, "S2: put back too early");
        assert!(all.put_back(&space));
        assert_eq!(page(0), Some(READ));
        all.clear(&space);
        assert_eq!(space.shown(), before, "S2: rights stay away");
        assert_eq!(space.mappings.borrow().len(), 2);
    }

    #[test]
    fn a_page_has_its_rights_for_a_moment() {
        let (space, mut all) = (space(), Watched::default());
        for at in [A, A + 3 * PAGE_SIZE] {
            let one = watch(at + 16, 4, WRITE);
            let find = |page| space.find(page);
            all.set(&space, one, true, find).expect("a watch");
            assert_eq!(space.rights(at), Some(READ));
            all.give(&space, at + 100, true).expect("given");
            assert_eq!(space.rights(at), Some(RW));
            all.give(&space, at + 100, false).expect("taken");
            assert_eq!(space.rights(at), Some(READ));
        }
        assert_eq!(all.give(&space, A + PAGE_SIZE, true), Err(Error::NotFound));
        assert!(all.has_page(A + 5) && !all.has_page(A + PAGE_SIZE));
    }

    #[test]
    fn a_program_changes_its_mappings_as_if_nothing_was_watched() {
        let (space, mut all) = (space(), Watched::default());
        let at = A + 3 * PAGE_SIZE;
        let one = watch(at, 8, WRITE);
        all.set(&space, one, true, |page| space.find(page))
            .expect("a watch");
        // The program gives up the right to write.
        all.make_whole(&space, 1);
        space.put(1, &mapping(A, 10, READ)).expect("room");
        assert!(all.cut_if_possible(&space, 1));
        all.give(&space, at, true).expect("given");
        assert_eq!(space.rights(at), Some(READ), "S2: a debugger gives a right");
        all.give(&space, at, false).expect("taken");
        // The program unmaps the page, and maps it again.
        all.make_whole(&space, 1);
        space.put(1, &mapping(A, 2, RW)).expect("room");
        assert!(all.cut_if_possible(&space, 1));
        assert_eq!(space.rights(at), None);
        space.put(3, &mapping(at, 4, RW)).expect("room");
        assert!(all.cut_if_possible(&space, 3));
        assert_eq!(space.rights(at), Some(READ), "it is not watched any more");
        all.mapping_ends(&space, 3);
        space.mappings.borrow_mut().remove(&3);
        assert_eq!(space.mappings.borrow().len(), 2);
        all.take_out(&space);
        assert!(all.put_back(&space));
        all.set(&space, one, false, |_| None).expect("gone");
        assert_eq!(space.shown().len(), 4);
    }

    #[test]
    fn without_memory_nothing_is_watched_and_nothing_lost() {
        const UNSEEN: &str = "a program does not notice a debugger";
        let (space, mut all) = (space(), Watched::default());
        let before = space.shown();
        let one = watch(A + 3 * PAGE_SIZE, 8, WRITE);
        for room in 0..2 {
            space.room.set(Some(room));
            let set = all.set(&space, one, true, |page| space.find(page));
            assert_eq!(set, Err(Error::NoMemory));
            assert_eq!(space.shown(), before, "{UNSEEN}");
        }
        space.room.set(None);
        all.set(&space, one, true, |page| space.find(page))
            .expect("a watch");
        all.take_out(&space);
        space.room.set(Some(1));
        assert!(!all.put_back(&space), "it was lost, and nobody is told");
        assert_eq!(space.shown(), before, "{UNSEEN}");
        space.room.set(None);
        let other = watch(A + PAGE_SIZE, 8, WRITE);
        for one in [one, other] {
            all.set(&space, one, true, |page| space.find(page))
                .expect("a watch");
        }
        space.room.set(Some(0));
        let gone = all.set(&space, one, false, |_| None);
        assert_eq!(gone, Err(Error::NoMemory), "who takes one away is told");
        assert_eq!(space.shown(), before, "{UNSEEN}");
        space.room.set(None);
        all.set(&space, other, true, |page| space.find(page))
            .expect("it was said to be gone, and can be had again");
        assert_eq!(space.rights(A + PAGE_SIZE), Some(READ));
        all.set(&space, other, false, |_| None).expect("memory");
        let nowhere = watch(A - 8, 8, WRITE);
        let set = all.set(&space, nowhere, true, |page| space.find(page));
        assert_eq!(set, Err(Error::NotFound));
        let across = watch(A - 4, 8, WRITE);
        let set = all.set(&space, across, true, |page| space.find(page));
        assert_eq!((set, space.shown()), (Err(Error::NotFound), before));
        for (size, access) in [(0, WRITE), (PAGE_SIZE + 1, WRITE), (8, 0), (8, EXECUTE)] {
            assert_eq!(Watch::new(A, size, access), Err(Error::Invalid));
        }
        assert_eq!(Watch::new(u64::MAX, 1, READ), Err(Error::Invalid));
    }

    #[test]
    fn there_is_room_for_all_that_may_be_watched() {
        let (space, mut all) = (Space::default(), Watched::default());
        let pages = 4 * MAX_WATCHES as u64;
        space.put(1, &mapping(A, pages, RW)).expect("room");
        for n in 0..=MAX_WATCHES as u64 {
            let one = watch(A + (3 * n + 2) * PAGE_SIZE - 1, 2, WRITE);
            let set = all.set(&space, one, true, |page| space.find(page));
            let most = n == MAX_WATCHES as u64;
            assert_eq!(set, most.then_some(Error::Limit).map_or(Ok(()), Err));
        }
        assert!(space.mappings.borrow().len() <= MAX_PIECES + 1);
        all.clear(&space);
        assert_eq!(space.mappings.borrow().len(), 1);
    }

    #[test]
    fn what_the_manager_does_to_watched_bytes_is_told() {
        let (space, mut all) = (space(), Watched::default());
        all.touch(A, 8, WRITE);
        for one in [watch(A + 8, 8, WRITE), watch(A + 32, 8, READ)] {
            all.set(&space, one, true, |page| space.find(page))
                .expect("a watch");
        }
        for (at, size, access) in [(A, 8, WRITE), (A + 16, 99, WRITE), (A + 8, 8, READ)] {
            all.touch(at, size, access);
            assert_eq!(all.take_touched(), None, "{at:#x}");
        }
        all.touch(A + 39, 1, READ);
        all.touch(A, 9, WRITE);
        all.touch(A + 32, 8, READ);
        assert_eq!(all.take_touched(), Some((A + 8, WRITE)));
        assert_eq!(all.take_touched(), None);
        all.touch(A, 4 * PAGE_SIZE, READ);
        assert_eq!(all.take_touched(), Some((A + 32, READ)));
        // Accesses by a checkpointer are not reported.
        all.take_out(&space);
        all.touch(A, 4 * PAGE_SIZE, READ);
        assert_eq!(all.take_touched(), None);
    }
}
