//! Tests of the root script, in a checkout where cargo and xtask are scripts that record their arguments.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A user other than root.
const NOBODY: u32 = 65534;

/// A checkout with the root script alone.
struct Checkout(TempDir);

impl Checkout {
    fn new() -> Self {
        let checkout = Self(tempfile::tempdir().expect("a directory"));
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for file in ["fermata", "rust-toolchain.toml"] {
            let text = std::fs::read_to_string(own.join(file)).expect("a file of the root");
            checkout.write(file, &text);
        }
        let root = checkout.0.path();
        let none = "sysroot/lib/rustlib/x86_64-unknown-none";
        std::fs::create_dir_all(root.join(none)).expect("a directory");
        let xtask = "#!/bin/sh\necho \"$*\" >> \"$FERMATA_ROOT/asked\"\n\
                     [ \"$1\" != fetch ] || [ -e \"$FERMATA_ROOT/network\" ]\n";
        checkout.write("xtask", xtask);
        let at = root.display();
        let cargo = format!(
            "mkdir -p '{at}/target/xtask/tool'\ncp '{at}/xtask' '{at}/target/xtask/tool/xtask'\n"
        );
        checkout.write("tools/cargo", &format!("#!/bin/sh\n{cargo}"));
        checkout.write("tools/rustup", &format!("#!/bin/sh\necho '{at}/sysroot'\n"));
        for tool in ["cc", "qemu-system-x86_64"] {
            checkout.write(&format!("tools/{tool}"), "#!/bin/sh\n");
        }
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(root, everybody).expect("a mode");
        checkout
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.path().join(file);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(&path, text).expect("a file");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("a mode");
    }

    fn call(&self, arguments: &[&str], user: Option<u32>) -> Output {
        let mut command = Command::new("sh");
        let tools = self.0.path().join("tools");
        command
            .arg(self.0.path().join("fermata"))
            .args(arguments)
            .env("PATH", format!("{}:/usr/bin:/bin", tools.display()))
            .env("FERMATA_TOOLCHAIN", "rustup");
        if let Some(user) = user {
            command.uid(user).current_dir("/");
        }
        command.output().expect("a shell")
    }

    /// The arguments that xtask got in a call.
    fn asked(&self, arguments: &[&str]) -> Vec<String> {
        let asked = self.0.path().join("asked");
        let _ = std::fs::remove_file(&asked);
        let output = self.call(arguments, None);
        let said = String::from_utf8_lossy(&output.stderr);
        let text = std::fs::read_to_string(&asked).unwrap_or_else(|_| panic!("{said}"));
        text.lines().map(ToString::to_string).collect()
    }
}

#[test]
fn what_cannot_be_fetched_is_not_asked_for_before_every_command() {
    let checkout = Checkout::new();
    for quick in [
        "help",
        "completions",
        "man",
        "explain",
        "syscalls",
        "disk",
        "image",
    ] {
        assert_eq!(checkout.asked(&[quick]), [quick]);
    }
    assert_eq!(checkout.asked(&["run", "ls"]), ["fetch", "run ls"]);
    assert_eq!(checkout.asked(&["run", "ls"]), ["run ls"]);
    // Only these commands need what only tests need.
    assert_eq!(checkout.asked(&["test"]), ["fetch --tests", "test"]);
    assert_eq!(checkout.asked(&["prove"]), ["prove"]);
    // The user who asks for it is not reminded of an earlier failure, nor is the next command.
    assert_eq!(checkout.asked(&["fetch"]), ["fetch"]);
    checkout.write("network", "");
    assert_eq!(checkout.asked(&["run"]), ["fetch", "run"]);
    assert_eq!(checkout.asked(&["test"]), ["fetch --tests", "test"]);
    assert_eq!(checkout.asked(&["test"]), ["test"]);
}

#[test]
fn what_root_has_made_is_named_to_others() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let checkout = Checkout::new();
    assert_eq!(checkout.asked(&["help"]), ["help"]);
    let output = checkout.call(&["help"], Some(NOBODY));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(
        said.contains("belongs to root") && said.contains("chown -R"),
        "{said}"
    );
    // One part that belongs to root is enough.
    let target = checkout.0.path().join("target");
    let owner = Some(NOBODY);
    let give = |path: &Path| std::os::unix::fs::chown(path, owner, None).expect("root may");
    give(&target);
    give(&target.join("xtask"));
    let output = checkout.call(&["help"], Some(NOBODY));
    assert_eq!(output.status.code(), Some(125));
}
