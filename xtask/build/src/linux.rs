//! Linux's drivers as programs: unchanged sources of Debian's package, compiled against Linux's own headers for
//! `ARCH=um`, and linked with the glue in `drivers/linux`. Nothing of them is committed; all files are in
//! `target/linux/VERSION`:
//!
//! * `source`: the needed files of the package, by the list in `drivers/linux/build/sources`;
//! * `headers`: what `make ARCH=um prepare` generates, with `drivers/linux/build/config`;
//! * `objects`, `programs`: compiled files, named by a hash of what they are made of.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use elf::endian::LittleEndian;
use elf::ElfBytes;

use crate::config::Config;
use crate::debian;
use crate::error::Error;
use crate::image::{check_anywhere, without_symbols};
use crate::project::{finish, temp_dir, BuildTarget, Project};
use crate::sites;

/// The package, and the version that the glue is written for.
const PACKAGE: &str = "linux-source-6.1";
pub const VERSION: &str = "6.1.192-2";
/// Its checksum, as Debian's list of packages has it.
const SHA256: &str = "ae95fe63d4c553f8d0e6c86cb1ab566f3894a43743eb19ab585cd97d82f26514";

/// Tools that compile and link drivers, and the packages that have them.
const COMPILER: &[(&str, &str)] = &[("cc", "gcc"), ("ld", "binutils")];

/// Tools that Linux's own build needs in addition, for its headers.
const TOOLS: &[(&str, &str)] = &[
    ("make", "make"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("xz", "xz-utils"),
];

/// A driver.
#[derive(Debug)]
pub struct Driver {
    /// The name of its program.
    pub name: &'static str,
    /// QEMU's device.
    pub device: &'static str,
    /// The service that it offers, in place of that service's own driver.
    pub service: &'static str,
    /// What it may ask the device server for in addition to its service's memory (servers/device/src/manifest.rs).
    pub grants: &'static str,
    /// Its files in Linux's sources, in the order of their initialization.
    pub sources: &'static [&'static str],
    /// A parameter of its module: `name=value`, or nothing.
    pub parameter: &'static str,
}

