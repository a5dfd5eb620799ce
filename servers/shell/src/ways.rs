//! How `checkpoint` is to save, as the shell's command and the program of that name are told.

use alloc::string::String;
use rt::checkpoint::How;

/// What stands before the processes and the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ways<'a> {
    /// `-v`: what was saved is said.
    pub verbose: bool,
    /// `--files`
    pub files: bool,
    /// `--stop`
    pub stop: bool,
    /// `--cut`
    pub cut: bool,
    /// `--compress`
    pub compress: bool,
    /// `--parent IMAGE`
    pub parent: Option<&'a str>,
    /// The rest.
    pub rest: &'a [String],
}

impl<'a> Ways<'a> {
    /// What the checkpointer is told; `parent` is where the image is that they name.
    #[must_use]
    pub const fn how<'b>(&self, parent: Option<&'b str>) -> How<'b> {
        How {
            parent,
            files: self.files,
            stop: self.stop,
            cut: self.cut,
            compress: self.compress,
        }
    }

    /// The file, and what is saved in it, if both are there.
    #[must_use]
    pub fn file_and_words(&self) -> Option<(&'a String, &'a [String])> {
        self.rest
            .split_last()
            .filter(|(_, words)| !words.is_empty())
    }
}

/// Reads them. What is none of them is the rest, from there on.
#[must_use]
pub fn read(arguments: &[String]) -> Ways<'_> {
    let mut ways = Ways::default();
    let mut rest = arguments;
    while let Some((first, others)) = rest.split_first() {
        let mut others = others;
        match first.as_str() {
            "-v" => ways.verbose = true,
            "--files" => ways.files = true,
            "--stop" => ways.stop = true,
            "--cut" => ways.cut = true,
            "--compress" => ways.compress = true,
            "--parent" => {
                let Some((image, behind)) = others.split_first() else {
                    break;
                };
                ways.parent = Some(image);
                others = behind;
            }
            _ => break,
        }
        rest = others;
    }
    ways.rest = rest;
    ways
}

#[cfg(test)]
mod tests {
    use super::{read, Ways};
    use alloc::string::String;
    use alloc::vec::Vec;

    #[test]
    fn ways_stand_in_front() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(String::from).collect() };
        let all = words("-v --cut --parent --stop 7 --files");
        let ways = read(&all);
        let expected = Ways {
            verbose: true,
            cut: true,
            parent: Some("--stop"),
            rest: &all[4..],
            ..Ways::default()
        };
        assert_eq!(
            ways, expected,
            "what stands behind the first word is a name"
        );
        assert_eq!(ways.file_and_words(), Some((&all[5], &all[4..5])));
        let none = words("--parent");
        assert_eq!(read(&none).rest, &none[..]);
    }
}
