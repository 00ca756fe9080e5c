//! A terminal in raw mode: each key arrives as bytes, without echo and without signals.

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Standard input's terminal in raw mode. A drop restores it; so does a panic, before its message.
pub(super) struct RawMode {
    before: Arc<Termios>,
    leave: fn(),
}

impl RawMode {
    /// Switches to raw mode. `leave` runs right before the terminal is restored.
    ///
    /// # Errors
    /// If standard input is not a terminal.
    pub fn take(leave: fn()) -> io::Result<Self> {
        let before = Arc::new(tcgetattr(stdin())?);
        let mut raw = Termios::clone(&before);
        raw.make_raw();
        let taken = Self { before: Arc::clone(&before), leave };
        let print_panic = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore(&before, leave);
            print_panic(panic);
        }));
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        Ok(taken)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore(&self.before, self.leave);
    }
}

fn restore(before: &Termios, leave: fn()) {
    leave();
    // If the terminal is gone, there is nothing to restore.
    let _gone = tcsetattr(stdin(), OptionalActions::Now, before);
}

/// Most bytes that are read at once.
const INPUT_PIECE_LEN: usize = 32 * 1024;

/// Reads standard input on a thread, because a read from a terminal cannot be cancelled. It ends when
/// `take` returns `false`, or with the process.
///
/// # Errors
/// If there are no threads or file descriptors left.
pub(super) fn read_keys(mut take: impl FnMut(&[u8]) -> bool + Send + 'static) -> io::Result<()> {
    // Not `Stdin`: its buffer would keep bytes that belong to the next program.
    let mut input = File::from(rustix::io::dup(stdin())?);
    std::thread::Builder::new().name("keys".into()).spawn(move || {
        let mut bytes = vec![0; INPUT_PIECE_LEN];
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
