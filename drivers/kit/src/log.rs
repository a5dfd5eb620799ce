//! Lines of the log, and the end of the program. `c/format.c` formats the lines of C code.
use crate::set::outside;
use core::ffi::{c_char, c_int};

/// `OSENV_LOG_ERR`.
pub(crate) const ERR: c_int = 3;
/// Lines at least as important as this go to the console; others are left out.
const SHOWN: c_int = 4;

/// Writes a line with the name of the driver.
pub(crate) fn say(priority: c_int, text: &str) {
    if priority > SHOWN || text.is_empty() {
        return;
    }
    outside(|| {
        let name = rt::start()
            .args
            .first()
            .map_or("driver", |name| name.as_str());
        rt::log!("{name}: {text}");
    });
}

/// Ends the program, with a line that says why.
pub(crate) fn panic(why: &str) -> ! {
    say(0, why);
    rt::process::exit(101)
}

/// # Safety
/// `length` bytes are readable at `text`.
unsafe fn text<'a>(text: *const c_char, length: usize) -> &'a str {
    // SAFETY: as the caller says.
    let bytes = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), length) };
    let valid = core::str::from_utf8(bytes);
    valid.unwrap_or("(no text)").trim_end()
}

/// Writes a line that `osenv_vlog` (A.8.1) has formatted.
#[no_mangle]
extern "C" fn osenv_log_text(priority: c_int, line: *const c_char, length: usize) {
    // SAFETY: `format.c` calls it with its own buffer.
    say(priority, unsafe { text(line, length) });
}

/// Ends the driver with a line that `osenv_vpanic` (A.9.1) has formatted.
#[no_mangle]
extern "C" fn osenv_panic_text(line: *const c_char, length: usize) -> ! {
    // SAFETY: as above.
    panic(unsafe { text(line, length) })
}
