//! `target/include/fermata.h`: the kernel's interface for C, made from the tables of `abi`.
//!
//! There is one inline function per call. Calls that move messages take a structure of registers, by the register map
//! in [`abi::syscalls`]; all others take their parameters. [`crate::c`] compiles the C programs of the tests with the
//! header.

use std::fmt::Write as _;
use std::path::PathBuf;

use abi::message::{ExceptionMessage, FaultMessage, Segment, ShortAnswer, ShortExceptionMessage};
use abi::state::{Registers, Stage, Waiting, STATES};
use abi::syscalls::Param;
use abi::table::Layout;
use abi::{access, Code, Exception, RefKind, Syscall, Type, SYSCALLS, TYPES};

use crate::error::Error;
use crate::project::Project;

/// The rights, by bit.
pub const RIGHTS: [(u64, &str); 4] = [
    (access::READ, "read"),
    (access::WRITE, "write"),
    (access::EXECUTE, "execute"),
    (access::OBJECTS, "objects"),
];

/// Writes the headers. Returns the path of `fermata.h`; `services.h` is in the same directory.
pub fn write(project: &Project) -> Result<PathBuf, Error> {
    write_one(project, "services.h", &services())?;
    write_one(project, "fermata.h", &text())
}

fn write_one(project: &Project, name: &str, text: &str) -> Result<PathBuf, Error> {
    let path = project.target.join("include").join(name);
    let failed = |error| Error::new(format!("cannot write {}: {error}", path.display()));
    std::fs::create_dir_all(project.target.join("include")).map_err(failed)?;
    // An unchanged header is not written, so that C programs are not compiled again.
    if std::fs::read_to_string(&path).ok().as_deref() != Some(text) {
        std::fs::write(&path, text).map_err(failed)?;
    }
    Ok(path)
}

/// `services.h`: the interfaces of the services, as `#[interface]` declares them.
fn services() -> String {
    format!("{SERVICES}{}\n#endif\n", services::C.concat())
}

/// The part of the header with which C programs make requests to services, as proxies do in Rust.
const SERVICES: &str = r#"/* The interfaces of the services, for C. Made from the traits in user/services.
 *
 * A stub returns 0, or the number of an error (in the order of `Error` in user/proto, from 1 on). References that go
 * and come are objects one behind the other, named by the handle of the first; those that come must exist.
 */
#ifndef FERMATA_SERVICES_H
#define FERMATA_SERVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fermata.h"

/* The reply makes no sense, or there is none. */
#define FERMATA_BROKEN 15

/* A session with a service, or a port of a shared interface. */
struct fermata_session {
    uint64_t port; /* handle of the reference to it */
    uint64_t number; /* of the next request */
    uint64_t step; /* from one request to the next */
};

/* A port of the shared interface with this id. */
static inline struct fermata_session fermata_shared(uint64_t port, uint64_t id)
{
    return (struct fermata_session){ .port = port, .number = id };
}

/* A session that the program did not open but was given with its port, as its memory account at START_MEMORY. Who else has
 * the port must not use it. */
static inline struct fermata_session fermata_session_at(uint64_t port)
{
    return (struct fermata_session){ .port = port, .number = 1, .step = 1 };
}

/* What goes and what comes. */
struct fermata_request {
    uint64_t method;
    const uint64_t *arguments;
    unsigned count;
    int has_bytes;
    const void *bytes;
    size_t length;
    uint64_t references;
    unsigned reference_count;
    uint64_t *results;
    unsigned result_count;
    void *into;
    size_t room;
    size_t *came;
    uint64_t into_references;
    unsigned reference_room;
    unsigned *references_came;
};

