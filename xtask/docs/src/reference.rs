//! `./fermata reference`: the API reference in `docs/api/`, made from the tables of `abi`.
//!
//! One page per object, and one for each role or thing that calls belong to without being objects: the client's and
//! the server's end of a connection, idempotent messages, the clock, devices. The text about calls, parameters,
//! codes, exceptions, restarts and states comes from [`abi::SYSCALLS`] and [`abi::state::STATES`]; only the
//! introductions are here. The examples are files of `tests/guest/src/examples`, which run as tests.
//!
//! [`crate::explain`] prints the same about one call on a terminal, [`xtask_build::header`] writes it for a C
//! compiler.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use abi::message::{ExceptionMessage, FaultMessage, Segment, ShortAnswer, ShortExceptionMessage};
use abi::state::{Registers, Stage, Waiting, STATES};
use abi::table::Layout;
use abi::{Class, Code, Exception, RefKind, Syscall, SYSCALLS};

use crate::explain::{dead, meaning, parameter, restarts, vacant};
use crate::syscalls;
use xtask_build::error::Error;
use xtask_build::header;
use xtask_build::header::plain;
use xtask_build::project::{read_text, Project};

/// A page of the reference.
pub struct Page {
    /// Name of its file, of its example, and, in lower case, of the functions' object.
    pub name: &'static str,
    /// The object of the calls in the table.
    pub object: &'static str,
    /// Its title.
    title: &'static str,
    /// What the object is, in Markdown.
    introduction: &'static str,
}

