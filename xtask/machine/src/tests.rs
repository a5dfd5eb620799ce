//! Runs real machines with a kernel of a few instructions, written here by hand: it replays a list
//! of bytes to ports, so that each test can play the guest's part of the contract.

use super::*;

const COM1: u16 = 0x3f8;
const COM2: u16 = 0x2f8;
const DEBUG_EXIT: u16 = 0xf4;
/// Not a port: wait for a byte on COM1 and echo it.
const ECHO: u16 = 0;

/// A kernel that writes each byte to its port, and then loops for ever.
fn kernel(writes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    const LOAD: u32 = 0x10_0000;
    const HEADERS: u32 = 64 + 2 * 56;
    let records: Vec<(u16, u8)> = writes
        .iter()
        .flat_map(|(port, bytes)| bytes.iter().map(|byte| (*port, *byte)))
        .collect();

    let mut code = Vec::new();
    code.push(0xbe); // mov esi, records
    code.extend((LOAD + HEADERS + 20 + 44).to_le_bytes());
    code.push(0xb9); // mov ecx, number of records
    code.extend(u32::try_from(records.len()).unwrap().to_le_bytes());
    code.extend([0x66, 0x8b, 0x16]); // next: mov dx, [esi]
    code.extend([0x8a, 0x46, 0x02]); // mov al, [esi + 2]
    code.extend([0x83, 0xc6, 0x03]); // add esi, 3
    code.extend([0x66, 0x85, 0xd2]); // test dx, dx
    code.extend([0x75, 0x0e]); // jnz out
    code.extend([0x66, 0xba, 0xfd, 0x03]); // mov dx, COM1 line status
    code.extend([0xec, 0xa8, 0x01, 0x74, 0xfb]); // wait: in al, dx; test al, 1; jz wait
    code.extend([0x66, 0xba, 0xf8, 0x03, 0xec]); // mov dx, COM1; in al, dx
    code.extend([0xee, 0x49, 0x75, 0xe0]); // out: out dx, al; dec ecx; jnz next
    code.extend([0xeb, 0xfe]); // jmp to itself
    assert_eq!(code.len(), 44);
    for (port, byte) in records {
        code.extend(port.to_le_bytes());
        code.push(byte);
    }

    let mut elf = Vec::new();
    elf.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    elf.extend([2, 0, 62, 0, 1, 0, 0, 0]); // an executable for x86-64
    for word in [u64::from(LOAD + HEADERS + 20), 64, 0] {
        elf.extend(word.to_le_bytes()); // entry, program headers, no sections
    }
    elf.extend([0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 64, 0, 0, 0, 0, 0]);
    let size = u64::from(HEADERS) + 20 + code.len() as u64;
    let load = u64::from(LOAD);
    for (kind, offset, address, size) in [
        (1u32, 0, load, size),
        (4, u64::from(HEADERS), load + u64::from(HEADERS), 20),
    ] {
        elf.extend(kind.to_le_bytes());
        elf.extend(7u32.to_le_bytes());
        for word in [offset, address, address, size, size, 4] {
            elf.extend(word.to_le_bytes());
        }
    }
    for word in [4u32, 4, 18] {
        elf.extend(word.to_le_bytes()); // a note of Xen's: where PVH enters
    }
    elf.extend(b"Xen\0");
    elf.extend((LOAD + HEADERS + 20).to_le_bytes());
    elf.extend(code);
    elf
}

#[derive(Default)]
struct Recorder {
    shown: Vec<u8>,
    events: Vec<Event>,
    to_type: Vec<u8>,
}

impl Operator for Recorder {
    fn console(&mut self, bytes: &[u8]) -> bool {
        self.shown.extend_from_slice(bytes);
        true
    }
    fn event(&mut self, event: &Event) {
        self.events.push(Event::Log(format!("{event:?}")));
    }
    fn typed(&mut self) -> Typed {
        Typed::Bytes(std::mem::take(&mut self.to_type))
    }
}

fn run_with(
    writes: &[(u16, Vec<u8>)],
    change: impl FnOnce(&mut Options),
    to_type: &[u8],
) -> (End, Recorder) {
    let images = Images::of_kernel(Config::DEFAULT, kernel(writes));
    let mut options = Options::new(Config::DEFAULT);
    options.memory = 64;
    options.timeout = Some(Duration::from_secs(60));
    change(&mut options);
    let mut recorder = Recorder {
        to_type: to_type.to_vec(),
        ..Recorder::default()
    };
    let end = run(&images, &options, &mut recorder).unwrap();
    (end, recorder)
}

