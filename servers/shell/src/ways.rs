//! The options of `checkpoint`, for the shell's command and the program of that name.

use alloc::string::String;
use rt::checkpoint::How;

/// The file name that stands for the output: a pipe, or the target of a redirection.
pub const PIPE: &str = "-";

/// The options before the processes and the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ways<'a> {
    /// `-v`: prints what was saved.
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
    /// The options for the checkpointer; `parent` is the path of the parent image.
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

    /// Checks whether an image can be written to the given file; `is_console`: the output is the console.
    ///
    /// # Errors
    /// A sentence.
    pub fn refuse(&self, is_console: bool) -> Result<(), &'static str> {
        match self.file_and_words() {
            Some((file, _)) if file == PIPE => {}
            _ => return Ok(()),
        }
        if is_console {
            return Err("an image is nothing to read: give it a file, or a pipe to go on");
        }
        if self.parent.is_some() {
            // The image could replace its parent, and a restore would search for the parent beside it.
            return Err("an image that is based on another one lies beside it: give it a file");
        }
        Ok(())
    }

    /// The file, and the words that name the processes, if both are given.
    #[must_use]
    pub fn file_and_words(&self) -> Option<(&'a String, &'a [String])> {
        self.rest
            .split_last()
            .filter(|(_, words)| !words.is_empty())
    }
}

/// Reads the options. The rest begins with the first argument that is no option.
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

    #[test]
    fn an_image_that_needs_another_goes_into_no_pipe() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(String::from).collect() };
        let refused = |text: &str, is_console| read(&words(text)).refuse(is_console).is_err();
        assert!(refused("7 -", true), "nobody reads an image");
        assert!(!refused("7 -", false));
        assert!(
            refused("--parent a 7 -", false),
            "its parent does not go with it"
        );
        for is_console in [false, true] {
            assert!(!refused("--parent a 7 b", is_console));
            assert!(!refused("- b", is_console), "what is saved is not the file");
            assert!(!refused("-", is_console));
        }
    }
}
