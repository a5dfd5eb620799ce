//! The script by which a POSIX shell runs one command, and what it leaves behind for the next one.
//!
//! Each command in the foreground has a file of its own, its turn, as long as this shell waits for it. At its end the
//! POSIX shell writes there whether it came to the end of the command, and its directory. A command that was stopped
//! finds no such file when it ends later, and then keeps nothing: others have had their turns since.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::parse::is_name;

/// What is in the file of a turn at first. It is there so that the rest needs no memory that may not be there: without
/// the rest the command has ended the shell.
pub const BEGUN: &[u8] = b"begun\n";

/// The beginning of the script: `$1` is the command, `$2` the directory, `$3` the last status.
const BEGIN: &str = "unset RUN; cd \"$2\"; ";
/// The command itself.
const RUN: &str = "eval \"set --; $1\n\"";
/// The command, if it asks for the last status.
const RUN_WITH_STATUS: &str = "eval \"set --; (exit $3); $1\n\"";

/// How a command is run.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// The file of the variables that are passed from one command to the next. Any program could have written it, so a
    /// trusted command does not read it.
    pub variables: Option<&'a str>,
    /// The file of the command's turn, if it is in the foreground and keeps what it sets.
    pub turn: Option<&'a str>,
    /// Whether the command asks for the last status.
    pub asks: bool,
}

/// The script.
#[must_use]
pub fn script(how: How) -> String {
    let mut script = String::from(BEGIN);
    if let Some(variables) = how.variables {
        // Variables that the command sets are exported, and so are passed to the next one.
        script.push_str(&format!(
            "[ -f {variables} ] && . {variables}; cd \"$2\" && set -a; "
        ));
        if let Some(turn) = how.turn {
            script.push_str(&format!(
                "trap '[ ! -f {turn} ] || {{ export -p >| {variables}; pwd >> {turn}; }} 2> /dev/null' EXIT; "
            ));
        }
    }
    script.push_str(if how.asks { RUN_WITH_STATUS } else { RUN });
    if let Some(turn) = how.turn {
        // An empty line says that the end was reached.
        script.push_str(&format!(
            "\n{{ set -- \"$?\"; [ ! -f {turn} ] || echo >> {turn}; }} 2> /dev/null; exit \"$1\""
        ));
    }
    script
}

/// What a command has left in the file of its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Whether it came to its end; otherwise it has ended the shell that ran it, as `exit` does.
    pub reached: bool,
    /// The directory in which it has ended.
    pub directory: Option<String>,
}

/// Reads the file of a turn. `None` if it is not as it should be: any program can write there.
#[must_use]
pub fn left(file: &[u8]) -> Option<Left> {
    let rest = file.strip_prefix(BEGUN)?;
    let reached = rest.starts_with(b"\n");
    let directory = String::from_utf8_lossy(rest);
    let directory = directory.trim_matches('\n');
    Some(Left {
        reached,
        directory: directory.starts_with('/').then(|| directory.into()),
    })
}

/// Whether the shell ends by a command of this status, because it did not come to its end. At a prompt a mistake in the
/// command, by which POSIX shells end as well, is no reason, nor is Ctrl-C: the command must name `exit`.
#[must_use]
pub fn ends(left: &Left, command: &str, status: u8, interactive: bool) -> bool {
    // A command that a signal has ended, or that was stopped, has said nothing, and did not mean this.
    let was_killed = status > 128 && left.directory.is_none();
    let mut words = command.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
    let is_meant = !interactive || status != 130 && words.any(|word| word == "exit");
    !left.reached && !was_killed && is_meant
}

/// Variables that are of the shell that has written them, not of what it passes on.
const ITS_OWN: [&str; 5] = ["_", "OLDPWD", "PWD", "RUN", "SHLVL"];

