//! Cuts the typed text into commands: those that the shell runs itself, and those that it passes to a POSIX shell.
//!
//! The shell's own language ([`crate::parse`]) has words, quotes and redirections. A command that needs more (pipes,
//! variables, patterns of file names, loops) is passed as written to `sh -c`, as one job. This module understands only
//! as much of the POSIX language as it needs to find where a command ends, and whether it continues in the next line:
//! quotes, compound commands, here documents.

use alloc::string::String;
use alloc::vec::Vec;

use crate::parse::{parse, Command, Fault, CONTINUED};

/// Most bytes of a command of several lines. What is longer is not run, nor is any line of it.
pub const MAX_TEXT: usize = 64 << 10;

/// Stands before a command that gets the shell's power over the machine.
pub const TRUST: &str = "trust";
/// Stands before a command whose time is told.
pub const TIME: &str = "time";

/// The condition under which a command runs: how the one before it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// No condition.
    Always,
    /// After status 0 (`&&`).
    Success,
    /// After another status (`||`).
    Failure,
}

/// What runs a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The shell.
    Own(Command),
    /// The shell, whose output is the input of the rest, which a POSIX shell runs.
    Piped(Command, String),
    /// A POSIX shell.
    Posix(String),
}

/// A command of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The condition under which it runs.
    pub when: When,
    /// What runs it.
    pub what: What,
    /// Whether the shell does not wait for it.
    pub background: bool,
}

/// The operator behind a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Next,
    Background,
    And,
    Or,
}

/// A command, as far as it has been scanned.
#[derive(Debug)]
struct Piece {
    start: usize,
    end: usize,
    /// Where its first pipe is.
    pipe: Option<usize>,
    operator: Operator,
    /// Whether the end of a line, a semicolon, or the end of the text ends it.
    semicolon: bool,
}

/// A compound command or parenthesis that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    If,
    Loop,
    Case,
    Brace,
    Parenthesis,
    /// `[[` of bash.
    Test,
}

/// Finds the ends of commands.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
    open: Vec<Open>,
    /// Whether a word here would be the name of a command.
    command: bool,
    /// Whether a word here would be the name behind `function`.
    function: bool,
    /// Here documents that begin in the next line: the line that ends each, and whether tabs before it are dropped.
    documents: Vec<(String, bool)>,
    pieces: Vec<Piece>,
    start: usize,
    pipe: Option<usize>,
    /// The last token of the current command.
    last: Last,
}

/// The kind of the last token of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// No token yet.
    Nothing,
    /// A pipe, behind which the command continues.
    Pipe,
    Other,
}

/// The text ends in the middle of something.
struct Unfinished;