/// All drivers.
pub const DRIVERS: &[Driver] = &[
    Driver {
        name: "e100",
        device: "i82557b",
        service: "link",
        grants: "pci=8086:1229 pci=8086:1209",
        sources: &["drivers/net/ethernet/intel/e100.c"],
        parameter: "",
    },
    Driver {
        name: "e1000",
        device: "e1000",
        service: "link",
        grants: "pci=8086:100e",
        sources: &[
            "drivers/net/ethernet/intel/e1000/e1000_main.c",
            "drivers/net/ethernet/intel/e1000/e1000_hw.c",
            "drivers/net/ethernet/intel/e1000/e1000_ethtool.c",
            "drivers/net/ethernet/intel/e1000/e1000_param.c",
        ],
        // Instead of 256 descriptors, each of which takes 4 KB of the memory that the driver shares with the card.
        parameter: "RxDescriptors=80",
    },
    Driver {
        name: "ne2k-pci",
        device: "ne2k_pci",
        service: "link",
        grants: "pci=10ec:8029",
        sources: &[
            "drivers/net/ethernet/8390/ne2k-pci.c",
            "drivers/net/ethernet/8390/8390.c",
        ],
        parameter: "",
    },
    Driver {
        name: "ne",
        device: "ne2k_isa",
        service: "link",
        // Lines to which firmware connects no PCI function, without those of serial and parallel ports.
        grants: "isa=300+20 line=3 line=5 line=9",
        sources: &[
            "drivers/net/Space.c",
            "drivers/net/ethernet/8390/ne.c",
            "drivers/net/ethernet/8390/8390p.c",
        ],
        parameter: "",
    },
    Driver {
        name: "pcnet32",
        device: "pcnet",
        service: "link",
        grants: "pci=1022:2000",
        sources: &["drivers/net/ethernet/amd/pcnet32.c"],
        parameter: "",
    },
    Driver {
        name: "tulip",
        device: "tulip",
        service: "link",
        grants: "pci=1011:0019",
        sources: &[
            "drivers/net/ethernet/dec/tulip/eeprom.c",
            "drivers/net/ethernet/dec/tulip/interrupt.c",
            "drivers/net/ethernet/dec/tulip/media.c",
            "drivers/net/ethernet/dec/tulip/timer.c",
            "drivers/net/ethernet/dec/tulip/tulip_core.c",
            "drivers/net/ethernet/dec/tulip/21142.c",
            "drivers/net/ethernet/dec/tulip/pnic.c",
            "drivers/net/ethernet/dec/tulip/pnic2.c",
        ],
        parameter: "",
    },
    Driver {
        name: "8139cp",
        device: "rtl8139",
        service: "link",
        grants: "pci=10ec:8139",
        sources: &["drivers/net/ethernet/realtek/8139cp.c"],
        parameter: "",
    },
    Driver {
        name: "sym53c8xx",
        device: "lsi53c895a",
        service: "disk",
        grants: "pci=1000:0012",
        sources: &[
            "drivers/scsi/sym53c8xx_2/sym_fw.c",
            "drivers/scsi/sym53c8xx_2/sym_glue.c",
            "drivers/scsi/sym53c8xx_2/sym_hipd.c",
            "drivers/scsi/sym53c8xx_2/sym_malloc.c",
            "drivers/scsi/sym53c8xx_2/sym_nvram.c",
        ],
        // Emulated devices are there at once after a reset of their bus.
        parameter: "settle=0",
    },
    Driver {
        name: "am53c974",
        device: "am53c974",
        service: "disk",
        grants: "pci=1022:2020",
        sources: &["drivers/scsi/esp_scsi.c", "drivers/scsi/am53c974.c"],
        // Emulated devices are there at once after a reset of their bus.
        parameter: "esp_bus_reset_settle=0",
    },
    Driver {
        name: "ata_piix",
        device: "piix3-ide",
        service: "disk",
        grants: "pci=8086:7010 ports=1f0+8 ports=3f6+1 line=14",
        sources: &[
            "drivers/ata/libata-core.c",
            "drivers/ata/libata-scsi.c",
            "drivers/ata/libata-eh.c",
            "drivers/ata/libata-transport.c",
            "drivers/ata/libata-sata.c",
            "drivers/ata/libata-sff.c",
            "drivers/ata/ata_piix.c",
        ],
        parameter: "",
    },
    Driver {
        name: "sb16",
        device: "sb16",
        service: "sound",
        // Its line and its channels, one for bytes and one for words, which the driver tells the card. `isa` is the
        // port at which a card is looked for: the first of its ports read as if there were no card.
        grants: "isa=22c+1 ports=220+10 line=5 channel=1 channel=5",
        sources: &[
            "sound/isa/sb/sb_common.c",
            "sound/isa/sb/sb_mixer.c",
            "sound/isa/sb/sb16_main.c",
            "sound/isa/sb/sb16.c",
        ],
        parameter: "",
    },
];

/// A service of drivers.
struct Service {
    name: &'static str,
    /// Its file of the glue, beside those of all drivers.
    glue: &'static str,
    /// Files of Linux that are self-contained and do one thing: they are part of the glue, like those of all drivers.
    leaves: &'static [&'static str],
    /// Bytes of memory that a device and its driver share.
    memory: u64,
    /// Whether a channel of ISA DMA has to reach it.
    isa: bool,
}

/// The leaves of all drivers.
const LEAVES: &[&str] = &[
    "drivers/base/devres.c",
    "kernel/params.c",
    "kernel/time/time.c",
    "lib/ctype.c",
    "lib/devres.c",
    "lib/find_bit.c",
    "lib/hexdump.c",
    "lib/hweight.c",
    "lib/kstrtox.c",
    "lib/string.c",
    "lib/vsprintf.c",
];

const SERVICES: &[Service] = &[
    Service {
        name: "link",
        glue: "net.c",
        leaves: &["drivers/net/mii.c", "lib/bitrev.c"],
        memory: 0x14_0000,
        isa: false,
    },
    Service {
        name: "disk",
        glue: "scsi.c",
        leaves: &[
            "drivers/scsi/scsi_common.c",
            "drivers/scsi/scsi_lib_dma.c",
            "drivers/scsi/scsi_transport_spi.c",
            "lib/glob.c",
            "lib/scatterlist.c",
        ],
        memory: 0x30_0000,
        isa: false,
    },
    Service {
        name: "sound",
        glue: "sound.c",
        leaves: &[],
        memory: 0x2_0000,
        isa: true,
    },
];

