//! The script by which a POSIX shell runs one command, and what it says to this shell about that.
//!
//! At its end the POSIX shell says whether it came to the end of the command, its directory and its variables. It says
//! so to its manager (`services::process::Process::said`) and not in a file: every program can write to files, and this
//! shell powers the machine off when a script's command has ended it. What a command says that was stopped, and ends
//! later, is not heard: others have had their turns since.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::parse::is_name;

/// Where a POSIX shell says it.
pub const SAID: &str = "/proc/self/said";

/// The beginning of the script: `$1` is the command, `$2` the directory, `$3` the last status.
const BEGIN: &str = "unset RUN; cd \"$2\"; ";
/// The command itself.
const RUN: &str = "eval \"set --; $1\n\"";
/// The command, if it asks for the last status.
const RUN_WITH_STATUS: &str = "eval \"set --; (exit $3); $1\n\"";
/// What keeps bash's own variables, which nobody may set, out of those that are passed on: setting one would end the next
/// shell.
const OWN: &str =
    "[ \"${BASH_VERSION-}\" ] && command export -n BASHOPTS BASH_VERSINFO EUID PPID SHELLOPTS UID";
/// The first line that is said: the command begins.
const BEGUN: &str = "begun";
/// The variable with the variables, as commands that set them ([`Left::variables`]).
pub const VARIABLES: &str = "RUN_VARIABLES";
/// The line behind the directory, and behind the variables: no path and no variable ends in it.
const END: &str = "//\n";

/// How a command is run.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// Whether the variables that commands before it have set are in the variable [`VARIABLES`]. They are in no file, since
    /// a program could write an `exit` to it, and not in the script, since their lines would count in the sentences about
    /// mistakes. Other programs have set them, so a trusted command does not get them.
    pub has_variables: bool,
    /// Where it says how it has ended, if it is in the foreground and keeps what it sets: [`SAID`].
    pub said: Option<&'a str>,
    /// Whether the command asks for the last status.
    pub asks: bool,
}

/// The script.
#[must_use]
pub fn script(how: How) -> String {
    let mut script = String::from(BEGIN);
    if how.has_variables {
        // Variables that the command sets are exported, and so are passed to the next one.
        script.push_str(&format!(
            "eval \"${VARIABLES}\"; unset {VARIABLES}; cd \"$2\"; set -a; "
        ));
    }
    if let Some(said) = how.said {
        script.push_str(&format!(
            "trap '{{ {OWN}; pwd; echo //; export -p; echo //; }} >> {said} 2> /dev/null' EXIT; "
        ));
        // A shell that has not come as far as the command, because of the variables, must not count as one that the
        // command has ended.
        script.push_str(&format!(
            "command echo {BEGUN} 2> /dev/null >> {said} || kill -9 \"$$\"; "
        ));
    }
    script.push_str(if how.asks { RUN_WITH_STATUS } else { RUN });
    if let Some(said) = how.said {
        // An empty line says that the end was reached. A shell that cannot say so, as when memory is out, must not end
        // as `exit` does.
        script.push_str(&format!(
            "\n{{ set -- \"$?\"; command echo >> {said} || kill -9 \"$$\"; }} 2> /dev/null; exit \"$1\""
        ));
    }
    script
}

/// What a command has left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Whether it was begun: the shell that was to run it has come that far.
    pub begun: bool,
    /// Whether it came to its end; otherwise it has ended the shell that ran it, as `exit` does.
    pub reached: bool,
    /// The directory in which it has ended.
    pub directory: Option<String>,
    /// The variables, as commands that set them, if there was room to say all.
    pub variables: Option<String>,
}

/// Reads what a POSIX shell has said.
#[must_use]
pub fn left(said: &[u8]) -> Left {
    let text = String::from_utf8_lossy(said);
    let behind = text
        .strip_prefix(BEGUN)
        .and_then(|text| text.strip_prefix('\n'));
    let text = behind.unwrap_or_default();
    let reached = text.starts_with('\n');
    let rest = text.strip_prefix('\n').unwrap_or(text);
    let between = format!("\n{END}");
    let split = rest
        .split_once(&between)
        .filter(|(directory, _)| directory.starts_with('/'));
    Left {
        begun: behind.is_some(),
        reached,
        directory: split.map(|(directory, _)| directory.into()),
        variables: split.and_then(|(_, rest)| rest.strip_suffix(END).map(String::from)),
    }
}