/// All pages, in the order of the index.
pub const PAGES: &[Page] = &[
    Page {
        name: "mutex",
        object: "Mutex",
        title: "Mutex",
        introduction: "\
A lock that threads of any space can share: whoever has its handle locks it. It has no owner, so a
thread can unlock what another one has locked, and nothing is inherited.

An unlock gives the lock to the first waiter, by priority, and completes its call; the mutex is
never free in between. A waiter that is stopped waits no more: it is given nothing, and begins its
`mutex_lock` again when it goes on.",
    },
    Page {
        name: "cond",
        object: "Cond",
        title: "Condition variable",
        introduction: "\
Threads wait at it for something that a mutex protects. A condition has no state; the mutex is a
parameter of the wait.

Before the wait begins, the frame of the thread says `mutex_lock`: that is all that is left to do,
whatever wakes it. So a thread that is stopped or restored in the middle locks the mutex and
returns. This is one of the reasons for which a wait can return although nobody has signalled.",
    },
    Page {
        name: "mapping",
        object: "Mapping",
        title: "Mapping",
        introduction: "\
Imports a part of a region into a space: there the addresses `start` to `start + size` show what the
region has at `offset`. Mappings and regions nest to any depth, and a page is found by walking from
mapping to region, to the space that the region exports, to a mapping there. Translations in the
processor's page tables are a cache of these walks.

Mappings of one space do not overlap. An empty one is inert. A mapping has the protection that it
was given, capped at every access by that of its region.",
    },
    Page {
        name: "region",
        object: "Region",
        title: "Region",
        introduction: "\
Exports a range of a space: who has a reference to the region can map it elsewhere and search it for
pages and objects.

Its *keeper* is the port that hears when a page of the region is missing. The fault is an idempotent
message (below): the keeper makes the page appear, by a mapping of its own, and replies; the thread
that faulted tries again. A region without a keeper leaves that to the keeper of the space.",
    },
    Page {
        name: "port",
        object: "Port",
        title: "Port",
        introduction: "\
What a client calls and a server receives from. A client needs a reference to the port; the server
gets, with each message, the port's *alias*, a word of its own choice. A port belongs to the portset
at which it is received; without one its clients wait.",
    },
    Page {
        name: "portset",
        object: "Portset",
        title: "Portset",
        introduction: "\
Where server threads wait for the clients of all ports that belong to it. Clients and servers are
both queued by priority, in order of arrival within one. A portset has no state of its own: its
ports say that they belong to it, and the frames of waiting servers that they wait there.",
    },
    Page {
        name: "space",
        object: "Space",
        title: "Space",
        introduction: "\
An address space with the threads in it, a quota of kernel memory, and a clock. What is mapped in it
names it, and so does each of its threads.

Its *keeper* is the port that hears of the exceptions of its threads. An exception is delivered once
and reliably (below): the thread waits until the keeper replies with registers, and goes on with
them. In a *foreign* space the `syscall` instruction is an exception too, so that the keeper can
stand in for another operating system. A thread whose space has no keeper stops.

Objects that are created from a space are charged to its quota. A space opens an account under its
creator's; what it is given is taken from there, and comes back when it ends.",
    },
    Page {
        name: "thread",
        object: "Thread",
        title: "Thread",
        introduction: "\
A thread of control. A new one is stopped; it is started by its first `thread_set_state` and a
`thread_resume`.

Stops count, so that a debugger and a checkpointer can work on a thread at once. When `thread_stop`
returns, the thread is stopped whatever it was doing, and its state is complete: if it waited in a
call, its registers say what is left of that call, and nothing is completed in them until it is
resumed. A thread that is destroyed and made anew with its state goes on as if nothing had been.

An *interrupt* is a bit that stays until `thread_wait_interrupt` takes it. Each thread has a client
end and a server end, for one connection each.",
    },
    Page {
        name: "reference",
        object: "Reference",
        title: "Reference",
        introduction: "\
Names another object across spaces and carries the right to use it: to call a port, to map and
search a region, to attach to a space or a portset, to interrupt a thread, to be the peer of one end
of a thread. It does not carry the power over the object, which comes with its handle alone.

References travel in messages. When the target dies, the reference reads as null. A reference can
also *keep* the identity of an object whose body was destroyed: for all others the object is then
vacant, calls that use it wait, and a new object can be created with that identity.",
    },
    Page {
        name: "client",
        object: "Client",
        title: "IPC: the client's end",
        introduction: "\
A client connects to a port, sends, turns the direction round (*over*), receives, and so on until one
of the two ends the connection. A thread has one client end; it can keep a connection over many
exchanges. Messages are bytes, of any length, and references.

The name of a call is the list of its stages. A call that has finished its first stage *is* the call
without it: its number in `rax` changes, and so do the registers of its buffers as bytes move. A
restart therefore goes on where the last one was, and no byte is copied twice.",
    },
    Page {
        name: "server",
        object: "Server",
        title: "IPC: the server's end",
        introduction: "\
A server thread waits at a portset, receives from the client that comes, accepts the direction
(*ack*), answers, and waits for the next client. A wait ends the connection before: in order if the
server has the direction, so that the client's receive completes with `Ok`.

`server_ack_send_wait_receive` is the whole loop of a server in one call. A wait also takes what is
not a connection: the codes `Call`, `Fault` and `Exception` tell of a message that
is answered by [a reply](idempotent.md).",
    },
    Page {
        name: "idempotent",
        object: "Idempotent",
        title: "IPC: idempotent messages",
        introduction: "\
One request, one reply, of at most 68 KiB each, and no connection. Until the reply is there the
frame of the client says to send the request again: after a restart the server may get it twice, and
a reply to somebody gone is dropped. So neither side ever holds the other. All services of the system
are called in this form, and the kernel's memory faults use it.

The client's buffer must have room for the reply: what does not fit is cut off, and the code says so.
The server's must have room for the request, or the client gets `TooLarge`.",
    },
    Page {
        name: "clock",
        object: "Clock",
        title: "Clock",
        introduction: "\
Every space has a clock: nanoseconds of the machine plus the offset in the [space](space.md)'s state.
All timeouts are absolute times on it, so that a restart does not lengthen them, and a restore on
another machine sets the offset instead of the program.",
    },
    Page {
        name: "device",
        object: "Device",
        title: "Devices",
        introduction: "\
Calls for who holds a reference to the *device authority*. Boot gives it to the first program; there
is no other way to get it than to be passed it on. Everybody else gets `Denied`.

An interrupt of a device becomes the interrupt of a thread; the line stays masked until that thread
waits for the next one.",
    },
];