/// A name with a colon is that of a file, not of a protocol of QEMU.
#[test]
fn a_disk_is_a_file_whatever_its_name() {
    let here = std::env::current_dir().unwrap();
    for (name, expected) in [
        ("a:b", format!("{}/a:b", here.display())),
        ("nbd:c,d", format!("{}/nbd:c,,d", here.display())),
        ("/tmp/a:b", "/tmp/a:b".into()),
    ] {
        // What a user's disk has flushed is on the host's disk; a test's need not be.
        for (of_a_test, cache) in [(false, ""), (true, ",cache=unsafe")] {
            let mut options = Options::new(Config::DEFAULT);
            options.disk = Some(name.into());
            options.disk_of_a_test = of_a_test;
            let file = Path::new("/file");
            let command = qemu(&options, file, file, file, None);
            let drive = format!("file={expected},format=raw{cache},if=none,id=disk");
            let mut arguments = command.get_args();
            assert!(
                arguments.any(|argument| argument == drive.as_str()),
                "{drive}"
            );
        }
    }
}

#[test]
fn console_and_status_come_through() {
    for deterministic in [false, true] {
        let writes = [
            (COM1, b"hello\n\xff\0".to_vec()),
            (COM2, b"file /x 3\na\nbexit 200\n".to_vec()),
            (DEBUG_EXIT, vec![0]),
        ];
        let (end, recorder) = run_with(
            &writes,
            |options| options.deterministic = deterministic,
            b"",
        );
        assert_eq!(end, End::Exit(200));
        assert_eq!(recorder.shown, b"hello\n\xff\0");
        assert_eq!(recorder.events.len(), 2);
    }
}

#[test]
fn a_long_output_is_complete() {
    let text: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
    let writes = [
        (COM1, text.clone()),
        (COM2, b"exit 0\n".to_vec()),
        (DEBUG_EXIT, vec![0]),
    ];
    let (end, recorder) = run_with(&writes, |_| (), b"");
    assert_eq!(end, End::Exit(0));
    assert!(recorder.shown == text);
}

#[test]
fn a_panic_is_status_125_with_its_message() {
    let writes = [
        (COM2, b"log x\npanic too bad\npanic at line 1\n".to_vec()),
        (DEBUG_EXIT, vec![63]),
    ];
    let (end, _) = run_with(&writes, |_| (), b"");
    assert_eq!(end.status(), BROKEN);
    let End::Broken(lines) = end else {
        panic!("{end:?}")
    };
    assert_eq!(lines, ["the machine panicked: too bad", "at line 1"]);
}

#[test]
fn a_machine_that_stops_without_a_word_is_broken() {
    let (end, _) = run_with(&[(DEBUG_EXIT, vec![0])], |_| (), b"");
    assert_eq!(end.status(), BROKEN);
    // A byte to the keyboard controller resets the processor.
    let (end, _) = run_with(&[(0x64, vec![0xfe])], |_| (), b"");
    assert_eq!(end.status(), BROKEN);
}

#[test]
fn a_machine_that_hangs_times_out() {
    let start = std::time::Instant::now();
    // A busy host takes seconds to start QEMU, and the output must be seen before the time is up.
    let (end, recorder) = run_with(
        &[(COM1, b"on".to_vec())],
        |options| options.timeout = Some(Duration::from_secs(10)),
        b"",
    );
    assert_eq!(end.status(), TIMED_OUT);
    assert_eq!(recorder.shown, b"on");
    assert!(start.elapsed() < Duration::from_secs(120));
}

#[test]
fn what_is_typed_arrives_after_ready() {
    let typed = b"The quick brown fox jumps over the lazy dog.\n".repeat(20);
    let writes = [
        (COM2, b"ready\n".to_vec()),
        (ECHO, vec![0; typed.len()]),
        (COM2, b"exit 3\n".to_vec()),
        (DEBUG_EXIT, vec![0]),
    ];
    let (end, recorder) = run_with(&writes, |_| (), &typed);
    assert_eq!(end, End::Exit(3));
    assert!(recorder.shown == typed);
}