/* Makes a request: 0, or the number of an error. */
static inline uint64_t fermata_ask(struct fermata_session *session, const struct fermata_request *request)
{
    uint64_t words[8] = { request->method | session->number << 16 };
    uint64_t reply[8];
    for (unsigned i = 0; i < request->count; i++)
        words[1 + i] = request->arguments[i];
    /* All words go if bytes follow them. */
    unsigned count = request->has_bytes ? 8 : 1 + request->count;
    struct fermata_segment from = { .address = (uint64_t)request->bytes, .length = request->length };
    struct fermata_segment into = { .address = (uint64_t)request->into, .length = request->room };
    struct fermata_ipc registers = {
        .rdi = session->port,
        .rsi = (uint64_t)words,
        .rdx = count * 8,
        .r10 = (uint64_t)&from,
        .r8 = request->length > 0,
        .r9 = request->reference_count == 0 ? 0 : request->references | request->reference_count,
        .rbx = request->reference_room == 0 ? 0 : request->into_references | request->reference_room,
        .r12 = (uint64_t)reply,
        .r13 = (1 + request->result_count) * 8,
        .r14 = (uint64_t)&into,
        .r15 = request->room > 0,
    };
    uint64_t code = fermata_call(&registers);
    /* A request whose reply had no room is done, too. */
    if (code == FERMATA_OK || code == FERMATA_TRUNCATED)
        session->number += session->step;
    if (code != FERMATA_OK)
        return FERMATA_BROKEN;
    if (reply[0] != 0)
        return reply[0];
    size_t came = 0;
    /* While the bytes have not been begun, what is left is left of the words. */
    if (request->room > 0 && registers.r15 == 0)
        came = request->room - registers.r13;
    else if (registers.r13 != 0)
        return FERMATA_BROKEN;
    if (request->came != NULL)
        *request->came = came;
    unsigned references = request->reference_room - (registers.rbx & FERMATA_MAX_LIST_REFS);
    if (request->references_came != NULL)
        *request->references_came = references;
    else if (references != request->reference_room)
        return FERMATA_BROKEN;
    for (unsigned i = 0; i < request->result_count; i++)
        request->results[i] = reply[1 + i];
    return 0;
}

/* Opens a session at a door, for the interface with this id. `who` is the program's own port at init, for services of the boot manifest that
 * know their clients, or 0. `port` is an existing reference, which is the session's from now on. */
static inline uint64_t fermata_open(uint64_t door, uint64_t id, uint64_t who, uint64_t port,
    struct fermata_session *session)
{
    struct fermata_session at = { .port = door };
    uint64_t error = fermata_ask(&at, &(struct fermata_request){ .arguments = &id, .count = 1,
        .references = who, .reference_count = who != 0, .into_references = port, .reference_room = 1 });
    *session = (struct fermata_session){ .port = port, .number = 1, .step = 1 };
    return error;
}
"#;

/// The whole header.
pub fn text() -> String {
    let mut out = String::from(BEGIN);
    for (name, value) in [
        ("PAGE_SIZE", abi::PAGE_SIZE),
        ("USER_END", abi::USER_END),
        ("OBJECT_SIZE", abi::OBJECT_SIZE),
        ("OBJECT_ALIGN", abi::OBJECT_ALIGN),
        ("MAX_LIST_REFS", abi::MAX_LIST_REFS),
        ("MAX_IDEMPOTENT", abi::MAX_IDEMPOTENT),
        ("MAX_SHORT", abi::MAX_SHORT),
        ("PRIORITIES", u64::from(abi::PRIORITIES)),
        ("SPACE_FOREIGN", abi::state::space_flags::FOREIGN),
    ] {
        let _ = writeln!(out, "#define FERMATA_{name} UINT64_C({value:#x})");
    }
    out.push_str("\n/* Rights of mappings, regions and faults. */\n");
    for (bit, name) in RIGHTS {
        let _ = writeln!(
            out,
            "#define FERMATA_{} UINT64_C({bit})",
            name.to_uppercase()
        );
    }

    constants(
        &mut out,
        "The entrypoints: the low byte of rax.",
        "entrypoint",
        "SYS_",
        SYSCALLS
            .iter()
            .map(|call| (call.name.to_string(), call.number, "")),
    );
    constants(
        &mut out,
        "Result codes.",
        "code",
        "",
        Code::ALL
            .iter()
            .map(|c| (snake(c.name()), *c as u8, c.doc())),
    );
    constants(
        &mut out,
        "Why a thread cannot go on by itself.",
        "exception",
        "EXCEPTION_",
        Exception::ALL
            .iter()
            .map(|e| (snake(e.name()), *e as u8, e.doc())),
    );
    constants(
        &mut out,
        "Types of objects.",
        "type",
        "TYPE_",
        TYPES
            .iter()
            .map(|t: &Type| (t.name().to_string(), *t as u8, "")),
    );
    constants(
        &mut out,
        "What a reference names.",
        "kind",
        "KIND_",
        RefKind::ALL
            .iter()
            .map(|k| (snake(k.name()), *k as u8, k.doc())),
    );
    constants(
        &mut out,
        "The stage of one end of a connection.",
        "stage",
        "STAGE_",
        Stage::ALL
            .iter()
            .map(|s| (snake(s.name()), *s as u8, s.doc())),
    );
    constants(
        &mut out,
        "What a thread waits for.",
        "waiting",
        "WAITING_",
        Waiting::ALL
            .iter()
            .map(|w| (snake(w.name()), *w as u8, w.doc())),
    );

    out.push('\n');
    structure(&mut out, &Registers::LAYOUT);
    for state in &STATES {
        if let Some(fields) = state.fields {
            structure(&mut out, fields);
        }
    }
    for layout in [
        &FaultMessage::LAYOUT,
        &ExceptionMessage::LAYOUT,
        &ShortExceptionMessage::LAYOUT,
        &ShortAnswer::LAYOUT,
        &Segment::LAYOUT,
    ] {
        structure(&mut out, layout);
    }

    out.push_str(CALLING);
    for call in SYSCALLS {
        function(&mut out, call);
    }
    out.push_str("#endif\n");
    out
}

