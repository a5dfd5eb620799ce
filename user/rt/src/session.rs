//! Sessions with the services that every program uses. They are opened when they are first needed, and again when their
//! port is dead, since the program was restored and its services are others.
use crate::obj::{Ref, RefAt};
use crate::sync::{Lazy, Mutex};
use interface::Session;
use proto::Error;

/// How long to wait until a service is registered, in nanoseconds.
const PATIENCE: u64 = 5_000_000_000;

/// How often in a row a program may be restored before a request is answered; then the request fails.
pub(crate) const RESTORES: u32 = 1000;

/// Where sessions with a service are opened.
pub(crate) struct Door {
    name: &'static str,
    /// The door, and the port that the program presents as its own.
    found: Lazy<(Ref, RefAt)>,
}

impl Door {
    pub(crate) const fn new(name: &'static str) -> Self {
        Door {
            name,
            found: Lazy::new(),
        }
    }

    /// Sets the door in a program that has no name service, with the port that the program presents.
    pub(crate) fn set(&self, door: Ref, own: RefAt) {
        self.found.set((door, own));
    }

    fn get(&self) -> Result<&'static (Ref, RefAt), Error> {
        self.found.get(|| {
            let door = crate::names::wait_for(self.name, crate::time::now() + PATIENCE)?;
            Ok((door, crate::start::names()))
        })
    }
}

/// A session of the program, as a client of this type.
pub(crate) struct Kept<C: 'static> {
    door: &'static Door,
    open: fn(&RefAt, RefAt) -> Result<C, Error>,
    session: fn(&C) -> &Session,
    client: Mutex<Option<C>>,
}

impl<C> Kept<C> {
    pub(crate) const fn new(
        door: &'static Door,
        open: fn(&RefAt, RefAt) -> Result<C, Error>,
        session: fn(&C) -> &Session,
    ) -> Self {
        Kept {
            door,
            open,
            session,
            client: Mutex::new(None),
        }
    }

    /// Makes a request in the session. Opens the session if there is none, or if its port is dead.
    pub(crate) fn ask<T>(
        &self,
        mut request: impl FnMut(&mut C) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut client = self.client.lock();
        for _ in 0..RESTORES {
            let known = match client.as_mut() {
                Some(known) => known,
                None => {
                    let (door, own) = self.door.get()?;
                    client.insert((self.open)(door, *own)?)
                }
            };
            match request(known) {
                Err(Error::Broken) if (self.session)(known).is_gone() => *client = None,
                result => return result,
            }
        }
        Err(Error::Broken)
    }
}
