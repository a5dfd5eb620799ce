//! Without the device authority there is no device.

use rt::abi::PAGE_SIZE;
use rt::obj::{Ref, Region};
use rt::start::{space, thread};
use rt::{sys, Code};

pub fn example() -> Result<(), Code> {
    // Boot gives the authority to the first program, which passes it on to the programs that need it. An ordinary
    // program has none: any other reference in its place is refused.
    let nothing = Ref::new()?;
    for authority in [nothing.at(), space(), thread()] {
        let authority = authority.handle();
        let keyboard = 1;
        assert_eq!(
            sys::device_attach_interrupt(authority, thread().handle(), keyboard),
            Code::Denied
        );
        let (first, count) = (0x60, 5);
        assert_eq!(
            sys::device_grant_ports(authority, space().handle(), first, count),
            Code::Denied
        );
        assert_eq!(
            sys::device_collocate(authority, space().handle(), 15),
            Code::Denied
        );
        let region = Region::new()?;
        assert_eq!(
            sys::device_map_physical(authority, region.handle(), 0xb8000, PAGE_SIZE),
            Code::Denied
        );
    }
    Ok(())
}
