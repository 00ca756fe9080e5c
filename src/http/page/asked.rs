//! What a person asked for in words, on a page: who asked, and the beginning of the text. Each line is
//! escaped, and what would act on a terminal or turn the direction of writing is written out.

use maud::{Markup, html};

use crate::http::instruction::InstructionBody;
use crate::issue::instruction::EXCERPT_LEN_MAX;

use super::text::shown;

/// Who asked for what.
pub fn asked(instruction: &InstructionBody) -> Markup {
    let InstructionBody { author, sender, text, .. } = instruction;
    let end = text.char_indices().nth(EXCERPT_LEN_MAX).map(|(end, _)| end);
    let is_cut = instruction.is_excerpt || end.is_some();
    let text = &text[..end.unwrap_or(text.len())];
    html! {
        div .asked {
            p .by {
                bdi { (shown(author.as_deref().unwrap_or("someone"))) } " wrote"
                @if let Some(sender) = sender.as_ref().filter(|_| author != sender) {
                    ", " bdi { (shown(sender)) } " asked for it"
                }
            }
            @if let Some(title) = &instruction.title { p .title { bdi { (shown(title)) } } }
            @if !text.is_empty() {
                blockquote dir="auto" {
                    @for (number, line) in text.lines().enumerate() {
                        @if number > 0 { br; }
                        bdi { (shown(line)) }
                    }
                    @if is_cut { "… " span .soft { "GET /v1/deliveries has the whole text" } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::Instruction;
    use crate::issue::instruction::{GithubUser, InstructionSource};
    use crate::types::Timestamp;

    fn body(author: &str, sender: &str, text: &str) -> InstructionBody {
        let user = |login: &str| Some(GithubUser { id: 1, login: login.into() });
        InstructionBody::from(Instruction {
            source: InstructionSource::Issue,
            author: user(author),
            sender: user(sender),
            as_of: Timestamp::from_unix_ms(0),
            title: Some("<b>A title".into()),
            text: text.into(),
        })
    }

    #[test]
    fn who_asked_and_the_beginning_of_the_text_are_shown_line_by_line() {
        let page = asked(&body("ada", "bob", &format!("one\ntwo\n{}", "x".repeat(600)))).0;
        for part in ["<bdi>ada</bdi> wrote", "<bdi>bob</bdi> asked", "one</bdi><br><bdi>two", "…"]
        {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        assert!(page.contains(&"x".repeat(492)) && !page.contains(&"x".repeat(493)), "{page}");
        assert!(!asked(&body("ada", "ada", "one")).0.contains("asked for it"));
    }

    #[test]
    fn what_was_written_does_nothing() {
        let text = "<script>\u{1b}[2J\u{202e}\u{9b}\u{2066}";
        let page = asked(&body("<img src=x>\u{202e}", "\u{1b}]0;", text)).0;
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("<b>A"));
        let acts = ['\u{1b}', '\u{202e}', '\u{9b}', '\u{2066}'];
        assert!(!page.contains(acts), "{page}");
    }
}
