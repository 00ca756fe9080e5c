//! What a template says of a sandbox's image, environment, user, directory, command and mounts, and
//! `[secrets]`, which its secrets name.
//!
//! A key that the template's provider cannot carry out is an error that names the template, the key
//! and the provider.

use std::collections::BTreeMap;
use std::path::Path;

use super::agents::{self, AgentProgram};
use super::git;
use super::hooks::{HookNeeds, hooks, sync_moments};
use super::provider::{ProviderSchema, ProviderSection};
use super::reader::{ConfigReader, text_of};
use crate::types::{
    AgentName, HostMount, Network, Secret, SecretName, Workload, WorkloadKey, WorkloadSource,
};

/// The most bytes of a template's environment, command and options together. They travel with every
/// command, and a kernel takes 128 KiB for one variable at most.
const WORKLOAD_LEN_MAX: usize = 32 * 1024;

/// Reads `[secrets]`.
pub(super) fn secrets(r: &mut ConfigReader) -> BTreeMap<SecretName, Secret> {
    let mut secrets = BTreeMap::new();
    for name in r.table_names("secrets") {
        let key = format!("secrets.{name}");
        let before = r.problems();
        // Not with `text`, whose error shows the value.
        let value = r.take(&format!("{key}.value"));
        let value =
            value.map(|given| text_of(&given.value).ok_or_else(|| "must be a text".to_owned()));
        let file = r.path(&format!("{key}.file"), None).map(|path| r.secret_file(path));
        let variable = r.text_if_given(&format!("{key}.env")).map(|variable| {
            r.variable(&variable).ok_or(format!("names the variable {variable}, which is not set"))
        });
        let given = [("value", value), ("file", file), ("env", variable)];
        let mut given = given.into_iter().filter_map(|(part, value)| Some((part, value?)));
        match (given.next(), given.next()) {
            (Some((part, value)), None) => {
                let key = format!("{key}.{part}");
                match value {
                    Ok(text) if text.trim_end_matches(['\r', '\n']).is_empty() => {
                        r.wrong(&key, "is empty");
                    }
                    Ok(text) if text.contains('\0') => r.wrong(&key, "contains a NUL byte"),
                    Ok(text) => {
                        let secret = Secret::new(text.trim_end_matches(['\r', '\n']));
                        secrets.insert(SecretName::trusted(name), secret);
                    }
                    Err(message) => r.wrong(&key, &message),
                }
            }
            (Some((part, _)), Some(_)) => {
                r.wrong(
                    &format!("{key}.{part}"),
                    "is one of several; keep one of value, file, env",
                );
            }
            // A value of the wrong kind has been reported already.
            (None, _) if r.problems() > before => {}
            (None, _) => r.trouble(format!("{key} needs one of value, file, env")),
        }
    }
    secrets
}

/// What all templates are read with.
pub(super) struct TemplateContext<'a> {
    /// The providers.
    pub schemas: &'a [&'a dyn ProviderSchema],
    /// `[secrets]`
    pub secrets: BTreeMap<SecretName, Secret>,
    /// Whether there are credentials for GitHub; without them nothing is checked out.
    pub has_credentials: bool,
    /// Whether `[sync]` names an object storage.
    pub has_storage: bool,
    /// The agents.
    pub agents: BTreeMap<AgentName, AgentProgram>,
    /// What [`allowed_mounts`] returned.
    pub mounts: BTreeMap<&'static str, Vec<String>>,
}

/// Reads the workload of one template.
pub(super) fn workload(
    r: &mut ConfigReader,
    context: &TemplateContext<'_>,
    template: &str,
    provider: &str,
    network: &Network,
) -> Workload {
    let TemplateContext { schemas, secrets, .. } = context;
    let key = |part: &str| format!("templates.{template}.{part}");
    let word = |text: &str| match text.is_empty() || text.contains([' ', '\t', '\n', '\0']) {
        true => Err("must be one word".to_owned()),
        false => Ok(Some(text.to_owned())),
    };
    let image = r.parsed(&key("image"), None, word);
    let snapshot = r.parsed(&key("snapshot"), None, word);
    if image.is_some() && snapshot.is_some() {
        r.wrong(&key("snapshot"), "and image are both set; keep one");
    }
    let working_dir = r.parsed(&key("working_dir"), None, |text| path(text).map(Some));
    let command = r.texts(&key("command"), &[]);
    if r.origin(&key("command")).is_some()
        && (command.first().is_none_or(String::is_empty)
            || command.iter().any(|t| t.contains('\0')))
    {
        r.wrong(&key("command"), "must name a program and its arguments, without NUL bytes");
    }
    let git = git::git(r, &key, context.has_credentials, network);
    let storage = context.has_storage;
    let needs = HookNeeds { checkout: git.is_some(), storage };
    let workload = Workload {
        source: image.map(WorkloadSource::Image).or(snapshot.map(WorkloadSource::Snapshot)),
        env: variables(r, &key("env"), |text| match text.contains('\0') {
            true => Err("must not contain NUL bytes".to_owned()),
            false => Ok(text.to_owned()),
        }),
        secrets: variables(r, &key("secrets"), |text| {
            let name = SecretName::trusted(text);
            match secrets.contains_key(&name) {
                true => Ok(name),
                false => Err("must name a secret that [secrets] has".to_owned()),
            }
        }),
        user: r.parsed(&key("user"), None, word),
        working_dir,
        command,
        mounts: mounts(r, &key("mounts"), context.mounts.get(provider).map(Vec::as_slice)),
        agent: agents::agent(r, &key, agents::default_agent(template), &context.agents),
        hooks: hooks(r, &key, needs),
        sync: sync_moments(r, &key, storage),
        git,
        options: options(r, schemas, template, provider),
    };
    for name in workload.secrets.keys().filter(|name| workload.env.contains_key(*name)) {
        r.wrong(&key(&format!("secrets.{name}")), "is in env, too; keep one");
    }
    if let Some(schema) = schemas.iter().find(|schema| schema.name() == provider) {
        refuse_unsupported(r, *schema, &key);
    }
    if len(&workload) > WORKLOAD_LEN_MAX {
        let most = WORKLOAD_LEN_MAX / 1024;
        r.trouble(format!("templates.{template} has more than {most} KiB of env and command"));
    }
    workload
}