/// How a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its status.
    pub status: u8,
    /// Whether it has ended itself, by `exit` or at its end; otherwise a signal or the user has, or it was stopped.
    pub by_itself: bool,
}

/// Whether the shell ends by a command, because that did not come to its end. At a prompt a mistake in the command, by
/// which POSIX shells end as well, is no reason, nor is Ctrl-C: the command must name `exit`.
#[must_use]
pub fn ends(left: &Left, command: &str, ended: Ended, interactive: bool) -> bool {
    let mut words = command.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
    let is_meant = !interactive || ended.status != 130 && words.any(|word| word == "exit");
    // A command that a signal has ended has not meant this, whatever it has said meanwhile: bash says where it is.
    left.begun && !left.reached && ended.by_itself && is_meant
}

/// Variables that are of the shell that has written them, not of what it passes on.
const ITS_OWN: [&str; 6] = ["_", "OLDPWD", "PWD", "RUN", VARIABLES, "SHLVL"];

/// The exported variables, each as `NAME=value`, in what `export -p` of a POSIX shell has written. What bash alone has,
/// such as arrays, is left out; no text is an error.
#[must_use]
pub fn variables(text: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    let mut words = Words { rest: text };
    // Whether the words behind `export` are those of a variable.
    let mut is_plain = false;
    while let Some(word) = words.next() {
        match word.as_str() {
            "export" | "declare" => is_plain = true,
            word if word.starts_with('-') => is_plain &= !word.contains(['a', 'A']),
            word => {
                let named = word.split_once('=').filter(|(name, _)| is_name(name));
                let is_passed = named.is_some_and(|(name, _)| !ITS_OWN.contains(&name));
                if core::mem::take(&mut is_plain) && is_passed {
                    all.push(word.into());
                }
            }
        }
    }
    all
}

/// The words of a text, without their quotes.
struct Words<'a> {
    rest: &'a [u8],
}

