//! The line editor.
//!
//! [`Editor`] takes bytes from a terminal and returns what to send back. It knows the keys of
//! common terminals (ECMA-48 sequences as xterm sends them) and the control characters of Emacs. A
//! line that is wider than the terminal is shown through a window that moves with the cursor.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Lines that the history keeps.
const HISTORY: usize = 500;
/// Longest line.
pub const MAX_LINE: usize = 4000;
/// Columns of the terminal. A serial line does not report it.
const COLUMNS: usize = 80;

/// The effect of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Editing continues; this text is to be sent to the terminal.
    Show(String),
    /// The line is complete; the second text is to be sent to the terminal.
    Line(String, String),
    /// The line is complete, but not whole, since it was longer than [`MAX_LINE`].
    Cut(String),
    /// Ctrl-C: the line is given up.
    Cancel(String),
    /// Ctrl-D on an empty line.
    End(String),
}

/// How far an escape sequence has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    None,
    /// After ESC.
    Start,
    /// After ESC O.
    Single,
    /// After ESC [, with the number so far.
    Sequence(u32),
}

/// A line that is being edited, and the history.
#[derive(Debug)]
pub struct Editor {
    prompt: String,
    line: Vec<char>,
    /// Where the next character goes, in characters.
    cursor: usize,
    /// First character that is shown.
    left: usize,
    history: VecDeque<String>,
    /// Which line of the history is shown; its length for the new line.
    place: usize,
    /// The new line, while one of the history is shown.
    draft: Vec<char>,
    /// The text that was cut last.
    cut: Vec<char>,
    escape: Escape,
    /// The beginning of a UTF-8 sequence.
    partial: Vec<u8>,
    /// Whether characters were typed for which there was no room.
    is_cut: bool,
}

impl Default for Editor {
    fn default() -> Self {
        Self::new()
    }
}

impl Editor {
    /// An editor without history.
    #[must_use]
    pub fn new() -> Self {
        Editor {
            prompt: String::new(),
            line: Vec::new(),
            cursor: 0,
            left: 0,
            history: VecDeque::new(),
            place: 0,
            draft: Vec::new(),
            cut: Vec::new(),
            escape: Escape::None,
            partial: Vec::new(),
            is_cut: false,
        }
    }

    /// Begins a new line; returns what is to be sent to the terminal.
    pub fn begin(&mut self, prompt: &str) -> String {
        self.prompt = prompt.into();
        self.line.clear();
        self.cursor = 0;
        self.left = 0;
        self.place = self.history.len();
        self.escape = Escape::None;
        self.partial.clear();
        self.is_cut = false;
        self.prompt.clone()
    }

    /// The lines that were entered, the oldest first.
    pub fn history(&self) -> impl Iterator<Item = &str> {
        self.history.iter().map(String::as_str)
    }

    /// Takes a byte from the terminal.
    pub fn feed(&mut self, byte: u8) -> Action {
        match self.escape {
            Escape::None => self.plain(byte),
            Escape::Start => {
                self.escape = match byte {
                    b'[' => Escape::Sequence(0),
                    b'O' => Escape::Single,
                    _ => Escape::None,
                };
                match byte {
                    b'b' => self.move_to(self.word_left()),
                    b'f' => self.move_to(self.word_right()),
                    b'd' => self.cut_range(self.cursor, self.word_right()),
                    _ => self.nothing(),
                }
            }
            Escape::Single => self.key(byte, 0),
            Escape::Sequence(number) => match byte {
                b'0'..=b'9' => {
                    let number =
                        number.wrapping_mul(10).wrapping_add(u32::from(byte - b'0')) % 10_000;
                    self.escape = Escape::Sequence(number);
                    self.nothing()
                }
                b';' => {
                    // Only the last number matters: it is a modifier.
                    self.escape = Escape::Sequence(0);
                    self.nothing()
                }
                0x40..=0x7e => self.key(byte, number),
                _ => {
                    self.escape = Escape::None;
                    self.nothing()
                }
            },
        }
    }

    fn nothing(&self) -> Action {
        Action::Show(String::new())
    }

    /// The end of an escape sequence.
    fn key(&mut self, last: u8, number: u32) -> Action {
        self.escape = Escape::None;
        match (last, number) {
            (b'A', _) => self.recall(self.place.checked_sub(1)),
            (b'B', _) => self.recall(Some(self.place + 1)),
            (b'C', 3 | 5) => self.move_to(self.word_right()),
            (b'D', 3 | 5) => self.move_to(self.word_left()),
            (b'C', _) => self.move_to((self.cursor + 1).min(self.line.len())),
            (b'D', _) => self.move_to(self.cursor.saturating_sub(1)),
            (b'H', _) | (b'~', 1 | 7) => self.move_to(0),
            (b'F', _) | (b'~', 4 | 8) => self.move_to(self.line.len()),
            (b'~', 3) => self.delete(),
            _ => self.nothing(),
        }
    }

