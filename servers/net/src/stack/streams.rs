//! Connections: listening, connecting, reading, writing, closing.

use super::{
    one_of, place, refusal, stream, Closing, Done, Entry, Handle, Holder, Id, Socket, Stack, Which,
    CHARGE, CLOSING, CLOSING_MOST, HALF_CLOSED, HALF_OPEN, SILENCE, TELLING,
};
use alloc::vec;
use alloc::vec::Vec;
use core::task::Waker;
use services::net::{Kind, Place, BACKLOG};
use smoltcp::socket::tcp;

impl Stack {
    /// Ends closed connections that are over or take too long, and has sockets listen again whose connection was never
    /// established.
    pub(super) fn tend(&mut self) {
        let mut index = 0;
        while index < self.closing.len() {
            let Closing {
                at,
                until,
                confirmed,
                ..
            } = self.closing[index];
            let now = self.now;
            let socket = self.tcp(at);
            match socket.state() {
                tcp::State::Closed => {
                    // The stack forgets the other end when that has been told, for which there may be no room in this
                    // turn.
                    if socket.remote_endpoint().is_none() || until <= now {
                        self.forget_closing(index);
                        continue;
                    }
                    self.closing[index].until = until.min(now.saturating_add(TELLING));
                }
                _ if until <= now => self.give_up(index),
                tcp::State::FinWait2 if !confirmed => {
                    let closing = &mut self.closing[index];
                    closing.confirmed = true;
                    closing.until = until.min(now.saturating_add(HALF_CLOSED));
                }
                _ => {}
            }
            index += 1;
        }
        let given_up =
            [&mut self.wire, &mut self.own].map(|net| net.queue.segments.take_given_up());
        for entry in self.entries.values() {
            let (Socket::Listening { ready }, Some(port)) = (&entry.socket, entry.port) else {
                continue;
            };
            for (which, handle) in ready {
                let net = one_of((&mut self.wire, &mut self.own), *which);
                let socket: &mut tcp::Socket<'_> = net.sockets.get_mut(*handle);
                let ends = socket.local_endpoint().zip(socket.remote_endpoint());
                if ends.is_some_and(|ends| given_up[*which as usize].contains(&ends)) {
                    socket.abort();
                }
                if socket.state() == tcp::State::Closed {
                    let _ = socket.listen(port);
                    socket.set_timeout(Some(HALF_OPEN));
                }
            }
        }
        let confirmed =
            [&mut self.wire, &mut self.own].map(|net| net.queue.segments.take_confirmed());
        if confirmed.iter().any(|all| !all.is_empty()) {
            for entry in self.entries.values_mut() {
                if let Socket::Stream {
                    at: (which, _),
                    ends: Some(ends),
                    confirmed: is_confirmed,
                    ..
                } = &mut entry.socket
                {
                    *is_confirmed |= confirmed[*which as usize].contains(ends);
                }
            }
        }
        self.keep_rests();
        if self.making.is_empty() {
            return;
        }
        let making = core::mem::take(&mut self.making);
        for id in making {
            let at = match self.entries.get(&id) {
                Some(Entry {
                    socket:
                        Socket::Stream {
                            at, made: false, ..
                        },
                    ..
                }) => *at,
                _ => continue,
            };
            match self.tcp(at).state() {
                tcp::State::SynSent | tcp::State::SynReceived => {
                    self.making.insert(id);
                }
                tcp::State::Closed => {}
                _ => {
                    self.tcp(at).set_timeout(Some(SILENCE));
                    if let Some(Entry {
                        socket: Socket::Stream { made, .. },
                        ..
                    }) = self.entries.get_mut(&id)
                    {
                        *made = true;
                    }
                }
            }
        }
    }

