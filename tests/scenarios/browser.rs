//! A browser without a window, driven over a pipe: what it shows of a page, and the effects of clicks.
//!
//! It is Debian's `chromium-headless-shell`, which reads commands in JSON (the protocol of its developer tools), each
//! with a zero byte behind it.

use crate::scenario::Failure;
use rustix::process::{kill_process_group, Pid, Signal};
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::Duration;
use tempfile::TempDir;

/// The program, and the package that it is in.
pub(crate) const PROGRAM: &str = "chromium-headless-shell";

/// How long to wait for an answer of the browser.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a condition is checked, and the pause between two checks.
const LOOKS: usize = 300;
const PAUSE: Duration = Duration::from_millis(100);

/// Whether the browser is installed.
pub(crate) fn is_there() -> bool {
    let mut command = Command::new(PROGRAM);
    command.arg("--version").stdin(Stdio::null());
    let output = command.stdout(Stdio::null()).stderr(Stdio::null());
    output.status().is_ok_and(|status| status.success())
}

/// A browser with one page. Dropping this ends the browser.
pub(super) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    last: u64,
    session: Option<String>,
    /// Errors of the page: exceptions of its script, and refused accesses.
    pub(super) complaints: Vec<String>,
    _profile: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A program of this name may be a script, which has the browser as a child.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        // The pipe is closed by the last of the processes: only then can the profile be removed.
        while self.from.recv_timeout(PATIENCE).is_ok() {}
    }
}

impl Browser {
    /// Starts the browser, with an empty page of this size.
    pub(super) fn start(width: u32, height: u32) -> Result<Self, Failure> {
        let profile = tempfile::tempdir().map_err(|error| error.to_string())?;
        // The browser wants the pipe at descriptors 3 and 4. Its sandbox needs rights that containers and root do not
        // give; the page is ours.
        let shell = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut command = Command::new("sh");
        command
            .args(["-c", shell, PROGRAM])
            .args(["--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"])
            .args(["--no-proxy-server", "--hide-scrollbars", "--no-first-run"])
            .args(["--disable-dev-shm-usage", "--lang=en"])
            // The same letter always has the same dots, which makes pictures smaller.
            .args([
                "--disable-font-subpixel-positioning",
                "--font-render-hinting=full",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (to, out) = (child.stdin.take(), child.stdout.take());
        let (to, out) = (to.ok_or("no pipe")?, out.ok_or("no pipe")?);
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let mut out = BufReader::new(out);
            let mut bytes = Vec::new();
            while out.read_until(0, &mut bytes).is_ok_and(|length| length > 0) {
                bytes.pop();
                let message = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                if sender.send(message).is_err() {
                    break;
                }
                bytes.clear();
            }
        });
        let mut browser = Browser {
            child,
            to,
            from,
            last: 0,
            session: None,
            complaints: Vec::new(),
            _profile: profile,
        };
        let made = browser.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let target = json!({ "targetId": made["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", target)?;
        browser.session = attached["sessionId"].as_str().map(String::from);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", size)?;
        Ok(browser)
    }

    /// Sends a command. Returns the browser's answer.
    pub(super) fn call(&mut self, method: &str, parameters: Value) -> Result<Value, Failure> {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let sent = self.to.write_all(format!("{command}\0").as_bytes());
        sent.map_err(|error| format!("the browser: {error}"))?;
        loop {
            let message = self.from.recv_timeout(PATIENCE);
            let mut message =
                message.map_err(|_| format!("the browser says nothing to {method}"))?;
            if message["id"] == self.last {
                return match message.get("error") {
                    Some(error) => Err(format!("{method}: {error}")),
                    None => Ok(message["result"].take()),
                };
            }
            self.hear(&message);
        }
    }

    /// Handles a message that the browser sends by itself.
    fn hear(&mut self, message: &Value) {
        let what = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.complaints.push(what["exceptionDetails"].to_string());
            }
            // Refusals of the machine are part of the test.
            Some("Log.entryAdded") if what["entry"]["source"] != "network" => {
                self.complaints.push(what["entry"]["text"].to_string());
            }
            _ => {}
        }
    }

    /// Opens a page.
    pub(super) fn open(&mut self, url: &str) -> Result<(), Failure> {
        let answer = self.call("Page.navigate", json!({ "url": url }))?;
        match answer["errorText"].as_str() {
            Some(why) => Err(format!("{url}: {why}")),
            None => Ok(()),
        }
    }

    /// The value of an expression of the page's script.
    pub(super) fn value(&mut self, expression: &str) -> Result<Value, Failure> {
        let asked =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", asked)?;
        match answer.get("exceptionDetails") {
            Some(why) => Err(format!("{expression}: {why}")),
            None => Ok(answer["result"]["value"].take()),
        }
    }

    /// Waits until an expression is true.
    pub(super) fn until(&mut self, expression: &str) -> Result<(), Failure> {
        for _ in 0..LOOKS {
            if self.value(expression)? == true {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        let text = self.value("document.body.innerText")?;
        let text = text.as_str().unwrap_or_default();
        Err(format!(
            "it is never true that {expression}; the page:\n{text}"
        ))
    }

    /// Clicks in the middle of an element, as a mouse does: an element in front of it would get the click.
    pub(super) fn click(&mut self, element: &str) -> Result<(), Failure> {
        let place = format!(
            "(() => {{ const it = {element}; it.scrollIntoView({{ block: 'center' }}); \
             const box = it.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        );
        let place = self.value(&place)?;
        for (kind, button) in [
            ("mouseMoved", "none"),
            ("mousePressed", "left"),
            ("mouseReleased", "left"),
        ] {
            let event = json!({ "type": kind, "button": button, "clickCount": 1, "x": place[0], "y": place[1] });
            self.call("Input.dispatchMouseEvent", event)?;
        }
        Ok(())
    }

    /// Types a text at the focus.
    pub(super) fn type_text(&mut self, text: &str) -> Result<(), Failure> {
        let typed = self.call("Input.insertText", json!({ "text": text }));
        typed.map(|_| ())
    }

    /// A picture of the whole page, as a PNG.
    pub(super) fn picture(&mut self) -> Result<Vec<u8>, Failure> {
        let size = self.call("Page.getLayoutMetrics", json!({}))?;
        let size = &size["cssContentSize"];
        let clip =
            json!({ "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1 });
        let wanted = json!({ "format": "png", "clip": clip, "captureBeyondViewport": true });
        let answer = self.call("Page.captureScreenshot", wanted)?;
        let text = answer["data"].as_str().ok_or("there is no picture")?;
        decoded(text).ok_or_else(|| "the picture is no base64".to_string())
    }
}

/// The bytes of a text in base64.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let text = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for piece in text.chunks(4) {
        let mut bits = 0;
        for byte in piece {
            bits = bits << 6 | digit(*byte)?;
        }
        bits <<= 6 * (4 - piece.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..piece.len()]);
    }
    Some(bytes)
}

#[test]
fn base64_is_read() {
    for (text, bytes) in [
        ("", &b""[..]),
        ("Zg==", b"f"),
        ("Zm8=", b"fo"),
        ("Zm9v", b"foo"),
        ("+/+/", b"\xfb\xff\xbf"),
    ] {
        assert_eq!(decoded(text).as_deref(), Some(bytes));
    }
    assert_eq!(decoded("Zm9*"), None);
}
