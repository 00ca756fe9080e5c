//! A terminal for one command, from the sandbox's own `/dev/pts`, so that `tty` names it there and
//! nothing of the host's is seen.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{InputModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

use super::confined::{RequestFailure, WorkFailure, explain};

/// Opens one of that size: its master side, and the side that a command has.
pub fn open(columns: u16, rows: u16) -> Result<(OwnedFd, OwnedFd), RequestFailure> {
    make(columns, rows).map_err(|errno| {
        RequestFailure::new(WorkFailure::Refused, format!("no terminal: {}", explain(errno)))
    })
}

fn make(columns: u16, rows: u16) -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    let mut modes = tcgetattr(&slave)?;
    // Erasing takes a whole character, not one byte of it.
    modes.input_modes |= InputModes::IUTF8;
    tcsetattr(&slave, OptionalActions::Now, &modes)?;
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&slave, size)?;
    Ok((master, slave))
}