    /// Moves what has come over connections that both ends have ended out of the stack's buffers, as far as there is
    /// memory; if there is not, the next turn tries again.
    fn keep_rests(&mut self) {
        for entry in self.entries.values_mut() {
            let Socket::Stream {
                at: (which, handle),
                confirmed: true,
                rest: rest @ None,
                ..
            } = &mut entry.socket
            else {
                continue;
            };
            let net = one_of((&mut self.wire, &mut self.own), *which);
            let socket: &mut tcp::Socket<'_> = net.sockets.get_mut(*handle);
            let size = socket.recv_queue();
            let is_over = socket.state() == tcp::State::TimeWait;
            if !is_over || (self.options.reserve)(size as u64).is_err() {
                continue;
            }
            let mut bytes = vec![0; size];
            let taken = socket.recv_slice(&mut bytes).unwrap_or(0);
            bytes.truncate(taken);
            *rest = Some(bytes);
        }
    }

    /// Makes a socket listen, with sockets of the stack for up to `backlog` connections on each network.
    pub(crate) fn listen(&mut self, id: Id, backlog: u64) -> Done<()> {
        if !(1..=BACKLOG).contains(&backlog) {
            return Err(refusal::BACKLOG);
        }
        let entry = self.entry(id)?;
        let Socket::Idle = entry.socket else {
            return Err(refusal::KIND);
        };
        let (job, port) = (entry.holder.job, entry.port.ok_or(refusal::UNBOUND)?);
        let count = 2 * backlog as usize;
        self.charge(job, count)?;
        let ready = (0..count).map(|n| self.listener([Which::Wire, Which::Own][n % 2], port));
        let ready = ready.collect();
        self.entry(id)?.socket = Socket::Listening { ready };
        Ok(())
    }

    /// Makes a socket of the stack that waits for a connection.
    pub(super) fn listener(&mut self, which: Which, port: u16) -> Handle {
        let mut socket = stream();
        // Cannot fail: the socket is new, and the port is not 0.
        let _ = socket.listen(port);
        socket.set_timeout(Some(HALF_OPEN));
        (which, self.net(which).sockets.add(socket))
    }

    /// Accepts a connection that has come to a listening socket. Returns its socket, and the other end.
    pub(crate) fn accept(&mut self, id: Id) -> Done<(Id, Place)> {
        let entry = self.entry(id)?;
        let (holder, port) = (entry.holder, entry.port.unwrap_or(0));
        let Socket::Listening { ready } = &entry.socket else {
            return Err(refusal::KIND);
        };
        let ready = ready.clone();
        let mut came = ready.into_iter().enumerate();
        let came = came.find(|(_, at)| has_come(self.tcp(*at)));
        let (index, at) = came.ok_or(refusal::WAIT)?;
        self.charge(holder.job, 1)?;
        let next = self.listener(at.0, port);
        if let Socket::Listening { ready } = &mut self.entry(id)?.socket {
            ready[index] = next;
        }
        let socket = self.tcp(at);
        socket.set_timeout(Some(SILENCE));
        let from = place(socket.remote_endpoint());
        let socket = Socket::Stream {
            at,
            made: true,
            shut: false,
            ends: socket.local_endpoint().zip(socket.remote_endpoint()),
            confirmed: false,
            rest: None,
        };
        // The port belongs to the listening socket.
        Ok((self.add(holder, None, socket), from))
    }

    /// Begins to connect to `to`.
    pub(crate) fn connect(&mut self, id: Id, to: Place) -> Done<()> {
        let entry = self.entry(id)?;
        let Socket::Idle = entry.socket else {
            return Err(refusal::KIND);
        };
        let which = self.way(to.address);
        let to = self.check_way(which, to)?;
        // The memory was reserved when the socket was opened, and may be used by somebody else.
        (self.options.reserve)(CHARGE).map_err(|_| refusal::MEMORY)?;
        let port = match self.entry(id)?.port {
            Some(port) => port,
            None => self.take_port(Kind::Stream, 0)?,
        };
        self.entry(id)?.port = Some(port);
        let mut socket = stream();
        let context = self.net(which).interface.context();
        socket
            .connect(context, to, port)
            .map_err(|_| refusal::NOWHERE)?;
        let ends = socket.local_endpoint().zip(socket.remote_endpoint());
        let at = (which, self.net(which).sockets.add(socket));
        self.entry(id)?.socket = Socket::Stream {
            at,
            made: false,
            shut: false,
            ends,
            confirmed: false,
            rest: None,
        };
        self.making.insert(id);
        self.net(which).changed = true;
        Ok(())
    }

