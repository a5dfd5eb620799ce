//! The part of the C header that an interface yields.

use crate::{spelled, Method};
use std::fmt::Write as _;
use syn::{Attribute, Expr, Ident, Lit, Meta, Type};

/// Declarations of an interface: its id, and a client stub for each method.
pub(crate) fn header(
    docs: &[Attribute],
    name: &Ident,
    id: u64,
    shared: bool,
    methods: &[Method<'_>],
) -> String {
    let name = snake(&name.to_string());
    let mut out = comment(docs.iter());
    let _ = writeln!(
        out,
        "#define FERMATA_{}_ID UINT64_C({id:#x})",
        name.to_uppercase()
    );
    if shared {
        let _ = writeln!(
            out,
            "static inline struct fermata_session fermata_{name}_at(uint64_t port)\n{{\n    \
             return fermata_shared(port, UINT64_C({id:#x}));\n}}"
        );
    }
    for (method, number) in methods.iter().zip(1..) {
        out.push_str(&stub(&name, method, number));
    }
    out
}

/// The client stub of a method.
fn stub(interface: &str, method: &Method<'_>, number: u16) -> String {
    let mut parameters = vec!["struct fermata_session *session".to_string()];
    let mut fill = String::new();
    let mut request = format!(".method = {number}");
    let mut taken = String::new();
    for (n, (name, ty)) in method.words.iter().enumerate() {
        let ty = c_type(ty);
        parameters.push(format!("{ty} {name}"));
        let _ = writeln!(fill, "    arguments[{n}] = (uint64_t){name};");
    }
    let mut count = method.words.len();
    match method.refs.last() {
        None => {}
        Some((.., many)) => {
            parameters.push("uint64_t references".into());
            request.push_str(", .references = references");
            if *many {
                parameters.push("unsigned reference_count".into());
                request.push_str(", .reference_count = reference_count");
            } else {
                let _ = write!(request, ", .reference_count = {}", method.refs.len());
            }
        }
    }
    if let Some((name, _, text)) = method.bytes {
        let ty = if text { "char" } else { "void" };
        parameters.push(format!("const {ty} *{name}"));
        parameters.push(format!("size_t {name}_length"));
        let _ = write!(
            request,
            ", .has_bytes = 1, .bytes = {name}, .length = {name}_length"
        );
    }
    for (n, ty) in method.values.iter().enumerate() {
        let ty = c_type(ty);
        if ty == "void" {
            continue;
        }
        parameters.push(format!("{ty} *result_{n}"));
        let _ = writeln!(taken, "        *result_{n} = ({ty})results[{n}];");
    }
    let results = taken.lines().count();
    if method.returns_bytes {
        parameters.extend([
            "void *into".into(),
            "size_t room".into(),
            "size_t *came".into(),
        ]);
        let _ = writeln!(fill, "    arguments[{count}] = room;");
        count += 1;
        request.push_str(", .into = into, .room = room, .came = came");
    }
    if method.returned_refs > 0 || method.returns_refs {
        parameters.push("uint64_t into_references".into());
        request.push_str(", .into_references = into_references");
        if method.returns_refs {
            parameters.extend([
                "unsigned reference_room".into(),
                "unsigned *references_came".into(),
            ]);
            request
                .push_str(", .reference_room = reference_room, .references_came = references_came");
        } else {
            let _ = write!(request, ", .reference_room = {}", method.returned_refs);
        }
    }
    if count > 0 {
        fill.insert_str(0, &format!("    uint64_t arguments[{count}];\n"));
        let _ = write!(request, ", .arguments = arguments, .count = {count}");
    }
    if results > 0 {
        let _ = writeln!(fill, "    uint64_t results[{results}];");
        let _ = write!(request, ", .results = results, .result_count = {results}");
    }
    let mut out = comment(method.docs.iter().copied());
    let _ = writeln!(
        out,
        "static inline uint64_t fermata_{interface}_{}({})\n{{\n{fill}    uint64_t error = fermata_ask(session, \
         &(struct fermata_request){{ {request} }});",
        method.name,
        parameters.join(", ")
    );
    if results > 0 {
        let _ = writeln!(out, "    if (error == 0) {{\n{taken}    }}");
    }
    out.push_str("    return error;\n}\n");
    out
}

/// The C type of a number.
fn c_type(ty: &Type) -> String {
    match spelled(ty).as_str() {
        "()" => "void".into(),
        "bool" => "bool".into(),
        "usize" => "size_t".into(),
        kind @ ("u8" | "u16" | "u32" | "u64") => format!("uint{}_t", &kind[1..]),
        kind @ ("i8" | "i16" | "i32" | "i64") => format!("int{}_t", &kind[1..]),
        // An enumeration, or another name for a number.
        _ => "uint64_t".into(),
    }
}

/// The lines of documentation.
pub(crate) fn lines<'a>(docs: impl Iterator<Item = &'a Attribute>) -> Vec<String> {
    docs.filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().to_string()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
    .collect()
}

/// The documentation as a comment.
fn comment<'a>(docs: impl Iterator<Item = &'a Attribute>) -> String {
    let text = lines(docs).join("\n * ");
    format!("\n/* {} */\n", text.replace("*/", "* /"))
}

/// `ConsoleControl` as `console_control`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for (n, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && n > 0 {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}