    fn plain(&mut self, byte: u8) -> Action {
        if byte < 0x20 || byte == 0x7f {
            self.partial.clear();
        }
        match byte {
            b'\r' | b'\n' => self.enter(),
            0x01 => self.move_to(0),
            0x02 => self.move_to(self.cursor.saturating_sub(1)),
            0x03 => {
                self.line.clear();
                self.cursor = 0;
                self.left = 0;
                Action::Cancel("^C\n".into())
            }
            0x04 if self.line.is_empty() => Action::End("\n".into()),
            0x04 => self.delete(),
            0x05 => self.move_to(self.line.len()),
            0x06 => self.move_to((self.cursor + 1).min(self.line.len())),
            0x08 | 0x7f => {
                if self.cursor == 0 {
                    return self.nothing();
                }
                self.cursor -= 1;
                self.line.remove(self.cursor);
                self.redraw()
            }
            0x0b => self.cut_range(self.cursor, self.line.len()),
            0x0c => {
                let shown = self.shown();
                Action::Show(format!("\x1b[H\x1b[2J{shown}"))
            }
            0x0e => self.recall(Some(self.place + 1)),
            0x10 => self.recall(self.place.checked_sub(1)),
            0x15 => self.cut_range(0, self.cursor),
            0x17 => {
                let blanks = |c: &char| c.is_whitespace();
                let mut start = self.cursor;
                while start > 0 && blanks(&self.line[start - 1]) {
                    start -= 1;
                }
                while start > 0 && !blanks(&self.line[start - 1]) {
                    start -= 1;
                }
                self.cut_range(start, self.cursor)
            }
            0x19 => {
                let cut = self.cut.clone();
                self.insert(&cut)
            }
            0x1b => {
                self.escape = Escape::Start;
                self.nothing()
            }
            b'\t' => self.insert(&['\t']),
            0..=0x1f => self.nothing(),
            0x20..=0x7e => self.insert(&[char::from(byte)]),
            _ => {
                self.partial.push(byte);
                match core::str::from_utf8(&self.partial) {
                    Ok(text) => {
                        let c: Vec<char> = text.chars().collect();
                        self.partial.clear();
                        self.insert(&c)
                    }
                    Err(error) => {
                        if error.error_len().is_some() {
                            self.partial.clear();
                        }
                        self.nothing()
                    }
                }
            }
        }
    }

    fn enter(&mut self) -> Action {
        if self.is_cut {
            return Action::Cut("\n".into());
        }
        let line: String = self.line.iter().collect();
        if !line.trim().is_empty() && self.history.back() != Some(&line) {
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            self.history.push_back(line.clone());
        }
        Action::Line(line, "\n".into())
    }

    fn insert(&mut self, text: &[char]) -> Action {
        if self.line.len() + text.len() > MAX_LINE {
            self.is_cut = true;
            return Action::Show("\x07".into());
        }
        let at_end = self.cursor == self.line.len();
        self.line
            .splice(self.cursor..self.cursor, text.iter().copied());
        self.cursor += text.len();
        if at_end && self.left == self.window() {
            // The rest of the row is unchanged, so that slow lines and logs get only the typed
            // text.
            return Action::Show(displayed(text));
        }
        self.redraw()
    }

    fn delete(&mut self) -> Action {
        if self.cursor == self.line.len() {
            return self.nothing();
        }
        self.line.remove(self.cursor);
        self.redraw()
    }

    fn cut_range(&mut self, start: usize, end: usize) -> Action {
        if start == end {
            return self.nothing();
        }
        self.cut = self.line.drain(start..end).collect();
        self.cursor = start;
        self.redraw()
    }

    fn move_to(&mut self, to: usize) -> Action {
        if to == self.cursor {
            return self.nothing();
        }
        self.cursor = to;
        self.redraw()
    }

    fn word_left(&self) -> usize {
        let mut at = self.cursor;
        while at > 0 && !self.line[at - 1].is_alphanumeric() {
            at -= 1;
        }
        while at > 0 && self.line[at - 1].is_alphanumeric() {
            at -= 1;
        }
        at
    }

    fn word_right(&self) -> usize {
        let mut at = self.cursor;
        while at < self.line.len() && !self.line[at].is_alphanumeric() {
            at += 1;
        }
        while at < self.line.len() && self.line[at].is_alphanumeric() {
            at += 1;
        }
        at
    }