/// The exported variables, each as `NAME=value`, in what `export -p` of a POSIX shell has written. What bash alone has,
/// such as arrays, is left out; no text is an error, since any program could have written it.
#[must_use]
pub fn variables(file: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    let mut words = Words { rest: file };
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

    /// Runs a command as Fermata's shell does; returns its status, and what is in the file of its turn, if that is there
    /// at its end.
    fn run(shell: &str, place: &Path, command: &str) -> (i32, Option<Left>) {
        let (turn, variables) = (place.join("turn"), place.join("variables"));
        fs::write(&turn, BEGUN).unwrap();
        let how = How {
            variables: variables.to_str(),
            turn: turn.to_str(),
            asks: command.contains("$?"),
        };
        let mut sh = Command::new(shell);
        sh.args(["-c", "eval \"$RUN\"", "sh", command, "/", "7"]);
        sh.env("RUN", script(how)).env("PLACE", place);
        let status = sh.stderr(process::Stdio::null()).status().unwrap();
        let file = fs::read(&turn).ok();
        (
            status.code().unwrap_or(-1),
            file.map(|file| left(&file).unwrap()),
        )
    }

    #[test]
    fn what_ends_a_posix_shell_is_known() {
        for shell in shells() {
            let place = place("ends", shell);
            for (command, status, reached) in [
                ("if ! false; then exit 1; fi", 1, false),
                ("false || exit 3", 3, false),
                ("f() { exit 4; }; set -- a b; f", 4, false),
                ("trap 'X=1' EXIT; exit 5", 5, false),
                ("set -e; false; true", 1, false),
                ("exec true", 0, false),
                ("(exit 6)", 6, true),
                ("true $X; false", 1, true),
                ("trap 'X=1' EXIT", 0, true),
                ("set -C -u; IFS=0; (exit 10)", 10, true),
                ("(exit $?)", 7, true),
                ("cat <<X\nX", 0, true),
            ] {
                let (ended, left) = run(shell, &place, command);
                let left = left.unwrap();
                assert_eq!(ended, status, "the status of {command} in {shell}");
                assert_eq!(
                    left.reached, reached,
                    "whether {shell} came to the end of {command}"
                );
            }
            fs::remove_dir_all(place).unwrap();
        }
    }

    #[test]
    fn what_a_command_sets_is_kept() {
        for shell in shells() {
            let place = place("keeps", shell);
            let kept = |directory: &str, reached| {
                let directory = Some(directory.into());
                Some(Left { reached, directory })
            };
            assert_eq!(
                run(shell, &place, "X=\"a 'b\"; cd /dev"),
                (0, kept("/dev", true))
            );
            assert_eq!(
                run(shell, &place, "[ \"$X\" = \"a 'b\" ]"),
                (0, kept("/", true))
            );
            assert_eq!(
                run(shell, &place, "set -C; X=2; cd /dev; exit 3"),
                (3, kept("/dev", false))
            );
            // This shell has gone on meanwhile, and others have had their turns.
            assert_eq!(
                run(shell, &place, "X=3; cd /dev; rm $PLACE/turn"),
                (0, None)
            );
            assert_eq!(
                run(shell, &place, "[ $X = 2 ]"),
                (0, kept("/", true)),
                "a command keeps something out of its turn in {shell}"
            );
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
            assert_eq!(run(shell, &place, &command).0, 0);
            let mut all = variables(&fs::read(place.join("variables")).unwrap());
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
    fn files_of_turns_are_not_trusted() {
        assert_eq!(left(b""), None);
        assert_eq!(left(b"/tmp\n"), None);
        let none = |reached| Left {
            reached,
            directory: None,
        };
        assert_eq!(left(b"begun\n"), Some(none(false)));
        assert_eq!(left(b"begun\n\ntmp\n"), Some(none(true)));
        assert_eq!(
            left(b"begun\n\n/\xff"),
            Some(Left {
                reached: true,
                directory: Some("/\u{fffd}".into()),
            })
        );
    }

    #[test]
    fn a_mistake_at_the_prompt_does_not_end_the_shell() {
        let mut left = Left {
            reached: false,
            directory: Some("/".into()),
        };
        assert!(!ends(&left, "echo ${X?}; exit_with 1; pre-exit", 2, true));
        assert!(!ends(&left, "sleep 9; exit", 130, true));
        assert!(ends(&left, "if ! a; then exit 1; fi", 1, true));
        assert!(ends(&left, "echo ${X?}", 2, false));
        assert!(ends(&left, "exit 148", 148, false));
        left.directory = None;
        assert!(!ends(&left, "kill $$; exit", 143, false));
        assert!(ends(&left, "exec false", 1, false));
        left.reached = true;
        assert!(!ends(&left, "true || exit", 0, true));
    }
}
