//! An effect of the outbox as the body of its row. As in `parts`, the names are what is stored. Its
//! kind is a column.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::BadRow;
use crate::issue::{Cleanup, CleanupAction, Effect, EffectKind};
use crate::types::{ExternalId, ProviderName, SandboxId};

#[derive(Serialize, Deserialize)]
struct CleanupBody<'a> {
    #[serde(borrow)]
    provider: Cow<'a, str>,
    #[serde(borrow)]
    external_id: Cow<'a, str>,
    #[serde(borrow)]
    sandbox: Cow<'a, str>,
    action: ActionPart,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ActionPart {
    Stop,
    Remove,
}

/// The body of the row of `effect` that keeps this.
///
/// # Errors
/// As for [`IssueRow::encode`](super::IssueRow::encode).
pub(in crate::store) fn effect_body(effect: &Effect) -> Result<String, BadRow> {
    match effect {
        Effect::CleanUp(Cleanup { provider, external_id, expected, action }) => {
            Ok(serde_json::to_string(&CleanupBody {
                provider: Cow::Borrowed(provider.as_str()),
                external_id: Cow::Borrowed(external_id.as_str()),
                sandbox: Cow::Borrowed(expected.as_str()),
                action: match action {
                    CleanupAction::Stop => ActionPart::Stop,
                    CleanupAction::Remove => ActionPart::Remove,
                },
            })?)
        }
        Effect::Github(effect) => super::github_body(effect),
    }
}

/// Reads the effect back.
///
/// # Errors
/// [`BadRow`] when this version cannot have written it.
pub(in crate::store) fn effect(kind: &str, body: &str) -> Result<Effect, BadRow> {
    match EffectKind::parse(kind).ok_or_else(|| BadRow::UnknownWord(kind.into()))? {
        EffectKind::Publish
        | EffectKind::React
        | EffectKind::Reply
        | EffectKind::SetCommitStatus
        | EffectKind::SetWorkingLabel
        | EffectKind::ShowPull
        | EffectKind::ShowStatus => Ok(Effect::Github(super::github_effect(kind, body)?)),
        EffectKind::CleanUp => {
            let CleanupBody { provider, external_id, sandbox, action } =
                serde_json::from_str(body)?;
            Ok(Effect::CleanUp(Cleanup {
                provider: ProviderName::trusted(&*provider),
                external_id: ExternalId::trusted(&*external_id),
                expected: SandboxId::trusted(&*sandbox),
                action: match action {
                    ActionPart::Stop => CleanupAction::Stop,
                    ActionPart::Remove => CleanupAction::Remove,
                },
            }))
        }
    }
}