    /// Shows another line of the history, or the new one behind its end.
    fn recall(&mut self, place: Option<usize>) -> Action {
        let Some(place) = place.filter(|place| *place <= self.history.len()) else {
            return self.nothing();
        };
        if self.place == self.history.len() {
            self.draft = core::mem::take(&mut self.line);
        }
        self.place = place;
        self.line = match self.history.get(place) {
            Some(line) => line.chars().collect(),
            None => core::mem::take(&mut self.draft),
        };
        self.cursor = self.line.len();
        self.redraw()
    }

    /// Columns for the line, behind the prompt; one stays free for the cursor.
    fn width(&self) -> usize {
        COLUMNS
            .saturating_sub(self.prompt.chars().count() + 1)
            .max(10)
    }

    /// Where the window begins, given what it showed before and where the cursor is.
    fn window(&self) -> usize {
        let width = self.width();
        if self.cursor < self.left {
            self.cursor.saturating_sub(width / 2)
        } else if self.cursor > self.left + width {
            self.cursor - width / 2
        } else if self.line.len() <= width {
            0
        } else {
            self.left
        }
    }

    fn redraw(&mut self) -> Action {
        // A line that was cleared begins anew.
        self.is_cut &= !self.line.is_empty();
        self.left = self.window();
        Action::Show(self.shown())
    }

    /// The present prompt and line, from the first column.
    fn shown(&self) -> String {
        let end = self.line.len().min(self.left + self.width());
        let visible = displayed(&self.line[self.left..end]);
        let back = end - self.cursor.min(end);
        let mut shown = format!("\r{}{visible}\x1b[K", self.prompt);
        if back > 0 {
            shown.push_str(&format!("\x1b[{back}D"));
        }
        shown
    }
}

