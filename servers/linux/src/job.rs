//! Job control: processes that are stopped and go on, and the group that has the console.
//!
//! A stop signal marks the process (`stopped` of its entry in the table), tells its parent, and has whoever runs the processes hold its
//! threads still ([`System::take_halts`]); `SIGCONT` undoes that. Each tree has a foreground group once it has named one. Before
//! that all of its processes may use the console.

use alloc::vec::Vec;
use core::mem::take;
use linux_raw_sys::general as linux;
use services::console::Mode;
use services::process::Pid;

use crate::errno::{Errno, EPERM};
use crate::signal::{sig, Origin};
use crate::system::{Key, System, To, Which, CONSOLE_SESSION};
use crate::wire::u32_at;

/// What a parent has not been told yet of a child that lives: code and status of `siginfo`.
pub type News = (u32, u32);

impl System {
    /// A process is stopped by a signal. In a group that nobody could continue, only `SIGSTOP` does that.
    pub fn halt(&mut self, pid: Pid, signal: u32) {
        if signal != sig::STOP && self.is_orphaned(pid) {
            return;
        }
        let process = self.process(pid);
        if process.stopped.is_none() && process.status.is_none() {
            process.stopped = Some(signal);
            self.halts.push(pid);
            self.tell(pid, (linux::CLD_STOPPED, signal));
        }
    }

    /// A process goes on: whether it was stopped.
    pub fn go_on(&mut self, pid: Pid) -> bool {
        let was = self.process(pid).stopped.take().is_some();
        if was {
            self.tell(pid, (linux::CLD_CONTINUED, sig::CONT));
        }
        was
    }

    /// Processes that were stopped since.
    pub fn take_halts(&mut self) -> Vec<Pid> {
        take(&mut self.halts)
    }

    /// Tells the parent of a process.
    fn tell(&mut self, pid: Pid, news: News) {
        let process = self.process(pid);
        process.news = Some(news);
        let origin = Origin {
            code: news.0 as i32,
            pid: process.number,
            uid: process.ids.uid[0],
            status: news.1,
            ..Origin::default()
        };
        let Some(parent) = process.parent else { return };
        let wants = self.process(parent).actions.borrow().wants_stops();
        if wants {
            self.send(To::Process(parent), sig::CHLD, origin);
        }
        self.wake(Key::Children(parent));
    }

    /// A child of `of` that has been stopped, or continued, which `of` has not been told.
    #[must_use]
    pub fn child_with_news(&self, of: Pid, which: Which, codes: &[u32]) -> Option<(Pid, News)> {
        let own = self.find(of)?;
        own.children.iter().find_map(|pid| {
            let child = self.find(*pid)?;
            let news = child.news.filter(|(code, _)| codes.contains(code))?;
            which.is(child).then_some((*pid, news))
        })
    }

    /// Whether the group of a process has nobody outside of it, in its session, who could continue it. The shell that has
    /// started a tree stands outside of it.
    fn is_orphaned(&self, pid: Pid) -> bool {
        let Some(of) = self.find(pid) else {
            return true;
        };
        !self
            .those(pid, Which::Group(of.group))
            .iter()
            .any(|member| {
                let Some(process) = self.find(*member) else {
                    return false;
                };
                let parent = process.parent.and_then(|parent| self.find(parent));
                process.root == *member && process.session == CONSOLE_SESSION
                    || parent.is_some_and(|p| p.session == of.session && p.group != of.group)
            })
    }

    /// A parent has ended: those of its former children that are stopped, and that nobody can continue now, are told.
    pub(crate) fn leave_stopped(&mut self, children: &[Pid]) {
        for child in children {
            let stopped = self.find(*child).is_some_and(|p| p.stopped.is_some());
            if stopped && self.is_orphaned(*child) {
                for signal in [sig::HUP, sig::CONT] {
                    self.send(To::Process(*child), signal, Origin::kernel());
                }
            }
        }
    }

