//! What happens when a program panics: a line for people, and exit status 101.
use core::sync::atomic::{AtomicBool, Ordering};

static PANICKING: AtomicBool = AtomicBool::new(false);

/// Called by the panic handler that [`crate::program!`] makes.
pub fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    // A panic while panicking must not go round for ever.
    if !PANICKING.swap(true, Ordering::AcqRel) {
        let name = crate::start()
            .args
            .first()
            .map_or("program", |name| name.as_str());
        crate::log!("{name}: {info}");
    }
    crate::process::exit(101)
}
