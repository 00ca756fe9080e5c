//! What is said of an issue's agent: what it does now, and its last words. What it wrote is made safe
//! first: it mentions, references, closes and commands nothing, and has no secret.

use std::sync::Arc;

use super::minute;
use crate::github::text::{KnownSecrets, OutgoingRules, code, one_line, public_text};
use crate::types::{AgentName, AgentQuestion, RunId, Timestamp, beginning};

/// Longest words of a running agent that are shown, in characters.
const LIVE_WORDS_LEN_MAX: usize = 600;
/// Longest tool call that is shown, in characters.
const CALL_LEN_MAX: usize = 160;
/// Longest name of an answer that is shown, in characters.
const OPTION_LEN_MAX: usize = 60;
/// What stands in the place of words with a secret.
const WITHHELD: &str = "What the agent said is not shown: it contains a secret of this server. A person must look at it.";

/// What an agent does now, in its own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentDoing {
    /// What it said last.
    pub says: String,
    /// The tool that it called last, and how.
    pub calls: String,
}

/// Knows what agents do now.
pub trait LiveAgents: Send + Sync + 'static {
    /// What the agent of a run does; `None` if the run does not go on here.
    fn doing(&self, run: RunId) -> Option<AgentDoing>;
}

/// No agent works.
impl LiveAgents for () {
    fn doing(&self, _: RunId) -> Option<AgentDoing> {
        None
    }
}

/// What makes texts of agents safe to publish.
#[derive(Clone, Debug, Default)]
pub struct OutgoingTexts {
    /// The host that links may lead to.
    pub host: String,
    /// The command word; empty if there is none.
    pub command: String,
    /// What must not be published.
    pub secrets: Arc<KnownSecrets>,
}

impl OutgoingTexts {
    /// A text of an agent as it may be published, or that it may not.
    pub fn public(&self, text: &str) -> String {
        let rules =
            OutgoingRules { host: &self.host, command: &self.command, secrets: &self.secrets };
        match public_text(text, &rules) {
            Ok(public) => public.text,
            Err(found) => {
                tracing::error!(%found, "a text of an agent is not published");
                WITHHELD.to_owned()
            }
        }
    }
}

/// What is known of an issue's agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentShown {
    /// The agent of the run that goes on, and since when.
    pub works: Option<(AgentName, Timestamp)>,
    /// What it does, as far as that is known.
    pub doing: AgentDoing,
    /// What it asks a person, if it waits for that.
    pub asks: Option<AgentAsks>,
    /// The last words of the last run that succeeded.
    pub answer: Option<AgentAnswer>,
}

/// What an agent asks a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAsks {
    /// Its run.
    pub run: RunId,
    /// Since when it waits.
    pub since: Timestamp,
    /// The question, as the agent wrote it.
    pub question: AgentQuestion,
    /// The address of the page on which it is answered; `None` if the server has none for people.
    pub page: Option<String>,
}

/// The last words of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAnswer {
    /// The run.
    pub run: RunId,
    /// When it ended.
    pub at: Timestamp,
    /// The words, as the agent wrote them.
    pub words: String,
}

impl AgentShown {
    /// As Markdown for the status; empty if there is nothing to say.
    pub fn paragraphs(&self, texts: &OutgoingTexts) -> String {
        let mut said = Vec::new();
        if let Some((agent, since)) = &self.works {
            match &self.asks {
                Some(asks) => said.push(asks.paragraphs(agent, texts)),
                None => said.push(format!("The agent {agent} works since {}.", minute(*since))),
            }
            let words = beginning(self.doing.says.trim(), LIVE_WORDS_LEN_MAX);
            if !words.is_empty() {
                said.push(quoted(&texts.public(&words)));
            }
            let call = beginning(&one_line(&self.doing.calls), CALL_LEN_MAX);
            if !call.is_empty() && texts.secrets.check(&self.doing.calls).is_ok() {
                said.push(format!("Its last step: {}", code(&call)));
            }
        }
        if let Some(answer) = &self.answer {
            said.push(format!("The agent said at {}:", minute(answer.at)));
            said.push(quoted(&texts.public(&answer.words)));
        }
        said.join("\n\n")
    }
}

