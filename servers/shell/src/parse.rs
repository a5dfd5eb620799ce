//! The language of the shell.
//!
//! A line is a list of commands, each ended by `;` or `&` or the end of the line. A command is
//! words and redirections. `#` at the beginning of a word starts a comment. Single quotes keep
//! everything, double quotes everything but `\`, and `\` the next character. What a POSIX shell
//! would do and this one does not is refused by its name, never passed on as something else.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Where a standard stream of a command goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirection {
    /// 0, 1 or 2.
    pub stream: usize,
    /// The file, as it was written.
    pub path: String,
    /// Whether output goes behind what is there.
    pub append: bool,
}

/// A command of a line: its words, and where its input and output go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its words; never empty.
    pub words: Vec<String>,
    /// Its redirections, in order.
    pub redirections: Vec<Redirection>,
    /// Whether the shell goes on at once.
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
/// A sentence that says what is wrong.
pub fn parse(line: &str) -> Result<Vec<Command>, String> {
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
                    _ => return Err(format!("a file name is missing after '{operator}'")),
                }
            }
            None | Some(Token::Semicolon | Token::Ampersand) => {
                let background = token == Some(Token::Ampersand);
                if words.is_empty() {
                    if !redirections.is_empty() {
                        return Err("a redirection needs a command".into());
                    }
                    if token.is_none() {
                        return Ok(commands);
                    }
                    let operator = if background { '&' } else { ';' };
                    return Err(format!("a command is missing before '{operator}'"));
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
        while self.peek().is_some_and(char::is_whitespace) {
            self.bump();
        }
        if self.peek() == Some('#') {
            self.at = self.line.len();
        }
    }

    /// The next token. `first` says that a word here would be the name of a command.
    fn next(&mut self, first: bool) -> Result<Option<Token>, String> {
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
                if self.rest().starts_with("&&") {
                    return Err("'&&' is not supported: join commands with ';'".into());
                }
                if self.rest().starts_with("&>") {
                    return Err("'&>' is not supported: use '>' and '2>'".into());
                }
                self.bump();
                Ok(Some(Token::Ampersand))
            }
            '|' if self.rest().starts_with("||") => {
                Err("'||' is not supported: join commands with ';'".into())
            }
            '|' => Err("pipes are not supported: use a file between the commands".into()),
            '(' | ')' => Err("subshells are not supported".into()),
            _ => self.word(first).map(|word| Some(Token::Word(word))),
        }
    }

    fn redirection(&mut self, digits: usize) -> Result<Token, String> {
        let number = self.rest()[..digits].to_string();
        self.at += digits;
        let output = self.bump() == Some('>');
        let rest = self.rest();
        if !output && rest.starts_with('<') {
            return Err("here documents are not supported".into());
        }
        if rest.starts_with('&') || rest.starts_with('|') || !output && rest.starts_with('>') {
            let operator = format!("{}{}", if output { '>' } else { '<' }, &rest[..1]);
            return Err(format!("'{operator}' is not supported"));
        }
        let append = output && rest.starts_with('>');
        if append {
            self.bump();
        }
        match (output, number.as_str()) {
            (false, "" | "0") => Ok(Token::Redirect(0, false)),
            (true, "" | "1") => Ok(Token::Redirect(1, append)),
            (true, "2") => Ok(Token::Redirect(2, append)),
            _ => Err(format!("redirection of stream {number} is not supported")),
        }
    }

    fn word(&mut self, first: bool) -> Result<String, String> {
        let start = self.at;
        let mut word = String::new();
        // How much of the word came before the first quote.
        let mut unquoted = None;
        while let Some(c) = self.peek() {
            match c {
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
                    word.push(c);
                    self.bump();
                }
            }
        }
        let name = &word[..unquoted.unwrap_or(word.len())];
        if first && name.split_once('=').is_some_and(|(name, _)| is_name(name)) {
            return Err(format!(
                "variables are not supported: '{}'",
                &self.line[start..self.at]
            ));
        }
        Ok(word)
    }

    fn double_quoted(&mut self, word: &mut String) -> Result<(), String> {
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

    /// A dollar sign stands for itself where no name follows.
    fn dollar(&mut self, word: &mut String) -> Result<(), String> {
        if self.bump() == Some('`') || self.peek() == Some('(') {
            return Err("command substitution is not supported".into());
        }
        match self.peek() {
            Some(c) if c.is_ascii_alphanumeric() || "_{?!@*#$-".contains(c) => {
                let rest = self.rest();
                let length = if c == '{' {
                    rest.find('}').map_or(rest.len(), |end| end + 1)
                } else if c == '_' || c.is_ascii_alphabetic() {
                    rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric())
                        .unwrap_or(rest.len())
                } else {
                    1
                };
                Err(format!(
                    "variables are not supported: '${}'",
                    &rest[..length]
                ))
            }
            _ => {
                word.push('$');
                Ok(())
            }
        }
    }
}

/// Whether a variable could have this name.
fn is_name(name: &str) -> bool {
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
    fn what_is_missing_is_named() {
        for (line, sentence) in [
            (
                "a | b",
                "pipes are not supported: use a file between the commands",
            ),
            ("a || b", "'||' is not supported: join commands with ';'"),
            ("a && b", "'&&' is not supported: join commands with ';'"),
            ("echo $HOME/x", "variables are not supported: '$HOME'"),
            ("echo \"a $b\"", "variables are not supported: '$b'"),
            ("echo ${x}y", "variables are not supported: '${x}'"),
            ("echo ${x", "variables are not supported: '${x'"),
            ("echo $?", "variables are not supported: '$?'"),
            ("echo $1", "variables are not supported: '$1'"),
            ("A=b", "variables are not supported: 'A=b'"),
            ("A='x y' cmd", "variables are not supported: 'A='x y''"),
            ("echo $(ls)", "command substitution is not supported"),
            ("echo `ls`", "command substitution is not supported"),
            ("(a)", "subshells are not supported"),
            ("a << b", "here documents are not supported"),
            ("a <> b", "'<>' is not supported"),
            ("a >& b", "'>&' is not supported"),
            ("a &> b", "'&>' is not supported: use '>' and '2>'"),
            ("a 3> b", "redirection of stream 3 is not supported"),
            ("a 1< b", "redirection of stream 1 is not supported"),
            ("a >", "a file name is missing after '>'"),
            ("a >> ; b", "a file name is missing after '>>'"),
            ("> a", "a redirection needs a command"),
            (";", "a command is missing before ';'"),
            ("a ;; b", "a command is missing before ';'"),
            ("&", "a command is missing before '&'"),
            ("echo 'a", "a single quote is not closed"),
            ("echo \"a", "a double quote is not closed"),
            ("echo \"a\\", "a double quote is not closed"),
            ("echo a\\", "a character is missing after '\\'"),
        ] {
            assert_eq!(parse(line).unwrap_err(), sentence, "{line}");
        }
    }

    #[test]
    fn an_equals_sign_elsewhere_is_nothing_special() {
        assert_eq!(words("dd if=a"), ["dd", "if=a"]);
        assert_eq!(words("'A'=b"), ["A=b"]);
        assert_eq!(words("./a=b =c"), ["./a=b", "=c"]);
    }
}
