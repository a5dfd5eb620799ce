//! Builds what a machine boots: the kernel of a configuration, and the programs that go into the archive.

use std::path::PathBuf;
use std::process::Command;

use elf::endian::LittleEndian;
use elf::ElfBytes;

use crate::archive::Archive;
use crate::busybox;
use crate::c;
use crate::config::Config;
use crate::error::Error;
use crate::project::{finish, BuildTarget, Project};
use crate::{anywhere, lines, sites};

/// Everything from which the machines of one command boot. It is read into memory while the build is locked, so that
/// a later build cannot change it.
pub struct Images {
    kernels: Vec<(Config, Vec<u8>)>,
    /// Kernels that report events to the counting plugin of the emulator.
    counting: Vec<(Config, Vec<u8>)>,
    programs: Vec<(String, Vec<u8>)>,
    busybox: Vec<u8>,
    /// The applets of busybox.
    applets: Vec<String>,
    /// The checkout, and the directory of the programs with their symbols.
    sources: Option<(PathBuf, PathBuf)>,
}

impl Images {
    /// One kernel, without programs.
    pub fn of_kernel(config: Config, elf: Vec<u8>) -> Self {
        Self {
            kernels: vec![(config, elf)],
            counting: Vec::new(),
            programs: Vec::new(),
            busybox: Vec::new(),
            applets: Vec::new(),
            sources: None,
        }
    }

    /// The functions that contain an instruction of a program, the innermost first and each with its line. The
    /// program is given by name, the instruction by its address in the file. Empty if that is not known.
    pub fn functions_at(&self, program: &str, address: u64) -> Vec<String> {
        let Some((root, binaries)) = &self.sources else {
            return Vec::new();
        };
        let is_it = |path: &str| path.rsplit('/').next() == Some(program);
        let here = self.programs.iter().find(|(path, _)| is_it(path));
        let Some((_, elf)) = here else {
            return Vec::new();
        };
        let built = std::fs::read(binaries.join(program)).unwrap_or_default();
        // Not if the program was built again meanwhile. The programs in C still have their symbols.
        match without_symbols(built.clone()) == *elf {
            true => lines::functions(&built, address, root),
            false => lines::functions(elf, address, root),
        }
    }

    /// The kernel for `config`.
    pub fn kernel(&self, config: Config) -> &[u8] {
        self.kernel_of(config, false)
    }

    /// The kernel for `config`, or its counting kernel.
    pub fn kernel_of(&self, config: Config, counting: bool) -> &[u8] {
        let kernels = if counting {
            &self.counting
        } else {
            &self.kernels
        };
        let found = kernels.iter().find(|(built, _)| *built == config);
        found.map(|(_, elf)| &elf[..]).unwrap_or_default()
    }

    /// Builds the counting kernels. Returns those that do not build.
    pub fn add_counting(
        &mut self,
        project: &Project,
        configs: &[Config],
    ) -> Result<Vec<(Config, Error)>, Error> {
        let _lock = project.lock()?;
        let packages = project.packages()?;
        let boot = &project.package_at(&packages, "boot")?.name;
        let mut failed = Vec::new();
        for &config in configs {
            let mut command = project.cargo(BuildTarget::CountingKernel, config, "build");
            command.args(["--quiet", "--package", boot]);
            let what = format!(
                "building {}, {}",
                BuildTarget::CountingKernel.what(),
                config.name()
            );
            match finish(command, &what) {
                Ok(()) => {
                    let path = project.binaries(BuildTarget::CountingKernel, config);
                    let elf = read(path.join("fermata-kernel"))?;
                    self.counting.push((config, elf));
                }
                Err(error) => failed.push((config, error)),
            }
        }
        Ok(failed)
    }

    /// The archive with the files that every machine has.
    pub fn archive(&self) -> Result<Archive, Error> {
        let mut archive = Archive::with_directories()?;
        for (path, elf) in &self.programs {
            archive.file(path, elf.clone(), true)?;
        }
        for tool in ["checkpoint", "processes", "restore"] {
            archive.symlink(&format!("bin/{tool}"), "/sbin/tools")?;
        }
        archive.file("bin/busybox", self.busybox.clone(), true)?;
        for applet in &self.applets {
            let path = format!("bin/{applet}");
            if archive.find(&path).is_none() {
                archive.symlink(&path, "busybox")?;
            }
        }
        archive.file("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n".to_vec(), false)?;
        archive.file("etc/group", b"root:x:0:\n".to_vec(), false)?;
        Ok(archive)
    }
}

/// Builds the kernel for each of `configs`, and all programs.
pub fn build(project: &Project, configs: &[Config]) -> Result<Images, Error> {
    let (images, failed) = build_what_builds(project, BuildTarget::Kernel, configs)?;
    match failed.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(images),
    }
}