// The page about idempotent messages has this number.
const _: () = assert!(abi::MAX_IDEMPOTENT == 68 * 1024);

/// Writes the reference and the C header.
pub fn write(project: &Project) -> Result<u8, Error> {
    let directory = project.root.join("docs/api");
    create(&directory)?;
    for page in PAGES {
        let example = example(project, page)?;
        save(
            &directory.join(format!("{}.md", page.name)),
            &text(page, &example),
        )?;
    }
    save(&directory.join("README.md"), &index())?;
    let header = header::write(project)?;
    println!("{} pages in {}", PAGES.len() + 1, directory.display());
    println!("{}", header.display());
    Ok(0)
}

/// The source of the example of a page, as it is.
fn example(project: &Project, page: &Page) -> Result<String, Error> {
    let path = example_path(page);
    read_text(&project.root.join(&path))
}

fn example_path(page: &Page) -> PathBuf {
    Path::new("tests/guest/src/examples").join(format!("{}.rs", page.name))
}

fn create(directory: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(directory)
        .map_err(|error| Error::new(format!("cannot create {}: {error}", directory.display())))
}

fn save(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text)
        .map_err(|error| Error::new(format!("cannot write {}: {error}", path.display())))
}

/// What a call of this class promises.
pub fn class_text(class: Class) -> &'static str {
    match class {
        Class::Trivial => "always runs to completion",
        Class::Short => "usually runs to completion; a page fault rolls it back",
        Class::Long => "can sleep indefinitely",
        Class::MultiStage => "can sleep indefinitely, and be interrupted at points in the middle",
    }
}

// ---- pages

fn text(page: &Page, example: &str) -> String {
    let mut out = format!(
        "<!-- Generated by ./fermata reference. -->\n# {}\n\n{}\n\n",
        page.title, page.introduction
    );
    state(&mut out, page);
    more(&mut out, page);

    let calls: Vec<&Syscall> = SYSCALLS
        .iter()
        .filter(|call| call.object == page.object)
        .collect();
    out.push_str("## Calls\n\n| number | call | class |\n|---|---|---|\n");
    for call in &calls {
        let (number, name, class) = (call.number, call.name, call.class.name());
        let _ = writeln!(out, "| {number} | [`{name}`](#{name}) | {class} |");
    }
    out.push('\n');
    for call in calls {
        entry(&mut out, call);
    }

    out.push_str("## Exceptions\n\n");
    out.push_str(EXCEPTIONS);
    let _ = write!(
        out,
        "\n## Example\n\n`{}`; it runs as the test `example_{}`.\n\n```rust\n{}```\n",
        example_path(page).display(),
        page.name,
        example
    );
    out
}

/// The text about wrong use, on every page.
const EXCEPTIONS: &str = "\
Wrong use is not a result code. It stops the call, which has then changed nothing, and tells the
keeper of the caller's [space](space.md): `NoObject` and `WrongType` for a handle, `Misaligned` for a
handle, list or state, `Memory` for an address that no mapping, region or keeper provides. Each call
above lists those that it can raise. What a call manages may be somebody else's, who may take it away
at any time: that it is not there is the code `NoObject`. A page that is only absent is no exception: the call is rolled
back, the keeper of the region supplies the page, and the call restarts.
";

