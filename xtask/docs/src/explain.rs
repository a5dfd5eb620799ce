//! `./fermata explain CALL`: a row of the table of entrypoints, in words. CALL is the name of the call, its number,
//! or the stable name of the row (`PORT0003`), which is also that of its conformance test.
//!
//! The pages of [`crate::reference`] describe calls in the same words.

use std::fmt::Write as _;
use std::io::Write as _;

use abi::syscalls::{Fate, Param, Party};
use abi::{Call, Class, Code, Syscall, Type, SYSCALLS};

use crate::reference::class_text;
use xtask_build::error::{Error, USAGE};
use xtask_build::header::plain;

/// Prints everything about the call of this name, number or row.
pub fn print(name: &str) -> Result<u8, Error> {
    let call = find(name).ok_or_else(|| unknown(name))?;
    // A reader such as `head` may close its end early, which is no failure.
    let _ = std::io::stdout().write_all(text(call).as_bytes());
    Ok(0)
}

fn find(name: &str) -> Option<&'static Syscall> {
    let number: Option<u8> = name.parse().ok();
    SYSCALLS.iter().find(|call| {
        let id = call.id().to_string();
        call.name == name || Some(call.number) == number || id.eq_ignore_ascii_case(name)
    })
}

fn unknown(name: &str) -> Error {
    let near = near(name);
    let hint = if near.is_empty() {
        "; ./fermata syscalls lists them all".to_string()
    } else {
        format!("; perhaps {}", near.join(" or "))
    };
    Error {
        message: format!("there is no call '{name}'{hint}"),
        status: USAGE,
    }
}

/// The names that `name` may mean, best first; at most three.
fn near(name: &str) -> Vec<&'static str> {
    let name = name.to_ascii_lowercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let mut candidates: Vec<(usize, &str)> = SYSCALLS
        .iter()
        .filter_map(|call| {
            let typing = distance(name.as_bytes(), call.name.as_bytes());
            // All words of the name, in any order: `lock_mutex`, `state thread`.
            let parts: Vec<&str> = call.name.split('_').collect();
            let spoken = words
                .iter()
                .all(|word| !word.is_empty() && parts.contains(word));
            let penalty = if spoken {
                parts.len().abs_diff(words.len())
            } else {
                typing
            };
            (spoken || typing <= 1 + name.len() / 4).then_some((penalty, call.name))
        })
        .collect();
    candidates.sort_by_key(|(penalty, _)| *penalty);
    candidates
        .into_iter()
        .take(3)
        .map(|(_, name)| name)
        .collect()
}

/// The number of characters to insert, delete or replace (Levenshtein) to make `b` of `a`.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn text(call: &'static Syscall) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}\n\n{}\n\nrow         {}\nnumber      {}\nobject      {}\nclass       {}: {}",
        call.name,
        wrapped(&plain(call.doc), 4),
        call.id(),
        call.number,
        call.object,
        call.class.name(),
        class_text(call.class)
    );
    let _ = writeln!(out, "registers   rax = {}", call.number);
    let width = call
        .params
        .iter()
        .map(|(name, _)| name.len())
        .max()
        .unwrap_or(0);
    for (index, (name, kind)) in call.params.iter().enumerate() {
        let registers = call.registers(index).join(" ");
        let what = parameter(name, *kind).replace('`', "");
        let indent = 14 + width;
        let what = wrapped(&format!("{registers}: {what}"), indent);
        let _ = writeln!(out, "            {name:width$}  {}", what.trim_start());
    }
    for (what, parameter) in call.results() {
        let register = abi::registers::name(*parameter);
        let _ = writeln!(out, "returns     {} in {register}", what.replace('_', " "));
    }
    let mut label = "results";
    for code in call.codes {
        let name = format!("{} = {}", code.name(), *code as u8);
        let what = wrapped(&meaning(call, *code).replace('`', ""), 30);
        let _ = writeln!(out, "{label:11} {name:17} {}", what.trim_start());
        label = "";
    }
    if !call.exceptions().is_empty() {
        let names: Vec<_> = call
            .exceptions()
            .iter()
            .map(|exception| exception.name())
            .collect();
        let _ = writeln!(out, "exceptions  {}", names.join(" "));
    }
    for (label, fates) in [("vacant", vacant(call)), ("dead", dead(call))] {
        let mut label = label;
        for fate in fates {
            let fate = wrapped(&fate.replace('`', ""), 14);
            let _ = writeln!(out, "{label:11} {}", fate.trim_start());
            label = "";
        }
    }
    let restarts = restarts(call).replace('`', "");
    let _ = writeln!(out, "restarts    {}", wrapped(&restarts, 12).trim_start());
    out
}

