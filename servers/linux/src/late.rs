//! Requests to a file system that answers later.
//!
//! A call may ask for several things one after the other. It *waits* with the first one whose answer is not there yet:
//! it changes nothing, is parked, and is made again from its beginning when the answer has come. What it asked for in
//! earlier attempts it is told again, out of [`Late`], and nothing is asked twice. So a call is written as if answers
//! were there at once.
//!
//! * What a call has asked for is forgotten when it is done. What it has opened stays open until then, also if it has
//!   closed it: that is done at its end, and by every attempt in vain before. If its task ends before, all that it has
//!   opened is to be closed ([`Late::forget`]).
//! * Who reads, writes or lists a file holds it until the call is done, or its process stands still, and others that
//!   want to do so wait: where the next one begins depends on where this one ends.
//! * Nobody waits in a circle. Who would close one gives up what he holds: others may then go on from the same place in
//!   a file, which a call that is about several files does not exclude in Linux either.

use crate::files::{Reply, Request};
use crate::system::Tid;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proto::Error;

/// An answer, and the bytes that came with it.
pub type Answer = Result<(Reply, Vec<u8>), Error>;

/// What a call asked for.
#[derive(Debug)]
struct Step {
    request: Request,
    number: u64,
    answer: Option<Answer>,
}

/// A call that waits, or that is being made again.
#[derive(Debug, Default)]
struct Call {
    steps: Vec<Step>,
    /// The place of the next request of this attempt.
    at: usize,
    waits: bool,
    /// The file for which it waits, which another call holds.
    wants: Option<u64>,
}

/// What a call is told that asks for something.
#[derive(Debug)]
pub enum Told<'a> {
    /// The answer.
    Answer(&'a Answer),
    /// It waits. The request is to be passed on with this number.
    Ask(u64),
    /// It waits, or waited already before it asked for this.
    Wait,
}

/// What all calls have asked for that are not done.
#[derive(Debug, Default)]
pub struct Late {
    calls: BTreeMap<Tid, Call>,
    /// Which call holds a file.
    held: BTreeMap<u64, Tid>,
    /// Whose calls can go on because one that waits has given up what it held.
    freed: Vec<Tid>,
    /// The number of the last request.
    last: u64,
}

/// The file that a request holds.
const fn holds(request: &Request) -> Option<u64> {
    match request {
        Request::Read { ino, .. } | Request::Write { ino, .. } | Request::ReadDir { ino, .. } => {
            Some(*ino)
        }
        _ => None,
    }
}

