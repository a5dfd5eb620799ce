//! Paths, durations, dates, modes and executables: small things that can be tested alone.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use process::executable::is_native;
use rt::fs::mode;

/// `path` as an absolute path: relative ones begin in `cwd`. Removes `.`, `..` and double slashes, without regard to
/// symbolic links.
#[must_use]
pub fn clean_path(cwd: &str, path: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    let whole = [if path.starts_with('/') { "" } else { cwd }, path];
    for name in whole.iter().flat_map(|part| part.split('/')) {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    let mut clean = String::new();
    for name in &names {
        clean.push('/');
        clean.push_str(name);
    }
    if clean.is_empty() {
        clean.push('/');
    }
    clean
}

/// `path` as an absolute path with exactly the same meaning: the file system resolves `..`, and a trailing slash stays.
#[must_use]
pub fn absolute_path(cwd: &str, path: &str) -> String {
    if path.starts_with('/') || path.is_empty() {
        path.into()
    } else {
        format!("{}/{path}", cwd.trim_end_matches('/'))
    }
}

/// The last name in a path, without trailing slashes.
#[must_use]
pub fn base_name(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// `name` in the directory `directory`.
#[must_use]
pub fn join(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.trim_end_matches('/'))
}

/// Whether a path names a directory that is not removed with all that is in it: the root, the one in which the program
/// is or one above it, which nobody means who has made a mistake with a pattern.
#[must_use]
pub fn is_kept(path: &str) -> bool {
    !path.is_empty() && matches!(base_name(path), "" | "." | "..")
}

/// A duration as nanoseconds: in seconds, with decimals, or in what the letter behind it says (`s`, `m`, `h`, `d`).
/// Fractions of a nanosecond are dropped; a duration that is too long becomes the longest possible.
#[must_use]
pub fn duration(text: &str) -> Option<u64> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let unit = units
        .into_iter()
        .find(|(letter, _)| text.ends_with(*letter));
    let text = text
        .strip_suffix(|c| unit.is_some_and(|(letter, _)| letter == c))
        .unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut ns: u64 = 0;
    for digit in whole.bytes() {
        ns = ns
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'));
    }
    ns = ns.saturating_mul(1_000_000_000);
    let mut place: u64 = 100_000_000;
    for digit in fraction.bytes() {
        ns = ns.saturating_add(u64::from(digit - b'0') * place);
        place /= 10;
    }
    Some(ns.saturating_mul(unit.map_or(1, |(_, seconds)| seconds)))
}

/// An exit status: 0 to 255.
#[must_use]
pub fn exit_status(text: &str) -> Option<u8> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

/// A time since 1970 as `YYYY-MM-DD HH:MM`.
#[must_use]
pub fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that a leap day is the last day of a year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = era * 400 + year + next;
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}",
        rest / 3600,
        rest % 3600 / 60
    )
}

