//! Calls that wait for a file system that answers later.
//!
//! A call may make several requests one after the other. It *waits* at the first one that has no answer yet: it changes
//! nothing, is parked, and is made again from its beginning when the answer has come. It then gets the answers to its
//! earlier requests out of [`Late`], and no request is made twice. So a call is written as if answers were there at
//! once.
//!
//! * The requests of a call are forgotten when the call is done. What it has opened stays open until then, even if it
//!   has closed it: only the last attempt's close takes effect. If its task ends first, all that it has opened has to
//!   be closed ([`Late::forget`]).
//! * A call that reads, writes or lists a file holds the file until the call is done or its process is stopped, and
//!   other calls that want to do so wait: the position at which the next one begins depends on where this one ends.
//! * There are no circles of waiting calls. A call that would close a circle gives up the files that it holds: others
//!   may then go on from the same position in a file, which Linux does not exclude either for a call with several
//!   files.

use crate::files::{Reply, Request};
use crate::system::Tid;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proto::Error;

/// An answer, and the bytes that came with it.
pub type Answer = Result<(Reply, Vec<u8>), Error>;

/// A request that a call has made.
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
    /// The index of the next request of this attempt.
    at: usize,
    waits: bool,
    /// The file that it waits for because another call holds it.
    wants: Option<u64>,
}

/// The response to a call that makes a request.
#[derive(Debug)]
pub enum Told<'a> {
    /// The answer.
    Answer(&'a Answer),
    /// The call waits. The request is to be sent to the file system under this number.
    Ask(u64),
    /// The call waits, or waited already before this request.
    Wait,
}

/// The requests of all calls that are not done.
#[derive(Debug, Default)]
pub struct Late {
    calls: BTreeMap<Tid, Call>,
    /// The task whose call holds a file.
    held: BTreeMap<u64, Tid>,
    /// The tasks whose calls can go on because a waiting call has given up its files.
    freed: Vec<Tid>,
    /// The number of the last request that was sent.
    last: u64,
}

/// The file that a request needs to hold.
const fn holds(request: &Request) -> Option<u64> {
    match request {
        Request::Read { ino, .. } | Request::Write { ino, .. } | Request::ReadDir { ino, .. } => {
            Some(*ino)
        }
        _ => None,
    }
}

impl Late {
    /// No calls.
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

    /// The call of this task begins, or is made again if it waits.
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

    /// The call of this task makes a request. If it differs from the request at this point of the last attempt, that
    /// one and all later ones are forgotten, and the files that they opened go to `close`.
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

    /// The request that the call of this task made at this point of its last attempt, if that attempt came this far.
    #[must_use]
    pub fn asked(&self, tid: Tid) -> Option<&Request> {
        let call = self.calls.get(&tid)?;
        call.steps.get(call.at).map(|step| &step.request)
    }

    /// Whether the call of this task does not wait yet and holds the file of the request.
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

    /// The answer to the request with this number has come: returns the task whose call can go on. If no call waits for
    /// it any more, the error has the file that it opened, which is to be closed.
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

    /// Whether the call of this task has made a request that may not be repeated ([`Request::is_once`]).
    #[must_use]
    pub fn has_begun(&self, tid: Tid) -> bool {
        let steps = self.calls.get(&tid).map(|call| call.steps.iter());
        steps.is_some_and(|mut steps| steps.any(|step| step.request.is_once()))
    }

    /// An attempt of a call is over. Unless it waits it is forgotten, and files that an earlier attempt opened and this
    /// one did not ask for go to `close`. Returns the tasks whose calls can go on.
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

    /// Whether the call of `waiting` waits, directly or through others, for a file that `other` holds. There are no
    /// circles, so this ends.
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

    /// The task of a call has ended: the files that it opened go to `close`. Returns the tasks whose calls can go on.
    pub fn forget(&mut self, tid: Tid, close: &mut Vec<u64>) -> Vec<Tid> {
        let Some(call) = self.calls.remove(&tid) else {
            return Vec::new();
        };
        close.extend(call.steps.iter().filter_map(Step::opened));
        self.release(tid)
    }

    /// Releases the files that this task holds. Returns the tasks whose calls can go on.
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

    /// The number under which the request is to be sent.
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
        // The call waits: it makes no further request in this attempt, and an attempt without news does the same again.
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

    /// A call that is made again can end before it has made all its earlier requests.
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
        // Nor is it when there is an answer that the call has not seen.
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
        // The task ends with one file open and one about to be opened.
        let mut close = Vec::new();
        late.forget(1, &mut close);
        assert_eq!(close, [5]);
        assert_eq!(
            late.answered(next, Ok((opened(6), Vec::new()))),
            Err(Some(6))
        );
        // A later attempt makes another request, because others have changed what the call depends on.
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
        // No call holds the other file.
        asks(&mut late, 3, &read(6));
        assert!(late.end(2, &mut Vec::new()).is_empty() && late.end(1, &mut Vec::new()).is_empty());
        assert_eq!(late.answered(number, Ok((Reply::Done, Vec::new()))), Ok(1));
        late.begin(1);
        assert!(is_answered(&mut late, 1, &read(5)));
        assert_eq!(late.end(1, &mut Vec::new()), [2]);
        late.begin(2);
        let number = asks(&mut late, 2, &read(5));
        assert!(matches!(late.ask(3, &read(5), &mut Vec::new()), Told::Wait));
        // A task that ends or is stopped releases its files.
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
        // Each call wants the file that the next one holds; the last one would close the circle.
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
        // The calls go on one by one, and the last one takes its file again.
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
