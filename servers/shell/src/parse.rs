//! The language of the shell.
//!
//! A line is a list of commands, each ended by `;` or `&` or the end of the line. A command is words and redirections.
//! `#` at the beginning of a word starts a comment. Single quotes keep everything, double quotes everything but `\`,
//! and `\` the next character. Text with a meaning only in a POSIX shell is [`Fault::Posix`], and never taken
//! literally.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Why a line is not a list of commands in this language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The line is wrong, as this sentence says.
    Wrong(String),
    /// The line has a meaning only in a POSIX shell.
    Posix,
}

impl From<&str> for Fault {
    fn from(sentence: &str) -> Self {
        Fault::Wrong(sentence.into())
    }
}

impl From<String> for Fault {
    fn from(sentence: String) -> Self {
        Fault::Wrong(sentence)
    }
}

/// Words that begin something other than a simple command, and commands that change state which this shell does not
/// have.
const POSIX_WORDS: [&str; 46] = [
    "!", ".", "[[", "alias", "break", "case", "command", "continue", "declare", "do", "done",
    "elif", "else", "esac", "eval", "exec", "export", "fi", "for", "function", "getopts", "hash",
    "if", "let", "local", "read", "readonly", "return", "select", "set", "shift", "shopt",
    "source", "then", "times", "trap", "type", "typeset", "ulimit", "umask", "unalias", "unset",
    "until", "while", "{", "}",
];

/// A backslash and the end of a line: as if neither were there.
pub(crate) const CONTINUED: &str = "\\\n";

/// Where a standard stream of a command goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirection {
    /// 0, 1 or 2.
    pub stream: usize,
    /// The file, as it was written.
    pub path: String,
    /// Whether output is appended to the file.
    pub append: bool,
}

/// A command of a line: its words and redirections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its words; never empty.
    pub words: Vec<String>,
    /// Its redirections, in order.
    pub redirections: Vec<Redirection>,
    /// Whether the shell does not wait for it.
    pub background: bool,
    /// How it was written.
    pub source: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// Stream and whether to append.
    Redirect(usize, bool),
    Semicolon,
    Ampersand,
}

struct Lexer<'a> {
    line: &'a str,
    at: usize,
}

/// The commands of a line.
///
/// # Errors
/// Why the line is no list of commands.
pub fn parse(line: &str) -> Result<Vec<Command>, Fault> {
    let mut lexer = Lexer { line, at: 0 };
    let mut commands = Vec::new();
    let mut words = Vec::new();
    let mut redirections = Vec::new();
    let mut start = 0;
    loop {
        lexer.skip_blanks();
        if words.is_empty() && redirections.is_empty() {
            start = lexer.at;
        }
        let end = lexer.at;
        let token = lexer.next(words.is_empty())?;
        match token {
            Some(Token::Word(word)) => words.push(word),
            Some(Token::Redirect(stream, append)) => {
                let operator = line[end..lexer.at].to_string();
                match lexer.next(false)? {
                    Some(Token::Word(path)) => redirections.push(Redirection {
                        stream,
                        path,
                        append,
                    }),
                    _ => return Err(format!("a file name is missing after '{operator}'").into()),
                }
            }
            None | Some(Token::Semicolon | Token::Ampersand) => {
                let background = token == Some(Token::Ampersand);
                if words.is_empty() {
                    if !redirections.is_empty() {
                        // A redirection alone makes an empty file.
                        return Err(Fault::Posix);
                    }
                    if token.is_none() {
                        return Ok(commands);
                    }
                    let operator = if background { '&' } else { ';' };
                    return Err(format!("a command is missing before '{operator}'").into());
                }
                commands.push(Command {
                    words: core::mem::take(&mut words),
                    redirections: core::mem::take(&mut redirections),
                    background,
                    source: line[start..end].trim_end().to_string(),
                });
                if token.is_none() {
                    return Ok(commands);
                }
            }
        }
    }
}