/// Compiler flags for Linux's files: those of Linux's own build, but for code that can lie anywhere, and without
/// anything that a program of this system cannot do.
const FLAGS: &[&str] = &[
    "-nostdinc",
    "-std=gnu11",
    "-O2",
    "-fPIE",
    "-fvisibility=hidden",
    "-mgeneral-regs-only",
    "-mno-red-zone",
    "-fno-builtin",
    "-fno-strict-aliasing",
    "-fno-strict-overflow",
    "-fno-common",
    "-fshort-wchar",
    "-fcf-protection=none",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fno-delete-null-pointer-checks",
    "-Wno-pointer-sign",
    "-D__KERNEL__",
    "-D__arch_um__",
    "-D__UM_HOST__",
    "-DSUBARCH=\"x86\"",
    // Functions that the library in Rust has, too.
    "-D__HAVE_ARCH_BCMP=1",
    "-D__HAVE_ARCH_MEMCMP=1",
    "-D__HAVE_ARCH_STRLEN=1",
    // Options that User-Mode Linux, which has no ISA, does not offer.
    "-DCONFIG_ISA=1",
    "-DCONFIG_GENERIC_IRQ_PROBE=1",
    "-DCONFIG_NETDEV_LEGACY_INIT=1",
    "-DCONFIG_NE2000=1",
    "-DCONFIG_ISA_BUS_API=1",
    "-DCONFIG_ISA_DMA_API=1",
    "-DCONFIG_SND=1",
];

/// The directories of headers, in the order in which they are searched; `true`: in the prepared headers, `false`: in
/// the source.
const INCLUDE: &[(bool, &str)] = &[
    (false, "arch/x86/um"),
    (false, "arch/um/include"),
    (true, "arch/um/include/generated"),
    (false, "arch/x86/include"),
    (true, "arch/x86/include/generated"),
    (false, "include"),
    (true, "include"),
    (false, "arch/um/include/uapi"),
    (true, "arch/um/include/generated/uapi"),
    (false, "arch/x86/include/uapi"),
    (true, "arch/x86/include/generated/uapi"),
    (false, "include/uapi"),
    (true, "include/generated/uapi"),
    (false, "arch/um/include/shared"),
    (false, "arch/x86/um/shared"),
    (false, "arch/um/include/shared/skas"),
];

/// Flags for files that are not Linux's.
const OWN_FLAGS: &[&str] = &[
    "-std=c11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-implicit-fallthrough",
    "-ffreestanding",
    "-fPIE",
    "-fvisibility=hidden",
    "-mgeneral-regs-only",
    "-mno-red-zone",
    "-fcf-protection=none",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
];

/// What happens to a driver that touches a port that it was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ungranted {
    /// It is ended, with a message that names it, the function and the port.
    Ends,
    /// The message is written once for each port, and the driver goes on: it reads ones, and its writes are lost.
    Ones,
}

/// The program of a driver, and what a machine has to know of it.
#[derive(Clone, Debug)]
pub struct Program {
    /// The driver's name.
    pub name: &'static str,
    /// QEMU's device.
    pub device: &'static str,
    /// The service that it offers.
    pub service: &'static str,
    /// Its line for the manifest, in the boot archive.
    pub line: String,
    /// The program.
    pub elf: Vec<u8>,
}

/// Facts about a driver.
#[derive(Debug)]
pub struct Facts {
    /// Lines of its sources.
    pub lines: usize,
    /// Symbols that its objects need from outside.
    pub needs: BTreeSet<String>,
    /// Those of them that nothing defines: calling one ends the driver with a message that names it.
    pub stubs: BTreeSet<String>,
}

/// The driver of this name.
pub fn find(name: &str) -> Result<&'static Driver, Error> {
    let found = DRIVERS.iter().find(|driver| driver.name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = DRIVERS.iter().map(|driver| driver.name).collect();
        Error::usage(format!(
            "there is no driver {name}; there are {}",
            names.join(", ")
        ))
    })
}

/// Gets Linux's sources and prepares them, unless that was done before: after that, drivers are built without a
/// network.
pub fn fetch(project: &Project) -> Result<(), Error> {
    let _lock = project.lock()?;
    Tree::prepare(project).map(drop)
}

/// Builds the program of a driver. Returns facts about it, too.
pub fn build(
    project: &Project,
    driver: &Driver,
    ungranted: Ungranted,
) -> Result<(Program, Facts), Error> {
    let _lock = project.lock()?;
    let tree = Tree::prepare(project)?;
    tree.program(driver, ungranted)
}