impl Words<'_> {
    fn bump(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// The character that an escape in `$'...'` stands for.
    fn escape(&mut self) -> Option<u8> {
        Some(match self.bump()? {
            b'a' => 7,
            b'b' => 8,
            b'e' | b'E' => 27,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            first @ b'0'..=b'7' => {
                let mut value = first - b'0';
                for _ in 0..2 {
                    match self.rest.first() {
                        Some(digit @ b'0'..=b'7') => {
                            value = value.wrapping_mul(8).wrapping_add(digit - b'0');
                            self.bump();
                        }
                        _ => break,
                    }
                }
                value
            }
            other => other,
        })
    }

    /// The next word; `None` at the end of the text, also if that is within quotes.
    fn next(&mut self) -> Option<String> {
        while self.rest.first().is_some_and(u8::is_ascii_whitespace) {
            self.bump();
        }
        let mut word = Vec::new();
        let mut quote = None;
        let mut is_begun = false;
        loop {
            let Some(byte) = self.bump() else {
                return match is_begun && quote.is_none() {
                    true => Some(String::from_utf8_lossy(&word).into_owned()),
                    false => None,
                };
            };
            is_begun = true;
            match (quote, byte) {
                (None, byte) if byte.is_ascii_whitespace() => {
                    return Some(String::from_utf8_lossy(&word).into_owned());
                }
                (None, b'\'' | b'"') => quote = Some(byte),
                (None, b'$') if self.rest.first() == Some(&b'\'') => {
                    self.bump();
                    quote = Some(b'$');
                }
                (Some(b'\''), b'\'') | (Some(b'"'), b'"') | (Some(b'$'), b'\'') => quote = None,
                (Some(b'$'), b'\\') => word.push(self.escape()?),
                (None | Some(b'"'), b'\\') => word.push(self.bump()?),
                (_, byte) => word.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::vec::Vec;
    use std::{env, fs, process};

    /// The shells of the host.
    fn shells() -> Vec<&'static str> {
        let all = ["/bin/dash", "/bin/bash", "/bin/sh"];
        let there: Vec<_> = all
            .into_iter()
            .filter(|path| Path::new(path).exists())
            .collect();
        assert!(!there.is_empty(), "the host has no shell");
        there
    }

    /// A directory for one test and one shell.
    fn place(test: &str, shell: &str) -> PathBuf {
        let name = format!(
            "fermata-{test}{}-{}",
            shell.replace('/', "-"),
            process::id()
        );
        let place = env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&place);
        fs::create_dir(&place).unwrap();
        place
    }

    /// Runs a command as Fermata's shell does, with these variables; returns how it has ended and what it has left.
    fn run(shell: &str, place: &Path, variables: &str, command: &str) -> (Ended, Left) {
        let said = place.join("said");
        let _ = fs::remove_file(&said);
        let (ended, said) = run_at(shell, &said, variables, command);
        (ended, left(&said))
    }

    /// The same; what it says goes to this path.
    fn run_at(shell: &str, said: &Path, variables: &str, command: &str) -> (Ended, Vec<u8>) {
        let how = How {
            has_variables: true,
            said: said.to_str(),
            asks: command.contains("$?"),
        };
        let mut sh = Command::new(shell);
        sh.arg0("sh");
        sh.args(["-c", "eval \"$RUN\"", "sh", command, "/", "7"]);
        sh.env("RUN", script(how)).env(VARIABLES, variables);
        let status = sh.stderr(process::Stdio::null()).status().unwrap();
        let signal = status.signal().map(|signal| signal as u8 + 128);
        let ended = Ended {
            status: status.code().map_or(0, |code| code as u8) | signal.unwrap_or(0),
            by_itself: signal.is_none(),
        };
        (ended, fs::read(said).unwrap_or_default())
    }

    #[test]
    fn what_ends_a_posix_shell_is_known() {
        for shell in shells() {
            let place = place("ends", shell);
            let mut variables = String::new();
            for (command, status, ends_it) in [
                ("if ! false; then exit 1; fi", 1, true),
                ("false || exit 3", 3, true),
                ("f() { exit 4; }; set -- a b; f", 4, true),
                ("trap 'X=1' EXIT; exit 5", 5, true),
                ("set -e; false; true", 1, true),
                ("exec true", 0, true),
                ("X=1; exit 143", 143, true),
                ("(exit 6)", 6, false),
                ("true $X; false", 1, false),
                ("trap 'X=1' EXIT", 0, false),
                ("set -C -u; IFS=0; (exit 10)", 10, false),
                ("(exit $?)", 7, false),
                ("cat <<X\nX", 0, false),
                ("X=1; kill $$", 143, false),
                ("X=1; kill -9 $$; exit", 137, false),
                ("export UID PPID SHELLOPTS", 0, false),
                ("false", 1, false),
                ("exit 9", 9, true),
            ] {
                let (ended, left) = run(shell, &place, &variables, command);
                assert_eq!(ended.status, status, "the status of {command} in {shell}");
                assert_eq!(
                    ends(&left, command, ended, false),
                    ends_it,
                    "whether the script ends that has had {shell} run {command}"
                );
                if command.contains("UID") {
                    variables = left.variables.unwrap();
                }
            }
            // What did not come as far as the command.
            let (ended, early) = run(shell, &place, "readonly X=1; X=2", "true");
            let rule = "what is before the command ends no script";
            assert!(
                !early.begun && !ends(&early, "", ended, false),
                "{shell}: {rule}"
            );
            // A shell that can say nothing, from the beginning or at the end, does not end by itself.
            let nowhere = place.join("nowhere");
            for command in ["true", "rm -r \"$D\"; IFS=0; (exit 3)"] {
                let variables = format!("D={}", nowhere.display());
                let (ended, said) = run_at(shell, &nowhere.join("said"), &variables, command);
                assert!(
                    said.is_empty() && !ended.by_itself,
                    "{shell} cannot say that it came to the end of {command}, and the script ends"
                );
                let _ = fs::create_dir(&nowhere);
            }
            fs::remove_dir_all(place).unwrap();
        }
    }

    #[test]
    fn what_a_command_sets_is_kept() {
        for shell in shells() {
            let place = place("keeps", shell);
            let mut kept = String::new();
            for (command, status, directory) in [
                ("X=\"a 'b\n//\n\"; cd /dev", 0, "/dev"),
                ("[ \"$X\" = \"a 'b\n//\n\" ]", 0, "/"),
                ("set -C; X=2; cd /dev; exit 3", 3, "/dev"),
                ("[ $X = 2 ]; (exit $?)", 0, "/"),
            ] {
                let (ended, left) = run(shell, &place, &kept, command);
                assert_eq!(ended.status, status, "{command} in {shell}");
                assert_eq!(left.directory.as_deref(), Some(directory), "{command}");
                kept = left.variables.unwrap();
            }
            fs::remove_dir_all(place).unwrap();
        }
    }

    #[test]
    fn exported_variables_are_read() {
        for shell in shells() {
            let place = place("variables", shell);
            let values = [
                "a",
                "",
                "it's \"$q\" `b` \\\\ \\n",
                "two\nlines\n",
                "\t\u{1b}é",
                "A='b' export C=d",
            ];
            let mut command = String::from("unset -v N; N=; A=1; unset A; ");
            let mut expected = Vec::new();
            for (number, value) in values.iter().enumerate() {
                let quoted = value.replace('\'', "'\\''");
                command.push_str(&format!("V{number}='{quoted}'; "));
                expected.push(format!("V{number}={value}"));
            }
            let (ended, left) = run(shell, &place, "", &command);
            assert_eq!(ended.status, 0);
            let mut all = variables(left.variables.unwrap().as_bytes());
            assert!(all.contains(&"N=".into()), "{all:?}");
            assert!(!all
                .iter()
                .any(|one| one.starts_with("PWD=") || one.starts_with("A=")));
            all.retain(|one| one.starts_with('V'));
            all.sort();
            assert_eq!(
                all, expected,
                "what {shell} has exported is not what is read"
            );
            fs::remove_dir_all(place).unwrap();
        }
        let bash = b"declare -ax A=([0]=\"b\")\ndeclare -x B\ndeclare -rx C=\"d\"\ndeclare -x D=$'\\303\\251\\t'\n";
        assert_eq!(variables(bash), ["C=d", "D=é\t"]);
        for text in [
            "export A='b",
            "export",
            "export A=$'\\",
            "x A=b",
            "export 1=2",
            "export -p",
        ] {
            assert!(variables(text.as_bytes()).is_empty(), "{text}");
        }
    }

    #[test]
    fn what_was_not_said_is_not_known() {
        assert_eq!(left(b""), Left::default());
        assert_eq!(left(b"begun\n\ntmp\n//\n").directory, None);
        assert!(left(b"begun\n\n").reached && !left(b"begun\n/\n//\n//\n").reached);
        assert!(left(b"begun\n").begun && !left(b"begun").begun && !left(b"\n").begun);
        // A part of the variables is none.
        let part = left(b"begun\n\n/a\n\nb\n//\nexport A='1'\nexport B='");
        assert_eq!(part.directory.as_deref(), Some("/a\n\nb"));
        assert_eq!(part.variables, None, "half of the variables are kept");
        let all = left(b"begun\n/\xff\n//\nexport A='1'\n//\n");
        assert_eq!(all.directory.as_deref(), Some("/\u{fffd}"));
        assert_eq!(all.variables.as_deref(), Some("export A='1'\n"));
    }

    #[test]
    fn a_mistake_at_the_prompt_does_not_end_the_shell() {
        let mut left = Left {
            begun: true,
            ..Left::default()
        };
        let itself = |status| Ended {
            status,
            by_itself: true,
        };
        let killed = Ended {
            status: 143,
            by_itself: false,
        };
        let command = "echo ${X?}; exit_with 1; pre-exit";
        assert!(!ends(&left, command, itself(2), true));
        assert!(!ends(&left, "sleep 9; exit", itself(130), true));
        assert!(ends(&left, "if ! a; then exit 1; fi", itself(1), true));
        assert!(ends(&left, "echo ${X?}", itself(2), false));
        assert!(ends(&left, "exit 148", itself(148), false));
        assert!(!ends(&left, "kill $$; exit", killed, false));
        assert!(ends(&left, "exec false", itself(1), false));
        left.reached = true;
        assert!(!ends(&left, "true || exit", itself(0), true));
    }
}