impl Lexer<'_> {
    fn peek(&self) -> Option<char> {
        self.line[self.at..].chars().next()
    }

    fn rest(&self) -> &str {
        &self.line[self.at..]
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn skip_blanks(&mut self) {
        loop {
            if self.rest().starts_with(CONTINUED) {
                self.at += CONTINUED.len();
            } else if self.peek().is_some_and(char::is_whitespace) {
                self.bump();
            } else {
                break;
            }
        }
        if self.peek() == Some('#') {
            self.at = self.line.len();
        }
    }

    /// The next token. `first` says that a word here would be the name of a command.
    fn next(&mut self, first: bool) -> Result<Option<Token>, Fault> {
        self.skip_blanks();
        let digits = self.rest().len()
            - self
                .rest()
                .trim_start_matches(|c: char| c.is_ascii_digit())
                .len();
        if matches!(self.rest()[digits..].chars().next(), Some('<' | '>')) {
            return self.redirection(digits).map(Some);
        }
        let Some(c) = self.peek() else {
            return Ok(None);
        };
        match c {
            ';' => {
                self.bump();
                Ok(Some(Token::Semicolon))
            }
            '&' => {
                if self.rest().starts_with("&&") || self.rest().starts_with("&>") {
                    return Err(Fault::Posix);
                }
                self.bump();
                Ok(Some(Token::Ampersand))
            }
            '|' | '(' | ')' => Err(Fault::Posix),
            _ => self.word(first).map(|word| Some(Token::Word(word))),
        }
    }

    fn redirection(&mut self, digits: usize) -> Result<Token, Fault> {
        let number = self.rest()[..digits].to_string();
        self.at += digits;
        let output = self.bump() == Some('>');
        let rest = self.rest();
        if rest.starts_with(['&', '|']) || !output && rest.starts_with(['<', '>']) {
            return Err(Fault::Posix);
        }
        let append = output && rest.starts_with('>');
        if append {
            self.bump();
        }
        match (output, number.as_str()) {
            (false, "" | "0") => Ok(Token::Redirect(0, false)),
            (true, "" | "1") => Ok(Token::Redirect(1, append)),
            (true, "2") => Ok(Token::Redirect(2, append)),
            _ => Err(Fault::Posix),
        }
    }

    fn word(&mut self, first: bool) -> Result<String, Fault> {
        let mut word = String::new();
        // Whether the word is a pattern of file names, or begins with `~`.
        let mut pattern = self.peek() == Some('~');
        // How much of the word came before the first quote.
        let mut unquoted = None;
        while let Some(c) = self.peek() {
            match c {
                '\\' if self.rest().starts_with(CONTINUED) => self.at += CONTINUED.len(),
                ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                c if c.is_whitespace() => break,
                '\'' => {
                    unquoted.get_or_insert(word.len());
                    self.bump();
                    let Some(end) = self.rest().find('\'') else {
                        return Err("a single quote is not closed".into());
                    };
                    word.push_str(&self.rest()[..end]);
                    self.at += end + 1;
                }
                '"' => {
                    unquoted.get_or_insert(word.len());
                    self.bump();
                    self.double_quoted(&mut word)?;
                }
                '\\' => {
                    unquoted.get_or_insert(word.len());
                    self.bump();
                    match self.bump() {
                        Some(c) => word.push(c),
                        None => return Err("a character is missing after '\\'".into()),
                    }
                }
                '$' | '`' => self.dollar(&mut word)?,
                c => {
                    // A bracket alone is the name of a program.
                    let closes =
                        c == '[' && self.rest().contains(']') && !self.rest().starts_with("[ ");
                    pattern |= matches!(c, '*' | '?') || closes;
                    word.push(c);
                    self.bump();
                }
            }
        }
        let name = &word[..unquoted.unwrap_or(word.len())];
        let assigns = name.split_once('=').is_some_and(|(name, _)| is_name(name));
        let is_posix_word = unquoted.is_none() && POSIX_WORDS.contains(&word.as_str());
        if pattern || first && (assigns || is_posix_word) {
            return Err(Fault::Posix);
        }
        Ok(word)
    }

    fn double_quoted(&mut self, word: &mut String) -> Result<(), Fault> {
        loop {
            match self.peek() {
                None => return Err("a double quote is not closed".into()),
                Some('"') => {
                    self.bump();
                    return Ok(());
                }
                Some('\\') => {
                    self.bump();
                    match self.peek() {
                        Some('\n') => {
                            self.bump();
                        }
                        Some(c @ ('"' | '\\' | '$' | '`')) => {
                            word.push(c);
                            self.bump();
                        }
                        _ => word.push('\\'),
                    }
                }
                Some('$' | '`') => self.dollar(word)?,
                Some(c) => {
                    word.push(c);
                    self.bump();
                }
            }
        }
    }

    /// A dollar sign stands for itself if no name follows.
    fn dollar(&mut self, word: &mut String) -> Result<(), Fault> {
        if self.bump() == Some('`')
            || self.peek() == Some('(')
            || self.rest().starts_with(CONTINUED)
        {
            return Err(Fault::Posix);
        }
        match self.peek() {
            Some(c) if c.is_ascii_alphanumeric() || "_{?!@*#$-'".contains(c) => Err(Fault::Posix),
            _ => {
                word.push('$');
                Ok(())
            }
        }
    }
}