    /// The connection's socket of the stack, whether the connection was ever established, and whether this end has
    /// ended its output.
    pub(crate) fn stream(&mut self, id: Id) -> Done<(Handle, bool, bool)> {
        match self.entry(id)?.socket {
            Socket::Stream { at, made, shut, .. } => Ok((at, made, shut)),
            _ => Err(refusal::KIND),
        }
    }

    /// Takes bytes that have come over a connection, none at its end. `WAIT` if there are none yet.
    pub(crate) fn read(&mut self, id: Id, most: u64) -> Done<Vec<u8>> {
        let (at, made, _) = self.stream(id)?;
        if let Socket::Stream {
            rest: Some(rest), ..
        } = &self.entry(id)?.socket
        {
            let size = rest.len().min(most.try_into().unwrap_or(usize::MAX));
            self.room_to_give(size)?;
            let Socket::Stream {
                rest: Some(rest), ..
            } = &mut self.entry(id)?.socket
            else {
                return Err(refusal::KIND);
            };
            return Ok(rest.drain(..size).collect());
        }
        let socket = self.tcp(at);
        let size = socket
            .recv_queue()
            .min(most.try_into().unwrap_or(usize::MAX));
        self.room_to_give(size)?;
        let socket = self.tcp(at);
        let state = socket.state();
        let mut bytes = Vec::with_capacity(size);
        let mut result = Ok(());
        // The bytes at the end of the ring buffer, and then those at its beginning.
        while bytes.len() < size && result.is_ok() {
            result = socket.recv(|came| {
                let taken = came.len().min(size - bytes.len());
                bytes.extend_from_slice(&came[..taken]);
                (taken, ())
            });
        }
        if size == 0 {
            result = socket.recv(|_| (0, ()));
        }
        match result {
            Ok(()) if bytes.is_empty() && most > 0 => match made {
                false if state == tcp::State::Closed => Err(refusal::REFUSED),
                _ => Err(refusal::WAIT),
            },
            Ok(()) => {
                self.net(at.0).changed = true;
                Ok(bytes)
            }
            Err(tcp::RecvError::Finished) => Ok(Vec::new()),
            Err(tcp::RecvError::InvalidState) => Err(match (state, made) {
                (tcp::State::Closed, false) => refusal::REFUSED,
                (tcp::State::Closed, true) => refusal::RESET,
                _ => refusal::WAIT,
            }),
        }
    }

    /// Writes to a connection. Returns how many bytes were taken.
    pub(crate) fn write(&mut self, id: Id, bytes: &[u8]) -> Done<u64> {
        let (at, made, shut) = self.stream(id)?;
        if shut {
            return Err(refusal::SHUT);
        }
        let socket = self.tcp(at);
        let state = socket.state();
        match socket.send_slice(bytes) {
            Ok(0) if !bytes.is_empty() => Err(refusal::WAIT),
            Ok(taken) => {
                self.net(at.0).changed = true;
                Ok(taken as u64)
            }
            Err(tcp::SendError::InvalidState) => Err(match (state, made) {
                (tcp::State::Closed, false) => refusal::REFUSED,
                (tcp::State::SynSent | tcp::State::SynReceived, _) => refusal::WAIT,
                _ => refusal::RESET,
            }),
        }
    }

    /// Ends the output of a connection.
    pub(crate) fn shut(&mut self, id: Id) -> Done<()> {
        let (at, made, _) = self.stream(id)?;
        if !made {
            return Err(refusal::WAIT);
        }
        self.tcp(at).close();
        self.net(at.0).changed = true;
        if let Socket::Stream { shut, .. } = &mut self.entry(id)?.socket {
            *shut = true;
        }
        Ok(())
    }

