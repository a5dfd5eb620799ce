//! Requests as browsers and as enemies send them.
use crate::answer::{answer, Act, Machine, Subject};
use crate::crowd::makes_room;
use crate::http::{field, is_own, parse, Parsed, Request, Status, MOST};
use crate::state::{Process, State};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use services::process::{Info, Status as Doing, Thread};

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
    fn act(&mut self, act: &Act) -> Result<String, String> {
        self.done.push(act.clone());
        Ok("done.".into())
    }
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
    // Whatever comes, something is said or waited for, and nothing panics.
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
        200
    );
    let subject = |manager, pid| Subject { manager, pid };
    assert_eq!(
        machine.done,
        [
            Act::GoOn(subject("linux", 3)),
            Act::Save(subject("native", 7), "/tmp/a b".to_string())
        ]
    );
    // Looking does nothing, and acting is not looking.
    let get = whole(&format!(
        "GET /act?{good}act=kill&manager=linux&pid=3 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ));
    assert_eq!(status(&answer(&get, TOKEN, &mut machine)), 405);
    assert_eq!(machine.done.len(), 2);
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
    // The page itself has nothing of anybody's in it.
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
    // All are silent, and yet who comes is let in.
    for n in 0..40 {
        let out = makes_room(deadlines.iter().copied());
        let out = out.expect("S1: silent connections keep out who comes");
        let first = deadlines.iter().min().copied();
        assert_eq!(Some(deadlines.swap_remove(out)), first);
        deadlines.push(300 + n);
        assert_eq!(deadlines.len(), MOST);
    }
}
