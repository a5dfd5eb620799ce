//! The page that shows the machine: this host acts as the browser, and a real browser is used, too.

use super::browser::{self, Browser};
use super::net::free_port;
use crate::scenario::{Ctx, Failure, Output, Run};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use xtask_machine::net::Net;
use xtask_machine::rng::Rng;

const TOKEN: &str = "0123456789abcdef";
/// As many connections as `inspect` has at a time.
const IDLE: usize = 16;

/// Sends one request. Returns the status and the body of the answer; `None` if there is no answer.
fn ask(port: u16, request: &[u8]) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .ok()?;
    stream.write_all(request).ok()?;
    let mut bytes = Vec::new();
    // The connection may end by a reset, after the answer.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_string()))
}

fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
    ask(port, request.as_bytes())
}

fn post(port: u16, form: &str) -> Option<(u16, String)> {
    let length = form.len();
    let request =
        format!("POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n{form}");
    ask(port, request.as_bytes())
}

/// How often a request without an answer is repeated.
const ATTEMPTS: usize = 8;

/// The state that the page shows.
fn state(port: u16) -> Result<Value, Failure> {
    // A client whose request is still on its way when many others connect may be dropped to make room: it asks again.
    let mut answers = (0..ATTEMPTS).map(|_| get(port, "/state"));
    let answer = answers.find_map(|answer| answer);
    let (status, body) = answer.ok_or_else(|| format!("no answer to {ATTEMPTS} /state"))?;
    if status != 200 {
        return Err(format!("/state answers {status}: {body}"));
    }
    serde_json::from_str(&body).map_err(|error| error.to_string())
}

/// The processes with this name on the page: manager, number, state.
fn processes(port: u16, name: &str) -> Result<Vec<(String, u64, String)>, Failure> {
    let state = state(port)?;
    let all = state["processes"].as_array().ok_or("no processes")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let named = all.iter().filter(|process| process["name"] == name);
    Ok(named
        .map(|process| {
            (
                text(&process["manager"]),
                process["pid"].as_u64().unwrap_or(0),
                text(&process["status"]),
            )
        })
        .collect())
}

/// Waits until the page shows something. Returns what was found.
fn shown<T>(
    port: u16,
    what: &str,
    mut look: impl FnMut(&Value) -> Option<T>,
) -> Result<T, Failure> {
    let mut last = Value::Null;
    for _ in 0..200 {
        last = state(port)?;
        if let Some(found) = look(&last) {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!("{what} is not shown: {last:#}"))
}

/// The element of a list of the state that has this field.
fn element<'a>(
    state: &'a Value,
    list: &str,
    field: &str,
    is: impl Into<Value>,
) -> Option<&'a Value> {
    let is = is.into();
    let mut all = state[list].as_array()?.iter();
    all.find(|element| element[field] == is)
}

/// The process for which the first thread of the only process with this name waits: manager and number.
fn waits_for(state: &Value, name: &str) -> Option<(String, u64)> {
    let process = element(state, "processes", "name", name)?;
    let waits = &process["threads"][0]["waits"];
    Some((
        waits["manager"].as_str()?.to_string(),
        waits["pid"].as_u64()?,
    ))
}