    /// Whether the other end has confirmed all that was written and, after [`Stack::shut`], the end of the output. If
    /// not, the waker is woken when it has confirmed more.
    pub(crate) fn sent(&mut self, id: Id, waker: &Waker) -> Done<bool> {
        let Socket::Stream { at, confirmed, .. } = self.entry(id)?.socket else {
            return Err(refusal::KIND);
        };
        let socket = self.tcp(at);
        socket.register_send_waker(waker);
        let is_all = socket.send_queue() == 0;
        match socket.state() {
            // The buffer is empty after a reset too, so only a confirmation that came before says that all has arrived.
            tcp::State::Closed if !confirmed => Err(refusal::RESET),
            // The end of the output is not confirmed yet.
            tcp::State::FinWait1 | tcp::State::Closing | tcp::State::LastAck => Ok(false),
            _ => Ok(is_all),
        }
    }

    /// Closes a connection. It is over some time later; at once if none was made or if this is `hard`.
    pub(super) fn close_stream(
        &mut self,
        (holder, at): (Holder, Handle),
        port: Option<u16>,
        hard: bool,
    ) {
        let socket = self.tcp(at);
        match socket.is_listening() || hard {
            true => socket.abort(),
            false => socket.close(),
        }
        self.room_to_close(holder);
        let until = self.now.saturating_add(CLOSING);
        self.closing.push(Closing {
            holder,
            at,
            port,
            until,
            confirmed: false,
        });
    }

    /// Makes room for another closed connection of this holder: resets or forgets one if there are as many as there may
    /// be.
    fn room_to_close(&mut self, holder: Holder) {
        let mut all = Vec::with_capacity(self.closing.len());
        for index in 0..self.closing.len() {
            let Closing { holder, at, .. } = self.closing[index];
            all.push((index, holder.party(), self.tcp(at).state()));
        }
        // Connections that were given up go when their other ends have been told, unless there are too many of them.
        let given_up = all.iter().find(|(.., state)| *state == tcp::State::Closed);
        if let Some((index, ..)) = given_up.filter(|_| all.len() >= 2 * CLOSING_MOST) {
            return self.forget_closing(*index);
        }
        all.retain(|(.., state)| *state != tcp::State::Closed);
        if all.len() < CLOSING_MOST {
            return;
        }
        // Connections in TIME-WAIT go first: no other end has to be told.
        if let Some((index, ..)) = all
            .iter()
            .find(|(.., state)| *state == tcp::State::TimeWait)
        {
            return self.forget_closing(*index);
        }
        // Then one of the party that has most, so that what other parties have sent and closed is not lost for it.
        // Among equals that is the party of `holder`, then the one that has closed first.
        let count = |party| all.iter().filter(|(_, its, _)| *its == party).count();
        let parties = all.iter().rev().map(|(_, its, _)| *its);
        let most = parties.max_by_key(|its| (count(*its), *its == holder.party()));
        if let Some((index, ..)) = all.iter().find(|(_, its, _)| Some(*its) == most) {
            self.give_up(*index);
        }
    }

    /// Gives up a connection that is being closed; the other end is told in the next turns.
    fn give_up(&mut self, index: usize) {
        let closing = &mut self.closing[index];
        closing.until = self.now.saturating_add(TELLING);
        let at = closing.at;
        self.tcp(at).abort();
        self.net(at.0).changed = true;
    }

    /// Removes a closed connection that is over. The others stay in the order in which they were closed.
    fn forget_closing(&mut self, index: usize) {
        let Closing { at, port, .. } = self.closing.remove(index);
        self.net(at.0).sockets.remove(at.1);
        self.free_port(Kind::Stream, port);
    }
}

/// Whether a connection has come to a listening socket.
pub(super) fn has_come(socket: &tcp::Socket<'_>) -> bool {
    socket.may_recv() || socket.may_send() || socket.can_recv()
}
