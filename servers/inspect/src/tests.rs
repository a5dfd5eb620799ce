//! Requests as browsers and as enemies send them.
use crate::answer::{answer, Act, Done, Machine, Subject};
use crate::crowd::makes_room;
use crate::http::{field, is_own, parse, Parsed, Request, Status, MOST};
use crate::state::{Driver, Function, Objects, Process, State};
use crate::work::{self, Works};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use services::device::{Line, LinePart, PciFunction};
use services::process::{Info, Status as Doing, Thread, IN_MEMORY};
use services::system::{self, Death, DriverState, Link, On, Wait, MOST_OBJECTS};

const TOKEN: &str = "0123456789abcdef";

#[derive(Default)]
struct Fake {
    state: State,
    done: Vec<Act>,
}

impl Machine for Fake {
    fn state(&mut self) -> &State {
        &self.state
    }
    fn objects(&mut self, subject: &Subject, from: u64) -> Result<Objects, (Status, String)> {
        match (subject.manager, from) {
            ("native", 0..=0x10) => Ok(objects_of(subject.pid)),
            ("native", _) => Err((Status::Busy, "Ask again.".into())),
            _ => Err((Status::NotFound, "It is not told.".into())),
        }
    }
    fn act(&mut self, act: &Act) -> Result<Done, String> {
        self.done.push(act.clone());
        Ok(match act {
            Act::Save(..) | Act::Restore(_) => Done::Begun("begun.".into()),
            _ => Done::Now("done.".into()),
        })
    }
}

fn objects_of(pid: u32) -> Objects {
    let object = |n: u64| system::Object {
        spot: IN_MEMORY | (n << 4),
        kind: "port".into(),
        what: "known as '<b>'".into(),
    };
    let link = Link {
        spot: IN_MEMORY | 0x10,
        other: 4,
        at: 0x20,
        named: true,
    };
    let objects = (1..=MOST_OBJECTS as u64).map(object).collect();
    let next = Some(IN_MEMORY | 33 << 4);
    Objects::new(pid, (objects, next), (&[link], false), |pid| {
        format!("p{pid}")
    })
}

fn whole(text: &str) -> Request {
    match parse(text.as_bytes()) {
        Parsed::Whole(request) => request,
        other => panic!("{other:?}"),
    }
}