fn constants<'a>(
    out: &mut String,
    title: &str,
    name: &str,
    prefix: &str,
    items: impl Iterator<Item = (String, u8, &'a str)>,
) {
    let _ = writeln!(out, "\n/* {title} */\nenum fermata_{name} {{");
    for (item, number, doc) in items {
        let _ = write!(
            out,
            "    FERMATA_{prefix}{} = {number},",
            item.to_uppercase()
        );
        let doc = comment(doc);
        let _ = writeln!(out, "{}{doc}", if doc.is_empty() { "" } else { " " });
    }
    out.push_str("};\n");
}

/// Documentation as a comment.
fn comment(doc: &str) -> String {
    let doc = plain(doc).replace('`', "");
    if doc.is_empty() {
        doc
    } else {
        format!("/* {doc} */")
    }
}

/// `TimedOut` as `timed_out`, `X87` as `x87`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for (index, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && index > 0 {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// `struct fermata_mutex_state` for `MutexState`.
fn struct_name(name: &str) -> String {
    format!("struct fermata_{}", snake(name))
}

fn structure(out: &mut String, layout: &Layout) {
    let name = struct_name(layout.name);
    let _ = writeln!(out, "{}\n{name} {{", comment(layout.doc));
    for (index, field) in layout.fields.iter().enumerate() {
        // Rust and C align the structure alike if its first field has the structure's alignment.
        let align = if index == 0 && layout.align > 8 {
            format!("_Alignas({}) ", layout.align)
        } else {
            String::new()
        };
        let declared = match field.ty {
            "u64" => format!("uint64_t {}", field.name),
            ty if ty.starts_with("[u8;") => format!("uint8_t {}[{}]", field.name, field.size),
            ty => format!("{} {}", struct_name(ty), field.name),
        };
        let doc = comment(field.doc);
        let _ = writeln!(
            out,
            "    {align}{declared};{}{doc}",
            if doc.is_empty() { "" } else { " " }
        );
    }
    let _ = writeln!(
        out,
        "}};\n_Static_assert(sizeof({name}) == {}, \"the size of {name}\");",
        layout.size
    );
    for field in layout.fields {
        let _ = writeln!(
            out,
            "_Static_assert(offsetof({name}, {0}) == {1}, \"the place of {0}\");",
            field.name, field.offset
        );
    }
    out.push('\n');
}

/// Whether the call moves a message.
fn moves(call: &Syscall) -> bool {
    call.params.iter().any(|(_, kind)| {
        matches!(
            kind,
            Param::SendBuffer | Param::ReceiveBuffer | Param::ShortBuffer
        )
    })
}

