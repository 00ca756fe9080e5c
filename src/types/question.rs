//! What an agent asks a person: a question with the options that answer it.

use super::Timestamp;

/// Something that a person decides for an agent, which waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentQuestion {
    /// Its id, which no other question of its run has.
    pub id: String,
    /// What is asked, in the agent's words, bounded.
    pub text: String,
    /// What can be answered; never empty.
    pub options: Vec<AnswerOption>,
}

/// Who decides what an agent may do, where its agent asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentPermissions {
    /// No person: it is allowed at once, since the sandbox is the wall.
    #[default]
    Allow,
    /// A person: the agent waits for the answer.
    Ask,
}

impl AgentPermissions {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Allow, Self::Ask];

    /// The stable word for this.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
        }
    }

    /// Reads the word back; `None` for any other text.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == word)
    }
}

/// How the program of an agent is started and treated, as the configuration says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentSettings {
    /// Its arguments, before those of ours.
    pub args: Vec<String>,
    /// Variables of its environment, in place of ours of the same name.
    pub env: Vec<(String, String)>,
    /// Who decides what it may do.
    pub permissions: AgentPermissions,
}

/// One of the answers to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerOption {
    /// Its id, which no other option of the question has.
    pub id: String,
    /// What it is, in the agent's words.
    pub name: String,
    /// What kind of decision it is: `allow_once`, `allow_always`, `reject_once`, `reject_always`, or a
    /// word of a later version of the agent's protocol.
    pub kind: String,
}

impl AnswerOption {
    /// Whether it allows what is asked.
    pub fn allows(&self) -> bool {
        self.kind.starts_with("allow")
    }
}

/// How a person answered a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionAnswer {
    /// The question's id.
    pub question: String,
    /// What was chosen.
    pub option: AnswerOption,
    /// Who chose it, as the caller called itself.
    pub by: String,
    /// When.
    pub at: Timestamp,
}
