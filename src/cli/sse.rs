//! Decodes server-sent events from chunks of bytes, as the HTML standard defines them.
//!
//! The length of a line is bounded, so that a server cannot fill the memory.

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SseEvent {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its data, lines joined by line feeds.
    pub data: String,
    /// The last id in the stream, to resume from.
    pub id: Option<String>,
}

/// Longest line, in bytes: a chunk of base64 output fits many times.
const LINE_LEN_MAX: usize = 8 * 1024 * 1024;

/// Assembles events from chunks.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
}

impl Decoder {
    /// Adds bytes and returns the events that they complete.
    ///
    /// # Errors
    /// If a line is too long.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, &'static str> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            self.line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.line);
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            events.extend(self.take_line(&String::from_utf8_lossy(line)));
        }
        self.line.extend_from_slice(rest);
        if self.line.len() > LINE_LEN_MAX || self.event.data.len() > LINE_LEN_MAX {
            return Err("the server sent an event that is too long");
        }
        Ok(events)
    }

    /// The last id in the stream.
    pub fn id(&self) -> Option<&str> {
        self.event.id.as_deref()
    }

    fn take_line(&mut self, line: &str) -> Option<SseEvent> {
        if line.is_empty() {
            let event = SseEvent { id: self.event.id.clone(), ..SseEvent::default() };
            let ended = std::mem::replace(&mut self.event, event);
            return std::mem::take(&mut self.has_data).then_some(ended);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "id" => self.event.id = Some(value.to_owned()),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            // Comments (an empty field), `retry`, and fields of later versions.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": hello\r\n\r\nevent: exit\nid: 7\ndata: {\"a\":\ndata:  1}\n\n\
        data\n\nretry: 5\nnew: thing\nevent: lost\n\nevent: stdout\ndata:x\n\nevent: cut";

    fn event(name: &str, data: &str) -> SseEvent {
        let id = Some("7".to_owned());
        SseEvent { name: name.to_owned(), data: data.to_owned(), id }
    }

    #[test]
    fn events_are_the_same_however_the_bytes_are_cut() {
        let whole = [event("exit", "{\"a\":\n 1}"), event("", ""), event("stdout", "x")];
        for len in 1..=STREAM.len() {
            let mut decoder = Decoder::default();
            let mut events = Vec::new();
            for chunk in STREAM.as_bytes().chunks(len) {
                events.extend(decoder.push(chunk).expect("short lines"));
            }
            assert_eq!(events, whole, "cut after every {len} bytes");
        }
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let mut decoder = Decoder::default();
        let chunk = vec![b'x'; 1024 * 1024];
        let fed = (0..9).try_for_each(|_| decoder.push(&chunk).map(|_events| ()));
        assert!(fed.is_err());
    }

    #[test]
    fn data_without_an_end_is_refused() {
        let mut decoder = Decoder::default();
        let chunk = "data: x\n".repeat(100_000);
        let fed = (0..100).try_for_each(|_| decoder.push(chunk.as_bytes()).map(|_events| ()));
        assert!(fed.is_err());
    }
}