/// Waits until the only process with this name has this state. Returns its number.
fn until(port: u16, name: &str, state: &str) -> Result<u64, Failure> {
    let mut last = Vec::new();
    for _ in 0..200 {
        last = processes(port, name)?;
        if let [(_, pid, is)] = &last[..] {
            if is == state {
                return Ok(*pid);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!("'{name}' is not {state}: {last:?}"))
}

/// Checks which thread waits for which, objects and the holders of references to them, interrupts, drivers and their
/// deaths.
fn see(port: u16) -> Result<(), Failure> {
    let pid = |name: &str| {
        let found = processes(port, name)?.pop();
        found.map(|(_, pid, _)| pid).ok_or(format!("no {name}"))
    };
    let (linux, counter) = (pid("linux")?, pid("counter")?);
    let native = |pid| Some(("native".to_string(), pid));
    shown(port, "who waits for the counter", |state| {
        (waits_for(state, "count apples @12") == native(counter)).then_some(())
    })?;
    shown(port, "who waits for linux", |state| {
        (waits_for(state, "busybox sleep 1000") == native(linux)).then_some(())
    })?;
    // The port of the name, and that of the session, to which the client has a reference.
    let (mut objects, mut from) = (Vec::new(), String::new());
    for _ in 0..100 {
        let Some(list) = listed_from(port, counter, &from)? else {
            continue;
        };
        objects.extend(list["objects"].as_array().ok_or("no objects")?.clone());
        assert_eq!(list["all_links"], true, "{list}");
        match list["next"].as_str() {
            Some(next) => from = next.to_string(),
            None => break,
        }
    }
    let of = |kind: &str| {
        objects
            .iter()
            .filter(|object| object["kind"] == kind)
            .count()
    };
    assert!(
        of("space") == 1 && of("thread") == 1 && of("mapping") > 3,
        "{objects:#?}"
    );
    let is_known = |object: &&Value| object["what"] == "known as 'counter'";
    assert!(
        objects.iter().any(|object| is_known(&object)),
        "{objects:#?}"
    );
    let links = |object: &Value| object["links"].as_array().cloned().unwrap_or_default();
    let mut ports = objects.iter().filter(|object| object["kind"] == "port");
    // The client has references to the door, by which it found the counter, and to its session.
    let is_clients = |port: &&Value| {
        let by_client = |link: &Value| link["name"] == "count apples @12";
        !is_known(port) && links(port).iter().any(by_client)
    };
    let session = ports.find(is_clients);
    let session = session.ok_or(format!("no session of the client: {objects:#?}"))?;
    let waits = "its client waits until its request can be answered";
    assert_eq!(session["what"], waits);
    for (query, status) in [
        ("manager=linux&pid=2".to_string(), 404),
        ("manager=native&pid=99999".to_string(), 404),
        (format!("manager={}&pid=1", "<b>".repeat(2000)), 400),
        (
            "manager=native&pid=1&from=0xffffffffffffffff".to_string(),
            200,
        ),
    ] {
        let path = format!("/process?{query}");
        let answers = (0..100).map_while(|_| {
            std::thread::sleep(Duration::from_millis(50));
            get(port, &path)
        });
        let said = answers.into_iter().find(|(status, _)| *status != 503);
        let (is, said) = said.ok_or("no answer to /process")?;
        assert!(is == status && said.len() < 1000, "{is} {said}");
    }
    // The driver of the source of random bytes: its line, its function, and its restart.
    let before = shown(port, "the driver", |state| {
        let line = element(state, "drivers", "name", "entropy")?;
        let function = element(state, "functions", "driver", "entropy")?;
        let lines = state["lines"].as_array()?;
        let mut parts = lines
            .iter()
            .filter_map(|line| line["parts"].as_array())
            .flatten();
        let has_line = parts.any(|part| part["function"] == function["function"]);
        (line["state"] == "running" && line["deaths"] == 0 && has_line)
            .then(|| line["pid"].as_u64())?
    })?;
    let form = format!("token={TOKEN}&manager=native&pid={before}&act=kill");
    let killed = post(port, &form).ok_or("no answer")?;
    assert_eq!(killed.0, 200, "{}", killed.1);
    shown(port, "the driver's death", |state| {
        let driver = element(state, "drivers", "name", "entropy")?;
        let is = driver["deaths"] == 1
            && driver["wanted"] == 1
            && driver["last"]["status"] == "killed by signal 9"
            && driver["state"] == "running"
            && driver["pid"] != before;
        is.then_some(())
    })
}

/// Reads the page, acts, and is refused what it may not do.
fn browse(port: u16, over: &AtomicBool) -> Result<(), Failure> {
    // The port forwarder accepts connections before the machine does, and closes them.
    let page = loop {
        match get(port, "/") {
            Some((200, page)) => break page,
            _ if over.load(Ordering::Relaxed) => return Err("there was never a page".into()),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    // Many idle clients hold up no other: the oldest connection makes room.
    let connect = |_| TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    let mut idle: Vec<TcpStream> = (0..IDLE).filter_map(|n| connect(n).ok()).collect();
    assert!(processes(port, "shell")?.len() == 1, "the shell is shown");
    // The others are still connected: no timeout was waited for. Some may have been refused, if more connected at
    // once than can wait to be accepted.
    let mut is_there = |stream: &mut TcpStream| {
        let set = stream.set_nonblocking(true);
        let error = stream.read(&mut [0]).map_err(|error| error.kind());
        set.is_ok() && error == Err(ErrorKind::WouldBlock)
    };
    assert!(
        idle.iter_mut().any(&mut is_there),
        "silent ones were waited for"
    );
    see(port)?;
    let expect = |answer: Option<(u16, String)>, status: u16| match answer {
        Some((is, said)) if is == status => Ok(said),
        other => Err(format!("expected {status}, got {other:?}")),
    };
    expect(ask(port, b"\x16\x03\x01 no request\r\n\r\n"), 400)?;
    expect(ask(port, &[b'a'; 9000]), 413)?;
    let elsewhere = b"GET /state HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    expect(ask(port, elsewhere), 403)?;
    expect(get(port, "/elsewhere"), 404)?;
    let name = SLEEPER;
    let pid = until(port, name, "running")?;
    let act = |act: &str, pid: u64, token: &str| {
        let form = format!("token={token}&manager=linux&pid={pid}&path=/tmp/image&act={act}");
        post(port, &form)
    };
    expect(act("kill", pid, "0123456789abcdee"), 403)?;
    expect(act("kill", 9999, TOKEN), 400)?;
    assert_eq!(until(port, name, "running")?, pid);
    expect(act("stop", pid, TOKEN), 200)?;
    until(port, name, "stopped")?;
    expect(act("go+on", pid, TOKEN), 200)?;
    until(port, name, "running")?;
    // Long actions are not waited for: the page shows their progress.
    let over = |what: &str| {
        shown(port, what, |state| {
            let work = element(state, "work", "what", what)?;
            let said = work["said"].as_str()?.to_string();
            (work["stage"] != "going on").then(|| (work["stage"] == "done", said))
        })
    };
    expect(act("checkpoint", pid, TOKEN), 202)?;
    let saved = over(&format!("Saving linux {pid} in /tmp/image"))?;
    assert_eq!(
        saved,
        (true, format!("linux {pid} is saved in /tmp/image."))
    );
    let nowhere =
        format!("token={TOKEN}&manager=linux&pid={pid}&path=/nowhere/image&act=checkpoint");
    expect(post(port, &nowhere), 202)?;
    let (done, why) = over(&format!("Saving linux {pid} in /nowhere/image"))?;
    assert!(!done && !why.is_empty(), "{why}");
    expect(act("kill", pid, TOKEN), 200)?;
    until(port, name, "killed by signal 9")?;
    expect(act("restore", 0, TOKEN), 202)?;
    let (done, said) = over("Restoring /tmp/image")?;
    assert!(done && said.contains(name), "{said}");
    let all = processes(port, name)?;
    assert!(
        all.iter().any(|(_, _, state)| state == "running"),
        "{all:?}"
    );
    drop(idle);
    // The program ends itself, and may not be able to answer.
    let (_, inspect, _) = processes(port, "inspect 80 /tmp/token")?
        .pop()
        .ok_or("no inspect")?;
    let form = format!("token={TOKEN}&manager=native&pid={inspect}&act=kill");
    post(port, &form);
    Ok(())
}

/// Reads the page while programs make that as hard as they can.
fn look_at_hostile(port: u16, over: &AtomicBool) -> Result<(), Failure> {
    while get(port, "/").is_none_or(|(status, _)| status != 200) {
        if over.load(Ordering::Relaxed) {
            return Err("there was never a page".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let name = "/test/hostile watched";
    let of = |name: &str| {
        let found = processes(port, name)?.pop();
        found.map(|(_, pid, _)| pid).ok_or(format!("no {name}"))
    };
    let inspect = of(SELF)?;
    let pid = of(name)?;
    // Half of its callers wait for the program itself; of the others this cannot be known; one waits for a mutex;
    // there are no other waits.
    shown(port, "whom it waits for", |state| {
        let process = element(state, "processes", "name", name)?;
        let threads = process["threads"].as_array()?;
        let waits = threads
            .iter()
            .filter_map(|thread| thread["waits"].as_object());
        let (mut itself, mut unknown, mut mutex, mut all) = (0, 0, 0, 0);
        for waits in waits {
            let on = waits["on"].as_str()?;
            all += 1;
            itself += usize::from(waits["pid"] == pid);
            unknown += usize::from(on.starts_with("somebody who was not found"));
            mutex += usize::from(on.contains("mutex"));
        }
        ((all, itself, unknown, mutex) == (9, 4, 4, 1)).then_some(())
    })?;
    // A driver that dies at once: how often, by what, and that it was given up.
    shown(port, "the driver that dies", |state| {
        let driver = element(state, "drivers", "name", "crash")?;
        let last = &driver["last"];
        let is = driver["state"] == "given up"
            && driver["deaths"] == 6
            && driver["wanted"] == 0
            && driver["pid"] == 0
            && last["status"] == "killed by signal 11"
            && last["why"].as_str()?.starts_with("bad access to 0x8 at ");
        is.then_some(())
    })?;
    // The program has thousands of objects. Each answer has a few, and says where to continue, or that it is
    // incomplete.
    let (mut from, mut listed) = (String::new(), 0);
    for _ in 0..40 {
        let Some(list) = listed_from(port, pid, &from)? else {
            continue;
        };
        listed += list["objects"].as_array().map_or(0, Vec::len);
        match list["next"].as_str() {
            Some(next) => from = next.to_string(),
            None => return Err(format!("there were only {listed} objects")),
        }
    }
    assert!(listed >= 2 * 32, "{listed} objects");
    let form = format!("token={TOKEN}&manager=native&pid={inspect}&act=kill");
    post(port, &form);
    Ok(())
}

/// The objects of a native process from there on; `None`, after a moment, if another client has just asked.
fn listed_from(port: u16, pid: u64, from: &str) -> Result<Option<Value>, Failure> {
    let path = format!("/process?manager=native&pid={pid}&from={from}");
    let (status, body) = get(port, &path).ok_or("no answer to /process")?;
    if status == 503 {
        std::thread::sleep(Duration::from_millis(50));
        return Ok(None);
    }
    assert_eq!(status, 200, "{body}");
    let list = serde_json::from_str(&body).map_err(|error| error.to_string())?;
    Ok(Some(list))
}

/// Programs that wait in strange ways, and have as many objects as allowed, do not hold up a reader of the page, and
/// the machine goes on.
pub(crate) fn hostile(ctx: &mut Ctx) -> Result<(), Failure> {
    let port = free_port()?;
    let script = "net up\n/test/hostile watched &\ntrust inspect 80 /tmp/token &\nwait %2\n\
         kill %1\necho over\n";
    // For a PCI function that every machine has, and that no driver has claimed.
    let driver = "test/hostile crash pci=8086:7113\n";
    let run = Run::script(script)
        .add("/tmp/token", format!("{TOKEN}\n"))
        .add("/etc/drivers", driver)
        .net(Net::User {
            forwards: vec![(port, 80)],
        });
    let (output, looked) = beside(ctx, run, |over| {
        let looked = look_at_hostile(port, over);
        if looked.is_err() {
            end(port);
        }
        looked
    });
    let output = output?;
    looked?;
    assert!(output.text().contains("over"), "{}", output.text());
    Ok(())
}

/// Ends the page's program, and with it the script.
fn end(port: u16) {
    for (_, pid, _) in processes(port, SELF).unwrap_or_default() {
        let form = format!("token={TOKEN}&manager=native&pid={pid}&act=kill");
        post(port, &form);
    }
}

/// What a driven browser does and sees: rows, a picture of the waiting threads, and the effects of clicks with the
/// token and without. Returns a picture of the page.
fn look(port: u16, over: &AtomicBool) -> Result<Vec<u8>, Failure> {
    // What forwards the port takes connections before the machine does, and closes them.
    while get(port, "/").is_none_or(|(status, _)| status != 200) {
        if over.load(Ordering::Relaxed) {
            return Err("there was never a page".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let sleeper = until(port, SLEEPER, "running")?;
    let of = |name: &str| {
        let found = processes(port, name)?.pop();
        found.map(|(_, pid, _)| pid).ok_or(format!("no {name}"))
    };
    let (counter, random, inspect) = (of("counter")?, of("virtio-rng")?, of(SELF)?);
    let mut browser = Browser::start(1000, 900)?;
    browser.open(&format!("http://127.0.0.1:{port}/"))?;
    let button = |what: &str, id: &str| {
        format!("document.querySelector('button[data-key=\"{what} {id}\"]')")
    };
    let id = format!("linux {sleeper}");
    let row = format!("{}.closest('tr').innerText", button("stop", &id));
    // Rows; a process's name is on the page only as text.
    for (part, least) in [
        ("processes", 10),
        ("drivers", 6),
        ("lines", 3),
        ("functions", 4),
    ] {
        let count = format!("document.querySelectorAll('#{part} > tr').length >= {least}");
        browser.until(&count)?;
    }
    browser.until("document.querySelectorAll('svg rect').length >= 4")?;
    browser.until("document.querySelector('svg').textContent.includes('counter')")?;
    let hostile = "document.getElementById('processes').innerText.includes('<img src=x onerror=')";
    browser.until(hostile)?;
    browser.until("document.images.length === 0 && window.hacked === undefined")?;
    browser.until(&format!("{row}.includes('waits for linux')"))?;
    // Accessibility: a language, a label for each input, a name for each button, and a scope for each table head.
    browser.until(
        "document.documentElement.lang === 'en' && document.title !== '' \
         && [...document.querySelectorAll('input')].every(it => it.labels.length === 1) \
         && [...document.querySelectorAll('button')].every(it => it.getAttribute('aria-label') || it.textContent) \
         && [...document.querySelectorAll('th')].every(it => it.scope) \
         && [...document.querySelectorAll('[role=img]')].every(it => it.getAttribute('aria-label') || it.getAttribute('aria-labelledby'))",
    )?;
    // Without the token there is a message, and nothing is done.
    let said =
        |what: &str| format!("document.getElementById('said').textContent.includes('{what}')");
    browser.click(&button("stop", &id))?;
    browser.until(&said("The token is another one"))?;
    until(port, SLEEPER, "running")?;
    // With the token the process is stopped, the page shows that by itself, and the button keeps the focus.
    browser.click("document.getElementById('token')")?;
    browser.type_text(TOKEN)?;
    browser.click(&button("stop", &id))?;
    browser.until(&said("is stopped"))?;
    browser.until(&format!("{row}.includes('stopped')"))?;
    until(port, SLEEPER, "stopped")?;
    browser.until(&format!(
        "document.activeElement === {}",
        button("stop", &id)
    ))?;
    browser.click(&button("go on", &id))?;
    browser.until(&format!("{row}.includes('running')"))?;
    // A long action is shown until it is done.
    browser.click(&button("checkpoint", &id))?;
    browser
        .until("document.getElementById('work').textContent.includes('is saved in /tmp/image')")?;
    // A driver is killed, and is restarted.
    browser.click(&button("kill", &format!("native {random}")))?;
    browser.until("document.getElementById('drivers').innerText.includes('1 (1 by kill)')")?;
    // Objects are shown on request.
    browser.click(&button("objects", &format!("native {counter}")))?;
    browser.until("!document.getElementById('objects').hidden")?;
    let listed = "document.getElementById('list').innerText.includes(\"known as 'counter'\")";
    let is_over = "document.getElementById('more').hidden";
    while browser.value(&format!("{listed} || {is_over}"))? != true {
        browser.click("document.getElementById('more')")?;
        browser.until("!document.getElementById('more').disabled")?;
    }
    browser.until(listed)?;
    browser.until("document.getElementById('kinds').innerText.includes('\u{d7} port')")?;
    browser.click("document.getElementById('close')")?;
    browser.until("document.getElementById('objects').hidden")?;
    // The picture is finite if some threads wait for each other, and shows that: here 1 and 2 do, and 3 waits for
    // them.
    let circle = "(() => { const waits = (pid, other) => ({ manager: 'native', pid, name: 'a', threads: \
         [{ doing: 'b', waits: { manager: 'native', pid: other, on: 'a', at: '' } }] }); \
         const all = edges({ processes: [waits(1, 2), waits(2, 1), waits(3, 1), waits(4, 4)] }); \
         return all.edges.map(edge => edge.circle).join() === 'true,true,false,false' \
         && picture(all).querySelectorAll('path.circle').length === 2 && waiting(all).length === 4; })()";
    assert_eq!(browser.value(circle)?, true, "who waits in a circle");
    // While it is held still, it does not change.
    browser.click("document.getElementById('still')")?;
    browser.value(FOR_PICTURE)?;
    let picture = browser.picture()?;
    if !browser.complaints.is_empty() {
        return Err(format!("the browser says: {:#?}", browser.complaints));
    }
    // The program ends itself.
    browser.click(&button("kill", &format!("native {inspect}")))?;
    browser.until("document.getElementById('missing').innerText.includes('The machine d')")?;
    Ok(picture)
}

/// Changes the page to its form in README.md: with small letters, and with few colours, so that the file is small.
const FOR_PICTURE: &str = r##"(() => {
    const make = (parent, name, attributes) => {
        const element = document.createElementNS("http://www.w3.org/2000/svg", name);
        for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
        return parent.appendChild(element);
    };
    const filter = make(make(document.body, "svg", { width: 0, height: 0 }), "filter",
        { id: "few", x: 0, y: 0, width: 1, height: 1, "color-interpolation-filters": "sRGB" });
    const each = make(filter, "feComponentTransfer", {});
    for (const colour of "RGB")
        make(each, `feFunc${colour}`, { type: "discrete", tableValues: "0 .25 .5 .75 1" });
    document.documentElement.style.background = "white";
    document.documentElement.style.filter = "url(#few)";
    document.body.style.fontSize = "11px";
})()"##;

/// The processes with which the page is tested.
const SLEEPER: &str = "busybox sleep 1000";
const SELF: &str = "inspect 80 /tmp/token";

/// Tests the page in a browser, if this host has one.
pub(crate) fn in_browser(ctx: &mut Ctx) -> Result<(), Failure> {
    if !browser::is_there() {
        let why = "there is no browser: './fermata prove --browser' installs one (100 MB)";
        ctx.leave_out(why);
        return Ok(());
    }
    shown_in_browser(ctx).map(|_| ())
}

/// Tests the page in a browser. Returns a picture of it.
pub(crate) fn shown_in_browser(ctx: &mut Ctx) -> Result<Vec<u8>, Failure> {
    let port = free_port()?;
    let script = "net up\nbusybox sleep 1000 &\n\
         busybox sh -c 'sleep 1000; : \"<img src=x onerror=window.hacked=1>\"' &\n\
         counter &\ncount apples 7\ncount apples @12 &\n\
         trust inspect 80 /tmp/token &\nwait %5\necho over\n";
    let run = Run::script(script)
        .add("/tmp/token", format!("{TOKEN}\n"))
        .rng(Rng::Host)
        .net(Net::User {
            forwards: vec![(port, 80)],
        });
    let (output, looked) = beside(ctx, run, |over| {
        let looked = look(port, over);
        if looked.is_err() {
            end(port);
        }
        looked
    });
    let (output, picture) = (output?, looked?);
    let text = output.text();
    assert!(text.contains("\nover\n"), "it did not end:\n{text}");
    Ok(picture)
}

/// Runs a machine, and a function beside it that watches it until it is over.
fn beside<T: Send>(
    ctx: &mut Ctx,
    run: Run,
    look: impl FnOnce(&AtomicBool) -> Result<T, Failure> + Send,
) -> (Result<Output, Failure>, Result<T, Failure>) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let browser = scope.spawn(|| look(&over));
        let output = ctx.run(run);
        over.store(true, Ordering::Relaxed);
        let looked = browser.join();
        let looked = looked.unwrap_or_else(|panic| match panic.downcast_ref::<String>() {
            Some(why) => Err(format!("the browser was not content: {why}")),
            None => Err("the browser was not content".to_string()),
        });
        (output, looked)
    })
}

/// A browser sees the machine's state, and stops, saves, ends and restores a Linux program with the token, and not
/// without.
pub(crate) fn page(ctx: &mut Ctx) -> Result<(), Failure> {
    let port = free_port()?;
    let script = "net up\nbusybox sleep 1000 &\ncounter &\ncount apples 7\ncount apples @12 &\n\
         trust inspect 80 /tmp/token &\nwait %4\nkill %1\nkill %2\nkill %3\n\
         inspect 80\ntrust inspect 80 /tmp/short\necho over\n";
    let run = Run::script(script)
        .add("/tmp/token", format!("{TOKEN}\nof no interest\n"))
        .add("/tmp/short", "short\n")
        .rng(Rng::Host)
        .net(Net::User {
            forwards: vec![(port, 80)],
        });
    let (output, browsed) = beside(ctx, run, |over| browse(port, over));
    let output = output?;
    browsed?;
    let text = output.text();
    let lines = [
        "inspect: the page is at port 80; the token is in /tmp/token",
        "inspect: it needs the system port: start it with 'trust inspect'",
        "inspect: /tmp/short: a token has at least 16 letters and digits",
        "over",
    ];
    for line in lines {
        assert!(text.contains(line), "'{line}' is missing in:\n{text}");
    }
    Ok(())
}