fn function(out: &mut String, call: &Syscall) {
    let entry = format!("FERMATA_SYS_{}", call.name.to_uppercase());
    let _ = writeln!(out, "{}", comment(call.doc));
    if moves(call) {
        let _ = writeln!(
            out,
            "static inline enum fermata_code fermata_{}(struct fermata_ipc *registers)\n\
             {{\n    return fermata_move({entry}, registers);\n}}\n",
            call.name
        );
        return;
    }
    let mut parameters = Vec::new();
    let mut arguments = Vec::new();
    for (name, kind) in call.params {
        match kind {
            Param::Unused => arguments.push("0".to_string()),
            Param::State => {
                let (object, constant) = match call.name.rsplit_once("_set_state") {
                    Some((object, _)) => (object, "const "),
                    None => (call.name.trim_end_matches("_get_state"), ""),
                };
                parameters.push(format!("{constant}struct fermata_{object}_state *{name}"));
                arguments.push(format!("(uint64_t)(uintptr_t){name}"));
            }
            Param::Registers => {
                parameters.push(format!("const struct fermata_registers *{name}"));
                arguments.push(format!("(uint64_t)(uintptr_t){name}"));
            }
            Param::OptFpu => {
                parameters.push(format!("const uint64_t *{name}"));
                arguments.push(format!("(uint64_t)(uintptr_t){name}"));
            }
            _ => {
                parameters.push(format!("uint64_t {name}"));
                arguments.push((*name).to_string());
            }
        }
    }
    for (what, _) in call.results() {
        parameters.push(format!("uint64_t *{what}"));
    }
    arguments.resize(6, "0".to_string());
    let parameters = if parameters.is_empty() {
        "void".to_string()
    } else {
        parameters.join(", ")
    };
    let _ = writeln!(
        out,
        "static inline enum fermata_code fermata_{}({parameters})\n{{\n    struct fermata_returned \
         fermata_r = fermata_syscall({entry}, {});",
        call.name,
        arguments.join(", ")
    );
    for (what, parameter) in call.results() {
        let register = abi::registers::name(*parameter);
        let _ = writeln!(out, "    *{what} = fermata_r.{register};");
    }
    out.push_str("    return fermata_r.code;\n}\n\n");
}

const BEGIN: &str = "\
/* The interface of the Fermata kernel.
 *
 * Generated from the table of entrypoints: change that, not this. C11 or later, for gcc and clang.
 * docs/api/ has the reference, ./fermata explain CALL prints a call.
 */
#ifndef FERMATA_H
#define FERMATA_H

#include <stddef.h>
#include <stdint.h>

";

/// The part of the header that makes calls.
const CALLING: &str = "\
/* Every call of the kernel stands in the code as a site: a syscall instruction behind three prefixes
 * that it ignores, five bytes that a loader can replace by a call instruction. The section
 * fermata_sites lists them, and a note of type 2 says where it is. The list's entry is dropped by
 * the linker together with the function that the site stands in. A redirected site pushes an
 * address: compile with -mno-red-zone. */
#define FERMATA_SITE(label)                                                      \\
    \".Lfermata_site\" label \":\\n .byte 0x2e, 0x2e, 0x2e\\n syscall\\n\"        \\
    \".pushsection fermata_sites, \\\"ao\\\", @progbits, .Lfermata_site\" label \"\\n\" \\
    \".long .Lfermata_site\" label \" - .\\n .popsection\\n\"

/* What comes back from a call that moves no message. */
struct fermata_returned {
    enum fermata_code code;
    uint64_t rdi, rsi, r8;
};

/* Makes a call with parameters in registers. The kernel may read and write the memory that they
 * name. */