impl Late {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Late {
            calls: BTreeMap::new(),
            held: BTreeMap::new(),
            freed: Vec::new(),
            last: 0,
        }
    }

    /// Whether no call waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The call of this task is made, again if it waits.
    pub fn begin(&mut self, tid: Tid) {
        if let Some(call) = self.calls.get_mut(&tid) {
            (call.at, call.waits, call.wants) = (0, false, None);
        }
    }

    /// Whether the call of this task waits.
    #[must_use]
    pub fn waits(&self, tid: Tid) -> bool {
        self.calls.get(&tid).is_some_and(|call| call.waits)
    }

    /// The call of this task asks for something. If it is not what it asked for at this place in its last attempt, that
    /// is forgotten: what it opened goes to `close`.
    pub fn ask(&mut self, tid: Tid, request: &Request, close: &mut Vec<u64>) -> Told<'_> {
        if !self.may_ask(tid, request) {
            return Told::Wait;
        }
        let call = self.calls.entry(tid).or_default();
        let at = call.at;
        if call.steps.get(at).is_some_and(|s| s.request != *request) {
            let others = call.steps.split_off(at);
            close.extend(others.iter().filter_map(Step::opened));
        }
        if at == call.steps.len() {
            self.last += 1;
            call.waits = true;
            call.steps.push(Step {
                request: request.clone(),
                number: self.last,
                answer: None,
            });
            return Told::Ask(self.last);
        }
        call.at += 1;
        match &call.steps[at].answer {
            Some(answer) => Told::Answer(answer),
            None => {
                call.waits = true;
                Told::Wait
            }
        }
    }

    /// What the call of this task has asked for at this place in its last attempt, if that had come so far.
    #[must_use]
    pub fn asked(&self, tid: Tid) -> Option<&Request> {
        let call = self.calls.get(&tid)?;
        call.steps.get(call.at).map(|step| &step.request)
    }

    /// Whether the call of this task does not wait, and has the file that it asks about.
    fn may_ask(&mut self, tid: Tid, request: &Request) -> bool {
        let call = self.calls.entry(tid).or_default();
        if call.waits {
            return false;
        }
        let Some(ino) = holds(request) else {
            return true;
        };
        let holder = *self.held.entry(ino).or_insert(tid);
        if holder == tid {
            return true;
        }
        (call.waits, call.wants) = (true, Some(ino));
        if self.is_held_up_by(holder, tid) {
            let freed = self.release(tid);
            self.freed.extend(freed);
        }
        false
    }

    /// The answer to the request with this number: whose call can go on. If nobody waits for it any more, what it opened is to be closed.
    pub fn answered(&mut self, number: u64, answer: Answer) -> Result<Tid, Option<u64>> {
        for (tid, call) in &mut self.calls {
            let mut steps = call.steps.iter_mut();
            if let Some(step) = steps.find(|step| step.number == number) {
                step.answer = Some(answer);
                return Ok(*tid);
            }
        }
        Err(opened(&answer))
    }

    /// Whether the call of this task has asked for something that changes what is there: asked again it would have another answer.
    #[must_use]
    pub fn has_begun(&self, tid: Tid) -> bool {
        let steps = self.calls.get(&tid).map(|call| call.steps.iter());
        steps.is_some_and(|mut steps| steps.any(|step| step.request.is_once()))
    }

    /// An attempt is over. Unless the call waits, it is forgotten: whose calls can go on now. What an earlier attempt has
    /// opened, and this one has not asked for, goes to `close`.
    pub fn end(&mut self, tid: Tid, close: &mut Vec<u64>) -> Vec<Tid> {
        let mut next = core::mem::take(&mut self.freed);
        if self.waits(tid) {
            return next;
        }
        if let Some(call) = self.calls.remove(&tid) {
            let rest = call.steps.iter().skip(call.at);
            close.extend(rest.filter_map(Step::opened));
            next.extend(self.release(tid));
        }
        next
    }

    /// Whether a call waits for what another one holds, or for one that does, and so on. There is no circle yet, so this ends.
    fn is_held_up_by(&self, mut waiting: Tid, other: Tid) -> bool {
        while waiting != other {
            let wants = self.calls.get(&waiting).and_then(|call| call.wants);
            match wants.and_then(|ino| self.held.get(&ino)) {
                Some(holder) => waiting = *holder,
                None => return false,
            }
        }
        true
    }

    /// The task of a call has ended: whose calls can go on now. What it opened goes to `close`.
    pub fn forget(&mut self, tid: Tid, close: &mut Vec<u64>) -> Vec<Tid> {
        let Some(call) = self.calls.remove(&tid) else {
            return Vec::new();
        };
        close.extend(call.steps.iter().filter_map(Step::opened));
        self.release(tid)
    }

    /// Nothing is held by this task any more: whose calls can go on now.
    pub fn release(&mut self, tid: Tid) -> Vec<Tid> {
        let calls = &self.calls;
        let mut next = Vec::new();
        self.held.retain(|ino, holder| {
            if *holder != tid {
                return true;
            }
            let wants = calls.iter().filter(|(_, call)| call.wants == Some(*ino));
            next.extend(wants.map(|(tid, _)| *tid));
            false
        });
        next
    }
}

impl Step {
    fn opened(&self) -> Option<u64> {
        opened(self.answer.as_ref()?)
    }
}