/// Whether a variable could have this name.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn words(line: &str) -> Vec<String> {
        let commands = parse(line).unwrap();
        assert_eq!(commands.len(), 1, "{line}");
        commands[0].words.clone()
    }

    #[test]
    fn words_and_quotes() {
        assert_eq!(words("ls"), ["ls"]);
        assert_eq!(words("  echo a\tb  "), ["echo", "a", "b"]);
        assert_eq!(words("echo 'a b'  \"c d\""), ["echo", "a b", "c d"]);
        assert_eq!(words("echo '' \"\""), ["echo", "", ""]);
        assert_eq!(words("echo a'b'\"c\"d"), ["echo", "abcd"]);
        assert_eq!(
            words(r"echo a\ b \' \\ \#"),
            ["echo", "a b", "'", r"\", "#"]
        );
        assert_eq!(words(r#"echo "a\"b\\c\d""#), ["echo", r#"a"b\c\d"#]);
        assert_eq!(
            words("awk '{print $1; x=\"#\"}' f"),
            ["awk", "{print $1; x=\"#\"}", "f"]
        );
        assert_eq!(words("grep \"x$\" a$ $"), ["grep", "x$", "a$", "$"]);
        assert_eq!(words("echo é'ü'"), ["echo", "éü"]);
        assert_eq!(words("echo 2 3x 4"), ["echo", "2", "3x", "4"]);
    }

    #[test]
    fn a_continued_line_is_one() {
        let said = "the end of a continued line is no part of a word";
        assert_eq!(words("a \\\n  b"), ["a", "b"], "{said}");
        assert_eq!(words("a \\\n\\\n b\\\nc \\\n"), ["a", "bc"], "{said}");
        assert_eq!(
            words("a \"b\\\nc\" 'd\\\ne'"),
            ["a", "bc", "d\\\ne"],
            "{said}"
        );
        assert_eq!(words("a \\\n# b"), ["a"], "{said}");
        assert_eq!(parse("a $\\\nb"), Err(Fault::Posix));
        assert_eq!(parse("i\\\nf a"), Err(Fault::Posix));
    }

    #[test]
    fn comments() {
        assert_eq!(parse("").unwrap(), []);
        assert_eq!(parse("   # all of it; > |").unwrap(), []);
        assert_eq!(words("echo a # b"), ["echo", "a"]);
        assert_eq!(words("echo a#b '#'c"), ["echo", "a#b", "#c"]);
        assert_eq!(parse("a; # b").unwrap().len(), 1);
        assert!(parse("a & # b").unwrap()[0].background);
    }

    #[test]
    fn lists_and_background() {
        let commands = parse("a 1; b 2 & c 3").unwrap();
        let seen: Vec<_> = commands
            .iter()
            .map(|c| (c.source.as_str(), c.background))
            .collect();
        assert_eq!(seen, [("a 1", false), ("b 2", true), ("c 3", false)]);
        assert_eq!(parse("a;").unwrap().len(), 1);
        assert!(parse("sleep 1&").unwrap()[0].background);
        assert_eq!(
            parse("  gzip  -9 <in >'o ut' &").unwrap()[0].source,
            "gzip  -9 <in >'o ut'"
        );
    }

    #[test]
    fn redirections() {
        let command = &parse("cmd<in>out arg 2>>err").unwrap()[0];
        assert_eq!(command.words, ["cmd", "arg"]);
        let redirection = |stream, path: &str, append| Redirection {
            stream,
            path: path.into(),
            append,
        };
        assert_eq!(
            command.redirections,
            vec![
                redirection(0, "in", false),
                redirection(1, "out", false),
                redirection(2, "err", true)
            ]
        );
        let command = &parse("> 'a b' echo x >> c &").unwrap()[0];
        assert_eq!(command.words, ["echo", "x"]);
        assert_eq!(
            command.redirections,
            vec![redirection(1, "a b", false), redirection(1, "c", true)]
        );
        assert!(command.background);
        // A number is only the number of a stream if it stands at the operator.
        assert_eq!(parse("echo 2 > x").unwrap()[0].words, ["echo", "2"]);
        assert_eq!(parse("echo '2'> x").unwrap()[0].words, ["echo", "2"]);
        assert_eq!(parse("echo a2>x").unwrap()[0].words, ["echo", "a2"]);
        assert_eq!(
            parse("echo 1>x").unwrap()[0].redirections,
            vec![redirection(1, "x", false)]
        );
    }

    #[test]
    fn what_this_shell_has_not_is_not_taken_for_something_else() {
        for line in [
            "a | b",
            "a || b",
            "a && b",
            "echo $HOME/x",
            "echo \"a $b\"",
            "echo ${x}y",
            "echo ${x",
            "echo $?",
            "echo $1",
            "A=b",
            "A='x y' cmd",
            "echo $(ls)",
            "echo `ls`",
            "(a)",
            "a << b",
            "a <> b",
            "a >& b",
            "a &> b",
            "a 3> b",
            "a 1< b",
            "echo *",
            "ls a?",
            "> a",
            "ls [ab]c",
            "ls ~",
            "ls ~/x",
            "if a",
            "export A",
            "{ a",
            "echo $'a'",
            "! a",
            ". file",
            "[[ a ]]",
        ] {
            assert_eq!(parse(line), Err(Fault::Posix), "{line}");
        }
        assert_eq!(
            words("echo '*' \"?\" \\* '~' a~ if"),
            ["echo", "*", "?", "*", "~", "a~", "if"]
        );
        assert_eq!(words("[ a = b ]"), ["[", "a", "=", "b", "]"]);
        assert_eq!(words("'if' a"), ["if", "a"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, sentence) in [
            ("a >", "a file name is missing after '>'"),
            ("a >> ; b", "a file name is missing after '>>'"),
            (";", "a command is missing before ';'"),
            ("a ;; b", "a command is missing before ';'"),
            ("&", "a command is missing before '&'"),
            ("echo 'a", "a single quote is not closed"),
            ("echo \"a", "a double quote is not closed"),
            ("echo \"a\\", "a double quote is not closed"),
            ("echo a\\", "a character is missing after '\\'"),
        ] {
            assert_eq!(parse(line), Err(Fault::Wrong(sentence.into())), "{line}");
        }
    }

    #[test]
    fn an_equals_sign_elsewhere_is_nothing_special() {
        assert_eq!(words("dd if=a"), ["dd", "if=a"]);
        assert_eq!(words("'A'=b"), ["A=b"]);
        assert_eq!(words("./a=b =c"), ["./a=b", "=c"]);
    }
}