static inline struct fermata_returned fermata_syscall(enum fermata_entrypoint entrypoint, uint64_t a,
    uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
    uint64_t rax = (uint64_t)entrypoint;
    register uint64_t r10 __asm__(\"r10\") = d;
    register uint64_t r8 __asm__(\"r8\") = e;
    register uint64_t r9 __asm__(\"r9\") = f;
    __asm__ volatile(FERMATA_SITE(\"%=\")
                     : \"+a\"(rax), \"+D\"(a), \"+S\"(b), \"+d\"(c), \"+r\"(r10), \"+r\"(r8), \"+r\"(r9)
                     :
                     : \"rcx\", \"r11\", \"memory\", \"cc\");
    return (struct fermata_returned){(enum fermata_code)(rax & 0xff), a, b, r8};
}

/* The registers of a call that moves a message. With a register message its eight words stand in
 * rsi rdx r10 r8 r9 r12 r13 r14, its length in bits 8 to 15 of rax, and the references to send in
 * r15. Buffers come back as what is left of them. */
struct fermata_ipc {
    uint64_t rax; /* length of a register message; the number of the call is put in */
    uint64_t rdi; /* reference to the port, or portset; returns the alias */
    uint64_t rsi; /* send: address */
    uint64_t rdx; /* send: bytes left */
    uint64_t r10; /* send: list of further segments */
    uint64_t r8; /* send: entries left */
    uint64_t r9; /* send: list of references */
    uint64_t rbx; /* receive: list of references */
    uint64_t rbp; /* deadline */
    uint64_t r12; /* receive: address */
    uint64_t r13; /* receive: bytes left */
    uint64_t r14; /* receive: list of further segments */
    uint64_t r15; /* receive: entries left */
};

/* Calls with all registers of the structure, and stores them back. A function of its own, for it
 * needs registers that inline assembly cannot name. */
void fermata_ipc_registers(struct fermata_ipc *registers);
__asm__(\".pushsection .text.fermata_ipc_registers, \\\"axG\\\", @progbits, fermata_ipc_registers, comdat\\n\"
        \".weak fermata_ipc_registers\\n\"
        \".hidden fermata_ipc_registers\\n\"
        \".type fermata_ipc_registers, @function\\n\"
        \"fermata_ipc_registers:\\n\"
        \"push %rbx\\n push %rbp\\n push %r12\\n push %r13\\n push %r14\\n push %r15\\n push %rdi\\n\"
        \"mov (%rdi), %rax\\n mov 0x10(%rdi), %rsi\\n mov 0x18(%rdi), %rdx\\n mov 0x20(%rdi), %r10\\n\"
        \"mov 0x28(%rdi), %r8\\n mov 0x30(%rdi), %r9\\n mov 0x38(%rdi), %rbx\\n\"
        \"mov 0x40(%rdi), %rbp\\n mov 0x48(%rdi), %r12\\n mov 0x50(%rdi), %r13\\n\"
        \"mov 0x58(%rdi), %r14\\n mov 0x60(%rdi), %r15\\n mov 0x08(%rdi), %rdi\\n\"
        FERMATA_SITE(\"_ipc\")
        \"pop %rcx\\n\"
        \"mov %rax, (%rcx)\\n mov %rdi, 0x08(%rcx)\\n mov %rsi, 0x10(%rcx)\\n mov %rdx, 0x18(%rcx)\\n\"
        \"mov %r10, 0x20(%rcx)\\n mov %r8, 0x28(%rcx)\\n mov %r9, 0x30(%rcx)\\n\"
        \"mov %rbx, 0x38(%rcx)\\n mov %rbp, 0x40(%rcx)\\n mov %r12, 0x48(%rcx)\\n\"
        \"mov %r13, 0x50(%rcx)\\n mov %r14, 0x58(%rcx)\\n mov %r15, 0x60(%rcx)\\n\"
        \"pop %r15\\n pop %r14\\n pop %r13\\n pop %r12\\n pop %rbp\\n pop %rbx\\n ret\\n\"
        \".size fermata_ipc_registers, . - fermata_ipc_registers\\n\"
        \".popsection\");

static inline enum fermata_code fermata_move(enum fermata_entrypoint entrypoint,
    struct fermata_ipc *registers)
{
    registers->rax = (registers->rax & ~UINT64_C(0xff)) | (uint64_t)entrypoint;
    fermata_ipc_registers(registers);
    return (enum fermata_code)(registers->rax & 0xff);
}

/* Bytes of a register message received. */
static inline uint64_t fermata_short_length(const struct fermata_ipc *registers)
{
    return registers->rax >> 8 & 0xff;
}

/* A list of count references that begin at address, for one register. */
static inline uint64_t fermata_ref_list(uint64_t address, uint64_t count)
{
    return address | (count & FERMATA_MAX_LIST_REFS);
}

";

/// Documentation of an item as text: one paragraph, without rustdoc's links.
pub fn plain(doc: &str) -> String {
    let mut out = String::new();
    let mut rest = doc.trim();
    while let Some((before, after)) = rest.split_once("[`") {
        let Some((link, tail)) = after.split_once("`]") else {
            break;
        };
        let path: Vec<&str> = link
            .split("::")
            .filter(|part| *part != "crate" && *part != "message")
            .collect();
        let _ = write!(out, "{before}`{}`", path.join("::"));
        rest = tail;
    }
    out.push_str(rest);
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_function() {
        let text = text();
        for call in SYSCALLS {
            assert!(
                text.contains(&format!(" fermata_{}(", call.name)),
                "{}",
                call.name
            );
            let constant = format!(
                "    FERMATA_SYS_{} = {},\n",
                call.name.to_uppercase(),
                call.number
            );
            assert!(text.contains(&constant), "{constant}");
        }
        assert!(text.contains(
            "fermata_mutex_set_state(uint64_t mutex, const struct fermata_mutex_state *state)"
        ));
        assert!(text.contains("fermata_clock_get(uint64_t *time)"));
        assert!(!text.contains('`') && !text.contains("crate::"));
    }

    #[test]
    fn names_become_c() {
        assert_eq!(snake("TimedOut"), "timed_out");
        assert_eq!(snake("Ok"), "ok");
        assert_eq!(snake("X87"), "x87");
        assert_eq!(struct_name("MutexState"), "struct fermata_mutex_state");
    }
}
