//! Who works in the story: the agent's program, and the model that answers it.

use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde_json::json;

use super::super::super::env::EnvVars;
use crate::models::double::{DoubleBlock, DoubleScript, DoubleTurn, ModelDouble};
use crate::runs::on_path;
use crate::types::Secret;

/// The name by which this program is the stand-in for an agent.
const STAND_IN: &str = "issuebox-stand-in-agent";
/// The name of claude's program.
const CLAUDE: &str = "claude";
/// The variable with the key for a real model.
const KEY_VARIABLE: &str = "ANTHROPIC_API_KEY";
/// The key that the gateway adds where a double answers.
const MADE_UP_KEY: &str = "made-up-key-of-the-demo";

/// A model of Anthropic that is asked in place of the double.
pub(in crate::cli::demo) struct RealModel {
    name: String,
    key: Secret,
}

impl RealModel {
    /// The model that the person chose, with the key of the environment.
    pub(in crate::cli::demo) fn chosen(
        name: Option<String>,
        env: &EnvVars,
    ) -> anyhow::Result<Option<Self>> {
        let Some(name) = name else { return Ok(None) };
        let key = env.get(KEY_VARIABLE).filter(|key| !key.is_empty());
        let key = key.with_context(|| {
            format!("--model asks a real model: set {KEY_VARIABLE} to a key, or leave --model out")
        })?;
        Ok(Some(Self { name, key: Secret::new(key) }))
    }
}

/// The agent of the story.
pub(super) struct AgentCast {
    /// Which program works, and what answers it, for people.
    pub words: String,
    /// The variables by which the server is set.
    pub settings: Vec<(&'static str, String)>,
    /// Answers the agent, for as long as the story goes on.
    _double: Option<ModelDouble>,
}

impl AgentCast {
    /// Chooses claude if it is installed, else the stand-in; and the model, else a double that has the
    /// agent run these commands, one for each message.
    pub async fn choose(
        data: &Path,
        model: Option<RealModel>,
        commands: [&str; 2],
    ) -> anyhow::Result<Self> {
        let (program, path) = match on_path(CLAUDE, &std::env::var("PATH").unwrap_or_default()) {
            Some(path) => (CLAUDE, path),
            None => {
                ensure!(
                    model.is_none(),
                    "--model needs {CLAUDE} on the PATH: npm install -g @anthropic-ai/claude-code"
                );
                let link = data.join(STAND_IN);
                let itself = std::env::current_exe().context("cannot find this program")?;
                symlink(itself, &link).context("cannot link the stand-in agent")?;
                ("a stand-in for claude", link)
            }
        };
        let mut settings = vec![
            ("ISSUEBOX__TEMPLATES__DEFAULT__AGENT", "claude-code".to_owned()),
            ("ISSUEBOX__AGENTS__CLAUDE-CODE__PATH", path.display().to_string()),
        ];
        let (answers, key, double) = match model {
            Some(RealModel { name, key }) => {
                settings.push(("ISSUEBOX__TEMPLATES__DEFAULT__MODEL", name.clone()));
                (name, key, None)
            }
            None => {
                let double = ModelDouble::start(script(commands)).await;
                let double = double.context("cannot start a double of the model")?;
                settings.push(("ISSUEBOX__MODELS__ANTHROPIC__BASE_URL", double.base_url()));
                ("a double of the model".to_owned(), Secret::new(MADE_UP_KEY), Some(double))
            }
        };
        let key_file = write_key(data, &key).context("cannot write the model's key")?;
        settings.push(("ISSUEBOX__MODELS__ANTHROPIC__KEY_FILE", key_file.display().to_string()));
        let words = format!("{program}, answered by {answers}");
        Ok(Self { words, settings, _double: double })
    }
}

/// What the double answers: for each message a command, and words when it has run.
fn script(commands: [&str; 2]) -> DoubleScript {
    let [first, second] = commands.map(|command| {
        DoubleTurn::of(vec![
            DoubleBlock::Text("I change the file, commit and push.".to_owned()),
            DoubleBlock::Tool {
                name: "Bash".to_owned(),
                input: json!({"command": command, "description": "Change, commit, push"}),
            },
        ])
    });
    let greets = DoubleTurn::says("The greeting says hello to mona by her name.");
    let takes_leave = DoubleTurn::says("It also says goodbye to her now.");
    DoubleScript {
        turns: vec![first, greets, second, takes_leave],
        // What claude asks beside its work, such as a title.
        side: Some(DoubleTurn::says("Greeting by name")),
    }
}

fn write_key(data: &Path, key: &Secret) -> std::io::Result<PathBuf> {
    let file = data.join("model-key");
    let mut options = std::fs::OpenOptions::new();
    let mut opened = options.write(true).create_new(true).mode(0o600).open(&file)?;
    std::io::Write::write_all(&mut opened, key.expose().as_bytes())?;
    Ok(file)
}