/// The state of the object of a page, if it is an object.
fn state(out: &mut String, page: &Page) {
    let Some(state) = STATES.iter().find(|state| state.object.name() == page.name) else {
        return;
    };
    out.push_str("## State\n\n");
    match state.fields {
        Some(fields) => layout(out, fields),
        None => out.push_str("No simple fields.\n\n"),
    }
    if state.references.is_empty() {
        out.push_str("It holds no references.\n\n");
        return;
    }
    out.push_str(
        "References, in the order of the parameters:\n\n| parameter | names |\n|---|---|\n",
    );
    for (name, what) in state.references {
        let _ = writeln!(out, "| `{name}` | {what} |");
    }
    out.push('\n');
}

/// The rest of a page: enumerations and messages that belong to its object.
fn more(out: &mut String, page: &Page) {
    match page.name {
        "mapping" => {
            out.push_str("## Rights\n\n| bit | right |\n|---|---|\n");
            for (bit, what) in header::RIGHTS {
                let _ = writeln!(out, "| {bit} | {what} |");
            }
            out.push('\n');
        }
        "region" => {
            out.push_str("## The message of a fault\n\n");
            layout(out, &FaultMessage::LAYOUT);
        }
        "space" => {
            out.push_str("## Flags\n\n| bit | name | meaning |\n|---|---|---|\n");
            let _ = writeln!(
                out,
                "| {} | `FOREIGN` | the `syscall` instruction goes to the keeper |\n",
                abi::state::space_flags::FOREIGN
            );
            out.push_str("## The message of an exception\n\n");
            layout(out, &ExceptionMessage::LAYOUT);
            layout(out, &ShortExceptionMessage::LAYOUT);
            layout(out, &ShortAnswer::LAYOUT);
            numbers(
                out,
                "Exceptions",
                Exception::ALL.iter().map(|e| (*e as u8, e.name(), e.doc())),
            );
        }
        "thread" => {
            layout(out, &Registers::LAYOUT);
            numbers(
                out,
                "Stages of an end",
                Stage::ALL.iter().map(|s| (*s as u8, s.name(), s.doc())),
            );
            numbers(
                out,
                "What a thread waits for",
                Waiting::ALL.iter().map(|w| (*w as u8, w.name(), w.doc())),
            );
        }
        "reference" => numbers(
            out,
            "What a reference names",
            RefKind::ALL.iter().map(|k| (*k as u8, k.name(), k.doc())),
        ),
        "client" | "server" | "idempotent" => {
            out.push_str("## Registers\n\n");
            out.push_str(REGISTERS);
            out.push('\n');
            layout(out, &Segment::LAYOUT);
        }
        _ => {}
    }
}

/// The register map of the IPC calls; the code of it is [`Syscall::registers`].
const REGISTERS: &str = "\
| register | memory messages | register messages (`_short`) |
|---|---|---|
| `rax` | the call, in the low byte | and in bits 8 to 15 the number of bytes |
| `rdi` | reference to the port, or portset; returns the alias | the same |
| `rsi` `rdx` | send: current segment, address and bytes left | words 1 and 2 |
| `r10` `r8` | send: list of further segments, entries left | words 3 and 4 |
| `r9` | send: list of references | word 5 |
| `r12` `r13` | receive: current segment, address and bytes left | words 6 and 7 |
| `r14` | receive: list of further segments | word 8 |
| `r15` | receive: entries left | send: list of references |
| `rbx` | receive: list of references | the same |
| `rbp` | deadline of the calls that end in `_until` | |

A list of references is one word: the address of the first of up to 15 consecutive reference objects,
with their number in the low four bits.
";

/// A structure as a table.
fn layout(out: &mut String, layout: &Layout) {
    let _ = writeln!(
        out,
        "`{}`, {} bytes, aligned to {}. {}\n\n| offset | field | type | meaning |\n|---|---|---|---|",
        layout.name,
        layout.size,
        layout.align,
        plain(layout.doc)
    );
    for field in layout.fields {
        let _ = writeln!(
            out,
            "| {} | `{}` | `{}` | {} |",
            field.offset,
            field.name,
            field.ty,
            plain(field.doc)
        );
    }
    out.push('\n');
}

