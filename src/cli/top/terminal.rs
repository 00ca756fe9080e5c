//! The terminal during `issuebox top`: raw mode and the alternate screen, restored at the end.

use std::io::{self, Write};

use tokio::sync::mpsc;

use super::super::raw::{RawMode, read_keys};
use super::frame::Size;
use super::keys::{Key, keys};

/// Alternate screen, hidden cursor, no line wrapping: some terminals draw a character wider than it
/// is counted here.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
/// Undoes `ENTER` and resets colours.
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
/// The size of a terminal that does not report one.
const SIZE_DEFAULT: Size = Size { columns: 80, rows: 24 };

/// The terminal in raw mode. A drop or a panic restores it.
pub(super) struct RawScreen {
    _raw: RawMode,
    drawn: Vec<String>,
}

impl RawScreen {
    /// Switches the terminal to raw mode.
    ///
    /// # Errors
    /// If standard input is not a terminal.
    pub fn take() -> io::Result<Self> {
        let raw = RawMode::take(|| {
            // If the terminal is gone, there is nothing to restore.
            let _gone = write(LEAVE);
        })?;
        write(ENTER)?;
        Ok(Self { _raw: raw, drawn: Vec::new() })
    }

    /// Draws the lines that changed.
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

    /// Forces a full redraw, as after a resize.
    pub fn clear(&mut self) -> io::Result<()> {
        self.drawn.clear();
        write("\x1b[2J")
    }

    /// The current size.
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

/// The pressed keys. The channel closes with the terminal.
pub(super) fn pressed() -> io::Result<mpsc::UnboundedReceiver<Key>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    read_keys(move |bytes| keys(bytes).into_iter().all(|key| sender.send(key).is_ok()))?;
    Ok(receiver)
}
