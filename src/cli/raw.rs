//! A terminal in raw mode: every key comes as bytes, nothing is echoed, no key is a signal.

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// The terminal on standard input, in raw mode. Dropping it gives it back as it was; so does a
/// panic, before its message is written.
pub(super) struct RawMode {
    before: Arc<Termios>,
    leave: fn(),
}

impl RawMode {
    /// Takes the terminal. `leave` is called right before it is given back.
    ///
    /// # Errors
    /// Where standard input is no terminal.
    pub fn take(leave: fn()) -> io::Result<Self> {
        let before = Arc::new(tcgetattr(stdin())?);
        let mut raw = Termios::clone(&before);
        raw.make_raw();
        let taken = Self { before: Arc::clone(&before), leave };
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back(&before, leave);
            tell(panic);
        }));
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        Ok(taken)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        give_back(&self.before, self.leave);
    }
}

fn give_back(before: &Termios, leave: fn()) {
    leave();
    // A terminal that is gone needs nothing back.
    let _gone = tcsetattr(stdin(), OptionalActions::Now, before);
}

/// Reads standard input on a thread of its own, since nothing can end a read from a terminal, until
/// `take` says that it has enough; it ends with the process.
///
/// # Errors
/// Where there are no threads or descriptors left.
pub(super) fn read_keys(mut take: impl FnMut(&[u8]) -> bool + Send + 'static) -> io::Result<()> {
    // Without the buffer of `Stdin`, which would keep what belongs to the next program.
    let mut input = File::from(rustix::io::dup(stdin())?);
    std::thread::Builder::new().name("keys".into()).spawn(move || {
        let mut bytes = [0; 4096];
        loop {
            match io::Read::read(&mut input, &mut bytes) {
                Ok(len @ 1..) if take(&bytes[..len]) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return,
            }
        }
    })?;
    Ok(())
}
