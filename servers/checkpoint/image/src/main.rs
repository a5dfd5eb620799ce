//! The program `image` of the guest: see the library.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use checkpoint_image::chain::{all_came, places, Bytes};
use checkpoint_image::new::{self, Programs};
use image_tool::{run, Files, New};
use rt::fs::{self, Flags};

rt::entry!(main);

fn main() -> u8 {
    let arguments = rt::start().args.iter().skip(1);
    let arguments: Vec<&str> = arguments.map(String::as_str).collect();
    match run(&arguments, &Guest) {
        Ok(status) => status,
        Err((sentence, status)) => {
            rt::eprintln!("image: {sentence}");
            status
        }
    }
}

/// The files of the guest.
struct Guest;

/// An image.
struct File(fs::File);

/// A file that is made.
struct Made {
    new: new::New<Programs>,
    path: String,
}

fn absolute(path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_string(),
        false => format!("{}/{path}", rt::start().cwd),
    }
}

impl Files for Guest {
    type File = File;
    type New = Made;

    fn open(&self, path: &str) -> Result<File, String> {
        let file = fs::File::open(&absolute(path), Flags::default(), 0);
        let file = file.map_err(|error| format!("cannot read {path}: {}", error.text()))?;
        match file.opened().mode & fs::mode::TYPE {
            fs::mode::FILE => Ok(File(file)),
            _ => Err(format!("{path} is no file")),
        }
    }

    fn create(&self, path: &str) -> Result<Made, String> {
        let absolute = absolute(path);
        if fs::stat(&absolute, false).is_ok() {
            return Err(format!("{path} is there already"));
        }
        let new = new::New::create(Programs, &absolute);
        let new = new.map_err(|error| format!("cannot write {path}: {}", error.text()))?;
        Ok(Made {
            new,
            path: absolute,
        })
    }

    fn places(&self, child: &str, parent: &str) -> Vec<String> {
        // In the same order as in a restore.
        places(&absolute(child), parent).into()
    }

    fn room(&self, bytes: u64) -> bool {
        rt::heap::want(bytes).is_ok()
    }

    fn print(&self, text: &str) -> Result<(), String> {
        let printed = rt::io::write(text.as_bytes());
        printed.map_err(|error| format!("cannot print: {}", error.text()))
    }
}

impl Bytes for File {
    fn size(&self) -> u64 {
        self.0.opened().size
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), String> {
        all_came(self.0.read_full(offset, into), into.len())
    }
}

impl New for Made {
    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), String> {
        let written = self.new.file().write_all(at, bytes);
        written.map_err(|error| format!("cannot write {}: {}", self.path, error.text()))
    }

    fn keep(self) -> Result<(), String> {
        let kept = self.new.keep();
        kept.map_err(|error| format!("cannot write {}: {}", self.path, error.text()))
    }
}
