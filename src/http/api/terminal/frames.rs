//! The text messages of a terminal's WebSocket: one JSON object each.

use serde_json::json;

use crate::http::api::exec;
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::sandbox::{TerminalControl, TerminalRequest, TerminalSignal, TerminalSize};

/// Largest terminal, in characters each way.
const SIZE_MAX: u64 = 10_000;

/// The default of `TERM`.
const TERM: &str = "xterm-256color";

/// A text message of a client.
#[derive(Debug, PartialEq, Eq)]
pub enum FromClient {
    /// The first message: the command.
    Start(TerminalRequest),
    /// A later message.
    Control(TerminalControl),
}

impl FromClient {
    /// Reads a message.
    ///
    /// # Errors
    /// 400 that names what is wrong.
    pub fn read(text: &str) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(text.as_bytes())?;
        let message = match fields.text("type")?.as_deref() {
            Some("start") => Self::Start(start(&mut fields)?),
            Some("resize") => Self::Control(TerminalControl::Resize(TerminalSize {
                columns: length(&mut fields, "columns", None)?,
                rows: length(&mut fields, "rows", None)?,
            })),
            Some("signal") => Self::Control(TerminalControl::Signal(signal(&mut fields)?)),
            Some(_) | None => {
                return Err(ApiError::field("type", "must be start, resize or signal"));
            }
        };
        fields.finish()?;
        Ok(message)
    }
}

fn start(fields: &mut Fields) -> Result<TerminalRequest, ApiError> {
    let command = fields.texts("command")?.unwrap_or_else(TerminalRequest::login_shell);
    let cwd = fields.text("cwd")?;
    let mut env = fields.pairs("env")?;
    exec::check(&command, cwd.as_deref(), &env)?;
    if env.iter().all(|(name, _)| name != "TERM") {
        env.push(("TERM".to_owned(), TERM.to_owned()));
    }
    let size = TerminalSize {
        columns: length(fields, "columns", Some(80))?,
        rows: length(fields, "rows", Some(24))?,
    };
    Ok(TerminalRequest { command, cwd: cwd.filter(|cwd| !cwd.is_empty()), env, size })
}

fn length(fields: &mut Fields, name: &str, default: Option<u16>) -> Result<u16, ApiError> {
    let given = fields.number(name, 1..=SIZE_MAX)?;
    let given = given.and_then(|length| u16::try_from(length).ok());
    given.or(default).ok_or_else(|| ApiError::field(name, "must be given"))
}

fn signal(fields: &mut Fields) -> Result<TerminalSignal, ApiError> {
    match fields.text("signal")?.as_deref() {
        Some("INT") => Ok(TerminalSignal::Interrupt),
        Some("QUIT") => Ok(TerminalSignal::Quit),
        Some("KILL") => Ok(TerminalSignal::Kill),
        Some(_) | None => Err(ApiError::field("signal", "must be INT, QUIT or KILL")),
    }
}

/// The message that the command ended.
pub fn exit(code: i32) -> String {
    json!({"type": "exit", "exitCode": code}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_read_whole_and_what_is_left_out_has_a_default() {
        let text = r#"{"type":"start","command":["top"],"cwd":"src","env":{"TERM":"vt100"},
            "columns":120,"rows":40}"#;
        let size = TerminalSize { columns: 120, rows: 40 };
        let request = TerminalRequest {
            command: vec!["top".into()],
            cwd: Some("src".into()),
            env: vec![("TERM".into(), "vt100".into())],
            size,
        };
        assert_eq!(FromClient::read(text).expect("valid"), FromClient::Start(request));
        let bare = FromClient::read(r#"{"type":"start"}"#).expect("valid");
        let request = TerminalRequest {
            command: TerminalRequest::login_shell(),
            cwd: None,
            env: vec![("TERM".into(), TERM.into())],
            size: TerminalSize { columns: 80, rows: 24 },
        };
        assert_eq!(bare, FromClient::Start(request));
    }

    #[test]
    fn what_is_done_to_a_terminal_is_read() {
        let resize = FromClient::read(r#"{"type":"resize","columns":1,"rows":10000}"#);
        let size = TerminalSize { columns: 1, rows: 10_000 };
        assert_eq!(resize.ok(), Some(FromClient::Control(TerminalControl::Resize(size))));
        for (word, signal) in [
            ("INT", TerminalSignal::Interrupt),
            ("QUIT", TerminalSignal::Quit),
            ("KILL", TerminalSignal::Kill),
        ] {
            let text = format!(r#"{{"type":"signal","signal":"{word}"}}"#);
            let control = FromClient::Control(TerminalControl::Signal(signal));
            assert_eq!(FromClient::read(&text).ok(), Some(control));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, field) in [
            ("", Some("type")),
            ("[]", None),
            (r#"{"type":"dance"}"#, Some("type")),
            (r#"{"type":"start","command":[]}"#, Some("command")),
            (r#"{"type":"start","command":["a\u0000"]}"#, Some("command")),
            (r#"{"type":"start","env":{"A=B":"c"}}"#, Some("env")),
            (r#"{"type":"start","columns":0}"#, Some("columns")),
            (r#"{"type":"start","shell":"x"}"#, Some("shell")),
            (r#"{"type":"resize","columns":5}"#, Some("rows")),
            (r#"{"type":"resize","columns":5,"rows":10001}"#, Some("rows")),
            (r#"{"type":"signal","signal":"TERM"}"#, Some("signal")),
        ] {
            let error = FromClient::read(text).expect_err(text);
            assert_eq!(error.wrong_field(), field, "{text}");
        }
    }
}
