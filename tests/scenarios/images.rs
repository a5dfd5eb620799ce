//! The output of `./fermata image` for images that a machine has written, and the images that it makes of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scenario::Failure;
use xtask_build::debian::install;
use xtask_build::project::{temp_dir, Project};

/// The program, and the directory of the images.
struct Images {
    program: PathBuf,
    directory: tempfile::TempDir,
}

impl Images {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs the program, which must end with this status and print all of this.
    fn says(&self, arguments: &str, status: i32, said: &[&str]) -> Result<(), Failure> {
        let output = Command::new(&self.program)
            .current_dir(&self.directory)
            .args(arguments.split(' '))
            .output()
            .map_err(|error| error.to_string())?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let missing = said.iter().find(|said| !text.contains(**said));
        match (output.status.code(), missing) {
            (code, None) if code == Some(status) => Ok(()),
            _ => Err(format!(
                "image {arguments}: {}, and not {status}, or it does not say {said:?}:\n{text}",
                output.status
            )),
        }
    }
}

impl Images {
    /// A program that reads an image by the description of the format alone finds its content, and its errors.
    fn read_by_strangers(&self, names: &[&str]) -> Result<(), Failure> {
        install(&[("python3", "python3-minimal")])?;
        let project = Project::find().map_err(|error| error.message)?;
        let read = |name: &str| {
            Command::new("python3")
                .current_dir(&self.directory)
                .arg(project.root.join("examples/image/read_image.py"))
                .arg(name)
                .output()
                .map_err(|error| error.to_string())
        };
        for name in names {
            let lines = read(name)?;
            let said = String::from_utf8_lossy(&lines.stdout).into_owned();
            let said: Vec<&str> = said.lines().collect();
            if !lines.status.success() || said.len() < 5 {
                let why = String::from_utf8_lossy(&lines.stderr).into_owned();
                return Err(format!("{name}: {said:?}\n{why}"));
            }
            self.says(&format!("show {name}"), 0, &said)?;
            let mut damaged = std::fs::read(self.path(name)).map_err(|error| error.to_string())?;
            let middle = damaged.len() / 2;
            damaged[middle] ^= 1;
            write(&self.path("damaged"), &damaged)?;
            if read("damaged")?.status.code() != Some(1) {
                return Err(format!("{name}: damage is not found"));
            }
        }
        std::fs::remove_file(self.path("damaged")).map_err(|error| error.to_string())
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes).map_err(|error| error.to_string())
}

/// These images of one process differ only in what an image says of the machine: its clock.
pub(super) fn are_the_same(images: [&[u8]; 2]) -> Result<(), Failure> {
    let program = Project::find().and_then(|project| project.image_program());
    let at = Images {
        program: program.map_err(|error| error.message)?,
        directory: temp_dir().map_err(|error| error.message)?,
    };
    for (name, image) in ["one", "other"].into_iter().zip(images) {
        write(&at.path(name), image)?;
        at.says(&format!("check {name}"), 0, &["sound, and whole"])?;
    }
    at.says(
        "diff one other",
        0,
        &["the same processes, objects and pages"],
    )
}

/// Examines a chain of images of `awk`, which writes to `/tmp/out`: correct ones are described, and errors are named.
/// Returns the last one as a compressed image that is based on no other.
pub(super) fn merged(images: &[Vec<u8>]) -> Result<Vec<u8>, Failure> {
    let program = Project::find().and_then(|project| project.image_program());
    let at = Images {
        program: program.map_err(|error| error.message)?,
        directory: temp_dir().map_err(|error| error.message)?,
    };
    for (n, image) in images.iter().enumerate() {
        write(&at.path(&format!("image{n}")), image)?;
    }
    let last = images.len() - 1;
    let based = format!(
        "based on:   {last} images; the first one is /tmp/image{}",
        last - 1
    );
    let file = "file 0 in the image: /tmp/out";
    at.says(
        &format!("show image{last}"),
        0,
        &[&based, "awk BEGIN", "  1: /tmp/out, at ", file],
    )?;
    let sound = format!("sound, with the {last} images that it is based on");
    at.says(&format!("check image{last}"), 0, &[&sound])?;
    at.says("check image0", 0, &["sound, and whole"])?;
    let differ = ["page at ", "differences in all"];
    at.says(&format!("diff image0 image{last}"), 1, &differ)?;
    at.says(
        &format!("merge image{last} plain"),
        0,
        &["based on no other"],
    )?;
    at.says(
        &format!("merge --compress image{last} merged"),
        0,
        &["based on no other"],
    )?;
    at.says("check merged", 0, &["sound, and whole"])?;
    at.says("show merged", 0, &["compressed: "])?;
    at.says("diff plain merged", 0, &["the same processes"])?;
    let size = |name: &str| std::fs::metadata(at.path(name)).map_or(0, |file| file.len());
    if size("merged") * 2 > size("plain") {
        return Err(format!(
            "{} bytes, compressed {}",
            size("plain"),
            size("merged")
        ));
    }
    at.says(
        &format!("diff image{last} merged"),
        0,
        &["the same processes"],
    )?;
    at.says("extract --core 0 merged core", 0, &[])?;
    at.says("extract --file /tmp/out merged out", 0, &[])?;

    at.read_by_strangers(&["image0", &format!("image{last}"), "merged", "plain"])?;

    let there = ["merged is there already"];
    at.says("merge image1 merged", 1, &there)?;
    let none = ["the image has no file '/tmp/none'"];
    at.says("extract --file /tmp/none merged half", 1, &none)?;
    at.says("extract --core 99 merged half", 1, &["no process 99"])?;
    at.says("check image9", 1, &["cannot read image9: No such file"])?;
    at.says("check .", 1, &[". is no file"])?;
    at.says("diff image0 out", 2, &["out: the file is not an image"])?;
    let core = std::fs::read(at.path("core"));
    if !core.is_ok_and(|core| core.starts_with(b"\x7fELF")) {
        return Err("the core file is none".to_string());
    }
    let merged = std::fs::read(at.path("merged")).map_err(|error| error.to_string())?;

    let check = format!("check image{last}");
    std::fs::remove_file(at.path("image0")).map_err(|error| error.to_string())?;
    let missing = "/tmp/image0, on which it is based: cannot read image0";
    at.says(&check, 1, &[missing])?;
    let mut damaged = images[0].clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    write(&at.path("image0"), &damaged)?;
    let named = "/tmp/image0, on which it is based: the image is damaged: the pages at ";
    at.says(&check, 1, &[named])?;
    at.says(&format!("merge image{last} half"), 1, &["damaged"])?;
    let names = std::fs::read_dir(&at.directory).map_err(|error| error.to_string())?;
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let made = |name: &String| {
        name.starts_with("image") || ["merged", "plain", "core", "out"].contains(&name.as_str())
    };
    match names.into_iter().find(|name| !made(name)) {
        None => Ok(merged),
        Some(name) => Err(format!("{name} was left behind")),
    }
}
