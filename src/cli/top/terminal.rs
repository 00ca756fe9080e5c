//! The terminal while the view has it: raw mode and the alternate screen, given back in the end.

use std::io::{self, Write};

use tokio::sync::mpsc;

use super::super::raw::{RawMode, read_keys};
use super::frame::Size;
use super::keys::{Key, keys};

/// The alternate screen, no cursor, and no line that wraps because a terminal finds a character
/// wider than we do.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
/// The same taken back, and colours ended.
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
/// What a terminal is taken to be that does not say how large it is.
const SIZE_DEFAULT: Size = Size { columns: 80, rows: 24 };

/// A terminal in our hands. Dropping it gives it back as it was; so does a panic.
pub(super) struct RawScreen {
    _raw: RawMode,
    drawn: Vec<String>,
}

impl RawScreen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Where standard input is no terminal.
    pub fn take() -> io::Result<Self> {
        let raw = RawMode::take(|| {
            // A terminal that is gone needs nothing back.
            let _gone = write(LEAVE);
        })?;
        write(ENTER)?;
        Ok(Self { _raw: raw, drawn: Vec::new() })
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

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The keys that are pressed. The channel ends with the terminal.
pub(super) fn pressed() -> io::Result<mpsc::UnboundedReceiver<Key>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    read_keys(move |bytes| keys(bytes).into_iter().all(|key| sender.send(key).is_ok()))?;
    Ok(receiver)
}
