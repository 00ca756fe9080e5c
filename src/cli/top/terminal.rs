//! The terminal while the view has it: raw mode and the alternate screen, given back in the end.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use super::frame::Size;
use super::keys::{Key, keys};

/// The alternate screen, no cursor, and no line that wraps because a terminal finds a character
/// wider than we do.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
/// The same taken back, and colours ended.
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
/// What a terminal is taken to be that does not say how large it is.
const SIZE_DEFAULT: Size = Size { columns: 80, rows: 24 };

/// A terminal in our hands. Dropping it gives it back as it was; so does a panic, before its
/// message is written.
pub(super) struct Terminal {
    before: Arc<Termios>,
    drawn: Vec<String>,
}

impl Terminal {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Where standard input is no terminal.
    pub fn take() -> io::Result<Self> {
        let before = Arc::new(tcgetattr(stdin())?);
        let mut raw = Termios::clone(&before);
        raw.make_raw();
        let terminal = Self { before: Arc::clone(&before), drawn: Vec::new() };
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back(&before);
            tell(panic);
        }));
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        write(ENTER)?;
        Ok(terminal)
    }

    /// Shows lines; only those that are not there already are written.
    pub fn draw(&mut self, lines: Vec<String>) -> io::Result<()> {
        let mut text = String::new();
        for (at, line) in lines.iter().enumerate() {
            if self.drawn.get(at) != Some(line) {
                text.push_str(&format!("\x1b[{};1H\x1b[0m{line}\x1b[0m\x1b[K", at + 1));
            }
        }
        self.drawn = lines;
        write(&text)
    }

    /// Forgets what is shown, as after a change of size.
    pub fn clear(&mut self) -> io::Result<()> {
        self.drawn.clear();
        write("\x1b[2J")
    }

    /// How large it is now.
    pub fn size(&self) -> Size {
        let size = terminal_size::terminal_size_of(io::stdout());
        size.map_or(SIZE_DEFAULT, |(columns, rows)| Size {
            columns: usize::from(columns.0),
            rows: usize::from(rows.0),
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back(&self.before);
    }
}

fn give_back(before: &Termios) {
    // A terminal that is gone needs nothing back.
    let _gone = write(LEAVE);
    let _gone = tcsetattr(stdin(), OptionalActions::Now, before);
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The keys that are pressed, read on a thread of its own, since nothing can end a read from a
/// terminal; it ends with the process. The channel ends with the terminal.
pub(super) fn pressed() -> io::Result<mpsc::UnboundedReceiver<Key>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    // Without the buffer of `Stdin`, which would keep what belongs to the next program.
    let mut input = File::from(rustix::io::dup(stdin())?);
    std::thread::Builder::new().name("keys".into()).spawn(move || {
        let mut bytes = [0; 256];
        while let Ok(len @ 1..) = io::Read::read(&mut input, &mut bytes) {
            if keys(&bytes[..len]).into_iter().any(|key| sender.send(key).is_err()) {
                return;
            }
        }
    })?;
    Ok(receiver)
}
