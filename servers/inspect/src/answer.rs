//! Answers requests, and decides who may act.
use crate::http::{self, Request, Status};
use crate::state::{Objects, State};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::Serialize;

/// The page.
pub const PAGE: &str = include_str!("page.html");
/// Fewest characters of a token from a file.
pub const SHORTEST: usize = 16;

/// An action on a process, or one that makes processes from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Stops all threads of the process.
    Stop(Subject),
    /// Undoes a stop.
    GoOn(Subject),
    /// Ends the process.
    Kill(Subject),
    /// Saves the process to a file.
    Save(Subject, String),
    /// Makes processes from the file of a checkpoint.
    Restore(String),
}

/// A process, as requests name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The manager of the process.
    pub manager: &'static str,
    /// The number of the process at that manager.
    pub pid: u32,
}

/// The machine, as the page sees it.
pub trait Machine {
    /// The state that the page shows.
    fn state(&mut self) -> &State;
    /// The first kernel objects of a process from this spot on.
    ///
    /// # Errors
    /// A status and a sentence that names the cause.
    fn objects(&mut self, subject: &Subject, from: u64) -> Result<Objects, (Status, String)>;
    /// Does what is asked, or begins to, and returns a sentence about it.
    ///
    /// # Errors
    /// A sentence that names the cause.
    fn act(&mut self, act: &Act) -> Result<Done, String>;
}

/// The outcome of an [`Act`], as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The action is done.
    Now(String),
    /// The action has begun; the state shows how far it is.
    Begun(String),
}

/// The managers of processes.
pub const MANAGERS: [&str; 2] = ["native", "linux"];

/// Whether two texts are equal. The time taken does not depend on where they differ.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes());
    one.len() == other.len() && differ.fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// The answer to a request, as the bytes of a whole response.
pub fn answer(request: &Request, token: &str, machine: &mut impl Machine) -> Vec<u8> {
    if !http::is_own(&request.host) {
        return http::sentence(
            Status::Forbidden,
            "Ask by an address or as localhost: other names can lead here without your knowing.",
        );
    }
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/") => http::response(Status::Ok, "text/html; charset=utf-8", PAGE),
        ("GET", "/state") => json(machine.state()),
        ("GET", "/process") => {
            let asked = subject(request.query.as_bytes());
            let asked = asked.and_then(|subject| Ok((subject, from(request.query.as_bytes())?)));
            match asked.map(|(subject, from)| machine.objects(&subject, from)) {
                Ok(Ok(objects)) => json(&objects),
                Ok(Err((status, why))) => http::sentence(status, &why),
                Err(why) => http::sentence(Status::Invalid, &why),
            }
        }
        ("POST", "/act") => {
            // A page of another site can send a form here, but does not know the token.
            let given = http::field(&request.body, "token").unwrap_or_default();
            if !is_same(&given, token) {
                let why = "The token is another one: it stands on the console, where inspect was started.";
                return http::sentence(Status::Forbidden, why);
            }
            match act(&request.body).and_then(|act| machine.act(&act)) {
                Ok(Done::Now(done)) => http::sentence(Status::Ok, &done),
                Ok(Done::Begun(begun)) => http::sentence(Status::Begun, &begun),
                Err(why) => http::sentence(Status::Invalid, &why),
            }
        }
        (_, "/" | "/state" | "/process" | "/act") => http::sentence(
            Status::WrongMethod,
            "GET /, /state and /process, POST /act.",
        ),
        _ => http::sentence(Status::NotFound, "There are /, /state, /process and /act."),
    }
}

fn json(it: &impl Serialize) -> Vec<u8> {
    match serde_json::to_string(it) {
        Ok(json) => http::response(Status::Ok, "application/json", &json),
        Err(_) => http::sentence(Status::Failed, "The state could not be written down."),
    }
}

/// The value of a field that a form must have.
fn needed(form: &[u8], name: &str) -> Result<String, String> {
    let value = http::field(form, name).filter(|value| !value.is_empty());
    value.ok_or_else(|| format!("the field '{name}' is missing"))
}

/// The process that a form names.
fn subject(form: &[u8]) -> Result<Subject, String> {
    let name = needed(form, "manager")?;
    let found = MANAGERS.into_iter().find(|manager| *manager == name);
    let manager = found.ok_or_else(|| format!("there is no manager '{}'", short(&name)))?;
    let pid = needed(form, "pid")?;
    let number = pid.parse();
    let pid = number.map_err(|_| format!("'{}' is not the number of a process", short(&pid)))?;
    Ok(Subject { manager, pid })
}

/// The spot in the field `from`; 0 without that field.
fn from(form: &[u8]) -> Result<u64, String> {
    let Some(text) = http::field(form, "from").filter(|text| !text.is_empty()) else {
        return Ok(0);
    };
    let digits = text.strip_prefix("0x");
    let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number.ok_or_else(|| format!("'{}' is no spot, as 0x10 is one", short(&text)))
}

/// As much of a client's text as is repeated in an answer.
fn short(text: &str) -> String {
    const MOST: usize = 40;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

/// The action that a form asks for.
fn act(form: &[u8]) -> Result<Act, String> {
    let path = || {
        let path = needed(form, "path")?;
        let absolute = path.starts_with('/') && !path.contains('\0');
        absolute
            .then_some(path)
            .ok_or_else(|| "the path has to begin with '/'".to_string())
    };
    match needed(form, "act")?.as_str() {
        "stop" => Ok(Act::Stop(subject(form)?)),
        "go on" => Ok(Act::GoOn(subject(form)?)),
        "kill" => Ok(Act::Kill(subject(form)?)),
        "checkpoint" => Ok(Act::Save(subject(form)?, path()?)),
        "restore" => Ok(Act::Restore(path()?)),
        other => Err(format!("nobody can do '{}'", short(other))),
    }
}
