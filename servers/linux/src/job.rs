//! Job control: stopping and continuing processes, and the foreground group of the console.
//!
//! A stop signal marks the process (`stopped` of its entry in the table), notifies its parent, and has the server stop
//! its threads ([`System::take_halts`]); `SIGCONT` undoes that. A tree has a foreground group once it has named one.
//! Before that all of its processes may use the console.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem::take;
use linux_raw_sys::general as linux;
use services::console::Mode;
use services::process::Pid;

use crate::errno::{Errno, EPERM};
use crate::signal::{sig, Origin};
use crate::system::{Key, System, To, Which, CONSOLE_SESSION};
use crate::wire::u32_at;

/// A child's stop or continuation of which its parent has not been notified: `si_code` and `si_status` of `siginfo`.
pub type News = (u32, u32);

impl System {
    /// Stops a process by a signal. In an orphaned group only `SIGSTOP` stops.
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

    /// Continues a process; returns whether it was stopped.
    pub fn go_on(&mut self, pid: Pid) -> bool {
        let was = self.process(pid).stopped.take().is_some();
        if was {
            self.tell(pid, (linux::CLD_CONTINUED, sig::CONT));
        }
        was
    }

    /// Takes the processes that were stopped since the last call.
    pub fn take_halts(&mut self) -> Vec<Pid> {
        take(&mut self.halts)
    }

    /// Notifies the parent of a process: records the news, sends `SIGCHLD` if the parent wants it for stops, and wakes
    /// its waits.
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

    /// A child of `of` whose stop or continuation has not been reported to `of` yet; `codes` are the `si_code`s that
    /// count.
    #[must_use]
    pub fn child_with_news(&self, of: Pid, which: Which, codes: &[u32]) -> Option<(Pid, News)> {
        let own = self.find(of)?;
        own.children.iter().find_map(|pid| {
            let child = self.find(*pid)?;
            let news = child.news.filter(|(code, _)| codes.contains(code))?;
            which.is(child).then_some((*pid, news))
        })
    }

    /// Whether the process group of a process is orphaned: it has no parent outside the group, in the same session,
    /// that could continue it. The shell is such a parent for the root of a tree.
    fn is_orphaned(&self, pid: Pid) -> bool {
        let Some(of) = self.find(pid) else {
            return true;
        };
        !self
            .those(pid, Which::Group(of.group))
            .iter()
            .any(|member| {
                // One that has ended, and that nobody has waited for yet, continues nobody.
                let process = self.find(*member).filter(|one| one.status.is_none());
                let Some(process) = process else {
                    return false;
                };
                let parent = process.parent.and_then(|parent| self.find(parent));
                process.root == *member && process.session == CONSOLE_SESSION
                    || parent.is_some_and(|p| p.session == of.session && p.group != of.group)
            })
    }

    /// A process has ended, whose parent was this one: sends `SIGHUP` and `SIGCONT` to its own group, and to those of its
    /// former children, that are orphaned by this and have a stopped member.
    pub(crate) fn leave_stopped(&mut self, ended: Pid, parent: Option<Pid>, children: &[Pid]) {
        let Some(own) = self.find(ended) else {
            return;
        };
        let (group, session) = (own.group, own.session);
        // It kept its own group from being orphaned if its parent could continue it, as the shell can the root of a tree.
        let is_kept = own.root == ended && session == CONSOLE_SESSION
            || parent
                .and_then(|parent| self.find(parent))
                .is_some_and(|parent| parent.session == session && parent.group != group);
        let mut groups = BTreeMap::new();
        if is_kept {
            let members = self.those(ended, Which::Group(group));
            let other = members.into_iter().find(|member| *member != ended);
            groups.extend(other.map(|other| (group, other)));
        }
        for child in children {
            let of = self.find(*child);
            let of = of.filter(|of| of.group != group && of.session == session);
            groups.extend(of.map(|of| (of.group, *child)));
        }
        for (group, member) in groups {
            let members = self.those(member, Which::Group(group));
            let is_stopped = |pid: &Pid| self.find(*pid).is_some_and(|p| p.stopped.is_some());
            if members.iter().any(is_stopped) && self.is_orphaned(member) {
                for signal in [sig::HUP, sig::CONT] {
                    for member in members.iter().filter(|member| **member != ended) {
                        self.send(To::Process(*member), signal, Origin::kernel());
                    }
                }
            }
        }
    }

    /// The foreground group in the tree of this process; the process's own group if none was named.
    #[must_use]
    pub fn foreground(&self, pid: Pid) -> u32 {
        let own = self.find(pid);
        let named = own.and_then(|own| self.foregrounds.get(&own.root));
        named
            .copied()
            .unwrap_or_else(|| own.map_or(0, |own| own.group))
    }

    /// Ctrl-C or Ctrl-Z (`suspend`) was typed while the tree of this process had the console: sends `SIGINT` or
    /// `SIGTSTP` to the foreground group. Returns whether it was sent: Ctrl-Z only if a program of the tree has named a
    /// foreground group and so does job control.
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

    /// Names the foreground group, which must be in the caller's session. Errors: `EPERM`.
    pub fn set_foreground(&mut self, pid: Pid, group: u32) -> Result<(), Errno> {
        let root = self.find(pid).ok_or(EPERM)?.root;
        if !self.is_group_of_session(pid, group) {
            return Err(EPERM);
        }
        self.foregrounds.insert(root, group);
        self.wake(Key::Console);
        Ok(())
    }

    /// The console settings (`struct termios`) of the tree of this process, if one of its processes has set them. They
    /// hold for the whole tree, like those of a terminal, and outlive the process that set them: the entry of the
    /// tree's root has them.
    #[must_use]
    pub fn console_settings(&self, pid: Pid) -> Option<&[u8]> {
        let root = self.find(pid)?.root;
        self.find(root)?.termios.as_deref()
    }

    /// Sets the console settings of the tree of a process.
    pub fn set_console(&mut self, pid: Pid, termios: Vec<u8>) {
        let Some(root) = self.find(pid).map(|own| own.root) else {
            return;
        };
        if self.find(root).is_some() {
            self.process(root).termios = Some(termios);
        }
        // Pending reads of the console continue with the new settings.
        self.wake(Key::Console);
    }

    /// The console mode for these settings. Without `ICANON` there is no echo either, and every key is a byte.
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

    /// Stops a background process that uses the console, by sending `signal` to its group. `None` if the process may go
    /// on. Errors: `EIO` if it cannot be stopped.
    pub fn check_foreground(
        &mut self,
        pid: Pid,
        signal: u32,
        (ignores, is_pending): (bool, bool),
    ) -> Option<Result<(), Errno>> {
        let own = self.find(pid)?;
        // The console is no terminal to a process of another session, which may use what it has open.
        let is_terminal = own.session == CONSOLE_SESSION;
        if !is_terminal || self.foreground(pid) == own.group {
            return None;
        }
        Some(self.stop_background(pid, signal, (ignores, is_pending)))
    }

    /// Sends the group of a background process the signal that stops it, unless it is pending for the process already.
    /// Errors: `EIO` if the process ignores the signal, or its group is orphaned.
    pub fn stop_background(
        &mut self,
        pid: Pid,
        signal: u32,
        (ignores, is_pending): (bool, bool),
    ) -> Result<(), Errno> {
        if ignores || self.is_orphaned(pid) {
            return Err(crate::errno::EIO);
        }
        if is_pending {
            return Ok(());
        }
        let of = self.find(pid).ok_or(EPERM)?;
        self.signal_group(of.root, of.namespace, of.group, signal);
        Ok(())
    }

    /// Whether this is a group in the session of a process.
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