/// The same for any kind of kernel. Kernels that do not build are returned with their errors.
pub fn build_what_builds(
    project: &Project,
    build: BuildTarget,
    configs: &[Config],
) -> Result<(Images, Vec<(Config, Error)>), Error> {
    let _lock = project.lock()?;
    let packages = project.packages()?;
    let guests: Vec<_> = packages
        .iter()
        .filter(|package| !package.bins.is_empty())
        .filter_map(|package| Some((package, package.guest_dir()?)))
        .collect();

    let mut user = project.cargo(BuildTarget::User, Config::DEFAULT, "build");
    user.args(["--quiet", "--bins"]);
    for (package, _) in &guests {
        user.args(["--package", &package.name]);
    }
    let boot = project.package_at(&packages, "boot")?;
    let kernel = |config: Config| -> Command {
        let mut command = project.cargo(build, config, "build");
        command.args(["--quiet", "--package", &boot.name]);
        command
    };
    let mut failed = Vec::new();
    std::thread::scope(|scope| {
        let programs = scope.spawn(|| finish(user, "building the programs"));
        for &config in configs {
            let what = format!("building {}, {}", build.what(), config.name());
            if let Err(error) = finish(kernel(config), &what) {
                failed.push((config, error));
            }
        }
        programs
            .join()
            .unwrap_or_else(|_| Err(Error::new("building the programs failed")))
    })?;

    let busybox = busybox::find(project)?;
    let mut images = Images {
        kernels: Vec::new(),
        counting: Vec::new(),
        programs: Vec::new(),
        applets: busybox::applets(&busybox),
        busybox: read(busybox)?,
        sources: None,
    };
    for &config in configs {
        if failed.iter().any(|(other, _)| *other == config) {
            continue;
        }
        let path = project.binaries(build, config).join("fermata-kernel");
        images.kernels.push((config, read(path)?));
    }
    let binaries = project.binaries(BuildTarget::User, Config::DEFAULT);
    images.sources = Some((project.root.clone(), binaries.clone()));
    for (name, path) in c::build(project)? {
        let elf = read(path)?;
        check_sites(&name, &elf)?;
        check_anywhere(&name, &elf)?;
        images.programs.push((format!("test/{name}"), elf));
    }
    for (package, directory) in guests {
        for bin in &package.bins {
            let elf = read(binaries.join(bin))?;
            check_anywhere(bin, &elf)?;
            // Tests and benchmarks make calls in assembly of their own, which no loader has to redirect.
            if matches!(directory, "bin" | "sbin") {
                check_sites(bin, &elf)?;
            }
            images
                .programs
                .push((format!("{directory}/{bin}"), without_symbols(elf)));
        }
    }
    Ok((images, failed))
}

/// Builds a kernel of `hal/examples`, which needs nothing but `hal`.
pub fn build_example(project: &Project, config: Config, example: &str) -> Result<Images, Error> {
    let _lock = project.lock()?;
    let hal = project
        .package_at(&project.packages()?, "hal")?
        .name
        .clone();
    let mut command = project.cargo(BuildTarget::Kernel, config, "build");
    command.args(["--quiet", "--package", &hal, "--example", example]);
    finish(command, &format!("building hal/examples/{example}.rs"))?;
    let examples = project
        .binaries(BuildTarget::Kernel, config)
        .join("examples");
    let path = examples.join(example);
    Ok(Images::of_kernel(config, read(path)?))
}

/// Every program must enter the kernel by its call gate, which a loader can redirect.
fn check_sites(name: &str, elf: &[u8]) -> Result<(), Error> {
    let failed = |why| Error::new(format!("{name} enters the kernel in a wrong way: {why}"));
    sites::check(elf).map(drop).map_err(failed)
}

/// Every program must be the same bytes in a process and in the kernel.
pub(crate) fn check_anywhere(name: &str, elf: &[u8]) -> Result<(), Error> {
    let failed = |why| Error::new(format!("{name} cannot lie anywhere: {why}"));
    anywhere::check(elf).map(drop).map_err(failed)
}

fn read(path: PathBuf) -> Result<Vec<u8>, Error> {
    std::fs::read(&path)
        .map_err(|error| Error::new(format!("cannot read {}: {error}", path.display())))
}

/// Cuts off the symbols and line tables, which are behind the loaded part, so that the archive stays small.
pub(crate) fn without_symbols(mut file: Vec<u8>) -> Vec<u8> {
    let end = ElfBytes::<LittleEndian>::minimal_parse(&file)
        .ok()
        .and_then(|elf| elf.segments())
        .and_then(|segments| {
            let ends = segments
                .iter()
                .map(|segment| segment.p_offset.checked_add(segment.p_filesz));
            ends.max().flatten()
        })
        .and_then(|end| usize::try_from(end).ok());
    if let Some(end) = end.filter(|end| (64..file.len()).contains(end)) {
        file.truncate(end);
        // No section headers: their offset, and size, number and index of names.
        file[40..48].fill(0);
        file[58..64].fill(0);
    }
    file
}
