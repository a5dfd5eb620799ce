//! The control channel: lines that the guest sends to xtask on its second serial port.
//!
//! The channel is a stream of lines, whose format `xtask/README.md` defines.

/// A message of the guest.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The console takes input now.
    Ready,
    /// Text of the kernel's log, for the user.
    Log(String),
    /// A line about tests in the guest.
    Test(String),
    /// A file that xtask asked for.
    File { path: String, content: Vec<u8> },
    /// A file that xtask asked for and that does not exist.
    Missing(String),
    /// The machine stops with this status.
    Exit(u8),
    /// The machine panicked.
    Panic(String),
    /// A line in no known format.
    Unknown(String),
}

/// Splits the stream into events.
#[derive(Default)]
pub struct Parser {
    pending: Vec<u8>,
}

impl Parser {
    /// Takes more bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The panic messages in bytes that are no event yet, if the machine panicked within another message.
    pub fn last_words(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.pending)
            .lines()
            .filter_map(|line| Some(line.split_once("panic ")?.1.to_string()))
            .collect()
    }
}

impl Iterator for Parser {
    type Item = Event;

    /// The next event, if it has arrived completely.
    fn next(&mut self) -> Option<Event> {
        let end = self.pending.iter().position(|byte| *byte == b'\n')?;
        let line = String::from_utf8_lossy(&self.pending[..end])
            .trim_end_matches('\r')
            .to_string();
        let mut used = end + 1;
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let event = match word {
            "ready" => Event::Ready,
            "log" => Event::Log(rest.into()),
            "test" | "tests" => Event::Test(line.clone()),
            "missing" => Event::Missing(rest.into()),
            "panic" => Event::Panic(rest.into()),
            "exit" => match rest.trim().parse() {
                Ok(status) => Event::Exit(status),
                Err(_) => Event::Unknown(line.clone()),
            },
            "file" => {
                let header = rest
                    .rsplit_once(' ')
                    .and_then(|(path, length)| Some((path, length.parse::<usize>().ok()?)));
                match header {
                    Some((path, length)) => {
                        let content = self.pending.get(used..used.checked_add(length)?)?.to_vec();
                        used += length;
                        Event::File {
                            path: path.into(),
                            content,
                        }
                    }
                    None => Event::Unknown(line.clone()),
                }
            }
            _ => Event::Unknown(line.clone()),
        };
        self.pending.drain(..used);
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_cut_wherever_the_stream_is() {
        let stream =
            b"ready\nlog hello there\nfile /tmp/a b 5\n1\n3\n5missing /x\ntests done\nexit 7\n";
        let expected = [
            Event::Ready,
            Event::Log("hello there".into()),
            Event::File {
                path: "/tmp/a b".into(),
                content: b"1\n3\n5".to_vec(),
            },
            Event::Missing("/x".into()),
            Event::Test("tests done".into()),
            Event::Exit(7),
        ];
        for size in 1..stream.len() {
            let mut parser = Parser::default();
            let mut events = Vec::new();
            for piece in stream.chunks(size) {
                parser.feed(piece);
                events.extend(std::iter::from_fn(|| parser.next()));
            }
            assert_eq!(events, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn a_panic_inside_a_file_is_found() {
        let mut parser = Parser::default();
        parser.feed(b"file /x 1000\nabcpanic at the end\n");
        assert_eq!(parser.next(), None);
        assert_eq!(parser.last_words(), ["at the end"]);
    }

    #[test]
    fn nonsense_is_kept_for_people() {
        let mut parser = Parser::default();
        parser.feed(b"exit many\nfile x\nwhat\n");
        for line in ["exit many", "file x", "what"] {
            assert_eq!(parser.next(), Some(Event::Unknown(line.into())));
        }
    }
}