/// An enumeration as a table.
fn numbers<'a>(out: &mut String, title: &str, rows: impl Iterator<Item = (u8, &'a str, &'a str)>) {
    let _ = writeln!(
        out,
        "## {title}\n\n| number | name | meaning |\n|---|---|---|"
    );
    for (number, name, doc) in rows {
        let _ = writeln!(out, "| {number} | `{name}` | {} |", plain(doc));
    }
    out.push('\n');
}

/// A call.
fn entry(out: &mut String, call: &'static Syscall) {
    let _ = writeln!(
        out,
        "### {}\n\n{}, number {}, {}: {}.\n\n{}\n",
        call.name,
        call.id(),
        call.number,
        call.class.name(),
        class_text(call.class),
        plain(call.doc)
    );
    if !call.params.is_empty() {
        out.push_str("| parameter | registers | what |\n|---|---|---|\n");
        for (index, (name, kind)) in call.params.iter().enumerate() {
            let _ = writeln!(
                out,
                "| `{name}` | {} | {} |",
                code_words(call.registers(index)),
                parameter(name, *kind)
            );
        }
        out.push('\n');
    }
    for (what, parameter) in call.results() {
        let register = abi::registers::name(*parameter);
        let _ = writeln!(
            out,
            "Returns the {} in `{register}`.\n",
            what.replace('_', " ")
        );
    }
    out.push_str("| result | meaning |\n|---|---|\n");
    for code in call.codes {
        let _ = writeln!(
            out,
            "| `{}` {} | {} |",
            code.name(),
            *code as u8,
            meaning(call, *code)
        );
    }
    out.push('\n');
    let names: Vec<_> = call
        .exceptions()
        .iter()
        .map(|exception| exception.name())
        .collect();
    if !names.is_empty() {
        let _ = writeln!(out, "Exceptions: {}.\n", code_words(&names));
    }
    for (state, fates) in [("vacant", vacant(call)), ("dead", dead(call))] {
        if !fates.is_empty() {
            let _ = writeln!(
                out,
                "With an identity that is {state} it {}.\n",
                fates.join("; it ")
            );
        }
    }
    let _ = writeln!(out, "{}\n", restarts(call));
}

/// Words as code, one after the other.
fn code_words(words: &[&str]) -> String {
    words
        .iter()
        .map(|word| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(" ")
}

// ---- index

fn index() -> String {
    let mut out = String::from(INDEX);
    out.push_str("\n## Pages\n\n| page | calls |\n|---|---|\n");
    for page in PAGES {
        let count = SYSCALLS
            .iter()
            .filter(|call| call.object == page.object)
            .count();
        let _ = writeln!(out, "| [{}]({}.md) | {count} |", page.title, page.name);
    }
    let _ = writeln!(
        out,
        "\n## The calls by class\n\nThe breakdown has the form of Table 1 in Ford et al., *Interface \
         and Execution Models in the Fluke Kernel* (OSDI 1999).\n\n\
         | type | examples | count | percent |\n|---|---|---:|---:|"
    );
    for row in syscalls::breakdown(SYSCALLS) {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {:.0} |",
            row.class.name(),
            row.examples,
            row.count,
            row.percent
        );
    }
    let _ = writeln!(out, "| total | | {} | 100 |\n", SYSCALLS.len());
    numbers(
        &mut out,
        "Result codes",
        Code::ALL
            .iter()
            .map(|code| (*code as u8, code.name(), code.doc())),
    );
    out.push_str("## All calls\n\n| number | row | call | class |\n|---|---|---|---|\n");
    for call in SYSCALLS {
        let page = PAGES.iter().find(|page| page.object == call.object);
        let file = page.map_or("README", |page| page.name);
        let (number, name, class) = (call.number, call.name, call.class.name());
        let id = call.id();
        let _ = writeln!(
            out,
            "| {number} | {id} | [`{name}`]({file}.md#{name}) | {class} |"
        );
    }
    out
}

