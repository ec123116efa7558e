//! Hears of forks, execs and ends from the kernel itself, so that none is missed between two samples.
//!
//! The process connector: cn_proc.h of the kernel. It speaks to root, from Linux 6.6 on to everybody, and only in the
//! first PID namespace and user namespace, so not in most containers.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use faultless_records::permission::Answer;
use faultless_records::process_event::{self, ProcessEvent, What, kind};
use nix::libc;

use crate::refused::Refused;
use crate::wakeup;

/// How long the kernel may take to say that it will speak to us.
const PATIENCE: Duration = Duration::from_millis(50);

/// The kernel's group of listeners to processes.
const GROUP: u32 = 1;

/// An open ear.
#[derive(Debug)]
pub struct ProcessEvents {
    socket: OwnedFd,
    /// What arrived before the kernel's answer.
    early: VecDeque<ProcessEvent>,
}

/// What was heard since the last time.
#[derive(Debug, Default)]
pub struct Heard {
    /// In the order in which the kernel said it.
    pub events: Vec<ProcessEvent>,
    /// Whether more came than we could keep: some events are lost.
    pub is_incomplete: bool,
}

impl ProcessEvents {
    /// Begins to listen.
    ///
    /// # Errors
    /// One line: why the kernel does not speak to us, and what would change it.
    pub fn open() -> Result<Self, Refused> {
        let refused = |error: io::Error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Refused::new(
                Answer::Denied,
                "the kernel tells of forks, execs and exits only to root before Linux 6.6 (sudo, or CAP_NET_ADMIN)",
            ),
            Some(libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT) => {
                Refused::new(Answer::Absent, "this kernel has no process connector (CONFIG_PROC_EVENTS)")
            }
            _ => Refused::new(Answer::Failed, format!("the process connector cannot be opened: {error}")),
        };
        let mut events = Self { socket: bound_socket().map_err(refused)?, early: VecDeque::new() };
        events.send(&process_event::wish(true, None)).map_err(refused)?;
        match events.answer() {
            Some(0) => {
                // Kernels from 6.6 on then leave out what we do not want to know; none answers to this.
                let _ = events.send(&process_event::wish(true, Some(kind::FORK | kind::EXEC | kind::EXIT)));
                return Ok(events);
            }
            Some(error) => {
                return Err(refused(io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(0))));
            }
            None => {}
        }
        Err(Refused::new(
            Answer::Absent,
            "the kernel does not answer on the process connector: it speaks only outside of containers (the first PID and user namespace), and from Linux 6.6 on also to ordinary users",
        ))
    }

    /// Everything heard since the last time, without waiting.
    pub fn take(&mut self) -> Heard {
        let mut heard = Heard { events: self.early.drain(..).collect(), is_incomplete: false };
        loop {
            match self.receive() {
                Ok(Some(event)) => heard.events.push(event),
                Ok(None) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => heard.is_incomplete = true,
                Err(_) => return heard,
            }
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        // SAFETY: the pointer and length are those of a slice that lives through the call.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The kernel's answer, if it comes in time.
    fn answer(&mut self) -> Option<u32> {
        let end = crate::clock::monotonic_ns() + PATIENCE.as_nanos() as u64;
        loop {
            match self.receive() {
                Ok(Some(ProcessEvent { what: What::Answer(error), .. })) => return Some(error),
                Ok(Some(event)) => self.early.push_back(event),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let now = crate::clock::monotonic_ns();
                    if now >= end || wakeup::readable(self.as_fd(), Duration::from_nanos(end - now)).is_err()
                    {
                        return None;
                    }
                }
                Err(_) => return None,
            }
        }
    }

    /// One message; none when it says nothing that we want to know.
    fn receive(&self) -> io::Result<Option<ProcessEvent>> {
        let mut message = [0_u8; 512];
        // SAFETY: sockaddr_nl is plain data; all zeros is a value of it.
        let mut sender: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: buffer, address and its length are valid for writing during the call.
        let received = unsafe {
            libc::recvfrom(
                self.socket.as_raw_fd(),
                message.as_mut_ptr().cast(),
                message.len(),
                0,
                (&raw mut sender).cast(),
                &raw mut length,
            )
        };
        let Ok(received) = usize::try_from(received) else { return Err(io::Error::last_os_error()) };
        // Other processes may send to the group; only the kernel is believed.
        if sender.nl_pid != 0 {
            return Ok(None);
        }
        Ok(message.get(..received).and_then(process_event::parse))
    }
}

impl AsFd for ProcessEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for ProcessEvents {
    fn drop(&mut self) {
        let _ = self.send(&process_event::wish(false, None));
    }
}

fn bound_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes no pointers.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_CONNECTOR) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // Room for a burst; a smaller one only loses more, and that is noticed.
    let room: libc::c_int = 4 << 20;
    for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
        // SAFETY: the value is an int that lives through the call.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const room).cast(),
                size_of_val(&room) as libc::socklen_t,
            )
        };
    }
    // SAFETY: sockaddr_nl is plain data; all zeros is a value of it.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = GROUP;
    let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: address and length describe a sockaddr_nl that lives through the call.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_ours_is_heard_from_beginning_to_end_or_the_reason_is_given() {
        let mut events = match ProcessEvents::open() {
            Ok(events) => events,
            Err(Refused { reason, .. }) => {
                assert!(reason.contains("kernel") || reason.contains("connector"), "{reason}");
                return faultless_skipped::skipped(reason);
            }
        };
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id().cast_signed();
        child.wait().unwrap();
        // The kernel tells of the end after the parent may have heard of it.
        let end = What::Exit { pid, wait_status: 0 };
        let (begun, mut heard) = (std::time::Instant::now(), Vec::new());
        while !heard.contains(&end) && begun.elapsed().as_secs() < 10 {
            heard.extend(events.take().events.into_iter().map(|event| event.what));
        }
        let own = std::process::id().cast_signed();
        assert!(heard.contains(&What::Fork { parent: own, child: pid }), "{heard:?}");
        assert!(heard.contains(&What::Exec(pid)), "{heard:?}");
        assert!(heard.contains(&end), "{heard:?}");
    }
}
