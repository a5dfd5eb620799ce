//! Generates the functions of `sys` from the table of entrypoints: one for each call that moves no
//! message.

use std::fmt::Write as _;
use std::path::PathBuf;

use abi::syscalls::{Param, Syscall};
use abi::SYSCALLS;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let text: String = SYSCALLS
        .iter()
        .filter(|call| !moves(call))
        .map(function)
        .collect();
    let directory = std::env::var_os("OUT_DIR").expect("cargo names the directory");
    std::fs::write(PathBuf::from(directory).join("calls.rs"), text).expect("it can be written");
}

/// Whether the call moves a message: its registers are [`sys::IpcRegs`].
fn moves(call: &Syscall) -> bool {
    let buffers = [Param::SendBuffer, Param::ReceiveBuffer, Param::ShortBuffer];
    call.params.iter().any(|(_, kind)| buffers.contains(kind))
}

/// The function of a call. Each parameter's kind decides its type and how it is passed as a number.
fn function(call: &Syscall) -> String {
    let (mut parameters, mut arguments) = (Vec::new(), Vec::new());
    for (name, kind) in call.params {
        match kind {
            Param::Unused => arguments.push("0".to_string()),
            Param::State if call.name.ends_with("_get_state") => {
                parameters.push(format!("{name}: &mut {}State", call.object));
                arguments.push(format!("core::ptr::from_mut({name}) as u64"));
            }
            Param::State => {
                parameters.push(format!("{name}: &{}State", call.object));
                arguments.push(format!("core::ptr::from_ref({name}) as u64"));
            }
            Param::Registers => {
                parameters.push(format!("{name}: &Registers"));
                arguments.push(format!("core::ptr::from_ref({name}) as u64"));
            }
            Param::OptFpu => {
                parameters.push(format!("{name}: Option<&FpuState>"));
                arguments.push(format!(
                    "{name}.map_or(0, |at| core::ptr::from_ref(at) as u64)"
                ));
            }
            _ => {
                parameters.push(format!("{name}: u64"));
                arguments.push(name.to_string());
            }
        }
    }
    arguments.resize(6, "0".to_string());
    let (parameters, arguments) = (parameters.join(", "), arguments.join(", "));
    let (returns, result) = returned(call);
    let mut text = String::new();
    for line in call.doc.lines() {
        let _ = writeln!(text, "///{line}");
    }
    let codes: Vec<String> = call
        .codes
        .iter()
        .map(|code| format!("[`Code::{code:?}`]"))
        .collect();
    let _ = write!(
        text,
        "///\n/// Codes: {}.\n\
         #[inline]\n\
         pub fn {}({parameters}) -> {returns} {{\n    \
             // SAFETY: what the call reads and writes of Rust's memory is borrowed by its\n    \
             // parameters, and any bits are a valid state. What it does to objects and mappings at\n    \
             // addresses that are plain numbers here is the affair of who manages those addresses.\n    \
             let r = unsafe {{ syscall(Call::{:?}, [{arguments}]) }};\n    \
             {result}\n\
         }}\n\n",
        codes.join(", "),
        call.name,
        call.call,
    );
    text
}

/// The type of the function's result, and the expression that makes it of the registers `r`.
fn returned(call: &Syscall) -> (String, String) {
    let values: Vec<(&str, String)> = call
        .results()
        .iter()
        .map(|(what, parameter)| match *what {
            "kind" => (
                "RefKind",
                format!("RefKind::from_raw(r.p[{parameter}]).ok_or(Code::Dead)?"),
            ),
            _ => ("u64", format!("r.p[{parameter}]")),
        })
        .collect();
    let (types, values): (Vec<_>, Vec<_>) = values.into_iter().unzip();
    let (types, values) = match &types[..] {
        [] => return ("Code".into(), "r.code".into()),
        [one] => ((*one).to_string(), values.join(", ")),
        _ => (
            format!("({})", types.join(", ")),
            format!("({})", values.join(", ")),
        ),
    };
    if call.codes.len() == 1 {
        return (types, values);
    }
    let result = format!(
        "match r.code {{\n        Code::Ok => Ok({values}),\n        code => Err(code),\n    }}"
    );
    (format!("Result<{types}, Code>"), result)
}