/// Characters as they are shown, one column each: a tab is one blank.
fn displayed(text: &[char]) -> String {
    text.iter()
        .map(|c| if *c == '\t' { ' ' } else { *c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    /// A terminal of one row that understands what the editor sends.
    struct Screen {
        row: Vec<char>,
        column: usize,
    }

    impl Screen {
        fn show(&mut self, text: &str) {
            let mut chars = text.chars().peekable();
            while let Some(c) = chars.next() {
                match c {
                    '\r' => self.column = 0,
                    '\x07' => {}
                    '\x1b' => {
                        assert_eq!(chars.next(), Some('['));
                        let mut number = 0;
                        while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                            number = number * 10 + digit as usize;
                            chars.next();
                        }
                        match chars.next() {
                            Some('K') => self.row.truncate(self.column),
                            Some('D') => self.column -= number,
                            Some('H') => self.column = 0,
                            Some('J') => self.row.clear(),
                            other => panic!("{other:?}"),
                        }
                    }
                    c => {
                        self.row.resize(self.row.len().max(self.column + 1), ' ');
                        self.row[self.column] = c;
                        self.column += 1;
                    }
                }
                assert!(self.column < COLUMNS, "ran over the edge");
            }
        }

        fn text(&self) -> String {
            self.row.iter().collect()
        }
    }

    struct Terminal {
        editor: Editor,
        screen: Screen,
        lines: Vec<String>,
    }

    impl Terminal {
        fn new() -> Self {
            let mut terminal = Terminal {
                editor: Editor::new(),
                screen: Screen {
                    row: vec![],
                    column: 0,
                },
                lines: vec![],
            };
            terminal.begin();
            terminal
        }

        fn begin(&mut self) {
            let prompt = self.editor.begin("> ");
            self.screen = Screen {
                row: vec![],
                column: 0,
            };
            self.screen.show(&prompt);
        }

        fn keys(&mut self, keys: &str) -> &mut Self {
            for byte in keys.bytes() {
                match self.editor.feed(byte) {
                    Action::Show(text) => self.screen.show(&text),
                    Action::Line(line, _) => {
                        self.lines.push(line);
                        self.begin();
                    }
                    Action::Cut(_) => {
                        self.lines.push("CUT".into());
                        self.begin();
                    }
                    Action::Cancel(_) => self.begin(),
                    Action::End(_) => self.lines.push("END".into()),
                }
            }
            let cursor = 2 + self.editor.cursor - self.editor.left;
            assert_eq!(self.screen.column, cursor, "{keys:?}");
            self
        }

        /// Checks the text on the screen, and the last line that was entered.
        fn check(&mut self, screen: &str, line: &str) {
            assert_eq!(self.screen.text(), screen);
            self.keys("\r");
            assert_eq!(self.lines.pop().unwrap(), line);
        }
    }

    #[test]
    fn typing_and_moving() {
        let mut t = Terminal::new();
        t.keys("hello").check("> hello", "hello");
        t.keys("held\x1b[Dl\x1b[Co").check("> helldo", "helldo");
        t.keys("bc\x01a\x05d").check("> abcd", "abcd");
        t.keys("bc\x1b[Ha\x1b[Fd\x1b[1~<\x1b[4~>\x1bOH[\x1bOF]")
            .check("> [<abcd>]", "[<abcd>]");
        t.keys("abc\x02\x02X\x06Y").check("> aXbYc", "aXbYc");
        t.keys("one two three\x1b[1;5D\x1b[1;5D4\x1b[1;5C5\x1bb6\x1bf7")
            .check("> one 64two57 three", "one 64two57 three");
        t.keys("a\x1b[D\x1b[D\x1b[D\x1b[C\x1b[Cb")
            .check("> ab", "ab");
    }

    #[test]
    fn deleting_and_cutting() {
        let mut t = Terminal::new();
        t.keys("abc\x7f\x08d").check("> ad", "ad");
        t.keys("abc\x01\x1b[3~\x04x").check("> xc", "xc");
        t.keys("abc def\x01\x06\x0b").check("> a", "a");
        t.keys("abc def\x02\x15").check("> f", "f");
        t.keys("abc def  \x17x").check("> abc x", "abc x");
        t.keys("abc def\x17\x01\x19").check("> defabc ", "defabc ");
        t.keys("\x7f\x04").keys("x\x03").check("> ", "");
        assert_eq!(t.lines, ["END"]);
    }

    #[test]
    fn history() {
        let mut t = Terminal::new();
        t.keys("first\rsecond\rsecond\r  \rdra\x1b[A");
        assert_eq!(t.screen.text(), "> second");
        t.keys("\x1b[A\x1b[A\x1b[A!");
        assert_eq!(t.screen.text(), "> first!");
        t.keys("\x0e\x1b[B\x1b[Bft").check("> draft", "draft");
        t.keys("\x10\x10\x10\r");
        assert_eq!(t.lines.pop().unwrap(), "first");
        let history: Vec<_> = t.editor.history().map(ToString::to_string).collect();
        assert_eq!(history, ["first", "second", "draft", "first"]);
        for i in 0..600 {
            t.keys(&format!("{i}\r"));
        }
        assert_eq!(t.editor.history().count(), HISTORY);
    }

    #[test]
    fn other_alphabets_and_garbage() {
        let mut t = Terminal::new();
        t.keys("grüße\x1b[D\x7f").check("> grüe", "grüe");
        for byte in [
            0xff, 0xc3, b'a', 0xe2, 0x82, 0x1b, b'[', b'9', b'9', b'9', b'9', b'9', b'9', b'9',
            b'9', b'9', b'9', b'~',
        ] {
            if let Action::Show(text) = t.editor.feed(byte) {
                t.screen.show(&text);
            }
        }
        t.keys("\x1b[\x01\x1bx\x1b[999Zb");
        t.keys("\r");
        assert_eq!(t.lines.pop().unwrap(), "ab");
        let mut seed = 1u32;
        for _ in 0..100_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if let Action::Line(..) = t.editor.feed((seed >> 24) as u8) {
                t.editor.begin("> ");
            }
        }
    }

    #[test]
    fn long_lines_stay_in_one_row() {
        let mut t = Terminal::new();
        let long: String = (0..300)
            .map(|i| char::from(b'a' + (i % 26) as u8))
            .collect();
        t.keys(&long);
        assert!(t.screen.text().len() < COLUMNS);
        for _ in 0..150 {
            t.keys("\x1b[D");
        }
        t.keys("X\x01Y");
        assert!(t.screen.text().starts_with("> Yabc"));
        t.keys("\x05\r");
        assert_eq!(
            t.lines.pop().unwrap(),
            format!("Y{}X{}", &long[..150], &long[150..])
        );
        t.keys(&"z".repeat(5000));
        assert_eq!(t.editor.line.len(), MAX_LINE);
        t.keys("\r");
        assert_eq!(t.lines, ["CUT"], "a line is run without its end");
        t.keys(&"z".repeat(MAX_LINE)).keys("\r");
        assert_eq!(t.lines.pop().unwrap().len(), MAX_LINE);
        t.keys(&"z".repeat(5000)).keys("\x15a").check("> a", "a");
    }

    #[test]
    fn a_tab_is_a_tab_and_takes_one_column() {
        let mut t = Terminal::new();
        t.keys("a\tb").check("> a b", "a\tb");
        t.keys("a\tb\x01c").check("> ca b", "ca\tb");
    }
}