    /// The group that has the console, in the tree of this process: its own, if none was named.
    #[must_use]
    pub fn foreground(&self, pid: Pid) -> u32 {
        let own = self.find(pid);
        let named = own.and_then(|own| self.foregrounds.get(&own.root));
        named
            .copied()
            .unwrap_or_else(|| own.map_or(0, |own| own.group))
    }

    /// What was typed at the console while the tree of this process had it goes to the foreground group as a signal:
    /// whether it does. Ctrl-Z only if a program of the tree has named that group, and so has job control.
    pub fn typed(&mut self, pid: Pid, suspend: bool) -> bool {
        let named = self
            .find(pid)
            .is_some_and(|own| self.foregrounds.contains_key(&own.root));
        if suspend && !named {
            return false;
        }
        let signal = if suspend { sig::TSTP } else { sig::INT };
        let group = self.foreground(pid);
        let members = self.those(pid, Which::Group(group));
        for member in &members {
            self.send(To::Process(*member), signal, Origin::kernel());
        }
        !members.is_empty()
    }

    /// Names the group that has the console: one of the caller's session.
    pub fn set_foreground(&mut self, pid: Pid, group: u32) -> Result<(), Errno> {
        let root = self.find(pid).ok_or(EPERM)?.root;
        if !self.is_group_of_session(pid, group) {
            return Err(EPERM);
        }
        self.foregrounds.insert(root, group);
        self.wake(Key::Console);
        Ok(())
    }

    /// How the console is set for the tree of this process (`struct termios`), if one of its processes has set it. It is so
    /// for all of them, as of one terminal, and stays when that one has ended: the root's entry has it.
    #[must_use]
    pub fn console_settings(&self, pid: Pid) -> Option<&[u8]> {
        let root = self.find(pid)?.root;
        self.find(root)?.termios.as_deref()
    }

    /// Sets the console for the tree of a process.
    pub fn set_console(&mut self, pid: Pid, termios: Vec<u8>) {
        let Some(root) = self.find(pid).map(|own| own.root) else {
            return;
        };
        if self.find(root).is_some() {
            self.process(root).termios = Some(termios);
        }
        // Who reads it reads it in this way from now on.
        self.wake(Key::Console);
    }

    /// How these settings have input treated. Without lines nothing is shown, and every key is a byte.
    #[must_use]
    pub fn console_mode(settings: Option<&[u8]>) -> Mode {
        let Some(settings) = settings else {
            return Mode::Cooked;
        };
        let local = u32_at(settings, 12);
        match local {
            _ if local & linux::ICANON == 0 => Mode::Raw,
            _ if local & linux::ECHO == 0 => Mode::Quiet,
            _ => Mode::Cooked,
        }
    }

    /// Stops a process that is not of the foreground and uses the console: sends its group the signal. `None` if it may go
    /// on; errors: `EIO` if it cannot be stopped.
    pub fn check_foreground(
        &mut self,
        pid: Pid,
        signal: u32,
        ignores: bool,
    ) -> Option<Result<(), Errno>> {
        let own = self.find(pid)?;
        // To a session of its own the console is no terminal, and whatever is open may be used.
        let is_terminal = own.session == CONSOLE_SESSION;
        if !is_terminal || self.foreground(pid) == own.group {
            return None;
        }
        Some(self.stop_background(pid, signal, ignores))
    }

    /// Sends the group of a process a signal that is to stop it. Errors: `EIO` if it cannot be stopped.
    pub fn stop_background(&mut self, pid: Pid, signal: u32, ignores: bool) -> Result<(), Errno> {
        if ignores || self.is_orphaned(pid) {
            return Err(crate::errno::EIO);
        }
        let of = self.find(pid).ok_or(EPERM)?;
        self.signal_group(of.root, of.namespace, of.group, signal);
        Ok(())
    }

    /// Whether there is such a group in the session of a process.
    #[must_use]
    pub fn is_group_of_session(&self, pid: Pid, group: u32) -> bool {
        let Some(own) = self.find(pid) else {
            return false;
        };
        let members = self.those(pid, Which::Group(group));
        let is_member = |pid: &Pid| self.find(*pid).is_some_and(|p| p.session == own.session);
        members.iter().any(is_member)
    }
}