/// `text` in lines of at most 98 characters, each behind `indent` spaces.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = vec![" ".repeat(indent)];
    for word in text.split_whitespace() {
        let line = lines.len() - 1;
        if lines[line].len() > indent && lines[line].len() + 1 + word.len() > 98 {
            lines.push(format!("{}{word}", " ".repeat(indent)));
        } else {
            if lines[line].len() > indent {
                lines[line].push(' ');
            }
            lines[line].push_str(word);
        }
    }
    lines.join("\n")
}

/// What a parameter is, in words.
pub fn parameter(name: &str, kind: Param) -> String {
    match kind {
        Param::Object(Type::Reference) => match name {
            "reference" | "other" => "handle of a reference".into(),
            "authority" => "handle of a reference to the device authority".into(),
            _ => format!("handle of a reference to a {name}"),
        },
        Param::Object(object) => format!("handle of a {}", object.name()),
        Param::OptReference if name == "identity" => {
            "handle of a reference that keeps an identity, or 0".into()
        }
        Param::OptReference => format!("handle of a reference ({}), or 0", name.replace('_', " ")),
        Param::Fresh => "address at which to put an object, aligned to 16".into(),
        Param::State => "address of the state, aligned to 8".into(),
        Param::Unused => "ignored".into(),
        Param::OptFpu => "address of an FPU's state, aligned to 8, or 0".into(),
        Param::Registers => "address of registers to go on with, aligned to 8".into(),
        Param::Word => "a number".into(),
        Param::Rights => "rights: read 1, write 2, execute 4, objects 8".into(),
        Param::Deadline => "a time on the space's clock, in nanoseconds".into(),
        Param::SendBuffer => {
            "address, bytes left, list of further segments, entries left, references to send".into()
        }
        Param::ReceiveBuffer => {
            "address, bytes left, list of further segments, entries left, places for references"
                .into()
        }
        Param::ShortBuffer => {
            "up to 64 bytes, first byte lowest, and references; the number of bytes in bits 8 to 15 \
             of `rax`"
                .into()
        }
    }
}

/// What a code means as the result of this call.
pub fn meaning(call: &Syscall, code: Code) -> String {
    let receives = abi::ipc::plan(call.call).has(abi::ipc::Plan::RECEIVE);
    match code {
        // The table's text for `Ok` is about receiving, and only receives use it.
        Code::Ok if !receives => "Done.".into(),
        _ => plain(code.doc()),
    }
}

/// What the call does when it comes upon identities without a body, a sentence for each case.
pub fn vacant(call: &'static Syscall) -> Vec<String> {
    fates(call, |party| call.vacant(party))
}

/// What the call does when it comes upon identities that have ended, a sentence for each case.
pub fn dead(call: &'static Syscall) -> Vec<String> {
    fates(call, |party| call.dead(party))
}

fn fates(call: &'static Syscall, fate: impl Fn(Party) -> Fate) -> Vec<String> {
    let mut fates: Vec<(Fate, Vec<String>)> = Vec::new();
    for party in call.parties() {
        let name = |index: usize| call.params[index].0.replace('_', " ");
        let words = match party {
            Party::Handle(index) => match call.params[index].1 {
                Param::Object(Type::Reference) | Param::OptReference => {
                    format!("the reference `{}`", name(index))
                }
                _ => format!("the {}", name(index)),
            },
            Party::Named(index) => format!("what `{}` names", name(index)),
            Party::Peer => "the peer".into(),
        };
        let fate = fate(party);
        match fates.iter_mut().find(|(other, _)| *other == fate) {
            Some((_, parties)) => parties.push(words),
            None => fates.push((fate, vec![words])),
        }
    }
    let sentence = |(fate, parties): (Fate, Vec<String>)| {
        let fate = match fate {
            Fate::Waits => "waits until there is a body again".into(),
            Fate::Raises(exception) => format!("raises `{}`", exception.name()),
            Fate::Returns(Code::Ok) => "goes on".into(),
            Fate::Returns(code) => format!("returns `{}`", code.name()),
        };
        format!("{fate}: {}", parties.join(", "))
    };
    fates.into_iter().map(sentence).collect()
}