impl Scanner<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// The pieces of the text.
    fn scan(mut self) -> Result<Vec<Piece>, Unfinished> {
        while let Some(c) = self.rest().chars().next() {
            if self.rest().starts_with(CONTINUED) {
                // Nothing stands here, and a word behind it can be a command.
                self.at += CONTINUED.len();
                if self.rest().is_empty() {
                    return Err(Unfinished);
                }
                continue;
            }
            match c {
                c if c.is_whitespace() || c == '#' => {}
                '|' if !self.rest().starts_with("||") => self.last = Last::Pipe,
                ';' | '&' | '|' => {}
                _ => self.last = Last::Other,
            }
            match c {
                '\n' => {
                    self.at += 1;
                    self.documents()?;
                    self.separate(self.at, Operator::Next, false);
                }
                c if c.is_whitespace() => self.at += c.len_utf8(),
                '#' => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                ';' => {
                    let from = self.at;
                    self.at += self.rest().len() - self.rest().trim_start_matches(';').len();
                    self.separate(from, Operator::Next, true);
                }
                '&' if self.rest().starts_with("&&") => self.operator(2, Operator::And),
                '&' if self.rest().starts_with("&>") => self.at += 2,
                '&' => self.operator(1, Operator::Background),
                '|' if self.rest().starts_with("||") => self.operator(2, Operator::Or),
                '|' => {
                    if self.open.is_empty() {
                        self.pipe.get_or_insert(self.at);
                    }
                    // Bash has `|&`, by which errors go through the pipe, too.
                    self.at += if self.rest().starts_with("|&") { 2 } else { 1 };
                    self.command = true;
                }
                '(' => {
                    self.at += 1;
                    self.open.push(Open::Parenthesis);
                    self.command = true;
                }
                ')' => {
                    self.at += 1;
                    if self.open.last() == Some(&Open::Parenthesis) {
                        self.open.pop();
                    }
                    self.command = true;
                }
                '<' | '>' => self.redirection()?,
                _ => self.word()?,
            }
        }
        let waits = match self.last {
            Last::Nothing => self.continues(),
            Last::Pipe => true,
            Last::Other => false,
        };
        if !self.open.is_empty() || !self.documents.is_empty() || waits {
            return Err(Unfinished);
        }
        self.separate(self.at, Operator::Next, false);
        Ok(self.pieces)
    }

    /// Whether the last command must be followed by another one.
    fn continues(&self) -> bool {
        let last = self.pieces.last().map(|piece| piece.operator);
        matches!(last, Some(Operator::And | Operator::Or))
    }

    fn operator(&mut self, length: usize, operator: Operator) {
        let from = self.at;
        self.at += length;
        self.separate(from, operator, true);
    }

    /// Ends a command at `end`, unless it is part of a compound one.
    fn separate(&mut self, end: usize, operator: Operator, semicolon: bool) {
        self.command = true;
        if !self.open.is_empty() {
            return;
        }
        // A line that ends behind an operator or a pipe continues in the next one.
        match self.last {
            Last::Nothing if !semicolon => {
                self.start = self.at;
                return;
            }
            Last::Pipe if !semicolon => return,
            _ => {}
        }
        self.pieces.push(Piece {
            start: self.start,
            end,
            pipe: self.pipe.take(),
            operator,
            semicolon,
        });
        self.start = self.at;
        self.last = Last::Nothing;
    }

    /// The lines of here documents.
    fn documents(&mut self) -> Result<(), Unfinished> {
        for (end, tabs) in core::mem::take(&mut self.documents) {
            loop {
                let rest = self.rest();
                if rest.is_empty() {
                    return Err(Unfinished);
                }
                let line = rest.split('\n').next().unwrap_or_default();
                let shown = if tabs {
                    line.trim_start_matches('\t')
                } else {
                    line
                };
                let is_end = shown == end;
                self.at += (line.len() + 1).min(rest.len());
                if is_end {
                    break;
                }
            }
        }
        Ok(())
    }

    fn redirection(&mut self) -> Result<(), Unfinished> {
        let rest = self.rest();
        if rest.starts_with("<<") && !rest.starts_with("<<<") {
            let tabs = rest[2..].starts_with('-');
            self.at += 2 + usize::from(tabs);
            let blanks = self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
            self.at += blanks;
            let from = self.at;
            let command = self.command;
            self.word()?;
            self.command = command;
            let quoted = |c: char| matches!(c, '\'' | '"' | '\\');
            let end = self.text[from..self.at].replace(quoted, "");
            self.documents.push((end, tabs));
            return Ok(());
        }
        let operators = rest.len() - rest.trim_start_matches(['<', '>']).len();
        self.at += operators;
        // A descriptor or a file that is cut: part of the redirection.
        if self.rest().starts_with(['&', '|']) {
            self.at += 1;
        }
        Ok(())
    }

    /// Scans a word, and the compound command that it opens or closes.
    fn word(&mut self) -> Result<(), Unfinished> {
        let start = self.at;
        let mut plain = true;
        while let Some(c) = self.rest().chars().next() {
            match c {
                ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                c if c.is_whitespace() => break,
                '\'' => {
                    plain = false;
                    let end = self.rest()[1..].find('\'').ok_or(Unfinished)?;
                    self.at += end + 2;
                }
                '"' | '`' => {
                    plain = false;
                    self.quoted(c)?;
                }
                '\\' => {
                    let next = self.rest()[1..].chars().next().ok_or(Unfinished)?;
                    plain &= next == '\n';
                    self.at += 1 + next.len_utf8();
                    if next == '\n' && self.at == self.text.len() {
                        return Err(Unfinished);
                    }
                }
                '$' if self.rest().starts_with("$(") => {
                    plain = false;
                    self.at += 1;
                    self.parenthesis()?;
                }
                '$' if self.rest().starts_with("${") => {
                    plain = false;
                    self.at += self.rest().find('}').ok_or(Unfinished)? + 1;
                }
                c => self.at += c.len_utf8(),
            }
        }
        if self.at == start {
            // A character that is no part of a word, where one should be.
            return Ok(());
        }
        let begins = core::mem::take(&mut self.command);
        let word = self.text[start..self.at].replace(CONTINUED, "");
        if core::mem::take(&mut self.function) {
            // The body of the function follows.
            self.command = true;
        } else if self.open.contains(&Open::Test) {
            if word == "]]" && self.open.last() == Some(&Open::Test) {
                self.open.pop();
            }
        } else if begins && plain {
            self.keyword(&word);
        }
        Ok(())
    }

    fn keyword(&mut self, word: &str) {
        let (opens, closes, command) = match word {
            "if" => (Some(Open::If), None, true),
            "while" | "until" => (Some(Open::Loop), None, true),
            "for" | "select" => (Some(Open::Loop), None, false),
            "case" => (Some(Open::Case), None, false),
            "{" => (Some(Open::Brace), None, true),
            "[[" => (Some(Open::Test), None, false),
            "fi" => (None, Some(Open::If), false),
            "done" => (None, Some(Open::Loop), false),
            "esac" => (None, Some(Open::Case), false),
            "}" => (None, Some(Open::Brace), false),
            "then" | "else" | "elif" | "do" | "!" | "time" | "trust" => (None, None, true),
            "function" => {
                self.function = true;
                return;
            }
            _ => return,
        };
        self.command = command;
        self.open.extend(opens);
        if closes.is_some() && self.open.last().copied() == closes {
            self.open.pop();
        }
    }

    /// Skips from a quote to the closing one.
    fn quoted(&mut self, quote: char) -> Result<(), Unfinished> {
        self.at += 1;
        loop {
            match self.rest().chars().next().ok_or(Unfinished)? {
                '\\' => {
                    let next = self.rest()[1..].chars().next().ok_or(Unfinished)?;
                    self.at += 1 + next.len_utf8();
                }
                '$' if quote == '"' && self.rest().starts_with("$(") => {
                    self.at += 1;
                    self.parenthesis()?;
                }
                c => {
                    self.at += c.len_utf8();
                    if c == quote {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Skips from a parenthesis to the closing one.
    fn parenthesis(&mut self) -> Result<(), Unfinished> {
        let mut depth = 0;
        loop {
            let begins =
                self.text[..self.at].ends_with(|c: char| c.is_whitespace() || "(;&|".contains(c));
            match self.rest().chars().next().ok_or(Unfinished)? {
                // Elsewhere it is part of a word, as in `$#`.
                '#' if begins => self.at += self.rest().find('\n').ok_or(Unfinished)?,
                quote @ ('"' | '`') => self.quoted(quote)?,
                '(' => {
                    depth += 1;
                    self.at += 1;
                }
                ')' => {
                    depth -= 1;
                    self.at += 1;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                '\'' => self.at += self.rest()[1..].find('\'').ok_or(Unfinished)? + 2,
                '\\' => {
                    let next = self.rest()[1..].chars().next().ok_or(Unfinished)?;
                    self.at += 1 + next.len_utf8();
                }
                c => self.at += c.len_utf8(),
            }
        }
    }
}

/// The commands of a text of one or several lines; `None` if the text continues in the next line, unless this is the
/// `last`. `is_builtin` says which names are commands of the shell.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn read(
    text: &str,
    last: bool,
    is_builtin: impl Fn(&str) -> bool,
) -> Result<Option<Vec<Item>>, String> {
    let scanner = Scanner {
        text,
        at: 0,
        open: Vec::new(),
        command: true,
        function: false,
        documents: Vec::new(),
        pieces: Vec::new(),
        start: 0,
        pipe: None,
        last: Last::Nothing,
    };
    let pieces = match scanner.scan() {
        Ok(pieces) => pieces,
        Err(Unfinished) if !last => return Ok(None),
        // The POSIX shell reports errors in text that this shell does not understand.
        Err(Unfinished) => {
            return match parse(text) {
                Err(Fault::Wrong(sentence)) => Err(sentence),
                _ => Ok(Some(Vec::from([Item {
                    when: When::Always,
                    what: What::Posix(text.trim().into()),
                    background: false,
                }]))),
            }
        }
    };
    let mut items: Vec<Item> = Vec::new();
    // The beginning of the last item in the text, if the next one may be joined to it.
    let mut joined: Option<usize> = None;
    let mut when = When::Always;
    let mut chain = 0;
    while let Some(piece) = pieces.get(chain) {
        // Commands that are joined by && and || and go to the background do so together.
        let length = pieces[chain..]
            .iter()
            .take_while(|piece| matches!(piece.operator, Operator::And | Operator::Or))
            .count();
        let end = pieces.get(chain + length).unwrap_or(piece);
        let together = length > 0 && end.operator == Operator::Background;
        let (piece_end, operator, used) = match together {
            true => (end.end, Operator::Background, length + 1),
            false => (piece.end, piece.operator, 1),
        };
        chain += used;
        let source = text[piece.start..piece_end].trim();
        let background = operator == Operator::Background;
        let what = match together {
            true => Some(What::Posix(source.into())),
            false => what_is(source, piece, text, &is_builtin)?,
        };
        let Some(what) = what else {
            // A comment.
            if piece.semicolon {
                let operator = if background { '&' } else { ';' };
                return Err(alloc::format!("a command is missing before '{operator}'"));
            }
            continue;
        };
        // What stands before a command is for this one alone: a program with the system port must not come to more.
        let is_alone = has_prefix(source, TRUST).or(has_prefix(source, TIME));
        if together && prefixed(&pieces[chain - used..chain], text, TRUST) {
            return Err("trust: cannot go to the background together with another command".into());
        }
        let is_posix = matches!(what, What::Posix(_));
        let can_join = is_posix && !background && is_alone.is_none();
        match (items.last_mut(), joined) {
            (Some(item), Some(start)) if can_join => {
                item.what = What::Posix(text[start..piece_end].trim().into());
            }
            _ => {
                // A condition is for one command, and what follows has one of its own, which depends on the status that
                // there is if this command does not run.
                joined = (can_join && when == When::Always).then_some(piece.start);
                items.push(Item {
                    when,
                    what,
                    background,
                });
            }
        }
        if !can_join {
            joined = None;
        }
        when = match operator {
            Operator::And => When::Success,
            Operator::Or => When::Failure,
            Operator::Next | Operator::Background => When::Always,
        };
    }
    Ok(Some(items))
}

/// The text behind a word that stands before a command, if it begins with that word.
#[must_use]
pub fn has_prefix<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(word)?;
    rest.starts_with([' ', '\t']).then(|| rest.trim_start())
}

/// Whether one of the commands begins with that word.
fn prefixed(pieces: &[Piece], text: &str, word: &str) -> bool {
    let mut commands = pieces
        .iter()
        .map(|piece| text[piece.start..piece.end].trim());
    commands.any(|command| has_prefix(command, word).is_some())
}

/// What runs a command; `None` if there is no command.
fn what_is(
    source: &str,
    piece: &Piece,
    text: &str,
    is_builtin: impl Fn(&str) -> bool,
) -> Result<Option<What>, String> {
    let own = match parse(source) {
        Ok(mut commands) => {
            let background = piece.operator == Operator::Background;
            return Ok(commands.pop().map(|command| {
                What::Own(Command {
                    background,
                    ..command
                })
            }));
        }
        Err(Fault::Wrong(sentence)) => return Err(sentence),
        Err(Fault::Posix) => piece.pipe,
    };
    let Some(pipe) = own else {
        return Ok(Some(What::Posix(source.into())));
    };
    let first = parse(text[piece.start..pipe].trim());
    if let Ok([command]) = first.as_deref() {
        if is_builtin(&command.words[0]) {
            // Errors of the shell's own commands are told to the user in any case.
            let rest = text[pipe..piece.end].trim_start_matches(['|', '&']).trim();
            return Ok(Some(What::Piped(command.clone(), rest.into())));
        }
    }
    Ok(Some(What::Posix(source.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn is_builtin(name: &str) -> bool {
        matches!(name, "ps" | "jobs" | "checkpoint")
    }

    /// Each command: its condition, what runs it, its text.
    fn shown(text: &str) -> Vec<String> {
        let items = read(text, false, is_builtin).unwrap().expect(text);
        let line = |item: &Item| {
            let when = match item.when {
                When::Always => "",
                When::Success => "&& ",
                When::Failure => "|| ",
            };
            let what = match &item.what {
                What::Own(command) => format!("own {}", command.source),
                What::Piped(command, rest) => format!("own {} | {rest}", command.source),
                What::Posix(text) => format!("sh {text}"),
            };
            let background = if item.background { " &" } else { "" };
            format!("{when}{what}{background}")
        };
        items.iter().map(line).collect()
    }

    #[test]
    fn simple_commands_are_the_shells_own() {
        assert_eq!(
            shown("ls; sort < a > b & ps # x"),
            ["own ls", "own sort < a > b &", "own ps # x"]
        );
        assert_eq!(shown("a && b || c"), ["own a", "&& own b", "|| own c"]);
        assert_eq!(shown("a\nb\n\n# nothing\nc"), ["own a", "own b", "own c"]);
        assert!(shown("").is_empty() && shown("  # x").is_empty());
        assert_eq!(shown("grep 'a|b;c' \"x&y\""), ["own grep 'a|b;c' \"x&y\""]);
    }

    #[test]
    fn what_needs_more_goes_to_a_posix_shell() {
        for line in [
            "ls | wc -l",
            "X=1",
            "echo $X",
            "for f in *; do echo $f; done",
            "if true; then echo a; else echo b; fi",
            "(cd /tmp; ls)",
            "{ echo a; echo b; } > /tmp/c",
            "case $x in a) echo 1;; b|c) echo 2;; esac",
            "f() { echo a; }",
            "echo \"$(ls; echo ')')\"",
            "echo `date`; echo $X",
            "while read a; do echo $a; done < /tmp/x",
            "cat <<END\na; b\nEND",
            "cat <<-'E F'\n\tx\n\tE F",
            "a 2>&1 | b",
            "a | b && c $d || e | f",
            "echo *.c",
            "ls ~",
            "! true",
            "export A=b",
            "a |\nb",
        ] {
            assert_eq!(shown(line), [format!("sh {line}")], "{line}");
        }
        assert_eq!(shown("[ -f x ]"), ["own [ -f x ]"]);
    }

    #[test]
    fn both_kinds_stand_in_one_line() {
        assert_eq!(
            shown("checkpoint %1 x; ls | wc; Y=2; ps && echo $Y"),
            [
                "own checkpoint %1 x",
                "sh ls | wc; Y=2",
                "own ps",
                "&& sh echo $Y"
            ]
        );
        assert_eq!(shown("ps | grep a | wc"), ["own ps | grep a | wc"]);
        assert_eq!(shown("a | b & c | d"), ["sh a | b &", "sh c | d"]);
        assert_eq!(shown("a && b & c"), ["sh a && b &", "own c"]);
        assert_eq!(
            shown("for x in 1 2; do a; done & ps"),
            ["sh for x in 1 2; do a; done &", "own ps"]
        );
    }

    #[test]
    fn what_bash_has_is_not_cut() {
        for line in [
            "a |& b",
            "[[ -f a && -f b ]]",
            "[[ a < b || ( $c == if && d =~ ^(x|y)$ ) ]] && echo $e",
            "if [[ a && b ]]; then c; fi",
            "function f { a; b; }",
            "function f() { a; b; }",
            "function if { a; b; }",
        ] {
            assert_eq!(shown(line), [format!("sh {line}")], "{line}");
        }
        assert_eq!(shown("ps |& a"), ["own ps | a"]);
        assert_eq!(shown("[[ a || b ]]; ps"), ["sh [[ a || b ]]", "own ps"]);
        assert_eq!(read("[[ a &&", false, is_builtin), Ok(None));
        assert_eq!(shown("echo [[ a"), ["own echo [[ a"]);
    }

    #[test]
    fn a_condition_is_for_one_command() {
        assert_eq!(
            shown("[ -f x ] && A=1; echo $A"),
            ["own [ -f x ]", "&& sh A=1", "sh echo $A"],
            "what follows a command that is skipped is not skipped"
        );
        assert_eq!(
            shown("a || B=1 && C=1\nD=1; E=1"),
            ["own a", "|| sh B=1", "&& sh C=1", "sh D=1; E=1"]
        );
        assert_eq!(
            shown("A=1 && B=1 || C=1; D=1"),
            ["sh A=1 && B=1 || C=1; D=1"]
        );
        assert_eq!(
            shown("A=1 || b && C=1; D=1"),
            ["sh A=1", "|| own b", "&& sh C=1", "sh D=1"]
        );
    }

    #[test]
    fn trust_and_time_are_for_one_command() {
        assert_eq!(
            shown("trust a | b; c | d; E=1"),
            ["sh trust a | b", "sh c | d; E=1"],
            "what follows a trusted command is not trusted"
        );
        assert_eq!(shown("A=1; trust b | c"), ["sh A=1", "sh trust b | c"]);
        assert_eq!(
            shown("trust\ta $b && c $d"),
            ["sh trust\ta $b", "&& sh c $d"]
        );
        assert_eq!(shown("time a $b; c $d"), ["sh time a $b", "sh c $d"]);
        assert_eq!(shown("trust a | b &"), ["sh trust a | b &"]);
        assert_eq!(shown("trust a &"), ["own trust a &"]);
        for line in ["trust a && b &", "a $b || trust c &"] {
            let refused = read(line, false, is_builtin);
            assert!(
                refused.is_err_and(|why| why.starts_with("trust: ")),
                "{line}"
            );
        }
        assert_eq!(has_prefix("trust  a b", TRUST), Some("a b"));
        assert_eq!(has_prefix("trusted a", TRUST), None);
    }

    #[test]
    fn a_line_can_be_continued_anywhere() {
        assert_eq!(shown("a \\\n  b"), ["own a \\\n  b"]);
        for line in [
            "a $b && \\\n  if c; then d; fi",
            "a | \\\nwhile b; do c; done",
            "\\\n  { a; b; }",
            "i\\\nf a; then b; fi",
        ] {
            let text = line.trim();
            assert_eq!(shown(line), [format!("sh {text}")], "{line}");
        }
    }

    #[test]
    fn quotes_and_comments_in_parentheses_are_no_ends() {
        for line in [
            "X=$(grep \"don't\" f)",
            "X=$(grep \":)\" f)",
            "X=$(a `b \"(\"` c)",
            "X=$(a \"$(b \"it's (\")\")",
            "X=$(a # don't )\nb)",
            "echo $(a $# ${#x} b#c)",
            "echo \"$(grep \"don't\" f)\"",
        ] {
            let items = read(line, false, is_builtin);
            assert!(
                items.is_ok_and(|items| items.is_some()),
                "the end is not found: {line}"
            );
            assert_eq!(shown(line), [format!("sh {line}")], "{line}");
        }
    }

    #[test]
    fn commands_go_on_in_the_next_line() {
        for text in [
            "for f in a b",
            "for f in a b; do\necho $f",
            "if true",
            "case x in\na) echo",
            "echo 'a",
            "echo \"a",
            "echo `a",
            "a |",
            "a &&",
            "a && # more",
            "a ||\n",
            "echo a \\",
            "echo a \\\n",
            "cat << X\na",
            "(a",
            "{ a;",
            "echo $(a",
            "echo ${a",
            "f() {",
        ] {
            assert_eq!(read(text, false, is_builtin), Ok(None), "{text}");
            // No line follows: the shell that runs it reports the error.
            let last = read(text, true, is_builtin);
            assert!(
                last.is_err() || last.is_ok_and(|items| items.is_some()),
                "{text}"
            );
        }
        assert_eq!(shown("echo if then for"), ["own echo if then for"]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, sentence) in [
            (";", "a command is missing before ';'"),
            ("a ; ; b", "a command is missing before ';'"),
            ("&", "a command is missing before '&'"),
            ("a >", "a file name is missing after '>'"),
        ] {
            assert_eq!(
                read(line, false, is_builtin),
                Err(sentence.into()),
                "{line}"
            );
        }
        let unclosed = read("echo 'a", true, is_builtin);
        assert_eq!(unclosed, Err("a single quote is not closed".into()));
    }

    #[test]
    fn any_text_is_read() {
        // Every text gives a result, and cuts are between characters.
        let pieces = [
            "'", "\"", "`", "$(", ")", "(", "${", "}", "\\", "\n", ";", "&", "|", "<<", "<", ">",
            "é", "if", "fi", "case", "esac", " ", "#",
        ];
        let mut seed = 1u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..8 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
            }
            let _ = read(&text, false, is_builtin);
            assert_ne!(read(&text, true, is_builtin), Ok(None), "{text}");
        }
    }
}
