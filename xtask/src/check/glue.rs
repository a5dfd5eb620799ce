//! The rules for the glue of Linux's drivers that `./fermata check` enforces: a limit on its length, and that a
//! comment on each function that does nothing says how it differs from Linux's.
//!
//! The check relies on Linux's layout: a function begins in the first column, and its `{` stands there or, with the
//! `}`, behind the last parameter.

/// Where the glue is.
pub(super) const GLUE: &str = "drivers/linux/glue";

/// The most lines of code in all of the glue. drivers/linux/README.md says how they are counted.
const MOST: usize = 2500;

/// What breaks a rule in these files, which are given with their paths: one line each.
pub(super) fn broken(files: &[(String, String)]) -> Vec<String> {
    let count: usize = files.iter().map(|(_, text)| lines_of_code(text)).sum();
    let mut found = Vec::new();
    if count > MOST {
        found.push(format!(
            "{GLUE}: it has {count} lines of code, and may have {MOST}: what no driver calls is not there, and what \
             Linux has in a file that needs nothing is taken from there (`LEAVES`)"
        ));
    }
    for (file, text) in files {
        found.extend(silent_in(file, text));
    }
    found
}

/// The text without its comments, with the same number of lines.
fn without_comments(text: &str) -> String {
    let (mut rest, mut code) = (text, String::new());
    while let Some((before, comment)) = rest.split_once("/*") {
        let (comment, behind) = comment.split_once("*/").unwrap_or((comment, ""));
        code.push_str(before);
        code.extend(comment.chars().filter(|c| *c == '\n'));
        rest = behind;
    }
    code.push_str(rest);
    let line = |line: &str| line.split("//").next().unwrap_or_default().to_string() + "\n";
    code.lines().map(line).collect()
}

/// Lines that are neither empty nor comments. A line with only a `\` counts as empty.
fn lines_of_code(text: &str) -> usize {
    let code = without_comments(text);
    let lines = code.lines().map(str::trim);
    lines.filter(|line| !matches!(*line, "" | "\\")).count()
}

/// The functions of a file that others can call, that do nothing, and that have no comment directly above.
fn silent_in(file: &str, text: &str) -> Vec<String> {
    let code = without_comments(text);
    let (code, lines): (Vec<&str>, Vec<&str>) = (code.lines().collect(), text.lines().collect());
    let mut found = Vec::new();
    for (number, line) in code.iter().enumerate() {
        let opened = *line == "{";
        if !opened && !line.ends_with(") { }") {
            continue;
        }
        // The lines above the function's declaration, back to the end of the previous item or an empty line.
        let end = if opened { number } else { number + 1 };
        let above = code[..end].iter().rposition(|line| {
            line.trim().is_empty() || line.starts_with('}') || line.starts_with('#')
        });
        let start = above.map_or(0, |above| above + 1);
        let body = code[number + 1..].iter();
        let body: Vec<&str> = body
            .take_while(|line| opened && !line.starts_with('}'))
            .map(|line| line.trim())
            .filter(|line| !line.is_empty())
            .collect();
        let declared = code.get(start..end).and_then(|lines| lines.first());
        let Some(declared) = declared.filter(|line| !line.starts_with("static ")) else {
            continue;
        };
        let is_said = start > 0 && lines[start - 1].trim_end().ends_with("*/");
        if does_nothing(&body) && !is_said {
            found.push(format!(
                "{file}:{}: `{declared}`: it does nothing: say in a comment above why that is right here, where \
                 Linux's does something",
                start + 1
            ));
        }
    }
    found
}

/// Whether a function with these statements does nothing: it has none, or returns a constant.
fn does_nothing(body: &[&str]) -> bool {
    let constant = |value: &str| {
        matches!(value, "true" | "false") || !value.contains(|c: char| c.is_ascii_lowercase())
    };
    match body {
        [] => true,
        [one] => {
            let value = one.strip_prefix("return ");
            value
                .and_then(|value| value.strip_suffix(';'))
                .is_some_and(constant)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_code_are_those_with_code() {
        let text = "// SPDX\n/* One.\n * Two. */\n#include <a.h>\n\nint a; /* three */\n#define X \\\n\t\\\n\t1 \\\n\n";
        assert_eq!(lines_of_code(text), 4);
        let glue = |lines: usize| [("a.c".to_string(), "int a;\n".repeat(lines))];
        assert!(broken(&glue(MOST)).is_empty());
        let found = broken(&glue(MOST + 1));
        assert!(
            found[0].starts_with("drivers/linux/glue: it has 2501 lines"),
            "{found:?}"
        );
    }

    #[test]
    fn functions_that_do_nothing_say_why() {
        for silent in [
            "void f(int a)\n{\n}\n",
            "void f(int a) { }\n",
            "int a;\n\nint f(int a,\n\t  int b) { }\n",
            "int f(void)\n{\n\treturn 0;\n}\n",
            "void *f(void)\n{\n\t/* None. */\n\treturn ERR_PTR(-ENODEV);\n}\n",
            "bool f(void)\n{\n\treturn false;\n}\n",
            "/* Of others. */\n\nunsigned long f(void)\n{\n\treturn ~0UL;\n}\n",
            "/* Of the first. */\nvoid g(void)\n{\n\tf();\n}\nvoid f(void)\n{\n}\n",
        ] {
            let found = silent_in("a.c", silent);
            assert_eq!(found.len(), 1, "{silent}: {found:?}");
            assert!(
                found[0].contains(" f(") || found[0].contains("*f("),
                "{found:?}"
            );
            let said = silent.replacen("int f(", "/* So. */\nint f(", 1);
            let said = said.replacen("void f(", "/* So. */\nvoid f(", 1);
            if said != silent {
                assert!(silent_in("a.c", &said).is_empty(), "{said}");
            }
        }
        for fine in [
            "static void f(void)\n{\n}\n",
            "int f(void)\n{\n\treturn g();\n}\n",
            "int f(void)\n{\n\treturn count;\n}\n",
            "int f(void)\n{\n\tcount++;\n\treturn 0;\n}\n",
            "static const int a[] = {\n\t0,\n};\n",
            "void f(void);\n",
        ] {
            assert!(silent_in("a.c", fine).is_empty(), "{fine}");
        }
        let two = silent_in(
            "a.c",
            "int a;\n\nvoid f(void)\n{\n}\n\n/* So. */\nvoid g(void) { }\n",
        );
        assert_eq!(two.len(), 1, "{two:?}");
        assert!(two[0].starts_with("a.c:3: `void f(void)`"), "{two:?}");
    }
}
