//! Which request gets what, and who may act.
use crate::http::{self, Request, Status};
use crate::state::State;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The page.
pub const PAGE: &str = include_str!("page.html");
/// Fewest characters of a token that somebody chooses.
pub const SHORTEST: usize = 16;

/// Something that is done to a process, or to a file with one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Stops all threads of it.
    Stop(Subject),
    /// Undoes a stop.
    GoOn(Subject),
    /// Ends it.
    Kill(Subject),
    /// Saves it to a file.
    Save(Subject, String),
    /// Makes processes of a file.
    Restore(String),
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its manager.
    pub manager: &'static str,
    /// Its number there.
    pub pid: u32,
}

/// The machine, as the page sees it.
pub trait Machine {
    /// What is shown now.
    fn state(&mut self) -> &State;
    /// Does something: a sentence about what was done.
    ///
    /// # Errors
    /// A sentence that names the cause.
    fn act(&mut self, act: &Act) -> Result<String, String>;
}

/// The managers of processes.
pub const MANAGERS: [&str; 2] = ["native", "linux"];

/// Whether two texts are the same, in a time that does not tell where they differ.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes());
    one.len() == other.len() && differ.fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// The answer to a request, with its head.
pub fn answer(request: &Request, token: &str, machine: &mut impl Machine) -> Vec<u8> {
    if !http::is_own(&request.host) {
        return http::sentence(
            Status::Forbidden,
            "Ask by an address or as localhost: other names can lead here without your knowing.",
        );
    }
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/") => http::response(Status::Ok, "text/html; charset=utf-8", PAGE),
        ("GET", "/state") => match serde_json::to_string(machine.state()) {
            Ok(json) => http::response(Status::Ok, "application/json", &json),
            Err(_) => http::sentence(Status::Failed, "The state could not be written down."),
        },
        ("POST", "/act") => {
            // A page of somebody else can send a form here, but does not know the token.
            let given = http::field(&request.body, "token").unwrap_or_default();
            if !is_same(&given, token) {
                let why = "The token is another one: it stands on the console, where inspect was started.";
                return http::sentence(Status::Forbidden, why);
            }
            match act(&request.body).and_then(|act| machine.act(&act)) {
                Ok(done) => http::sentence(Status::Ok, &done),
                Err(why) => http::sentence(Status::Invalid, &why),
            }
        }
        (_, "/" | "/state" | "/act") => {
            http::sentence(Status::WrongMethod, "GET / and /state, POST /act.")
        }
        _ => http::sentence(Status::NotFound, "There are /, /state and /act."),
    }
}

/// What a form asks for.
fn act(form: &[u8]) -> Result<Act, String> {
    let field = |name: &str| {
        let value = http::field(form, name).filter(|value| !value.is_empty());
        value.ok_or_else(|| format!("the field '{name}' is missing"))
    };
    let path = || {
        let path = field("path")?;
        let absolute = path.starts_with('/') && !path.contains('\0');
        absolute
            .then_some(path)
            .ok_or_else(|| "the path has to begin with '/'".to_string())
    };
    let subject = || {
        let name = field("manager")?;
        let found = MANAGERS.into_iter().find(|manager| *manager == name);
        let manager = found.ok_or_else(|| format!("there is no manager '{name}'"))?;
        let pid = field("pid")?;
        let number = pid.parse();
        let pid = number.map_err(|_| format!("'{pid}' is not the number of a process"))?;
        Ok::<_, String>(Subject { manager, pid })
    };
    match field("act")?.as_str() {
        "stop" => Ok(Act::Stop(subject()?)),
        "go on" => Ok(Act::GoOn(subject()?)),
        "kill" => Ok(Act::Kill(subject()?)),
        "checkpoint" => Ok(Act::Save(subject()?, path()?)),
        "restore" => Ok(Act::Restore(path()?)),
        other => Err(format!("nobody can do '{other}'")),
    }
}