/// Refuses what the provider cannot carry out.
fn refuse_unsupported(
    r: &mut ConfigReader,
    schema: &dyn ProviderSchema,
    key: &impl Fn(&str) -> String,
) {
    for part in WorkloadKey::ALL {
        let key = key(part.as_str());
        if let Err(remedy) = schema.supports(part)
            && r.origin(&key).is_some()
        {
            let provider = schema.name();
            r.wrong(&key, &format!("is not possible with provider {provider:?}: {remedy}"));
        }
    }
}

/// A path inside of a sandbox.
pub(super) fn path(text: &str) -> Result<String, String> {
    let is_path = !text.is_empty() && !text.contains('\0') && !text.split('/').any(|p| p == "..");
    if is_path { Ok(text.to_owned()) } else { Err("must be a path without ..".to_owned()) }
}

fn len(workload: &Workload) -> usize {
    let pairs = workload.env.iter().chain(&workload.options);
    let pairs: usize = pairs.map(|(name, value)| name.len() + value.len()).sum();
    pairs + workload.command.iter().map(String::len).sum::<usize>()
}

/// Reads a table of environment variables. A name that comes from the environment was folded to lower
/// case on its way, and is read in upper case.
pub(super) fn variables<T>(
    r: &mut ConfigReader,
    table: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> BTreeMap<String, T> {
    let mut variables = BTreeMap::new();
    for name in r.table_names(table) {
        let key = format!("{table}.{name}");
        let Some(value) = r.parsed(&key, None, |text| parse(text).map(Some)) else { continue };
        let name = match r.is_variable(&key) {
            true => name.to_uppercase(),
            false => name,
        };
        let is_name = !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_name {
            variables.insert(name, value);
        } else {
            r.wrong(&key, "must be named with letters, digits and _, and not begin with a digit");
        }
    }
    variables
}

/// The host directories that templates may mount, by provider: `mounts` in the provider's section.
pub(super) fn allowed_mounts(
    r: &mut ConfigReader,
    schemas: &[&dyn ProviderSchema],
) -> BTreeMap<&'static str, Vec<String>> {
    let can_mount = |schema: &&&dyn ProviderSchema| schema.supports(WorkloadKey::Mounts).is_ok();
    let read = |schema: &&dyn ProviderSchema| {
        let key = format!("providers.{}.mounts", schema.name());
        (schema.name(), r.texts(&key, &[]))
    };
    schemas.iter().filter(can_mount).map(read).collect()
}

fn mounts(r: &mut ConfigReader, key: &str, allowed: Option<&[String]>) -> Vec<HostMount> {
    // A provider that cannot mount anything has no list; that is reported by itself.
    let is_allowed = |mount: &HostMount| {
        let is_below = |dir: &String| Path::new(&mount.source).starts_with(dir);
        allowed.is_none_or(|allowed| allowed.iter().any(is_below))
    };
    let mut mounts = Vec::new();
    for text in r.texts(key, &[]) {
        match HostMount::parse(&text) {
            None => {
                let needed = "must be /host/path:/sandbox/path, or the same with :ro behind";
                r.wrong(key, &format!("{needed}, not {text:?}"));
            }
            Some(mount) if is_allowed(&mount) => mounts.push(mount),
            Some(mount) => {
                let unlisted = "which mounts in the provider's section does not list";
                r.wrong(key, &format!("has {}, {unlisted}", mount.source));
            }
        }
    }
    mounts
}

/// Reads `[templates.X.PROVIDER]`; the tables of other providers are errors.
fn options(
    r: &mut ConfigReader,
    schemas: &[&dyn ProviderSchema],
    template: &str,
    provider: &str,
) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    for schema in schemas {
        let name = schema.name();
        let table = format!("templates.{template}.{name}");
        let is_given = !r.table_names(&table).is_empty();
        let read = schema.read_template(&mut ProviderSection::new(r, table.clone()));
        if name == provider {
            options = read;
        } else if is_given {
            let message = format!("templates.{template} has a table {name}, which needs provider");
            r.trouble(format!("{message} = {name:?}; remove the table or change the provider"));
        }
    }
    options
}
