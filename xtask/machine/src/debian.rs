//! A machine with Debian's Linux on the same emulator, for comparison with Fermata.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use xtask_build::error::Error;
use xtask_build::project::temp_dir;

use crate::{bare, end_with_this_process, of_plugin, quoted, signals, Plugin, Qemu, CPU};

/// How long to wait for output each time.
const TICK: Duration = Duration::from_millis(50);

/// Debian's kernel, and what it boots with.
pub struct Debian {
    pub kernel: Vec<u8>,
    /// Its first root file system, whose `/init` is started.
    pub initrd: Vec<u8>,
    /// In megabytes.
    pub memory: u32,
    pub plugin: Plugin,
    /// In host time.
    pub timeout: Duration,
}

impl Debian {
    /// Runs the machine until it powers off. Calls `line` with each line as soon as it is printed.
    ///
    /// # Errors
    /// The machine cannot be started, or does not end in time.
    pub fn run(&self, line: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let directory = temp_dir()?;
        let path = |name: &str| directory.path().join(name);
        let write = |name: &str, content: &[u8]| {
            std::fs::write(path(name), content)
                .map_err(|error| Error::new(format!("cannot write {name}: {error}")))
        };
        write("kernel", &self.kernel)?;
        write("initrd", &self.initrd)?;
        write("console", b"")?;
        let failed = |error| Error::new(format!("the machine of Debian: {error}"));
        let mut console = File::open(path("console")).map_err(failed)?;
        let log = File::create(path("log")).map_err(failed)?;
        // This kernel hangs in the emulator when it enables XSAVE.
        let cpu = CPU.replace("+xsave,", "");
        let mut command = bare(&cpu, self.memory);
        command
            .args(["-icount", "shift=0,sleep=off"])
            .args(["-rtc", "clock=vm,base=2030-01-01", "-seed", "1"])
            .args(["-serial", &format!("file:{}", quoted(&path("console")))])
            .arg("-kernel")
            .arg(path("kernel"))
            .arg("-initrd")
            .arg(path("initrd"))
            .args([
                "-append",
                "console=ttyS0 quiet nokaslr panic=-1 rdinit=/init",
            ])
            .args(["-plugin", &of_plugin(&self.plugin)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        end_with_this_process(&mut command);
        let child = command
            .spawn()
            .map_err(|error| Error::new(format!("cannot run qemu-system-x86_64: {error}")))?;
        let mut qemu = Qemu(child, false);
        let start = Instant::now();
        let mut pending = Vec::new();
        loop {
            // Checked before the console is read, so that the last output is not lost.
            let ended = qemu.0.try_wait().map_err(failed)?;
            console.read_to_end(&mut pending).map_err(failed)?;
            while let Some(at) = pending.iter().position(|byte| *byte == b'\n') {
                let bytes: Vec<u8> = pending.drain(..=at).collect();
                line(String::from_utf8_lossy(&bytes).trim_end());
            }
            match ended {
                Some(status) if status.success() => return Ok(()),
                Some(_) => {
                    let said = std::fs::read_to_string(path("log")).unwrap_or_default();
                    return Err(Error::new(format!("the machine of Debian stopped\n{said}")));
                }
                None => {}
            }
            if let Some(signal) = signals::caught() {
                return Err(Error {
                    message: "interrupted".into(),
                    status: 128 + signal,
                });
            }
            if start.elapsed() >= self.timeout {
                return Err(Error::new(format!(
                    "the machine of Debian was not done after {} s",
                    self.timeout.as_secs()
                )));
            }
            std::thread::sleep(TICK);
        }
    }
}
