//! Calls of a service through its interface: the additional cost of proxy and stub over the RPC.
//!
//! Client and server are two threads of one program, as compiled.
use crate::loops;
use crate::report::{Outcome, Report, Sample};
use crate::run::Must;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use core::hint::black_box;
use interface::{interface, Error, Object, Own, Server};
use rt::obj::Ref;
use rt::sync::Mutex;

/// Calls of a pass.
const MANY: u64 = 2000;
/// Bytes of one read.
const BYTES: usize = 4096;

/// The data that is read, and its destination: one page on either side. The address of a buffer of the heap, and how
/// many pages it touches, would change with the program.
#[repr(C, align(4096))]
struct Page([u8; BYTES]);

/// The interface that is measured.
#[interface]
pub trait Measured {
    /// Nothing. Errors: none of its own. May be repeated.
    fn nothing(&self) -> Result<(), Error>;
    /// Three words there and three back, with the first word of request and reply 32 bytes each: 1 is added to the
    /// first. Errors: none of its own. May be repeated.
    fn words(&self, a: u64, b: u64, c: u64) -> Result<(u64, u64, u64), Error>;
    /// Could wait, but does not. Errors: none of its own. May be repeated.
    async fn at_once(&self) -> Result<(), Error>;
    /// Bytes. Errors: `Invalid` behind the end. May be repeated.
    fn read(&self, offset: u64) -> Result<Bytes, Error>;
}

struct Data(Rc<Page>);

impl Object for Data {}

impl Measured for Data {
    fn nothing(&self) -> Result<(), Error> {
        Ok(())
    }

    fn words(&self, a: u64, b: u64, c: u64) -> Result<(u64, u64, u64), Error> {
        Ok((a.wrapping_add(1), b, c))
    }

    async fn at_once(&self) -> Result<(), Error> {
        Ok(())
    }

    fn read(
        &self,
        offset: u64,
        room: usize,
    ) -> Result<impl core::ops::Deref<Target = [u8]>, Error> {
        let start = usize::try_from(offset).map_err(|_| Error::Invalid)?;
        let bytes = self.0 .0.get(start..).ok_or(Error::Invalid)?;
        Ok(&bytes[..room.min(bytes.len())])
    }
}

/// Runs the benchmarks that the report asks for. False if one failed.
pub fn all(report: &Report) -> bool {
    let mut good = report.bench("interface_rpc_0", "rpc", || {
        measure((), |client, ()| client.nothing(), |()| true)
    });
    good &= report.bench("interface_rpc_32", "rpc", || {
        measure(
            (0, 2, 3),
            |client, (a, b, c)| client.words(a, b, c),
            |last| last == (2 * MANY, 2, 3),
        )
    });
    good &= report.bench("interface_async_0", "rpc", || {
        measure((), |client, ()| client.at_once(), |()| true)
    });
    good &= report.bench("interface_direct_0", "call", direct);
    let mut into = Box::new(Page([0; BYTES]));
    good &= report.bench("interface_read_4096", "rpc", || {
        measure(
            BYTES,
            |client, _| client.read(0, &mut into.0),
            |last| last == BYTES,
        )
    });
    good
}

/// The same source, with an object in the program.
fn direct() -> Outcome {
    let own = Own::new(Data(Rc::new(Page([7; BYTES]))));
    let mut object: Box<dyn MeasuredCalls> = black_box(Box::new(own));
    let good = loops::stretch(|| (0..MANY).try_for_each(|_| object.nothing()));
    good.must("a call")?;
    Ok(Sample::of_block(MANY))
}

fn start() -> Result<Ref, alloc::string::String> {
    let door = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&door);
    rt::thread::spawn(move || {
        let data = Rc::new(Page([7; BYTES]));
        let make = move |_: &interface::server::Visitor| Ok(MeasuredStub(Data(Rc::clone(&data))));
        if let Ok(server) = Server::new(make) {
            *tell.lock() = server.door().reference().ok();
            server.run();
        }
    })
    .must("a thread")?;
    for _ in 0..1000 {
        if let Some(door) = door.lock().take() {
            return Ok(door);
        }
        rt::time::sleep(100_000);
    }
    Err("the server does not start".into())
}

/// Measures a call whose argument is the previous result.
#[inline(always)]
fn measure<T: Copy>(
    first: T,
    mut call: impl FnMut(&mut MeasuredClient, T) -> Result<T, Error>,
    good: impl FnOnce(T) -> bool,
) -> Outcome {
    let door = start()?;
    let mut client = MeasuredClient::open(&door).must("a session")?;
    let mut last = Ok(first);
    for _ in 0..MANY {
        last = call(&mut client, last.must("a call")?);
    }
    let last = loops::stretch(|| {
        let mut last = last?;
        // Other code could reach a client's session.
        let client = black_box(&mut client);
        for _ in 0..MANY {
            last = call(client, last)?;
        }
        Ok::<_, Error>(last)
    });
    match good(last.must("a call")?) {
        true => Ok(Sample::of_block(MANY)),
        false => Err("not what was to come back".into()),
    }
}