/// Builds a driver from a file that is not Linux's, for a test.
pub fn build_own(
    project: &Project,
    driver: &Driver,
    source: &Path,
    ungranted: Ungranted,
) -> Result<Program, Error> {
    let _lock = project.lock()?;
    let tree = Tree::prepare(project)?;
    let object = tree.compile(&project.root.join(source), driver.name)?;
    Ok(tree.link(driver, &[object], ungranted)?.0)
}

/// Linux's sources and headers, and the directories of everything else.
struct Tree<'a> {
    project: &'a Project,
    root: PathBuf,
    source: PathBuf,
    headers: PathBuf,
}

impl<'a> Tree<'a> {
    /// Gets the source and prepares the headers, if that was not done before.
    fn prepare(project: &'a Project) -> Result<Self, Error> {
        let root = project.target.join("linux").join(VERSION);
        let tree = Tree {
            project,
            source: root.join("source"),
            headers: root.join("headers"),
            root,
        };
        let missing = |what: &str, why: String| {
            Error::new(format!(
                "Linux's drivers need {what}, and {why}. drivers/linux/README.md says more"
            ))
        };
        let list = tree.own("build/sources")?;
        let config = tree.own("build/config")?;
        // Files that were unpacked and prepared by other lists must not be used.
        let key = key(&[VERSION.as_bytes(), &list, &config]);
        let is_ready = std::fs::read_to_string(tree.root.join("key")).is_ok_and(|was| was == key);
        let tools = [COMPILER, if is_ready { &[] } else { TOOLS }].concat();
        debian::install(&tools).map_err(|why| missing("tools to build with", why))?;
        if is_ready {
            return Ok(tree);
        }
        let _ = std::fs::remove_dir_all(&tree.root);
        make_directory(&tree.source)?;
        make_directory(&tree.headers)?;
        tree.unpack().map_err(|why| {
            missing(
                &format!("Debian's package {PACKAGE}, version {VERSION}"),
                why,
            )
        })?;
        tree.make_headers(&config)?;
        write(&tree.root.join("key"), key.as_bytes())?;
        Ok(tree)
    }

    /// A file of `drivers/linux`.
    fn own(&self, name: &str) -> Result<Vec<u8>, Error> {
        read(&self.project.root.join("drivers/linux").join(name))
    }

    /// Fetches the package, compares its checksum, and unpacks what is needed.
    fn unpack(&self) -> Result<(), String> {
        let directory = temp_dir().map_err(|error| error.message)?;
        let package = debian::download(&format!("{PACKAGE}={VERSION}"), directory.path())?;
        let sum = debian::run(Command::new("sha256sum").arg(&package))?;
        if !sum.starts_with(SHA256.as_bytes()) {
            return Err("what was fetched has another checksum than it should have".into());
        }
        eprintln!("fermata: unpacking what is needed of it");
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(
                "dpkg-deb --fsys-tarfile \"$1\" | tar -xO \"./usr/src/$2.tar.xz\" | \
                 tar -xJ -C \"$3\" --strip-components=1 --wildcards -T \"$4\"",
            )
            .arg("sh")
            .arg(&package)
            .arg(PACKAGE)
            .arg(&self.source)
            .arg(self.project.root.join("drivers/linux/build/sources"));
        debian::run(&mut command).map(drop)
    }

    /// Makes Linux generate its headers.
    fn make_headers(&self, config: &[u8]) -> Result<(), Error> {
        eprintln!("fermata: preparing Linux's headers");
        let make = |target: &str| {
            let mut command = Command::new("make");
            command
                .arg("-C")
                .arg(&self.source)
                .args(["ARCH=um", "-j2"])
                .arg(format!("O={}", self.headers.display()))
                .arg(target)
                .env_remove("MAKEFLAGS");
            debian::run(&mut command)
                .map_err(|why| Error::new(format!("Linux's `make {target}`: {why}")))
        };
        make("tinyconfig")?;
        let file = self.headers.join(".config");
        let mut whole = read(&file)?;
        whole.extend_from_slice(config);
        write(&file, &whole)?;
        make("olddefconfig")?;
        make("prepare").map(drop)
    }