/// Type and permissions as `ls -l` shows them.
#[must_use]
pub fn mode_text(bits: u32) -> String {
    let mut text = String::from(match bits & mode::TYPE {
        mode::DIRECTORY => "d",
        mode::SYMLINK => "l",
        mode::CHARACTER => "c",
        _ => "-",
    });
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let part = bits >> shift;
        text.push(if part & 4 != 0 { 'r' } else { '-' });
        text.push(if part & 2 != 0 { 'w' } else { '-' });
        text.push(match (part & 1 != 0, bits & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// What `echo` writes: its arguments with blanks between them, and a new line unless the first is
/// `-n`.
#[must_use]
pub fn echo(arguments: &[String]) -> String {
    let (arguments, end) = match arguments.split_first() {
        Some((first, rest)) if first == "-n" => (rest, ""),
        _ => (arguments, "\n"),
    };
    let mut text = arguments.join(" ");
    text.push_str(end);
    text
}

/// The options of a command line, and the remaining arguments. An option is a letter after `-`; several can stand
/// together; `--` ends them.
///
/// # Errors
/// The option that is not among `known`.
pub fn options<'a>(arguments: &'a [String], known: &str) -> Result<(String, &'a [String]), String> {
    let mut found = String::new();
    let mut rest = arguments;
    while let Some((first, others)) = rest.split_first() {
        let Some(letters) = first
            .strip_prefix('-')
            .filter(|letters| !letters.is_empty())
        else {
            break;
        };
        rest = others;
        if letters == "-" {
            break;
        }
        for letter in letters.chars() {
            if !known.contains(letter) {
                return Err(format!("there is no option '-{letter}'"));
            }
            found.push(letter);
        }
    }
    Ok((found, rest))
}

/// What runs an executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executable {
    /// A program for Fermata.
    Native,
    /// A program for Linux.
    Linux,
    /// Nothing on this machine.
    Unknown,
}

/// What runs a file with these first bytes. Scripts and other ELF files count as Linux's, and the personality reports
/// what is wrong with it.
#[must_use]
pub fn executable(head: &[u8]) -> Executable {
    match head {
        _ if is_native(head) => Executable::Native,
        _ if head.starts_with(b"\x7fELF") || head.starts_with(b"#!") => Executable::Linux,
        _ => Executable::Unknown,
    }
}

/// Bytes of a file that [`executable`] needs: headers and notes are near the beginning.
pub const HEAD: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn paths() {
        assert_eq!(clean_path("/a/b", "c"), "/a/b/c");
        assert_eq!(clean_path("/a/b", "../c/./d/"), "/a/c/d");
        assert_eq!(clean_path("/a", "../../.."), "/");
        assert_eq!(clean_path("/a", "/x//y/.."), "/x");
        assert_eq!(absolute_path("/", "x/../y/"), "/x/../y/");
        assert_eq!(absolute_path("/a", "/x"), "/x");
        assert_eq!(absolute_path("/a", ""), "");
        assert_eq!(base_name("/a/b/"), "b");
        assert_eq!(base_name("b"), "b");
        assert_eq!(join("/", "x"), "/x");
        assert_eq!(join("/a/", "x"), "/a/x");
    }

    #[test]
    fn arguments() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(String::from).collect() };
        assert_eq!(echo(&words("a b")), "a b\n");
        assert_eq!(echo(&words("-n a -n")), "a -n");
        assert_eq!(echo(&[]), "\n");
        let line = words("-la -r x -l");
        let (found, rest) = options(&line, "lar").unwrap();
        assert_eq!((found.as_str(), rest), ("lar", &line[2..]));
        assert_eq!(options(&words("-l -- -x"), "l").unwrap().1, ["-x"]);
        assert_eq!(options(&words("- -x"), "").unwrap().1, ["-", "-x"]);
        assert_eq!(
            options(&words("-z"), "l").unwrap_err(),
            "there is no option '-z'"
        );
    }

    #[test]
    fn directories_that_are_kept() {
        for path in ["/", "//", ".", "..", "./", "../..", "/tmp/..", "a/."] {
            assert!(is_kept(path), "{path}");
        }
        for path in ["", "...", ".a", "/tmp", "../a/", "a..", "./a"] {
            assert!(!is_kept(path), "{path}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("10"), Some(10_000_000_000));
        assert_eq!(duration("0.25"), Some(250_000_000));
        assert_eq!(duration(".5"), Some(500_000_000));
        assert_eq!(duration("1."), Some(1_000_000_000));
        assert_eq!(duration("0.0000000019"), Some(1));
        assert_eq!(duration("99999999999999999999"), Some(u64::MAX));
        assert_eq!(duration("2s"), Some(2_000_000_000));
        assert_eq!(duration("0.5m"), Some(30_000_000_000));
        assert_eq!(duration("1h"), duration("3600"));
        assert_eq!(duration("1d"), duration("24h"));
        assert_eq!(duration("9999999999999d"), Some(u64::MAX));
        for text in [
            "", ".", "-1", "s", ".m", "1ms", "1ss", "1.2.3", "+1", "1e3", " 1",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn statuses() {
        assert_eq!(exit_status("0"), Some(0));
        assert_eq!(exit_status("255"), Some(255));
        for text in ["256", "-1", "", "x", "+1"] {
            assert_eq!(exit_status(text), None, "{text}");
        }
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01 00:00");
        assert_eq!(date(951_782_400), "2000-02-29 00:00");
        assert_eq!(date(1_577_836_799), "2019-12-31 23:59");
        assert_eq!(date(1_577_836_800), "2020-01-01 00:00");
        assert_eq!(date(1_709_251_200), "2024-03-01 00:00");
    }

    #[test]
    fn modes() {
        assert_eq!(mode_text(mode::FILE | 0o644), "-rw-r--r--");
        assert_eq!(mode_text(mode::DIRECTORY | 0o1777), "drwxrwxrwt");
        assert_eq!(mode_text(mode::SYMLINK | 0o6700), "lrws--S---");
        assert_eq!(mode_text(mode::CHARACTER), "c---------");
    }

    #[test]
    fn executables() {
        let note = b"\x08\0\0\0\x04\0\0\0\x01\0\0\0Fermata\0\x01\0\0\0";
        let mut native = vec![0; 120];
        native[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        (native[16], native[18]) = (2, 62); // an executable for x86-64
        (native[32], native[54], native[56]) = (64, 56, 1); // one program header, behind this
        (native[64], native[112]) = (4, 4); // a note
        (native[72], native[96]) = (120, note.len() as u8); // where it is
        native.extend_from_slice(note);
        assert_eq!(executable(&native), Executable::Native);
        assert_eq!(executable(b"#!/bin/sh\n"), Executable::Linux);
        assert_eq!(executable(b""), Executable::Unknown);
        let with = |at: usize, value| {
            let mut other = native.clone();
            other[at] = value;
            executable(&other)
        };
        assert_eq!(with(132, b'f'), Executable::Linux, "another name");
        assert_eq!(with(64, 1), Executable::Linux, "another segment");
        assert_eq!(with(18, 183), Executable::Linux, "another processor");
        assert_eq!(executable(&native[..100]), Executable::Linux);
    }
}