/// The beginning of the index.
const INDEX: &str = "\
<!-- Generated by ./fermata reference. -->
# The kernel's interface

The kernel has nine types of objects and the calls listed here. `./fermata explain CALL` prints one
of them, `./fermata syscalls` their list. For C the same tables make `target/include/fermata.h`.

**A call** is the `syscall` instruction with the number of the entrypoint in the low byte of `rax`.
Parameters travel in registers, `rdi rsi rdx r10 r8 r9` for all calls but IPC. The result code comes
back in the low byte of `rax`; `rcx` and `r11` are lost; all other registers stay.

**Calls are atomic.** A thread is never in the middle of one, as far as anybody can see. While it
waits, its registers say exactly what it is about to do: `rip` at the `syscall` instruction, `rax` the
entrypoint that is left, the others what is left of its parameters. A call that was stopped, faulted
or waited begins again from these registers: that is what *restart* means below. No call returns
because it was interrupted.

**Objects** live at an address in memory that the program owns; the address is the *handle*. Creating
needs the right `OBJECTS` on the mapping. Each object takes 16 bytes there, aligned to 16. All have
the six calls `create`, `destroy`, `move`, `reference`, `get_state` and `set_state`.

**Identity and body.** `destroy` with a reference in `identity` takes the body and lets the reference
keep the identity, which is then *vacant*: calls that use it wait, those that manage it say `Vacant` or end it, interrupts accumulate. `create` with
that reference gives it a new body, which opens with its first `set_state`. When the reference goes,
the identity is *dead*: references to it read as null, peers are disconnected.
";

#[cfg(test)]
mod tests {
    use super::*;
    use xtask_build::project::Project;

    #[test]
    fn every_call_is_on_exactly_one_page() {
        for call in SYSCALLS {
            let pages = PAGES
                .iter()
                .filter(|page| page.object == call.object)
                .count();
            assert_eq!(pages, 1, "{}", call.name);
        }
        for page in PAGES {
            assert!(
                SYSCALLS.iter().any(|call| call.object == page.object),
                "{}",
                page.name
            );
        }
        for state in STATES {
            assert!(PAGES.iter().any(|page| page.name == state.object.name()));
        }
    }

    #[test]
    fn pages_say_all_that_the_table_says() {
        let project = Project::find().expect("the checkout");
        for page in PAGES {
            let example = example(&project, page).expect("an example");
            let text = text(page, &example);
            assert!(text.contains(&example), "{} has no example", page.name);
            for call in SYSCALLS.iter().filter(|call| call.object == page.object) {
                let (_, rest) = text
                    .split_once(&format!("\n### {}\n", call.name))
                    .expect(call.name);
                let end = rest.find("\n##").unwrap_or(rest.len());
                let entry = &rest[..end];
                assert!(
                    entry.contains(&plain(call.doc)),
                    "{} has no text",
                    call.name
                );
                for (name, _) in call.params {
                    assert!(
                        entry.contains(&format!("\n| `{name}` |")),
                        "{}: {name}",
                        call.name
                    );
                }
                for code in call.codes {
                    assert!(entry.contains(code.name()), "{}: {code:?}", call.name);
                }
                if let Some(rest) = call.call.rest() {
                    assert!(entry.contains(rest.name()), "{}: {rest:?}", call.name);
                }
            }
            // Rustdoc links have no meaning here.
            assert!(
                !text.contains("crate::"),
                "{} has a link into the source",
                page.name
            );
        }
    }

    #[test]
    fn examples_are_tests() {
        let project = Project::find().expect("the checkout");
        let list = project.root.join("tests/guest/src/examples/mod.rs");
        let list = std::fs::read_to_string(list).expect("the list of examples");
        for page in PAGES {
            assert!(
                list.contains(&format!("mod {};", page.name)),
                "{}",
                page.name
            );
        }
    }
}