    /// Compiles a file of Linux, or a similar one. Returns its object. `module` is the name that it uses for itself.
    fn compile(&self, file: &Path, module: &str) -> Result<PathBuf, Error> {
        let glue = self.project.root.join("drivers/linux/glue");
        let kit = self.project.root.join("drivers/kit/include");
        let mut parts = vec![read(file)?, FLAGS.concat().into_bytes()];
        for header in [
            glue.join("lx.h"),
            glue.join("include/asm/dma.h"),
            glue.join("include/asm/thread_info.h"),
            kit.join("osenv.h"),
        ] {
            parts.push(read(&header)?);
        }
        parts.push(module.as_bytes().to_vec());
        let object = self.object(file, &parts)?;
        if object.exists() {
            return Ok(object);
        }
        let module = module.replace('-', "_");
        let mut command = Command::new("cc");
        command.args(FLAGS).arg("-I").arg(glue.join("include"));
        for (made, directory) in INCLUDE {
            let base = if *made { &self.headers } else { &self.source };
            command.arg("-I").arg(base.join(directory));
        }
        for header in ["compiler-version.h", "kconfig.h", "compiler_types.h"] {
            let header = self.source.join("include/linux").join(header);
            command.arg("-include").arg(header);
        }
        for name in ["MODFILE", "BASENAME", "MODNAME"] {
            command.arg(format!("-DKBUILD_{name}=\"{module}\""));
        }
        command.arg(format!("-D__KBUILD_MODNAME=kmod_{module}"));
        command.arg("-I").arg(kit).arg("-I").arg(glue);
        self.finish(command, file, &object)
    }

    /// Compiles a file that is not Linux's.
    fn compile_own(&self, file: &Path) -> Result<PathBuf, Error> {
        let include = self.project.root.join("drivers/kit/include");
        let parts = [
            read(file)?,
            OWN_FLAGS.concat().into_bytes(),
            read(&include.join("osenv.h"))?,
        ];
        let object = self.object(file, &parts)?;
        if object.exists() {
            return Ok(object);
        }
        let mut command = Command::new("cc");
        command.args(OWN_FLAGS).arg("-I").arg(include);
        self.finish(command, file, &object)
    }

    /// The path of the object of a file that is made of these parts.
    fn object(&self, file: &Path, parts: &[Vec<u8>]) -> Result<PathBuf, Error> {
        let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let directory = self.root.join("objects");
        make_directory(&directory)?;
        Ok(directory.join(format!("{stem}-{}.o", key(&parts))))
    }

    /// Runs the compiler. The object gets its name when it is complete.
    fn finish(&self, mut command: Command, file: &Path, object: &Path) -> Result<PathBuf, Error> {
        let partial = object.with_extension("partial");
        command.arg("-c").arg("-o").arg(&partial).arg(file);
        finish(command, &format!("compiling {}", file.display()))?;
        std::fs::rename(&partial, object)
            .map_err(|error| Error::new(format!("{}: {error}", object.display())))?;
        Ok(object.into())
    }

    fn program(&self, driver: &Driver, ungranted: Ungranted) -> Result<(Program, Facts), Error> {
        let mut lines = 0;
        let mut objects = Vec::new();
        for name in driver.sources {
            let file = self.source.join(name);
            lines += read(&file)?.iter().filter(|byte| **byte == b'\n').count();
            objects.push(self.compile(&file, driver.name)?);
        }
        let (program, mut facts) = self.link(driver, &objects, ungranted)?;
        facts.lines = lines;
        Ok((program, facts))
    }

    /// The objects of the glue of a service, and the library in Rust that they are linked with.
    fn glue(&self, service: &Service) -> Result<(Vec<PathBuf>, PathBuf), Error> {
        let root = &self.project.root;
        let glue = root.join("drivers/linux/glue");
        let mut objects = Vec::new();
        for file in ["core.c", "isa.c", "pci.c", service.glue] {
            objects.push(self.compile(&glue.join(file), "lx")?);
        }
        for file in LEAVES.iter().chain(service.leaves) {
            objects.push(self.compile(&self.source.join(file), "lx")?);
        }
        objects.push(self.compile_own(&root.join("drivers/kit/c/format.c"))?);
        let packages = self.project.packages()?;
        let package = &self.project.package_at(&packages, "drivers/linux")?.name;
        let mut command = self
            .project
            .cargo(BuildTarget::User, Config::DEFAULT, "build");
        command.args(["--quiet", "--lib", "--package", package]);
        finish(command, "building what Linux's drivers are linked with")?;
        let library = format!("lib{}.a", package.replace('-', "_"));
        let library = self
            .project
            .binaries(BuildTarget::User, Config::DEFAULT)
            .join(library);
        Ok((objects, library))
    }