fn post(body: &str) -> Request {
    let length = body.len();
    whole(&format!(
        "POST /act HTTP/1.1\r\nHost: localhost:8080\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
}

fn status(answer: &[u8]) -> u16 {
    let line = core::str::from_utf8(answer).unwrap().lines().next();
    line.unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_request_comes_in_pieces() {
    let text = "POST /act?x=1 HTTP/1.1\r\nHost: 127.0.0.1\r\ncontent-length: 5\r\n\r\nhello";
    for end in 0..text.len() {
        assert_eq!(parse(&text.as_bytes()[..end]), Parsed::Partial, "{end}");
    }
    let request = whole(text);
    assert_eq!((&*request.path, &*request.body), ("/act", &b"hello"[..]));
}

#[test]
fn what_is_no_request_is_refused() {
    let bad = |text: &[u8]| match parse(text) {
        Parsed::Bad(status) => status,
        other => panic!("{other:?}"),
    };
    assert_eq!(bad(b"\x16\x03\x01\x02\x00"), Status::Invalid);
    assert_eq!(bad(&vec![b'a'; MOST]), Status::TooLarge);
    let with = |field: &str| format!("GET / HTTP/1.1\r\n{field}\r\n\r\n");
    for length in ["-1", "x", "18446744073709551616", "1, 2"] {
        let text = with(&format!("Content-Length: {length}"));
        assert_eq!(bad(text.as_bytes()), Status::Invalid, "{length}");
    }
    for length in [MOST as u64, u64::MAX] {
        let text = with(&format!("Content-Length: {length}"));
        assert_eq!(bad(text.as_bytes()), Status::TooLarge, "{length}");
    }
    let chunked = with("Transfer-Encoding: chunked");
    assert_eq!(bad(chunked.as_bytes()), Status::Invalid);
    let many = "a: b\r\n".repeat(60);
    assert_eq!(
        bad(format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes()),
        Status::TooLarge
    );
    // Whatever bytes come, they are answered or more is waited for, and nothing panics.
    let mut random = fastrand::Rng::with_seed(1);
    let pieces: [&[u8]; 8] = [
        b"GET ",
        b"/",
        b" HTTP/1.1",
        b"\r\n",
        b"Host: ",
        b"\0\xff",
        b"Content-Length: 9",
        b":",
    ];
    for _ in 0..20_000 {
        let count = random.usize(..12);
        let text: Vec<u8> = (0..count)
            .flat_map(|_| pieces[random.usize(..pieces.len())].to_vec())
            .collect();
        if let Parsed::Whole(request) = parse(&text) {
            answer(&request, TOKEN, &mut Fake::default());
        }
    }
}

#[test]
fn names_of_others_do_not_lead_here() {
    for own in [
        "localhost",
        "localhost:8080",
        "127.0.0.1:1",
        "10.0.2.15",
        "[::1]:80",
        "[::1]",
    ] {
        assert!(is_own(own), "{own}");
    }
    for other in [
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:80",
        ":80",
    ] {
        assert!(!is_own(other), "{other}");
        let request = whole(&format!("GET /state HTTP/1.1\r\nHost: {other}\r\n\r\n"));
        assert_eq!(status(&answer(&request, TOKEN, &mut Fake::default())), 403);
    }
}

#[test]
fn who_has_the_token_acts() {
    let mut machine = Fake::default();
    let mut ask = |body: &str| status(&answer(&post(body), TOKEN, &mut machine));
    let good = format!("token={TOKEN}&");
    for token in [
        "",
        "token=",
        "token=0123456789abcdeg",
        "token=0123456789abcde",
        "token=0123456789abcdeff",
    ] {
        assert_eq!(ask(&format!("{token}&act=kill&manager=linux&pid=3")), 403);
    }
    for body in [
        "act=",
        "act=burn",
        "act=kill",
        "act=kill&manager=kernel&pid=1",
        "act=kill&manager=linux&pid=-1",
        "act=checkpoint&manager=linux&pid=1",
        "act=restore&path=relative",
        "act=restore&path=/a%00b",
    ] {
        assert_eq!(ask(&format!("{good}{body}")), 400, "{body}");
    }
    assert_eq!(ask(&format!("{good}act=go+on&manager=linux&pid=3")), 200);
    assert_eq!(
        ask(&format!(
            "act=checkpoint&manager=native&pid=7&path=%2Ftmp%2Fa+b&{good}"
        )),
        202,
        "it takes long, and is not waited for"
    );
    let subject = |manager, pid| Subject { manager, pid };
    assert_eq!(
        machine.done,
        [
            Act::GoOn(subject("linux", 3)),
            Act::Save(subject("native", 7), "/tmp/a b".to_string())
        ]
    );
    // A GET request cannot act.
    let get = whole(&format!(
        "GET /act?{good}act=kill&manager=linux&pid=3 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ));
    assert_eq!(status(&answer(&get, TOKEN, &mut machine)), 405);
    assert_eq!(machine.done.len(), 2);
}

#[test]
fn what_is_wrong_is_not_said_at_length() {
    let long = "x".repeat(7000);
    let good = format!("token={TOKEN}&");
    for body in [
        format!("{good}act={long}"),
        format!("{good}act=kill&manager={long}&pid=1"),
        format!("{good}act=kill&manager=linux&pid={long}"),
    ] {
        let said = answer(&post(&body), TOKEN, &mut Fake::default());
        assert_eq!(status(&said), 400);
        assert!(said.len() < 1000, "S1: an answer of any length");
        // Whatever the client sent, the answer is text and not a page.
        let text = core::str::from_utf8(&said).unwrap();
        assert!(text.contains("Content-Type: text/plain"), "{text}");
        assert!(text.contains("X-Content-Type-Options: nosniff"), "{text}");
    }
}

#[test]
fn objects_are_listed_when_asked_for() {
    let mut machine = Fake::default();
    let mut ask = |query: &str| {
        let request = format!("GET /process?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let said = answer(&whole(&request), TOKEN, &mut machine);
        let text = String::from_utf8(said.clone()).unwrap();
        let body = text.split_once("\r\n\r\n").unwrap().1.to_string();
        (status(&said), body)
    };
    let (status, body) = ask("manager=native&pid=5");
    assert_eq!(status, 200);
    let value: serde_json::Value = serde_json::from_str(&body).unwrap();
    let first = &value["objects"][0];
    assert_eq!(first["segment"], "memory");
    assert_eq!(
        (&first["at"], &first["what"]),
        (&"0x10".into(), &"known as '<b>'".into())
    );
    let link = serde_json::json!({ "pid": 4, "name": "p4", "at": "0x20" });
    assert_eq!(first["links"], serde_json::json!([link]));
    assert_eq!(value["objects"].as_array().unwrap().len(), MOST_OBJECTS);
    assert_eq!(value["next"], "0x8000000000000210", "a list goes on");
    assert_eq!(value["all_links"], false);
    assert_eq!(ask("manager=native&pid=5&from=0x8000000000000210").0, 503);
    assert_eq!(ask("manager=linux&pid=5").0, 404);
    for wrong in [
        "",
        "pid=5",
        "manager=native",
        "manager=kernel&pid=5",
        "manager=native&pid=-1",
        "manager=native&pid=5&from=16",
        "manager=native&pid=5&from=0x10000000000000000",
        "manager=%ff&pid=5",
    ] {
        assert_eq!(ask(wrong).0, 400, "{wrong}");
    }
    let post = whole("POST /process HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(
        super::tests::status(&answer(&post, TOKEN, &mut machine)),
        405
    );
}

/// A process with one thread for each pair of what it waits for and its exception.
fn process(manager: &'static str, pid: u32, name: &str, waiting: &[(u8, u8)]) -> Process {
    let thread = |&(waiting, exception): &(u8, u8)| Thread {
        rip: 0x40_0000,
        rax: 0,
        waiting,
        stops: 0,
        exception,
    };
    Process::new(
        manager,
        Info {
            pid,
            name: name.into(),
            status: Doing::Running,
            threads: waiting.iter().map(thread).collect(),
            doing: Vec::new(),
            resident: 0,
            objects: 0,
        },
    )
}

#[test]
fn who_waits_for_whom_is_told_by_name() {
    let [sleeps, serves, calls] = [3, 6, 5].map(|waiting| (waiting, 0));
    let mut state = State {
        processes: vec![
            process("native", 3, "linux", &[serves]),
            process("native", 5, "ps", &[sleeps, calls, calls]),
            process("linux", 5, "busybox", &[(9, 1), (0, 0)]),
        ],
        ..State::default()
    };
    let may: Vec<bool> = state.processes.iter().map(Process::may_wait).collect();
    assert_eq!(may, [false, true, true], "clients and times are nobody");
    let wait = |thread, on| Wait {
        thread,
        at: 0x1000,
        on,
    };
    // Waits for a thread or a process that has ended do not panic.
    let told = [
        wait(1, On::Process(3)),
        wait(2, On::Process(99)),
        wait(7, On::Memory),
        // The thread that waited was replaced by another one, which waits for nobody.
        wait(0, On::Process(3)),
    ];
    state.add_waits(5, &told);
    state.add_waits(77, &told);
    state.add_linux_waits();
    let waits = |process: usize, thread: usize| {
        let waits = state.processes[process].threads[thread].waits.as_ref();
        waits.map(|waits| (waits.manager, waits.pid, &*waits.on, &*waits.at))
    };
    assert_eq!(
        waits(1, 1),
        Some((Some("native"), Some(3), "linux", "0x1000"))
    );
    assert_eq!(
        waits(1, 2),
        Some((Some("native"), Some(99), "(it has ended)", "0x1000"))
    );
    assert_eq!(waits(2, 0), Some((Some("native"), Some(3), "linux", "")));
    assert_eq!((waits(0, 0), waits(1, 0), waits(2, 1)), (None, None, None));
    for on in [
        On::Anybody,
        On::Memory,
        On::Manager,
        On::Init,
        On::Dead,
        On::Unknown,
    ] {
        state.add_waits(5, &[wait(1, on)]);
        let waits = state.processes[1].threads[1].waits.as_ref().unwrap();
        assert!(waits.pid.is_none() && !waits.on.is_empty());
    }
}

#[test]
fn drivers_and_interrupts_are_told() {
    let told = |state| system::Driver {
        name: "disk".into(),
        program: "sbin/virtio-blk".into(),
        uses: None,
        state,
        pid: 9,
        deaths: 3,
        wanted: 1,
        last: Some(Death {
            at_ns: 7,
            status: Doing::Killed(11),
            why: "bad access".into(),
        }),
    };
    let states = [
        (DriverState::Running, "running", ""),
        (DriverState::Absent, "no device", ""),
        (DriverState::Starting, "being started anew", ""),
        (DriverState::GivenUp("why".into()), "given up", "why"),
    ];
    for (state, words, why) in states {
        let driver = Driver::new(told(state), vec!["the PCI function 00:04.0".into()]);
        let value = serde_json::to_value(&driver).unwrap();
        assert_eq!(
            (&value["state"], &value["why"]),
            (&words.into(), &why.into())
        );
        assert_eq!((&value["deaths"], &value["wanted"]), (&3.into(), &1.into()));
        assert_eq!(value["last"]["status"], "killed by signal 11");
        assert_eq!(value["last"]["why"], "bad access");
        assert_eq!(value["has"][0], "the PCI function 00:04.0");
    }
    let mut state = State::default();
    let part = |function| LinePart {
        driver: "disk".into(),
        function,
        silenced: function.is_some(),
    };
    let (mut lines, shared) = (vec![Line::default(); 16], true);
    lines[4].parts = vec![part(None)];
    lines[11] = Line {
        shared,
        parts: vec![part(Some(0x20)), part(Some(0x1_21))],
    };
    state.add_lines(lines);
    let value = serde_json::to_value(&state.lines).unwrap();
    assert_eq!(value.as_array().unwrap().len(), 2, "lines that nobody has");
    assert_eq!(value[0]["line"], 4);
    assert_eq!(value[0]["parts"][0]["function"], serde_json::Value::Null);
    assert_eq!(value[1]["shared"], true);
    assert_eq!(value[1]["parts"][1]["function"], "01:04.1");
    assert_eq!(value[1]["parts"][1]["masked"], true);
    let function = Function::new(PciFunction {
        function: 0x20,
        vendor: 0x1af4,
        device: 0x1001,
        class: 0x0100_0000,
        line: Some(11),
        shares: true,
        driver: None,
    });
    let value = serde_json::to_value(&function).unwrap();
    assert_eq!(
        (&value["function"], &value["id"], &value["class"]),
        (&"00:04.0".into(), &"1af4:1001".into(), &"0100".into())
    );
}

#[test]
fn what_takes_long_is_bounded_and_remembered() {
    let mut works = Works::new();
    let first = works.begin("Saving native 1").unwrap();
    let all: Vec<u32> = (1..work::MOST)
        .map(|_| works.begin("more").unwrap())
        .collect();
    let why = works
        .begin("one more")
        .expect_err("S1: there is no end of what takes long");
    assert!(why.contains("wait"), "{why}");
    assert_eq!(works.list()[0].stage, "going on");
    works.over(first, Ok("saved.".into()));
    assert_eq!(
        (works.list()[0].stage, &*works.list()[0].said),
        ("done", "saved.")
    );
    works.over(all[0], Err("no room.".into()));
    assert_eq!(
        (works.list()[1].stage, &*works.list()[1].said),
        ("failed", "no room.")
    );
    works.forget(all[1]);
    works.over(all[1], Ok("of nobody".into()));
    // Of finished actions only the last are kept; a running one is never forgotten.
    for _ in 0..100 {
        let number = works.begin("again").unwrap();
        works.over(number, Ok(String::new()));
    }
    assert!(works.list().len() < 2 * work::MOST + 2);
    assert!(works.list().iter().any(|work| work.number == all[2]));
}

#[test]
fn fields_of_forms_are_text() {
    assert_eq!(field(b"a=1&b=x%20y+z&b=2", "b").as_deref(), Some("x y z"));
    assert_eq!(field(b"a=%", "a"), None);
    assert_eq!(field(b"a=%zz", "a"), None);
    assert_eq!(field(b"a=%ff", "a"), None);
    assert_eq!(field(b"a", "a"), None);
    assert_eq!(field(b"a=\xff", "a"), None);
}

#[test]
fn the_state_is_json_whatever_processes_are_called() {
    let info = Info {
        pid: 3,
        name: "</script>\"\u{1}\\".into(),
        status: Doing::Exited(255),
        threads: vec![Thread {
            rip: u64::MAX,
            rax: 1,
            waiting: 0,
            stops: 2,
            exception: 0,
        }],
        doing: vec!["in user code".into()],
        resident: 1 << 40,
        objects: 9,
    };
    let mut machine = Fake::default();
    machine.state.processes.push(Process::new("linux", info));
    let request = whole("GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let said = answer(&request, TOKEN, &mut machine);
    let text = core::str::from_utf8(&said).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}", body.len())));
    let value: serde_json::Value = serde_json::from_str(body).unwrap();
    let process = &value["processes"][0];
    assert_eq!(process["name"], "</script>\"\u{1}\\");
    assert_eq!(process["status"], "exited 255");
    assert_eq!(process["threads"][0]["instruction"], "0xffffffffffffffff");
    assert_eq!(value["missing"].as_array().unwrap().len(), 0);
    // The page itself contains no names from processes.
    let page = whole("GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n");
    assert_eq!(status(&answer(&page, TOKEN, &mut machine)), 200);
}

#[test]
fn who_has_been_there_longest_makes_room() {
    const MOST: usize = crate::crowd::MOST;
    let mut deadlines: Vec<u64> = (0..MOST as u64 - 1).map(|n| 100 + n).collect();
    deadlines.swap(0, 5);
    assert_eq!(makes_room(deadlines.iter().copied()), None, "there is room");
    deadlines.push(200);
    // All connections are silent, and yet a new one is accepted.
    for n in 0..40 {
        let out = makes_room(deadlines.iter().copied());
        let out = out.expect("S1: silent connections keep out who comes");
        let first = deadlines.iter().min().copied();
        assert_eq!(Some(deadlines.swap_remove(out)), first);
        deadlines.push(300 + n);
        assert_eq!(deadlines.len(), MOST);
    }
}
