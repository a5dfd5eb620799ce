//! What happens when a program panics: a line for people, and exit status 101.
use crate::sync::Mutex;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

static PANICKING: AtomicBool = AtomicBool::new(false);

/// Called instead of logging the panic, for a program that must not rely on other servers.
static HOOK: Mutex<Option<fn(&PanicInfo<'_>)>> = Mutex::new(None);

/// Makes panics call this before the program ends.
pub fn set_hook(hook: fn(&PanicInfo<'_>)) {
    *HOOK.lock() = Some(hook);
}

/// Whether the program panics.
pub(crate) fn is_panicking() -> bool {
    PANICKING.load(Ordering::Acquire)
}

/// Called by the panic handler that [`crate::program!`] makes.
pub fn panic(info: &PanicInfo<'_>) -> ! {
    // A panic during a panic must not recurse for ever.
    if !PANICKING.swap(true, Ordering::AcqRel) {
        let hook = *HOOK.lock();
        match hook {
            Some(hook) => hook(info),
            None => {
                let name = crate::start()
                    .args
                    .first()
                    .map_or("program", |name| name.as_str());
                crate::log!("{name}: {info}");
            }
        }
    }
    crate::process::exit(101)
}