    /// Makes a program of a driver's objects.
    fn link(
        &self,
        driver: &Driver,
        objects: &[PathBuf],
        ungranted: Ungranted,
    ) -> Result<(Program, Facts), Error> {
        let service = SERVICES.iter().find(|known| known.name == driver.service);
        let service = service.ok_or_else(|| Error::new("there is no glue for this service"))?;
        let (glue, library) = self.glue(service)?;
        let directory = self.root.join("programs");
        make_directory(&directory)?;
        let at = |end: &str| directory.join(format!("{}{end}", driver.name));
        let tool = |command: &mut Command| {
            debian::run(command)
                .map_err(|why| Error::new(format!("linking {}: {why}", driver.name)))
        };

        // The driver as one object, whose functions are visible to others, and whose initcalls are in a section with
        // a name that the linker makes symbols for.
        let (joined, object) = (at(".joined.o"), at(".o"));
        tool(
            Command::new("ld")
                .args(["-r", "-o"])
                .arg(&joined)
                .args(objects),
        )?;
        let symbols = Symbols::read(&read(&joined)?)?;
        let names = at(".names");
        write(&names, symbols.functions.join("\n").as_bytes())?;
        tool(
            Command::new("objcopy")
                .args(["--rename-section", ".initcall4.init=lx_initcalls"])
                .args(["--rename-section", ".initcall6.init=lx_initcalls"])
                .arg(format!("--globalize-symbols={}", names.display()))
                .arg(&joined)
                .arg(&object),
        )?;

        // A symbol that nothing defines gets a stub that names it.
        let mut have = BTreeSet::new();
        let mut needs = symbols.undefined.clone();
        for object in &glue {
            let symbols = Symbols::read(&read(object)?)?;
            have.extend(symbols.global);
            needs.extend(symbols.undefined);
        }
        have.extend(symbols.global.iter().cloned());
        have.extend(self.of_library(&library)?);
        let linker = [
            "__start_lx_initcalls",
            "__stop_lx_initcalls",
            "lx_symbols",
            "lx_symbols_count",
            "lx_parameter",
            "lx_ones",
            "lx_isa",
            "__start___param",
            "__stop___param",
            "_GLOBAL_OFFSET_TABLE_",
        ];
        let stubs: BTreeSet<String> = needs
            .into_iter()
            .filter(|name| !have.contains(name) && !linker.contains(&&**name))
            .collect();
        let (stub, made) = (at(".stubs.S"), at(".stubs.o"));
        let mut text = assembly(&symbols.functions, &stubs);
        text.push_str(&facts_of(driver, service, ungranted));
        write(&stub, text.as_bytes())?;
        tool(Command::new("cc").arg("-c").arg("-o").arg(&made).arg(&stub))?;

        let program = at("");
        tool(
            Command::new("cc")
                .args(["-nostdlib", "-static-pie"])
                .arg("-Wl,-e,_start,-z,text,-z,noexecstack,--build-id=none,--gc-sections,-u,fermata_main")
                .arg("-o")
                .arg(&program)
                .args([&object, &made])
                .args(&glue)
                .arg(&library),
        )?;
        let elf = read(&program)?;
        check_anywhere(driver.name, &elf)?;
        sites::check(&elf).map_err(|why| {
            Error::new(format!(
                "{} enters the kernel in a wrong way: {why}",
                driver.name
            ))
        })?;
        let facts = Facts {
            lines: 0,
            needs: symbols.undefined,
            stubs,
        };
        let program = Program {
            name: driver.name,
            device: driver.device,
            service: driver.service,
            line: format!(
                "sbin/{} {} {} dma={:x}\n",
                driver.name, service.name, driver.grants, service.memory
            ),
            elf: without_symbols(elf),
        };
        Ok((program, facts))
    }

    /// The symbols that the library in Rust defines for C.
    fn of_library(&self, library: &Path) -> Result<BTreeSet<String>, Error> {
        let output = debian::run(
            Command::new("nm")
                .args(["--defined-only", "--extern-only", "--format=posix"])
                .arg(library),
        );
        let output = output.map_err(Error::new)?;
        let text = String::from_utf8_lossy(&output);
        let name = |line: &str| line.split(' ').next().map(ToString::to_string);
        Ok(text.lines().filter_map(name).collect())
    }
}