fn opened(answer: &Answer) -> Option<u64> {
    match answer {
        Ok((Reply::Opened(opened), _)) => Some(opened.ino),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Late, Told};
    use crate::files::{Reply, Request};
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use services::fs::{Flags, Opened};

    fn open(path: &str) -> Request {
        Request::Open {
            path: path.to_string(),
            flags: Flags::default(),
            mode: 0,
        }
    }

    fn opened(ino: u64) -> Reply {
        Reply::Opened(Opened {
            ino,
            ..Opened::default()
        })
    }

    fn read(ino: u64) -> Request {
        Request::Read {
            ino,
            offset: 0,
            length: 10,
        }
    }

    /// The number under which it is to be passed on.
    fn asks(late: &mut Late, tid: u32, request: &Request) -> u64 {
        match late.ask(tid, request, &mut Vec::new()) {
            Told::Ask(number) => number,
            told => panic!("{told:?}"),
        }
    }

    fn is_answered(late: &mut Late, tid: u32, request: &Request) -> bool {
        matches!(late.ask(tid, request, &mut Vec::new()), Told::Answer(Ok(_)))
    }

    #[test]
    fn a_call_asks_for_nothing_twice() {
        let mut late = Late::new();
        late.begin(1);
        let first = asks(&mut late, 1, &open("/a"));
        // It waits: nothing else is asked for in this attempt, and an attempt without news is the same again.
        assert!(matches!(late.ask(1, &read(5), &mut Vec::new()), Told::Wait));
        assert!(late.end(1, &mut Vec::new()).is_empty() && late.waits(1));
        late.begin(1);
        assert!(matches!(
            late.ask(1, &open("/a"), &mut Vec::new()),
            Told::Wait
        ));
        assert_eq!(late.answered(first, Ok((opened(5), Vec::new()))), Ok(1));
        late.begin(1);
        assert!(is_answered(&mut late, 1, &open("/a")));
        let second = asks(&mut late, 1, &read(5));
        assert_ne!(first, second);
        assert_eq!(
            late.answered(second, Ok((Reply::Done, b"text".to_vec()))),
            Ok(1)
        );
        late.begin(1);
        assert!(is_answered(&mut late, 1, &open("/a")));
        match late.ask(1, &read(5), &mut Vec::new()) {
            Told::Answer(Ok((_, bytes))) => assert_eq!(bytes, b"text"),
            told => panic!("{told:?}"),
        }
        late.end(1, &mut Vec::new());
        assert!(late.is_empty() && !late.waits(1));
    }

    /// A call that is made again can come to its end before it asks for all that it has asked for.
    #[test]
    fn what_the_last_attempt_does_not_ask_for_is_closed() {
        let mut late = Late::new();
        let mut close = Vec::new();
        late.begin(1);
        for (path, ino) in [("/a", 5), ("/b", 6)] {
            let number = asks(&mut late, 1, &open(path));
            assert!(late.end(1, &mut close).is_empty());
            assert_eq!(late.answered(number, Ok((opened(ino), Vec::new()))), Ok(1));
            late.begin(1);
            assert!(is_answered(&mut late, 1, &open("/a")));
        }
        late.end(1, &mut close);
        assert_eq!(close, [6], "S4: nothing is left open");
        assert!(late.is_empty());
    }

    #[test]
    fn what_has_another_answer_when_it_is_asked_again_is_known() {
        let mut late = Late::new();
        let make = Request::Mkdir {
            path: "/a".to_string(),
            mode: 0,
        };
        late.begin(1);
        let number = asks(&mut late, 1, &open("/a"));
        late.end(1, &mut Vec::new());
        assert!(!late.has_begun(1) && !late.has_begun(2));
        assert_eq!(late.answered(number, Ok((opened(5), Vec::new()))), Ok(1));
        late.begin(1);
        assert!(is_answered(&mut late, 1, &open("/a")));
        let number = asks(&mut late, 1, &make);
        late.end(1, &mut Vec::new());
        assert!(
            late.has_begun(1),
            "A1: it is not saved before it has an answer"
        );
        // Nor when it has one, of which the call does not know.
        assert_eq!(late.answered(number, Ok((Reply::Done, Vec::new()))), Ok(1));
        assert!(late.has_begun(1));
        late.begin(1);
        assert!(is_answered(&mut late, 1, &open("/a")) && is_answered(&mut late, 1, &make));
        late.end(1, &mut Vec::new());
        assert!(!late.has_begun(1));
    }

    #[test]
    fn what_nobody_waits_for_is_closed() {
        let mut late = Late::new();
        late.begin(1);
        let number = asks(&mut late, 1, &open("/a"));
        late.end(1, &mut Vec::new());
        assert_eq!(late.answered(number, Ok((opened(5), Vec::new()))), Ok(1));
        late.begin(1);
        assert!(is_answered(&mut late, 1, &open("/a")));
        let next = asks(&mut late, 1, &open("/b"));
        // The task ends: one is open already, the other one will be.
        let mut close = Vec::new();
        late.forget(1, &mut close);
        assert_eq!(close, [5]);
        assert_eq!(
            late.answered(next, Ok((opened(6), Vec::new()))),
            Err(Some(6))
        );
        // Another call of the same task, in the middle of which others changed what it goes by.
        late.begin(2);
        let number = asks(&mut late, 2, &open("/a"));
        assert_eq!(late.answered(number, Ok((opened(7), Vec::new()))), Ok(2));
        late.begin(2);
        let mut close = Vec::new();
        assert!(matches!(late.ask(2, &open("/c"), &mut close), Told::Ask(_)));
        assert_eq!(close, [7]);
    }

    #[test]
    fn who_reads_holds_the_file_until_it_is_done() {
        let mut late = Late::new();
        for tid in 1..=3 {
            late.begin(tid);
        }
        let number = asks(&mut late, 1, &read(5));
        assert!(matches!(late.ask(2, &read(5), &mut Vec::new()), Told::Wait));
        // Another file is nobody's.
        asks(&mut late, 3, &read(6));
        assert!(late.end(2, &mut Vec::new()).is_empty() && late.end(1, &mut Vec::new()).is_empty());
        assert_eq!(late.answered(number, Ok((Reply::Done, Vec::new()))), Ok(1));
        late.begin(1);
        assert!(is_answered(&mut late, 1, &read(5)));
        assert_eq!(late.end(1, &mut Vec::new()), [2]);
        late.begin(2);
        let number = asks(&mut late, 2, &read(5));
        assert!(matches!(late.ask(3, &read(5), &mut Vec::new()), Told::Wait));
        // A task that ends, or is stopped, gives back what it held.
        late.begin(1);
        assert!(matches!(late.ask(1, &read(5), &mut Vec::new()), Told::Wait));
        assert_eq!(late.forget(2, &mut Vec::new()), [1]);
        assert_eq!(
            late.answered(number, Ok((Reply::Done, Vec::new()))),
            Err(None)
        );
    }

    /// `sendfile` from one file to another, and the other way round.
    #[test]
    fn nobody_waits_in_a_circle() {
        let mut late = Late::new();
        let read_first = |late: &mut Late, tid, ino| {
            late.begin(tid);
            let number = asks(late, tid, &read(ino));
            late.end(tid, &mut Vec::new());
            assert_eq!(
                late.answered(number, Ok((Reply::Done, Vec::new()))),
                Ok(tid)
            );
        };
        for tid in 1..=3 {
            read_first(&mut late, tid, tid.into());
        }
        // Each wants what the next one holds; the last one would close the circle.
        for (tid, wants, freed) in [(1, 2, &[][..]), (2, 3, &[]), (3, 1, &[2])] {
            late.begin(tid);
            assert!(is_answered(&mut late, tid, &read(tid.into())));
            assert!(matches!(
                late.ask(tid, &read(wants), &mut Vec::new()),
                Told::Wait
            ));
            assert_eq!(
                late.end(tid, &mut Vec::new()),
                freed,
                "S1: nobody waits in a circle"
            );
        }
        // One after the other goes on, and the last one has what it gave up again.
        for (tid, wants, next) in [(2, 3, &[1][..]), (1, 2, &[3]), (3, 1, &[])] {
            late.begin(tid);
            assert!(is_answered(&mut late, tid, &read(tid.into())));
            let number = asks(&mut late, tid, &read(wants));
            assert_eq!(
                late.answered(number, Ok((Reply::Done, Vec::new()))),
                Ok(tid)
            );
            late.begin(tid);
            assert!(is_answered(&mut late, tid, &read(tid.into())));
            assert!(is_answered(&mut late, tid, &read(wants)));
            assert_eq!(late.end(tid, &mut Vec::new()), next);
        }
        assert!(late.is_empty());
    }
}