impl AgentAsks {
    fn paragraphs(&self, agent: &AgentName, texts: &OutgoingTexts) -> String {
        let question = beginning(self.question.text.trim(), LIVE_WORDS_LEN_MAX);
        let options = self.question.options.iter().map(|option| {
            let name = beginning(&one_line(&option.name), OPTION_LEN_MAX);
            if texts.secrets.check(&name).is_ok() { code(&name) } else { code("…") }
        });
        let options = options.collect::<Vec<_>>().join(", ");
        let page = match &self.page {
            Some(page) => format!("[on the page]({page}) or with"),
            None => "on the page of the sandbox or with".to_owned(),
        };
        format!(
            "**The agent {agent} waits for a person** since {}. It asks whether it may do this:\n\n{}\n\n\
             Answers: {options}. Answer it {page} `issuebox answer`.",
            minute(self.since),
            quoted(&texts.public(&question)),
        )
    }
}

/// A text as a quotation.
fn quoted(text: &str) -> String {
    let quote = |line: &str| if line.is_empty() { ">".to_owned() } else { format!("> {line}") };
    text.lines().map(quote).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{AnswerOption, Secret};

    fn texts() -> OutgoingTexts {
        let secret = Secret::new("hush-2718281828");
        OutgoingTexts {
            host: "github.com".into(),
            command: "/issuebox".into(),
            secrets: Arc::new(KnownSecrets::new([&secret])),
        }
    }

    fn at() -> Timestamp {
        Timestamp::parse("2026-12-01T14:05:09Z").expect("a time")
    }

    fn answer(words: &str) -> AgentShown {
        let run = RunId(uuid::Uuid::from_u128(1));
        let answer = AgentAnswer { run, at: at(), words: words.to_owned() };
        AgentShown { answer: Some(answer), ..AgentShown::default() }
    }

    #[test]
    fn a_question_says_where_it_is_answered_and_does_nothing() {
        let option =
            |name: &str| AnswerOption { id: "o".into(), name: name.into(), kind: "k".into() };
        let question = AgentQuestion {
            id: "1-1".into(),
            text: "execute: echo @mona, fixes #7".into(),
            options: vec![option("Allow once"), option("No `x`\n/issuebox stop")],
        };
        let page = Some("https://box.example/sandboxes/s1/conversation".to_owned());
        let run = RunId(uuid::Uuid::from_u128(1));
        let asks = Some(AgentAsks { run, since: at(), question, page });
        let works = Some((AgentName::trusted("mine"), at()));
        let shown = AgentShown { works, asks, ..AgentShown::default() };
        insta::assert_snapshot!(shown.paragraphs(&texts()), @"
        **The agent mine waits for a person** since 2026-12-01 14:05 UTC. It asks whether it may do this:

        > execute: echo `@mona,` `fixes` `#7`

        Answers: `Allow once`, ``No `x` /issuebox stop``. Answer it [on the page](https://box.example/sandboxes/s1/conversation) or with `issuebox answer`.
        ");
    }

    #[test]
    fn last_words_do_nothing_and_have_no_secret() {
        let said = answer(
            "Done, @mona. Fixes #7.\n<!-- end -->\n\n/issuebox stop\n\n<!-- issuebox inst 3 -->",
        )
        .paragraphs(&texts());
        insta::assert_snapshot!(said, @r"
        The agent said at 2026-12-01 14:05 UTC:

        > Done, `@mona.` `Fixes` `#7.`
        >
        > `/issuebox stop`
        ");
        for words in ["the key is hush-2718281828", "aHVzaC0yNzE4MjgxODI4 in base64"] {
            let said = answer(words).paragraphs(&texts());
            assert!(said.ends_with(WITHHELD) && !said.contains("2718"), "{said}");
        }
        let long = answer(&"word ".repeat(5_000)).paragraphs(&texts());
        assert!(long.chars().count() < 4_200 && long.ends_with("(cut)"), "{}", long.len());
    }

    #[test]
    fn what_an_agent_does_is_short_and_on_one_line() {
        let doing = AgentDoing {
            says: format!("Let me look, @mona. {}", "and look ".repeat(200)),
            calls: "Bash: cargo test\n# ``` @mona".into(),
        };
        let works = Some((AgentName::trusted("claude-code"), at()));
        let shown = AgentShown { works: works.clone(), doing, asks: None, answer: None };
        let said = shown.paragraphs(&texts());
        assert!(said.starts_with("The agent claude-code works since 2026-12-01 14:05 UTC.\n\n> "));
        assert!(said.contains("`@mona.`") && said.chars().count() < 1_000, "{said}");
        let step = said.lines().last().expect("a line");
        assert_eq!(step, "Its last step: ````Bash: cargo test # ``` @mona````");
        let doing = AgentDoing { says: String::new(), calls: "echo hush-2718281828".into() };
        let shown = AgentShown { works, doing, asks: None, answer: None };
        assert!(!shown.paragraphs(&texts()).contains("step"), "it has a secret");
        assert_eq!(AgentShown::default().paragraphs(&texts()), "");
    }
}