/// What a restart finds in the frame, in words.
pub fn restarts(call: &Syscall) -> String {
    let mut chain = vec![call.call];
    while let Some(rest) = chain.last().and_then(|last| last.rest()) {
        chain.push(rest);
    }
    let rest: Vec<String> = chain[1..]
        .iter()
        .map(|call| format!("`{}`", call.name()))
        .collect();
    let moves = moving(call);
    let progress = if moves.is_empty() {
        String::new()
    } else {
        format!(" The frame keeps its progress in {}.", words(&moves))
    };
    match (call.class, rest.is_empty()) {
        (Class::Trivial, _) => "Never: it does not wait and touches no memory.".into(),
        (_, true) => format!("Restarts as itself.{progress}"),
        (_, false) => format!(
            "Restarts as itself, then, as its stages are done, as {}.{progress}",
            rest.join(", ")
        ),
    }
}

/// The registers that change as the call makes progress in its first stages.
fn moving(call: &Syscall) -> Vec<&'static str> {
    if call.call == Call::RegionSearch {
        return vec!["rsi"];
    }
    // An idempotent message is moved whole: before that, no register has changed.
    let idempotent = matches!(
        call.call,
        Call::Call | Call::CallShort | Call::Reply | Call::ReplyShort
    );
    if idempotent || call.class != Class::MultiStage {
        return Vec::new();
    }
    let mut registers = Vec::new();
    for (index, (_, kind)) in call.params.iter().enumerate() {
        if matches!(
            kind,
            Param::SendBuffer | Param::ReceiveBuffer | Param::ShortBuffer
        ) {
            for register in call.registers(index) {
                if !registers.contains(register) {
                    registers.push(*register);
                }
            }
        }
    }
    if call
        .params
        .iter()
        .any(|(_, kind)| *kind == Param::ShortBuffer)
    {
        registers.insert(0, "rax");
    }
    registers
}

fn words(registers: &[&str]) -> String {
    registers
        .iter()
        .map(|register| format!("`{register}`"))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_can_be_explained() {
        for call in SYSCALLS {
            let text = text(call);
            assert!(text.starts_with(call.name), "{text}");
            for (index, _) in call.params.iter().enumerate() {
                for register in call.registers(index) {
                    assert!(text.contains(register), "{}: {register}", call.name);
                }
            }
            for code in call.codes {
                assert!(
                    text.contains(&format!("{} = {}", code.name(), *code as u8)),
                    "{text}"
                );
            }
            assert!(!text.contains('`') || call.doc.contains('`'), "{text}");
            assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        }
    }

    #[test]
    fn stages_are_restart_points() {
        let row = Call::ClientConnectSendOverReceive.row();
        assert_eq!(
            restarts(row),
            "Restarts as itself, then, as its stages are done, as `client_send_over_receive`, \
             `client_over_receive`, `client_receive`. The frame keeps its progress in `rsi` `rdx` \
             `r10` `r8` `r9` `r12` `r13` `r14` `r15` `rbx`."
        );
        assert!(restarts(Call::CondWait.row()).contains("`mutex_lock`"));
        assert!(restarts(Call::ClockGet.row()).starts_with("Never"));
    }

    #[test]
    fn names_that_are_nearly_right_are_understood() {
        assert_eq!(near("mutex_lok")[0], "mutex_lock");
        assert_eq!(near("Mutex_Lock")[0], "mutex_lock");
        assert_eq!(near("lock_mutex")[0], "mutex_lock");
        assert_eq!(near("region search")[0], "region_search");
        assert!(near("open").is_empty(), "{:?}", near("open"));
        assert!(unknown("open").message.contains("./fermata syscalls"));
        assert_eq!(find("55").map(|call| call.name), Some("mutex_lock"));
        assert_eq!(find("PORT0003").map(|call| call.name), Some("port_move"));
        assert_eq!(find("port0003").map(|call| call.name), Some("port_move"));
    }

    #[test]
    fn links_become_words() {
        assert_eq!(
            plain(" Of [`crate::access`],\n or [`Stage`]. "),
            "Of `access`, or `Stage`."
        );
    }
}