/// The symbols of an object.
struct Symbols {
    /// Symbols that other objects see.
    global: BTreeSet<String>,
    undefined: BTreeSet<String>,
    /// Names of functions that are unique.
    functions: Vec<String>,
}

impl Symbols {
    fn read(object: &[u8]) -> Result<Self, Error> {
        let failed = |_| Error::new("an object is not what the compiler should have made");
        let elf = ElfBytes::<LittleEndian>::minimal_parse(object).map_err(failed)?;
        let mut symbols = Symbols {
            global: BTreeSet::new(),
            undefined: BTreeSet::new(),
            functions: Vec::new(),
        };
        let mut functions: BTreeMap<String, usize> = BTreeMap::new();
        let Some((table, names)) = elf.symbol_table().map_err(failed)? else {
            return Ok(symbols);
        };
        for symbol in table.iter() {
            let name = names.get(symbol.st_name as usize).map_err(failed)?;
            if name.is_empty() {
                continue;
            }
            if symbol.is_undefined() {
                symbols.undefined.insert(name.into());
                continue;
            }
            if symbol.st_bind() != elf::abi::STB_LOCAL {
                symbols.global.insert(name.into());
            }
            if symbol.st_symtype() == elf::abi::STT_FUNC {
                *functions.entry(name.into()).or_default() += 1;
            }
        }
        let once = functions.into_iter().filter(|(_, count)| *count == 1);
        symbols.functions = once.map(|(name, _)| name).collect();
        Ok(symbols)
    }
}

/// The table of the driver's functions, and the stubs.
fn assembly(functions: &[String], stubs: &BTreeSet<String>) -> String {
    let mut text = String::from(
        ".section .data.rel.ro, \"aw\"\n.balign 8\n.globl lx_symbols\n.hidden lx_symbols\nlx_symbols:\n",
    );
    for (number, name) in functions.iter().enumerate() {
        let _ = writeln!(text, ".quad {name}, .Lname{number}");
    }
    let count = functions.len();
    let _ = writeln!(
        text,
        ".globl lx_symbols_count\n.hidden lx_symbols_count\nlx_symbols_count: .quad {count}"
    );
    text.push_str(".section .rodata\n");
    for (number, name) in functions.iter().enumerate() {
        let _ = writeln!(text, ".Lname{number}: .asciz \"{name}\"");
    }
    for (number, name) in stubs.iter().enumerate() {
        let _ = writeln!(text, ".Lstub{number}: .asciz \"{name}\"");
    }
    text.push_str(".text\n");
    for (number, name) in stubs.iter().enumerate() {
        // Some stubs stand for data, of which a driver only takes the address.
        let _ = writeln!(
            text,
            ".globl {name}\n.hidden {name}\n.balign 16\n{name}:\nlea .Lstub{number}(%rip), %rdi\njmp lx_missing"
        );
    }
    text.push_str(".section .note.GNU-stack, \"\", @progbits\n");
    text
}

/// The data about itself that the program contains.
fn facts_of(driver: &Driver, service: &Service, ungranted: Ungranted) -> String {
    let module = driver.name.replace('-', "_");
    let parameter = match driver.parameter {
        "" => String::new(),
        parameter => format!("{module}.{parameter}"),
    };
    let (offered, memory, isa) = (service.name, service.memory, u8::from(service.isa));
    let ones = u8::from(ungranted == Ungranted::Ones);
    format!(
        ".text\n.globl lx_serve\n.hidden lx_serve\nlx_serve: jmp lx_serve_{offered}\n\
         .section .rodata\n.globl lx_parameter, lx_ones, lx_isa, lx_memory\n.hidden lx_parameter, lx_ones, lx_isa, lx_memory\n\
         lx_ones: .byte {ones}\n\
         lx_isa: .byte {isa}\n\
         .balign 8\nlx_memory: .quad {memory}\n\
         .data\nlx_parameter: .asciz \"{parameter}\"\n"
    )
}

/// A name for a file that is made of these parts.
fn key(parts: &[&[u8]]) -> String {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn make_directory(directory: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(directory)
        .map_err(|error| Error::new(format!("cannot make {}: {error}", directory.display())))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path)
        .map_err(|error| Error::new(format!("cannot read {}: {error}", path.display())))
}

fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    std::fs::write(path, content)
        .map_err(|error| Error::new(format!("cannot write {}: {error}", path.display())))
}
